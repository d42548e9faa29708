//! The access table of pages: the status of every route of the web interface for every kind of visitor.

use std::fmt::Write as _;

use insta::assert_snapshot;
use model::{HookId, JobId, ProjectId};
use serde_json::json;
use testkit::{
    ForgeTemplate, LocalRepository, TestForge, TestResponse,
    browser::{Browser, Cookies, form_token},
    fixtures,
};
use web::routes::Route;

use crate::web::jobs::{upload_artifacts, zip_archive};

const VISITORS: [&str; 9] =
    ["anonymous", "ended", "external", "user", "guest", "reporter", "developer", "owner", "admin"];

/// The ID of another member of the project and the group.
const MEMBER: i64 = 3;

/// The ID of the system hook and of its delivery.
const SYSTEM_HOOK: i64 = 2;

/// A visitor of the pages, in each copy of the forge.
struct Visitor {
    cookies: Cookies,
    form_token: String,
}

/// Creates a forge with a project `owner/x` and a group `acme` of this visibility, and the visitors of its pages.
async fn create(visibility: i32) -> (ForgeTemplate, Vec<Visitor>) {
    let forge = TestForge::start().await;
    let admin = forge.admin().await;
    let (owner, member) = (forge.user("owner").await, forge.user("member").await);
    assert_eq!(member.id.get(), MEMBER);
    let project = json!({ "name": "x", "visibility_level": visibility });
    assert_eq!(owner.make("/projects", project).await, 1);
    let group = owner.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": visibility })).await;
    owner.make("/projects/1/issues", json!({ "title": "a" })).await;
    owner.make("/projects/1/hooks", json!({ "url": "https://hooks.example.com/x" })).await;
    assert_eq!(admin.make("/hooks", json!({ "url": "https://hooks.example.com/system" })).await, SYSTEM_HOOK);
    let now = forge.forge.now();
    forge.in_transaction(|db| fixtures::delivery(db, HookId::new(1), "{}", now));
    forge.in_transaction(|db| fixtures::delivery(db, HookId::new(SYSTEM_HOOK), "{}", now));
    owner.make("/projects/1/issues/1/notes", json!({ "body": "a" })).await;
    owner.post("/projects/1/labels", json!({ "name": "a", "color": "#ff0000" })).await;
    owner.post("/projects/1/boards/1/lists", json!({ "label_id": 1 })).await;
    owner.post("/projects/1/labels", json!({ "name": "b", "color": "#ff0000" })).await;
    owner.make("/projects/1/milestones", json!({ "title": "a" })).await;
    owner.post("/projects/1/variables", json!({ "key": "KEY", "value": "a" })).await;
    owner.post("/projects/1/triggers", json!({})).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "# x\n");
    local.git(&["tag", "v1"]);
    local.git(&["branch", "spare"]);
    local.git(&["branch", "kept"]);
    forge.push_all(&owner, ProjectId::new(1), &local).await;
    owner.put("/projects/1/repository/branches/kept/protect", json!({})).await;
    forge.start_pipeline(ProjectId::new(1), Some(owner.id), "one: {script: make}").await;
    let token = forge.assign_job(JobId::new(1), forge.insert_runner("runner")).await;
    upload_artifacts(&forge, &token, &zip_archive(&[("a.txt", b"text")]), "").await;
    forge.external("external").await;
    forge.user("user").await;
    let mut members = vec![(member.id, 20)];
    for (name, level) in [("guest", 10), ("reporter", 20), ("developer", 30)] {
        members.push((forge.user(name).await.id, level));
    }
    for (id, level) in members {
        let member = json!({ "user_id": id.get(), "access_level": level });
        owner.make("/projects/1/members", member.clone()).await;
        owner.make(&format!("/groups/{group}/members"), member).await;
    }
    let ended = forge.user("ended").await;
    let mut visitors = Vec::new();
    for name in VISITORS {
        let browser = match name {
            "anonymous" => forge.browser(),
            "admin" => forge.signed_in_browser("root").await,
            name => forge.signed_in_browser(name).await,
        };
        let page = if name == "anonymous" { "/users/sign_in" } else { "/help" };
        let form_token = form_token(&browser.get(page).await.text);
        visitors.push(Visitor { cookies: browser.cookies(), form_token });
    }
    forge.in_transaction(|db| store::web_sessions::delete_all_of(db, ended.id).expect("deleted"));
    (forge.into_template(admin), visitors)
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
    if pattern.starts_with("/admin/hooks/") {
        let id = SYSTEM_HOOK.to_string();
        return pattern.replace("{id}", &id).replace("{delivery}", &id);
    }
    let key = if pattern.contains("/variables/") { "KEY" } else { "1" };
    pattern
        .replace("{iid}", "1")
        .replace("{id}", "1")
        .replace("{username}", "user")
        .replace("{tag}", "users")
        .replace("{user}", &MEMBER.to_string())
        .replace("{group_id}", "1")
        .replace("{hook}", "1")
        .replace("{delivery}", "1")
        .replace("{key}", key)
        .replace("{runner}", "1")
        .replace("{trigger}", "1")
        .replace("{note}", "1")
        .replace("{label}", "1")
        .replace("{list}", "1")
        .replace("{project}", "owner/x")
        .replace("{namespace}", "owner")
        .replace("{group}", "acme")
        .replace("{location}", location)
}

