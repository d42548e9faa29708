//! Stale jobs: their runner sends no updates, they exceed their timeout, or no runner took them for a day. They are requeued
//! or fail. Jobs that wait for a runner that does not exist are reported much earlier, by `stuck_jobs`.

use std::time::Duration;

use jiff::SignedDuration;
use model::{JobId, Time};
use store::job_queue::{StaleDeadlines, StaleReason};
use tracing::info;

use crate::{
    Caller, Forge, Result, WriteTx, job_queue,
    pipelines::{job_updates, state_machine::DEFAULT_TIMEOUT_SECONDS},
    stuck_jobs, traces,
};

/// The maximum time between two sweeps.
const SWEEP_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// The default time that a runner may take to send the first update about a job.
pub(crate) const FIRST_UPDATE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a runner may send no update after the first one.
const SILENCE_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);
/// How much longer than its timeout a job may run: the runner stops it and has to report that.
const TIMEOUT_GRACE: SignedDuration = SignedDuration::from_mins(5);
/// How long a job may stay pending.
const PENDING_TIMEOUT: SignedDuration = SignedDuration::from_hours(24);
/// The maximum number of jobs loaded at once.
const BATCH_SIZE: i64 = 100;

/// Sets how long a runner may take to send the first update about a job.
pub fn set_first_update_timeout(forge: &Forge, timeout: Duration) {
    forge.shared().job_notifier.set_first_update_timeout(timeout);
}

/// Returns the time until the next sweep.
pub(crate) fn sweep_interval(forge: &Forge) -> SignedDuration {
    first_update_timeout(forge).min(SWEEP_EVERY)
}

fn first_update_timeout(forge: &Forge) -> SignedDuration {
    SignedDuration::try_from(forge.shared().job_notifier.first_update_timeout()).unwrap_or(SignedDuration::MAX)
}

/// Requeues or fails all stale jobs.
pub async fn sweep(forge: &Forge) -> Result<()> {
    let deadlines = deadlines(forge.now(), forge.shared().job_notifier.started_at(), first_update_timeout(forge));
    for reason in StaleReason::ALL {
        let mut resolved = 0;
        loop {
            let stale = forge
                .read(Caller::system(), move |tx| Ok(store::job_queue::stale(tx.db(), reason, &deadlines, BATCH_SIZE)?))
                .await?;
            let mut batch = 0;
            for job in stale {
                let resolved = forge.write(Caller::system(), move |tx| resolve(tx, job, reason, &deadlines)).await?;
                batch += usize::from(resolved);
                if let Some(line) = last_line(reason).filter(|_| resolved) {
                    traces::append_last_line(forge, job, line).await;
                }
            }
            if batch == 0 {
                break;
            }
            resolved += batch;
        }
        if resolved > 0 {
            info!(resolved, "{}", description(reason));
        }
    }
    stuck_jobs::report(forge).await
}

fn deadlines(now: Time, started_at: Time, first_update_timeout: SignedDuration) -> StaleDeadlines {
    // Runners cannot send updates while the server is down.
    let before =
        |time: SignedDuration| if now.duration_since(started_at) > time { now - time } else { Time::UNIX_EPOCH };
    StaleDeadlines {
        assigned_before: before(first_update_timeout),
        updated_before: before(SILENCE_TIMEOUT),
        timed_out_before: before(TIMEOUT_GRACE),
        queued_before: now - PENDING_TIMEOUT,
        default_timeout: DEFAULT_TIMEOUT_SECONDS,
    }
}

/// Returns the last line of the trace of a failed job; `None` if the job is requeued.
fn last_line(reason: StaleReason) -> Option<&'static str> {
    match reason {
        StaleReason::Unacknowledged => None,
        StaleReason::RunnerSilent => Some("ERROR: job failed: its runner sent no update for an hour"),
        StaleReason::TimedOut => Some("ERROR: job failed: it ran for longer than its timeout allows"),
        StaleReason::PendingTooLong => Some("ERROR: job failed: no runner took it within 24 hours"),
    }
}

fn description(reason: StaleReason) -> &'static str {
    match reason {
        StaleReason::Unacknowledged => "requeued jobs whose runners sent no update",
        StaleReason::RunnerSilent => "failed jobs whose runners sent no update for too long",
        StaleReason::TimedOut => "failed jobs that exceeded their timeout",
        StaleReason::PendingTooLong => "failed jobs that no runner took in time",
    }
}

/// Requeues or fails one job if it is still stale; its runner may have sent an update meanwhile.
fn resolve(tx: &mut WriteTx<'_>, job: JobId, reason: StaleReason, deadlines: &StaleDeadlines) -> Result<bool> {
    let Some(parents) = store::jobs::parents_of(tx.db(), job)? else { return Ok(false) };
    if !store::pipelines::lock_row(tx.db(), parents.pipeline)?
        || !store::job_queue::is_stale(tx.db(), reason, deadlines, job)?
    {
        return Ok(false);
    }
    match reason {
        StaleReason::Unacknowledged => job_queue::requeue_unacknowledged(tx, job),
        StaleReason::TimedOut => job_updates::fail(tx, job, "job_execution_timeout", None),
        StaleReason::RunnerSilent | StaleReason::PendingTooLong => {
            job_updates::fail(tx, job, "stuck_or_timeout_failure", None)
        }
    }
}
