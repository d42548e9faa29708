//! Unreachable objects are not available by their id.

use forge::{
    Caller, maintenance,
    pushes::{self, Push, PushSource, RefRejection},
};
use model::{ProjectId, RefChange, RefName};
use serde_json::json;
use testkit::{LocalRepository, TestClient, TestForge, repository::git};

use crate::{
    repository::branches::RepositoryFixture,
    repository::git_clients::{GitServer, Transport, make_project},
};

const PROJECT: ProjectId = ProjectId::new(1);
const REPOSITORY: &str = "/projects/1/repository";

#[tokio::test]
async fn the_content_of_a_deleted_branch_is_not_available() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits: [first, _], .. } = &fixture;
    local.git(&["checkout", "-q", "-b", "side"]);
    let commit = local.commit_file("secret", "secret\n");
    let blob = local.git(&["rev-parse", "HEAD:secret"]);
    forge.push_all(ann, PROJECT, local).await;
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
    // Fewer than seven digits match nothing, so that objects cannot be found by guessing.
    for path in [format!("commits/{}", &commit[..6]), format!("raw_blobs/{}", &blob[..6])] {
        assert_eq!(ann.get(&format!("{REPOSITORY}/{path}")).await.code(), 404, "{path}");
    }

    forge.remove_ref(ann, PROJECT, "refs/heads/side").await;
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
        // It cannot be made reachable again either.
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
        let outcomes = pushes::push(&forge.forge, caller, PROJECT, push, PushSource::Git).await.expect("a push");
        outcomes.into_iter().next().expect("an outcome").rejection
    };
    let missing = Some(RefRejection::MissingObject);
    assert_eq!(push(None).await, missing);
    assert_eq!(push(Some(forge.quarantine(PROJECT).await)).await, missing);
    // A client that has the objects may push them again.
    forge.push_all(ann, PROJECT, local).await;
    for path in all() {
        assert_eq!(ann.get(&format!("{REPOSITORY}/{path}")).await.code(), 200, "{path}");
    }
}

#[test]
fn git_does_not_fetch_unreachable_objects_over_http() {
    fetches(Transport::Http);
}

#[test]
fn git_does_not_fetch_unreachable_objects_over_ssh() {
    fetches(Transport::Ssh);
}

/// Fetches by id with all protocol versions: only reachable objects succeed, and partial clones work.
fn fetches(transport: Transport) {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    make_project(&ann, "rocket", 0);
    let url = setup.url(Some(&ann), transport, "ann/rocket");
    setup.git_ok(None, "ann", &["init", "-q", "-b", "main"]);
    setup.commit("ann", "folder/old", "old\n");
    let first = setup.commit("ann", "folder/new", "new\n");
    setup.commit("ann", "last", "last\n");
    let kept = setup.git_ok(None, "ann", &["rev-parse", "HEAD~1:folder/old"]);
    setup.git_ok(None, "ann", &["checkout", "-q", "-b", "side"]);
    let lost = setup.commit("ann", "folder/secret", "secret\n");
    let lost_tree = setup.git_ok(None, "ann", &["rev-parse", "HEAD:folder"]);
    let lost_blob = setup.git_ok(None, "ann", &["rev-parse", "HEAD:folder/secret"]);
    setup.git_ok(Some(&ann), "ann", &["push", "-q", &url, "main", "side"]);
    setup.git_ok(Some(&ann), "ann", &["push", "-q", &url, ":side"]);
    for version in [0, 1, 2] {
        let (here, version) = (format!("version-{version}"), format!("protocol.version={version}"));
        setup.git_ok(None, &here, &["init", "-q"]);
        let fetch = |id: &str| setup.git(Some(&ann), &here, &["-c", &version, "fetch", "-q", "--depth=1", &url, id]);
        let reachable = fetch(&first);
        assert!(reachable.status.success(), "{version}: {}", String::from_utf8_lossy(&reachable.stderr));
        for id in [&lost, &lost_tree, &lost_blob] {
            let refused = fetch(id);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && said.contains(&format!("not our ref {id}")), "{version}: {said}");
        }
    }
    // Objects that a partial clone omits are fetched on demand, old files too.
    for filter in ["blob:none", "tree:0"] {
        let folder = format!("partial-{}", &filter[..4]);
        let filter = format!("--filter={filter}");
        let clone = ["-c", "protocol.version=2", "clone", "-q", &filter, "--no-checkout", &url, &folder];
        setup.git_ok(Some(&ann), ".", &clone);
        setup.git_ok(Some(&ann), &folder, &["checkout", "-q", "main"]);
        assert_eq!(setup.git_ok(Some(&ann), &folder, &["show", "HEAD~1:folder/new"]), "new");
        assert_eq!(setup.git_ok(Some(&ann), &folder, &["cat-file", "blob", &kept]), "old");
        let said = setup.git_refused(Some(&ann), &folder, &["cat-file", "blob", &lost_blob]);
        assert!(said.contains(&format!("not our ref {lost_blob}")), "{said}");
    }
}

