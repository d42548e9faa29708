//! What commits say about issues: written down with the push that brings them, acted upon once it has happened.

use std::collections::HashSet;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};

use crate::{
    Conn, Result, Sight,
    conn::on,
    fragment::Fragment,
    schema::{intent_mentions, issues, notes, ref_intents},
};

/// How many rows go into one statement; engines have a limit.
const AT_ONCE: usize = 1000;

/// An issue that somebody names by its number in the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its number.
    pub id: i64,
    /// The same, counted in the project.
    pub iid: i64,
    /// Whether whoever names it wrote it or works on it.
    pub involved: bool,
}

/// What a commit says about an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// The project of the issue.
    pub project: i64,
    /// The issue.
    pub issue: i64,
    /// The commit, in full.
    pub sha: String,
    /// Whether it closes the issue.
    pub closes: bool,
}

#[derive(Insertable)]
#[diesel(table_name = intent_mentions)]
struct NewRow<'a> {
    intent_id: i64,
    position: i64,
    issue_id: i64,
    sha: &'a str,
    closes: bool,
}

/// Those of a project's issues with these numbers that somebody sees, by their numbers.
pub fn named(db: &mut Conn, sight: &Sight, project: i64, numbers: &[i64]) -> Result<Vec<Named>> {
    let query = || {
        Fragment::<(BigInt, BigInt, Bool)>::new("SELECT i.id, i.iid, coalesce(i.author_id = ")
            .number(sight.user)
            .sql(" OR i.assignee_id = ")
            .number(sight.user)
            .sql(", FALSE) FROM issues i WHERE i.project_id = ")
            .number(project)
            .sql(" AND i.iid")
            .among(numbers)
            .sql(" AND ")
            .then(sight.sees("i"))
            .sql(" ORDER BY i.iid")
    };
    let rows: Vec<(i64, i64, bool)> = on!(db, conn => query().load(conn))?;
    Ok(rows.into_iter().map(|(id, iid, involved)| Named { id, iid, involved }).collect())
}

/// Writes down what a push says, until it has happened.
pub fn insert(db: &mut Conn, intent: i64, mentions: &[Mention]) -> Result<()> {
    let rows: Vec<NewRow<'_>> = (0..)
        .zip(mentions)
        .map(|(position, Mention { project: _, issue, sha, closes })| NewRow {
            intent_id: intent,
            position,
            issue_id: *issue,
            sha,
            closes: *closes,
        })
        .collect();
    for some in rows.chunks(AT_ONCE) {
        on!(db, conn => diesel::insert_into(intent_mentions::table).values(some).execute(conn))?;
    }
    Ok(())
}

/// What a push says, by project and issue, what closes it first; and who pushed. Nothing if they are gone.
pub fn of_intent(db: &mut Conn, intent: i64) -> Result<Option<(i64, Vec<Mention>)>> {
    let pusher: Option<Option<i64>> =
        on!(db, conn => ref_intents::table.find(intent).select(ref_intents::user_id).first(conn).optional())?;
    let Some(pusher) = pusher.flatten() else { return Ok(None) };
    let rows: Vec<(i64, i64, String, bool)> = on!(db, conn => intent_mentions::table
        .inner_join(issues::table)
        .filter(intent_mentions::intent_id.eq(intent))
        .order((
            issues::project_id,
            intent_mentions::issue_id,
            intent_mentions::closes.desc(),
            intent_mentions::position,
        ))
        .select((issues::project_id, intent_mentions::issue_id, intent_mentions::sha, intent_mentions::closes))
        .load(conn))?;
    let mention = |(project, issue, sha, closes)| Mention { project, issue, sha, closes };
    Ok(Some((pusher, rows.into_iter().map(mention).collect())))
}

/// The notes of the service on an issue that begin with these words.
pub fn told(db: &mut Conn, issue: i64, words: &str) -> Result<HashSet<String>> {
    let bodies: Vec<String> = on!(db, conn => notes::table
        .filter(notes::issue_id.eq(issue))
        .filter(notes::system.eq(true))
        .filter(notes::body.like(format!("{words}%")))
        .select(notes::body)
        .load(conn))?;
    Ok(bodies.into_iter().collect())
}
