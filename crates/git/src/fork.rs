//! The objects of a fork: those of its source that are reachable from a visible ref, and no others.
//!
//! Packs without unreachable objects are hard-linked. The reachable objects of the other packs are packed again.

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
    git_process::{self, HOUSEKEEPING_LIMITS, Supervision},
    packs,
    repository::gix_id,
};

/// The time limit for listing the objects of the source, and again for packing some of them.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A pack of the source, with a flag for each object that says whether it is reachable.
struct SourcePack {
    path: PathBuf,
    index: pack::index::File,
    is_reachable: Vec<bool>,
}

impl SourcePack {
    fn is_fully_reachable(&self) -> bool {
        self.is_reachable.iter().all(|reachable| *reachable)
    }

    fn contains(&self, id: &gix::oid) -> bool {
        self.index.lookup(id).is_some()
    }
}

/// Gives a repository under construction all objects that are reachable from these refs of its source. The source must
/// not be repacked meanwhile; new objects may arrive.
pub(crate) fn copy_objects(source: &Repository, refs: &Refs, target: &Path) -> Result<()> {
    let (from, to) = (source.path().join("objects"), target.join("objects"));
    if refs.iter().next().is_none() {
        return Ok(());
    }
    let mut packs = open_packs(&from.join("pack"))?;
    let loose_reachable = mark_reachable(source, refs, &mut packs)?;
    let loose = loose_objects(&from)?;
    if packs.iter().all(SourcePack::is_fully_reachable) && loose.iter().all(|id| loose_reachable.contains(id)) {
        // Then the multi-pack-index and the commit-graphs contain reachable objects only, too.
        let is_multi_pack_index =
            |file: &Path| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("multi-pack-index"));
        link_files(&from.join("pack"), &to.join("pack"), is_multi_pack_index)?;
        for folder in ["info", "info/commit-graphs"] {
            link_files(&from.join(folder), &to.join(folder), |_| true)?;
        }
    }
    let (fully_reachable, partly_reachable): (Vec<SourcePack>, Vec<SourcePack>) =
        packs.into_iter().partition(SourcePack::is_fully_reachable);
    for pack in &fully_reachable {
        let stem = pack.path.file_stem();
        link_files(&from.join("pack"), &to.join("pack"), |file| file.file_stem() == stem)?;
    }
    for id in loose.iter().filter(|id| loose_reachable.contains(*id)) {
        let name = id.to_string();
        let (folder, file) = name.split_at(2);
        fs::create_dir_all(to.join(folder))?;
        link(&from.join(folder).join(file), &to.join(folder).join(file))?;
    }
    pack_remaining(source, &fully_reachable, &partly_reachable, &to.join("pack"))
}

fn open_packs(folder: &Path) -> Result<Vec<SourcePack>> {
    let mut packs = Vec::new();
    for path in packs::indices(folder)? {
        let index = pack::index::File::at(&path, gix::hash::Kind::Sha1).map_err(Error::corrupt)?;
        let is_reachable = vec![false; index.num_objects() as usize];
        packs.push(SourcePack { path, index, is_reachable });
    }
    Ok(packs)
}

/// Marks the reachable objects in the packs; returns reachable objects that are in no pack.
fn mark_reachable(source: &Repository, refs: &Refs, packs: &mut [SourcePack]) -> Result<HashSet<ObjectId, Builder>> {
    let mut starts = tempfile::tempfile()?;
    for reference in refs.iter() {
        writeln!(starts, "{}", reference.target)?;
    }
    starts.rewind()?;
    let mut loose_reachable = HashSet::default();
    let mut mark = |id: ObjectId| {
        let mut is_packed = false;
        for pack in packs.iter_mut() {
            if let Some(position) = pack.index.lookup(id) {
                pack.is_reachable[position as usize] = true;
                is_packed = true;
            }
        }
        if !is_packed {
            loose_reachable.insert(id);
        }
    };
    refs.iter().for_each(|reference| mark(gix_id(reference.target)));
    let mut command = git_process::git_command(source.path());
    command.args(["rev-list", "--objects", "--use-bitmap-index", "--no-object-names", "--stdin"]).stdin(starts);
    git_process::for_each_line(command, TIMEOUT, |line| {
        if let Ok(id) = ObjectId::from_hex(line) {
            mark(id);
        }
    })?;
    Ok(loose_reachable)
}

/// Packs the reachable objects of packs that also contain others, except for those in packs that were linked.
fn pack_remaining(
    source: &Repository,
    fully_reachable: &[SourcePack],
    partly_reachable: &[SourcePack],
    target: &Path,
) -> Result<()> {
    let mut ids = io::BufWriter::new(tempfile::tempfile()?);
    let mut is_empty = true;
    for pack in partly_reachable {
        let positions = (0..pack.index.num_objects()).filter(|position| pack.is_reachable[*position as usize]);
        for id in positions.map(|position| pack.index.oid_at_index(position)) {
            if !fully_reachable.iter().any(|pack| pack.contains(id)) {
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
    let mut command = git_process::git_command(source.path());
    command.args(["pack-objects", "-q", "--delta-base-offset"]).arg(target.join("pack")).stdin(ids);
    let supervision = Supervision {
        limits: HOUSEKEEPING_LIMITS,
        deadline: Instant::now() + TIMEOUT,
        cancelled: &AtomicBool::new(false),
    };
    git_process::run_supervised(command, &supervision, &mut |_| Ok(()))
}

/// Returns the objects that are stored in files of their own.
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
            // Other names are files that are still being written.
            found.extend(ObjectId::from_hex(format!("{name}{file}").as_bytes()));
        }
    }
    Ok(found)
}

/// Links the complete files of a folder that are wanted; the folder may be missing.
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

/// Hard-links a file, which is never written to. If that is not possible, the file is copied.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => io::copy(&mut File::open(from)?, &mut File::create_new(to)?).map(drop),
    }
}
