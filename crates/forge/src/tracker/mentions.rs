//! Mentions of issues in messages of commits on the default branch: they add system notes and close issues.
//!
//! They are applied in the transaction of the push, with the permissions of the pusher.

use std::collections::{BTreeMap, HashMap, HashSet};

use git::Repository;
use model::{
    Issue, IssueIid, IssueState, Oid, Project, ProjectId, UserId,
    references::{self, Reference},
    webhook_events::IssueAction,
};
use store::{IssueVisibility, mentions::Mention};

use crate::{Error, ProjectAbility, ProjectRef, Result, WriteTx, issues, notes};

/// The maximum number of commits of a push that are parsed, newest first.
const MAX_COMMITS: usize = 1000;
/// The maximum length of a message that is parsed, in bytes.
const MAX_MESSAGE_LENGTH: usize = 64 << 10;
/// The maximum number of references that are collected from a commit, and from all commits of a push.
const MAX_REFERENCES_PER_COMMIT: usize = 200;
const MAX_REFERENCES: usize = 10_000;
/// The maximum number of issues, of other projects and of notes that a push can affect.
const MAX_ISSUES: usize = 100;
const MAX_OTHER_PROJECTS: usize = 20;
const MAX_NOTES: usize = 1000;

/// The prefix of system notes about mentions.
const MENTION_PREFIX: &str = "mentioned in commit ";

/// A reference to an issue in a commit message.
pub(crate) struct CommitReference {
    commit: Oid,
    reference: Reference,
}

/// Collects the references in the commits that a push adds to a branch, oldest first.
pub(crate) fn collect(objects: &Repository, tip: Oid, before: Oid) -> Result<Vec<CommitReference>> {
    let mut found = Vec::new();
    objects.for_each_commit_excluding(tip, &[before], MAX_COMMITS, |commit| {
        let end =
            (0..=MAX_MESSAGE_LENGTH.min(commit.message.len())).rev().find(|at| commit.message.is_char_boundary(*at));
        let parsed = references::in_text(&commit.message[..end.unwrap_or_default()]);
        let remaining = MAX_REFERENCES_PER_COMMIT.min(MAX_REFERENCES - found.len());
        found.extend(
            parsed.into_iter().take(remaining).map(|reference| CommitReference { commit: commit.id, reference }),
        );
    })?;
    found.reverse();
    Ok(found)
}

/// Applies the references of a push to issues that the pusher may mention: in the project of the push all visible
/// issues, in other projects only issues that the pusher may close.
pub(crate) fn apply(
    tx: &mut WriteTx<'_>,
    project: &Project,
    pusher: UserId,
    references: &[CommitReference],
) -> Result<()> {
    let mut affected_issues = 0;
    let mut mentions = Vec::new();
    for (target, references) in group_by_project(tx, project, references)? {
        resolve(tx, &target, target.id == project.id, &references, &mut affected_issues, &mut mentions)?;
    }
    // Closing an issue takes precedence over mentioning one.
    mentions.sort_by_key(|mention: &Mention| !mention.closes);
    mentions.truncate(MAX_NOTES);
    // Closing ones stay first.
    mentions.sort_by_key(|mention| (mention.project, mention.issue));
    apply_mentions(tx, pusher, &mentions)
}

/// Applies mentions for which the permissions of the pusher were checked; they are sorted by project, issue, and whether
/// they close the issue.
pub(crate) fn apply_mentions(tx: &mut WriteTx<'_>, pusher: UserId, mentions: &[Mention]) -> Result<()> {
    // In the order of projects, like all transactions that lock several ones.
    for of_project in mentions.chunk_by(|one, next| one.project == next.project) {
        store::issues::lock_project(tx.db(), of_project[0].project)?;
    }
    let visibility = IssueVisibility { user: pusher, confidential: true };
    for of_issue in mentions.chunk_by(|one, next| one.issue == next.issue) {
        let Mention { project, issue, .. } = of_issue[0];
        let Some(issue) = store::issues::find(tx.db(), &visibility, project, issue)? else { continue };
        if apply_to_issue(tx, &issue, pusher, of_issue)?
            && let Some(closed) = store::issues::find(tx.db(), &visibility, project, issue.id)?
        {
            issues::enqueue_webhooks(tx, &closed, pusher, IssueAction::Close)?;
        }
    }
    Ok(())
}

