//! Validation of CI files.

use axum::http::Method;
use insta::assert_snapshot;
use serde_json::json;
use testkit::TestForge;

#[tokio::test]
async fn anonymous_users_can_validate_a_file() {
    let forge = TestForge::start().await;
    let anonymous = forge.anonymous();
    let lint = async |content: &str| anonymous.post("/ci/lint", json!({ "content": content })).await;
    assert_snapshot!(lint("build: {script: make}").await, @r#"
    200 OK
    {"status":"valid","errors":[]}
    "#);
    assert_snapshot!(lint("build: {script: make, stage: nowhere}").await, @r#"
    200 OK
    {"status":"invalid","errors":["build job: stage parameter should be build, test, deploy"]}
    "#);
    assert_snapshot!(lint("build: {stage: test}").await, @r#"
    200 OK
    {"status":"invalid","errors":["jobs:build script can't be blank"]}
    "#);
    assert_snapshot!(lint("").await, @r#"
    200 OK
    {"status":"invalid","errors":["Invalid configuration format"]}
    "#);
    assert_snapshot!(lint("include: {local: /other.yml}").await, @r#"
    200 OK
    {"status":"invalid","errors":["Local file `/other.yml` does not exist!"]}
    "#);
    assert_eq!(lint("build: {script: [").await.json()["status"], "invalid");
    assert_eq!(lint("build: {script: make} # \u{0}").await.code(), 200);
    let form = anonymous.body(Method::POST, "/ci/lint", "application/x-www-form-urlencoded", "content=a%3A+1").await;
    assert_eq!((form.code(), &form.json()["status"]), (200, &json!("invalid")));
    // An invalid token is ignored.
    assert_eq!(anonymous.with_token("x").post("/ci/lint", json!({ "content": "" })).await.code(), 200);
}

#[tokio::test]
async fn the_content_is_required_and_limited_in_size() {
    let forge = TestForge::builder().body_limit(1000).start().await;
    let anonymous = forge.anonymous();
    assert_snapshot!(anonymous.post("/ci/lint", json!({})).await, @r#"
    400 Bad Request
    {"error":"content is missing"}
    "#);
    assert_snapshot!(anonymous.post("/ci/lint", json!({ "content": { "build": 1 } })).await, @r#"
    400 Bad Request
    {"error":"content is invalid"}
    "#);
    assert_eq!(anonymous.post("/ci/lint", json!({ "content": "#".repeat(1000) })).await.code(), 413);
}
