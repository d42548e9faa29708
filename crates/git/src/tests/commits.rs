//! Commits by name and by history.

use model::Oid;

use super::{CommitSpec, Edit, Fixture, HistoryBuilder, file};
use crate::LogQuery;

fn ids(commits: &[model::Commit]) -> Vec<String> {
    commits.iter().map(|commit| commit.id.to_string()).collect()
}

#[test]
fn a_commit_is_resolved_by_branch_tag_ref_and_id() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "1\n")]);
    history.next(&[file("a", "2\n")]);
    let fixture = Fixture::with(history);
    fixture.git(&["tag", "-a", "-m", "text", "v1", "main~1"]);
    fixture.git(&["tag", "-a", "-m", "text", "v1.1", "v1"]);
    fixture.git(&["update-ref", "refs/heads/feature/x", "main~1"]);
    fixture.git(&["update-ref", "refs/notes/y", "main~1"]);
    let (old, new) = (fixture.id("main~1"), fixture.id("main"));
    let repository = fixture.open();
    let check = |name: &str, expected: Option<Oid>| {
        assert_eq!(repository.resolve(name).expect("resolved"), expected, "{name:?}");
    };
    let tag = fixture.id("v1").to_string();
    for name in ["main", "HEAD", "refs/heads/main", "heads/main", &new.to_string(), &new.to_string()[..7]] {
        check(name, Some(new));
    }
    for name in ["v1", "v1.1", "feature/x", "refs/notes/y", "notes/y", "tags/v1", &tag, &old.to_string()[..7]] {
        check(name, Some(old));
    }
    check(&new.to_string().to_uppercase(), Some(new));
    let (tree, blob) = (fixture.id("main^{tree}").to_string(), fixture.id("main:a").to_string());
    let long = "a".repeat(10_000);
    let slashes = "/".repeat(290);
    let odd = [
        "",
        " ",
        "none",
        &tree,
        &tree[..8],
        &blob,
        &tag[..8],
        &new.to_string()[..6],
        "-x",
        "--all",
        "@{",
        "@",
        "@{u}",
        "a\0b",
        "main\0",
        "main~1",
        "main^",
        "main:a",
        "main..v1",
        "^main",
        ":/x",
        "/main",
        "main/",
        "refs",
        "refs/",
        "refs/heads",
        "refs/heads/",
        "heads",
        "../HEAD",
        "refs/../HEAD",
        "HEAD.lock",
        "FETCH_HEAD",
        "config",
        "objects",
        &"0".repeat(40),
        "abc",
        "g000",
        "\u{fffd}",
        "🦀",
        "main\n",
        " main",
        &long,
        &slashes,
    ];
    for name in odd {
        check(name, None);
    }
}

#[test]
fn a_tag_does_not_shadow_a_branch_with_its_name() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "1\n")]);
    history.next(&[file("a", "2\n")]);
    let fixture = Fixture::with(history);
    fixture.git(&["update-ref", "refs/heads/both", "main"]);
    fixture.git(&["update-ref", "refs/tags/both", "main~1"]);
    fixture.git(&["update-ref", "refs/tags/tree", "main^{tree}"]);
    fixture.git(&["update-ref", "refs/heads/heads/both", "main~1"]);
    let repository = fixture.open();
    let check = |name: &str, expected: Option<Oid>| {
        assert_eq!(repository.resolve(name).expect("resolved"), expected, "{name:?}");
    };
    let (old, new) = (fixture.id("main~1"), fixture.id("main"));
    for name in ["both", "refs/heads/both"] {
        check(name, Some(new));
    }
    for name in ["tags/both", "refs/tags/both"] {
        check(name, Some(old));
    }
    check("heads/both", Some(old));
    check("tree", None);
    // A name that looks like a full id is an id; one that looks like an abbreviated id is a name first.
    let (id, short) = (new.to_string(), &new.to_string()[..8]);
    for kind in ["heads", "tags"] {
        fixture.git(&["update-ref", &format!("refs/{kind}/{id}"), "main~1"]);
        fixture.git(&["update-ref", &format!("refs/{kind}/{short}"), "main~1"]);
    }
    assert_eq!(fixture.reopen().resolve(&id).expect("resolved"), Some(new));
    assert_eq!(fixture.reopen().resolve(&id.to_uppercase()).expect("resolved"), Some(new));
    assert_eq!(fixture.reopen().resolve(short).expect("resolved"), Some(old));
}

