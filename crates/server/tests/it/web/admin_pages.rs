//! The pages of the operator.

use std::time::Duration;

use forge::{
    Caller,
    nodes::{self, NodeDescription},
};
use serde_json::json;
use testkit::{PASSWORD, TestForge, TestResponse, browser::Browser};

use super::account_settings::submit;
use crate::support::{WAIT_TIMEOUT, postgres_server};

/// Asserts that a response leads to a page and returns that page.
async fn follow(browser: &Browser, response: TestResponse) -> TestResponse {
    assert_eq!(response.code(), 303, "{response}");
    let page = browser.get(response.header("location")).await;
    assert_eq!(page.code(), 200, "{page}");
    page
}

#[tokio::test]
async fn only_administrators_learn_that_the_pages_exist() {
    let forge = TestForge::start().await;
    forge.admin().await;
    forge.user("ann").await;
    let (root, ann) = (forge.signed_in_browser("root").await, forge.signed_in_browser("ann").await);
    assert!(root.get("/dashboard").await.text.contains("href=\"/admin\""));
    assert!(!ann.get("/dashboard").await.text.contains("/admin"));
    for path in ["/admin", "/admin/users", "/admin/users/ann", "/admin/hooks", "/admin/hooks/1", "/admin/nothing"] {
        assert_eq!(ann.get(path).await.code(), 404, "{path}");
        assert_eq!(forge.browser().get(path).await.code(), 404, "{path}");
    }
    for path in ["/admin/users", "/admin/users/root/block", "/admin/users/root/delete", "/admin/runners/1/delete"] {
        let forged = submit(&ann, "/dashboard", path, &[("username", "x"), ("confirmation", "root")]).await;
        assert_eq!(forged.code(), 404, "{path}");
    }
    assert_eq!(root.get("/admin").await.code(), 200);
}

#[tokio::test]
async fn the_overview_counts_what_there_is() {
    let forge = TestForge::start().await;
    forge.admin().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "rocket" })).await;
    ann.make("/projects/1/issues", json!({ "title": "x" })).await;
    let root = forge.signed_in_browser("root").await;
    forge.clock.advance(jiff::SignedDuration::from_mins(90));
    let page = root.get("/admin").await;
    for part in [
        "Projects</a></th><td class=\"number\">1</td>",
        "Users</a></th><td class=\"number\">2</td>",
        "Issues</th><td class=\"number\">1</td>",
        "1 h 30 min",
        "<code>external-url</code></th><td>http://gable.test</td>",
        env!("CARGO_PKG_VERSION"),
    ] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    assert!(page.text.contains("SQLite") || page.text.contains("PostgreSQL"), "{page}");
    assert!(root.get("/admin/projects?search=ROCK").await.text.contains("ann/rocket"));
    assert!(root.get("/admin/projects?search=%00none").await.text.contains("No project matches."));
}

#[tokio::test]
async fn the_overview_lists_the_nodes_of_a_shared_database() {
    let forge = TestForge::start().await;
    forge.admin().await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let name = "gable-7".to_owned();
    let (version, addresses) = ("9.8.7".to_owned(), "http://10.0.0.7:8080".to_owned());
    let node = NodeDescription { name, version, addresses, mark: None };
    let registration = tokio::spawn(nodes::register_until_stopped(forge.forge.clone(), node, stopped));
    let is_listed = || async {
        let listed = forge.forge.read(Caller::system(), nodes::list).await.expect("listed");
        !listed.is_empty()
    };
    let registered = async {
        while !is_listed().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, registered).await.expect("the node is registered");
    let root = forge.signed_in_browser("root").await;
    let page = root.get("/admin").await;
    let is_shared = postgres_server().is_some();
    for part in ["gable-7", "9.8.7", "http://10.0.0.7:8080", ">serving<"] {
        assert_eq!(page.text.contains(part), is_shared, "{part}: {page}");
    }
    if is_shared {
        forge.clock.advance(jiff::SignedDuration::from_mins(2));
        let page = root.get("/admin").await;
        assert!(page.text.contains(">silent<"), "{page}");
    }
    stop.send(true).expect("sent");
    registration.await.expect("ended");
}

