//! Random small histories, compared with git.

use std::time::Duration;

use model::{Oid, Page, objects::EntryKind};
use proptest::prelude::*;

use super::{
    CommitSpec, Edit, Fixture, HistoryBuilder,
    diffs::{FilePatch, as_git_shows},
    trees::as_git_lists,
};
use crate::LogQuery;

const PATHS: [&str; 8] = ["a", "a.b", "b", "d/a", "d/e/f", "d/g", "z/a", "z/run"];

/// A commit to be created; numbers are taken modulo the number of choices.
#[derive(Clone, Debug)]
struct Step {
    parents: Vec<usize>,
    seconds: i64,
    edits: Vec<(usize, Option<Contents>)>,
}

/// The kind of file, its lines, and whether the last line ends with a newline.
type Contents = (u8, Vec<u8>, bool);

fn step() -> impl Strategy<Value = Step> {
    // Few different lines, so that there are many ways to align two files.
    let text = (0..4_u8, prop::collection::vec(0..6_u8, 0..14), any::<bool>());
    let edits = prop::collection::vec((0..PATHS.len(), prop::option::weighted(0.75, text)), 0..4);
    (prop::collection::vec(0..30_usize, 0..3), 0..4_i64, edits).prop_map(|(parents, seconds, edits)| Step {
        parents,
        seconds,
        edits,
    })
}

fn text(lines: &[u8], ends: bool) -> Vec<u8> {
    const WORDS: [&str; 6] =
        ["alpha", "  indented", "", "beta {", "}", "a line that is rather longer than the others are"];
    let mut text = lines.iter().fold(String::new(), |text, line| text + WORDS[usize::from(*line)] + "\n");
    if !ends {
        text.pop();
    }
    text.into()
}

/// Creates the commits; each gets a tag with its number.
fn make(steps: &[Step], skewed: bool) -> Fixture {
    let mut history = HistoryBuilder::default();
    let mut seconds: Vec<i64> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let mut parents: Vec<usize> =
            step.parents.iter().filter(|_| number > 0).map(|parent| parent % number.max(1) + 1).collect();
        parents.dedup();
        let edits: Vec<Edit> = step
            .edits
            .iter()
            .map(|(path, what)| match what {
                None => Edit::Remove(PATHS[*path]),
                Some((3, lines, _)) => Edit::Write(PATHS[*path], 0o120_000, format!("target {}", lines.len()).into()),
                Some((2, lines, ends)) => Edit::Write(PATHS[*path], 0o100_755, text(lines, *ends)),
                Some((_, lines, ends)) => Edit::Write(PATHS[*path], 0o100_644, text(lines, *ends)),
            })
            .collect();
        let newest = parents.iter().map(|parent| seconds[parent - 1]).max().unwrap_or(1_500_000_000);
        seconds.push(if skewed { 1_500_000_000 + step.seconds * 100 } else { newest + step.seconds });
        let branch = format!("b{number}");
        let mark = history.commit(CommitSpec {
            branch: &branch,
            seconds: seconds[number],
            parents: &parents,
            edits: &edits,
            ..CommitSpec::default()
        });
        history.write_stream(format!("reset refs/tags/t{number}\nfrom :{mark}\n\n"));
    }
    Fixture::with(history)
}

fn check(steps: &[Step], skewed: bool) {
    let fixture = make(steps, skewed);
    let ids: Vec<(String, Oid)> =
        (0..steps.len()).map(|number| (format!("t{number}"), fixture.id(&format!("t{number}")))).collect();
    for graph in [false, true] {
        if graph {
            fixture.write_commit_graph();
        }
        let repository = fixture.reopen();
        for (name, id) in &ids {
            assert_eq!(repository.resolve(name).expect("resolved"), Some(*id));
            assert_eq!(repository.resolve(&id.to_string()[..10]).expect("resolved"), Some(*id));
        }
        let (to, to_id) = ids.last().expect("a commit");
        for (from, from_id) in &ids {
            let comparison = repository.compare(*from_id, *to_id).expect("compared");
            let mut commits: Vec<_> = comparison.commits.iter().map(|commit| commit.id.to_string()).collect();
            let mut expected = fixture.git_lines(&["rev-list", "--reverse", to, &format!("^{from}")]);
            if skewed {
                // Git itself orders by date in places, so the order differs.
                commits.sort();
                expected.sort();
            }
            assert_eq!(commits, expected, "{from} {to}");
            let is_ancestor = fixture.try_git(&["merge-base", "--is-ancestor", from, to], b"").0.is_some();
            assert_eq!(repository.is_ancestor(*from_id, *to_id).expect("walked"), is_ancestor);
            if expected.is_empty() {
                continue;
            }
            let bases = fixture.try_git(&["merge-base", "--all", from, to], b"").0.unwrap_or_default();
            let bases = String::from_utf8(bases).expect("UTF-8");
            let bases: Vec<_> = bases.lines().collect();
            let empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
            let shown: Vec<_> = comparison.diffs.iter().map(FilePatch::from).collect();
            if bases.len() < 2 {
                assert_eq!(shown, as_git_shows(&fixture, bases.first().unwrap_or(&empty), to), "{from} {to}");
            } else {
                assert!(bases.iter().any(|base| shown == as_git_shows(&fixture, base, to)), "{from} {to}");
            }
        }
        check_one(&fixture, to, *to_id, skewed);
    }
}

