//! Packs that are written in process.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use model::Oid;

use super::{
    Fixture,
    large::{object, text},
};
use crate::{Error, pack_writer::write_pack, repository::gix_id};

/// Packs all objects of one repository into another one, which is empty. Returns the path of the pack.
fn pack_all(from: &Fixture, to: &Fixture) -> PathBuf {
    let ids = from.git_lines(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
    let ids: BTreeSet<Oid> = ids.iter().map(|id| id.parse().expect("an id")).collect();
    let (repository, folder) = (from.reopen(), to.path().join("objects/pack"));
    let checksum = write_pack(&folder, &ids, |id| Ok(repository.large_object(&gix_id(id), false)?.expect("an object")));
    let checksum = checksum.expect("a pack");
    let pack = folder.join(format!("pack-{checksum}.pack"));
    let bytes = fs::read(&pack).expect("a file");
    assert_eq!(bytes[bytes.len() - 20..], checksum.0);
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 2, "the pack and its index");
    pack
}

/// Checks that git creates the same index, and finds no fault.
#[track_caller]
fn check(repository: &Fixture, pack: &Path) {
    let expected = repository.path().join("expected.idx");
    let (path, expected_path) = (pack.to_str().expect("a path"), expected.to_str().expect("a path"));
    repository.git(&["index-pack", "--strict", "-o", expected_path, path]);
    let index = pack.with_extension("idx");
    assert!(fs::read(&index).expect("an index") == fs::read(expected).expect("an index"));
    repository.git(&["index-pack", "--verify", path]);
    repository.git(&["verify-pack", index.to_str().expect("a path")]);
    repository.git(&["fsck", "--strict", "--full"]);
}

#[test]
fn git_accepts_a_pack_with_all_kinds_of_objects() {
    let (source, target) = (Fixture::new(), Fixture::new());
    let contents = [b"".to_vec(), b"one\n".to_vec(), text(3 << 20, 0)];
    let blobs = contents.each_ref().map(|content| object(&source, "blob", content));
    let entries =
        format!("100644 blob {}\tempty\n100755 blob {}\tlarge\n100644 blob {}\tsmall\n", blobs[0], blobs[2], blobs[1]);
    let tree = String::from_utf8(source.git_with(&["mktree"], entries.as_bytes())).expect("UTF-8");
    let commit = source.git(&["commit-tree", tree.trim(), "-m", "first"]);
    let tag =
        format!("object {commit}\ntype commit\ntag v1\ntagger Ann <ann@example.com> 1500000000 +0000\n\nmessage\n");
    let tag = object(&source, "tag", tag.as_bytes());
    let pack = pack_all(&source, &target);
    target.git(&["update-ref", "refs/tags/v1", &tag.to_string()]);
    check(&target, &pack);
    let listed = target.git_lines(&["verify-pack", "-v", pack.to_str().expect("a path")]);
    for (id, kind) in [(&tag.to_string(), "tag"), (&commit, "commit"), (&tree.trim().to_owned(), "tree")] {
        assert!(listed.iter().any(|line| line.starts_with(&format!("{id} {kind} "))), "{listed:?}");
    }
    for (path, content) in [("empty", &contents[0]), ("small", &contents[1]), ("large", &contents[2])] {
        assert!(target.git_with(&["cat-file", "blob", &format!("v1:{path}")], b"") == *content, "{path}");
    }
}

#[test]
fn sizes_of_all_lengths_are_encoded() {
    let (source, target) = (Fixture::new(), Fixture::new());
    for size in [1, 15, 16, 17, 2047, 2048, 2049, 262_143, 262_144, 262_145] {
        object(&source, "blob", &vec![b'x'; size]);
    }
    let pack = pack_all(&source, &target);
    check(&target, &pack);
    let list = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype) %(objectsize)"];
    assert_eq!(target.git(&list), source.git(&list));
}

#[test]
fn a_pack_can_have_many_objects() {
    let (source, target) = (Fixture::new(), Fixture::new());
    // More than the number of different first bytes.
    let count = source.small_trees(3000).len();
    let pack = pack_all(&source, &target);
    check(&target, &pack);
    assert_eq!(target.git_lines(&["cat-file", "--batch-all-objects", "--batch-check"]).len(), count);
}

#[test]
fn nothing_is_left_of_a_pack_that_cannot_be_written() {
    let fixture = Fixture::new();
    let id = object(&fixture, "blob", b"one\n");
    let folder = fixture.path().join("objects/pack");
    write_pack(&folder, &BTreeSet::from([id]), |_| Err(Error::Busy)).expect_err("not opened");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
}
