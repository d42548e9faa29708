//! What happened, as those see it who may.

use insta::assert_snapshot;
use model::{Scope, Time, events::Action};
use serde_json::{Value, json};
use store::events::NewEvent;
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
    let event = NewEvent { project, author, action, target_type: None, target_id: None, push: None, intent: None, now };
    forge.behind_the_back(|db| store::events::insert(db, &event).expect("an event"));
}

fn keys(object: &Value) -> String {
    object.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_push_is_told_with_what_came() {
    let (forge, ann, project) = scene(0).await;
    let listed = ann.get(&format!("/projects/{project}/events")).await;
    assert_eq!((listed.code(), listed.header("x-total")), (200, "3"), "{listed}");
    assert_eq!(listed.each("action_name"), "pushed new pushed new pushed new");
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
    assert_eq!((listed.each("action_name"), listed.header("x-total")), ("deleted pushed new".into(), "5"));
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
        listed.as_array().expect("a list").iter().filter_map(|it| it["action_name"].as_str()).collect();
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
    forge.behind_the_back(|db| store::imports::insert(db, project, "https://example.org/x.git", None).expect("noted"));
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
    let pushed = "joined pushed new pushed new pushed new";
    let hidden = "{\"message\":\"404 Project Not Found\"}";
    let root = forge.admin().await;
    for client in [&ann, &rep, &root] {
        assert_eq!(told(client, &inside).await, (pushed.into(), "4".into()));
        assert_eq!(told(client, &of_ann).await, (pushed.into(), "4".into()));
    }
    assert_eq!(told(&gus, &inside).await, ("joined".into(), "1".into()));
    assert_eq!(told(&gus, &of_ann).await, ("joined".into(), "1".into()));
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
        assert_eq!(told(client, &of_ann).await, (pushed.into(), "4".into()));
    }
    assert_eq!(told(&eve, &inside).await, (pushed.into(), "4".into()));
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
