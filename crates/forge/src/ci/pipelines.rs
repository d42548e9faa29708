//! Pipelines: what is made of a commit.

pub(crate) mod drafts;
pub mod endings;
pub(crate) mod machine;
pub(crate) mod tidings;

use std::collections::HashSet;

use ci::{Event, Plan, progress};
use model::{
    Oid, Page, Pipeline, Project, Slice, Status, Violations,
    pipelines::{PipelineScope, Source},
};
use store::{builds::NewBuildState, pipelines::NewPipeline};

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    builds::Stopped,
    pipelines::{drafts::Wish, machine::Held},
};

/// What there is to know of a pipeline besides its plan.
#[derive(Clone, Debug)]
pub struct Start {
    /// The branch or the tag, as people say it.
    pub ref_name: String,
    /// Whether it is a tag.
    pub tag: bool,
    /// The commit.
    pub sha: Oid,
    /// Why it is there.
    pub source: Source,
    /// Who starts it.
    pub user: Option<i64>,
    /// The trigger that starts it.
    pub trigger: Option<i64>,
    /// What the trigger gives along, sealed.
    pub variables: Option<Vec<u8>>,
}

/// Makes a pipeline with all its builds, and starts those whose turn it is. Whoever calls this has judged that it may be.
pub fn start(tx: &mut WriteTx<'_>, project: &Project, start: &Start, plan: &Plan) -> Result<Pipeline> {
    let now = tx.now();
    let new = NewPipeline {
        project: project.id,
        ref_name: &start.ref_name,
        tag: start.tag,
        sha: start.sha,
        before_sha: None,
        source: start.source,
        status: Status::Created,
        yaml_errors: None,
        stages: &plan.stages,
        user: start.user,
        trigger: start.trigger,
        variables: start.variables.as_deref(),
        intent: None,
        plan: None,
        now,
    };
    let id = store::pipelines::insert(tx.db(), &new)?;
    machine::begin(tx, project, id, plan)
}

/// Lets something happen to one build, with all that follows from it. Whoever calls this has judged that it may be. What is
/// impossible changes nothing and is no error.
pub fn happen(tx: &mut WriteTx<'_>, build: i64, event: Event) -> Result<Pipeline> {
    let place = store::builds::place_of(tx.db(), build)?.ok_or(Error::NoSuchRow)?;
    let project = tx.open_as_service(&ProjectRef::Id(place.project), ProjectAbility::ReadPipelines)?;
    let mut held = machine::hold(tx, place.pipeline)?;
    let places: Vec<usize> = held.position(build).into_iter().collect();
    machine::happen(tx, &mut held, &places, event, &NewBuildState::default())?;
    machine::follow(tx, &project, held)
}

/// A page of the pipelines of a project, the newest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    scope: &Unvalidated<PipelineScope>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Pipeline>> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadPipelines)?;
    let (scope, page) = (*scope.get()?, *page.get()?);
    match scope {
        PipelineScope::All => Ok(store::pipelines::list(tx.db(), project.id, false, page)?),
        PipelineScope::Running => Ok(store::pipelines::list(tx.db(), project.id, true, page)?),
        PipelineScope::Branches => list_by_ref(tx, &project, false, page),
        PipelineScope::Tags => list_by_ref(tx, &project, true, page),
    }
}

/// The newest pipeline of each branch, or of each tag, that is there.
fn list_by_ref(tx: &mut ReadTx<'_>, project: &Project, tags: bool, page: Page) -> Result<Slice<Pipeline>> {
    let Some(repository) = tx.repository(project)? else { return Ok(Slice::empty(page)) };
    let refs = repository.refs()?;
    let there = if tags { &refs.tags } else { &refs.branches };
    let there: HashSet<&str> = there.iter().map(|found| found.name.short()).collect();
    let newest = store::pipelines::newest_of_refs(tx.db(), project.id, tags)?;
    let mut ids: Vec<i64> =
        newest.into_iter().filter(|(name, _)| there.contains(name.as_str())).map(|(_, id)| id).collect();
    ids.sort_unstable_by(|one, other| other.cmp(one));
    let items = store::pipelines::by_ids(tx.db(), page.cut(&ids))?;
    Ok(Slice { items, total: i64::try_from(ids.len()).unwrap_or(i64::MAX), page })
}

/// One pipeline.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<Pipeline> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadPipelines)?;
    let id = *id.get()?;
    store::pipelines::find(tx.db(), project.id, id)?.ok_or(Error::NoSuchRow)
}

/// Starts a pipeline for a branch or a tag.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    ref_name: Unvalidated<String>,
) -> Result<Pipeline> {
    let ask = move |tx: &mut ReadTx<'_>| {
        let project = tx.open(&project, ProjectAbility::RunPipelines)?;
        Ok((project.id, tx.my_id(Ability::Browse)?, ref_name.get()?.clone()))
    };
    let (project, user, ref_name) = forge.read_inline(caller.clone(), ask).await?;
    let wish = Wish {
        project,
        ref_name,
        source: Source::Api,
        user: Some(user),
        trigger: None,
        variables: ci::Variables::new(),
        sealed: None,
    };
    let started = drafts::start_on(forge, caller, wish).await?;
    started.map_err(|unstarted| Violations::one("base", unstarted.text()).into())
}

/// A pipeline after somebody wanted it to be tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retried {
    /// The pipeline as it is then.
    pub pipeline: Pipeline,
    /// Whether there was something to try again.
    pub again: bool,
}

/// Tries everything again that failed or was stopped.
pub fn retry(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<Retried> {
    let (project, mut held) = take_in_hand(tx, project, id)?;
    let user = tx.actor().user().map(|user| user.id);
    let mut wanted = progress::retry(&held.states());
    // What waits for somebody goes on by itself only if somebody had started it.
    wanted.at_once.retain(|at| held.builds[*at].ran.0.is_some());
    let again = machine::renew(tx, &mut held, &project, &wanted.anew, user, false)?;
    if !again {
        return Ok(Retried { pipeline: held.pipeline, again });
    }
    // Jobs of later stages run for this user, too: the one before may have left.
    let mine = NewBuildState { user, ..NewBuildState::default() };
    machine::happen(tx, &mut held, &wanted.at_once, Event::Enqueue, &mine)?;
    machine::happen(tx, &mut held, &wanted.reopened, Event::Process, &mine)?;
    let pipeline = machine::follow(tx, &project, held)?;
    Ok(Retried { pipeline, again })
}

/// Stops everything that has not ended.
pub async fn cancel(forge: &Forge, caller: Caller, project: ProjectRef, id: Unvalidated<i64>) -> Result<Pipeline> {
    let cancel = move |tx: &mut WriteTx<'_>| {
        let (project, mut held) = take_in_hand(tx, &project, &id)?;
        let wanted = progress::cancel(&held.states());
        let stopped = Stopped::of(tx, &held, &wanted);
        machine::happen(tx, &mut held, &wanted, Event::Cancel, &NewBuildState::default())?;
        Ok((machine::follow(tx, &project, held)?, stopped))
    };
    let (pipeline, stopped) = forge.write(caller, cancel).await?;
    if let Some(stopped) = stopped {
        stopped.close_traces(forge).await;
    }
    Ok(pipeline)
}

/// The gate to changing a pipeline, which nobody else changes from then on.
fn take_in_hand(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<(Project, Held)> {
    let project = tx.open(project, ProjectAbility::RunPipelines)?;
    let id = *id.get()?;
    let found = store::pipelines::find(tx.db(), project.id, id)?.ok_or(Error::NoSuchRow)?;
    let held = machine::hold(tx, found.id)?;
    Ok((project, held))
}
