//! The one gate for refs. Whatever moves a branch or a tag passes here: a push over HTTP or SSH, the endpoints for
//! branches, tags, files and commits.
//!
//! 1. The objects are in quarantine, checked and complete.
//! 2. The change is weighed against the repository, while nobody else writes to it (`weigh`).
//! 3. One transaction judges it and writes it down as intended, with all that follows from it (`judge`).
//! 4. Objects move in and refs move on, all of it on disk ([`git::Repositories::apply`]).
//! 5. The intent is done, and what it carries becomes visible.
//!
//! Whatever is interrupted between two steps is settled before the next push, and at the start: if its refs have moved
//! it is completed, else forgotten. So what follows from a push happens exactly once.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use ci::Plan;
use git::{Listing, Quarantine, Refs, Repositories, Repository};
use model::{
    Change, Commit, Happening, Occasion, Oid, Project, Protection, PushLevel, RefChange, RefKind, RefName, Role,
    Status,
    events::{Action, COMMITS_KEPT, PushCommit, PushData},
    happenings::{FileLists, Pushed},
    pipelines::Source,
    repository::Signature,
};
use store::{
    events::NewEvent,
    intents::{Intent, NewIntent},
    pipelines::NewPipeline,
};
use tracing::{error, info, warn};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, Reader, Result, Writer, announcements, jobs,
    mentions::{self, Said},
    pipelines::{
        drafts::{self, Draft, Drafted, Moved},
        machine, tidings,
    },
    turns::Turn,
};

const NO_PUSH: &str = "You are not allowed to push code to this project.";
const NO_TAG_CHANGE: &str = "You are not allowed to change existing tags on this project.";
const NO_FORCE: &str = "You are not allowed to force push code to a protected branch on this project.";
const NO_DELETE: &str = "You are not allowed to delete protected branches from this project.";
pub(crate) const NO_PROTECTED_PUSH: &str = "You are not allowed to push code to protected branches on this project.";
const NO_DEFAULT_DELETE: &str = "The default branch of a project cannot be deleted; choose another one first.";
pub(crate) const STALE: &str = "It has changed meanwhile; fetch first.";
const GONE: &str = "It does not exist.";
const OTHERS: &str = "Refused, because another ref of this push was refused.";

/// How much of the messages of commits is told, in bytes: of one, and of all that one push brings.
const LONGEST_MESSAGE: usize = 64 << 10;
const ALL_MESSAGES: usize = 1 << 20;
/// Of how many refs of one push it is told which commits came; of the others only that they changed.
const TOLD_REFS: usize = 100;

/// How many bytes of paths hooks are told of one push.
const ALL_PATHS: usize = 512 << 10;

/// How many refs one push may change.
pub const MOST_CHANGES: usize = 10_000;

/// Changes of refs, all wanted at once.
pub struct Push {
    /// Which refs, from what to what.
    pub changes: Vec<RefChange>,
    /// The objects that come with them.
    pub incoming: Option<Quarantine>,
    /// Whether all shall happen or none.
    pub atomic: bool,
    /// Words of the client to whom it may concern.
    pub options: Vec<String>,
}

/// What came of the change of one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefOutcome {
    /// Which ref.
    pub name: RefName,
    /// Why it did not change, in one sentence; `None` if it did.
    pub refusal: Option<String>,
}

/// By which way a change came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A push of git.
    Push,
    /// An endpoint, which has its own rules on top.
    Api,
}

/// Whether a change was refused because somebody else was faster: whoever looks again sees what they did.
pub(crate) fn came_too_late<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Refused(text)) if text == STALE || text == GONE)
}

/// A quarantine for a project that was opened to be written to.
pub fn incoming(forge: &Forge, project: i64) -> Result<Quarantine> {
    forge.require_room()?;
    forge.heed(forge.shared().repositories.quarantine(project).map_err(Error::from))
}

/// Changes refs, in one piece and for good, as far as the caller may.
///
/// A change that is refused is no error: each ref is told its outcome. One that may not be refuses all of them, as
/// clients of the original expect; one that came too late refuses the others only in an atomic push.
pub async fn push(forge: &Forge, caller: Caller, project: i64, push: Push, via: Via) -> Result<Vec<RefOutcome>> {
    let forge = forge.clone();
    // On its own: the client may go away, and what was begun has to be ended.
    let task = tokio::spawn(async move { forge.heed(pass(&forge, caller, project, push, via).await) });
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a push: {error}"))))
}

