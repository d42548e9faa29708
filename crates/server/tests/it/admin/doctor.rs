//! `gable doctor` on healthy and damaged instances.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use model::ProjectId;
use serde_json::{Value, json};
use testkit::repository::incompressible_text;

use crate::support::{ServerProcess, TestInstance};

const PROJECT: ProjectId = ProjectId::new(1);

/// Creates an instance with a project, a repository, a file and a variable.
fn instance_with_data() -> (TestInstance, ServerProcess) {
    let instance = TestInstance::new();
    let server = instance.start();
    let root = server.root();
    let project = root.post("/api/v3/projects", &json!({ "name": "road", "path": "road" }));
    assert_eq!(project.status, 201, "{project}");
    // A large file is stored in a pack with files, a small one in a pack in the database.
    for (path, content) in [("a", incompressible_text(100_000)), ("b", "x".to_owned())] {
        let file = json!({ "file_path": path, "branch_name": "master", "content": content, "commit_message": "Add" });
        assert_eq!(root.post("/api/v3/projects/1/repository/files", &file).status, 201);
    }
    assert_eq!(root.try_upload("/api/v3/projects/1/uploads", "a.txt", "hello").expect("a response").status, 201);
    assert_eq!(root.post("/api/v3/projects/1/variables", &json!({ "key": "K", "value": "s3cret-value" })).status, 201);
    assert_eq!(root.post("/api/v3/projects/1/star", &json!({})).status, 201);
    (instance, server)
}

/// Runs `gable doctor --json`; returns its exit status and its report.
fn run_doctor(instance: &TestInstance, more: &[&str]) -> (Option<i32>, Value) {
    let finished = instance.gable(&["doctor", "--json"]).args(more).finish();
    let report = serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{}", finished.combined_output()));
    assert!(!finished.combined_output().contains("s3cret-value"));
    (finished.status, report)
}

/// Returns the statuses and messages of the checks with this name.
fn messages_of<'a>(report: &'a Value, check: &str) -> Vec<(&'a str, &'a str)> {
    let checks = report["checks"].as_array().expect("a list").iter().filter(|one| one["check"] == check);
    checks.map(|one| (one["status"].as_str().expect("a word"), one["message"].as_str().expect("a text"))).collect()
}

fn failed_checks(report: &Value) -> Vec<&Value> {
    report["checks"].as_array().expect("a list").iter().filter(|one| one["status"] != "ok").collect()
}

/// Returns the newest folder in `lost+found`.
fn lost_and_found(instance: &TestInstance) -> PathBuf {
    let place = fs::read_dir(instance.data().join("lost+found")).expect("a folder");
    place.map(|entry| entry.expect("an entry").path()).max().expect("one")
}

fn repository(instance: &TestInstance) -> PathBuf {
    let only = |folder: &Path| {
        let is_match = |path: &PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            name.len() == 2 || path.join("HEAD").exists() && name != "empty.git"
        };
        let found = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        found.into_iter().find(is_match).expect("one")
    };
    only(&only(&only(&instance.data().join("repositories"))))
}

/// Returns the only pack of the instance that has files.
fn pack(instance: &TestInstance) -> PathBuf {
    let folder = fs::read_dir(instance.data().join("files/packs")).expect("a folder").next().expect("one");
    let mut files =
        fs::read_dir(folder.expect("an entry").path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "pack")).expect("a pack")
}

#[test]
fn a_healthy_instance_has_no_problems_with_and_without_a_server() {
    let (instance, server) = instance_with_data();
    let (status, report) = run_doctor(&instance, &[]);
    assert_eq!(messages_of(&report, "server"), [("ok", "the server is running")]);
    assert_eq!((status, &report["problems"]), (Some(0), &json!(0)), "{:?}", failed_checks(&report));
    server.stop();
    let (status, report) = run_doctor(&instance, &[]);
    let strange: Vec<_> = failed_checks(&report).into_iter().filter(|one| one["check"] != "free disk").collect();
    assert_eq!((status, strange.len()), (Some(0), 0), "{strange:?}");
    assert_eq!(
        messages_of(&report, "repositories"),
        [("ok", "1 of 1 projects have a repository; all of them are intact")]
    );
    assert_eq!(messages_of(&report, "instance key"), [("ok", "it decrypts all encrypted values (1)")]);
    let lines = instance.gable(&["doctor", "--quick"]).finish().succeeded();
    assert!(lines.contains("ok       server: no server is running\n"), "{lines}");
    assert!(lines.contains("(others were not checked)\n") && lines.contains("\n0 problems, "), "{lines}");
}

