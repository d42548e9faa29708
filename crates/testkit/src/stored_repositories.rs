//! Repositories between the `git` program and an instance: rows in the database, packs in the store of files.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use files::Files;
use git::{PackEntry, PackSource, Ref, Refs, Repositories};
use model::{Oid, PackContent, ProjectId, RefName, Time};
use store::{
    Conn,
    packs::NewPack,
    repositories::{RefRecord, RefUpdate},
};

use crate::repository::git;

/// Gives a project the refs and all objects of a bare repository, without the checks of a push. The project loses the refs
/// that the repository does not have. Packs are stored byte for byte; loose objects are packed, without deltas. The
/// transaction is the caller's.
pub fn store_repository(db: &mut Conn, files: &Files, project: ProjectId, folder: &Path, now: Time) {
    pack_loose_objects(folder);
    let packs = store_packs(files, &folder.join("objects/pack"));
    let new = read_refs(folder);
    let repository = store::repositories::begin_update(db, project, now).expect("a repository").id;
    let current = store::repositories::refs(db, repository).expect("readable").expect("a repository").refs;
    let current: BTreeMap<&RefName, Oid> = current.iter().map(|found| (&found.name, found.target)).collect();
    let names: BTreeSet<&RefName> = new.iter().map(|found| &found.name).collect();
    let removed: Vec<RefUpdate<'_>> = current
        .iter()
        .filter(|(name, _)| !names.contains(*name))
        .map(|(name, target)| RefUpdate { name, old: Some(*target), new: None, peeled: None })
        .collect();
    let set = new.iter().map(|RefRecord { name, target, peeled }| RefUpdate {
        name,
        old: current.get(name).copied(),
        new: Some(*target),
        peeled: *peeled,
    });
    let updates: Vec<RefUpdate<'_>> = removed.into_iter().chain(set).collect();
    let updated = store::repositories::update_refs(db, repository, &updates).expect("updated");
    assert!(updated.into_iter().all(|is_updated| is_updated), "the transaction holds the repository");
    for pack in packs {
        store::packs::add_pack(db, repository, &pack, now).expect("a pack");
    }
    let head = String::from_utf8(git(folder, &["symbolic-ref", "HEAD"], b"").stdout).expect("text");
    if let Some(head) = RefName::new(head.trim()).filter(|head| names.contains(head)) {
        store::projects::set_default_branch(db, project, Some(head.short()), now).expect("set");
    }
}

/// Builds the folder of a project's repository in `root` from the database and the store of files, as a server with an empty
/// cache does; returns its path, or `None` if the project has no repository.
pub fn build_repository(db: &mut Conn, files: &Files, project: ProjectId, root: &Path) -> Option<PathBuf> {
    let storage = store::projects::storage_of(db, project).expect("readable")?;
    let repository = store::repositories::find(db, project).expect("readable")?;
    let found = store::repositories::refs(db, repository.id).expect("readable").expect("a repository");
    let head = found.default_branch.as_deref().and_then(RefName::branch);
    let refs = found.refs.into_iter().map(|RefRecord { name, target, peeled }| Ref { name, target, peeled });
    let refs = Refs::from_sorted(found.generation, head, refs);
    let packs = store::packs::of_repository(db, repository.id).expect("readable").into_iter();
    let packs = packs.filter(|pack| pack.dead_since.is_none());
    let packs: Vec<PackEntry> =
        packs.map(|pack| PackEntry { key: pack.key, checksum: pack.checksum, has_files: pack.has_files }).collect();
    let repositories = Repositories::open_folder(root).expect("the folder opens");
    repositories
        .link_packs(&storage, &packs, &StoredPacks(files, RefCell::new(db)), git::OtherPacks::RemoveExcept(&[]))
        .expect("all packs are stored");
    repositories.write_refs(&storage, &refs).expect("written");
    Some(repositories.path_of(&storage))
}

struct StoredPacks<'a>(&'a Files, RefCell<&'a mut Conn>);

impl PackSource for StoredPacks<'_> {
    fn fetch(&self, key: &str, extension: &str, to: &Path) -> io::Result<bool> {
        self.0.fetch_file(&format!("{key}.{extension}"), to).map_err(io::Error::other)
    }

    fn read(&self, key: &str) -> io::Result<Option<PackContent>> {
        store::packs::content(&mut self.1.borrow_mut(), key).map_err(io::Error::other)
    }
}

/// Packs the loose objects of a repository, reachable or not, and whatever they link to.
fn pack_loose_objects(folder: &Path) {
    let mut ids = String::new();
    for entry in fs::read_dir(folder.join("objects")).expect("a folder").map(|entry| entry.expect("an entry")) {
        let start = entry.file_name().into_string().expect("text");
        if start.len() == 2 {
            for file in fs::read_dir(entry.path()).expect("a folder").map(|file| file.expect("an entry")) {
                ids += &format!("{start}{}\n", file.file_name().into_string().expect("text"));
            }
        }
    }
    if !ids.is_empty() {
        let arguments = ["-c", "pack.compression=1", "pack-objects", "-q", "--window=0", "objects/pack/pack"];
        git(folder, &arguments, ids.as_bytes());
    }
}

/// Stores the packs in a folder under new keys.
fn store_packs(files: &Files, folder: &Path) -> Vec<NewPack> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let packs = entries.filter(|path| path.extension().is_some_and(|extension| extension == "pack"));
    let store = |path: PathBuf| {
        let content = fs::read(&path).expect("a pack");
        let checksum = Oid(content[content.len() - 20..].try_into().expect("20 bytes"));
        let objects = u32::from_be_bytes(content[8..12].try_into().expect("4 bytes"));
        let name = checksum.to_string();
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let key = format!("packs/{}/{name}-{number:016x}", &name[..2]);
        for extension in git::PACK_EXTENSIONS {
            let file = path.with_extension(extension);
            if file.exists() {
                files.store_file(&format!("{key}.{extension}"), &file).expect("stored");
            }
        }
        NewPack {
            key,
            content: None,
            checksum,
            bytes: i64::try_from(content.len()).expect("small"),
            objects: objects.into(),
            is_unreachable: false,
        }
    };
    packs.map(store).collect()
}

/// Reads the refs of a repository with the `git` program; hidden ones are left out.
fn read_refs(folder: &Path) -> Vec<RefRecord> {
    let listed = git(folder, &["for-each-ref", "--format=%(objectname) %(refname)"], b"").stdout;
    let listed = String::from_utf8(listed).expect("text");
    let refs: Vec<(&str, &str)> = listed.lines().map(|line| line.split_once(' ').expect("two words")).collect();
    // `%(*objectname)` peels tags of tags only since git 2.45.
    let peeled = refs.iter().fold(String::new(), |lines, (target, _)| lines + target + "^{}\n");
    let peeled = git(folder, &["cat-file", "--batch-check=%(objectname)"], peeled.as_bytes()).stdout;
    let peeled = String::from_utf8(peeled).expect("text");
    let record = |((target, name), peeled): (&(&str, &str), &str)| RefRecord {
        name: RefName::new(name).unwrap_or_else(|| panic!("{name} is not allowed")),
        target: target.parse().expect("an id"),
        // A missing object is not an id.
        peeled: peeled.parse().ok().filter(|_| peeled != *target),
    };
    let refs = refs.iter().zip(peeled.lines()).map(record);
    refs.filter(|found| !found.name.is_hidden()).collect()
}
