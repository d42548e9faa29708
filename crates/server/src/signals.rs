//! The signals that stop the server and the runner.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};

/// The exit status after a second signal, as in shells after SIGINT.
const INTERRUPTED_EXIT_CODE: i32 = 130;

/// Returns a future that completes on SIGTERM or SIGINT; a second signal exits at once.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("cannot handle signals");
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
            std::process::exit(INTERRUPTED_EXIT_CODE);
        });
    })
}
