//! What jobs leave behind: files that other jobs get and people download.
//!
//! What is to go expires first, so that whatever happens it is swept away.

use std::{ops::Range, result::Result as StdResult};

use bytes::Bytes;
use ci::ArtifactAccess;
use files::{Content, WriteError};
use futures_util::Stream;
use jiff::SignedDuration;
use model::{Build, RefName, Role, Status, StorageId, Time, uploads::clean_name};
use store::Conn;
pub use store::artifacts::Artifact;
use tracing::{info, warn};

use crate::{
    Ability, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    stored_files::{self, BATCH, KeptFile},
    traces::{self, JobProof},
    uploads::Refusal,
};

/// What a runner says about a file that it sends.
#[derive(Clone, Debug)]
pub struct NewArtifact {
    /// What it calls it.
    pub name: String,
    /// What it is: `archive`, or what else a runner sends.
    pub kind: String,
    /// How long it is kept, in words; what the job says if absent.
    pub expire_in: Option<String>,
}

/// How many files a job may send, also of those that others have replaced and nobody has removed yet.
const MOST_FILES: i64 = 20;

/// Takes a file of at most so many bytes from a job that runs; it takes the place of the one of the same kind before.
pub async fn receive<E: Send + 'static>(
    forge: &Forge,
    build: i64,
    proof: JobProof,
    new: Unvalidated<NewArtifact>,
    content: impl Stream<Item = StdResult<Bytes, E>> + Send + 'static,
    most: u64,
) -> StdResult<Artifact, Refusal<E>> {
    let forge = forge.clone();
    // On its own: whoever waits for it may go away, and what was begun has to be ended or undone.
    let task = tokio::spawn(async move {
        forge.require_room()?;
        let (shown, given) = (proof.clone(), new.clone());
        let begun = forge.write(Caller::system(), move |tx| begin(tx, build, &shown, &given)).await?;
        let storage = forge.storage_of(begun.project).await?;
        let ended = match forge.shared().files.write(&begun.key(&storage), most, content).await {
            Ok(size) => {
                let begun = begun.clone();
                let complete = move |tx: &mut WriteTx<'_>| complete(tx, &begun, &proof, &new, size);
                forge.write(Caller::system(), complete).await.map_err(Refusal::Forge)
            }
            Err(WriteError::TooLarge) => Err(Refusal::TooLarge),
            Err(WriteError::Source(error)) => Err(Refusal::Source(error)),
            Err(WriteError::Failed(error)) => Err(forge.noted(error).into()),
        };
        if ended.is_err()
            && let Err(error) = stored_files::remove(&forge, &[begun]).await
        {
            warn!(build.id = build, %error, "an artifact could not be undone, it will be swept away later");
        }
        ended
    });
    task.await.unwrap_or_else(|error| Err(Error::Internal(format!("an artifact: {error}")).into()))
}

fn begin(tx: &mut WriteTx<'_>, build: i64, proof: &JobProof, new: &Unvalidated<NewArtifact>) -> Result<Artifact> {
    let run = running(tx, build, proof)?;
    let (new, now) = (new.get()?, tx.now());
    // Every script of the job knows its token, and each of these may be large.
    if store::artifacts::count_of(tx.db(), build)? >= MOST_FILES {
        return Err(Error::Refused(format!(
            "A job may leave {MOST_FILES} files at most, those that were replaced included"
        )));
    }
    Ok(store::artifacts::insert(tx.db(), run.project, build, &new.kind, &clean_name(&new.name), now)?)
}

/// The job is looked at once more: it may have ended while the file came in.
fn complete(
    tx: &mut WriteTx<'_>,
    begun: &Artifact,
    proof: &JobProof,
    new: &Unvalidated<NewArtifact>,
    size: u64,
) -> Result<Artifact> {
    running(tx, begun.build, proof)?;
    let now = tx.now();
    let spec = store::build_runs::spec_of(tx.db(), begun.build)?.and_then(|spec| ci::Spec::from_text(&spec));
    let words = spec.and_then(|spec| spec.artifacts).and_then(|artifacts| artifacts.expire_in);
    let words = new.get()?.expire_in.clone().or(words);
    let expires_at = words.and_then(|words| read_end(&words, now));
    store::artifacts::complete(tx.db(), begun, size, expires_at, now)?.ok_or_else(|| Error::not_found("Artifact"))
}

