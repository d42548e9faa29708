//! Trigger tokens, which start pipelines without a user.

use model::{
    Page, PipelineId, Project, ProjectId, Slice, Time, TriggerId, Violations, pipelines::Source, projects::TokenSeed,
    tokens::Secret, triggers::Trigger,
};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    pipelines::planning::{self, PipelineRequest},
    variables::{self, check_key, check_value},
};

/// The maximum number of triggers of a project.
const MAX_TRIGGERS: i64 = 1000;

/// A trigger with its token.
#[derive(Clone, Debug)]
pub struct TriggerDetail {
    /// The ID.
    pub id: TriggerId,
    /// The token.
    pub token: Secret,
    /// When it was created.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// When it was last used.
    pub last_used: Option<Time>,
}

/// A call of a trigger. Not `Debug`, because it contains secrets.
#[derive(Clone)]
pub struct TriggerPipeline {
    /// The token.
    pub token: Secret,
    /// The branch or the tag.
    pub ref_name: String,
    /// The variables for the jobs; `None` if the client sent something other than a map of strings.
    pub variables: Option<Vec<(String, String)>>,
}

/// A pipeline started by a trigger.
#[derive(Clone)]
pub struct TriggeredPipeline {
    /// The ID of the pipeline.
    pub pipeline: PipelineId,
    /// The variables passed to the jobs.
    pub variables: ci::Variables,
}

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.project(project, ProjectAbility::AdministerCi)
}

/// Returns a page of the triggers of a project, oldest first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<TriggerDetail>> {
    let project = open(tx, project)?;
    let found = store::triggers::list(tx.db(), project.id, *page.validate()?)?;
    Ok(found.map(|trigger| detail(tx, &trigger)))
}

/// Returns a trigger of a project by its token.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, token: &Secret) -> Result<TriggerDetail> {
    let project = open(tx, project)?;
    let trigger = find(tx, &project, token)?;
    Ok(detail(tx, &trigger))
}

/// Creates a trigger.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<TriggerDetail> {
    let project = open(tx.read(), project)?;
    // Locked, so that concurrent calls cannot exceed the limit.
    store::projects::lock(tx.db(), project.id)?;
    if store::triggers::count(tx.db(), project.id)? >= MAX_TRIGGERS {
        return Err(Violations::one("base", format!("Maximum number of triggers ({MAX_TRIGGERS}) reached")).into());
    }
    let mut bytes = vec![0; 16];
    tx.shared().secrets.fill(&mut bytes);
    let (seed, now) = (TokenSeed(bytes), tx.now());
    let digest = tx.shared().instance_key.trigger_token(&seed).digest();
    let trigger = store::triggers::insert(tx.db(), project.id, &seed, &digest, now)?;
    Ok(detail(tx.read(), &trigger))
}

/// Deletes a trigger and returns it.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, token: &Secret) -> Result<TriggerDetail> {
    let project = open(tx.read(), project)?;
    let trigger = find(tx.read(), &project, token)?;
    store::triggers::delete(tx.db(), trigger.id)?;
    Ok(detail(tx.read(), &trigger))
}

/// Deletes a trigger by its ID, for pages that do not show the token.
pub fn delete_by_id(tx: &mut WriteTx<'_>, project: &ProjectRef, id: TriggerId) -> Result<()> {
    let project = open(tx.read(), project)?;
    let trigger = store::triggers::by_id(tx.db(), project.id, id)?.ok_or(Error::not_found("Trigger"))?;
    Ok(store::triggers::delete(tx.db(), trigger.id)?)
}

/// Starts a pipeline with a trigger token. The caller matters only for the number of webhooks that led to the call.
pub async fn start(
    forge: &Forge,
    caller: &Caller,
    project: ProjectRef,
    call: Unvalidated<TriggerPipeline>,
) -> Result<TriggeredPipeline> {
    let system = Caller::system().with_hook_depth(caller.hook_depth());
    let AuthorizedCall { project, trigger, ref_name, variables, encrypted } =
        forge.read(system.clone(), move |tx| authorize(tx, &project, &call)).await?;
    let request = PipelineRequest {
        project,
        ref_name,
        source: Source::Trigger,
        user: None,
        trigger: Some(trigger),
        variables: variables.clone(),
        encrypted,
    };
    // GitLab 8.14 answers with one message for all failures.
    let pipeline = planning::start(forge, system, request).await?.map_err(|_| no_builds_created())?;
    Ok(TriggeredPipeline { pipeline: pipeline.id, variables })
}

/// A call with a valid token.
struct AuthorizedCall {
    project: ProjectId,
    trigger: TriggerId,
    ref_name: String,
    variables: ci::Variables,
    encrypted: Option<Vec<u8>>,
}

/// Checks the token and the variables of a call.
fn authorize(tx: &mut ReadTx<'_>, project: &ProjectRef, call: &Unvalidated<TriggerPipeline>) -> Result<AuthorizedCall> {
    let TriggerPipeline { token, ref_name, variables } = call.validate()?;
    // A client without a valid token must not learn which projects exist.
    let not_found = || Error::NotFound(None);
    let (owner, trigger) = store::triggers::by_token(tx.db(), &token.digest())?.ok_or_else(not_found)?;
    let project = tx.project(project, ProjectAbility::ReadProject).map_err(|error| match error {
        Error::NotFound(_) => not_found(),
        other => other,
    })?;
    if project.id != owner {
        return Err(Error::Unauthenticated);
    }
    let not_a_map = || Error::Refused("variables needs to be a map of key-valued strings".into());
    let variables = variables.as_ref().ok_or_else(not_a_map)?;
    check(variables)?;
    // Archived projects and those without CI run no pipelines.
    if !tx.can(&project, ProjectAbility::RunPipelines) {
        return Err(no_builds_created());
    }
    let variables: ci::Variables = variables.iter().cloned().collect();
    let encrypted = variables::encrypt_all(tx, project.id, &variables);
    Ok(AuthorizedCall { project: project.id, trigger: trigger.id, ref_name: ref_name.clone(), variables, encrypted })
}

fn no_builds_created() -> Error {
    Error::Refused("No builds created".into())
}

fn check(variables: &[(String, String)]) -> Result<()> {
    let mut violations = Violations::new();
    let max = variables::MAX_VARIABLES;
    violations.require(variables.len() <= max, "variables", format!("are too many (maximum is {max})"));
    for (key, value) in variables {
        check_key(&mut violations, "key", key);
        check_value(&mut violations, value);
        if !violations.is_empty() {
            // Report one error only.
            break;
        }
    }
    Ok(violations.into_result()?)
}

fn find(tx: &mut ReadTx<'_>, project: &Project, token: &Secret) -> Result<Trigger> {
    let found = store::triggers::by_token(tx.db(), &token.digest())?;
    let own = found.filter(|(owner, _)| *owner == project.id);
    own.map(|(_, trigger)| trigger).ok_or(Error::not_found("Trigger"))
}

fn detail(tx: &ReadTx<'_>, trigger: &Trigger) -> TriggerDetail {
    let Trigger { id, seed, created_at, updated_at, last_used } = trigger;
    TriggerDetail {
        id: *id,
        token: tx.shared().instance_key.trigger_token(seed),
        created_at: *created_at,
        updated_at: *updated_at,
        last_used: *last_used,
    }
}
