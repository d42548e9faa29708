//! Folders.

use std::{cell::Cell, io, rc::Rc};

use model::{Page, Total, objects::EntryKind};

use super::{Edit, Fixture, HistoryBuilder, file};
use crate::{Error, tree_walk::TreeWalk, with_cancellation};

/// Entries in the format of `git ls-tree`.
fn listed(fixture: &Fixture, path: &str, recursive: bool, page: Page) -> (Vec<String>, i64) {
    let slice = fixture.open().tree(fixture.id("main"), path, recursive, page).expect("a tree");
    let kind = |kind| match kind {
        EntryKind::Tree => "tree",
        EntryKind::Blob => "blob",
        EntryKind::Submodule => "commit",
    };
    let shown = slice.items.iter().map(|item| {
        assert!(item.path.ends_with(&item.name) && !item.name.contains('/'), "{item:?}");
        format!("{:06o} {} {}\t{}", item.mode, kind(item.kind), item.id, item.path)
    });
    (shown.collect(), slice.total.exact().expect("counted"))
}

/// The entries that git lists, grouped by kind.
pub(super) fn as_git_lists(fixture: &Fixture, commit: &str, path: &str, recursive: bool) -> Vec<String> {
    let tree = format!("{commit}:{path}");
    let mut arguments = vec!["ls-tree", "-z"];
    arguments.extend(recursive.then_some(["-r", "-t"]).into_iter().flatten());
    arguments.push(&tree);
    let output = fixture.git_with(&arguments, b"");
    let output = String::from_utf8_lossy(&output);
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let mut lines: Vec<_> =
        output.split_terminator('\0').map(|line| line.replace('\t', &format!("\t{prefix}"))).collect();
    let rank = |line: &String| ["tree", "blob", "commit"].iter().position(|kind| line.split(' ').nth(1) == Some(kind));
    lines.sort_by_key(rank);
    lines
}

fn sample_repository() -> Fixture {
    let mut history = HistoryBuilder::default();
    let link = "1234567890123456789012345678901234567890";
    history.next(&[
        file("README", "hello\n"),
        file("a.b", "1\n"),
        file("a/deep/er/x", "2\n"),
        file("a/y", "3\n"),
        file("a0", "4\n"),
        file("--flag", "5\n"),
        file("\"\\344\"", "not UTF-8\n"),
        file("ä/ö", "UTF-8\n"),
        Edit::Write("run.sh", 0o100_755, b"#!\n".into()),
        Edit::Write("link", 0o120_000, b"a/y".into()),
        Edit::Write("a/module", 0o160_000, link.into()),
        Edit::Write("module", 0o160_000, link.into()),
    ]);
    Fixture::with(history)
}

#[test]
fn folders_come_first_then_files_then_submodules() {
    let fixture = sample_repository();
    for path in ["", "a", "a/deep", "a/deep/er"] {
        for recursive in [false, true] {
            let expected = as_git_lists(&fixture, "main", path, recursive);
            let (shown, total) = listed(&fixture, path, recursive, Page::whole());
            assert_eq!(shown, expected, "{path:?} {recursive}");
            assert_eq!(total, i64::try_from(expected.len()).expect("few"));
        }
    }
    let (shown, _) = listed(&fixture, "", false, Page::whole());
    let names: Vec<_> = shown.iter().map(|line| line.split('\t').nth(1).expect("a path")).collect();
    assert_eq!(names, ["a", "ä", "--flag", "README", "a.b", "a0", "link", "run.sh", "\u{fffd}", "module"]);
    assert!(
        shown[6].starts_with("120000 blob")
            && shown[7].starts_with("100755 blob")
            && shown[9].starts_with("160000 commit")
    );
}

#[test]
fn slashes_around_a_path_make_no_difference() {
    let fixture = sample_repository();
    let expected = listed(&fixture, "a", false, Page::whole());
    for path in ["a/", "/a", "//a//", "/a/"] {
        assert_eq!(listed(&fixture, path, false, Page::whole()), expected, "{path}");
    }
    assert_eq!(listed(&fixture, "/", true, Page::whole()), listed(&fixture, "", true, Page::whole()));
}

#[test]
fn a_path_that_is_not_a_folder_has_no_entries() {
    let fixture = sample_repository();
    let long = "x/".repeat(5000);
    for path in [
        "none", "README", "README/x", "link", "module", "module/x", "a//y", ".", "..", "a/..", "\0", "a/\n", "-r",
        &long,
    ] {
        assert_eq!(listed(&fixture, path, false, Page::whole()), (Vec::new(), 0), "{path}");
        assert_eq!(listed(&fixture, path, true, Page::whole()), (Vec::new(), 0), "{path}");
    }
    let repository = fixture.open();
    let blob = fixture.id("main:README");
    assert_eq!(
        repository.tree(blob, "", false, Page::whole()).expect("a tree").total,
        Total::Exact(0),
        "a blob is no commit"
    );
}

