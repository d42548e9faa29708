//! Looking over a CI file.

use axum::http::Method;
use insta::assert_snapshot;
use serde_json::json;
use testkit::TestForge;

#[tokio::test]
async fn anybody_has_a_file_looked_over() {
    let forge = TestForge::start().await;
    let anybody = forge.anonymous();
    let lint = async |content: &str| anybody.post("/ci/lint", json!({ "content": content })).await;
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
    let form = anybody.body(Method::POST, "/ci/lint", "application/x-www-form-urlencoded", "content=a%3A+1").await;
    assert_eq!((form.code(), &form.json()["status"]), (200, &json!("invalid")));
    // A token that is none does not matter.
    assert_eq!(anybody.showing("x").post("/ci/lint", json!({ "content": "" })).await.code(), 200);
}

#[tokio::test]
async fn a_file_to_look_over_has_to_be_there_and_to_be_small() {
    let forge = TestForge::setup().body_limit(1000).start().await;
    let anybody = forge.anonymous();
    assert_snapshot!(anybody.post("/ci/lint", json!({})).await, @r#"
    400 Bad Request
    {"error":"content is missing"}
    "#);
    assert_snapshot!(anybody.post("/ci/lint", json!({ "content": { "build": 1 } })).await, @r#"
    400 Bad Request
    {"error":"content is invalid"}
    "#);
    assert_eq!(anybody.post("/ci/lint", json!({ "content": "#".repeat(1000) })).await.code(), 413);
}
