//! The pages of issues.

use serde_json::json;
use testkit::{
    TestForge,
    browser::{Browser, form_token},
};

const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");
const ISSUES: &str = "/ann/rocket/-/issues";

/// A forge with the public project `ann/rocket`, of which `dan` is a developer and `bob` is no member.
async fn start() -> TestForge {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    forge.user("bob").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
    forge
}

/// Opens a page and submits its form.
async fn submit(browser: &Browser, page: &str, to: &str, fields: &[(&str, &str)]) -> testkit::TestResponse {
    let token = form_token(&browser.get(page).await.text);
    let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("form_token", token.as_str())]).collect();
    browser.post(to, &[SAME_ORIGIN], &fields).await
}

#[tokio::test]
async fn a_user_reports_an_issue_and_others_comment() {
    let forge = start().await;
    let (bob, dan) = (forge.signed_in_browser("bob").await, forge.signed_in_browser("dan").await);
    let new = format!("{ISSUES}/new");
    let fields = [("title", " It <b>leaks</b> "), ("description", "Some **fuel**\r\n\r\n<script>alert(1)</script>")];
    let created = submit(&bob, &new, ISSUES, &fields).await;
    assert_eq!((created.code(), created.header("location")), (303, &*format!("{ISSUES}/1")));
    let page = bob.get(&format!("{ISSUES}/1")).await;
    for part in ["It &lt;b&gt;leaks&lt;/b&gt;", "<strong>fuel</strong>", ">open</span>", "Close issue"] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    assert!(!page.text.contains("<script>"), "{page}");
    let issue = format!("{ISSUES}/1");
    let commented = submit(&dan, &issue, &format!("{issue}/notes"), &[("note", "Where?")]).await;
    assert_eq!((commented.code(), commented.header("location")), (303, &*format!("{issue}#end")));
    let closed = submit(&dan, &issue, &format!("{issue}/notes"), &[("note", "Mended."), ("state", "close")]).await;
    assert_eq!(closed.code(), 303);
    let page = forge.browser().get(&issue).await;
    for part in ["<p>Where?</p>", "<p>Mended.</p>", ">closed</span>", "to comment."] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    assert!(!page.text.contains("<textarea"), "{page}");
    let reopened = submit(&bob, &issue, &format!("{issue}/notes"), &[("note", ""), ("state", "reopen")]).await;
    assert_eq!(reopened.code(), 303);
    assert!(bob.get(&issue).await.text.contains(">open</span>"));
}

#[tokio::test]
async fn invalid_forms_keep_what_was_typed() {
    let forge = start().await;
    let bob = forge.signed_in_browser("bob").await;
    let new = format!("{ISSUES}/new");
    let refused =
        submit(&bob, &new, ISSUES, &[("title", "  "), ("description", "typed <text>"), ("confidential", "1")]).await;
    assert_eq!(refused.code(), 422);
    for part in ["Title can&#39;t be blank", "typed &#60;text&#62;</textarea>", "value=\"1\" checked"] {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    submit(&bob, &new, ISSUES, &[("title", "x")]).await;
    let issue = format!("{ISSUES}/1");
    let long = "x".repeat(100_001);
    let refused = submit(&bob, &issue, &format!("{issue}/notes"), &[("note", &long)]).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("is too long") && refused.text.contains(&long), "{}", refused.code());
    let empty = submit(&bob, &issue, &format!("{issue}/notes"), &[("note", " ")]).await;
    assert_eq!(empty.code(), 422);
    // A form without its token changes nothing.
    let forged = bob.post(ISSUES, &[SAME_ORIGIN], &[("title", "forged")]).await;
    assert_eq!(forged.code(), 403);
    assert!(!bob.get(ISSUES).await.text.contains("forged"));
    let anonymous = forge.browser().post(ISSUES, &[SAME_ORIGIN], &[("title", "forged")]).await;
    assert_eq!(anonymous.code(), 303);
}

