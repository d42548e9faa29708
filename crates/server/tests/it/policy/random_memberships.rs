//! Random groups, projects and memberships: lists, single objects and permissions agree with the reference model.
//!
//! `PROPTEST_CASES=200` runs longer, `PROPTEST_RNG_SEED` chooses another sequence.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    str::FromStr,
};

use jiff::{SignedDuration, ToSpan as _, civil::Date};
use model::{NamespaceId, ProjectId, Role, UserId, UserState, Visibility};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, RngSeed, TestError, TestRunner},
};
use serde_json::{Value, json};
use store::{Conn, members::MemberSource};
use testkit::{TestClient, TestForge, fixtures};

use crate::policy::reference_model::{EXTERNAL, Group, Project, ProjectHome, ROOT, ReferenceModel, USERS, Until};

const BLOCKED: usize = 2;
const GROUPS: usize = 6;
const PROJECTS: usize = 14;
/// Parts of names, some of which contain others.
const WORDS: [&str; 4] = ["alpha", "Alp", "beta", "bet_5%"];
const SEARCHES: [&str; 5] = ["alp", "ALPHA", "be", "5%", "nowhere"];

/// The initial state and the changes to apply. An [`Index`] selects from any number of objects.
#[derive(Clone, Debug)]
struct Scenario {
    groups: Vec<GroupSpec>,
    projects: Vec<ProjectSpec>,
    /// Group, user, role and expiry.
    group_members: Vec<(Index, usize, Role, Until)>,
    /// Project, user, role and expiry.
    project_members: Vec<(Index, usize, Role, Until)>,
    /// Project, group, maximum role and expiry.
    shares: Vec<(Index, Index, Role, Until)>,
    stars: Vec<(Index, usize)>,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct GroupSpec {
    word: &'static str,
    below: Option<Index>,
    visibility: Visibility,
    locked: bool,
}

#[derive(Clone, Debug)]
struct ProjectSpec {
    word: &'static str,
    description: Option<&'static str>,
    /// The group that contains it; otherwise it is in the namespace of the user.
    group: Option<Index>,
    user: usize,
    visibility: Visibility,
    archived: bool,
}

#[derive(Clone, Debug)]
enum Change {
    ShowProject(Index, Visibility),
    ShowGroup(Index, Visibility),
    Archive(Index),
    RemoveProject(Index),
    RemoveGroup(Index),
    Transfer(Index, Index),
    EndProjectMembership(Index),
    EndGroupMembership(Index),
    EndShare(Index),
    JoinProject(Index, usize, Role, Until),
    JoinGroup(Index, usize, Role, Until),
    Block(usize),
    Unblock(usize),
    Sleep,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let user = 0..USERS.len();
    let until = || prop_oneof![6 => Just(None), 1 => Just(Some(-1)), 1 => Just(Some(0)), 2 => (1..4i8).prop_map(Some)];
    let visibility = || select(&Visibility::ALL[..]);
    let in_project = || select(&Role::ALL[..4]);
    let in_group = || select(&Role::ALL[..]);
    let index = any::<Index>;
    let groups =
        (select(&WORDS[..3]), proptest::option::weighted(0.3, index()), visibility(), proptest::bool::weighted(0.2))
            .prop_map(|(word, below, visibility, locked)| GroupSpec { word, below, visibility, locked });
    let projects = (
        select(&WORDS[..3]),
        proptest::option::of(select(&WORDS[..])),
        proptest::option::weighted(0.7, index()),
        user.clone(),
        prop_oneof![2 => Just(Visibility::Private), 1 => Just(Visibility::Internal), 1 => Just(Visibility::Public)],
        proptest::bool::weighted(0.2),
    )
        .prop_map(|(word, description, group, user, visibility, archived)| ProjectSpec {
            word,
            description,
            group,
            user,
            visibility,
            archived,
        });
    let change = prop_oneof![
        2 => (index(), visibility()).prop_map(|(project, level)| Change::ShowProject(project, level)),
        1 => (index(), visibility()).prop_map(|(group, level)| Change::ShowGroup(group, level)),
        1 => index().prop_map(Change::Archive),
        1 => index().prop_map(Change::RemoveProject),
        1 => index().prop_map(Change::RemoveGroup),
        2 => (index(), index()).prop_map(|(project, group)| Change::Transfer(project, group)),
        2 => index().prop_map(Change::EndProjectMembership),
        2 => index().prop_map(Change::EndGroupMembership),
        2 => index().prop_map(Change::EndShare),
        1 => (index(), user.clone(), in_project(), until()).prop_map(|(a, b, c, d)| Change::JoinProject(a, b, c, d)),
        1 => (index(), user.clone(), in_group(), until()).prop_map(|(a, b, c, d)| Change::JoinGroup(a, b, c, d)),
        1 => (1..USERS.len()).prop_map(Change::Block),
        1 => (1..USERS.len()).prop_map(Change::Unblock),
        1 => Just(Change::Sleep),
    ];
    (
        vec(groups, 1..=GROUPS),
        vec(projects, 1..=PROJECTS),
        vec((index(), user.clone(), in_group(), until()), 0..16),
        vec((index(), user.clone(), in_project(), until()), 0..16),
        vec((index(), index(), in_project(), until()), 0..10),
        vec((index(), user), 0..24),
        vec(change, 0..12),
    )
        .prop_map(|(groups, projects, group_members, project_members, shares, stars, changes)| Scenario {
            groups,
            projects,
            group_members,
            project_members,
            shares,
            stars,
            changes,
        })
}

/// Selects a key of a map, if it has any.
fn pick<K: Copy, V>(map: &BTreeMap<K, V>, index: Index) -> Option<K> {
    (!map.is_empty()).then(|| *map.keys().nth(index.index(map.len())).expect("within the map"))
}

const FIRST_DAY: Date = Date::constant(2026, 1, 2);

fn day(until: Until) -> Option<Date> {
    until.map(|days| FIRST_DAY + i32::from(days).days())
}

/// The forge and the reference model in the same state.
struct ForgeAndReference {
    forge: TestForge,
    clients: Vec<TestClient>,
    reference: ReferenceModel,
    /// The ids of all projects that ever existed.
    project_ids: Vec<ProjectId>,
    /// The ids of all groups that ever existed.
    group_ids: Vec<NamespaceId>,
}

impl ForgeAndReference {
    async fn begin(scenario: &Scenario) -> Self {
        let forge = TestForge::start().await;
        let mut clients = vec![forge.admin().await, forge.external(USERS[EXTERNAL]).await];
        for name in &USERS[2..] {
            clients.push(forge.user(name).await);
        }
        let reference = forge.in_transaction(|db| create_scenario(db, scenario, &clients, forge.forge.now()));
        let project_ids = reference.projects.keys().copied().collect();
        let group_ids = reference.groups.keys().copied().collect();
        Self { forge, clients, reference, project_ids, group_ids }
    }

