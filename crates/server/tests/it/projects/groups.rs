//! Groups, as their owners and others see and change them.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{NamespaceId, Visibility};
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse};

const PATH_FORMAT: &str = "can contain only letters, digits, '_', '-' and '.'. Cannot start with '-' or end in '.', \
                           '.git' or '.atom'.";
const NAME_FORMAT: &str = "can contain only letters, digits, '_', '.', dash and space.";
const TAKEN: &str = "has already been taken";

/// Creates a group that the client owns.
async fn group(client: &TestClient, path: &str, visibility: i64) -> i64 {
    client.make("/groups", json!({ "name": path, "path": path, "visibility_level": visibility })).await
}

/// Creates a project in a namespace.
async fn project(client: &TestClient, name: &str, namespace: i64, visibility: i64) -> i64 {
    let body = json!({ "name": name, "namespace_id": namespace, "visibility_level": visibility });
    client.make("/projects", body).await
}

async fn add_member(owner: &TestClient, group: i64, user: &TestClient, level: i64) {
    let body = json!({ "user_id": user.id.get(), "access_level": level });
    let added = owner.post(&format!("/groups/{group}/members"), body).await;
    assert_eq!(added.code(), 201, "{added}");
}

/// The error body for invalid fields of a group that is not created.
fn failed(fields: &str) -> Value {
    json!({ "message": format!("Failed to save group {{{fields}}}") })
}

fn status_and_body(answer: &TestResponse) -> (u16, Value) {
    (answer.code(), answer.json())
}

fn not_found() -> (u16, Value) {
    (404, json!({ "message": "404 Group Not Found" }))
}

