//! Pages of pipelines and jobs.

mod artifacts;
mod job;
mod job_actions;
mod job_log;
mod lint;
mod new_pipeline;
mod pipeline;
mod pipelines;
pub(crate) mod status;

use crate::routes::{Route, get, post};

pub(crate) const ROUTES: &[Route] = &[
    get!("/{project}/-/pipelines", pipelines::show),
    post!("/{project}/-/pipelines", new_pipeline::create),
    get!("/{project}/-/pipelines/new", new_pipeline::form),
    get!("/{project}/-/pipelines/{id}", pipeline::show),
    post!("/{project}/-/pipelines/{id}/retry", pipeline::retry),
    post!("/{project}/-/pipelines/{id}/cancel", pipeline::cancel),
    get!("/{project}/-/jobs/{id}", job::show),
    get!("/{project}/-/jobs/{id}/log", job_log::show),
    get!("/{project}/-/jobs/{id}/raw", job_log::raw),
    post!("/{project}/-/jobs/{id}/retry", job_actions::retry),
    post!("/{project}/-/jobs/{id}/cancel", job_actions::cancel),
    post!("/{project}/-/jobs/{id}/play", job_actions::play),
    post!("/{project}/-/jobs/{id}/erase", job_actions::erase),
    get!("/{project}/-/jobs/{id}/artifacts/download", artifacts::download),
    get!("/{project}/-/jobs/{id}/artifacts/browse", artifacts::browse),
    get!("/{project}/-/jobs/{id}/artifacts/browse/{location}", artifacts::browse),
    get!("/{project}/-/jobs/{id}/artifacts/file/{location}", artifacts::file),
    post!("/{project}/-/jobs/{id}/artifacts/keep", job_actions::keep),
    get!("/{project}/-/ci/lint", lint::show),
    post!("/{project}/-/ci/lint", lint::check),
];
