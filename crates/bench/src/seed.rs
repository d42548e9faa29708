//! `cargo xtask seed`: a whole forge on disk, always the same for the same seed, to try and to measure things on.
//!
//! The rows are what the service itself would leave behind, written in one transaction with all triggers at work, so that
//! counters, ancestors and indexes are the service's own.

mod places;
pub(crate) mod repositories;
mod work;
pub(crate) mod world;

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Instant,
};

use diesel::connection::SimpleConnection as _;
use serde_json::{Value, json};
use store::{Conn, Database};

use crate::{
    Outcome,
    engine::Kind,
    town::{self, Dice},
};
pub(crate) use places::key_line;
pub(crate) use work::{LABELS, LISTS, YARD_LABELS, YARD_LISTS};
use world::World;

/// Microseconds since 1970, in the autumn of 2025.
const START: u64 = 1_760_000_000_000_000;
const MINUTE: u64 = 60_000_000;
/// To be raised with what is made, so that a data set of an older edition is not taken for one of this.
const EDITION: u64 = 1;
pub(crate) const PROJECTS: u64 = 10_000;
pub(crate) const SEED: u64 = 8;
/// What is noted of a data set that is no longer as it was made.
const SPOILED: &str = "spoiled";
/// Fewer would leave some of what is asked for without a place.
const FEWEST: u64 = 50;

/// What to make, and where.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) projects: u64,
    pub(crate) seed: u64,
    /// The URL of an empty PostgreSQL database; without one it is SQLite in the data folder.
    pub(crate) database: Option<String>,
}

impl Settings {
    /// Where it is noted what the folder holds.
    fn mark(&self) -> PathBuf {
        self.data.with_extension("seed.json")
    }

    /// What is noted.
    fn said(&self) -> Value {
        let Self { projects, seed, database, .. } = self;
        json!({ "edition": EDITION, "projects": projects, "seed": seed, "postgres": database.is_some() })
    }

    /// Notes that a run has left something behind, so that the next one does not stumble over it.
    pub(crate) fn spoil(&self) -> Outcome {
        let mark = self.mark();
        fs::write(&mark, format!("\"{SPOILED}\"\n"))
            .map_err(|error| format!("cannot write {}: {error}", mark.display()))
    }
}

/// Reads the flags and makes the data set.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let mut settings = Settings { data: PathBuf::new(), projects: PROJECTS, seed: SEED, database: database() };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{flag} needs a value"));
        let number = |text: &String| text.parse().map_err(|_| format!("{flag} takes a number, not {text}"));
        match flag.as_str() {
            "--data" => settings.data = value()?.into(),
            "--database" => settings.database = Some(value()?.clone()),
            "--projects" => settings.projects = number(value()?)?,
            "--seed" => settings.seed = number(value()?)?,
            other => return Err(format!("seed knows --data, --projects, --database and --seed, not {other}")),
        }
    }
    if settings.data.as_os_str().is_empty() {
        return Err("say where the data set shall be: --data DIR".into());
    }
    provide(&settings).map(drop)
}

/// Where PostgreSQL is, if a variable says so; a URL may hold a password, which does not belong into arguments.
pub(crate) fn database() -> Option<String> {
    std::env::var("GABLE_DATABASE").ok().filter(|url| !url.is_empty())
}

