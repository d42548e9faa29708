//! The token of a job, and how little it opens.

use std::path::Path;

use axum::{Router, extract::Request};
use files::spool::Spools;
use serde_json::json;
use tempfile::TempDir;
use testkit::{
    Client, LocalRepository,
    repository::{SMALL, quiet_git},
};
use tokio::net::TcpListener;
use wire::{Limits, Transfers, http::GitHttp};

use crate::ci::traces::{ONE, Yard};

/// A place where stock git finds the repositories of a forge.
struct Host {
    address: String,
    work: TempDir,
}

impl Host {
    async fn of(yard: &Yard) -> Self {
        let work = tempfile::tempdir().expect("a folder");
        let spools = Spools::in_folder(&work.path().join("cache"), 1 << 20).expect("spools");
        let transfers = Transfers::new(yard.forge.forge.clone(), spools, Limits::default());
        let git = std::sync::Arc::new(GitHttp::new(transfers, None));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let router = Router::new().fallback(move |request: Request| {
            let git = std::sync::Arc::clone(&git);
            async move { git.answer(request).await }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, work }
    }

    /// Runs git with a token; whether it succeeds, and what it says.
    async fn git(&self, token: &str, arguments: &[&str]) -> (bool, String) {
        let url = format!("http://gitlab-ci-token:{token}@{}", self.address);
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace("URL", &url)).collect();
        let mut command = quiet_git(self.path());
        command.args(arguments);
        let ran = tokio::task::spawn_blocking(move || command.output().expect("git runs")).await.expect("no panic");
        (ran.status.success(), String::from_utf8_lossy(&ran.stderr).into_owned())
    }

