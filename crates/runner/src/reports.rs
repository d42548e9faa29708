//! Tells the server how a job goes, for as long as it takes: a server that is away for a while loses nothing.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, warn};

use crate::{
    Pace,
    client::{Answer, Client, Unreachable},
    processes::Interrupt,
    protocol::{Badge, Ending, is_over, is_refused, stored},
    trace::Trace,
};

/// How much of a trace is sent at once.
const PIECE: usize = 256 << 10;

/// Whoever tells the server of one job.
pub(crate) struct Reporter {
    pub(crate) client: Client,
    pub(crate) badge: Badge,
    pub(crate) trace: Arc<Trace>,
    pub(crate) tell: watch::Sender<Option<Interrupt>>,
    pub(crate) pace: Pace,
}

/// How a word to the server was taken.
enum Taken {
    Yes,
    /// It may be taken later.
    NotNow,
    /// It will not be taken, whatever is done.
    Never,
}

impl Reporter {
    /// Sends what the job says while it runs, and a sign of life when it says nothing; how far it came.
    pub(crate) async fn keep_telling(&self, mut done: oneshot::Receiver<()>) -> u64 {
        let mut sent = 0;
        let mut pause = self.pace.trace;
        let mut last = Instant::now();
        loop {
            tokio::select! {
                _ = &mut done => return sent,
                () = self.trace.beyond(sent) => {}
                () = sleep_until(last + self.pace.keep_alive) => {}
            }
            let taken = if self.trace.length() > sent {
                self.send(&mut sent).await
            } else {
                self.told(self.client.touch(&self.badge).await)
            };
            match taken {
                Taken::Yes => {
                    last = Instant::now();
                    pause = self.pace.trace;
                }
                Taken::NotNow => pause = (pause * 2).clamp(self.pace.retry, self.pace.longest_pause),
                // Whoever runs the job was told, if it is to end.
                Taken::Never => {
                    let _ = (&mut done).await;
                    return sent;
                }
            }
            tokio::select! {
                _ = &mut done => return sent,
                () = sleep(pause) => {}
            }
        }
    }

    /// Sends the rest and the end, and tries again until it is taken or this much time has passed.
    pub(crate) async fn finish(&self, mut sent: u64, ending: Ending, patience: Duration) {
        let end = Instant::now() + patience;
        let mut pause = self.pace.retry;
        loop {
            let taken = if self.trace.length() > sent {
                self.send(&mut sent).await
            } else {
                match self.client.finish(&self.badge, ending).await {
                    Ok(answer) if answer.status.is_success() && answer.status != StatusCode::ACCEPTED => return,
                    // The server is still busy with the trace, or has heard something else.
                    Ok(answer) if matches!(answer.status, StatusCode::ACCEPTED | StatusCode::PRECONDITION_FAILED) => {
                        Taken::NotNow
                    }
                    heard => self.told(heard),
                }
            };
            match taken {
                Taken::Yes => {
                    pause = self.pace.retry;
                    continue;
                }
                Taken::Never => return,
                Taken::NotNow => {}
            }
            if Instant::now() + pause > end {
                warn!(job.id = self.badge.id, "the server could not be told how the job ended");
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.pace.longest_pause);
        }
    }

    /// Sends the next piece of the trace.
    async fn send(&self, sent: &mut u64) -> Taken {
        let piece = match self.trace.read(*sent, PIECE) {
            Ok(piece) => piece,
            Err(error) => {
                warn!(job.id = self.badge.id, %error, "the trace cannot be read back; the rest of it is lost");
                *sent = self.trace.length();
                return Taken::Yes;
            }
        };
        let after = *sent + piece.len() as u64;
        let answer = match self.client.patch(&self.badge, *sent, piece).await {
            Ok(answer) if answer.status == StatusCode::RANGE_NOT_SATISFIABLE => answer,
            heard => {
                let too_long = matches!(&heard, Ok(answer) if answer.status == StatusCode::PAYLOAD_TOO_LARGE);
                if too_long {
                    // The server wants no more of it; the job itself is fine.
                    *sent = u64::MAX;
                    return Taken::Yes;
                }
                let taken = self.told(heard);
                if matches!(taken, Taken::Yes) {
                    *sent = after;
                }
                return taken;
            }
        };
        if self.is_over(&answer) {
            return Taken::Never;
        }
        match stored(&answer) {
            // A piece whose answer was lost is there already, or the server has lost some of it.
            Some(place) if place <= self.trace.length() && place != *sent => {
                debug!(job.id = self.badge.id, place, "the server has another length of the trace");
                *sent = place;
                Taken::Yes
            }
            // Somebody else writes it, too.
            Some(place) if place > self.trace.length() => {
                self.interrupt(Interrupt::Refused);
                Taken::Never
            }
            _ => Taken::NotNow,
        }
    }

    /// What an answer means for the job.
    fn told(&self, heard: Result<Answer, Unreachable>) -> Taken {
        match heard {
            Ok(answer) if self.is_over(&answer) => Taken::Never,
            Ok(answer) if answer.status.is_success() => Taken::Yes,
            Ok(answer) if is_refused(answer.status) => {
                self.interrupt(Interrupt::Refused);
                Taken::Never
            }
            Ok(answer) if answer.is_passing() || answer.status == StatusCode::CONFLICT => Taken::NotNow,
            Ok(answer) => {
                warn!(job.id = self.badge.id, status = %answer.status, "the server does not take the job's report");
                self.interrupt(Interrupt::Refused);
                Taken::Never
            }
            Err(Unreachable(reason)) => {
                debug!(job.id = self.badge.id, reason, "the server cannot be reached; trying again");
                Taken::NotNow
            }
        }
    }

    fn is_over(&self, answer: &Answer) -> bool {
        let over = is_over(answer);
        if over {
            self.interrupt(Interrupt::Canceled);
        }
        over
    }

    /// The first reason counts.
    pub(crate) fn interrupt(&self, why: Interrupt) {
        self.tell.send_if_modified(|told| {
            let first = told.is_none();
            *told = told.or(Some(why));
            first
        });
    }
}