#[tokio::test]
async fn a_group_is_created_shown_and_updated() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_snapshot!(ann.post("/groups", json!({ "name": "Acme Corp", "path": "Acme" })).await, @r#"
    201 Created
    {"id":2,"name":"Acme Corp","path":"Acme","description":"","visibility_level":20,"lfs_enabled":false,"avatar_url":null,"web_url":"http://gable.test/groups/Acme","request_access_enabled":false}
    "#);
    assert_snapshot!(ann.get("/groups").await, @r#"
    200 OK
    [{"id":2,"name":"Acme Corp","path":"Acme","description":"","visibility_level":20,"lfs_enabled":false,"avatar_url":null,"web_url":"http://gable.test/groups/Acme","request_access_enabled":false}]
    "#);
    assert_snapshot!(ann.get("/groups/acme").await, @r#"
    200 OK
    {"id":2,"name":"Acme Corp","path":"Acme","description":"","visibility_level":20,"lfs_enabled":false,"avatar_url":null,"web_url":"http://gable.test/groups/Acme","request_access_enabled":false,"projects":[],"shared_projects":[]}
    "#);
    assert_snapshot!(ann.put("/groups/2", json!({ "description": "Rockets" })).await, @r#"
    200 OK
    {"id":2,"name":"Acme Corp","path":"Acme","description":"Rockets","visibility_level":20,"lfs_enabled":false,"avatar_url":null,"web_url":"http://gable.test/groups/Acme","request_access_enabled":false,"projects":[],"shared_projects":[]}
    "#);
    // The empty text clears it; null keeps it.
    assert_eq!(ann.put("/groups/2", json!({ "description": "" })).await.json()["description"], "");
    let owner = ann.get("/groups/2/members").await;
    assert_eq!((owner.join_field("username"), owner.join_field("access_level")), ("ann".into(), "50".into()));
}

#[tokio::test]
async fn missing_and_malformed_parameters_are_reported_before_anything_else() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let eve = forge.external("eve").await;
    let acme = group(&ann, "acme", 20).await;
    for client in [&ann, &eve] {
        let refused = |error: &str| (400, json!({ "error": error }));
        let missing = refused("name is missing, path is missing");
        assert_eq!(status_and_body(&client.post("/groups", json!({})).await), missing);
        let wrong = json!({ "name": "x", "path": "x", "visibility_level": "high", "lfs_enabled": "perhaps" });
        let faults = refused("visibility_level is invalid, lfs_enabled is invalid");
        assert_eq!(status_and_body(&client.post("/groups", wrong).await), faults);
        for level in [-1, 5, 30] {
            let body = json!({ "name": "x", "path": "x", "visibility_level": level });
            let fault = refused("visibility_level does not have a valid value");
            assert_eq!(status_and_body(&client.post("/groups", body).await), fault, "{level}");
        }
        let nothing = refused(
            "name, path, description, visibility_level, lfs_enabled, request_access_enabled are missing, \
             at least one parameter must be provided",
        );
        assert_eq!(status_and_body(&client.put(&format!("/groups/{acme}"), json!({})).await), nothing);
        let query = "order_by=size&sort=up&all_available=perhaps&skip_groups[]=x";
        let faults = refused(
            "skip_groups is invalid, all_available is invalid, order_by does not have a valid value, \
             sort does not have a valid value",
        );
        assert_eq!(status_and_body(&client.get(&format!("/groups?{query}")).await), faults);
    }
    assert_eq!(ann.get("/groups?all_available=true").await.join_field("path"), "acme");
}

#[tokio::test]
async fn an_invalid_name_or_path_is_rejected_with_a_single_message() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let make = async |name: &str, path: &str| ann.post("/groups", json!({ "name": name, "path": path })).await;
    for path in ["-x", "x.", "x.git", "x.GIT", "x.atom", "a/b", "a b", "ä", ".", ".."] {
        let fields = format!(":path=>{}", json!([PATH_FORMAT]));
        assert_eq!(status_and_body(&make("x", path).await), (400, failed(&fields)), "{path}");
    }
    for name in ["a/b", "<b>", "x!", "a\tb"] {
        let fields = format!(":name=>{}", json!([NAME_FORMAT]));
        assert_eq!(status_and_body(&make(name, "x").await), (400, failed(&fields)), "{name}");
    }
    assert_snapshot!(make("", "x").await, @r#"
    400 Bad Request
    {"message":"Failed to save group {:name=>[\"can't be blank\"]}"}
    "#);
    assert_snapshot!(make(&"x".repeat(256), &"y".repeat(256)).await, @r#"
    400 Bad Request
    {"message":"Failed to save group {:name=>[\"is too long (maximum is 255 characters)\"], :path=>[\"is too long (maximum is 255 characters)\"]}"}
    "#);
    let body = json!({ "name": "x", "path": "x", "description": "d".repeat(256) });
    assert_snapshot!(ann.post("/groups", body).await, @r#"
    400 Bad Request
    {"message":"Failed to save group {:description=>[\"is too long (maximum is 255 characters)\"]}"}
    "#);
    assert!(make("x", "").await.text.contains(":path=>[\\\"can't be blank\\\""));
    // Characters are counted, not bytes.
    let longest = json!({ "name": "é".repeat(255), "path": "y".repeat(255), "description": "日".repeat(255) });
    assert_eq!(ann.post("/groups", longest).await.code(), 201);
    for (name, path) in [("日本語 – x_1.", ".x"), ("7", "7x"), ("under_score", "_")] {
        assert_eq!(make(name, path).await.code(), 201, "{name}");
    }
    assert_eq!(ann.get("/groups").await.header("x-total"), "4");
}

#[tokio::test]
async fn reserved_paths_are_rejected() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 20).await;
    let reserved = ".well-known admin all assets ci dashboard files groups help hooks issues merge_requests new notes \
                    profile projects public repository robots.txt s search services snippets teams u unsubscribes \
                    users api uploads owned";
    for path in reserved.split_whitespace() {
        let text = format!("{path} is a reserved name");
        let made = ann.post("/groups", json!({ "name": "x", "path": path })).await;
        assert_eq!(status_and_body(&made), (400, failed(&format!(":path=>{}", json!([text])))), "{path}");
        let renamed = ann.put(&format!("/groups/{acme}"), json!({ "path": path })).await;
        assert_eq!(status_and_body(&renamed), (400, json!({ "message": { "path": [text] } })), "{path}");
    }
}

#[tokio::test]
async fn a_name_or_path_belongs_to_one_group_or_user_in_any_case() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = ann.make("/groups", json!({ "name": "Acme Corp", "path": "Acme" })).await;
    let other = group(&bob, "other", 20).await;
    for (name, path, fields) in [
        ("Free", "Acme", format!(":path=>{}", json!([TAKEN]))),
        ("Free", "aCME", format!(":path=>{}", json!([TAKEN]))),
        ("Free", "ANN", format!(":path=>{}", json!([TAKEN]))),
        ("Acme Corp", "free", format!(":name=>{}", json!([TAKEN]))),
        ("acme corp", "free", format!(":name=>{}", json!([TAKEN]))),
        ("ann", "free", format!(":name=>{}", json!([TAKEN]))),
        ("ACME CORP", "acme", format!(":name=>{0}, :path=>{0}", json!([TAKEN]))),
    ] {
        let made = bob.post("/groups", json!({ "name": name, "path": path })).await;
        assert_eq!(status_and_body(&made), (400, failed(&fields)), "{name} {path}");
    }
    assert_snapshot!(bob.put(&format!("/groups/{other}"), json!({ "name": "acme corp", "path": "ANN" })).await, @r#"
    400 Bad Request
    {"message":{"name":["has already been taken"],"path":["has already been taken"]}}
    "#);
    // A group may change the case of its own name.
    let renamed = ann.put(&format!("/groups/{acme}"), json!({ "name": "ACME corp", "path": "ACME" })).await;
    assert_eq!((renamed.code(), &renamed.json()["path"]), (200, &json!("ACME")));
    // A user cannot take the path of a group either.
    let root = forge.admin().await;
    let user = json!({ "email": "x@example.org", "password": "12345678", "username": "acme", "name": "X" });
    assert_eq!(root.post("/users", user).await.json(), json!({ "message": { "username": [TAKEN] } }));
}

#[tokio::test]
async fn creating_a_group_requires_permission() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let eve = forge.external("eve").await;
    root.put(&format!("/users/{}", ann.id), json!({ "can_create_group": false })).await;
    root.put("/users/1", json!({ "can_create_group": false })).await;
    for client in [&ann, &eve, &root] {
        let refused = client.post("/groups", json!({ "name": "x", "path": "x" })).await;
        assert_eq!(status_and_body(&refused), (403, json!({ "message": "403 Forbidden" })));
    }
    assert_eq!(root.get("/groups").await.text, "[]");
}

#[tokio::test]
async fn the_visibility_of_a_group_decides_who_sees_it() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let eve = forge.external("eve").await;
    let [private, internal, public] =
        [group(&ann, "hidden", 0).await, group(&ann, "inside", 10).await, group(&ann, "open", 20).await];
    let seen = async |client: &TestClient| {
        let mut codes = Vec::new();
        for id in [private, internal, public] {
            codes.push(client.get(&format!("/groups/{id}")).await.code());
        }
        codes
    };
    assert_eq!(seen(&ann).await, [200, 200, 200]);
    assert_eq!(seen(&root).await, [200, 200, 200]);
    assert_eq!(seen(&bob).await, [404, 200, 200]);
    assert_eq!(seen(&eve).await, [404, 404, 200]);
    assert_eq!(seen(&forge.anonymous()).await, [401, 401, 401]);
    let available = "/groups?all_available=true";
    assert_eq!(ann.get(available).await.join_field("path"), "hidden inside open");
    assert_eq!(bob.get(available).await.join_field("path"), "inside open");
    assert_eq!(eve.get(available).await.join_field("path"), "open");
    assert_eq!(bob.get("/groups").await.text, "[]");
    assert_eq!(root.get("/groups").await.join_field("path"), "hidden inside open");
    assert_eq!(root.get("/groups/owned").await.text, "[]");
    // A private group is visible to users who can see a project in it.
    let secret = project(&ann, "secret", private, 0).await;
    let member = json!({ "user_id": eve.id.get(), "access_level": 10 });
    ann.post(&format!("/projects/{secret}/members"), member).await;
    assert_eq!(seen(&eve).await, [200, 404, 200]);
    assert_eq!(eve.get(available).await.join_field("path"), "hidden open");
    assert_eq!(eve.get("/groups").await.text, "[]");
    project(&ann, "other", private, 0).await;
    let shown = eve.get(&format!("/groups/{private}")).await.json();
    assert_eq!(shown["projects"].as_array().map(Vec::len), Some(1));
    assert_eq!(shown["projects"][0]["id"], secret);
    assert_eq!(eve.get(&format!("/groups/{private}/projects")).await.join_field("name"), "secret");
    // Users who can see it without a role get 403; users who cannot see it get 404.
    let change = json!({ "name": "mine" });
    let forbidden = (403, json!({ "message": "403 Forbidden" }));
    assert_eq!(status_and_body(&eve.put(&format!("/groups/{private}"), change.clone()).await), forbidden);
    assert_eq!(status_and_body(&bob.put(&format!("/groups/{private}"), change.clone()).await), not_found());
    assert_eq!(status_and_body(&bob.put(&format!("/groups/{public}"), change).await), forbidden);
    assert_eq!(status_and_body(&bob.delete(&format!("/groups/{private}")).await), not_found());
    assert_eq!(status_and_body(&bob.delete(&format!("/groups/{public}")).await), forbidden);
}

