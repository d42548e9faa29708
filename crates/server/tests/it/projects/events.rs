//! Activity events and who can see them.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{
    IssueId, ProjectId, Scope, Time, UserId,
    events::{EventAction, EventTarget},
    milestones::NewMilestone,
};
use serde_json::{Value, json};
use store::{
    events::NewEvent,
    issues::{IssueUpdate, NewIssue},
    notes::NewNote,
};
use testkit::{TestClient, TestForge, repository::SMALL_REPOSITORY};

const SIDE: &str = "\
commit refs/heads/side
author Ann <ann@example.com> 1422840000 +0000
committer Ann <ann@example.com> 1422840000 +0000
data 5
Third
M 100644 inline side.md
data 1
x

";

/// Starts a forge with Ann and her project, to which she has pushed.
async fn setup(visibility: i64) -> (TestForge, TestClient, ProjectId) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let new = json!({ "name": "Rocket", "description": "flies", "visibility_level": visibility });
    let project = ProjectId::new(ann.make("/projects", new).await);
    forge.fast_import(&ann, project, SMALL_REPOSITORY).await;
    (forge, ann, project)
}

fn insert_event(forge: &TestForge, project: ProjectId, author: UserId, action: EventAction, now: Time) {
    insert_event_about(forge, project, author, action, None, now);
}

fn insert_event_about(
    forge: &TestForge,
    project: ProjectId,
    author: UserId,
    action: EventAction,
    target: Option<EventTarget>,
    now: Time,
) {
    let event = NewEvent { project, author, action, target, now };
    forge.with_connection(|db| store::events::insert(db, &event).expect("an event"));
}

/// Inserts an issue with its event; returns the ID of the issue.
fn open_issue(
    forge: &TestForge,
    project: ProjectId,
    author: UserId,
    assignee: Option<UserId>,
    confidential: bool,
) -> IssueId {
    let now = forge.forge.now();
    let title = if confidential { "A secret" } else { "It does not fly" };
    let issue = forge.in_transaction(|db| {
        let iid = store::issues::next_iid(db, project).expect("a number");
        let new = NewIssue {
            project,
            iid,
            author: Some(author),
            title,
            description: None,
            assignee,
            milestone: None,
            due_on: None,
            confidential,
            created_at: now,
            now,
        };
        store::issues::insert(db, &new).expect("an issue")
    });
    insert_event_about(forge, project, author, EventAction::Created, Some(EventTarget::Issue(issue)), now);
    issue
}

/// Inserts a note on an issue with its event.
fn comment(forge: &TestForge, project: ProjectId, issue: IssueId, author: UserId) {
    let now = forge.forge.now();
    let new = NewNote { project, issue, author, body: "So it is.", system: false, now };
    let note = forge.in_transaction(|db| store::notes::insert(db, &new).expect("a note"));
    insert_event_about(forge, project, author, EventAction::Commented, Some(EventTarget::Note { note, issue }), now);
}

