//! On which occasions hooks are told something, and which hooks.

use forge::{
    Caller, Error, Unvalidated, tasks,
    users::{self, Registration},
};
use jiff::SignedDuration;
use model::{EventKind, hooks::Switches, users::NewUser};
use serde_json::{Value, json};
use testkit::{
    Client, PASSWORD, TestForge,
    repository::SMALL,
    rows::{self, Announcement},
};

const NOTHING: Switches = Switches {
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
const ISSUES: Switches = Switches { issues: true, ..NOTHING };
const CONFIDENTIAL_ISSUES: Switches = Switches { confidential_issues: true, ..NOTHING };
const NOTES: Switches = Switches { note: true, ..NOTHING };

fn hook(forge: &TestForge, project: Option<i64>, wants: Switches) {
    forge.behind_the_back(|db| rows::hook(db, project, wants));
}

/// What hooks of the instance are told since this was last asked, each in one line.
fn news(forge: &TestForge) -> Vec<String> {
    let told = forge.in_one_go(rows::take_announcements);
    for Announcement { occasion, project, payload } in &told {
        assert_eq!((*occasion, *project), (EventKind::System, None), "{payload}");
    }
    told.iter().map(|told| in_a_line(&told.payload)).collect()
}

fn in_a_line(payload: &Value) -> String {
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

/// What hooks of projects are told about issues since this was last asked: on which occasion, who did what, and how the
/// issue is now.
fn about_issues(forge: &TestForge) -> Vec<String> {
    let told = forge.in_one_go(rows::take_announcements);
    let line = |Announcement { occasion, project, payload }: &Announcement| {
        assert_eq!(payload["object_kind"], "issue");
        let attributes = &payload["object_attributes"];
        assert_eq!(attributes["project_id"].as_i64(), *project);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (user, action) = (text(&payload["user"]["username"]), text(&attributes["action"]));
        format!("{occasion:?}: {user} {action} {} {}", text(&attributes["title"]), text(&attributes["state"]))
    };
    told.iter().map(line).collect()
}

/// A forge with Ann and a project of hers.
async fn scene() -> (TestForge, Client, i64) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await;
    (forge, ann, project)
}

#[tokio::test]
async fn hooks_hear_of_an_issue_as_it_is_after_each_change() {
    let (forge, ann, project) = scene().await;
    hook(&forge, Some(project), ISSUES);
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one", "labels": "a" })).await;
    assert_eq!(about_issues(&forge), ["Issue: ann open one opened"]);
    let path = format!("/projects/{project}/issues/{issue}");
    let change = async |body: Value| {
        let changed = ann.put(&path, body).await;
        assert_eq!(changed.code(), 200, "{changed}");
        about_issues(&forge)
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
    // What is not theirs to change is left out, and then there is nothing to tell.
    let bob = forge.user("bob").await;
    let open = json!({ "name": "Rocket", "visibility_level": 20 });
    assert_eq!(ann.put(&format!("/projects/{project}"), open).await.code(), 200);
    let own = bob.make(&format!("/projects/{project}/issues"), json!({ "title": "four" })).await;
    assert_eq!(about_issues(&forge), ["Issue: bob open four opened"]);
    let path = format!("/projects/{project}/issues/{own}");
    assert_eq!(bob.put(&path, json!({ "labels": "b" })).await.code(), 200);
    assert_eq!(about_issues(&forge), [""; 0]);
    // Following and removing an issue changes nothing about it.
    assert_eq!(ann.post(&format!("{path}/subscription"), json!({})).await.code(), 201);
    assert_eq!(ann.delete(&path).await.code(), 200);
    assert_eq!(about_issues(&forge), [""; 0]);
}

#[tokio::test]
async fn it_is_told_who_changed_an_issue_last() {
    let (forge, ann, project) = scene().await;
    hook(&forge, Some(project), ISSUES);
    let last = || {
        let told = forge.in_one_go(rows::take_announcements);
        told.iter().map(|told| told.payload["object_attributes"]["updated_by_id"].clone()).collect::<Vec<_>>()
    };
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one" })).await;
    assert_eq!(last(), [Value::Null]);
    let root = forge.admin().await;
    let path = format!("/projects/{project}/issues/{issue}");
    assert_eq!(root.put(&path, json!({ "title": "two" })).await.code(), 200);
    assert_eq!(last(), [json!(root.id)]);
    assert_eq!(ann.put(&path, json!({ "title": "two" })).await.code(), 200);
    assert_eq!(last(), [json!(root.id)], "saved without a change");
    assert_eq!(ann.put(&path, json!({ "state_event": "close" })).await.code(), 200);
    assert_eq!(last(), [json!(ann.id)]);
}

#[tokio::test]
async fn what_only_some_may_see_never_reaches_a_plain_hook() {
    let (forge, ann, project) = scene().await;
    hook(&forge, Some(project), Switches { note: true, ..ISSUES });
    let issues = format!("/projects/{project}/issues");
    let secret = ann.make(&issues, json!({ "title": "secret", "confidential": true })).await;
    let path = format!("{issues}/{secret}");
    for body in [json!({ "title": "secret 2" }), json!({ "state_event": "close", "labels": "a" })] {
        assert_eq!(ann.put(&path, body).await.code(), 200);
    }
    ann.make(&format!("{path}/notes"), json!({ "body": "hush" })).await;
    let open = ann.make(&issues, json!({ "title": "open" })).await;
    assert_eq!(about_issues(&forge), ["Issue: ann open open opened"], "and of the secret nothing");
    // What becomes a secret is one already when it is told, even that it was closed by the way.
    let hide = json!({ "confidential": true, "state_event": "close" });
    assert_eq!(ann.put(&format!("{issues}/{open}"), hide).await.code(), 200);
    assert_eq!(about_issues(&forge), [""; 0]);
    assert_eq!(ann.put(&format!("{issues}/{open}"), json!({ "confidential": false })).await.code(), 200);
    assert_eq!(about_issues(&forge), ["Issue: ann update open closed"]);
}

#[tokio::test]
async fn secrets_are_for_those_hooks_that_want_them() {
    let (forge, ann, project) = scene().await;
    hook(&forge, Some(project), CONFIDENTIAL_ISSUES);
    let issues = format!("/projects/{project}/issues");
    ann.make(&issues, json!({ "title": "open" })).await;
    assert_eq!(about_issues(&forge), [""; 0], "not what everybody may see");
    let secret = ann.make(&issues, json!({ "title": "secret", "confidential": true })).await;
    assert_eq!(about_issues(&forge), ["ConfidentialIssue: ann open secret opened"]);
    assert_eq!(ann.put(&format!("{issues}/{secret}"), json!({ "state_event": "close" })).await.code(), 200);
    assert_eq!(about_issues(&forge), ["ConfidentialIssue: ann close secret closed"]);
    assert_eq!(ann.put(&format!("{issues}/{secret}"), json!({ "confidential": false })).await.code(), 200);
    assert_eq!(about_issues(&forge), [""; 0], "it is none any more");
    // Of comments on secrets hears who wants both.
    let other = ann.make(&issues, json!({ "title": "other", "confidential": true })).await;
    let notes = format!("{issues}/{other}/notes");
    forge.in_one_go(rows::take_announcements);
    ann.make(&notes, json!({ "body": "hush" })).await;
    assert_eq!(forge.in_one_go(rows::take_announcements).len(), 0);
    hook(&forge, Some(project), Switches { note: true, ..CONFIDENTIAL_ISSUES });
    ann.make(&notes, json!({ "body": "hush" })).await;
    let told = forge.in_one_go(rows::take_announcements);
    let occasions: Vec<EventKind> = told.iter().map(|told| told.occasion).collect();
    assert_eq!(occasions, [EventKind::ConfidentialNote]);
}

#[tokio::test]
async fn a_moved_issue_is_opened_there_and_closed_here() {
    let (forge, ann, here) = scene().await;
    let there = ann.make("/projects", json!({ "name": "Ship" })).await;
    for place in [here, there] {
        hook(&forge, Some(place), ISSUES);
    }
    let issue = ann.make(&format!("/projects/{here}/issues"), json!({ "title": "one" })).await;
    forge.in_one_go(rows::take_announcements);
    let moving = json!({ "to_project_id": there });
    let copy = ann.make(&format!("/projects/{here}/issues/{issue}/move"), moving).await;
    let told = forge.in_one_go(rows::take_announcements);
    let facts: Vec<Value> = told
        .iter()
        .map(|told| {
            let attributes = &told.payload["object_attributes"];
            json!([told.project, attributes["id"], attributes["action"], attributes["moved_to_id"]])
        })
        .collect();
    assert_eq!(facts, [json!([there, copy, "open", null]), json!([here, issue, "close", copy])]);
}

#[tokio::test]
async fn a_commit_that_closes_an_issue_is_told() {
    let (forge, ann, project) = scene().await;
    hook(&forge, Some(project), ISSUES);
    let issues = format!("/projects/{project}/issues");
    ann.make(&issues, json!({ "title": "one" })).await;
    ann.make(&issues, json!({ "title": "two" })).await;
    forge.in_one_go(rows::take_announcements);
    let commit = async |name: &str, message: &str| {
        let new = json!({ "file_path": name, "branch_name": "master", "content": "x", "commit_message": message });
        let made = ann.post(&format!("/projects/{project}/repository/files"), new).await;
        assert_eq!(made.code(), 201, "{made}");
        about_issues(&forge)
    };
    assert_eq!(commit("a", "Begin").await, [""; 0]);
    assert_eq!(commit("b", "Fixes #1, see #2").await, ["Issue: ann close one closed"]);
    assert_eq!(commit("c", "Fixes #1 again").await, [""; 0], "it is closed already");
}

#[tokio::test]
async fn hooks_hear_of_a_comment_when_it_is_written() {
    let (forge, ann, project) = scene().await;
    hook(&forge, Some(project), NOTES);
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one" })).await;
    let notes = format!("/projects/{project}/issues/{issue}/notes");
    // What the service writes is no comment.
    let path = format!("/projects/{project}/issues/{issue}");
    assert_eq!(ann.put(&path, json!({ "state_event": "close" })).await.code(), 200);
    assert_eq!(forge.in_one_go(rows::take_announcements).len(), 0);
    let note = ann.make(&notes, json!({ "body": "Looks fine" })).await;
    let told = forge.in_one_go(rows::take_announcements);
    let [Announcement { occasion, project: place, payload }] = &told[..] else { panic!("{}", told.len()) };
    assert_eq!((*occasion, *place), (EventKind::Note, Some(project)));
    assert_eq!((&payload["object_kind"], &payload["user"]["username"]), (&json!("note"), &json!("ann")));
    let attributes = &payload["object_attributes"];
    assert_eq!((&attributes["note"], &attributes["noteable_type"]), (&json!("Looks fine"), &json!("Issue")));
    // Neither is told that it changed or went.
    assert_eq!(ann.put(&format!("{notes}/{note}"), json!({ "body": "Looks bad" })).await.code(), 200);
    assert_eq!(ann.delete(&format!("{notes}/{note}")).await.code(), 200);
    assert_eq!(forge.in_one_go(rows::take_announcements).len(), 0);
}

#[tokio::test]
async fn a_comment_on_a_commit_is_told_with_the_commit() {
    let (forge, ann, project) = scene().await;
    forge.fill(&ann, project, SMALL).await;
    hook(&forge, Some(project), NOTES);
    let sha = forge.refs_of(project).into_iter().find(|(name, _)| name == "refs/heads/master").expect("a branch").1;
    let path = format!("/projects/{project}/repository/commits/{sha}/comments");
    assert_eq!(ann.post(&path, json!({ "note": "Nice" })).await.code(), 201);
    let told = forge.in_one_go(rows::take_announcements);
    let [Announcement { occasion, project: place, payload }] = &told[..] else { panic!("{}", told.len()) };
    assert_eq!((*occasion, *place), (EventKind::Note, Some(project)));
    let attributes = &payload["object_attributes"];
    assert_eq!((&attributes["note"], &attributes["noteable_type"]), (&json!("Nice"), &json!("Commit")));
    assert_eq!(attributes["commit_id"], json!(sha));
    // One that is refused is not told.
    assert_eq!(ann.post(&path, json!({ "note": " " })).await.code(), 400);
    assert_eq!(forge.in_one_go(rows::take_announcements).len(), 0);
}

#[tokio::test]
async fn what_nobody_wants_to_know_is_not_written_down() {
    let (forge, ann, project) = scene().await;
    let other = ann.make("/projects", json!({ "name": "Ship" })).await;
    // One that wants something else, and one that wants all of another project.
    hook(&forge, Some(project), Switches { push: true, tag_push: true, ..NOTHING });
    let all = Switches { issues: true, confidential_issues: true, note: true, ..NOTHING };
    hook(&forge, Some(other), all);
    let issue = ann.make(&format!("/projects/{project}/issues"), json!({ "title": "one" })).await;
    ann.make(&format!("/projects/{project}/issues/{issue}/notes"), json!({ "body": "x" })).await;
    let path = format!("/projects/{project}/issues/{issue}");
    assert_eq!(ann.put(&path, json!({ "title": "two", "confidential": true })).await.code(), 200);
    forge.user("bob").await;
    ann.make("/groups", json!({ "name": "Crew", "path": "crew" })).await;
    assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
    assert_eq!(forge.in_one_go(rows::take_announcements).len(), 0);
}

#[tokio::test]
async fn what_did_not_happen_is_not_told() {
    let forge = TestForge::start().await;
    hook(&forge, None, NOTHING);
    let user = NewUser::new("bob", "bob@example.org", "Bob");
    let given = Unvalidated::good(Registration { user, password: PASSWORD.to_owned() });
    let ready = forge.forge.run_blocking(Caller::system(), move |tx| users::prepare_registration(tx, &given)).await;
    let ready = ready.expect("a good registration");
    let again = ready.clone();
    let failed = forge.forge.write(Caller::system(), move |tx| {
        users::create(tx, &ready)?;
        Err::<(), _>(Error::Refused("second thoughts".into()))
    });
    assert!(failed.await.is_err());
    assert_eq!(news(&forge), [""; 0]);
    let created = forge.forge.write(Caller::system(), move |tx| users::create(tx, &again).map(|_| ())).await;
    created.expect("a user");
    assert_eq!(news(&forge), ["user_create bob bob@example.org"]);
}

#[tokio::test]
async fn projects_come_change_and_go() {
    let forge = TestForge::start().await;
    let (root, ann) = (forge.admin().await, forge.user("ann").await);
    let crew = root.make("/groups", json!({ "name": "The Crew", "path": "crew", "visibility_level": 20 })).await;
    hook(&forge, None, NOTHING);
    let project = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket", "visibility_level": 20 })).await;
    assert_eq!(
        news(&forge),
        ["project_create ann/rocket ann ann@example.org", "user_add_to_team ann/rocket ann ann@example.org Master",]
    );
    let rename = async |body: Value| {
        let renamed = ann.put(&format!("/projects/{project}"), body).await;
        assert_eq!(renamed.code(), 200, "{renamed}");
        news(&forge)
    };
    assert_eq!(rename(json!({ "name": "Ship" })).await, [""; 0], "the path is the same");
    assert_eq!(rename(json!({ "name": "Ship", "path": "rocket" })).await, [""; 0], "the path is the same");
    assert_eq!(rename(json!({ "name": "Ship", "path": "ship" })).await, ["project_rename ann/rocket ann/ship"]);
    let bob = forge.user("bob").await;
    news(&forge);
    let fork = bob.make(&format!("/projects/fork/{project}"), json!({ "namespace": "bob" })).await;
    assert_eq!(
        news(&forge),
        ["project_create bob/ship bob bob@example.org", "user_add_to_team bob/ship bob bob@example.org Master"]
    );
    let url = "https://code.example.org/x.git";
    root.make("/projects", json!({ "name": "In", "namespace_id": crew, "import_url": url })).await;
    assert_eq!(news(&forge), ["project_create crew/in The Crew"], "a group has no address");
    let moved = root.post(&format!("/groups/{crew}/projects/{project}"), json!({})).await;
    assert_eq!(moved.code(), 201, "{moved}");
    assert_eq!(news(&forge), ["project_transfer ann/ship crew/ship"]);
    assert_eq!(bob.delete(&format!("/projects/{fork}")).await.code(), 200);
    assert_eq!(
        news(&forge),
        ["user_remove_from_team bob/ship bob bob@example.org Master", "project_destroy bob/ship bob bob@example.org"]
    );
    forge.do_all_jobs().await;
    assert_eq!(news(&forge), [""; 0], "once is enough");
}

#[tokio::test]
async fn members_of_projects_and_groups_come_and_go() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let project = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await;
    let group = ann.make("/groups", json!({ "name": "Crew", "path": "crew" })).await;
    hook(&forge, None, NOTHING);
    let places = [
        (format!("/projects/{project}"), "team", "ann/rocket bob bob@example.org"),
        (format!("/groups/{group}"), "group", "crew bob"),
    ];
    for (place, kind, who) in places {
        let (came, went) = (format!("user_add_to_{kind} {who}"), format!("user_remove_from_{kind} {who}"));
        let member = json!({ "user_id": bob.id, "access_level": 30 });
        assert_eq!(ann.post(&format!("{place}/members"), member.clone()).await.code(), 201);
        assert_eq!(news(&forge), [format!("{came} Developer")]);
        // Neither to be one already, nor to become more, is to come.
        ann.post(&format!("{place}/members"), member).await;
        let path = format!("{place}/members/{}", bob.id);
        assert_eq!(ann.put(&path, json!({ "access_level": 40 })).await.code(), 200);
        assert_eq!(news(&forge), [""; 0]);
        assert_eq!(ann.delete(&path).await.code(), 200);
        assert_eq!(news(&forge), [format!("{went} Master")], "by hand");
        ann.delete(&path).await;
        assert_eq!(news(&forge), [""; 0], "nobody was there");
        let until = json!({ "user_id": bob.id, "access_level": 20, "expires_at": "2026-01-03" });
        assert_eq!(ann.post(&format!("{place}/members"), until).await.code(), 201);
        assert_eq!(bob.delete(&path).await.code(), 200);
        assert_eq!(news(&forge), [format!("{came} Reporter"), format!("{went} Reporter")], "on their own");
    }
}

#[tokio::test]
async fn a_membership_that_ends_by_itself_is_told_once() {
    let forge = TestForge::start().await;
    let (ann, bob, cid) = (forge.user("ann").await, forge.user("bob").await, forge.user("cid").await);
    let project = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await;
    let group = ann.make("/groups", json!({ "name": "Crew", "path": "crew" })).await;
    hook(&forge, None, NOTHING);
    for place in [format!("/projects/{project}/members"), format!("/groups/{group}/members")] {
        for user in [bob.id, cid.id] {
            let until = json!({ "user_id": user, "access_level": 20, "expires_at": "2026-01-03" });
            assert_eq!(ann.post(&place, until).await.code(), 201);
        }
    }
    news(&forge);
    forge.clock.advance(SignedDuration::from_hours(48));
    // Whoever comes back before that was noticed left first.
    let again = json!({ "user_id": cid.id, "access_level": 30 });
    assert_eq!(ann.post(&format!("/projects/{project}/members"), again).await.code(), 201);
    assert_eq!(
        news(&forge),
        [
            "user_remove_from_team ann/rocket cid cid@example.org Reporter",
            "user_add_to_team ann/rocket cid cid@example.org Developer",
        ]
    );
    for _ in 0..2 {
        tasks::enqueue_recurring(&forge.forge).await.expect("written down");
        forge.do_all_jobs().await;
    }
    assert_eq!(
        news(&forge),
        [
            "user_remove_from_team ann/rocket bob bob@example.org Reporter",
            "user_remove_from_group crew bob Reporter",
            "user_remove_from_group crew cid Reporter",
        ]
    );
}

#[tokio::test]
async fn a_user_goes_with_keys_memberships_and_projects() {
    let forge = TestForge::start().await;
    let (root, ann) = (forge.admin().await, forge.user("ann").await);
    let rocket = ann.make("/projects", json!({ "name": "Rocket", "path": "rocket" })).await;
    let crew = ann.make("/groups", json!({ "name": "Crew", "path": "crew" })).await;
    hook(&forge, None, NOTHING);
    let new = json!({ "email": "bob@example.org", "username": "bob", "name": "Bob", "password": PASSWORD });
    let bob = root.make("/users", new).await;
    assert_eq!(news(&forge), ["user_create bob bob@example.org"]);
    let project = root.make(&format!("/projects/user/{bob}"), json!({ "name": "Own", "path": "own" })).await;
    let key = root.make(&format!("/users/{bob}/keys"), json!({ "title": "k", "key": rows::ssh_key(1) })).await;
    for (place, user) in [
        (format!("/projects/{rocket}"), bob),
        (format!("/groups/{crew}"), bob),
        (format!("/projects/{project}"), ann.id),
    ] {
        let member = json!({ "user_id": user, "access_level": 30 });
        assert_eq!(root.post(&format!("{place}/members"), member).await.code(), 201);
    }
    assert_eq!(
        news(&forge),
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
        news(&forge),
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
    forge.do_all_jobs().await;
    assert_eq!(news(&forge), [""; 0], "once is enough");
}

#[tokio::test]
async fn keys_come_and_go() {
    let forge = TestForge::start().await;
    let (ann, root) = (forge.user("ann").await, forge.admin().await);
    hook(&forge, None, NOTHING);
    let text = rows::ssh_key(1);
    let key = ann.make("/user/keys", json!({ "title": "k", "key": text })).await;
    let told = forge.in_one_go(rows::take_announcements);
    assert_eq!((told.len(), &told[0].payload["key"]), (1, &json!(text)));
    assert_eq!(in_a_line(&told[0].payload), format!("key_create {key} ann"));
    assert_eq!(ann.post("/user/keys", json!({ "title": "k", "key": text })).await.code(), 400);
    assert_eq!(news(&forge), [""; 0], "it is there already");
    assert_eq!(ann.delete(&format!("/user/keys/{key}")).await.code(), 200);
    assert_eq!(news(&forge), [format!("key_destroy {key} ann")]);
    ann.delete(&format!("/user/keys/{key}")).await;
    assert_eq!(news(&forge), [""; 0], "it is gone already");
    let given = root.make(&format!("/users/{}/keys", ann.id), json!({ "title": "k", "key": rows::ssh_key(2) })).await;
    assert_eq!(root.delete(&format!("/users/{}/keys/{given}", ann.id)).await.code(), 200);
    assert_eq!(news(&forge), [format!("key_create {given} ann"), format!("key_destroy {given} ann")]);
}

#[tokio::test]
async fn a_key_for_machines_goes_with_the_last_project_that_it_opens() {
    let (forge, ann, one) = scene().await;
    let two = ann.make("/projects", json!({ "name": "Ship" })).await;
    hook(&forge, None, NOTHING);
    let keys = |project: i64| format!("/projects/{project}/deploy_keys");
    let key = ann.make(&keys(one), json!({ "title": "k", "key": rows::ssh_key(1) })).await;
    assert_eq!(news(&forge), [format!("key_create {key}")], "it is nobody's");
    assert_eq!(ann.post(&format!("{}/{key}/enable", keys(two)), json!({})).await.code(), 201);
    assert_eq!(ann.delete(&format!("{}/{key}", keys(one))).await.code(), 200);
    assert_eq!(news(&forge), [""; 0], "it still opens the other one");
    assert_eq!(ann.delete(&format!("{}/{key}", keys(two))).await.code(), 200);
    assert_eq!(news(&forge), [format!("key_destroy {key}")]);
    // The same when the projects go.
    let key = ann.make(&keys(one), json!({ "title": "k", "key": rows::ssh_key(2) })).await;
    assert_eq!(ann.post(&format!("{}/{key}/enable", keys(two)), json!({})).await.code(), 201);
    for (project, gone) in [(one, None), (two, Some(format!("key_destroy {key}")))] {
        assert_eq!(ann.delete(&format!("/projects/{project}")).await.code(), 200);
        news(&forge);
        forge.do_all_jobs().await;
        assert_eq!(news(&forge), gone.into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_group_goes_with_projects_and_members() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    hook(&forge, None, NOTHING);
    news(&forge);
    let group = ann.make("/groups", json!({ "name": "The Crew", "path": "crew" })).await;
    assert_eq!(news(&forge), ["group_create crew", "user_add_to_group crew ann Owner"]);
    let below = forge.group_below(group, "below", model::Visibility::Private);
    let one = ann.make("/projects", json!({ "name": "One", "path": "one", "namespace_id": group })).await;
    ann.make("/projects", json!({ "name": "Two", "path": "two", "namespace_id": below })).await;
    for place in [format!("/projects/{one}"), format!("/groups/{group}")] {
        let member = json!({ "user_id": bob.id, "access_level": 30 });
        assert_eq!(ann.post(&format!("{place}/members"), member).await.code(), 201);
    }
    news(&forge);
    assert_eq!(ann.delete(&format!("/groups/{group}")).await.code(), 200);
    assert_eq!(
        news(&forge),
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
    forge.do_all_jobs().await;
    assert_eq!(news(&forge), [""; 0], "once is enough");
}

#[tokio::test]
async fn what_two_remove_at_once_is_told_once() {
    let forge = TestForge::start().await;
    let (root, ann, bob) = (forge.admin().await, forge.user("ann").await, forge.user("bob").await);
    hook(&forge, None, NOTHING);
    for round in 0..5 {
        let new = json!({ "name": format!("n{round}"), "path": format!("p{round}") });
        let project = ann.make("/projects", new).await;
        let members = format!("/projects/{project}/members");
        let member = json!({ "user_id": bob.id, "access_level": 30 });
        assert_eq!(ann.post(&members, member).await.code(), 201);
        news(&forge);
        let path = format!("{members}/{}", bob.id);
        tokio::join!(ann.delete(&path), bob.delete(&path), root.delete(&path));
        let left = format!("user_remove_from_team ann/p{round} bob bob@example.org Developer");
        assert_eq!(news(&forge), [left]);
        let path = format!("/projects/{project}");
        tokio::join!(ann.delete(&path), root.delete(&path), ann.delete(&path));
        let left = format!("user_remove_from_team ann/p{round} ann ann@example.org Master");
        let gone = format!("project_destroy ann/p{round} ann ann@example.org");
        assert_eq!(news(&forge), [left, gone]);
    }
}
