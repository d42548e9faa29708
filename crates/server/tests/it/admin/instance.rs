//! A data folder and a database are used together only if they belong together, and only `serve` creates an instance.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::admin::binary::{Home, Server, postgres_server};

/// What no other project may ever show.
const SECRET: &str = "the launch code is 0000";

/// Every command that works on an instance, except `serve`.
const COMMANDS: &[&[&str]] = &[
    &["admin", "user", "create", "ann", "--email", "ann@example.org"],
    &["admin", "user", "list"],
    &["admin", "token", "create", "root"],
    &["admin", "job", "list"],
    &["admin", "runner", "token"],
    &["admin", "instance", "new-key"],
    &["backup", "--quiet", "backup.tar"],
    &["backup", "--quiet", "--folder", "backups"],
    &["migrate"],
    &["migrate", "--dry-run"],
    &["migrate-database", "--quiet", "--to", "postgres://127.0.0.1:1/nowhere"],
];

/// An instance with a private project that has a repository, a file and a variable.
fn furnished() -> Home {
    let home = Home::new();
    let server = home.start();
    make_secret(&server, 1);
    server.stop();
    home
}

fn make_secret(server: &Server, number: i64) {
    let root = server.root();
    let project = root.post("/api/v3/projects", &json!({ "name": format!("secret-{number}") }));
    assert_eq!((project.status, &project.json()["id"]), (201, &json!(number)), "{project}");
    let file = json!({ "file_path": "code", "branch_name": "master", "content": SECRET, "commit_message": "Begin" });
    let path = |part: &str| format!("/api/v3/projects/{number}/{part}");
    assert_eq!(root.post(&path("repository/files"), &file).status, 201);
    assert_eq!(root.try_upload(&path("uploads"), "code.txt", SECRET).expect("an answer").status, 201);
    assert_eq!(root.post(&path("variables"), &json!({ "key": "CODE", "value": SECRET })).status, 201);
    let hook = json!({ "url": "https://example.org/hook", "token": "hook-token" });
    assert_eq!(root.post(&path("hooks"), &hook).status, 201);
}

/// Takes the database away, so that what is left is a data folder.
fn lose_database(home: &Home) {
    if home.database_url().is_some() {
        home.execute("DROP SCHEMA public CASCADE");
        home.execute("CREATE SCHEMA public");
        return;
    }
    for ending in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(home.data().join(format!("gable.sqlite3{ending}")));
    }
}

/// All files and folders with their bytes, but for locks.
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

/// The path of the folder, as messages have it.
fn path_of(home: &Home) -> String {
    home.data().canonicalize().expect("a folder").display().to_string()
}

fn remedy(home: &Home) -> String {
    format!(
        "restore both from one backup with \"gable restore\", or, to go on with these two on purpose, run \
         \"gable admin instance rebind --data {}\"",
        path_of(home)
    )
}

/// The start is refused with this sentence, every command is refused, and nothing is changed by any of them.
fn assert_refused(home: &Home, sentence: &str) {
    let before = snapshot(&home.data());
    assert_eq!(home.serve().finish().refused(), sentence);
    for command in COMMANDS {
        let refused = home.gable(command).finish();
        assert_eq!((refused.status, refused.stdout.as_str()), (Some(1), ""), "{command:?}: {}", refused.words());
    }
    let doctor = home.gable(&["doctor"]).finish();
    assert_eq!(doctor.status, Some(1), "{}", doctor.words());
    assert!(snapshot(&home.data()) == before, "something was changed");
    for name in ["backup.tar", "backup.tar.partial", "backups"] {
        assert!(!home.data().with_file_name(name).exists(), "{name} was made");
    }
}

