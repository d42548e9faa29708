//! Limits the cache of a node whose files are in a bucket: local copies of packs, and the folders of repositories that link to
//! them.

use std::{path::PathBuf, time::Duration};

use tokio::sync::watch;
use tracing::{info, warn};

use crate::{Forge, Result, blocking};

/// How often the size of the cache is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The number of repositories that are removed before the size of the cache is computed again.
const BATCH: usize = 16;
/// A repository that was used within this time stays, because it is likely to be used again soon.
const MIN_IDLE: Duration = Duration::from_secs(15 * 60);

/// Keeps the cache below a size until stopped. Does nothing if the files are in a folder.
pub async fn limit_until_stopped(forge: Forge, max_bytes: u64, mut stop: watch::Receiver<bool>) {
    if forge.shared().files.bucket().is_none() || max_bytes == 0 {
        return;
    }
    if let Err(error) = find_folders(&forge).await {
        warn!(%error, "cannot list the repositories in the cache");
    }
    loop {
        match shrink(&forge, max_bytes, MIN_IDLE).await {
            Ok(left) if left > max_bytes => {
                warn!(bytes = left, max_bytes, "the cache is larger than it should be: all of it was used recently");
            }
            Ok(_) => {}
            Err(error) => warn!(%error, "cannot limit the size of the cache"),
        }
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}

/// Finds the folders that earlier processes have left, so that [`shrink`] removes them, before those that are in use.
pub async fn find_folders(forge: &Forge) -> Result<()> {
    let forge = forge.clone();
    blocking::spawn(move || {
        let shared = forge.shared();
        shared.repository_cache.add_unused(shared.repositories.folders()?);
        Ok(())
    })
    .await
}

/// Removes what was not used for longest until the cache has at most `max_bytes`; returns how many bytes are left.
/// Repositories that are in use, or were used within `min_idle`, stay.
pub async fn shrink(forge: &Forge, max_bytes: u64, min_idle: Duration) -> Result<u64> {
    let forge = forge.clone();
    blocking::spawn(move || {
        let shared = forge.shared();
        let Some(bucket) = shared.files.bucket() else { return Ok(0) };
        let (mut removed, mut in_use) = (0, Vec::new());
        let left = loop {
            let left = bucket.shrink_cache(max_bytes)?;
            if left <= max_bytes {
                break left;
            }
            // Several at a time, because the whole cache is listed afterwards.
            let idle = std::iter::from_fn(|| shared.repository_cache.take_idle(min_idle));
            let batch: Vec<PathBuf> = idle.take(BATCH).collect();
            if batch.is_empty() {
                break left;
            }
            for folder in batch {
                match shared.repositories.remove_unused(&folder) {
                    Ok(true) => removed += 1,
                    Ok(false) => in_use.push(folder),
                    Err(error) => {
                        warn!(%error, folder = %folder.display(), "cannot remove a repository from the cache");
                        in_use.push(folder);
                    }
                }
            }
            // Only then are their packs linked nowhere else.
            shared.repositories.empty_trash()?;
        };
        for folder in in_use {
            shared.repository_cache.record_use(folder);
        }
        if removed > 0 {
            info!(repositories = removed, bytes = left, "removed repositories from the cache");
        }
        Ok(left)
    })
    .await
}

/// Removes what interrupted fetches have left.
pub async fn clean_at_start(forge: &Forge) -> Result<()> {
    let forge = forge.clone();
    blocking::spawn(move || match forge.shared().files.bucket() {
        Some(bucket) => Ok(bucket.remove_unfinished_fetches()?),
        None => Ok(()),
    })
    .await
}