/// Pushes a new branch with only the listed objects and returns why it was rejected; `input` is the input of `pack-objects`.
async fn push_part(
    forge: &TestForge,
    (client, project): (&TestClient, ProjectId),
    local: &LocalRepository,
    new: &str,
    (options, input): (&[&str], &[&str]),
) -> Option<String> {
    let arguments = [&["pack-objects", "--stdout", "-q"], options].concat();
    let pack = git(local.path(), &arguments, format!("{}\n", input.join("\n")).as_bytes()).stdout;
    let name = RefName::new(&format!("refs/tags/{new}-{}", options.len())).expect("a name");
    let changes = vec![RefChange { name, old: None, new: Some(new.parse().expect("an id")) }];
    forge.push_pack(client, project, &pack, changes).await.remove(0).rejection.map(|rejection| rejection.to_string())
}

/// Commits a tree, with a parent if there is one, and returns the id.
fn commit_tree(local: &LocalRepository, tree: &str, parent: Option<&str>) -> String {
    let parent: Vec<&str> = parent.map(|parent| ["-p", parent]).into_iter().flatten().collect();
    local.git(&[&["commit-tree", tree, "-m", "m"], &parent[..]].concat())
}

/// Writes a tree with one file and returns its id.
fn tree_with(local: &LocalRepository, name: &str, blob: &str) -> String {
    let line = format!("100644 blob {blob}\t{name}\n");
    String::from_utf8(git(local.path(), &["mktree"], line.as_bytes()).stdout).expect("text").trim().to_owned()
}

/// Returns a long text, so that similar content is sent as a delta.
fn long_text() -> String {
    (0..500).fold(String::new(), |text, line| text + &format!("the secret line {}\n", line * 7919 % 1000))
}

