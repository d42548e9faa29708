//! Members of projects and groups.

use insta::assert_snapshot;
use jiff::SignedDuration;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse};

/// A project and a group of the same owner, for tests that apply to both.
const SOURCES: [&str; 2] = ["/projects/1", "/groups/acme"];

/// Starts a forge with ann, who owns the private project 1 and the private group `acme`, and with bob.
async fn start() -> (TestForge, TestClient, TestClient) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    assert_eq!(ann.post("/projects", json!({ "name": "x" })).await.json()["id"], 1);
    let group = json!({ "name": "acme", "path": "acme", "visibility_level": 0 });
    assert_eq!(ann.post("/groups", group).await.code(), 201);
    (forge, ann, bob)
}

async fn add(to: &TestClient, source: &str, user: &TestClient, level: i64) -> TestResponse {
    to.post(&format!("{source}/members"), json!({ "user_id": user.id.get(), "access_level": level })).await
}

async fn member(client: &TestClient, source: &str, user: &TestClient) -> TestResponse {
    client.get(&format!("{source}/members/{}", user.id)).await
}

/// Returns the username, access level and expiry of each member in a list.
fn members_in(list: &TestResponse) -> Vec<String> {
    let list = list.json();
    let describe = |member_json: &Value| {
        format!("{} {} {}", member_json["username"], member_json["access_level"], member_json["expires_at"])
            .replace('"', "")
    };
    list.as_array().expect("a list").iter().map(describe).collect()
}

