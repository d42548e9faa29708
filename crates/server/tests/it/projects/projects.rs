//! Single projects: creating, updating, starring, archiving, sharing and deleting.

use api::Dialect;
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{NamespaceId, Visibility};
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse, fixtures};

const PATH_FORMAT: &str = "can contain only letters, digits, '_', '-' and '.'. Cannot start with '-', end in '.git' or \
                           end in '.atom'";
const NAME_FORMAT: &str = "can contain only letters, digits, emojis, '_', '.', dash, space. It must start with letter, \
                           digit, emoji or '_'.";
const TAKEN: &str = "has already been taken";

fn status_and_body(answer: &TestResponse) -> (u16, Value) {
    (answer.code(), answer.json())
}

fn not_found() -> (u16, Value) {
    (404, json!({ "message": "404 Project Not Found" }))
}

fn forbidden() -> (u16, Value) {
    (403, json!({ "message": "403 Forbidden" }))
}

/// The response for invalid fields.
fn invalid(fields: Value) -> (u16, Value) {
    (400, json!({ "message": fields }))
}

async fn group(client: &TestClient, path: &str, visibility: i64) -> i64 {
    client.make("/groups", json!({ "name": path, "path": path, "visibility_level": visibility })).await
}

async fn project(client: &TestClient, name: &str) -> i64 {
    client.make("/projects", json!({ "name": name })).await
}

/// Adds a member to a project or a group.
async fn add_member(owner: &TestClient, source: &str, user: &TestClient, level: i64) {
    let body = json!({ "user_id": user.id.get(), "access_level": level });
    let added = owner.post(&format!("{source}/members"), body).await;
    assert_eq!(added.code(), 201, "{added}");
}

#[tokio::test]
async fn a_new_project_has_the_defaults() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let made = ann.post("/projects", json!({ "name": "My Rocket" })).await;
    let token = made.json()["runners_token"].as_str().expect("a token").to_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    assert!(token.len() == 20 && token.chars().all(plain), "{token}");
    assert_snapshot!(made.to_string().replace(&token, "TOKEN"), @r#"
    201 Created
    {"id":1,"description":null,"default_branch":null,"tag_list":[],"public":false,"archived":false,"visibility_level":0,"ssh_url_to_repo":"git@gable.test:ann/my-rocket.git","http_url_to_repo":"http://gable.test/ann/my-rocket.git","web_url":"http://gable.test/ann/my-rocket","owner":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann","created_at":"2026-01-02T03:04:05.678Z"},"name":"My Rocket","name_with_namespace":"ann / My Rocket","path":"my-rocket","path_with_namespace":"ann/my-rocket","container_registry_enabled":false,"issues_enabled":true,"merge_requests_enabled":false,"wiki_enabled":false,"builds_enabled":true,"snippets_enabled":false,"created_at":"2026-01-02T03:04:05.678Z","last_activity_at":"2026-01-02T03:04:05.678Z","shared_runners_enabled":true,"lfs_enabled":false,"creator_id":1,"namespace":{"id":1,"name":"ann","path":"ann","owner_id":1,"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","description":"","avatar":{"url":null},"share_with_group_lock":false,"visibility_level":20,"request_access_enabled":false,"deleted_at":null,"lfs_enabled":null,"kind":"user"},"avatar_url":null,"star_count":0,"forks_count":0,"open_issues_count":0,"runners_token":"TOKEN","public_builds":true,"shared_with_groups":[],"only_allow_merge_if_build_succeeds":false,"only_allow_merge_if_all_discussions_are_resolved":false,"request_access_enabled":false}
    "#);
    let shown = ann.get("/projects/1").await;
    let mut expected = made.json();
    let access = json!({ "access_level": 40, "notification_level": 3 });
    expected["permissions"] = json!({ "project_access": access, "group_access": null });
    assert_eq!(shown.json(), expected);
    // The token is not stored in plain text.
    assert!(!forge.dump().contains(&token));
    // Without issues there is no count.
    let quiet = ann.post("/projects", json!({ "name": "q", "issues_enabled": false })).await.json();
    assert_eq!((quiet.get("open_issues_count"), &quiet["issues_enabled"]), (None, &json!(false)));
}

#[tokio::test]
async fn a_project_in_a_group_belongs_to_the_group() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let acme = ann.make("/groups", json!({ "name": "Acme Corp", "path": "acme", "description": "Rockets" })).await;
    let made = ann.post("/projects", json!({ "name": "Rocket", "namespace_id": acme })).await.json();
    assert_eq!(made["name_with_namespace"], "Acme Corp / Rocket");
    assert_eq!(made["path_with_namespace"], "acme/rocket");
    assert_eq!(made.get("owner"), None);
    let namespace = &made["namespace"];
    assert_eq!((&namespace["owner_id"], &namespace["kind"]), (&Value::Null, &json!("group")));
    assert_eq!((&namespace["avatar"], &namespace["description"]), (&json!({ "url": null }), &json!("Rockets")));
    // No membership in the project: all access comes through the group.
    assert_eq!(ann.get("/projects/1/members").await.text, "[]");
    let access = json!({ "access_level": 50, "notification_level": 3 });
    let shown = ann.get("/projects/1").await.json();
    assert_eq!(shown["permissions"], json!({ "project_access": null, "group_access": access }));
    let by_admin = root.get("/projects/1").await.json();
    assert_eq!(by_admin["permissions"], json!({ "project_access": null, "group_access": null }));
    assert_eq!(by_admin["runners_token"], shown["runners_token"]);
}

#[tokio::test]
async fn the_runners_token_is_for_masters() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let made = ann.post("/projects", json!({ "name": "x", "visibility_level": 20 })).await.json();
    let other = ann.post("/projects", json!({ "name": "y" })).await.json();
    assert_ne!(made["runners_token"], other["runners_token"]);
    let stranger = forge.user("stranger").await;
    assert_eq!(stranger.get("/projects/1").await.json().get("runners_token"), None);
    for (name, level) in [("guest", 10), ("reporter", 20), ("developer", 30), ("master", 40)] {
        let member = forge.user(name).await;
        add_member(&ann, "/projects/1", &member, level).await;
        let shown = member.get("/projects/1").await.json();
        assert_eq!(shown["permissions"]["project_access"]["access_level"], level);
        let token = (level == 40).then_some(&made["runners_token"]);
        assert_eq!(shown.get("runners_token"), token, "{name}");
    }
    // Only reading, creating and updating the project return it.
    for answer in [
        ann.post("/projects/1/star", json!({})).await,
        ann.delete("/projects/1/star").await,
        ann.post("/projects/1/archive", json!({})).await,
        ann.post("/projects/1/unarchive", json!({})).await,
    ] {
        let shown = answer.json();
        assert_eq!((shown.get("runners_token"), shown.get("permissions")), (None, None), "{answer}");
    }
    for list in ["/projects", "/projects/visible", "/projects/owned"] {
        let shown = ann.get(list).await.json();
        assert_eq!(shown[0].get("runners_token"), None, "{list}");
        assert!(shown[0]["permissions"].is_object(), "{list}");
    }
    let edited = ann.put("/projects/1", json!({ "name": "x" })).await.json();
    assert_eq!((edited["runners_token"].clone(), edited.get("permissions")), (made["runners_token"].clone(), None));
}

