//! The layers of the crates: which crate may depend on which, and what a crate must not use at all.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// The direct dependencies of each crate on other crates of the workspace.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("tls", &[]),
    ("store", &["model", "tls"]),
    ("files", &["tls"]),
    ("ci", &["model"]),
    ("git", &["model"]),
    ("forge", &["ci", "files", "git", "model", "store"]),
    ("markup", &["forge", "model"]),
    ("api", &["ci", "forge", "markup", "model"]),
    ("web", &["forge", "markup", "model"]),
    ("wire", &["files", "forge", "model"]),
    ("webhooks", &["forge", "model", "tls"]),
    // The globs of artifacts and caches are those of `changes` and `exists`.
    ("runner", &["ci", "tls"]),
    ("server", &["api", "files", "forge", "git", "model", "runner", "store", "tls", "web", "webhooks", "wire"]),
    // It tests the binary from outside.
    ("cluster", &[]),
];

/// Packages that a crate must not depend on, not even indirectly.
const FORBIDDEN_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("model", &["serde", "serde_json", "diesel", "axum", "tokio"]),
    ("store", &["axum", "serde_json", "hyper"]),
    ("files", &["axum", "diesel"]),
    ("ci", &["axum", "diesel", "hyper", "tokio"]),
    ("git", &["axum", "diesel", "hyper", "serde_json", "tokio"]),
    ("forge", &["axum", "hyper", "tower-http"]),
    ("markup", &["axum", "hyper", "schemars"]),
    ("runner", &["axum", "diesel"]),
    ("web", &["schemars"]),
];

fn crates_dir() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("all crates are in one directory").to_owned()
}

fn manifest_dependencies(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(crates_dir().join(name).join("Cargo.toml")).expect("a manifest");
    let (_, after) = manifest.split_once("[dependencies]").expect("a list of dependencies");
    let own = after.split("\n[").next().unwrap_or_default();
    own.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).map(ToOwned::to_owned).collect()
}

#[test]
fn crates_depend_only_on_lower_layers() {
    let crate_names: Vec<&str> = ALLOWED_DEPENDENCIES.iter().map(|(name, _)| *name).collect();
    let expected: BTreeMap<&str, Vec<&str>> =
        ALLOWED_DEPENDENCIES.iter().map(|(name, dependencies)| (*name, dependencies.to_vec())).collect();
    let found: BTreeMap<&str, Vec<&str>> = crate_names
        .iter()
        .map(|name| {
            let listed = manifest_dependencies(name);
            (*name, crate_names.iter().copied().filter(|other| listed.iter().any(|entry| entry == other)).collect())
        })
        .map(|(name, mut dependencies): (&str, Vec<&str>)| {
            dependencies.sort_unstable();
            (name, dependencies)
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn crates_have_no_forbidden_dependencies() {
    for (name, forbidden) in FORBIDDEN_DEPENDENCIES {
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--offline", "--prefix", "none", "--edges", "normal,no-proc-macro", "--package", name]);
        if ["forge", "markup", "web"].contains(name) {
            // `files` is an HTTP client of S3 stores, which the crates above it do not see.
            tree.args(["--prune", "files"]);
        }
        let output = tree.current_dir(crates_dir()).output().expect("cargo runs");
        let tree = String::from_utf8(output.stdout).expect("text");
        assert!(tree.starts_with(name), "{}", String::from_utf8_lossy(&output.stderr));
        for line in tree.lines() {
            let found = line.split(' ').next().unwrap_or_default();
            assert!(!forbidden.contains(&found), "{name} depends on {found}");
        }
    }
}

/// Only `store` uses SQL, and only the bridge starts threads.
#[test]
fn sources_stay_within_their_layer() {
    let forbidden = [
        ("forge", "diesel::"),
        // The serialization of jobs belongs to `ci`.
        ("forge", "serde"),
        ("api", "store::"),
        ("api", "std::thread"),
        ("markup", "store::"),
        ("markup", "git::"),
        ("markup", "std::thread"),
        ("web", "store::"),
        ("web", "git::"),
        ("web", "std::thread"),
        ("model", "serde"),
        ("ci", "std::fs"),
        ("ci", "std::net"),
        ("ci", "std::time"),
    ];
    for (name, text) in forbidden {
        let mut pending_dirs = vec![crates_dir().join(name).join("src")];
        while let Some(dir) = pending_dirs.pop() {
            for entry in fs::read_dir(dir).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    pending_dirs.push(path);
                } else {
                    let source = fs::read_to_string(&path).expect("a source");
                    assert!(!source.contains(text), "{} contains {text}", path.display());
                }
            }
        }
    }
}

/// The server starts only git, found in one place, and never a shell. The runner exists to start shells: it starts a
/// supervisor, which starts the given program, and creates network namespaces.
#[test]
fn no_program_is_started_but_git() {
    let git_process = fs::read_to_string(crates_dir().join("git/src/git_process.rs")).expect("a source");
    assert!(git_process.contains(r#"map(|folder| folder.join("git"))"#), "git is not found in git_process.rs");
    let crates = [
        "model", "tls", "store", "files", "ci", "git", "forge", "markup", "api", "web", "wire", "webhooks", "runner",
        "server",
    ];
    for name in crates {
        let allowed_programs: &[&str] = match name {
            "runner" => &["supervisor", "program", "\"unshare\"", "\"slirp4netns\""],
            "git" => &["git_path("],
            // Commands of the command-line parser, not programs.
            "server" => &["\"settings\"", "\"setting\""],
            _ => &[],
        };
        let mut pending_dirs = vec![crates_dir().join(name).join("src")];
        while let Some(dir) = pending_dirs.pop() {
            for entry in fs::read_dir(dir).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    // Test modules are not part of the program.
                    if !path.ends_with("tests") {
                        pending_dirs.push(path);
                    }
                    continue;
                }
                let source = fs::read_to_string(&path).expect("a source");
                let code = source.split("#[cfg(test)]").next().unwrap_or_default();
                for call in code.split("Command::new(").skip(1) {
                    let program = call.split(')').next().unwrap_or_default();
                    assert!(allowed_programs.contains(&program), "{} starts {program}", path.display());
                }
                assert!(!code.contains("/bin/sh"), "{} contains a shell", path.display());
            }
        }
    }
}