fn keys(object: &Value) -> String {
    object.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_push_event_contains_the_pushed_commits() {
    let (forge, ann, project) = setup(0).await;
    let listed = ann.get(&format!("/projects/{project}/events")).await;
    assert_eq!((listed.code(), listed.header("x-total")), (200, "4"), "{listed}");
    assert_eq!(listed.join_field("action_name"), "pushed new pushed new pushed new created");
    let events = listed.json();
    let of = |name: &str| {
        let events = events.as_array().expect("a list");
        events.iter().find(|event| event["data"]["ref"] == name).expect(name).clone()
    };
    let branch = of("refs/heads/master");
    let tip = branch["data"]["after"].as_str().expect("an id").to_owned();
    let first = branch["data"]["commits"][0]["id"].as_str().expect("an id").to_owned();
    let shown = branch.to_string().replace(&tip, "TIP").replace(&first, "FIRST");
    assert_snapshot!(shown, @r#"{"title":null,"project_id":1,"action_name":"pushed new","target_id":null,"target_type":null,"target_title":null,"author_id":1,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"author_username":"ann","data":{"object_kind":"push","event_name":"push","before":"0000000000000000000000000000000000000000","after":"TIP","ref":"refs/heads/master","checkout_sha":"TIP","user_id":1,"user_name":"ann","user_username":"ann","user_avatar":"http://gable.test/-/identicon/482c89484cbd62c8.svg","project_id":1,"project":{"name":"Rocket","description":"flies","web_url":"http://gable.test/ann/rocket","avatar_url":null,"git_ssh_url":"git@gable.test:ann/rocket.git","git_http_url":"http://gable.test/ann/rocket.git","namespace":"ann","visibility_level":0,"path_with_namespace":"ann/rocket","default_branch":"master","homepage":"http://gable.test/ann/rocket","url":"git@gable.test:ann/rocket.git","ssh_url":"git@gable.test:ann/rocket.git","http_url":"http://gable.test/ann/rocket.git"},"commits":[{"id":"FIRST","message":"First commit\n\n","timestamp":"2015-02-01T21:56:31+00:00","url":"http://gable.test/ann/rocket/commit/FIRST","author":{"name":"Ann Author","email":"ann@example.com"}},{"id":"TIP","message":"Second commit\n","timestamp":"2015-02-01T17:33:20-05:00","url":"http://gable.test/ann/rocket/commit/TIP","author":{"name":"Bob","email":"bob@example.com"}}],"total_commits_count":2,"repository":{"name":"Rocket","url":"git@gable.test:ann/rocket.git","description":"flies","homepage":"http://gable.test/ann/rocket","git_http_url":"http://gable.test/ann/rocket.git","git_ssh_url":"git@gable.test:ann/rocket.git","visibility_level":0}},"created_at":"2026-01-02T03:04:05.678Z"}"#);
    let tag = &of("refs/tags/v1.0")["data"];
    assert_eq!((&tag["object_kind"], &tag["event_name"]), (&json!("tag_push"), &json!("tag_push")));
    // The tag is an annotated tag that points to the commit.
    assert_eq!((&tag["checkout_sha"], &tag["commits"][0]["id"]), (&json!(first), &json!(first)));
    assert_ne!(tag["after"], json!(first));
    assert_eq!(tag["total_commits_count"], 1);
    assert_eq!(of("refs/tags/light")["data"]["checkout_sha"], json!(tip));

    // The list of Ann's events is the same.
    assert_eq!(ann.get(&format!("/users/{}/events", ann.id)).await.json(), events);
    // Creating, updating and deleting a branch have different action names.
    forge.fast_import(&ann, project, SIDE).await;
    let gone = forge.refs_of(project).into_iter().find(|(name, _)| name == "refs/heads/side").expect("a branch");
    forge.remove_ref(&ann, project, &gone.0).await;
    let listed = ann.get(&format!("/projects/{project}/events?per_page=2")).await;
    assert_eq!((listed.join_field("action_name"), listed.header("x-total")), ("deleted pushed new".into(), "6"));
    let deleted = &listed.json()[0]["data"];
    assert_eq!((&deleted["checkout_sha"], &deleted["commits"]), (&json!(null), &json!([])));
    assert_eq!((&deleted["before"], &deleted["after"]), (&json!(gone.1), &json!("0".repeat(40))));
}

#[tokio::test]
async fn an_event_has_the_fields_of_the_contract() {
    let (_forge, ann, project) = setup(20).await;
    let event = &ann.get(&format!("/projects/{project}/events")).await.json()[0];
    assert_eq!(
        keys(event),
        "title project_id action_name target_id target_type target_title author_id author author_username data created_at"
    );
    assert_eq!(
        keys(&event["data"]["repository"]),
        "name url description homepage git_http_url git_ssh_url visibility_level"
    );
    assert_eq!(keys(&event["data"]["commits"][0]), "id message timestamp url author");
    assert_eq!(keys(&event["author"]), "name username id state avatar_url web_url");
}

#[tokio::test]
async fn events_have_the_action_names_of_the_contract() {
    let (forge, ann, project) = setup(0).await;
    let now = forge.forge.now();
    for action in EventAction::ALL.into_iter().filter(|action| *action != EventAction::Pushed) {
        insert_event(&forge, project, ann.id, action, now);
    }
    let listed = ann.get(&format!("/projects/{project}/events?per_page=10")).await.json();
    let words: Vec<&str> =
        listed.as_array().expect("a list").iter().filter_map(|event_json| event_json["action_name"].as_str()).collect();
    assert_eq!(
        words,
        [
            "removed due to membership expiration from",
            "destroyed",
            "left",
            "joined",
            "accepted",
            "commented on",
            "opened",
            "closed",
            "updated",
            "created",
        ]
    );
    assert_eq!(listed[0]["data"], json!(null));
    forge.with_connection(|db| {
        store::imports::insert(db, project, None, "https://example.org/x.git", None).expect("noted");
    });
    assert_eq!(ann.get(&format!("/projects/{project}/events?per_page=10")).await.json()[9]["action_name"], "imported");
}

#[tokio::test]
async fn push_events_require_access_to_the_code() {
    let (forge, ann, project) = setup(0).await;
    let (gus, rep, eve) = (forge.user("gus").await, forge.user("rep").await, forge.user("eve").await);
    for (user, level) in [(&gus, 10), (&rep, 20)] {
        let member = json!({ "user_id": user.id.get(), "access_level": level });
        assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    }
    insert_event(&forge, project, ann.id, EventAction::Joined, forge.forge.now());
    let (inside, of_ann) = (format!("/projects/{project}/events"), format!("/users/{}/events", ann.id));
    let event_summary = async |client: &TestClient, path: &str| {
        let answer = client.get(path).await;
        let words = if answer.code() == 200 { answer.join_field("action_name") } else { answer.text.clone() };
        (words, answer.header("x-total").to_owned())
    };
    let pushed = "joined pushed new pushed new pushed new created";
    // Two others have joined as well.
    let all = format!("joined joined {pushed}");
    let hidden = "{\"message\":\"404 Project Not Found\"}";
    let root = forge.admin().await;
    for client in [&ann, &rep, &root] {
        assert_eq!(event_summary(client, &inside).await, (all.clone(), "7".into()));
        assert_eq!(event_summary(client, &of_ann).await, (pushed.into(), "5".into()));
    }
    assert_eq!(event_summary(&gus, &inside).await, ("joined joined joined created".into(), "4".into()));
    assert_eq!(event_summary(&gus, &of_ann).await, ("joined created".into(), "2".into()));
    assert_eq!(event_summary(&eve, &inside).await, (hidden.into(), String::new()));
    assert_eq!(event_summary(&eve, &of_ann).await, (String::new(), "0".into()));
    // A token with the scope read_user shows no projects, not even those of its user.
    let users_only = forge.client_with_token(&ann, &[Scope::ReadUser], None).await;
    assert_eq!(event_summary(&users_only, &of_ann).await, (String::new(), "0".into()));
    // Lost access takes effect in lists at once.
    assert_eq!(
        ann.put(&format!("/projects/{project}"), json!({ "name": "Rocket", "visibility_level": 20 })).await.code(),
        200
    );
    for client in [&gus, &eve, &users_only] {
        assert_eq!(event_summary(client, &of_ann).await, (pushed.into(), "5".into()));
    }
    assert_eq!(event_summary(&eve, &inside).await, (all, "7".into()));
    assert_eq!(
        ann.put(&format!("/projects/{project}"), json!({ "name": "Rocket", "visibility_level": 0 })).await.code(),
        200
    );
    assert_eq!(event_summary(&eve, &of_ann).await, (String::new(), "0".into()));
    assert_eq!(ann.delete(&format!("/projects/{project}/members/{}", rep.id)).await.code(), 200);
    assert_eq!(event_summary(&rep, &of_ann).await, (String::new(), "0".into()));
    assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
    assert_eq!(event_summary(&ann, &of_ann).await, (String::new(), "0".into()));
}

#[tokio::test]
async fn anonymous_requests_and_invalid_pages_are_rejected() {
    let (forge, ann, project) = setup(20).await;
    let path = format!("/projects/{project}/events");
    assert_snapshot!(forge.anonymous().get(&path).await, @r#"
    401 Unauthorized
    {"message":"401 Unauthorized"}
    "#);
    assert_snapshot!(ann.get("/projects/99/events").await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_snapshot!(ann.get("/users/99/events").await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(ann.get(&format!("{path}?page=x")).await, @r#"
    400 Bad Request
    {"error":"page is invalid"}
    "#);
    assert_snapshot!(ann.get(&format!("{path}?page=9")).await, @"
    200 OK
    []
    ");
    assert_eq!(ann.get("/projects/ann%2Frocket/events").await.code(), 200);
}

/// Summarizes a list: the total, and the action and target of each event.
async fn event_summary(client: &TestClient, path: &str) -> String {
    let answer = client.get(path).await;
    if answer.code() != 200 {
        return answer.text;
    }
    let describe = |event: &Value| match &event["target_title"] {
        Value::String(title) => format!("{} {title}", event["action_name"].as_str().unwrap_or_default()),
        _ => event["action_name"].as_str().unwrap_or_default().to_owned(),
    };
    let list: Vec<String> = answer.json().as_array().expect("a list").iter().map(describe).collect();
    format!("{}: {}", answer.header("x-total"), list.join(", "))
}

#[tokio::test]
async fn events_have_the_type_and_title_of_their_target() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket" })).await);
    let path = format!("/projects/{project}/events");
    let issue = open_issue(&forge, project, ann.id, None, false);
    assert_snapshot!(ann.get(&format!("{path}?per_page=1")).await, @r#"
    200 OK
    [{"title":null,"project_id":1,"action_name":"opened","target_id":1,"target_type":"Issue","target_title":"It does not fly","author_id":1,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"author_username":"ann","data":null,"created_at":"2026-01-02T03:04:05.678Z"}]
    "#);
    comment(&forge, project, issue, ann.id);
    assert_snapshot!(ann.get(&format!("{path}?per_page=1")).await, @r#"
    200 OK
    [{"title":null,"project_id":1,"action_name":"commented on","target_id":1,"target_type":"Note","target_title":"It does not fly","author_id":1,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"author_username":"ann","data":null,"created_at":"2026-01-02T03:04:05.678Z","note":{"id":1,"body":"So it is.","attachment":null,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","system":false,"noteable_id":1,"noteable_type":"Issue","upvote":false,"downvote":false,"upvote?":false,"downvote?":false}}]
    "#);
    let now = forge.forge.now();
    let new = NewMilestone { title: "To the moon".into(), description: None, start_on: None, due_on: None };
    let milestone =
        forge.in_transaction(|db| store::milestones::insert(db, project, &new, now).expect("a milestone").id);
    let target = Some(EventTarget::Milestone(milestone));
    insert_event_about(&forge, project, ann.id, EventAction::Created, target, now);
    assert_snapshot!(ann.get(&format!("{path}?per_page=1")).await, @r#"
    200 OK
    [{"title":null,"project_id":1,"action_name":"opened","target_id":1,"target_type":"Milestone","target_title":"To the moon","author_id":1,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"author_username":"ann","data":null,"created_at":"2026-01-02T03:04:05.678Z"}]
    "#);
    insert_event_about(&forge, project, ann.id, EventAction::Closed, target, now);
    insert_event_about(&forge, project, ann.id, EventAction::Reopened, Some(EventTarget::Issue(issue)), now);
    insert_event(&forge, project, ann.id, EventAction::Destroyed, now);
    let listed = ann.get(&path).await;
    assert_eq!(listed.join_field("action_name"), "destroyed opened closed opened commented on opened created");
    assert_eq!(listed.join_field("target_type"), "Milestone Issue Milestone Milestone Note Issue null");
    assert_eq!(listed.join_field("target_id"), "null 1 1 1 1 1 null");
    assert_eq!(ann.get(&format!("/users/{}/events", ann.id)).await.text, listed.text);
    // Events are deleted with their target.
    forge.in_transaction(|db| store::issues::delete(db, issue).expect("removed"));
    let left = "4: destroyed, closed To the moon, opened To the moon, created";
    assert_eq!(event_summary(&ann, &path).await, left);
    assert_eq!(event_summary(&ann, &format!("/users/{}/events", ann.id)).await, left);
}

#[tokio::test]
async fn creating_forking_and_importing_a_project_have_events() {
    let forge = TestForge::start().await;
    let (ann, bob, root) = (forge.user("ann").await, forge.user("bob").await, forge.admin().await);
    let project = ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await;
    assert_snapshot!(ann.get(&format!("/projects/{project}/events")).await, @r#"
    200 OK
    [{"title":null,"project_id":1,"action_name":"created","target_id":null,"target_type":null,"target_title":null,"author_id":1,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"author_username":"ann","data":null,"created_at":"2026-01-02T03:04:05.678Z"}]
    "#);
    let fork = bob.make(&format!("/projects/fork/{project}"), json!({ "namespace": "bob" })).await;
    let for_bob = root.make(&format!("/projects/user/{}", bob.id), json!({ "name": "Gift" })).await;
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    let shared = ann.make("/projects", json!({ "name": "Shared", "namespace_id": group })).await;
    for (client, project) in [(&bob, fork), (&bob, for_bob), (&ann, shared)] {
        let events = client.get(&format!("/projects/{project}/events")).await;
        let author = events.json()[0]["author_id"].clone();
        assert_eq!((events.join_field("action_name"), author), ("created".into(), json!(client.id.get())));
    }
    let imported = ann.make("/projects", json!({ "name": "Other", "import_url": "https://example.org/x.git" })).await;
    assert_eq!(event_summary(&ann, &format!("/projects/{imported}/events")).await, "1: imported");
    // A project that could not be created has no event.
    assert_eq!(ann.post("/projects", json!({ "name": "Rocket" })).await.code(), 400);
    assert_eq!(event_summary(&ann, &format!("/users/{}/events", ann.id)).await, "3: imported, created, created");
}

#[tokio::test]
async fn joining_and_leaving_have_events() {
    let forge = TestForge::start().await;
    let (ann, bob, eve) = (forge.user("ann").await, forge.user("bob").await, forge.user("eve").await);
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
    let (members, events) = (format!("/projects/{project}/members"), format!("/projects/{project}/events"));
    let join = |user: &TestClient| json!({ "user_id": user.id.get(), "access_level": 30 });
    for user in [&bob, &bob, &eve, &ann] {
        assert_eq!(ann.post(&members, join(user)).await.code(), 201);
    }
    // Neither an existing member nor the owner joins again.
    assert_eq!(event_summary(&ann, &events).await, "3: joined, joined, created");
    assert_snapshot!(ann.get(&format!("{events}?per_page=1")).await, @r#"
    200 OK
    [{"title":null,"project_id":1,"action_name":"joined","target_id":null,"target_type":null,"target_title":null,"author_id":3,"author":{"name":"eve","username":"eve","id":3,"state":"active","avatar_url":"http://gable.test/-/identicon/b591f6de76804368.svg","web_url":"http://gable.test/eve"},"author_username":"eve","data":null,"created_at":"2026-01-02T03:04:05.678Z"}]
    "#);
    // The author is the user who left, not the user who removed them.
    assert_eq!(ann.delete(&format!("{members}/{}", eve.id)).await.code(), 200);
    assert_eq!(bob.delete(&format!("{members}/{}", bob.id)).await.code(), 200);
    assert_eq!(ann.delete(&format!("{members}/{}", eve.id)).await.code(), 200);
    let listed = ann.get(&events).await;
    assert_eq!(
        (listed.join_field("action_name"), listed.join_field("author_username")),
        ("left left joined joined created".into(), "bob eve eve bob ann".into())
    );
    // Groups have no events, and access through a group has none either.
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    assert_eq!(ann.post(&format!("/groups/{group}/members"), join(&bob)).await.code(), 201);
    assert_eq!(event_summary(&bob, &format!("/users/{}/events", bob.id)).await, "0: ");
    assert_eq!(ann.get(&events).await.header("x-total"), "5");
}

#[tokio::test]
async fn an_expired_membership_has_one_event() {
    let forge = TestForge::start().await;
    let (ann, bob, eve) = (forge.user("ann").await, forge.user("bob").await, forge.user("eve").await);
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
    let removed = ann.make("/projects", json!({ "name": "Gone" })).await;
    let until = |user: &TestClient| json!({ "user_id": user.id.get(), "access_level": 30, "expires_at": "2026-01-04" });
    for (place, user) in [(project, &bob), (project, &eve), (removed, &bob)] {
        assert_eq!(ann.post(&format!("/projects/{place}/members"), until(user)).await.code(), 201);
    }
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    assert_eq!(ann.post(&format!("/groups/{group}/members"), until(&bob)).await.code(), 201);
    // The project stays Ann's, whatever happens to her membership.
    let own = json!({ "access_level": 40, "expires_at": "2026-01-04" });
    assert_eq!(ann.put(&format!("/projects/{project}/members/{}", ann.id), own).await.code(), 200);
    assert_eq!(ann.delete(&format!("/projects/{removed}")).await.code(), 200);
    forge.clock.advance(SignedDuration::from_hours(48));
    // Bob is added again before expired memberships are deleted.
    let again = json!({ "user_id": bob.id.get(), "access_level": 10 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), again).await.code(), 201);
    let expired = "removed due to membership expiration from";
    let path = format!("/projects/{project}/events");
    assert_eq!(event_summary(&ann, &path).await, format!("5: joined, {expired}, joined, joined, created"));
    forge::tasks::enqueue_recurring(&forge.forge).await.expect("written down");
    for _ in 0..2 {
        forge.run_due_tasks().await;
        let listed = ann.get(&path).await;
        assert_eq!(listed.header("x-total"), "6");
        let first = &listed.json()[0];
        assert_eq!((&first["action_name"], &first["author_username"]), (&json!(expired), &json!("eve")));
        forge.clock.advance(SignedDuration::from_hours(48));
    }
    assert_eq!(ann.get(&format!("/projects/{project}/members")).await.join_field("username"), "bob");
    assert_eq!(ann.get(&format!("/groups/{group}/members")).await.join_field("username"), "ann");
}

#[tokio::test]
async fn events_of_a_confidential_issue_are_hidden_from_others() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await);
    let (rep, gus, eve, joe, root) = (
        forge.user("rep").await,
        forge.user("gus").await,
        forge.user("eve").await,
        forge.user("joe").await,
        forge.admin().await,
    );
    for (user, level) in [(&gus, 10), (&rep, 20)] {
        let member = json!({ "user_id": user.id.get(), "access_level": level });
        assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    }
    let plain = open_issue(&forge, project, ann.id, None, false);
    let secret = open_issue(&forge, project, ann.id, Some(joe.id), true);
    comment(&forge, project, secret, ann.id);
    comment(&forge, project, plain, ann.id);
    let (inside, of_ann) = (format!("/projects/{project}/events"), format!("/users/{}/events", ann.id));
    let (public_title, secret_title) = ("It does not fly", "A secret");
    let all = format!(
        "5: commented on {public_title}, commented on {secret_title}, opened {secret_title}, opened {public_title}, created"
    );
    let few = format!("3: commented on {public_title}, opened {public_title}, created");
    let with_joins = |list: &str, total: i64| {
        let list = list.split_once(": ").expect("two parts").1.replace(", created", "");
        format!("{total}: {list}, joined, joined, created")
    };
    let whole = [(&all, 7, vec![&ann, &rep, &joe, &root]), (&few, 5, vec![&gus, &eve])];
    for (list, total, clients) in &whole {
        for client in clients {
            assert_eq!(event_summary(client, &of_ann).await, **list);
            assert_eq!(event_summary(client, &inside).await, with_joins(list, *total));
        }
    }
    // Pages do not reveal hidden events, wherever they start.
    let page = event_summary(&gus, &format!("{of_ann}?per_page=2&page=2")).await;
    assert_eq!(page, "3: created");
    assert_eq!(event_summary(&gus, &format!("{of_ann}?per_page=2&page=9")).await, "3: ");
    assert_eq!(event_summary(&gus, &format!("{inside}?per_page=2&page=3")).await, "5: created");
    let gone = forge.user("zoe").await;
    let orphan = open_issue(&forge, project, gone.id, None, true);
    comment(&forge, project, orphan, ann.id);
    assert_eq!(root.delete(&format!("/users/{}", gone.id)).await.code(), 200);
    for client in [&gus, &eve] {
        assert_eq!(event_summary(client, &of_ann).await, few, "an issue without an author is no less secret");
        assert_eq!(event_summary(client, &inside).await, with_joins(&few, 5));
    }
    forge.in_transaction(|db| store::issues::delete(db, orphan).expect("removed"));
    // When an issue becomes confidential, its earlier events are hidden as well.
    let now = forge.forge.now();
    let hide = |confidential| {
        let update = IssueUpdate { confidential: Some(confidential), ..IssueUpdate::default() };
        forge.in_transaction(|db| store::issues::update(db, plain, &update, Some(ann.id), now).expect("changed"));
    };
    hide(true);
    assert_eq!(event_summary(&gus, &of_ann).await, "1: created");
    assert_eq!(
        event_summary(&joe, &of_ann).await,
        format!("3: commented on {secret_title}, opened {secret_title}, created")
    );
    assert_eq!(event_summary(&rep, &of_ann).await, all);
    assert_eq!(event_summary(&gus, &inside).await, "3: joined, joined, created");
    hide(false);
    // A reporter who becomes a guest no longer sees them, nor does a former assignee.
    let path = format!("/projects/{project}/members/{}", rep.id);
    assert_eq!(ann.put(&path, json!({ "access_level": 10 })).await.code(), 200);
    assert_eq!(event_summary(&rep, &of_ann).await, few);
    assert_eq!(event_summary(&rep, &inside).await, with_joins(&few, 5));
    let update = IssueUpdate { assignee: model::Change::Clear, ..IssueUpdate::default() };
    forge.in_transaction(|db| store::issues::update(db, secret, &update, Some(ann.id), now).expect("changed"));
    assert_eq!(event_summary(&joe, &of_ann).await, few);
    // A token with the scope read_user shows only what is public.
    let users_only = forge.client_with_token(&ann, &[Scope::ReadUser], None).await;
    assert_eq!(event_summary(&users_only, &of_ann).await, few);
    // Events of issues are hidden when issues are disabled.
    let switch = |on: bool| json!({ "name": "Rocket", "issues_enabled": on });
    assert_eq!(ann.put(&format!("/projects/{project}"), switch(false)).await.code(), 200);
    for client in [&ann, &rep, &eve, &root] {
        assert_eq!(event_summary(client, &of_ann).await, "1: created");
        assert_eq!(event_summary(client, &inside).await, "3: joined, joined, created");
    }
    assert_eq!(ann.put(&format!("/projects/{project}"), switch(true)).await.code(), 200);
    assert_eq!(event_summary(&ann, &of_ann).await, all);
}

#[tokio::test]
async fn a_project_counts_the_open_issues_that_the_caller_can_see() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await);
    let (rep, sue, eve, root) =
        (forge.user("rep").await, forge.user("sue").await, forge.user("eve").await, forge.admin().await);
    let member = json!({ "user_id": rep.id.get(), "access_level": 20 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    let group = sue.make("/groups", json!({ "name": "crew", "path": "crew" })).await;
    assert_eq!(
        sue.post(&format!("/groups/{group}/members"), json!({ "user_id": ann.id.get(), "access_level": 10 }))
            .await
            .code(),
        201
    );
    let share = json!({ "group_id": group, "group_access": 20 });
    assert_eq!(ann.post(&format!("/projects/{project}/share"), share).await.code(), 201);
    open_issue(&forge, project, ann.id, None, false);
    let secret = open_issue(&forge, project, ann.id, None, true);
    let counted = async |client: &TestClient| {
        let one = client.get(&format!("/projects/{project}")).await.json()["open_issues_count"].clone();
        assert_eq!(client.get("/projects/visible").await.json()[0]["open_issues_count"], one, "one and in a list");
        one
    };
    for client in [&ann, &rep, &sue, &root] {
        assert_eq!(counted(client).await, 2);
    }
    assert_eq!(counted(&eve).await, 1);
    let now = forge.forge.now();
    let update = IssueUpdate { closed: Some(true), ..IssueUpdate::default() };
    forge.in_transaction(|db| store::issues::update(db, secret, &update, Some(ann.id), now).expect("closed"));
    for client in [&ann, &rep, &sue, &root, &eve] {
        assert_eq!(counted(client).await, 1);
    }
}
