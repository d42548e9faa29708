//! All packs of a repository, sent as one.

use std::path::PathBuf;

use super::{Fixture, large::text};
use crate::WholePack;

/// Creates a commit on `main` that changes a long file, so that git stores the file as a delta.
fn commit(repository: &Fixture, number: u8) -> String {
    let content = [&text(100_000, 0)[..], &[b'0' + number, b'\n']].concat();
    let blob = String::from_utf8(repository.git_with(&["hash-object", "-w", "--stdin"], &content)).expect("UTF-8");
    let entry = format!("100644 blob {}\tfile\n", blob.trim());
    let tree = String::from_utf8(repository.git_with(&["mktree"], entry.as_bytes())).expect("UTF-8");
    let message = format!("number {number}");
    let mut arguments = vec!["commit-tree", tree.trim(), "-m", &message];
    let parent = repository.try_git(&["rev-parse", "--verify", "--quiet", "main"], b"").0;
    let parent = parent.map(|id| String::from_utf8(id).expect("UTF-8"));
    if let Some(parent) = &parent {
        arguments.extend(["-p", parent.trim()]);
    }
    let commit = repository.git(&arguments);
    repository.git(&["update-ref", "refs/heads/main", &commit]);
    commit
}

/// Packs the objects that `revisions` lists; returns the path of the pack without extension.
fn pack(repository: &Fixture, options: &[&str], revisions: &str) -> PathBuf {
    let prefix = repository.path().join("objects/pack/pack");
    let prefix = prefix.to_str().expect("a path");
    let arguments = [&["pack-objects", "-q", "--revs"], options, &[prefix]].concat();
    let checksum = repository.git_with(&arguments, revisions.as_bytes());
    PathBuf::from(format!("{prefix}-{}", String::from_utf8(checksum).expect("UTF-8").trim()))
}

fn write(whole: &WholePack) -> Vec<u8> {
    let mut out = Vec::new();
    whole.write_to(&mut out).expect("written");
    out
}

#[test]
fn several_packs_are_sent_as_one() {
    let source = Fixture::new();
    let first: Vec<String> = (0..4).map(|number| commit(&source, number)).collect();
    let tip = first.last().expect("a commit");
    let old = pack(&source, &["--delta-base-offset"], &format!("{tip}\n"));
    for number in 4..8 {
        commit(&source, number);
    }
    // Deltas refer to their base by id here, and by its distance in the other pack.
    let new = pack(&source, &[], &format!("main\n^{tip}\n"));
    let whole = WholePack::open([new, old].into_iter()).expect("readable").expect("one pack");
    let bytes = write(&whole);
    let target = Fixture::new();
    target.git_with(&["index-pack", "--strict", "--stdin"], &bytes);
    let objects = |of: &Fixture| of.git_lines(&["cat-file", "--batch-all-objects", "--batch-check"]);
    assert_eq!(objects(&target), objects(&source));
    assert_eq!(objects(&target).len(), 24, "eight commits, trees and files");
    target.git(&["update-ref", "refs/heads/main", &source.git(&["rev-parse", "main"])]);
    target.git(&["fsck", "--strict", "--full"]);
}

#[test]
fn one_pack_is_sent_as_it_is() {
    let source = Fixture::new();
    commit(&source, 0);
    let path = pack(&source, &[], "main\n");
    let whole = WholePack::open(std::iter::once(path.clone())).expect("readable").expect("one pack");
    assert!(write(&whole) == std::fs::read(path.with_extension("pack")).expect("a pack"));
}

#[test]
fn packs_with_a_common_object_are_not_joined() {
    let source = Fixture::new();
    commit(&source, 0);
    let small = pack(&source, &[], "main\n");
    commit(&source, 1);
    let large = pack(&source, &[], "main\n");
    assert!(WholePack::open([small, large].into_iter()).expect("readable").is_none());
}

#[test]
fn a_removed_pack_is_sent_and_a_damaged_one_is_an_error() {
    let source = Fixture::new();
    commit(&source, 0);
    let path = pack(&source, &[], "main\n");
    let whole = WholePack::open(std::iter::once(path.clone())).expect("readable").expect("one pack");
    let file = path.with_extension("pack");
    let bytes = std::fs::read(&file).expect("a pack");
    std::fs::remove_file(&file).expect("removed");
    assert!(write(&whole) == bytes, "an open pack can be removed");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    for content in [&damaged[..], &bytes[..bytes.len() - 1]] {
        std::fs::write(&file, content).expect("written");
        let whole = WholePack::open(std::iter::once(path.clone())).expect("readable").expect("one pack");
        let error = whole.write_to(&mut Vec::new()).expect_err("an error");
        assert_eq!(error.to_string(), format!("the pack {} is damaged", path.display()));
    }
    std::fs::write(&file, &bytes[..20]).expect("written");
    let error = WholePack::open(std::iter::once(path)).err().expect("an error");
    assert!(error.to_string().ends_with(".pack is too short"), "{error}");
}
