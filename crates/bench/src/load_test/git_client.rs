//! A git client without processes: fetches with protocol version 2, and pushes of packs that are created before the
//! run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use model::ProjectId;

use super::{
    client::{Client, HttpRequest, HttpResponse},
    request_generator::{ApiRequest, RequestGenerator},
};
use crate::{
    large_repository,
    seed::{
        dataset::{Dataset, LARGE_PROJECT, RepositoryContent, SeededProject, TEMPLATES, token_of, username},
        repositories,
    },
};

/// The number of different packs per template.
const PACKS: usize = 48;
/// The number of commits by which a pulling client is behind.
const COMMITS_BEHIND: usize = 3;

/// An operation of a git client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GitOperation {
    /// Lists the refs.
    LsRemote,
    /// Lists the refs and fetches new commits.
    Pull,
    Clone,
    CloneLarge,
    Push,
    /// Listing refs with the git program.
    ProgramLsRemote,
    ProgramClone,
}

impl GitOperation {
    /// The shares of the operations that fetch. The load model has one clone of its large repository for sixty pulls.
    pub(crate) const FETCHES: [(Self, f64); 4] =
        [(Self::LsRemote, 0.25), (Self::Pull, 0.6), (Self::Clone, 0.134), (Self::CloneLarge, 0.016)];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LsRemote => "git ls-remote",
            Self::Pull => "git pull",
            Self::Clone => "git clone, small",
            Self::CloneLarge => "git clone, large",
            Self::Push => "git push",
            Self::ProgramLsRemote => "git ls-remote, the program",
            Self::ProgramClone => "git clone, the program",
        }
    }

    /// Returns whether the latency includes that of a git process.
    pub(crate) fn uses_git_program(self) -> bool {
        matches!(self, Self::ProgramLsRemote | Self::ProgramClone)
    }
}

/// Data for git requests, prepared before the run.
pub(crate) struct GitData {
    /// All commits of each template, oldest first.
    templates: Vec<Vec<String>>,
    large: Vec<String>,
    /// New commits for each template, with the packs that contain them.
    packs: Vec<Vec<(String, Bytes)>>,
    /// The folder for clones by the git program.
    folder: PathBuf,
}

/// A prepared operation.
pub(crate) struct GitRequest {
    operation: GitOperation,
    /// The path of the repository, with `.git`.
    path: String,
    headers: Vec<(&'static str, String)>,
    want: String,
    have: Option<String>,
    push: Option<(String, Bytes)>,
    clone_to: PathBuf,
    /// The request that undoes the operation.
    pub(crate) after: Option<ApiRequest>,
}

impl GitData {
    /// Reads the repositories of a data set and creates packs to push.
    pub(crate) fn build(data: &Path, dataset: &Dataset, folder: &Path) -> Result<Self> {
        let repository_path = |seeded: &SeededProject| {
            let project = ProjectId::new(i64::try_from(seeded.id).unwrap_or(0));
            large_repository::repository_path(&data.join("repositories"), project)
        };
        let large = dataset
            .projects
            .iter()
            .find(|seeded| seeded.id == LARGE_PROJECT)
            .context("the data set has no large project")?;
        let large = repositories::history(&repository_path(large), "main", 1000)?;
        let (mut templates, mut packs) = (Vec::new(), Vec::new());
        for template in 0..TEMPLATES {
            let seeded = dataset.projects.iter().find(|seeded| seeded.content == RepositoryContent::Template(template));
            let path = repository_path(seeded.context("a template has no project")?);
            let history = repositories::history(&path, "master", 1000)?;
            let tip = history.last().context("a template has no commits")?.clone();
            packs.push(make_packs(&path, &tip, &folder.join(format!("packs-{template}.git")))?);
            templates.push(history);
        }
        Ok(Self { templates, large, packs, folder: folder.to_owned() })
    }

