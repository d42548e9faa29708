//! Issues of projects.

use insta::assert_snapshot;
use model::Role;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge};

/// A forge with a private project: Ann is the owner, Rita a reporter, Gus a guest, and Zoe not a member.
struct Fixture {
    forge: TestForge,
    ann: TestClient,
    rita: TestClient,
    gus: TestClient,
    zoe: TestClient,
    issues: String,
    project: i64,
}

async fn start() -> Fixture {
    start_with(json!({ "name": "rocket" })).await
}

async fn start_with(project: Value) -> Fixture {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let (rita, gus, zoe) = (forge.user("rita").await, forge.user("gus").await, forge.user("zoe").await);
    let project = ann.make("/projects", project).await;
    join(&ann, project, &rita, Role::Reporter).await;
    join(&ann, project, &gus, Role::Guest).await;
    let issues = format!("/projects/{project}/issues");
    Fixture { forge, ann, rita, gus, zoe, issues, project }
}

async fn join(owner: &TestClient, project: i64, user: &TestClient, role: Role) {
    let member = json!({ "user_id": user.id.get(), "access_level": role.level() });
    let joined = owner.post(&format!("/projects/{project}/members"), member).await;
    assert_eq!(joined.code(), 201, "{joined}");
}

impl Fixture {
    fn issue_path(&self, issue: i64) -> String {
        format!("{}/{issue}", self.issues)
    }

    /// Returns the system notes on an issue, oldest first.
    async fn system_notes(&self, issue: i64) -> Vec<String> {
        let notes = self.ann.get(&format!("{}/notes", self.issue_path(issue))).await.json();
        let notes = notes.as_array().expect("notes").iter().filter(|note| note["system"] == true);
        notes.map(|note| note["body"].as_str().expect("a body").to_owned()).collect()
    }

