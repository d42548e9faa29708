//! Which changes create webhook events, and for which hooks.

use forge::{
    Caller, Error, Unvalidated, tasks,
    users::{self, NewUserRequest},
};
use jiff::SignedDuration;
use model::{EventKind, NamespaceId, ProjectId, hooks::SubscribedEvents, users::NewUser};
use serde_json::{Value, json};
use testkit::{
    PASSWORD, TestClient, TestForge,
    fixtures::{self, HookEvent},
    repository::SMALL_REPOSITORY,
};

const NOTHING: SubscribedEvents = SubscribedEvents {
    push: false,
    tag_push: false,
    issues: false,
    confidential_issues: false,
    merge_requests: false,
    note: false,
    build: false,
    pipeline: false,
    wiki_page: false,
};
const ISSUES: SubscribedEvents = SubscribedEvents { issues: true, ..NOTHING };
const CONFIDENTIAL_ISSUES: SubscribedEvents = SubscribedEvents { confidential_issues: true, ..NOTHING };
const NOTES: SubscribedEvents = SubscribedEvents { note: true, ..NOTHING };

fn insert_hook(forge: &TestForge, project: Option<ProjectId>, events: SubscribedEvents) {
    forge.with_connection(|db| fixtures::hook(db, project, events));
}

/// Takes the events of system hooks since the last call, summarized.
fn take_system_events(forge: &TestForge) -> Vec<String> {
    let events = forge.in_transaction(fixtures::take_hook_events);
    for HookEvent { kind, project, payload } in &events {
        assert_eq!((*kind, *project), (EventKind::System, None), "{payload}");
    }
    events.iter().map(|event| summarize(&event.payload)).collect()
}

fn summarize(payload: &Value) -> String {
    let name = payload["event_name"].as_str().expect("a name");
    let fields: &[&str] = match name {
        "project_create" | "project_destroy" => &["path_with_namespace", "owner_name", "owner_email"],
        "project_rename" | "project_transfer" => &["old_path_with_namespace", "path_with_namespace"],
        "user_add_to_team" | "user_remove_from_team" => {
            &["project_path_with_namespace", "user_username", "user_email", "access_level"]
        }
        "user_create" | "user_destroy" => &["username", "email"],
        "key_create" | "key_destroy" => &["id", "username"],
        "group_create" | "group_destroy" => &["path"],
        "user_add_to_group" | "user_remove_from_group" => &["group_path", "user_username", "group_access"],
        other => panic!("{other}"),
    };
    let values = fields.iter().filter_map(|field| match &payload[field] {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    });
    [name.to_owned()].into_iter().chain(values).collect::<Vec<_>>().join(" ")
}

/// Takes the issue events since the last call, summarized: kind, user, action, title and state.
fn take_issue_events(forge: &TestForge) -> Vec<String> {
    let events = forge.in_transaction(fixtures::take_hook_events);
    let line = |HookEvent { kind, project, payload }: &HookEvent| {
        assert_eq!(payload["object_kind"], "issue");
        let attributes = &payload["object_attributes"];
        assert_eq!(attributes["project_id"].as_i64(), project.map(ProjectId::get));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (user, action) = (text(&payload["user"]["username"]), text(&attributes["action"]));
        format!("{kind:?}: {user} {action} {} {}", text(&attributes["title"]), text(&attributes["state"]))
    };
    events.iter().map(line).collect()
}

/// Starts a forge with a user who has a project.
async fn setup() -> (TestForge, TestClient, ProjectId) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await);
    (forge, ann, project)
}

