//! Tests the web interface in Chromium, and takes pictures of its pages.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    clients,
    steps::{self, Report},
    system::{self, BUBBLEWRAP, CHROMIUM, NODE, SLIRP},
    workspace::{self, cargo},
};

/// The server creates many projects, runs pipelines, and delivers webhooks to the tests.
const SERVER_FLAGS: &[&str] = &["--default-projects-limit", "1000", "--runner", "1", "--allow-local-network"];

/// Tests every page and tells the stories.
pub(crate) fn run(report: &mut Report) {
    let mut scripts = PathBuf::new();
    let prepared = report.step("web: packages", || {
        scripts = prepare()?;
        Ok(())
    });
    if prepared {
        report.step("web: pages and stories in Chromium", || {
            clients::run_client("gitlab", SERVER_FLAGS, script(&scripts).args(["pages", "stories"]))
        });
    }
}

/// `cargo xtask pictures`: writes pictures of the most important pages.
pub(crate) fn take_pictures(arguments: &[String]) -> Result<()> {
    let folder = match arguments {
        [] => workspace::target().join("pictures"),
        [folder] => PathBuf::from(folder),
        _ => bail!("pictures accepts one folder"),
    };
    let folder = std::path::absolute(&folder).with_context(|| format!("cannot find {}", folder.display()))?;
    steps::run(&mut cargo(&["build", "--package", "server", "--bin", "gable"]))?;
    let scripts = prepare()?;
    let counts = clients::run_client("gitlab", SERVER_FLAGS, script(&scripts).arg("pictures").arg(folder))?;
    if counts.failed == 0 { Ok(()) } else { bail!("cannot take the pictures") }
}

/// Installs what the scripts need, and returns the folder with the scripts beside their packages.
fn prepare() -> Result<PathBuf> {
    system::install_missing(&[CHROMIUM, NODE, BUBBLEWRAP, SLIRP])?;
    let source = workspace::root().join("tests/web");
    let folder = clients::node_packages("web", &source)?;
    let context = || format!("cannot copy {}", source.display());
    for entry in fs::read_dir(&source).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|extension| extension == "js")) {
            fs::copy(&path, folder.join(name)).with_context(context)?;
        }
    }
    Ok(folder)
}

fn script(scripts: &Path) -> Command {
    let mut node = Command::new("node");
    node.arg(scripts.join("main.js")).env("GABLE_SOURCE", workspace::root());
    node
}
