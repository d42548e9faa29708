//! `gable repository`: lists, repacks, prunes and verifies repositories beside a running server.

use std::{fs, path::PathBuf, time::Instant};

use model::ProjectId;
use serde_json::{Value, json};
use testkit::repository::{git, incompressible_text};

use crate::{
    admin::backup_formats::files_in,
    support::{HttpClient, ROOT_TOKEN, ServerProcess, TestInstance, WAIT_TIMEOUT},
};

const PROJECT: ProjectId = ProjectId::new(1);
const SECRET: &str = "a secret that was pushed by mistake";

/// Creates a project with a file on `master`, and a secret on a branch.
fn instance_with_secret() -> (TestInstance, ServerProcess, String) {
    let instance = TestInstance::new();
    let server = instance.start();
    let root = server.root();
    let made = root.post("/api/v3/projects", &json!({ "name": "road", "path": "road" }));
    assert_eq!(made.status, 201, "{made}");
    write_file(&root, "master", "a", "x");
    let branch = json!({ "branch_name": "side", "ref": "master" });
    let made = root.post("/api/v3/projects/1/repository/branches", &branch);
    assert_eq!(made.status, 200, "{made}");
    write_file(&root, "side", "secret", SECRET);
    let commit = root.get("/api/v3/projects/1/repository/commits/side").json();
    (instance, server, commit["id"].as_str().expect("an id").to_owned())
}

fn write_file(root: &HttpClient, branch: &str, path: &str, content: &str) {
    let file = json!({ "file_path": path, "branch_name": branch, "content": content, "commit_message": "Add" });
    let written = root.post("/api/v3/projects/1/repository/files", &file);
    assert_eq!(written.status, 201, "{written}");
}

fn delete_branch(root: &HttpClient, branch: &str) {
    let deleted = root.try_delete(&format!("/api/v3/projects/1/repository/branches/{branch}")).expect("a response");
    assert_eq!(deleted.status, 200, "{deleted}");
}

fn repository(instance: &TestInstance, arguments: &[&str]) -> String {
    instance.gable(&["repository"]).args(arguments).finish().succeeded()
}

/// Returns what `list --json` shows of the only repository.
fn listed(instance: &TestInstance) -> Value {
    let listed: Value = serde_json::from_str(&repository(instance, &["list", "--json"])).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    listed[0].clone()
}

/// Returns whether a file below a folder of the data folder is a pack with an object.
fn has_object(instance: &TestInstance, folder: &str, id: &str) -> bool {
    let packs: Vec<PathBuf> = files_in(&instance.data().join(folder)).into_keys().collect();
    let indexes = packs.iter().filter(|path| path.extension().is_some_and(|extension| extension == "idx"));
    indexes.into_iter().any(|path| {
        let index = fs::read(instance.data().join(folder).join(path)).expect("read");
        let shown = git(instance.data().as_path(), &["show-index"], &index).stdout;
        String::from_utf8_lossy(&shown).contains(id)
    })
}

#[test]
fn repositories_are_listed_repacked_and_verified_beside_a_server() {
    let (instance, server, commit) = instance_with_secret();
    let before = listed(&instance);
    assert_eq!((&before["path"], &before["refs"], &before["packs"]), (&json!("root/road"), &json!(2), &json!(2)));
    assert_eq!((&before["objects"], &before["unreachable_bytes"]), (&json!(6), &json!(0)));
    delete_branch(&server.root(), "side");

    let output = repository(&instance, &["gc", "root/road"]);
    assert!(output.starts_with("root/road: ") && output.ends_with(" bytes now\n"), "{output}");
    let after = listed(&instance);
    assert_eq!((&after["refs"], &after["packs"], &after["objects"]), (&json!(1), &json!(2), &json!(6)));
    assert!(after["unreachable_bytes"].as_i64().is_some_and(|bytes| bytes > 0), "{after}");
    assert!(has_object(&instance, "files/packs", &commit), "unreachable objects are kept for a while");
    // They are not repacked again.
    repository(&instance, &["gc", "--all"]);
    assert_eq!(listed(&instance), after);

    assert_eq!(repository(&instance, &["verify", "1"]), "root/road: ok\n");
    write_file(&server.root(), "master", "b", "y");
    server.stop();
    assert_eq!(repository(&instance, &["verify", "--all"]), "root/road: ok\n");
    let table = repository(&instance, &["list"]);
    assert_eq!(table.lines().count(), 2, "{table}");
    let built = instance.build_repository(PROJECT);
    git(built.path(), &["fsck", "--full", "--strict"], b"");
}

