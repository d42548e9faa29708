//! Whether repositories are whole, and whether there are some that belong to nobody.

use std::{
    collections::HashSet,
    fs::{self, FileType},
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use gix::{
    objs::Kind,
    odb::pack::{Bundle, data, data::entry::Header},
};
use model::StorageId;

use crate::{
    Error, Repositories, Result, child,
    limits::{LARGEST_COMMIT, LARGEST_TREE},
    objects::too_large,
    packs::{LONGEST_CHAIN, base_offset, indices, result_size, too_deep},
    repository::gix_id,
};

/// How many faults of one repository are told.
const TOLD: usize = 10;

/// What lies about in the folder of repositories and belongs to none.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// Repositories that belong to no project, and links that are nobody's.
    pub orphans: Vec<PathBuf>,
    /// Links in the place of folders in which repositories of projects lie.
    pub links: Vec<PathBuf>,
    /// What was being built or taken in, or is on its way out; the next start removes it.
    pub leftovers: Vec<PathBuf>,
}

impl Repositories {
    /// What is wrong with the repository of a project, in words. That every ref leads to an object is always looked at, that
    /// everything is there which the refs lead to only by a deep check.
    pub fn check(&self, storage: &StorageId, deep: bool) -> Result<Vec<String>> {
        // Not what a warm handle remembers.
        self.forget(storage);
        let Some(repository) = self.find(storage)? else { return Ok(Vec::new()) };
        let refs = match repository.refs() {
            Ok(refs) => refs,
            Err(error) => return Ok(vec![format!("its refs cannot be read: {error}")]),
        };
        let mut faults = Vec::new();
        for one in refs.iter() {
            if repository.gix.find_header(gix_id(one.target)).is_err() {
                faults.push(format!("{} leads to {}, which is not there", one.name, one.target));
            }
        }
        if deep && faults.is_empty() {
            faults = fsck(repository.path())?;
        }
        faults.truncate(TOLD);
        Ok(faults)
    }

    /// Whether a project has a repository.
    pub fn exists(&self, storage: &StorageId) -> bool {
        self.path_of(storage).join("HEAD").exists()
    }

    /// What belongs to none of these projects. Nothing is looked for behind links.
    pub fn strays(&self, projects: impl IntoIterator<Item = StorageId>) -> Result<Strays> {
        let known: HashSet<PathBuf> = projects.into_iter().map(|storage| self.path_of(&storage)).collect();
        let root = self.root();
        let (mut strays, mut links) = (Strays::default(), Vec::new());
        for outer in shelves(root, &mut links)? {
            for inner in shelves(&outer, &mut links)? {
                let found = entries(&inner)?.into_iter().filter(|(_, kind)| kind.is_dir() || kind.is_symlink());
                strays.orphans.extend(found.map(|(path, _)| path).filter(|path| !known.contains(path)));
            }
        }
        for link in links {
            let in_use = known.iter().any(|path| path.starts_with(&link));
            if in_use { &mut strays.links } else { &mut strays.orphans }.push(link);
        }
        for place in ["tmp", "trash"] {
            strays.leftovers.extend(entries(&root.join(place))?.into_iter().map(|(path, _)| path));
        }
        Ok(strays)
    }
}

/// Fails with [`Error::TooLarge`] if a pack of a repository holds a commit, a tag or a tree that is larger than it may be,
/// or an object that builds upon too many others. For what has come in and is not yet part of a repository that others
/// read; no object is unpacked, and the work is linear in the number of objects.
pub(crate) fn check_packed_sizes(repository: &Path) -> Result<()> {
    for index in indices(&repository.join("objects/pack"))? {
        PackCheck::open(&index)?.run()?;
    }
    Ok(())
}

/// A check of one pack.
pub(crate) struct PackCheck {
    bundle: Bundle,
    /// The objects in the order in which they lie in the pack.
    by_offset: Vec<u32>,
    /// What is known of each object.
    known: Vec<Option<Resolved>>,
    /// How many entries of the pack were looked at.
    steps: usize,
}

/// What an object is, and how many deltas it is built from.
#[derive(Clone, Copy)]
struct Resolved {
    kind: Kind,
    depth: u16,
}

impl PackCheck {
    pub(crate) fn open(index: &Path) -> Result<Self> {
        let bundle = Bundle::at(index, gix::hash::Kind::Sha1).map_err(Error::broken)?;
        let count = bundle.index.num_objects();
        let mut by_offset: Vec<u32> = (0..count).collect();
        by_offset.sort_unstable_by_key(|place| bundle.index.pack_offset_at_index(*place));
        Ok(Self { known: vec![None; by_offset.len()], bundle, by_offset, steps: 0 })
    }

