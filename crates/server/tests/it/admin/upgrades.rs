//! Databases of every earlier version are migrated with all their data.

mod repositories;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use forge::{InstanceKey, clock::SystemSecrets};
use model::ProjectId;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::repository::git;

use crate::support::{HttpClient, ROOT_TOKEN, TestInstance};

const PROJECT: ProjectId = ProjectId::new(1);

/// The rows that each version added, in the order of versions. `{…}` stands for values that differ between engines or
/// are encrypted. They are SQL because the code knows only the current schema.
const ROWS: [&str; 19] = [
    "INSERT INTO users (username, name, email, search_text, password_hash, state, admin, external, can_create_group, \
     projects_limit, skype, linkedin, twitter, website_url, confirmed_at, created_at, updated_at) VALUES \
     ('root', 'Root', 'root@example.org', 'root root', 'none', 'active', TRUE, FALSE, TRUE, 100, '', '', '', '', 1, 1, 1), \
     ('ann', 'Ann Äther', 'ann@example.org', 'ann äther ann', 'none', 'active', FALSE, FALSE, TRUE, 10, '', '', '', '', 1, 2, 2); \
     INSERT INTO namespaces (kind, owner_id, name, path, full_path, created_at, updated_at) VALUES \
     ('user', 1, 'root', 'root', 'root', 1, 1), ('user', 2, 'ann', 'ann', 'ann', 2, 2); \
     INSERT INTO emails (user_id, email, is_primary, created_at) VALUES (1, 'root@example.org', TRUE, 1), \
     (2, 'ann@example.org', TRUE, 2), (2, 'ann.home@example.org', FALSE, 3); \
     INSERT INTO keys (user_id, title, key, fingerprint, created_at) VALUES (2, 'laptop', \
     'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJjpvQ1XGoEcSxL0V5Wq3k3PgmjX8tq0UqzQq7c2q3hH', 'SHA256:x', 4); \
     INSERT INTO tokens (user_id, name, digest, scopes, created_at) VALUES (1, 'story', {digest}, 'api', 5), \
     (2, 'session', {digest2}, 'api', 6);",
    "INSERT INTO jobs (kind, payload, run_at, attempts, dead_at, last_error, created_at) VALUES \
     ('keep_house', '1', 6, 10, 7, 'no git', 6);",
    "INSERT INTO namespaces (kind, name, path, full_path, name_key, path_key, created_at, updated_at) VALUES \
     ('group', 'Crew', 'crew', 'crew', 'crew', 'crew', 8, 8); \
     INSERT INTO group_members (group_id, user_id, access_level, created_at) VALUES (3, 2, 50, 8); \
     INSERT INTO projects (namespace_id, creator_id, name, path, name_key, path_key, search_text, description, visibility, \
     issues_enabled, merge_requests_enabled, wiki_enabled, builds_enabled, snippets_enabled, container_registry_enabled, \
     shared_runners_enabled, public_builds, only_allow_merge_if_build_succeeds, \
     only_allow_merge_if_all_discussions_are_resolved, request_access_enabled, runners_seed, created_at, updated_at, \
     last_activity_at) VALUES \
     (2, 2, 'Road', 'road', 'road', 'road', 'road a long way', 'A long way', 0, TRUE, TRUE, TRUE, TRUE, FALSE, FALSE, TRUE, \
     TRUE, FALSE, FALSE, TRUE, {seed}, 9, 9, 9), \
     (3, 2, 'Bridge', 'bridge', 'bridge', 'bridge', 'bridge', NULL, 20, TRUE, TRUE, TRUE, TRUE, FALSE, FALSE, TRUE, \
     TRUE, FALSE, FALSE, TRUE, {seed2}, 10, 10, 10); \
     INSERT INTO project_members (project_id, user_id, access_level, created_at) VALUES (1, 2, 40, 9), (1, 1, 30, 11); \
     INSERT INTO project_stars (user_id, project_id, created_at) VALUES (1, 1, 12), (2, 1, 12); \
     INSERT INTO uploads (project_id, user_id, secret, name, size, complete, created_at) VALUES \
     (1, 2, '0123456789abcdef0123456789abcdef', 'map.txt', 4, TRUE, 13);",
    "INSERT INTO protected_branches (project_id, name, push_level, merge_level, created_at) VALUES (1, 'stable-*', 40, 30, 14); \
     INSERT INTO events (project_id, author_id, action, created_at) VALUES (1, 2, 5, 15); \
     INSERT INTO push_events (event_id, ref_name, before, after, total_commits) VALUES (1, 'refs/heads/master', \
     '0000000000000000000000000000000000000000', '1111111111111111111111111111111111111111', 1); \
     INSERT INTO push_commits (event_id, position, sha, message, author_name, author_email, seconds, offset_seconds) VALUES \
     (1, 0, '1111111111111111111111111111111111111111', 'Begin', 'Ann', 'ann@example.org', 15, 3600); \
     INSERT INTO fork_links (project_id, source_id, created_at, updated_at) VALUES (2, 1, 16, 16); \
     INSERT INTO deploy_keys (title, key, fingerprint, created_at) VALUES ('robot', \
     'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJjpvQ1XGoEcSxL0V5Wq3k3PgmjX8tq0UqzQq7c2q3hI', 'SHA256:y', 17); \
     INSERT INTO deploy_key_projects (key_id, project_id, created_at) VALUES (1, 1, 17); \
     INSERT INTO project_imports (project_id, status, url) VALUES (1, 'finished', 'https://example.org/road.git');",
    "INSERT INTO labels (project_id, title, title_key, color, description, created_at, updated_at) VALUES \
     (1, 'Bug', 'bug', '#ff0000', 'It hurts', 21, 21); \
     INSERT INTO milestones (project_id, iid, title, created_at, updated_at) VALUES (1, 1, 'Half way', 22, 22); \
     INSERT INTO issues (project_id, iid, closed, confidential, author_id, assignee_id, milestone_id, created_at, updated_at, \
     title, description) VALUES (1, 1, FALSE, FALSE, 2, 1, 1, 23, 23, 'A hole in the road', 'Deep.'), \
     (1, 2, TRUE, TRUE, 2, NULL, NULL, 24, 24, 'A secret', NULL); \
     UPDATE issue_books SET last_issue = 2, last_milestone = 1 WHERE project_id = 1; \
     INSERT INTO issue_texts (issue_id, search_text) VALUES (1, 'a hole in the road deep.'), (2, 'a secret'); \
     INSERT INTO issue_labels (issue_id, label_id) VALUES (1, 1), (2, 1); \
     INSERT INTO notes (project_id, issue_id, author_id, body, system, created_at, updated_at) VALUES \
     (1, 1, 2, 'I fell into it.', FALSE, 25, 25), (1, 1, 2, 'Added a label', TRUE, 26, 26); \
     INSERT INTO board_lists (board_id, label_id, position, created_at) \
     SELECT id, 1, 0, 27 FROM boards WHERE project_id = 1;",
    "INSERT INTO hooks (project_id, url, receiver, enable_ssl_verification, push_events, tag_push_events, created_at, \
     updated_at) VALUES (1, {url}, 'example.org:443', TRUE, TRUE, FALSE, 28, 28); \
     INSERT INTO commit_notes (id, project_id, sha, author_id, body, created_at) VALUES \
     (100, 1, '1111111111111111111111111111111111111111', 2, 'Well begun', 29);",
    "INSERT INTO ci_variables (project_id, key, value) VALUES (1, 'TOLL', {value}); \
     INSERT INTO pipelines (project_id, ref_name, tag, sha, source, status, stages, user_id, created_at, updated_at) VALUES \
     (1, 'master', FALSE, '1111111111111111111111111111111111111111', 'push', 'success', 'test', 2, 30, 31); \
     INSERT INTO builds (project_id, pipeline_id, kind, name, stage, stage_index, status, start_when, allow_failure, user_id, \
     created_at, finished_at) VALUES (1, {pipeline}, 0, 'pave', 'test', 0, 'success', 'on_success', FALSE, 2, 30, 31);",
    "UPDATE project_storage SET storage_id = '0123456789abcdef0123456789abcdef' WHERE project_id = 2;",
    "INSERT INTO tokens (user_id, name, digest, scopes, session, created_at) VALUES \
     (2, 'session', {digest3}, 'api', FALSE, 32);",
    "UPDATE project_imports SET requester_id = 1 WHERE project_id = 1;",
    "INSERT INTO repositories (project_id, generation, created_at) VALUES (2, 1, 33); \
     DELETE FROM unconverted_repositories WHERE project_id = 2;",
    "",
    "",
    "INSERT INTO project_members (project_id, user_id, access_level, created_at) VALUES (2, 1, 20, 40);",
    "INSERT INTO web_sessions (user_id, digest, created_at, last_used_at) VALUES (2, {digest2}, 50, 50);",
    "",
    "INSERT INTO nodes (id, name, version, addresses, state, started_at, heartbeat_at) VALUES \
     ('ab', 'road', '0.1.0', 'http://127.0.0.1:80', 'serving', 60, 60);",
    "INSERT INTO trace_objects (storage_id, created_at) VALUES ('0123456789abcdef', 60);",
    "",
];

