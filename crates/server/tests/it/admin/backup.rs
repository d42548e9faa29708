//! A backup taken while others work, and an instance that comes out of it and cannot be told from the first one.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use serde_json::{Value, json};
use store::{
    Database,
    copies::{Row, Snapshot},
};
use testkit::repository::{git, quiet_git};

use crate::{
    admin::binary::{Client, Heard, Home, ROOT_TOKEN, Server, postgres_server},
    crash::crash_pushes::Dice,
};

/// What must be 0 once a restored server is ready.
const FAULTS: [(&str, &str); 3] = [
    ("pushes that were not settled", "SELECT count(*) FROM ref_intents"),
    ("events that nobody will ever see", "SELECT count(*) FROM events WHERE intent_id IS NOT NULL"),
    (
        "events that do not follow from each other",
        "SELECT count(*) FROM (SELECT p.before, lag(p.after) OVER \
         (PARTITION BY e.project_id, p.ref_name ORDER BY e.id) AS previous FROM events e \
         JOIN push_events p ON p.event_id = e.id) x \
         WHERE x.before <> coalesce(x.previous, '0000000000000000000000000000000000000000')",
    ),
];

#[test]
fn what_was_backed_up_in_a_quiet_moment_comes_back_to_the_letter() {
    let home = Home::new();
    let server = home.start();
    furnish(&server);
    let before = everything_shown(&server);
    assert!(before.len() > 100, "hardly anything is compared: {}", before.len());
    let file = home.file("backup.tar", "");
    std::fs::remove_file(&file).expect("removed");
    let said = home.gable(&["backup", &file]).finish().succeeded();
    assert!(said.starts_with(&format!("backed up into {file}: ")), "{said}");
    let whole = home.gable(&["backup", "--verify", &file]).finish().succeeded();
    assert!(whole.contains("is whole"), "{whole}");
    server.stop();

    let other = Home::new();
    let said = other.gable(&["restore", &file]).finish().succeeded();
    assert!(said.starts_with("restored the backup of "), "{said}");
    // What the server notes by itself goes on after the backup.
    let lasting = |home: &Home| {
        let mut rows = rows_of(home);
        rows.retain(|table, _| {
            !["jobs", "tokens", "hooks", "hook_events", "hook_deliveries"].contains(&table.as_str())
        });
        rows
    };
    assert_eq!(lasting(&other), lasting(&home), "row by row");
    let restored = other.start();
    let after = everything_shown(&restored);
    for (path, answer) in &before {
        assert_eq!(after.get(path), Some(answer), "{path}");
    }
    for (place, folder) in repositories_of(&other) {
        git(&folder, &["fsck", "--strict", "--full", "--no-dangling"], b"");
        let refs = |folder: &Path| git(folder, &["for-each-ref"], b"").stdout;
        assert_eq!(refs(&folder), refs(&repositories_of(&home)[&place]), "{place:?}");
    }
    // A clone works, people go on, and no number is given twice.
    let work = tempfile::tempdir().expect("a folder");
    let url = format!("http://root:{ROOT_TOKEN}@{}/root/rocket.git", restored.address());
    git(work.path(), &["clone", "-q", &url, "clone"], b"");
    assert!(work.path().join("clone/README").is_file());
    let root = restored.root();
    let issue = root.post("/api/v3/projects/1/issues", &json!({ "title": "After it" })).json();
    assert_eq!((&issue["id"], &issue["iid"]), (&json!(4), &json!(4)), "the third one was removed: {issue}");
    let found = root.get("/api/v3/projects?search=ocke").json();
    assert_eq!(found.as_array().map(Vec::len), Some(2), "{found}");
    restored.stop();
}

