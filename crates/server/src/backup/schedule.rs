//! Backups that the server makes by itself.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::{error, info, warn};

use super::{
    Sentence,
    capture::{self, Ground},
    folder::{Addition, Folder, time_of},
    manifest::Seal,
    progress::Progress,
};
use crate::config::Backups;

/// How many damaged files are named in the log.
const TOLD: usize = 20;
/// Where it is noted, in the data folder, which folder holds backups already.
const REMEMBERED: &str = "backup-folder";
/// How long it waits before it tries again what did not work.
const PAUSE: SignedDuration = SignedDuration::from_mins(15);

/// Makes backups until told to stop; one under way is ended then, and leaves nothing.
pub(crate) fn start(backups: Backups, ground: Ground, mut stop: watch::Receiver<bool>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut not_before = Timestamp::now();
        while !*stop.borrow() {
            let now = Timestamp::now();
            let due = next_due(&backups, now).max(not_before);
            let wait = due.duration_since(now).max(SignedDuration::ZERO).unsigned_abs();
            // Looked at anew each hour: clocks jump, and others may write to the folder, too.
            let _ = timeout(wait.min(Duration::from_secs(3600)), stop.changed()).await;
            if *stop.borrow() || Timestamp::now() < due {
                continue;
            }
            match on_own_thread(backups.clone(), ground.clone(), &mut stop).await {
                Ok(true) => {}
                // Somebody else is at it.
                Ok(false) => not_before = Timestamp::now() + SignedDuration::from_mins(1),
                Err(error) => {
                    metrics::counter!("gable_backup_failures_total").increment(1);
                    error!(%error, folder = %backups.folder.display(), "a backup has failed; it is tried again later");
                    not_before = Timestamp::now() + PAUSE;
                }
            }
        }
    })
}

/// When the next backup is due: so long after the newest one that is there. What a wrong clock has dated ahead does not
/// count, or there would be none until then.
fn next_due(backups: &Backups, now: Timestamp) -> Timestamp {
    let names = Folder::open(&backups.folder).and_then(|folder| folder.names_by_time());
    let newest = names.ok().and_then(|names| time_of(names.past.last()?));
    newest.map_or(now, |newest| newest.min(now) + backups.every)
}

/// Makes one, unless somebody else does. It takes long and waits for disks, so it happens where nobody else is.
async fn on_own_thread(backups: Backups, ground: Ground, stop: &mut watch::Receiver<bool>) -> Result<bool, Sentence> {
    let ended = Arc::new(AtomicBool::new(false));
    let (done, mut waiting) = oneshot::channel();
    let flag = Arc::clone(&ended);
    std::thread::Builder::new()
        .name("backup".into())
        .spawn(move || drop(done.send(make_one(&backups, &ground, &flag))))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    loop {
        tokio::select! {
            made = &mut waiting => return made.unwrap_or_else(|_| Err("whoever makes backups has died".into())),
            _ = stop.wait_for(|stop| *stop), if !ended.load(Ordering::Relaxed) => ended.store(true, Ordering::Relaxed),
        }
    }
}

/// A folder that held backups and holds none now is the place where a disk should be. To begin anew there would fill the wrong
/// one, and pass for a backup.
fn refuse_other_disk(backups: &Backups, ground: &Ground) -> Result<(), Sentence> {
    let note = ground.data.join(REMEMBERED);
    let remembered = fs::read(&note).is_ok_and(|folder| folder == backups.folder.as_os_str().as_encoded_bytes());
    if remembered && Folder::open(&backups.folder).is_err() {
        let (folder, note) = (backups.folder.display(), note.display());
        return Err(format!("{folder} held backups and holds none now; is its disk mounted? If so, remove {note}"));
    }
    Ok(())
}

fn make_one(backups: &Backups, ground: &Ground, stop: &AtomicBool) -> Result<bool, Sentence> {
    // Several nodes may share a database; one of them makes the backup, and the others find that it is not due any more.
    let Some(_alone) = store::copies::Alone::try_take(&ground.database).map_err(|error| error.to_string())? else {
        return Ok(false);
    };
    if next_due(backups, Timestamp::now()) > Timestamp::now() {
        return Ok(false);
    }
    let start = Instant::now();
    refuse_other_disk(backups, ground)?;
    let folder = Folder::make(&backups.folder)?;
    let mut addition = Addition::new(&folder)?;
    let made = capture::copy(ground, &mut addition, &mut Progress::new(true), stop);
    let seal = match made {
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(false),
        made => made?,
    };
    if let Err(sentence) = super::refuse_incomplete(&seal) {
        metrics::counter!("gable_backup_failures_total").increment(1);
        for damage in seal.damaged.iter().take(TOLD) {
            error!(folder = %backups.folder.display(), "a file of the instance is damaged: {damage}");
        }
        error!(folder = %backups.folder.display(), "{sentence}");
        return Ok(true);
    }
    let Seal { rows, repositories, members, bytes, left_out, .. } = seal;
    if let Err(error) = fs::write(ground.data.join(REMEMBERED), backups.folder.as_os_str().as_encoded_bytes()) {
        warn!(%error, "it cannot be noted that there are backups in {}", backups.folder.display());
    }
    // The backup is good whatever becomes of old ones.
    let removed = addition.keep(backups.keep).unwrap_or_else(|error| {
        error!(%error, folder = %backups.folder.display(), "the backup is made, but old ones could not be removed");
        0
    });
    for warning in &addition.warnings {
        warn!(folder = %backups.folder.display(), "{warning}");
    }
    #[expect(clippy::cast_precision_loss, reason = "a time that somebody looks at")]
    metrics::gauge!("gable_backup_last_success_seconds").set(Timestamp::now().as_second() as f64);
    metrics::gauge!("gable_backup_duration_seconds").set(start.elapsed().as_secs_f64());
    info!(
        folder = %backups.folder.display(),
        rows = rows.values().sum::<u64>(),
        repositories,
        files = members,
        bytes,
        bytes_added = addition.added,
        left_out = left_out.len(),
        removed,
        seconds = start.elapsed().as_secs(),
        "made a backup"
    );
    Ok(true)
}
