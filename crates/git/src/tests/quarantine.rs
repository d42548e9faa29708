//! Objects in quarantine become packs.

use std::{collections::BTreeSet, fs, io::Write as _, os::unix::fs::symlink};

use model::{Oid, RefName, StorageId, objects::Signature};

use super::{Fixture, HistoryBuilder, file, large::text};
use crate::{FileEdit, LocalPack, Quarantine, Repositories};

fn quarantine(fixture: &Fixture) -> Quarantine {
    repositories_with(fixture).quarantine(&storage())
}

/// Returns a folder of repositories that contains this one.
fn repositories_with(fixture: &Fixture) -> Repositories {
    let root = fixture.path().with_file_name("repositories");
    let repositories = Repositories::open_folder(&root).expect("a folder");
    let path = repositories.path_of(&storage());
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    symlink(fixture.path(), path).expect("linked");
    repositories
}

fn storage() -> StorageId {
    StorageId::parse("0123456789abcdef0123456789abcdef").expect("an id")
}

fn author() -> Signature {
    Signature { name: "Ann".into(), email: "ann@example.com".into(), seconds: 1_500_000_000, offset: 0 }
}

/// Writes a commit that creates files with these contents.
fn commit(incoming: &Quarantine, parent: Option<Oid>, files: &[(&str, &[u8])]) -> Oid {
    let create = |(path, content): &(&str, &[u8])| FileEdit::Create { path: (*path).into(), content: content.to_vec() };
    let edits = files.iter().map(create).collect();
    incoming.commit(parent, edits, "A message\n", &author(), &author()).expect("written").expect("valid edits")
}

/// Sends the objects that git lists for these revisions.
fn receive(incoming: &Quarantine, source: &Fixture, revisions: &str) {
    let pack = source.git_with(&["pack-objects", "--revs", "--stdout", "-q"], revisions.as_bytes());
    let mut child = incoming.index_pack(None).expect("a folder").spawn().expect("git starts");
    child.stdin.take().expect("a pipe").write_all(&pack).expect("written");
    assert!(child.wait_with_output().expect("git ends").status.success());
}

fn extensions(pack: &LocalPack) -> Vec<&str> {
    pack.files().map(|(extension, _)| extension).collect()
}

/// Returns the files of a pack with their extensions; those that it would have if it is in memory.
fn contents(pack: &LocalPack) -> Vec<(&str, Vec<u8>)> {
    let files: Vec<_> = pack.files().map(|(extension, path)| (extension, fs::read(path).expect("a file"))).collect();
    match pack.small_content().expect("readable") {
        Some(content) if files.is_empty() => vec![("pack", content.pack), ("idx", content.index)],
        Some(content) => {
            let read = |wanted: &str| files.iter().find(|(extension, _)| *extension == wanted).map(|(_, bytes)| bytes);
            assert_eq!((read("pack"), read("idx")), (Some(&content.pack), Some(&content.index)));
            files
        }
        None => files,
    }
}

/// Copies packs into a repository, and checks what is known about them.
fn store(packs: &[LocalPack], repository: &Fixture) {
    for pack in packs {
        for (extension, path) in pack.files() {
            assert!(path.ends_with(format!("pack-{}.{extension}", pack.checksum)), "{}", path.display());
        }
        for (extension, bytes) in contents(pack) {
            let name = format!("pack-{}.{extension}", pack.checksum);
            if extension == "pack" {
                assert_eq!((bytes.len() as u64, &bytes[bytes.len() - 20..]), (pack.bytes, &pack.checksum.0[..]));
            }
            if extension == "idx" {
                let listed = String::from_utf8(repository.git_with(&["show-index"], &bytes)).expect("UTF-8");
                assert_eq!(listed.lines().count() as u64, pack.objects);
            }
            fs::write(repository.path().join("objects/pack").join(name), bytes).expect("written");
        }
    }
}

