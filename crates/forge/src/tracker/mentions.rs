//! What commits say about issues, once they are on the default branch: they name them, and they close them.
//!
//! What is said is judged and written down with the push, with the rights that the pusher has then, and happens when
//! the push has happened.

use std::collections::{BTreeMap, HashMap, HashSet};

use git::Repository;
use model::{
    Issue, IssueState, Oid, Project,
    references::{self, Reference},
    webhook_events::IssueAction,
};
use store::{Sight, mentions::Mention};

use crate::{Error, ProjectAbility, ProjectRef, Result, WriteTx, issues, notes};

/// How many of the commits that come are listened to; the newest ones.
const MOST_COMMITS: usize = 1000;
/// How much of one message is listened to, in bytes.
const LONGEST_MESSAGE: usize = 64 << 10;
/// How many references are kept until the push is judged: of one commit, and of all.
const MOST_OF_A_COMMIT: usize = 200;
const MOST_REFERENCES: usize = 10_000;
/// How many issues one push may touch, in how many other projects, and with how many notes.
const MOST_ISSUES: usize = 100;
const MOST_PLACES: usize = 20;
const MOST_NOTES: usize = 1000;

/// With these words a note of the service begins that tells of a commit.
const MENTIONED: &str = "mentioned in commit ";

/// What a commit says about one issue.
pub(crate) struct Said {
    commit: Oid,
    reference: Reference,
}

/// What the commits say that a branch has gained, oldest first.
pub(crate) fn listen(objects: &Repository, tip: Oid, before: Oid) -> Result<Vec<Said>> {
    let mut said = Vec::new();
    objects.each_beyond(tip, &[before], MOST_COMMITS, |commit| {
        let end = (0..=LONGEST_MESSAGE.min(commit.message.len())).rev().find(|at| commit.message.is_char_boundary(*at));
        let heard = references::in_text(&commit.message[..end.unwrap_or_default()]);
        let room = MOST_OF_A_COMMIT.min(MOST_REFERENCES - said.len());
        said.extend(heard.into_iter().take(room).map(|reference| Said { commit: commit.id, reference }));
    })?;
    said.reverse();
    Ok(said)
}

/// Writes down, with a push, what its commits say about issues that the pusher may do this to. In the project itself an
/// issue is named by whoever sees it; elsewhere only by whoever may close it.
pub(crate) fn write_down(tx: &mut WriteTx<'_>, project: &Project, intent: i64, said: &[Said]) -> Result<()> {
    let mut touched = 0;
    let mut mentions = Vec::new();
    for (place, said) in by_place(tx, project, said)? {
        resolve(tx, &place, place.id == project.id, &said, &mut touched, &mut mentions)?;
    }
    // What closes an issue matters more than what only names one.
    mentions.sort_by_key(|mention: &Mention| !mention.closes);
    mentions.truncate(MOST_NOTES);
    Ok(store::mentions::insert(tx.db(), intent, &mentions)?)
}

/// What is said about issues of each project that the pusher sees, by whatever names of it, in the order of the projects.
fn by_place<'a>(tx: &mut WriteTx<'_>, project: &Project, said: &'a [Said]) -> Result<Vec<(Project, Vec<&'a Said>)>> {
    let mut known: HashMap<&str, Option<i64>> = HashMap::new();
    let mut places: BTreeMap<i64, (Project, Vec<&Said>)> = BTreeMap::new();
    for one in said {
        let place = match one.reference.project.as_deref() {
            None => Some(project.id),
            Some(path) => match known.get(path) {
                Some(place) => *place,
                None if known.len() >= MOST_PLACES => None,
                None => {
                    let found = see(tx, path)?;
                    let place = found.as_ref().map(|found| found.id);
                    known.insert(path, place);
                    if let Some(found) = found {
                        places.entry(found.id).or_insert_with(|| (found, Vec::new()));
                    }
                    place
                }
            },
        };
        if let Some(place) = place {
            places.entry(place).or_insert_with(|| (project.clone(), Vec::new())).1.push(one);
        }
    }
    Ok(places.into_values().collect())
}

