//! `cargo xtask load`: an open-loop load test of the shipped binary on a seeded data set, with the request mix of the
//! load model. On demand the rate is doubled until the server is overloaded.
//!
//! The time of every request is fixed before the start, and its latency is measured from that time, even if the
//! generator or the server is late. The delays caused by a stalled server are thus not omitted.

pub(crate) mod client;
pub(crate) mod git_client;
mod request_generator;
mod resource_usage;
mod routes;
mod schedule;
mod summary;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinSet, time::sleep_until};

use crate::{
    basics::ScratchFolder,
    rng::Rng,
    seed::{self, dataset::Dataset},
    server::Server,
};
use client::{Client, HttpRequest, HttpResponse};
use git_client::{GitData, GitOperation, GitRequest};
use request_generator::{ApiRequest, Prepared, RepositoryIds, RequestGenerator, root};
use resource_usage::ResourceMonitor;
use routes::{ResponseShape, Route};
use summary::{Summary, Verdict};

/// Requests per second of a thousand users, by the load model.
const API_RATE: f64 = 20.0;
const PULL_RATE: f64 = 2.0;
const PUSH_RATE: f64 = 0.4;
/// Runs of the git program per second and thousand users.
const GIT_PROGRAM_RATE: f64 = 0.05;
/// The duration of each further step.
const STEP_TIME: Duration = Duration::from_secs(20);
const MAX_STEPS: u32 = 7;
/// The number of concurrent requests during preparation and cleanup.
const PREPARATION_CONCURRENCY: usize = 8;
/// The maximum number of requests in flight; further requests are not sent and count as errors.
const MAX_IN_FLIGHT: usize = 5000;

struct Settings {
    gable: PathBuf,
    folder: PathBuf,
    users: f64,
    time: Duration,
    until_overloaded: bool,
    json: bool,
    seed: seed::Settings,
}

/// Parses the flags, creates the data set and runs the load test.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let settings = parse_settings(arguments)?;
    let dataset = seed::open_or_create(&settings.seed)?;
    let scratch = ScratchFolder::new(&settings.folder)?;
    let seed::Settings { data, database, .. } = &settings.seed;
    let server = Server::gable_on(&settings.gable, data, database.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    let stages = runtime.block_on(run_stages(&settings, &dataset, &server, &scratch.0))?;
    if stages.iter().any(|stage| stage.errors() > 0) {
        // It is unknown what the failed requests changed, so it cannot be cleaned up.
        settings.seed.mark_spoiled()?;
    }
    let verdict = Verdict::of(&stages);
    if settings.json {
        println!("{}", summary::json(&stages, &verdict));
    } else {
        println!("{verdict}");
    }
    if verdict.is_reached() { Ok(()) } else { Err(anyhow!("the goals were not reached")) }
}

fn parse_settings(arguments: &[String]) -> Result<Settings> {
    const KNOWN: &str = "--users, --seconds, --until-overload, --data, --database, --projects, --seed and --json";
    let seed =
        seed::Settings { data: PathBuf::new(), projects: seed::PROJECTS, seed: seed::SEED, database: seed::database() };
    let mut settings = Settings {
        gable: PathBuf::new(),
        folder: PathBuf::new(),
        users: 10_000.0,
        time: Duration::from_secs(60),
        until_overloaded: false,
        json: false,
        seed,
    };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().with_context(|| format!("{flag} needs a value"));
        let number = |text: &String| text.parse::<u32>().map_err(|_| anyhow!("{flag} takes a number, not {text}"));
        match flag.as_str() {
            "--gable" => settings.gable = value()?.into(),
            "--folder" => settings.folder = value()?.into(),
            "--users" => settings.users = number(value()?)?.into(),
            "--seconds" => settings.time = Duration::from_secs(number(value()?)?.into()),
            "--until-overload" => settings.until_overloaded = true,
            "--json" => settings.json = true,
            "--data" => settings.seed.data = value()?.into(),
            "--database" => settings.seed.database = Some(value()?.clone()),
            "--projects" => settings.seed.projects = number(value()?)?.into(),
            "--seed" => settings.seed.seed = number(value()?)?.into(),
            other => bail!("unknown flag {other}; load accepts {KNOWN}"),
        }
    }
    if settings.seed.data.as_os_str().is_empty() {
        let kind = if settings.seed.database.is_some() { "postgres" } else { "sqlite" };
        settings.seed.data = settings.folder.join(format!("seeded-{kind}"));
    }
    if settings.users < 1.0 || settings.time < Duration::from_secs(5) {
        bail!("too small for a measurement: use at least 1 user and 5 seconds");
    }
    Ok(settings)
}

