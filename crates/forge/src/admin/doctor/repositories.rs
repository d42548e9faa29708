//! Checks of repositories: those in the database, and the folders on disk.

use std::{collections::HashMap, sync::Arc};

use git::{PackEntry, Refs};
use model::{PackContent, ProjectId, StorageId};
use store::checks::ProjectRow;

use super::{
    DoctorOptions, Finding,
    orphans::{report_links, report_orphans},
};
use crate::{
    Caller, Forge, ReadTx, Result, blocking,
    repository_cache::{StoredPacks, pack_entry},
};

const CHECK: &str = "repositories";

/// What the database knows about the repository of a project.
enum RepositoryState {
    /// Nothing was ever written to it.
    Empty,
    /// An earlier version may have written one, which is not converted yet.
    Unconverted,
    /// It has these refs and packs.
    Stored(StoredRepository),
}

struct StoredRepository {
    refs: Arc<Refs>,
    packs: Vec<PackEntry>,
    /// The contents of packs without files, by key.
    contents: HashMap<String, PackContent>,
}

impl RepositoryState {
    fn load(tx: &mut ReadTx<'_>, project: ProjectId) -> Result<Self> {
        let Some(record) = store::repositories::find(tx.db(), project)? else {
            let is_unconverted = store::unconverted::contains(tx.db(), project)?;
            return Ok(if is_unconverted { Self::Unconverted } else { Self::Empty });
        };
        // The refs must not need any others.
        let packs = store::packs::of_repository(tx.db(), record.id)?.into_iter();
        let packs = packs.filter(|pack| pack.dead_since.is_none() && pack.unreachable_since.is_none());
        let packs: Vec<PackEntry> = packs.map(pack_entry).collect();
        let mut contents = HashMap::new();
        for pack in packs.iter().filter(|pack| !pack.has_files) {
            contents.extend(store::packs::content(tx.db(), &pack.key)?.map(|content| (pack.key.clone(), content)));
        }
        Ok(Self::Stored(StoredRepository { refs: tx.refs_of(&record)?, packs, contents }))
    }
}

/// Checks that every repository has the objects that its refs need.
pub(super) async fn check(forge: &Forge, options: &DoctorOptions, projects: &[ProjectRow]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut checked, mut unconverted, total) = (0, 0, projects.len());
    for (index, project) in projects.iter().enumerate().filter(|(_, project)| !project.is_soft_deleted()) {
        (options.progress)(CHECK, index + 1, total);
        let id = project.id;
        let state = forge.read(Caller::system(), move |tx| RepositoryState::load(tx, id)).await;
        let (exists, faults) = match state {
            Ok(RepositoryState::Empty) => (false, Ok(Vec::new())),
            Ok(RepositoryState::Stored(repository)) => {
                checked += 1;
                (true, find_faults(forge, repository, options.deep).await)
            }
            Ok(RepositoryState::Unconverted) => match has_old_repository(forge, project).await {
                Ok(exists) => {
                    unconverted += usize::from(exists);
                    (exists, Ok(Vec::new()))
                }
                Err(error) => {
                    (true, Ok(vec![format!("its repository of an earlier version cannot be converted: {error}")]))
                }
            },
            Err(error) => (true, Err(error)),
        };
        let faults = faults.unwrap_or_else(|error| vec![error.to_string()]);
        if !exists && project.default_branch.is_some() {
            let remedy = "check that the disk of repositories is mounted, or restore it from a backup";
            findings.push(Finding::problem(CHECK, format!("the repository of project {id} is missing"), remedy));
        } else if !faults.is_empty() {
            let text = format!("project {id}: {}", faults.join("; "));
            let remedy = "restore it from a backup";
            findings.push(Finding::problem(CHECK, text, remedy));
        }
    }
    if unconverted > 0 {
        let text = format!("{unconverted} of an earlier version are not converted yet");
        findings.push(Finding::warning(CHECK, text, "the next start of the server converts them"));
    }
    if findings.is_empty() {
        let state =
            if options.deep { "are intact" } else { "have the objects of their refs (others were not checked)" };
        let text = format!("{checked} of {total} projects have a repository; all of them {state}");
        findings.push(Finding::ok(CHECK, text));
    }
    findings
}

/// Returns the faults of the repository of a project, whose objects are all read; `None` if it has no repository.
pub async fn verify_repository(forge: &Forge, project: ProjectId) -> Result<Option<Vec<String>>> {
    match forge.read(Caller::system(), move |tx| RepositoryState::load(tx, project)).await? {
        RepositoryState::Stored(repository) => find_faults(forge, repository, true).await.map(Some),
        RepositoryState::Empty => Ok(None),
        RepositoryState::Unconverted => {
            let fault = "an earlier version has written it, or nothing was pushed yet; the next start of the server converts it";
            Ok(Some(vec![fault.to_owned()]))
        }
    }
}

async fn find_faults(forge: &Forge, repository: StoredRepository, deep: bool) -> Result<Vec<String>> {
    let (repositories, files) = (forge.shared().repositories.clone(), forge.shared().files.clone());
    let StoredRepository { refs, packs, contents } = repository;
    let check = move || Ok(repositories.check(&refs, &packs, &StoredPacks::with_contents(&files, contents), deep)?);
    blocking::spawn(check).await
}

/// Returns whether an earlier version has written a repository for a project; an error says why it cannot be converted.
async fn has_old_repository(forge: &Forge, project: &ProjectRow) -> Result<bool> {
    let Some(storage) = StorageId::parse(&project.storage) else { return Ok(false) };
    let repositories = forge.shared().repositories.clone();
    blocking::spawn(move || Ok(repositories.read_old_repository(&storage)?.is_some())).await
}

/// Finds folders that belong to no project: caches, or repositories of an earlier version.
pub(super) async fn find_orphans(
    forge: &Forge,
    options: &DoctorOptions,
    projects: &[ProjectRow],
) -> Result<Vec<Finding>> {
    const CHECK: &str = "orphaned repositories";
    let known: Vec<StorageId> = projects.iter().filter_map(|project| StorageId::parse(&project.storage)).collect();
    let repositories = forge.shared().repositories.clone();
    let entries = blocking::spawn(move || Ok(repositories.find_unexpected_entries(known)?)).await?;
    let mut findings: Vec<Finding> = report_links(CHECK, &entries.symlinks).into_iter().collect();
    // "There are none" is not reported beside links.
    if findings.is_empty() || !entries.orphans.is_empty() {
        findings.extend(report_orphans(
            options,
            CHECK,
            "repositories",
            forge.shared().repositories.root(),
            entries.orphans,
        ));
    }
    findings.push(match entries.leftovers.len() {
        0 => Finding::ok("leftovers", "there are no temporary files"),
        count if options.server_running => {
            Finding::ok("leftovers", format!("the server uses {count} temporary files in repositories/tmp and trash"))
        }
        count => Finding::warning(
            "leftovers",
            format!("{count} temporary files were left in repositories/tmp and trash"),
            "the next start of the server removes them",
        ),
    });
    Ok(findings)
}
