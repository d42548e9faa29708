//! Branches of a repository and their protection.

use git::{CommitListBudget, Ref, Refs, Repository};
use model::{
    Commit, Oid, Page, Project, ProjectId, RefChange, RefName, Slice, Violations,
    protections::{Protection, PushLevel},
    text::has_control,
};
use tracing::info;

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    pushes::{self, MAX_CHANGES, Push, PushSource},
    tasks::{self, Task},
};

/// The maximum number of branches for which merged ones are deleted within the request; with more, a background task does it.
const MAX_INLINE_DELETIONS: usize = 200;

/// The maximum length of the pattern of a protection rule.
const MAX_PATTERN_LENGTH: usize = 255;

/// The maximum number of attempts to apply a change against concurrent ones.
const MAX_ATTEMPTS: u32 = 5;

/// A branch with its newest commit and its protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The name without `refs/heads/`.
    pub name: String,
    /// The commit it points to.
    pub commit: Commit,
    /// Whether it is protected.
    pub protected: bool,
    /// Whether developers may push despite the protection.
    pub developers_can_push: bool,
    /// Whether developers may merge despite the protection.
    pub developers_can_merge: bool,
}

/// Parameters of a new branch.
#[derive(Clone, Debug)]
pub struct NewBranch {
    /// The name.
    pub name: String,
    /// The start point: a branch, tag or commit.
    pub from: String,
}

/// The permissions of developers on a protected branch; `None` keeps the current value.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProtectionOptions {
    /// Whether developers may push.
    pub developers_can_push: Option<bool>,
    /// Whether developers may merge.
    pub developers_can_merge: Option<bool>,
}

/// Lists the branches by name.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<Branch>> {
    let project = open(tx, project)?;
    list_in(tx, &project, "", *page.validate()?)
}

/// Lists the branches whose names contain a text, of a project whose code the caller may read.
pub(crate) fn list_in(tx: &mut ReadTx<'_>, project: &Project, search: &str, page: Page) -> Result<Slice<Branch>> {
    let Some(repository) = tx.repository(project)? else { return Ok(Slice::empty(page)) };
    let rules = store::protections::of_project(tx.db(), project.id)?;
    let refs = repository.refs();
    let mut items = Vec::new();
    let mut listed = CommitListBudget::default();
    let (shown, total): (Vec<&Ref>, _) = if search.is_empty() {
        (page.slice(&refs.branches).iter().collect(), refs.branches.len())
    } else {
        let found = find_by_name(refs.branches.iter(), search);
        (page.slice(&found).to_vec(), found.len())
    };
    for branch in shown {
        // A branch without a commit is skipped, so that the others are still listed.
        items.extend(to_branch(&repository, branch, &rules)?.map(|mut branch| {
            listed.truncate(&mut branch.commit);
            branch
        }));
    }
    Ok(Slice { items, total: count(total).into(), page })
}

/// Returns the refs whose names contain a text, in upper or lower case.
pub(crate) fn find_by_name<'a>(refs: impl Iterator<Item = &'a Ref>, text: &str) -> Vec<&'a Ref> {
    let text = text.to_lowercase();
    refs.filter(|found| text.is_empty() || found.name.short().to_lowercase().contains(&text)).collect()
}

/// Returns a branch.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, name: &str) -> Result<Branch> {
    let project = open(tx, project)?;
    find(tx, &project, name)
}

/// Creates a branch from a branch, tag or commit.
pub async fn create(forge: &Forge, caller: Caller, project: ProjectRef, new: Unvalidated<NewBranch>) -> Result<Branch> {
    let check = move |tx: &mut ReadTx<'_>| check_new_branch(tx, &project, &new);
    let (project, name) = push_with_retry(forge, &caller, check).await.map_err(|error| match error {
        // GitLab prefixes the rejections of pushes here, and clients show the text as it is.
        RefChangeError::Push(error @ (Error::RefRejected(_) | Error::Refused(_))) => {
            Error::Refused(format!("GitLab: {error}"))
        }
        RefChangeError::Push(error) | RefChangeError::Validation(error) => error,
    })?;
    forge.read(caller, move |tx| get(tx, &ProjectRef::Id(project), name.short())).await
}

