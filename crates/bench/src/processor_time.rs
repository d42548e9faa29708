//! Benchmark of the processor time of requests, as multiples of `GET /projects/:id` in the same run. With PostgreSQL, the
//! time of its processes counts as well. An earlier version can be measured in alternation with this one.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{
    basics::{self, ScratchFolder},
    callers::{self, Caller, CallerKind},
    closed_loop::{self, Until},
    engine::{Engine, EngineKind, FilledInstance},
    issues::{self, IssueDataset},
    list_dataset::{MEMBER, MEMBER_TOKEN, RARE_WORD},
    pushes::{basic_authorization, git},
    server::{self, Server, TOKEN},
};

/// The time for which each request is repeated, and how often in alternation.
const SLICE: Duration = Duration::from_millis(400);
const ROUNDS: usize = 3;
const WARM_UP: usize = 60;
const CLIENTS: usize = 4;
/// The number of commits, branches and tags of the repository, and of the files in its folder.
const COMMITS: usize = 100;
const COMPARED_COMMITS: usize = 20;
/// The project with the issues and the repository.
const PROJECT: u64 = issues::PROJECT;
const ISSUE_DATASET: IssueDataset =
    IssueDataset { issues: 1_000, labels: 20, milestones: 5, known_author: (MEMBER, 100), others: (4, 900), seed: 1 };

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) name: String,
    /// The number of projects of the caller, if the request depends on it.
    pub(crate) caller: Option<Caller>,
    path: String,
    token: String,
    /// The maximum multiple of the time of `GET /projects/:id`.
    pub(crate) goal: Option<f64>,
}

/// The results on one engine.
pub(crate) struct Results {
    pub(crate) kind: EngineKind,
    pub(crate) rows: Vec<Row>,
}

/// The processor time of a request in microseconds.
pub(crate) struct Row {
    pub(crate) request: Request,
    pub(crate) now: f64,
    /// That of the earlier version.
    pub(crate) before: Option<f64>,
}

/// Measures all requests on one engine.
pub(crate) fn measure(program: &Path, before: Option<&Path>, folder: &Path, engine: &Engine) -> Result<Results> {
    let scratch = ScratchFolder::new(folder)?;
    let mut extra = callers::statements(engine.kind());
    extra.extend(issues::statements(engine.kind(), &ISSUE_DATASET));
    let mut instances = Vec::new();
    for (program, name) in [(Some(program), "now"), (before, "before")] {
        let Some(program) = program else { continue };
        let folder = scratch.0.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let instance = engine.fill_named(program, &folder, name, callers::PROJECTS, &extra)?;
        push_repository(&instance.server, &folder.join("source.git"))?;
        instances.push(instance);
    }
    let requests = requests(&instances[0].server)?;
    let mut rows = Vec::new();
    for request in requests {
        let mut totals = vec![(Duration::ZERO, 0.0); instances.len()];
        for instance in &instances {
            run(instance, &request, Until::RequestsOrElapsed(WARM_UP, SLICE))?;
        }
        for _ in 0..ROUNDS {
            for (instance, total) in instances.iter().zip(&mut totals) {
                let start = processor_time(instance)?;
                let responses = run(instance, &request, Until::Elapsed(SLICE))?;
                total.0 += processor_time(instance)?.saturating_sub(start);
                total.1 += responses;
            }
        }
        let micros: Vec<f64> = totals.iter().map(|(time, responses)| time.as_secs_f64() * 1e6 / responses).collect();
        rows.push(Row { request, now: micros[0], before: micros.get(1).copied() });
    }
    Ok(Results { kind: engine.kind(), rows })
}

/// Repeats a request and returns the number of responses.
fn run(instance: &FilledInstance, request: &Request, until: Until) -> Result<f64> {
    let next = closed_loop::get(&format!("/api/v3{}", request.path), &request.token);
    let load = basics::load_on(&instance.server, CLIENTS, next, 200);
    Ok(closed_loop::run(&load, until).with_context(|| request.path.clone())?.response_count())
}

/// Returns the processor time of a server and of the processes of PostgreSQL that work for it.
fn processor_time(instance: &FilledInstance) -> Result<Duration> {
    let own = instance.server.cpu_time()?;
    Ok(own + instance.database_name().map_or(Duration::ZERO, server::database_cpu_time))
}

