//! Clients that we did not write, against the real binary: a stock library of the time, and one that reads our document.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    gable::{Gable, ROOT_PASSWORD, ROOT_TOKEN},
    machine::{self, PYTHON},
    steps::{self, Report, Tally},
    workspace,
};

/// Runs every client in every dialect.
pub(crate) fn run(report: &mut Report) {
    let mut python = PathBuf::new();
    let prepared = report.step("clients: packages", || {
        machine::provide(&[PYTHON])?;
        python = environment()?;
        Ok(())
    });
    if !prepared {
        return;
    }
    for dialect in ["spec", "gitlab"] {
        report.step(&format!("clients: python-gitlab, dialect {dialect}"), || {
            let mut pytest = Command::new(&python);
            pytest.args(["-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]);
            let script = scripts().join("python_gitlab.py");
            against(dialect, pytest.arg(script))
        });
        report.step(&format!("clients: schemathesis, dialect {dialect}"), || {
            against(dialect, Command::new(&python).arg(scripts().join("openapi.py")))
        });
    }
}

/// Runs a client against a server that is started for it alone.
fn against(dialect: &str, client: &mut Command) -> Outcome<Tally> {
    let gable = Gable::start(dialect)?;
    client
        .current_dir(workspace::root())
        .env("GABLE_URL", gable.url())
        .env("GABLE_DIALECT", dialect)
        .env("GABLE_ROOT_TOKEN", ROOT_TOKEN)
        .env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let tally = steps::run_tests(client)?;
    let log = gable.log();
    for line in log.lines().filter(|line| line.contains("ERROR") || line.contains("WARN")) {
        println!("gable: {line}");
    }
    Ok(tally)
}

fn scripts() -> PathBuf {
    workspace::root().join("tests/clients")
}

/// The Python that has the clients' packages; made anew when their list or Python itself has changed.
fn environment() -> Outcome<PathBuf> {
    let folder = workspace::kept().join("venv");
    let python = folder.join("bin/python");
    let list = scripts().join("requirements.txt");
    let wanted = fs::read_to_string(&list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
    let version = steps::read(Command::new("python3").arg("--version"))?;
    let wanted = format!("{version}{}\n{wanted}", folder.display());
    let stamp = folder.join("stamp");
    if fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == wanted) {
        return Ok(python);
    }
    install(&folder, &python, &list)?;
    fs::write(&stamp, wanted).map_err(|error| format!("cannot write {}: {error}", stamp.display()))?;
    Ok(python)
}

fn install(folder: &Path, python: &Path, list: &Path) -> Outcome {
    steps::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--use-pep517", "--requirement"])
        .arg(list);
    steps::run(&mut pip)
}