async fn pass(forge: &Forge, caller: Caller, project: i64, push: Push, via: Via) -> Result<Vec<RefOutcome>> {
    let _turn = forge.shared().turns.take(project, Turn::Write).await;
    settle(forge, project).await?;
    let listened = forge.peek(Caller::system(), move |it: &mut Reader<'_>| is_listened_to(it, project)).await?;
    let repositories = forge.shared().repositories.clone();
    let (weighed, push) = blocking(move || Ok((weigh(&repositories, project, &push, listened)?, push))).await?;
    let (weighed, push) = draft(forge, project, weighed, push).await?;
    let weighed = Arc::new(weighed);
    let depth = caller.depth();
    let _moving = begin_moving(forge).await?;
    let judged = {
        let weighed = Arc::clone(&weighed);
        let atomic = push.atomic;
        forge.write(caller, move |it| judge(it, project, &weighed, atomic, via)).await?
    };
    let Judged { outcomes, intent } = judged;
    let Some(intent) = intent else { return Ok(outcomes) };
    match carry_out(forge, intent, push.incoming, depth).await {
        Ok(()) => Ok(outcomes),
        Err(Error::Refused(text)) => {
            Ok(outcomes.into_iter().map(|one| RefOutcome { refusal: Some(text.clone()), ..one }).collect())
        }
        Err(error) => Err(error),
    }
}

/// What is built once the push has happened. It is planned beside the push, after everything that may refuse it, and takes
/// nothing where there is no file that says what to build.
async fn draft(forge: &Forge, project: i64, mut weighed: Weighed, push: Push) -> Result<(Weighed, Push)> {
    let moved = weighed.files_to_build();
    if moved.is_empty() {
        return Ok((weighed, push));
    }
    let survey = move |it: &mut Reader<'_>| {
        let opened = it.open(&ProjectRef::Id(project), ProjectAbility::ReadPipelines);
        match opened {
            Ok(project) => drafts::survey(it, project).map(Some),
            // Nothing is built here, or not any more.
            Err(Error::Forbidden(_) | Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let Some(mut ground) = forge.read(Caller::system(), survey).await? else { return Ok((weighed, push)) };
    if let Some(head) = &weighed.head {
        // As it will be by then.
        ground.project.default_branch = Some(head.short().to_owned());
        ground.protections.push(first_protection(head));
    }
    let repositories = forge.shared().repositories.clone();
    blocking(move || {
        let drafted = objects_of(&repositories, project, &push).and_then(|objects| match objects {
            Some(objects) => drafts::of_push(&objects, &ground, &moved),
            None => Ok(Vec::new()),
        });
        // Not to know what to build is no reason to refuse a push.
        weighed.drafts = drafted.unwrap_or_else(|error| {
            error!(%error, project, "the pipelines of a push cannot be planned");
            Vec::new()
        });
        Ok((weighed, push))
    })
    .await
}

/// What is in quarantine and what is there, at once; of a project without a repository only the former.
fn objects_of(repositories: &Repositories, project: i64, push: &Push) -> Result<Option<Repository>> {
    Ok(match &push.incoming {
        Some(incoming) => Some(incoming.repository()?),
        None => repositories.find(project)?,
    })
}

/// The rule for the first default branch, which is protected from the beginning.
fn first_protection(head: &RefName) -> Protection {
    Protection { name: head.short().to_owned(), push: PushLevel::Masters, merge: PushLevel::Masters }
}

/// Whether hooks of a project are told what commits do to files; else nobody need look.
fn is_listened_to(it: &mut Reader<'_>, project: i64) -> Result<bool> {
    Ok(announcements::is_wanted(it, Occasion::Push, Some(project))?
        || announcements::is_wanted(it, Occasion::TagPush, Some(project))?)
}

/// Steps 4 and 5: does what was written down.
async fn carry_out(forge: &Forge, intent: Intent, incoming: Option<Quarantine>, depth: i32) -> Result<()> {
    let repositories = forge.shared().repositories.clone();
    let (applied, intent) = blocking(move || {
        let applied = repositories.apply(intent.project, incoming.as_ref(), &intent.changes, head_of(&intent).as_ref());
        Ok((applied, intent))
    })
    .await?;
    match applied {
        Ok(()) => {
            let (id, project) = (intent.id, intent.project);
            let myself = Caller::system().led_by_hooks(depth);
            if let Err(error) = forge.write(myself, move |it| finish(it, &intent)).await {
                // The refs stand, and it is written down what follows: that is made up for.
                error!(%error, intent = id, project, "a push is on disk, but what follows from it has to wait");
            }
            Ok(())
        }
        Err(problem) => {
            warn!(error = %problem, project = intent.project, "refs could not be moved");
            // Some may have moved before the disk failed; then all have by now.
            if settle_moving(forge, intent.project).await?.contains(&intent.id) {
                return Ok(());
            }
            match problem {
                git::Error::Moved(_) => Err(Error::Refused(STALE.into())),
                other => Err(other.into()),
            }
        }
    }
}

/// From here on refs move: whoever takes a copy of everything waits until it is written down that they have.
pub(crate) async fn begin_moving(forge: &Forge) -> Result<git::Moving> {
    let repositories = forge.shared().repositories.clone();
    blocking(move || Ok(repositories.begin_moving()?)).await
}

/// Does something to the disk that may take a moment, away from those who must not wait.
pub(crate) async fn blocking<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let task = tokio::task::spawn_blocking(f);
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("a task on the disk: {error}"))))
}

