//! The layout of a seeded data set. It follows from the number of projects and the seed, so that the load test knows
//! the data without reading it.

use crate::{
    large_repository,
    rng::{Rng, capitalize},
};

/// The number of projects per group.
pub(crate) const PROJECTS_PER_GROUP: u64 = 10;
/// The id of the project with the large repository and all the issues.
pub(crate) const LARGE_PROJECT: u64 = 1;
/// The id of the administrator.
pub(crate) const ROOT_USER: u64 = 1;
/// The number of different small repositories; the others are copies.
pub(crate) const TEMPLATES: u64 = 4;
/// The first id of other users; ids of groups follow those of users.
const FIRST_USER: u64 = 2;

/// The layout of a data set.
pub(crate) struct Dataset {
    pub(crate) seed: u64,
    /// The number of users, equal to the number of projects.
    pub(crate) users: u64,
    pub(crate) groups: Vec<Group>,
    pub(crate) projects: Vec<SeededProject>,
}

/// A group.
pub(crate) struct Group {
    pub(crate) id: u64,
    pub(crate) path: String,
    pub(crate) visibility: u64,
    pub(crate) owner: u64,
}

/// A project.
pub(crate) struct SeededProject {
    pub(crate) id: u64,
    pub(crate) group: usize,
    /// The words of the name and the path.
    pub(crate) words: (&'static str, &'static str),
    pub(crate) visibility: u64,
    pub(crate) archived: bool,
    pub(crate) content: RepositoryContent,
}

/// The content of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepositoryContent {
    Empty,
    /// A copy of a template.
    Template(u64),
    Large,
}

/// How the load test uses a project, by the last digit of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProjectUse {
    /// It is only read.
    ReadOnly,
    /// The owner of the group changes it through the API.
    ApiWrites,
    /// The owner of the group pushes to it.
    Pushes,
    /// The owner of the group deletes its merged branches.
    BranchCleanup,
}

impl Dataset {
    pub(crate) fn new(projects: u64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let users = projects;
        let groups: Vec<Group> = (0..projects.div_ceil(PROJECTS_PER_GROUP))
            .map(|number| {
                let visibility = match rng.below(20) {
                    _ if number == 0 => 20,
                    0..14 => 20,
                    14..17 => 10,
                    _ => 0,
                };
                let path = format!("{}-{}", rng.word(), number + 1);
                Group { id: FIRST_USER + users + number, path, visibility, owner: FIRST_USER + number % users }
            })
            .collect();
        let projects = (1..=projects)
            .map(|id| {
                let group = usize::try_from((id - 1) / PROJECTS_PER_GROUP).unwrap_or(0);
                let visibility_level =
                    [0, 0, 0, 0, 10, 10, 20, 20, 20, 20][usize::try_from(rng.below(10)).unwrap_or(0)];
                let visibility = if id == LARGE_PROJECT { 20 } else { visibility_level.min(groups[group].visibility) };
                let archived = rng.below(20) == 0 && project_use(id) == ProjectUse::ReadOnly && id != LARGE_PROJECT;
                let content = match id {
                    LARGE_PROJECT => RepositoryContent::Large,
                    _ if id % 2 == 0 => RepositoryContent::Template(id / 2 % TEMPLATES),
                    _ => RepositoryContent::Empty,
                };
                SeededProject { id, group, words: (rng.word(), rng.word()), visibility, archived, content }
            })
            .collect();
        Self { seed, users, groups, projects }
    }

    /// Returns the first and the last user id, without the administrator.
    pub(crate) fn user_ids(&self) -> (u64, u64) {
        (FIRST_USER, FIRST_USER + self.users - 1)
    }

    pub(crate) fn group_of(&self, seeded: &SeededProject) -> &Group {
        &self.groups[seeded.group]
    }

    /// Returns the full path of a project.
    pub(crate) fn full_path(&self, seeded: &SeededProject) -> String {
        format!("{}/{}", self.group_of(seeded).path, seeded.path())
    }

    /// Returns the size of the large repository, which is smaller in small data sets.
    pub(crate) fn scale(&self) -> large_repository::Scale {
        let seed = usize::try_from(self.seed % (1 << 20)).unwrap_or(0);
        if self.projects.len() >= 1000 {
            large_repository::Scale {
                commits: 20_000,
                folders: 80,
                large_folder_files: 2000,
                branches: 500,
                tags: 500,
                seed,
            }
        } else {
            large_repository::Scale { commits: 300, folders: 10, large_folder_files: 20, branches: 20, tags: 20, seed }
        }
    }

    /// Returns the number of issues of the large project.
    pub(crate) fn issues(&self) -> u64 {
        if self.projects.len() >= 1000 { 6700 } else { 100 }
    }
}

impl SeededProject {
    pub(crate) fn name(&self) -> String {
        format!("{} {} {}", capitalize(self.words.0), capitalize(self.words.1), self.id)
    }

    pub(crate) fn path(&self) -> String {
        format!("{}-{}-{}", self.words.0, self.words.1, self.id)
    }

    pub(crate) fn used_for(&self) -> ProjectUse {
        project_use(self.id)
    }

    pub(crate) fn branch(&self) -> &'static str {
        if self.content == RepositoryContent::Large { "main" } else { "master" }
    }
}

fn project_use(project: u64) -> ProjectUse {
    match project % 10 {
        4 => ProjectUse::ApiWrites,
        8 => ProjectUse::Pushes,
        6 => ProjectUse::BranchCleanup,
        _ => ProjectUse::ReadOnly,
    }
}

/// Returns the access token of a user.
pub(crate) fn token_of(user: u64) -> String {
    if user == ROOT_USER { crate::server::TOKEN.into() } else { format!("load-test-user-{user:07}") }
}

/// Returns the username of a user.
pub(crate) fn username(user: u64) -> String {
    if user == ROOT_USER { "root".into() } else { format!("user{user}") }
}