#[tokio::test]
async fn each_change_of_an_issue_creates_an_event() {
    let (forge, ann, project) = setup().await;
    insert_hook(&forge, Some(project), ISSUES);
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one", "labels": "a" })).await;
    assert_eq!(take_issue_events(&forge), ["Issue: ann open one opened"]);
    let path = format!("/projects/{project}/issues/{issue}");
    let change = async |body: Value| {
        let changed = ann.put(&path, body).await;
        assert_eq!(changed.code(), 200, "{changed}");
        take_issue_events(&forge)
    };
    assert_eq!(change(json!({ "title": "two" })).await, ["Issue: ann update two opened"]);
    assert_eq!(change(json!({ "labels": "b" })).await, ["Issue: ann update two opened"]);
    assert_eq!(change(json!({ "title": "two" })).await, ["Issue: ann update two opened"], "nothing visible changed");
    assert_eq!(change(json!({ "state_event": "close" })).await, ["Issue: ann close two closed"]);
    assert_eq!(change(json!({ "state_event": "close" })).await, [""; 0], "it is closed already");
    assert_eq!(
        change(json!({ "state_event": "reopen", "title": "three" })).await,
        ["Issue: ann reopen three reopened", "Issue: ann update three reopened"]
    );
    // Changes that the user may not make are ignored, and create no event.
    let bob = forge.user("bob").await;
    let open = json!({ "name": "Rocket", "visibility_level": 20 });
    assert_eq!(ann.put(&format!("/projects/{project}"), open).await.code(), 200);
    let own = bob.make(&format!("/projects/{project}/issues"), json!({ "title": "four" })).await;
    assert_eq!(take_issue_events(&forge), ["Issue: bob open four opened"]);
    let path = format!("/projects/{project}/issues/{own}");
    assert_eq!(bob.put(&path, json!({ "labels": "b" })).await.code(), 200);
    assert_eq!(take_issue_events(&forge), [""; 0]);
    // Subscribing to an issue and deleting it create no event.
    assert_eq!(ann.post(&format!("{path}/subscription"), json!({})).await.code(), 201);
    assert_eq!(ann.delete(&path).await.code(), 200);
    assert_eq!(take_issue_events(&forge), [""; 0]);
}

#[tokio::test]
async fn an_issue_event_names_the_last_editor() {
    let (forge, ann, project) = setup().await;
    insert_hook(&forge, Some(project), ISSUES);
    let take_last_editors = || {
        let events = forge.in_transaction(fixtures::take_hook_events);
        events.iter().map(|event| event.payload["object_attributes"]["updated_by_id"].clone()).collect::<Vec<_>>()
    };
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one" })).await;
    assert_eq!(take_last_editors(), [Value::Null]);
    let root = forge.admin().await;
    let path = format!("/projects/{project}/issues/{issue}");
    assert_eq!(root.put(&path, json!({ "title": "two" })).await.code(), 200);
    assert_eq!(take_last_editors(), [json!(root.id.get())]);
    assert_eq!(ann.put(&path, json!({ "title": "two" })).await.code(), 200);
    assert_eq!(take_last_editors(), [json!(root.id.get())], "saved without a change");
    assert_eq!(ann.put(&path, json!({ "state_event": "close" })).await.code(), 200);
    assert_eq!(take_last_editors(), [json!(ann.id.get())]);
}

#[tokio::test]
async fn confidential_issues_are_not_sent_to_hooks_for_plain_issues() {
    let (forge, ann, project) = setup().await;
    insert_hook(&forge, Some(project), SubscribedEvents { note: true, ..ISSUES });
    let issues = format!("/projects/{project}/issues");
    let secret = ann.make(&issues, json!({ "title": "secret", "confidential": true })).await;
    let path = format!("{issues}/{secret}");
    for body in [json!({ "title": "secret 2" }), json!({ "state_event": "close", "labels": "a" })] {
        assert_eq!(ann.put(&path, body).await.code(), 200);
    }
    ann.make(&format!("{path}/notes"), json!({ "body": "hush" })).await;
    let open = ann.make(&issues, json!({ "title": "open" })).await;
    assert_eq!(take_issue_events(&forge), ["Issue: ann open open opened"], "and none of the confidential issue");
    // An issue that becomes confidential is so in all events of that change.
    let hide = json!({ "confidential": true, "state_event": "close" });
    assert_eq!(ann.put(&format!("{issues}/{open}"), hide).await.code(), 200);
    assert_eq!(take_issue_events(&forge), [""; 0]);
    assert_eq!(ann.put(&format!("{issues}/{open}"), json!({ "confidential": false })).await.code(), 200);
    assert_eq!(take_issue_events(&forge), ["Issue: ann update open closed"]);
}

