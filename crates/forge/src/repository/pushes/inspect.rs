//! Step 2 of a push: inspects the changes against the repository, and collects the details for events and webhooks.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use git::{FileListBudget, Quarantine, ReceivedObjects, Refs, Repository};
use model::{
    Commit, Oid, RefChange, RefKind, RefName,
    events::{MAX_PUSH_COMMITS, PushCommit, PushData},
    objects::Signature,
    webhook_events::ChangedPaths,
};

use super::{MAX_CHANGES, Push, PushTarget, RefRejection, open_objects};
use crate::{
    Error, Result,
    mentions::{self, CommitReference},
    pipelines::planning::{self, PlannedPipeline, PushedRef},
};

/// The maximum length of a commit message in events, in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 10;
/// The maximum length of all commit messages of a push in events, in bytes.
const MAX_TOTAL_MESSAGE_BYTES: usize = 128 << 10;
/// The maximum number of refs of a push with details of their commits.
const MAX_DETAILED_REFS: usize = 100;
/// The maximum length of all changed paths of a push in webhook payloads, in bytes.
const MAX_TOTAL_PATH_BYTES: usize = 512 << 10;

/// A push that was inspected, with the details for events and webhooks.
pub(super) struct InspectedPush {
    pub(super) changes: Vec<InspectedChange>,
    /// The generation of the refs that the changes were compared with.
    pub(super) generation: i64,
    /// Whether the repository had no branches.
    pub(super) was_empty: bool,
    /// The default branch before the push.
    pub(super) default_branch: Option<RefName>,
    /// The new default branch, if it changes.
    pub(super) new_default_branch: Option<RefName>,
    /// Issue references in commits that are new on the default branch.
    pub(super) mentions: Vec<CommitReference>,
    /// Whether the project had webhooks for pushes during the inspection.
    pub(super) has_webhooks: bool,
    /// The pipelines to create.
    pub(super) pipelines: Vec<PlannedPipeline>,
}

impl InspectedPush {
    /// Returns the accepted refs with a CI file.
    pub(super) fn refs_with_ci_file(&self) -> Vec<PushedRef> {
        let pushed_ref = |one: &InspectedChange| {
            let (tip, file) = one.ci_file.filter(|_| one.rejection.is_none())?;
            Some(PushedRef { name: one.change.name.clone(), old: one.change.old, tip, file })
        };
        self.changes.iter().filter_map(pushed_ref).collect()
    }
}

/// One inspected change.
pub(super) struct InspectedChange {
    pub(super) change: RefChange,
    /// Why the change is impossible, regardless of permissions.
    pub(super) rejection: Option<RefRejection>,
    /// Whether the change is not a fast-forward.
    pub(super) forced: bool,
    pub(super) data: PushData,
    /// The object that an annotated tag leads to in the end.
    pub(super) peeled: Option<Oid>,
    /// The annotation of a new tag.
    pub(super) annotation: Option<String>,
    /// The changed paths of the commits, if there are webhooks.
    pub(super) files: Vec<ChangedPaths>,
    /// The new commit of a branch or tag, and its CI file.
    pub(super) ci_file: Option<(Oid, Oid)>,
}

/// Inspects a push.
pub(super) fn inspect(target: PushTarget, push: &Push, sent: SentObjects) -> Result<InspectedPush> {
    if push.changes.len() > MAX_CHANGES {
        return Err(Error::Refused(format!("too many refs in this push; the maximum is {MAX_CHANGES}")));
    }
    let PushTarget { repository, has_webhooks, .. } = target;
    let refs = repository.as_ref().map(|repository| Arc::clone(repository.refs())).unwrap_or_default();
    let unreachable = Unreachable::find(repository.as_ref(), push, sent)?;
    let objects = open_objects(repository, push)?;
    let default_branch = refs.default_branch().cloned();
    let known = default_branch_after(&refs, objects.as_ref(), default_branch.as_ref(), &push.changes)?;
    let mut seen = HashSet::new();
    let mut changes = Vec::with_capacity(push.changes.len());
    let paths = has_webhooks.then(|| FileListBudget::new(MAX_TOTAL_PATH_BYTES));
    let mut budget = DetailBudget {
        refs: MAX_DETAILED_REFS,
        message_bytes: MAX_TOTAL_MESSAGE_BYTES,
        paths,
        ci_refs: planning::MAX_REFS,
    };
    for change in &push.changes {
        let mut one = inspect_change(&refs, objects.as_ref(), known.as_ref(), change, &mut budget)?;
        if one.rejection.is_none() {
            one.rejection = change.new.and_then(|new| unreachable.check(new));
        }
        if !seen.insert(&change.name) {
            one.rejection = Some(RefRejection::Duplicate);
        }
        changes.push(one);
    }
    reject_name_conflicts(&refs, &mut changes);
    reject_too_many(&refs, &mut changes);
    let was_empty = refs.branches.is_empty();
    let new_default_branch = if was_empty { new_default_branch(&refs, &changes) } else { None };
    let mut inspected = InspectedPush {
        generation: refs.generation,
        changes,
        was_empty,
        default_branch,
        new_default_branch,
        mentions: Vec::new(),
        has_webhooks,
        pipelines: Vec::new(),
    };
    inspected.mentions = collect_mentions(objects.as_ref(), &inspected)?;
    Ok(inspected)
}

