//! Store tests of issues: counters, lists and cascading deletes.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use diesel::{
    Connection as _, QueryableByName, RunQueryDsl as _, connection::InstrumentationEvent, sql_query, sql_types::BigInt,
};
use model::{
    Change, Issue, IssueId, IssueIid, LabelId, MilestoneId, NamespaceId, Page, ProjectId, Role, Slice, Time, UserId,
    Visibility,
    issues::{AssigneeFilter, IssueFilter, IssueOrder, IssueState},
    labels::NewLabel,
    milestones::NewMilestone,
};
use store::{
    Conn, IssueVisibility, Viewer,
    issue_lists::{IssueScope, list},
    issues::{IssueUpdate, NewIssue},
    members::MemberSource,
    notes::NewNote,
    projects::DeletionScope,
};
use testkit::{TestForge, bulk, fixtures};

fn number(db: &mut Conn, query: &str) -> i64 {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = BigInt)]
        number: i64,
    }
    let found: Result<Row, _> = match db {
        Conn::Sqlite(conn) => sql_query(query).get_result(conn),
        Conn::Pg(conn) => sql_query(query).get_result(conn),
    };
    found.unwrap_or_else(|error| panic!("{query}: {error}")).number
}

/// Inserts a label and returns its id.
fn label(db: &mut Conn, project: ProjectId, title: &str) -> LabelId {
    let new = NewLabel { title: title.into(), color: "#123456".into(), description: None, priority: None };
    store::labels::insert(db, project, &new, Time::UNIX_EPOCH).expect("a label").id
}

/// Inserts a milestone and returns its id.
fn milestone(db: &mut Conn, project: ProjectId, title: &str) -> MilestoneId {
    let due_on = Some("1970-01-02".parse().expect("a day"));
    let new = NewMilestone { title: title.into(), description: None, start_on: None, due_on };
    store::milestones::insert(db, project, &new, Time::UNIX_EPOCH).expect("a milestone").id
}

fn note(db: &mut Conn, issue: IssueId, author: UserId, body: &str, system: bool) {
    let project = ProjectId::new(number(db, &format!("SELECT project_id AS number FROM issues WHERE id = {issue}")));
    let now = Time::from_microsecond(3).expect("a time");
    store::notes::insert(db, &NewNote { project, issue, author, body, system, now }).expect("a note");
}

fn new_issue(project: ProjectId, title: &str) -> NewIssue<'_> {
    NewIssue {
        project,
        iid: IssueIid::new(0),
        author: None,
        title,
        description: None,
        assignee: None,
        milestone: None,
        due_on: None,
        confidential: false,
        created_at: Time::UNIX_EPOCH,
        now: Time::UNIX_EPOCH,
    }
}

fn insert(db: &mut Conn, new: NewIssue<'_>) -> IssueId {
    store::issues::lock_project(db, new.project).expect("locked");
    let iid = store::issues::next_iid(db, new.project).expect("a number");
    store::issues::insert(db, &NewIssue { iid, ..new }).expect("an issue")
}

fn apply_update(db: &mut Conn, issue: IssueId, update: &IssueUpdate<'_>) {
    store::issues::update(db, issue, update, None, Time::UNIX_EPOCH).expect("changed");
}

fn full_visibility(user: UserId) -> IssueVisibility {
    IssueVisibility { user, confidential: true }
}

fn find(db: &mut Conn, visibility: IssueVisibility, project: ProjectId, issue: IssueId) -> Option<Issue> {
    store::issues::find(db, &visibility, project, issue).expect("asked")
}

/// Returns the counters of open and closed issues, then of the confidential ones among each.
fn read_counters(db: &mut Conn, table: &str, id: i64) -> [i64; 4] {
    let key = if table == "labels" { "id" } else { "project_id" };
    ["open_issues", "closed_issues", "open_confidential", "closed_confidential"]
        .map(|column| number(db, &format!("SELECT {column} AS number FROM {table} WHERE {key} = {id}")))
}

/// Creates a user and a private project of theirs; returns their ids.
async fn user_with_project(forge: &TestForge) -> (UserId, ProjectId) {
    let ann = forge.user("ann").await.id;
    let now = forge.forge.now();
    let project = forge.in_transaction(|db| {
        let home = fixtures::personal_namespace(db, ann);
        fixtures::project(db, "rocket", home, ann, Visibility::Private, now)
    });
    (ann, project)
}

