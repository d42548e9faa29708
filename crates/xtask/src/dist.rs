//! `cargo xtask dist`: builds the release artifacts: an archive, a Debian package, and their checksums.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    steps::{self, Report},
    system::{self, BINUTILS},
    workspace::{self, cargo},
};

/// The version of cargo-deb that is installed if it is missing.
const CARGO_DEB_VERSION: &str = "3.8.0";

/// Further files of the archive: the path in the repository and the path in the archive.
const ARCHIVE_FILES: &[(&str, &str)] = &[
    ("README.md", "README.md"),
    ("ARCHITECTURE.md", "ARCHITECTURE.md"),
    ("CONTRIBUTING.md", "CONTRIBUTING.md"),
    ("SECURITY.md", "SECURITY.md"),
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

/// The options of `dist`.
pub(crate) struct DistOptions {
    profile: String,
}

impl DistOptions {
    /// Reads the flags.
    pub(crate) fn read(flags: &[String]) -> Result<Self> {
        match flags {
            [] => Ok(Self { profile: "release".to_owned() }),
            [flag, profile] if flag == "--profile" => Ok(Self { profile: profile.clone() }),
            _ => Err(anyhow!("unknown flag; dist accepts --profile NAME")),
        }
    }

    /// Returns the output folder of cargo for the profile.
    fn folder(&self) -> PathBuf {
        workspace::target().join(if self.profile == "dev" { "debug" } else { &self.profile })
    }
}

/// Builds everything into `xtask/dist` below the target folder.
pub(crate) fn run(options: DistOptions) -> Result<()> {
    let mut report = Report::default();
    let folder = workspace::cache_folder().join("dist");
    let mut made = Vec::new();
    let built = report.step("build", || {
        system::install_missing(&[BINUTILS])?;
        create_empty(&folder)?;
        let profile = options.profile.as_str();
        steps::run(&mut cargo(&["build", "--locked", "--package", "server", "--profile", profile]))
    });
    let prepared = built && report.step("completions, manual pages, licenses", || prepare(&options.folder()));
    if prepared {
        report.step("archive", || {
            made.push(archive(&options, &folder)?);
            Ok(())
        });
        report.step("Debian package", || {
            made.push(debian_package(&options, &folder)?);
            Ok(())
        });
        report.step("checksums", || write_checksums(&folder, &made));
    }
    report.finish()?;
    println!("{}", folder.display());
    Ok(())
}

/// Generates completions, manual pages and the list of licenses.
fn prepare(built: &Path) -> Result<()> {
    let (folder, gable) = (built.join("packaging"), built.join("gable"));
    create_empty(&folder.join("completions"))?;
    for (shell, file) in [("bash", "gable.bash"), ("zsh", "_gable"), ("fish", "gable.fish")] {
        let script = steps::read(Command::new(&gable).args(["generate", "completions", shell]))?;
        write(&folder.join("completions").join(file), &script)?;
    }
    let pages = folder.join("man");
    create_empty(&pages)?;
    steps::run(Command::new(&gable).args(["generate", "man"]).arg(&pages))?;
    write(&folder.join("THIRD-PARTY.txt"), &third_party_licenses()?)?;
    print_library_requirements(&gable)
}

/// Lists every third-party crate in the binary with its license.
fn third_party_licenses() -> Result<String> {
    let format = "{p}: {l}";
    let mut tree = cargo(&["tree", "--package", "server", "--edges", "normal", "--prefix", "none", "--format", format]);
    let tree = steps::read(&mut tree)?;
    // Cargo prints the folder of workspace crates.
    let crates: BTreeSet<&str> =
        tree.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.contains(" (/")).collect();
    let list = crates.into_iter().collect::<Vec<_>>().join("\n");
    Ok(format!("Gable contains these third-party crates, each under its own license:\n\n{list}\n"))
}

/// Prints the shared libraries and the glibc version that the binary requires.
fn print_library_requirements(gable: &Path) -> Result<()> {
    let dynamic = steps::read(Command::new("readelf").args(["--wide", "--dynamic"]).arg(gable))?;
    let libraries: Vec<&str> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
        .collect();
    let versions = steps::read(Command::new("readelf").args(["--wide", "--version-info"]).arg(gable))?;
    let newest = newest_glibc(&versions)
        .map_or_else(|| "no glibc".to_owned(), |(major, minor)| format!("glibc {major}.{minor}"));
    println!("requires {}; {newest} or newer", libraries.join(", "));
    Ok(())
}

