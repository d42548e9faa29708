//! Sign-in, sign-out and sessions.

use axum::http::Method;
use jiff::SignedDuration;
use serde_json::json;
use testkit::{PASSWORD, TestForge, browser::form_token};

const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");

#[tokio::test]
async fn a_user_signs_in_and_out() {
    let forge = TestForge::start().await;
    forge.user("ann").await;
    let browser = forge.browser();
    let form = browser.get("/users/sign_in").await;
    assert_eq!(form.code(), 200);
    assert!(
        form.text.contains("autocomplete=\"current-password\"") && form.text.contains("<h1>Sign in</h1>"),
        "{form}"
    );
    let signed_in = browser.sign_in("ann", PASSWORD).await;
    assert_eq!((signed_in.code(), signed_in.header("location")), (303, "/dashboard"));
    let cookie = signed_in.header("set-cookie").to_owned();
    for part in ["gable_session=", "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=7776000"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");
    let dashboard = browser.get("/dashboard").await;
    assert_eq!(dashboard.code(), 200);
    assert!(dashboard.text.contains("Your projects") && dashboard.text.contains(">ann</a>"), "{dashboard}");
    // The database has no secret of the session.
    let secret = browser.cookie("gable_session").expect("a cookie");
    assert_eq!(secret.len(), 43, "256 bits");
    assert!(!forge.dump().contains(&secret));

    let token = form_token(&dashboard.text);
    let signed_out = browser.post("/users/sign_out", &[SAME_ORIGIN], &[("form_token", &token)]).await;
    assert_eq!((signed_out.code(), signed_out.header("location")), (303, "/"));
    assert_eq!(browser.cookie("gable_session"), None);
    // The session has ended, not only the cookie.
    let stolen = forge.browser();
    let refused = stolen.get_with("/dashboard", &[("cookie", &format!("gable_session={secret}"))]).await;
    assert_eq!((refused.code(), refused.header("location")), (303, "/users/sign_in?return_to=/dashboard"));
}

#[tokio::test]
async fn a_wrong_password_keeps_the_username() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let root = forge.admin().await;
    let browser = forge.browser();
    let wrong = browser.sign_in("an<n", "wrong").await;
    assert_eq!(wrong.code(), 422);
    assert!(wrong.text.contains("The username or the password is wrong."), "{wrong}");
    assert!(wrong.text.contains("value=\"an&#60;n\""), "{wrong}");
    assert_eq!(browser.cookie("gable_session"), None);
    // A blocked user gets the same answer.
    root.put(&format!("/users/{}/block", ann.id), json!({})).await;
    let blocked = browser.sign_in("ann", PASSWORD).await;
    assert_eq!(blocked.code(), 422);
    assert!(blocked.text.contains("The username or the password is wrong."), "{blocked}");
}

#[tokio::test]
async fn sign_ins_are_limited_together_with_those_of_the_api() {
    let forge = TestForge::builder().sign_ins_per_minute(3).start().await;
    forge.user("ann").await;
    let browser = forge.browser();
    assert_eq!(browser.sign_in("ann", "wrong").await.code(), 422);
    assert_eq!(browser.sign_in("ann", "wrong").await.code(), 422);
    let session = json!({ "login": "ann", "password": "wrong" });
    assert_eq!(forge.anonymous().post("/session", session).await.code(), 401);
    let limited = browser.sign_in("ann", PASSWORD).await;
    assert_eq!(limited.code(), 429);
    assert!(limited.text.contains("Too many attempts to sign in"), "{limited}");
    assert!(limited.header("retry-after").parse::<u32>().is_ok_and(|wait| wait <= 21), "{:?}", limited.headers);
}

#[tokio::test]
async fn a_form_of_another_site_is_refused() {
    let forge = TestForge::start().await;
    forge.user("ann").await;
    let browser = forge.browser();
    let token = form_token(&browser.get("/users/sign_in").await.text);
    let fields = |token: &str| {
        [("form_token", token), ("login", "ann"), ("password", PASSWORD)].map(|(name, value)| (name, value.to_owned()))
    };
    let submit = async |headers: &[(&str, &str)], token: &str| {
        let fields = fields(token);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.post("/users/sign_in", headers, &fields).await
    };
    for (headers, token) in [
        (vec![("sec-fetch-site", "cross-site")], token.as_str()),
        (vec![("sec-fetch-site", "same-site")], token.as_str()),
        (vec![("origin", "https://evil.example")], token.as_str()),
        (vec![("origin", "null")], token.as_str()),
        (vec![SAME_ORIGIN], ""),
        (vec![SAME_ORIGIN], "AAAA"),
    ] {
        let refused = submit(&headers, token).await;
        assert_eq!(refused.code(), 403, "{headers:?} {token}");
        assert!(refused.text.contains("another site sent it"), "{refused}");
    }
    assert_eq!(browser.cookie("gable_session"), None);
    assert_eq!(submit(&[("origin", "http://gable.test")], &token).await.code(), 303);

    // The token of another session does not work either.
    let ann = forge.signed_in_browser("ann").await;
    let other = form_token(&browser.get("/dashboard").await.text);
    let refused = ann.post("/users/sign_out", &[SAME_ORIGIN], &[("form_token", &other)]).await;
    assert_eq!(refused.code(), 403);
    assert_eq!(ann.get("/dashboard").await.code(), 200);
    // Opening a page changes nothing.
    assert_eq!(ann.get("/users/sign_out").await.code(), 404);
    assert_eq!(ann.get("/dashboard").await.code(), 200);
}

