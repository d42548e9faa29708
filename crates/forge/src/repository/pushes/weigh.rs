//! Step 2 of a push: what is to be known of it before it is judged, and what is told of it later.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use git::{Listing, Quarantine, Refs, Repositories, Repository, Sent};
use model::{
    Commit, Oid, RefChange, RefKind, RefName, StorageId,
    events::{COMMITS_KEPT, PushCommit, PushData},
    objects::Signature,
    webhook_events::FileLists,
};

use super::{GONE, MOST_CHANGES, Push, STALE, objects_of};
use crate::{
    Error, Result,
    mentions::{self, Said},
    pipelines::drafts::{self, Draft, Moved},
};

/// How much of the messages of commits is told, in bytes: of one, and of all that one push brings.
const LONGEST_MESSAGE: usize = 64 << 10;
const ALL_MESSAGES: usize = 128 << 10;
/// Of how many refs of one push it is told which commits came; of the others only that they changed.
const TOLD_REFS: usize = 100;
const MISSING: &str = "the target object does not exist";
/// How many bytes of paths hooks are told of one push.
const ALL_PATHS: usize = 512 << 10;

/// What is to be known of a change to judge it, and what is told of it later.
pub(super) struct Weighed {
    pub(super) changes: Vec<WeighedChange>,
    /// Whether there was no branch before.
    pub(super) was_empty: bool,
    /// The branch that people get who ask for none, before this.
    pub(super) default: Option<RefName>,
    /// The branch that shall be the default from now on, if that changes.
    pub(super) head: Option<RefName>,
    /// What the commits say about issues that come onto the default branch.
    pub(super) said: Vec<Said>,
    /// Whether hooks of the project were there to be told when it was weighed.
    pub(super) listened: bool,
    /// What will be built.
    pub(super) drafts: Vec<Draft>,
}

impl Weighed {
    /// The refs that lead to a CI file.
    pub(super) fn files_to_build(&self) -> Vec<Moved> {
        let moved = |one: &WeighedChange| {
            let (tip, file) = one.builds.filter(|_| one.refusal.is_none())?;
            Some(Moved { name: one.change.name.clone(), old: one.change.old, tip, file })
        };
        self.changes.iter().filter_map(moved).collect()
    }
}

pub(super) struct WeighedChange {
    pub(super) change: RefChange,
    /// Why it cannot happen, whoever wants it.
    pub(super) refusal: Option<String>,
    /// Whether the old tip is left behind.
    pub(super) forced: bool,
    pub(super) data: PushData,
    /// What the annotation of a new tag says.
    pub(super) annotation: Option<String>,
    /// What the commits did to files, if somebody is told.
    pub(super) files: Vec<FileLists>,
    /// The commit and the CI file that a branch or a tag leads to from then on.
    pub(super) builds: Option<(Oid, Oid)>,
}

/// Step 2: looks at the changes and the repository, while nobody else writes to it.
pub(super) fn weigh(
    repositories: &Repositories,
    storage: &StorageId,
    push: &Push,
    sent: SentObjects,
    listened: bool,
) -> Result<Weighed> {
    if push.changes.len() > MOST_CHANGES {
        return Err(Error::Refused(format!("A push may change {MOST_CHANGES} refs at most.")));
    }
    let repository = repositories.find(storage)?;
    let refs = repository.as_ref().map_or_else(|| Ok(Arc::default()), Repository::refs)?;
    let objects = objects_of(repositories, storage, push)?;
    let default = refs.head.clone().filter(|head| refs.find(head).is_some());
    let known = known_afterwards(&refs, objects.as_ref(), default.as_ref(), &push.changes)?;
    let unreachable = Unreachable::find(repositories, storage, push, sent)?;
    let mut seen = HashSet::new();
    let mut changes = Vec::with_capacity(push.changes.len());
    let listing = listened.then(|| Listing::new(ALL_PATHS));
    let mut words = Words { refs: TOLD_REFS, bytes: ALL_MESSAGES, listing, built: drafts::MOST_REFS };
    for change in &push.changes {
        let mut one = weigh_one(&refs, objects.as_ref(), known.as_ref(), change, &mut words)?;
        if one.refusal.is_none() {
            one.refusal = change.new.and_then(|new| unreachable.refusal(new));
        }
        if !seen.insert(&change.name) {
            one.refusal = Some("It is named twice in one push.".into());
        }
        changes.push(one);
    }
    refuse_clashes(&refs, &mut changes);
    refuse_too_many(&refs, &mut changes);
    let was_empty = refs.branches.is_empty();
    let head = if was_empty { first_default(&refs, &changes) } else { None };
    let mut weighed = Weighed { changes, was_empty, default, head, said: Vec::new(), listened, drafts: Vec::new() };
    weighed.said = hear(objects.as_ref(), &weighed)?;
    Ok(weighed)
}

