//! Requests for builds, updates of builds, traces and artifacts.

use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, header},
};
use forge::{
    Error, Forge, artifacts,
    job_queue::{self, JobResponse},
    pipelines::job_updates::{self, UpdateOutcome},
    traces::{self, AppendOutcome, JobCredentials},
};
use serde_json::json;

use super::build_json::BuildJson;
use crate::{
    App,
    error::ApiError,
    file_part::FilePart,
    file_response::Download,
    openapi::Tag,
    params::Params,
    raw_body::RawBody,
    reply::Reply,
    routes::Routes,
    runner::{
        artifacts::{download_archive, receive},
        credentials::{JobIdInPath, RunnerToken, Tokens},
        params::{MAX_UPDATE_BYTES, RequestJob, UpdateJob, UploadArtifact, chunk_start},
        replies::{JobReply, JobRequestReply},
    },
    site::Site,
};

/// The header with the status of a build.
const STATUS_HEADER: HeaderName = HeaderName::from_static("build-status");

/// The user agent of older runners that understand status 204; others treat it as a failure.
const NO_CONTENT_USER_AGENT: &str = "gitlab-ci-multi-runner ";

pub(super) fn routes() -> Routes {
    Routes::new(Tag::RunnerProtocol)
        .post("/builds/register", "Request a build", request)
        .with_statuses(&[204, 403, 404])
        .put_with_limit(MAX_UPDATE_BYTES, JobCredentials::Runner, "/builds/{id}", "Update the state of a build", update)
        .patch_raw(JobCredentials::JobOrProject, "/builds/{id}/trace.txt", "Append to the trace of a build", append)
        .post_file_with_limit(App::artifact_limit, "/builds/{id}/artifacts", "Upload an artifact of a build", upload)
        .get("/builds/{id}/artifacts", "Download the artifacts of a build", download)
        .delete("/builds/{id}/artifacts", "Delete the artifacts of a build", delete_artifacts)
}

async fn request(
    State(forge): State<Forge>,
    RunnerToken(token): RunnerToken,
    Params(params): Params<RequestJob>,
    headers: HeaderMap,
    site: Site,
) -> Reply<JobRequestReply<BuildJson>> {
    let params = params.validate()?;
    let request = params.to_request(token.validate()?.clone(), site);
    let user_agent =
        headers.get(header::USER_AGENT).and_then(|user_agent| user_agent.to_str().ok()).unwrap_or_default();
    let understands_no_content = user_agent.starts_with(NO_CONTENT_USER_AGENT);
    match job_queue::request(&forge, request).await? {
        JobResponse::Job(payload) => Ok(JobRequestReply::Job(BuildJson::from(*payload))),
        JobResponse::NoJob { cursor } if understands_no_content => Ok(JobRequestReply::NoJob { cursor }),
        JobResponse::Conflict if understands_no_content => Ok(JobRequestReply::NoJob { cursor: String::new() }),
        JobResponse::NoJob { .. } | JobResponse::Paused { .. } | JobResponse::Conflict => {
            Err(ApiError::Forge(Error::NoSuchRow))
        }
    }
}

async fn update(
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
    Params(params): Params<UpdateJob>,
) -> Reply<JobReply> {
    // These runners send no reason; a failing script is by far the most common one.
    let update = params.map(|params| params.into_update("script_failure"));
    match job_updates::update(&forge, job, JobCredentials::Runner(tokens), update).await? {
        UpdateOutcome::Applied(status) => Ok(JobReply::updated(STATUS_HEADER, status)),
        UpdateOutcome::NotRunning { erased: true, .. } => Err(Error::forbidden("Build has been erased!").into()),
        UpdateOutcome::NotRunning { .. } => Err(Error::NotFound(None).into()),
    }
}

async fn append(
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
    headers: HeaderMap,
    RawBody(bytes): RawBody,
) -> Reply<JobReply> {
    match traces::append(&forge, job, JobCredentials::JobOrProject(tokens), chunk_start(&headers), bytes).await? {
        // These runners read the header of a successful response, and treat a rejection as an error of their own.
        AppendOutcome::Stored(status, size) | AppendOutcome::NotRunning(status, size) => {
            Ok(JobReply::chunk_stored(STATUS_HEADER, status, size))
        }
        AppendOutcome::WrongOffset(status, size) => Ok(JobReply::wrong_offset(STATUS_HEADER, status, size)),
        AppendOutcome::TooLong => Err(ApiError::BodyTooLarge),
    }
}

async fn upload(
    State(app): State<App>,
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
    Params(params): Params<UploadArtifact>,
    file: FilePart,
) -> Reply<JobReply> {
    receive(&app, &forge, job, JobCredentials::JobOrProject(tokens), params, file).await
}

async fn download(
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
) -> Reply<Download> {
    download_archive(&forge, job, JobCredentials::JobOrProject(tokens)).await
}

async fn delete_artifacts(
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
) -> Reply<JobReply> {
    let job = artifacts::delete_for_job(&forge, job, JobCredentials::JobOrProject(tokens)).await?;
    Ok(JobReply::new(StatusCode::OK).with_body(json!({ "id": job.id.get(), "status": job.status.as_str() })))
}
