//! Everybody and everything on a busy server, as SQL for either engine: the same rows each time.
//!
//! The rows are what the service itself would leave behind; its triggers fill the counters, ancestors and indexes. What
//! the measured callers belong to is the same however many projects there are, so that only the rest grows.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use crate::engine::Kind;

/// A user with about a hundred memberships.
pub(crate) const MEMBER_TOKEN: &str = "bench-typical-member";
/// An external user with three.
pub(crate) const GUEST_TOKEN: &str = "bench-external-guest";
/// Occurs in the descriptions of twenty projects, however many there are.
pub(crate) const RARE_WORD: &str = "zeppelin";
/// Occurs in three descriptions out of ten.
pub(crate) const COMMON_WORD: &str = "service";
/// A group with two hundred projects, to which no measured caller belongs.
pub(crate) const MIDDLE_GROUP: u64 = FIRST_GROUP + OWN_GROUPS;
/// A group with a thousand projects, where there are that many.
pub(crate) const LARGE_GROUP: u64 = MIDDLE_GROUP + 1;

const USERS: u64 = 1000;
const GROUPS: u64 = 1000;
const GROUP_MEMBERSHIPS: usize = 50_000;
const PROJECT_MEMBERSHIPS: usize = 50_000;
const SHARES: u64 = 2000;
const STARS: usize = 10_000;

/// The number 1 is the administrator's, who is there already, and a personal namespace has the number of its owner.
pub(crate) const MEMBER: u64 = 2;
const GUEST: u64 = 3;
const FIRST_OTHER: u64 = 4;
const LAST_USER: u64 = USERS + 1;
const FIRST_GROUP: u64 = 2001;
/// The groups of the member, with five projects each.
const OWN_GROUPS: u64 = 50;
const GUEST_GROUP: u64 = LARGE_GROUP + 1;
/// From how many projects on the large group has its thousand.
const LARGE_TOWN: u64 = 10_000;

/// Microseconds since 1970, in the autumn of 2025.
const START: u64 = 1_760_000_000_000_000;
const MINUTE: u64 = 60_000_000;
const ROWS_OF_A_STATEMENT: usize = 500;

const WORDS: [&str; 48] = [
    "amber", "anchor", "apple", "arrow", "basil", "beacon", "birch", "bridge", "canyon", "cedar", "cloud", "comet",
    "copper", "coral", "delta", "ember", "falcon", "fern", "forest", "garnet", "glacier", "harbor", "hazel", "heron",
    "indigo", "island", "jasper", "juniper", "lagoon", "lantern", "maple", "meadow", "nectar", "oasis", "orchid",
    "otter", "pebble", "prairie", "quartz", "raven", "river", "saffron", "sparrow", "thistle", "tundra", "velvet",
    "willow", "zephyr",
];

/// The statements that fill a fresh database with a number of projects and everything around them.
pub(crate) fn statements(kind: Kind, projects: u64) -> Vec<String> {
    Town { kind, projects, dice: Dice::new(projects), statements: Vec::new() }.build()
}

/// The number of a project in the member's first group.
pub(crate) fn project_of_the_member(projects: u64) -> u64 {
    (1..=projects).find(|number| place_of(*number, projects) == 0).unwrap_or(1)
}

struct Town {
    kind: Kind,
    projects: u64,
    dice: Dice,
    statements: Vec<String>,
}

/// Where a project lives.
struct Site {
    namespace: u64,
    /// Whose personal namespace that is.
    owner: Option<u64>,
}

impl Town {
    fn build(mut self) -> Vec<String> {
        self.add_users();
        let visibilities = self.add_groups();
        let sites = self.add_projects(&visibilities);
        self.add_group_members();
        self.add_project_members(&sites);
        self.add_shares(&sites);
        self.add_stars();
        self.statements
    }

    fn insert(&mut self, table: &str, columns: &str, rows: &[String]) {
        insert(&mut self.statements, table, columns, rows);
    }

    fn bytes(&self, bytes: &[u8]) -> String {
        literal(self.kind, bytes)
    }

