//! Diffs, compared with those of git.

use model::{objects::FileDiff, webhook_events::ChangedPaths};

use super::{CommitSpec, Edit, Fixture, HistoryBuilder, file};
use crate::{FileListBudget, Whitespace, patch};

/// The part of a patch about one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FilePatch {
    old_path: String,
    new_path: String,
    old_mode: Option<u16>,
    new_mode: Option<u16>,
    diff: String,
}

impl From<&FileDiff> for FilePatch {
    fn from(file: &FileDiff) -> Self {
        assert_eq!(file.renamed, file.old_path != file.new_path);
        let FileDiff { old_path, new_path, old_mode, new_mode, diff, .. } = file.clone();
        Self { old_path, new_path, old_mode, new_mode, diff }
    }
}

/// The patch by git, file by file.
pub(super) fn as_git_shows(fixture: &Fixture, old: &str, new: &str) -> Vec<FilePatch> {
    let output = fixture.git_with(
        &["-c", "core.quotePath=false", "diff", "--no-color", "-M", "--raw", "-z", "--abbrev=40", old, new],
        b"",
    );
    let raw = String::from_utf8_lossy(&output).into_owned();
    let output = fixture.git_with(&["-c", "core.quotePath=false", "diff", "--no-color", "-M", old, new], b"");
    let text = String::from_utf8_lossy(&output).into_owned();
    let mut patches = text.split("\ndiff --git ").map(|part| {
        let lines: Vec<_> = part.split_inclusive('\n').collect();
        let start = lines.iter().position(|line| line.starts_with("--- ") || line.starts_with("Binary files "));
        // Git ends a name that contains a space with a tab; the last newline was removed with the separator.
        let mut text: String = start.map(|start| lines[start..].concat()).unwrap_or_default().replace("\t\n", "\n");
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    });
    let mut shown = Vec::new();
    let mut fields = raw.split_terminator('\0');
    while let Some(head) = fields.next() {
        let parts: Vec<_> = head.trim_start_matches(':').split(' ').collect();
        let mode = |text| Some(u16::from_str_radix(text, 8).expect("a mode")).filter(|mode| *mode != 0);
        let (old_mode, new_mode) = (mode(parts[0]), mode(parts[1]));
        let path = fields.next().expect("a path").to_owned();
        let mut add = |old_path: &str, new_path: &str, old_mode, new_mode| {
            let diff = patches.next().expect("a patch");
            shown.push(FilePatch { old_path: old_path.into(), new_path: new_path.into(), old_mode, new_mode, diff });
        };
        match &parts[4][..1] {
            "R" => add(&path, fields.next().expect("a path"), old_mode, new_mode),
            // Git shows it in two parts as well.
            "T" => {
                add(&path, &path, old_mode, None);
                add(&path, &path, None, new_mode);
            }
            _ => add(&path, &path, old_mode, new_mode),
        }
    }
    shown
}

fn two_commits(before: &[Edit], after: &[Edit]) -> Fixture {
    let mut history = HistoryBuilder::default();
    history.next(before);
    history.next(after);
    Fixture::with(history)
}

/// Checks that the diff of the last commit is that of git.
fn check(before: &[Edit], after: &[Edit]) -> Vec<FileDiff> {
    let fixture = two_commits(before, after);
    let files = fixture.open().commit_diff(fixture.id("main")).expect("a diff");
    assert_eq!(files.iter().map(FilePatch::from).collect::<Vec<_>>(), as_git_shows(&fixture, "main~1", "main"));
    let comparison = fixture.open().compare(fixture.id("main~1"), fixture.id("main")).expect("compared");
    assert_eq!(comparison.diffs, files);
    files
}

fn lines(range: std::ops::Range<u32>) -> String {
    range.fold(String::new(), |text, number| text + &format!("line {number}\n"))
}