/// What is to be known of a change to judge it, and what is told of it later.
struct Weighed {
    changes: Vec<WeighedChange>,
    /// Whether there was no branch before.
    was_empty: bool,
    /// The branch that people get who ask for none, before this.
    default: Option<RefName>,
    /// The branch that shall be the default from now on, if that changes.
    head: Option<RefName>,
    /// What the commits say about issues that come onto the default branch.
    said: Vec<Said>,
    /// Whether hooks of the project were there to be told when it was weighed.
    listened: bool,
    /// What will be built.
    drafts: Vec<Draft>,
}

impl Weighed {
    /// The refs that lead to a CI file.
    fn files_to_build(&self) -> Vec<Moved> {
        let moved = |one: &WeighedChange| {
            let (tip, file) = one.builds.filter(|_| one.refusal.is_none())?;
            Some(Moved { name: one.change.name.clone(), old: one.change.old, tip, file })
        };
        self.changes.iter().filter_map(moved).collect()
    }
}

struct WeighedChange {
    change: RefChange,
    /// Why it cannot happen, whoever wants it.
    refusal: Option<String>,
    /// Whether the old tip is left behind.
    forced: bool,
    data: PushData,
    /// What the annotation of a new tag says.
    annotation: Option<String>,
    /// What the commits did to files, if somebody is told.
    files: Vec<FileLists>,
    /// The commit and the CI file that a branch or a tag leads to from then on.
    builds: Option<(Oid, Oid)>,
}

/// Step 2: looks at the changes and the repository, while nobody else writes to it.
fn weigh(repositories: &Repositories, project: i64, push: &Push, listened: bool) -> Result<Weighed> {
    if push.changes.len() > MOST_CHANGES {
        return Err(Error::Refused(format!("A push may change {MOST_CHANGES} refs at most.")));
    }
    let repository = repositories.find(project)?;
    let refs = repository.as_ref().map_or_else(|| Ok(Arc::default()), Repository::refs)?;
    let objects = objects_of(repositories, project, push)?;
    let default = refs.head.clone().filter(|head| refs.find(head).is_some());
    let known = known_afterwards(&refs, objects.as_ref(), default.as_ref(), &push.changes)?;
    let mut seen = HashSet::new();
    let mut changes = Vec::with_capacity(push.changes.len());
    let listing = listened.then(|| Listing::new(ALL_PATHS));
    let mut words = Words { refs: TOLD_REFS, bytes: ALL_MESSAGES, listing, built: drafts::MOST_REFS };
    for change in &push.changes {
        let mut one = weigh_one(&refs, objects.as_ref(), known.as_ref(), change, &mut words)?;
        if !seen.insert(&change.name) {
            one.refusal = Some("It is named twice in one push.".into());
        }
        changes.push(one);
    }
    refuse_clashes(&refs, &mut changes);
    let was_empty = refs.branches.is_empty();
    let head = if was_empty { first_default(&refs, &changes) } else { None };
    let mut weighed = Weighed { changes, was_empty, default, head, said: Vec::new(), listened, drafts: Vec::new() };
    weighed.said = hear(objects.as_ref(), &weighed)?;
    Ok(weighed)
}

/// The default branch and where it stands once a push has happened: what is new on other branches is what it lacks then.
fn known_afterwards(
    refs: &Refs,
    objects: Option<&Repository>,
    default: Option<&RefName>,
    changes: &[RefChange],
) -> Result<Option<(RefName, Oid)>> {
    let branches = || changes.iter().filter(|change| change.new.is_some()).map(|change| &change.name);
    let name = match default {
        Some(default) => Some(default.clone()),
        None => choose_default(refs.head.as_ref(), branches().filter(|name| name.kind() == RefKind::Branch)),
    };
    let Some(name) = name else { return Ok(None) };
    let pushed = changes.iter().find(|change| change.name == name).and_then(|change| change.new);
    let is_commit = |tip: Oid| match objects {
        Some(objects) => Ok::<_, Error>(objects.peel(tip)? == Some(git::Peeled::Commit(tip))),
        None => Ok(false),
    };
    let tip = match pushed {
        Some(tip) if is_commit(tip)? => Some(tip),
        Some(_) | None => refs.find(&name).map(|found| found.target),
    };
    Ok(tip.map(|tip| (name, tip)))
}

