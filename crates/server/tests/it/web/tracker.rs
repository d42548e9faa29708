//! The pages of the issue tracker beside the list and the comments of issues: forms, labels, milestones, the board and the
//! dashboard.

use serde_json::{Value, json};
use testkit::{TestClient, TestForge, browser::Browser};

const PROJECT: &str = "/ann/rocket/-";
const ISSUE: &str = "/ann/rocket/-/issues/1";

/// A forge with the public project `ann/rocket`, of which `mia` is a master, `dan` a developer and `bob` no member, with
/// issue 1 of `bob`, the labels 1 `bug` and 2 `to do`, and the milestone `1.0`.
async fn start() -> (TestForge, TestClient) {
    let forge = TestForge::start().await;
    let (ann, mia, dan) = (forge.user("ann").await, forge.user("mia").await, forge.user("dan").await);
    let bob = forge.user("bob").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.make("/projects/1/members", json!({ "user_id": mia.id.get(), "access_level": 40 })).await;
    ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
    ann.post("/projects/1/labels", json!({ "name": "bug", "color": "#d9534f" })).await;
    ann.post("/projects/1/labels", json!({ "name": "to do", "color": "#5cb85c" })).await;
    ann.make("/projects/1/milestones", json!({ "title": "1.0" })).await;
    bob.make("/projects/1/issues", json!({ "title": "It leaks", "description": "fuel" })).await;
    (forge, ann)
}

fn id_of(forge: &TestForge, username: &str) -> i64 {
    let user = forge.with_connection(|db| store::users::by_username(db, username).expect("found"));
    user.expect("a user").id.get()
}

async fn issue(client: &TestClient) -> Value {
    client.get("/projects/1/issues/1").await.json()
}

#[track_caller]
fn contains(page: &testkit::TestResponse, parts: &[&str]) {
    for part in parts {
        assert!(page.text.contains(part), "{part}: {page}");
    }
}

