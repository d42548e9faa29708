//! A data folder and a database are used together only if they belong together, and only `serve` creates an instance.

use std::{
    fs,
    path::{Path, PathBuf},
};

use model::ProjectId;
use serde_json::{Value, json};
use testkit::repository::incompressible_text;

use crate::support::{ServerProcess, TestInstance, postgres_server};

const PROJECT: ProjectId = ProjectId::new(1);

/// Content that no other project may show.
const SECRET: &str = "the launch code is 0000";

/// Every command that works on an instance, except `serve`.
const COMMANDS: &[&[&str]] = &[
    &["admin", "user", "create", "ann", "--email", "ann@example.org"],
    &["admin", "user", "list"],
    &["admin", "token", "create", "root"],
    &["admin", "task", "list"],
    &["admin", "runner", "token"],
    &["admin", "instance", "new-key"],
    &["backup", "--quiet", "backup.tar"],
    &["backup", "--quiet", "--folder", "backups"],
    &["migrate"],
    &["migrate", "--dry-run"],
    &["migrate-database", "--quiet", "--to", "postgres://127.0.0.1:1/nowhere"],
];

/// Creates an instance with a private project that has a repository, a file and a variable.
fn instance_with_data() -> TestInstance {
    let instance = TestInstance::new();
    let server = instance.start();
    create_secret_project(&server, 1);
    server.stop();
    instance
}

fn create_secret_project(server: &ServerProcess, number: i64) {
    let root = server.root();
    let project = root.post("/api/v3/projects", &json!({ "name": format!("secret-{number}") }));
    assert_eq!((project.status, &project.json()["id"]), (201, &json!(number)), "{project}");
    let code = format!("{SECRET} {}", incompressible_text(100_000));
    let file = json!({ "file_path": "code", "branch_name": "master", "content": code, "commit_message": "Begin" });
    let path = |part: &str| format!("/api/v3/projects/{number}/{part}");
    assert_eq!(root.post(&path("repository/files"), &file).status, 201);
    assert_eq!(root.try_upload(&path("uploads"), "code.txt", SECRET).expect("a response").status, 201);
    assert_eq!(root.post(&path("variables"), &json!({ "key": "CODE", "value": SECRET })).status, 201);
    let hook = json!({ "url": "https://example.org/hook", "token": "hook-token" });
    assert_eq!(root.post(&path("hooks"), &hook).status, 201);
}

/// Deletes the database; only the data folder is left.
fn delete_database(instance: &TestInstance) {
    if instance.database_url().is_some() {
        instance.execute("DROP SCHEMA public CASCADE");
        instance.execute("CREATE SCHEMA public");
        return;
    }
    for ending in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(instance.data().join(format!("gable.sqlite3{ending}")));
    }
}

/// Returns all files and folders with their content, except lock files.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            let is_lock = path.ends_with("gable.lock") || path.ends_with("gable.turn");
            if path.is_dir() {
                folders.push(path.clone());
                found.push((path, Vec::new()));
            } else if !is_lock {
                found.push((path.clone(), fs::read(&path).expect("readable")));
            }
        }
    }
    found.sort();
    found
}

/// Returns the path of the data folder as in messages.
fn path_of(instance: &TestInstance) -> String {
    instance.data().canonicalize().expect("a folder").display().to_string()
}

fn remedy(instance: &TestInstance) -> String {
    format!(
        "restore both from one backup with `gable restore`, or, to use these two anyway, run \
         `gable admin instance rebind --data {}`",
        path_of(instance)
    )
}

/// Checks that the start is refused with this message, that every command is refused, and that nothing is changed.
fn assert_refused(instance: &TestInstance, sentence: &str) {
    let before = snapshot(&instance.data());
    assert_eq!(instance.serve().finish().refused(), sentence);
    for command in COMMANDS {
        let refused = instance.gable(command).finish();
        assert_eq!(
            (refused.status, refused.stdout.as_str()),
            (Some(1), ""),
            "{command:?}: {}",
            refused.combined_output()
        );
    }
    let doctor = instance.gable(&["doctor"]).finish();
    assert_eq!(doctor.status, Some(1), "{}", doctor.combined_output());
    assert!(snapshot(&instance.data()) == before, "something was changed");
    for name in ["backup.tar", "backup.tar.partial", "backups"] {
        assert!(!instance.data().with_file_name(name).exists(), "{name} was created");
    }
}

