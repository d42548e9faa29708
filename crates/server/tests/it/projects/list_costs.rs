//! The rows that lists of projects, events and users read on PostgreSQL, which counts them: as many as a page shows, however
//! many projects the caller has.

use model::{
    NamespaceId, Page, ProjectId, UserId, Visibility,
    events::EventAction,
    projects::{ProjectFilter, ProjectOrder},
    users::UserFilter,
};
use serde_json::json;
use store::{Conn, IssueVisibility, Viewer, events, project_lists, project_lists::ProjectListScope, users};
use testkit::{TestForge, fixtures::execute_sql};

use crate::support::{TableReads, reads_of};

/// The tables that grow with the number of projects.
const TABLES: &[&str] = &["projects", "project_members", "issue_books"];

/// The number of projects of each caller.
const PROJECTS: i64 = 4_000;
/// The maximum number of rows of projects and of memberships that a page of 20 reads: most if the instance is scanned for
/// projects of the caller.
const MAX_ROWS: i64 = 1_000;
/// As [`MAX_ROWS`], for a visitor of a group who is a member of its private projects, a third of all: each is looked at.
const MAX_ROWS_OF_VISITORS: i64 = 1_500;
/// As [`MAX_ROWS`], for a caller with many namespaces: all of their projects are read, and a scan may be given up before.
const MAX_ROWS_IN_MANY_NAMESPACES: i64 = PROJECTS + 1_500;
/// The number of subgroups of a group.
const SUBGROUPS: i64 = 300;

const ORDERS: [ProjectOrder; 6] = [
    ProjectOrder::Id,
    ProjectOrder::Name,
    ProjectOrder::Path,
    ProjectOrder::CreatedAt,
    ProjectOrder::UpdatedAt,
    ProjectOrder::LastActivityAt,
];

/// Returns filters by archival and visibility: none for every order, and others for an order that memberships have an index for
/// and for one that they do not.
fn filters(order: ProjectOrder) -> &'static [(Option<bool>, Option<Visibility>)] {
    const FILTERS: [(Option<bool>, Option<Visibility>); 4] =
        [(None, None), (Some(false), None), (None, Some(Visibility::Private)), (Some(true), Some(Visibility::Public))];
    if matches!(order, ProjectOrder::Id | ProjectOrder::Name) { &FILTERS } else { &FILTERS[..1] }
}

/// Inserts projects into a namespace; one in three is private.
fn insert_projects(forge: &TestForge, namespace: &str, creator: UserId) {
    forge.execute_sql(&format!(
        "INSERT INTO projects (namespace_id,creator_id,name,path,name_key,path_key,search_text,description,visibility,\
         archived,issues_enabled,merge_requests_enabled,wiki_enabled,builds_enabled,snippets_enabled,\
         container_registry_enabled,shared_runners_enabled,public_builds,only_allow_merge_if_build_succeeds,\
         only_allow_merge_if_all_discussions_are_resolved,request_access_enabled,runners_seed,created_at,updated_at,\
         last_activity_at) \
         SELECT {namespace},{creator},'p'||n,'p'||n,'p'||n,'p'||n,'p'||n,'',(n % 3) * 10,n % 20 = 0,TRUE,TRUE,TRUE,TRUE,\
         TRUE,TRUE,TRUE,TRUE,FALSE,FALSE,FALSE,'',n,n * 7 % 1000,n * 13 % 1000 FROM generate_series(1, {PROJECTS}) n",
        creator = creator.get(),
    ));
}

