//! The objects of a fork: those of its source that a visible ref leads to, and no others.
//!
//! Packs that hold nothing else are the same files under another name. Where a pack also holds objects that no ref leads to
//! any more, those that a ref leads to are packed anew.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use gix::{ObjectId, hashtable::hash::Builder, odb::pack};

use crate::{
    Error, Refs, Repository, Result,
    child::{self, HOUSE_LIMITS, Supervision},
    packs,
    repository::gix_id,
};

/// The longest time that listing the objects of the source may take, and the longest that packing some of them may take.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// A pack of the source, with one flag for each object that a ref leads to.
struct Pack {
    path: PathBuf,
    index: pack::index::File,
    is_reachable: Vec<bool>,
}

impl Pack {
    fn is_whole(&self) -> bool {
        self.is_reachable.iter().all(|reachable| *reachable)
    }

    fn holds(&self, id: &gix::oid) -> bool {
        self.index.lookup(id).is_some()
    }
}

/// Gives a repository that is being built all objects that these refs of its source lead to. Nobody may repack the source
/// meanwhile; new objects may come in.
pub(crate) fn copy_objects(source: &Repository, refs: &Refs, target: &Path) -> Result<()> {
    let (from, to) = (source.path().join("objects"), target.join("objects"));
    if refs.iter().next().is_none() {
        return Ok(());
    }
    let mut packs = open_packs(&from.join("pack"))?;
    let unpacked = mark_reachable(source, refs, &mut packs)?;
    let loose = loose_objects(&from)?;
    if packs.iter().all(Pack::is_whole) && loose.iter().all(|id| unpacked.contains(id)) {
        // The files about all packs and commits hold nothing else either.
        let is_about_all =
            |file: &Path| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("multi-pack-index"));
        link_files(&from.join("pack"), &to.join("pack"), is_about_all)?;
        for folder in ["info", "info/commit-graphs"] {
            link_files(&from.join(folder), &to.join(folder), |_| true)?;
        }
    }
    let (whole, mixed): (Vec<Pack>, Vec<Pack>) = packs.into_iter().partition(Pack::is_whole);
    for pack in &whole {
        let stem = pack.path.file_stem();
        link_files(&from.join("pack"), &to.join("pack"), |file| file.file_stem() == stem)?;
    }
    for id in loose.iter().filter(|id| unpacked.contains(*id)) {
        let name = id.to_string();
        let (folder, file) = name.split_at(2);
        fs::create_dir_all(to.join(folder))?;
        link(&from.join(folder).join(file), &to.join(folder).join(file))?;
    }
    pack_rest(source, &whole, &mixed, &to.join("pack"))
}

fn open_packs(folder: &Path) -> Result<Vec<Pack>> {
    let mut packs = Vec::new();
    for path in packs::indices(folder)? {
        let index = pack::index::File::at(&path, gix::hash::Kind::Sha1).map_err(Error::broken)?;
        let is_reachable = vec![false; index.num_objects() as usize];
        packs.push(Pack { path, index, is_reachable });
    }
    Ok(packs)
}

/// Marks in the packs what the refs lead to; answers what they lead to and no pack holds.
fn mark_reachable(source: &Repository, refs: &Refs, packs: &mut [Pack]) -> Result<HashSet<ObjectId, Builder>> {
    let mut starts = tempfile::tempfile()?;
    for one in refs.iter() {
        writeln!(starts, "{}", one.target)?;
    }
    starts.rewind()?;
    let mut unpacked = HashSet::default();
    let mut mark = |id: ObjectId| {
        let mut is_packed = false;
        for pack in packs.iter_mut() {
            if let Some(place) = pack.index.lookup(id) {
                pack.is_reachable[place as usize] = true;
                is_packed = true;
            }
        }
        if !is_packed {
            unpacked.insert(id);
        }
    };
    refs.iter().for_each(|one| mark(gix_id(one.target)));
    let mut command = child::git(source.path());
    command.args(["rev-list", "--objects", "--use-bitmap-index", "--no-object-names", "--stdin"]).stdin(starts);
    child::each_line(command, LONGEST, |line| {
        if let Ok(id) = ObjectId::from_hex(line) {
            mark(id);
        }
    })?;
    Ok(unpacked)
}

/// Packs the reachable objects of packs that hold others as well, unless a pack has them that was taken over.
fn pack_rest(source: &Repository, whole: &[Pack], mixed: &[Pack], target: &Path) -> Result<()> {
    let mut ids = io::BufWriter::new(tempfile::tempfile()?);
    let mut is_empty = true;
    for pack in mixed {
        let places = (0..pack.index.num_objects()).filter(|place| pack.is_reachable[*place as usize]);
        for id in places.map(|place| pack.index.oid_at_index(place)) {
            if !whole.iter().any(|pack| pack.holds(id)) {
                writeln!(ids, "{id}")?;
                is_empty = false;
            }
        }
    }
    if is_empty {
        return Ok(());
    }
    let mut ids = ids.into_inner().map_err(io::IntoInnerError::into_error)?;
    ids.rewind()?;
    let mut command = child::git(source.path());
    command.args(["pack-objects", "-q", "--delta-base-offset"]).arg(target.join("pack")).stdin(ids);
    let supervision =
        Supervision { limits: HOUSE_LIMITS, deadline: Instant::now() + LONGEST, cancelled: &AtomicBool::new(false) };
    child::run_supervised(command, &supervision, &mut |_| Ok(()))
}

/// The objects that lie in files of their own.
fn loose_objects(objects: &Path) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    for folder in fs::read_dir(objects)? {
        let folder = folder?;
        let name = folder.file_name().to_string_lossy().into_owned();
        if name.len() != 2 || !folder.file_type()?.is_dir() {
            continue;
        }
        for file in fs::read_dir(folder.path())? {
            let file = file?.file_name().to_string_lossy().into_owned();
            // Others are still being written.
            found.extend(ObjectId::from_hex(format!("{name}{file}").as_bytes()));
        }
    }
    Ok(found)
}

/// Links the files of one folder that are complete and that are wanted; no folder is no files.
fn link_files(from: &Path, to: &Path, is_wanted: impl Fn(&Path) -> bool) -> io::Result<()> {
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    fs::create_dir_all(to)?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let is_complete = !name.to_string_lossy().starts_with("tmp_") && !name.to_string_lossy().ends_with(".lock");
        if entry.file_type()?.is_file() && is_complete && is_wanted(&entry.path()) {
            link(&entry.path(), &to.join(name))?;
        }
    }
    Ok(())
}

/// The same file under another name; it is never written to. Where that is not possible it is copied.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => io::copy(&mut File::open(from)?, &mut File::create_new(to)?).map(drop),
    }
}
