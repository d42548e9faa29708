//! Whether what is stored agrees with itself, for whoever looks after an instance: nothing here is asked in the course of a
//! request, so it may take its time.

use diesel::{
    ExpressionMethods as _, OptionalExtension as _, QueryDsl as _, QueryableByName, RunQueryDsl as _,
    connection::SimpleConnection as _,
    sql_types::{BigInt, Binary, Nullable, Text},
};
use model::Time;

use crate::{Conn, Result, conn::on, schema::project_storage, times::from_micros};

/// How many faults of one kind are told.
const TOLD: usize = 20;

/// Something that is counted where it is written, and could be counted anew.
struct Counter {
    what: &'static str,
    /// How many are wrong.
    wrong: &'static str,
    /// Counts them anew.
    right: &'static [&'static str],
}

/// The parts of a counter of issues: how it is called, and which issues it counts.
macro_rules! of_issues {
    ($counted:literal, $from:literal) => {
        concat!(
            "(SELECT count(*) FROM ",
            $from,
            " AND NOT i.closed) AS open_issues, ",
            "(SELECT count(*) FROM ",
            $from,
            " AND i.closed) AS closed_issues, ",
            "(SELECT count(*) FROM ",
            $from,
            " AND i.confidential AND NOT i.closed) AS open_confidential, ",
            "(SELECT count(*) FROM ",
            $from,
            " AND i.confidential AND i.closed) AS closed_confidential ",
            "FROM ",
            $counted
        )
    };
}

macro_rules! differ {
    () => {
        "t.open_issues <> r.open_issues OR t.closed_issues <> r.closed_issues \
         OR t.open_confidential <> r.open_confidential OR t.closed_confidential <> r.closed_confidential"
    };
}

macro_rules! take_over {
    () => {
        "open_issues = r.open_issues, closed_issues = r.closed_issues, \
         open_confidential = r.open_confidential, closed_confidential = r.closed_confidential"
    };
}

