//! Traces of jobs.

use std::{fs, io::Write as _};

use axum::{
    body::Body,
    http::{Method, header},
};
use insta::assert_snapshot;
use model::{JobId, PipelineId, ProjectId, RunnerId, Status};
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse};

const PROJECT: ProjectId = ProjectId::new(1);
const JOB: JobId = JobId::new(1);

/// A private project with a pipeline, and a runner.
pub(crate) struct JobFixture {
    pub(crate) forge: TestForge,
    pub(crate) ann: TestClient,
    pub(crate) runner: RunnerId,
    pub(crate) anyone: TestClient,
}

pub(crate) const ONE_JOB: &str = "one: {script: make}";

impl JobFixture {
    pub(crate) async fn with(file: &str) -> Self {
        Self::start_on(TestForge::start().await, file).await
    }

    /// Ann has the private project 1, whose pipeline has this CI file.
    pub(crate) async fn start_on(forge: TestForge, file: &str) -> Self {
        let ann = forge.user("ann").await;
        assert_eq!(ann.make("/projects", json!({ "name": "x" })).await, 1);
        forge.start_pipeline(PROJECT, Some(ann.id), file).await;
        let (runner, anyone) = (forge.insert_runner("runner"), forge.anonymous());
        Self { forge, ann, runner, anyone }
    }

    pub(crate) async fn assign(&self, job: JobId) -> String {
        self.forge.assign_job(job, self.runner).await
    }

    /// Calls a route of a runner protocol with additional headers.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> TestResponse {
        let request = self.anyone.request(method, path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.anyone.send(request, body.into()).await
    }

    /// Appends to the trace of a job.
    pub(crate) async fn append_trace(&self, job: JobId, token: &str, at: usize, text: &str) -> TestResponse {
        let range = format!("{at}-{}", at + text.len());
        let headers = [("job-token", token), ("content-range", &range)];
        self.call(Method::PATCH, &format!("/api/v4/jobs/{job}/trace"), &headers, text.to_owned()).await
    }

    /// Updates the state of a job.
    pub(crate) async fn update_job(&self, job: JobId, token: &str, mut update: Value) -> TestResponse {
        update["token"] = json!(token);
        self.anyone.put(&format!("/api/v4/jobs/{job}"), update).await
    }

    /// The trace as users read it.
    pub(crate) async fn trace(&self, job: JobId) -> String {
        let answer = self.ann.get(&format!("/projects/1/builds/{job}/trace")).await;
        assert_eq!(answer.code(), 200, "{answer}");
        answer.text
    }

    /// The jobs of the first pipeline.
    pub(crate) fn jobs(&self) -> Vec<model::Job> {
        let now = self.forge.forge.now();
        self.forge.in_transaction(|db| store::jobs::of_pipeline(db, PipelineId::new(1), now).expect("jobs"))
    }

