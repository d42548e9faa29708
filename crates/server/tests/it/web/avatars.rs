//! Uploaded avatars of users, projects and groups.

use std::fs;

use forge::tasks;
use model::{Scope, avatars::MAX_SIZE};
use serde_json::json;
use testkit::{TestClient, TestForge, TestResponse, browser::Browser};

const PROFILE: &str = "/-/user_settings/profile";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR pixels";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0 pixels";
const GIF: &[u8] = b"GIF89a pixels";
const WEBP: &[u8] = b"RIFF\0\0\0\0WEBPVP8 pixels";

/// A forge with the users `ann` (1) and `bob` (2); `ann`, who is returned, owns the private project `ann/rocket` and the private
/// group `acme`.
async fn start() -> (TestForge, TestClient) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    forge.user("bob").await;
    ann.make("/projects", json!({ "name": "rocket" })).await;
    ann.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 0 })).await;
    (forge, ann)
}

async fn upload(browser: &Browser, page: &str, to: &str, name: &str, content: &[u8]) -> TestResponse {
    browser.submit_file(page, to, &[], (name, content)).await
}

async fn upload_own(browser: &Browser, name: &str, content: &[u8]) -> TestResponse {
    upload(browser, PROFILE, &format!("{PROFILE}/avatar"), name, content).await
}

#[track_caller]
fn is_image(file: &TestResponse, content_type: &str, content: &[u8]) {
    assert_eq!((file.code(), file.bytes.as_slice()), (200, content), "{file}");
    assert_eq!((file.header("content-type"), file.header("x-content-type-options")), (content_type, "nosniff"));
    assert_eq!(file.header("content-security-policy"), "default-src 'none'; sandbox");
    assert_eq!(file.header("content-length"), content.len().to_string());
}