#[tokio::test]
async fn the_path_is_derived_from_the_name_unless_given() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 20).await;
    for (name, path) in [
        ("My Project.v2", "my-project-v2"),
        ("foo_bar", "foo_bar"),
        ("Ünïcode", "unicode"),
        ("a - b", "a-b"),
        ("Trailing.", "trailing"),
        ("a 日本 b", "a-b-2"),
    ] {
        let mut body = json!({ "name": name, "namespace_id": acme });
        // The last one collides; no alternative path is invented.
        if path == "a-b-2" {
            let answer = ann.post("/projects", body.clone()).await;
            assert_eq!(status_and_body(&answer), invalid(json!({ "path": [TAKEN] })));
            body["path"] = json!(path);
        }
        assert_eq!(ann.post("/projects", body).await.json()["path"], path, "{name}");
    }
    let reloaded = ann.post("/projects", json!({ "name": "Kept", "path": "KeepsItsCase", "namespace_id": acme })).await;
    assert_eq!(reloaded.json()["path"], "KeepsItsCase");
    let emoji = ann.post("/projects", json!({ "name": "🚀 go", "namespace_id": acme })).await.json();
    assert_eq!((&emoji["name"], &emoji["path"]), (&json!("🚀 go"), &json!("go")));
    let blank = invalid(json!({ "path": ["can't be blank", PATH_FORMAT] }));
    assert_eq!(status_and_body(&ann.post("/projects", json!({ "name": "日本語" })).await), blank);
    assert_eq!(status_and_body(&ann.post("/projects", json!({ "name": "x", "path": "" })).await), blank);
    // Null counts as absent.
    assert_eq!(ann.post("/projects", json!({ "name": "Null path", "path": null })).await.json()["path"], "null-path");
}

#[tokio::test]
async fn an_invalid_name_path_or_description_is_rejected() {
    let forge = TestForge::builder().dialect(Dialect::Gitlab).start().await;
    let ann = forge.user("ann").await;
    let x = project(&ann, "x").await;
    let url = format!("/projects/{x}");
    let make = async |name: &str, path: &str| ann.post("/projects", json!({ "name": name, "path": path })).await;
    for name in ["-x", " x", ".x", "a/b", "<b>", "x!", "a\nb"] {
        let expected = invalid(json!({ "name": [NAME_FORMAT] }));
        assert_eq!(status_and_body(&make(name, "p").await), expected, "{name:?}");
        assert_eq!(status_and_body(&ann.put(&url, json!({ "name": name })).await), expected, "{name:?}");
    }
    for path in ["-p", "p.git", "p.GIT", "p.atom", ".", "..", "a/b", "a b", "ä"] {
        let expected = invalid(json!({ "path": [PATH_FORMAT] }));
        assert_eq!(status_and_body(&make("p", path).await), expected, "{path:?}");
        assert_eq!(status_and_body(&ann.put(&url, json!({ "path": path })).await), expected, "{path:?}");
    }
    let reserved = ".well-known all files groups hooks issues merge_requests new projects repository robots.txt s \
                    snippets teams u unsubscribes users tree commits wikis edit create update logs_tree preview blob \
                    blame raw create_dir find_file assets profile public";
    for path in reserved.split_whitespace() {
        let expected = invalid(json!({ "path": [format!("{path} is a reserved name")] }));
        assert_eq!(status_and_body(&make("p", path).await), expected, "{path}");
        assert_eq!(status_and_body(&ann.put(&url, json!({ "path": path })).await), expected, "{path}");
    }
    // Also if the path is derived from the name.
    let told_so = invalid(json!({ "path": ["issues is a reserved name"] }));
    assert_eq!(status_and_body(&ann.post("/projects", json!({ "name": "Issues" })).await), told_so);
    let long = json!({ "name": "n".repeat(256), "path": "p".repeat(256), "description": "d".repeat(2001) });
    let expected = invalid(json!({
        "name": ["is too long (maximum is 255 characters)"],
        "path": ["is too long (maximum is 255 characters)"],
        "description": ["is too long (maximum is 2000 characters)"],
    }));
    assert_eq!(status_and_body(&ann.post("/projects", long.clone()).await), expected);
    assert_eq!(status_and_body(&ann.put(&url, long).await), expected);
    assert_eq!(
        status_and_body(&ann.put(&url, json!({ "name": "" })).await),
        invalid(json!({ "name": ["can't be blank"] }))
    );
    let blank = invalid(json!({ "path": ["can't be blank", PATH_FORMAT] }));
    assert_eq!(status_and_body(&ann.put(&url, json!({ "path": "" })).await), blank);
    let reloaded = json!({ "name": "é".repeat(255), "path": "p".repeat(255), "description": "日".repeat(2000) });
    assert_eq!(ann.post("/projects", reloaded).await.code(), 201);
    assert_eq!(ann.post("/projects", json!({ "name": "a\0b" })).await.json(), json!({ "error": "name is invalid" }));
    assert_eq!(ann.get(&url).await.json()["path"], "x");
}

