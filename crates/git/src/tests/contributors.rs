//! Contributors of a branch.

use std::fmt::Write as _;

use model::objects::Contributor;

use super::{CommitSpec, Fixture, HistoryBuilder};

fn shown(contributors: &[Contributor]) -> Vec<(String, String, usize)> {
    contributors.iter().map(|item| (item.name.clone(), item.email.clone(), item.commits)).collect()
}

/// A recount from the output of `git log`.
fn recount(fixture: &Fixture, tip: &str) -> Vec<(String, String, usize)> {
    let mut found: Vec<(String, String, usize)> = Vec::new();
    for line in fixture.git_lines(&["log", "--no-merges", "-2000", "--format=%an%x09%ae", tip]) {
        let (name, email) = line.split_once('\t').expect("two parts");
        match found.iter_mut().find(|item| item.1 == email) {
            Some(item) => {
                item.2 += 1;
                if item.0.is_empty() {
                    item.0 = name.to_owned();
                }
            }
            None => found.push((name.to_owned(), email.to_owned(), 1)),
        }
    }
    found
}

#[test]
fn the_author_of_the_newest_commit_comes_first_and_merges_do_not_count() {
    let mut history = HistoryBuilder::default();
    let mut at = |seconds, author, parents: &[usize]| {
        history.commit(CommitSpec { author, seconds, parents, ..CommitSpec::default() })
    };
    let root = at(10, "Old Ann <ann@x>", &[]);
    let left = at(20, "Bob <bob@x>", &[root]);
    let right = at(30, "<ann@x>", &[root]);
    let merge = at(40, "Merger <m@x>", &[left, right]);
    let upper = at(50, "Upper <ANN@x>", &[merge]);
    at(60, "New Ann <ann@x>", &[upper]);
    let fixture = Fixture::with(history);
    let contributors = fixture.open().contributors(fixture.id("main")).expect("counted");
    let entry = |name: &str, email: &str, commits| (name.to_owned(), email.to_owned(), commits);
    let expected = [entry("New Ann", "ann@x", 3), entry("Upper", "ANN@x", 1), entry("Bob", "bob@x", 1)];
    assert_eq!(shown(&contributors), expected);
    let contributors = fixture.open().contributors(fixture.id("main~2")).expect("counted");
    assert_eq!(
        shown(&contributors),
        [entry("Old Ann", "ann@x", 2), entry("Bob", "bob@x", 1)],
        "a blank name is passed over"
    );
}

#[test]
fn an_update_agrees_with_a_recount_while_the_window_moves_on() {
    // Many short branches with merges by changing authors, so that the window of the newest commits moves over all
    // shapes of history.
    let mut history = HistoryBuilder::default();
    let mut main = history.commit(CommitSpec::default());
    let mut tips = Vec::new();
    let mut seconds = 1_500_000_000;
    for round in 0..900_usize {
        let author = format!("P{0} <p{0}@x>", (round * 7919) % (round / 50 + 3));
        let mut side = main;
        for step in 0..=(round % 4) {
            seconds += i64::try_from(round % 3).expect("small");
            let parents = [side];
            side = history.commit(CommitSpec {
                branch: "side",
                author: &author,
                seconds: seconds - i64::try_from(step).expect("small"),
                parents: &parents,
                ..CommitSpec::default()
            });
        }
        let own =
            history.commit(CommitSpec { author: "Own <own@x>", seconds, parents: &[main], ..CommitSpec::default() });
        main = history.commit(CommitSpec {
            author: "Merge <merge@x>",
            seconds,
            parents: &[own, side],
            ..CommitSpec::default()
        });
        if round % 90 == 0 || round > 895 {
            let mut name = String::new();
            write!(name, "refs/tags/t{round}").expect("written");
            history.write_stream(format!("reset {name}\nfrom :{main}\n\n"));
            tips.push(name);
        }
    }
    let fixture = Fixture::with(history);
    let repository = fixture.open();
    for tip in tips.iter().chain(tips.iter().rev()) {
        let id = fixture.id(&format!("{tip}^{{commit}}"));
        let expected = recount(&fixture, tip);
        assert_eq!(shown(&repository.contributors(id).expect("counted")), expected, "{tip}");
        assert_eq!(shown(&fixture.open().contributors(id).expect("counted")), expected, "{tip} again");
        assert_eq!(shown(&fixture.reopen().contributors(id).expect("counted")), expected, "{tip} from scratch");
    }
    let counted: usize = recount(&fixture, "main").iter().map(|item| item.2).sum();
    assert_eq!(counted, 2000, "the window was full");
}
