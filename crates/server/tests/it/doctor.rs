//! `gable doctor` on instances that are in order and on such that are not.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::binary::{Home, Server};

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
    let orphan = data.join("repositories/ab/cd/abcd.git");
    fs::create_dir_all(&orphan).expect("a folder");
    fs::write(orphan.join("HEAD"), "ref: refs/heads/master\n").expect("written");
    fs::write(data.join("files/uploads/1/77"), "nobody's").expect("written");
    fs::create_dir_all(data.join("traces/1")).expect("a folder");
    fs::write(data.join("traces/1/99"), "nobody said this").expect("written");
    fs::remove_file(data.join("files/uploads/1/1")).expect("removed");
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

    let (status, report) = examine(&home, &["--fix"]);
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
    let place = fs::read_dir(data.join("lost+found")).expect("a folder").next().expect("one").expect("an entry").path();
    let kept = |name: &str| fs::read_to_string(place.join(name)).expect(name);
    assert_eq!(kept("uploads/1-77"), "nobody's");
    assert_eq!(kept("traces/1-99"), "nobody said this");
    assert_eq!(kept("repositories/cd-abcd.git/HEAD"), "ref: refs/heads/master\n");
    assert_eq!(fs::metadata(&place).expect("there").permissions().mode() & 0o777, 0o700);
    assert_eq!(home.start().root().get("/api/v3/projects/1/repository/tree").status, 200);
}

#[test]
fn beside_a_server_its_files_are_left_alone() {
    let (home, _server) = furnished();
    let stray = home.data().join("files/uploads/1/77");
    fs::write(&stray, "nobody's").expect("written");
    home.execute("UPDATE projects SET star_count = 7");
    let (status, report) = examine(&home, &["--fix"]);
    assert_eq!(status, Some(0), "{:?}", not_fine(&report));
    assert_eq!(of(&report, "counters"), [("fixed", "stars of projects: 1 row is wrong")]);
    let [("warning", _)] = of(&report, "uploads without rows")[..] else { panic!("{report}") };
    assert!(stray.exists());
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
    assert_eq!((status, of(&report, "instance key")), (Some(2), vec![("problem", "there is no file instance-key")]));
    assert!(!key.exists(), "looking makes nothing");
    fs::write(&key, right).expect("written");
}

#[test]
fn where_nothing_can_be_looked_at_that_is_said() {
    let home = Home::embedded();
    let finished = home.gable(&["doctor"]).finish();
    assert_eq!((finished.status, finished.stdout.as_str()), (Some(2), ""));
    assert!(finished.stderr.starts_with("gable: there is no data folder "), "{}", finished.stderr);
    assert!(!home.data().exists(), "looking makes nothing");
    fs::create_dir(home.data()).expect("a folder");
    let (status, report) = examine(&home, &[]);
    assert_eq!(
        (status, of(&report, "database")),
        (Some(2), vec![("problem", "there is no database in the data folder")])
    );
}
