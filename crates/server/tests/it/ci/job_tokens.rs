//! Job tokens and what they give access to.

use std::path::Path;

use axum::{Router, extract::Request};
use files::spool::Spools;
use model::{JobId, PipelineId, ProjectId};
use serde_json::json;
use tempfile::TempDir;
use testkit::{
    LocalRepository, TestClient,
    repository::{SMALL_REPOSITORY, git_command},
};
use tokio::net::TcpListener;
use wire::{TransferLimits, Transfers, http::GitHttp};

use crate::ci::traces::{JobFixture, ONE_JOB};

const PROJECT: ProjectId = ProjectId::new(1);
const JOB: JobId = JobId::new(1);

/// A server and a folder for stock git.
struct GitClient {
    address: String,
    work: TempDir,
}

impl GitClient {
    async fn new(fixture: &JobFixture) -> Self {
        let work = tempfile::tempdir().expect("a folder");
        let spools = Spools::open(&work.path().join("cache"), 1 << 20).expect("spools");
        let transfers = Transfers::new(fixture.forge.forge.clone(), spools, TransferLimits::default());
        let git = std::sync::Arc::new(GitHttp::new(transfers, None));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let router = Router::new().fallback(move |request: Request| {
            let git = std::sync::Arc::clone(&git);
            async move { git.handle(request).await }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, work }
    }

    /// Runs git with a token; returns whether it succeeds, and its output.
    async fn git(&self, token: &str, arguments: &[&str]) -> (bool, String) {
        let url = format!("http://gitlab-ci-token:{token}@{}", self.address);
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace("URL", &url)).collect();
        let mut command = git_command(self.path());
        command.args(arguments);
        let ran = tokio::task::spawn_blocking(move || command.output().expect("git runs")).await.expect("no panic");
        (ran.status.success(), String::from_utf8_lossy(&ran.stderr).into_owned())
    }

