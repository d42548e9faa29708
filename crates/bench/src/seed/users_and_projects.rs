//! Users, groups, projects and memberships of a seeded data set.

use std::collections::HashSet;

use anyhow::{Result, anyhow};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use forge::InstanceKey;
use model::{ProjectId, keys::NewKey, projects::TokenSeed, tokens::Secret};
use sha2::{Digest as _, Sha256};

use crate::{
    rng::{Rng, capitalize},
    seed::{
        SqlRows,
        dataset::{Dataset, ROOT_USER, token_of, username},
    },
    sql::{MINUTE, START, bool_literal},
};

/// The number of members per group, without the owner.
const GROUP_MEMBERS: u64 = 20;

/// Adds users with access tokens, email addresses and SSH keys.
pub(super) fn add_users(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng) -> Result<()> {
    let (first, last) = dataset.user_ids();
    let (mut users, mut emails, mut namespaces, mut tokens) = (vec![], vec![], vec![], vec![]);
    for id in ROOT_USER..=last {
        let (username, at) = (username(id), START + id * MINUTE);
        let name = if id == ROOT_USER { "Administrator".into() } else { format!("{} {}", word(rng), word(rng)) };
        let email = format!("{username}@example.org");
        let search = format!("{name}\n{username}").to_lowercase();
        users.push(format!(
            "({id},'{username}','{name}','{email}','{search}','none','active',{},FALSE,TRUE,100000,'','','','',{at},{at},\
             {at})",
            bool_literal(id == ROOT_USER),
        ));
        emails.push(format!("({id},'{email}',TRUE,{at})"));
        namespaces.push(format!(
            "({id},'user',{id},'{username}','{username}','{username}','{username}','{username}',{at},{at})"
        ));
        let digest = rows.bytes(&Sha256::digest(token_of(id)));
        tokens.push(format!("({id},'load',{digest},'api',{at})"));
    }
    // Some users have a second address, and some have a key.
    for id in (first..=last).filter(|id| id % 3 == 0) {
        emails.push(format!("({id},'also{id}@example.org',FALSE,{START})"));
    }
    let users_with_key = (first..=last).filter(|id| id % 5 == 0);
    let keys =
        users_with_key.map(|id| Ok(format!("({id},{},{START})", key(rng, "laptop")?))).collect::<Result<Vec<_>>>()?;
    rows.insert(
        "users",
        "id,username,name,email,search_text,password_hash,state,admin,external,can_create_group,projects_limit,skype,\
         linkedin,twitter,website_url,confirmed_at,created_at,updated_at",
        &users,
    );
    rows.insert("emails", "user_id,email,is_primary,created_at", &emails);
    let columns = "id,kind,owner_id,name,path,full_path,name_key,path_key,created_at,updated_at";
    rows.insert("namespaces", columns, &namespaces);
    rows.insert("tokens", "user_id,name,digest,scopes,created_at", &tokens);
    rows.insert("keys", "user_id,title,key,fingerprint,created_at", &keys);
    Ok(())
}

/// Returns title, key and fingerprint of a random public key as SQL values.
pub(super) fn key(rng: &mut Rng, title: &str) -> Result<String> {
    let line = public_key_line([rng.bytes(), rng.bytes()].concat().as_slice());
    let NewKey { title, key, fingerprint } =
        NewKey::parse(title, &line).map_err(|violations| anyhow!("{violations:?}"))?;
    Ok(format!("'{title}','{key}','{fingerprint}'"))
}

/// Formats 32 bytes as an Ed25519 public key.
pub(crate) fn public_key_line(bytes: &[u8]) -> String {
    const KIND: &[u8] = b"ssh-ed25519";
    let part = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes()[..], bytes].concat();
    format!("ssh-ed25519 {}", STANDARD.encode([part(KIND), part(bytes)].concat()))
}

/// Adds groups and projects with their members.
pub(super) fn add_groups_and_projects(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng, key: &InstanceKey) {
    let groups: Vec<String> = (1..)
        .zip(&dataset.groups)
        .map(|(number, group)| {
            let (id, path, visibility, at) = (group.id, &group.path, group.visibility, START + number * MINUTE);
            let name = format!("{} {number}", word(rng));
            let key = name.to_lowercase();
            format!(
                "({id},'group','{name}','{path}','{path}','{key}','{path}','The {name} team',{visibility},{at},{at})"
            )
        })
        .collect();
    let columns = "id,kind,name,path,full_path,name_key,path_key,description,visibility,created_at,updated_at";
    rows.insert("namespaces", columns, &groups);
    add_projects(rows, dataset, rng, key);
    add_members(rows, dataset, rng);
}

