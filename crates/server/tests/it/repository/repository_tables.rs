//! The tables of repositories, tested through the store, since no request exposes all of them.

use forge::Caller;
use jiff::SignedDuration;
use model::{
    Change, Event, EventId, IntentId, JobId, Oid, Page, PipelineId, ProjectId, Protection, PushLevel, RefChange,
    RefName, Role, Status, Time, UserId, Visibility,
    events::{EventAction, PushCommit, PushData},
    imports::{EncryptedCredentials, ImportState},
    keys::NewKey,
    objects::Signature,
    pipelines::Source,
    statuses::{NewStatus, StatusFilter, StatusState},
};
use store::{
    Conn, Viewer,
    events::NewEvent,
    intents::{Intent, NewIntent},
    members::MemberSource,
    pipelines::NewPipeline,
    projects::{DeletionScope, ProjectKey},
};
use testkit::{TestForge, fixtures};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdd7FPpZg0xpOoN5tuoqyVWHoh8sVJ8AnvYI0oBpSRB ann@example.org";

fn oid(digit: u8) -> Oid {
    Oid([digit; 20])
}

fn all() -> Page {
    Page::new(None, Some(100))
}

fn branch(name: &str) -> RefName {
    RefName::branch(name).expect("a name")
}

fn viewer(user: UserId, now: Time) -> Viewer {
    Viewer { user, visible_from: Visibility::Internal, admin: false, now }
}

/// Inserts a pipeline without jobs for the first commit and a branch; returns its id.
fn pipeline(db: &mut Conn, project: ProjectId, ref_name: &str, now: Time) -> PipelineId {
    let new = NewPipeline {
        project,
        ref_name,
        tag: false,
        sha: oid(1),
        before_sha: None,
        source: Source::External,
        status: Status::Created,
        yaml_errors: None,
        stages: &[],
        user: None,
        trigger: None,
        variables: None,
        intent: None,
        plan: None,
        now,
    };
    store::pipelines::insert(db, &new).expect("a pipeline")
}

/// Creates a user with a private project; returns their ids.
async fn set_up(forge: &TestForge) -> (UserId, ProjectId) {
    let ann = forge.user("ann").await.id;
    let now = forge.forge.now();
    let project = forge.in_transaction(|db| {
        let home = fixtures::personal_namespace(db, ann);
        fixtures::project(db, "rocket", home, ann, Visibility::Private, now)
    });
    (ann, project)
}

fn insert_project(db: &mut Conn, owner: UserId, path: &str, visibility: Visibility, now: Time) -> ProjectId {
    let home = fixtures::personal_namespace(db, owner);
    fixtures::project(db, path, home, owner, visibility, now)
}

fn push_of(name: &RefName, before: Option<Oid>, after: Option<Oid>) -> PushData {
    let author = Signature { name: "An\0n".into(), email: "ann@example.org".into(), seconds: 12, offset: 3600 };
    let commit = PushCommit { id: oid(9), message: "first\n\nä\n".into(), author };
    PushData { ref_name: name.as_str().into(), before, after, commits: vec![commit.clone(), commit], total_commits: 7 }
}

/// Inserts an intent with an event for each change.
fn insert_intent(db: &mut Conn, new: &NewIntent<'_>) -> Intent {
    let id = store::intents::insert(db, new).expect("written down");
    for change in new.changes {
        let push = push_of(&change.name, change.old, change.new);
        let author = new.user.expect("a user");
        let event = NewEvent {
            project: new.project,
            author,
            action: EventAction::Pushed,
            target: None,
            push: Some(&push),
            intent: Some(id),
            now: new.now,
        };
        store::events::insert(db, &event).expect("an event");
    }
    let intents = store::intents::pending_of(db, new.project).expect("asked");
    intents.into_iter().find(|intent| intent.id == id).expect("it is there")
}

