//! What this machine has, and how it gets what it lacks.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::{Outcome, postgres, steps};

/// Something the tests lean on.
pub(crate) struct Need {
    what: &'static str,
    is_there: fn() -> bool,
    packages: &'static [&'static str],
}

/// A PostgreSQL server to run, not necessarily running.
pub(crate) const POSTGRES: Need =
    Need { what: "PostgreSQL", is_there: || postgres::programs().is_some(), packages: &["postgresql"] };
/// Makes certificates.
pub(crate) const OPENSSL: Need =
    Need { what: "openssl", is_there: || find("openssl").is_some(), packages: &["openssl"] };
/// Talks to the server as people do at a command line.
pub(crate) const CURL: Need = Need { what: "curl", is_there: || find("curl").is_some(), packages: &["curl"] };
/// Talks to the server as git does over SSH.
pub(crate) const SSH: Need = Need {
    what: "OpenSSH's client",
    is_there: || find("ssh").is_some() && find("ssh-keygen").is_some(),
    packages: &["openssh-client"],
};
/// Keeps the jobs of a runner apart.
pub(crate) const BUBBLEWRAP: Need =
    Need { what: "bubblewrap", is_there: || find("bwrap").is_some(), packages: &["bubblewrap"] };
/// Gives jobs of a runner a network of their own.
pub(crate) const SLIRP: Need = Need {
    what: "slirp4netns with iproute2",
    is_there: || find("slirp4netns").is_some() && find("ip").is_some(),
    packages: &["slirp4netns", "iproute2"],
};
/// Runs the clients.
pub(crate) const PYTHON: Need =
    Need { what: "Python with venv", is_there: has_python, packages: &["python3", "python3-venv"] };

/// Runs the clients that are written in JavaScript, and fetches them.
pub(crate) const NODE: Need = Need {
    what: "node with npm",
    is_there: || find("node").is_some() && find("npm").is_some(),
    packages: &["nodejs", "npm"],
};
/// The client library that Debian packages.
pub(crate) const RUBY_GITLAB: Need =
    Need { what: "Ruby with the gem gitlab", is_there: has_ruby_gitlab, packages: &["ruby-gitlab"] };
/// Looks into programs and packages.
pub(crate) const BINUTILS: Need = Need {
    what: "binutils",
    is_there: || find("readelf").is_some() && find("strip").is_some(),
    packages: &["binutils"],
};

/// Installs what is missing; asks nobody and touches nothing if all is there.
pub(crate) fn provide(needs: &[Need]) -> Outcome {
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.is_there)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.iter().map(|need| need.what).collect::<Vec<_>>().join(" and ");
    let root: &[&str] = match (find("apt-get"), is_root(), find("sudo")) {
        (None, ..) => return Err(format!("cannot go on without {names}, and there is no apt-get to install it with")),
        (_, true, _) => &[],
        (_, false, Some(_)) => &["sudo"],
        (_, false, None) => return Err(format!("cannot go on without {names}, and only root may install it")),
    };
    println!("installing {names}");
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    // sudo drops the environment, so it is given behind it.
    let quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"];
    let apt = |arguments: &[&str]| {
        let words: Vec<&str> = [root, &quiet, arguments].concat();
        steps::run(Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()))
    };
    apt(&["update"]).map_err(|error| format!("cannot install {names}: {error}"))?;
    apt(&[&["install", "--yes", "--no-install-recommends"], packages.as_slice()].concat())
        .map_err(|error| format!("cannot install {names}: {error}"))?;
    match missing.iter().find(|need| !(need.is_there)()) {
        None => Ok(()),
        Some(need) => Err(format!("{} is still missing after {} was installed", need.what, need.packages.join(", "))),
    }
}

/// Where a program is, if it can be called by its name.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// Whether we may do everything.
pub(crate) fn is_root() -> bool {
    id(&["-u"]).as_deref() == Some("0")
}

/// Whether there is such a user.
pub(crate) fn has_user(name: &str) -> bool {
    id(&["-u", name]).is_some()
}

/// The first group of a user, by number.
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
    // Debian ships venv without the part that it needs to work.
    python.args(["-c", "import ensurepip, venv"]).stdout(Stdio::null()).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}