#[test]
fn all_pages_together_are_the_whole_list() {
    let fixture = sample_repository();
    for recursive in [false, true] {
        let (whole, total) = listed(&fixture, "", recursive, Page::whole());
        for size in [1, 2, 3, 7, 100] {
            let mut pages = Vec::new();
            for number in 1..=total + 2 {
                let (page, counted) = listed(&fixture, "", recursive, Page { number, size });
                assert_eq!(counted, total);
                pages.extend(page);
            }
            assert_eq!(pages, whole, "{size} {recursive}");
        }
        assert!(listed(&fixture, "", recursive, Page { number: i64::MAX, size: 100 }).0.is_empty());
    }
}

#[test]
fn an_entry_is_found_by_its_path() {
    let fixture = sample_repository();
    let repository = fixture.open();
    let main = fixture.id("main");
    let found = |path: &str| {
        let entry = repository.entry(main, path).expect("looked up");
        entry.map(|entry| (entry.name, entry.path, entry.kind, entry.mode))
    };
    let entry = |name: &str, path: &str, kind, mode| Some((name.to_owned(), path.to_owned(), kind, mode));
    assert_eq!(found("a/deep/er/x"), entry("x", "a/deep/er/x", EntryKind::Blob, 0o100_644));
    assert_eq!(found("/a/y"), entry("y", "a/y", EntryKind::Blob, 0o100_644));
    assert_eq!(found("--flag"), entry("--flag", "--flag", EntryKind::Blob, 0o100_644));
    assert_eq!(found("a"), entry("a", "a", EntryKind::Tree, 0o040_000));
    assert_eq!(found("link"), entry("link", "link", EntryKind::Blob, 0o120_000));
    assert_eq!(found("a/module"), entry("module", "a/module", EntryKind::Submodule, 0o160_000));
    for none in ["", "/", "none", "README/", "README/x", "a//y", "../x", "link/y", "a\0", "\u{fffd}"] {
        assert_eq!(found(none), None, "{none}");
    }
}

#[test]
fn trees_that_contain_each_other_repeatedly_are_listed_quickly() {
    let fixture = Fixture::new();
    let mut tree = fixture.git_with(&["hash-object", "-w", "--stdin"], b"x");
    let mut mode = "100644 blob";
    for _ in 0..12 {
        let id = String::from_utf8(tree).expect("UTF-8");
        let entries = (0..10).fold(String::new(), |text, name| text + &format!("{mode} {}\t{name}\n", id.trim()));
        tree = fixture.git_with(&["mktree"], entries.as_bytes());
        mode = "040000 tree";
    }
    let id = String::from_utf8(tree).expect("UTF-8");
    fixture.git(&["update-ref", "refs/heads/main", &fixture.git(&["commit-tree", "-m", "bomb", id.trim()])]);
    let repository = fixture.open();
    let main = fixture.id("main");
    let page = repository.tree(main, "", true, Page { number: 1, size: 3 }).expect("a page");
    let paths: Vec<_> = page.items.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!((paths, page.total), (vec!["0", "0/0", "0/0/0"], Total::Exact(1_111_111_111_110)));
    let last = repository.tree(main, "", true, Page { number: 1_111_111_111_110, size: 1 }).expect("a page");
    assert_eq!(last.items[0].path, "9/9/9/9/9/9/9/9/9/9/9/9");
    let first_file = repository.tree(main, "", true, Page { number: 111_111_111_111, size: 1 }).expect("a page");
    assert_eq!((first_file.items[0].kind, &*first_file.items[0].path), (EntryKind::Blob, "0/0/0/0/0/0/0/0/0/0/0/0"));
    assert_eq!(repository.tree(main, "", false, Page::new(None, None)).expect("a tree").total, Total::Exact(10));
    assert_eq!(repository.commit_diff(main).expect("a diff"), [], "no file was reached in time");
}

#[test]
fn a_commit_without_files_has_an_empty_tree() {
    let mut history = HistoryBuilder::default();
    history.next(&[]);
    let fixture = Fixture::with(history);
    assert_eq!(listed(&fixture, "", false, Page::whole()), (Vec::new(), 0));
    assert_eq!(listed(&fixture, "", true, Page::whole()), (Vec::new(), 0));
}

