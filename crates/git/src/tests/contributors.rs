//! Who wrote the commits of a branch.

use std::fmt::Write as _;

use model::objects::Contributor;

use super::{Fixture, Plan, Story};

fn shown(contributors: &[Contributor]) -> Vec<(String, String, usize)> {
    contributors.iter().map(|it| (it.name.clone(), it.email.clone(), it.commits)).collect()
}

/// A plain recount from what git lists.
fn recount(fixture: &Fixture, tip: &str) -> Vec<(String, String, usize)> {
    let mut found: Vec<(String, String, usize)> = Vec::new();
    for line in fixture.git_lines(&["log", "--no-merges", "-2000", "--format=%an%x09%ae", tip]) {
        let (name, email) = line.split_once('\t').expect("two parts");
        match found.iter_mut().find(|it| it.1 == email) {
            Some(it) => {
                it.2 += 1;
                if it.0.is_empty() {
                    it.0 = name.to_owned();
                }
            }
            None => found.push((name.to_owned(), email.to_owned(), 1)),
        }
    }
    found
}

#[test]
fn the_author_of_the_newest_commit_comes_first_and_merges_do_not_count() {
    let mut story = Story::default();
    let mut at =
        |seconds, author, parents: &[usize]| story.commit(Plan { author, seconds, parents, ..Plan::default() });
    let root = at(10, "Old Ann <ann@x>", &[]);
    let left = at(20, "Bob <bob@x>", &[root]);
    let right = at(30, "<ann@x>", &[root]);
    let merge = at(40, "Merger <m@x>", &[left, right]);
    let upper = at(50, "Upper <ANN@x>", &[merge]);
    at(60, "New Ann <ann@x>", &[upper]);
    let fixture = Fixture::with(story);
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
    // Many short branches with merges, by people who come and go, so that the window of the newest commits moves over
    // all shapes of history.
    let mut story = Story::default();
    let mut main = story.commit(Plan::default());
    let mut tips = Vec::new();
    let mut seconds = 1_500_000_000;
    for turn in 0..900_usize {
        let author = format!("P{0} <p{0}@x>", (turn * 7919) % (turn / 50 + 3));
        let mut side = main;
        for step in 0..=(turn % 4) {
            seconds += i64::try_from(turn % 3).expect("small");
            let parents = [side];
            side = story.commit(Plan {
                branch: "side",
                author: &author,
                seconds: seconds - i64::try_from(step).expect("small"),
                parents: &parents,
                ..Plan::default()
            });
        }
        let own = story.commit(Plan { author: "Own <own@x>", seconds, parents: &[main], ..Plan::default() });
        main = story.commit(Plan { author: "Merge <merge@x>", seconds, parents: &[own, side], ..Plan::default() });
        if turn % 90 == 0 || turn > 895 {
            let mut name = String::new();
            write!(name, "refs/tags/t{turn}").expect("written");
            story.say(format!("reset {name}\nfrom :{main}\n\n"));
            tips.push(name);
        }
    }
    let fixture = Fixture::with(story);
    let repository = fixture.open();
    for tip in tips.iter().chain(tips.iter().rev()) {
        let id = fixture.id(&format!("{tip}^{{commit}}"));
        let expected = recount(&fixture, tip);
        assert_eq!(shown(&repository.contributors(id).expect("counted")), expected, "{tip}");
        assert_eq!(shown(&fixture.open().contributors(id).expect("counted")), expected, "{tip} again");
        assert_eq!(shown(&fixture.open_anew().contributors(id).expect("counted")), expected, "{tip} from scratch");
    }
    let counted: usize = recount(&fixture, "main").iter().map(|it| it.2).sum();
    assert_eq!(counted, 2000, "the window was full");
}
