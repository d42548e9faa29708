//! Benchmark of pipelines: planning a large file, assigning jobs to many runners, and throughput of traces.

use std::{
    collections::HashSet,
    fmt::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use ci::{Config, NoFiles, PipelineContext};
use model::JobId;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::interval};

use crate::{
    basics::ScratchFolder,
    closed_loop::{self, Connection, Measurement},
    engine::{Engine, EngineKind},
    server::{Server, TOKEN},
};

/// The number of jobs of the large file.
pub(crate) const JOBS: usize = 500;
/// The number of such pipelines that are pending at once.
const PIPELINES: usize = 2;
/// The number of runners that request jobs at once.
pub(crate) const RUNNERS: usize = 50;
/// The number of jobs that send traces at once, and the bytes that each sends per second.
pub(crate) const TRACING_JOBS: usize = 20;
pub(crate) const TRACE_BYTES_PER_SECOND: usize = 1 << 20;
/// The number of requests per second in which a job sends its trace, and for how long.
const CHUNKS_PER_SECOND: usize = 4;
const TRACE_TIME: Duration = Duration::from_secs(15);
/// The number of times the large file is planned.
const PLAN_ROUNDS: usize = 50;

/// The results on one engine.
pub(crate) struct Results {
    pub(crate) kind: EngineKind,
    /// Reading and planning a file of [`JOBS`] jobs, without a server.
    pub(crate) planning: Measurement,
    /// Creating a pipeline with [`JOBS`] jobs.
    pub(crate) creation: Measurement,
    /// Requesting a job while all other runners do the same.
    pub(crate) assignment: Measurement,
    /// Sending one chunk of a trace.
    pub(crate) patches: Measurement,
    /// The throughput of all traces, in megabytes per second.
    pub(crate) trace_rate: f64,
    /// The number of processors that the server used for the traces.
    pub(crate) cores: f64,
}

/// Measures everything on one engine.
pub(crate) fn measure(program: &Path, folder: &Path, engine: &Engine) -> Result<Results> {
    let planning = measure_planning()?;
    let scratch = ScratchFolder::new(folder)?;
    let instance = engine.empty_instance(&scratch.0, "pipelines")?;
    let server = instance.start(program)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    runtime.block_on(async {
        let mut root = ApiClient::new(&server).await?;
        let project = root.send("POST", "/api/v3/projects", &json!({ "name": "busy", "path": "busy" })).await?;
        let (id, token) = (number(&project["id"])?, text(&project["runners_token"])?);
        let file = json!({
            "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": large_file(),
            "commit_message": "Build it [ci skip]",
        });
        root.send("POST", &format!("/api/v3/projects/{id}/repository/files"), &file).await?;
        let mut runners = Vec::new();
        for index in 0..RUNNERS {
            let new = json!({ "token": token, "description": format!("runner {index}"), "run_untagged": true });
            runners.push(text(&root.send("POST", "/api/v4/runners", &new).await?["token"])?);
        }
        let mut creation = Measurement::default();
        for _ in 0..PIPELINES {
            let start = Instant::now();
            root.send("POST", &format!("/api/v3/projects/{id}/pipeline"), &json!({ "ref": "master" })).await?;
            creation.push(start.elapsed());
        }
        let (assignment, jobs) = assign_jobs(&server, &runners).await?;
        let before = server.cpu_time()?;
        let start = Instant::now();
        let (patches, bytes) = send_traces(&server, &jobs[..TRACING_JOBS]).await?;
        let elapsed = start.elapsed().as_secs_f64();
        let cores = (server.cpu_time()?.saturating_sub(before)).as_secs_f64() / elapsed;
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 bytes")]
        let trace_rate = bytes as f64 / elapsed / f64::from(1 << 20);
        for (job, _) in &jobs[..TRACING_JOBS] {
            let trace = root.fetch(&format!("/api/v3/projects/{id}/builds/{job}/trace")).await?;
            if trace.len() * TRACING_JOBS != bytes {
                bail!("job {job} has a trace of {} bytes, not a {TRACING_JOBS}th of {bytes}", trace.len());
            }
        }
        Ok(Results { kind: engine.kind(), planning, creation, assignment, patches, trace_rate, cores })
    })
}

fn measure_planning() -> Result<Measurement> {
    let (file, mut planning) = (large_file(), Measurement::default());
    for _ in 0..PLAN_ROUNDS {
        let start = Instant::now();
        let config = Config::load(&file, &NoFiles).map_err(|error| anyhow!("invalid CI file: {}", error.text))?;
        let pipeline_context = PipelineContext { ref_name: "master".into(), ..PipelineContext::default() };
        let plan = ci::plan(&config, &pipeline_context).context("cannot plan")?;
        planning.push(start.elapsed());
        if plan.jobs.len() != JOBS {
            bail!("{} jobs were planned instead of {JOBS}", plan.jobs.len());
        }
    }
    Ok(planning)
}

/// Returns a CI file with all jobs in one stage, so that all of them can start at once.
fn large_file() -> String {
    let mut file = String::from(
        ".base: &base\n  stage: test\n  before_script: [./prepare]\n  variables: {MODE: fast}\n  artifacts: {paths: [out], expire_in: 1 week}\n",
    );
    for index in 0..JOBS {
        let _ = write!(
            file,
            "job {index}:\n  <<: *base\n  script:\n    - ./build --part {index}\n    - ./check --part {index}\n  rules:\n    - if: $CI_COMMIT_BRANCH\n"
        );
    }
    file
}