    pub(crate) fn git_request(
        &self,
        operation: GitOperation,
        generator: &mut RequestGenerator<'_>,
        number: usize,
    ) -> GitRequest {
        let seeded = match operation {
            GitOperation::Push => generator.push_projects[number % generator.push_projects.len()],
            GitOperation::CloneLarge => &generator.dataset.projects[0],
            GitOperation::Pull if generator.rng.below(5) == 0 => &generator.dataset.projects[0],
            _ => generator.read_project(),
        };
        let user = if operation == GitOperation::Push {
            generator.dataset.group_of(seeded).owner
        } else {
            generator.user_id()
        };
        let basic = STANDARD.encode(format!("{}:{}", username(user), token_of(user)));
        let headers = vec![("authorization", format!("Basic {basic}"))];
        let history = match seeded.content {
            RepositoryContent::Template(template) => &self.templates[usize::try_from(template).unwrap_or(0)],
            _ => &self.large,
        };
        let (want, back) = (history[history.len() - 1].clone(), history[history.len() - 1 - COMMITS_BEHIND].clone());
        let have = (operation == GitOperation::Pull).then_some(back);
        let name = generator.unique_name();
        let clone_to = self.folder.join(&name);
        let path = format!("/{}.git", generator.dataset.full_path(seeded));
        let mut git_request = GitRequest { operation, path, headers, want, have, push: None, clone_to, after: None };
        if let (GitOperation::Push, RepositoryContent::Template(template)) = (operation, seeded.content) {
            let packs = &self.packs[usize::try_from(template).unwrap_or(0)];
            let (tip, pack) = &packs[(number / generator.push_projects.len() + number) % packs.len()];
            let zero = "0".repeat(40);
            let command = format!("{zero} {tip} refs/heads/{name}\0report-status agent=load\n");
            let body = [packet(&command).as_bytes(), b"0000", pack].concat();
            git_request.push = Some((format!("ok refs/heads/{name}"), body.into()));
            let target = format!("/projects/{}/repository/branches/{name}", seeded.id);
            git_request.after = Some(ApiRequest::delete(token_of(user), target));
        }
        git_request
    }
}

impl GitRequest {
    pub(crate) fn operation(&self) -> GitOperation {
        self.operation
    }

    /// Runs the operation; returns the time of the first byte of the body, or of the last byte of the report of a push.
    /// The headers are sent before the work begins.
    pub(crate) async fn run(&self, client: &Client, address: &str) -> Result<Instant> {
        match self.operation {
            GitOperation::Push => self.push(client).await,
            GitOperation::ProgramLsRemote | GitOperation::ProgramClone => self.run_git(address).await,
            GitOperation::LsRemote | GitOperation::Pull | GitOperation::Clone | GitOperation::CloneLarge => {
                self.fetch(client).await
            }
        }
    }

    async fn fetch(&self, client: &Client) -> Result<Instant> {
        let greeting = self.get(client, "git-upload-pack").await?;
        expect(&greeting, "version 2")?;
        let words = ["command=ls-refs\n", "agent=load\n", "object-format=sha1"].map(packet).concat();
        let prefixes =
            ["peel\n", "symrefs\n", "ref-prefix HEAD\n", "ref-prefix refs/heads/\n", "ref-prefix refs/tags/\n"];
        let request = format!("{words}0001{}0000", prefixes.map(packet).concat());
        let refs = self.post(client, "git-upload-pack", request.into()).await?;
        expect(&refs, &self.want)?;
        if self.operation == GitOperation::LsRemote {
            return Ok(refs.body);
        }
        let words = ["command=fetch\n", "agent=load\n", "object-format=sha1"].map(packet).concat();
        let mut arguments = ["thin-pack\n", "no-progress\n", "ofs-delta\n"].map(packet).concat();
        arguments += &packet(&format!("want {}\n", self.want));
        if let Some(have) = &self.have {
            arguments += &packet(&format!("have {have}\n"));
        }
        arguments += &packet("done\n");
        let sent = self.post(client, "git-upload-pack", format!("{words}0001{arguments}0000").into()).await?;
        expect(&sent, "packfile\n")?;
        expect(&sent, "PACK")?;
        Ok(sent.body)
    }

    async fn push(&self, client: &Client) -> Result<Instant> {
        let (report, body) = self.push.as_ref().context("nothing to push")?;
        let greeting = self.get(client, "git-receive-pack").await?;
        expect(&greeting, "refs/heads/master")?;
        let report_response = self.post(client, "git-receive-pack", body.clone()).await?;
        expect(&report_response, "unpack ok")?;
        expect(&report_response, report)?;
        Ok(report_response.end)
    }

    async fn get(&self, client: &Client, service: &str) -> Result<HttpResponse> {
        let target = format!("{}/info/refs?service={service}", self.path);
        self.send(client, HttpRequest { method: "GET", target, headers: self.headers.clone(), body: Bytes::new() })
            .await
    }

