//! The runner protocol: the job payload and the API calls.

use std::time::Duration;

use hyper::{
    Method, StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE, HeaderName},
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::fs::File;

use crate::client::{ApiCall, ApiResponse, Body, Client, ConnectionError, DownloadOutcome, full_body, multipart_body};

/// The timeout of a short request.
const SHORT_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a request for a job, which the server may hold open.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(90);
/// The timeout until a download begins.
const DOWNLOAD_START_TIMEOUT: Duration = Duration::from_secs(120);
/// The timeout of an upload.
pub(crate) const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3600);

const JOB_TOKEN: HeaderName = HeaderName::from_static("job-token");

/// A job, as the server sends it.
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
    /// Random and never reused for another project. Servers other than Gable do not send it.
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

/// Deserializes `null` as the default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobResult {
    Success,
    /// The script exited with this code.
    Script(i32),
    /// The job timed out.
    TimedOut,
    /// The runner failed, not the script.
    System,
}

/// Returns the description of this runner.
fn runner_details() -> Value {
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
    /// Registers a runner; `token` is the registration token.
    pub(crate) async fn register(
        &self,
        token: &str,
        registration: &crate::Registration,
    ) -> Result<ApiResponse, ConnectionError> {
        let body = json!({
            "token": token,
            "description": registration.description,
            "tag_list": registration.tags.join(","),
            "run_untagged": registration.run_untagged,
            "locked": registration.locked,
            "active": true,
            "info": runner_details(),
        });
        self.call(json_call(Method::POST, "/api/v4/runners", &body, SHORT_TIMEOUT)).await
    }

    pub(crate) async fn verify(&self, token: &str, system_id: &str) -> Result<ApiResponse, ConnectionError> {
        let body = json!({ "token": token, "system_id": system_id });
        self.call(json_call(Method::POST, "/api/v4/runners/verify", &body, SHORT_TIMEOUT)).await
    }

    pub(crate) async fn unregister(&self, token: &str) -> Result<ApiResponse, ConnectionError> {
        self.call(json_call(Method::DELETE, "/api/v4/runners", &json!({ "token": token }), SHORT_TIMEOUT)).await
    }

    /// Requests a job; the server may hold the request open for a while.
    pub(crate) async fn request_job(
        &self,
        token: &str,
        system_id: &str,
        last_update: &str,
    ) -> Result<ApiResponse, ConnectionError> {
        let body =
            json!({ "token": token, "system_id": system_id, "last_update": last_update, "info": runner_details() });
        self.call(json_call(Method::POST, "/api/v4/jobs/request", &body, LONG_POLL_TIMEOUT)).await
    }

    /// Appends a chunk to the trace at this offset.
    pub(crate) async fn append_trace(
        &self,
        job: &JobAuth,
        from: u64,
        chunk: Vec<u8>,
    ) -> Result<ApiResponse, ConnectionError> {
        let last = from + (chunk.len() as u64).max(1) - 1;
        self.call(ApiCall {
            method: Method::PATCH,
            path: format!("/api/v4/jobs/{}/trace", job.id),
            headers: vec![
                (JOB_TOKEN, job.token.clone()),
                (CONTENT_TYPE, "text/plain".to_owned()),
                (CONTENT_RANGE, format!("{from}-{last}")),
            ],
            body: full_body(chunk),
            timeout: SHORT_TIMEOUT,
        })
        .await
    }

    /// Reports that the job is still running.
    pub(crate) async fn keep_alive(&self, job: &JobAuth) -> Result<ApiResponse, ConnectionError> {
        self.update_job(job, &json!({ "token": job.token, "state": "running", "info": runner_details() })).await
    }

    /// Reports the result of the job.
    pub(crate) async fn finish(&self, job: &JobAuth, result: JobResult) -> Result<ApiResponse, ConnectionError> {
        let mut body = json!({ "token": job.token, "info": runner_details() });
        let (state, reason) = match result {
            JobResult::Success => ("success", None),
            JobResult::Script(_) => ("failed", Some("script_failure")),
            JobResult::TimedOut => ("failed", Some("job_execution_timeout")),
            JobResult::System => ("failed", Some("runner_system_failure")),
        };
        body["state"] = state.into();
        if let Some(reason) = reason {
            body["failure_reason"] = reason.into();
        }
        match result {
            JobResult::Success => body["exit_code"] = 0.into(),
            JobResult::Script(code) => body["exit_code"] = code.into(),
            JobResult::TimedOut | JobResult::System => {}
        }
        self.update_job(job, &body).await
    }

    async fn update_job(&self, job: &JobAuth, body: &Value) -> Result<ApiResponse, ConnectionError> {
        let mut call = json_call(Method::PUT, &format!("/api/v4/jobs/{}", job.id), body, SHORT_TIMEOUT);
        call.headers.push((JOB_TOKEN, job.token.clone()));
        self.call(call).await
    }

    /// Downloads the artifacts of another job.
    pub(crate) async fn download(
        &self,
        dependency: &Dependency,
        into: &mut File,
        max_bytes: u64,
    ) -> Result<DownloadOutcome, ConnectionError> {
        let call = ApiCall {
            method: Method::GET,
            path: format!("/api/v4/jobs/{}/artifacts", dependency.id),
            headers: vec![(JOB_TOKEN, dependency.token.clone())],
            body: full_body(Vec::new()),
            timeout: DOWNLOAD_START_TIMEOUT,
        };
        self.fetch(call, into, max_bytes).await
    }

    /// Uploads artifacts.
    pub(crate) async fn upload(
        &self,
        job: &JobAuth,
        artifact: &Artifact,
        name: &str,
        (file, size): (File, u64),
    ) -> Result<ApiResponse, ConnectionError> {
        let (mut headers, body): (_, Body) = multipart_body(file, size, name)
            .map_err(|error| ConnectionError(format!("cannot build the request: {error}")))?;
        headers.push((JOB_TOKEN, job.token.clone()));
        let path = format!("/api/v4/jobs/{}/artifacts?{}", job.id, artifact_query(artifact));
        self.call(ApiCall { method: Method::POST, path, headers, body, timeout: UPLOAD_TIMEOUT }).await
    }
}