    /// Applies a change through the API and to the reference model.
    async fn change(&mut self, change: &Change) {
        let root = self.clients[ROOT].clone();
        let reference = &mut self.reference;
        let (code, expected) = match change {
            Change::ShowProject(index, visibility) => {
                let Some(id) = pick(&reference.projects, *index) else { return };
                let project = reference.projects.get_mut(&id).expect("picked");
                let widest = match project.home {
                    ProjectHome::Group(group) => reference.groups[&group].visibility,
                    ProjectHome::User(_) => Visibility::Public,
                };
                let body = json!({ "name": project.name, "visibility_level": visibility.level() });
                let fits = *visibility <= widest;
                if fits {
                    project.visibility = *visibility;
                }
                (root.put(&format!("/projects/{id}"), body).await, if fits { 200 } else { 400 })
            }
            Change::ShowGroup(index, visibility) => {
                let Some(id) = pick(&reference.groups, *index) else { return };
                let inside = reference.projects.values().filter(|project| project.home == ProjectHome::Group(id));
                let fits = inside.map(|project| project.visibility).max().is_none_or(|widest| widest <= *visibility);
                if fits {
                    reference.groups.get_mut(&id).expect("picked").visibility = *visibility;
                }
                let body = json!({ "visibility_level": visibility.level() });
                (root.put(&format!("/groups/{id}"), body).await, if fits { 200 } else { 400 })
            }
            Change::Archive(index) => {
                let Some(id) = pick(&reference.projects, *index) else { return };
                let project = reference.projects.get_mut(&id).expect("picked");
                project.archived = !project.archived;
                let verb = if project.archived { "archive" } else { "unarchive" };
                (root.post(&format!("/projects/{id}/{verb}"), json!({})).await, 201)
            }
            Change::RemoveProject(index) => {
                let Some(id) = pick(&reference.projects, *index) else { return };
                reference.remove_project(id);
                (root.delete(&format!("/projects/{id}")).await, 200)
            }
            Change::RemoveGroup(index) => {
                let Some(id) = pick(&reference.groups, *index) else { return };
                reference.remove_group(id);
                (root.delete(&format!("/groups/{id}")).await, 200)
            }
            Change::Transfer(index, to) => {
                let (Some(id), Some(group)) = (pick(&reference.projects, *index), pick(&reference.groups, *to)) else {
                    return;
                };
                let widest = reference.groups[&group].visibility;
                let project = reference.projects.get_mut(&id).expect("picked");
                let stays = project.home == ProjectHome::Group(group);
                if !stays {
                    project.home = ProjectHome::Group(group);
                    project.visibility = project.visibility.min(widest);
                    reference.shares.remove(&(id, group));
                }
                let moved = root.post(&format!("/groups/{group}/projects/{id}"), json!({})).await;
                (moved, if stays { 400 } else { 201 })
            }
            other => return self.change_membership(other).await,
        };
        assert_eq!(code.code(), expected, "{change:?}: {code}");
    }