#[test]
fn a_backup_under_load_is_of_one_instant() {
    let home = Home::new();
    let server = home.start();
    furnish(&server);
    // What the storm does not touch is the same before and after, word by word.
    let quiet = |server: &Server| {
        let mut shown = everything_shown(server);
        shown.retain(|path, _| path.starts_with("/api/v3/projects/2/") || path.starts_with("/api/v3/groups/2"));
        shown
    };
    let before = quiet(&server);
    assert!(before.len() > 20, "hardly anything is compared: {}", before.len());
    let work = tempfile::tempdir().expect("a folder");
    let (over, heard): (Arc<AtomicBool>, [Heard; 3]) = Default::default();
    let mut clients = vec![
        push_again_and_again(&server, work.path(), Arc::clone(&over), heard[0].clone()),
        commit_again_and_again(server.root(), Arc::clone(&over), heard[1].clone()),
        write_again_and_again(server.root(), Arc::clone(&over), heard[2].clone()),
    ];
    heard.iter().for_each(Heard::wait);
    let files: Vec<String> = (0..3).map(|number| home.data().join(format!("../{number}.tar"))).map(text).collect();
    for file in &files {
        home.gable(&["backup", "--quiet", file]).finish().succeeded();
    }
    over.store(true, Ordering::SeqCst);
    clients.drain(..).for_each(|client| client.join().expect("nothing but success is heard"));
    server.stop();

    let mut events = Vec::new();
    for file in &files {
        let other = Home::new();
        other.gable(&["restore", "--quiet", file]).finish().succeeded();
        let restored = other.start();
        for (what, query) in FAULTS {
            assert_eq!(other.count(query), 0, "{what}");
        }
        assert_eq!(quiet(&restored), before);
        let folder = repository_of_the_storm(&other);
        git(&folder, &["fsck", "--strict", "--full", "--no-dangling"], b"");
        let listed = git(&folder, &["for-each-ref", "--format=%(refname) %(objectname)"], b"");
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            let (name, id) = line.split_once(' ').expect("a ref");
            let last = format!(
                "SELECT count(*) FROM push_events WHERE event_id = (SELECT max(e.id) FROM events e JOIN push_events p \
                 ON p.event_id = e.id WHERE p.ref_name = '{name}' AND e.project_id = 1) AND after = '{id}'"
            );
            assert_eq!(other.count(&last), 1, "the last event of {name} does not end at {id}");
        }
        // Every file that a row names is there, and no other.
        for (table, folder) in [("uploads", "files/uploads"), ("build_artifacts", "files/artifacts")] {
            let rows = other.count(&format!("SELECT count(*) FROM {table} WHERE size IS NOT NULL AND project_id = 1"));
            let there =
                std::fs::read_dir(other.data().join(folder).join(other.storage_of(1))).map_or(0, Iterator::count);
            assert_eq!(i64::try_from(there).expect("a number"), rows, "{table}");
        }
        events.push(other.count("SELECT count(*) FROM events"));
        restored.stop();
    }
    assert!(events[0] < events[2], "nothing happened meanwhile: {events:?}");
}

#[test]
fn a_backup_restores_into_the_other_engine_and_back() {
    if postgres_server().is_none() {
        eprintln!("skipped: it takes GABLE_TEST_DATABASE");
        return;
    }
    let (small, large, again) = (Home::embedded(), Home::new(), Home::embedded());
    let server = small.start();
    furnish(&server);
    let before = everything_shown(&server);
    server.stop();
    let file = text(small.data().join("../backup.tar"));
    small.gable(&["backup", "--quiet", &file]).finish().succeeded();
    large.gable(&["restore", "--quiet", &file]).finish().succeeded();
    assert_eq!(rows_of(&large), rows_of(&small));
    let server = large.start();
    let shown = everything_shown(&server);
    for (path, answer) in &before {
        assert_eq!(shown.get(path), Some(answer), "{path}");
    }
    server.stop();
    let refused = large.gable(&["restore", "--quiet", &file]).env("GABLE_DATA", &text(large.data().join("../x")));
    assert_eq!(refused.finish().refused(), "the database is not empty; make a new one and name that");
    assert!(!large.data().join("../x").exists(), "nothing is left of it");
    let file = text(large.data().join("../backup.tar"));
    large.gable(&["backup", "--quiet", &file]).finish().succeeded();
    again.gable(&["restore", "--quiet", &file]).finish().succeeded();
    assert_eq!(rows_of(&again), rows_of(&large));
    let server = again.start();
    let issue = server.root().post("/api/v3/projects/1/issues", &json!({ "title": "After it" })).json();
    assert_eq!(issue["id"], 4, "{issue}");
    server.stop();
}

