//! Keeps repositories fast and small: combines packs, indexes them, and drops unreachable objects.
//!
//! Everything is built in a temporary folder from hard links to the packs, so readers and pushes are not blocked, and
//! an interrupted run leaves nothing behind. New packs are returned: the caller stores them and replaces the old ones
//! in the database. Indexes over all packs and commit-graphs are installed here; they can be built again at any time.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    process::Stdio,
    sync::Arc,
};

use model::{Oid, StorageId};
use tempfile::TempDir;

use crate::{
    LocalPack, Refs, Repositories, Result, disk, git_process,
    repositories::{PACK_EXTENSIONS, pack_name, write_ref_files},
};

/// Each pack has at least this many times as many objects as all smaller ones together.
const GEOMETRIC_FACTOR: u64 = 2;

/// A pack of a repository and the number of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackSize {
    /// The trailer of the pack.
    pub checksum: Oid,
    /// The number of objects.
    pub objects: u64,
}

/// New packs, and the packs that they replace.
pub struct Repack {
    /// The new packs.
    pub packs: Vec<LocalPack>,
    /// New packs of unreachable objects.
    pub unreachable: Vec<LocalPack>,
    /// The packs whose objects the new ones contain, as far as they are kept.
    pub replaced: Vec<Oid>,
}

/// What happens to unreachable objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// They are moved to a pack of their own.
    Separate,
    /// They are dropped.
    Drop,
}

impl Repositories {
    /// Combines small packs into one; `None` if the sizes of the packs already form a geometric progression.
    pub fn combine_packs(&self, storage: &StorageId, packs: &[PackSize]) -> Result<Option<Repack>> {
        let mut sorted = packs.to_vec();
        sorted.sort_by_key(|pack| pack.objects);
        let (small, large) = sorted.split_at(geometric_split(&sorted));
        if small.len() < 2 {
            return Ok(None);
        }
        let build = self.build_folder(storage, packs)?;
        let list: String = small
            .iter()
            .map(|pack| format!("{}.pack\n", pack_name(pack.checksum)))
            .chain(large.iter().map(|pack| format!("^{}.pack\n", pack_name(pack.checksum))))
            .collect();
        let packs = pack_objects(&build, &["--stdin-packs"], list.as_bytes())?;
        Ok(Some(Repack { packs, unreachable: Vec::new(), replaced: small.iter().map(|pack| pack.checksum).collect() }))
    }

    /// Packs the objects that are reachable from the refs, and separates or drops the others. `None` if every object is
    /// reachable, and there is one pack.
    pub fn repack_reachable(
        &self,
        storage: &StorageId,
        refs: &Refs,
        packs: &[PackSize],
        unreachable: Unreachable,
    ) -> Result<Option<Repack>> {
        let build = self.build_folder(storage, packs)?;
        let tips = refs.iter().fold(String::new(), |tips, reference| tips + &reference.target.to_string() + "\n");
        let new = if tips.is_empty() { Vec::new() } else { pack_objects(&build, &["--revs"], tips.as_bytes())? };
        let reachable: u64 = new.iter().map(|pack| pack.objects).sum();
        if packs.len() == 1 && packs[0].objects == reachable {
            return Ok(None);
        }
        let unreachable = match unreachable {
            Unreachable::Drop => Vec::new(),
            Unreachable::Separate => pack_others(&build, packs, &new)?,
        };
        Ok(Some(Repack { packs: new, unreachable, replaced: packs.iter().map(|pack| pack.checksum).collect() }))
    }

    /// Builds the indexes over all packs: a multi-pack-index with bitmaps, with which a clone need not visit every
    /// object, and the commit-graph. The packs must be linked in the folder of the repository.
    pub fn build_indexes(&self, storage: &StorageId, refs: &Refs, packs: &[PackSize]) -> Result<()> {
        if packs.is_empty() || refs.iter().next().is_none() {
            return Ok(());
        }
        let build = self.build_folder(storage, packs)?;
        let path = self.path_of(storage);
        let (info, new_info) = (path.join("objects/info"), build.path().join("objects/info"));
        // The graphs so far are the base of the next one.
        link_all(&info.join("commit-graphs"), &new_info.join("commit-graphs"))?;
        write_ref_files(build.path(), refs)?;
        run_git(&build, &["multi-pack-index", "write", "--bitmap", "--no-progress"])?;
        run_git(&build, &["commit-graph", "write", "--reachable", "--changed-paths", "--split", "--no-progress"])?;
        disk::sync_recursively(&build.path().join("objects"))?;
        let _lock = self.lock_folder(&path);
        let is_linked = |pack: &PackSize| path.join(format!("objects/pack/{}.idx", pack_name(pack.checksum))).exists();
        if !packs.iter().all(is_linked) {
            // They were replaced meanwhile; the indexes would name packs that do not exist.
            return Ok(());
        }
        install(&build.path().join("objects/pack"), &path.join("objects/pack"), "multi-pack-index", |name| {
            name.starts_with("multi-pack-index-")
        })?;
        install(&new_info.join("commit-graphs"), &info.join("commit-graphs"), "commit-graph-chain", |name| {
            name.ends_with(".graph")
        })?;
        // An open handle may use files that are gone.
        self.evict_handle(storage);
        Ok(())
    }

