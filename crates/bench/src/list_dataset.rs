//! The data set of the list benchmark, as deterministic SQL for either engine.
//!
//! The rows are those that the server itself would write; its triggers fill the counters, ancestors and indexes. The
//! memberships of the measured users do not depend on the number of projects; only the rest grows.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use crate::{
    engine::EngineKind,
    rng::{Rng, capitalize, word},
    sql::{MINUTE, START, bool_literal, bytes_literal, insert},
};

/// The token of a user with about a hundred memberships.
pub(crate) const MEMBER_TOKEN: &str = "bench-typical-member";
/// The token of an external user with three memberships.
pub(crate) const GUEST_TOKEN: &str = "bench-external-guest";
/// A word in the descriptions of twenty projects, independent of their number.
pub(crate) const RARE_WORD: &str = "zeppelin";
/// A word in three out of ten descriptions.
pub(crate) const COMMON_WORD: &str = "service";
/// A group with two hundred projects, of which no measured user is a member.
pub(crate) const MIDDLE_GROUP: u64 = FIRST_GROUP + OWN_GROUPS;
/// A group with a thousand projects, in sufficiently large data sets.
pub(crate) const LARGE_GROUP: u64 = MIDDLE_GROUP + 1;

const USERS: u64 = 1000;
const GROUPS: u64 = 1000;
const GROUP_MEMBERSHIPS: usize = 50_000;
const PROJECT_MEMBERSHIPS: usize = 50_000;
const SHARES: u64 = 2000;
const STARS: usize = 10_000;

/// Id 1 is the administrator, who already exists; a personal namespace has the id of its owner.
pub(crate) const MEMBER: u64 = 2;
const GUEST: u64 = 3;
const FIRST_OTHER: u64 = 4;
const LAST_USER: u64 = USERS + 1;
const FIRST_GROUP: u64 = 2001;
/// The groups of the member, with five projects each.
const OWN_GROUPS: u64 = 50;
const GUEST_GROUP: u64 = LARGE_GROUP + 1;
/// The number of projects from which the large group has a thousand.
const MIN_PROJECTS_FOR_LARGE_GROUP: u64 = 10_000;

/// Returns the statements that fill a new database with the given number of projects.
pub(crate) fn statements(kind: EngineKind, projects: u64) -> Vec<String> {
    ListDataset { kind, projects, rng: Rng::new(projects), statements: Vec::new() }.build()
}

/// Returns the id of a project in the first group of the member.
pub(crate) fn member_project(projects: u64) -> u64 {
    (1..=projects).find(|number| shuffled_index(*number, projects) == 0).unwrap_or(1)
}

struct ListDataset {
    kind: EngineKind,
    projects: u64,
    rng: Rng,
    statements: Vec<String>,
}

/// The namespace of a project.
struct ProjectLocation {
    namespace: u64,
    /// The owner, if it is a personal namespace.
    owner: Option<u64>,
}

impl ListDataset {
    fn build(mut self) -> Vec<String> {
        self.add_users();
        let visibilities = self.add_groups();
        let locations = self.add_projects(&visibilities);
        self.add_group_members();
        self.add_project_members(&locations);
        self.add_shares(&locations);
        self.add_stars();
        self.statements
    }

    fn insert(&mut self, table: &str, columns: &str, rows: &[String]) {
        insert(&mut self.statements, table, columns, rows);
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        bytes_literal(self.kind, bytes)
    }

    fn add_users(&mut self) {
        let (mut users, mut emails, mut namespaces) = (Vec::new(), Vec::new(), Vec::new());
        for id in MEMBER..=LAST_USER {
            let (name, username) =
                (format!("{} {}", capitalize(word(id)), capitalize(word(id / 7))), format!("user{id}"));
            let (search, at) = (format!("{name}\n{username}").to_lowercase(), START + id * MINUTE);
            let external = bool_literal(id == GUEST);
            users.push(format!(
                "({id},'{username}','{name}','{username}@example.org','{search}','none','active',FALSE,{external},TRUE,\
                 100000,'','','','',{at},{at},{at})"
            ));
            emails.push(format!("({id},'{username}@example.org',TRUE,{at})"));
            namespaces.push(format!(
                "({id},'user',{id},'{username}','{username}','{username}','{username}','{username}',{at},{at})"
            ));
        }
        self.insert(
            "users",
            "id,username,name,email,search_text,password_hash,state,admin,external,can_create_group,projects_limit,\
             skype,linkedin,twitter,website_url,confirmed_at,created_at,updated_at",
            &users,
        );
        self.insert("emails", "user_id,email,is_primary,created_at", &emails);
        let columns = "id,kind,owner_id,name,path,full_path,name_key,path_key,created_at,updated_at";
        self.insert("namespaces", columns, &namespaces);
        let tokens: Vec<String> = [(MEMBER, MEMBER_TOKEN), (GUEST, GUEST_TOKEN)]
            .into_iter()
            .map(|(user, token)| {
                let digest = self.bytes(&Sha256::digest(token));
                format!("({user},'bench',{digest},'api',{START})")
            })
            .collect();
        self.insert("tokens", "user_id,name,digest,scopes,created_at", &tokens);
    }

