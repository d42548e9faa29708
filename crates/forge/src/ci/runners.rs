//! Runners: registration, authentication and management.

use std::{collections::HashMap, sync::Mutex};

use jiff::SignedDuration;
use model::{
    Page, Project, ProjectId, Runner, RunnerId, Slice, Time, Violations,
    projects::TokenSeed,
    runners::{RunnerInfo, RunnerScope},
    tokens::{Digest, Secret},
};
pub use store::runners::RunnerChanges;
use store::runners::{NewRunner, RunnerFilter};
use tracing::info;

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, job_queue,
};

const RESOURCE: &str = "Runner";
/// The names of the seeds of instance-wide tokens.
const REGISTRATION_SEED: &str = "registration token";
const BUILT_IN_SEED: &str = "built-in runner";
/// The number of projects whose registration token is digested in one transaction.
const DIGEST_BATCH: i64 = 500;
/// The minimum time between two recorded contacts of a runner.
const CONTACT_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// The maximum number of runners whose last contact is cached.
const MAX_CONTACTS: usize = 10_000;
/// The minimum value of the maximum timeout of a runner.
const MIN_TIMEOUT_SECONDS: i64 = 600;
const MAX_TAGS: usize = 100;
const MAX_LENGTH: usize = 255;

/// The registration of a runner.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The description.
    pub description: String,
    /// Whether it takes jobs.
    pub active: bool,
    /// Whether it takes jobs without tags.
    pub run_untagged: bool,
    /// Whether it cannot be enabled for further projects.
    pub locked: bool,
    /// Its tags.
    pub tags: Vec<String>,
    /// The maximum timeout of its jobs, in seconds.
    pub maximum_timeout: Option<i64>,
    /// The details that it reports about itself.
    pub info: RunnerInfo,
}

/// A runner with the data that the caller may see.
#[derive(Clone, Debug)]
pub struct RunnerDetail {
    /// The runner.
    pub runner: Runner,
    /// Its token, if the caller may see it.
    pub token: Option<Secret>,
    /// The projects that it is enabled for and the caller is a member of.
    pub projects: Vec<Project>,
}

/// What a registration token registers a runner for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegistrationTarget {
    Instance,
    Project(ProjectId),
}

fn new_seed(tx: &ReadTx<'_>) -> TokenSeed {
    let mut bytes = vec![0; 16];
    tx.shared().secrets.fill(&mut bytes);
    TokenSeed(bytes)
}

/// Returns the registration token of the instance; creates it on first use.
pub fn registration_token(tx: &mut WriteTx<'_>) -> Result<Secret> {
    tx.authorize(Ability::ManageServer)?;
    let new = new_seed(tx.read());
    let seed = store::runners::get_or_insert_seed(tx.db(), REGISTRATION_SEED, &new)?;
    Ok(tx.shared().instance_key.registration_token(&seed))
}

/// Replaces the registration token of the instance. Registered runners stay registered.
pub fn reset_registration_token(tx: &mut WriteTx<'_>) -> Result<Secret> {
    tx.authorize(Ability::ManageServer)?;
    let seed = new_seed(tx.read());
    store::runners::replace_seed(tx.db(), REGISTRATION_SEED, &seed)?;
    Ok(tx.shared().instance_key.registration_token(&seed))
}

/// Returns the token of the built-in runner at this location, a shared runner that is registered on first use. Requeues the
/// jobs that it was running when the server was last terminated.
pub async fn built_in_runner_token(forge: &Forge, location: String) -> Result<Secret> {
    forge
        .write(Caller::system(), move |tx| {
            let new = new_seed(tx.read());
            let seed = store::runners::get_or_insert_seed(tx.db(), &format!("{BUILT_IN_SEED} {location}"), &new)?;
            let token = tx.shared().instance_key.runner_token(&seed);
            let Some(runner) = store::runners::by_token(tx.db(), &token.digest())? else {
                let registration = Registration { description: "built-in".to_owned(), ..Registration::default() };
                insert(tx, RegistrationTarget::Instance, &registration, &seed)?;
                return Ok(token);
            };
            let requeued = job_queue::requeue_all_of_runner(tx, runner.id)?;
            if requeued > 0 {
                info!(jobs = requeued, "requeued interrupted jobs");
            }
            Ok(token)
        })
        .await
}

impl Default for Registration {
    fn default() -> Self {
        Self {
            description: String::new(),
            active: true,
            run_untagged: true,
            locked: false,
            tags: Vec::new(),
            maximum_timeout: None,
            info: RunnerInfo::default(),
        }
    }
}

