//! Users, groups and projects of a seeded data set, and who belongs to what.

use std::collections::HashSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use forge::InstanceKey;
use model::{keys::NewKey, projects::Seed, tokens::Secret};
use sha2::{Digest as _, Sha256};

use crate::{
    Outcome,
    seed::{
        MINUTE, Rows, START,
        world::{ROOT, World, token_of, username},
    },
    town::{Dice, capital, keyword},
};

/// Members of each group beside its owner.
const GROUP_MEMBERS: u64 = 20;

/// Writes everybody down, with tokens, addresses and keys.
pub(super) fn add_people(rows: &mut Rows, world: &World, dice: &mut Dice) -> Outcome {
    let (first, last) = world.people();
    let (mut users, mut emails, mut namespaces, mut tokens) = (vec![], vec![], vec![], vec![]);
    for id in ROOT..=last {
        let (username, at) = (username(id), START + id * MINUTE);
        let name = if id == ROOT { "Administrator".into() } else { format!("{} {}", word(dice), word(dice)) };
        let email = format!("{username}@example.org");
        let search = format!("{name}\n{username}").to_lowercase();
        users.push(format!(
            "({id},'{username}','{name}','{email}','{search}','none','active',{},FALSE,TRUE,100000,'','','','',{at},{at},\
             {at})",
            keyword(id == ROOT),
        ));
        emails.push(format!("({id},'{email}',TRUE,{at})"));
        namespaces.push(format!(
            "({id},'user',{id},'{username}','{username}','{username}','{username}','{username}',{at},{at})"
        ));
        let digest = rows.bytes(&Sha256::digest(token_of(id)));
        tokens.push(format!("({id},'load',{digest},'api',{at})"));
    }
    // Some have a second address, and some have a key.
    for id in (first..=last).filter(|id| id % 3 == 0) {
        emails.push(format!("({id},'also{id}@example.org',FALSE,{START})"));
    }
    let keyed = (first..=last).filter(|id| id % 5 == 0);
    let keys = keyed.map(|id| Ok(format!("({id},{},{START})", key(dice, "laptop")?))).collect::<Outcome<Vec<_>>>()?;
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

/// Title, key and fingerprint of a key that nobody has the other half of.
pub(super) fn key(dice: &mut Dice, title: &str) -> Outcome<String> {
    let line = key_line([dice.bytes(), dice.bytes()].concat().as_slice());
    let NewKey { title, key, fingerprint } =
        NewKey::parse(title, &line).map_err(|violations| format!("{violations:?}"))?;
    Ok(format!("'{title}','{key}','{fingerprint}'"))
}

/// A public key made of thirty-two bytes.
pub(crate) fn key_line(bytes: &[u8]) -> String {
    const KIND: &[u8] = b"ssh-ed25519";
    let part = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes()[..], bytes].concat();
    format!("ssh-ed25519 {}", STANDARD.encode([part(KIND), part(bytes)].concat()))
}

/// Writes groups and projects down, with their members.
pub(super) fn add_places(rows: &mut Rows, world: &World, dice: &mut Dice, key: &InstanceKey) {
    let groups: Vec<String> = (1..)
        .zip(&world.groups)
        .map(|(number, group)| {
            let (id, path, visibility, at) = (group.id, &group.path, group.visibility, START + number * MINUTE);
            let name = format!("{} {number}", word(dice));
            let key = name.to_lowercase();
            format!(
                "({id},'group','{name}','{path}','{path}','{key}','{path}','The {name} team',{visibility},{at},{at})"
            )
        })
        .collect();
    let columns = "id,kind,name,path,full_path,name_key,path_key,description,visibility,created_at,updated_at";
    rows.insert("namespaces", columns, &groups);
    add_projects(rows, world, dice, key);
    add_members(rows, world, dice);
}

fn add_projects(rows: &mut Rows, world: &World, dice: &mut Dice, key: &InstanceKey) {
    let (mut projects, mut branches) = (vec![], vec![]);
    for site in &world.sites {
        let (id, group, path) = (site.id, world.group_of(site), site.path());
        let name = site.name();
        let what = if dice.below(10) < 3 { "service" } else { "library" };
        let description =
            format!("A {what} that keeps {} and {} apart for whoever needs both of them", dice.word(), dice.word());
        let search = format!("{name}\u{1}{path}\u{1}{description}\u{1}\u{1}").to_lowercase();
        let created = START + id * MINUTE;
        let [updated, active] = [0; 2].map(|_| created + dice.below(400_000) * MINUTE);
        let seed = dice.bytes();
        let token: Secret = key.runners_token(i64::try_from(id).unwrap_or(0), &Seed(seed.to_vec()));
        let (seed, digest) = (rows.bytes(&seed), rows.bytes(token.digest().as_bytes()));
        let (visibility, archived, owner, namespace) = (site.visibility, keyword(site.archived), group.owner, group.id);
        let branch = match site.content {
            super::world::Content::Nothing => "NULL".into(),
            _ => format!("'{}'", site.branch()),
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

fn add_members(rows: &mut Rows, world: &World, dice: &mut Dice) {
    let (first, last) = world.people();
    let (mut of_groups, mut of_projects, mut shares, mut stars) = (vec![], vec![], vec![], vec![]);
    let mut seen = HashSet::new();
    for group in &world.groups {
        of_groups.push(format!("({},{},50,{START})", group.id, group.owner));
        seen.insert((group.id, group.owner));
        for _ in 0..GROUP_MEMBERS {
            let (user, level) = (dice.within(first, last), dice.level());
            if seen.insert((group.id, user)) {
                of_groups.push(format!("({},{user},{level},{START})", group.id));
            }
        }
    }
    seen.clear();
    let mut starred = HashSet::new();
    for site in &world.sites {
        for _ in 0..2 {
            let (member, level, fan) = (dice.within(first, last), dice.level(), dice.within(first, last));
            if seen.insert((site.id, member)) {
                of_projects.push(format!("({},{member},{level},{START})", site.id));
            }
            if starred.insert((fan, site.id)) {
                stars.push(format!("({fan},{},{START})", site.id));
            }
        }
        // Every fifth is open to the next group, too.
        if site.id % 5 == 0 {
            let other = &world.groups[(site.group + 1) % world.groups.len()];
            if other.id != world.group_of(site).id {
                shares.push(format!("({},{},{},{START})", site.id, other.id, dice.level()));
            }
        }
    }
    rows.insert("group_members", "group_id,user_id,access_level,created_at", &of_groups);
    rows.insert("project_members", "project_id,user_id,access_level,created_at", &of_projects);
    rows.insert("project_shares", "project_id,group_id,group_access,created_at", &shares);
    rows.insert("project_stars", "user_id,project_id,created_at", &stars);
}

fn word(dice: &mut Dice) -> String {
    capital(dice.word())
}
