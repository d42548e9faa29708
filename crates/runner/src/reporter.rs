//! Reports the trace and the result of a job to the server, with retries while the server is unavailable.

use std::{sync::Arc, time::Duration};

use hyper::StatusCode;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, warn};

use crate::{
    Timing,
    client::{ApiResponse, Client, ConnectionError},
    processes::Interrupt,
    protocol::{JobAuth, JobResult, is_ended, is_rejected, stored_length},
    trace::Trace,
};

/// The maximum size of a chunk of the trace.
const MAX_CHUNK_BYTES: usize = 256 << 10;

/// Reports one job to the server.
pub(crate) struct Reporter {
    pub(crate) client: Client,
    pub(crate) credentials: JobAuth,
    pub(crate) trace: Arc<Trace>,
    pub(crate) interrupt_sender: watch::Sender<Option<Interrupt>>,
    pub(crate) timing: Timing,
}

/// The result of sending a report.
enum SendResult {
    Accepted,
    /// May succeed later.
    Retry,
    /// Will never succeed.
    Rejected,
}

impl Reporter {
    /// Sends the trace while the job runs, and keep-alive updates when there is no output. Returns the length sent.
    pub(crate) async fn report_until_done(&self, mut done: oneshot::Receiver<()>) -> u64 {
        let mut sent = 0;
        let mut delay = self.timing.trace_interval;
        let mut last = Instant::now();
        loop {
            tokio::select! {
                _ = &mut done => return sent,
                () = self.trace.wait_beyond(sent) => {}
                () = sleep_until(last + self.timing.keep_alive_interval) => {}
            }
            let outcome = if self.trace.length() > sent {
                self.send(&mut sent).await
            } else {
                self.handle_response(self.client.keep_alive(&self.credentials).await)
            };
            match outcome {
                SendResult::Accepted => {
                    last = Instant::now();
                    delay = self.timing.trace_interval;
                }
                SendResult::Retry => delay = (delay * 2).clamp(self.timing.retry_delay, self.timing.max_retry_delay),
                // The job has been interrupted, if it must end.
                SendResult::Rejected => {
                    let _ = (&mut done).await;
                    return sent;
                }
            }
            tokio::select! {
                _ = &mut done => return sent,
                () = sleep(delay) => {}
            }
        }
    }

    /// Sends the rest of the trace and the result, with retries until the timeout.
    pub(crate) async fn finish(&self, mut sent: u64, result: JobResult, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut delay = self.timing.retry_delay;
        loop {
            let outcome = if self.trace.length() > sent {
                self.send(&mut sent).await
            } else {
                match self.client.finish(&self.credentials, result).await {
                    Ok(response) if response.status.is_success() && response.status != StatusCode::ACCEPTED => return,
                    // The server is still processing the trace, or has received something else.
                    Ok(response)
                        if matches!(response.status, StatusCode::ACCEPTED | StatusCode::PRECONDITION_FAILED) =>
                    {
                        SendResult::Retry
                    }
                    response => self.handle_response(response),
                }
            };
            match outcome {
                SendResult::Accepted => {
                    delay = self.timing.retry_delay;
                    continue;
                }
                SendResult::Rejected => return,
                SendResult::Retry => {}
            }
            if Instant::now() + delay > deadline {
                warn!(job.id = self.credentials.id, "cannot report the result of the job; giving up");
                return;
            }
            sleep(delay).await;
            delay = (delay * 2).min(self.timing.max_retry_delay);
        }
    }

    /// Sends the next chunk of the trace.
    async fn send(&self, sent: &mut u64) -> SendResult {
        let chunk = match self.trace.read(*sent, MAX_CHUNK_BYTES) {
            Ok(chunk) => chunk,
            Err(error) => {
                warn!(job.id = self.credentials.id, %error, "cannot read the trace file; the rest of the trace is lost");
                *sent = self.trace.length();
                return SendResult::Accepted;
            }
        };
        let after = *sent + chunk.len() as u64;
        let response = match self.client.append_trace(&self.credentials, *sent, chunk).await {
            Ok(response) if response.status == StatusCode::RANGE_NOT_SATISFIABLE => response,
            response => {
                let too_large = matches!(&response, Ok(response) if response.status == StatusCode::PAYLOAD_TOO_LARGE);
                if too_large {
                    // The server's limit for traces is reached; the job itself continues.
                    *sent = u64::MAX;
                    return SendResult::Accepted;
                }
                let outcome = self.handle_response(response);
                if matches!(outcome, SendResult::Accepted) {
                    *sent = after;
                }
                return outcome;
            }
        };
        if self.is_ended(&response) {
            return SendResult::Rejected;
        }
        match stored_length(&response) {
            // The response to a chunk was lost, or the server has lost part of the trace.
            Some(offset) if offset <= self.trace.length() && offset != *sent => {
                debug!(job.id = self.credentials.id, place = offset, "the server has a different length of the trace");
                *sent = offset;
                SendResult::Accepted
            }
            // Another runner writes the same trace.
            Some(offset) if offset > self.trace.length() => {
                self.interrupt(Interrupt::Refused);
                SendResult::Rejected
            }
            _ => SendResult::Retry,
        }
    }

    /// Interprets a response.
    fn handle_response(&self, response: Result<ApiResponse, ConnectionError>) -> SendResult {
        match response {
            Ok(response) if self.is_ended(&response) => SendResult::Rejected,
            Ok(response) if response.status.is_success() => SendResult::Accepted,
            Ok(response) if is_rejected(response.status) => {
                self.interrupt(Interrupt::Refused);
                SendResult::Rejected
            }
            Ok(response) if response.is_transient() || response.status == StatusCode::CONFLICT => SendResult::Retry,
            Ok(response) => {
                warn!(job.id = self.credentials.id, status = %response.status, "the server rejected the report of a job");
                self.interrupt(Interrupt::Refused);
                SendResult::Rejected
            }
            Err(ConnectionError(reason)) => {
                debug!(job.id = self.credentials.id, reason, "cannot reach the server; retrying");
                SendResult::Retry
            }
        }
    }

    fn is_ended(&self, response: &ApiResponse) -> bool {
        let ended = is_ended(response);
        if ended {
            self.interrupt(Interrupt::Canceled);
        }
        ended
    }

    /// Interrupts the job; only the first reason counts.
    pub(crate) fn interrupt(&self, interrupt: Interrupt) {
        self.interrupt_sender.send_if_modified(|current| {
            let first = current.is_none();
            *current = current.or(Some(interrupt));
            first
        });
    }
}