#[track_caller]
fn lacks(page: &testkit::TestResponse, parts: &[&str]) {
    for part in parts {
        assert!(!page.text.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn a_developer_changes_all_fields_of_an_issue() {
    let (forge, ann) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let edit = format!("{ISSUE}/edit");
    contains(&dan.get(&edit).await, &["value=\"It leaks\"", "fuel</textarea>", "#d9534f", "<option value=\"1\">1.0"]);
    let fields = [
        ("form", "issue"),
        ("title", "It leaks <fast>"),
        ("description", "fuel\r\nand oil"),
        ("managed", "1"),
        ("labels", "bug"),
        ("labels", "to do"),
        ("assignee", "@dan"),
        ("milestone_id", "1"),
        ("due_date", "2030-02-28"),
        ("has_confidential", "1"),
        ("confidential", "1"),
    ];
    let saved = dan.submit(&edit, ISSUE, &fields).await;
    assert_eq!((saved.code(), saved.header("location")), (303, ISSUE), "{saved}");
    let stored = issue(&ann).await;
    assert_eq!(stored["title"], "It leaks <fast>");
    assert_eq!(stored["description"], "fuel\nand oil");
    assert_eq!(stored["labels"], json!(["bug", "to do"]));
    assert_eq!((&stored["assignee"]["username"], &stored["milestone"]["title"]), (&json!("dan"), &json!("1.0")));
    assert_eq!((&stored["due_date"], &stored["confidential"]), (&json!("2030-02-28"), &json!(true)));
    let page = dan.get(ISSUE).await;
    contains(
        &page,
        &["It leaks &lt;fast&gt;", "fill=\"#d9534f\"", "Due 2030-02-28", "/-/milestones/1\"", "confidential"],
    );
    contains(&dan.get(&edit).await, &["value=\"dan\"", "value=\"bug\" checked", "value=\"2030-02-28\""]);
    // Everything can be cleared again.
    let cleared = [("form", "issue"), ("title", "x"), ("managed", "1"), ("has_confidential", "1")];
    assert_eq!(dan.submit(&edit, ISSUE, &cleared).await.code(), 303);
    let stored = issue(&ann).await;
    assert_eq!((&stored["labels"], &stored["assignee"]), (&json!([]), &Value::Null));
    assert_eq!((&stored["milestone"], &stored["due_date"]), (&Value::Null, &Value::Null));
    assert_eq!((&stored["description"], &stored["confidential"]), (&Value::Null, &json!(false)));
}

#[tokio::test]
async fn an_author_without_a_role_changes_the_text_only() {
    let (forge, ann) = start().await;
    let (bob, anonymous) = (forge.signed_in_browser("bob").await, forge.browser());
    forge.user("eve").await;
    let eve = forge.signed_in_browser("eve").await;
    let edit = format!("{ISSUE}/edit");
    lacks(&bob.get(&edit).await, &["name=\"assignee\"", "name=\"labels\"", "Delete issue", "Move issue"]);
    let fields = [("title", "New title"), ("managed", "1"), ("labels", "bug"), ("assignee", "bob")];
    assert_eq!(bob.submit(&edit, ISSUE, &fields).await.code(), 303);
    let stored = issue(&ann).await;
    assert_eq!((&stored["title"], &stored["labels"]), (&json!("New title"), &json!([])));
    assert_eq!(stored["assignee"], Value::Null);
    lacks(&eve.get(ISSUE).await, &["/edit\""]);
    assert_eq!(eve.get(&edit).await.code(), 403);
    assert_eq!(eve.submit("/explore", ISSUE, &[("title", "eve")]).await.code(), 403);
    assert_eq!(anonymous.get(&edit).await.code(), 303);
    assert_eq!(issue(&ann).await["title"], "New title");
}

#[tokio::test]
async fn an_invalid_change_keeps_what_was_typed() {
    let (forge, ann) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let edit = format!("{ISSUE}/edit");
    let fields = [
        ("form", "issue"),
        ("title", "typed"),
        ("managed", "1"),
        ("labels", "bug"),
        ("assignee", "nobody\0"),
        ("due_date", "tomorrow"),
    ];
    let refused = dan.submit(&edit, ISSUE, &fields).await;
    assert_eq!(refused.code(), 422);
    let parts = ["Assignee is invalid", "Due date is not a date", "value=\"typed\"", "value=\"bug\" checked"];
    contains(&refused, &parts);
    contains(&refused, &["aria-describedby=\"assignee-error\"", "value=\"tomorrow\""]);
    let blank = dan.submit(&edit, ISSUE, &[("form", "issue"), ("title", " "), ("managed", "1")]).await;
    assert_eq!(blank.code(), 422);
    contains(&blank, &["Title can&#39;t be blank"]);
    assert_eq!(issue(&ann).await["title"], "It leaks");
}

#[tokio::test]
async fn two_users_who_edit_an_issue_do_not_overwrite_each_other() {
    let (forge, ann) = start().await;
    let (dan, mia) = (forge.signed_in_browser("dan").await, forge.signed_in_browser("mia").await);
    let edit = format!("{ISSUE}/edit");
    let version = |page: &testkit::TestResponse| {
        let found = page.text.split("name=\"version\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        found.unwrap_or_else(|| panic!("no version: {page}")).to_owned()
    };
    let (seen_by_dan, seen_by_mia) = (version(&dan.get(&edit).await), version(&mia.get(&edit).await));
    let save = async |browser: &Browser, version: &str, title: &str, description: &str| {
        let fields = [("form", "issue"), ("version", version), ("title", title), ("description", description)];
        browser.submit(&edit, ISSUE, &fields).await
    };
    let blank = save(&dan, &seen_by_dan, " ", "<mine>").await;
    assert_eq!((blank.code(), version(&blank)), (422, seen_by_dan.clone()));
    assert_eq!(save(&mia, &seen_by_mia, "It leaks", "<theirs>").await.code(), 303);
    // A form that was sent twice is no conflict.
    assert_eq!(save(&mia, &seen_by_mia, "It leaks", "<theirs>").await.code(), 303);
    let refused = save(&dan, &seen_by_dan, "Mine", "<mine>").await;
    assert_eq!(refused.code(), 409, "{refused}");
    let parts =
        ["The issue was changed after this form was opened", "&lt;theirs&gt;", "value=\"Mine\"", "&#60;mine&#62;"];
    contains(&refused, &parts);
    assert_eq!(issue(&ann).await["description"], "<theirs>");
    assert_eq!(save(&dan, &version(&refused), "Mine", "<mine>").await.code(), 303);
    assert_eq!((&issue(&ann).await["title"], &issue(&ann).await["description"]), (&json!("Mine"), &json!("<mine>")));
    // A comment does not change the fields.
    let seen = version(&dan.get(&edit).await);
    ann.make("/projects/1/issues/1/notes", json!({ "body": "x" })).await;
    assert_eq!(save(&dan, &seen, "Mine", "newer").await.code(), 303);
}

#[tokio::test]
async fn an_old_form_does_not_publish_a_confidential_issue_or_remove_its_labels() {
    let (forge, ann) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let edit = format!("{ISSUE}/edit");
    let page = dan.get(&edit).await;
    let version = page.text.split("name=\"version\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.expect("a version").to_owned();
    ann.put("/projects/1/issues/1", json!({ "labels": "bug", "confidential": true })).await;
    let fields = [
        ("form", "issue"),
        ("version", &*version),
        ("title", "It leaks"),
        ("description", "fuel"),
        ("has_confidential", "1"),
        ("managed", "1"),
    ];
    let refused = dan.submit(&edit, ISSUE, &fields).await;
    assert_eq!(refused.code(), 409, "{refused}");
    let stored = issue(&ann).await;
    assert_eq!((&stored["confidential"], &stored["labels"]), (&json!(true), &json!(["bug"])));
}

#[tokio::test]
async fn nul_in_texts_is_removed() {
    let (forge, ann) = start().await;
    let dan = forge.signed_in_browser("dan").await;
    let note = dan.submit(ISSUE, &format!("{ISSUE}/notes"), &[("note", "a\0b")]).await;
    assert_eq!(note.code(), 303, "{note}");
    let fields = [("form", "issue"), ("title", "It\0 leaks"), ("description", "fu\0el")];
    assert_eq!(dan.submit(&format!("{ISSUE}/edit"), ISSUE, &fields).await.code(), 303);
    assert_eq!(ann.get("/projects/1/issues/1/notes").await.json()[0]["body"], "ab");
    assert_eq!((&issue(&ann).await["title"], &issue(&ann).await["description"]), (&json!("It leaks"), &json!("fuel")));
}

#[tokio::test]
async fn members_are_suggested_to_those_who_manage_issues_only() {
    let (forge, ann) = start().await;
    let hal = forge.user("hal").await;
    let crew = hal.make("/groups", json!({ "name": "crew", "path": "crew", "visibility_level": 0 })).await;
    hal.make(&format!("/groups/{crew}/members"), json!({ "user_id": ann.id.get(), "access_level": 10 })).await;
    let shared = ann.post("/projects/1/share", json!({ "group_id": crew, "group_access": 30 })).await;
    assert_eq!(shared.code(), 201, "{shared}");
    let list = format!("{PROJECT}/issues");
    contains(&forge.signed_in_browser("dan").await.get(&list).await, &["<option value=\"hal\""]);
    lacks(&forge.signed_in_browser("bob").await.get(&list).await, &["hal", "<option value=\"dan\""]);
}

#[tokio::test]
async fn comments_are_changed_by_their_authors_and_masters() {
    let (forge, ann) = start().await;
    let (bob, dan, mia) = (
        forge.signed_in_browser("bob").await,
        forge.signed_in_browser("dan").await,
        forge.signed_in_browser("mia").await,
    );
    bob.submit(ISSUE, &format!("{ISSUE}/notes"), &[("note", "first")]).await;
    bob.submit(ISSUE, &format!("{ISSUE}/notes"), &[("note", "second")]).await;
    let (first, second) = (format!("{ISSUE}/notes/1"), format!("{ISSUE}/notes/2"));
    contains(&bob.get(ISSUE).await, &["notes/1/edit", "notes/2/edit"]);
    lacks(&dan.get(ISSUE).await, &["notes/1/edit"]);
    contains(&mia.get(ISSUE).await, &["notes/1/edit"]);
    assert_eq!(dan.get(&format!("{first}/edit")).await.code(), 403);
    assert_eq!(dan.submit(ISSUE, &first, &[("note", "changed")]).await.code(), 403);
    assert_eq!(dan.submit(ISSUE, &format!("{first}/delete"), &[]).await.code(), 403);
    contains(&bob.get(&format!("{first}/edit")).await, &["first</textarea>"]);
    let saved = bob.submit(&format!("{first}/edit"), &first, &[("note", "changed <b>")]).await;
    assert_eq!((saved.code(), saved.header("location")), (303, &*format!("{ISSUE}#note_1")), "{saved}");
    let refused = bob.submit(&format!("{first}/edit"), &first, &[("note", " ")]).await;
    assert_eq!(refused.code(), 422);
    contains(&refused, &["Comment can&#39;t be blank"]);
    assert_eq!(mia.submit(&format!("{second}/edit"), &format!("{second}/delete"), &[]).await.code(), 303);
    let notes = ann.get("/projects/1/issues/1/notes").await.json();
    assert_eq!(notes.as_array().map(Vec::len), Some(1), "{notes}");
    assert_eq!(notes[0]["body"], "changed <b>");
    for odd in ["2", "99", "x"] {
        assert_eq!(mia.get(&format!("{ISSUE}/notes/{odd}/edit")).await.code(), 404, "{odd}");
    }
}

#[tokio::test]
async fn users_subscribe_to_issues_and_labels() {
    let (forge, _) = start().await;
    forge.user("eve").await;
    let eve = forge.signed_in_browser("eve").await;
    contains(&eve.get(ISSUE).await, &[">Subscribe<"]);
    for (value, shown) in [("1", ">Unsubscribe<"), ("1", ">Unsubscribe<"), ("0", ">Subscribe<")] {
        let changed = eve.submit(ISSUE, &format!("{ISSUE}/subscription"), &[("subscribed", value)]).await;
        assert_eq!(changed.code(), 303);
        contains(&eve.get(ISSUE).await, &[shown]);
    }
    let labels = format!("{PROJECT}/labels");
    lacks(&eve.get(&labels).await, &["New label", "/edit\"", ">Unsubscribe<"]);
    assert_eq!(eve.submit(&labels, &format!("{labels}/1/subscription"), &[("subscribed", "1")]).await.code(), 303);
    contains(&eve.get(&labels).await, &[">Unsubscribe<"]);
}

#[tokio::test]
async fn an_owner_deletes_an_issue_after_typing_its_reference() {
    let (forge, ann) = start().await;
    let (owner, dan) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("dan").await);
    let (edit, delete) = (format!("{ISSUE}/edit"), format!("{ISSUE}/delete"));
    lacks(&dan.get(&edit).await, &["Delete issue"]);
    assert_eq!(dan.submit(&edit, &delete, &[("confirmation", "ann/rocket#1")]).await.code(), 403);
    let refused = owner.submit(&edit, &delete, &[("confirmation", "#1")]).await;
    assert_eq!(refused.code(), 422);
    contains(&refused, &["The text does not match", "value=\"It leaks\""]);
    assert_eq!(owner.submit(&edit, &delete, &[("confirmation", "ann/rocket#1")]).await.code(), 303);
    assert_eq!(ann.get("/projects/1/issues/1").await.code(), 404);
}

#[tokio::test]
async fn an_issue_moves_to_a_project_that_the_user_manages() {
    let (forge, ann) = start().await;
    let owner = forge.signed_in_browser("ann").await;
    let bob = forge.user("bob-2").await;
    bob.make("/projects", json!({ "name": "hidden" })).await;
    ann.make("/projects", json!({ "name": "probe" })).await;
    let (edit, to) = (format!("{ISSUE}/edit"), format!("{ISSUE}/move"));
    for hidden in ["bob-2/hidden", "ann/missing", "x\0"] {
        let refused = owner.submit(&edit, &to, &[("target", hidden)]).await;
        assert_eq!(refused.code(), 422, "{hidden}");
        contains(&refused, &["The project is not a project that you can see"]);
    }
    let moved = owner.submit(&edit, &to, &[("target", "ann/probe")]).await;
    assert_eq!((moved.code(), moved.header("location")), (303, "/ann/probe/-/issues/1"));
    assert_eq!(issue(&ann).await["state"], "closed");
}

#[tokio::test]
async fn issues_are_filtered_by_people_labels_and_milestones() {
    let (forge, ann) = start().await;
    let dan = id_of(&forge, "dan");
    for (title, fields) in [
        ("second", json!({ "labels": "bug,to do", "assignee_id": dan })),
        ("third", json!({ "labels": "bug", "milestone_id": 1 })),
    ] {
        let mut fields = fields;
        fields["title"] = title.into();
        ann.make("/projects/1/issues", fields).await;
    }
    let visitor = forge.browser();
    let titles = async |query: &str| {
        let page = visitor.get(&format!("{PROJECT}/issues?{query}")).await;
        assert_eq!(page.code(), 200, "{page}");
        let known = ["It leaks", "second", "third"];
        known
            .into_iter()
            .filter(|title| page.text.contains(&format!("<bdi>{title}</bdi>")))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(titles("author_username=bob").await, "It leaks");
    assert_eq!(titles("author_username=ann&label_name[]=bug").await, "second third");
    assert_eq!(titles("label_name%5B%5D=bug&label_name%5B%5D=to+do").await, "second");
    assert_eq!(titles("assignee_username=dan").await, "second");
    assert_eq!(titles("assignee_username=None").await, "It leaks third");
    assert_eq!(titles("assignee_id=None&milestone_title=1.0").await, "third");
    assert_eq!(titles("milestone_title=None").await, "It leaks second");
    assert_eq!(titles("author_username=missing").await, "");
    assert_eq!(titles("author_username=a%00nn&state=all").await, "second third");
    let page = visitor.get(&format!("{PROJECT}/issues?label_name[]=bug&label_name[]=gone")).await;
    contains(&page, &["value=\"bug\" checked", "value=\"gone\" checked", "No issue matches"]);
    lacks(&page, &["<option value=\"dan\""]);
}

#[tokio::test]
async fn a_reporter_manages_labels() {
    let (forge, ann) = start().await;
    let (dan, bob) = (forge.signed_in_browser("dan").await, forge.signed_in_browser("bob").await);
    let (labels, new) = (format!("{PROJECT}/labels"), format!("{PROJECT}/labels/new"));
    assert_eq!(bob.get(&new).await.code(), 403);
    assert_eq!(bob.submit(&labels, &labels, &[("title", "x"), ("color", "#000000")]).await.code(), 403);
    let fields = [("title", "R&D"), ("color", "#0000ff"), ("description", "a <b>"), ("priority", "3")];
    assert_eq!(dan.submit(&new, &labels, &fields).await.code(), 303);
    let page = forge.browser().get(&labels).await;
    contains(&page, &["R&amp;D", "fill=\"#0000ff\"", "a &lt;b&gt;"]);
    lacks(&page, &["New label", "Subscribe"]);
    for (fields, message) in [
        ([("title", "bug"), ("color", "#000000"), ("priority", "")], "Title has already been taken"),
        ([("title", "a,b"), ("color", "#000000"), ("priority", "")], "Title is invalid"),
        ([("title", "x"), ("color", "red\" onclick=\""), ("priority", "")], "Color must be a valid color code"),
        ([("title", "x"), ("color", "#000000"), ("priority", "-1")], "Priority must be greater"),
        ([("title", "x"), ("color", "#000000"), ("priority", "99999999999")], "Priority is not a number"),
    ] {
        let refused = dan.submit(&new, &labels, &fields).await;
        assert_eq!(refused.code(), 422, "{message}");
        contains(&refused, &[message]);
        lacks(&refused, &["onclick=\""]);
        let refused = dan.submit(&format!("{labels}/2/edit"), &format!("{labels}/2"), &fields).await;
        assert_eq!(refused.code(), 422, "{message}");
    }
    let fields = [("title", "defect"), ("color", "#111111"), ("description", ""), ("priority", "")];
    assert_eq!(dan.submit(&format!("{labels}/1/edit"), &format!("{labels}/1"), &fields).await.code(), 303);
    let refused =
        dan.submit(&format!("{labels}/2/edit"), &format!("{labels}/2/delete"), &[("confirmation", "x")]).await;
    assert_eq!(refused.code(), 422);
    let deleted =
        dan.submit(&format!("{labels}/2/edit"), &format!("{labels}/2/delete"), &[("confirmation", "to do")]).await;
    assert_eq!(deleted.code(), 303);
    let stored = ann.get("/projects/1/labels").await.json();
    let titles: Vec<&str> =
        stored.as_array().expect("labels").iter().filter_map(|label| label["name"].as_str()).collect();
    assert_eq!(titles, ["defect", "R&D"]);
    assert_eq!(dan.get(&format!("{labels}/2/edit")).await.code(), 404);
}

#[tokio::test]
async fn a_master_manages_milestones() {
    let (forge, ann) = start().await;
    let (mia, dan) = (forge.signed_in_browser("mia").await, forge.signed_in_browser("dan").await);
    let milestones = format!("{PROJECT}/milestones");
    let (new, first) = (format!("{milestones}/new"), format!("{milestones}/1"));
    lacks(&dan.get(&milestones).await, &["New milestone"]);
    assert_eq!(dan.get(&new).await.code(), 403);
    assert_eq!(dan.submit(&milestones, &milestones, &[("title", "x")]).await.code(), 403);
    assert_eq!(dan.submit(&first, &format!("{first}/state"), &[("state", "close")]).await.code(), 403);
    let fields =
        [("title", "2.0 <b>"), ("description", "**soon**"), ("start_date", "2030-01-01"), ("due_date", "2030-02-01")];
    let created = mia.submit(&new, &milestones, &fields).await;
    assert_eq!((created.code(), created.header("location")), (303, &*format!("{milestones}/2")));
    contains(&mia.get(&format!("{milestones}/2")).await, &["2.0 &lt;b&gt;", "<strong>soon</strong>", "Due 2030-02-01"]);
    for (fields, message) in [
        ([("title", "1.0"), ("start_date", ""), ("due_date", "")], "Title has already been taken"),
        ([("title", "x"), ("start_date", "2030-02-02"), ("due_date", "2030-02-01")], "Start date must not be after"),
        ([("title", "x"), ("start_date", "soon"), ("due_date", "")], "Start date is not a date"),
    ] {
        let refused = mia.submit(&new, &milestones, &fields).await;
        assert_eq!(refused.code(), 422);
        contains(&refused, &[message]);
    }
    ann.put("/projects/1/issues/1", json!({ "milestone_id": 1 })).await;
    ann.make("/projects/1/issues", json!({ "title": "done", "milestone_id": 1, "confidential": true })).await;
    ann.put("/projects/1/issues/2", json!({ "state_event": "close" })).await;
    contains(&mia.get(&first).await, &["<progress max=\"2\" value=\"1\"", "1 of 2 closed", "<bdi>done</bdi>"]);
    // Confidential issues are neither listed nor counted.
    let public = forge.browser().get(&first).await;
    contains(&public, &["<progress max=\"1\" value=\"0\"", "It leaks"]);
    lacks(&public, &["<bdi>done</bdi>", "Close milestone"]);
    let fields = [("title", "1.0 final"), ("description", ""), ("start_date", ""), ("due_date", "")];
    assert_eq!(mia.submit(&format!("{first}/edit"), &first, &fields).await.code(), 303);
    assert_eq!(mia.submit(&first, &format!("{first}/state"), &[("state", "close")]).await.code(), 303);
    lacks(&mia.get(&milestones).await, &["1.0 final"]);
    contains(&mia.get(&format!("{milestones}?state=closed")).await, &["1.0 final"]);
    assert_eq!(mia.submit(&first, &format!("{first}/state"), &[("state", "reopen")]).await.code(), 303);
    assert_eq!(ann.get("/projects/1/milestones/1").await.json()["state"], "active");
    assert_eq!(mia.get(&format!("{milestones}/9")).await.code(), 404);
}

#[tokio::test]
async fn cards_and_lists_move_on_the_board() {
    let (forge, ann) = start().await;
    let (dan, owner) = (forge.signed_in_browser("dan").await, forge.signed_in_browser("ann").await);
    let bob = forge.signed_in_browser("bob").await;
    let board = format!("{PROJECT}/boards");
    lacks(&bob.get(&board).await, &["Add list", "name=\"move\""]);
    assert_eq!(bob.submit(ISSUE, &format!("{board}/lists"), &[("label_id", "1")]).await.code(), 403);
    for label in ["1", "2"] {
        assert_eq!(dan.submit(&board, &format!("{board}/lists"), &[("label_id", label)]).await.code(), 303);
    }
    let page = dan.get(&board).await;
    contains(&page, &["aria-label=\"Move #1 to bug\"", "value=\"1.open.1\"", "Every label has a list"]);
    lacks(&page, &["Remove the list"]);
    let go = async |browser: &Browser, to: &str| browser.submit(&board, &board, &[("move", to)]).await.code();
    let state = async || {
        let issue = issue(&ann).await;
        (issue["labels"].to_string(), issue["state"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(bob.submit(ISSUE, &board, &[("move", "1.open.1")]).await.code(), 403);
    assert_eq!(go(&dan, "1.open.1").await, 303);
    assert_eq!(state().await, ("[\"bug\"]".into(), "opened".into()));
    assert_eq!(go(&dan, "1.1.2").await, 303);
    assert_eq!(state().await, ("[\"to do\"]".into(), "opened".into()));
    assert_eq!(go(&dan, "1.2.closed").await, 303);
    assert_eq!(state().await, ("[]".into(), "closed".into()));
    assert_eq!(go(&dan, "1.closed.2").await, 303);
    assert_eq!(state().await, ("[\"to do\"]".into(), "reopened".into()));
    for (odd, code) in [("", 422), ("1", 422), ("1.open", 422), ("1.open.x", 422), ("9.open.1", 404), ("1.open.9", 404)]
    {
        assert_eq!(go(&dan, odd).await, code, "{odd}");
    }
    let moved = dan.submit(&board, &format!("{board}/lists/2"), &[("direction", "left")]).await;
    assert_eq!(moved.code(), 303);
    let again = dan.submit(&board, &format!("{board}/lists/2"), &[("direction", "left")]).await;
    assert_eq!(again.code(), 303, "a list that cannot be moved further stays");
    let lists = ann.get("/projects/1/boards/1/lists").await.json();
    assert_eq!((&lists[0]["label"]["name"], &lists[1]["label"]["name"]), (&json!("to do"), &json!("bug")));
    assert_eq!(dan.submit(&board, &format!("{board}/lists/2/delete"), &[]).await.code(), 403);
    assert_eq!(owner.submit(&board, &format!("{board}/lists/2/delete"), &[]).await.code(), 303);
    lacks(&owner.get(&board).await, &["Remove the list to do"]);
}

#[tokio::test]
async fn a_column_shows_its_first_cards_and_hides_confidential_ones() {
    let (forge, ann) = start().await;
    for number in 0..25 {
        ann.make("/projects/1/issues", json!({ "title": format!("task {number}"), "labels": "bug" })).await;
    }
    ann.make("/projects/1/issues", json!({ "title": "secret", "confidential": true, "labels": "bug" })).await;
    ann.post("/projects/1/boards/1/lists", json!({ "label_id": 1 })).await;
    let board = forge.browser().get(&format!("{PROJECT}/boards")).await;
    assert_eq!(board.text.matches("<bdi>task ").count(), 20);
    contains(&board, &["<span class=\"count\">25</span>", "label_name%5B%5D=bug\">All issues of bug", "It leaks"]);
    lacks(&board, &["secret"]);
    contains(&forge.signed_in_browser("dan").await.get(&format!("{PROJECT}/boards")).await, &["secret"]);
}

#[tokio::test]
async fn the_dashboard_lists_assigned_issues_of_visible_projects() {
    let (forge, ann) = start().await;
    let dan_id = id_of(&forge, "dan");
    ann.put("/projects/1/issues/1", json!({ "assignee_id": dan_id, "labels": "bug" })).await;
    ann.make("/projects", json!({ "name": "hidden" })).await;
    ann.post("/projects/2/members", json!({ "user_id": dan_id, "access_level": 30 })).await;
    ann.make("/projects/2/issues", json!({ "title": "in private", "assignee_id": dan_id })).await;
    let dan = forge.signed_in_browser("dan").await;
    contains(&dan.get("/dashboard").await, &["It leaks", "ann/rocket#1", "in private", "All 2 issues"]);
    contains(&dan.get("/dashboard/issues").await, &["ann/hidden#1", "fill=\"#d9534f\""]);
    contains(&dan.get("/dashboard/issues?search=leak").await, &["It leaks"]);
    lacks(&dan.get("/dashboard/issues?state=closed").await, &["It leaks"]);
    ann.delete(&format!("/projects/2/members/{dan_id}")).await;
    lacks(&dan.get("/dashboard/issues").await, &["in private"]);
    let bob = forge.signed_in_browser("bob").await;
    contains(&bob.get("/dashboard/issues?scope=created").await, &["It leaks"]);
    lacks(&bob.get("/dashboard/issues").await, &["It leaks"]);
    assert_eq!(forge.browser().get("/dashboard/issues").await.code(), 303);
}

#[tokio::test]
async fn a_project_without_issues_has_no_pages_of_the_tracker() {
    let (forge, ann) = start().await;
    let changed = ann.put("/projects/1", json!({ "name": "rocket", "issues_enabled": false })).await;
    assert_eq!(changed.code(), 200, "{changed}");
    let owner = forge.signed_in_browser("ann").await;
    for page in ["issues", "issues/1", "issues/1/edit", "labels", "labels/new", "milestones", "milestones/1", "boards"]
    {
        assert!(matches!(owner.get(&format!("{PROJECT}/{page}")).await.code(), 403 | 404), "{page}");
    }
}