#[test]
fn a_changed_file_is_shown_with_context() {
    let before = format!("int main()\n{{\n{}}}\n  indented\n{}", lines(0..40), lines(50..60));
    let after =
        before.replace("line 5\n", "line five\n").replace("line 30\n", "").replace("line 55\n", "line 55\nmore\n");
    let files = check(&[file("a b", &before)], &[file("a b", &after)]);
    assert!(files[0].diff.starts_with("--- a/a b\n+++ b/a b\n@@ -5,7 +5,7 @@ line 1\n line 2\n"), "{}", files[0].diff);
    assert_eq!((files[0].old_mode, files[0].new_mode), (Some(0o100_644), Some(0o100_644)));
    let fixture = two_commits(&[file("a", &before)], &[file("a", &after)]);
    let stats = fixture.open().commit_stats(fixture.id("main")).expect("counted");
    assert_eq!((stats.additions, stats.deletions), (2, 2));
}

#[test]
fn changes_of_white_space_alone_can_be_left_out() {
    let before = format!("fn main() {{\n{}    x();\n}}\nlast", lines(0..20));
    let after = before.replace("    x();", "\tx( );").replace("line 3\n", "  line 3  \n").replace("line 9\n", "new\n");
    let fixture = two_commits(&[file("a", &before), file("b", "1 2\n")], &[file("a", &after), file("b", "12\n")]);
    let (shown, stats, _) =
        fixture.open().whole_commit_diff(fixture.id("main"), Whitespace::Ignored).expect("compared");
    let expected = fixture.git(&["diff", "--no-color", "-w", "main~1", "main"]);
    let expected: Vec<&str> = expected.lines().skip_while(|line| !line.starts_with("--- ")).collect();
    assert_eq!(shown[0].diff.lines().collect::<Vec<_>>(), expected);
    assert_eq!((stats.additions, stats.deletions, shown.len(), shown[1].diff.as_str()), (1, 1, 2, ""));
}

#[test]
fn added_and_removed_files_are_shown() {
    let files = check(
        &[file("gone", "1\n2\n"), file("kept", "1\n")],
        &[Edit::Remove("gone"), file("new", "hello\n"), file("new empty", "")],
    );
    let text: Vec<_> = files.iter().map(|file| (file.new_path.as_str(), file.diff.as_str())).collect();
    let expected = [
        ("gone", "--- a/gone\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n"),
        ("new", "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+hello\n"),
        ("new empty", ""),
    ];
    assert_eq!(text, expected);
    assert_eq!((files[0].old_mode, files[0].new_mode), (Some(0o100_644), None));
    assert_eq!((files[1].old_mode, files[1].new_mode), (None, Some(0o100_644)));
}

#[test]
fn a_missing_final_newline_is_reported() {
    for (before, after) in [
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("a\nb", "a\nc"),
        ("a", ""),
        ("", "a"),
        ("a\r\n", "a\n"),
        ("x\na", "y\na"),
    ] {
        let files = check(&[file("f", before), file("kept", "1\n")], &[file("f", after)]);
        assert_eq!(files.len(), 1, "{before:?} {after:?}");
    }
    let files = check(&[file("f", "a")], &[file("f", "b")]);
    let expected =
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n";
    assert_eq!(files[0].diff, expected);
}

#[test]
fn binary_files_differ_in_one_line() {
    let bytes = |text: &[u8]| Edit::Write("b", 0o100_644, text.into());
    let files = check(
        &[bytes(b"a\0b"), file("t", "text\n")],
        &[bytes(b"a\0c"), Edit::Write("n", 0o100_644, b"\0".into()), Edit::Write("t", 0o100_644, b"\0\n".into())],
    );
    let text: Vec<_> = files.iter().map(|file| file.diff.as_str()).collect();
    assert_eq!(text[0], "Binary files a/b and b/b differ\n");
    assert_eq!(text[1], "Binary files /dev/null and b/n differ\n");
    assert_eq!(text[2], "Binary files a/t and b/t differ\n");
    // A NUL far into the file is not detected.
    let long = [lines(0..1000).as_bytes(), b"\0\n"].concat();
    assert!(check(&[bytes(&long)], &[bytes(&[&long[..], b"x\n"].concat())])[0].diff.starts_with("---"));
}