/// Runs the load once and, on demand, at doubled rates until the server is overloaded.
async fn run_stages(settings: &Settings, dataset: &Dataset, server: &Server, folder: &Path) -> Result<Vec<Summary>> {
    let client = Arc::new(Client::new(server.address));
    let described = json(&send(&client, &ApiRequest::get(root(), "/openapi.json".into())).await?.start)?;
    routes::check(&described)?;
    let git_data = GitData::build(&settings.seed.data, dataset, folder)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut generator = RequestGenerator::new(dataset, now);
    generator.repository_ids = repository_ids(&client).await?;
    // Warm-up: at least one request per route, not counted.
    let warm = Stage { thousands: 0.05, time: Duration::from_secs(5), factor: 0 };
    warm.run(&client, server, &mut generator, &git_data).await?;
    let mut stages = Vec::new();
    for step in 0..=MAX_STEPS {
        let factor = 1 << step;
        let time = if step == 0 { settings.time } else { STEP_TIME };
        let stage = Stage { thousands: settings.users / 1000.0 * f64::from(factor), time, factor };
        let summary = stage.run(&client, server, &mut generator, &git_data).await?;
        eprintln!("{summary}");
        let overloaded = summary.overload_reason().is_some();
        stages.push(summary);
        if overloaded || !settings.until_overloaded {
            break;
        }
    }
    Ok(stages)
}

/// Reads the ids of commits and blobs of the large repository.
async fn repository_ids(client: &Client) -> Result<RepositoryIds> {
    let path = format!("/projects/{}/repository", seed::dataset::LARGE_PROJECT);
    let (mut commits, mut page) = (Vec::new(), 0);
    while commits.len() < 300 {
        let list = list(client, format!("{path}/commits?per_page=100&page={page}")).await?;
        if list.is_empty() {
            break;
        }
        commits.extend(list.iter().filter_map(|commit| Some(commit["id"].as_str()?.to_owned())));
        page += 1;
    }
    let tree = list(client, format!("{path}/tree?path={}", routes::FOLDER)).await?;
    let blobs: Vec<String> = tree.iter().filter_map(|entry| Some(entry["id"].as_str()?.to_owned())).collect();
    if commits.len() < 10 || blobs.is_empty() {
        bail!("the data set has no large repository; recreate it with `cargo xtask seed`");
    }
    Ok(RepositoryIds { commits, blobs })
}

async fn list(client: &Client, target: String) -> Result<Vec<Value>> {
    let response = send(client, &ApiRequest::get(root(), target)).await?;
    serde_json::from_slice(&response.start).context("not a list")
}

/// Sends a request that must succeed.
async fn send(client: &Client, request: &ApiRequest) -> Result<HttpResponse> {
    let response = client.send(&HttpRequest::from(request)).await?;
    if !(200..300).contains(&response.status) {
        let excerpt = String::from_utf8_lossy(&response.start);
        bail!("{} {} returned {}: {excerpt}", request.method, request.target, response.status);
    }
    Ok(response)
}

fn json(text: &[u8]) -> Result<Value> {
    serde_json::from_slice(text).context("not JSON")
}

/// The load at one rate.
struct Stage {
    thousands: f64,
    time: Duration,
    /// The multiple of the requested load; 0 for the warm-up.
    factor: u32,
}

/// A request that is due at a time.
struct Arrival {
    at: Duration,
    row: usize,
    kind: ArrivalKind,
}

enum ArrivalKind {
    Api {
        request: ApiRequest,
        http_request: HttpRequest,
        status: u16,
        shape: ResponseShape,
        after: Option<fn(&ApiRequest, &Value) -> ApiRequest>,
    },
    Git(GitRequest),
}

/// The result of a request.
struct Sample {
    row: usize,
    /// The time from the scheduled time to the first byte.
    latency: Duration,
    /// The time from the start of the stage to the end of the response.
    done: Duration,
    error: Option<String>,
    after: Option<ApiRequest>,
}