/// A project of which the pusher sees issues.
fn see(tx: &mut WriteTx<'_>, path: &str) -> Result<Option<Project>> {
    match tx.open(&ProjectRef::Path(path.to_owned()), ProjectAbility::ReadIssues) {
        Ok(place) => Ok(Some(place)),
        Err(Error::NotFound(_) | Error::Forbidden(_) | Error::Unauthenticated) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds the issues of one project that are meant, and adds what shall happen to them.
fn resolve(
    tx: &mut WriteTx<'_>,
    place: &Project,
    home: bool,
    said: &[&Said],
    touched: &mut usize,
    mentions: &mut Vec<Mention>,
) -> Result<()> {
    if !tx.can(place, ProjectAbility::WriteIssues) {
        return Ok(());
    }
    let (sight, may_close_all) = (tx.sight_in(place), tx.can(place, ProjectAbility::AdministerIssues));
    let mut by_number: HashMap<i64, Vec<&Said>> = HashMap::new();
    for one in said {
        by_number.entry(one.reference.iid).or_default().push(one);
    }
    let numbers: Vec<i64> = by_number.keys().copied().collect();
    for issue in store::mentions::named(tx.db(), &sight, place.id, &numbers)? {
        let may_close = may_close_all || issue.involved;
        if *touched >= MOST_ISSUES || !(may_close || home) {
            continue;
        }
        *touched += 1;
        let said = by_number.remove(&issue.iid).unwrap_or_default();
        mentions.extend(in_one_voice(&said, may_close).into_iter().map(|(commit, closes)| Mention {
            project: place.id,
            issue: issue.id,
            sha: commit.to_string(),
            closes,
        }));
    }
    Ok(())
}

/// What commits say about one issue, each once: the oldest of those that close it does so, the others only name it.
fn in_one_voice(said: &[&Said], may_close: bool) -> Vec<(Oid, bool)> {
    let closer = said.iter().find(|one| may_close && one.reference.closes).map(|one| one.commit);
    let mut seen: HashSet<Oid> = closer.into_iter().collect();
    let others = said.iter().map(|one| one.commit).filter(|commit| seen.insert(*commit));
    let others: Vec<(Oid, bool)> = others.map(|commit| (commit, false)).collect();
    closer.map(|commit| (commit, true)).into_iter().chain(others).collect()
}

/// Does what a push that has happened says about issues. Whoever calls this holds the intent.
pub(crate) fn act(tx: &mut WriteTx<'_>, intent: i64) -> Result<()> {
    let Some((pusher, mentions)) = store::mentions::of_intent(tx.db(), intent)? else { return Ok(()) };
    // They come by project: all who hold several do so in this order.
    for of_place in mentions.chunk_by(|one, next| one.project == next.project) {
        store::issues::hold(tx.db(), of_place[0].project)?;
    }
    // What the pusher may do was judged before the push happened.
    let sight = Sight { user: pusher, confidential: true };
    for of_issue in mentions.chunk_by(|one, next| one.issue == next.issue) {
        let Mention { project, issue, .. } = of_issue[0];
        let Some(issue) = store::issues::find(tx.db(), &sight, project, issue)? else { continue };
        if act_on(tx, &issue, pusher, of_issue)?
            && let Some(closed) = store::issues::find(tx.db(), &sight, project, issue.id)?
        {
            issues::announce(tx, &closed, pusher, IssueAction::Close)?;
        }
    }
    Ok(())
}

/// Does what commits say about one issue; says whether that closed it.
fn act_on(tx: &mut WriteTx<'_>, issue: &Issue, pusher: i64, mentions: &[Mention]) -> Result<bool> {
    let mut closed = false;
    let told = store::mentions::told(tx.db(), issue.id, MENTIONED)?;
    for Mention { sha, closes, .. } in mentions {
        // At most one of them closes it.
        if *closes && issue.state != IssueState::Closed {
            issues::turn(tx, issue, true, pusher, Some(&format!("commit {sha}")))?;
            closed = true;
            continue;
        }
        let body = format!("{MENTIONED}{sha}");
        if !told.contains(&body) {
            notes::tell(tx, issue, pusher, &body)?;
        }
    }
    Ok(closed)
}
