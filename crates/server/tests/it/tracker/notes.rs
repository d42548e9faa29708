//! Notes on issues.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{Issue, IssueId, NoteId, ProjectId, UserId};
use serde_json::{Value, json};
use store::{IssueVisibility, issues::NewIssue, notes::NewNote};
use testkit::{TestClient, TestForge};

/// A forge with a private project of Ann's and members with different roles.
struct Fixture {
    forge: TestForge,
    project: ProjectId,
    /// The owner of the project.
    ann: TestClient,
    guest: TestClient,
    reporter: TestClient,
    master: TestClient,
    /// Not a member.
    eve: TestClient,
}

impl Fixture {
    async fn new() -> Self {
        Self::at(TestForge::start().await).await
    }

    async fn at(forge: TestForge) -> Self {
        let ann = forge.user("ann").await;
        let project = ProjectId::new(ann.make("/projects", json!({ "name": "rocket" })).await);
        let mut members = Vec::new();
        for (name, level) in [("gus", 10), ("rep", 20), ("max", 40)] {
            let user = forge.user(name).await;
            let member = json!({ "user_id": user.id.get(), "access_level": level });
            assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
            members.push(user);
        }
        let [guest, reporter, master] = members.try_into().unwrap_or_else(|_| panic!("three"));
        let eve = forge.user("eve").await;
        Self { forge, project, ann, guest, reporter, master, eve }
    }

    fn issue(&self, author: &TestClient, confidential: bool) -> IssueId {
        issue_in(&self.forge, self.project, author, confidential)
    }

    fn notes(&self, issue: IssueId) -> String {
        format!("/projects/{}/issues/{issue}/notes", self.project)
    }

    /// Inserts a system note.
    fn system_note(&self, issue: IssueId, author: &TestClient, body: &str) -> NoteId {
        let (project, now) = (self.project, self.forge.forge.now());
        let note = NewNote { project, issue, author: author.id, body, system: true, now };
        self.forge.in_transaction(|db| store::notes::insert(db, &note).expect("a note"))
    }

    fn load_issue(&self, issue: IssueId) -> Issue {
        let all = IssueVisibility { user: UserId::ANONYMOUS, confidential: true };
        let found = self.forge.with_connection(|db| store::issues::find(db, &all, self.project, issue).expect("asked"));
        found.expect("an issue")
    }
}

fn issue_in(forge: &TestForge, project: ProjectId, author: &TestClient, confidential: bool) -> IssueId {
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        let iid = store::issues::next_iid(db, project).expect("a number");
        let new = NewIssue {
            project,
            iid,
            author: Some(author.id),
            title: "It leaks",
            description: None,
            assignee: None,
            milestone: None,
            due_on: None,
            confidential,
            created_at: now,
            now,
        };
        store::issues::insert(db, &new).expect("an issue")
    })
}

fn with_body(body: &str) -> Value {
    json!({ "body": body })
}

