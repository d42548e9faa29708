//! Clients that act as CI runners, and one that creates pipelines.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use hyper::Method;
use serde_json::{Value, json};

use super::{Shared, api_writes::acknowledged};
use crate::{
    checker,
    http::{Client, Response},
    ledger::Write,
    nodes::TOKEN,
    rng::{Content, Rng},
};

/// The time between two pipelines, in milliseconds.
const COMMIT_INTERVAL: usize = 1500;
/// How long a runner tries to report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(90);
const RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// Runners with this name understand responses without a job.
const USER_AGENT: (&str, &str) = ("user-agent", "gitlab-ci-multi-runner 1.11.0 (cluster)");

/// Commits to the project with a CI file until clients are stopped.
pub(super) async fn commit(shared: Arc<Shared>) {
    let project = shared.projects.ci.clone();
    for count in 0_u64.. {
        let Some(operation) = shared.next_operation().await else { return };
        if shared.projects.stop_commits.load(Ordering::Relaxed) {
            return;
        }
        let (path, content) = (format!("file-{count}"), format!("content {count}"));
        let action = json!({ "action": "create", "file_path": path, "content": content });
        let new = json!({ "branch_name": "master", "commit_message": format!("Build {count}"), "actions": [action] });
        let made = shared.client().post(&format!("{}/repository/commits", project.api()), &new).await;
        if let Some(made) = acknowledged(&shared, "commit", made) {
            let commit = made.json()["id"].as_str().unwrap_or_default().to_owned();
            shared.ledger.acknowledge(Write::Commit { project: project.id, commit, path, content });
        }
        drop(operation);
        shared.think(COMMIT_INTERVAL).await;
    }
}

/// Requests and runs jobs until clients are stopped.
pub(super) async fn run(shared: Arc<Shared>, number: usize, mut rng: Rng) {
    let runner = Runner { shared: &shared, token: &shared.projects.runners[number] };
    while let Some(operation) = shared.next_operation().await {
        let client = runner.client();
        let response = client.send(
            Method::POST,
            "/ci/api/v1/builds/register.json",
            &[("content-type", "application/json"), USER_AGENT],
            json!({ "token": runner.token }).to_string(),
        );
        let taken = acknowledged(&shared, "job request", response.await);
        if let Some(response) = taken.filter(|response| response.status == 201) {
            runner.run_job(&response.json(), &mut rng).await;
        }
        drop(operation);
        shared.think(200).await;
    }
}

struct Runner<'a> {
    shared: &'a Shared,
    token: &'a str,
}

/// What a runner does after a response.
enum Step<T> {
    Done(T),
    Retry,
    /// The job belongs to another runner, or has ended.
    Ended,
}