    /// Creates a temporary repository with hard links to packs of another one.
    fn build_folder(&self, storage: &StorageId, packs: &[PackSize]) -> Result<Arc<TempDir>> {
        let build = self.create_blank()?;
        let (from, to) = (self.path_of(storage).join("objects/pack"), build.path().join("objects/pack"));
        for pack in packs {
            for extension in PACK_EXTENSIONS {
                let file = format!("{}.{extension}", pack_name(pack.checksum));
                match fs::hard_link(from.join(&file), to.join(&file)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && extension == "rev" => {}
                    // A repository can have two packs with the same content.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    linked => linked?,
                }
            }
        }
        Ok(Arc::new(build))
    }
}

/// Returns how many of the packs, which are sorted by size, are to be combined.
fn geometric_split(packs: &[PackSize]) -> usize {
    let fits = |small: u64, large: u64| large >= small.saturating_mul(GEOMETRIC_FACTOR);
    // The first pack from the end that is too small compared with its predecessor.
    let mut split =
        (1..packs.len()).rev().find(|i| !fits(packs[i - 1].objects, packs[*i].objects)).map_or(0, |i| i + 1);
    let mut total: u64 = packs[..split].iter().map(|pack| pack.objects).sum();
    while split > 0 && split < packs.len() && !fits(total, packs[split].objects) {
        total += packs[split].objects;
        split += 1;
    }
    split
}

/// Packs the objects of packs that are not in the new packs.
fn pack_others(build: &Arc<TempDir>, packs: &[PackSize], new: &[LocalPack]) -> Result<Vec<LocalPack>> {
    let folder = build.path().join("objects/pack");
    let is_old = |checksum: Oid| packs.iter().any(|pack| pack.checksum == checksum);
    for pack in new.iter().filter(|pack| !is_old(pack.checksum)) {
        for (extension, path) in pack.files() {
            fs::hard_link(path, folder.join(format!("{}.{extension}", pack_name(pack.checksum))))?;
        }
    }
    let is_new = |checksum: Oid| new.iter().any(|pack| pack.checksum == checksum);
    let included = packs.iter().map(|pack| pack.checksum).filter(|checksum| !is_new(*checksum));
    let excluded = new.iter().map(|pack| format!("^{}.pack\n", pack_name(pack.checksum)));
    let list: String = included.map(|checksum| format!("{}.pack\n", pack_name(checksum))).chain(excluded).collect();
    pack_objects(build, &["--stdin-packs"], list.as_bytes())
}

/// Runs `git pack-objects` with a list on standard input; returns the new packs, none if there was nothing to pack.
fn pack_objects(build: &Arc<TempDir>, arguments: &[&str], list: &[u8]) -> Result<Vec<LocalPack>> {
    // A folder of its own, because the packs of an earlier call are not new.
    let output = tempfile::Builder::new().prefix("packs-").tempdir_in(build.path())?.keep();
    let mut input = tempfile::tempfile_in(build.path())?;
    input.write_all(list)?;
    io::Seek::rewind(&mut input)?;
    let mut command = git_process::git_command(build.path());
    command.args(["-c", "pack.writeReverseIndex=true", "pack-objects", "-q", "--delta-base-offset", "--non-empty"]);
    command.args(arguments).arg(output.join("pack")).stdin(Stdio::from(input));
    git_process::run(command)?;
    LocalPack::take_all(&output, build)
}

fn run_git(build: &TempDir, arguments: &[&str]) -> Result<()> {
    let mut command = git_process::git_command(build.path());
    command.args(arguments);
    git_process::run(command)
}

/// Hard-links all files of a folder, which may not exist.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    fs::create_dir_all(to)?;
    for entry in entries {
        let entry = entry?;
        fs::hard_link(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Replaces the main file of an index, after the files that it refers to, and removes those that it no longer does.
fn install(from: &Path, to: &Path, main: &str, is_part: impl Fn(&str) -> bool) -> io::Result<()> {
    if !from.join(main).exists() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    let mut parts = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_part(&name) {
            match fs::hard_link(entry.path(), to.join(&name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                linked => linked?,
            }
            parts.push(name);
        }
    }
    // The parts must not be missing after a power cut if the main file is there.
    File::open(to)?.sync_all()?;
    fs::rename(from.join(main), to.join(main))?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_part(&name) && !parts.contains(&name) {
            disk::remove_if_exists(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packs_are_combined_until_sizes_form_a_geometric_progression() {
        let check = |objects: &[u64], expected: usize| {
            let packs: Vec<PackSize> =
                objects.iter().map(|objects| PackSize { checksum: Oid([0; 20]), objects: *objects }).collect();
            assert_eq!(geometric_split(&packs), expected, "{objects:?}");
        };
        check(&[], 0);
        check(&[5], 0);
        check(&[1, 2, 4, 8], 0);
        check(&[1, 1], 2);
        check(&[1, 1, 4, 100], 2);
        check(&[1, 1, 3, 100], 3);
        check(&[3, 3, 3, 1000], 3);
        check(&[1, 10, 11], 3);
    }
}
