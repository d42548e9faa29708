//! Repositories as the transports of git see them.

use std::{
    collections::HashSet,
    process::Command,
    sync::{Arc, OnceLock},
};

pub use git::{ChildLimits, Quarantine as Incoming, Ref, Refs, stand_back};
use model::{Oid, Project, RefName, StorageId};

pub use crate::pushes::{Push, RefOutcome};
use crate::{
    Actor, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, pushes,
    sessions::{self, PasswordLogin},
};

/// What a client wants of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// To have what is in it.
    Fetch,
    /// To put something into it.
    Push,
}

/// A repository that was opened for a service.
pub struct Hosted {
    forge: Forge,
    project: i64,
    storage: StorageId,
    full_path: String,
    opened_by: String,
    refs: Arc<Refs>,
    /// What the refs lead to, once somebody has asked for it.
    tips: OnceLock<HashSet<Oid>>,
    /// The commit that a job is about which asks for its own project.
    job_commit: Option<Oid>,
}

/// Somebody who holds an SSH key.
pub struct KeyHolder {
    /// What the key proves, once its holder has signed with it.
    pub caller: Caller,
    /// Whom it belongs to.
    pub name: String,
}

/// Opens the repository of a project, if the caller may have the service.
pub async fn open(forge: &Forge, caller: Caller, project: ProjectRef, service: Service) -> Result<Hosted> {
    let own = forge.clone();
    forge
        .read(caller, move |tx| {
            let project = open_project(tx, &project, service)?;
            let refs = tx.repository(&project)?.map_or_else(|| Ok(no_refs()), |repository| repository.refs())?;
            let job_commit = match tx.actor() {
                Actor::Job { project: own, pipeline, .. } if *own == project.id => Some(*pipeline),
                _ => None,
            };
            let job_commit = job_commit.map(|pipeline| store::pipelines::by_id(tx.db(), pipeline)).transpose()?;
            let job_commit = job_commit.flatten().map(|pipeline| pipeline.sha);
            let (full_path, opened_by, storage) = (project.full_path(), describe(tx.actor()), project.storage);
            let (forge, project, tips) = (own.clone(), project.id, OnceLock::new());
            Ok(Hosted { forge, project, storage, full_path, opened_by, refs, tips, job_commit })
        })
        .await
}

/// Who somebody is, for the log.
fn describe(actor: &Actor) -> String {
    match actor {
        Actor::Anonymous => "anonymous".to_owned(),
        Actor::User { user, .. } => format!("user {}", user.username),
        Actor::DeployKey { title, .. } => format!("deploy key {title}"),
        Actor::Job { user: Some(user), .. } => format!("a job of user {}", user.username),
        Actor::Job { user: None, .. } => "a job".to_owned(),
        Actor::System => "the server itself".to_owned(),
    }
}

/// The refs of an empty repository: whoever clones it now begins with the branch that will be the default.
fn no_refs() -> Arc<Refs> {
    let mut refs = Refs::default();
    refs.head = RefName::branch("master");
    Arc::new(refs)
}

fn open_project(tx: &mut ReadTx<'_>, project: &ProjectRef, service: Service) -> Result<Project> {
    let project = tx.open(project, ProjectAbility::DownloadCode).map_err(|error| match error {
        Error::Forbidden(None) => Error::forbidden("You are not allowed to download code from this project."),
        other => other,
    })?;
    if service == Service::Push {
        tx.may_to(&project, ProjectAbility::PushCode).map_err(|error| match error {
            Error::Forbidden(None) => Error::forbidden("You are not allowed to push code to this project."),
            other => other,
        })?;
    }
    Ok(project)
}

impl Hosted {
    /// Number of the project.
    pub fn project_id(&self) -> i64 {
        self.project
    }

    /// The path under which the project is found.
    pub fn full_path(&self) -> &str {
        &self.full_path
    }

    /// Who has opened it, for the log.
    pub fn opened_by(&self) -> &str {
        &self.opened_by
    }

