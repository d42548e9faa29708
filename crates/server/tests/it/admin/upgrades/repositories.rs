//! Repositories of versions that kept refs in files are converted by the first start.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use model::ProjectId;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use testkit::repository::git;

use super::{create_old_instance, hex, list};
use crate::support::{ROOT_TOKEN, ServerProcess, TestInstance, WAIT_TIMEOUT};

/// The last version that kept refs in files.
const OLD_VERSION: usize = 10;
/// The storage id of the second project, which is a fork of the first one.
const FORK_STORAGE: &str = "0123456789abcdef0123456789abcdef";
/// A planned pipeline with one job.
const PLAN: &str = r#"{"stages":["test"],"jobs":[{"name":"pave","stage":"test","stage_index":0,"script":["make"],
    "after_script":[],"image":null,"services":[],"variables":{},"tags":[],"when":"OnSuccess","allow_failure":"No",
    "artifacts":null,"cache":[],"dependencies":null,"needs":null,"environment":null,"coverage":null,
    "retry":{"max":0,"when":[],"exit_codes":[]},"timeout":null,"interruptible":false}]}"#;

/// The folder of a repository with refs in files.
struct OldFolder(PathBuf);

impl OldFolder {
    fn of(instance: &TestInstance, storage: &str) -> Self {
        let name = hex(&Sha256::digest(storage));
        Self(instance.data().join(format!("repositories/{}/{}/{name}.git", &name[..2], &name[2..4])))
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = git(&self.0, arguments, b"").stdout;
        String::from_utf8(output).expect("text").trim().to_owned()
    }

    /// Creates a commit, whose objects are loose.
    fn commit(&self, message: &str, parent: &str) -> String {
        let blob = String::from_utf8(git(&self.0, &["hash-object", "-w", "--stdin"], message.as_bytes()).stdout);
        let entry = format!("100644 blob {}\tnote\n", blob.expect("an id").trim());
        let tree = String::from_utf8(git(&self.0, &["mktree"], entry.as_bytes()).stdout).expect("an id");
        self.git(&["commit-tree", tree.trim(), "-p", parent, "-m", message])
    }

    /// Copies the folder for another project.
    fn copy_to(&self, other: &Self) {
        fs::create_dir_all(other.0.parent().expect("a folder")).expect("folders");
        assert!(Command::new("cp").arg("-a").args([&self.0, &other.0]).status().expect("cp").success());
    }
}

/// Inserts a project of ann with a default branch.
fn insert_project(instance: &TestInstance, id: i64, storage: &str) {
    instance.execute(&format!(
        "INSERT INTO projects (namespace_id, creator_id, name, path, name_key, path_key, search_text, visibility, \
         issues_enabled, merge_requests_enabled, wiki_enabled, builds_enabled, snippets_enabled, \
         container_registry_enabled, shared_runners_enabled, public_builds, only_allow_merge_if_build_succeeds, \
         only_allow_merge_if_all_discussions_are_resolved, request_access_enabled, runners_seed, created_at, updated_at, \
         last_activity_at, default_branch) SELECT 2, 2, 'p{id}', 'p{id}', 'p{id}', 'p{id}', 'p{id}', 20, issues_enabled, \
         merge_requests_enabled, wiki_enabled, builds_enabled, snippets_enabled, container_registry_enabled, \
         shared_runners_enabled, public_builds, only_allow_merge_if_build_succeeds, \
         only_allow_merge_if_all_discussions_are_resolved, request_access_enabled, runners_seed, 9, 9, 9, 'master' \
         FROM projects WHERE id = 1; UPDATE project_storage SET storage_id = '{storage}' WHERE project_id = {id};"
    ));
}

/// Inserts an interrupted push that creates these refs, with a hidden event for each.
fn insert_push(instance: &TestInstance, id: i64, project: i64, refs: &[(&str, &str)]) {
    instance.execute(&format!(
        "INSERT INTO ref_intents (id, project_id, user_id, created_at) VALUES ({id}, {project}, 2, 40)"
    ));
    for (position, (name, target)) in refs.iter().enumerate() {
        instance.execute(&format!(
            "INSERT INTO ref_intent_changes (intent_id, position, ref_name, new_oid) \
             VALUES ({id}, {position}, '{name}', '{target}'); \
             INSERT INTO events (project_id, author_id, action, intent_id, created_at) VALUES ({project}, 2, 5, {id}, 41); \
             INSERT INTO push_events (event_id, ref_name, before, after, total_commits) \
             SELECT max(id), '{name}', '{zeros}', '{target}', 1 FROM events;",
            zeros = "0".repeat(40)
        ));
    }
}

