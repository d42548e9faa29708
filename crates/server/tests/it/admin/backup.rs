//! Backups taken during writes restore to an identical instance, also on the other database engine.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use model::ProjectId;
use serde_json::{Value, json};
use store::{
    Database,
    dump::{Row, Snapshot},
};
use testkit::repository::{git, incompressible_text};

use crate::support::{Acknowledgement, HttpClient, ROOT_TOKEN, Rng, ServerProcess, TestInstance, postgres_server};

/// The number of push events that do not continue the previous one; 0 in a consistent database.
const INTERRUPTED_EVENTS: &str = "SELECT count(*) FROM (SELECT p.before, lag(p.after) OVER \
     (PARTITION BY e.project_id, p.ref_name ORDER BY e.id) AS previous FROM events e \
     JOIN push_events p ON p.event_id = e.id) x \
     WHERE x.before <> coalesce(x.previous, '0000000000000000000000000000000000000000')";
/// The projects of [`create_test_data`] that have a repository.
pub(crate) const REPOSITORIES: [&str; 2] = ["root/rocket", "crew/rocket"];

#[test]
fn a_backup_without_concurrent_writes_restores_exactly() {
    let instance = TestInstance::new();
    let server = instance.start();
    create_test_data(&server);
    let before = all_responses(&server);
    assert!(before.len() > 100, "hardly anything is compared: {}", before.len());
    let refs_before = REPOSITORIES.map(|path| refs_of(&server, path));
    let file = instance.file("backup.tar", "");
    std::fs::remove_file(&file).expect("removed");
    let output = instance.gable(&["backup", &file]).finish().succeeded();
    assert!(output.starts_with(&format!("backed up into {file}: ")), "{output}");
    let whole = instance.gable(&["backup", "--verify", &file]).finish().succeeded();
    assert!(whole.contains("is intact"), "{whole}");
    server.stop();

    let other = TestInstance::new();
    let output = other.gable(&["restore", &file]).finish().succeeded();
    assert!(output.starts_with("restored the backup of "), "{output}");
    // The server changes these tables by itself after the backup.
    let stable_rows = |instance: &TestInstance| {
        let mut rows = rows_of(instance);
        rows.retain(|table, _| {
            !["jobs", "tokens", "hooks", "hook_events", "hook_deliveries"].contains(&table.as_str())
        });
        rows
    };
    assert_eq!(stable_rows(&other), stable_rows(&instance), "row by row");
    let restored = other.start();
    let after = all_responses(&restored);
    for (path, answer) in &before {
        assert_eq!(after.get(path), Some(answer), "{path}");
    }
    assert_eq!(REPOSITORIES.map(|path| refs_of(&restored, path)), refs_before);
    // A clone works, new writes succeed, and no id is reused.
    let work = tempfile::tempdir().expect("a folder");
    let url = format!("http://root:{ROOT_TOKEN}@{}/root/rocket.git", restored.address());
    git(work.path(), &["clone", "-q", &url, "clone"], b"");
    assert!(work.path().join("clone/README").is_file());
    let root = restored.root();
    let issue = root.post("/api/v3/projects/1/issues", &json!({ "title": "After it" })).json();
    assert_eq!((&issue["id"], &issue["iid"]), (&json!(4), &json!(4)), "the third one was deleted: {issue}");
    let found = root.get("/api/v3/projects?search=ocke").json();
    assert_eq!(found.as_array().map(Vec::len), Some(2), "{found}");
    restored.stop();
}

