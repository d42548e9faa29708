//! What the tables around issues hold, asked of the store itself: counters, lists, and what goes with what.

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
    Change, Issue, Page, Role, Slice, Time, Visibility,
    issues::{IssueFilter, IssueOrder, IssueState},
};
use store::{
    Conn, Sight, Viewer,
    issue_lists::{Scope, list},
    issues::{NewIssue, Update},
    members::Place,
    projects::Buried,
};
use testkit::{TestForge, rows};

fn sql(db: &mut Conn, statement: &str) {
    let done = match db {
        Conn::Sqlite(conn) => sql_query(statement).execute(conn),
        Conn::Pg(conn) => sql_query(statement).execute(conn),
    };
    done.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

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

/// Adds a label; says its number.
fn label(db: &mut Conn, project: i64, title: &str) -> i64 {
    let key = title.to_lowercase();
    sql(
        db,
        &format!(
            "INSERT INTO labels (project_id, title, title_key, color, created_at, updated_at) \
             VALUES ({project}, '{title}', '{key}', '#123456', 0, 0)"
        ),
    );
    number(db, "SELECT max(id) AS number FROM labels")
}

/// Adds a milestone; says its number.
fn milestone(db: &mut Conn, project: i64, iid: i64, title: &str) -> i64 {
    sql(
        db,
        &format!(
            "INSERT INTO milestones (project_id, iid, title, due_on, created_at, updated_at) \
             VALUES ({project}, {iid}, '{title}', 86400000000, 0, 0)"
        ),
    );
    number(db, "SELECT max(id) AS number FROM milestones")
}

fn note(db: &mut Conn, issue: i64, author: i64, body: &str, system: bool) {
    let project = number(db, &format!("SELECT project_id AS number FROM issues WHERE id = {issue}"));
    sql(
        db,
        &format!(
            "INSERT INTO notes (project_id, issue_id, author_id, body, system, created_at, updated_at) \
             VALUES ({project}, {issue}, {author}, '{body}', {system}, 3, 4)"
        ),
    );
}

fn plain(project: i64, title: &str) -> NewIssue<'_> {
    NewIssue {
        project,
        iid: 0,
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

fn write(db: &mut Conn, new: NewIssue<'_>) -> i64 {
    store::issues::hold(db, new.project).expect("held");
    let iid = store::issues::next_number(db, new.project).expect("a number");
    store::issues::insert(db, &NewIssue { iid, ..new }).expect("an issue")
}

fn change(db: &mut Conn, issue: i64, update: &Update<'_>) {
    store::issues::update(db, issue, update, None, Time::UNIX_EPOCH).expect("changed");
}

fn everything(user: i64) -> Sight {
    Sight { user, confidential: true }
}

fn find(db: &mut Conn, sight: Sight, project: i64, issue: i64) -> Option<Issue> {
    store::issues::find(db, &sight, project, issue).expect("asked")
}

/// Open ones, closed ones, and how many of each are confidential.
fn counted(db: &mut Conn, table: &str, id: i64) -> [i64; 4] {
    let key = if table == "labels" { "id" } else { "project_id" };
    ["open_issues", "closed_issues", "open_confidential", "closed_confidential"]
        .map(|column| number(db, &format!("SELECT {column} AS number FROM {table} WHERE {key} = {id}")))
}

/// A user with a private project; their numbers.
async fn scene(forge: &TestForge) -> (i64, i64) {
    let ann = forge.user("ann").await.id;
    let now = forge.forge.now();
    let project = forge.in_one_go(|db| {
        let home = rows::personal_namespace(db, ann);
        rows::project(db, "rocket", home, ann, Visibility::Private, now)
    });
    (ann, project)
}

#[tokio::test]
async fn an_issue_is_read_as_it_was_written() {
    let forge = TestForge::start().await;
    let (ann, project) = scene(&forge).await;
    let bob = forge.user("bob").await.id;
    let now = forge.forge.now();
    forge.in_one_go(|db| {
        let plan = milestone(db, project, 1, "plan");
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
            ..plain(project, "Short")
        };
        let id = write(db, new);
        store::issues::add_labels(db, id, &labels).expect("labels");
        store::issues::add_labels(db, id, &labels).expect("the same once more");

        let issue = find(db, everything(0), project, id).expect("it is there");
        assert_eq!((issue.iid, issue.project, issue.project_path.as_str()), (1, project, "ann/rocket"));
        assert_eq!((issue.title.as_str(), issue.description.as_deref()), ("Short", Some("Long")));
        assert_eq!((issue.state, issue.confidential, issue.due_on), (IssueState::Opened, true, Some(day)));
        assert_eq!(issue.author.as_ref().map(|user| user.username.as_str()), Some("ann"));
        assert_eq!(issue.assignee.as_ref().map(|user| user.username.as_str()), Some("bob"));
        let plan = issue.milestone.as_ref().expect("a milestone");
        assert_eq!((plan.title.as_str(), plan.due_on.map(|day| day.to_string())), ("plan", Some("1970-01-02".into())));
        assert_eq!(issue.labels, ["Alpha", "alpha", "beta"]);
        assert_eq!((issue.created_at, issue.updated_at, issue.user_notes, issue.subscribed), (now, now, 0, false));
        assert_eq!(store::issues::by_number(db, &everything(0), project, 1).expect("asked"), Some(issue));
        assert_eq!(store::issues::by_number(db, &everything(0), project, 2).expect("asked"), None);
        assert_eq!(find(db, everything(0), project + 1, id), None, "of another project");

        let sees = |db: &mut Conn, user| find(db, Sight { user, confidential: false }, project, id).is_some();
        assert!(sees(db, ann) && sees(db, bob) && !sees(db, 0) && !sees(db, bob + 1));
    });
}

#[tokio::test]
async fn an_issue_is_followed_by_those_who_said_so_or_take_part() {
    let forge = TestForge::start().await;
    let (ann, project) = scene(&forge).await;
    let (bob, cat, dan) = (forge.user("bob").await.id, forge.user("cat").await.id, forge.user("dan").await.id);
    forge.in_one_go(|db| {
        let id = write(db, NewIssue { author: Some(ann), assignee: Some(bob), ..plain(project, "x") });
        note(db, id, cat, "hello", false);
        note(db, id, dan, "closed", true);
        let follows = |db: &mut Conn| {
            [ann, bob, cat, dan, 0].map(|user| find(db, everything(user), project, id).expect("there").subscribed)
        };
        assert_eq!(follows(db), [true, true, true, false, false]);
        for (user, wish) in [(ann, false), (dan, true), (dan, false), (dan, true)] {
            store::issues::set_subscribed(db, id, user, wish).expect("noted");
        }
        assert_eq!(follows(db), [false, true, true, true, false]);
    });
}

#[tokio::test]
async fn an_update_changes_what_it_names_and_notes_when() {
    let forge = TestForge::start().await;
    let (ann, project) = scene(&forge).await;
    let now = forge.forge.now();
    forge.in_one_go(|db| {
        let plan = milestone(db, project, 1, "plan");
        let id = write(db, NewIssue { description: Some("Sea"), ..plain(project, "Ship") });
        let other = write(db, plain(project, "other"));
        let state = |db: &mut Conn| find(db, everything(0), project, id).expect("there").state;
        let finds = |db: &mut Conn, text: &str| {
            let filter = IssueFilter { search: Some(text.into()), ..IssueFilter::default() };
            ids_of(&ask(db, &Scope::Project(project, everything(0)), &filter))
        };

        store::issues::update(db, id, &Update::default(), Some(ann), now).expect("changed");
        let issue = find(db, everything(0), project, id).expect("there");
        assert_eq!((issue.created_at, issue.updated_at), (Time::UNIX_EPOCH, now));
        assert_eq!(number(db, &format!("SELECT updated_by_id AS number FROM issues WHERE id = {id}")), ann);
        assert_eq!((finds(db, "SHIP"), finds(db, "sea")), (vec![id], vec![id]));

        change(db, id, &Update { title: Some("Boat"), ..Update::default() });
        assert_eq!((finds(db, "ship"), finds(db, "boat"), finds(db, "sea")), (vec![], vec![id], vec![id]));
        change(db, id, &Update { description: Change::Clear, ..Update::default() });
        assert_eq!((finds(db, "boat"), finds(db, "sea")), (vec![id], vec![]));

        change(db, id, &Update { closed: Some(false), ..Update::default() });
        assert_eq!(state(db), IssueState::Opened, "it was never closed");
        change(db, id, &Update { closed: Some(true), ..Update::default() });
        assert_eq!(state(db), IssueState::Closed);
        change(db, id, &Update { closed: Some(false), ..Update::default() });
        assert_eq!(state(db), IssueState::Reopened);
        change(db, id, &Update { closed: Some(true), ..Update::default() });
        assert_eq!(state(db), IssueState::Closed);

        let day = "9999-12-31".parse().expect("a day");
        let update = Update {
            assignee: Change::Set(ann),
            milestone: Change::Set(plan),
            due_on: Change::Set(day),
            moved_to: Some(other),
            ..Update::default()
        };
        change(db, id, &update);
        let told = |db: &mut Conn| {
            let issue = find(db, everything(0), project, id).expect("there");
            (issue.assignee.map(|user| user.id), issue.milestone.map(|tx| tx.id), issue.due_on, issue.moved_to)
        };
        assert_eq!(told(db), (Some(ann), Some(plan), Some(day), Some(other)));
        let update =
            Update { assignee: Change::Clear, milestone: Change::Clear, due_on: Change::Clear, ..Update::default() };
        change(db, id, &update);
        assert_eq!(told(db), (None, None, None, Some(other)));
    });
}

#[tokio::test]
async fn counters_follow_issues_and_labels() {
    let forge = TestForge::start().await;
    let (_, project) = scene(&forge).await;
    forge.in_one_go(|db| {
        let (bug, chore) = (label(db, project, "bug"), label(db, project, "chore"));
        let first = write(db, plain(project, "first"));
        let second = write(db, NewIssue { confidential: true, ..plain(project, "second") });
        let check = |db: &mut Conn, book: [i64; 4], of_bug: [i64; 4], of_chore: [i64; 4], why: &str| {
            let counters = [("issue_books", project), ("labels", bug), ("labels", chore)];
            let counters = counters.map(|(table, id)| counted(db, table, id));
            assert_eq!(counters, [book, of_bug, of_chore], "{why}");
        };
        let none = [0; 4];
        check(db, [2, 0, 1, 0], none, none, "written");
        store::issues::add_labels(db, first, &[bug, chore]).expect("labels");
        store::issues::add_labels(db, second, &[bug]).expect("labels");
        store::issues::add_labels(db, second, &[bug]).expect("labels");
        check(db, [2, 0, 1, 0], [2, 0, 1, 0], [1, 0, 0, 0], "labels on");
        change(db, second, &Update { closed: Some(true), ..Update::default() });
        check(db, [1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0], "closed");
        change(db, second, &Update { closed: Some(true), ..Update::default() });
        check(db, [1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0], "closed once more");
        change(db, second, &Update { confidential: Some(false), ..Update::default() });
        change(db, first, &Update { confidential: Some(true), ..Update::default() });
        check(db, [1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 1, 0], "no secret any more, and one that is");
        change(db, second, &Update { closed: Some(false), confidential: Some(true), ..Update::default() });
        check(db, [2, 0, 2, 0], [2, 0, 2, 0], [1, 0, 1, 0], "reopened");
        store::issues::remove_labels(db, first, &[chore]).expect("taken off");
        store::issues::remove_labels(db, first, &[chore]).expect("nothing to take off");
        check(db, [2, 0, 2, 0], [2, 0, 2, 0], none, "a label off");
        store::issues::delete(db, second).expect("removed");
        check(db, [1, 0, 1, 0], [1, 0, 1, 0], none, "an issue removed");
        sql(db, &format!("DELETE FROM labels WHERE id = {bug}"));
        assert_eq!(store::issues::labels_of(db, first).expect("asked"), []);
        assert_eq!(counted(db, "issue_books", project), [1, 0, 1, 0]);
        assert_eq!(store::issues::next_number(db, project).expect("a number"), 3, "no number is given twice");
    });
}

#[tokio::test]
async fn labels_of_another_project_are_not_put_onto_an_issue() {
    let forge = TestForge::start().await;
    let (ann, project) = scene(&forge).await;
    let now = forge.forge.now();
    forge.in_one_go(|db| {
        let home = rows::personal_namespace(db, ann);
        let other = rows::project(db, "other", home, ann, Visibility::Public, now);
        let (own, foreign) = (label(db, project, "own"), label(db, other, "foreign"));
        let id = write(db, plain(project, "x"));
        store::issues::add_labels(db, id, &[own, foreign]).expect("labels");
        assert_eq!(store::issues::labels_of(db, id).expect("asked"), [(own, "own".to_owned())]);
        assert_eq!(counted(db, "labels", foreign), [0; 4]);
    });
}

#[tokio::test]
async fn notes_are_copied_in_their_order_and_counted() {
    let forge = TestForge::start().await;
    let (ann, project) = scene(&forge).await;
    forge.in_one_go(|db| {
        let (from, to) = (write(db, plain(project, "from")), write(db, plain(project, "to")));
        for (body, system) in [("one", false), ("two", true), ("three", false)] {
            note(db, from, ann, body, system);
        }
        store::issues::copy_notes(db, from, to, project, "Moved").expect("copied");
        let notes = |db: &mut Conn, id| find(db, everything(0), project, id).expect("there").user_notes;
        assert_eq!((notes(db, from), notes(db, to)), (2, 2));
        for (place, body) in ["one", "two", "three"].into_iter().enumerate() {
            let query = format!(
                "SELECT count(*) AS number FROM (SELECT body, created_at, author_id FROM notes WHERE issue_id = {to} \
                 ORDER BY id LIMIT 1 OFFSET {place}) n WHERE n.body = '{body}' AND created_at = 3 AND author_id = {ann}"
            );
            assert_eq!(number(db, &query), 1, "{body}");
        }
        sql(db, &format!("DELETE FROM notes WHERE issue_id = {to}"));
        assert_eq!((notes(db, from), notes(db, to)), (2, 0));
    });
}

#[tokio::test]
async fn an_issue_goes_with_everything_and_outlives_its_people() {
    let forge = TestForge::start().await;
    let (ann, project) = scene(&forge).await;
    let bob = forge.user("bob").await.id;
    forge.in_one_go(|db| {
        let (plan, bug) = (milestone(db, project, 1, "plan"), label(db, project, "bug"));
        let new = NewIssue { author: Some(bob), assignee: Some(bob), milestone: Some(plan), ..plain(project, "x") };
        let (kept, gone) = (write(db, new.clone()), write(db, new));
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
        sql(db, "DELETE FROM milestones");
        let issue = find(db, everything(0), project, kept).expect("there");
        assert_eq!((issue.author, issue.assignee, issue.milestone), (None, None, None));
        let filter = IssueFilter { labels: vec!["bug".into()], ..IssueFilter::default() };
        assert_eq!(ids_of(&ask(db, &Scope::Project(project, everything(0)), &filter)), [kept]);
        assert_eq!(number(db, "SELECT count(*) AS number FROM issue_labels WHERE milestone_id IS NOT NULL"), 0);

        store::projects::bury(db, Buried::One(project), "remove", Time::UNIX_EPOCH).expect("buried");
        while store::projects::shrink_buried(db, project, 1).expect("smaller") > 0 {}
        for table in ["issues", "notes", "labels", "milestones", "issue_labels", "issue_subscriptions"] {
            assert_eq!(number(db, &format!("SELECT count(*) AS number FROM {table}")), 0, "{table}");
        }
        store::projects::delete_buried(db, project).expect("removed");
        assert_eq!(number(db, "SELECT count(*) AS number FROM issue_books"), 0);
    });
}

fn ask(db: &mut Conn, scope: &Scope, filter: &IssueFilter) -> Slice<Issue> {
    list(db, scope, filter, IssueOrder::default(), Page::new(None, Some(100))).expect("listed")
}

fn ids_of(slice: &Slice<Issue>) -> Vec<i64> {
    slice.items.iter().map(|issue| issue.id).collect()
}

/// Issues without anything, written by SQL because there are many.
fn fill(db: &mut Conn, project: i64, amount: i64) {
    let statement = format!(
        "INSERT INTO issues (project_id, iid, title, created_at, updated_at) \
         WITH RECURSIVE n (n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM n WHERE n < {amount} + 999) \
         SELECT {project}, n, 'filler', n, n FROM n"
    );
    sql(db, &statement);
    let texts = "INSERT INTO issue_texts (issue_id, search_text) SELECT i.id, 'filler' || '\u{1}\u{1}\u{1}' FROM issues i \
                 WHERE NOT EXISTS (SELECT 1 FROM issue_texts t WHERE t.issue_id = i.id)";
    sql(db, texts);
}

#[tokio::test]
async fn a_search_looks_into_title_and_description_but_not_across() {
    let forge = TestForge::start().await;
    let (_, project) = scene(&forge).await;
    let now = forge.forge.now();
    let other = forge.in_one_go(|db| {
        let group = rows::group(db, "group", None, Visibility::Public, now);
        rows::project(db, "other", group, 1, Visibility::Public, now)
    });
    // Among many issues, an index is asked instead of every issue.
    for fillers in [0, 1500] {
        forge.in_one_go(|db| {
            if fillers > 0 {
                fill(db, project, fillers);
            }
            let ship = write(db, NewIssue { description: Some("\"Sea\" 100%\nΣΑΣ"), ..plain(project, "Ship") });
            let seal = write(db, NewIssue { description: Some("ship_x"), ..plain(project, "Seal") });
            write(db, plain(other, "Ship at sea"));
            let finds = |db: &mut Conn, text: &str| {
                let filter = IssueFilter { search: Some(text.into()), ..IssueFilter::default() };
                let found = ask(db, &Scope::Project(project, everything(0)), &filter);
                assert_eq!(usize::try_from(found.total).ok(), Some(found.items.len()), "{text}");
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
            assert_eq!(finds(db, "sea"), [0; 0]);
        });
    }
}

/// Numbers that look drawn, the same for the same seed.
struct Dice(u64);

impl Dice {
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

/// An issue as the test knows it.
struct Known {
    id: i64,
    iid: i64,
    /// Which of the projects.
    place: usize,
    author: Option<i64>,
    assignee: Option<i64>,
    closed: bool,
    confidential: bool,
    labels: Vec<&'static str>,
    milestone: Option<&'static str>,
    text: (String, String),
    created: i64,
    updated: i64,
}

/// Four projects: a private and a public one in a group, a public one without issues there, and a private one elsewhere.
struct World {
    group: i64,
    projects: [i64; 4],
    milestones: [[i64; 2]; 4],
    issues: Vec<Known>,
}

const LABELS: [&str; 3] = ["a", "B b", "c"];
const MILESTONES: [&str; 2] = ["first", "second"];
const WORDS: [&str; 4] = ["River", "stone", "ri", "Überall"];

impl World {
    fn build(db: &mut Conn, dice: &mut Dice, people: &[i64; 3], now: Time) -> Self {
        let group = rows::group(db, "group", None, Visibility::Public, now);
        let below = rows::group(db, "below", Some(group), Visibility::Public, now);
        let home = rows::personal_namespace(db, people[0]);
        let places = [
            ("secret", group, Visibility::Private),
            ("open", below, Visibility::Public),
            ("off", group, Visibility::Public),
            ("own", home, Visibility::Private),
        ];
        let projects =
            places.map(|(path, place, visibility)| rows::project(db, path, place, people[0], visibility, now));
        sql(db, &format!("UPDATE projects SET issues_enabled = FALSE WHERE id = {}", projects[2]));
        let mut put = |place, user: i64, role| store::members::put(db, place, user, role, None, now).expect("a member");
        put(Place::Project(projects[0]), people[0], Role::Reporter);
        put(Place::Project(projects[0]), people[1], Role::Guest);
        put(Place::Group(below), people[1], Role::Developer);
        let milestones = projects.map(|project| {
            let mut iid = 0;
            MILESTONES.map(|title| {
                iid += 1;
                milestone(db, project, iid, title)
            })
        });
        // The second project lacks a label.
        let labels: Vec<Vec<(&str, i64)>> = (0..4)
            .map(|place| {
                let titles = if place == 1 { &LABELS[..2] } else { &LABELS[..] };
                titles.iter().map(|title| (*title, label(db, projects[place], title))).collect()
            })
            .collect();
        let people: Vec<Option<i64>> = people.iter().copied().map(Some).chain([None]).collect();
        let mut world = Self { group, projects, milestones, issues: Vec::new() };
        for _ in 0..300 {
            let place = dice.below(4);
            let own = dice.some(&labels[place]);
            let milestone = (!dice.one_in(3)).then(|| dice.below(2));
            let known = Known {
                id: 0,
                iid: 0,
                place,
                author: dice.pick(&people),
                assignee: dice.pick(&people),
                closed: dice.one_in(2),
                confidential: dice.one_in(4),
                labels: own.iter().map(|(title, _)| *title).collect(),
                milestone: milestone.map(|number| MILESTONES[number]),
                text: (dice.pick(&WORDS).to_owned(), dice.some(&WORDS).join(" ")),
                // Few enough that many are equal.
                created: i64::try_from(dice.below(40)).expect("small"),
                updated: i64::try_from(40 + dice.below(40)).expect("small"),
            };
            let new = NewIssue {
                author: known.author,
                assignee: known.assignee,
                description: Some(&known.text.1),
                milestone: milestone.map(|number| milestones[place][number]),
                confidential: known.confidential,
                created_at: at(known.created),
                now: at(known.created),
                ..plain(projects[place], &known.text.0)
            };
            let id = write(db, new);
            let own: Vec<i64> = own.into_iter().map(|(_, id)| id).collect();
            store::issues::add_labels(db, id, &own).expect("labels");
            let closed = known.closed.then_some(true);
            let update = Update { closed, ..Update::default() };
            store::issues::update(db, id, &update, None, at(known.updated)).expect("changed");
            let iid = number(db, &format!("SELECT iid AS number FROM issues WHERE id = {id}"));
            world.issues.push(Known { id, iid, ..known });
        }
        world
    }

    /// The numbers of all issues that a list shows, in its order.
    fn expected(&self, asked: &Asked) -> Vec<i64> {
        let mut found: Vec<&Known> = self.issues.iter().filter(|issue| asked.shows(issue)).collect();
        let key = |issue: &Known| (if asked.order.by_update { issue.updated } else { issue.created }, issue.id);
        found.sort_by_key(|issue| key(issue));
        if !asked.order.ascending {
            found.reverse();
        }
        found.into_iter().map(|issue| issue.id).collect()
    }
}

fn at(second: i64) -> Time {
    Time::from_second(second).expect("a time")
}

/// Where a list looks, as the test knows it.
#[derive(Clone, Copy, Debug)]
enum Where {
    Project(usize),
    Milestone(usize, usize),
    Written,
    Group,
}

/// What is asked for.
#[derive(Debug)]
struct Asked {
    place: Where,
    user: i64,
    admin: bool,
    /// In which projects the user is at least a reporter, and which they see.
    trusted: [bool; 4],
    seen: [bool; 4],
    filter: IssueFilter,
    order: IssueOrder,
    page: Page,
}

impl Asked {
    fn draw(dice: &mut Dice, people: &[i64; 3]) -> Self {
        let who = dice.below(5);
        let (user, admin) = (people.get(who).copied().unwrap_or_default(), who == 4);
        let (trusted, seen) = match who {
            0 => ([true, false, false, true], [true, true, true, true]),
            1 => ([false, true, false, false], [true, true, true, false]),
            4 => ([true; 4], [true; 4]),
            _ => ([false; 4], [false, true, true, false]),
        };
        let labels = if dice.one_in(2) { dice.some(&["a", "B b", "c", "a", "b b", "x,y"]) } else { Vec::new() };
        let filter = IssueFilter {
            closed: dice.pick(&[None, Some(true), Some(false)]),
            labels: labels.into_iter().map(str::to_owned).collect(),
            all_labels: dice.one_in(2),
            milestone: dice.pick(&[None, None, Some("first"), Some("second"), Some("none")]).map(str::to_owned),
            iids: if dice.one_in(4) { dice.some(&(0..60).collect::<Vec<i64>>()) } else { Vec::new() },
            search: dice.pick(&[None, None, Some("RIVER"), Some("ri"), Some("überall"), Some("")]).map(str::to_owned),
        };
        let place = match dice.below(6) {
            0..3 => Where::Project(dice.below(4)),
            3 => Where::Milestone(dice.below(4), dice.below(2)),
            4 => Where::Written,
            _ => Where::Group,
        };
        let order = IssueOrder { by_update: dice.one_in(2), ascending: dice.one_in(2) };
        let size = 1 + i64::try_from(dice.below(20)).expect("small");
        let page = Page { number: 1 + i64::try_from(dice.below(12)).expect("small"), size };
        Self { place, user, admin, trusted, seen, filter, order, page }
    }

    fn scope(&self, world: &World, now: Time) -> Scope {
        let sight = |place: usize| Sight { user: self.user, confidential: self.trusted[place] };
        let viewer = Viewer { user: self.user, open_from: Visibility::Public, admin: self.admin, now };
        match self.place {
            Where::Project(place) => Scope::Project(world.projects[place], sight(place)),
            Where::Milestone(place, number) => Scope::Milestone(world.milestones[place][number], sight(place)),
            Where::Written => Scope::Written(viewer),
            Where::Group => Scope::Group(world.group, viewer),
        }
    }

    fn shows(&self, issue: &Known) -> bool {
        let filter = &self.filter;
        let open_to_user = self.seen[issue.place] && issue.place != 2;
        let here = match self.place {
            Where::Project(place) => issue.place == place,
            Where::Milestone(place, number) => issue.place == place && issue.milestone == Some(MILESTONES[number]),
            Where::Written => open_to_user && self.user != 0 && issue.author == Some(self.user),
            Where::Group => open_to_user && issue.place < 2,
        };
        let mine = self.user != 0 && [issue.author, issue.assignee].contains(&Some(self.user));
        let carried = |title: &String| issue.labels.contains(&title.as_str());
        let labeled = match filter.labels.as_slice() {
            [] => true,
            labels if filter.all_labels => labels.iter().all(carried),
            labels => labels.iter().any(carried),
        };
        let found = filter.search.as_deref().is_none_or(|text| {
            [&issue.text.0, &issue.text.1].iter().any(|part| part.to_lowercase().contains(&text.to_lowercase()))
        });
        here && (!issue.confidential || mine || self.trusted[issue.place])
            && filter.closed.is_none_or(|closed| issue.closed == closed)
            && labeled
            && filter.milestone.as_deref().is_none_or(|title| issue.milestone == Some(title))
            && (filter.iids.is_empty() || filter.iids.contains(&issue.iid))
            && found
    }
}

#[tokio::test]
async fn lists_show_what_a_plain_walk_over_all_issues_finds() {
    let seed = RandomState::new().hash_one(0);
    let forge = TestForge::start().await;
    let people = [forge.user("ann").await.id, forge.user("bob").await.id, forge.user("cat").await.id];
    let now = forge.forge.now();
    let mut dice = Dice(seed);
    let world = forge.in_one_go(|db| World::build(db, &mut dice, &people, now));
    // So many that the index is asked for terms.
    for fillers in [0, 1000] {
        forge.in_one_go(|db| {
            if fillers > 0 {
                fill(db, world.projects[0], fillers);
                sql(db, "UPDATE issues SET milestone_id = NULL, confidential = TRUE WHERE iid >= 1000");
                sql(db, "UPDATE issues SET closed = TRUE WHERE iid >= 1000 AND iid < 1500");
            }
        });
        forge.on_a_reading_connection(|db| {
            for turn in 0..500 {
                let asked = Asked::draw(&mut dice, &people);
                // Those that only make the project large are seen by few.
                if fillers > 0 && asked.trusted[0] {
                    continue;
                }
                let expected = world.expected(&asked);
                let scope = asked.scope(&world, now);
                let slice = list(db, &scope, &asked.filter, asked.order, asked.page).expect("listed");
                let told = format!("seed {seed}, turn {turn}, {fillers} fillers: {asked:?}");
                assert_eq!(usize::try_from(slice.total).ok(), Some(expected.len()), "{told}");
                assert_eq!(ids_of(&slice), asked.page.cut(&expected), "{told}");
                for issue in &slice.items {
                    let known = world.issues.iter().find(|known| known.id == issue.id).expect("known");
                    assert_eq!(issue.labels, known.labels, "{told}");
                    assert_eq!(issue.state == IssueState::Closed, known.closed, "{told}");
                }
            }
        });
    }
}

#[tokio::test]
async fn a_list_of_issues_costs_the_same_however_many_it_shows() {
    let forge = TestForge::start().await;
    let (ann, project) = scene(&forge).await;
    let now = forge.forge.now();
    let plan = forge.in_one_go(|db| {
        label(db, project, "bug");
        milestone(db, project, 1, "plan")
    });
    let viewer = Viewer { user: ann, open_from: Visibility::Internal, admin: false, now };
    let sight = Sight { user: ann, confidential: false };
    let scopes = [Scope::Project(project, sight), Scope::Milestone(plan, sight), Scope::Written(viewer)];
    let plain_filter = IssueFilter::default();
    let filters = [
        plain_filter.clone(),
        IssueFilter { closed: Some(false), ..plain_filter.clone() },
        IssueFilter { labels: vec!["bug".into()], ..plain_filter.clone() },
        IssueFilter { milestone: Some("plan".into()), ..plain_filter.clone() },
        IssueFilter { search: Some("issue".into()), ..plain_filter },
    ];
    let counts = |forge: &TestForge, rows: usize| -> Vec<usize> {
        forge.on_a_reading_connection(|db| {
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
                    // The first time, a connection may have to learn something.
                    ask(db, scope, filter);
                    let before = counter.load(Ordering::SeqCst);
                    assert_eq!(ask(db, scope, filter).items.len(), rows, "{scope:?} {filter:?}");
                    found.push(counter.load(Ordering::SeqCst) - before);
                }
            }
            found
        })
    };
    let add = |amount: usize| {
        forge.in_one_go(|db| {
            for _ in 0..amount {
                let new = NewIssue {
                    author: Some(ann),
                    milestone: Some(plan),
                    confidential: true,
                    ..plain(project, "issue")
                };
                let id = write(db, new);
                let bug = number(db, "SELECT min(id) AS number FROM labels");
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