    pub(crate) fn job_states(&self) -> String {
        self.jobs().iter().map(|job| format!("{} {}", job.name, job.status.as_str())).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn pipeline(&self) -> Status {
        self.forge
            .in_transaction(|db| store::pipelines::by_id(db, PipelineId::new(1)).expect("asked").expect("there"))
            .status
    }

    /// Cancels a job in the database.
    pub(crate) fn cancel(&self, job: JobId) {
        let (now, changes) = (self.forge.forge.now(), store::jobs::JobChanges::default());
        self.forge
            .in_transaction(|db| store::jobs::set_status(db, &[job], Status::Canceled, &changes, now).expect("set"));
    }
}

#[tokio::test]
async fn a_chunk_is_appended_at_the_end_of_the_trace() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    assert_eq!(fixture.trace(JOB).await, "");
    let response = fixture.append_trace(JOB, &token, 0, "hello ").await;
    assert_eq!((response.code(), response.text.as_str()), (202, ""));
    assert_eq!((response.header("job-status"), response.header("range")), ("running", "0-6"));
    // Other offsets are rejected.
    for at in [0, 5, 7, 100] {
        let response = fixture.append_trace(JOB, &token, at, "again").await;
        assert_eq!((response.code(), response.text.as_str()), (416, r#"{"error":"416 Range Not Satisfiable"}"#));
        assert_eq!((response.header("job-status"), response.header("range")), ("running", "0-6"));
    }
    // Bytes that are not UTF-8, and a range with a wrong end.
    let headers = [("job-token", token.as_str()), ("content-range", "6-2")];
    let response =
        fixture.call(Method::PATCH, "/api/v4/jobs/1/trace?debug_trace=false", &headers, &b"\xff\0\n"[..]).await;
    assert_eq!((response.code(), response.header("range")), (202, "0-9"));
    // An empty chunk keeps the job alive.
    let response = fixture.append_trace(JOB, &token, 9, "").await;
    assert_eq!((response.code(), response.header("range")), (202, "0-9"));
    let read = fixture.ann.get("/projects/1/builds/1/trace").await;
    assert_eq!((read.code(), read.bytes.as_slice()), (200, &b"hello \xff\0\n"[..]));
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-length", "9"),
        ("content-disposition", "infile; filename=\"1.log\""),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("cache-control", "private, no-cache"),
    ] {
        assert_eq!(read.header(name), value, "{name}");
    }
}

#[tokio::test]
async fn a_chunk_needs_the_job_token_and_an_offset() {
    let fixture = JobFixture::with("one: {script: make}\ntwo: {script: make}").await;
    let (token, other) = (fixture.assign(JOB).await, fixture.assign(JobId::new(2)).await);
    let send = async |path: &str, headers: &[(&str, &str)]| {
        let answer = fixture.call(Method::PATCH, path, headers, "text").await;
        format!("{} {}", answer.code(), answer.text)
    };
    let (at, path) = (("content-range", "0-4"), "/api/v4/jobs/1/trace");
    assert_eq!(send(path, &[("job-token", &token)]).await, r#"400 {"error":"400 Missing header Content-Range"}"#);
    let odd = [("job-token", token.as_str()), ("content-range", "some")];
    assert_eq!(send(path, &odd).await, r#"400 {"error":"400 Invalid header Content-Range"}"#);
    assert_eq!(send("/api/v4/jobs/9/trace", &[("job-token", &token), at]).await, r#"404 {"message":"404 Not Found"}"#);
    let ann = fixture.ann.token.clone().unwrap_or_default();
    for wrong in [other.as_str(), ann.as_str(), "", "abcdefghijklmnopqrst"] {
        assert_eq!(send(path, &[("job-token", wrong), at]).await, r#"403 {"message":"403 Forbidden"}"#);
        // Without a valid token, no other errors are revealed.
        assert_eq!(send(path, &[("private-token", wrong)]).await, r#"403 {"message":"403 Forbidden"}"#);
    }
    let runners_token = fixture.ann.get("/projects/1").await.json()["runners_token"].clone();
    let runners_token = runners_token.as_str().expect("a token");
    assert_eq!(send(path, &[("job-token", runners_token), at]).await, r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(fixture.trace(JOB).await, "");
    // Runners send their token in several ways.
    assert_eq!(send(path, &[("private-token", &token), at]).await, "202 ");
    assert_eq!(send(&format!("{path}?token={token}"), &[("content-range", "4-8")]).await, "202 ");
    assert_eq!(send(path, &[("build-token", &token), ("content-range", "8-12")]).await, "202 ");
    assert_eq!(fixture.trace(JOB).await, "texttexttext");
}

#[tokio::test]
async fn older_runners_use_their_own_protocol() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let patch = async |headers: &[(&str, &str)]| {
        fixture.call(Method::PATCH, "/ci/api/v1/builds/1/trace.txt", headers, "text").await
    };
    let response = patch(&[("build-token", &token), ("content-range", "0-4")]).await;
    assert_eq!((response.code(), response.header("build-status"), response.header("range")), (202, "running", "0-4"));
    let runners_token = fixture.ann.get("/projects/1").await.json()["runners_token"].clone();
    let response = patch(&[("build-token", runners_token.as_str().expect("a token")), ("content-range", "4-8")]).await;
    assert_eq!((response.code(), response.header("range")), (202, "0-8"));
    let response = patch(&[("build-token", &token), ("content-range", "4-8")]).await;
    assert_eq!((response.code(), response.header("build-status"), response.header("range")), (416, "running", "0-8"));
    assert_eq!(patch(&[("build-token", "wrong"), ("content-range", "8-12")]).await.code(), 403);
    assert_eq!(patch(&[("build-token", &token)]).await.code(), 400);
    // The response reports the cancellation, and the chunk is not stored.
    fixture.cancel(JOB);
    let response = patch(&[("build-token", &token), ("content-range", "8-12")]).await;
    assert_eq!((response.code(), response.header("build-status"), response.header("range")), (202, "canceled", "0-8"));
    assert_eq!(fixture.trace(JOB).await, "texttext");
}

#[tokio::test]
async fn chunks_of_a_job_that_is_not_running_are_rejected() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "text").await;
    fixture.cancel(JOB);
    let response = fixture.append_trace(JOB, &token, 4, "more").await;
    assert_snapshot!(response, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - Job is not running"}
    "#);
    assert_eq!(response.header("job-status"), "canceled");
    assert_eq!(fixture.trace(JOB).await, "text");
}

#[tokio::test]
async fn no_byte_of_a_secret_is_visible() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let runners_token = fixture.ann.get("/projects/1").await.json()["runners_token"].clone();
    let runners_token = runners_token.as_str().expect("a token").to_owned();
    let mut expected = String::new();
    let mut at = 0;
    for secret in [&token, &runners_token] {
        for cut in 1..secret.len() {
            let pieces = [format!("<{}", &secret[..cut]), format!("{}>\n", &secret[cut..])];
            let [before, after] = pieces;
            assert_eq!(fixture.append_trace(JOB, &token, at, &before).await.code(), 202);
            // It is withheld as long as it may become a secret.
            assert_eq!(fixture.trace(JOB).await, format!("{expected}<"));
            at += before.len();
            let response = fixture.append_trace(JOB, &token, at, &after).await;
            at += after.len();
            assert_eq!(response.header("range"), format!("0-{at}"));
            expected += &format!("<{}>\n", "x".repeat(secret.len()));
            assert_eq!(fixture.trace(JOB).await, expected);
        }
    }
    for entry in fs::read_dir(fixture.forge.project_traces_folder(PROJECT)).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = String::from_utf8_lossy(&fs::read(&path).expect("read")).into_owned();
        assert!(!text.contains(&token) && !text.contains(&runners_token), "{}", path.display());
    }
    // The start of a secret is shown once the text continues differently, or once the trace is complete.
    fixture.append_trace(JOB, &token, at, &token[..5]).await;
    assert_eq!(fixture.trace(JOB).await, expected);
    fixture.append_trace(JOB, &token, at + 5, &format!("!{}", &token[..7])).await;
    expected += &format!("{}!", &token[..5]);
    assert_eq!(fixture.trace(JOB).await, expected);
    assert_eq!(fixture.update_job(JOB, &token, json!({ "state": "success" })).await.code(), 200);
    assert_eq!(fixture.trace(JOB).await, format!("{expected}{}", &token[..7]));
}

#[tokio::test]
async fn variables_are_masked_with_their_values_at_the_start_of_the_job() {
    let fixture = JobFixture::with(ONE_JOB).await;
    for (key, value) in [("ROTATED", "open-sesame-1"), ("REMOVED", "swordfish-22")] {
        let added = fixture.ann.post("/projects/1/variables", json!({ "key": key, "value": value })).await;
        assert_eq!(added.code(), 201);
    }
    let token = fixture.assign(JOB).await;
    fixture.ann.put("/projects/1/variables/ROTATED", json!({ "value": "open-sesame-2" })).await;
    fixture.ann.delete("/projects/1/variables/REMOVED").await;
    let text = "open-sesame-1 open-sesame-2 swordfish-22 sesame\n";
    assert_eq!(fixture.append_trace(JOB, &token, 0, text).await.code(), 202);
    assert_eq!(fixture.trace(JOB).await, "xxxxxxxxxxxxx xxxxxxxxxxxxx xxxxxxxxxxxx sesame\n");
    // No part of a secret that was sent in two chunks is on the disk.
    fixture.append_trace(JOB, &token, text.len(), "swordfish-2").await;
    fixture.append_trace(JOB, &token, text.len() + 11, "2\n").await;
    let folder = fixture.forge.project_traces_folder(PROJECT);
    let files = || fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    assert_eq!(files().count(), 1);
    let all: Vec<u8> = files().flat_map(|path| fs::read(path).expect("read")).collect();
    assert!(!String::from_utf8_lossy(&all).contains("swordfish"));
}

#[tokio::test]
async fn a_secret_interrupted_by_a_cancellation_stays_hidden() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, &format!("token: {}", &token[..19])).await;
    fixture.cancel(JOB);
    assert_eq!(fixture.trace(JOB).await, "token: ");
}

/// A server that is killed between writing the file and the row leaves bytes that were not acknowledged.
#[tokio::test]
async fn chunks_that_were_not_acknowledged_are_sent_again() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let first_chunk = format!("one\n{}", &token[..6]);
    fixture.append_trace(JOB, &token, 0, &first_chunk).await;
    let path = fixture.forge.project_traces_folder(PROJECT).join("1");
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("a trace");
    file.write_all(b"half of a piece").expect("written");
    assert_eq!(fixture.trace(JOB).await, "one\n");
    let response = fixture.append_trace(JOB, &token, first_chunk.len(), &format!("{}\n", &token[6..])).await;
    assert_eq!((response.code(), response.header("range")), (202, "0-25"));
    assert_eq!(fixture.trace(JOB).await, format!("one\n{}\n", "x".repeat(20)));
    // The same if the withheld end had already been masked in the file.
    let first_chunk = &token[..6];
    fixture.append_trace(JOB, &token, 25, first_chunk).await;
    let mut bytes = fs::read(&path).expect("a trace");
    bytes.truncate(25);
    bytes.extend(b"xxxxxxxxx and more");
    fs::write(&path, bytes).expect("written");
    fixture.append_trace(JOB, &token, 31, &token[6..]).await;
    assert_eq!(fixture.trace(JOB).await, format!("one\n{}\n{}", "x".repeat(20), "x".repeat(20)));
}