/// Makes the data set, unless it is there; answers what is in it.
pub(crate) fn provide(settings: &Settings) -> Outcome<World> {
    let Settings { data, projects, seed, database } = settings;
    if *projects < FEWEST {
        return Err(format!("a data set has at least {FEWEST} projects"));
    }
    let world = World::new(*projects, *seed);
    let (mark, said) = (settings.mark(), settings.said());
    if data.exists() {
        let found = fs::read_to_string(&mark).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let folder = data.display();
        match found {
            Some(found) if found == said => {
                eprintln!("{folder} is there already");
                return Ok(world);
            }
            Some(Value::String(note)) if note == SPOILED && database.is_none() => {
                eprintln!("{folder} holds what a run with errors left, and is made anew");
                fs::remove_dir_all(data).map_err(|error| format!("cannot remove {folder}: {error}"))?;
            }
            Some(Value::String(note)) if note == SPOILED => {
                return Err(format!("{folder} holds what a run with errors left; remove it and say an empty database"));
            }
            Some(found) => {
                return Err(format!("{folder} holds another data set: {found}; remove it or say another folder"));
            }
            None => return Err(format!("{folder} is there and was not made here; say another folder")),
        }
    }
    let before = Instant::now();
    // Made beside, so that a run that is broken off leaves nothing that looks whole.
    let unfinished = data.with_extension("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    make_folder(&unfinished)?;
    let database = match database {
        None => Database::sqlite(unfinished.join("gable.sqlite3")),
        Some(url) => Database::postgres(url).map_err(|error| error.to_string())?,
    };
    fill(&world, &unfinished, &database)?;
    fs::rename(&unfinished, data).map_err(|error| format!("cannot rename {}: {error}", unfinished.display()))?;
    fs::write(&mark, format!("{said}\n")).map_err(|error| format!("cannot write {}: {error}", mark.display()))?;
    let seconds = before.elapsed().as_secs_f64();
    eprintln!("{} holds {projects} projects now, made from seed {seed} in {seconds:.0} s", data.display());
    Ok(world)
}

fn fill(world: &World, data: &Path, database: &Database) -> Outcome {
    let key = work::instance_key(world.seed);
    write_secret(&data.join("instance-key"), &format!("{}\n", key.to_text().reveal()))?;
    if database.is_embedded() {
        write_secret(&data.join("gable.sqlite3"), "")?;
    }
    let histories = repositories::build(&data.join("repositories"), world)?;
    let kind = if database.is_embedded() { Kind::Sqlite } else { Kind::Postgres };
    let (mut rows, mut dice) = (Rows { kind, statements: Vec::new() }, Dice::new(world.seed));
    places::add_people(&mut rows, world, &mut dice)?;
    places::add_places(&mut rows, world, &mut dice, &key);
    // The repositories and uploads that are made here lie in places that are named by numbers.
    rows.statements.push("UPDATE project_storage SET storage_id = CAST(project_id AS TEXT)".into());
    work::add_issues(&mut rows, world, &mut dice);
    work::add_events(&mut rows, world, &mut dice, &histories);
    work::add_pipelines(&mut rows, world, &mut dice, &histories)?;
    work::add_hooks(&mut rows, world, &mut dice, &key)?;
    work::add_uploads(&mut rows, world, &mut dice, &data.join("files"))?;
    database.migrate().map_err(|error| error.to_string())?;
    let mut conn = database.connect_writer().map_err(|error| error.to_string())?;
    execute(&mut conn, &rows.statements)
}

/// Runs all statements in one transaction.
fn execute(conn: &mut Conn, statements: &[String]) -> Outcome {
    /// What was written with numbers of its own leaves the counters that give numbers behind.
    const COUNT_ON: &str = "DO $$ DECLARE t text; BEGIN FOR t IN SELECT table_name FROM information_schema.columns \
        WHERE table_schema = 'public' AND column_name = 'id' AND is_identity = 'YES' LOOP \
        EXECUTE format('SELECT setval(pg_get_serial_sequence(%L, ''id''), (SELECT coalesce(max(id), 0) + 1 FROM %I), false)', t, t); \
        END LOOP; END $$";
    let mut run = |statement: &str| {
        let ran = match conn {
            Conn::Sqlite(conn) => conn.batch_execute(statement),
            Conn::Pg(conn) => conn.batch_execute(statement),
        };
        ran.map_err(|error| format!("{error}, in {}", statement.chars().take(100).collect::<String>()))
    };
    run("BEGIN")?;
    for statement in statements {
        run(statement)?;
    }
    run("COMMIT")?;
    match conn {
        Conn::Sqlite(conn) => conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)"),
        Conn::Pg(conn) => conn.batch_execute(COUNT_ON).and_then(|()| conn.batch_execute("VACUUM ANALYZE")),
    }
    .map_err(|error| format!("cannot finish the database: {error}"))
}

/// The folder of a service, open to nobody else.
fn make_folder(path: &Path) -> Outcome {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| format!("cannot make {}: {error}", path.display()))
}

fn write_secret(path: &Path, content: &str) -> Outcome {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, content.as_bytes()));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Statements in the notation of an engine.
struct Rows {
    kind: Kind,
    statements: Vec<String>,
}

impl Rows {
    fn insert(&mut self, table: &str, columns: &str, rows: &[String]) {
        town::insert(&mut self.statements, table, columns, rows);
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        town::literal(self.kind, bytes)
    }
}

#[cfg(test)]
mod tests {
    use diesel::{QueryableByName, RunQueryDsl as _, sql_query, sql_types::Text};

    use super::*;

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

    /// Every row of every table, and every ref of every repository.
    fn dump(data: &Path, projects: u64) -> String {
        let mut conn = Database::sqlite(data.join("gable.sqlite3")).connect_reader().expect("the database is there");
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
        for project in 1..=projects {
            let place =
                crate::landscape::place_of(&data.join("repositories"), i64::try_from(project).expect("it is small"));
            if place.exists() {
                let refs = crate::landscape::git(&place, &["show-ref", "--head"]).expect("a repository has refs");
                text += &format!("{project}\n{}", String::from_utf8_lossy(&refs));
            }
        }
        text
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_and_the_same_objects_and_another_seed_does_not() {
        let folder = tempfile::tempdir().expect("there is room");
        let seeded = |name: &str, seed| {
            let data = folder.path().join(name);
            let settings = Settings { data: data.clone(), projects: FEWEST, seed, database: None };
            provide(&settings).expect("it can be made");
            (dump(&data, FEWEST), settings)
        };
        let ((once, settings), (again, _), (other, _)) = (seeded("once", 7), seeded("again", 7), seeded("other", 9));
        assert!(once == again, "the same seed makes something else");
        assert!(once != other);
        for (table, rows) in [("projects", 50), ("users", 51), ("issues", 100), ("boards", 50), ("pipelines", 150)] {
            assert!(once.contains(&format!("{table} {rows}\n")), "not {rows} {table}");
        }
        provide(&settings).expect("what is there is taken as it is");
        let refused = provide(&Settings { seed: 8, ..settings.clone() }).map(drop);
        assert!(refused.is_err_and(|sentence| sentence.contains("another data set")));
        fs::write(settings.data.join("left-behind"), "").expect("there is room");
        settings.spoil().expect("it can be noted");
        provide(&settings).expect("what was spoiled is made anew");
        assert!(!settings.data.join("left-behind").exists());
        assert!(dump(&settings.data, FEWEST) == once, "made anew it is something else");
    }

    #[test]
    fn counters_agree_with_what_they_count() {
        let folder = tempfile::tempdir().expect("there is room");
        let data = folder.path().join("data");
        provide(&Settings { data: data.clone(), projects: FEWEST, seed: 3, database: None }).expect("it can be made");
        let mut conn = Database::sqlite(data.join("gable.sqlite3")).connect_reader().expect("the database is there");
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