#[test]
fn a_database_moves_to_postgres_and_back() {
    let Some(_) = postgres_server() else {
        eprintln!("skipped: it takes GABLE_TEST_DATABASE");
        return;
    };
    let (home, beside) = (Home::embedded(), Home::new());
    let url = beside.database_url().expect("a database").to_string();
    let server = home.start();
    furnish(&server);
    let refused = home.gable(&["migrate-database"]).env("GABLE_TO_DATABASE", &url).finish().refused();
    assert!(refused.ends_with("; stop it first"), "{refused}");
    server.stop();
    let before = rows_of(&home);
    let said = home.gable(&["migrate-database", "--quiet"]).env("GABLE_TO_DATABASE", &url).finish().succeeded();
    assert!(said.contains("from now on set `database` (GABLE_DATABASE) to that URL"), "{said}");
    assert!(!said.contains("postgres://"), "a URL may hold a password: {said}");
    let (place, aside) = (home.data().join("gable.sqlite3"), home.data().join("gable.sqlite3.moved"));
    assert_eq!(rows_in(&Database::sqlite(&aside)), before, "the source is as it was");
    assert_eq!(rows_in(&Database::postgres(&url).expect("a good URL")), before);
    let name = beside.database_url().expect("a database").path().trim_matches('/').to_owned();
    let refused = home.serve().finish();
    assert!(
        refused.stderr.contains(&format!("have moved to the PostgreSQL database {name} on ")),
        "{}",
        refused.stderr
    );
    assert!(!place.exists(), "nothing is begun anew");
    std::fs::rename(&aside, &place).expect("back again");
    assert_eq!(rows_of(&home), before);
    let refused = home.gable(&["migrate-database", "--quiet"]).env("GABLE_TO_DATABASE", &url).finish().refused();
    assert!(refused.starts_with("the database is older than the data folder "), "{refused}");
    let other = Home::embedded();
    other.start().stop();
    let refused = other.gable(&["migrate-database", "--quiet"]).env("GABLE_TO_DATABASE", &url).finish().refused();
    assert_eq!(refused, "the database is not empty; make a new one and name that");
    assert!(place.exists() && !aside.exists(), "what did not move is where it was");
    let server = home.serve().env("GABLE_DATABASE", &url).with_known_root().start();
    let issue = server.root().post("/api/v3/projects/1/issues", &json!({ "title": "After it" })).json();
    assert_eq!(issue["id"], 4, "{issue}");
    server.stop();
    let back = || home.gable(&["migrate-database", "--quiet", "--to", "sqlite"]).env("GABLE_DATABASE", &url).finish();
    assert!(back().refused().ends_with("is there already; move it away first"));
    std::fs::rename(&place, &aside).expect("moved away");
    back().succeeded();
    assert_eq!(rows_of(&home), rows_in(&Database::postgres(&url).expect("a good URL")));
    let server = home.start();
    assert_eq!(server.root().get("/api/v3/projects/1/issues/4").json()["title"], "After it");
    server.stop();
}

#[test]
fn a_database_that_has_moved_away_is_not_worked_on_by_mistake() {
    let home = Home::embedded();
    home.start().stop();
    let (place, aside) = (home.data().join("gable.sqlite3"), home.data().join("gable.sqlite3.moved"));
    std::fs::rename(&place, &aside).expect("moved");
    std::fs::write(home.data().join("gable.sqlite3.moved-to"), "the PostgreSQL database gable on db\n").expect("noted");
    for arguments in [&["serve"][..], &["admin", "user", "list"], &["migrate"], &["backup", "x.tar"], &["doctor"]] {
        let refused = home.gable(arguments).finish();
        assert_ne!(refused.status, Some(0), "{arguments:?}");
        let said = refused.words();
        for words in
            ["have moved to the PostgreSQL database gable on db;", "rename gable.sqlite3.moved to gable.sqlite3"]
        {
            assert!(said.contains(words), "{arguments:?}: {said}");
        }
        assert!(!place.exists(), "{arguments:?} has begun anew");
    }
    std::fs::rename(&aside, &place).expect("back again");
    home.admin(&["user", "list"]);
    home.start().stop();
}

fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("a readable path")
}

