//! Dashboard, explore, and the pages of users and groups.

use serde_json::json;
use testkit::TestForge;

/// Returns the paths of the projects that a page lists, in order.
fn listed(html: &str) -> Vec<String> {
    let rows = html.split("<a class=\"strong\" href=\"/").skip(1);
    rows.map(|row| row.split('"').next().unwrap_or_default().to_owned()).collect()
}

async fn forge_with_projects() -> TestForge {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    for (name, level) in [("alpha", 20), ("beta", 10), ("gamma", 0)] {
        let project =
            json!({ "name": name, "visibility_level": level, "description": format!("The <{name}> project") });
        ann.make("/projects", project).await;
    }
    bob.make("/projects", json!({ "name": "delta", "visibility_level": 0 })).await;
    ann.make("/groups", json!({ "name": "Acme Co", "path": "acme", "visibility_level": 20 })).await;
    forge
}

#[tokio::test]
async fn everyone_sees_the_projects_that_they_may_see() {
    let forge = forge_with_projects().await;
    let visitor = forge.browser();
    let (ann, bob) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("bob").await);
    let by_name = "/explore?sort=name";
    assert_eq!(listed(&visitor.get(by_name).await.text), ["ann/alpha"]);
    assert_eq!(listed(&ann.get(by_name).await.text), ["ann/alpha", "ann/beta", "ann/gamma"]);
    assert_eq!(listed(&bob.get(by_name).await.text), ["ann/alpha", "ann/beta", "bob/delta"]);
    assert_eq!(listed(&bob.get("/explore?search=BETA").await.text), ["ann/beta"]);
    assert_eq!(listed(&visitor.get("/explore?search=beta").await.text), [""; 0]);
    let page = ann.get("/explore?search=gamm").await;
    assert!(page.text.contains("The &lt;gamma&gt; project") && page.text.contains(">private</span>"), "{page}");
    let nothing = visitor.get("/explore?search=%3Cscript%3E%00").await;
    assert_eq!(nothing.code(), 200);
    assert!(nothing.text.contains("No project matches") && !nothing.text.contains("<script>"), "{nothing}");
    assert_eq!(visitor.get("/explore?page=99").await.code(), 200);
    assert_eq!(visitor.get("/explore?page=x&sort=y").await.code(), 200);
    assert_eq!(visitor.get("/").await.header("location"), "/explore");
    assert_eq!(ann.get("/").await.header("location"), "/dashboard");
}

#[tokio::test]
async fn a_long_list_has_pages() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let group = root.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 20 })).await;
    for number in 0..30 {
        let project = json!({ "name": format!("p{number:02}"), "visibility_level": 20, "namespace_id": group });
        root.make("/projects", project).await;
    }
    let visitor = forge.browser();
    let first = visitor.get("/explore?sort=name&search=p").await;
    assert_eq!(listed(&first.text).len(), 25);
    assert!(
        first.text.contains("1–25 of 30") && first.text.contains("href=\"/explore?sort=name&#38;search=p&#38;page=2\""),
        "{first}"
    );
    let second = visitor.get("/explore?sort=name&search=p&page=2").await;
    assert_eq!(listed(&second.text).last().map(String::as_str), Some("acme/p29"));
    assert!(second.text.contains("26–30 of 30") && second.text.contains("rel=\"prev\""), "{second}");
}

#[tokio::test]
async fn the_dashboard_lists_the_projects_and_groups_of_the_user() {
    let forge = forge_with_projects().await;
    assert_eq!(forge.browser().get("/dashboard").await.header("location"), "/users/sign_in?return_to=/dashboard");
    let bob = forge.signed_in_browser("bob").await;
    let page = bob.get("/dashboard").await;
    assert_eq!(listed(&page.text), ["bob/delta"]);
    let ann = forge.signed_in_browser("ann").await;
    let page = ann.get("/dashboard").await;
    assert!(page.text.contains("Your groups") && listed(&page.text).contains(&"acme".to_owned()), "{page}");
    assert_eq!(listed(&ann.get("/dashboard?search=bet").await.text)[0], "ann/beta");
}

#[tokio::test]
async fn users_and_groups_have_pages() {
    let forge = forge_with_projects().await;
    let (visitor, bob) = (forge.browser(), forge.signed_in_browser("bob").await);
    // Ann has a public project, Bob has none.
    let page = visitor.get("/ann").await;
    assert_eq!((page.code(), listed(&page.text)), (200, vec!["ann/alpha".to_owned()]));
    assert!(!page.text.contains("example.org"), "the address is not shown: {page}");
    assert_eq!(visitor.get("/bob").await.code(), 404);
    assert_eq!(listed(&bob.get("/ann").await.text).len(), 2);
    let group = visitor.get("/acme").await;
    assert_eq!(group.code(), 200);
    assert!(group.text.contains("<bdi>Acme Co</bdi>"), "{group}");
    assert_eq!(visitor.get("/groups/acme").await.code(), 200);
    let ann = forge.signed_in_browser("ann").await;
    assert!(ann.get("/acme").await.text.contains("Your role: owner"));
}
