//! What a kill in the middle leaves of pushes: every one that was acknowledged, each ref change with exactly one event and,
//! where there is something to build, exactly one pipeline, and repositories in which nothing is missing.
//!
//! `cargo xtask crash --runs N` runs this for longer; `GABLE_CRASH_SEED` repeats the moments of a run.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use model::Oid;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::repository::{git, quiet_git};

use crate::{
    admin::binary::{Client, Heard, Home, ROOT_TOKEN, Server},
    crash::crash_ways::{Campaign, End, Way, as_usual, pause},
};

/// How often one data folder is hit, unless told otherwise.
const KILLS: usize = 8;
/// How long after the first acknowledgements of each kind the server lives at most, in milliseconds.
const LATEST: u64 = 400;

/// What must be 0 once a server is ready.
const FAULTS: [(&str, &str); 6] = [
    ("pushes that were not settled", "SELECT count(*) FROM ref_intents"),
    ("events that nobody will ever see", "SELECT count(*) FROM events WHERE intent_id IS NOT NULL"),
    (
        "events that do not follow from each other",
        "SELECT count(*) FROM (SELECT p.before, lag(p.after) OVER \
         (PARTITION BY e.project_id, p.ref_name ORDER BY e.id) AS previous FROM events e \
         JOIN push_events p ON p.event_id = e.id) x \
         WHERE x.before <> coalesce(x.previous, '0000000000000000000000000000000000000000')",
    ),
    (
        "pipelines that nobody will ever see",
        "SELECT count(*) FROM pipelines WHERE intent_id IS NOT NULL OR plan IS NOT NULL",
    ),
    (
        "pipelines without exactly one job",
        "SELECT count(*) FROM pipelines p WHERE (SELECT count(*) FROM builds b WHERE b.pipeline_id = p.id) <> 1",
    ),
    (
        "pushes of something to build without exactly one pipeline",
        "SELECT count(*) FROM (SELECT ref_name, after, count(*) AS times FROM push_events \
         WHERE (ref_name LIKE 'refs/heads/one-%' OR ref_name LIKE 'refs/heads/two-%') \
         AND after <> '0000000000000000000000000000000000000000' GROUP BY ref_name, after) e \
         WHERE times <> (SELECT count(*) FROM pipelines p \
         WHERE 'refs/heads/' || p.ref_name = e.ref_name AND p.sha = e.after)",
    ),
];

/// What is known of one ref: what was acknowledged last, and what may have happened since.
#[derive(Clone, Debug, Default)]
struct Known {
    acknowledged: Option<String>,
    perhaps: Option<Perhaps>,
}

/// What has become of a ref if a change happened that nobody heard of.
#[derive(Clone, Debug)]
enum Perhaps {
    /// It is this, or gone.
    Is(Option<String>),
    /// It is a commit on top of what it was.
    OneMore,
}

/// By full name.
type Diary = BTreeMap<String, Known>;

#[test]
fn no_push_is_lost_and_none_is_told_twice_after_kills_in_a_storm() {
    hit(Campaign::begin("crash_pushes", KILLS, Way::Kill, as_usual));
}