#[tokio::test]
async fn an_issue_is_read_as_inserted() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge).await;
    let bob = forge.user("bob").await.id;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let plan = milestone(db, project, "plan");
        let labels = ["beta", "Alpha", "alpha"].map(|title| label(db, project, title));
        let day = "2026-12-24".parse().expect("a day");
        let new = NewIssue {
            author: Some(ann),
            description: Some("Long"),
            assignee: Some(bob),
            milestone: Some(plan),
            due_on: Some(day),
            confidential: true,
            created_at: now,
            now,
            ..new_issue(project, "Short")
        };
        let id = insert(db, new);
        store::issues::add_labels(db, id, &labels).expect("labels");
        store::issues::add_labels(db, id, &labels).expect("the same once more");

        let issue = find(db, full_visibility(UserId::ANONYMOUS), project, id).expect("it is there");
        assert_eq!((issue.iid, issue.project, issue.project_path.as_str()), (IssueIid::new(1), project, "ann/rocket"));
        assert_eq!((issue.title.as_str(), issue.description.as_deref()), ("Short", Some("Long")));
        assert_eq!((issue.state, issue.confidential, issue.due_on), (IssueState::Opened, true, Some(day)));
        assert_eq!(issue.author.as_ref().map(|user| user.username.as_str()), Some("ann"));
        assert_eq!(issue.assignee.as_ref().map(|user| user.username.as_str()), Some("bob"));
        let plan = issue.milestone.as_ref().expect("a milestone");
        assert_eq!((plan.title.as_str(), plan.due_on.map(|day| day.to_string())), ("plan", Some("1970-01-02".into())));
        assert_eq!(issue.labels, ["Alpha", "alpha", "beta"]);
        assert_eq!((issue.created_at, issue.updated_at, issue.user_notes, issue.subscribed), (now, now, 0, false));
        assert_eq!(
            store::issues::by_iid(db, &full_visibility(UserId::ANONYMOUS), project, IssueIid::new(1)).expect("asked"),
            Some(issue)
        );
        assert_eq!(
            store::issues::by_iid(db, &full_visibility(UserId::ANONYMOUS), project, IssueIid::new(2)).expect("asked"),
            None
        );
        assert_eq!(
            find(db, full_visibility(UserId::ANONYMOUS), ProjectId::new(project.get() + 1), id),
            None,
            "of another project"
        );

        let sees = |db: &mut Conn, user| find(db, IssueVisibility { user, confidential: false }, project, id).is_some();
        assert!(
            sees(db, ann) && sees(db, bob) && !sees(db, UserId::ANONYMOUS) && !sees(db, UserId::new(bob.get() + 1))
        );
    });
}

#[tokio::test]
async fn users_are_subscribed_explicitly_or_by_participation() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge).await;
    let (bob, cat, dan) = (forge.user("bob").await.id, forge.user("cat").await.id, forge.user("dan").await.id);
    forge.in_transaction(|db| {
        let id = insert(db, NewIssue { author: Some(ann), assignee: Some(bob), ..new_issue(project, "x") });
        note(db, id, cat, "hello", false);
        note(db, id, dan, "closed", true);
        let follows = |db: &mut Conn| {
            [ann, bob, cat, dan, UserId::ANONYMOUS]
                .map(|user| find(db, full_visibility(user), project, id).expect("there").subscribed)
        };
        assert_eq!(follows(db), [true, true, true, false, false]);
        for (user, subscribed) in [(ann, false), (dan, true), (dan, false), (dan, true)] {
            store::issues::set_subscribed(db, id, user, subscribed).expect("noted");
        }
        assert_eq!(follows(db), [false, true, true, true, false]);
    });
}

