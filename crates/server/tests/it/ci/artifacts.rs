//! What jobs leave behind.

use axum::{
    body::{Body, Bytes},
    http::Method,
};
use futures_util::{StreamExt as _, stream};
use insta::assert_snapshot;
use jiff::SignedDuration;
use serde_json::json;
use testkit::{Answer, TestForge};

use crate::ci::traces::{ONE, Yard};

const FORM: &str = "multipart/form-data; boundary=b0undary";

fn form(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n--b0undary--\r\n"].concat()
}

impl Yard {
    async fn send(&self, job: i64, token: &str, query: &str, name: &str, content: &[u8]) -> Answer {
        let headers = [("job-token", token), ("content-type", FORM)];
        let path = format!("/api/v4/jobs/{job}/artifacts{query}");
        self.call(Method::POST, &path, &headers, form(name, content)).await
    }

    async fn fetch(&self, job: i64, token: &str) -> Answer {
        let path = format!("/api/v4/jobs/{job}/artifacts?direct_download=true");
        self.call(Method::GET, &path, &[("job-token", token)], "").await
    }

    async fn read(&self, build: i64) -> Answer {
        self.ann.get(&format!("/projects/1/builds/{build}/artifacts")).await
    }
}

#[tokio::test]
async fn a_file_goes_up_and_down() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    assert_snapshot!(yard.read(1).await, @r#"
    404 Not Found
    {"message":"404 Not Found"}
    "#);
    assert_snapshot!(yard.send(1, &token, "", "../../my files.zip", b"PK..").await, @r#"
    201 Created
    {"id":1,"artifacts_file":{"filename":"my_files.zip","size":4},"artifacts_expire_at":null}
    "#);
    assert_eq!(yard.forge.files(), ["artifacts/1/1"]);
    for read in [yard.read(1).await, yard.fetch(1, &token).await] {
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
    // The next one takes its place; what else runners send stands beside it.
    assert_eq!(yard.send(1, &token, "", "b.zip", b"second").await.code(), 201);
    let junit = "?artifact_type=junit&artifact_format=gzip";
    assert_eq!(yard.send(1, &token, junit, "junit.xml.gz", b"tests").await.code(), 201);
    assert_eq!(yard.read(1).await.text, "second");
    yard.forge.do_all_jobs().await;
    let sweep = forge::tasks::enqueue_recurring(&yard.forge.forge);
    sweep.await.expect("written down");
    yard.forge.do_all_jobs().await;
    assert_eq!(yard.forge.files(), ["artifacts/1/2", "artifacts/1/3"]);
}

#[tokio::test]
async fn a_file_is_taken_from_a_job_that_runs_only() {
    let yard = Yard::with("one: {script: make}\ntwo: {script: make}").await;
    let (token, other) = (yard.take(1).await, yard.take(2).await);
    let text = |answer: Answer| format!("{} {}", answer.code(), answer.text);
    assert_eq!(text(yard.send(1, &other, "", "a.zip", b"x").await), r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(text(yard.send(9, &token, "", "a.zip", b"x").await), r#"404 {"message":"404 Not Found"}"#);
    let odd = "?artifact_type=../x&artifact_format=rar";
    assert_eq!(
        text(yard.send(1, &token, odd, "a.zip", b"x").await),
        r#"400 {"error":"artifact_format does not have a valid value, artifact_type is invalid"}"#
    );
    let headers = [("job-token", token.as_str())];
    let nothing = yard.call(Method::POST, "/api/v4/jobs/1/artifacts", &headers, "").await;
    assert_eq!(text(nothing), r#"400 {"error":"file is missing"}"#);
    yard.tell(1, &token, json!({ "state": "success" })).await;
    assert_eq!(
        text(yard.send(1, &token, "", "a.zip", b"x").await),
        r#"403 {"message":"403 Forbidden  - Job is not running"}"#
    );
    assert!(yard.forge.files().is_empty());
    assert!(!yard.forge.in_one_go(|db| store::artifacts::exist_in(db, 1).expect("asked")));
}

#[tokio::test]
async fn a_job_that_ends_while_it_sends_leaves_nothing() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
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
    let sending = yard.call(Method::POST, "/api/v4/jobs/1/artifacts", &headers, body);
    let ending = async {
        let _ = reached.1.await;
        yard.tell(1, &token, json!({ "state": "success" })).await;
        let _ = ended.0.send(());
    };
    let (sent, ()) = tokio::join!(sending, ending);
    assert_eq!(sent.code(), 403, "{sent}");
    assert!(yard.forge.files().is_empty());
    assert!(!yard.forge.in_one_go(|db| store::artifacts::exist_in(db, 1).expect("asked")));
}

#[tokio::test]
async fn a_file_that_is_too_large_leaves_nothing() {
    let yard = Yard::on(TestForge::setup().artifact_limit(1000).start().await, ONE).await;
    let token = yard.take(1).await;
    assert_eq!(yard.send(1, &token, "", "a.zip", &[0; 1000]).await.code(), 201);
    assert_snapshot!(yard.send(1, &token, "", "b.zip", &[0; 1001]).await, @r#"
    413 Payload Too Large
    {"message":"413 Request Entity Too Large"}
    "#);
    assert_eq!(yard.forge.files(), ["artifacts/1/1"]);
    assert_eq!(yard.read(1).await.bytes.len(), 1000);
    // What people upload has a limit of its own.
    let yard = Yard::on(TestForge::setup().upload_limit(10).start().await, ONE).await;
    let token = yard.take(1).await;
    assert_eq!(yard.send(1, &token, "", "a.zip", &b"0".repeat(3_000_000)).await.code(), 201);
}

#[tokio::test]
async fn a_job_fetches_what_jobs_of_its_own_pipeline_left() {
    let file = "stages: [a, b]\none: {stage: a, script: make}\ntwo: {stage: b, script: make}";
    let yard = Yard::with(file).await;
    yard.forge.plant_pipeline(1, Some(yard.ann.id), file).await;
    let token = yard.take(1).await;
    yard.send(1, &token, "", "a.zip", b"content").await;
    yard.tell(1, &token, json!({ "state": "success" })).await;
    assert_eq!(yard.fetch(1, &token).await.code(), 403);
    let next = yard.take(2).await;
    assert_eq!(yard.fetch(1, &next).await.text, "content");
    assert_eq!(yard.fetch(2, &next).await.code(), 404);
    assert_eq!(yard.fetch(99, &next).await.code(), 404);
    // The other pipeline.
    let stranger = yard.take(3).await;
    assert_eq!(yard.fetch(1, &stranger).await.text, r#"{"message":"403 Forbidden"}"#);
    assert_eq!(yard.fetch(1, "").await.code(), 403);
    let ann = yard.ann.token.clone().unwrap_or_default();
    assert_eq!(yard.fetch(1, &ann).await.code(), 403);
    yard.tell(2, &next, json!({ "state": "success" })).await;
    assert_eq!(yard.fetch(1, &next).await.code(), 403);
}

#[tokio::test]
async fn older_runners_do_the_same_and_remove_too() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let (path, headers) = ("/ci/api/v1/builds/1/artifacts", [("build-token", token.as_str()), ("content-type", FORM)]);
    let sent = yard.call(Method::POST, &format!("{path}?expire_in=7d"), &headers, form("a.zip", b"old")).await;
    assert_snapshot!(sent, @r#"
    201 Created
    {"id":1,"artifacts_file":{"filename":"a.zip","size":3},"artifacts_expire_at":"2026-01-09T03:04:05.678Z"}
    "#);
    let runners_token = yard.ann.get("/projects/1").await.json()["runners_token"].clone();
    let by_project = [("build-token", runners_token.as_str().expect("a token"))];
    assert_eq!(yard.call(Method::GET, path, &headers[..1], "").await.text, "old");
    assert_eq!(yard.call(Method::GET, path, &by_project, "").await.text, "old");
    assert_eq!(yard.call(Method::DELETE, path, &[("build-token", "wrong")], "").await.code(), 403);
    // Whoever may fetch it may not remove it.
    let pipeline = yard.forge.plant_pipeline(1, None, ONE).await;
    let another = yard.forge.in_one_go(|db| store::builds::latest_of(db, pipeline.id).expect("builds"))[0].id;
    let other = yard.take(another).await;
    assert_eq!(yard.call(Method::DELETE, path, &[("build-token", &other)], "").await.code(), 403);
    assert_eq!(yard.call(Method::DELETE, path, &by_project, "").await.code(), 200);
    assert_eq!(yard.call(Method::GET, path, &by_project, "").await.code(), 404);
    assert!(yard.forge.files().is_empty());
}

#[tokio::test]
async fn the_token_of_a_job_that_has_ended_removes_nothing() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let (path, headers) = ("/ci/api/v1/builds/1/artifacts", [("build-token", token.as_str()), ("content-type", FORM)]);
    let sent = yard.call(Method::POST, path, &headers, form("a.zip", b"old")).await;
    assert_eq!(sent.code(), 201, "{sent}");
    assert_eq!(yard.tell(1, &token, json!({ "state": "success" })).await.code(), 200);
    let refused = yard.call(Method::DELETE, path, &headers[..1], "").await;
    assert_eq!(refused.code(), 403, "{refused}");
    let kept = yard.ann.get("/projects/1/builds/1/artifacts").await;
    assert_eq!((kept.code(), kept.text.as_str()), (200, "old"));
}

#[tokio::test]
async fn a_file_expires_unless_somebody_keeps_it() {
    let yard = Yard::with("one: {script: make, artifacts: {paths: [a], expire_in: 1 day}}").await;
    let token = yard.take(1).await;
    assert_snapshot!(yard.ann.post("/projects/1/builds/1/artifacts/keep", json!({})).await, @r#"
    404 Not Found
    {"message":"404 Not Found"}
    "#);
    // What the job says counts, unless the runner says something else.
    let sent = yard.send(1, &token, "", "a.zip", b"x").await;
    assert_eq!(sent.json()["artifacts_expire_at"], "2026-01-03T03:04:05.678Z");
    let sent = yard.send(1, &token, "?expire_in=never", "a.zip", b"x").await;
    assert_eq!(sent.json()["artifacts_expire_at"], json!(null));
    yard.send(1, &token, "?expire_in=2+hours", "a.zip", b"two").await;
    let kept = yard.ann.post("/projects/1/builds/1/artifacts/keep", json!({})).await;
    assert_eq!((kept.code(), &kept.json()["artifacts_expire_at"]), (200, &json!(null)), "{kept}");
    yard.forge.clock.advance(SignedDuration::from_hours(3));
    assert_eq!(yard.read(1).await.text, "two");
    yard.send(1, &token, "?expire_in=2+hours", "a.zip", b"three").await;
    yard.forge.clock.advance(SignedDuration::from_hours(2));
    assert_eq!(yard.read(1).await.code(), 404);
    assert_eq!(yard.fetch(1, &token).await.code(), 404);
    assert_eq!(yard.ann.post("/projects/1/builds/1/artifacts/keep", json!({})).await.code(), 404);
    forge::tasks::enqueue_recurring(&yard.forge.forge).await.expect("written down");
    yard.forge.do_all_jobs().await;
    assert!(yard.forge.files().is_empty());
    assert!(!yard.forge.in_one_go(|db| store::artifacts::exist_in(db, 1).expect("asked")));
}

#[tokio::test]
async fn the_newest_pipeline_of_a_ref_that_went_well_is_found() {
    let yard = Yard::with(ONE).await;
    let sha = model::Oid([8; 20]);
    for branch in ["feature/x", "master"] {
        yard.forge.plant_pipeline_at(1, Some(yard.ann.id), branch, sha, ONE).await;
    }
    for (build, content) in [(1, "first"), (2, "feature"), (3, "failed")] {
        let token = yard.take(build).await;
        yard.send(build, &token, "", "a.zip", content.as_bytes()).await;
        let state = if content == "failed" { "failed" } else { "success" };
        yard.tell(build, &token, json!({ "state": state })).await;
    }
    let get = async |path: &str| yard.ann.get(&format!("/projects/1/builds/artifacts/{path}")).await;
    assert_eq!(get("master/download?job=one").await.text, "first");
    assert_eq!(get("feature/x/download?job=one").await.text, "feature");
    assert_eq!(get("feature%2Fx/download?job=one").await.text, "feature");
    assert_eq!(get("master/download?job=two").await.text, r#"{"message":"404 Not Found"}"#);
    assert_eq!(get("other/download?job=one").await.code(), 404);
    assert_eq!(get("master/download").await.text, r#"{"error":"job is missing"}"#);
    assert_eq!(yard.anyone.get("/projects/1/builds/artifacts/master/download?job=one").await.code(), 401);
}

#[tokio::test]
async fn what_a_tag_left_behind_is_not_handed_out_for_a_branch_of_its_name() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.send(1, &token, "", "a.zip", b"of the tag").await;
    yard.tell(1, &token, json!({ "state": "success" })).await;
    let yes = if std::env::var_os("GABLE_TEST_DATABASE").is_some() { "true" } else { "1" };
    crate::ci::assignments::execute(&yard.forge, &format!("UPDATE pipelines SET tag = {yes}"));
    let get = async || yard.ann.get("/projects/1/builds/artifacts/master/download?job=one").await;
    assert_eq!(get().await.text, "of the tag");
    yard.forge.fill(&yard.ann, 1, testkit::repository::SMALL).await;
    let answer = get().await;
    assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not Found"}"#));
}

#[tokio::test]
async fn what_a_deleted_branch_left_behind_is_not_handed_out_for_a_tag_of_its_name() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.send(1, &token, "", "a.zip", b"of the branch").await;
    yard.tell(1, &token, json!({ "state": "success" })).await;
    crate::ci::assignments::execute(&yard.forge, "UPDATE pipelines SET ref_name = 'v2.0'");
    yard.forge.fill(&yard.ann, 1, testkit::repository::SMALL).await;
    let get = async || yard.ann.get("/projects/1/builds/artifacts/v2.0/download?job=one").await;
    assert_eq!(get().await.text, "of the branch");
    let tag = json!({ "tag_name": "v2.0", "ref": "master" });
    assert_eq!(yard.ann.post("/projects/1/repository/tags", tag).await.code(), 201);
    let answer = get().await;
    assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not Found"}"#));
}

#[tokio::test]
async fn who_may_fetch_a_file_is_said_in_its_job() {
    let file = "
all: {script: make, artifacts: {paths: [a]}}
developers: {script: make, artifacts: {paths: [a], public: false}}
masters: {script: make, artifacts: {paths: [a], access: maintainer}}
nobody: {script: make, artifacts: {paths: [a], access: none}}
";
    let yard = Yard::with(file).await;
    for build in 1..=4 {
        let token = yard.take(build).await;
        yard.send(build, &token, "", "a.zip", b"x").await;
    }
    let mut table = String::new();
    for (name, level) in [("reporter", 20), ("developer", 30), ("master", 40)] {
        let client = yard.forge.user(name).await;
        yard.ann.make("/projects/1/members", json!({ "user_id": client.id, "access_level": level })).await;
        let mut codes = Vec::new();
        for build in 1..=4 {
            codes.push(client.get(&format!("/projects/1/builds/{build}/artifacts")).await.code());
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
async fn files_go_with_an_erased_build_and_with_their_project() {
    let yard = Yard::with("one: {script: make}\ntwo: {script: make}").await;
    for build in [1, 2] {
        let token = yard.take(build).await;
        yard.send(build, &token, "", "a.zip", b"x").await;
        yard.send(build, &token, "?artifact_type=junit", "a.xml", b"x").await;
        yard.tell(build, &token, json!({ "state": "success" })).await;
    }
    let erased = yard.ann.post("/projects/1/builds/1/erase", json!({})).await;
    assert_eq!((erased.code(), &erased.json()["artifacts_file"]), (201, &json!(null)), "{erased}");
    assert_eq!(yard.forge.files(), ["artifacts/1/3", "artifacts/1/4"]);
    yard.ann.delete("/projects/1").await;
    yard.forge.do_all_jobs().await;
    assert!(yard.forge.files().is_empty());
    assert!(!yard.forge.in_one_go(|db| store::artifacts::exist_in(db, 1).expect("asked")));
}

/// A server that was killed in the middle of a file leaves its row, and perhaps a part of it.
#[tokio::test]
async fn what_was_never_ended_is_swept_away() {
    let yard = Yard::with(ONE).await;
    let now = yard.forge.forge.now();
    yard.forge.in_one_go(|db| store::artifacts::insert(db, 1, 1, "archive", "a.zip", now).expect("a row"));
    std::fs::create_dir_all(yard.forge.files_of("artifacts", 1)).expect("a folder");
    std::fs::write(yard.forge.files_of("artifacts", 1).join("1#1"), "half").expect("planted");
    assert_eq!(yard.read(1).await.code(), 404);
    yard.forge.clock.advance(SignedDuration::from_hours(2));
    forge::tasks::enqueue_recurring(&yard.forge.forge).await.expect("written down");
    yard.forge.do_all_jobs().await;
    assert!(yard.forge.files().is_empty());
    assert!(!yard.forge.in_one_go(|db| store::artifacts::exist_in(db, 1).expect("asked")));
}

#[tokio::test]
async fn a_job_may_leave_so_many_files_and_no_more() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    for number in 0..20 {
        let sent = yard.send(1, &token, "", "a.zip", format!("file {number}").as_bytes()).await;
        assert_eq!(sent.code(), 201, "{sent}");
    }
    let refused = yard.send(1, &token, "", "a.zip", b"one more").await;
    let said = r#"{"message":"A job may leave 20 files at most, those that were replaced included"}"#;
    assert_eq!((refused.code(), refused.text.as_str()), (400, said));
    assert_eq!(yard.ann.get("/projects/1/builds/1/artifacts").await.text, "file 19");
}

#[tokio::test]
async fn a_job_reads_the_artifacts_of_others_only_while_its_starter_may() {
    let yard = Yard::with(ONE).await;
    let bob = yard.forge.user("bob").await;
    yard.ann.make("/projects/1/members", json!({ "user_id": bob.id, "access_level": 30 })).await;
    let started = yard.forge.plant_pipeline(1, Some(bob.id), "one: {script: make}\ntwo: {script: make}").await;
    let now = yard.forge.forge.now();
    let builds = yard.forge.in_one_go(|db| store::builds::of_pipeline(db, started.id, now).expect("builds"));
    let [one, two] = [builds[0].id, builds[1].id];
    let (first, second) = (yard.take(one).await, yard.take(two).await);
    assert_eq!(yard.send(one, &first, "", "a.zip", b"PK..").await.code(), 201);
    let fetched = yard.fetch(one, &second).await;
    assert_eq!((fetched.code(), fetched.text.as_str()), (200, "PK.."));
    let forbidden = (403, r#"{"message":"403 Forbidden"}"#.to_owned());
    let fetch = async || {
        let answer = yard.fetch(one, &second).await;
        (answer.code(), answer.text)
    };
    let member = format!("/projects/1/members/{}", bob.id);
    assert_eq!(yard.ann.delete(&member).await.code(), 200);
    assert_eq!(fetch().await, forbidden);
    yard.ann.make("/projects/1/members", json!({ "user_id": bob.id, "access_level": 20 })).await;
    assert_eq!(fetch().await.0, 200);
    let root = yard.forge.admin().await;
    root.put(&format!("/users/{}/block", bob.id), json!({})).await;
    assert_eq!(fetch().await, forbidden);
    root.delete(&format!("/users/{}", bob.id)).await;
    assert_eq!(fetch().await, forbidden);
    // What the job itself has to tell is still heard.
    assert_eq!(yard.tell(two, &second, json!({ "state": "failed" })).await.code(), 200);
}
