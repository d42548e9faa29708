//! Requests for jobs, updates of jobs, traces and artifacts.

use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode},
};
use forge::{
    Forge,
    job_queue::{self, JobResponse},
    pipelines::job_updates::{self, UpdateOutcome},
    traces::{self, AppendOutcome, JobCredentials},
};
use model::Status;
use serde_json::json;

use super::job_json::JobJson;
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

/// The header with the status of a job.
const STATUS_HEADER: HeaderName = HeaderName::from_static("job-status");

pub(super) fn routes() -> Routes {
    Routes::new(Tag::RunnerProtocol)
        .post("/jobs/request", "Request a job", request)
        .with_statuses(&[204, 403, 409])
        .put_with_limit(MAX_UPDATE_BYTES, JobCredentials::Job, "/jobs/{id}", "Update the state of a job", update)
        .patch_raw(JobCredentials::Job, "/jobs/{id}/trace", "Append to the trace of a job", append)
        .post_file_with_limit(App::artifact_limit, "/jobs/{id}/artifacts", "Upload an artifact of a job", upload)
        .get("/jobs/{id}/artifacts", "Download the artifacts of a job", download)
}

async fn request(
    State(forge): State<Forge>,
    RunnerToken(token): RunnerToken,
    Params(params): Params<RequestJob>,
    site: Site,
) -> Reply<JobRequestReply<JobJson>> {
    let params = params.validate()?;
    let request = params.to_request(token.validate()?.clone(), site);
    match job_queue::request(&forge, request).await? {
        JobResponse::Job(payload) => Ok(JobRequestReply::Job(JobJson::from(*payload))),
        JobResponse::NoJob { cursor } | JobResponse::Paused { cursor } => Ok(JobRequestReply::NoJob { cursor }),
        JobResponse::Conflict => Err(ApiError::Conflict),
    }
}

async fn update(
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
    Params(params): Params<UpdateJob>,
) -> Reply<JobReply> {
    let update = params.map(|params| params.into_update("unknown_failure"));
    Ok(match job_updates::update(&forge, job, JobCredentials::Job(tokens), update).await? {
        UpdateOutcome::Applied(status) => JobReply::updated(STATUS_HEADER, status),
        UpdateOutcome::NotRunning { status, .. } => not_running(status),
    })
}

async fn append(
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
    headers: HeaderMap,
    RawBody(bytes): RawBody,
) -> Reply<JobReply> {
    match traces::append(&forge, job, JobCredentials::Job(tokens), chunk_start(&headers), bytes).await? {
        AppendOutcome::Stored(status, size) => Ok(JobReply::chunk_stored(STATUS_HEADER, status, size)),
        AppendOutcome::WrongOffset(status, size) => Ok(JobReply::wrong_offset(STATUS_HEADER, status, size)),
        AppendOutcome::NotRunning(status, size) => Ok(not_running(status).with_trace_size(size)),
        AppendOutcome::TooLong => Err(ApiError::BodyTooLarge),
    }
}

/// Returns the reply to an update of a job that is not running.
fn not_running(status: Status) -> JobReply {
    let body = json!({ "message": "403 Forbidden  - Job is not running" });
    JobReply::new(StatusCode::FORBIDDEN).with_body(body).with_job_status(STATUS_HEADER, status)
}

async fn upload(
    State(app): State<App>,
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
    Params(params): Params<UploadArtifact>,
    file: FilePart,
) -> Reply<JobReply> {
    receive(&app, &forge, job, JobCredentials::Job(tokens), params, file).await
}

async fn download(
    State(forge): State<Forge>,
    JobIdInPath(job): JobIdInPath,
    Tokens(tokens): Tokens,
) -> Reply<Download> {
    download_archive(&forge, job, JobCredentials::Job(tokens)).await
}