#[test]
fn an_ambiguous_prefix_resolves_to_nothing() {
    let fixture = Fixture::new();
    let tree = fixture.git_with(&["mktree"], b"");
    let tree = String::from_utf8(tree).expect("UTF-8");
    let mut seen = std::collections::HashMap::new();
    let shared = (0..).find_map(|number| {
        let text = format!("tree {tree}author A <a@b> {number} +0000\ncommitter A <a@b> {number} +0000\n\nx\n");
        let id =
            gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::objs::Kind::Commit, text.as_bytes()).expect("hashed");
        let prefix = id.to_string()[..7].to_owned();
        seen.insert(prefix.clone(), text.clone()).map(|other| (prefix, id, other, text))
    });
    let (prefix, id, one, other) = shared.expect("two of 268435456 are soon the same");
    let (one, other) = (fixture.raw_commit(one.as_bytes()), fixture.raw_commit(other.as_bytes()));
    assert_eq!(other.to_string(), id.to_string());
    let resolve = |text: &str| fixture.reopen().resolve(text).expect("resolved");
    assert_eq!(resolve(&prefix), None);
    fixture.git(&["update-ref", "refs/heads/one", &one.to_string()]);
    assert_eq!(resolve(&prefix), Some(one), "the other one cannot be reached");
    fixture.git(&["update-ref", "refs/heads/other", &other.to_string()]);
    assert_eq!(resolve(&prefix), None);
    assert_eq!(resolve(&id.to_string()[..12]), Some(other));
}

#[test]
fn a_commit_shows_what_was_written() {
    let mut history = HistoryBuilder::default();
    let first =
        history.commit(CommitSpec { message: "first\n\nmore\n", author: "Änne <a@b>", ..CommitSpec::default() });
    history.commit(CommitSpec {
        parents: &[first],
        message: "no newline",
        seconds: 1_600_000_000,
        ..CommitSpec::default()
    });
    let fixture = Fixture::with(history);
    let repository = fixture.open();
    let first = repository.commit(fixture.id("main~1")).expect("read").expect("a commit");
    assert_eq!((first.message.as_str(), first.parents.len()), ("first\n\nmore\n", 0));
    assert_eq!((first.author.name.as_str(), first.author.seconds, first.author.offset), ("Änne", 1_500_000_000, 7200));
    let second = repository.commit(fixture.id("main")).expect("read").expect("a commit");
    assert_eq!((second.message.as_str(), second.parents), ("no newline", vec![first.id]));
    assert_eq!(second.committer.email, "ann@example.com");
    assert_eq!(repository.commit(fixture.id("main^{tree}")).expect("read"), None);
    assert_eq!(repository.commit(Oid([7; 20])).expect("read"), None);
}

#[test]
fn malformed_commits_are_shown_and_walked() {
    let mut history = HistoryBuilder::default();
    history.next(&[file("a", "1\n")]);
    let fixture = Fixture::with(history);
    let (tree, parent) = (fixture.id("main^{tree}"), fixture.id("main"));
    let text = format!("tree {tree}\nparent {parent}\nauthor \u{0} <> never\ncommitter nobody\n\n");
    let corrupt = fixture.raw_commit(&[text.as_bytes(), b"\xe4\xff\n"].concat());
    let repository = fixture.open();
    let commit = repository.commit(corrupt).expect("read").expect("a commit");
    assert_eq!((commit.message.as_str(), commit.committer.seconds), ("\u{fffd}\u{fffd}\n", 0));
    let log = repository.log(corrupt, &LogQuery { limit: 10, ..LogQuery::default() }).expect("a log");
    assert_eq!(ids(&log), [corrupt.to_string(), parent.to_string()]);
    assert!(repository.is_ancestor(parent, corrupt).expect("walked"));
    assert_eq!(repository.contributors(corrupt).expect("counted").len(), 2);
    assert_eq!(repository.compare(parent, corrupt).expect("compared").commits.len(), 1);
}

/// A history with branches, an octopus merge, and paths that are added and removed.
fn branching_history() -> Fixture {
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
    let root = at("main", 0, &[], &[file("a/x", "1\n"), file("b", "1\n")]);
    let left = at("left", 10, &[root], &[file("a/x", "2\n")]);
    let right = at("right", 20, &[root], &[file("b", "2\n")]);
    let third = at("third", 30, &[root], &[file("c", "1\n")]);
    let octopus =
        at("main", 40, &[root, left, right, third], &[file("a/x", "2\n"), file("b", "2\n"), file("c", "1\n")]);
    let removed = at("main", 50, &[octopus], &[Edit::Remove("c")]);
    let side = at("side", 45, &[octopus], &[file("a/y", "1\n")]);
    let merged = at("main", 60, &[removed, side], &[file("a/y", "1\n")]);
    at("main", 60, &[merged], &[Edit::Write("a/y", 0o100_755, b"1\n".into())]);
    at("alone", 5, &[], &[file("z", "1\n")]);
    Fixture::with(history)
}

