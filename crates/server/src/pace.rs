//! Clients that keep us waiting: nobody may do so for long, nor for ever a little.

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

/// The rate below which a client uses up our patience, in bytes a second: far less than any line that people use.
const FLOOR: u32 = 500;

/// How long somebody has kept us waiting. What they send or take makes good for it, at the slowest rate that is borne.
struct Pace {
    patience: Duration,
    owed: Duration,
    waiting_since: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    fn new(patience: Duration) -> Self {
        Self { patience, owed: Duration::ZERO, waiting_since: None, alarm: None }
    }

    /// So many bytes have moved.
    fn moved(&mut self, bytes: usize) {
        // Usually nobody waits at all, and the clock need not be asked.
        if let Some(since) = self.waiting_since.take() {
            self.owed += since.elapsed();
        }
        if self.owed > Duration::ZERO {
            let paid = Duration::from_secs(1).saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX)) / FLOOR;
            self.owed = self.owed.saturating_sub(paid);
        }
    }

    /// Nothing moves; tells when patience is at its end.
    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let alarm = match (self.waiting_since, &mut self.alarm) {
            (Some(_), Some(alarm)) => alarm,
            (_, alarm) => {
                let now = Instant::now();
                self.waiting_since = Some(now);
                let end = now + self.patience.saturating_sub(self.owed);
                match alarm {
                    Some(alarm) => {
                        alarm.as_mut().reset(end);
                        alarm
                    }
                    none => none.insert(Box::pin(sleep_until(end))),
                }
            }
        };
        alarm.as_mut().poll(context)
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client is too slow")
}

/// How much is still read of a body that nobody wants, and for how long: a client that is sending when the connection is
/// closed loses the answer that says why.
const LINGER: u64 = 64 << 20;
const LINGER_TIME: Duration = Duration::from_secs(30);

/// The body of a request whose client has to keep pace.
pub(crate) struct PacedBody {
    /// There until it is dropped.
    body: Option<Incoming>,
    pace: Pace,
    /// Whether the client waits to be asked for it.
    waits: bool,
}

impl PacedBody {
    /// The body of a request; `waits` if its client sends nothing before it is told to continue.
    pub(crate) fn new(body: Incoming, patience: Duration, waits: bool) -> Self {
        Self { body: Some(body), pace: Pace::new(patience), waits }
    }
}

impl Drop for PacedBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !self.waits && !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut rest = Self { body: Some(body), pace: Pace::new(self.pace.patience), waits: false };
        runtime.spawn(async move {
            let mut left = LINGER;
            let draining = async {
                while left > 0
                    && let Some(Ok(frame)) = rest.frame().await
                {
                    left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
                }
            };
            let _ = timeout(LINGER_TIME, draining).await;
            // Enough of it was read.
            drop(rest.body.take());
        });
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // Whoever asks for it is told to continue.
        self.waits = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(frame) => {
                let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref().map(Bytes::len));
                self.pace.moved(bytes.unwrap_or_default());
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                ready!(self.pace.poll_waiting(context));
                metrics::counter!("gable_slow_clients_total", "direction" => "in").increment(1);
                // Whoever is too slow is not waited for any longer.
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

/// A connection whose client has to take what it asked for.
pub(crate) struct PacedStream<S> {
    stream: S,
    pace: Pace,
}

impl<S> PacedStream<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, pace: Pace::new(patience) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(written) => {
                self.pace.moved(written.as_ref().copied().unwrap_or_default());
                Poll::Ready(written)
            }
            Poll::Pending => {
                ready!(self.pace.poll_waiting(context));
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

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Sends much to somebody who takes so many bytes with each pause; answers how that ends, and after how long.
    async fn send_to(bytes: usize, pause: Duration) -> (io::Result<()>, Duration) {
        let (mut theirs, ours) = tokio::io::duplex(1024);
        let taking = tokio::spawn(async move {
            let mut piece = vec![0; bytes];
            while theirs.read_exact(&mut piece).await.is_ok() {
                sleep(pause).await;
            }
        });
        let start = Instant::now();
        let mut ours = PacedStream::new(ours, PATIENCE);
        let sent = ours.write_all(&vec![0; 1 << 20]).await;
        taking.abort();
        (sent, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_little_for_ever_is_let_go_of() {
        let (sent, after) = send_to(1, Duration::from_secs(1)).await;
        assert_eq!(sent.expect_err("cut").kind(), io::ErrorKind::TimedOut);
        assert!(after < PATIENCE * 2, "{after:?}");
        let (sent, _) = send_to(1, Duration::from_secs(3600)).await;
        assert_eq!(sent.expect_err("cut").kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_slow_but_steady_gets_everything() {
        let (sent, after) = send_to(2_000, Duration::from_secs(1)).await;
        sent.expect("sent");
        assert!(after > PATIENCE * 5, "{after:?}");
    }
}