#[test]
fn only_serve_creates_an_instance() {
    let home = Home::new();
    let path = home.data().display().to_string();
    let sentence = format!(
        "no Gable instance in {path}; start one with \"gable serve --data {path}\", or name another folder with --data"
    );
    let refuse_all = || {
        for command in COMMANDS.iter().chain(&[&["admin", "instance", "rebind"][..]]) {
            assert_eq!(home.gable(command).finish().refused(), sentence, "{command:?}");
        }
        let doctor = home.gable(&["doctor"]).finish();
        assert_eq!((doctor.status, doctor.stdout.as_str()), (Some(1), ""), "{}", doctor.words());
        assert_eq!(doctor.stderr, format!("gable: {sentence}\n"));
    };
    refuse_all();
    assert!(!home.data().exists(), "no folder is made");
    fs::create_dir(home.data()).expect("a folder");
    refuse_all();
    assert_eq!(fs::read_dir(home.data()).expect("a folder").count(), 0, "nothing is made in an empty folder");
    // SQLite would take an empty file for a database.
    fs::write(home.data().join("gable.sqlite3"), "").expect("written");
    refuse_all();
    if home.database_url().is_some() {
        assert_eq!(home.count("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), 0);
    }
    // An empty database is no instance either, whatever folder is named.
    home.start().stop();
    assert_eq!(home.admin(&["user", "list"]).lines().count(), 2);
}

#[test]
fn a_start_without_the_database_of_the_folder_is_refused() {
    let home = furnished();
    lose_database(&home);
    let sentence = match home.database_url() {
        None => format!(
            "the database {}/gable.sqlite3 is missing or empty, but the data folder holds the files of an instance; {}",
            path_of(&home),
            remedy(&home)
        ),
        Some(_) => format!(
            "the database is empty, but the data folder {} holds the files of an instance; name its database with \
             --database, or {}",
            path_of(&home),
            remedy(&home)
        ),
    };
    assert_refused(&home, &sentence);
    if home.database_url().is_none() {
        assert!(!home.data().join("gable.sqlite3").exists());
        fs::write(home.data().join("gable.sqlite3"), "").expect("written");
        assert_refused(&home, &sentence);
    }
}

/// What a project of a number shows.
fn assert_empty(server: &Server, number: i64) {
    let root = server.root();
    let get = |part: &str| root.get(&format!("/api/v3/projects/{number}{part}"));
    assert_eq!(get("").json()["default_branch"], Value::Null);
    assert_eq!(get("/repository/branches").json(), json!([]));
    for part in ["/repository/tree", "/repository/blobs/master?filepath=code", "/repository/archive", "/variables"] {
        assert!(!get(part).text.contains("code"), "{part}: {}", get(part));
    }
}

#[test]
fn a_number_that_is_given_again_gets_neither_the_repository_nor_the_files_of_before() {
    let home = furnished();
    let storage = home.storage_of(1);
    lose_database(&home);
    let said = home.admin(&["instance", "rebind"]);
    assert!(said.contains("orphaned repositories: 1 belong to nobody: "), "{said}");
    assert!(said.contains("uploads without rows: 1 belong to nobody: "), "{said}");
    assert!(said.ends_with("and the database belong together now\n"), "{said}");
    let server = home.start();
    let root = server.root();
    let project = root.post("/api/v3/projects", &json!({ "name": "other" }));
    assert_eq!((project.status, &project.json()["id"]), (201, &json!(1)), "{project}");
    assert_ne!(home.storage_of(1), storage);
    assert_empty(&server, 1);
    // The first file has the number that the secret one had.
    let uploaded = root.try_upload("/api/v3/projects/1/uploads", "code.txt", "harmless").expect("an answer");
    let page = uploaded.json()["url"].as_str().expect("a path").to_owned();
    assert_eq!(root.get(&format!("/root/other{page}")).text, "harmless");
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "a", "commit_message": "Begin" });
    assert_eq!(root.post("/api/v3/projects/1/repository/files", &file).status, 201);
    server.stop();
    // Nothing is lost: it lies apart, for the operator.
    let kept = snapshot(&home.data().join("lost+found"));
    assert!(kept.iter().any(|(_, bytes)| bytes == SECRET.as_bytes()), "the uploaded file is kept");
    assert!(kept.iter().any(|(path, _)| path.ends_with("refs/heads/master")), "the repository is kept");
    let doctor = home.gable(&["doctor"]).finish();
    assert_eq!(doctor.status, Some(0), "{}", doctor.words());
}

fn older(home: &Home) -> String {
    format!(
        "the database is older than the data folder {}, as if an old copy was put back; {}",
        path_of(home),
        remedy(home)
    )
}