#[test]
fn a_log_equals_that_of_git() {
    let fixture = branching_history();
    let repository = fixture.open();
    let main = fixture.id("main");
    let whole = LogQuery { limit: usize::MAX, ..LogQuery::default() };
    let check = |query: LogQuery, arguments: &[&str]| {
        let log = repository.log(main, &query).expect("a log");
        let expected = fixture.git_lines(&[&["log", "--format=%H"][..], arguments].concat());
        assert_eq!(ids(&log), expected, "{query:?}");
        expected.len()
    };
    assert_eq!(check(whole.clone(), &["main"]), 9);
    for path in ["a", "a/x", "a/y", "b", "c", "none", "a/none", "b/x"] {
        let query = LogQuery { path: Some(path.into()), ..whole.clone() };
        let shown = check(query, &["main", "--", path]);
        assert_eq!(shown == 0, path.contains("none") || path == "b/x", "{path}");
        let last = repository.last_commit_of(main, path).expect("looked up").map(|id| id.to_string());
        assert_eq!(last.unwrap_or_default(), fixture.git(&["log", "-1", "--format=%H", "main", "--", path]), "{path}");
    }
    check(LogQuery { path: Some("/a/".into()), ..whole.clone() }, &["main", "--", "a"]);
    check(LogQuery { path: Some("/".into()), ..whole.clone() }, &["main"]);
    check(LogQuery { skip: 2, limit: 3, ..whole.clone() }, &["--skip=2", "-3", "main"]);
    check(LogQuery { limit: 0, ..whole.clone() }, &["-0", "main"]);
    check(LogQuery { skip: 100, ..whole.clone() }, &["--skip=100", "main"]);
    check(LogQuery { since: Some(1_500_000_040), ..whole.clone() }, &["--since=@1500000040", "main"]);
    check(LogQuery { until: Some(1_500_000_040), ..whole.clone() }, &["--until=@1500000040", "main"]);
    let query = LogQuery { since: Some(1_500_000_011), until: Some(1_500_000_045), path: Some("b".into()), ..whole };
    check(query, &["--since=@1500000011", "--until=@1500000045", "main", "--", "b"]);
}

#[test]
fn ancestors_equal_those_of_git_with_and_without_a_commit_graph() {
    let fixture = branching_history();
    let all: Vec<Oid> = fixture.git_lines(&["rev-list", "--all"]).iter().map(|id| id.parse().expect("an id")).collect();
    for _ in 0..2 {
        let repository = fixture.reopen();
        for of in &all {
            let past = fixture.git_lines(&["rev-list", &of.to_string()]);
            let expected: Vec<_> = all.iter().map(|id| past.contains(&id.to_string())).collect();
            assert_eq!(repository.which_are_ancestors(&all, *of).expect("walked"), expected);
            for (id, expected) in all.iter().zip(expected) {
                assert_eq!(repository.is_ancestor(*id, *of).expect("walked"), expected);
            }
        }
        assert!(!repository.is_ancestor(Oid([7; 20]), all[0]).expect("walked"), "there is no such commit");
        fixture.write_commit_graph();
    }
}

#[test]
fn commits_that_exclude_others_are_counted_exactly() {
    let fixture = branching_history();
    let tips = ["main", "left", "right", "third", "side", "alone"].map(|name| (name, fixture.id(name)));
    for _ in 0..2 {
        let repository = fixture.reopen();
        for (name, tip) in tips {
            for (other, without) in tips {
                let expected = fixture.git_lines(&["rev-list", name, &format!("^{other}"), "^third"]);
                let (newest, total) =
                    repository.commits_excluding(tip, &[without, fixture.id("third")], 2).expect("walked");
                assert_eq!(total, expected.len(), "{name} without {other}");
                assert_eq!(ids(&newest), expected[..total.min(2)], "{name} without {other}");
            }
        }
        fixture.write_commit_graph();
    }
    let (whole, total) = fixture.open().commits_excluding(fixture.id("main"), &[], 100).expect("walked");
    assert_eq!(ids(&whole), fixture.git_lines(&["rev-list", "main"]));
    assert_eq!(total, 9);
    fixture.open().commits_excluding(fixture.id("main"), &[Oid([7; 20])], 1).expect_err("there is no such commit");
}

#[test]
fn wrong_dates_do_not_hide_commits() {
    let mut history = HistoryBuilder::default();
    let mut at = |branch, seconds, parents: &[usize]| {
        history.commit(CommitSpec { branch, seconds, parents, ..CommitSpec::default() })
    };
    // The excluded branch leads to the common ancestor by commits with wrong, very old dates.
    let root = at("main", 1000, &[]);
    let shared = at("main", 2000, &[root]);
    let mut old = shared;
    for step in 0..20 {
        old = at("other", 10 + step, &[old]);
    }
    at("main", 3000, &[shared]);
    let fixture = Fixture::with(history);
    for _ in 0..2 {
        let (_, total) =
            fixture.reopen().commits_excluding(fixture.id("main"), &[fixture.id("other")], 10).expect("walked");
        assert_eq!(total, 1);
        fixture.write_commit_graph();
    }
}