/// Registers a runner with the registration token of the instance or of a project; returns its ID and its own token.
pub async fn register(forge: &Forge, token: &Secret, new: Unvalidated<Registration>) -> Result<(RunnerId, Secret)> {
    let digest = token.digest();
    loop {
        // Checked first without a write, so that guessing tokens does not block writers.
        let (target, digests_missing) = forge.read(Caller::anonymous(), move |tx| find_target(tx, &digest)).await?;
        match target {
            Some(_) => break,
            None if digests_missing => forge.write(Caller::system(), store_token_digests).await?,
            None => return Err(Error::Forbidden(None)),
        }
    }
    forge
        .write(Caller::anonymous(), move |tx| {
            let target = registration_target(tx.read(), &digest)?.ok_or(Error::Forbidden(None))?;
            let new = new.validate()?;
            check_registration(new)?;
            let seed = new_seed(tx.read());
            let id = insert(tx, target, new, &seed)?;
            Ok((id, tx.shared().instance_key.runner_token(&seed)))
        })
        .await
}

/// Returns what a token registers runners for, and whether some projects have no stored digest yet.
fn find_target(tx: &mut ReadTx<'_>, token: &Digest) -> Result<(Option<RegistrationTarget>, bool)> {
    let target = registration_target(tx, token)?;
    Ok((target, target.is_none() && !store::runners::projects_without_token_digest(tx.db(), 1)?.is_empty()))
}

fn registration_target(tx: &mut ReadTx<'_>, token: &Digest) -> Result<Option<RegistrationTarget>> {
    let seed = store::runners::seed(tx.db(), REGISTRATION_SEED)?;
    if seed.is_some_and(|seed| tx.shared().instance_key.registration_token(&seed).digest() == *token) {
        return Ok(Some(RegistrationTarget::Instance));
    }
    let project = store::runners::project_by_registration_token(tx.db(), token)?;
    Ok(project.map(RegistrationTarget::Project))
}

/// Stores the digests of the registration tokens of some projects. A token is derived from the instance key and the project
/// ID, which is only known once the project exists.
fn store_token_digests(tx: &mut WriteTx<'_>) -> Result<()> {
    for (project, seed) in store::runners::projects_without_token_digest(tx.db(), DIGEST_BATCH)? {
        let digest = tx.shared().instance_key.runners_token(project, &seed).digest();
        store::runners::set_token_digest(tx.db(), project, &digest)?;
    }
    Ok(())
}

fn insert(tx: &mut WriteTx<'_>, target: RegistrationTarget, new: &Registration, seed: &TokenSeed) -> Result<RunnerId> {
    let now = tx.now();
    let digest = tx.shared().instance_key.runner_token(seed).digest();
    let Registration { description, active, run_untagged, locked, tags, maximum_timeout, info } = new;
    let runner = NewRunner {
        seed,
        digest,
        description,
        active: *active,
        is_shared: target == RegistrationTarget::Instance,
        run_untagged: *run_untagged,
        locked: *locked,
        tags,
        maximum_timeout: *maximum_timeout,
        info,
    };
    let id = store::runners::insert(tx.db(), &runner, now)?;
    if let RegistrationTarget::Project(project) = target {
        store::runners::enable_for_project(tx.db(), id, project, now)?;
    }
    Ok(id)
}

fn check_registration(new: &Registration) -> Result<()> {
    let mut violations = Violations::new();
    check_lengths(Some(&new.description), &new.tags, &mut violations);
    check_tags(&new.tags, new.run_untagged, &mut violations);
    if new.maximum_timeout.is_some_and(|seconds| seconds < MIN_TIMEOUT_SECONDS) {
        violations.add("maximum_timeout", format!("must be at least {MIN_TIMEOUT_SECONDS} seconds"));
    }
    Ok(violations.into_result()?)
}

fn check_lengths(description: Option<&str>, tags: &[String], violations: &mut Violations) {
    violations.max_length("description", description.unwrap_or_default(), MAX_LENGTH);
    violations.require(tags.len() <= MAX_TAGS, "tag_list", format!("is too long (maximum is {MAX_TAGS} tags)"));
    let well_formed = |tag: &String| tag.chars().count() <= MAX_LENGTH && !model::text::has_control(tag);
    violations.require(tags.iter().all(well_formed), "tag_list", "is invalid");
}

/// A runner without tags that does not take untagged jobs would never get a job.
fn check_tags(tags: &[String], run_untagged: bool, violations: &mut Violations) {
    violations.require(
        run_untagged || !tags.is_empty(),
        "tag_list",
        "can't be empty if the runner does not take untagged jobs",
    );
}

/// Returns the runner with this token.
pub(crate) fn authenticate(tx: &mut ReadTx<'_>, token: &Digest) -> Result<Runner> {
    store::runners::by_token(tx.db(), token)?.ok_or(Error::Forbidden(None))
}

