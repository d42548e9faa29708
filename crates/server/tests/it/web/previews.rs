//! Previews of texts that are written as Markdown.

use model::ProjectId;
use serde_json::json;
use testkit::{LocalRepository, TestClient, TestForge, TestResponse, browser::Browser};

const PROJECT: &str = "/ann/rocket/-";
const TEXT: &str = "**bold** #1 @ann <script>alert(1)</script> #2";

/// A forge with the project `ann/rocket` with code, a tag, a commit, issue 1 and the confidential issue 2, of which `dan` is a
/// developer and `gus` a guest.
async fn start() -> (TestForge, TestClient, String) {
    let forge = TestForge::start().await;
    let (ann, dan, gus) = (forge.user("ann").await, forge.user("dan").await, forge.user("gus").await);
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    for (user, level) in [(&dan, 40), (&gus, 10)] {
        ann.make("/projects/1/members", json!({ "user_id": user.id.get(), "access_level": level })).await;
    }
    ann.make("/projects/1/issues", json!({ "title": "It leaks", "description": "stored" })).await;
    ann.make("/projects/1/issues", json!({ "title": "Hidden", "confidential": true })).await;
    ann.make("/projects/1/milestones", json!({ "title": "1.0", "description": "stored" })).await;
    ann.make("/projects/1/issues/1/notes", json!({ "body": "stored" })).await;
    let local = LocalRepository::new();
    let commit = local.commit_file("docs/guide.md", "# Guide\n");
    local.git(&["tag", "v1"]);
    local.git(&["branch", "topic"]);
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    (forge, ann, commit)
}

/// Returns the rendered text of a page.
#[track_caller]
fn preview(page: &TestResponse) -> &str {
    assert_eq!(page.code(), 200, "{page}");
    let start = page.text.find("id=\"preview\"").unwrap_or_else(|| panic!("no preview: {page}"));
    page.text[start..].split("</section>").next().unwrap_or_default()
}

async fn request(browser: &Browser, page: &str, to: &str, fields: &[(&str, &str)]) -> TestResponse {
    let opened = browser.get(page).await;
    assert!(opened.text.contains("name=\"preview\"") && !opened.text.contains("id=\"preview\""), "{page}: {opened}");
    let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("preview", "1")]).collect();
    browser.submit(page, to, &fields).await
}

#[tokio::test]
async fn a_preview_shows_the_text_as_the_page_will_and_stores_nothing() {
    let (forge, ann, commit) = start().await;
    let (dan, gus) = (forge.signed_in_browser("dan").await, forge.signed_in_browser("gus").await);
    let issue = format!("{PROJECT}/issues/1");
    let (issues, milestones) = (format!("{PROJECT}/issues"), format!("{PROJECT}/milestones"));
    let (commit, release) = (format!("{PROJECT}/commit/{commit}"), format!("{PROJECT}/tags/v1/release"));
    for (page, to, field) in [
        (format!("{issues}/new"), issues.clone(), "description"),
        (format!("{issue}/edit"), issue.clone(), "description"),
        (issue.clone(), format!("{issue}/notes"), "note"),
        (format!("{issue}/notes/1/edit"), format!("{issue}/notes/1"), "note"),
        (format!("{milestones}/new"), milestones.clone(), "description"),
        (format!("{milestones}/1/edit"), format!("{milestones}/1"), "description"),
        (commit.clone(), format!("{commit}/notes"), "note"),
        (format!("{release}/edit"), release.clone(), "description"),
    ] {
        let fields = [("form", "issue"), ("title", "typed <title>"), (field, TEXT)];
        let shown = request(&dan, &page, &to, &fields).await;
        let html = preview(&shown);
        for part in ["<strong>bold</strong>", "href=\"/ann/rocket/-/issues/1\"", "href=\"/ann\"", "issues/2\""] {
            assert!(html.contains(part), "{page}: {part}: {html}");
        }
        assert!(!html.contains("<script>"), "{html}");
        assert!(shown.text.contains("**bold** #1 @ann &#60;script&#62;"), "{page}: {shown}");
        assert_eq!(
            shown.text.contains("typed &#60;title&#62;"),
            shown.text.contains("id=\"title\""),
            "{page}: {shown}"
        );
    }
    // References are those that the visitor can see.
    let shown = request(&gus, &format!("{issues}/new"), &issues, &[("description", TEXT)]).await;
    let html = preview(&shown);
    assert!(html.contains("/issues/1\"") && !html.contains("/issues/2\""), "{html}");
    // Nothing was stored.
    assert_eq!(ann.get("/projects/1/issues").await.json().as_array().map(Vec::len), Some(2));
    assert_eq!(ann.get("/projects/1/issues/1").await.json()["description"], "stored");
    let notes = ann.get("/projects/1/issues/1/notes").await.json();
    assert_eq!((notes.as_array().map(Vec::len), &notes[0]["body"]), (Some(1), &json!("stored")));
    let milestones = ann.get("/projects/1/milestones").await.json();
    assert_eq!((milestones.as_array().map(Vec::len), &milestones[0]["description"]), (Some(1), &json!("stored")));
    assert!(ann.get("/projects/1/repository/tags/v1").await.json()["release"].is_null());
    assert!(!dan.get(&commit).await.text.contains("class=\"comment\""));
}