/// Why a change cannot happen because of objects that are no part of the repository as its users see it. They may still
/// be on disk, but a client that knows no more than their ids must not make them reachable again.
struct Unreachable {
    sent: Option<Sent>,
    /// New targets of refs that were not sent and cannot be reached.
    targets: BTreeSet<Oid>,
    /// An object that was not sent, that something sent links to, and that cannot be reached.
    link: Option<Oid>,
}

/// The objects that a push has sent, and what they link to. Objects never change, so this can be found out while others
/// write to the project.
pub(super) struct SentObjects {
    sent: Option<Sent>,
    /// What was not sent and has to be reachable; `None` if there was no repository to link to.
    links: Option<Vec<Oid>>,
}

impl SentObjects {
    pub(super) fn check(repositories: &Repositories, storage: &StorageId, push: &Push) -> Result<Self> {
        let sent = push.incoming.as_ref().map(Quarantine::sent).transpose()?;
        let mut objects = Self { sent, links: None };
        objects.find_links(repositories, storage, push)?;
        Ok(objects)
    }

    fn find_links(&mut self, repositories: &Repositories, storage: &StorageId, push: &Push) -> Result<()> {
        // What comes in first cannot lead to anything else.
        if let (Some(incoming), Some(sent)) = (&push.incoming, &self.sent)
            && repositories.exists(storage)
        {
            let tips = push.changes.iter().filter_map(|change| change.new).filter(|id| sent.contains(*id));
            // Opened for this alone: no two repositories may hold room for large objects at the same time.
            self.links = Some(sent.find_links(&incoming.repository()?, tips)?);
        }
        Ok(())
    }
}

impl Unreachable {
    fn find(repositories: &Repositories, storage: &StorageId, push: &Push, mut objects: SentObjects) -> Result<Self> {
        if objects.links.is_none() {
            // Another push may have made the repository since.
            objects.find_links(repositories, storage, push)?;
        }
        let SentObjects { sent, links } = objects;
        let is_sent = |id: Oid| sent.as_ref().is_some_and(|sent| sent.contains(id));
        let others = push.changes.iter().filter_map(|change| change.new).filter(|id| !is_sent(*id)).collect();
        let mut found = Self { sent, targets: BTreeSet::new(), link: None };
        if let Some(repository) = repositories.find(storage)? {
            found.targets = repository.find_unreachable(others)?;
            found.link = repository.find_unreachable(links.unwrap_or_default())?.first().copied();
        }
        Ok(found)
    }

    /// Why a ref may not point to this object.
    fn refusal(&self, new: Oid) -> Option<String> {
        if self.targets.contains(&new) {
            return Some(MISSING.into());
        }
        let link = self.link.filter(|_| self.sent.as_ref().is_some_and(|sent| sent.contains(new)))?;
        Some(format!("missing necessary objects: {link} is not part of the repository"))
    }
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
    } else if old.is_none() && new.is_some() && name.looks_like_an_id() {
        Some(match name.kind() {
            RefKind::Tag => "You cannot create a tag with a 40-character hexadecimal tag name.",
            _ => "You cannot create a branch with a 40-character hexadecimal branch name.",
        })
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
        (_, None) => one.refusal = Some(MISSING.into()),
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

/// Refuses new names once all names together are so long that a list of them could not be read any more.
fn refuse_too_many(refs: &Refs, changes: &mut [WeighedChange]) {
    let mut created = changes.iter_mut().filter(|one| one.change.old.is_none() && one.refusal.is_none()).peekable();
    if created.peek().is_none() {
        return;
    }
    let mut size = refs.listed_size();
    for one in created {
        one.refusal = add_to_list(&mut size, &one.change.name);
    }
}

/// Adds a ref to a list of so many bytes; tells why not if the list would be too long.
fn add_to_list(size: &mut u64, name: &RefName) -> Option<String> {
    *size += git::listed_size_of(name);
    (*size > git::MOST_LISTED).then(|| "The project has too many branches and tags; delete some of them first.".into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_until_a_list_of_them_would_be_too_long() {
        let name = |number: usize| RefName::branch(&format!("{number:06}{}", "x".repeat(200))).expect("a name");
        let id = Oid([1; 20]);
        let one = |number: usize| git::Ref { name: name(number), target: id, peeled: None };
        let mut refs = Refs::default();
        refs.branches = (0..97_000).map(one).collect();
        // As git writes it: the id, a space, the name, the end of the line.
        let line = format!("{id} {}\n", name(0)).len() as u64;
        let mut size = refs.listed_size();
        assert_eq!(size, 97_000 * line);
        let mut taken = 0;
        while add_to_list(&mut size, &name(97_000 + taken)).is_none() {
            taken += 1;
        }
        assert_eq!(taken as u64, (git::MOST_LISTED - refs.listed_size()) / line);
        let told = add_to_list(&mut size, &name(0)).expect("refused");
        assert_eq!(told, "The project has too many branches and tags; delete some of them first.");
    }
}