/// Checks the token of a runner and returns its ID.
pub async fn verify(forge: &Forge, token: &Secret) -> Result<RunnerId> {
    let digest = token.digest();
    let runner = forge.read_inline(Caller::anonymous(), move |tx| authenticate(tx, &digest)).await?;
    record_contact(forge, &runner, RunnerInfo::default());
    Ok(runner.id)
}

/// Unregisters the runner with this token.
pub async fn unregister(forge: &Forge, token: &Secret) -> Result<()> {
    let digest = token.digest();
    forge.read_inline(Caller::anonymous(), move |tx| authenticate(tx, &digest).map(drop)).await?;
    forge
        .write(Caller::anonymous(), move |tx| {
            let runner = authenticate(tx.read(), &digest)?;
            store::runners::delete(tx.db(), runner.id)?;
            Ok(())
        })
        .await
}

/// When contacts of runners were last recorded. Runners poll often, so not every contact is stored.
#[derive(Default)]
pub(crate) struct RecentContacts(Mutex<HashMap<RunnerId, Time>>);

impl RecentContacts {
    /// Returns whether a contact of a runner is to be recorded.
    fn is_due(&self, runner: &Runner, now: Time) -> bool {
        let is_recent = |at: Time| now.duration_since(at).abs() < CONTACT_INTERVAL;
        if runner.contacted_at.is_some_and(is_recent) {
            return false;
        }
        let mut recorded = self.0.lock().expect("nothing panics while holding this");
        if recorded.get(&runner.id).copied().is_some_and(is_recent) {
            return false;
        }
        if recorded.len() >= MAX_CONTACTS {
            recorded.retain(|_, at| is_recent(*at));
        }
        recorded.insert(runner.id, now);
        true
    }
}

/// Records a contact of a runner and the details that it reports, in the background.
pub(crate) fn record_contact(forge: &Forge, runner: &Runner, info: RunnerInfo) {
    let now = forge.now();
    if !forge.shared().job_notifier.contacts.is_due(runner, now) {
        return;
    }
    let (forge, id) = (forge.clone(), runner.id);
    tokio::spawn(async move {
        let record = move |tx: &mut WriteTx<'_>| Ok(store::runners::record_contact(tx.db(), id, &info, now)?);
        if let Err(error) = forge.write(Caller::system(), record).await {
            tracing::warn!(runner = id.get(), %error, "cannot record the contact of a runner");
        }
    });
}