#[tokio::test]
async fn confidential_issues_are_sent_to_hooks_for_them() {
    let (forge, ann, project) = setup().await;
    insert_hook(&forge, Some(project), CONFIDENTIAL_ISSUES);
    let issues = format!("/projects/{project}/issues");
    ann.make(&issues, json!({ "title": "open" })).await;
    assert_eq!(take_issue_events(&forge), [""; 0], "it is not confidential");
    let secret = ann.make(&issues, json!({ "title": "secret", "confidential": true })).await;
    assert_eq!(take_issue_events(&forge), ["ConfidentialIssue: ann open secret opened"]);
    assert_eq!(ann.put(&format!("{issues}/{secret}"), json!({ "state_event": "close" })).await.code(), 200);
    assert_eq!(take_issue_events(&forge), ["ConfidentialIssue: ann close secret closed"]);
    assert_eq!(ann.put(&format!("{issues}/{secret}"), json!({ "confidential": false })).await.code(), 200);
    assert_eq!(take_issue_events(&forge), [""; 0], "it is no longer confidential");
    // Comments on confidential issues require both flags.
    let other = ann.make(&issues, json!({ "title": "other", "confidential": true })).await;
    let notes = format!("{issues}/{other}/notes");
    forge.in_transaction(fixtures::take_hook_events);
    ann.make(&notes, json!({ "body": "hush" })).await;
    assert_eq!(forge.in_transaction(fixtures::take_hook_events).len(), 0);
    insert_hook(&forge, Some(project), SubscribedEvents { note: true, ..CONFIDENTIAL_ISSUES });
    ann.make(&notes, json!({ "body": "hush" })).await;
    let events = forge.in_transaction(fixtures::take_hook_events);
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::ConfidentialNote]);
}

#[tokio::test]
async fn moving_an_issue_opens_the_copy_and_closes_the_original() {
    let (forge, ann, here) = setup().await;
    let there = ProjectId::new(ann.make("/projects", json!({ "name": "Ship" })).await);
    for resource in [here, there] {
        insert_hook(&forge, Some(resource), ISSUES);
    }
    let issue = ann.make(&format!("/projects/{here}/issues"), json!({ "title": "one" })).await;
    forge.in_transaction(fixtures::take_hook_events);
    let moving = json!({ "to_project_id": there.get() });
    let copy = ann.make(&format!("/projects/{here}/issues/{issue}/move"), moving).await;
    let events = forge.in_transaction(fixtures::take_hook_events);
    let facts: Vec<Value> = events
        .iter()
        .map(|event| {
            let attributes = &event.payload["object_attributes"];
            json!([
                event.project.map(ProjectId::get),
                attributes["id"],
                attributes["action"],
                attributes["moved_to_id"]
            ])
        })
        .collect();
    assert_eq!(facts, [json!([there.get(), copy, "open", null]), json!([here.get(), issue, "close", copy])]);
}

#[tokio::test]
async fn a_commit_that_closes_an_issue_creates_an_event() {
    let (forge, ann, project) = setup().await;
    insert_hook(&forge, Some(project), ISSUES);
    let issues = format!("/projects/{project}/issues");
    ann.make(&issues, json!({ "title": "one" })).await;
    ann.make(&issues, json!({ "title": "two" })).await;
    forge.in_transaction(fixtures::take_hook_events);
    let commit = async |name: &str, message: &str| {
        let new = json!({ "file_path": name, "branch_name": "master", "content": "x", "commit_message": message });
        let made = ann.post(&format!("/projects/{project}/repository/files"), new).await;
        assert_eq!(made.code(), 201, "{made}");
        take_issue_events(&forge)
    };
    assert_eq!(commit("a", "Begin").await, [""; 0]);
    assert_eq!(commit("b", "Fixes #1, see #2").await, ["Issue: ann close one closed"]);
    assert_eq!(commit("c", "Fixes #1 again").await, [""; 0], "it is closed already");
}