#[test]
fn only_serve_creates_an_instance() {
    let instance = TestInstance::new();
    let path = instance.data().display().to_string();
    let sentence = format!(
        "no Gable instance in {path}; create one with `gable serve --data {path}`, or choose another folder with --data"
    );
    let refuse_all = || {
        for command in COMMANDS.iter().chain(&[&["admin", "instance", "rebind"][..]]) {
            assert_eq!(instance.gable(command).finish().refused(), sentence, "{command:?}");
        }
        let doctor = instance.gable(&["doctor"]).finish();
        assert_eq!((doctor.status, doctor.stdout.as_str()), (Some(1), ""), "{}", doctor.combined_output());
        assert_eq!(doctor.stderr, format!("gable: {sentence}\n"));
    };
    refuse_all();
    assert!(!instance.data().exists(), "no folder is created");
    fs::create_dir(instance.data()).expect("a folder");
    refuse_all();
    assert_eq!(fs::read_dir(instance.data()).expect("a folder").count(), 0, "nothing is created in an empty folder");
    // SQLite accepts an empty file as a database.
    fs::write(instance.data().join("gable.sqlite3"), "").expect("written");
    refuse_all();
    if instance.database_url().is_some() {
        assert_eq!(instance.count("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), 0);
    }
    // `serve` creates the instance.
    instance.start().stop();
    assert_eq!(instance.admin(&["user", "list"]).lines().count(), 2);
}

#[test]
fn a_start_without_the_database_of_the_folder_is_refused() {
    let instance = instance_with_data();
    delete_database(&instance);
    let sentence = match instance.database_url() {
        None => format!(
            "the database {}/gable.sqlite3 is missing or empty, but the data folder contains the files of an instance; {}",
            path_of(&instance),
            remedy(&instance)
        ),
        Some(_) => format!(
            "the database is empty, but the data folder {} contains the files of an instance; specify its database with \
             --database, or {}",
            path_of(&instance),
            remedy(&instance)
        ),
    };
    assert_refused(&instance, &sentence);
    if instance.database_url().is_none() {
        assert!(!instance.data().join("gable.sqlite3").exists());
        fs::write(instance.data().join("gable.sqlite3"), "").expect("written");
        assert_refused(&instance, &sentence);
    }
}

/// Checks that a project shows no content.
fn assert_empty(server: &ServerProcess, number: i64) {
    let root = server.root();
    let get = |part: &str| root.get(&format!("/api/v3/projects/{number}{part}"));
    assert_eq!(get("").json()["default_branch"], Value::Null);
    assert_eq!(get("/repository/branches").json(), json!([]));
    for part in ["/repository/tree", "/repository/blobs/master?filepath=code", "/repository/archive", "/variables"] {
        assert!(!get(part).text.contains("code"), "{part}: {}", get(part));
    }
}

#[test]
fn a_reused_project_id_gets_neither_the_repository_nor_the_files_of_the_former_project() {
    let instance = instance_with_data();
    let storage = instance.storage_of(PROJECT);
    delete_database(&instance);
    let output = instance.admin(&["instance", "rebind"]);
    assert!(output.contains("packs without rows: 2 are not in the database: "), "{output}");
    assert!(output.contains("uploads without rows: 1 are not in the database: "), "{output}");
    assert!(output.ends_with("and the database to each other\n"), "{output}");
    let server = instance.start();
    let root = server.root();
    let project = root.post("/api/v3/projects", &json!({ "name": "other" }));
    assert_eq!((project.status, &project.json()["id"]), (201, &json!(1)), "{project}");
    assert_ne!(instance.storage_of(PROJECT), storage);
    assert_empty(&server, 1);
    // The first upload has the id that the secret one had.
    let uploaded = root.try_upload("/api/v3/projects/1/uploads", "code.txt", "harmless").expect("a response");
    let page = uploaded.json()["url"].as_str().expect("a path").to_owned();
    assert_eq!(root.get(&format!("/root/other{page}")).text, "harmless");
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "a", "commit_message": "Begin" });
    assert_eq!(root.post("/api/v3/projects/1/repository/files", &file).status, 201);
    server.stop();
    // Nothing is lost; the files are moved to lost+found.
    let kept = snapshot(&instance.data().join("lost+found"));
    assert!(kept.iter().any(|(_, bytes)| bytes == SECRET.as_bytes()), "the uploaded file is kept");
    assert!(kept.iter().any(|(path, _)| path.extension().is_some_and(|found| found == "pack")), "the objects are kept");
    let doctor = instance.gable(&["doctor"]).finish();
    assert_eq!(doctor.status, Some(0), "{}", doctor.combined_output());
}

