//! A simple reference implementation of the permission rules; `random_memberships` compares the forge with it.

use std::collections::{BTreeMap, BTreeSet};

use model::{NamespaceId, ProjectId, Role, Visibility};

pub(crate) const USERS: [&str; 8] = ["root", "ext", "gone", "ann", "bob", "cid", "dan", "eve"];
pub(crate) const ROOT: usize = 0;
pub(crate) const EXTERNAL: usize = 1;

/// The expiry of a membership or share, in days after the first day; it has ended once that day has begun.
pub(crate) type Until = Option<i8>;

/// Groups, projects and memberships, by their ids in the database.
#[derive(Default)]
pub(crate) struct ReferenceModel {
    pub(crate) today: i8,
    pub(crate) blocked: BTreeSet<usize>,
    pub(crate) groups: BTreeMap<NamespaceId, Group>,
    pub(crate) projects: BTreeMap<ProjectId, Project>,
    /// Role and expiry of each membership and share.
    pub(crate) project_members: BTreeMap<(ProjectId, usize), (Role, Until)>,
    pub(crate) group_members: BTreeMap<(NamespaceId, usize), (Role, Until)>,
    pub(crate) shares: BTreeMap<(ProjectId, NamespaceId), (Role, Until)>,
    pub(crate) stars: BTreeSet<(ProjectId, usize)>,
}

pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) parent: Option<NamespaceId>,
    pub(crate) visibility: Visibility,
    pub(crate) locked: bool,
}

pub(crate) struct Project {
    pub(crate) name: String,
    pub(crate) description: Option<&'static str>,
    pub(crate) home: ProjectHome,
    pub(crate) visibility: Visibility,
    pub(crate) archived: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum ProjectHome {
    Group(NamespaceId),
    User(usize),
}

impl ReferenceModel {
    pub(crate) fn active_role(&self, entry: Option<&(Role, Until)>) -> Option<Role> {
        entry.filter(|(_, until)| until.is_none_or(|day| day > self.today)).map(|(role, _)| *role)
    }

    /// Returns the group and its ancestors.
    pub(crate) fn ancestors(&self, group: NamespaceId) -> Vec<NamespaceId> {
        let mut path = vec![group];
        while let Some(parent) = self.groups[&path[path.len() - 1]].parent {
            path.push(parent);
        }
        path
    }

    pub(crate) fn role_in_group(&self, user: usize, group: NamespaceId) -> Option<Role> {
        self.ancestors(group).into_iter().filter_map(|id| self.active_role(self.group_members.get(&(id, user)))).max()
    }

    /// Returns the role of a share that has not expired and is allowed by the namespace of the project.
    pub(crate) fn active_share_role(&self, project: ProjectId, group: NamespaceId) -> Option<Role> {
        let locked = matches!(self.projects[&project].home, ProjectHome::Group(home) if self.groups[&home].locked);
        self.active_role(self.shares.get(&(project, group))).filter(|_| !locked)
    }

    /// Returns the highest role of a user in a project by any kind of membership.
    pub(crate) fn membership_role(&self, user: usize, project: ProjectId) -> Option<Role> {
        let direct = self.active_role(self.project_members.get(&(project, user)));
        let home = match self.projects[&project].home {
            ProjectHome::Group(group) => self.role_in_group(user, group),
            ProjectHome::User(owner) => (owner == user).then_some(Role::Owner),
        };
        let shared = self.groups.keys().filter_map(|group| {
            let (most, role) = (self.active_share_role(project, *group)?, self.role_in_group(user, *group)?);
            Some(most.min(role))
        });
        direct.max(home).max(shared.max())
    }

    pub(crate) fn is_open_to(user: usize, visibility: Visibility) -> bool {
        visibility >= if user == EXTERNAL { Visibility::Public } else { Visibility::Internal }
    }

    pub(crate) fn role(&self, user: usize, project: ProjectId) -> Option<Role> {
        if user == ROOT { Some(Role::Owner) } else { self.membership_role(user, project) }
    }

    pub(crate) fn sees(&self, user: usize, project: ProjectId) -> bool {
        self.role(user, project).is_some() || Self::is_open_to(user, self.projects[&project].visibility)
    }

    pub(crate) fn sees_group(&self, user: usize, group: NamespaceId) -> bool {
        let of_it = |project: &ProjectId| {
            self.projects[project].home == ProjectHome::Group(group)
                || self.active_share_role(*project, group).is_some()
        };
        user == ROOT
            || self.role_in_group(user, group).is_some()
            || Self::is_open_to(user, self.groups[&group].visibility)
            || self.projects.keys().any(|project| of_it(project) && self.sees(user, *project))
    }

    pub(crate) fn owns(&self, user: usize, project: ProjectId) -> bool {
        match self.projects[&project].home {
            ProjectHome::Group(group) => self.role_in_group(user, group) == Some(Role::Owner),
            ProjectHome::User(owner) => owner == user,
        }
    }

    pub(crate) fn matches(&self, project: ProjectId, search: &str) -> bool {
        let Project { name, description, home, .. } = &self.projects[&project];
        let home = match home {
            ProjectHome::Group(group) => &self.groups[group].name,
            ProjectHome::User(user) => USERS[*user],
        };
        [name, description.unwrap_or_default(), home]
            .iter()
            .any(|text| text.to_lowercase().contains(&search.to_lowercase()))
    }

    pub(crate) fn projects_with(&self, wanted: impl Fn(ProjectId) -> bool) -> BTreeSet<ProjectId> {
        self.projects.keys().copied().filter(|id| wanted(*id)).collect()
    }

    pub(crate) fn groups_with(&self, wanted: impl Fn(NamespaceId) -> bool) -> BTreeSet<NamespaceId> {
        self.groups.keys().copied().filter(|id| wanted(*id)).collect()
    }

    pub(crate) fn remove_project(&mut self, project: ProjectId) {
        self.projects.remove(&project);
        self.project_members.retain(|(id, _), _| *id != project);
        self.shares.retain(|(id, _), _| *id != project);
        self.stars.retain(|(id, _)| *id != project);
    }

    pub(crate) fn remove_group(&mut self, group: NamespaceId) {
        let gone: Vec<NamespaceId> =
            self.groups.keys().copied().filter(|id| self.ancestors(*id).contains(&group)).collect();
        for group in gone {
            for project in self.projects_with(|id| self.projects[&id].home == ProjectHome::Group(group)) {
                self.remove_project(project);
            }
            self.groups.remove(&group);
            self.group_members.retain(|(id, _), _| *id != group);
            self.shares.retain(|(_, id), _| *id != group);
        }
    }

    /// Returns whether a user is the only owner of a group whose membership does not expire.
    pub(crate) fn is_last_owner(&self, user: usize, group: NamespaceId) -> bool {
        let stays = |other: usize| self.group_members.get(&(group, other)) == Some(&(Role::Owner, None));
        self.active_role(self.group_members.get(&(group, user))) == Some(Role::Owner)
            && !(0..USERS.len()).any(|other| other != user && stays(other))
    }
}
