//! Benchmarks and load tests of the shipped binary, run by `cargo xtask bench`, `cargo xtask seed` and `cargo xtask
//! load`.

#![expect(clippy::print_stdout, reason = "a command-line tool prints its results")]

mod basics;
mod callers;
mod closed_loop;
mod compare_lists;
mod disk;
mod engine;
mod floor;
mod git_http_backend;
mod hooks;
mod issues;
mod large_repository;
mod list_cases;
mod list_dataset;
mod lists;
mod load_test;
mod pipelines;
mod processor_time;
mod pushes;
mod report;
mod repository;
mod rng;
mod seed;
mod server;
mod sql;
mod transport;
mod web_pages;

use std::{collections::HashSet, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use engine::Engine;
use report::Report;

/// The variable with the URL of PostgreSQL, which may contain a password.
const DATABASE: &str = "GABLE_BENCH_DATABASE";
const FLAGS: &str = "--basics, --project, --lists, --growth, --repository, --issues, --hooks, --pipelines, --pushes, --processor-time, --web, --compare-lists, --before PROGRAM, --sqlite, --postgres, --all-rows, --seconds N and --json";

/// The benchmarks to run, and for how long.
struct Settings {
    gable: PathBuf,
    /// An earlier version to compare with.
    before: Option<PathBuf>,
    folder: PathBuf,
    seconds: u32,
    json: bool,
    all_rows: bool,
    basics: bool,
    repository: bool,
    issues: bool,
    hooks: bool,
    pipelines: bool,
    pushes: bool,
    processor_time: bool,
    web: bool,
    /// Only with an earlier version.
    compare_lists: bool,
    parts: lists::ListParts,
    engines: Vec<Engine>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        // The floor is a separate process with its own runtime and allocator.
        [word, answer, path] if word == floor::SUBCOMMAND => floor::run(answer, path),
        [word, rest @ ..] if word == "seed" => seed::run(rest),
        [word, rest @ ..] if word == "load" => load_test::run(rest),
        _ => parse_settings(&arguments).and_then(measure),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse_settings(arguments: &[String]) -> Result<Settings> {
    let (mut gable, mut before, mut folder, mut seconds) = (PathBuf::new(), None, PathBuf::new(), 40);
    let mut named = HashSet::new();
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().with_context(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--gable" => gable = value()?.into(),
            "--before" => before = Some(PathBuf::from(value()?)),
            "--folder" => folder = value()?.into(),
            "--seconds" => {
                let text = value()?;
                seconds = text.parse().map_err(|_| anyhow!("--seconds takes a number, not {text}"))?;
            }
            "--json" | "--all-rows" | "--basics" | "--project" | "--lists" | "--growth" | "--repository"
            | "--issues" | "--hooks" | "--pipelines" | "--pushes" | "--processor-time" | "--web"
            | "--compare-lists" | "--sqlite" | "--postgres" => {
                named.insert(flag.as_str());
            }
            other => bail!("unknown flag {other}; bench accepts {FLAGS}"),
        }
    }
    if seconds < 4 {
        bail!("too short for a measurement: use at least 4 seconds");
    }
    let compare_lists = named.contains("--compare-lists");
    if compare_lists && before.is_none() {
        bail!("--compare-lists needs --before PROGRAM");
    }
    // The selected parts, or all if none is selected.
    let wanted = |flag: &str, all: &[&str]| named.contains(flag) || !all.iter().any(|flag| named.contains(flag));
    let part = |flag: &str| {
        let all = [
            "--basics",
            "--project",
            "--lists",
            "--growth",
            "--repository",
            "--issues",
            "--hooks",
            "--pipelines",
            "--pushes",
            "--processor-time",
            "--web",
            "--compare-lists",
        ];
        wanted(flag, &all)
    };
    let engine = |flag: &str| wanted(flag, &["--sqlite", "--postgres"]);
    let parts = lists::ListParts { project: part("--project"), lists: part("--lists"), growth: part("--growth") };
    let mut engines = Vec::new();
    if engine("--sqlite") {
        engines.push(Engine::Sqlite);
    }
    let with_engine =
        ["--issues", "--hooks", "--pipelines", "--pushes", "--processor-time", "--web", "--compare-lists"];
    if engine("--postgres") && (parts.any() || with_engine.into_iter().any(part)) {
        engines.push(Engine::Postgres(std::env::var(DATABASE).map_err(|_| anyhow!("{DATABASE} is not set"))?));
    }
    let (json, all_rows) = (named.contains("--json"), named.contains("--all-rows"));
    let (basics, repository) = (part("--basics"), part("--repository"));
    let (issues, hooks, pipelines, pushes) = (part("--issues"), part("--hooks"), part("--pipelines"), part("--pushes"));
    let (processor_time, web) = (part("--processor-time"), part("--web"));
    Ok(Settings {
        gable,
        before,
        folder,
        seconds,
        json,
        all_rows,
        basics,
        repository,
        issues,
        hooks,
        pipelines,
        pushes,
        processor_time,
        web,
        compare_lists,
        parts,
        engines,
    })
}

fn measure(settings: Settings) -> Result<()> {
    let Settings {
        gable,
        before,
        folder,
        seconds,
        json,
        all_rows,
        basics,
        repository,
        issues,
        hooks,
        pipelines,
        pushes,
        processor_time,
        web,
        compare_lists,
        parts,
        engines,
    } = settings;
    let time = Duration::from_secs(seconds.into());
    let mut report = Report::default();
    if basics {
        report.basics = Some(basics::measure(&gable, &folder, time)?);
    }
    if let Some(before) = before.as_deref().filter(|_| compare_lists) {
        for engine in &engines {
            compare_lists::run(&gable, before, &folder, engine)?;
        }
    }
    for engine in engines.iter().filter(|_| parts.any()) {
        report.lists.push(lists::measure(&gable, &folder, engine, parts, time)?);
    }
    for engine in engines.iter().filter(|_| issues) {
        report.issues.push(issues::measure(&gable, &folder, engine)?);
    }
    for engine in engines.iter().filter(|_| hooks) {
        report.hooks.push(hooks::measure(&gable, &folder, engine)?);
    }
    for engine in engines.iter().filter(|_| pipelines) {
        report.pipelines.push(pipelines::measure(&gable, &folder, engine)?);
    }
    for engine in engines.iter().filter(|_| pushes) {
        report.pushes.push(pushes::measure(&gable, before.as_deref(), &folder, engine)?);
    }
    for engine in engines.iter().filter(|_| processor_time) {
        report.processor_time.push(processor_time::measure(&gable, before.as_deref(), &folder, engine)?);
    }
    for engine in engines.iter().filter(|_| web) {
        report.web_pages.push(web_pages::measure(&gable, &folder, engine)?);
    }
    if repository {
        let mut results = repository::measure(&folder, time)?;
        results.rows.extend(transport::measure(&gable, &folder)?);
        report.repository = Some(results);
    }
    let file = report.write(&folder)?;
    if json {
        println!("{}", report.json());
    } else {
        println!("{}\nwritten to {}", report.tables(all_rows), file.display());
    }
    Ok(())
}