#[tokio::test]
async fn only_owners_update_and_delete_a_group() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 0).await;
    for (name, level) in [("guest", 10), ("reporter", 20), ("developer", 30), ("master", 40)] {
        let member = forge.user(name).await;
        add_member(&ann, acme, &member, level).await;
        let forbidden = (403, json!({ "message": "403 Forbidden" }));
        assert_eq!(member.get("/groups/acme").await.json()["id"], acme);
        assert_eq!(status_and_body(&member.put("/groups/acme", json!({ "name": "x" })).await), forbidden, "{name}");
        assert_eq!(status_and_body(&member.delete("/groups/acme").await), forbidden, "{name}");
        assert_eq!(member.get("/groups").await.join_field("path"), "acme");
        assert_eq!(member.get("/groups/owned").await.text, "[]");
    }
    let bob = forge.user("bob").await;
    add_member(&ann, acme, &bob, 50).await;
    group(&bob, "newer", 20).await;
    // Newest membership first.
    assert_eq!(bob.get("/groups/owned").await.join_field("path"), "newer acme");
    assert_eq!(bob.put("/groups/acme", json!({ "name": "Bobs" })).await.json()["name"], "Bobs");
    assert_eq!(bob.delete("/groups/acme").await.json()["id"], acme);
}

#[tokio::test]
async fn groups_are_found_by_id_and_by_path_in_any_case() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "Acme.Corp", 0).await;
    let digits = group(&ann, "123", 0).await;
    for path in [acme.to_string(), "Acme.Corp".into(), "acme.corp".into(), "ACME%2ECORP".into(), format!("{acme}.json")]
    {
        let found = ann.get(&format!("/groups/{path}")).await;
        assert_eq!((found.code(), &found.json()["id"]), (200, &json!(acme)), "{path}");
    }
    // Digits are an ID, even if a group has such a path.
    for path in ["123", "99999999999999999999", "0", "ann", "nowhere", "a%00b", "acme%2Fcorp", "%20"] {
        assert_eq!(status_and_body(&ann.get(&format!("/groups/{path}")).await), not_found(), "{path}");
    }
    // A personal namespace is not a group, even by its ID.
    let personal = ann.get("/namespaces?search=ann").await.json()[0]["id"].clone();
    assert_eq!(status_and_body(&ann.get(&format!("/groups/{personal}")).await), not_found());
    assert_eq!(status_and_body(&ann.delete(&format!("/groups/{personal}")).await), not_found());
    assert_eq!(ann.get(&format!("/groups/{digits}")).await.json()["path"], "123");
}

