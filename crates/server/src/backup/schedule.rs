//! Scheduled backups.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::{error, info, warn};

use super::{
    capture,
    folder::{BackupFolder, NewSnapshot, parse_time},
    manifest::ManifestSummary,
    progress::Progress,
    source::BackupSource,
};
use crate::{config::Backups, exit::message};

/// The maximum number of damaged files and of missing files that are logged.
const MAX_REPORTED_DAMAGE: usize = 20;
/// The file in the data folder that records which backup folder has been used.
const FOLDER_NOTE: &str = "backup-folder";
/// The delay before a failed backup is retried.
const RETRY_DELAY: SignedDuration = SignedDuration::from_mins(15);

/// Starts the scheduler. On `stop` a running backup is cancelled and removed.
pub(crate) fn start(backups: Backups, source: BackupSource, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut not_before = Timestamp::now();
        while !*stop.borrow() {
            let now = Timestamp::now();
            let due = next_due(&backups, now).max(not_before);
            let wait = due.duration_since(now).max(SignedDuration::ZERO).unsigned_abs();
            // Checked again every hour: the clock may jump, and other processes may write to the folder.
            let _ = timeout(wait.min(Duration::from_secs(3600)), stop.changed()).await;
            if *stop.borrow() || Timestamp::now() < due {
                continue;
            }
            match back_up_on_thread(backups.clone(), source.clone(), &mut stop).await {
                Ok(true) => {}
                // Another process is making a backup.
                Ok(false) => not_before = Timestamp::now() + SignedDuration::from_mins(1),
                Err(error) => {
                    metrics::counter!("gable_backup_failures_total").increment(1);
                    let error = message(&error);
                    error!(%error, folder = %backups.folder.display(), "backup failed; retrying later");
                    not_before = Timestamp::now() + RETRY_DELAY;
                }
            }
        }
    })
}

/// Returns when the next backup is due: one interval after the newest one. Backups dated in the future are ignored,
/// because otherwise none would be made until then.
fn next_due(backups: &Backups, now: Timestamp) -> Timestamp {
    let names = BackupFolder::open(&backups.folder).and_then(|folder| folder.classify_names());
    let newest = names.ok().and_then(|names| parse_time(names.past.last()?));
    newest.map_or(now, |newest| newest.min(now) + backups.every)
}

/// Makes a backup on its own thread, because it blocks for long; returns `false` if another process makes one.
async fn back_up_on_thread(backups: Backups, source: BackupSource, stop: &mut watch::Receiver<bool>) -> Result<bool> {
    let ended = Arc::new(AtomicBool::new(false));
    let (done, mut waiting) = oneshot::channel();
    let flag = Arc::clone(&ended);
    std::thread::Builder::new()
        .name("backup".into())
        .spawn(move || drop(done.send(back_up(&backups, &source, &flag))))
        .context("cannot start a thread")?;
    loop {
        tokio::select! {
            made = &mut waiting => return made.unwrap_or_else(|_| Err(anyhow!("the backup thread panicked"))),
            _ = stop.wait_for(|stop| *stop), if !ended.load(Ordering::Relaxed) => ended.store(true, Ordering::Relaxed),
        }
    }
}

/// Returns an error if the folder contained backups before and does not now: its disk is probably not mounted, and a new
/// backup would fill the wrong disk.
fn ensure_same_disk(backups: &Backups, source: &BackupSource) -> Result<()> {
    let note = source.folder().join(FOLDER_NOTE);
    let remembered = fs::read(&note).is_ok_and(|folder| folder == backups.folder.as_os_str().as_encoded_bytes());
    if remembered && BackupFolder::open(&backups.folder).is_err() {
        let (folder, note) = (backups.folder.display(), note.display());
        bail!("{folder} contained backups before and does not now; mount its disk, or remove {note} to start over");
    }
    Ok(())
}

fn back_up(backups: &Backups, source: &BackupSource, stop: &AtomicBool) -> Result<bool> {
    // Several servers may share a database; one of them makes the backup, and for the others it is no longer due.
    let Some(_lock) = store::dump::BackupLock::try_acquire(&source.database)? else {
        return Ok(false);
    };
    if next_due(backups, Timestamp::now()) > Timestamp::now() {
        return Ok(false);
    }
    let start = Instant::now();
    ensure_same_disk(backups, source)?;
    let folder = BackupFolder::open_or_create(&backups.folder)?;
    let mut new_snapshot = NewSnapshot::new(&folder)?;
    let made = capture::copy(source, &mut new_snapshot, &mut Progress::new(true), stop);
    let summary = match made {
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(false),
        made => made?,
    };
    if let Err(error) = super::ensure_complete(&summary) {
        metrics::counter!("gable_backup_failures_total").increment(1);
        for missing in summary.missing.iter().take(MAX_REPORTED_DAMAGE) {
            error!(folder = %backups.folder.display(), "missing file: {missing}");
        }
        for damage in summary.damaged.iter().take(MAX_REPORTED_DAMAGE) {
            error!(folder = %backups.folder.display(), "damaged file: {damage}");
        }
        error!(folder = %backups.folder.display(), "{error}");
        return Ok(true);
    }
    let ManifestSummary { rows, repositories, members, bytes, left_out, .. } = summary;
    if let Err(error) = fs::write(source.folder().join(FOLDER_NOTE), backups.folder.as_os_str().as_encoded_bytes()) {
        warn!(%error, "cannot record that {} contains backups", backups.folder.display());
    }
    // A failure to remove old backups does not invalidate the new one.
    let removed = new_snapshot.prune(backups.keep).unwrap_or_else(|error| {
        error!(error = %message(&error), folder = %backups.folder.display(), "cannot remove old backups");
        0
    });
    for warning in &new_snapshot.warnings {
        warn!(folder = %backups.folder.display(), "{warning}");
    }
    #[expect(clippy::cast_precision_loss, reason = "a metric needs no 53rd bit")]
    metrics::gauge!("gable_backup_last_success_seconds").set(Timestamp::now().as_second() as f64);
    metrics::gauge!("gable_backup_duration_seconds").set(start.elapsed().as_secs_f64());
    info!(
        folder = %backups.folder.display(),
        rows = rows.values().sum::<u64>(),
        repositories,
        files = members,
        bytes,
        bytes_added = new_snapshot.bytes_added,
        left_out = left_out.len(),
        removed,
        seconds = start.elapsed().as_secs(),
        "made a backup"
    );
    Ok(true)
}