/// Something of everything: two projects with one repository, issues, files, jobs and what hangs on them.
pub(crate) fn furnish(server: &Server) {
    let root = server.root();
    let post = |path: &str, body: Value| {
        let reply = root.post(&format!("/api/v3{path}"), &body);
        assert!(reply.status == 201 || reply.status == 200, "{path}: {reply}");
        reply.json()
    };
    let project = post("/projects", json!({ "name": "Rocket", "path": "rocket", "description": "Ünï\u{2028}'\"" }));
    let work = tempfile::tempdir().expect("a folder");
    let folder = work.path();
    git(folder, &["init", "-q", "-b", "master"], b"");
    std::fs::write(folder.join("README"), "Hello\n").expect("written");
    std::fs::write(folder.join(".gitlab-ci.yml"), "job: {script: make}\n").expect("written");
    git(folder, &["add", "."], b"");
    git(folder, &["commit", "-q", "-m", "First"], b"");
    git(folder, &["tag", "-a", "v1", "-m", "One"], b"");
    git(folder, &["branch", "other/deep/branch"], b"");
    let url = format!("http://root:{ROOT_TOKEN}@{}/root/rocket.git", server.address());
    git(folder, &["push", "-q", &url, "--all"], b"");
    git(folder, &["push", "-q", &url, "--tags"], b"");
    post("/groups", json!({ "name": "Crew", "path": "crew" }));
    post("/projects/fork/1", json!({ "namespace": "crew" }));
    post("/projects/1/labels", json!({ "name": "bug", "color": "#ff0000" }));
    post("/projects/1/milestones", json!({ "title": "Soon" }));
    for title in ["One", "Two", "Three"] {
        post("/projects/1/issues", json!({ "title": title, "labels": "bug", "milestone_id": 1 }));
    }
    post("/projects/1/issues/1/notes", json!({ "body": "Well said" }));
    assert!(root.try_delete("/api/v3/projects/1/issues/3").is_ok_and(|reply| reply.status == 200));
    post("/projects/1/variables", json!({ "key": "KEY", "value": "a secret value" }));
    post("/projects/1/hooks", json!({ "url": "http://example.invalid/" }));
    post("/projects/1/triggers", json!({}));
    post("/projects/1/star", json!({}));
    let sha = root.get("/api/v3/projects/1/repository/commits/master").json()["id"].clone();
    let sha = sha.as_str().expect("a commit");
    post(&format!("/projects/1/repository/commits/{sha}/comments"), json!({ "note": "Nice" }));
    let uploaded = root.try_upload("/api/v3/projects/1/uploads", "note.txt", "what people have uploaded");
    assert_eq!(uploaded.expect("an answer").status, 201);
    let anyone = server.anonymous();
    let joined = anyone.post("/api/v4/runners", &json!({ "token": project["runners_token"] })).json();
    let job = anyone.post("/api/v4/jobs/request", &json!({ "token": joined["token"] })).json();
    let (id, token) = (job["id"].as_i64().expect("a job"), job["token"].as_str().expect("a token"));
    let headers = [("job-token", token), ("content-range", "0-5"), ("content-type", "text/plain")];
    let said = anyone.try_patch(&format!("/api/v4/jobs/{id}/trace"), &headers, "hello\n").expect("an answer");
    assert_eq!(said.status, 202, "{said}");
    let artifacts = format!("/api/v4/jobs/{id}/artifacts?token={token}");
    assert_eq!(anyone.try_upload(&artifacts, "out.zip", "what a job has made").expect("an answer").status, 201);
    let ended = anyone.try_put(&format!("/api/v4/jobs/{id}"), &json!({ "token": token, "state": "success" }));
    assert_eq!(ended.expect("an answer").status, 200);
}

/// The answer to everything that can be asked with `GET`, for the first things of each kind.
fn everything_shown(server: &Server) -> BTreeMap<String, String> {
    let root = server.root();
    let routes = root.get("/api/v3/openapi.json").json();
    let routes = routes["paths"].as_object().expect("paths");
    let mut shown = BTreeMap::new();
    for path in routes.iter().filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path) {
        // When a token was last used changes by asking.
        for path in fill_in(path).into_iter().filter(|path| !path.contains("personal_access_tokens")) {
            let path = if path.starts_with("/api/") { path } else { format!("/api/v3{path}") };
            let reply = root.get(&path);
            assert!(reply.status < 500, "{path}: {reply}");
            shown.insert(path, reply.to_string().replace(server.address(), "HOST"));
        }
    }
    shown
}

/// A path for each choice of what may stand in its gaps.
fn fill_in(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (gap, after) = rest.split_once('}').expect("a gap ends");
    let choices: &[&str] = match gap {
        "id" => &["1", "2"],
        "sha" | "branch" | "ref" | "ref_name" | "branch_name" => &["master"],
        "tag_name" | "tag" => &["v1"],
        "key" => &["KEY"],
        _ => &["1"],
    };
    let fill = |choice: &&str| fill_in(&format!("{before}{choice}{after}"));
    choices.iter().flat_map(fill).collect()
}