#[tokio::test]
async fn a_note_is_created_read_updated_and_deleted() {
    let fixture = Fixture::new().await;
    let issue = fixture.issue(&fixture.ann, false);
    let notes = fixture.notes(issue);
    assert_snapshot!(fixture.guest.post(&notes, with_body(" It *still* leaks\n")).await, @r#"
    201 Created
    {"id":1,"body":" It *still* leaks\n","attachment":null,"author":{"name":"gus","username":"gus","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/ebbe2bbc5d008989.svg","web_url":"http://gable.test/gus"},"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","system":false,"noteable_id":1,"noteable_type":"Issue","upvote":false,"downvote":false,"upvote?":false,"downvote?":false}
    "#);
    fixture.forge.clock.advance(SignedDuration::from_mins(1));
    fixture.system_note(issue, &fixture.ann, "Status changed to closed");
    assert_eq!(fixture.ann.post(&notes, with_body("Not any more")).await.code(), 201);
    let listed = fixture.reporter.get(&notes).await;
    assert_eq!((listed.join_field("id"), listed.join_field("system")), ("1 2 3".into(), "false true false".into()));
    assert_eq!(listed.join_field("noteable_id"), format!("{issue} {issue} {issue}"));
    assert_eq!(listed.header("x-total"), "3");
    let second = fixture.ann.get(&format!("{notes}?per_page=2&page=2")).await;
    assert_eq!((second.join_field("body"), second.header("x-prev-page")), ("Not any more".into(), "1"));
    assert_eq!(fixture.guest.get(&format!("{notes}/3")).await.json(), listed.json()[2]);

    assert_snapshot!(fixture.guest.put(&format!("{notes}/1"), with_body("Mended")).await, @r#"
    200 OK
    {"id":1,"body":"Mended","attachment":null,"author":{"name":"gus","username":"gus","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/ebbe2bbc5d008989.svg","web_url":"http://gable.test/gus"},"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:05:05.678Z","system":false,"noteable_id":1,"noteable_type":"Issue","upvote":false,"downvote":false,"upvote?":false,"downvote?":false}
    "#);
    assert_eq!(fixture.guest.get(&format!("{notes}/1")).await.json()["body"], "Mended");
    let removed = fixture.guest.delete(&format!("{notes}/1")).await;
    assert_eq!((removed.code(), &removed.json()["body"]), (200, &json!("Mended")));
    for gone in [fixture.guest.get(&format!("{notes}/1")).await, fixture.guest.delete(&format!("{notes}/1")).await] {
        assert_eq!(gone.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    }
    assert_eq!(fixture.guest.get(&notes).await.join_field("id"), "2 3");
}

#[tokio::test]
async fn a_note_is_counted_records_an_event_and_touches_its_issue() {
    let fixture = Fixture::new().await;
    let issue = fixture.issue(&fixture.ann, false);
    let (notes, written) = (fixture.notes(issue), fixture.load_issue(issue).updated_at);
    let minute = SignedDuration::from_mins(1);
    fixture.forge.clock.advance(minute);
    let note = fixture.guest.make(&notes, with_body("one")).await;
    fixture.system_note(issue, &fixture.ann, "Status changed to closed");
    fixture.guest.make(&notes, with_body("two")).await;
    let seen = fixture.load_issue(issue);
    assert_eq!((seen.user_notes, seen.updated_at), (2, written + minute), "system notes are not counted");

    let events_path = format!("/projects/{}/events?per_page=2", fixture.project);
    let events = fixture.ann.get(&events_path).await;
    assert_eq!(events.join_field("action_name"), "commented on commented on");
    assert_eq!(
        (events.join_field("target_type"), events.join_field("target_id")),
        ("Note Note".into(), format!("3 {note}"))
    );
    assert_eq!(events.join_field("author_username"), "gus gus");
    let total: i64 = events.header("x-total").parse().expect("a number");

    // Updates and deletions record no event but touch the issue; the event of a deleted note is deleted.
    for (code, change) in [(200, "PUT"), (200, "DELETE")] {
        fixture.forge.clock.advance(minute);
        let path = format!("{notes}/{note}");
        let response = if change == "PUT" {
            fixture.guest.put(&path, with_body("other")).await
        } else {
            fixture.guest.delete(&path).await
        };
        assert_eq!(
            (response.code(), fixture.load_issue(issue).updated_at),
            (code, fixture.forge.forge.now()),
            "{change}"
        );
    }
    assert_eq!(fixture.load_issue(issue).user_notes, 1);
    let events = fixture.ann.get(&events_path).await;
    assert_eq!(
        (events.json()[0]["target_id"].clone(), events.header("x-total")),
        (json!(3), &*(total - 1).to_string())
    );
}

#[tokio::test]
async fn invalid_notes_are_rejected() {
    let fixture = Fixture::at(TestForge::builder().body_limit(4 << 20).start().await).await;
    let issue = fixture.issue(&fixture.ann, false);
    let notes = fixture.notes(issue);
    let note = format!("{notes}/{}", fixture.ann.make(&notes, with_body("one")).await);
    let before = fixture.forge.dump();
    assert_snapshot!(fixture.ann.post(&notes, json!({})).await, @r#"
    400 Bad Request
    {"error":"body is missing"}
    "#);
    assert_snapshot!(fixture.ann.post(&notes, with_body(" \n")).await, @r#"
    400 Bad Request
    {"message":{"note":["can't be blank"]}}
    "#);
    assert_snapshot!(fixture.ann.post(&notes, with_body(&"x".repeat(100_001))).await, @r#"
    400 Bad Request
    {"message":{"note":["is too long (maximum is 100000 characters)"]}}
    "#);
    assert_snapshot!(fixture.ann.post(&notes, with_body("nul\0")).await, @r#"
    400 Bad Request
    {"error":"body is invalid"}
    "#);
    assert_snapshot!(fixture.ann.post(&notes, json!({ "body": "x", "created_at": "long ago" })).await, @r#"
    400 Bad Request
    {"error":"created_at is invalid"}
    "#);
    assert_snapshot!(fixture.ann.put(&note, json!({})).await, @r#"
    400 Bad Request
    {"error":"body is missing"}
    "#);
    assert_snapshot!(fixture.ann.put(&note, with_body("")).await, @r#"
    400 Bad Request
    {"message":{"note":["can't be blank"]}}
    "#);
    assert_snapshot!(fixture.ann.get(&format!("{notes}?page=x")).await, @r#"
    400 Bad Request
    {"error":"page is invalid"}
    "#);
    assert_snapshot!(fixture.ann.get(&format!("{notes}/x")).await, @r#"
    400 Bad Request
    {"error":"note_id is invalid"}
    "#);
    assert_snapshot!(fixture.ann.get(&format!("/projects/{}/issues/x/notes", fixture.project)).await, @r#"
    400 Bad Request
    {"error":"issue_id is invalid"}
    "#);
    assert_eq!(fixture.forge.dump(), before);
    // A text of the maximum length is stored in full.
    let long = "ä".repeat(100_000);
    let whole = fixture.ann.put(&note, with_body(&long)).await.json()["body"] == long;
    assert!(whole, "a text of many pages would be no help in a message");
}

#[tokio::test]
async fn only_owners_set_the_time_of_creation() {
    let fixture = Fixture::new().await;
    let notes = fixture.notes(fixture.issue(&fixture.ann, false));
    let old = json!({ "body": "x", "created_at": "2016-03-11T03:45:40+01:00" });
    let (then, now) = ("2016-03-11T02:45:40.000Z", "2026-01-02T03:04:05.678Z");
    let root = fixture.forge.admin().await;
    for (client, expected) in [(&fixture.ann, then), (&root, then), (&fixture.master, now), (&fixture.guest, now)] {
        let written = client.post(&notes, old.clone()).await;
        assert_eq!((written.code(), &written.json()["created_at"]), (201, &json!(expected)));
    }
    // In order of insertion, whatever `created_at` says.
    assert_eq!(fixture.ann.get(&notes).await.join_field("id"), "1 2 3 4");
}

#[tokio::test]
async fn a_note_is_updated_and_deleted_by_its_author_and_by_masters() {
    let fixture = Fixture::new().await;
    let issue = fixture.issue(&fixture.guest, false);
    let notes = fixture.notes(issue);
    let root = fixture.forge.admin().await;
    let members = [
        ("author", &fixture.guest),
        ("reporter", &fixture.reporter),
        ("master", &fixture.master),
        ("owner", &fixture.ann),
    ];
    let mut table = String::new();
    for (who, client) in members.into_iter().chain([("outsider", &fixture.eve), ("administrator", &root)]) {
        let note = format!("{notes}/{}", fixture.guest.make(&notes, with_body("x")).await);
        let system = format!("{notes}/{}", fixture.system_note(issue, &fixture.guest, "Title changed"));
        let codes = [
            client.get(&note).await.code(),
            // Permissions are checked before the body.
            client.put(&note, json!({})).await.code(),
            client.put(&note, with_body("y")).await.code(),
            client.delete(&note).await.code(),
            client.put(&system, with_body("y")).await.code(),
            client.delete(&system).await.code(),
        ];
        table += &format!("{who:<14}{codes:?}\n");
    }
    assert_snapshot!(table, @"
    author        [200, 400, 200, 200, 403, 403]
    reporter      [200, 403, 403, 403, 403, 403]
    master        [200, 400, 200, 200, 403, 200]
    owner         [200, 400, 200, 200, 403, 200]
    outsider      [404, 404, 404, 404, 404, 404]
    administrator [200, 400, 200, 200, 403, 200]
    ");
    let anonymous = fixture.forge.anonymous();
    let before = fixture.forge.dump();
    assert_snapshot!(anonymous.get(&notes).await, @r#"
    401 Unauthorized
    {"message":"401 Unauthorized"}
    "#);
    assert_eq!(anonymous.post(&notes, json!({})).await.code(), 401);
    assert_snapshot!(fixture.eve.post(&notes, json!({})).await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_eq!(fixture.forge.dump(), before);
}

#[tokio::test]
async fn every_user_can_write_notes_in_a_public_project() {
    let forge = TestForge::start().await;
    let (ann, eve) = (forge.user("ann").await, forge.user("eve").await);
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "open", "visibility_level": 20 })).await);
    let notes = format!("/projects/ann%2Fopen/issues/{}/notes", issue_in(&forge, project, &ann, false));
    let written = eve.post(&notes, with_body("me too")).await.json();
    assert_eq!((&written["body"], &written["author"]["username"]), (&json!("me too"), &json!("eve")));
    // If issues are disabled, neither issues nor notes are found.
    let off = json!({ "name": "open", "issues_enabled": false });
    assert_eq!(ann.put(&format!("/projects/{project}"), off).await.code(), 200);
    for response in
        [eve.get(&notes).await, ann.post(&notes, with_body("x")).await, ann.delete(&format!("{notes}/1")).await]
    {
        assert_eq!(response.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    }
}

#[tokio::test]
async fn notes_on_a_confidential_issue_are_as_visible_as_the_issue() {
    let fixture = Fixture::new().await;
    let other = fixture.forge.user("gil").await;
    let member = json!({ "user_id": other.id.get(), "access_level": 10 });
    assert_eq!(fixture.ann.post(&format!("/projects/{}/members", fixture.project), member).await.code(), 201);
    let notes = fixture.notes(fixture.issue(&fixture.guest, true));
    let note = format!("{notes}/{}", fixture.guest.make(&notes, with_body("psst")).await);
    for client in [&fixture.guest, &fixture.reporter, &fixture.master, &fixture.ann] {
        assert_eq!(client.get(&notes).await.join_field("body"), "psst");
        assert_eq!(client.get(&note).await.json()["body"], "psst");
    }
    let before = fixture.forge.dump();
    let responses = [
        other.get(&notes).await,
        other.get(&note).await,
        other.post(&notes, with_body("x")).await,
        other.put(&note, with_body("x")).await,
        other.delete(&note).await,
    ];
    for response in responses {
        assert_eq!(response.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    }
    assert_eq!(fixture.forge.dump(), before);
}

/// Notes and issues of other projects cannot be read or changed by their ids.
#[tokio::test]
async fn a_note_of_another_issue_or_project_is_not_found() {
    let fixture = Fixture::new().await;
    let (first, second) = (fixture.issue(&fixture.ann, false), fixture.issue(&fixture.ann, false));
    let note = fixture.ann.make(&fixture.notes(first), with_body("x")).await;
    let elsewhere = ProjectId::new(fixture.eve.make("/projects", json!({ "name": "elsewhere" })).await);
    let own = issue_in(&fixture.forge, elsewhere, &fixture.eve, false);
    let before = fixture.forge.dump();
    let missing = "404 Not Found\n{\"message\":\"404 Not found\"}";
    for (client, path) in [
        (&fixture.ann, format!("{}/{note}", fixture.notes(second))),
        (&fixture.eve, format!("/projects/{elsewhere}/issues/{own}/notes/{note}")),
        (&fixture.eve, format!("/projects/{elsewhere}/issues/{first}/notes/{note}")),
        (&fixture.ann, format!("{}/99", fixture.notes(first))),
    ] {
        assert_eq!(client.get(&path).await.to_string(), missing, "{path}");
        assert_eq!(client.put(&path, with_body("y")).await.to_string(), missing, "{path}");
        assert_eq!(client.delete(&path).await.to_string(), missing, "{path}");
    }
    let foreign = format!("/projects/{elsewhere}/issues/{first}/notes");
    assert_eq!(fixture.eve.get(&foreign).await.to_string(), missing);
    assert_eq!(fixture.eve.post(&foreign, with_body("y")).await.to_string(), missing);
    assert_eq!(fixture.forge.dump(), before);
}

/// Former members of a private project see no notes, not even their own.
#[tokio::test]
async fn a_former_member_sees_no_notes() {
    let fixture = Fixture::new().await;
    let notes = fixture.notes(fixture.issue(&fixture.guest, true));
    let note = format!("{notes}/{}", fixture.guest.make(&notes, with_body("x")).await);
    let member = format!("/projects/{}/members/{}", fixture.project, fixture.guest.id);
    assert_eq!(fixture.ann.delete(&member).await.code(), 200);
    let before = fixture.forge.dump();
    let responses = [
        fixture.guest.get(&notes).await,
        fixture.guest.get(&note).await,
        fixture.guest.post(&notes, with_body("y")).await,
        fixture.guest.put(&note, with_body("y")).await,
        fixture.guest.delete(&note).await,
    ];
    for response in responses {
        assert_eq!(response.to_string(), "404 Not Found\n{\"message\":\"404 Project Not Found\"}");
    }
    assert_eq!(fixture.forge.dump(), before);
}

/// Reading changes nothing.
#[tokio::test]
async fn reading_notes_writes_nothing() {
    let fixture = Fixture::new().await;
    let notes = fixture.notes(fixture.issue(&fixture.ann, false));
    let note = format!("{notes}/{}", fixture.ann.make(&notes, with_body("x")).await);
    let before = fixture.forge.dump();
    fixture.forge.clock.advance(SignedDuration::from_mins(1));
    for path in [&notes, &note, &format!("{notes}?body=y"), &format!("{note}?body=y")] {
        assert_eq!((fixture.guest.get(path).await.code(), fixture.guest.head(path).await.code()), (200, 200));
    }
    assert_eq!(fixture.forge.dump(), before);
}

#[tokio::test]
async fn notes_outlive_their_author() {
    let fixture = Fixture::new().await;
    let issue = fixture.issue(&fixture.ann, false);
    let notes = fixture.notes(issue);
    let note = format!("{notes}/{}", fixture.guest.make(&notes, with_body("x")).await);
    let root = fixture.forge.admin().await;
    assert_eq!(root.delete(&format!("/users/{}", fixture.guest.id)).await.code(), 200);
    fixture.forge.run_due_tasks().await;
    let left = fixture.ann.get(&notes).await.json();
    assert_eq!((&left[0]["body"], &left[0]["author"]), (&json!("x"), &json!(null)));
    assert_eq!(fixture.load_issue(issue).user_notes, 1);
    // A note without an author can only be deleted by masters and owners.
    assert_eq!(fixture.reporter.delete(&note).await.code(), 403);
    assert_eq!(fixture.master.delete(&note).await.json()["author"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_notes_are_all_counted() {
    let fixture = Fixture::new().await;
    let issue = fixture.issue(&fixture.ann, false);
    let notes = fixture.notes(issue);
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let client = if number % 2 == 0 { fixture.ann.clone() } else { fixture.guest.clone() };
            let notes = notes.clone();
            tokio::spawn(async move { client.post(&notes, with_body(&number.to_string())).await.code() })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.expect("a response"), 201);
    }
    assert_eq!(fixture.load_issue(issue).user_notes, 20);
    assert_eq!(fixture.ann.get(&notes).await.header("x-total"), "20");
}
