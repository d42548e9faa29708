//! Integrity checks for `gable doctor`. No request runs them, so they may be slow.

use diesel::{
    ExpressionMethods as _, JoinOnDsl as _, OptionalExtension as _, QueryDsl as _, QueryableByName, RunQueryDsl as _,
    connection::SimpleConnection as _,
    sql_types::{BigInt, Binary, Nullable, Text},
};
use model::{PackId, ProjectId, StorageId, Time};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    postgres::WHOLE_TABLE_SETTINGS,
    schema::{pack_contents, packs, project_storage, projects, repositories, repository_packs},
    times::from_micros,
};

/// The maximum number of reported faults of one kind.
const MAX_REPORTED: usize = 20;

/// A derived column or table that can be recomputed.
struct Counter {
    name: &'static str,
    /// A query for the number of wrong rows.
    count_wrong: &'static str,
    /// Statements that recompute them.
    fix: &'static [&'static str],
}

/// The counters of issues: the table that has them, and the issues that they count.
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

macro_rules! set_counters {
    () => {
        "open_issues = r.open_issues, closed_issues = r.closed_issues, \
         open_confidential = r.open_confidential, closed_confidential = r.closed_confidential"
    };
}

/// The size of the refs of a repository as lines of a packed-refs file.
macro_rules! size_of_refs {
    ($repository:literal) => {
        concat!(
            "(SELECT coalesce(sum(42 + octet_length(r.name) + CASE WHEN r.peeled IS NULL THEN 0 ELSE 42 END), 0) \
             FROM refs r WHERE r.repository_id = ",
            $repository,
            ")"
        )
    };
}