#[tokio::test]
async fn a_push_does_not_make_deleted_objects_reachable_again() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits: [_, second], .. } = &fixture;
    local.git(&["checkout", "-q", "-b", "side"]);
    let lost = local.commit_file("dir/secret", long_text());
    let [root, folder, blob] =
        ["HEAD^{tree}", "HEAD:dir", "HEAD:dir/secret"].map(|name| local.git(&["rev-parse", name]));
    let good_root = local.git(&["rev-parse", "master^{tree}"]);
    forge.push_all(ann, PROJECT, local).await;
    // A fork that was created before and deletes the branch itself.
    let dan = &fixture.dan;
    let fork = dan.post("/projects/fork/1", json!({ "namespace": "dan" })).await.json();
    let fork = ProjectId::new(fork["id"].as_i64().expect("a fork"));
    forge.remove_ref(ann, PROJECT, "refs/heads/side").await;
    forge.remove_ref(dan, fork, "refs/heads/side").await;
    let refused = |id: &str| Some(format!("missing necessary objects: {id} is not part of the repository"));
    for (client, project) in [(ann, PROJECT), (dan, fork)] {
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
        // A delta against it would be resolved with content that the client does not have.
        local.git(&["checkout", "-q", "master"]);
        local.write("dir/secret", long_text() + "more\n");
        let thin = local.commit("almost the same");
        local.git(&["reset", "-q", "--hard", "HEAD~1"]);
        let exclude = format!("^{lost}");
        let thin_pack = ["pack-objects", "--stdout", "-q", "--thin", "--shallow", "--revs"];
        let pack = git(local.path(), &thin_pack, format!("{thin}\n{exclude}\n").as_bytes()).stdout;
        // The push is refused as a whole, without details of the object.
        let complaint = forge.index_pack_error(project, &pack).await;
        assert!(!complaint.is_empty() && !complaint.contains(&blob), "{complaint}");
        // The object is still unavailable.
        let raw = client.get(&format!("/projects/{project}/repository/raw_blobs/{blob}")).await;
        assert_eq!(raw.code(), 404, "{raw}");
        assert!(!forge.refs_of(project).iter().any(|(name, _)| name.starts_with("refs/tags")));
        // Objects sent in full are accepted, even if they already exist.
        let parts = [format!("{thin}^{{tree}}"), format!("{thin}:dir"), format!("{thin}:dir/secret")];
        let parts = parts.map(|name| local.git(&["rev-parse", &name]));
        assert_eq!(push(&thin, &[&thin, &parts[0], &parts[1], &parts[2]]).await, None);
    }
}

#[tokio::test]
async fn a_push_may_link_to_every_reachable_object_of_its_project() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits: [first, second], .. } = &fixture;
    local.write("dir/long", long_text());
    local.write("dir/deep/er/file", "file\n");
    let third = local.commit("long");
    let (old_blob, deep) = (local.git(&["rev-parse", "HEAD:dir/long"]), local.git(&["rev-parse", "HEAD:dir/deep"]));
    local.git(&["rm", "-q", "-r", "dir"]);
    let fourth = local.commit("short");
    local.git(&["tag", "-a", "-m", "m", "v1"]);
    let tag = local.git(&["rev-parse", "v1"]);
    forge.push_all(ann, PROJECT, local).await;
    for packed in [false, true] {
        if packed {
            forge.run_housekeeping(PROJECT).await;
        }
        let push = async |new: &str, sent: &[&str]| push_part(forge, (ann, PROJECT), local, new, (&[], sent)).await;
        // Files and folders that only the history contains; with old parents and without.
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
    let folder = forge.repository_folder(PROJECT).await.expect("a repository");
    git(&folder, &["fsck", "--full", "--strict"], b"");
}

