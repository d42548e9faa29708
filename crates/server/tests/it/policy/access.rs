//! The access table: the status of every route for every kind of caller.

use std::{fmt::Write as _, thread};

use api::routes::RouteDoc;
use axum::http::Method;
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{
    BoardId, BoardListId, DeliveryId, HookId, IssueId, JobId, LabelId, MilestoneId, NoteId, ProjectId, RunnerId, Scope,
    TokenId, UserId, UserState, tokens::Digest,
};
use serde_json::{Value, json};
use testkit::{
    TestClient, TestForge, TestResponse,
    fixtures::{self, TrackerItems},
};

use crate::policy::access_to_projects::{
    CI_BRANCH, HOOK, Jobs, TRIGGER, ci_body, ci_path, create_jobs, is_ci_route, is_tracker_route, repository_body,
    repository_path, repository_script, tracker_body, tracker_path, trigger_token,
};

const CALLERS: [&str; 12] = [
    "anonymous",
    "wrong",
    "expired",
    "revoked",
    "blocked",
    "directory",
    "read_user",
    "external",
    "ordinary",
    "owner",
    "sudo",
    "admin",
];

const PROJECT: ProjectId = ProjectId::new(1);
const OTHER_PROJECT: ProjectId = ProjectId::new(2);

/// Fills a forge and returns the client of a kind of caller: user 2 has email address 3, key 1, the private projects 1 and
/// 2 and the private group 4; user 3 is a member of both; project 1 is shared with group 5. Project 1 has hook 1 and the
/// instance hook 2, each with a delivery. Runner 1 is enabled for both projects, 2 for the first and 3 for the second one.
async fn caller(forge: &TestForge, name: &str) -> TestClient {
    let root = forge.admin().await;
    let owner = forge.user("owner").await;
    owner.post("/user/emails", json!({ "email": "more@example.org" })).await;
    owner.post("/user/keys", json!({ "title": "k", "key": crate::accounts::keys::ED25519 })).await;
    add_projects(forge, &owner).await;
    add_hooks(forge, &root, &owner).await;
    let now = forge.forge.now();
    let runners = forge.in_transaction(|db| {
        [vec![PROJECT, OTHER_PROJECT], vec![PROJECT], vec![OTHER_PROJECT]]
            .map(|projects| fixtures::runner(db, &projects, now))
    });
    assert_eq!(runners, [1, 2, 3].map(RunnerId::new));
    match name {
        "anonymous" => forge.anonymous(),
        "wrong" => forge.anonymous().with_token("abcdefghijklmnopqrst"),
        "expired" => {
            let brief = forge.client_with_token(&root, &[Scope::Api], Some(now + SignedDuration::from_secs(1))).await;
            forge.clock.advance(SignedDuration::from_secs(2));
            brief
        }
        "revoked" => {
            forge
                .forge
                .write(forge::Caller::system(), |tx| forge::tokens::revoke(tx, TokenId::new(1)))
                .await
                .expect("revoked");
            root
        }
        "blocked" | "directory" => {
            let state = if name == "blocked" { UserState::Blocked } else { UserState::LdapBlocked };
            let second = forge.user("second").await;
            root.put(&format!("/users/{}", second.id), json!({ "admin": true })).await;
            forge.with_connection(|db| store::users::set_state(db, second.id, state, now).expect("set"));
            second
        }
        "read_user" => forge.client_with_token(&root, &[Scope::ReadUser], None).await,
        "external" => forge.external("ext").await,
        "ordinary" => forge.user("ann").await,
        "owner" => owner,
        "sudo" | "admin" => root,
        other => panic!("no caller {other}"),
    }
}