#[test]
fn modes_links_and_submodules() {
    let link = |text: &str| Edit::Write("link", 0o120_000, text.into());
    let module = |digit: &str| Edit::Write("module", 0o160_000, digit.repeat(40).into());
    let files = check(
        &[file("run", "x\n"), link("a"), module("1"), file("both", "x\n")],
        &[
            Edit::Write("run", 0o100_755, b"x\n".into()),
            link("b"),
            module("2"),
            Edit::Write("both", 0o100_755, b"y\n".into()),
        ],
    );
    let found: Vec<_> = files.iter().map(|file| (file.new_path.as_str(), file.old_mode, file.new_mode)).collect();
    assert_eq!(found[3], ("run", Some(0o100_644), Some(0o100_755)));
    assert_eq!(files[3].diff, "");
    assert_eq!(
        files[2].diff,
        format!(
            "--- a/module\n+++ b/module\n@@ -1 +1 @@\n-Subproject commit {}\n+Subproject commit {}\n",
            "1".repeat(40),
            "2".repeat(40)
        )
    );
    assert!(files[1].diff.contains("\\ No newline at end of file"));
}

#[test]
fn a_changed_file_type_is_a_removal_and_an_addition() {
    let files = check(
        &[file("f", "a\n"), file("g", "a\n"), file("d/x", "1\n"), Edit::Write("m", 0o160_000, "1".repeat(40).into())],
        &[
            Edit::Write("f", 0o120_000, b"target".into()),
            Edit::Remove("d/x"),
            file("d", "now a file\n"),
            file("m", "text\n"),
            Edit::Remove("g"),
            file("g/inner", "new\n"),
        ],
    );
    let found: Vec<_> = files.iter().map(|file| (file.new_path.as_str(), file.old_mode, file.new_mode)).collect();
    assert_eq!(found[2..4], [("f", Some(0o100_644), None), ("f", None, Some(0o120_000))]);
}

#[test]
fn renamed_files_are_detected() {
    let text = lines(0..20);
    let changed = text.replace("line 7\n", "line seven\n");
    let files = check(
        &[
            file("a", &text),
            file("b/name", &lines(30..50)),
            file("c", &lines(60..80)),
            file("empty", ""),
            file("e", &lines(90..94)),
        ],
        &[
            Edit::Remove("a"),
            file("moved", &text),
            Edit::Remove("b/name"),
            Edit::Write("z/name", 0o100_755, lines(30..50).replace("line 31\n", "").into()),
            Edit::Remove("c"),
            file("other", &changed),
            Edit::Remove("empty"),
            file("hollow", ""),
            Edit::Remove("e"),
            file("unlike", "nothing\nin\ncommon\n"),
        ],
    );
    let found: Vec<_> =
        files.iter().map(|file| (file.old_path.as_str(), file.new_path.as_str(), file.renamed)).collect();
    let expected = [
        ("c", "c", false),
        ("e", "e", false),
        ("empty", "hollow", true),
        ("a", "moved", true),
        ("other", "other", false),
        ("unlike", "unlike", false),
        ("b/name", "z/name", true),
    ];
    assert_eq!(found, expected);
    assert_eq!(files[3].diff, "", "nothing but its name has changed");
    assert!(files[6].diff.starts_with("--- a/b/name\n+++ b/z/name\n@@ -1,5 +1,4 @@\n"), "{}", files[6].diff);
    assert_eq!(files[6].new_mode, Some(0o100_755));
}

