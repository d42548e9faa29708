//! What payloads of several kinds have in common.

use model::{Commit, Project, Time, objects::Signature, users::UserSummary, webhook_events::FileLists};
use serde::Serialize;

use super::Clerk;

/// The text of a payload.
pub(super) fn text(payload: &impl Serialize) -> String {
    serde_json::to_string(payload).expect("names of fields are text, and nothing else can fail")
}

/// A moment to the second, in UTC.
pub(super) fn iso8601(time: Time) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A project, and where it is found.
pub(super) struct Place<'a> {
    pub(super) project: &'a Project,
    pub(super) full_path: String,
    pub(super) web_url: String,
    ssh_url: String,
    http_url: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(project: &'a Project, clerk: &Clerk) -> Self {
        let full_path = project.full_path();
        let (web_url, ssh_url) = (clerk.site.page(&full_path), clerk.site.ssh_url(&full_path));
        let http_url = format!("{web_url}.git");
        Self { project, full_path, web_url, ssh_url, http_url }
    }

    /// Where the repository is cloned from: over SSH, or over HTTP where SSH is not served.
    fn url(&self) -> &str {
        if self.ssh_url.is_empty() { &self.http_url } else { &self.ssh_url }
    }

    /// The project, with some of it under old names, too.
    pub(super) fn project(&self) -> ProjectJson<'_> {
        let (web_url, ssh_url) = (&self.web_url, &self.ssh_url);
        let old_names = OldNamesJson { homepage: web_url, url: self.url(), ssh_url, http_url: &self.http_url };
        ProjectJson { old_names: Some(old_names), ..self.short_project() }
    }

    /// The project without old names.
    pub(super) fn short_project(&self) -> ProjectJson<'_> {
        ProjectJson {
            name: &self.project.name,
            description: self.project.description.as_deref(),
            web_url: &self.web_url,
            avatar_url: None,
            git_ssh_url: &self.ssh_url,
            git_http_url: &self.http_url,
            namespace: &self.project.namespace.name,
            visibility_level: self.project.visibility.level(),
            path_with_namespace: &self.full_path,
            default_branch: self.project.default_branch.as_deref(),
            old_names: None,
        }
    }

    /// The repository in its narrow form.
    pub(super) fn repository(&self) -> RepositoryJson<'_> {
        RepositoryJson {
            name: &self.project.name,
            url: self.url(),
            description: self.project.description.as_deref(),
            homepage: &self.web_url,
            wide: None,
        }
    }

    /// The repository in its wide form.
    pub(super) fn wide_repository(&self) -> RepositoryJson<'_> {
        let wide = WideJson {
            git_http_url: &self.http_url,
            git_ssh_url: &self.ssh_url,
            visibility_level: self.project.visibility.level(),
        };
        RepositoryJson { wide: Some(wide), ..self.repository() }
    }

    /// The page of a commit.
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
    old_names: Option<OldNamesJson<'a>>,
}

#[derive(Serialize)]
struct OldNamesJson<'a> {
    homepage: &'a str,
    url: &'a str,
    ssh_url: &'a str,
    http_url: &'a str,
}

/// A repository: old receivers read it instead of the project.
#[derive(Serialize)]
pub(super) struct RepositoryJson<'a> {
    name: &'a str,
    url: &'a str,
    description: Option<&'a str>,
    homepage: &'a str,
    #[serde(flatten)]
    wide: Option<WideJson<'a>>,
}

#[derive(Serialize)]
struct WideJson<'a> {
    git_http_url: &'a str,
    git_ssh_url: &'a str,
    visibility_level: i32,
}

/// Somebody who did something, without number and address.
#[derive(Serialize)]
pub(super) struct UserJson<'a> {
    name: &'a str,
    username: &'a str,
    avatar_url: String,
}

impl<'a> UserJson<'a> {
    pub(super) fn new(user: &'a UserSummary, clerk: &Clerk) -> Self {
        Self { name: &user.name, username: &user.username, avatar_url: clerk.site.identicon(&user.username) }
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

/// Who wrote a commit.
#[derive(Serialize)]
struct AuthorJson<'a> {
    name: &'a str,
    email: &'a str,
}

/// What a commit did to files.
#[derive(Serialize)]
struct FilesJson<'a> {
    added: &'a [String],
    modified: &'a [String],
    removed: &'a [String],
}

impl<'a> CommitJson<'a> {
    pub(super) fn new(commit: &'a Commit, place: &Place<'_>) -> Self {
        Self {
            id: commit.id.to_string(),
            message: &commit.message,
            timestamp: commit.committer.timestamp(),
            url: place.commit_url(commit.id),
            author: AuthorJson::from(&commit.author),
            files: None,
        }
    }

    /// A commit that came with a push; whoever wrote down the push noted the moment of the committer.
    pub(super) fn pushed(commit: &'a model::events::PushCommit, files: &'a FileLists, place: &Place<'_>) -> Self {
        let FileLists { added, modified, removed } = files;
        Self {
            id: commit.id.to_string(),
            message: &commit.message,
            timestamp: commit.author.timestamp(),
            url: place.commit_url(commit.id),
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
