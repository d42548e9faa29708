//! What happened, as those see it who may.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{
    Scope, Time,
    events::{Action, Target},
    milestones::NewMilestone,
};
use serde_json::{Value, json};
use store::{
    events::NewEvent,
    issues::{NewIssue, Update},
    notes::NewNote,
};
use testkit::{Client, TestForge, repository::SMALL};

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

/// A forge with Ann and her project, to which she has pushed.
async fn scene(visibility: i64) -> (TestForge, Client, i64) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let new = json!({ "name": "Rocket", "description": "flies", "visibility_level": visibility });
    let project = ann.make("/projects", new).await;
    forge.fill(&ann, project, SMALL).await;
    (forge, ann, project)
}

fn plant(forge: &TestForge, project: i64, author: i64, action: Action, now: Time) {
    plant_about(forge, project, author, action, None, now);
}

fn plant_about(forge: &TestForge, project: i64, author: i64, action: Action, target: Option<Target>, now: Time) {
    let event = NewEvent { project, author, action, target, push: None, intent: None, now };
    forge.behind_the_back(|db| store::events::insert(db, &event).expect("an event"));
}

/// An issue, with the event that tells of it; says its number.
fn open_issue(forge: &TestForge, project: i64, author: i64, assignee: Option<i64>, confidential: bool) -> i64 {
    let now = forge.forge.now();
    let title = if confidential { "A secret" } else { "It does not fly" };
    let issue = forge.in_one_go(|db| {
        let iid = store::issues::next_number(db, project).expect("a number");
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
    plant_about(forge, project, author, Action::Created, Some(Target::Issue(issue)), now);
    issue
}

/// A note on an issue, with the event that tells of it.
fn comment(forge: &TestForge, project: i64, issue: i64, author: i64) {
    let now = forge.forge.now();
    let new = NewNote { project, issue, author, body: "So it is.", system: false, now };
    let note = forge.in_one_go(|db| store::notes::insert(db, &new).expect("a note"));
    plant_about(forge, project, author, Action::Commented, Some(Target::Note { note, issue }), now);
}

fn keys(object: &Value) -> String {
    object.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_push_is_told_with_what_came() {
    let (forge, ann, project) = scene(0).await;
    let listed = ann.get(&format!("/projects/{project}/events")).await;
    assert_eq!((listed.code(), listed.header("x-total")), (200, "4"), "{listed}");
    assert_eq!(listed.each("action_name"), "pushed new pushed new pushed new created");
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
    // The tag is an object of its own, and leads to the commit.
    assert_eq!((&tag["checkout_sha"], &tag["commits"][0]["id"]), (&json!(first), &json!(first)));
    assert_ne!(tag["after"], json!(first));
    assert_eq!(tag["total_commits_count"], 1);
    assert_eq!(of("refs/tags/light")["data"]["checkout_sha"], json!(tip));

    // The list of what Ann did is the same.
    assert_eq!(ann.get(&format!("/users/{}/events", ann.id)).await.json(), events);
    // A branch that comes, moves and goes has a word for each.
    forge.fill(&ann, project, SIDE).await;
    let gone = forge.refs_of(project).into_iter().find(|(name, _)| name == "refs/heads/side").expect("a branch");
    forge.remove_ref(&ann, project, &gone.0).await;
    let listed = ann.get(&format!("/projects/{project}/events?per_page=2")).await;
    assert_eq!((listed.each("action_name"), listed.header("x-total")), ("deleted pushed new".into(), "6"));
    let deleted = &listed.json()[0]["data"];
    assert_eq!((&deleted["checkout_sha"], &deleted["commits"]), (&json!(null), &json!([])));
    assert_eq!((&deleted["before"], &deleted["after"]), (&json!(gone.1), &json!("0".repeat(40))));
}

#[tokio::test]
async fn an_event_has_the_fields_of_the_contract() {
    let (_forge, ann, project) = scene(20).await;
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
async fn events_have_the_words_that_clients_know() {
    let (forge, ann, project) = scene(0).await;
    let now = forge.forge.now();
    for action in Action::ALL.into_iter().filter(|action| *action != Action::Pushed) {
        plant(&forge, project, ann.id, action, now);
    }
    let listed = ann.get(&format!("/projects/{project}/events?per_page=10")).await.json();
    let words: Vec<&str> =
        listed.as_array().expect("a list").iter().filter_map(|tx| tx["action_name"].as_str()).collect();
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
    forge.behind_the_back(|db| {
        store::imports::insert(db, project, None, "https://example.org/x.git", None).expect("noted");
    });
    assert_eq!(ann.get(&format!("/projects/{project}/events?per_page=10")).await.json()[9]["action_name"], "imported");
}

#[tokio::test]
async fn what_was_pushed_is_told_to_those_who_read_the_code() {
    let (forge, ann, project) = scene(0).await;
    let (gus, rep, eve) = (forge.user("gus").await, forge.user("rep").await, forge.user("eve").await);
    for (user, level) in [(&gus, 10), (&rep, 20)] {
        let member = json!({ "user_id": user.id, "access_level": level });
        assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    }
    plant(&forge, project, ann.id, Action::Joined, forge.forge.now());
    let (inside, of_ann) = (format!("/projects/{project}/events"), format!("/users/{}/events", ann.id));
    let told = async |client: &Client, path: &str| {
        let answer = client.get(path).await;
        let words = if answer.code() == 200 { answer.each("action_name") } else { answer.text.clone() };
        (words, answer.header("x-total").to_owned())
    };
    let pushed = "joined pushed new pushed new pushed new created";
    // Two others have joined, too.
    let all = format!("joined joined {pushed}");
    let hidden = "{\"message\":\"404 Project Not Found\"}";
    let root = forge.admin().await;
    for client in [&ann, &rep, &root] {
        assert_eq!(told(client, &inside).await, (all.clone(), "7".into()));
        assert_eq!(told(client, &of_ann).await, (pushed.into(), "5".into()));
    }
    assert_eq!(told(&gus, &inside).await, ("joined joined joined created".into(), "4".into()));
    assert_eq!(told(&gus, &of_ann).await, ("joined created".into(), "2".into()));
    assert_eq!(told(&eve, &inside).await, (hidden.into(), String::new()));
    assert_eq!(told(&eve, &of_ann).await, (String::new(), "0".into()));
    // A token that shows users shows no projects: not even those of whoever has it.
    let users_only = forge.with_token(&ann, &[Scope::ReadUser], None).await;
    assert_eq!(told(&users_only, &of_ann).await, (String::new(), "0".into()));
    // Lesson 19: what is taken away is gone from lists at once.
    assert_eq!(
        ann.put(&format!("/projects/{project}"), json!({ "name": "Rocket", "visibility_level": 20 })).await.code(),
        200
    );
    for client in [&gus, &eve, &users_only] {
        assert_eq!(told(client, &of_ann).await, (pushed.into(), "5".into()));
    }
    assert_eq!(told(&eve, &inside).await, (all, "7".into()));
    assert_eq!(
        ann.put(&format!("/projects/{project}"), json!({ "name": "Rocket", "visibility_level": 0 })).await.code(),
        200
    );
    assert_eq!(told(&eve, &of_ann).await, (String::new(), "0".into()));
    assert_eq!(ann.delete(&format!("/projects/{project}/members/{}", rep.id)).await.code(), 200);
    assert_eq!(told(&rep, &of_ann).await, (String::new(), "0".into()));
    assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
    assert_eq!(told(&ann, &of_ann).await, (String::new(), "0".into()));
}

#[tokio::test]
async fn strangers_and_odd_pages_hear_so() {
    let (forge, ann, project) = scene(20).await;
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

/// What a list tells, in short: what was done to what, and how many there are.
async fn told(client: &Client, path: &str) -> String {
    let answer = client.get(path).await;
    if answer.code() != 200 {
        return answer.text;
    }
    let say = |event: &Value| match &event["target_title"] {
        Value::String(title) => format!("{} {title}", event["action_name"].as_str().unwrap_or_default()),
        _ => event["action_name"].as_str().unwrap_or_default().to_owned(),
    };
    let list: Vec<String> = answer.json().as_array().expect("a list").iter().map(say).collect();
    format!("{}: {}", answer.header("x-total"), list.join(", "))
}

#[tokio::test]
async fn what_is_about_something_is_told_with_it() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
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
    let milestone = forge.in_one_go(|db| store::milestones::insert(db, project, &new, now).expect("a milestone").id);
    let target = Some(Target::Milestone(milestone));
    plant_about(&forge, project, ann.id, Action::Created, target, now);
    assert_snapshot!(ann.get(&format!("{path}?per_page=1")).await, @r#"
    200 OK
    [{"title":null,"project_id":1,"action_name":"opened","target_id":1,"target_type":"Milestone","target_title":"To the moon","author_id":1,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"author_username":"ann","data":null,"created_at":"2026-01-02T03:04:05.678Z"}]
    "#);
    plant_about(&forge, project, ann.id, Action::Closed, target, now);
    plant_about(&forge, project, ann.id, Action::Reopened, Some(Target::Issue(issue)), now);
    plant(&forge, project, ann.id, Action::Destroyed, now);
    let listed = ann.get(&path).await;
    assert_eq!(listed.each("action_name"), "destroyed opened closed opened commented on opened created");
    assert_eq!(listed.each("target_type"), "Milestone Issue Milestone Milestone Note Issue null");
    assert_eq!(listed.each("target_id"), "null 1 1 1 1 1 null");
    assert_eq!(ann.get(&format!("/users/{}/events", ann.id)).await.text, listed.text);
    // What is about something goes with it.
    forge.in_one_go(|db| store::issues::delete(db, issue).expect("removed"));
    let left = "4: destroyed, closed To the moon, opened To the moon, created";
    assert_eq!(told(&ann, &path).await, left);
    assert_eq!(told(&ann, &format!("/users/{}/events", ann.id)).await, left);
}

#[tokio::test]
async fn a_project_tells_who_made_it_and_from_what() {
    let forge = TestForge::start().await;
    let (ann, bob, root) = (forge.user("ann").await, forge.user("bob").await, forge.admin().await);
    let project = ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await;
    assert_snapshot!(ann.get(&format!("/projects/{project}/events")).await, @r#"
    200 OK
    [{"title":null,"project_id":1,"action_name":"created","target_id":null,"target_type":null,"target_title":null,"author_id":1,"author":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"author_username":"ann","data":null,"created_at":"2026-01-02T03:04:05.678Z"}]
    "#);
    let fork = bob.make(&format!("/projects/fork/{project}"), json!({ "namespace": "bob" })).await;
    let given = root.make(&format!("/projects/user/{}", bob.id), json!({ "name": "Gift" })).await;
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    let shared = ann.make("/projects", json!({ "name": "Shared", "namespace_id": group })).await;
    for (client, project) in [(&bob, fork), (&bob, given), (&ann, shared)] {
        let events = client.get(&format!("/projects/{project}/events")).await;
        let author = events.json()[0]["author_id"].clone();
        assert_eq!((events.each("action_name"), author), ("created".into(), json!(client.id)));
    }
    let imported = ann.make("/projects", json!({ "name": "Other", "import_url": "https://example.org/x.git" })).await;
    assert_eq!(told(&ann, &format!("/projects/{imported}/events")).await, "1: imported");
    // A project that could not be made tells nothing.
    assert_eq!(ann.post("/projects", json!({ "name": "Rocket" })).await.code(), 400);
    assert_eq!(told(&ann, &format!("/users/{}/events", ann.id)).await, "3: imported, created, created");
}

#[tokio::test]
async fn members_are_told_of_as_they_come_and_go() {
    let forge = TestForge::start().await;
    let (ann, bob, eve) = (forge.user("ann").await, forge.user("bob").await, forge.user("eve").await);
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
    let (members, events) = (format!("/projects/{project}/members"), format!("/projects/{project}/events"));
    let join = |user: &Client| json!({ "user_id": user.id, "access_level": 30 });
    for user in [&bob, &bob, &eve, &ann] {
        assert_eq!(ann.post(&members, join(user)).await.code(), 201);
    }
    // Who is a member already does not join, nor does the one to whom it belongs.
    assert_eq!(told(&ann, &events).await, "3: joined, joined, created");
    assert_snapshot!(ann.get(&format!("{events}?per_page=1")).await, @r#"
    200 OK
    [{"title":null,"project_id":1,"action_name":"joined","target_id":null,"target_type":null,"target_title":null,"author_id":3,"author":{"name":"eve","username":"eve","id":3,"state":"active","avatar_url":"http://gable.test/-/identicon/b591f6de76804368.svg","web_url":"http://gable.test/eve"},"author_username":"eve","data":null,"created_at":"2026-01-02T03:04:05.678Z"}]
    "#);
    // The one who left is named, whoever it was that let them go.
    assert_eq!(ann.delete(&format!("{members}/{}", eve.id)).await.code(), 200);
    assert_eq!(bob.delete(&format!("{members}/{}", bob.id)).await.code(), 200);
    assert_eq!(ann.delete(&format!("{members}/{}", eve.id)).await.code(), 200);
    let listed = ann.get(&events).await;
    assert_eq!(
        (listed.each("action_name"), listed.each("author_username")),
        ("left left joined joined created".into(), "bob eve eve bob ann".into())
    );
    // Groups have no events, and who gains a project by one is not told of.
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    assert_eq!(ann.post(&format!("/groups/{group}/members"), join(&bob)).await.code(), 201);
    assert_eq!(told(&bob, &format!("/users/{}/events", bob.id)).await, "0: ");
    assert_eq!(ann.get(&events).await.header("x-total"), "5");
}

#[tokio::test]
async fn memberships_that_end_by_themselves_are_told_once() {
    let forge = TestForge::start().await;
    let (ann, bob, eve) = (forge.user("ann").await, forge.user("bob").await, forge.user("eve").await);
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
    let removed = ann.make("/projects", json!({ "name": "Gone" })).await;
    let until = |user: &Client| json!({ "user_id": user.id, "access_level": 30, "expires_at": "2026-01-04" });
    for (place, user) in [(project, &bob), (project, &eve), (removed, &bob)] {
        assert_eq!(ann.post(&format!("/projects/{place}/members"), until(user)).await.code(), 201);
    }
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    assert_eq!(ann.post(&format!("/groups/{group}/members"), until(&bob)).await.code(), 201);
    // The project is Ann's, whatever becomes of her membership.
    let own = json!({ "access_level": 40, "expires_at": "2026-01-04" });
    assert_eq!(ann.put(&format!("/projects/{project}/members/{}", ann.id), own).await.code(), 200);
    assert_eq!(ann.delete(&format!("/projects/{removed}")).await.code(), 200);
    forge.clock.advance(SignedDuration::from_hours(48));
    // Bob is let in again before anybody has swept.
    let again = json!({ "user_id": bob.id, "access_level": 10 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), again).await.code(), 201);
    let expired = "removed due to membership expiration from";
    let path = format!("/projects/{project}/events");
    assert_eq!(told(&ann, &path).await, format!("5: joined, {expired}, joined, joined, created"));
    forge::tasks::enqueue_recurring(&forge.forge).await.expect("written down");
    for _ in 0..2 {
        forge.do_all_jobs().await;
        let listed = ann.get(&path).await;
        assert_eq!(listed.header("x-total"), "6");
        let first = &listed.json()[0];
        assert_eq!((&first["action_name"], &first["author_username"]), (&json!(expired), &json!("eve")));
        forge.clock.advance(SignedDuration::from_hours(48));
    }
    assert_eq!(ann.get(&format!("/projects/{project}/members")).await.each("username"), "bob");
    assert_eq!(ann.get(&format!("/groups/{group}/members")).await.each("username"), "ann");
}

#[tokio::test]
async fn lesson_19_what_is_about_a_confidential_issue_is_for_those_who_see_it() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await;
    let (rep, gus, eve, joe, root) = (
        forge.user("rep").await,
        forge.user("gus").await,
        forge.user("eve").await,
        forge.user("joe").await,
        forge.admin().await,
    );
    for (user, level) in [(&gus, 10), (&rep, 20)] {
        let member = json!({ "user_id": user.id, "access_level": level });
        assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    }
    let plain = open_issue(&forge, project, ann.id, None, false);
    let secret = open_issue(&forge, project, ann.id, Some(joe.id), true);
    comment(&forge, project, secret, ann.id);
    comment(&forge, project, plain, ann.id);
    let (inside, of_ann) = (format!("/projects/{project}/events"), format!("/users/{}/events", ann.id));
    let (fly, hush) = ("It does not fly", "A secret");
    let all = format!("5: commented on {fly}, commented on {hush}, opened {hush}, opened {fly}, created");
    let few = format!("3: commented on {fly}, opened {fly}, created");
    let with_joins = |list: &str, total: i64| {
        let list = list.split_once(": ").expect("two parts").1.replace(", created", "");
        format!("{total}: {list}, joined, joined, created")
    };
    let whole = [(&all, 7, vec![&ann, &rep, &joe, &root]), (&few, 5, vec![&gus, &eve])];
    for (list, total, clients) in &whole {
        for client in clients {
            assert_eq!(told(client, &of_ann).await, **list);
            assert_eq!(told(client, &inside).await, with_joins(list, *total));
        }
    }
    // A page knows of nothing that it does not show, wherever it begins.
    let page = told(&gus, &format!("{of_ann}?per_page=2&page=2")).await;
    assert_eq!(page, "3: created");
    assert_eq!(told(&gus, &format!("{of_ann}?per_page=2&page=9")).await, "3: ");
    assert_eq!(told(&gus, &format!("{inside}?per_page=2&page=3")).await, "5: created");
    let gone = forge.user("zoe").await;
    let orphan = open_issue(&forge, project, gone.id, None, true);
    comment(&forge, project, orphan, ann.id);
    assert_eq!(root.delete(&format!("/users/{}", gone.id)).await.code(), 200);
    for client in [&gus, &eve] {
        assert_eq!(told(client, &of_ann).await, few, "an issue without an author is no less secret");
        assert_eq!(told(client, &inside).await, with_joins(&few, 5));
    }
    forge.in_one_go(|db| store::issues::delete(db, orphan).expect("removed"));
    // What was open becomes a secret: then what was told of it is one, too.
    let now = forge.forge.now();
    let hide = |confidential| {
        let update = Update { confidential: Some(confidential), ..Update::default() };
        forge.in_one_go(|db| store::issues::update(db, plain, &update, Some(ann.id), now).expect("changed"));
    };
    hide(true);
    assert_eq!(told(&gus, &of_ann).await, "1: created");
    assert_eq!(told(&joe, &of_ann).await, format!("3: commented on {hush}, opened {hush}, created"));
    assert_eq!(told(&rep, &of_ann).await, all);
    assert_eq!(told(&gus, &inside).await, "3: joined, joined, created");
    hide(false);
    // What one saw as a reporter is not seen any more as a guest, nor by whoever does not work on it any more.
    let path = format!("/projects/{project}/members/{}", rep.id);
    assert_eq!(ann.put(&path, json!({ "access_level": 10 })).await.code(), 200);
    assert_eq!(told(&rep, &of_ann).await, few);
    assert_eq!(told(&rep, &inside).await, with_joins(&few, 5));
    let update = Update { assignee: model::Change::Clear, ..Update::default() };
    forge.in_one_go(|db| store::issues::update(db, secret, &update, Some(ann.id), now).expect("changed"));
    assert_eq!(told(&joe, &of_ann).await, few);
    // A token that shows users and no projects shows what everybody sees.
    let users_only = forge.with_token(&ann, &[Scope::ReadUser], None).await;
    assert_eq!(told(&users_only, &of_ann).await, few);
    // Nobody sees issues that are switched off.
    let switch = |on: bool| json!({ "name": "Rocket", "issues_enabled": on });
    assert_eq!(ann.put(&format!("/projects/{project}"), switch(false)).await.code(), 200);
    for client in [&ann, &rep, &eve, &root] {
        assert_eq!(told(client, &of_ann).await, "1: created");
        assert_eq!(told(client, &inside).await, "3: joined, joined, created");
    }
    assert_eq!(ann.put(&format!("/projects/{project}"), switch(true)).await.code(), 200);
    assert_eq!(told(&ann, &of_ann).await, all);
}

#[tokio::test]
async fn a_project_counts_the_open_issues_that_one_sees() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await;
    let (rep, sue, eve, root) =
        (forge.user("rep").await, forge.user("sue").await, forge.user("eve").await, forge.admin().await);
    let member = json!({ "user_id": rep.id, "access_level": 20 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    let group = sue.make("/groups", json!({ "name": "crew", "path": "crew" })).await;
    assert_eq!(
        sue.post(&format!("/groups/{group}/members"), json!({ "user_id": ann.id, "access_level": 10 })).await.code(),
        201
    );
    let share = json!({ "group_id": group, "group_access": 20 });
    assert_eq!(ann.post(&format!("/projects/{project}/share"), share).await.code(), 201);
    open_issue(&forge, project, ann.id, None, false);
    let secret = open_issue(&forge, project, ann.id, None, true);
    let counted = async |client: &Client| {
        let one = client.get(&format!("/projects/{project}")).await.json()["open_issues_count"].clone();
        assert_eq!(client.get("/projects/visible").await.json()[0]["open_issues_count"], one, "one and in a list");
        one
    };
    for client in [&ann, &rep, &sue, &root] {
        assert_eq!(counted(client).await, 2);
    }
    assert_eq!(counted(&eve).await, 1);
    let now = forge.forge.now();
    let update = Update { closed: Some(true), ..Update::default() };
    forge.in_one_go(|db| store::issues::update(db, secret, &update, Some(ann.id), now).expect("closed"));
    for client in [&ann, &rep, &sue, &root, &eve] {
        assert_eq!(counted(client).await, 1);
    }
}
