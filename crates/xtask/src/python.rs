//! Virtual environments of Python.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{steps, workspace};

/// Returns the Python of a virtual environment of this name with the packages of a requirements file; rebuilt if the
/// file or Python changes.
pub(crate) fn environment(name: &str, requirements: &Path) -> Result<PathBuf> {
    let folder = workspace::cache_folder().join(name);
    let python = folder.join("bin/python");
    let version = steps::read(Command::new("python3").arg("--version"))?;
    let stamp = format!("{version}{}\n{}", folder.display(), workspace::read(requirements)?);
    workspace::rebuild_if_stale(&folder, &stamp, || {
        steps::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--use-pep517", "--requirement"])
            .arg(requirements);
        steps::run(&mut pip)
    })?;
    Ok(python)
}