/// What `gable migrate` says about the repository.
const CONVERSION: &str = "at the next start: repositories of an earlier version to convert: 1";

/// A commit status of the fourth version; later versions store it as a build.
const STATUS: &str = "INSERT INTO commit_statuses (project_id, sha, ref_name, name, status, description, author_id, created_at) \
     VALUES (1, '1111111111111111111111111111111111111111', 'master', 'survey', 'success', 'Flat', 2, 18);";

fn migrations(engine: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/migrations").join(engine);
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).expect("the migrations").map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    found
}

/// Returns the version of a migration.
fn version(migration: &Path) -> String {
    let name = migration.file_name().expect("a name").to_string_lossy().into_owned();
    name.split('_').next().expect("a number").replace('-', "")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// Creates the repository of the first project at the path that versions before the eighth used: the hash of the id.
fn create_repository(instance: &TestInstance) {
    let hash = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
    let folder = instance.data().join(format!("repositories/6b/86/{hash}.git"));
    fs::create_dir_all(&folder).expect("folders");
    git(&folder, &["init", "-q", "--bare", "--initial-branch=master"], b"");
    let tree = git(&folder, &["mktree"], b"").stdout;
    let tree = String::from_utf8(tree).expect("an id");
    let commit = git(&folder, &["commit-tree", "-m", "Begin", tree.trim()], b"").stdout;
    let commit = String::from_utf8(commit).expect("an id");
    git(&folder, &["update-ref", "refs/heads/master", commit.trim()], b"");
}

/// Creates a data folder with a database that was migrated up to the given version.
fn create_old_instance(instance: &TestInstance, number: usize) {
    let embedded = instance.database_url().is_none();
    fs::create_dir_all(instance.data().join("files/uploads/1")).expect("folders");
    fs::write(instance.data().join("files/uploads/1/1"), "map!").expect("written");
    create_repository(instance);
    let key = InstanceKey::generate(&SystemSecrets);
    fs::write(instance.data().join("instance-key"), key.to_text().reveal()).expect("written");
    // As the server creates them.
    fs::set_permissions(instance.data(), fs::Permissions::from_mode(0o700)).expect("permitted");
    fs::set_permissions(instance.data().join("instance-key"), fs::Permissions::from_mode(0o600)).expect("permitted");
    let blob =
        |bytes: &[u8]| if embedded { format!("X'{}'", hex(bytes)) } else { format!("'\\x{}'::bytea", hex(bytes)) };
    let encrypt = |plain: &str| blob(&key.encrypt(PROJECT, plain.as_bytes(), &SystemSecrets));
    let fill = |sql: &str| {
        sql.replace("{digest}", &blob(&Sha256::digest(ROOT_TOKEN.as_bytes())))
            .replace("{digest2}", &blob(&Sha256::digest(b"a session of ann")))
            .replace("{digest3}", &blob(&Sha256::digest(b"a token of ann")))
            .replace("{seed}", &blob(b"a seed of a road"))
            .replace("{seed2}", &blob(b"a seed of bridge"))
            .replace("{url}", &encrypt("https://example.org/hook"))
            .replace("{value}", &encrypt("two pence"))
            .replace("{pipeline}", "(SELECT max(id) FROM pipelines)")
    };
    instance.execute(
        "CREATE TABLE __diesel_schema_migrations (version VARCHAR(50) PRIMARY KEY NOT NULL, \
         run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)",
    );
    for (at, migration) in migrations(if embedded { "sqlite" } else { "postgres" }).iter().take(number).enumerate() {
        instance.execute(&fs::read_to_string(migration.join("up.sql")).expect("readable"));
        instance
            .execute(&format!("INSERT INTO __diesel_schema_migrations (version) VALUES ('{}')", version(migration)));
        instance.execute(&fill(ROWS[at]));
        if at == 3 {
            instance.execute(STATUS);
        }
    }
    if embedded {
        let database = instance.data().join("gable.sqlite3");
        fs::set_permissions(database, fs::Permissions::from_mode(0o600)).expect("permitted");
    }
}

fn list(root: &HttpClient, path: &str) -> Vec<Value> {
    let response = root.get(path);
    assert_eq!(response.status, 200, "{path}: {response}");
    response.json().as_array().cloned().unwrap_or_else(|| panic!("{path}: {response}"))
}

/// Checks that everything that the given version stored is there.
fn check_data(root: &HttpClient, number: usize) {
    let only = |path: &str| {
        let mut all = list(root, path);
        assert_eq!(all.len(), 1, "{path}: {all:?}");
        all.remove(0)
    };
    let users = list(root, "/api/v3/users");
    assert_eq!(users.len(), 2, "{users:?}");
    assert_eq!(list(root, "/api/v3/users?search=äther")[0]["name"], "Ann Äther");
    assert_eq!(only("/api/v3/users/2/keys")["title"], "laptop");
    assert_eq!(only("/api/v3/users/2/emails")["email"], "ann.home@example.org");
    assert!(list(root, "/api/v3/namespaces").len() >= 2);
    // Sessions that were marked by name are marked by a column.
    let sessions = list(root, "/api/v3/personal_access_tokens?user_id=2");
    let sessions: Vec<&Value> = sessions.iter().map(|token| &token["session"]).collect();
    assert_eq!(sessions, if number >= 9 { vec![&json!(false), &json!(true)] } else { vec![&json!(true)] });
    if number >= 3 {
        assert_eq!(only("/api/v3/groups")["name"], "Crew");
        assert_eq!(list(root, "/api/v3/projects/all").len(), 2);
        assert_eq!(only("/api/v3/projects/search/Road")["id"], 1);
        // Memberships of earlier versions are listed.
        assert_eq!(list(root, "/api/v3/projects").len(), if number >= 14 { 2 } else { 1 });
        let project = root.get("/api/v3/projects/1").json();
        assert_eq!((&project["star_count"], &project["description"]), (&json!(2), &json!("A long way")));
        assert_eq!(list(root, "/api/v3/projects/1/members").len(), 2);
        let file = root.get("/ann/road/uploads/0123456789abcdef0123456789abcdef/map.txt");
        assert_eq!((file.status, file.text.as_str()), (200, "map!"));
        assert_eq!(only("/api/v3/projects/1/repository/branches")["name"], "master");
        // Features of later versions work for old projects.
        assert_eq!(only("/api/v3/projects/1/boards")["lists"].as_array().map(Vec::len), Some(usize::from(number >= 5)));
        for part in ["issues", "labels", "milestones", "hooks", "variables", "pipelines", "builds", "events"] {
            list(root, &format!("/api/v3/projects/1/{part}"));
        }
        let issue = root.post("/api/v3/projects/1/issues", &json!({ "title": "new" }));
        assert_eq!((issue.status, &issue.json()["iid"]), (201, &json!(if number >= 5 { 3 } else { 1 })), "{issue}");
    }
    if number >= 4 {
        let pushed = list(root, "/api/v3/projects/1/events").into_iter().find(|event| !event["data"].is_null());
        assert_eq!(pushed.expect("the push")["data"]["commits"][0]["message"], "Begin");
        assert_eq!(root.get("/api/v3/projects/1").json()["forks_count"], 1);
        assert_eq!(only("/api/v3/projects/1/deploy_keys")["title"], "robot");
        // Commit statuses have become jobs of pipelines.
        let pipelines = list(root, "/api/v3/projects/1/pipelines");
        let old = pipelines.iter().find(|pipeline| pipeline["id"] == 1).expect("the pipeline of the status");
        assert_eq!((&old["status"], &old["ref"]), (&json!("success"), &json!("master")));
    }
    if number >= 5 {
        let issue = only("/api/v3/projects/1/issues?iid=1");
        assert_eq!((&issue["title"], &issue["user_notes_count"]), (&json!("A hole in the road"), &json!(1)));
        assert_eq!((&issue["labels"], &issue["milestone"]["title"]), (&json!(["Bug"]), &json!("Half way")));
        let label = only("/api/v3/projects/1/labels");
        assert_eq!((&label["open_issues_count"], &label["closed_issues_count"]), (&json!(1), &json!(1)));
        assert_eq!(list(root, "/api/v3/projects/1/issues/1/notes").len(), 2);
        assert_eq!(only("/api/v3/projects/1/milestones")["title"], "Half way");
    }
    if number >= 6 {
        assert_eq!(only("/api/v3/projects/1/hooks")["url"], "https://example.org/hook");
    }
    if number >= 7 {
        let variable = only("/api/v3/projects/1/variables");
        assert_eq!((&variable["key"], &variable["value"]), (&json!("TOLL"), &json!("two pence")));
        assert_eq!(only("/api/v3/projects/1/builds")["name"], "pave");
    }
}

#[test]
fn databases_of_all_earlier_versions_are_migrated_with_their_data() {
    let names: Vec<String> = migrations("sqlite")
        .iter()
        .map(|migration| migration.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    assert_eq!(names.len(), ROWS.len(), "add rows for the new version");
    let newest = version(migrations("sqlite").last().expect("one"));
    for number in 1..=names.len() {
        let instance = TestInstance::new();
        create_old_instance(&instance, number);
        let counted = instance.count("SELECT count(*) FROM __diesel_schema_migrations");
        let printed = instance.gable(&["migrate", "--dry-run"]).finish().succeeded();
        for name in &names[number..] {
            assert!(printed.contains(&format!("pending: {name}\n")), "{printed}");
        }
        assert!(!printed.contains(&format!("pending: {}", names[number - 1])), "{printed}");
        let verdict = if number < names.len() { "all pending migrations succeed" } else { "no pending migrations" };
        // The project of the repository exists since the third version.
        let conversion = if number >= 3 { format!("\n{CONVERSION}\n") } else { "\n".to_owned() };
        assert!(printed.ends_with(&format!("{verdict}{conversion}")), "{printed}");
        assert_eq!(
            instance.count("SELECT count(*) FROM __diesel_schema_migrations"),
            counted,
            "a dry run changes nothing"
        );
        // Both the command and the start of a server migrate.
        if number % 2 == 0 {
            instance.gable(&["migrate"]).finish().succeeded();
        }
        let server = instance.start();
        check_data(&server.root(), number);
        if number >= 4 {
            // Before the requester of an import was stored, the creator of the project was used.
            let requester = instance.count("SELECT requester_id FROM project_imports WHERE project_id = 1");
            assert_eq!(requester, if number >= 10 { 1 } else { 2 });
        }
        if number >= 3 {
            // Existing projects keep their storage ids, and new ones get random ones.
            assert_eq!(instance.storage_of(PROJECT), "1");
            let made = server.root().post("/api/v3/projects", &json!({ "name": "fresh" }));
            assert_eq!((made.status, &made.json()["id"]), (201, &json!(3)), "{made}");
            assert!(instance.storage_of(ProjectId::new(3)).len() >= 32, "{}", instance.storage_of(ProjectId::new(3)));
        }
        server.stop();
        assert_eq!(instance.count("SELECT count(*) FROM instance WHERE generation > 0 AND key_check IS NOT NULL"), 1);
        let copy = instance.data().join(format!("gable.sqlite3.before-{newest}"));
        let wanted = instance.database_url().is_none() && number < names.len();
        assert_eq!(copy.exists(), wanted, "version {number}");
        if wanted {
            let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&copy).expect("there").permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
        let examined = instance.gable(&["doctor"]).finish();
        assert!(
            examined.stdout.contains("ok       counters: all counters are correct"),
            "{}",
            examined.combined_output()
        );
        assert!(examined.stdout.contains("ok       database integrity"), "{}", examined.combined_output());
    }
}

#[test]
fn the_newest_two_copies_are_kept_and_can_be_used_again() {
    let instance = TestInstance::embedded();
    create_old_instance(&instance, 5);
    for old in ["20200101000001", "20200101000002", "20200101000003"] {
        fs::write(instance.data().join(format!("gable.sqlite3.before-{old}")), "old").expect("written");
    }
    let printed = instance.gable(&["migrate"]).finish().succeeded();
    assert!(printed.contains("a copy of the old database is in "), "{printed}");
    let mut copies: Vec<String> = fs::read_dir(instance.data())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("gable.sqlite3."))
        .collect();
    copies.sort();
    let newest = version(migrations("sqlite").last().expect("one"));
    assert_eq!(copies, ["gable.sqlite3.before-20200101000003".to_owned(), format!("gable.sqlite3.before-{newest}")]);
    assert_eq!(
        instance.gable(&["migrate"]).finish().succeeded(),
        format!("the database has version {newest}\nno pending migrations\n{CONVERSION}\n")
    );
    // Replacing the database by the copy undoes the migration.
    let copy = instance.data().join(format!("gable.sqlite3.before-{newest}"));
    fs::rename(copy, instance.data().join("gable.sqlite3")).expect("renamed");
    let printed = instance.gable(&["migrate", "--dry-run"]).finish().succeeded();
    assert!(printed.contains("pending: 2026-11-15-000006_hooks\n"), "{printed}");
}

#[test]
fn a_fresh_database_needs_no_copy_and_a_newer_one_is_refused() {
    let instance = TestInstance::new();
    instance.start().stop();
    let copies = fs::read_dir(instance.data()).expect("a folder").flatten();
    assert_eq!(copies.filter(|entry| entry.file_name().to_string_lossy().contains("before")).count(), 0);
    // A migration of a later version.
    instance.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('29991231000001')");
    for arguments in [&["migrate"][..], &["migrate", "--dry-run"]] {
        let refusal = instance.gable(arguments).finish().refused();
        assert!(refusal.contains("newer than this gable (it has migration 29991231000001)"), "{refusal}");
    }
    let examined = instance.gable(&["doctor"]).finish();
    assert_eq!(examined.status, Some(1), "{}", examined.combined_output());
    assert!(examined.stdout.contains("problem  database: the database is newer"), "{}", examined.combined_output());
}

#[test]
fn a_dry_run_without_an_instance_creates_nothing() {
    let instance = TestInstance::new();
    let refusal = instance.gable(&["migrate", "--dry-run"]).finish().refused();
    assert!(refusal.starts_with("no Gable instance in "), "{refusal}");
    assert!(!instance.data().exists());
    fs::create_dir(instance.data()).expect("a folder");
    let refusal = instance.gable(&["migrate", "--dry-run"]).finish().refused();
    assert!(refusal.starts_with("no Gable instance in "), "{refusal}");
    assert_eq!(fs::read_dir(instance.data()).expect("a folder").count(), 0, "not even a lock");
    if instance.database_url().is_some() {
        assert_eq!(instance.count("SELECT count(*) FROM pg_class WHERE relname = '__diesel_schema_migrations'"), 0);
    }
    fs::create_dir(instance.data().join(".restoring")).expect("a folder");
    let refusal = instance.gable(&["migrate", "--dry-run"]).finish().refused();
    assert!(refusal.contains("was interrupted; run it again"), "{refusal}");
}

#[test]
fn an_instance_with_refs_in_files_is_not_backed_up() {
    let instance = TestInstance::new();
    create_old_instance(&instance, 7);
    let file = instance.data().with_file_name("backup.tar").display().to_string();
    let refused = instance.gable(&["backup", "--quiet", &file]).finish().refused();
    let expected = "was last used by an earlier version of gable, which stored repositories differently; make the backup with that version";
    assert!(refused.contains(expected), "{refused}");
    assert_eq!(instance.count("SELECT count(*) FROM __diesel_schema_migrations"), 7, "nothing was migrated");
}
