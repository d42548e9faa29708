//! The repositories of a seeded data set: one large, a few small ones, and many that are the same files as those.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use git::Repositories;

use crate::{
    Outcome, landscape,
    seed::world::{Content, LARGE, TEMPLATES, World},
};

/// Commits of a small repository, oldest first.
pub(crate) const SMALL_COMMITS: usize = 12;
const SMALL_FILES: usize = 15;
const START: usize = 1_700_000_000;

/// What is built from every small repository.
pub(crate) const CI_FILE: &str = "\
stages: [build, test]

compile:
  stage: build
  script: [./build]

unit:
  stage: test
  script: [./test unit]

style:
  stage: test
  script: [./test style]
";

/// The ids that other rows speak of.
pub(crate) struct Histories {
    /// The newest commits of the large repository, oldest first.
    pub(crate) large: Vec<String>,
    /// All commits of each template, oldest first.
    pub(crate) small: Vec<Vec<String>>,
}

/// Makes all repositories in the folder of the service's repositories.
pub(crate) fn build(root: &Path, world: &World) -> Outcome<Histories> {
    let repositories = Repositories::in_folder(root).map_err(|error| error.to_string())?;
    let make = |project: u64| -> Outcome<PathBuf> {
        let project = i64::try_from(project).map_err(|error| error.to_string())?;
        repositories.find_or_make(&landscape::storage_of(project)).map_err(|error| error.to_string())?;
        Ok(landscape::place_of(root, project))
    };
    let large = make(LARGE)?;
    landscape::git(&large, &["symbolic-ref", "HEAD", "refs/heads/main"])?;
    landscape::write(&large, world.scale())?;
    let mut firsts: Vec<Option<PathBuf>> = (0..TEMPLATES).map(|_| None).collect();
    let mut small = vec![Vec::new(); firsts.len()];
    for site in &world.sites {
        let Content::Small(template) = site.content else { continue };
        let at = usize::try_from(template).unwrap_or(0);
        if let Some(first) = &firsts[at] {
            let project = i64::try_from(site.id).map_err(|error| error.to_string())?;
            let place = landscape::place_of(root, project);
            copy(first, &place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
        } else {
            let path = make(site.id)?;
            landscape::import(&path, |out| write_small(out, template, world.seed))?;
            landscape::tidy(&path)?;
            small[at] = history(&path, "master", SMALL_COMMITS)?;
            firsts[at] = Some(path);
        }
    }
    Ok(Histories { large: history(&large, "main", 1000)?, small })
}

pub(crate) fn history(path: &Path, branch: &str, most: usize) -> Outcome<Vec<String>> {
    let ids = landscape::git(path, &["rev-list", "--first-parent", &format!("--max-count={most}"), branch])?;
    let ids = String::from_utf8_lossy(&ids).lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    Ok(ids.into_iter().rev().collect())
}

/// A repository whose packs are the same files, as a fork has them, without the syncs that a data set can do without.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for folder in ["objects/pack", "objects/info", "refs/heads", "refs/tags"] {
        fs::create_dir_all(to.join(folder))?;
    }
    for file in ["HEAD", "config", "packed-refs"] {
        fs::copy(from.join(file), to.join(file))?;
    }
    for folder in ["objects/pack", "objects/info"] {
        for entry in fs::read_dir(from.join(folder))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::hard_link(entry.path(), to.join(folder).join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}

fn write_small(out: &mut impl Write, template: u64, seed: u64) -> io::Result<()> {
    for number in 1..=SMALL_COMMITS {
        let seconds = START + number * 3600;
        let message = format!("Step {number} of template {template} for seed {seed}\n");
        writeln!(out, "commit refs/heads/master\nmark :{number}")?;
        writeln!(out, "committer Ann <ann@example.org> {seconds} +0100\ndata {}\n{message}", message.len())?;
        if number == 1 {
            landscape::write_file(out, ".gitlab-ci.yml", CI_FILE)?;
            landscape::write_file(out, "README.md", &format!("# Template {template}\n\nFor those who read.\n"))?;
        }
        for file in (0..SMALL_FILES).filter(|file| number == 1 || file % SMALL_COMMITS == number - 1) {
            let text = format!("template {template}, file {file}, step {number}\n").repeat(20 + file);
            landscape::write_file(out, &format!("src/part-{}/file-{file:02}.txt", file % 3), &text)?;
        }
    }
    for (name, tip) in [("heads/stable", 6), ("heads/next", SMALL_COMMITS - 1), ("tags/v1.0", 4), ("tags/v1.1", 8)] {
        writeln!(out, "reset refs/{name}\nfrom :{tip}\n")?;
    }
    writeln!(out, "done")?;
    out.flush()
}