/// Where all is being removed, nobody counts any more; so only projects that are there are looked at.
const COUNTERS: &[Counter] = &[
    Counter {
        what: "projects on each shelf",
        wrong: "SELECT count(*) AS n FROM project_counts t WHERE amount <> (SELECT count(*) FROM projects p \
                WHERE p.deleted_at IS NULL AND p.visibility = t.visibility AND p.archived = t.archived \
                AND p.id & 7 = t.stripe)",
        right: &["UPDATE project_counts SET amount = (SELECT count(*) FROM projects p \
                  WHERE p.deleted_at IS NULL AND p.visibility = project_counts.visibility \
                  AND p.archived = project_counts.archived AND p.id & 7 = project_counts.stripe)"],
    },
    Counter {
        what: "personal projects of users",
        wrong: "SELECT count(*) AS n FROM users t WHERE personal_projects <> (SELECT count(*) FROM projects p \
                JOIN namespaces s ON s.id = p.namespace_id WHERE s.owner_id = t.id)",
        right: &["UPDATE users SET personal_projects = (SELECT count(*) FROM projects p \
                  JOIN namespaces s ON s.id = p.namespace_id WHERE s.owner_id = users.id)"],
    },
    Counter {
        what: "stars of projects",
        wrong: "SELECT count(*) AS n FROM projects t WHERE deleted_at IS NULL \
                AND star_count <> (SELECT count(*) FROM project_stars s WHERE s.project_id = t.id)",
        right: &["UPDATE projects SET star_count = (SELECT count(*) FROM project_stars s \
                  WHERE s.project_id = projects.id) WHERE deleted_at IS NULL"],
    },
    Counter {
        what: "forks of projects",
        wrong: "SELECT count(*) AS n FROM projects t WHERE deleted_at IS NULL \
                AND forks_count <> (SELECT count(*) FROM fork_links l WHERE l.source_id = t.id)",
        right: &["UPDATE projects SET forks_count = (SELECT count(*) FROM fork_links l \
                  WHERE l.source_id = projects.id) WHERE deleted_at IS NULL"],
    },
    Counter {
        what: "issues of projects",
        wrong: concat!(
            "SELECT count(*) AS n FROM issue_books t JOIN (SELECT b.project_id AS id, ",
            of_issues!("issue_books b", "issues i WHERE i.project_id = b.project_id"),
            ") r ON r.id = t.project_id JOIN projects p ON p.id = t.project_id WHERE p.deleted_at IS NULL AND (",
            differ!(),
            ")"
        ),
        right: &[concat!(
            "UPDATE issue_books SET ",
            take_over!(),
            " FROM (SELECT b.project_id AS id, ",
            of_issues!("issue_books b", "issues i WHERE i.project_id = b.project_id"),
            ") r WHERE r.id = issue_books.project_id"
        )],
    },
    Counter {
        what: "numbers given to issues and milestones",
        wrong: "SELECT count(*) AS n FROM issue_books t WHERE \
                last_issue < (SELECT coalesce(max(iid), 0) FROM issues i WHERE i.project_id = t.project_id) OR \
                last_milestone < (SELECT coalesce(max(iid), 0) FROM milestones m WHERE m.project_id = t.project_id)",
        right: &[
            "UPDATE issue_books SET last_issue = (SELECT max(iid) FROM issues i \
             WHERE i.project_id = issue_books.project_id) \
             WHERE last_issue < (SELECT max(iid) FROM issues i WHERE i.project_id = issue_books.project_id)",
            "UPDATE issue_books SET last_milestone = (SELECT max(iid) FROM milestones m \
             WHERE m.project_id = issue_books.project_id) \
             WHERE last_milestone < (SELECT max(iid) FROM milestones m WHERE m.project_id = issue_books.project_id)",
        ],
    },
    Counter {
        what: "what is copied beside the labels of issues",
        wrong: "SELECT count(*) AS n FROM issue_labels t JOIN issues i ON i.id = t.issue_id \
                JOIN projects p ON p.id = i.project_id WHERE p.deleted_at IS NULL AND (t.closed <> i.closed \
                OR t.confidential <> i.confidential OR coalesce(t.milestone_id, 0) <> coalesce(i.milestone_id, 0) \
                OR t.created_at <> i.created_at OR t.updated_at <> i.updated_at)",
        right: &["UPDATE issue_labels SET closed = i.closed, confidential = i.confidential, \
                  milestone_id = i.milestone_id, created_at = i.created_at, updated_at = i.updated_at \
                  FROM issues i WHERE i.id = issue_labels.issue_id"],
    },
    Counter {
        what: "issues of labels",
        wrong: concat!(
            "SELECT count(*) AS n FROM labels t JOIN (SELECT l.id AS id, ",
            of_issues!("labels l", "issue_labels x JOIN issues i ON i.id = x.issue_id WHERE x.label_id = l.id"),
            ") r ON r.id = t.id JOIN projects p ON p.id = t.project_id WHERE p.deleted_at IS NULL AND (",
            differ!(),
            ")"
        ),
        right: &[concat!(
            "UPDATE labels SET ",
            take_over!(),
            " FROM (SELECT l.id AS id, ",
            of_issues!("labels l", "issue_labels x JOIN issues i ON i.id = x.issue_id WHERE x.label_id = l.id"),
            ") r WHERE r.id = labels.id"
        )],
    },
    Counter {
        what: "notes of issues",
        wrong: "SELECT count(*) AS n FROM issues t JOIN projects p ON p.id = t.project_id WHERE p.deleted_at IS NULL \
                AND user_notes <> (SELECT count(*) FROM notes x WHERE x.issue_id = t.id AND NOT x.system)",
        right: &["UPDATE issues SET user_notes = (SELECT count(*) FROM notes x \
                  WHERE x.issue_id = issues.id AND NOT x.system)"],
    },
];

/// What only SQLite keeps by itself: PostgreSQL searches in the rows.
const SEARCHES: &[Counter] = &[
    Counter {
        what: "projects that searches find",
        wrong: "SELECT count(*) AS n FROM projects WHERE id NOT IN (SELECT id FROM project_search_docsize)",
        right: &["INSERT INTO project_search (rowid, text) SELECT id, search_text FROM projects \
                  WHERE id NOT IN (SELECT id FROM project_search_docsize)"],
    },
    Counter {
        what: "namespaces that searches find",
        wrong: "SELECT count(*) AS n FROM namespaces WHERE id NOT IN (SELECT id FROM namespace_search_docsize)",
        right: &["INSERT INTO namespace_search (rowid, name) SELECT id, name_key FROM namespaces \
                  WHERE id NOT IN (SELECT id FROM namespace_search_docsize)"],
    },
    Counter {
        what: "issues that searches find",
        wrong: "SELECT count(*) AS n FROM issue_texts WHERE issue_id NOT IN (SELECT id FROM issue_search_docsize)",
        right: &["INSERT INTO issue_search (rowid, text) SELECT issue_id, search_text FROM issue_texts \
                  WHERE issue_id NOT IN (SELECT id FROM issue_search_docsize)"],
    },
];

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    line: String,
}