/// Counters of a project that is being removed are not maintained, so most checks skip such projects.
const COUNTERS: &[Counter] = &[
    Counter {
        name: "projects by visibility",
        count_wrong: "SELECT count(*) AS n FROM project_counts t WHERE amount <> (SELECT count(*) FROM projects p \
                WHERE p.deleted_at IS NULL AND p.visibility = t.visibility AND p.archived = t.archived \
                AND p.id & 7 = t.stripe)",
        fix: &["UPDATE project_counts SET amount = (SELECT count(*) FROM projects p \
                  WHERE p.deleted_at IS NULL AND p.visibility = project_counts.visibility \
                  AND p.archived = project_counts.archived AND p.id & 7 = project_counts.stripe)"],
    },
    Counter {
        name: "projects of namespaces",
        count_wrong: "SELECT count(*) AS n FROM (SELECT 1 FROM (SELECT namespace_id, visibility, archived, amount \
                FROM namespace_project_counts UNION ALL SELECT namespace_id, visibility, archived, -count(*) \
                FROM projects WHERE deleted_at IS NULL GROUP BY namespace_id, visibility, archived) t \
                GROUP BY namespace_id, visibility, archived HAVING sum(amount) <> 0) w",
        fix: &[
            "DELETE FROM namespace_project_counts",
            "INSERT INTO namespace_project_counts (namespace_id, visibility, archived, amount) \
                SELECT namespace_id, visibility, archived, count(*) FROM projects WHERE deleted_at IS NULL \
                GROUP BY namespace_id, visibility, archived",
        ],
    },
    Counter {
        name: "listed memberships",
        count_wrong: "SELECT count(*) AS n FROM project_members m JOIN projects p ON p.id = m.project_id \
                LEFT JOIN namespaces n ON n.id = p.namespace_id \
                WHERE m.is_listed <> (p.namespace_id IS NOT NULL AND coalesce(n.owner_id, 0) <> m.user_id) \
                OR m.project_visibility <> p.visibility OR m.project_archived <> p.archived \
                OR m.project_created_at <> p.created_at",
        fix: &["UPDATE project_members SET (is_listed, project_visibility, project_archived, project_created_at) = ( \
                  SELECT p.namespace_id IS NOT NULL AND coalesce(n.owner_id, 0) <> project_members.user_id, \
                  p.visibility, p.archived, p.created_at FROM projects p \
                  LEFT JOIN namespaces n ON n.id = p.namespace_id WHERE p.id = project_members.project_id)"],
    },
    Counter {
        name: "memberships of users by visibility",
        count_wrong: "SELECT count(*) AS n FROM (SELECT 1 FROM (SELECT user_id, visibility, archived, amount \
                FROM member_project_counts UNION ALL SELECT user_id, project_visibility, project_archived, -count(*) \
                FROM project_members WHERE is_listed GROUP BY user_id, project_visibility, project_archived) t \
                GROUP BY user_id, visibility, archived HAVING sum(amount) <> 0) w",
        fix: &[
            "DELETE FROM member_project_counts",
            "INSERT INTO member_project_counts (user_id, visibility, archived, amount) \
                SELECT user_id, project_visibility, project_archived, count(*) FROM project_members WHERE is_listed \
                GROUP BY user_id, project_visibility, project_archived",
        ],
    },
    Counter {
        name: "personal projects of users",
        count_wrong: "SELECT count(*) AS n FROM users t WHERE personal_projects <> (SELECT count(*) FROM projects p \
                JOIN namespaces s ON s.id = p.namespace_id WHERE s.owner_id = t.id)",
        fix: &["UPDATE users SET personal_projects = (SELECT count(*) FROM projects p \
                  JOIN namespaces s ON s.id = p.namespace_id WHERE s.owner_id = users.id)"],
    },
    Counter {
        name: "stars of projects",
        count_wrong: "SELECT count(*) AS n FROM projects t WHERE deleted_at IS NULL \
                AND star_count <> (SELECT count(*) FROM project_stars s WHERE s.project_id = t.id)",
        fix: &["UPDATE projects SET star_count = (SELECT count(*) FROM project_stars s \
                  WHERE s.project_id = projects.id) WHERE deleted_at IS NULL"],
    },
    Counter {
        name: "forks of projects",
        count_wrong: "SELECT count(*) AS n FROM projects t WHERE deleted_at IS NULL \
                AND forks_count <> (SELECT count(*) FROM fork_links l WHERE l.source_id = t.id)",
        fix: &["UPDATE projects SET forks_count = (SELECT count(*) FROM fork_links l \
                  WHERE l.source_id = projects.id) WHERE deleted_at IS NULL"],
    },
    Counter {
        name: "issues of projects",
        count_wrong: concat!(
            "SELECT count(*) AS n FROM issue_books t JOIN (SELECT b.project_id AS id, ",
            of_issues!("issue_books b", "issues i WHERE i.project_id = b.project_id"),
            ") r ON r.id = t.project_id JOIN projects p ON p.id = t.project_id WHERE p.deleted_at IS NULL AND (",
            differ!(),
            ")"
        ),
        fix: &[concat!(
            "UPDATE issue_books SET ",
            set_counters!(),
            " FROM (SELECT b.project_id AS id, ",
            of_issues!("issue_books b", "issues i WHERE i.project_id = b.project_id"),
            ") r WHERE r.id = issue_books.project_id"
        )],
    },
    Counter {
        name: "last assigned numbers of issues and milestones",
        count_wrong: "SELECT count(*) AS n FROM issue_books t WHERE \
                last_issue < (SELECT coalesce(max(iid), 0) FROM issues i WHERE i.project_id = t.project_id) OR \
                last_milestone < (SELECT coalesce(max(iid), 0) FROM milestones m WHERE m.project_id = t.project_id)",
        fix: &[
            "UPDATE issue_books SET last_issue = (SELECT max(iid) FROM issues i \
             WHERE i.project_id = issue_books.project_id) \
             WHERE last_issue < (SELECT max(iid) FROM issues i WHERE i.project_id = issue_books.project_id)",
            "UPDATE issue_books SET last_milestone = (SELECT max(iid) FROM milestones m \
             WHERE m.project_id = issue_books.project_id) \
             WHERE last_milestone < (SELECT max(iid) FROM milestones m WHERE m.project_id = issue_books.project_id)",
        ],
    },
    Counter {
        name: "copied columns of issue labels",
        count_wrong: "SELECT count(*) AS n FROM issue_labels t JOIN issues i ON i.id = t.issue_id \
                JOIN projects p ON p.id = i.project_id WHERE p.deleted_at IS NULL AND (t.closed <> i.closed \
                OR t.confidential <> i.confidential OR coalesce(t.milestone_id, 0) <> coalesce(i.milestone_id, 0) \
                OR t.created_at <> i.created_at OR t.updated_at <> i.updated_at)",
        fix: &["UPDATE issue_labels SET closed = i.closed, confidential = i.confidential, \
                  milestone_id = i.milestone_id, created_at = i.created_at, updated_at = i.updated_at \
                  FROM issues i WHERE i.id = issue_labels.issue_id"],
    },
    Counter {
        name: "issues of labels",
        count_wrong: concat!(
            "SELECT count(*) AS n FROM labels t JOIN (SELECT l.id AS id, ",
            of_issues!("labels l", "issue_labels x JOIN issues i ON i.id = x.issue_id WHERE x.label_id = l.id"),
            ") r ON r.id = t.id JOIN projects p ON p.id = t.project_id WHERE p.deleted_at IS NULL AND (",
            differ!(),
            ")"
        ),
        fix: &[concat!(
            "UPDATE labels SET ",
            set_counters!(),
            " FROM (SELECT l.id AS id, ",
            of_issues!("labels l", "issue_labels x JOIN issues i ON i.id = x.issue_id WHERE x.label_id = l.id"),
            ") r WHERE r.id = labels.id"
        )],
    },
    Counter {
        name: "notes of issues",
        count_wrong: "SELECT count(*) AS n FROM issues t JOIN projects p ON p.id = t.project_id WHERE p.deleted_at IS NULL \
                AND user_notes <> (SELECT count(*) FROM notes x WHERE x.issue_id = t.id AND NOT x.system)",
        fix: &["UPDATE issues SET user_notes = (SELECT count(*) FROM notes x \
                  WHERE x.issue_id = issues.id AND NOT x.system)"],
    },
    Counter {
        name: "sizes of refs",
        count_wrong: concat!(
            "SELECT count(*) AS n FROM repositories t JOIN projects p ON p.id = t.project_id \
             WHERE p.deleted_at IS NULL AND refs_bytes <> ",
            size_of_refs!("t.id")
        ),
        fix: &[concat!("UPDATE repositories SET refs_bytes = ", size_of_refs!("repositories.id"))],
    },
];

