//! Where things lie, and cargo itself.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Where cargo builds, wherever it was told to.
pub(crate) fn target() -> PathBuf {
    let built = std::env::current_exe().ok();
    let target = built.as_deref().and_then(|program| program.ancestors().nth(2));
    target.map_or_else(|| root().join("target"), Path::to_owned)
}

/// What the chores keep between runs.
pub(crate) fn kept() -> PathBuf {
    target().join("xtask")
}

/// A program of ours.
pub(crate) fn program(profile: &str, name: &str) -> PathBuf {
    target().join(profile).join(name)
}

/// Cargo in the folder of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_settings(&mut cargo);
    cargo.current_dir(root()).args(arguments);
    cargo
}

/// Removes variables that change what is built or tested.
pub(crate) fn forget_settings(command: &mut Command) {
    // The cargo that runs us speaks of us in these; crates that watch them would be built anew, each way, each time.
    // And the tests must see the database that a step chose, or none, never one from the shell.
    let foreign = ["CARGO_MANIFEST_", "CARGO_PKG_", "GABLE_"];
    for (name, _) in std::env::vars_os() {
        if foreign.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}