#[test]
fn an_older_copy_of_the_database_is_refused() {
    let home = furnished();
    // Once from between two starts, and once from the middle of a run that ended well.
    for running in [false, true] {
        if running && home.database_url().is_some() {
            // PostgreSQL makes no such copy of a database in use.
            continue;
        }
        if !running {
            home.save_database();
        }
        let server = home.start();
        if running {
            home.save_database();
        }
        let number = 2 + i64::from(running);
        make_secret(&server, number);
        let storage = home.storage_of(number);
        server.stop();
        home.put_database_back();
        assert_refused(&home, &older(&home));
        let said = home.admin(&["instance", "rebind"]);
        assert!(said.contains("orphaned repositories: 1 belong to nobody: "), "{said}");
        let server = home.start();
        // The others are as they were, and the one that is gone is not found under its number.
        let branches = server.root().get("/api/v3/projects/1/repository/branches").json();
        assert_eq!(branches[0]["name"], "master");
        let made = server.root().post("/api/v3/projects", &json!({ "name": format!("other-{number}") }));
        assert_eq!((made.status, &made.json()["id"]), (201, &json!(number)), "{made}");
        assert_ne!(home.storage_of(number), storage);
        assert_empty(&server, number);
        server.stop();
    }
}

#[test]
fn a_kill_at_any_moment_of_a_start_leaves_an_instance_that_starts() {
    let home = Home::new();
    // Before the database was written, and after: whatever was written stays usable.
    for _ in 0..3 {
        home.start().kill();
    }
    // Killed between the two writes: the database is one generation ahead.
    let ahead = "UPDATE instance SET previous_mark = mark, mark = 'b' || mark, generation = generation + 1";
    home.execute(ahead);
    home.admin(&["user", "list"]);
    let server = home.start();
    make_secret(&server, 1);
    server.kill();
    home.execute(ahead);
    home.start().stop();
    // Two are more than a kill can leave: the folder is an older copy.
    home.execute(ahead);
    home.execute(ahead);
    let sentence = format!(
        "the data folder {} is older than its database, as if an old copy was put back; {}",
        path_of(&home),
        remedy(&home)
    );
    assert_refused(&home, &sentence);
    home.admin(&["instance", "rebind"]);
    let server = home.start();
    assert_eq!(server.root().get("/api/v3/projects/1/repository/branches").json()[0]["name"], "master");
}

#[test]
fn a_first_start_that_was_killed_is_taken_up_again() {
    let home = Home::new();
    fs::create_dir(home.data()).expect("a folder");
    // The folder is written first, then the database, then the key.
    let record = "instance: 0123456789abcdef0123456789abcdef\ngeneration: 0\nmark: fedcba9876543210fedcba9876543210\n";
    fs::write(home.data().join("instance"), record).expect("written");
    let refused = home.admin_refused(&["user", "list"]);
    assert!(refused.contains(" is missing or empty; ") || refused.contains(" holds no Gable instance; "), "{refused}");
    home.start().stop();
    let kept = fs::read_to_string(home.data().join("instance")).expect("a record");
    assert!(kept.starts_with("instance: 0123456789abcdef0123456789abcdef\n"), "{kept}");
    // And before the key was written.
    let home = Home::new();
    home.start().kill();
    home.execute("DELETE FROM users; UPDATE instance SET generation = 0, key_check = NULL");
    home.execute("UPDATE instance SET mark = 'fedcba9876543210fedcba9876543210', previous_mark = NULL");
    let record = fs::read_to_string(home.data().join("instance")).expect("a record");
    let id = record.lines().next().expect("the id");
    let record = format!("{id}\ngeneration: 0\nmark: fedcba9876543210fedcba9876543210\n");
    fs::write(home.data().join("instance"), record).expect("written");
    fs::remove_file(home.data().join("instance-key")).expect("removed");
    home.start().stop();
    assert!(home.data().join("instance-key").exists());
}

/// Puts the database of one instance where another one has its own.
fn swap_database(home: &Home, other: &Home) -> Vec<(&'static str, String)> {
    match other.database_url() {
        None => {
            fs::copy(other.data().join("gable.sqlite3"), home.data().join("gable.sqlite3")).expect("copied");
            Vec::new()
        }
        Some(url) => vec![("GABLE_DATABASE", url.to_string())],
    }
}