#[tokio::test]
async fn all_malformed_parameters_are_reported_at_once() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let wrong = json!({ "namespace_id": "x", "wiki_enabled": "perhaps", "public": 7, "visibility_level": 15 });
    assert_snapshot!(ann.post("/projects", wrong).await, @r#"
    400 Bad Request
    {"error":"name is missing, namespace_id is invalid, wiki_enabled is invalid, public is invalid, visibility_level does not have a valid value"}
    "#);
    // Administrators only, but malformed parameters are reported first.
    assert_snapshot!(ann.post("/projects/user/1", json!({})).await, @r#"
    400 Bad Request
    {"error":"name is missing"}
    "#);
    assert_snapshot!(ann.post("/projects/user/x", json!({ "name": "x" })).await, @r#"
    400 Bad Request
    {"error":"user_id is invalid"}
    "#);
    assert_eq!(status_and_body(&ann.post("/projects/user/1", json!({ "name": "x" })).await), forbidden());
    for (word, value) in [("on", true), ("Y", true), ("1", true), ("OFF", false), ("n", false), ("f", false)] {
        let name = format!("w{word}");
        let made = ann.post("/projects", json!({ "name": name, "public_builds": word })).await.json();
        assert_eq!(made["public_builds"], value, "{word}");
    }
}

#[tokio::test]
async fn a_name_or_path_is_taken_in_its_namespace_in_any_case() {
    let forge = TestForge::builder().dialect(Dialect::Gitlab).start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 20).await;
    project(&ann, "Rocket").await;
    let other = ann.make("/projects", json!({ "name": "Other", "path": "other" })).await;
    for (name, path, fields) in [
        ("Rocket", "rocket", json!({ "name": [TAKEN], "path": [TAKEN] })),
        ("ROCKET", "free", json!({ "name": [TAKEN] })),
        ("Free", "rOCKET", json!({ "path": [TAKEN] })),
    ] {
        let answer = ann.post("/projects", json!({ "name": name, "path": path })).await;
        assert_eq!(status_and_body(&answer), invalid(fields), "{name} {path}");
    }
    let url = format!("/projects/{other}");
    assert_eq!(status_and_body(&ann.put(&url, json!({ "name": "rocket" })).await), invalid(json!({ "name": [TAKEN] })));
    assert_eq!(status_and_body(&ann.put(&url, json!({ "path": "ROCKET" })).await), invalid(json!({ "path": [TAKEN] })));
    // In other namespaces both are free, and a project may keep its own name.
    let elsewhere = ann.post("/projects", json!({ "name": "Rocket", "namespace_id": acme })).await;
    assert_eq!((elsewhere.code(), &elsewhere.json()["path"]), (201, &json!("rocket")));
    let own = ann.put(&url, json!({ "name": "OTHER", "path": "OTHER" })).await.json();
    assert_eq!((&own["name"], &own["path"]), (&json!("OTHER"), &json!("OTHER")));
}

/// The wiki of the project `x` has the path `x.wiki`.
#[tokio::test]
async fn a_project_and_its_wiki_do_not_collide() {
    let forge = TestForge::builder().dialect(Dialect::Gitlab).start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 20).await;
    let make = async |name: &str, path: &str| ann.post("/projects", json!({ "name": name, "path": path })).await;
    let taken = invalid(json!({ "name": [TAKEN] }));
    assert_eq!(make("a", "x").await.code(), 201);
    assert_eq!(status_and_body(&make("b", "x.wiki").await), taken);
    assert_eq!(status_and_body(&make("b", "X.Wiki").await), taken);
    assert_eq!(make("c", "y.wiki").await.code(), 201);
    assert_eq!(status_and_body(&make("d", "y").await), taken);
    assert_eq!(status_and_body(&make("d", "Y").await), taken);
    assert_eq!(status_and_body(&ann.put("/projects/1", json!({ "path": "y" })).await), taken);
    // The wiki of a wiki does not collide with the project, and other namespaces do not matter.
    assert_eq!(make("e", "x.wiki.wiki").await.code(), 201);
    let elsewhere = json!({ "name": "b", "path": "x.wiki", "namespace_id": acme });
    assert_eq!(ann.post("/projects", elsewhere).await.code(), 201);
    // A project does not collide with itself.
    assert_eq!(ann.put("/projects/1", json!({ "path": "x" })).await.code(), 200);
    assert_eq!(ann.put("/projects/1", json!({ "path": "z" })).await.code(), 200);
}

#[tokio::test]
async fn creating_a_project_requires_permission_in_the_namespace() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = group(&ann, "acme", 20).await;
    let bobs = bob.get("/namespaces").await.json()[0]["id"].clone();
    let refused = invalid(json!({ "namespace": ["is not valid"] }));
    let make = async |client: &TestClient, namespace: Value| {
        client.post("/projects", json!({ "name": "x", "namespace_id": namespace })).await
    };
    for namespace in [json!(acme), json!(999), json!(0), json!(-1), json!(i64::MAX)] {
        assert_eq!(status_and_body(&make(&bob, namespace.clone()).await), refused, "{namespace}");
    }
    assert_eq!(status_and_body(&make(&ann, bobs.clone()).await), refused);
    for (level, code) in [(10, 400), (20, 400), (30, 400), (40, 201)] {
        let name = format!("m{level}");
        let member = forge.user(&name).await;
        add_member(&ann, "/groups/acme", &member, level).await;
        let answer = make(&member, json!(acme)).await;
        assert_eq!(answer.code(), code, "{level}");
        if code == 400 {
            assert_eq!(status_and_body(&answer), refused);
        } else {
            assert_eq!(answer.json()["creator_id"], member.id.get());
        }
    }
    // Administrators create anywhere; for other users with the permissions of those users.
    assert_eq!(make(&root, bobs).await.json()["path_with_namespace"], "bob/x");
    let for_bob = root.post(&format!("/projects/user/{}", bob.id), json!({ "name": "y", "namespace_id": acme })).await;
    assert_eq!(status_and_body(&for_bob), refused);
    let for_ann = root.post(&format!("/projects/user/{}", ann.id), json!({ "name": "y", "namespace_id": acme })).await;
    assert_eq!((for_ann.code(), &for_ann.json()["creator_id"]), (201, &json!(ann.id.get())));
    let own = root.post(&format!("/projects/user/{}", bob.id), json!({ "name": "z" })).await.json();
    assert_eq!((&own["owner"]["id"], &own["path_with_namespace"]), (&json!(bob.id.get()), &json!("bob/z")));
    assert_eq!(bob.get("/projects/bob%2Fz").await.json()["permissions"]["project_access"]["access_level"], 40);
    assert_eq!(
        status_and_body(&root.post("/projects/user/99", json!({ "name": "z" })).await).1,
        json!({ "message": "404 User Not Found" })
    );
}