#[tokio::test]
async fn an_update_changes_the_sent_fields_and_the_time() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge).await;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let plan = milestone(db, project, "plan");
        let id = insert(db, NewIssue { description: Some("Sea"), ..new_issue(project, "Ship") });
        let other = insert(db, new_issue(project, "other"));
        let state = |db: &mut Conn| find(db, full_visibility(UserId::ANONYMOUS), project, id).expect("there").state;
        let finds = |db: &mut Conn, text: &str| {
            let filter = IssueFilter { search: Some(text.into()), ..IssueFilter::default() };
            ids_of(&list_issues(db, &IssueScope::Project(project, full_visibility(UserId::ANONYMOUS)), &filter))
        };

        store::issues::update(db, id, &IssueUpdate::default(), Some(ann), now).expect("changed");
        let issue = find(db, full_visibility(UserId::ANONYMOUS), project, id).expect("there");
        assert_eq!((issue.created_at, issue.updated_at), (Time::UNIX_EPOCH, now));
        assert_eq!(number(db, &format!("SELECT updated_by_id AS number FROM issues WHERE id = {id}")), ann.get());
        assert_eq!((finds(db, "SHIP"), finds(db, "sea")), (vec![id], vec![id]));

        apply_update(db, id, &IssueUpdate { title: Some("Boat"), ..IssueUpdate::default() });
        assert_eq!((finds(db, "ship"), finds(db, "boat"), finds(db, "sea")), (vec![], vec![id], vec![id]));
        apply_update(db, id, &IssueUpdate { description: Change::Clear, ..IssueUpdate::default() });
        assert_eq!((finds(db, "boat"), finds(db, "sea")), (vec![id], vec![]));

        apply_update(db, id, &IssueUpdate { closed: Some(false), ..IssueUpdate::default() });
        assert_eq!(state(db), IssueState::Opened, "it was never closed");
        apply_update(db, id, &IssueUpdate { closed: Some(true), ..IssueUpdate::default() });
        assert_eq!(state(db), IssueState::Closed);
        apply_update(db, id, &IssueUpdate { closed: Some(false), ..IssueUpdate::default() });
        assert_eq!(state(db), IssueState::Reopened);
        apply_update(db, id, &IssueUpdate { closed: Some(true), ..IssueUpdate::default() });
        assert_eq!(state(db), IssueState::Closed);

        let day = "9999-12-31".parse().expect("a day");
        let update = IssueUpdate {
            assignee: Change::Set(ann),
            milestone: Change::Set(plan),
            due_on: Change::Set(day),
            moved_to: Some(other),
            ..IssueUpdate::default()
        };
        apply_update(db, id, &update);
        let relations = |db: &mut Conn| {
            let issue = find(db, full_visibility(UserId::ANONYMOUS), project, id).expect("there");
            (
                issue.assignee.map(|user| user.id),
                issue.milestone.map(|milestone| milestone.id),
                issue.due_on,
                issue.moved_to,
            )
        };
        assert_eq!(relations(db), (Some(ann), Some(plan), Some(day), Some(other)));
        let update = IssueUpdate {
            assignee: Change::Clear,
            milestone: Change::Clear,
            due_on: Change::Clear,
            ..IssueUpdate::default()
        };
        apply_update(db, id, &update);
        assert_eq!(relations(db), (None, None, None, Some(other)));
    });
}

#[tokio::test]
async fn counters_follow_issues_and_labels() {
    let forge = TestForge::start().await;
    let (_, project) = user_with_project(&forge).await;
    forge.in_transaction(|db| {
        let (bug, chore) = (label(db, project, "bug"), label(db, project, "chore"));
        let first = insert(db, new_issue(project, "first"));
        let second = insert(db, NewIssue { confidential: true, ..new_issue(project, "second") });
        let check = |db: &mut Conn, book: [i64; 4], of_bug: [i64; 4], of_chore: [i64; 4], why: &str| {
            let counters = [("issue_books", project.get()), ("labels", bug.get()), ("labels", chore.get())];
            let counters = counters.map(|(table, id)| read_counters(db, table, id));
            assert_eq!(counters, [book, of_bug, of_chore], "{why}");
        };
        let none = [0; 4];
        check(db, [2, 0, 1, 0], none, none, "written");
        store::issues::add_labels(db, first, &[bug, chore]).expect("labels");
        store::issues::add_labels(db, second, &[bug]).expect("labels");
        store::issues::add_labels(db, second, &[bug]).expect("labels");
        check(db, [2, 0, 1, 0], [2, 0, 1, 0], [1, 0, 0, 0], "labels on");
        apply_update(db, second, &IssueUpdate { closed: Some(true), ..IssueUpdate::default() });
        check(db, [1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0], "closed");
        apply_update(db, second, &IssueUpdate { closed: Some(true), ..IssueUpdate::default() });
        check(db, [1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0], "closed once more");
        apply_update(db, second, &IssueUpdate { confidential: Some(false), ..IssueUpdate::default() });
        apply_update(db, first, &IssueUpdate { confidential: Some(true), ..IssueUpdate::default() });
        check(db, [1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 1, 0], "confidentiality swapped");
        apply_update(
            db,
            second,
            &IssueUpdate { closed: Some(false), confidential: Some(true), ..IssueUpdate::default() },
        );
        check(db, [2, 0, 2, 0], [2, 0, 2, 0], [1, 0, 1, 0], "reopened");
        store::issues::remove_labels(db, first, &[chore]).expect("taken off");
        store::issues::remove_labels(db, first, &[chore]).expect("nothing to take off");
        check(db, [2, 0, 2, 0], [2, 0, 2, 0], none, "a label off");
        store::issues::delete(db, second).expect("removed");
        check(db, [1, 0, 1, 0], [1, 0, 1, 0], none, "an issue removed");
        store::labels::delete(db, bug).expect("removed");
        assert_eq!(store::issues::labels_of(db, first).expect("asked"), []);
        assert_eq!(read_counters(db, "issue_books", project.get()), [1, 0, 1, 0]);
        assert_eq!(store::issues::next_iid(db, project).expect("a number"), IssueIid::new(3), "iids are not reused");
    });
}