#[test]
fn problems_that_can_be_fixed_are_found_and_fixed_without_data_loss() {
    let (instance, server) = instance_with_data();
    server.stop();
    let data = instance.data();
    fs::set_permissions(data.join("instance-key"), fs::Permissions::from_mode(0o644)).expect("permitted");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("permitted");
    let storage = instance.storage_of(PROJECT);
    let orphan = data.join("repositories/ab/cd/abcd.git");
    fs::create_dir_all(&orphan).expect("a folder");
    fs::write(orphan.join("HEAD"), "ref: refs/heads/master\n").expect("written");
    fs::write(data.join(format!("files/uploads/{storage}/77")), "orphaned").expect("written");
    fs::create_dir_all(data.join("traces").join(&storage)).expect("a folder");
    fs::write(data.join(format!("traces/{storage}/99")), "a stray trace").expect("written");
    fs::remove_file(data.join(format!("files/uploads/{storage}/1"))).expect("removed");
    fs::create_dir_all(data.join("files/packs/ab")).expect("a folder");
    fs::write(data.join("files/packs/ab/abcd-1234.pack"), "a stray pack").expect("written");
    // Damage that no request can do.
    instance.execute(
        "UPDATE projects SET star_count = 7; UPDATE project_counts SET amount = amount + 1 WHERE visibility = 0; \
         UPDATE namespace_project_counts SET amount = amount + 1; UPDATE project_members SET project_created_at = 1; \
         INSERT INTO member_project_counts (user_id, visibility, archived, amount) VALUES (1, 0, FALSE, 3)",
    );
    instance.insert_dead_task("keep_house", "1", "no");

    let (status, report) = run_doctor(&instance, &[]);
    assert_eq!(status, Some(1), "{:?}", failed_checks(&report));
    assert_eq!(messages_of(&report, "permissions").len(), 2);
    assert!(messages_of(&report, "permissions").iter().all(|(status, _)| *status == "problem"));
    let counters = messages_of(&report, "counters");
    assert!(counters.contains(&("problem", "stars of projects: 1 row is wrong")), "{counters:?}");
    for name in
        ["projects by visibility", "projects of namespaces", "listed memberships", "memberships of users by visibility"]
    {
        assert!(counters.iter().any(|(_, text)| text.starts_with(&format!("{name}: "))), "{name}: {counters:?}");
    }
    let [("problem", text)] = messages_of(&report, "uploads")[..] else { panic!("{report}") };
    assert_eq!(text, "1 files are missing or truncated, such as 1");
    for check in ["orphaned repositories", "uploads without rows", "traces without builds", "packs without rows"] {
        let [("warning", _)] = messages_of(&report, check)[..] else { panic!("{check}: {report}") };
    }
    assert_eq!(messages_of(&report, "background tasks"), [("warning", "1 failed permanently")]);
    assert!(orphan.exists(), "nothing is changed without --fix");

    let (status, report) = run_doctor(&instance, &["--fix", "--forget-missing"]);
    assert_eq!(status, Some(0), "{:?}", failed_checks(&report));
    let (status, report) = run_doctor(&instance, &[]);
    let left: Vec<_> = failed_checks(&report).into_iter().map(|one| one["check"].clone()).collect();
    assert!(
        status == Some(0) && left.iter().all(|check| check == "background tasks" || check == "free disk"),
        "{left:?}"
    );
    assert_eq!(instance.count("SELECT star_count FROM projects"), 1);
    assert_eq!(instance.count("SELECT count(*) FROM uploads"), 0);
    let place = lost_and_found(&instance);
    let kept = |name: &str| fs::read_to_string(place.join(name)).expect(name);
    assert_eq!(kept(&format!("uploads/{storage}-77")), "orphaned");
    assert_eq!(kept(&format!("traces/{storage}-99")), "a stray trace");
    assert_eq!(kept("packs/ab-abcd-1234.pack"), "a stray pack");
    assert_eq!(kept("forgotten-uploads.txt"), "number\tproject\tbytes\tname\n1\t1\t5\ta.txt\n");
    assert_eq!(kept("repositories/cd-abcd.git/HEAD"), "ref: refs/heads/master\n");
    assert_eq!(fs::metadata(&place).expect("there").permissions().mode() & 0o777, 0o700);
    assert_eq!(instance.start().root().get("/api/v3/projects/1/repository/tree").status, 200);
}