fn insert_event(db: &mut Conn, project: ProjectId, author: UserId, action: EventAction, now: Time) -> EventId {
    let push = push_of(&branch("main"), None, Some(oid(1)));
    let push = (action == EventAction::Pushed).then_some(&push);
    let event = NewEvent { project, author, action, target: None, push, intent: None, now };
    store::events::insert(db, &event).expect("an event")
}

fn refs_of(events: &[Event]) -> Vec<&str> {
    events.iter().filter_map(|event| event.push.as_ref()).map(|push| push.ref_name.as_str()).collect()
}

#[tokio::test]
async fn a_push_is_visible_once_its_refs_have_changed() {
    let forge = TestForge::start().await;
    let (ann, project) = set_up(&forge).await;
    let begin = forge.forge.now();
    let now = begin + SignedDuration::from_mins(90);
    forge.in_transaction(|db| {
        let (main, old, gone) = (branch("main"), branch("old"), RefName::tag("v1").expect("a name"));
        for tag in ["v1", "v2"] {
            assert!(store::releases::insert(db, project, tag, "notes", begin).expect("a release"));
        }
        let changes = [
            RefChange { name: main.clone(), old: None, new: Some(oid(1)) },
            RefChange { name: old.clone(), old: Some(oid(2)), new: None },
            RefChange { name: gone.clone(), old: Some(oid(3)), new: None },
        ];
        let rule = Protection { name: "main".into(), push: PushLevel::Masters, merge: PushLevel::Developers };
        let new = NewIntent {
            project,
            user: Some(ann),
            changes: &changes,
            default_branch: Change::Set("main".into()),
            protection: Some(rule.clone()),
            now: begin,
        };
        let intent = insert_intent(db, &new);
        assert_eq!((intent.project, intent.user, &intent.changes[..]), (project, Some(ann), &changes[..]));
        assert_eq!((&intent.default_branch, &intent.protection), (&new.default_branch, &new.protection));
        assert_eq!(store::intents::pending(db, IntentId::new(0), 10).expect("asked"), std::slice::from_ref(&intent));
        assert_eq!(store::intents::pending(db, intent.id, 10).expect("asked"), []);
        let seen = |db: &mut Conn| store::events::of_project(db, project, true, None, all()).expect("events");
        assert_eq!(seen(db).total, 0);

        store::intents::finish(db, &intent, &[main.clone(), gone.clone()], now).expect("finished");
        let events = seen(db);
        assert_eq!((events.total, refs_of(&events.items)), (2, vec!["refs/tags/v1", "refs/heads/main"]));
        let event = &events.items[1];
        assert_eq!(
            (event.project, event.author.username.as_str(), event.action),
            (project, "ann", EventAction::Pushed)
        );
        let mut expected = push_of(&main, None, Some(oid(1)));
        for commit in &mut expected.commits {
            commit.author.name = "An\u{fffd}n".into();
        }
        assert_eq!((event.push.as_ref(), event.created_at), (Some(&expected), begin));
        let found =
            store::projects::find(db, &viewer(ann, now), ProjectKey::Id(project)).expect("asked").expect("a project");
        assert_eq!(
            (found.default_branch.as_deref(), found.last_activity_at, found.updated_at),
            (Some("main"), now, now)
        );
        assert_eq!(store::protections::of_project(db, project).expect("rules"), [rule]);
        let tags: Vec<String> = store::releases::find_many(db, project, &["v1", "v2", "v3"])
            .expect("releases")
            .into_iter()
            .map(|release| release.tag_name)
            .collect();
        assert_eq!(tags, ["v2"]);
        assert_eq!(store::intents::pending_of(db, project).expect("asked"), []);

        // Finishing again changes nothing.
        store::intents::finish(db, &intent, &[old], now).expect("finished");
        assert_eq!(seen(db).total, 2);
    });
}