/// Search indexes that only SQLite has: PostgreSQL searches the rows.
const SEARCH_INDEXES: &[Counter] = &[
    Counter {
        name: "search index of projects",
        count_wrong: "SELECT count(*) AS n FROM projects WHERE id NOT IN (SELECT id FROM project_search_docsize)",
        fix: &["INSERT INTO project_search (rowid, text) SELECT id, search_text FROM projects \
                  WHERE id NOT IN (SELECT id FROM project_search_docsize)"],
    },
    Counter {
        name: "search index of namespaces",
        count_wrong: "SELECT count(*) AS n FROM namespaces WHERE id NOT IN (SELECT id FROM namespace_search_docsize)",
        fix: &["INSERT INTO namespace_search (rowid, name) SELECT id, name_key FROM namespaces \
                  WHERE id NOT IN (SELECT id FROM namespace_search_docsize)"],
    },
    Counter {
        name: "search index of issues",
        count_wrong: "SELECT count(*) AS n FROM issue_texts WHERE issue_id NOT IN (SELECT id FROM issue_search_docsize)",
        fix: &["INSERT INTO issue_search (rowid, text) SELECT issue_id, search_text FROM issue_texts \
                  WHERE issue_id NOT IN (SELECT id FROM issue_search_docsize)"],
    },
];

