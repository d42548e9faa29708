//! Pipelines: how long a large file takes to plan, how soon many runners get jobs, and how much jobs can say.

use std::{
    collections::HashSet,
    fmt::Write as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use ci::{Circumstances, Config, NoFiles};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::interval};

use crate::{
    Outcome,
    engine::{Engine, Kind},
    load::{self, Connection, Measured},
    run::Scratch,
    server::{Server, TOKEN},
};

/// How many jobs the large file has.
pub(crate) const JOBS: usize = 500;
/// How many of such pipelines wait at once.
const PIPELINES: usize = 2;
/// How many runners ask for jobs at once.
pub(crate) const RUNNERS: usize = 50;
/// How many jobs talk at once, and how much each says in a second.
pub(crate) const TALKERS: usize = 20;
pub(crate) const TALK: usize = 1 << 20;
/// How often a job says something, and for how long.
const PIECES: usize = 4;
const TALK_TIME: Duration = Duration::from_secs(15);
/// How often the large file is planned.
const PLANS: usize = 50;

/// What was measured on one engine.
pub(crate) struct Results {
    pub(crate) kind: Kind,
    /// Reading and planning a file of [`JOBS`] jobs, without a server.
    pub(crate) planning: Measured,
    /// From asking for a pipeline of so many jobs to the answer.
    pub(crate) creation: Measured,
    /// From asking for a job to having it, while all others ask too.
    pub(crate) assignment: Measured,
    /// One piece of what a job says.
    pub(crate) patches: Measured,
    /// What all jobs said in a second, in megabytes.
    pub(crate) said: f64,
    /// How much of a processor the server took for that.
    pub(crate) cores: f64,
}

/// Measures everything on one engine.
pub(crate) fn measure(program: &Path, folder: &Path, engine: &Engine) -> Outcome<Results> {
    let planning = plan_often()?;
    let scratch = Scratch::new(folder)?;
    let house = engine.house(&scratch.0, "pipelines")?;
    let server = house.start(program)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        let mut root = Asker::new(&server).await?;
        let project = root.ask("POST", "/api/v3/projects", &json!({ "name": "busy", "path": "busy" })).await?;
        let (id, token) = (number(&project["id"])?, text(&project["runners_token"])?);
        let file = json!({
            "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": large_file(),
            "commit_message": "Build it [ci skip]",
        });
        root.ask("POST", &format!("/api/v3/projects/{id}/repository/files"), &file).await?;
        let mut runners = Vec::new();
        for at in 0..RUNNERS {
            let new = json!({ "token": token, "description": format!("runner {at}"), "run_untagged": true });
            runners.push(text(&root.ask("POST", "/api/v4/runners", &new).await?["token"])?);
        }
        let mut creation = Measured::default();
        for _ in 0..PIPELINES {
            let start = Instant::now();
            root.ask("POST", &format!("/api/v3/projects/{id}/pipeline"), &json!({ "ref": "master" })).await?;
            creation.push(start.elapsed());
        }
        let (assignment, jobs) = hand_out(&server, &runners).await?;
        let before = server.cpu_time()?;
        let start = Instant::now();
        let (patches, bytes) = talk(&server, &jobs[..TALKERS]).await?;
        let elapsed = start.elapsed().as_secs_f64();
        let cores = (server.cpu_time()?.saturating_sub(before)).as_secs_f64() / elapsed;
        #[expect(clippy::cast_precision_loss, reason = "nobody says 2^52 bytes")]
        let said = bytes as f64 / elapsed / f64::from(1 << 20);
        for (job, _) in &jobs[..TALKERS] {
            let trace = root.fetch(&format!("/api/v3/projects/{id}/builds/{job}/trace")).await?;
            if trace.len() * TALKERS != bytes {
                return Err(format!("job {job} has said {} bytes, not a {TALKERS}th of {bytes}", trace.len()));
            }
        }
        Ok(Results { kind: engine.kind(), planning, creation, assignment, patches, said, cores })
    })
}

fn plan_often() -> Outcome<Measured> {
    let (file, mut planning) = (large_file(), Measured::default());
    for _ in 0..PLANS {
        let start = Instant::now();
        let config =
            Config::load(&file, &NoFiles).map_err(|error| format!("the large file is wrong: {}", error.text))?;
        let circumstances = Circumstances { ref_name: "master".into(), ..Circumstances::default() };
        let plan = ci::plan(&config, &circumstances).map_err(|error| format!("no plan: {error}"))?;
        planning.push(start.elapsed());
        if plan.jobs.len() != JOBS {
            return Err(format!("{} jobs were planned", plan.jobs.len()));
        }
    }
    Ok(planning)
}

/// A file as large projects have them: everything in one stage, so that all of it can start at once.
fn large_file() -> String {
    let mut file = String::from(
        ".base: &base\n  stage: test\n  before_script: [./prepare]\n  variables: {MODE: fast}\n  artifacts: {paths: [out], expire_in: 1 week}\n",
    );
    for at in 0..JOBS {
        let _ = write!(
            file,
            "job {at}:\n  <<: *base\n  script:\n    - ./build --part {at}\n    - ./check --part {at}\n  rules:\n    - if: $CI_COMMIT_BRANCH\n"
        );
    }
    file
}