#[tokio::test]
async fn a_new_comment_creates_an_event() {
    let (forge, ann, project) = setup().await;
    insert_hook(&forge, Some(project), NOTES);
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one" })).await;
    let notes = format!("/projects/{project}/issues/{issue}/notes");
    // System notes create no event.
    let path = format!("/projects/{project}/issues/{issue}");
    assert_eq!(ann.put(&path, json!({ "state_event": "close" })).await.code(), 200);
    assert_eq!(forge.in_transaction(fixtures::take_hook_events).len(), 0);
    let note = ann.make(&notes, json!({ "body": "Looks fine" })).await;
    let events = forge.in_transaction(fixtures::take_hook_events);
    let [HookEvent { kind, project: event_project, payload }] = &events[..] else { panic!("{}", events.len()) };
    assert_eq!((*kind, *event_project), (EventKind::Note, Some(project)));
    assert_eq!((&payload["object_kind"], &payload["user"]["username"]), (&json!("note"), &json!("ann")));
    let attributes = &payload["object_attributes"];
    assert_eq!((&attributes["note"], &attributes["noteable_type"]), (&json!("Looks fine"), &json!("Issue")));
    // Neither does changing or deleting a comment.
    assert_eq!(ann.put(&format!("{notes}/{note}"), json!({ "body": "Looks bad" })).await.code(), 200);
    assert_eq!(ann.delete(&format!("{notes}/{note}")).await.code(), 200);
    assert_eq!(forge.in_transaction(fixtures::take_hook_events).len(), 0);
}

#[tokio::test]
async fn a_comment_on_a_commit_creates_an_event_with_the_commit() {
    let (forge, ann, project) = setup().await;
    forge.fast_import(&ann, project, SMALL_REPOSITORY).await;
    insert_hook(&forge, Some(project), NOTES);
    let sha = forge.refs_of(project).into_iter().find(|(name, _)| name == "refs/heads/master").expect("a branch").1;
    let path = format!("/projects/{project}/repository/commits/{sha}/comments");
    assert_eq!(ann.post(&path, json!({ "note": "Nice" })).await.code(), 201);
    let events = forge.in_transaction(fixtures::take_hook_events);
    let [HookEvent { kind, project: event_project, payload }] = &events[..] else { panic!("{}", events.len()) };
    assert_eq!((*kind, *event_project), (EventKind::Note, Some(project)));
    let attributes = &payload["object_attributes"];
    assert_eq!((&attributes["note"], &attributes["noteable_type"]), (&json!("Nice"), &json!("Commit")));
    assert_eq!(attributes["commit_id"], json!(sha));
    // A refused comment creates no event.
    assert_eq!(ann.post(&path, json!({ "note": " " })).await.code(), 400);
    assert_eq!(forge.in_transaction(fixtures::take_hook_events).len(), 0);
}

#[tokio::test]
async fn events_without_subscribers_are_not_stored() {
    let (forge, ann, project) = setup().await;
    let other = ProjectId::new(ann.make("/projects", json!({ "name": "Ship" })).await);
    // One hook for other events, and one in another project.
    insert_hook(&forge, Some(project), SubscribedEvents { push: true, tag_push: true, ..NOTHING });
    let all = SubscribedEvents { issues: true, confidential_issues: true, note: true, ..NOTHING };
    insert_hook(&forge, Some(other), all);
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one" })).await;
    ann.make(&format!("/projects/{project}/issues/{issue}/notes"), json!({ "body": "x" })).await;
    let path = format!("/projects/{project}/issues/{issue}");
    assert_eq!(ann.put(&path, json!({ "title": "two", "confidential": true })).await.code(), 200);
    forge.user("bob").await;
    ann.make("/groups", json!({ "name": "Crew", "path": "crew" })).await;
    assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
    assert_eq!(forge.in_transaction(fixtures::take_hook_events).len(), 0);
}