    async fn change_membership(&mut self, change: &Change) {
        let (root, clients, reference) = (self.clients[ROOT].clone(), &self.clients, &mut self.reference);
        let member = |source: String, user: usize| format!("/{source}/members/{}", clients[user].id);
        let body = |user: usize, role: &Role, until: &Until| json!({ "user_id": clients[user].id.get(), "access_level": role.level(), "expires_at": day(*until).map(|day| day.to_string()) });
        let (answer, expected) = match change {
            Change::EndProjectMembership(index) => {
                let Some((id, user)) = pick(&reference.project_members, *index) else { return };
                let is_active = reference.active_role(reference.project_members.get(&(id, user))).is_some();
                let stays = is_active && reference.projects[&id].home == ProjectHome::User(user);
                if is_active && !stays {
                    reference.project_members.remove(&(id, user));
                }
                (root.delete(&member(format!("projects/{id}"), user)).await, if stays { 403 } else { 200 })
            }
            Change::EndGroupMembership(index) => {
                let Some((id, user)) = pick(&reference.group_members, *index) else { return };
                let is_active = reference.active_role(reference.group_members.get(&(id, user))).is_some();
                let last = reference.is_last_owner(user, id);
                if is_active && !last {
                    reference.group_members.remove(&(id, user));
                }
                let expected = if last {
                    403
                } else if is_active {
                    200
                } else {
                    404
                };
                (root.delete(&member(format!("groups/{id}"), user)).await, expected)
            }
            Change::EndShare(index) => {
                let Some((project, group)) = pick(&reference.shares, *index) else { return };
                let is_active = reference.active_role(reference.shares.get(&(project, group))).is_some();
                if is_active {
                    reference.shares.remove(&(project, group));
                }
                (root.delete(&format!("/projects/{project}/share/{group}")).await, if is_active { 204 } else { 404 })
            }
            Change::JoinProject(index, user, role, until) => {
                let Some(id) = pick(&reference.projects, *index) else { return };
                if reference.active_role(reference.project_members.get(&(id, *user))).is_none() {
                    reference.project_members.insert((id, *user), (*role, *until));
                }
                (root.post(&format!("/projects/{id}/members"), body(*user, role, until)).await, 201)
            }
            Change::JoinGroup(index, user, role, until) => {
                let Some(id) = pick(&reference.groups, *index) else { return };
                let there = reference.active_role(reference.group_members.get(&(id, *user))).is_some();
                if !there {
                    reference.group_members.insert((id, *user), (*role, *until));
                }
                let joined = root.post(&format!("/groups/{id}/members"), body(*user, role, until)).await;
                (joined, if there { 409 } else { 201 })
            }
            Change::Block(user) => {
                reference.blocked.insert(*user);
                (root.put(&format!("/users/{}/block", clients[*user].id), json!({})).await, 200)
            }
            Change::Unblock(user) => {
                reference.blocked.remove(user);
                (root.put(&format!("/users/{}/unblock", clients[*user].id), json!({})).await, 200)
            }
            _ => {
                reference.today += 1;
                return self.forge.clock.advance(SignedDuration::from_hours(24));
            }
        };
        assert_eq!(answer.code(), expected, "{change:?}: {answer}");
    }

