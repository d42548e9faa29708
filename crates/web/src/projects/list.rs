//! Projects in lists.

use model::{Project, Time, Visibility};

use crate::links;

/// A project in a list.
pub(crate) struct ListedProject {
    pub(crate) full_path: String,
    pub(crate) url: String,
    pub(crate) description: Option<String>,
    /// `None` if it is public, which is usual.
    pub(crate) restriction: Option<&'static str>,
    pub(crate) archived: bool,
    pub(crate) stars: i64,
    pub(crate) last_activity_at: Time,
}

impl ListedProject {
    pub(crate) fn new(project: Project) -> Self {
        let full_path = project.full_path();
        Self {
            url: links::page(&full_path),
            full_path,
            description: project.description.filter(|text| !text.trim().is_empty()),
            restriction: (project.visibility != Visibility::Public).then(|| project.visibility.as_str()),
            archived: project.archived,
            stars: project.star_count,
            last_activity_at: project.last_activity_at,
        }
    }
}
