//! What is known of commits: their jobs, and what others found out.

use git::Repository;
use model::{
    CommitStatus, Oid, Page, Project, RefName, Slice, Status, Violations,
    pipelines::{EXTERNAL_STAGE, Source},
    statuses::{NewStatus, StatusFilter, StatusState},
};
use store::pipelines::NewPipeline;
use url::Url;

use crate::{
    Ability, BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    pipelines::machine,
};

/// How long each of the texts may be.
const LONGEST: usize = 255;
/// How many branches are asked whether they have a commit.
const MOST_BRANCHES: usize = 1000;

/// A status as somebody tells it.
#[derive(Clone, Debug)]
pub struct StatusText {
    /// How far it has come.
    pub state: StatusState,
    /// The branch or tag that it is told for; the first branch that has the commit if nothing is said.
    pub ref_name: Option<String>,
    /// What was looked at.
    pub name: String,
    /// Where more is told.
    pub target_url: Option<String>,
    /// What there is to say in short.
    pub description: Option<String>,
}

/// The statuses of a commit, oldest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    revision: &str,
    filter: &Unvalidated<StatusFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<CommitStatus>> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadStatuses)?;
    let (filter, page) = (filter.get()?, *page.get()?);
    let (_, commit) = find_commit(tx.repository(&project)?, revision)?;
    Ok(store::statuses::list(tx.db(), project.id, commit, filter, page)?)
}

/// Tells what somebody found out about a commit.
pub async fn set(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    revision: String,
    text: Unvalidated<StatusText>,
) -> Result<CommitStatus> {
    let (project, new) = forge.run_blocking(caller.clone(), move |tx| weigh(tx, &project, &revision, &text)).await?;
    forge.write(caller, move |tx| tell(tx, project, &new)).await
}

/// What is to be told, with its commit and its ref: to find that may take long, so it is done apart.
fn weigh(
    tx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    revision: &str,
    text: &Unvalidated<StatusText>,
) -> Result<(i64, NewStatus)> {
    let open = |tx: &mut ReadTx<'_>| -> Result<(Project, Option<Repository>)> {
        let project = tx.open(project, ProjectAbility::SetStatus)?;
        let repository = tx.repository(&project)?;
        Ok((project, repository))
    };
    let (project, repository) = tx.read(open)?;
    let StatusText { state, ref_name, name, target_url, description } = text.get()?.clone();
    let (repository, sha) = find_commit(repository, revision)?;
    let ref_name = match ref_name {
        Some(name) => name,
        None => branch_with(&repository, sha)?.ok_or(Error::not_found("References for commit"))?,
    };
    let tag = is_only_a_tag(&repository, &ref_name)?;
    let new = NewStatus { sha, ref_name, tag, name, state, target_url, description };
    check(&new)?;
    Ok((project.id, new))
}

fn find_commit(repository: Option<Repository>, revision: &str) -> Result<(Repository, Oid)> {
    let missing = || Error::not_found("Commit");
    let repository = repository.ok_or_else(missing)?;
    let commit = repository.resolve(revision)?.ok_or_else(missing)?;
    Ok((repository, commit))
}

/// The first branch by name that has a commit.
fn branch_with(repository: &Repository, commit: Oid) -> Result<Option<String>> {
    let refs = repository.refs()?;
    for branch in refs.branches.iter().take(MOST_BRANCHES) {
        if repository.is_ancestor(commit, branch.target)? {
            return Ok(Some(branch.name.short().to_owned()));
        }
    }
    Ok(None)
}

/// Whether a name is that of a tag, and not of a branch too.
fn is_only_a_tag(repository: &Repository, name: &str) -> Result<bool> {
    let refs = repository.refs()?;
    let is_there = |name: Option<RefName>| name.is_some_and(|name| refs.find(&name).is_some());
    Ok(is_there(RefName::tag(name)) && !is_there(RefName::branch(name)))
}

fn check(new: &NewStatus) -> Result<()> {
    let mut violations = Violations::new();
    violations.unless(!new.name.trim().is_empty(), "name", "can't be blank");
    violations.longest("name", &new.name, LONGEST);
    violations.longest("ref", &new.ref_name, LONGEST);
    violations.longest("description", new.description.as_deref().unwrap_or_default(), LONGEST);
    if let Some(url) = &new.target_url {
        violations.longest("target_url", url, LONGEST);
        // It becomes a link: a browser must not run it.
        let fits = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        violations.unless(fits, "target_url", "must be a valid URL");
    }
    Ok(violations.into_result()?)
}

/// Takes a status that is on its way further, or begins a new one; the pipeline that it belongs to follows.
fn tell(tx: &mut WriteTx<'_>, project: i64, new: &NewStatus) -> Result<CommitStatus> {
    let project = tx.open(&ProjectRef::Id(project), ProjectAbility::SetStatus)?;
    let (me, now) = (tx.my_id(Ability::Browse)?, tx.now());
    let pipeline = pipeline_for(tx, &project, new, me)?;
    // Of two who tell the same at once, the second finds what the first has told.
    store::pipelines::hold(tx.db(), pipeline)?;
    let latest = store::statuses::latest(tx.db(), pipeline, &new.name)?;
    let mine = |status: &CommitStatus| status.author.as_ref().is_some_and(|author| author.id == me);
    let told = match latest.filter(|status| !status.state.is_done() && mine(status)) {
        None => store::statuses::insert(tx.db(), project.id, pipeline, me, new, now)?,
        Some(status) => {
            check_step(status.state, new.state)?;
            store::statuses::update(tx.db(), status.id, me, new, now)?
        }
    };
    let held = machine::hold(tx, pipeline)?;
    machine::follow(tx, &project, held)?;
    Ok(told)
}

/// The newest pipeline of a commit and a ref; one is made if there is none.
fn pipeline_for(tx: &mut WriteTx<'_>, project: &Project, new: &NewStatus, user: i64) -> Result<i64> {
    let now = tx.now();
    let newest =
        |tx: &mut WriteTx<'_>| store::pipelines::newest_at(tx.db(), project.id, new.sha, &new.ref_name, new.tag);
    if let Some(found) = newest(tx)? {
        return Ok(found);
    }
    // Of two who come first, only one makes it. The project is not held otherwise: others hold a pipeline before they
    // need the project, and nobody should wait in a circle.
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
        intent: None,
        plan: None,
        now,
    };
    Ok(store::pipelines::insert(tx.db(), &pipeline)?)
}

/// Whether a status may go from one state to the other; clients of the original read the sentence.
fn check_step(from: Status, to: StatusState) -> Result<()> {
    let event = match (from, to) {
        (_, StatusState::Pending) => "enqueue",
        (Status::Running, StatusState::Running) => "run",
        _ => return Ok(()),
    };
    let from = from.word();
    Err(Error::Refused(format!(
        "Cannot transition status via :{event} from :{from} (Reason(s): Status cannot transition via \"{event}\")"
    )))
}