    /// Checks that the forge and the reference model agree for every user.
    async fn compare(&self) {
        for user in 0..USERS.len() {
            if self.reference.blocked.contains(&user) {
                assert_eq!(self.clients[user].get("/projects/visible").await.code(), 401);
                continue;
            }
            self.compare_lists(user).await;
            self.compare_groups(user).await;
            self.compare_permissions(user).await;
        }
        let anonymous = self.forge.anonymous();
        for id in &self.project_ids {
            assert_eq!(anonymous.get(&format!("/projects/{id}")).await.code(), 401);
        }
    }

    async fn compare_lists(&self, user: usize) {
        let (client, reference, who) = (&self.clients[user], &self.reference, USERS[user]);
        let mine = reference.projects_with(|id| reference.membership_role(user, id).is_some());
        // An administrator can see everything, but these lists do not include it.
        let open = |id: ProjectId| ReferenceModel::is_open_to(user, reference.projects[&id].visibility);
        let visible = reference.projects_with(|id| mine.contains(&id) || open(id));
        let owned = reference.projects_with(|id| reference.owns(user, id));
        let starred = reference.projects_with(|id| visible.contains(&id) && reference.stars.contains(&(id, user)));
        let mut lists = vec![("", mine), ("/visible", visible.clone()), ("/owned", owned), ("/starred", starred)];
        if user == ROOT {
            lists.push(("/all", reference.projects_with(|_| true)));
        } else {
            assert_eq!(client.get("/projects/all").await.code(), 403);
        }
        for (number, (list, expected)) in lists.iter().enumerate() {
            assert_eq!(ids(client, &format!("/projects{list}?")).await, *expected, "/projects{list} for {who}");
            // One search for each list, so that all of them are used.
            let search = SEARCHES[(number + user) % SEARCHES.len()];
            let found = ids(client, &format!("/projects{list}?search={}&", search.replace('%', "%25"))).await;
            let expected: BTreeSet<ProjectId> =
                expected.iter().copied().filter(|id| reference.matches(*id, search)).collect();
            assert_eq!(found, expected, "/projects{list} for {who}, with {search}");
        }
        for archived in [true, false] {
            let found = ids(client, &format!("/projects/visible?archived={archived}&")).await;
            let expected: BTreeSet<ProjectId> =
                visible.iter().copied().filter(|id| reference.projects[id].archived == archived).collect();
            assert_eq!(found, expected, "archived={archived} for {who}");
        }
        for level in Visibility::ALL {
            let found = ids(client, &format!("/projects/visible?visibility={}&order_by=name&", level.as_str())).await;
            let expected: BTreeSet<ProjectId> =
                visible.iter().copied().filter(|id| reference.projects[id].visibility == level).collect();
            assert_eq!(found, expected, "{level:?} for {who}");
        }
        for search in SEARCHES {
            let found = ids(client, &format!("/projects/search/{}?", search.replace('%', "%25"))).await;
            let expected: BTreeSet<ProjectId> =
                visible.iter().copied().filter(|id| reference.matches(*id, search)).collect();
            assert_eq!(found, expected, "the search for {search} by {who}");
        }
    }

