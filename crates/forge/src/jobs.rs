//! Work in the background: written with the change that causes it, done at least once.

use jiff::SignedDuration;
use model::{Time, jobs::JobRecord};
use tracing::{error, info, warn};

use crate::{Ability, Caller, Error, Forge, Reader, Result, Writer, uploads};

/// A kind of background work. Every kind may run twice, so each is written to bear it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Forgets tokens that have opened nothing for a while.
    SweepTokens,
    /// Forgets memberships and shares that have expired.
    SweepMemberships,
    /// Removes what is left of uploads that were given up.
    SweepUploads,
    /// Removes what a project has left behind.
    RemoveProject(i64),
}

/// How long a worker may hold a job before another takes it over.
const LEASE: SignedDuration = SignedDuration::from_mins(10);
/// How often a job is tried before it is given up.
const ATTEMPTS: i32 = 10;
const SWEEP_EVERY: SignedDuration = SignedDuration::from_hours(24);
/// How long the removal of a project waits for an upload that is under way.
const UPLOAD_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// How many rows of a kind are removed in one transaction.
const REMOVED_AT_ONCE: i64 = 1000;
/// How long a dead token stays visible to its owner.
const TOKENS_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

impl Job {
    /// The kind of [`Self::RemoveProject`].
    pub(crate) const REMOVE_PROJECT: &'static str = "remove_project";

    fn kind(&self) -> &'static str {
        match self {
            Self::SweepTokens => "sweep_tokens",
            Self::SweepUploads => "sweep_uploads",
            Self::SweepMemberships => "sweep_memberships",
            Self::RemoveProject(_) => Self::REMOVE_PROJECT,
        }
    }

    fn payload(&self) -> String {
        match self {
            Self::SweepTokens | Self::SweepMemberships | Self::SweepUploads => String::new(),
            Self::RemoveProject(id) => id.to_string(),
        }
    }

    /// Whether a second one makes no sense while the first one waits.
    fn waits_once(&self) -> bool {
        match self {
            Self::SweepTokens | Self::SweepMemberships | Self::SweepUploads => true,
            Self::RemoveProject(_) => false,
        }
    }

    fn decode(record: &JobRecord) -> Option<Self> {
        match record.kind.as_str() {
            "sweep_tokens" => Some(Self::SweepTokens),
            "sweep_uploads" => Some(Self::SweepUploads),
            "sweep_memberships" => Some(Self::SweepMemberships),
            Self::REMOVE_PROJECT => record.payload.parse().ok().map(Self::RemoveProject),
            _ => None,
        }
    }
}

/// Writes a job down, in the transaction of the change that causes it.
pub fn enqueue(it: &mut Writer<'_>, job: &Job, run_at: Time) -> Result<()> {
    let now = it.now();
    let singleton = job.waits_once().then(|| job.kind());
    Ok(store::jobs::insert(it.db(), job.kind(), &job.payload(), singleton, run_at, now)?)
}

/// Takes up what a server before this one was in the middle of, at the start of one that has its data to itself: whoever
/// holds a lease on a job is no more.
pub async fn take_up(forge: &Forge) -> Result<()> {
    if !forge.shared().database.is_embedded() {
        return Ok(());
    }
    forge.write(Caller::system(), |it| Ok(store::jobs::release_all(it.db())?)).await
}

/// Writes down the jobs that come back by themselves, unless they wait already.
pub async fn enqueue_recurring(forge: &Forge) -> Result<()> {
    forge
        .write(Caller::system(), |it| {
            let now = it.now();
            enqueue(it, &Job::SweepTokens, now)?;
            enqueue(it, &Job::SweepMemberships, now)?;
            enqueue(it, &Job::SweepUploads, now)
        })
        .await
}

/// Does the job that has been due for longest; `false` if none is due.
pub async fn work_once(forge: &Forge) -> Result<bool> {
    if !forge.read(Caller::system(), is_due).await? {
        return Ok(false);
    }
    let claimed = forge
        .write(Caller::system(), |it| {
            let now = it.now();
            Ok(store::jobs::claim(it.db(), now, now + LEASE)?)
        })
        .await?;
    let Some(record) = claimed else { return Ok(false) };
    let (id, kind, attempts) = (record.id, record.kind.clone(), record.attempts);
    match run(forge, record).await {
        Ok(()) => {
            info!(job.id = id, job.kind = kind, "job done");
            metrics::counter!("gable_jobs_total", "kind" => kind, "outcome" => "done").increment(1);
        }
        Err(failure) => {
            let text = failure.to_string();
            let dead = attempts >= ATTEMPTS;
            let outcome = if dead { "dead" } else { "failed" };
            if dead {
                error!(job.id = id, job.kind = kind, error = text, "job given up; see `gable admin job list`");
            } else {
                warn!(job.id = id, job.kind = kind, attempts, error = text, "job failed, it will be tried again");
            }
            metrics::counter!("gable_jobs_total", "kind" => kind, "outcome" => outcome).increment(1);
            forge
                .write(Caller::system(), move |it| {
                    let now = it.now();
                    if dead {
                        return Ok(store::jobs::bury(it.db(), id, &text, now)?);
                    }
                    Ok(store::jobs::fail(it.db(), id, &text, now + back_off(attempts))?)
                })
                .await?;
        }
    }
    Ok(true)
}