#[test]
fn the_database_of_another_instance_is_refused_for_good() {
    let (home, other) = (furnished(), furnished());
    let swapped = swap_database(&home, &other);
    let run = |arguments: &[&str]| {
        let gable = home.gable(arguments);
        swapped.iter().fold(gable, |gable, (name, value)| gable.env(name, value)).finish()
    };
    let sentence = format!(
        "the database holds another instance than the data folder {}; every instance needs a database and a data folder of \
         its own: name those that belong together with --database and --data",
        path_of(&home)
    );
    assert_eq!(run(&["serve", "--listen", "127.0.0.1:0"]).refused(), sentence);
    assert_eq!(run(&["admin", "user", "list"]).refused(), sentence);
    assert_eq!(run(&["admin", "instance", "rebind"]).refused(), sentence);
    // Also if the folder does not say any more to whom it belongs: the key does.
    fs::remove_file(home.data().join("instance")).expect("removed");
    let refused = run(&["serve", "--listen", "127.0.0.1:0"]).refused();
    assert!(refused.contains("/instance is missing, so nothing shows that the database belongs to"), "{refused}");
    let refused = run(&["admin", "instance", "rebind"]).refused();
    assert!(refused.contains("so the data folder belongs to another instance"), "{refused}");
}

#[test]
fn a_database_without_its_folder_is_refused_until_the_operator_goes_on_without_it() {
    let home = furnished();
    let away = home.data().with_file_name("away");
    fs::rename(home.data(), &away).expect("renamed");
    let sentence = if home.database_url().is_some() {
        fs::create_dir(home.data()).expect("a folder");
        format!(
            "the database holds an instance, but the data folder {} is not its folder: it is empty; name its folder with \
             --data, or {}",
            path_of(&home),
            remedy(&home)
        )
    } else {
        fs::create_dir(home.data()).expect("a folder");
        fs::copy(away.join("gable.sqlite3"), home.data().join("gable.sqlite3")).expect("copied");
        format!(
            "the file {}/instance is missing, so nothing shows that the database belongs to this data folder; {}",
            path_of(&home),
            remedy(&home)
        )
    };
    assert_refused(&home, &sentence);
    home.admin(&["instance", "rebind"]);
    let refused = home.serve().finish().refused();
    assert!(
        refused.starts_with(&format!("the instance key {}/instance-key is missing; ", path_of(&home))),
        "{refused}"
    );
    home.admin(&["instance", "new-key", "--yes"]);
    let server = home.start();
    assert_eq!(server.root().get("/api/v3/projects/1").json()["name"], "secret-1");
    assert_eq!(server.root().get("/api/v3/projects/1/variables").json(), json!([]));
}

fn key_remedy(home: &Home) -> String {
    format!(
        "restore the file from a backup, or give up what was sealed with it: \"gable admin instance new-key --data {}\" \
         says what that is",
        path_of(home)
    )
}

#[test]
fn without_its_key_or_with_another_one_an_instance_does_not_start() {
    let home = furnished();
    let path = home.data().join("instance-key");
    let right = fs::read_to_string(&path).expect("a key");
    let shown = format!("{}/instance-key", path_of(&home));
    let other = "A".repeat(43);
    for (content, sentence) in [
        (None, format!("the instance key {shown} is missing; ")),
        (Some(&right[..20]), format!("{shown} holds no key, or only a part of one; ")),
        (Some(""), format!("{shown} holds no key, or only a part of one; ")),
        (Some(&*other), format!("{shown} holds another key than the one that the database was used with; ")),
    ] {
        match content {
            None => fs::remove_file(&path).expect("removed"),
            Some(content) => fs::write(&path, content).expect("written"),
        }
        let sentence = format!("{sentence}{}", key_remedy(&home));
        let before = snapshot(&home.data());
        assert_eq!(home.serve().finish().refused(), sentence);
        assert_eq!(home.admin_refused(&["user", "list"]), sentence);
        if home.database_url().is_some() {
            assert!(snapshot(&home.data()) == before, "something was changed");
        }
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), content, "no key is made");
    }
    fs::write(&path, right).expect("written");
    let server = home.start();
    assert_eq!(server.root().get("/api/v3/projects/1/variables").json()[0]["value"], SECRET);
    assert_eq!(server.root().get("/api/v3/projects/1/hooks").json()[0]["url"], "https://example.org/hook");
}