/// Unreachable objects that a push refers to. They may still be on disk, but a client that knows only their ids must not make
/// them reachable again.
struct Unreachable {
    sent: Option<ReceivedObjects>,
    /// New targets of refs that were neither sent nor reachable.
    targets: BTreeSet<Oid>,
    /// An object that is linked from a sent one and is neither sent nor reachable.
    link: Option<Oid>,
}

/// The objects sent with a push, and the objects they link to. Objects are immutable, so this needs no lock.
pub(super) struct SentObjects {
    sent: Option<ReceivedObjects>,
    /// Linked objects that were not sent and must be reachable; `None` if there was no repository.
    links: Option<Vec<Oid>>,
}

impl SentObjects {
    pub(super) fn check(repository: Option<&Repository>, push: &Push) -> Result<Self> {
        let sent = push.incoming.as_ref().map(Quarantine::received).transpose()?;
        let mut links = None;
        // The first push cannot link to other objects.
        if let (Some(incoming), Some(sent), Some(_)) = (&push.incoming, &sent, repository) {
            let tips = push.changes.iter().filter_map(|change| change.new).filter(|id| sent.contains(*id));
            // Opened only for this: two open repositories must not hold buffers for large objects at the same time.
            links = Some(sent.find_prerequisites(&incoming.repository()?, tips)?);
        }
        Ok(Self { sent, links })
    }
}

impl Unreachable {
    fn find(repository: Option<&Repository>, push: &Push, objects: SentObjects) -> Result<Self> {
        let SentObjects { sent, links } = objects;
        let is_sent = |id: Oid| sent.as_ref().is_some_and(|sent| sent.contains(id));
        let others = push.changes.iter().filter_map(|change| change.new).filter(|id| !is_sent(*id)).collect();
        let mut found = Self { sent, targets: BTreeSet::new(), link: None };
        if let Some(repository) = repository {
            found.targets = repository.find_unreachable(others)?;
            found.link = repository.find_unreachable(links.unwrap_or_default())?.first().copied();
        }
        Ok(found)
    }

    /// Returns why a ref must not point to this object.
    fn check(&self, new: Oid) -> Option<RefRejection> {
        if self.targets.contains(&new) {
            return Some(RefRejection::MissingObject);
        }
        let link = self.link.filter(|_| self.sent.as_ref().is_some_and(|sent| sent.contains(new)))?;
        Some(RefRejection::MissingLink(link))
    }
}

