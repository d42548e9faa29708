//! System hooks.

use std::sync::{Arc, Mutex};

use api::WebhookSender;
use insta::assert_snapshot;
use model::{
    DeliveryId, HookId, ProjectId,
    hooks::{AttemptOutcome, DeliveryAttempt},
};
use serde_json::json;
use testkit::{TestClient, TestForge, fixtures, repository::SMALL_REPOSITORY};

use crate::webhooks::hooks::{LOCAL_URLS, invalid_urls};

const URL: &str = "https://hooks.example.com/x";

async fn setup() -> (TestForge, TestClient) {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    (forge, root)
}

/// URL, token, whether local addresses are allowed, and body of each delivery.
type SentDeliveries = Arc<Mutex<Vec<(String, Option<String>, bool, String)>>>;

/// Returns a sender that records deliveries and always fails.
fn recording_sender() -> (WebhookSender, SentDeliveries) {
    let sent = SentDeliveries::default();
    let recorded = Arc::clone(&sent);
    let sender: WebhookSender = Arc::new(move |target, delivery| {
        let recorded = Arc::clone(&recorded);
        Box::pin(async move {
            assert_eq!((delivery.id, delivery.kind.header()), (DeliveryId::new(0), "System Hook"));
            assert!(target.verify_tls && delivery.uuid.len() == 36);
            let token = target.token.map(|token| token.reveal().to_owned());
            let url = target.url.reveal().to_owned();
            recorded.lock().expect("not poisoned").push((url, token, target.allow_local, delivery.body.to_string()));
            let outcome = AttemptOutcome::Unreachable("not sent".into());
            DeliveryAttempt {
                started_at: model::Time::UNIX_EPOCH,
                duration: 1,
                url: String::new(),
                signed: false,
                outcome,
            }
        })
    });
    (sender, sent)
}