#[tokio::test]
async fn an_unchanged_ref_does_not_affect_head_and_protections() {
    let forge = TestForge::start().await;
    let (ann, project) = set_up(&forge).await;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let head = |db: &mut Conn| {
            let found = store::projects::find(db, &viewer(ann, now), ProjectKey::Id(project)).expect("asked");
            found.expect("a project").default_branch
        };
        let push = |db: &mut Conn, changes: &[RefChange], default_branch, rule: Option<&str>, moved: &[RefName]| {
            let levels = PushLevel::Masters;
            let protection = rule.map(|name| Protection { name: name.into(), push: levels, merge: levels });
            let new = NewIntent { project, user: Some(ann), changes, default_branch, protection, now };
            let intent = insert_intent(db, &new);
            store::intents::finish(db, &intent, moved, now).expect("finished");
        };
        let (main, side) = (branch("main"), branch("side"));
        let come = |name: &RefName| RefChange { name: name.clone(), old: None, new: Some(oid(1)) };
        let go = |name: &RefName| RefChange { name: name.clone(), old: Some(oid(1)), new: None };
        let both = [come(&main), come(&side)];
        push(db, &both, Change::Set("main".into()), Some("main"), std::slice::from_ref(&side));
        assert_eq!((head(db), store::protections::of_project(db, project).expect("rules").len()), (None, 0));
        // A matching wildcard rule is enough.
        let wild = Protection { name: "m*".into(), push: PushLevel::Developers, merge: PushLevel::Developers };
        store::protections::put(db, project, &wild, now).expect("put");
        push(db, &both[..1], Change::Set("main".into()), Some("main"), std::slice::from_ref(&main));
        assert_eq!(head(db).as_deref(), Some("main"));
        assert_eq!(store::protections::of_project(db, project).expect("rules"), [wild]);
        // HEAD may change to a branch that is not part of the push.
        push(db, &[go(&main)], Change::Set("side".into()), None, std::slice::from_ref(&main));
        assert_eq!(head(db).as_deref(), Some("side"));
        push(db, &[go(&side)], Change::Clear, None, &[]);
        assert_eq!(head(db).as_deref(), Some("side"));
        push(db, &[go(&side)], Change::Clear, None, std::slice::from_ref(&side));
        assert_eq!(head(db), None);
        let events = store::events::of_project(db, project, true, None, all()).expect("events");
        let expected = ["refs/heads/side", "refs/heads/main", "refs/heads/main", "refs/heads/side"];
        assert_eq!(refs_of(&events.items), expected);
    });
}

#[tokio::test]
async fn a_deleted_intent_leaves_nothing_and_an_intent_outlives_its_user() {
    let forge = TestForge::start().await;
    let (ann, project) = set_up(&forge).await;
    let now = forge.forge.now();
    let ben = forge.user("ben").await.id;
    forge.in_transaction(|db| {
        let many: Vec<RefChange> = (0..1500)
            .map(|number| RefChange { name: branch(&format!("b{number}")), old: None, new: Some(oid(1)) })
            .collect();
        let keep = || Change::Keep;
        let new = NewIntent { project, user: Some(ann), changes: &many, default_branch: keep(), protection: None, now };
        let intent = insert_intent(db, &new);
        assert_eq!(intent.changes, many);
        store::intents::delete(db, intent.id).expect("dropped");
        let new = NewIntent { user: Some(ben), changes: &many[..1], ..new };
        let intent = insert_intent(db, &new);
        store::users::delete(db, ben).expect("gone");
        let left = store::intents::pending_of(db, project).expect("asked");
        assert_eq!(left, [Intent { user: None, ..intent.clone() }]);
        store::intents::finish(db, &left[0], &[branch("b0")], now).expect("finished");
        assert_eq!(store::events::of_project(db, project, true, None, all()).expect("events").total, 0);
    });
    let dump = forge.dump();
    for table in ["push_commits:", "push_events:", "ref_intent_changes:", "ref_intents:"] {
        assert!(!dump.contains(table), "{table}\n{dump}");
    }
}

