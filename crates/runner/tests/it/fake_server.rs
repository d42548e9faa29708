//! A fake server that implements only the runner protocol, and checks it strictly.

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{sleep, timeout},
};

pub(crate) const RUNNER_TOKEN: &str = "runner-token";
pub(crate) const REGISTRATION_TOKEN: &str = "registration-token";

type FakeResponse = Response<Full<Bytes>>;

/// What the runner has reported about a job.
#[derive(Clone, Default)]
pub(crate) struct ReportedJob {
    pub(crate) state: String,
    pub(crate) reason: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) trace: Vec<u8>,
    pub(crate) artifacts: Option<(String, String, Vec<u8>)>,
    pub(crate) keep_alives: u32,
    token: String,
}

impl ReportedJob {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.trace.clone()).expect("text")
    }

    /// Returns the trace without colours.
    pub(crate) fn plain_trace(&self) -> String {
        let mut plain = String::new();
        for part in self.text().split("\x1b[") {
            let after_code =
                part.split_once('m').filter(|(code, _)| code.chars().all(|ch| ch.is_ascii_digit() || ch == ';'));
            plain += after_code.map_or(part, |(_, after_code)| after_code);
        }
        plain
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<Value>,
    jobs: BTreeMap<u64, ReportedJob>,
    files: BTreeMap<u64, (String, Vec<u8>)>,
    /// Requests that violate the protocol.
    protocol_errors: Vec<String>,
    unavailable: bool,
    responses_to_lose: u32,
    max_artifacts_bytes: usize,
    requests: usize,
}

