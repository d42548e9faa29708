//! Benchmark of the pages of the web interface: the time of one visitor and of many, what a page weighs, and the memory
//! of the server before and after.

use std::{fmt::Write as _, fs, path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{
    basics::{self, ScratchFolder},
    callers,
    closed_loop::{self, Connection, NextRequest, Until},
    engine::{Engine, EngineKind},
    issues::{self, IssueDataset},
    list_dataset::MEMBER,
    pushes::{basic_authorization, git},
    server::{ROOT_PASSWORD, Server, TOKEN},
};

/// The number of requests of a single visitor.
const REQUESTS: usize = 200;
const WARM_UP: usize = 5;
/// The number of visitors who read pages at the same time, and how many pages each of them reads.
const VISITORS: usize = 50;
const REQUESTS_PER_VISITOR: usize = 20;
/// The goals of the 90th percentile in milliseconds: of one visitor, of the most visited pages, and of many visitors.
const GOAL: f64 = 20.0;
const FAST_GOAL: f64 = 10.0;
const LARGE_GOAL: f64 = 300.0;
const GOAL_OF_MANY: f64 = 50.0;

/// The project with the issues and the repository.
const PROJECT: u64 = issues::PROJECT;
const ISSUE_DATASET: IssueDataset =
    IssueDataset { issues: 1_000, labels: 20, milestones: 5, known_author: (MEMBER, 100), others: (4, 900), seed: 1 };
const COMMITS: usize = 100;
/// The number of lines of the large file, and of the files that the large commit changes.
const LINES: usize = 20_000;
const CHANGED_FILES: usize = 300;

/// The results on one engine.
pub(crate) struct Results {
    pub(crate) kind: EngineKind,
    pub(crate) rows: Vec<Row>,
    /// The memory of the server in megabytes: after its start with 10,000 projects, and after all requests.
    pub(crate) idle_memory: f64,
    pub(crate) peak_memory: f64,
}

/// The measurements of a page; times are 90th percentiles in milliseconds.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The size of the document as it is sent, in bytes.
    pub(crate) size: usize,
    pub(crate) one: f64,
    pub(crate) goal: f64,
    /// With many visitors; not measured for large pages.
    pub(crate) many: Option<f64>,
}

impl Row {
    pub(crate) fn is_met(&self) -> bool {
        self.one <= self.goal && self.many.is_none_or(|many| many <= GOAL_OF_MANY)
    }
}

/// Measures all pages on one engine.
pub(crate) fn measure(program: &Path, folder: &Path, engine: &Engine) -> Result<Results> {
    let scratch = ScratchFolder::new(folder)?;
    let mut extra = callers::statements(engine.kind());
    extra.extend(issues::statements(engine.kind(), &ISSUE_DATASET));
    let instance = engine.fill_named(program, &scratch.0, "pages", callers::PROJECTS, &extra)?;
    let server = &instance.server;
    let project = project_path(server)?;
    push_repository(server, &scratch.0.join("source.git"), &project)?;
    let session = sign_in(server)?;
    let idle_memory = server.memory()?;
    let mut rows = Vec::new();
    for (name, path, goal) in pages(&project) {
        let next = get(&path, &session);
        let single = basics::load_on(server, 1, Arc::clone(&next), 200);
        closed_loop::run(&single, Until::Requests(WARM_UP)).with_context(|| path.clone())?;
        let size = closed_loop::fetch(server.address, &next)?.len();
        let is_large = goal >= LARGE_GOAL;
        let requests = if is_large { REQUESTS / 20 } else { REQUESTS };
        let one = closed_loop::run(&single, Until::Requests(requests))?.percentile(90);
        let many = if is_large {
            None
        } else {
            let load = basics::load_on(server, VISITORS, next, 200);
            Some(closed_loop::run(&load, Until::Requests(REQUESTS_PER_VISITOR))?.percentile(90))
        };
        rows.push(Row { name, size, one, goal, many });
    }
    Ok(Results { kind: engine.kind(), rows, idle_memory, peak_memory: server.peak_memory()? })
}

/// Returns the pages: name, path and goal.
fn pages(project: &str) -> Vec<(&'static str, String, f64)> {
    let in_project = |path: &str| format!("/{project}/-/{path}");
    vec![
        ("dashboard", "/dashboard".to_owned(), GOAL),
        ("explore", "/explore".to_owned(), GOAL),
        ("project home", format!("/{project}"), FAST_GOAL),
        ("folder", in_project("tree/main/folder"), FAST_GOAL),
        ("file", in_project("blob/main/file"), GOAL),
        ("history", in_project("commits/main"), GOAL),
        ("history of a file", in_project("commits/main/folder/file-7"), GOAL),
        ("commit", in_project("commit/main"), GOAL),
        ("compare over 20 commits", in_project("compare/branch-79...branch-99"), GOAL),
        ("branches", in_project("branches"), GOAL),
        ("tags", in_project("tags"), GOAL),
        ("issues", in_project("issues"), FAST_GOAL),
        ("issues by label", in_project("issues?label_name=label-0"), GOAL),
        ("issue", in_project("issues/7"), GOAL),
        ("file of 20,000 lines", in_project("blob/large/large.rs"), LARGE_GOAL),
        ("commit with 300 files", in_project("commit/large"), LARGE_GOAL),
    ]
}