fn number(db: &mut Conn, sql: &str) -> Result<i64> {
    let row: Number = on!(db, conn => diesel::sql_query(sql).get_result(conn))?;
    Ok(row.n)
}

fn lines(db: &mut Conn, sql: &str) -> Result<Vec<String>> {
    let rows: Vec<Line> = on!(db, conn => diesel::sql_query(sql).load(conn))?;
    Ok(rows.into_iter().map(|row| row.line).take(TOLD).collect())
}

/// Lets statements of this connection take as long as they need; a request has a minute at most.
pub fn take_time(db: &mut Conn) -> Result<()> {
    match db {
        Conn::Sqlite(_) => Ok(()),
        Conn::Pg(conn) => Ok(conn.batch_execute("SET statement_timeout = 0; SET lock_timeout = 0")?),
    }
}

/// What is wrong with the database itself, in words; nothing if all is well.
pub fn integrity(db: &mut Conn) -> Result<Vec<String>> {
    match db {
        Conn::Sqlite(_) => {
            let mut faults =
                lines(db, "SELECT integrity_check AS line FROM pragma_integrity_check WHERE integrity_check <> 'ok'")?;
            faults.extend(lines(
                db,
                "SELECT 'row ' || coalesce(rowid, '?') || ' of ' || \"table\" || ' leads to ' || parent \
                 || ', where nothing is' AS line FROM pragma_foreign_key_check",
            )?);
            Ok(faults)
        }
        // References are enforced there, unless somebody has switched that off.
        Conn::Pg(_) => lines(
            db,
            "SELECT 'the constraint ' || conname || ' was never checked' AS line FROM pg_constraint \
             WHERE NOT convalidated AND connamespace = current_schema()::regnamespace \
             UNION ALL SELECT 'the trigger ' || tgname || ' is switched off' FROM pg_trigger t \
             JOIN pg_class c ON c.oid = t.tgrelid \
             WHERE tgenabled = 'D' AND c.relnamespace = current_schema()::regnamespace \
             UNION ALL SELECT 'the index ' || c.relname || ' is not valid' FROM pg_index i \
             JOIN pg_class c ON c.oid = i.indexrelid \
             WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace",
        ),
    }
}

fn counters(db: &Conn) -> impl Iterator<Item = &'static Counter> + use<> {
    let searches = if matches!(db, Conn::Sqlite(_)) { SEARCHES } else { &[] };
    COUNTERS.iter().chain(searches)
}

/// The counters that do not agree with what they count, and how many rows of each are wrong.
pub fn wrong_counters(db: &mut Conn) -> Result<Vec<(&'static str, i64)>> {
    let mut wrong = Vec::new();
    for counter in counters(db) {
        let rows = number(db, counter.wrong)?;
        if rows > 0 {
            wrong.push((counter.what, rows));
        }
    }
    Ok(wrong)
}

/// Counts everything anew; nobody else writes meanwhile.
pub fn recount(db: &mut Conn) -> Result<()> {
    if let Conn::Pg(conn) = db {
        conn.batch_execute(
            "LOCK TABLE projects, users, project_stars, fork_links, issues, issue_books, labels, issue_labels, notes, \
             project_counts IN SHARE ROW EXCLUSIVE MODE",
        )?;
    }
    for counter in counters(db) {
        if number(db, counter.wrong)? > 0 {
            for statement in counter.right {
                on!(db, conn => diesel::sql_query(*statement).execute(conn))?;
            }
        }
    }
    Ok(())
}

/// The latest moment of which the database knows.
pub fn newest_moment(db: &mut Conn) -> Result<Option<Time>> {
    let newest = number(
        db,
        "SELECT coalesce(max(t), 0) AS n FROM (SELECT max(created_at) AS t FROM users \
         UNION ALL SELECT max(last_activity_at) FROM projects UNION ALL SELECT max(created_at) FROM events \
         UNION ALL SELECT max(created_at) FROM tokens UNION ALL SELECT max(last_used_at) FROM tokens) x",
    )?;
    Ok((newest > 0).then(|| from_micros(newest)))
}

/// A project, as far as its repository is concerned.
#[derive(QueryableByName)]
pub struct ProjectRow {
    /// Its number.
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    /// The branch that HEAD names, once there is one.
    #[diesel(sql_type = Nullable<Text>)]
    pub default_branch: Option<String>,
    /// Zero unless it is being removed.
    #[diesel(sql_type = BigInt)]
    buried: i64,
    /// Where its repository lies.
    #[diesel(sql_type = Text)]
    pub storage: String,
}

