//! Version 3 of the API.

mod accounts;
mod admin;
mod ci;
mod projects;
mod repository;
mod tracker;
mod webhooks;

use accounts::{emails, keys, sessions, tokens, users};
use admin::instance;
use ci::{jobs, lint, pipelines, runners, statuses, traces, triggers, variables};
use projects::{deploy_keys, events, fork_links, groups, members, namespaces, project_params, uploads};
use repository::{branches, commit_notes, commits, contents, repository_files, tags};
use tracker::{boards, issues, labels, markdown, milestones, notes};
use webhooks::{deliveries, hooks, system_hooks};

use crate::{openapi, routes::Routes};

/// Returns the OpenAPI document of version 3.
pub fn openapi_document() -> Vec<u8> {
    openapi::document(&routes()).to_vec()
}

/// Returns all routes of version 3.
pub(crate) fn routes() -> Routes {
    users::routes()
        .merge(keys::routes())
        .merge(emails::routes())
        .merge(events::routes())
        .merge(sessions::routes())
        .merge(tokens::routes())
        .merge(instance::routes())
        .merge(groups::routes())
        .merge(projects::routes())
        .merge(fork_links::routes())
        .merge(members::routes())
        .merge(namespaces::routes())
        .merge(uploads::routes())
        .merge(branches::routes())
        .merge(tags::routes())
        .merge(contents::routes())
        .merge(repository_files::routes())
        .merge(commits::routes())
        .merge(commit_notes::routes())
        .merge(deploy_keys::routes())
        .merge(statuses::routes())
        .merge(hooks::routes())
        .merge(system_hooks::routes())
        .merge(labels::routes())
        .merge(boards::routes())
        .merge(issues::routes())
        .merge(notes::routes())
        .merge(milestones::routes())
        .merge(markdown::routes())
        .merge(pipelines::routes())
        .merge(jobs::routes())
        .merge(traces::routes())
        .merge(triggers::routes())
        .merge(variables::routes())
        .merge(runners::routes())
        .merge(lint::routes())
}
