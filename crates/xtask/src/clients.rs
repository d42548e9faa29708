//! Clients that we did not write, against the real binary: stock libraries of the time, stock git, our own examples, and
//! one that reads our document.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use crate::{
    Outcome,
    gable::{Gable, ROOT_PASSWORD, ROOT_TOKEN},
    machine::{self, BUBBLEWRAP, CURL, NODE, PYTHON, RUBY_GITLAB, SSH},
    steps::{self, Report, Tally},
    workspace,
};

/// What a server can speak.
const DIALECTS: [&str; 2] = ["spec", "gitlab"];

/// Everybody starts as the administrator here, and makes more projects than one usually may.
const MANY_PROJECTS: &[&str] = &["--default-projects-limit", "1000"];

/// Runs every client, those that can in every dialect.
pub(crate) fn run(report: &mut Report) {
    let (mut python, mut modules) = (PathBuf::new(), PathBuf::new());
    let prepared = report.step("clients: packages", || {
        machine::provide(&[PYTHON, NODE, RUBY_GITLAB, CURL, SSH, BUBBLEWRAP])?;
        python = environment()?;
        modules = node_modules()?;
        Ok(())
    });
    if !prepared {
        return;
    }
    for dialect in DIALECTS {
        report.step(&format!("clients: python-gitlab, dialect {dialect}"), || {
            let stories = ["", "_ci", "_issues", "_places"].map(|part| script(&format!("python_gitlab{part}.py")));
            against(dialect, &[], pytest(&python).args(stories))
        });
    }
    report.step("clients: schemathesis, in both dialects at once", || schemathesis(&python));
    for (name, file) in [("node-gitlab", "node_gitlab.js"), ("gitlab of npm", "npm_gitlab.js")] {
        report.step(&format!("clients: {name}"), || {
            let mut node = Command::new("node");
            against("gitlab", MANY_PROJECTS, node.arg(script(file)).env("NODE_PATH", &modules))
        });
    }
    report.step("clients: ruby-gitlab", || {
        against("gitlab", MANY_PROJECTS, Command::new("ruby").arg(script("ruby_gitlab.rb")))
    });
    report
        .step("clients: git and ssh", || against("gitlab", MANY_PROJECTS, pytest(&python).arg(script("stock_git.py"))));
    report.step("examples", || {
        let runner = &["--runner", "1"];
        let mut tally = example(&runner[..], Command::new("bash").arg(examples().join("curl.sh")))?;
        tally += example(&runner[..], Command::new(&python).arg(examples().join("python.py")))?;
        Ok(tally)
    });
}

/// Calls everything that our document describes. Half of the time is spent on waiting for one another, so the dialects share it.
fn schemathesis(python: &Path) -> Outcome<Tally> {
    let call = |dialect: &'static str| {
        let mut client = Command::new(python);
        with_server(dialect, &[], client.arg(script("openapi.py")), |client| {
            steps::run_tests_as(&format!("{dialect}: "), client)
        })
    };
    thread::scope(|scope| {
        let callers = DIALECTS.map(|dialect| scope.spawn(move || call(dialect)));
        let mut tally = Tally::default();
        for caller in callers {
            tally += caller.join().map_err(|_| "the one who calls has panicked".to_owned())??;
        }
        Ok(tally)
    })
}

fn pytest(python: &Path) -> Command {
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]);
    pytest
}

/// Runs a client against a server that is started for it alone.
fn against(dialect: &str, settings: &[&str], client: &mut Command) -> Outcome<Tally> {
    with_server(dialect, settings, client, steps::run_tests)
}

/// Runs something that people copy; that it comes to a good end is one test.
fn example(settings: &[&str], program: &mut Command) -> Outcome<Tally> {
    with_server("spec", settings, program, |program| {
        steps::run(program)?;
        Ok(Tally { passed: 1, failed: 0 })
    })
}

fn with_server(
    dialect: &str,
    settings: &[&str],
    client: &mut Command,
    run: impl FnOnce(&mut Command) -> Outcome<Tally>,
) -> Outcome<Tally> {
    let gable = Gable::start(dialect, settings)?;
    client
        .current_dir(workspace::root())
        .env("GABLE_URL", gable.url())
        .env("GABLE_SSH_URL", gable.ssh_url())
        .env("GABLE_DIALECT", dialect)
        .env("GABLE_TOKEN", ROOT_TOKEN)
        .env("GABLE_ROOT_TOKEN", ROOT_TOKEN)
        .env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let tally = run(client);
    let log = gable.log();
    for line in log.lines().filter(|line| line.contains("ERROR") || line.contains("WARN")) {
        println!("gable: {line}");
    }
    tally
}

fn scripts() -> PathBuf {
    workspace::root().join("tests/clients")
}

fn script(name: &str) -> PathBuf {
    scripts().join(name)
}

fn examples() -> PathBuf {
    workspace::root().join("examples")
}

/// The Python that has the clients' packages; made anew when their list or Python itself has changed.
fn environment() -> Outcome<PathBuf> {
    let folder = workspace::kept().join("venv");
    let python = folder.join("bin/python");
    let list = script("requirements.txt");
    let version = steps::read(Command::new("python3").arg("--version"))?;
    let wanted = format!("{version}{}\n{}", folder.display(), read(&list)?);
    kept(&folder, &wanted, || {
        steps::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--use-pep517", "--requirement"])
            .arg(&list);
        steps::run(&mut pip)
    })?;
    Ok(python)
}

/// The folder with the packages of the clients for node; made anew when their list or node itself has changed.
fn node_modules() -> Outcome<PathBuf> {
    let folder = workspace::kept().join("npm");
    let list = script("npm");
    let version = steps::read(Command::new("node").arg("--version"))?;
    let wanted = format!("{version}{}", read(&list.join("package-lock.json"))?);
    kept(&folder, &wanted, || {
        let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", folder.display());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(failed)?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(list.join(file), folder.join(file)).map_err(failed)?;
        }
        let mut npm = Command::new("npm");
        npm.current_dir(&folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        steps::run(&mut npm)
    })?;
    Ok(folder.join("node_modules"))
}

/// Makes a folder anew unless it was made for the same thing before.
fn kept(folder: &Path, wanted: &str, make: impl FnOnce() -> Outcome) -> Outcome {
    let stamp = folder.join("stamp");
    if fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == wanted) {
        return Ok(());
    }
    make()?;
    fs::write(&stamp, wanted).map_err(|error| format!("cannot write {}: {error}", stamp.display()))
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
