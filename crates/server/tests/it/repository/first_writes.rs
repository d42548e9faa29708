//! Concurrent first writes to a project.

use std::io::Write as _;

use forge::{
    Caller, Error,
    pushes::{self, Push, PushSource, RefRejection},
};
use model::{ProjectId, RefChange, RefName};
use serde_json::{Value, json};
use testkit::{LocalRepository, TestClient, TestForge, repository::git};

use crate::repository::branches::RepositoryFixture;

const PROJECT: ProjectId = ProjectId::new(1);
const CONCURRENT_WRITES: usize = 6;

/// Returns a push whose objects are in quarantine and that is not applied yet.
async fn quarantined_push(forge: &TestForge, project: ProjectId, local: &LocalRepository, branch: &str) -> Push {
    let id = local.git(&["rev-parse", "HEAD"]);
    let pack = git(local.path(), &["pack-objects", "--revs", "--stdout", "-q"], format!("{id}\n").as_bytes()).stdout;
    let incoming = forge.quarantine(project).await;
    let mut child = incoming.index_pack(None).expect("a folder").spawn().expect("git starts");
    child.stdin.take().expect("a pipe").write_all(&pack).expect("the pack is taken");
    assert!(child.wait().expect("git ends").success());
    let name = RefName::branch(branch).expect("a name");
    let changes = vec![RefChange { name, old: None, new: Some(id.parse().expect("an id")) }];
    Push { changes, incoming: Some(incoming), atomic: false, options: Vec::new() }
}

fn caller(client: &TestClient) -> Caller {
    Caller::with_tokens(client.token.as_deref())
}

#[tokio::test]
async fn a_push_that_started_on_an_empty_repository_succeeds_after_another_one() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "x" })).await);
    let local = LocalRepository::new();
    local.commit_file("README.md", "one\n");
    let late = quarantined_push(&forge, project, &local, "late").await;
    let same = quarantined_push(&forge, project, &local, "master").await;
    let other = LocalRepository::new();
    let first = other.commit_file("OTHER.md", "other\n");
    forge.push_all(&ann, project, &other).await;

    let outcomes = pushes::push(&forge.forge, caller(&ann), project, late, PushSource::Git).await.expect("a push");
    assert_eq!(outcomes[0].rejection, None);
    let outcomes = pushes::push(&forge.forge, caller(&ann), project, same, PushSource::Git).await.expect("a push");
    assert_eq!(outcomes[0].rejection, Some(RefRejection::Stale));
    let branches = ann.get(&format!("/projects/{project}/repository/branches")).await;
    assert_eq!(branches.join_field("name"), "late master");
    assert_eq!(branches.json()[1]["commit"]["id"], json!(first));
    let folder = forge.repository_folder(project).await.expect("a repository");
    git(&folder, &["fsck", "--strict", "--full"], b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_writes_succeed_or_lose_the_race() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    for (round, same_branch) in [false, true, false, true].into_iter().enumerate() {
        let project = ProjectId::new(ann.make("/projects", json!({ "name": format!("p{round}") })).await);
        let tasks: Vec<_> = (0..CONCURRENT_WRITES)
            .map(|number| {
                let ann = ann.clone();
                let branch = if same_branch { "master".to_owned() } else { format!("b{number}") };
                let base = format!("/projects/{project}/repository");
                tokio::spawn(async move {
                    // Alternately as a file and as a commit with actions.
                    let answer = if number % 2 == 0 {
                        let file = json!({ "file_path": format!("f{number}"), "branch_name": branch, "content": "x",
                            "commit_message": "Add it" });
                        ann.post(&format!("{base}/files"), file).await
                    } else {
                        let action = json!({ "action": "create", "file_path": format!("f{number}"), "content": "x" });
                        let commit = json!({ "branch_name": branch, "commit_message": "Add it", "actions": [action] });
                        ann.post(&format!("{base}/commits"), commit).await
                    };
                    (branch, answer)
                })
            })
            .collect();
        let mut made = 0;
        for task in tasks {
            let (branch, answer) = task.await.expect("an answer");
            if answer.code() == 201 {
                made += 1;
                continue;
            }
            let late = [
                format!("Could not update branch {branch}. Please refresh and try again."),
                "You can only create or edit files when you are on a branch".to_owned(),
            ];
            assert_eq!(answer.code(), 400, "{answer}");
            let message = answer.json()["message"].as_str().expect("a text").to_owned();
            assert!(late.contains(&message), "{message}");
        }
        assert!(made > 0, "one is the first");
        let branches = ann.get(&format!("/projects/{project}/repository/branches")).await.json();
        let branches: Vec<&Value> = branches.as_array().expect("a list").iter().collect();
        assert_eq!(branches.len(), if same_branch { 1 } else { made });
        let folder = forge.repository_folder(project).await.expect("a repository");
        git(&folder, &["fsck", "--strict", "--full"], b"");
    }
}

#[tokio::test]
async fn the_first_write_to_a_fork_continues_its_history() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, dan, commits, .. } = &fixture;
    let fork = dan.post(&format!("/projects/fork/{PROJECT}"), json!({ "namespace": "dan" })).await.json();
    let file = json!({ "file_path": "new", "branch_name": "master", "content": "x", "commit_message": "Add it" });
    let written = dan.post(&format!("/projects/{}/repository/files", fork["id"]), file).await;
    assert_eq!(written.code(), 201, "{written}");
    let history = dan.get(&format!("/projects/{}/repository/commits", fork["id"])).await.join_field("id");
    assert!(history.ends_with(&format!(" {} {}", commits[1], commits[0])), "{history}");
    let source = ann.get(&format!("/projects/{PROJECT}/repository/commits")).await.join_field("id");
    assert_eq!(source, format!("{} {}", commits[1], commits[0]));
}

#[tokio::test]
async fn a_push_to_a_project_that_was_deleted_meanwhile_gets_not_found() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, .. } = &fixture;
    local.commit_file("more", "more\n");
    let late = quarantined_push(forge, PROJECT, local, "late").await;
    assert_eq!(ann.delete("/projects/1").await.code(), 200);
    forge.run_due_tasks().await;
    assert_eq!(forge.repository_folder(PROJECT).await, None);
    let refused = pushes::push(&forge.forge, caller(ann), PROJECT, late, PushSource::Git).await;
    assert!(matches!(refused, Err(Error::NotFound(_))), "{refused:?}");
    assert_eq!(forge.repository_folder(PROJECT).await, None, "no repository was created");
}