#[tokio::test]
async fn a_user_uploads_replaces_and_removes_an_avatar() {
    let (forge, _) = start().await;
    let ann = forge.signed_in_browser("ann").await;
    let generated = ann.get("/ann").await;
    assert!(generated.text.contains("<img class=\"avatar\" src=\"/-/identicon/"), "{generated}");
    assert!(!ann.get(PROFILE).await.text.contains("Remove avatar"));
    let uploaded = upload_own(&ann, "My face.png", PNG).await;
    assert_eq!((uploaded.code(), uploaded.header("location")), (303, "/-/user_settings/profile?done=avatar"));
    let first = "/uploads/-/system/user/avatar/1/My_face.png";
    for page in ["/ann", PROFILE] {
        let page = ann.get(page).await;
        assert!(page.text.contains(&format!("<img class=\"avatar\" src=\"{first}\" alt=\"\" width=\"80\"")), "{page}");
    }
    // The avatars of users are public, as the generated ones are.
    let file = forge.browser().get(first).await;
    is_image(&file, "image/png", PNG);
    assert_eq!(file.header("cache-control"), "public, max-age=300");
    let etag = file.header("etag").to_owned();
    let cached = forge.browser().get_with(first, &[("if-none-match", &etag)]).await;
    assert_eq!((cached.code(), cached.bytes.len(), cached.header("etag")), (304, 0, etag.as_str()));
    assert_eq!(forge.avatar_files().len(), 1);
    // The file of a replaced avatar is removed, and a file with the same name is another one.
    for (name, content_type, content) in
        [("My face.png", "image/jpeg", JPEG), ("a.gif", "image/gif", GIF), ("a.webp", "image/webp", WEBP)]
    {
        assert_eq!(upload_own(&ann, name, content).await.code(), 303);
        let page = ann.get("/ann").await;
        let url = page
            .text
            .split("<img class=\"avatar\" src=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .expect("an image");
        let file = forge.browser().get(url).await;
        is_image(&file, content_type, content);
        assert_ne!(file.header("etag"), etag);
        assert_eq!(forge.avatar_files().len(), 1, "{name}");
    }
    assert_eq!(forge.browser().get(first).await.code(), 404);
    let profile = ann.get(PROFILE).await;
    assert!(profile.text.contains("Remove avatar"), "{profile}");
    let removed = ann.submit(PROFILE, &format!("{PROFILE}/avatar"), &[("remove", "1")]).await;
    assert_eq!(removed.code(), 303, "{removed}");
    assert!(ann.get("/ann").await.text.contains("<img class=\"avatar\" src=\"/-/identicon/"));
    assert_eq!(forge.avatar_files(), [] as [&str; 0]);
    if !forge.uses_bucket() {
        assert_eq!(fs::read_dir(forge.files_folder().join("avatars")).expect("a folder").count(), 0);
    }
}

#[tokio::test]
async fn files_that_are_no_small_images_are_refused_beside_the_field() {
    let (forge, _) = start().await;
    let ann = forge.signed_in_browser("ann").await;
    let svg = b"<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";
    let large = [PNG, &vec![0; MAX_SIZE + 1 - PNG.len()]].concat();
    let type_message = "Avatar must be a PNG, JPEG, GIF or WebP image";
    let places = [
        (PROFILE, format!("{PROFILE}/avatar")),
        ("/ann/rocket/-/settings/general", "/ann/rocket/-/settings/general/avatar".to_owned()),
        ("/groups/acme/-/edit", "/groups/acme/-/avatar".to_owned()),
    ];
    for (page, to) in &places {
        for (name, content, message) in [
            ("a.png", &svg[..], &*format!("{type_message}; SVG can contain scripts")),
            ("a.svg", svg, type_message),
            ("a.png", b"plain text", type_message),
            ("a.png", b"<html><script>alert(1)</script></html>", type_message),
            ("a.png", b"", "Avatar is an empty file"),
            ("a.png", &large, "Avatar is too big (should be at most 200 KB)"),
            ("", b"", "Avatar is missing: choose a file"),
        ] {
            let refused = upload(&ann, page, to, name, content).await;
            assert_eq!(refused.code(), 422, "{refused}");
            let expected = format!("<p class=\"error\" id=\"avatar-error\">{message}");
            assert!(refused.text.contains(&expected), "{message}: {refused}");
        }
        assert!(!ann.get(page).await.text.contains("Remove avatar"));
    }
    assert_eq!(forge.avatar_files(), [] as [&str; 0]);
    // The largest file that is allowed.
    assert_eq!(upload_own(&ann, "a.png", &large[..MAX_SIZE]).await.code(), 303);
}

#[tokio::test]
async fn the_name_of_a_file_never_becomes_a_path() {
    let (forge, _) = start().await;
    let ann = forge.signed_in_browser("ann").await;
    for (name, expected) in [
        ("../../../etc/passwd", "passwd.png"),
        ("..\\..\\x.png", "x.png"),
        ("..", "_..png"),
        ("x.svg", "x.png"),
        ("a%2f..%2fb.html", "a_2f.._2fb.png"),
        ("Käfer.PNG", "K_fer.png"),
    ] {
        assert_eq!(upload_own(&ann, name, PNG).await.code(), 303);
        let url = format!("/uploads/-/system/user/avatar/1/{expected}");
        let page = ann.get("/ann").await;
        assert!(page.text.contains(&format!("<img class=\"avatar\" src=\"{url}\"")), "{name}: {page}");
        is_image(&ann.get(&url).await, "image/png", PNG);
        let files = forge.avatar_files();
        let [file] = files.as_slice() else { panic!("{files:?}") };
        assert!(file.starts_with("avatars/") && !file.contains(".."), "{file}");
    }
    for path in [
        "/uploads/-/system/user/avatar/2/K_fer.png",
        "/uploads/-/system/user/avatar/1/other.png",
        "/uploads/-/system/user/avatar/1/..%2F1%2FK_fer.png",
        "/uploads/-/system/user/avatar/+1/K_fer.png",
        "/uploads/-/system/user/avatar/99999999999999999999/K_fer.png",
        "/uploads/-/system/project/avatar/1/K_fer.png",
        "/uploads/-/system/group/avatar/1/K_fer.png",
        "/uploads/-/system/runner/avatar/1/K_fer.png",
    ] {
        let missing = ann.get(path).await;
        assert_eq!(missing.code(), 404, "{path}: {missing}");
    }
}

#[tokio::test]
async fn avatars_of_private_projects_and_groups_are_served_to_those_who_can_see_them() {
    let (forge, owner) = start().await;
    let other = forge.user("cara").await;
    let (ann, bob) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("bob").await);
    let settings = "/ann/rocket/-/settings/general";
    let uploaded = upload(&ann, settings, &format!("{settings}/avatar"), "logo.png", PNG).await;
    assert_eq!((uploaded.code(), uploaded.header("location")), (303, settings), "{uploaded}");
    let uploaded = upload(&ann, "/groups/acme/-/edit", "/groups/acme/-/avatar", "logo.gif", GIF).await;
    assert_eq!((uploaded.code(), uploaded.header("location")), (303, "/groups/acme/-/edit"), "{uploaded}");
    let group_id = owner.get("/groups/acme").await.json()["id"].as_i64().expect("an id");
    let (project_url, group_url) = (
        "/uploads/-/system/project/avatar/1/logo.png".to_owned(),
        format!("/uploads/-/system/group/avatar/{group_id}/logo.gif"),
    );
    for (url, page, content_type, content) in
        [(&project_url, "/ann/rocket", "image/png", PNG), (&group_url, "/acme", "image/gif", GIF)]
    {
        let file = ann.get(url).await;
        is_image(&file, content_type, content);
        assert_eq!(file.header("cache-control"), "private, no-cache");
        assert!(ann.get(page).await.text.contains(&format!("<img class=\"avatar\" src=\"{url}\"")));
        // What a visitor cannot see looks like what does not exist.
        for visitor in [&bob, &forge.browser()] {
            let (hidden, missing) = (visitor.get(url).await, visitor.get(&format!("{url}x")).await);
            assert_eq!((hidden.code(), &hidden.text), (404, &missing.text), "{hidden}");
        }
    }
    // Visitors who cannot change a project or a group cannot change its avatar.
    for to in [format!("{settings}/avatar"), "/groups/acme/-/avatar".to_owned()] {
        assert_eq!(upload(&bob, "/explore", &to, "x.png", PNG).await.code(), 404);
        assert_eq!(bob.submit("/explore", &to, &[("remove", "1")]).await.code(), 404);
        let forged = ann.post(&to, &[("sec-fetch-site", "same-origin")], &[("remove", "1")]).await;
        assert_eq!(forged.code(), 403, "{forged}");
    }
    assert_eq!(forge.avatar_files().len(), 2);
    // A client can use its token.
    assert_eq!(owner.page(&project_url).await.bytes, PNG);
    assert_eq!(other.page(&project_url).await.code(), 404);
}