#[test]
fn the_most_similar_candidate_is_the_renamed_file() {
    let text = lines(0..40);
    let near = text.replace("line 7\n", "line seven\n");
    let far = near.replace("line 20\n", "x\n").replace("line 30\n", "y\n").replace("line 31\n", "z\n");
    check(&[file("a", &near), file("b", &far)], &[Edit::Remove("a"), Edit::Remove("b"), file("c", &text)]);
    check(&[file("a", &text)], &[Edit::Remove("a"), file("b", &near), file("c", &far)]);
    check(&[file("x/n", &text), file("y/m", &text)], &[Edit::Remove("x/n"), Edit::Remove("y/m"), file("z/m", &text)]);
    check(&[file("a", &text), file("kept", "1\n")], &[file("copy", &text)]);
    let half = format!("{}{}", lines(0..20), lines(100..120));
    check(&[file("a", &text)], &[Edit::Remove("a"), file("b", &half)]);
    let crlf = text.replace('\n', "\r\n");
    check(&[file("a", &text)], &[Edit::Remove("a"), file("b", &crlf)]);
    check(
        &[Edit::Write("a", 0o100_644, [b"\0", text.as_bytes()].concat())],
        &[Edit::Remove("a"), Edit::Write("b", 0o100_644, [b"\0", near.as_bytes()].concat())],
    );
}

#[test]
fn names_that_would_break_the_patch_are_quoted() {
    let names =
        ["\"a\\tb\"", "\"q\\\"q\"", "\"back\\\\slash\"", "ä", "--- a", "\"\\303\"", "\"new\\nline\"", "\"\\001\""];
    let before: Vec<_> = names.iter().map(|name| file(name, "1\n")).collect();
    let after: Vec<_> = names.iter().map(|name| file(name, "2\n")).collect();
    let fixture = two_commits(&before, &after);
    let files = fixture.open().commit_diff(fixture.id("main")).expect("a diff");
    let heads: Vec<_> = files.iter().map(|file| file.diff.lines().next().expect("a line")).collect();
    assert_eq!(
        heads,
        [
            "--- \"a/\\001\"",
            "--- a/--- a",
            "--- \"a/a\\tb\"",
            "--- \"a/back\\\\slash\"",
            "--- \"a/new\\nline\"",
            "--- \"a/q\\\"q\"",
            "--- a/\u{fffd}",
            "--- a/ä"
        ]
    );
    assert_eq!(files[2].new_path, "a\tb");
}

#[test]
fn a_diff_that_is_too_large_is_left_out() {
    let long = |lines: usize| "0123456789abcde\n".repeat(lines);
    let just = patch::MAX_PATCH_BYTES / 16;
    let fixture = two_commits(
        &[file("small", "x\n"), file("large", "x\n")],
        &[file("small", &long(just - 1)), file("large", &long(just))],
    );
    let files = fixture.open().commit_diff(fixture.id("main")).expect("a diff");
    let found: Vec<_> =
        files.iter().map(|file| (file.new_path.as_str(), file.diff.is_empty(), file.too_large)).collect();
    assert_eq!(found, [("large", true, true)], "and the other one is too much for a page");
    let comparison = fixture.open().compare(fixture.id("main~1"), fixture.id("main")).expect("compared");
    let found: Vec<_> =
        comparison.diffs.iter().map(|file| (file.new_path.as_str(), file.diff.is_empty(), file.too_large)).collect();
    assert_eq!(found, [("large", true, true), ("small", false, false)]);
    let stats = fixture.open().commit_stats(fixture.id("main")).expect("counted");
    assert_eq!((stats.additions, stats.deletions), (2 * just - 1, 2), "lines are counted all the same");
}

