//! Files that are attached in forms, and their download with the session of a browser.

use serde_json::json;
use testkit::TestForge;

const ISSUES: &str = "/ann/rocket/-/issues";

/// A forge with the private project `ann/rocket`, of which `gus` is a guest and `bob` is no member.
async fn start(upload_limit: u64) -> TestForge {
    let forge = TestForge::builder().upload_limit(upload_limit).start().await;
    let (ann, gus) = (forge.user("ann").await, forge.user("gus").await);
    forge.user("bob").await;
    ann.make("/projects", json!({ "name": "rocket" })).await;
    ann.make("/projects/1/members", json!({ "user_id": gus.id.get(), "access_level": 10 })).await;
    forge
}

#[tokio::test]
async fn members_see_the_files_of_a_private_project() {
    let forge = start(1 << 20).await;
    let (ann, gus, bob) = (
        forge.signed_in_browser("ann").await,
        forge.signed_in_browser("gus").await,
        forge.signed_in_browser("bob").await,
    );
    let fields = [("title", "A picture"), ("description", "See:")];
    let created = gus.submit_file(&format!("{ISSUES}/new"), ISSUES, &fields, ("photo 1.png", "pixels")).await;
    assert_eq!((created.code(), created.header("location")), (303, &*format!("{ISSUES}/1")), "{created}");
    let page = ann.get(&format!("{ISSUES}/1")).await;
    let source = page.text.split("<img src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an image");
    assert!(source.starts_with("/ann/rocket/uploads/"), "{source}");
    for browser in [&ann, &gus] {
        let file = browser.get(source).await;
        assert_eq!((file.code(), file.text.as_str()), (200, "pixels"));
        assert_eq!((file.header("content-type"), file.header("x-content-type-options")), ("image/png", "nosniff"));
        assert_eq!(file.header("content-security-policy"), "default-src 'none'; sandbox");
        assert_eq!(file.header("cache-control"), "private, no-cache");
    }
    // The page for a hidden file is that for a missing one.
    let (hidden, missing) = (bob.get(source).await, bob.get("/ann/rocket/nowhere").await);
    assert_eq!((hidden.code(), missing.code()), (404, 404));
    assert!(hidden.text.contains("Page not found") && hidden.text.contains("Sign out"), "{hidden}");
    let anonymous = forge.browser().get_with(source, &[("accept", "text/html")]).await;
    assert_eq!(anonymous.code(), 404);
    assert!(anonymous.text.contains("Sign in"), "{anonymous}");
    // A session does not help a token that is not valid.
    let token = [("private-token", "invalid-token-invalid")];
    assert_eq!(ann.get_with(source, &token).await.code(), 404);
}

#[tokio::test]
async fn a_comment_can_be_a_file_that_is_downloaded() {
    let forge = start(1 << 20).await;
    let gus = forge.signed_in_browser("gus").await;
    gus.submit(&format!("{ISSUES}/new"), ISSUES, &[("title", "x")]).await;
    let issue = format!("{ISSUES}/1");
    let script = "<script>alert(1)</script>";
    let added = gus.submit_file(&issue, &format!("{issue}/notes"), &[("note", "")], ("a.html", script)).await;
    assert_eq!(added.code(), 303, "{added}");
    let page = gus.get(&issue).await;
    let url = page.text.split("href=\"/ann/rocket/uploads/").nth(1).and_then(|rest| rest.split('"').next());
    let file = gus.get(&format!("/ann/rocket/uploads/{}", url.expect("a link"))).await;
    assert_eq!((file.code(), file.text.as_str()), (200, script));
    assert_eq!(file.header("content-type"), "application/octet-stream");
    assert!(file.header("content-disposition").starts_with("attachment"), "{file}");
    // A form without a chosen file is as one without a file input.
    let empty = gus.submit_file(&issue, &format!("{issue}/notes"), &[("note", "text only")], ("", "")).await;
    assert_eq!(empty.code(), 303, "{empty}");
    assert!(gus.get(&issue).await.text.contains("<p>text only</p>"));
}

#[tokio::test]
async fn refused_files_are_not_stored() {
    let forge = start(1000).await;
    let (gus, bob) = (forge.signed_in_browser("gus").await, forge.signed_in_browser("bob").await);
    gus.submit(&format!("{ISSUES}/new"), ISSUES, &[("title", "x")]).await;
    let (issue, notes) = (format!("{ISSUES}/1"), format!("{ISSUES}/1/notes"));
    let large = "x".repeat(2000);
    let refused = gus.submit_file(&issue, &notes, &[("note", "typed")], ("large.txt", &large)).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("The file is larger than") && refused.text.contains("typed</textarea>"), "{refused}");
    let hidden = bob.submit_file("/explore", &notes, &[("note", "x")], ("a.txt", "a")).await;
    assert_eq!(hidden.code(), 404, "{hidden}");
    let token = [("note", "x"), ("form_token", "wrong")];
    let forged = gus.post(&notes, &[("sec-fetch-site", "same-origin")], &token).await;
    assert_eq!(forged.code(), 403);
    let body = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\na\r\n--b--\r\n";
    let headers = [("sec-fetch-site", "same-origin"), ("content-type", "multipart/form-data; boundary=b")];
    let forged = gus.send(axum::http::Method::POST, &notes, &headers, body).await;
    assert_eq!(forged.code(), 403, "{forged}");
    let broken = gus.send(axum::http::Method::POST, &notes, &headers, "--b\r\nContent-Disp").await;
    assert_eq!(broken.code(), 400, "{broken}");
    assert!(forge.files().iter().all(|file| !file.contains("uploads")), "{:?}", forge.files());
}
