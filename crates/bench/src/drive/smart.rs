//! Git over HTTP, as stock git speaks it, without a process for each: the second protocol for fetches, and pushes of packs
//! that were made before the clock started.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::{
    client::{Answer, Client, Message},
    scene::{Ask, Scene},
};
use crate::{
    Outcome, landscape,
    seed::{
        repositories,
        world::{Content, LARGE, Site, TEMPLATES, World, token_of, username},
    },
};

/// How many different packs there are to push.
const PACKS: usize = 48;
/// How far behind somebody is who pulls.
const BEHIND: usize = 3;

/// Something that git does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Asks for the refs and finds that there is nothing new.
    Look,
    /// Asks for the refs and fetches what is new.
    Pull,
    Clone,
    CloneOfTheLarge,
    Push,
    /// The same by git itself, as a process.
    StockLook,
    StockClone,
}

impl Deed {
    /// All, with the share of the fetches or pushes that each is. The load model has one clone of its large repository for
    /// sixty pulls.
    pub(crate) const FETCHES: [(Self, f64); 4] =
        [(Self::Look, 0.25), (Self::Pull, 0.6), (Self::Clone, 0.134), (Self::CloneOfTheLarge, 0.016)];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Look => "git ls-remote",
            Self::Pull => "git pull",
            Self::Clone => "git clone, small",
            Self::CloneOfTheLarge => "git clone, large",
            Self::Push => "git push",
            Self::StockLook => "git ls-remote, the program",
            Self::StockClone => "git clone, the program",
        }
    }

    /// Whether its time includes that of a process which is not ours.
    pub(crate) fn is_stock(self) -> bool {
        matches!(self, Self::StockLook | Self::StockClone)
    }
}

/// What is known of the repositories before anything is asked.
pub(crate) struct Shed {
    /// Of each template all commits, oldest first.
    small: Vec<Vec<String>>,
    large: Vec<String>,
    /// Of each template: the new commit and the pack that brings it.
    packs: Vec<Vec<(String, Bytes)>>,
    /// Where clones by git itself go.
    folder: PathBuf,
}

/// One of them, ready to be done.
pub(crate) struct Haul {
    deed: Deed,
    /// Below the root, with `.git`.
    path: String,
    headers: Vec<(&'static str, String)>,
    want: String,
    have: Option<String>,
    push: Option<(String, Bytes)>,
    clone_to: PathBuf,
    /// What undoes it.
    pub(crate) after: Option<Ask>,
}

impl Shed {
    /// Reads the repositories of a data set and makes packs for it.
    pub(crate) fn build(data: &Path, world: &World, folder: &Path) -> Outcome<Self> {
        let place = |site: &Site| landscape::place_of(&data.join("repositories"), i64::try_from(site.id).unwrap_or(0));
        let large = world.sites.iter().find(|site| site.id == LARGE).ok_or("there is no large project")?;
        let large = repositories::history(&place(large), "main", 1000)?;
        let (mut small, mut packs) = (Vec::new(), Vec::new());
        for template in 0..TEMPLATES {
            let site = world.sites.iter().find(|site| site.content == Content::Small(template));
            let path = place(site.ok_or("a template has no project")?);
            let history = repositories::history(&path, "master", 1000)?;
            let tip = history.last().ok_or("a template has no commits")?.clone();
            packs.push(make_packs(&path, &tip, &folder.join(format!("packs-{template}.git")))?);
            small.push(history);
        }
        Ok(Self { small, large, packs, folder: folder.to_owned() })
    }

