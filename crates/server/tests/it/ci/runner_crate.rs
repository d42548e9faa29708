//! A runner that others have written does a job: the crate `gitlab-runner`, as it is.

use std::{pin::Pin, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, StatusCode},
};
use gitlab_runner::{GitlabLayer, JobHandler, JobResult, Phase, RunnerBuilder, job::Job};
use model::Status;
use serde_json::json;
use testkit::{Client, TestForge};
use tokio::net::TcpListener;

use crate::{
    ci::assignments::{build, builds_of},
    ci::runners::{join_instance, wait_for},
};

/// Serves a forge on a port of its own; answers the URL.
async fn listen(client: Client) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let client = Arc::new(client);
    let app = Router::new().fallback(move |request: Request| {
        let client = Arc::clone(&client);
        async move { pass_on(&client, request).await }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn pass_on(client: &Client, request: Request) -> (StatusCode, HeaderMap, Vec<u8>) {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a body");
    let mut passed = Request::builder().method(parts.method).uri(parts.uri);
    for (name, value) in &parts.headers {
        passed = passed.header(name, value);
    }
    let answer = client.send(passed, Body::from(body)).await;
    (answer.status, answer.headers, answer.bytes)
}

/// Says what it was told to do, and does nothing.
struct Parrot(Job);

impl JobHandler for Parrot {
    // As `async_trait` writes it.
    fn step<'me, 'script, 'step>(
        &'me mut self,
        script: &'script [String],
        phase: Phase,
    ) -> Pin<Box<dyn Future<Output = JobResult> + Send + 'step>>
    where
        'me: 'step,
        'script: 'step,
        Self: 'step,
    {
        Box::pin(async move {
            let color = self.0.variable("COLOR").map(|found| found.value().to_owned()).unwrap_or_default();
            self.0.trace(format!("{phase:?} {} in {color}\n", script.join("; ")));
            Ok(())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_of_others_does_a_job() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "rocket" })).await;
    let (_, token) = join_instance(&forge, json!({ "description": "crate" })).await;
    let file = "one: {script: [make, make check], after_script: [rm out], variables: {COLOR: red}}";
    let pipeline = forge.plant_pipeline(project, Some(ann.id), file).await;
    let id = builds_of(&forge, pipeline.id)[0].id;
    let url = listen(forge.anonymous()).await.parse().expect("a URL");
    let (_, jobs) = GitlabLayer::new::<tracing_subscriber::Registry>();
    let folder = tempfile::tempdir().expect("a folder");
    let mut runner = RunnerBuilder::new(url, token, folder.path(), jobs).version("0.3.2").build().await;
    let found = runner.request_job(async |job| Ok::<_, ()>(Parrot(job))).await;
    assert!(found.expect("an answer that it understands"));
    runner.drain().await;
    wait_for(async || build(&forge, id).status == Status::Success).await;
    let trace = ann.get(&format!("/projects/{project}/builds/{id}/trace")).await;
    assert_eq!(
        (trace.code(), trace.text.as_str()),
        (200, "Script make; make check in red\nAfterScript rm out in red\n")
    );
    let nothing = runner.request_job(async |job| Ok::<_, ()>(Parrot(job))).await;
    assert!(!nothing.expect("an answer that it understands"));
}