    fn path(&self) -> &Path {
        self.work.path()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_clones_its_repository_while_it_is_running_and_nothing_else() {
    let fixture = JobFixture::with(ONE_JOB).await;
    fixture.forge.fast_import(&fixture.ann, PROJECT, SMALL_REPOSITORY).await;
    let bob = fixture.forge.user("bob").await;
    assert_eq!(bob.make("/projects", json!({ "name": "y" })).await, 2);
    fixture.forge.fast_import(&bob, ProjectId::new(2), SMALL_REPOSITORY).await;
    let git_client = GitClient::new(&fixture).await;
    let clone = async |token: &str, path: &str, folder: &str| {
        git_client.git(token, &["clone", "-q", &format!("URL/{path}.git"), folder]).await
    };
    // Not before the repository exists.
    assert!(!clone("abcdefghijklmnopqrst", "ann/x", "before").await.0);
    let token = fixture.assign(JOB).await;
    let (cloned, response) = clone(&token, "ann/x", "while").await;
    assert!(cloned, "{response}");
    assert!(git_client.path().join("while/README.md").exists());
    // Neither other repositories, nor with write access.
    assert!(!clone(&token, "bob/y", "elsewhere").await.0);
    let before = fixture.forge.refs_of(PROJECT);
    let pushed = git_client.git(&token, &["-C", "while", "push", "-q", "URL/ann/x.git", "HEAD:refs/heads/fresh"]).await;
    assert!(!pushed.0, "{}", pushed.1);
    assert_eq!(fixture.forge.refs_of(PROJECT), before);
    // With another username it is not a job token.
    let other =
        git_client.git(&token, &["ls-remote", &format!("http://ann:{token}@{}/ann/x.git", git_client.address)]).await;
    assert!(!other.0);
    // Nor is it a token of a user.
    for path in ["/user", "/projects/1", "/projects/1/repository/branches"] {
        let answer = fixture.anyone.with_token(&token).get(path).await;
        assert_eq!((answer.code(), answer.text.as_str()), (401, r#"{"message":"401 Unauthorized"}"#), "{path}");
    }
    // Not after the job has ended.
    fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    assert!(!clone(&token, "ann/x", "after").await.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_fetches_its_own_commit_even_if_no_branch_contains_it_any_more() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let local = LocalRepository::new();
    local.commit_file("a", "a");
    local.git(&["checkout", "-q", "-b", "side"]);
    let (before, own) = (local.commit_file("b", "b"), local.commit_file("c", "c"));
    fixture.forge.push_all(&fixture.ann, PROJECT, &local).await;
    fixture.forge.start_pipeline_at(PROJECT, Some(fixture.ann.id), "side", own.parse().expect("an id"), ONE_JOB).await;
    fixture.forge.remove_ref(&fixture.ann, PROJECT, "refs/heads/side").await;
    let git_client = GitClient::new(&fixture).await;
    git_client.git("", &["init", "-q", "here"]).await;
    let fetch = async |token: &str, id: &str| {
        git_client.git(token, &["-C", "here", "fetch", "-q", "--depth=1", "URL/ann/x.git", id]).await
    };
    // Another job of the project may not fetch it, nor may this one fetch other unreachable commits.
    let other = fixture.assign(JOB).await;
    let (fetched, response) = fetch(&other, &own).await;
    assert!(!fetched && response.contains(&format!("not our ref {own}")), "{response}");
    let token = fixture.assign(JobId::new(2)).await;
    let (fetched, response) = fetch(&token, &before).await;
    assert!(!fetched && response.contains(&format!("not our ref {before}")), "{response}");
    let (fetched, response) = fetch(&token, &own).await;
    assert!(fetched, "{response}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_token_is_invalid_when_its_user_is_blocked() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let local = LocalRepository::new();
    local.commit_file("a", "a");
    fixture.forge.push_all(&fixture.ann, PROJECT, &local).await;
    let git_client = GitClient::new(&fixture).await;
    let token = fixture.assign(JOB).await;
    let ask = async || git_client.git(&token, &["ls-remote", "URL/ann/x.git"]).await.0;
    assert!(ask().await);
    let root = fixture.forge.admin().await;
    root.put(&format!("/users/{}/block", fixture.ann.id), json!({})).await;
    assert!(!ask().await);
    // The end of the job can still be reported.
    assert_eq!(fixture.update_job(JOB, &token, json!({ "state": "failed" })).await.code(), 200);
}

/// A private project of a group whose developer Bob has started a running job.
async fn job_of_bob() -> (JobFixture, GitClient, TestClient, String) {
    let fixture = JobFixture::with(ONE_JOB).await;
    let bob = fixture.forge.user("bob").await;
    fixture.ann.make("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 30 })).await;
    fixture.forge.fast_import(&fixture.ann, PROJECT, SMALL_REPOSITORY).await;
    let started = fixture.forge.start_pipeline(PROJECT, Some(bob.id), ONE_JOB).await;
    let now = fixture.forge.forge.now();
    let jobs = fixture.forge.in_transaction(|db| store::jobs::of_pipeline(db, started.id, now).expect("jobs"));
    let git_client = GitClient::new(&fixture).await;
    let token = fixture.assign(jobs[0].id).await;
    (fixture, git_client, bob, token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_clones_its_own_project_only_while_its_user_has_access() {
    let (fixture, git_client, bob, token) = job_of_bob().await;
    let root = fixture.forge.admin().await;
    let asks = async || git_client.git(&token, &["ls-remote", "URL/ann/x.git"]).await;
    let member = format!("/projects/1/members/{}", bob.id);
    assert!(asks().await.0);
    // A guest may not read code.
    assert_eq!(fixture.ann.put(&member, json!({ "access_level": 10 })).await.code(), 200);
    let (may, response) = asks().await;
    assert!(!may && response.contains("You are not allowed to download code from this project."), "{response}");
    assert_eq!(fixture.ann.put(&member, json!({ "access_level": 20 })).await.code(), 200);
    assert!(asks().await.0);
    // A user who is not a member does not even see the project.
    assert_eq!(fixture.ann.delete(&member).await.code(), 200);
    let (may, response) = asks().await;
    assert!(!may && response.contains("not found"), "{response}");
    let show =
        async |level: i64| fixture.ann.put("/projects/1", json!({ "name": "x", "visibility_level": level })).await;
    assert_eq!(show(10).await.code(), 200);
    assert!(asks().await.0);
    assert_eq!(root.put(&format!("/users/{}", bob.id), json!({ "external": true })).await.code(), 200);
    assert!(!asks().await.0);
    assert_eq!(show(20).await.code(), 200);
    assert!(asks().await.0);
    // An archived project can still be read; a deleted one cannot.
    assert_eq!(fixture.ann.post("/projects/1/archive", json!({})).await.code(), 201);
    assert!(asks().await.0);
    assert_eq!(fixture.ann.delete("/projects/1").await.code(), 200);
    assert!(!asks().await.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_of_an_administrator_reads_its_own_project_only() {
    let fixture = JobFixture::with(ONE_JOB).await;
    let root = fixture.forge.admin().await;
    fixture.forge.fast_import(&fixture.ann, PROJECT, SMALL_REPOSITORY).await;
    fixture.ann.make("/projects", json!({ "name": "y" })).await;
    fixture.forge.fast_import(&fixture.ann, ProjectId::new(2), SMALL_REPOSITORY).await;
    let started = fixture.forge.start_pipeline(PROJECT, Some(root.id), ONE_JOB).await;
    let now = fixture.forge.forge.now();
    let jobs = fixture.forge.in_transaction(|db| store::jobs::of_pipeline(db, started.id, now).expect("jobs"));
    let (git_client, token) = (GitClient::new(&fixture).await, fixture.assign(jobs[0].id).await);
    let asks = async |path: &str| git_client.git(&token, &["ls-remote", &format!("URL/{path}.git")]).await.0;
    assert!(asks("ann/x").await && !asks("ann/y").await);
    // Without the flag, the former administrator is not a member of the project.
    let boss = fixture.forge.user("boss").await;
    assert_eq!(root.put(&format!("/users/{}", boss.id), json!({ "admin": true })).await.code(), 200);
    assert_eq!(boss.put(&format!("/users/{}", root.id), json!({ "admin": false })).await.code(), 200);
    assert!(!asks("ann/x").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_token_is_invalid_when_its_user_is_deleted() {
    let (fixture, git_client, bob, token) = job_of_bob().await;
    let asks = async || git_client.git(&token, &["ls-remote", "URL/ann/x.git"]).await.0;
    assert!(asks().await);
    let root = fixture.forge.admin().await;
    assert_eq!(root.delete(&format!("/users/{}", bob.id)).await.code(), 200);
    assert!(!asks().await);
}

/// A triggered pipeline has no user; its jobs read their project and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_of_a_trigger_reads_its_own_project_only() {
    let fixture = JobFixture::with(ONE_JOB).await;
    fixture.forge.fast_import(&fixture.ann, PROJECT, crate::ci::triggers::SCRIPT).await;
    fixture.ann.make("/projects", json!({ "name": "y" })).await;
    fixture.forge.fast_import(&fixture.ann, ProjectId::new(2), SMALL_REPOSITORY).await;
    let trigger = fixture.ann.post("/projects/1/triggers", json!({})).await.json()["token"].clone();
    let started =
        fixture.anyone.post("/projects/1/trigger/builds", json!({ "token": trigger, "ref": "feature/x" })).await;
    assert_eq!(started.code(), 201, "{started}");
    let pipeline = PipelineId::new(started.json()["id"].as_i64().expect("a number"));
    let now = fixture.forge.forge.now();
    let jobs = fixture.forge.in_transaction(|db| store::jobs::of_pipeline(db, pipeline, now).expect("jobs"));
    let (git_client, token) = (GitClient::new(&fixture).await, fixture.assign(jobs[0].id).await);
    let asks = async |path: &str| git_client.git(&token, &["ls-remote", &format!("URL/{path}.git")]).await.0;
    assert!(asks("ann/x").await && !asks("ann/y").await);
}