#[tokio::test]
async fn the_trace_is_empty_after_a_job_is_assigned_again() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let first = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &first, 0, &format!("from the first: {}", &first[..9])).await;
    let (now, changes) = (fixture.forge.forge.now(), store::jobs::JobChanges::default());
    fixture
        .forge
        .in_transaction(|db| store::jobs::set_status(db, &[JOB], Status::Pending, &changes, now).expect("set"));
    let second = fixture.assign(JOB).await;
    assert_eq!(fixture.trace(JOB).await, "");
    assert_eq!(fixture.append_trace(JOB, &first, 25, "more").await.code(), 403);
    fixture.append_trace(JOB, &second, 0, &format!("from the second {}", &second[..9])).await;
    fixture.append_trace(JOB, &second, 25, &second[9..]).await;
    assert_eq!(fixture.trace(JOB).await, format!("from the second {}", "x".repeat(20)));
}

#[tokio::test]
async fn of_two_chunks_with_the_same_offset_one_is_stored() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let mut at = 0;
    for round in 0..10 {
        let (one, two) = (format!("one {round}\n"), format!("another {round}\n"));
        let (first, second) =
            tokio::join!(fixture.append_trace(JOB, &token, at, &one), fixture.append_trace(JOB, &token, at, &two));
        let kept = match (first.code(), second.code()) {
            (202, 416) => one,
            (416, 202) => two,
            other => panic!("{other:?}"),
        };
        let before = fixture.trace(JOB).await;
        assert!(before.ends_with(&kept), "{before}");
        at += kept.len();
        assert_eq!(before.len(), at);
    }
}