/// Why a ref change failed.
pub(crate) enum RefChangeError {
    /// The check before the push failed.
    Validation(Error),
    /// The push failed.
    Push(Error),
}

impl From<RefChangeError> for Error {
    fn from(error: RefChangeError) -> Self {
        let (RefChangeError::Validation(error) | RefChangeError::Push(error)) = error;
        error
    }
}

/// Checks a change and pushes it. After a concurrent change it is checked again, so that it fails with the same error as a
/// later request.
pub(crate) async fn push_with_retry(
    forge: &Forge,
    caller: &Caller,
    check: impl Fn(&mut ReadTx<'_>) -> Result<(ProjectId, RefChange)> + Clone + Send + 'static,
) -> std::result::Result<(ProjectId, RefName), RefChangeError> {
    let mut attempts = 0;
    loop {
        let (project, change) = forge.read(caller.clone(), check.clone()).await.map_err(RefChangeError::Validation)?;
        let name = change.name.clone();
        attempts += 1;
        match push(forge, caller.clone(), project, change).await {
            Err(Error::RefRejected(rejection)) if attempts < MAX_ATTEMPTS && rejection.is_retryable() => {}
            result => return result.map(|()| (project, name)).map_err(RefChangeError::Push),
        }
    }
}

fn check_new_branch(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    new: &Unvalidated<NewBranch>,
) -> Result<(ProjectId, RefChange)> {
    let project = tx.project(project, ProjectAbility::PushCode)?;
    let new = new.validate()?;
    let refused = |text: &str| Err(Error::Refused(text.to_owned()));
    let name = RefName::branch(&new.name).filter(|name| !name.looks_like_oid());
    let Some(name) = name else { return refused("Branch name is invalid") };
    let Some(repository) = tx.repository(&project)? else { return refused("Invalid reference name") };
    let refs = repository.refs();
    if refs.find(&name).is_some() {
        return refused("Branch already exists");
    }
    if conflicts_with_any(&refs.branches, &name) {
        return refused("Branch name is invalid");
    }
    match repository.resolve(&new.from)? {
        Some(tip) => Ok((project.id, RefChange { name, old: None, new: Some(tip) })),
        None => refused("Invalid reference name"),
    }
}

/// Deletes a branch that is neither the default branch nor protected.
pub async fn delete(forge: &Forge, caller: Caller, project: ProjectRef, name: String) -> Result<()> {
    push_with_retry(forge, &caller, move |tx| check_deletion(tx, &project, &name)).await?;
    Ok(())
}

fn check_deletion(tx: &mut ReadTx<'_>, project: &ProjectRef, name: &str) -> Result<(ProjectId, RefChange)> {
    let project = tx.project(project, ProjectAbility::PushCode)?;
    let missing = || Error::NotFoundMessage("No such branch".into());
    let repository = tx.repository(&project)?.ok_or_else(missing)?;
    let refs = repository.refs();
    let branch = RefName::branch(name).and_then(|name| refs.find(&name)).ok_or_else(missing)?;
    if default_branch(&project, refs) == Some(branch) {
        return Err(Error::Protected("Cannot remove HEAD branch".into()));
    }
    let rules = store::protections::of_project(tx.db(), project.id)?;
    if rules.iter().any(|rule| rule.matches(name)) {
        return Err(Error::Protected("Protected branch cant be removed".into()));
    }
    Ok((project.id, RefChange { name: branch.name.clone(), old: Some(branch.target), new: None }))
}

/// Protects a branch, or changes the permissions of developers on it.
pub async fn protect(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    name: String,
    options: Unvalidated<ProtectionOptions>,
) -> Result<Branch> {
    change_rule(forge, caller, project, name, move |tx, project, name| {
        put_rule(tx, project, name, *options.validate()?)
    })
    .await
}

fn put_rule(tx: &mut WriteTx<'_>, project: ProjectId, name: &str, options: ProtectionOptions) -> Result<()> {
    let rules = store::protections::of_project(tx.db(), project)?;
    let known = rules.into_iter().find(|rule| rule.name == name);
    let strict = Protection { name: name.to_owned(), push: PushLevel::Masters, merge: PushLevel::Masters };
    let mut rule = known.unwrap_or(strict);
    let level = |developers: bool| if developers { PushLevel::Developers } else { PushLevel::Masters };
    rule.push = options.developers_can_push.map_or(rule.push, level);
    rule.merge = options.developers_can_merge.map_or(rule.merge, level);
    let now = tx.now();
    Ok(store::protections::put(tx.db(), project, &rule, now)?)
}

/// Protects the branches that a pattern matches, whether they exist or not; `*` in it stands for any characters.
pub fn protect_pattern(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    pattern: &str,
    options: &Unvalidated<ProtectionOptions>,
) -> Result<()> {
    let project = tx.project(project, ProjectAbility::ProtectBranches)?;
    let options = *options.validate()?;
    let mut violations = Violations::new();
    violations.require(!pattern.is_empty(), "name", "can't be blank");
    violations.max_length("name", pattern, MAX_PATTERN_LENGTH);
    let is_valid = pattern.is_empty() || RefName::branch(&pattern.replace('*', "x")).is_some();
    violations.require(is_valid, "name", "is not the name of a branch");
    violations.into_result()?;
    put_rule(tx, project.id, pattern, options)
}

/// Removes the protection rule with exactly this pattern.
pub fn unprotect_pattern(tx: &mut WriteTx<'_>, project: &ProjectRef, pattern: &str) -> Result<()> {
    let project = tx.project(project, ProjectAbility::ProtectBranches)?;
    let removed = !has_control(pattern) && store::protections::remove(tx.db(), project.id, pattern)?;
    if removed { Ok(()) } else { Err(Error::NoSuchRow) }
}

/// Removes the protection of a branch; a wildcard rule that matches it stays.
pub async fn unprotect(forge: &Forge, caller: Caller, project: ProjectRef, name: String) -> Result<Branch> {
    let remove = |tx: &mut WriteTx<'_>, project: ProjectId, name: &str| {
        store::protections::remove(tx.db(), project, name)?;
        Ok(())
    };
    change_rule(forge, caller, project, name, remove).await
}

