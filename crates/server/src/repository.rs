//! `gable repository …`: lists, repacks, prunes and verifies repositories, also while the server is running.

use anyhow::{Context as _, Result, bail};
use forge::{
    Caller, Forge, Options, ProjectAbility, ProjectRef, ReadTx, doctor,
    maintenance::{self, RepackReport},
};
use model::ProjectId;
use serde::Serialize;
use store::repositories::RepositorySize;

use crate::{
    admin,
    commands::{RepositoryArguments, RepositoryCommand, SelectedProjects},
    config::{self, Config},
    exit::{CommandResult, print_line, print_stdout},
};

/// A project with a repository.
struct SelectedProject {
    id: ProjectId,
    path: String,
}

/// Runs a `repository` command.
pub(crate) fn run(command: RepositoryArguments) -> CommandResult {
    let Config { location, default_projects_limit, .. } = config::load(command.location)?;
    // The folders of repositories belong to the server, so packs are linked in folders of this command.
    let mut own_folder = None;
    let with_own_folder = |options: Options| {
        let (repositories, folder) = options.repositories.temporary().context("cannot create a temporary folder")?;
        own_folder = Some(folder);
        Ok(Options { repositories, ..options })
    };
    let forge = admin::open(&location, default_projects_limit, with_own_folder)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let result = runtime.block_on(async {
        match command.command {
            RepositoryCommand::List { json } => list(&forge, json).await,
            RepositoryCommand::Gc(projects) => gc(&forge, projects).await,
            RepositoryCommand::Prune { projects, yes } => prune(&forge, projects, yes).await,
            RepositoryCommand::Verify(projects) => verify(&forge, projects).await,
        }
    });
    drop(own_folder);
    Ok(result?)
}

/// Returns the selected projects that have a repository. It is an error if one does not exist.
async fn select(forge: &Forge, selected: SelectedProjects) -> Result<Vec<SelectedProject>> {
    if selected.all {
        let all = maintenance::list(forge).await?.into_iter();
        return Ok(all.map(|size| SelectedProject { id: size.project, path: size.path }).collect());
    }
    let mut projects = Vec::with_capacity(selected.projects.len());
    for name in selected.projects {
        let project = match name.parse() {
            Ok(id) => ProjectRef::Id(ProjectId::new(id)),
            Err(_) => ProjectRef::Path(name.clone()),
        };
        let find = move |tx: &mut ReadTx<'_>| tx.project(&project, ProjectAbility::ReadProject);
        let found = forge.read(Caller::system(), find).await;
        let found = found.with_context(|| format!("there is no project {name}; see `gable repository list`"))?;
        projects.push(SelectedProject { id: found.id, path: found.full_path() });
    }
    Ok(projects)
}

#[derive(Serialize)]
struct SizeJson<'a> {
    project_id: i64,
    path: &'a str,
    refs: i64,
    packs: i64,
    objects: i64,
    bytes: i64,
    unreachable_bytes: i64,
}

impl<'a> SizeJson<'a> {
    fn new(size: &'a RepositorySize) -> Self {
        let RepositorySize { project, path, refs, packs, objects, bytes, unreachable_bytes, .. } = size;
        Self {
            project_id: project.get(),
            path,
            refs: *refs,
            packs: *packs,
            objects: *objects,
            bytes: *bytes,
            unreachable_bytes: *unreachable_bytes,
        }
    }
}

async fn list(forge: &Forge, json: bool) -> Result<()> {
    let sizes = maintenance::list(forge).await?;
    if json {
        let sizes: Vec<SizeJson<'_>> = sizes.iter().map(SizeJson::new).collect();
        return print_stdout(format!("{}\n", serde_json::to_string_pretty(&sizes)?).as_bytes());
    }
    let mut table = format!(
        "{:>6}  {:>8} {:>6} {:>10} {:>14} {:>14}  {}\n",
        "id", "refs", "packs", "objects", "bytes", "unreachable", "project"
    );
    for size in &sizes {
        let RepositorySize { project, path, refs, packs, objects, bytes, unreachable_bytes, .. } = size;
        table +=
            &format!("{project:>6}  {refs:>8} {packs:>6} {objects:>10} {bytes:>14} {unreachable_bytes:>14}  {path}\n");
    }
    print_stdout(table.as_bytes())
}

async fn gc(forge: &Forge, projects: SelectedProjects) -> Result<()> {
    for project in select(forge, projects).await? {
        let report = maintenance::collect_garbage(forge, project.id).await;
        print_report(&project, report.with_context(|| format!("cannot repack {}", project.path))?.as_ref());
    }
    Ok(())
}

async fn prune(forge: &Forge, projects: SelectedProjects, yes: bool) -> Result<()> {
    if !yes {
        bail!("unreachable objects cannot be restored afterwards; add --yes to remove them");
    }
    for project in select(forge, projects).await? {
        let report = maintenance::prune(forge, project.id).await;
        let report = report.with_context(|| format!("cannot prune {}", project.path))?;
        print_report(&project, report.as_ref());
        let related = report.map(|report| report.related_projects).unwrap_or_default();
        if !related.is_empty() {
            let ids: Vec<String> = related.iter().map(ToString::to_string).collect();
            print_line(&format!("{}: these projects may have the same objects: {}", project.path, ids.join(" ")));
        }
    }
    Ok(())
}

fn print_report(project: &SelectedProject, report: Option<&RepackReport>) {
    let path = &project.path;
    match report {
        Some(RepackReport { bytes_before, bytes_after, .. }) => {
            print_line(&format!("{path}: {bytes_before} bytes before, {bytes_after} bytes now"));
        }
        None => print_line(&format!("{path}: nothing was pushed to it yet")),
    }
}

async fn verify(forge: &Forge, projects: SelectedProjects) -> Result<()> {
    let mut damaged = 0;
    for project in select(forge, projects).await? {
        let path = &project.path;
        let faults = doctor::verify_repository(forge, project.id).await;
        let faults = faults.unwrap_or_else(|error| Some(vec![error.to_string()]));
        match faults {
            None => print_line(&format!("{path}: nothing was pushed to it yet")),
            Some(faults) if faults.is_empty() => print_line(&format!("{path}: ok")),
            Some(faults) => {
                damaged += 1;
                for fault in faults {
                    print_line(&format!("{path}: {fault}"));
                }
            }
        }
    }
    match damaged {
        0 => Ok(()),
        1 => bail!("a repository is damaged; restore it from a backup, or push what is missing from a clone"),
        _ => {
            bail!("{damaged} repositories are damaged; restore them from a backup, or push what is missing from clones")
        }
    }
}
