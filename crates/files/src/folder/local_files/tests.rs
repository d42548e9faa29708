use std::{os::unix::fs::MetadataExt as _, time::Duration};

use tempfile::TempDir;

use super::*;
use crate::folder::tests::{list_all, temp_folder};

/// A store, and a folder with local files.
struct Setup {
    folder: TempDir,
    files: Folder,
}

impl Setup {
    fn new() -> Self {
        let (folder, files) = temp_folder();
        Self { folder, files }
    }

    /// A store on a file system other than that of the local files.
    fn without_links() -> Self {
        let mut setup = Self::new();
        setup.files.hard_link = |_, _| Err(io::ErrorKind::CrossesDevices.into());
        setup
    }

    fn local_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn create_local(&self, name: &str, content: &str) -> PathBuf {
        let path = self.local_path(name);
        fs::write(&path, content).expect("written");
        path
    }

    fn store(&self, key: &str, content: &str) -> Result<(), Error> {
        let local = self.create_local("stored", content);
        let stored = self.files.store_files(&[(key, &local)]);
        fs::remove_file(local).expect("still there");
        stored
    }

    fn fetch(&self, key: &str, name: &str) -> Result<bool, Error> {
        self.files.fetch_file(key, &self.local_path(name))
    }

    fn read_local(&self, name: &str) -> String {
        fs::read_to_string(self.local_path(name)).expect("a file")
    }

    fn read_stored(&self, key: &str) -> String {
        fs::read_to_string(self.stored_path(key)).expect("a file")
    }

    fn stored_path(&self, key: &str) -> PathBuf {
        self.files.path.join(key)
    }

    fn list(&self, folder: &str) -> Vec<FileEntry> {
        let mut found = Vec::new();
        let listed = self.files.list(folder, &mut |entry| {
            found.push(entry);
            Ok(())
        });
        listed.expect("listed");
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    fn list_keys(&self, folder: &str) -> Vec<String> {
        self.list(folder).into_iter().map(|entry| entry.key).collect()
    }
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("a file").ino()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").mode() & 0o777
}

#[test]
fn files_of_a_pack_are_stored_as_read_only_links() {
    let setup = Setup::new();
    let pack = setup.create_local("1.pack", "pack");
    let index = setup.create_local("1.idx", "index");
    let files = [("packs/ab/1.pack", pack), ("packs/ab/1.idx", index)];
    setup.files.store_files(&files).expect("stored");
    assert_eq!(list_all(&setup.files), ["packs", "packs/ab", "packs/ab/1.idx", "packs/ab/1.pack"]);
    for (key, local) in &files {
        assert_eq!(inode(&setup.stored_path(key)), inode(local));
        assert_eq!(mode(&setup.stored_path(key)), 0o444);
    }
    assert_eq!(setup.read_stored("packs/ab/1.pack"), "pack");
}

#[test]
fn an_existing_key_is_refused() {
    let setup = Setup::new();
    setup.store("a/1", "old").expect("stored");
    let error = setup.store("a/1", "new").expect_err("refused");
    assert!(matches!(&error, Error::AlreadyExists(key) if key == "a/1"));
    assert_eq!(error.to_string(), "the key a/1 already exists");
    assert_eq!(setup.read_stored("a/1"), "old");
}

#[test]
fn if_one_of_several_files_cannot_be_stored_none_is() {
    let setup = Setup::new();
    setup.store("a/2", "old").expect("stored");
    let local = setup.create_local("local", "new");
    let files = ["a/1", "a/2", "a/3"].map(|key| (key, &local));
    assert!(matches!(setup.files.store_files(&files), Err(Error::AlreadyExists(_))));
    assert_eq!(list_all(&setup.files), ["a", "a/2"]);
    setup.files.store_files(&[("a/4", setup.local_path("missing"))]).expect_err("no such file");
    assert_eq!(list_all(&setup.files), ["a", "a/2"]);
}

#[test]
fn invalid_keys_are_refused() {
    let setup = Setup::new();
    let local = setup.create_local("local", "content");
    for key in ["../1", "a/../../1", "a//1"] {
        assert!(matches!(setup.files.store_files(&[(key, &local)]), Err(Error::InvalidKey(_))));
        assert!(matches!(setup.fetch(key, "to"), Err(Error::InvalidKey(_))));
        assert!(matches!(setup.files.remove_files(&[key.to_owned()]), Err(Error::InvalidKey(_))));
    }
    assert_eq!(list_all(&setup.files), [] as [&str; 0]);
}

#[test]
fn a_folder_that_was_removed_is_created_again() {
    let setup = Setup::new();
    for _ in 0..2 {
        setup.store("a/b/1", "x").expect("stored");
        fs::remove_dir_all(setup.stored_path("a")).expect("removed");
    }
}

#[tokio::test]
async fn a_removed_folder_does_not_count_as_being_on_disk() {
    let setup = Setup::new();
    setup.store("a/1", "x").expect("stored");
    assert!(setup.files.durable_folders().contains(&setup.stored_path("a")));
    setup.files.remove(&["a/1".to_owned()]).await.expect("removed");
    setup.files.remove_folder("a").await.expect("removed");
    assert!(setup.files.durable_folders().is_empty());
}

#[test]
fn a_fetched_file_is_a_link_that_outlives_its_key() {
    let setup = Setup::new();
    assert!(!setup.fetch("a/1", "to").expect("asked"));
    setup.store("a/1", "content").expect("stored");
    assert!(setup.fetch("a/1", "to").expect("fetched"));
    assert_eq!(inode(&setup.local_path("to")), inode(&setup.stored_path("a/1")));
    setup.files.remove_files(&["a/1".to_owned(), "a/2".to_owned(), "b/1".to_owned()]).expect("removed");
    assert_eq!(list_all(&setup.files), ["a"]);
    assert!(!setup.fetch("a/1", "other").expect("asked"));
    assert_eq!(setup.read_local("to"), "content");
}

#[test]
fn fetching_to_an_existing_file_succeeds() {
    let setup = Setup::new();
    setup.create_local("to", "as before");
    setup.store("a/1", "content").expect("stored");
    assert!(setup.fetch("a/1", "to").expect("fetched"));
    assert_eq!(setup.read_local("to"), "as before");
}

#[test]
fn fetching_to_a_missing_folder_fails() {
    let setup = Setup::new();
    setup.store("a/1", "content").expect("stored");
    let error = setup.fetch("a/1", "missing/to").expect_err("no such folder");
    assert!(matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::NotFound));
}

