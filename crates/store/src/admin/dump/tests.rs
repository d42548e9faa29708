//! Tests of copying a database; copies between engines are tested in `server/tests/it/admin/backup.rs`.

use std::path::Path;

use super::*;
use crate::{Conn, Database};

fn fresh(folder: &Path, name: &str) -> Database {
    let database = Database::sqlite(folder.join(name));
    database.migrate().expect("a fresh database takes all migrations");
    database
}

fn execute(database: &Database, sql: &str) {
    let Ok(Conn::Sqlite(mut conn)) = database.connect_writer() else { panic!("a connection") };
    diesel::connection::SimpleConnection::batch_execute(&mut conn, sql).expect(sql);
}

/// Returns all rows of all tables.
fn all_rows(database: &Database) -> Vec<(String, Vec<Row>)> {
    let mut snapshot = Snapshot::prepare(database).expect("a connection");
    snapshot.begin().expect("a snapshot");
    let tables = snapshot.tables().expect("tables");
    tables.iter().map(|table| (table.name.clone(), snapshot.rows(table, None, 1000).expect("rows"))).collect()
}

fn copy(from: &Database, to: &Database) {
    let mut snapshot = Snapshot::prepare(from).expect("a connection");
    snapshot.begin().expect("a snapshot");
    let mut loader = Loader::begin(to, &snapshot.migrations().expect("migrations")).expect("an empty database");
    for table in snapshot.tables().expect("tables") {
        let mut last: Option<Row> = None;
        loop {
            // Small batches, so that every table of more than two rows is read in several.
            let rows = snapshot.rows(&table, last.as_ref(), 2).expect("rows");
            let Some(newest) = rows.last().cloned() else { break };
            last = Some(newest);
            loader.load(&table.name, &table.columns, rows).expect("loaded");
        }
    }
    loader.finish(&snapshot.sequences().expect("sequences")).expect("finished");
}

const SAMPLE_ROWS: &str = "
    INSERT INTO users (id, username, name, email, search_text, password_hash, state, admin, external, can_create_group,
        projects_limit, skype, linkedin, twitter, website_url, created_at, updated_at)
    SELECT value, 'u' || value, 'Ünï ''\"' || value, value || '@example.org', 'u' || value, 'x', 'active', value = 1, 0,
        1, 10, '', '', '', '', 9007199254740993, -1 FROM json_each('[1,2,3,4,5]');
    INSERT INTO namespaces (kind, owner_id, name, path, full_path, created_at, updated_at, name_key, path_key)
    SELECT 'user', id, username, username, username, 1, 1, username, username FROM users;
    INSERT INTO projects (id, namespace_id, creator_id, name, path, name_key, path_key, search_text, visibility,
        issues_enabled, merge_requests_enabled, wiki_enabled, builds_enabled, snippets_enabled,
        container_registry_enabled, shared_runners_enabled, public_builds, only_allow_merge_if_build_succeeds,
        only_allow_merge_if_all_discussions_are_resolved, request_access_enabled, runners_seed, created_at, updated_at,
        last_activity_at)
    SELECT value, 1, 1, 'p' || value, 'p' || value, 'p' || value, 'p' || value, 'rocket ' || value, 20, 1, 1, 1, 1, 1,
        1, 1, 1, 0, 0, 0, X'00FF01', 1, 1, 1 FROM json_each('[1,2,3]');
    INSERT INTO project_stars (user_id, project_id, created_at) VALUES (1, 1, 1), (2, 1, 1), (3, 2, 1);
    INSERT INTO users (id, username, name, email, search_text, password_hash, state, admin, external, can_create_group,
        projects_limit, skype, linkedin, twitter, website_url, created_at, updated_at)
    VALUES (77, 'gone', '', 'gone@example.org', '', 'x', 'active', 0, 0, 1, 10, '', '', '', '', 1, 1);
    DELETE FROM users WHERE id = 77;
";

