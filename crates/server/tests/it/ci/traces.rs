//! What jobs say: told by runners bit by bit, read by people.

use std::{fs, io::Write as _};

use axum::{
    body::Body,
    http::{Method, header},
};
use insta::assert_snapshot;
use model::Status;
use serde_json::{Value, json};
use testkit::{Answer, Client, TestForge};

/// A private project with a pipeline, and a runner.
pub(crate) struct Yard {
    pub(crate) forge: TestForge,
    pub(crate) ann: Client,
    pub(crate) runner: i64,
    pub(crate) anyone: Client,
}

pub(crate) const ONE: &str = "one: {script: make}";

impl Yard {
    pub(crate) async fn with(file: &str) -> Self {
        Self::on(TestForge::start().await, file).await
    }

    /// Ann has the private project 1, whose pipeline is made of this file.
    pub(crate) async fn on(forge: TestForge, file: &str) -> Self {
        let ann = forge.user("ann").await;
        assert_eq!(ann.make("/projects", json!({ "name": "x" })).await, 1);
        forge.plant_pipeline(1, Some(ann.id), file).await;
        let (runner, anyone) = (forge.plant_runner("runner"), forge.anonymous());
        Self { forge, ann, runner, anyone }
    }

    pub(crate) async fn take(&self, build: i64) -> String {
        self.forge.take_build(build, self.runner).await
    }

    /// A call about a job, with further headers.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let request = self.anyone.request(method, path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.anyone.send(request, body.into()).await
    }

    /// Adds to the trace of a job.
    pub(crate) async fn say(&self, job: i64, token: &str, at: usize, text: &str) -> Answer {
        let range = format!("{at}-{}", at + text.len());
        let headers = [("job-token", token), ("content-range", &range)];
        self.call(Method::PATCH, &format!("/api/v4/jobs/{job}/trace"), &headers, text.to_owned()).await
    }

    /// Tells how a job stands.
    pub(crate) async fn tell(&self, job: i64, token: &str, mut update: Value) -> Answer {
        update["token"] = json!(token);
        self.anyone.put(&format!("/api/v4/jobs/{job}"), update).await
    }

    /// What people read.
    pub(crate) async fn trace(&self, build: i64) -> String {
        let answer = self.ann.get(&format!("/projects/1/builds/{build}/trace")).await;
        assert_eq!(answer.code(), 200, "{answer}");
        answer.text
    }

    /// How the builds of the first pipeline stand.
    pub(crate) fn builds(&self) -> Vec<model::Build> {
        let now = self.forge.forge.now();
        self.forge.in_one_go(|db| store::builds::of_pipeline(db, 1, now).expect("builds"))
    }

    pub(crate) fn standing(&self) -> String {
        self.builds()
            .iter()
            .map(|build| format!("{} {}", build.name, build.status.word()))
            .collect::<Vec<_>>()
            .join(", ")
    }

    pub(crate) fn pipeline(&self) -> Status {
        self.forge.in_one_go(|db| store::pipelines::by_id(db, 1).expect("asked").expect("there")).status
    }

    /// Stops a job, as somebody does who cancels it.
    pub(crate) fn cancel(&self, build: i64) {
        let (now, also) = (self.forge.forge.now(), store::builds::NewBuildState::default());
        self.forge.in_one_go(|db| store::builds::set_status(db, &[build], Status::Canceled, &also, now).expect("set"));
    }
}