    async fn compare_groups(&self, user: usize) {
        let (client, reference, who) = (&self.clients[user], &self.reference, USERS[user]);
        let mine = reference.groups_with(|id| user == ROOT || reference.role_in_group(user, id).is_some());
        assert_eq!(ids(client, "/groups?").await, mine, "/groups for {who}");
        let owned =
            |id: NamespaceId| reference.active_role(reference.group_members.get(&(id, user))) == Some(Role::Owner);
        assert_eq!(ids(client, "/groups/owned?").await, reference.groups_with(owned), "/groups/owned for {who}");
        let readable = reference.groups_with(|id| reference.sees_group(user, id));
        assert_eq!(ids(client, "/groups?all_available=true&").await, readable, "all groups for {who}");
        for id in &self.group_ids {
            let detail = client.get(&format!("/groups/{id}")).await;
            assert_eq!(detail.code(), if readable.contains(id) { 200 } else { 404 }, "group {id} for {who}: {detail}");
            if !readable.contains(id) {
                assert_eq!(client.get(&format!("/groups/{id}/projects")).await.code(), 404);
                assert_eq!(client.get(&format!("/groups/{id}/members")).await.code(), 404);
                continue;
            }
            let seen = |project: ProjectId| reference.sees(user, project);
            let own = reference
                .projects_with(|project| seen(project) && reference.projects[&project].home == ProjectHome::Group(*id));
            let shared =
                reference.projects_with(|project| seen(project) && reference.active_share_role(project, *id).is_some());
            let detail = detail.json();
            assert_eq!(ids_in(&detail["projects"]), own, "projects of group {id} for {who}");
            assert_eq!(ids_in(&detail["shared_projects"]), shared, "projects shared with group {id} for {who}");
            let listed = ids(client, &format!("/groups/{id}/projects?")).await;
            assert_eq!(listed, own.union(&shared).copied().collect(), "/groups/{id}/projects for {who}");
            let members = |(group, member): &(NamespaceId, usize)| {
                (group == id && reference.active_role(reference.group_members.get(&(*group, *member))).is_some())
                    .then(|| self.clients[*member].id)
            };
            let members: BTreeSet<UserId> = reference.group_members.keys().filter_map(members).collect();
            assert_eq!(
                ids(client, &format!("/groups/{id}/members?")).await,
                members,
                "members of group {id} for {who}"
            );
        }
    }