    fn add_users(&mut self) {
        let (mut users, mut emails, mut namespaces) = (Vec::new(), Vec::new(), Vec::new());
        for id in MEMBER..=LAST_USER {
            let (name, username) = (format!("{} {}", capital(word(id)), capital(word(id / 7))), format!("user{id}"));
            let (search, at) = (format!("{name}\n{username}").to_lowercase(), START + id * MINUTE);
            let external = keyword(id == GUEST);
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

    /// Gives how far each group can be seen.
    fn add_groups(&mut self) -> Vec<u64> {
        let (mut groups, mut visibilities) = (Vec::new(), Vec::new());
        for number in 0..GROUPS {
            let visibility = match self.dice.below(20) {
                _ if FIRST_GROUP + number == LARGE_GROUP => 20,
                0..14 => 20,
                14..17 => 10,
                _ => 0,
            };
            let (id, at) = (FIRST_GROUP + number, START + number * MINUTE);
            let name = format!("{} {number}", capital(word(number)));
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

    fn add_projects(&mut self, group_visibilities: &[u64]) -> Vec<Site> {
        let (mut rows, mut sites) = (Vec::new(), Vec::new());
        for id in 1..=self.projects {
            let place = place_of(id, self.projects);
            let namespace = self.namespace_for(place);
            let owner = (namespace < FIRST_GROUP).then_some(namespace);
            let drawn = match self.dice.below(100) {
                0..42 => 0,
                42..65 => 10,
                _ => 20,
            };
            let most =
                namespace.checked_sub(FIRST_GROUP).and_then(|at| group_visibilities.get(usize::try_from(at).ok()?));
            let visibility = drawn.min(most.copied().unwrap_or(20));
            let archived = keyword(self.dice.below(20) == 0);
            let (first, second) = (self.dice.word(), self.dice.word());
            let (name, path) =
                (format!("{} {} {id}", capital(first), capital(second)), format!("{first}-{second}-{id}"));
            let what = match place {
                // Twenty of them, spread over what the member sees and what is strange to them.
                _ if place % 10 == 7 && place / 10 >= 10 && place / 10 < 30 => RARE_WORD,
                _ if self.dice.below(10) < 3 => COMMON_WORD,
                _ => "library",
            };
            let (third, fourth) = (self.dice.word(), self.dice.word());
            let description = format!("A {what} that keeps {third} and {fourth} apart for whoever needs both of them");
            let search = format!("{name}\u{1}{path}\u{1}{description}\u{1}\u{1}").to_lowercase();
            let created = START + id * MINUTE;
            let updated = created + self.dice.below(400_000) * MINUTE;
            let active = created + self.dice.below(400_000) * MINUTE;
            let seed = self.dice.bytes();
            let seed = self.bytes(&seed);
            let creator = owner.unwrap_or(FIRST_OTHER);
            rows.push(format!(
                "({id},{namespace},{creator},'{name}','{path}','{}','{path}','{search}','{description}',{visibility},\
                 {archived},TRUE,TRUE,TRUE,{},TRUE,TRUE,TRUE,TRUE,FALSE,FALSE,FALSE,{seed},{created},{updated},{active})",
                name.to_lowercase(),
                keyword(id % 3 > 0),
            ));
            sites.push(Site { namespace, owner });
        }
        self.insert(
            "projects",
            "id,namespace_id,creator_id,name,path,name_key,path_key,search_text,description,visibility,archived,\
             issues_enabled,merge_requests_enabled,wiki_enabled,builds_enabled,snippets_enabled,\
             container_registry_enabled,shared_runners_enabled,public_builds,only_allow_merge_if_build_succeeds,\
             only_allow_merge_if_all_discussions_are_resolved,request_access_enabled,runners_seed,created_at,updated_at,\
             last_activity_at",
            &rows,
        );
        sites
    }

    fn namespace_for(&mut self, place: u64) -> u64 {
        let large_ends = if self.projects >= LARGE_TOWN { 1460 } else { 460 };
        match place {
            0..250 => FIRST_GROUP + place / 5,
            250..260 => MEMBER,
            260..460 => MIDDLE_GROUP,
            _ if place < large_ends => LARGE_GROUP,
            _ if self.dice.below(10) < 7 => self.dice.within(GUEST_GROUP, FIRST_GROUP + GROUPS - 1),
            _ => self.dice.within(FIRST_OTHER, LAST_USER),
        }
    }

    fn add_group_members(&mut self) {
        let mut members = Members::default();
        for group in FIRST_GROUP..FIRST_GROUP + GROUPS {
            members.add(group, FIRST_OTHER + group % (USERS - 2), 50);
        }
        for (number, group) in (FIRST_GROUP..FIRST_GROUP + OWN_GROUPS).enumerate() {
            members.add(group, MEMBER, if number < 10 { 50 } else { self.dice.level() });
        }
        members.add(GUEST_GROUP, GUEST, 10);
        for user in FIRST_OTHER..FIRST_OTHER + 500 {
            members.add(MIDDLE_GROUP, user, self.dice.level());
            members.add(LARGE_GROUP, user, self.dice.level());
        }
        while members.rows.len() < GROUP_MEMBERSHIPS {
            let group = self.dice.within(FIRST_GROUP, FIRST_GROUP + GROUPS - 1);
            members.add(group, self.dice.within(FIRST_OTHER, LAST_USER), self.dice.level());
        }
        self.insert("group_members", "group_id,user_id,access_level,expires_at,created_at", &members.rows);
    }

    fn add_project_members(&mut self, sites: &[Site]) {
        let mut members = Members::default();
        for (id, site) in (1..).zip(sites) {
            // Who makes a personal project becomes its master.
            if let Some(owner) = site.owner {
                members.add(id, owner, 40);
            }
            // From the end, where neither the member's own places nor the large groups are.
            let from_end = self.projects - 1 - place_of(id, self.projects);
            if from_end < 500 && from_end.is_multiple_of(10) {
                members.add(id, MEMBER, self.dice.level());
            }
            if matches!(from_end, 5 | 15) {
                members.add(id, GUEST, 20);
            }
        }
        while members.rows.len() < PROJECT_MEMBERSHIPS {
            let project = self.dice.within(1, self.projects);
            members.add(project, self.dice.within(FIRST_OTHER, LAST_USER), self.dice.level());
        }
        self.insert("project_members", "project_id,user_id,access_level,expires_at,created_at", &members.rows);
    }

    fn add_shares(&mut self, sites: &[Site]) {
        let (mut rows, mut seen) = (Vec::new(), HashSet::new());
        let mut number = 0;
        while number < SHARES {
            // The same number of shares for each group.
            let (project, group) = (self.dice.within(1, self.projects), FIRST_GROUP + number % GROUPS);
            let site = usize::try_from(project - 1).ok().and_then(|at| sites.get(at));
            if site.is_some_and(|site| site.namespace != group) && seen.insert((project, group)) {
                rows.push(format!("({project},{group},{},{START})", self.dice.level()));
                number += 1;
            }
        }
        self.insert("project_shares", "project_id,group_id,group_access,created_at", &rows);
    }

    fn add_stars(&mut self) {
        let (mut rows, mut seen) = (Vec::new(), HashSet::new());
        for id in 1..=self.projects {
            let from_end = self.projects - 1 - place_of(id, self.projects);
            if from_end < 500 && from_end % 5 == 2 {
                rows.push(format!("({MEMBER},{id},{START})"));
            }
        }
        while rows.len() < STARS {
            let (user, project) = (self.dice.within(FIRST_OTHER, LAST_USER), self.dice.within(1, self.projects));
            if seen.insert((user, project)) {
                rows.push(format!("({user},{project},{START})"));
            }
        }
        self.insert("project_stars", "user_id,project_id,created_at", &rows);
    }
}

/// Bytes as either engine reads them.
pub(crate) fn literal(kind: Kind, bytes: &[u8]) -> String {
    let digits = bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    match kind {
        Kind::Sqlite => format!("x'{digits}'"),
        Kind::Postgres => format!("'\\x{digits}'"),
    }
}

/// Adds statements that write rows into a table.
pub(crate) fn insert(statements: &mut Vec<String>, table: &str, columns: &str, rows: &[String]) {
    for rows in rows.chunks(ROWS_OF_A_STATEMENT) {
        statements.push(format!("INSERT INTO {table} ({columns}) VALUES {}", rows.join(",")));
    }
}

/// Memberships, each of them once.
#[derive(Default)]
struct Members {
    rows: Vec<String>,
    seen: HashSet<(u64, u64)>,
}

impl Members {
    fn add(&mut self, place: u64, user: u64, level: u64) {
        if self.seen.insert((place, user)) {
            // Some end, in a time that is far away.
            let expires = if self.rows.len() % 20 == 7 { (4 * START).to_string() } else { "NULL".to_owned() };
            self.rows.push(format!("({place},{user},{level},{expires},{START})"));
        }
    }
}

/// A shuffle of the projects, so that what belongs together does not stand together.
fn place_of(id: u64, projects: u64) -> u64 {
    id * 7919 % projects
}

/// Numbers that look random and are the same each time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub(crate) fn word(&mut self) -> &'static str {
        word(self.next())
    }

    /// Guest to master.
    pub(crate) fn level(&mut self) -> u64 {
        10 * self.within(1, 4)
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_le_bytes());
        bytes[8..].copy_from_slice(&self.next().to_le_bytes());
        bytes
    }
}

fn word(number: u64) -> &'static str {
    usize::try_from(number % WORDS.len() as u64).ok().and_then(|at| WORDS.get(at)).copied().unwrap_or_default()
}

pub(crate) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

pub(crate) fn keyword(flag: bool) -> &'static str {
    if flag { "TRUE" } else { "FALSE" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_town_is_built_each_time() {
        let (once, again) = (statements(Kind::Sqlite, 1000), statements(Kind::Sqlite, 1000));
        assert!(once == again);
        assert_eq!(once.iter().filter(|text| text.contains(RARE_WORD)).count(), 2, "in both statements");
        assert_eq!(once.iter().map(|text| text.matches("a zeppelin").count()).sum::<usize>(), 20);
    }
}