#[tokio::test]
async fn a_trace_grows_where_it_ends() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    assert_eq!(yard.trace(1).await, "");
    let said = yard.say(1, &token, 0, "hello ").await;
    assert_eq!((said.code(), said.text.as_str()), (202, ""));
    assert_eq!((said.header("job-status"), said.header("range")), ("running", "0-6"));
    // Elsewhere, before and after.
    for at in [0, 5, 7, 100] {
        let said = yard.say(1, &token, at, "again").await;
        assert_eq!((said.code(), said.text.as_str()), (416, r#"{"error":"416 Range Not Satisfiable"}"#));
        assert_eq!((said.header("job-status"), said.header("range")), ("running", "0-6"));
    }
    // Bytes that are no text, and an end of the range that is wrong in either way.
    let headers = [("job-token", token.as_str()), ("content-range", "6-2")];
    let said = yard.call(Method::PATCH, "/api/v4/jobs/1/trace?debug_trace=false", &headers, &b"\xff\0\n"[..]).await;
    assert_eq!((said.code(), said.header("range")), (202, "0-9"));
    // Nothing new is a sign of life.
    let said = yard.say(1, &token, 9, "").await;
    assert_eq!((said.code(), said.header("range")), (202, "0-9"));
    let read = yard.ann.get("/projects/1/builds/1/trace").await;
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
async fn a_piece_needs_the_token_of_its_job_and_a_place() {
    let yard = Yard::with("one: {script: make}\ntwo: {script: make}").await;
    let (token, other) = (yard.take(1).await, yard.take(2).await);
    let send = async |path: &str, headers: &[(&str, &str)]| {
        let answer = yard.call(Method::PATCH, path, headers, "text").await;
        format!("{} {}", answer.code(), answer.text)
    };
    let (at, path) = (("content-range", "0-4"), "/api/v4/jobs/1/trace");
    assert_eq!(send(path, &[("job-token", &token)]).await, r#"400 {"error":"400 Missing header Content-Range"}"#);
    let odd = [("job-token", token.as_str()), ("content-range", "some")];
    assert_eq!(send(path, &odd).await, r#"400 {"error":"400 Invalid header Content-Range"}"#);
    assert_eq!(send("/api/v4/jobs/9/trace", &[("job-token", &token), at]).await, r#"404 {"message":"404 Not Found"}"#);
    let ann = yard.ann.token.clone().unwrap_or_default();
    for wrong in [other.as_str(), ann.as_str(), "", "abcdefghijklmnopqrst"] {
        assert_eq!(send(path, &[("job-token", wrong), at]).await, r#"403 {"message":"403 Forbidden"}"#);
        // Who is wrong hears nothing about the rest.
        assert_eq!(send(path, &[("private-token", wrong)]).await, r#"403 {"message":"403 Forbidden"}"#);
    }
    let runners_token = yard.ann.get("/projects/1").await.json()["runners_token"].clone();
    let runners_token = runners_token.as_str().expect("a token");
    assert_eq!(send(path, &[("job-token", runners_token), at]).await, r#"403 {"message":"403 Forbidden"}"#);
    assert_eq!(yard.trace(1).await, "");
    // Runners show their token in several ways.
    assert_eq!(send(path, &[("private-token", &token), at]).await, "202 ");
    assert_eq!(send(&format!("{path}?token={token}"), &[("content-range", "4-8")]).await, "202 ");
    assert_eq!(send(path, &[("build-token", &token), ("content-range", "8-12")]).await, "202 ");
    assert_eq!(yard.trace(1).await, "texttexttext");
}

#[tokio::test]
async fn older_runners_speak_their_own_protocol() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let patch = async |headers: &[(&str, &str)]| {
        yard.call(Method::PATCH, "/ci/api/v1/builds/1/trace.txt", headers, "text").await
    };
    let said = patch(&[("build-token", &token), ("content-range", "0-4")]).await;
    assert_eq!((said.code(), said.header("build-status"), said.header("range")), (202, "running", "0-4"));
    let runners_token = yard.ann.get("/projects/1").await.json()["runners_token"].clone();
    let said = patch(&[("build-token", runners_token.as_str().expect("a token")), ("content-range", "4-8")]).await;
    assert_eq!((said.code(), said.header("range")), (202, "0-8"));
    let said = patch(&[("build-token", &token), ("content-range", "4-8")]).await;
    assert_eq!((said.code(), said.header("build-status"), said.header("range")), (416, "running", "0-8"));
    assert_eq!(patch(&[("build-token", "wrong"), ("content-range", "8-12")]).await.code(), 403);
    assert_eq!(patch(&[("build-token", &token)]).await.code(), 400);
    // They hear that somebody stopped the build, and nothing more is taken.
    yard.cancel(1);
    let said = patch(&[("build-token", &token), ("content-range", "8-12")]).await;
    assert_eq!((said.code(), said.header("build-status"), said.header("range")), (202, "canceled", "0-8"));
    assert_eq!(yard.trace(1).await, "texttext");
}

#[tokio::test]
async fn nobody_listens_to_a_job_that_does_not_run() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.say(1, &token, 0, "text").await;
    yard.cancel(1);
    let said = yard.say(1, &token, 4, "more").await;
    assert_snapshot!(said, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - Job is not running"}
    "#);
    assert_eq!(said.header("job-status"), "canceled");
    assert_eq!(yard.trace(1).await, "text");
}

#[tokio::test]
async fn lesson_24_no_byte_of_a_secret_is_ever_seen() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let runners_token = yard.ann.get("/projects/1").await.json()["runners_token"].clone();
    let runners_token = runners_token.as_str().expect("a token").to_owned();
    let mut expected = String::new();
    let mut at = 0;
    for secret in [&token, &runners_token] {
        for cut in 1..secret.len() {
            let pieces = [format!("<{}", &secret[..cut]), format!("{}>\n", &secret[cut..])];
            let [before, after] = pieces;
            assert_eq!(yard.say(1, &token, at, &before).await.code(), 202);
            // As long as it may go on, it is held back.
            assert_eq!(yard.trace(1).await, format!("{expected}<"));
            at += before.len();
            let said = yard.say(1, &token, at, &after).await;
            at += after.len();
            assert_eq!(said.header("range"), format!("0-{at}"));
            expected += &format!("<{}>\n", "x".repeat(secret.len()));
            assert_eq!(yard.trace(1).await, expected);
        }
    }
    for entry in fs::read_dir(yard.forge.traces_of(1)).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = String::from_utf8_lossy(&fs::read(&path).expect("read")).into_owned();
        assert!(!text.contains(&token) && !text.contains(&runners_token), "{}", path.display());
    }
    // What only began like a secret is shown once it goes on differently, or once the runner has said all.
    yard.say(1, &token, at, &token[..5]).await;
    assert_eq!(yard.trace(1).await, expected);
    yard.say(1, &token, at + 5, &format!("!{}", &token[..7])).await;
    expected += &format!("{}!", &token[..5]);
    assert_eq!(yard.trace(1).await, expected);
    assert_eq!(yard.tell(1, &token, json!({ "state": "success" })).await.code(), 200);
    assert_eq!(yard.trace(1).await, format!("{expected}{}", &token[..7]));
}

#[tokio::test]
async fn variables_stay_hidden_as_they_were_when_the_job_was_given_away() {
    let yard = Yard::with(ONE).await;
    for (key, value) in [("ROTATED", "open-sesame-1"), ("REMOVED", "swordfish-22")] {
        let added = yard.ann.post("/projects/1/variables", json!({ "key": key, "value": value })).await;
        assert_eq!(added.code(), 201);
    }
    let token = yard.take(1).await;
    yard.ann.put("/projects/1/variables/ROTATED", json!({ "value": "open-sesame-2" })).await;
    yard.ann.delete("/projects/1/variables/REMOVED").await;
    let text = "open-sesame-1 open-sesame-2 swordfish-22 sesame\n";
    assert_eq!(yard.say(1, &token, 0, text).await.code(), 202);
    assert_eq!(yard.trace(1).await, "xxxxxxxxxxxxx xxxxxxxxxxxxx xxxxxxxxxxxx sesame\n");
    // Nothing of a secret that came in two pieces is left on the disk.
    yard.say(1, &token, text.len(), "swordfish-2").await;
    yard.say(1, &token, text.len() + 11, "2\n").await;
    let folder = yard.forge.traces_of(1);
    let files = || fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    assert_eq!(files().count(), 1);
    let all: Vec<u8> = files().flat_map(|path| fs::read(path).expect("read")).collect();
    assert!(!String::from_utf8_lossy(&all).contains("swordfish"));
}

#[tokio::test]
async fn a_secret_that_was_cut_off_by_a_cancel_stays_hidden() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.say(1, &token, 0, &format!("token: {}", &token[..19])).await;
    yard.cancel(1);
    assert_eq!(yard.trace(1).await, "token: ");
}

/// A server that was killed between the file and the row leaves bytes that nobody acknowledged.
#[tokio::test]
async fn what_was_not_acknowledged_is_sent_again() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let begun = format!("one\n{}", &token[..6]);
    yard.say(1, &token, 0, &begun).await;
    let path = yard.forge.traces_of(1).join("1");
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("a trace");
    file.write_all(b"half of a piece").expect("written");
    assert_eq!(yard.trace(1).await, "one\n");
    let said = yard.say(1, &token, begun.len(), &format!("{}\n", &token[6..])).await;
    assert_eq!((said.code(), said.header("range")), (202, "0-25"));
    assert_eq!(yard.trace(1).await, format!("one\n{}\n", "x".repeat(20)));
    // The same when what was held back had been written as it will be seen.
    let begun = &token[..6];
    yard.say(1, &token, 25, begun).await;
    let mut bytes = fs::read(&path).expect("a trace");
    bytes.truncate(25);
    bytes.extend(b"xxxxxxxxx and more");
    fs::write(&path, bytes).expect("written");
    yard.say(1, &token, 31, &token[6..]).await;
    assert_eq!(yard.trace(1).await, format!("one\n{}\n{}", "x".repeat(20), "x".repeat(20)));
}

#[tokio::test]
async fn whoever_gets_a_job_after_somebody_else_begins_anew() {
    let yard = Yard::with(ONE).await;
    let first = yard.take(1).await;
    yard.say(1, &first, 0, &format!("from the first: {}", &first[..9])).await;
    let (now, also) = (yard.forge.forge.now(), store::builds::NewBuildState::default());
    yard.forge.in_one_go(|db| store::builds::set_status(db, &[1], Status::Pending, &also, now).expect("set"));
    let second = yard.take(1).await;
    assert_eq!(yard.trace(1).await, "");
    assert_eq!(yard.say(1, &first, 25, "more").await.code(), 403);
    yard.say(1, &second, 0, &format!("from the second {}", &second[..9])).await;
    yard.say(1, &second, 25, &second[9..]).await;
    assert_eq!(yard.trace(1).await, format!("from the second {}", "x".repeat(20)));
}

#[tokio::test]
async fn of_two_pieces_for_one_place_one_is_taken() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let mut at = 0;
    for round in 0..10 {
        let (one, two) = (format!("one {round}\n"), format!("another {round}\n"));
        let (first, second) = tokio::join!(yard.say(1, &token, at, &one), yard.say(1, &token, at, &two));
        let kept = match (first.code(), second.code()) {
            (202, 416) => one,
            (416, 202) => two,
            other => panic!("{other:?}"),
        };
        let before = yard.trace(1).await;
        assert!(before.ends_with(&kept), "{before}");
        at += kept.len();
        assert_eq!(before.len(), at);
    }
}

#[tokio::test]
async fn a_piece_has_a_limit() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let most = 8 << 20;
    let said = yard.say(1, &token, 0, &"x".repeat(most + 1)).await;
    assert_snapshot!(said, @r#"
    413 Payload Too Large
    {"message":"413 Request Entity Too Large"}
    "#);
    let mut at = 0;
    // Twelve of the largest pieces fit into a trace, and half of one.
    for _ in 0..12 {
        assert_eq!(yard.say(1, &token, at, &"x".repeat(most)).await.code(), 202);
        at += most;
    }
    assert_eq!(yard.say(1, &token, at, &"x".repeat(most)).await.code(), 413);
    assert_eq!(yard.say(1, &token, at, &"x".repeat(most / 2)).await.code(), 202);
    assert_eq!(yard.say(1, &token, at + most / 2, "x").await.code(), 413);
    assert_eq!(yard.say(1, &token, at + most / 2, "").await.code(), 202);
}

#[tokio::test]
async fn a_part_of_a_trace_is_read() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.say(1, &token, 0, "0123456789").await;
    let part = async |range: &str| {
        let answer = yard.ann.get_with("/projects/1/builds/1/trace", &[("range", range)]).await;
        format!("{} [{}] {}", answer.code(), answer.header("content-range"), answer.text)
    };
    assert_eq!(part("bytes=2-4").await, "206 [bytes 2-4/10] 234");
    assert_eq!(part("bytes=7-").await, "206 [bytes 7-9/10] 789");
    assert_eq!(part("bytes=-3").await, "206 [bytes 7-9/10] 789");
    assert_eq!(part("lines=1-2").await, "200 [] 0123456789");
    assert_eq!(part("bytes=10-").await, r#"416 [bytes */10] {"error":"416 Range Not Satisfiable"}"#);
    let head = yard.ann.head("/projects/1/builds/1/trace?follow=true").await;
    assert_eq!((head.code(), head.header("content-length"), head.text.as_str()), (200, "10", ""));
}

#[tokio::test]
async fn a_trace_is_followed_until_its_job_ends() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.say(1, &token, 0, "before\n").await;
    let ann = yard.ann.clone();
    let following = tokio::spawn(async move { ann.get("/projects/1/builds/1/trace?follow=true").await });
    let mut at = 7;
    for number in 0..20 {
        let line = format!("line {number}\n");
        assert_eq!(yard.say(1, &token, at, &line).await.code(), 202);
        at += line.len();
        tokio::task::yield_now().await;
    }
    yard.tell(1, &token, json!({ "state": "success" })).await;
    let followed = following.await.expect("no panic");
    let lines: Vec<String> = (0..20).map(|number| format!("line {number}\n")).collect();
    assert_eq!((followed.code(), followed.text), (200, format!("before\n{}", lines.concat())));
    // One that has ended is just read.
    assert_eq!(yard.ann.get("/projects/1/builds/1/trace?follow=true").await.header("content-length"), at.to_string());
}

#[tokio::test]
async fn whoever_follows_a_trace_is_let_go_when_the_service_ends_or_they_may_see_it_no_more() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let bob = yard.forge.user("bob").await;
    yard.ann.make("/projects/1/members", json!({ "user_id": bob.id, "access_level": 20 })).await;
    yard.say(1, &token, 0, "text").await;
    let follow =
        |client: Client| tokio::spawn(async move { client.get("/projects/1/builds/1/trace?follow=true").await });
    let following = follow(bob.clone());
    tokio::task::yield_now().await;
    yard.ann.delete(&format!("/projects/1/members/{}", bob.id)).await;
    yard.say(1, &token, 4, " that bob does not see").await;
    let followed = following.await.expect("no panic");
    assert!([(200, "text"), (404, followed.text.as_str())].contains(&(followed.code(), &followed.text)), "{followed}");
    let following = follow(yard.ann.clone());
    tokio::task::yield_now().await;
    forge::traces::close(&yard.forge.forge);
    assert_eq!(following.await.expect("no panic").text, "text that bob does not see");
}

