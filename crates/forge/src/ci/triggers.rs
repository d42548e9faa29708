//! Triggers: tokens with which others start pipelines.

use model::{
    Page, Project, Slice, Time, Violations, pipelines::Source, projects::Seed, runners::Trigger, tokens::Secret,
};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    pipelines::drafts::{self, Wish},
    variables::{self, check_key, check_value},
};

/// How many triggers a project may have.
const MOST_TRIGGERS: i64 = 1000;

/// A trigger as those see it who keep the project.
#[derive(Clone, Debug)]
pub struct ShownTrigger {
    /// Its token.
    pub token: Secret,
    /// When it was made.
    pub created_at: Time,
    /// When it was last changed.
    pub updated_at: Time,
    /// When it was last used.
    pub last_used: Option<Time>,
}

/// What somebody says who shows the token of a trigger. It does not print.
#[derive(Clone)]
pub struct Call {
    /// The token.
    pub token: Secret,
    /// The branch or the tag.
    pub ref_name: String,
    /// What the jobs shall know; `None` if that is something else than named texts.
    pub variables: Option<Vec<(String, String)>>,
}

/// A pipeline that was started by a trigger.
#[derive(Clone)]
pub struct Started {
    /// The number of the pipeline.
    pub pipeline: i64,
    /// What the jobs know.
    pub variables: ci::Variables,
}

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.open(project, ProjectAbility::AdministerBuilds)
}

/// The triggers of a project, oldest first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<ShownTrigger>> {
    let project = open(tx, project)?;
    let found = store::triggers::list(tx.db(), project.id, *page.get()?)?;
    Ok(found.map(|trigger| shown(tx, &trigger)))
}

/// One trigger of a project, by its token.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, token: &Secret) -> Result<ShownTrigger> {
    let project = open(tx, project)?;
    let trigger = find(tx, &project, token)?;
    Ok(shown(tx, &trigger))
}

/// Adds a trigger.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<ShownTrigger> {
    let project = open(tx, project)?;
    // How many there are is judged while nobody adds another one.
    store::projects::lock(tx.db(), project.id)?;
    if store::triggers::count(tx.db(), project.id)? >= MOST_TRIGGERS {
        return Err(Violations::one("base", format!("Maximum number of triggers ({MOST_TRIGGERS}) reached")).into());
    }
    let mut bytes = vec![0; 16];
    tx.shared().secrets.fill(&mut bytes);
    let (seed, now) = (Seed(bytes), tx.now());
    let digest = tx.shared().instance_key.trigger_token(&seed).digest();
    let trigger = store::triggers::insert(tx.db(), project.id, &seed, &digest, now)?;
    Ok(shown(tx, &trigger))
}

/// Removes a trigger; answers it as it was.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, token: &Secret) -> Result<ShownTrigger> {
    let project = open(tx, project)?;
    let trigger = find(tx, &project, token)?;
    store::triggers::delete(tx.db(), trigger.id)?;
    Ok(shown(tx, &trigger))
}

/// Starts a pipeline for somebody who shows the token of a trigger. Who they are does not matter; how many hooks have led
/// here does.
pub async fn start(forge: &Forge, caller: &Caller, project: ProjectRef, call: Unvalidated<Call>) -> Result<Started> {
    let service = Caller::system().led_by_hooks(caller.depth());
    let Admitted { project, trigger, ref_name, variables, sealed } =
        forge.read(service.clone(), move |tx| admit(tx, &project, &call)).await?;
    let wish = Wish {
        project,
        ref_name,
        source: Source::Trigger,
        user: None,
        trigger: Some(trigger),
        variables: variables.clone(),
        sealed,
    };
    // Clients of the original know one text for all that may be in the way.
    let pipeline = drafts::start_on(forge, service, wish).await?.map_err(|_| nothing_created())?;
    Ok(Started { pipeline: pipeline.id, variables })
}

/// What somebody wants who may have it.
struct Admitted {
    project: i64,
    trigger: i64,
    ref_name: String,
    variables: ci::Variables,
    sealed: Option<Vec<u8>>,
}

/// Looks whether a token opens a project for what somebody wants.
fn admit(tx: &mut ReadTx<'_>, project: &ProjectRef, call: &Unvalidated<Call>) -> Result<Admitted> {
    let Call { token, ref_name, variables } = call.get()?;
    // Who shows no token that is known learns nothing about what there is.
    let absent = || Error::Absent("404 Not Found".into());
    let (owner, trigger) = store::triggers::by_token(tx.db(), &token.digest())?.ok_or_else(absent)?;
    let project = tx.open(project, ProjectAbility::ReadProject).map_err(|error| match error {
        Error::NotFound(_) => absent(),
        other => other,
    })?;
    if project.id != owner {
        return Err(Error::Unauthenticated);
    }
    let not_a_map = || Error::Refused("variables needs to be a map of key-valued strings".into());
    let variables = variables.as_ref().ok_or_else(not_a_map)?;
    check(variables)?;
    // In a project that is put away or builds nothing there is nothing to build.
    if !tx.can(&project, ProjectAbility::RunPipelines) {
        return Err(nothing_created());
    }
    let variables: ci::Variables = variables.iter().cloned().collect();
    let sealed = variables::seal_all(tx, project.id, &variables);
    Ok(Admitted { project: project.id, trigger: trigger.id, ref_name: ref_name.clone(), variables, sealed })
}

fn nothing_created() -> Error {
    Error::Refused("No builds created".into())
}

fn check(given: &[(String, String)]) -> Result<()> {
    let mut violations = Violations::new();
    let most = variables::MOST;
    violations.unless(given.len() <= most, "variables", format!("are too many (maximum is {most})"));
    for (key, value) in given {
        check_key(&mut violations, "key", key);
        check_value(&mut violations, value);
        if !violations.is_empty() {
            // One is enough to know what is wrong.
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

fn shown(tx: &ReadTx<'_>, trigger: &Trigger) -> ShownTrigger {
    let Trigger { id: _, seed, created_at, updated_at, last_used } = trigger;
    ShownTrigger {
        token: tx.shared().instance_key.trigger_token(seed),
        created_at: *created_at,
        updated_at: *updated_at,
        last_used: *last_used,
    }
}