#[derive(QueryableByName)]
struct IntegerRow {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

#[derive(QueryableByName)]
struct LineRow {
    #[diesel(sql_type = Text)]
    line: String,
}

fn query_integer(db: &mut Conn, sql: &str) -> Result<i64> {
    let row: IntegerRow = on!(db, conn => diesel::sql_query(sql).get_result(conn))?;
    Ok(row.n)
}

fn query_lines(db: &mut Conn, sql: &str) -> Result<Vec<String>> {
    let rows: Vec<LineRow> = on!(db, conn => diesel::sql_query(sql).load(conn))?;
    Ok(rows.into_iter().map(|row| row.line).take(MAX_REPORTED).collect())
}

/// Replaces the settings of this connection, which are meant for requests, by those for statements that read whole tables:
/// without timeouts, and planned for the tables as they are.
pub fn prepare_for_whole_tables(db: &mut Conn) -> Result<()> {
    match db {
        Conn::Sqlite(_) => Ok(()),
        Conn::Pg(conn) => {
            conn.batch_execute(WHOLE_TABLE_SETTINGS)?;
            Ok(conn.batch_execute("SET lock_timeout = 0")?)
        }
    }
}

/// Returns descriptions of the integrity errors of the database; empty if there are none.
pub fn integrity(db: &mut Conn) -> Result<Vec<String>> {
    match db {
        Conn::Sqlite(_) => {
            let mut faults = query_lines(
                db,
                "SELECT integrity_check AS line FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
            )?;
            faults.extend(query_lines(
                db,
                "SELECT 'row ' || coalesce(rowid, '?') || ' of ' || \"table\" || ' refers to a missing row of ' || parent \
                 AS line FROM pragma_foreign_key_check",
            )?);
            Ok(faults)
        }
        // PostgreSQL enforces references, unless that was disabled.
        Conn::Pg(_) => query_lines(
            db,
            "SELECT 'the constraint ' || conname || ' is not validated' AS line FROM pg_constraint \
             WHERE NOT convalidated AND connamespace = current_schema()::regnamespace \
             UNION ALL SELECT 'the trigger ' || tgname || ' is disabled' FROM pg_trigger t \
             JOIN pg_class c ON c.oid = t.tgrelid \
             WHERE tgenabled = 'D' AND c.relnamespace = current_schema()::regnamespace \
             UNION ALL SELECT 'the index ' || c.relname || ' is not valid' FROM pg_index i \
             JOIN pg_class c ON c.oid = i.indexrelid \
             WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace",
        ),
    }
}

fn counters(db: &Conn) -> impl Iterator<Item = &'static Counter> + use<> {
    let search_indexes = if matches!(db, Conn::Sqlite(_)) { SEARCH_INDEXES } else { &[] };
    COUNTERS.iter().chain(search_indexes)
}

/// Returns the counters that are wrong, with the number of wrong rows of each.
pub fn wrong_counters(db: &mut Conn) -> Result<Vec<(&'static str, i64)>> {
    let mut wrong = Vec::new();
    for counter in counters(db) {
        let rows = query_integer(db, counter.count_wrong)?;
        if rows > 0 {
            wrong.push((counter.name, rows));
        }
    }
    Ok(wrong)
}

/// Recomputes all wrong counters; other transactions cannot write meanwhile.
pub fn recount(db: &mut Conn) -> Result<()> {
    if let Conn::Pg(conn) = db {
        conn.batch_execute(
            "LOCK TABLE projects, users, project_stars, fork_links, issues, issue_books, labels, issue_labels, notes, \
             project_counts, namespace_project_counts, project_members, member_project_counts, repositories, refs \
             IN SHARE ROW EXCLUSIVE MODE",
        )?;
    }
    for counter in counters(db) {
        if query_integer(db, counter.count_wrong)? > 0 {
            for statement in counter.fix {
                on!(db, conn => diesel::sql_query(*statement).execute(conn))?;
            }
        }
    }
    Ok(())
}

/// Returns the latest timestamp in the database.
pub fn newest_timestamp(db: &mut Conn) -> Result<Option<Time>> {
    let newest = query_integer(
        db,
        "SELECT coalesce(max(t), 0) AS n FROM (SELECT max(created_at) AS t FROM users \
         UNION ALL SELECT max(last_activity_at) FROM projects UNION ALL SELECT max(created_at) FROM events \
         UNION ALL SELECT max(created_at) FROM tokens UNION ALL SELECT max(last_used_at) FROM tokens) x",
    )?;
    Ok((newest > 0).then(|| from_micros(newest)))
}

/// The columns of a project that its repository depends on.
pub struct ProjectRow {
    /// The id of the project.
    pub id: ProjectId,
    /// The default branch, if the repository has a branch.
    pub default_branch: Option<String>,
    /// Zero unless the project is being removed.
    removed: i64,
    /// The storage id of the project.
    pub storage: String,
}

