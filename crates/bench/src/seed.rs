//! `cargo xtask seed`: a deterministic data folder for experiments and load tests.
//!
//! The rows are those that the server itself would write, inserted in one transaction with all triggers active, so that
//! counters, ancestors and indexes are up to date.

mod activity;
pub(crate) mod dataset;
pub(crate) mod repositories;
mod users_and_projects;

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow, bail};
use diesel::connection::SimpleConnection as _;
use serde_json::{Value, json};
use store::{Conn, Database};

use crate::{engine::EngineKind, rng::Rng, sql};
pub(crate) use activity::{BOARD_LISTS, LABELS, WRITE_PROJECT_LABELS, WRITE_PROJECT_LISTS};
use dataset::Dataset;
pub(crate) use users_and_projects::public_key_line;

/// The version of the content; increased with every change, so that older data sets are not reused.
const FORMAT_VERSION: u64 = 2;
pub(crate) const PROJECTS: u64 = 10_000;
pub(crate) const SEED: u64 = 8;
/// The marker of a data set that a failed run has changed.
const SPOILED: &str = "spoiled";
/// The minimum number of projects that the load test needs.
const MIN_PROJECTS: u64 = 50;

/// The data set to create, and where.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) projects: u64,
    pub(crate) seed: u64,
    /// The URL of an empty PostgreSQL database; by default, SQLite in the data folder.
    pub(crate) database: Option<String>,
}

impl Settings {
    /// Returns the path of the marker file, which describes the content of the folder.
    fn marker_path(&self) -> PathBuf {
        self.data.with_extension("seed.json")
    }

    /// Returns the content of the marker file.
    fn marker(&self) -> Value {
        let Self { projects, seed, database, .. } = self;
        json!({ "edition": FORMAT_VERSION, "projects": projects, "seed": seed, "postgres": database.is_some() })
    }

    /// Marks the data set as changed, so that the next run recreates it.
    pub(crate) fn mark_spoiled(&self) -> Result<()> {
        let marker_path = self.marker_path();
        fs::write(&marker_path, format!("\"{SPOILED}\"\n"))
            .with_context(|| format!("cannot write {}", marker_path.display()))
    }
}

/// Parses the flags and creates the data set.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut settings = Settings { data: PathBuf::new(), projects: PROJECTS, seed: SEED, database: database() };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().with_context(|| format!("{flag} needs a value"));
        let number = |text: &String| text.parse().map_err(|_| anyhow!("{flag} takes a number, not {text}"));
        match flag.as_str() {
            "--data" => settings.data = value()?.into(),
            "--database" => settings.database = Some(value()?.clone()),
            "--projects" => settings.projects = number(value()?)?,
            "--seed" => settings.seed = number(value()?)?,
            other => {
                bail!("unknown flag {other}; seed accepts --data, --projects, --database and --seed");
            }
        }
    }
    if settings.data.as_os_str().is_empty() {
        bail!("no folder for the data set; choose one with --data DIR");
    }
    open_or_create(&settings).map(drop)
}

/// Returns the URL of PostgreSQL from the environment; it may contain a password, which does not belong in arguments.
pub(crate) fn database() -> Option<String> {
    std::env::var("GABLE_DATABASE").ok().filter(|url| !url.is_empty())
}