/// Hits a server while refs are pushed, and moved by endpoints.
pub(crate) fn hit(mut campaign: Campaign) {
    let (kills, way) = (campaign.kills, campaign.way);
    let home = Home::new();
    let work = tempfile::tempdir().expect("a folder");
    let server = home.start();
    let made = server.root().post("/api/v3/projects", &json!({ "name": "storm", "path": "storm" }));
    let project = made.json()["id"].as_i64().expect("a number");
    let clones = [Clone::new(&work, "one"), Clone::new(&work, "two")];
    let master = clones[0].first_push(&server);
    server.stop();
    let mut diary = Diary::new();
    for kill in 0..kills {
        let server = campaign.start(&home);
        compare(&home, &server, project, &mut diary);
        let heard: [Heard; 3] = Default::default();
        let mut clients: Vec<JoinHandle<Diary>> = Vec::new();
        for (clone, heard) in clones.iter().zip(&heard) {
            clients.push(clone.rage(&server, heard.clone(), part(&diary, &clone.prefix), campaign.dice.roll(), way));
        }
        let own = part(&diary, "refs/heads/api-");
        let desk = Desk { root: server.root(), project, round: kill, master: master.clone(), way };
        clients.push(desk.rage(heard[2].clone(), own, campaign.dice.roll()));
        heard.iter().for_each(Heard::wait);
        campaign.strike(&home, server, &heard, LATEST);
        for client in clients {
            diary.extend(client.join().expect("nothing but success is heard"));
        }
    }
    let server = home.start();
    compare(&home, &server, project, &mut diary);
    let events = home.count("SELECT count(*) FROM events");
    let several = i64::try_from(kills).expect("a number") * 3;
    assert!(events > several, "no storm at all: {events} events");
    assert!(home.count("SELECT count(*) FROM pipelines") > 0, "nothing was built");
    server.stop();
    campaign.finish(usize::try_from(events).expect("a number"));
}

/// Everything acknowledged is there, whole, and told once.
fn compare(home: &Home, server: &Server, project: i64, diary: &mut Diary) {
    for (what, query) in FAULTS {
        assert_eq!(home.count(query), 0, "{what}");
    }
    let folder = repository_of(home);
    // A check sees packs come and go while the house is kept, and takes that for damage.
    let lock = File::options().write(true).create(true).truncate(false).open(folder.join("house.lock"));
    let lock = lock.expect("a lock");
    lock.lock().expect("nobody keeps the house");
    // The graph of the commits is made from them and made anew if it is broken; git does not sync the list of its files.
    git(&folder, &["-c", "core.commitGraph=false", "fsck", "--strict", "--full", "--no-dangling"], b"");
    let listed = git(&folder, &["for-each-ref", "--format=%(refname) %(objectname)"], b"");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let there: BTreeMap<&str, &str> = listed.lines().filter_map(|line| line.split_once(' ')).collect();
    for (name, known) in diary.iter_mut() {
        let found = there.get(name.as_str()).map(|id| (*id).to_owned());
        let happened = || match (&known.perhaps, &found) {
            (Some(Perhaps::Is(expected)), found) => found == expected,
            (Some(Perhaps::OneMore), Some(found)) => parent_of(&folder, found) == known.acknowledged,
            (Some(Perhaps::OneMore), None) | (None, _) => false,
        };
        assert!(found == known.acknowledged || happened(), "{name} is {found:?}, but {known:?}");
        // What became of it is known now.
        *known = Known { acknowledged: found, perhaps: None };
        let last = known.acknowledged.clone().unwrap_or_else(|| Oid::ZERO.to_owned());
        let told = format!(
            "SELECT count(*) FROM push_events WHERE event_id = (SELECT max(e.id) FROM events e JOIN push_events p \
             ON p.event_id = e.id WHERE p.ref_name = '{name}' AND e.project_id = {project}) AND after = '{last}'"
        );
        let untold = known.acknowledged.is_none()
            && home.count(&format!("SELECT count(*) FROM push_events WHERE ref_name = '{name}'")) == 0;
        assert!(untold || home.count(&told) == 1, "the last event of {name} does not end at {last}");
    }
    // And nothing is there that nobody has asked for.
    for name in there.keys().filter(|name| **name != "refs/heads/master") {
        assert!(diary.contains_key(*name), "{name} comes from nowhere");
    }
    let shown = server.root().get(&format!("/api/v3/projects/{project}"));
    assert_eq!(shown.json()["default_branch"], "master");
}

fn parent_of(folder: &Path, commit: &str) -> Option<String> {
    let output =
        quiet_git(folder).args(["rev-parse", "--verify", "-q", &format!("{commit}^")]).output().expect("git runs");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn repository_of(home: &Home) -> PathBuf {
    let root = home.data().join("repositories");
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".git") && name != "empty.git" {
                return entry.path();
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !["tmp", "trash", "empty.git"].contains(&&*name) {
                folders.push(entry.path());
            }
        }
    }
    panic!("no repository");
}