#[tokio::test]
async fn a_rolled_back_change_creates_no_event() {
    let forge = TestForge::start().await;
    insert_hook(&forge, None, NOTHING);
    let user = NewUser::new("bob", "bob@example.org", "Bob");
    let given = Unvalidated::valid(NewUserRequest { user, password: PASSWORD.to_owned() });
    let ready = forge.forge.run_blocking(Caller::system(), move |tx| users::prepare_create(tx, &given)).await;
    let ready = ready.expect("a good registration");
    let again = ready.clone();
    let failed = forge.forge.write(Caller::system(), move |tx| {
        users::create(tx, &ready)?;
        Err::<(), _>(Error::Refused("second thoughts".into()))
    });
    assert!(failed.await.is_err());
    assert_eq!(take_system_events(&forge), [""; 0]);
    let created = forge.forge.write(Caller::system(), move |tx| users::create(tx, &again).map(|_| ())).await;
    created.expect("a user");
    assert_eq!(take_system_events(&forge), ["user_create bob bob@example.org"]);
}

#[tokio::test]
async fn creating_changing_and_deleting_projects_creates_system_events() {
    let forge = TestForge::start().await;
    let (root, ann) = (forge.admin().await, forge.user("ann").await);
    let crew = root.make("/groups", json!({ "name": "The Crew", "path": "crew", "visibility_level": 20 })).await;
    insert_hook(&forge, None, NOTHING);
    let project = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket", "visibility_level": 20 })).await;
    assert_eq!(
        take_system_events(&forge),
        ["project_create ann/rocket ann ann@example.org", "user_add_to_team ann/rocket ann ann@example.org Master",]
    );
    let rename = async |body: Value| {
        let renamed = ann.put(&format!("/projects/{project}"), body).await;
        assert_eq!(renamed.code(), 200, "{renamed}");
        take_system_events(&forge)
    };
    assert_eq!(rename(json!({ "name": "Ship" })).await, [""; 0], "the path is the same");
    assert_eq!(rename(json!({ "name": "Ship", "path": "rocket" })).await, [""; 0], "the path is the same");
    assert_eq!(rename(json!({ "name": "Ship", "path": "ship" })).await, ["project_rename ann/rocket ann/ship"]);
    let bob = forge.user("bob").await;
    take_system_events(&forge);
    let fork = bob.make(&format!("/projects/fork/{project}"), json!({ "namespace": "bob" })).await;
    assert_eq!(
        take_system_events(&forge),
        ["project_create bob/ship bob bob@example.org", "user_add_to_team bob/ship bob bob@example.org Master"]
    );
    let url = "https://code.example.org/x.git";
    root.make("/projects", json!({ "name": "In", "namespace_id": crew, "import_url": url })).await;
    assert_eq!(take_system_events(&forge), ["project_create crew/in The Crew"], "a group has no email address");
    let moved = root.post(&format!("/groups/{crew}/projects/{project}"), json!({})).await;
    assert_eq!(moved.code(), 201, "{moved}");
    assert_eq!(take_system_events(&forge), ["project_transfer ann/ship crew/ship"]);
    assert_eq!(bob.delete(&format!("/projects/{fork}")).await.code(), 200);
    assert_eq!(
        take_system_events(&forge),
        ["user_remove_from_team bob/ship bob bob@example.org Master", "project_destroy bob/ship bob bob@example.org"]
    );
    forge.run_due_tasks().await;
    assert_eq!(take_system_events(&forge), [""; 0], "reported only once");
}

