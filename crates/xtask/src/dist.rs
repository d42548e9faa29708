//! `cargo xtask dist`: what others install: an archive, a Debian package, and their checksums.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    machine::{self, BINUTILS},
    steps::{self, Report},
    workspace::{self, cargo},
};

/// The release of cargo-deb that is installed where there is none.
const DEB: &str = "3.8.0";

/// What the archive holds beside the binary and what is made from it: where it lies here, and where there.
const ALONG: &[(&str, &str)] = &[
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("LICENSE-MIT", "LICENSE-MIT"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("docs", "docs"),
    ("examples", "examples"),
    ("packaging/gable.toml", "gable.toml"),
    ("packaging/gable.service", "systemd/gable.service"),
    ("packaging/with-runner.conf", "systemd/with-runner.conf"),
    ("packaging/backups.conf", "systemd/backups.conf"),
    ("packaging/low-ports.conf", "systemd/low-ports.conf"),
    ("packaging/sysusers.conf", "systemd/sysusers.conf"),
];

/// What is to be built.
pub(crate) struct Distribution {
    profile: String,
}

impl Distribution {
    /// Reads the flags.
    pub(crate) fn read(flags: &[String]) -> Outcome<Self> {
        match flags {
            [] => Ok(Self { profile: "release".to_owned() }),
            [flag, profile] if flag == "--profile" => Ok(Self { profile: profile.clone() }),
            _ => Err("dist knows --profile NAME".to_owned()),
        }
    }

    /// Where cargo puts what it builds with the profile.
    fn folder(&self) -> PathBuf {
        workspace::target().join(if self.profile == "dev" { "debug" } else { &self.profile })
    }
}

/// Makes everything, into `xtask/dist` below the build.
pub(crate) fn run(distribution: Distribution) -> Outcome {
    let mut report = Report::default();
    let folder = workspace::kept().join("dist");
    let mut made = Vec::new();
    let built = report.step("build", || {
        machine::provide(&[BINUTILS])?;
        empty(&folder)?;
        let profile = distribution.profile.as_str();
        steps::run(&mut cargo(&["build", "--locked", "--package", "server", "--profile", profile]))
    });
    let prepared = built && report.step("completions, manual pages, licences", || prepare(&distribution.folder()));
    if prepared {
        report.step("archive", || {
            made.push(archive(&distribution, &folder)?);
            Ok(())
        });
        report.step("Debian package", || {
            made.push(debian_package(&distribution, &folder)?);
            Ok(())
        });
        report.step("checksums", || check_sums(&folder, &made));
    }
    report.finish()?;
    println!("{}", folder.display());
    Ok(())
}

/// Lets the binary write what is made from its command line, and lists what is linked into it.
fn prepare(built: &Path) -> Outcome {
    let (folder, gable) = (built.join("packaging"), built.join("gable"));
    empty(&folder.join("completions"))?;
    for (shell, file) in [("bash", "gable.bash"), ("zsh", "_gable"), ("fish", "gable.fish")] {
        let script = steps::read(Command::new(&gable).args(["generate", "completions", shell]))?;
        write(&folder.join("completions").join(file), &script)?;
    }
    let pages = folder.join("man");
    empty(&pages)?;
    steps::run(Command::new(&gable).args(["generate", "man"]).arg(&pages))?;
    write(&folder.join("THIRD-PARTY.txt"), &third_parties()?)?;
    tell_needs(&gable)
}

/// Every crate of others in the binary, with its licence.
fn third_parties() -> Outcome<String> {
    let format = "{p}: {l}";
    let mut tree = cargo(&["tree", "--package", "server", "--edges", "normal", "--prefix", "none", "--format", format]);
    let tree = steps::read(&mut tree)?;
    // Our own crates are shown with their folder.
    let crates: BTreeSet<&str> =
        tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.contains(" (/")).collect();
    let list = crates.into_iter().collect::<Vec<_>>().join("\n");
    Ok(format!("Gable is linked from these crates of others, each under its own licence:\n\n{list}\n"))
}

/// Says which libraries the binary looks for when it starts, and how new a glibc it asks for.
fn tell_needs(gable: &Path) -> Outcome {
    let dynamic = steps::read(Command::new("readelf").args(["--wide", "--dynamic"]).arg(gable))?;
    let libraries: Vec<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
        .collect();
    let versions = steps::read(Command::new("readelf").args(["--wide", "--version-info"]).arg(gable))?;
    let newest = newest_glibc(&versions)
        .map_or_else(|| "no glibc".to_owned(), |(major, minor)| format!("glibc {major}.{minor}"));
    println!("needs {}; {newest} or newer", libraries.join(", "));
    Ok(())
}