#[tokio::test]
async fn the_limit_counts_personal_projects() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let eve = forge.external("eve").await;
    let acme = group(&ann, "acme", 20).await;
    let (url, for_ann) = (format!("/users/{}", ann.id), format!("/projects/user/{}", ann.id));
    root.put(&url, json!({ "projects_limit": 2 })).await;
    let can_create = async || ann.get("/user").await.json()["can_create_project"].clone();
    let first = project(&ann, "first").await;
    assert_eq!(can_create().await, true);
    let second = project(&ann, "second").await;
    assert_eq!(can_create().await, false);
    assert_eq!(root.get(&url).await.json()["can_create_project"], false);
    assert_snapshot!(ann.post("/projects", json!({ "name": "third" })).await, @r#"
    403 Forbidden
    {"error":["Your project limit is 2 projects! Please contact your administrator to increase it"]}
    "#);
    assert_snapshot!(root.post(&for_ann, json!({ "name": "third" })).await, @r#"
    400 Bad Request
    {"message":{"limit_reached":["Your project limit is 2 projects! Please contact your administrator to increase it"]}}
    "#);
    // Projects of groups neither count nor are limited.
    assert_eq!(ann.post("/projects", json!({ "name": "in a group", "namespace_id": acme })).await.code(), 201);
    // A transferred or deleted project no longer counts.
    root.post(&format!("/groups/{acme}/projects/{first}"), json!({})).await;
    assert_eq!(can_create().await, true);
    let third = project(&ann, "third").await;
    assert_eq!(can_create().await, false);
    ann.delete(&format!("/projects/{second}")).await;
    assert_eq!(can_create().await, true);
    forge.run_due_tasks().await;
    project(&ann, "fourth").await;
    assert_eq!(can_create().await, false);
    ann.delete(&format!("/projects/{third}")).await;
    root.put(&url, json!({ "projects_limit": 1 })).await;
    assert_eq!(can_create().await, false);
    root.put(&url, json!({ "projects_limit": 0 })).await;
    assert_snapshot!(ann.post("/projects", json!({ "name": "fifth" })).await, @r#"
    403 Forbidden
    {"error":["Personal project creation is not allowed. Please contact your administrator with questions"]}
    "#);
    assert_snapshot!(root.post(&for_ann, json!({ "name": "fifth" })).await, @r#"
    400 Bad Request
    {"message":{"limit_reached":["Personal project creation is not allowed. Please contact your administrator with questions"]}}
    "#);
    // External users have no personal projects, but create them where they are masters; administrators are not exempt.
    let none = "Personal project creation is not allowed. Please contact your administrator with questions";
    assert_eq!(
        status_and_body(&eve.post("/projects", json!({ "name": "x" })).await),
        (403, json!({ "error": [none] }))
    );
    add_member(&ann, "/groups/acme", &eve, 40).await;
    let by_eve = eve.post("/projects", json!({ "name": "by eve", "namespace_id": acme })).await;
    assert_eq!((by_eve.code(), &by_eve.json()["creator_id"]), (201, &json!(eve.id.get())));
    root.put("/users/1", json!({ "projects_limit": 0 })).await;
    assert_eq!(
        status_and_body(&root.post("/projects", json!({ "name": "x" })).await),
        (403, json!({ "error": [none] }))
    );
    assert_eq!(root.post("/projects", json!({ "name": "x", "namespace_id": acme })).await.code(), 201);
}

#[tokio::test]
async fn projects_are_found_by_id_and_by_path_in_any_case() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let rocket = ann.make("/projects", json!({ "name": "x", "path": "Rocket.v2" })).await;
    for path in ["1", "1.json", "ann%2FRocket.v2", "ann%2frocket.v2", "ANN%2FROCKET%2EV2", "%61nn%2FRocket.v2"] {
        let found = ann.get(&format!("/projects/{path}")).await;
        assert_eq!((found.code(), &found.json()["id"]), (200, &json!(rocket)), "{path}");
    }
    for path in [
        "0",
        "2",
        "99999999999999999999",
        "9223372036854775807",
        "rocket.v2",
        "ann",
        "ann%2F",
        "%2Frocket.v2",
        "bob%2Frocket.v2",
        "ann%2Fx%2Frocket.v2",
        "ann%2Frocket.v2%00",
        "%00",
        "ann%2F1",
        "-1",
        "1.5",
        "ann%252FRocket.v2",
    ] {
        assert_eq!(status_and_body(&ann.get(&format!("/projects/{path}")).await), not_found(), "{path}");
    }
    // Invalid UTF-8 is not an internal error.
    let garbled = ann.get("/projects/%ff%fe").await;
    assert!(matches!(garbled.code(), 400 | 404), "{garbled}");
    // An unencoded slash is another route.
    assert_eq!(status_and_body(&ann.get("/projects/ann/Rocket.v2").await), (404, json!({ "error": "404 Not Found" })));
    // Digits are an ID, even if a project has such a path.
    let digits = ann.make("/projects", json!({ "name": "digits", "path": "77" })).await;
    assert_eq!(ann.get("/projects/ann%2F77").await.json()["id"], digits);
    assert_eq!(status_and_body(&ann.get("/projects/77").await), not_found());
}

#[tokio::test]
async fn a_json_suffix_does_not_matter_for_lists_of_projects() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    root.make("/projects", json!({ "name": "rocket" })).await;
    for path in
        ["/projects", "/projects/visible", "/projects/owned", "/projects/starred", "/projects/all", "/projects/1"]
    {
        let (plain, suffixed) = (root.get(path).await, root.get(&format!("{path}.json")).await);
        assert_eq!(suffixed.to_string(), plain.to_string(), "{path}.json");
    }
}

#[tokio::test]
async fn a_json_suffix_is_recognized_only_at_the_end_of_a_path() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    project(&ann, "rocket").await;
    assert_eq!(ann.post("/projects/1/star.json", json!({})).await.json()["star_count"], 1);
    // The path of a project may itself end in the suffix.
    let data = ann.make("/projects", json!({ "name": "j", "path": "data.json" })).await;
    assert_eq!(ann.get("/projects/ann%2Fdata.json").await.json()["id"], data);
    assert_eq!(ann.post("/projects/ann%2Fdata.json/star", json!({})).await.json()["id"], data);
    let before = forge.dump();
    for path in ["/projects/1.json/star", "/projects/ann%2Frocket.json/star"] {
        assert_eq!(ann.delete(path).await.code(), 404, "{path}");
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn a_renamed_project_keeps_its_id() {
    let forge = TestForge::builder().dialect(Dialect::Gitlab).start().await;
    let ann = forge.user("ann").await;
    let rocket = project(&ann, "Rocket").await;
    ann.post("/projects/1/star", json!({})).await;
    let named = ann.put("/projects/1", json!({ "name": "Space ship" })).await.json();
    assert_eq!((&named["name"], &named["path"]), (&json!("Space ship"), &json!("rocket")));
    assert_eq!(named["name_with_namespace"], "ann / Space ship");
    let moved = ann.put("/projects/ann%2Frocket", json!({ "path": "Ship" })).await.json();
    assert_eq!((&moved["id"], &moved["name"], &moved["path"]), (&json!(rocket), &json!("Space ship"), &json!("Ship")));
    assert_eq!(moved["path_with_namespace"], "ann/Ship");
    assert_eq!(moved["http_url_to_repo"], "http://gable.test/ann/Ship.git");
    assert_eq!(moved["star_count"], 1);
    assert_eq!(status_and_body(&ann.get("/projects/ann%2Frocket").await), not_found());
    assert_eq!(ann.get("/projects/ann%2Fship").await.json()["id"], rocket);
    assert_eq!(ann.get("/projects?search=rocket").await.text, "[]");
    for list in ["/projects", "/projects/visible"] {
        assert_eq!(ann.get(&format!("{list}?search=space+ship")).await.join_field("id"), "1", "{list}");
    }
    assert_ne!(project(&ann, "Rocket").await, rocket);
}

#[tokio::test]
async fn renaming_the_owner_changes_the_paths_of_their_projects() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let rocket = project(&ann, "rocket").await;
    root.put(&format!("/users/{}", ann.id), json!({ "username": "lee", "name": "Ann Lee" })).await;
    let shown = ann.get("/projects/lee%2Frocket").await.json();
    assert_eq!((&shown["id"], &shown["name_with_namespace"]), (&json!(rocket), &json!("Ann Lee / rocket")));
    assert_eq!((&shown["namespace"]["name"], &shown["namespace"]["path"]), (&json!("lee"), &json!("lee")));
    assert_eq!(status_and_body(&ann.get("/projects/ann%2Frocket").await), not_found());
    assert_eq!(ann.get("/projects/visible?search=lee").await.join_field("id"), rocket.to_string());
    assert_eq!(ann.get("/projects?search=ann").await.text, "[]");
}

#[tokio::test]
async fn masters_update_a_project_and_only_owners_rename_it() {
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let forge = TestForge::builder().dialect(dialect).start().await;
        let ann = forge.user("ann").await;
        project(&ann, "rocket").await;
        let edit = async |client: &TestClient, more: Value| {
            let mut body = if dialect == Dialect::Spec { json!({ "name": "rocket" }) } else { json!({}) };
            body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            client.put("/projects/1", body).await
        };
        for (name, level) in [("guest", 10), ("reporter", 20), ("developer", 30)] {
            let member = forge.user(name).await;
            add_member(&ann, "/projects/1", &member, level).await;
            assert_eq!(
                status_and_body(&edit(&member, json!({ "description": "x" })).await),
                forbidden(),
                "{dialect} {name}"
            );
        }
        let master = forge.user("master").await;
        add_member(&ann, "/projects/1", &master, 40).await;
        let edited = edit(&master, json!({ "description": "x", "public_builds": false, "path": "ship" })).await.json();
        assert_eq!((&edited["description"], &edited["path"]), (&json!("x"), &json!("ship")), "{dialect}");
        assert_eq!(edited["public_builds"], false);
        // Even if the value would not change.
        for more in [json!({ "visibility_level": 0 }), json!({ "public": false }), json!({ "name": "other" })] {
            assert_eq!(status_and_body(&edit(&master, more.clone()).await), forbidden(), "{dialect} {more}");
        }
        let own_name = master.put("/projects/1", json!({ "name": "rocket" })).await;
        assert_eq!(own_name.code(), if dialect == Dialect::Spec { 200 } else { 403 });
        for way in ["archive", "unarchive"] {
            assert_eq!(status_and_body(&master.post(&format!("/projects/1/{way}"), json!({})).await), forbidden());
        }
        assert_eq!(status_and_body(&master.delete("/projects/1").await), forbidden());
        assert_eq!(edit(&ann, json!({ "public": true })).await.json()["visibility_level"], 20);
        // An empty update changes nothing.
        let before = ann.get("/projects/1").await.json()["description"].clone();
        assert_eq!(edit(&ann, json!({})).await.json()["description"], before);
        assert_eq!(edit(&ann, json!({ "description": null })).await.json()["description"], before);
        assert_eq!(edit(&ann, json!({ "description": "" })).await.json()["description"], Value::Null);
        let stranger = forge.user("stranger").await;
        assert_eq!(status_and_body(&edit(&stranger, json!({})).await), forbidden());
        edit(&ann, json!({ "visibility_level": 0 })).await;
        assert_eq!(status_and_body(&edit(&stranger, json!({})).await), not_found());
    }
}

