//! Issues: what there is to do.

use insta::assert_snapshot;
use model::Role;
use serde_json::{Value, json};
use testkit::{Client, TestForge};

/// A forge with Ann, who owns a private project, and those who are something there; the number of the project.
struct Scene {
    forge: TestForge,
    ann: Client,
    rita: Client,
    gus: Client,
    zoe: Client,
    issues: String,
    project: i64,
}

async fn scene() -> Scene {
    scene_with(json!({ "name": "rocket" })).await
}

async fn scene_with(project: Value) -> Scene {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let (rita, gus, zoe) = (forge.user("rita").await, forge.user("gus").await, forge.user("zoe").await);
    let project = ann.make("/projects", project).await;
    join(&ann, project, &rita, Role::Reporter).await;
    join(&ann, project, &gus, Role::Guest).await;
    let issues = format!("/projects/{project}/issues");
    Scene { forge, ann, rita, gus, zoe, issues, project }
}

async fn join(owner: &Client, project: i64, user: &Client, role: Role) {
    let member = json!({ "user_id": user.id, "access_level": role.level() });
    let joined = owner.post(&format!("/projects/{project}/members"), member).await;
    assert_eq!(joined.code(), 201, "{joined}");
}

impl Scene {
    fn one(&self, issue: i64) -> String {
        format!("{}/{issue}", self.issues)
    }

    /// What was noted about an issue by the service, oldest first.
    async fn told(&self, issue: i64) -> Vec<String> {
        let notes = self.ann.get(&format!("{}/notes", self.one(issue))).await.json();
        let notes = notes.as_array().expect("notes").iter().filter(|note| note["system"] == true);
        notes.map(|note| note["body"].as_str().expect("a body").to_owned()).collect()
    }

    /// What the feed of the project says of issues, newest first.
    async fn feed(&self, reader: &Client) -> Vec<String> {
        let events = reader.get(&format!("/projects/{}/events", self.project)).await.json();
        let events = events.as_array().expect("events").iter().filter(|event| !event["target_type"].is_null());
        let line = |event: &Value| {
            let text = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
            format!(
                "{} {} {} {}",
                text("author_username"),
                text("action_name"),
                text("target_type"),
                text("target_title")
            )
        };
        events.map(line).collect()
    }
}

