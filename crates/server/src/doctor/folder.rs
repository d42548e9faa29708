//! Checks of the data folder itself: owner, permissions, disk space, clock.

use std::{
    fs::{self, OpenOptions, Permissions},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use forge::{disk_space::DiskSpace, doctor::Finding};

use crate::permissions;

/// Free space below this percentage is reported as low.
const LOW_DISK_PERCENT: u64 = 5;

/// Checks the folder; fixes permissions if `fix` is set.
pub(super) fn examine(folder: &Path, min_free: u64, fix: bool) -> Vec<Finding> {
    let mut findings = vec![check_writable(folder), check_owner(folder)];
    findings.extend(permissions(folder, fix));
    findings.extend(check_disk_space(folder, min_free));
    findings.extend(check_clock(folder));
    findings
}

fn check_writable(folder: &Path) -> Finding {
    const CHECK: &str = "data folder";
    let probe = folder.join(format!("doctor-{}.new", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).open(&probe).and_then(|_| fs::remove_file(&probe));
    match written {
        Ok(()) => Finding::ok(CHECK, format!("{} is writable", folder.display())),
        Err(error) => Finding::problem(
            CHECK,
            format!("{} is not writable: {error}", folder.display()),
            "run gable doctor as the user that runs the server, and check that the disk is not mounted read-only",
        ),
    }
}

/// Checks that the user that runs this owns everything at the top level of the folder.
fn check_owner(folder: &Path) -> Finding {
    const CHECK: &str = "owner";
    let uid = rustix::process::geteuid().as_raw();
    let has_other_owner = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|data| data.uid() != uid);
    let mut paths = vec![folder.to_owned()];
    paths.extend(entries(folder));
    paths.retain(has_other_owner);
    if paths.is_empty() {
        return Finding::ok(CHECK, "all files belong to the current user");
    }
    let names: Vec<String> = paths.iter().take(5).map(|path| path.display().to_string()).collect();
    Finding::problem(
        CHECK,
        format!("{} files do not belong to user id {uid}, such as {}", paths.len(), names.join(", ")),
        "run gable doctor as the user that runs the server, or change the owner with `chown -R`",
    )
}

fn permissions(folder: &Path, fix: bool) -> Vec<Finding> {
    const CHECK: &str = "permissions";
    let mut findings = Vec::new();
    for exposed in permissions::exposed_paths(folder) {
        let finding = Finding::problem(CHECK, exposed.problem(), exposed.remedy());
        // The target of a symbolic link is not changed, except for the folder itself.
        let is_ours =
            exposed.path == folder || fs::symlink_metadata(&exposed.path).is_ok_and(|data| !data.is_symlink());
        let done =
            fix && is_ours && fs::set_permissions(&exposed.path, Permissions::from_mode(exposed.wanted_mode)).is_ok();
        findings.push(if done { finding.fixed() } else { finding });
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no secrets are accessible to other users"));
    }
    findings
}

/// Reports files that an interrupted write left; moves them to `lost_and_found`, if given.
pub(super) fn find_leftovers(folder: &Path, lost_and_found: Option<&PathBuf>) -> Finding {
    const CHECK: &str = "half-written files";
    // A recent file may still be being written.
    let is_old = |path: &PathBuf| {
        let age = fs::metadata(path).and_then(|data| data.modified()).map(|time| time.elapsed().unwrap_or_default());
        age.is_ok_and(|age| age > Duration::from_secs(60))
    };
    let mut leftovers = entries(folder);
    leftovers.retain(|path| path.extension().is_some_and(|extension| extension == "new") && is_old(path));
    if leftovers.is_empty() {
        return Finding::ok(CHECK, "none");
    }
    let names: Vec<String> = leftovers.iter().map(|path| path.display().to_string()).collect();
    let text = format!("left by an interrupted write: {}", names.join(", "));
    let finding = Finding::warning(CHECK, text, "move them to lost+found in the data folder");
    let moved = lost_and_found.is_some_and(|lost_and_found| {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(lost_and_found);
        let aside = |path: &PathBuf| fs::rename(path, lost_and_found.join(path.file_name().unwrap_or_default()));
        made.and_then(|()| leftovers.iter().try_for_each(aside)).is_ok()
    });
    if moved { finding.fixed() } else { finding }
}

/// Returns the entries at the top level of the folder, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn check_disk_space(folder: &Path, min_free: u64) -> Vec<Finding> {
    const CHECK: &str = "free disk";
    let space = match DiskSpace::new(folder, 0).usage() {
        Ok(space) => space,
        Err(error) => {
            return vec![Finding::warning(
                CHECK,
                format!("cannot determine the free space: {error}"),
                "check it with `df`",
            )];
        }
    };
    let free = space.free_bytes >> 20;
    let text = format!("{free} of {} MiB are free", space.bytes >> 20);
    let of_bytes = if space.free_bytes < min_free {
        let text = format!("{text}, less than min-free-disk ({} MiB)", min_free >> 20);
        Finding::problem(CHECK, text, "free disk space: pushes and uploads are refused until then")
    } else if space.free_bytes < space.bytes / 100 * LOW_DISK_PERCENT {
        Finding::warning(CHECK, text, "free disk space")
    } else {
        Finding::ok(CHECK, text)
    };
    let text = format!("{} of {} inodes are free", space.free_files, space.files);
    let of_files = match space.files {
        0 => Finding::ok("free inodes", "the file system has no limit"),
        all if space.free_files < all / 100 * LOW_DISK_PERCENT => {
            Finding::warning("free inodes", text, "remove small files, or use a file system with more inodes")
        }
        _ => Finding::ok("free inodes", text),
    };
    vec![of_bytes, of_files]
}

/// Reports files with a modification time in the future.
fn check_clock(folder: &Path) -> Option<Finding> {
    let time = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    let newest = entries(folder).iter().filter_map(time).max()?;
    let ahead = newest.duration_since(SystemTime::now()).ok()?;
    (ahead > Duration::from_secs(300)).then(|| {
        let text = format!("a file in the data folder is dated {} minutes in the future", ahead.as_secs() / 60);
        Finding::problem("clock", text, "set the clock of this machine, for example with NTP")
    })
}
