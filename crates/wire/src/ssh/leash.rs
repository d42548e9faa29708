//! A connection that can be cut, whatever the other side or the library is waiting for.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A stream that fails once its token is cancelled.
pub(super) struct Leashed<S> {
    stream: S,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    is_cut: bool,
}

impl<S> Leashed<S> {
    pub(super) fn new(stream: S, leash: CancellationToken) -> Self {
        Self { stream, cut: Box::pin(leash.cancelled_owned()), is_cut: false }
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.is_cut = self.is_cut || self.cut.as_mut().poll(context).is_ready();
        if self.is_cut { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Leashed<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Leashed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_cut_connection_wakes_who_waits_for_it() {
        let (mut theirs, ours) = tokio::io::duplex(16);
        let leash = CancellationToken::new();
        let mut ours = Leashed::new(ours, leash.clone());
        theirs.write_all(b"hello").await.expect("written");
        let mut text = [0; 5];
        ours.read_exact(&mut text).await.expect("read");
        assert_eq!(&text, b"hello");
        let mut waiting = tokio::spawn(async move { (ours.read_u8().await, ours) });
        tokio::task::yield_now().await;
        assert!((&mut waiting).now_or_never().is_none());
        leash.cancel();
        let (read, mut ours) = waiting.await.expect("no panic");
        assert_eq!(read.expect_err("cut").kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(ours.write_u8(1).await.expect_err("cut").kind(), io::ErrorKind::ConnectionAborted);
    }
}