/// Changes the rule of an existing branch and returns the branch. The repository is read before and after, so that the writer
/// thread does not wait for the disk.
async fn change_rule(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    name: String,
    change: impl Fn(&mut WriteTx<'_>, ProjectId, &str) -> Result<()> + Send + 'static,
) -> Result<Branch> {
    let requested = name.clone();
    let check = move |tx: &mut ReadTx<'_>| {
        let project = tx.project(&project, ProjectAbility::ProtectBranches)?;
        find(tx, &project, &requested).map(|_| ProjectRef::Id(project.id))
    };
    let project = forge.read(caller.clone(), check).await?;
    let (project_ref, requested) = (project.clone(), name.clone());
    forge
        .write(caller.clone(), move |tx| {
            let project = tx.project(&project_ref, ProjectAbility::ProtectBranches)?;
            change(tx, project.id, &requested)
        })
        .await?;
    forge.read(caller, move |tx| get(tx, &project, &name)).await
}

/// Deletes all unprotected branches that are merged into the default branch. Returns whether the caller may push; if not,
/// nothing is deleted.
pub async fn delete_merged(forge: &Forge, caller: Caller, project: ProjectRef) -> Result<bool> {
    let plan = move |tx: &mut ReadTx<'_>| {
        let project = open(tx, &project)?;
        let user = tx.actor().user().map(|user| user.id);
        let Some(user) = user.filter(|_| tx.authorize_project(&project, ProjectAbility::PushCode).is_ok()) else {
            return Ok(None);
        };
        let refs = tx.refs(&project)?;
        Ok(Some((project.id, user, refs.branches.len())))
    };
    let Some((project, user, branches)) = forge.read(caller.clone(), plan).await? else { return Ok(false) };
    if branches <= MAX_INLINE_DELETIONS {
        return delete_merged_now(forge, caller, project).await.map(|()| true);
    }
    forge
        .write(caller, move |tx| {
            tx.project(&ProjectRef::Id(project), ProjectAbility::PushCode)?;
            let now = tx.now();
            tasks::enqueue(tx, &Task::DeleteMergedBranches { project, user }, now)
        })
        .await?;
    Ok(true)
}