#[tokio::test]
async fn a_project_is_starred_and_unstarred_once() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let id = ann.make("/projects", json!({ "name": "rocket", "visibility_level": 10 })).await;
    let other = ann.make("/projects", json!({ "name": "other", "visibility_level": 10 })).await;
    forge.clock.advance(SignedDuration::from_mins(1));
    let starred = bob.post("/projects/1/star", json!({})).await;
    assert_eq!((starred.code(), &starred.json()["star_count"]), (201, &json!(1)));
    for _ in 0..2 {
        let again = bob.post("/projects/1/star", json!({})).await;
        assert_eq!((again.code(), again.text.as_str()), (304, ""));
    }
    assert_eq!(ann.post("/projects/ann%2Frocket/star", json!({})).await.json()["star_count"], 2);
    // Starring counts as an update of the project.
    assert_eq!(bob.get("/projects/visible?order_by=updated_at").await.join_field("id"), format!("{id} {other}"));
    let taken_back = bob.delete("/projects/1/star").await;
    assert_eq!((taken_back.code(), &taken_back.json()["star_count"]), (200, &json!(1)));
    for _ in 0..2 {
        let again = bob.delete("/projects/1/star").await;
        assert_eq!((again.code(), again.text.as_str()), (304, ""));
    }
    assert_eq!(ann.get("/projects/starred").await.join_field("id"), "1");
    assert_eq!(bob.get("/projects/starred").await.text, "[]");
    // The stars of a deleted user are removed.
    bob.post("/projects/1/star", json!({})).await;
    let root = forge.admin().await;
    root.delete(&format!("/users/{}", bob.id)).await;
    assert_eq!(ann.get("/projects/1").await.json()["star_count"], 1);
    // A hidden project cannot be starred.
    let eve = forge.external("eve").await;
    assert_eq!(status_and_body(&eve.post("/projects/1/star", json!({})).await), not_found());
    assert_eq!(status_and_body(&eve.delete("/projects/1/star").await), not_found());
    assert_eq!(status_and_body(&eve.post("/projects/99/star", json!({})).await), not_found());
}

#[tokio::test]
async fn archiving_twice_changes_nothing() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    project(&ann, "rocket").await;
    project(&ann, "other").await;
    let mut newest = Vec::new();
    for way in ["archive", "archive", "unarchive", "unarchive"] {
        forge.clock.advance(SignedDuration::from_mins(1));
        let answer = ann.post(&format!("/projects/1/{way}"), json!({})).await;
        assert_eq!((answer.code(), &answer.json()["archived"]), (201, &json!(way == "archive")), "{way}");
        assert_eq!(ann.get("/projects/1").await.json()["archived"], way == "archive");
        let listed = ann.get("/projects/visible?archived=true").await;
        assert_eq!(listed.header("x-total"), if way == "archive" { "1" } else { "0" });
        newest.push(forge.dump());
    }
    assert_eq!((&newest[0], &newest[2]), (&newest[1], &newest[3]));
    // An archived project can still be read, starred, updated, shared and deleted.
    ann.post("/projects/1/archive", json!({})).await;
    let acme = group(&ann, "acme", 20).await;
    assert_eq!(ann.post("/projects/1/star", json!({})).await.json()["archived"], true);
    assert_eq!(ann.put("/projects/1", json!({ "name": "Old" })).await.json()["name"], "Old");
    let share = json!({ "group_id": acme, "group_access": 20 });
    assert_eq!(ann.post("/projects/1/share", share).await.code(), 201);
    assert_eq!(ann.delete("/projects/1").await.text, "true");
}