impl ProjectRow {
    /// Returns whether the project is being removed.
    pub fn is_soft_deleted(&self) -> bool {
        self.removed != 0
    }
}

/// Returns up to `limit` projects with an id above `after`, including those that are being removed.
pub fn projects(db: &mut Conn, after: ProjectId, limit: i64) -> Result<Vec<ProjectRow>> {
    type Columns = (BigInt, Nullable<Text>, BigInt, Text);
    let query = Fragment::<Columns>::new(
        "SELECT p.id, p.default_branch, CAST(CASE WHEN p.deleted_at IS NULL THEN 0 ELSE 1 END AS BIGINT) AS removed, \
         s.storage_id AS storage FROM projects p JOIN project_storage s ON s.project_id = p.id WHERE p.id > ",
    )
    .number(after)
    .sql(" ORDER BY p.id LIMIT ")
    .number(limit);
    let rows: Vec<(i64, Option<String>, i64, String)> = on!(db, conn => query.load(conn))?;
    let to_project = |(id, default_branch, removed, storage)| ProjectRow {
        id: ProjectId::new(id),
        default_branch,
        removed,
        storage,
    };
    Ok(rows.into_iter().map(to_project).collect())
}

/// The row of a pack with files.
pub struct PackRow {
    /// The id of the pack.
    pub id: PackId,
    /// The key of its files, without an extension.
    pub key: String,
    /// The size of the pack file in bytes.
    pub bytes: i64,
}

/// Returns up to `limit` packs with files and with an id above `after`.
pub fn packs(db: &mut Conn, after: PackId, limit: i64) -> Result<Vec<PackRow>> {
    let rows: Vec<(i64, String, i64)> = on!(db, conn => packs::table
        .left_join(pack_contents::table)
        .filter(pack_contents::pack_id.is_null())
        .filter(packs::id.gt(after.get()))
        .order(packs::id)
        .limit(limit)
        .select((packs::id, packs::file_key, packs::bytes))
        .load(conn))?;
    Ok(rows.into_iter().map(|(id, key, bytes)| PackRow { id: PackId::new(id), key, bytes }).collect())
}

/// Returns the projects whose repositories have a pack, except those that are being removed.
pub fn projects_with_pack(db: &mut Conn, pack: PackId) -> Result<Vec<ProjectId>> {
    let ids: Vec<i64> = on!(db, conn => repository_packs::table
        .inner_join(repositories::table.on(repositories::id.eq(repository_packs::repository_id)))
        .inner_join(projects::table.on(projects::id.eq(repositories::project_id)))
        .filter(repository_packs::pack_id.eq(pack.get()))
        .filter(projects::deleted_at.is_null())
        .order(repositories::project_id)
        .select(repositories::project_id)
        .load(conn))?;
    Ok(ids.into_iter().map(ProjectId::new).collect())
}

/// The kinds of files that are stored beside the database, each with a row in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredFileKind {
    /// Files uploaded to projects.
    Uploads,
    /// Artifacts of CI jobs.
    Artifacts,
    /// Traces of CI jobs in a folder.
    Traces,
    /// Objects with parts of traces, on instances without a folder of traces.
    TraceObjects,
    /// Uploaded avatars.
    Avatars,
}

impl StoredFileKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Uploads, Self::Avatars, Self::Artifacts, Self::TraceObjects, Self::Traces];
}

/// The row of a complete file.
pub struct StoredFileRow {
    /// The id of the row.
    pub id: i64,
    /// The id of the project; zero if it belongs to none.
    pub project: ProjectId,
    /// The storage id of the project, or of the file if it is in a folder of its own.
    pub storage: String,
    /// The minimum size of the file in bytes.
    pub size: i64,
    /// The name that users see.
    pub name: String,
}