/// What the commits say about issues that a push brings onto the default branch. What they say elsewhere counts once they
/// get there. The first push says nothing: it brings a history that was told elsewhere.
fn hear(objects: Option<&Repository>, weighed: &Weighed) -> Result<Vec<Said>> {
    let is_heard = |one: &&WeighedChange| one.refusal.is_none() && Some(&one.change.name) == weighed.default.as_ref();
    let change = weighed.changes.iter().find(is_heard).map(|one| &one.change);
    match (objects, change) {
        (Some(objects), Some(RefChange { old: Some(old), new: Some(new), .. })) => {
            mentions::listen(objects, *new, *old)
        }
        _ => Ok(Vec::new()),
    }
}

fn weigh_one(
    refs: &Refs,
    objects: Option<&Repository>,
    known: Option<&(RefName, Oid)>,
    change: &RefChange,
    words: &mut Words,
) -> Result<WeighedChange> {
    let RefChange { name, old, new } = change;
    let data =
        PushData { ref_name: name.to_string(), before: *old, after: *new, commits: Vec::new(), total_commits: 0 };
    let mut one = WeighedChange {
        change: change.clone(),
        refusal: None,
        forced: false,
        data,
        annotation: None,
        files: Vec::new(),
        builds: None,
    };
    let current = refs.find(name).map(|found| found.target);
    let reason = if name.is_hidden() || name.as_str().starts_with("refs/replace/") {
        Some("It belongs to the service itself.")
    } else if old.is_none() && new.is_none() || current.is_none() && new.is_none() {
        Some(GONE)
    } else if current != *old {
        Some(STALE)
    } else if old == new {
        Some("It is what it shall be already.")
    } else {
        None
    };
    if let Some(reason) = reason {
        one.refusal = Some(reason.into());
        return Ok(one);
    }
    let Some(new) = *new else { return Ok(one) };
    let tip = objects.map(|objects| objects.peel(new)).transpose()?.flatten();
    match (name.kind(), tip) {
        (_, None) => one.refusal = Some("What it shall point to is missing.".into()),
        (RefKind::Branch, Some(peeled)) if peeled != git::Peeled::Commit(new) => {
            one.refusal = Some("A branch can only point to a commit.".into());
        }
        (kind, Some(peeled)) => {
            if let (git::Peeled::Commit(tip), Some(objects)) = (peeled, objects) {
                let old_tip = if kind == RefKind::Branch { *old } else { None };
                one.forced = match old_tip {
                    Some(old) => !objects.is_ancestor(old, tip)?,
                    None => false,
                };
                // To tell of a tag takes one commit.
                if words.refs > 0 || kind == RefKind::Tag {
                    words.refs = words.refs.saturating_sub(1);
                    let known = known.filter(|(default, _)| default != name).map(|(_, tip)| *tip);
                    tell_commits(&mut one.data, objects, kind, tip, known, words)?;
                    tell_files(&mut one, objects, new, words)?;
                }
                if words.built > 0 && kind != RefKind::Other {
                    words.built -= 1;
                    one.builds = drafts::file_of(objects, tip)?.map(|file| (tip, file));
                }
            }
        }
    }
    Ok(one)
}

/// How much may still be told of one push. It takes a few bytes to make a thousand branches of one long history, and
/// telling of each of them would take far more than the push itself.
struct Words {
    refs: usize,
    bytes: usize,
    /// What is told of files, if somebody is told.
    listing: Option<Listing>,
    /// Of how many refs it is looked up whether there is something to build.
    built: usize,
}

