//! Labels of projects; `labels_contract.txt` checks them against the contract line by line.

use axum::http::Method;
use insta::assert_snapshot;
use model::{IssueId, LabelId, ProjectId, UserId};
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse, fixtures};

/// Creates a label and returns its id.
pub(crate) async fn label(client: &TestClient, project: ProjectId, name: &str) -> LabelId {
    let made = client.post(&format!("/projects/{project}/labels"), json!({ "name": name, "color": "#d9534f" })).await;
    assert_eq!(made.code(), 200, "{made}");
    LabelId::new(made.json()["id"].as_i64().expect("a number"))
}

/// Inserts an issue with labels, which only some authors may set, and returns its id.
fn issue(forge: &TestForge, project: ProjectId, author: UserId, confidential: bool, labels: &[LabelId]) -> IssueId {
    let now = forge.forge.now();
    forge.in_transaction(|db| fixtures::issue(db, project, author, confidential, labels, now))
}

/// Changes an issue.
async fn change_issue(client: &TestClient, project: ProjectId, issue: IssueId, changes: Value) {
    let changed = client.put(&format!("/projects/{project}/issues/{issue}"), changes).await;
    assert_eq!(changed.code(), 200, "{changed}");
}

/// Starts a forge with Ann, who has two private projects, and Bob, who is a member of neither.
pub(crate) async fn start() -> (TestForge, TestClient, TestClient, [ProjectId; 2]) {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let own = ProjectId::new(ann.make("/projects", json!({ "name": "own" })).await);
    let other = ProjectId::new(ann.make("/projects", json!({ "name": "other" })).await);
    (forge, ann, bob, [own, other])
}

/// Adds a member to a project, or changes their access level.
async fn join(ann: &TestClient, project: ProjectId, client: &TestClient, level: i64) {
    let member = json!({ "user_id": client.id.get(), "access_level": level });
    ann.post(&format!("/projects/{project}/members"), member.clone()).await;
    let changed = ann.put(&format!("/projects/{project}/members/{}", client.id), member).await;
    assert_eq!(changed.json()["access_level"], level);
}

#[tokio::test]
async fn labels_are_listed_by_title_without_regard_to_case() {
    let (_forge, ann, _, [own, _]) = start().await;
    for name in ["beta", "Alpha", "élan", "alpha", "Ω", "Beta", "Éclair", "10", "9"] {
        label(&ann, own, name).await;
    }
    let labels = ann.get(&format!("/projects/{own}/labels")).await;
    assert_eq!(labels.join_field("name"), "10 9 Alpha alpha Beta beta Éclair élan Ω");
    assert_eq!(ann.get("/projects/ann%2Fown/labels?per_page=2").await.join_field("name"), "10 9");
}