    pub(crate) fn haul(&self, deed: Deed, scene: &mut Scene<'_>, number: usize) -> Haul {
        let site = match deed {
            Deed::Push => scene.docks[number % scene.docks.len()],
            Deed::CloneOfTheLarge => &scene.world.sites[0],
            Deed::Pull if scene.dice.below(5) == 0 => &scene.world.sites[0],
            _ => scene.shelf(),
        };
        let user = if deed == Deed::Push { scene.world.group_of(site).owner } else { scene.person() };
        let basic = STANDARD.encode(format!("{}:{}", username(user), token_of(user)));
        let headers = vec![("authorization", format!("Basic {basic}"))];
        let history = match site.content {
            Content::Small(template) => &self.small[usize::try_from(template).unwrap_or(0)],
            _ => &self.large,
        };
        let (want, back) = (history[history.len() - 1].clone(), history[history.len() - 1 - BEHIND].clone());
        let have = (deed == Deed::Pull).then_some(back);
        let name = scene.name();
        let clone_to = self.folder.join(&name);
        let path = format!("/{}.git", scene.world.full_path(site));
        let mut haul = Haul { deed, path, headers, want, have, push: None, clone_to, after: None };
        if let (Deed::Push, Content::Small(template)) = (deed, site.content) {
            let packs = &self.packs[usize::try_from(template).unwrap_or(0)];
            let (tip, pack) = &packs[(number / scene.docks.len() + number) % packs.len()];
            let zero = "0".repeat(40);
            let command = format!("{zero} {tip} refs/heads/{name}\0report-status agent=load\n");
            let body = [packet(&command).as_bytes(), b"0000", pack].concat();
            haul.push = Some((format!("ok refs/heads/{name}"), body.into()));
            let target = format!("/projects/{}/repository/branches/{name}", site.id);
            haul.after = Some(Ask::delete(token_of(user), target));
        }
        haul
    }
}

impl Haul {
    pub(crate) fn deed(&self) -> Deed {
        self.deed
    }

    /// Does it; answers when the first byte of what was asked for came, or the last one that says that a push is done: the
    /// heads of these answers go out before the work begins.
    pub(crate) async fn run(&self, client: &Client, address: &str) -> Result<Instant, String> {
        match self.deed {
            Deed::Push => self.push(client).await,
            Deed::StockLook | Deed::StockClone => self.run_git(address).await,
            Deed::Look | Deed::Pull | Deed::Clone | Deed::CloneOfTheLarge => self.fetch(client).await,
        }
    }

    async fn fetch(&self, client: &Client) -> Result<Instant, String> {
        let greeting = self.get(client, "git-upload-pack").await?;
        expect(&greeting, "version 2")?;
        let words = ["command=ls-refs\n", "agent=load\n", "object-format=sha1"].map(packet).concat();
        let prefixes =
            ["peel\n", "symrefs\n", "ref-prefix HEAD\n", "ref-prefix refs/heads/\n", "ref-prefix refs/tags/\n"];
        let request = format!("{words}0001{}0000", prefixes.map(packet).concat());
        let refs = self.post(client, "git-upload-pack", request.into()).await?;
        expect(&refs, &self.want)?;
        if self.deed == Deed::Look {
            return Ok(refs.body);
        }
        let words = ["command=fetch\n", "agent=load\n", "object-format=sha1"].map(packet).concat();
        let mut wishes = ["thin-pack\n", "no-progress\n", "ofs-delta\n"].map(packet).concat();
        wishes += &packet(&format!("want {}\n", self.want));
        if let Some(have) = &self.have {
            wishes += &packet(&format!("have {have}\n"));
        }
        wishes += &packet("done\n");
        let sent = self.post(client, "git-upload-pack", format!("{words}0001{wishes}0000").into()).await?;
        expect(&sent, "packfile\n")?;
        expect(&sent, "PACK")?;
        Ok(sent.body)
    }

    async fn push(&self, client: &Client) -> Result<Instant, String> {
        let (report, body) = self.push.as_ref().ok_or("there is nothing to push")?;
        let greeting = self.get(client, "git-receive-pack").await?;
        expect(&greeting, "refs/heads/master")?;
        let told = self.post(client, "git-receive-pack", body.clone()).await?;
        expect(&told, "unpack ok")?;
        expect(&told, report)?;
        Ok(told.end)
    }

    async fn get(&self, client: &Client, service: &str) -> Result<Answer, String> {
        let target = format!("{}/info/refs?service={service}", self.path);
        self.send(client, Message { method: "GET", target, headers: self.headers.clone(), body: Bytes::new() }).await
    }