#[tokio::test]
async fn confidential_issues_are_hidden_like_missing_ones() {
    let forge = start().await;
    let (bob, dan) = (forge.signed_in_browser("bob").await, forge.signed_in_browser("dan").await);
    let ann = forge.signed_in_browser("ann").await;
    submit(&ann, &format!("{ISSUES}/new"), ISSUES, &[("title", "a secret leak"), ("confidential", "1")]).await;
    for (visitor, is_visible) in [(&forge.browser(), false), (&bob, false), (&dan, true), (&ann, true)] {
        assert_eq!(visitor.get(&format!("{ISSUES}/1")).await.code(), if is_visible { 200 } else { 404 });
        let list = visitor.get(&format!("{ISSUES}?state=all")).await;
        assert_eq!(list.text.contains("a secret leak"), is_visible, "{list}");
    }
    assert_eq!(ann.get(&format!("{ISSUES}/1")).await.header("cache-control"), "no-store");
    let reply = submit(&bob, "/explore", &format!("{ISSUES}/1/notes"), &[("note", "x")]).await;
    assert_eq!(reply.code(), 404);
    for odd in ["0", "x", "-1", "99999999999999999999", "1%00"] {
        assert_eq!(ann.get(&format!("{ISSUES}/{odd}")).await.code(), 404, "{odd}");
    }
}

#[tokio::test]
async fn issues_are_filtered_and_sorted() {
    let forge = start().await;
    let owner = forge.signed_in_browser("ann").await;
    let eve = forge.user("eve").await;
    for title in ["alpha", "beta", "gamma"] {
        eve.make("/projects/1/issues", json!({ "title": title })).await;
    }
    submit(&owner, &format!("{ISSUES}/2"), &format!("{ISSUES}/2/notes"), &[("note", ""), ("state", "close")]).await;
    let visitor = forge.browser();
    let titles = async |query: &str| {
        let page = visitor.get(&format!("{ISSUES}?{query}")).await;
        assert_eq!(page.code(), 200, "{page}");
        let found = ["alpha", "beta", "gamma"]
            .into_iter()
            .filter_map(|title| page.text.find(&format!("<bdi>{title}</bdi>")).map(|at| (at, title)));
        let mut found: Vec<(usize, &str)> = found.collect();
        found.sort_unstable();
        found.into_iter().map(|(_, title)| title).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(titles("").await, "gamma alpha");
    assert_eq!(titles("sort=created_asc").await, "alpha gamma");
    assert_eq!(titles("state=closed").await, "beta");
    assert_eq!(titles("state=all&search=ALPH").await, "alpha");
    assert_eq!(titles("label_name=bug").await, "");
    assert_eq!(titles("milestone_title=x%00y").await, "");
    assert_eq!(titles("search=%00").await, "gamma alpha");
    assert!(visitor.get(ISSUES).await.text.contains("<span class=\"count\">2</span>"));
    assert!(!visitor.get(ISSUES).await.text.contains("New issue"), "visitors who are not signed in cannot create one");
}

#[tokio::test]
async fn the_issues_of_a_group_are_those_that_the_visitor_can_see() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 20 })).await;
    for (name, visibility) in [("open", 20), ("closed", 0)] {
        let project = json!({ "name": name, "namespace_id": group, "visibility_level": visibility });
        let id = ann.make("/projects", project).await;
        let issue = json!({ "title": format!("a leak in {name}"), "labels": "bug" });
        ann.make(&format!("/projects/{id}/issues"), issue).await;
        ann.make(&format!("/projects/{id}/issues"), json!({ "title": format!("an idea for {name}") })).await;
    }
    let (owner, visitor) = (forge.signed_in_browser("ann").await, forge.browser());
    let page = owner.get("/groups/acme/-/issues").await;
    for title in ["a leak in open", "an idea for open", "a leak in closed", "an idea for closed"] {
        assert!(page.text.contains(title), "{title}: {page}");
    }
    let page = visitor.get("/groups/acme/-/issues").await;
    assert!(
        page.text.contains("<a class=\"strong\" href=\"/acme/open/-/issues/1\"><bdi>a leak in open</bdi></a>"),
        "{page}"
    );
    assert!(!page.text.contains("a leak in closed"), "{page}");
    let page = visitor.get("/groups/acme/-/issues?label_name=bug").await;
    assert!(page.text.contains("a leak in open") && !page.text.contains("an idea for open"), "{page}");
    assert!(page.text.contains("name=\"label_name\" value=\"bug\""), "{page}");
    assert_eq!(visitor.get("/groups/missing/-/issues").await.code(), 404);
}
