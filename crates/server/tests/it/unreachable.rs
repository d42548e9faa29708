//! What no branch or tag leads to any more is not handed out by its id.

use forge::{
    Caller,
    pushes::{self, Push, Via},
};
use model::{RefChange, RefName};
use serde_json::json;

use crate::{
    branches::Place,
    git_story::{Story, Transport, make_project},
};

const REPOSITORY: &str = "/projects/1/repository";

#[tokio::test]
async fn a_deleted_branch_takes_its_content_with_it() {
    let place = Place::start().await;
    let Place { forge, ann, local, commits: [first, _], .. } = &place;
    local.git(&["checkout", "-q", "-b", "side"]);
    let commit = local.commit_file("secret", "secret\n");
    let blob = local.git(&["rev-parse", "HEAD:secret"]);
    forge.push_all(ann, 1, local).await;
    let short = |id: &str| id[..7].to_owned();
    let routes = |commit: &str| {
        [
            format!("commits/{commit}"),
            format!("commits/{commit}/diff"),
            format!("commits/{commit}/comments"),
            format!("commits/{commit}/statuses"),
            format!("commits/{commit}/builds"),
            format!("tree?ref_name={commit}"),
            format!("blobs/{commit}?filepath=secret"),
            format!("files?file_path=secret&ref={commit}"),
            format!("archive?sha={commit}"),
        ]
    };
    let blobs = [format!("raw_blobs/{blob}"), format!("raw_blobs/{}", short(&blob))];
    let all = || routes(&commit).into_iter().chain(routes(&short(&commit))).chain(blobs.clone());
    for path in all() {
        assert_eq!(ann.get(&format!("{REPOSITORY}/{path}")).await.code(), 200, "{path}");
    }
    // Fewer digits than seven name nothing, so that nobody finds what is there by trying.
    for path in [format!("commits/{}", &commit[..6]), format!("raw_blobs/{}", &blob[..6])] {
        assert_eq!(ann.get(&format!("{REPOSITORY}/{path}")).await.code(), 404, "{path}");
    }

    forge.remove_ref(ann, 1, "refs/heads/side").await;
    for path in all() {
        let answer = ann.get(&format!("{REPOSITORY}/{path}")).await;
        assert_eq!(answer.code(), 404, "{path}");
        assert!(!answer.text.contains("secret"), "{path}: {answer}");
    }
    for name in [&commit, &short(&commit)] {
        let listed = ann.get(&format!("{REPOSITORY}/commits?ref_name={name}")).await;
        assert_eq!((listed.code(), listed.text.as_str()), (200, "[]"), "{name}");
        let compared = ann.get(&format!("{REPOSITORY}/compare?from={first}&to={name}")).await;
        assert!(!compared.text.contains("secret"), "{compared}");
        // Nor is it brought back.
        let branch = ann.post(&format!("{REPOSITORY}/branches"), json!({ "branch_name": "b", "ref": name })).await;
        assert_eq!((branch.code(), branch.json()), (400, json!({ "message": "Invalid reference name" })));
        let tag = ann.post(&format!("{REPOSITORY}/tags"), json!({ "tag_name": "t", "ref": name })).await;
        assert_eq!((tag.code(), tag.json()), (405, json!({ "message": format!("Target {name} is invalid") })));
        let status = ann.post(&format!("/projects/1/statuses/{name}"), json!({ "state": "success" })).await;
        assert_eq!((status.code(), status.json()), (404, json!({ "message": "404 Commit Not Found" })));
    }
    let push = async |incoming| {
        let name = RefName::branch("back").expect("a name");
        let changes = vec![RefChange { name, old: None, new: Some(commit.parse().expect("an id")) }];
        let push = Push { changes, incoming, atomic: false, options: Vec::new() };
        let caller = Caller::with_tokens(ann.token.as_deref());
        let outcomes = pushes::push(&forge.forge, caller, 1, push, Via::Push).await.expect("a push");
        outcomes.into_iter().next().expect("an outcome").refusal
    };
    let missing = Some("the target object does not exist".to_owned());
    assert_eq!(push(None).await, missing);
    assert_eq!(push(Some(pushes::incoming(&forge.forge, &forge.storage_of(1)).expect("a quarantine"))).await, missing);
    // Whoever has the objects themselves may push them again.
    forge.push_all(ann, 1, local).await;
    for path in all() {
        assert_eq!(ann.get(&format!("{REPOSITORY}/{path}")).await.code(), 200, "{path}");
    }
}

#[test]
fn git_does_not_fetch_what_is_unreachable_over_http() {
    fetches(Transport::Http);
}

#[test]
fn git_does_not_fetch_what_is_unreachable_over_ssh() {
    fetches(Transport::Ssh);
}

/// Fetches by id: reachable ones succeed, others do not, in all versions of the protocol; partial clones work.
fn fetches(transport: Transport) {
    let story = Story::begin();
    let ann = story.person("ann");
    make_project(&ann, "rocket", 0);
    let url = story.url(Some(&ann), transport, "ann/rocket");
    story.git_ok(None, "ann", &["init", "-q", "-b", "main"]);
    story.commit("ann", "folder/old", "old\n");
    let first = story.commit("ann", "folder/new", "new\n");
    story.commit("ann", "last", "last\n");
    let kept = story.git_ok(None, "ann", &["rev-parse", "HEAD~1:folder/old"]);
    story.git_ok(None, "ann", &["checkout", "-q", "-b", "side"]);
    let lost = story.commit("ann", "folder/secret", "secret\n");
    let lost_tree = story.git_ok(None, "ann", &["rev-parse", "HEAD:folder"]);
    let lost_blob = story.git_ok(None, "ann", &["rev-parse", "HEAD:folder/secret"]);
    story.git_ok(Some(&ann), "ann", &["push", "-q", &url, "main", "side"]);
    story.git_ok(Some(&ann), "ann", &["push", "-q", &url, ":side"]);
    for version in [0, 1, 2] {
        let (here, version) = (format!("version-{version}"), format!("protocol.version={version}"));
        story.git_ok(None, &here, &["init", "-q"]);
        let fetch = |id: &str| story.git(Some(&ann), &here, &["-c", &version, "fetch", "-q", "--depth=1", &url, id]);
        let reachable = fetch(&first);
        assert!(reachable.status.success(), "{version}: {}", String::from_utf8_lossy(&reachable.stderr));
        for id in [&lost, &lost_tree, &lost_blob] {
            let refused = fetch(id);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && said.contains(&format!("not our ref {id}")), "{version}: {said}");
        }
    }
    // What a partial clone leaves out is fetched when it is needed, old files too.
    for filter in ["blob:none", "tree:0"] {
        let folder = format!("partial-{}", &filter[..4]);
        let filter = format!("--filter={filter}");
        let clone = ["-c", "protocol.version=2", "clone", "-q", &filter, "--no-checkout", &url, &folder];
        story.git_ok(Some(&ann), ".", &clone);
        story.git_ok(Some(&ann), &folder, &["checkout", "-q", "main"]);
        assert_eq!(story.git_ok(Some(&ann), &folder, &["show", "HEAD~1:folder/new"]), "new");
        assert_eq!(story.git_ok(Some(&ann), &folder, &["cat-file", "blob", &kept]), "old");
        let said = story.git_refused(Some(&ann), &folder, &["cat-file", "blob", &lost_blob]);
        assert!(said.contains(&format!("not our ref {lost_blob}")), "{said}");
    }
}