#[tokio::test]
async fn adding_and_removing_members_creates_system_events() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let project = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await;
    let group = ann.make("/groups", json!({ "name": "Crew", "path": "crew" })).await;
    insert_hook(&forge, None, NOTHING);
    let resources = [
        (format!("/projects/{project}"), "team", "ann/rocket bob bob@example.org"),
        (format!("/groups/{group}"), "group", "crew bob"),
    ];
    for (resource, kind, who) in resources {
        let (added, removed) = (format!("user_add_to_{kind} {who}"), format!("user_remove_from_{kind} {who}"));
        let member = json!({ "user_id": bob.id.get(), "access_level": 30 });
        assert_eq!(ann.post(&format!("{resource}/members"), member.clone()).await.code(), 201);
        assert_eq!(take_system_events(&forge), [format!("{added} Developer")]);
        // Adding an existing member and changing the role create no event.
        ann.post(&format!("{resource}/members"), member).await;
        let path = format!("{resource}/members/{}", bob.id);
        assert_eq!(ann.put(&path, json!({ "access_level": 40 })).await.code(), 200);
        assert_eq!(take_system_events(&forge), [""; 0]);
        assert_eq!(ann.delete(&path).await.code(), 200);
        assert_eq!(take_system_events(&forge), [format!("{removed} Master")], "removed by an owner");
        ann.delete(&path).await;
        assert_eq!(take_system_events(&forge), [""; 0], "not a member");
        let until = json!({ "user_id": bob.id.get(), "access_level": 20, "expires_at": "2026-01-03" });
        assert_eq!(ann.post(&format!("{resource}/members"), until).await.code(), 201);
        assert_eq!(bob.delete(&path).await.code(), 200);
        assert_eq!(take_system_events(&forge), [format!("{added} Reporter"), format!("{removed} Reporter")], "left");
    }
}

#[tokio::test]
async fn an_expired_membership_creates_one_event() {
    let forge = TestForge::start().await;
    let (ann, bob, cid) = (forge.user("ann").await, forge.user("bob").await, forge.user("cid").await);
    let project = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await;
    let group = ann.make("/groups", json!({ "name": "Crew", "path": "crew" })).await;
    insert_hook(&forge, None, NOTHING);
    for resource in [format!("/projects/{project}/members"), format!("/groups/{group}/members")] {
        for user in [bob.id, cid.id] {
            let until = json!({ "user_id": user.get(), "access_level": 20, "expires_at": "2026-01-03" });
            assert_eq!(ann.post(&resource, until).await.code(), 201);
        }
    }
    take_system_events(&forge);
    forge.clock.advance(SignedDuration::from_hours(48));
    // Adding an expired member again reports the removal first.
    let again = json!({ "user_id": cid.id.get(), "access_level": 30 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), again).await.code(), 201);
    assert_eq!(
        take_system_events(&forge),
        [
            "user_remove_from_team ann/rocket cid cid@example.org Reporter",
            "user_add_to_team ann/rocket cid cid@example.org Developer",
        ]
    );
    for _ in 0..2 {
        tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
        forge.run_due_tasks().await;
    }
    assert_eq!(
        take_system_events(&forge),
        [
            "user_remove_from_team ann/rocket bob bob@example.org Reporter",
            "user_remove_from_group crew bob Reporter",
            "user_remove_from_group crew cid Reporter",
        ]
    );
}