/// The id and the token of a job, which authenticate requests.
pub(crate) struct JobAuth {
    pub(crate) id: u64,
    pub(crate) token: String,
}

fn json_call(method: Method, path: &str, body: &Value, timeout: Duration) -> ApiCall {
    ApiCall {
        method,
        path: path.to_owned(),
        headers: vec![(CONTENT_TYPE, "application/json".to_owned())],
        body: full_body(body.to_string()),
        timeout,
    }
}

/// Returns the query parameters of an upload of artifacts.
fn artifact_query(artifact: &Artifact) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let parameters = [
        ("expire_in", &artifact.expire_in),
        ("artifact_format", &artifact.artifact_format),
        ("artifact_type", &artifact.artifact_type),
    ];
    for (key, value) in parameters.into_iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(key, value);
    }
    query.finish()
}

/// Returns whether the server has ended the job.
pub(crate) fn is_ended(response: &ApiResponse) -> bool {
    matches!(response.header("job-status"), Some("canceled" | "failed"))
}

/// Returns whether the server rejects the job id or its token.
pub(crate) fn is_rejected(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND)
}

/// Returns how many bytes of the trace the server has, from the response to a PATCH.
pub(crate) fn stored_length(response: &ApiResponse) -> Option<u64> {
    response.header("range")?.rsplit_once('-')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_null_fields_get_defaults() {
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
        let minimal: Job = serde_json::from_value(json!({"id": 1, "token": "t"})).expect("a job");
        assert!(minimal.steps.is_empty() && minimal.git_info.refspecs.is_empty());
    }
}
