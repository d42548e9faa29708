//! Markdown that is rendered for clients of the API.

use axum::http::Method;
use insta::assert_snapshot;
use model::ProjectId;
use serde_json::{Value, json};
use testkit::{LocalRepository, TestClient, TestForge};

async fn html(client: &TestClient, body: Value) -> String {
    let answer = client.post("/markdown", body).await;
    assert_eq!(answer.code(), 201, "{answer}");
    answer.json()["html"].as_str().expect("HTML").to_owned()
}

#[tokio::test]
async fn a_text_is_rendered_for_everyone() {
    let forge = TestForge::start().await;
    let anonymous = forge.anonymous();
    assert_snapshot!(anonymous.post("/markdown", json!({ "text": "# Hello\n\n**world** #1 <b onclick=x>!</b>" })).await, @r#"
    201 Created
    {"html":"<h1 id=\"user-content-hello\">Hello</h1>\n<p><strong>world</strong> #1 <b>!</b></p>\n"}
    "#);
    let hostile = "[x](javascript:alert(1))\n\n<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>";
    let rendered = html(&anonymous, json!({ "text": hostile, "gfm": true })).await;
    for bad in ["<script", "javascript", "onerror"] {
        assert!(!rendered.contains(bad), "{rendered}");
    }
    assert!(rendered.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{rendered}");
    assert_eq!(html(&anonymous, json!({ "text": "" })).await, "");
    assert!(html(&anonymous, json!({ "text": "a\u{0}b" })).await.starts_with("<p>a"));
    let form =
        anonymous.body(Method::POST, "/markdown", "application/x-www-form-urlencoded", "text=*a*&gfm=true").await;
    assert_eq!((form.code(), form.json()), (201, json!({ "html": "<p><em>a</em></p>\n" })));
}

#[tokio::test]
async fn references_are_links_to_what_the_caller_can_see() {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.make("/projects", json!({ "name": "hidden" })).await;
    ann.make("/projects/2/issues", json!({ "title": "a hidden issue" })).await;
    ann.make("/projects/1/issues", json!({ "title": "first & only" })).await;
    ann.make("/projects/1/issues", json!({ "title": "a secret", "confidential": true })).await;
    ann.post("/projects/1/labels", json!({ "name": "bug", "color": "#d9534f" })).await;
    ann.make("/projects/1/milestones", json!({ "title": "1.0" })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "a\n");
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    let commit = ann.get("/projects/1/repository/commits").await.json()[0]["id"].as_str().expect("an id").to_owned();
    let text = format!("#1 #2 #9 ann/hidden#1 @dan @nobody ~bug %1 {commit} `#1` [a](/uploads/x/y.png)");
    let in_project = json!({ "text": text, "gfm": true, "project": "ann/rocket" });
    let seen_by_all = [
        "href=\"http://gable.test/ann/rocket/-/issues/1\" title=\"first &amp; only\"",
        "class=\"tag\" href=\"http://gable.test/ann/rocket/-/issues?label_name%5B%5D=bug\"",
        "href=\"http://gable.test/ann/rocket/-/milestones/1\"",
        &format!("href=\"http://gable.test/ann/rocket/-/commit/{commit}\""),
        "href=\"http://gable.test/ann/rocket/uploads/x/y.png\"",
        "<code>#1</code>",
    ];
    let seen_by_ann = ["title=\"a secret\"", "title=\"a hidden issue\""];
    for (client, is_owner, sees_users) in [(&ann, true, true), (&dan, false, true), (&forge.anonymous(), false, false)]
    {
        let rendered = html(client, in_project.clone()).await;
        for part in seen_by_all {
            assert!(rendered.contains(part), "{part}: {rendered}");
        }
        for part in seen_by_ann {
            assert_eq!(rendered.contains(part), is_owner, "{part}: {rendered}");
        }
        assert_eq!(rendered.contains("href=\"http://gable.test/dan\""), sees_users, "{rendered}");
        assert!(!rendered.contains("issues/9") && !rendered.contains("/nobody"), "{rendered}");
    }
    // Without `gfm` nothing is looked up; without a project, only users and groups are.
    let plain = html(&ann, json!({ "text": "#1 @dan", "project": "ann/rocket" })).await;
    assert_eq!(plain, "<p>#1 @dan</p>\n");
    let elsewhere = html(&ann, json!({ "text": format!("#1 ann/rocket#1 ~bug %1 {commit} @dan"), "gfm": true })).await;
    assert_eq!(elsewhere.matches("href=").count(), 1, "{elsewhere}");
    assert!(elsewhere.contains("href=\"http://gable.test/dan\""), "{elsewhere}");
}

#[tokio::test]
async fn a_project_that_the_caller_cannot_see_is_not_found() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let dan = forge.user("dan").await;
    ann.make("/projects", json!({ "name": "hidden" })).await;
    assert_eq!(html(&ann, json!({ "text": "a", "project": "ann/hidden" })).await, "<p>a</p>\n");
    for client in [&dan, &forge.anonymous()] {
        for project in ["ann/hidden", "ann/missing", ""] {
            let answer = client.post("/markdown", json!({ "text": "a", "gfm": true, "project": project })).await;
            assert_eq!(
                (answer.code(), answer.json()),
                (404, json!({ "message": "404 Project Not Found" })),
                "{project}"
            );
        }
    }
}

#[tokio::test]
async fn the_text_is_required_and_limited_in_size() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_snapshot!(ann.post("/markdown", json!({})).await, @r#"
    400 Bad Request
    {"error":"text is missing"}
    "#);
    assert_snapshot!(ann.post("/markdown", json!({ "text": ["a"], "gfm": "perhaps" })).await, @r#"
    400 Bad Request
    {"error":"text is invalid, gfm is invalid"}
    "#);
    assert_snapshot!(ann.post("/markdown", json!({ "text": "a".repeat((512 << 10) + 1) })).await, @r#"
    400 Bad Request
    {"message":{"text":["is too long (maximum is 524288 bytes)"]}}
    "#);
    // A text that would take long is shown as it is.
    let bomb = html(&ann, json!({ "text": "> ".repeat(1000) })).await;
    assert!(bomb.starts_with("<pre class=\"plain\">&gt; &gt; "), "{bomb}");
    let forge = TestForge::builder().body_limit(1000).start().await;
    assert_eq!(forge.anonymous().post("/markdown", json!({ "text": "a".repeat(1000) })).await.code(), 413);
}
