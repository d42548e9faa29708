//! The pages on which users change their own account.

use serde_json::json;
use testkit::{
    PASSWORD, TestForge, TestResponse,
    browser::{Browser, form_token},
};

const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");
const SETTINGS: &str = "/-/user_settings";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti ann@<laptop>";

/// Opens a page and submits one of its forms.
pub(super) async fn submit(browser: &Browser, page: &str, to: &str, fields: &[(&str, &str)]) -> TestResponse {
    let token = form_token(&browser.get(page).await.text);
    let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("form_token", token.as_str())]).collect();
    browser.post(to, &[SAME_ORIGIN], &fields).await
}

/// Submits a form of the page of the settings with the same address.
async fn submit_settings(browser: &Browser, page: &str, action: &str, fields: &[(&str, &str)]) -> TestResponse {
    submit(browser, &format!("{SETTINGS}/{page}"), &format!("{SETTINGS}/{page}{action}"), fields).await
}

/// Asserts that a response leads to a page and returns that page.
async fn follow(browser: &Browser, response: TestResponse) -> TestResponse {
    assert_eq!(response.code(), 303, "{response}");
    let page = browser.get(response.header("location")).await;
    assert_eq!(page.code(), 200, "{page}");
    page
}

#[tokio::test]
async fn a_user_edits_the_profile_and_the_username() {
    let forge = TestForge::start().await;
    let client = forge.user("ann").await;
    forge.user("bob").await;
    let ann = forge.signed_in_browser("ann").await;
    let fields = [
        ("name", " Ann <Example> "),
        ("bio", "Builds \"rockets\"\0"),
        ("location", "Hamburg"),
        ("website_url", "javascript:alert(1)"),
        ("organization", ""),
    ];
    let saved = submit_settings(&ann, "profile", "", &fields).await;
    let page = follow(&ann, saved).await;
    assert!(page.text.contains("The profile was saved."), "{page}");
    let user = client.get("/user").await.json();
    assert_eq!(
        (&user["name"], &user["bio"], &user["location"], &user["organization"]),
        (&json!("Ann"), &json!("Builds \"rockets\""), &json!("Hamburg"), &json!(""))
    );
    let public = ann.get("/ann").await;
    assert!(public.text.contains("Builds &quot;rockets&quot;") && !public.text.contains("javascript:"), "{public}");
    assert!(public.text.contains("href=\"/-/user_settings/profile\""), "{public}");
    assert!(!ann.get("/bob").await.text.contains("/-/user_settings/"));

    let long = "x".repeat(256);
    let refused = submit_settings(&ann, "profile", "", &[("name", ""), ("bio", &long)]).await;
    assert_eq!(refused.code(), 422);
    for part in ["Name can&#39;t be blank", "About you is too long (maximum is 255 characters)", &long] {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    let refused = submit_settings(&ann, "profile", "/username", &[("username", "bob")]).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("Username has already been taken") && refused.text.contains("value=\"bob\""));
    let renamed = submit_settings(&ann, "profile", "/username", &[("username", "anna")]).await;
    assert!(follow(&ann, renamed).await.text.contains("The username was changed."));
    assert_eq!((ann.get("/anna").await.code(), ann.get("/ann").await.code()), (200, 404));
}

#[tokio::test]
async fn a_new_password_ends_all_other_sessions() {
    let forge = TestForge::start().await;
    let client = forge.user("ann").await;
    let (here, elsewhere) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("ann").await);
    let session = client.post("/session", json!({ "login": "ann", "password": PASSWORD })).await.json();
    let session = client.with_token(session["private_token"].as_str().expect("a token"));
    let change = async |current: &str, new: &str, again: &str| {
        let fields = [("current_password", current), ("password", new), ("password_confirmation", again)];
        submit_settings(&here, "password", "", &fields).await
    };
    for (current, new, again, message) in [
        ("wrong", "another password", "another password", "Current password is invalid"),
        ("", "another password", "another password", "Current password can&#39;t be blank"),
        (PASSWORD, "short", "short", "New password is too short (minimum is 8 characters)"),
        (PASSWORD, "another password", "different", "New password again does not match the new password"),
    ] {
        let refused = change(current, new, again).await;
        assert_eq!(refused.code(), 422);
        assert!(refused.text.contains(message), "{message}: {refused}");
        assert!(!refused.text.contains("another password"), "a password is not sent back: {refused}");
    }
    assert_eq!(elsewhere.get("/dashboard").await.code(), 200);
    let changed = change(PASSWORD, "another password", "another password").await;
    assert!(follow(&here, changed).await.text.contains("All other sessions have ended."));
    assert_eq!((here.get("/dashboard").await.code(), elsewhere.get("/dashboard").await.code()), (200, 303));
    assert_eq!((session.get("/user").await.code(), client.get("/user").await.code()), (401, 200));
    assert_eq!(forge.browser().sign_in("ann", PASSWORD).await.code(), 422);
    assert_eq!(forge.browser().sign_in("ann", "another password").await.code(), 303);
}

