//! The data folder itself: who owns it, who may look into it, how much room there is around it.

use std::{
    fs::{self, OpenOptions, Permissions},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use forge::{disk_space::Room, doctor::Finding};

use crate::permissions;

/// Of so much of the disk it is said that it becomes scarce, in percent.
const SCARCE: u64 = 5;

/// Looks at the folder; puts permissions right if that is asked for.
pub(super) fn examine(folder: &Path, least_free: u64, fix: bool) -> Vec<Finding> {
    let mut findings = vec![writable(folder), owner(folder)];
    findings.extend(permissions(folder, fix));
    findings.extend(room(folder, least_free));
    findings.extend(clock(folder));
    findings
}

fn writable(folder: &Path) -> Finding {
    const CHECK: &str = "data folder";
    let trial = folder.join(format!("doctor-{}.new", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).open(&trial).and_then(|_| fs::remove_file(&trial));
    match written {
        Ok(()) => Finding::fine(CHECK, format!("{} is there and can be written to", folder.display())),
        Err(error) => Finding::problem(
            CHECK,
            format!("{} cannot be written to: {error}", folder.display()),
            "run this as the user that runs the server, and see that the disk is mounted for writing",
        ),
    }
}

/// Everything at the top of the folder belongs to whoever runs this, or the server could not use it.
fn owner(folder: &Path) -> Finding {
    const CHECK: &str = "owner";
    let me = rustix::process::geteuid().as_raw();
    let strange = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|data| data.uid() != me);
    let mut paths = vec![folder.to_owned()];
    paths.extend(entries(folder));
    paths.retain(strange);
    if paths.is_empty() {
        return Finding::fine(CHECK, "everything belongs to the user that runs this");
    }
    let names: Vec<String> = paths.iter().take(5).map(|path| path.display().to_string()).collect();
    Finding::problem(
        CHECK,
        format!("{} things belong to another user than number {me}, such as {}", paths.len(), names.join(", ")),
        "run this as the user that runs the server, or give them to that user with chown -R",
    )
}

fn permissions(folder: &Path, fix: bool) -> Vec<Finding> {
    const CHECK: &str = "permissions";
    let mut findings = Vec::new();
    for open in permissions::open_to_others(folder) {
        let finding = Finding::problem(CHECK, open.problem(), open.remedy());
        // What a link leads to is the operator's, the folder itself aside.
        let is_ours = open.path == folder || fs::symlink_metadata(&open.path).is_ok_and(|data| !data.is_symlink());
        let done = fix && is_ours && fs::set_permissions(&open.path, Permissions::from_mode(open.wanted)).is_ok();
        findings.push(if done { finding.fixed() } else { finding });
    }
    if findings.is_empty() {
        findings.push(Finding::fine(CHECK, "nobody else may look at what is secret"));
    }
    findings
}

/// What was being written when something was interrupted; it is moved to a place if one is given.
pub(super) fn leftovers(folder: &Path, place: Option<&PathBuf>) -> Finding {
    const CHECK: &str = "half-written files";
    // A moment ago it may still have been written.
    let is_old = |path: &PathBuf| {
        let age = fs::metadata(path).and_then(|data| data.modified()).map(|time| time.elapsed().unwrap_or_default());
        age.is_ok_and(|age| age > Duration::from_secs(60))
    };
    let mut left = entries(folder);
    left.retain(|path| path.extension().is_some_and(|extension| extension == "new") && is_old(path));
    if left.is_empty() {
        return Finding::fine(CHECK, "there are none");
    }
    let names: Vec<String> = left.iter().map(|path| path.display().to_string()).collect();
    let text = format!("left by something that was interrupted: {}", names.join(", "));
    let finding = Finding::warning(CHECK, text, "move them to lost+found in the data folder");
    let moved = place.is_some_and(|place| {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(place);
        let aside = |path: &PathBuf| fs::rename(path, place.join(path.file_name().unwrap_or_default()));
        made.and_then(|()| left.iter().try_for_each(aside)).is_ok()
    });
    if moved { finding.fixed() } else { finding }
}

/// What is at the top of the folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn room(folder: &Path, least_free: u64) -> Vec<Finding> {
    const CHECK: &str = "free disk";
    let space = match Room::around(folder, 0).space() {
        Ok(space) => space,
        Err(error) => {
            return vec![Finding::warning(CHECK, format!("the disk does not tell: {error}"), "look by other means")];
        }
    };
    let free = space.free_bytes >> 20;
    let text = format!("{free} of {} MiB are free", space.bytes >> 20);
    let of_bytes = if space.free_bytes < least_free {
        let text = format!("{text}, less than min-free-disk asks for ({} MiB)", least_free >> 20);
        Finding::problem(CHECK, text, "make room: pushes and files are refused until then")
    } else if space.free_bytes < space.bytes / 100 * SCARCE {
        Finding::warning(CHECK, text, "make room before it is needed")
    } else {
        Finding::fine(CHECK, text)
    };
    let text = format!("{} of {} files can still be made", space.free_files, space.files);
    let of_files = match space.files {
        0 => Finding::fine("free inodes", "the file system does not count them"),
        all if space.free_files < all / 100 * SCARCE => {
            Finding::warning("free inodes", text, "remove small files, or use a file system with more inodes")
        }
        _ => Finding::fine("free inodes", text),
    };
    vec![of_bytes, of_files]
}

/// Nothing in the folder is from the future.
fn clock(folder: &Path) -> Option<Finding> {
    let time = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    let newest = entries(folder).iter().filter_map(time).max()?;
    let ahead = newest.duration_since(SystemTime::now()).ok()?;
    (ahead > Duration::from_secs(300)).then(|| {
        let text = format!("a file in the data folder was written {} minutes from now", ahead.as_secs() / 60);
        Finding::problem("clock", text, "set the clock of this machine; a service for the time keeps it right")
    })
}