/// Returns all requests; the first is the one that others are compared with.
fn requests(server: &Server) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    let mut add = |name: &str, path: &str, token: &str, goal| {
        let (name, path, token) = (name.to_owned(), path.to_owned(), token.to_owned());
        requests.push(Request { name, caller: None, path, token, goal });
    };
    let project = format!("/projects/{PROJECT}");
    add("/projects/:id", &project, TOKEN, None);
    add("/projects/all, page of 20", "/projects/all", TOKEN, Some(14.0));
    let search = |word: &str| format!("/projects/visible?search={word}");
    add("/projects/visible?search=, ten hits", &search(RARE_WORD), MEMBER_TOKEN, Some(14.0));
    add("/projects/visible?search=, no hit", &search("xylophone"), MEMBER_TOKEN, Some(14.0));
    let repository = format!("{project}/repository");
    let commits: Vec<Value> = {
        let path = format!("/api/v3{repository}/commits?ref_name=main&per_page=100");
        serde_json::from_slice(&closed_loop::fetch(server.address, &closed_loop::get(&path, TOKEN))?)?
    };
    let commit = |number: usize| commits.get(number).and_then(|commit| commit["id"].as_str()).unwrap_or_default();
    for (name, path, goal) in [
        ("branches, page of 20", "branches".to_owned(), 14.0),
        ("tags, page of 20", "tags".to_owned(), 14.0),
        ("commits, page of 20", "commits?ref_name=main".to_owned(), 12.0),
        ("raw file", format!("blobs/{}?filepath=folder/file-7", commit(0)), 7.0),
        ("folder", "tree?path=folder&ref_name=main".to_owned(), 7.0),
        ("compare over 20 commits", format!("compare?from={}&to={}", commit(COMPARED_COMMITS), commit(0)), 200.0),
    ] {
        add(name, &format!("{repository}/{path}"), TOKEN, Some(goal));
    }
    add("issues, page of 20", &format!("{project}/issues"), TOKEN, Some(10.0));
    add("issues by label, page of 20", &format!("{project}/issues?labels=label-0"), TOKEN, Some(10.0));
    for caller in Caller::all() {
        let mut paths = vec!["/projects", "/projects?per_page=1", "/projects/visible"];
        if caller.kind != CallerKind::Member {
            paths.push("/projects/owned");
        }
        requests.extend(paths.into_iter().map(|path| Request {
            name: path.to_owned(),
            caller: Some(caller),
            path: path.to_owned(),
            token: caller.token(),
            goal: Some(16.0),
        }));
    }
    Ok(requests)
}

/// Pushes a repository to the project with the issues.
fn push_repository(server: &Server, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    git(folder, &["init", "--quiet", "--bare"], b"")?;
    let mut history = String::new();
    for number in 0..COMMITS {
        let time = 1_700_000_000 + number * 600;
        let person = format!("Ada Lovelace <ada@example.org> {time} +0000");
        let message = format!("Change file {number}\n\nIt is better now.\n");
        writeln!(
            history,
            "commit refs/heads/main\nauthor {person}\ncommitter {person}\ndata {}\n{message}",
            message.len()
        )?;
        let content = format!("line {number} of a file\n").repeat(40);
        writeln!(history, "M 100644 inline folder/file-{number}\ndata {}\n{content}", content.len())?;
        writeln!(history, "M 100644 inline file\ndata {}\n{content}", content.len())?;
        writeln!(history, "\nreset refs/heads/branch-{number}\nfrom refs/heads/main\n")?;
        writeln!(history, "tag v{number}\nfrom refs/heads/main\ntagger {person}\ndata 7\nRelease")?;
    }
    git(folder, &["fast-import", "--quiet"], history.as_bytes())?;
    let path = format!("/api/v3/projects/{PROJECT}");
    let project: Value = serde_json::from_slice(&closed_loop::fetch(server.address, &closed_loop::get(&path, TOKEN))?)?;
    let Some(path) = project["path_with_namespace"].as_str() else { bail!("no project: {project}") };
    let (url, header) = (format!("http://{}/{path}.git", server.address), basic_authorization());
    let header = format!("http.extraHeader=Authorization: {header}");
    git(folder, &["-c", &header, "push", "--quiet", "--mirror", &url], b"")?;
    Ok(())
}