#[test]
fn written_objects_become_one_pack() {
    let fixture = Fixture::new();
    let incoming = quarantine(&fixture);
    let large = text(3 << 20, 0);
    let first = commit(&incoming, None, &[("a", b"one\n"), ("dir/copy", b"one\n"), ("empty", b""), ("large", &large)]);
    // Writes the same blob once more.
    let second = commit(&incoming, Some(first), &[("b", b"one\n")]);
    let name = RefName::new("refs/tags/v1").expect("a name");
    let tag = incoming.write_tag(&name, second, "A tag", &author()).expect("written");
    incoming.check_sizes().expect("small enough");
    let packs = incoming.packs().expect("packs");
    assert_eq!(packs.iter().map(extensions).collect::<Vec<_>>(), [["pack", "idx"]]);
    assert_eq!(packs[0].objects, 3 + 3 + 2 + 1, "blobs, trees, commits and a tag");
    store(&packs, &fixture);
    fixture.git(&["update-ref", name.as_str(), &tag.to_string()]);
    fixture.git(&["fsck", "--strict", "--full"]);
    assert_eq!(fixture.git(&["show", "v1:dir/copy"]), "one");
    assert!(fixture.git_with(&["cat-file", "blob", "v1:large"], b"") == large);
}

#[test]
fn objects_that_the_repository_already_has_are_written_again() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "one\n"), file("dir/b", "two\n")]);
    let fixture = Fixture::with(history);
    let incoming = quarantine(&fixture);
    let next = commit(&incoming, Some(fixture.id("main")), &[("c", b"one\n")]);
    let packs = incoming.packs().expect("packs");
    assert_eq!(packs.iter().map(|pack| pack.objects).collect::<Vec<_>>(), [3], "a blob, a tree and a commit");
    assert_eq!(packs.iter().map(extensions).collect::<Vec<_>>(), [[] as [&str; 0]], "nothing is written to disk");
    assert_eq!(temporary_files(&fixture), 0);
    store(&packs, &fixture);
    fixture.git(&["update-ref", "refs/heads/main", &next.to_string()]);
    fixture.git(&["fsck", "--strict", "--full"]);
}

#[test]
fn received_packs_keep_their_reverse_index() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "one\n")]);
    let (source, target) = (Fixture::with(history), Fixture::new());
    let incoming = quarantine(&target);
    receive(&incoming, &source, "main\n");
    let packs = incoming.packs().expect("packs");
    assert_eq!(packs.iter().map(extensions).collect::<Vec<_>>(), [["pack", "rev", "idx"]]);
    assert_eq!(packs[0].objects, 3);
    store(&packs, &target);
    target.git(&["update-ref", "refs/heads/main", &source.id("main").to_string()]);
    target.git(&["fsck", "--strict", "--full"]);
}

#[test]
fn received_and_written_objects_are_in_different_packs() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "one\n")]);
    let (source, target) = (Fixture::with(history), Fixture::new());
    let incoming = quarantine(&target);
    receive(&incoming, &source, "main\n");
    let next = commit(&incoming, Some(source.id("main")), &[("b", b"two\n")]);
    let mut packs = incoming.packs().expect("packs");
    packs.sort_by_key(|pack| extensions(pack).len());
    assert_eq!(packs.iter().map(|pack| pack.objects).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(extensions(&packs[0]), [] as [&str; 0]);
    assert_eq!(extensions(&packs[1]), ["pack", "rev", "idx"]);
    store(&packs, &target);
    target.git(&["update-ref", "refs/heads/main", &next.to_string()]);
    target.git(&["fsck", "--strict", "--full"]);
}

/// Returns the number of quarantines that have a folder.
fn temporary_files(fixture: &Fixture) -> usize {
    fs::read_dir(fixture.path().with_file_name("repositories/tmp")).expect("a folder").count()
}