/// Returns up to `limit` rows of complete files with an id above `after`.
pub fn stored_files(db: &mut Conn, kind: StoredFileKind, after: i64, limit: i64) -> Result<Vec<StoredFileRow>> {
    type Columns = (BigInt, BigInt, Text, BigInt, Text);
    let sql = match kind {
        StoredFileKind::Uploads => {
            "SELECT f.id, f.project_id AS project, s.storage_id AS storage, coalesce(f.size, 0) AS size, f.name \
             FROM uploads f JOIN project_storage s ON s.project_id = f.project_id WHERE f.complete AND f.id"
        }
        StoredFileKind::Artifacts => {
            "SELECT f.id, f.project_id AS project, s.storage_id AS storage, coalesce(f.size, 0) AS size, f.name \
             FROM build_artifacts f JOIN project_storage s ON s.project_id = f.project_id \
             WHERE f.size IS NOT NULL AND f.id"
        }
        StoredFileKind::Traces => {
            "SELECT b.id, b.project_id AS project, s.storage_id AS storage, r.trace_size - r.trace_held AS size, b.name \
             FROM build_runs r JOIN builds b ON b.id = r.build_id JOIN project_storage s ON s.project_id = b.project_id \
             WHERE r.trace_size > r.trace_held AND b.id"
        }
        StoredFileKind::Avatars => {
            "SELECT f.id, coalesce(f.project_id, 0) AS project, f.storage_id AS storage, coalesce(f.size, 0) AS size, f.name \
             FROM avatars f WHERE f.size IS NOT NULL AND f.id"
        }
        StoredFileKind::TraceObjects => {
            "SELECT f.id, b.project_id AS project, f.storage_id AS storage, coalesce(f.size, 0) AS size, b.name \
             FROM trace_objects f JOIN builds b ON b.id = f.job_id WHERE f.id"
        }
    };
    let query = Fragment::<Columns>::new(sql).sql(" > ").number(after).sql(" ORDER BY 1 LIMIT ").number(limit);
    let rows: Vec<(i64, i64, String, i64, String)> = on!(db, conn => query.load(conn))?;
    Ok(rows.into_iter().map(to_stored_file).collect())
}

/// Returns up to `limit` jobs with an id above `after` whose segments do not have the visible bytes of the trace.
pub fn incomplete_segments(db: &mut Conn, after: i64, limit: i64) -> Result<Vec<StoredFileRow>> {
    type Columns = (BigInt, BigInt, Text, BigInt, Text);
    let query = Fragment::<Columns>::new(
        "SELECT b.id, b.project_id AS project, s.storage_id AS storage, r.trace_size - r.trace_held AS size, b.name \
         FROM build_runs r JOIN builds b ON b.id = r.build_id JOIN project_storage s ON s.project_id = b.project_id \
         JOIN projects p ON p.id = b.project_id WHERE p.deleted_at IS NULL \
         AND (r.trace_size - r.trace_held <> (SELECT coalesce(sum(t.size), 0) FROM trace_segments t \
         WHERE t.job_id = r.build_id) OR r.trace_size - r.trace_held <> (SELECT coalesce(max(t.start + t.size), 0) \
         FROM trace_segments t WHERE t.job_id = r.build_id)) AND b.id > ",
    );
    let query = query.number(after).sql(" ORDER BY 1 LIMIT ").number(limit);
    let rows: Vec<(i64, i64, String, i64, String)> = on!(db, conn => query.load(conn))?;
    Ok(rows.into_iter().map(to_stored_file).collect())
}

fn to_stored_file((id, project, storage, size, name): (i64, i64, String, i64, String)) -> StoredFileRow {
    StoredFileRow { id, project: ProjectId::new(project), storage, size, name }
}

/// Returns which of these ids have a row, complete or not.
pub fn existing_ids(db: &mut Conn, kind: StoredFileKind, ids: &[i64]) -> Result<Vec<i64>> {
    select_ids(db, kind, ids, "")
}

/// Returns which of these ids have a row with this storage id, complete or not.
pub fn existing_ids_in_storage(
    db: &mut Conn,
    kind: StoredFileKind,
    storage: &StorageId,
    ids: &[i64],
) -> Result<Vec<i64>> {
    if matches!(kind, StoredFileKind::Avatars | StoredFileKind::TraceObjects) {
        return select_ids(db, kind, ids, &format!(" AND storage_id = '{storage}'"));
    }
    let Some(project) = project_by_storage(db, storage.as_str())? else { return Ok(Vec::new()) };
    select_ids(db, kind, ids, &format!(" AND project_id = {project}"))
}

