//! Branches of a repository, and who may change which of them.

use git::{ListedCommits, Ref, Refs, Repository};
use model::{
    Commit, Oid, Page, Project, RefChange, RefName, Slice,
    protections::{Protection, PushLevel},
};
use tracing::info;

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    pushes::{self, MOST_CHANGES, Push, Via},
    tasks::{self, Task},
};

/// With so many branches or fewer, those that are merged are removed at once; with more, a job does it.
const REMOVED_AT_ONCE: usize = 200;

/// How often a change is tried while others are faster.
const ATTEMPTS: u32 = 5;

/// A branch with its newest commit and what holds for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The name without `refs/heads/`.
    pub name: String,
    /// What it points to.
    pub commit: Commit,
    /// Whether a rule protects it.
    pub protected: bool,
    /// Whether developers may push to it although it is protected.
    pub developers_can_push: bool,
    /// Whether developers may merge into it although it is protected.
    pub developers_can_merge: bool,
}

/// A wish for a branch.
#[derive(Clone, Debug)]
pub struct NewBranch {
    /// What it shall be called.
    pub name: String,
    /// Where it begins: a branch, a tag or a commit.
    pub from: String,
}

/// What a protection lets developers do; what is not said stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Protect {
    /// Whether they may push.
    pub developers_can_push: Option<bool>,
    /// Whether they may merge.
    pub developers_can_merge: Option<bool>,
}

/// A page of the branches, by name.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<Branch>> {
    let project = open(tx, project)?;
    let page = *page.get()?;
    let Some(repository) = tx.repository(&project)? else { return Ok(Slice::empty(page)) };
    let rules = store::protections::of_project(tx.db(), project.id)?;
    let refs = repository.refs()?;
    let mut items = Vec::new();
    let mut listed = ListedCommits::default();
    for branch in page.cut(&refs.branches) {
        // One that leads nowhere is left out rather than that nobody sees the others.
        items.extend(show(&repository, branch, &rules)?.map(|mut branch| {
            listed.fit(&mut branch.commit);
            branch
        }));
    }
    Ok(Slice { items, total: count(refs.branches.len()), page })
}

/// One branch.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, name: &str) -> Result<Branch> {
    let project = open(tx, project)?;
    find(tx, &project, name)
}

/// Makes a branch that begins where another one, a tag or a commit is.
pub async fn create(forge: &Forge, caller: Caller, project: ProjectRef, new: Unvalidated<NewBranch>) -> Result<Branch> {
    let judge = move |tx: &mut ReadTx<'_>| judge_new(tx, &project, &new);
    let (project, name) = looking_again(forge, &caller, judge).await.map_err(|error| match error {
        // The original puts its own name before what the rules say here, and clients show the text as it is.
        Late::Gate(Error::Refused(text)) => Error::Refused(format!("GitLab: {text}")),
        Late::Gate(error) | Late::Judge(error) => error,
    })?;
    forge.read(caller, move |tx| get(tx, &ProjectRef::Id(project), name.short())).await
}

/// Who refused a change.
pub(crate) enum Late {
    /// The use case itself.
    Judge(Error),
    /// The gate.
    Gate(Error),
}

impl From<Late> for Error {
    fn from(late: Late) -> Self {
        let (Late::Judge(error) | Late::Gate(error)) = late;
        error
    }
}