#[tokio::test]
async fn an_administrator_creates_changes_blocks_and_deletes_a_user() {
    let forge = TestForge::start().await;
    let api = forge.admin().await;
    let root = forge.signed_in_browser("root").await;
    let new = [("username", "bob"), ("name", "Bob <b>"), ("email", "Bob@example.com"), ("password", PASSWORD)];
    let created = submit(&root, "/admin/users/new", "/admin/users", &new).await;
    assert_eq!(created.header("location"), "/admin/users/bob?done=created");
    assert!(follow(&root, created).await.text.contains("The user was created."));
    assert_eq!(forge.browser().sign_in("bob", PASSWORD).await.code(), 303);
    for (fields, message) in [
        (vec![("username", "bob"), ("name", "x"), ("email", "x@example.com"), ("password", PASSWORD)], "Username has"),
        (vec![("username", "eve"), ("name", "x"), ("email", "bob@example.com"), ("password", PASSWORD)], "Email"),
        (vec![("username", "a/b"), ("name", ""), ("email", "x"), ("password", "x")], "Password is too short"),
    ] {
        let refused = submit(&root, "/admin/users/new", "/admin/users", &fields).await;
        assert_eq!(refused.code(), 422);
        assert!(refused.text.contains(message) && !refused.text.contains(PASSWORD), "{message}: {refused}");
    }
    let list = root.get("/admin/users?search=bob%40exa").await;
    assert!(list.text.contains("href=\"/admin/users/bob\"") && !list.text.contains("/admin/users/root"), "{list}");

    let changes = [
        ("name", "Bob"),
        ("username", "bob"),
        ("email", "bob@example.com"),
        ("projects_limit", "3"),
        ("admin", "1"),
        ("password", ""),
    ];
    let saved = submit(&root, "/admin/users/bob", "/admin/users/bob", &changes).await;
    assert!(follow(&root, saved).await.text.contains("The changes were saved."));
    let bob = api.get("/users?username=bob").await.json()[0].clone();
    assert_eq!((&bob["is_admin"], &bob["projects_limit"]), (&json!(true), &json!(3)));
    let wrong: Vec<(&str, &str)> =
        changes.iter().map(|(n, v)| (*n, if *n == "projects_limit" { "many" } else { v })).collect();
    let refused = submit(&root, "/admin/users/bob", "/admin/users/bob", &wrong).await;
    assert!(refused.code() == 422 && refused.text.contains("is not a number"), "{refused}");

    let bobs_browser = forge.signed_in_browser("bob").await;
    let blocked = submit(&root, "/admin/users/bob", "/admin/users/bob/block", &[]).await;
    assert!(follow(&root, blocked).await.text.contains("Unblock user"));
    assert_eq!(bobs_browser.get("/dashboard").await.code(), 303);
    let unblocked = submit(&root, "/admin/users/bob", "/admin/users/bob/unblock", &[]).await;
    assert!(follow(&root, unblocked).await.text.contains("Block user"));

    let delete = "/admin/users/bob/delete";
    let refused = submit(&root, "/admin/users/bob", delete, &[("confirmation", "bo")]).await;
    assert!(refused.code() == 422 && refused.text.contains("is not the username"), "{refused}");
    let deleted = submit(&root, "/admin/users/bob", delete, &[("confirmation", "bob")]).await;
    assert!(follow(&root, deleted).await.text.contains("The user was deleted."));
    assert_eq!(root.get("/admin/users/bob").await.code(), 404);
}

#[tokio::test]
async fn the_last_administrator_remains() {
    let forge = TestForge::start().await;
    forge.admin().await;
    let root = forge.signed_in_browser("root").await;
    let page = root.get("/admin/users/root").await;
    assert!(!page.text.contains("/block") && !page.text.contains("/delete"), "{page}");
    let refused = submit(&root, "/admin/users/root", "/admin/users/root/block", &[]).await;
    assert!(refused.code() == 422 && refused.text.contains("Cannot block the last administrator"), "{refused}");
    let confirmation = [("confirmation", "root")];
    let refused = submit(&root, "/admin/users/root", "/admin/users/root/delete", &confirmation).await;
    assert_eq!(refused.code(), 422);
    let demotion = [("name", "r"), ("username", "root"), ("email", "root@example.com"), ("projects_limit", "1")];
    let refused = submit(&root, "/admin/users/root", "/admin/users/root", &demotion).await;
    assert!(refused.code() == 422 && refused.text.contains("Cannot demote the last administrator"), "{refused}");
}

