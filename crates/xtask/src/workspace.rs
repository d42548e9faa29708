//! The paths and files of the workspace, and cargo commands.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

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

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Builds a folder unless its stamp file says that it is up to date.
pub(crate) fn rebuild_if_stale(folder: &Path, stamp: &str, build: impl FnOnce() -> Result<()>) -> Result<()> {
    let path = folder.join("stamp");
    if fs::read_to_string(&path).is_ok_and(|current| current == stamp) {
        return Ok(());
    }
    build()?;
    fs::write(&path, stamp).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns whether the server has an integration test whose path starts with `prefix`, such as
/// `crash::jobs::no_job_is_lost`, or `crash::jobs::` for any test of the module.
#[cfg(test)]
pub(crate) fn has_integration_test(prefix: &str) -> bool {
    let Some((module, name)) = prefix.rsplit_once("::") else { return false };
    let Some((folder, file)) = module.rsplit_once("::") else { return false };
    let read = |path: &str| {
        let path = root().join("crates/server/tests/it").join(path).with_extension("rs");
        fs::read_to_string(path).unwrap_or_default()
    };
    let folder = folder.replace("::", "/");
    has_module(&read(&format!("{folder}/mod")), file) && has_test(&read(&format!("{folder}/{file}")), name)
}

/// Returns whether a source declares a module.
#[cfg(test)]
fn has_module(source: &str, name: &str) -> bool {
    source.lines().any(|line| line.ends_with(&format!("mod {name};")))
}

/// Returns whether a source has a test function whose name starts with `prefix`.
#[cfg(test)]
fn has_test(source: &str, prefix: &str) -> bool {
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else {
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if is_test && name.is_some_and(|name| name.starts_with(prefix)) {
                return true;
            }
            is_test = false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_the_start_of_their_name() {
        let source =
            "fn helper() {}\n\n#[tokio::test(flavor = \"multi_thread\")]\n#[ignore]\nasync fn pushes_are_kept() {}\n";
        let check = |prefix, expected| assert_eq!(has_test(source, prefix), expected, "{prefix}");
        check("", true);
        check("pushes_are_kept", true);
        check("pushes_are_lost", false);
        check("helper", false);
        assert!(!has_test("fn helper() {}\n", ""), "a module without tests");
    }

    #[test]
    fn a_test_is_in_a_module_that_is_compiled() {
        assert!(has_module("mod jobs;\npub(crate) mod pushes;\n", "pushes"));
        assert!(!has_module("mod jobs;\n", "job"));
        assert!(has_integration_test("crash::jobs::"));
        assert!(!has_integration_test("crash::campaign::"), "it has no tests");
        assert!(!has_integration_test("crash::jobs::no_such_test"));
        assert!(!has_integration_test("crash::no_such_module::"));
    }
}
