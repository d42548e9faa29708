//! Search over projects, issues, users and code.

use model::ProjectId;
use serde_json::json;
use testkit::{LocalRepository, TestForge};

#[tokio::test]
async fn a_visitor_finds_only_what_they_can_see() {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    forge.user("bob").await;
    forge.admin().await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.make("/projects", json!({ "name": "secret rocket", "visibility_level": 0 })).await;
    ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 20 })).await;
    ann.make("/projects/1/issues", json!({ "title": "The tank <leaks>" })).await;
    ann.make("/projects/1/issues", json!({ "title": "A confidential leak", "confidential": true })).await;
    ann.make("/projects/2/issues", json!({ "title": "A private leak" })).await;
    let visitors = [
        (forge.browser(), false, false),
        (forge.signed_in_browser("bob").await, false, false),
        (forge.signed_in_browser("dan").await, true, false),
        (forge.signed_in_browser("ann").await, true, true),
        (forge.signed_in_browser("root").await, true, true),
    ];
    for (number, (visitor, sees_confidential, sees_private)) in visitors.iter().enumerate() {
        let page = visitor.get("/search?scope=issues&search=LEAK").await;
        assert_eq!(page.code(), 200, "{page}");
        assert!(page.text.contains("The tank &lt;leaks&gt;"), "{number}: {page}");
        assert!(page.text.contains("href=\"/ann/rocket/-/issues/1\""), "{number}: {page}");
        assert_eq!(page.text.contains("A confidential leak"), *sees_confidential, "{number}: {page}");
        assert_eq!(page.text.contains("A private leak"), *sees_private, "{number}: {page}");
        let page = visitor.get("/search?search=rocket").await;
        assert!(page.text.contains("href=\"/ann/rocket\""), "{number}: {page}");
    }
    let anonymous = forge.browser();
    assert_eq!(anonymous.get("/search?scope=users&search=ann").await.code(), 303);
    assert!(!anonymous.get("/search?search=ann").await.text.contains("scope=users"));
    let users = visitors[1].0.get("/search?scope=users&search=ann").await;
    assert!(users.text.contains("href=\"/ann\""), "{users}");
    let short = anonymous.get("/search?scope=issues&search=le").await;
    assert!(short.text.contains("Type at least three characters."), "{short}");
    for odd in
        ["%00", "%00%00%00", "%01%01%01", "%22%27%25_%5C", "%F0%9F%9A%80%F0%9F%9A%80%F0%9F%9A%80", "AND", "x*%22"]
    {
        for scope in ["projects", "issues", "blobs", "nothing"] {
            let page = anonymous.get(&format!("/search?scope={scope}&search={odd}&project_id=1")).await;
            assert_eq!(page.code(), 200, "{scope} {odd}: {page}");
        }
    }
    let hostile = anonymous.get("/search?search=%22%3E%3Cscript%3E").await;
    assert!(!hostile.text.contains("<script>"), "{hostile}");
}

#[tokio::test]
async fn the_code_and_the_commits_of_a_project_are_searched() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    forge.user("bob").await;
    let gil = forge.user("gil").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 0 })).await;
    ann.make("/projects/1/members", json!({ "user_id": gil.id.get(), "access_level": 10 })).await;
    let local = LocalRepository::new();
    local.write("src/engine.rs", "fn start() {}\nfn Ignite_Engine() { <b>now</b> }\n");
    local.write("binary", "ignite\0");
    local.commit_file("ignite.txt", "nothing\n");
    forge.push_all(&ann, ProjectId::new(1), &local).await;

    let owner = forge.signed_in_browser("ann").await;
    let page = owner.get("/search?search=ignite&project=ann/rocket").await;
    assert_eq!(page.code(), 200, "{page}");
    for part in [
        "/ann/rocket/-/blob/master/src/engine.rs#L2\">2</a>",
        "fn Ignite_Engine() { &lt;b&gt;now&lt;/b&gt; }",
        "href=\"/ann/rocket/-/blob/master/ignite.txt\"",
    ] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    assert!(!page.text.contains("blob/master/binary"), "{page}");
    let message = local.git(&["log", "-1", "--format=%s"]);
    let commits = owner.get(&format!("/search?scope=commits&project_id=1&search={}", message.replace(' ', "+"))).await;
    assert!(commits.text.contains("/ann/rocket/-/commit/"), "{commits}");
    let nothing = owner.get("/search?scope=commits&project_id=1&search=nothing+like+this").await;
    assert!(nothing.text.contains("Nothing matches"), "{nothing}");
    for visitor in [forge.browser(), forge.signed_in_browser("bob").await] {
        for path in [
            "/search?search=ignite&project=ann/rocket",
            "/search?search=&project_id=1",
            "/search?search=ignite&project=no/thing",
        ] {
            assert_eq!(visitor.get(path).await.code(), 404, "{path}");
        }
    }
    let guest = forge.signed_in_browser("gil").await;
    let code = guest.get("/search?search=ignite&project=ann/rocket&scope=blobs").await;
    assert_eq!(code.code(), 403, "guests do not see the code");
    let issues = guest.get("/search?search=ignite&project=ann/rocket").await;
    assert_eq!(issues.code(), 200);
    assert!(issues.text.contains("Nothing matches") && !issues.text.contains("engine.rs"), "{issues}");
}

#[tokio::test]
async fn the_search_box_of_a_project_searches_the_project() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.make("/projects", json!({ "name": "empty", "visibility_level": 20 })).await;
    ann.make("/projects/2/issues", json!({ "title": "A leak" })).await;
    let local = LocalRepository::new();
    local.commit_file("src/main.rs", "fn launch() {}\n");
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    let visitor = forge.browser();
    for page in ["/ann/rocket", "/ann/rocket/-/issues", "/ann/rocket/-/blob/master/src/main.rs"] {
        let page = visitor.get(page).await;
        assert!(page.text.contains("<input type=\"hidden\" name=\"project\" value=\"ann/rocket\">"), "{page}");
        assert!(page.text.contains("aria-label=\"Search this project\""), "{page}");
    }
    for page in ["/explore", "/ann", "/ann/missing", "/ann/rocket/-/issues/99"] {
        let page = visitor.get(page).await;
        assert!(page.text.contains("aria-label=\"Search\""), "{page}");
        assert!(!page.text.contains("name=\"project\""), "{page}");
    }
    let found = visitor.get("/search?project=ann/rocket&search=launch").await;
    assert!(found.text.contains("fn launch() {}"), "{found}");
    assert!(
        found.text.contains("<a href=\"/search?scope=projects&#38;search=launch\">Search everywhere</a>"),
        "{found}"
    );
    // A project without code is searched for issues.
    let found = visitor.get("/search?project=ann/empty&search=leak").await;
    assert!(found.text.contains("A leak") && !found.text.contains("scope=blobs"), "{found}");
    assert!(found.text.contains("/search?scope=issues&#38;search=leak\">Search everywhere"), "{found}");
}