/// Returns the output of `git ls-remote`.
fn ls_remote(server: &ServerProcess, path: &str) -> String {
    let url = format!("http://root:{ROOT_TOKEN}@{}/{path}.git", server.address());
    String::from_utf8(git(Path::new("/"), &["ls-remote", &url], b"").stdout).expect("text")
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story of one instance")]
fn refs_objects_forks_and_interrupted_pushes_are_converted() {
    let instance = TestInstance::new();
    create_old_instance(&instance, OLD_VERSION);
    let old = OldFolder::of(&instance, "1");
    // A pack, packed refs and an annotated tag; then loose refs, loose objects and a symbolic ref.
    let first = old.git(&["rev-parse", "master"]);
    old.git(&["tag", "-m", "One", "v1", "master"]);
    old.git(&["branch", "stable", "master"]);
    old.git(&["repack", "-a", "-d", "-q"]);
    old.git(&["pack-refs", "--all"]);
    let second = old.commit("Second", &first);
    old.git(&["update-ref", "refs/heads/master", &second]);
    old.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/stable"]);
    // One push was interrupted after its first ref, the other one before.
    let third = old.commit("Fix #1", &second);
    old.git(&["update-ref", "refs/heads/one", &third]);
    insert_push(&instance, 7, 1, &[("refs/heads/one", &third), ("refs/heads/two", &third)]);
    insert_push(&instance, 8, 1, &[("refs/heads/never", &second)]);
    for (push, branch) in [(7, "one"), (8, "never")] {
        instance.execute(&format!(
            "INSERT INTO pipelines (project_id, ref_name, tag, sha, source, status, stages, user_id, intent_id, plan, \
             created_at, updated_at) \
             VALUES (1, '{branch}', FALSE, '{third}', 'push', 'created', 'test', 2, {push}, '{PLAN}', 42, 42);"
        ));
    }
    instance.execute(&format!(
        "INSERT INTO intent_mentions (intent_id, position, issue_id, sha, closes) VALUES (7, 0, 1, '{third}', TRUE); \
         INSERT INTO jobs (kind, payload, singleton, run_at, created_at) VALUES \
         ('copy_repository', '2', 'copy_repository 2', 43, 43), ('settle_pushes', '', 'settle_pushes', 43, 43); \
         UPDATE projects SET default_branch = 'master' WHERE id = 1;"
    ));
    // A damaged repository, and one that is missing.
    let (damaged, missing) = ("3".repeat(32), "4".repeat(32));
    insert_project(&instance, 3, &damaged);
    insert_project(&instance, 4, &missing);
    let damaged = OldFolder::of(&instance, &damaged);
    old.copy_to(&damaged);
    fs::write(damaged.0.join("refs/heads/master"), "").expect("written");

    let printed = instance.gable(&["migrate", "--dry-run"]).finish().succeeded();
    assert!(
        printed.ends_with(
            "all pending migrations succeed\n\
             at the next start: repositories of an earlier version to convert: 2\n\
             at the next start: forks to copy from their sources: 1\n\
             at the next start: interrupted pushes to complete or discard: 2\n\
             at the next start: the repository of project 4 is missing\n"
        ),
        "{printed}"
    );
    let tag = old.git(&["rev-parse", "v1"]);
    let server = instance.start();
    let root = server.root();
    let expected = format!(
        "{second}\tHEAD\n{first}\trefs/heads/alias\n{second}\trefs/heads/master\n{third}\trefs/heads/one\n\
         {first}\trefs/heads/stable\n{third}\trefs/heads/two\n{tag}\trefs/tags/v1\n{first}\trefs/tags/v1^{{}}\n"
    );
    assert_eq!(ls_remote(&server, "ann/road"), expected);
    assert_eq!(ls_remote(&server, "crew/bridge"), expected, "the fork");
    assert_eq!(root.get("/api/v3/projects/2").json()["default_branch"], "master");
    let work = tempfile::tempdir().expect("a folder");
    let url = format!("http://root:{ROOT_TOKEN}@{}/ann/road.git", server.address());
    git(work.path(), &["clone", "-q", "--mirror", &url, "mirror"], b"");
    git(&work.path().join("mirror"), &["fsck", "--strict"], b"");
    let file = root.get("/api/v3/projects/1/repository/blobs/one?filepath=note");
    assert_eq!((file.status, file.text.as_str()), (200, "Fix #1"));

    let events = list(&root, "/api/v3/projects/1/events");
    let pushed: Vec<_> = events.iter().filter_map(|event| event["data"]["ref"].as_str()).collect();
    assert_eq!(pushed, ["refs/heads/two", "refs/heads/one", "refs/heads/master"]);
    assert_eq!(list(&root, "/api/v3/projects/1/issues?iid=1")[0]["state"], "closed");
    let pipelines = list(&root, "/api/v3/projects/1/pipelines");
    let refs: Vec<_> = pipelines.iter().map(|pipeline| &pipeline["ref"]).collect();
    assert_eq!(refs, ["one", "master", "master"]);
    let jobs = list(&root, "/api/v3/projects/1/builds?scope=pending");
    assert_eq!((jobs.len(), &jobs[0]["name"], &jobs[0]["ref"]), (1, &json!("pave"), &json!("one")));

    for id in [3, 4] {
        // It is not taken for an empty repository.
        assert_eq!(root.get(&format!("/api/v3/projects/{id}/repository/branches")).status, 500);
        let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "New" });
        assert_eq!(root.post(&format!("/api/v3/projects/{id}/repository/files"), &file).status, 500);
    }
    let log = server.stop().stderr;
    for id in [3, 4] {
        assert!(log.contains(&format!("cannot convert the repository of project {id}")), "{log}");
    }
    assert_eq!(instance.count("SELECT count(*) FROM unconverted_repositories"), 2);
    assert_eq!(instance.count("SELECT count(*) FROM ref_intents"), 0);
    assert_eq!(instance.count("SELECT count(*) FROM jobs WHERE kind IN ('copy_repository', 'settle_pushes')"), 0);
    let examined = instance.gable(&["doctor"]).finish();
    let problems: Vec<&str> = examined.stdout.lines().filter(|line| line.starts_with("problem")).collect();
    assert_eq!(problems.len(), 2, "{}", examined.combined_output());
    assert!(
        problems[0].starts_with("problem  repositories: project 3: its repository of an earlier version"),
        "{problems:?}"
    );
    assert!(problems[1].starts_with("problem  repositories: the repository of project 4 is missing"), "{problems:?}");

    // The next start tries again, and changes nothing that is converted.
    fs::write(damaged.0.join("refs/heads/master"), format!("{second}\n")).expect("written");
    let packs = instance.count("SELECT count(*) FROM packs");
    let server = instance.start();
    assert_eq!(ls_remote(&server, "ann/road"), expected);
    assert!(ls_remote(&server, "ann/p3").starts_with(&format!("{second}\tHEAD\n")));
    server.stop();
    assert_eq!(instance.count("SELECT count(*) FROM unconverted_repositories"), 1);
    assert!(instance.count("SELECT count(*) FROM packs") > packs);
    assert_eq!(
        instance.count("SELECT count(*) FROM events WHERE project_id = 1"),
        3 + 1,
        "the third one closed the issue"
    );
}

