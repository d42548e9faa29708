//! JSON structures that several payloads share.

use model::{Commit, Project, Time, objects::Signature, users::UserSummary, webhook_events::ChangedPaths};
use serde::Serialize;

use super::JsonPayloadRenderer;

/// Serializes a payload.
pub(super) fn serialize(payload: &impl Serialize) -> String {
    serde_json::to_string(payload).expect("payloads have only string keys")
}

/// Formats a time in UTC, to the second.
pub(super) fn iso8601(time: Time) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A project with its URLs.
pub(super) struct ProjectLinks<'a> {
    project: &'a Project,
    full_path: String,
    pub(super) web_url: String,
    avatar_url: Option<String>,
    ssh_url: String,
    http_url: String,
}

impl<'a> ProjectLinks<'a> {
    pub(super) fn new(project: &'a Project, renderer: &JsonPayloadRenderer) -> Self {
        let full_path = project.full_path();
        let (web_url, ssh_url) = (renderer.site.page(&full_path), renderer.site.ssh_url(&full_path));
        let http_url = format!("{web_url}.git");
        let avatar_url = project.avatar_path().map(|path| renderer.site.url(&path));
        Self { project, full_path, web_url, avatar_url, ssh_url, http_url }
    }

    /// Returns the clone URL: over SSH, or over HTTP if SSH is disabled.
    fn url(&self) -> &str {
        if self.ssh_url.is_empty() { &self.http_url } else { &self.ssh_url }
    }

    /// The project, including URLs under their legacy names.
    pub(super) fn project(&self) -> ProjectJson<'_> {
        let (web_url, ssh_url) = (&self.web_url, &self.ssh_url);
        let legacy_urls = LegacyUrlsJson { homepage: web_url, url: self.url(), ssh_url, http_url: &self.http_url };
        ProjectJson { legacy_urls: Some(legacy_urls), ..self.project_without_legacy_urls() }
    }

    /// The project without legacy names.
    pub(super) fn project_without_legacy_urls(&self) -> ProjectJson<'_> {
        ProjectJson {
            name: &self.project.name,
            description: self.project.description.as_deref(),
            web_url: &self.web_url,
            avatar_url: self.avatar_url.as_deref(),
            git_ssh_url: &self.ssh_url,
            git_http_url: &self.http_url,
            namespace: &self.project.namespace.name,
            visibility_level: self.project.visibility.level(),
            path_with_namespace: &self.full_path,
            default_branch: self.project.default_branch.as_deref(),
            legacy_urls: None,
        }
    }

    /// The repository, without its clone URLs by protocol.
    pub(super) fn repository(&self) -> RepositoryJson<'_> {
        RepositoryJson {
            name: &self.project.name,
            url: self.url(),
            description: self.project.description.as_deref(),
            homepage: &self.web_url,
            urls: None,
        }
    }

    /// The repository, including its clone URLs by protocol.
    pub(super) fn repository_with_urls(&self) -> RepositoryJson<'_> {
        let urls = RepositoryUrlsJson {
            git_http_url: &self.http_url,
            git_ssh_url: &self.ssh_url,
            visibility_level: self.project.visibility.level(),
        };
        RepositoryJson { urls: Some(urls), ..self.repository() }
    }

    /// Returns the URL of a commit's page.
    pub(super) fn commit_url(&self, commit: impl std::fmt::Display) -> String {
        format!("{}/commit/{commit}", self.web_url)
    }
}

/// A project.
#[derive(Serialize)]
pub(super) struct ProjectJson<'a> {
    name: &'a str,
    description: Option<&'a str>,
    web_url: &'a str,
    avatar_url: Option<&'a str>,
    git_ssh_url: &'a str,
    git_http_url: &'a str,
    namespace: &'a str,
    visibility_level: i32,
    path_with_namespace: &'a str,
    default_branch: Option<&'a str>,
    #[serde(flatten)]
    legacy_urls: Option<LegacyUrlsJson<'a>>,
}

#[derive(Serialize)]
struct LegacyUrlsJson<'a> {
    homepage: &'a str,
    url: &'a str,
    ssh_url: &'a str,
    http_url: &'a str,
}

/// A repository; old receivers read it instead of the project.
#[derive(Serialize)]
pub(super) struct RepositoryJson<'a> {
    name: &'a str,
    url: &'a str,
    description: Option<&'a str>,
    homepage: &'a str,
    #[serde(flatten)]
    urls: Option<RepositoryUrlsJson<'a>>,
}

#[derive(Serialize)]
struct RepositoryUrlsJson<'a> {
    git_http_url: &'a str,
    git_ssh_url: &'a str,
    visibility_level: i32,
}

/// The user who caused an event, without id and email address.
#[derive(Serialize)]
pub(super) struct UserJson<'a> {
    name: &'a str,
    username: &'a str,
    avatar_url: String,
}

impl<'a> UserJson<'a> {
    pub(super) fn new(user: &'a UserSummary, renderer: &JsonPayloadRenderer) -> Self {
        Self { name: &user.name, username: &user.username, avatar_url: renderer.site.url(&user.avatar_path()) }
    }
}

/// A commit.
#[derive(Serialize)]
pub(super) struct CommitJson<'a> {
    id: String,
    message: &'a str,
    timestamp: String,
    url: String,
    author: AuthorJson<'a>,
    #[serde(flatten)]
    files: Option<FilesJson<'a>>,
}

/// The author of a commit.
#[derive(Serialize)]
struct AuthorJson<'a> {
    name: &'a str,
    email: &'a str,
}

/// The files that a commit changed.
#[derive(Serialize)]
struct FilesJson<'a> {
    added: &'a [String],
    modified: &'a [String],
    removed: &'a [String],
}

impl<'a> CommitJson<'a> {
    pub(super) fn new(commit: &'a Commit, links: &ProjectLinks<'_>) -> Self {
        Self {
            id: commit.id.to_string(),
            message: &commit.message,
            timestamp: commit.committer.timestamp(),
            url: links.commit_url(commit.id),
            author: AuthorJson::from(&commit.author),
            files: None,
        }
    }

    /// A commit of a push, whose author carries the time of the committer.
    pub(super) fn from_push(
        commit: &'a model::events::PushCommit,
        files: &'a ChangedPaths,
        links: &ProjectLinks<'_>,
    ) -> Self {
        let ChangedPaths { added, modified, removed } = files;
        Self {
            id: commit.id.to_string(),
            message: &commit.message,
            timestamp: commit.author.timestamp(),
            url: links.commit_url(commit.id),
            author: AuthorJson::from(&commit.author),
            files: Some(FilesJson { added, modified, removed }),
        }
    }
}

impl<'a> From<&'a Signature> for AuthorJson<'a> {
    fn from(signature: &'a Signature) -> Self {
        Self { name: &signature.name, email: &signature.email }
    }
}
