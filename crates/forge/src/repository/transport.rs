//! Repositories for git's transports, HTTP and SSH.

use std::{process::Command, sync::Arc};

use git::FolderGuard;
pub use git::{ChildLimits, Quarantine, Ref, Refs, WholePack, lower_priority};
use model::{Oid, Project, ProjectId, RefName, StorageId};
use store::{packs::PackRecord, repositories::RepositoryRecord};

pub use crate::pushes::{Push, RefOutcome};
use crate::{
    Actor, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, blocking, pushes,
    sessions::{self, PasswordLogin},
};

/// A service of git's wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Upload-pack and upload-archive.
    Fetch,
    /// Receive-pack.
    Push,
}

/// A repository opened for a service. Its folder stays in the cache as long as this value.
pub struct OpenRepository {
    forge: Forge,
    project: ProjectId,
    storage: StorageId,
    full_path: String,
    opened_by: String,
    refs: Arc<Refs>,
    /// The commit of the CI job that opened its own project.
    job_commit: Option<Oid>,
    /// Git programs read the folder.
    _folder: FolderGuard,
}

/// The holder of an SSH key.
pub struct KeyHolder {
    /// The caller, to be used once the client has proven possession of the key.
    pub caller: Caller,
    /// The name of the user or deploy key.
    pub name: String,
}

/// Opens the repository of a project, if the caller may use the service.
pub async fn open(forge: &Forge, caller: Caller, project: ProjectRef, service: Service) -> Result<OpenRepository> {
    let forge_handle = forge.clone();
    forge
        .read(caller, move |tx| {
            let project = open_project(tx, &project, service)?;
            let folder = tx.shared().repositories.guard(&project.storage);
            let refs = tx.repository(&project)?.map_or_else(empty_refs, |repository| Arc::clone(repository.refs()));
            let job_commit = match tx.actor() {
                Actor::Job { project: job_project, pipeline, .. } if *job_project == project.id => Some(*pipeline),
                _ => None,
            };
            let job_commit = job_commit.map(|pipeline| store::pipelines::by_id(tx.db(), pipeline)).transpose()?;
            let job_commit = job_commit.flatten().map(|pipeline| pipeline.sha);
            let (full_path, opened_by, storage) = (project.full_path(), actor_label(tx.actor()), project.storage);
            let (forge, project) = (forge_handle.clone(), project.id);
            Ok(OpenRepository { forge, project, storage, full_path, opened_by, refs, job_commit, _folder: folder })
        })
        .await
}

/// Describes an actor for the log.
fn actor_label(actor: &Actor) -> String {
    match actor {
        Actor::Anonymous => "anonymous".to_owned(),
        Actor::User { user, .. } => format!("user {}", user.username),
        Actor::DeployKey { title, .. } => format!("deploy key {title}"),
        Actor::Job { user: Some(user), .. } => format!("a job of user {}", user.username),
        Actor::Job { user: None, .. } => "a job".to_owned(),
        Actor::System => "the server itself".to_owned(),
    }
}

/// Returns the refs of an empty repository: HEAD names the future default branch, so that clones start with it.
fn empty_refs() -> Arc<Refs> {
    let mut refs = Refs::default();
    refs.head = RefName::branch("master");
    Arc::new(refs)
}

fn open_project(tx: &mut ReadTx<'_>, project: &ProjectRef, service: Service) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::DownloadCode).map_err(|error| match error {
        Error::Forbidden(None) => Error::forbidden("You are not allowed to download code from this project."),
        other => other,
    })?;
    if service == Service::Push {
        tx.authorize_project(&project, ProjectAbility::PushCode).map_err(|error| match error {
            Error::Forbidden(None) => Error::forbidden("You are not allowed to push code to this project."),
            other => other,
        })?;
    }
    Ok(project)
}

impl OpenRepository {
    /// Returns the id of the project.
    pub fn project_id(&self) -> ProjectId {
        self.project
    }

    /// Returns the full path of the project.
    pub fn full_path(&self) -> &str {
        &self.full_path
    }

    /// Describes the actor that opened the repository, for the log.
    pub fn opened_by(&self) -> &str {
        &self.opened_by
    }

    /// Returns the refs at the time of opening.
    pub fn refs(&self) -> &Arc<Refs> {
        &self.refs
    }