#[test]
fn a_pruned_object_is_gone_from_the_disk_and_what_is_reachable_stays() {
    let (instance, server, commit) = instance_with_secret();
    let root = server.root();
    let shown = root.get(&format!("/api/v3/projects/1/repository/commits/{commit}"));
    assert_eq!((shown.status, &shown.json()["id"]), (200, &json!(commit)), "{shown}");
    let refused = instance.gable(&["repository", "prune", "root/road"]).finish().refused();
    assert_eq!(refused, "unreachable objects cannot be restored afterwards; add --yes to remove them");

    // Nothing that a branch needs is removed.
    repository(&instance, &["prune", "root/road", "--yes"]);
    assert!(has_object(&instance, "files/packs", &commit));
    let blob = root.get("/api/v3/projects/1/repository/blobs/side?filepath=secret");
    assert_eq!((blob.status, blob.text.as_str()), (200, SECRET));

    delete_branch(&root, "side");
    let output = repository(&instance, &["prune", "root/road", "--yes"]);
    assert!(output.starts_with("root/road: "), "{output}");
    assert!(!has_object(&instance, "files/packs", &commit));
    let shown = root.get(&format!("/api/v3/projects/1/repository/commits/{commit}"));
    assert_eq!((shown.status, shown.json()), (404, json!({ "message": "404 Commit Not Found" })));
    // The server removes it from its own folder in a background task.
    let start = Instant::now();
    while has_object(&instance, "repositories", &commit) {
        assert!(start.elapsed() < WAIT_TIMEOUT, "the folder of the repository still has the object");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let blob = root.get("/api/v3/projects/1/repository/blobs/master?filepath=a");
    assert_eq!((blob.status, blob.text.as_str()), (200, "x"));
    write_file(&root, "master", "b", "y");
    assert_eq!(repository(&instance, &["verify", "root/road"]), "root/road: ok\n");
    server.stop();
}

#[test]
fn the_pack_of_a_small_push_is_overwritten_when_it_is_pruned() {
    let instance = TestInstance::embedded();
    let server = instance.start();
    let root = server.root();
    assert_eq!(root.post("/api/v3/projects", &json!({ "name": "road", "path": "road" })).status, 201);
    write_file(&root, "master", "a", "x");
    let branch = json!({ "branch_name": "side", "ref": "master" });
    assert_eq!(root.post("/api/v3/projects/1/repository/branches", &branch).status, 200);
    write_file(&root, "side", "secret", &incompressible_text(1000));
    // A read creates a copy of the pack.
    assert_eq!(root.get("/api/v3/projects/1/repository/commits/side").status, 200);
    let packs = files_in(&instance.data().join("repositories")).into_iter();
    let packs = packs.filter(|(path, _)| path.extension().is_some_and(|extension| extension == "pack"));
    let (_, pack) = packs.max_by_key(|(_, content)| content.len()).expect("a pack");
    let secret = pack[pack.len() - 500..][..400].to_vec();
    let has_secret = || {
        let files = files_in(&instance.data()).into_iter();
        let found = files.filter(|(_, content)| content.windows(secret.len()).any(|window| window == secret));
        found.map(|(path, _)| path.display().to_string()).collect::<Vec<_>>()
    };
    assert!(has_secret().iter().any(|path| path.contains("gable.sqlite3")), "{:?}", has_secret());
    delete_branch(&root, "side");
    repository(&instance, &["prune", "root/road", "--yes"]);
    assert_eq!(root.get("/api/v3/projects/1/repository/tree").status, 200);
    server.stop();
    assert_eq!(has_secret(), [] as [&str; 0]);
}

#[test]
fn prune_names_forks_that_share_no_pack_any_more() {
    let (instance, server, _) = instance_with_secret();
    let root = server.root();
    assert_eq!(root.post("/api/v3/groups", &json!({ "name": "crew", "path": "crew" })).status, 201);
    let fork = root.post("/api/v3/projects/fork/1", &json!({ "namespace": "crew" }));
    assert_eq!(fork.status, 201, "{fork}");
    server.stop();
    // As if the packs of the time before the fork had been replaced and removed.
    repository(&instance, &["gc", "root/road"]);
    instance.execute("DELETE FROM repository_packs WHERE repository_id = 1 AND dead_since IS NOT NULL");
    let output = repository(&instance, &["prune", "root/road", "--yes"]);
    assert!(output.lines().any(|line| line.ends_with(&format!(" {}", fork.json()["id"]))), "{output}");
    // A project that is being removed is not named.
    instance.execute("UPDATE projects SET deleted_at = 1, namespace_id = NULL WHERE id = 2");
    let output = repository(&instance, &["prune", "root/road", "--yes"]);
    assert_eq!(output.lines().count(), 1, "{output}");
}

#[test]
fn pushes_beside_prunes_lose_nothing() {
    let (instance, server, _) = instance_with_secret();
    let root = server.root();
    let pruning = std::sync::atomic::AtomicBool::new(true);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while pruning.load(std::sync::atomic::Ordering::Relaxed) || number < 20 {
                // Objects become unreachable, and the same objects are written again.
                let branch = json!({ "branch_name": "other", "ref": "master" });
                assert_eq!(root.post("/api/v3/projects/1/repository/branches", &branch).status, 200);
                write_file(&root, "other", "again", SECRET);
                delete_branch(&root, "other");
                write_file(&root, "master", &format!("file-{number}"), SECRET);
                number += 1;
            }
            number
        });
        for _ in 0..5 {
            repository(&instance, &["prune", "root/road", "--yes"]);
            repository(&instance, &["gc", "root/road"]);
        }
        pruning.store(false, std::sync::atomic::Ordering::Relaxed);
        writer.join().expect("every write succeeds")
    });
    assert_eq!(repository(&instance, &["verify", "root/road"]), "root/road: ok\n");
    server.stop();
    let built = instance.build_repository(PROJECT);
    git(built.path(), &["fsck", "--full", "--strict"], b"");
    let names = git(built.path(), &["ls-tree", "--name-only", "master"], b"").stdout;
    let names = String::from_utf8(names).expect("text");
    assert_eq!(names.lines().filter(|name| name.starts_with("file-")).count(), written, "{names}");
}

