//! Mentions of issues in commit messages.

use std::collections::HashSet;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{IntentId, IssueId, IssueIid, ProjectId, UserId};

use crate::{
    Conn, IssueVisibility, Result,
    conn::on,
    fragment::Fragment,
    schema::{intent_mentions, issues, notes, ref_intents},
};

/// An issue that a commit message can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MentionedIssue {
    /// The issue id.
    pub id: IssueId,
    /// The number within the project.
    pub iid: IssueIid,
    /// Whether the pusher is its author or assignee.
    pub involved: bool,
}

/// A mention of an issue in a commit message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// The project id of the issue.
    pub project: ProjectId,
    /// The issue id.
    pub issue: IssueId,
    /// The full id of the commit.
    pub sha: String,
    /// Whether the commit closes the issue.
    pub closes: bool,
}

/// Returns the visible issues of a project with these iids, ordered by iid.
pub fn visible_issues(
    db: &mut Conn,
    visibility: &IssueVisibility,
    project: ProjectId,
    iids: &[IssueIid],
) -> Result<Vec<MentionedIssue>> {
    let query = || {
        Fragment::<(BigInt, BigInt, Bool)>::new("SELECT i.id, i.iid, coalesce(i.author_id = ")
            .number(visibility.user)
            .sql(" OR i.assignee_id = ")
            .number(visibility.user)
            .sql(", FALSE) FROM issues i WHERE i.project_id = ")
            .number(project)
            .sql(" AND i.iid")
            .in_ids(iids)
            .sql(" AND ")
            .append(visibility.filter("i"))
            .sql(" ORDER BY i.iid")
    };
    let rows: Vec<(i64, i64, bool)> = on!(db, conn => query().load(conn))?;
    let issue = |(id, iid, involved)| MentionedIssue { id: IssueId::new(id), iid: IssueIid::new(iid), involved };
    Ok(rows.into_iter().map(issue).collect())
}

/// Returns the pusher and the mentions of an intent, by project and issue, closing ones first; `None` if the pusher's
/// account was deleted.
pub fn of_intent(db: &mut Conn, intent: IntentId) -> Result<Option<(UserId, Vec<Mention>)>> {
    let pusher: Option<Option<i64>> =
        on!(db, conn => ref_intents::table.find(intent.get()).select(ref_intents::user_id).first(conn).optional())?;
    let Some(pusher) = pusher.flatten() else { return Ok(None) };
    let rows: Vec<(i64, i64, String, bool)> = on!(db, conn => intent_mentions::table
        .inner_join(issues::table)
        .filter(intent_mentions::intent_id.eq(intent.get()))
        .order((
            issues::project_id,
            intent_mentions::issue_id,
            intent_mentions::closes.desc(),
            intent_mentions::position,
        ))
        .select((issues::project_id, intent_mentions::issue_id, intent_mentions::sha, intent_mentions::closes))
        .load(conn))?;
    let mention = |(project, issue, sha, closes)| Mention {
        project: ProjectId::new(project),
        issue: IssueId::new(issue),
        sha,
        closes,
    };
    Ok(Some((UserId::new(pusher), rows.into_iter().map(mention).collect())))
}

/// Returns the texts of the system notes on an issue that start with a prefix.
pub fn system_notes_with_prefix(db: &mut Conn, issue: IssueId, prefix: &str) -> Result<HashSet<String>> {
    let bodies: Vec<String> = on!(db, conn => notes::table
        .filter(notes::issue_id.eq(issue.get()))
        .filter(notes::system.eq(true))
        .filter(notes::body.like(format!("{prefix}%")))
        .select(notes::body)
        .load(conn))?;
    Ok(bodies.into_iter().collect())
}
