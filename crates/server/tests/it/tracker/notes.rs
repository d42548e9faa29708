//! Notes on issues: who writes, reads, changes and removes them.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::Issue;
use serde_json::{Value, json};
use store::{Sight, issues::NewIssue, notes::NewNote};
use testkit::{Client, TestForge};

/// A forge with a private project of Ann's, in which everybody has a role.
struct Scene {
    forge: TestForge,
    project: i64,
    /// Owns the project.
    ann: Client,
    guest: Client,
    reporter: Client,
    master: Client,
    /// Belongs to nothing.
    eve: Client,
}

impl Scene {
    async fn new() -> Self {
        Self::at(TestForge::start().await).await
    }

    async fn at(forge: TestForge) -> Self {
        let ann = forge.user("ann").await;
        let project = ann.make("/projects", json!({ "name": "rocket" })).await;
        let mut members = Vec::new();
        for (name, level) in [("gus", 10), ("rep", 20), ("max", 40)] {
            let user = forge.user(name).await;
            let member = json!({ "user_id": user.id, "access_level": level });
            assert_eq!(ann.post(&format!("/projects/{project}/members"), member).await.code(), 201);
            members.push(user);
        }
        let [guest, reporter, master] = members.try_into().unwrap_or_else(|_| panic!("three"));
        let eve = forge.user("eve").await;
        Self { forge, project, ann, guest, reporter, master, eve }
    }

    fn issue(&self, author: &Client, confidential: bool) -> i64 {
        issue_in(&self.forge, self.project, author, confidential)
    }

    fn notes(&self, issue: i64) -> String {
        format!("/projects/{}/issues/{issue}/notes", self.project)
    }

    /// A note as the service writes it when somebody does something.
    fn system_note(&self, issue: i64, author: &Client, body: &str) -> i64 {
        let (project, now) = (self.project, self.forge.forge.now());
        let note = NewNote { project, issue, author: author.id, body, system: true, now };
        self.forge.in_one_go(|db| store::notes::insert(db, &note).expect("a note"))
    }

    fn look_at(&self, issue: i64) -> Issue {
        let all = Sight { user: 0, confidential: true };
        let found = self.forge.behind_the_back(|db| store::issues::find(db, &all, self.project, issue).expect("asked"));
        found.expect("an issue")
    }
}

