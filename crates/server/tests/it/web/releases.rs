//! Releases and archives.

use model::ProjectId;
use serde_json::json;
use testkit::{
    LocalRepository, TestClient, TestForge,
    browser::{Browser, form_token},
};

const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");
const EDIT: &str = "/ann/rocket/-/tags/v1/beta/release/edit";
const SAVE: &str = "/ann/rocket/-/tags/v1/beta/release";

/// A forge with the private project `ann/rocket`, of which `dan` is a developer and `rob` a reporter.
async fn start() -> (TestForge, TestClient) {
    let forge = TestForge::start().await;
    let (ann, dan, rob) = (forge.user("ann").await, forge.user("dan").await, forge.user("rob").await);
    ann.make("/projects", json!({ "name": "rocket" })).await;
    for (user, level) in [(&dan, 30), (&rob, 20)] {
        ann.make("/projects/1/members", json!({ "user_id": user.id.get(), "access_level": level })).await;
    }
    let local = LocalRepository::new();
    local.commit_file("README.md", "# Rocket\n");
    local.git(&["tag", "v1/beta"]);
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    (forge, ann)
}

async fn save(browser: &Browser, description: &str) -> testkit::TestResponse {
    let token = form_token(&browser.get("/ann/rocket/-/tags").await.text);
    browser.post(SAVE, &[SAME_ORIGIN], &[("form_token", &token), ("description", description)]).await
}

#[tokio::test]
async fn a_developer_writes_release_notes() {
    let (forge, ann) = start().await;
    let (dan, rob) = (forge.signed_in_browser("dan").await, forge.signed_in_browser("rob").await);
    assert!(dan.get("/ann/rocket/-/releases").await.text.contains("There are no releases."));
    let tags = dan.get("/ann/rocket/-/tags").await;
    assert!(tags.text.contains(&format!("href=\"{EDIT}\"")), "{tags}");
    assert_eq!(dan.get(EDIT).await.code(), 200);
    let empty = save(&dan, "  ").await;
    assert_eq!(empty.code(), 422);
    assert!(empty.text.contains("aria-invalid=\"true\"") && empty.text.contains("can&#39;t be blank"), "{empty}");
    let saved = save(&dan, "It **flies**\r\n<script>alert(1)</script>").await;
    assert_eq!((saved.code(), saved.header("location")), (303, "/ann/rocket/-/releases"));
    let page = rob.get("/ann/rocket/-/releases").await;
    assert!(page.text.contains("It <strong>flies</strong>") && !page.text.contains("<script>"), "{page}");
    assert!(page.text.contains("/-/archive/v1/beta/rocket-v1-beta.zip") && !page.text.contains(EDIT), "{page}");
    let changed = save(&dan, "It flew").await;
    assert_eq!(changed.code(), 303);
    let api = ann.get("/projects/1/repository/tags/v1%2Fbeta").await;
    assert_eq!(api.json()["release"]["description"], "It flew");
    // A reporter can read releases, but not change them.
    assert_eq!(rob.get(EDIT).await.code(), 403);
    assert_eq!(save(&rob, "no").await.code(), 403);
    assert!(!rob.get("/ann/rocket/-/tags").await.text.contains("release notes"));
    assert_eq!(dan.get("/ann/rocket/-/tags/gone/release/edit").await.code(), 404);
}

#[tokio::test]
async fn archives_are_downloaded_with_the_session() {
    let (forge, _) = start().await;
    let rob = forge.signed_in_browser("rob").await;
    let home = rob.get("/ann/rocket").await;
    assert!(home.text.contains("href=\"/ann/rocket/-/archive/master/rocket-master.tar.gz\""), "{home}");
    for (extension, content_type, start) in [
        ("zip", "application/zip", &b"PK"[..]),
        ("tar.gz", "application/octet-stream", &[0x1f, 0x8b]),
        ("tar.bz2", "application/octet-stream", b"BZh"),
    ] {
        for revision in ["master", "v1/beta"] {
            let path = format!("/ann/rocket/-/archive/{revision}/x.{extension}");
            let archive = rob.get(&path).await;
            assert_eq!((archive.code(), archive.header("content-type")), (200, content_type), "{path}");
            assert!(archive.bytes.starts_with(start), "{path}");
            assert!(archive.header("content-disposition").starts_with("attachment; filename*=UTF-8''rocket-"));
            assert_eq!(archive.header("x-content-type-options"), "nosniff");
            assert_eq!(forge.browser().get(&path).await.code(), 404, "{path}");
        }
    }
    for missing in ["gone/x.zip", "master/x.rar", "x.zip", "master"] {
        assert_eq!(rob.get(&format!("/ann/rocket/-/archive/{missing}")).await.code(), 404, "{missing}");
    }
}
