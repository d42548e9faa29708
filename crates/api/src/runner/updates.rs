//! Telling how jobs go: their traces and how they end.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
};
use forge::{
    Forge, Unvalidated,
    pipelines::endings::{self, Told, Update, Updated},
    traces::{self, Heard, JobProof},
};
use serde_json::{Value, json};

use super::jobs::{JobAnswer, JobNumber, Protocol, Tokens, gone};
use crate::{
    error::ApiError,
    params::{FromParams, ParamReader, Params},
    raw_body::RawBody,
    reply::Reply,
    routes::Routes,
};

/// The largest update that is read: older runners send the whole trace with it, and in JSON it may be several times as
/// long as it is.
const LARGEST_UPDATE: usize = 32 << 20;

pub(super) fn v4() -> Routes {
    Routes::new().put_up_to(LARGEST_UPDATE, JobProof::Job, "/jobs/{id}", "Tells how a job stands", update).patch_raw(
        JobProof::Job,
        "/jobs/{id}/trace",
        "Adds to the trace of a job",
        append,
    )
}

pub(super) fn ci_v1() -> Routes {
    Routes::new()
        .put_up_to(LARGEST_UPDATE, JobProof::Runner, "/builds/{id}", "Tells how a build stands", update_older)
        .patch_raw(JobProof::JobOrProject, "/builds/{id}/trace.txt", "Adds to the trace of a build", append_older)
}

async fn append(
    State(forge): State<Forge>,
    JobNumber(job): JobNumber,
    Tokens(tokens): Tokens,
    headers: HeaderMap,
    RawBody(bytes): RawBody,
) -> Reply<JobAnswer> {
    let heard = traces::append(&forge, job, JobProof::Job(tokens), start(&headers), bytes).await?;
    told(Protocol::V4, heard)
}

async fn append_older(
    State(forge): State<Forge>,
    JobNumber(job): JobNumber,
    Tokens(tokens): Tokens,
    headers: HeaderMap,
    RawBody(bytes): RawBody,
) -> Reply<JobAnswer> {
    let heard = traces::append(&forge, job, JobProof::JobOrProject(tokens), start(&headers), bytes).await?;
    told(Protocol::CiV1, heard)
}

fn told(protocol: Protocol, heard: Heard) -> Reply<JobAnswer> {
    let answer = |code, status, size| JobAnswer::new(code).standing(protocol, status).length(size);
    match heard {
        Heard::Stored(status, size) => Ok(answer(StatusCode::ACCEPTED, status, size)),
        Heard::Elsewhere(status, size) => {
            let told = json!({ "error": "416 Range Not Satisfiable" });
            Ok(answer(StatusCode::RANGE_NOT_SATISFIABLE, status, size).body(told))
        }
        // Older runners look at the header of what was accepted, and take a refusal for trouble of their own.
        Heard::NotRunning(status, size) if protocol == Protocol::CiV1 => Ok(answer(StatusCode::ACCEPTED, status, size)),
        Heard::NotRunning(status, size) => Ok(JobAnswer::not_running(protocol, status).length(size)),
        Heard::TooLong => Err(ApiError::TooLarge),
    }
}

/// Where a piece begins. Where it ends does not count: of old runners the end is after the last byte, of new ones it is
/// the last byte.
fn start(headers: &HeaderMap) -> Unvalidated<u64> {
    let fault = |text: &str| vec![format!("400 {text} header Content-Range")];
    let Some(range) = headers.get(header::CONTENT_RANGE) else { return Unvalidated::new(Err(fault("Missing"))) };
    let start = range.to_str().ok().and_then(|range| range.trim_start_matches("bytes ").split('-').next());
    let digits = start.map(str::trim).filter(|start| start.bytes().all(|byte| byte.is_ascii_digit()));
    Unvalidated::new(digits.and_then(|start| start.parse().ok()).ok_or_else(|| fault("Invalid")))
}

async fn update(
    State(forge): State<Forge>,
    JobNumber(job): JobNumber,
    Tokens(tokens): Tokens,
    Params(given): Params<UpdateJob>,
) -> Reply<JobAnswer> {
    let given = given.map(|given| given.told("unknown_failure"));
    Ok(match endings::update(&forge, job, JobProof::Job(tokens), given).await? {
        Updated::Done(status) => JobAnswer::new(StatusCode::OK).body(Value::Null).standing(Protocol::V4, status),
        Updated::NotRunning { status, .. } => JobAnswer::not_running(Protocol::V4, status),
    })
}

async fn update_older(
    State(forge): State<Forge>,
    JobNumber(job): JobNumber,
    Tokens(tokens): Tokens,
    Params(given): Params<UpdateJob>,
) -> Reply<JobAnswer> {
    // These tell no reasons, and it is nearly always this one.
    let given = given.map(|given| given.told("script_failure"));
    match endings::update(&forge, job, JobProof::Runner(tokens), given).await? {
        Updated::Done(status) => Ok(JobAnswer::new(StatusCode::OK).body(Value::Null).standing(Protocol::CiV1, status)),
        Updated::NotRunning { erased, .. } => Err(gone(erased)),
    }
}

/// What a runner says of a job.
struct UpdateJob {
    state: Standing,
    failure_reason: Option<String>,
    exit_code: Option<i64>,
    trace: Option<String>,
}

/// How a job stands.
#[derive(Clone, Copy)]
enum Standing {
    Running,
    Success,
    Failed,
}

const STATES: [(&str, Standing); 3] =
    [("running", Standing::Running), ("success", Standing::Success), ("failed", Standing::Failed)];

impl FromParams for UpdateJob {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            state: from.choice("state", &STATES, "How it stands").unwrap_or(Standing::Running),
            failure_reason: from.text("failure_reason", "Why it failed, in one word"),
            exit_code: from.integer("exit_code", "What its script ended with"),
            trace: from.content("trace", false, "All that it has said"),
        }
    }
}

impl UpdateJob {
    /// The same in the words of the forge, with the reason that counts if none is told that can be one.
    fn told(self, usual: &str) -> Update {
        let is_word = |text: &String| {
            let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            plain && (1..=100).contains(&text.len())
        };
        let state = match self.state {
            Standing::Running => Told::Running,
            Standing::Success => Told::Success,
            Standing::Failed => Told::Failed {
                reason: self.failure_reason.filter(is_word).unwrap_or_else(|| usual.to_owned()),
                exit_code: self.exit_code,
            },
        };
        Update { state, trace: self.trace }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_beginning_of_a_range_counts() {
        let check = |range: &'static str, expected: Result<u64, &str>| {
            let headers = HeaderMap::from_iter([(header::CONTENT_RANGE, HeaderValue::from_static(range))]);
            let found = start(&headers);
            assert_eq!(found.get().copied().map_err(|error| error.to_string()), expected.map_err(ToOwned::to_owned));
        };
        check("0-10", Ok(0));
        check("12-4", Ok(12));
        check("12", Ok(12));
        check("bytes 7-8/*", Ok(7));
        check("", Err("400 Invalid header Content-Range"));
        check("-5", Err("400 Invalid header Content-Range"));
        check("+5-6", Err("400 Invalid header Content-Range"));
        check("99999999999999999999-", Err("400 Invalid header Content-Range"));
        assert_eq!(
            start(&HeaderMap::new()).get().map_err(|error| error.to_string()),
            Err("400 Missing header Content-Range".to_owned())
        );
    }
}