/// A fork has the packs of its source, so unreachable objects are in it, too.
#[tokio::test]
async fn unreachable_objects_are_not_available_in_a_fork() {
    for (packed, lost) in [(false, false), (true, false), (false, true), (true, true)] {
        let fixture = RepositoryFixture::start().await;
        let RepositoryFixture { forge, ann, dan, local, .. } = &fixture;
        local.git(&["tag", "-a", "-m", "m", "v1"]);
        local.git(&["checkout", "-q", "-b", "side"]);
        let commit = local.commit_file("secret", long_text());
        let [tree, blob] = ["HEAD^{tree}", "HEAD:secret"].map(|name| local.git(&["rev-parse", name]));
        forge.push_all(ann, PROJECT, local).await;
        // Another pack.
        let file = json!({ "file_path": "new", "branch_name": "master", "content": "x", "commit_message": "m" });
        assert_eq!(ann.post(&format!("{REPOSITORY}/files"), file).await.code(), 201);
        if packed {
            forge.run_housekeeping(PROJECT).await;
        }
        if lost {
            forge.remove_ref(ann, PROJECT, "refs/heads/side").await;
        }
        let fork = dan.post("/projects/fork/1", json!({ "namespace": "dan" })).await.json();
        let fork = ProjectId::new(fork["id"].as_i64().expect("a fork"));
        assert_eq!(forge.refs_of(fork), forge.refs_of(PROJECT));
        let case = format!("packed: {packed}, lost: {lost}");
        for path in [
            format!("raw_blobs/{blob}"),
            format!("commits/{commit}"),
            format!("tree?ref_name={commit}"),
            format!("archive?sha={commit}"),
        ] {
            let answer = dan.get(&format!("/projects/{fork}/repository/{path}")).await;
            assert_eq!(answer.code(), if lost { 404 } else { 200 }, "{path}, {case}: {answer}");
        }
        // The owner of the fork cannot make them reachable.
        let child = commit_tree(local, &tree, None);
        let refused = push_part(forge, (dan, fork), local, &child, (&[], &[&child])).await;
        let expected = format!("missing necessary objects: {tree} is not part of the repository");
        assert_eq!(refused, lost.then_some(expected), "{case}");
        let name = RefName::branch("back").expect("a name");
        let changes = vec![RefChange { name, old: None, new: Some(commit.parse().expect("an id")) }];
        let push = Push { changes, incoming: None, atomic: false, options: Vec::new() };
        let caller = Caller::with_tokens(dan.token.as_deref());
        let outcomes = pushes::push(&forge.forge, caller, fork, push, PushSource::Git).await.expect("a push");
        assert_eq!(outcomes[0].rejection, lost.then_some(RefRejection::MissingObject), "{case}");
        // Pruning drops them from the fork; the source is not affected.
        let source = forge.pack_rows(PROJECT);
        maintenance::prune(&forge.forge, fork).await.expect("pruned");
        assert_eq!(forge.pack_rows(PROJECT), source, "{case}");
        let folder = tempfile::tempdir().expect("a folder");
        let folder = forge.build_repository(fork, folder.path());
        let listed = git(&folder, &["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], b"").stdout;
        let listed = String::from_utf8(listed).expect("text");
        for id in [&commit, &blob] {
            assert_eq!(listed.contains(id.as_str()), !lost, "{id}, {case}");
        }
        let reachable = git(&folder, &["rev-list", "--objects", "--all", "--no-object-names"], b"").stdout;
        let reachable = String::from_utf8(reachable).expect("text");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&listed), sorted(&reachable), "{case}");
        git(&folder, &["fsck", "--full", "--strict"], b"");
        // The fork is writable.
        let file = json!({ "file_path": "own", "branch_name": "master", "content": "x", "commit_message": "m" });
        let written = dan.post(&format!("/projects/{fork}/repository/files"), file).await;
        assert_eq!(written.code(), 201, "{written}");
        forge.run_housekeeping(fork).await;
    }
}

#[tokio::test]
async fn pipelines_do_not_expose_commits_removed_by_a_force_push() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, .. } = &fixture;
    local.git(&["checkout", "-q", "-b", "side"]);
    let commit = local.commit_file("secret", "secret\n");
    forge.push_all(ann, PROJECT, local).await;
    let id = commit.parse().expect("an id");
    let pipeline = forge.start_pipeline_at(PROJECT, Some(ann.id), "side", id, "one: {script: make}").await;
    let paths = ["/projects/1/builds".to_owned(), "/projects/1/builds/1".to_owned()];
    for path in &paths {
        let shown = ann.get(path).await;
        assert!(shown.code() == 200 && shown.text.contains("Add secret"), "{path}: {shown}");
    }
    forge.remove_ref(ann, PROJECT, "refs/heads/side").await;
    for path in &paths {
        let shown = ann.get(path).await;
        assert!(shown.code() == 200 && !shown.text.contains("Add secret"), "{path}: {shown}");
    }
    let shown = ann.get("/projects/1/builds/1").await.json();
    assert_eq!((&shown["commit"], &shown["pipeline"]["id"]), (&json!(null), &json!(pipeline.id.get())));
}