fn older_message(instance: &TestInstance) -> String {
    format!(
        "the database is older than the data folder {}, as if restored from an old copy; {}",
        path_of(instance),
        remedy(instance)
    )
}

#[test]
fn an_older_copy_of_the_database_is_refused() {
    let instance = instance_with_data();
    // One copy from between two starts, and one from a run that stopped normally.
    for running in [false, true] {
        if running && instance.database_url().is_some() {
            // PostgreSQL cannot copy a database in use.
            continue;
        }
        if !running {
            instance.save_database();
        }
        let server = instance.start();
        if running {
            instance.save_database();
        }
        let number = 2 + i64::from(running);
        create_secret_project(&server, number);
        let storage = instance.storage_of(ProjectId::new(number));
        server.stop();
        instance.restore_database();
        assert_refused(&instance, &older_message(&instance));
        let output = instance.admin(&["instance", "rebind"]);
        assert!(output.contains("packs without rows: 2 are not in the database: "), "{output}");
        let server = instance.start();
        // The other project is unchanged, and the lost one is not found under its id.
        let branches = server.root().get("/api/v3/projects/1/repository/branches").json();
        assert_eq!(branches[0]["name"], "master");
        let made = server.root().post("/api/v3/projects", &json!({ "name": format!("other-{number}") }));
        assert_eq!((made.status, &made.json()["id"]), (201, &json!(number)), "{made}");
        assert_ne!(instance.storage_of(ProjectId::new(number)), storage);
        assert_empty(&server, number);
        server.stop();
    }
}

#[test]
fn an_instance_starts_after_a_kill_during_any_start() {
    let instance = TestInstance::new();
    // Before and after the database was written.
    for _ in 0..3 {
        instance.start().kill();
    }
    // Killed between the two writes: the database is one generation ahead.
    let ahead = "UPDATE instance SET previous_mark = mark, mark = 'b' || mark, generation = generation + 1";
    instance.execute(ahead);
    instance.admin(&["user", "list"]);
    let server = instance.start();
    create_secret_project(&server, 1);
    server.kill();
    instance.execute(ahead);
    instance.start().stop();
    // Two generations are more than a kill can leave: the folder is an older copy.
    instance.execute(ahead);
    instance.execute(ahead);
    let sentence = format!(
        "the data folder {} is older than its database, as if restored from an old copy; {}",
        path_of(&instance),
        remedy(&instance)
    );
    assert_refused(&instance, &sentence);
    instance.admin(&["instance", "rebind"]);
    let server = instance.start();
    assert_eq!(server.root().get("/api/v3/projects/1/repository/branches").json()[0]["name"], "master");
}