#[tokio::test]
async fn guesses_of_the_current_password_are_limited_like_sign_ins() {
    let forge = TestForge::builder().sign_ins_per_minute(4).start().await;
    forge.user("ann").await;
    let ann = forge.signed_in_browser("ann").await;
    let guess = [("current_password", "wrong"), ("password", "x"), ("password_confirmation", "x")];
    assert_eq!(submit_settings(&ann, "password", "", &guess).await.code(), 422);
    let token = [("name", "x"), ("scope_api", "1"), ("current_password", "wrong")];
    assert_eq!(submit_settings(&ann, "personal_access_tokens", "", &token).await.code(), 422);
    let primary = [("primary_email", "x@example.com"), ("current_password", "wrong")];
    assert_eq!(submit_settings(&ann, "emails", "/primary", &primary).await.code(), 422);
    for (page, action, fields) in [
        ("password", "", guess.as_slice()),
        ("personal_access_tokens", "", token.as_slice()),
        ("emails", "/primary", primary.as_slice()),
    ] {
        assert_eq!(submit_settings(&ann, page, action, fields).await.code(), 429, "{page}");
    }
    assert_eq!(forge.browser().sign_in("ann", PASSWORD).await.code(), 429);
}

#[tokio::test]
async fn a_user_manages_email_addresses() {
    let forge = TestForge::start().await;
    let client = forge.user("ann").await;
    forge.user("bob").await;
    let ann = forge.signed_in_browser("ann").await;
    let added = submit_settings(&ann, "emails", "", &[("email", "Second@Example.com")]).await;
    let page = follow(&ann, added).await;
    assert!(page.text.contains("second@example.com") && page.text.contains("The address was added."), "{page}");
    for (email, message) in
        [("no address", "New address is invalid"), ("second@example.com", "New address has already been taken")]
    {
        let refused = submit_settings(&ann, "emails", "", &[("email", email)]).await;
        assert_eq!(refused.code(), 422, "{email:?}");
        assert!(refused.text.contains(message), "{refused}");
    }
    let primary = [("primary_email", "second@example.com"), ("current_password", PASSWORD)];
    let changed = submit_settings(&ann, "emails", "/primary", &primary).await;
    assert!(follow(&ann, changed).await.text.contains("The primary address was changed."));
    assert_eq!(client.get("/user").await.json()["email"], "second@example.com");
    let others = client.get("/user/emails").await.json();
    assert_eq!(others.as_array().map(Vec::len), Some(1), "the old address is a secondary one now: {others}");
    let delete = format!("/{}/delete", others[0]["id"]);
    // The address of another user.
    let bob = forge.signed_in_browser("bob").await;
    assert_eq!(submit_settings(&bob, "emails", &delete, &[]).await.code(), 404);
    let removed = submit_settings(&ann, "emails", &delete, &[]).await;
    assert!(follow(&ann, removed).await.text.contains("The address was removed."));
    assert_eq!(client.get("/user/emails").await.json(), json!([]));
}

#[tokio::test]
async fn a_user_manages_ssh_keys() {
    let forge = TestForge::start().await;
    let client = forge.user("ann").await;
    forge.user("bob").await;
    let (ann, bob) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("bob").await);
    let page = ann.get(&format!("{SETTINGS}/ssh_keys")).await;
    assert!(page.text.contains("You have no SSH keys."), "{page}");
    let added = submit_settings(&ann, "ssh_keys", "", &[("key", &format!("{KEY}\r\n")), ("title", "")]).await;
    let page = follow(&ann, added).await;
    for part in ["ann@&lt;laptop&gt;", "ssh-ed25519", "SHA256:", "The key was added."] {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    let keys = client.get("/user/keys").await.json();
    assert_eq!(keys[0]["title"], "ann@<laptop>");
    for (key, message) in [
        (KEY, "Public key has already been taken"),
        ("", "Public key can&#39;t be blank"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "Public key is invalid"),
    ] {
        let refused = submit_settings(&bob, "ssh_keys", "", &[("key", key), ("title", "my <key>")]).await;
        assert_eq!(refused.code(), 422, "{key}");
        assert!(refused.text.contains(message) && refused.text.contains("my &#60;key&#62;"), "{message}: {refused}");
    }
    let delete = format!("/{}/delete", keys[0]["id"]);
    assert_eq!(submit_settings(&bob, "ssh_keys", &delete, &[]).await.code(), 404);
    let removed = submit_settings(&ann, "ssh_keys", &delete, &[]).await;
    assert!(follow(&ann, removed).await.text.contains("The key was removed."));
    assert_eq!(client.get("/user/keys").await.json(), json!([]));
}

