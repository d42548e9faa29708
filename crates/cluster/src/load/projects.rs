//! The projects that clients write to.

use std::{net::SocketAddr, sync::atomic::AtomicBool};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{http::Client, nodes::TOKEN};

const PUSHERS: usize = 3;
const WRITERS: usize = 2;
const RUNNERS: usize = 2;
/// Two jobs, and one that follows them.
const CI_FILE: &str = "stages: [build, test]\n\
    one: {stage: build, script: make, artifacts: {paths: [a]}}\n\
    two: {stage: build, script: make, artifacts: {paths: [a]}}\n\
    three: {stage: test, script: make test, artifacts: {paths: [a]}}\n";

/// A project of the administrator.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    pub(crate) id: i64,
    path: String,
}

impl Project {
    /// Creates a project; returns it with the response.
    pub(crate) async fn create(client: &Client, name: String) -> Result<(Self, Value)> {
        let made = client.create("/api/v3/projects", &json!({ "name": name, "path": name })).await?;
        Ok((Self { id: made["id"].as_i64().context("a project has no id")?, path: name }, made))
    }

    /// Returns the URL of the repository at a node or the load balancer.
    pub(crate) fn url(&self, address: SocketAddr) -> String {
        format!("http://root:{TOKEN}@{address}/root/{}.git", self.path)
    }

    /// Returns the URL of the repository for SSH.
    pub(crate) fn ssh_url(&self, address: SocketAddr) -> String {
        format!("ssh://git@{}/root/{}.git", address.ip(), self.path)
    }

    /// Returns the path in the API.
    pub(crate) fn api(&self) -> String {
        format!("/api/v3/projects/{}", self.id)
    }

    /// Returns the path of an uploaded file.
    pub(crate) fn upload(&self, url: &str) -> String {
        format!("/root/{}{url}", self.path)
    }
}

/// All projects.
pub(crate) struct Projects {
    /// A project per client that pushes with git.
    pub(crate) pushed: Vec<Project>,
    /// A project per client that writes through the API.
    pub(crate) written: Vec<Project>,
    pub(crate) ci: Project,
    /// Tokens of runners of the project `ci`.
    pub(crate) runners: Vec<String>,
    pub(crate) probed: Project,
    pub(crate) probed_issue: i64,
    /// No more pipelines are wanted.
    pub(crate) stop_commits: AtomicBool,
}

impl Projects {
    /// Creates the projects with webhooks and runners.
    pub(crate) async fn create(client: &Client, receiver: SocketAddr, name: &str) -> Result<Self> {
        let (mut pushed, mut written) = (Vec::new(), Vec::new());
        for number in 0..PUSHERS {
            pushed.push(Project::create(client, format!("{name}-pushed-{number}")).await?.0);
        }
        for number in 0..WRITERS {
            written.push(Project::create(client, format!("{name}-written-{number}")).await?.0);
        }
        let (ci, made) = Project::create(client, format!("{name}-ci")).await?;
        let (probed, _) = Project::create(client, format!("{name}-probed")).await?;
        for project in pushed.iter().chain(&written).chain([&ci]) {
            let hook = json!({ "url": format!("http://{receiver}/"), "push_events": true });
            client.create(&format!("{}/hooks", project.api()), &hook).await?;
        }
        for project in written.iter().chain([&ci]) {
            let file = if project.id == ci.id { (".gitlab-ci.yml", CI_FILE) } else { ("README", "first") };
            let file =
                json!({ "file_path": file.0, "branch_name": "master", "content": file.1, "commit_message": "First" });
            client.create(&format!("{}/repository/files", project.api()), &file).await?;
        }
        let issue = client.create(&format!("{}/issues", probed.api()), &json!({ "title": "probed" })).await?;
        let mut runners = Vec::new();
        for number in 0..RUNNERS {
            let new = json!({ "token": made["runners_token"], "description": format!("runner {number}") });
            let registered = client.create("/ci/api/v1/runners/register.json", &new).await?;
            runners.push(registered["token"].as_str().context("a runner has no token")?.to_owned());
        }
        let probed_issue = issue["id"].as_i64().context("an issue has no id")?;
        Ok(Self { pushed, written, ci, runners, probed, probed_issue, stop_commits: AtomicBool::new(false) })
    }

    /// Returns the projects with repositories.
    pub(crate) fn with_repository(&self) -> impl Iterator<Item = &Project> {
        self.pushed.iter().chain(&self.written).chain([&self.ci])
    }
}