/// Creates the data set unless it exists; returns its layout.
pub(crate) fn open_or_create(settings: &Settings) -> Result<Dataset> {
    let Settings { data, projects, seed, database } = settings;
    if *projects < MIN_PROJECTS {
        bail!("a data set has at least {MIN_PROJECTS} projects");
    }
    let dataset = Dataset::new(*projects, *seed);
    let (marker_path, marker) = (settings.marker_path(), settings.marker());
    if data.exists() {
        let found = fs::read_to_string(&marker_path).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let folder = data.display();
        match found {
            Some(found) if found == marker => {
                eprintln!("{folder} is up to date");
                return Ok(dataset);
            }
            Some(Value::String(note)) if note == SPOILED && database.is_none() => {
                eprintln!("{folder} was changed by a failed run; recreating it");
                fs::remove_dir_all(data).with_context(|| format!("cannot remove {folder}"))?;
            }
            Some(Value::String(note)) if note == SPOILED => {
                bail!("{folder} was changed by a failed run; remove it and pass an empty database");
            }
            Some(found) => {
                bail!("{folder} holds another data set: {found}; remove it or choose another folder");
            }
            None => bail!("{folder} exists and is not a data set; choose another folder"),
        }
    }
    let before = Instant::now();
    // Renamed when complete, so that an interrupted run leaves no partial data set.
    let unfinished = data.with_extension("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    create_folder(&unfinished)?;
    let database = match database {
        None => Database::sqlite(unfinished.join("gable.sqlite3")),
        Some(url) => Database::postgres(url)?,
    };
    fill(&dataset, &unfinished, &database)?;
    fs::rename(&unfinished, data).with_context(|| format!("cannot rename {}", unfinished.display()))?;
    fs::write(&marker_path, format!("{marker}\n"))
        .with_context(|| format!("cannot write {}", marker_path.display()))?;
    let seconds = before.elapsed().as_secs_f64();
    eprintln!("created {} with {projects} projects from seed {seed} in {seconds:.0} s", data.display());
    Ok(dataset)
}

fn fill(dataset: &Dataset, data: &Path, database: &Database) -> Result<()> {
    let key = activity::instance_key(dataset.seed);
    write_secret(&data.join("instance-key"), &format!("{}\n", key.to_text().reveal()))?;
    if database.is_in_data_folder() {
        write_secret(&data.join("gable.sqlite3"), "")?;
    }
    let (stored, histories) = repositories::build(data, dataset)?;
    let kind = if database.is_sqlite() { EngineKind::Sqlite } else { EngineKind::Postgres };
    let (mut rows, mut rng) = (SqlRows { kind, statements: Vec::new() }, Rng::new(dataset.seed));
    users_and_projects::add_users(&mut rows, dataset, &mut rng)?;
    users_and_projects::add_groups_and_projects(&mut rows, dataset, &mut rng, &key);
    // Repositories and uploads are stored by project id.
    rows.statements.push("UPDATE project_storage SET storage_id = CAST(project_id AS TEXT)".into());
    activity::add_issues(&mut rows, dataset, &mut rng);
    activity::add_events(&mut rows, dataset, &mut rng, &histories);
    activity::add_pipelines(&mut rows, dataset, &mut rng, &histories)?;
    activity::add_hooks(&mut rows, dataset, &mut rng, &key)?;
    activity::add_uploads(&mut rows, dataset, &mut rng, &data.join("files"))?;
    database.migrate()?;
    let mut conn = database.connect_writer()?;
    conn.begin_writing()?;
    execute(&mut conn, &rows.statements)?;
    stored.insert(&mut conn, dataset)?;
    conn.commit()?;
    finish(&mut conn)?;
    stored.fill_cache(dataset)
}

fn execute(conn: &mut Conn, statements: &[String]) -> Result<()> {
    for statement in statements {
        let ran = match conn {
            Conn::Sqlite(conn) => conn.batch_execute(statement),
            Conn::Pg(conn) => conn.batch_execute(statement),
        };
        ran.map_err(|error| anyhow!("{error}, in {}", statement.chars().take(100).collect::<String>()))?;
    }
    Ok(())
}

/// Brings the database into the state of one that has been in use.
fn finish(conn: &mut Conn) -> Result<()> {
    /// Advances the identity sequences past the ids that were inserted explicitly.
    const RESET_SEQUENCES: &str = "DO $$ DECLARE t text; BEGIN FOR t IN SELECT table_name FROM information_schema.columns \
        WHERE table_schema = 'public' AND column_name = 'id' AND is_identity = 'YES' LOOP \
        EXECUTE format('SELECT setval(pg_get_serial_sequence(%L, ''id''), (SELECT coalesce(max(id), 0) + 1 FROM %I), false)', t, t); \
        END LOOP; END $$";
    match conn {
        Conn::Sqlite(conn) => conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)"),
        Conn::Pg(conn) => conn.batch_execute(RESET_SEQUENCES).and_then(|()| conn.batch_execute("VACUUM ANALYZE")),
    }
    .context("cannot finish the database")
}

/// Creates a folder that only the current user can access.
fn create_folder(path: &Path) -> Result<()> {
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.with_context(|| format!("cannot create {}", path.display()))
}

fn write_secret(path: &Path, content: &str) -> Result<()> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, content.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// SQL statements for an engine.
struct SqlRows {
    kind: EngineKind,
    statements: Vec<String>,
}

impl SqlRows {
    fn insert(&mut self, table: &str, columns: &str, rows: &[String]) {
        sql::insert(&mut self.statements, table, columns, rows);
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        sql::bytes_literal(self.kind, bytes)
    }
}

#[cfg(test)]
mod tests {
    use diesel::{QueryableByName, RunQueryDsl as _, sql_query, sql_types::Text};

    use super::{dataset::RepositoryContent, *};

    #[derive(QueryableByName)]
    struct Line {
        #[diesel(sql_type = Text)]
        line: String,
    }

    fn lines(conn: &mut Conn, query: &str) -> Vec<String> {
        let Conn::Sqlite(conn) = conn else { panic!("the data set is in SQLite") };
        let found: Vec<Line> = sql_query(query).load(conn).unwrap_or_else(|error| panic!("{query}: {error}"));
        found.into_iter().map(|line| line.line).collect()
    }

