//! Whether repositories are whole, and whether there are some that belong to nobody.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};

use crate::{Error, Repositories, Result, child, repository::gix_id};

/// How many faults of one repository are told.
const TOLD: usize = 10;

/// What lies about in the folder of repositories and belongs to none.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// Repositories of projects that are not there.
    pub orphans: Vec<PathBuf>,
    /// What was being built or taken in, or is on its way out; the next start removes it.
    pub leftovers: Vec<PathBuf>,
}

impl Repositories {
    /// What is wrong with the repository of a project, in words. That every ref leads to an object is always looked at, that
    /// everything is there which the refs lead to only by a deep check.
    pub fn check(&self, project: i64, deep: bool) -> Result<Vec<String>> {
        // Not what a warm handle remembers.
        self.forget(project);
        let Some(repository) = self.find(project)? else { return Ok(Vec::new()) };
        let refs = match repository.refs() {
            Ok(refs) => refs,
            Err(error) => return Ok(vec![format!("its refs cannot be read: {error}")]),
        };
        let mut faults = Vec::new();
        for one in refs.iter() {
            if repository.gix.find_header(gix_id(one.target)).is_err() {
                faults.push(format!("{} leads to {}, which is not there", one.name, one.target));
            }
        }
        if deep && faults.is_empty() {
            faults = fsck(repository.path())?;
        }
        faults.truncate(TOLD);
        Ok(faults)
    }

    /// Whether a project has a repository.
    pub fn exists(&self, project: i64) -> bool {
        self.path_of(project).join("HEAD").exists()
    }

    /// What belongs to none of these projects.
    pub fn strays(&self, projects: impl IntoIterator<Item = i64>) -> Result<Strays> {
        let known: HashSet<PathBuf> = projects.into_iter().map(|project| self.path_of(project)).collect();
        let root = self.root();
        let mut strays = Strays::default();
        for outer in folders(root)?.iter().filter(|folder| is_shelf(folder)) {
            for inner in folders(outer)?.iter().filter(|folder| is_shelf(folder)) {
                strays.orphans.extend(folders(inner)?.into_iter().filter(|folder| !known.contains(folder)));
            }
        }
        for place in ["tmp", "trash"] {
            strays.leftovers.extend(entries(&root.join(place))?);
        }
        Ok(strays)
    }
}

/// Whether a folder is one of those that repositories are spread over.
fn is_shelf(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    found.sort();
    Ok(found)
}

/// Lets git look whether everything is there; what it finds is told in its words, which name objects only.
fn fsck(repository: &Path) -> Result<Vec<String>> {
    let mut command = child::git(repository);
    command.args(["fsck", "--connectivity-only", "--no-dangling", "--no-progress"]).stdin(Stdio::null());
    let output = command.output().map_err(|error| Error::Child(format!("cannot start git: {error}")))?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let said = [output.stdout, output.stderr].concat();
    let mut faults: Vec<String> =
        String::from_utf8_lossy(&said).lines().take(TOLD).map(|line| line.trim().to_owned()).collect();
    faults.retain(|line| !line.is_empty());
    if faults.is_empty() {
        faults.push(format!("git fsck ended with {}", output.status));
    }
    Ok(faults)
}