#[test]
fn a_page_of_diffs_is_limited() {
    let names: Vec<&'static str> = (0..102).map(|number| &*format!("f{number:03}").leak()).collect();
    let of = |count: usize, text: &str| names[..count].iter().map(|name| file(name, text)).collect::<Vec<_>>();
    let ends = |edits: &[Edit]| {
        let fixture = two_commits(&[file("first", "x\n")], edits);
        let shown = fixture.open().commit_diff(fixture.id("main")).expect("a diff").len();
        let comparison = fixture.open().compare(fixture.id("main~1"), fixture.id("main")).expect("compared");
        assert_eq!(comparison.diffs.len(), edits.len(), "a comparison is whole");
        (shown, comparison.is_truncated)
    };
    assert_eq!(ends(&of(100, "x\n")), (100, false));
    assert_eq!(ends(&of(101, "x\n")), (100, true));
    // Each patch has three lines more than the file.
    assert_eq!(ends(&of(10, &"x\n".repeat(496))), (10, false));
    assert_eq!(ends(&of(10, &"x\n".repeat(497))), (9, true));
    assert_eq!(ends(&of(5, &("x".repeat(101_000) + "\n"))), (5, false));
    assert_eq!(ends(&of(6, &("x".repeat(101_000) + "\n"))), (5, true));
}

#[test]
fn a_root_commit_is_compared_with_nothing_and_a_merge_with_its_first_parent() {
    let mut history = HistoryBuilder::default();
    let root = history.next(&[file("a", "1\n")]);
    let left = history.commit(CommitSpec { parents: &[root], edits: &[file("left", "1\n")], ..CommitSpec::default() });
    let right = history.commit(CommitSpec {
        branch: "right",
        parents: &[root],
        edits: &[file("right", "1\n")],
        ..CommitSpec::default()
    });
    history.commit(CommitSpec { parents: &[left, right], edits: &[file("right", "1\n")], ..CommitSpec::default() });
    let fixture = Fixture::with(history);
    let paths = |name: &str| {
        let files = fixture.open().commit_diff(fixture.id(name)).expect("a diff");
        files.into_iter().map(|file| file.new_path).collect::<Vec<_>>()
    };
    assert_eq!(paths("main~2"), ["a"]);
    assert_eq!(paths("main"), ["right"]);
}

#[test]
fn many_renamed_files_are_not_compared_pairwise() {
    let text = |number: usize| format!("{number}\n{}", lines(0..3));
    let name = |folder: &str, number: usize| -> &'static str { format!("{folder}/{folder}{number}").leak() };
    let mut before = Vec::new();
    let mut after = Vec::new();
    for number in 0..2100 {
        before.push(file(name("old", number), &text(number)));
        after.push(Edit::Remove(name("old", number)));
        // Half of them are unchanged: those are found nevertheless.
        let text = if number % 2 == 0 { text(number) } else { format!("{}more\n", text(number)) };
        after.push(file(name("new", number), &text));
    }
    let fixture = two_commits(&before, &after);
    let comparison = fixture.open().compare(fixture.id("main~1"), fixture.id("main")).expect("compared");
    let moved = comparison.diffs.iter().filter(|file| file.renamed).count();
    assert_eq!(moved, 1050, "the others are more than a thousand on either side, and are not compared");
    let shown: Vec<_> = comparison.diffs.iter().map(FilePatch::from).collect();
    assert!(shown == as_git_shows(&fixture, "main~1", "main"), "git gives up at the same point");
}