#[tokio::test]
async fn a_trace_is_found_in_its_project_only() {
    let yard = Yard::with(ONE).await;
    let bob = yard.forge.user("bob").await;
    assert_eq!(bob.make("/projects", json!({ "name": "y" })).await, 2);
    assert_snapshot!(bob.get("/projects/2/builds/1/trace").await, @r#"
    404 Not Found
    {"message":"404 Not Found"}
    "#);
    assert_eq!(bob.get("/projects/1/builds/1/trace").await.code(), 404);
    assert_eq!(yard.ann.get("/projects/1/builds/x/trace").await.text, r#"{"error":"build_id is invalid"}"#);
    assert_eq!(yard.ann.get("/projects/1/builds/9/trace").await.text, r#"{"message":"404 Not Found"}"#);
}

#[tokio::test]
async fn a_build_is_erased_once_it_has_ended() {
    let yard = Yard::with(ONE).await;
    let refused = "403 {\"message\":\"403 Forbidden  - Build is not erasable!\"}";
    let erase = async || {
        let answer = yard.ann.post("/projects/1/builds/1/erase", json!({})).await;
        format!("{} {}", answer.code(), answer.text)
    };
    assert_eq!(erase().await, refused);
    let token = yard.take(1).await;
    yard.say(1, &token, 0, "said").await;
    assert_eq!(erase().await, refused);
    yard.tell(1, &token, json!({ "state": "failed" })).await;
    let erased = yard.ann.post("/projects/1/builds/1/erase", json!({})).await;
    assert_eq!((erased.code(), erased.json()["erased_at"].is_string()), (201, true), "{erased}");
    assert_eq!(yard.trace(1).await, "");
    assert!(!yard.forge.traces_of(1).join("1").exists());
    assert_eq!(erase().await, refused);
}

#[tokio::test]
async fn traces_go_with_their_project() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    yard.say(1, &token, 0, &format!("said {}", &token[..5])).await;
    assert!(yard.forge.traces_of(1).join("1").exists());
    yard.ann.delete("/projects/1").await;
    assert_eq!(yard.say(1, &token, 10, "more").await.code(), 404);
    yard.forge.do_all_jobs().await;
    assert_eq!(fs::read_dir(yard.forge.traces_folder()).expect("a folder").count(), 0);
}

/// A body whose length nobody knows is counted as it comes.
#[tokio::test]
async fn a_piece_may_come_without_a_length() {
    let yard = Yard::with(ONE).await;
    let token = yard.take(1).await;
    let pieces = ["some ", "text"].map(|piece| Ok::<_, std::io::Error>(axum::body::Bytes::from(piece)));
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    let headers =
        [("job-token", token.as_str()), ("content-range", "0-9"), (header::CONTENT_TYPE.as_str(), "text/plain")];
    assert_eq!(yard.call(Method::PATCH, "/api/v4/jobs/1/trace", &headers, body).await.header("range"), "0-9");
    assert_eq!(yard.trace(1).await, "some text");
}

#[tokio::test]
async fn the_trace_of_a_job_that_was_canceled_says_by_whom() {
    let yard = Yard::with("one: {script: make}\ntwo: {script: make}\nthree: {script: make}").await;
    let token = yard.take(1).await;
    yard.say(1, &token, 0, "compiling\nhalf a li").await;
    assert_eq!(yard.ann.post("/projects/1/builds/1/cancel", json!({})).await.code(), 201);
    let expected = "compiling\nhalf a li\nERROR: job canceled by ann\n";
    assert_eq!(yard.trace(1).await, expected);
    // Whoever does it again changes nothing, and neither does the runner that has not heard of it yet.
    assert_eq!(yard.ann.post("/projects/1/builds/1/cancel", json!({})).await.code(), 201);
    yard.say(1, &token, 20, "ne").await;
    assert_eq!(yard.trace(1).await, expected);
    // With its pipeline; one that had said nothing yet, and one that never ran.
    yard.take(2).await;
    assert_eq!(yard.ann.post("/projects/1/pipelines/1/cancel", json!({})).await.code(), 200);
    assert_eq!(yard.trace(2).await, "ERROR: job canceled by ann\n");
    assert_eq!(yard.trace(3).await, "");
    assert_eq!(yard.trace(1).await, expected);
}

#[tokio::test]
async fn the_last_line_of_a_canceled_job_shows_no_secret_that_was_held_back() {
    let yard = Yard::with(ONE).await;
    let variable = json!({ "key": "KEY", "value": "s3cret-value" });
    assert_eq!(yard.ann.post("/projects/1/variables", variable).await.code(), 201);
    let token = yard.take(1).await;
    yard.say(1, &token, 0, "the key is s3cret-val").await;
    yard.say(1, &token, 21, "ue and the next is s3cret-").await;
    assert_eq!(yard.ann.post("/projects/1/builds/1/cancel", json!({})).await.code(), 201);
    let read = yard.trace(1).await;
    assert!(read.ends_with("\nERROR: job canceled by ann\n") && !read.contains("s3cret-value"), "{read}");
    assert!(read.starts_with("the key is xxxxxxxxxxxx and the next is "), "{read}");
}
