//! Creating, changing, uploading and deleting files with forms.

use axum::http::Method;
use model::ProjectId;
use serde_json::json;
use testkit::{
    LocalRepository, TestClient, TestForge, TestResponse,
    browser::{Browser, form_token},
};

const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");

/// A forge with the private project `ann/rocket`, of which `dan` is a developer and `rob` a reporter. `master` is protected.
async fn start() -> (TestForge, TestClient) {
    let forge = TestForge::start().await;
    let (ann, dan, rob) = (forge.user("ann").await, forge.user("dan").await, forge.user("rob").await);
    ann.make("/projects", json!({ "name": "rocket" })).await;
    for (user, level) in [(&dan, 30), (&rob, 20)] {
        ann.make("/projects/1/members", json!({ "user_id": user.id.get(), "access_level": level })).await;
    }
    let local = LocalRepository::new();
    local.write("src/main.rs", "fn main() {}\n");
    local.write("windows.txt", "one\r\ntwo\r\n");
    local.write("data.bin", [0_u8, 1]);
    local.commit_file("README.md", "# Rocket\n");
    local.git(&["branch", "topic"]);
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    (forge, ann)
}

/// Returns the value of a hidden field.
fn hidden(page: &TestResponse, name: &str) -> String {
    let marker = format!("name=\"{name}\" value=\"");
    let start = page.text.find(&marker).unwrap_or_else(|| panic!("no {name}: {page}")) + marker.len();
    page.text[start..].split('"').next().unwrap_or_default().to_owned()
}

/// Opens a form, fills in some fields and submits it.
async fn submit(browser: &Browser, form: &str, to: &str, fields: &[(&str, &str)]) -> TestResponse {
    let page = browser.get(form).await;
    assert_eq!(page.code(), 200, "{page}");
    let (token, blob) = (form_token(&page.text), hidden(&page, "blob"));
    post(browser, to, &token, &blob, fields).await
}

async fn post(browser: &Browser, to: &str, token: &str, blob: &str, fields: &[(&str, &str)]) -> TestResponse {
    let all: Vec<(&str, &str)> =
        [("form_token", token), ("blob", blob)].into_iter().chain(fields.iter().copied()).collect();
    browser.post(to, &[SAME_ORIGIN], &all).await
}

async fn raw(browser: &Browser, location: &str) -> String {
    browser.get(&format!("/ann/rocket/-/raw/{location}")).await.text
}

#[tokio::test]
async fn a_developer_creates_changes_and_deletes_a_file() {
    let (forge, ann) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let new = "/ann/rocket/-/new/topic/src";
    let form = dan.get(new).await;
    assert!(form.text.contains("value=\"src/\"") && form.text.contains("value=\"topic\""), "{form}");
    let fields = [("path", "src/<new>.rs"), ("content", "a\r\nb\r\n"), ("message", "Add it"), ("branch", "topic")];
    let created = submit(&dan, new, new, &fields).await;
    assert_eq!((created.code(), created.header("location")), (303, "/ann/rocket/-/blob/topic/src/%3Cnew%3E.rs"));
    assert_eq!(raw(&dan, "topic/src/%3Cnew%3E.rs").await, "a\nb\n");
    let commits = ann.get("/projects/1/repository/commits?ref_name=topic").await.json();
    assert_eq!((&commits[0]["title"], &commits[0]["author_name"]), (&json!("Add it"), &json!("dan")));

    let edit = "/ann/rocket/-/edit/topic/src/%3Cnew%3E.rs";
    assert!(dan.get("/ann/rocket/-/blob/topic/src/%3Cnew%3E.rs").await.text.contains(&format!("href=\"{edit}\"")));
    let fields = [("path", "src/other.rs"), ("content", "a\r\nc\r\n"), ("message", "Rename it"), ("branch", "topic")];
    let moved = submit(&dan, edit, edit, &fields).await;
    assert_eq!((moved.code(), moved.header("location")), (303, "/ann/rocket/-/blob/topic/src/other.rs"));
    assert_eq!(raw(&dan, "topic/src/other.rs").await, "a\nc\n");
    assert_eq!(dan.get("/ann/rocket/-/raw/topic/src/%3Cnew%3E.rs").await.code(), 404);

    let edit = "/ann/rocket/-/edit/topic/src/other.rs";
    let deleted =
        submit(&dan, edit, "/ann/rocket/-/delete/topic/src/other.rs", &[("message", "Delete"), ("branch", "topic")])
            .await;
    assert_eq!((deleted.code(), deleted.header("location")), (303, "/ann/rocket/-/tree/topic"));
    assert_eq!(dan.get("/ann/rocket/-/raw/topic/src/other.rs").await.code(), 404);
}

