//! A stream that can be cancelled, even while the client or the SSH library waits for it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A stream that fails once its token is cancelled.
pub(super) struct CancellableStream<S> {
    stream: S,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    is_cancelled: bool,
}

impl<S> CancellableStream<S> {
    pub(super) fn new(stream: S, cancel: CancellationToken) -> Self {
        Self { stream, cancelled: Box::pin(cancel.cancelled_owned()), is_cancelled: false }
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.is_cancelled = self.is_cancelled || self.cancelled.as_mut().poll(context).is_ready();
        if self.is_cancelled { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CancellableStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CancellableStream<S> {
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
    async fn cancelling_wakes_a_pending_read() {
        let (mut client, server) = tokio::io::duplex(16);
        let cancel = CancellationToken::new();
        let mut server = CancellableStream::new(server, cancel.clone());
        client.write_all(b"hello").await.expect("written");
        let mut text = [0; 5];
        server.read_exact(&mut text).await.expect("read");
        assert_eq!(&text, b"hello");
        let mut waiting = tokio::spawn(async move { (server.read_u8().await, server) });
        tokio::task::yield_now().await;
        assert!((&mut waiting).now_or_never().is_none());
        cancel.cancel();
        let (read, mut server) = waiting.await.expect("no panic");
        assert_eq!(read.expect_err("cut").kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(server.write_u8(1).await.expect_err("cut").kind(), io::ErrorKind::ConnectionAborted);
    }
}