/// Until when something is kept that is kept for so long from now on; what is no span of time is kept for good.
fn read_end(words: &str, now: Time) -> Option<Time> {
    match ci::durations::read_lifetime(words)? {
        ci::durations::Lifetime::Never => None,
        ci::durations::Lifetime::Seconds(seconds) => {
            now.checked_add(SignedDuration::from_secs(i64::try_from(seconds).ok()?)).ok()
        }
    }
}

fn running(tx: &mut ReadTx<'_>, build: i64, proof: &JobProof) -> Result<store::build_runs::Run> {
    let run = traces::find(tx, build, proof)?;
    if run.status == Status::Running { Ok(run) } else { Err(Error::forbidden("Job is not running")) }
}

/// What a build left behind, for a job of the same pipeline that runs, or for somebody with the token of the project where
/// that counts.
pub fn open_for_job(tx: &mut ReadTx<'_>, build: i64, proof: &JobProof) -> Result<Artifact> {
    opened_by(tx, build, proof)?;
    archive_of(tx, build)
}

/// Removes what a build left behind, for itself while it runs, or for somebody with the token of the project.
pub async fn delete_for_job(forge: &Forge, build: i64, proof: JobProof) -> Result<Build> {
    let expire = move |tx: &mut WriteTx<'_>| {
        let run = traces::find(tx, build, &proof)?;
        // The token of a job opens nothing once the job has ended; that of the project does.
        let (JobProof::Job(tokens) | JobProof::JobOrProject(tokens) | JobProof::Runner(tokens)) = &proof;
        if run.status != Status::Running && tokens.iter().any(|token| run.has_token(token)) {
            return Err(Error::forbidden("Job is not running"));
        }
        let now = tx.now();
        let left = store::artifacts::expire_all_of(tx.db(), build, now)?;
        Ok((traces::shown(tx, build)?, left))
    };
    let (shown, left) = forge.write(Caller::system(), expire).await?;
    remove_expired(forge, &left).await;
    Ok(shown)
}

fn opened_by(tx: &mut ReadTx<'_>, build: i64, proof: &JobProof) -> Result<()> {
    let absent = || Error::Absent("404 Not Found".into());
    let run = store::build_runs::find(tx.db(), build)?.ok_or_else(absent)?;
    let project = tx.open_as_service(&ProjectRef::Id(run.project), ProjectAbility::ReadProject)?;
    let (tokens, of_project) = match proof {
        JobProof::Job(tokens) | JobProof::Runner(tokens) => (tokens, None),
        JobProof::JobOrProject(tokens) => {
            (tokens, Some(tx.shared().instance_key.runners_token(project.id, &project.runners_seed).digest()))
        }
    };
    if of_project.is_some_and(|token| tokens.contains(&token)) {
        return Ok(());
    }
    for token in tokens {
        let job = store::build_runs::running(tx.db(), token)?;
        if job.is_some_and(|job| job.pipeline == run.pipeline) {
            // The user who started the job may have lost the right to see the project since.
            return tx.open_as_job(token, &ProjectRef::Id(run.project), ProjectAbility::ReadBuilds).map(drop);
        }
    }
    Err(Error::Forbidden(None))
}

/// What a build left behind, for whoever may see it.
pub fn open(tx: &mut ReadTx<'_>, project: &ProjectRef, build: &Unvalidated<i64>) -> Result<Artifact> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadBuilds)?;
    let run = traces::run_in(tx, project.id, *build.get()?)?;
    open_of_build(tx, &project, run.build)
}

/// What a job of the newest pipeline of a branch, or else of a tag, left behind that went well and has the job. A tag never
/// stands in for a branch that exists, nor a deleted branch for a tag that exists.
pub fn open_by_ref(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    ref_name: &str,
    job: &Unvalidated<String>,
) -> Result<Artifact> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadBuilds)?;
    let job = job.get()?;
    let refs = tx.repository(&project)?.map(|repository| repository.refs()).transpose()?.unwrap_or_default();
    let exists = |name: Option<RefName>| name.is_some_and(|name| refs.find(&name).is_some());
    let are_tags: &[bool] = if exists(RefName::branch(ref_name)) {
        &[false]
    } else if exists(RefName::tag(ref_name)) {
        &[true]
    } else {
        &[false, true]
    };
    for is_tag in are_tags {
        if let Some(build) = store::artifacts::build_by_ref(tx.db(), project.id, ref_name, *is_tag, job)? {
            return open_of_build(tx, &project, build);
        }
    }
    Err(Error::Absent("404 Not Found".into()))
}

