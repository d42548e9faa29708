//! Members of projects and groups: who belongs where, as what, and until when.

use insta::assert_snapshot;
use jiff::SignedDuration;
use serde_json::{Value, json};
use testkit::{Answer, Client, TestForge};

/// Both places in which somebody can be a member: the project 1 and the group of the same owner.
const PLACES: [&str; 2] = ["/projects/1", "/groups/acme"];

/// A forge with ann, to whom the private project 1 and the private group `acme` belong, and with bob.
async fn start() -> (TestForge, Client, Client) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    assert_eq!(ann.post("/projects", json!({ "name": "x" })).await.json()["id"], 1);
    let group = json!({ "name": "acme", "path": "acme", "visibility_level": 0 });
    assert_eq!(ann.post("/groups", group).await.code(), 201);
    (forge, ann, bob)
}

async fn add(to: &Client, place: &str, user: &Client, level: i64) -> Answer {
    to.post(&format!("{place}/members"), json!({ "user_id": user.id, "access_level": level })).await
}

async fn member(client: &Client, place: &str, user: &Client) -> Answer {
    client.get(&format!("{place}/members/{}", user.id)).await
}

/// What a list of members says: who, as what, until when.
fn shown(list: &Answer) -> Vec<String> {
    let list = list.json();
    let say = |tx: &Value| format!("{} {} {}", tx["username"], tx["access_level"], tx["expires_at"]).replace('"', "");
    list.as_array().expect("a list").iter().map(say).collect()
}