/// The commits that a change brings, as far as they are told. What is known already is what the default branch has.
fn tell_commits(
    data: &mut PushData,
    objects: &Repository,
    kind: RefKind,
    tip: Oid,
    known: Option<Oid>,
    words: &mut Words,
) -> Result<()> {
    let (commits, total) = match (kind, data.before) {
        (RefKind::Tag, _) => (objects.commit(tip)?.into_iter().collect(), 1),
        (RefKind::Other, _) => (Vec::new(), 0),
        (RefKind::Branch, Some(before)) => objects.commits_beyond(tip, &[before], COMMITS_KEPT)?,
        (RefKind::Branch, None) => objects.commits_beyond(tip, known.as_slice(), COMMITS_KEPT)?,
    };
    let mut told = |commit: Commit| {
        // Who wrote it, and when it came here.
        let Signature { seconds, offset, .. } = commit.committer;
        let mut message = commit.message;
        words.bytes -= cut(&mut message, words.bytes);
        PushCommit { id: commit.id, message, author: Signature { seconds, offset, ..commit.author } }
    };
    data.commits = commits.into_iter().rev().map(&mut told).collect();
    data.total_commits = i64::try_from(total).unwrap_or(i64::MAX);
    Ok(())
}

/// What the commits did to files, and what the tag says: hooks are told more than events are.
fn tell_files(one: &mut WeighedChange, objects: &Repository, new: Oid, words: &mut Words) -> Result<()> {
    let Some(listing) = &mut words.listing else { return Ok(()) };
    for commit in &one.data.commits {
        one.files.push(objects.file_lists(commit.id, listing)?);
    }
    if one.change.name.kind() == RefKind::Tag {
        one.annotation = objects.annotation(new)?.map(|mut text| {
            words.bytes -= cut(&mut text, words.bytes);
            text
        });
    }
    Ok(())
}

/// Cuts a message where it is too long, or where all messages are; answers how long it is now.
fn cut(message: &mut String, room: usize) -> usize {
    let most = LONGEST_MESSAGE.min(room).min(message.len());
    let end = (0..=most).rev().find(|at| message.is_char_boundary(*at));
    message.truncate(end.unwrap_or_default());
    message.len()
}

/// Refuses names of which one is the folder of another.
fn refuse_clashes(refs: &Refs, changes: &mut [WeighedChange]) {
    let created: HashSet<String> = changes
        .iter()
        .filter(|one| one.change.old.is_none() && one.refusal.is_none())
        .map(|one| one.change.name.to_string())
        .collect();
    let taken =
        |name: &str| created.contains(name) || RefName::new(name).is_some_and(|name| refs.find(&name).is_some());
    for one in changes.iter_mut().filter(|one| one.change.old.is_none() && one.refusal.is_none()) {
        let name = one.change.name.as_str();
        let above = name.match_indices('/').map(|(at, _)| &name[..at]).find(|above| taken(above));
        let folder = format!("{name}/");
        let below = || {
            let made = created.iter().find(|other| other.starts_with(&folder)).cloned();
            made.or_else(|| refs.iter().map(|found| found.name.to_string()).find(|found| found.starts_with(&folder)))
        };
        if let Some(other) = above.map(ToOwned::to_owned).or_else(below) {
            one.refusal = Some(format!("Its name clashes with {other}."));
        }
    }
}

/// Which of the first branches becomes the default.
fn first_default(refs: &Refs, changes: &[WeighedChange]) -> Option<RefName> {
    let made = changes.iter().filter(|one| one.refusal.is_none() && one.change.new.is_some());
    let branches = made.map(|one| &one.change.name).filter(|name| name.kind() == RefKind::Branch);
    choose_default(refs.head.as_ref(), branches)
}

/// Which of some branches becomes the default: the one that HEAD names, else `master` or `main`, else the first by
/// name.
pub(crate) fn choose_default<'a>(
    head: Option<&RefName>,
    branches: impl Iterator<Item = &'a RefName>,
) -> Option<RefName> {
    let branches: BTreeSet<&RefName> = branches.collect();
    let usual = [head.cloned(), RefName::branch("master"), RefName::branch("main")];
    let preferred = usual.into_iter().flatten().find(|name| branches.contains(name));
    preferred.or_else(|| branches.first().map(|name| (*name).clone()))
}

/// What a transaction decided.
struct Judged {
    outcomes: Vec<RefOutcome>,
    /// What is to be done now; `None` if nothing is.
    intent: Option<Intent>,
}