    /// Looks at every object; answers how many entries of the pack that took.
    pub(crate) fn run(mut self) -> Result<usize> {
        for at in 0..self.by_offset.len() {
            let place = self.by_offset[at];
            let kind = self.resolve(place)?.kind;
            if kind == Kind::Blob {
                continue;
            }
            let entry = self.entry(place)?;
            let size =
                if entry.header.is_delta() { result_size(&self.bundle.pack, &entry)? } else { entry.decompressed_size };
            check_size(kind, self.bundle.index.oid_at_index(place), size)?;
        }
        Ok(self.steps)
    }

    /// What an object is. Each object on the way to the one that is stored whole is remembered, so none is looked at twice.
    fn resolve(&mut self, place: u32) -> Result<Resolved> {
        let (mut at, mut chain) = (place, Vec::new());
        let mut found = loop {
            if let Some(known) = self.known[at as usize] {
                break known;
            }
            let entry = self.entry(at)?;
            if let Some(kind) = entry.header.as_kind() {
                let whole = Resolved { kind, depth: 0 };
                self.known[at as usize] = Some(whole);
                break whole;
            }
            chain.push(at);
            if chain.len() > LONGEST_CHAIN {
                return Err(self.too_deep(place));
            }
            at = self.base_of(&entry)?;
        };
        while let Some(delta) = chain.pop() {
            if usize::from(found.depth) >= LONGEST_CHAIN {
                return Err(self.too_deep(delta));
            }
            found.depth += 1;
            self.known[delta as usize] = Some(found);
        }
        Ok(found)
    }

    fn entry(&mut self, place: u32) -> Result<data::Entry> {
        self.steps += 1;
        self.bundle.pack.entry(self.bundle.index.pack_offset_at_index(place)).map_err(Error::broken)
    }

    /// The object that a delta builds upon. A pack that was taken in holds it.
    fn base_of(&self, delta: &data::Entry) -> Result<u32> {
        let index = &self.bundle.index;
        let found = match delta.header {
            Header::OfsDelta { base_distance } => {
                let offset = base_offset(delta, base_distance)?;
                let place = self.by_offset.binary_search_by_key(&offset, |place| index.pack_offset_at_index(*place));
                place.ok().map(|at| self.by_offset[at])
            }
            Header::RefDelta { base_id } => index.lookup(base_id),
            Header::Commit | Header::Tree | Header::Blob | Header::Tag => None,
        };
        found.ok_or_else(|| Error::Broken("the pack does not hold the base of a delta".into()))
    }

    fn too_deep(&self, place: u32) -> Error {
        too_deep(self.bundle.index.oid_at_index(place))
    }
}

/// Fails if an object of this kind may not have this size.
pub(crate) fn check_size(kind: Kind, id: &gix::oid, size: u64) -> Result<()> {
    let most = match kind {
        Kind::Commit | Kind::Tag => LARGEST_COMMIT,
        Kind::Tree => LARGEST_TREE,
        Kind::Blob => return Ok(()),
    };
    if size > most { Err(too_large(kind, id, size, most)) } else { Ok(()) }
}

/// Whether a folder is one of those that repositories are spread over.
fn is_shelf(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The folders in a folder that repositories are spread over; what is a link instead is set apart.
fn shelves(folder: &Path, links: &mut Vec<PathBuf>) -> io::Result<Vec<PathBuf>> {
    let found = entries(folder)?.into_iter().filter(|(path, _)| is_shelf(path));
    let (linked, others): (Vec<_>, Vec<_>) = found.partition(|(_, kind)| kind.is_symlink());
    links.extend(linked.into_iter().map(|(path, _)| path));
    Ok(others.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(path, _)| path).collect())
}

/// What a folder holds, in order, and what it is; a link is a link, wherever it leads.
fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, FileType)>> {
    let mut found: Vec<_> = match fs::read_dir(folder) {
        Ok(entries) => entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect::<io::Result<_>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// Lets git read everything and look whether it is what it was; what it finds is told in its words, which name objects only.
fn fsck(repository: &Path) -> Result<Vec<String>> {
    let mut command = child::git(repository);
    for forgiven in child::FORGIVEN.split(',') {
        command.arg("-c").arg(format!("fsck.{forgiven}"));
    }
    command.args(["fsck", "--full", "--no-dangling", "--no-progress"]).stdin(Stdio::null());
    let output = command.output().map_err(|error| Error::Child(format!("cannot start git: {error}")))?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let said = [output.stdout, output.stderr].concat();
    let mut faults: Vec<String> =
        String::from_utf8_lossy(&said).lines().take(TOLD).map(|line| line.trim().to_owned()).collect();
    faults.retain(|line| !line.is_empty());
    if faults.is_empty() {
        faults.push(format!("git fsck ended with {}", output.status));
    }
    Ok(faults)
}