#[test]
fn an_unreachable_object_that_is_written_again_stays() {
    let (instance, server, _) = instance_with_secret();
    let root = server.root();
    delete_branch(&root, "side");
    // Now it is only in a pack that will be removed.
    repository(&instance, &["gc", "root/road"]);
    write_file(&root, "master", "secret", SECRET);
    for command in [&["gc", "root/road"][..], &["prune", "root/road", "--yes"]] {
        repository(&instance, command);
        assert_eq!(repository(&instance, &["verify", "root/road"]), "root/road: ok\n");
        let blob = root.get("/api/v3/projects/1/repository/blobs/master?filepath=secret");
        assert_eq!((blob.status, blob.text.as_str()), (200, SECRET));
    }
    server.stop();
    let built = instance.build_repository(PROJECT);
    git(built.path(), &["fsck", "--full", "--strict"], b"");
}

#[test]
fn a_folder_that_is_deleted_beside_a_server_is_built_again() {
    let (instance, server, commit) = instance_with_secret();
    let root = server.root();
    let url = format!("http://root:{ROOT_TOKEN}@{}/root/road.git", server.address());
    let work = tempfile::tempdir().expect("a folder");
    let refs = || String::from_utf8(git(work.path(), &["ls-remote", &url], b"").stdout).expect("text");
    let before = refs();
    assert!(before.contains(&format!("{commit}\trefs/heads/side\n")), "{before}");
    for round in 0..3 {
        for folder in fs::read_dir(instance.data().join("repositories")).expect("a folder") {
            let folder = folder.expect("an entry");
            if folder.file_name().len() == 2 {
                fs::remove_dir_all(folder.path()).expect("removed");
            }
        }
        match round {
            0 => assert_eq!(root.get("/api/v3/projects/1/repository/tree?ref_name=side").status, 200),
            1 => drop(git(work.path(), &["clone", "-q", "--mirror", &url, "mirror"], b"")),
            _ => write_file(&root, "master", "b", "y"),
        }
        assert_eq!(refs() == before, round < 2, "round {round}");
    }
    git(&work.path().join("mirror"), &["fsck", "--strict"], b"");
    assert_eq!(repository(&instance, &["verify", "--all"]), "root/road: ok\n");
    server.stop();
}

