//! Random actions on issues, by several people at once: whatever they do, labels count right for everybody.
//!
//! `PROPTEST_RNG_SEED` takes another way.

use std::collections::BTreeSet;

use model::Role;
use proptest::{
    collection::{btree_set, vec},
    prelude::*,
    sample::Index,
    strategy::ValueTree as _,
    test_runner::{Config, RngSeed, TestRunner},
};
use serde_json::{Value, json};
use testkit::{Client, TestForge};

const LABELS: [&str; 6] = ["bug", "Bug", "urgent", "ui as it were", "ä/ö", "50%"];
const PEOPLE: usize = 8;
const ACTIONS: usize = 125;

/// Something done to issues; whatever points at an issue is an index that fits any number of them.
#[derive(Clone, Debug)]
enum Action {
    Write { labels: BTreeSet<usize>, confidential: bool },
    Close(Index),
    Reopen(Index),
    Relabel(Index, BTreeSet<usize>),
    Hide(Index, bool),
    CloseAndRelabel(Index, BTreeSet<usize>),
    Remove(Index),
}

fn action() -> impl Strategy<Value = Action> {
    let labels = || btree_set(0..LABELS.len(), 0..4);
    prop_oneof![
        4 => (labels(), any::<bool>()).prop_map(|(labels, confidential)| Action::Write { labels, confidential }),
        4 => any::<Index>().prop_map(Action::Close),
        4 => any::<Index>().prop_map(Action::Reopen),
        4 => (any::<Index>(), labels()).prop_map(|(issue, labels)| Action::Relabel(issue, labels)),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(issue, hide)| Action::Hide(issue, hide)),
        2 => (any::<Index>(), labels()).prop_map(|(issue, labels)| Action::CloseAndRelabel(issue, labels)),
        1 => any::<Index>().prop_map(Action::Remove),
    ]
}

/// What an issue should be like.
#[derive(Clone, Debug)]
struct Issue {
    id: i64,
    closed: bool,
    confidential: bool,
    labels: BTreeSet<usize>,
}

fn titles(labels: &BTreeSet<usize>) -> Value {
    json!(labels.iter().map(|label| LABELS[*label]).collect::<Vec<_>>().join(","))
}

/// Does everything in turn, and keeps account of it.
async fn live(client: Client, owner: Client, issues: String, actions: Vec<Action>) -> Vec<Issue> {
    let mut book: Vec<Issue> = Vec::new();
    for action in actions {
        let at = |index: &Index, book: &[Issue]| (!book.is_empty()).then(|| index.index(book.len()));
        let (index, change) = match &action {
            Action::Write { labels, confidential } => {
                let new = json!({ "title": "x", "labels": titles(labels), "confidential": confidential });
                let id = client.make(&issues, new).await;
                book.push(Issue { id, closed: false, confidential: *confidential, labels: labels.clone() });
                continue;
            }
            Action::Remove(index) => {
                if let Some(at) = at(index, &book) {
                    let issue = book.remove(at);
                    assert_eq!(owner.delete(&format!("{issues}/{}", issue.id)).await.code(), 200);
                }
                continue;
            }
            Action::Close(index) => (index, json!({ "state_event": "close" })),
            Action::Reopen(index) => (index, json!({ "state_event": "reopen" })),
            Action::Hide(index, hide) => (index, json!({ "confidential": hide })),
            Action::Relabel(index, labels) => (index, json!({ "labels": titles(labels) })),
            Action::CloseAndRelabel(index, labels) => {
                (index, json!({ "state_event": "close", "labels": titles(labels) }))
            }
        };
        let Some(at) = at(index, &book) else { continue };
        let issue = &mut book[at];
        let changed = client.put(&format!("{issues}/{}", issue.id), change).await;
        assert_eq!(changed.code(), 200, "{action:?}: {changed}");
        match action {
            Action::Close(_) => issue.closed = true,
            Action::Reopen(_) => issue.closed = false,
            Action::Hide(_, hide) => issue.confidential = hide,
            Action::Relabel(_, labels) => issue.labels = labels,
            Action::CloseAndRelabel(_, labels) => {
                issue.closed = true;
                issue.labels = labels;
            }
            Action::Write { .. } | Action::Remove(_) => {}
        }
    }
    book
}

