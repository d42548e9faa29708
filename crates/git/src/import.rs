//! Taking over a repository from somewhere else.

use std::{net::IpAddr, path::Path, process::Command, time::Duration};

use tempfile::TempDir;

use model::StorageId;

use crate::{Error, Repositories, Repository, Result, checks, child, repositories::write_refs, repository::Handle};

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

/// How long an import may take in all.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// How long the other side may take to name its default branch, and how much it may say about that, in bytes.
const PATIENCE: Duration = Duration::from_secs(2 * 60);
const LONGEST_ANSWER: u64 = 64 << 10;
/// How many bytes of names of refs are looked at, and how many of them are logged at most.
const LONGEST_LIST: u64 = 64 << 20;
const MOST_WARNINGS: usize = 20;

/// A repository that was fetched and found good, on its way into its place; gone with this value unless it is adopted.
pub struct Fetched(TempDir);

impl Repositories {
    /// Fetches all branches and tags of another repository. Whatever way they came, every object is looked at as one
    /// that is pushed, and that everything they lead to is there.
    pub fn fetch(&self, source: &Source) -> Result<Fetched> {
        let raw = self.blank()?;
        child::run_within(fetch(raw.path(), source), LONGEST)?;
        let head = remote_head(raw.path(), source)?;
        let fetched = Repository::new(Handle::open(raw.path())?.into());
        let refs = fetched.refs()?;
        for name in unusable_names(raw.path())? {
            tracing::warn!(name = %name.escape_ascii(), "a ref of an import was left out, its name is not allowed here");
        }
        let build = self.blank()?;
        if refs.iter().next().is_some() {
            let mut pack = child::git(raw.path());
            pack.args(["pack-objects", "--all", "--stdout", "-q"]);
            child::pipe(pack, child::index_pack(build.path(), None))?;
            checks::check_packed_sizes(build.path())?;
        }
        write_refs(build.path(), &refs, head.as_ref().filter(|head| refs.find(head).is_some()))?;
        Ok(Fetched(build))
    }

    /// Makes what was fetched the repository of a project. It appears whole or not at all, and never in the place of
    /// one that is there. Whoever calls this is the only one who writes to the project.
    pub fn adopt(&self, fetched: Fetched, storage: &StorageId) -> Result<()> {
        if self.path_of(storage).exists() {
            return Err(Error::Moved("the repository is not empty any more, it".into()));
        }
        self.put_in_place(fetched.0, &self.path_of(storage))
    }
}

/// A program of git that talks to the other side and to nobody else.
fn guarded(repository: &Path, source: &Source) -> Command {
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

fn fetch(repository: &Path, source: &Source) -> Command {
    let mut command = guarded(repository, source);
    command.args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]);
    command.arg("--end-of-options").arg(&source.url).args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]);
    command
}

/// The names of refs that cannot be taken over: not valid UTF-8, or refused here for another reason. They are never
/// converted to something else, which would be the name of another ref.
fn unusable_names(repository: &Path) -> Result<Vec<Vec<u8>>> {
    let mut command = child::git(repository);
    command.args(["for-each-ref", "--format=%(refname)"]);
    let said = child::said_within(command, LONGEST_LIST, PATIENCE)?;
    let is_usable = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| model::RefName::new(name).is_some());
    let names = said.split(|byte| *byte == b'\n').filter(|name| !name.is_empty());
    Ok(names.filter(|name| !is_usable(name)).take(MOST_WARNINGS).map(<[u8]>::to_vec).collect())
}

/// The branch that the other side names as its own.
fn remote_head(repository: &Path, source: &Source) -> Result<Option<model::RefName>> {
    let mut command = guarded(repository, source);
    command.args(["ls-remote", "--symref", "--end-of-options"]).arg(&source.url).arg("HEAD");
    let said = child::said_within(command, LONGEST_ANSWER, PATIENCE)?;
    let text = String::from_utf8_lossy(&said);
    let line = text.lines().find_map(|line| line.strip_prefix("ref: ")?.strip_suffix("\tHEAD"));
    Ok(line.and_then(model::RefName::new))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_that_are_not_utf_8_are_told_and_not_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::in_folder(folder.path()).expect("a place");
        let path = repositories.find_or_make(1).expect("made").path().to_owned();
        let id = "1".repeat(40);
        let packed = [
            b"# pack-refs with: peeled fully-peeled sorted \n",
            format!("{id} refs/heads/-x\n{id} refs/heads/fine\n{id} refs/heads/").as_bytes(),
            b"\xff\xfe\n",
        ]
        .concat();
        fs::write(path.join("packed-refs"), packed).expect("written");
        let repository = repositories.find(1).expect("asked").expect("there");
        let taken: Vec<String> = repository.refs().expect("refs").iter().map(|one| one.name.to_string()).collect();
        assert_eq!(taken, ["refs/heads/fine"]);
        let left_out = unusable_names(&path).expect("names");
        assert_eq!(left_out, [&b"refs/heads/-x"[..], b"refs/heads/\xff\xfe"]);
    }
}
