//! Brings the files of a commit into the folder of a job.
//!
//! The job's token reaches git through its environment: arguments can be read by everybody on the machine, and the
//! configuration of the repository stays behind for the script.

use std::{process::Command, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use url::Url;

use crate::{
    CloneFrom,
    isolation::{Build, Cage, Program},
    network::Reach,
    processes::{self, Broken, Excess, Interrupt, Leash, Streams},
    protocol::GitInfo,
    trace::Trace,
    variables::Variables,
};

/// What git is told, whatever else it finds.
const SETTINGS: &[(&str, &str)] = &[
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

/// How many bytes the names of untracked files may take.
const LONGEST_LIST: usize = 64 << 20;

/// How many submodules a checkout may have, those of submodules included.
const MOST_SUBMODULES: usize = 1000;

/// Why there are no files.
pub(crate) enum Problem {
    Interrupted(Interrupt),
    Exceeded(Excess),
    /// Told in the trace already, or to be told.
    Failed(String),
}

impl From<Broken> for Problem {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Interrupted(why) => Self::Interrupted(why),
            Broken::Exceeded(excess) => Self::Exceeded(excess),
            Broken::Failed(error) => Self::Failed(format!("cannot run git: {error}")),
        }
    }
}

/// Everything a checkout needs.
pub(crate) struct Checkout<'a> {
    pub(crate) cage: &'a Cage,
    pub(crate) build: &'a Build,
    pub(crate) info: &'a GitInfo,
    pub(crate) variables: &'a Variables,
    pub(crate) trace: &'a Trace,
    pub(crate) leash: &'a Leash,
    /// Where repositories are fetched from, if not from where the server says.
    pub(crate) clone_from: Option<&'a CloneFrom>,
    /// How long to wait before another attempt.
    pub(crate) pauses: [Duration; 3],
}

