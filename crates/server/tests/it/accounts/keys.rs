//! SSH keys of users.

use api::Dialect;
use insta::assert_snapshot;
use serde_json::json;
use testkit::TestForge;

pub(crate) const ED25519: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIChKaZMDpYbb0aBOEOlZV+rzevZ4MlMEW6+L/qvGtj7a ann@laptop";
pub(crate) const OTHER: &str = ECDSA_384;
const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDBMk33URQVl65yDvNLXoSqR3pxAD0VkwwiBEEY1C7E0T8p4ajGpcVnaF8coXtE\
    ZCpCCqtR8ABvaqIHwsAFwo4U3OW99oclYhj7QDy93BvQZtl8vZBqMcp9CCaQ4C+3Yibx2+pWdAxJi5W+TnoZdF4v2W85S0Kxguuf\
    CwGcpN1EyuUE+aJuz5Am+buMJmMfYNFuuPhTlXNDNyzQ4PTRxd2E0mPsVm11Fmw50o2idBoLKhRVB/2s4+16W0ULvjfODOdBc4mE\
    QLjW90UYhInEgEaDL+O3MRl31VbYwBSTK34EKjTyckgYAWJHfc/RFJ2aREJsOL0gmrk4H7isU1sCt1WL ann@laptop";
const ECDSA_256: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBB9NQg0hFVoDkUREimpMJOIcH55H\
    sK0TIuTc7/qjDGU6TxgVhqLKOnP5JKW646UbnJYdgkHQGlras/ENRdIhS/E= ann@laptop";
const ECDSA_384: &str = "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBCvRAln3oO43M0LyM/AJTaoDtNqA\
    lgt//LpIpVcQEwpJi6SmVI4clx/PPwRdo5gUjA5t/DB121qJzDUcaP+gewWqYs5okLVNgD7C2O+cNOFvygQMz7VspnHYpmC4Rles\
    cA== ann@laptop";
const ECDSA_521: &str = "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBABJEIApR6RApmRcbQaW2Hy/tT+V\
    WMS1X0HD8v0xBPLkQioaMVogXzbposT84U2x1gFWvbfZLO4wvHONBwgPivqdnwD73FJV4Do/OG3qH01VixCMG7dO6c5UrjfwPYMg\
    EAeO78oSmgr+96AGA6f2lLQxV7e+nLKaTrLS6XACEu6u0FWPfQ== ann@laptop";
const SK_ED25519: &str = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAABAgMEBQYHCAkKCwwNDg8QERITF\
    BUWFxgZGhscHR4fAAAABHNzaDo= token";
const SK_ECDSA: &str = "sk-ecdsa-sha2-nistp256@openssh.com AAAAInNrLWVjZHNhLXNoYTItbmlzdHAyNTZAb3BlbnNzaC5jb20AAAAIbmlzdHAyN\
    TYAAABBBB9NQg0hFVoDkUREimpMJOIcH55HsK0TIuTc7/qjDGU6TxgVhqLKOnP5JKW646UbnJYdgkHQGlras/ENRdIhS/EAAAAEc\
    3NoOg== token";
const TINY_RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQCAAAAA+4RqYr8uS4BCzOzJdP/qiJMpVDFrjWWakaURT8RuyzaEOMCV+wxt3oZX\
    IehfPRu4QOqNNudKpEg5hk6/ tiny";
const DSA: &str = "ssh-dss AAAAB3NzaC1kc3MAAACBALRf7wipjQI9iXeJOiWV2b1C+giFiGy8MRD8Hw0jCnMbjJltisSXWmgC5Lmcs+d6HB4Y6D6A\
    8/8c/9QZr/UfYRtGDZ+Tjz227fz9pSoAPflMwe3CCwygwPz6H/wuZMyZm3+p/lYw266/aiiUnx3jPwCtyp0SxeTQlt/jW6pYHb+9\
    AAAAFQDzRfbBaomTD7QsHbv6iW+WO40x1wAAAIAYT90uQSSHPSZ9iRzGvwUHU+N8MrEFHuWX25LicnovTQoC8ylbG4nRzVz/5J7n\
    YE7DW9LgsfQUeUSiu5C7RjMtMgjYFMj2/ZO+TmVYQbR/oR5l/COvIQGgRHIGgKQuni0KnybVmByChjadEpC39xWnyvV8VIH2ozGQ\
    Lx/o1BbuewAAAIADjP3Wj+KGAm7L34UTHgQwI1xb0yLYpbnQcYYxXSywbddMcMmhbyLQ9XstkRAvNHJvGBO8v6YLzU1qe699lUF2\
    DWLqnabIf/ARnccOhG4e5PafrOamIbszLsEIkTFIvP3weahNKn5cqAK/5Yc5ACYNAG/yMcbw9UlX9+hOxFexig== dsa";