/// Returns the highest required version of glibc.
fn newest_glibc(versions: &str) -> Option<(u32, u32)> {
    let numbers = versions.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    numbers
        .filter_map(|number| {
            let mut parts = number.split('.');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        })
        .max()
}

/// Creates the archive reproducibly: the same files give the same bytes.
fn archive(options: &DistOptions, folder: &Path) -> Result<PathBuf> {
    let name = format!("gable-{}-{}", env!("CARGO_PKG_VERSION"), host()?);
    let root = folder.join(&name);
    let built = options.folder();
    for folder in ["bin", "systemd"] {
        create_empty(&root.join(folder))?;
    }
    let strip = ["--strip-unneeded", "-o"];
    steps::run(Command::new("strip").args(strip).arg(root.join("bin/gable")).arg(built.join("gable")))?;
    let generated =
        ["completions", "man", "THIRD-PARTY.txt"].map(|part| (built.join("packaging").join(part), root.join(part)));
    let copied = ARCHIVE_FILES.iter().map(|(here, there)| (workspace::root().join(here), root.join(there)));
    for (from, to) in generated.into_iter().chain(copied) {
        steps::run(Command::new("cp").arg("--recursive").arg(from).arg(to))?;
    }
    let list = steps::read(Command::new("find").current_dir(&root).args([".", "-type", "f", "-printf", "%P\n"]))?;
    let mut files: Vec<PathBuf> = list.lines().map(|line| root.join(line)).collect();
    files.sort();
    write_checksums(&root, &files)?;
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
        .arg(format!("--mtime=@{}", source_date_epoch()))
        .arg("--file")
        .arg(&path)
        .arg(&name);
    steps::run(&mut tar)?;
    fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    Ok(path)
}

fn debian_package(options: &DistOptions, folder: &Path) -> Result<PathBuf> {
    let path = folder.join(format!("gable_{}_{}.deb", env!("CARGO_PKG_VERSION"), debian_architecture()?));
    let mut deb = Command::new(cargo_deb()?);
    deb.current_dir(workspace::root())
        .env("CARGO_TARGET_DIR", workspace::target())
        .env("SOURCE_DATE_EPOCH", source_date_epoch())
        .args(["--package", "server", "--no-build", "--strip", "--no-dbgsym", "--profile", &options.profile])
        .arg("--output")
        .arg(&path);
    steps::run(&mut deb)?;
    Ok(path)
}

/// Returns the path of cargo-deb; installs it into the cache folder if it is missing.
fn cargo_deb() -> Result<PathBuf> {
    let folder = workspace::cache_folder().join("tools");
    let installed = folder.join("bin/cargo-deb");
    if let Some(program) = system::find("cargo-deb").or_else(|| installed.is_file().then(|| installed.clone())) {
        return Ok(program);
    }
    let mut install = cargo(&["install", "cargo-deb", "--version", CARGO_DEB_VERSION, "--locked", "--quiet", "--root"]);
    steps::run(install.arg(&folder))?;
    Ok(installed)
}

/// Writes `SHA256SUMS` of files below a folder.
fn write_checksums(folder: &Path, files: &[PathBuf]) -> Result<()> {
    let names: Vec<&Path> = files.iter().map(|file| file.strip_prefix(folder).unwrap_or(file)).collect();
    if names.is_empty() {
        bail!("no files to sum");
    }
    let sums = steps::read(Command::new("sha256sum").current_dir(folder).arg("--").args(&names))?;
    write(&folder.join("SHA256SUMS"), &sums)
}

/// Returns the host target triple.
fn host() -> Result<String> {
    let version = steps::read(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(ToOwned::to_owned).context("rustc prints no host target")
}

/// Returns the Debian name of the host architecture.
fn debian_architecture() -> Result<String> {
    Ok(steps::read(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

/// Returns the modification time of packaged files: `SOURCE_DATE_EPOCH`, or the time of the newest commit.
fn source_date_epoch() -> String {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return time;
    }
    let committed = steps::read(Command::new("git").current_dir(workspace::root()).args(["log", "-1", "--format=%ct"]));
    committed.map_or_else(|_| "0".to_owned(), |time| time.trim().to_owned())
}

fn create_empty(folder: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_versions_are_compared_as_numbers() {
        assert_eq!(
            newest_glibc("  0x0010: Name: GLIBC_2.34 Flags: none\n Name: GLIBC_2.4\n GLIBC_2.2.5"),
            Some((2, 34))
        );
        assert_eq!(newest_glibc("GLIBC_PRIVATE GCC_3.0"), None);
    }
}
