//! Traces and artifacts of jobs.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use forge::{artifacts, jobs, traces};
use model::JobId;

use crate::{
    context::ProjectCx,
    error::plain_error,
    extract::{BuildIdInPath, RefNameInPath},
    file_response::{Download, sandbox_headers},
    openapi::Tag,
    params::{FromParams, ParamReader, Params},
    public_files::uploads::{ByteRange, parse_range},
    reply::{Created, OkJson, Reply},
    routes::{OperationDoc, ReplyDoc, Routes},
    runner::artifacts::download,
    site::Site,
    v3::jobs::BuildJson,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Builds)
        .get("/projects/{id}/builds/{build_id}/trace", "Get the trace of a build", show)
        .with_statuses(&[206, 416])
        .post("/projects/{id}/builds/{build_id}/erase", "Erase the trace and the artifacts of a build", erase)
        .get("/projects/{id}/builds/{build_id}/artifacts", "Download the artifacts of a build", download_artifacts)
        .post("/projects/{id}/builds/{build_id}/artifacts/keep", "Keep the artifacts of a build from expiring", keep)
        .get(
            "/projects/{id}/builds/artifacts/{ref_name}/download",
            "Download the artifacts of the latest successful build of a branch or a tag",
            download_by_ref,
        )
}

async fn show(
    cx: ProjectCx,
    BuildIdInPath(job): BuildIdInPath,
    Params(params): Params<ShowTrace>,
    method: Method,
    headers: HeaderMap,
) -> Reply<TraceText> {
    let job_id = job.clone();
    let open = cx.clone().read_inline(move |tx, project| {
        let trace = traces::open(tx, project, &job_id)?;
        Ok((trace, params.validate()?.follow))
    });
    let (trace, follow) = open.await?;
    let ProjectCx { forge, caller, project } = cx;
    let mut reply = TraceText::new(*job.validate()?);
    if follow && !trace.ended && method == Method::GET {
        reply.body = Body::from_stream(traces::follow(&forge, caller, project, trace, 0));
        return Ok(reply);
    }
    let range = headers.get(header::RANGE).filter(|_| method == Method::GET).and_then(|range| range.to_str().ok());
    let range = match parse_range(range, trace.size) {
        ByteRange::Whole => 0..trace.size,
        ByteRange::Part(range) => {
            reply.set_content_range(
                StatusCode::PARTIAL_CONTENT,
                &format!("bytes {}-{}/{}", range.start, range.end - 1, trace.size),
            );
            range
        }
        ByteRange::Unsatisfiable => {
            reply.set_content_range(StatusCode::RANGE_NOT_SATISFIABLE, &format!("bytes */{}", trace.size));
            return Ok(reply);
        }
    };
    reply.headers.insert(header::CONTENT_LENGTH, (range.end - range.start).into());
    if method == Method::GET {
        reply.body = Body::from_stream(traces::read(&forge, &trace, range).await?);
    }
    Ok(reply)
}

/// The parameters of a trace.
struct ShowTrace {
    follow: bool,
}

impl FromParams for ShowTrace {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            follow: from
                .flag("follow", "Whether to stream the trace until the build ends; default: false")
                .unwrap_or(false),
        }
    }
}

/// A trace, or a part of it. Browsers show it as text and execute nothing in it.
struct TraceText {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

impl TraceText {
    fn new(job: JobId) -> Self {
        let mut headers = sandbox_headers();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        // As in GitLab.
        let disposition = HeaderValue::try_from(format!("infile; filename=\"{job}.log\""));
        headers.insert(header::CONTENT_DISPOSITION, disposition.expect("digits are fine in a header"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        Self { status: StatusCode::OK, headers, body: Body::empty() }
    }

    fn set_content_range(&mut self, status: StatusCode, range: &str) {
        self.status = status;
        self.headers.insert(header::CONTENT_RANGE, HeaderValue::from_str(range).expect("digits are fine in a header"));
    }
}

impl IntoResponse for TraceText {
    fn into_response(self) -> Response {
        if self.status == StatusCode::RANGE_NOT_SATISFIABLE {
            let headers =
                self.headers.get(header::CONTENT_RANGE).cloned().map(|range| [(header::CONTENT_RANGE, range)]);
            return (headers.into_iter().flatten().collect::<HeaderMap>(), plain_error(self.status)).into_response();
        }
        (self.status, self.headers, self.body).into_response()
    }
}

impl ReplyDoc for TraceText {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.content_types = &["text/plain"];
    }
}

async fn erase(cx: ProjectCx, BuildIdInPath(job): BuildIdInPath, site: Site) -> Reply<Created<BuildJson>> {
    let ProjectCx { forge, caller, project } = cx.clone();
    traces::erase(&forge, caller, project, job.clone()).await?;
    let detail = cx.read(move |tx, project| jobs::get(tx, project, &job)).await?;
    Ok(Created(BuildJson::new(detail, &site)))
}

async fn keep(cx: ProjectCx, BuildIdInPath(job): BuildIdInPath, site: Site) -> Reply<OkJson<BuildJson>> {
    let job_id = job.clone();
    cx.clone().write(move |tx, project| artifacts::keep(tx, project, &job_id)).await?;
    let detail = cx.read(move |tx, project| jobs::get(tx, project, &job)).await?;
    Ok(OkJson(BuildJson::new(detail, &site)))
}

async fn download_artifacts(cx: ProjectCx, BuildIdInPath(job): BuildIdInPath) -> Reply<Download> {
    let forge = cx.forge.clone();
    let artifact = cx.read_inline(move |tx, project| artifacts::open(tx, project, &job)).await?;
    download(&forge, &artifact).await
}

async fn download_by_ref(
    cx: ProjectCx,
    RefNameInPath(name): RefNameInPath,
    Params(params): Params<DownloadByRef>,
) -> Reply<Download> {
    let (forge, job) = (cx.forge.clone(), params.map(|params| params.job));
    let artifact = cx.read(move |tx, project| artifacts::open_by_ref(tx, project, &name, &job)).await?;
    download(&forge, &artifact).await
}

/// The parameters of a download by ref.
struct DownloadByRef {
    job: String,
}

impl FromParams for DownloadByRef {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self { job: from.required_text("job", "The name of the build") }
    }
}