fn part(diary: &Diary, prefix: &str) -> Diary {
    diary
        .iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(name, known)| (name.clone(), known.clone()))
        .collect()
}

/// Numbers that look like chance and can be had again.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}

/// Somebody's own copy, from which they push with stock git.
struct Clone {
    folder: PathBuf,
    prefix: String,
}

impl Clone {
    fn new(work: &TempDir, name: &str) -> Self {
        let folder = work.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        git(&folder, &["init", "-q", "-b", "master"], b"");
        git(&folder, &["commit", "-q", "--allow-empty", "-m", "First"], b"");
        Self { folder, prefix: format!("refs/heads/{name}-") }
    }

    fn first_push(&self, server: &Server) -> String {
        git(&self.folder, &["push", "-q", &url(server), "master"], b"");
        String::from_utf8_lossy(&git(&self.folder, &["rev-parse", "master"], b"").stdout).trim().to_owned()
    }

    /// Pushes to branches of its own, again and again, until the server is gone.
    fn rage(&self, server: &Server, heard: Heard, mut diary: Diary, seed: u64, way: Way) -> JoinHandle<Diary> {
        let (folder, prefix, url) = (self.folder.clone(), self.prefix.clone(), url(server));
        thread::spawn(move || {
            let mut dice = Dice(seed | 1);
            loop {
                // Several refs at once, one of them perhaps removed, in one push or in none.
                let names: Vec<String> =
                    (0..=dice.roll() % 3).map(|_| format!("{prefix}{}", dice.roll() % 6)).collect();
                let mut specs: BTreeMap<String, Option<String>> = BTreeMap::new();
                for name in names {
                    let exists = diary.get(&name).is_some_and(|known| known.acknowledged.is_some());
                    let new = (!exists || !dice.roll().is_multiple_of(4)).then(|| commit(&folder, dice.roll()));
                    specs.insert(name, new);
                }
                let word = |(name, new): (&String, &Option<String>)| match new {
                    Some(id) => format!("+{id}:{name}"),
                    None => format!(":{name}"),
                };
                let words: Vec<String> = specs.iter().map(word).collect();
                let pushed = quiet_git(&folder).args(["push", "-q", &url]).args(&words).output().expect("git runs");
                for (name, new) in &specs {
                    let known = diary.entry(name.clone()).or_default();
                    if pushed.status.success() {
                        known.acknowledged.clone_from(new);
                    } else {
                        known.perhaps = Some(Perhaps::Is(new.clone()));
                    }
                }
                if pushed.status.success() {
                    heard.note();
                    continue;
                }
                let said = String::from_utf8_lossy(&pushed.stderr).into_owned();
                assert!(way == Way::Full || !said.contains("remote rejected"), "{said}");
                // What was refused has happened or not, and that can be seen at once.
                let Some(there) = (way == Way::Full).then(|| refs_of(&folder, &url)).flatten() else { return diary };
                for (name, new) in specs {
                    let known = diary.entry(name.clone()).or_default();
                    let found = there.get(&name).cloned();
                    assert!(found == known.acknowledged || found == new, "{name} is {found:?}, {known:?}: {said}");
                    *known = Known { acknowledged: found, perhaps: None };
                }
                pause();
            }
        })
    }
}

fn url(server: &Server) -> String {
    format!("http://root:{ROOT_TOKEN}@{}/root/storm.git", server.address())
}

/// A commit that nobody has made before, with something to build.
fn commit(folder: &Path, number: u64) -> String {
    let entry = |name: &str, content: &str| {
        let blob = git(folder, &["hash-object", "-w", "--stdin"], content.as_bytes()).stdout;
        format!("100644 blob {}\t{name}\n", String::from_utf8_lossy(&blob).trim())
    };
    let entries = entry(".gitlab-ci.yml", "job: {script: make}\n") + &entry("file", &number.to_string());
    let tree = git(folder, &["mktree"], entries.as_bytes()).stdout;
    let tree = String::from_utf8_lossy(&tree).trim().to_owned();
    let made = git(folder, &["commit-tree", "-p", "master", "-m", &number.to_string(), &tree], b"").stdout;
    String::from_utf8_lossy(&made).trim().to_owned()
}