#[tokio::test]
async fn a_token_is_shown_once_and_needs_the_password() {
    let forge = TestForge::start().await;
    forge.user("ann").await;
    forge.admin().await;
    let (ann, root) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("root").await);
    let path = format!("{SETTINGS}/personal_access_tokens");
    let create = async |fields: &[(&str, &str)]| submit(&ann, &path, &path, fields).await;
    let fields = [("name", "my <bot>"), ("scope_read_user", "1"), ("current_password", PASSWORD)];
    let created = create(&fields).await;
    assert_eq!((created.code(), created.header("cache-control")), (200, "no-store"));
    let secret = created.text.split("<code class=\"secret\">").nth(1).and_then(|rest| rest.split('<').next());
    let secret = secret.expect("the token").to_owned();
    assert!(created.text.contains("my &lt;bot&gt;"), "{created}");
    let bot = forge.anonymous().with_token(&secret);
    assert_eq!(bot.get("/user").await.json()["username"], "ann");
    assert_eq!(bot.post("/projects", json!({ "name": "x" })).await.code(), 401, "its scope is read_user");
    assert!(!forge.dump().contains(&secret));
    let page = ann.get(&path).await;
    assert!(page.text.contains("my &lt;bot&gt;") && !page.text.contains(&secret), "{page}");
    for (fields, message) in [
        (vec![("name", "x"), ("scope_api", "1")], "Current password can&#39;t be blank"),
        (vec![("name", "x"), ("scope_api", "1"), ("current_password", "wrong")], "Current password is invalid"),
        (vec![("name", "x"), ("current_password", PASSWORD)], "Scopes can&#39;t be blank"),
        (vec![("name", " "), ("scope_api", "1"), ("current_password", PASSWORD)], "Name can&#39;t be blank"),
        (vec![("name", "x"), ("expires_at", "soon")], "Expires on is not a date"),
        (
            vec![("name", "x"), ("scope_api", "1"), ("expires_at", "2020-01-01"), ("current_password", PASSWORD)],
            "Expires on must be in the future",
        ),
    ] {
        let refused = create(&fields).await;
        assert_eq!(refused.code(), 422, "{message}");
        assert!(refused.text.contains(message), "{message}: {refused}");
    }
    let id = forge.anonymous().with_token(&secret).get("/personal_access_tokens/self").await.json()["id"].clone();
    // Administrators revoke the tokens of others over the API, not on the page with their own.
    assert_eq!(submit(&root, &path, &format!("{path}/{id}/revoke"), &[]).await.code(), 404);
    assert_eq!(bot.get("/user").await.code(), 200);
    let revoked = submit(&ann, &path, &format!("{path}/{id}/revoke"), &[]).await;
    assert!(follow(&ann, revoked).await.text.contains("The token was revoked."));
    assert_eq!(bot.get("/user").await.code(), 401);
}

#[tokio::test]
async fn a_user_ends_sessions() {
    let forge = TestForge::start().await;
    forge.user("ann").await;
    forge.user("bob").await;
    let (ann, lost, bob) = (
        forge.signed_in_browser("ann").await,
        forge.signed_in_browser("ann").await,
        forge.signed_in_browser("bob").await,
    );
    let path = format!("{SETTINGS}/active_sessions");
    let page = ann.get(&path).await;
    assert_eq!(page.text.matches("End session").count(), 1, "{page}");
    let id =
        page.text.split("active_sessions/").find_map(|part| part.split_once("/end\"").map(|(id, _)| id.to_owned()));
    let end = format!("{path}/{}/end", id.expect("the other session"));
    assert_eq!(submit(&bob, &path, &end, &[]).await.code(), 404, "the session of another user");
    assert_eq!(lost.get("/dashboard").await.code(), 200);
    let ended = submit(&ann, &path, &end, &[]).await;
    assert!(follow(&ann, ended).await.text.contains("The session was ended."));
    assert_eq!((lost.get("/dashboard").await.code(), ann.get("/dashboard").await.code()), (303, 200));

    let others = [forge.signed_in_browser("ann").await, forge.signed_in_browser("ann").await];
    let ended = submit(&ann, &path, &format!("{path}/end_others"), &[]).await;
    assert!(follow(&ann, ended).await.text.contains("All other sessions were ended."));
    for other in &others {
        assert_eq!(other.get("/dashboard").await.code(), 303);
    }
    assert_eq!((ann.get("/dashboard").await.code(), bob.get("/dashboard").await.code()), (200, 200));
}

#[tokio::test]
async fn old_addresses_of_the_settings_lead_to_the_current_ones() {
    let forge = TestForge::start().await;
    for (old, new) in [
        ("/-/profile", "profile"),
        ("/profile", "profile"),
        ("/profile/keys", "ssh_keys"),
        ("/-/profile/emails", "emails"),
        ("/-/profile/password/edit", "password"),
        ("/-/profile/personal_access_tokens", "personal_access_tokens"),
        ("/-/profile/active_sessions", "active_sessions"),
    ] {
        let moved = forge.browser().get(old).await;
        assert_eq!((moved.code(), moved.header("location")), (301, &*format!("{SETTINGS}/{new}")), "{old}");
    }
    let anonymous = forge.browser().get(&format!("{SETTINGS}/ssh_keys")).await;
    assert_eq!(anonymous.header("location"), "/users/sign_in?return_to=/-/user_settings/ssh_keys");
}