#[tokio::test]
async fn the_size_of_chunks_and_traces_is_limited() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let most = 8 << 20;
    let response = fixture.append_trace(JOB, &token, 0, &"x".repeat(most + 1)).await;
    assert_snapshot!(response, @r#"
    413 Payload Too Large
    {"message":"413 Request Entity Too Large"}
    "#);
    let mut at = 0;
    // Twelve and a half of the largest chunks fit into a trace.
    for _ in 0..12 {
        assert_eq!(fixture.append_trace(JOB, &token, at, &"x".repeat(most)).await.code(), 202);
        at += most;
    }
    assert_eq!(fixture.append_trace(JOB, &token, at, &"x".repeat(most)).await.code(), 413);
    assert_eq!(fixture.append_trace(JOB, &token, at, &"x".repeat(most / 2)).await.code(), 202);
    assert_eq!(fixture.append_trace(JOB, &token, at + most / 2, "x").await.code(), 413);
    assert_eq!(fixture.append_trace(JOB, &token, at + most / 2, "").await.code(), 202);
}

#[tokio::test]
async fn a_range_of_a_trace_is_read() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "0123456789").await;
    let part = async |range: &str| {
        let answer = fixture.ann.get_with("/projects/1/builds/1/trace", &[("range", range)]).await;
        format!("{} [{}] {}", answer.code(), answer.header("content-range"), answer.text)
    };
    assert_eq!(part("bytes=2-4").await, "206 [bytes 2-4/10] 234");
    assert_eq!(part("bytes=7-").await, "206 [bytes 7-9/10] 789");
    assert_eq!(part("bytes=-3").await, "206 [bytes 7-9/10] 789");
    assert_eq!(part("lines=1-2").await, "200 [] 0123456789");
    assert_eq!(part("bytes=10-").await, r#"416 [bytes */10] {"error":"416 Range Not Satisfiable"}"#);
    let head = fixture.ann.head("/projects/1/builds/1/trace?follow=true").await;
    assert_eq!((head.code(), head.header("content-length"), head.text.as_str()), (200, "10", ""));
}

