//! Version 3 of the interface.

mod boards;
mod branches;
mod builds;
mod commit_notes;
mod commits;
mod deliveries;
mod deploy_keys;
mod emails;
mod events;
mod fork_links;
mod groups;
mod hooks;
mod instance;
mod issues;
mod keys;
mod labels;
mod lint;
mod members;
mod milestones;
mod namespaces;
mod notes;
mod pipelines;
mod project_params;
mod projects;
mod repository;
mod repository_files;
mod runners;
mod sessions;
mod statuses;
mod system_hooks;
mod tags;
mod tokens;
mod traces;
mod triggers;
mod uploads;
mod users;
mod variables;

use crate::routes::Routes;

/// Every route of version 3.
pub(crate) fn routes() -> Routes {
    users::routes()
        .and(keys::routes())
        .and(emails::routes())
        .and(events::routes())
        .and(sessions::routes())
        .and(tokens::routes())
        .and(instance::routes())
        .and(groups::routes())
        .and(projects::routes())
        .and(fork_links::routes())
        .and(members::routes())
        .and(namespaces::routes())
        .and(uploads::routes())
        .and(branches::routes())
        .and(tags::routes())
        .and(repository::routes())
        .and(repository_files::routes())
        .and(commits::routes())
        .and(commit_notes::routes())
        .and(deploy_keys::routes())
        .and(statuses::routes())
        .and(hooks::routes())
        .and(system_hooks::routes())
        .and(labels::routes())
        .and(boards::routes())
        .and(issues::routes())
        .and(notes::routes())
        .and(milestones::routes())
        .and(pipelines::routes())
        .and(builds::routes())
        .and(traces::routes())
        .and(triggers::routes())
        .and(variables::routes())
        .and(runners::routes())
        .and(lint::routes())
}
