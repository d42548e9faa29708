//! Checks out the commit of a job.
//!
//! The job token is passed to git in its environment: arguments are visible to all users of the machine, and the
//! configuration of the repository stays readable for the script.

use std::{process::Command, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use url::Url;

use crate::{
    CloneSource,
    isolation::{JobWorkspace, Program, Sandbox},
    network::NetworkAccess,
    processes::{self, Cancellation, ExceededLimit, Interrupt, ProcessError, Streams},
    protocol::GitInfo,
    trace::Trace,
    variables::Variables,
};

/// The configuration of every git command.
const GIT_CONFIG: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("credential.helper", ""),
    ("http.followRedirects", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("submodule.recurse", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.detachedHead", "false"),
    ("init.defaultBranch", "main"),
    ("safe.directory", "*"),
];

/// The maximum size of the output of a git command.
const MAX_OUTPUT_BYTES: usize = 64 << 20;

/// The maximum number of submodules, nested ones included.
const MAX_SUBMODULES: usize = 1000;

/// Why a checkout failed.
pub(crate) enum CheckoutError {
    Interrupted(Interrupt),
    Exceeded(ExceededLimit),
    /// The message may refer to output of git in the trace.
    Failed(String),
}

impl From<ProcessError> for CheckoutError {
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::Interrupted(interrupt) => Self::Interrupted(interrupt),
            ProcessError::Exceeded(limit) => Self::Exceeded(limit),
            ProcessError::Failed(error) => Self::Failed(format!("cannot run git: {error}")),
        }
    }
}

/// The input of a checkout.
pub(crate) struct Checkout<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) workspace: &'a JobWorkspace,
    pub(crate) info: &'a GitInfo,
    pub(crate) variables: &'a Variables,
    pub(crate) trace: &'a Trace,
    pub(crate) cancellation: &'a Cancellation,
    /// Where repositories are cloned from, if not from the URL that the server sends.
    pub(crate) clone_source: Option<&'a CloneSource>,
    /// The delays before retries.
    pub(crate) retry_delays: [Duration; 3],
}