#[test]
fn a_backup_during_writes_is_consistent() {
    let instance = TestInstance::new();
    let server = instance.start();
    create_test_data(&server);
    // Everything that the writers do not touch is the same before and after.
    let unaffected = |server: &ServerProcess| {
        let mut shown = all_responses(server);
        shown.retain(|path, _| path.starts_with("/api/v3/projects/2/") || path.starts_with("/api/v3/groups/2"));
        shown
    };
    let before = unaffected(&server);
    assert!(before.len() > 20, "hardly anything is compared: {}", before.len());
    let work = tempfile::tempdir().expect("a folder");
    let (stopped, acknowledgements): (Arc<AtomicBool>, [Acknowledgement; 3]) = Default::default();
    let mut clients = vec![
        push_until_stopped(&server, work.path(), Arc::clone(&stopped), acknowledgements[0].clone()),
        commit_until_stopped(server.root(), Arc::clone(&stopped), acknowledgements[1].clone()),
        write_until_stopped(server.root(), Arc::clone(&stopped), acknowledgements[2].clone()),
    ];
    acknowledgements.iter().for_each(Acknowledgement::wait);
    let files: Vec<String> = (0..3).map(|number| instance.data().join(format!("../{number}.tar"))).map(text).collect();
    for file in &files {
        instance.gable(&["backup", "--quiet", file]).finish().succeeded();
    }
    stopped.store(true, Ordering::SeqCst);
    clients.drain(..).for_each(|client| client.join().expect("every response is a success"));
    server.stop();

    let mut events = Vec::new();
    for file in &files {
        let other = TestInstance::new();
        other.gable(&["restore", "--quiet", file]).finish().succeeded();
        let restored = other.start();
        assert_eq!(other.count(INTERRUPTED_EVENTS), 0);
        assert_eq!(unaffected(&restored), before);
        let refs = refs_of(&restored, "root/rocket");
        assert!(refs.contains("refs/heads/storm-"), "{refs}");
        for line in refs.lines() {
            let (name, id) = line.split_once(' ').expect("a ref");
            let last = format!(
                "SELECT count(*) FROM push_events WHERE event_id = (SELECT max(e.id) FROM events e JOIN push_events p \
                 ON p.event_id = e.id WHERE p.ref_name = '{name}' AND e.project_id = 1) AND after = '{id}'"
            );
            assert_eq!(other.count(&last), 1, "the last event of {name} does not end at {id}");
        }
        // Exactly the files of the rows exist.
        for (table, folder) in [("uploads", "files/uploads"), ("build_artifacts", "files/artifacts")] {
            let rows = other.count(&format!("SELECT count(*) FROM {table} WHERE size IS NOT NULL AND project_id = 1"));
            let there = std::fs::read_dir(other.data().join(folder).join(other.storage_of(ProjectId::new(1))))
                .map_or(0, Iterator::count);
            assert_eq!(i64::try_from(there).expect("a number"), rows, "{table}");
        }
        events.push(other.count("SELECT count(*) FROM events"));
        restored.stop();
    }
    assert!(events[0] < events[2], "no events between the backups: {events:?}");
}

#[test]
fn a_backup_restores_into_the_other_engine_and_back() {
    if postgres_server().is_none() {
        eprintln!("skipped: requires GABLE_TEST_DATABASE");
        return;
    }
    let (embedded, postgres, again) = (TestInstance::embedded(), TestInstance::new(), TestInstance::embedded());
    let server = embedded.start();
    create_test_data(&server);
    let before = all_responses(&server);
    server.stop();
    let file = text(embedded.data().join("../backup.tar"));
    embedded.gable(&["backup", "--quiet", &file]).finish().succeeded();
    postgres.gable(&["restore", "--quiet", &file]).finish().succeeded();
    assert_eq!(rows_of(&postgres), rows_of(&embedded));
    let server = postgres.start();
    let shown = all_responses(&server);
    for (path, answer) in &before {
        assert_eq!(shown.get(path), Some(answer), "{path}");
    }
    server.stop();
    let refused = postgres.gable(&["restore", "--quiet", &file]).env("GABLE_DATA", &text(postgres.data().join("../x")));
    assert_eq!(refused.finish().refused(), NOT_EMPTY);
    assert!(!postgres.data().join("../x").exists(), "nothing is left of it");
    let file = text(postgres.data().join("../backup.tar"));
    postgres.gable(&["backup", "--quiet", &file]).finish().succeeded();
    again.gable(&["restore", "--quiet", &file]).finish().succeeded();
    assert_eq!(rows_of(&again), rows_of(&postgres));
    let server = again.start();
    let issue = server.root().post("/api/v3/projects/1/issues", &json!({ "title": "After it" })).json();
    assert_eq!(issue["id"], 4, "{issue}");
    server.stop();
}

