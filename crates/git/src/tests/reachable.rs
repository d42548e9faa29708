//! Reachability from visible refs.

use std::{cell::Cell, collections::HashSet, io, rc::Rc};

use model::Oid;

use super::{CommitSpec, Fixture, HistoryBuilder, file};
use crate::{
    Error,
    packs::{HEADERS, ON_HEADER},
    reachable::{is_locked, while_locked},
    with_cancellation,
};

/// Two branches with a common first commit: `main` with two commits, `side` with one of its own.
fn two_branches() -> Fixture {
    let mut history = HistoryBuilder::default();
    let first = history.next(&[file("a", "1\n"), file("folder/b", "b\n")]);
    history.commit(CommitSpec { seconds: 2, parents: &[first], edits: &[file("a", "2\n")], ..CommitSpec::default() });
    let edits = [file("folder/secret", "secret\n")];
    history.commit(CommitSpec {
        branch: "side",
        seconds: 3,
        parents: &[first],
        edits: &edits,
        ..CommitSpec::default()
    });
    Fixture::with(history)
}

/// Returns all objects of a repository, and those that git finds reachable from visible refs.
fn objects(fixture: &Fixture) -> (Vec<Oid>, HashSet<Oid>) {
    let ids = |lines: Vec<String>| lines.into_iter().map(|line| line[..40].parse::<Oid>().expect("an id"));
    let all = fixture.git_lines(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered"]);
    let reached = fixture.git_lines(&["rev-list", "--objects", "--exclude=refs/gable/*", "--all"]);
    (ids(all).collect(), ids(reached).collect())
}

/// Queries every object, one by one and all at once, and compares with git.
#[track_caller]
fn check(fixture: &Fixture) {
    let (all, reached) = objects(fixture);
    let repository = fixture.reopen();
    let answers = repository.which_are_reachable(&all).expect("answers");
    for (id, answer) in all.iter().zip(answers) {
        assert_eq!(answer, reached.contains(id), "{id}");
        assert_eq!(repository.which_are_reachable(&[*id]).expect("an answer"), [answer], "{id}");
    }
}

#[test]
fn objects_of_a_deleted_branch_are_not_found_by_id() {
    let fixture = two_branches();
    let (commit, tree, blob) = (fixture.id("side"), fixture.id("side:folder"), fixture.id("side:folder/secret"));
    let found = |fixture: &Fixture| {
        let repository = fixture.reopen();
        let resolve = |text: &str| repository.resolve(text).expect("resolved").is_some();
        let blob_text = blob.to_string();
        let blob_found = |text: &str| repository.find_blob(text).expect("looked up").is_some();
        let id = commit.to_string();
        [
            resolve(&id),
            resolve(&id[..10]),
            resolve(&id[..7]),
            blob_found(&blob_text),
            blob_found(&blob_text[..7]),
            repository.which_are_reachable(&[tree]).expect("an answer") == [true],
        ]
    };
    assert_eq!(found(&fixture), [true; 6]);
    check(&fixture);
    fixture.git(&["update-ref", "-d", "refs/heads/side"]);
    assert_eq!(found(&fixture), [false; 6]);
    check(&fixture);
    // A hidden ref does not make it reachable, a visible one of any kind does.
    fixture.git(&["update-ref", "refs/gable/keep/1", &commit.to_string()]);
    assert_eq!(found(&fixture), [false; 6]);
    fixture.git(&["tag", "-a", "-m", "text", "v1", &commit.to_string()]);
    assert_eq!(found(&fixture), [true; 6]);
    check(&fixture);
    // Commits that are reachable otherwise stay so.
    assert!(fixture.reopen().resolve(&fixture.id("main~1").to_string()).expect("resolved").is_some());
}

#[test]
fn a_forced_push_makes_old_commits_unreachable_and_deleting_a_merged_branch_does_not() {
    let fixture = two_branches();
    let merged = fixture.id("main~1");
    fixture.git(&["update-ref", "refs/heads/merged", &merged.to_string()]);
    check(&fixture);
    fixture.git(&["update-ref", "-d", "refs/heads/merged"]);
    check(&fixture);
    let lost = fixture.id("main").to_string();
    fixture.git(&["update-ref", "refs/heads/main", &merged.to_string()]);
    assert_eq!(fixture.reopen().resolve(&lost).expect("resolved"), None);
    check(&fixture);
    fixture.git(&["update-ref", "refs/heads/main", &lost]);
    assert!(fixture.reopen().resolve(&lost).expect("resolved").is_some());
    check(&fixture);
}

#[test]
fn reachability_follows_pushes_repacks_and_commit_graphs() {
    let fixture = two_branches();
    check(&fixture);
    fixture.write_commit_graph();
    check(&fixture);
    fixture.git(&["update-ref", "-d", "refs/heads/side"]);
    for round in 0..4 {
        // A commit outside the commit-graph and the packs.
        let tree = fixture.git(&["rev-parse", "main^{tree}"]);
        let commit = fixture.git(&["commit-tree", "-p", "main", "-m", &format!("more {round}"), &tree]);
        fixture.git(&["update-ref", "refs/heads/main", &commit]);
        check(&fixture);
        match round {
            0 => drop(fixture.git(&["repack", "-q", "-d", "--geometric=2", "--write-midx", "--write-bitmap-index"])),
            1 => fixture.write_commit_graph(),
            2 => drop(fixture.git(&["repack", "-q", "-a", "-d", "-k"])),
            _ => {}
        }
        check(&fixture);
    }
}

#[test]
fn objects_stay_reachable_if_they_are_copied_to_a_larger_pack() {
    // Small packs and the one that combines them are in the folder at the same time.
    let mut history = HistoryBuilder::default();
    let first = history.next(&[file("a", "1\n"), file("folder/b", "b\n")]);
    let mut parent = first;
    for number in 2..6 {
        let edits = [file("a", &format!("{number}\n"))];
        parent =
            history.commit(CommitSpec { seconds: number, parents: &[parent], edits: &edits, ..CommitSpec::default() });
    }
    let fixture = Fixture::with(history);
    fixture.git(&["repack", "-d", "-q"]);
    check(&fixture);
    let packed = fixture.git_lines(&["rev-list", "--objects", "--all"]).join("\n");
    let pack = fixture.path().join("objects/pack/pack").display().to_string();
    for more in 0..3 {
        // Larger than all others, and with another name.
        let extra = fixture.git_with(&["hash-object", "-w", "--stdin"], format!("extra {more}\n").as_bytes());
        let ids = [packed.as_bytes(), b"\n", &extra].concat();
        fixture.git_with(&["pack-objects", "-q", &pack], &ids);
        check(&fixture);
    }
}

#[test]
fn refs_may_point_to_trees_and_blobs() {
    let fixture = two_branches();
    let (tree, blob) = (fixture.id("side:folder").to_string(), fixture.id("side:folder/secret").to_string());
    fixture.git(&["update-ref", "refs/tags/tree", &tree]);
    fixture.git(&["update-ref", "refs/tags/blob", &blob]);
    fixture.git(&["update-ref", "-d", "refs/heads/side"]);
    check(&fixture);
    fixture.git(&["update-ref", "-d", "refs/tags/tree"]);
    check(&fixture);
    fixture.git(&["update-ref", "-d", "refs/tags/blob"]);
    check(&fixture);
    assert_eq!(fixture.reopen().find_blob(&blob).expect("looked up"), None);
}

#[test]
fn a_listing_by_git_equals_a_walk() {
    let fixture = two_branches();
    fixture.git(&["tag", "-a", "-m", "text", "v1", "main~1"]);
    fixture.git(&["update-ref", "refs/tags/blob", &fixture.id("side:folder/secret").to_string()]);
    fixture.git(&["update-ref", "-d", "refs/heads/side"]);
    for packed in [false, true] {
        if packed {
            fixture.git(&["repack", "-q", "-d", "--geometric=2", "--write-midx", "--write-bitmap-index"]);
            fixture.write_commit_graph();
        }
        let repository = fixture.reopen();
        let listed = repository.list_reachable().expect("a list");
        let (all, reached) = objects(&fixture);
        for (id, listed) in all.iter().zip(listed(&all)) {
            assert_eq!(listed, reached.contains(id), "{id}");
        }
    }
}

/// Returns this many ids of objects that do not exist.
fn missing(count: u32) -> Vec<Oid> {
    let id = |number: u32| {
        let mut id = [0xab; 20];
        id[..4].copy_from_slice(&number.to_be_bytes());
        Oid(id)
    };
    (0..count).map(id).collect()
}

#[test]
fn objects_are_looked_up_without_the_lock() {
    let fixture = two_branches();
    let repository = fixture.reopen();
    let path = repository.path().to_owned();
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    let hook = move || {
        counted.set(counted.get() + 1);
        assert!(!is_locked(&path), "an object is looked up under the lock");
    };
    ON_HEADER.set(Some(Box::new(hook)));
    let (all, reached) = objects(&fixture);
    let answers = repository.which_are_reachable(&[all.clone(), missing(1000)].concat()).expect("answers");
    ON_HEADER.set(None);
    assert!(calls.get() >= 1000);
    assert_eq!(answers.iter().filter(|answer| **answer).count(), reached.len());
}

#[test]
fn the_first_unreachable_object_ends_the_search() {
    let fixture = two_branches();
    let repository = fixture.reopen();
    assert_eq!(repository.first_unreachable(&[fixture.id("main")]).expect("an answer"), None);
    let before = HEADERS.get();
    let found = repository.first_unreachable(&missing(10_000)).expect("an answer");
    assert_eq!(found, Some(missing(1)[0]));
    assert_eq!(HEADERS.get() - before, 1, "one was looked up");
    // Also after reachable ones, and ones that have to be searched in trees.
    let (all, reached) = objects(&fixture);
    assert_eq!(all.len(), reached.len());
    assert_eq!(repository.first_unreachable(&all).expect("an answer"), None);
    let lost = fixture.id("side:folder/secret");
    fixture.git(&["update-ref", "-d", "refs/heads/side"]);
    let found = fixture.reopen().first_unreachable(&[fixture.id("main:a"), lost, fixture.id("main")]);
    assert_eq!(found.expect("an answer"), Some(lost));
}

#[test]
fn a_query_ends_soon_after_its_client_disconnects() {
    let fixture = two_branches();
    let repository = fixture.reopen();
    let before = HEADERS.get();
    let is_cancelled = move || HEADERS.get() - before > 1000;
    let answer = with_cancellation(is_cancelled, || repository.which_are_reachable(&missing(100_000)));
    match answer {
        Err(Error::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::BrokenPipe),
        other => panic!("{other:?}"),
    }
    let looked_up = HEADERS.get() - before;
    assert!(looked_up <= 1000 + 256 + 1, "{looked_up}");
}

#[test]
fn a_query_fails_as_busy_if_the_lock_is_held_for_too_long() {
    let fixture = two_branches();
    let repository = fixture.reopen();
    let main = fixture.id("main");
    assert!(repository.resolve(&main.to_string()).expect("resolved").is_some());
    let answers = while_locked(repository.path(), || {
        [repository.which_are_reachable(&[main]).map(drop), repository.resolve(&main.to_string()).map(drop)]
    });
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Busy))), "{answers:?}");
    assert!(repository.resolve(&main.to_string()).expect("resolved").is_some(), "it goes on afterwards");
}