#[test]
fn an_interrupted_first_start_is_resumed() {
    let instance = TestInstance::new();
    fs::create_dir(instance.data()).expect("a folder");
    // The folder is written first, then the database, then the key.
    let record = "instance: 0123456789abcdef0123456789abcdef\ngeneration: 0\nmark: fedcba9876543210fedcba9876543210\n";
    fs::write(instance.data().join("instance"), record).expect("written");
    let refused = instance.admin_refused(&["user", "list"]);
    assert!(
        refused.contains(" is missing or empty; ") || refused.contains(" contains no Gable instance; "),
        "{refused}"
    );
    instance.start().stop();
    let kept = fs::read_to_string(instance.data().join("instance")).expect("a record");
    assert!(kept.starts_with("instance: 0123456789abcdef0123456789abcdef\n"), "{kept}");
    // And before the key was written.
    let instance = TestInstance::new();
    instance.start().kill();
    instance.execute("DELETE FROM users; UPDATE instance SET generation = 0, key_check = NULL");
    instance.execute("UPDATE instance SET mark = 'fedcba9876543210fedcba9876543210', previous_mark = NULL");
    let record = fs::read_to_string(instance.data().join("instance")).expect("a record");
    let id = record.lines().next().expect("the id");
    let record = format!("{id}\ngeneration: 0\nmark: fedcba9876543210fedcba9876543210\n");
    fs::write(instance.data().join("instance"), record).expect("written");
    fs::remove_file(instance.data().join("instance-key")).expect("removed");
    instance.start().stop();
    assert!(instance.data().join("instance-key").exists());
}

/// Replaces the database of an instance by that of another; returns the variables to set.
fn swap_database(instance: &TestInstance, other: &TestInstance) -> Vec<(&'static str, String)> {
    match other.database_url() {
        None => {
            fs::copy(other.data().join("gable.sqlite3"), instance.data().join("gable.sqlite3")).expect("copied");
            Vec::new()
        }
        Some(url) => vec![("GABLE_DATABASE", url.to_string())],
    }
}

#[test]
fn the_database_of_another_instance_is_always_refused() {
    let (instance, other) = (instance_with_data(), instance_with_data());
    let swapped = swap_database(&instance, &other);
    let run = |arguments: &[&str]| {
        let gable = instance.gable(arguments);
        swapped.iter().fold(gable, |gable, (name, value)| gable.env(name, value)).finish()
    };
    let sentence = format!(
        "the database contains another instance than the data folder {}; specify a database and a data folder that belong \
         together with --database and --data",
        path_of(&instance)
    );
    assert_eq!(run(&["serve", "--listen", "127.0.0.1:0"]).refused(), sentence);
    assert_eq!(run(&["admin", "user", "list"]).refused(), sentence);
    assert_eq!(run(&["admin", "instance", "rebind"]).refused(), sentence);
    // Without the instance file, the key identifies the instance.
    fs::remove_file(instance.data().join("instance")).expect("removed");
    let refused = run(&["serve", "--listen", "127.0.0.1:0"]).refused();
    assert!(refused.contains("/instance is missing, so it is unknown whether the database belongs to"), "{refused}");
    let refused = run(&["admin", "instance", "rebind"]).refused();
    assert!(refused.contains("so the data folder belongs to another instance"), "{refused}");
}

#[test]
fn a_database_without_its_folder_is_refused_until_the_operator_rebinds_it() {
    let instance = instance_with_data();
    let away = instance.data().with_file_name("away");
    fs::rename(instance.data(), &away).expect("renamed");
    let sentence = if instance.database_url().is_some() {
        fs::create_dir(instance.data()).expect("a folder");
        format!(
            "the database contains an instance, but the data folder {} is empty; {}; if the folder is lost, {}",
            path_of(&instance),
            "specify its folder with --data, or, if its files are in a store, set `store`, `cache` and `instance-key-file` as \
             its nodes do",
            remedy(&instance)
        )
    } else {
        fs::create_dir(instance.data()).expect("a folder");
        fs::copy(away.join("gable.sqlite3"), instance.data().join("gable.sqlite3")).expect("copied");
        format!(
            "the file {}/instance is missing, so it is unknown whether the database belongs to this data folder; {}",
            path_of(&instance),
            remedy(&instance)
        )
    };
    assert_refused(&instance, &sentence);
    instance.admin(&["instance", "rebind"]);
    let refused = instance.serve().finish().refused();
    assert!(
        refused.starts_with(&format!("the instance key {}/instance-key is missing; ", path_of(&instance))),
        "{refused}"
    );
    instance.admin(&["instance", "new-key", "--yes"]);
    let server = instance.start();
    assert_eq!(server.root().get("/api/v3/projects/1").json()["name"], "secret-1");
    assert_eq!(server.root().get("/api/v3/projects/1/variables").json(), json!([]));
}