#[test]
fn folders_that_are_nested_too_deeply_are_refused() {
    let deep: &'static str = format!("{}x", "d/".repeat(2500)).leak();
    let mut history = HistoryBuilder::default();
    history.next(&[file(deep, "1\n")]);
    let fixture = Fixture::with(history);
    let repository = fixture.open();
    let main = fixture.id("main");
    let error = repository.tree(main, "", true, Page::new(None, None)).expect_err("too deep");
    assert!(error.to_string().contains("deeper than"), "{error}");
    let folder = "d/".repeat(2499);
    assert_eq!(repository.tree(main, &folder, false, Page::whole()).expect("a tree").items[0].name, "d");
    assert_eq!(repository.commit_diff(main).expect("a diff").len(), 1);
}

#[test]
fn all_file_paths_are_returned_unless_there_are_too_many() {
    let fixture = sample_repository();
    let (repository, commit) = (fixture.open(), fixture.id("main"));
    let expected: Vec<String> = as_git_lists(&fixture, "main", "", true)
        .into_iter()
        .filter(|line| line.contains(" blob "))
        .filter_map(|line| line.split_once('\t').map(|(_, path)| path.to_owned()))
        .collect();
    let sorted = |mut paths: Vec<String>| {
        paths.sort();
        paths
    };
    let paths = repository.file_paths(commit, 100).expect("paths").expect("few of them");
    assert_eq!(sorted(paths), sorted(expected));
    let entries = as_git_lists(&fixture, "main", "", true).len();
    assert!(repository.file_paths(commit, entries).expect("paths").is_some());
    assert_eq!(repository.file_paths(commit, entries - 1).expect("paths"), None);
}

/// A commit whose root folder is larger than 2 MB and contains this many different folders.
fn wide_commit(fixture: &Fixture, folders: u32) -> (gix::ObjectId, usize, model::Oid) {
    let mut root = Vec::new();
    for (number, tree) in fixture.small_trees(folders).into_iter().enumerate() {
        root.extend(format!("40000 d{number:07}\0").into_bytes());
        root.extend_from_slice(tree.as_slice());
    }
    for number in 0..70_000 {
        root.extend(format!("160000 f{number:07}\0").into_bytes());
        root.extend_from_slice(&[1; 20]);
    }
    let written = fixture.git_with(&["hash-object", "-t", "tree", "--literally", "-w", "--stdin"], &root);
    let tree = String::from_utf8(written).expect("UTF-8");
    let tree = gix::ObjectId::from_hex(tree.trim().as_bytes()).expect("an id");
    let text = format!("tree {tree}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nm");
    (tree, root.len(), fixture.raw_commit(text.as_bytes()))
}

#[test]
fn a_wide_folder_is_read_once_however_many_folders_it_contains() {
    let fixture = Fixture::new();
    let (tree, size, commit) = wide_commit(&fixture, 50);
    assert!(size > 2 << 20);
    let repository = fixture.reopen();
    let mut walk = TreeWalk::new(&repository, tree, Vec::new()).expect("a walk");
    let mut seen = 0;
    while let Some(entry) = walk.next().expect("an entry") {
        seen += 1;
        if entry.mode.is_tree() {
            walk.enter(entry.id).expect("entered");
        }
    }
    assert_eq!(seen, 70_000 + 2 * 50);
    let read = walk.bytes_read();
    assert!(read < 2 * size as u64, "{read} bytes were read of {size}");
    drop(walk);
    let page = Page { number: 1, size: 100 };
    let listed = repository.tree(commit, "", true, page).expect("a page");
    assert_eq!(
        (listed.total, listed.items.len(), listed.items[49].path.as_str()),
        (Total::Exact(70_100), 100, "d0000049")
    );
}

#[test]
fn a_walk_over_folders_ends_when_its_client_disconnects() {
    let fixture = Fixture::new();
    let (_, _, commit) = wide_commit(&fixture, 2);
    let repository = fixture.reopen();
    let page = Page { number: 1, size: 100 };
    let checks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&checks);
    // The client has disconnected when it is checked for the third time.
    let is_cancelled = move || {
        counted.set(counted.get() + 1);
        counted.get() > 2
    };
    let walks = with_cancellation(is_cancelled, || {
        [
            repository.tree(commit, "", true, page).map(drop),
            repository.check_archive(commit),
            repository.file_paths(commit, 1_000_000).map(drop),
        ]
    });
    for walk in walks {
        assert!(matches!(&walk, Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe), "{walk:?}");
    }
    assert_eq!(checks.get(), 5, "each walk ends with the check that finds it");
}
