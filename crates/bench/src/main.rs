//! Measures the shipped binary against the goals of the design, on the machine at hand. Started by `cargo xtask
//! bench`, `cargo xtask seed` and `cargo xtask load`.

#![expect(clippy::print_stdout, reason = "a tool talks to the person at the terminal")]

mod cases;
mod disk;
mod drive;
mod engine;
mod floor;
mod hooks;
mod issues;
mod landscape;
mod lists;
mod load;
mod peer;
mod pipelines;
mod report;
mod repository;
mod run;
mod seed;
mod server;
mod town;
mod transport;

use std::{collections::HashSet, path::PathBuf, process::ExitCode, time::Duration};

use engine::Engine;
use report::Report;

/// What ends the program early: one sentence for the person at the terminal.
type Outcome<T = ()> = Result<T, String>;

/// Where PostgreSQL is, for whoever measures on it; a variable, as the URL may hold a password.
const DATABASE: &str = "GABLE_BENCH_DATABASE";
const FLAGS: &str = "--basics, --project, --lists, --growth, --repository, --issues, --hooks, --pipelines, --sqlite, --postgres, --all-rows, --seconds N and --json";

/// What to measure and for how long.
struct Settings {
    gable: PathBuf,
    folder: PathBuf,
    seconds: u32,
    json: bool,
    all_rows: bool,
    basics: bool,
    repository: bool,
    issues: bool,
    hooks: bool,
    pipelines: bool,
    parts: lists::Parts,
    engines: Vec<Engine>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        // The floor is a process of its own, so that it has a runtime and an allocator of its own.
        [word, answer, path] if word == floor::WORD => floor::run(answer, path),
        [word, rest @ ..] if word == "seed" => seed::run(rest),
        [word, rest @ ..] if word == "load" => drive::run(rest),
        _ => read(&arguments).and_then(measure),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("bench: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn read(arguments: &[String]) -> Outcome<Settings> {
    let (mut gable, mut folder, mut seconds) = (PathBuf::new(), PathBuf::new(), 40);
    let mut named = HashSet::new();
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--gable" => gable = value()?.into(),
            "--folder" => folder = value()?.into(),
            "--seconds" => {
                let text = value()?;
                seconds = text.parse().map_err(|_| format!("--seconds takes a number, not {text}"))?;
            }
            "--json" | "--all-rows" | "--basics" | "--project" | "--lists" | "--growth" | "--repository"
            | "--issues" | "--hooks" | "--pipelines" | "--sqlite" | "--postgres" => {
                named.insert(flag.as_str());
            }
            other => return Err(format!("bench knows {FLAGS}, not {other}")),
        }
    }
    if seconds < 4 {
        return Err("fewer than 4 seconds tell nothing".into());
    }
    // What is named, and everything if nothing is.
    let wanted = |flag: &str, all: &[&str]| named.contains(flag) || !all.iter().any(|flag| named.contains(flag));
    let part = |flag: &str| {
        let all =
            ["--basics", "--project", "--lists", "--growth", "--repository", "--issues", "--hooks", "--pipelines"];
        wanted(flag, &all)
    };
    let engine = |flag: &str| wanted(flag, &["--sqlite", "--postgres"]);
    let parts = lists::Parts { project: part("--project"), lists: part("--lists"), growth: part("--growth") };
    let mut engines = Vec::new();
    if engine("--sqlite") {
        engines.push(Engine::Sqlite);
    }
    if engine("--postgres") && (parts.any() || part("--issues") || part("--hooks") || part("--pipelines")) {
        engines.push(Engine::Postgres(std::env::var(DATABASE).map_err(|_| format!("{DATABASE} is not set"))?));
    }
    let (json, all_rows) = (named.contains("--json"), named.contains("--all-rows"));
    let (basics, repository) = (part("--basics"), part("--repository"));
    let (issues, hooks, pipelines) = (part("--issues"), part("--hooks"), part("--pipelines"));
    Ok(Settings {
        gable,
        folder,
        seconds,
        json,
        all_rows,
        basics,
        repository,
        issues,
        hooks,
        pipelines,
        parts,
        engines,
    })
}

fn measure(settings: Settings) -> Outcome {
    let Settings {
        gable,
        folder,
        seconds,
        json,
        all_rows,
        basics,
        repository,
        issues,
        hooks,
        pipelines,
        parts,
        engines,
    } = settings;
    let time = Duration::from_secs(seconds.into());
    let mut report = Report::default();
    if basics {
        report.basics = Some(run::measure(&gable, &folder, time)?);
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