/// Returns the fields that a form needs to name what it changes. Those of the others are left out, so that most forms are
/// refused with 422 if the visitor may submit them.
fn fields(pattern: &str) -> &'static [(&'static str, &'static str)] {
    match pattern {
        "/{project}/-/branches/delete" => &[("name", "spare")],
        "/{project}/-/tags/delete" => &[("name", "v1")],
        "/{project}/-/protected_branches/delete" => &[("name", "kept")],
        "/{project}/-/milestones/{iid}/state" => &[("state", "close")],
        "/{project}/-/boards" => &[("move", "1.open.closed")],
        "/{project}/-/boards/lists" => &[("label_id", "2")],
        _ => &[],
    }
}

/// Opens a page, or submits a form.
async fn request(browser: &Browser, route: &Route, path: &str, form_token: &str) -> TestResponse {
    match route.method {
        "GET" => browser.get(path).await,
        "POST" => {
            let fields: Vec<_> = [("form_token", form_token)].iter().chain(fields(route.pattern)).copied().collect();
            browser.post(path, &[("sec-fetch-site", "same-origin")], &fields).await
        }
        method => panic!("no page has the method {method}"),
    }
}

/// Returns the statuses of all routes. A submitted form is refused if the status is 403 or 404, or 303 with the sign-in
/// page; 422 means that the visitor may submit it with the right fields.
async fn table(visibility: i32) -> String {
    let (template, visitors) = create(visibility).await;
    let (mut copy, _) = template.copy().await;
    let explore = copy.browser().get("/explore").await.text;
    let stylesheet = explore.split('"').find(|part| part.ends_with(".css")).expect("a stylesheet").to_owned();
    let mut table = format!("{:<64}", "");
    for name in VISITORS {
        let _ = write!(table, " {name:>9}");
    }
    for route in web::routes::all() {
        let _ = write!(table, "\n{:<5}{:<59}", route.method, route.pattern);
        let path = fill(route.pattern, &stylesheet);
        for Visitor { cookies, form_token } in &visitors {
            let browser = copy.browser_with(cookies.clone());
            let response = request(&browser, route, &path, form_token).await;
            let must_sign_in = response.header("location").contains("/users/sign_in");
            let status = if must_sign_in { "sign in".to_owned() } else { response.code().to_string() };
            let _ = write!(table, " {status:>9}");
            // The next visitor finds everything as it was.
            if route.method == "POST" && response.code() < 400 && !must_sign_in {
                (copy, _) = template.copy().await;
            }
        }
    }
    table
}

// No page may be open unintentionally. A new route fails these tests until its row is reviewed.

#[tokio::test]
async fn access_to_the_pages_of_a_private_project() {
    assert_snapshot!("pages_of_a_private_project", table(0).await);
}

#[tokio::test]
async fn access_to_the_pages_of_an_internal_project() {
    assert_snapshot!("pages_of_an_internal_project", table(10).await);
}

#[tokio::test]
async fn access_to_the_pages_of_a_public_project() {
    assert_snapshot!("pages_of_a_public_project", table(20).await);
}