fn key_remedy(instance: &TestInstance) -> String {
    format!(
        "restore the file from a backup, or replace it: `gable admin instance new-key --data {}` lists what would be lost",
        path_of(instance)
    )
}

#[test]
fn without_its_key_or_with_another_one_an_instance_does_not_start() {
    let instance = instance_with_data();
    let path = instance.data().join("instance-key");
    let right = fs::read_to_string(&path).expect("a key");
    let shown = format!("{}/instance-key", path_of(&instance));
    let other = "A".repeat(43);
    for (content, sentence) in [
        (None, format!("the instance key {shown} is missing; ")),
        (Some(&right[..20]), format!("{shown} is not a complete instance key; ")),
        (Some(""), format!("{shown} is not a complete instance key; ")),
        (Some(&*other), format!("{shown} is not the key of this database; ")),
    ] {
        match content {
            None => fs::remove_file(&path).expect("removed"),
            Some(content) => fs::write(&path, content).expect("written"),
        }
        let sentence = format!("{sentence}{}", key_remedy(&instance));
        let before = snapshot(&instance.data());
        assert_eq!(instance.serve().finish().refused(), sentence);
        assert_eq!(instance.admin_refused(&["user", "list"]), sentence);
        if instance.database_url().is_some() {
            assert!(snapshot(&instance.data()) == before, "something was changed");
        }
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), content, "no key is created");
    }
    fs::write(&path, right).expect("written");
    let server = instance.start();
    assert_eq!(server.root().get("/api/v3/projects/1/variables").json()[0]["value"], SECRET);
    assert_eq!(server.root().get("/api/v3/projects/1/hooks").json()[0]["url"], "https://example.org/hook");
}

#[test]
fn a_new_key_removes_encrypted_values_and_everything_works_again() {
    let instance = instance_with_data();
    let server = instance.start();
    let trigger = server.root().post("/api/v3/projects/1/triggers", &json!({})).json();
    let of_project = server.root().get("/api/v3/projects/1").json()["runners_token"].clone();
    let joined = json!({ "token": instance.admin(&["runner", "token"]).trim() });
    let runner = server.anonymous().post("/ci/api/v1/runners/register", &joined);
    assert_eq!(runner.status, 201, "{runner}");
    server.stop();
    let refused = instance.admin_refused(&["instance", "new-key", "--yes"]);
    assert!(refused.ends_with("is the key of this database; there is nothing to replace"), "{refused}");
    fs::write(instance.data().join("instance-key"), "A".repeat(43)).expect("written");
    let asked = instance.gable(&["admin", "instance", "new-key"]).finish();
    assert_eq!(asked.status, Some(1), "{}", asked.combined_output());
    for line in
        ["would be lost: 1 hooks", "would be lost: 1 variables of projects", "would be lost: 1 tokens of triggers"]
    {
        assert!(asked.stdout.lines().any(|output| output == line), "{line}: {}", asked.stdout);
    }
    assert!(asked.stderr.contains("nothing was changed; run the command again with --yes"), "{}", asked.stderr);
    assert_eq!(instance.count("SELECT count(*) FROM ci_variables"), 1);

    let output = instance.admin(&["instance", "new-key", "--yes"]);
    assert!(
        output.contains("lost: 1 variables of projects\n") && output.contains("created a new instance key"),
        "{output}"
    );
    let kept = fs::read_dir(instance.data()).expect("a folder").flatten();
    let kept: Vec<_> = kept.filter(|entry| entry.file_name().to_string_lossy().contains(".replaced-")).collect();
    assert_eq!(fs::read_to_string(kept[0].path()).expect("the key before"), "A".repeat(43));
    let server = instance.start();
    let root = server.root();
    for part in ["variables", "hooks"] {
        assert_eq!(root.get(&format!("/api/v3/projects/1/{part}")).json(), json!([]), "{part}");
    }
    // The shown tokens work.
    let now = root.get("/api/v3/projects/1/triggers").json();
    assert_ne!(now[0]["token"], trigger["token"]);
    let start = |token: &Value| {
        let request = json!({ "token": token, "ref": "nowhere" });
        server.anonymous().post("/api/v3/projects/1/trigger/builds", &request).status
    };
    assert_eq!((start(&trigger["token"]), start(&now[0]["token"])), (404, 400));
    let register =
        |token: &Value| server.anonymous().post("/ci/api/v1/runners/register", &json!({ "token": token })).status;
    let token = root.get("/api/v3/projects/1").json()["runners_token"].clone();
    assert_ne!(token, of_project);
    assert_eq!((register(&of_project), register(&token)), (403, 201));
    let new = json!({ "key": "CODE", "value": "another" });
    assert_eq!(root.post("/api/v3/projects/1/variables", &new).status, 201);
    assert_eq!(root.get("/api/v3/projects/1/variables").json()[0]["value"], "another");
    server.stop();
    let doctor = instance.gable(&["doctor"]).finish();
    assert_eq!(doctor.status, Some(0), "{}", doctor.combined_output());
}

