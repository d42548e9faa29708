//! `gable doctor` on instances that are in order and on such that are not.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::admin::binary::{Home, Server};

/// An instance with a project, a repository, a file and a variable.
fn furnished() -> (Home, Server) {
    let home = Home::new();
    let server = home.start();
    let root = server.root();
    let project = root.post("/api/v3/projects", &json!({ "name": "road", "path": "road" }));
    assert_eq!(project.status, 201, "{project}");
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "Begin" });
    assert_eq!(root.post("/api/v3/projects/1/repository/files", &file).status, 201);
    assert_eq!(root.try_upload("/api/v3/projects/1/uploads", "a.txt", "hello").expect("an answer").status, 201);
    assert_eq!(root.post("/api/v3/projects/1/variables", &json!({ "key": "K", "value": "s3cret-value" })).status, 201);
    assert_eq!(root.post("/api/v3/projects/1/star", &json!({})).status, 201);
    (home, server)
}

/// What it says, by check; and its exit code.
fn examine(home: &Home, more: &[&str]) -> (Option<i32>, Value) {
    let finished = home.gable(&["doctor", "--json"]).args(more).finish();
    let report = serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{}", finished.words()));
    assert!(!finished.words().contains("s3cret-value"));
    (finished.status, report)
}

/// How the checks of a name ended, and what they say.
fn of<'a>(report: &'a Value, check: &str) -> Vec<(&'a str, &'a str)> {
    let checks = report["checks"].as_array().expect("a list").iter().filter(|one| one["check"] == check);
    checks.map(|one| (one["status"].as_str().expect("a word"), one["message"].as_str().expect("a text"))).collect()
}

fn not_fine(report: &Value) -> Vec<&Value> {
    report["checks"].as_array().expect("a list").iter().filter(|one| one["status"] != "ok").collect()
}

/// Where things were put that belong to nobody.
fn lost_and_found(home: &Home) -> PathBuf {
    let place = fs::read_dir(home.data().join("lost+found")).expect("a folder");
    place.map(|entry| entry.expect("an entry").path()).max().expect("one")
}

fn repository(home: &Home) -> PathBuf {
    let only = |folder: &Path| {
        let is_shelf = |path: &PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            name.len() == 2 || path.join("HEAD").exists() && name != "empty.git"
        };
        let found = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        found.into_iter().find(is_shelf).expect("one")
    };
    only(&only(&only(&home.data().join("repositories"))))
}

#[test]
fn an_instance_in_order_is_told_to_be_so_beside_its_server_and_without() {
    let (home, server) = furnished();
    let (status, report) = examine(&home, &[]);
    assert_eq!(of(&report, "server"), [("ok", "a server works on this folder")]);
    assert_eq!((status, &report["problems"]), (Some(0), &json!(0)), "{:?}", not_fine(&report));
    server.stop();
    let (status, report) = examine(&home, &[]);
    let strange: Vec<_> = not_fine(&report).into_iter().filter(|one| one["check"] != "free disk").collect();
    assert_eq!((status, strange.len()), (Some(0), 0), "{strange:?}");
    assert_eq!(of(&report, "repositories"), [("ok", "1 of 1 projects have one; all of them are whole")]);
    assert_eq!(of(&report, "instance key"), [("ok", "it opens all of 1 things that were sealed")]);
    let lines = home.gable(&["doctor", "--quick"]).finish().succeeded();
    assert!(lines.contains("ok       server: no server works on this folder\n"), "{lines}");
    assert!(lines.contains("(the rest was not looked at)\n") && lines.contains("\n0 problems, "), "{lines}");
}