#[tokio::test]
async fn a_share_gives_a_group_access_to_a_project() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let eve = forge.user("eve").await;
    let acme = group(&bob, "acme", 20).await;
    add_member(&bob, "/groups/acme", &eve, 10).await;
    project(&ann, "rocket").await;
    let share = json!({ "group_id": acme, "group_access": 30, "expires_at": "2026-02-03" });
    let shared = ann.post("/projects/1/share", share).await;
    let expected = json!({
        "id": 1, "project_id": 1, "group_id": acme, "group_access": 30, "expires_at": "2026-02-03",
    });
    assert_eq!(status_and_body(&shared), (201, expected));
    let with = json!([{ "group_id": acme, "group_name": "acme", "group_access_level": 30 }]);
    let shown = bob.get("/projects/1").await.json();
    assert_eq!(shown["shared_with_groups"], with);
    // Shares are not shown as permissions, and never give more than the share or the group role.
    assert_eq!(shown["permissions"], json!({ "project_access": null, "group_access": null }));
    assert_eq!(status_and_body(&bob.put("/projects/1", json!({ "name": "x" })).await), forbidden());
    for client in [&bob, &eve] {
        for list in ["/projects", "/projects/visible"] {
            let listed = client.get(list).await;
            assert_eq!(
                (listed.join_field("id"), &listed.json()[0]["shared_with_groups"]),
                ("1".into(), &with),
                "{list}"
            );
        }
        assert_eq!(client.get("/projects/owned").await.text, "[]");
        assert_eq!(client.get("/groups/acme/projects").await.join_field("id"), "1");
    }
    let detail = bob.get("/groups/acme").await.json();
    assert_eq!((&detail["projects"], &detail["shared_projects"][0]["id"]), (&json!([]), &json!(1)));
    assert_eq!(detail["shared_projects"][0]["shared_with_groups"], with);
    // A user without access to the project does not see it in the group either.
    let stranger = forge.user("stranger").await;
    assert_eq!(stranger.get("/groups/acme").await.json()["shared_projects"], json!([]));
    assert_eq!(stranger.get("/groups/acme/projects").await.text, "[]");
    // The share ends on its expiry date.
    forge.clock.advance(SignedDuration::from_hours(31 * 24));
    assert_eq!(bob.get("/projects/1").await.code(), 200);
    forge.clock.advance(SignedDuration::from_hours(24));
    assert_eq!(status_and_body(&bob.get("/projects/1").await), not_found());
    assert_eq!(bob.get("/projects").await.text, "[]");
    assert_eq!(bob.get("/groups/acme/projects").await.text, "[]");
    assert_eq!(ann.get("/projects/1").await.json()["shared_with_groups"], json!([]));
    assert_eq!(status_and_body(&ann.delete(&format!("/projects/1/share/{acme}")).await).0, 404);
    // An expired share can be replaced.
    let again = json!({ "group_id": acme, "group_access": 40, "expires_at": "" });
    let again = ann.post("/projects/1/share", again).await.json();
    assert_eq!((&again["group_access"], &again["expires_at"]), (&json!(40), &Value::Null));
    // An owner of the group is a master of the project through the share.
    assert_eq!(
        bob.put("/projects/1", json!({ "name": "rocket", "description": "d" })).await.json()["description"],
        "d"
    );
    assert_eq!(status_and_body(&bob.post("/projects/1/archive", json!({})).await), forbidden());
    assert_eq!(status_and_body(&eve.put("/projects/1", json!({ "name": "rocket" })).await), forbidden());
}

#[tokio::test]
async fn an_invalid_share_is_rejected_with_checks_in_order() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let dan = forge.user("dan").await;
    let acme = group(&ann, "acme", 20).await;
    let other = group(&ann, "other", 20).await;
    let hidden = group(&bob, "hidden", 0).await;
    ann.make("/projects", json!({ "name": "rocket", "namespace_id": acme })).await;
    add_member(&ann, "/projects/1", &dan, 30).await;
    let share = async |client: &TestClient, group: i64, access: i64| {
        client.post("/projects/1/share", json!({ "group_id": group, "group_access": access })).await
    };
    for client in [&ann, &bob, &dan] {
        let missing = json!({ "error": "group_id is missing, group_access is missing" });
        assert_eq!(status_and_body(&client.post("/projects/1/share", json!({})).await), (400, missing));
        let wrong = json!({ "group_id": "x", "group_access": 1, "expires_at": "2026-13-01" });
        let fault = json!({ "error": "group_id is invalid, expires_at is invalid" });
        assert_eq!(status_and_body(&client.post("/projects/1/share", wrong).await), (400, fault));
    }
    // The other parameters are invalid as well.
    assert_eq!(status_and_body(&share(&bob, hidden, 7).await), not_found());
    assert_eq!(status_and_body(&share(&dan, hidden, 7).await), forbidden());
    let no_group = (404, json!({ "message": "404 Group Not Found" }));
    for group in [hidden, 999, 0, -1] {
        assert_eq!(status_and_body(&share(&ann, group, 7).await), no_group, "{group}");
    }
    let personal = ann.get("/namespaces?search=ann").await.json()[0]["id"].as_i64().expect("a number");
    assert_eq!(status_and_body(&share(&ann, personal, 20).await), no_group);
    let conflict = |text: &str| (409, json!({ "message": text }));
    for access in [0, 5, 15, 50, 99] {
        let expected = conflict("Group access is not included in the list");
        assert_eq!(status_and_body(&share(&ann, acme, access).await), expected, "{access}");
    }
    let own = conflict("Project cannot be shared with the project it is in.");
    assert_eq!(status_and_body(&share(&ann, acme, 20).await), own);
    assert_eq!(share(&ann, other, 20).await.code(), 201);
    assert_eq!(status_and_body(&share(&ann, other, 40).await), conflict("Group already shared with this group"));
    assert_eq!(ann.get("/projects/1").await.json()["shared_with_groups"][0]["group_access_level"], 20);
    // The share lock of the namespace is checked before conflicts.
    forge.in_transaction(|db| fixtures::lock_sharing(db, NamespaceId::new(acme)));
    for (group, access) in [(other, 20), (other, 7), (acme, 20)] {
        let expected = (400, json!({ "message": "The project sharing with group is disabled" }));
        assert_eq!(status_and_body(&share(&ann, group, access).await), expected);
    }
    assert_eq!(status_and_body(&share(&ann, hidden, 20).await), no_group);
}