/// All rows of all tables.
fn rows_of(home: &Home) -> BTreeMap<String, Vec<Row>> {
    match home.database_url() {
        None => rows_in(&Database::sqlite(home.data().join("gable.sqlite3"))),
        Some(url) => rows_in(&Database::postgres(url.as_str()).expect("a good URL")),
    }
}

fn rows_in(database: &Database) -> BTreeMap<String, Vec<Row>> {
    let mut snapshot = Snapshot::prepare(database).expect("a connection");
    snapshot.begin().expect("a snapshot");
    let tables = snapshot.tables().expect("tables");
    // What binds a database to its folder is another one in every copy; `instance.rs` looks at it.
    let tables = tables.iter().filter(|table| table.name != "instance");
    let rows = tables.map(|table| (table.name.clone(), snapshot.rows(table, None, 100_000).expect("rows")));
    rows.collect()
}

/// All repositories, by where they lie.
fn repositories_of(home: &Home) -> BTreeMap<PathBuf, PathBuf> {
    let root = home.data().join("repositories");
    let within = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        entries.filter(|path| path.is_dir()).collect()
    };
    let is_short = |path: &PathBuf| path.file_name().is_some_and(|name| name.len() == 2);
    let places = within(&root).into_iter().filter(is_short).flat_map(|first| within(&first));
    let places = places.flat_map(|second| within(&second));
    places.map(|path| (path.strip_prefix(&root).expect("inside").to_owned(), path)).collect()
}

fn repository_of_the_storm(home: &Home) -> PathBuf {
    let has_storm = |folder: &PathBuf| {
        let found = quiet_git(folder).args(["for-each-ref", "refs/heads/storm-*"]).output().expect("git runs");
        !found.stdout.is_empty()
    };
    repositories_of(home).into_values().find(has_storm).expect("the repository of the storm")
}

fn push_again_and_again(server: &Server, work: &Path, over: Arc<AtomicBool>, heard: Heard) -> thread::JoinHandle<()> {
    let folder = work.join("pusher");
    let url = format!("http://root:{ROOT_TOKEN}@{}/root/rocket.git", server.address());
    git(work, &["clone", "-q", &url, "pusher"], b"");
    thread::spawn(move || {
        let mut dice = Dice(17);
        for step in 0.. {
            git(&folder, &["commit", "-q", "--allow-empty", "-m", &step.to_string()], b"");
            let specs: Vec<String> = (0..2).map(|_| format!("+HEAD:refs/heads/storm-{}", dice.roll() % 6)).collect();
            let same = specs[0] == specs[1];
            let specs: Vec<&str> = specs.iter().take(if same { 1 } else { 2 }).map(String::as_str).collect();
            git(&folder, &[&["push", "-q", url.as_str()][..], &specs].concat(), b"");
            heard.note();
            if over.load(Ordering::SeqCst) {
                return;
            }
        }
    })
}

fn commit_again_and_again(root: Client, over: Arc<AtomicBool>, heard: Heard) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let base = "/api/v3/projects/1/repository";
        for step in 0.. {
            let short = format!("api-{}", step % 5);
            if step >= 5 {
                let gone = root.try_delete(&format!("{base}/branches/{short}")).expect("an answer");
                assert_eq!(gone.status, 200, "{gone}");
            }
            let made = root.post(&format!("{base}/branches"), &json!({ "branch_name": short, "ref": "master" }));
            assert!(made.status < 300, "{made}");
            heard.note();
            if over.load(Ordering::SeqCst) {
                return;
            }
        }
    })
}

fn write_again_and_again(root: Client, over: Arc<AtomicBool>, heard: Heard) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for step in 0.. {
            let issue = root.post("/api/v3/projects/1/issues", &json!({ "title": format!("Issue {step}") }));
            assert_eq!(issue.status, 201, "{issue}");
            let uploaded = root.try_upload("/api/v3/projects/1/uploads", "x.txt", &step.to_string());
            assert_eq!(uploaded.expect("an answer").status, 201);
            heard.note();
            if over.load(Ordering::SeqCst) {
                return;
            }
        }
    })
}
