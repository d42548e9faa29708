//! Artifacts: files uploaded by jobs for other jobs and for users.
//!
//! To remove an artifact, it is first made to expire; a sweep deletes it if the removal is interrupted.

use std::{ops::Range, result::Result as StdResult};

use bytes::Bytes;
use ci::ArtifactAccess;
use files::Content;
use futures_util::Stream;
use jiff::SignedDuration;
use model::{ArtifactId, Job, JobId, ProjectId, RefName, Role, Status, StorageId, Time, uploads::clean_name};
use store::Conn;
pub use store::artifacts::Artifact;
use tracing::{info, warn};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    stored_files::{self, BATCH, StoredFile},
    traces::{self, JobCredentials},
    uploads::UploadError,
};

/// A file to upload.
#[derive(Clone, Debug)]
pub struct NewArtifact {
    /// The file name sent by the runner.
    pub name: String,
    /// `archive`, or another type sent by the runner.
    pub kind: String,
    /// The lifetime, such as `2 days`; if absent, that of the job specification.
    pub expire_in: Option<String>,
}

/// The maximum number of files of a job, including replaced ones that are not removed yet.
const MAX_FILES: i64 = 20;

/// Receives a file from a running job; it replaces an earlier file of the same kind.
pub async fn receive<E: Send + 'static>(
    forge: &Forge,
    job: JobId,
    credentials: JobCredentials,
    new: Unvalidated<NewArtifact>,
    content: impl Stream<Item = StdResult<Bytes, E>> + Send + 'static,
    max_bytes: u64,
) -> StdResult<Artifact, UploadError<E>> {
    let forge = forge.clone();
    // In a task of its own, so that a disconnecting client does not prevent the clean-up.
    let task = tokio::spawn(async move {
        forge.require_free_space()?;
        let (presented, metadata) = (credentials.clone(), new.clone());
        let begin = move |tx: &mut WriteTx<'_>| Ok((begin(tx, job, &presented, &metadata)?, tx.now()));
        let (incomplete, begun_at) = forge.write(Caller::system(), begin).await?;
        let storage = forge.storage_of(incomplete.project).await?;
        let result = match stored_files::write(&forge, &incomplete.key(&storage), max_bytes, content).await {
            Ok(size) => {
                let incomplete = incomplete.clone();
                let complete = move |tx: &mut WriteTx<'_>| {
                    stored_files::check_not_abandoned(tx, begun_at)?;
                    complete(tx, &incomplete, &credentials, &new, size)
                };
                forge.write(Caller::system(), complete).await.map_err(UploadError::Forge)
            }
            Err(error) => Err(error),
        };
        if result.as_ref().is_err_and(stored_files::is_certainly_unfinished)
            && let Err(error) = stored_files::remove(&forge, &[incomplete]).await
        {
            warn!(build.id = job.get(), %error, "cannot remove an incomplete artifact; it will be swept later");
        }
        result
    });
    task.await.unwrap_or_else(|error| Err(Error::internal("an artifact", error).into()))
}

fn begin(
    tx: &mut WriteTx<'_>,
    job: JobId,
    credentials: &JobCredentials,
    new: &Unvalidated<NewArtifact>,
) -> Result<Artifact> {
    let run = find_running(tx.read(), job, credentials)?;
    let (new, now) = (new.validate()?, tx.now());
    // Limited, because every script of the job knows its token and each file may be large.
    if store::artifacts::count_for_job(tx.db(), job)? >= MAX_FILES {
        return Err(Error::Refused(format!("A job may upload {MAX_FILES} files at most, including replaced ones")));
    }
    Ok(store::artifacts::insert(tx.db(), run.project, job, &new.kind, &clean_name(&new.name), now)?)
}

/// Completes an upload. Checks the job again, because it may have ended meanwhile.
fn complete(
    tx: &mut WriteTx<'_>,
    incomplete: &Artifact,
    credentials: &JobCredentials,
    new: &Unvalidated<NewArtifact>,
    size: u64,
) -> Result<Artifact> {
    find_running(tx.read(), incomplete.job, credentials)?;
    let now = tx.now();
    let spec = store::job_runs::spec_of(tx.db(), incomplete.job)?.and_then(|spec| ci::JobSpec::from_json(&spec));
    let expire_in = spec.and_then(|spec| spec.artifacts).and_then(|artifacts| artifacts.expire_in);
    let expire_in = new.validate()?.expire_in.clone().or(expire_in);
    let expires_at = expire_in.and_then(|expire_in| parse_expiry(&expire_in, now));
    store::artifacts::complete(tx.db(), incomplete, size, expires_at, now)?.ok_or_else(|| Error::not_found("Artifact"))
}

