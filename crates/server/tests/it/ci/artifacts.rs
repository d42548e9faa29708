//! Artifacts of jobs.

use axum::{
    body::{Body, Bytes},
    http::Method,
};
use futures_util::{StreamExt as _, stream};
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{JobId, ProjectId};
use serde_json::json;
use testkit::{TestForge, TestResponse};

use crate::ci::traces::{JobFixture, ONE_JOB};

const PROJECT: ProjectId = ProjectId::new(1);
const JOB: JobId = JobId::new(1);
const FORM: &str = "multipart/form-data; boundary=b0undary";

fn form(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n--b0undary--\r\n"].concat()
}

impl JobFixture {
    async fn send(&self, job: JobId, token: &str, query: &str, name: &str, content: &[u8]) -> TestResponse {
        let headers = [("job-token", token), ("content-type", FORM)];
        let path = format!("/api/v4/jobs/{job}/artifacts{query}");
        self.call(Method::POST, &path, &headers, form(name, content)).await
    }

    async fn fetch(&self, job: JobId, token: &str) -> TestResponse {
        let path = format!("/api/v4/jobs/{job}/artifacts?direct_download=true");
        self.call(Method::GET, &path, &[("job-token", token)], "").await
    }

    async fn read(&self, job: JobId) -> TestResponse {
        self.ann.get(&format!("/projects/1/builds/{job}/artifacts")).await
    }
}