#[tokio::test]
async fn a_share_lock_disables_existing_shares() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let (acme, other) = (group(&ann, "acme", 0).await, group(&bob, "other", 0).await);
    ann.make("/projects", json!({ "name": "rocket", "namespace_id": acme })).await;
    add_member(&bob, "/groups/other", &ann, 10).await;
    let share = json!({ "group_id": other, "group_access": 40 });
    assert_eq!(ann.post("/projects/1/share", share).await.code(), 201);
    assert_eq!(bob.get("/projects/1").await.json()["namespace"]["share_with_group_lock"], false);
    forge.in_transaction(|db| fixtures::lock_sharing(db, NamespaceId::new(acme)));
    assert_eq!(status_and_body(&bob.get("/projects/1").await), not_found());
    for list in ["/projects", "/projects/visible", "/groups/other/projects"] {
        assert_eq!(bob.get(list).await.text, "[]", "{list}");
    }
    assert_eq!(bob.get("/groups/other").await.json()["shared_projects"], json!([]));
    // Bob no longer sees the private group either.
    assert_eq!(bob.get("/groups/acme").await.json(), json!({ "message": "404 Group Not Found" }));
    assert_eq!(ann.get("/projects/1").await.json()["namespace"]["share_with_group_lock"], true);
}

#[tokio::test]
async fn a_share_is_removed() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = group(&bob, "acme", 20).await;
    project(&ann, "rocket").await;
    ann.post("/projects/1/share", json!({ "group_id": acme, "group_access": 30 })).await;
    let url = format!("/projects/1/share/{acme}");
    assert_eq!(status_and_body(&bob.delete(&url).await), forbidden());
    let ended = ann.delete(&url).await;
    assert_eq!((ended.code(), ended.text.as_str()), (204, ""));
    assert_eq!(status_and_body(&bob.get("/projects/1").await), not_found());
    assert_eq!(status_and_body(&bob.delete(&url).await), not_found());
    let no_link = (404, json!({ "message": "404 Group Link Not Found" }));
    assert_eq!(status_and_body(&ann.delete(&url).await), no_link);
    assert_eq!(status_and_body(&ann.delete("/projects/1/share/99999999999999999999").await), no_link);
    assert_eq!(
        status_and_body(&ann.delete("/projects/1/share/acme").await),
        (400, json!({ "error": "group_id is invalid" }))
    );
    let again = json!({ "group_id": acme, "group_access": 20 });
    assert_eq!(ann.post("/projects/1/share", again).await.json()["group_access"], 20);
}

#[tokio::test]
async fn a_share_with_a_subgroup_includes_members_of_its_parent() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let eve = forge.user("eve").await;
    let above = group(&bob, "above", 20).await;
    let below = forge.insert_subgroup(NamespaceId::new(above), "below", Visibility::Public);
    add_member(&bob, &format!("/groups/{below}"), &eve, 30).await;
    project(&ann, "rocket").await;
    project(&ann, "boat").await;
    ann.post("/projects/1/share", json!({ "group_id": below.get(), "group_access": 40 })).await;
    ann.post("/projects/2/share", json!({ "group_id": above, "group_access": 40 })).await;
    // Bob owns the parent group and is therefore a member of the subgroup; Eve is a member of the subgroup only.
    assert_eq!(bob.get("/projects").await.join_field("id"), "2 1");
    assert_eq!(eve.get("/projects").await.join_field("id"), "1");
    assert_eq!(status_and_body(&eve.get("/projects/2").await), not_found());
    assert_eq!(
        bob.put("/projects/1", json!({ "name": "rocket", "description": "b" })).await.json()["description"],
        "b"
    );
    assert_eq!(status_and_body(&eve.put("/projects/1", json!({ "name": "rocket" })).await), forbidden());
    assert_eq!(bob.get("/groups/above%2Fbelow/projects").await.join_field("id"), "1");
    assert_eq!(bob.get("/groups/above/projects").await.join_field("id"), "2");
}

#[tokio::test]
async fn a_deleted_project_disappears_at_once_and_leaves_no_data() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = group(&bob, "acme", 20).await;
    let body = json!({ "name": "Quagga", "visibility_level": 20, "description": "striped" });
    let quagga = ann.make("/projects", body.clone()).await;
    bob.post("/projects/1/star", json!({})).await;
    ann.post("/projects/1/share", json!({ "group_id": acme, "group_access": 30 })).await;
    add_member(&ann, "/projects/1", &bob, 20).await;
    assert_eq!(ann.delete("/projects/ann%2Fquagga").await.to_string(), "200 OK\ntrue");
    for client in [&root, &ann, &bob] {
        for path in ["/projects/1", "/projects/ann%2Fquagga", "/projects/1/members"] {
            assert_eq!(status_and_body(&client.get(path).await), not_found(), "{path}");
        }
        for list in ["/projects", "/projects/visible", "/projects/owned", "/projects/starred"] {
            for query in ["", "?search=quag", "?search=q", "?visibility=public", "?order_by=name&sort=asc"] {
                let listed = client.get(&format!("{list}{query}")).await;
                assert_eq!((listed.text.as_str(), listed.header("x-total")), ("[]", "0"), "{list}{query}");
            }
        }
        assert_eq!(client.get("/projects/search/quagga").await.text, "[]");
        assert_eq!(client.get("/groups/acme/projects").await.text, "[]");
        assert_eq!(client.get("/groups/acme").await.json()["shared_projects"], json!([]));
    }
    for query in ["", "?search=quag", "?archived=false"] {
        let all = root.get(&format!("/projects/all{query}")).await;
        assert_eq!((all.text.as_str(), all.header("x-total")), ("[]", "0"), "{query}");
    }
    for answer in [
        ann.delete("/projects/1").await,
        ann.put("/projects/1", json!({ "name": "x" })).await,
        ann.post("/projects/1/star", json!({})).await,
        ann.delete("/projects/1/star").await,
        ann.post("/projects/1/archive", json!({})).await,
        ann.post("/projects/1/share", json!({ "group_id": acme, "group_access": 30 })).await,
        ann.delete(&format!("/projects/1/share/{acme}")).await,
        root.post("/groups/acme/projects/1", json!({})).await,
    ] {
        assert_eq!(status_and_body(&answer), not_found());
    }
    // Name and path are free at once, and the new project has another ID.
    let again = ann.make("/projects", body).await;
    assert_ne!(again, quagga);
    assert_eq!(ann.get("/projects/ann%2Fquagga").await.json()["star_count"], 0);
    ann.delete(&format!("/projects/{again}")).await;
    assert!(forge.dump().contains("Quagga"), "what is left waits for a job");
    forge.run_due_tasks().await;
    let left = forge.dump();
    for trace in ["uagga", "striped", "project_id=1 ", "project_members: ", "project_shares: ", "jobs: "] {
        assert!(!left.contains(trace), "{trace} is left:\n{left}");
    }
    assert_eq!(ann.get("/user").await.json()["can_create_project"], true);
}

