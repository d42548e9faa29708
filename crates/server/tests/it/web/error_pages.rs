//! Error pages.

use api::LimitOptions;
use axum::http::Method;
use serde_json::json;
use std::num::NonZeroU32;
use testkit::TestForge;

/// A hidden project must not be told apart from one that does not exist.
#[tokio::test]
async fn a_hidden_project_looks_like_a_missing_one() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    forge.user("bob").await;
    ann.make("/projects", json!({ "name": "hidden" })).await;
    ann.make("/groups", json!({ "name": "secret", "path": "secret", "visibility_level": 0 })).await;
    let visitors = [forge.browser(), forge.signed_in_browser("bob").await];
    for (number, browser) in visitors.iter().enumerate() {
        for page in [
            "",
            "/-/tree/main",
            "/-/blob/main/x",
            "/-/raw/main/x",
            "/-/commits",
            "/-/commits/main",
            "/-/commit/main",
            "/-/branches",
            "/-/tags",
            "/-/compare",
            "/-/compare/a...b",
            "/tree/main",
            "/unknown",
        ] {
            let hidden = browser.get(&format!("/ann/hidden{page}")).await;
            let missing = browser.get(&format!("/ann/absent{page}")).await;
            assert_eq!(hidden.status, missing.status, "{page}");
            let without_token =
                |html: &str| html.lines().filter(|line| !line.contains("form_token")).collect::<Vec<_>>().join("\n");
            assert_eq!(without_token(&hidden.text), without_token(&missing.text).replace("absent", "hidden"), "{page}");
            if page != "/tree/main" {
                assert_eq!(hidden.code(), 404, "{page}");
                assert_eq!(hidden.text.contains("If you have an account"), number == 0, "{hidden}");
            }
        }
        let (hidden, missing) = (browser.get("/secret").await, browser.get("/absent").await);
        assert_eq!((hidden.code(), missing.code()), (404, 404));
        assert_eq!(browser.get("/groups/secret").await.code(), 404);
    }
    // Visitors do not learn who has an account; users may know each other.
    assert_eq!(visitors[0].get("/ann").await.code(), 404);
    assert_eq!(visitors[1].get("/ann").await.code(), 200);
}

#[tokio::test]
async fn errors_are_pages() {
    let forge = TestForge::start().await;
    let browser = forge.browser();
    let missing = browser.get("/no/such/thing").await;
    assert_eq!((missing.code(), missing.header("content-type")), (404, "text/html; charset=utf-8"));
    assert!(missing.text.contains("<h1>Page not found</h1>"), "{missing}");
    assert!(missing.text.contains("/users/sign_in?return_to=/no/such/thing"), "{missing}");
    let method = browser.send(Method::DELETE, "/explore", &[], "").await;
    assert_eq!(method.code(), 405);
    let long = browser.get(&format!("/{}", "x".repeat(20_000))).await;
    assert_eq!((long.code(), long.header("content-type")), (414, "text/html; charset=utf-8"));
    for odd in ["/%00", "/a%00/b", "/%ff", "/a/b/-/tree/%00", "/a/b/-/", "/-", "//", "/../etc/passwd", "/a/../b"] {
        let page = browser.get(odd).await;
        assert!(page.code() < 500, "{odd}: {page}");
    }
    // The API still answers with JSON.
    for path in ["/api/v3/nothing", "/api/v9", "//api/v3/nothing", "/-/nothing", "/ci/api/v1/nothing"] {
        let api = browser.get(path).await;
        assert_eq!((api.code(), api.header("content-type")), (404, "application/json"), "{path}");
    }
}

#[tokio::test]
async fn a_role_that_does_not_include_the_code_gets_403() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    ann.make("/projects", json!({ "name": "x" })).await;
    ann.make("/projects/1/members", json!({ "user_id": bob.id.get(), "access_level": 10 })).await;
    let guest = forge.signed_in_browser("bob").await;
    let home = guest.get("/ann/x").await;
    assert_eq!(home.code(), 200);
    assert!(home.text.contains("does not include reading its code") && !home.text.contains("/-/branches"), "{home}");
    let forbidden = guest.get("/ann/x/-/branches").await;
    assert_eq!(forbidden.code(), 403);
    assert!(forbidden.text.contains("<h1>Not allowed</h1>"), "{forbidden}");
}

#[tokio::test]
async fn visitors_are_limited_by_network_and_users_by_session() {
    let limits = |count| NonZeroU32::new(count);
    let options = LimitOptions {
        requests_per_minute: limits(40),
        anonymous_requests_per_minute: limits(10),
        ..LimitOptions::default()
    };
    let forge = TestForge::builder().limit_options(options).start().await;
    forge.user("ann").await;
    let user = forge.signed_in_browser("ann").await;
    // The session proves valid with the first page, and then has its own limit.
    assert_eq!(user.get("/dashboard").await.code(), 200);
    let visitor = forge.browser();
    let mut last = visitor.get("/explore").await;
    for _ in 0..10 {
        last = visitor.get("/explore").await;
    }
    assert_eq!((last.code(), last.header("content-type")), (429, "text/html; charset=utf-8"));
    assert!(last.text.contains("<h1>Too many requests</h1>") && !last.header("retry-after").is_empty(), "{last}");
    assert_eq!(user.get("/dashboard").await.code(), 200);
    // Invented sessions do not bypass the limit.
    for number in 0..3 {
        let invented = visitor.get_with("/explore", &[("cookie", &format!("gable_session=invented{number}"))]).await;
        assert_eq!(invented.code(), 429);
    }
}
