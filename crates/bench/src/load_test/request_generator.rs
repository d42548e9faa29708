//! Random API requests to a seeded data set.

use serde_json::Value;

use crate::{
    rng::Rng,
    seed::{
        BOARD_LISTS, LABELS, WRITE_PROJECT_LABELS, WRITE_PROJECT_LISTS,
        dataset::{Dataset, Group, LARGE_PROJECT, ProjectUse, ROOT_USER, RepositoryContent, SeededProject, token_of},
    },
};

/// An API request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiRequest {
    pub(crate) method: &'static str,
    /// The target, relative to `/api/v3`.
    pub(crate) target: String,
    pub(crate) token: String,
    /// The content type and the body.
    pub(crate) body: Option<(&'static str, String)>,
}

/// The last request that prepared data, and its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) request: ApiRequest,
    pub(crate) response: Value,
}

/// Ids of objects of the large repository.
#[derive(Default)]
pub(crate) struct RepositoryIds {
    /// The newest commits, newest first.
    pub(crate) commits: Vec<String>,
    /// The files of one folder.
    pub(crate) blobs: Vec<String>,
}

/// Generates random requests.
pub(crate) struct RequestGenerator<'a> {
    pub(crate) dataset: &'a Dataset,
    pub(crate) repository_ids: RepositoryIds,
    pub(crate) rng: Rng,
    /// Part of generated names, so that several runs on one data set do not collide.
    run: u64,
    created: u64,
    write_projects: Vec<&'a SeededProject>,
    cleanup_projects: Vec<&'a SeededProject>,
    pub(crate) push_projects: Vec<&'a SeededProject>,
    /// Read-only projects with a small repository that are visible to all users.
    read_projects: Vec<&'a SeededProject>,
    /// Projects that are visible to all users.
    visible_projects: Vec<&'a SeededProject>,
    visible_groups: Vec<&'a Group>,
}

impl<'a> RequestGenerator<'a> {
    pub(crate) fn new(dataset: &'a Dataset, run: u64) -> Self {
        let with = |project_use: ProjectUse| {
            dataset.projects.iter().filter(move |seeded| seeded.used_for() == project_use).collect()
        };
        let visible_projects: Vec<&SeededProject> =
            dataset.projects.iter().filter(|seeded| seeded.visibility > 0).collect();
        let is_read_project = |seeded: &&&SeededProject| {
            seeded.used_for() == ProjectUse::ReadOnly && matches!(seeded.content, RepositoryContent::Template(_))
        };
        let read_projects = visible_projects.iter().filter(is_read_project).copied().collect();
        let visible_groups = dataset.groups.iter().filter(|group| group.visibility > 0).collect();
        let (write_projects, cleanup_projects, push_projects) =
            (with(ProjectUse::ApiWrites), with(ProjectUse::BranchCleanup), with(ProjectUse::Pushes));
        let (rng, repository_ids) = (Rng::new(run), RepositoryIds::default());
        Self {
            dataset,
            repository_ids,
            rng,
            run,
            created: 0,
            write_projects,
            cleanup_projects,
            push_projects,
            read_projects,
            visible_projects,
            visible_groups,
        }
    }

