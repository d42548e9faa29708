//! Users with different numbers of projects, and with different reasons to see them, in addition to the data set of lists.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{
    engine::EngineKind,
    list_dataset::{PROJECT_COLUMNS, ProjectRow, project_row},
    rng::Rng,
    sql::{self, MINUTE, START, bytes_literal},
};

/// The numbers of projects of the callers.
pub(crate) const SIZES: [u64; 3] = [20, 1_000, 10_000];
/// The number of projects of the data set, in which bots are members.
pub(crate) const PROJECTS: u64 = 10_000;
/// The ids of callers; groups and projects follow from them.
const FIRST_CALLER: u64 = 5_001;
const FIRST_GROUP: u64 = 6_001;
const FIRST_PROJECT: u64 = 100_001;

/// Why a user has a role in projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerKind {
    /// They are in the personal namespace.
    Owner,
    /// They are in a group that the user owns.
    GroupOwner,
    /// The user is a member of each of them.
    Member,
}

impl fmt::Display for CallerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owner => "owner",
            Self::GroupOwner => "group owner",
            Self::Member => "member of each",
        })
    }
}

/// A user with a known number of projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) kind: CallerKind,
    pub(crate) projects: u64,
    number: u64,
}

impl Caller {
    /// Returns all callers, by kind.
    pub(crate) fn all() -> Vec<Self> {
        let kinds = [CallerKind::Owner, CallerKind::GroupOwner, CallerKind::Member];
        let callers = kinds.into_iter().flat_map(|kind| SIZES.map(|projects| (kind, projects)));
        callers.zip(0..).map(|((kind, projects), number)| Self { kind, projects, number }).collect()
    }

    pub(crate) fn token(self) -> String {
        format!("bench-caller-{:07}", self.number)
    }

    fn user(self) -> u64 {
        FIRST_CALLER + self.number
    }

    /// The first of the projects of an owner.
    fn first_project(self) -> u64 {
        FIRST_PROJECT + self.number * 20_000
    }
}

/// Returns the statements that add the callers to a data set of [`PROJECTS`] projects.
pub(crate) fn statements(kind: EngineKind) -> Vec<String> {
    let mut statements = Vec::new();
    let mut rng = Rng::new(FIRST_CALLER);
    let (mut users, mut emails, mut namespaces, mut tokens) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut groups, mut group_members, mut projects, mut members) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for caller in Caller::all() {
        let (id, name) = (caller.user(), format!("caller{}", caller.number));
        users.push(format!(
            "({id},'{name}','{name}','{name}@example.org','{name}','none','active',FALSE,FALSE,TRUE,100000,'','','','',\
             {START},{START},{START})"
        ));
        emails.push(format!("({id},'{name}@example.org',TRUE,{START})"));
        namespaces.push(format!("({id},'user',{id},'{name}','{name}','{name}','{name}','{name}',{START},{START})"));
        tokens.push(format!("({id},'bench',{},'api',{START})", bytes_literal(kind, &Sha256::digest(caller.token()))));
        let group = FIRST_GROUP + caller.number;
        let namespace = match caller.kind {
            CallerKind::Owner => id,
            CallerKind::GroupOwner => {
                let name = format!("callers-{}", caller.number);
                groups.push(format!(
                    "({group},'group','{name}','{name}','{name}','{name}','{name}','',20,{START},{START})"
                ));
                group_members.push(format!("({group},{id},50,NULL,{START})"));
                group
            }
            CallerKind::Member => {
                // Not adjacent ones.
                let numbers = (0..caller.projects).map(|number| 1 + number * 7 % PROJECTS);
                members.extend(numbers.map(|project| format!("({project},{id},30,NULL,{START})")));
                continue;
            }
        };
        for project in caller.first_project()..caller.first_project() + caller.projects {
            let visibility = [0, 10, 20][usize::try_from(rng.below(3)).unwrap_or_default()];
            let row = ProjectRow { id: project, namespace, creator: id, visibility, noun: "library" };
            projects.push(project_row(kind, &mut rng, &row));
            if caller.kind == CallerKind::Owner {
                members.push(format!("({project},{id},40,NULL,{})", START + MINUTE));
            }
        }
    }
    let columns = "id,username,name,email,search_text,password_hash,state,admin,external,can_create_group,projects_limit,\
                   skype,linkedin,twitter,website_url,confirmed_at,created_at,updated_at";
    sql::insert(&mut statements, "users", columns, &users);
    sql::insert(&mut statements, "emails", "user_id,email,is_primary,created_at", &emails);
    let columns = "id,kind,owner_id,name,path,full_path,name_key,path_key,created_at,updated_at";
    sql::insert(&mut statements, "namespaces", columns, &namespaces);
    let columns = "id,kind,name,path,full_path,name_key,path_key,description,visibility,created_at,updated_at";
    sql::insert(&mut statements, "namespaces", columns, &groups);
    sql::insert(&mut statements, "tokens", "user_id,name,digest,scopes,created_at", &tokens);
    let columns = "group_id,user_id,access_level,expires_at,created_at";
    sql::insert(&mut statements, "group_members", columns, &group_members);
    sql::insert(&mut statements, "projects", PROJECT_COLUMNS, &projects);
    let columns = "project_id,user_id,access_level,expires_at,created_at";
    sql::insert(&mut statements, "project_members", columns, &members);
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_has_as_many_projects_as_it_says() {
        let statements = statements(EngineKind::Sqlite);
        for caller in Caller::all() {
            let (table, entry) = match caller.kind {
                CallerKind::Owner => ("projects", format!(",{0},{0},'", caller.user())),
                CallerKind::GroupOwner => ("projects", format!(",{},{},'", FIRST_GROUP + caller.number, caller.user())),
                CallerKind::Member => ("project_members", format!(",{},30,NULL", caller.user())),
            };
            let inserts = statements.iter().filter(|text| text.starts_with(&format!("INSERT INTO {table} (")));
            let found: usize = inserts.map(|text| text.matches(&entry).count()).sum();
            assert_eq!(found as u64, caller.projects, "{caller:?}");
        }
    }
}