#[tokio::test]
async fn events_of_a_user_are_limited_to_visible_projects() {
    let forge = TestForge::start().await;
    let (ann, private) = set_up(&forge).await;
    let [guest, reporter, stranger, shared] = [
        forge.user("gus").await.id,
        forge.user("rep").await.id,
        forge.user("eve").await.id,
        forge.user("sue").await.id,
    ];
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let public = insert_project(db, ann, "public", Visibility::Public, now);
        let group = fixtures::group(db, "crew", None, Visibility::Public, now);
        store::members::upsert(db, MemberSource::Group(group), shared, Role::Owner, None, now).expect("put");
        store::members::insert_share(db, private, group, Role::Guest, None, now).expect("shared");
        store::members::upsert(db, MemberSource::Project(private), guest, Role::Guest, None, now).expect("put");
        store::members::upsert(db, MemberSource::Project(private), reporter, Role::Reporter, None, now).expect("put");
        let ids = [
            insert_event(db, private, ann, EventAction::Created, now),
            insert_event(db, private, ann, EventAction::Pushed, now),
            insert_event(db, public, ann, EventAction::Created, now),
            insert_event(db, public, ann, EventAction::Pushed, now),
        ];
        insert_event(db, public, guest, EventAction::Pushed, now);
        let mut check = |viewer: Viewer, page: Page, expected: &[usize], total: i64| {
            let seen = store::events::of_user(db, &viewer, ann, page).expect("events");
            let seen_ids: Vec<EventId> = seen.items.iter().map(|event| event.id).collect();
            let expected: Vec<EventId> = expected.iter().map(|at| ids[*at]).collect();
            assert_eq!((seen_ids, seen.total), (expected, total), "{viewer:?}");
        };
        check(viewer(ann, now), all(), &[3, 2, 1, 0], 4);
        check(viewer(reporter, now), all(), &[3, 2, 1, 0], 4);
        check(viewer(guest, now), all(), &[3, 2, 0], 3);
        check(viewer(shared, now), all(), &[3, 2, 0], 3);
        check(viewer(stranger, now), all(), &[3, 2], 2);
        check(Viewer { admin: true, ..viewer(stranger, now) }, all(), &[3, 2, 1, 0], 4);
        check(viewer(guest, now), Page::new(Some(2), Some(2)), &[0], 3);
        check(viewer(guest, now), Page::new(Some(9), Some(2)), &[], 3);
        let inside =
            |db: &mut Conn, pushes| store::events::of_project(db, private, pushes, None, all()).expect("events").total;
        assert_eq!((inside(db, true), inside(db, false)), (2, 1));
        store::projects::soft_delete(db, DeletionScope::One(public), "remove_project", now).expect("buried");
        let left = store::events::of_user(db, &viewer(stranger, now), ann, all()).expect("events");
        assert_eq!((left.items.len(), left.total), (0, 0));
    });
}

#[tokio::test]
async fn forks_are_counted_and_their_source_is_shown_only_if_visible() {
    let forge = TestForge::start().await;
    let (ann, source) = set_up(&forge).await;
    let eve = forge.user("eve").await.id;
    let now = forge.forge.now();
    let fork = forge.in_transaction(|db| {
        let fork = insert_project(db, eve, "fork", Visibility::Public, now);
        let second = insert_project(db, eve, "second", Visibility::Public, now);
        let link = store::forks::insert(db, fork, source, now).expect("a link");
        store::forks::insert(db, second, source, now).expect("a link");
        assert_eq!((link.project, link.source, link.created_at), (fork, source, now));
        assert_eq!(store::forks::find(db, fork).expect("asked"), Some(link));
        let count = |db: &mut Conn| {
            store::projects::find(db, &viewer(ann, now), ProjectKey::Id(source))
                .expect("asked")
                .expect("there")
                .forks_count
        };
        assert_eq!(count(db), 2);
        let seen = |db: &mut Conn, user| store::forks::sources_of(db, &viewer(user, now), &[fork, source]);
        let seen_by_ann = seen(db, ann).expect("asked");
        assert_eq!(seen_by_ann.len(), 1);
        let (of, found) = &seen_by_ann[0];
        assert_eq!((*of, found.id, found.full_path()), (fork, source, "ann/rocket".into()));
        assert_eq!((found.namespace_name.as_str(), found.visibility), ("ann", Visibility::Private));
        assert_eq!(seen(db, eve).expect("asked"), []);
        store::projects::soft_delete(db, DeletionScope::One(second), "remove_project", now).expect("buried");
        assert_eq!(count(db), 1);
        assert!(store::forks::delete(db, fork).expect("deleted"));
        assert_eq!((count(db), store::forks::delete(db, fork).expect("asked")), (0, false));
        store::forks::insert(db, fork, source, now).expect("a link");
        store::projects::soft_delete(db, DeletionScope::One(source), "remove_project", now).expect("buried");
        assert_eq!(store::forks::find(db, fork).expect("asked"), None);
        // A dangling link does not prevent a new one.
        let other = insert_project(db, ann, "other", Visibility::Public, now);
        store::forks::insert(db, fork, other, now).expect("a link");
        fork
    });
    forge.run_due_tasks().await;
    forge.with_connection(|db| {
        let found =
            store::projects::find(db, &viewer(eve, now), ProjectKey::Id(fork)).expect("asked").expect("a project");
        let mut found = [found];
        store::projects::with_relations(db, &viewer(eve, now), &mut found).expect("filled in");
        let source = found[0].forked_from.as_ref().expect("a source");
        assert_eq!((found[0].fork_of, source.full_path()), (Some(source.id), "ann/other".into()));
    });
}