#[tokio::test]
async fn labels_of_another_project_are_not_added_to_an_issue() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge).await;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let home = fixtures::personal_namespace(db, ann);
        let other = fixtures::project(db, "other", home, ann, Visibility::Public, now);
        let (own, foreign) = (label(db, project, "own"), label(db, other, "foreign"));
        let id = insert(db, new_issue(project, "x"));
        store::issues::add_labels(db, id, &[own, foreign]).expect("labels");
        assert_eq!(store::issues::labels_of(db, id).expect("asked"), [(own, "own".to_owned())]);
        assert_eq!(read_counters(db, "labels", foreign.get()), [0; 4]);
    });
}

#[tokio::test]
async fn notes_are_copied_in_order_and_counted() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge).await;
    forge.in_transaction(|db| {
        let (from, to) = (insert(db, new_issue(project, "from")), insert(db, new_issue(project, "to")));
        for (body, system) in [("one", false), ("two", true), ("three", false)] {
            note(db, from, ann, body, system);
        }
        store::issues::copy_notes(db, from, to, project, "Moved").expect("copied");
        let notes = |db: &mut Conn, id| find(db, full_visibility(UserId::ANONYMOUS), project, id).expect("there").user_notes;
        assert_eq!((notes(db, from), notes(db, to)), (2, 2));
        for (offset, body) in ["one", "two", "three"].into_iter().enumerate() {
            let query = format!(
                "SELECT count(*) AS number FROM (SELECT body, created_at, author_id FROM notes WHERE issue_id = {to} \
                 ORDER BY id LIMIT 1 OFFSET {offset}) n WHERE n.body = '{body}' AND created_at = 3 AND author_id = {ann}"
            );
            assert_eq!(number(db, &query), 1, "{body}");
        }
        fixtures::execute_sql(db, &format!("DELETE FROM notes WHERE issue_id = {to}"));
        assert_eq!((notes(db, from), notes(db, to)), (2, 0));
    });
}

#[tokio::test]
async fn deleting_an_issue_cascades_and_deleting_its_users_does_not() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge).await;
    let bob = forge.user("bob").await.id;
    forge.in_transaction(|db| {
        let (plan, bug) = (milestone(db, project, "plan"), label(db, project, "bug"));
        let new = NewIssue { author: Some(bob), assignee: Some(bob), milestone: Some(plan), ..new_issue(project, "x") };
        let (kept, gone) = (insert(db, new.clone()), insert(db, new));
        for id in [kept, gone] {
            store::issues::add_labels(db, id, &[bug]).expect("labels");
            store::issues::set_subscribed(db, id, ann, true).expect("noted");
            note(db, id, ann, "hello", false);
        }
        store::issues::delete(db, gone).expect("removed");
        for table in ["issue_labels", "issue_subscriptions", "notes"] {
            assert_eq!(number(db, &format!("SELECT count(*) AS number FROM {table}")), 1, "{table}");
        }
        store::users::delete(db, bob).expect("removed");
        fixtures::execute_sql(db, "DELETE FROM milestones");
        let issue = find(db, full_visibility(UserId::ANONYMOUS), project, kept).expect("there");
        assert_eq!((issue.author, issue.assignee, issue.milestone), (None, None, None));
        let filter = IssueFilter { labels: vec!["bug".into()], ..IssueFilter::default() };
        assert_eq!(
            ids_of(&list_issues(db, &IssueScope::Project(project, full_visibility(UserId::ANONYMOUS)), &filter)),
            [kept]
        );
        assert_eq!(number(db, "SELECT count(*) AS number FROM issue_labels WHERE milestone_id IS NOT NULL"), 0);

        store::projects::soft_delete(db, DeletionScope::One(project), "remove", Time::UNIX_EPOCH)
            .expect("soft-deleted");
        while store::projects::purge_batch(db, project, 1).expect("smaller") > 0 {}
        for table in ["issues", "notes", "labels", "milestones", "issue_labels", "issue_subscriptions"] {
            assert_eq!(number(db, &format!("SELECT count(*) AS number FROM {table}")), 0, "{table}");
        }
        store::projects::purge(db, project).expect("removed");
        assert_eq!(number(db, "SELECT count(*) AS number FROM issue_books"), 0);
    });
}