#[tokio::test]
async fn the_sign_in_leads_back_to_a_page_of_this_server_only() {
    let forge = TestForge::start().await;
    forge.user("ann").await;
    for (return_to, expected) in [
        ("/ann?page=2", "/ann?page=2"),
        ("//evil.example", "/dashboard"),
        ("/\\evil.example", "/dashboard"),
        ("https://evil.example/", "/dashboard"),
        ("javascript:alert(1)", "/dashboard"),
        ("", "/dashboard"),
    ] {
        let browser = forge.browser();
        let token = form_token(&browser.get("/users/sign_in").await.text);
        let fields = [("form_token", &*token), ("login", "ann"), ("password", PASSWORD), ("return_to", return_to)];
        let signed_in = browser.post("/users/sign_in", &[SAME_ORIGIN], &fields).await;
        assert_eq!((signed_in.code(), signed_in.header("location")), (303, expected), "{return_to}");
    }
    let form = forge.browser().get("/users/sign_in?return_to=%2Fann%2Fx%22%3E").await;
    assert!(!form.text.contains("\">\""), "{form}");
}

#[tokio::test]
async fn sessions_end_with_the_password_the_account_and_after_a_while() {
    let forge = TestForge::start().await;
    let (ann, root) = (forge.user("ann").await, forge.admin().await);
    let is_signed_in = async |browser: &testkit::browser::Browser| browser.get("/dashboard").await.code() == 200;

    let browser = forge.signed_in_browser("ann").await;
    root.put(&format!("/users/{}", ann.id), json!({ "password": "another password" })).await;
    assert!(!is_signed_in(&browser).await);
    root.put(&format!("/users/{}", ann.id), json!({ "password": PASSWORD })).await;

    let browser = forge.signed_in_browser("ann").await;
    root.put(&format!("/users/{}/block", ann.id), json!({})).await;
    assert!(!is_signed_in(&browser).await);
    root.put(&format!("/users/{}/unblock", ann.id), json!({})).await;
    assert!(!is_signed_in(&browser).await, "a session does not come back");

    let browser = forge.signed_in_browser("ann").await;
    for _ in 0..6 {
        forge.clock.advance(SignedDuration::from_hours(13 * 24));
        assert!(is_signed_in(&browser).await, "it is in use");
        forge::web_sessions::flush_last_uses(&forge.forge).await.expect("stored");
    }
    forge.clock.advance(SignedDuration::from_hours(13 * 24));
    assert!(!is_signed_in(&browser).await, "it is older than 90 days");

    let browser = forge.signed_in_browser("ann").await;
    forge.clock.advance(SignedDuration::from_hours(14 * 24));
    assert!(!is_signed_in(&browser).await, "it was idle for 14 days");
    forge.clock.advance(SignedDuration::from_secs(1));
    forge::tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    forge.run_due_tasks().await;
    let end = jiff::Timestamp::MAX;
    let remaining = forge.with_connection(|db| store::web_sessions::delete_expired(db, end, end).expect("deleted"));
    assert_eq!(remaining, 0, "expired sessions are removed");
}

#[tokio::test]
async fn cookies_are_for_pages_and_tokens_for_the_api() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let browser = forge.signed_in_browser("ann").await;
    assert_eq!(browser.get("/api/v3/user").await.code(), 401);
    assert_eq!(ann.page("/dashboard").await.code(), 303);
    let secret = browser.cookie("gable_session").expect("a cookie");
    assert_eq!(forge.anonymous().with_token(&secret).get("/user").await.code(), 401);
    let token = ann.token.clone().expect("a token");
    let as_cookie = forge.browser().get_with("/dashboard", &[("cookie", &format!("gable_session={token}"))]).await;
    assert_eq!(as_cookie.code(), 303);
}

#[tokio::test]
async fn pages_allow_no_inline_scripts_and_no_frames() {
    let forge = TestForge::start().await;
    let page = forge.browser().get("/explore").await;
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("cache-control"), "private, no-cache");
    assert!(policy.contains("script-src 'self'") && policy.contains("connect-src 'self'"), "{policy}");
    assert_eq!(page.text.matches("<script").count(), page.text.matches("<script defer src=\"/assets/").count());
    assert!(!page.text.contains("style=\"") && !page.text.contains("<style"), "{page}");
    let head = forge.browser().send(Method::HEAD, "/explore", &[], "").await;
    assert_eq!(head.code(), 200);
}
