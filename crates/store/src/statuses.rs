//! What others found out about commits.

use diesel::{prelude::*, sql_types::Bool};
use model::{
    CommitStatus, Oid, Page, Slice, Time,
    statuses::{EXTERNAL, NewStatus, StatusFilter, StatusState},
};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{commit_statuses, users},
    times::{from_micros, from_micros_opt, to_micros},
    users::SummaryRow,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = commit_statuses)]
struct Row {
    id: i64,
    sha: String,
    ref_name: String,
    name: String,
    status: String,
    target_url: Option<String>,
    description: Option<String>,
    allow_failure: bool,
    created_at: i64,
    started_at: Option<i64>,
    finished_at: Option<i64>,
}

fn to_status((row, author): (Row, Option<SummaryRow>)) -> CommitStatus {
    let Row {
        id,
        sha,
        ref_name,
        name,
        status,
        target_url,
        description,
        allow_failure,
        created_at,
        started_at,
        finished_at,
    } = row;
    CommitStatus {
        id,
        sha: sha.parse().unwrap_or(Oid([0; 20])),
        ref_name,
        name,
        // An unknown word can only come from a newer version, and then nothing went well.
        state: StatusState::from_word(&status).unwrap_or(StatusState::Failed),
        target_url,
        description,
        allow_failure,
        author: author.map(Into::into),
        created_at: from_micros(created_at),
        started_at: from_micros_opt(started_at),
        finished_at: from_micros_opt(finished_at),
    }
}

/// No later one of the same commit, ref and name is there.
fn is_latest() -> Fragment<Bool> {
    Fragment::new(
        "NOT EXISTS (SELECT 1 FROM commit_statuses later WHERE later.project_id = commit_statuses.project_id \
         AND later.sha = commit_statuses.sha AND later.ref_name = commit_statuses.ref_name \
         AND later.name = commit_statuses.name AND later.id > commit_statuses.id)",
    )
}

/// The statuses of a commit, oldest first; of each ref and name only the latest, unless all are wanted.
pub fn list(db: &mut Conn, project: i64, sha: Oid, filter: &StatusFilter, page: Page) -> Result<Slice<CommitStatus>> {
    if filter.stage.as_deref().is_some_and(|stage| stage != EXTERNAL) {
        return Ok(Slice::empty(page));
    }
    macro_rules! matching {
        () => {{
            let mut query = commit_statuses::table
                .left_join(users::table)
                .filter(commit_statuses::project_id.eq(project))
                .filter(commit_statuses::sha.eq(sha.to_string()))
                .into_boxed();
            if let Some(ref_name) = &filter.ref_name {
                query = query.filter(commit_statuses::ref_name.eq(ref_name));
            }
            if let Some(name) = &filter.name {
                query = query.filter(commit_statuses::name.eq(name));
            }
            if !filter.all {
                query = query.filter(is_latest());
            }
            query
        }};
    }
    let total = on!(db, conn => matching!().count().get_result(conn))?;
    let rows: Vec<(Row, Option<SummaryRow>)> = on!(db, conn => matching!()
        .order(commit_statuses::id)
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_status).collect(), total, page })
}

/// The latest status of a commit for a ref and of a name.
pub fn latest(db: &mut Conn, project: i64, sha: Oid, ref_name: &str, name: &str) -> Result<Option<CommitStatus>> {
    let row: Option<(Row, Option<SummaryRow>)> = on!(db, conn => commit_statuses::table
        .left_join(users::table)
        .filter(commit_statuses::project_id.eq(project))
        .filter(commit_statuses::sha.eq(sha.to_string()))
        .filter(commit_statuses::ref_name.eq(ref_name))
        .filter(commit_statuses::name.eq(name))
        .order(commit_statuses::id.desc())
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_status))
}

/// One status, whosever it is.
fn by_id(db: &mut Conn, id: i64) -> Result<CommitStatus> {
    let row = on!(db, conn => commit_statuses::table
        .left_join(users::table)
        .filter(commit_statuses::id.eq(id))
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn))?;
    Ok(to_status(row))
}

/// Adds a status.
pub fn insert(db: &mut Conn, project: i64, author: i64, new: &NewStatus, now: Time) -> Result<CommitStatus> {
    let now = to_micros(now);
    let id: i64 = on!(db, conn => diesel::insert_into(commit_statuses::table)
        .values((
            commit_statuses::project_id.eq(project),
            commit_statuses::sha.eq(new.sha.to_string()),
            commit_statuses::ref_name.eq(&new.ref_name),
            commit_statuses::name.eq(&new.name),
            commit_statuses::status.eq(new.state.as_str()),
            commit_statuses::target_url.eq(&new.target_url),
            commit_statuses::description.eq(&new.description),
            commit_statuses::author_id.eq(author),
            commit_statuses::created_at.eq(now),
            commit_statuses::started_at.eq((new.state == StatusState::Running).then_some(now)),
            commit_statuses::finished_at.eq(new.state.is_finished().then_some(now)),
        ))
        .returning(commit_statuses::id)
        .get_result(conn))?;
    by_id(db, id)
}

/// Takes a status further; what is not told anew stays as it was.
pub fn update(db: &mut Conn, id: i64, author: i64, new: &NewStatus, now: Time) -> Result<CommitStatus> {
    #[derive(AsChangeset)]
    #[diesel(table_name = commit_statuses)]
    struct Update<'a> {
        status: &'static str,
        author_id: i64,
        target_url: Option<&'a str>,
        description: Option<&'a str>,
        started_at: Option<i64>,
        finished_at: Option<i64>,
    }
    let now = to_micros(now);
    let update = Update {
        status: new.state.as_str(),
        author_id: author,
        target_url: new.target_url.as_deref(),
        description: new.description.as_deref(),
        started_at: (new.state == StatusState::Running).then_some(now),
        finished_at: new.state.is_finished().then_some(now),
    };
    on!(db, conn => diesel::update(commit_statuses::table.find(id)).set(&update).execute(conn))?;
    by_id(db, id)
}