    async fn post(&self, client: &Client, service: &str, body: Bytes) -> Result<HttpResponse> {
        let mut headers = self.headers.clone();
        headers.push(("content-type", format!("application/x-{service}-request")));
        let target = format!("{}/{service}", self.path);
        self.send(client, HttpRequest { method: "POST", target, headers, body }).await
    }

    async fn send(&self, client: &Client, mut http_request: HttpRequest) -> Result<HttpResponse> {
        if self.operation != GitOperation::Push {
            http_request.headers.push(("git-protocol", "version=2".into()));
        }
        let response = client.send(&http_request).await?;
        if response.status != 200 {
            bail!("{} returned {}", http_request.target, response.status);
        }
        Ok(response)
    }

    async fn run_git(&self, address: &str) -> Result<Instant> {
        let url = format!("http://{address}{}", self.path);
        let mut command = tokio::process::Command::from(git_command());
        // In the environment, since other users can read the arguments.
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "http.extraHeader");
        command.env("GIT_CONFIG_VALUE_0", format!("Authorization: {}", self.headers[0].1));
        match self.operation {
            GitOperation::ProgramClone => command.args(["clone", "--quiet", "--bare", &url]).arg(&self.clone_to),
            _ => command.args(["ls-remote", "--quiet", &url]),
        };
        let ran = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output().await;
        let ran = ran.context("cannot run git")?;
        let end = Instant::now();
        let _ = tokio::fs::remove_dir_all(&self.clone_to).await;
        if ran.status.success() { Ok(end) } else { Err(anyhow!("{}", String::from_utf8_lossy(&ran.stderr).trim())) }
    }
}

fn expect(response: &HttpResponse, word: &str) -> Result<()> {
    let found = response.start.windows(word.len()).any(|window| window == word.as_bytes());
    let excerpt = || String::from_utf8_lossy(&response.start[..response.start.len().min(200)]).into_owned();
    if found { Ok(()) } else { Err(anyhow!("no {word:?} in {}", excerpt())) }
}

pub(crate) fn packet(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

/// Creates packs of one commit each on top of the tip of a repository.
fn make_packs(source: &Path, tip: &str, folder: &Path) -> Result<Vec<(String, Bytes)>> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    large_repository::git(folder, &["init", "--quiet", "--bare"])?;
    let objects = source.join("objects").canonicalize().context("no objects")?;
    let written = fs::write(folder.join("objects/info/alternates"), format!("{}\n", objects.display()));
    written.context("cannot write")?;
    large_repository::import(folder, |out| {
        use std::io::Write as _;
        for number in 0..PACKS {
            writeln!(
                out,
                "commit refs/heads/new-{number}\ncommitter Ann <ann@example.org> {} +0000",
                1_750_000_000 + number
            )?;
            writeln!(out, "data 9\nOne more\n\nfrom {tip}")?;
            large_repository::write_file(out, "NEWS.md", &format!("# What is new\n\n- number {number}\n"))?;
        }
        writeln!(out, "done")
    })?;
    (0..PACKS)
        .map(|number| {
            let new = large_repository::git(folder, &["rev-parse", &format!("refs/heads/new-{number}")])?;
            let new = String::from_utf8_lossy(&new).trim().to_owned();
            let pack = pack(folder, &format!("{new}\n^{tip}\n"))?;
            Ok((new, pack))
        })
        .collect()
}

fn pack(folder: &Path, revisions: &str) -> Result<Bytes> {
    let context = "cannot run git";
    let mut command = git_command();
    command.arg("--git-dir").arg(folder).args(["pack-objects", "--revs", "--stdout", "--quiet"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context(context)?;
    let mut input = child.stdin.take().context("git has no standard input")?;
    std::io::Write::write_all(&mut input, revisions.as_bytes()).context(context)?;
    drop(input);
    let output = child.wait_with_output().context(context)?;
    if output.status.success() { Ok(output.stdout.into()) } else { Err(anyhow!("git pack-objects failed")) }
}

/// Returns a git command without user configuration and prompts.
fn git_command() -> Command {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_start_with_their_length_and_shares_add_up_to_one() {
        assert_eq!(packet("done\n"), "0009done\n");
        let sum: f64 = GitOperation::FETCHES.iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}
