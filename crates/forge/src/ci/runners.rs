//! Runners: how they join and leave, and who steers them.

use std::{collections::HashMap, sync::Mutex};

use jiff::SignedDuration;
use model::{
    Page, Project, Runner, Slice, Time, Violations,
    projects::Seed,
    runners::{RunnerInfo, RunnerScope},
    tokens::{Digest, Secret},
};
pub use store::runners::RunnerChanges;
use store::runners::{NewRunner, Whose};
use tracing::info;

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, assignments,
};

const WHAT: &str = "Runner";
/// The names of what is made of seeds of the instance.
const REGISTRATION: &str = "registration token";
const BUILT_IN: &str = "built-in runner";
/// How many projects are told apart by their tokens in one transaction.
const DIGESTED_AT_ONCE: i64 = 500;
/// How far what is noted of a runner may lag behind.
const CONTACT_LAG: SignedDuration = SignedDuration::from_secs(30);
/// How many runners are remembered that were heard of lately.
const CONTACTS_KEPT: usize = 10_000;
/// The shortest time to which a runner may limit builds, in seconds.
const SHORTEST_LIMIT: i64 = 600;
const MOST_TAGS: usize = 100;
const LONGEST: usize = 255;

/// What a runner that joins says.
#[derive(Clone, Debug)]
pub struct Registration {
    /// What its owner calls it.
    pub description: String,
    /// Whether it takes builds.
    pub active: bool,
    /// Whether it takes builds without tags.
    pub run_untagged: bool,
    /// Whether it joins no further projects.
    pub locked: bool,
    /// What it has to offer.
    pub tags: Vec<String>,
    /// How many seconds a build of it may take at most.
    pub maximum_timeout: Option<i64>,
    /// What it says about itself.
    pub info: RunnerInfo,
}

/// A runner with what only some may know.
#[derive(Clone, Debug)]
pub struct RunnerDetail {
    /// The runner.
    pub runner: Runner,
    /// Its token, if the caller may know it.
    pub token: Option<Secret>,
    /// The projects that it builds in particular, as far as the caller belongs to them.
    pub projects: Vec<Project>,
}

/// Where a runner that shows a token joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Instance,
    Project(i64),
}

fn fresh_seed(tx: &ReadTx<'_>) -> Seed {
    let mut bytes = vec![0; 16];
    tx.shared().secrets.fill(&mut bytes);
    Seed(bytes)
}

/// The token with which runners join the instance; made when it is first asked for.
pub fn registration_token(tx: &mut WriteTx<'_>) -> Result<Secret> {
    tx.may(Ability::Operate)?;
    let fresh = fresh_seed(tx);
    let seed = store::runners::keep_seed(tx.db(), REGISTRATION, &fresh)?;
    Ok(tx.shared().instance_key.registration_token(&seed))
}

/// Makes another token with which runners join the instance; the one before opens nothing any more. Those that have
/// joined stay.
pub fn reset_registration_token(tx: &mut WriteTx<'_>) -> Result<Secret> {
    tx.may(Ability::Operate)?;
    let seed = fresh_seed(tx);
    store::runners::replace_seed(tx.db(), REGISTRATION, &seed)?;
    Ok(tx.shared().instance_key.registration_token(&seed))
}