/// Step 3: judges the changes and writes down what will happen.
fn judge(it: &mut Writer<'_>, project: i64, weighed: &Weighed, atomic: bool, via: Via) -> Result<Judged> {
    let project = it.open(&ProjectRef::Id(project), ProjectAbility::PushCode).map_err(|error| match error {
        Error::Forbidden(None) => Error::forbidden(NO_PUSH),
        other => other,
    })?;
    let protections = store::protections::of_project(it.db(), project.id)?;
    let role = it.role_to(&project);
    let mut refusals: Vec<Option<String>> = Vec::with_capacity(weighed.changes.len());
    let mut forbidden = false;
    for one in &weighed.changes {
        let verdict = verdict(weighed, one, &protections, role, via);
        forbidden |= verdict.is_some();
        refusals.push(verdict.map(ToOwned::to_owned).or_else(|| one.refusal.clone()));
    }
    if forbidden || atomic && refusals.iter().any(Option::is_some) {
        for refusal in refusals.iter_mut().filter(|refusal| refusal.is_none()) {
            *refusal = Some(OTHERS.to_owned());
        }
    }
    let outcomes: Vec<RefOutcome> = weighed
        .changes
        .iter()
        .zip(&refusals)
        .map(|(one, refusal)| RefOutcome { name: one.change.name.clone(), refusal: refusal.clone() })
        .collect();
    let accepted: Vec<&WeighedChange> =
        weighed.changes.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_none()).map(|(one, _)| one).collect();
    if accepted.is_empty() {
        return Ok(Judged { outcomes, intent: None });
    }
    let intent = write_down(it, &project, weighed, &accepted)?;
    Ok(Judged { outcomes, intent: Some(intent) })
}

/// Why somebody may not make a change that could be made; `None` if they may.
fn verdict(
    weighed: &Weighed,
    one: &WeighedChange,
    protections: &[Protection],
    role: Option<Role>,
    via: Via,
) -> Option<&'static str> {
    let RefChange { name, old, new } = &one.change;
    let is_master = role >= Some(Role::Master);
    match name.kind() {
        RefKind::Branch => {
            let branch = name.short();
            let mut rules = protections.iter().filter(|rule| rule.matches(branch)).peekable();
            let is_protected = rules.peek().is_some();
            let may_push = !is_protected
                || rules.any(|rule| match rule.push {
                    PushLevel::NoOne => false,
                    PushLevel::Developers => role >= Some(Role::Developer),
                    PushLevel::Masters => is_master,
                });
            if new.is_none() && is_protected {
                Some(NO_DELETE)
            } else if new.is_none() && weighed.default.as_ref() == Some(name) {
                Some(NO_DEFAULT_DELETE)
            } else if is_protected && one.forced {
                Some(NO_FORCE)
            } else if !may_push || weighed.was_empty && !is_master {
                // The first push makes the default branch, and that is protected from then on.
                Some(NO_PROTECTED_PUSH)
            } else {
                None
            }
        }
        // Nobody below a master writes anything to a repository before it has its default branch.
        RefKind::Tag if weighed.was_empty && !is_master => Some(NO_PROTECTED_PUSH),
        RefKind::Tag => (old.is_some() && !is_master && via == Via::Push).then_some(NO_TAG_CHANGE),
        RefKind::Other => None,
    }
}

/// Writes down what will happen, with all that follows from it.
fn write_down(
    it: &mut Writer<'_>,
    project: &Project,
    weighed: &Weighed,
    accepted: &[&WeighedChange],
) -> Result<Intent> {
    let now = it.now();
    let user = it.actor().user().map(|user| user.id);
    let changes: Vec<RefChange> = accepted.iter().map(|one| one.change.clone()).collect();
    let head = weighed.head.clone().filter(|head| changes.iter().any(|change| change.name == *head));
    let protection = head.as_ref().map(first_protection);
    let default_branch = head.as_ref().map_or(Change::Keep, |head| Change::Set(head.short().to_owned()));
    let new = NewIntent {
        project: project.id,
        user,
        changes: &changes,
        default_branch: default_branch.clone(),
        protection: protection.clone(),
        now,
    };
    let id = store::intents::insert(it.db(), &new)?;
    if let Some(author) = user {
        for one in accepted.iter().filter(|one| one.change.name.kind() != RefKind::Other) {
            let event = NewEvent {
                project: project.id,
                author,
                action: Action::Pushed,
                target: None,
                push: Some(&one.data),
                intent: Some(id),
                now,
            };
            store::events::insert(it.db(), &event)?;
        }
        let project = Project {
            default_branch: head
                .as_ref()
                .map(|head| head.short().to_owned())
                .or_else(|| project.default_branch.clone()),
            ..project.clone()
        };
        announce(it, &project, id, weighed.listened, accepted)?;
        if accepted.iter().any(|one| Some(&one.change.name) == weighed.default.as_ref()) {
            mentions::write_down(it, &project, id, &weighed.said)?;
        }
        plan_pipelines(it, &project, id, author, &weighed.drafts, accepted)?;
    }
    Ok(Intent { id, project: project.id, user, changes, default_branch, protection, created_at: now })
}