    /// Returns every row of every table.
    fn dump(data: &Path) -> String {
        let mut conn = Database::sqlite(data.join("gable.sqlite3")).connect_reader().expect("the database exists");
        let tables = "SELECT name AS line FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
                      AND name NOT LIKE '\\_\\_%' ESCAPE '\\' AND name NOT LIKE '%\\_search%' ESCAPE '\\' \
                      AND name NOT LIKE '%\\_trigrams' ESCAPE '\\' ORDER BY 1";
        let mut text = String::new();
        for table in lines(&mut conn, tables) {
            let columns = lines(&mut conn, &format!("SELECT name AS line FROM pragma_table_info('{table}')"));
            let quoted: Vec<String> = columns.iter().map(|column| format!("quote({column})")).collect();
            let rows = lines(&mut conn, &format!("SELECT {} AS line FROM {table} ORDER BY 1", quoted.join("||','||")));
            text += &format!("{table} {}\n{}\n", rows.len(), rows.join("\n"));
        }
        text
    }

    #[test]
    fn data_depends_on_the_seed_only() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let seeded = |name: &str, seed| {
            let data = folder.path().join(name);
            let settings = Settings { data: data.clone(), projects: MIN_PROJECTS, seed, database: None };
            open_or_create(&settings).expect("created");
            (dump(&data), settings)
        };
        let ((once, settings), (again, _), (other, _)) = (seeded("once", 7), seeded("again", 7), seeded("other", 9));
        assert!(once == again, "the same seed gives different data");
        assert!(once != other);
        for (table, rows) in [("projects", 50), ("users", 51), ("issues", 100), ("boards", 50), ("pipelines", 150)] {
            assert!(once.contains(&format!("{table} {rows}\n")), "not {rows} {table}");
        }
        open_or_create(&settings).expect("reused");
        let refused = open_or_create(&Settings { seed: 8, ..settings.clone() }).map(drop);
        assert!(refused.is_err_and(|error| error.to_string().contains("another data set")));
        fs::write(settings.data.join("left-behind"), "").expect("a temporary folder");
        settings.mark_spoiled().expect("marked");
        open_or_create(&settings).expect("recreated");
        assert!(!settings.data.join("left-behind").exists());
        assert!(dump(&settings.data) == once, "recreated with different data");
    }

    #[test]
    fn repositories_are_complete() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("data");
        let settings = Settings { data: data.clone(), projects: MIN_PROJECTS, seed: 5, database: None };
        let dataset = open_or_create(&settings).expect("created");
        // The large repository, and the first one with each template.
        for project in [1, 2, 4, 6, 8].map(model::ProjectId::new) {
            let path = crate::large_repository::repository_path(&data.join("repositories"), project);
            crate::large_repository::git(&path, &["fsck", "--strict", "--full"]).expect("no errors");
            let mut conn = Database::sqlite(data.join("gable.sqlite3")).connect_reader().expect("the database exists");
            let repository = store::repositories::find(&mut conn, project).expect("readable").expect("a repository");
            let refs = store::repositories::refs(&mut conn, repository.id).expect("readable").expect("a repository");
            let listed = crate::large_repository::git(&path, &["for-each-ref", "--format=%(objectname) %(refname)"]);
            let expected: Vec<String> =
                refs.refs.iter().map(|found| format!("{} {}", found.target, found.name)).collect();
            assert_eq!(String::from_utf8_lossy(&listed.expect("refs")).lines().collect::<Vec<_>>(), expected);
        }
        let with_repository = dataset.projects.iter().filter(|seeded| seeded.content != RepositoryContent::Empty);
        let mut conn = Database::sqlite(data.join("gable.sqlite3")).connect_reader().expect("the database exists");
        let all = store::repositories::list(&mut conn, model::RepositoryId::new(0), 1000).expect("readable");
        assert_eq!(all.len(), with_repository.count());
        for repository in all {
            assert_eq!(store::packs::of_repository(&mut conn, repository.id).expect("readable").len(), 1);
        }
    }

    #[test]
    fn counters_agree_with_what_they_count() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("data");
        open_or_create(&Settings { data: data.clone(), projects: MIN_PROJECTS, seed: 3, database: None })
            .expect("created");
        let mut conn = Database::sqlite(data.join("gable.sqlite3")).connect_reader().expect("the database exists");
        let mut check = |query: &str| assert_eq!(lines(&mut conn, query), ["1"], "{query}");
        check("SELECT ((SELECT sum(amount) FROM project_counts) = (SELECT count(*) FROM projects)) || '' AS line");
        check("SELECT ((SELECT sum(star_count) FROM projects) = (SELECT count(*) FROM project_stars)) || '' AS line");
        check("SELECT ((SELECT sum(user_notes) FROM issues) = (SELECT count(*) FROM notes)) || '' AS line");
        check(
            "SELECT ((SELECT sum(open_issues + closed_issues) FROM labels) = (SELECT count(*) FROM issue_labels)) || '' \
             AS line",
        );
        assert_eq!(lines(&mut conn, "SELECT 'broken' AS line FROM pragma_foreign_key_check"), Vec::<String>::new());
    }
}