impl Checkout<'_> {
    /// Fetches and checks out what the job is about, as its variables want it.
    pub(crate) async fn run(&self) -> Result<(), Problem> {
        let strategy = self.variables.get("GIT_STRATEGY");
        if matches!(strategy, "none" | "empty") {
            self.trace.say("Skipping Git repository setup");
            return Ok(());
        }
        if !matches!(strategy, "" | "clone" | "fetch") {
            return Err(Problem::Failed(format!("GIT_STRATEGY is clone, fetch or none, not {strategy}")));
        }
        let sha = &self.info.sha;
        if !matches!(sha.len(), 40 | 64) || !sha.bytes().all(|letter| letter.is_ascii_hexdigit()) {
            return Err(Problem::Failed("the server names no commit to check out".to_owned()));
        }
        let (url, secret) = source(&self.info.repo_url, self.clone_from)?;
        self.trace.say("\x1b[32;1mFetching changes...");
        self.must(&secret, &["init", "--quiet", "--template=", "."]).await?;
        self.must(&secret, &["remote", "add", "origin", &url]).await?;
        self.fetch(&secret).await?;
        if self.variables.get("GIT_CHECKOUT") == "false" {
            self.trace.say("Skipping Git checkout");
            return Ok(());
        }
        let short = &sha[..8];
        self.trace.say(&format!("\x1b[32;1mChecking out {short} as detached HEAD (ref is {})...", self.info.ref_name));
        self.must(&secret, &["checkout", "--quiet", "--force", "--detach", sha]).await?;
        self.submodules(&secret).await
    }

    async fn fetch(&self, secret: &Secret) -> Result<(), Problem> {
        let sha = self.info.sha.as_str();
        let given = self.variables.get("GIT_DEPTH");
        let depth = given.parse().unwrap_or(self.info.depth);
        let depth = (depth > 0).then(|| format!("--depth={depth}"));
        let refspecs: Vec<&str> = self.info.refspecs.iter().map(String::as_str).collect();
        if refspecs.iter().any(|it| !it.trim_start_matches('+').starts_with("refs/")) {
            return Err(Problem::Failed("the server names refs that are none".to_owned()));
        }
        let mut words = vec!["fetch", "--quiet", "--force", "--no-tags", "--no-recurse-submodules"];
        words.extend(depth.as_deref());
        words.push("origin");
        let whole =
            [words.as_slice(), if refspecs.is_empty() { std::slice::from_ref(&sha) } else { &refspecs }].concat();
        let mut pauses = self.pauses.into_iter();
        let by_name = [words.as_slice(), &[sha]].concat();
        while self.git(secret, &whole).await? != 0 {
            // The branch may be gone, and the commit is still there.
            if !refspecs.is_empty() && self.git(secret, &by_name).await? == 0 {
                return Ok(());
            }
            // The server may be away for a moment.
            let Some(pause) = pauses.next() else {
                return Err(Problem::Failed("cannot fetch the repository; what git said stands above".to_owned()));
            };
            self.trace.say("Trying again...");
            self.leash.hold(tokio::time::sleep(pause)).await.map_err(Problem::Interrupted)?;
        }
        // The branch may have moved on since.
        let commit = format!("{sha}^{{commit}}");
        if self.quietly(secret, &["cat-file", "-e", &commit]).await? != 0 {
            self.must(secret, &by_name).await?;
        }
        Ok(())
    }

    async fn submodules(&self, secret: &Secret) -> Result<(), Problem> {
        let recursive = match self.variables.get("GIT_SUBMODULE_STRATEGY") {
            "" | "none" => return Ok(()),
            "normal" => false,
            "recursive" => true,
            other => {
                let words = format!("GIT_SUBMODULE_STRATEGY is none, normal or recursive, not {other}");
                return Err(Problem::Failed(words));
            }
        };
        self.trace.say("\x1b[32;1mUpdating submodules...");
        let mut folders = vec![".".to_owned()];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            self.must(secret, &["-C", &folder, "submodule", "--quiet", "init"]).await?;
            for (name, url) in self.submodules_in(&folder).await? {
                count += 1;
                if count > MOST_SUBMODULES {
                    return Err(Problem::Failed(format!("there are more than {MOST_SUBMODULES} submodules")));
                }
                let key = format!("submodule.{name}.path");
                let words = ["-C", &folder, "config", "--null", "--file", ".gitmodules", "--get", &key];
                let path = self.output(&words).await?.unwrap_or_default();
                let path = path.trim_end_matches('\0');
                // A name of the file may lead anywhere: only those of the server are fetched as the project itself is.
                let reach = if secret.is_of_server(&url) { Reach::Host } else { self.cage.reach() };
                let words = ["-C", &folder, "submodule", "--quiet", "update", "--", path];
                if self.git_reaching(secret, reach, &words).await? != 0 {
                    return Err(Problem::Failed(format!(
                        "cannot fetch the submodule {name}; what git said stands above"
                    )));
                }
                if recursive {
                    let inner = format!("{folder}/{path}");
                    // With `update = none` nothing was fetched, and git would find the repository around it instead.
                    if self
                        .output(&["-C", &inner, "rev-parse", "--show-cdup"])
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

    /// The submodules of a repository that is checked out, by name and with the addresses they are fetched from.
    async fn submodules_in(&self, folder: &str) -> Result<Vec<(String, String)>, Problem> {
        let words = ["-C", folder, "config", "--local", "--null", "--get-regexp", r"^submodule\..*\.url$"];
        let listed = self.output(&words).await?.unwrap_or_default();
        let one = |entry: &str| {
            let (key, url) = entry.split_once('\n')?;
            let name = key.strip_prefix("submodule.")?.strip_suffix(".url")?;
            Some((name.to_owned(), url.to_owned()))
        };
        Ok(listed.split('\0').filter_map(one).collect())
    }

    /// Files that git does not know, also those that it was told to ignore.
    pub(crate) async fn untracked(&self) -> Result<Vec<String>, Problem> {
        let Some(listed) = self.output(&["ls-files", "--others", "-z"]).await? else {
            return Err(Problem::Failed("cannot list untracked files".to_owned()));
        };
        Ok(listed.split('\0').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect())
    }

    /// What git says that needs no network, or nothing if it fails. Names that are no text are left out.
    async fn output(&self, words: &[&str]) -> Result<Option<String>, Problem> {
        let mut said = Vec::new();
        let command = self.command(None, self.cage.reach(), words);
        let code = processes::run(command, Streams::OutputOnly, self.build, self.leash, |piece| {
            if said.len() <= LONGEST_LIST {
                said.extend_from_slice(piece);
            }
        })
        .await?;
        if said.len() > LONGEST_LIST {
            return Err(Problem::Failed("there are too many untracked files".to_owned()));
        }
        let text = said.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
        Ok((code == 0).then(|| text.collect::<Vec<_>>().join("\0")))
    }

    async fn must(&self, secret: &Secret, words: &[&str]) -> Result<(), Problem> {
        match self.git(secret, words).await? {
            0 => Ok(()),
            code => Err(Problem::Failed(format!("git {} ended with {code}; what it said stands above", words[0]))),
        }
    }

    async fn git(&self, secret: &Secret, words: &[&str]) -> Result<i32, Problem> {
        // The project itself is fetched from where the server says, whatever the script of the job may reach.
        let reach = if words.first() == Some(&"fetch") { Reach::Host } else { self.cage.reach() };
        self.git_reaching(secret, reach, words).await
    }

    async fn git_reaching(&self, secret: &Secret, reach: Reach, words: &[&str]) -> Result<i32, Problem> {
        let command = self.command(Some(secret), reach, words);
        Ok(processes::run(command, Streams::Both, self.build, self.leash, |piece| self.trace.write(piece)).await?)
    }

    async fn quietly(&self, secret: &Secret, words: &[&str]) -> Result<i32, Problem> {
        let command = self.command(Some(secret), self.cage.reach(), words);
        Ok(processes::run(command, Streams::OutputOnly, self.build, self.leash, |_| {}).await?)
    }

    fn command(&self, secret: Option<&Secret>, reach: Reach, words: &[&str]) -> Command {
        let mut command = self.cage.start(Program::Git, self.build, reach);
        command.args(words);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
        // Neither programs nor other folders of this machine are where a repository is fetched from.
        command.env("GIT_ALLOW_PROTOCOL", "http:https").env("GIT_ATTR_NOSYSTEM", "1").env("LC_ALL", "C");
        // The path of a submodule is a path, not a pattern that may select another submodule.
        command.env("GIT_LITERAL_PATHSPECS", "1");
        let own = secret.into_iter().flat_map(|secret| &secret.settings);
        let own = own.map(|(key, value)| (key.as_str(), value.as_str()));
        let mut count = 0;
        for (key, value) in SETTINGS.iter().copied().chain(own) {
            command.env(format!("GIT_CONFIG_KEY_{count}"), key).env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        command
    }
}

/// Where the repository is, and what opens it. Nothing that a job says counts here: its variables may name any project.
fn source(repo_url: &str, clone_from: Option<&CloneFrom>) -> Result<(String, Secret), Problem> {
    let wrong = || Problem::Failed("the server names no address of the repository".to_owned());
    let mut url = Url::parse(repo_url).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong());
    }
    let credentials = format!("{}:{}", url_decode(url.username()), url_decode(url.password().unwrap_or_default()));
    let cleared = url.set_username("").and_then(|()| url.set_password(None));
    cleared.map_err(|()| wrong())?;
    let mut roots = Vec::new();
    let mut settings = Vec::new();
    if let Some(CloneFrom { root, external_url }) = clone_from {
        let root = root.trim_end_matches('/');
        // The address that people know may have a prefix that a proxy takes away.
        let external = external_url.as_deref().and_then(|url| Url::parse(url).ok());
        let prefix = external.as_ref().map_or("", |url| url.path().trim_end_matches('/'));
        let path = url.path().strip_prefix(prefix).unwrap_or(url.path()).trim_start_matches('/').to_owned();
        let clone = Url::parse(&format!("{root}/{path}")).map_err(|_| wrong())?;
        // Submodules may be named by the address that people know.
        if let Some(known) = url.as_str().strip_suffix(&path) {
            settings.push((format!("url.{root}/.insteadOf"), known.to_owned()));
            roots.push(known.to_owned());
        }
        url = clone;
    }
    let origin = url.origin().ascii_serialization();
    if credentials != ":" {
        // For all of the server, as submodules lie beside the project.
        let value = format!("Authorization: Basic {}", BASE64_STANDARD.encode(credentials));
        settings.push((format!("http.{origin}/.extraHeader"), value));
    }
    roots.push(format!("{origin}/"));
    Ok((url.into(), Secret { settings, roots }))
}

/// What opens the repositories of the server, and where they are.
struct Secret {
    settings: Vec<(String, String)>,
    roots: Vec<String>,
}

impl Secret {
    /// Whether an address is one of the server that the job comes from.
    fn is_of_server(&self, url: &str) -> bool {
        self.roots.iter().any(|root| url.starts_with(root.as_str()))
    }
}

fn url_decode(text: &str) -> String {
    // A form would read a plus as a space.
    let text = format!("x={}", text.replace('+', "%2B"));
    url::form_urlencoded::parse(text.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_fetched_from_where_the_server_says_or_from_the_server_itself() {
        let from = |external_url: Option<&str>| {
            Some(CloneFrom { root: "http://127.0.0.1:8080".to_owned(), external_url: external_url.map(str::to_owned) })
        };
        for (repo_url, clone_from, url, known) in [
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
            let Ok((found, secret)) = source(repo_url, clone_from.as_ref()) else { panic!("{repo_url}") };
            assert_eq!(found, url);
            assert!(secret.is_of_server(&format!("{known}other.git")), "{known}");
            let header = ("Authorization: Basic dTpw".to_owned(), 1);
            let headers = secret.settings.iter().filter(|(key, _)| key.ends_with(".extraHeader"));
            assert_eq!((headers.clone().next().expect("one").1.clone(), headers.count()), header);
        }
        for wrong in ["ssh://example.org/x.git", "x.git", ""] {
            assert!(source(wrong, None).is_err(), "{wrong}");
        }
    }
}