/// Returns when an artifact expires; `None` (never) if the lifetime cannot be parsed.
fn parse_expiry(expire_in: &str, now: Time) -> Option<Time> {
    match ci::durations::parse_lifetime(expire_in)? {
        ci::durations::Lifetime::Never => None,
        ci::durations::Lifetime::Seconds(seconds) => {
            now.checked_add(SignedDuration::from_secs(i64::try_from(seconds).ok()?)).ok()
        }
    }
}

fn find_running(tx: &mut ReadTx<'_>, job: JobId, credentials: &JobCredentials) -> Result<store::job_runs::JobRun> {
    let run = traces::find_authorized(tx, job, credentials)?;
    if run.status == Status::Running { Ok(run) } else { Err(Error::forbidden("Job is not running")) }
}

/// Opens the archive of a job for a running job of the same pipeline, or with the registration token of the project if the
/// credentials allow that.
pub fn open_for_job(tx: &mut ReadTx<'_>, job: JobId, credentials: &JobCredentials) -> Result<Artifact> {
    check_read_access(tx, job, credentials)?;
    archive_of(tx, job)
}

/// Removes the artifacts of a job, with its own token while it is running or with the registration token of the project.
pub async fn delete_for_job(forge: &Forge, job: JobId, credentials: JobCredentials) -> Result<Job> {
    let expire = move |tx: &mut WriteTx<'_>| {
        let run = traces::find_authorized(tx.read(), job, &credentials)?;
        // A job token is invalid once the job has ended; that of the project is not.
        let (JobCredentials::Job(tokens) | JobCredentials::JobOrProject(tokens) | JobCredentials::Runner(tokens)) =
            &credentials;
        if run.status != Status::Running && tokens.iter().any(|token| run.has_token(token)) {
            return Err(Error::forbidden("Job is not running"));
        }
        let now = tx.now();
        let expired = store::artifacts::expire_all_of_job(tx.db(), job, now)?;
        Ok((traces::load_job(tx.read(), job)?, expired))
    };
    let (job, expired) = forge.write(Caller::system(), expire).await?;
    remove_expired(forge, &expired).await;
    Ok(job)
}

fn check_read_access(tx: &mut ReadTx<'_>, job: JobId, credentials: &JobCredentials) -> Result<()> {
    let not_found = || Error::NotFound(None);
    let run = store::job_runs::find(tx.db(), job)?.ok_or_else(not_found)?;
    let project = tx.project_as_system(&ProjectRef::Id(run.project), ProjectAbility::ReadProject)?;
    let (tokens, of_project) = match credentials {
        JobCredentials::Job(tokens) | JobCredentials::Runner(tokens) => (tokens, None),
        JobCredentials::JobOrProject(tokens) => {
            (tokens, Some(tx.shared().instance_key.runners_token(project.id, &project.runners_seed).digest()))
        }
    };
    if of_project.is_some_and(|token| tokens.contains(&token)) {
        return Ok(());
    }
    for token in tokens {
        let job = store::job_runs::running_by_token(tx.db(), token)?;
        if job.is_some_and(|job| job.pipeline == run.pipeline) {
            // The user who started the job may have lost access to the project since.
            return tx.project_as_job(token, &ProjectRef::Id(run.project), ProjectAbility::ReadJobs).map(drop);
        }
    }
    Err(Error::Forbidden(None))
}

/// Opens the archive of a job that the caller may read.
pub fn open(tx: &mut ReadTx<'_>, project: &ProjectRef, job: &Unvalidated<JobId>) -> Result<Artifact> {
    let project = tx.project(project, ProjectAbility::ReadJobs)?;
    let run = traces::find_in_project(tx, project.id, *job.validate()?)?;
    open_of_job(tx, &project, run.job)
}

/// Opens the archive of a job in the newest successful pipeline of a branch, or else of a tag, that has the job. A tag is
/// not used if the branch exists, nor a deleted branch if the tag exists.
pub fn open_by_ref(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    ref_name: &str,
    job_name: &Unvalidated<String>,
) -> Result<Artifact> {
    let project = tx.project(project, ProjectAbility::ReadJobs)?;
    let job_name = job_name.validate()?;
    let refs = tx.refs(&project)?;
    let exists = |name: Option<RefName>| name.is_some_and(|name| refs.find(&name).is_some());
    let are_tags: &[bool] = if exists(RefName::branch(ref_name)) {
        &[false]
    } else if exists(RefName::tag(ref_name)) {
        &[true]
    } else {
        &[false, true]
    };
    for is_tag in are_tags {
        if let Some(job) = store::artifacts::latest_job_for_ref(tx.db(), project.id, ref_name, *is_tag, job_name)? {
            return open_of_job(tx, &project, job);
        }
    }
    Err(Error::NotFound(None))
}

