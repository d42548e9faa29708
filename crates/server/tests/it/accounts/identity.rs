//! Authentication: how tokens are sent, their scopes, and sudo.

use api::routes::RouteDoc;
use axum::{
    body::Body,
    http::{Method, header},
};
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{Scope, TokenId};
use serde_json::json;
use testkit::TestForge;

#[tokio::test]
async fn a_token_is_accepted_in_headers_and_parameters() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let token = ann.token.clone().expect("a token");
    let anonymous = forge.anonymous();
    for carrier in ["private_token", "access_token", "bearer_token"] {
        assert_eq!(anonymous.get(&format!("/user?{carrier}={token}")).await.code(), 200, "{carrier}");
        let body = json!({ carrier: token, "email": format!("{carrier}@example.org") });
        assert_eq!(anonymous.post("/user/emails", body).await.code(), 201, "{carrier}");
    }
    for scheme in ["Bearer", "bearer"] {
        let answer = anonymous.get_with("/user", &[("authorization", &format!("{scheme} {token}"))]).await;
        assert_eq!(answer.code(), 200);
    }
    assert_eq!(anonymous.get_with("/user", &[("private-token", &token)]).await.code(), 200);
    // HTTP Basic is for git, not for the API.
    assert_eq!(anonymous.get_with("/user", &[("authorization", "Basic YW5uOmFubg==")]).await.code(), 401);
}

#[tokio::test]
async fn the_parameter_takes_precedence_over_the_header_and_an_invalid_token_is_ignored() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_eq!(ann.get("/user?private_token=").await.code(), 401);
    assert_eq!(ann.get("/user?private_token=wrong").await.code(), 401);
    let token = ann.token.clone().expect("a token");
    // The next location is tried.
    let anonymous = forge.anonymous();
    assert_eq!(anonymous.get(&format!("/user?private_token=wrong&access_token={token}")).await.code(), 200);
    let both = anonymous.get_with(&format!("/user?access_token={token}"), &[("authorization", "Bearer x")]).await;
    assert_snapshot!(both, @r#"
    400 Bad Request
    {"error":"invalid_request","error_description":"Both Authorization header and payload includes access token."}
    "#);
}

#[tokio::test]
async fn expired_and_revoked_tokens_are_rejected() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let hour = SignedDuration::from_hours(1);
    let brief = forge.client_with_token(&ann, &[Scope::Api], Some(forge.forge.now() + hour)).await;
    assert_eq!(brief.get("/user").await.code(), 200);
    forge.clock.advance(hour);
    assert_snapshot!(brief.get("/user").await, @r#"
    401 Unauthorized
    {"message":"401 Unauthorized"}
    "#);
    assert_eq!(ann.get("/user").await.code(), 200);
    let first = TokenId::new(1);
    forge.forge.write(forge::Caller::system(), move |tx| forge::tokens::revoke(tx, first)).await.expect("revoked");
    assert_eq!(ann.get("/user").await.code(), 401);
}

/// The scope is checked in one place, for every route and however the token is sent.
#[tokio::test]
async fn a_read_user_token_grants_nothing_else() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let narrow = forge.client_with_token(&root, &[Scope::ReadUser], None).await;
    let bearer = forge.anonymous();
    let authorization = format!("Bearer {}", narrow.token.clone().expect("a token"));
    let mut opened = Vec::new();
    // A token may also revoke itself, which another test covers.
    let revokes_itself =
        |route: &RouteDoc| (&route.method, route.path) == (&Method::DELETE, "/personal_access_tokens/self");
    for route in api::routes::v3().into_iter().filter(|route| !revokes_itself(route)) {
        let path = route.path.replace("{id}", "1").replace("{uid}", "1");
        let answer = narrow.json(route.method.clone(), &path, json!({})).await;
        let request = bearer.request(route.method.clone(), &path).header(header::AUTHORIZATION, &authorization);
        let again = bearer.send(request, Body::empty()).await;
        assert_eq!(answer.code(), again.code(), "{} {}", route.method, route.path);
        // These routes need no authentication; triggers have their own token.
        let is_unauthenticated = ["/session", "/openapi.json", "/ci/lint", "/markdown"].contains(&route.path);
        if answer.code() != 401 && !is_unauthenticated && !route.path.ends_with("/trigger/builds") {
            assert_eq!(route.method, Method::GET, "{}", route.path);
            // Public routes treat a token without the right scope like an anonymous request.
            let anonymous = bearer.get(&path).await;
            if anonymous.code() == 401 {
                opened.push(route.path);
            } else {
                assert_eq!(answer.code(), anonymous.code(), "{}", route.path);
            }
        }
    }
    opened.sort_unstable();
    assert_eq!(
        opened,
        [
            "/personal_access_tokens/self",
            "/user",
            "/user/emails",
            "/user/emails/{id}",
            "/user/keys",
            "/user/keys/{id}",
            "/users",
            "/users/{id}",
            "/users/{id}/events"
        ]
    );
    assert_snapshot!(narrow.get("/user?sudo=1").await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - Must be admin to use sudo"}
    "#);
}

