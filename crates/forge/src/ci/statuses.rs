//! Commit statuses: jobs, and statuses reported by external services.

use git::Repository;
use model::{
    CommitStatus, Oid, Page, PipelineId, Project, ProjectId, RefName, Slice, Status, UserId, Violations,
    pipelines::{EXTERNAL_STAGE, Source},
    statuses::{NewStatus, StatusFilter, StatusState},
};
use store::pipelines::NewPipeline;
use url::Url;

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    pipelines::state_machine,
};

/// The maximum length of each text in characters.
const MAX_LENGTH: usize = 255;
/// The maximum number of branches searched for a commit.
const MAX_BRANCHES: usize = 1000;

/// A status reported by an external service.
#[derive(Clone, Debug)]
pub struct StatusReport {
    /// The state.
    pub state: StatusState,
    /// The branch or the tag; `None` stands for the first branch that contains the commit.
    pub ref_name: Option<String>,
    /// The name of the check.
    pub name: String,
    /// The URL of a page with details.
    pub target_url: Option<String>,
    /// A short description.
    pub description: Option<String>,
}

/// Returns a page of the statuses of a commit, oldest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    revision: &str,
    filter: &Unvalidated<StatusFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<CommitStatus>> {
    let project = tx.project(project, ProjectAbility::ReadStatuses)?;
    let (filter, page) = (filter.validate()?, *page.validate()?);
    let (_, commit) = find_commit(tx.repository(&project)?, revision)?;
    Ok(store::statuses::list(tx.db(), project.id, commit, filter, page)?)
}

/// Sets the status of a commit.
pub async fn set(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    revision: String,
    report: Unvalidated<StatusReport>,
) -> Result<CommitStatus> {
    let (project, new) =
        forge.run_blocking(caller.clone(), move |cx| prepare(cx, &project, &revision, &report)).await?;
    forge.write(caller, move |tx| save(tx, project, &new)).await
}

/// Validates a report and finds its commit and ref. This may take long, so it is done outside of the write transaction.
fn prepare(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    revision: &str,
    report: &Unvalidated<StatusReport>,
) -> Result<(ProjectId, NewStatus)> {
    let open = |tx: &mut ReadTx<'_>| -> Result<(Project, Option<Repository>)> {
        let project = tx.project(project, ProjectAbility::SetStatus)?;
        let repository = tx.repository(&project)?;
        Ok((project, repository))
    };
    let (project, repository) = cx.read(open)?;
    let StatusReport { state, ref_name, name, target_url, description } = report.validate()?.clone();
    let (repository, sha) = find_commit(repository, revision)?;
    let ref_name = match ref_name {
        Some(name) => name,
        None => first_branch_containing(&repository, sha)?.ok_or(Error::not_found("References for commit"))?,
    };
    let tag = is_tag_only(&repository, &ref_name);
    let new = NewStatus { sha, ref_name, tag, name, state, target_url, description };
    check(&new)?;
    Ok((project.id, new))
}

fn find_commit(repository: Option<Repository>, revision: &str) -> Result<(Repository, Oid)> {
    let not_found = || Error::not_found("Commit");
    let repository = repository.ok_or_else(not_found)?;
    let commit = repository.resolve(revision)?.ok_or_else(not_found)?;
    Ok((repository, commit))
}

/// Returns the first branch by name that contains a commit.
fn first_branch_containing(repository: &Repository, commit: Oid) -> Result<Option<String>> {
    let refs = repository.refs();
    for branch in refs.branches.iter().take(MAX_BRANCHES) {
        if repository.is_ancestor(commit, branch.target)? {
            return Ok(Some(branch.name.short().to_owned()));
        }
    }
    Ok(None)
}

/// Returns whether a name is that of a tag but not of a branch.
fn is_tag_only(repository: &Repository, name: &str) -> bool {
    let refs = repository.refs();
    let exists = |name: Option<RefName>| name.is_some_and(|name| refs.find(&name).is_some());
    exists(RefName::tag(name)) && !exists(RefName::branch(name))
}

fn check(new: &NewStatus) -> Result<()> {
    let mut violations = Violations::new();
    violations.require(!new.name.trim().is_empty(), "name", "can't be blank");
    violations.max_length("name", &new.name, MAX_LENGTH);
    violations.max_length("ref", &new.ref_name, MAX_LENGTH);
    violations.max_length("description", new.description.as_deref().unwrap_or_default(), MAX_LENGTH);
    if let Some(url) = &new.target_url {
        violations.max_length("target_url", url, MAX_LENGTH);
        // It is shown as a link, so it must not be a script.
        let is_valid = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        violations.require(is_valid, "target_url", "must be a valid URL");
    }
    Ok(violations.into_result()?)
}

/// Updates an unfinished status or inserts a new one, and lets its pipeline follow.
fn save(tx: &mut WriteTx<'_>, project: ProjectId, new: &NewStatus) -> Result<CommitStatus> {
    let project = tx.project(&ProjectRef::Id(project), ProjectAbility::SetStatus)?;
    let (user, now) = (tx.user_id()?, tx.now());
    let pipeline = pipeline_for(tx, &project, new, user)?;
    // Locked, so that of two concurrent reports the second one finds the first.
    store::pipelines::lock_row(tx.db(), pipeline)?;
    let latest = store::statuses::latest(tx.db(), pipeline, &new.name)?;
    let is_own = |status: &CommitStatus| status.author.as_ref().is_some_and(|author| author.id == user);
    let saved = match latest.filter(|status| !status.state.is_done() && is_own(status)) {
        None => store::statuses::insert(tx.db(), project.id, pipeline, user, new, now)?,
        Some(status) => {
            check_transition(status.state, new.state)?;
            store::statuses::update(tx.db(), status.id, user, new, now)?
        }
    };
    let locked = state_machine::lock(tx, pipeline)?;
    state_machine::advance(tx, &project, locked)?;
    Ok(saved)
}

/// Returns the newest pipeline of a commit and a ref; creates one if there is none.
fn pipeline_for(tx: &mut WriteTx<'_>, project: &Project, new: &NewStatus, user: UserId) -> Result<PipelineId> {
    let now = tx.now();
    let newest =
        |tx: &mut WriteTx<'_>| store::pipelines::newest_at(tx.db(), project.id, new.sha, &new.ref_name, new.tag);
    if let Some(found) = newest(tx)? {
        return Ok(found);
    }
    // Locked, so that concurrent calls create one pipeline only. The project is not locked in other cases: other
    // transactions lock a pipeline before the project, which could cause a deadlock.
    store::projects::lock(tx.db(), project.id)?;
    if let Some(found) = newest(tx)? {
        return Ok(found);
    }
    let stages = [EXTERNAL_STAGE.0.to_owned()];
    let pipeline = NewPipeline {
        project: project.id,
        ref_name: &new.ref_name,
        tag: new.tag,
        sha: new.sha,
        before_sha: None,
        source: Source::External,
        status: Status::Created,
        yaml_errors: None,
        stages: &stages,
        user: Some(user),
        trigger: None,
        variables: None,
        now,
    };
    Ok(store::pipelines::insert(tx.db(), &pipeline)?)
}

/// Checks whether a status may change its state; the message is that of GitLab 8.14.
fn check_transition(from: Status, to: StatusState) -> Result<()> {
    let event = match (from, to) {
        (_, StatusState::Pending) => "enqueue",
        (Status::Running, StatusState::Running) => "run",
        _ => return Ok(()),
    };
    let from = from.as_str();
    Err(Error::Refused(format!(
        "Cannot transition status via :{event} from :{from} (Reason(s): Status cannot transition via \"{event}\")"
    )))
}