#[tokio::test]
async fn a_deploy_key_is_deleted_with_its_last_project() {
    let forge = TestForge::start().await;
    let (ann, project) = set_up(&forge).await;
    let now = forge.forge.now();
    let key = NewKey::parse("ci", KEY).expect("a key");
    let opened = |db: &mut Conn| {
        store::deploy_keys::by_fingerprint(db, &key.fingerprint).expect("asked").map(|(_, projects)| projects)
    };
    let (second, id) = forge.in_transaction(|db| {
        let second = insert_project(db, ann, "second", Visibility::Private, now);
        assert!(!store::keys::is_taken(db, &key.fingerprint).expect("asked"));
        let made = store::deploy_keys::insert(db, project, &key, now).expect("a key");
        assert!(store::keys::is_taken(db, &key.fingerprint).expect("asked"));
        assert!(store::deploy_keys::enable(db, second, made.id, now).expect("enabled"));
        assert!(!store::deploy_keys::enable(db, second, made.id, now).expect("asked"));
        assert_eq!(opened(db), Some(vec![project, second]));
        let listed = store::deploy_keys::list(db, second, all()).expect("a list");
        assert_eq!((listed.items, listed.total), (vec![made.clone()], 1));
        assert!(store::deploy_keys::disable(db, project, made.id).expect("disabled"));
        assert!(!store::deploy_keys::disable(db, project, made.id).expect("asked"));
        assert_eq!(store::deploy_keys::find(db, project, made.id).expect("asked"), None);
        assert_eq!(store::deploy_keys::find(db, second, made.id).expect("asked"), Some(made.clone()));
        (second, made.id)
    });
    forge.in_transaction(|db| {
        store::projects::soft_delete(db, DeletionScope::One(second), "remove_project", now).expect("buried");
        assert_eq!(opened(db), Some(Vec::new()));
    });
    forge.run_due_tasks().await;
    forge.in_transaction(|db| {
        assert_eq!(opened(db), None);
        assert!(!store::keys::is_taken(db, &key.fingerprint).expect("asked"));
        let made = store::deploy_keys::insert(db, project, &key, now).expect("a key");
        assert_ne!(made.id, id);
        assert!(store::deploy_keys::disable(db, project, made.id).expect("disabled"));
        assert_eq!(opened(db), None);
    });
}

