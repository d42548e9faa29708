//! What jobs leave behind, up and down.

use axum::{extract::State, http::StatusCode};
use forge::{
    Forge, Unvalidated,
    artifacts::{self, Artifact, NewArtifact},
    traces::JobProof,
};
use serde_json::{Value, json};

use super::jobs::{JobAnswer, JobNumber, Tokens};
use crate::{
    App,
    file_part::FilePart,
    params::{FromParams, ParamReader, Params},
    raw::Download,
    reply::{Reply, Stamp},
    routes::Routes,
};

pub(super) fn v4() -> Routes {
    const PATH: &str = "/jobs/{id}/artifacts";
    Routes::new().post_file_up_to(App::artifact_limit, PATH, "Sends what a job leaves behind", send).get(
        PATH,
        "Fetches what a job has left behind",
        fetch,
    )
}

pub(super) fn ci_v1() -> Routes {
    const PATH: &str = "/builds/{id}/artifacts";
    Routes::new()
        .post_file_up_to(App::artifact_limit, PATH, "Sends what a build leaves behind", send_older)
        .get(PATH, "Fetches what a build has left behind", fetch_older)
        .delete(PATH, "Removes what a build has left behind", delete_older)
}

async fn send(
    State(app): State<App>,
    State(forge): State<Forge>,
    JobNumber(job): JobNumber,
    Tokens(tokens): Tokens,
    Params(given): Params<SendArtifact>,
    file: FilePart,
) -> Reply<JobAnswer> {
    take(&app, &forge, job, JobProof::Job(tokens), given, file).await
}

async fn send_older(
    State(app): State<App>,
    State(forge): State<Forge>,
    JobNumber(job): JobNumber,
    Tokens(tokens): Tokens,
    Params(given): Params<SendArtifact>,
    file: FilePart,
) -> Reply<JobAnswer> {
    take(&app, &forge, job, JobProof::JobOrProject(tokens), given, file).await
}

async fn take(
    app: &App,
    forge: &Forge,
    job: i64,
    proof: JobProof,
    given: Unvalidated<SendArtifact>,
    FilePart { name, content }: FilePart,
) -> Reply<JobAnswer> {
    let new = match (name.get(), given.get()) {
        (Ok(name), Ok(given)) => {
            Ok(NewArtifact { name: name.clone(), kind: given.kind.clone(), expire_in: given.expire_in.clone() })
        }
        (name, given) => Err(name.err().into_iter().chain(given.err()).map(|fault| fault.to_string()).collect()),
    };
    let artifact = artifacts::receive(forge, job, proof, Unvalidated::new(new), content, app.artifact_limit()).await?;
    Ok(JobAnswer::new(StatusCode::CREATED).body(body(&artifact)))
}

fn body(artifact: &Artifact) -> Value {
    json!({
        "id": artifact.build,
        "artifacts_file": { "filename": artifact.name, "size": artifact.size },
        "artifacts_expire_at": artifact.expires_at.map(Stamp),
    })
}

async fn fetch(State(forge): State<Forge>, JobNumber(job): JobNumber, Tokens(tokens): Tokens) -> Reply<Download> {
    give(&forge, job, JobProof::Job(tokens)).await
}

async fn fetch_older(State(forge): State<Forge>, JobNumber(job): JobNumber, Tokens(tokens): Tokens) -> Reply<Download> {
    give(&forge, job, JobProof::JobOrProject(tokens)).await
}

async fn give(forge: &Forge, job: i64, proof: JobProof) -> Reply<Download> {
    let artifact =
        forge.read_inline(forge::Caller::system(), move |tx| artifacts::open_for_job(tx, job, &proof)).await?;
    download(forge, &artifact).await
}

/// A file that a job left behind, to be kept by whoever asked for it.
pub(crate) async fn download(forge: &Forge, artifact: &Artifact) -> Reply<Download> {
    let content = artifacts::read(forge, artifact, None).await?;
    let answer = Download::new(&artifact.name, "application/octet-stream");
    Ok(answer.streamed(Some(content.size), content.bytes))
}

async fn delete_older(
    State(forge): State<Forge>,
    JobNumber(job): JobNumber,
    Tokens(tokens): Tokens,
) -> Reply<JobAnswer> {
    let build = artifacts::delete_for_job(&forge, job, JobProof::JobOrProject(tokens)).await?;
    Ok(JobAnswer::new(StatusCode::OK).body(json!({ "id": build.id, "status": build.status.word() })))
}

/// What a runner says about a file.
struct SendArtifact {
    kind: String,
    expire_in: Option<String>,
}

const FORMATS: [(&str, ()); 3] = [("zip", ()), ("gzip", ()), ("raw", ())];

impl FromParams for SendArtifact {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        // Kept as it is whatever it is; only what no runner knows is refused.
        let _ = from.choice("artifact_format", &FORMATS, "How it is packed");
        let kind = some(from.text("artifact_type", "What it is")).unwrap_or_else(|| "archive".to_owned());
        if kind.len() > 64 || !kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            from.fault("artifact_type");
        }
        Self { kind, expire_in: some(from.text("expire_in", "How long it is kept, in words")) }
    }
}