/// The highest version of glibc that is asked for.
fn newest_glibc(versions: &str) -> Option<(u32, u32)> {
    let numbers = versions.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    numbers
        .filter_map(|number| {
            let mut parts = number.split('.');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        })
        .max()
}

/// Packs binary, documents and units; the same files make the same bytes.
fn archive(distribution: &Distribution, folder: &Path) -> Outcome<PathBuf> {
    let name = format!("gable-{}-{}", env!("CARGO_PKG_VERSION"), host()?);
    let root = folder.join(&name);
    let built = distribution.folder();
    for place in ["bin", "systemd"] {
        empty(&root.join(place))?;
    }
    let strip = ["--strip-unneeded", "-o"];
    steps::run(Command::new("strip").args(strip).arg(root.join("bin/gable")).arg(built.join("gable")))?;
    let made =
        ["completions", "man", "THIRD-PARTY.txt"].map(|part| (built.join("packaging").join(part), root.join(part)));
    let along = ALONG.iter().map(|(here, there)| (workspace::root().join(here), root.join(there)));
    for (from, to) in made.into_iter().chain(along) {
        steps::run(Command::new("cp").arg("--recursive").arg(from).arg(to))?;
    }
    let list = steps::read(Command::new("find").current_dir(&root).args([".", "-type", "f", "-printf", "%P\n"]))?;
    let mut files: Vec<PathBuf> = list.lines().map(|line| root.join(line)).collect();
    files.sort();
    check_sums(&root, &files)?;
    let path = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.current_dir(folder)
        .args([
            "--create",
            "--use-compress-program=gzip -n",
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=u+w,go=rX",
        ])
        .arg(format!("--mtime=@{}", moment()))
        .arg("--file")
        .arg(&path)
        .arg(&name);
    steps::run(&mut tar)?;
    fs::remove_dir_all(&root).map_err(|error| format!("cannot remove {}: {error}", root.display()))?;
    Ok(path)
}

fn debian_package(distribution: &Distribution, folder: &Path) -> Outcome<PathBuf> {
    let path = folder.join(format!("gable_{}_{}.deb", env!("CARGO_PKG_VERSION"), debian_architecture()?));
    let mut deb = Command::new(cargo_deb()?);
    deb.current_dir(workspace::root())
        .env("CARGO_TARGET_DIR", workspace::target())
        .env("SOURCE_DATE_EPOCH", moment())
        .args(["--package", "server", "--no-build", "--strip", "--no-dbgsym", "--profile", &distribution.profile])
        .arg("--output")
        .arg(&path);
    steps::run(&mut deb)?;
    Ok(path)
}

/// cargo-deb, installed beside the build where there is none.
fn cargo_deb() -> Outcome<PathBuf> {
    let folder = workspace::kept().join("tools");
    let own = folder.join("bin/cargo-deb");
    if let Some(program) = machine::find("cargo-deb").or_else(|| own.is_file().then(|| own.clone())) {
        return Ok(program);
    }
    let mut install = cargo(&["install", "cargo-deb", "--version", DEB, "--locked", "--quiet", "--root"]);
    steps::run(install.arg(&folder))?;
    Ok(own)
}

/// Writes `SHA256SUMS` for files at or below a folder.
fn check_sums(folder: &Path, files: &[PathBuf]) -> Outcome {
    let names: Vec<&Path> = files.iter().map(|file| file.strip_prefix(folder).unwrap_or(file)).collect();
    if names.is_empty() {
        return Err("there is nothing to sum up".to_owned());
    }
    let sums = steps::read(Command::new("sha256sum").current_dir(folder).arg("--").args(&names))?;
    write(&folder.join("SHA256SUMS"), &sums)
}

/// The machine that this is built on and for, as Rust calls it.
fn host() -> Outcome<String> {
    let version = steps::read(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(ToOwned::to_owned).ok_or_else(|| "rustc does not say for what it builds".to_owned())
}

/// The same, as Debian calls it.
fn debian_architecture() -> Outcome<String> {
    Ok(steps::read(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

/// The time that files bear: that of the newest commit, unless told otherwise.
fn moment() -> String {
    if let Ok(told) = std::env::var("SOURCE_DATE_EPOCH") {
        return told;
    }
    let committed = steps::read(Command::new("git").current_dir(workspace::root()).args(["log", "-1", "--format=%ct"]));
    committed.map_or_else(|_| "0".to_owned(), |time| time.trim().to_owned())
}

fn empty(folder: &Path) -> Outcome {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_counts_by_number_and_not_by_letter() {
        assert_eq!(
            newest_glibc("  0x0010: Name: GLIBC_2.34 Flags: none\n Name: GLIBC_2.4\n GLIBC_2.2.5"),
            Some((2, 34))
        );
        assert_eq!(newest_glibc("GLIBC_PRIVATE GCC_3.0"), None);
    }
}
