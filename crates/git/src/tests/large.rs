//! Objects that are too large to be unpacked in memory, and deltas against them.

use model::Oid;

use super::Fixture;
use crate::{
    Error,
    decode::TRUNCATION_NOTICE,
    limits::MAX_TREE_SIZE,
    packs::{self, OPENED},
    repository::gix_id,
};

/// An incompressible text of about this size; different seeds differ in one line only.
pub(super) fn text(bytes: usize, seed: u64) -> Vec<u8> {
    let line = |number: u64| format!("{:016x}\n", number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut text: Vec<u8> = format!("{seed}\n").into_bytes();
    text.extend((0..bytes as u64 / 17).flat_map(|number| line(number).into_bytes()));
    text
}

fn blob(fixture: &Fixture, content: &[u8]) -> Oid {
    object(fixture, "blob", content)
}

pub(super) fn object(fixture: &Fixture, kind: &str, content: &[u8]) -> Oid {
    let output = fixture.git_with(&["hash-object", "-t", kind, "--literally", "-w", "--stdin"], content);
    String::from_utf8(output).expect("UTF-8").trim().parse().expect("an id")
}

#[track_caller]
fn check(fixture: &Fixture, id: Oid, expected: &[u8]) {
    let repository = fixture.reopen();
    let mut found = Vec::new();
    repository.check_blob(id).expect("it can be read");
    repository.write_blob(id, &mut found).expect("written");
    assert!(found == expected, "{} bytes instead of {}", found.len(), expected.len());
}

#[test]
fn a_large_blob_is_read_in_chunks_however_it_is_stored() {
    let fixture = Fixture::new();
    for size in [1 << 20, 3 << 20, 9 << 20] {
        let content = text(size, 0);
        let id = blob(&fixture, &content);
        check(&fixture, id, &content);
    }
    let (content, zeros) = (text(3 << 20, 1), vec![0; 50 << 20]);
    let ids = [(blob(&fixture, &content), &content), (blob(&fixture, &zeros), &zeros)];
    pack(&fixture, &["--window=0"]);
    for (id, content) in ids {
        check(&fixture, id, content);
    }
}

/// Packs all objects, reachable or not, and removes the loose ones.
fn pack(fixture: &Fixture, options: &[&str]) {
    let list = fixture.git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
    let base = fixture.path().join("objects/pack/pack");
    let base = base.to_str().expect("a path");
    let arguments = [&["-c", "core.bigFileThreshold=1g", "pack-objects", "-q", "--no-reuse-delta"], options, &[base]];
    fixture.git_with(&arguments.concat(), list.as_bytes());
    fixture.git(&["prune-packed", "-q"]);
}

#[test]
fn a_large_blob_that_is_stored_as_a_delta_is_reconstructed() {
    for size in [3 << 20, 6 << 20] {
        let fixture = Fixture::new();
        let versions: Vec<Vec<u8>> = (0..4).map(|seed| text(size, seed)).collect();
        let ids: Vec<Oid> = versions.iter().map(|content| blob(&fixture, content)).collect();
        // A small blob that is a part of the large ones.
        let small = &versions[0][..2000];
        let small_id = blob(&fixture, small);
        pack(&fixture, &["--window=20", "--depth=50"]);
        let listed = fixture.git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(deltabase)"]);
        let deltas = listed.lines().filter(|line| !line.ends_with(&"0".repeat(40))).count();
        assert!(deltas >= 3, "{listed}");
        for (id, content) in ids.iter().zip(&versions) {
            check(&fixture, *id, content);
        }
        check(&fixture, small_id, small);
    }
}

#[test]
fn commits_and_tags_that_are_too_large_are_truncated() {
    let fixture = Fixture::new();
    let tree = object(&fixture, "tree", b"");
    let parent = fixture
        .raw_commit(format!("tree {tree}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nfirst").as_bytes());
    let long = |head: String| [head.as_bytes(), &vec![b'm'; 5 << 20]].concat();
    let head = format!("tree {tree}\nparent {parent}\nauthor B <b@c> 2 +0000\ncommitter B <b@c> 2 +0000\n\nlong ");
    let commit = fixture.raw_commit(&long(head));
    let tag =
        object(&fixture, "tag", &long(format!("object {commit}\ntype commit\ntag t\ntagger A <a@b> 1 +0000\n\nlong ")));
    fixture.git(&["update-ref", "refs/heads/main", &commit.to_string()]);
    fixture.git(&["update-ref", "refs/tags/t", &tag.to_string()]);
    for packed in [false, true] {
        if packed {
            pack(&fixture, &["--window=0"]);
        }
        let repository = fixture.reopen();
        let shown = repository.commit(commit).expect("read").expect("a commit");
        assert_eq!((shown.author.name.as_str(), shown.parents.as_slice()), ("B", &[parent][..]));
        assert!(
            shown.message.starts_with("long mmm") && shown.message.ends_with(TRUNCATION_NOTICE),
            "{}",
            shown.message.len()
        );
        assert!(shown.message.len() < 5000);
        let refs = repository.refs();
        let shown = repository.tag(&refs.tags[0]).expect("a tag");
        assert_eq!(shown.commit.map(|commit| commit.id), Some(commit));
        let message = shown.message.expect("a message");
        assert!(message.starts_with("long mmm") && message.ends_with(TRUNCATION_NOTICE), "{}", message.len());
        assert!(repository.is_ancestor(parent, commit).expect("walked"));
    }
}

#[test]
fn a_large_tree_is_read_up_to_its_limit() {
    let fixture = Fixture::new();
    let entries = |count: u32| -> Vec<u8> {
        (0..count).flat_map(|n| [format!("160000 f{n:07}\0").as_bytes(), &[1; 20]].concat()).collect()
    };
    for (count, is_read) in [(50_000, true), (200_000, true), (300_000, false)] {
        let data = entries(count);
        assert_eq!(data.len() as u64 <= MAX_TREE_SIZE, is_read);
        let tree = object(&fixture, "tree", &data);
        let text = format!("tree {tree}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm");
        let commit = fixture.raw_commit(text.as_bytes());
        let repository = fixture.reopen();
        let page = model::Page { number: 1, size: 1 };
        let listed = [false, true].map(|recursive| repository.tree(commit, "", recursive, page));
        for listed in listed {
            match listed {
                Ok(listed) => assert!(is_read && listed.total == model::Total::Exact(i64::from(count))),
                Err(Error::TooLarge(text)) => {
                    assert!(
                        !is_read && text.contains(&tree.to_string()) && text.ends_with("the limit is 8 MB"),
                        "{text}"
                    );
                }
                Err(error) => panic!("{error}"),
            }
        }
        let diff = repository.commit_diff(commit);
        assert_eq!(diff.is_ok(), is_read);
        assert!(is_read || matches!(diff, Err(Error::TooLarge(_))));
    }
}

#[test]
fn a_chain_of_deltas_opens_each_pack_once() {
    let fixture = Fixture::new();
    let versions: Vec<Vec<u8>> = (0..6).map(|seed| text(3 << 20, seed)).collect();
    let ids: Vec<Oid> = versions.iter().map(|content| blob(&fixture, content)).collect();
    // Without `--delta-base-offset` each delta names its base by id.
    pack(&fixture, &["--window=20", "--depth=50"]);
    let repository = fixture.reopen();
    let before = OPENED.get();
    for (id, content) in ids.iter().zip(&versions) {
        let mut found = Vec::new();
        repository.check_blob(*id).expect("it can be read");
        repository.write_blob(*id, &mut found).expect("written");
        assert!(found == *content);
    }
    assert_eq!(OPENED.get() - before, 2, "the index and the data of the one pack");
}

#[test]
fn an_object_is_found_while_and_after_its_pack_is_replaced() {
    let fixture = Fixture::new();
    let content = text(3 << 20, 0);
    let id = blob(&fixture, &content);
    pack(&fixture, &["--window=0"]);
    let repository = fixture.reopen();
    let index = packs::indices(&fixture.path().join("objects/pack")).expect("a list").pop().expect("a pack");
    // Listed, but not opened yet.
    repository.packs().expect("packs");
    // As in the middle of a repack: there is another pack, and only the index is left of the old one.
    blob(&fixture, b"another object");
    pack(&fixture, &["--window=0"]);
    std::fs::remove_file(index.with_extension("pack")).expect("removed");
    for repository in [&repository, &fixture.reopen()] {
        let mut found = Vec::new();
        repository.check_blob(id).expect("it can be read");
        repository.write_blob(id, &mut found).expect("written");
        assert!(found == content);
        let large = repository.large_object(&gix_id(id), true).expect("found").expect("an object");
        assert_eq!(large.size, content.len() as u64);
    }
}