    /// The refs as they were when it was opened.
    pub fn refs(&self) -> &Arc<Refs> {
        &self.refs
    }

    /// One of these objects that a client may not have by its id: nothing that it sees leads there. A job may also have
    /// the commit that it is about, which may have been taken off its branch since.
    pub async fn find_unreachable(&self, wanted: Vec<Oid>) -> Result<Option<Oid>> {
        let tips = self
            .tips
            .get_or_init(|| self.refs.iter().flat_map(|found| [Some(found.target), found.peeled]).flatten().collect());
        let may_have = |id: &Oid| tips.contains(id) || self.job_commit == Some(*id);
        let mut doubtful: Vec<Oid> = wanted.into_iter().filter(|id| !may_have(id)).collect();
        // A client may ask for one object a million times.
        doubtful.sort_unstable();
        doubtful.dedup();
        if doubtful.is_empty() {
            return Ok(None);
        }
        let (repositories, storage) = (self.forge.shared().repositories.clone(), self.storage.clone());
        // Goes with this future, and so tells the thread that nobody waits for its answer any more.
        let awaited = Arc::new(());
        let waiting = Arc::downgrade(&awaited);
        let search = move || {
            let Some(repository) = repositories.find(&storage)? else { return Ok(doubtful.first().copied()) };
            Ok(repository.first_unreachable(&doubtful)?)
        };
        let is_alone = move || waiting.strong_count() == 0;
        let found = pushes::blocking(move || git::with_cancellation(is_alone, search)).await;
        drop(awaited);
        found
    }

    /// The program that sends what a client asks for.
    pub fn upload_pack(&self, protocol: Option<&str>, stateless: bool) -> Command {
        self.forge.shared().repositories.upload_pack(&self.storage, protocol, stateless)
    }

    /// The program that sends an archive.
    pub fn upload_archive(&self) -> Command {
        self.forge.shared().repositories.upload_archive(&self.storage)
    }

    /// A place for what a client is about to send.
    pub fn receive(&self) -> Result<Incoming> {
        pushes::incoming(&self.forge, &self.storage)
    }
}

/// Changes refs as a client of git wants it.
pub async fn push(forge: &Forge, caller: Caller, project: i64, push: Push) -> Result<Vec<RefOutcome>> {
    pushes::push(forge, caller, project, push, pushes::Via::Push).await
}

/// The name under which jobs show their token.
const JOB: &str = "gitlab-ci-token";

/// Who somebody is who shows a name and a password: an access token counts as a password, with whatever name, and so does
/// the token of a job under the name of all jobs.
pub async fn sign_in(forge: &Forge, user: &str, password: &str) -> Result<Caller> {
    if user == JOB {
        let job = Caller::with_job_token(password);
        let runs = |tx: &mut ReadTx<'_>| Ok(matches!(tx.actor(), Actor::Job { .. }));
        return if forge.read_inline(job.clone(), runs).await? { Ok(job) } else { Err(Error::Unauthenticated) };
    }
    let by_token = Caller::with_tokens([password]);
    if forge.read_inline(by_token.clone(), |tx| Ok(tx.actor().user().is_some())).await? {
        return Ok(by_token);
    }
    if user.is_empty() || password.is_empty() {
        return Err(Error::Unauthenticated);
    }
    let credentials = Unvalidated::good(PasswordLogin { login: user.to_owned(), password: password.to_owned() });
    let signed_in = forge.run_blocking(Caller::anonymous(), move |tx| sessions::check(tx, &credentials)).await?;
    Ok(signed_in.caller())
}

/// Whom an SSH key belongs to; its public half is given as OpenSSH writes it.
pub async fn key_holder(forge: &Forge, public_key: &str) -> Result<KeyHolder> {
    let fingerprint = model::keys::fingerprint(public_key).ok_or(Error::Unauthenticated)?;
    let caller = Caller::with_ssh_key(fingerprint);
    let name = forge.read_inline(caller.clone(), |tx| tx.actor().name().ok_or(Error::Unauthenticated)).await?;
    Ok(KeyHolder { caller, name })
}