#[tokio::test]
async fn answers_of_the_api_have_the_urls_of_uploaded_avatars() {
    let (forge, ann) = start().await;
    let browser = forge.signed_in_browser("ann").await;
    upload_own(&browser, "ann.png", PNG).await;
    let reader = forge.client_with_token(&ann, &[Scope::ReadUser], None).await;
    is_image(&reader.page("/uploads/-/system/user/avatar/1/ann.png").await, "image/png", PNG);
    let settings = "/ann/rocket/-/settings/general";
    upload(&browser, settings, &format!("{settings}/avatar"), "logo.png", PNG).await;
    upload(&browser, "/groups/acme/-/edit", "/groups/acme/-/avatar", "logo.gif", GIF).await;
    let user = "http://gable.test/uploads/-/system/user/avatar/1/ann.png";
    assert_eq!(ann.get("/user").await.json()["avatar_url"], user);
    assert_eq!(ann.get("/users?username=ann").await.json()[0]["avatar_url"], user);
    assert_eq!(ann.get("/groups/acme/members").await.json()[0]["avatar_url"], user);
    let project = ann.get("/projects/1").await.json();
    assert_eq!(project["avatar_url"], "http://gable.test/uploads/-/system/project/avatar/1/logo.png");
    assert_eq!(project["owner"]["avatar_url"], user);
    assert_eq!(project["namespace"]["avatar"]["url"], json!(null));
    let group = ann.get("/groups/acme").await.json();
    let path = format!("/uploads/-/system/group/avatar/{}/logo.gif", group["id"]);
    assert_eq!(group["avatar_url"], format!("http://gable.test{path}"));
    ann.make("/projects", json!({ "name": "inside", "namespace_id": group["id"] })).await;
    assert_eq!(ann.get("/projects/2").await.json()["namespace"]["avatar"]["url"], path);
    ann.make("/projects/1/issues", json!({ "title": "x" })).await;
    assert_eq!(ann.get("/projects/1/issues").await.json()[0]["author"]["avatar_url"], user);
}

#[tokio::test]
async fn the_file_of_an_avatar_is_removed_with_its_owner() {
    let (forge, _) = start().await;
    let (browser, bob) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("bob").await);
    let settings = "/ann/rocket/-/settings/general";
    upload(&browser, settings, &format!("{settings}/avatar"), "logo.png", PNG).await;
    upload(&browser, "/groups/acme/-/edit", "/groups/acme/-/avatar", "logo.gif", GIF).await;
    upload_own(&bob, "bob.png", PNG).await;
    assert_eq!(forge.avatar_files().len(), 3);
    let admin = forge.admin().await;
    assert_eq!(admin.delete("/projects/1").await.code(), 200);
    assert_eq!(admin.delete("/groups/acme").await.code(), 200);
    assert_eq!(admin.delete("/users/2").await.code(), 200);
    for path in ["project/avatar/1/logo.png", "user/avatar/2/bob.png"] {
        let gone = forge.browser().get(&format!("/uploads/-/system/{path}")).await;
        assert_eq!(gone.code(), 404, "{gone}");
    }
    tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    forge.run_due_tasks().await;
    assert_eq!(forge.avatar_files(), [] as [&str; 0]);
}