/// Requests jobs for all runners until none is left, and checks that each job is assigned once.
async fn assign_jobs(server: &Server, runners: &[String]) -> Result<(Measurement, Vec<(JobId, String)>)> {
    let mut tasks = JoinSet::new();
    for token in runners {
        let mut client = ApiClient::new(server).await?;
        let body = json!({ "token": token, "info": { "name": "bench", "version": "1" } });
        tasks.spawn(async move {
            let (mut measured, mut jobs) = (Measurement::default(), Vec::new());
            loop {
                let start = Instant::now();
                let (status, response) = client.try_send("POST", "/api/v4/jobs/request", &body).await?;
                match status {
                    201 => {
                        measured.push(start.elapsed());
                        jobs.push((JobId::new(number(&response["id"])?), text(&response["token"])?));
                    }
                    204 => return Ok::<_, anyhow::Error>((measured, jobs)),
                    409 => {}
                    _ => bail!("job request returned {status}: {response}"),
                }
            }
        });
    }
    let (mut measured, mut all) = (Measurement::default(), Vec::new());
    while let Some(finished) = tasks.join_next().await {
        let (measurement, jobs) = finished??;
        measured.add(measurement);
        all.extend(jobs);
    }
    let unique_ids: HashSet<JobId> = all.iter().map(|(id, _)| *id).collect();
    if unique_ids.len() != all.len() || all.len() != PIPELINES * JOBS {
        bail!("{} different jobs were assigned {} times", unique_ids.len(), all.len());
    }
    Ok((measured, all))
}

/// Sends the traces of all jobs at once, each at a fixed rate; returns the total number of bytes.
async fn send_traces(server: &Server, jobs: &[(JobId, String)]) -> Result<(Measurement, usize)> {
    let line = format!("{:0>63}\n", "a line of a build");
    let chunk: Arc<[u8]> = line.repeat(TRACE_BYTES_PER_SECOND / CHUNKS_PER_SECOND / line.len()).into_bytes().into();
    let mut tasks = JoinSet::new();
    for (id, token) in jobs {
        let (id, token, address, chunk) = (*id, token.clone(), server.address, Arc::clone(&chunk));
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await.context("cannot connect")?;
            let mut pace = interval(Duration::from_secs(1) / u32::try_from(CHUNKS_PER_SECOND).unwrap_or(1));
            let (start, mut measured, mut sent_bytes) = (Instant::now(), Measurement::default(), 0);
            while start.elapsed() < TRACE_TIME {
                pace.tick().await;
                let mut request = format!(
                    "PATCH /api/v4/jobs/{id}/trace HTTP/1.1\r\nHost: localhost\r\nJOB-TOKEN: {token}\r\n\
                     Content-Type: text/plain\r\nContent-Range: {sent_bytes}-{}\r\nContent-Length: {}\r\n\r\n",
                    sent_bytes + chunk.len() - 1,
                    chunk.len()
                )
                .into_bytes();
                request.extend_from_slice(&chunk);
                let sent_at = Instant::now();
                let status = connection.exchange(&request).await.context("connection lost")?;
                if status != 202 {
                    let body = String::from_utf8_lossy(connection.body());
                    bail!("trace chunk returned {status}: {body}");
                }
                measured.push(sent_at.elapsed());
                sent_bytes += chunk.len();
            }
            Ok::<_, anyhow::Error>((measured, sent_bytes))
        });
    }
    let (mut measured, mut bytes, mut each) = (Measurement::default(), 0, HashSet::new());
    while let Some(finished) = tasks.join_next().await {
        let (measurement, sent_bytes) = finished??;
        measured.add(measurement);
        bytes += sent_bytes;
        each.insert(sent_bytes);
    }
    if each.len() == 1 { Ok((measured, bytes)) } else { Err(anyhow!("jobs sent different amounts: {each:?}")) }
}

/// A client with one connection.
struct ApiClient(Connection);

impl ApiClient {
    async fn new(server: &Server) -> Result<Self> {
        Ok(Self(Connection::open(server.address).await.context("cannot connect")?))
    }

    async fn try_send(&mut self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        let mut request = Vec::new();
        let body = body.to_string();
        closed_loop::post(path, TOKEN, move || body.clone())(&mut request);
        request.splice(..4, method.bytes());
        let status = self.0.exchange(&request).await.with_context(|| format!("cannot request {path}"))?;
        Ok((status, serde_json::from_slice(self.0.body()).unwrap_or_default()))
    }

    async fn send(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let (status, response) = self.try_send(method, path, body).await?;
        if (200..300).contains(&status) { Ok(response) } else { Err(anyhow!("{path} returned {status}: {response}")) }
    }

    async fn fetch(&mut self, path: &str) -> Result<Vec<u8>> {
        let mut request = Vec::new();
        closed_loop::get(path, TOKEN)(&mut request);
        let status = self.0.exchange(&request).await.with_context(|| format!("cannot request {path}"))?;
        if status == 200 { Ok(self.0.body().to_vec()) } else { Err(anyhow!("{path} returned {status}")) }
    }
}

fn number(value: &Value) -> Result<i64> {
    value.as_i64().with_context(|| format!("not a number: {value}"))
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(ToOwned::to_owned).with_context(|| format!("not a string: {value}"))
}