#[tokio::test]
async fn a_system_hook_is_created_listed_and_deleted() {
    let (forge, root) = setup().await;
    let new = json!({ "url": format!(" {URL}?key=1"), "token": "s3cret", "tag_push_events": true });
    assert_snapshot!(root.post("/hooks", new).await, @r#"
    201 Created
    [{"id":1,"url":"https://hooks.example.com/x?key=1","created_at":"2026-01-02T03:04:05.678Z","push_events":true,"tag_push_events":true,"enable_ssl_verification":true}]
    "#);
    for _ in 0..30 {
        root.make("/hooks", json!({ "url": URL })).await;
    }
    let list = root.get("/hooks?per_page=2&page=9").await;
    assert_eq!((list.join_field("id"), list.header("x-total")), ("15 14".into(), "31"));
    assert!(!forge.dump().contains("s3cret"));
    assert_snapshot!(root.delete("/hooks/1").await, @r#"
    200 OK
    {"id":1,"url":"https://hooks.example.com/x?key=1","created_at":"2026-01-02T03:04:05.678Z","push_events":true,"tag_push_events":true,"enable_ssl_verification":true,"updated_at":"2026-01-02T03:04:05.678Z","project_id":null,"service_id":null,"note_events":false,"issues_events":false,"merge_requests_events":false}
    "#);
    assert_snapshot!(root.delete("/hooks/1").await, @r#"
    404 Not Found
    {"message":"404 System hook Not Found"}
    "#);
    assert_eq!(root.put("/hooks/2", json!({ "url": URL })).await.code(), 405);
}

#[tokio::test]
async fn system_hooks_accept_local_urls_but_no_invalid_ones() {
    let (forge, root) = setup().await;
    let before = forge.dump();
    for url in invalid_urls() {
        let refused = root.post("/hooks", json!({ "url": url })).await;
        let mut expected = vec!["must be a valid URL"];
        if url.trim().is_empty() {
            expected.insert(0, "can't be blank");
        }
        assert_eq!((refused.code(), refused.json()), (400, json!({ "message": { "url": expected } })), "{url:?}");
    }
    assert_eq!(forge.dump(), before);
    for url in LOCAL_URLS {
        let made = root.post("/hooks", json!({ "url": url })).await;
        let shown = url.replace("user:password@", "*****:*****@");
        assert_eq!((made.code(), &made.json()[0]["url"]), (201, &json!(shown)), "{url}");
    }
}

/// A `GET` with a side effect, as in GitLab 8.14.
#[tokio::test]
async fn getting_a_system_hook_sends_a_sample_at_once() {
    let (sender, sent) = recording_sender();
    let forge = TestForge::builder().webhook_sender(sender).start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    root.make("/hooks", json!({ "url": "http://user:hunter2@127.0.0.1:9/x?y=z", "token": "s3cret" })).await;
    root.make("/hooks", json!({ "url": URL })).await;
    let before = forge.dump();
    let shown = root.get("/hooks/1").await;
    assert_eq!(shown.code(), 200, "{shown}");
    let sample = json!({
        "event_name": "project_create", "name": "Ruby", "path": "ruby", "project_id": 1, "owner_name": "Someone",
        "owner_email": shown.json()["owner_email"],
    });
    assert_eq!(shown.json(), sample);
    assert!(shown.json()["owner_email"].as_str().is_some_and(|email| email.ends_with("@example.com")));
    root.get("/hooks/2").await;
    // These do not send anything.
    assert_eq!(root.head("/hooks/1").await.code(), 200);
    assert_eq!(ann.get("/hooks/1").await.code(), 403);
    assert_eq!(forge.anonymous().get("/hooks/1").await.code(), 401);
    assert_eq!(root.get("/hooks/3").await.code(), 404);
    let sent = sent.lock().expect("not poisoned").clone();
    let (urls, rest): (Vec<_>, Vec<_>) =
        sent.into_iter().map(|(url, token, local, body)| (url, (token, local, body))).unzip();
    assert_eq!(urls, ["http://user:hunter2@127.0.0.1:9/x?y=z", URL]);
    assert_eq!((rest[0].0.as_deref(), &rest[1].0), (Some("s3cret"), &None));
    for (_, allow_local, body) in rest {
        assert!(allow_local);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&body).expect("JSON"), sample);
    }
    assert_eq!(forge.dump(), before, "reading writes nothing");
}

#[tokio::test]
async fn the_sample_is_returned_without_a_sender() {
    let (_forge, root) = setup().await;
    root.make("/hooks", json!({ "url": URL })).await;
    let shown = root.get("/hooks/1").await;
    assert_eq!((shown.code(), &shown.json()["event_name"]), (200, &json!("project_create")));
}

#[tokio::test]
async fn testing_a_system_hook_enqueues_a_sample() {
    let (forge, root) = setup().await;
    root.make("/hooks", json!({ "url": URL })).await;
    let test = async |trigger: &str| root.post(&format!("/hooks/1/test/{trigger}"), json!({})).await;
    assert_eq!(test("project_create").await.text, r#"{"message":"201 Created"}"#);
    for trigger in ["push_events", "tag_push_events"] {
        let refused = test(trigger).await;
        let expected = json!({ "message": "The hook cannot be tested with this trigger: nothing was pushed yet" });
        assert_eq!((refused.code(), refused.json()), (422, expected), "{trigger}");
    }
    assert_snapshot!(test("issues_events").await, @r#"
    400 Bad Request
    {"error":"trigger does not have a valid value"}
    "#);
    root.make("/projects", json!({ "name": "x" })).await;
    forge.fast_import(&root, ProjectId::new(1), SMALL_REPOSITORY).await;
    for trigger in ["push_events", "tag_push_events"] {
        assert_eq!(test(trigger).await.text, r#"{"message":"201 Created"}"#);
    }
    let log = root.get("/hooks/1/deliveries").await;
    assert_eq!((log.join_field("event"), log.header("x-total")), ("System Hook System Hook System Hook".into(), "3"));
    let refs = [1, 2].map(|number| {
        let (root, id) = (root.clone(), log.json()[number - 1]["id"].clone());
        async move { root.get(&format!("/hooks/1/deliveries/{id}")).await.json()["request"]["body"]["ref"].clone() }
    });
    for (sent, expected) in refs.into_iter().zip(["refs/tags/v1.0", "refs/heads/master"]) {
        assert_eq!(sent.await, expected);
    }
    let first = root.get("/hooks/1/deliveries/1").await.json();
    let again = root.post("/hooks/1/deliveries/1/resend", json!({})).await;
    assert_eq!((again.code(), &again.json()["uuid"]), (201, &first["uuid"]));
    assert_eq!(root.get("/hooks/1/deliveries").await.header("x-total"), "4");
}

/// The routes of system hooks must not give access to hooks of projects.
#[tokio::test]
async fn hooks_of_projects_are_not_system_hooks() {
    let (forge, root) = setup().await;
    let project = root.make("/projects", json!({ "name": "x" })).await;
    let hook = HookId::new(root.make(&format!("/projects/{project}/hooks"), json!({ "url": URL })).await);
    let now = forge.forge.now();
    let delivery = forge.in_transaction(|db| fixtures::delivery(db, hook, "{}", now));
    let before = forge.dump();
    for path in ["", "/deliveries", &format!("/deliveries/{delivery}")] {
        let answer = root.get(&format!("/hooks/{hook}{path}")).await;
        assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    }
    for path in ["test/project_create".to_owned(), format!("deliveries/{delivery}/resend")] {
        let answer = root.post(&format!("/hooks/{hook}/{path}"), json!({})).await;
        assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    }
    assert_eq!(root.delete(&format!("/hooks/{hook}")).await.text, r#"{"message":"404 System hook Not Found"}"#);
    assert_eq!(root.get("/hooks").await.text, "[]");
    assert_eq!(forge.dump(), before);
}