#[tokio::test]
async fn a_file_is_uploaded_and_downloaded() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    assert_snapshot!(fixture.read(JOB).await, @r#"
    404 Not Found
    {"message":"404 Not Found"}
    "#);
    assert_snapshot!(fixture.send(JOB, &token, "", "../../my files.zip", b"PK..").await, @r#"
    201 Created
    {"id":1,"artifacts_file":{"filename":"my_files.zip","size":4},"artifacts_expire_at":null}
    "#);
    assert_eq!(fixture.forge.files(), ["artifacts/1/1"]);
    for read in [fixture.read(JOB).await, fixture.fetch(JOB, &token).await] {
        assert_eq!((read.code(), read.bytes.as_slice()), (200, &b"PK.."[..]));
        for (name, value) in [
            ("content-type", "application/octet-stream"),
            ("content-length", "4"),
            ("content-disposition", "attachment; filename=\"my_files.zip\""),
            ("content-transfer-encoding", "binary"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(read.header(name), value, "{name}");
        }
    }
    // A later file replaces it; other types are kept beside it.
    assert_eq!(fixture.send(JOB, &token, "", "b.zip", b"second").await.code(), 201);
    let junit = "?artifact_type=junit&artifact_format=gzip";
    assert_eq!(fixture.send(JOB, &token, junit, "junit.xml.gz", b"tests").await.code(), 201);
    assert_eq!(fixture.read(JOB).await.text, "second");
    fixture.forge.run_due_tasks().await;
    let sweep = forge::tasks::enqueue_recurring(&fixture.forge.forge);
    sweep.await.expect("written down");
    fixture.forge.run_due_tasks().await;
    assert_eq!(fixture.forge.files(), ["artifacts/1/2", "artifacts/1/3"]);
}

#[tokio::test]
async fn a_file_is_accepted_from_a_running_job_only() {
    let fixture = JobFixture::with("one: {script: make}\ntwo: {script: make}").await;
    let (token, other) = (fixture.assign(JOB).await, fixture.assign(JobId::new(2)).await);
    let text = |answer: TestResponse| format!("{} {}", answer.code(), answer.text);
    assert_eq!(text(fixture.send(JOB, &other, "", "a.zip", b"x").await), r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(
        text(fixture.send(JobId::new(9), &token, "", "a.zip", b"x").await),
        r#"404 {"message":"404 Not Found"}"#
    );
    let odd = "?artifact_type=../x&artifact_format=rar";
    assert_eq!(
        text(fixture.send(JOB, &token, odd, "a.zip", b"x").await),
        r#"400 {"error":"artifact_format does not have a valid value, artifact_type is invalid"}"#
    );
    let headers = [("job-token", token.as_str())];
    let nothing = fixture.call(Method::POST, "/api/v4/jobs/1/artifacts", &headers, "").await;
    assert_eq!(text(nothing), r#"400 {"error":"file is missing"}"#);
    fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    assert_eq!(
        text(fixture.send(JOB, &token, "", "a.zip", b"x").await),
        r#"403 {"message":"403 Forbidden  - Job is not running"}"#
    );
    assert!(fixture.forge.files().is_empty());
    assert!(!fixture.forge.in_transaction(|db| store::artifacts::exist_in(db, PROJECT).expect("asked")));
}

#[tokio::test]
async fn a_job_that_ends_during_an_upload_stores_nothing() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let whole = form("a.zip", b"content");
    let (head, tail) = whole.split_at(whole.len() - 20);
    let (head, tail) = (Bytes::copy_from_slice(head), Bytes::copy_from_slice(tail));
    let (reached, ended) = (tokio::sync::oneshot::channel::<()>(), tokio::sync::oneshot::channel::<()>());
    let rest = stream::once(async move {
        let _ = reached.0.send(());
        let _ = ended.1.await;
        Ok::<_, std::io::Error>(tail)
    });
    let body = Body::from_stream(stream::iter([Ok(head)]).chain(rest));
    let headers = [("job-token", token.as_str()), ("content-type", FORM)];
    let sending = fixture.call(Method::POST, "/api/v4/jobs/1/artifacts", &headers, body);
    let ending = async {
        let _ = reached.1.await;
        fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
        let _ = ended.0.send(());
    };
    let (sent, ()) = tokio::join!(sending, ending);
    assert_eq!(sent.code(), 403, "{sent}");
    assert!(fixture.forge.files().is_empty());
    assert!(!fixture.forge.in_transaction(|db| store::artifacts::exist_in(db, PROJECT).expect("asked")));
}

#[tokio::test]
async fn a_file_that_is_too_large_is_not_stored() {
    let fixture = JobFixture::start_on(TestForge::builder().artifact_limit(1000).start().await, ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    assert_eq!(fixture.send(JOB, &token, "", "a.zip", &[0; 1000]).await.code(), 201);
    assert_snapshot!(fixture.send(JOB, &token, "", "b.zip", &[0; 1001]).await, @r#"
    413 Payload Too Large
    {"message":"413 Request Entity Too Large"}
    "#);
    assert_eq!(fixture.forge.files(), ["artifacts/1/1"]);
    assert_eq!(fixture.read(JOB).await.bytes.len(), 1000);
    // Uploads of users have a limit of their own.
    let fixture = JobFixture::start_on(TestForge::builder().upload_limit(10).start().await, ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    assert_eq!(fixture.send(JOB, &token, "", "a.zip", &b"0".repeat(3_000_000)).await.code(), 201);
}

#[tokio::test]
async fn a_job_downloads_artifacts_of_its_own_pipeline_only() {
    let file = "stages: [a, b]\none: {stage: a, script: make}\ntwo: {stage: b, script: make}";
    let fixture = JobFixture::with(file).await;
    fixture.forge.start_pipeline(PROJECT, Some(fixture.ann.id), file).await;
    let token = fixture.assign(JOB).await;
    fixture.send(JOB, &token, "", "a.zip", b"content").await;
    fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    assert_eq!(fixture.fetch(JOB, &token).await.code(), 403);
    let next = fixture.assign(JobId::new(2)).await;
    assert_eq!(fixture.fetch(JOB, &next).await.text, "content");
    assert_eq!(fixture.fetch(JobId::new(2), &next).await.code(), 404);
    assert_eq!(fixture.fetch(JobId::new(99), &next).await.code(), 404);
    // The other pipeline.
    let stranger = fixture.assign(JobId::new(3)).await;
    assert_eq!(fixture.fetch(JOB, &stranger).await.text, r#"{"message":"403 Forbidden"}"#);
    assert_eq!(fixture.fetch(JOB, "").await.code(), 403);
    let ann = fixture.ann.token.clone().unwrap_or_default();
    assert_eq!(fixture.fetch(JOB, &ann).await.code(), 403);
    fixture.update_job(JobId::new(2), &next, json!({ "state": "success" })).await;
    assert_eq!(fixture.fetch(JOB, &next).await.code(), 403);
}

#[tokio::test]
async fn older_runners_upload_download_and_delete() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let (path, headers) = ("/ci/api/v1/builds/1/artifacts", [("build-token", token.as_str()), ("content-type", FORM)]);
    let sent = fixture.call(Method::POST, &format!("{path}?expire_in=7d"), &headers, form("a.zip", b"old")).await;
    assert_snapshot!(sent, @r#"
    201 Created
    {"id":1,"artifacts_file":{"filename":"a.zip","size":3},"artifacts_expire_at":"2026-01-09T03:04:05.678Z"}
    "#);
    let runners_token = fixture.ann.get("/projects/1").await.json()["runners_token"].clone();
    let by_project = [("build-token", runners_token.as_str().expect("a token"))];
    assert_eq!(fixture.call(Method::GET, path, &headers[..1], "").await.text, "old");
    assert_eq!(fixture.call(Method::GET, path, &by_project, "").await.text, "old");
    assert_eq!(fixture.call(Method::DELETE, path, &[("build-token", "wrong")], "").await.code(), 403);
    // A job that may download the artifacts may not delete them.
    let pipeline = fixture.forge.start_pipeline(PROJECT, None, ONE_JOB).await;
    let another =
        fixture.forge.in_transaction(|db| store::jobs::latest_of_pipeline(db, pipeline.id).expect("jobs"))[0].id;
    let other = fixture.assign(another).await;
    assert_eq!(fixture.call(Method::DELETE, path, &[("build-token", &other)], "").await.code(), 403);
    assert_eq!(fixture.call(Method::DELETE, path, &by_project, "").await.code(), 200);
    assert_eq!(fixture.call(Method::GET, path, &by_project, "").await.code(), 404);
    assert!(fixture.forge.files().is_empty());
}

#[tokio::test]
async fn the_token_of_a_finished_job_deletes_nothing() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let (path, headers) = ("/ci/api/v1/builds/1/artifacts", [("build-token", token.as_str()), ("content-type", FORM)]);
    let sent = fixture.call(Method::POST, path, &headers, form("a.zip", b"old")).await;
    assert_eq!(sent.code(), 201, "{sent}");
    assert_eq!(fixture.update_job(JOB, &token, json!({ "state": "success" })).await.code(), 200);
    let refused = fixture.call(Method::DELETE, path, &headers[..1], "").await;
    assert_eq!(refused.code(), 403, "{refused}");
    let kept = fixture.ann.get("/projects/1/builds/1/artifacts").await;
    assert_eq!((kept.code(), kept.text.as_str()), (200, "old"));
}

#[tokio::test]
async fn a_file_expires_unless_a_user_keeps_it() {
    let fixture = JobFixture::with("one: {script: make, artifacts: {paths: [a], expire_in: 1 day}}").await;
    let token = fixture.assign(JOB).await;
    assert_snapshot!(fixture.ann.post("/projects/1/builds/1/artifacts/keep", json!({})).await, @r#"
    404 Not Found
    {"message":"404 Not Found"}
    "#);
    // The lifetime sent by the runner takes precedence over that of the job.
    let sent = fixture.send(JOB, &token, "", "a.zip", b"x").await;
    assert_eq!(sent.json()["artifacts_expire_at"], "2026-01-03T03:04:05.678Z");
    let sent = fixture.send(JOB, &token, "?expire_in=never", "a.zip", b"x").await;
    assert_eq!(sent.json()["artifacts_expire_at"], json!(null));
    fixture.send(JOB, &token, "?expire_in=2+hours", "a.zip", b"two").await;
    let kept = fixture.ann.post("/projects/1/builds/1/artifacts/keep", json!({})).await;
    assert_eq!((kept.code(), &kept.json()["artifacts_expire_at"]), (200, &json!(null)), "{kept}");
    fixture.forge.clock.advance(SignedDuration::from_hours(3));
    assert_eq!(fixture.read(JOB).await.text, "two");
    fixture.send(JOB, &token, "?expire_in=2+hours", "a.zip", b"three").await;
    fixture.forge.clock.advance(SignedDuration::from_hours(2));
    assert_eq!(fixture.read(JOB).await.code(), 404);
    assert_eq!(fixture.fetch(JOB, &token).await.code(), 404);
    assert_eq!(fixture.ann.post("/projects/1/builds/1/artifacts/keep", json!({})).await.code(), 404);
    forge::tasks::enqueue_recurring(&fixture.forge.forge).await.expect("written down");
    fixture.forge.run_due_tasks().await;
    assert!(fixture.forge.files().is_empty());
    assert!(!fixture.forge.in_transaction(|db| store::artifacts::exist_in(db, PROJECT).expect("asked")));
}

#[tokio::test]
async fn the_newest_successful_pipeline_of_a_ref_is_used() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let sha = model::Oid([8; 20]);
    for branch in ["feature/x", "master"] {
        fixture.forge.start_pipeline_at(PROJECT, Some(fixture.ann.id), branch, sha, ONE_JOB).await;
    }
    for (job, content) in [(1, "first"), (2, "feature"), (3, "failed")] {
        let job = JobId::new(job);
        let token = fixture.assign(job).await;
        fixture.send(job, &token, "", "a.zip", content.as_bytes()).await;
        let state = if content == "failed" { "failed" } else { "success" };
        fixture.update_job(job, &token, json!({ "state": state })).await;
    }
    let get = async |path: &str| fixture.ann.get(&format!("/projects/1/builds/artifacts/{path}")).await;
    assert_eq!(get("master/download?job=one").await.text, "first");
    assert_eq!(get("feature/x/download?job=one").await.text, "feature");
    assert_eq!(get("feature%2Fx/download?job=one").await.text, "feature");
    assert_eq!(get("master/download?job=two").await.text, r#"{"message":"404 Not Found"}"#);
    assert_eq!(get("other/download?job=one").await.code(), 404);
    assert_eq!(get("master/download").await.text, r#"{"error":"job is missing"}"#);
    assert_eq!(fixture.anyone.get("/projects/1/builds/artifacts/master/download?job=one").await.code(), 401);
}

#[tokio::test]
async fn artifacts_of_a_tag_are_not_returned_for_a_branch_of_the_same_name() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.send(JOB, &token, "", "a.zip", b"of the tag").await;
    fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    let yes = if std::env::var_os("GABLE_TEST_DATABASE").is_some() { "true" } else { "1" };
    fixture.forge.execute_sql(&format!("UPDATE pipelines SET tag = {yes}"));
    let get = async || fixture.ann.get("/projects/1/builds/artifacts/master/download?job=one").await;
    assert_eq!(get().await.text, "of the tag");
    fixture.forge.fast_import(&fixture.ann, PROJECT, testkit::repository::SMALL_REPOSITORY).await;
    let answer = get().await;
    assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not Found"}"#));
}

#[tokio::test]
async fn artifacts_of_a_deleted_branch_are_not_returned_for_a_tag_of_the_same_name() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.send(JOB, &token, "", "a.zip", b"of the branch").await;
    fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    fixture.forge.execute_sql("UPDATE pipelines SET ref_name = 'v2.0'");
    fixture.forge.fast_import(&fixture.ann, PROJECT, testkit::repository::SMALL_REPOSITORY).await;
    let get = async || fixture.ann.get("/projects/1/builds/artifacts/v2.0/download?job=one").await;
    assert_eq!(get().await.text, "of the branch");
    let tag = json!({ "tag_name": "v2.0", "ref": "master" });
    assert_eq!(fixture.ann.post("/projects/1/repository/tags", tag).await.code(), 201);
    let answer = get().await;
    assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not Found"}"#));
}

#[tokio::test]
async fn the_job_defines_who_may_download_its_artifacts() {
    let file = "
all: {script: make, artifacts: {paths: [a]}}
developers: {script: make, artifacts: {paths: [a], public: false}}
masters: {script: make, artifacts: {paths: [a], access: maintainer}}
no-one: {script: make, artifacts: {paths: [a], access: none}}
";
    let fixture = JobFixture::with(file).await;
    for job in (1..=4).map(JobId::new) {
        let token = fixture.assign(job).await;
        fixture.send(job, &token, "", "a.zip", b"x").await;
    }
    let mut table = String::new();
    for (name, level) in [("reporter", 20), ("developer", 30), ("master", 40)] {
        let client = fixture.forge.user(name).await;
        fixture.ann.make("/projects/1/members", json!({ "user_id": client.id.get(), "access_level": level })).await;
        let mut codes = Vec::new();
        for job in 1..=4 {
            codes.push(client.get(&format!("/projects/1/builds/{job}/artifacts")).await.code());
        }
        table += &format!("{name} {codes:?}\n");
    }
    assert_snapshot!(table, @r"
    reporter [200, 403, 403, 403]
    developer [200, 200, 403, 403]
    master [200, 200, 200, 403]
    ");
}

#[tokio::test]
async fn artifacts_are_removed_with_an_erased_job_and_with_their_project() {
    let fixture = JobFixture::with("one: {script: make}\ntwo: {script: make}").await;
    for job in [1, 2].map(JobId::new) {
        let token = fixture.assign(job).await;
        fixture.send(job, &token, "", "a.zip", b"x").await;
        fixture.send(job, &token, "?artifact_type=junit", "a.xml", b"x").await;
        fixture.update_job(job, &token, json!({ "state": "success" })).await;
    }
    let erased = fixture.ann.post("/projects/1/builds/1/erase", json!({})).await;
    assert_eq!((erased.code(), &erased.json()["artifacts_file"]), (201, &json!(null)), "{erased}");
    assert_eq!(fixture.forge.files(), ["artifacts/1/3", "artifacts/1/4"]);
    fixture.ann.delete("/projects/1").await;
    fixture.forge.run_due_tasks().await;
    assert!(fixture.forge.files().is_empty());
    assert!(!fixture.forge.in_transaction(|db| store::artifacts::exist_in(db, PROJECT).expect("asked")));
}

/// A server that is killed during an upload leaves its row, and perhaps a part of the file.
#[tokio::test]
async fn abandoned_uploads_are_swept() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let now = fixture.forge.forge.now();
    fixture
        .forge
        .in_transaction(|db| store::artifacts::insert(db, PROJECT, JOB, "archive", "a.zip", now).expect("a row"));
    fixture.forge.plant_unfinished_file(&format!("artifacts/{}/1", fixture.forge.storage_of(PROJECT).as_str()));
    assert_eq!(fixture.read(JOB).await.code(), 404);
    fixture.forge.clock.advance(SignedDuration::from_hours(2));
    forge::tasks::enqueue_recurring(&fixture.forge.forge).await.expect("written down");
    fixture.forge.run_due_tasks().await;
    assert!(fixture.forge.files().is_empty());
    assert!(!fixture.forge.in_transaction(|db| store::artifacts::exist_in(db, PROJECT).expect("asked")));
}

#[tokio::test]
async fn the_number_of_files_of_a_job_is_limited() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    for number in 0..20 {
        let sent = fixture.send(JOB, &token, "", "a.zip", format!("file {number}").as_bytes()).await;
        assert_eq!(sent.code(), 201, "{sent}");
    }
    let refused = fixture.send(JOB, &token, "", "a.zip", b"one more").await;
    let response = r#"{"message":"A job may upload 20 files at most, including replaced ones"}"#;
    assert_eq!((refused.code(), refused.text.as_str()), (400, response));
    assert_eq!(fixture.ann.get("/projects/1/builds/1/artifacts").await.text, "file 19");
}

#[tokio::test]
async fn a_job_downloads_artifacts_only_while_its_user_has_access() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let bob = fixture.forge.user("bob").await;
    fixture.ann.make("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 30 })).await;
    let started = fixture.forge.start_pipeline(PROJECT, Some(bob.id), "one: {script: make}\ntwo: {script: make}").await;
    let now = fixture.forge.forge.now();
    let jobs = fixture.forge.in_transaction(|db| store::jobs::of_pipeline(db, started.id, now).expect("jobs"));
    let [one, two] = [jobs[0].id, jobs[1].id];
    let (first, second) = (fixture.assign(one).await, fixture.assign(two).await);
    assert_eq!(fixture.send(one, &first, "", "a.zip", b"PK..").await.code(), 201);
    let fetched = fixture.fetch(one, &second).await;
    assert_eq!((fetched.code(), fetched.text.as_str()), (200, "PK.."));
    let forbidden = (403, r#"{"message":"403 Forbidden"}"#.to_owned());
    let fetch = async || {
        let answer = fixture.fetch(one, &second).await;
        (answer.code(), answer.text)
    };
    let member = format!("/projects/1/members/{}", bob.id);
    assert_eq!(fixture.ann.delete(&member).await.code(), 200);
    assert_eq!(fetch().await, forbidden);
    fixture.ann.make("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 20 })).await;
    assert_eq!(fetch().await.0, 200);
    let root = fixture.forge.admin().await;
    root.put(&format!("/users/{}/block", bob.id), json!({})).await;
    assert_eq!(fetch().await, forbidden);
    root.delete(&format!("/users/{}", bob.id)).await;
    assert_eq!(fetch().await, forbidden);
    // The job can still report its own state.
    assert_eq!(fixture.update_job(two, &second, json!({ "state": "failed" })).await.code(), 200);
}
