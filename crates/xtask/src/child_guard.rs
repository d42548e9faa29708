//! Child processes that must not outlive xtask.

use std::{ffi::OsStr, process::Command};

use crate::system;

/// Returns a command whose process receives the signal when xtask exits for any reason.
///
/// `setpriv` executes the program in its own process, so the spawned child is the program itself.
pub(crate) fn guarded(signal: &str, program: impl AsRef<OsStr>) -> Command {
    if system::find("setpriv").is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]).arg(program);
    command
}

/// Like [`guarded`], but runs as another user; requires root.
pub(crate) fn guarded_as(user: &str, signal: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", &system::group_of(user), "--init-groups"]);
    command.args(["--pdeathsig", signal]).arg(program);
    command
}
