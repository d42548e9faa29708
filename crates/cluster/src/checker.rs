//! Compares what nodes answer with what was acknowledged. Clients must be idle.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    git::git,
    http::{Client, Response},
    ledger::{RefChange, Write, ZERO},
    load::{Project, Shared},
    receiver::{Receiver, parse_push},
};

/// How long a node may take to answer a read with success; a request to the store may be repeated that long.
const READ_TIMEOUT: Duration = Duration::from_secs(20);
/// The number of concurrent reads.
const CONCURRENCY: usize = 8;
/// How long the last webhooks may take: a queue of a node that was killed stays leased for a minute, and after a
/// failure deliveries are repeated with growing delays.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(180);

/// The number of problems of each kind that are printed.
const PRINTED_PROBLEMS: usize = 5;

/// A node with its name.
pub(crate) type NamedNode = (&'static str, Client);

/// What a check found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Findings {
    /// Acknowledged writes that a node does not have.
    pub(crate) losses: Vec<String>,
    pub(crate) duplicated_events: Vec<String>,
    /// Changes of refs without an event.
    pub(crate) missing_events: Vec<String>,
    pub(crate) missing_webhooks: Vec<String>,
    /// Webhooks that were delivered more than once, which is permitted.
    pub(crate) repeated_webhooks: u64,
    /// Jobs that succeeded twice.
    pub(crate) repeated_jobs: Vec<String>,
    /// Jobs that did not succeed.
    pub(crate) unfinished_jobs: Vec<String>,
}

impl Findings {
    pub(crate) fn add(&mut self, other: Self) {
        self.losses.extend(other.losses);
        self.duplicated_events.extend(other.duplicated_events);
        self.missing_events.extend(other.missing_events);
        self.missing_webhooks.extend(other.missing_webhooks);
        self.repeated_webhooks += other.repeated_webhooks;
        self.repeated_jobs.extend(other.repeated_jobs);
        self.unfinished_jobs.extend(other.unfinished_jobs);
    }

    /// Returns everything that must not happen, with a title for each kind.
    fn problems_by_kind(&self) -> [(&'static str, &[String]); 6] {
        [
            ("lost", &self.losses),
            ("two events", &self.duplicated_events),
            ("no event", &self.missing_events),
            ("no webhook", &self.missing_webhooks),
            ("job twice", &self.repeated_jobs),
            ("job not ended", &self.unfinished_jobs),
        ]
    }

    /// Returns everything that must not happen.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &String> {
        self.problems_by_kind().into_iter().flat_map(|(_, problems)| problems)
    }

    /// Prints the first problems of each kind.
    pub(crate) fn print(&self) {
        for (kind, problems) in self.problems_by_kind() {
            for problem in problems.iter().take(PRINTED_PROBLEMS) {
                println!("  {kind}: {problem}");
            }
        }
    }
}

/// Checks that every node has the writes, and that the events of one node are right.
pub(crate) async fn check_round(
    nodes: &[NamedNode],
    shared: &Arc<Shared>,
    writes: Vec<Write>,
    events_of: usize,
) -> Findings {
    let (permits, events_of) = (permits(), events_of % nodes.len());
    let (mut findings, written) = tokio::join!(
        check_all_refs(nodes, shared, &permits, |number| number == events_of),
        check_writes(nodes, writes, &permits)
    );
    findings.add(written);
    findings
}

/// Checks everything on every node, the jobs and the webhooks.
pub(crate) async fn check_all(nodes: &[NamedNode], shared: &Arc<Shared>, receiver: &Receiver) -> Findings {
    let permits = permits();
    let (mut findings, written, others) = tokio::join!(
        check_all_refs(nodes, shared, &permits, |_| true),
        check_writes(nodes, shared.ledger.writes_after(0), &permits),
        async {
            let mut findings = Findings::default();
            if let Some(node) = nodes.first() {
                findings.add(check_probes(node, shared).await);
                findings.add(check_jobs(node, shared).await);
            }
            findings
        }
    );
    findings.add(written);
    findings.add(others);
    // The last webhooks are delivered while the rest is checked.
    if let Some(node) = nodes.first() {
        findings.add(check_webhooks(node, shared, receiver).await);
    }
    findings
}