#[tokio::test]
async fn somebody_joins_rises_and_leaves() {
    let mut stories = Vec::new();
    for place in PLACES {
        let (_forge, ann, bob) = start().await;
        let path = format!("{place}/members/{}", bob.id);
        let joined = add(&ann, place, &bob, 30).await;
        let seen = member(&bob, place, &bob).await;
        let raised = ann.put(&path, json!({ "access_level": 40, "expires_at": "2026-05-06" })).await;
        assert_eq!(member(&ann, place, &bob).await.json(), raised.json());
        let left = bob.delete(&path).await;
        assert_eq!(bob.get(place).await.code(), 404);
        assert_eq!(member(&ann, place, &bob).await.to_string(), "404 Not Found\n{\"message\":\"404 Not found\"}");
        stories.push(format!("{joined}\n\n{seen}\n\n{raised}\n\n{left}"));
    }
    assert_eq!(stories[0], stories[1], "it is the same in a project and in a group");
    assert_snapshot!(stories[0], @r#"
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
    for place in PLACES {
        for (user, level) in [(&dan, 10), (&bob, 20), (&cid, 30)] {
            assert_eq!(add(&ann, place, user, level).await.code(), 201);
        }
    }
    // Who is blocked still belongs.
    root.put(&format!("/users/{}/block", bob.id), json!({})).await;
    for (place, least) in PLACES.into_iter().zip([40, 50]) {
        let list = ann.get(&format!("{place}/members")).await;
        assert_eq!(shown(&list), ["cid 30 null", "bob 20 null", "dan 10 null", &format!("ann {least} null")]);
        assert_eq!(list.json()[1]["state"], "blocked");
        // The order stays when somebody rises.
        ann.put(&format!("{place}/members/{}", dan.id), json!({ "access_level": 40 })).await;
        let members = format!("{place}/members");
        let page = ann.get(&format!("{members}?per_page=2&page=2")).await;
        assert_eq!(page.each("username"), "dan ann");
        assert_eq!((page.header("x-total"), page.header("x-total-pages"), page.header("x-page")), ("4", "2", "2"));
        assert!(page.header("link").contains("rel=\"prev\""), "{}", page.header("link"));
        assert_eq!(ann.get(&format!("{members}?page=9")).await.text, "[]");
        assert_eq!(cid.get(&members).await.each("username"), "cid bob dan ann");
        assert_eq!(root.get(&members).await.each("username"), "cid bob dan ann");
    }
}

#[tokio::test]
async fn members_are_found_by_name_and_username() {
    let (forge, ann, bob) = start().await;
    let root = forge.admin().await;
    let cid = forge.user("cid").await;
    root.put(&format!("/users/{}", cid.id), json!({ "name": "Änne 100%" })).await;
    for place in PLACES {
        add(&ann, place, &cid, 10).await;
        add(&ann, place, &bob, 10).await;
        let found = async |client: &Client, query: &str| {
            let list = client.get(&format!("{place}/members?query={query}")).await;
            assert_eq!(list.header("x-total"), list.json().as_array().map_or(0, Vec::len).to_string());
            list.each("username")
        };
        assert_eq!(found(&ann, "").await, "bob cid ann");
        // By user, the newest first.
        assert_eq!(found(&ann, "n").await, "cid ann");
        assert_eq!(found(&ann, "B").await, "bob");
        assert_eq!(found(&ann, "%C3%84NN").await, "cid");
        assert_eq!(found(&ann, "0%25").await, "cid");
        assert_eq!(found(&ann, "%25").await, "cid");
        assert_eq!(found(&ann, "_").await, "");
        assert_eq!(found(&ann, "root").await, "");
        // An address finds whoever knows all of it; administrators see addresses anyway.
        assert_eq!(found(&ann, "BOB@example.org").await, "bob");
        assert_eq!(found(&ann, "@example").await, "");
        assert_eq!(found(&root, "@example").await, "cid bob ann");
        assert_eq!(found(&ann, &"x".repeat(3000)).await, "");
    }
}

/// Each condition of a wish to add somebody, in the order in which they are looked at.
#[tokio::test]
async fn what_can_be_wrong_with_a_new_member() {
    for place in PLACES {
        let (forge, ann, bob) = start().await;
        let cid = forge.user("cid").await;
        let path = format!("{place}/members");
        let told = async |client: &Client, body: Value| client.post(&path, body).await.to_string();
        let good = json!({ "user_id": cid.id, "access_level": 30 });
        assert_eq!(told(&forge.anonymous(), json!({})).await, "401 Unauthorized\n{\"message\":\"401 Unauthorized\"}");
        let missing = "400 Bad Request\n{\"error\":\"user_id is missing, access_level is missing\"}";
        assert_eq!(told(&bob, json!({})).await, missing, "what is missing comes before what is hidden");
        let kind = if place.starts_with("/groups") { "Group" } else { "Project" };
        let hidden = format!("404 Not Found\n{{\"message\":\"404 {kind} Not Found\"}}");
        assert_eq!(told(&bob, good.clone()).await, hidden);
        assert_eq!(add(&ann, place, &bob, 30).await.code(), 201);
        assert_eq!(told(&bob, good.clone()).await, "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        assert_eq!(told(&ann, json!({})).await, missing);
        let text = told(&ann, json!({ "user_id": cid.id })).await;
        assert_eq!(text, "400 Bad Request\n{\"error\":\"access_level is missing\"}");
        let text = told(&ann, json!({ "user_id": "cid", "access_level": "x", "expires_at": "soon" })).await;
        let all = "user_id is invalid, access_level is invalid, expires_at is invalid";
        assert_eq!(text, format!("400 Bad Request\n{{\"error\":\"{all}\"}}"));
        for day in ["2026-02-30", "20260203", "03.02.2026", "2026-1-2"] {
            let text = told(&ann, json!({ "user_id": cid.id, "access_level": 30, "expires_at": day })).await;
            assert_eq!(text, "400 Bad Request\n{\"error\":\"expires_at is invalid\"}", "{day}");
        }
        let text = told(&ann, json!({ "user_id": 999, "access_level": 30 })).await;
        assert_eq!(text, "400 Bad Request\n{\"message\":{\"user\":[\"can't be blank\"]}}");
        let unknown = "422 Unprocessable Entity\n{\"message\":\"Access level is not known\"}";
        for level in [-10, 0, 5, 15, 60, i64::MAX] {
            assert_eq!(told(&ann, json!({ "user_id": cid.id, "access_level": level })).await, unknown, "{level}");
        }
        assert_eq!(ann.get(&path).await.header("x-total"), "2");
        assert_eq!(told(&ann, good).await.lines().next(), Some("201 Created"));
    }
}

#[tokio::test]
async fn an_owner_is_known_in_groups_only() {
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
async fn who_is_a_member_already_stays_what_they_are() {
    let (_forge, ann, bob) = start().await;
    for place in PLACES {
        assert_eq!(add(&ann, place, &bob, 20).await.code(), 201);
    }
    assert_snapshot!(add(&ann, "/groups/acme", &bob, 40).await, @r#"
    409 Conflict
    {"message":"Member already exists"}
    "#);
    assert_snapshot!(add(&ann, "/projects/1", &bob, 40).await, @r#"
    201 Created
    {"name":"bob","username":"bob","id":2,"state":"active","avatar_url":"http://gable.test/-/identicon/1403c0c40f49b8e5.svg","web_url":"http://gable.test/bob","created_at":"2026-01-02T03:04:05.678Z","access_level":20,"expires_at":null}
    "#);
    for place in PLACES {
        assert_eq!(member(&ann, place, &bob).await.json()["access_level"], 20);
    }
}

/// Each condition of a wish to change a membership.
#[tokio::test]
async fn what_can_be_wrong_with_a_change() {
    for place in PLACES {
        let (forge, ann, bob) = start().await;
        let cid = forge.user("cid").await;
        let path = format!("{place}/members/{}", cid.id);
        let told = async |client: &Client, body: Value| client.put(&path, body).await.to_string();
        let kind = if place.starts_with("/groups") { "Group" } else { "Project" };
        let hidden = format!("404 Not Found\n{{\"message\":\"404 {kind} Not Found\"}}");
        let good = json!({ "access_level": 30 });
        assert_eq!(told(&bob, good.clone()).await, hidden);
        add(&ann, place, &bob, 30).await;
        assert_eq!(told(&bob, good.clone()).await, "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        assert_eq!(told(&ann, good.clone()).await, "404 Not Found\n{\"message\":\"404 Not found\"}");
        add(&ann, place, &cid, 20).await;
        assert_eq!(told(&ann, json!({})).await, "400 Bad Request\n{\"error\":\"access_level is missing\"}");
        let text = told(&ann, json!({ "access_level": "high", "expires_at": "soon" })).await;
        assert_eq!(text, "400 Bad Request\n{\"error\":\"access_level is invalid, expires_at is invalid\"}");
        let unknown = "422 Unprocessable Entity\n{\"message\":\"Access level is not known\"}";
        assert_eq!(told(&ann, json!({ "access_level": 35 })).await, unknown);
        let text = ann.put(&format!("{place}/members/cid"), good.clone()).await.to_string();
        assert_eq!(text, "400 Bad Request\n{\"error\":\"user_id is invalid\"}");
        assert_eq!(member(&ann, place, &cid).await.json()["access_level"], 20);
        assert_eq!(told(&ann, good).await.lines().next(), Some("200 OK"));
    }
}

#[tokio::test]
async fn a_master_raises_others_up_to_themselves() {
    let (forge, ann, bob) = start().await;
    let cid = forge.user("cid").await;
    add(&ann, "/projects/1", &bob, 40).await;
    assert_eq!(add(&bob, "/projects/1", &cid, 40).await.code(), 201);
    let path = format!("/projects/1/members/{}", bob.id);
    // Also down, and other masters.
    assert_eq!(cid.put(&path, json!({ "access_level": 10 })).await.code(), 200);
    assert_eq!(bob.put(&format!("/projects/1/members/{}", cid.id), json!({ "access_level": 10 })).await.code(), 403);
    // A master of a group steers none of its members.
    add(&ann, "/groups/acme", &bob, 40).await;
    assert_eq!(add(&bob, "/groups/acme", &cid, 10).await.code(), 403);
}

/// Each condition of a wish to remove somebody.
#[tokio::test]
async fn what_can_be_wrong_with_a_removal() {
    let (forge, ann, bob) = start().await;
    let (cid, dan) = (forge.user("cid").await, forge.user("dan").await);
    for place in PLACES {
        add(&ann, place, &bob, 30).await;
        add(&ann, place, &cid, 10).await;
        let path = format!("{place}/members/{}", cid.id);
        assert_eq!(forge.anonymous().delete(&path).await.code(), 401);
        assert_eq!(dan.delete(&path).await.code(), 404);
        assert_eq!(bob.delete(&path).await.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        let text = ann.delete(&format!("{place}/members/cid")).await.to_string();
        assert_eq!(text, "400 Bad Request\n{\"error\":\"user_id is invalid\"}");
        assert_eq!(ann.get(&format!("{place}/members")).await.header("x-total"), "3");
    }
    // Who is none.
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
    // The one to whom everything belongs.
    assert_snapshot!(ann.delete(&format!("/projects/1/members/{}", ann.id)).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    let root = forge.admin().await;
    assert_eq!(root.delete(&format!("/projects/1/members/{}", ann.id)).await.code(), 403);
    for place in PLACES {
        assert_eq!(ann.delete(&format!("{place}/members/{}", cid.id)).await.json()["username"], "cid");
        assert_eq!(ann.get(&format!("{place}/members")).await.each("username"), "bob ann");
    }
}

#[tokio::test]
async fn a_group_keeps_an_owner() {
    let (forge, ann, bob) = start().await;
    let root = forge.admin().await;
    let of = |user: &Client| format!("/groups/acme/members/{}", user.id);
    add(&ann, "/groups/acme", &bob, 40).await;
    for client in [&ann, &root] {
        let refused = client.delete(&of(&ann)).await.to_string();
        assert_eq!(refused, "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
        for change in [json!({ "access_level": 40 }), json!({ "access_level": 50, "expires_at": "2030-01-01" })] {
            assert_eq!(client.put(&of(&ann), change.clone()).await.code(), 403, "{change}");
        }
    }
    assert_eq!(ann.put(&of(&ann), json!({ "access_level": 50 })).await.code(), 200);
    // One who will go is none to rely on.
    ann.put(&of(&bob), json!({ "access_level": 50, "expires_at": "2030-01-01" })).await;
    assert_eq!(ann.delete(&of(&ann)).await.code(), 403);
    assert_eq!(ann.get("/groups/acme/members").await.each("access_level"), "50 50");
    // Of two, one may go, and then the other stays.
    ann.put(&of(&bob), json!({ "access_level": 50, "expires_at": "" })).await;
    assert_eq!(bob.put(&of(&ann), json!({ "access_level": 10 })).await.code(), 200);
    assert_eq!(bob.delete(&of(&bob)).await.code(), 403);
    assert_eq!(ann.put(&of(&bob), json!({ "access_level": 10 })).await.code(), 403);
    assert_eq!(ann.delete(&of(&ann)).await.code(), 200);
}

#[tokio::test]
async fn a_membership_ends_with_the_day_before_its_last() {
    for place in PLACES {
        let (forge, ann, bob) = start().await;
        let cid = forge.user("cid").await;
        let path = format!("{place}/members/{}", bob.id);
        let new = json!({ "user_id": bob.id, "access_level": 30, "expires_at": "2026-01-03" });
        assert_eq!(ann.post(&format!("{place}/members"), new).await.json()["expires_at"], "2026-01-03");
        add(&ann, place, &cid, 10).await;
        let members = format!("{place}/members");
        assert_eq!(shown(&ann.get(&members).await)[..2], ["cid 10 null", "bob 30 2026-01-03"]);
        // It is the 2nd, a quarter past three; the day before ends in 20:55:54.
        forge.clock.advance(SignedDuration::new(20 * 3600 + 55 * 60 + 54, 0));
        assert_eq!(bob.get(place).await.code(), 200);
        forge.clock.advance(SignedDuration::from_secs(1));
        assert_eq!(bob.get(place).await.code(), 404);
        assert_eq!(member(&ann, place, &bob).await.code(), 404);
        let list = ann.get(&members).await;
        assert_eq!((list.each("username").as_str(), list.header("x-total")), ("cid ann", "2"));
        assert_eq!(ann.get(&format!("{members}?query=bob")).await.text, "[]");
        assert_eq!(ann.put(&path, json!({ "access_level": 40, "expires_at": "" })).await.code(), 404);
        assert_eq!(ann.delete(&path).await.code(), if place.starts_with("/groups") { 404 } else { 200 });
        // It is as if it had never been.
        let again = ann.post(&members, json!({ "user_id": bob.id, "access_level": 20 })).await;
        assert_eq!((again.code(), &again.json()["expires_at"]), (201, &Value::Null), "{again}");
        assert!(shown(&ann.get(&members).await).contains(&"bob 20 null".to_owned()));
        assert_eq!(bob.get(place).await.code(), 200);
    }
}

#[tokio::test]
async fn who_joins_again_after_the_end_is_the_newest_member() {
    for place in PLACES {
        let (forge, ann, bob) = start().await;
        let cid = forge.user("cid").await;
        let members = format!("{place}/members");
        ann.post(&members, json!({ "user_id": bob.id, "access_level": 30, "expires_at": "2026-01-03" })).await;
        add(&ann, place, &cid, 10).await;
        forge.clock.advance(SignedDuration::from_hours(24));
        assert_eq!(add(&ann, place, &bob, 20).await.code(), 201);
        assert_eq!(ann.get(&members).await.each("username"), "bob cid ann", "{place}");
    }
}

#[tokio::test]
async fn an_end_may_lie_in_the_past_and_may_be_taken_back() {
    for place in PLACES {
        let (_forge, ann, bob) = start().await;
        let members = format!("{place}/members");
        let path = format!("{members}/{}", bob.id);
        let past = json!({ "user_id": bob.id, "access_level": 30, "expires_at": "2001-02-03" });
        let added = ann.post(&members, past.clone()).await;
        assert_eq!((added.code(), &added.json()["expires_at"]), (201, &json!("2001-02-03")), "{added}");
        assert_eq!((bob.get(place).await.code(), member(&ann, place, &bob).await.code()), (404, 404));
        assert_eq!(ann.post(&members, past).await.code(), 201, "nobody is there, so nobody is there twice");
        let future = json!({ "user_id": bob.id, "access_level": 30, "expires_at": "2026-02-03" });
        assert_eq!(ann.post(&members, future).await.code(), 201);
        // Said nothing, it stays; null and the empty text take it away.
        for (change, left) in [
            (json!({ "access_level": 20 }), json!("2026-02-03")),
            (json!({ "access_level": 20, "expires_at": null }), Value::Null),
            (json!({ "access_level": 20, "expires_at": "2026-03-04" }), json!("2026-03-04")),
            (json!({ "access_level": 20, "expires_at": "" }), Value::Null),
        ] {
            assert_eq!(ann.put(&path, change.clone()).await.json()["expires_at"], left, "{change}");
            assert_eq!(member(&ann, place, &bob).await.json()["expires_at"], left, "{change}");
        }
        let ended = ann.put(&path, json!({ "access_level": 20, "expires_at": "2026-01-02" })).await;
        assert_eq!((ended.code(), bob.get(place).await.code()), (200, 404), "{ended}");
    }
}

#[tokio::test]
async fn only_those_who_belong_directly_are_listed() {
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
    // Whoever stays away from the project still belongs to the group.
    assert_eq!(bob.delete(&format!("/projects/{inside}/members/{}", bob.id)).await.json()["message"], "Access revoked");
    assert_eq!(bob.get(&format!("/projects/{inside}")).await.code(), 200);
}

#[tokio::test]
async fn places_are_named_by_number_or_path() {
    let (_forge, ann, bob) = start().await;
    let group = ann.get("/groups/acme").await.json()["id"].clone();
    assert_eq!(add(&ann, "/projects/ANN%2fX", &bob, 10).await.code(), 201);
    assert_eq!(add(&ann, &format!("/groups/{group}"), &bob, 10).await.code(), 201);
    assert_eq!(ann.get("/projects/ann%2Fx/members").await.each("username"), "bob ann");
    assert_eq!(ann.get("/groups/ACME/members").await.each("username"), "bob ann");
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
async fn namespaces_are_those_of_oneself_and_of_ones_groups() {
    let (forge, ann, bob) = start().await;
    let root = forge.admin().await;
    add(&ann, "/groups/acme", &bob, 10).await;
    ann.post("/groups", json!({ "name": "Ünion 1", "path": "onion" })).await;
    assert_snapshot!(bob.get("/namespaces").await, @r#"
    200 OK
    [{"id":3,"name":"acme","path":"acme","kind":"group","full_path":"acme"},{"id":2,"name":"bob","path":"bob","kind":"user","full_path":"bob"}]
    "#);
    assert_eq!(ann.get("/namespaces").await.each("path"), "onion acme ann");
    assert_eq!(root.get("/namespaces").await.each("path"), "onion root acme bob ann");
    assert_eq!(root.get("/namespaces").await.each("kind"), "group user group user user");
    for (search, found) in
        [("ON", "onion"), ("%C3%BCn", "onion"), ("n%201", "onion"), ("%25", ""), ("_", ""), ("an", "ann"), ("bob", "")]
    {
        assert_eq!(ann.get(&format!("/namespaces?search={search}")).await.each("path"), found, "{search}");
    }
    let page = root.get("/namespaces?per_page=2&page=2").await;
    assert_eq!((page.each("path").as_str(), page.header("x-total")), ("acme bob", "5"));
    assert_eq!(forge.anonymous().get("/namespaces").await.code(), 401);
    // A group is there as long as the membership.
    let until = json!({ "access_level": 10, "expires_at": "2026-01-03" });
    assert_eq!(ann.put(&format!("/groups/acme/members/{}", bob.id), until).await.code(), 200);
    forge.clock.advance(SignedDuration::from_hours(24));
    assert_eq!(bob.get("/namespaces").await.each("path"), "bob");
}

/// Lesson 15: a number that belongs to another project or group is no number here, and nothing changes.
#[tokio::test]
async fn lesson_15_numbers_of_other_places_are_unknown() {
    let (forge, ann, bob) = start().await;
    let cid = forge.user("cid").await;
    // Ann's places have no members but her; bob's have cid, and bob's project is shared with a group.
    assert_eq!(bob.post("/projects", json!({ "name": "y" })).await.json()["id"], 2);
    bob.post("/groups", json!({ "name": "bobs", "path": "bobs", "visibility_level": 0 })).await;
    let crew = bob.post("/groups", json!({ "name": "crew", "path": "crew" })).await.json()["id"].clone();
    bob.post("/projects/2/share", json!({ "group_id": crew, "group_access": 20 })).await;
    for place in ["/projects/2", "/groups/bobs"] {
        assert_eq!(add(&bob, place, &cid, 20).await.code(), 201);
    }
    let before = forge.dump();
    for place in PLACES {
        let path = format!("{place}/members/{}", cid.id);
        assert_eq!(ann.get(&path).await.code(), 404);
        assert_eq!(ann.put(&path, json!({ "access_level": 40 })).await.code(), 404);
        // Of a project the original says so to everybody who is none.
        assert_eq!(ann.delete(&path).await.code(), if place == "/groups/acme" { 404 } else { 200 });
        // The number of a membership is none of a user: the rows of both places are numbered on.
        for number in [4, 5, 6, 7, 99] {
            assert_eq!(ann.get(&format!("{place}/members/{number}")).await.code(), 404);
        }
    }
    assert_snapshot!(ann.delete(&format!("/projects/1/share/{crew}")).await, @r#"
    404 Not Found
    {"message":"404 Group Link Not Found"}
    "#);
    // Places that are not hers, by whatever is hers.
    let private = bob.get("/groups/bobs").await.json()["id"].clone();
    for (method, path, body) in [
        ("POST", "/projects/2/members".to_owned(), json!({ "user_id": ann.id, "access_level": 40 })),
        ("PUT", format!("/projects/2/members/{}", cid.id), json!({ "access_level": 10 })),
        ("DELETE", format!("/projects/2/members/{}", cid.id), json!({})),
        ("DELETE", format!("/projects/2/share/{crew}"), json!({})),
        ("POST", "/projects/2/share".to_owned(), json!({ "group_id": crew, "group_access": 40 })),
        ("POST", format!("/groups/{private}/members"), json!({ "user_id": ann.id, "access_level": 50 })),
        ("PUT", format!("/groups/{private}/members/{}", cid.id), json!({ "access_level": 10 })),
        ("DELETE", format!("/groups/{private}/members/{}", cid.id), json!({})),
        // A group that she does not see cannot be told from one that is not there.
        ("POST", "/projects/1/share".to_owned(), json!({ "group_id": private, "group_access": 40 })),
    ] {
        let answer = ann.json(method.parse().expect("a method"), &path, body).await;
        assert_eq!(answer.code(), 404, "{method} {path}: {answer}");
    }
    // One that everybody sees stays what it is.
    assert_eq!(
        ann.post(&format!("/groups/{crew}/members"), json!({ "user_id": ann.id, "access_level": 50 })).await.code(),
        403
    );
    assert_eq!(ann.delete(&format!("/groups/{crew}/members/{}", bob.id)).await.code(), 403);
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn the_last_day_of_the_calendar_is_a_day() {
    let forge = TestForge::start().await;
    let (ann, ben) = (forge.user("ann").await, forge.user("ben").await);
    let project = ann.make("/projects", json!({ "name": "x" })).await;
    let until = json!({ "user_id": ben.id, "access_level": 30, "expires_at": "9999-12-31" });
    let path = format!("/projects/{project}/members");
    assert_eq!(ann.post(&path, until).await.json()["expires_at"], "9999-12-31");
    let member = format!("{path}/{}", ben.id);
    assert_eq!(ann.get(&member).await.json()["expires_at"], "9999-12-31");
    assert_eq!(ann.put(&member, json!({ "access_level": 20 })).await.json()["expires_at"], "9999-12-31");
    assert_eq!(ben.get(&format!("/projects/{project}")).await.code(), 200);
}
