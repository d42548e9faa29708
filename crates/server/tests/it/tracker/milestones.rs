//! Milestones of projects: what shall be done until when.

use insta::assert_snapshot;
use jiff::SignedDuration;
use serde_json::{Value, json};
use store::issues::NewIssue;
use testkit::{Client, TestForge};

/// A forge with Ann and her private project.
async fn scene() -> (TestForge, Client, i64, String) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "rocket" })).await;
    (forge, ann, project, format!("/projects/{project}/milestones"))
}

/// Somebody who joins a project.
async fn member(forge: &TestForge, owner: &Client, project: i64, name: &str, level: i64) -> Client {
    let user = forge.user(name).await;
    let member = json!({ "user_id": user.id, "access_level": level });
    assert_eq!(owner.post(&format!("/projects/{project}/members"), member).await.code(), 201);
    user
}

fn titled(title: &str) -> Value {
    json!({ "title": title })
}

#[tokio::test]
async fn a_milestone_is_made_shown_and_changed() {
    let (forge, ann, _, milestones) = scene().await;
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
    assert_eq!((listed.each("title"), listed.header("x-total")), ("1.0 2.0".into(), "2"));
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
    // It may keep its title, and another may have the one that it had.
    assert_eq!(ann.put(&one, titled("1.1")).await.code(), 200);
    assert_eq!(ann.put(&format!("{milestones}/2"), titled("1.0")).await.json()["title"], "1.0");
    assert_snapshot!(ann.get(&format!("{milestones}/3")).await, @r#"
    404 Not Found
    {"message":"404 Not found"}
    "#);
    assert_eq!(ann.put(&format!("{milestones}/3"), titled("x")).await.code(), 404);
}

#[tokio::test]
async fn milestones_are_listed_by_state_and_by_number() {
    let (_forge, ann, _, milestones) = scene().await;
    for title in ["a", "b", "c", "d"] {
        ann.make(&milestones, titled(title)).await;
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
        assert_eq!(ann.get(&format!("{milestones}{query}")).await.each("title"), expected, "{query}");
    }
    let page = ann.get(&format!("{milestones}?state=active&per_page=2")).await;
    assert_eq!((page.header("x-total"), page.header("x-next-page")), ("3", "2"));
    assert_snapshot!(ann.get(&format!("{milestones}?state=open&iid=x")).await, @r#"
    400 Bad Request
    {"error":"state does not have a valid value, iid is invalid"}
    "#);
}

#[tokio::test]
async fn numbers_are_counted_in_the_project() {
    let (_forge, ann, _, milestones) = scene().await;
    let other = ann.make("/projects", json!({ "name": "other" })).await;
    let others = format!("/projects/{other}/milestones");
    let mut numbers = Vec::new();
    for path in [&milestones, &others, &milestones, &others] {
        // A title is taken in its own project only.
        let made = ann.post(path, titled(&numbers.len().div_euclid(2).to_string())).await.json();
        numbers.push((made["id"].clone(), made["iid"].clone(), made["title"].clone()));
    }
    let expected = [(1, 1, "0"), (2, 1, "0"), (3, 2, "1"), (4, 2, "1")];
    assert_eq!(numbers, expected.map(|(id, iid, title)| (json!(id), json!(iid), json!(title))));
}

#[tokio::test]
async fn what_is_no_milestone_is_refused() {
    let (forge, ann, _, milestones) = scene().await;
    ann.make(&milestones, json!({ "title": "1.0", "start_date": "2026-02-01" })).await;
    ann.make(&milestones, titled("2.0")).await;
    let before = forge.dump();
    assert_snapshot!(ann.post(&milestones, json!({})).await, @r#"
    400 Bad Request
    {"error":"title is missing"}
    "#);
    assert_snapshot!(ann.post(&milestones, titled(" ")).await, @r#"
    400 Bad Request
    {"message":{"title":["can't be blank"]}}
    "#);
    assert_snapshot!(ann.post(&milestones, titled(&"x".repeat(256))).await, @r#"
    400 Bad Request
    {"message":{"title":["is too long (maximum is 255 characters)"]}}
    "#);
    assert_snapshot!(ann.post(&milestones, titled("a\0")).await, @r#"
    400 Bad Request
    {"error":"title is invalid"}
    "#);
    assert_snapshot!(ann.post(&milestones, titled(" 1.0")).await, @r#"
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
    // What was there before counts too.
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
async fn a_description_may_be_long_but_not_endless() {
    let forge = TestForge::setup().body_limit(4 << 20).start().await;
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
async fn milestones_are_read_by_all_members_and_made_by_masters() {
    let (forge, ann, project, milestones) = scene().await;
    let roles = [("guest", 10), ("reporter", 20), ("developer", 30), ("master", 40)];
    let mut everybody = vec![("owner", ann.clone())];
    for (name, level) in roles {
        everybody.push((name, member(&forge, &ann, project, name, level).await));
    }
    everybody.push(("outsider", forge.user("eve").await));
    everybody.push(("administrator", forge.admin().await));
    everybody.push(("nobody", forge.anonymous()));
    ann.make(&milestones, titled("1.0")).await;
    let one = format!("{milestones}/1");
    let mut table = String::new();
    for (who, client) in &everybody {
        let codes = [
            client.get(&milestones).await.code(),
            client.get(&one).await.code(),
            // Even with a body that is not in order, the right comes first.
            client.post(&milestones, json!({})).await.code(),
            client.post(&milestones, titled(who)).await.code(),
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
    nobody        [401, 401, 401, 401, 401]
    ");
    assert_snapshot!(everybody[1].1.post(&milestones, json!({})).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    assert_eq!(ann.get(&milestones).await.each("title"), "1.0 owner master administrator");
}

#[tokio::test]
async fn a_project_without_issues_and_merge_requests_shows_no_milestones() {
    let (forge, ann, project, milestones) = scene().await;
    ann.make(&milestones, titled("1.0")).await;
    let switch = async |issues: bool, merge_requests: bool| {
        let body = json!({ "name": "rocket", "issues_enabled": issues, "merge_requests_enabled": merge_requests });
        assert_eq!(ann.put(&format!("/projects/{project}"), body).await.code(), 200);
    };
    let one = format!("{milestones}/1");
    for (issues, merge_requests) in [(true, false), (false, true)] {
        switch(issues, merge_requests).await;
        assert_eq!(ann.get(&milestones).await.each("title"), "1.0");
        assert_eq!(ann.get(&one).await.code(), 200);
        assert_eq!(ann.get(&format!("{one}/issues")).await.to_string(), "200 OK\n[]");
    }
    switch(false, false).await;
    let before = forge.dump();
    assert_eq!(ann.get(&milestones).await.to_string(), "200 OK\n[]");
    assert_eq!(ann.get(&one).await.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
    assert_eq!(ann.get(&format!("{one}/issues")).await.code(), 404);
    assert_eq!(
        ann.post(&milestones, titled("2.0")).await.to_string(),
        "403 Forbidden\n{\"message\":\"403 Forbidden\"}"
    );
    assert_eq!(ann.put(&one, titled("2.0")).await.code(), 403);
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn what_happens_to_a_milestone_is_told() {
    let (_forge, ann, project, milestones) = scene().await;
    let id = ann.make(&milestones, titled("1.0")).await;
    let one = format!("{milestones}/{id}");
    // Edits are no news, and what is over cannot be ended again.
    for change in [
        json!({ "title": "1.1" }),
        json!({ "state_event": "activate" }),
        json!({ "state_event": "close" }),
        json!({ "state_event": "close", "description": "done" }),
        json!({ "state_event": "activate" }),
    ] {
        assert_eq!(ann.put(&one, change).await.code(), 200);
    }
    let told = ann.get(&format!("/projects/{project}/events?per_page=3")).await;
    assert_eq!(told.each("action_name"), "opened closed opened");
    assert_eq!(told.each("target_type"), "Milestone Milestone Milestone");
    assert_eq!(told.each("target_id"), format!("{id} {id} {id}"));
}

#[tokio::test]
async fn a_milestone_shows_its_issues_to_those_who_see_them() {
    let (forge, ann, project, milestones) = scene().await;
    let guest = member(&forge, &ann, project, "gus", 10).await;
    let reporter = member(&forge, &ann, project, "rep", 20).await;
    let (one, two) = (ann.make(&milestones, titled("1.0")).await, ann.make(&milestones, titled("2.0")).await);
    let issue = |milestone: Option<i64>, author: &Client, title: &str, confidential: bool| {
        forge.clock.advance(SignedDuration::from_mins(1));
        let now = forge.forge.now();
        forge.in_one_go(|db| {
            let iid = store::issues::next_number(db, project).expect("a number");
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
        assert_eq!((listed.each("title"), listed.header("x-total")), (expected.into(), total));
        assert_eq!(listed.json()[0]["milestone"], client.get(&format!("{milestones}/{one}")).await.json());
    }
    assert_eq!(ann.get(&format!("{issues}?per_page=1&page=2")).await.each("title"), "secret");
    assert_eq!(guest.get(&format!("{milestones}/99/issues")).await.code(), 404);
    assert_snapshot!(ann.get(&format!("{issues}?per_page=x")).await, @r#"
    400 Bad Request
    {"error":"per_page is invalid"}
    "#);
}

/// Lesson 15: the number of a milestone of another project finds nothing and changes nothing.
#[tokio::test]
async fn lesson_15_a_milestone_of_another_project_is_not_there() {
    let (forge, ann, _, milestones) = scene().await;
    let id = ann.make(&milestones, titled("1.0")).await;
    let eve = forge.user("eve").await;
    let elsewhere = eve.make("/projects", json!({ "name": "elsewhere" })).await;
    let before = forge.dump();
    let path = format!("/projects/{elsewhere}/milestones/{id}");
    let missing = "404 Not Found\n{\"message\":\"404 Not found\"}";
    assert_eq!(eve.get(&path).await.to_string(), missing);
    assert_eq!(eve.get(&format!("{path}/issues")).await.to_string(), missing);
    assert_eq!(eve.put(&path, titled("2.0")).await.to_string(), missing);
    assert_eq!(eve.get(&format!("/projects/{elsewhere}/milestones?iid=1")).await.to_string(), "200 OK\n[]");
    assert_eq!(forge.dump(), before);
}

/// Lesson 19: whoever has left a private project sees no milestone of it any more.
#[tokio::test]
async fn lesson_19_who_has_left_sees_no_milestones() {
    let (forge, ann, project, milestones) = scene().await;
    let max = member(&forge, &ann, project, "max", 40).await;
    let one = format!("{milestones}/{}", max.make(&milestones, titled("1.0")).await);
    assert_eq!(ann.delete(&format!("/projects/{project}/members/{}", max.id)).await.code(), 200);
    let before = forge.dump();
    let answers = [
        max.get(&milestones).await,
        max.get(&one).await,
        max.get(&format!("{one}/issues")).await,
        max.post(&milestones, titled("2.0")).await,
        max.put(&one, titled("2.0")).await,
    ];
    for answer in answers {
        assert_eq!(answer.to_string(), "404 Not Found\n{\"message\":\"404 Project Not Found\"}");
    }
    assert_eq!(forge.dump(), before);
}

/// Lesson 23: looking changes nothing.
#[tokio::test]
async fn lesson_23_reading_milestones_writes_nothing() {
    let (forge, ann, _, milestones) = scene().await;
    let one = format!("{milestones}/{}", ann.make(&milestones, titled("1.0")).await);
    let before = forge.dump();
    for path in [&milestones, &format!("{one}?state_event=close&title=x"), &format!("{one}/issues")] {
        assert_eq!((ann.get(path).await.code(), ann.head(path).await.code()), (200, 200), "{path}");
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_want_the_same_title_one_gets_it() {
    let (forge, ann, project, milestones) = scene().await;
    let max = member(&forge, &ann, project, "max", 40).await;
    for number in 0..10 {
        let new = titled(&number.to_string());
        let answers = tokio::join!(ann.post(&milestones, new.clone()), max.post(&milestones, new));
        let (made, refused) = if answers.0.code() == 201 { answers } else { (answers.1, answers.0) };
        assert_eq!((made.code(), &made.json()["iid"]), (201, &json!(number + 1)));
        let taken = "400 Bad Request\n{\"message\":{\"title\":[\"has already been taken\"]}}";
        assert_eq!(refused.to_string(), taken);
    }
    // The same when both are given the same new title.
    let (first, second) = (format!("{milestones}/1"), format!("{milestones}/2"));
    let renamed = tokio::join!(ann.put(&first, titled("x")), max.put(&second, titled("x")));
    let mut codes = [renamed.0.code(), renamed.1.code()];
    codes.sort_unstable();
    assert_eq!(codes, [200, 400]);
    assert_eq!(ann.get(&milestones).await.header("x-total"), "10");
}
