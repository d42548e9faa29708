//! What happened to pages of the wiki.

use model::{Project, users::UserSummary};
use serde::Serialize;

use super::{
    Clerk,
    shared::{self, Place, ProjectJson, UserJson},
};

/// A page of the wiki that was written or changed.
#[derive(Clone, Copy)]
pub struct WikiPagePayload<'a> {
    /// Where.
    pub project: &'a Project,
    /// Who did it.
    pub user: &'a UserSummary,
    /// The branch that the wiki lives on.
    pub default_branch: &'a str,
    /// What the page is called.
    pub title: &'a str,
    /// What is on it.
    pub content: &'a str,
    /// How it is written: `markdown`, `rdoc` or `asciidoc`.
    pub format: &'a str,
    /// What the change is called; only told of a new page.
    pub message: Option<&'a str>,
    /// What the page is called in URLs.
    pub slug: &'a str,
    /// What was done: `create` or `update`.
    pub action: &'a str,
}

#[derive(Serialize)]
struct WikiPageHappeningJson<'a> {
    object_kind: &'static str,
    user: UserJson<'a>,
    project: ProjectJson<'a>,
    wiki: WikiJson<'a>,
    object_attributes: WikiPageJson<'a>,
}

#[derive(Serialize)]
struct WikiJson<'a> {
    web_url: String,
    git_ssh_url: String,
    git_http_url: String,
    path_with_namespace: String,
    default_branch: &'a str,
}

#[derive(Serialize)]
struct WikiPageJson<'a> {
    title: &'a str,
    content: &'a str,
    format: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    slug: &'a str,
    url: String,
    action: &'a str,
}

impl WikiPagePayload<'_> {
    /// The text of the payload.
    pub fn to_json(&self, clerk: &Clerk) -> String {
        let place = Place::new(self.project, clerk);
        let (web_url, wiki_path) = (&place.web_url, format!("{}.wiki", place.full_path));
        shared::text(&WikiPageHappeningJson {
            object_kind: "wiki_page",
            user: UserJson::new(self.user, clerk),
            project: place.project(),
            wiki: WikiJson {
                web_url: format!("{web_url}/wikis/home"),
                git_ssh_url: clerk.site.ssh_url(&wiki_path),
                git_http_url: format!("{web_url}.wiki.git"),
                path_with_namespace: wiki_path,
                default_branch: self.default_branch,
            },
            object_attributes: WikiPageJson {
                title: self.title,
                content: self.content,
                format: self.format,
                message: self.message.filter(|_| self.action == "create"),
                slug: self.slug,
                url: format!("{web_url}/wikis/{}", self.slug),
                action: self.action,
            },
        })
    }
}
