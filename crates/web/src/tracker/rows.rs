//! The rows of lists of issues.

use std::collections::HashMap;

use model::{Issue, IssueId, IssueState, labels::LabelSummary};

use crate::{
    links::{self, ProjectLinks},
    text::{self, Markup},
};

/// An issue in a list.
pub(crate) struct IssueRow {
    pub(crate) url: String,
    /// The number, with the path of the project in lists of several projects.
    pub(crate) reference: String,
    pub(crate) is_closed: bool,
    pub(crate) labels: Vec<Markup>,
    pub(crate) issue: Issue,
}

impl IssueRow {
    /// Creates the rows of the issues of one project.
    pub(crate) fn of_project(issues: Vec<Issue>, labels: &HashMap<IssueId, Vec<LabelSummary>>) -> Vec<Self> {
        issues.into_iter().map(|issue| Self::new(issue, labels, false)).collect()
    }

    /// Creates the rows of issues of several projects.
    pub(crate) fn of_projects(issues: Vec<Issue>, labels: &HashMap<IssueId, Vec<LabelSummary>>) -> Vec<Self> {
        issues.into_iter().map(|issue| Self::new(issue, labels, true)).collect()
    }

    fn new(issue: Issue, labels: &HashMap<IssueId, Vec<LabelSummary>>, shows_project: bool) -> Self {
        let links = ProjectLinks::new(&issue.project_path);
        let path = if shows_project { issue.project_path.as_str() } else { "" };
        Self {
            url: links.issue(issue.iid),
            reference: format!("{path}#{}", issue.iid),
            is_closed: issue.state == IssueState::Closed,
            labels: labels.get(&issue.id).map_or_else(Vec::new, |labels| chips(labels, &links)),
            issue,
        }
    }
}

/// Returns labels that lead to the open issues with them.
pub(crate) fn chips(labels: &[LabelSummary], links: &ProjectLinks) -> Vec<Markup> {
    labels.iter().map(|label| text::labels::chip(label, &label_url(links, &label.title))).collect()
}

/// Returns the URL of the open issues with a label.
pub(crate) fn label_url(links: &ProjectLinks, title: &str) -> String {
    format!("{}?label_name%5B%5D={}", links.to("issues"), links::encode_query(title))
}