/// Returns the default branch and its tip after the push; commits of other branches are new if it does not contain them.
fn default_branch_after(
    refs: &Refs,
    objects: Option<&Repository>,
    default: Option<&RefName>,
    changes: &[RefChange],
) -> Result<Option<(RefName, Oid)>> {
    let branches = || changes.iter().filter(|change| change.new.is_some()).map(|change| &change.name);
    let name = match default {
        Some(default) => Some(default.clone()),
        None => choose_default_branch(refs.head.as_ref(), branches().filter(|name| name.kind() == RefKind::Branch)),
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

/// Collects issue references from commits that are new on the default branch. The first push is skipped, since it imports
/// an existing history.
fn collect_mentions(objects: Option<&Repository>, inspected: &InspectedPush) -> Result<Vec<CommitReference>> {
    let is_default =
        |one: &&InspectedChange| one.rejection.is_none() && Some(&one.change.name) == inspected.default_branch.as_ref();
    let change = inspected.changes.iter().find(is_default).map(|one| &one.change);
    match (objects, change) {
        (Some(objects), Some(RefChange { old: Some(old), new: Some(new), .. })) => {
            mentions::collect(objects, *new, *old)
        }
        _ => Ok(Vec::new()),
    }
}

fn inspect_change(
    refs: &Refs,
    objects: Option<&Repository>,
    known: Option<&(RefName, Oid)>,
    change: &RefChange,
    budget: &mut DetailBudget,
) -> Result<InspectedChange> {
    let RefChange { name, old, new } = change;
    let data =
        PushData { ref_name: name.to_string(), before: *old, after: *new, commits: Vec::new(), total_commits: 0 };
    let mut one = InspectedChange {
        change: change.clone(),
        rejection: None,
        forced: false,
        data,
        peeled: None,
        annotation: None,
        files: Vec::new(),
        ci_file: None,
    };
    let current = refs.find(name).map(|found| found.target);
    one.rejection = if name.is_hidden() || name.as_str().starts_with("refs/replace/") {
        Some(RefRejection::Reserved)
    } else if old.is_none() && new.is_some() && name.looks_like_oid() {
        Some(RefRejection::NameLikeOid(name.kind()))
    } else if old.is_none() && new.is_none() || current.is_none() && new.is_none() {
        Some(RefRejection::MissingRef)
    } else if current != *old {
        Some(RefRejection::Stale)
    } else if old == new {
        Some(RefRejection::UpToDate)
    } else {
        None
    };
    if one.rejection.is_some() {
        return Ok(one);
    }
    let Some(new) = *new else { return Ok(one) };
    let tip = objects.map(|objects| objects.peel(new)).transpose()?.flatten();
    match (name.kind(), tip) {
        (_, None) => one.rejection = Some(RefRejection::MissingObject),
        (RefKind::Branch, Some(peeled)) if peeled != git::Peeled::Commit(new) => {
            one.rejection = Some(RefRejection::NotACommit);
        }
        (kind, Some(peeled)) => {
            if let Some(objects) = objects.filter(|_| kind != RefKind::Branch) {
                one.peeled = objects.peel_tag(new)?;
            }
            if let (git::Peeled::Commit(tip), Some(objects)) = (peeled, objects) {
                let old_tip = if kind == RefKind::Branch { *old } else { None };
                one.forced = match old_tip {
                    Some(old) => !objects.is_ancestor(old, tip)?,
                    None => false,
                };
                // The details of a tag are a single commit.
                if budget.refs > 0 || kind == RefKind::Tag {
                    budget.refs = budget.refs.saturating_sub(1);
                    let known = known.filter(|(default, _)| default != name).map(|(_, tip)| *tip);
                    add_commits(&mut one.data, objects, kind, tip, known, budget)?;
                    add_changed_paths(&mut one, objects, new, budget)?;
                }
                if budget.ci_refs > 0 && kind != RefKind::Other {
                    budget.ci_refs -= 1;
                    one.ci_file = planning::ci_file_of(objects, tip)?.map(|file| (tip, file));
                }
            }
        }
    }
    Ok(one)
}

/// The remaining budget for the details of a push. A few bytes can create a thousand branches of a long history, whose details
/// would be far larger than the push itself.
struct DetailBudget {
    refs: usize,
    message_bytes: usize,
    /// The changed paths, if there are webhooks.
    paths: Option<FileListBudget>,
    /// The number of refs in which a CI file is looked up.
    ci_refs: usize,
}

/// Adds the new commits of a change; for a new branch, those that the default branch (`known`) does not contain.
fn add_commits(
    data: &mut PushData,
    objects: &Repository,
    kind: RefKind,
    tip: Oid,
    known: Option<Oid>,
    budget: &mut DetailBudget,
) -> Result<()> {
    let (commits, total) = match (kind, data.before) {
        (RefKind::Tag, _) => (objects.commit(tip)?.into_iter().collect(), 1),
        (RefKind::Other, _) => (Vec::new(), 0),
        (RefKind::Branch, Some(before)) => objects.commits_excluding(tip, &[before], MAX_PUSH_COMMITS)?,
        (RefKind::Branch, None) => objects.commits_excluding(tip, known.as_slice(), MAX_PUSH_COMMITS)?,
    };
    let mut push_commit = |commit: Commit| {
        // The author with the date of the commit.
        let Signature { seconds, offset, .. } = commit.committer;
        let mut message = commit.message;
        budget.message_bytes -= truncate_message(&mut message, budget.message_bytes);
        PushCommit { id: commit.id, message, author: Signature { seconds, offset, ..commit.author } }
    };
    data.commits = commits.into_iter().rev().map(&mut push_commit).collect();
    data.total_commits = i64::try_from(total).unwrap_or(i64::MAX);
    Ok(())
}

/// Adds the changed paths and the annotation of a tag, which only webhooks need.
fn add_changed_paths(
    one: &mut InspectedChange,
    objects: &Repository,
    new: Oid,
    budget: &mut DetailBudget,
) -> Result<()> {
    let Some(paths) = &mut budget.paths else { return Ok(()) };
    for commit in &one.data.commits {
        one.files.push(objects.file_lists(commit.id, paths)?);
    }
    if one.change.name.kind() == RefKind::Tag {
        one.annotation = objects.annotation(new)?.map(|mut text| {
            budget.message_bytes -= truncate_message(&mut text, budget.message_bytes);
            text
        });
    }
    Ok(())
}

/// Truncates a message to its own and the remaining limit; returns its new length.
fn truncate_message(message: &mut String, remaining: usize) -> usize {
    let max = MAX_MESSAGE_BYTES.min(remaining).min(message.len());
    let end = (0..=max).rev().find(|at| message.is_char_boundary(*at));
    message.truncate(end.unwrap_or_default());
    message.len()
}

/// Rejects new refs whose name is a folder of another ref, or below one.
fn reject_name_conflicts(refs: &Refs, changes: &mut [InspectedChange]) {
    let created: BTreeSet<String> = changes
        .iter()
        .filter(|one| one.change.old.is_none() && one.rejection.is_none())
        .map(|one| one.change.name.to_string())
        .collect();
    let taken =
        |name: &str| created.contains(name) || RefName::new(name).is_some_and(|name| refs.find(&name).is_some());
    for one in changes.iter_mut().filter(|one| one.change.old.is_none() && one.rejection.is_none()) {
        let name = one.change.name.as_str();
        let above = name.match_indices('/').map(|(at, _)| &name[..at]).find(|above| taken(above));
        let folder = format!("{name}/");
        let below = || {
            let new = created.range(folder.clone()..).next().filter(|other| other.starts_with(&folder)).cloned();
            new.or_else(|| refs.first_below(&folder).map(|found| found.name.to_string()))
        };
        if let Some(other) = above.map(ToOwned::to_owned).or_else(below) {
            one.rejection = Some(RefRejection::NameConflict(other));
        }
    }
}

/// Rejects new refs once the list of all refs would exceed the size that can be read.
fn reject_too_many(refs: &Refs, changes: &mut [InspectedChange]) {
    let mut created = changes.iter_mut().filter(|one| one.change.old.is_none() && one.rejection.is_none()).peekable();
    if created.peek().is_none() {
        return;
    }
    let mut size = refs.packed_size();
    for one in created {
        one.rejection = check_ref_list_size(&mut size, &one.change.name);
    }
}

/// Adds a ref to the size of the list; returns the rejection if the list becomes too long.
fn check_ref_list_size(size: &mut u64, name: &RefName) -> Option<RefRejection> {
    *size += git::packed_size_of(name);
    (*size > git::PACKED_REFS_PUSH_LIMIT).then_some(RefRejection::TooManyRefs)
}

/// Chooses the default branch among the branches of the first push.
fn new_default_branch(refs: &Refs, changes: &[InspectedChange]) -> Option<RefName> {
    let accepted = changes.iter().filter(|one| one.rejection.is_none() && one.change.new.is_some());
    let branches = accepted.map(|one| &one.change.name).filter(|name| name.kind() == RefKind::Branch);
    choose_default_branch(refs.head.as_ref(), branches)
}

/// Chooses the default branch: the target of HEAD, else `master` or `main`, else the first by name.
pub(crate) fn choose_default_branch<'a>(
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
    fn refs_are_accepted_until_the_list_is_too_long() {
        let name = |number: usize| RefName::branch(&format!("{number:06}{}", "x".repeat(200))).expect("a name");
        let id = Oid([1; 20]);
        let one = |number: usize| git::Ref { name: name(number), target: id, peeled: None };
        let mut refs = Refs::default();
        refs.branches = (0..97_000).map(one).collect();
        // The format of packed-refs: id, space, name, newline.
        let line = format!("{id} {}\n", name(0)).len() as u64;
        let mut size = refs.packed_size();
        assert_eq!(size, 97_000 * line);
        let mut taken = 0;
        while check_ref_list_size(&mut size, &name(97_000 + taken)).is_none() {
            taken += 1;
        }
        assert_eq!(taken as u64, (git::PACKED_REFS_PUSH_LIMIT - refs.packed_size()) / line);
        assert_eq!(check_ref_list_size(&mut size, &name(0)), Some(RefRejection::TooManyRefs));
    }
}