#[tokio::test]
async fn a_page_reads_as_many_rows_as_it_shows() {
    let forge = TestForge::start().await;
    if forge.with_read_connection(|db| matches!(db, Conn::Sqlite(_))) {
        return;
    }
    let (owner, group_owner, bot, nobody) =
        (forge.user("owner").await, forge.user("leader").await, forge.user("bot").await, forge.user("nobody").await);
    let parent_owner = forge.user("parent-owner").await;
    let acme = group_owner.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    let parent = parent_owner.make("/groups", json!({ "name": "parent", "path": "parent" })).await;
    forge.execute_sql(&format!(
        "INSERT INTO namespaces (parent_id,kind,name,path,full_path,name_key,path_key,description,visibility,\
         share_with_group_lock,created_at,updated_at) SELECT {parent},'group','sub'||n,'sub'||n,'parent/sub'||n,'sub'||n,\
         'sub'||n,'',20,FALSE,0,0 FROM generate_series(1, {SUBGROUPS}) n"
    ));
    let subgroup = format!("(SELECT id FROM namespaces WHERE full_path = 'parent/sub'||(1 + n % {SUBGROUPS}))");
    insert_projects(&forge, &subgroup, parent_owner.id);
    insert_projects(&forge, &format!("(SELECT id FROM namespaces WHERE owner_id = {})", owner.id.get()), owner.id);
    insert_projects(&forge, "(SELECT id FROM namespaces WHERE path = 'acme')", group_owner.id);
    for (user, level, condition) in [(&owner, 40, "owner_id IS NOT NULL"), (&bot, 30, "path = 'acme'")] {
        forge.execute_sql(&format!(
            "INSERT INTO project_members (project_id,user_id,access_level,created_at) SELECT p.id,{},{level},0 \
             FROM projects p JOIN namespaces n ON n.id = p.namespace_id WHERE n.{condition} ORDER BY p.id",
            user.id.get()
        ));
    }
    forge.execute_sql(&format!(
        "INSERT INTO project_shares (project_id,group_id,group_access,created_at) SELECT p.id,{parent},20,0 FROM projects p \
         JOIN namespaces n ON n.id = p.namespace_id WHERE n.owner_id = {} ORDER BY p.id LIMIT 50",
        owner.id.get()
    ));
    forge.with_connection(|db| execute_sql(db, "VACUUM ANALYZE"));
    let page = Page { number: 1, size: 20 };
    // One in twenty is archived.
    let last_page = Page { number: (PROJECTS - PROJECTS / 20) / 20, size: 20 };
    let now = forge.forge.now();
    forge.with_read_connection(|db| {
        // The connections of the server avoid sequential scans; a list does not need that.
        execute_sql(db, "SET enable_seqscan = on");
        for user in [&owner, &group_owner, &parent_owner, &bot, &nobody] {
            let viewer = Viewer { user: user.id, visible_from: Visibility::Internal, admin: false, now };
            for scope in [
                ProjectListScope::Mine,
                ProjectListScope::Owned,
                ProjectListScope::Visible,
                ProjectListScope::All,
                ProjectListScope::Starred,
                ProjectListScope::OfGroup {
                    group: NamespaceId::new(acme),
                    own: true,
                    shared: true,
                    all: user.id == group_owner.id,
                },
                ProjectListScope::OfGroup {
                    group: NamespaceId::new(parent),
                    own: true,
                    shared: true,
                    all: user.id == parent_owner.id,
                },
            ] {
                for (order, ascending) in ORDERS.into_iter().flat_map(|order| [(order, true), (order, false)]) {
                    for &(archived, visibility) in filters(order) {
                        let filter =
                            ProjectFilter { archived, visibility, order, ascending, ..ProjectFilter::default() };
                        let of_group = matches!(scope, ProjectListScope::OfGroup { .. });
                        let max_rows = if user.id == parent_owner.id {
                            MAX_ROWS_IN_MANY_NAMESPACES
                        } else if of_group {
                            MAX_ROWS_OF_VISITORS
                        } else {
                            MAX_ROWS
                        };
                        // Rows that are read from an index alone are counted for these only.
                        let counts_all = max_rows > MAX_ROWS;
                        execute_sql(db, &format!("SET enable_indexonlyscan = {}", !counts_all));
                        let reads = reads_of(db, TABLES, |db| {
                            let listed = project_lists::list(db, &viewer, scope, &filter, page).expect("listed");
                            let expected = listed.total.at_least().min(page.size);
                            assert_eq!(i64::try_from(listed.items.len()), Ok(expected), "{scope:?} with {filter:?}");
                        });
                        for read in &reads {
                            let TableReads { table_name, sequential_scans, rows } = read;
                            let context = format!("{table_name} in {scope:?} of {} with {filter:?}", user.id);
                            assert_eq!(*sequential_scans, 0, "sequential scan of {context}");
                            assert!(*rows <= max_rows, "{rows} rows of {context}");
                        }
                    }
                }
            }
            // The end of a list is as near as its start, unless each membership has to be looked at.
            let filter = ProjectFilter { archived: Some(false), ..ProjectFilter::default() };
            let reads = reads_of(db, TABLES, |db| {
                let listed =
                    project_lists::list(db, &viewer, ProjectListScope::Owned, &filter, last_page).expect("listed");
                let owns = [&owner, &group_owner, &parent_owner].iter().any(|owner| owner.id == user.id);
                assert_eq!(listed.items.len(), if owns { 20 } else { 0 }, "{}", user.id);
            });
            let max_rows = if user.id == parent_owner.id { MAX_ROWS_IN_MANY_NAMESPACES } else { MAX_ROWS };
            assert!(reads.iter().all(|read| read.rows <= max_rows), "{reads:?}");
        }
    });
}