#[tokio::test]
async fn a_trace_is_followed_until_its_job_ends() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "before\n").await;
    let ann = fixture.ann.clone();
    let following = tokio::spawn(async move { ann.get("/projects/1/builds/1/trace?follow=true").await });
    let mut at = 7;
    for number in 0..20 {
        let line = format!("line {number}\n");
        assert_eq!(fixture.append_trace(JOB, &token, at, &line).await.code(), 202);
        at += line.len();
        tokio::task::yield_now().await;
    }
    fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    let followed = following.await.expect("no panic");
    let lines: Vec<String> = (0..20).map(|number| format!("line {number}\n")).collect();
    assert_eq!((followed.code(), followed.text), (200, format!("before\n{}", lines.concat())));
    // The trace of a finished job is read at once.
    assert_eq!(
        fixture.ann.get("/projects/1/builds/1/trace?follow=true").await.header("content-length"),
        at.to_string()
    );
}

#[tokio::test]
async fn following_ends_at_shutdown_or_when_access_is_lost() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let bob = fixture.forge.user("bob").await;
    fixture.ann.make("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 20 })).await;
    fixture.append_trace(JOB, &token, 0, "text").await;
    let follow =
        |client: TestClient| tokio::spawn(async move { client.get("/projects/1/builds/1/trace?follow=true").await });
    let following = follow(bob.clone());
    tokio::task::yield_now().await;
    fixture.ann.delete(&format!("/projects/1/members/{}", bob.id)).await;
    fixture.append_trace(JOB, &token, 4, " that bob does not see").await;
    let followed = following.await.expect("no panic");
    assert!([(200, "text"), (404, followed.text.as_str())].contains(&(followed.code(), &followed.text)), "{followed}");
    let following = follow(fixture.ann.clone());
    tokio::task::yield_now().await;
    forge::traces::close(&fixture.forge.forge);
    assert_eq!(following.await.expect("no panic").text, "text that bob does not see");
}

