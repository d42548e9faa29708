//! Triggers: tokens with which others start pipelines.

use model::{
    Page, Project, Slice, Time, Violations, pipelines::Source, projects::Seed, runners::Trigger, tokens::Secret,
};

use crate::{
    Caller, Error, Forge, Given, ProjectAbility, ProjectRef, Reader, Result, Writer,
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

fn open(it: &mut Reader<'_>, project: &ProjectRef) -> Result<Project> {
    it.open(project, ProjectAbility::AdministerBuilds)
}

/// The triggers of a project, oldest first.
pub fn list(it: &mut Reader<'_>, project: &ProjectRef, page: &Given<Page>) -> Result<Slice<ShownTrigger>> {
    let project = open(it, project)?;
    let found = store::triggers::list(it.db(), project.id, *page.get()?)?;
    Ok(found.map(|trigger| shown(it, &trigger)))
}

/// One trigger of a project, by its token.
pub fn get(it: &mut Reader<'_>, project: &ProjectRef, token: &Secret) -> Result<ShownTrigger> {
    let project = open(it, project)?;
    let trigger = find(it, &project, token)?;
    Ok(shown(it, &trigger))
}

/// Adds a trigger.
pub fn create(it: &mut Writer<'_>, project: &ProjectRef) -> Result<ShownTrigger> {
    let project = open(it, project)?;
    // How many there are is judged while nobody adds another one.
    store::projects::lock(it.db(), project.id)?;
    if store::triggers::count(it.db(), project.id)? >= MOST_TRIGGERS {
        return Err(Violations::one("base", format!("Maximum number of triggers ({MOST_TRIGGERS}) reached")).into());
    }
    let mut bytes = vec![0; 16];
    it.shared().secrets.fill(&mut bytes);
    let (seed, now) = (Seed(bytes), it.now());
    let digest = it.shared().instance_key.trigger_token(&seed).digest();
    let trigger = store::triggers::insert(it.db(), project.id, &seed, &digest, now)?;
    Ok(shown(it, &trigger))
}

/// Removes a trigger; answers it as it was.
pub fn delete(it: &mut Writer<'_>, project: &ProjectRef, token: &Secret) -> Result<ShownTrigger> {
    let project = open(it, project)?;
    let trigger = find(it, &project, token)?;
    store::triggers::delete(it.db(), trigger.id)?;
    Ok(shown(it, &trigger))
}

/// Starts a pipeline for somebody who shows the token of a trigger. Who they are does not matter; how many hooks have led
/// here does.
pub async fn start(forge: &Forge, caller: &Caller, project: ProjectRef, call: Given<Call>) -> Result<Started> {
    let service = Caller::system().led_by_hooks(caller.depth());
    let Admitted { project, trigger, ref_name, variables, sealed } =
        forge.read(service.clone(), move |it| admit(it, &project, &call)).await?;
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
fn admit(it: &mut Reader<'_>, project: &ProjectRef, call: &Given<Call>) -> Result<Admitted> {
    let Call { token, ref_name, variables } = call.get()?;
    // Who shows no token that is known learns nothing about what there is.
    let absent = || Error::Absent("404 Not Found".into());
    let (owner, trigger) = store::triggers::by_token(it.db(), &token.digest())?.ok_or_else(absent)?;
    let project = it.open(project, ProjectAbility::ReadProject).map_err(|error| match error {
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
    if !it.can(&project, ProjectAbility::RunPipelines) {
        return Err(nothing_created());
    }
    let variables: ci::Variables = variables.iter().cloned().collect();
    let sealed = variables::seal_all(it, project.id, &variables);
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

fn find(it: &mut Reader<'_>, project: &Project, token: &Secret) -> Result<Trigger> {
    let found = store::triggers::by_token(it.db(), &token.digest())?;
    let own = found.filter(|(owner, _)| *owner == project.id);
    own.map(|(_, trigger)| trigger).ok_or(Error::not_found("Trigger"))
}

fn shown(it: &Reader<'_>, trigger: &Trigger) -> ShownTrigger {
    let Trigger { id: _, seed, created_at, updated_at, last_used } = trigger;
    ShownTrigger {
        token: it.shared().instance_key.trigger_token(seed),
        created_at: *created_at,
        updated_at: *updated_at,
        last_used: *last_used,
    }
}