    /// Returns a unique name.
    pub(crate) fn unique_name(&mut self) -> String {
        self.created += 1;
        format!("load-{}-{}", self.run, self.created)
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index_below(all.len())]
    }

    /// Returns a random index below `count`.
    pub(crate) fn index_below(&mut self, count: usize) -> usize {
        usize::try_from(self.rng.below(count.max(1) as u64)).unwrap_or(0)
    }

    /// Returns a random user id, except of users that are blocked during the test.
    pub(crate) fn user_id(&mut self) -> u64 {
        let (first, last) = self.dataset.user_ids();
        self.rng.range(first, last - self.dataset.users / 10)
    }

    /// Returns the token of a random user.
    pub(crate) fn user_token(&mut self) -> String {
        token_of(self.user_id())
    }

    /// Returns the id of a user to block; the users take turns.
    pub(crate) fn blockable_user(&mut self) -> u64 {
        self.created += 1;
        self.dataset.user_ids().1 - self.created % (self.dataset.users / 10)
    }

    /// Returns a project to change; the projects take turns.
    pub(crate) fn write_project(&mut self) -> &'a SeededProject {
        self.created += 1;
        self.write_projects[usize::try_from(self.created).unwrap_or(0) % self.write_projects.len()]
    }

    pub(crate) fn cleanup_project(&mut self) -> &'a SeededProject {
        self.created += 1;
        self.cleanup_projects[usize::try_from(self.created).unwrap_or(0) % self.cleanup_projects.len()]
    }

    pub(crate) fn read_project(&mut self) -> &'a SeededProject {
        let read_projects = std::mem::take(&mut self.read_projects);
        let picked = self.pick(&read_projects);
        self.read_projects = read_projects;
        picked
    }

    /// Returns a random project that is visible to all users.
    pub(crate) fn visible_project(&mut self) -> &'a SeededProject {
        let visible_projects = std::mem::take(&mut self.visible_projects);
        let picked = self.pick(&visible_projects);
        self.visible_projects = visible_projects;
        picked
    }

    pub(crate) fn visible_group(&mut self) -> &'a Group {
        let groups = std::mem::take(&mut self.visible_groups);
        let picked = self.pick(&groups);
        self.visible_groups = groups;
        picked
    }

    /// Returns the id of the large project two times out of three, and of a small one otherwise.
    pub(crate) fn readable_project_id(&mut self) -> u64 {
        if self.rng.below(3) < 2 { LARGE_PROJECT } else { self.read_project().id }
    }

    /// Returns the token of the owner of a project's group.
    pub(crate) fn owner_token(&self, seeded: &SeededProject) -> String {
        token_of(self.dataset.group_of(seeded).owner)
    }

    /// Returns the id of a seeded label of a project to change.
    pub(crate) fn label_id(seeded: &SeededProject, title: &str) -> u64 {
        let index = WRITE_PROJECT_LABELS.iter().position(|label| *label == title).unwrap_or(0) as u64;
        LABELS + 1 + (seeded.id - 4) / 10 * WRITE_PROJECT_LABELS.len() as u64 + index
    }

    /// Returns the id of the second seeded board list of a project to change.
    pub(crate) fn list_id(seeded: &SeededProject) -> u64 {
        BOARD_LISTS + WRITE_PROJECT_LISTS * ((seeded.id - 4) / 10) + 2
    }

    /// Returns the id of the seeded hook of a project to change; the system hook and the hook of the large project come
    /// first.
    pub(crate) fn hook_id(seeded: &SeededProject) -> u64 {
        3 + (seeded.id - 4) / 10
    }

    /// Returns a user with a seeded SSH key, and the id of the key.
    pub(crate) fn user_with_key(&mut self) -> (u64, u64) {
        let user = self.rng.range(1, self.dataset.users * 9 / 10 / 5) * 5;
        (user, user / 5)
    }

    /// Returns a user with a second email address, and the id of the address.
    pub(crate) fn user_with_email(&mut self) -> (u64, u64) {
        let user = self.rng.range(1, self.dataset.users * 9 / 10 / 3) * 3;
        (user, self.dataset.user_ids().1 + user / 3)
    }

    pub(crate) fn new_key(&mut self) -> String {
        crate::seed::public_key_line([self.rng.bytes(), self.rng.bytes()].concat().as_slice())
    }
}

impl ApiRequest {
    pub(crate) fn get(token: String, target: String) -> Self {
        Self { method: "GET", target, token, body: None }
    }

    pub(crate) fn delete(token: String, target: String) -> Self {
        Self { method: "DELETE", target, token, body: None }
    }

    pub(crate) fn post(token: String, target: String, body: &Value) -> Self {
        Self { method: "POST", target, token, body: Some(("application/json", body.to_string())) }
    }

    pub(crate) fn put(token: String, target: String, body: &Value) -> Self {
        Self { method: "PUT", ..Self::post(token, target, body) }
    }

    /// Returns a request by the same user to a path below the target.
    pub(crate) fn child(&self, method: &'static str, step: &str) -> Self {
        Self { method, target: format!("{}/{step}", self.target), token: self.token.clone(), body: None }
    }

    /// Returns a request by the same user to the same target with another method.
    pub(crate) fn with_method(&self, method: &'static str) -> Self {
        Self { method, body: None, ..self.clone() }
    }

    /// Returns a request by the same user to the parent of the target.
    pub(crate) fn parent(&self) -> Self {
        let target = self.target.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
        Self { target, body: None, ..self.clone() }
    }
}

/// Returns the token of the administrator.
pub(crate) fn root() -> String {
    token_of(ROOT_USER)
}

/// Formats a number of a response.
pub(crate) fn number(value: &Value) -> String {
    value.as_u64().unwrap_or(0).to_string()
}
