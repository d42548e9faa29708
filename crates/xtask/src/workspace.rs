//! The paths of the workspace, and cargo commands.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Returns the target folder of cargo.
pub(crate) fn target() -> PathBuf {
    let executable = std::env::current_exe().ok();
    let target = executable.as_deref().and_then(|program| program.ancestors().nth(2));
    target.map_or_else(|| root().join("target"), Path::to_owned)
}

/// Returns the folder for files that are kept between runs.
pub(crate) fn cache_folder() -> PathBuf {
    target().join("xtask")
}

/// Returns the path of a program that cargo has built.
pub(crate) fn program(profile: &str, name: &str) -> PathBuf {
    target().join(profile).join(name)
}

/// Returns a cargo command in the root folder.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    remove_build_variables(&mut cargo);
    cargo.current_dir(root()).args(arguments);
    cargo
}

/// Removes environment variables that affect builds and tests.
pub(crate) fn remove_build_variables(command: &mut Command) {
    // The outer cargo sets the first two for xtask; crates that depend on them would be rebuilt each time.
    // Tests must use the database that a step chose, never one from the shell.
    let foreign = ["CARGO_MANIFEST_", "CARGO_PKG_", "GABLE_"];
    for (name, _) in std::env::vars_os() {
        if foreign.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}

/// Returns whether a test of the server whose path starts with `prefix` exists, such as `crash::jobs::no_job_is_lost`.
#[cfg(test)]
pub(crate) fn has_integration_test(prefix: &str) -> bool {
    let Some((module, name)) = prefix.rsplit_once("::") else { return false };
    let file = root().join("crates/server/tests/it").join(module.replace("::", "/")).with_extension("rs");
    std::fs::read_to_string(file).is_ok_and(|source| source.contains(&format!("fn {name}")))
}
