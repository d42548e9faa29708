//! The page with the CI settings of a project.

use model::ProjectId;
use serde_json::json;
use testkit::{TestForge, browser::Browser, fixtures};

use super::submit;

const SETTINGS: &str = "/ann/rocket/-/settings/ci_cd";

/// A forge with the project `ann/rocket`, of which `dan` is a developer.
async fn start() -> (TestForge, Browser, Browser) {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    ann.make("/projects", json!({ "name": "rocket" })).await;
    ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
    let (owner, developer) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("dan").await);
    (forge, owner, developer)
}

#[tokio::test]
async fn the_values_of_variables_are_shown_on_request_only() {
    let (_forge, owner, developer) = start().await;
    let variables = "/ann/rocket/-/variables";
    let added = submit(&owner, SETTINGS, variables, &[("key", "API_KEY"), ("value", " s3cret</textarea>\r\nx")]).await;
    assert_eq!((added.code(), added.header("location")), (303, SETTINGS), "{added}");
    let page = owner.get(SETTINGS).await;
    assert_eq!(page.header("cache-control"), "no-store");
    assert!(page.text.contains("API_KEY") && !page.text.contains("s3cret"), "{page}");
    let shown = submit(&owner, SETTINGS, SETTINGS, &[("reveal", "variables")]).await;
    assert_eq!((shown.code(), shown.header("cache-control")), (200, "no-store"));
    assert!(shown.text.contains(" s3cret&#60;/textarea&#62;\nx</textarea>"), "{shown}");
    for (key, message) in [("API_KEY", "Key has already been taken"), ("a-b", "Key can contain only"), ("", "Key can")]
    {
        let refused = submit(&owner, SETTINGS, variables, &[("key", key), ("value", "typed")]).await;
        assert_eq!(refused.code(), 422, "{key}");
        assert!(refused.text.contains(message) && refused.text.contains("typed</textarea>"), "{refused}");
    }
    let changed = submit(&owner, SETTINGS, &format!("{variables}/API_KEY"), &[("value", "other")]).await;
    assert_eq!(changed.code(), 303);
    assert!(submit(&owner, SETTINGS, SETTINGS, &[("reveal", "variables")]).await.text.contains("other</textarea>"));
    let long = "x".repeat(10_001);
    let refused = submit(&owner, SETTINGS, &format!("{variables}/API_KEY"), &[("value", &long)]).await;
    assert_eq!(refused.code(), 422);
    for (path, fields) in [(SETTINGS, [("reveal", "variables")]), (variables, [("key", "X")])] {
        assert_eq!(submit(&developer, "/ann/rocket", path, &fields).await.code(), 403, "{path}");
    }
    assert_eq!(developer.get(SETTINGS).await.code(), 403);
    assert_eq!(submit(&owner, SETTINGS, &format!("{variables}/NONE"), &[("value", "x")]).await.code(), 404);
    assert_eq!(submit(&owner, SETTINGS, &format!("{variables}/API_KEY/delete"), &[]).await.code(), 303);
    assert!(owner.get(SETTINGS).await.text.contains("There are no variables."));
}

#[tokio::test]
async fn runners_are_enabled_paused_and_removed() {
    let (forge, owner, developer) = start().await;
    submit(&owner, "/projects/new", "/projects/new", &[("namespace", "ann"), ("name", "second")]).await;
    let now = forge.forge.now();
    let runner = forge.in_transaction(|db| fixtures::runner(db, &[ProjectId::new(2)], now));
    let page = owner.get(SETTINGS).await;
    assert!(page.text.contains(&format!("aria-label=\"Enable {runner}\"")), "{page}");
    let at = |action: &str| format!("/ann/rocket/-/runners/{runner}/{action}");
    assert_eq!(submit(&owner, SETTINGS, &at("pause"), &[]).await.code(), 404, "it is not enabled for the project");
    assert_eq!(submit(&developer, "/ann/rocket", &at("enable"), &[]).await.code(), 403);
    assert_eq!(submit(&owner, SETTINGS, &at("enable"), &[]).await.code(), 303);
    let page = owner.get(SETTINGS).await;
    assert!(page.text.contains(&format!("aria-label=\"Disable {runner}\"")), "{page}");
    assert_eq!(submit(&owner, SETTINGS, &at("pause"), &[]).await.code(), 303);
    assert!(owner.get(SETTINGS).await.text.contains("paused"));
    assert_eq!(submit(&owner, SETTINGS, &at("resume"), &[]).await.code(), 303);
    let refused = submit(&owner, SETTINGS, &at("delete"), &[]).await;
    assert_eq!(refused.code(), 403);
    assert!(refused.text.contains("only an administrator can delete it"), "{refused}");
    assert_eq!(submit(&owner, SETTINGS, &at("disable"), &[]).await.code(), 303);
    let second = "/ann/second/-/settings/ci_cd";
    assert!(owner.get(second).await.text.contains(&format!("aria-label=\"Delete {runner}\"")));
    let delete = format!("/ann/second/-/runners/{runner}/delete");
    assert_eq!(submit(&owner, second, &delete, &[]).await.code(), 303);
    assert!(owner.get(second).await.text.contains("There are no runners"));
}

#[tokio::test]
async fn tokens_are_shown_on_request_only() {
    let (forge, owner, _) = start().await;
    let ann_token = {
        let shown = submit(&owner, SETTINGS, SETTINGS, &[("reveal", "registration_token")]).await;
        shown.text.split("class=\"secret\">").nth(1).and_then(|rest| rest.split('<').next()).map(ToOwned::to_owned)
    };
    let registration = ann_token.expect("a token");
    assert!(!owner.get(SETTINGS).await.text.contains(&registration));
    let created = submit(&owner, SETTINGS, "/ann/rocket/-/triggers", &[]).await;
    assert_eq!((created.code(), created.header("cache-control")), (200, "no-store"), "{created}");
    let token =
        created.text.split("class=\"secret\">").nth(1).and_then(|rest| rest.split('<').next()).expect("a token");
    assert!(!owner.get(SETTINGS).await.text.contains(token));
    assert!(submit(&owner, SETTINGS, SETTINGS, &[("reveal", "triggers")]).await.text.contains(token));
    forge.user("bob").await.make("/projects", json!({ "name": "other" })).await;
    let bob = forge.signed_in_browser("bob").await;
    assert_eq!(submit(&bob, "/bob/other", "/bob/other/-/triggers/1/delete", &[]).await.code(), 404);
    assert_eq!(submit(&owner, SETTINGS, "/ann/rocket/-/triggers/1/delete", &[]).await.code(), 303);
    assert!(!submit(&owner, SETTINGS, SETTINGS, &[("reveal", "triggers")]).await.text.contains(token));
}
