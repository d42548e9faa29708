//! Version 3 of the interface.

mod accounts;
mod admin;
mod ci;
mod projects;
mod repository;
mod tracker;
mod webhooks;

use accounts::{emails, keys, sessions, tokens, users};
use admin::instance;
use ci::{builds, lint, pipelines, runners, statuses, traces, triggers, variables};
use projects::{deploy_keys, events, fork_links, groups, members, namespaces, project_params, uploads};
use repository::{branches, commit_notes, commits, contents, repository_files, tags};
use tracker::{boards, issues, labels, milestones, notes};
use webhooks::{deliveries, hooks, system_hooks};

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
        .and(contents::routes())
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