#[test]
fn what_can_be_put_right_is_found_told_and_put_right_without_losing_anything() {
    let (home, server) = furnished();
    server.stop();
    let data = home.data();
    fs::set_permissions(data.join("instance-key"), fs::Permissions::from_mode(0o644)).expect("permitted");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("permitted");
    let storage = home.storage_of(1);
    let orphan = data.join("repositories/ab/cd/abcd.git");
    fs::create_dir_all(&orphan).expect("a folder");
    fs::write(orphan.join("HEAD"), "ref: refs/heads/master\n").expect("written");
    fs::write(data.join(format!("files/uploads/{storage}/77")), "nobody's").expect("written");
    fs::create_dir_all(data.join("traces").join(&storage)).expect("a folder");
    fs::write(data.join(format!("traces/{storage}/99")), "nobody said this").expect("written");
    fs::remove_file(data.join(format!("files/uploads/{storage}/1"))).expect("removed");
    home.execute(
        "UPDATE projects SET star_count = 7; UPDATE project_counts SET amount = amount + 1 WHERE visibility = 0",
    );
    home.execute("INSERT INTO ref_intents (project_id, created_at) VALUES (1, 1)");
    home.execute(
        "INSERT INTO ref_intent_changes (intent_id, position, ref_name, new_oid) \
                  SELECT max(id), 0, 'refs/heads/lost', '1111111111111111111111111111111111111111' FROM ref_intents",
    );
    home.execute(
        "INSERT INTO jobs (kind, payload, run_at, attempts, dead_at, last_error, created_at) \
                  VALUES ('keep_house', '1', 1, 10, 1, 'no', 1)",
    );

    let (status, report) = examine(&home, &[]);
    assert_eq!(status, Some(1), "{:?}", not_fine(&report));
    assert_eq!(of(&report, "permissions").len(), 2);
    assert!(of(&report, "permissions").iter().all(|(status, _)| *status == "problem"));
    let counters = of(&report, "counters");
    assert!(counters.contains(&("problem", "stars of projects: 1 row is wrong")), "{counters:?}");
    assert!(counters.iter().any(|(_, text)| text.starts_with("projects on each shelf: ")), "{counters:?}");
    let [("problem", text)] = of(&report, "uploads")[..] else { panic!("{report}") };
    assert_eq!(text, "the files of 1 are missing or cut short, such as 1");
    for check in ["orphaned repositories", "uploads without rows", "traces without builds", "unfinished pushes"] {
        let [("warning", _)] = of(&report, check)[..] else { panic!("{check}: {report}") };
    }
    assert_eq!(of(&report, "background jobs"), [("warning", "1 were given up")]);
    assert!(orphan.exists(), "nothing is done unless asked for");

    let (status, report) = examine(&home, &["--fix", "--forget-missing"]);
    assert_eq!(status, Some(0), "{:?}", not_fine(&report));
    let (status, report) = examine(&home, &[]);
    let left: Vec<_> = not_fine(&report).into_iter().map(|one| one["check"].clone()).collect();
    assert!(
        status == Some(0) && left.iter().all(|check| check == "background jobs" || check == "free disk"),
        "{left:?}"
    );
    assert_eq!(home.count("SELECT star_count FROM projects"), 1);
    assert_eq!(home.count("SELECT count(*) FROM ref_intents"), 0);
    assert_eq!(home.count("SELECT count(*) FROM uploads"), 0);
    let place = lost_and_found(&home);
    let kept = |name: &str| fs::read_to_string(place.join(name)).expect(name);
    assert_eq!(kept(&format!("uploads/{storage}-77")), "nobody's");
    assert_eq!(kept(&format!("traces/{storage}-99")), "nobody said this");
    assert_eq!(kept("forgotten-uploads.txt"), "number\tproject\tbytes\tname\n1\t1\t5\ta.txt\n");
    assert_eq!(kept("repositories/cd-abcd.git/HEAD"), "ref: refs/heads/master\n");
    assert_eq!(fs::metadata(&place).expect("there").permissions().mode() & 0o777, 0o700);
    assert_eq!(home.start().root().get("/api/v3/projects/1/repository/tree").status, 200);
}

