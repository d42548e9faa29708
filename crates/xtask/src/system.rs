//! Programs that must be installed on this machine, and its users.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{postgres, steps};

/// A program that the tests require.
pub(crate) struct Requirement {
    name: &'static str,
    is_installed: fn() -> bool,
    packages: &'static [&'static str],
}

/// The programs of a PostgreSQL server.
pub(crate) const POSTGRES: Requirement =
    Requirement { name: "PostgreSQL", is_installed: || postgres::programs().is_some(), packages: &["postgresql"] };
/// Creates certificates.
pub(crate) const OPENSSL: Requirement =
    Requirement { name: "openssl", is_installed: || find("openssl").is_some(), packages: &["openssl"] };
/// Used by examples and tests.
pub(crate) const CURL: Requirement =
    Requirement { name: "curl", is_installed: || find("curl").is_some(), packages: &["curl"] };
/// Used by git over SSH.
pub(crate) const SSH: Requirement = Requirement {
    name: "the OpenSSH client",
    is_installed: || find("ssh").is_some() && find("ssh-keygen").is_some(),
    packages: &["openssh-client"],
};
/// Isolates the jobs of a runner.
pub(crate) const BUBBLEWRAP: Requirement =
    Requirement { name: "bubblewrap", is_installed: || find("bwrap").is_some(), packages: &["bubblewrap"] };
/// Gives jobs of a runner their own network.
pub(crate) const SLIRP: Requirement = Requirement {
    name: "slirp4netns with iproute2",
    is_installed: || find("slirp4netns").is_some() && find("ip").is_some(),
    packages: &["slirp4netns", "iproute2"],
};
/// A cluster of PostgreSQL servers.
pub(crate) const PATRONI: Requirement =
    Requirement { name: "Patroni", is_installed: || find("patroni").is_some(), packages: &["patroni", "python3-etcd"] };
/// Elects the primary of PostgreSQL servers.
pub(crate) const ETCD: Requirement =
    Requirement { name: "etcd", is_installed: || find("etcd").is_some(), packages: &["etcd-server"] };
/// The load balancer in front of nodes.
pub(crate) const HAPROXY: Requirement =
    Requirement { name: "haproxy", is_installed: || find("haproxy").is_some(), packages: &["haproxy"] };
/// Creates network namespaces.
pub(crate) const IPROUTE: Requirement =
    Requirement { name: "iproute2", is_installed: || find("ip").is_some(), packages: &["iproute2"] };
/// Drops packets between nodes.
pub(crate) const NFTABLES: Requirement =
    Requirement { name: "nftables", is_installed: || find("nft").is_some(), packages: &["nftables"] };
/// Runs programs with a wrong clock.
pub(crate) const FAKETIME: Requirement =
    Requirement { name: "faketime", is_installed: || find("faketime").is_some(), packages: &["faketime"] };
/// Runs the clients in Python.
pub(crate) const PYTHON: Requirement =
    Requirement { name: "Python with venv", is_installed: has_python, packages: &["python3", "python3-venv"] };

/// Runs and installs the clients in JavaScript.
pub(crate) const NODE: Requirement = Requirement {
    name: "node with npm",
    is_installed: || find("node").is_some() && find("npm").is_some(),
    packages: &["nodejs", "npm"],
};
/// Opens the pages of the web interface.
pub(crate) const CHROMIUM: Requirement = Requirement {
    name: "Chromium with a font",
    is_installed: || find("chromium").is_some(),
    packages: &["chromium", "fonts-dejavu-core"],
};
/// The Ruby client library, packaged by Debian.
pub(crate) const RUBY_GITLAB: Requirement =
    Requirement { name: "Ruby with the gem gitlab", is_installed: has_ruby_gitlab, packages: &["ruby-gitlab"] };
/// Inspects and strips binaries.
pub(crate) const BINUTILS: Requirement = Requirement {
    name: "binutils",
    is_installed: || find("readelf").is_some() && find("strip").is_some(),
    packages: &["binutils"],
};

/// Installs missing programs with apt-get, without confirmation.
pub(crate) fn install_missing(requirements: &[Requirement]) -> Result<()> {
    let missing: Vec<&Requirement> = requirements.iter().filter(|requirement| !(requirement.is_installed)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.iter().map(|requirement| requirement.name).collect::<Vec<_>>().join(" and ");
    let root: &[&str] = match (find("apt-get"), is_root(), find("sudo")) {
        (None, ..) => bail!("{names} is missing; install it (there is no apt-get here)"),
        (_, true, _) => &[],
        (_, false, Some(_)) => &["sudo"],
        (_, false, None) => bail!("{names} is missing; install it, or run this as root"),
    };
    println!("installing {names}");
    let packages: Vec<&str> = missing.iter().flat_map(|requirement| requirement.packages).copied().collect();
    // sudo drops the environment, so the variable is set after it.
    let quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"];
    let apt = |arguments: &[&str]| {
        let command: Vec<&str> = [root, &quiet, arguments].concat();
        steps::run(Command::new(command[0]).args(&command[1..]).stdout(Stdio::null()))
    };
    apt(&["update"]).with_context(|| format!("cannot install {names}"))?;
    apt(&[&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat())
        .with_context(|| format!("cannot install {names}"))?;
    match missing.iter().find(|requirement| !(requirement.is_installed)()) {
        None => Ok(()),
        Some(requirement) => Err(anyhow!(
            "{} is still missing after {} was installed",
            requirement.name,
            requirement.packages.join(", ")
        )),
    }
}

/// Returns the path of a program in `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// Returns whether the current user is root.
pub(crate) fn is_root() -> bool {
    id(&["-u"]).as_deref() == Some("0")
}

/// Returns whether a user exists.
pub(crate) fn has_user(name: &str) -> bool {
    id(&["-u", name]).is_some()
}

/// Returns the id of the primary group of a user.
pub(crate) fn group_of(user: &str) -> String {
    id(&["-g", user]).unwrap_or_else(|| user.to_owned())
}

fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn has_ruby_gitlab() -> bool {
    let mut ruby = Command::new("ruby");
    ruby.args(["-e", "require 'gitlab'"]).stdout(Stdio::null()).stderr(Stdio::null());
    ruby.status().is_ok_and(|status| status.success())
}

fn has_python() -> bool {
    let mut python = Command::new("python3");
    // Debian packages venv without ensurepip, which it needs.
    python.args(["-c", "import ensurepip, venv"]).stdout(Stdio::null()).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}