#[tokio::test]
async fn an_administrator_acts_as_another_user() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    assert_eq!(root.get("/user?sudo=ann").await.json(), ann.get("/user").await.json());
    assert_eq!(root.get(&format!("/user?sudo={}", ann.id)).await.json()["username"], "ann");
    assert_eq!(root.get_with("/user", &[("sudo", "ann")]).await.json()["username"], "ann");
    assert_eq!(root.get_with("/user?sudo=root", &[("sudo", "ann")]).await.json()["username"], "root");
    assert_eq!(root.post("/user/emails", json!({ "sudo": "ann", "email": "a@b" })).await.code(), 201);
    assert_eq!(ann.get("/user/emails").await.join_field("email"), "a@b");
    // The permissions are those of the other user.
    assert_snapshot!(root.delete(&format!("/users/{}?sudo=ann", ann.id)).await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
    assert_snapshot!(root.get("/user?sudo=nobody").await, @r#"
    404 Not Found
    {"message":"404 No user id or username for: nobody Not Found"}
    "#);
    assert_snapshot!(root.get("/user?sudo=999").await, @r#"
    404 Not Found
    {"message":"404 No user id or username for: 999 Not Found"}
    "#);
    assert_snapshot!(root.get("/user?sudo=99999999999999999999").await, @r#"
    404 Not Found
    {"message":"404 No user id or username for: 99999999999999999999 Not Found"}
    "#);
    assert_snapshot!(ann.get("/user?sudo=root").await, @r#"
    403 Forbidden
    {"message":"403 Forbidden  - Must be admin to use sudo"}
    "#);
    assert_snapshot!(forge.anonymous().get("/user?sudo=root").await, @r#"
    401 Unauthorized
    {"message":"401 Unauthorized"}
    "#);
    assert_eq!(root.get("/user?sudo=a%00b").await.code(), 404);
    // A malformed sudo never falls back to the permissions of the administrator.
    for query in ["sudo=ann&sudo=root", "sudo[]=ann", "sudo=%ff", "sudo="] {
        let refused = root.get(&format!("/user?{query}")).await;
        assert_eq!((refused.code(), refused.json()), (400, json!({ "error": "sudo is invalid" })), "{query}");
    }
    assert_eq!(root.json(Method::GET, "/user", json!({ "sudo": true })).await.code(), 400);
    assert_eq!(root.get_with("/user", &[("sudo", "ann"), ("sudo", "root")]).await.code(), 400);
    assert_eq!(root.get_with("/user", &[("sudo", "")]).await.code(), 400);
    root.put(&format!("/users/{}/block", ann.id), json!({})).await;
    assert_snapshot!(root.get("/user?sudo=ann").await, @r#"
    401 Unauthorized
    {"message":"401 Unauthorized"}
    "#);
}

#[tokio::test]
async fn the_last_use_of_a_token_is_flushed_later() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let last_use = async || {
        let tokens = forge.forge.read(forge::Caller::system(), |tx| forge::tokens::list(tx, "ann")).await;
        tokens.expect("tokens")[0].last_used_at
    };
    ann.get("/user").await;
    assert_eq!(last_use().await, None);
    forge::tokens::flush_last_uses(&forge.forge).await.expect("noted");
    assert_eq!(last_use().await, Some(forge.forge.now()));
}

/// A stolen database contains neither tokens nor passwords.
#[tokio::test]
async fn the_database_contains_no_plain_secret() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let session = forge.anonymous().post("/session", json!({ "login": "ann", "password": testkit::PASSWORD })).await;
    let created = session.json()["private_token"].as_str().expect("a token").to_owned();
    let everything = forge.dump();
    for secret in [ann.token.as_deref().expect("a token"), &created, testkit::PASSWORD] {
        assert!(!everything.contains(secret), "a secret is stored in clear");
    }
    assert!(everything.contains("$argon2id$"), "the dump contains the users");
    // The stored digest cannot be used as a token either.
    let (_, digest) = everything.split_once("digest=").expect("a digest");
    let digest: String = digest.chars().take_while(|c| c.is_ascii_hexdigit()).collect();
    assert_eq!(digest.len(), 64);
    assert_eq!(ann.with_token(&digest).get("/user").await.code(), 401);
}
