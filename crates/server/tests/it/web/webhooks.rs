//! The pages of webhooks and their deliveries.

use model::{HookId, hooks::DeliveryState};
use serde_json::json;
use store::deliveries::AttemptRecord;
use testkit::{TestForge, fixtures};

use super::submit;

const HOOKS: &str = "/ann/rocket/-/hooks";

/// A forge with the project `ann/rocket`, of which `dan` is a developer.
async fn start() -> TestForge {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    ann.make("/projects", json!({ "name": "rocket" })).await;
    ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
    forge
}

#[tokio::test]
async fn a_webhook_is_added_changed_and_deleted() {
    let forge = start().await;
    let owner = forge.signed_in_browser("ann").await;
    let fields = [
        ("url", "https://user:password@hooks.example.com/x?<b>"),
        ("token", "very-secret"),
        ("issues_events", "1"),
        ("enable_ssl_verification", "1"),
    ];
    let refused = submit(&owner, HOOKS, HOOKS, &[("url", "ftp://x"), ("token", "very-secret"), fields[2]]).await;
    assert_eq!(refused.code(), 422);
    for part in ["URL must be a valid URL", "value=\"ftp://x\"", "name=\"issues_events\" value=\"1\" checked"] {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    assert!(!refused.text.contains("very-secret"), "{refused}");
    let added = submit(&owner, HOOKS, HOOKS, &fields).await;
    assert_eq!((added.code(), added.header("location")), (303, HOOKS), "{added}");
    let list = owner.get(HOOKS).await;
    assert!(list.text.contains("https://*****:*****@hooks.example.com/x?&lt;b&gt;"), "{list}");
    let edit = format!("{HOOKS}/1/edit");
    let page = owner.get(&edit).await;
    assert!(page.text.contains("A token is set"), "{page}");
    for secret in ["very-secret", "password@"] {
        assert!(!list.text.contains(secret) && !page.text.contains(secret), "{secret}: {page}");
    }
    // The masked URL and an empty token keep the stored ones.
    let fields = [("url", "https://*****:*****@hooks.example.com/x?<b>"), ("token", ""), ("push_events", "1")];
    let saved = submit(&owner, &edit, &edit, &fields).await;
    assert_eq!((saved.code(), saved.header("location")), (303, edit.as_str()), "{saved}");
    let page = owner.get(&edit).await;
    assert!(page.text.contains("A token is set"), "{page}");
    assert!(page.text.contains("name=\"push_events\" value=\"1\" checked"), "{page}");
    assert!(!page.text.contains("name=\"issues_events\" value=\"1\" checked"), "{page}");
    submit(&owner, &edit, &edit, &[fields[0], ("remove_token", "1")]).await;
    assert!(!owner.get(&edit).await.text.contains("A token is set"));
    // A developer sees nothing of them.
    let developer = forge.signed_in_browser("dan").await;
    assert!(!developer.get("/ann/rocket").await.text.contains("Settings"));
    for path in [HOOKS, &edit] {
        assert_eq!(developer.get(path).await.code(), 403, "{path}");
    }
    let delete = format!("{HOOKS}/1/delete");
    assert_eq!(submit(&developer, "/ann/rocket", &delete, &[]).await.code(), 403);
    assert_eq!(submit(&owner, &edit, &delete, &[]).await.code(), 303);
    assert!(owner.get(HOOKS).await.text.contains("There are no webhooks."));
    assert_eq!(owner.get(&edit).await.code(), 404);
}

#[tokio::test]
async fn deliveries_are_shown_and_resent() {
    let forge = start().await;
    let owner = forge.signed_in_browser("ann").await;
    submit(&owner, HOOKS, HOOKS, &[("url", "https://hooks.example.com/x"), ("push_events", "1")]).await;
    let edit = format!("{HOOKS}/1/edit");
    assert!(owner.get(&edit).await.text.contains("Nothing was sent yet."));
    let now = forge.forge.now();
    let payload = "{\"text\":\"<script>alert(1)</script>\"}";
    let id = forge.in_transaction(|db| {
        let id = fixtures::delivery(db, HookId::new(1), payload, now);
        let attempt = AttemptRecord {
            delivery: id,
            state: DeliveryState::Failed,
            attempts: 1,
            due_at: now,
            first_tried_at: now,
            tried_at: now,
            duration: 12_345,
            status: Some(500),
            error: Some("the receiver <responded> with 500"),
            sent_to: None,
            signed: false,
            response_headers: Some("x-from: <b>nginx</b>"),
            response_body: Some("<h1>Oops\u{202e}</h1>"),
            now,
        };
        store::deliveries::record_attempt(db, &attempt).expect("recorded");
        id
    });
    let log = format!("{HOOKS}/1/hook_logs/{id}");
    let page = owner.get(&edit).await;
    for part in [&*format!("href=\"{log}\""), "500", "12 ms", "Push Hook"] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    let page = owner.get(&log).await;
    assert_eq!(page.header("cache-control"), "no-store");
    for part in [
        "Status 500",
        "the receiver &lt;responded&gt;",
        "x-from: &lt;b&gt;nginx",
        "&lt;h1&gt;Oops",
        "U+202E",
        "&lt;script&gt;alert(1)",
    ] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    assert!(!page.text.contains("<script>alert"), "{page}");
    let resent = submit(&owner, &log, &format!("{log}/retry"), &[]).await;
    assert_eq!(resent.code(), 303);
    let again = owner.get(resent.header("location")).await;
    assert_eq!(again.code(), 200);
    assert!(again.text.contains("waiting") && again.text.contains("There is no response."), "{again}");
    // There is nothing in the project that the sample of a push could be made of.
    let test = format!("{HOOKS}/1/test");
    let refused = submit(&owner, &edit, &test, &[("trigger", "push_events")]).await;
    assert_eq!(refused.code(), 422, "{refused}");
    assert_eq!(submit(&owner, &edit, &test, &[("trigger", "none")]).await.code(), 422);
    for path in ["1/hook_logs/99", "9/edit", "x/edit", "9/hook_logs/1"] {
        assert_eq!(owner.get(&format!("{HOOKS}/{path}")).await.code(), 404, "{path}");
    }
}
