//! The navigation between the settings of a project.

use forge::ProjectAbility;
use model::Project;

use crate::{context::Viewer, links::ProjectLinks};

/// The pages of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingsPage {
    General,
    Members,
    Webhooks,
    Repository,
    Ci,
}

/// The links to those pages of the settings that the visitor may use.
pub(crate) struct SettingsNavigation {
    /// URL, label, and whether it is the current page.
    pub(crate) items: Vec<(String, &'static str, bool)>,
}

impl SettingsNavigation {
    pub(crate) fn new(project: &Project, viewer: &Viewer, current: SettingsPage) -> Self {
        let pages = [
            (SettingsPage::General, "settings/general", "General", ProjectAbility::ChangeProject),
            (SettingsPage::Members, "project_members", "Members", ProjectAbility::AdministerMembers),
            (SettingsPage::Webhooks, "hooks", "Webhooks", ProjectAbility::AdministerHooks),
            (SettingsPage::Repository, "settings/repository", "Repository", ProjectAbility::ProtectBranches),
            (SettingsPage::Ci, "settings/ci_cd", "CI/CD", ProjectAbility::AdministerCi),
        ];
        let links = ProjectLinks::new(&project.full_path());
        let allowed = pages.into_iter().filter(|(.., ability)| viewer.can_in(project, *ability));
        Self { items: allowed.map(|(page, word, label, _)| (links.to(word), label, page == current)).collect() }
    }
}
