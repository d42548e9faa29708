//! Tags, by which the OpenAPI document groups operations.

/// A resource of the API. The document lists tags in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tag {
    Users,
    SshKeys,
    Emails,
    Sessions,
    AccessTokens,
    Groups,
    Namespaces,
    Projects,
    Members,
    DeployKeys,
    Uploads,
    Events,
    Branches,
    Tags,
    Commits,
    CommitStatuses,
    Repositories,
    RepositoryFiles,
    Labels,
    IssueBoards,
    Issues,
    Notes,
    Milestones,
    Markdown,
    ProjectHooks,
    SystemHooks,
    Pipelines,
    Builds,
    Triggers,
    Variables,
    Runners,
    CiLint,
    Instance,
    RunnerProtocol,
}

impl Tag {
    /// Returns the name, which operations refer to.
    pub(crate) fn name(self) -> &'static str {
        self.texts().0
    }

    /// Returns the description.
    pub(crate) fn description(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Users => ("Users", "Users, and the account of the current user"),
            Self::SshKeys => ("SSH keys", "SSH keys of users, for git over SSH"),
            Self::Emails => ("Email addresses", "Secondary email addresses of users"),
            Self::Sessions => ("Sessions", "Sign-in with a password"),
            Self::AccessTokens => ("Access tokens", "Personal access tokens"),
            Self::Groups => ("Groups", "Groups, which contain projects"),
            Self::Namespaces => ("Namespaces", "Namespaces of projects: groups and users"),
            Self::Projects => ("Projects", "Projects, with their stars, forks and shares"),
            Self::Members => ("Members", "Members of projects and groups, with their access levels"),
            Self::DeployKeys => ("Deploy keys", "SSH keys with read access to single projects"),
            Self::Uploads => ("Uploads", "Files uploaded to projects"),
            Self::Events => ("Events", "Activity of users and in projects"),
            Self::Branches => ("Branches", "Branches of repositories and their protection"),
            Self::Tags => ("Tags", "Tags of repositories and their releases"),
            Self::Commits => ("Commits", "Commits of repositories and comments on them"),
            Self::CommitStatuses => ("Commit statuses", "Results of builds and external checks of commits"),
            Self::Repositories => ("Repositories", "Folders, raw files, archives, comparisons and contributors"),
            Self::RepositoryFiles => ("Repository files", "Single files of repositories, read and changed by commits"),
            Self::Labels => ("Labels", "Labels of issues"),
            Self::IssueBoards => ("Issue boards", "Boards that show issues in one list per label"),
            Self::Issues => ("Issues", "Issues of projects"),
            Self::Notes => ("Notes", "Comments on issues"),
            Self::Milestones => ("Milestones", "Milestones of projects"),
            Self::Markdown => ("Markdown", "Markdown as HTML"),
            Self::ProjectHooks => ("Project hooks", "Webhooks of projects and their deliveries"),
            Self::SystemHooks => ("System hooks", "Webhooks of the instance and their deliveries"),
            Self::Pipelines => ("Pipelines", "CI pipelines"),
            Self::Builds => ("Builds", "Jobs of CI pipelines, with their traces and artifacts"),
            Self::Triggers => ("Triggers", "Tokens that start pipelines"),
            Self::Variables => ("Variables", "Variables that CI jobs receive"),
            Self::Runners => ("Runners", "Runners, which execute CI jobs"),
            Self::CiLint => ("CI lint", "Validation of CI files"),
            Self::Instance => ("Instance", "The version of the API and its OpenAPI document"),
            Self::RunnerProtocol => ("Runner protocol", "Requests of runners"),
        }
    }
}
