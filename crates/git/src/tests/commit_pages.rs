//! What pages of commits need: patches, containing refs and activity, compared with git.

use super::{CommitSpec, Edit, Fixture, HistoryBuilder, file};

fn lines(range: std::ops::Range<u32>) -> String {
    range.fold(String::new(), |text, number| text + &format!("line {number}\n"))
}

#[test]
fn git_applies_the_patch_of_a_commit() {
    let mut history = HistoryBuilder::default();
    history.next(&[
        file("changed", &lines(0..30)),
        file("moved", &lines(50..90)),
        file("gone", "x\n"),
        file("run", "#!/bin/sh\n"),
        file("no newline", "a"),
    ]);
    history.commit(CommitSpec {
        message: "Change\nmany\n\nThe reason: caf\u{e9}.\n\n- and more\n",
        author: "Ann \u{c4} <ann@example.com>",
        parents: &[1],
        edits: &[
            file("changed", &lines(0..30).replace("line 7\n", "line seven\n")),
            Edit::Remove("moved"),
            file("folder/moved", &lines(50..90).replace("line 60\n", "")),
            Edit::Remove("gone"),
            file("new empty", ""),
            Edit::Write("run", 0o100_755, "#!/bin/sh\n".into()),
            file("no newline", "b"),
            file("quoted\\tname", "x\n"),
        ],
        ..CommitSpec::default()
    });
    let fixture = Fixture::with(history);
    let repository = fixture.open();
    let commit = repository.commit(fixture.id("main")).expect("read").expect("a commit");
    let diff = repository.diff_file(commit.id).expect("compared").expect("small");
    let patch = repository.patch_file(&commit).expect("compared").expect("small");
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| super::git(folder.path(), arguments);
    run(&["clone", "--quiet", fixture.path().to_str().expect("UTF-8"), "."]);
    run(&["config", "user.name", "Bob"]);
    run(&["config", "user.email", "bob@example.com"]);
    std::fs::write(folder.path().join(".git/x.diff"), diff).expect("written");
    std::fs::write(folder.path().join(".git/x.patch"), patch).expect("written");
    run(&["checkout", "--quiet", "main~1"]);
    run(&["apply", "--index", ".git/x.diff"]);
    assert_eq!(run(&["write-tree"]), run(&["rev-parse", "origin/main^{tree}"]));
    run(&["reset", "--quiet", "--hard"]);
    run(&["am", "--quiet", ".git/x.patch"]);
    assert_eq!(run(&["rev-parse", "HEAD^{tree}"]), run(&["rev-parse", "origin/main^{tree}"]));
    let shown = |name: &str| run(&["log", "-1", "--format=%an|%ae|%ad|%s|%b", name]);
    assert_eq!(shown("HEAD"), shown("origin/main"));
}

#[test]
fn branches_and_tags_contain_a_commit() {
    let mut history = HistoryBuilder::default();
    let first = history.next(&[file("a", "1\n")]);
    let second = history.next(&[file("a", "2\n")]);
    history.commit(CommitSpec {
        branch: "side",
        parents: &[first],
        edits: &[file("b", "1\n")],
        ..CommitSpec::default()
    });
    history.write_stream(format!("reset refs/tags/v1\nfrom :{first}\n\nreset refs/tags/v2\nfrom :{second}\n\n"));
    let fixture = Fixture::with(history);
    fixture.git(&["tag", "--annotate", "--message", "x", "v3", "side"]);
    fixture.git(&["tag", "blob", &fixture.git(&["rev-parse", "main:a"])]);
    for name in ["v1", "v2", "side", "main"] {
        let found = fixture.reopen().refs_containing(fixture.id(name), 10).expect("walked");
        let short =
            |kind: &str| fixture.git_lines(&["for-each-ref", "--format=%(refname:short)", "--contains", name, kind]);
        assert_eq!((found.branches, found.tags, found.is_complete), (short("refs/heads"), short("refs/tags"), true));
    }
    let limited = fixture.open().refs_containing(fixture.id("v1"), 1).expect("walked");
    assert_eq!((limited.branches.len(), limited.tags.len(), limited.is_complete), (1, 1, false));
}

#[test]
fn commits_are_counted_by_week_and_author() {
    let day = 24 * 60 * 60;
    let monday = 1_500_249_600;
    let mut history = HistoryBuilder::default();
    let mut parents = Vec::new();
    for (author, seconds) in
        [("Ann <a@x>", monday), ("Bob <b@x>", monday + 6 * day), ("Ann A. <a@x>", monday + 7 * day)]
    {
        let number = history.commit(CommitSpec { author, seconds, parents: &parents, ..CommitSpec::default() });
        parents = vec![number];
    }
    let fixture = Fixture::with(history);
    let activity = fixture.open().activity(fixture.id("main")).expect("walked");
    assert_eq!(activity.weeks, [(monday, 2), (monday + 7 * day, 1)]);
    let names: Vec<_> = activity.contributors.iter().map(|found| (found.name.as_str(), found.commits)).collect();
    assert_eq!((names, activity.commits, activity.is_truncated), (vec![("Ann A.", 2), ("Bob", 1)], 3, false));
    assert_eq!((activity.contributors[0].first, activity.contributors[0].last), (monday, monday + 7 * day));
}