#[test]
fn a_missing_pack_is_named_and_other_projects_are_not_affected() {
    let (instance, server, _) = instance_with_secret();
    let root = server.root();
    write_file(&root, "master", "large", &incompressible_text(100_000));
    assert_eq!(root.post("/api/v3/projects", &json!({ "name": "bridge", "path": "bridge" })).status, 201);
    server.stop();
    // Packs that a folder has are readable without the store.
    let _ = fs::remove_dir_all(instance.data().join("repositories"));
    let packs = instance.data().join("files/packs");
    let removed = files_in(&packs).into_keys().find(|path| path.extension().is_some_and(|found| found == "pack"));
    let removed = removed.expect("a pack");
    fs::remove_file(packs.join(&removed)).expect("removed");
    let name = format!("packs/{}", removed.display());

    let failed = instance.gable(&["repository", "verify", "--all"]).finish();
    assert_eq!(failed.status, Some(1), "{}", failed.combined_output());
    assert!(failed.stdout.contains(&format!("root/road: git: the pack file {name} is missing")), "{}", failed.stdout);
    assert!(failed.stderr.contains("a repository is damaged; restore it from a backup"), "{}", failed.stderr);
    let examined = instance.gable(&["doctor"]).finish().stdout;
    assert!(examined.contains(&format!("problem  packs: {name} is missing; project 1 needs it")), "{examined}");

    let server = instance.start();
    let root = server.root();
    let failed = root.get("/api/v3/projects/1/repository/tree");
    assert_eq!((failed.status, failed.json()), (500, json!({ "message": "500 Internal Server Error" })));
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "Add" });
    assert_eq!(root.post("/api/v3/projects/2/repository/files", &file).status, 201);
    let tree = root.get("/api/v3/projects/2/repository/tree").json();
    assert_eq!((&tree[0]["name"], tree.as_array().map(Vec::len)), (&json!("a"), Some(1)), "{tree}");
    let log = server.stop().stderr;
    assert!(log.contains(&format!("the pack file {name} is missing")), "{log}");
}

#[test]
fn bad_arguments_are_refused() {
    let instance = TestInstance::new();
    instance.start().stop();
    let refused = |arguments: &[&str]| {
        let finished = instance.gable(&["repository"]).args(arguments).finish();
        (finished.status, finished.combined_output())
    };
    let (status, output) = refused(&["gc", "root/nothing"]);
    assert_eq!(status, Some(1), "{output}");
    assert!(output.starts_with("gable: there is no project root/nothing; see `gable repository list`"), "{output}");
    for arguments in [&["gc"][..], &["verify"], &["prune", "--yes"], &["gc", "root/nothing", "--all"], &["unknown"]] {
        let (status, output) = refused(arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {output}");
    }
    assert_eq!(repository(&instance, &["list", "--json"]), "[]\n");
    assert_eq!(repository(&instance, &["verify", "--all"]), "");
}