#[tokio::test]
async fn an_administrator_retries_a_failed_task() {
    let forge = TestForge::start().await;
    forge.admin().await;
    let root = forge.signed_in_browser("root").await;
    assert!(root.get("/admin/background_tasks").await.text.contains("No task has failed permanently."));
    forge::tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    let id = forge.in_transaction(|db| {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let task = store::tasks::list(db, 1).expect("tasks").remove(0);
        store::tasks::mark_dead(db, task.id, "the <disk> is broken", now).expect("marked");
        task.id
    });
    let page = root.get("/admin/background_tasks").await;
    assert!(page.text.contains("the &lt;disk&gt; is broken"), "{page}");
    let retry = format!("/admin/background_tasks/{id}/retry");
    let retried = submit(&root, "/admin/background_tasks", &retry, &[]).await;
    assert!(follow(&root, retried).await.text.contains("No task has failed permanently."));
    assert_eq!(submit(&root, "/admin/background_tasks", &retry, &[]).await.code(), 404, "it has not failed");
}

#[tokio::test]
async fn an_administrator_manages_system_hooks_and_runners() {
    let forge = TestForge::builder().allow_local_network().start().await;
    let api = forge.admin().await;
    let root = forge.signed_in_browser("root").await;
    let hook = [("url", "https://user:secret@hooks.example/<x>"), ("token", "very secret"), ("tag_push_events", "1")];
    let added = submit(&root, "/admin/hooks", "/admin/hooks", &hook).await;
    let page = follow(&root, added).await;
    assert!(page.text.contains("hooks.example") && page.text.contains("is not verified"), "{page}");
    assert!(!page.text.contains("secret@") && !page.text.contains("very secret"), "{page}");
    let hooks = api.get("/hooks").await.json();
    assert_eq!((&hooks[0]["push_events"], &hooks[0]["tag_push_events"]), (&json!(false), &json!(true)));
    let refused = submit(&root, "/admin/hooks", "/admin/hooks", &[("url", "no URL")]).await;
    assert!(refused.code() == 422 && refused.text.contains("value=\"no URL\""), "{refused}");
    let path = format!("/admin/hooks/{}", hooks[0]["id"]);
    let tested = submit(&root, "/admin/hooks", &format!("{path}/test"), &[]).await;
    assert!(follow(&root, tested).await.text.contains("A sample event was enqueued"));
    let page = root.get(&path).await;
    assert!(page.text.contains(&format!("href=\"{path}/hook_logs/1\">System Hook 1</a>")), "{page}");
    assert!(!page.text.contains("secret@"), "{page}");
    let delivery = root.get(&format!("{path}/hook_logs/1")).await;
    assert_eq!((delivery.code(), delivery.header("cache-control")), (200, "no-store"), "{delivery}");
    assert!(delivery.text.contains("project_create") && delivery.text.contains("There is no response."), "{delivery}");
    let resent = submit(&root, &path, &format!("{path}/hook_logs/1/retry"), &[]).await;
    assert_eq!(resent.header("location"), format!("{path}/hook_logs/2"));
    assert!(follow(&root, resent).await.text.contains("project_create"));
    assert_eq!(root.get(&format!("{path}/hook_logs/3")).await.code(), 404);
    let removed = submit(&root, "/admin/hooks", &format!("{path}/delete"), &[]).await;
    assert!(follow(&root, removed).await.text.contains("There are no system hooks."));
    assert_eq!(submit(&root, "/admin/hooks", &format!("{path}/test"), &[]).await.code(), 404);

    let shown = submit(&root, "/admin/runners", "/admin/runners/registration_token", &[]).await;
    assert_eq!((shown.code(), shown.header("cache-control")), (200, "no-store"));
    let secret = |page: &TestResponse| {
        let text = page.text.split("<code class=\"secret\">").nth(1).and_then(|rest| rest.split('<').next());
        text.expect("a token").to_owned()
    };
    let token = secret(&shown);
    assert!(!root.get("/admin/runners").await.text.contains(&token));
    let registration = forge::runners::Registration { description: "a <runner>".into(), ..Default::default() };
    let registration = forge::Unvalidated::valid(registration);
    let given = model::tokens::Secret::new(token.clone());
    let (id, _) = forge::runners::register(&forge.forge, &given, registration).await.expect("registered");
    assert!(root.get("/admin/runners").await.text.contains("a &lt;runner&gt;"));
    let paused = submit(&root, "/admin/runners", &format!("/admin/runners/{id}/pause"), &[]).await;
    assert!(follow(&root, paused).await.text.contains("Resume"));
    assert_eq!(api.get(&format!("/runners/{id}")).await.json()["active"], false);
    let removed = submit(&root, "/admin/runners", &format!("/admin/runners/{id}/delete"), &[]).await;
    assert!(follow(&root, removed).await.text.contains("No runner is registered."));
    let reset = submit(&root, "/admin/runners", "/admin/runners/reset_registration_token", &[]).await;
    assert_ne!(secret(&reset), token);
}
