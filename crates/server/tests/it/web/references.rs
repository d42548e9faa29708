//! References in texts: they are links to what the visitor can see, and plain text otherwise.

use model::ProjectId;
use serde_json::json;
use testkit::{LocalRepository, TestForge, TestResponse};

#[track_caller]
fn contains(page: &TestResponse, parts: &[&str]) {
    for part in parts {
        assert!(page.text.contains(part), "{part}: {page}");
    }
}

#[track_caller]
fn lacks(page: &TestResponse, parts: &[&str]) {
    for part in parts {
        assert!(!page.text.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn references_are_links_for_those_who_can_see_their_targets() {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.make("/projects", json!({ "name": "hidden" })).await;
    ann.make("/projects/2/issues", json!({ "title": "a hidden issue" })).await;
    ann.post("/projects/1/labels", json!({ "name": "bug", "color": "#d9534f" })).await;
    ann.post("/projects/1/labels", json!({ "name": "to do", "color": "#5cb85c" })).await;
    ann.make("/projects/1/milestones", json!({ "title": "1.0 \"final\"" })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "See #1 and [a file](LICENSE), `#1`\n");
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    let commit = ann.get("/projects/1/repository/commits").await.json()[0]["id"].as_str().expect("an id").to_owned();
    ann.make("/projects/1/issues", json!({ "title": "first & only" })).await;
    ann.make("/projects/1/issues", json!({ "title": "a secret", "confidential": true })).await;
    let text = format!(
        "#1 #2 #9 ann/hidden#1 ann/missing#1 @dan @nobody ~bug ~\"to do\" ~1 %1 {commit} \\#1 `#1` [#1](x) **#1**\n\n    #1\n"
    );
    ann.make("/projects/1/issues", json!({ "title": "references", "description": text })).await;
    // The issue of the other project has the first id.
    let closed = ann.put("/projects/1/issues/2", json!({ "state_event": "close" })).await;
    assert_eq!(closed.code(), 200, "{closed}");
    let issue = "/ann/rocket/-/issues/3";
    let (public, owner) = (forge.browser().get(issue).await, forge.signed_in_browser("ann").await.get(issue).await);
    let commit_url = format!("href=\"/ann/rocket/-/commit/{commit}\"");
    for page in [&public, &owner] {
        contains(
            page,
            &[
                "href=\"/ann/rocket/-/issues/1\" title=\"first &amp; only\"",
                "<bdi>#1 (closed)</bdi>",
                "class=\"tag\" href=\"/ann/rocket/-/issues?label_name%5B%5D=bug\"",
                "href=\"/ann/rocket/-/milestones/1\"",
                &commit_url,
                "<code>#1</code>",
            ],
        );
        lacks(page, &["/issues/9\"", "ann/missing/", "href=\"/nobody\""]);
        // One for the first, one in bold; none in code, in links, or after a backslash.
        assert_eq!(page.text.matches("href=\"/ann/rocket/-/issues/1\"").count(), 2, "{page}");
    }
    // What a visitor cannot see looks like what does not exist.
    lacks(&public, &["a secret", "a hidden issue", "issues/2\"", "ann/hidden/-/", "href=\"/dan\""]);
    contains(
        &owner,
        &["title=\"a secret\"", "href=\"/ann/hidden/-/issues/1\" title=\"a hidden issue\"", "href=\"/dan\""],
    );
    let dan_sees = forge.signed_in_browser("dan").await.get(issue).await;
    lacks(&dan_sees, &["a secret", "a hidden issue", "ann/hidden/-/"]);
    contains(&dan_sees, &["href=\"/dan\""]);
    drop(dan);
    // The README refers to issues, and its relative links still lead to files.
    let home = forge.browser().get("/ann/rocket").await;
    contains(
        &home,
        &["href=\"/ann/rocket/-/issues/1\"", "href=\"/ann/rocket/-/blob/master/LICENSE\"", "<code>#1</code>"],
    );
    contains(&forge.browser().get("/ann/rocket/-/blob/master/README.md").await, &["href=\"/ann/rocket/-/issues/1\""]);
}

#[tokio::test]
async fn messages_of_commits_and_system_notes_refer_to_issues_and_labels() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.post("/projects/1/labels", json!({ "name": "bug", "color": "#d9534f" })).await;
    ann.make("/projects/1/issues", json!({ "title": "It leaks" })).await;
    ann.put("/projects/1/issues/1", json!({ "labels": "bug" })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "# Rocket\n");
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    local.commit_file("a.txt", "a\n");
    local.git(&["commit", "--amend", "-m", "Mend <it>\n\nFixes #1 & more"]);
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    let commit = ann.get("/projects/1/repository/commits").await.json()[0]["id"].as_str().expect("an id").to_owned();
    let page = forge.browser().get(&format!("/ann/rocket/-/commit/{commit}")).await;
    contains(&page, &["Mend &lt;it&gt;", "href=\"/ann/rocket/-/issues/1\" title=\"It leaks\"", "&amp; more"]);
    let issue = forge.browser().get("/ann/rocket/-/issues/1").await;
    contains(&issue, &["Added <a class=\"tag\"", "<bdi>bug</bdi>", &format!("/-/commit/{commit}\"")]);
}