/// Whether a job is due; asked first, because an idle server should not write.
fn is_due(it: &mut Reader<'_>) -> Result<bool> {
    let now = it.now();
    Ok(store::jobs::is_due(it.db(), now)?)
}

/// How long a job waits after its n-th failure: 2 s, 4 s, 8 s … at most an hour.
fn back_off(attempts: i32) -> SignedDuration {
    let exponent = u32::try_from(attempts.clamp(1, 12)).unwrap_or(1);
    SignedDuration::from_secs(2_i64.pow(exponent)).min(SignedDuration::from_hours(1))
}

/// Runs a job. Work that only touches the database is done in the transaction that removes the job.
async fn run(forge: &Forge, record: JobRecord) -> Result<()> {
    // Counted before it runs: a job that takes its worker down with it is given up like any other.
    if record.attempts > ATTEMPTS {
        return Err(Error::Internal("every worker that took it died".into()));
    }
    let job = Job::decode(&record).ok_or_else(|| Error::Internal(format!("unknown kind of job: {}", record.kind)))?;
    let id = record.id;
    match job {
        Job::SweepTokens => forge.write(Caller::system(), move |it| sweep_tokens(it, id)).await,
        Job::SweepMemberships => forge.write(Caller::system(), move |it| sweep_memberships(it, id)).await,
        Job::SweepUploads => {
            uploads::sweep(forge).await?;
            forge.write(Caller::system(), move |it| come_back(it, id, uploads::SWEEP_EVERY)).await
        }
        Job::RemoveProject(project) => remove_project(forge, project, id).await,
    }
}

/// Removes the files and then the rows of a project that is gone already, and the job with them.
async fn remove_project(forge: &Forge, project: i64, job: i64) -> Result<()> {
    let buried = forge.read(Caller::system(), move |it| Ok(store::projects::is_buried(it.db(), project)?)).await?;
    if !buried {
        // Gone already; and of a project that lives nothing is ever removed here.
        return forge.write(Caller::system(), move |it| Ok(store::jobs::delete(it.db(), job)?)).await;
    }
    if !uploads::remove_all_of_project(forge, project).await? {
        // Somebody began before it was removed; that is no failure, however long it takes.
        return forge.write(Caller::system(), move |it| come_back(it, job, UPLOAD_PAUSE)).await;
    }
    let shrink = move |it: &mut Writer<'_>| Ok(store::projects::shrink_buried(it.db(), project, REMOVED_AT_ONCE)?);
    while forge.write(Caller::system(), shrink).await? > 0 {}
    forge
        .write(Caller::system(), move |it| {
            store::projects::delete_buried(it.db(), project)?;
            Ok(store::jobs::delete(it.db(), job)?)
        })
        .await
}

/// Forgets what has expired and lets the job wait for tomorrow.
fn sweep_memberships(it: &mut Writer<'_>, job: i64) -> Result<()> {
    let now = it.now();
    let forgotten = store::members::delete_expired(it.db(), now)?;
    if forgotten > 0 {
        info!(forgotten, "forgot memberships and shares that had expired");
    }
    come_back(it, job, SWEEP_EVERY)
}

/// Forgets dead tokens and lets the job wait for tomorrow.
fn sweep_tokens(it: &mut Writer<'_>, job: i64) -> Result<()> {
    let now = it.now();
    let forgotten = store::tokens::delete_stale(it.db(), now - TOKENS_KEPT)?;
    if forgotten > 0 {
        info!(forgotten, "forgot tokens that opened nothing any more");
    }
    come_back(it, job, SWEEP_EVERY)
}

/// Lets a job that is done for now wait for its next round.
fn come_back(it: &mut Writer<'_>, job: i64, pause: SignedDuration) -> Result<()> {
    let next = it.now() + pause;
    Ok(store::jobs::reschedule(it.db(), job, next)?)
}

/// The jobs that wait and those that were given up.
pub fn list(it: &mut Reader<'_>) -> Result<Vec<JobRecord>> {
    it.may(Ability::Operate)?;
    Ok(store::jobs::list(it.db(), 1000)?)
}

/// How many jobs wait, and how many were given up.
pub fn count(it: &mut Reader<'_>) -> Result<(i64, i64)> {
    it.may(Ability::Operate)?;
    Ok(store::jobs::count(it.db())?)
}

/// Brings back a job that was given up.
pub fn retry(it: &mut Writer<'_>, id: i64) -> Result<()> {
    it.may(Ability::Operate)?;
    let now = it.now();
    if store::jobs::revive(it.db(), id, now)? { Ok(()) } else { Err(Error::not_found("Dead job")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_an_hour() {
        assert_eq!(back_off(1), SignedDuration::from_secs(2));
        assert_eq!(back_off(5), SignedDuration::from_secs(32));
        assert_eq!(back_off(100), SignedDuration::from_hours(1));
    }
}
