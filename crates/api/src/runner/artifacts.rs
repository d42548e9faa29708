//! Upload and download of artifacts, which both protocols share.

use axum::http::StatusCode;
use forge::{
    Forge, Unvalidated,
    artifacts::{self, Artifact, NewArtifact},
    traces::JobCredentials,
};
use model::JobId;
use serde_json::{Value, json};

use super::{params::UploadArtifact, replies::JobReply};
use crate::{
    App,
    file_part::FilePart,
    file_response::Download,
    reply::{Reply, TimestampJson},
};

/// Stores an artifact of a job.
pub(super) async fn receive(
    app: &App,
    forge: &Forge,
    job: JobId,
    credentials: JobCredentials,
    params: Unvalidated<UploadArtifact>,
    FilePart { name, content }: FilePart,
) -> Reply<JobReply> {
    let new = match (name.validate(), params.validate()) {
        (Ok(name), Ok(params)) => {
            Ok(NewArtifact { name: name.clone(), kind: params.kind.clone(), expire_in: params.expire_in.clone() })
        }
        (name, params) => Err(name.err().into_iter().chain(params.err()).map(|error| error.to_string()).collect()),
    };
    let artifact =
        artifacts::receive(forge, job, credentials, Unvalidated::new(new), content, app.artifact_limit()).await?;
    Ok(JobReply::new(StatusCode::CREATED).with_body(artifact_json(&artifact)))
}

fn artifact_json(artifact: &Artifact) -> Value {
    json!({
        "id": artifact.job.get(),
        "artifacts_file": { "filename": artifact.name, "size": artifact.size },
        "artifacts_expire_at": artifact.expires_at.map(TimestampJson),
    })
}

/// Returns the artifacts of a job as a download.
pub(super) async fn download_archive(forge: &Forge, job: JobId, credentials: JobCredentials) -> Reply<Download> {
    let artifact =
        forge.read_inline(forge::Caller::system(), move |tx| artifacts::open_for_job(tx, job, &credentials)).await?;
    download(forge, &artifact).await
}

/// Returns an artifact as a download.
pub(crate) async fn download(forge: &Forge, artifact: &Artifact) -> Reply<Download> {
    let content = artifacts::read(forge, artifact, None).await?;
    let reply = Download::new(&artifact.name, "application/octet-stream");
    Ok(reply.with_stream(Some(content.size), content.bytes))
}
