//! Clients that write through the API.

use std::sync::Arc;

use serde_json::json;

use super::{Project, Shared};
use crate::{
    http::{NoResponse, Response},
    ledger::Write,
    rng::{Content, Rng},
};

/// Creates issues, comments, files and uploads in a project until clients are stopped.
pub(super) async fn run(shared: Arc<Shared>, number: usize, mut rng: Rng) {
    let project = shared.projects.written[number].clone();
    for count in 0_u64.. {
        let Some(operation) = shared.next_operation().await else { return };
        write_once(&shared, &project, count, &mut rng).await;
        drop(operation);
        shared.think(50 + rng.below(100)).await;
    }
}

async fn write_once(shared: &Shared, project: &Project, count: u64, rng: &mut Rng) {
    let (client, id) = (shared.client(), project.id);
    match count % 4 {
        0 | 1 => {
            let title = format!("issue {count}");
            let made = client.post(&format!("{}/issues", project.api()), &json!({ "title": title })).await;
            let Some(issue) = acknowledged(shared, "issue", made).and_then(|made| made.json()["id"].as_i64()) else {
                return;
            };
            shared.ledger.acknowledge(Write::Issue { project: id, id: issue, title });
            let body = format!("comment {count}");
            let path = format!("{}/issues/{issue}/notes", project.api());
            let made = client.post(&path, &json!({ "body": body })).await;
            let Some(note) = acknowledged(shared, "comment", made).and_then(|made| made.json()["id"].as_i64()) else {
                return;
            };
            shared.ledger.acknowledge(Write::Comment { project: id, issue, id: note, body });
        }
        2 => {
            let (path, content) = (format!("folder/file-{count}"), format!("content {}", rng.next_u64()));
            let action = json!({ "action": "create", "file_path": path, "content": content });
            let new =
                json!({ "branch_name": "master", "commit_message": format!("File {count}"), "actions": [action] });
            let made = client.post(&format!("{}/repository/commits", project.api()), &new).await;
            let Some(made) = acknowledged(shared, "commit", made) else { return };
            let commit = made.json()["id"].as_str().unwrap_or_default().to_owned();
            shared.ledger.acknowledge(Write::Commit { project: id, commit, path, content });
        }
        _ => {
            let content = Content { seed: rng.next_u64(), size: 1 + rng.below(150_000) };
            let path = format!("{}/uploads", project.api());
            let made = client.upload(&path, &[], &format!("file-{count}.bin"), &content.bytes()).await;
            let Some(made) = acknowledged(shared, "upload", made) else { return };
            let url = project.upload(made.json()["url"].as_str().unwrap_or_default());
            shared.ledger.acknowledge(Write::Upload { url, content });
        }
    }
}

/// Returns a success; records anything else.
pub(super) fn acknowledged(shared: &Shared, what: &str, outcome: Result<Response, NoResponse>) -> Option<Response> {
    match outcome {
        Ok(response) if response.is_success() => Some(response),
        Ok(response) => {
            shared.ledger.refused(what, &response);
            None
        }
        Err(error) => {
            shared.ledger.no_response(&error);
            None
        }
    }
}