#[test]
fn a_new_key_forgets_what_the_old_one_sealed_and_everything_works_again() {
    let home = furnished();
    let server = home.start();
    let trigger = server.root().post("/api/v3/projects/1/triggers", &json!({})).json();
    let of_project = server.root().get("/api/v3/projects/1").json()["runners_token"].clone();
    let joined = json!({ "token": home.admin(&["runner", "token"]).trim() });
    let runner = server.anonymous().post("/ci/api/v1/runners/register", &joined);
    assert_eq!(runner.status, 201, "{runner}");
    server.stop();
    let refused = home.admin_refused(&["instance", "new-key", "--yes"]);
    assert!(refused.ends_with("is the key that the database was used with; there is nothing to replace"), "{refused}");
    fs::write(home.data().join("instance-key"), "A".repeat(43)).expect("written");
    let asked = home.gable(&["admin", "instance", "new-key"]).finish();
    assert_eq!(asked.status, Some(1), "{}", asked.words());
    for line in
        ["would be lost: 1 hooks", "would be lost: 1 variables of projects", "would be lost: 1 tokens of triggers"]
    {
        assert!(asked.stdout.lines().any(|said| said == line), "{line}: {}", asked.stdout);
    }
    assert!(asked.stderr.contains("nothing was changed; run this again with --yes"), "{}", asked.stderr);
    assert_eq!(home.count("SELECT count(*) FROM ci_variables"), 1);

    let said = home.admin(&["instance", "new-key", "--yes"]);
    assert!(said.contains("lost: 1 variables of projects\n") && said.contains("created a new instance key"), "{said}");
    let kept = fs::read_dir(home.data()).expect("a folder").flatten();
    let kept: Vec<_> = kept.filter(|entry| entry.file_name().to_string_lossy().contains(".replaced-")).collect();
    assert_eq!(fs::read_to_string(kept[0].path()).expect("the key before"), "A".repeat(43));
    let server = home.start();
    let root = server.root();
    for part in ["variables", "hooks"] {
        assert_eq!(root.get(&format!("/api/v3/projects/1/{part}")).json(), json!([]), "{part}");
    }
    // Tokens that are shown are tokens that work.
    let now = root.get("/api/v3/projects/1/triggers").json();
    assert_ne!(now[0]["token"], trigger["token"]);
    let start = |token: &Value| {
        let wish = json!({ "token": token, "ref": "nowhere" });
        server.anonymous().post("/api/v3/projects/1/trigger/builds", &wish).status
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
    let doctor = home.gable(&["doctor"]).finish();
    assert_eq!(doctor.status, Some(0), "{}", doctor.words());
}

#[test]
fn a_restored_backup_does_not_fit_what_it_was_copied_from() {
    let home = furnished();
    let file = home.file("place", "").replace("place", "backup.tar");
    home.gable(&["backup", "--quiet", &file]).finish().succeeded();
    let restored = Home::new();
    restored.gable(&["restore", "--quiet", &file]).finish().succeeded();
    let id = |home: &Home| {
        let record = fs::read_to_string(home.data().join("instance")).expect("a record");
        record.lines().next().expect("the id").to_owned()
    };
    assert_eq!(id(&restored), id(&home), "it is the same instance");
    assert_eq!(restored.storage_of(1), home.storage_of(1));
    // Its own two fit.
    let server = restored.start();
    assert_eq!(server.root().get("/api/v3/projects/1/variables").json()[0]["value"], SECRET);
    assert_eq!(server.root().get("/api/v3/projects/1/repository/branches").json()[0]["name"], "master");
    server.stop();
    // One of each do not, in whatever order they were used.
    home.start().stop();
    let swapped = swap_database(&home, &restored);
    let serve = swapped.iter().fold(home.serve(), |gable, (name, value)| gable.env(name, value));
    let refused = serve.finish().refused();
    let told = ["is older than", "are from two copies of the same instance"];
    assert!(told.iter().any(|text| refused.contains(text)), "{refused}");
}

#[test]
fn the_database_from_which_rows_were_moved_is_refused_afterwards() {
    if postgres_server().is_none() {
        eprintln!("skipped: it takes PostgreSQL, too");
        return;
    }
    let (home, target) = (Home::embedded(), Home::new());
    let server = home.start();
    make_secret(&server, 1);
    server.stop();
    let url = target.database_url().expect("a database").to_string();
    home.gable(&["migrate-database", "--quiet"]).env("GABLE_TO_DATABASE", &url).finish().succeeded();
    let server = home.serve().env("GABLE_DATABASE", &url).with_known_root().start();
    assert_eq!(server.root().get("/api/v3/projects/1/variables").json()[0]["value"], SECRET);
    assert_eq!(server.root().get("/api/v3/projects/1/repository/branches").json()[0]["name"], "master");
    server.stop();
    fs::rename(home.data().join("gable.sqlite3.moved"), home.data().join("gable.sqlite3")).expect("renamed");
    assert_eq!(home.serve().finish().refused(), older(&home));
}