    async fn post(&self, client: &Client, service: &str, body: Bytes) -> Result<Answer, String> {
        let mut headers = self.headers.clone();
        headers.push(("content-type", format!("application/x-{service}-request")));
        let target = format!("{}/{service}", self.path);
        self.send(client, Message { method: "POST", target, headers, body }).await
    }

    async fn send(&self, client: &Client, mut message: Message) -> Result<Answer, String> {
        if self.deed != Deed::Push {
            message.headers.push(("git-protocol", "version=2".into()));
        }
        let answer = client.send(&message).await?;
        if answer.status != 200 {
            return Err(format!("{} answers {}", message.target, answer.status));
        }
        Ok(answer)
    }

    async fn run_git(&self, address: &str) -> Result<Instant, String> {
        let url = format!("http://{address}{}", self.path);
        let mut command = tokio::process::Command::from(quiet());
        // In variables, because arguments can be read by everybody on the machine.
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "http.extraHeader");
        command.env("GIT_CONFIG_VALUE_0", format!("Authorization: {}", self.headers[0].1));
        match self.deed {
            Deed::StockClone => command.args(["clone", "--quiet", "--bare", &url]).arg(&self.clone_to),
            _ => command.args(["ls-remote", "--quiet", &url]),
        };
        let ran = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output().await;
        let ran = ran.map_err(|error| format!("cannot run git: {error}"))?;
        let end = Instant::now();
        let _ = tokio::fs::remove_dir_all(&self.clone_to).await;
        if ran.status.success() { Ok(end) } else { Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned()) }
    }
}

fn expect(answer: &Answer, word: &str) -> Result<(), String> {
    let found = answer.start.windows(word.len()).any(|window| window == word.as_bytes());
    let shown = || String::from_utf8_lossy(&answer.start[..answer.start.len().min(200)]).into_owned();
    if found { Ok(()) } else { Err(format!("no {word:?} in {}", shown())) }
}

fn packet(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

/// Packs of one commit each on top of another repository's tip.
fn make_packs(source: &Path, tip: &str, folder: &Path) -> Outcome<Vec<(String, Bytes)>> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    landscape::git(folder, &["init", "--quiet", "--bare"])?;
    let objects = source.join("objects").canonicalize().map_err(|error| format!("no objects: {error}"))?;
    let written = fs::write(folder.join("objects/info/alternates"), format!("{}\n", objects.display()));
    written.map_err(|error| format!("cannot write: {error}"))?;
    landscape::import(folder, |out| {
        use std::io::Write as _;
        for number in 0..PACKS {
            writeln!(
                out,
                "commit refs/heads/new-{number}\ncommitter Ann <ann@example.org> {} +0000",
                1_750_000_000 + number
            )?;
            writeln!(out, "data 9\nOne more\n\nfrom {tip}")?;
            landscape::write_file(out, "NEWS.md", &format!("# What is new\n\n- number {number}\n"))?;
        }
        writeln!(out, "done")
    })?;
    (0..PACKS)
        .map(|number| {
            let new = landscape::git(folder, &["rev-parse", &format!("refs/heads/new-{number}")])?;
            let new = String::from_utf8_lossy(&new).trim().to_owned();
            let pack = pack(folder, &format!("{new}\n^{tip}\n"))?;
            Ok((new, pack))
        })
        .collect()
}

fn pack(folder: &Path, revisions: &str) -> Outcome<Bytes> {
    let failed = |error: std::io::Error| format!("cannot run git: {error}");
    let mut command = quiet();
    command.arg("--git-dir").arg(folder).args(["pack-objects", "--revs", "--stdout", "--quiet"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut input = child.stdin.take().ok_or("git takes no input")?;
    std::io::Write::write_all(&mut input, revisions.as_bytes()).map_err(failed)?;
    drop(input);
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() { Ok(output.stdout.into()) } else { Err("git pack-objects failed".into()) }
}

/// Git without anybody's configuration, and without a way to ask anybody.
fn quiet() -> Command {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_carry_their_length_and_shares_make_a_whole() {
        assert_eq!(packet("done\n"), "0009done\n");
        let sum: f64 = Deed::FETCHES.iter().map(|(_, share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}
