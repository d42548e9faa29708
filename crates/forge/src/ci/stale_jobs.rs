//! Jobs that are stuck: taken by runners that were not heard of since, running for too long, or wanted by nobody.

use std::time::Duration;

use jiff::SignedDuration;
use model::Time;
use store::assignments::{Deadlines, Stuck};
use tracing::info;

use crate::{
    Caller, Forge, Result, WriteTx, assignments,
    pipelines::{endings, machine::USUAL_TIMEOUT},
    traces, waiting,
};

/// How often somebody looks.
const SWEEP_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// How long a runner that has taken a job has to say the first word about it, unless somebody says otherwise.
pub(crate) const FIRST_WORD: Duration = Duration::from_secs(120);
/// How long it may be silent from then on.
const SILENCE: SignedDuration = SignedDuration::from_hours(1);
/// How much longer than allowed a job may take: the runner stops it itself, and has to tell.
const GRACE: SignedDuration = SignedDuration::from_mins(5);
/// How long a job waits for a runner.
const QUEUED: SignedDuration = SignedDuration::from_hours(24);
/// How many are looked at in one go.
const AT_ONCE: i64 = 100;

/// Says how long a runner that has taken a job has to say the first word about it.
pub fn set_first_word(forge: &Forge, time: Duration) {
    forge.shared().board.set_first_word(time);
}

/// How soon somebody looks again.
pub(crate) fn pause(forge: &Forge) -> SignedDuration {
    first_word(forge).min(SWEEP_EVERY)
}

fn first_word(forge: &Forge) -> SignedDuration {
    SignedDuration::try_from(forge.shared().board.first_word()).unwrap_or(SignedDuration::MAX)
}

/// Takes back or lets fail whatever is stuck.
pub async fn sweep(forge: &Forge) -> Result<()> {
    let by = deadlines(forge.now(), forge.shared().board.since(), first_word(forge));
    for how in Stuck::ALL {
        let mut freed = 0;
        loop {
            let stuck = forge
                .read(Caller::system(), move |tx| Ok(store::assignments::stuck(tx.db(), how, &by, AT_ONCE)?))
                .await?;
            let mut some = 0;
            for build in stuck {
                let freed = forge.write(Caller::system(), move |tx| free(tx, build, how, &by)).await?;
                some += usize::from(freed);
                if let Some(line) = last_line(how).filter(|_| freed) {
                    traces::close_with(forge, build, line).await;
                }
            }
            if some == 0 {
                break;
            }
            freed += some;
        }
        if freed > 0 {
            info!(freed, "jobs were {}", in_words(how));
        }
    }
    waiting::report(forge).await
}

fn deadlines(now: Time, since: Time, first_word: SignedDuration) -> Deadlines {
    // Nobody is heard while the service does not run.
    let listened = |time: SignedDuration| if now.duration_since(since) > time { now - time } else { Time::UNIX_EPOCH };
    Deadlines {
        given: listened(first_word),
        heard: listened(SILENCE),
        ended: listened(GRACE),
        queued: now - QUEUED,
        usual_timeout: USUAL_TIMEOUT,
    }
}

/// What the trace of a job says in its last line; nothing if the job only waits again.
fn last_line(how: Stuck) -> Option<&'static str> {
    match how {
        Stuck::Unheard => None,
        Stuck::Silent => Some("ERROR: job failed: nothing was heard from its runner for an hour"),
        Stuck::Overdue => Some("ERROR: job failed: it ran for longer than its timeout allows"),
        Stuck::Unwanted => Some("ERROR: job failed: no runner took it within 24 hours"),
    }
}

fn in_words(how: Stuck) -> &'static str {
    match how {
        Stuck::Unheard => "taken back from runners that said nothing about them",
        Stuck::Silent => "given up because their runners were silent for too long",
        Stuck::Overdue => "given up because they took longer than they may",
        Stuck::Unwanted => "given up because no runner wanted them for too long",
    }
}

/// Frees one job, if it is still stuck: its runner may have spoken meanwhile.
fn free(tx: &mut WriteTx<'_>, build: i64, how: Stuck, by: &Deadlines) -> Result<bool> {
    let Some(place) = store::builds::place_of(tx.db(), build)? else { return Ok(false) };
    if !store::pipelines::hold(tx.db(), place.pipeline)? || !store::assignments::is_stuck(tx.db(), how, by, build)? {
        return Ok(false);
    }
    match how {
        Stuck::Unheard => assignments::take_back(tx, build),
        Stuck::Overdue => endings::fail(tx, build, "job_execution_timeout", None),
        Stuck::Silent | Stuck::Unwanted => endings::fail(tx, build, "stuck_or_timeout_failure", None),
    }
}
