//! The pages of jobs: logs, artifacts and actions.

use std::io::{Cursor, Write as _};

use axum::{body::Body, http::Method};
use model::JobId;
use serde_json::json;
use testkit::{TestClient, TestForge, TestResponse};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use super::pipelines::{PROJECT, assert_has, start, submit};

const JOB: JobId = JobId::new(1);
const JOB_PAGE: &str = "/ann/rocket/-/jobs/1";

/// A running job of the public project `ann/rocket`.
struct RunningJob {
    forge: TestForge,
    ann: TestClient,
    token: String,
    log_size: usize,
}

impl RunningJob {
    async fn start(file: &str) -> Self {
        let (forge, ann) = start().await;
        forge.start_pipeline(PROJECT, Some(ann.id), file).await;
        let runner = forge.insert_runner("runner <1>");
        let token = forge.assign_job(JOB, runner).await;
        Self { forge, ann, token, log_size: 0 }
    }

    async fn append(&mut self, text: &str) {
        let range = format!("{}-{}", self.log_size, self.log_size + text.len());
        let headers = [("job-token", self.token.as_str()), ("content-range", &range)];
        let response = call(&self.forge, Method::PATCH, "/api/v4/jobs/1/trace", &headers, text.to_owned()).await;
        assert_eq!(response.code(), 202, "{response}");
        self.log_size += text.len();
    }

    async fn finish(&self, state: &str) {
        let update = json!({ "token": self.token, "state": state });
        assert_eq!(self.forge.anonymous().put("/api/v4/jobs/1", update).await.code(), 200);
    }

    async fn upload(&self, archive: &[u8], query: &str) {
        upload_artifacts(&self.forge, &self.token, archive, query).await;
    }
}

async fn call(
    forge: &TestForge,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> TestResponse {
    let anyone = forge.anonymous();
    let request = anyone.request(method, path);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    anyone.send(request, body.into()).await
}

/// Uploads an archive as the artifacts of the first job.
pub(crate) async fn upload_artifacts(forge: &TestForge, token: &str, archive: &[u8], query: &str) {
    let head = "--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"artifacts.zip\"\r\n\r\n";
    let body = [head.as_bytes(), archive, b"\r\n--b0undary--\r\n"].concat();
    let headers = [("job-token", token), ("content-type", "multipart/form-data; boundary=b0undary")];
    let path = format!("/api/v4/jobs/1/artifacts{query}");
    let response = call(forge, Method::POST, &path, &headers, body).await;
    assert_eq!(response.code(), 201, "{response}");
}

/// Returns a ZIP archive with these files.
pub(crate) fn zip_archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (at, (name, content)) in files.iter().enumerate() {
        let method = if at % 2 == 0 { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).expect("a file");
        writer.write_all(content).expect("written");
    }
    writer.finish().expect("an archive").into_inner()
}

#[tokio::test]
async fn a_log_is_shown_with_colours_and_sections() {
    let mut job = RunningJob::start("one: {script: make, tags: []}").await;
    job.append("\u{1b}[32mhello\u{1b}[0m <script>alert(1)</script>\n10%\r100%\n").await;
    job.append("section_start:1700000000:tests\r\u{1b}[0KRunning tests\nok \u{202e}\n").await;
    job.append("section_end:1700000009:tests\r\u{1b}[0Kbye\n").await;
    job.finish("success").await;
    let visitor = job.forge.browser();
    let page = visitor.get(JOB_PAGE).await;
    assert_has(
        &page,
        &[
            "<span class=\"status success\">passed</span>",
            "<span class=\"a2\">hello</span> &lt;script&gt;alert(1)&lt;/script&gt;",
            "<a id=\"L2\" href=\"#L2\" tabindex=\"-1\">2</a><span>100%</span>",
            "<details open><summary class=\"l\"><span id=\"L3\" class=\"number\">3</span><span>Running tests</span></summary>",
            "U+202E</span></span></div></details>",
            "<span>bye</span>",
            "runner &lt;1&gt;",
            "href=\"/ann/rocket/-/pipelines/1\"",
        ],
    );
    assert!(!page.text.contains("<script>alert") && !page.text.contains("data-live"), "{page}");
    assert!(!page.text.contains(">Retry<") && !page.text.contains("Erase"), "{page}");
    let raw = visitor.get(&format!("{JOB_PAGE}/raw")).await;
    assert!(raw.text.starts_with("\u{1b}[32mhello") && raw.text.ends_with("bye\n"), "{raw}");
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("content-length", &*job.log_size.to_string()),
    ] {
        assert_eq!(raw.header(name), value, "{name}");
    }
    for odd in ["0", "x", "2", "99999999999999999999"] {
        assert_eq!(visitor.get(&format!("/ann/rocket/-/jobs/{odd}")).await.code(), 404, "{odd}");
    }
}