/// The refusal to overwrite a PostgreSQL database.
const NOT_EMPTY: &str = "the database is not empty; create a new one and use that, or, if nothing in it is needed, remove its \
                         tables with `DROP SCHEMA public CASCADE; CREATE SCHEMA public;`";

#[test]
fn a_database_moves_to_postgres_and_back() {
    let Some(_) = postgres_server() else {
        eprintln!("skipped: requires GABLE_TEST_DATABASE");
        return;
    };
    let (instance, target) = (TestInstance::embedded(), TestInstance::new());
    let url = target.database_url().expect("a database").to_string();
    let server = instance.start();
    create_test_data(&server);
    let refused = instance.gable(&["migrate-database"]).env("GABLE_TO_DATABASE", &url).finish().refused();
    assert!(refused.ends_with("; stop it first"), "{refused}");
    server.stop();
    let before = rows_of(&instance);
    let output = instance.gable(&["migrate-database", "--quiet"]).env("GABLE_TO_DATABASE", &url).finish().succeeded();
    assert!(output.contains("set `database` (GABLE_DATABASE) to that URL"), "{output}");
    assert!(!output.contains("postgres://"), "a URL may hold a password: {output}");
    let (place, aside) = (instance.data().join("gable.sqlite3"), instance.data().join("gable.sqlite3.moved"));
    assert_eq!(rows_in(&Database::sqlite(&aside)), before, "the source is as it was");
    assert_eq!(rows_in(&Database::postgres(&url).expect("a good URL")), before);
    let name = target.database_url().expect("a database").path().trim_matches('/').to_owned();
    let refused = instance.serve().finish();
    assert!(
        refused.stderr.contains(&format!("were migrated to the PostgreSQL database {name} on ")),
        "{}",
        refused.stderr
    );
    assert!(!place.exists(), "no new database is created");
    std::fs::rename(&aside, &place).expect("back again");
    assert_eq!(rows_of(&instance), before);
    let refused = instance.gable(&["migrate-database", "--quiet"]).env("GABLE_TO_DATABASE", &url).finish().refused();
    assert!(refused.starts_with("the database is older than the data folder "), "{refused}");
    let other = TestInstance::embedded();
    other.start().stop();
    let refused = other.gable(&["migrate-database", "--quiet"]).env("GABLE_TO_DATABASE", &url).finish().refused();
    assert_eq!(refused, NOT_EMPTY);
    assert!(place.exists() && !aside.exists(), "a database that was not moved stays in place");
    let server = instance.serve().env("GABLE_DATABASE", &url).with_root_credentials().start();
    let issue = server.root().post("/api/v3/projects/1/issues", &json!({ "title": "After it" })).json();
    assert_eq!(issue["id"], 4, "{issue}");
    server.stop();
    let back =
        || instance.gable(&["migrate-database", "--quiet", "--to", "sqlite"]).env("GABLE_DATABASE", &url).finish();
    assert!(back().refused().ends_with("already exists; move it away first"));
    std::fs::rename(&place, &aside).expect("moved away");
    back().succeeded();
    assert_eq!(rows_of(&instance), rows_in(&Database::postgres(&url).expect("a good URL")));
    let server = instance.start();
    assert_eq!(server.root().get("/api/v3/projects/1/issues/4").json()["title"], "After it");
    server.stop();
}

#[test]
fn a_database_that_was_migrated_away_is_not_used_by_mistake() {
    let instance = TestInstance::embedded();
    instance.start().stop();
    let (place, aside) = (instance.data().join("gable.sqlite3"), instance.data().join("gable.sqlite3.moved"));
    std::fs::rename(&place, &aside).expect("moved");
    std::fs::write(instance.data().join("gable.sqlite3.moved-to"), "the PostgreSQL database gable on db\n")
        .expect("noted");
    for arguments in [&["serve"][..], &["admin", "user", "list"], &["migrate"], &["backup", "x.tar"], &["doctor"]] {
        let refused = instance.gable(arguments).finish();
        assert_ne!(refused.status, Some(0), "{arguments:?}");
        let output = refused.combined_output();
        for words in
            ["were migrated to the PostgreSQL database gable on db;", "rename gable.sqlite3.moved to gable.sqlite3"]
        {
            assert!(output.contains(words), "{arguments:?}: {output}");
        }
        assert!(!place.exists(), "{arguments:?} created a new database");
    }
    std::fs::rename(&aside, &place).expect("back again");
    instance.admin(&["user", "list"]);
    instance.start().stop();
}

fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("a readable path")
}

/// Creates test data of all kinds: two projects with a repository, issues, files, jobs and related objects.
pub(crate) fn create_test_data(server: &ServerProcess) {
    let root = server.root();
    let post = |path: &str, body: Value| {
        let response = root.post(&format!("/api/v3{path}"), &body);
        assert!(response.status == 201 || response.status == 200, "{path}: {response}");
        response.json()
    };
    let project = post("/projects", json!({ "name": "Rocket", "path": "rocket", "description": "Ünï\u{2028}'\"" }));
    let work = tempfile::tempdir().expect("a folder");
    let folder = work.path();
    git(folder, &["init", "-q", "-b", "master"], b"");
    std::fs::write(folder.join("README"), "Hello\n").expect("written");
    // The pack of the commit has files; that of the tag is small.
    std::fs::write(folder.join("large"), incompressible_text(100_000)).expect("written");
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
    assert!(root.try_delete("/api/v3/projects/1/issues/3").is_ok_and(|response| response.status == 200));
    post("/projects/1/variables", json!({ "key": "KEY", "value": "a secret value" }));
    post("/projects/1/hooks", json!({ "url": "http://example.invalid/" }));
    post("/projects/1/triggers", json!({}));
    post("/projects/1/star", json!({}));
    let sha = root.get("/api/v3/projects/1/repository/commits/master").json()["id"].clone();
    let sha = sha.as_str().expect("a commit");
    post(&format!("/projects/1/repository/commits/{sha}/comments"), json!({ "note": "Nice" }));
    let uploaded = root.try_upload("/api/v3/projects/1/uploads", "note.txt", "what people have uploaded");
    assert_eq!(uploaded.expect("a response").status, 201);
    let anyone = server.anonymous();
    let joined = anyone.post("/api/v4/runners", &json!({ "token": project["runners_token"] })).json();
    let job = anyone.post("/api/v4/jobs/request", &json!({ "token": joined["token"] })).json();
    let (id, token) = (job["id"].as_i64().expect("a job"), job["token"].as_str().expect("a token"));
    let headers = [("job-token", token), ("content-range", "0-5"), ("content-type", "text/plain")];
    let output = anyone.try_patch(&format!("/api/v4/jobs/{id}/trace"), &headers, "hello\n").expect("a response");
    assert_eq!(output.status, 202, "{output}");
    let artifacts = format!("/api/v4/jobs/{id}/artifacts?token={token}");
    assert_eq!(anyone.try_upload(&artifacts, "out.zip", "what a job has made").expect("a response").status, 201);
    let ended = anyone.try_put(&format!("/api/v4/jobs/{id}"), &json!({ "token": token, "state": "success" }));
    assert_eq!(ended.expect("a response").status, 200);
}

/// Returns the responses of all `GET` routes for the first objects of each kind, by path.
pub(crate) fn all_responses(server: &ServerProcess) -> BTreeMap<String, String> {
    let root = server.root();
    let routes = root.get("/api/v3/openapi.json").json();
    let routes = routes["paths"].as_object().expect("paths");
    let mut shown = BTreeMap::new();
    for path in routes.iter().filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path) {
        // Requests change when a token was last used.
        for path in expand_path(path).into_iter().filter(|path| !path.contains("personal_access_tokens")) {
            let path = if path.starts_with("/api/") { path } else { format!("/api/v3{path}") };
            let response = root.get(&path);
            assert!(response.status < 500, "{path}: {response}");
            shown.insert(path, response.to_string().replace(server.address(), "HOST"));
        }
    }
    shown
}

/// Expands the parameters of a path to all choices.
fn expand_path(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (parameter, after) = rest.split_once('}').expect("a closing brace");
    let choices: &[&str] = match parameter {
        "id" => &["1", "2"],
        "sha" | "branch" | "ref" | "ref_name" | "branch_name" => &["master"],
        "tag_name" | "tag" => &["v1"],
        "key" => &["KEY"],
        _ => &["1"],
    };
    let fill = |choice: &&str| expand_path(&format!("{before}{choice}{after}"));
    choices.iter().flat_map(fill).collect()
}