/// The token of the runner that is part of the service in this place: a shared one, made once and found again. What it had
/// to do when the service was last killed, it has to do again.
pub async fn own_token(forge: &Forge, place: String) -> Result<Secret> {
    forge
        .write(Caller::system(), move |tx| {
            let fresh = fresh_seed(tx);
            let seed = store::runners::keep_seed(tx.db(), &format!("{BUILT_IN} {place}"), &fresh)?;
            let token = tx.shared().instance_key.runner_token(&seed);
            let Some(runner) = store::runners::by_token(tx.db(), &token.digest())? else {
                let registration = Registration { description: "built-in".to_owned(), ..Registration::default() };
                insert(tx, Home::Instance, &registration, &seed)?;
                return Ok(token);
            };
            let back = assignments::take_all_back(tx, runner.id)?;
            if back > 0 {
                info!(jobs = back, "jobs that were interrupted begin anew");
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

/// Lets a runner join that shows the token of the instance or of a project; answers its number and its own token.
pub async fn register(forge: &Forge, token: &Secret, new: Unvalidated<Registration>) -> Result<(i64, Secret)> {
    let digest = token.digest();
    loop {
        // Looked at first without writing: whoever tries tokens out keeps nobody from writing.
        let (home, missing) = forge.read(Caller::anonymous(), move |tx| look_for_home(tx, &digest)).await?;
        match home {
            Some(_) => break,
            None if missing => forge.write(Caller::system(), digest_projects).await?,
            None => return Err(Error::Forbidden(None)),
        }
    }
    forge
        .write(Caller::anonymous(), move |tx| {
            let home = home_of(tx, &digest)?.ok_or(Error::Forbidden(None))?;
            let new = new.get()?;
            check(new)?;
            let seed = fresh_seed(tx);
            let id = insert(tx, home, new, &seed)?;
            Ok((id, tx.shared().instance_key.runner_token(&seed)))
        })
        .await
}

/// Where a token lets runners join, and whether there are projects of which nobody knows yet how to recognise theirs.
fn look_for_home(tx: &mut ReadTx<'_>, token: &Digest) -> Result<(Option<Home>, bool)> {
    let home = home_of(tx, token)?;
    Ok((home, home.is_none() && !store::runners::undigested(tx.db(), 1)?.is_empty()))
}

fn home_of(tx: &mut ReadTx<'_>, token: &Digest) -> Result<Option<Home>> {
    let seed = store::runners::seed(tx.db(), REGISTRATION)?;
    if seed.is_some_and(|seed| tx.shared().instance_key.registration_token(&seed).digest() == *token) {
        return Ok(Some(Home::Instance));
    }
    let project = store::runners::project_of_token(tx.db(), token)?;
    Ok(project.map(Home::Project))
}

/// Notes of some projects how the token is recognised with which runners join them. It is made of the key of the instance
/// and of a number that a project has only once it is there.
fn digest_projects(tx: &mut WriteTx<'_>) -> Result<()> {
    for (project, seed) in store::runners::undigested(tx.db(), DIGESTED_AT_ONCE)? {
        let digest = tx.shared().instance_key.runners_token(project, &seed).digest();
        store::runners::digest_project(tx.db(), project, &digest)?;
    }
    Ok(())
}

fn insert(tx: &mut WriteTx<'_>, home: Home, new: &Registration, seed: &Seed) -> Result<i64> {
    let now = tx.now();
    let digest = tx.shared().instance_key.runner_token(seed).digest();
    let Registration { description, active, run_untagged, locked, tags, maximum_timeout, info } = new;
    let runner = NewRunner {
        seed,
        digest,
        description,
        active: *active,
        is_shared: home == Home::Instance,
        run_untagged: *run_untagged,
        locked: *locked,
        tags,
        maximum_timeout: *maximum_timeout,
        info,
    };
    let id = store::runners::insert(tx.db(), &runner, now)?;
    if let Home::Project(project) = home {
        store::runners::join(tx.db(), id, project, now)?;
    }
    Ok(id)
}

fn check(new: &Registration) -> Result<()> {
    let mut violations = Violations::new();
    check_texts(Some(&new.description), &new.tags, &mut violations);
    check_tags(&new.tags, new.run_untagged, &mut violations);
    if new.maximum_timeout.is_some_and(|seconds| seconds < SHORTEST_LIMIT) {
        violations.add("maximum_timeout", format!("must be at least {SHORTEST_LIMIT} seconds"));
    }
    Ok(violations.into_result()?)
}

fn check_texts(description: Option<&str>, tags: &[String], violations: &mut Violations) {
    violations.longest("description", description.unwrap_or_default(), LONGEST);
    violations.unless(tags.len() <= MOST_TAGS, "tag_list", format!("is too long (maximum is {MOST_TAGS} tags)"));
    let well_formed = |tag: &String| tag.chars().count() <= LONGEST && !model::text::has_control(tag);
    violations.unless(tags.iter().all(well_formed), "tag_list", "is invalid");
}

/// A runner that wants tags and has none would never get anything to do.
fn check_tags(tags: &[String], run_untagged: bool, violations: &mut Violations) {
    violations.unless(
        run_untagged || !tags.is_empty(),
        "tag_list",
        "can't be empty if the runner takes no builds without tags",
    );
}

/// The runner that shows this token.
pub(crate) fn shown(tx: &mut ReadTx<'_>, token: &Digest) -> Result<Runner> {
    store::runners::by_token(tx.db(), token)?.ok_or(Error::Forbidden(None))
}

/// Tells a runner whether its token is good, and who it is.
pub async fn verify(forge: &Forge, token: &Secret) -> Result<i64> {
    let digest = token.digest();
    let runner = forge.read_inline(Caller::anonymous(), move |tx| shown(tx, &digest)).await?;
    note_contact(forge, &runner, RunnerInfo::default());
    Ok(runner.id)
}

/// Lets a runner leave that shows its token.
pub async fn unregister(forge: &Forge, token: &Secret) -> Result<()> {
    let digest = token.digest();
    forge.read_inline(Caller::anonymous(), move |tx| shown(tx, &digest).map(drop)).await?;
    forge
        .write(Caller::anonymous(), move |tx| {
            let runner = shown(tx, &digest)?;
            store::runners::delete(tx.db(), runner.id)?;
            Ok(())
        })
        .await
}

/// When runners were last written down to be heard of; they ask all the time, and nobody wants to know it that well.
#[derive(Default)]
pub(crate) struct Contacts(Mutex<HashMap<i64, Time>>);

impl Contacts {
    /// Whether it is time to write down that a runner was heard of.
    fn are_due(&self, runner: &Runner, now: Time) -> bool {
        let fresh = |at: Time| now.duration_since(at).abs() < CONTACT_LAG;
        if runner.contacted_at.is_some_and(fresh) {
            return false;
        }
        let mut noted = self.0.lock().expect("nothing panics while holding this");
        if noted.get(&runner.id).copied().is_some_and(fresh) {
            return false;
        }
        if noted.len() >= CONTACTS_KEPT {
            noted.retain(|_, at| fresh(*at));
        }
        noted.insert(runner.id, now);
        true
    }
}

/// Notes that a runner was heard of and what it says about itself, beside whatever it asked for.
pub(crate) fn note_contact(forge: &Forge, runner: &Runner, info: RunnerInfo) {
    let now = forge.now();
    if !forge.shared().board.contacts.are_due(runner, now) {
        return;
    }
    let (forge, id) = (forge.clone(), runner.id);
    tokio::spawn(async move {
        let note = move |tx: &mut WriteTx<'_>| Ok(store::runners::note_contact(tx.db(), id, &info, now)?);
        if let Err(error) = forge.write(Caller::system(), note).await {
            tracing::warn!(runner = id, %error, "cannot write down when a runner was last heard of");
        }
    });
}

/// The runners of projects of which the caller is a master.
pub fn list_mine(
    tx: &mut ReadTx<'_>,
    scope: &Unvalidated<Option<RunnerScope>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Runner>> {
    tx.may(Ability::Browse)?;
    let (now, viewer) = (tx.now(), tx.viewer());
    Ok(store::runners::list(tx.db(), Whose::Of(&viewer), *scope.get()?, now, *page.get()?)?)
}

/// All runners.
pub fn list_all(
    tx: &mut ReadTx<'_>,
    scope: &Unvalidated<Option<RunnerScope>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Runner>> {
    tx.may(Ability::Operate)?;
    let now = tx.now();
    Ok(store::runners::list(tx.db(), Whose::Everybodys, *scope.get()?, now, *page.get()?)?)
}

/// The runners of a project, and the shared ones.
pub fn list_of_project(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    scope: &Unvalidated<Option<RunnerScope>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Runner>> {
    let project = tx.open(project, ProjectAbility::AdministerBuilds)?;
    let now = tx.now();
    Ok(store::runners::list(tx.db(), Whose::OfProject(project.id), *scope.get()?, now, *page.get()?)?)
}

/// One runner.
pub fn get(tx: &mut ReadTx<'_>, id: &Unvalidated<i64>) -> Result<RunnerDetail> {
    tx.may(Ability::Browse)?;
    let runner = store::runners::by_id(tx.db(), *id.get()?)?.ok_or(Error::not_found(WHAT))?;
    if !runner.is_shared {
        check_reach(tx, &runner)?;
    }
    detail(tx, runner)
}

/// Changes a runner.
pub fn update(
    tx: &mut WriteTx<'_>,
    id: &Unvalidated<i64>,
    changes: &Unvalidated<RunnerChanges>,
) -> Result<RunnerDetail> {
    tx.may(Ability::Browse)?;
    let id = *id.get()?;
    let runner = store::runners::hold(tx.db(), id)?.ok_or(Error::not_found(WHAT))?;
    check_steering(tx, &runner)?;
    let changes = changes.get()?;
    let mut violations = Violations::new();
    check_texts(changes.description.as_deref(), changes.tags.as_deref().unwrap_or_default(), &mut violations);
    let tags = changes.tags.as_ref().unwrap_or(&runner.tags);
    check_tags(tags, changes.run_untagged.unwrap_or(runner.run_untagged), &mut violations);
    violations.into_result()?;
    let now = tx.now();
    store::runners::update(tx.db(), id, changes, now)?;
    // It may suit jobs now that it did not suit before.
    tx.call_runners();
    let runner = store::runners::by_id(tx.db(), id)?.ok_or(Error::not_found(WHAT))?;
    detail(tx, runner)
}

/// Removes a runner.
pub fn delete(tx: &mut WriteTx<'_>, id: &Unvalidated<i64>) -> Result<Runner> {
    tx.may(Ability::Browse)?;
    let runner = store::runners::hold(tx.db(), *id.get()?)?.ok_or(Error::not_found(WHAT))?;
    check_steering(tx, &runner)?;
    if !tx.actor().is_admin() && store::runners::count_projects(tx.db(), runner.id)? > 1 {
        return Err(Error::forbidden("The runner builds more than one project; only an administrator can remove it."));
    }
    store::runners::delete(tx.db(), runner.id)?;
    Ok(runner)
}

/// Lets a runner build another project: one that builds a project of which the caller is a master, too.
pub fn enable(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<Runner> {
    let project = tx.open(project, ProjectAbility::AdministerBuilds)?;
    let runner = store::runners::hold(tx.db(), *id.get()?)?.ok_or(Error::not_found(WHAT))?;
    if runner.is_shared {
        return Err(Error::forbidden("The runner is shared; it builds every project that wants shared runners."));
    }
    if runner.locked {
        return Err(Error::forbidden("The runner is locked; it builds no further projects."));
    }
    check_reach(tx, &runner)?;
    let now = tx.now();
    if !store::runners::join(tx.db(), runner.id, project.id, now)? {
        return Err(Error::Taken("Runner was already enabled for this project".to_owned()));
    }
    tx.call_runners();
    Ok(runner)
}

/// Lets a runner no longer build a project.
pub fn disable(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<Runner> {
    let project = tx.open(project, ProjectAbility::AdministerBuilds)?;
    let runner = store::runners::hold(tx.db(), *id.get()?)?.ok_or(Error::not_found(WHAT))?;
    if !store::runners::builds(tx.db(), runner.id, project.id)? {
        return Err(Error::not_found(WHAT));
    }
    if store::runners::count_projects(tx.db(), runner.id)? == 1 {
        return Err(Error::forbidden("The runner builds no other project; remove the runner itself instead."));
    }
    store::runners::leave(tx.db(), runner.id, project.id)?;
    Ok(runner)
}

/// Whether the caller has to do with a specific runner.
fn can_reach(tx: &mut ReadTx<'_>, runner: &Runner) -> Result<bool> {
    if tx.actor().is_admin() {
        return Ok(true);
    }
    let viewer = tx.viewer();
    Ok(store::runners::is_reachable(tx.db(), runner.id, &viewer)?)
}

fn check_reach(tx: &mut ReadTx<'_>, runner: &Runner) -> Result<()> {
    if can_reach(tx, runner)? {
        return Ok(());
    }
    Err(Error::forbidden("The runner builds no project of which you are a master."))
}

fn check_steering(tx: &mut ReadTx<'_>, runner: &Runner) -> Result<()> {
    if runner.is_shared && !tx.actor().is_admin() {
        return Err(Error::forbidden("The runner is shared; only an administrator can change it."));
    }
    check_reach(tx, runner)
}

fn detail(tx: &mut ReadTx<'_>, runner: Runner) -> Result<RunnerDetail> {
    // Whoever gets here with a specific one may steer it.
    let may_know = tx.actor().is_admin() || !runner.is_shared;
    let token = may_know.then(|| tx.shared().instance_key.runner_token(&runner.seed));
    let viewer = tx.viewer();
    let ids = store::runners::projects_of(tx.db(), runner.id, &viewer)?;
    let mut projects = store::projects::among(tx.db(), &viewer, &ids)?;
    projects.sort_by_key(|project| project.id);
    Ok(RunnerDetail { runner, token, projects })
}