#[tokio::test]
async fn labels_are_accepted_as_form_parameters() {
    let (_forge, ann, _, [own, _]) = start().await;
    let path = format!("/projects/{own}/labels");
    let form = "application/x-www-form-urlencoded";
    assert_snapshot!(ann.body(Method::POST, &path, form, "name=a%26b+%3F&color=%23FFF&priority=4").await, @r##"
    200 OK
    {"id":1,"name":"a&b ?","color":"#FFFFFF","description":null,"open_issues_count":0,"closed_issues_count":0,"open_merge_requests_count":0,"subscribed":false,"priority":4}
    "##);
    assert_snapshot!(ann.body(Method::PUT, &path, form, "name=a%26b+%3F&color=%23000&priority=").await, @r##"
    200 OK
    {"id":1,"name":"a&b ?","color":"#000000","description":null,"open_issues_count":0,"closed_issues_count":0,"open_merge_requests_count":0,"subscribed":false,"priority":null}
    "##);
    assert_eq!(
        ann.body(Method::PUT, &path, form, "name=a%26b+%3F&color=%23000&priority=7").await.json()["priority"],
        7
    );
    let none = ann.body(Method::PUT, &path, form, "name=a%26b+%3F&color=%23000&priority=null").await;
    assert_eq!(none.json()["priority"], Value::Null, "{none}");
    assert_eq!(ann.delete(&format!("{path}?name=a%26b%20%3F")).await.json()["id"], 1);
}

#[tokio::test]
async fn a_label_is_found_by_the_name_that_created_it() {
    let (_forge, ann, _, [own, _]) = start().await;
    let path = format!("/projects/{own}/labels");
    for (name, kept) in [(" R&amp;D ", "R&D"), ("<i>old</i>", "old"), ("&lt;b&gt;", "<b>"), ("size<10", "size<10")] {
        let new = json!({ "name": name, "color": "#abcdef" });
        let made = ann.post(&path, new.clone()).await.json();
        assert_eq!(made["name"], kept);
        for again in [name, kept] {
            let again = ann.post(&path, json!({ "name": again, "color": "#abcdef" })).await;
            assert_eq!(again.text, r#"{"message":"Label already exists"}"#, "{name}");
        }
        let changed = json!({ "name": name, "new_name": kept, "color": "#fedcba" });
        assert_eq!(ann.put(&path, changed).await.json()["color"], "#fedcba", "{name}");
        assert_eq!(ann.json(Method::DELETE, &path, json!({ "name": name })).await.json()["id"], made["id"], "{name}");
    }
}

#[tokio::test]
async fn invalid_labels_are_rejected_and_not_stored() {
    let (forge, ann, _, [own, _]) = start().await;
    let path = format!("/projects/{own}/labels");
    label(&ann, own, "bug").await;
    let before = forge.dump();
    let long = "x".repeat(10_000);
    assert_snapshot!(ann.post(&path, json!({ "name": long, "color": "red", "description": long })).await, @r#"
    400 Bad Request
    {"message":{"title":["is too long (maximum is 255 characters)"],"color":["must be a valid color code"],"description":["is too long (maximum is 255 characters)"]}}
    "#);
    assert_snapshot!(ann.put(&path, json!({ "name": "bug", "new_name": long, "priority": 7 })).await, @r#"
    400 Bad Request
    {"message":{"title":["is too long (maximum is 255 characters)"]}}
    "#);
    assert_snapshot!(ann.post(&path, json!({ "name": "a\0b", "color": "#fff" })).await, @r#"
    400 Bad Request
    {"error":"name is invalid"}
    "#);
    assert_snapshot!(ann.put(&path, json!({ "name": "bug", "color": "#fff", "priority": 1e30 })).await, @r#"
    400 Bad Request
    {"error":"priority is invalid"}
    "#);
    for name in ["%00", "%2F", "bug%2Fsubscription", "99999999999999999999", "%F0%9F%90%9B", "%25"] {
        let missed = ann.post(&format!("{path}/{name}/subscription"), json!({})).await;
        assert_eq!((missed.code(), missed.json()), (404, json!({ "message": "404 Label Not Found" })), "{name}");
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn labels_with_special_characters_can_be_subscribed_to() {
    let (_forge, ann, _, [own, _]) = start().await;
    let path = format!("/projects/{own}/labels");
    let ways = [
        ("a/b.json", "a/b.json"),
        ("c/subscription", "c%2Fsubscription"),
        ("what?", "what%3F"),
        ("50 % off", "50%20%25%20off"),
        ("subscription", "subscription"),
        ("🐛", "%F0%9F%90%9B"),
        ("v1.0", "v1.0"),
    ];
    for (name, segment) in ways {
        let id = label(&ann, own, name).await;
        let followed = ann.post(&format!("{path}/{segment}/subscription"), json!({})).await;
        assert_eq!((followed.code(), &followed.json()["id"]), (201, &json!(id.get())), "{name}: {followed}");
        let again = ann.post(&format!("{path}/{id}/subscription"), json!({})).await;
        assert_eq!((again.code(), again.text.as_str()), (304, ""), "{name}");
    }
    // A number refers to the label with this id or, if there is none, to the label with this title.
    let three = label(&ann, own, "3").await;
    assert_eq!(ann.delete(&format!("{path}/3/subscription")).await.json()["name"], "what?");
    assert_eq!(ann.post(&format!("{path}/{three}/subscription"), json!({})).await.json()["name"], "3");
    let named = label(&ann, own, "1234").await;
    assert_eq!(ann.post(&format!("{path}/1234/subscription"), json!({})).await.json()["id"], named.get());
}

/// Users who do not see confidential issues do not see their number either.
#[tokio::test]
async fn counts_do_not_reveal_confidential_issues() {
    let (forge, ann, bob, [own, _]) = start().await;
    let (root, eve) = (forge.admin().await, forge.user("eve").await);
    let external = forge.external("ext").await;
    ann.put(&format!("/projects/{own}"), json!({ "name": "own", "visibility_level": 20 })).await;
    let (bug, idea) = (label(&ann, own, "bug").await, label(&ann, own, "idea").await);
    issue(&forge, own, ann.id, false, &[bug]);
    let of_ann = issue(&forge, own, ann.id, true, &[bug, idea]);
    let of_bob = issue(&forge, own, bob.id, true, &[bug]);
    change_issue(&ann, own, of_ann, json!({ "assignee_id": eve.id.get() })).await;
    let path = format!("/projects/{own}/labels");
    let counts = async |client: &TestClient| {
        let labels = client.get(&path).await;
        format!("{} / {}", labels.join_field("open_issues_count"), labels.join_field("closed_issues_count"))
    };
    for (client, expected) in [
        (&ann, "3 1 / 0 0"),
        (&root, "3 1 / 0 0"),
        // Bob is the author of one, Eve the assignee of the other.
        (&bob, "2 0 / 0 0"),
        (&eve, "2 1 / 0 0"),
        (&external, "1 0 / 0 0"),
    ] {
        assert_eq!(counts(client).await, expected);
    }
    // Guests see no more than other users, reporters see all issues until they lose the role.
    for (level, expected) in [(10, "2 0 / 0 0"), (20, "3 1 / 0 0"), (10, "2 0 / 0 0")] {
        join(&ann, own, &bob, level).await;
        assert_eq!(counts(&bob).await, expected, "{level}");
    }
    change_issue(&ann, own, of_bob, json!({ "state_event": "close" })).await;
    assert_eq!((counts(&bob).await, counts(&eve).await), ("1 0 / 1 0".into(), "2 1 / 0 0".into()));
    assert_eq!(counts(&ann).await, "2 1 / 1 0");
    // A single label has the same counts as in the list.
    let followed = eve.post(&format!("{path}/bug/subscription"), json!({})).await.json();
    assert_eq!((&followed["open_issues_count"], &followed["closed_issues_count"]), (&json!(2), &json!(0)));
    let followed = external.post(&format!("{path}/idea/subscription"), json!({})).await.json();
    assert_eq!((&followed["open_issues_count"], &followed["closed_issues_count"]), (&json!(0), &json!(0)));
    // Published issues are counted for all users.
    for issue in [of_ann, of_bob] {
        change_issue(&ann, own, issue, json!({ "confidential": false })).await;
    }
    assert_eq!((counts(&external).await, counts(&ann).await), ("2 1 / 1 0".into(), "2 1 / 1 0".into()));
}

#[tokio::test]
async fn a_deleted_label_is_removed_from_issues_and_boards() {
    let (forge, ann, bob, [own, _]) = start().await;
    join(&ann, own, &bob, 10).await;
    let (bug, idea) = (label(&ann, own, "bug").await, label(&ann, own, "idea").await);
    issue(&forge, own, ann.id, false, &[bug, idea]);
    bob.post(&format!("/projects/{own}/labels/bug/subscription"), json!({})).await;
    ann.post(&format!("/projects/{own}/boards/{own}/lists"), json!({ "label_id": bug.get() })).await;
    ann.post(&format!("/projects/{own}/boards/{own}/lists"), json!({ "label_id": idea.get() })).await;
    assert_snapshot!(ann.delete(&format!("/projects/{own}/labels?name=bug")).await, @r##"
    200 OK
    {"id":1,"name":"bug","color":"#d9534f","description":null,"open_issues_count":1,"closed_issues_count":0,"open_merge_requests_count":0,"subscribed":false,"priority":null}
    "##);
    let dump = forge.dump();
    let left = |table: &str| dump.lines().filter(|line| line.starts_with(&format!("{table}: "))).count();
    assert_eq!((left("labels"), left("issue_labels"), left("label_subscriptions"), left("board_lists")), (1, 1, 0, 1));
    assert_eq!(ann.get(&format!("/projects/{own}/boards/{own}/lists")).await.join_field("position"), "0");
    // A new label with the same name has another id.
    assert_eq!(label(&ann, own, "bug").await, LabelId::new(3));
    assert_eq!(bob.get(&format!("/projects/{own}/labels")).await.join_field("subscribed"), "false false");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_requests_for_the_same_label_one_succeeds() {
    let (forge, ann, _, [own, _]) = start().await;
    let path = format!("/projects/{own}/labels");
    let tasks: Vec<_> = (0..32)
        .map(|number| {
            let (ann, path) = (ann.clone(), path.clone());
            let new = json!({ "name": "bug", "color": format!("#{number:06}") });
            tokio::spawn(async move { ann.post(&path, new).await })
        })
        .collect();
    let mut responses: Vec<TestResponse> = Vec::new();
    for task in tasks {
        responses.push(task.await.expect("a response"));
    }
    let (made, refused): (Vec<_>, Vec<_>) = responses.iter().partition(|response| response.code() == 200);
    assert_eq!((made.len(), refused.len()), (1, 31));
    for response in refused {
        assert_eq!((response.code(), response.json()), (409, json!({ "message": "Label already exists" })));
    }
    assert_eq!(ann.get(&path).await.join_field("color"), made[0].json()["color"].as_str().unwrap_or_default());
    assert_eq!(forge.dump().lines().filter(|line| line.starts_with("labels: ")).count(), 1);
}

/// Concurrent updates and deletions of one label are atomic.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_of_a_label_keep_it_consistent() {
    let (forge, ann, _, [own, _]) = start().await;
    let path = format!("/projects/{own}/labels");
    let bug = label(&ann, own, "bug").await;
    issue(&forge, own, ann.id, true, &[bug]);
    let tasks: Vec<_> = (0..32)
        .map(|number| {
            let (ann, path) = (ann.clone(), path.clone());
            tokio::spawn(async move {
                match number % 4 {
                    0 => ann.put(&path, json!({ "name": "bug", "new_name": "defect", "priority": number })).await,
                    1 => ann.put(&path, json!({ "name": "defect", "new_name": "bug" })).await,
                    2 => ann.post(&path, json!({ "name": "defect", "color": "#fff" })).await,
                    _ => ann.delete(&format!("{path}?name=defect")).await,
                }
            })
        })
        .collect();
    for task in tasks {
        let response = task.await.expect("a response");
        assert!(matches!(response.code(), 200 | 400 | 404 | 409), "{response}");
    }
    let names = ann.get(&path).await.join_field("name");
    assert!(["", "bug", "defect", "bug defect"].contains(&names.as_str()), "{names}");
    let carried = forge.dump().lines().filter(|line| line.starts_with("issue_labels: ")).count();
    let counted: i64 = ann
        .get(&path)
        .await
        .json()
        .as_array()
        .map_or(0, |labels| labels.iter().filter_map(|label: &Value| label["open_issues_count"].as_i64()).sum());
    assert_eq!(i64::try_from(carried), Ok(counted));
}

/// A label of another project cannot be read or changed by its id.
#[tokio::test]
async fn a_label_of_another_project_is_not_found() {
    let (forge, ann, bob, [own, other]) = start().await;
    let theirs = ProjectId::new(bob.make("/projects", json!({ "name": "theirs" })).await);
    let (bug, secret) = (label(&ann, own, "bug").await, label(&bob, theirs, "secret").await);
    let before = forge.dump();
    for label in [bug.to_string(), "bug".into(), secret.to_string(), "secret".into()] {
        let path = format!("/projects/{other}/labels/{label}/subscription");
        assert_eq!(ann.post(&path, json!({})).await.json(), json!({ "message": "404 Label Not Found" }));
        assert_eq!(ann.delete(&path).await.json(), json!({ "message": "404 Label Not Found" }));
    }
    let path = format!("/projects/{other}/labels");
    assert_eq!(ann.put(&path, json!({ "name": "bug", "color": "#fff" })).await.code(), 404);
    assert_eq!(ann.delete(&format!("{path}?name=secret")).await.code(), 404);
    let list = ann.post(&format!("/projects/{own}/boards/{own}/lists"), json!({ "label_id": secret.get() })).await;
    assert_eq!((list.code(), list.json()), (400, json!({ "message": { "error": "Label not found!" } })));
    assert_eq!(forge.dump(), before);
}

/// Former members neither see nor change labels and boards.
#[tokio::test]
async fn a_former_member_sees_no_labels_and_boards() {
    let (forge, ann, bob, [own, _]) = start().await;
    join(&ann, own, &bob, 40).await;
    let bug = label(&bob, own, "bug").await;
    let lists = format!("/projects/{own}/boards/{own}/lists");
    assert_eq!(bob.post(&lists, json!({ "label_id": bug.get() })).await.code(), 200);
    assert_eq!(bob.post(&format!("/projects/{own}/labels/bug/subscription"), json!({})).await.code(), 201);
    ann.delete(&format!("/projects/{own}/members/{}", bob.id)).await;
    let before = forge.dump();
    let labels = format!("/projects/{own}/labels");
    let responses = [
        bob.get(&labels).await,
        bob.post(&labels, json!({ "name": "x", "color": "#fff" })).await,
        bob.put(&labels, json!({ "name": "bug", "color": "#fff" })).await,
        bob.delete(&format!("{labels}?name=bug")).await,
        bob.post(&format!("{labels}/bug/subscription"), json!({})).await,
        bob.delete(&format!("{labels}/bug/subscription")).await,
        bob.get(&format!("/projects/{own}/boards")).await,
        bob.get(&lists).await,
        bob.get(&format!("{lists}/1")).await,
        bob.post(&lists, json!({ "label_id": bug.get() })).await,
        bob.put(&format!("{lists}/1"), json!({ "position": 0 })).await,
        bob.delete(&format!("{lists}/1")).await,
    ];
    for response in responses {
        assert_eq!((response.code(), response.json()), (404, json!({ "message": "404 Project Not Found" })));
    }
    assert_eq!(forge.dump(), before);
}

/// Reading labels and boards writes nothing, not even a missing board.
#[tokio::test]
async fn reading_labels_and_boards_writes_nothing() {
    let (forge, ann, _, [own, other]) = start().await;
    let bug = label(&ann, own, "bug").await;
    let lists = format!("/projects/{own}/boards/{own}/lists");
    ann.post(&lists, json!({ "label_id": bug.get() })).await;
    forge.execute_sql(&format!("DELETE FROM boards WHERE project_id = {other}"));
    let before = forge.dump();
    for path in [
        format!("/projects/{own}/labels"),
        format!("/projects/{own}/labels?name=bug&_method=DELETE"),
        format!("/projects/{own}/boards"),
        format!("{lists}?label_id={bug}&_method=POST"),
        format!("{lists}/1?position=3"),
        format!("/projects/{other}/boards"),
    ] {
        let (read, head) = (ann.get(&path).await, ann.head(&path).await);
        assert_eq!((read.code(), head.code(), head.text.as_str()), (200, 200, ""), "{path}");
    }
    assert_eq!(ann.get(&format!("/projects/{other}/boards")).await.text, "[]");
    for method in [Method::GET, Method::HEAD] {
        let path = format!("/projects/{own}/labels/{bug}/subscription");
        assert_eq!(ann.body(method, &path, "", "").await.code(), 405);
    }
    assert_eq!(forge.dump(), before);
}