/// Returns all rows of all tables.
pub(crate) fn rows_of(instance: &TestInstance) -> BTreeMap<String, Vec<Row>> {
    match instance.database_url() {
        None => rows_in(&Database::sqlite(instance.data().join("gable.sqlite3"))),
        Some(url) => rows_in(&Database::postgres(url.as_str()).expect("a good URL")),
    }
}

fn rows_in(database: &Database) -> BTreeMap<String, Vec<Row>> {
    let mut snapshot = Snapshot::prepare(database).expect("a connection");
    snapshot.begin().expect("a snapshot");
    let tables = snapshot.tables().expect("tables");
    // The table that binds a database to its folder differs in every copy; see `instance.rs`.
    let tables = tables.iter().filter(|table| table.name != "instance");
    let rows = tables.map(|table| (table.name.clone(), snapshot.rows(table, None, 100_000).expect("rows")));
    rows.collect()
}

/// Clones a repository, checks all its objects and returns its refs, one per line.
pub(crate) fn refs_of(server: &ServerProcess, path: &str) -> String {
    let work = tempfile::tempdir().expect("a folder");
    let url = format!("http://root:{ROOT_TOKEN}@{}/{path}.git", server.address());
    git(work.path(), &["clone", "-q", "--mirror", &url, "mirror"], b"");
    let mirror = work.path().join("mirror");
    git(&mirror, &["fsck", "--strict", "--full"], b"");
    let listed = git(&mirror, &["for-each-ref", "--format=%(refname) %(objectname)"], b"");
    String::from_utf8(listed.stdout).expect("text")
}

fn push_until_stopped(
    server: &ServerProcess,
    work: &Path,
    stopped: Arc<AtomicBool>,
    acknowledgement: Acknowledgement,
) -> thread::JoinHandle<()> {
    let folder = work.join("pusher");
    let url = format!("http://root:{ROOT_TOKEN}@{}/root/rocket.git", server.address());
    git(work, &["clone", "-q", &url, "pusher"], b"");
    thread::spawn(move || {
        let mut rng = Rng(17);
        for step in 0.. {
            git(&folder, &["commit", "-q", "--allow-empty", "-m", &step.to_string()], b"");
            let specs: Vec<String> = (0..2).map(|_| format!("+HEAD:refs/heads/storm-{}", rng.next_u64() % 6)).collect();
            let same = specs[0] == specs[1];
            let specs: Vec<&str> = specs.iter().take(if same { 1 } else { 2 }).map(String::as_str).collect();
            git(&folder, &[&["push", "-q", url.as_str()][..], &specs].concat(), b"");
            acknowledgement.record();
            if stopped.load(Ordering::SeqCst) {
                return;
            }
        }
    })
}

fn commit_until_stopped(
    root: HttpClient,
    stopped: Arc<AtomicBool>,
    acknowledgement: Acknowledgement,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let base = "/api/v3/projects/1/repository";
        for step in 0.. {
            let short = format!("api-{}", step % 5);
            if step >= 5 {
                let gone = root.try_delete(&format!("{base}/branches/{short}")).expect("a response");
                assert_eq!(gone.status, 200, "{gone}");
            }
            let made = root.post(&format!("{base}/branches"), &json!({ "branch_name": short, "ref": "master" }));
            assert!(made.status < 300, "{made}");
            acknowledgement.record();
            if stopped.load(Ordering::SeqCst) {
                return;
            }
        }
    })
}

fn write_until_stopped(
    root: HttpClient,
    stopped: Arc<AtomicBool>,
    acknowledgement: Acknowledgement,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for step in 0.. {
            let issue = root.post("/api/v3/projects/1/issues", &json!({ "title": format!("Issue {step}") }));
            assert_eq!(issue.status, 201, "{issue}");
            let uploaded = root.try_upload("/api/v3/projects/1/uploads", "x.txt", &step.to_string());
            assert_eq!(uploaded.expect("a response").status, 201);
            acknowledgement.record();
            if stopped.load(Ordering::SeqCst) {
                return;
            }
        }
    })
}