fn list_issues(db: &mut Conn, scope: &IssueScope, filter: &IssueFilter) -> Slice<Issue> {
    list(db, scope, filter, IssueOrder::default(), Page::new(None, Some(100))).expect("listed")
}

fn ids_of(slice: &Slice<Issue>) -> Vec<IssueId> {
    slice.items.iter().map(|issue| issue.id).collect()
}

#[tokio::test]
async fn a_search_matches_title_or_description_but_not_across_both() {
    let forge = TestForge::start().await;
    let (_, project) = user_with_project(&forge).await;
    let now = forge.forge.now();
    let other = forge.in_transaction(|db| {
        let group = fixtures::group(db, "group", None, Visibility::Public, now);
        fixtures::project(db, "other", group, UserId::new(1), Visibility::Public, now)
    });
    // With many issues, the search index is used instead of a scan.
    for fillers in [0, 1500] {
        forge.in_transaction(|db| {
            if fillers > 0 {
                bulk::filler_issues(db, project, fillers, 0, false);
            }
            let ship = insert(db, NewIssue { description: Some("\"Sea\" 100%\nΣΑΣ"), ..new_issue(project, "Ship") });
            let seal = insert(db, NewIssue { description: Some("ship_x"), ..new_issue(project, "Seal") });
            insert(db, new_issue(other, "Ship at sea"));
            let finds = |db: &mut Conn, text: &str| {
                let filter = IssueFilter { search: Some(text.into()), ..IssueFilter::default() };
                let found = list_issues(db, &IssueScope::Project(project, full_visibility(UserId::ANONYMOUS)), &filter);
                assert_eq!(
                    found.total.exact().and_then(|total| usize::try_from(total).ok()),
                    Some(found.items.len()),
                    "{text}"
                );
                ids_of(&found)
            };
            for (text, expected) in [
                ("ship", vec![seal, ship]),
                ("SEA", vec![seal, ship]),
                ("se", vec![seal, ship]),
                ("x", vec![seal]),
                ("\"sea", vec![ship]),
                ("100%", vec![ship]),
                ("%", vec![ship]),
                ("_", vec![seal]),
                ("h_p", vec![]),
                ("σας", vec![ship]),
                ("as", vec![]),
                ("ship\"", vec![]),
                ("shipsea", vec![]),
                ("ship\u{1}", vec![]),
                ("\u{1}", vec![]),
                ("nowhere", vec![]),
            ] {
                assert_eq!(finds(db, text), expected, "{text:?} among {fillers}");
            }
            store::issues::delete(db, ship).expect("removed");
            store::issues::delete(db, seal).expect("removed");
            assert_eq!(finds(db, "sea"), []);
        });
    }
}

/// A deterministic pseudo-random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % u64::try_from(end).expect("small")).expect("small")
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn some<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        items.iter().filter(|_| self.below(2) == 0).cloned().collect()
    }
}

/// An inserted issue.
struct InsertedIssue {
    id: IssueId,
    iid: IssueIid,
    /// The index of the project.
    project_index: usize,
    author: Option<UserId>,
    assignee: Option<UserId>,
    closed: bool,
    confidential: bool,
    labels: Vec<&'static str>,
    milestone: Option<&'static str>,
    text: (String, String),
    created: i64,
    updated: i64,
}

/// Random issues in four projects: a private one and a public one in a group, a public one in the group with issues
/// disabled, and a private one outside the group.
struct RandomIssues {
    group: NamespaceId,
    projects: [ProjectId; 4],
    milestones: [[MilestoneId; 2]; 4],
    issues: Vec<InsertedIssue>,
}

const LABELS: [&str; 3] = ["a", "B b", "c"];
const MILESTONES: [&str; 2] = ["first", "second"];
const WORDS: [&str; 4] = ["River", "stone", "ri", "Überall"];

