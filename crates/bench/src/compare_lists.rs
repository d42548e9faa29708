//! Sends random list requests of different users to this version and to an earlier one with the same data, and compares the
//! responses. The data is upgraded by this version.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::{
    basics::ScratchFolder,
    callers::{self, Caller},
    closed_loop::{self, Connection},
    engine::{Engine, EngineKind},
    issues::{self, IssueDataset},
    list_dataset::{
        self, GUEST_TOKEN, LARGE_GROUP, MEMBER_TOKEN, MIDDLE_GROUP, PROJECT_COLUMNS, ProjectRow, project_row,
    },
    rng::Rng,
    server::TOKEN,
    sql::{self, START, bytes_literal},
};

/// The number of requests.
const REQUESTS: usize = 10_000;
/// The maximum number of differences that are printed.
const MAX_PRINTED: usize = 10;
const ISSUE_DATASET: IssueDataset =
    IssueDataset { issues: 2_000, labels: 20, milestones: 5, known_author: (2, 200), others: (4, 900), seed: 2 };
/// The first ids of the users, groups and projects that only this comparison has.
const FIRST_USER: u64 = 7_001;
const FIRST_GROUP: u64 = 8_001;
const FIRST_PROJECT: u64 = 500_001;
/// The time until a server has removed expired memberships after its start.
const SWEEP_TIME: Duration = Duration::from_secs(3);
/// Memberships and shares with this end have ended during the comparison.
const MARKED_END: u64 = 4 * START + 1;
/// The numbers of nested groups, and of the projects in each.
const NESTED_GROUPS: u64 = 40;
const PROJECTS_PER_GROUP: u64 = 30;

/// Users that only this comparison has.
#[derive(Clone, Copy)]
enum SpecialUser {
    /// Has no project.
    Nobody,
    /// Only has memberships that have ended.
    Expired,
    /// Only has projects that are shared with a group.
    Shared,
    /// Is a member of a group with many nested groups.
    Inherited,
    /// Has projects for all reasons.
    Mixed,
}

const SPECIAL_USERS: [SpecialUser; 5] =
    [SpecialUser::Nobody, SpecialUser::Expired, SpecialUser::Shared, SpecialUser::Inherited, SpecialUser::Mixed];

impl SpecialUser {
    fn id(self) -> u64 {
        FIRST_USER + self as u64
    }

    fn token(self) -> String {
        format!("bench-special-{:06}", self as u64)
    }
}

/// Compares both versions on one engine. Fails if a response differs.
pub(crate) fn run(program: &Path, before: &Path, folder: &Path, engine: &Engine) -> Result<()> {
    let scratch = ScratchFolder::new(folder)?;
    let data = engine.empty_instance(&scratch.0, "compared")?;
    drop(data.start(before)?);
    let mut statements = list_dataset::statements(engine.kind(), callers::PROJECTS);
    statements.extend(callers::statements(engine.kind()));
    statements.extend(issues::statements(engine.kind(), &ISSUE_DATASET));
    statements.extend(special_statements(engine.kind()));
    data.execute(&statements)?;
    let copy = data.copy(engine, &scratch.0, "copied")?;
    let (old, new) = (data.start(before)?, copy.start(program)?);
    // Servers remove what has expired soon after they start, and record the time.
    std::thread::sleep(SWEEP_TIME);
    data.execute(&expire_statements())?;
    copy.execute(&expire_statements())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let differences = runtime.block_on(compare(old.address, new.address))?;
    if differences > 0 {
        bail!("{}: {differences} of {REQUESTS} responses differ", engine.kind());
    }
    println!("{}: {REQUESTS} responses are the same", engine.kind());
    Ok(())
}

async fn compare(old: SocketAddr, new: SocketAddr) -> Result<usize> {
    let (mut old, mut new) = (Connection::open(old).await?, Connection::open(new).await?);
    let mut rng = Rng::new(20);
    let tokens = tokens();
    let (mut differences, mut found) = (0, 0);
    for _ in 0..REQUESTS {
        let token = &tokens[pick_index(&mut rng, tokens.len())];
        let target = random_target(&mut rng);
        let mut request = Vec::new();
        closed_loop::get(&format!("/api/v3{target}"), token)(&mut request);
        let (before, after) = (response(&mut old, &request).await?, response(&mut new, &request).await?);
        found += usize::from(before.starts_with("200") && !before.ends_with("[]"));
        if before != after {
            differences += 1;
            if differences <= MAX_PRINTED {
                let (before, after) = around_difference(&before, &after);
                println!("{token} GET {target}\n- {before}\n+ {after}");
            }
        }
    }
    println!("{found} responses were lists with entries");
    Ok(differences)
}

