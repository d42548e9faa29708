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
    Ability, Caller, Error, Forge, Given, ProjectAbility, ProjectRef, Reader, Result, Writer,
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
pub fn start(it: &mut Writer<'_>, project: &Project, start: &Start, plan: &Plan) -> Result<Pipeline> {
    let now = it.now();
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
    let id = store::pipelines::insert(it.db(), &new)?;
    machine::begin(it, project, id, plan)
}

/// Lets something happen to one build, with all that follows from it. Whoever calls this has judged that it may be. What is
/// impossible changes nothing and is no error.
pub fn happen(it: &mut Writer<'_>, build: i64, event: Event) -> Result<Pipeline> {
    let place = store::builds::place_of(it.db(), build)?.ok_or(Error::NoSuchRow)?;
    let project = it.open_as_service(&ProjectRef::Id(place.project), ProjectAbility::ReadPipelines)?;
    let mut held = machine::hold(it, place.pipeline)?;
    let places: Vec<usize> = held.position(build).into_iter().collect();
    machine::happen(it, &mut held, &places, event, &NewBuildState::default())?;
    machine::follow(it, &project, held)
}

/// A page of the pipelines of a project, the newest first.
pub fn list(
    it: &mut Reader<'_>,
    project: &ProjectRef,
    scope: &Given<PipelineScope>,
    page: &Given<Page>,
) -> Result<Slice<Pipeline>> {
    it.may(Ability::Browse)?;
    let project = it.open(project, ProjectAbility::ReadPipelines)?;
    let (scope, page) = (*scope.get()?, *page.get()?);
    match scope {
        PipelineScope::All => Ok(store::pipelines::list(it.db(), project.id, false, page)?),
        PipelineScope::Running => Ok(store::pipelines::list(it.db(), project.id, true, page)?),
        PipelineScope::Branches => list_by_ref(it, &project, false, page),
        PipelineScope::Tags => list_by_ref(it, &project, true, page),
    }
}

/// The newest pipeline of each branch, or of each tag, that is there.
fn list_by_ref(it: &mut Reader<'_>, project: &Project, tags: bool, page: Page) -> Result<Slice<Pipeline>> {
    let Some(repository) = it.repository(project)? else { return Ok(Slice::empty(page)) };
    let refs = repository.refs()?;
    let there = if tags { &refs.tags } else { &refs.branches };
    let there: HashSet<&str> = there.iter().map(|found| found.name.short()).collect();
    let newest = store::pipelines::newest_of_refs(it.db(), project.id, tags)?;
    let mut ids: Vec<i64> =
        newest.into_iter().filter(|(name, _)| there.contains(name.as_str())).map(|(_, id)| id).collect();
    ids.sort_unstable_by(|one, other| other.cmp(one));
    let items = store::pipelines::by_ids(it.db(), page.cut(&ids))?;
    Ok(Slice { items, total: i64::try_from(ids.len()).unwrap_or(i64::MAX), page })
}

/// One pipeline.
pub fn get(it: &mut Reader<'_>, project: &ProjectRef, id: &Given<i64>) -> Result<Pipeline> {
    it.may(Ability::Browse)?;
    let project = it.open(project, ProjectAbility::ReadPipelines)?;
    let id = *id.get()?;
    store::pipelines::find(it.db(), project.id, id)?.ok_or(Error::NoSuchRow)
}

/// Starts a pipeline for a branch or a tag.
pub async fn create(forge: &Forge, caller: Caller, project: ProjectRef, ref_name: Given<String>) -> Result<Pipeline> {
    let ask = move |it: &mut Reader<'_>| {
        let project = it.open(&project, ProjectAbility::RunPipelines)?;
        Ok((project.id, it.my_id(Ability::Browse)?, ref_name.get()?.clone()))
    };
    let (project, user, ref_name) = forge.peek(caller.clone(), ask).await?;
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
pub fn retry(it: &mut Writer<'_>, project: &ProjectRef, id: &Given<i64>) -> Result<Retried> {
    let (project, mut held) = take_in_hand(it, project, id)?;
    let user = it.actor().user().map(|user| user.id);
    let mut wanted = progress::retry(&held.states());
    // What waits for somebody goes on by itself only if somebody had started it.
    wanted.at_once.retain(|at| held.builds[*at].ran.0.is_some());
    let again = machine::renew(it, &mut held, &project, &wanted.anew, user, false)?;
    if !again {
        return Ok(Retried { pipeline: held.pipeline, again });
    }
    // Jobs of later stages run for this user, too: the one before may have left.
    let mine = NewBuildState { user, ..NewBuildState::default() };
    machine::happen(it, &mut held, &wanted.at_once, Event::Enqueue, &mine)?;
    machine::happen(it, &mut held, &wanted.reopened, Event::Process, &mine)?;
    let pipeline = machine::follow(it, &project, held)?;
    Ok(Retried { pipeline, again })
}

/// Stops everything that has not ended.
pub async fn cancel(forge: &Forge, caller: Caller, project: ProjectRef, id: Given<i64>) -> Result<Pipeline> {
    let cancel = move |it: &mut Writer<'_>| {
        let (project, mut held) = take_in_hand(it, &project, &id)?;
        let wanted = progress::cancel(&held.states());
        let stopped = Stopped::of(it, &held, &wanted);
        machine::happen(it, &mut held, &wanted, Event::Cancel, &NewBuildState::default())?;
        Ok((machine::follow(it, &project, held)?, stopped))
    };
    let (pipeline, stopped) = forge.write(caller, cancel).await?;
    if let Some(stopped) = stopped {
        stopped.close_traces(forge).await;
    }
    Ok(pipeline)
}

/// The gate to changing a pipeline, which nobody else changes from then on.
fn take_in_hand(it: &mut Writer<'_>, project: &ProjectRef, id: &Given<i64>) -> Result<(Project, Held)> {
    let project = it.open(project, ProjectAbility::RunPipelines)?;
    let id = *id.get()?;
    let found = store::pipelines::find(it.db(), project.id, id)?.ok_or(Error::NoSuchRow)?;
    let held = machine::hold(it, found.id)?;
    Ok((project, held))
}
