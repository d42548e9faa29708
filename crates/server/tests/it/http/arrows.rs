//! Arrows point down: which crate may know which, and what a crate must not know at all.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// What each crate of ours may depend on, in its own right.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("trust", &[]),
    ("store", &["model", "trust"]),
    ("files", &[]),
    ("ci", &["model"]),
    ("git", &["model"]),
    ("forge", &["ci", "files", "git", "model", "store"]),
    ("api", &["ci", "forge", "model"]),
    ("wire", &["files", "forge", "model"]),
    ("courier", &["forge", "model", "trust"]),
    ("runner", &["trust"]),
    ("server", &["api", "courier", "files", "forge", "git", "model", "runner", "store", "trust", "wire"]),
];

/// What must not be found below a crate, however indirectly.
const ABSENCES: &[(&str, &[&str])] = &[
    ("model", &["serde", "serde_json", "diesel", "axum", "tokio"]),
    ("store", &["axum", "serde_json", "hyper"]),
    ("files", &["axum", "diesel", "hyper", "serde_json"]),
    ("ci", &["axum", "diesel", "hyper", "tokio"]),
    ("git", &["axum", "diesel", "hyper", "serde_json", "tokio"]),
    ("forge", &["axum", "hyper", "tower-http"]),
    ("runner", &["axum", "diesel"]),
];

fn crates() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates lie flat").to_owned()
}

fn manifest_dependencies(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).expect("a manifest");
    let (_, after) = manifest.split_once("[dependencies]").expect("a list of dependencies");
    let own = after.split("\n[").next().unwrap_or_default();
    own.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).map(ToOwned::to_owned).collect()
}

#[test]
fn manifests_draw_only_arrows_that_point_down() {
    let ours: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let expected: BTreeMap<&str, Vec<&str>> = ARROWS.iter().map(|(name, below)| (*name, below.to_vec())).collect();
    let found: BTreeMap<&str, Vec<&str>> = ours
        .iter()
        .map(|name| {
            let listed = manifest_dependencies(name);
            (*name, ours.iter().copied().filter(|other| listed.iter().any(|entry| entry == other)).collect())
        })
        .map(|(name, mut below): (&str, Vec<&str>)| {
            below.sort_unstable();
            (name, below)
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn what_a_crate_must_not_know_is_nowhere_below_it() {
    for (name, absent) in ABSENCES {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--prefix", "none", "--edges", "normal,no-proc-macro", "--package", name])
            .current_dir(crates())
            .output()
            .expect("cargo runs");
        let tree = String::from_utf8(output.stdout).expect("text");
        assert!(tree.starts_with(name), "{}", String::from_utf8_lossy(&output.stderr));
        for line in tree.lines() {
            let found = line.split(' ').next().unwrap_or_default();
            assert!(!absent.contains(&found), "{name} knows {found}");
        }
    }
}

/// Only `store` writes SQL, and only the bridge touches threads.
#[test]
fn sources_keep_to_their_floor() {
    let forbidden = [
        ("forge", "diesel::"),
        // How a job is written down is the planner's own matter.
        ("forge", "serde"),
        ("api", "store::"),
        ("api", "std::thread"),
        ("model", "serde"),
        ("ci", "std::fs"),
        ("ci", "std::net"),
        ("ci", "std::time"),
    ];
    for (name, text) in forbidden {
        let mut folders = vec![crates().join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let source = fs::read_to_string(&path).expect("a source");
                    assert!(!source.contains(text), "{} speaks of {text}", path.display());
                }
            }
        }
    }
}

/// What is shipped starts one program, which is found in one place, and never a shell. The runner is there to start shells:
/// it starts a supervisor, which starts what it is told, and makes network namespaces.
#[test]
fn lesson_04_no_program_is_started_but_git() {
    let finder = fs::read_to_string(crates().join("git/src/child.rs")).expect("a source");
    assert!(finder.contains(r#"map(|folder| folder.join("git"))"#), "git is found elsewhere");
    for name in ["model", "trust", "store", "files", "ci", "git", "forge", "api", "wire", "courier", "runner", "server"]
    {
        let startable: &[&str] = match name {
            "runner" => &["supervisor", "program", "\"unshare\"", "\"slirp4netns\""],
            "git" => &["program("],
            _ => &[],
        };
        let mut folders = vec![crates().join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    // Tests inside a crate are not shipped.
                    if !path.ends_with("tests") {
                        folders.push(path);
                    }
                    continue;
                }
                let source = fs::read_to_string(&path).expect("a source");
                let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
                for call in shipped.split("Command::new(").skip(1) {
                    let started = call.split(')').next().unwrap_or_default();
                    assert!(startable.contains(&started), "{} starts {started}", path.display());
                }
                assert!(!shipped.contains("/bin/sh"), "{} knows a shell", path.display());
            }
        }
    }
}