#[test]
fn a_restored_backup_is_not_mixed_with_its_original() {
    let instance = instance_with_data();
    let file = instance.file("place", "").replace("place", "backup.tar");
    instance.gable(&["backup", "--quiet", &file]).finish().succeeded();
    let restored = TestInstance::new();
    restored.gable(&["restore", "--quiet", &file]).finish().succeeded();
    let id = |instance: &TestInstance| {
        let record = fs::read_to_string(instance.data().join("instance")).expect("a record");
        record.lines().next().expect("the id").to_owned()
    };
    assert_ne!(id(&restored), id(&instance), "the copy is an instance of its own");
    assert_eq!(restored.storage_of(PROJECT), instance.storage_of(PROJECT));
    // Its own folder and database fit.
    let server = restored.start();
    assert_eq!(server.root().get("/api/v3/projects/1/variables").json()[0]["value"], SECRET);
    assert_eq!(server.root().get("/api/v3/projects/1/repository/branches").json()[0]["name"], "master");
    server.stop();
    // A mixture does not.
    instance.start().stop();
    let swapped = swap_database(&instance, &restored);
    let serve = swapped.iter().fold(instance.serve(), |gable, (name, value)| gable.env(name, value));
    let refused = serve.finish().refused();
    assert!(refused.starts_with("the database contains another instance than the data folder "), "{refused}");
}

#[test]
fn a_database_that_was_migrated_away_is_refused_afterwards() {
    if postgres_server().is_none() {
        eprintln!("skipped: requires PostgreSQL");
        return;
    }
    let (instance, target) = (TestInstance::embedded(), TestInstance::new());
    let server = instance.start();
    create_secret_project(&server, 1);
    server.stop();
    let url = target.database_url().expect("a database").to_string();
    instance.gable(&["migrate-database", "--quiet"]).env("GABLE_TO_DATABASE", &url).finish().succeeded();
    let server = instance.serve().env("GABLE_DATABASE", &url).with_root_credentials().start();
    assert_eq!(server.root().get("/api/v3/projects/1/variables").json()[0]["value"], SECRET);
    assert_eq!(server.root().get("/api/v3/projects/1/repository/branches").json()[0]["name"], "master");
    server.stop();
    fs::rename(instance.data().join("gable.sqlite3.moved"), instance.data().join("gable.sqlite3")).expect("renamed");
    assert_eq!(instance.serve().finish().refused(), older_message(&instance));
}
