//! Property test of the issue counters: random actions by several users at once.
//!
//! `PROPTEST_RNG_SEED` sets the seed.

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
use testkit::{TestClient, TestForge};

const LABELS: [&str; 6] = ["bug", "Bug", "urgent", "ui as it were", "ä/ö", "50%"];
const USERS: usize = 8;
const ACTIONS: usize = 125;

/// An action on issues; an [`Index`] selects one of any number of issues.
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

/// The expected state of an issue.
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

/// Performs the actions one after another and returns the expected state.
async fn perform(client: TestClient, owner: TestClient, issues: String, actions: Vec<Action>) -> Vec<Issue> {
    let mut tracked: Vec<Issue> = Vec::new();
    for action in actions {
        let at = |index: &Index, tracked: &[Issue]| (!tracked.is_empty()).then(|| index.index(tracked.len()));
        let (index, change) = match &action {
            Action::Write { labels, confidential } => {
                let new = json!({ "title": "x", "labels": titles(labels), "confidential": confidential });
                let id = client.make(&issues, new).await;
                tracked.push(Issue { id, closed: false, confidential: *confidential, labels: labels.clone() });
                continue;
            }
            Action::Remove(index) => {
                if let Some(at) = at(index, &tracked) {
                    let issue = tracked.remove(at);
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
        let Some(at) = at(index, &tracked) else { continue };
        let issue = &mut tracked[at];
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
    tracked
}

/// Returns the expected counts of the labels: title, open, closed.
fn expected(tracked: &[Issue], labels: &[usize], confidential: bool) -> Vec<(String, i64, i64)> {
    let mut counts: Vec<(String, i64, i64)> = labels
        .iter()
        .map(|label| {
            let carrying = || {
                tracked
                    .iter()
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

async fn actual(client: &TestClient, project: i64) -> Vec<(String, i64, i64)> {
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
async fn counts_are_right_after_a_thousand_random_actions_of_eight_users() {
    let rng_seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(5);
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(rng_seed), ..Config::default() });
    let forge = TestForge::start().await;
    let (ann, guest) = (forge.user("ann").await, forge.user("guest").await);
    let project = ann.make("/projects", json!({ "name": "rocket" })).await;
    let join = async |user: &TestClient, role: Role| {
        let member = json!({ "user_id": user.id.get(), "access_level": role.level() });
        assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    };
    join(&guest, Role::Guest).await;
    for label in LABELS {
        let new = json!({ "name": label, "color": "#123456" });
        assert_eq!(ann.post(&format!("/projects/{project}/labels"), new).await.code(), 200);
    }
    let mut tasks = Vec::new();
    for user in 0..USERS {
        let client = forge.user(&format!("user{user}")).await;
        join(&client, Role::Reporter).await;
        let actions = vec(action(), ACTIONS..=ACTIONS).new_tree(&mut runner).expect("actions").current();
        tasks.push(tokio::spawn(perform(client, ann.clone(), format!("/projects/{project}/issues"), actions)));
    }
    let mut tracked = Vec::new();
    for task in tasks {
        tracked.extend(task.await.expect("no panic"));
    }
    let all: Vec<usize> = (0..LABELS.len()).collect();
    assert_eq!(actual(&ann, project).await, expected(&tracked, &all, true), "PROPTEST_RNG_SEED={rng_seed}");
    assert_eq!(actual(&guest, project).await, expected(&tracked, &all, false), "PROPTEST_RNG_SEED={rng_seed}");
    let open = |confidential: bool| {
        tracked.iter().filter(|issue| !issue.closed && (confidential || !issue.confidential)).count()
    };
    for (who, confidential) in [(&ann, true), (&guest, false)] {
        let project = who.get(&format!("/projects/{project}")).await.json();
        assert_eq!(project["open_issues_count"], json!(open(confidential)));
        let list = who.get(&format!("/projects/{}/issues?state=opened", project["id"])).await;
        assert_eq!(list.header("x-total"), open(confidential).to_string());
    }
    // Deleting a label does not change other counts.
    let gone = ann.delete(&format!("/projects/{project}/labels?name=bug")).await;
    assert_eq!(gone.code(), 200, "{gone}");
    assert_eq!(actual(&ann, project).await, expected(&tracked, &all[1..], true), "PROPTEST_RNG_SEED={rng_seed}");
}