#[tokio::test]
async fn a_trace_is_found_in_its_own_project_only() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let bob = fixture.forge.user("bob").await;
    assert_eq!(bob.make("/projects", json!({ "name": "y" })).await, 2);
    assert_snapshot!(bob.get("/projects/2/builds/1/trace").await, @r#"
    404 Not Found
    {"message":"404 Not Found"}
    "#);
    assert_eq!(bob.get("/projects/1/builds/1/trace").await.code(), 404);
    assert_eq!(fixture.ann.get("/projects/1/builds/x/trace").await.text, r#"{"error":"build_id is invalid"}"#);
    assert_eq!(fixture.ann.get("/projects/1/builds/9/trace").await.text, r#"{"message":"404 Not Found"}"#);
}

#[tokio::test]
async fn a_job_is_erased_once_it_has_ended() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let refused = "403 {\"message\":\"403 Forbidden  - Build is not erasable!\"}";
    let erase = async || {
        let answer = fixture.ann.post("/projects/1/builds/1/erase", json!({})).await;
        format!("{} {}", answer.code(), answer.text)
    };
    assert_eq!(erase().await, refused);
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "said").await;
    assert_eq!(erase().await, refused);
    fixture.update_job(JOB, &token, json!({ "state": "failed" })).await;
    let erased = fixture.ann.post("/projects/1/builds/1/erase", json!({})).await;
    assert_eq!((erased.code(), erased.json()["erased_at"].is_string()), (201, true), "{erased}");
    assert_eq!(fixture.trace(JOB).await, "");
    assert!(!fixture.forge.project_traces_folder(PROJECT).join("1").exists());
    assert_eq!(erase().await, refused);
}

#[tokio::test]
async fn traces_are_removed_with_their_project() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, &format!("said {}", &token[..5])).await;
    assert!(fixture.forge.project_traces_folder(PROJECT).join("1").exists());
    fixture.ann.delete("/projects/1").await;
    assert_eq!(fixture.append_trace(JOB, &token, 10, "more").await.code(), 404);
    fixture.forge.run_due_tasks().await;
    assert_eq!(fs::read_dir(fixture.forge.traces_folder()).expect("a folder").count(), 0);
}

/// A body without a length is counted while it is read.
#[tokio::test]
async fn a_chunk_may_be_sent_without_a_length() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let pieces = ["some ", "text"].map(|piece| Ok::<_, std::io::Error>(axum::body::Bytes::from(piece)));
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    let headers =
        [("job-token", token.as_str()), ("content-range", "0-9"), (header::CONTENT_TYPE.as_str(), "text/plain")];
    assert_eq!(fixture.call(Method::PATCH, "/api/v4/jobs/1/trace", &headers, body).await.header("range"), "0-9");
    assert_eq!(fixture.trace(JOB).await, "some text");
}

#[tokio::test]
async fn the_trace_of_a_canceled_job_names_the_user() {
    let fixture = JobFixture::with("one: {script: make}\ntwo: {script: make}\nthree: {script: make}").await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "compiling\nhalf a li").await;
    assert_eq!(fixture.ann.post("/projects/1/builds/1/cancel", json!({})).await.code(), 201);
    let expected = "compiling\nhalf a li\nERROR: job canceled by ann\n";
    assert_eq!(fixture.trace(JOB).await, expected);
    // A second cancellation has no effect, and neither has a late chunk of the runner.
    assert_eq!(fixture.ann.post("/projects/1/builds/1/cancel", json!({})).await.code(), 201);
    fixture.append_trace(JOB, &token, 20, "ne").await;
    assert_eq!(fixture.trace(JOB).await, expected);
    // Cancelling a pipeline: a job without output, and one that never ran.
    fixture.assign(JobId::new(2)).await;
    assert_eq!(fixture.ann.post("/projects/1/pipelines/1/cancel", json!({})).await.code(), 200);
    assert_eq!(fixture.trace(JobId::new(2)).await, "ERROR: job canceled by ann\n");
    assert_eq!(fixture.trace(JobId::new(3)).await, "");
    assert_eq!(fixture.trace(JOB).await, expected);
}

#[tokio::test]
async fn the_last_line_of_a_canceled_job_reveals_no_withheld_secret() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let variable = json!({ "key": "KEY", "value": "s3cret-value" });
    assert_eq!(fixture.ann.post("/projects/1/variables", variable).await.code(), 201);
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "the key is s3cret-val").await;
    fixture.append_trace(JOB, &token, 21, "ue and the next is s3cret-").await;
    assert_eq!(fixture.ann.post("/projects/1/builds/1/cancel", json!({})).await.code(), 201);
    let read = fixture.trace(JOB).await;
    assert!(read.ends_with("\nERROR: job canceled by ann\n") && !read.contains("s3cret-value"), "{read}");
    assert!(read.starts_with("the key is xxxxxxxxxxxx and the next is "), "{read}");
}
