//! The page that validates CI files, and the marks of pipelines on other pages.

use testkit::LocalRepository;

use super::pipelines::{PROJECT, assert_has, start, submit};

const LINT: &str = "/ann/rocket/-/ci/lint";

#[tokio::test]
async fn a_developer_validates_a_file() {
    let (forge, ann) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    assert_has(&dan.get(LINT).await, &["The repository is empty."]);
    let local = LocalRepository::new();
    local.write("jobs.yml", "included: {script: \"echo <b>\", needs: []}\n");
    local.write(".gitlab-ci.yml", "include: jobs.yml\none: {script: make, tags: [fast], when: manual}\n");
    local.commit("x");
    forge.push_all(&ann, PROJECT, &local).await;
    let page = dan.get(LINT).await;
    assert_has(
        &page,
        &[
            "The file is valid",
            "<bdi>included</bdi>",
            "echo &lt;b&gt;",
            "needs <bdi>nothing</bdi>",
            "include: jobs.yml",
        ],
    );
    let valid = submit(&dan, LINT, LINT, &[("content", "include: jobs.yml\r\ntwo:\r\n  script: x\r\n")]).await;
    assert_has(&valid, &["<bdi>two</bdi>", "<bdi>included</bdi>"]);
    let invalid = submit(&dan, LINT, LINT, &[("content", "<b>: {script: 1}")]).await;
    assert_has(&invalid, &["The file is invalid", "&#60;b&#62;: {script: 1}</textarea>", "aria-invalid=\"true\""]);
    assert!(!invalid.text.contains("<b>"), "{invalid}");
    let missing = dan.get(&format!("{LINT}?ref=nowhere")).await;
    assert_eq!(missing.code(), 422);
    assert!(missing.text.contains("There is no such branch or tag."), "{missing}");
    let bob = forge.signed_in_browser("bob").await;
    assert_eq!(bob.get(LINT).await.code(), 403);
    assert_eq!(submit(&bob, "/explore", LINT, &[("content", "x")]).await.code(), 403);
}

#[tokio::test]
async fn a_commit_has_the_mark_of_its_pipeline() {
    let (forge, ann) = start().await;
    let local = LocalRepository::new();
    local.write(".gitlab-ci.yml", "one: {script: make}\n");
    local.commit("x");
    forge.push_all(&ann, PROJECT, &local).await;
    let visitor = forge.browser();
    let mark = "<span class=\"status pending\">pending</span>";
    assert_has(&visitor.get("/ann/rocket").await, &[mark, "href=\"/ann/rocket/-/pipelines/1\""]);
    assert_has(&visitor.get("/ann/rocket/-/commit/master").await, &[mark, "/-/pipelines/1\">#1</a>"]);
    let disabled = ann.put("/projects/1", serde_json::json!({ "name": "rocket", "builds_enabled": false })).await;
    assert_eq!(disabled.code(), 200);
    assert!(!visitor.get("/ann/rocket/-/commit/master").await.text.contains("/-/pipelines/"));
}

#[tokio::test]
async fn a_page_has_the_chosen_theme() {
    let (forge, _ann) = start().await;
    let visitor = forge.browser();
    for (cookie, expected) in [
        ("gable_theme=dark", "<html lang=\"en\" data-theme=\"dark\">"),
        ("gable_theme=light", "<html lang=\"en\" data-theme=\"light\">"),
        ("gable_theme=\"><script>", "<html lang=\"en\">"),
    ] {
        let page = visitor.get_with("/explore", &[("cookie", cookie)]).await;
        assert_has(&page, &[expected]);
    }
}
