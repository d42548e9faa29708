//! What no branch or tag leads to any more is not handed out by its id.

use forge::{
    Caller,
    pushes::{self, Push, Via},
};
use model::{RefChange, RefName};
use serde_json::json;
use testkit::{Client, LocalRepository, TestForge, repository::git};

use crate::{
    repository::branches::Place,
    repository::git_story::{Story, Transport, make_project},
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

/// What a push of one new branch is told that brings nothing but what is listed; `input` is what `pack-objects` reads.
async fn push_part(
    forge: &TestForge,
    (client, project): (&Client, i64),
    local: &LocalRepository,
    new: &str,
    (options, input): (&[&str], &[&str]),
) -> Option<String> {
    let arguments = [&["pack-objects", "--stdout", "-q"], options].concat();
    let pack = git(local.path(), &arguments, format!("{}\n", input.join("\n")).as_bytes()).stdout;
    let name = RefName::new(&format!("refs/tags/{new}-{}", options.len())).expect("a name");
    let changes = vec![RefChange { name, old: None, new: Some(new.parse().expect("an id")) }];
    forge.push_pack(client, project, &pack, changes).await.remove(0).refusal
}

/// Commits a tree, on top of a parent if there is one, and says the commit's id.
fn commit_tree(local: &LocalRepository, tree: &str, parent: Option<&str>) -> String {
    let parent: Vec<&str> = parent.map(|parent| ["-p", parent]).into_iter().flatten().collect();
    local.git(&[&["commit-tree", tree, "-m", "m"], &parent[..]].concat())
}

/// Writes a tree with one file and says its id.
fn tree_with(local: &LocalRepository, name: &str, blob: &str) -> String {
    let line = format!("100644 blob {blob}\t{name}\n");
    String::from_utf8(git(local.path(), &["mktree"], line.as_bytes()).stdout).expect("text").trim().to_owned()
}

/// A long text, so that what is almost the same is sent as a difference from it.
fn long_text() -> String {
    (0..500).fold(String::new(), |text, line| text + &format!("the secret line {}\n", line * 7919 % 1000))
}

#[tokio::test]
async fn a_push_does_not_make_deleted_objects_reachable_again() {
    let place = Place::start().await;
    let Place { forge, ann, local, commits: [_, second], .. } = &place;
    local.git(&["checkout", "-q", "-b", "side"]);
    let lost = local.commit_file("dir/secret", long_text());
    let [root, folder, blob] =
        ["HEAD^{tree}", "HEAD:dir", "HEAD:dir/secret"].map(|name| local.git(&["rev-parse", name]));
    let good_root = local.git(&["rev-parse", "master^{tree}"]);
    forge.push_all(ann, 1, local).await;
    // A fork that was made before, and loses it on its own.
    let dan = &place.dan;
    let fork = dan.post("/projects/fork/1", json!({ "namespace": "dan" })).await.json()["id"].as_i64().expect("a fork");
    forge.remove_ref(ann, 1, "refs/heads/side").await;
    forge.remove_ref(dan, fork, "refs/heads/side").await;
    let refused = |id: &str| Some(format!("missing necessary objects: {id} is not part of the repository"));
    for (client, project) in [(ann, 1), (dan, fork)] {
        let push = async |new: &str, sent: &[&str]| push_part(forge, (client, project), local, new, (&[], sent)).await;
        let child = commit_tree(local, &good_root, Some(&lost));
        assert_eq!(push(&child, &[&child]).await, refused(&lost), "a parent");
        let merge = local.git(&["commit-tree", &good_root, "-m", "merge", "-p", second, "-p", &lost]);
        assert_eq!(push(&merge, &[&merge]).await, refused(&lost), "a second parent");
        let grandchild = commit_tree(local, &good_root, Some(&child));
        assert_eq!(push(&grandchild, &[&grandchild, &child]).await, refused(&lost), "a parent of a parent");
        let same = commit_tree(local, &root, Some(second));
        assert_eq!(push(&same, &[&same]).await, refused(&root), "a tree");
        let tree = tree_with(local, "found", &blob);
        let other = commit_tree(local, &tree, Some(second));
        assert_eq!(push(&other, &[&other, &tree]).await, refused(&blob), "a file");
        assert_eq!(push(&tree, &[&tree]).await, refused(&blob), "a file in a tree that a tag names");
        let line = format!("040000 tree {folder}\tsub\n");
        let above = String::from_utf8(git(local.path(), &["mktree"], line.as_bytes()).stdout).expect("text");
        let deep = commit_tree(local, above.trim(), None);
        assert_eq!(push(&deep, &[&deep, above.trim()]).await, refused(&folder), "a folder, without any parent");
        for (kind, id) in [("commit", &lost), ("tree", &folder), ("blob", &blob)] {
            let text = format!("object {id}\ntype {kind}\ntag x\ntagger A <a@b> 1 +0000\n\nm\n");
            let tag = String::from_utf8(git(local.path(), &["mktag"], text.as_bytes()).stdout).expect("text");
            assert_eq!(push(tag.trim(), &[tag.trim()]).await, refused(id), "a tag of a {kind}");
        }
        // A delta from it would be put together with what the client does not have.
        local.git(&["checkout", "-q", "master"]);
        local.write("dir/secret", long_text() + "more\n");
        let thin = local.commit("almost the same");
        local.git(&["reset", "-q", "--hard", "HEAD~1"]);
        let exclude = format!("^{lost}");
        let thin_pack = ["pack-objects", "--stdout", "-q", "--thin", "--shallow", "--revs"];
        let pack = git(local.path(), &thin_pack, format!("{thin}\n{exclude}\n").as_bytes()).stdout;
        // It is refused as a whole, and nothing is said about the object.
        let complaint = forge.complaint_about_pack(project, &pack);
        assert!(!complaint.is_empty() && !complaint.contains(&blob), "{complaint}");
        // Nothing of it has come back.
        let raw = client.get(&format!("/projects/{project}/repository/raw_blobs/{blob}")).await;
        assert_eq!(raw.code(), 404, "{raw}");
        assert!(!forge.refs_of(project).iter().any(|(name, _)| name.starts_with("refs/tags")));
        // What is sent in full is taken, also if it is here already.
        let parts = [format!("{thin}^{{tree}}"), format!("{thin}:dir"), format!("{thin}:dir/secret")];
        let parts = parts.map(|name| local.git(&["rev-parse", &name]));
        assert_eq!(push(&thin, &[&thin, &parts[0], &parts[1], &parts[2]]).await, None);
    }
}

#[tokio::test]
async fn a_push_may_link_to_everything_that_its_project_shows() {
    let place = Place::start().await;
    let Place { forge, ann, local, commits: [first, second], .. } = &place;
    local.write("dir/long", long_text());
    local.write("dir/deep/er/file", "file\n");
    let third = local.commit("long");
    let (old_blob, deep) = (local.git(&["rev-parse", "HEAD:dir/long"]), local.git(&["rev-parse", "HEAD:dir/deep"]));
    local.git(&["rm", "-q", "-r", "dir"]);
    let fourth = local.commit("short");
    local.git(&["tag", "-a", "-m", "m", "v1"]);
    let tag = local.git(&["rev-parse", "v1"]);
    forge.push_all(ann, 1, local).await;
    for packed in [false, true] {
        if packed {
            forge.keep_house(1);
        }
        let push = async |new: &str, sent: &[&str]| push_part(forge, (ann, 1), local, new, (&[], sent)).await;
        // Files and folders that only the history has, on top of old commits, on top of none.
        let tree = tree_with(local, &format!("again-{packed}"), &old_blob);
        for parent in [Some(&fourth), Some(first), None] {
            let commit = commit_tree(local, &tree, parent.map(String::as_str));
            assert_eq!(push(&commit, &[&commit, &tree]).await, None, "{parent:?}");
        }
        let line = format!("040000 tree {deep}\tmoved-{packed}\n");
        let above = String::from_utf8(git(local.path(), &["mktree"], line.as_bytes()).stdout).expect("text");
        let moved = commit_tree(local, above.trim(), Some(second));
        assert_eq!(push(&moved, &[&moved, above.trim()]).await, None);
        let reverted = commit_tree(local, &format!("{third}^{{tree}}"), Some(&fourth));
        assert_eq!(push(&reverted, &[&reverted]).await, None);
        for (kind, id) in [("commit", first), ("tag", &tag), ("blob", &old_blob)] {
            let text = format!("object {id}\ntype {kind}\ntag x-{packed}\ntagger A <a@b> 1 +0000\n\nm\n");
            let outer = String::from_utf8(git(local.path(), &["mktag"], text.as_bytes()).stdout).expect("text");
            assert_eq!(push(outer.trim(), &[outer.trim()]).await, None, "{kind}");
        }
    }
    let folder = forge.repository_folder(1).expect("a repository");
    git(&folder, &["fsck", "--full", "--strict"], b"");
}

#[tokio::test]
async fn a_fork_gets_what_refs_lead_to_and_nothing_else() {
    for (packed, lost) in [(false, false), (true, false), (false, true), (true, true)] {
        let place = Place::start().await;
        let Place { forge, ann, dan, local, .. } = &place;
        local.git(&["tag", "-a", "-m", "m", "v1"]);
        local.git(&["checkout", "-q", "-b", "side"]);
        let commit = local.commit_file("secret", long_text());
        let blob = local.git(&["rev-parse", "HEAD:secret"]);
        forge.push_all(ann, 1, local).await;
        // An object of its own in a file of its own.
        let file = json!({ "file_path": "new", "branch_name": "master", "content": "x", "commit_message": "m" });
        assert_eq!(ann.post(&format!("{REPOSITORY}/files"), file).await.code(), 201);
        if packed {
            forge.keep_house(1);
        }
        if lost {
            forge.remove_ref(ann, 1, "refs/heads/side").await;
        }
        let fork =
            dan.post("/projects/fork/1", json!({ "namespace": "dan" })).await.json()["id"].as_i64().expect("a fork");
        assert_eq!(forge.refs_of(fork), forge.refs_of(1));
        let folder = forge.repository_folder(fork).expect("a repository");
        let listed = git(&folder, &["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], b"").stdout;
        let listed = String::from_utf8(listed).expect("text");
        for id in [&commit, &blob] {
            assert_eq!(listed.contains(id.as_str()), !lost, "{id} packed: {packed}, lost: {lost}");
        }
        let reachable = git(&folder, &["rev-list", "--objects", "--all", "--no-object-names"], b"").stdout;
        let reachable = String::from_utf8(reachable).expect("text");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&listed), sorted(&reachable), "packed: {packed}, lost: {lost}");
        git(&folder, &["fsck", "--full", "--strict"], b"");
        // And it can be written to.
        let file = json!({ "file_path": "own", "branch_name": "master", "content": "x", "commit_message": "m" });
        let written = dan.post(&format!("/projects/{fork}/repository/files"), file).await;
        assert_eq!(written.code(), 201, "{written}");
        forge.keep_house(fork);
    }
}

#[tokio::test]
async fn builds_do_not_show_the_commits_that_were_taken_back() {
    let place = Place::start().await;
    let Place { forge, ann, local, .. } = &place;
    local.git(&["checkout", "-q", "-b", "side"]);
    let commit = local.commit_file("secret", "secret\n");
    forge.push_all(ann, 1, local).await;
    let id = commit.parse().expect("an id");
    let pipeline = forge.plant_pipeline_at(1, Some(ann.id), "side", id, "one: {script: make}").await;
    let paths = ["/projects/1/builds".to_owned(), "/projects/1/builds/1".to_owned()];
    for path in &paths {
        let shown = ann.get(path).await;
        assert!(shown.code() == 200 && shown.text.contains("Add secret"), "{path}: {shown}");
    }
    forge.remove_ref(ann, 1, "refs/heads/side").await;
    for path in &paths {
        let shown = ann.get(path).await;
        assert!(shown.code() == 200 && !shown.text.contains("Add secret"), "{path}: {shown}");
    }
    let shown = ann.get("/projects/1/builds/1").await.json();
    assert_eq!((&shown["commit"], &shown["pipeline"]["id"]), (&json!(null), &json!(pipeline.id)));
}