#[tokio::test]
async fn a_user_manages_keys() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_snapshot!(ann.get("/user/keys").await, @"
    200 OK
    []
    ");
    assert_snapshot!(ann.post("/user/keys", json!({ "title": "laptop", "key": ED25519 })).await, @r#"
    201 Created
    {"id":1,"title":"laptop","key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIChKaZMDpYbb0aBOEOlZV+rzevZ4MlMEW6+L/qvGtj7a ann@laptop","created_at":"2026-01-02T03:04:05.678Z"}
    "#);
    assert_eq!(ann.post("/user/keys", json!({ "title": "desk", "key": ECDSA_256 })).await.code(), 201);
    assert_eq!(ann.get("/user/keys").await.join_field("title"), "desk laptop");
    assert_snapshot!(ann.get("/user/keys/1").await, @r#"
    200 OK
    {"id":1,"title":"laptop","key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIChKaZMDpYbb0aBOEOlZV+rzevZ4MlMEW6+L/qvGtj7a ann@laptop","created_at":"2026-01-02T03:04:05.678Z"}
    "#);
    assert_snapshot!(ann.delete("/user/keys/1").await, @r#"
    200 OK
    {"id":1,"title":"laptop","key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIChKaZMDpYbb0aBOEOlZV+rzevZ4MlMEW6+L/qvGtj7a ann@laptop","created_at":"2026-01-02T03:04:05.678Z"}
    "#);
    assert_snapshot!(ann.delete("/user/keys/1").await, @"
    200 OK
    null
    ");
    assert_snapshot!(ann.get("/user/keys/1").await, @r#"
    404 Not Found
    {"message":"404 Key Not Found"}
    "#);
    assert_eq!(ann.get("/user/keys").await.join_field("title"), "desk");
}

#[tokio::test]
async fn all_current_key_types_are_accepted_and_returned_unchanged() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    for key in [ED25519, RSA, ECDSA_256, ECDSA_384, ECDSA_521, SK_ED25519, SK_ECDSA] {
        // Spaces and tabs between the parts do not matter.
        let typed = format!("  {}\n", key.replacen(' ', " \t ", 1));
        let answer = ann.post("/user/keys", json!({ "title": "k", "key": typed })).await;
        assert_eq!((answer.code(), &answer.json()["key"]), (201, &json!(key)));
    }
}

#[tokio::test]
async fn an_invalid_or_weak_key_is_rejected() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let add = async |title: &str, key: &str| ann.post("/user/keys", json!({ "title": title, "key": key })).await;
    assert_snapshot!(ann.post("/user/keys", json!({})).await, @r#"
    400 Bad Request
    {"error":"title is missing, key is missing"}
    "#);
    assert_snapshot!(add("", "").await, @r#"
    400 Bad Request
    {"message":{"title":["can't be blank"],"key":["can't be blank"],"fingerprint":["cannot be generated"]}}
    "#);
    assert_snapshot!(add("k", "garbage").await, @r#"
    400 Bad Request
    {"message":{"key":["is invalid"],"fingerprint":["cannot be generated"]}}
    "#);
    assert_snapshot!(add("k", "ssh-rsa not-base64").await, @r#"
    400 Bad Request
    {"message":{"fingerprint":["cannot be generated"]}}
    "#);
    assert_snapshot!(add("k", DSA).await, @r#"
    400 Bad Request
    {"message":{"key":["of type ssh-dss is not accepted; use ed25519, ecdsa or rsa"],"fingerprint":["cannot be generated"]}}
    "#);
    assert_snapshot!(add("k", TINY_RSA).await, @r#"
    400 Bad Request
    {"message":{"fingerprint":["cannot be generated"]}}
    "#);
    // The declared type must match the key material.
    assert_snapshot!(add("k", &ED25519.replacen("ssh-ed25519", "ssh-rsa", 1)).await, @r#"
    400 Bad Request
    {"message":{"fingerprint":["cannot be generated"]}}
    "#);
    assert_snapshot!(add("k", &format!("command=\"rm\" {ED25519}")).await, @r#"
    400 Bad Request
    {"message":{"key":["is invalid"],"fingerprint":["cannot be generated"]}}
    "#);
    assert_snapshot!(add("k", "-----BEGIN OPENSSH PRIVATE KEY-----").await, @r#"
    400 Bad Request
    {"message":{"key":["is invalid"],"fingerprint":["cannot be generated"]}}
    "#);
    assert_snapshot!(add("k", &format!("{ED25519}\n{RSA}")).await, @r#"
    400 Bad Request
    {"message":{"key":["should be a single line"]}}
    "#);
    assert_snapshot!(add(&"t".repeat(256), &"ssh-".repeat(2000)).await, @r#"
    400 Bad Request
    {"message":{"title":["is too long (maximum is 255 characters)"],"key":["is too long (maximum is 5000 characters)"],"fingerprint":["cannot be generated"]}}
    "#);
    assert_eq!(ann.get("/user/keys").await.text, "[]");
}

#[tokio::test]
async fn a_key_belongs_to_one_user_whatever_its_comment() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    ann.post("/user/keys", json!({ "title": "k", "key": ED25519 })).await;
    let other_comment = ED25519.replace("ann@laptop", "bob@desk");
    assert_snapshot!(bob.post("/user/keys", json!({ "title": "k", "key": other_comment })).await, @r#"
    400 Bad Request
    {"message":{"fingerprint":["has already been taken"],"key":["has already been taken"]}}
    "#);
    ann.delete("/user/keys/1").await;
    assert_eq!(bob.post("/user/keys", json!({ "title": "k", "key": other_comment })).await.code(), 201);
}

#[tokio::test]
async fn an_administrator_manages_the_keys_of_others() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let path = format!("/users/{}/keys", ann.id);
    assert_snapshot!(root.post(&path, json!({ "title": "k", "key": ED25519 })).await, @r#"
    201 Created
    {"id":1,"title":"k","key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIChKaZMDpYbb0aBOEOlZV+rzevZ4MlMEW6+L/qvGtj7a ann@laptop","created_at":"2026-01-02T03:04:05.678Z"}
    "#);
    assert_eq!(root.get(&path).await.join_field("title"), "k");
    assert_snapshot!(root.post(&path, json!({ "title": "k" })).await, @r#"
    400 Bad Request
    {"error":"key is missing"}
    "#);
    assert_snapshot!(root.post(&path, json!({ "title": "k", "key": "garbage" })).await, @r#"
    404 Not Found
    {"message":{"key":["is invalid"],"fingerprint":["cannot be generated"]}}
    "#);
    assert_snapshot!(root.post(&path, json!({ "title": "k", "key": ED25519 })).await, @r#"
    404 Not Found
    {"message":{"fingerprint":["has already been taken"],"key":["has already been taken"]}}
    "#);
    assert_snapshot!(root.post("/users/99/keys", json!({})).await, @r#"
    400 Bad Request
    {"error":"title is missing, key is missing"}
    "#);
    assert_snapshot!(root.post("/users/99/keys", json!({ "title": "k", "key": RSA })).await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(root.get("/users/99/keys").await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(root.delete(&format!("{path}/99")).await, @r#"
    404 Not Found
    {"message":"404 Key Not Found"}
    "#);
    assert_snapshot!(root.delete("/users/99/keys/1").await, @r#"
    404 Not Found
    {"message":"404 User Not Found"}
    "#);
    assert_snapshot!(root.delete(&format!("{path}/1")).await, @r#"
    200 OK
    {"id":1,"title":"k","key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIChKaZMDpYbb0aBOEOlZV+rzevZ4MlMEW6+L/qvGtj7a ann@laptop","created_at":"2026-01-02T03:04:05.678Z"}
    "#);
    assert_eq!(ann.get("/user/keys").await.text, "[]");
}

#[tokio::test]
async fn a_key_that_cannot_be_added_to_another_user_is_a_400_in_the_dialect_gitlab() {
    let forge = TestForge::builder().dialect(Dialect::Gitlab).start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let path = format!("/users/{}/keys", ann.id);
    let refused = root.post(&path, json!({ "title": "k", "key": "garbage" })).await;
    assert_snapshot!(refused, @r#"
    400 Bad Request
    {"message":{"key":["is invalid"],"fingerprint":["cannot be generated"]}}
    "#);
}

#[tokio::test]
async fn an_administrator_finds_the_user_behind_a_key() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    ann.post("/user/keys", json!({ "title": "k", "key": ED25519 })).await;
    let found = root.get("/keys/1").await.json();
    assert_eq!((&found["title"], &found["user"]), (&json!("k"), &ann.get("/user").await.json()));
    assert_snapshot!(root.get("/keys/99").await, @r#"
    404 Not Found
    {"message":"404 Key Not Found"}
    "#);
    assert_snapshot!(ann.get("/keys/1").await, @r#"
    403 Forbidden
    {"message":"403 Forbidden"}
    "#);
}

#[tokio::test]
async fn keys_of_other_users_cannot_be_accessed() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let eve = forge.user("eve").await;
    let id = ann.post("/user/keys", json!({ "title": "k", "key": ED25519 })).await.json()["id"].clone();
    let of_ann = format!("/users/{}/keys", ann.id);
    assert_eq!(eve.get(&format!("/user/keys/{id}")).await.code(), 404);
    assert_eq!(root.get(&format!("/user/keys/{id}")).await.code(), 404);
    assert_eq!(eve.delete(&format!("/user/keys/{id}")).await.to_string(), "200 OK\nnull");
    assert_eq!(eve.get(&of_ann).await.code(), 403);
    assert_eq!(eve.post(&of_ann, json!({ "title": "evil", "key": RSA })).await.code(), 403);
    assert_eq!(eve.delete(&format!("{of_ann}/{id}")).await.code(), 403);
    assert_eq!(root.delete(&format!("/users/{}/keys/{id}", eve.id)).await.code(), 404);
    assert_eq!(ann.get("/user/keys").await.join_field("title"), "k");
}