fn issue_in(forge: &TestForge, project: i64, author: &Client, confidential: bool) -> i64 {
    let now = forge.forge.now();
    forge.in_one_go(|db| {
        let iid = store::issues::next_number(db, project).expect("a number");
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

fn says(body: &str) -> Value {
    json!({ "body": body })
}

#[tokio::test]
async fn a_note_is_written_shown_changed_and_removed() {
    let scene = Scene::new().await;
    let issue = scene.issue(&scene.ann, false);
    let notes = scene.notes(issue);
    assert_snapshot!(scene.guest.post(&notes, says(" It *still* leaks\n")).await, @r#"
    201 Created
    {"id":1,"body":" It *still* leaks\n","attachment":null,"author":{"name":"gus","username":"gus","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/ebbe2bbc5d008989.svg","web_url":"http://gable.test/gus"},"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","system":false,"noteable_id":1,"noteable_type":"Issue","upvote":false,"downvote":false,"upvote?":false,"downvote?":false}
    "#);
    scene.forge.clock.advance(SignedDuration::from_mins(1));
    scene.system_note(issue, &scene.ann, "Status changed to closed");
    assert_eq!(scene.ann.post(&notes, says("Not any more")).await.code(), 201);
    let listed = scene.reporter.get(&notes).await;
    assert_eq!((listed.each("id"), listed.each("system")), ("1 2 3".into(), "false true false".into()));
    assert_eq!(listed.each("noteable_id"), format!("{issue} {issue} {issue}"));
    assert_eq!(listed.header("x-total"), "3");
    let second = scene.ann.get(&format!("{notes}?per_page=2&page=2")).await;
    assert_eq!((second.each("body"), second.header("x-prev-page")), ("Not any more".into(), "1"));
    assert_eq!(scene.guest.get(&format!("{notes}/3")).await.json(), listed.json()[2]);

    assert_snapshot!(scene.guest.put(&format!("{notes}/1"), says("Mended")).await, @r#"
    200 OK
    {"id":1,"body":"Mended","attachment":null,"author":{"name":"gus","username":"gus","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/ebbe2bbc5d008989.svg","web_url":"http://gable.test/gus"},"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:05:05.678Z","system":false,"noteable_id":1,"noteable_type":"Issue","upvote":false,"downvote":false,"upvote?":false,"downvote?":false}
    "#);
    assert_eq!(scene.guest.get(&format!("{notes}/1")).await.json()["body"], "Mended");
    let removed = scene.guest.delete(&format!("{notes}/1")).await;
    assert_eq!((removed.code(), &removed.json()["body"]), (200, &json!("Mended")));
    for gone in [scene.guest.get(&format!("{notes}/1")).await, scene.guest.delete(&format!("{notes}/1")).await] {
        assert_eq!(gone.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    }
    assert_eq!(scene.guest.get(&notes).await.each("id"), "2 3");
}

#[tokio::test]
async fn a_note_is_counted_told_and_moves_its_issue() {
    let scene = Scene::new().await;
    let issue = scene.issue(&scene.ann, false);
    let (notes, written) = (scene.notes(issue), scene.look_at(issue).updated_at);
    let minute = SignedDuration::from_mins(1);
    scene.forge.clock.advance(minute);
    let note = scene.guest.make(&notes, says("one")).await;
    scene.system_note(issue, &scene.ann, "Status changed to closed");
    scene.guest.make(&notes, says("two")).await;
    let seen = scene.look_at(issue);
    assert_eq!((seen.user_notes, seen.updated_at), (2, written + minute), "the service's own notes do not count");

    let events = format!("/projects/{}/events?per_page=2", scene.project);
    let told = scene.ann.get(&events).await;
    assert_eq!(told.each("action_name"), "commented on commented on");
    assert_eq!((told.each("target_type"), told.each("target_id")), ("Note Note".into(), format!("3 {note}")));
    assert_eq!(told.each("author_username"), "gus gus");
    let total: i64 = told.header("x-total").parse().expect("a number");

    // An edit is no news, but it moves the issue, as the removal does; what was told of a note goes with it.
    for (code, change) in [(200, "PUT"), (200, "DELETE")] {
        scene.forge.clock.advance(minute);
        let path = format!("{notes}/{note}");
        let answer =
            if change == "PUT" { scene.guest.put(&path, says("other")).await } else { scene.guest.delete(&path).await };
        assert_eq!((answer.code(), scene.look_at(issue).updated_at), (code, scene.forge.forge.now()), "{change}");
    }
    assert_eq!(scene.look_at(issue).user_notes, 1);
    let told = scene.ann.get(&events).await;
    assert_eq!((told.json()[0]["target_id"].clone(), told.header("x-total")), (json!(3), &*(total - 1).to_string()));
}

#[tokio::test]
async fn a_text_that_is_no_note_is_refused() {
    let scene = Scene::at(TestForge::setup().body_limit(4 << 20).start().await).await;
    let issue = scene.issue(&scene.ann, false);
    let notes = scene.notes(issue);
    let note = format!("{notes}/{}", scene.ann.make(&notes, says("one")).await);
    let before = scene.forge.dump();
    assert_snapshot!(scene.ann.post(&notes, json!({})).await, @r#"
    400 Bad Request
    {"error":"body is missing"}
    "#);
    assert_snapshot!(scene.ann.post(&notes, says(" \n")).await, @r#"
    400 Bad Request
    {"message":{"note":["can't be blank"]}}
    "#);
    assert_snapshot!(scene.ann.post(&notes, says(&"x".repeat(100_001))).await, @r#"
    400 Bad Request
    {"message":{"note":["is too long (maximum is 100000 characters)"]}}
    "#);
    assert_snapshot!(scene.ann.post(&notes, says("nul\0")).await, @r#"
    400 Bad Request
    {"error":"body is invalid"}
    "#);
    assert_snapshot!(scene.ann.post(&notes, json!({ "body": "x", "created_at": "long ago" })).await, @r#"
    400 Bad Request
    {"error":"created_at is invalid"}
    "#);
    assert_snapshot!(scene.ann.put(&note, json!({})).await, @r#"
    400 Bad Request
    {"error":"body is missing"}
    "#);
    assert_snapshot!(scene.ann.put(&note, says("")).await, @r#"
    400 Bad Request
    {"message":{"note":["can't be blank"]}}
    "#);
    assert_snapshot!(scene.ann.get(&format!("{notes}?page=x")).await, @r#"
    400 Bad Request
    {"error":"page is invalid"}
    "#);
    assert_snapshot!(scene.ann.get(&format!("{notes}/x")).await, @r#"
    400 Bad Request
    {"error":"note_id is invalid"}
    "#);
    assert_snapshot!(scene.ann.get(&format!("/projects/{}/issues/x/notes", scene.project)).await, @r#"
    400 Bad Request
    {"error":"issue_id is invalid"}
    "#);
    assert_eq!(scene.forge.dump(), before);
    // As long as it may be it comes back whole.
    let long = "ä".repeat(100_000);
    let whole = scene.ann.put(&note, says(&long)).await.json()["body"] == long;
    assert!(whole, "a text of many pages would be no help in a message");
}

#[tokio::test]
async fn only_owners_say_when_a_note_was_written() {
    let scene = Scene::new().await;
    let notes = scene.notes(scene.issue(&scene.ann, false));
    let old = json!({ "body": "x", "created_at": "2016-03-11T03:45:40+01:00" });
    let (then, now) = ("2016-03-11T02:45:40.000Z", "2026-01-02T03:04:05.678Z");
    let root = scene.forge.admin().await;
    for (client, expected) in [(&scene.ann, then), (&root, then), (&scene.master, now), (&scene.guest, now)] {
        let written = client.post(&notes, old.clone()).await;
        assert_eq!((written.code(), &written.json()["created_at"]), (201, &json!(expected)));
    }
    // In the order in which they came, whatever they say.
    assert_eq!(scene.ann.get(&notes).await.each("id"), "1 2 3 4");
}

#[tokio::test]
async fn a_note_is_changed_and_removed_by_its_author_and_by_masters() {
    let scene = Scene::new().await;
    let issue = scene.issue(&scene.guest, false);
    let notes = scene.notes(issue);
    let root = scene.forge.admin().await;
    let everybody =
        [("author", &scene.guest), ("reporter", &scene.reporter), ("master", &scene.master), ("owner", &scene.ann)];
    let mut table = String::new();
    for (who, client) in everybody.into_iter().chain([("outsider", &scene.eve), ("administrator", &root)]) {
        let note = format!("{notes}/{}", scene.guest.make(&notes, says("x")).await);
        let system = format!("{notes}/{}", scene.system_note(issue, &scene.guest, "Title changed"));
        let codes = [
            client.get(&note).await.code(),
            // Even with a body that is not in order, the right comes first.
            client.put(&note, json!({})).await.code(),
            client.put(&note, says("y")).await.code(),
            client.delete(&note).await.code(),
            client.put(&system, says("y")).await.code(),
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
    let stranger = scene.forge.anonymous();
    let before = scene.forge.dump();
    assert_snapshot!(stranger.get(&notes).await, @r#"
    401 Unauthorized
    {"message":"401 Unauthorized"}
    "#);
    assert_eq!(stranger.post(&notes, json!({})).await.code(), 401);
    assert_snapshot!(scene.eve.post(&notes, json!({})).await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_eq!(scene.forge.dump(), before);
}

#[tokio::test]
async fn whoever_sees_an_open_project_can_write_a_note() {
    let forge = TestForge::start().await;
    let (ann, eve) = (forge.user("ann").await, forge.user("eve").await);
    let project = ann.make("/projects", json!({ "name": "open", "visibility_level": 20 })).await;
    let notes = format!("/projects/ann%2Fopen/issues/{}/notes", issue_in(&forge, project, &ann, false));
    let written = eve.post(&notes, says("me too")).await.json();
    assert_eq!((&written["body"], &written["author"]["username"]), (&json!("me too"), &json!("eve")));
    // An issue is not there where issues are switched off, and neither are its notes.
    let off = json!({ "name": "open", "issues_enabled": false });
    assert_eq!(ann.put(&format!("/projects/{project}"), off).await.code(), 200);
    for answer in [eve.get(&notes).await, ann.post(&notes, says("x")).await, ann.delete(&format!("{notes}/1")).await] {
        assert_eq!(answer.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    }
}

#[tokio::test]
async fn notes_on_a_confidential_issue_are_for_those_who_see_it() {
    let scene = Scene::new().await;
    let other = scene.forge.user("gil").await;
    let member = json!({ "user_id": other.id, "access_level": 10 });
    assert_eq!(scene.ann.post(&format!("/projects/{}/members", scene.project), member).await.code(), 201);
    let notes = scene.notes(scene.issue(&scene.guest, true));
    let note = format!("{notes}/{}", scene.guest.make(&notes, says("psst")).await);
    for client in [&scene.guest, &scene.reporter, &scene.master, &scene.ann] {
        assert_eq!(client.get(&notes).await.each("body"), "psst");
        assert_eq!(client.get(&note).await.json()["body"], "psst");
    }
    let before = scene.forge.dump();
    let answers = [
        other.get(&notes).await,
        other.get(&note).await,
        other.post(&notes, says("x")).await,
        other.put(&note, says("x")).await,
        other.delete(&note).await,
    ];
    for answer in answers {
        assert_eq!(answer.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    }
    assert_eq!(scene.forge.dump(), before);
}

/// Lesson 15: the number of a note or an issue from elsewhere finds nothing and changes nothing.
#[tokio::test]
async fn lesson_15_a_note_of_another_issue_or_project_is_not_there() {
    let scene = Scene::new().await;
    let (first, second) = (scene.issue(&scene.ann, false), scene.issue(&scene.ann, false));
    let note = scene.ann.make(&scene.notes(first), says("x")).await;
    let elsewhere = scene.eve.make("/projects", json!({ "name": "elsewhere" })).await;
    let own = issue_in(&scene.forge, elsewhere, &scene.eve, false);
    let before = scene.forge.dump();
    let missing = "404 Not Found\n{\"message\":\"404 Not found\"}";
    for (client, path) in [
        (&scene.ann, format!("{}/{note}", scene.notes(second))),
        (&scene.eve, format!("/projects/{elsewhere}/issues/{own}/notes/{note}")),
        (&scene.eve, format!("/projects/{elsewhere}/issues/{first}/notes/{note}")),
        (&scene.ann, format!("{}/99", scene.notes(first))),
    ] {
        assert_eq!(client.get(&path).await.to_string(), missing, "{path}");
        assert_eq!(client.put(&path, says("y")).await.to_string(), missing, "{path}");
        assert_eq!(client.delete(&path).await.to_string(), missing, "{path}");
    }
    let foreign = format!("/projects/{elsewhere}/issues/{first}/notes");
    assert_eq!(scene.eve.get(&foreign).await.to_string(), missing);
    assert_eq!(scene.eve.post(&foreign, says("y")).await.to_string(), missing);
    assert_eq!(scene.forge.dump(), before);
}

/// Lesson 19: whoever has left a private project sees no note there any more, not even their own.
#[tokio::test]
async fn lesson_19_who_has_left_sees_no_notes() {
    let scene = Scene::new().await;
    let notes = scene.notes(scene.issue(&scene.guest, true));
    let note = format!("{notes}/{}", scene.guest.make(&notes, says("x")).await);
    let member = format!("/projects/{}/members/{}", scene.project, scene.guest.id);
    assert_eq!(scene.ann.delete(&member).await.code(), 200);
    let before = scene.forge.dump();
    let answers = [
        scene.guest.get(&notes).await,
        scene.guest.get(&note).await,
        scene.guest.post(&notes, says("y")).await,
        scene.guest.put(&note, says("y")).await,
        scene.guest.delete(&note).await,
    ];
    for answer in answers {
        assert_eq!(answer.to_string(), "404 Not Found\n{\"message\":\"404 Project Not Found\"}");
    }
    assert_eq!(scene.forge.dump(), before);
}

/// Lesson 23: looking changes nothing.
#[tokio::test]
async fn lesson_23_reading_notes_writes_nothing() {
    let scene = Scene::new().await;
    let notes = scene.notes(scene.issue(&scene.ann, false));
    let note = format!("{notes}/{}", scene.ann.make(&notes, says("x")).await);
    let before = scene.forge.dump();
    scene.forge.clock.advance(SignedDuration::from_mins(1));
    for path in [&notes, &note, &format!("{notes}?body=y"), &format!("{note}?body=y")] {
        assert_eq!((scene.guest.get(path).await.code(), scene.guest.head(path).await.code()), (200, 200));
    }
    assert_eq!(scene.forge.dump(), before);
}

#[tokio::test]
async fn notes_outlive_their_author() {
    let scene = Scene::new().await;
    let issue = scene.issue(&scene.ann, false);
    let notes = scene.notes(issue);
    let note = format!("{notes}/{}", scene.guest.make(&notes, says("x")).await);
    let root = scene.forge.admin().await;
    assert_eq!(root.delete(&format!("/users/{}", scene.guest.id)).await.code(), 200);
    scene.forge.do_all_jobs().await;
    let left = scene.ann.get(&notes).await.json();
    assert_eq!((&left[0]["body"], &left[0]["author"]), (&json!("x"), &json!(null)));
    assert_eq!(scene.look_at(issue).user_notes, 1);
    // Nobody is its author now, so those who keep order are left.
    assert_eq!(scene.reporter.delete(&note).await.code(), 403);
    assert_eq!(scene.master.delete(&note).await.json()["author"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_write_at_once_are_all_counted() {
    let scene = Scene::new().await;
    let issue = scene.issue(&scene.ann, false);
    let notes = scene.notes(issue);
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let client = if number % 2 == 0 { scene.ann.clone() } else { scene.guest.clone() };
            let notes = notes.clone();
            tokio::spawn(async move { client.post(&notes, says(&number.to_string())).await.code() })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.expect("an answer"), 201);
    }
    assert_eq!(scene.look_at(issue).user_notes, 20);
    assert_eq!(scene.ann.get(&notes).await.header("x-total"), "20");
}
