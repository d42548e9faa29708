//! Every route, asked by everybody: the table of who gets what.

use std::{fmt::Write as _, thread};

use api::routes::RouteDoc;
use axum::http::Method;
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{Scope, UserState, tokens::Digest};
use serde_json::{Value, json};
use testkit::{
    Answer, Client, TestForge,
    rows::{self, Desk},
};

use crate::policy::access_to_projects::{
    BUILT, Builds, HOOK, TRIGGER, builds_body, builds_path, desk_body, desk_path, is_about_builds, is_about_the_desk,
    plant_builds, repository_body, repository_path, repository_script, trigger_token,
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

/// A forge with one of each, and things to reach for: user 2 has address 3, key 1, the private projects 1 and 2 and the
/// private group 4; user 3 is a member of both; the project is shared with the group 5. The project has the hook 1 and the
/// instance the hook 2, of which each was sent something. Runner 1 builds both projects, 2 the first and 3 the second one.
async fn caller(forge: &TestForge, name: &str) -> Client {
    let root = forge.admin().await;
    let owner = forge.user("owner").await;
    owner.post("/user/emails", json!({ "email": "more@example.org" })).await;
    owner.post("/user/keys", json!({ "title": "k", "key": crate::accounts::keys::ED25519 })).await;
    add_projects(forge, &owner).await;
    add_hooks(forge, &root, &owner).await;
    let now = forge.forge.now();
    let runners = forge.in_one_go(|db| [vec![1, 2], vec![1], vec![2]].map(|projects| rows::runner(db, &projects, now)));
    assert_eq!(runners, [1, 2, 3]);
    match name {
        "anonymous" => forge.anonymous(),
        "wrong" => forge.anonymous().showing("abcdefghijklmnopqrst"),
        "expired" => {
            let brief = forge.with_token(&root, &[Scope::Api], Some(now + SignedDuration::from_secs(1))).await;
            forge.clock.advance(SignedDuration::from_secs(2));
            brief
        }
        "revoked" => {
            forge.forge.write(forge::Caller::system(), |tx| forge::tokens::revoke(tx, 1)).await.expect("revoked");
            root
        }
        "blocked" | "directory" => {
            let state = if name == "blocked" { UserState::Blocked } else { UserState::DirectoryBlocked };
            let second = forge.user("second").await;
            root.put(&format!("/users/{}", second.id), json!({ "admin": true })).await;
            forge.behind_the_back(|db| store::users::set_state(db, second.id, state, now).expect("set"));
            second
        }
        "read_user" => forge.with_token(&root, &[Scope::ReadUser], None).await,
        "external" => forge.external("ext").await,
        "ordinary" => forge.user("ann").await,
        "owner" => owner,
        "sudo" | "admin" => root,
        other => panic!("no caller {other}"),
    }
}

async fn add_projects(forge: &TestForge, owner: &Client) {
    let mia = forge.user("mia").await;
    let made = async |path: &str, body: Value| {
        let answer = owner.post(path, body).await;
        assert_eq!(answer.code(), 201, "{answer}");
        answer.json()["id"].as_i64()
    };
    assert_eq!(made("/projects", json!({ "name": "x" })).await, Some(1));
    assert_eq!(made("/projects", json!({ "name": "y" })).await, Some(2));
    assert_eq!(made("/projects/1/deploy_keys", json!({ "title": "k", "key": rows::ssh_key(1) })).await, Some(1));
    assert_eq!(made("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 0 })).await, Some(4));
    assert_eq!(made("/groups", json!({ "name": "crew", "path": "crew", "visibility_level": 0 })).await, Some(5));
    let member = |level: i64| json!({ "user_id": mia.id, "access_level": level });
    assert_eq!(made("/projects/1/members", member(10)).await, Some(3));
    // A second owner, so that the first may be removed.
    for group in [4, 5] {
        assert_eq!(made(&format!("/groups/{group}/members"), member(50)).await, Some(3));
    }
    made("/projects/1/share", json!({ "group_id": 5, "group_access": 30 })).await;
    let now = forge.forge.now();
    assert_eq!(forge.in_one_go(|db| rows::desk(db, 1, owner.id, now)).free_label, DESK.free_label);
}

async fn add_hooks(forge: &TestForge, root: &Client, owner: &Client) {
    let hook = json!({ "url": HOOK });
    let hooks = [owner.make("/projects/1/hooks", hook.clone()).await, root.make("/hooks", hook).await];
    assert_eq!(hooks, [1, 2]);
    let now = forge.forge.now();
    let deliveries = forge.in_one_go(|db| hooks.map(|hook| rows::delivery(db, hook, "{}", now)));
    assert_eq!(deliveries, [1, 2]);
}

/// What lies on the desk of project 1.
const DESK: Desk = Desk { issue: 1, note: 1, milestone: 1, label: 1, free_label: 3, board: 1, list: 1 };

/// Puts something into the repository of project 1, unless there is something.
async fn fill(forge: &TestForge) {
    if !forge.refs_of(1).is_empty() {
        return;
    }
    let mut owner = forge.anonymous();
    owner.id = 2;
    let owner = forge.with_token(&owner, &[Scope::Api], None).await;
    forge.fill(&owner, 1, &format!("{}{BUILT}", repository_script())).await;
    let now = forge.forge.now();
    forge.behind_the_back(|db| store::releases::insert(db, 1, "light", "d", now).expect("a release"));
}

/// The builds of project 1, once it has some.
const BUILDS: Builds = Builds { waiting: 1, failed: 2, manual: 3 };

/// Gives project 1 builds, unless it has some.
async fn plant(forge: &TestForge) {
    let token = Digest::of(&trigger_token(1));
    let planted = forge.behind_the_back(|db| store::triggers::by_token(db, &token).expect("asked"));
    if planted.is_none() {
        assert_eq!(plant_builds(forge, 1).await.manual, BUILDS.manual);
    }
}

/// A body with which the route would succeed, if it lets the caller in.
fn body(method: &Method, path: &str) -> Value {
    match (method.as_str(), path) {
        (_, path) if is_about_code(path) => repository_body(method, path),
        (_, path) if is_about_builds(path) => builds_body(method, path, 1),
        ("POST", "/ci/lint") => json!({ "content": "" }),
        (_, path) if is_about_the_desk(path) => desk_body(method, path, &DESK, 2),
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

/// Whether a route asks for something in a repository.
fn is_about_code(path: &str) -> bool {
    path.contains("/repository/") || path.contains("/statuses/") || path.contains("/pipeline")
}

fn concrete(path: &str) -> String {
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

async fn ask(client: &Client, method: &Method, path: &str, sudo: Option<&str>) -> Answer {
    let to = desk_path(&repository_path(method, &concrete(path)), &DESK);
    let to = builds_path(&to, 1, &BUILDS);
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

/// What every route answers to one kind of caller.
async fn column(name: &str, routes: &[RouteDoc]) -> Vec<u16> {
    let forge = TestForge::start().await;
    let client = caller(&forge, name).await;
    // First, because what is pushed has builds, too.
    plant(&forge).await;
    fill(&forge).await;
    let kept = forge.keep(client);
    let mut column = Vec::new();
    let mut fresh = None;
    for route in routes {
        let (forge, client) = match fresh.take() {
            Some(fresh) => fresh,
            None => kept.copy().await,
        };
        let answer = ask(&client, &route.method, route.path, (name == "sudo").then_some("owner")).await;
        column.push(answer.code());
        // What was changed does not meet the next route.
        if route.method == Method::GET || !answer.status.is_success() {
            fresh = Some((forge, client));
        }
    }
    column
}

/// Lesson 13: no route is open that nobody meant to open. A new route fails this test until its row is reviewed.
#[test]
fn lesson_13_the_access_table() {
    let routes = api::routes::v3();
    // Several at once, each on a thread of its own: a forge that goes waits for its database, and nobody may wait for that.
    let some = |names: &[&str]| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        names.iter().map(|name| runtime.block_on(column(name, &routes))).collect::<Vec<_>>()
    };
    let columns: Vec<Vec<u16>> = thread::scope(|scope| {
        let threads: Vec<_> = CALLERS.chunks(3).map(|names| scope.spawn(|| some(names))).collect();
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