    async fn compare_permissions(&self, user: usize) {
        let (client, reference, who) = (&self.clients[user], &self.reference, USERS[user]);
        for (number, id) in self.project_ids.iter().enumerate() {
            let path = format!("/projects/{id}");
            let there = reference.projects.contains_key(id);
            let (seen, role) =
                if there { (reference.sees(user, *id), reference.role(user, *id)) } else { (false, None) };
            let shown = client.get(&path).await;
            assert_eq!(shown.code(), if seen { 200 } else { 404 }, "project {id} for {who}: {shown}");
            if seen {
                let token = !shown.json()["runners_token"].is_null();
                assert_eq!(token, role >= Some(Role::Master), "the token of project {id} for {who}, who is {role:?}");
            }
            // Writes are slower, so each user tries a quarter of the projects.
            if !(number + user).is_multiple_of(4) {
                continue;
            }
            let least = |least: Role, done: u16| {
                if !seen {
                    404
                } else if role >= Some(least) {
                    done
                } else {
                    403
                }
            };
            let project = reference.projects.get(id);
            let name = project.map_or("x", |project| &project.name);
            let edited = client.put(&path, json!({ "name": name, "wiki_enabled": true })).await;
            assert_eq!(edited.code(), least(Role::Master, 200), "{who}, who is {role:?}, edits project {id}: {edited}");
            let verb = if project.is_some_and(|project| project.archived) { "archive" } else { "unarchive" };
            let toggled = client.post(&format!("{path}/{verb}"), json!({})).await;
            assert_eq!(toggled.code(), least(Role::Owner, 201), "{who}, who is {role:?}, {verb}s project {id}");
        }
    }
}

fn ids_in<T: Ord + FromStr<Err: Debug>>(list: &Value) -> BTreeSet<T> {
    let list = list.as_array().expect("a list");
    let ids: BTreeSet<T> = list.iter().map(|item| item["id"].to_string().parse().expect("a number")).collect();
    assert_eq!(ids.len(), list.len(), "nothing is there twice");
    ids
}

/// Returns the ids on all pages of a list, and checks the total in the headers.
async fn ids<T: Ord + FromStr<Err: Debug>>(client: &TestClient, path: &str) -> BTreeSet<T> {
    let mut all = BTreeSet::new();
    for page in 1.. {
        let answer = client.get(&format!("{path}per_page=6&page={page}")).await;
        assert_eq!(answer.code(), 200, "{path}: {answer}");
        let found = ids_in(&answer.json());
        let (before, last) = (all.len(), found.len() < 6);
        let fresh = found.len();
        all.extend(found);
        assert_eq!(all.len(), before + fresh, "{path}: nothing is on two pages");
        if last {
            assert_eq!(answer.header("x-total"), all.len().to_string(), "{path}");
            break;
        }
    }
    all
}

fn create_scenario(db: &mut Conn, scenario: &Scenario, clients: &[TestClient], now: model::Time) -> ReferenceModel {
    let mut reference = ReferenceModel::default();
    let homes: Vec<NamespaceId> = clients.iter().map(|client| fixtures::personal_namespace(db, client.id)).collect();
    for (number, GroupSpec { word, below, visibility, locked }) in scenario.groups.iter().enumerate() {
        let parent = below.and_then(|index| pick(&reference.groups, index));
        let name = format!("{word}-g{number}");
        let id = fixtures::group(db, &name, parent, *visibility, now);
        if *locked {
            fixtures::lock_sharing(db, id);
        }
        reference.groups.insert(id, Group { name, parent, visibility: *visibility, locked: *locked });
    }
    for (number, spec) in scenario.projects.iter().enumerate() {
        let group = spec.group.and_then(|index| pick(&reference.groups, index));
        let (home, namespace) =
            group.map_or((ProjectHome::User(spec.user), homes[spec.user]), |id| (ProjectHome::Group(id), id));
        let widest = group.map_or(Visibility::Public, |id| reference.groups[&id].visibility);
        let (name, visibility) = (format!("{}-p{number}", spec.word), spec.visibility.min(widest));
        let new = model::projects::NewProject {
            name: name.clone(),
            path: Some(name.to_lowercase()),
            description: spec.description.map(str::to_owned),
            ..model::projects::NewProject::default()
        };
        let seed = model::projects::TokenSeed(vec![7; 16]);
        let creator = clients[spec.user].id;
        let id = store::projects::insert(db, &new, namespace, creator, visibility, &seed, now).expect("a project");
        store::projects::set_archived(db, id, spec.archived, now).expect("archived");
        let (description, archived) = (spec.description, spec.archived);
        reference.projects.insert(id, Project { name, description, home, visibility, archived });
    }
    for (index, user, role, until) in &scenario.group_members {
        let Some(id) = pick(&reference.groups, *index) else { continue };
        store::members::upsert(db, MemberSource::Group(id), clients[*user].id, *role, day(*until), now)
            .expect("a member");
        reference.group_members.insert((id, *user), (*role, *until));
    }
    for (index, user, role, until) in &scenario.project_members {
        let Some(id) = pick(&reference.projects, *index) else { continue };
        store::members::upsert(db, MemberSource::Project(id), clients[*user].id, *role, day(*until), now)
            .expect("a member");
        reference.project_members.insert((id, *user), (*role, *until));
    }
    for (index, with, role, until) in &scenario.shares {
        let (Some(id), Some(group)) = (pick(&reference.projects, *index), pick(&reference.groups, *with)) else {
            continue;
        };
        if reference.projects[&id].home != ProjectHome::Group(group) {
            store::members::insert_share(db, id, group, *role, day(*until), now).expect("a share");
            reference.shares.insert((id, group), (*role, *until));
        }
    }
    for (index, user) in &scenario.stars {
        let Some(id) = pick(&reference.projects, *index) else { continue };
        store::projects::star(db, id, clients[*user].id, now).expect("a star");
        reference.stars.insert((id, *user));
    }
    store::users::set_state(db, clients[BLOCKED].id, UserState::Blocked, now).expect("blocked");
    reference.blocked.insert(BLOCKED);
    reference
}

#[test]
fn lists_and_permissions_agree_with_the_reference_model() {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 80, ..Config::default() };
    // The default of proptest takes minutes.
    if config.cases == 256 {
        config.cases = 10;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(13);
    }
    let seed = config.rng_seed;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let verdict = TestRunner::new(config).run(&scenarios(), |scenario| {
        runtime.block_on(async {
            let mut pair = ForgeAndReference::begin(&scenario).await;
            for change in &scenario.changes {
                pair.change(change).await;
            }
            pair.compare().await;
        });
        Ok(())
    });
    match verdict {
        Ok(()) => {}
        Err(TestError::Fail(reason, scenario)) => {
            panic!("PROPTEST_RNG_SEED={seed}: {reason}\nin this scenario: {scenario:#?}")
        }
        Err(TestError::Abort(reason)) => panic!("PROPTEST_RNG_SEED={seed}: {reason}"),
    }
}