    /// Returns the events of the project with a target, newest first.
    async fn feed(&self, reader: &TestClient) -> Vec<String> {
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
async fn an_issue_is_created_read_updated_and_deleted() {
    let fixture = start().await;
    let milestones = format!("/projects/{}/milestones", fixture.project);
    let milestone = fixture.ann.make(&milestones, json!({ "title": "1.0", "due_date": "2026-02-01" })).await;
    let new = json!({
        "title": " Cracked tile ", "description": "On the *left*.", "assignee_id": fixture.rita.id.get(),
        "milestone_id": milestone, "labels": "bug, heat shield", "due_date": "2026-01-31", "confidential": false,
    });
    assert_snapshot!(fixture.rita.post(&fixture.issues, new).await, @r#"
    201 Created
    {"id":1,"iid":1,"project_id":1,"title":"Cracked tile","description":"On the *left*.","state":"opened","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","labels":["bug","heat shield"],"milestone":{"id":1,"iid":1,"project_id":1,"title":"1.0","description":null,"state":"active","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","due_date":"2026-02-01","start_date":null},"assignee":{"name":"rita","username":"rita","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/b7ae41a762463f41.svg","web_url":"http://gable.test/rita"},"author":{"name":"rita","username":"rita","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/b7ae41a762463f41.svg","web_url":"http://gable.test/rita"},"subscribed":true,"user_notes_count":0,"upvotes":0,"downvotes":0,"due_date":"2026-01-31","confidential":false,"web_url":"http://gable.test/ann/rocket/issues/1"}
    "#);
    assert_snapshot!(fixture.gus.get(&fixture.issue_path(1)).await.json()["subscribed"], @"false");
    let changes = json!({
        "title": "Broken tile", "description": "", "assignee_id": 0, "milestone_id": null, "labels": "bug,urgent",
        "due_date": "", "state_event": "close",
    });
    fixture.forge.clock.advance(jiff::SignedDuration::from_secs(60));
    assert_snapshot!(fixture.rita.put(&fixture.issue_path(1), changes).await, @r#"
    200 OK
    {"id":1,"iid":1,"project_id":1,"title":"Broken tile","description":null,"state":"closed","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:05:05.678Z","labels":["bug","urgent"],"milestone":null,"assignee":null,"author":{"name":"rita","username":"rita","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/b7ae41a762463f41.svg","web_url":"http://gable.test/rita"},"subscribed":true,"user_notes_count":0,"upvotes":0,"downvotes":0,"due_date":null,"confidential":false,"web_url":"http://gable.test/ann/rocket/issues/1"}
    "#);
    assert_eq!(
        fixture.system_notes(1).await,
        [
            "Status changed to closed",
            "Added ~3 and removed ~2 labels",
            "Milestone removed",
            "Assignee removed",
            "Changed title from **Cracked tile** to **Broken tile**",
        ]
    );
    assert_eq!(
        fixture.rita.put(&fixture.issue_path(1), json!({ "state_event": "reopen" })).await.json()["state"],
        "reopened"
    );
    assert_eq!(fixture.rita.put(&fixture.issue_path(1), json!({ "labels": "" })).await.json()["labels"], json!([]));
    assert_eq!(
        fixture.feed(&fixture.gus).await,
        [
            "rita opened Issue Broken tile",
            "rita closed Issue Broken tile",
            "rita opened Issue Broken tile",
            "ann opened Milestone 1.0",
        ]
    );
    assert_snapshot!(fixture.rita.delete(&fixture.issue_path(1)).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    let gone = fixture.ann.delete(&fixture.issue_path(1)).await;
    assert_eq!((gone.code(), &gone.json()["title"]), (200, &json!("Broken tile")));
    for response in [fixture.ann.get(&fixture.issue_path(1)).await, fixture.ann.delete(&fixture.issue_path(1)).await] {
        assert_eq!((response.code(), response.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    }
    assert_eq!(fixture.feed(&fixture.ann).await, ["ann opened Milestone 1.0"], "its events are deleted too");
    // The iid is not reused.
    assert_eq!(fixture.ann.post(&fixture.issues, json!({ "title": "next" })).await.json()["iid"], 2);
}

#[tokio::test]
async fn invalid_issues_are_rejected() {
    let fixture = start().await;
    let check = async |body: Value, code: u16, expected: &str| {
        let response = fixture.ann.post(&fixture.issues, body.clone()).await;
        assert_eq!((response.code(), response.text.as_str()), (code, expected), "{body}");
    };
    check(json!({}), 400, r#"{"error":"title is missing"}"#).await;
    check(json!({ "title": " " }), 400, r#"{"message":{"title":["can't be blank"]}}"#).await;
    let long = "x".repeat(10_000);
    let too_long = r#"{"message":{"title":["is too long (maximum is 255 characters)"]}}"#;
    check(json!({ "title": long }), 400, too_long).await;
    check(json!({ "title": "x", "due_date": "soon" }), 400, r#"{"error":"due_date is invalid"}"#).await;
    check(json!({ "title": "x", "assignee_id": 99 }), 400, r#"{"message":{"assignee":["is invalid"]}}"#).await;
    check(
        json!({ "title": "x", "assignee_id": fixture.zoe.id.get() }),
        400,
        r#"{"message":{"assignee":["is invalid"]}}"#,
    )
    .await;
    check(json!({ "title": "x", "milestone_id": 99 }), 400, r#"{"message":{"milestone":["is invalid"]}}"#).await;
    check(json!({ "title": "x\u{0}y" }), 400, r#"{"error":"title is invalid"}"#).await;
    check(json!({ "title": "x\ny" }), 400, r#"{"message":{"title":["is invalid"]}}"#).await;
    check(json!({ "title": ["x"] }), 400, r#"{"error":"title is invalid"}"#).await;
    check(json!({ "title": "x", "confidential": "perhaps" }), 400, r#"{"error":"confidential is invalid"}"#).await;
    check(json!({ "title": "x", "created_at": "then" }), 400, r#"{"error":"created_at is invalid"}"#).await;
    assert_eq!(fixture.ann.get(&fixture.issues).await.text, "[]", "nothing was stored");
    assert_eq!(fixture.ann.get(&format!("/projects/{}/labels", fixture.project)).await.text, "[]");

    let issue = fixture.ann.make(&fixture.issues, json!({ "title": "x" })).await;
    let check = async |body: Value, expected: &str| {
        let response = fixture.ann.put(&fixture.issue_path(issue), body.clone()).await;
        assert_eq!((response.code(), response.text.as_str()), (400, expected), "{body}");
    };
    check(json!({ "state_event": "explode" }), r#"{"error":"state_event does not have a valid value"}"#).await;
    check(json!({ "title": "" }), r#"{"message":{"title":["can't be blank"]}}"#).await;
    let nothing = "title, description, assignee_id, milestone_id, labels, due_date, confidential, state_event, updated_at \
                   are missing, at least one parameter must be provided";
    check(json!({}), &json!({ "error": nothing }).to_string()).await;
    assert_snapshot!(fixture.ann.get(&format!("{}/x", fixture.issues)).await, @r#"
    400 Bad Request
    {"error":"issue_id is invalid"}
    "#);
    assert_eq!(fixture.system_notes(issue).await, [""; 0]);
}

#[tokio::test]
async fn without_the_permission_to_manage_issues_only_the_text_is_stored() {
    let fixture = start().await;
    fixture.ann.make(&format!("/projects/{}/milestones", fixture.project), json!({ "title": "1.0" })).await;
    let new = json!({
        "title": "From a guest", "assignee_id": fixture.rita.id.get(), "milestone_id": 1, "labels": "bug",
        "due_date": "2026-03-01", "created_at": "2020-01-01T00:00:00Z",
    });
    let written = fixture.gus.post(&fixture.issues, new.clone()).await;
    let fields = |response: &Value| {
        let part = |name: &str| response[name].clone();
        json!([part("assignee"), part("milestone"), part("labels"), part("due_date"), part("created_at")])
    };
    let plain = json!([null, null, [], null, "2026-01-02T03:04:05.678Z"]);
    assert_eq!((written.code(), fields(&written.json())), (201, plain.clone()), "{written}");
    let changed = fixture.gus.put(&fixture.issue_path(1), new).await;
    assert_eq!((changed.code(), fields(&changed.json())), (200, plain), "{changed}");
    // The author can close the issue; another guest cannot.
    assert_eq!(
        fixture.gus.put(&fixture.issue_path(1), json!({ "state_event": "close" })).await.json()["state"],
        "closed"
    );
    join(&fixture.ann, fixture.project, &fixture.zoe, Role::Guest).await;
    assert_eq!(fixture.zoe.put(&fixture.issue_path(1), json!({ "state_event": "reopen" })).await.code(), 403);
    // The assignee can.
    fixture.rita.put(&fixture.issue_path(1), json!({ "assignee_id": fixture.zoe.id.get() })).await;
    assert_eq!(
        fixture.zoe.put(&fixture.issue_path(1), json!({ "state_event": "reopen" })).await.json()["state"],
        "reopened"
    );
    assert_eq!(fixture.system_notes(1).await.last().map(String::as_str), Some("Status changed to reopened"));
    // The owner can set the time of creation.
    let old = json!({ "title": "old", "created_at": "2016-11-22T12:15:30.123+02:00" });
    assert_eq!(fixture.ann.post(&fixture.issues, old).await.json()["created_at"], "2016-11-22T10:15:30.123Z");
}

#[tokio::test]
async fn closing_a_closed_issue_does_nothing() {
    let fixture = start().await;
    let issue = fixture.ann.make(&fixture.issues, json!({ "title": "x", "labels": "a" })).await;
    fixture.ann.put(&fixture.issue_path(issue), json!({ "state_event": "close" })).await;
    let closed = fixture.ann.get(&fixture.issue_path(issue)).await.text;
    fixture.forge.clock.advance(jiff::SignedDuration::from_secs(60));
    let again = json!({ "state_event": "close", "labels": "a", "title": "x", "confidential": false });
    assert_eq!(fixture.ann.put(&fixture.issue_path(issue), again).await.text, closed);
    assert_eq!((fixture.system_notes(issue).await.len(), fixture.feed(&fixture.ann).await.len()), (1, 2));
}

#[tokio::test]
async fn lists_are_filtered_sorted_and_paginated() {
    let fixture = start().await;
    fixture.ann.make(&format!("/projects/{}/milestones", fixture.project), json!({ "title": "1.0" })).await;
    for (title, labels, milestone) in
        [("one", "bug", 1), ("two", "bug,urgent", 0), ("three", "", 1), ("four", "urgent", 0)]
    {
        fixture.forge.clock.advance(jiff::SignedDuration::from_secs(1));
        let new = json!({ "title": title, "labels": labels, "milestone_id": milestone, "description": "100% Über" });
        fixture.ann.make(&fixture.issues, new).await;
    }
    fixture.forge.clock.advance(jiff::SignedDuration::from_secs(1));
    fixture.ann.put(&fixture.issue_path(1), json!({ "state_event": "close" })).await;
    fixture.ann.put(&fixture.issue_path(2), json!({ "state_event": "close" })).await;
    fixture.forge.clock.advance(jiff::SignedDuration::from_secs(1));
    fixture.ann.put(&fixture.issue_path(2), json!({ "state_event": "reopen" })).await;
    let check = async |query: &str, expected: &str| {
        let response = fixture.gus.get(&format!("{}{query}", fixture.issues)).await;
        let total = response.header("x-total").to_owned();
        let amount = if expected.is_empty() { 0 } else { expected.split(' ').count() };
        assert_eq!(
            (response.join_field("iid"), total),
            (expected.to_owned(), amount.to_string()),
            "{query}: {response}"
        );
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
    let page = fixture.gus.get(&format!("{}?per_page=3&page=2", fixture.issues)).await;
    assert_eq!((page.join_field("iid"), page.header("x-total")), ("1".into(), "4"));
    let many = (0..1001).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let refused = fixture.gus.json(axum::http::Method::GET, &fixture.issues, json!({ "labels": many })).await;
    assert_eq!(refused.text, r#"{"message":{"labels":["are too many (maximum is 1000 labels)"]}}"#);
    for (query, expected) in [
        ("?state=odd", "state does not have a valid value"),
        ("?order_by=title", "order_by does not have a valid value"),
        ("?sort=up", "sort does not have a valid value"),
        ("?iid=x", "iid is invalid"),
    ] {
        let response = fixture.gus.get(&format!("{}{query}", fixture.issues)).await;
        assert_eq!((response.code(), response.json()), (400, json!({ "error": expected })), "{query}");
    }
    // Title and description contain one part each, but neither contains the whole term.
    check("?search=one100", "").await;
}

#[tokio::test]
async fn own_issues_are_listed_in_visible_projects() {
    let fixture = start().await;
    let other = fixture.ann.make("/projects", json!({ "name": "other", "visibility_level": 20 })).await;
    fixture.gus.make(&fixture.issues, json!({ "title": "here" })).await;
    fixture.gus.make(&format!("/projects/{other}/issues"), json!({ "title": "there", "confidential": true })).await;
    fixture.ann.make(&fixture.issues, json!({ "title": "hers" })).await;
    assert_eq!(fixture.gus.get("/issues").await.join_field("title"), "there here");
    assert_eq!(fixture.gus.get("/issues?state=closed").await.text, "[]");
    assert_eq!(fixture.gus.get("/issues?search=here&sort=asc").await.join_field("title"), "here there");
    assert_eq!(fixture.rita.get("/issues").await.text, "[]");
    assert_eq!(fixture.forge.anonymous().get("/issues").await.code(), 401);
    // Former members do not see their own issues.
    fixture.ann.delete(&format!("/projects/{}/members/{}", fixture.project, fixture.gus.id)).await;
    let left = fixture.gus.get("/issues").await;
    assert_eq!((left.join_field("title"), left.header("x-total")), ("there".into(), "1"));
    fixture.ann.put(&format!("/projects/{other}"), json!({ "name": "other", "issues_enabled": false })).await;
    assert_eq!(fixture.gus.get("/issues").await.text, "[]");
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
    assert_eq!(ann.get(&list).await.join_field("title"), "hidden seen", "open issues by default");
    assert_eq!(ann.get(&format!("{list}?state=all&sort=asc")).await.join_field("title"), "seen hidden private");
    assert_eq!(ann.get(&format!("{list}?state=all&labels=a,b")).await.join_field("title"), "seen", "all labels");
    assert_eq!(bob.get(&format!("{list}?state=all")).await.join_field("title"), "seen");
    assert_eq!(bob.get("/groups/99/issues").await.code(), 404);
    assert_eq!(bob.get("/groups/acme/issues").await.header("x-total"), "1");
}

#[tokio::test]
async fn a_confidential_issue_is_visible_to_its_author_assignee_and_reporters() {
    let fixture = start_with(json!({ "name": "rocket", "visibility_level": 20 })).await;
    let hugo = fixture.forge.user("hugo").await;
    let new = json!({ "title": "a hole", "confidential": true, "labels": "bug" });
    let mine = fixture.gus.make(&fixture.issues, new).await;
    fixture.rita.put(&fixture.issue_path(mine), json!({ "labels": "bug" })).await;
    fixture.zoe.make(&fixture.issues, json!({ "title": "a scratch" })).await;
    let note = json!({ "body": "the airlock" });
    assert_eq!(fixture.gus.post(&format!("{}/notes", fixture.issue_path(mine)), note).await.code(), 201);
    let admin = fixture.forge.admin().await;
    for (who, sees) in [
        (&fixture.ann, true),
        (&fixture.rita, true),
        (&fixture.gus, true),
        (&admin, true),
        (&hugo, false),
        (&fixture.zoe, false),
    ] {
        let seen = |yes: &str, no: &str| if sees { yes.to_owned() } else { no.to_owned() };
        assert_eq!(who.get(&fixture.issue_path(mine)).await.code(), if sees { 200 } else { 404 });
        assert_eq!(who.get(&format!("{}/notes", fixture.issue_path(mine))).await.code(), if sees { 200 } else { 404 });
        let list = who.get(&fixture.issues).await;
        assert_eq!(list.join_field("title"), seen("a scratch a hole", "a scratch"));
        assert_eq!(list.header("x-total"), seen("2", "1"));
        assert_eq!(who.get(&format!("{}?search=hole", fixture.issues)).await.join_field("title"), seen("a hole", ""));
        assert_eq!(who.get(&format!("{}?labels=bug", fixture.issues)).await.header("x-total"), seen("1", "0"));
        assert_eq!(who.get(&format!("{}?iid=1", fixture.issues)).await.join_field("iid"), seen("1", ""));
        let labels = who.get(&format!("/projects/{}/labels", fixture.project)).await.json();
        assert_eq!(labels[0]["open_issues_count"].to_string(), seen("1", "0"), "{labels}");
        for feed in [format!("/projects/{}/events", fixture.project), format!("/users/{}/events", fixture.gus.id)] {
            let events = who.get(&feed).await;
            assert_eq!(events.text.contains("a hole"), sees, "{feed}: {events}");
            assert_eq!(events.text.contains("the airlock"), sees, "{feed}: {events}");
            let shown = events.json().as_array().expect("events").len();
            assert_eq!(events.header("x-total"), shown.to_string(), "{feed}");
        }
    }
    // Confidential issues are not counted for users who do not see them.
    let count = async |who: &TestClient| {
        who.get(&format!("/projects/{}", fixture.project)).await.json()["open_issues_count"].clone()
    };
    assert_eq!((count(&fixture.rita).await, count(&hugo).await), (json!(2), json!(1)));
    // Other users cannot change the issue, nor detect that it exists.
    for response in [
        hugo.put(&fixture.issue_path(mine), json!({ "title": "x" })).await,
        hugo.post(&format!("{}/subscription", fixture.issue_path(mine)), json!({})).await,
        hugo.post(&format!("{}/move", fixture.issue_path(mine)), json!({ "to_project_id": 1 })).await,
        hugo.post(&format!("{}/notes", fixture.issue_path(mine)), json!({ "body": "x" })).await,
        hugo.delete(&fixture.issue_path(mine)).await,
    ] {
        assert_eq!((response.code(), response.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    }
    // The assignee sees the issue, as long as it is assigned to them.
    fixture.rita.put(&fixture.issue_path(mine), json!({ "assignee_id": hugo.id.get() })).await;
    assert_eq!(hugo.get(&fixture.issue_path(mine)).await.json()["title"], "a hole");
    fixture.rita.put(&fixture.issue_path(mine), json!({ "assignee_id": 0 })).await;
    assert_eq!(hugo.get(&fixture.issue_path(mine)).await.code(), 404);
    // When the issue becomes public, so do its events.
    let secret = fixture.gus.put(&fixture.issue_path(mine), json!({ "confidential": false, "title": "a hole" })).await;
    assert_eq!(secret.json()["confidential"], true, "guests cannot publish a confidential issue");
    fixture.rita.put(&fixture.issue_path(mine), json!({ "confidential": false })).await;
    assert_eq!(hugo.get(&fixture.issues).await.join_field("title"), "a scratch a hole");
    assert!(fixture.feed(&hugo).await.contains(&"gus opened Issue a hole".to_owned()));
    fixture.rita.put(&fixture.issue_path(mine), json!({ "confidential": true })).await;
    assert!(!fixture.feed(&hugo).await.contains(&"gus opened Issue a hole".to_owned()));
    let system_notes = fixture.system_notes(mine).await;
    assert_eq!(system_notes[system_notes.len() - 2..], ["Made the issue visible", "Made the issue confidential"]);
}

#[tokio::test]
async fn users_subscribe_to_issues() {
    let fixture = start().await;
    let issue = fixture.gus.make(&fixture.issues, json!({ "title": "x" })).await;
    let path = format!("{}/subscription", fixture.issue_path(issue));
    assert_eq!(fixture.gus.post(&path, json!({})).await.code(), 304, "the author is subscribed");
    assert_eq!(fixture.rita.delete(&path).await.text, "", "other users are not");
    let followed = fixture.rita.post(&path, json!({})).await;
    assert_eq!((followed.code(), &followed.json()["subscribed"]), (201, &json!(true)));
    assert_eq!(fixture.rita.post(&path, json!({})).await.code(), 304);
    let left = fixture.gus.delete(&path).await;
    assert_eq!((left.code(), &left.json()["subscribed"]), (200, &json!(false)));
    assert_eq!(fixture.gus.get(&fixture.issues).await.json()[0]["subscribed"], false);
    assert_eq!(fixture.rita.get(&fixture.issues).await.json()[0]["subscribed"], true);
    assert_eq!(fixture.ann.get(&fixture.issue_path(issue)).await.json()["subscribed"], false);
    fixture.ann.post(&format!("{}/notes", fixture.issue_path(issue)), json!({ "body": "hm" })).await;
    assert_eq!(
        fixture.ann.get(&fixture.issue_path(issue)).await.json()["subscribed"],
        true,
        "commenters are subscribed"
    );
}

#[tokio::test]
async fn an_issue_moves_to_another_project_with_its_notes() {
    let fixture = start().await;
    let other = fixture.ann.make("/projects", json!({ "name": "other" })).await;
    join(&fixture.ann, other, &fixture.rita, Role::Reporter).await;
    for project in [fixture.project, other] {
        fixture.ann.make(&format!("/projects/{project}/milestones"), json!({ "title": "1.0" })).await;
    }
    let label = json!({ "name": "bug", "color": "#fff" });
    assert_eq!(fixture.ann.post(&format!("/projects/{other}/labels"), label).await.json()["name"], "bug");
    let new = json!({
        "title": "tile", "description": "left", "labels": "bug,here", "milestone_id": 1, "assignee_id": fixture.gus.id.get(),
        "confidential": true,
    });
    fixture.rita.make(&fixture.issues, new).await;
    fixture.gus.post(&format!("{}/notes", fixture.issue_path(1)), json!({ "body": "I see it" })).await;
    let to = json!({ "to_project_id": other });
    fixture.forge.clock.advance(jiff::SignedDuration::from_secs(60));
    let moved = fixture.rita.post(&format!("{}/move", fixture.issue_path(1)), to.clone()).await;
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
    let notes = fixture.rita.get(&format!("/projects/{other}/issues/2/notes")).await.json();
    assert_eq!((&notes[0]["body"], &notes[1]["body"]), (&json!("I see it"), &json!("Moved from another project")));
    assert_eq!(notes[0]["author"]["username"], "gus");
    let old = fixture.rita.get(&fixture.issue_path(1)).await.json();
    assert_eq!(
        (&old["state"], fixture.system_notes(1).await),
        (&json!("closed"), vec!["Moved to another project".to_owned()])
    );
    // An issue cannot be moved twice.
    assert_snapshot!(fixture.rita.post(&format!("{}/move", fixture.issue_path(1)), to).await, @r#"
    400 Bad Request
    {"message":"Cannot move issue due to insufficient permissions!"}
    "#);
    let issue = fixture.rita.make(&fixture.issues, json!({ "title": "stays" })).await;
    let path = format!("{}/move", fixture.issue_path(issue));
    assert_snapshot!(fixture.rita.post(&path, json!({ "to_project_id": fixture.project })).await, @r#"
    400 Bad Request
    {"message":"Cannot move issue to project it originates from!"}
    "#);
    let elsewhere = fixture.zoe.make("/projects", json!({ "name": "elsewhere", "visibility_level": 20 })).await;
    assert_snapshot!(fixture.rita.post(&path, json!({ "to_project_id": elsewhere })).await, @r#"
    400 Bad Request
    {"message":"Cannot move issue due to insufficient permissions!"}
    "#);
    let hidden = fixture.zoe.make("/projects", json!({ "name": "hidden" })).await;
    assert_snapshot!(fixture.rita.post(&path, json!({ "to_project_id": hidden })).await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_snapshot!(fixture.rita.post(&path, json!({})).await, @r#"
    400 Bad Request
    {"error":"to_project_id is missing"}
    "#);
    assert_eq!(
        fixture.gus.post(&path, json!({ "to_project_id": elsewhere })).await.text,
        r#"{"message":"Cannot move issue due to insufficient permissions!"}"#
    );
    assert_eq!(fixture.rita.get(&fixture.issue_path(issue)).await.json()["state"], "opened");
}

#[tokio::test]
async fn a_move_does_not_reveal_a_private_project() {
    let fixture = start_with(json!({ "name": "rocket", "visibility_level": 20 })).await;
    let hidden = fixture.ann.make("/projects", json!({ "name": "hidden" })).await;
    let issue = fixture.ann.make(&fixture.issues, json!({ "title": "x" })).await;
    fixture.ann.post(&format!("{}/move", fixture.issue_path(issue)), json!({ "to_project_id": hidden })).await;
    assert_eq!(fixture.system_notes(issue).await, ["Moved to another project"]);
    let there = fixture.ann.get(&format!("/projects/{hidden}/issues/2/notes")).await.json();
    assert_eq!(there[0]["body"], "Moved from ann/rocket#1");
    // A second move does not reveal the former project either.
    let open = fixture.ann.make("/projects", json!({ "name": "open", "visibility_level": 20 })).await;
    let path = format!("/projects/{hidden}/issues/2/move");
    assert_eq!(fixture.ann.post(&path, json!({ "to_project_id": open })).await.code(), 201);
    let there = fixture.ann.get(&format!("/projects/{open}/issues/3/notes")).await;
    assert_eq!(there.join_field("body"), "Moved from another project");
}

#[tokio::test]
async fn disabled_issues_are_not_found() {
    let fixture = start().await;
    let issue = fixture.ann.make(&fixture.issues, json!({ "title": "x" })).await;
    let off = json!({ "name": "rocket", "issues_enabled": false });
    assert_eq!(fixture.ann.put(&format!("/projects/{}", fixture.project), off).await.code(), 200);
    assert_eq!(fixture.ann.get(&fixture.issues).await.text, "[]");
    assert_eq!(fixture.ann.get(&fixture.issue_path(issue)).await.code(), 404);
    assert_eq!(fixture.ann.put(&fixture.issue_path(issue), json!({ "title": "y" })).await.code(), 404);
    assert_eq!(fixture.ann.post(&fixture.issues, json!({ "title": "y" })).await.code(), 403);
    assert_eq!(fixture.ann.get("/issues").await.text, "[]");
    assert_eq!(fixture.feed(&fixture.ann).await, [""; 0]);
    fixture
        .ann
        .put(&format!("/projects/{}", fixture.project), json!({ "name": "rocket", "issues_enabled": true }))
        .await;
    assert_eq!(fixture.ann.get(&fixture.issue_path(issue)).await.json()["title"], "x", "nothing is lost");
}

#[tokio::test]
async fn an_issue_outlives_its_author_and_assignee() {
    let fixture = start().await;
    let admin = fixture.forge.admin().await;
    let issue = fixture.gus.make(&fixture.issues, json!({ "title": "x" })).await;
    fixture.rita.put(&fixture.issue_path(issue), json!({ "assignee_id": fixture.rita.id.get() })).await;
    for user in [&fixture.gus, &fixture.rita] {
        assert_eq!(admin.delete(&format!("/users/{}", user.id)).await.code(), 200);
    }
    let left = fixture.ann.get(&fixture.issue_path(issue)).await.json();
    assert_eq!(json!([left["title"], left["author"], left["assignee"]]), json!(["x", null, null]));
    assert_eq!(fixture.ann.get(&fixture.issues).await.join_field("title"), "x");
}

#[tokio::test]
async fn an_issue_is_found_only_in_its_own_project() {
    let fixture = start().await;
    let other = fixture.zoe.make("/projects", json!({ "name": "other" })).await;
    let theirs = fixture.zoe.make(&format!("/projects/{other}/issues"), json!({ "title": "hers" })).await;
    let milestone = fixture.zoe.make(&format!("/projects/{other}/milestones"), json!({ "title": "hers" })).await;
    let before = fixture.forge.dump();
    let issue_path = fixture.issue_path(theirs);
    for response in [
        fixture.ann.get(&issue_path).await,
        fixture.ann.put(&issue_path, json!({ "title": "mine" })).await,
        fixture.ann.delete(&issue_path).await,
        fixture.ann.post(&format!("{issue_path}/subscription"), json!({})).await,
        fixture.ann.delete(&format!("{issue_path}/subscription")).await,
        fixture.ann.post(&format!("{issue_path}/move"), json!({ "to_project_id": fixture.project })).await,
    ] {
        assert_eq!((response.code(), response.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    }
    let foreign = json!({ "title": "x", "milestone_id": milestone });
    assert_eq!(fixture.ann.post(&fixture.issues, foreign).await.text, r#"{"message":{"milestone":["is invalid"]}}"#);
    assert_eq!(fixture.forge.dump(), before);
}

#[tokio::test]
async fn a_former_member_sees_no_issues() {
    let fixture = start().await;
    let issue = fixture.gus.make(&fixture.issues, json!({ "title": "x", "confidential": true })).await;
    fixture.rita.put(&fixture.issue_path(issue), json!({ "assignee_id": fixture.gus.id.get() })).await;
    fixture.ann.delete(&format!("/projects/{}/members/{}", fixture.project, fixture.gus.id)).await;
    for path in [fixture.issues.clone(), fixture.issue_path(issue), format!("{}/notes", fixture.issue_path(issue))] {
        assert_eq!(fixture.gus.get(&path).await.text, r#"{"message":"404 Project Not Found"}"#, "{path}");
    }
    assert_eq!(fixture.gus.get("/issues").await.text, "[]");
    assert!(!fixture.gus.get(&format!("/users/{}/events", fixture.gus.id)).await.text.contains("Issue"));
    assert_eq!(fixture.gus.put(&fixture.issue_path(issue), json!({ "title": "y" })).await.code(), 404);
}

#[tokio::test]
async fn reading_issues_writes_nothing() {
    let fixture = start().await;
    let issue = fixture.ann.make(&fixture.issues, json!({ "title": "x", "labels": "a" })).await;
    let before = fixture.forge.dump();
    for path in [
        fixture.issues.clone(),
        fixture.issue_path(issue),
        "/issues".into(),
        format!("{}/notes", fixture.issue_path(issue)),
    ] {
        assert_eq!(fixture.ann.get(&path).await.code(), 200, "{path}");
        assert_eq!(fixture.ann.head(&path).await.code(), 200, "{path}");
        assert_eq!(fixture.ann.get(&format!("{path}?state_event=close&title=y&labels=b")).await.code(), 200, "{path}");
    }
    for path in ["move", "subscription"] {
        assert_eq!(fixture.ann.get(&format!("{}/{path}", fixture.issue_path(issue))).await.code(), 405, "{path}");
    }
    assert_eq!(fixture.forge.dump(), before);
}

#[tokio::test]
async fn missing_labels_of_an_issue_are_created() {
    let fixture = start().await;
    let labels = format!("/projects/{}/labels", fixture.project);
    let new = json!({ "name": "known", "color": "#123456" });
    assert_eq!(fixture.rita.post(&labels, new).await.code(), 200);
    let titles = json!({ "title": "x", "labels": " new ,known,,<i>new</i>,R&amp;D, known" });
    let written = fixture.rita.post(&fixture.issues, titles).await.json();
    assert_eq!(written["labels"], json!(["known", "new", "R&D"]));
    let made = fixture.rita.get(&labels).await;
    assert_eq!(made.join_field("name"), "known new R&D");
    assert_eq!(
        (made.join_field("color"), made.join_field("open_issues_count")),
        ("#123456 #428BCA #428BCA".into(), "1 1 1".into())
    );
    // Some clients send an array.
    let listed = fixture.rita.put(&fixture.issue_path(1), json!({ "labels": ["known", "other"] })).await;
    assert_eq!(listed.json()["labels"], json!(["known", "other"]), "{listed}");
    // Users who may change the issue but not manage issues cannot set labels.
    let mine = fixture.gus.make(&fixture.issues, json!({ "title": "y", "labels": "known,third" })).await;
    assert_eq!(
        fixture.gus.put(&fixture.issue_path(mine), json!({ "labels": "known" })).await.json()["labels"],
        json!([])
    );
    let long = json!({ "title": "z", "labels": "x".repeat(256) });
    assert_snapshot!(fixture.rita.post(&fixture.issues, long).await, @r#"
    400 Bad Request
    {"message":{"labels":["is too long (maximum is 255 characters)"]}}
    "#);
    let many = (0..1001).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    assert_snapshot!(fixture.rita.post(&fixture.issues, json!({ "title": "z", "labels": many })).await, @r#"
    400 Bad Request
    {"message":{"labels":["are too many (maximum is 1000 labels)"]}}
    "#);
    assert_eq!(fixture.rita.get(&labels).await.join_field("name"), "known new other R&D", "nothing was stored");
}

#[tokio::test]
async fn an_issue_whose_assignee_left_can_still_be_changed() {
    let fixture = start().await;
    let issue = fixture.rita.make(&fixture.issues, json!({ "title": "x", "assignee_id": fixture.gus.id.get() })).await;
    fixture.ann.delete(&format!("/projects/{}/members/{}", fixture.project, fixture.gus.id)).await;
    // Some clients send all fields back.
    let whole = json!({ "title": "y", "assignee_id": fixture.gus.id.get() });
    let changed = fixture.rita.put(&fixture.issue_path(issue), whole).await;
    assert_eq!((changed.code(), &changed.json()["title"]), (200, &json!("y")), "{changed}");
    let other = json!({ "assignee_id": fixture.zoe.id.get() });
    assert_eq!(
        fixture.rita.put(&fixture.issue_path(issue), other).await.text,
        r#"{"message":{"assignee":["is invalid"]}}"#
    );
}