/// The fake server.
pub(crate) struct FakeServer {
    pub(crate) url: String,
    folder: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

impl FakeServer {
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = Arc::new(Self {
            url: format!("http://{}", listener.local_addr().expect("an address")),
            folder: tempfile::tempdir().expect("a folder"),
            state: Arc::new(Mutex::new(State { max_artifacts_bytes: usize::MAX, ..State::default() })),
            changed: watch::channel(1).0,
        });
        let shared = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let service = service_fn(move |request| {
                    let shared = Arc::clone(&shared);
                    async move { Ok::<_, Infallible>(shared.respond(request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        server
    }

    /// Creates a repository with these files, links (`-> target`) and submodules (`commit sha`); returns its only
    /// commit.
    pub(crate) fn repository(&self, name: &str, files: &[(&str, &str)]) -> String {
        let work = self.folder.path().join(format!("{name}.work"));
        std::fs::create_dir_all(&work).expect("made");
        git(&work, &["init", "--quiet", "--initial-branch=main"]);
        let (links, files): (Vec<_>, Vec<_>) = files.iter().partition(|(_, content)| content.starts_with("commit "));
        for (path, content) in files {
            let path = work.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            match content.strip_prefix("-> ") {
                Some(target) => std::os::unix::fs::symlink(target, path).expect("linked"),
                None => std::fs::write(path, content).expect("written"),
            }
        }
        git(&work, &["add", "--all"]);
        for (path, content) in links {
            let link = format!("160000,{},{path}", content.trim_start_matches("commit "));
            git(&work, &["update-index", "--add", "--cacheinfo", &link]);
        }
        git(&work, &["commit", "--quiet", "--message=one"]);
        let bare = self.folder.path().join(format!("{name}.git"));
        git(self.folder.path(), &["clone", "--quiet", "--bare", &path(&work), &path(&bare)]);
        git(&bare, &["update-server-info"]);
        git(&work, &["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Returns a job of this repository.
    pub(crate) fn job(&self, id: u64, name: &str, sha: &str, script: &[&str]) -> Value {
        let host = self.url.trim_start_matches("http://");
        json!({
            "id": id, "token": format!("job-token-{id}"), "allow_git_fetch": true,
            "job_info": {"name": "test", "stage": "test", "project_id": 1, "project_name": name},
            "git_info": {
                "repo_url": format!("http://gitlab-ci-token:job-token-{id}@{host}/{name}.git"), "ref": "main",
                "sha": sha, "before_sha": "0".repeat(40), "ref_type": "branch", "depth": 0,
                "refspecs": ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"],
            },
            "runner_info": {"timeout": 3600},
            "variables": [],
            "steps": [{"name": "script", "script": script, "timeout": 3600, "when": "on_success", "allow_failure": false}],
            "image": null, "services": [], "artifacts": null, "cache": [], "credentials": [], "dependencies": [],
        })
    }

    /// Returns a job without a repository.
    pub(crate) fn plain_job(&self, id: u64, script: &[&str]) -> Value {
        let mut job = self.job(id, "rocket", "", script);
        job["variables"] = json!([{"key": "GIT_STRATEGY", "value": "none", "public": true}]);
        job
    }

    /// Enqueues a job.
    pub(crate) fn enqueue(&self, job: Value) {
        self.with(|state| state.queue.push_back(job));
        self.changed.send_modify(|number| *number += 1);
    }

    /// Enqueues a job and waits for its end.
    pub(crate) async fn run_to_end(&self, job: Value) -> ReportedJob {
        let id = job["id"].as_u64().expect("a number");
        self.enqueue(job);
        self.wait_for(id, |reported| !matches!(reported.state.as_str(), "" | "running")).await
    }

    /// Waits until the reported state of a job matches.
    pub(crate) async fn wait_for(&self, id: u64, wanted: impl Fn(&ReportedJob) -> bool) -> ReportedJob {
        let found = async {
            loop {
                if let Some(reported) = self.reported_job(id).filter(&wanted) {
                    return reported;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let found = timeout(Duration::from_secs(120), found).await;
        found.unwrap_or_else(|_| {
            panic!(
                "job {id} never reaches the expected state: {}",
                self.reported_job(id).unwrap_or_default().plain_trace()
            )
        })
    }

    pub(crate) fn reported_job(&self, id: u64) -> Option<ReportedJob> {
        self.with(|state| state.jobs.get(&id).cloned())
    }

    pub(crate) fn set_unavailable(&self, unavailable: bool) {
        self.with(|state| state.unavailable = unavailable);
    }

    /// Accepts the next chunks of traces but loses the responses.
    pub(crate) fn lose_responses(&self, count: u32) {
        self.with(|state| state.responses_to_lose = count);
    }

    /// Returns the number of responses still to be lost.
    pub(crate) fn responses_left_to_lose(&self) -> u32 {
        self.with(|state| state.responses_to_lose)
    }

    pub(crate) fn cancel(&self, id: u64) {
        self.with(|state| state.jobs.get_mut(&id).expect("a job").state = "canceled".to_owned());
    }

    pub(crate) fn revoke_token(&self, id: u64) {
        self.with(|state| state.jobs.get_mut(&id).expect("a job").token = "another".to_owned());
    }

    pub(crate) fn set_max_artifacts_bytes(&self, size: usize) {
        self.with(|state| state.max_artifacts_bytes = size);
    }

    /// Stores artifacts that another job may download with this token.
    pub(crate) fn store_artifacts(&self, id: u64, token: &str, bytes: Vec<u8>) {
        self.with(|state| drop(state.files.insert(id, (token.to_owned(), bytes))));
    }

    /// Returns the number of requests received.
    pub(crate) fn requests(&self) -> usize {
        self.with(|state| state.requests)
    }

    pub(crate) fn protocol_errors(&self) -> Vec<String> {
        self.with(|state| state.protocol_errors.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().expect("no panic"))
    }

    fn record_protocol_error(&self, text: String) -> FakeResponse {
        self.with(|state| state.protocol_errors.push(text));
        empty_response(StatusCode::BAD_REQUEST)
    }

    async fn respond(&self, request: Request<Incoming>) -> FakeResponse {
        self.with(|state| state.requests += 1);
        if self.with(|state| state.unavailable) {
            return empty_response(StatusCode::SERVICE_UNAVAILABLE);
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let header =
            |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let path = head.uri.path().to_owned();
        let Some(call) = path.strip_prefix("/api/v4/") else {
            return self.repository_file(&path, &header("authorization"));
        };
        let parts: Vec<&str> = call.split('/').collect();
        let parse = || serde_json::from_slice::<Value>(&body).unwrap_or_default();
        match (&head.method, parts.as_slice()) {
            (&Method::POST, ["runners"]) => {
                let parsed = parse();
                if parsed["token"] != REGISTRATION_TOKEN {
                    return empty_response(StatusCode::FORBIDDEN);
                }
                if parsed["tag_list"] == "bad" {
                    return json_response(StatusCode::BAD_REQUEST, &json!({"message": "tags are bad"}));
                }
                json_response(StatusCode::CREATED, &json!({"id": 1, "token": RUNNER_TOKEN, "token_expires_at": null}))
            }
            (&Method::POST, ["runners", "verify"]) if parse()["token"] == RUNNER_TOKEN => {
                json_response(StatusCode::OK, &json!({"id": 1, "token": RUNNER_TOKEN, "token_expires_at": null}))
            }
            (&Method::DELETE, ["runners"]) if parse()["token"] == RUNNER_TOKEN => {
                empty_response(StatusCode::NO_CONTENT)
            }
            (&Method::POST, ["runners", "verify"]) | (&Method::DELETE, ["runners"]) => {
                empty_response(StatusCode::FORBIDDEN)
            }
            (&Method::POST, ["jobs", "request"]) => self.request_job(&parse()).await,
            (&Method::PUT, ["jobs", id]) => self.update(id, &parse()),
            (&Method::PATCH, ["jobs", id, "trace"]) => {
                self.append(id, &header("job-token"), &header("content-range"), &body)
            }
            (&Method::POST, ["jobs", id, "artifacts"]) => {
                let query = head.uri.query().unwrap_or_default();
                self.store_upload(id, &header("job-token"), &header("content-type"), query, body.clone()).await
            }
            (&Method::GET, ["jobs", id, "artifacts"]) => self.with(|state| {
                let file = state.files.get(&id.parse().unwrap_or(0)).filter(|(token, _)| *token == header("job-token"));
                file.map_or_else(
                    || empty_response(StatusCode::FORBIDDEN),
                    |(_, bytes)| Response::new(bytes.clone().into()),
                )
            }),
            (method, _) => self.record_protocol_error(format!("unknown call: {method} {path}")),
        }
    }

    async fn request_job(&self, body: &Value) -> FakeResponse {
        if body["token"] != RUNNER_TOKEN {
            return empty_response(StatusCode::FORBIDDEN);
        }
        let mut changed = self.changed.subscribe();
        let deadline = sleep(Duration::from_secs(50));
        tokio::pin!(deadline);
        loop {
            let now = changed.borrow_and_update().to_string();
            if let Some(job) = self.with(|state| state.queue.pop_front()) {
                let reported = ReportedJob {
                    state: "running".to_owned(),
                    token: job["token"].as_str().expect("a token").to_owned(),
                    ..ReportedJob::default()
                };
                self.with(|state| state.jobs.insert(job["id"].as_u64().expect("a number"), reported));
                return json_response(StatusCode::CREATED, &job);
            }
            let mut response = empty_response(StatusCode::NO_CONTENT);
            response.headers_mut().insert("x-gitlab-last-update", now.parse().expect("a header"));
            if body["last_update"] != now.as_str() {
                return response;
            }
            tokio::select! { _ = changed.changed() => {} () = &mut deadline => return response }
        }
    }

    fn update(&self, id: &str, body: &Value) -> FakeResponse {
        self.with(|state| {
            let Some(job) = id.parse().ok().and_then(|id: u64| state.jobs.get_mut(&id)) else {
                return empty_response(StatusCode::NOT_FOUND);
            };
            if body["token"] != job.token.as_str() {
                return empty_response(StatusCode::FORBIDDEN);
            }
            if job.state != "running" {
                return with_job_status(StatusCode::FORBIDDEN, &job.state);
            }
            match body["state"].as_str() {
                Some("running") => job.keep_alives += 1,
                Some(end @ ("success" | "failed")) => {
                    job.state = end.to_owned();
                    job.reason = body["failure_reason"].as_str().unwrap_or_default().to_owned();
                    job.exit_code = body["exit_code"].as_i64();
                }
                _ => state.protocol_errors.push(format!("unknown state: {body}")),
            }
            with_job_status(StatusCode::OK, "running")
        })
    }

    fn append(&self, id: &str, token: &str, range: &str, body: &[u8]) -> FakeResponse {
        self.with(|state| {
            let Some(job) = id.parse().ok().and_then(|id: u64| state.jobs.get_mut(&id)) else {
                return empty_response(StatusCode::NOT_FOUND);
            };
            if token != job.token {
                return empty_response(StatusCode::FORBIDDEN);
            }
            if job.state != "running" {
                return with_job_status(StatusCode::FORBIDDEN, &job.state);
            }
            let ends = range.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
            let Some((from, to)) = ends.filter(|(from, to): &(usize, usize)| from + body.len() == to + 1) else {
                state.protocol_errors.push(format!("invalid range: {range}"));
                return empty_response(StatusCode::BAD_REQUEST);
            };
            let with_range = |code, job: &ReportedJob| {
                let mut response = with_job_status(code, &job.state);
                response.headers_mut().insert("range", format!("0-{}", job.trace.len()).parse().expect("a header"));
                response
            };
            if from != job.trace.len() {
                return with_range(StatusCode::RANGE_NOT_SATISFIABLE, job);
            }
            assert!(to + 1 > from, "an empty chunk");
            job.trace.extend_from_slice(body);
            if state.responses_to_lose > 0 {
                state.responses_to_lose -= 1;
                return empty_response(StatusCode::BAD_GATEWAY);
            }
            with_range(StatusCode::ACCEPTED, job)
        })
    }

    async fn store_upload(&self, id: &str, token: &str, kind: &str, query: &str, body: Bytes) -> FakeResponse {
        let id: u64 = id.parse().unwrap_or(0);
        if !self.reported_job(id).is_some_and(|job| job.token == token && job.state == "running") {
            return empty_response(StatusCode::FORBIDDEN);
        }
        if body.len() > self.with(|state| state.max_artifacts_bytes) {
            return empty_response(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let Ok(boundary) = multer::parse_boundary(kind) else {
            return self.record_protocol_error(format!("not a form: {kind}"));
        };
        let mut form = multer::Multipart::new(stream::iter([Ok::<_, Infallible>(body)]), boundary);
        let part = form.next_field().await.expect("a form").expect("a part");
        let (field, name) = (part.name().map(ToOwned::to_owned), part.file_name().unwrap_or_default().to_owned());
        let bytes = part.bytes().await.expect("the whole part").to_vec();
        if field.as_deref() != Some("file") || form.next_field().await.expect("a form").is_some() {
            return self.record_protocol_error("unexpected form parts".to_owned());
        }
        self.with(|state| {
            state.files.insert(id, (token.to_owned(), bytes.clone()));
            state.jobs.get_mut(&id).expect("a job").artifacts = Some((name, query.to_owned(), bytes));
        });
        json_response(StatusCode::CREATED, &json!({"id": id}))
    }

    /// Returns a file of a repository to clients with the token of a running job.
    fn repository_file(&self, path: &str, authorization: &str) -> FakeResponse {
        let known = self.with(|state| {
            state.jobs.values().any(|job| {
                let credentials = BASE64_STANDARD.encode(format!("gitlab-ci-token:{}", job.token));
                job.state == "running" && authorization == format!("Basic {credentials}")
            })
        });
        if !known {
            let mut response = empty_response(StatusCode::UNAUTHORIZED);
            response.headers_mut().insert("www-authenticate", "Basic realm=\"x\"".parse().expect("a header"));
            return response;
        }
        // The client that fetches this is running now.
        for entry in std::fs::read_dir("/proc").expect("read").flatten() {
            let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let cmdline = String::from_utf8_lossy(&cmdline);
            if cmdline.contains("job-token-") || cmdline.contains(authorization.trim_start_matches("Basic ")) {
                self.with(|state| state.protocol_errors.push(format!("a token in arguments: {cmdline}")));
            }
        }
        match std::fs::read(self.folder.path().join(path.trim_start_matches('/'))) {
            Ok(bytes) if !path.contains("..") => Response::new(bytes.into()),
            _ => empty_response(StatusCode::NOT_FOUND),
        }
    }
}

fn empty_response(code: StatusCode) -> FakeResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}

fn with_job_status(code: StatusCode, job: &str) -> FakeResponse {
    let mut response = empty_response(code);
    response.headers_mut().insert("job-status", job.parse().expect("a header"));
    response
}

fn json_response(code: StatusCode, body: &Value) -> FakeResponse {
    let mut response = empty_response(code);
    response.headers_mut().insert("content-type", "application/json".parse().expect("a header"));
    *response.body_mut() = body.to_string().into();
    response
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "Ann")
        .env("GIT_AUTHOR_EMAIL", "ann@example.com")
        .env("GIT_COMMITTER_NAME", "Ann")
        .env("GIT_COMMITTER_EMAIL", "ann@example.com")
        .output()
        .expect("git runs");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
