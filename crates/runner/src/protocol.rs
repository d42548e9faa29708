//! The words of the protocol: what a job looks like, and the calls around it.

use std::time::Duration;

use hyper::{
    Method, StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE, HeaderName},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::fs::File;

use crate::client::{Answer, Body, Call, Client, Fetched, Unreachable, form, whole};

/// How long a short call may take.
const SHORT: Duration = Duration::from_secs(30);
/// How long the server may hold a request for a job, and some more.
const HELD: Duration = Duration::from_secs(90);
/// How long the server may take until a file begins to come.
const FILE_BEGINS: Duration = Duration::from_secs(120);
/// How long a file may be on its way to the server.
const FILE_SENT: Duration = Duration::from_secs(3600);

const JOB_TOKEN: HeaderName = HeaderName::from_static("job-token");

/// A job, as the server hands it out.
#[derive(Deserialize)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) token: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) job_info: JobInfo,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) git_info: GitInfo,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) runner_info: RunnerInfo,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) variables: Vec<Variable>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) steps: Vec<Step>,
    #[serde(default)]
    pub(crate) image: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) services: Vec<Value>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) artifacts: Vec<Artifact>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cache: Vec<Cache>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobInfo {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) project_id: u64,
    #[serde(deserialize_with = "or_default")]
    pub(crate) project_name: String,
    /// Random, and never used for another project; other servers than Gable do not send it.
    #[serde(deserialize_with = "or_default")]
    pub(crate) project_storage_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct GitInfo {
    #[serde(deserialize_with = "or_default")]
    pub(crate) repo_url: String,
    #[serde(rename = "ref", deserialize_with = "or_default")]
    pub(crate) ref_name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) sha: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) refspecs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) depth: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RunnerInfo {
    #[serde(deserialize_with = "or_default")]
    pub(crate) timeout: u64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Variable {
    pub(crate) key: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) value: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) file: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) raw: bool,
}

#[derive(Deserialize)]
pub(crate) struct Step {
    pub(crate) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) script: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) timeout: u64,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(crate) struct Artifact {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) untracked: bool,
    #[serde(deserialize_with = "or_default")]
    pub(crate) paths: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) exclude: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) when: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) expire_in: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) artifact_type: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) artifact_format: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Cache {
    pub(crate) key: Value,
    #[serde(deserialize_with = "or_default")]
    pub(crate) untracked: bool,
    #[serde(deserialize_with = "or_default")]
    pub(crate) paths: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) policy: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) when: String,
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub(crate) id: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) token: String,
    #[serde(default)]
    pub(crate) artifacts_file: Option<ArtifactsFile>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ArtifactsFile {
    #[serde(deserialize_with = "or_default")]
    pub(crate) filename: String,
}

/// `null` counts as not given.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Success,
    /// The script ended with this code.
    Script(i32),
    /// It took too long.
    TimedOut,
    /// It is not the script's fault.
    System,
}

/// What a runner says of itself.
fn info() -> Value {
    json!({
        "name": "gable-runner",
        "version": env!("CARGO_PKG_VERSION"),
        "platform": std::env::consts::OS,
        "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
        "executor": "shell",
        "shell": "bash",
        "features": {
            "variables": true, "artifacts": true, "upload_multiple_artifacts": true, "cache": true,
            "refspecs": true, "artifacts_exclude": true, "trace_reset": true, "return_exit_code": true,
        },
    })
}

impl Client {
    /// What a new runner is to be; the token is the one for registrations.
    pub(crate) async fn register(&self, token: &str, wishes: &crate::Registration) -> Result<Answer, Unreachable> {
        let body = json!({
            "token": token,
            "description": wishes.description,
            "tag_list": wishes.tags.join(","),
            "run_untagged": wishes.run_untagged,
            "locked": wishes.locked,
            "active": true,
            "info": info(),
        });
        self.call(send(Method::POST, "/api/v4/runners", &body, SHORT)).await
    }

    pub(crate) async fn verify(&self, token: &str, system: &str) -> Result<Answer, Unreachable> {
        let body = json!({ "token": token, "system_id": system });
        self.call(send(Method::POST, "/api/v4/runners/verify", &body, SHORT)).await
    }

    pub(crate) async fn unregister(&self, token: &str) -> Result<Answer, Unreachable> {
        self.call(send(Method::DELETE, "/api/v4/runners", &json!({ "token": token }), SHORT)).await
    }

    /// Asks for a job; the server may hold the question for a while.
    pub(crate) async fn request(&self, token: &str, system: &str, last_update: &str) -> Result<Answer, Unreachable> {
        let body = json!({ "token": token, "system_id": system, "last_update": last_update, "info": info() });
        self.call(send(Method::POST, "/api/v4/jobs/request", &body, HELD)).await
    }

    /// Sends a piece of the trace that begins at this place.
    pub(crate) async fn patch(&self, job: &Badge, from: u64, piece: Vec<u8>) -> Result<Answer, Unreachable> {
        let last = from + (piece.len() as u64).max(1) - 1;
        self.call(Call {
            method: Method::PATCH,
            path: format!("/api/v4/jobs/{}/trace", job.id),
            headers: vec![
                (JOB_TOKEN, job.token.clone()),
                (CONTENT_TYPE, "text/plain".to_owned()),
                (CONTENT_RANGE, format!("{from}-{last}")),
            ],
            body: whole(piece),
            within: SHORT,
        })
        .await
    }