#[test]
fn a_copy_has_the_same_rows_counters_search_results_and_next_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = fresh(folder.path(), "from");
    execute(&from, SAMPLE_ROWS);
    let to = Database::sqlite(folder.path().join("to"));
    copy(&from, &to);
    assert_eq!(all_rows(&from), all_rows(&to));
    let mut db = to.connect_writer().expect("a connection");
    let stars = statement::query_integer(&mut db, "SELECT star_count FROM projects WHERE id = 1").expect("a number");
    assert_eq!(stars, 2, "counted once");
    let found = "SELECT count(*) FROM project_search WHERE project_search MATCH '\"rocket\"'";
    assert_eq!(statement::query_integer(&mut db, found).expect("a number"), 3, "the search index is rebuilt");
    let next = "SELECT seq + 1 FROM sqlite_sequence WHERE name = 'users'";
    assert_eq!(statement::query_integer(&mut db, next).expect("a number"), 78, "an id is never assigned twice");
    // The triggers that maintain counters are restored.
    execute(&to, "INSERT INTO project_stars (user_id, project_id, created_at) VALUES (4, 1, 1)");
    let stars = statement::query_integer(&mut db, "SELECT star_count FROM projects WHERE id = 1").expect("a number");
    assert_eq!(stars, 3);
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
    let trigger_count = |database: &Database| {
        statement::query_integer(&mut database.connect_writer().expect("a connection"), triggers).expect("a number")
    };
    assert_eq!(trigger_count(&from), trigger_count(&to));
}

#[test]
fn a_dangling_reference_and_a_database_with_tables_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = fresh(folder.path(), "taken");
    let migrations: Vec<String> = crate::database::known_versions().into_iter().collect();
    let refused = Loader::begin(&taken, &migrations).err().expect("refused").to_string();
    assert_eq!(refused, "the database is not empty; create a new one and use that");
    let to = Database::sqlite(folder.path().join("to"));
    let mut loader = Loader::begin(&to, &migrations).expect("an empty database");
    let columns = ["user_id", "project_id", "created_at"].map(ToOwned::to_owned);
    let star = vec![Value::Integer(1), Value::Integer(1), Value::Integer(1)];
    loader.load("project_stars", &columns, vec![star]).expect("loaded");
    let refused = loader.finish(&[]).expect_err("refused").to_string();
    assert_eq!(refused, "cannot load the rows of project_stars: a row refers to a missing row");
}

#[test]
fn an_older_copy_is_brought_up_to_date_and_a_newer_one_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = Database::sqlite(folder.path().join("to"));
    let mut migrations: Vec<String> = crate::database::known_versions().into_iter().collect();
    migrations.truncate(2);
    let loader = Loader::begin(&to, &migrations).expect("an empty database");
    loader.finish(&[]).expect("finished");
    to.check_version().expect("up to date");
    migrations.push("20990101000000".into());
    let newer = Database::sqlite(folder.path().join("newer"));
    let refused = Loader::begin(&newer, &migrations).err().expect("refused").to_string();
    assert_eq!(refused, "it was made by a newer gable (it has migration 20990101000000); use that one, or a newer one");
}

#[test]
fn a_database_with_only_an_empty_migrations_table_is_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = fresh(folder.path(), "source.sqlite3");
    execute(&source, SAMPLE_ROWS);
    let target = Database::sqlite(folder.path().join("target.sqlite3"));
    let table = "CREATE TABLE __diesel_schema_migrations (version VARCHAR(50) PRIMARY KEY NOT NULL, \
                 run_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)";
    execute(&target, table);
    copy(&source, &target);
    assert!(all_rows(&target) == all_rows(&source), "all rows are there");
    let begun = Database::sqlite(folder.path().join("begun.sqlite3"));
    execute(&begun, &format!("{table}; INSERT INTO __diesel_schema_migrations (version) VALUES ('1')"));
    let refused = Loader::begin(&begun, &[]).err().expect("refused").to_string();
    assert_eq!(refused, "the database is not empty; create a new one and use that");
}