#[tokio::test]
async fn deleting_a_user_reports_keys_memberships_and_projects() {
    let forge = TestForge::start().await;
    let (root, ann) = (forge.admin().await, forge.user("ann").await);
    let rocket = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await;
    let crew = ann.make("/groups", json!({ "name": "Crew", "path": "crew" })).await;
    insert_hook(&forge, None, NOTHING);
    let new = json!({ "email": "bob@example.org", "username": "bob", "name": "Bob", "password": PASSWORD });
    let bob = root.make("/users", new).await;
    assert_eq!(take_system_events(&forge), ["user_create bob bob@example.org"]);
    let project = root.make(&format!("/projects/user/{bob}"), json!({ "name": "Own", "path": "own" })).await;
    let key = root.make(&format!("/users/{bob}/keys"), json!({ "title": "k", "key": fixtures::ssh_key(1) })).await;
    for (resource, user) in [
        (format!("/projects/{rocket}"), bob),
        (format!("/groups/{crew}"), bob),
        (format!("/projects/{project}"), ann.id.get()),
    ] {
        let member = json!({ "user_id": user, "access_level": 30 });
        assert_eq!(root.post(&format!("{resource}/members"), member).await.code(), 201);
    }
    assert_eq!(
        take_system_events(&forge),
        [
            "project_create bob/own Bob bob@example.org".to_owned(),
            "user_add_to_team bob/own bob bob@example.org Master".to_owned(),
            format!("key_create {key} bob"),
            "user_add_to_team ann/rocket bob bob@example.org Developer".to_owned(),
            "user_add_to_group crew bob Developer".to_owned(),
            "user_add_to_team bob/own ann ann@example.org Developer".to_owned(),
        ]
    );
    assert_eq!(root.delete(&format!("/users/{bob}")).await.code(), 200);
    assert_eq!(
        take_system_events(&forge),
        [
            "user_remove_from_team bob/own bob bob@example.org Master".to_owned(),
            "user_remove_from_team bob/own ann ann@example.org Developer".to_owned(),
            "project_destroy bob/own Bob bob@example.org".to_owned(),
            format!("key_destroy {key} bob"),
            "user_remove_from_team ann/rocket bob bob@example.org Developer".to_owned(),
            "user_remove_from_group crew bob Developer".to_owned(),
            "user_destroy bob bob@example.org".to_owned(),
        ]
    );
    forge.run_due_tasks().await;
    assert_eq!(take_system_events(&forge), [""; 0], "reported only once");
}

#[tokio::test]
async fn adding_and_removing_keys_creates_system_events() {
    let forge = TestForge::start().await;
    let (ann, root) = (forge.user("ann").await, forge.admin().await);
    insert_hook(&forge, None, NOTHING);
    let text = fixtures::ssh_key(1);
    let key = ann.make("/user/keys", json!({ "title": "k", "key": text })).await;
    let events = forge.in_transaction(fixtures::take_hook_events);
    assert_eq!((events.len(), &events[0].payload["key"]), (1, &json!(text)));
    assert_eq!(summarize(&events[0].payload), format!("key_create {key} ann"));
    assert_eq!(ann.post("/user/keys", json!({ "title": "k", "key": text })).await.code(), 400);
    assert_eq!(take_system_events(&forge), [""; 0], "it is there already");
    assert_eq!(ann.delete(&format!("/user/keys/{key}")).await.code(), 200);
    assert_eq!(take_system_events(&forge), [format!("key_destroy {key} ann")]);
    ann.delete(&format!("/user/keys/{key}")).await;
    assert_eq!(take_system_events(&forge), [""; 0], "it is gone already");
    let given =
        root.make(&format!("/users/{}/keys", ann.id), json!({ "title": "k", "key": fixtures::ssh_key(2) })).await;
    assert_eq!(root.delete(&format!("/users/{}/keys/{given}", ann.id)).await.code(), 200);
    assert_eq!(take_system_events(&forge), [format!("key_create {given} ann"), format!("key_destroy {given} ann")]);
}

