//! A server that knows nothing but the protocol, and takes it strictly.

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

pub(crate) const RUNNER: &str = "runner-token";
pub(crate) const REGISTRATION: &str = "registration-token";

type Answer = Response<Full<Bytes>>;

/// What the server knows of a job.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    pub(crate) state: String,
    pub(crate) reason: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) trace: Vec<u8>,
    pub(crate) artifacts: Option<(String, String, Vec<u8>)>,
    pub(crate) touched: u32,
    token: String,
}

impl Seen {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.trace.clone()).expect("text")
    }

    /// The trace without colours.
    pub(crate) fn plain(&self) -> String {
        let mut plain = String::new();
        for piece in self.text().split("\x1b[") {
            let rest =
                piece.split_once('m').filter(|(code, _)| code.chars().all(|it| it.is_ascii_digit() || it == ';'));
            plain += rest.map_or(piece, |(_, rest)| rest);
        }
        plain
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Value>,
    jobs: BTreeMap<u64, Seen>,
    files: BTreeMap<u64, (String, Vec<u8>)>,
    /// What a strict server would not have taken.
    complaints: Vec<String>,
    away: bool,
    lost_answers: u32,
    largest_artifacts: usize,
    requests: usize,
}

/// The server.
pub(crate) struct Server {
    pub(crate) url: String,
    folder: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
}