/// Opens the archive of a job, if its CI file allows the role of the caller to read it. The caller checks permissions.
pub(crate) fn open_of_job(tx: &mut ReadTx<'_>, project: &model::Project, job: JobId) -> Result<Artifact> {
    let spec = store::job_runs::spec_of(tx.db(), job)?.and_then(|spec| ci::JobSpec::from_json(&spec));
    let access = spec.and_then(|spec| spec.artifacts).and_then(|artifacts| artifacts.access);
    let role = tx.project_role(project);
    let is_allowed = match access {
        None | Some(ArtifactAccess::All) => true,
        Some(ArtifactAccess::Developer) => role >= Some(Role::Developer),
        Some(ArtifactAccess::Maintainer) => role >= Some(Role::Master),
        Some(ArtifactAccess::Nobody) => false,
    };
    if is_allowed { archive_of(tx, job) } else { Err(Error::Forbidden(None)) }
}

fn archive_of(tx: &mut ReadTx<'_>, job: JobId) -> Result<Artifact> {
    let now = tx.now();
    store::artifacts::archive_of(tx.db(), job, now)?.ok_or(Error::NotFound(None))
}

/// Removes the expiry of the archive of a job.
pub fn keep(tx: &mut WriteTx<'_>, project: &ProjectRef, job: &Unvalidated<JobId>) -> Result<Job> {
    let project = tx.project(project, ProjectAbility::RunPipelines)?;
    let run = traces::find_in_project(tx.read(), project.id, *job.validate()?)?;
    let artifact = archive_of(tx.read(), run.job)?;
    store::artifacts::keep(tx.db(), artifact.id)?;
    traces::load_job(tx.read(), run.job)
}

/// Returns the bytes of a file, or a range of them.
pub async fn read(forge: &Forge, artifact: &Artifact, range: Option<Range<u64>>) -> Result<Content> {
    let storage = forge.storage_of(artifact.project).await?;
    let content = forge.shared().files.read(&artifact.key(&storage), range).await?;
    // Removed meanwhile.
    let content = content.ok_or(Error::NotFound(None))?;
    if Some(content.size) != artifact.size {
        let unexpected = format!("the file of artifact {} has {} bytes", artifact.id, content.size);
        return Err(Error::Internal(unexpected.into()));
    }
    Ok(content)
}

/// Removes all incomplete files at startup of a server that has exclusive access to its data: no upload is in progress.
pub async fn sweep_at_start(forge: &Forge) -> Result<()> {
    stored_files::sweep_at_start::<Artifact>(forge).await
}

/// Removes abandoned and expired files.
pub(crate) async fn sweep(forge: &Forge) -> Result<()> {
    let now = forge.now();
    stored_files::sweep::<Artifact>(forge).await?;
    while let expired @ [_, ..] =
        &*forge.read(Caller::system(), move |tx| Ok(store::artifacts::expired(tx.db(), now, BATCH)?)).await?
    {
        stored_files::remove(forge, expired).await?;
        info!(removed = expired.len(), "removed expired artifacts");
    }
    Ok(())
}

/// Removes expired files; on failure, a later sweep does.
pub(crate) async fn remove_expired(forge: &Forge, artifacts: &[Artifact]) {
    if let Err(error) = stored_files::remove(forge, artifacts).await {
        warn!(%error, "cannot remove expired artifacts; they will be swept later");
    }
}

/// Returns the folder of the artifacts of a project.
pub fn folder(storage: &StorageId) -> String {
    format!("artifacts/{storage}")
}

impl StoredFile for Artifact {
    const NAME: &'static str = "artifacts";
    type Id = ArtifactId;

    fn id(&self) -> ArtifactId {
        self.id
    }

    fn project(&self) -> ProjectId {
        self.project
    }

    fn folder(storage: &StorageId) -> String {
        folder(storage)
    }

    fn unfinished_before(db: &mut Conn, moment: Time, limit: i64) -> store::Result<Vec<Self>> {
        store::artifacts::unfinished_before(db, moment, limit)
    }

    fn of_project(db: &mut Conn, project: ProjectId, moment: Time, limit: i64) -> store::Result<Vec<Self>> {
        store::artifacts::of_project(db, project, moment, limit)
    }

    fn exist_in(db: &mut Conn, project: ProjectId) -> store::Result<bool> {
        store::artifacts::exist_in(db, project)
    }

    fn delete(db: &mut Conn, ids: &[ArtifactId]) -> store::Result<()> {
        store::artifacts::delete(db, ids)
    }
}