impl Checkout<'_> {
    /// Fetches and checks out the commit, as configured by the variables.
    pub(crate) async fn run(&self) -> Result<(), CheckoutError> {
        let strategy = self.variables.get("GIT_STRATEGY");
        if matches!(strategy, "none" | "empty") {
            self.trace.write_line("Skipping Git repository setup");
            return Ok(());
        }
        if !matches!(strategy, "" | "clone" | "fetch") {
            return Err(CheckoutError::Failed(format!("GIT_STRATEGY must be clone, fetch or none, not {strategy}")));
        }
        let sha = &self.info.sha;
        if !matches!(sha.len(), 40 | 64) || !sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(CheckoutError::Failed("the server sent no valid commit id".to_owned()));
        }
        let (url, credentials) = repository_source(&self.info.repo_url, self.clone_source)?;
        self.trace.write_line("\x1b[32;1mFetching changes...");
        self.run_git_checked(&credentials, &["init", "--quiet", "--template=", "."]).await?;
        self.run_git_checked(&credentials, &["remote", "add", "origin", &url]).await?;
        self.fetch(&credentials).await?;
        if self.variables.get("GIT_CHECKOUT") == "false" {
            self.trace.write_line("Skipping Git checkout");
            return Ok(());
        }
        let short = &sha[..8];
        self.trace
            .write_line(&format!("\x1b[32;1mChecking out {short} as detached HEAD (ref is {})...", self.info.ref_name));
        self.run_git_checked(&credentials, &["checkout", "--quiet", "--force", "--detach", sha]).await?;
        self.submodules(&credentials).await
    }

    async fn fetch(&self, credentials: &GitCredentials) -> Result<(), CheckoutError> {
        let sha = self.info.sha.as_str();
        let depth = self.variables.get("GIT_DEPTH").parse().unwrap_or(self.info.depth);
        let depth = (depth > 0).then(|| format!("--depth={depth}"));
        let refspecs: Vec<&str> = self.info.refspecs.iter().map(String::as_str).collect();
        if refspecs.iter().any(|it| !it.trim_start_matches('+').starts_with("refs/")) {
            return Err(CheckoutError::Failed("the server sent invalid refspecs".to_owned()));
        }
        let mut arguments = vec!["fetch", "--quiet", "--force", "--no-tags", "--no-recurse-submodules"];
        arguments.extend(depth.as_deref());
        arguments.push("origin");
        let fetch_refs =
            [arguments.as_slice(), if refspecs.is_empty() { std::slice::from_ref(&sha) } else { &refspecs }].concat();
        let mut retry_delays = self.retry_delays.into_iter();
        let fetch_commit = [arguments.as_slice(), &[sha]].concat();
        while self.run_git(credentials, &fetch_refs).await? != 0 {
            // The branch may have been deleted while the commit still exists.
            if !refspecs.is_empty() && self.run_git(credentials, &fetch_commit).await? == 0 {
                return Ok(());
            }
            // The server may be temporarily unavailable.
            let Some(delay) = retry_delays.next() else {
                return Err(CheckoutError::Failed(
                    "cannot fetch the repository; see the output of git above".to_owned(),
                ));
            };
            self.trace.write_line("Retrying...");
            self.cancellation.run(tokio::time::sleep(delay)).await.map_err(CheckoutError::Interrupted)?;
        }
        // The branch may have moved since.
        let commit = format!("{sha}^{{commit}}");
        if self.run_git_quietly(credentials, &["cat-file", "-e", &commit]).await? != 0 {
            self.run_git_checked(credentials, &fetch_commit).await?;
        }
        Ok(())
    }

    async fn submodules(&self, credentials: &GitCredentials) -> Result<(), CheckoutError> {
        let recursive = match self.variables.get("GIT_SUBMODULE_STRATEGY") {
            "" | "none" => return Ok(()),
            "normal" => false,
            "recursive" => true,
            other => {
                let message = format!("GIT_SUBMODULE_STRATEGY must be none, normal or recursive, not {other}");
                return Err(CheckoutError::Failed(message));
            }
        };
        self.trace.write_line("\x1b[32;1mUpdating submodules...");
        let mut folders = vec![".".to_owned()];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            self.run_git_checked(credentials, &["-C", &folder, "submodule", "--quiet", "init"]).await?;
            for (name, url) in self.submodules_in(&folder).await? {
                count += 1;
                if count > MAX_SUBMODULES {
                    return Err(CheckoutError::Failed(format!("there are more than {MAX_SUBMODULES} submodules")));
                }
                let key = format!("submodule.{name}.path");
                let arguments = ["-C", &folder, "config", "--null", "--file", ".gitmodules", "--get", &key];
                let path = self.git_output(&arguments).await?.unwrap_or_default();
                let path = path.trim_end_matches('\0');
                // The URL may point anywhere: only submodules on the server are fetched with the network access of the
                // project.
                let network_access =
                    if credentials.is_server_url(&url) { NetworkAccess::Host } else { self.sandbox.network_access() };
                let arguments = ["-C", &folder, "submodule", "--quiet", "update", "--", path];
                if self.run_git_with_access(credentials, network_access, &arguments).await? != 0 {
                    return Err(CheckoutError::Failed(format!(
                        "cannot fetch the submodule {name}; see the output of git above"
                    )));
                }
                if recursive {
                    let inner = format!("{folder}/{path}");
                    // With `update = none` nothing was fetched, and git would find the outer repository instead.
                    if self
                        .git_output(&["-C", &inner, "rev-parse", "--show-cdup"])
                        .await?
                        .is_some_and(|up| up.trim().is_empty())
                    {
                        folders.push(inner);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the names and URLs of the submodules of a checked-out repository.
    async fn submodules_in(&self, folder: &str) -> Result<Vec<(String, String)>, CheckoutError> {
        let arguments = ["-C", folder, "config", "--local", "--null", "--get-regexp", r"^submodule\..*\.url$"];
        let listed = self.git_output(&arguments).await?.unwrap_or_default();
        let parse = |entry: &str| {
            let (key, url) = entry.split_once('\n')?;
            let name = key.strip_prefix("submodule.")?.strip_suffix(".url")?;
            Some((name.to_owned(), url.to_owned()))
        };
        Ok(listed.split('\0').filter_map(parse).collect())
    }

    /// Returns untracked files, including ignored ones.
    pub(crate) async fn untracked(&self) -> Result<Vec<String>, CheckoutError> {
        let Some(listed) = self.git_output(&["ls-files", "--others", "-z"]).await? else {
            return Err(CheckoutError::Failed("cannot list untracked files".to_owned()));
        };
        Ok(listed.split('\0').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect())
    }

    /// Returns the output of a git command that needs no network, or `None` if it fails. Names that are not UTF-8 are
    /// omitted.
    async fn git_output(&self, arguments: &[&str]) -> Result<Option<String>, CheckoutError> {
        let mut output_bytes = Vec::new();
        let command = self.command(None, self.sandbox.network_access(), arguments);
        let code = processes::run(command, Streams::OutputOnly, self.workspace, self.cancellation, |chunk| {
            if output_bytes.len() <= MAX_OUTPUT_BYTES {
                output_bytes.extend_from_slice(chunk);
            }
        })
        .await?;
        if output_bytes.len() > MAX_OUTPUT_BYTES {
            return Err(CheckoutError::Failed("the output of git is too large".to_owned()));
        }
        let text = output_bytes.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
        Ok((code == 0).then(|| text.collect::<Vec<_>>().join("\0")))
    }

    async fn run_git_checked(&self, credentials: &GitCredentials, arguments: &[&str]) -> Result<(), CheckoutError> {
        match self.run_git(credentials, arguments).await? {
            0 => Ok(()),
            code => Err(CheckoutError::Failed(format!(
                "git {} failed with exit status {code}; see its output above",
                arguments[0]
            ))),
        }
    }

    async fn run_git(&self, credentials: &GitCredentials, arguments: &[&str]) -> Result<i32, CheckoutError> {
        // The project is fetched from the server, whatever the script of the job may reach.
        let network_access =
            if arguments.first() == Some(&"fetch") { NetworkAccess::Host } else { self.sandbox.network_access() };
        self.run_git_with_access(credentials, network_access, arguments).await
    }

    async fn run_git_with_access(
        &self,
        credentials: &GitCredentials,
        network_access: NetworkAccess,
        arguments: &[&str],
    ) -> Result<i32, CheckoutError> {
        let command = self.command(Some(credentials), network_access, arguments);
        Ok(processes::run(command, Streams::Both, self.workspace, self.cancellation, |chunk| self.trace.write(chunk))
            .await?)
    }

    async fn run_git_quietly(&self, credentials: &GitCredentials, arguments: &[&str]) -> Result<i32, CheckoutError> {
        let command = self.command(Some(credentials), self.sandbox.network_access(), arguments);
        Ok(processes::run(command, Streams::OutputOnly, self.workspace, self.cancellation, |_| {}).await?)
    }

    fn command(
        &self,
        credentials: Option<&GitCredentials>,
        network_access: NetworkAccess,
        arguments: &[&str],
    ) -> Command {
        let mut command = self.sandbox.command(Program::Git, self.workspace, network_access);
        command.args(arguments);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
        // Repositories are fetched neither with other programs nor from local folders.
        command.env("GIT_ALLOW_PROTOCOL", "http:https").env("GIT_ATTR_NOSYSTEM", "1").env("LC_ALL", "C");
        // The path of a submodule must not be treated as a pattern that selects another submodule.
        command.env("GIT_LITERAL_PATHSPECS", "1");
        let own_settings = credentials.into_iter().flat_map(|credentials| &credentials.settings);
        let own_settings = own_settings.map(|(key, value)| (key.as_str(), value.as_str()));
        let mut count = 0;
        for (key, value) in GIT_CONFIG.iter().copied().chain(own_settings) {
            command.env(format!("GIT_CONFIG_KEY_{count}"), key).env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        command
    }
}

/// Returns the URL of the repository and the credentials for it. Ignores the job's variables, which may name any
/// project.
fn repository_source(
    repo_url: &str,
    clone_source: Option<&CloneSource>,
) -> Result<(String, GitCredentials), CheckoutError> {
    let fail = || CheckoutError::Failed("the server sent no valid repository URL".to_owned());
    let mut url = Url::parse(repo_url).map_err(|_| fail())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(fail());
    }
    let user_info = format!("{}:{}", url_decode(url.username()), url_decode(url.password().unwrap_or_default()));
    let cleared = url.set_username("").and_then(|()| url.set_password(None));
    cleared.map_err(|()| fail())?;
    let mut roots = Vec::new();
    let mut settings = Vec::new();
    if let Some(CloneSource { base_url, external_url }) = clone_source {
        let base_url = base_url.trim_end_matches('/');
        // The external URL may have a path prefix that a proxy removes.
        let external = external_url.as_deref().and_then(|url| Url::parse(url).ok());
        let prefix = external.as_ref().map_or("", |url| url.path().trim_end_matches('/'));
        let path = url.path().strip_prefix(prefix).unwrap_or(url.path()).trim_start_matches('/').to_owned();
        let clone_url = Url::parse(&format!("{base_url}/{path}")).map_err(|_| fail())?;
        // Submodules may use the external URL.
        if let Some(known) = url.as_str().strip_suffix(&path) {
            settings.push((format!("url.{base_url}/.insteadOf"), known.to_owned()));
            roots.push(known.to_owned());
        }
        url = clone_url;
    }
    let origin = url.origin().ascii_serialization();
    if user_info != ":" {
        // For the whole server, because submodules may be other projects.
        let value = format!("Authorization: Basic {}", BASE64_STANDARD.encode(user_info));
        settings.push((format!("http.{origin}/.extraHeader"), value));
    }
    roots.push(format!("{origin}/"));
    Ok((url.into(), GitCredentials { settings, roots }))
}

/// The credentials for the repositories of the server, as git configuration.
struct GitCredentials {
    settings: Vec<(String, String)>,
    roots: Vec<String>,
}

impl GitCredentials {
    /// Returns whether a URL belongs to the server of the job.
    fn is_server_url(&self, url: &str) -> bool {
        self.roots.iter().any(|root| url.starts_with(root.as_str()))
    }
}

fn url_decode(text: &str) -> String {
    // Form decoding would turn a plus into a space.
    let text = format!("x={}", text.replace('+', "%2B"));
    url::form_urlencoded::parse(text.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_fetched_from_the_url_in_the_job_or_from_the_clone_source() {
        let from = |external_url: Option<&str>| {
            Some(CloneSource {
                base_url: "http://127.0.0.1:8080".to_owned(),
                external_url: external_url.map(str::to_owned),
            })
        };
        for (repo_url, clone_source, url, known) in [
            ("https://u:p@example.org/ann/x.git", None, "https://example.org/ann/x.git", "https://example.org/"),
            (
                "https://u:p@example.org/ann/x.git",
                from(Some("https://example.org")),
                "http://127.0.0.1:8080/ann/x.git",
                "https://example.org/",
            ),
            (
                "https://u:p@example.org/gable/a/b/x.git",
                from(Some("https://example.org/gable/")),
                "http://127.0.0.1:8080/a/b/x.git",
                "https://example.org/gable/",
            ),
            (
                "http://u:p@127.0.0.1:8080/ann/x.git",
                from(None),
                "http://127.0.0.1:8080/ann/x.git",
                "http://127.0.0.1:8080/",
            ),
        ] {
            let Ok((found, credentials)) = repository_source(repo_url, clone_source.as_ref()) else {
                panic!("{repo_url}")
            };
            assert_eq!(found, url);
            assert!(credentials.is_server_url(&format!("{known}other.git")), "{known}");
            let header = ("Authorization: Basic dTpw".to_owned(), 1);
            let headers = credentials.settings.iter().filter(|(key, _)| key.ends_with(".extraHeader"));
            assert_eq!((headers.clone().next().expect("one").1.clone(), headers.count()), header);
        }
        for wrong in ["ssh://example.org/x.git", "x.git", ""] {
            assert!(repository_source(wrong, None).is_err(), "{wrong}");
        }
    }
}