#[tokio::test]
async fn deleting_a_user_deletes_their_projects() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = group(&bob, "acme", 20).await;
    add_member(&bob, "/groups/acme", &ann, 40).await;
    let own = ann.make("/projects", json!({ "name": "Quagga", "visibility_level": 20 })).await;
    let for_all = ann.make("/projects", json!({ "name": "stays", "namespace_id": acme, "visibility_level": 20 })).await;
    bob.post(&format!("/projects/{own}/star"), json!({})).await;
    assert_eq!(root.delete(&format!("/users/{}", ann.id)).await.json()["username"], "ann");
    assert_eq!(status_and_body(&bob.get(&format!("/projects/{own}")).await), not_found());
    assert_eq!(status_and_body(&root.get("/projects/ann%2Fquagga").await), not_found());
    let all = root.get("/projects/all").await;
    assert_eq!((all.join_field("id"), all.header("x-total")), (for_all.to_string(), "1"));
    assert_eq!(bob.get("/projects/starred").await.text, "[]");
    // Projects that they created for others stay and keep their creator.
    assert_eq!(bob.get(&format!("/projects/{for_all}")).await.json()["creator_id"], ann.id.get());
    // Another user can take the name, and gets none of the old data.
    let again = forge.user("ann").await;
    assert_ne!(again.id, ann.id);
    assert_eq!(again.get("/projects").await.text, "[]");
    assert_eq!(status_and_body(&again.get("/projects/ann%2Fquagga").await), not_found());
    again.make("/projects", json!({ "name": "Quagga" })).await;
    again.delete("/projects/ann%2Fquagga").await;
    forge.run_due_tasks().await;
    let left = forge.dump();
    for trace in ["uagga", "jobs: ", &format!("project_id={own} "), &format!("user_id={} ", ann.id)] {
        assert!(!left.contains(trace), "{trace} is left:\n{left}");
    }
}

#[tokio::test]
async fn wrong_methods_and_unknown_routes_have_different_statuses() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    project(&ann, "rocket").await;
    let wrong = ann.put("/projects/1/star", json!({})).await;
    assert_eq!(status_and_body(&wrong), (405, json!({ "error": "405 Not Allowed" })));
    assert_eq!(wrong.header("allow"), "POST,DELETE");
    assert_eq!(status_and_body(&ann.get("/projects/1/nothing").await), (404, json!({ "error": "404 Not Found" })));
    assert_eq!(ann.delete("/projects").await.header("allow"), "GET,HEAD,POST");
}

#[tokio::test]
async fn unsupported_features_are_reported_as_disabled() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let flags =
        ["merge_requests_enabled", "wiki_enabled", "snippets_enabled", "container_registry_enabled", "lfs_enabled"];
    let mut params = json!({ "name": "x" });
    for flag in flags {
        params[flag] = json!(true);
    }
    let made = ann.post("/projects", params.clone()).await;
    let edited = ann.put("/projects/1", params).await;
    let listed = ann.get("/projects").await.json()[0].clone();
    for shown in [made.json(), edited.json(), listed] {
        for flag in flags {
            assert_eq!(shown[flag], false, "{flag}");
        }
        assert_eq!((&shown["issues_enabled"], &shown["builds_enabled"]), (&json!(true), &json!(true)));
        assert_eq!(shown["namespace"]["avatar"], json!({ "url": null }));
    }
}

#[tokio::test]
async fn a_project_is_created_in_the_given_namespace() {
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let forge = TestForge::builder().dialect(dialect).start().await;
        let (ann, bob, root) = (forge.user("ann").await, forge.user("bob").await, forge.admin().await);
        let acme = NamespaceId::new(ann.make("/groups", json!({ "name": "Acme Corp", "path": "acme" })).await);
        let deep = forge.insert_subgroup(acme, "deep", Visibility::Public);
        let create = async |client: &TestClient, name: &str, namespace: Value| {
            client.post("/projects", json!({ "name": name, "namespace": namespace })).await
        };
        for (name, namespace, path) in [
            ("a", json!("acme"), "acme/a"),
            ("b", json!("ACME"), "acme/b"),
            ("c", json!(acme.get()), "acme/c"),
            ("d", json!(acme.to_string()), "acme/d"),
            ("e", json!("acme/deep"), "acme/deep/e"),
            ("f", json!(deep.get()), "acme/deep/f"),
            ("g", json!("ann"), "ann/g"),
            ("h", json!(""), "ann/h"),
            ("i", json!(null), "ann/i"),
        ] {
            let made = create(&ann, name, namespace).await;
            assert_eq!((made.code(), &made.json()["path_with_namespace"]), (201, &json!(path)), "{dialect}: {made}");
        }
        let invalid = json!({ "message": { "namespace": ["is not valid"] } });
        for namespace in [json!("nowhere"), json!(999), json!("bob"), json!("acme/nowhere"), json!("ac\u{1}me")] {
            let refused = create(&ann, "x", namespace.clone()).await;
            assert_eq!((refused.code(), refused.json()), (400, invalid.clone()), "{dialect} {namespace}");
        }
        // A group without permission to create projects gets the same response, visible or not.
        for namespace in [json!("acme"), json!(acme.get()), json!("ann")] {
            let refused = create(&bob, "x", namespace).await;
            assert_eq!((refused.code(), refused.json()), (400, invalid.clone()), "{dialect}");
        }
        let both = ann.post("/projects", json!({ "name": "x", "namespace": "acme", "namespace_id": acme.get() })).await;
        let text = r#"{"error":"namespace_id, namespace are mutually exclusive"}"#;
        assert_eq!((both.code(), both.text.as_str()), (400, text));
        let path = format!("/projects/user/{}", ann.id);
        let made = root.post(&path, json!({ "name": "z", "namespace": "acme" })).await;
        assert_eq!((made.code(), &made.json()["path_with_namespace"]), (201, &json!("acme/z")));
        let refused = root.post(&path, json!({ "name": "z", "namespace": "nowhere" })).await;
        assert_eq!((refused.code(), refused.json()), (400, invalid));
    }
}