    /// Adds the groups; returns their visibility levels.
    fn add_groups(&mut self) -> Vec<u64> {
        let (mut groups, mut visibilities) = (Vec::new(), Vec::new());
        for number in 0..GROUPS {
            let visibility = match self.rng.below(20) {
                _ if FIRST_GROUP + number == LARGE_GROUP => 20,
                0..14 => 20,
                14..17 => 10,
                _ => 0,
            };
            let (id, at) = (FIRST_GROUP + number, START + number * MINUTE);
            let name = format!("{} {number}", capitalize(word(number)));
            let path = format!("{}-{number}", word(number));
            groups.push(format!(
                "({id},'group','{name}','{path}','{path}','{}','{path}','The {} team',{visibility},{at},{at})",
                name.to_lowercase(),
                word(number / 3),
            ));
            visibilities.push(visibility);
        }
        let columns = "id,kind,name,path,full_path,name_key,path_key,description,visibility,created_at,updated_at";
        self.insert("namespaces", columns, &groups);
        visibilities
    }

    fn add_projects(&mut self, group_visibilities: &[u64]) -> Vec<ProjectLocation> {
        let (mut rows, mut locations) = (Vec::new(), Vec::new());
        for id in 1..=self.projects {
            let shuffled = shuffled_index(id, self.projects);
            let namespace = self.namespace_for(shuffled);
            let owner = (namespace < FIRST_GROUP).then_some(namespace);
            let visibility_level = match self.rng.below(100) {
                0..42 => 0,
                42..65 => 10,
                _ => 20,
            };
            let max_visibility =
                namespace.checked_sub(FIRST_GROUP).and_then(|at| group_visibilities.get(usize::try_from(at).ok()?));
            let visibility = visibility_level.min(max_visibility.copied().unwrap_or(20));
            let noun = match shuffled {
                // Twenty projects, some of which the member sees.
                _ if shuffled % 10 == 7 && shuffled / 10 >= 10 && shuffled / 10 < 30 => RARE_WORD,
                _ if self.rng.below(10) < 3 => COMMON_WORD,
                _ => "library",
            };
            let creator = owner.unwrap_or(FIRST_OTHER);
            rows.push(project_row(self.kind, &mut self.rng, &ProjectRow { id, namespace, creator, visibility, noun }));
            locations.push(ProjectLocation { namespace, owner });
        }
        self.insert("projects", PROJECT_COLUMNS, &rows);
        locations
    }

    fn namespace_for(&mut self, shuffled: u64) -> u64 {
        let large_ends = if self.projects >= MIN_PROJECTS_FOR_LARGE_GROUP { 1460 } else { 460 };
        match shuffled {
            0..250 => FIRST_GROUP + shuffled / 5,
            250..260 => MEMBER,
            260..460 => MIDDLE_GROUP,
            _ if shuffled < large_ends => LARGE_GROUP,
            _ if self.rng.below(10) < 7 => self.rng.range(GUEST_GROUP, FIRST_GROUP + GROUPS - 1),
            _ => self.rng.range(FIRST_OTHER, LAST_USER),
        }
    }

    fn add_group_members(&mut self) {
        let mut members = Members::default();
        for group in FIRST_GROUP..FIRST_GROUP + GROUPS {
            members.add(group, FIRST_OTHER + group % (USERS - 2), 50);
        }
        for (number, group) in (FIRST_GROUP..FIRST_GROUP + OWN_GROUPS).enumerate() {
            members.add(group, MEMBER, if number < 10 { 50 } else { self.rng.access_level() });
        }
        members.add(GUEST_GROUP, GUEST, 10);
        for user in FIRST_OTHER..FIRST_OTHER + 500 {
            members.add(MIDDLE_GROUP, user, self.rng.access_level());
            members.add(LARGE_GROUP, user, self.rng.access_level());
        }
        while members.rows.len() < GROUP_MEMBERSHIPS {
            let group = self.rng.range(FIRST_GROUP, FIRST_GROUP + GROUPS - 1);
            members.add(group, self.rng.range(FIRST_OTHER, LAST_USER), self.rng.access_level());
        }
        self.insert("group_members", "group_id,user_id,access_level,expires_at,created_at", &members.rows);
    }

    fn add_project_members(&mut self, locations: &[ProjectLocation]) {
        let mut members = Members::default();
        for (id, location) in (1..).zip(locations) {
            // The creator of a personal project is its master.
            if let Some(owner) = location.owner {
                members.add(id, owner, 40);
            }
            // From the end, away from the groups of the member and the large groups.
            let from_end = self.projects - 1 - shuffled_index(id, self.projects);
            if from_end < 500 && from_end.is_multiple_of(10) {
                members.add(id, MEMBER, self.rng.access_level());
            }
            if matches!(from_end, 5 | 15) {
                members.add(id, GUEST, 20);
            }
        }
        while members.rows.len() < PROJECT_MEMBERSHIPS {
            let project = self.rng.range(1, self.projects);
            members.add(project, self.rng.range(FIRST_OTHER, LAST_USER), self.rng.access_level());
        }
        self.insert("project_members", "project_id,user_id,access_level,expires_at,created_at", &members.rows);
    }