#[tokio::test]
async fn the_latest_status_of_each_name_counts() {
    let forge = TestForge::start().await;
    let (ann, project) = set_up(&forge).await;
    let ben = forge.user("ben").await.id;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let new = |ref_name: &str, name: &str, state| NewStatus {
            sha: oid(1),
            ref_name: ref_name.into(),
            tag: false,
            name: name.into(),
            state,
            target_url: Some("https://ci.example.org/1".into()),
            description: None,
        };
        let [main, aside] = ["main", "side"].map(|name| pipeline(db, project, name, now));
        let first = store::statuses::insert(db, project, main, ann, &new("main", "build", StatusState::Failed), now);
        let first = first.expect("a status");
        assert_eq!((first.state, first.started_at, first.finished_at), (Status::Failed, None, Some(now)));
        assert_eq!(first.author.as_ref().map(|author| author.username.as_str()), Some("ann"));
        let second = store::statuses::insert(db, project, main, ann, &new("main", "build", StatusState::Pending), now);
        let second = second.expect("a status");
        let side = store::statuses::insert(db, project, aside, ann, &new("side", "build", StatusState::Running), now);
        let side = side.expect("a status");
        let later = now + SignedDuration::from_secs(5);
        let change = NewStatus { target_url: None, ..new("main", "build", StatusState::Running) };
        let running = store::statuses::update(db, second.id, ann, &change, later).expect("updated");
        assert_eq!((running.started_at, running.finished_at), (Some(later), None));
        assert_eq!(running.target_url, first.target_url);
        let latest = store::statuses::latest(db, main, "build").expect("asked");
        assert_eq!(latest.as_ref(), Some(&running));
        assert_eq!(store::statuses::latest(db, main, "other").expect("asked"), None);
        let mut check = |filter: StatusFilter, expected: &[JobId]| {
            let listed = store::statuses::list(db, project, oid(1), &filter, all()).expect("a list");
            let ids: Vec<JobId> = listed.items.iter().map(|status| status.id).collect();
            assert_eq!((&ids[..], listed.total), (expected, i64::try_from(ids.len()).expect("few")), "{filter:?}");
        };
        check(StatusFilter::default(), &[second.id, side.id]);
        check(StatusFilter { all: true, ..StatusFilter::default() }, &[first.id, second.id, side.id]);
        check(StatusFilter { ref_name: Some("side".into()), ..StatusFilter::default() }, &[side.id]);
        check(StatusFilter { name: Some("test".into()), ..StatusFilter::default() }, &[]);
        store::statuses::update(db, side.id, ben, &new("side", "build", StatusState::Success), later).expect("updated");
        store::users::delete(db, ben).expect("gone");
        let side = store::statuses::latest(db, aside, "build").expect("asked").expect("a status");
        assert_eq!((side.state, side.author), (Status::Success, None));
    });
}

#[tokio::test]
async fn an_import_deletes_its_credentials_when_it_ends() {
    let forge = TestForge::start().await;
    let (ann, project) = set_up(&forge).await;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let state = |db: &mut Conn| {
            let found = store::projects::find(db, &viewer(ann, now), ProjectKey::Id(project)).expect("asked");
            found.expect("a project").import.map(|import| (import.state, import.error))
        };
        assert_eq!(state(db), None);
        let encrypted = EncryptedCredentials(vec![1, 2, 3]);
        store::imports::insert(db, project, None, "https://example.org/x.git", Some(&encrypted)).expect("noted");
        assert_eq!(state(db), Some((ImportState::Scheduled, None)));
        store::imports::start(db, project, now).expect("noted");
        let import = store::imports::find(db, project).expect("asked").expect("an import");
        assert_eq!((import.credentials, import.started_at, import.finished_at), (Some(encrypted), Some(now), None));
        store::imports::finish(db, project, Some("no answer"), now).expect("noted");
        assert_eq!(state(db), Some((ImportState::Failed, Some("no answer".into()))));
        let import = store::imports::find(db, project).expect("asked").expect("an import");
        assert_eq!((import.credentials, import.finished_at), (None, Some(now)));
        store::imports::start(db, project, now).expect("noted");
        store::imports::finish(db, project, None, now).expect("noted");
        assert_eq!(state(db), Some((ImportState::Finished, None)));
    });
}