fn project_path(server: &Server) -> Result<String> {
    let path = format!("/api/v3/projects/{PROJECT}");
    let project: Value = serde_json::from_slice(&closed_loop::fetch(server.address, &closed_loop::get(&path, TOKEN))?)?;
    let Some(path) = project["path_with_namespace"].as_str() else { bail!("no project: {project}") };
    Ok(path.to_owned())
}

/// Returns a request of a browser.
fn get(path: &str, session: &str) -> NextRequest {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nCookie: {session}\r\n\r\n");
    Arc::new(move |buffer| buffer.extend_from_slice(request.as_bytes()))
}

/// Signs the administrator in, and returns the cookie of the session.
fn sign_in(server: &Server) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let mut connection = Connection::open(server.address).await.context("cannot connect")?;
        connection.exchange(b"GET /users/sign_in HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let cookie = cookie(connection.head()).context("the sign-in form has no cookie")?;
        let page = String::from_utf8_lossy(connection.body()).into_owned();
        let token = page.split("name=\"form_token\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        let token = token.context("the sign-in form has no token")?;
        let form = format!("login=root&password={ROOT_PASSWORD}&form_token={token}");
        let request = format!(
            "POST /users/sign_in HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        connection.exchange(request.as_bytes()).await?;
        self::cookie(connection.head()).context("cannot sign in")
    })
}

/// Returns the name and the value of the last cookie that a response sets.
fn cookie(head: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(head).into_owned();
    let lines = head.lines().filter_map(|line| line.strip_prefix("set-cookie: "));
    let mut cookies = lines.filter(|cookie| !cookie.contains("Max-Age=0"));
    cookies.next_back().and_then(|cookie| cookie.split(';').next()).map(ToOwned::to_owned)
}

/// Pushes a repository with a short history, and a branch with a large file and a large commit.
fn push_repository(server: &Server, folder: &Path, project: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    git(folder, &["init", "--quiet", "--bare"], b"")?;
    let mut history = String::new();
    for number in 0..COMMITS {
        begin_commit(&mut history, "main", number, &format!("Change file {number}\n\nIt is better now.\n"))?;
        let content = format!("line {number} of a file\n").repeat(40);
        write_file(&mut history, &format!("folder/file-{number}"), &content)?;
        write_file(&mut history, "file", &content)?;
        write_file(&mut history, "README.md", &format!("# Project\n\nVersion **{number}**.\n"))?;
        writeln!(history, "\nreset refs/heads/branch-{number}\nfrom refs/heads/main\n")?;
        writeln!(
            history,
            "tag v{number}\nfrom refs/heads/main\ntagger Ada <ada@example.org> 1700000000 +0000\ndata 7\nRelease"
        )?;
    }
    begin_commit(&mut history, "large", COMMITS, "Add a large file\n")?;
    writeln!(history, "from refs/heads/main")?;
    write_file(&mut history, "large.rs", &source(0))?;
    let files = |version: usize| (0..CHANGED_FILES).map(move |file| (format!("many/{file}.rs"), module(file, version)));
    for (path, content) in files(0) {
        write_file(&mut history, &path, &content)?;
    }
    begin_commit(&mut history, "large", COMMITS + 1, "Change many files\n")?;
    for (path, content) in files(1) {
        write_file(&mut history, &path, &content)?;
    }
    git(folder, &["fast-import", "--quiet"], history.as_bytes())?;
    let (url, header) = (format!("http://{}/{project}.git", server.address), basic_authorization());
    let header = format!("http.extraHeader=Authorization: {header}");
    git(folder, &["-c", &header, "push", "--quiet", "--mirror", &url], b"")?;
    Ok(())
}

fn begin_commit(history: &mut String, branch: &str, number: usize, message: &str) -> Result<()> {
    let person = format!("Ada Lovelace <ada@example.org> {} +0000", 1_700_000_000 + number * 600);
    let length = message.len();
    writeln!(history, "commit refs/heads/{branch}\nauthor {person}\ncommitter {person}\ndata {length}\n{message}")?;
    Ok(())
}

fn write_file(history: &mut String, path: &str, content: &str) -> Result<()> {
    writeln!(history, "M 100644 inline {path}\ndata {}\n{content}", content.len())?;
    Ok(())
}

/// Returns a source file with [`LINES`] lines, below the limit of 512 KB.
fn source(version: usize) -> String {
    let functions =
        (0..LINES / 4).map(|number| format!("fn f{number}() -> u32 {{\n    // {version}\n    {number}\n}}\n"));
    functions.collect::<Vec<_>>().concat()
}

fn module(file: usize, version: usize) -> String {
    let value = |line: usize| if line == 5 { version } else { file };
    (0..12).map(|line| format!("pub const C{line}: usize = {};\n", value(line))).collect::<Vec<_>>().concat()
}
