//! Repositories of a seeded data set: one large repository, a few small templates, and hard-linked copies of them.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use git::Repositories;
use model::ProjectId;

use crate::{
    large_repository,
    seed::dataset::{Dataset, LARGE_PROJECT, RepositoryContent, TEMPLATES},
};

/// The number of commits of a template.
pub(crate) const TEMPLATE_COMMITS: usize = 12;
const TEMPLATE_FILES: usize = 15;
const START: usize = 1_700_000_000;

/// The CI file of every template.
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

/// Commit ids for rows that refer to commits.
pub(crate) struct Histories {
    /// The newest commits of the large repository, oldest first.
    pub(crate) large: Vec<String>,
    /// All commits of each template, oldest first.
    pub(crate) templates: Vec<Vec<String>>,
}

/// Creates all repositories in `root`.
pub(crate) fn build(root: &Path, dataset: &Dataset) -> Result<Histories> {
    let repositories = Repositories::open(root)?;
    let make = |project: u64| -> Result<PathBuf> {
        let project = ProjectId::new(i64::try_from(project)?);
        repositories.find_or_create(&large_repository::storage_id(project))?;
        Ok(large_repository::repository_path(root, project))
    };
    let large = make(LARGE_PROJECT)?;
    large_repository::git(&large, &["symbolic-ref", "HEAD", "refs/heads/main"])?;
    large_repository::write(&large, dataset.scale())?;
    let mut first_copies: Vec<Option<PathBuf>> = (0..TEMPLATES).map(|_| None).collect();
    let mut templates = vec![Vec::new(); first_copies.len()];
    for seeded in &dataset.projects {
        let RepositoryContent::Template(template) = seeded.content else { continue };
        let at = usize::try_from(template).unwrap_or(0);
        if let Some(first) = &first_copies[at] {
            let project = ProjectId::new(i64::try_from(seeded.id)?);
            let path = large_repository::repository_path(root, project);
            copy(first, &path).with_context(|| format!("cannot create {}", path.display()))?;
        } else {
            let path = make(seeded.id)?;
            large_repository::import(&path, |out| write_template(out, template, dataset.seed))?;
            large_repository::repack(&path)?;
            templates[at] = history(&path, "master", TEMPLATE_COMMITS)?;
            first_copies[at] = Some(path);
        }
    }
    Ok(Histories { large: history(&large, "main", 1000)?, templates })
}

pub(crate) fn history(path: &Path, branch: &str, max_count: usize) -> Result<Vec<String>> {
    let ids =
        large_repository::git(path, &["rev-list", "--first-parent", &format!("--max-count={max_count}"), branch])?;
    let ids = String::from_utf8_lossy(&ids).lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    Ok(ids.into_iter().rev().collect())
}

/// Copies a repository with hard-linked packs, as for a fork, but without syncs.
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

fn write_template(out: &mut impl Write, template: u64, seed: u64) -> io::Result<()> {
    for number in 1..=TEMPLATE_COMMITS {
        let seconds = START + number * 3600;
        let message = format!("Step {number} of template {template} for seed {seed}\n");
        writeln!(out, "commit refs/heads/master\nmark :{number}")?;
        writeln!(out, "committer Ann <ann@example.org> {seconds} +0100\ndata {}\n{message}", message.len())?;
        if number == 1 {
            large_repository::write_file(out, ".gitlab-ci.yml", CI_FILE)?;
            large_repository::write_file(out, "README.md", &format!("# Template {template}\n\nFor those who read.\n"))?;
        }
        for file in (0..TEMPLATE_FILES).filter(|file| number == 1 || file % TEMPLATE_COMMITS == number - 1) {
            let text = format!("template {template}, file {file}, step {number}\n").repeat(20 + file);
            large_repository::write_file(out, &format!("src/part-{}/file-{file:02}.txt", file % 3), &text)?;
        }
    }
    for (name, tip) in [("heads/stable", 6), ("heads/next", TEMPLATE_COMMITS - 1), ("tags/v1.0", 4), ("tags/v1.1", 8)] {
        writeln!(out, "reset refs/{name}\nfrom :{tip}\n")?;
    }
    writeln!(out, "done")?;
    out.flush()
}