/// Lets all runners ask until nothing is left; each job may be had once.
async fn hand_out(server: &Server, runners: &[String]) -> Outcome<(Measured, Vec<(i64, String)>)> {
    let mut asking = JoinSet::new();
    for token in runners {
        let mut asker = Asker::new(server).await?;
        let body = json!({ "token": token, "info": { "name": "bench", "version": "1" } });
        asking.spawn(async move {
            let (mut measured, mut jobs) = (Measured::default(), Vec::new());
            loop {
                let start = Instant::now();
                let (status, answer) = asker.try_ask("POST", "/api/v4/jobs/request", &body).await?;
                match status {
                    201 => {
                        measured.push(start.elapsed());
                        jobs.push((number(&answer["id"])?, text(&answer["token"])?));
                    }
                    204 => return Ok::<_, String>((measured, jobs)),
                    409 => {}
                    _ => return Err(format!("answered {status}: {answer}")),
                }
            }
        });
    }
    let (mut measured, mut all) = (Measured::default(), Vec::new());
    while let Some(ended) = asking.join_next().await {
        let (one, jobs) = ended.map_err(|error| error.to_string())??;
        measured.add(one);
        all.extend(jobs);
    }
    let different: HashSet<i64> = all.iter().map(|(id, _)| *id).collect();
    if different.len() != all.len() || all.len() != PIPELINES * JOBS {
        return Err(format!("{} jobs were given out {} times", different.len(), all.len()));
    }
    Ok((measured, all))
}

/// Lets jobs talk all at once, each at its pace; answers what all of them said.
async fn talk(server: &Server, jobs: &[(i64, String)]) -> Outcome<(Measured, usize)> {
    let line = format!("{:0>63}\n", "a line of a build");
    let piece: Arc<[u8]> = line.repeat(TALK / PIECES / line.len()).into_bytes().into();
    let mut talking = JoinSet::new();
    for (id, token) in jobs {
        let (id, token, address, piece) = (*id, token.clone(), server.address, Arc::clone(&piece));
        talking.spawn(async move {
            let mut connection = Connection::open(address).await.map_err(|error| format!("cannot connect: {error}"))?;
            let mut pace = interval(Duration::from_secs(1) / u32::try_from(PIECES).unwrap_or(1));
            let (start, mut measured, mut said) = (Instant::now(), Measured::default(), 0);
            while start.elapsed() < TALK_TIME {
                pace.tick().await;
                let mut request = format!(
                    "PATCH /api/v4/jobs/{id}/trace HTTP/1.1\r\nHost: localhost\r\nJOB-TOKEN: {token}\r\n\
                     Content-Type: text/plain\r\nContent-Range: {said}-{}\r\nContent-Length: {}\r\n\r\n",
                    said + piece.len() - 1,
                    piece.len()
                )
                .into_bytes();
                request.extend_from_slice(&piece);
                let asked = Instant::now();
                let status = connection.exchange(&request).await.map_err(|error| format!("cut off: {error}"))?;
                if status != 202 {
                    let body = String::from_utf8_lossy(connection.body());
                    return Err(format!("a piece of a trace was answered {status}: {body}"));
                }
                measured.push(asked.elapsed());
                said += piece.len();
            }
            Ok::<_, String>((measured, said))
        });
    }
    let (mut measured, mut bytes, mut each) = (Measured::default(), 0, HashSet::new());
    while let Some(ended) = talking.join_next().await {
        let (one, said) = ended.map_err(|error| error.to_string())??;
        measured.add(one);
        bytes += said;
        each.insert(said);
    }
    if each.len() == 1 { Ok((measured, bytes)) } else { Err(format!("not all jobs kept pace: {each:?}")) }
}

/// Somebody who asks on one connection.
struct Asker(Connection);

impl Asker {
    async fn new(server: &Server) -> Outcome<Self> {
        Ok(Self(Connection::open(server.address).await.map_err(|error| format!("cannot connect: {error}"))?))
    }

    async fn try_ask(&mut self, method: &str, path: &str, body: &Value) -> Outcome<(u16, Value)> {
        let mut request = Vec::new();
        let body = body.to_string();
        load::post(path, TOKEN, move || body.clone())(&mut request);
        request.splice(..4, method.bytes());
        let status = self.0.exchange(&request).await.map_err(|error| format!("cannot ask {path}: {error}"))?;
        Ok((status, serde_json::from_slice(self.0.body()).unwrap_or_default()))
    }

    async fn ask(&mut self, method: &str, path: &str, body: &Value) -> Outcome<Value> {
        let (status, answer) = self.try_ask(method, path, body).await?;
        if (200..300).contains(&status) { Ok(answer) } else { Err(format!("{path} answers {status}: {answer}")) }
    }

    async fn fetch(&mut self, path: &str) -> Outcome<Vec<u8>> {
        let mut request = Vec::new();
        load::get(path, TOKEN)(&mut request);
        let status = self.0.exchange(&request).await.map_err(|error| format!("cannot ask {path}: {error}"))?;
        if status == 200 { Ok(self.0.body().to_vec()) } else { Err(format!("{path} answers {status}")) }
    }
}

fn number(value: &Value) -> Outcome<i64> {
    value.as_i64().ok_or_else(|| format!("not a number: {value}"))
}

fn text(value: &Value) -> Outcome<String> {
    value.as_str().map(ToOwned::to_owned).ok_or_else(|| format!("not a text: {value}"))
}