#[tokio::test]
async fn only_the_end_of_a_long_log_is_shown() {
    let mut job = RunningJob::start("one: {script: make}").await;
    job.append("the first line\n").await;
    for _ in 0..3 {
        job.append(&format!("{}\n", "x".repeat(99)).repeat(2500)).await;
    }
    job.append("the last line\n").await;
    let page = job.forge.browser().get(JOB_PAGE).await;
    assert_has(&page, &["the last line", "Only the end of the log is shown"]);
    assert!(!page.text.contains("the first line") && page.text.len() < 2 << 20, "{}", page.text.len());
}

#[tokio::test]
async fn a_page_follows_the_log_of_a_running_job() {
    let mut job = RunningJob::start("one: {script: make}").await;
    let visitor = job.forge.browser();
    assert_has(&visitor.get(JOB_PAGE).await, &["There is no output yet.", "data-state=\"0:0:9:9:0:\"", ">Refresh</a>"]);
    job.append("one\nsection_start:1:s\r\u{1b}[0KS\ntwo\nthr").await;
    let page = visitor.get(JOB_PAGE).await;
    assert_has(&page, &["data-live=\"/ann/rocket/-/jobs/1/log\"", "data-status=\"running\"", "<span>thr</span>"]);
    let state = page.text.split("data-state=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a state");
    job.append("ee\n").await;
    let next = visitor.get(&format!("{JOB_PAGE}/log?state={state}")).await;
    assert_has(
        &next,
        &[
            "data-status=\"running\" data-more=\"false\" data-restarted=\"false\"",
            "<details open data-continued><div class=\"l\"><a id=\"L4\"",
            "<span>three</span>",
        ],
    );
    assert!(!next.text.contains("<span>two</span>"), "{next}");
    job.finish("failed").await;
    assert_has(&visitor.get(&format!("{JOB_PAGE}/log?state={state}")).await, &["data-status=\"failed\""]);
    // A state that no page has sent begins at the beginning.
    for odd in ["", "x", "999:0:9:9:0:", "0:0:9:9:0:%3Cscript%3E"] {
        let page = visitor.get(&format!("{JOB_PAGE}/log?state={odd}")).await;
        assert_has(&page, &["<span>one</span>", "data-restarted=\"true\""]);
        assert!(!page.text.contains("<script>"), "{page}");
    }
}

#[tokio::test]
async fn artifacts_are_browsed_and_downloaded() {
    let job = RunningJob::start("one: {script: make}").await;
    let archive = zip_archive(&[
        ("out/index.html", b"<script>alert(1)</script>"),
        ("out/app.bin", b"\0\x01binary"),
        ("out/deep/a b.txt", b"text"),
        ("../escape.txt", b"x"),
        ("logo.png", b"\x89PNG"),
    ]);
    job.upload(&archive, "?expire_in=1d").await;
    let visitor = job.forge.browser();
    assert_has(&visitor.get(JOB_PAGE).await, &["artifacts.zip", "/artifacts/browse\">Browse", "removed after"]);
    let download = visitor.get(&format!("{JOB_PAGE}/artifacts/download")).await;
    assert_eq!((download.code(), download.bytes == archive), (200, true));
    assert_eq!(download.header("content-disposition"), "attachment; filename*=UTF-8''artifacts.zip");
    let browse = format!("{JOB_PAGE}/artifacts/browse");
    let root = visitor.get(&browse).await;
    assert_has(&root, &["/artifacts/browse/out\"><bdi>out</bdi>", "/artifacts/file/logo.png\""]);
    assert!(!root.text.contains("escape"), "{root}");
    let folder = visitor.get(&format!("{browse}/out")).await;
    assert_has(&folder, &["25 bytes", "/artifacts/browse/out/deep\"", "aria-label=\"Parent folder\""]);
    assert_has(&visitor.get(&format!("{browse}/out/deep")).await, &["/artifacts/file/out/deep/a%20b.txt\""]);
    let get = async |path: &str| visitor.get(&format!("{JOB_PAGE}/artifacts/file/{path}")).await;
    for (path, content, kind) in [
        ("out/index.html", &b"<script>alert(1)</script>"[..], "text/plain; charset=utf-8"),
        ("out/app.bin", b"\0\x01binary", "application/octet-stream"),
        ("out/deep/a%20b.txt", b"text", "text/plain; charset=utf-8"),
        ("logo.png", b"\x89PNG", "image/png"),
    ] {
        let file = get(path).await;
        assert_eq!((file.code(), file.bytes.as_slice(), file.header("content-type")), (200, content, kind), "{path}");
        assert_eq!(file.header("x-content-type-options"), "nosniff");
        assert_eq!(file.header("content-security-policy"), "default-src 'none'; sandbox");
    }
    for missing in ["out", "nothing", "../escape.txt", "%2e%2e/escape.txt", "out/%00"] {
        assert_eq!(get(missing).await.code(), 404, "{missing}");
    }
    assert_eq!(visitor.get(&format!("{browse}/nowhere")).await.code(), 404);
}

