//! Programs that must not outlive us.

use std::{ffi::OsStr, process::Command};

use crate::machine;

/// A program that gets the signal as soon as we are gone, however we went.
///
/// The program takes the place of `setpriv`, so the child that is spawned is the program itself.
pub(crate) fn leashed(signal: &str, program: impl AsRef<OsStr>) -> Command {
    if machine::find("setpriv").is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal]).arg(program);
    command
}

/// The same, as another user; only for root.
pub(crate) fn leashed_as(user: &str, signal: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", &machine::group_of(user), "--init-groups"]);
    command.args(["--pdeathsig", signal]).arg(program);
    command
}
