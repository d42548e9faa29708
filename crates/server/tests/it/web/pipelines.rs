//! The pages of pipelines.

use model::{JobId, ProjectId};
use serde_json::json;
use testkit::{
    LocalRepository, TestClient, TestForge, TestResponse,
    browser::{Browser, form_token},
};

pub(crate) const PROJECT: ProjectId = ProjectId::new(1);
const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");
const PIPELINES: &str = "/ann/rocket/-/pipelines";

/// A forge with the public project `ann/rocket`, of which `dan` is a developer and `bob` is no member.
pub(crate) async fn start() -> (TestForge, TestClient) {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    forge.user("bob").await;
    assert_eq!(ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await, 1);
    ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
    (forge, ann)
}

/// Submits a form of a page.
pub(crate) async fn submit(browser: &Browser, page: &str, to: &str, fields: &[(&str, &str)]) -> TestResponse {
    let token = form_token(&browser.get(page).await.text);
    let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("form_token", token.as_str())]).collect();
    browser.post(to, &[SAME_ORIGIN], &fields).await
}

/// Fails unless a page has all these parts.
#[track_caller]
pub(crate) fn assert_has(page: &TestResponse, parts: &[&str]) {
    assert_eq!(page.code(), 200, "{page}");
    for part in parts {
        assert!(page.text.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn a_developer_runs_a_pipeline_for_a_branch() {
    let (forge, ann) = start().await;
    let visitor = forge.browser();
    assert_has(&visitor.get(PIPELINES).await, &["There are no pipelines."]);
    let local = LocalRepository::new();
    local.write(".gitlab-ci.yml", "stages: [build, test]\none: {stage: build, script: make}\ntwo: {script: x}\n");
    local.commit("Add <b>CI</b>");
    forge.push_all(&ann, PROJECT, &local).await;
    let list = visitor.get(PIPELINES).await;
    assert_has(
        &list,
        &[
            "Add &lt;b&gt;CI&lt;/b&gt;",
            ">#1</a>",
            "<span class=\"status pending\">pending</span>",
            "title=\"build: pending\"",
            "<span class=\"unseen\">test: created</span>",
            "aria-current=\"page\">Pipelines</a>",
        ],
    );
    assert!(!list.text.contains("Run pipeline"), "{list}");
    let dan = forge.signed_in_browser("dan").await;
    assert_has(&dan.get(PIPELINES).await, &["Run pipeline"]);
    let new = format!("{PIPELINES}/new");
    assert_has(&dan.get(&new).await, &["value=\"master\"", "<option value=\"master\"></option>"]);
    let refused = submit(&dan, &new, PIPELINES, &[("ref", "no <ref>")]).await;
    assert_eq!(refused.code(), 422, "{refused}");
    for part in ["Reference not found", "value=\"no &#60;ref&#62;\"", "aria-invalid=\"true\""] {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    let started = submit(&dan, &new, PIPELINES, &[("ref", "master")]).await;
    assert_eq!((started.code(), started.header("location")), (303, &*format!("{PIPELINES}/2")));
    let page = dan.get(&format!("{PIPELINES}/2")).await;
    assert_has(
        &page,
        &["Pipeline #2", "by a request of", "<bdi>one</bdi>", "Cancel pipeline", "aria-label=\"Cancel one\""],
    );
    assert_eq!(ann.get("/projects/1/pipelines").await.join_field("id"), "2 1");
    // The older form of the address.
    assert_eq!(visitor.get("/ann/rocket/pipelines/2").await.header("location"), format!("{PIPELINES}/2"));
}

#[tokio::test]
async fn pipelines_are_filtered_by_status_and_branch() {
    let (forge, ann) = start().await;
    let file = "one: {script: make}";
    for branch in ["main", "next", "main"] {
        forge.start_pipeline_at(PROJECT, Some(ann.id), branch, model::Oid([7; 20]), file).await;
    }
    forge.apply_job_event(JobId::new(2), ci::StatusEvent::Drop).await;
    let visitor = forge.browser();
    let shown = async |query: &str| {
        let page = visitor.get(&format!("{PIPELINES}?{query}")).await;
        assert_eq!(page.code(), 200, "{page}");
        (1..=3)
            .filter(|id| page.text.contains(&format!(">#{id}</a>")))
            .map(|id| id.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(shown("").await, "1 2 3");
    assert_eq!(shown("ref=main").await, "1 3");
    assert_eq!(shown("status=failed").await, "2");
    assert_eq!(shown("status=failed&ref=main").await, "");
    assert_eq!(shown("status=odd&ref=%00").await, "1 2 3");
    assert_eq!(shown("ref=%22%3E%3Cscript%3E").await, "");
    assert!(!visitor.get(&format!("{PIPELINES}?ref=%22%3E%3Cscript%3Ex")).await.text.contains("<script>x"));
    for odd in ["0", "x", "9", "99999999999999999999"] {
        assert_eq!(visitor.get(&format!("{PIPELINES}/{odd}")).await.code(), 404, "{odd}");
    }
}

#[tokio::test]
async fn a_failed_pipeline_says_why_and_is_retried() {
    let (forge, ann) = start().await;
    let file = "stages: [build, test]\nbuild: {stage: build, script: x}\nlint: {needs: [], script: x}\n\
                deploy: {needs: [build], script: x, when: manual}";
    forge.start_pipeline(PROJECT, Some(ann.id), file).await;
    let runner = forge.insert_runner("runner");
    let token = forge.assign_job(JobId::new(1), runner).await;
    let anyone = forge.anonymous();
    let log = "compiling\n\u{1b}[31merror: <oops>\u{1b}[0m\n";
    let headers = [("job-token", token.as_str()), ("content-range", &*format!("0-{}", log.len()))];
    let request = headers
        .iter()
        .fold(anyone.request(axum::http::Method::PATCH, "/api/v4/jobs/1/trace"), |request, (name, value)| {
            request.header(*name, *value)
        });
    assert_eq!(anyone.send(request, axum::body::Body::from(log)).await.code(), 202);
    let failed = json!({ "token": token, "state": "failed", "failure_reason": "script_failure" });
    assert_eq!(anyone.put("/api/v4/jobs/1", failed).await.code(), 200);
    let page = forge.browser().get(&format!("{PIPELINES}/1")).await;
    assert_has(
        &page,
        &[
            "<h2>Failed jobs</h2>",
            "the script failed",
            "compiling\n<span class=\"a1\">error: &lt;oops&gt;</span>",
            "needs <bdi>nothing</bdi>",
            "needs <bdi>build</bdi>",
        ],
    );
    assert!(!page.text.contains("Retry"), "{page}");
    let dan = forge.signed_in_browser("dan").await;
    let path = format!("{PIPELINES}/1");
    assert_has(&dan.get(&path).await, &["Retry failed jobs", "aria-label=\"Retry build\"", "Cancel pipeline"]);
    let retried = submit(&dan, &path, &format!("{path}/retry"), &[]).await;
    assert_eq!((retried.code(), retried.header("location")), (303, &*path));
    assert_eq!(ann.get("/projects/1/builds/4").await.json()["status"], "pending");
    let canceled = submit(&dan, &path, &format!("{path}/cancel"), &[]).await;
    assert_eq!((canceled.code(), canceled.header("location")), (303, &*path));
    assert_eq!(ann.get("/projects/1/pipelines/1").await.json()["status"], "canceled");
    // A user without the role cannot do it, even with a form of another page.
    let bob = forge.signed_in_browser("bob").await;
    for action in ["retry", "cancel"] {
        assert_eq!(submit(&bob, "/explore", &format!("{path}/{action}"), &[]).await.code(), 403);
    }
    assert_eq!(submit(&bob, "/explore", PIPELINES, &[("ref", "master")]).await.code(), 403);
    assert_eq!(bob.get(&format!("{PIPELINES}/new")).await.code(), 403);
}

#[tokio::test]
async fn jobs_are_hidden_from_non_members_without_public_builds() {
    let (forge, ann) = start().await;
    forge.start_pipeline(PROJECT, Some(ann.id), "one: {script: make}").await;
    let (visitor, bob, dan) =
        (forge.browser(), forge.signed_in_browser("bob").await, forge.signed_in_browser("dan").await);
    let (pipeline, job) = (format!("{PIPELINES}/1"), "/ann/rocket/-/jobs/1");
    for browser in [&visitor, &bob, &dan] {
        assert!(browser.get(&pipeline).await.text.contains("href=\"/ann/rocket/-/jobs/1\""));
        assert_eq!(browser.get(job).await.code(), 200);
    }
    assert_eq!(ann.put("/projects/1", json!({ "name": "rocket", "public_builds": false })).await.code(), 200);
    for browser in [&visitor, &bob] {
        let page = browser.get(&pipeline).await;
        assert_has(&page, &["<bdi>one</bdi>", "visible to members"]);
        assert!(!page.text.contains("/-/jobs/1"), "{page}");
        for path in ["", "/raw", "/log", "/artifacts/download", "/artifacts/browse"] {
            assert_eq!(browser.get(&format!("{job}{path}")).await.code(), 403, "{path}");
        }
    }
    assert_eq!(dan.get(job).await.code(), 200);
    // Without CI, there are no pages of it.
    assert_eq!(ann.put("/projects/1", json!({ "name": "rocket", "builds_enabled": false })).await.code(), 200);
    assert_eq!(dan.get(PIPELINES).await.code(), 403);
    assert!(!dan.get("/ann/rocket").await.text.contains("/-/pipelines"));
}

#[tokio::test]
async fn a_pipeline_with_an_invalid_file_shows_the_error() {
    let (forge, ann) = start().await;
    let local = LocalRepository::new();
    local.write(".gitlab-ci.yml", "one: {script: [<b>], stage: nowhere}\n");
    local.commit("x");
    forge.push_all(&ann, PROJECT, &local).await;
    let visitor = forge.browser();
    assert_has(&visitor.get(PIPELINES).await, &["invalid file"]);
    assert_has(&visitor.get(&format!("{PIPELINES}/1")).await, &["The file .gitlab-ci.yml is invalid"]);
}