    /// Returns one of the objects that is not reachable from a visible ref. The commit of the CI job counts as reachable, since
    /// its branch may have been changed meanwhile.
    pub async fn find_unreachable(&self, wanted: Vec<Oid>) -> Result<Option<Oid>> {
        let targets = self.refs.targets();
        let may_have = |id: &Oid| targets.binary_search(id).is_ok() || self.job_commit == Some(*id);
        let mut unknown: Vec<Oid> = wanted.into_iter().filter(|id| !may_have(id)).collect();
        // A client may request the same object many times.
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(None);
        }
        let (repositories, storage) = (self.forge.shared().repositories.clone(), self.storage.clone());
        let refs = Arc::clone(&self.refs);
        if refs.generation == 0 {
            // There is no repository.
            return Ok(unknown.first().copied());
        }
        // Dropped with this future, which cancels the search on the blocking thread.
        let alive = Arc::new(());
        let waiting = Arc::downgrade(&alive);
        let search = move || Ok(repositories.open(&storage, refs)?.first_unreachable(&unknown)?);
        let is_abandoned = move || waiting.strong_count() == 0;
        let found = blocking::spawn(move || git::with_cancellation(is_abandoned, search)).await;
        drop(alive);
        found
    }

    /// Returns all objects as one pack, without a git process; `None` if the packs also have objects that are not reachable
    /// from the refs at the time of opening, or cannot be joined.
    pub async fn whole_pack(&self) -> Result<Option<WholePack>> {
        let (project, storage, generation) = (self.project, self.storage.clone(), self.refs.generation);
        let list_packs = move |tx: &mut ReadTx<'_>| {
            let found = tx.find_repository(project)?;
            let is_suitable =
                |record: &RepositoryRecord| record.generation == generation && record.unreachable_since.is_none();
            let Some(record) = found.filter(is_suitable) else { return Ok(None) };
            // Links the packs.
            tx.open_repository(&record, &storage)?;
            let packs = store::packs::of_repository(tx.db(), record.id)?;
            let has_reachable = |pack: &&PackRecord| pack.dead_since.is_none() && pack.unreachable_since.is_none();
            let mut checksums: Vec<Oid> = packs.iter().filter(has_reachable).map(|pack| pack.checksum).collect();
            checksums.sort_unstable();
            checksums.dedup();
            Ok(Some(checksums))
        };
        let Some(checksums) = self.forge.read(Caller::system(), list_packs).await? else { return Ok(None) };
        let (repositories, storage) = (self.forge.shared().repositories.clone(), self.storage.clone());
        blocking::spawn(move || Ok(repositories.whole_pack(&storage, &checksums)?)).await
    }

    /// Returns the command of upload-pack.
    pub async fn upload_pack(&self, protocol: Option<&str>, stateless: bool) -> Result<Command> {
        self.write_refs().await?;
        Ok(self.forge.shared().repositories.upload_pack(&self.storage, protocol, stateless)?)
    }

    /// Returns the command of upload-archive.
    pub async fn upload_archive(&self) -> Result<Command> {
        self.write_refs().await?;
        Ok(self.forge.shared().repositories.upload_archive(&self.storage)?)
    }

    /// Writes the refs for git programs.
    async fn write_refs(&self) -> Result<()> {
        if self.refs.generation == 0 {
            return Ok(());
        }
        let (repositories, storage, refs) =
            (self.forge.shared().repositories.clone(), self.storage.clone(), Arc::clone(&self.refs));
        blocking::spawn(move || Ok(repositories.write_refs(&storage, &refs)?)).await
    }

    /// Creates a quarantine, and the process that receives a pack of at most `max_size` bytes in it.
    pub fn receive(&self, max_size: Option<u64>) -> Result<(Quarantine, Command)> {
        let incoming = pushes::create_quarantine(&self.forge, &self.storage)?;
        let command = self.forge.record_if_disk_full(incoming.index_pack(max_size).map_err(Error::from))?;
        Ok((incoming, command))
    }
}

/// Pushes on behalf of a git client.
pub async fn push(forge: &Forge, caller: Caller, project: ProjectId, push: Push) -> Result<Vec<RefOutcome>> {
    pushes::push(forge, caller, project, push, pushes::PushSource::Git).await
}

/// The user name with which CI jobs present their token.
const JOB_USER: &str = "gitlab-ci-token";

/// Authenticates a user name and password. The password may be an access token, with any user name, or a CI job token with the
/// user name of jobs.
pub async fn sign_in(forge: &Forge, user: &str, password: &str) -> Result<Caller> {
    if user == JOB_USER {
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
    let credentials = Unvalidated::valid(PasswordLogin { login: user.to_owned(), password: password.to_owned() });
    let signed_in =
        forge.run_blocking(Caller::anonymous(), move |cx| sessions::verify_password(cx, &credentials)).await?;
    Ok(signed_in.caller())
}

/// Finds the holder of an SSH key, given as a public key in OpenSSH format.
pub async fn key_holder(forge: &Forge, public_key: &str) -> Result<KeyHolder> {
    let fingerprint = model::keys::fingerprint(public_key).ok_or(Error::Unauthenticated)?;
    let caller = Caller::with_ssh_key(fingerprint);
    let name = forge.read_inline(caller.clone(), |tx| tx.actor().name().ok_or(Error::Unauthenticated)).await?;
    Ok(KeyHolder { caller, name })
}
