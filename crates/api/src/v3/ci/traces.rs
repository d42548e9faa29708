//! What builds say and leave behind.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use forge::{Forge, artifacts, builds, traces};

use crate::v3::builds::BuildJson;
use crate::{
    error::plain_error,
    extract::{BuildNumber, Credentials, InProject, RefSegment},
    pages::uploads::{Wanted, wanted},
    params::{FromParams, ParamReader, Params},
    raw::{Download, guarded},
    reply::{Created, Done, Reply},
    routes::{OperationDoc, ReplyDoc, Routes},
    runner::artifacts::download,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/builds/{build_id}/trace", "What a build says", show)
        .also(&[206, 416])
        .post("/projects/{id}/builds/{build_id}/erase", "Removes what a build said and left behind", erase)
        .get("/projects/{id}/builds/{build_id}/artifacts", "What a build left behind", fetch)
        .post("/projects/{id}/builds/{build_id}/artifacts/keep", "Keeps what a build left behind for good", keep)
        .get(
            "/projects/{id}/builds/artifacts/{ref_name}/download",
            "What a job of a branch or a tag left behind",
            by_ref,
        )
}

async fn show(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BuildNumber(build): BuildNumber,
    Params(given): Params<ShowTrace>,
    method: Method,
    headers: HeaderMap,
) -> Reply<TraceText> {
    let (place, asker) = (project.clone(), caller.clone());
    let number = build.clone();
    let (trace, follow) =
        forge.read_inline(asker, move |tx| Ok((traces::open(tx, &place, &number)?, given.get()?.follow))).await?;
    let mut answer = TraceText::new(*build.get()?);
    if follow && !trace.ended && method == Method::GET {
        answer.body = Body::from_stream(traces::follow(&forge, caller, project, trace, 0));
        return Ok(answer);
    }
    let range = headers.get(header::RANGE).filter(|_| method == Method::GET).and_then(|range| range.to_str().ok());
    let range = match wanted(range, trace.size) {
        Wanted::Whole => 0..trace.size,
        Wanted::Part(range) => {
            answer.tell_range(
                StatusCode::PARTIAL_CONTENT,
                &format!("bytes {}-{}/{}", range.start, range.end - 1, trace.size),
            );
            range
        }
        Wanted::Nothing => {
            answer.tell_range(StatusCode::RANGE_NOT_SATISFIABLE, &format!("bytes */{}", trace.size));
            return Ok(answer);
        }
    };
    answer.headers.insert(header::CONTENT_LENGTH, (range.end - range.start).into());
    if method == Method::GET {
        answer.body = Body::from_stream(traces::read(&forge, &trace, range).await?);
    }
    Ok(answer)
}

/// What to do with a trace.
struct ShowTrace {
    follow: bool,
}

impl FromParams for ShowTrace {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self { follow: from.flag("follow", "Goes on until the build ends").unwrap_or(false) }
    }
}

/// A trace, or a part of one. Whatever it says, it is shown as text and nothing in it runs.
struct TraceText {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

impl TraceText {
    fn new(build: i64) -> Self {
        let mut headers = guarded();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        // The word is the original's.
        let disposition = HeaderValue::try_from(format!("infile; filename=\"{build}.log\""));
        headers.insert(header::CONTENT_DISPOSITION, disposition.expect("digits are fine in a header"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        Self { status: StatusCode::OK, headers, body: Body::empty() }
    }

    fn tell_range(&mut self, status: StatusCode, range: &str) {
        self.status = status;
        self.headers.insert(header::CONTENT_RANGE, HeaderValue::from_str(range).expect("digits are fine in a header"));
    }
}

impl IntoResponse for TraceText {
    fn into_response(self) -> Response {
        if self.status == StatusCode::RANGE_NOT_SATISFIABLE {
            let told = self.headers.get(header::CONTENT_RANGE).cloned().map(|range| [(header::CONTENT_RANGE, range)]);
            return (told.into_iter().flatten().collect::<HeaderMap>(), plain_error(self.status)).into_response();
        }
        (self.status, self.headers, self.body).into_response()
    }
}

impl ReplyDoc for TraceText {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
        operation.kinds = &["text/plain"];
    }
}

async fn erase(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BuildNumber(build): BuildNumber,
    site: Site,
) -> Reply<Created<BuildJson>> {
    traces::erase(&forge, caller.clone(), project.clone(), build.clone()).await?;
    let shown = forge.read(caller, move |tx| builds::get(tx, &project, &build)).await?;
    Ok(Created(BuildJson::new(shown, &site)))
}

async fn keep(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BuildNumber(build): BuildNumber,
    site: Site,
) -> Reply<Done<BuildJson>> {
    let (place, number) = (project.clone(), build.clone());
    forge.write(caller.clone(), move |tx| artifacts::keep(tx, &place, &number)).await?;
    let shown = forge.read(caller, move |tx| builds::get(tx, &project, &build)).await?;
    Ok(Done(BuildJson::new(shown, &site)))
}

async fn fetch(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BuildNumber(build): BuildNumber,
) -> Reply<Download> {
    let artifact = forge.read_inline(caller, move |tx| artifacts::open(tx, &project, &build)).await?;
    download(&forge, &artifact).await
}

async fn by_ref(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    RefSegment(name): RefSegment,
    Params(given): Params<OfJob>,
) -> Reply<Download> {
    let job = given.map(|given| given.job);
    let artifact = forge.read(caller, move |tx| artifacts::open_by_ref(tx, &project, &name, &job)).await?;
    download(&forge, &artifact).await
}

/// Which job.
struct OfJob {
    job: String,
}

impl FromParams for OfJob {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self { job: from.required_text("job", "The name of the job") }
    }
}