/// Checks that a node with an empty cache has all writes, and that clones from it are complete.
pub(crate) async fn check_empty_node(node: &NamedNode, shared: &Shared, folder: &std::path::Path) -> Findings {
    let writes = shared.ledger.writes_after(0);
    let mut findings = check_writes(std::slice::from_ref(node), writes, &permits()).await;
    for project in shared.projects.with_repository() {
        let clone = folder.join("checked-clone");
        let _ = tokio::fs::remove_dir_all(&clone).await;
        let path = clone.display().to_string();
        let url = project.url(node.1.address);
        let checked = async {
            git(folder, &["clone", "-q", "--mirror", &url, &path], b"").await?;
            git(&clone, &["fsck", "--strict", "--full"], b"").await
        };
        if let Err(messages) = checked.await {
            findings.losses.push(format!("clone of project {} from {}: {}", project.id, node.0, messages.trim()));
        }
        let _ = tokio::fs::remove_dir_all(&clone).await;
    }
    findings
}

/// Returns the permits of concurrent reads.
fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONCURRENCY))
}

async fn check_writes(nodes: &[NamedNode], writes: Vec<Write>, permits: &Arc<Semaphore>) -> Findings {
    let mut checks = JoinSet::new();
    for write in writes {
        for (name, client) in nodes {
            let (name, client, write, permits) = (*name, client.clone(), write.clone(), Arc::clone(permits));
            checks.spawn(async move {
                let _permit = permits.acquire().await;
                let mut findings = Findings::default();
                let fault = check_write(&client, &write).await;
                findings.losses.extend(fault.map(|fault| format!("{name}: {fault}: {write:?}")));
                findings
            });
        }
    }
    join(checks).await
}

/// Checks the refs of all projects on all nodes, and the events of the nodes that are selected by their numbers.
async fn check_all_refs(
    nodes: &[NamedNode],
    shared: &Arc<Shared>,
    permits: &Arc<Semaphore>,
    has_events: impl Fn(usize) -> bool,
) -> Findings {
    let mut checks = JoinSet::new();
    for (number, node) in nodes.iter().enumerate() {
        for project in shared.projects.with_repository() {
            let (node, project, with_events) = (node.clone(), project.clone(), has_events(number));
            let (shared, permits) = (Arc::clone(shared), Arc::clone(permits));
            checks.spawn(async move {
                let _permit = permits.acquire().await;
                check_refs(&node, &shared, &project, with_events).await
            });
        }
    }
    join(checks).await
}

/// Waits for checks, and adds up what they find.
async fn join(mut checks: JoinSet<Findings>) -> Findings {
    let mut findings = Findings::default();
    while let Some(check) = checks.join_next().await {
        match check {
            Ok(found) => findings.add(found),
            Err(error) => findings.losses.push(format!("a check has not ended: {error}")),
        }
    }
    findings
}

/// Returns what is wrong with a write on a node. Pushes are checked by [`check_refs`].
async fn check_write(client: &Client, write: &Write) -> Option<String> {
    let checked = match write {
        Write::Push { .. } => Ok(()),
        Write::Commit { project, commit, path, content } => {
            let path = format!("/api/v3/projects/{project}/repository/blobs/{commit}?filepath={path}");
            expect(client, &path, |response| response.body == content.as_bytes()).await
        }
        Write::Issue { project, id, title } => {
            let path = format!("/api/v3/projects/{project}/issues/{id}");
            expect(client, &path, |response| response.json()["title"] == **title).await
        }
        Write::Comment { project, issue, id, body } => {
            let path = format!("/api/v3/projects/{project}/issues/{issue}/notes/{id}");
            expect(client, &path, |response| response.json()["body"] == **body).await
        }
        Write::Upload { url, content } => expect(client, url, |response| response.body == content.bytes()).await,
        Write::Job { project, id, trace, artifact } => {
            let path = format!("/api/v3/projects/{project}/builds/{id}");
            let trace = expect(client, &format!("{path}/trace"), |response| response.body == trace.as_bytes()).await;
            match trace {
                Ok(()) => {
                    expect(client, &format!("{path}/artifacts"), |response| response.body == artifact.bytes()).await
                }
                fault => fault,
            }
        }
    };
    checked.err()
}