/// Returns the status, the headers of the page, and the body.
async fn response(connection: &mut Connection, request: &[u8]) -> Result<String> {
    let status = connection.exchange(request).await.context("connection lost")?;
    let head = String::from_utf8_lossy(connection.head()).into_owned();
    let is_of_page = |line: &&str| {
        ["link:", "x-total", "x-page", "x-per-page", "x-next-page", "x-prev-page"]
            .iter()
            .any(|name| line.starts_with(name))
    };
    let mut headers: Vec<&str> = head.lines().filter(is_of_page).collect();
    headers.sort_unstable();
    Ok(format!("{status} {} {}", headers.join(" "), String::from_utf8_lossy(connection.body())))
}

/// Returns the parts of two texts around the first difference.
fn around_difference(before: &str, after: &str) -> (String, String) {
    let same = before.chars().zip(after.chars()).take_while(|(before, after)| before == after).count();
    let part = |text: &str| text.chars().skip(same.saturating_sub(120)).take(300).collect();
    (part(before), part(after))
}

fn tokens() -> Vec<String> {
    let special = SPECIAL_USERS.map(SpecialUser::token);
    let callers = Caller::all().into_iter().map(Caller::token);
    // The last one is not valid: an anonymous caller is refused in the same way.
    [TOKEN, MEMBER_TOKEN, GUEST_TOKEN, "unknown"]
        .map(ToOwned::to_owned)
        .into_iter()
        .chain(special)
        .chain(callers)
        .collect()
}

fn pick_index(rng: &mut Rng, length: usize) -> usize {
    usize::try_from(rng.below(length as u64)).unwrap_or_default()
}