#[test]
fn files_are_not_moved_while_a_server_runs() {
    let (instance, _server) = instance_with_data();
    let stray = instance.data().join(format!("files/uploads/{}/77", instance.storage_of(PROJECT)));
    fs::write(&stray, "orphaned").expect("written");
    instance.execute("UPDATE projects SET star_count = 7");
    let (status, report) = run_doctor(&instance, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", failed_checks(&report));
    assert_eq!(messages_of(&report, "counters"), [("fixed", "stars of projects: 1 row is wrong")]);
    let [("warning", _)] = messages_of(&report, "uploads without rows")[..] else { panic!("{report}") };
    assert!(stray.exists());
}

#[test]
fn corrupted_objects_are_found_by_a_full_check() {
    let (instance, server) = instance_with_data();
    server.stop();
    let pack = pack(&instance);
    fs::set_permissions(&pack, fs::Permissions::from_mode(0o644)).expect("permitted");
    let mut bytes = fs::read(&pack).expect("a pack");
    // The last byte of the last object; the checksum of the pack follows.
    let at = bytes.len() - 21;
    bytes[at] ^= 1;
    fs::write(&pack, bytes).expect("written");
    let (status, report) = run_doctor(&instance, &["--quick"]);
    assert_eq!((status, &report["problems"]), (Some(0), &json!(0)), "it is there: {:?}", failed_checks(&report));
    let (status, report) = run_doctor(&instance, &[]);
    let messages = messages_of(&report, "repositories");
    assert!(messages.iter().any(|(status, text)| *status == "problem" && text.contains("project 1: ")), "{messages:?}");
    assert_eq!(status, Some(1));
}

#[test]
fn missing_objects_packs_and_keys_are_problems() {
    let (instance, server) = instance_with_data();
    server.stop();
    let (pack, ones) = (pack(&instance), "1".repeat(40));
    instance.execute(&format!("INSERT INTO refs (repository_id, name, target) VALUES (1, 'refs/tags/lost', '{ones}')"));
    let (status, report) = run_doctor(&instance, &["--quick"]);
    let [("problem", text)] = messages_of(&report, "repositories")[..] else { panic!("{report}") };
    assert_eq!(text, format!("project 1: refs/tags/lost points to {ones}, which does not exist"));
    assert_eq!(status, Some(1));
    instance.execute("DELETE FROM refs WHERE name = 'refs/tags/lost'");

    let (aside, name) =
        (pack.with_extension("aside"), pack.file_name().expect("a name").to_string_lossy().into_owned());
    fs::rename(&pack, &aside).expect("renamed");
    let (status, report) = run_doctor(&instance, &["--quick"]);
    let [("problem", text)] = messages_of(&report, "packs")[..] else { panic!("{report}") };
    assert!(text.ends_with(&format!("{name} is missing; project 1 needs it")), "{text}");
    let [("problem", text)] = messages_of(&report, "repositories")[..] else { panic!("{report}") };
    assert!(text.contains(&name), "{text}");
    assert_eq!(status, Some(1));
    fs::write(&pack, "short").expect("written");
    let (status, report) = run_doctor(&instance, &["--quick"]);
    let [("problem", text)] = messages_of(&report, "packs")[..] else { panic!("{report}") };
    assert!(status == Some(1) && text.contains(&format!("{name} has 5 bytes instead of ")), "{text}");
    fs::rename(&aside, &pack).expect("renamed");

    instance.save_database();
    instance.execute("UPDATE pack_contents SET pack_data = index_data");
    let (status, report) = run_doctor(&instance, &["--quick"]);
    let [("problem", text)] = messages_of(&report, "packs")[..] else { panic!("{report}") };
    assert!(text.starts_with("the pack packs/"), "{text}");
    assert!(text.ends_with(" in the database is damaged: the file signature is invalid; project 1 needs it"), "{text}");
    assert_eq!(status, Some(1));
    instance.restore_database();

    let key = instance.data().join("instance-key");
    let right = fs::read_to_string(&key).expect("a key");
    fs::write(&key, format!("{}\n", "A".repeat(43))).expect("written");
    let (status, report) = run_doctor(&instance, &["--quick"]);
    assert_eq!(
        messages_of(&report, "instance key"),
        [("problem", "it does not belong to this database: it does not fit 1 variables of projects")]
    );
    assert_eq!(status, Some(1));
    fs::remove_file(&key).expect("removed");
    let (status, report) = run_doctor(&instance, &[]);
    assert_eq!(
        (status, messages_of(&report, "instance key")),
        (Some(1), vec![("problem", "the file with the instance key is missing")])
    );
    assert!(!key.exists(), "the check creates nothing");
    fs::write(&key, right).expect("written");
}

#[test]
fn a_missing_instance_or_database_is_reported() {
    let instance = TestInstance::embedded();
    let finished = instance.gable(&["doctor"]).finish();
    assert_eq!((finished.status, finished.stdout.as_str()), (Some(1), ""));
    assert!(finished.stderr.starts_with("gable: no Gable instance in "), "{}", finished.stderr);
    assert!(!instance.data().exists(), "the check creates nothing");
    fs::create_dir(instance.data()).expect("a folder");
    let finished = instance.gable(&["doctor"]).finish();
    assert_eq!((finished.status, finished.stdout.as_str()), (Some(1), ""));
    assert_eq!(fs::read_dir(instance.data()).expect("a folder").count(), 0, "the check creates nothing");
    instance.start().stop();
    fs::remove_file(instance.data().join("gable.sqlite3")).expect("removed");
    let (status, report) = run_doctor(&instance, &[]);
    let [("problem", text)] = messages_of(&report, "database")[..] else { panic!("{report}") };
    assert!(
        status == Some(1)
            && text
                .ends_with("is missing or empty; restore a backup, or specify a PostgreSQL database with --database"),
        "{text}"
    );
    assert!(!instance.data().join("gable.sqlite3").exists(), "the check creates nothing");
}

#[test]
fn an_interrupted_restore_is_reported() {
    let instance = TestInstance::new();
    fs::create_dir_all(instance.data().join(".restoring")).expect("a folder");
    let (status, report) = run_doctor(&instance, &["--fix"]);
    let message = "a restore into this folder was interrupted or is still running; the data is incomplete";
    assert_eq!((status, messages_of(&report, "restore")), (Some(1), vec![("problem", message)]));
    let remedies: Vec<_> = failed_checks(&report).into_iter().filter(|one| one["check"] == "restore").collect();
    assert_eq!(remedies[0]["remedy"], "run the restore again unless it is still running");
    assert_eq!(messages_of(&report, "database"), []);
}

#[test]
fn symbolic_links_are_moved_but_not_their_targets() {
    let (instance, server) = instance_with_data();
    server.stop();
    let (data, outside) = (instance.data(), tempfile::tempdir().expect("a folder"));
    let precious = outside.path().join("cd/precious.git");
    fs::create_dir_all(&precious).expect("a folder");
    fs::write(outside.path().join("letter"), "dear").expect("written");
    let storage = instance.storage_of(PROJECT);
    // Folders of repositories in which the project is not.
    let [first, second] = if storage.starts_with(['e', 'f']) { ["01", "23"] } else { ["fe", "ef"] };
    fs::create_dir_all(data.join("repositories").join(second)).expect("a folder");
    let (whole, inner) = (format!("repositories/{first}"), format!("repositories/{second}/cd"));
    let old = format!("files/uploads/{storage}/old");
    let links = [&whole, &inner, "files/uploads/photos", "files/uploads/2", &old];
    for link in links.iter().chain(&["files/artifacts"]) {
        symlink(outside.path(), data.join(link)).expect("a link");
    }
    // A link in place of a whole top folder is supported.
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::remove_dir_all(data.join("traces")).expect("removed");
    symlink(elsewhere.path(), data.join("traces")).expect("a link");
    fs::write(elsewhere.path().join("stray"), "orphaned").expect("written");

    let (status, report) = run_doctor(&instance, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", failed_checks(&report));
    let [("fixed", text)] = messages_of(&report, "orphaned repositories")[..] else { panic!("{report}") };
    assert!(text.starts_with("2 are not in the database: "), "{text}");
    let [("fixed", text)] = messages_of(&report, "uploads without rows")[..] else { panic!("{report}") };
    assert!(text.starts_with("3 are not in the database: "), "{text}");
    assert!(precious.is_dir());
    assert_eq!(fs::read_to_string(outside.path().join("letter")).expect("there"), "dear");
    assert!(links.iter().all(|link| fs::symlink_metadata(data.join(link)).is_err()));
    let place = lost_and_found(&instance);
    let moved = [
        format!("repositories/repositories-{first}"),
        format!("repositories/{second}-cd"),
        "uploads/uploads-photos".to_owned(),
        format!("uploads/{storage}-old"),
    ];
    for link in moved {
        assert_eq!(fs::read_link(place.join(&link)).expect(&link), outside.path());
    }
    assert_eq!(fs::read_link(place.join("artifacts/files-artifacts")).expect("a link"), outside.path());
    let [("fixed", _)] = messages_of(&report, "traces without builds")[..] else { panic!("{report}") };
    assert!(!elsewhere.path().join("stray").exists());
}

#[test]
fn a_symbolic_link_that_a_project_uses_is_kept() {
    let (instance, server) = instance_with_data();
    // Creates the folder of the repository.
    assert_eq!(server.root().get("/api/v3/projects/1/repository/tree").status, 200);
    server.stop();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (uploads, away) =
        (instance.data().join("files/uploads").join(instance.storage_of(PROJECT)), elsewhere.path().join("1"));
    fs::create_dir(&away).expect("a folder");
    fs::rename(uploads.join("1"), away.join("1")).expect("moved");
    fs::write(away.join("letter"), "dear").expect("written");
    fs::remove_dir(&uploads).expect("removed");
    symlink(&away, &uploads).expect("a link");
    let parent = repository(&instance).parent().expect("a folder").to_owned();
    let outer = elsewhere.path().join("parent");
    // The target may be on another disk, so it is copied.
    assert!(std::process::Command::new("cp").arg("-a").args([&parent, &outer]).status().expect("cp").success());
    fs::remove_dir_all(&parent).expect("removed");
    symlink(&outer, &parent).expect("a link");
    let (status, report) = run_doctor(&instance, &["--fix", "--forget-missing"]);
    assert_eq!(status, Some(0), "{:?}", failed_checks(&report));
    assert_eq!(messages_of(&report, "uploads"), [("ok", "every row has its file")]);
    assert_eq!(messages_of(&report, "uploads without rows")[0].0, "warning");
    assert_eq!(messages_of(&report, "orphaned repositories")[0].0, "warning");
    assert!(away.join("letter").exists() && uploads.join("1").exists() && parent.is_symlink());
}

#[test]
fn rows_of_missing_files_are_removed_only_with_the_flag_and_a_mounted_disk() {
    let (instance, server) = instance_with_data();
    server.stop();
    let uploads = instance.data().join("files/uploads");
    let aside = instance.data().join("files/unmounted");
    fs::rename(&uploads, &aside).expect("renamed");
    for arguments in [&["--fix"][..], &["--fix", "--forget-missing"]] {
        let (status, report) = run_doctor(&instance, arguments);
        let [("problem", text)] = messages_of(&report, "uploads")[..] else { panic!("{report}") };
        assert_eq!(text.contains("is missing or empty, as if its disk were not mounted"), arguments.len() == 2);
        assert_eq!((status, instance.count("SELECT count(*) FROM uploads")), (Some(1), 1));
        // A newly formatted disk contains this folder.
        fs::create_dir_all(uploads.join("lost+found")).expect("a folder");
    }
    fs::remove_dir_all(&uploads).expect("removed");
    fs::rename(&aside, &uploads).expect("renamed");
    fs::remove_file(uploads.join(instance.storage_of(PROJECT)).join("1")).expect("removed");
    assert_eq!(run_doctor(&instance, &["--fix"]).0, Some(1));
    assert_eq!(instance.count("SELECT count(*) FROM uploads"), 1);
    let refused = instance.gable(&["doctor", "--forget-missing"]).finish();
    assert_eq!(refused.status, Some(2), "{}", refused.combined_output());
    let (status, report) = run_doctor(&instance, &["--fix", "--forget-missing"]);
    assert_eq!((status, messages_of(&report, "uploads")[0].0), (Some(0), "fixed"), "{report}");
    assert_eq!(instance.count("SELECT count(*) FROM uploads"), 0);
    let list = lost_and_found(&instance).join("forgotten-uploads.txt");
    assert_eq!(fs::read_to_string(&list).expect("a list"), "number\tproject\tbytes\tname\n1\t1\t5\ta.txt\n");
    assert_eq!(fs::metadata(&list).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn files_without_rows_are_moved_whatever_their_id() {
    let (instance, server) = instance_with_data();
    server.stop();
    let data = instance.data();
    // The hash of 2, as older versions named repositories, and a file with an unused id.
    let hash = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35";
    let repository = data.join(format!("repositories/d4/73/{hash}.git"));
    fs::create_dir_all(&repository).expect("a folder");
    fs::write(repository.join("HEAD"), "ref: refs/heads/master\n").expect("written");
    let file = data.join(format!("files/uploads/{}/2", instance.storage_of(PROJECT)));
    fs::write(&file, "newer").expect("written");
    let (status, report) = run_doctor(&instance, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", failed_checks(&report));
    for check in ["orphaned repositories", "uploads without rows"] {
        assert_eq!(messages_of(&report, check)[0].0, "fixed", "{report}");
    }
    assert!(!repository.exists() && !file.exists());
    let kept = lost_and_found(&instance).join(format!("uploads/{}-2", instance.storage_of(PROJECT)));
    assert_eq!(fs::read_to_string(kept).expect("there"), "newer");
}

#[test]
fn a_file_that_cannot_be_moved_does_not_stop_other_checks() {
    let (instance, server) = instance_with_data();
    server.stop();
    let stray = instance.data().join(format!("files/uploads/{}/stray", instance.storage_of(PROJECT)));
    fs::write(&stray, "orphaned").expect("written");
    fs::write(instance.data().join("lost+found"), "in the way").expect("written");
    let (status, report) = run_doctor(&instance, &["--fix"]);
    let [("problem", text)] = messages_of(&report, "uploads without rows")[..] else { panic!("{report}") };
    assert!(text.starts_with("1 are not in the database and cannot be moved, such as "), "{text}");
    assert_eq!((status, messages_of(&report, "background tasks").len()), (Some(1), 1), "the other checks ran");
    assert!(stray.exists());
}

/// Requires a second file system; unit tests check that the copy is complete.
#[test]
fn files_on_another_disk_are_moved_to_lost_and_found() {
    let (instance, server) = instance_with_data();
    server.stop();
    let files = instance.data().join("files");
    let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
    let other = Path::new("/dev/shm");
    if device(other).is_none_or(|other| Some(other) == device(&files)) {
        return;
    }
    let Ok(disk) = tempfile::tempdir_in(other) else { return };
    assert!(std::process::Command::new("cp").arg("-a").arg(&files).arg(disk.path()).status().expect("cp").success());
    fs::remove_dir_all(&files).expect("removed");
    let moved = disk.path().join("files");
    symlink(&moved, &files).expect("a link");
    let storage = instance.storage_of(PROJECT);
    let uploads = moved.join("uploads").join(&storage);
    fs::create_dir(uploads.join("folder")).expect("a folder");
    fs::write(uploads.join("folder/a"), "orphaned").expect("written");
    let (status, report) = run_doctor(&instance, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", failed_checks(&report));
    let [("fixed", _)] = messages_of(&report, "uploads without rows")[..] else { panic!("{report}") };
    let place = lost_and_found(&instance).join(format!("uploads/{storage}-folder/a"));
    assert_eq!(fs::read_to_string(place).expect("a copy"), "orphaned");
    assert!(!uploads.join("folder").exists() && uploads.join("1").exists());
}

#[test]
fn the_minimum_free_disk_is_read_from_the_variable_of_the_server() {
    let instance = TestInstance::new();
    instance.start().stop();
    let doctor = instance.gable(&["doctor", "--quick"]).env("GABLE_MIN_FREE_DISK", &(1_u64 << 60).to_string()).finish();
    assert_eq!(doctor.status, Some(1), "{}", doctor.combined_output());
    assert!(doctor.stdout.contains("less than min-free-disk ("), "{}", doctor.combined_output());
}

#[test]
fn jobs_without_a_matching_runner_are_found() {
    let (instance, server) = instance_with_data();
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": "one: {script: make}", "commit_message": "Build"
    });
    assert_eq!(server.root().post("/api/v3/projects/1/repository/files", &file).status, 201);
    let (status, report) = run_doctor(&instance, &["--quick"]);
    let text = "1 of root/road (project 1) wait: there is no runner: register one for this project or for the instance";
    assert_eq!((status, messages_of(&report, "waiting jobs")), (Some(0), vec![("warning", text)]));
    server.stop();
}