/// Judges a change and makes it. Should somebody else be faster in between, it is judged again as things are then, so that
/// whoever loses is told the same as whoever comes later.
pub(crate) async fn looking_again(
    forge: &Forge,
    caller: &Caller,
    judge: impl Fn(&mut ReadTx<'_>) -> Result<(i64, RefChange)> + Clone + Send + 'static,
) -> std::result::Result<(i64, RefName), Late> {
    let mut attempts = 0;
    loop {
        let (project, change) = forge.read(caller.clone(), judge.clone()).await.map_err(Late::Judge)?;
        let name = change.name.clone();
        attempts += 1;
        match push(forge, caller.clone(), project, change).await {
            result if attempts < ATTEMPTS && pushes::came_too_late(&result) => {}
            result => return result.map(|()| (project, name)).map_err(Late::Gate),
        }
    }
}

fn judge_new(tx: &mut ReadTx<'_>, project: &ProjectRef, new: &Unvalidated<NewBranch>) -> Result<(i64, RefChange)> {
    let project = tx.open(project, ProjectAbility::PushCode)?;
    let new = new.get()?;
    let refused = |text: &str| Err(Error::Refused(text.to_owned()));
    let name = RefName::branch(&new.name).filter(|name| !name.looks_like_an_id());
    let Some(name) = name else { return refused("Branch name is invalid") };
    let Some(repository) = tx.repository(&project)? else { return refused("Invalid reference name") };
    let refs = repository.refs()?;
    if refs.find(&name).is_some() {
        return refused("Branch already exists");
    }
    if is_in_the_way(&refs.branches, &name) {
        return refused("Branch name is invalid");
    }
    match repository.resolve(&new.from)? {
        Some(tip) => Ok((project.id, RefChange { name, old: None, new: Some(tip) })),
        None => refused("Invalid reference name"),
    }
}

/// Removes a branch that is neither the default one nor protected.
pub async fn delete(forge: &Forge, caller: Caller, project: ProjectRef, name: String) -> Result<()> {
    looking_again(forge, &caller, move |tx| judge_removal(tx, &project, &name)).await?;
    Ok(())
}

fn judge_removal(tx: &mut ReadTx<'_>, project: &ProjectRef, name: &str) -> Result<(i64, RefChange)> {
    let project = tx.open(project, ProjectAbility::PushCode)?;
    let missing = || Error::Absent("No such branch".into());
    let repository = tx.repository(&project)?.ok_or_else(missing)?;
    let refs = repository.refs()?;
    let branch = RefName::branch(name).and_then(|name| refs.find(&name)).ok_or_else(missing)?;
    if default_branch(&project, &refs) == Some(branch) {
        return Err(Error::Kept("Cannot remove HEAD branch".into()));
    }
    let rules = store::protections::of_project(tx.db(), project.id)?;
    if rules.iter().any(|rule| rule.matches(name)) {
        return Err(Error::Kept("Protected branch cant be removed".into()));
    }
    Ok((project.id, RefChange { name: branch.name.clone(), old: Some(branch.target), new: None }))
}

/// Protects a branch, or changes what its protection lets developers do.
pub async fn protect(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    name: String,
    wish: Unvalidated<Protect>,
) -> Result<Branch> {
    change_rule(forge, caller, project, name, move |tx, project, name| put_rule(tx, project, name, *wish.get()?)).await
}

fn put_rule(tx: &mut WriteTx<'_>, project: i64, name: &str, wish: Protect) -> Result<()> {
    let rules = store::protections::of_project(tx.db(), project)?;
    let known = rules.into_iter().find(|rule| rule.name == name);
    let strict = Protection { name: name.to_owned(), push: PushLevel::Masters, merge: PushLevel::Masters };
    let mut rule = known.unwrap_or(strict);
    let level = |developers: bool| if developers { PushLevel::Developers } else { PushLevel::Masters };
    rule.push = wish.developers_can_push.map_or(rule.push, level);
    rule.merge = wish.developers_can_merge.map_or(rule.merge, level);
    let now = tx.now();
    Ok(store::protections::put(tx.db(), project, &rule, now)?)
}

/// Takes the protection of a branch away; a rule for many branches stays.
pub async fn unprotect(forge: &Forge, caller: Caller, project: ProjectRef, name: String) -> Result<Branch> {
    let remove = |tx: &mut WriteTx<'_>, project: i64, name: &str| {
        store::protections::remove(tx.db(), project, name)?;
        Ok(())
    };
    change_rule(forge, caller, project, name, remove).await
}

/// Changes the rule of a branch that is there, and shows the branch. The repository is asked before and after, so that the
/// one thread that may write does not wait for the disk.
async fn change_rule(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    name: String,
    change: impl Fn(&mut WriteTx<'_>, i64, &str) -> Result<()> + Send + 'static,
) -> Result<Branch> {
    let asked = name.clone();
    let judge = move |tx: &mut ReadTx<'_>| {
        let project = tx.open(&project, ProjectAbility::ProtectBranches)?;
        find(tx, &project, &asked).map(|_| ProjectRef::Id(project.id))
    };
    let project = forge.read(caller.clone(), judge).await?;
    let (place, asked) = (project.clone(), name.clone());
    forge
        .write(caller.clone(), move |tx| {
            let project = tx.open(&place, ProjectAbility::ProtectBranches)?;
            change(tx, project.id, &asked)
        })
        .await?;
    forge.read(caller, move |tx| get(tx, &project, &name)).await
}

/// Removes all branches whose commits the default branch has, but not those that are protected. Answers
/// whether the caller may push; if not, nothing is removed.
pub async fn delete_merged(forge: &Forge, caller: Caller, project: ProjectRef) -> Result<bool> {
    let plan = move |tx: &mut ReadTx<'_>| {
        let project = open(tx, &project)?;
        let user = tx.actor().user().map(|user| user.id);
        let Some(user) = user.filter(|_| tx.may_to(&project, ProjectAbility::PushCode).is_ok()) else {
            return Ok(None);
        };
        let refs = tx.repository(&project)?.map(|repository| repository.refs()).transpose()?;
        Ok(Some((project.id, user, refs.map_or(0, |refs| refs.branches.len()))))
    };
    let Some((project, user, branches)) = forge.read(caller.clone(), plan).await? else { return Ok(false) };
    if branches <= REMOVED_AT_ONCE {
        return delete_merged_now(forge, caller, project).await.map(|()| true);
    }
    forge
        .write(caller, move |tx| {
            tx.open(&ProjectRef::Id(project), ProjectAbility::PushCode)?;
            let now = tx.now();
            tasks::enqueue(tx, &Task::DeleteMergedBranches { project, user }, now)
        })
        .await?;
    Ok(true)
}

