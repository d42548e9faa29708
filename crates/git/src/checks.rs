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
    odb::pack::{Bundle, data::decode::header::ResolvedBase},
};
use model::StorageId;

use crate::{
    Error, Repositories, Result, child, large,
    limits::{LARGEST_COMMIT, LARGEST_TREE},
    objects::too_large,
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

/// Fails with [`Error::TooLarge`] if a pack of a repository holds a commit, a tag or a tree that is larger than it may be.
/// For what has come in and is not yet part of a repository that others read; no object is unpacked.
pub(crate) fn check_packed_sizes(repository: &Path) -> Result<()> {
    let mut inflate = gix::zlib::Inflate::default();
    for index in large::indices(&repository.join("objects/pack"))? {
        let Bundle { index, pack } = Bundle::at(&index, gix::hash::Kind::Sha1).map_err(Error::broken)?;
        for place in 0..index.num_objects() {
            let entry = pack.entry(index.pack_offset_at_index(place)).map_err(Error::broken)?;
            // A pack that was taken in holds everything that its objects are built from.
            let in_pack = |id: &gix::oid| match index.lookup(id) {
                Some(place) => pack.entry(index.pack_offset_at_index(place)).map(ResolvedBase::InPack).map(Some),
                None => Ok(None),
            };
            let found = pack.decode_header(entry, &mut inflate, &in_pack).map_err(Error::broken)?;
            check_size(found.kind, index.oid_at_index(place), found.object_size)?;
        }
    }
    Ok(())
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