fn open_of_build(tx: &mut ReadTx<'_>, project: &model::Project, build: i64) -> Result<Artifact> {
    let spec = store::build_runs::spec_of(tx.db(), build)?.and_then(|spec| ci::Spec::from_text(&spec));
    let access = spec.and_then(|spec| spec.artifacts).and_then(|artifacts| artifacts.access);
    let role = tx.role_to(project);
    let may = match access {
        None | Some(ArtifactAccess::All) => true,
        Some(ArtifactAccess::Developer) => role >= Some(Role::Developer),
        Some(ArtifactAccess::Maintainer) => role >= Some(Role::Master),
        Some(ArtifactAccess::Nobody) => false,
    };
    if may { archive_of(tx, build) } else { Err(Error::Forbidden(None)) }
}

fn archive_of(tx: &mut ReadTx<'_>, build: i64) -> Result<Artifact> {
    let now = tx.now();
    store::artifacts::archive_of(tx.db(), build, now)?.ok_or_else(|| Error::Absent("404 Not Found".into()))
}

/// Keeps what a build left behind for good.
pub fn keep(tx: &mut WriteTx<'_>, project: &ProjectRef, build: &Unvalidated<i64>) -> Result<Build> {
    let project = tx.open(project, ProjectAbility::RunPipelines)?;
    let run = traces::run_in(tx, project.id, *build.get()?)?;
    let artifact = archive_of(tx, run.build)?;
    store::artifacts::keep(tx.db(), artifact.id)?;
    traces::shown(tx, run.build)
}

/// The bytes of a file, or a range of them.
pub async fn read(forge: &Forge, artifact: &Artifact, range: Option<Range<u64>>) -> Result<Content> {
    let storage = forge.storage_of(artifact.project).await?;
    let content = forge.shared().files.read(&artifact.key(&storage), range).await?;
    // Removed a moment ago.
    let content = content.ok_or_else(|| Error::Absent("404 Not Found".into()))?;
    if Some(content.size) != artifact.size {
        return Err(Error::Internal(format!("the file of artifact {} has {} bytes", artifact.id, content.size)));
    }
    Ok(content)
}

/// Removes what is left of files that were never ended, at the start of a server that has its data to itself: nobody can
/// still be sending them.
pub async fn sweep_at_start(forge: &Forge) -> Result<()> {
    stored_files::sweep_at_start::<Artifact>(forge).await
}

/// Removes what is left of files that were given up, and those that have expired.
pub(crate) async fn sweep(forge: &Forge) -> Result<()> {
    let now = forge.now();
    stored_files::sweep::<Artifact>(forge).await?;
    while let some @ [_, ..] =
        &*forge.read(Caller::system(), move |tx| Ok(store::artifacts::expired(tx.db(), now, BATCH)?)).await?
    {
        stored_files::remove(forge, some).await?;
        info!(removed = some.len(), "removed artifacts that had expired");
    }
    Ok(())
}

/// Removes files that nobody sees any more, at once if that works.
pub(crate) async fn remove_expired(forge: &Forge, artifacts: &[Artifact]) {
    if let Err(error) = stored_files::remove(forge, artifacts).await {
        warn!(%error, "artifacts could not be removed, they will be swept away later");
    }
}

/// Where the files of a project lie, among all that are kept.
pub fn folder(storage: &StorageId) -> String {
    format!("artifacts/{storage}")
}

impl KeptFile for Artifact {
    const NAME: &'static str = "artifacts";

    fn id(&self) -> i64 {
        self.id
    }

    fn project(&self) -> i64 {
        self.project
    }

    fn folder(storage: &StorageId) -> String {
        folder(storage)
    }

    fn begun_before(db: &mut Conn, moment: Time, most: i64) -> store::Result<Vec<Self>> {
        store::artifacts::begun_before(db, moment, most)
    }

    fn of_project(db: &mut Conn, project: i64, moment: Time, most: i64) -> store::Result<Vec<Self>> {
        store::artifacts::of_project(db, project, moment, most)
    }

    fn exist_in(db: &mut Conn, project: i64) -> store::Result<bool> {
        store::artifacts::exist_in(db, project)
    }

    fn delete(db: &mut Conn, ids: &[i64]) -> store::Result<()> {
        store::artifacts::delete(db, ids)
    }
}