impl RandomIssues {
    fn build(db: &mut Conn, rng: &mut Rng, users: &[UserId; 3], now: Time) -> Self {
        let group = fixtures::group(db, "group", None, Visibility::Public, now);
        let below = fixtures::group(db, "below", Some(group), Visibility::Public, now);
        let home = fixtures::personal_namespace(db, users[0]);
        let locations = [
            ("secret", group, Visibility::Private),
            ("open", below, Visibility::Public),
            ("off", group, Visibility::Public),
            ("own", home, Visibility::Private),
        ];
        let projects = locations
            .map(|(path, namespace, visibility)| fixtures::project(db, path, namespace, users[0], visibility, now));
        fixtures::execute_sql(db, &format!("UPDATE projects SET issues_enabled = FALSE WHERE id = {}", projects[2]));
        let mut add_member =
            |source, user: UserId, role| store::members::upsert(db, source, user, role, None, now).expect("a member");
        add_member(MemberSource::Project(projects[0]), users[0], Role::Reporter);
        add_member(MemberSource::Project(projects[0]), users[1], Role::Guest);
        add_member(MemberSource::Group(below), users[1], Role::Developer);
        let milestones = projects.map(|project| MILESTONES.map(|title| milestone(db, project, title)));
        // The second project has no third label.
        let labels: Vec<Vec<(&str, LabelId)>> = (0..4)
            .map(|project_index| {
                let titles = if project_index == 1 { &LABELS[..2] } else { &LABELS[..] };
                titles.iter().map(|title| (*title, label(db, projects[project_index], title))).collect()
            })
            .collect();
        let users: Vec<Option<UserId>> = users.iter().copied().map(Some).chain([None]).collect();
        let mut dataset = Self { group, projects, milestones, issues: Vec::new() };
        for _ in 0..300 {
            let project_index = rng.below(4);
            let own = rng.some(&labels[project_index]);
            let milestone = (!rng.one_in(3)).then(|| rng.below(2));
            let inserted = InsertedIssue {
                id: IssueId::new(0),
                iid: IssueIid::new(0),
                project_index,
                author: rng.pick(&users),
                assignee: rng.pick(&users),
                closed: rng.one_in(2),
                confidential: rng.one_in(4),
                labels: own.iter().map(|(title, _)| *title).collect(),
                milestone: milestone.map(|number| MILESTONES[number]),
                text: (rng.pick(&WORDS).to_owned(), rng.some(&WORDS).join(" ")),
                // A small range, so that many are equal.
                created: i64::try_from(rng.below(40)).expect("small"),
                updated: i64::try_from(40 + rng.below(40)).expect("small"),
            };
            let new = NewIssue {
                author: inserted.author,
                assignee: inserted.assignee,
                description: Some(&inserted.text.1),
                milestone: milestone.map(|number| milestones[project_index][number]),
                confidential: inserted.confidential,
                created_at: at(inserted.created),
                now: at(inserted.created),
                ..new_issue(projects[project_index], &inserted.text.0)
            };
            let id = insert(db, new);
            let own: Vec<LabelId> = own.into_iter().map(|(_, id)| id).collect();
            store::issues::add_labels(db, id, &own).expect("labels");
            let closed = inserted.closed.then_some(true);
            let update = IssueUpdate { closed, ..IssueUpdate::default() };
            store::issues::update(db, id, &update, None, at(inserted.updated)).expect("changed");
            let iid = IssueIid::new(number(db, &format!("SELECT iid AS number FROM issues WHERE id = {id}")));
            dataset.issues.push(InsertedIssue { id, iid, ..inserted });
        }
        dataset
    }

    /// Returns the ids of all issues that a list should contain, in order.
    fn expected(&self, request: &ListRequest) -> Vec<IssueId> {
        let mut found: Vec<&InsertedIssue> = self.issues.iter().filter(|issue| request.matches(issue)).collect();
        let key =
            |issue: &InsertedIssue| (if request.order.by_update { issue.updated } else { issue.created }, issue.id);
        found.sort_by_key(|issue| key(issue));
        if !request.order.ascending {
            found.reverse();
        }
        found.into_iter().map(|issue| issue.id).collect()
    }
}

fn at(second: i64) -> Time {
    Time::from_second(second).expect("a time")
}

/// The scope of a list, by indexes.
#[derive(Clone, Copy, Debug)]
enum ListScope {
    Project(usize),
    Milestone(usize, usize),
    Authored,
    Assigned,
    Group,
}

/// A random request for a list.
#[derive(Debug)]
struct ListRequest {
    kind: ListScope,
    user: UserId,
    admin: bool,
    /// The projects in which the user is at least a reporter, and those visible to them.
    trusted: [bool; 4],
    seen: [bool; 4],
    filter: IssueFilter,
    order: IssueOrder,
    page: Page,
}

