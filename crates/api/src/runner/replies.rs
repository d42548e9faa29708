//! The replies to requests of runners.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use model::{Job, Oid, Status};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    reply::{self, CreatedSecret},
    routes::{OperationDoc, ReplyDoc},
};

/// The header with the cursor that a runner sends with its next request.
const LAST_UPDATE: HeaderName = HeaderName::from_static("x-gitlab-last-update");

/// The response to a request for a job.
pub(super) enum JobRequestReply<T> {
    /// 201: a job.
    Job(T),
    /// 204: no job.
    NoJob { cursor: String },
}

impl<T: Serialize> IntoResponse for JobRequestReply<T> {
    fn into_response(self) -> Response {
        match self {
            Self::Job(job) => CreatedSecret(job).into_response(),
            Self::NoJob { cursor } => {
                let mut response = StatusCode::NO_CONTENT.into_response();
                if let Ok(cursor) = HeaderValue::from_str(&cursor)
                    && !cursor.is_empty()
                {
                    response.headers_mut().insert(LAST_UPDATE, cursor);
                }
                response
            }
        }
    }
}

impl<T> ReplyDoc for JobRequestReply<T> {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 201;
    }
}

/// A reply that reports the status of a job.
pub(super) struct JobReply {
    status: StatusCode,
    headers: HeaderMap,
    body: Option<Value>,
}

impl JobReply {
    /// Creates a reply without a body.
    pub(super) fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: None }
    }

    /// Sets the body.
    pub(super) fn with_body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Reports the status of the job in the header of the protocol.
    pub(super) fn with_job_status(mut self, header: HeaderName, status: Status) -> Self {
        self.headers.insert(header, HeaderValue::from_static(status.as_str()));
        self
    }

    /// Reports the size of the trace.
    pub(super) fn with_trace_size(mut self, size: u64) -> Self {
        let range = HeaderValue::try_from(format!("0-{size}")).expect("digits are fine in a header");
        self.headers.insert(header::RANGE, range);
        self
    }

    /// Creates the reply to a chunk of a trace that was stored.
    pub(super) fn chunk_stored(header: HeaderName, status: Status, size: u64) -> Self {
        Self::new(StatusCode::ACCEPTED).with_job_status(header, status).with_trace_size(size)
    }

    /// Creates the reply to a chunk that does not start at the end of the trace.
    pub(super) fn wrong_offset(header: HeaderName, status: Status, size: u64) -> Self {
        let body = json!({ "error": "416 Range Not Satisfiable" });
        let reply = Self::new(StatusCode::RANGE_NOT_SATISFIABLE).with_job_status(header, status);
        reply.with_trace_size(size).with_body(body)
    }

    /// Creates the reply to an update that was applied.
    pub(super) fn updated(header: HeaderName, status: Status) -> Self {
        Self::new(StatusCode::OK).with_body(Value::Null).with_job_status(header, status)
    }
}

impl IntoResponse for JobReply {
    fn into_response(self) -> Response {
        let mut response = match self.body {
            Some(body) => reply::json(self.status, &body),
            None => self.status.into_response(),
        };
        response.headers_mut().extend(self.headers);
        response
    }
}

impl ReplyDoc for JobReply {
    fn describe(operation: &mut OperationDoc) {
        operation.status = 200;
    }
}

/// The file with the artifacts of a job.
#[derive(Serialize)]
pub(super) struct ArtifactsFileJson {
    filename: String,
    size: i64,
}

impl ArtifactsFileJson {
    /// Returns the file of a job, if it has one.
    pub(super) fn of(job: &Job) -> Option<Self> {
        job.artifacts.as_ref().map(|file| Self { filename: file.name.clone(), size: file.size })
    }
}

/// Formats the previous commit, which runners require.
pub(super) fn before_sha_or_zeros(sha: Option<Oid>) -> String {
    sha.unwrap_or(Oid([0; 20])).to_string()
}
