//! The tables of repositories, tested through the store, since no request exposes all of them.

use forge::Caller;
use jiff::SignedDuration;
use model::{
    EventId, JobId, Oid, PackContent, Page, PipelineId, ProjectId, Protection, PushLevel, RefName, Role, Status, Time,
    Total, UserId, Visibility,
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
    members::MemberSource,
    packs::NewPack,
    pipelines::NewPipeline,
    projects::{DeletionScope, ProjectKey},
    repositories::RefUpdate,
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

fn insert_event(db: &mut Conn, project: ProjectId, author: UserId, action: EventAction, now: Time) -> EventId {
    let push = push_of(&branch("main"), None, Some(oid(1)));
    if action == EventAction::Pushed {
        return store::events::insert_pushes(db, project, author, &[&push], now).expect("an event")[0];
    }
    let event = NewEvent { project, author, action, target: None, now };
    store::events::insert(db, &event).expect("an event")
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
            assert_eq!((seen_ids, seen.total), (expected, Total::Exact(total)), "{viewer:?}");
        };
        check(viewer(ann, now), all(), &[3, 2, 1, 0], 4);
        check(viewer(reporter, now), all(), &[3, 2, 1, 0], 4);
        check(viewer(guest, now), all(), &[3, 2, 0], 3);
        check(viewer(shared, now), all(), &[3, 2, 0], 3);
        check(viewer(stranger, now), all(), &[3, 2], 2);
        check(Viewer { admin: true, ..viewer(stranger, now) }, all(), &[3, 2, 1, 0], 4);
        check(viewer(guest, now), Page::new(Some(2), Some(2)), &[0], 3);
        check(viewer(guest, now), Page::new(Some(9), Some(2)), &[], 3);
        let inside = |db: &mut Conn, pushes| {
            store::events::of_project(db, private, pushes, None, all()).expect("events").total.exact()
        };
        assert_eq!((inside(db, true), inside(db, false)), (Some(2), Some(1)));
        store::projects::soft_delete(db, DeletionScope::One(public), "remove_project", now).expect("buried");
        let left = store::events::of_user(db, &viewer(stranger, now), ann, all()).expect("events");
        assert_eq!((left.items.len(), left.total), (0, Total::Exact(0)));
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
        assert_eq!((listed.items, listed.total), (vec![made.clone()], Total::Exact(1)));
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
            assert_eq!((&ids[..], listed.total.exact()), (expected, i64::try_from(ids.len()).ok()), "{filter:?}");
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
        let repository = store::repositories::begin_update(db, project, now).expect("a repository").id;
        let (main, side) = (branch("main"), branch("side"));
        let update = |name| RefUpdate { name, old: None, new: Some(oid(1)), peeled: None };
        let updates = [update(&main), update(&side)];
        assert_eq!(store::repositories::update_refs(db, repository, &updates).expect("updated"), [true, true]);
        for digit in [1, 2] {
            let key = format!("packs/00/{digit}");
            let content = (digit == 2).then(|| PackContent { pack: vec![1], index: vec![2] });
            let pack = NewPack { key, content, checksum: oid(digit), bytes: 1, objects: 1, is_unreachable: false };
            store::packs::add_pack(db, repository, &pack, now).expect("a pack");
        }
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
        "repositories:",
        "refs:",
        "repository_packs:",
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