/// What the labels should count: title, open, closed.
fn expected(book: &[Issue], labels: &[usize], confidential: bool) -> Vec<(String, i64, i64)> {
    let mut counts: Vec<(String, i64, i64)> = labels
        .iter()
        .map(|label| {
            let carrying = || {
                book.iter()
                    .filter(|issue| issue.labels.contains(label))
                    .filter(|issue| confidential || !issue.confidential)
            };
            let count = |closed| i64::try_from(carrying().filter(|issue| issue.closed == closed).count()).expect("few");
            (LABELS[*label].to_owned(), count(false), count(true))
        })
        .collect();
    counts.sort();
    counts
}

async fn shown(client: &Client, project: i64) -> Vec<(String, i64, i64)> {
    let labels = client.get(&format!("/projects/{project}/labels?per_page=100")).await.json();
    let mut counts: Vec<(String, i64, i64)> = labels
        .as_array()
        .expect("labels")
        .iter()
        .map(|label| {
            let number = |name: &str| label[name].as_i64().expect("a number");
            let title = label["name"].as_str().expect("a name").to_owned();
            (title, number("open_issues_count"), number("closed_issues_count"))
        })
        .collect();
    counts.sort();
    counts
}

#[tokio::test]
async fn labels_count_right_after_a_thousand_random_actions_of_eight_people() {
    let rng_seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(5);
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(rng_seed), ..Config::default() });
    let forge = TestForge::start().await;
    let (ann, guest) = (forge.user("ann").await, forge.user("guest").await);
    let project = ann.make("/projects", json!({ "name": "rocket" })).await;
    let join = async |user: &Client, role: Role| {
        let member = json!({ "user_id": user.id, "access_level": role.level() });
        assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    };
    join(&guest, Role::Guest).await;
    for label in LABELS {
        let new = json!({ "name": label, "color": "#123456" });
        assert_eq!(ann.post(&format!("/projects/{project}/labels"), new).await.code(), 200);
    }
    let mut lives = Vec::new();
    for person in 0..PEOPLE {
        let client = forge.user(&format!("person{person}")).await;
        join(&client, Role::Reporter).await;
        let actions = vec(action(), ACTIONS..=ACTIONS).new_tree(&mut runner).expect("actions").current();
        lives.push(tokio::spawn(live(client, ann.clone(), format!("/projects/{project}/issues"), actions)));
    }
    let mut book = Vec::new();
    for life in lives {
        book.extend(life.await.expect("a whole life"));
    }
    let all: Vec<usize> = (0..LABELS.len()).collect();
    assert_eq!(shown(&ann, project).await, expected(&book, &all, true), "PROPTEST_RNG_SEED={rng_seed}");
    assert_eq!(shown(&guest, project).await, expected(&book, &all, false), "PROPTEST_RNG_SEED={rng_seed}");
    let open =
        |confidential: bool| book.iter().filter(|issue| !issue.closed && (confidential || !issue.confidential)).count();
    for (who, confidential) in [(&ann, true), (&guest, false)] {
        let project = who.get(&format!("/projects/{project}")).await.json();
        assert_eq!(project["open_issues_count"], json!(open(confidential)));
        let list = who.get(&format!("/projects/{}/issues?state=opened", project["id"])).await;
        assert_eq!(list.header("x-total"), open(confidential).to_string());
    }
    // A label that goes takes nothing else along.
    let gone = ann.delete(&format!("/projects/{project}/labels?name=bug")).await;
    assert_eq!(gone.code(), 200, "{gone}");
    assert_eq!(shown(&ann, project).await, expected(&book, &all[1..], true), "PROPTEST_RNG_SEED={rng_seed}");
}