/// Removes what [`delete_merged`] removes, however many there are.
pub(crate) async fn delete_merged_now(forge: &Forge, caller: Caller, project: i64) -> Result<()> {
    let changes = forge
        .run_blocking(caller.clone(), move |tx| {
            let found = tx.read(|tx| {
                let project = tx.open(&ProjectRef::Id(project), ProjectAbility::PushCode)?;
                let rules = store::protections::of_project(tx.db(), project.id)?;
                Ok((tx.repository(&project)?, project, rules))
            })?;
            let (Some(repository), project, rules) = found else { return Ok(Vec::new()) };
            merged(&repository, &project, &rules)
        })
        .await?;
    let mut removed = 0;
    for changes in changes.chunks(MOST_CHANGES) {
        let push = Push { changes: changes.to_vec(), incoming: None, atomic: false, options: Vec::new() };
        let outcomes = pushes::push(forge, caller.clone(), project, push, Via::Api).await?;
        removed += outcomes.iter().filter(|outcome| outcome.refusal.is_none()).count();
    }
    info!(project.id = project, removed, "removed branches that were merged");
    Ok(())
}

/// The removals of all branches that lie in the past of the default branch. One that is equal to it stays: it may have
/// just begun.
fn merged(repository: &Repository, project: &Project, rules: &[Protection]) -> Result<Vec<RefChange>> {
    let refs = repository.refs()?;
    let Some(default) = default_branch(project, &refs) else { return Ok(Vec::new()) };
    let may_go =
        |branch: &&Ref| branch.target != default.target && !rules.iter().any(|rule| rule.matches(branch.name.short()));
    let candidates: Vec<&Ref> = refs.branches.iter().filter(may_go).collect();
    let tips: Vec<Oid> = candidates.iter().map(|branch| branch.target).collect();
    let merged = repository.which_are_ancestors(&tips, default.target)?;
    let gone = candidates.iter().zip(merged).filter(|(_, merged)| *merged);
    Ok(gone.map(|(branch, _)| RefChange { name: branch.name.clone(), old: Some(branch.target), new: None }).collect())
}

/// Opens a project for reading its code, as somebody who is signed in.
pub(crate) fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    tx.may_to(&project, ProjectAbility::DownloadCode)?;
    Ok(project)
}

/// The default branch: the one that the project names, or else the one that can be meant.
pub(crate) fn default_branch<'a>(project: &Project, refs: &'a Refs) -> Option<&'a Ref> {
    let named = |name: &str| refs.branches.iter().find(|branch| branch.name.short() == name);
    let head = refs.head.as_ref().and_then(RefName::as_branch);
    project
        .default_branch
        .as_deref()
        .and_then(named)
        .or_else(|| head.and_then(named))
        .or_else(|| named("master"))
        .or_else(|| refs.branches.first())
}

/// Whether another name is a folder of this one, or this one of another: a ref is a file.
pub(crate) fn is_in_the_way(refs: &[Ref], name: &RefName) -> bool {
    let inside = |folder: &str, name: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    refs.iter().any(|other| {
        let (name, other) = (name.as_str(), other.name.as_str());
        inside(name, other) || inside(other, name)
    })
}

/// Passes one change of a ref through the gate.
pub(crate) async fn push(forge: &Forge, caller: Caller, project: i64, change: RefChange) -> Result<()> {
    let push = Push { changes: vec![change], incoming: None, atomic: true, options: Vec::new() };
    passed(pushes::push(forge, caller, project, push, Via::Api).await?)
}

/// Whether the gate let everything pass.
pub(crate) fn passed(outcomes: Vec<pushes::RefOutcome>) -> Result<()> {
    match outcomes.into_iter().find_map(|outcome| outcome.refusal) {
        Some(refusal) => Err(Error::Refused(refusal)),
        None => Ok(()),
    }
}

fn find(tx: &mut ReadTx<'_>, project: &Project, name: &str) -> Result<Branch> {
    let missing = || Error::not_found("Branch");
    let repository = tx.repository(project)?.ok_or_else(missing)?;
    let refs = repository.refs()?;
    let branch = RefName::branch(name).and_then(|name| refs.find(&name)).ok_or_else(missing)?;
    let rules = store::protections::of_project(tx.db(), project.id)?;
    show(&repository, branch, &rules)?.ok_or_else(missing)
}

fn show(repository: &Repository, branch: &Ref, rules: &[Protection]) -> Result<Option<Branch>> {
    let Some(commit) = repository.commit(branch.target)? else { return Ok(None) };
    let name = branch.name.short();
    let rules: Vec<&Protection> = rules.iter().filter(|rule| rule.matches(name)).collect();
    Ok(Some(Branch {
        name: name.to_owned(),
        commit,
        protected: !rules.is_empty(),
        developers_can_push: rules.iter().any(|rule| rule.push == PushLevel::Developers),
        developers_can_merge: rules.iter().any(|rule| rule.merge == PushLevel::Developers),
    }))
}

/// A number of items as pages count them.
pub(crate) fn count(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}
