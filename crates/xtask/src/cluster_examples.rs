//! Validates the files of `examples/cluster` with the programs and schemas that they are for.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use crate::{
    python,
    steps::{self, TestCounts},
    system::{self, HAPROXY, PYTHON},
    temp_folder::TempFolder,
    workspace,
};

/// Validates all files; each counts as one test.
pub(crate) fn run() -> Result<TestCounts> {
    system::install_missing(&[HAPROXY, PYTHON])?;
    let requirements = workspace::root().join("tests/examples/requirements.txt");
    let python = python::environment("venv-examples", &requirements)?;
    let examples = workspace::root().join("examples/cluster");
    let mut counts = TestCounts::default();
    for (name, outcome) in [
        ("haproxy.cfg", check_haproxy(&examples.join("haproxy.cfg"))),
        ("compose.yaml", check_compose(&python, &examples.join("compose.yaml"))),
        ("kubernetes.yaml", check_kubernetes(&python, &examples.join("kubernetes.yaml"))),
    ] {
        match outcome {
            Ok(()) => counts.passed += 1,
            Err(error) => {
                println!("{name}: {error:#}");
                counts.failed += 1;
            }
        }
    }
    Ok(counts)
}

/// Lets haproxy read its configuration; warnings are errors.
fn check_haproxy(path: &Path) -> Result<()> {
    let folder = TempFolder::new("gable-haproxy")?;
    let copy = folder.path().join("haproxy.cfg");
    fs::write(&copy, with_addresses(&workspace::read(path)?))
        .with_context(|| format!("cannot write {}", copy.display()))?;
    let mut haproxy = Command::new("haproxy");
    steps::run(haproxy.args(["-c", "-dW", "-f"]).arg(&copy).stdout(Stdio::null()))
}

/// Replaces the names of the nodes, which haproxy resolves when it reads its configuration.
fn with_addresses(configuration: &str) -> String {
    (1..=3).fold(configuration.to_owned(), |text, node| text.replace(&format!(" node{node}:"), " 127.0.0.1:"))
}

/// Validates a file against the schema of the compose specification.
fn check_compose(python: &Path, path: &Path) -> Result<()> {
    let mut validator = Command::new(python.with_file_name("check-jsonschema"));
    steps::run(validator.args(["--builtin-schema", "vendor.compose-spec"]).arg(path))
}

/// Validates each resource of a file against its schema in Kubernetes; unknown fields are errors.
fn check_kubernetes(python: &Path, path: &Path) -> Result<()> {
    let mut validator = Command::new(python.with_file_name("kubernetes-validate"));
    steps::run(validator.arg("--strict").arg(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_addresses_of_nodes_are_replaced() {
        assert_eq!(
            with_addresses("server node1 node1:8080\nserver node3 node3:2222 check\nserver node4 node4:80\n"),
            "server node1 127.0.0.1:8080\nserver node3 127.0.0.1:2222 check\nserver node4 node4:80\n"
        );
    }
}