#[test]
fn packs_without_files_are_forgotten_with_the_repositories_that_need_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = fresh(folder.path(), "from");
    execute(&from, SAMPLE_ROWS);
    // Project 1 needs the pack `a`, project 2 has replaced it, and project 3 does not have it.
    execute(
        &from,
        "UPDATE projects SET default_branch = 'master';
         INSERT INTO repositories (id, project_id, created_at) VALUES (1, 1, 1), (2, 2, 1), (3, 3, 1);
         INSERT INTO refs (repository_id, name, target) SELECT id, 'refs/heads/master', 'x' FROM repositories;
         INSERT INTO packs (id, file_key, checksum, bytes, objects, created_at) VALUES
             (1, 'packs/a', 'a', 1, 1, 1), (2, 'packs/b', 'b', 1, 1, 1);
         INSERT INTO repository_packs (repository_id, pack_id, dead_since) VALUES
             (1, 1, NULL), (1, 2, NULL), (2, 1, 1), (2, 2, NULL), (3, 2, NULL)",
    );
    let to = Database::sqlite(folder.path().join("to"));
    let mut snapshot = Snapshot::prepare(&from).expect("a connection");
    snapshot.begin().expect("a snapshot");
    let mut loader = Loader::begin(&to, &snapshot.migrations().expect("migrations")).expect("an empty database");
    for table in snapshot.tables().expect("tables") {
        loader.load(&table.name, &table.columns, snapshot.rows(&table, None, 1000).expect("rows")).expect("loaded");
    }
    loader.forget_packs(&["packs/a".to_owned()]).expect("forgotten");
    loader.finish(&snapshot.sequences().expect("sequences")).expect("no dangling references");
    let mut db = to.connect_writer().expect("a connection");
    let mut number = |sql: &str| statement::query_integer(&mut db, sql).expect(sql);
    assert_eq!(number("SELECT sum(project_id * 10 + id) FROM repositories"), 22 + 33);
    assert_eq!(number("SELECT count(*) FROM refs"), 2);
    assert_eq!(number("SELECT sum(repository_id * 10 + pack_id) FROM repository_packs"), 22 + 32);
    assert_eq!(number("SELECT id FROM projects WHERE default_branch IS NULL"), 1);
}

#[test]
fn packs_are_listed_by_key_and_without_those_of_no_repository() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = fresh(folder.path(), "database");
    execute(&database, SAMPLE_ROWS);
    let checksum = "1".repeat(40);
    execute(
        &database,
        &format!(
            "INSERT INTO repositories (id, project_id, created_at) VALUES (1, 1, 1);
             UPDATE projects SET default_branch = 'master' WHERE id < 3;
             INSERT INTO packs (id, file_key, checksum, bytes, objects, created_at) VALUES
                 (1, 'packs/b', '{checksum}', 7, 1, 1), (2, 'packs/a', '{checksum}', 8, 1, 1),
                 (3, 'packs/c', '{checksum}', 9, 1, 1);
             INSERT INTO repository_packs (repository_id, pack_id, dead_since) VALUES (1, 1, NULL), (1, 2, 1)"
        ),
    );
    let mut snapshot = Snapshot::prepare(&database).expect("a connection");
    snapshot.begin().expect("a snapshot");
    assert!(snapshot.has_repositories().expect("asked"));
    let pack = |key: &str, size: u64| DumpedPack {
        key: key.to_owned(),
        checksum: checksum.parse().expect("a checksum"),
        size,
    };
    assert_eq!(snapshot.packs("", 10).expect("packs"), [pack("packs/a", 8), pack("packs/b", 7)]);
    assert_eq!(snapshot.packs("packs/a", 1).expect("packs"), [pack("packs/b", 7)]);
    assert_eq!(snapshot.projects_without_repository().expect("projects"), [model::ProjectId::new(2)]);
}