#[tokio::test]
async fn line_endings_are_kept() {
    let (forge, _) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let edit = "/ann/rocket/-/edit/topic/windows.txt";
    let fields = [("path", "windows.txt"), ("content", "one\r\nnew\r\ntwo"), ("message", "x"), ("branch", "topic")];
    assert_eq!(submit(&dan, edit, edit, &fields).await.code(), 303);
    assert_eq!(raw(&dan, "topic/windows.txt").await, "one\r\nnew\r\ntwo");
}

#[tokio::test]
async fn a_file_is_uploaded_and_replaced() {
    let (forge, _) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let upload = async |page: &str, path: &str, name: &str, content: &str| {
        let form = dan.get(page).await;
        let fields = [
            ("form_token", form_token(&form.text)),
            ("blob", hidden(&form, "blob")),
            ("path", path.to_owned()),
            ("message", "Upload".to_owned()),
            ("branch", "topic".to_owned()),
        ];
        let mut body = String::new();
        for (name, value) in fields {
            body += &format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        }
        body += &format!(
            "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n--x--\r\n"
        );
        let headers = [SAME_ORIGIN, ("content-type", "multipart/form-data; boundary=x")];
        dan.send(Method::POST, page, &headers, &body).await
    };
    let created = upload("/ann/rocket/-/new/topic/src", "src/", "..\\logo.bin", "\0 1\r\n").await;
    assert_eq!(
        (created.code(), created.header("location")),
        (303, "/ann/rocket/-/blob/topic/src/logo.bin"),
        "{created}"
    );
    assert_eq!(raw(&dan, "topic/src/logo.bin").await, "\0 1\r\n");
    let edit = "/ann/rocket/-/edit/topic/data.bin";
    assert!(dan.get(edit).await.text.contains("cannot be edited as text"));
    assert_eq!(upload(edit, "data.bin", "x", "\0 2").await.code(), 303);
    assert_eq!(raw(&dan, "topic/data.bin").await, "\0 2");
    let large = upload("/ann/rocket/-/new/topic", "large", "x", &"x".repeat(9 << 20)).await;
    assert_eq!(large.code(), 413);
    // Without a file, there is nothing to change.
    let empty = submit(&dan, edit, edit, &[("path", "data.bin"), ("message", "x"), ("branch", "topic")]).await;
    assert_eq!(empty.code(), 422);
    assert!(
        empty.text.contains("Content can&#39;t be blank") || empty.text.contains("Content can&#x27;t be blank"),
        "{empty}"
    );
}

