//! Who sees what and as what, as small and slow as it can be said: `policy_world` holds the forge against it.

use std::collections::{BTreeMap, BTreeSet};

use model::{Role, Visibility};

pub(crate) const USERS: [&str; 8] = ["root", "ext", "gone", "ann", "bob", "cid", "dan", "eve"];
pub(crate) const ROOT: usize = 0;
pub(crate) const EXTERNAL: usize = 1;

/// Days from the first one on; what ends on a day that has come counts no more.
pub(crate) type Until = Option<i8>;

/// The world as the rules see it, by numbers of the database.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) today: i8,
    pub(crate) blocked: BTreeSet<usize>,
    pub(crate) groups: BTreeMap<i64, Group>,
    pub(crate) projects: BTreeMap<i64, Project>,
    /// Level and end of a membership of a project or a group; and of a project in a group.
    pub(crate) project_members: BTreeMap<(i64, usize), (Role, Until)>,
    pub(crate) group_members: BTreeMap<(i64, usize), (Role, Until)>,
    pub(crate) shares: BTreeMap<(i64, i64), (Role, Until)>,
    pub(crate) stars: BTreeSet<(i64, usize)>,
}

pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) parent: Option<i64>,
    pub(crate) visibility: Visibility,
    pub(crate) locked: bool,
}

pub(crate) struct Project {
    pub(crate) name: String,
    pub(crate) description: Option<&'static str>,
    pub(crate) home: Home,
    pub(crate) visibility: Visibility,
    pub(crate) archived: bool,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Home {
    Group(i64),
    User(usize),
}

pub(crate) type Ids = BTreeSet<i64>;

impl World {
    pub(crate) fn live(&self, entry: Option<&(Role, Until)>) -> Option<Role> {
        entry.filter(|(_, until)| until.is_none_or(|day| day > self.today)).map(|(role, _)| *role)
    }

    /// The group and those in which it lives.
    pub(crate) fn upwards(&self, group: i64) -> Vec<i64> {
        let mut path = vec![group];
        while let Some(parent) = self.groups[&path[path.len() - 1]].parent {
            path.push(parent);
        }
        path
    }

    pub(crate) fn role_in_group(&self, user: usize, group: i64) -> Option<Role> {
        self.upwards(group).into_iter().filter_map(|id| self.live(self.group_members.get(&(id, user)))).max()
    }

    /// Whether a share is one: it has not ended, and the place of the project allows it.
    pub(crate) fn live_share(&self, project: i64, group: i64) -> Option<Role> {
        let locked = matches!(self.projects[&project].home, Home::Group(home) if self.groups[&home].locked);
        self.live(self.shares.get(&(project, group))).filter(|_| !locked)
    }

    /// What a user is to a project by belonging to it in any way.
    pub(crate) fn belongs(&self, user: usize, project: i64) -> Option<Role> {
        let direct = self.live(self.project_members.get(&(project, user)));
        let home = match self.projects[&project].home {
            Home::Group(group) => self.role_in_group(user, group),
            Home::User(owner) => (owner == user).then_some(Role::Owner),
        };
        let shared = self.groups.keys().filter_map(|group| {
            let (most, role) = (self.live_share(project, *group)?, self.role_in_group(user, *group)?);
            Some(most.min(role))
        });
        direct.max(home).max(shared.max())
    }

    pub(crate) fn open_to(user: usize, visibility: Visibility) -> bool {
        visibility >= if user == EXTERNAL { Visibility::Public } else { Visibility::Internal }
    }

    pub(crate) fn role(&self, user: usize, project: i64) -> Option<Role> {
        if user == ROOT { Some(Role::Owner) } else { self.belongs(user, project) }
    }

    pub(crate) fn sees(&self, user: usize, project: i64) -> bool {
        self.role(user, project).is_some() || Self::open_to(user, self.projects[&project].visibility)
    }

    pub(crate) fn sees_group(&self, user: usize, group: i64) -> bool {
        let of_it = |project: &i64| {
            self.projects[project].home == Home::Group(group) || self.live_share(*project, group).is_some()
        };
        user == ROOT
            || self.role_in_group(user, group).is_some()
            || Self::open_to(user, self.groups[&group].visibility)
            || self.projects.keys().any(|project| of_it(project) && self.sees(user, *project))
    }

    pub(crate) fn owns(&self, user: usize, project: i64) -> bool {
        match self.projects[&project].home {
            Home::Group(group) => self.role_in_group(user, group) == Some(Role::Owner),
            Home::User(owner) => owner == user,
        }
    }

    pub(crate) fn matches(&self, project: i64, search: &str) -> bool {
        let Project { name, description, home, .. } = &self.projects[&project];
        let home = match home {
            Home::Group(group) => &self.groups[group].name,
            Home::User(user) => USERS[*user],
        };
        [name, description.unwrap_or_default(), home]
            .iter()
            .any(|text| text.to_lowercase().contains(&search.to_lowercase()))
    }

    pub(crate) fn projects_with(&self, wanted: impl Fn(i64) -> bool) -> Ids {
        self.projects.keys().copied().filter(|id| wanted(*id)).collect()
    }

    pub(crate) fn groups_with(&self, wanted: impl Fn(i64) -> bool) -> Ids {
        self.groups.keys().copied().filter(|id| wanted(*id)).collect()
    }

    pub(crate) fn remove_project(&mut self, project: i64) {
        self.projects.remove(&project);
        self.project_members.retain(|(id, _), _| *id != project);
        self.shares.retain(|(id, _), _| *id != project);
        self.stars.retain(|(id, _)| *id != project);
    }

    pub(crate) fn remove_group(&mut self, group: i64) {
        let gone: Vec<i64> = self.groups.keys().copied().filter(|id| self.upwards(*id).contains(&group)).collect();
        for group in gone {
            for project in self.projects_with(|id| self.projects[&id].home == Home::Group(group)) {
                self.remove_project(project);
            }
            self.groups.remove(&group);
            self.group_members.retain(|(id, _), _| *id != group);
            self.shares.retain(|(_, id), _| *id != group);
        }
    }

    /// Whether a group would have no owner who stays if this one went.
    pub(crate) fn is_last_owner(&self, user: usize, group: i64) -> bool {
        let stays = |other: usize| self.group_members.get(&(group, other)) == Some(&(Role::Owner, None));
        self.live(self.group_members.get(&(group, user))) == Some(Role::Owner)
            && !(0..USERS.len()).any(|other| other != user && stays(other))
    }
}
