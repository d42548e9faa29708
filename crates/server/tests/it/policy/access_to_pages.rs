//! The access table of pages: the status of every route of the web interface for every kind of visitor.

use std::fmt::Write as _;

use axum::http::Method;
use insta::assert_snapshot;
use model::{HookId, JobId, ProjectId};
use serde_json::json;
use testkit::{LocalRepository, TestForge, browser::Browser, fixtures};

use crate::web::jobs::{upload_artifacts, zip_archive};

const VISITORS: [&str; 9] =
    ["anonymous", "ended", "external", "user", "guest", "reporter", "developer", "owner", "admin"];

/// Creates a project `owner/x` and a group `acme` with this visibility, and returns the visitors of their pages.
async fn visitors(forge: &TestForge, visibility: i32) -> Vec<Browser> {
    forge.admin().await;
    let owner = forge.user("owner").await;
    let project = json!({ "name": "x", "visibility_level": visibility });
    assert_eq!(owner.make("/projects", project).await, 1);
    let group = owner.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": visibility })).await;
    owner.make("/projects/1/issues", json!({ "title": "a" })).await;
    owner.make("/projects/1/hooks", json!({ "url": "https://hooks.example.com/x" })).await;
    let now = forge.forge.now();
    forge.in_transaction(|db| fixtures::delivery(db, HookId::new(1), "{}", now));
    let local = LocalRepository::new();
    local.commit_file("README.md", "# x\n");
    local.git(&["tag", "v1"]);
    forge.push_all(&owner, ProjectId::new(1), &local).await;
    forge.start_pipeline(ProjectId::new(1), Some(owner.id), "one: {script: make}").await;
    let token = forge.assign_job(JobId::new(1), forge.insert_runner("runner")).await;
    upload_artifacts(forge, &token, &zip_archive(&[("a.txt", b"text")]), "").await;
    forge.external("external").await;
    forge.user("user").await;
    for (name, level) in [("guest", 10), ("reporter", 20), ("developer", 30)] {
        let member = json!({ "user_id": forge.user(name).await.id.get(), "access_level": level });
        owner.make("/projects/1/members", member.clone()).await;
        owner.make(&format!("/groups/{group}/members"), member).await;
    }
    let ended = forge.user("ended").await;
    let mut visitors = Vec::new();
    for name in VISITORS {
        visitors.push(match name {
            "anonymous" => forge.browser(),
            "admin" => forge.signed_in_browser("root").await,
            name => forge.signed_in_browser(name).await,
        });
    }
    forge.in_transaction(|db| store::web_sessions::delete_all_of(db, ended.id).expect("deleted"));
    visitors
}

/// Replaces the variable parts of a pattern by those of an existing page.
fn fill(pattern: &str, stylesheet: &str) -> String {
    let location = match pattern {
        "/assets/{location}" => return stylesheet.to_owned(),
        pattern if ["/blob/", "/raw/", "/blame/", "/edit/", "/delete/"].iter().any(|word| pattern.contains(word)) => {
            "master/README.md"
        }
        pattern if pattern.contains("/compare/") => "master...master",
        pattern if pattern.contains("/artifacts/browse/") => "",
        pattern if pattern.contains("/artifacts/file/") => "a.txt",
        pattern if pattern.contains("/tags/") => "v1",
        pattern if pattern.contains("/archive/") => "master/x.zip",
        _ => "master",
    };
    pattern
        .replace("{iid}", "1")
        .replace("{id}", "1")
        .replace("{username}", "user")
        .replace("{tag}", "users")
        .replace("{user}", "1")
        .replace("{group_id}", "1")
        .replace("{hook}", "1")
        .replace("{delivery}", "1")
        .replace("{key}", "1")
        .replace("{runner}", "1")
        .replace("{trigger}", "1")
        .replace("{project}", "owner/x")
        .replace("{namespace}", "owner")
        .replace("{group}", "acme")
        .replace("{location}", location)
}

async fn table(visibility: i32) -> String {
    let forge = TestForge::start().await;
    let visitors = visitors(&forge, visibility).await;
    let explore = visitors[0].get("/explore").await.text;
    let stylesheet = explore.split('"').find(|part| part.ends_with(".css")).expect("a stylesheet").to_owned();
    let mut table = format!("{:<64}", "");
    for name in VISITORS {
        let _ = write!(table, " {name:>9}");
    }
    for route in web::routes::all() {
        let _ = write!(table, "\n{:<5}{:<59}", route.method, route.pattern);
        for visitor in &visitors {
            let method: Method = route.method.parse().expect("a method");
            // Without the token of a form, no request changes anything.
            let page = visitor.send(method, &fill(route.pattern, &stylesheet), &[], "").await;
            let _ = write!(table, " {:>9}", page.code());
        }
    }
    table
}

/// No page may be open unintentionally. A new route fails this test until its row is reviewed.
#[tokio::test]
async fn the_access_table_of_pages() {
    assert_snapshot!("pages_of_a_private_project", table(0).await);
    assert_snapshot!("pages_of_an_internal_project", table(10).await);
    assert_snapshot!("pages_of_a_public_project", table(20).await);
}
