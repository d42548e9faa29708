//! Clients that push with git over HTTP and SSH.

use std::{path::PathBuf, sync::Arc};

use super::Shared;
use crate::{
    git::git,
    ledger::Write,
    rng::{Content, Rng},
};

/// Pushes to a project until clients are stopped: in turn a new branch, and an existing one that grows.
pub(super) async fn run(shared: Arc<Shared>, number: usize, folder: PathBuf, mut rng: Rng) {
    let project = shared.projects.pushed[number].clone();
    // The last client uses SSH.
    let (setting, url) = if number + 1 == shared.projects.pushed.len() {
        shared.ssh_url(&project)
    } else {
        ("core.askPass=".to_owned(), shared.url(&project))
    };
    if let Err(error) = prepare(&folder).await {
        shared.ledger.violation(format!("cannot create a local repository: {error}"));
        return;
    }
    let mut parent: Option<String> = None;
    for count in 0_u64.. {
        let Some(operation) = shared.next_operation().await else { return };
        // Packs above 64 KiB are files of the store, others are rows of the database.
        let size = if count % 3 == 2 { 66_000 + rng.below(60_000) } else { 20 + rng.below(2_000) };
        let content = Content { seed: rng.next_u64(), size };
        let commit = match commit(&folder, count, content, parent.as_deref()).await {
            Ok(commit) => commit,
            Err(error) => {
                shared.ledger.violation(format!("cannot commit locally: {error}"));
                return;
            }
        };
        let name = if count % 2 == 0 { format!("refs/heads/new-{count}") } else { "refs/heads/line".to_owned() };
        shared.ledger.start_push(project.id, &name, &commit);
        match git(&folder, &["-c", &setting, "push", "-q", &url, &format!("{commit}:{name}")], b"").await {
            Ok(_) => shared.ledger.acknowledge(Write::Push { project: project.id, name, target: commit.clone() }),
            Err(messages) => shared.ledger.git_failed("push", &messages),
        }
        parent = Some(commit);
        drop(operation);
        shared.think(50 + rng.below(150)).await;
    }
}

async fn prepare(folder: &std::path::Path) -> Result<(), String> {
    tokio::fs::create_dir_all(folder).await.map_err(|error| error.to_string())?;
    git(folder, &["init", "-q", "--bare", "."], b"").await.map(drop)
}

/// Creates a commit with one file.
async fn commit(
    folder: &std::path::Path,
    count: u64,
    content: Content,
    parent: Option<&str>,
) -> Result<String, String> {
    let blob = git(folder, &["hash-object", "-w", "--stdin"], &content.bytes()).await?;
    let tree = git(folder, &["mktree"], format!("100644 blob {blob}\tfile-{count}\n").as_bytes()).await?;
    let message = format!("Commit {count}");
    let mut arguments = vec!["commit-tree", "-m", &message, &tree];
    if let Some(parent) = parent {
        arguments.extend(["-p", parent]);
    }
    git(folder, &arguments, b"").await
}
