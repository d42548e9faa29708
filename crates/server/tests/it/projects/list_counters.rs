//! The counters of lists of projects after random changes by several clients at once.
//!
//! `GABLE_TEST_RANDOM_CHANGES_SECONDS` makes the changes go on for this time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use store::checks;
use testkit::{TestClient, TestForge};

const CLIENTS: u64 = 4;
const CHANGES: u64 = 60;
/// The number of projects at the start. All clients change the same ones: the newest of them.
const PROJECTS: u64 = 6;
const SECONDS: &str = "GABLE_TEST_RANDOM_CHANGES_SECONDS";

/// Returns pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What all clients change.
struct Subjects {
    users: Vec<i64>,
    group: i64,
    /// The id of the newest project.
    newest: AtomicU64,
    /// The clients change at least until this time.
    until: Instant,
}

/// Makes random changes and returns how many were accepted. Some are refused, for example because another client has deleted
/// the project.
async fn change(root: TestClient, subjects: Arc<Subjects>, mut numbers: Numbers) -> u64 {
    let Subjects { users, group, newest, until } = &*subjects;
    let mut accepted = 0;
    let mut number = 0;
    while number < CHANGES || Instant::now() < *until {
        number += 1;
        let newest_id = newest.load(Ordering::Relaxed);
        let project = newest_id.saturating_sub(numbers.below(2 * PROJECTS)).max(1);
        let user = users[usize::try_from(numbers.below(users.len() as u64)).unwrap_or_default()];
        let path = format!("/projects/{project}");
        let visibility = numbers.below(3) * 10;
        let response = match numbers.below(9) {
            0 => {
                let name = format!("project-{}", numbers.below(1_000_000));
                let new = json!({ "name": name, "visibility_level": visibility });
                let created = root.post(&format!("/projects/user/{user}"), new).await;
                newest.fetch_max(created.json()["id"].as_u64().unwrap_or_default(), Ordering::Relaxed);
                created
            }
            1..4 => root.post(&format!("{path}/members"), json!({ "user_id": user, "access_level": 30 })).await,
            4 => root.delete(&format!("{path}/members/{user}")).await,
            5 => root.put(&path, json!({ "visibility_level": visibility })).await,
            6 => {
                root.post(&format!("{path}/{}", ["archive", "unarchive"][usize::from(visibility > 0)]), json!({})).await
            }
            7 => root.post(&format!("/groups/{group}/projects/{project}"), json!({})).await,
            _ if number % 7 == 0 => root.delete(&path).await,
            _ => root.get("/projects/all").await,
        };
        assert!(response.code() < 500, "{response:?}");
        accepted += u64::from(response.code() < 300);
    }
    accepted
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_exact_after_concurrent_changes() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let group = root.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 20 })).await;
    let mut users = Vec::new();
    for name in ["ann", "bob", "eve"] {
        users.push(forge.user(name).await.id.get());
    }
    for number in 0..PROJECTS {
        root.make("/projects", json!({ "name": format!("first-{number}") })).await;
    }
    let seconds = std::env::var(SECONDS).map_or(0, |text| text.parse().expect("a number of seconds"));
    let until = Instant::now() + Duration::from_secs(seconds);
    let subjects = Arc::new(Subjects { users: users.clone(), group, newest: AtomicU64::new(PROJECTS), until });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(change(root.clone(), Arc::clone(&subjects), Numbers(client + 1))))
        .collect();
    let mut accepted = 0;
    for client in clients {
        accepted += client.await.expect("all changes are answered");
    }
    assert!(accepted > CLIENTS * CHANGES / 4, "too few changes were accepted: {accepted}");
    eprintln!("{accepted} changes");
    let wrong = forge.with_connection(|db| checks::wrong_counters(db).expect("checked"));
    assert_eq!(wrong, []);
    // A user who is removed leaves nothing behind.
    assert_eq!(root.delete(&format!("/users/{}", users[0])).await.code(), 200);
    forge.run_due_tasks().await;
    let wrong = forge.with_connection(|db| checks::wrong_counters(db).expect("checked"));
    assert_eq!(wrong, []);
}