impl ProjectRow {
    /// Whether it is being removed.
    pub fn is_buried(&self) -> bool {
        self.buried != 0
    }
}

/// Projects by number, those that are being removed included.
pub fn projects(db: &mut Conn, after: i64, most: i64) -> Result<Vec<ProjectRow>> {
    let sql = format!(
        "SELECT p.id, p.default_branch, CAST(CASE WHEN p.deleted_at IS NULL THEN 0 ELSE 1 END AS BIGINT) AS buried, \
         s.storage_id AS storage FROM projects p JOIN project_storage s ON s.project_id = p.id \
         WHERE p.id > {after} ORDER BY p.id LIMIT {most}"
    );
    Ok(on!(db, conn => diesel::sql_query(sql).load(conn))?)
}

/// Rows that stand for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Files that were sent to projects.
    Uploads,
    /// Files that jobs left behind.
    Artifacts,
    /// What jobs said.
    Traces,
}

/// A row that stands for a file that is whole.
#[derive(QueryableByName)]
pub struct KeptRow {
    /// Its number.
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    /// Its project.
    #[diesel(sql_type = BigInt)]
    pub project: i64,
    /// Where the files of the project lie.
    #[diesel(sql_type = Text)]
    pub storage: String,
    /// How many bytes there are at least.
    #[diesel(sql_type = BigInt)]
    pub size: i64,
    /// What people call it.
    #[diesel(sql_type = Text)]
    pub name: String,
}

/// Rows by number whose files are whole.
pub fn kept(db: &mut Conn, what: Kept, after: i64, most: i64) -> Result<Vec<KeptRow>> {
    let sql = match what {
        Kept::Uploads => {
            "SELECT f.id, f.project_id AS project, s.storage_id AS storage, coalesce(f.size, 0) AS size, f.name \
             FROM uploads f JOIN project_storage s ON s.project_id = f.project_id WHERE f.complete AND f.id"
        }
        Kept::Artifacts => {
            "SELECT f.id, f.project_id AS project, s.storage_id AS storage, coalesce(f.size, 0) AS size, f.name \
             FROM build_artifacts f JOIN project_storage s ON s.project_id = f.project_id \
             WHERE f.size IS NOT NULL AND f.id"
        }
        Kept::Traces => {
            "SELECT b.id, b.project_id AS project, s.storage_id AS storage, r.trace_size - r.trace_held AS size, b.name \
             FROM build_runs r JOIN builds b ON b.id = r.build_id JOIN project_storage s ON s.project_id = b.project_id \
             WHERE r.trace_size > r.trace_held AND b.id"
        }
    };
    let sql = format!("{sql} > {after} ORDER BY 1 LIMIT {most}");
    Ok(on!(db, conn => diesel::sql_query(sql).load(conn))?)
}

/// Which of these numbers have a row, whether or not its file is whole.
pub fn still_there(db: &mut Conn, what: Kept, ids: &[i64]) -> Result<Vec<i64>> {
    rows_among(db, what, ids, "")
}

/// Which of these numbers have a row of a project, whether or not its file is whole.
pub fn known(db: &mut Conn, what: Kept, project: i64, ids: &[i64]) -> Result<Vec<i64>> {
    rows_among(db, what, ids, &format!(" AND project_id = {project}"))
}

/// The project whose files lie in a place.
pub fn project_at(db: &mut Conn, storage: &str) -> Result<Option<i64>> {
    Ok(on!(db, conn => project_storage::table
        .filter(project_storage::storage_id.eq(storage))
        .select(project_storage::project_id)
        .first(conn)
        .optional())?)
}

fn rows_among(db: &mut Conn, what: Kept, ids: &[i64], further: &str) -> Result<Vec<i64>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let table = table_of(what);
    let sql = format!("SELECT id AS n FROM {table} WHERE id IN ({}){further}", list(ids));
    let rows: Vec<Number> = on!(db, conn => diesel::sql_query(sql).load(conn))?;
    Ok(rows.into_iter().map(|row| row.n).collect())
}

fn table_of(what: Kept) -> &'static str {
    match what {
        Kept::Uploads => "uploads",
        Kept::Artifacts => "build_artifacts",
        Kept::Traces => "builds",
    }
}