/// Deletes merged branches as [`delete_merged`] does, regardless of their number.
pub(crate) async fn delete_merged_now(forge: &Forge, caller: Caller, project: ProjectId) -> Result<()> {
    let changes = forge
        .run_blocking(caller.clone(), move |cx| {
            let found = cx.read(|tx| {
                let project = tx.project(&ProjectRef::Id(project), ProjectAbility::PushCode)?;
                let rules = store::protections::of_project(tx.db(), project.id)?;
                Ok((tx.repository(&project)?, project, rules))
            })?;
            let (Some(repository), project, rules) = found else { return Ok(Vec::new()) };
            find_merged(&repository, &project, &rules)
        })
        .await?;
    let mut removed = 0;
    for changes in changes.chunks(MAX_CHANGES) {
        let push = Push { changes: changes.to_vec(), incoming: None, atomic: false, options: Vec::new() };
        let outcomes = pushes::push(forge, caller.clone(), project, push, PushSource::Api).await?;
        removed += outcomes.iter().filter(|outcome| outcome.rejection.is_none()).count();
    }
    info!(project.id = project.get(), removed, "deleted merged branches");
    Ok(())
}

/// Returns the deletions of all branches that are ancestors of the default branch. A branch with the same tip stays, since it may
/// be new.
fn find_merged(repository: &Repository, project: &Project, rules: &[Protection]) -> Result<Vec<RefChange>> {
    let refs = repository.refs();
    let Some(default) = default_branch(project, refs) else { return Ok(Vec::new()) };
    let is_deletable =
        |branch: &&Ref| branch.target != default.target && !rules.iter().any(|rule| rule.matches(branch.name.short()));
    let candidates: Vec<&Ref> = refs.branches.iter().filter(is_deletable).collect();
    let tips: Vec<Oid> = candidates.iter().map(|branch| branch.target).collect();
    let is_merged = repository.which_are_ancestors(&tips, default.target)?;
    let merged = candidates.iter().zip(is_merged).filter(|(_, is_merged)| *is_merged);
    Ok(merged.map(|(branch, _)| RefChange { name: branch.name.clone(), old: Some(branch.target), new: None }).collect())
}

/// Opens a project for reading its code; requires a signed-in user.
pub(crate) fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    tx.authorize_project(&project, ProjectAbility::DownloadCode)?;
    Ok(project)
}

/// Returns the default branch: the one set in the project, else the target of HEAD, `master`, or the first branch.
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

/// Returns whether a name is a folder of an existing ref or below one; refs are files.
pub(crate) fn conflicts_with_any(refs: &[Ref], name: &RefName) -> bool {
    let inside = |folder: &str, name: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    refs.iter().any(|other| {
        let (name, other) = (name.as_str(), other.name.as_str());
        inside(name, other) || inside(other, name)
    })
}

/// Pushes a single ref change.
pub(crate) async fn push(forge: &Forge, caller: Caller, project: ProjectId, change: RefChange) -> Result<()> {
    let push = Push { changes: vec![change], incoming: None, atomic: true, options: Vec::new() };
    require_accepted(pushes::push(forge, caller, project, push, PushSource::Api).await?)
}

/// Returns the first rejection as an error, if there is one.
pub(crate) fn require_accepted(outcomes: Vec<pushes::RefOutcome>) -> Result<()> {
    match outcomes.into_iter().find_map(|outcome| outcome.rejection) {
        Some(rejection) => Err(rejection.into()),
        None => Ok(()),
    }
}

fn find(tx: &mut ReadTx<'_>, project: &Project, name: &str) -> Result<Branch> {
    let missing = || Error::not_found("Branch");
    let repository = tx.repository(project)?.ok_or_else(missing)?;
    let refs = repository.refs();
    let branch = RefName::branch(name).and_then(|name| refs.find(&name)).ok_or_else(missing)?;
    let rules = store::protections::of_project(tx.db(), project.id)?;
    to_branch(&repository, branch, &rules)?.ok_or_else(missing)
}

fn to_branch(repository: &Repository, branch: &Ref, rules: &[Protection]) -> Result<Option<Branch>> {
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

/// Converts a count for pagination.
pub(crate) fn count(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}