fn pick(rng: &mut Rng, values: &[&'static str]) -> &'static str {
    values[pick_index(rng, values.len())]
}

/// Returns the statements that end the marked memberships and shares.
fn expire_statements() -> Vec<String> {
    let expire = |table| format!("UPDATE {table} SET expires_at = {START} WHERE expires_at = {MARKED_END}");
    ["project_members", "group_members", "project_shares"].map(expire).into()
}

/// Returns the path and the query of a random list.
fn random_target(rng: &mut Rng) -> String {
    let group = match rng.below(4) {
        0 => MIDDLE_GROUP,
        1 => LARGE_GROUP,
        2 => rng.range(FIRST_GROUP, FIRST_GROUP + NESTED_GROUPS - 1),
        _ => rng.range(2001, 3000),
    };
    let search = pick(rng, &["zeppelin", "service", "river", "qu", "a", "%25", "_", "%E4%B8%96%E7%95%8C", "otter+7"]);
    let path = match rng.below(20) {
        0..4 => "/projects".to_owned(),
        4..8 => "/projects/visible".to_owned(),
        8..11 => "/projects/owned".to_owned(),
        11 => "/projects/starred".to_owned(),
        12 => "/projects/all".to_owned(),
        13 => format!("/projects/search/{search}"),
        14..16 => format!("/groups/{group}/projects"),
        16 => pick(rng, &["/groups", "/groups/owned", "/groups?all_available=true"]).to_owned(),
        17 => "/issues".to_owned(),
        18 => format!("/projects/{}/events", rng.range(1, 20)),
        _ => pick(rng, &["/namespaces", "/users/5001/events", "/runners"]).to_owned(),
    };
    let mut parameters = Vec::new();
    // One request in eight has parameters that are not valid.
    let is_valid = rng.below(8) > 0;
    for (name, values, wrong_values, one_in) in [
        ("order_by", &["id", "name", "path", "created_at", "updated_at", "last_activity_at"][..], &["rank"][..], 2),
        ("sort", &["asc", "desc"], &["upwards"], 3),
        ("archived", &["true", "false"], &["maybe"], 5),
        ("visibility", &["public", "internal", "private"], &["secret"], 5),
        ("simple", &["true", "false"], &["2"], 6),
        ("ci_enabled_first", &["true"], &["2"], 20),
        ("per_page", &["1", "2", "7", "50", "100"], &["101", "0", "-1", "many"], 3),
        ("page", &["2", "3", "10", "40", "200", "500"], &["99999999", "0", "-1", "last"], 3),
        ("state", &["opened", "closed", "all"], &["new"], 10),
    ] {
        if rng.below(one_in) == 0 {
            let values = if is_valid { values } else { wrong_values };
            parameters.push(format!("{name}={}", pick(rng, values)));
        }
    }
    if rng.below(6) == 0 {
        parameters.push(format!("search={search}"));
    }
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}{}", parameters.join("&"))
}

/// Returns the statements that add the special users, nested groups, and random changes to the data set.
fn special_statements(kind: EngineKind) -> Vec<String> {
    let mut statements = Vec::new();
    let mut rng = Rng::new(FIRST_USER);
    let (mut users, mut namespaces, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for user in SPECIAL_USERS {
        let (id, name) = (user.id(), format!("special{}", user.id()));
        users.push(format!(
            "({id},'{name}','{name}','{name}@example.org','{name}','none','active',FALSE,FALSE,TRUE,100000,'','','','',\
             {START},{START},{START})"
        ));
        namespaces.push(format!("({id},'user',{id},'{name}','{name}','{name}','{name}','{name}',{START},{START})"));
        tokens.push(format!("({id},'bench',{},'api',{START})", bytes_literal(kind, &Sha256::digest(user.token()))));
    }
    let columns = "id,username,name,email,search_text,password_hash,state,admin,external,can_create_group,projects_limit,\
                   skype,linkedin,twitter,website_url,confirmed_at,created_at,updated_at";
    sql::insert(&mut statements, "users", columns, &users);
    let columns = "id,kind,owner_id,name,path,full_path,name_key,path_key,created_at,updated_at";
    sql::insert(&mut statements, "namespaces", columns, &namespaces);
    sql::insert(&mut statements, "tokens", "user_id,name,digest,scopes,created_at", &tokens);
    let (mut projects, mut next) = (Vec::new(), FIRST_PROJECT);
    for number in 0..NESTED_GROUPS {
        // A tree: the parent of each group comes before it.
        let id = FIRST_GROUP + number;
        let parent = if number == 0 { "NULL".to_owned() } else { (FIRST_GROUP + rng.below(number)).to_string() };
        let (name, lock) = (format!("nested-{number}"), sql::bool_literal(rng.below(4) == 0));
        statements.push(format!(
            "INSERT INTO namespaces (id,parent_id,kind,name,path,full_path,name_key,path_key,description,visibility,\
             share_with_group_lock,created_at,updated_at) \
             VALUES ({id},{parent},'group','{name}','{name}','{name}','{name}','{name}','',20,{lock},{START},{START})"
        ));
        for _ in 0..PROJECTS_PER_GROUP {
            let visibility = [0, 0, 10, 20][pick_index(&mut rng, 4)];
            let row = ProjectRow { id: next, namespace: id, creator: 4, visibility, noun: "service" };
            projects.push(project_row(kind, &mut rng, &row));
            next += 1;
        }
    }
    sql::insert(&mut statements, "projects", PROJECT_COLUMNS, &projects);
    let (past, future) = (MARKED_END, 4 * START);
    let (mut group_members, mut members, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let mut member = |rng: &mut Rng, project: u64, user: SpecialUser, expires: Option<u64>| {
        let expires = expires.map_or_else(|| "NULL".to_owned(), |time| time.to_string());
        members.push(format!("({project},{},{},{expires},{START})", user.id(), rng.access_level()));
    };
    for number in 0..150 {
        member(&mut rng, 1 + number * 11, SpecialUser::Expired, Some(past));
        let expires = [None, Some(past), Some(future)][pick_index(&mut rng, 3)];
        member(&mut rng, 1 + number * 13, SpecialUser::Mixed, expires);
        // In the nested groups as well, so that there are several reasons for one role.
        member(&mut rng, FIRST_PROJECT + number * 3, SpecialUser::Mixed, None);
    }
    let mut group_member = |group: u64, user: SpecialUser, level: u64, expires: Option<u64>| {
        let expires = expires.map_or_else(|| "NULL".to_owned(), |time| time.to_string());
        group_members.push(format!("({group},{},{level},{expires},{START})", user.id()));
    };
    group_member(MIDDLE_GROUP, SpecialUser::Expired, 50, Some(past));
    group_member(FIRST_GROUP, SpecialUser::Inherited, 30, None);
    group_member(FIRST_GROUP + 1, SpecialUser::Mixed, 50, None);
    group_member(FIRST_GROUP + 5, SpecialUser::Mixed, 40, Some(past));
    group_member(FIRST_GROUP + 6, SpecialUser::Mixed, 10, Some(future));
    group_member(FIRST_GROUP + 7, SpecialUser::Shared, 20, None);
    for project in 0..120 {
        let expires = ["NULL".to_owned(), past.to_string(), future.to_string()][pick_index(&mut rng, 3)].clone();
        let group = FIRST_GROUP + 6 + project % 2;
        shares.push(format!("({},{group},{},{expires},{START})", 5 + project * 17, rng.access_level()));
        // Locked groups do not share.
        let nested = FIRST_PROJECT + project * 9;
        shares.push(format!("({nested},{MIDDLE_GROUP},{},{expires},{START})", rng.access_level()));
    }
    let columns = "group_id,user_id,access_level,expires_at,created_at";
    sql::insert(&mut statements, "group_members", columns, &group_members);
    let columns = "project_id,user_id,access_level,expires_at,created_at";
    sql::insert(&mut statements, "project_members", columns, &members);
    let columns = "project_id,group_id,group_access,expires_at,created_at";
    sql::insert(&mut statements, "project_shares", columns, &shares);
    let stars: Vec<String> =
        (0..200).map(|number| format!("({},{},{START})", SpecialUser::Mixed.id(), 1 + number * 31)).collect();
    sql::insert(&mut statements, "project_stars", "user_id,project_id,created_at", &stars);
    // Deleted projects, and equal times.
    statements
        .push(format!("UPDATE projects SET namespace_id = NULL, deleted_at = {START} WHERE id % 97 = 5 AND id > 20"));
    statements.push(format!("UPDATE projects SET updated_at = {START}, last_activity_at = {START} WHERE id % 5 = 0"));
    statements
}