/// Returns a number from the environment, for larger runs.
fn size(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn a_conversion_that_is_killed_continues_at_the_next_start() {
    let (projects, refs) = (size("GABLE_UPGRADE_PROJECTS", 40), size("GABLE_UPGRADE_REFS", 2000));
    let instance = TestInstance::new();
    create_old_instance(&instance, OLD_VERSION);
    let old = OldFolder::of(&instance, "1");
    let first = old.git(&["rev-parse", "master"]);
    let second = old.commit("Second", &first);
    old.git(&["update-ref", "refs/heads/one", &second]);
    let ids = 3..3 + i64::try_from(projects).expect("a number");
    for id in ids.clone() {
        let storage = format!("{id:032x}");
        insert_project(&instance, id, &storage);
        old.copy_to(&OldFolder::of(&instance, &storage));
        insert_push(&instance, id, id, &[("refs/heads/one", &second), ("refs/heads/two", &second)]);
    }
    let packed: Vec<String> = (0..refs).map(|number| format!("{first} refs/heads/topic/{number:06}\n")).collect();
    let packed = format!("# pack-refs with: peeled fully-peeled sorted \n{}", packed.concat());
    fs::write(old.0.join("packed-refs"), packed).expect("written");
    instance.gable(&["migrate"]).finish().succeeded();

    let unconverted = || instance.count("SELECT count(*) FROM unconverted_repositories");
    let (mut kills, step) = (0, i64::try_from(projects / 10).expect("a number").max(1));
    while kills < 10 && unconverted() > 0 {
        let (server, goal, start) =
            (instance.serve().with_root_credentials().spawn(), unconverted() - step, Instant::now());
        while unconverted() > goal.max(0) && start.elapsed() < WAIT_TIMEOUT {
            thread::sleep(Duration::from_millis(1));
        }
        server.kill();
        kills += 1;
    }
    assert!(kills > 1, "it was not interrupted");
    let start = Instant::now();
    let server = instance.start();
    eprintln!("killed {kills} times; the last start took {:?}", start.elapsed());
    assert_eq!(unconverted(), 0);
    for id in ids.clone() {
        let refs = ls_remote(&server, &format!("ann/p{id}"));
        let expected =
            format!("{first}\tHEAD\n{first}\trefs/heads/master\n{second}\trefs/heads/one\n{second}\trefs/heads/two\n");
        assert_eq!(refs, expected, "project {id}");
    }
    assert_eq!(ls_remote(&server, "ann/road").lines().count(), refs + 3, "with HEAD, master and one");
    server.stop();
    let count = i64::try_from(projects).expect("a number");
    let visible = "SELECT count(*) FROM events WHERE intent_id IS NULL AND project_id > 2 AND action = 5";
    assert_eq!(instance.count(visible), 2 * count, "one event per ref");
    assert_eq!(instance.count("SELECT count(*) FROM ref_intents"), 0);
    assert_eq!(instance.count("SELECT count(*) FROM repositories"), count + 1);
    let examined = instance.gable(&["doctor"]).finish();
    assert_eq!(examined.status, Some(0), "{}", examined.combined_output());
    assert_eq!(instance.storage_of(ProjectId::new(2)), FORK_STORAGE);
}