/// Groups references by project, ordered by project id; projects whose issues the pusher does not see are left out.
fn group_by_project<'a>(
    tx: &mut WriteTx<'_>,
    project: &Project,
    references: &'a [CommitReference],
) -> Result<Vec<(Project, Vec<&'a CommitReference>)>> {
    let mut ids_by_path: HashMap<&str, Option<ProjectId>> = HashMap::new();
    let mut by_project: BTreeMap<ProjectId, (Project, Vec<&CommitReference>)> = BTreeMap::new();
    for one in references {
        let target = match one.reference.project.as_deref() {
            None => Some(project.id),
            Some(path) => match ids_by_path.get(path) {
                Some(target) => *target,
                None if ids_by_path.len() >= MAX_OTHER_PROJECTS => None,
                None => {
                    let found = find_visible_project(tx, path)?;
                    let target = found.as_ref().map(|found| found.id);
                    ids_by_path.insert(path, target);
                    if let Some(found) = found {
                        by_project.entry(found.id).or_insert_with(|| (found, Vec::new()));
                    }
                    target
                }
            },
        };
        if let Some(target) = target {
            by_project.entry(target).or_insert_with(|| (project.clone(), Vec::new())).1.push(one);
        }
    }
    Ok(by_project.into_values().collect())
}

/// Finds a project whose issues are visible to the pusher.
fn find_visible_project(tx: &mut WriteTx<'_>, path: &str) -> Result<Option<Project>> {
    match tx.project(&ProjectRef::Path(path.to_owned()), ProjectAbility::ReadIssues) {
        Ok(target) => Ok(Some(target)),
        Err(Error::NotFound(_) | Error::Forbidden(_) | Error::Unauthenticated) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Resolves the references to issues of one project and appends the mentions.
fn resolve(
    tx: &mut WriteTx<'_>,
    target: &Project,
    is_own_project: bool,
    references: &[&CommitReference],
    affected_issues: &mut usize,
    mentions: &mut Vec<Mention>,
) -> Result<()> {
    if !tx.can(target, ProjectAbility::WriteIssues) {
        return Ok(());
    }
    let (visibility, may_close_all) =
        (tx.read().issue_visibility(target), tx.can(target, ProjectAbility::AdministerIssues));
    let mut by_iid: HashMap<IssueIid, Vec<&CommitReference>> = HashMap::new();
    for one in references {
        by_iid.entry(one.reference.iid).or_default().push(one);
    }
    let iids: Vec<IssueIid> = by_iid.keys().copied().collect();
    for issue in store::mentions::visible_issues(tx.db(), &visibility, target.id, &iids)? {
        let may_close = may_close_all || issue.involved;
        if *affected_issues >= MAX_ISSUES || !(may_close || is_own_project) {
            continue;
        }
        *affected_issues += 1;
        let references = by_iid.remove(&issue.iid).unwrap_or_default();
        mentions.extend(deduplicate(&references, may_close).into_iter().map(|(commit, closes)| Mention {
            project: target.id,
            issue: issue.id,
            sha: commit.to_string(),
            closes,
        }));
    }
    Ok(())
}

/// Returns each commit that references an issue once, with whether it closes the issue: only the oldest closing commit
/// does.
fn deduplicate(references: &[&CommitReference], may_close: bool) -> Vec<(Oid, bool)> {
    let closing = references.iter().find(|one| may_close && one.reference.closes).map(|one| one.commit);
    let mut seen: HashSet<Oid> = closing.into_iter().collect();
    let others = references.iter().map(|one| one.commit).filter(|commit| seen.insert(*commit));
    let others: Vec<(Oid, bool)> = others.map(|commit| (commit, false)).collect();
    closing.map(|commit| (commit, true)).into_iter().chain(others).collect()
}

/// Applies the mentions of one issue; returns whether they closed it.
fn apply_to_issue(tx: &mut WriteTx<'_>, issue: &Issue, pusher: UserId, mentions: &[Mention]) -> Result<bool> {
    let mut closed = false;
    let existing_notes = store::mentions::system_notes_with_prefix(tx.db(), issue.id, MENTION_PREFIX)?;
    for Mention { sha, closes, .. } in mentions {
        // At most one mention closes the issue.
        if *closes && issue.state != IssueState::Closed {
            issues::set_closed(tx, issue, true, pusher, Some(&format!("commit {sha}")))?;
            closed = true;
            continue;
        }
        let body = format!("{MENTION_PREFIX}{sha}");
        if !existing_notes.contains(&body) {
            notes::add_system_note(tx, issue, pusher, &body)?;
        }
    }
    Ok(closed)
}
