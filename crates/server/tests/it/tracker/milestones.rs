//! Milestones of projects.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{MilestoneId, ProjectId};
use serde_json::{Value, json};
use store::issues::NewIssue;
use testkit::{TestClient, TestForge};

/// Starts a forge with Ann and a private project of hers; also returns the path of its milestones.
async fn start() -> (TestForge, TestClient, ProjectId, String) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "rocket" })).await);
    (forge, ann, project, format!("/projects/{project}/milestones"))
}

/// Creates a user and adds them to a project.
async fn member(forge: &TestForge, owner: &TestClient, project: ProjectId, name: &str, level: i64) -> TestClient {
    let user = forge.user(name).await;
    let member = json!({ "user_id": user.id.get(), "access_level": level });
    assert_eq!(owner.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    user
}

fn with_title(title: &str) -> Value {
    json!({ "title": title })
}

#[tokio::test]
async fn a_milestone_is_created_read_and_updated() {
    let (forge, ann, _, milestones) = start().await;
    let new = json!({ "title": " 1.0 ", "description": "flies", "due_date": "2026-03-01", "start_date": "2026-02-01" });
    assert_snapshot!(ann.post(&milestones, new).await, @r#"
    201 Created
    {"id":1,"iid":1,"project_id":1,"title":"1.0","description":"flies","state":"active","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","due_date":"2026-03-01","start_date":"2026-02-01"}
    "#);
    assert_snapshot!(ann.post(&milestones, json!({ "title": "2.0", "due_date": "" })).await, @r#"
    201 Created
    {"id":2,"iid":2,"project_id":1,"title":"2.0","description":null,"state":"active","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","due_date":null,"start_date":null}
    "#);
    let listed = ann.get(&milestones).await;
    assert_eq!((listed.join_field("title"), listed.header("x-total")), ("1.0 2.0".into(), "2"));
    assert_eq!(ann.get("/projects/ann%2Frocket/milestones/1").await.json(), listed.json()[0]);

    forge.clock.advance(SignedDuration::from_mins(1));
    let one = format!("{milestones}/1");
    assert_snapshot!(ann.put(&one, json!({ "title": "1.1", "due_date": "", "state_event": "close" })).await, @r#"
    200 OK
    {"id":1,"iid":1,"project_id":1,"title":"1.1","description":"flies","state":"closed","created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:05:05.678Z","due_date":null,"start_date":"2026-02-01"}
    "#);
    assert_eq!(ann.get(&one).await.json(), ann.put(&one, json!({})).await.json());
    let cleared = ann.put(&one, json!({ "description": "", "start_date": null })).await.json();
    assert_eq!((&cleared["description"], &cleared["start_date"]), (&json!(null), &json!(null)));
    // The present title is accepted, and a former title can be reused.
    assert_eq!(ann.put(&one, with_title("1.1")).await.code(), 200);
    assert_eq!(ann.put(&format!("{milestones}/2"), with_title("1.0")).await.json()["title"], "1.0");
    assert_snapshot!(ann.get(&format!("{milestones}/3")).await, @r#"
    404 Not Found
    {"message":"404 Not found"}
    "#);
    assert_eq!(ann.put(&format!("{milestones}/3"), with_title("x")).await.code(), 404);
}

#[tokio::test]
async fn milestones_are_listed_by_state_and_by_number() {
    let (_forge, ann, _, milestones) = start().await;
    for title in ["a", "b", "c", "d"] {
        ann.make(&milestones, with_title(title)).await;
    }
    assert_eq!(ann.put(&format!("{milestones}/2"), json!({ "state_event": "close" })).await.json()["state"], "closed");
    for (query, expected) in [
        ("", "a b c d"),
        ("?state=active", "a c d"),
        ("?state=closed", "b"),
        ("?state=all", "a b c d"),
        ("?iid=3", "c"),
        ("?iid[]=4&iid[]=1", "a d"),
        ("?iid=2&state=active", ""),
        ("?iid=99", ""),
        ("?per_page=2&page=2", "c d"),
        ("?state=active&per_page=2&page=2", "d"),
    ] {
        assert_eq!(ann.get(&format!("{milestones}{query}")).await.join_field("title"), expected, "{query}");
    }
    let page = ann.get(&format!("{milestones}?state=active&per_page=2")).await;
    assert_eq!((page.header("x-total"), page.header("x-next-page")), ("3", "2"));
    assert_snapshot!(ann.get(&format!("{milestones}?state=open&iid=x")).await, @r#"
    400 Bad Request
    {"error":"state does not have a valid value, iid is invalid"}
    "#);
}

#[tokio::test]
async fn iids_are_counted_per_project() {
    let (_forge, ann, _, milestones) = start().await;
    let other = ann.make("/projects", json!({ "name": "other" })).await;
    let others = format!("/projects/{other}/milestones");
    let mut numbers = Vec::new();
    for path in [&milestones, &others, &milestones, &others] {
        // Titles are unique per project only.
        let made = ann.post(path, with_title(&numbers.len().div_euclid(2).to_string())).await.json();
        numbers.push((made["id"].clone(), made["iid"].clone(), made["title"].clone()));
    }
    let expected = [(1, 1, "0"), (2, 1, "0"), (3, 2, "1"), (4, 2, "1")];
    assert_eq!(numbers, expected.map(|(id, iid, title)| (json!(id), json!(iid), json!(title))));
}

#[tokio::test]
async fn invalid_milestones_are_rejected() {
    let (forge, ann, _, milestones) = start().await;
    ann.make(&milestones, json!({ "title": "1.0", "start_date": "2026-02-01" })).await;
    ann.make(&milestones, with_title("2.0")).await;
    let before = forge.dump();
    assert_snapshot!(ann.post(&milestones, json!({})).await, @r#"
    400 Bad Request
    {"error":"title is missing"}
    "#);
    assert_snapshot!(ann.post(&milestones, with_title(" ")).await, @r#"
    400 Bad Request
    {"message":{"title":["can't be blank"]}}
    "#);
    assert_snapshot!(ann.post(&milestones, with_title(&"x".repeat(256))).await, @r#"
    400 Bad Request
    {"message":{"title":["is too long (maximum is 255 characters)"]}}
    "#);
    assert_snapshot!(ann.post(&milestones, with_title("a\0")).await, @r#"
    400 Bad Request
    {"error":"title is invalid"}
    "#);
    assert_snapshot!(ann.post(&milestones, with_title(" 1.0")).await, @r#"
    400 Bad Request
    {"message":{"title":["has already been taken"]}}
    "#);
    assert_snapshot!(ann.post(&milestones, json!({ "title": "x", "due_date": "2026-02-30", "start_date": "soon" })).await, @r#"
    400 Bad Request
    {"error":"due_date is invalid, start_date is invalid"}
    "#);
    assert_snapshot!(ann.post(&milestones, json!({ "title": "x", "start_date": "2026-02-02", "due_date": "2026-02-01" })).await, @r#"
    400 Bad Request
    {"message":{"start_date":["must not be after due date"]}}
    "#);
    let one = format!("{milestones}/1");
    assert_snapshot!(ann.put(&one, json!({ "title": "x", "state_event": "reopen" })).await, @r#"
    400 Bad Request
    {"error":"state_event does not have a valid value"}
    "#);
    assert_snapshot!(ann.put(&one, json!({ "title": "", "state_event": "close" })).await, @r#"
    400 Bad Request
    {"message":{"title":["can't be blank"]}}
    "#);
    assert_snapshot!(ann.put(&one, json!({ "title": "2.0", "state_event": "close" })).await, @r#"
    400 Bad Request
    {"message":{"title":["has already been taken"]}}
    "#);
    // The present start date is validated too.
    assert_snapshot!(ann.put(&one, json!({ "due_date": "2026-01-31", "state_event": "close" })).await, @r#"
    400 Bad Request
    {"message":{"start_date":["must not be after due date"]}}
    "#);
    assert_snapshot!(ann.put(&format!("{milestones}/x"), json!({})).await, @r#"
    400 Bad Request
    {"error":"milestone_id is invalid"}
    "#);
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn the_length_of_a_description_is_limited() {
    let forge = TestForge::builder().body_limit(4 << 20).start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "rocket" })).await;
    let milestones = format!("/projects/{project}/milestones");
    let long = |length: usize| json!({ "title": "x", "description": "ä".repeat(length) });
    assert_snapshot!(ann.post(&milestones, long(100_001)).await, @r#"
    400 Bad Request
    {"message":{"description":["is too long (maximum is 100000 characters)"]}}
    "#);
    assert_eq!(ann.post(&milestones, long(100_000)).await.code(), 201);
}

#[tokio::test]
async fn milestones_are_read_by_all_members_and_created_by_masters() {
    let (forge, ann, project, milestones) = start().await;
    let roles = [("guest", 10), ("reporter", 20), ("developer", 30), ("master", 40)];
    let mut clients = vec![("owner", ann.clone())];
    for (name, level) in roles {
        clients.push((name, member(&forge, &ann, project, name, level).await));
    }
    clients.push(("outsider", forge.user("eve").await));
    clients.push(("administrator", forge.admin().await));
    clients.push(("anonymous", forge.anonymous()));
    ann.make(&milestones, with_title("1.0")).await;
    let one = format!("{milestones}/1");
    let mut table = String::new();
    for (who, client) in &clients {
        let codes = [
            client.get(&milestones).await.code(),
            client.get(&one).await.code(),
            // Permissions are checked before the body.
            client.post(&milestones, json!({})).await.code(),
            client.post(&milestones, with_title(who)).await.code(),
            client.put(&one, json!({ "description": who })).await.code(),
        ];
        table += &format!("{who:<14}{codes:?}\n");
    }
    assert_snapshot!(table, @"
    owner         [200, 200, 400, 201, 200]
    guest         [200, 200, 403, 403, 403]
    reporter      [200, 200, 403, 403, 403]
    developer     [200, 200, 403, 403, 403]
    master        [200, 200, 400, 201, 200]
    outsider      [404, 404, 404, 404, 404]
    administrator [200, 200, 400, 201, 200]
    anonymous     [401, 401, 401, 401, 401]
    ");
    assert_snapshot!(clients[1].1.post(&milestones, json!({})).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    assert_eq!(ann.get(&milestones).await.join_field("title"), "1.0 owner master administrator");
}

#[tokio::test]
async fn a_project_without_issues_and_merge_requests_shows_no_milestones() {
    let (forge, ann, project, milestones) = start().await;
    ann.make(&milestones, with_title("1.0")).await;
    let switch = async |issues: bool, merge_requests: bool| {
        let body = json!({ "name": "rocket", "issues_enabled": issues, "merge_requests_enabled": merge_requests });
        assert_eq!(ann.put(&format!("/projects/{project}"), body).await.code(), 200);
    };
    let one = format!("{milestones}/1");
    for (issues, merge_requests) in [(true, false), (false, true)] {
        switch(issues, merge_requests).await;
        assert_eq!(ann.get(&milestones).await.join_field("title"), "1.0");
        assert_eq!(ann.get(&one).await.code(), 200);
        assert_eq!(ann.get(&format!("{one}/issues")).await.to_string(), "200 OK\n[]");
    }
    switch(false, false).await;
    let before = forge.dump();
    assert_eq!(ann.get(&milestones).await.to_string(), "200 OK\n[]");
    assert_eq!(ann.get(&one).await.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    assert_eq!(ann.get(&format!("{one}/issues")).await.code(), 404);
    assert_eq!(
        ann.post(&milestones, with_title("2.0")).await.to_string(),
        "403 Forbidden\n{\"message\":\"403 Forbidden\"}"
    );
    assert_eq!(ann.put(&one, with_title("2.0")).await.code(), 403);
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn changes_of_the_state_of_a_milestone_record_events() {
    let (_forge, ann, project, milestones) = start().await;
    let id = ann.make(&milestones, with_title("1.0")).await;
    let one = format!("{milestones}/{id}");
    // Edits record no event, and a closed milestone cannot be closed again.
    for change in [
        json!({ "title": "1.1" }),
        json!({ "state_event": "activate" }),
        json!({ "state_event": "close" }),
        json!({ "state_event": "close", "description": "done" }),
        json!({ "state_event": "activate" }),
    ] {
        assert_eq!(ann.put(&one, change).await.code(), 200);
    }
    let events = ann.get(&format!("/projects/{project}/events?per_page=3")).await;
    assert_eq!(events.join_field("action_name"), "opened closed opened");
    assert_eq!(events.join_field("target_type"), "Milestone Milestone Milestone");
    assert_eq!(events.join_field("target_id"), format!("{id} {id} {id}"));
}

#[tokio::test]
async fn issues_of_a_milestone_are_listed_if_they_are_visible() {
    let (forge, ann, project, milestones) = start().await;
    let guest = member(&forge, &ann, project, "gus", 10).await;
    let reporter = member(&forge, &ann, project, "rep", 20).await;
    let one = MilestoneId::new(ann.make(&milestones, with_title("1.0")).await);
    let two = MilestoneId::new(ann.make(&milestones, with_title("2.0")).await);
    let issue = |milestone: Option<MilestoneId>, author: &TestClient, title: &str, confidential: bool| {
        forge.clock.advance(SignedDuration::from_mins(1));
        let now = forge.forge.now();
        forge.in_transaction(|db| {
            let iid = store::issues::next_iid(db, project).expect("a number");
            let author = Some(author.id);
            let (description, assignee, due_on) = (None, None, None);
            let new = NewIssue {
                project,
                iid,
                author,
                title,
                description,
                assignee,
                milestone,
                due_on,
                confidential,
                created_at: now,
                now,
            };
            store::issues::insert(db, &new).expect("an issue")
        });
    };
    issue(Some(one), &ann, "first", false);
    issue(Some(one), &ann, "secret", true);
    issue(Some(one), &guest, "own", true);
    issue(Some(two), &ann, "later", false);
    issue(None, &ann, "some-day", false);
    let issues = format!("{milestones}/{one}/issues");
    for (client, expected, total) in
        [(&ann, "own secret first", "3"), (&reporter, "own secret first", "3"), (&guest, "own first", "2")]
    {
        let listed = client.get(&issues).await;
        assert_eq!((listed.join_field("title"), listed.header("x-total")), (expected.into(), total));
        assert_eq!(listed.json()[0]["milestone"], client.get(&format!("{milestones}/{one}")).await.json());
    }
    assert_eq!(ann.get(&format!("{issues}?per_page=1&page=2")).await.join_field("title"), "secret");
    assert_eq!(guest.get(&format!("{milestones}/99/issues")).await.code(), 404);
    assert_snapshot!(ann.get(&format!("{issues}?per_page=x")).await, @r#"
    400 Bad Request
    {"error":"per_page is invalid"}
    "#);
}

/// A milestone of another project cannot be read or changed by its id.
#[tokio::test]
async fn a_milestone_of_another_project_is_not_found() {
    let (forge, ann, _, milestones) = start().await;
    let id = ann.make(&milestones, with_title("1.0")).await;
    let eve = forge.user("eve").await;
    let elsewhere = eve.make("/projects", json!({ "name": "elsewhere" })).await;
    let before = forge.dump();
    let path = format!("/projects/{elsewhere}/milestones/{id}");
    let missing = "404 Not Found\n{\"message\":\"404 Not found\"}";
    assert_eq!(eve.get(&path).await.to_string(), missing);
    assert_eq!(eve.get(&format!("{path}/issues")).await.to_string(), missing);
    assert_eq!(eve.put(&path, with_title("2.0")).await.to_string(), missing);
    assert_eq!(eve.get(&format!("/projects/{elsewhere}/milestones?iid=1")).await.to_string(), "200 OK\n[]");
    assert_eq!(forge.dump(), before);
}

/// Former members of a private project do not see its milestones.
#[tokio::test]
async fn a_former_member_sees_no_milestones() {
    let (forge, ann, project, milestones) = start().await;
    let max = member(&forge, &ann, project, "max", 40).await;
    let one = format!("{milestones}/{}", max.make(&milestones, with_title("1.0")).await);
    assert_eq!(ann.delete(&format!("/projects/{project}/members/{}", max.id)).await.code(), 200);
    let before = forge.dump();
    let responses = [
        max.get(&milestones).await,
        max.get(&one).await,
        max.get(&format!("{one}/issues")).await,
        max.post(&milestones, with_title("2.0")).await,
        max.put(&one, with_title("2.0")).await,
    ];
    for response in responses {
        assert_eq!(response.to_string(), "404 Not Found\n{\"message\":\"404 Project Not Found\"}");
    }
    assert_eq!(forge.dump(), before);
}

/// Reading changes nothing.
#[tokio::test]
async fn reading_milestones_writes_nothing() {
    let (forge, ann, _, milestones) = start().await;
    let one = format!("{milestones}/{}", ann.make(&milestones, with_title("1.0")).await);
    let before = forge.dump();
    for path in [&milestones, &format!("{one}?state_event=close&title=x"), &format!("{one}/issues")] {
        assert_eq!((ann.get(path).await.code(), ann.head(path).await.code()), (200, 200), "{path}");
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_for_the_same_title_succeed_once() {
    let (forge, ann, project, milestones) = start().await;
    let max = member(&forge, &ann, project, "max", 40).await;
    for number in 0..10 {
        let new = with_title(&number.to_string());
        let responses = tokio::join!(ann.post(&milestones, new.clone()), max.post(&milestones, new));
        let (made, refused) = if responses.0.code() == 201 { responses } else { (responses.1, responses.0) };
        assert_eq!((made.code(), &made.json()["iid"]), (201, &json!(number + 1)));
        let taken = "400 Bad Request\n{\"message\":{\"title\":[\"has already been taken\"]}}";
        assert_eq!(refused.to_string(), taken);
    }
    // The same for renames.
    let (first, second) = (format!("{milestones}/1"), format!("{milestones}/2"));
    let renamed = tokio::join!(ann.put(&first, with_title("x")), max.put(&second, with_title("x")));
    let mut codes = [renamed.0.code(), renamed.1.code()];
    codes.sort_unstable();
    assert_eq!(codes, [200, 400]);
    assert_eq!(ann.get(&milestones).await.header("x-total"), "10");
}