impl Runner<'_> {
    /// A client without the token of the administrator.
    fn client(&self) -> Client {
        Client { token: None, ..self.shared.client() }
    }

    /// Sends a trace in two chunks, artifacts, and success.
    async fn run_job(&self, job: &Value, rng: &mut Rng) {
        let (Some(id), Some(token)) = (job["id"].as_i64(), job["token"].as_str()) else {
            self.shared.ledger.violation(format!("a job without id or token: {job}"));
            return;
        };
        let deadline = Instant::now() + REPORT_TIMEOUT;
        let run_id = rng.next_u64();
        let mut trace = String::new();
        let mut sent = 0;
        for line in 0..2 {
            trace += &format!("run {run_id:x} of job {id}, line {line}\n");
            while sent < trace.len() {
                match self.append(id, token, sent, &trace[sent..]).await {
                    Step::Done(size) => sent = size,
                    Step::Retry if Instant::now() < deadline => tokio::time::sleep(RETRY_INTERVAL).await,
                    Step::Retry | Step::Ended => return,
                }
            }
            tokio::time::sleep(Duration::from_millis(u64::try_from(rng.below(100)).unwrap_or_default())).await;
        }
        let artifact = Content { seed: run_id, size: 100 + rng.below(100_000) };
        loop {
            match self.upload(id, token, artifact).await {
                Step::Done(()) => break,
                Step::Retry if Instant::now() < deadline => tokio::time::sleep(RETRY_INTERVAL).await,
                Step::Retry | Step::Ended => return,
            }
        }
        loop {
            match self.report_success(id).await {
                Step::Done(()) => break,
                Step::Retry if Instant::now() < deadline => tokio::time::sleep(RETRY_INTERVAL).await,
                Step::Retry | Step::Ended => return,
            }
        }
        self.shared.ledger.acknowledge(Write::Job { project: self.shared.projects.ci.id, id, trace, artifact });
    }

    async fn append(&self, id: i64, token: &str, from: usize, text: &str) -> Step<usize> {
        let range = format!("{from}-{}", from + text.len());
        let headers = [("build-token", token), ("content-range", &range), ("content-type", "text/plain"), USER_AGENT];
        let path = format!("/ci/api/v1/builds/{id}/trace.txt");
        let sent = self.client().send(Method::PATCH, &path, &headers, text.to_owned()).await;
        match sent {
            Ok(response) if [202, 416].contains(&response.status) => match trace_size(&response) {
                Some(_) if response.header("build-status").is_some_and(|status| status != "running") => Step::Ended,
                Some(size) => Step::Done(size),
                None => Step::Retry,
            },
            Ok(response) if [403, 404].contains(&response.status) => Step::Ended,
            outcome => {
                acknowledged(self.shared, "trace", outcome);
                Step::Retry
            }
        }
    }

    async fn upload(&self, id: i64, token: &str, artifact: Content) -> Step<()> {
        let path = format!("/ci/api/v1/builds/{id}/artifacts");
        let sent = self.client().upload(&path, &[("build-token", token), USER_AGENT], "a.zip", &artifact.bytes()).await;
        match sent {
            Ok(response) if response.status == 201 => Step::Done(()),
            Ok(response) if [403, 404].contains(&response.status) => Step::Ended,
            outcome => {
                acknowledged(self.shared, "artifact", outcome);
                Step::Retry
            }
        }
    }

    async fn report_success(&self, id: i64) -> Step<()> {
        let path = format!("/ci/api/v1/builds/{id}");
        let sent = self.client().put(&path, &json!({ "token": self.token, "state": "success" })).await;
        match sent {
            Ok(response) if response.status == 200 => Step::Done(()),
            Ok(response) if [403, 404].contains(&response.status) => {
                // Perhaps an earlier report was successful, and only its acknowledgement was lost.
                let path = format!("{}/builds/{id}", self.shared.projects.ci.api());
                match self.shared.client().get(&path).await {
                    Ok(job) if job.json()["status"] == "success" => Step::Done(()),
                    Ok(job) if job.is_success() => Step::Ended,
                    outcome => {
                        acknowledged(self.shared, "job", outcome);
                        Step::Retry
                    }
                }
            }
            outcome => {
                acknowledged(self.shared, "job update", outcome);
                Step::Retry
            }
        }
    }
}

/// Returns the size of the trace that the server reports.
fn trace_size(response: &Response) -> Option<usize> {
    response.header("range")?.strip_prefix("0-")?.parse().ok()
}

/// Waits until all jobs have ended; fails if nothing changes for a while.
pub(super) async fn wait_until_finished(shared: &Shared, timeout: Duration) -> Result<()> {
    let mut progress = Progress::new(Instant::now());
    loop {
        let client = Client::new(shared.balancer, Some(TOKEN));
        match checker::all_pages(&client, &format!("{}/builds", shared.projects.ci.api())).await {
            Ok(jobs) => {
                let counts = count_by_status(&jobs);
                if counts.keys().all(|status| ["success", "failed", "canceled", "skipped"].contains(&status.as_str())) {
                    return Ok(());
                }
                progress.record(counts, Instant::now());
            }
            Err(error) => progress.last_error = Some(error.to_string()),
        }
        if progress.changed_at.elapsed() >= timeout {
            bail!("jobs have not ended, and nothing has changed for {} s: {progress}", timeout.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The number of jobs by status.
type JobCounts = BTreeMap<String, u32>;

fn count_by_status(jobs: &[Value]) -> JobCounts {
    let mut counts = JobCounts::new();
    for job in jobs {
        *counts.entry(job["status"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    counts
}

/// When the numbers of jobs have last changed.
struct Progress {
    last_counts: JobCounts,
    last_error: Option<String>,
    changed_at: Instant,
}

impl Progress {
    fn new(now: Instant) -> Self {
        Self { last_counts: JobCounts::new(), last_error: None, changed_at: now }
    }

    /// Records a list of jobs. An error in between is no change.
    fn record(&mut self, counts: JobCounts, now: Instant) {
        if counts != self.last_counts {
            (self.last_counts, self.changed_at) = (counts, now);
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.last_counts)?;
        self.last_error.iter().try_for_each(|error| write!(formatter, "; the last error was: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_between_equal_lists_of_jobs_are_no_change() {
        let jobs = |statuses: &[&str]| {
            count_by_status(&statuses.iter().map(|status| json!({ "status": status })).collect::<Vec<_>>())
        };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = Progress::new(start);
        progress.record(jobs(&["running", "success"]), at(1));
        progress.last_error = Some("503".to_owned());
        progress.record(jobs(&["success", "running"]), at(2));
        assert_eq!(progress.changed_at, at(1));
        assert_eq!(progress.to_string(), r#"{"running": 1, "success": 1}; the last error was: 503"#);
        progress.record(jobs(&["success", "success"]), at(3));
        assert_eq!(progress.changed_at, at(3));
    }
}
