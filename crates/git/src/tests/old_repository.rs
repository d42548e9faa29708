//! Repositories of earlier versions.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use model::{Oid, StorageId};
use tempfile::TempDir;

use super::{Fixture, HistoryBuilder, file};
use crate::{OldRepository, Repositories};

/// A repository with a pack, packed refs, a loose ref and a loose object, as an earlier version leaves it.
struct OldFolder {
    root: TempDir,
    repositories: Repositories,
    storage: StorageId,
    path: PathBuf,
    tip: Oid,
    blob: Oid,
}

impl OldFolder {
    fn new() -> Self {
        let mut history = HistoryBuilder::default();
        history.next(&[file("a", "1\n")]);
        let fixture = Fixture::with(history);
        fixture.git(&["tag", "-m", "One", "v1", "main"]);
        fixture.git(&["repack", "-a", "-d", "-q"]);
        fixture.git(&["pack-refs", "--all"]);
        let tip = fixture.id("main");
        fixture.git(&["update-ref", "refs/heads/topic", &tip.to_string()]);
        let blob = super::large::object(&fixture, "blob", b"loose\n");
        let root = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::open_folder(root.path()).expect("repositories");
        let storage = StorageId::parse("1").expect("a storage id");
        let path = repositories.path_of(&storage);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        let copied = std::process::Command::new("cp").arg("-a").args([fixture.path(), &path]).status();
        assert!(copied.expect("cp runs").success());
        Self { root, repositories, storage, path, tip, blob }
    }

    fn read(&self) -> crate::Result<Option<OldRepository>> {
        self.repositories.read_old_repository(&self.storage)
    }

    fn blob_path(&self) -> PathBuf {
        let name = self.blob.to_string();
        self.path.join("objects").join(&name[..2]).join(&name[2..])
    }

    fn check_refused(&self, expected: &str) {
        let error = self.read().err().expect("an error").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Returns all files below a folder with their content.
fn files_in(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).expect("a file"));
        }
    }
    files
}

#[test]
fn refs_and_all_objects_are_read_and_nothing_is_changed() {
    let folder = OldFolder::new();
    let before = files_in(&folder.path);
    let old = folder.read().expect("read").expect("a repository");
    let refs: Vec<String> = old.repository.refs().iter().map(|reference| reference.name.to_string()).collect();
    assert_eq!(refs, ["refs/heads/main", "refs/heads/topic", "refs/tags/v1"]);
    assert_eq!(old.repository.refs().tags[0].peeled, Some(folder.tip));
    assert_eq!(old.repository.refs().head.as_ref().map(|head| head.short()), Some("main"));
    let objects: Vec<u64> = old.packs.iter().map(|pack| pack.objects).collect();
    assert_eq!(objects, [4, 1], "commit, tree, blob and tag; and the loose blob");
    for pack in &old.packs {
        let files: Vec<&str> = pack
            .files()
            .map(|(extension, path)| {
                assert!(path.is_file());
                extension
            })
            .collect();
        assert_eq!((files[0], files[files.len() - 1]), ("pack", "idx"));
    }
    assert_eq!(old.damaged_objects, []);
    drop(old);
    assert_eq!(files_in(&folder.path), before);
    assert_eq!(fs::read_dir(folder.root.path().join("tmp")).expect("a folder").count(), 0);
    let other = StorageId::parse("2").expect("a storage id");
    assert!(folder.repositories.read_old_repository(&other).expect("read").is_none());
}

#[test]
fn a_damaged_loose_object_is_left_out_unless_a_ref_needs_it() {
    let folder = OldFolder::new();
    fs::remove_file(folder.blob_path()).expect("removed");
    fs::write(folder.blob_path(), "").expect("written");
    let old = folder.read().expect("read").expect("a repository");
    assert_eq!((old.packs.len(), old.damaged_objects), (1, vec![folder.blob]));
    fs::write(folder.path.join("refs/tags/blob"), format!("{}\n", folder.blob)).expect("written");
    folder.check_refused(&format!("refs/tags/blob points to {}, which does not exist or is damaged", folder.blob));
}

#[test]
fn incomplete_repositories_are_refused() {
    let folder = OldFolder::new();
    fs::write(folder.path.join("refs/heads/empty"), "").expect("written");
    folder.check_refused("refs/heads/empty is not a valid ref");
    fs::write(folder.path.join("refs/heads/empty"), "1".repeat(40)).expect("written");
    folder.check_refused("refs/heads/empty points to 1111111111111111111111111111111111111111, which does not exist");
    fs::remove_file(folder.path.join("refs/heads/empty")).expect("removed");
    let alternates = folder.path.join("objects/info/alternates");
    fs::write(&alternates, "/elsewhere\n").expect("written");
    folder.check_refused("objects/info/alternates");
    fs::remove_file(alternates).expect("removed");
    assert!(folder.read().expect("read").is_some());
    let packs =
        fs::read_dir(folder.path.join("objects/pack")).expect("a folder").map(|entry| entry.expect("an entry").path());
    for pack in packs.filter(|path| path.extension().is_some_and(|extension| extension == "pack")) {
        fs::remove_file(pack).expect("removed");
    }
    assert!(folder.read().is_err(), "a pack is missing");
}