#[tokio::test]
async fn a_form_with_a_preview_keeps_the_other_fields() {
    let (forge, _, _) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let issues = format!("{PROJECT}/issues");
    let fields = [
        ("form", "issue"),
        ("title", "New"),
        ("description", "text"),
        ("managed", "1"),
        ("assignee", "dan"),
        ("milestone_id", "1"),
        ("due_date", "2030-01-02"),
        ("file", "chosen.png"),
    ];
    let shown = request(&dan, &format!("{issues}/new"), &issues, &fields).await;
    for part in ["value=\"New\"", "value=\"dan\"", "value=\"1\" selected", "value=\"2030-01-02\"", "choose them again"]
    {
        assert!(shown.text.contains(part), "{part}: {shown}");
    }
    // The form with the preview can be saved.
    let fields = [("form", "issue"), ("title", "New"), ("description", "text")];
    let saved = dan.submit(&format!("{issues}/new"), &issues, &fields).await;
    assert_eq!((saved.code(), saved.header("location")), (303, &*format!("{issues}/3")));
    // The rights are those of the form.
    assert_eq!(forge.browser().post(&issues, &[], &[("preview", "1")]).await.code(), 303);
    let gus = forge.signed_in_browser("gus").await;
    let refused = gus.submit("/explore", &format!("{PROJECT}/milestones"), &[("preview", "1")]).await;
    assert_eq!(refused.code(), 403, "{refused}");
}

#[tokio::test]
async fn a_markdown_file_is_shown_before_it_is_committed() {
    let (forge, ann, _) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let edit = format!("{PROJECT}/edit/topic/docs/guide.md");
    let opened = dan.get(&edit).await;
    let marker = "name=\"blob\" value=\"";
    let blob = opened.text.split(marker).nth(1).and_then(|rest| rest.split('"').next()).expect("a blob").to_owned();
    let change =
        json!({ "file_path": "docs/guide.md", "branch_name": "topic", "content": "theirs", "commit_message": "x" });
    assert_eq!(ann.put("/projects/1/repository/files", change).await.code(), 200);
    let fields = [
        ("blob", blob.as_str()),
        ("path", "docs/guide.md"),
        ("content", "# New\r\n\r\n[other](other.md) #1"),
        ("message", "typed message"),
        ("branch", "topic"),
        ("preview", "1"),
    ];
    let shown = dan.submit(&edit, &edit, &fields).await;
    let html = preview(&shown);
    for part in ["New</h2>", "/ann/rocket/-/blob/topic/docs/other.md", "/issues/1\""] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(shown.text.contains("typed message</textarea>") && shown.text.contains("# New"), "{shown}");
    // The form still has the version that the visitor knows, so the change of somebody else is not overwritten.
    assert!(shown.text.contains(&format!("{marker}{blob}\"")), "{shown}");
    assert_eq!(dan.get(&format!("{PROJECT}/raw/topic/docs/guide.md")).await.text, "theirs");
    let conflict = dan.submit(&edit, &edit, &fields[..5]).await;
    assert_eq!(conflict.code(), 422, "{conflict}");
    let new = format!("{PROJECT}/new/topic");
    let fields =
        [("path", "notes.txt"), ("content", "*plain*"), ("message", "x"), ("branch", "topic"), ("preview", "1")];
    let plain = dan.submit(&new, &new, &fields).await;
    assert!(preview(&plain).contains("*plain*"), "{plain}");
    assert_eq!(dan.get(&format!("{PROJECT}/raw/topic/notes.txt")).await.code(), 404);
}