impl Stage {
    async fn run(
        &self,
        client: &Arc<Client>,
        server: &Server,
        generator: &mut RequestGenerator<'_>,
        git_data: &GitData,
    ) -> Result<Summary> {
        let routes = routes::all();
        let arrivals = self.plan(&routes, client, generator, git_data).await?;
        let names = routes.iter().map(|route| route.name).chain(GIT.iter().map(|operation| operation.name())).collect();
        let mut summary = Summary::new(self.factor, self.thousands * 1000.0, self.time, names);
        for operation in GIT.iter().filter(|operation| operation.uses_git_program()) {
            summary.exclude_from_verdict(operation.name());
        }
        let monitor = ResourceMonitor::start(server)?;
        let (samples, delays) = send_all(arrivals, client, server.address.to_string()).await;
        summary.usage = monitor.stop(server)?;
        summary.delays = delays;
        let mut cleanup = Vec::new();
        for sample in samples {
            summary.add(sample.row, sample.latency, sample.done, sample.error);
            cleanup.extend(sample.after);
        }
        clean_up(client, cleanup).await;
        summary.finish();
        Ok(summary)
    }

    /// Schedules all requests and prepares the data that they need.
    async fn plan(
        &self,
        routes: &[Route],
        client: &Arc<Client>,
        generator: &mut RequestGenerator<'_>,
        git_data: &GitData,
    ) -> Result<Vec<Arrival>> {
        let mut rng = Rng::new(u64::from(self.factor));
        let weights: Vec<f64> = routes.iter().map(|route| route.factor).collect();
        let counts = schedule::counts(&weights, API_RATE * self.thousands, self.time);
        let mut arrivals = Vec::new();
        for (row, (route, count)) in routes.iter().zip(counts).enumerate() {
            let prepared = prepare(client, generator, route, count).await?;
            for (at, created) in schedule::instants(count, self.time, &mut rng).into_iter().zip(prepared) {
                let request = (route.request)(generator, &created);
                let (http_request, status, shape, after) =
                    (HttpRequest::from(&request), route.status, route.shape, route.after);
                arrivals.push(Arrival {
                    at,
                    row,
                    kind: ArrivalKind::Api { request, http_request, status, shape, after },
                });
            }
        }
        for (index, operation) in GIT.into_iter().enumerate() {
            let count = schedule::counts(&[1.0], self.thousands * rate_of(operation), self.time)[0];
            for (number, at) in schedule::instants(count, self.time, &mut rng).into_iter().enumerate() {
                let kind = ArrivalKind::Git(git_data.git_request(operation, generator, number));
                arrivals.push(Arrival { at, row: routes.len() + index, kind });
            }
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        Ok(arrivals)
    }
}

const GIT: [GitOperation; 7] = [
    GitOperation::LsRemote,
    GitOperation::Pull,
    GitOperation::Clone,
    GitOperation::CloneLarge,
    GitOperation::Push,
    GitOperation::ProgramLsRemote,
    GitOperation::ProgramClone,
];

/// Returns the rate of an operation per second and thousand users.
fn rate_of(operation: GitOperation) -> f64 {
    let share = GitOperation::FETCHES.iter().find(|(fetch, _)| *fetch == operation).map(|(_, share)| share * PULL_RATE);
    share.unwrap_or(if operation == GitOperation::Push { PUSH_RATE } else { GIT_PROGRAM_RATE / 2.0 })
}

/// Prepares the data for `count` requests to a route, concurrently, as nothing is measured yet.
async fn prepare(
    client: &Arc<Client>,
    generator: &mut RequestGenerator<'_>,
    route: &Route,
    count: usize,
) -> Result<Vec<Prepared>> {
    let mut all = vec![Prepared::default(); count];
    for make in route.before {
        let requests: Vec<ApiRequest> = all.iter().map(|created| make(generator, created)).collect();
        let (mut tasks, permits) = (JoinSet::new(), Arc::new(Semaphore::new(PREPARATION_CONCURRENCY)));
        for (index, request) in requests.into_iter().enumerate() {
            let (client, permits) = (Arc::clone(client), Arc::clone(&permits));
            tasks.spawn(async move {
                let _permit = permits.acquire().await?;
                let response = send(&client, &request).await?;
                Ok::<_, anyhow::Error>((index, Prepared { request, response: json(&response.start)? }))
            });
        }
        while let Some(done) = tasks.join_next().await {
            let (index, created) = done??;
            all[index] = created;
        }
    }
    Ok(all)
}

/// Sends every request at its time; returns the results and the delays of the generator.
async fn send_all(arrivals: Vec<Arrival>, client: &Arc<Client>, address: String) -> (Vec<Sample>, Vec<Duration>) {
    let (mut in_flight, mut samples, mut delays) = (JoinSet::new(), Vec::new(), Vec::new());
    let start = tokio::time::Instant::now() + Duration::from_millis(50);
    for arrival in arrivals {
        let due = start + arrival.at;
        sleep_until(due).await;
        delays.push(due.elapsed());
        while let Some(done) = in_flight.try_join_next() {
            samples.extend(done);
        }
        if in_flight.len() >= MAX_IN_FLIGHT {
            let error = Some("not sent: too many requests in flight".into());
            samples.push(Sample { row: arrival.row, latency: Duration::MAX, done: Duration::MAX, error, after: None });
            continue;
        }
        let (client, address) = (Arc::clone(client), address.clone());
        in_flight.spawn(async move { send_one(arrival, due.into_std(), start.into_std(), &client, &address).await });
    }
    while let Some(done) = in_flight.join_next().await {
        samples.extend(done);
    }
    (samples, delays)
}

async fn send_one(arrival: Arrival, due: Instant, start: Instant, client: &Client, address: &str) -> Sample {
    let Arrival { row, kind, .. } = arrival;
    let (first, after) = match kind {
        ArrivalKind::Api { request, http_request, status, shape, after } => match client.send(&http_request).await {
            Ok(response) => {
                let error = error_in(&request, &response, status, shape);
                let created = |after: fn(&ApiRequest, &Value) -> ApiRequest| {
                    after(&request, &json(&response.start).unwrap_or_default())
                };
                let after = after.filter(|_| error.is_none()).map(created);
                (error.map_or(Ok(response.first), Err), after)
            }
            Err(error) => (Err(format!("{} {}: {error:#}", request.method, request.target)), None),
        },
        ArrivalKind::Git(git_request) => {
            let done = git_request.run(client, address).await;
            (done.map_err(|error| format!("{}: {error:#}", git_request.operation().name())), git_request.after)
        }
    };
    let (latency, error) = match first {
        Ok(first) => (first.saturating_duration_since(due), None),
        Err(error_message) => (due.elapsed(), Some(error_message)),
    };
    Sample { row, latency, done: start.elapsed(), error, after }
}

fn error_in(request: &ApiRequest, response: &HttpResponse, status: u16, shape: ResponseShape) -> Option<String> {
    let HttpResponse { start, last, length, .. } = response;
    let error = if response.status == status {
        shape.error_in(start, *last, *length)
    } else {
        let excerpt = String::from_utf8_lossy(&start[..start.len().min(200)]).into_owned();
        Some(format!("{} instead of {status}: {excerpt}", response.status))
    };
    error.map(|error| format!("{} {}: {error}", request.method, request.target))
}

/// Deletes what the requests created; failures are reported, but harmless.
async fn clean_up(client: &Arc<Client>, cleanup: Vec<ApiRequest>) {
    let (mut in_flight, permits) = (JoinSet::new(), Arc::new(Semaphore::new(PREPARATION_CONCURRENCY)));
    for request in cleanup {
        let (client, permits) = (Arc::clone(client), Arc::clone(&permits));
        in_flight.spawn(async move {
            let _permit = permits.acquire().await.ok()?;
            send(&client, &request).await.err()
        });
    }
    let mut error_messages: HashMap<String, usize> = HashMap::new();
    while let Some(done) = in_flight.join_next().await {
        if let Ok(Some(error)) = done {
            let kind: String =
                format!("{error:#}").chars().filter(|letter| !letter.is_ascii_digit()).take(120).collect();
            *error_messages.entry(kind).or_default() += 1;
        }
    }
    for (error, count) in error_messages {
        eprintln!("cleanup failed {count} times: {error}");
    }
}
