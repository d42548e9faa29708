//! Traces of jobs.

use std::{fs, io::Write as _};

use axum::{
    body::Body,
    http::{Method, header},
};
use forge::{
    Caller,
    tasks::{self, Task},
};
use model::{JobId, PipelineId, ProjectId, RunnerId, Status};
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse};

const PROJECT: ProjectId = ProjectId::new(1);
const JOB: JobId = JobId::new(1);

/// Where the traces of a test are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceStore {
    /// In a folder.
    Folder,
    /// In rows, until a task archives them.
    Rows,
    /// In objects: every chunk is archived as soon as it is stored.
    Objects,
}

/// Runs each test with every store of traces.
macro_rules! with_every_store {
    ($($name:ident)*) => {
        mod in_a_folder {
            $(#[tokio::test] async fn $name() { super::$name(super::TraceStore::Folder).await; })*
        }
        mod in_rows {
            $(#[tokio::test] async fn $name() { super::$name(super::TraceStore::Rows).await; })*
        }
        mod in_objects {
            $(#[tokio::test] async fn $name() { super::$name(super::TraceStore::Objects).await; })*
        }
    };
}

with_every_store! {
    a_chunk_is_appended_at_the_end_of_the_trace
    a_chunk_needs_the_job_token_and_an_offset
    older_runners_use_their_own_protocol
    chunks_of_a_job_that_is_not_running_are_rejected
    no_byte_of_a_secret_is_visible
    variables_are_masked_with_their_values_at_the_start_of_the_job
    a_secret_interrupted_by_a_cancellation_stays_hidden
    the_trace_is_empty_after_a_job_is_assigned_again
    of_two_chunks_with_the_same_offset_one_is_stored
    the_size_of_chunks_and_traces_is_limited
    a_range_of_a_trace_is_read
    a_trace_is_followed_until_its_job_ends
    following_ends_at_shutdown_or_when_access_is_lost
    a_trace_is_found_in_its_own_project_only
    a_job_is_erased_once_it_has_ended
    traces_are_removed_with_their_project
    a_chunk_may_be_sent_without_a_length
    the_trace_of_a_canceled_job_names_the_user
    the_last_line_of_a_canceled_job_reveals_no_withheld_secret
}

/// A private project with a pipeline, and a runner.
pub(crate) struct JobFixture {
    store: TraceStore,
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

    pub(crate) async fn with_store(store: TraceStore, file: &str) -> Self {
        let builder = TestForge::builder();
        let builder = if store == TraceStore::Folder { builder } else { builder.segmented_traces() };
        Self { store, ..Self::start_on(builder.start().await, file).await }
    }

    /// Ann has the private project 1, whose pipeline has this CI file. Traces are in a folder.
    pub(crate) async fn start_on(forge: TestForge, file: &str) -> Self {
        let ann = forge.user("ann").await;
        assert_eq!(ann.make("/projects", json!({ "name": "x" })).await, 1);
        forge.start_pipeline(PROJECT, Some(ann.id), file).await;
        let (runner, anyone) = (forge.insert_runner("runner"), forge.anonymous());
        Self { store: TraceStore::Folder, forge, ann, runner, anyone }
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
        let response = self.call(Method::PATCH, &format!("/api/v4/jobs/{job}/trace"), &headers, text.to_owned()).await;
        if self.store == TraceStore::Objects {
            self.archive(job).await;
        }
        response
    }

    /// Moves the segments of a trace from the database to objects.
    pub(crate) async fn archive(&self, job: JobId) {
        let enqueue = move |tx: &mut forge::WriteTx<'_>| {
            let now = tx.now();
            tasks::enqueue(tx, &Task::ArchiveTrace(job), now)
        };
        self.forge.forge.write(Caller::system(), enqueue).await.expect("enqueued");
        self.forge.run_due_tasks().await;
    }

    /// The number of segments in rows, and of those in objects.
    fn segments(&self) -> (usize, usize) {
        let dump = self.forge.dump();
        let rows = || dump.lines().filter(|line| line.starts_with("trace_segments: "));
        let inline = rows().filter(|line| line.contains("object_id= ")).count();
        (inline, rows().count() - inline)
    }

    /// Asserts that neither the database nor a file has this text.
    fn assert_not_stored(&self, text: &str) {
        let hex = text.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
        let dump = self.forge.dump();
        assert!(!dump.contains(&hex) && !dump.contains(text));
        let mut folders = vec![self.forge.traces_folder(), self.forge.files_folder().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = fs::read(&path).expect("read");
                    assert!(!String::from_utf8_lossy(&bytes).contains(text), "{}", path.display());
                }
            }
        }
    }

    /// Asserts that nothing of any trace is stored.
    fn assert_nothing_stored(&self) {
        let dump = self.forge.dump();
        let rows: Vec<&str> = dump.lines().filter(|line| line.starts_with("trace_")).collect();
        assert_eq!((rows, self.forge.trace_objects()), (Vec::new(), Vec::new()));
        let folder = self.forge.traces_folder();
        let projects = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
        let files: Vec<_> = projects.flat_map(|project| fs::read_dir(project).expect("a folder")).collect();
        assert_eq!(files.len(), 0);
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

async fn a_chunk_is_appended_at_the_end_of_the_trace(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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

async fn a_chunk_needs_the_job_token_and_an_offset(store: TraceStore) {
    let fixture = JobFixture::with_store(store, "one: {script: make}\ntwo: {script: make}").await;
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

async fn older_runners_use_their_own_protocol(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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

async fn chunks_of_a_job_that_is_not_running_are_rejected(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "text").await;
    fixture.cancel(JOB);
    let response = fixture.append_trace(JOB, &token, 4, "more").await;
    assert_eq!(
        response.to_string(),
        concat!("403 Forbidden\n", r#"{"message":"403 Forbidden  - Job is not running"}"#)
    );
    assert_eq!(response.header("job-status"), "canceled");
    assert_eq!(fixture.trace(JOB).await, "text");
}

async fn no_byte_of_a_secret_is_visible(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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
    fixture.assert_not_stored(&token);
    fixture.assert_not_stored(&runners_token);
    // The start of a secret is shown once the text continues differently, or once the trace is complete.
    fixture.append_trace(JOB, &token, at, &token[..5]).await;
    assert_eq!(fixture.trace(JOB).await, expected);
    fixture.append_trace(JOB, &token, at + 5, &format!("!{}", &token[..7])).await;
    expected += &format!("{}!", &token[..5]);
    assert_eq!(fixture.trace(JOB).await, expected);
    assert_eq!(fixture.update_job(JOB, &token, json!({ "state": "success" })).await.code(), 200);
    assert_eq!(fixture.trace(JOB).await, format!("{expected}{}", &token[..7]));
}

async fn variables_are_masked_with_their_values_at_the_start_of_the_job(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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
    if store != TraceStore::Folder {
        fixture.assert_not_stored("swordfish");
    }
    fixture.append_trace(JOB, &token, text.len() + 11, "2\n").await;
    fixture.assert_not_stored("swordfish");
    if store == TraceStore::Folder {
        let folder = fixture.forge.project_traces_folder(PROJECT);
        assert_eq!(fs::read_dir(folder).expect("a folder").count(), 1);
    }
}

async fn a_secret_interrupted_by_a_cancellation_stays_hidden(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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

async fn the_trace_is_empty_after_a_job_is_assigned_again(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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

async fn of_two_chunks_with_the_same_offset_one_is_stored(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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

async fn the_size_of_chunks_and_traces_is_limited(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let most = 8 << 20;
    let response = fixture.append_trace(JOB, &token, 0, &"x".repeat(most + 1)).await;
    assert_eq!(
        response.to_string(),
        concat!("413 Payload Too Large\n", r#"{"message":"413 Request Entity Too Large"}"#)
    );
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

async fn a_range_of_a_trace_is_read(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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

async fn a_trace_is_followed_until_its_job_ends(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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

async fn following_ends_at_shutdown_or_when_access_is_lost(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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

async fn a_trace_is_found_in_its_own_project_only(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
    let bob = fixture.forge.user("bob").await;
    assert_eq!(bob.make("/projects", json!({ "name": "y" })).await, 2);
    assert_eq!(
        bob.get("/projects/2/builds/1/trace").await.to_string(),
        concat!("404 Not Found\n", r#"{"message":"404 Not Found"}"#)
    );
    assert_eq!(bob.get("/projects/1/builds/1/trace").await.code(), 404);
    assert_eq!(fixture.ann.get("/projects/1/builds/x/trace").await.text, r#"{"error":"build_id is invalid"}"#);
    assert_eq!(fixture.ann.get("/projects/1/builds/9/trace").await.text, r#"{"message":"404 Not Found"}"#);
}

async fn a_job_is_erased_once_it_has_ended(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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
    fixture.assert_nothing_stored();
    assert_eq!(erase().await, refused);
    fixture.forge.run_due_tasks().await;
    assert_eq!(fixture.trace(JOB).await, "");
}

async fn traces_are_removed_with_their_project(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, &format!("said {}", &token[..5])).await;
    let is_file = fixture.forge.project_traces_folder(PROJECT).join("1").exists();
    let expected = match store {
        TraceStore::Folder => (true, (0, 0)),
        TraceStore::Rows => (false, (1, 0)),
        TraceStore::Objects => (false, (0, 1)),
    };
    assert_eq!((is_file, fixture.segments()), expected);
    fixture.ann.delete("/projects/1").await;
    assert_eq!(fixture.append_trace(JOB, &token, 10, "more").await.code(), 404);
    fixture.forge.run_due_tasks().await;
    fixture.assert_nothing_stored();
    assert_eq!(fs::read_dir(fixture.forge.traces_folder()).into_iter().flatten().count(), 0);
}

/// A body without a length is counted while it is read.
async fn a_chunk_may_be_sent_without_a_length(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
    let token = fixture.assign(JOB).await;
    let pieces = ["some ", "text"].map(|piece| Ok::<_, std::io::Error>(axum::body::Bytes::from(piece)));
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    let headers =
        [("job-token", token.as_str()), ("content-range", "0-9"), (header::CONTENT_TYPE.as_str(), "text/plain")];
    assert_eq!(fixture.call(Method::PATCH, "/api/v4/jobs/1/trace", &headers, body).await.header("range"), "0-9");
    assert_eq!(fixture.trace(JOB).await, "some text");
}

async fn the_trace_of_a_canceled_job_names_the_user(store: TraceStore) {
    let fixture =
        JobFixture::with_store(store, "one: {script: make}\ntwo: {script: make}\nthree: {script: make}").await;
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

async fn the_last_line_of_a_canceled_job_reveals_no_withheld_secret(store: TraceStore) {
    let fixture = JobFixture::with_store(store, ONE_JOB).await;
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