#[tokio::test]
async fn a_json_suffix_does_not_matter_for_groups() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 0).await;
    assert_eq!(ann.get("/groups.json").await.join_field("path"), "acme");
    assert_eq!(ann.get(&format!("/groups/{acme}.json")).await.json()["id"], acme);
    assert_eq!(ann.get("/groups/acme/projects.json").await.text, "[]");
    assert_eq!(ann.get("/groups/owned.json").await.to_string(), ann.get("/groups/owned").await.to_string());
}

#[tokio::test]
async fn renaming_a_group_changes_the_paths_of_its_projects() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 20).await;
    let rocket = project(&ann, "rocket", acme, 20).await;
    let renamed = ann.put("/groups/acme", json!({ "name": "Better", "path": "Better" })).await.json();
    assert_eq!((&renamed["id"], &renamed["path"]), (&json!(acme), &json!("Better")));
    assert_eq!(renamed["projects"][0]["path_with_namespace"], "Better/rocket");
    let shown = ann.get("/projects/better%2Frocket").await.json();
    assert_eq!(shown["id"], rocket);
    assert_eq!(shown["name_with_namespace"], "Better / rocket");
    assert_eq!(shown["path_with_namespace"], "Better/rocket");
    assert_eq!(shown["web_url"], "http://gable.test/Better/rocket");
    assert_eq!(shown["http_url_to_repo"], "http://gable.test/Better/rocket.git");
    assert_eq!(shown["ssh_url_to_repo"], "git@gable.test:Better/rocket.git");
    assert_eq!(status_and_body(&ann.get("/groups/acme").await), not_found());
    assert_eq!(ann.get("/projects/acme%2Frocket").await.json(), json!({ "message": "404 Project Not Found" }));
    // The old path is free at once, and searches find only the new name.
    assert_eq!(ann.get("/projects?search=acme").await.text, "[]");
    assert_eq!(ann.get("/projects/visible?search=better").await.join_field("id"), rocket.to_string());
    assert_eq!(ann.get("/groups?search=bett").await.join_field("id"), acme.to_string());
    assert_ne!(group(&ann, "acme", 20).await, acme);
}