/// What the server says that there is; nothing if there is no server any more.
fn refs_of(folder: &Path, url: &str) -> Option<BTreeMap<String, String>> {
    for _ in 0..1_000 {
        let asked = quiet_git(folder).args(["ls-remote", url]).output().expect("git runs");
        if asked.status.success() {
            let text = String::from_utf8_lossy(&asked.stdout).into_owned();
            let pairs = text.lines().filter_map(|line| line.split_once('\t'));
            return Some(pairs.map(|(id, name)| (name.to_owned(), id.to_owned())).collect());
        }
        let said = String::from_utf8_lossy(&asked.stderr).into_owned();
        if said.contains("onnect to ") {
            return None;
        }
        pause();
    }
    panic!("refs cannot be read");
}

/// Somebody who moves refs by endpoints.
struct Desk {
    root: Client,
    project: i64,
    round: usize,
    master: String,
    way: Way,
}

impl Desk {
    /// Makes branches, commits to them and removes them, until the server is gone.
    fn rage(self, heard: Heard, mut diary: Diary, seed: u64) -> JoinHandle<Diary> {
        thread::spawn(move || {
            let mut dice = Dice(seed | 1);
            for step in 0.. {
                let short = format!("api-{}", dice.roll() % 8);
                let known = diary.entry(format!("refs/heads/{short}")).or_default();
                let (answer, perhaps) = self.act(&short, known, step, &mut dice);
                match answer {
                    Ok(body) => {
                        let id = |value: &Value| value.as_str().map(ToOwned::to_owned);
                        known.acknowledged = match perhaps {
                            Perhaps::Is(None) => None,
                            Perhaps::Is(Some(_)) => id(&body["commit"]["id"]),
                            Perhaps::OneMore => id(&body["id"]),
                        };
                        heard.note();
                    }
                    Err(end) => {
                        known.perhaps = Some(perhaps);
                        let found = (end == End::Refused).then(|| self.look(&short)).flatten();
                        let Some(found) = found else { return diary };
                        *known = Known { acknowledged: found, perhaps: None };
                        pause();
                    }
                }
            }
            diary
        })
    }

    fn act(&self, short: &str, known: &Known, step: u64, dice: &mut Dice) -> (Result<Value, End>, Perhaps) {
        let base = format!("/api/v3/projects/{}/repository", self.project);
        if known.acknowledged.is_none() {
            let new = json!({ "branch_name": short, "ref": "master" });
            let made = self.root.try_post(&format!("{base}/branches"), &new);
            (self.way.heard(made), Perhaps::Is(Some(self.master.clone())))
        } else if dice.roll().is_multiple_of(3) {
            (self.way.heard(self.root.try_delete(&format!("{base}/branches/{short}"))), Perhaps::Is(None))
        } else {
            let path = format!("f-{}-{step}", self.round);
            let action = json!({ "action": "create", "file_path": path, "content": "x" });
            let new = json!({ "branch_name": short, "commit_message": "m", "actions": [action] });
            (self.way.heard(self.root.try_post(&format!("{base}/commits"), &new)), Perhaps::OneMore)
        }
    }

    /// What a branch is, after a refusal; nothing if there is no server any more.
    fn look(&self, short: &str) -> Option<Option<String>> {
        let path = format!("/api/v3/projects/{}/repository/branches/{short}", self.project);
        let reply = self.root.try_get(&path).ok()?;
        match reply.status {
            200 => Some(Some(reply.try_json()?["commit"]["id"].as_str()?.to_owned())),
            404 => Some(None),
            _ => panic!("{reply}"),
        }
    }
}
