//! Repositories of a seeded data set: one large repository, a few small templates, and copies of their rows.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};
use files::Files;
use git::{PackEntry, PackSize, PackSource, Refs, Repositories};
use model::{Oid, PackContent, ProjectId, Time};
use store::{Conn, packs::NewPack, repositories::RefUpdate};

use crate::{
    large_repository,
    seed::dataset::{Dataset, LARGE_PROJECT, RepositoryContent, SeededProject, TEMPLATES},
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

/// The repositories of a data set, whose packs are stored.
pub(crate) struct StoredRepositories {
    large: StoredRepository,
    templates: Vec<StoredRepository>,
    files: Files,
    /// The folder of all repositories.
    root: PathBuf,
}

struct StoredRepository {
    refs: Arc<Refs>,
    pack: NewPack,
}

/// Creates the large repository and the templates, and stores their packs in the data folder.
pub(crate) fn build(data: &Path, dataset: &Dataset) -> Result<(StoredRepositories, Histories)> {
    let files = Files::open(&data.join("files"))?;
    let work = data.join("repositories.new");
    let create = |name: &str, branch: &str| -> Result<PathBuf> {
        let path = work.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        large_repository::git(&path, &["init", "--quiet", "--bare", "-b", branch])?;
        Ok(path)
    };
    let path = create("large.git", "main")?;
    large_repository::write(&path, dataset.scale())?;
    let large = StoredRepository::store(&files, &path, "main", TEMPLATES)?;
    let mut histories = Histories { large: history(&path, "main", 1000)?, templates: Vec::new() };
    let mut templates = Vec::new();
    for template in 0..TEMPLATES {
        let path = create(&format!("template-{template}.git"), "master")?;
        large_repository::import(&path, |out| write_template(out, template, dataset.seed))?;
        large_repository::repack(&path)?;
        templates.push(StoredRepository::store(&files, &path, "master", template)?);
        histories.templates.push(history(&path, "master", TEMPLATE_COMMITS)?);
    }
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    Ok((StoredRepositories { large, templates, files, root: data.join("repositories") }, histories))
}

impl StoredRepository {
    /// Stores the only pack of a repository. The number makes its key unique and the same in every run.
    fn store(files: &Files, path: &Path, branch: &str, number: u64) -> Result<Self> {
        let folder = path.join("objects/pack");
        let mut packs = Vec::new();
        for entry in fs::read_dir(&folder)? {
            packs.extend(Some(entry?.path()).filter(|path| path.extension().is_some_and(|found| found == "pack")));
        }
        ensure!(packs.len() == 1, "{} has {} packs after a repack", path.display(), packs.len());
        let content = fs::read(&packs[0])?;
        let checksum = content.last_chunk().map(|trailer| Oid(*trailer)).context("a pack has a trailer")?;
        let objects = content.get(8..12).and_then(|count| count.try_into().ok()).map(u32::from_be_bytes);
        let name = checksum.to_string();
        let key = format!("packs/{}/{name}-{number:016x}", &name[..2]);
        for extension in git::PACK_EXTENSIONS {
            let file = packs[0].with_extension(extension);
            if file.exists() {
                files.store_file(&format!("{key}.{extension}"), &file)?;
            }
        }
        let objects = objects.context("a pack has a header")?.into();
        let bytes = i64::try_from(content.len())?;
        let pack = NewPack { key, content: None, checksum, bytes, objects, is_unreachable: false };
        let refs = large_repository::read_refs(path, branch)?;
        Ok(Self { refs: Arc::new(refs), pack })
    }

    /// Inserts the rows of the repository of a project.
    fn insert(&self, conn: &mut Conn, project: ProjectId, now: Time) -> Result<()> {
        let repository = store::repositories::begin_update(conn, project, now)?.id;
        let updates = self.refs.iter().map(|found| RefUpdate {
            name: &found.name,
            old: None,
            new: Some(found.target),
            peeled: found.peeled,
        });
        store::repositories::update_refs(conn, repository, &updates.collect::<Vec<_>>())?;
        store::packs::add_pack(conn, repository, &self.pack, now)?;
        Ok(())
    }

    /// Links the pack in the folder of the repository of a project, as the first read does.
    fn link(&self, repositories: &Repositories, files: &Files, project: ProjectId) -> Result<()> {
        let entry = PackEntry { key: self.pack.key.clone(), checksum: self.pack.checksum, has_files: true };
        Ok(repositories.link_packs(
            &large_repository::storage_id(project),
            &[entry],
            &StoredPacks(files),
            git::OtherPacks::RemoveExcept(&[]),
        )?)
    }
}

impl StoredRepositories {
    /// Inserts the rows of all repositories; those of the projects must exist.
    pub(crate) fn insert(&self, conn: &mut Conn, dataset: &Dataset) -> Result<()> {
        let now = Time::from_second(i64::try_from(START)?)?;
        self.large.insert(conn, project_id(LARGE_PROJECT)?, now)?;
        for (template, stored) in (0..).zip(&self.templates) {
            let mut projects = projects_of(dataset, template);
            let first = project_id(projects.next().context("a template has no project")?.id)?;
            stored.insert(conn, first, now)?;
            let first = store::repositories::find(conn, first)?.context("the repository was inserted")?.id;
            for seeded in projects {
                store::repositories::copy(conn, first, project_id(seeded.id)?, now)?;
            }
        }
        Ok(())
    }

    /// Creates the folders of all repositories, so that the first reads of a measurement are like all others.
    pub(crate) fn fill_cache(&self, dataset: &Dataset) -> Result<()> {
        let repositories = Repositories::open_folder(&self.root)?;
        for (template, stored) in (0..).zip(&self.templates) {
            for seeded in projects_of(dataset, template) {
                stored.link(&repositories, &self.files, project_id(seeded.id)?)?;
            }
            // The load test reads it.
            if let Some(first) = projects_of(dataset, template).next() {
                repositories.write_refs(&large_repository::storage_id(project_id(first.id)?), &stored.refs)?;
            }
        }
        let project = project_id(LARGE_PROJECT)?;
        self.large.link(&repositories, &self.files, project)?;
        let storage = large_repository::storage_id(project);
        repositories.write_refs(&storage, &self.large.refs)?;
        let pack = &self.large.pack;
        let size = PackSize { checksum: pack.checksum, objects: u64::try_from(pack.objects)? };
        Ok(repositories.build_indexes(&storage, &self.large.refs, &[size])?)
    }
}

/// Returns the projects with a template, which all have the same content.
fn projects_of(dataset: &Dataset, template: u64) -> impl Iterator<Item = &SeededProject> {
    dataset.projects.iter().filter(move |seeded| seeded.content == RepositoryContent::Template(template))
}

fn project_id(number: u64) -> Result<ProjectId> {
    Ok(ProjectId::new(i64::try_from(number)?))
}

struct StoredPacks<'a>(&'a Files);

impl PackSource for StoredPacks<'_> {
    fn fetch(&self, key: &str, extension: &str, to: &Path) -> io::Result<bool> {
        self.0.fetch_file(&format!("{key}.{extension}"), to).map_err(io::Error::other)
    }

    fn read(&self, _key: &str) -> io::Result<Option<PackContent>> {
        Ok(None)
    }
}

pub(crate) fn history(path: &Path, branch: &str, max_count: usize) -> Result<Vec<String>> {
    let ids =
        large_repository::git(path, &["rev-list", "--first-parent", &format!("--max-count={max_count}"), branch])?;
    let ids = String::from_utf8_lossy(&ids).lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    Ok(ids.into_iter().rev().collect())
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
