//! Taking over a repository from somewhere else.

use std::{
    net::IpAddr,
    process::{Command, Stdio},
};

use crate::{Error, Repositories, Result, child};

/// How slow the other side may be: less than this many bytes a second, for so many seconds, and it is given up.
const SLOWEST: (&str, &str) = ("1000", "60");

/// Where a repository comes from: known to be allowed, and pinned to one address.
pub struct Source {
    /// The URL without credentials: `http` or `https`.
    pub url: String,
    /// The host as the URL names it, and its port.
    pub host: (String, u16),
    /// The address that was looked up and allowed; no other is ever asked.
    pub address: IpAddr,
    /// The value of an `Authorization` header, if there is one.
    pub authorization: Option<String>,
}

impl Repositories {
    /// Fetches all branches and tags of another repository and makes them the repository of a project. It appears whole
    /// or not at all, and never in the place of one that is there.
    pub fn import(&self, project: i64, source: &Source) -> Result<()> {
        let build = self.blank()?;
        child::run(fetch(build.path(), source))?;
        let head = remote_head(build.path(), source)?;
        if let Some(head) = head.filter(|head| build.path().join(head.as_str()).exists()) {
            std::fs::write(build.path().join("HEAD"), format!("ref: {head}\n"))?;
        }
        // What git noted about the fetch names the other side.
        crate::disk::remove_if_there(&build.path().join("FETCH_HEAD"))?;
        if self.path_of(project).exists() {
            return Err(Error::Moved("the repository is not empty any more, it".into()));
        }
        self.adopt(build, project)
    }
}

/// A program of git that talks to the other side and to nobody else.
fn guarded(repository: &std::path::Path, source: &Source) -> Command {
    let mut command = child::git(repository);
    let (host, port) = &source.host;
    let address = match source.address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let scheme = if source.url.starts_with("https:") { "https" } else { "http" };
    let mut settings = vec![
        (format!("protocol.{scheme}.allow"), "always".to_owned()),
        ("http.followRedirects".into(), "false".into()),
        ("http.proxy".into(), String::new()),
        ("http.curloptResolve".into(), format!("{host}:{port}:{address}")),
        ("http.lowSpeedLimit".into(), SLOWEST.0.into()),
        ("http.lowSpeedTime".into(), SLOWEST.1.into()),
        ("credential.helper".into(), String::new()),
        ("fetch.fsckObjects".into(), "true".into()),
        ("fetch.unpackLimit".into(), "1".into()),
    ];
    if let Some(authorization) = &source.authorization {
        settings.push(("http.extraHeader".into(), format!("Authorization: {authorization}")));
    }
    // In the environment, because everybody on the machine can read the arguments of a program.
    command.env("GIT_CONFIG_COUNT", settings.len().to_string()).env("GIT_ASKPASS", "/bin/false");
    for (index, (name, value)) in settings.into_iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{index}"), name).env(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    command
}

fn fetch(repository: &std::path::Path, source: &Source) -> Command {
    let mut command = guarded(repository, source);
    command.args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]);
    command.arg("--end-of-options").arg(&source.url).args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]);
    command
}

/// The branch that the other side names as its own.
fn remote_head(repository: &std::path::Path, source: &Source) -> Result<Option<model::RefName>> {
    let mut command = guarded(repository, source);
    command.args(["ls-remote", "--symref", "--end-of-options"]).arg(&source.url).arg("HEAD").stderr(Stdio::null());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("ref: ")?.strip_suffix("\tHEAD"));
    Ok(line.and_then(model::RefName::new))
}
