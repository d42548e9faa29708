//! The parameters of requests of runners.

use std::collections::HashSet;

use axum::http::{HeaderMap, header};
use forge::{
    Unvalidated,
    job_queue::JobRequest,
    pipelines::job_updates::{JobUpdate, ReportedState},
    runners::Registration,
};
use model::{runners::RunnerInfo, tokens::Secret};

use crate::{
    params::{FromParams, ParamReader},
    site::Site,
};

/// The maximum size of an update: older runners send the full trace with it, and JSON escapes make it several times larger.
pub(super) const MAX_UPDATE_BYTES: usize = 32 << 20;

/// The registration of a runner.
pub(super) struct RegisterRunner(pub(super) Registration);

impl FromParams for RegisterRunner {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let description = from.text("description", "The description of the runner");
        let tags = from.comma_separated_list("tag_list", "The tags of the runner, comma-separated");
        let run_untagged = from.flag("run_untagged", "Whether the runner takes jobs without tags; default: true");
        let locked = from.flag("locked", "Whether the runner cannot be enabled for further projects; default: false");
        let active = from.flag("active", "Whether the runner takes jobs; default: true");
        let paused = from.flag("paused", "Whether the runner takes no jobs; default: false");
        let maximum_timeout =
            from.integer("maximum_timeout", "The maximum timeout of its jobs, in seconds; 0 for none");
        let info = from.lenient_object::<RunnerInfoParams>("info", "The details of the runner");
        // Rejected rather than ignored, because the client relies on the restriction.
        if from.text("access_level", "The branches whose jobs the runner takes").as_deref() == Some("ref_protected") {
            from.reject("access_level");
        }
        let mut known = HashSet::new();
        let mut tags = tags.unwrap_or_default();
        tags.retain(|tag| known.insert(tag.clone()));
        Self(Registration {
            description: description.unwrap_or_default(),
            active: active.unwrap_or(true) && !paused.unwrap_or(false),
            run_untagged: run_untagged.unwrap_or(true),
            locked: locked.unwrap_or(false),
            tags,
            // Runners without a limit send zero.
            maximum_timeout: maximum_timeout.filter(|seconds| *seconds != 0),
            info: info.map_or_else(RunnerInfo::default, |info| info.0),
        })
    }
}

/// The details that a runner reports about itself.
struct RunnerInfoParams(RunnerInfo);

impl FromParams for RunnerInfoParams {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let mut text = |name, description| from.text(name, description).map(|text| sanitize(&text));
        Self(RunnerInfo {
            name: text("name", "The name of the runner"),
            version: text("version", "The version of the runner"),
            revision: text("revision", "The revision of the runner"),
            platform: text("platform", "The operating system"),
            architecture: text("architecture", "The processor architecture"),
        })
    }
}

/// Removes control characters and truncates the text; invalid details are no reason to reject a runner.
fn sanitize(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(255).collect()
}

/// A request for a job.
pub(super) struct RequestJob {
    info: Option<RunnerInfoParams>,
    last_update: Option<String>,
}

impl FromParams for RequestJob {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            info: from.lenient_object("info", "The details of the runner"),
            last_update: from.text("last_update", "The X-GitLab-Last-Update header of the last response without a job"),
        }
    }
}

impl RequestJob {
    /// Converts the parameters to a request of the runner with this token.
    pub(super) fn to_request(&self, token: Secret, site: Site) -> JobRequest {
        let info = self.info.as_ref().map(|info| info.0.clone()).unwrap_or_default();
        JobRequest { token, info, last_update: self.last_update.clone(), site }
    }
}

/// An update sent by a runner.
pub(super) struct UpdateJob {
    state: StateParam,
    failure_reason: Option<String>,
    exit_code: Option<i64>,
    trace: Option<String>,
}

/// The state of a job.
#[derive(Clone, Copy)]
enum StateParam {
    Running,
    Success,
    Failed,
}

const STATES: [(&str, StateParam); 3] =
    [("running", StateParam::Running), ("success", StateParam::Success), ("failed", StateParam::Failed)];

impl FromParams for UpdateJob {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            state: from
                .choice("state", &STATES, "The state of the job; default: running")
                .unwrap_or(StateParam::Running),
            failure_reason: from.text("failure_reason", "The machine-readable reason of a failure"),
            exit_code: from.integer("exit_code", "The exit code of the script"),
            trace: from.content("trace", false, "The full trace"),
        }
    }
}

impl UpdateJob {
    /// Converts the parameters to an update; a missing or malformed failure reason is replaced by the default.
    pub(super) fn into_update(self, default_reason: &str) -> JobUpdate {
        let is_valid = |text: &String| {
            let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            plain && (1..=100).contains(&text.len())
        };
        let state = match self.state {
            StateParam::Running => ReportedState::Running,
            StateParam::Success => ReportedState::Success,
            StateParam::Failed => ReportedState::Failed {
                reason: self.failure_reason.filter(is_valid).unwrap_or_else(|| default_reason.to_owned()),
                exit_code: self.exit_code,
            },
        };
        JobUpdate { state, trace: self.trace }
    }
}

/// Returns where a chunk of a trace starts. The end of the range is ignored: older runners send an exclusive end, newer ones
/// an inclusive one.
pub(super) fn chunk_start(headers: &HeaderMap) -> Unvalidated<u64> {
    let error = |text: &str| vec![format!("400 {text} header Content-Range")];
    let Some(range) = headers.get(header::CONTENT_RANGE) else { return Unvalidated::new(Err(error("Missing"))) };
    let start = range.to_str().ok().and_then(|range| range.trim_start_matches("bytes ").split('-').next());
    let digits = start.map(str::trim).filter(|start| start.bytes().all(|byte| byte.is_ascii_digit()));
    Unvalidated::new(digits.and_then(|start| start.parse().ok()).ok_or_else(|| error("Invalid")))
}

/// An upload of an artifact.
pub(super) struct UploadArtifact {
    pub(super) kind: String,
    pub(super) expire_in: Option<String>,
}

const FORMATS: [(&str, ()); 3] = [("zip", ()), ("gzip", ()), ("raw", ())];

impl FromParams for UploadArtifact {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        // The format is not used; only unknown formats are rejected.
        let _ = from.choice("artifact_format", &FORMATS, "The file format");
        let kind = non_empty(from.text("artifact_type", "The type of the artifact; default: archive"))
            .unwrap_or_else(|| "archive".to_owned());
        if kind.len() > 64 || !kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            from.reject("artifact_type");
        }
        Self {
            kind,
            expire_in: non_empty(
                from.text("expire_in", "The lifetime, such as `2 days`; default: that in the CI file"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_start_of_a_range_is_used() {
        let check = |range: &'static str, expected: Result<u64, &str>| {
            let headers = HeaderMap::from_iter([(header::CONTENT_RANGE, HeaderValue::from_static(range))]);
            let found = chunk_start(&headers);
            assert_eq!(
                found.validate().copied().map_err(|error| error.to_string()),
                expected.map_err(ToOwned::to_owned)
            );
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
            chunk_start(&HeaderMap::new()).validate().map_err(|error| error.to_string()),
            Err("400 Missing header Content-Range".to_owned())
        );
    }
}
