//! The head of every page of a group.

use forge::GroupAbility;
use model::{Namespace, Role, Visibility};

use crate::links;

/// The pages of a group that its navigation links to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupTab {
    Projects,
    Issues,
    Members,
    Settings,
}

/// The head of every page of a group.
pub(crate) struct GroupHead {
    pub(crate) name: String,
    pub(crate) full_path: String,
    pub(crate) url: String,
    pub(crate) visibility: Visibility,
    pub(crate) is_signed_in: bool,
    pub(crate) can_change: bool,
    tab: GroupTab,
}

impl GroupHead {
    /// Creates the head for a visitor with this role in the group.
    pub(crate) fn new(group: &Namespace, role: Option<Role>, is_signed_in: bool, tab: GroupTab) -> Self {
        Self {
            name: group.name.clone(),
            url: links::page(&group.full_path),
            full_path: group.full_path.clone(),
            visibility: group.visibility,
            is_signed_in,
            can_change: is_signed_in && GroupAbility::ChangeGroup.is_granted_to(role),
            tab,
        }
    }

    /// Returns whether a page of the navigation is the current one.
    pub(crate) fn current(&self, tab: GroupTab) -> bool {
        self.tab == tab
    }

    /// Returns the URL of a page of the group, such as `group_members`.
    pub(crate) fn to(&self, word: &str) -> String {
        links::in_group(&self.full_path, word)
    }
}