/// Checks the queries about one commit.
fn check_one(fixture: &Fixture, name: &str, id: Oid, skewed: bool) {
    let repository = fixture.reopen();
    for recursive in [false, true] {
        for path in ["", "d", "d/e", "z"] {
            let slice = repository.tree(id, path, recursive, Page::whole()).expect("a tree");
            let kind = |kind| if kind == EntryKind::Tree { "tree" } else { "blob" };
            let shown: Vec<_> = slice
                .items
                .iter()
                .map(|item| format!("{:06o} {} {}\t{}", item.mode, kind(item.kind), item.id, item.path))
                .collect();
            let is_folder = fixture.try_git(&["cat-file", "tree", &format!("{name}:{path}")], b"").0.is_some();
            let expected = if is_folder { as_git_lists(fixture, name, path, recursive) } else { Vec::new() };
            assert_eq!(shown, expected, "{path:?} {recursive}");
        }
    }
    check_last_commits(fixture, name, id);
    check_blame(fixture, name, id);
    if skewed {
        return;
    }
    for path in ["", "a", "d", "d/e/f", "z/run"] {
        let query = LogQuery { path: Some(path.into()), limit: usize::MAX, ..LogQuery::default() };
        let log: Vec<_> =
            repository.log(id, &query).expect("a log").iter().map(|commit| commit.id.to_string()).collect();
        let mut arguments = vec!["log", "--format=%H", name, "--"];
        arguments.extend((!path.is_empty()).then_some(path));
        assert_eq!(log, fixture.git_lines(&arguments), "{path:?}");
    }
}

/// Checks the last commit of each entry of each folder.
fn check_last_commits(fixture: &Fixture, name: &str, id: Oid) {
    let repository = fixture.reopen();
    for folder in ["", "d", "d/e", "z"] {
        let entries = repository.tree(id, folder, false, Page::whole()).expect("a tree").items;
        let names: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        for is_cached in [false, true, true] {
            let found = repository.last_commits_within(Duration::from_secs(60), id, folder, &names, is_cached);
            let found = found.expect("walked");
            assert!(!found.is_unfinished);
            for entry in &entries {
                let last = found.by_name.get(&entry.name).map(|commit| commit.id.to_string());
                let expected = fixture.git(&["log", "-1", "--format=%H", name, "--", &entry.path]);
                assert_eq!(last, Some(expected), "{} in {name}", entry.path);
            }
        }
    }
}

/// Checks the blame of each file: commit, line and path as git names them.
fn check_blame(fixture: &Fixture, name: &str, id: Oid) {
    let repository = fixture.reopen();
    for path in PATHS {
        let blame = repository.blame_within(Duration::from_secs(60), id, path).expect("walked");
        let expected = fixture.try_git(&["blame", "--line-porcelain", name, "--", path], b"").0;
        assert_eq!(blame.is_some(), expected.is_some(), "{path} in {name}");
        let (Some(blame), Some(expected)) = (blame, expected) else { continue };
        let mut shown = Vec::new();
        for range in &blame.ranges {
            let commit = &blame.commits[range.commit.expect("found")];
            shown.extend((0..range.length).map(|line| {
                let (original, line) = (range.original_start + line + 1, range.start + line + 1);
                format!("{} {original} {line} {}", commit.id, range.original_path)
            }));
        }
        let expected = String::from_utf8(expected).expect("UTF-8");
        let mut lines = Vec::new();
        for line in expected.lines() {
            let parts: Vec<&str> = line.split(' ').collect();
            match parts[..] {
                [id, original, line, ..] if id.len() == 40 => lines.push(format!("{id} {original} {line}")),
                ["filename", path] => lines.last_mut().expect("a line").push_str(&format!(" {path}")),
                _ => {}
            }
        }
        assert_eq!(shown, lines, "{path} in {name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_random_history_reads_as_git_reads_it(steps in prop::collection::vec(step(), 1..12)) {
        check(&steps, false);
    }

    #[test]
    fn a_random_history_with_wrong_dates_reads_as_git_reads_it(steps in prop::collection::vec(step(), 1..9)) {
        check(&steps, true);
    }
}