impl ListRequest {
    fn random(rng: &mut Rng, users: &[UserId; 3]) -> Self {
        let who = rng.below(5);
        let (user, admin) = (users.get(who).copied().unwrap_or(UserId::ANONYMOUS), who == 4);
        let (trusted, seen) = match who {
            0 => ([true, false, false, true], [true, true, true, true]),
            1 => ([false, true, false, false], [true, true, true, false]),
            4 => ([true; 4], [true; 4]),
            _ => ([false; 4], [false, true, true, false]),
        };
        let labels = if rng.one_in(2) { rng.some(&["a", "B b", "c", "a", "b b", "x,y"]) } else { Vec::new() };
        let filter = IssueFilter {
            closed: rng.pick(&[None, Some(true), Some(false)]),
            labels: labels.into_iter().map(str::to_owned).collect(),
            all_labels: rng.one_in(2),
            milestone: rng.pick(&[None, None, Some("first"), Some("second"), Some("none")]).map(str::to_owned),
            without_milestone: rng.one_in(8),
            author: rng.one_in(6).then(|| rng.pick(users)),
            assignee: rng.one_in(6).then(|| match rng.below(2) {
                0 => AssigneeFilter::Nobody,
                _ => AssigneeFilter::User(rng.pick(users)),
            }),
            iids: if rng.one_in(4) { rng.some(&(0..60).map(IssueIid::new).collect::<Vec<_>>()) } else { Vec::new() },
            search: rng.pick(&[None, None, Some("RIVER"), Some("ri"), Some("überall"), Some("")]).map(str::to_owned),
        };
        let kind = match rng.below(7) {
            0..3 => ListScope::Project(rng.below(4)),
            3 => ListScope::Milestone(rng.below(4), rng.below(2)),
            4 => ListScope::Authored,
            5 => ListScope::Assigned,
            _ => ListScope::Group,
        };
        let order = IssueOrder { by_update: rng.one_in(2), ascending: rng.one_in(2) };
        let size = 1 + i64::try_from(rng.below(20)).expect("small");
        let page = Page { number: 1 + i64::try_from(rng.below(12)).expect("small"), size };
        Self { kind, user, admin, trusted, seen, filter, order, page }
    }

    fn scope(&self, dataset: &RandomIssues, now: Time) -> IssueScope {
        let visibility =
            |project_index: usize| IssueVisibility { user: self.user, confidential: self.trusted[project_index] };
        let viewer = Viewer { user: self.user, visible_from: Visibility::Public, admin: self.admin, now };
        match self.kind {
            ListScope::Project(project_index) => {
                IssueScope::Project(dataset.projects[project_index], visibility(project_index))
            }
            ListScope::Milestone(project_index, number) => {
                IssueScope::Milestone(dataset.milestones[project_index][number], visibility(project_index))
            }
            ListScope::Authored => IssueScope::Authored(viewer),
            ListScope::Assigned => IssueScope::Assigned(viewer),
            ListScope::Group => IssueScope::Group(dataset.group, viewer),
        }
    }

    fn matches(&self, issue: &InsertedIssue) -> bool {
        let filter = &self.filter;
        let open_to_user = self.seen[issue.project_index] && issue.project_index != 2;
        let here = match self.kind {
            ListScope::Project(project_index) => issue.project_index == project_index,
            ListScope::Milestone(project_index, number) => {
                issue.project_index == project_index && issue.milestone == Some(MILESTONES[number])
            }
            ListScope::Authored => open_to_user && self.user != UserId::ANONYMOUS && issue.author == Some(self.user),
            ListScope::Assigned => open_to_user && self.user != UserId::ANONYMOUS && issue.assignee == Some(self.user),
            ListScope::Group => open_to_user && issue.project_index < 2,
        };
        let mine = self.user != UserId::ANONYMOUS && [issue.author, issue.assignee].contains(&Some(self.user));
        let carried = |title: &String| issue.labels.contains(&title.as_str());
        let labeled = match filter.labels.as_slice() {
            [] => true,
            labels if filter.all_labels => labels.iter().all(carried),
            labels => labels.iter().any(carried),
        };
        let found = filter.search.as_deref().is_none_or(|text| {
            [&issue.text.0, &issue.text.1].iter().any(|part| part.to_lowercase().contains(&text.to_lowercase()))
        });
        here && (!issue.confidential || mine || self.trusted[issue.project_index])
            && filter.closed.is_none_or(|closed| issue.closed == closed)
            && labeled
            && filter.milestone.as_deref().is_none_or(|title| issue.milestone == Some(title))
            && (issue.milestone.is_none() || !filter.without_milestone)
            && filter.author.is_none_or(|author| issue.author == Some(author))
            && filter.assignee.is_none_or(|assignee| match assignee {
                AssigneeFilter::Nobody => issue.assignee.is_none(),
                AssigneeFilter::User(user) => issue.assignee == Some(user),
            })
            && (filter.iids.is_empty() || filter.iids.contains(&issue.iid))
            && found
    }
}

