//! Crashes during pushes: no acknowledged push is lost, each ref change has exactly one event and, if there is something
//! to build, exactly one pipeline, and no repository misses objects.
//!
//! `cargo xtask crash --runs N` runs this for longer; `GABLE_CRASH_SEED` repeats the random choices of a run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
};

use model::{Oid, ProjectId};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::repository::{git, git_command, incompressible_text};

use crate::{
    crash::campaign::{Campaign, FailureMode, WriteFailure, default_server, wait_before_retry},
    support::{Acknowledgement, HttpClient, ROOT_TOKEN, Rng, ServerProcess, TestInstance},
};

/// The default number of crashes per data folder.
const KILLS: usize = 8;
/// The maximum delay between the first acknowledgement of each kind and the crash, in milliseconds.
const MAX_DELAY: u64 = 400;

/// Counts that must be 0 once a server is ready.
const INVARIANTS: [(&str, &str); 5] = [
    (
        "repositories whose refs have another size",
        "SELECT count(*) FROM repositories r WHERE r.refs_bytes <> (SELECT coalesce(sum(42 + length(f.name) + \
         CASE WHEN f.peeled IS NULL THEN 0 ELSE 42 END), 0) FROM refs f WHERE f.repository_id = r.id)",
    ),
    (
        "refs without exactly one event that leads to their target",
        "SELECT count(*) FROM refs f WHERE f.name <> 'refs/heads/master' AND f.target <> (SELECT p.after \
         FROM push_events p WHERE p.event_id = (SELECT max(q.event_id) FROM push_events q WHERE q.ref_name = f.name))",
    ),
    (
        "events that do not continue the previous one",
        "SELECT count(*) FROM (SELECT p.before, lag(p.after) OVER \
         (PARTITION BY e.project_id, p.ref_name ORDER BY e.id) AS previous FROM events e \
         JOIN push_events p ON p.event_id = e.id) x \
         WHERE x.before <> coalesce(x.previous, '0000000000000000000000000000000000000000')",
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

/// The expected state of a ref: the acknowledged target, and a change that may have happened since.
#[derive(Clone, Debug, Default)]
struct ExpectedRef {
    acknowledged: Option<String>,
    possible_change: Option<PossibleChange>,
}

/// A change that was not acknowledged.
#[derive(Clone, Debug)]
enum PossibleChange {
    /// The ref points to this, or is deleted.
    Set(Option<String>),
    /// A commit was added to the ref.
    AddCommit,
}

/// The expected state of refs by full name.
type ExpectedRefs = BTreeMap<String, ExpectedRef>;

#[test]
fn no_push_is_lost_or_recorded_twice_when_killed_during_writes() {
    run(Campaign::new("crash_pushes", KILLS, FailureMode::Kill, default_server));
}

/// Crashes servers while refs are changed by pushes and API requests.
pub(crate) fn run(mut campaign: Campaign) {
    let (kills, mode) = (campaign.kills, campaign.mode);
    let instance = TestInstance::new();
    let work = tempfile::tempdir().expect("a folder");
    let server = instance.start();
    let made = server.root().post("/api/v3/projects", &json!({ "name": "storm", "path": "storm" }));
    let project = made.json()["id"].as_i64().expect("a number");
    let clones = [GitWorkload::new(&work, "one"), GitWorkload::new(&work, "two")];
    let master = clones[0].first_push(&server);
    server.stop();
    let mut expected = ExpectedRefs::new();
    for kill in 0..kills {
        let server = campaign.start(&instance);
        check(&instance, &server, project, &mut expected);
        let acknowledgements: [Acknowledgement; 3] = Default::default();
        let mut clients: Vec<JoinHandle<ExpectedRefs>> = Vec::new();
        for (clone, acknowledgement) in clones.iter().zip(&acknowledgements) {
            clients.push(clone.run_until_killed(
                &server,
                acknowledgement.clone(),
                with_prefix(&expected, &clone.prefix),
                campaign.rng.next_u64(),
                mode,
            ));
        }
        let own = with_prefix(&expected, "refs/heads/api-");
        let api_workload = ApiWorkload { root: server.root(), project, round: kill, master: master.clone(), mode };
        clients.push(api_workload.run_until_killed(acknowledgements[2].clone(), own, campaign.rng.next_u64()));
        acknowledgements.iter().for_each(Acknowledgement::wait);
        campaign.crash(&instance, server, &acknowledgements, MAX_DELAY);
        for client in clients {
            expected.extend(client.join().expect("every response is a success"));
        }
    }
    let server = instance.start();
    check(&instance, &server, project, &mut expected);
    let events = instance.count("SELECT count(*) FROM events");
    let minimum = i64::try_from(kills).expect("a number") * 3;
    assert!(events > minimum, "too few writes: {events} events");
    assert!(instance.count("SELECT count(*) FROM pipelines") > 0, "nothing was built");
    server.stop();
    campaign.finish(usize::try_from(events).expect("a number"));
}

/// Checks that everything acknowledged is there, complete, and recorded once.
fn check(instance: &TestInstance, server: &ServerProcess, project: i64, expected: &mut ExpectedRefs) {
    for (what, query) in INVARIANTS {
        assert_eq!(instance.count(query), 0, "{what}");
    }
    // From the database and the stored packs only.
    let repository = instance.build_repository(ProjectId::new(project));
    let folder = repository.path();
    git(folder, &["fsck", "--strict", "--full", "--no-dangling"], b"");
    let listed = git(folder, &["for-each-ref", "--format=%(refname) %(objectname)"], b"");
    let listed = String::from_utf8(listed.stdout).expect("text");
    // The server sends the same, whatever the crash has left of its cache.
    let clone = folder.join("clone.git");
    git(folder, &["clone", "-q", "--mirror", &url(server), "clone.git"], b"");
    git(&clone, &["fsck", "--strict", "--full"], b"");
    let cloned = git(&clone, &["for-each-ref", "--format=%(refname) %(objectname)"], b"");
    assert_eq!(String::from_utf8(cloned.stdout).expect("text"), listed);
    let there: BTreeMap<&str, &str> = listed.lines().filter_map(|line| line.split_once(' ')).collect();
    for (name, known) in expected.iter_mut() {
        let found = there.get(name.as_str()).map(|id| (*id).to_owned());
        let change_happened = || match (&known.possible_change, &found) {
            (Some(PossibleChange::Set(expected)), found) => found == expected,
            (Some(PossibleChange::AddCommit), Some(found)) => parent_of(folder, found) == known.acknowledged,
            (Some(PossibleChange::AddCommit), None) | (None, _) => false,
        };
        assert!(found == known.acknowledged || change_happened(), "{name} is {found:?}, but {known:?}");
        // The state of the ref is known now.
        *known = ExpectedRef { acknowledged: found, possible_change: None };
        let last = known.acknowledged.clone().unwrap_or_else(|| Oid::ZERO.to_owned());
        let last_event = format!(
            "SELECT count(*) FROM push_events WHERE event_id = (SELECT max(e.id) FROM events e JOIN push_events p \
             ON p.event_id = e.id WHERE p.ref_name = '{name}' AND e.project_id = {project}) AND after = '{last}'"
        );
        let never_existed = known.acknowledged.is_none()
            && instance.count(&format!("SELECT count(*) FROM push_events WHERE ref_name = '{name}'")) == 0;
        assert!(never_existed || instance.count(&last_event) == 1, "the last event of {name} does not end at {last}");
    }
    // No other refs exist.
    for name in there.keys().filter(|name| **name != "refs/heads/master") {
        assert!(expected.contains_key(*name), "{name} was never pushed");
    }
    let shown = server.root().get(&format!("/api/v3/projects/{project}"));
    assert_eq!(shown.json()["default_branch"], "master");
}

fn parent_of(folder: &Path, commit: &str) -> Option<String> {
    let output =
        git_command(folder).args(["rev-parse", "--verify", "-q", &format!("{commit}^")]).output().expect("git runs");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn with_prefix(expected: &ExpectedRefs, prefix: &str) -> ExpectedRefs {
    expected
        .iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(name, known)| (name.clone(), known.clone()))
        .collect()
}

/// A local clone that pushes with git.
struct GitWorkload {
    folder: PathBuf,
    prefix: String,
}

impl GitWorkload {
    fn new(work: &TempDir, name: &str) -> Self {
        let folder = work.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        git(&folder, &["init", "-q", "-b", "master"], b"");
        git(&folder, &["commit", "-q", "--allow-empty", "-m", "First"], b"");
        Self { folder, prefix: format!("refs/heads/{name}-") }
    }

    fn first_push(&self, server: &ServerProcess) -> String {
        git(&self.folder, &["push", "-q", &url(server), "master"], b"");
        String::from_utf8_lossy(&git(&self.folder, &["rev-parse", "master"], b"").stdout).trim().to_owned()
    }

    /// Pushes to its own branches until the server is gone.
    fn run_until_killed(
        &self,
        server: &ServerProcess,
        acknowledgement: Acknowledgement,
        mut expected: ExpectedRefs,
        seed: u64,
        mode: FailureMode,
    ) -> JoinHandle<ExpectedRefs> {
        let (folder, prefix, url) = (self.folder.clone(), self.prefix.clone(), url(server));
        thread::spawn(move || {
            let mut rng = Rng(seed | 1);
            loop {
                // Several refs per push, some of them deleted.
                let names: Vec<String> =
                    (0..=rng.next_u64() % 3).map(|_| format!("{prefix}{}", rng.next_u64() % 6)).collect();
                let mut specs: BTreeMap<String, Option<String>> = BTreeMap::new();
                for name in names {
                    let exists = expected.get(&name).is_some_and(|known| known.acknowledged.is_some());
                    let new = (!exists || !rng.next_u64().is_multiple_of(4)).then(|| commit(&folder, rng.next_u64()));
                    specs.insert(name, new);
                }
                let refspec = |(name, new): (&String, &Option<String>)| match new {
                    Some(id) => format!("+{id}:{name}"),
                    None => format!(":{name}"),
                };
                let refspecs: Vec<String> = specs.iter().map(refspec).collect();
                let pushed =
                    git_command(&folder).args(["push", "-q", &url]).args(&refspecs).output().expect("git runs");
                for (name, new) in &specs {
                    let known = expected.entry(name.clone()).or_default();
                    if pushed.status.success() {
                        known.acknowledged.clone_from(new);
                    } else {
                        known.possible_change = Some(PossibleChange::Set(new.clone()));
                    }
                }
                if pushed.status.success() {
                    acknowledgement.record();
                    continue;
                }
                let error = String::from_utf8_lossy(&pushed.stderr).into_owned();
                assert!(mode == FailureMode::DiskFull || !error.contains("remote rejected"), "{error}");
                // Whether the refused change happened can be read at once.
                let Some(there) = (mode == FailureMode::DiskFull).then(|| refs_of(&folder, &url)).flatten() else {
                    return expected;
                };
                for (name, new) in specs {
                    let known = expected.entry(name.clone()).or_default();
                    let found = there.get(&name).cloned();
                    assert!(found == known.acknowledged || found == new, "{name} is {found:?}, {known:?}: {error}");
                    *known = ExpectedRef { acknowledged: found, possible_change: None };
                }
                wait_before_retry();
            }
        })
    }
}

fn url(server: &ServerProcess) -> String {
    format!("http://root:{ROOT_TOKEN}@{}/root/storm.git", server.address())
}

/// Creates a new commit with a CI file.
fn commit(folder: &Path, number: u64) -> String {
    let entry = |name: &str, content: &str| {
        let blob = git(folder, &["hash-object", "-w", "--stdin"], content.as_bytes()).stdout;
        format!("100644 blob {}\t{name}\n", String::from_utf8_lossy(&blob).trim())
    };
    let entries = entry(".gitlab-ci.yml", "job: {script: make}\n") + &entry("file", &content(number));
    let tree = git(folder, &["mktree"], entries.as_bytes()).stdout;
    let tree = String::from_utf8_lossy(&tree).trim().to_owned();
    let made = git(folder, &["commit-tree", "-p", "master", "-m", &number.to_string(), &tree], b"").stdout;
    String::from_utf8_lossy(&made).trim().to_owned()
}

/// Returns the content of a file: every third is so large that its pack is stored in files, and not in the database.
fn content(number: u64) -> String {
    let large = if number.is_multiple_of(3) { incompressible_text(100_000) } else { String::new() };
    format!("{number}\n{large}")
}

/// Returns the refs of the server; `None` if the server is gone.
fn refs_of(folder: &Path, url: &str) -> Option<BTreeMap<String, String>> {
    for _ in 0..1_000 {
        let listed = git_command(folder).args(["ls-remote", url]).output().expect("git runs");
        if listed.status.success() {
            let text = String::from_utf8_lossy(&listed.stdout).into_owned();
            let pairs = text.lines().filter_map(|line| line.split_once('\t'));
            return Some(pairs.map(|(id, name)| (name.to_owned(), id.to_owned())).collect());
        }
        let error = String::from_utf8_lossy(&listed.stderr).into_owned();
        if error.contains("onnect to ") {
            return None;
        }
        wait_before_retry();
    }
    panic!("refs cannot be read");
}

/// A client that changes refs by API requests.
struct ApiWorkload {
    root: HttpClient,
    project: i64,
    round: usize,
    master: String,
    mode: FailureMode,
}

impl ApiWorkload {
    /// Creates branches, commits to them and deletes them until the server is gone.
    fn run_until_killed(
        self,
        acknowledgement: Acknowledgement,
        mut expected: ExpectedRefs,
        seed: u64,
    ) -> JoinHandle<ExpectedRefs> {
        thread::spawn(move || {
            let mut rng = Rng(seed | 1);
            for step in 0.. {
                let short = format!("api-{}", rng.next_u64() % 8);
                let known = expected.entry(format!("refs/heads/{short}")).or_default();
                let (result, possible_change) = self.write(&short, known, step, &mut rng);
                match result {
                    Ok(body) => {
                        let id = |value: &Value| value.as_str().map(ToOwned::to_owned);
                        known.acknowledged = match possible_change {
                            PossibleChange::Set(None) => None,
                            PossibleChange::Set(Some(_)) => id(&body["commit"]["id"]),
                            PossibleChange::AddCommit => id(&body["id"]),
                        };
                        acknowledgement.record();
                    }
                    Err(failure) => {
                        known.possible_change = Some(possible_change);
                        let found = (failure == WriteFailure::DiskFull).then(|| self.read_branch(&short)).flatten();
                        let Some(found) = found else { return expected };
                        *known = ExpectedRef { acknowledged: found, possible_change: None };
                        wait_before_retry();
                    }
                }
            }
            expected
        })
    }

    fn write(
        &self,
        short: &str,
        known: &ExpectedRef,
        step: u64,
        rng: &mut Rng,
    ) -> (Result<Value, WriteFailure>, PossibleChange) {
        let base = format!("/api/v3/projects/{}/repository", self.project);
        if known.acknowledged.is_none() {
            let new = json!({ "branch_name": short, "ref": "master" });
            let made = self.root.try_post(&format!("{base}/branches"), &new);
            (self.mode.acknowledged(made), PossibleChange::Set(Some(self.master.clone())))
        } else if rng.next_u64().is_multiple_of(3) {
            (
                self.mode.acknowledged(self.root.try_delete(&format!("{base}/branches/{short}"))),
                PossibleChange::Set(None),
            )
        } else {
            let path = format!("f-{}-{step}", self.round);
            let action = json!({ "action": "create", "file_path": path, "content": content(step) });
            let new = json!({ "branch_name": short, "commit_message": "m", "actions": [action] });
            (self.mode.acknowledged(self.root.try_post(&format!("{base}/commits"), &new)), PossibleChange::AddCommit)
        }
    }

    /// Returns the target of a branch after a refusal; `None` if the server is gone.
    fn read_branch(&self, short: &str) -> Option<Option<String>> {
        let path = format!("/api/v3/projects/{}/repository/branches/{short}", self.project);
        loop {
            let response = self.root.try_get(&path).ok()?;
            return match response.status {
                200 => Some(Some(response.try_json()?["commit"]["id"].as_str()?.to_owned())),
                404 => Some(None),
                // A read of new objects needs space for names of files.
                _ if self.mode.is_disk_full_response(&response) => {
                    wait_before_retry();
                    continue;
                }
                _ => panic!("{response}"),
            };
        }
    }
}
