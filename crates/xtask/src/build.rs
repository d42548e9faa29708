//! Builds the programs and tests that all steps use.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{steps, workspace::cargo};

/// A compiled test binary.
pub(crate) struct TestBinary {
    pub(crate) package: String,
    pub(crate) path: PathBuf,
}

/// Builds all tests, and the programs that they and the cluster need, once for all steps.
///
/// Selecting other packages would select other features of dependencies and rebuild most of them. These arguments
/// select the features of `cargo test --workspace`, which builds a program only if its package has integration tests.
pub(crate) fn build() -> Result<Vec<TestBinary>> {
    let messages = "--message-format=json-render-diagnostics";
    let programs = ["--bin", "gable", "--bin", "cluster", "--bin", "test-bucket"];
    let output = steps::read(cargo(&["build", "--workspace", "--tests", messages]).args(programs))?;
    Ok(output.lines().filter_map(parse_test_binary).collect())
}

/// Parses a message of cargo; `None` if it is not about a test binary.
fn parse_test_binary(message: &str) -> Option<TestBinary> {
    let field = |name: &str| {
        let (_, rest) = message.split_once(&format!("\"{name}\":\""))?;
        rest.split_once('"').map(|(value, _)| value)
    };
    if field("reason") != Some("compiler-artifact") || !message.contains("\"test\":true},\"features\"") {
        return None;
    }
    let package = Path::new(field("manifest_path")?).parent()?.file_name()?.to_str()?.to_owned();
    Some(TestBinary { package, path: field("executable")?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_found_in_the_messages_of_cargo() {
        let message = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/src/crates/wire/Cargo.toml\",\"target\":\
                 {{\"kind\":[\"lib\"],\"test\":true}},\"profile\":{{\"opt_level\":\"0\",\"test\":{test}}},\
                 \"features\":[],\"executable\":{executable},\"fresh\":true}}"
            )
        };
        let found = parse_test_binary(&message(true, "\"/target/debug/deps/wire-1\"")).expect("a program");
        assert_eq!((found.package.as_str(), found.path.as_path()), ("wire", Path::new("/target/debug/deps/wire-1")));
        assert!(parse_test_binary(&message(false, "\"/target/debug/gable\"")).is_none());
        assert!(parse_test_binary(&message(true, "null")).is_none());
        assert!(parse_test_binary("{\"reason\":\"build-finished\",\"success\":true}").is_none());
    }
}
