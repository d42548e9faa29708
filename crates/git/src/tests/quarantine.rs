//! Objects in quarantine become packs.

use std::{fs, io::Write as _};

use model::{Oid, RefName, objects::Signature};

use super::{Fixture, HistoryBuilder, file, large::text};
use crate::{FileEdit, LocalPack, Quarantine};

fn quarantine(fixture: &Fixture) -> Quarantine {
    let folder = tempfile::tempdir().expect("a folder");
    Quarantine::create(folder, fixture.path().join("objects")).expect("a quarantine")
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
    let mut child = incoming.index_pack(None).spawn().expect("git starts");
    child.stdin.take().expect("a pipe").write_all(&pack).expect("written");
    assert!(child.wait_with_output().expect("git ends").status.success());
}

fn extensions(pack: &LocalPack) -> Vec<&str> {
    pack.files().map(|(extension, _)| extension).collect()
}

/// Copies packs into a repository, and checks what is known about them.
fn store(packs: &[LocalPack], repository: &Fixture) {
    for pack in packs {
        for (extension, path) in pack.files() {
            let name = format!("pack-{}.{extension}", pack.checksum);
            assert!(path.ends_with(&name), "{}", path.display());
            let bytes = fs::read(path).expect("a file");
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
    assert_eq!(extensions(&packs[0]), ["pack", "idx"]);
    assert_eq!(extensions(&packs[1]), ["pack", "rev", "idx"]);
    store(&packs, &target);
    target.git(&["update-ref", "refs/heads/main", &next.to_string()]);
    target.git(&["fsck", "--strict", "--full"]);
}

#[test]
fn there_is_no_pack_without_objects() {
    let fixture = Fixture::new();
    assert!(quarantine(&fixture).packs().expect("packs").is_empty());
    // As for a push of a branch whose commits the server already has.
    let incoming = quarantine(&fixture);
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
    commit(&incoming, Some(source.id("main")), &[("b", b"two\n")]);
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