#[tokio::test]
async fn a_group_is_never_less_visible_than_its_projects() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 20).await;
    let rocket = project(&ann, "rocket", acme, 10).await;
    project(&ann, "secret", acme, 0).await;
    assert_snapshot!(ann.put("/groups/acme", json!({ "visibility_level": 0, "name": "Quiet" })).await, @r#"
    400 Bad Request
    {"message":{"visibility_level":["private is not allowed since there are projects with higher visibility."]}}
    "#);
    assert_eq!(ann.get("/groups/acme").await.json()["name"], "acme");
    assert_eq!(ann.put("/groups/acme", json!({ "visibility_level": 10 })).await.json()["visibility_level"], 10);
    // A project cannot be more visible than its group, on creation or later.
    let public = json!({ "name": "loud", "namespace_id": acme, "visibility_level": 20 });
    assert_snapshot!(ann.post("/projects", public).await, @r#"
    400 Bad Request
    {"message":{"visibility_level":["public is not allowed in a internal group."]}}
    "#);
    let public = json!({ "name": "rocket", "public": true });
    assert_snapshot!(ann.put(&format!("/projects/{rocket}"), public).await, @r#"
    400 Bad Request
    {"message":{"visibility_level":["public is not allowed in a internal group."]}}
    "#);
    // Once the project is deleted, the visibility of the group can be lowered.
    ann.delete(&format!("/projects/{rocket}")).await;
    assert_eq!(ann.put("/groups/acme", json!({ "visibility_level": 0 })).await.json()["visibility_level"], 0);
    let internal = json!({ "name": "loud", "namespace_id": acme, "visibility_level": 10 });
    assert_snapshot!(ann.post("/projects", internal).await, @r#"
    400 Bad Request
    {"message":{"visibility_level":["internal is not allowed in a private group."]}}
    "#);
}

#[tokio::test]
async fn lfs_is_always_reported_as_disabled() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let acme = ann.make("/groups", json!({ "name": "acme", "path": "acme", "lfs_enabled": false })).await;
    let silent = project(&ann, "silent", acme, 0).await;
    let own = ann.make("/projects", json!({ "name": "own", "namespace_id": acme, "lfs_enabled": true })).await;
    let shown = async |id: i64| ann.get(&format!("/projects/{id}")).await.json()["lfs_enabled"].clone();
    assert_eq!((shown(silent).await, shown(own).await), (json!(false), json!(false)));
    let group = ann.put("/groups/acme", json!({ "lfs_enabled": true })).await;
    assert_eq!((group.code(), &group.json()["lfs_enabled"]), (200, &json!(false)));
    assert_eq!((shown(silent).await, shown(own).await), (json!(false), json!(false)));
    assert_eq!(ann.get(&format!("/projects/{own}")).await.json()["namespace"]["lfs_enabled"], false);
}

#[tokio::test]
async fn a_project_is_transferred_to_a_group() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = group(&bob, "acme", 10).await;
    let rocket = ann.make("/projects", json!({ "name": "Rocket", "visibility_level": 20 })).await;
    bob.post(&format!("/projects/{rocket}/star"), json!({})).await;
    let before = ann.get(&format!("/projects/{rocket}")).await.json();
    assert_eq!((&before["owner"]["username"], &before["visibility_level"]), (&json!("ann"), &json!(20)));
    let url = format!("/groups/acme/projects/{rocket}");
    for client in [&ann, &bob] {
        assert_eq!(status_and_body(&client.post(&url, json!({})).await), (403, json!({ "message": "403 Forbidden" })));
    }
    let moved = root.post(&url, json!({})).await;
    assert_eq!((moved.code(), &moved.json()["id"]), (201, &json!(acme)));
    assert_eq!(moved.json()["projects"][0]["path_with_namespace"], "acme/rocket");
    let after = bob.get("/projects/acme%2Frocket").await.json();
    assert_eq!(
        (&after["id"], &after["star_count"], &after["creator_id"]),
        (&json!(rocket), &json!(1), &json!(ann.id.get()))
    );
    assert_eq!((&after["visibility_level"], &after["public"]), (&json!(10), &json!(false)));
    assert_eq!(after["namespace"]["id"], acme);
    assert_eq!(after.get("owner"), None);
    assert_eq!(ann.get("/projects/ann%2Frocket").await.json(), json!({ "message": "404 Project Not Found" }));
    // Ann stays a member, but the project belongs to the group.
    let hers = ann.get(&format!("/projects/{rocket}")).await.json();
    assert_eq!(hers["permissions"]["project_access"]["access_level"], 40);
    assert_eq!(ann.get("/projects/owned").await.text, "[]");
    assert_eq!(bob.get("/projects/owned").await.join_field("id"), rocket.to_string());
    assert_eq!(ann.delete(&format!("/projects/{rocket}")).await.json(), json!({ "message": "403 Forbidden" }));
    // Its old path is free, and it no longer counts against her limit.
    assert_ne!(ann.make("/projects", json!({ "name": "Rocket" })).await, rocket);
}

#[tokio::test]
async fn an_invalid_transfer_is_rejected() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 20).await;
    let there = project(&ann, "Rocket", acme, 0).await;
    let mine = ann.make("/projects", json!({ "name": "Other", "path": "rOCKET" })).await;
    let named = ann.make("/projects", json!({ "name": "rocket", "path": "free" })).await;
    let post = async |path: String| root.post(&path, json!({})).await;
    assert_snapshot!(post(format!("/groups/acme/projects/{there}")).await, @r#"
    400 Bad Request
    {"message":"Failed to transfer project {:new_namespace=>[\"is invalid\"]}"}
    "#);
    assert_snapshot!(post(format!("/groups/{acme}/projects/{mine}")).await, @r#"
    400 Bad Request
    {"message":"Failed to transfer project {:new_namespace=>[\"Project with same path in target namespace already exists\"]}"}
    "#);
    let same_name = post(format!("/groups/{acme}/projects/{named}")).await;
    assert_eq!(same_name.code(), 400, "{same_name}");
    assert_eq!(status_and_body(&post(format!("/groups/99/projects/{mine}")).await), not_found());
    assert_eq!(status_and_body(&post(format!("/groups/nowhere/projects/{mine}")).await), not_found());
    assert_eq!(status_and_body(&post(format!("/groups/ann/projects/{there}")).await), not_found());
    for project in ["99", "ann%2Fnothing", "nothing", "99999999999999999999"] {
        let answer = post(format!("/groups/acme/projects/{project}")).await;
        assert_eq!(status_and_body(&answer), (404, json!({ "message": "404 Project Not Found" })), "{project}");
    }
    // By ID or path, in any case.
    let moved = post("/groups/ACME/projects/ANN%2FFree".into()).await;
    assert_eq!(moved.code(), 400, "{moved}");
    ann.put(&format!("/projects/{named}"), json!({ "name": "Free" })).await;
    let moved = post("/groups/ACME/projects/ANN%2FFree".into()).await;
    assert_eq!((moved.code(), &moved.json()["projects"][0]["id"]), (201, &json!(named)));
}

/// The wiki of `x` has the path `x.wiki`, so a namespace cannot contain projects of both names.
#[tokio::test]
async fn a_transfer_cannot_collide_with_a_wiki() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let acme = group(&ann, "acme", 20).await;
    ann.make("/projects", json!({ "name": "first", "path": "rocket.wiki", "namespace_id": acme })).await;
    ann.make("/projects", json!({ "name": "second", "path": "boat", "namespace_id": acme })).await;
    for (name, path) in [("third", "rocket"), ("fourth", "boat.wiki")] {
        let id = ann.make("/projects", json!({ "name": name, "path": path })).await;
        let moved = root.post(&format!("/groups/acme/projects/{id}"), json!({})).await;
        assert_eq!(moved.code(), 400, "{path} beside its wiki");
        assert_eq!(ann.get(&format!("/projects/{id}")).await.json()["namespace"]["path"], "ann");
    }
}