#[test]
fn objects_in_quarantine_can_be_read_whatever_their_size() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "one\n"), file("dir/b", "two\n")]);
    let fixture = Fixture::with(history);
    let repositories = repositories_with(&fixture);
    let contents = [(b"small\n".to_vec(), true), (vec![b'x'; 3 << 20], true), (text(200 << 10, 7), false)];
    for (large, becomes_small_pack) in contents {
        let mut changed = HistoryBuilder::default();
        changed.next(&[file("a", "one\n"), file("dir/b", "two\n")]);
        changed.next(&[file("a", "one\nmore\n")]);
        let large_text = String::from_utf8(large.clone()).expect("text");
        changed.next(&[file("dir/large", &large_text)]);
        let source = Fixture::with(changed);
        let received = repositories.quarantine(&storage());
        receive(&received, &source, "main\n^main~2\n");
        received.check_sizes().expect("small enough");
        let written = repositories.quarantine(&storage());
        let id = commit(&written, Some(fixture.id("main")), &[("dir/large", &large)]);
        for (incoming, tip) in [(&received, source.id("main")), (&written, id)] {
            assert!(incoming.received().expect("readable").contains(tip));
            let objects = incoming.repository().expect("opens");
            let tree = objects.tree_of(tip).expect("readable").expect("a tree");
            let blob = objects.lookup(tree, "dir/large").expect("readable").expect("found").id;
            let blob = crate::repository::oid(&blob);
            let mut content = Vec::new();
            objects.write_blob(blob, &mut content).expect("written");
            assert!(content == large);
            assert_eq!(objects.blob_size(blob).expect("readable"), Some(large.len() as u64));
            // From the repository itself.
            let old = objects.lookup(tree, "dir/b").expect("readable").expect("found").id;
            let mut content = Vec::new();
            objects.write_blob(crate::repository::oid(&old), &mut content).expect("written");
            assert_eq!(content, b"two\n");
            let packs = incoming.packs().expect("packs");
            let is_small: BTreeSet<bool> =
                packs.iter().map(|pack| pack.small_content().expect("readable").is_some()).collect();
            // What is written one by one is compressed like what git sends.
            assert_eq!(is_small, BTreeSet::from([becomes_small_pack]));
        }
    }
}

#[test]
fn a_path_with_special_characters_can_be_an_alternate() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "one\n")]);
    history.next(&[file("b", "two\n")]);
    let (source, folder) = (Fixture::with(history), tempfile::tempdir().expect("a folder"));
    let root = folder.path().join("a:b \"c\" \\d\u{e4}");
    let repositories = Repositories::open_folder(&root).expect("a folder");
    let path = repositories.path_of(&storage());
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    symlink(source.path(), &path).expect("linked");
    // The pack lacks the first commit, which must be found in the repository.
    let incoming = repositories.quarantine(&storage());
    receive(&incoming, &source, "main\n^main~1\n");
    assert!(incoming.repository().expect("opens").tree_of(source.id("main~1")).expect("readable").is_some());
}

#[test]
fn there_is_no_pack_without_objects() {
    let fixture = Fixture::new();
    let repositories = repositories_with(&fixture);
    assert!(repositories.quarantine(&storage()).packs().expect("packs").is_empty());
    // As for a push of a branch whose commits the server already has.
    let incoming = repositories.quarantine(&storage());
    receive(&incoming, &fixture, "");
    assert!(incoming.packs().expect("packs").is_empty());
}

#[test]
fn files_exist_as_long_as_one_of_the_packs() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "one\n")]);
    let (source, target) = (Fixture::with(history), Fixture::new());
    let incoming = quarantine(&target);
    receive(&incoming, &source, "main\n");
    // Too large to be kept in memory.
    commit(&incoming, Some(source.id("main")), &[("b", &text(3 << 20, 1))]);
    let mut packs = incoming.packs().expect("packs");
    let paths = |pack: &LocalPack| pack.files().map(|(_, path)| path.to_owned()).collect::<Vec<_>>();
    let (first, second) = (packs.remove(0), packs.remove(0));
    drop(incoming);
    let files = [paths(&first), paths(&second)].concat();
    drop(first);
    assert!(files.iter().all(|file| file.exists()));
    drop(second);
    assert!(!files.iter().any(|file| file.exists()));
}