impl Server {
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = Arc::new(Self {
            url: format!("http://{}", listener.local_addr().expect("an address")),
            folder: tempfile::tempdir().expect("a folder"),
            state: Arc::new(Mutex::new(State { largest_artifacts: usize::MAX, ..State::default() })),
            changed: watch::channel(1).0,
        });
        let it = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let it = Arc::clone(&it);
                let service = service_fn(move |request| {
                    let it = Arc::clone(&it);
                    async move { Ok::<_, Infallible>(it.answer(request).await) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        server
    }

    /// A repository with these files, links (`-> target`) and submodules (`commit sha`), and its only commit.
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

    /// A job of that repository.
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

    /// A job without a repository.
    pub(crate) fn plain_job(&self, id: u64, script: &[&str]) -> Value {
        let mut job = self.job(id, "rocket", "", script);
        job["variables"] = json!([{"key": "GIT_STRATEGY", "value": "none", "public": true}]);
        job
    }

    /// Lets a runner have it.
    pub(crate) fn enqueue(&self, job: Value) {
        self.with(|state| state.waiting.push_back(job));
        self.changed.send_modify(|number| *number += 1);
    }

    /// Enqueues a job and waits for its end.
    pub(crate) async fn done(&self, job: Value) -> Seen {
        let id = job["id"].as_u64().expect("a number");
        self.enqueue(job);
        self.until(id, |seen| !matches!(seen.state.as_str(), "" | "running")).await
    }

    /// Waits until a job looks so.
    pub(crate) async fn until(&self, id: u64, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let found = async {
            loop {
                if let Some(seen) = self.seen(id).filter(&wanted) {
                    return seen;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        let found = timeout(Duration::from_secs(120), found).await;
        found.unwrap_or_else(|_| panic!("job {id} never gets there: {}", self.seen(id).unwrap_or_default().plain()))
    }

    pub(crate) fn seen(&self, id: u64) -> Option<Seen> {
        self.with(|state| state.jobs.get(&id).cloned())
    }

    pub(crate) fn set_away(&self, away: bool) {
        self.with(|state| state.away = away);
    }

    /// The next so many pieces of traces are taken, but nobody hears of it.
    pub(crate) fn lose_answers(&self, count: u32) {
        self.with(|state| state.lost_answers = count);
    }

    /// How many answers are still to be lost.
    pub(crate) fn answers_to_lose(&self) -> u32 {
        self.with(|state| state.lost_answers)
    }

    pub(crate) fn cancel(&self, id: u64) {
        self.with(|state| state.jobs.get_mut(&id).expect("a job").state = "canceled".to_owned());
    }

    pub(crate) fn forget(&self, id: u64) {
        self.with(|state| state.jobs.get_mut(&id).expect("a job").token = "another".to_owned());
    }

    pub(crate) fn set_largest_artifacts(&self, size: usize) {
        self.with(|state| state.largest_artifacts = size);
    }

    /// Puts artifacts there that another job may ask for with this token.
    pub(crate) fn store_artifacts(&self, id: u64, token: &str, bytes: Vec<u8>) {
        self.with(|state| drop(state.files.insert(id, (token.to_owned(), bytes))));
    }

    /// How often it was asked for anything.
    pub(crate) fn requests(&self) -> usize {
        self.with(|state| state.requests)
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        self.with(|state| state.complaints.clone())
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().expect("nobody panicked"))
    }

    fn complain(&self, text: String) -> Answer {
        self.with(|state| state.complaints.push(text));
        say(StatusCode::BAD_REQUEST)
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        self.with(|state| state.requests += 1);
        if self.with(|state| state.away) {
            return say(StatusCode::SERVICE_UNAVAILABLE);
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let header = |name: &str| head.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
        let path = head.uri.path().to_owned();
        let Some(call) = path.strip_prefix("/api/v4/") else {
            return self.repository_file(&path, &header("authorization"));
        };
        let parts: Vec<&str> = call.split('/').collect();
        let words = || serde_json::from_slice::<Value>(&body).unwrap_or_default();
        match (&head.method, parts.as_slice()) {
            (&Method::POST, ["runners"]) => {
                let words = words();
                if words["token"] != REGISTRATION {
                    return say(StatusCode::FORBIDDEN);
                }
                if words["tag_list"] == "bad" {
                    return json_answer(StatusCode::BAD_REQUEST, &json!({"message": "tags are bad"}));
                }
                json_answer(StatusCode::CREATED, &json!({"id": 1, "token": RUNNER, "token_expires_at": null}))
            }
            (&Method::POST, ["runners", "verify"]) if words()["token"] == RUNNER => {
                json_answer(StatusCode::OK, &json!({"id": 1, "token": RUNNER, "token_expires_at": null}))
            }
            (&Method::DELETE, ["runners"]) if words()["token"] == RUNNER => say(StatusCode::NO_CONTENT),
            (&Method::POST, ["runners", "verify"]) | (&Method::DELETE, ["runners"]) => say(StatusCode::FORBIDDEN),
            (&Method::POST, ["jobs", "request"]) => self.hand_out(&words()).await,
            (&Method::PUT, ["jobs", id]) => self.update(id, &words()),
            (&Method::PATCH, ["jobs", id, "trace"]) => {
                self.append(id, &header("job-token"), &header("content-range"), &body)
            }
            (&Method::POST, ["jobs", id, "artifacts"]) => {
                let query = head.uri.query().unwrap_or_default();
                self.take_artifacts(id, &header("job-token"), &header("content-type"), query, body.clone()).await
            }
            (&Method::GET, ["jobs", id, "artifacts"]) => self.with(|state| {
                let file = state.files.get(&id.parse().unwrap_or(0)).filter(|(token, _)| *token == header("job-token"));
                file.map_or_else(|| say(StatusCode::FORBIDDEN), |(_, bytes)| Response::new(bytes.clone().into()))
            }),
            (method, _) => self.complain(format!("no such call: {method} {path}")),
        }
    }

    async fn hand_out(&self, words: &Value) -> Answer {
        if words["token"] != RUNNER {
            return say(StatusCode::FORBIDDEN);
        }
        let mut changed = self.changed.subscribe();
        let deadline = sleep(Duration::from_secs(50));
        tokio::pin!(deadline);
        loop {
            let now = changed.borrow_and_update().to_string();
            if let Some(job) = self.with(|state| state.waiting.pop_front()) {
                let seen = Seen {
                    state: "running".to_owned(),
                    token: job["token"].as_str().expect("a token").to_owned(),
                    ..Seen::default()
                };
                self.with(|state| state.jobs.insert(job["id"].as_u64().expect("a number"), seen));
                return json_answer(StatusCode::CREATED, &job);
            }
            let mut answer = say(StatusCode::NO_CONTENT);
            answer.headers_mut().insert("x-gitlab-last-update", now.parse().expect("a header"));
            if words["last_update"] != now.as_str() {
                return answer;
            }
            tokio::select! { _ = changed.changed() => {} () = &mut deadline => return answer }
        }
    }

    fn update(&self, id: &str, words: &Value) -> Answer {
        self.with(|state| {
            let Some(job) = id.parse().ok().and_then(|id: u64| state.jobs.get_mut(&id)) else {
                return say(StatusCode::NOT_FOUND);
            };
            if words["token"] != job.token.as_str() {
                return say(StatusCode::FORBIDDEN);
            }
            if job.state != "running" {
                return status(StatusCode::FORBIDDEN, &job.state);
            }
            match words["state"].as_str() {
                Some("running") => job.touched += 1,
                Some(end @ ("success" | "failed")) => {
                    job.state = end.to_owned();
                    job.reason = words["failure_reason"].as_str().unwrap_or_default().to_owned();
                    job.exit_code = words["exit_code"].as_i64();
                }
                _ => state.complaints.push(format!("no such state: {words}")),
            }
            status(StatusCode::OK, "running")
        })
    }

    fn append(&self, id: &str, token: &str, range: &str, body: &[u8]) -> Answer {
        self.with(|state| {
            let Some(job) = id.parse().ok().and_then(|id: u64| state.jobs.get_mut(&id)) else {
                return say(StatusCode::NOT_FOUND);
            };
            if token != job.token {
                return say(StatusCode::FORBIDDEN);
            }
            if job.state != "running" {
                return status(StatusCode::FORBIDDEN, &job.state);
            }
            let ends = range.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
            let Some((from, to)) = ends.filter(|(from, to): &(usize, usize)| from + body.len() == to + 1) else {
                state.complaints.push(format!("a range that does not fit: {range}"));
                return say(StatusCode::BAD_REQUEST);
            };
            let place = |code, job: &Seen| {
                let mut answer = status(code, &job.state);
                answer.headers_mut().insert("range", format!("0-{}", job.trace.len()).parse().expect("a header"));
                answer
            };
            if from != job.trace.len() {
                return place(StatusCode::RANGE_NOT_SATISFIABLE, job);
            }
            assert!(to + 1 > from, "an empty piece");
            job.trace.extend_from_slice(body);
            if state.lost_answers > 0 {
                state.lost_answers -= 1;
                return say(StatusCode::BAD_GATEWAY);
            }
            place(StatusCode::ACCEPTED, job)
        })
    }

    async fn take_artifacts(&self, id: &str, token: &str, kind: &str, query: &str, body: Bytes) -> Answer {
        let id: u64 = id.parse().unwrap_or(0);
        if !self.seen(id).is_some_and(|job| job.token == token && job.state == "running") {
            return say(StatusCode::FORBIDDEN);
        }
        if body.len() > self.with(|state| state.largest_artifacts) {
            return say(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let Ok(boundary) = multer::parse_boundary(kind) else { return self.complain(format!("no form: {kind}")) };
        let mut form = multer::Multipart::new(stream::iter([Ok::<_, Infallible>(body)]), boundary);
        let part = form.next_field().await.expect("a form").expect("a part");
        let (field, name) = (part.name().map(ToOwned::to_owned), part.file_name().unwrap_or_default().to_owned());
        let bytes = part.bytes().await.expect("the whole part").to_vec();
        if field.as_deref() != Some("file") || form.next_field().await.expect("a form").is_some() {
            return self.complain("a form with other parts".to_owned());
        }
        self.with(|state| {
            state.files.insert(id, (token.to_owned(), bytes.clone()));
            state.jobs.get_mut(&id).expect("a job").artifacts = Some((name, query.to_owned(), bytes));
        });
        json_answer(StatusCode::CREATED, &json!({"id": id}))
    }

    /// A file of a repository, for those who show the token of a running job.
    fn repository_file(&self, path: &str, authorization: &str) -> Answer {
        let known = self.with(|state| {
            state.jobs.values().any(|job| {
                let credentials = BASE64_STANDARD.encode(format!("gitlab-ci-token:{}", job.token));
                job.state == "running" && authorization == format!("Basic {credentials}")
            })
        });
        if !known {
            let mut answer = say(StatusCode::UNAUTHORIZED);
            answer.headers_mut().insert("www-authenticate", "Basic realm=\"x\"".parse().expect("a header"));
            return answer;
        }
        // Whoever fetches this is running now.
        for entry in std::fs::read_dir("/proc").expect("read").flatten() {
            let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words);
            if words.contains("job-token-") || words.contains(authorization.trim_start_matches("Basic ")) {
                self.with(|state| state.complaints.push(format!("a token in arguments: {words}")));
            }
        }
        match std::fs::read(self.folder.path().join(path.trim_start_matches('/'))) {
            Ok(bytes) if !path.contains("..") => Response::new(bytes.into()),
            _ => say(StatusCode::NOT_FOUND),
        }
    }
}

fn say(code: StatusCode) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = code;
    answer
}

fn status(code: StatusCode, job: &str) -> Answer {
    let mut answer = say(code);
    answer.headers_mut().insert("job-status", job.parse().expect("a header"));
    answer
}

fn json_answer(code: StatusCode, words: &Value) -> Answer {
    let mut answer = say(code);
    answer.headers_mut().insert("content-type", "application/json".parse().expect("a header"));
    *answer.body_mut() = words.to_string().into();
    answer
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn git(folder: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(words)
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
    assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