#[tokio::test]
async fn a_change_by_someone_else_is_not_overwritten() {
    let (forge, ann) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let edit = "/ann/rocket/-/edit/topic/src/main.rs";
    let form = dan.get(edit).await;
    let (token, blob) = (form_token(&form.text), hidden(&form, "blob"));
    let change =
        json!({ "file_path": "src/main.rs", "branch_name": "topic", "content": "<theirs>", "commit_message": "x" });
    assert_eq!(ann.put("/projects/1/repository/files", change).await.code(), 200);
    let fields = [("path", "src/main.rs"), ("content", "<mine>"), ("message", "Mine"), ("branch", "topic")];
    let refused = post(&dan, edit, &token, &blob, &fields).await;
    assert_eq!(refused.code(), 422);
    for part in ["The file was changed after this form was opened", "&lt;theirs&gt;", "&#60;mine&#62;"] {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    assert_eq!(raw(&dan, "topic/src/main.rs").await, "<theirs>");
    // The form now has the current version, so that the visitor can decide.
    let saved = post(&dan, edit, &form_token(&refused.text), &hidden(&refused, "blob"), &fields).await;
    assert_eq!(saved.code(), 303);
    assert_eq!(raw(&dan, "topic/src/main.rs").await, "<mine>");
    let deletion = [("message", "x"), ("branch", "topic")];
    let deleted = post(&dan, "/ann/rocket/-/delete/topic/src/main.rs", &token, &blob, &deletion).await;
    assert_eq!(deleted.code(), 422);
}

#[tokio::test]
async fn a_protected_branch_needs_another_branch() {
    let (forge, _) = start().await;
    let (dan, rob) = (forge.signed_in_browser("dan").await, forge.signed_in_browser("rob").await);
    let edit = "/ann/rocket/-/edit/master/README.md";
    let fields = |branch| [("path", "README.md"), ("content", "# <New>\r\n"), ("message", "x"), ("branch", branch)];
    let refused = submit(&dan, edit, edit, &fields("master")).await;
    assert_eq!(refused.code(), 422);
    assert!(
        refused.text.contains("not allowed to push into this branch") && refused.text.contains("# &#60;New&#62;"),
        "{refused}"
    );
    let saved = submit(&dan, edit, edit, &fields("dan/patch")).await;
    assert_eq!((saved.code(), saved.header("location")), (303, "/ann/rocket/-/blob/dan/patch/README.md"), "{saved}");
    assert_eq!(raw(&dan, "dan/patch/README.md").await, "# <New>\n");
    assert_eq!(raw(&dan, "master/README.md").await, "# Rocket\n");
    // A reporter may not change anything.
    for page in [edit, "/ann/rocket/-/new/master"] {
        assert_eq!(rob.get(page).await.code(), 403, "{page}");
    }
    assert!(!rob.get("/ann/rocket/-/blob/master/README.md").await.text.contains(edit));
    assert!(!rob.get("/ann/rocket").await.text.contains("/-/new/"));
}

#[tokio::test]
async fn invalid_forms_keep_what_was_typed() {
    let (forge, ann) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let new = "/ann/rocket/-/new/topic";
    for (path, message, branch, expected) in [
        ("", "x", "topic", "id=\"path-error\""),
        ("a", " ", "topic", "id=\"message-error\""),
        ("a", "x", "a b", "id=\"branch-error\""),
        ("README.md", "x", "topic", "already exists"),
        ("../x", "x", "topic", "directory traversal"),
        (".git/config", "x", "topic", "not one that a repository may hold"),
    ] {
        let fields = [("path", path), ("content", "typed <text>"), ("message", message), ("branch", branch)];
        let refused = submit(&dan, new, new, &fields).await;
        assert_eq!(refused.code(), 422, "{path} {refused}");
        assert!(
            refused.text.contains(expected) && refused.text.contains("typed &#60;text&#62;"),
            "{expected}: {refused}"
        );
    }
    for missing in
        ["new/gone", "new/topic/gone", "edit/topic/gone", "edit/topic", "edit/topic/src", "new/topic/README.md"]
    {
        assert_eq!(dan.get(&format!("/ann/rocket/-/{missing}")).await.code(), 404, "{missing}");
    }
    // Without the token of the form, nothing is accepted.
    let forged = dan.post(new, &[SAME_ORIGIN], &[("path", "x"), ("message", "x"), ("branch", "topic")]).await;
    assert_eq!(forged.code(), 403);
    // The first file of an empty repository.
    ann.make("/projects", json!({ "name": "empty" })).await;
    let owner = forge.signed_in_browser("ann").await;
    assert!(owner.get("/ann/empty").await.text.contains("href=\"/ann/empty/-/new/master\""));
    let fields = [("path", "README.md"), ("content", "# Hello"), ("message", "Start"), ("branch", "master")];
    let created = submit(&owner, "/ann/empty/-/new/master", "/ann/empty/-/new/master", &fields).await;
    assert_eq!(created.code(), 303, "{created}");
    assert!(owner.get("/ann/empty").await.text.contains("Hello</h2>"));
}

#[tokio::test]
async fn a_form_with_a_small_file_is_read_as_one_with_uploads() {
    let (forge, _) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let new = "/ann/rocket/-/new/topic";
    let headers = [("sec-fetch-site", "same-origin"), ("content-type", "multipart/form-data; boundary=b")];
    // The token comes first, so that nothing of a forged request is kept in memory.
    let part =
        |header: &str, value: &str| format!("--b\r\nContent-Disposition: form-data; {header}\r\n\r\n{value}\r\n");
    let file = part("name=\"file\"; filename=\"a.txt\"", "a");
    let forged = dan.send(Method::POST, new, &headers, &format!("{file}--b--\r\n")).await;
    assert_eq!(forged.code(), 403, "{forged}");
    let broken = dan.send(Method::POST, new, &headers, "--b\r\nContent-Disp").await;
    assert_eq!(broken.code(), 400, "{broken}");
    let parts: String = (0..300).map(|number| part(&format!("name=\"x{number}\""), "x")).collect();
    let many = dan.send(Method::POST, new, &headers, &format!("{parts}--b--\r\n")).await;
    assert_eq!(many.code(), 413, "{many}");
    let anonymous = forge.browser().send(Method::POST, new, &headers, &format!("{file}--b--\r\n")).await;
    assert_eq!(anonymous.code(), 303, "{anonymous}");
}