#[test]
fn files_that_cannot_be_linked_are_copied() {
    let setup = Setup::without_links();
    let content = "0123456789".repeat(100_000);
    let local = setup.create_local("local", &content);
    setup.files.store_files(&[("a/1", &local)]).expect("stored");
    assert_eq!(setup.read_stored("a/1"), content);
    assert_ne!(inode(&setup.stored_path("a/1")), inode(&local));
    assert_eq!(mode(&setup.stored_path("a/1")), 0o444);
    assert!(setup.fetch("a/1", "to").expect("fetched"));
    assert_eq!(setup.read_local("to"), content);
    assert_ne!(inode(&setup.local_path("to")), inode(&setup.stored_path("a/1")));
    assert!(!setup.fetch("a/2", "other").expect("asked"));
    assert_eq!(list_all(&setup.files), ["a", "a/1"]);
}

#[test]
fn a_refused_copy_leaves_nothing() {
    let setup = Setup::without_links();
    setup.store("a/1", "old").expect("stored");
    // In use by another process, or left over from one.
    fs::write(setup.stored_path("a/1#1"), "half").expect("planted");
    let local = setup.create_local("local", "new");
    assert!(matches!(setup.files.store_files(&[("a/1", &local)]), Err(Error::AlreadyExists(_))));
    assert_eq!(setup.read_stored("a/1"), "old");
    assert_eq!(list_all(&setup.files), ["a", "a/1", "a/1#1"]);
    setup.files.remove_files(&["a/1".to_owned()]).expect("removed");
    assert_eq!(list_all(&setup.files), ["a"]);
}

#[test]
fn a_full_disk_is_recognized() {
    let mut setup = Setup::new();
    setup.files.hard_link = |_, _| Err(io::ErrorKind::StorageFull.into());
    assert!(setup.store("a/1", "content").expect_err("full").is_full());
    setup.files.hard_link = |_, _| Err(io::ErrorKind::InvalidInput.into());
    assert!(!setup.store("a/2", "content").expect_err("another error").is_full());
}

#[test]
fn the_keys_of_a_folder_are_listed() {
    let setup = Setup::new();
    assert!(setup.list("").is_empty());
    assert!(setup.list("packs").is_empty());
    for key in ["packs/ab/1.pack", "packs/ab/1.idx", "packs/cd/2.pack", "packs-of-others/1", "top"] {
        setup.store(key, key).expect("stored");
    }
    fs::write(setup.stored_path("packs/ab/3.pack#1"), "half").expect("planted");
    assert_eq!(setup.list_keys("packs"), ["packs/ab/1.idx", "packs/ab/1.pack", "packs/cd/2.pack"]);
    assert_eq!(setup.list_keys("packs/cd"), ["packs/cd/2.pack"]);
    assert_eq!(setup.list_keys("").len(), 5);
}

#[test]
fn a_listed_key_has_its_size_and_the_time_at_which_it_was_stored() {
    let setup = Setup::new();
    let before = SystemTime::now() - Duration::from_secs(60);
    let local = setup.create_local("local", "content");
    File::open(&local).expect("a file").set_modified(SystemTime::UNIX_EPOCH).expect("set");
    setup.files.store_files(&[("a/1", &local)]).expect("stored");
    let entries = setup.list("a");
    let [entry] = &entries[..] else { panic!("one key") };
    assert_eq!((&*entry.key, entry.size), ("a/1", 7));
    assert!(entry.modified > before, "{entry:?}");
}

#[test]
fn a_listing_ends_at_the_first_error() {
    let setup = Setup::new();
    setup.store("a/1", "x").expect("stored");
    setup.store("a/2", "x").expect("stored");
    let mut calls = 0;
    let listed = setup.files.list("a", &mut |_| {
        calls += 1;
        Err(Error::Io(io::ErrorKind::Interrupted.into()))
    });
    listed.expect_err("passed on");
    assert_eq!(calls, 1);
}