#[tokio::test]
async fn a_share_ends_when_the_project_is_transferred_to_that_group() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let (acme, other) = (group(&ann, "acme", 20).await, group(&ann, "other", 20).await);
    let rocket = ann.make("/projects", json!({ "name": "rocket" })).await;
    for group in [acme, other] {
        let share = json!({ "group_id": group, "group_access": 20 });
        assert_eq!(ann.post(&format!("/projects/{rocket}/share"), share).await.code(), 201);
    }
    let moved = root.post(&format!("/groups/acme/projects/{rocket}"), json!({})).await.json();
    assert_eq!((&moved["projects"][0]["id"], &moved["shared_projects"]), (&json!(rocket), &json!([])));
    let shared = ann.get(&format!("/projects/{rocket}")).await.json()["shared_with_groups"].clone();
    assert_eq!(shared, json!([{ "group_id": other, "group_name": "other", "group_access_level": 20 }]));
    assert_eq!(ann.get("/groups/acme/projects").await.join_field("id"), rocket.to_string());
}

#[tokio::test]
async fn deleting_a_group_deletes_everything_in_it() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = ann.make("/groups", json!({ "name": "Zyzzyva", "path": "zyzzyva" })).await;
    let inside = project(&ann, "quagga", acme, 20).await;
    let own = ann.make("/projects", json!({ "name": "stays", "visibility_level": 20 })).await;
    ann.post(&format!("/projects/{own}/share"), json!({ "group_id": acme, "group_access": 30 })).await;
    bob.post(&format!("/projects/{inside}/star"), json!({})).await;
    add_member(&ann, acme, &bob, 30).await;
    assert!(forge.dump().contains("quagga"));
    let removed = ann.delete("/groups/zyzzyva").await;
    assert_snapshot!(removed, @r#"
    200 OK
    {"id":4,"name":"Zyzzyva","path":"zyzzyva","description":"","visibility_level":20,"lfs_enabled":false,"avatar_url":null,"web_url":"http://gable.test/groups/zyzzyva","request_access_enabled":false,"projects":[],"shared_projects":[]}
    "#);
    for path in [format!("/groups/{acme}"), "/groups/zyzzyva".into(), "/groups/zyzzyva/projects".into()] {
        assert_eq!(status_and_body(&ann.get(&path).await), not_found(), "{path}");
        assert_eq!(status_and_body(&root.get(&path).await), not_found(), "{path}");
    }
    for path in [format!("/projects/{inside}"), "/projects/zyzzyva%2Fquagga".into()] {
        assert_eq!(root.get(&path).await.json(), json!({ "message": "404 Project Not Found" }), "{path}");
    }
    assert_eq!(root.get("/groups").await.text, "[]");
    assert_eq!(ann.get("/groups/owned").await.text, "[]");
    for list in ["/projects", "/projects/visible", "/projects/owned"] {
        assert_eq!(ann.get(list).await.join_field("id"), own.to_string(), "{list}");
    }
    assert_eq!(bob.get("/projects/starred").await.text, "[]");
    assert_eq!(bob.get("/projects").await.text, "[]");
    let all = root.get("/projects/all").await;
    assert_eq!((all.join_field("id"), all.header("x-total")), (own.to_string(), "1"));
    assert_eq!(root.get("/projects/all?search=quag").await.text, "[]");
    assert_eq!(ann.get(&format!("/projects/{own}")).await.json()["shared_with_groups"], json!([]));
    assert_eq!(root.get("/namespaces").await.join_field("path"), "bob ann root");
    // Its name and path are free at once, even before the cleanup.
    let again = ann.make("/groups", json!({ "name": "Zyzzyva", "path": "zyzzyva" })).await;
    assert_ne!(again, acme);
    assert_eq!(status_and_body(&ann.get(&format!("/groups/{acme}")).await), not_found());
    ann.delete("/groups/zyzzyva").await;
    forge.run_due_tasks().await;
    let left = forge.dump();
    for trace in ["quagga", "zyzzyva", "Zyzzyva", &format!("group_id={acme} "), &format!("project_id={inside} ")] {
        assert!(!left.contains(trace), "{trace} is left:\n{left}");
    }
    assert!(!left.contains("jobs: "), "{left}");
}

#[tokio::test]
async fn the_only_owner_of_a_group_cannot_be_deleted() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = group(&ann, "acme", 20).await;
    add_member(&ann, acme, &bob, 40).await;
    let url = format!("/users/{}", ann.id);
    let before = forge.dump();
    assert_snapshot!(root.delete(&url).await, @r#"
    409 Conflict
    {"message":"You must transfer ownership or delete groups before you can remove user"}
    "#);
    assert_eq!(forge.dump(), before);
    ann.put(&format!("/groups/acme/members/{}", bob.id), json!({ "access_level": 50 })).await;
    assert_eq!(root.delete(&url).await.json()["username"], "ann");
    assert_eq!(bob.get("/groups/acme/members").await.join_field("username"), "bob");
    // Without the group the user can be deleted.
    let bobs = format!("/users/{}", bob.id);
    assert_eq!(root.delete(&bobs).await.code(), 409);
    bob.delete("/groups/acme").await;
    assert_eq!(root.delete(&bobs).await.json()["username"], "bob");
}