fn add_projects(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng, key: &InstanceKey) {
    let (mut projects, mut branches) = (vec![], vec![]);
    for seeded in &dataset.projects {
        let (id, group, path) = (seeded.id, dataset.group_of(seeded), seeded.path());
        let name = seeded.name();
        let noun = if rng.below(10) < 3 { "service" } else { "library" };
        let description =
            format!("A {noun} that keeps {} and {} apart for users who need both", rng.word(), rng.word());
        let search = format!("{name}\u{1}{path}\u{1}{description}\u{1}\u{1}").to_lowercase();
        let created = START + id * MINUTE;
        let [updated, active] = [0; 2].map(|_| created + rng.below(400_000) * MINUTE);
        let seed = rng.bytes();
        let project = ProjectId::new(i64::try_from(id).unwrap_or(0));
        let token: Secret = key.runners_token(project, &TokenSeed(seed.to_vec()));
        let (seed, digest) = (rows.bytes(&seed), rows.bytes(token.digest().as_bytes()));
        let (visibility, archived, owner, namespace) =
            (seeded.visibility, bool_literal(seeded.archived), group.owner, group.id);
        let branch = match seeded.content {
            super::dataset::RepositoryContent::Empty => "NULL".into(),
            _ => format!("'{}'", seeded.branch()),
        };
        projects.push(format!(
            "({id},{namespace},{owner},'{name}','{path}','{}','{path}','{search}','{description}',{visibility},{archived},\
             TRUE,TRUE,TRUE,TRUE,TRUE,TRUE,TRUE,TRUE,FALSE,FALSE,FALSE,{seed},{digest},{branch},{created},{updated},\
             {active})",
            name.to_lowercase(),
        ));
        if branch != "NULL" {
            branches.push(format!("({id},{branch},40,40,{created})"));
        }
    }
    rows.insert(
        "projects",
        "id,namespace_id,creator_id,name,path,name_key,path_key,search_text,description,visibility,archived,\
         issues_enabled,merge_requests_enabled,wiki_enabled,builds_enabled,snippets_enabled,container_registry_enabled,\
         shared_runners_enabled,public_builds,only_allow_merge_if_build_succeeds,\
         only_allow_merge_if_all_discussions_are_resolved,request_access_enabled,runners_seed,runners_digest,\
         default_branch,created_at,updated_at,last_activity_at",
        &projects,
    );
    rows.insert("protected_branches", "project_id,name,push_level,merge_level,created_at", &branches);
}

fn add_members(rows: &mut SqlRows, dataset: &Dataset, rng: &mut Rng) {
    let (first, last) = dataset.user_ids();
    let (mut group_members, mut project_members, mut shares, mut stars) = (vec![], vec![], vec![], vec![]);
    let mut seen = HashSet::new();
    for group in &dataset.groups {
        group_members.push(format!("({},{},50,{START})", group.id, group.owner));
        seen.insert((group.id, group.owner));
        for _ in 0..GROUP_MEMBERS {
            let (user, access_level) = (rng.range(first, last), rng.access_level());
            if seen.insert((group.id, user)) {
                group_members.push(format!("({},{user},{access_level},{START})", group.id));
            }
        }
    }
    seen.clear();
    let mut starred = HashSet::new();
    for seeded in &dataset.projects {
        for _ in 0..2 {
            let (member, access_level, stargazer) =
                (rng.range(first, last), rng.access_level(), rng.range(first, last));
            if seen.insert((seeded.id, member)) {
                project_members.push(format!("({},{member},{access_level},{START})", seeded.id));
            }
            if starred.insert((stargazer, seeded.id)) {
                stars.push(format!("({stargazer},{},{START})", seeded.id));
            }
        }
        // Every fifth project is shared with the next group.
        if seeded.id % 5 == 0 {
            let other = &dataset.groups[(seeded.group + 1) % dataset.groups.len()];
            if other.id != dataset.group_of(seeded).id {
                shares.push(format!("({},{},{},{START})", seeded.id, other.id, rng.access_level()));
            }
        }
    }
    rows.insert("group_members", "group_id,user_id,access_level,created_at", &group_members);
    rows.insert("project_members", "project_id,user_id,access_level,created_at", &project_members);
    rows.insert("project_shares", "project_id,group_id,group_access,created_at", &shares);
    rows.insert("project_stars", "user_id,project_id,created_at", &stars);
}

fn word(rng: &mut Rng) -> String {
    capitalize(rng.word())
}