/// Writes down which pipelines there will be; nobody sees them until the push has happened.
fn plan_pipelines(
    it: &mut Writer<'_>,
    project: &Project,
    intent: i64,
    user: i64,
    drafts: &[Draft],
    accepted: &[&WeighedChange],
) -> Result<()> {
    if drafts.is_empty() || !it.can(project, ProjectAbility::RunPipelines) {
        return Ok(());
    }
    let now = it.now();
    for draft in drafts.iter().filter(|draft| accepted.iter().any(|one| one.change.name == draft.name)) {
        let (status, yaml_errors, stages, plan) = match &draft.what {
            Drafted::Planned { stages, plan } => (Status::Created, None, stages.as_slice(), Some(plan.as_str())),
            Drafted::Skipped => (Status::Skipped, None, &[][..], None),
            Drafted::Invalid(text) => (Status::Failed, Some(text.as_str()), &[][..], None),
        };
        let new = NewPipeline {
            project: project.id,
            ref_name: draft.name.short(),
            tag: draft.name.as_tag().is_some(),
            sha: draft.sha,
            // Clients of the original are told the commit itself.
            before_sha: Some(draft.sha),
            source: Source::Push,
            status,
            yaml_errors,
            stages,
            user: Some(user),
            trigger: None,
            variables: None,
            intent: Some(intent),
            plan,
            now,
        };
        store::pipelines::insert(it.db(), &new)?;
    }
    Ok(())
}