#[tokio::test]
async fn a_page_of_events_or_users_reads_as_many_rows_as_it_shows() {
    const MANY: i64 = 4_000;
    let forge = TestForge::start().await;
    if forge.with_read_connection(|db| matches!(db, Conn::Sqlite(_))) {
        return;
    }
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 10 })).await);
    forge.execute_sql(&format!(
        "INSERT INTO events (project_id, author_id, action, created_at) \
         SELECT {project}, {}, {}, n FROM generate_series(1, {MANY}) n",
        ann.id,
        EventAction::Joined.code()
    ));
    forge.execute_sql(&format!(
        "INSERT INTO users (username, name, email, search_text, password_hash, state, admin, external, can_create_group, \
         projects_limit, skype, linkedin, twitter, website_url, created_at, updated_at) \
         SELECT 'u'||n, 'U', 'u'||n||'@example.org', 'u'||n, 'none', CASE WHEN n % 2 = 0 THEN 'active' ELSE 'blocked' END, \
         FALSE, n % 4 = 0, FALSE, 0, '', '', '', '', 0, 0 FROM generate_series(1, {MANY}) n"
    ));
    forge.with_connection(|db| execute_sql(db, "VACUUM ANALYZE"));
    let visibility = IssueVisibility { user: bob.id, confidential: false };
    let viewer = Viewer { user: bob.id, visible_from: Visibility::Internal, admin: false, now: forge.forge.now() };
    let filter_users = |active, blocked, external| UserFilter { active, blocked, external, ..UserFilter::default() };
    forge.with_read_connection(|db| {
        let mut check = |context: &str, list: &dyn Fn(&mut Conn, Page) -> usize| {
            for number in [1, 40] {
                let mut items = 0;
                let page = Page { number, size: 20 };
                let reads = reads_of(db, &["events", "identities", "users"], |db| items = list(db, page));
                assert_eq!(items, 20, "page {number} of {context}");
                for read in reads {
                    // The rows of the pages before it are read as well, and as many users in other states.
                    let max_rows = number * 20 * 2 + 100;
                    let is_cheap = read.sequential_scans == 0 && read.rows <= max_rows;
                    assert!(is_cheap, "page {number} of {context}: {read:?}");
                }
            }
        };
        check("events of a project", &|db, page| {
            events::of_project(db, project, true, Some(&visibility), page).expect("listed").items.len()
        });
        check("events of a project without its code", &|db, page| {
            events::of_project(db, project, false, None, page).expect("listed").items.len()
        });
        check("events of a user", &|db, page| events::of_user(db, &viewer, ann.id, page).expect("listed").items.len());
        for filter in [
            filter_users(false, false, false),
            filter_users(true, false, false),
            filter_users(false, true, false),
            filter_users(false, false, true),
        ] {
            check(&format!("{filter:?}"), &|db, page| users::list(db, &filter, page).expect("listed").items.len());
        }
    });
}