#[tokio::test]
async fn membership_is_inherited_by_subgroups() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let eve = forge.user("eve").await;
    let above = group(&ann, "above", 0).await;
    let below = forge.insert_subgroup(NamespaceId::new(above), "below", Visibility::Private);
    let deep = forge.insert_subgroup(below, "deep", Visibility::Private);
    add_member(&ann, above, &bob, 30).await;
    add_member(&ann, deep.get(), &eve, 40).await;
    let rocket = project(&ann, "rocket", deep.get(), 0).await;
    let shown = bob.get(&format!("/projects/{rocket}")).await.json();
    assert_eq!(shown["path_with_namespace"], "above/below/deep/rocket");
    assert_eq!(shown["web_url"], "http://gable.test/above/below/deep/rocket");
    assert_eq!(shown["permissions"]["group_access"]["access_level"], 30);
    assert_eq!(bob.get("/projects/above%2Fbelow%2FDEEP%2Frocket").await.json()["id"], rocket);
    assert_eq!(bob.get("/groups/Above%2Fbelow").await.json()["id"], below.get());
    assert_eq!(bob.get("/groups").await.join_field("id"), format!("{above} {below} {deep}"));
    assert_eq!(bob.get("/groups/owned").await.text, "[]");
    for list in ["/projects", "/projects/visible"] {
        assert_eq!(bob.get(list).await.join_field("id"), rocket.to_string(), "{list}");
    }
    assert_eq!(ann.get("/projects/owned").await.join_field("id"), rocket.to_string());
    assert_eq!(bob.get("/projects/owned").await.text, "[]");
    // A role is inherited by subgroups, not by parents.
    assert_eq!(eve.get("/groups").await.join_field("id"), deep.to_string());
    for group in [above, below.get()] {
        assert_eq!(status_and_body(&eve.get(&format!("/groups/{group}")).await), not_found());
    }
    assert_eq!(eve.get(&format!("/projects/{rocket}")).await.json()["permissions"]["group_access"]["access_level"], 40);
    // The owner of a group owns its subgroups.
    assert_eq!(ann.put(&format!("/groups/{deep}"), json!({ "description": "d" })).await.json()["description"], "d");
    assert_eq!(bob.put(&format!("/groups/{deep}"), json!({ "name": "x" })).await.code(), 403);
}

#[tokio::test]
async fn subgroups_are_renamed_and_deleted_with_their_parent() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let above = group(&ann, "above", 0).await;
    let below = forge.insert_subgroup(NamespaceId::new(above), "below", Visibility::Private);
    let deep = forge.insert_subgroup(below, "deep", Visibility::Private);
    let rocket = project(&ann, "rocket", deep.get(), 0).await;
    ann.put("/groups/above", json!({ "path": "upper" })).await;
    assert_eq!(ann.get("/projects/upper%2Fbelow%2Fdeep%2Frocket").await.json()["id"], rocket);
    assert_eq!(ann.get("/groups/upper%2Fbelow%2Fdeep").await.json()["id"], deep.get());
    assert_eq!(status_and_body(&ann.get("/groups/above%2Fbelow").await), not_found());
    ann.put(&format!("/groups/{below}"), json!({ "path": "middle" })).await;
    assert_eq!(ann.get("/groups/upper%2Fmiddle%2Fdeep").await.json()["id"], deep.get());
    assert_eq!(ann.delete("/groups/upper").await.json()["id"], above);
    for id in [above, below.get(), deep.get()] {
        assert_eq!(status_and_body(&root.get(&format!("/groups/{id}")).await), not_found());
    }
    assert_eq!(root.get("/projects/all").await.text, "[]");
    forge.run_due_tasks().await;
    let left = forge.dump();
    for trace in ["rocket", "upper", "middle", "deep", "jobs: "] {
        assert!(!left.contains(trace), "{trace} is left:\n{left}");
    }
}

/// Names and paths must be unique among siblings, not in the whole tree.
#[tokio::test]
async fn the_name_of_a_subgroup_is_unique_among_its_siblings() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let above = group(&ann, "above", 0).await;
    group(&ann, "elsewhere", 0).await;
    let below = forge.insert_subgroup(NamespaceId::new(above), "below", Visibility::Private);
    forge.insert_subgroup(NamespaceId::new(above), "beside", Visibility::Private);
    let rename = async |field: &str, to: &str| ann.put(&format!("/groups/{below}"), json!({ field: to })).await;
    for field in ["name", "path"] {
        let taken = (400, json!({ "message": { field: [TAKEN] } }));
        assert_eq!(status_and_body(&rename(field, "Beside").await), taken, "{field}");
        assert_eq!(rename(field, "elsewhere").await.code(), 200, "{field}");
    }
    assert_eq!(ann.get("/groups/above%2Felsewhere").await.json()["id"], below.get());
}