/// Returns the runners of projects in which the caller is a master.
pub fn list_mine(
    tx: &mut ReadTx<'_>,
    scope: &Unvalidated<Option<RunnerScope>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Runner>> {
    tx.authorize(Ability::Browse)?;
    let (now, viewer) = (tx.now(), tx.viewer());
    Ok(store::runners::list(tx.db(), RunnerFilter::OfMaster(&viewer), *scope.validate()?, now, *page.validate()?)?)
}

/// Returns all runners.
pub fn list_all(
    tx: &mut ReadTx<'_>,
    scope: &Unvalidated<Option<RunnerScope>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Runner>> {
    tx.authorize(Ability::ManageServer)?;
    let now = tx.now();
    Ok(store::runners::list(tx.db(), RunnerFilter::All, *scope.validate()?, now, *page.validate()?)?)
}

/// Returns the runners of a project and the shared ones.
pub fn list_of_project(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    scope: &Unvalidated<Option<RunnerScope>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Runner>> {
    let project = tx.project(project, ProjectAbility::AdministerCi)?;
    let now = tx.now();
    let filter = RunnerFilter::AvailableTo(project.id);
    Ok(store::runners::list(tx.db(), filter, *scope.validate()?, now, *page.validate()?)?)
}

/// Returns a runner.
pub fn get(tx: &mut ReadTx<'_>, id: &Unvalidated<RunnerId>) -> Result<RunnerDetail> {
    tx.authorize(Ability::Browse)?;
    let runner = store::runners::by_id(tx.db(), *id.validate()?)?.ok_or(Error::not_found(RESOURCE))?;
    if !runner.is_shared {
        check_manageable(tx, &runner)?;
    }
    detail(tx, runner)
}

/// Updates a runner.
pub fn update(
    tx: &mut WriteTx<'_>,
    id: &Unvalidated<RunnerId>,
    changes: &Unvalidated<RunnerChanges>,
) -> Result<RunnerDetail> {
    tx.authorize(Ability::Browse)?;
    let id = *id.validate()?;
    let runner = store::runners::lock_row(tx.db(), id)?.ok_or(Error::not_found(RESOURCE))?;
    check_can_change(tx.read(), &runner)?;
    let changes = changes.validate()?;
    let mut violations = Violations::new();
    check_lengths(changes.description.as_deref(), changes.tags.as_deref().unwrap_or_default(), &mut violations);
    let tags = changes.tags.as_ref().unwrap_or(&runner.tags);
    check_tags(tags, changes.run_untagged.unwrap_or(runner.run_untagged), &mut violations);
    violations.into_result()?;
    let now = tx.now();
    store::runners::update(tx.db(), id, changes, now)?;
    // Its new tags may match pending jobs.
    tx.notify_runners();
    let runner = store::runners::by_id(tx.db(), id)?.ok_or(Error::not_found(RESOURCE))?;
    detail(tx.read(), runner)
}

/// Deletes a runner.
pub fn delete(tx: &mut WriteTx<'_>, id: &Unvalidated<RunnerId>) -> Result<Runner> {
    tx.authorize(Ability::Browse)?;
    let runner = store::runners::lock_row(tx.db(), *id.validate()?)?.ok_or(Error::not_found(RESOURCE))?;
    check_can_change(tx.read(), &runner)?;
    if !tx.actor().is_admin() && store::runners::count_projects(tx.db(), runner.id)? > 1 {
        return Err(Error::forbidden(
            "The runner is enabled for more than one project; only an administrator can delete it",
        ));
    }
    store::runners::delete(tx.db(), runner.id)?;
    Ok(runner)
}

/// Enables a runner for another project; the caller must be a master in a project that it is already enabled for.
pub fn enable(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<RunnerId>) -> Result<Runner> {
    let project = tx.project(project, ProjectAbility::AdministerCi)?;
    let runner = store::runners::lock_row(tx.db(), *id.validate()?)?.ok_or(Error::not_found(RESOURCE))?;
    if runner.is_shared {
        return Err(Error::forbidden("The runner is shared; it serves every project that uses shared runners"));
    }
    if runner.locked {
        return Err(Error::forbidden("The runner is locked; it cannot be enabled for further projects"));
    }
    check_manageable(tx.read(), &runner)?;
    let now = tx.now();
    if !store::runners::enable_for_project(tx.db(), runner.id, project.id, now)? {
        return Err(Error::Taken("Runner was already enabled for this project".to_owned()));
    }
    tx.notify_runners();
    Ok(runner)
}

/// Checks that a runner is enabled for a project whose CI the caller may administer; others are treated as missing.
pub fn ensure_available_to(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<RunnerId>) -> Result<()> {
    let project = tx.project(project, ProjectAbility::AdministerCi)?;
    let is_enabled = store::runners::is_enabled_for(tx.db(), *id.validate()?, project.id)?;
    if is_enabled { Ok(()) } else { Err(Error::not_found(RESOURCE)) }
}

/// Disables a runner for a project.
pub fn disable(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<RunnerId>) -> Result<Runner> {
    let project = tx.project(project, ProjectAbility::AdministerCi)?;
    let runner = store::runners::lock_row(tx.db(), *id.validate()?)?.ok_or(Error::not_found(RESOURCE))?;
    if !store::runners::is_enabled_for(tx.db(), runner.id, project.id)? {
        return Err(Error::not_found(RESOURCE));
    }
    if store::runners::count_projects(tx.db(), runner.id)? == 1 {
        return Err(Error::forbidden("The runner is enabled for no other project; delete the runner instead"));
    }
    store::runners::disable_for_project(tx.db(), runner.id, project.id)?;
    Ok(runner)
}

/// Returns whether the caller is a master in a project that the runner is enabled for.
fn is_manageable(tx: &mut ReadTx<'_>, runner: &Runner) -> Result<bool> {
    if tx.actor().is_admin() {
        return Ok(true);
    }
    let viewer = tx.viewer();
    Ok(store::runners::is_managed_by(tx.db(), runner.id, &viewer)?)
}

fn check_manageable(tx: &mut ReadTx<'_>, runner: &Runner) -> Result<()> {
    if is_manageable(tx, runner)? {
        return Ok(());
    }
    Err(Error::forbidden("The runner is enabled for no project in which you are a master"))
}

fn check_can_change(tx: &mut ReadTx<'_>, runner: &Runner) -> Result<()> {
    if runner.is_shared && !tx.actor().is_admin() {
        return Err(Error::forbidden("The runner is shared; only an administrator can change it"));
    }
    check_manageable(tx, runner)
}

fn detail(tx: &mut ReadTx<'_>, runner: Runner) -> Result<RunnerDetail> {
    // A caller who may see a specific runner may also change it.
    let shows_token = tx.actor().is_admin() || !runner.is_shared;
    let token = shows_token.then(|| tx.shared().instance_key.runner_token(&runner.seed));
    let viewer = tx.viewer();
    let ids = store::runners::projects_of(tx.db(), runner.id, &viewer)?;
    let mut projects = store::projects::by_ids(tx.db(), &viewer, &ids)?;
    projects.sort_by_key(|project| project.id);
    Ok(RunnerDetail { runner, token, projects })
}