    fn path(&self) -> &Path {
        self.work.path()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_clones_its_repository_while_it_runs_and_does_nothing_else() {
    let yard = Yard::with(ONE).await;
    yard.forge.fill(&yard.ann, 1, SMALL).await;
    let bob = yard.forge.user("bob").await;
    assert_eq!(bob.make("/projects", json!({ "name": "y" })).await, 2);
    yard.forge.fill(&bob, 2, SMALL).await;
    let host = Host::of(&yard).await;
    let clone = async |token: &str, path: &str, folder: &str| {
        host.git(token, &["clone", "-q", &format!("URL/{path}.git"), folder]).await
    };
    // Not before there is one.
    assert!(!clone("abcdefghijklmnopqrst", "ann/x", "before").await.0);
    let token = yard.take(1).await;
    let (cloned, said) = clone(&token, "ann/x", "while").await;
    assert!(cloned, "{said}");
    assert!(host.path().join("while/README.md").exists());
    // Neither elsewhere, nor to write.
    assert!(!clone(&token, "bob/y", "elsewhere").await.0);
    let before = yard.forge.refs_of(1);
    let pushed = host.git(&token, &["-C", "while", "push", "-q", "URL/ann/x.git", "HEAD:refs/heads/fresh"]).await;
    assert!(!pushed.0, "{}", pushed.1);
    assert_eq!(yard.forge.refs_of(1), before);
    // Under another name it is no token of a job.
    let other = host.git(&token, &["ls-remote", &format!("http://ann:{token}@{}/ann/x.git", host.address)]).await;
    assert!(!other.0);
    // Nor is it one of a user.
    for path in ["/user", "/projects/1", "/projects/1/repository/branches"] {
        let answer = yard.anyone.showing(&token).get(path).await;
        assert_eq!((answer.code(), answer.text.as_str()), (401, r#"{"message":"401 Unauthorized"}"#), "{path}");
    }
    // Not once it has ended.
    yard.tell(1, &token, json!({ "state": "success" })).await;
    assert!(!clone(&token, "ann/x", "after").await.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_fetches_its_own_commit_also_when_no_branch_leads_to_it_any_more() {
    let yard = Yard::with(ONE).await;
    let local = LocalRepository::new();
    local.commit_file("a", "a");
    local.git(&["checkout", "-q", "-b", "side"]);
    let (before, own) = (local.commit_file("b", "b"), local.commit_file("c", "c"));
    yard.forge.push_all(&yard.ann, 1, &local).await;
    yard.forge.plant_pipeline_at(1, Some(yard.ann.id), "side", own.parse().expect("an id"), ONE).await;
    yard.forge.remove_ref(&yard.ann, 1, "refs/heads/side").await;
    let host = Host::of(&yard).await;
    host.git("", &["init", "-q", "here"]).await;
    let fetch = async |token: &str, id: &str| {
        host.git(token, &["-C", "here", "fetch", "-q", "--depth=1", "URL/ann/x.git", id]).await
    };
    // Another job of the project may not have it, nor may this one have what it is not about.
    let other = yard.take(1).await;
    let (fetched, said) = fetch(&other, &own).await;
    assert!(!fetched && said.contains(&format!("not our ref {own}")), "{said}");
    let token = yard.take(2).await;
    let (fetched, said) = fetch(&token, &before).await;
    assert!(!fetched && said.contains(&format!("not our ref {before}")), "{said}");
    let (fetched, said) = fetch(&token, &own).await;
    assert!(fetched, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_job_ends_with_whoever_started_it() {
    let yard = Yard::with(ONE).await;
    let local = LocalRepository::new();
    local.commit_file("a", "a");
    yard.forge.push_all(&yard.ann, 1, &local).await;
    let host = Host::of(&yard).await;
    let token = yard.take(1).await;
    let ask = async || host.git(&token, &["ls-remote", "URL/ann/x.git"]).await.0;
    assert!(ask().await);
    let root = yard.forge.admin().await;
    root.put(&format!("/users/{}/block", yard.ann.id), json!({})).await;
    assert!(!ask().await);
    // How the job ends can still be told.
    assert_eq!(yard.tell(1, &token, json!({ "state": "failed" })).await.code(), 200);
}

/// A private project of a group, whose developer Bob has started a job that runs.
async fn job_of_bob() -> (Yard, Host, Client, String) {
    let yard = Yard::with(ONE).await;
    let bob = yard.forge.user("bob").await;
    yard.ann.make("/projects/1/members", json!({ "user_id": bob.id, "access_level": 30 })).await;
    yard.forge.fill(&yard.ann, 1, SMALL).await;
    let started = yard.forge.plant_pipeline(1, Some(bob.id), ONE).await;
    let now = yard.forge.forge.now();
    let builds = yard.forge.in_one_go(|db| store::builds::of_pipeline(db, started.id, now).expect("builds"));
    let host = Host::of(&yard).await;
    let token = yard.take(builds[0].id).await;
    (yard, host, bob, token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_clones_its_own_project_only_while_its_starter_may() {
    let (yard, host, bob, token) = job_of_bob().await;
    let root = yard.forge.admin().await;
    let asks = async || host.git(&token, &["ls-remote", "URL/ann/x.git"]).await;
    let member = format!("/projects/1/members/{}", bob.id);
    assert!(asks().await.0);
    // A guest reads no code.
    assert_eq!(yard.ann.put(&member, json!({ "access_level": 10 })).await.code(), 200);
    let (may, said) = asks().await;
    assert!(!may && said.contains("You are not allowed to download code from this project."), "{said}");
    assert_eq!(yard.ann.put(&member, json!({ "access_level": 20 })).await.code(), 200);
    assert!(asks().await.0);
    // Who is no member at all does not even see the project.
    assert_eq!(yard.ann.delete(&member).await.code(), 200);
    let (may, said) = asks().await;
    assert!(!may && said.contains("not found"), "{said}");
    let show = async |level: i64| yard.ann.put("/projects/1", json!({ "name": "x", "visibility_level": level })).await;
    assert_eq!(show(10).await.code(), 200);
    assert!(asks().await.0);
    assert_eq!(root.put(&format!("/users/{}", bob.id), json!({ "external": true })).await.code(), 200);
    assert!(!asks().await.0);
    assert_eq!(show(20).await.code(), 200);
    assert!(asks().await.0);
    // What is put away can still be read; what is removed cannot.
    assert_eq!(yard.ann.post("/projects/1/archive", json!({})).await.code(), 201);
    assert!(asks().await.0);
    assert_eq!(yard.ann.delete("/projects/1").await.code(), 200);
    assert!(!asks().await.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_of_an_administrator_reads_its_own_project_and_no_other() {
    let yard = Yard::with(ONE).await;
    let root = yard.forge.admin().await;
    yard.forge.fill(&yard.ann, 1, SMALL).await;
    yard.ann.make("/projects", json!({ "name": "y" })).await;
    yard.forge.fill(&yard.ann, 2, SMALL).await;
    let started = yard.forge.plant_pipeline(1, Some(root.id), ONE).await;
    let now = yard.forge.forge.now();
    let builds = yard.forge.in_one_go(|db| store::builds::of_pipeline(db, started.id, now).expect("builds"));
    let (host, token) = (Host::of(&yard).await, yard.take(builds[0].id).await);
    let asks = async |path: &str| host.git(&token, &["ls-remote", &format!("URL/{path}.git")]).await.0;
    assert!(asks("ann/x").await && !asks("ann/y").await);
    // Without the flag the administrator is a stranger to the project.
    let boss = yard.forge.user("boss").await;
    assert_eq!(root.put(&format!("/users/{}", boss.id), json!({ "admin": true })).await.code(), 200);
    assert_eq!(boss.put(&format!("/users/{}", root.id), json!({ "admin": false })).await.code(), 200);
    assert!(!asks("ann/x").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_of_a_job_ends_with_the_removal_of_its_starter() {
    let (yard, host, bob, token) = job_of_bob().await;
    let asks = async || host.git(&token, &["ls-remote", "URL/ann/x.git"]).await.0;
    assert!(asks().await);
    let root = yard.forge.admin().await;
    assert_eq!(root.delete(&format!("/users/{}", bob.id)).await.code(), 200);
    assert!(!asks().await);
}

/// Nobody in particular starts what a trigger starts; its jobs read their project and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_job_of_a_trigger_reads_its_own_project() {
    let yard = Yard::with(ONE).await;
    yard.forge.fill(&yard.ann, 1, crate::ci::triggers::SCRIPT).await;
    yard.ann.make("/projects", json!({ "name": "y" })).await;
    yard.forge.fill(&yard.ann, 2, SMALL).await;
    let trigger = yard.ann.post("/projects/1/triggers", json!({})).await.json()["token"].clone();
    let started = yard.anyone.post("/projects/1/trigger/builds", json!({ "token": trigger, "ref": "feature/x" })).await;
    assert_eq!(started.code(), 201, "{started}");
    let (pipeline, now) = (started.json()["id"].as_i64().expect("a number"), yard.forge.forge.now());
    let builds = yard.forge.in_one_go(|db| store::builds::of_pipeline(db, pipeline, now).expect("builds"));
    let (host, token) = (Host::of(&yard).await, yard.take(builds[0].id).await);
    let asks = async |path: &str| host.git(&token, &["ls-remote", &format!("URL/{path}.git")]).await.0;
    assert!(asks("ann/x").await && !asks("ann/y").await);
}