/// Starts the pipelines of a push that has happened, and shows them. Those of refs that did not move go with the intent.
fn start_pipelines(it: &mut Writer<'_>, intent: &Intent, moved: &[RefName]) -> Result<()> {
    let waiting = store::pipelines::of_intent(it.db(), intent.id)?;
    if waiting.is_empty() {
        return Ok(());
    }
    let project = match it.open(&ProjectRef::Id(intent.project), ProjectAbility::ReadPipelines) {
        Ok(project) => project,
        // Builds were switched off meanwhile, or the project is being removed.
        Err(Error::Forbidden(_) | Error::NotFound(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    for one in waiting {
        let name = if one.tag { RefName::tag(&one.ref_name) } else { RefName::branch(&one.ref_name) };
        if !name.is_some_and(|name| moved.contains(&name)) {
            continue;
        }
        match one.plan.as_deref().map(Plan::from_text) {
            Some(Some(plan)) => {
                machine::begin(it, &project, one.id, &plan)?;
                store::pipelines::show(it.db(), one.id)?;
            }
            Some(None) => error!(pipeline = one.id, "the plan of a pipeline cannot be read"),
            None => {
                store::pipelines::show(it.db(), one.id)?;
                if let Some(pipeline) = store::pipelines::by_id(it.db(), one.id)? {
                    tidings::tell_pipeline(it, &project, &pipeline)?;
                }
            }
        }
    }
    Ok(())
}

/// Writes down what hooks are told of a push, once it has happened.
fn announce(
    it: &mut Writer<'_>,
    project: &Project,
    intent: i64,
    listened: bool,
    accepted: &[&WeighedChange],
) -> Result<()> {
    let Some(user) = it.actor().user().cloned() else { return Ok(()) };
    let mut wanted = Vec::new();
    for (kind, occasion, place) in [
        (RefKind::Branch, Occasion::Push, Some(project.id)),
        (RefKind::Branch, Occasion::SystemPush, None),
        (RefKind::Tag, Occasion::TagPush, Some(project.id)),
        (RefKind::Tag, Occasion::SystemTagPush, None),
    ] {
        let changes = accepted.iter().any(|one| one.change.name.kind() == kind);
        // A hook that came while the push was weighed would be told half of it.
        if changes && (listened || place.is_none()) && announcements::is_wanted(it, occasion, place)? {
            wanted.push((kind, occasion, place));
        }
    }
    for one in accepted {
        let name = &one.change.name;
        for (_, occasion, place) in wanted.iter().filter(|(kind, ..)| *kind == name.kind()) {
            let pushed = Pushed {
                project,
                user: &user,
                data: &one.data,
                message: one.annotation.as_deref(),
                files: &one.files,
                to_system: place.is_none(),
            };
            let happening = Happening::Push(&pushed);
            announcements::write_down(it, *occasion, *place, happening, Some((intent, name.as_str())))?;
        }
    }
    Ok(())
}

/// Writes down that another branch shall be the default.
pub(crate) fn intend_default(it: &mut Writer<'_>, project: i64, branch: &RefName) -> Result<()> {
    let (now, user) = (it.now(), it.actor().user().map(|user| user.id));
    let default_branch = Change::Set(branch.short().to_owned());
    store::intents::insert(it.db(), &NewIntent { project, user, changes: &[], default_branch, protection: None, now })?;
    Ok(())
}

/// Does what was written down for a repository.
pub(crate) async fn catch_up(forge: &Forge, project: i64) -> Result<()> {
    let _turn = forge.shared().turns.take(project, Turn::Write).await;
    settle(forge, project).await
}

/// The branch that HEAD shall name afterwards, if that changes.
fn head_of(intent: &Intent) -> Option<RefName> {
    intent.default_branch.set().and_then(|branch| RefName::branch(branch))
}

/// Step 5: what was intended has happened.
fn finish(it: &mut Writer<'_>, intent: &Intent) -> Result<()> {
    if !store::intents::hold(it.db(), intent.id)? {
        // Somebody else was faster, and it happens once.
        return Ok(());
    }
    mentions::act(it, intent.id)?;
    let now = it.now();
    let moved: Vec<RefName> = intent.changes.iter().map(|change| change.name.clone()).collect();
    start_pipelines(it, intent, &moved)?;
    store::intents::finish(it.db(), intent, &moved, now)?;
    it.ring();
    jobs::enqueue(it, &jobs::Job::KeepHouse(intent.project), now + jobs::HOUSEKEEPING_PAUSE)
}

/// Completes or forgets what was interrupted in a repository. Whoever calls this has the turn to write to it.
async fn settle(forge: &Forge, project: i64) -> Result<()> {
    if pending_of(forge, project).await?.is_empty() {
        return Ok(());
    }
    let _moving = begin_moving(forge).await?;
    settle_moving(forge, project).await.map(drop)
}

async fn pending_of(forge: &Forge, project: i64) -> Result<Vec<Intent>> {
    let find = move |it: &mut Reader<'_>| Ok(store::intents::pending_of(it.db(), project)?);
    forge.peek(Caller::system(), find).await
}

/// As [`settle`], while refs move already; tells what was completed.
async fn settle_moving(forge: &Forge, project: i64) -> Result<Vec<i64>> {
    let mut completed = Vec::new();
    for intent in pending_of(forge, project).await? {
        let id = intent.id;
        if settle_one(forge, intent).await? {
            completed.push(id);
        }
    }
    Ok(completed)
}

async fn settle_one(forge: &Forge, intent: Intent) -> Result<bool> {
    let repositories = forge.shared().repositories.clone();
    let (happened, intent) = blocking(move || {
        let happened = repositories.which_happened(intent.project, &intent.changes)?;
        // One without refs is only about the default branch, which has to be there still.
        let happens = if happened.is_empty() {
            let repository = repositories.find(intent.project)?;
            let refs = repository.map(|repository| repository.refs()).transpose()?;
            head_of(&intent).is_some_and(|head| refs.is_some_and(|refs| refs.find(&head).is_some()))
        } else {
            happened.contains(&true)
        };
        if !happens {
            return Ok((false, intent));
        }
        // The objects are in, since they come first; the refs that are missing follow.
        let rest: Vec<RefChange> = intent
            .changes
            .iter()
            .zip(&happened)
            .filter(|(_, happened)| !**happened)
            .map(|(change, _)| change.clone())
            .collect();
        repositories.apply(intent.project, None, &rest, head_of(&intent).as_ref())?;
        Ok((true, intent))
    })
    .await?;
    info!(intent = intent.id, project = intent.project, completed = happened, "settled a push that was interrupted");
    forge
        .write(Caller::system(), move |it| {
            if happened { finish(it, &intent) } else { Ok(store::intents::drop(it.db(), intent.id)?) }
        })
        .await?;
    Ok(happened)
}

/// Settles all pushes that were interrupted, and removes what is left of others; at the start, and now and then.
pub async fn settle_all(forge: &Forge) -> Result<()> {
    const AT_ONCE: i64 = 100;
    let repositories = forge.shared().repositories.clone();
    blocking(move || Ok(repositories.empty_trash()?)).await?;
    let mut after = 0;
    loop {
        let pending =
            forge.read(Caller::system(), move |it| Ok(store::intents::pending(it.db(), after, AT_ONCE)?)).await?;
        let Some(last) = pending.last() else { return Ok(()) };
        after = last.id;
        for Intent { project, .. } in pending {
            let _turn = forge.shared().turns.take(project, Turn::Write).await;
            if let Err(error) = settle(forge, project).await {
                error!(%error, project, "a push that was interrupted cannot be settled");
            }
        }
    }
}