/// Returns the id of the project with this storage id.
pub fn project_by_storage(db: &mut Conn, storage: &str) -> Result<Option<ProjectId>> {
    let id: Option<i64> = on!(db, conn => project_storage::table
        .filter(project_storage::storage_id.eq(storage))
        .select(project_storage::project_id)
        .first(conn)
        .optional())?;
    Ok(id.map(ProjectId::new))
}

fn select_ids(db: &mut Conn, kind: StoredFileKind, ids: &[i64], condition: &str) -> Result<Vec<i64>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let table = table_of(kind);
    let sql = format!("SELECT id AS n FROM {table} WHERE id IN ({}){condition}", id_list(ids));
    let rows: Vec<IntegerRow> = on!(db, conn => diesel::sql_query(sql).load(conn))?;
    Ok(rows.into_iter().map(|row| row.n).collect())
}

fn table_of(kind: StoredFileKind) -> &'static str {
    match kind {
        StoredFileKind::Uploads => "uploads",
        StoredFileKind::Artifacts => "build_artifacts",
        StoredFileKind::Traces => "builds",
        StoredFileKind::Avatars => "avatars",
        StoredFileKind::TraceObjects => "trace_objects",
    }
}

/// Deletes the rows of missing files; the trace of a job becomes empty, also if only a part of it is missing.
pub fn delete_file_rows(db: &mut Conn, kind: StoredFileKind, ids: &[i64]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids = id_list(ids);
    if kind == StoredFileKind::Avatars {
        for (table, column) in [("users", "user_id"), ("projects", "project_id"), ("namespaces", "group_id")] {
            let owners = format!("SELECT {column} FROM avatars WHERE is_current AND id IN ({ids})");
            let sql = format!("UPDATE {table} SET avatar = NULL WHERE id IN ({owners})");
            on!(db, conn => diesel::sql_query(sql).execute(conn))?;
        }
    }
    match kind {
        StoredFileKind::Traces => return empty_traces(db, &ids),
        StoredFileKind::TraceObjects => {
            empty_traces(db, &format!("SELECT job_id FROM trace_objects WHERE job_id IS NOT NULL AND id IN ({ids})"))?;
        }
        _ => {}
    }
    let sql = format!("DELETE FROM {} WHERE id IN ({ids})", table_of(kind));
    on!(db, conn => diesel::sql_query(sql).execute(conn))?;
    Ok(())
}

/// Makes the traces of jobs empty; `jobs` is a list of ids or a query.
fn empty_traces(db: &mut Conn, jobs: &str) -> Result<()> {
    for statement in [
        format!(
            "UPDATE build_runs SET trace_size = 0, trace_held = 0, trace_withheld = NULL WHERE build_id IN ({jobs})"
        ),
        format!("DELETE FROM trace_segments WHERE job_id IN ({jobs})"),
        format!("UPDATE trace_objects SET job_id = NULL WHERE job_id IN ({jobs})"),
    ] {
        on!(db, conn => diesel::sql_query(statement).execute(conn))?;
    }
    Ok(())
}

fn id_list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The columns that are encrypted with the instance key: a description, and a query.
const ENCRYPTED_COLUMNS: &[(&str, &str)] = &[
    ("variables of projects", "SELECT id, project_id AS project, value AS encrypted FROM ci_variables WHERE id"),
    ("URLs of hooks", "SELECT id, coalesce(project_id, 0) AS project, url AS encrypted FROM hooks WHERE id"),
    (
        "tokens of hooks",
        "SELECT id, coalesce(project_id, 0) AS project, token AS encrypted FROM hooks WHERE token IS NOT NULL AND id",
    ),
    (
        "variables of triggered pipelines",
        "SELECT id, project_id AS project, variables AS encrypted FROM pipelines WHERE variables IS NOT NULL AND id",
    ),
    (
        "credentials of imports",
        "SELECT project_id AS id, project_id AS project, credentials AS encrypted FROM project_imports \
         WHERE credentials IS NOT NULL AND project_id",
    ),
    ("shared secrets", "SELECT id, CAST(0 AS BIGINT) AS project, secret AS encrypted FROM instance_secrets WHERE id"),
];