#[tokio::test]
async fn damaged_archives_and_bombs_do_no_harm() {
    let job = RunningJob::start("one: {script: make}").await;
    let visitor = job.forge.browser();
    let browse = format!("{JOB_PAGE}/artifacts/browse");
    job.upload(b"not an archive", "").await;
    assert_has(&visitor.get(&browse).await, &["The files cannot be listed"]);
    // The directory promises fewer bytes than the file has.
    let mut archive = zip_archive(&[("bomb", &vec![b'x'; 100_000])]);
    let entry = archive.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").expect("an entry");
    archive[entry + 24..entry + 28].copy_from_slice(&10u32.to_le_bytes());
    job.upload(&archive, "").await;
    assert_eq!(visitor.get(&format!("{JOB_PAGE}/artifacts/file/bomb")).await.code(), 500);
    // The content lies outside the archive.
    archive[entry + 42..entry + 46].copy_from_slice(&0x00ff_ffffu32.to_le_bytes());
    job.upload(&archive, "").await;
    assert_eq!(visitor.get(&format!("{JOB_PAGE}/artifacts/file/bomb")).await.code(), 404);
    for cut in [1, 10, 22, 40, 60] {
        job.upload(&archive[cut..archive.len() - cut], "").await;
        assert_eq!(visitor.get(&browse).await.code(), 200, "{cut}");
    }
}

#[tokio::test]
async fn artifacts_for_developers_are_hidden_from_others() {
    let job = RunningJob::start("one: {script: make, artifacts: {access: developer, paths: [x]}}").await;
    job.upload(&zip_archive(&[("a.txt", b"secret")]), "").await;
    let (bob, dan) = (job.forge.signed_in_browser("bob").await, job.forge.signed_in_browser("dan").await);
    for (browser, status) in [(&job.forge.browser(), 403), (&bob, 403), (&dan, 200)] {
        for path in ["download", "browse", "file/a.txt"] {
            assert_eq!(browser.get(&format!("{JOB_PAGE}/artifacts/{path}")).await.code(), status, "{path}");
        }
        let page = browser.get(JOB_PAGE).await;
        assert_eq!(page.text.contains("/artifacts/download"), status == 200, "{page}");
    }
}

#[tokio::test]
async fn a_developer_changes_jobs() {
    let mut job = RunningJob::start("one: {script: make}\ntwo: {script: x, when: manual, allow_failure: true}").await;
    job.append("output\n").await;
    job.upload(&zip_archive(&[("a.txt", b"x")]), "?expire_in=1d").await;
    let (forge, ann) = (&job.forge, &job.ann);
    let (dan, bob) = (forge.signed_in_browser("dan").await, forge.signed_in_browser("bob").await);
    let status = async |id: i64| ann.get(&format!("/projects/1/builds/{id}")).await.json()["status"].clone();
    // A manual job is started from the page of the pipeline.
    let pipeline = "/ann/rocket/-/pipelines/1";
    assert_has(&dan.get(pipeline).await, &["aria-label=\"Run two\"", "<span class=\"status manual\">manual</span>"]);
    let played = submit(&dan, pipeline, "/ann/rocket/-/jobs/2/play", &[("from", "pipeline")]).await;
    assert_eq!((played.code(), played.header("location")), (303, pipeline));
    assert_eq!(status(2).await, "pending");
    let again = submit(&dan, pipeline, "/ann/rocket/-/jobs/2/play", &[]).await;
    assert_eq!(again.code(), 422);
    let kept = submit(&dan, JOB_PAGE, &format!("{JOB_PAGE}/artifacts/keep"), &[]).await;
    assert_eq!(kept.header("location"), JOB_PAGE);
    assert!(ann.get("/projects/1/builds/1").await.json()["artifacts_expire_at"].is_null());
    assert!(!dan.get(JOB_PAGE).await.text.contains(">Keep<"));
    let canceled = submit(&dan, JOB_PAGE, &format!("{JOB_PAGE}/cancel"), &[]).await;
    assert_eq!((canceled.code(), canceled.header("location")), (303, JOB_PAGE));
    assert_eq!(status(1).await, "canceled");
    assert_has(&dan.get(JOB_PAGE).await, &["job canceled by dan", ">Retry<", "Erase log and artifacts"]);
    let retried = submit(&dan, JOB_PAGE, &format!("{JOB_PAGE}/retry"), &[]).await;
    assert_eq!((retried.code(), retried.header("location")), (303, "/ann/rocket/-/jobs/3"));
    assert_has(
        &dan.get("/ann/rocket/-/jobs/3").await,
        &["<strong>#3</strong>", "href=\"/ann/rocket/-/jobs/1\">#1</a>"],
    );
    let erased = submit(&dan, JOB_PAGE, &format!("{JOB_PAGE}/erase"), &[]).await;
    assert_eq!(erased.code(), 303, "{erased}");
    assert_has(&dan.get(JOB_PAGE).await, &["were erased"]);
    assert_eq!(ann.get("/projects/1/builds/1/trace").await.text, "");
    for action in ["retry", "cancel", "play", "erase", "artifacts/keep"] {
        assert_eq!(submit(&bob, "/explore", &format!("/ann/rocket/-/jobs/3/{action}"), &[]).await.code(), 403);
    }
    assert_eq!(status(3).await, "pending");
}