#[tokio::test]
async fn a_member_is_added_updated_and_removed() {
    let mut transcripts = Vec::new();
    for source in SOURCES {
        let (_forge, ann, bob) = start().await;
        let path = format!("{source}/members/{}", bob.id);
        let joined = add(&ann, source, &bob, 30).await;
        let seen = member(&bob, source, &bob).await;
        let raised = ann.put(&path, json!({ "access_level": 40, "expires_at": "2026-05-06" })).await;
        assert_eq!(member(&ann, source, &bob).await.json(), raised.json());
        let left = bob.delete(&path).await;
        assert_eq!(bob.get(source).await.code(), 404);
        assert_eq!(member(&ann, source, &bob).await.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
        transcripts.push(format!("{joined}\n\n{seen}\n\n{raised}\n\n{left}"));
    }
    assert_eq!(transcripts[0], transcripts[1], "it is the same in a project and in a group");
    assert_snapshot!(transcripts[0], @r#"
    201 Created
    {"name":"bob","username":"bob","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/1403c0c40f49b8e5.svg","web_url":"http://gable.test/bob","created_at":"2026-01-02T03:04:05.678Z","access_level":30,"expires_at":null}

    200 OK
    {"name":"bob","username":"bob","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/1403c0c40f49b8e5.svg","web_url":"http://gable.test/bob","created_at":"2026-01-02T03:04:05.678Z","access_level":30,"expires_at":null}

    200 OK
    {"name":"bob","username":"bob","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/1403c0c40f49b8e5.svg","web_url":"http://gable.test/bob","created_at":"2026-01-02T03:04:05.678Z","access_level":40,"expires_at":"2026-05-06"}

    200 OK
    {"name":"bob","username":"bob","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/1403c0c40f49b8e5.svg","web_url":"http://gable.test/bob","created_at":"2026-01-02T03:04:05.678Z","access_level":40,"expires_at":"2026-05-06"}
    "#);
}

#[tokio::test]
async fn a_list_shows_the_newest_membership_first() {
    let (forge, ann, bob) = start().await;
    let root = forge.admin().await;
    let (cid, dan) = (forge.user("cid").await, forge.external("dan").await);
    for source in SOURCES {
        for (user, level) in [(&dan, 10), (&bob, 20), (&cid, 30)] {
            assert_eq!(add(&ann, source, user, level).await.code(), 201);
        }
    }
    // A blocked user is still a member.
    root.put(&format!("/users/{}/block", bob.id), json!({})).await;
    for (source, least) in SOURCES.into_iter().zip([40, 50]) {
        let list = ann.get(&format!("{source}/members")).await;
        assert_eq!(members_in(&list), ["cid 30 null", "bob 20 null", "dan 10 null", &format!("ann {least} null")]);
        assert_eq!(list.json()[1]["state"], "blocked");
        // A change of role does not change the order.
        ann.put(&format!("{source}/members/{}", dan.id), json!({ "access_level": 40 })).await;
        let members = format!("{source}/members");
        let page = ann.get(&format!("{members}?per_page=2&page=2")).await;
        assert_eq!(page.join_field("username"), "dan ann");
        assert_eq!((page.header("x-total"), page.header("x-total-pages"), page.header("x-page")), ("4", "2", "2"));
        assert!(page.header("link").contains("rel=\"prev\""), "{}", page.header("link"));
        assert_eq!(ann.get(&format!("{members}?page=9")).await.text, "[]");
        assert_eq!(cid.get(&members).await.join_field("username"), "cid bob dan ann");
        assert_eq!(root.get(&members).await.join_field("username"), "cid bob dan ann");
    }
}

#[tokio::test]
async fn members_are_found_by_name_and_username() {
    let (forge, ann, bob) = start().await;
    let root = forge.admin().await;
    let cid = forge.user("cid").await;
    root.put(&format!("/users/{}", cid.id), json!({ "name": "Änne 100%" })).await;
    for source in SOURCES {
        add(&ann, source, &cid, 10).await;
        add(&ann, source, &bob, 10).await;
        let found = async |client: &TestClient, query: &str| {
            let list = client.get(&format!("{source}/members?query={query}")).await;
            assert_eq!(list.header("x-total"), list.json().as_array().map_or(0, Vec::len).to_string());
            list.join_field("username")
        };
        assert_eq!(found(&ann, "").await, "bob cid ann");
        // Newest user first.
        assert_eq!(found(&ann, "n").await, "cid ann");
        assert_eq!(found(&ann, "B").await, "bob");
        assert_eq!(found(&ann, "%C3%84NN").await, "cid");
        assert_eq!(found(&ann, "0%25").await, "cid");
        assert_eq!(found(&ann, "%25").await, "cid");
        assert_eq!(found(&ann, "_").await, "");
        assert_eq!(found(&ann, "root").await, "");
        // A search matches whole addresses only; for administrators also parts of them.
        assert_eq!(found(&ann, "BOB@example.org").await, "bob");
        assert_eq!(found(&ann, "@example").await, "");
        assert_eq!(found(&root, "@example").await, "cid bob ann");
        assert_eq!(found(&ann, &"x".repeat(3000)).await, "");
    }
}

/// The checks for adding a member, in order.
#[tokio::test]
async fn an_invalid_new_member_is_rejected() {
    for source in SOURCES {
        let (forge, ann, bob) = start().await;
        let cid = forge.user("cid").await;
        let path = format!("{source}/members");
        let response = async |client: &TestClient, body: Value| client.post(&path, body).await.to_string();
        let good = json!({ "user_id": cid.id.get(), "access_level": 30 });
        assert_eq!(
            response(&forge.anonymous(), json!({})).await,
            "401 Unauthorized\n{\"message\":\"401 Unauthorized\"}"
        );
        let missing = "400 Bad Request\n{\"error\":\"user_id is missing, access_level is missing\"}";
        assert_eq!(response(&bob, json!({})).await, missing, "what is missing comes before what is hidden");
        let kind = if source.starts_with("/groups") { "Group" } else { "Project" };
        let hidden = format!("404 Not Found\n{{\"message\":\"404 {kind} Not Found\"}}");
        assert_eq!(response(&bob, good.clone()).await, hidden);
        assert_eq!(add(&ann, source, &bob, 30).await.code(), 201);
        assert_eq!(response(&bob, good.clone()).await, "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        assert_eq!(response(&ann, json!({})).await, missing);
        let text = response(&ann, json!({ "user_id": cid.id.get() })).await;
        assert_eq!(text, "400 Bad Request\n{\"error\":\"access_level is missing\"}");
        let text = response(&ann, json!({ "user_id": "cid", "access_level": "x", "expires_at": "soon" })).await;
        let all = "user_id is invalid, access_level is invalid, expires_at is invalid";
        assert_eq!(text, format!("400 Bad Request\n{{\"error\":\"{all}\"}}"));
        for day in ["2026-02-30", "20260203", "03.02.2026", "2026-1-2"] {
            let text = response(&ann, json!({ "user_id": cid.id.get(), "access_level": 30, "expires_at": day })).await;
            assert_eq!(text, "400 Bad Request\n{\"error\":\"expires_at is invalid\"}", "{day}");
        }
        let text = response(&ann, json!({ "user_id": 999, "access_level": 30 })).await;
        assert_eq!(text, "400 Bad Request\n{\"message\":{\"user\":[\"can't be blank\"]}}");
        let unknown = "422 Unprocessable Entity\n{\"message\":\"Access level is not known\"}";
        for level in [-10, 0, 5, 15, 60, i64::MAX] {
            assert_eq!(
                response(&ann, json!({ "user_id": cid.id.get(), "access_level": level })).await,
                unknown,
                "{level}"
            );
        }
        assert_eq!(ann.get(&path).await.header("x-total"), "2");
        assert_eq!(response(&ann, good).await.lines().next(), Some("201 Created"));
    }
}

#[tokio::test]
async fn only_groups_have_owners() {
    let (_forge, ann, bob) = start().await;
    assert_eq!(add(&ann, "/groups/acme", &bob, 50).await.code(), 201);
    assert_snapshot!(add(&ann, "/projects/1", &bob, 50).await, @r#"
    422 Unprocessable Entity
    {"message":"Access level is not known"}
    "#);
    assert_eq!(add(&ann, "/projects/1", &bob, 40).await.code(), 201);
    let path = format!("/projects/1/members/{}", bob.id);
    assert_snapshot!(ann.put(&path, json!({ "access_level": 50 })).await, @r#"
    422 Unprocessable Entity
    {"message":"Access level is not known"}
    "#);
    assert_eq!(member(&ann, "/projects/1", &bob).await.json()["access_level"], 40);
}

#[tokio::test]
async fn adding_an_existing_member_does_not_change_the_role() {
    let (_forge, ann, bob) = start().await;
    for source in SOURCES {
        assert_eq!(add(&ann, source, &bob, 20).await.code(), 201);
    }
    assert_snapshot!(add(&ann, "/groups/acme", &bob, 40).await, @r#"
    409 Conflict
    {"message":"Member already exists"}
    "#);
    assert_snapshot!(add(&ann, "/projects/1", &bob, 40).await, @r#"
    201 Created
    {"name":"bob","username":"bob","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/1403c0c40f49b8e5.svg","web_url":"http://gable.test/bob","created_at":"2026-01-02T03:04:05.678Z","access_level":20,"expires_at":null}
    "#);
    for source in SOURCES {
        assert_eq!(member(&ann, source, &bob).await.json()["access_level"], 20);
    }
}

/// The checks for updating a member, in order.
#[tokio::test]
async fn an_invalid_update_is_rejected() {
    for source in SOURCES {
        let (forge, ann, bob) = start().await;
        let cid = forge.user("cid").await;
        let path = format!("{source}/members/{}", cid.id);
        let response = async |client: &TestClient, body: Value| client.put(&path, body).await.to_string();
        let kind = if source.starts_with("/groups") { "Group" } else { "Project" };
        let hidden = format!("404 Not Found\n{{\"message\":\"404 {kind} Not Found\"}}");
        let good = json!({ "access_level": 30 });
        assert_eq!(response(&bob, good.clone()).await, hidden);
        add(&ann, source, &bob, 30).await;
        assert_eq!(response(&bob, good.clone()).await, "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        assert_eq!(response(&ann, good.clone()).await, "404 Not Found\n{\"message\":\"404 Not found\"}");
        add(&ann, source, &cid, 20).await;
        assert_eq!(response(&ann, json!({})).await, "400 Bad Request\n{\"error\":\"access_level is missing\"}");
        let text = response(&ann, json!({ "access_level": "high", "expires_at": "soon" })).await;
        assert_eq!(text, "400 Bad Request\n{\"error\":\"access_level is invalid, expires_at is invalid\"}");
        let unknown = "422 Unprocessable Entity\n{\"message\":\"Access level is not known\"}";
        assert_eq!(response(&ann, json!({ "access_level": 35 })).await, unknown);
        let text = ann.put(&format!("{source}/members/cid"), good.clone()).await.to_string();
        assert_eq!(text, "400 Bad Request\n{\"error\":\"user_id is invalid\"}");
        assert_eq!(member(&ann, source, &cid).await.json()["access_level"], 20);
        assert_eq!(response(&ann, good).await.lines().next(), Some("200 OK"));
    }
}

#[tokio::test]
async fn a_master_gives_roles_up_to_master() {
    let (forge, ann, bob) = start().await;
    let cid = forge.user("cid").await;
    add(&ann, "/projects/1", &bob, 40).await;
    assert_eq!(add(&bob, "/projects/1", &cid, 40).await.code(), 201);
    let path = format!("/projects/1/members/{}", bob.id);
    // A master can also lower roles, and those of other masters.
    assert_eq!(cid.put(&path, json!({ "access_level": 10 })).await.code(), 200);
    assert_eq!(bob.put(&format!("/projects/1/members/{}", cid.id), json!({ "access_level": 10 })).await.code(), 403);
    // A master of a group cannot change its members.
    add(&ann, "/groups/acme", &bob, 40).await;
    assert_eq!(add(&bob, "/groups/acme", &cid, 10).await.code(), 403);
}

/// The checks for removing a member, in order.
#[tokio::test]
async fn an_invalid_removal_is_rejected() {
    let (forge, ann, bob) = start().await;
    let (cid, dan) = (forge.user("cid").await, forge.user("dan").await);
    for source in SOURCES {
        add(&ann, source, &bob, 30).await;
        add(&ann, source, &cid, 10).await;
        let path = format!("{source}/members/{}", cid.id);
        assert_eq!(forge.anonymous().delete(&path).await.code(), 401);
        assert_eq!(dan.delete(&path).await.code(), 404);
        assert_eq!(bob.delete(&path).await.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        let text = ann.delete(&format!("{source}/members/cid")).await.to_string();
        assert_eq!(text, "400 Bad Request\n{\"error\":\"user_id is invalid\"}");
        assert_eq!(ann.get(&format!("{source}/members")).await.header("x-total"), "3");
    }
    // A user who is not a member.
    assert_snapshot!(ann.delete(&format!("/groups/acme/members/{}", dan.id)).await, @r#"
    404 Not Found
    {"message":"404 Member: user_id:4 Not Found"}
    "#);
    assert_eq!(bob.delete(&format!("/groups/acme/members/{}", dan.id)).await.code(), 403);
    assert_snapshot!(ann.delete(&format!("/projects/1/members/{}", dan.id)).await, @r#"
    200 OK
    {"message":"Access revoked","id":4}
    "#);
    assert_snapshot!(bob.delete("/projects/1/members/999").await, @r#"
    200 OK
    {"message":"Access revoked","id":999}
    "#);
    // The owner.
    assert_snapshot!(ann.delete(&format!("/projects/1/members/{}", ann.id)).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    let root = forge.admin().await;
    assert_eq!(root.delete(&format!("/projects/1/members/{}", ann.id)).await.code(), 403);
    for source in SOURCES {
        assert_eq!(ann.delete(&format!("{source}/members/{}", cid.id)).await.json()["username"], "cid");
        assert_eq!(ann.get(&format!("{source}/members")).await.join_field("username"), "bob ann");
    }
}

#[tokio::test]
async fn a_group_keeps_an_owner() {
    let (forge, ann, bob) = start().await;
    let root = forge.admin().await;
    let of = |user: &TestClient| format!("/groups/acme/members/{}", user.id);
    add(&ann, "/groups/acme", &bob, 40).await;
    for client in [&ann, &root] {
        let refused = client.delete(&of(&ann)).await.to_string();
        assert_eq!(refused, "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        for change in [json!({ "access_level": 40 }), json!({ "access_level": 50, "expires_at": "2030-01-01" })] {
            assert_eq!(client.put(&of(&ann), change.clone()).await.code(), 403, "{change}");
        }
    }
    assert_eq!(ann.put(&of(&ann), json!({ "access_level": 50 })).await.code(), 200);
    // An owner whose membership expires does not count.
    ann.put(&of(&bob), json!({ "access_level": 50, "expires_at": "2030-01-01" })).await;
    assert_eq!(ann.delete(&of(&ann)).await.code(), 403);
    assert_eq!(ann.get("/groups/acme/members").await.join_field("access_level"), "50 50");
    // Of two owners, one can leave; then the other has to stay.
    ann.put(&of(&bob), json!({ "access_level": 50, "expires_at": "" })).await;
    assert_eq!(bob.put(&of(&ann), json!({ "access_level": 10 })).await.code(), 200);
    assert_eq!(bob.delete(&of(&bob)).await.code(), 403);
    assert_eq!(ann.put(&of(&bob), json!({ "access_level": 10 })).await.code(), 403);
    assert_eq!(ann.delete(&of(&ann)).await.code(), 200);
}

#[tokio::test]
async fn a_membership_expires_at_the_start_of_its_expiry_date() {
    for source in SOURCES {
        let (forge, ann, bob) = start().await;
        let cid = forge.user("cid").await;
        let path = format!("{source}/members/{}", bob.id);
        let new = json!({ "user_id": bob.id.get(), "access_level": 30, "expires_at": "2026-01-03" });
        assert_eq!(ann.post(&format!("{source}/members"), new).await.json()["expires_at"], "2026-01-03");
        add(&ann, source, &cid, 10).await;
        let members = format!("{source}/members");
        assert_eq!(members_in(&ann.get(&members).await)[..2], ["cid 10 null", "bob 30 2026-01-03"]);
        // The clock is at 03:04:05 on the 2nd; the day ends in 20:55:54.
        forge.clock.advance(SignedDuration::new(20 * 3600 + 55 * 60 + 54, 0));
        assert_eq!(bob.get(source).await.code(), 200);
        // Every reader has looked up the membership, and nothing is written afterwards.
        for _ in 0..8 {
            assert_eq!(bob.get(&format!("{source}/issues")).await.to_string(), "200 OK\n[]");
        }
        forge.clock.advance(SignedDuration::from_secs(1));
        for _ in 0..8 {
            assert_eq!(bob.get(&format!("{source}/issues")).await.code(), 404);
        }
        assert_eq!(bob.get(source).await.code(), 404);
        assert_eq!(member(&ann, source, &bob).await.code(), 404);
        let list = ann.get(&members).await;
        assert_eq!((list.join_field("username").as_str(), list.header("x-total")), ("cid ann", "2"));
        assert_eq!(ann.get(&format!("{members}?query=bob")).await.text, "[]");
        assert_eq!(ann.put(&path, json!({ "access_level": 40, "expires_at": "" })).await.code(), 404);
        assert_eq!(ann.delete(&path).await.code(), if source.starts_with("/groups") { 404 } else { 200 });
        // As if the membership had never existed.
        let again = ann.post(&members, json!({ "user_id": bob.id.get(), "access_level": 20 })).await;
        assert_eq!((again.code(), &again.json()["expires_at"]), (201, &Value::Null), "{again}");
        assert!(members_in(&ann.get(&members).await).contains(&"bob 20 null".to_owned()));
        assert_eq!(bob.get(source).await.code(), 200);
    }
}

#[tokio::test]
async fn a_member_who_joins_again_after_expiry_is_the_newest() {
    for source in SOURCES {
        let (forge, ann, bob) = start().await;
        let cid = forge.user("cid").await;
        let members = format!("{source}/members");
        ann.post(&members, json!({ "user_id": bob.id.get(), "access_level": 30, "expires_at": "2026-01-03" })).await;
        add(&ann, source, &cid, 10).await;
        forge.clock.advance(SignedDuration::from_hours(24));
        assert_eq!(add(&ann, source, &bob, 20).await.code(), 201);
        assert_eq!(ann.get(&members).await.join_field("username"), "bob cid ann", "{source}");
    }
}

#[tokio::test]
async fn an_expiry_date_may_be_in_the_past_and_may_be_removed() {
    for source in SOURCES {
        let (_forge, ann, bob) = start().await;
        let members = format!("{source}/members");
        let path = format!("{members}/{}", bob.id);
        let past = json!({ "user_id": bob.id.get(), "access_level": 30, "expires_at": "2001-02-03" });
        let added = ann.post(&members, past.clone()).await;
        assert_eq!((added.code(), &added.json()["expires_at"]), (201, &json!("2001-02-03")), "{added}");
        assert_eq!((bob.get(source).await.code(), member(&ann, source, &bob).await.code()), (404, 404));
        assert_eq!(ann.post(&members, past).await.code(), 201, "an expired membership is no conflict");
        let future = json!({ "user_id": bob.id.get(), "access_level": 30, "expires_at": "2026-02-03" });
        assert_eq!(ann.post(&members, future).await.code(), 201);
        // An absent parameter keeps it; null and the empty text remove it.
        for (change, left) in [
            (json!({ "access_level": 20 }), json!("2026-02-03")),
            (json!({ "access_level": 20, "expires_at": null }), Value::Null),
            (json!({ "access_level": 20, "expires_at": "2026-03-04" }), json!("2026-03-04")),
            (json!({ "access_level": 20, "expires_at": "" }), Value::Null),
        ] {
            assert_eq!(ann.put(&path, change.clone()).await.json()["expires_at"], left, "{change}");
            assert_eq!(member(&ann, source, &bob).await.json()["expires_at"], left, "{change}");
        }
        let ended = ann.put(&path, json!({ "access_level": 20, "expires_at": "2026-01-02" })).await;
        assert_eq!((ended.code(), bob.get(source).await.code()), (200, 404), "{ended}");
    }
}

#[tokio::test]
async fn only_direct_members_are_listed() {
    let (forge, ann, bob) = start().await;
    let cid = forge.user("cid").await;
    let group = ann.get("/groups/acme").await.json()["id"].clone();
    let inside = ann.post("/projects", json!({ "name": "inside", "namespace_id": group })).await.json()["id"].clone();
    let crew = ann.post("/groups", json!({ "name": "crew", "path": "crew" })).await.json()["id"].clone();
    add(&ann, "/groups/acme", &bob, 40).await;
    add(&ann, "/groups/crew", &cid, 40).await;
    ann.post(&format!("/projects/{inside}/share"), json!({ "group_id": crew, "group_access": 30 })).await;
    for client in [&ann, &bob, &cid] {
        assert_eq!(client.get(&format!("/projects/{inside}/members")).await.text, "[]");
        assert_eq!(client.get(&format!("/projects/{inside}/members/{}", bob.id)).await.code(), 404);
    }
    // A user who leaves the project is still a member of the group.
    assert_eq!(bob.delete(&format!("/projects/{inside}/members/{}", bob.id)).await.json()["message"], "Access revoked");
    assert_eq!(bob.get(&format!("/projects/{inside}")).await.code(), 200);
}

#[tokio::test]
async fn projects_and_groups_are_found_by_id_or_path() {
    let (_forge, ann, bob) = start().await;
    let group = ann.get("/groups/acme").await.json()["id"].clone();
    assert_eq!(add(&ann, "/projects/ANN%2fX", &bob, 10).await.code(), 201);
    assert_eq!(add(&ann, &format!("/groups/{group}"), &bob, 10).await.code(), 201);
    assert_eq!(ann.get("/projects/ann%2Fx/members").await.join_field("username"), "bob ann");
    assert_eq!(ann.get("/groups/ACME/members").await.join_field("username"), "bob ann");
    assert_snapshot!(ann.get("/projects/99/members").await, @r#"
    404 Not Found
    {"message":"404 Project Not Found"}
    "#);
    assert_snapshot!(ann.get("/groups/ann/members").await, @r#"
    404 Not Found
    {"message":"404 Group Not Found"}
    "#);
}

#[tokio::test]
async fn the_list_of_namespaces_has_the_personal_one_and_those_of_groups() {
    let (forge, ann, bob) = start().await;
    let root = forge.admin().await;
    add(&ann, "/groups/acme", &bob, 10).await;
    ann.post("/groups", json!({ "name": "Ünion 1", "path": "onion" })).await;
    assert_snapshot!(bob.get("/namespaces").await, @r#"
    200 OK
    [{"id":3,"name":"acme","path":"acme","kind":"group","full_path":"acme"},{"id":2,"name":"bob","path":"bob","kind":"user","full_path":"bob"}]
    "#);
    assert_eq!(ann.get("/namespaces").await.join_field("path"), "onion acme ann");
    assert_eq!(root.get("/namespaces").await.join_field("path"), "onion root acme bob ann");
    assert_eq!(root.get("/namespaces").await.join_field("kind"), "group user group user user");
    for (search, found) in
        [("ON", "onion"), ("%C3%BCn", "onion"), ("n%201", "onion"), ("%25", ""), ("_", ""), ("an", "ann"), ("bob", "")]
    {
        assert_eq!(ann.get(&format!("/namespaces?search={search}")).await.join_field("path"), found, "{search}");
    }
    let page = root.get("/namespaces?per_page=2&page=2").await;
    assert_eq!((page.join_field("path").as_str(), page.header("x-total")), ("acme bob", "5"));
    assert_eq!(forge.anonymous().get("/namespaces").await.code(), 401);
    // A group is listed until the membership expires.
    let until = json!({ "access_level": 10, "expires_at": "2026-01-03" });
    assert_eq!(ann.put(&format!("/groups/acme/members/{}", bob.id), until).await.code(), 200);
    forge.clock.advance(SignedDuration::from_hours(24));
    assert_eq!(bob.get("/namespaces").await.join_field("path"), "bob");
}

/// IDs that belong to another project or group are not found and change nothing.
#[tokio::test]
async fn members_of_another_project_or_group_are_not_found() {
    let (forge, ann, bob) = start().await;
    let cid = forge.user("cid").await;
    // Ann is the only member of her project and group; cid is a member of bob's, and bob's project is shared with a group.
    assert_eq!(bob.post("/projects", json!({ "name": "y" })).await.json()["id"], 2);
    bob.post("/groups", json!({ "name": "bobs", "path": "bobs", "visibility_level": 0 })).await;
    let crew = bob.post("/groups", json!({ "name": "crew", "path": "crew" })).await.json()["id"].clone();
    bob.post("/projects/2/share", json!({ "group_id": crew, "group_access": 20 })).await;
    for source in ["/projects/2", "/groups/bobs"] {
        assert_eq!(add(&bob, source, &cid, 20).await.code(), 201);
    }
    let before = forge.dump();
    for source in SOURCES {
        let path = format!("{source}/members/{}", cid.id);
        assert_eq!(ann.get(&path).await.code(), 404);
        assert_eq!(ann.put(&path, json!({ "access_level": 40 })).await.code(), 404);
        // GitLab 8.14 responds like this for every user who is not a member of a project.
        assert_eq!(ann.delete(&path).await.code(), if source == "/groups/acme" { 404 } else { 200 });
        // The ID of a membership is not accepted in place of the ID of a user.
        for number in [4, 5, 6, 7, 99] {
            assert_eq!(ann.get(&format!("{source}/members/{number}")).await.code(), 404);
        }
    }
    assert_snapshot!(ann.delete(&format!("/projects/1/share/{crew}")).await, @r#"
    404 Not Found
    {"message":"404 Group Link Not Found"}
    "#);
    // Projects and groups of others, with IDs of her own.
    let private = bob.get("/groups/bobs").await.json()["id"].clone();
    for (method, path, body) in [
        ("POST", "/projects/2/members".to_owned(), json!({ "user_id": ann.id.get(), "access_level": 40 })),
        ("PUT", format!("/projects/2/members/{}", cid.id), json!({ "access_level": 10 })),
        ("DELETE", format!("/projects/2/members/{}", cid.id), json!({})),
        ("DELETE", format!("/projects/2/share/{crew}"), json!({})),
        ("POST", "/projects/2/share".to_owned(), json!({ "group_id": crew, "group_access": 40 })),
        ("POST", format!("/groups/{private}/members"), json!({ "user_id": ann.id.get(), "access_level": 50 })),
        ("PUT", format!("/groups/{private}/members/{}", cid.id), json!({ "access_level": 10 })),
        ("DELETE", format!("/groups/{private}/members/{}", cid.id), json!({})),
        // A hidden group cannot be distinguished from a missing one.
        ("POST", "/projects/1/share".to_owned(), json!({ "group_id": private, "group_access": 40 })),
    ] {
        let answer = ann.json(method.parse().expect("a method"), &path, body).await;
        assert_eq!(answer.code(), 404, "{method} {path}: {answer}");
    }
    // A public project is not changed.
    assert_eq!(
        ann.post(&format!("/groups/{crew}/members"), json!({ "user_id": ann.id.get(), "access_level": 50 }))
            .await
            .code(),
        403
    );
    assert_eq!(ann.delete(&format!("/groups/{crew}/members/{}", bob.id)).await.code(), 403);
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn the_last_day_of_the_calendar_is_accepted() {
    let forge = TestForge::start().await;
    let (ann, ben) = (forge.user("ann").await, forge.user("ben").await);
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let until = json!({ "user_id": ben.id.get(), "access_level": 30, "expires_at": "9999-12-31" });
    let path = format!("/projects/{project}/members");
    assert_eq!(ann.post(&path, until).await.json()["expires_at"], "9999-12-31");
    let member = format!("{path}/{}", ben.id);
    assert_eq!(ann.get(&member).await.json()["expires_at"], "9999-12-31");
    assert_eq!(ann.put(&member, json!({ "access_level": 20 })).await.json()["expires_at"], "9999-12-31");
    assert_eq!(ben.get(&format!("/projects/{project}")).await.code(), 200);
}