async fn add_projects(forge: &TestForge, owner: &TestClient) {
    let mia = forge.user("mia").await;
    let create = async |path: &str, body: Value| {
        let answer = owner.post(path, body).await;
        assert_eq!(answer.code(), 201, "{answer}");
        answer.json()["id"].as_i64()
    };
    assert_eq!(create("/projects", json!({ "name": "x" })).await, Some(1));
    assert_eq!(create("/projects", json!({ "name": "y" })).await, Some(2));
    assert_eq!(create("/projects/1/deploy_keys", json!({ "title": "k", "key": fixtures::ssh_key(1) })).await, Some(1));
    assert_eq!(create("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 0 })).await, Some(4));
    assert_eq!(create("/groups", json!({ "name": "crew", "path": "crew", "visibility_level": 0 })).await, Some(5));
    let member = |level: i64| json!({ "user_id": mia.id.get(), "access_level": level });
    assert_eq!(create("/projects/1/members", member(10)).await, Some(3));
    // A second owner, so that the first may be removed.
    for group in [4, 5] {
        assert_eq!(create(&format!("/groups/{group}/members"), member(50)).await, Some(3));
    }
    create("/projects/1/share", json!({ "group_id": 5, "group_access": 30 })).await;
    let now = forge.forge.now();
    assert_eq!(
        forge.in_transaction(|db| fixtures::tracker_items(db, PROJECT, owner.id, now)).free_label,
        TRACKER_IDS.free_label
    );
}

async fn add_hooks(forge: &TestForge, root: &TestClient, owner: &TestClient) {
    let hook = json!({ "url": HOOK });
    let hooks = [owner.make("/projects/1/hooks", hook.clone()).await, root.make("/hooks", hook).await];
    assert_eq!(hooks, [1, 2]);
    let now = forge.forge.now();
    let deliveries = forge.in_transaction(|db| hooks.map(|hook| fixtures::delivery(db, HookId::new(hook), "{}", now)));
    assert_eq!(deliveries, [1, 2].map(DeliveryId::new));
}

/// The ids of the issues, labels and so on of project 1.
const TRACKER_IDS: TrackerItems = TrackerItems {
    issue: IssueId::new(1),
    note: NoteId::new(1),
    milestone: MilestoneId::new(1),
    label: LabelId::new(1),
    free_label: LabelId::new(3),
    board: BoardId::new(1),
    list: BoardListId::new(1),
};

/// Fills the repository of project 1, unless it has refs.
async fn create_repository(forge: &TestForge) {
    if !forge.refs_of(PROJECT).is_empty() {
        return;
    }
    let mut owner = forge.anonymous();
    owner.id = UserId::new(2);
    let owner = forge.client_with_token(&owner, &[Scope::Api], None).await;
    forge.fast_import(&owner, PROJECT, &format!("{}{CI_BRANCH}", repository_script())).await;
    let now = forge.forge.now();
    forge.with_connection(|db| store::releases::insert(db, PROJECT, "light", "d", now).expect("a release"));
}

/// The ids of the jobs of project 1.
const JOBS: Jobs = Jobs { waiting: JobId::new(1), failed: JobId::new(2), manual: JobId::new(3) };

/// Creates the jobs of project 1, unless it has some.
async fn create_jobs_once(forge: &TestForge) {
    let token = Digest::of(&trigger_token(PROJECT));
    let trigger = forge.with_connection(|db| store::triggers::by_token(db, &token).expect("asked"));
    if trigger.is_none() {
        assert_eq!(create_jobs(forge, PROJECT).await.manual, JOBS.manual);
    }
}

/// Returns a body with which the route succeeds for a caller with permission.
fn body(method: &Method, path: &str) -> Value {
    match (method.as_str(), path) {
        (_, path) if is_repository_route(path) => repository_body(method, path),
        (_, path) if is_ci_route(path) => ci_body(method, path, PROJECT),
        ("POST", "/markdown") => json!({ "text": "#1", "gfm": true, "project": "owner/x" }),
        ("POST", "/ci/lint") => json!({ "content": "" }),
        (_, path) if is_tracker_route(path) => tracker_body(method, path, &TRACKER_IDS, OTHER_PROJECT),
        ("POST", "/users") => json!({ "email": "n@x", "password": "12345678", "username": "fresh", "name": "N" }),
        ("PUT", "/users/{id}" | "/user") => json!({ "name": "Other" }),
        ("POST", path) if path.ends_with("/personal_access_tokens") => json!({ "name": "t", "scopes": ["api"] }),
        ("POST", path) if path.ends_with("/keys") || path.ends_with("/deploy_keys") => {
            json!({ "title": "k", "key": crate::accounts::keys::OTHER })
        }
        ("POST", path) if path.ends_with("/emails") => json!({ "email": "fresh@example.org" }),
        ("POST" | "PUT", "/hooks" | "/projects/{id}/hooks" | "/projects/{id}/hooks/{hook_id}") => {
            json!({ "url": HOOK })
        }
        (_, path) if path.ends_with("/download") => json!({ "job": "one" }),
        ("PUT", "/runners/{id}") => json!({ "description": "other" }),
        ("POST", "/projects/{id}/runners") => json!({ "runner_id": 3 }),
        ("POST", "/session") => json!({ "login": "owner", "password": testkit::PASSWORD }),
        ("POST", "/projects" | "/projects/user/{user_id}") => json!({ "name": "fresh" }),
        ("POST", "/projects/{id}/share") => json!({ "group_id": 4, "group_access": 20 }),
        ("POST", "/groups") => json!({ "name": "fresh", "path": "fresh" }),
        ("PUT", "/projects/{id}" | "/groups/{id}") => json!({ "name": "other" }),
        ("POST", path) if path.ends_with("/members") => json!({ "user_id": 1, "access_level": 20 }),
        ("PUT", path) if path.ends_with("/members/{user_id}") => json!({ "access_level": 20 }),
        _ => json!({}),
    }
}

/// Returns whether a route belongs to the repository.
fn is_repository_route(path: &str) -> bool {
    path.contains("/repository/") || path.contains("/statuses/") || path.contains("/pipeline")
}

fn fill_ids(path: &str) -> String {
    let id = if path.contains("/keys/") || path.starts_with("/projects/") {
        "1"
    } else if path.contains("/emails/") {
        "3"
    } else if path.starts_with("/groups/") {
        "4"
    } else {
        "2"
    };
    let user = if path.contains("/members/") { "3" } else { "2" };
    let path = path.replace("{uid}", "2").replace("{id}", id).replace("{user_id}", user);
    let other = if path.contains("/fork/") { "2" } else { "1" };
    let path = path.replace("{group_id}", "5").replace("{project_id}", other).replace("{query}", "x");
    let (delivery, trigger) = if path.starts_with("/hooks") { ("2", "project_create") } else { ("1", TRIGGER) };
    let path = path.replace("{hook_id}", "1").replace("{delivery_id}", delivery).replace("{trigger}", trigger);
    path.replace("{key_id}", "1").replace("{pipeline_id}", "1").replace("{runner_id}", "1")
}

async fn send(client: &TestClient, method: &Method, path: &str, sudo: Option<&str>) -> TestResponse {
    let to = tracker_path(&repository_path(method, &fill_ids(path)), &TRACKER_IDS);
    let to = ci_path(&to, PROJECT, &JOBS);
    if path.ends_with("/uploads") {
        let to = sudo.map_or_else(|| to.clone(), |name| format!("{to}?sudo={name}"));
        return crate::policy::access_to_projects::send_file(client, &to).await;
    }
    let mut body = body(method, path);
    if let Some(name) = sudo {
        body["sudo"] = json!(name);
    }
    client.json(method.clone(), &to, body).await
}

/// Returns the status of every route for one kind of caller.
async fn column(name: &str, routes: &[RouteDoc]) -> Vec<u16> {
    let forge = TestForge::start().await;
    let client = caller(&forge, name).await;
    // First, because a push also creates jobs.
    create_jobs_once(&forge).await;
    create_repository(&forge).await;
    let snapshot = forge.into_template(client);
    let mut column = Vec::new();
    let mut fresh = None;
    for route in routes {
        let (forge, client) = match fresh.take() {
            Some(fresh) => fresh,
            None => snapshot.copy().await,
        };
        let answer = send(&client, &route.method, route.path, (name == "sudo").then_some("owner")).await;
        column.push(answer.code());
        // A successful change must not affect the next route.
        if route.method == Method::GET || !answer.status.is_success() {
            fresh = Some((forge, client));
        }
    }
    column
}

/// No route may be open unintentionally. A new route fails this test until its row is reviewed.
#[test]
fn the_access_table() {
    let routes = api::routes::v3();
    // Several in parallel, each on its own thread: dropping a forge blocks until its database is closed.
    let columns_of = |names: &[&str]| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        names.iter().map(|name| runtime.block_on(column(name, &routes))).collect::<Vec<_>>()
    };
    let columns: Vec<Vec<u16>> = thread::scope(|scope| {
        let threads: Vec<_> = CALLERS.chunks(3).map(|names| scope.spawn(|| columns_of(names))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a part of the table")).collect()
    });
    let mut table = format!("{:<61}", "");
    for name in CALLERS {
        let _ = write!(table, " {name:>9}");
    }
    for (index, route) in routes.iter().enumerate() {
        let _ = write!(table, "\n{:<7}{:<54}", route.method.as_str(), route.path);
        for column in &columns {
            let _ = write!(table, " {:>9}", column[index]);
        }
    }
    assert_snapshot!("access", table);
}
