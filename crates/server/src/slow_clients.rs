//! Disconnects clients that send or receive nothing for too long, or stay below the minimum rate.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until, timeout},
};

/// The minimum average transfer rate; below it the timeout runs down.
const MIN_BYTES_PER_SECOND: u32 = 500;

/// Measures how long a client has stalled. Transferred bytes reduce that time at the minimum rate.
struct StallTimer {
    max_stall: Duration,
    stalled_for: Duration,
    stalled_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    fn new(max_stall: Duration) -> Self {
        Self { max_stall, stalled_for: Duration::ZERO, stalled_since: None, timer: None }
    }

    /// Records a transfer of `bytes`.
    fn record_progress(&mut self, bytes: usize) {
        // The common case does not read the clock.
        if let Some(since) = self.stalled_since.take() {
            self.stalled_for += since.elapsed();
        }
        if self.stalled_for > Duration::ZERO {
            let credit =
                Duration::from_secs(1).saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX)) / MIN_BYTES_PER_SECOND;
            self.stalled_for = self.stalled_for.saturating_sub(credit);
        }
    }

    /// Called when no transfer is possible; ready when the client has stalled for too long.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timer = match (self.stalled_since, &mut self.timer) {
            (Some(_), Some(timer)) => timer,
            (_, timer) => {
                let now = Instant::now();
                self.stalled_since = Some(now);
                let end = now + self.max_stall.saturating_sub(self.stalled_for);
                match timer {
                    Some(timer) => {
                        timer.as_mut().reset(end);
                        timer
                    }
                    none => none.insert(Box::pin(sleep_until(end))),
                }
            }
        };
        timer.as_mut().poll(context)
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client is too slow")
}

/// The limits for draining an unread request body. A client that is still sending when the connection is closed would not
/// see the response.
const MAX_DRAINED_BYTES: u64 = 64 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A request body that fails if the client stalls.
pub(crate) struct TimeoutBody {
    /// `Some` until dropped.
    body: Option<Incoming>,
    stall_timer: StallTimer,
    /// Whether the client waits for `100 Continue`.
    expects_continue: bool,
}

impl TimeoutBody {
    /// Wraps the body of a request.
    pub(crate) fn new(body: Incoming, max_stall: Duration, expects_continue: bool) -> Self {
        Self { body: Some(body), stall_timer: StallTimer::new(max_stall), expects_continue }
    }
}

impl Drop for TimeoutBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !self.expects_continue && !body.is_end_stream()) else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut rest = Self {
            body: Some(body),
            stall_timer: StallTimer::new(self.stall_timer.max_stall),
            expects_continue: false,
        };
        runtime.spawn(async move {
            let mut remaining = MAX_DRAINED_BYTES;
            let draining = async {
                while remaining > 0
                    && let Some(Ok(frame)) = rest.frame().await
                {
                    remaining = remaining.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
                }
            };
            let _ = timeout(DRAIN_TIMEOUT, draining).await;
            // Prevents another drain on drop.
            drop(rest.body.take());
        });
    }
}

impl Body for TimeoutBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // Polling the body sends `100 Continue`.
        self.expects_continue = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(frame) => {
                let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref().map(Bytes::len));
                self.stall_timer.record_progress(bytes.unwrap_or_default());
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                ready!(self.stall_timer.poll_stalled(context));
                metrics::counter!("gable_slow_clients_total", "direction" => "in").increment(1);
                // Dropped here, so that it is not drained.
                drop(self.body.take());
                Poll::Ready(Some(Err(too_slow().into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

/// A connection whose writes fail if the client stalls.
pub(crate) struct TimeoutStream<S> {
    stream: S,
    stall_timer: StallTimer,
}

impl<S> TimeoutStream<S> {
    pub(crate) fn new(stream: S, max_stall: Duration) -> Self {
        Self { stream, stall_timer: StallTimer::new(max_stall) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(written) => {
                self.stall_timer.record_progress(written.as_ref().copied().unwrap_or_default());
                Poll::Ready(written)
            }
            Poll::Pending => {
                ready!(self.stall_timer.poll_stalled(context));
                metrics::counter!("gable_slow_clients_total", "direction" => "out").increment(1);
                Poll::Ready(Err(too_slow()))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::sleep,
    };

    use super::*;

    const MAX_STALL: Duration = Duration::from_secs(60);

    /// Sends 1 MiB to a client that reads `bytes` after each pause; returns the outcome and the elapsed time.
    async fn send_to(bytes: usize, pause: Duration) -> (io::Result<()>, Duration) {
        let (mut client, server) = tokio::io::duplex(1024);
        let reading = tokio::spawn(async move {
            let mut piece = vec![0; bytes];
            while client.read_exact(&mut piece).await.is_ok() {
                sleep(pause).await;
            }
        });
        let start = Instant::now();
        let mut server = TimeoutStream::new(server, MAX_STALL);
        let sent = server.write_all(&vec![0; 1 << 20]).await;
        reading.abort();
        (sent, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_too_slowly_is_disconnected() {
        let (sent, after) = send_to(1, Duration::from_secs(1)).await;
        assert_eq!(sent.expect_err("cut").kind(), io::ErrorKind::TimedOut);
        assert!(after < MAX_STALL * 2, "{after:?}");
        let (sent, _) = send_to(1, Duration::from_secs(3600)).await;
        assert_eq!(sent.expect_err("cut").kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_but_steady_client_receives_everything() {
        let (sent, after) = send_to(2_000, Duration::from_secs(1)).await;
        sent.expect("sent");
        assert!(after > MAX_STALL * 5, "{after:?}");
    }
}