/// Reads from a node, and compares the response.
async fn expect(client: &Client, path: &str, is_right: impl Fn(&Response) -> bool) -> Result<(), String> {
    let response = read(client, path).await.map_err(|fault| format!("{path}: {fault}"))?;
    if is_right(&response) { Ok(()) } else { Err(format!("{path}: wrong content: {response}")) }
}

/// Reads from a node, repeatedly while it cannot answer.
async fn read(client: &Client, path: &str) -> Result<Response, String> {
    let start = Instant::now();
    loop {
        let fault = match client.get(path).await {
            Ok(response) if response.status == 200 => return Ok(response),
            Ok(response) if response.status < 500 && response.status != 429 => return Err(response.to_string()),
            Ok(response) => response.to_string(),
            Err(error) => error.to_string(),
        };
        if start.elapsed() > READ_TIMEOUT {
            return Err(format!("not readable for {} s: {fault}", READ_TIMEOUT.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Reads all pages of a list.
pub(crate) async fn all_pages(client: &Client, path: &str) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for page in 1.. {
        let response = read(client, &format!("{path}?per_page=100&page={page}")).await;
        let Value::Array(some) = response.map_err(anyhow::Error::msg)?.json() else { bail!("{path} is not a list") };
        let is_last = some.len() < 100;
        found.extend(some);
        if is_last {
            break;
        }
    }
    Ok(found)
}

/// Checks the refs of a project on a node, and the events that lead to them.
async fn check_refs((name, client): &NamedNode, shared: &Shared, project: &Project, with_events: bool) -> Findings {
    let mut findings = Findings::default();
    let refs = match list_refs(client, project).await {
        Ok(listed) => parse_refs(&listed),
        Err(messages) => {
            findings.losses.push(format!(
                "{name}: cannot list the refs of project {}: {}",
                project.id,
                messages.trim()
            ));
            return findings;
        }
    };
    for ((_, reference), history) in shared.ledger.refs().iter().filter(|((id, _), _)| *id == project.id) {
        let target = refs.get(reference).map(String::as_str);
        if !history.allows(target) {
            findings
                .losses
                .push(format!("{name}: {reference} of project {} is {target:?}, but {history:?}", project.id));
        }
    }
    if with_events {
        match read_events(client, project).await {
            Ok(events) => findings.add(check_events(project.id, &events, &refs)),
            Err(error) => findings.losses.push(format!("{name}: cannot list the events of {}: {error}", project.id)),
        }
    }
    findings
}

/// Lists the refs of a project on a node, repeatedly while it cannot answer.
async fn list_refs(client: &Client, project: &Project) -> Result<String, String> {
    let start = Instant::now();
    loop {
        match git(&std::env::temp_dir(), &["ls-remote", &project.url(client.address)], b"").await {
            Err(messages) if is_temporary(&messages) && start.elapsed() < READ_TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            result => return result,
        }
    }
}

/// Returns whether git reports a status after which a read is repeated, as [`read`] does.
fn is_temporary(messages: &str) -> bool {
    ["returned error: 5", "returned error: 429"].iter().any(|status| messages.contains(status))
}

async fn read_events(client: &Client, project: &Project) -> Result<Vec<RefChange>> {
    let mut events = all_pages(client, &format!("{}/events", project.api())).await?;
    // The oldest first.
    events.reverse();
    Ok(events.iter().filter_map(|event| parse_push(&event["data"])).collect())
}

/// Parses lines with an object id and a ref.
pub(crate) fn parse_refs(listed: &str) -> BTreeMap<String, String> {
    let pairs = listed.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let pairs = pairs.filter(|(_, name)| name.starts_with("refs/"));
    pairs.map(|(target, name)| (name.to_owned(), target.to_owned())).collect()
}

/// Checks that the events of each ref lead from nothing to its target, each exactly once. The oldest event comes first.
fn check_events(project: i64, events: &[RefChange], refs: &BTreeMap<String, String>) -> Findings {
    let mut findings = Findings::default();
    let mut last: BTreeMap<&str, &RefChange> = BTreeMap::new();
    for event in events {
        let previous = last.insert(&event.name, event);
        if previous == Some(event) {
            findings.duplicated_events.push(format!("{event:?}"));
        } else if event.before != previous.map_or(ZERO, |previous| &previous.after) {
            findings.missing_events.push(format!("before {event:?}; the previous one is {previous:?}"));
        }
    }
    for (name, target) in refs {
        let end = last.remove(name.as_str()).map(|event| event.after.as_str());
        if end != Some(target) {
            findings
                .missing_events
                .push(format!("{name} of project {project} is {target}, the last event led to {end:?}"));
        }
    }
    for (name, event) in last {
        if event.after != ZERO {
            findings.missing_events.push(format!("{name} of project {project} does not exist, but {event:?}"));
        }
    }
    findings
}

async fn check_probes((name, client): &NamedNode, shared: &Shared) -> Findings {
    let mut findings = Findings::default();
    let path = format!("{}/issues/{}/notes", shared.projects.probed.api(), shared.projects.probed_issue);
    match all_pages(client, &path).await {
        Ok(notes) => {
            let found: std::collections::BTreeSet<i64> = notes.iter().filter_map(|note| note["id"].as_i64()).collect();
            let lost = shared.ledger.probes().into_iter().filter(|note| !found.contains(note));
            findings.losses.extend(lost.map(|note| format!("{name}: the note {note} of a probe is missing")));
        }
        Err(error) => findings.losses.push(format!("{name}: cannot list the notes of probes: {error}")),
    }
    findings
}

async fn check_jobs((_, client): &NamedNode, shared: &Shared) -> Findings {
    let mut findings = Findings::default();
    let jobs = match all_pages(client, &format!("{}/builds", shared.projects.ci.api())).await {
        Ok(jobs) => jobs,
        Err(error) => {
            findings.unfinished_jobs.push(format!("cannot list the jobs: {error}"));
            return findings;
        }
    };
    let mut reports: BTreeMap<i64, u32> = BTreeMap::new();
    for write in shared.ledger.writes_after(0) {
        if let Write::Job { id, .. } = write {
            *reports.entry(id).or_default() += 1;
        }
    }
    findings.add(compare_jobs(&jobs, &reports));
    findings
}

/// Compares a list of jobs with the number of acknowledged successes by job.
fn compare_jobs(jobs: &[Value], reports: &BTreeMap<i64, u32>) -> Findings {
    let mut findings = Findings::default();
    let mut succeeded: BTreeMap<(i64, &str), u32> = BTreeMap::new();
    for job in jobs {
        let (name, status) = (job["name"].as_str().unwrap_or_default(), job["status"].as_str().unwrap_or_default());
        if status == "success" {
            *succeeded.entry((job["pipeline"]["id"].as_i64().unwrap_or_default(), name)).or_default() += 1;
        } else {
            findings.unfinished_jobs.push(format!("job {} is {status}", job["id"]));
        }
    }
    let twice = succeeded.iter().filter(|(_, count)| **count > 1);
    findings.repeated_jobs.extend(twice.map(|(key, count)| format!("job {key:?} succeeded {count} times")));
    let twice = reports.iter().filter(|(_, count)| **count > 1);
    findings
        .repeated_jobs
        .extend(twice.map(|(id, count)| format!("the success of job {id} was acknowledged to {count} runs")));
    let known = |id: &i64| jobs.iter().any(|job| job["id"] == *id && job["status"] == "success");
    let lost = reports.keys().filter(|id| !known(id));
    findings.losses.extend(lost.map(|id| format!("job {id} is not successful")));
    findings
}

/// Waits until each event was delivered.
async fn check_webhooks((_, client): &NamedNode, shared: &Shared, receiver: &Receiver) -> Findings {
    let start = Instant::now();
    let mut findings = Findings::default();
    for project in shared.projects.with_repository() {
        let events = match read_events(client, project).await {
            Ok(events) => events,
            Err(error) => {
                findings.missing_webhooks.push(format!("cannot list the events of {}: {error}", project.id));
                continue;
            }
        };
        for event in events {
            while receiver.count(&event) == 0 && start.elapsed() < WEBHOOK_TIMEOUT {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            match receiver.count(&event) {
                0 => findings.missing_webhooks.push(format!("{event:?}")),
                count => findings.repeated_webhooks += u64::from(count - 1),
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(name: &str, before: &str, after: &str) -> RefChange {
        RefChange { project: 1, name: name.to_owned(), before: before.to_owned(), after: after.to_owned() }
    }

    #[tokio::test]
    async fn a_check_that_panics_is_a_finding() {
        let mut checks = JoinSet::new();
        checks.spawn(async { Findings { losses: vec!["lost".to_owned()], ..Findings::default() } });
        checks.spawn(async { panic!("on purpose") });
        assert_eq!(join(checks).await.losses.len(), 2);
    }

    #[test]
    fn refs_are_listed_again_after_a_temporary_failure() {
        let check = |status, expected| {
            let messages = format!("fatal: unable to access 'x': The requested URL returned error: {status}");
            assert_eq!(is_temporary(&messages), expected, "{messages}");
        };
        check(503, true);
        check(429, true);
        check(404, false);
    }

    #[test]
    fn events_lead_from_nothing_to_the_target() {
        let refs = parse_refs("b\trefs/heads/x\nc\trefs/heads/y\nb\tHEAD\n");
        assert_eq!(refs.len(), 2);
        let check = |events: &[RefChange], duplicated: usize, missing: usize| {
            let found = check_events(1, events, &refs);
            assert_eq!((found.duplicated_events.len(), found.missing_events.len()), (duplicated, missing), "{found:?}");
        };
        let (first, second) = (change("refs/heads/x", ZERO, "a"), change("refs/heads/x", "a", "b"));
        let other = change("refs/heads/y", ZERO, "c");
        check(&[first.clone(), other.clone(), second.clone()], 0, 0);
        check(&[first.clone(), second.clone(), second.clone(), other.clone()], 1, 0);
        check(&[first.clone(), first.clone(), second.clone(), other.clone()], 1, 0);
        check(&[second.clone(), other.clone()], 0, 1);
        check(&[first.clone(), other.clone()], 0, 1);
        check(&[first.clone(), second.clone()], 0, 1);
        check(&[first, second, other, change("refs/heads/z", ZERO, "d")], 0, 1);
    }

    #[test]
    fn a_job_succeeds_once() {
        let job = |id: i64, pipeline: i64, status: &str| json!({ "id": id, "name": "one", "status": status, "pipeline": { "id": pipeline } });
        let reports = |ids: &[(i64, u32)]| ids.iter().copied().collect::<BTreeMap<_, _>>();
        let check = |jobs: &[Value], acknowledged: &[(i64, u32)], expected: (usize, usize, usize)| {
            let found = compare_jobs(jobs, &reports(acknowledged));
            let counts = (found.repeated_jobs.len(), found.unfinished_jobs.len(), found.losses.len());
            assert_eq!(counts, expected, "{found:?}");
        };
        check(&[job(1, 1, "success"), job(2, 2, "success")], &[(1, 1), (2, 1)], (0, 0, 0));
        check(&[job(1, 1, "success"), job(2, 1, "success")], &[(1, 1), (2, 1)], (1, 0, 0));
        check(&[job(1, 1, "success")], &[(1, 2)], (1, 0, 0));
        check(&[job(1, 1, "running")], &[(1, 1)], (0, 1, 1));
        check(&[], &[(1, 1)], (0, 0, 1));
    }
}