#[tokio::test]
async fn a_deploy_key_is_removed_with_its_last_project() {
    let (forge, ann, one) = setup().await;
    let two = ProjectId::new(ann.make("/projects", json!({ "name": "Ship" })).await);
    insert_hook(&forge, None, NOTHING);
    let keys = |project: ProjectId| format!("/projects/{project}/deploy_keys");
    let key = ann.make(&keys(one), json!({ "title": "k", "key": fixtures::ssh_key(1) })).await;
    assert_eq!(take_system_events(&forge), [format!("key_create {key}")], "a deploy key has no owner");
    assert_eq!(ann.post(&format!("{}/{key}/enable", keys(two)), json!({})).await.code(), 201);
    assert_eq!(ann.delete(&format!("{}/{key}", keys(one))).await.code(), 200);
    assert_eq!(take_system_events(&forge), [""; 0], "the other project still uses it");
    assert_eq!(ann.delete(&format!("{}/{key}", keys(two))).await.code(), 200);
    assert_eq!(take_system_events(&forge), [format!("key_destroy {key}")]);
    // The same when the projects are deleted.
    let key = ann.make(&keys(one), json!({ "title": "k", "key": fixtures::ssh_key(2) })).await;
    assert_eq!(ann.post(&format!("{}/{key}/enable", keys(two)), json!({})).await.code(), 201);
    for (project, gone) in [(one, None), (two, Some(format!("key_destroy {key}")))] {
        assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
        take_system_events(&forge);
        forge.run_due_tasks().await;
        assert_eq!(take_system_events(&forge), gone.into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn deleting_a_group_reports_projects_and_members() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    insert_hook(&forge, None, NOTHING);
    take_system_events(&forge);
    let group = NamespaceId::new(ann.make("/groups", json!({ "name": "The Crew", "path": "crew" })).await);
    assert_eq!(take_system_events(&forge), ["group_create crew", "user_add_to_group crew ann Owner"]);
    let below = forge.insert_subgroup(group, "below", model::Visibility::Private);
    let one = ann.make("/projects", json!({ "name": "One", "path": "one", "namespace_id": group.get() })).await;
    ann.make("/projects", json!({ "name": "Two", "path": "two", "namespace_id": below.get() })).await;
    for resource in [format!("/projects/{one}"), format!("/groups/{group}")] {
        let member = json!({ "user_id": bob.id.get(), "access_level": 30 });
        assert_eq!(ann.post(&format!("{resource}/members"), member).await.code(), 201);
    }
    take_system_events(&forge);
    assert_eq!(ann.delete(&format!("/groups/{group}")).await.code(), 200);
    assert_eq!(
        take_system_events(&forge),
        [
            "user_remove_from_team crew/one bob bob@example.org Developer",
            "project_destroy crew/one The Crew",
            "project_destroy crew/below/two below",
            "user_remove_from_group crew ann Owner",
            "user_remove_from_group crew bob Developer",
            "group_destroy below",
            "group_destroy crew",
        ]
    );
    forge.run_due_tasks().await;
    assert_eq!(take_system_events(&forge), [""; 0], "reported only once");
}

#[tokio::test]
async fn concurrent_removals_create_one_event() {
    let forge = TestForge::start().await;
    let (root, ann, bob) = (forge.admin().await, forge.user("ann").await, forge.user("bob").await);
    insert_hook(&forge, None, NOTHING);
    for round in 0..5 {
        let new = json!({ "name": format!("n{round}"), "path": format!("p{round}") });
        let project = ann.make("/projects", new).await;
        let members = format!("/projects/{project}/members");
        let member = json!({ "user_id": bob.id.get(), "access_level": 30 });
        assert_eq!(ann.post(&members, member).await.code(), 201);
        take_system_events(&forge);
        let path = format!("{members}/{}", bob.id);
        tokio::join!(ann.delete(&path), bob.delete(&path), root.delete(&path));
        let left = format!("user_remove_from_team ann/p{round} bob bob@example.org Developer");
        assert_eq!(take_system_events(&forge), [left]);
        let path = format!("/projects/{project}");
        tokio::join!(ann.delete(&path), root.delete(&path), ann.delete(&path));
        let left = format!("user_remove_from_team ann/p{round} ann ann@example.org Master");
        let gone = format!("project_destroy ann/p{round} ann ann@example.org");
        assert_eq!(take_system_events(&forge), [left, gone]);
    }
}