    fn add_shares(&mut self, locations: &[ProjectLocation]) {
        let (mut rows, mut seen) = (Vec::new(), HashSet::new());
        let mut number = 0;
        while number < SHARES {
            // The same number of shares for each group.
            let (project, group) = (self.rng.range(1, self.projects), FIRST_GROUP + number % GROUPS);
            let location = usize::try_from(project - 1).ok().and_then(|at| locations.get(at));
            if location.is_some_and(|location| location.namespace != group) && seen.insert((project, group)) {
                rows.push(format!("({project},{group},{},{START})", self.rng.access_level()));
                number += 1;
            }
        }
        self.insert("project_shares", "project_id,group_id,group_access,created_at", &rows);
    }

    fn add_stars(&mut self) {
        let (mut rows, mut seen) = (Vec::new(), HashSet::new());
        for id in 1..=self.projects {
            let from_end = self.projects - 1 - shuffled_index(id, self.projects);
            if from_end < 500 && from_end % 5 == 2 {
                rows.push(format!("({MEMBER},{id},{START})"));
            }
        }
        while rows.len() < STARS {
            let (user, project) = (self.rng.range(FIRST_OTHER, LAST_USER), self.rng.range(1, self.projects));
            if seen.insert((user, project)) {
                rows.push(format!("({user},{project},{START})"));
            }
        }
        self.insert("project_stars", "user_id,project_id,created_at", &rows);
    }
}

/// The columns of a row of [`project_row`].
pub(crate) const PROJECT_COLUMNS: &str = "id,namespace_id,creator_id,name,path,name_key,path_key,search_text,description,visibility,archived,\
     issues_enabled,merge_requests_enabled,wiki_enabled,builds_enabled,snippets_enabled,container_registry_enabled,\
     shared_runners_enabled,public_builds,only_allow_merge_if_build_succeeds,\
     only_allow_merge_if_all_discussions_are_resolved,request_access_enabled,runners_seed,created_at,updated_at,\
     last_activity_at";

/// What distinguishes a project; everything else is random.
pub(crate) struct ProjectRow {
    pub(crate) id: u64,
    pub(crate) namespace: u64,
    pub(crate) creator: u64,
    pub(crate) visibility: u64,
    /// A word of the description.
    pub(crate) noun: &'static str,
}

/// Returns the row of a project for an INSERT statement.
pub(crate) fn project_row(kind: EngineKind, rng: &mut Rng, project: &ProjectRow) -> String {
    let ProjectRow { id, namespace, creator, visibility, noun } = *project;
    let archived = bool_literal(rng.below(20) == 0);
    let (first, second) = (rng.word(), rng.word());
    let name = format!("{} {} {id}", capitalize(first), capitalize(second));
    let path = format!("{first}-{second}-{id}");
    let (third, fourth) = (rng.word(), rng.word());
    let description = format!("A {noun} that keeps {third} and {fourth} apart for users who need both");
    let search = format!("{name}\u{1}{path}\u{1}{description}\u{1}\u{1}").to_lowercase();
    let created = START + id * MINUTE;
    let updated = created + rng.below(400_000) * MINUTE;
    let active = created + rng.below(400_000) * MINUTE;
    let seed = bytes_literal(kind, &rng.bytes());
    format!(
        "({id},{namespace},{creator},'{name}','{path}','{}','{path}','{search}','{description}',{visibility},\
         {archived},TRUE,TRUE,TRUE,{},TRUE,TRUE,TRUE,TRUE,FALSE,FALSE,FALSE,{seed},{created},{updated},{active})",
        name.to_lowercase(),
        bool_literal(id % 3 > 0),
    )
}

/// Memberships without duplicates.
#[derive(Default)]
struct Members {
    rows: Vec<String>,
    seen: HashSet<(u64, u64)>,
}

impl Members {
    fn add(&mut self, source: u64, user: u64, access_level: u64) {
        if self.seen.insert((source, user)) {
            // Some memberships expire in the distant future.
            let expires = if self.rows.len() % 20 == 7 { (4 * START).to_string() } else { "NULL".to_owned() };
            self.rows.push(format!("({source},{user},{access_level},{expires},{START})"));
        }
    }
}

/// Permutes the project ids, so that related projects are not adjacent.
fn shuffled_index(id: u64, projects: u64) -> u64 {
    id * 7919 % projects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_set_is_deterministic() {
        let (once, again) = (statements(EngineKind::Sqlite, 1000), statements(EngineKind::Sqlite, 1000));
        assert!(once == again);
        assert_eq!(once.iter().filter(|text| text.contains(RARE_WORD)).count(), 2, "in both statements");
        assert_eq!(once.iter().map(|text| text.matches("a zeppelin").count()).sum::<usize>(), 20);
    }
}