#[test]
fn beside_a_server_its_files_are_left_alone() {
    let (home, _server) = furnished();
    let stray = home.data().join(format!("files/uploads/{}/77", home.storage_of(1)));
    fs::write(&stray, "nobody's").expect("written");
    home.execute("UPDATE projects SET star_count = 7");
    let (status, report) = examine(&home, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", not_fine(&report));
    assert_eq!(of(&report, "counters"), [("fixed", "stars of projects: 1 row is wrong")]);
    let [("warning", _)] = of(&report, "uploads without rows")[..] else { panic!("{report}") };
    assert!(stray.exists());
}

#[test]
fn what_has_rotted_is_found_by_reading_it() {
    let (home, server) = furnished();
    server.stop();
    let repository = repository(&home);
    let blob = testkit::repository::git(&repository, &["hash-object", "--stdin"], b"x").stdout;
    let blob = String::from_utf8(blob).expect("an id");
    let (folder, file) = blob.trim().split_at(2);
    let path = repository.join("objects").join(folder).join(file);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("permitted");
    let mut bytes = fs::read(&path).expect("a loose object");
    *bytes.last_mut().expect("some") ^= 1;
    fs::write(&path, bytes).expect("written");
    let (status, report) = examine(&home, &["--quick"]);
    assert_eq!((status, &report["problems"]), (Some(0), &json!(0)), "it is there: {:?}", not_fine(&report));
    let (status, report) = examine(&home, &[]);
    let told = of(&report, "repositories");
    assert!(told.iter().any(|(how, text)| *how == "problem" && text.contains(blob.trim())), "{told:?}");
    assert_eq!(status, Some(1));
}

#[test]
fn what_is_lost_for_good_is_a_problem() {
    let (home, server) = furnished();
    server.stop();
    let repository = repository(&home);
    let tip = fs::read_to_string(repository.join("refs/heads/master")).expect("a ref");
    let (folder, file) = tip.trim().split_at(2);
    fs::remove_file(repository.join("objects").join(folder).join(file)).expect("a loose object");
    let (status, report) = examine(&home, &["--quick"]);
    let [("problem", text)] = of(&report, "repositories")[..] else { panic!("{report}") };
    assert_eq!(text, format!("project 1: refs/heads/master leads to {}, which is not there", tip.trim()));
    assert_eq!(status, Some(1));

    let key = home.data().join("instance-key");
    let right = fs::read_to_string(&key).expect("a key");
    fs::write(&key, format!("{}\n", "A".repeat(43))).expect("written");
    let (status, report) = examine(&home, &["--quick"]);
    assert_eq!(of(&report, "instance key"), [("problem", "it does not fit: it does not open 1 variables of projects")]);
    assert_eq!(status, Some(1));
    fs::remove_file(&key).expect("removed");
    let (status, report) = examine(&home, &[]);
    assert_eq!((status, of(&report, "instance key")), (Some(1), vec![("problem", "there is no file instance-key")]));
    assert!(!key.exists(), "looking makes nothing");
    fs::write(&key, right).expect("written");
}

#[test]
fn where_nothing_can_be_looked_at_that_is_said() {
    let home = Home::embedded();
    let finished = home.gable(&["doctor"]).finish();
    assert_eq!((finished.status, finished.stdout.as_str()), (Some(1), ""));
    assert!(finished.stderr.starts_with("gable: no Gable instance in "), "{}", finished.stderr);
    assert!(!home.data().exists(), "looking makes nothing");
    fs::create_dir(home.data()).expect("a folder");
    let finished = home.gable(&["doctor"]).finish();
    assert_eq!((finished.status, finished.stdout.as_str()), (Some(1), ""));
    assert_eq!(fs::read_dir(home.data()).expect("a folder").count(), 0, "looking makes nothing");
    home.start().stop();
    fs::remove_file(home.data().join("gable.sqlite3")).expect("removed");
    let (status, report) = examine(&home, &[]);
    let [("problem", text)] = of(&report, "database")[..] else { panic!("{report}") };
    assert!(
        status == Some(1)
            && text.ends_with("is missing or empty; restore a backup, or name a PostgreSQL database with --database"),
        "{text}"
    );
    assert!(!home.data().join("gable.sqlite3").exists(), "looking makes nothing");
}

#[test]
fn a_restore_that_was_interrupted_is_told_as_such() {
    let home = Home::new();
    fs::create_dir_all(home.data().join(".restoring")).expect("a folder");
    let (status, report) = examine(&home, &["--fix"]);
    let told = "a restore into this folder was interrupted, or is still at work: what is there is not whole";
    assert_eq!((status, of(&report, "restore")), (Some(1), vec![("problem", told)]));
    let remedies: Vec<_> = not_fine(&report).into_iter().filter(|one| one["check"] == "restore").collect();
    assert_eq!(remedies[0]["remedy"], "unless it is still at work, run the restore again");
    assert_eq!(of(&report, "database"), []);
}

#[test]
fn links_are_moved_themselves_and_nothing_behind_them() {
    let (home, server) = furnished();
    server.stop();
    let (data, outside) = (home.data(), tempfile::tempdir().expect("a folder"));
    let precious = outside.path().join("cd/precious.git");
    fs::create_dir_all(&precious).expect("a folder");
    fs::write(outside.path().join("letter"), "dear").expect("written");
    fs::create_dir_all(data.join("repositories/ef")).expect("a folder");
    let storage = home.storage_of(1);
    let old = format!("files/uploads/{storage}/old");
    let links = ["repositories/fe", "repositories/ef/cd", "files/uploads/photos", "files/uploads/2", &old];
    for link in links.iter().chain(&["files/artifacts"]) {
        symlink(outside.path(), data.join(link)).expect("a link");
    }
    // Whoever has a whole top folder elsewhere is served as before.
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::remove_dir_all(data.join("traces")).expect("removed");
    symlink(elsewhere.path(), data.join("traces")).expect("a link");
    fs::write(elsewhere.path().join("stray"), "nobody's").expect("written");

    let (status, report) = examine(&home, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", not_fine(&report));
    let [("fixed", text)] = of(&report, "orphaned repositories")[..] else { panic!("{report}") };
    assert!(text.starts_with("2 belong to nobody: "), "{text}");
    let [("fixed", text)] = of(&report, "uploads without rows")[..] else { panic!("{report}") };
    assert!(text.starts_with("3 belong to nobody: "), "{text}");
    assert!(precious.is_dir());
    assert_eq!(fs::read_to_string(outside.path().join("letter")).expect("there"), "dear");
    assert!(links.iter().all(|link| fs::symlink_metadata(data.join(link)).is_err()));
    let place = lost_and_found(&home);
    let old = format!("uploads/{storage}-old");
    for link in ["repositories/repositories-fe", "repositories/ef-cd", "uploads/uploads-photos", &old] {
        assert_eq!(fs::read_link(place.join(link)).expect(link), outside.path());
    }
    assert_eq!(fs::read_link(place.join("artifacts/files-artifacts")).expect("a link"), outside.path());
    let [("fixed", _)] = of(&report, "traces without builds")[..] else { panic!("{report}") };
    assert!(!elsewhere.path().join("stray").exists());
}

#[test]
fn a_link_that_a_project_needs_stays() {
    let (home, server) = furnished();
    server.stop();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (uploads, away) = (home.data().join("files/uploads").join(home.storage_of(1)), elsewhere.path().join("1"));
    fs::create_dir(&away).expect("a folder");
    fs::rename(uploads.join("1"), away.join("1")).expect("moved");
    fs::write(away.join("letter"), "dear").expect("written");
    fs::remove_dir(&uploads).expect("removed");
    symlink(&away, &uploads).expect("a link");
    let shelf = repository(&home).parent().expect("a shelf").to_owned();
    let outer = elsewhere.path().join("shelf");
    // On one disk or two: what is copied there is the same repository.
    assert!(std::process::Command::new("cp").arg("-a").args([&shelf, &outer]).status().expect("cp").success());
    fs::remove_dir_all(&shelf).expect("removed");
    symlink(&outer, &shelf).expect("a link");
    let (status, report) = examine(&home, &["--fix", "--forget-missing"]);
    assert_eq!(status, Some(0), "{:?}", not_fine(&report));
    assert_eq!(of(&report, "uploads"), [("ok", "every row has its file")]);
    assert_eq!(of(&report, "uploads without rows")[0].0, "warning");
    assert_eq!(of(&report, "orphaned repositories")[0].0, "warning");
    assert!(away.join("letter").exists() && uploads.join("1").exists() && shelf.is_symlink());
}

#[test]
fn files_that_are_missing_are_forgotten_only_if_that_is_asked_for_and_sure() {
    let (home, server) = furnished();
    server.stop();
    let uploads = home.data().join("files/uploads");
    let aside = home.data().join("files/unmounted");
    fs::rename(&uploads, &aside).expect("renamed");
    for arguments in [&["--fix"][..], &["--fix", "--forget-missing"]] {
        let (status, report) = examine(&home, arguments);
        let [("problem", text)] = of(&report, "uploads")[..] else { panic!("{report}") };
        assert_eq!(text.contains("is missing or empty, as if its disk were not mounted"), arguments.len() == 2);
        assert_eq!((status, home.count("SELECT count(*) FROM uploads")), (Some(1), 1));
        // A disk that was just formatted has a folder of its own.
        fs::create_dir_all(uploads.join("lost+found")).expect("a folder");
    }
    fs::remove_dir_all(&uploads).expect("removed");
    fs::rename(&aside, &uploads).expect("renamed");
    fs::remove_file(uploads.join(home.storage_of(1)).join("1")).expect("removed");
    assert_eq!(examine(&home, &["--fix"]).0, Some(1));
    assert_eq!(home.count("SELECT count(*) FROM uploads"), 1);
    let refused = home.gable(&["doctor", "--forget-missing"]).finish();
    assert_eq!(refused.status, Some(2), "{}", refused.words());
    let (status, report) = examine(&home, &["--fix", "--forget-missing"]);
    assert_eq!((status, of(&report, "uploads")[0].0), (Some(0), "fixed"), "{report}");
    assert_eq!(home.count("SELECT count(*) FROM uploads"), 0);
    let list = lost_and_found(&home).join("forgotten-uploads.txt");
    assert_eq!(fs::read_to_string(&list).expect("a list"), "number\tproject\tbytes\tname\n1\t1\t5\ta.txt\n");
    assert_eq!(fs::metadata(&list).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_no_row_names_is_moved_whatever_number_it_has() {
    let (home, server) = furnished();
    server.stop();
    let data = home.data();
    // The hash of 2, as older versions named a repository, and a file with a number that was never given.
    let hash = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35";
    let repository = data.join(format!("repositories/d4/73/{hash}.git"));
    fs::create_dir_all(&repository).expect("a folder");
    fs::write(repository.join("HEAD"), "ref: refs/heads/master\n").expect("written");
    let file = data.join(format!("files/uploads/{}/2", home.storage_of(1)));
    fs::write(&file, "newer").expect("written");
    let (status, report) = examine(&home, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", not_fine(&report));
    for check in ["orphaned repositories", "uploads without rows"] {
        assert_eq!(of(&report, check)[0].0, "fixed", "{report}");
    }
    assert!(!repository.exists() && !file.exists());
    let kept = lost_and_found(&home).join(format!("uploads/{}-2", home.storage_of(1)));
    assert_eq!(fs::read_to_string(kept).expect("there"), "newer");
}

#[test]
fn what_cannot_be_moved_is_told_beside_everything_else() {
    let (home, server) = furnished();
    server.stop();
    let stray = home.data().join(format!("files/uploads/{}/stray", home.storage_of(1)));
    fs::write(&stray, "nobody's").expect("written");
    fs::write(home.data().join("lost+found"), "in the way").expect("written");
    let (status, report) = examine(&home, &["--fix"]);
    let [("problem", text)] = of(&report, "uploads without rows")[..] else { panic!("{report}") };
    assert!(text.starts_with("1 belong to nobody and cannot be moved, such as "), "{text}");
    assert_eq!((status, of(&report, "background jobs").len()), (Some(1), 1), "the rest was looked at");
    assert!(stray.exists());
}

/// Only where there is a second file system; that a copy is whole is tested beside the code.
#[test]
fn what_lies_on_another_disk_comes_to_lost_and_found_as_well() {
    let (home, server) = furnished();
    server.stop();
    let files = home.data().join("files");
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
    let storage = home.storage_of(1);
    let uploads = moved.join("uploads").join(&storage);
    fs::create_dir(uploads.join("folder")).expect("a folder");
    fs::write(uploads.join("folder/a"), "nobody's").expect("written");
    let (status, report) = examine(&home, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", not_fine(&report));
    let [("fixed", _)] = of(&report, "uploads without rows")[..] else { panic!("{report}") };
    let place = lost_and_found(&home).join(format!("uploads/{storage}-folder/a"));
    assert_eq!(fs::read_to_string(place).expect("a copy"), "nobody's");
    assert!(!uploads.join("folder").exists() && uploads.join("1").exists());
}

#[test]
fn how_much_of_the_disk_stays_free_is_told_by_the_variable_of_the_server() {
    let home = Home::new();
    home.start().stop();
    let doctor = home.gable(&["doctor", "--quick"]).env("GABLE_MIN_FREE_DISK", &(1_u64 << 60).to_string()).finish();
    assert_eq!(doctor.status, Some(1), "{}", doctor.words());
    assert!(doctor.stdout.contains("less than min-free-disk asks for"), "{}", doctor.words());
}

#[test]
fn jobs_that_no_runner_will_take_are_found() {
    let (home, server) = furnished();
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": "one: {script: make}", "commit_message": "Build"
    });
    assert_eq!(server.root().post("/api/v3/projects/1/repository/files", &file).status, 201);
    let (status, report) = examine(&home, &["--quick"]);
    let text = "1 of root/road (project 1) wait: there is no runner: register one for this project or for the instance";
    assert_eq!((status, of(&report, "waiting jobs")), (Some(0), vec![("warning", text)]));
    server.stop();
}