/// An encrypted value; deliberately without `Debug`.
pub struct EncryptedRow {
    /// The id of its row.
    pub id: i64,
    /// The id of the project for which it was encrypted; zero for none.
    pub project: ProjectId,
    /// The ciphertext.
    pub encrypted: Vec<u8>,
}

/// Returns a description of each kind of encrypted values.
pub fn encrypted_kinds() -> impl Iterator<Item = &'static str> {
    ENCRYPTED_COLUMNS.iter().map(|(what, _)| *what)
}

/// Returns up to `limit` encrypted values of a kind with an id above `after`; `kind` is an index into
/// [`encrypted_kinds`].
pub fn encrypted(db: &mut Conn, kind: usize, after: i64, limit: i64) -> Result<Vec<EncryptedRow>> {
    type Columns = (BigInt, BigInt, Binary);
    let Some((_, sql)) = ENCRYPTED_COLUMNS.get(kind) else { return Ok(Vec::new()) };
    let query = Fragment::<Columns>::new(*sql).sql(" > ").number(after).sql(" ORDER BY 1 LIMIT ").number(limit);
    let rows: Vec<(i64, i64, Vec<u8>)> = on!(db, conn => query.load(conn))?;
    let to_encrypted = |(id, project, encrypted)| EncryptedRow { id, project: ProjectId::new(project), encrypted };
    Ok(rows.into_iter().map(to_encrypted).collect())
}

/// The seed of a runner token, and the digest of the token derived from it.
#[derive(QueryableByName)]
pub struct SeedRow {
    /// The seed.
    #[diesel(sql_type = Binary)]
    pub seed: Vec<u8>,
    /// The digest of the token.
    #[diesel(sql_type = Binary)]
    pub digest: Vec<u8>,
}

/// Returns the newest seeds of runners, to check that the instance key still derives the same tokens from them.
pub fn seeds(db: &mut Conn, limit: i64) -> Result<Vec<SeedRow>> {
    let sql = format!("SELECT seed, digest FROM runners ORDER BY id DESC LIMIT {limit}");
    Ok(on!(db, conn => diesel::sql_query(sql).load(conn))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;

    #[test]
    fn a_fresh_database_passes_all_checks_and_every_statement_is_valid() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = Database::sqlite(folder.path().join("test.sqlite3"));
        database.migrate().expect("migrated");
        let mut db = database.connect_writer().expect("a connection");
        prepare_for_whole_tables(&mut db).expect("set");
        assert_eq!(integrity(&mut db).expect("read"), [] as [&str; 0]);
        assert_eq!(wrong_counters(&mut db).expect("read"), []);
        for counter in counters(&db) {
            for statement in counter.fix {
                on!(&mut db, conn => diesel::sql_query(*statement).execute(conn)).expect(statement);
            }
        }
        assert!(newest_timestamp(&mut db).expect("read").is_none());
        let storage = StorageId::parse("1").expect("a storage id");
        for kind in StoredFileKind::ALL {
            assert!(stored_files(&mut db, kind, 0, 10).expect("read").is_empty());
            assert!(existing_ids_in_storage(&mut db, kind, &storage, &[1]).expect("read").is_empty());
            assert!(existing_ids(&mut db, kind, &[1]).expect("read").is_empty());
            delete_file_rows(&mut db, kind, &[1]).expect("deleted");
        }
        assert!(incomplete_segments(&mut db, 0, 10).expect("read").is_empty());
        for kind in 0..encrypted_kinds().count() {
            assert!(encrypted(&mut db, kind, 0, 10).expect("read").is_empty());
        }
        assert!(seeds(&mut db, 10).expect("read").is_empty());
        assert!(projects(&mut db, ProjectId::new(0), 10).expect("read").is_empty());
        assert!(packs(&mut db, PackId::new(0), 10).expect("read").is_empty());
        assert!(projects_with_pack(&mut db, PackId::new(1)).expect("read").is_empty());
    }
}