#[tokio::test]
async fn protections_and_releases_are_unique_by_name() {
    let forge = TestForge::start().await;
    let (_, project) = set_up(&forge).await;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let rule = |push, merge| Protection { name: "main".into(), push, merge };
        store::protections::put(db, project, &rule(PushLevel::NoOne, PushLevel::Masters), now).expect("put");
        store::protections::put(db, project, &rule(PushLevel::Developers, PushLevel::Developers), now).expect("put");
        let rules = store::protections::of_project(db, project).expect("rules");
        assert_eq!(rules, [rule(PushLevel::Developers, PushLevel::Developers)]);
        assert!(store::protections::remove(db, project, "main").expect("removed"));
        assert!(!store::protections::remove(db, project, "main").expect("asked"));

        let later = now + SignedDuration::from_secs(5);
        assert!(!store::releases::update(db, project, "v1", "x", now).expect("asked"));
        assert!(store::releases::insert(db, project, "v1", "first", now).expect("added"));
        assert!(!store::releases::insert(db, project, "v1", "again", now).expect("asked"));
        assert!(store::releases::update(db, project, "v1", "second", later).expect("changed"));
        let release = store::releases::find(db, project, "v1").expect("asked").expect("a release");
        let shown = (release.tag_name.as_str(), release.description.as_str(), release.created_at, release.updated_at);
        assert_eq!(shown, ("v1", "second", now, later));
        assert!(store::releases::delete(db, project, "v1").expect("removed"));
        assert!(!store::releases::delete(db, project, "v1").expect("asked"));
    });
}

#[tokio::test]
async fn a_deleted_project_leaves_no_repository_rows() {
    let forge = TestForge::start().await;
    let (ann, project) = set_up(&forge).await;
    let now = forge.forge.now();
    let key = NewKey::parse("ci", KEY).expect("a key");
    forge.in_transaction(|db| {
        for _ in 0..3 {
            insert_event(db, project, ann, EventAction::Pushed, now);
        }
        let changes = [RefChange { name: branch("main"), old: None, new: Some(oid(1)) }];
        let keep = Change::Keep;
        let new =
            NewIntent { project, user: Some(ann), changes: &changes, default_branch: keep, protection: None, now };
        insert_intent(db, &new);
        let status = NewStatus {
            sha: oid(1),
            ref_name: "main".into(),
            tag: false,
            name: "build".into(),
            state: StatusState::Success,
            target_url: None,
            description: None,
        };
        let main = pipeline(db, project, "main", now);
        store::statuses::insert(db, project, main, ann, &status, now).expect("a status");
        store::releases::insert(db, project, "v1", "notes", now).expect("a release");
        let rule = Protection { name: "main".into(), push: PushLevel::Masters, merge: PushLevel::Masters };
        store::protections::put(db, project, &rule, now).expect("a rule");
        store::deploy_keys::insert(db, project, &key, now).expect("a key");
        store::imports::insert(db, project, None, "https://example.org/x.git", None).expect("an import");
        let fork = insert_project(db, ann, "fork", Visibility::Private, now);
        store::forks::insert(db, fork, project, now).expect("a link");
        store::projects::soft_delete(db, DeletionScope::One(project), "remove_project", now).expect("buried");
        // In batches, until there is nothing left to delete.
        assert!(store::projects::purge_batch(db, project, 2).expect("shrunk") > 0);
        while store::projects::purge_batch(db, project, 2).expect("shrunk") > 0 {}
    });
    forge.run_due_tasks().await;
    let dump = forge.dump();
    let tables = [
        "events:",
        "push_events:",
        "push_commits:",
        "ref_intents:",
        "ref_intent_changes:",
        "pipelines:",
        "builds:",
        "releases:",
        "protected_branches:",
        "deploy_keys:",
        "deploy_key_projects:",
        "project_imports:",
        "fork_links:",
    ];
    for table in tables {
        assert!(!dump.lines().any(|line| line.starts_with(table)), "{table}\n{dump}");
    }
    assert_eq!(forge.forge.read(Caller::system(), forge::tasks::count).await.expect("counts"), (0, 0));
}