#[tokio::test]
async fn lists_match_a_scan_of_all_issues() {
    let seed = RandomState::new().hash_one(0);
    let forge = TestForge::start().await;
    let users = [forge.user("ann").await.id, forge.user("bob").await.id, forge.user("cat").await.id];
    let now = forge.forge.now();
    let mut rng = Rng(seed);
    let dataset = forge.in_transaction(|db| RandomIssues::build(db, &mut rng, &users, now));
    // With the fillers, the search index is used.
    for fillers in [0, 1000] {
        forge.in_transaction(|db| {
            if fillers > 0 {
                bulk::filler_issues(db, dataset.projects[0], fillers, 500, true);
            }
        });
        forge.with_read_connection(|db| {
            for round in 0..500 {
                let request = ListRequest::random(&mut rng, &users);
                // The fillers are confidential; skip users who see them.
                if fillers > 0 && request.trusted[0] {
                    continue;
                }
                let expected = dataset.expected(&request);
                let scope = request.scope(&dataset, now);
                let slice = list(db, &scope, &request.filter, request.order, request.page).expect("listed");
                let context = format!("seed {seed}, round {round}, {fillers} fillers: {request:?}");
                assert_eq!(
                    slice.total.exact().and_then(|total| usize::try_from(total).ok()),
                    Some(expected.len()),
                    "{context}"
                );
                assert_eq!(ids_of(&slice), request.page.slice(&expected), "{context}");
                for issue in &slice.items {
                    let inserted = dataset.issues.iter().find(|inserted| inserted.id == issue.id).expect("known");
                    assert_eq!(issue.labels, inserted.labels, "{context}");
                    assert_eq!(issue.state == IssueState::Closed, inserted.closed, "{context}");
                }
            }
        });
    }
}

#[tokio::test]
async fn the_number_of_statements_does_not_depend_on_the_page_size() {
    let forge = TestForge::start().await;
    let (ann, project) = user_with_project(&forge).await;
    let now = forge.forge.now();
    let plan = forge.in_transaction(|db| {
        label(db, project, "bug");
        milestone(db, project, "plan")
    });
    let viewer = Viewer { user: ann, visible_from: Visibility::Internal, admin: false, now };
    let visibility = IssueVisibility { user: ann, confidential: false };
    let scopes = [
        IssueScope::Project(project, visibility),
        IssueScope::Milestone(plan, visibility),
        IssueScope::Authored(viewer),
    ];
    let plain_filter = IssueFilter::default();
    let filters = [
        plain_filter.clone(),
        IssueFilter { closed: Some(false), ..plain_filter.clone() },
        IssueFilter { labels: vec!["bug".into()], ..plain_filter.clone() },
        IssueFilter { milestone: Some("plan".into()), ..plain_filter.clone() },
        IssueFilter { search: Some("issue".into()), ..plain_filter },
    ];
    let counts = |forge: &TestForge, rows: usize| -> Vec<usize> {
        forge.with_read_connection(|db| {
            let counter = Arc::new(AtomicUsize::new(0));
            let counts = Arc::clone(&counter);
            let count = move |event: InstrumentationEvent<'_>| {
                if matches!(event, InstrumentationEvent::StartQuery { .. }) {
                    counts.fetch_add(1, Ordering::SeqCst);
                }
            };
            match db {
                Conn::Sqlite(conn) => conn.set_instrumentation(count),
                Conn::Pg(conn) => conn.set_instrumentation(count),
            }
            let mut found = Vec::new();
            for scope in &scopes {
                for filter in &filters {
                    // The first query of a connection may need additional statements.
                    list_issues(db, scope, filter);
                    let before = counter.load(Ordering::SeqCst);
                    assert_eq!(list_issues(db, scope, filter).items.len(), rows, "{scope:?} {filter:?}");
                    found.push(counter.load(Ordering::SeqCst) - before);
                }
            }
            found
        })
    };
    let add = |amount: usize| {
        forge.in_transaction(|db| {
            for _ in 0..amount {
                let new = NewIssue {
                    author: Some(ann),
                    milestone: Some(plan),
                    confidential: true,
                    ..new_issue(project, "issue")
                };
                let id = insert(db, new);
                let bug = LabelId::new(number(db, "SELECT min(id) AS number FROM labels"));
                store::issues::add_labels(db, id, &[bug]).expect("labels");
                note(db, id, ann, "hello", false);
            }
        });
    };
    add(1);
    let few = counts(&forge, 1);
    add(49);
    let many = counts(&forge, 50);
    assert_eq!(few, many);
    assert!(few.iter().all(|count| (3..=6).contains(count)), "{few:?}");
}
