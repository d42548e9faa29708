//! Several first writes to a project at once, and what else may happen beside a first write.

use std::io::Write as _;

use forge::{
    Caller, Error,
    pushes::{self, Push, Via},
};
use model::{RefChange, RefName};
use serde_json::{Value, json};
use testkit::{Client, LocalRepository, TestForge, repository::git};

use crate::repository::branches::Place;

const AT_ONCE: usize = 6;

/// A push of a branch that has been taken into quarantine, and has not passed the gate.
fn half_pushed(forge: &TestForge, project: i64, local: &LocalRepository, branch: &str) -> Push {
    let id = local.git(&["rev-parse", "HEAD"]);
    let pack = git(local.path(), &["pack-objects", "--revs", "--stdout", "-q"], format!("{id}\n").as_bytes()).stdout;
    let incoming = pushes::incoming(&forge.forge, &forge.storage_of(project)).expect("a quarantine");
    let mut child = incoming.index_pack(None).spawn().expect("git starts");
    child.stdin.take().expect("a pipe").write_all(&pack).expect("the pack is taken");
    assert!(child.wait().expect("git ends").success());
    let name = RefName::branch(branch).expect("a name");
    let changes = vec![RefChange { name, old: None, new: Some(id.parse().expect("an id")) }];
    Push { changes, incoming: Some(incoming), atomic: false, options: Vec::new() }
}

fn caller(client: &Client) -> Caller {
    Caller::with_tokens(client.token.as_deref())
}

#[tokio::test]
async fn a_push_that_began_while_the_repository_was_empty_passes_after_another_one() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "one\n");
    let late = half_pushed(&forge, project, &local, "late");
    let same = half_pushed(&forge, project, &local, "master");
    let other = LocalRepository::new();
    let first = other.commit_file("OTHER.md", "other\n");
    forge.push_all(&ann, project, &other).await;

    let outcomes = pushes::push(&forge.forge, caller(&ann), project, late, Via::Push).await.expect("a push");
    assert_eq!(outcomes[0].refusal, None);
    let outcomes = pushes::push(&forge.forge, caller(&ann), project, same, Via::Push).await.expect("a push");
    assert_eq!(outcomes[0].refusal.as_deref(), Some("It has changed meanwhile; fetch first."));
    let branches = ann.get(&format!("/projects/{project}/repository/branches")).await;
    assert_eq!(branches.each("name"), "late master");
    assert_eq!(branches.json()[1]["commit"]["id"], json!(first));
    let folder = forge.repository_folder(project).expect("a repository");
    git(&folder, &["fsck", "--strict", "--full"], b"");
}

#[tokio::test(flavor = "multi_thread")]
async fn six_first_writes_at_once_succeed_or_lose_the_race() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    for (round, same_branch) in [false, true, false, true].into_iter().enumerate() {
        let project = ann.make("/projects", json!({ "name": format!("p{round}") })).await;
        let tasks: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                let ann = ann.clone();
                let branch = if same_branch { "master".to_owned() } else { format!("b{number}") };
                let base = format!("/projects/{project}/repository");
                tokio::spawn(async move {
                    // By turns as a file and as a commit of several changes.
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
            let told = answer.json()["message"].as_str().expect("a text").to_owned();
            assert!(late.contains(&told), "{told}");
        }
        assert!(made > 0, "somebody comes first");
        let branches = ann.get(&format!("/projects/{project}/repository/branches")).await.json();
        let branches: Vec<&Value> = branches.as_array().expect("a list").iter().collect();
        assert_eq!(branches.len(), if same_branch { 1 } else { made });
        let folder = forge.repository_folder(project).expect("a repository");
        git(&folder, &["fsck", "--strict", "--full"], b"");
    }
}

#[tokio::test]
async fn the_first_write_to_a_fork_does_not_replace_its_history() {
    let place = Place::start().await;
    let Place { forge, ann, commits, .. } = &place;
    // A fork whose repository is still to be copied.
    let fork = ann.make("/projects", json!({ "name": "fork" })).await;
    let now = forge.forge.now();
    forge.behind_the_back(|db| {
        store::forks::insert(db, fork, 1, now).expect("a fork");
        let name = format!("copy_repository {fork}");
        store::tasks::insert(db, "copy_repository", &fork.to_string(), Some(&name), now, now).expect("a job");
    });
    let file = json!({ "file_path": "new", "branch_name": "master", "content": "x", "commit_message": "Add it" });
    let files = format!("/projects/{fork}/repository/files");
    let late = ann.post(&files, file.clone()).await;
    let told = json!({ "message": "Could not update branch master. Please refresh and try again." });
    assert_eq!((late.code(), late.json()), (400, told));
    assert_eq!(ann.post(&files, file).await.code(), 201);
    forge.do_all_jobs().await;
    let history = ann.get(&format!("/projects/{fork}/repository/commits")).await.each("id");
    assert!(history.ends_with(&format!(" {} {}", commits[1], commits[0])), "{history}");
}

#[tokio::test]
async fn a_push_to_a_project_that_was_removed_meanwhile_hears_that_there_is_none() {
    let place = Place::start().await;
    let Place { forge, ann, local, .. } = &place;
    local.commit_file("more", "more\n");
    let late = half_pushed(forge, 1, local, "late");
    assert_eq!(ann.delete("/projects/1").await.code(), 200);
    forge.do_all_jobs().await;
    assert_eq!(forge.repository_folder(1), None);
    let refused = pushes::push(&forge.forge, caller(ann), 1, late, Via::Push).await;
    assert!(matches!(refused, Err(Error::NotFound(_))), "{refused:?}");
    assert_eq!(forge.repository_folder(1), None, "nothing was put in its place");
}