/// Forgets that there were files of these numbers.
pub fn forget(db: &mut Conn, what: Kept, ids: &[i64]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids = list(ids);
    let sql = match what {
        Kept::Uploads => format!("DELETE FROM uploads WHERE id IN ({ids})"),
        Kept::Artifacts => format!("DELETE FROM build_artifacts WHERE id IN ({ids})"),
        Kept::Traces => format!("UPDATE build_runs SET trace_size = 0, trace_held = 0 WHERE build_id IN ({ids})"),
    };
    on!(db, conn => diesel::sql_query(sql).execute(conn))?;
    Ok(())
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Where something is sealed with the key of the instance: in words, and how it is read.
const SEALED: &[(&str, &str)] = &[
    ("variables of projects", "SELECT id, project_id AS project, value AS sealed FROM ci_variables WHERE id"),
    ("addresses of hooks", "SELECT id, coalesce(project_id, 0) AS project, url AS sealed FROM hooks WHERE id"),
    (
        "tokens of hooks",
        "SELECT id, coalesce(project_id, 0) AS project, token AS sealed FROM hooks WHERE token IS NOT NULL AND id",
    ),
    (
        "variables that triggers gave along",
        "SELECT id, project_id AS project, variables AS sealed FROM pipelines WHERE variables IS NOT NULL AND id",
    ),
    (
        "credentials of imports",
        "SELECT project_id AS id, project_id AS project, credentials AS sealed FROM project_imports \
         WHERE credentials IS NOT NULL AND project_id",
    ),
];

/// Something that is sealed. It does not print.
#[derive(QueryableByName)]
pub struct SealedRow {
    /// The number of its row.
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    /// For which project it was sealed; zero for none.
    #[diesel(sql_type = BigInt)]
    pub project: i64,
    /// What is sealed.
    #[diesel(sql_type = Binary)]
    pub sealed: Vec<u8>,
}

/// What kinds of things are sealed.
pub fn sealed_kinds() -> impl Iterator<Item = &'static str> {
    SEALED.iter().map(|(what, _)| *what)
}

/// Things of a kind that are sealed, by number.
pub fn sealed(db: &mut Conn, kind: usize, after: i64, most: i64) -> Result<Vec<SealedRow>> {
    let Some((_, sql)) = SEALED.get(kind) else { return Ok(Vec::new()) };
    let sql = format!("{sql} > {after} ORDER BY 1 LIMIT {most}");
    Ok(on!(db, conn => diesel::sql_query(sql).load(conn))?)
}

/// A seed of a runner, and how the token is recognised that was made from it.
#[derive(QueryableByName)]
pub struct SeedRow {
    /// The seed.
    #[diesel(sql_type = Binary)]
    pub seed: Vec<u8>,
    /// The digest of the token.
    #[diesel(sql_type = Binary)]
    pub digest: Vec<u8>,
}

/// A few seeds of runners, to see whether the key of the instance makes the same tokens of them as before.
pub fn seeds(db: &mut Conn, most: i64) -> Result<Vec<SeedRow>> {
    let sql = format!("SELECT seed, digest FROM runners ORDER BY id DESC LIMIT {most}");
    Ok(on!(db, conn => diesel::sql_query(sql).load(conn))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;

    #[test]
    fn a_fresh_database_agrees_with_itself_and_every_statement_is_understood() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = Database::sqlite(folder.path().join("test.sqlite3"));
        database.migrate().expect("migrated");
        let mut db = database.connect_writer().expect("a connection");
        take_time(&mut db).expect("asked");
        assert_eq!(integrity(&mut db).expect("asked"), [] as [&str; 0]);
        assert_eq!(wrong_counters(&mut db).expect("asked"), []);
        for counter in counters(&db) {
            for statement in counter.right {
                on!(&mut db, conn => diesel::sql_query(*statement).execute(conn)).expect(statement);
            }
        }
        assert!(newest_moment(&mut db).expect("asked").is_none());
        for what in [Kept::Uploads, Kept::Artifacts, Kept::Traces] {
            assert!(kept(&mut db, what, 0, 10).expect("asked").is_empty());
            assert!(known(&mut db, what, 1, &[1]).expect("asked").is_empty());
            assert!(still_there(&mut db, what, &[1]).expect("asked").is_empty());
            forget(&mut db, what, &[1]).expect("done");
        }
        for kind in 0..sealed_kinds().count() {
            assert!(sealed(&mut db, kind, 0, 10).expect("asked").is_empty());
        }
        assert!(seeds(&mut db, 10).expect("asked").is_empty());
        assert!(projects(&mut db, 0, 10).expect("asked").is_empty());
    }
}
