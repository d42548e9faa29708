//! Access to every route of the runner protocols with every kind of token.

use std::fmt::Write as _;

use api::routes::RouteDoc;
use axum::{body::Body, http::Method};
use insta::assert_snapshot;
use model::{JobId, ProjectId};
use serde_json::json;
use testkit::TestForge;

/// The presented tokens. All but the first are valid for something.
const CALLERS: [&str; 10] =
    ["nothing", "made up", "user", "instance", "project", "stranger", "runner", "other job", "ended job", "job"];

/// Two projects with a runner and a job each; the first also has a finished job.
struct AccessFixture {
    forge: TestForge,
    tokens: [String; CALLERS.len()],
    /// The job in the path.
    job: JobId,
}

impl AccessFixture {
    async fn new() -> Self {
        let forge = TestForge::start().await;
        let (root, ann, bob) = (forge.admin().await, forge.user("ann").await, forge.user("bob").await);
        let anyone = forge.anonymous();
        let file = "done: {script: x}\nrunning: {script: x}";
        let mut joined = Vec::new();
        for (client, name) in [(&ann, "rocket"), (&bob, "kiln")] {
            let project = ProjectId::new(
                client.make("/projects", json!({ "name": name, "shared_runners_enabled": false })).await,
            );
            forge.start_pipeline(project, Some(client.id), file).await;
            let token = client.get(&format!("/projects/{project}")).await.json()["runners_token"].clone();
            let runner = anyone.post("/api/v4/runners", json!({ "token": token })).await.json()["token"].clone();
            let take = async || {
                let job = anyone.post("/api/v4/jobs/request", json!({ "token": runner })).await.json();
                (JobId::new(job["id"].as_i64().expect("a job")), job["token"].as_str().expect("a token").to_owned())
            };
            let (ended, other) = (take().await, take().await);
            let done = json!({ "token": ended.1, "state": "success" });
            assert_eq!(anyone.put(&format!("/api/v4/jobs/{}", ended.0), done).await.code(), 200);
            let text = |value: &serde_json::Value| value.as_str().expect("a token").to_owned();
            joined.push((text(&token), text(&runner), ended.1, other));
        }
        let instance = forge.forge.write(forge::Caller::system(), forge::runners::registration_token).await;
        let instance = instance.expect("a token").reveal().to_owned();
        let [(project, runner, ended, (job, token)), (_, stranger, _, (_, other))] =
            joined.try_into().expect("two projects");
        let user = root.token.clone().expect("a token");
        let made_up = "abcdefghijklmnopqrst".to_owned();
        let tokens = [String::new(), made_up, user, instance, project, stranger, runner, other, ended, token];
        Self { forge, tokens, job }
    }

    /// Calls a route with one token, in all places in which runners send it.
    async fn call(&self, prefix: &str, route: &RouteDoc, caller: usize) -> u16 {
        let token = &self.tokens[caller];
        let path = format!("{prefix}{}", route.path.replace("{id}", &self.job.to_string()));
        let anyone = self.forge.anonymous();
        let mut request = anyone.request(route.method.clone(), &path);
        if !token.is_empty() {
            for name in ["private-token", "runner-token", "job-token", "build-token"] {
                request = request.header(name, token);
            }
        }
        let json = |mut body: serde_json::Value| {
            if !token.is_empty() {
                body["token"] = json!(token);
            }
            ("application/json", body.to_string())
        };
        let (kind, body) = match (&route.method, route.path) {
            (&Method::PATCH, _) => {
                request = request.header("content-range", "0-1");
                ("text/plain", "hi".to_owned())
            }
            (&Method::POST, path) if path.ends_with("/artifacts") => (
                "multipart/form-data; boundary=edge",
                "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.zip\"\r\n\r\nx\r\n--edge--\r\n"
                    .to_owned(),
            ),
            (&Method::PUT, _) => json(json!({ "state": "running" })),
            _ => json(json!({})),
        };
        let request = request.header("content-type", kind);
        anyone.send(request, Body::from(body)).await.code()
    }
}

#[tokio::test]
async fn the_access_table_of_runners() {
    let mut table = format!("{:<48}", "");
    for name in CALLERS {
        let _ = write!(table, " {name:>9}");
    }
    let mut fresh = None;
    for (prefix, route) in api::routes::runner_protocols() {
        let _ = write!(table, "\n{:<7}{:<41}", route.method.as_str(), format!("{prefix}{}", route.path));
        for caller in 0..CALLERS.len() {
            let fixture = match fresh.take() {
                Some(fixture) => fixture,
                None => AccessFixture::new().await,
            };
            let code = fixture.call(prefix, &route, caller).await;
            let _ = write!(table, " {code:>9}");
            // Changes must not affect the next call.
            if code >= 400 {
                fresh = Some(fixture);
            }
        }
    }
    assert_snapshot!("access_of_runners", table);
}
