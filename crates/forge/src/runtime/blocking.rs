//! Blocking disk work of async use cases.

use crate::{Error, Result};

/// Runs blocking disk work on a blocking thread of the async runtime, without a database connection; work that needs one uses
/// [`crate::Forge::run_blocking`].
pub(crate) async fn spawn<T: Send + 'static>(f: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let task = tokio::task::spawn_blocking(f);
    task.await.unwrap_or_else(|error| Err(Error::internal("disk task failed", error)))
}

/// Runs blocking disk work without waiting for it.
pub(crate) fn spawn_detached(f: impl FnOnce() + Send + 'static) {
    drop(tokio::task::spawn_blocking(f));
}