#[test]
fn comparisons_start_at_the_merge_base() {
    let mut history = HistoryBuilder::default();
    let mut at = |branch, seconds, parents: &[usize], edits: &[Edit]| {
        history.commit(CommitSpec {
            branch,
            seconds: 1_500_000_000_i64 + seconds,
            parents,
            edits,
            ..CommitSpec::default()
        })
    };
    let root = at("main", 0, &[], &[file("a", "1\n"), file("b", "1\n")]);
    let left = at("left", 10, &[root], &[file("a", "2\n")]);
    let right = at("right", 20, &[root], &[file("b", "2\n")]);
    // Both merge the other: there are two best common ancestors.
    let left = at("left", 30, &[left, right], &[file("b", "2\n")]);
    let right = at("right", 40, &[right, left - 2], &[file("a", "2\n")]);
    at("left", 50, &[left], &[file("a", "3\n"), file("left", "1\n")]);
    at("right", 60, &[right], &[file("b", "3\n")]);
    at("alone", 5, &[], &[file("z", "1\n"), file("a", "1\n")]);
    let fixture = Fixture::with(history);
    let names = ["main", "left", "right", "alone", "left~1", "right~1"];
    for _ in 0..2 {
        let repository = fixture.reopen();
        for from in names {
            for to in names {
                let comparison = repository.compare(fixture.id(from), fixture.id(to)).expect("compared");
                let commits: Vec<_> = comparison.commits.iter().map(|commit| commit.id.to_string()).collect();
                assert_eq!(
                    commits,
                    fixture.git_lines(&["rev-list", "--reverse", to, &format!("^{from}")]),
                    "{from} {to}"
                );
                assert_eq!((comparison.same, comparison.is_truncated), (from == to, false));
                let bases =
                    fixture.try_git(&["merge-base", from, to], b"").0.map(|id| String::from_utf8(id).expect("UTF-8"));
                let base = bases.map_or("4b825dc642cb6eb9a060e54bf8d69288fbee4904".into(), |id| id.trim().to_owned());
                let shown: Vec<_> = comparison.diffs.iter().map(FilePatch::from).collect();
                if comparison.commits.is_empty() {
                    assert_eq!(shown, [], "{from} {to}");
                } else {
                    assert_eq!(shown, as_git_shows(&fixture, &base, to), "{from} {to}");
                }
            }
        }
        fixture.write_commit_graph();
    }
}

#[test]
fn a_commit_lists_added_modified_and_removed_files() {
    let before = [file("changed", "1\n"), file("gone", "x\n"), file("d/moved", &lines(0..50)), file("same", "same\n")];
    let after = [
        file("changed", "2\n"),
        Edit::Remove("gone"),
        Edit::Remove("d/moved"),
        file("e/moved", &lines(0..50)),
        file("new", ""),
    ];
    let fixture = two_commits(&before, &after);
    let repository = fixture.open();
    let list =
        |name: &str, listing: &mut FileListBudget| repository.file_lists(fixture.id(name), listing).expect("lists");
    let texts = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let found = list("main", &mut FileListBudget::new(1000));
    let (added, modified, removed) = (texts(&["e/moved", "new"]), texts(&["changed"]), texts(&["gone"]));
    assert_eq!(found, ChangedPaths { added, modified, removed });
    // The first commit added everything; what exceeds the budget is left out.
    let mut listing = FileListBudget::new("changed".len() + "d/moved".len());
    let found = list("main~1", &mut listing);
    assert_eq!(found, ChangedPaths { added: texts(&["changed", "d/moved"]), ..ChangedPaths::default() });
    assert_eq!(list("main", &mut listing), ChangedPaths::default());
}

#[test]
fn changed_paths_include_those_of_removed_files() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "1\n"), file("b/c", "2\n"), file("b/d", "3\n"), file("same/e", "4\n")]);
    history.next(&[file("a", "5\n"), Edit::Remove("b/c"), file("f/g/h", "2\n"), file("ä", "6\n")]);
    let fixture = Fixture::with(history);
    let (old, new) = (fixture.id("main~1"), fixture.id("main"));
    let repository = fixture.open();
    let check = |from, to| {
        let output =
            fixture.git_with(&["diff", "--no-renames", "--name-only", "-z", &format!("{from}"), &format!("{to}")], b"");
        let output = String::from_utf8_lossy(&output).into_owned();
        let mut expected: Vec<&str> = output.split_terminator('\0').collect();
        expected.sort_unstable();
        assert_eq!(repository.changed_paths(from, to).expect("paths").expect("few of them"), expected);
    };
    check(old, new);
    check(new, old);
    check(new, new);
}