    /// Says that the job is still running.
    pub(crate) async fn touch(&self, job: &Badge) -> Result<Answer, Unreachable> {
        self.put(job, &json!({ "token": job.token, "state": "running", "info": info() })).await
    }

    /// Says how the job ended.
    pub(crate) async fn finish(&self, job: &Badge, ending: Ending) -> Result<Answer, Unreachable> {
        let mut body = json!({ "token": job.token, "info": info() });
        let (state, reason) = match ending {
            Ending::Success => ("success", None),
            Ending::Script(_) => ("failed", Some("script_failure")),
            Ending::TimedOut => ("failed", Some("job_execution_timeout")),
            Ending::System => ("failed", Some("runner_system_failure")),
        };
        body["state"] = state.into();
        if let Some(reason) = reason {
            body["failure_reason"] = reason.into();
        }
        match ending {
            Ending::Success => body["exit_code"] = 0.into(),
            Ending::Script(code) => body["exit_code"] = code.into(),
            Ending::TimedOut | Ending::System => {}
        }
        self.put(job, &body).await
    }

    async fn put(&self, job: &Badge, body: &Value) -> Result<Answer, Unreachable> {
        let mut call = send(Method::PUT, &format!("/api/v4/jobs/{}", job.id), body, SHORT);
        call.headers.push((JOB_TOKEN, job.token.clone()));
        self.call(call).await
    }

    /// Brings the artifacts of another job here.
    pub(crate) async fn download(
        &self,
        dependency: &Dependency,
        into: &mut File,
        largest: u64,
    ) -> Result<Fetched, Unreachable> {
        let call = Call {
            method: Method::GET,
            path: format!("/api/v4/jobs/{}/artifacts", dependency.id),
            headers: vec![(JOB_TOKEN, dependency.token.clone())],
            body: whole(Vec::new()),
            within: FILE_BEGINS,
        };
        self.fetch(call, into, largest).await
    }

    /// Hands artifacts in.
    pub(crate) async fn upload(
        &self,
        job: &Badge,
        artifact: &Artifact,
        name: &str,
        (file, size): (File, u64),
    ) -> Result<Answer, Unreachable> {
        let (mut headers, body): (_, Body) =
            form(file, size, name).map_err(|error| Unreachable(format!("cannot be sent: {error}")))?;
        headers.push((JOB_TOKEN, job.token.clone()));
        let path = format!("/api/v4/jobs/{}/artifacts?{}", job.id, about(artifact));
        self.call(Call { method: Method::POST, path, headers, body, within: FILE_SENT }).await
    }
}

/// What proves that a call belongs to a job.
pub(crate) struct Badge {
    pub(crate) id: u64,
    pub(crate) token: String,
}

fn send(method: Method, path: &str, body: &Value, within: Duration) -> Call {
    Call {
        method,
        path: path.to_owned(),
        headers: vec![(CONTENT_TYPE, "application/json".to_owned())],
        body: whole(body.to_string()),
        within,
    }
}

/// What the server is told about artifacts beside the file.
fn about(artifact: &Artifact) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let passed_on = [
        ("expire_in", &artifact.expire_in),
        ("artifact_format", &artifact.artifact_format),
        ("artifact_type", &artifact.artifact_type),
    ];
    for (key, value) in passed_on.into_iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(key, value);
    }
    query.finish()
}

/// Whether the server does not want to hear of the job any more.
pub(crate) fn is_over(answer: &Answer) -> bool {
    matches!(answer.header("job-status"), Some("canceled" | "failed"))
}

/// Whether the server knows no such job, or not from us.
pub(crate) fn is_refused(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
}

/// How many bytes of the trace the server has, as it says after a PATCH.
pub(crate) fn stored(answer: &Answer) -> Option<u64> {
    answer.header("range")?.rsplit_once('-')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_whatever_is_left_out_or_null() {
        let job: Job = serde_json::from_value(json!({
            "id": 7, "token": "t", "allow_git_fetch": true,
            "job_info": {"name": "build", "stage": "test", "project_id": 3, "project_name": "rocket"},
            "git_info": {"repo_url": "http://x/y.git", "ref": "main", "sha": "ab", "before_sha": "0",
                         "ref_type": "branch", "refspecs": ["+refs/heads/*:refs/remotes/origin/*"], "depth": 0},
            "runner_info": {"timeout": 3600, "runner_session_url": null},
            "variables": [{"key": "A", "value": "b", "public": true, "masked": false}],
            "steps": [{"name": "script", "script": ["true"], "timeout": 3600, "when": "on_success", "allow_failure": false}],
            "image": null, "services": null, "artifacts": null, "cache": [], "credentials": [], "dependencies": null,
            "features": {"trace_sections": true}
        }))
        .expect("a job");
        assert_eq!((job.id, job.git_info.ref_name.as_str(), job.steps.len()), (7, "main", 1));
        assert!(job.artifacts.is_empty() && job.dependencies.is_empty() && job.image.is_none());
        let least: Job = serde_json::from_value(json!({"id": 1, "token": "t"})).expect("a job");
        assert!(least.steps.is_empty() && least.git_info.refspecs.is_empty());
    }
}