#[tokio::test]
async fn lists_of_groups_come_in_pages_and_in_order() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    for number in 1..=25 {
        let body = json!({ "name": format!("n{:02}", 26 - number), "path": format!("p{number:02}") });
        ann.make("/groups", body).await;
    }
    let first = ann.get("/groups").await;
    assert_eq!(first.json().as_array().map(Vec::len), Some(20));
    for (header, value) in [
        ("x-total", "25"),
        ("x-total-pages", "2"),
        ("x-per-page", "20"),
        ("x-page", "1"),
        ("x-next-page", "2"),
        ("x-prev-page", ""),
    ] {
        assert_eq!(first.header(header), value, "{header}");
    }
    let third = ann.get("/groups?per_page=5&page=3&search=N&order_by=path&sort=desc").await;
    assert_eq!(third.join_field("path"), "p15 p14 p13 p12 p11");
    assert_snapshot!(third.header("link"), @r#"<http://gable.test/api/v3/groups?order_by=path&page=2&per_page=5&search=N&sort=desc>; rel="prev", <http://gable.test/api/v3/groups?order_by=path&page=4&per_page=5&search=N&sort=desc>; rel="next", <http://gable.test/api/v3/groups?order_by=path&page=1&per_page=5&search=N&sort=desc>; rel="first", <http://gable.test/api/v3/groups?order_by=path&page=5&per_page=5&search=N&sort=desc>; rel="last""#);
    assert_eq!(ann.get("/groups?per_page=3&page=1").await.join_field("name"), "n01 n02 n03");
    assert_eq!(ann.get("/groups?per_page=3&page=1&sort=desc").await.join_field("name"), "n25 n24 n23");
    assert_eq!(ann.get("/groups/owned?per_page=3").await.join_field("path"), "p25 p24 p23");
    let beyond = ann.get("/groups?page=9").await;
    assert_eq!((beyond.text.as_str(), beyond.header("x-total"), beyond.header("x-next-page")), ("[]", "25", ""));
}

#[tokio::test]
async fn a_group_shows_all_its_projects() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let (acme, other) = (group(&ann, "acme", 20).await, group(&ann, "other", 20).await);
    for number in 0..120 {
        let id = project(&ann, &format!("p{number}"), acme, 0).await;
        let share = json!({ "group_id": other, "group_access": 20 });
        assert_eq!(ann.post(&format!("/projects/{id}/share"), share).await.code(), 201);
    }
    let newest_first: Vec<i64> = (1..=120).rev().collect();
    for (path, field) in [("acme", "projects"), ("other", "shared_projects")] {
        let shown = ann.get(&format!("/groups/{path}")).await.json();
        let shown = shown[field].as_array().expect("a list");
        let ids: Vec<i64> = shown.iter().filter_map(|project| project["id"].as_i64()).collect();
        assert_eq!(ids, newest_first, "{path}");
    }
}

#[tokio::test]
async fn groups_are_searched_literally_and_in_any_case() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    for (name, path) in [("Ünïcode Äpfel", "apples"), ("a_b", "under"), ("Plain.Dot", "dot-ted"), ("axb", "x")] {
        ann.make("/groups", json!({ "name": name, "path": path, "description": "needle" })).await;
    }
    for (text, paths) in [
        ("%C3%BCN%C3%8FCODE", "apples"),
        ("%C3%A4p", "apples"),
        ("%C3%9C", "apples"),
        ("_", "under"),
        ("a_b", "under"),
        ("%25", ""),
        ("DOT", "dot-ted"),
        ("n.d", "dot-ted"),
        ("-", "dot-ted"),
        ("'", ""),
        ("%22", ""),
        ("%5C", ""),
        ("x", "x"),
        ("needle", ""),
        ("", "under x dot-ted apples"),
    ] {
        assert_eq!(ann.get(&format!("/groups?search={text}")).await.join_field("path"), paths, "{text}");
    }
    assert_eq!(ann.get("/groups?search=a%00b").await.json(), json!({ "error": "search is invalid" }));
    assert_eq!(ann.get(&format!("/groups?search={}", "a".repeat(3000))).await.text, "[]");
}

#[tokio::test]
async fn an_expired_membership_gives_no_access() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    let acme = group(&ann, "acme", 0).await;
    let rocket = project(&ann, "rocket", acme, 0).await;
    let body = json!({ "user_id": bob.id.get(), "access_level": 50, "expires_at": "2026-01-04" });
    ann.make("/groups/acme/members", body).await;
    assert_eq!(bob.get("/groups/owned").await.join_field("path"), "acme");
    assert_eq!(bob.get("/projects").await.join_field("id"), rocket.to_string());
    forge.clock.advance(SignedDuration::from_hours(48));
    assert_eq!(status_and_body(&bob.get("/groups/acme").await), not_found());
    assert_eq!(bob.get(&format!("/projects/{rocket}")).await.json(), json!({ "message": "404 Project Not Found" }));
    for list in ["/groups", "/groups/owned", "/projects", "/projects/visible", "/projects/owned"] {
        assert_eq!(bob.get(list).await.text, "[]", "{list}");
    }
}

#[tokio::test]
async fn a_group_keeps_its_name_even_if_a_user_takes_it() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/groups", json!({ "name": "acme", "path": "acme-group" })).await;
    forge.user("acme").await;
    let same = ann.put("/groups/acme-group", json!({ "name": "Acme", "description": "ours" })).await;
    assert_eq!((same.code(), &same.json()["name"], &same.json()["description"]), (200, &json!("Acme"), &json!("ours")));
}

/// Two groups may differ by the suffix alone.
#[tokio::test]
async fn a_json_suffix_never_leads_to_the_wrong_group() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/groups", json!({ "name": "one", "path": "data" })).await;
    ann.make("/groups", json!({ "name": "two", "path": "data.json" })).await;
    assert_eq!(ann.put("/groups/data.json", json!({ "description": "x" })).await.json()["path"], "data.json");
    assert_eq!(ann.delete("/groups/data.json").await.json()["path"], "data.json");
    assert_eq!(ann.get("/groups/data").await.json()["path"], "data");
}