#[tokio::test]
async fn an_issue_is_written_shown_changed_and_removed() {
    let scene = scene().await;
    let milestones = format!("/projects/{}/milestones", scene.project);
    let milestone = scene.ann.make(&milestones, json!({ "title": "1.0", "due_date": "2026-02-01" })).await;
    let new = json!({
        "title": " Cracked tile ", "description": "On the *left*.", "assignee_id": scene.rita.id,
        "milestone_id": milestone, "labels": "bug, heat shield", "due_date": "2026-01-31", "confidential": false,
    });
    assert_snapshot!(scene.rita.post(&scene.issues, new).await, @r#"
    201 Created
    {"id":1,"iid":1,"project_id":1,"title":"Cracked tile","description":"On the *left*.","state":"opened","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","labels":["bug","heat shield"],"milestone":{"id":1,"iid":1,"project_id":1,"title":"1.0","description":null,"state":"active","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","due_date":"2026-02-01","start_date":null},"assignee":{"name":"rita","username":"rita","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/b7ae41a762463f41.svg","web_url":"http://gable.test/rita"},"author":{"name":"rita","username":"rita","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/b7ae41a762463f41.svg","web_url":"http://gable.test/rita"},"subscribed":true,"user_notes_count":0,"upvotes":0,"downvotes":0,"due_date":"2026-01-31","confidential":false,"web_url":"http://gable.test/ann/rocket/issues/1"}
    "#);
    assert_snapshot!(scene.gus.get(&scene.one(1)).await.json()["subscribed"], @"false");
    let changes = json!({
        "title": "Broken tile", "description": "", "assignee_id": 0, "milestone_id": null, "labels": "bug,urgent",
        "due_date": "", "state_event": "close",
    });
    scene.forge.clock.advance(jiff::SignedDuration::from_secs(60));
    assert_snapshot!(scene.rita.put(&scene.one(1), changes).await, @r#"
    200 OK
    {"id":1,"iid":1,"project_id":1,"title":"Broken tile","description":null,"state":"closed","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:05:05.678Z","labels":["bug","urgent"],"milestone":null,"assignee":null,"author":{"name":"rita","username":"rita","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/b7ae41a762463f41.svg","web_url":"http://gable.test/rita"},"subscribed":true,"user_notes_count":0,"upvotes":0,"downvotes":0,"due_date":null,"confidential":false,"web_url":"http://gable.test/ann/rocket/issues/1"}
    "#);
    assert_eq!(
        scene.told(1).await,
        [
            "Status changed to closed",
            "Added ~3 and removed ~2 labels",
            "Milestone removed",
            "Assignee removed",
            "Changed title from **Cracked tile** to **Broken tile**",
        ]
    );
    assert_eq!(scene.rita.put(&scene.one(1), json!({ "state_event": "reopen" })).await.json()["state"], "reopened");
    assert_eq!(scene.rita.put(&scene.one(1), json!({ "labels": "" })).await.json()["labels"], json!([]));
    assert_eq!(
        scene.feed(&scene.gus).await,
        [
            "rita opened Issue Broken tile",
            "rita closed Issue Broken tile",
            "rita opened Issue Broken tile",
            "ann opened Milestone 1.0",
        ]
    );
    assert_snapshot!(scene.rita.delete(&scene.one(1)).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    let gone = scene.ann.delete(&scene.one(1)).await;
    assert_eq!((gone.code(), &gone.json()["title"]), (200, &json!("Broken tile")));
    for answer in [scene.ann.get(&scene.one(1)).await, scene.ann.delete(&scene.one(1)).await] {
        assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    }
    assert_eq!(scene.feed(&scene.ann).await, ["ann opened Milestone 1.0"], "what was told of it goes with it");
    // The number is not given again.
    assert_eq!(scene.ann.post(&scene.issues, json!({ "title": "next" })).await.json()["iid"], 2);
}

#[tokio::test]
async fn what_cannot_be_an_issue_is_refused() {
    let scene = scene().await;
    let check = async |body: Value, code: u16, expected: &str| {
        let answer = scene.ann.post(&scene.issues, body.clone()).await;
        assert_eq!((answer.code(), answer.text.as_str()), (code, expected), "{body}");
    };
    check(json!({}), 400, r#"{"error":"title is missing"}"#).await;
    check(json!({ "title": " " }), 400, r#"{"message":{"title":["can't be blank"]}}"#).await;
    let long = "x".repeat(10_000);
    let too_long = r#"{"message":{"title":["is too long (maximum is 255 characters)"]}}"#;
    check(json!({ "title": long }), 400, too_long).await;
    check(json!({ "title": "x", "due_date": "soon" }), 400, r#"{"error":"due_date is invalid"}"#).await;
    check(json!({ "title": "x", "assignee_id": 99 }), 400, r#"{"message":{"assignee":["is invalid"]}}"#).await;
    check(json!({ "title": "x", "assignee_id": scene.zoe.id }), 400, r#"{"message":{"assignee":["is invalid"]}}"#)
        .await;
    check(json!({ "title": "x", "milestone_id": 99 }), 400, r#"{"message":{"milestone":["is invalid"]}}"#).await;
    check(json!({ "title": "x\u{0}y" }), 400, r#"{"error":"title is invalid"}"#).await;
    check(json!({ "title": "x\ny" }), 400, r#"{"message":{"title":["is invalid"]}}"#).await;
    check(json!({ "title": ["x"] }), 400, r#"{"error":"title is invalid"}"#).await;
    check(json!({ "title": "x", "confidential": "perhaps" }), 400, r#"{"error":"confidential is invalid"}"#).await;
    check(json!({ "title": "x", "created_at": "then" }), 400, r#"{"error":"created_at is invalid"}"#).await;
    assert_eq!(scene.ann.get(&scene.issues).await.text, "[]", "nothing is half done");
    assert_eq!(scene.ann.get(&format!("/projects/{}/labels", scene.project)).await.text, "[]");

    let issue = scene.ann.make(&scene.issues, json!({ "title": "x" })).await;
    let check = async |body: Value, expected: &str| {
        let answer = scene.ann.put(&scene.one(issue), body.clone()).await;
        assert_eq!((answer.code(), answer.text.as_str()), (400, expected), "{body}");
    };
    check(json!({ "state_event": "explode" }), r#"{"error":"state_event does not have a valid value"}"#).await;
    check(json!({ "title": "" }), r#"{"message":{"title":["can't be blank"]}}"#).await;
    let nothing = "title, description, assignee_id, milestone_id, labels, due_date, confidential, state_event, updated_at \
                   are missing, at least one parameter must be provided";
    check(json!({}), &json!({ "error": nothing }).to_string()).await;
    assert_snapshot!(scene.ann.get(&format!("{}/x", scene.issues)).await, @r#"
    400 Bad Request
    {"error":"issue_id is invalid"}
    "#);
    assert_eq!(scene.told(issue).await, [""; 0]);
}

#[tokio::test]
async fn who_may_not_manage_issues_writes_the_text_alone() {
    let scene = scene().await;
    scene.ann.make(&format!("/projects/{}/milestones", scene.project), json!({ "title": "1.0" })).await;
    let new = json!({
        "title": "From a guest", "assignee_id": scene.rita.id, "milestone_id": 1, "labels": "bug",
        "due_date": "2026-03-01", "created_at": "2020-01-01T00:00:00Z",
    });
    let written = scene.gus.post(&scene.issues, new.clone()).await;
    let fields = |answer: &Value| {
        let part = |name: &str| answer[name].clone();
        json!([part("assignee"), part("milestone"), part("labels"), part("due_date"), part("created_at")])
    };
    let plain = json!([null, null, [], null, "2026-01-02T03:04:05.678Z"]);
    assert_eq!((written.code(), fields(&written.json())), (201, plain.clone()), "{written}");
    let changed = scene.gus.put(&scene.one(1), new).await;
    assert_eq!((changed.code(), fields(&changed.json())), (200, plain), "{changed}");
    // Its author closes it all the same; another guest does not.
    assert_eq!(scene.gus.put(&scene.one(1), json!({ "state_event": "close" })).await.json()["state"], "closed");
    join(&scene.ann, scene.project, &scene.zoe, Role::Guest).await;
    assert_eq!(scene.zoe.put(&scene.one(1), json!({ "state_event": "reopen" })).await.code(), 403);
    // Whoever works on it may.
    scene.rita.put(&scene.one(1), json!({ "assignee_id": scene.zoe.id })).await;
    assert_eq!(scene.zoe.put(&scene.one(1), json!({ "state_event": "reopen" })).await.json()["state"], "reopened");
    assert_eq!(scene.told(1).await.last().map(String::as_str), Some("Status changed to reopened"));
    // The owner says when something was written.
    let old = json!({ "title": "old", "created_at": "2016-11-22T12:15:30.123+02:00" });
    assert_eq!(scene.ann.post(&scene.issues, old).await.json()["created_at"], "2016-11-22T10:15:30.123Z");
}

#[tokio::test]
async fn closing_a_closed_issue_does_nothing() {
    let scene = scene().await;
    let issue = scene.ann.make(&scene.issues, json!({ "title": "x", "labels": "a" })).await;
    scene.ann.put(&scene.one(issue), json!({ "state_event": "close" })).await;
    let closed = scene.ann.get(&scene.one(issue)).await.text;
    scene.forge.clock.advance(jiff::SignedDuration::from_secs(60));
    let again = json!({ "state_event": "close", "labels": "a", "title": "x", "confidential": false });
    assert_eq!(scene.ann.put(&scene.one(issue), again).await.text, closed);
    assert_eq!((scene.told(issue).await.len(), scene.feed(&scene.ann).await.len()), (1, 2));
}

#[tokio::test]
async fn lists_show_what_is_asked_for() {
    let scene = scene().await;
    scene.ann.make(&format!("/projects/{}/milestones", scene.project), json!({ "title": "1.0" })).await;
    for (title, labels, milestone) in
        [("one", "bug", 1), ("two", "bug,urgent", 0), ("three", "", 1), ("four", "urgent", 0)]
    {
        scene.forge.clock.advance(jiff::SignedDuration::from_secs(1));
        let new = json!({ "title": title, "labels": labels, "milestone_id": milestone, "description": "100% Über" });
        scene.ann.make(&scene.issues, new).await;
    }
    scene.forge.clock.advance(jiff::SignedDuration::from_secs(1));
    scene.ann.put(&scene.one(1), json!({ "state_event": "close" })).await;
    scene.ann.put(&scene.one(2), json!({ "state_event": "close" })).await;
    scene.forge.clock.advance(jiff::SignedDuration::from_secs(1));
    scene.ann.put(&scene.one(2), json!({ "state_event": "reopen" })).await;
    let check = async |query: &str, expected: &str| {
        let answer = scene.gus.get(&format!("{}{query}", scene.issues)).await;
        let total = answer.header("x-total").to_owned();
        let amount = if expected.is_empty() { 0 } else { expected.split(' ').count() };
        assert_eq!((answer.each("iid"), total), (expected.to_owned(), amount.to_string()), "{query}: {answer}");
    };
    check("", "4 3 2 1").await;
    check("?sort=asc", "1 2 3 4").await;
    check("?order_by=updated_at", "2 1 4 3").await;
    check("?state=opened", "4 3 2").await;
    check("?state=closed", "1").await;
    check("?state=all", "4 3 2 1").await;
    check("?labels=bug", "2 1").await;
    check("?labels=bug,urgent", "4 2 1").await;
    check("?labels=urgent&state=opened&order_by=updated_at&sort=asc", "4 2").await;
    check("?labels=nothing", "").await;
    check("?labels=Bug", "").await;
    check("?milestone=1.0", "3 1").await;
    check("?milestone=nothing", "").await;
    check("?iid=3", "3").await;
    check("?iid[]=3&iid[]=1&iid[]=99", "3 1").await;
    check("?search=TWO", "2").await;
    check("?search=100%25%20%C3%BCBER", "4 3 2 1").await;
    check("?search=100_", "").await;
    check("?search=e100", "").await;
    let page = scene.gus.get(&format!("{}?per_page=3&page=2", scene.issues)).await;
    assert_eq!((page.each("iid"), page.header("x-total")), ("1".into(), "4"));
    let many = (0..1001).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let refused = scene.gus.json(axum::http::Method::GET, &scene.issues, json!({ "labels": many })).await;
    assert_eq!(refused.text, r#"{"message":{"labels":["are too many (maximum is 1000 labels)"]}}"#);
    for (query, expected) in [
        ("?state=odd", "state does not have a valid value"),
        ("?order_by=title", "order_by does not have a valid value"),
        ("?sort=up", "sort does not have a valid value"),
        ("?iid=x", "iid is invalid"),
    ] {
        let answer = scene.gus.get(&format!("{}{query}", scene.issues)).await;
        assert_eq!((answer.code(), answer.json()), (400, json!({ "error": expected })), "{query}");
    }
    // Both words of the search stand in it, but one in the title and one in the text.
    check("?search=one100", "").await;
}

#[tokio::test]
async fn my_issues_are_those_that_i_wrote_where_i_may_look() {
    let scene = scene().await;
    let other = scene.ann.make("/projects", json!({ "name": "other", "visibility_level": 20 })).await;
    scene.gus.make(&scene.issues, json!({ "title": "here" })).await;
    scene.gus.make(&format!("/projects/{other}/issues"), json!({ "title": "there", "confidential": true })).await;
    scene.ann.make(&scene.issues, json!({ "title": "hers" })).await;
    assert_eq!(scene.gus.get("/issues").await.each("title"), "there here");
    assert_eq!(scene.gus.get("/issues?state=closed").await.text, "[]");
    assert_eq!(scene.gus.get("/issues?search=here&sort=asc").await.each("title"), "here there");
    assert_eq!(scene.rita.get("/issues").await.text, "[]");
    assert_eq!(scene.forge.anonymous().get("/issues").await.code(), 401);
    // Somebody who left does not see what they wrote there any more.
    scene.ann.delete(&format!("/projects/{}/members/{}", scene.project, scene.gus.id)).await;
    let left = scene.gus.get("/issues").await;
    assert_eq!((left.each("title"), left.header("x-total")), ("there".into(), "1"));
    scene.ann.put(&format!("/projects/{other}"), json!({ "name": "other", "issues_enabled": false })).await;
    assert_eq!(scene.gus.get("/issues").await.text, "[]");
}

#[tokio::test]
async fn the_issues_of_a_group_are_those_of_its_projects() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 20 })).await;
    let mut issues = Vec::new();
    for (name, level) in [("open", 20), ("secret", 0)] {
        let new = json!({ "name": name, "namespace_id": group, "visibility_level": level });
        let project = ann.make("/projects", new).await;
        issues.push(format!("/projects/{project}/issues"));
    }
    ann.make(&issues[0], json!({ "title": "seen", "labels": "a,b" })).await;
    ann.make(&issues[0], json!({ "title": "hidden", "labels": "a", "confidential": true })).await;
    ann.make(&issues[1], json!({ "title": "private", "labels": "a" })).await;
    ann.put(&format!("{}/3", issues[1]), json!({ "state_event": "close" })).await;
    let list = format!("/groups/{group}/issues");
    assert_eq!(ann.get(&list).await.each("title"), "hidden seen", "open ones unless others are asked for");
    assert_eq!(ann.get(&format!("{list}?state=all&sort=asc")).await.each("title"), "seen hidden private");
    assert_eq!(ann.get(&format!("{list}?state=all&labels=a,b")).await.each("title"), "seen", "all labels");
    assert_eq!(bob.get(&format!("{list}?state=all")).await.each("title"), "seen");
    assert_eq!(bob.get("/groups/99/issues").await.code(), 404);
    assert_eq!(bob.get("/groups/acme/issues").await.header("x-total"), "1");
}

#[tokio::test]
async fn a_confidential_issue_is_a_secret_of_a_few() {
    let scene = scene_with(json!({ "name": "rocket", "visibility_level": 20 })).await;
    let hugo = scene.forge.user("hugo").await;
    let new = json!({ "title": "a hole", "confidential": true, "labels": "bug" });
    let mine = scene.gus.make(&scene.issues, new).await;
    scene.rita.put(&scene.one(mine), json!({ "labels": "bug" })).await;
    scene.zoe.make(&scene.issues, json!({ "title": "a scratch" })).await;
    let note = json!({ "body": "the airlock" });
    assert_eq!(scene.gus.post(&format!("{}/notes", scene.one(mine)), note).await.code(), 201);
    let admin = scene.forge.admin().await;
    for (who, sees) in [
        (&scene.ann, true),
        (&scene.rita, true),
        (&scene.gus, true),
        (&admin, true),
        (&hugo, false),
        (&scene.zoe, false),
    ] {
        let seen = |yes: &str, no: &str| if sees { yes.to_owned() } else { no.to_owned() };
        assert_eq!(who.get(&scene.one(mine)).await.code(), if sees { 200 } else { 404 });
        assert_eq!(who.get(&format!("{}/notes", scene.one(mine))).await.code(), if sees { 200 } else { 404 });
        let list = who.get(&scene.issues).await;
        assert_eq!(list.each("title"), seen("a scratch a hole", "a scratch"));
        assert_eq!(list.header("x-total"), seen("2", "1"));
        assert_eq!(who.get(&format!("{}?search=hole", scene.issues)).await.each("title"), seen("a hole", ""));
        assert_eq!(who.get(&format!("{}?labels=bug", scene.issues)).await.header("x-total"), seen("1", "0"));
        assert_eq!(who.get(&format!("{}?iid=1", scene.issues)).await.each("iid"), seen("1", ""));
        let labels = who.get(&format!("/projects/{}/labels", scene.project)).await.json();
        assert_eq!(labels[0]["open_issues_count"].to_string(), seen("1", "0"), "{labels}");
        for feed in [format!("/projects/{}/events", scene.project), format!("/users/{}/events", scene.gus.id)] {
            let events = who.get(&feed).await;
            assert_eq!(events.text.contains("a hole"), sees, "{feed}: {events}");
            assert_eq!(events.text.contains("the airlock"), sees, "{feed}: {events}");
            let shown = events.json().as_array().expect("events").len();
            assert_eq!(events.header("x-total"), shown.to_string(), "{feed}");
        }
    }
    // What only some see does not count for the others.
    let count =
        async |who: &Client| who.get(&format!("/projects/{}", scene.project)).await.json()["open_issues_count"].clone();
    assert_eq!((count(&scene.rita).await, count(&hugo).await), (json!(2), json!(1)));
    // Others cannot change it either, nor learn of it by trying.
    for answer in [
        hugo.put(&scene.one(mine), json!({ "title": "x" })).await,
        hugo.post(&format!("{}/subscription", scene.one(mine)), json!({})).await,
        hugo.post(&format!("{}/move", scene.one(mine)), json!({ "to_project_id": 1 })).await,
        hugo.post(&format!("{}/notes", scene.one(mine)), json!({ "body": "x" })).await,
        hugo.delete(&scene.one(mine)).await,
    ] {
        assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    }
    // Whoever shall work on it sees it, and no longer than that.
    scene.rita.put(&scene.one(mine), json!({ "assignee_id": hugo.id })).await;
    assert_eq!(hugo.get(&scene.one(mine)).await.json()["title"], "a hole");
    scene.rita.put(&scene.one(mine), json!({ "assignee_id": 0 })).await;
    assert_eq!(hugo.get(&scene.one(mine)).await.code(), 404);
    // It comes out, and with it what was told before.
    let secret = scene.gus.put(&scene.one(mine), json!({ "confidential": false, "title": "a hole" })).await;
    assert_eq!(secret.json()["confidential"], true, "what others wrote in confidence is not theirs to publish");
    scene.rita.put(&scene.one(mine), json!({ "confidential": false })).await;
    assert_eq!(hugo.get(&scene.issues).await.each("title"), "a scratch a hole");
    assert!(scene.feed(&hugo).await.contains(&"gus opened Issue a hole".to_owned()));
    scene.rita.put(&scene.one(mine), json!({ "confidential": true })).await;
    assert!(!scene.feed(&hugo).await.contains(&"gus opened Issue a hole".to_owned()));
    let told = scene.told(mine).await;
    assert_eq!(told[told.len() - 2..], ["Made the issue visible", "Made the issue confidential"]);
}

#[tokio::test]
async fn one_follows_an_issue_or_not() {
    let scene = scene().await;
    let issue = scene.gus.make(&scene.issues, json!({ "title": "x" })).await;
    let path = format!("{}/subscription", scene.one(issue));
    assert_eq!(scene.gus.post(&path, json!({})).await.code(), 304, "who wrote it follows it");
    assert_eq!(scene.rita.delete(&path).await.text, "", "who has nothing to do with it does not");
    let followed = scene.rita.post(&path, json!({})).await;
    assert_eq!((followed.code(), &followed.json()["subscribed"]), (201, &json!(true)));
    assert_eq!(scene.rita.post(&path, json!({})).await.code(), 304);
    let left = scene.gus.delete(&path).await;
    assert_eq!((left.code(), &left.json()["subscribed"]), (200, &json!(false)));
    assert_eq!(scene.gus.get(&scene.issues).await.json()[0]["subscribed"], false);
    assert_eq!(scene.rita.get(&scene.issues).await.json()[0]["subscribed"], true);
    assert_eq!(scene.ann.get(&scene.one(issue)).await.json()["subscribed"], false);
    scene.ann.post(&format!("{}/notes", scene.one(issue)), json!({ "body": "hm" })).await;
    assert_eq!(scene.ann.get(&scene.one(issue)).await.json()["subscribed"], true, "who talks about it follows it");
}

#[tokio::test]
async fn an_issue_moves_to_another_project_with_what_was_said() {
    let scene = scene().await;
    let other = scene.ann.make("/projects", json!({ "name": "other" })).await;
    join(&scene.ann, other, &scene.rita, Role::Reporter).await;
    for project in [scene.project, other] {
        scene.ann.make(&format!("/projects/{project}/milestones"), json!({ "title": "1.0" })).await;
    }
    let label = json!({ "name": "bug", "color": "#fff" });
    assert_eq!(scene.ann.post(&format!("/projects/{other}/labels"), label).await.json()["name"], "bug");
    let new = json!({
        "title": "tile", "description": "left", "labels": "bug,here", "milestone_id": 1, "assignee_id": scene.gus.id,
        "confidential": true,
    });
    scene.rita.make(&scene.issues, new).await;
    scene.gus.post(&format!("{}/notes", scene.one(1)), json!({ "body": "I see it" })).await;
    let to = json!({ "to_project_id": other });
    scene.forge.clock.advance(jiff::SignedDuration::from_secs(60));
    let moved = scene.rita.post(&format!("{}/move", scene.one(1)), to.clone()).await;
    let json = moved.json();
    let times = [&json["created_at"], &json["updated_at"]];
    assert_eq!(times, ["2026-01-02T03:04:05.678Z", "2026-01-02T03:05:05.678Z"]);
    assert_eq!(
        json!([
            moved.code(),
            json["id"],
            json["iid"],
            json["project_id"],
            json["title"],
            json["labels"],
            json["assignee"]
        ]),
        json!([201, 2, 1, other, "tile", ["bug"], null]),
        "{moved}"
    );
    assert_eq!((&json["milestone"]["id"], &json["author"]["username"]), (&json!(2), &json!("rita")));
    assert_eq!((&json["confidential"], &json["user_notes_count"]), (&json!(true), &json!(1)));
    let notes = scene.rita.get(&format!("/projects/{other}/issues/2/notes")).await.json();
    assert_eq!((&notes[0]["body"], &notes[1]["body"]), (&json!("I see it"), &json!("Moved from another project")));
    assert_eq!(notes[0]["author"]["username"], "gus");
    let old = scene.rita.get(&scene.one(1)).await.json();
    assert_eq!((&old["state"], scene.told(1).await), (&json!("closed"), vec!["Moved to another project".to_owned()]));
    // Once is enough.
    assert_snapshot!(scene.rita.post(&format!("{}/move", scene.one(1)), to).await, @r#"
    400 Bad Request
    {"message":"Cannot move issue due to insufficient permissions!"}
    "#);
    let issue = scene.rita.make(&scene.issues, json!({ "title": "stays" })).await;
    let path = format!("{}/move", scene.one(issue));
    assert_snapshot!(scene.rita.post(&path, json!({ "to_project_id": scene.project })).await, @r#"
    400 Bad Request
    {"message":"Cannot move issue to project it originates from!"}
    "#);
    let elsewhere = scene.zoe.make("/projects", json!({ "name": "elsewhere", "visibility_level": 20 })).await;
    assert_snapshot!(scene.rita.post(&path, json!({ "to_project_id": elsewhere })).await, @r#"
    400 Bad Request
    {"message":"Cannot move issue due to insufficient permissions!"}
    "#);
    let hidden = scene.zoe.make("/projects", json!({ "name": "hidden" })).await;
    assert_snapshot!(scene.rita.post(&path, json!({ "to_project_id": hidden })).await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_snapshot!(scene.rita.post(&path, json!({})).await, @r#"
    400 Bad Request
    {"error":"to_project_id is missing"}
    "#);
    assert_eq!(
        scene.gus.post(&path, json!({ "to_project_id": elsewhere })).await.text,
        r#"{"message":"Cannot move issue due to insufficient permissions!"}"#
    );
    assert_eq!(scene.rita.get(&scene.one(issue)).await.json()["state"], "opened");
}

#[tokio::test]
async fn a_move_out_of_sight_names_no_secret_place() {
    let scene = scene_with(json!({ "name": "rocket", "visibility_level": 20 })).await;
    let hidden = scene.ann.make("/projects", json!({ "name": "hidden" })).await;
    let issue = scene.ann.make(&scene.issues, json!({ "title": "x" })).await;
    scene.ann.post(&format!("{}/move", scene.one(issue)), json!({ "to_project_id": hidden })).await;
    assert_eq!(scene.told(issue).await, ["Moved to another project"]);
    let there = scene.ann.get(&format!("/projects/{hidden}/issues/2/notes")).await.json();
    assert_eq!(there[0]["body"], "Moved from ann/rocket#1");
    // Nor does another move tell from where it came before.
    let open = scene.ann.make("/projects", json!({ "name": "open", "visibility_level": 20 })).await;
    let path = format!("/projects/{hidden}/issues/2/move");
    assert_eq!(scene.ann.post(&path, json!({ "to_project_id": open })).await.code(), 201);
    let there = scene.ann.get(&format!("/projects/{open}/issues/3/notes")).await;
    assert_eq!(there.each("body"), "Moved from another project");
}

#[tokio::test]
async fn issues_that_are_switched_off_are_not_there() {
    let scene = scene().await;
    let issue = scene.ann.make(&scene.issues, json!({ "title": "x" })).await;
    let off = json!({ "name": "rocket", "issues_enabled": false });
    assert_eq!(scene.ann.put(&format!("/projects/{}", scene.project), off).await.code(), 200);
    assert_eq!(scene.ann.get(&scene.issues).await.text, "[]");
    assert_eq!(scene.ann.get(&scene.one(issue)).await.code(), 404);
    assert_eq!(scene.ann.put(&scene.one(issue), json!({ "title": "y" })).await.code(), 404);
    assert_eq!(scene.ann.post(&scene.issues, json!({ "title": "y" })).await.code(), 403);
    assert_eq!(scene.ann.get("/issues").await.text, "[]");
    assert_eq!(scene.feed(&scene.ann).await, [""; 0]);
    scene.ann.put(&format!("/projects/{}", scene.project), json!({ "name": "rocket", "issues_enabled": true })).await;
    assert_eq!(scene.ann.get(&scene.one(issue)).await.json()["title"], "x", "and come back as they were");
}

#[tokio::test]
async fn an_issue_outlives_its_people() {
    let scene = scene().await;
    let admin = scene.forge.admin().await;
    let issue = scene.gus.make(&scene.issues, json!({ "title": "x" })).await;
    scene.rita.put(&scene.one(issue), json!({ "assignee_id": scene.rita.id })).await;
    for user in [&scene.gus, &scene.rita] {
        assert_eq!(admin.delete(&format!("/users/{}", user.id)).await.code(), 200);
    }
    let left = scene.ann.get(&scene.one(issue)).await.json();
    assert_eq!(json!([left["title"], left["author"], left["assignee"]]), json!(["x", null, null]));
    assert_eq!(scene.ann.get(&scene.issues).await.each("title"), "x");
}

#[tokio::test]
async fn lesson_15_an_issue_is_found_only_in_its_own_project() {
    let scene = scene().await;
    let other = scene.zoe.make("/projects", json!({ "name": "other" })).await;
    let theirs = scene.zoe.make(&format!("/projects/{other}/issues"), json!({ "title": "hers" })).await;
    let milestone = scene.zoe.make(&format!("/projects/{other}/milestones"), json!({ "title": "hers" })).await;
    let before = scene.forge.dump();
    let one = scene.one(theirs);
    for answer in [
        scene.ann.get(&one).await,
        scene.ann.put(&one, json!({ "title": "mine" })).await,
        scene.ann.delete(&one).await,
        scene.ann.post(&format!("{one}/subscription"), json!({})).await,
        scene.ann.delete(&format!("{one}/subscription")).await,
        scene.ann.post(&format!("{one}/move"), json!({ "to_project_id": scene.project })).await,
    ] {
        assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    }
    let foreign = json!({ "title": "x", "milestone_id": milestone });
    assert_eq!(scene.ann.post(&scene.issues, foreign).await.text, r#"{"message":{"milestone":["is invalid"]}}"#);
    assert_eq!(scene.forge.dump(), before);
}

#[tokio::test]
async fn lesson_19_who_left_sees_nothing_any_more() {
    let scene = scene().await;
    let issue = scene.gus.make(&scene.issues, json!({ "title": "x", "confidential": true })).await;
    scene.rita.put(&scene.one(issue), json!({ "assignee_id": scene.gus.id })).await;
    scene.ann.delete(&format!("/projects/{}/members/{}", scene.project, scene.gus.id)).await;
    for path in [scene.issues.clone(), scene.one(issue), format!("{}/notes", scene.one(issue))] {
        assert_eq!(scene.gus.get(&path).await.text, r#"{"message":"404 Project Not Found"}"#, "{path}");
    }
    assert_eq!(scene.gus.get("/issues").await.text, "[]");
    assert!(!scene.gus.get(&format!("/users/{}/events", scene.gus.id)).await.text.contains("Issue"));
    assert_eq!(scene.gus.put(&scene.one(issue), json!({ "title": "y" })).await.code(), 404);
}

#[tokio::test]
async fn lesson_23_reading_changes_nothing() {
    let scene = scene().await;
    let issue = scene.ann.make(&scene.issues, json!({ "title": "x", "labels": "a" })).await;
    let before = scene.forge.dump();
    for path in [scene.issues.clone(), scene.one(issue), "/issues".into(), format!("{}/notes", scene.one(issue))] {
        assert_eq!(scene.ann.get(&path).await.code(), 200, "{path}");
        assert_eq!(scene.ann.head(&path).await.code(), 200, "{path}");
        assert_eq!(scene.ann.get(&format!("{path}?state_event=close&title=y&labels=b")).await.code(), 200, "{path}");
    }
    for path in ["move", "subscription"] {
        assert_eq!(scene.ann.get(&format!("{}/{path}", scene.one(issue))).await.code(), 405, "{path}");
    }
    assert_eq!(scene.forge.dump(), before);
}

#[tokio::test]
async fn labels_of_an_issue_are_made_where_they_are_missing() {
    let scene = scene().await;
    let labels = format!("/projects/{}/labels", scene.project);
    let new = json!({ "name": "known", "color": "#123456" });
    assert_eq!(scene.rita.post(&labels, new).await.code(), 200);
    let titles = json!({ "title": "x", "labels": " new ,known,,<i>new</i>,R&amp;D, known" });
    let written = scene.rita.post(&scene.issues, titles).await.json();
    assert_eq!(written["labels"], json!(["known", "new", "R&D"]));
    let made = scene.rita.get(&labels).await;
    assert_eq!(made.each("name"), "known new R&D");
    assert_eq!(
        (made.each("color"), made.each("open_issues_count")),
        ("#123456 #428BCA #428BCA".into(), "1 1 1".into())
    );
    // As a list, as some clients send them.
    let listed = scene.rita.put(&scene.one(1), json!({ "labels": ["known", "other"] })).await;
    assert_eq!(listed.json()["labels"], json!(["known", "other"]), "{listed}");
    // Who may change the issue but not make labels changes none.
    let mine = scene.gus.make(&scene.issues, json!({ "title": "y", "labels": "known,third" })).await;
    assert_eq!(scene.gus.put(&scene.one(mine), json!({ "labels": "known" })).await.json()["labels"], json!([]));
    let long = json!({ "title": "z", "labels": "x".repeat(256) });
    assert_snapshot!(scene.rita.post(&scene.issues, long).await, @r#"
    400 Bad Request
    {"message":{"labels":["is too long (maximum is 255 characters)"]}}
    "#);
    let many = (0..1001).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    assert_snapshot!(scene.rita.post(&scene.issues, json!({ "title": "z", "labels": many })).await, @r#"
    400 Bad Request
    {"message":{"labels":["are too many (maximum is 1000 labels)"]}}
    "#);
    assert_eq!(scene.rita.get(&labels).await.each("name"), "known new other R&D", "nothing is half done");
}

#[tokio::test]
async fn an_issue_whose_assignee_left_can_still_be_changed() {
    let scene = scene().await;
    let issue = scene.rita.make(&scene.issues, json!({ "title": "x", "assignee_id": scene.gus.id })).await;
    scene.ann.delete(&format!("/projects/{}/members/{}", scene.project, scene.gus.id)).await;
    // As clients do that send the whole issue back.
    let whole = json!({ "title": "y", "assignee_id": scene.gus.id });
    let changed = scene.rita.put(&scene.one(issue), whole).await;
    assert_eq!((changed.code(), &changed.json()["title"]), (200, &json!("y")), "{changed}");
    let other = json!({ "assignee_id": scene.zoe.id });
    assert_eq!(scene.rita.put(&scene.one(issue), other).await.text, r#"{"message":{"assignee":["is invalid"]}}"#);
}
