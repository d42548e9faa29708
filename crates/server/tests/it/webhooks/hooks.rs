//! Hooks of projects and their delivery logs.

use axum::{body::Body, http::Method};
use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{HookId, ProjectId};
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse, fixtures, repository::SMALL_REPOSITORY};

const PROJECT: ProjectId = ProjectId::new(1);
const URL: &str = "https://hooks.example.com/x";

/// URLs that are invalid for every hook.
pub(crate) fn invalid_urls() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "x",
        "example.com",
        "//example.com/x",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "gopher://example.com/x",
        "javascript:alert(1)",
        "data:text/plain,x",
        "ssh://git@example.com/x",
        "http://",
        "http:example.com/x",
        "http:/example.com/x",
        "https:///example.com/x",
        "http://?x",
        "http://:80/x",
        "http://user:password@/x",
        "http://a b/",
        "http://example.com/a b",
        "http://example.com/\nx",
        "http://example.com/\r\nX-Header: x",
        "http://example.com/\tx",
        "http://example.com/\u{7f}",
        "http://exa\u{1}mple.com/",
        "http:\\\\example.com\\x",
        "http://example.com:99999/",
        "http://[::1/",
        // Link-local addresses, including metadata services of clouds.
        "http://169.254.169.254/latest/meta-data",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fe80::1]/",
    ]
    .map(ToOwned::to_owned)
    .to_vec();
    texts.push(format!("https://example.com/{}", "x".repeat(2001 - "https://example.com/".len())));
    texts
}

/// Local addresses, in many spellings.
pub(crate) const LOCAL_URLS: [&str; 19] = [
    "http://127.0.0.1/x",
    "http://127.0.0.1:9999/x",
    "http://user:password@127.0.0.1/x",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://localhost/",
    "https://LOCALHOST.:8443/x",
    "http://a.localhost/",
    "http://10.0.0.1:8080/",
    "http://172.16.3.4/",
    "http://192.168.1.1/",
    "http://[fd00::1]/",
];

/// Starts a forge with a user who has two projects.
async fn setup() -> (TestForge, TestClient) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    for (id, name) in [(1, "x"), (2, "y")] {
        assert_eq!(ann.make("/projects", json!({ "name": name })).await, id);
    }
    (forge, ann)
}

#[tokio::test]
async fn a_hook_is_created_updated_and_deleted() {
    let (forge, ann) = setup().await;
    let new = json!({ "url": format!("  {URL}?key=1 "), "token": "s3cret", "note_events": true });
    assert_snapshot!(ann.post("/projects/1/hooks", new).await, @r#"
    201 Created
    {"id":1,"url":"https://hooks.example.com/x?key=1","created_at":"2026-01-02T03:04:05.678Z","push_events":true,"tag_push_events":false,"enable_ssl_verification":true,"project_id":1,"issues_events":false,"confidential_issues_events":false,"merge_requests_events":false,"note_events":true,"build_events":false,"pipeline_events":false,"wiki_page_events":false}
    "#);
    forge.clock.advance(SignedDuration::from_mins(1));
    let change =
        json!({ "url": "http://other.example.com:8080", "push_events": false, "confidential_issues_events": true });
    assert_snapshot!(ann.put("/projects/1/hooks/1", change).await, @r#"
    200 OK
    {"id":1,"url":"http://other.example.com:8080","created_at":"2026-01-02T03:04:05.678Z","push_events":false,"tag_push_events":false,"enable_ssl_verification":true,"project_id":1,"issues_events":false,"confidential_issues_events":true,"merge_requests_events":false,"note_events":true,"build_events":false,"pipeline_events":false,"wiki_page_events":false}
    "#);
    let changed = ann.get("/projects/1/hooks/1").await;
    assert_eq!(ann.get("/projects/ann%2Fx/hooks").await.json(), json!([changed.json()]));
    assert!(forge.dump().contains("receiver=other.example.com:8080"));
    assert_eq!(ann.delete("/projects/1/hooks/1").await.json(), changed.json());
    assert_eq!(ann.get("/projects/1/hooks").await.text, "[]");
}

#[tokio::test]
async fn invalid_urls_are_refused_at_creation_and_update() {
    let (forge, ann) = setup().await;
    ann.make("/projects/1/hooks", json!({ "url": URL })).await;
    let before = forge.dump();
    let refused = |answer: TestResponse, url: &str| {
        assert_eq!((answer.code(), answer.text.as_str()), (422, r#"{"error":"Invalid url given"}"#), "{url:?}");
    };
    for url in invalid_urls().iter().map(String::as_str).chain(LOCAL_URLS) {
        refused(ann.post("/projects/1/hooks", json!({ "url": url })).await, url);
        refused(ann.put("/projects/1/hooks/1", json!({ "url": url, "push_events": false })).await, url);
    }
    assert_eq!(forge.dump(), before);
    let nul = ann.post("/projects/1/hooks", json!({ "url": "http://example.com/\0" })).await;
    assert_eq!((nul.code(), nul.text.as_str()), (400, r#"{"error":"url is invalid"}"#));
    // The maximum length, in characters.
    let longest = format!("https://example.com/{}", "x".repeat(2000 - "https://example.com/".len()));
    assert_eq!(ann.post("/projects/1/hooks", json!({ "url": longest })).await.json()["url"], longest);
}

#[tokio::test]
async fn local_urls_are_accepted_if_the_operator_allows_them() {
    let forge = TestForge::builder().allow_local_network().start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "x" })).await;
    for url in LOCAL_URLS {
        assert_eq!(ann.post("/projects/1/hooks", json!({ "url": url })).await.code(), 201, "{url}");
    }
    for url in invalid_urls() {
        assert_eq!(ann.post("/projects/1/hooks", json!({ "url": url })).await.code(), 422, "{url}");
    }
}

#[tokio::test]
async fn a_token_that_does_not_fit_into_a_header_is_refused() {
    let (forge, ann) = setup().await;
    ann.make("/projects/1/hooks", json!({ "url": URL, "token": "good" })).await;
    let before = forge.dump();
    for (token, error) in [
        ("a\r\nX-Injected: b".to_owned(), "must not contain control characters"),
        ("x".repeat(2001), "is too long (maximum is 2000 characters)"),
    ] {
        let expected = json!({ "message": { "token": [error] } });
        let hook = json!({ "url": URL, "token": token });
        for answer in [ann.post("/projects/1/hooks", hook.clone()).await, ann.put("/projects/1/hooks/1", hook).await] {
            assert_eq!((answer.code(), answer.json()), (400, expected.clone()));
        }
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn a_token_is_kept_until_an_empty_one_is_set() {
    let (forge, ann) = setup().await;
    let has_token = || !forge.dump().lines().any(|line| line.starts_with("hooks:") && line.contains(" token= "));
    ann.make("/projects/1/hooks", json!({ "url": URL, "token": "s3cret" })).await;
    assert!(has_token());
    for (token, stays) in [(json!({}), true), (json!({ "token": null }), true), (json!({ "token": "" }), false)] {
        let mut change = json!({ "url": URL });
        change.as_object_mut().expect("an object").extend(token.as_object().expect("an object").clone());
        assert_eq!(ann.put("/projects/1/hooks/1", change.clone()).await.code(), 200, "{change}");
        assert_eq!(has_token(), stays, "{change}");
    }
    ann.put("/projects/1/hooks/1", json!({ "url": URL, "token": "again" })).await;
    assert!(has_token());
    ann.put("/projects/1/hooks/1", json!({ "url": URL, "token": " " })).await;
    assert!(!has_token());
}

#[tokio::test]
async fn a_token_for_one_receiver_is_not_sent_to_another() {
    let (forge, ann) = setup().await;
    let has_token = || !forge.dump().lines().any(|line| line.starts_with("hooks:") && line.contains(" token= "));
    ann.make("/projects/1/hooks", json!({ "url": URL, "token": "s3cret" })).await;
    ann.put("/projects/1/hooks/1", json!({ "url": "https://hooks.example.com/y?z" })).await;
    assert!(has_token());
    ann.put("/projects/1/hooks/1", json!({ "url": "https://evil.example.com/x" })).await;
    assert!(!has_token());
    ann.put("/projects/1/hooks/1", json!({ "url": URL, "token": "another" })).await;
    assert!(has_token());
}

#[tokio::test]
async fn a_hook_encrypted_with_another_key_can_be_listed_and_repaired() {
    let (forge, ann) = setup().await;
    insert_undecryptable_hook(&forge);
    let shown = ann.get("/projects/1/hooks").await.json();
    assert_eq!((&shown[0]["id"], &shown[0]["url"]), (&json!(1), &json!("*****:*****")));
    let repaired = ann.put("/projects/1/hooks/1", json!({ "url": URL })).await;
    assert_eq!((repaired.code(), &repaired.json()["url"]), (200, &json!(URL)));
    insert_undecryptable_hook(&forge);
    assert_eq!(ann.delete("/projects/1/hooks/2").await.code(), 200);
    assert_eq!(ann.get("/projects/1/hooks").await.join_field("id"), "1");
}

#[tokio::test]
async fn the_number_of_hooks_per_project_is_limited() {
    let (forge, ann) = setup().await;
    forge.in_transaction(|db| {
        (0..1000).for_each(|_| fixtures::hook(db, Some(PROJECT), model::hooks::SubscribedEvents::default()));
    });
    assert_snapshot!(ann.post("/projects/1/hooks", json!({ "url": URL })).await, @r#"
    400 Bad Request
    {"message":{"base":["Maximum number of hooks (1000) reached"]}}
    "#);
}

#[tokio::test]
async fn webhook_recursion_is_limited() {
    let (forge, ann) = setup().await;
    ann.make("/projects/1/hooks", json!({ "url": URL, "issues_events": true })).await;
    let write = |depth: &'static str| {
        let request = ann.request(Method::POST, "/projects/1/issues").header("content-type", "application/json");
        ann.send(request.header("x-gable-hook-depth", depth), Body::from(r#"{"title":"again"}"#))
    };
    assert_eq!(write("3").await.code(), 201);
    assert!(forge.dump().lines().any(|line| line.starts_with("hook_events:") && line.contains("depth=3")));
    let refused = write("4").await;
    assert_eq!(refused.code(), 400);
    assert!(refused.text.contains("a webhook must not trigger itself"), "{refused}");
    assert_eq!(ann.get_with("/projects/1/issues", &[("x-gable-hook-depth", "9")]).await.json()[0]["iid"], 1);
}

/// Inserts a hook that cannot be decrypted.
fn insert_undecryptable_hook(forge: &TestForge) {
    forge.in_transaction(|db| fixtures::hook(db, Some(PROJECT), model::hooks::SubscribedEvents::default()));
}

/// The API must not return secrets, and the database must not contain them in plain text.
#[tokio::test]
async fn secrets_of_a_hook_are_masked_and_stored_encrypted() {
    let (forge, ann) = setup().await;
    let hook = json!({ "url": "https://us%40er:hunter2@hooks.example.com/x?key=moonshot", "token": "s3cret-token" });
    let shown = "https://*****:*****@hooks.example.com/x?key=moonshot";
    let mut respond_with = vec![ann.post("/projects/1/hooks", hook.clone()).await];
    assert_eq!(respond_with[0].json()["url"], shown);
    // Sending the masked URL back keeps the credentials; another masked URL is refused.
    respond_with.push(ann.put("/projects/1/hooks/1", json!({ "url": shown, "note_events": true })).await);
    assert_eq!((respond_with[1].code(), &respond_with[1].json()["url"]), (200, &json!(shown)));
    let other = shown.replace("hooks.", "evil.");
    let refused = ann.put("/projects/1/hooks/1", json!({ "url": other })).await;
    assert_eq!((refused.code(), refused.text.as_str()), (422, r#"{"error":"Invalid url given"}"#));
    respond_with.push(ann.get("/projects/1/hooks").await);
    assert_eq!(respond_with[2].json()[0]["url"], shown);
    let now = forge.forge.now();
    forge.in_transaction(|db| fixtures::delivery(db, HookId::new(1), "{}", now));
    respond_with.push(ann.get("/projects/1/hooks/1/deliveries").await);
    respond_with.push(ann.get("/projects/1/hooks/1/deliveries/1").await);
    assert_eq!(respond_with[4].json()["request"]["url"], shown);
    assert_eq!(respond_with[4].json()["request"]["headers"]["X-Gitlab-Token"], "*****");
    let dump = forge.dump();
    respond_with.push(ann.delete("/projects/1/hooks/1").await);
    for secret in ["hunter2", "us@er", "us%40er", "s3cret-token"] {
        for answer in &respond_with {
            assert!(!answer.text.contains(secret), "{secret}: {answer}");
        }
    }
    for secret in ["hunter2", "us@er", "us%40er", "s3cret-token", "moonshot", "hooks.example.com/x"] {
        let hex = secret.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        assert!(!dump.contains(secret) && !dump.contains(&hex), "{secret} is in the database");
    }
}

/// Hooks of other projects must be neither readable nor changeable through a project.
#[tokio::test]
async fn hooks_and_deliveries_of_another_project_are_not_found() {
    let (forge, ann) = setup().await;
    let root = forge.admin().await;
    let foreign = ann.make("/projects/2/hooks", json!({ "url": URL })).await;
    let of_instance = root.make("/hooks", json!({ "url": URL })).await;
    let own = ann.make("/projects/1/hooks", json!({ "url": URL })).await;
    let now = forge.forge.now();
    let deliveries = forge
        .in_transaction(|db| [foreign, of_instance].map(|hook| fixtures::delivery(db, HookId::new(hook), "{}", now)));
    let before = forge.dump();
    let not_found = |answer: TestResponse| {
        assert_eq!((answer.code(), answer.text.as_str()), (404, r#"{"message":"404 Not found"}"#));
    };
    for (hook, delivery) in [foreign, of_instance].into_iter().zip(deliveries) {
        let path = format!("/projects/1/hooks/{hook}");
        for who in [&ann, &root] {
            not_found(who.get(&path).await);
            not_found(who.put(&path, json!({ "url": "https://evil.example.com" })).await);
            not_found(who.post(&format!("{path}/test/push_events"), json!({})).await);
            not_found(who.get(&format!("{path}/deliveries")).await);
            not_found(who.get(&format!("{path}/deliveries/{delivery}")).await);
            not_found(who.post(&format!("{path}/deliveries/{delivery}/resend"), json!({})).await);
            // The same response as for a hook that does not exist.
            assert_eq!(who.delete(&path).await.text, "null");
        }
        let own = format!("/projects/1/hooks/{own}/deliveries/{delivery}");
        not_found(ann.get(&own).await);
        not_found(ann.post(&format!("{own}/resend"), json!({})).await);
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn a_paused_hook_is_shown_as_such_until_it_is_updated() {
    let (forge, ann) = setup().await;
    ann.make("/projects/1/hooks", json!({ "url": URL })).await;
    let plain = ann.get("/projects/1/hooks/1").await.json();
    let now = forge.forge.now();
    forge.in_transaction(|db| fixtures::delivery(db, HookId::new(1), "{}", now));
    let later = (now + SignedDuration::from_hours(1)).as_microsecond();
    forge.execute_sql(&format!(
        "UPDATE hooks SET failures = 10, due_at = {later}, paused_at = {}, pause_reason = 'It answered 502'",
        now.as_microsecond()
    ));
    forge.execute_sql(&format!("UPDATE hook_deliveries SET due_at = {later} - 7, attempts = 3"));
    let paused = ann.get("/projects/1/hooks/1").await.json();
    let keys = json!({
        "paused_at": "2026-01-02T03:04:05.678Z",
        "paused_reason": "It answered 502",
        "next_attempt_at": "2026-01-02T04:04:05.678Z",
    });
    let mut expected = plain.clone();
    expected.as_object_mut().expect("an object").extend(keys.as_object().expect("an object").clone());
    assert_eq!(paused, expected);
    assert_eq!(ann.get("/projects/1/hooks").await.json(), json!([expected]));
    let waiting = ann.get("/projects/1/hooks/1/deliveries/1").await.json();
    assert_eq!((&waiting["next_attempt_at"], &waiting["attempt"]), (&keys["next_attempt_at"], &json!(3)));
    assert_eq!(ann.put("/projects/1/hooks/1", json!({ "url": URL })).await.json(), plain);
    let waiting = ann.get("/projects/1/hooks/1/deliveries/1").await.json();
    assert_eq!(waiting["next_attempt_at"], keys["paused_at"]);
    let due = format!(" due_at={} ", now.as_microsecond());
    let dump = forge.dump();
    let line = dump.lines().find(|line| line.starts_with("hooks:")).expect("a hook");
    assert!(line.contains(&due) && line.contains(" failures=1 "), "{line}");
    // An empty queue is not due.
    forge.execute_sql("DELETE FROM hook_deliveries");
    assert_eq!(ann.put("/projects/1/hooks/1", json!({ "url": URL })).await.json(), plain);
    assert!(forge.dump().lines().any(|line| line.starts_with("hooks:") && line.contains(" due_at= ")));
}

#[tokio::test]
async fn a_hook_is_tested_with_existing_data() {
    let (forge, ann) = setup().await;
    for project in [1, 2] {
        ann.make(&format!("/projects/{project}/hooks"), json!({ "url": URL })).await;
    }
    let test = async |project: ProjectId, trigger: &str| {
        ann.post(&format!("/projects/{project}/hooks/{project}/test/{trigger}"), json!({})).await
    };
    let all = "push_events tag_push_events issues_events confidential_issues_events note_events merge_requests_events \
               build_events pipeline_events wiki_page_events wiki_events";
    for trigger in all.split_whitespace() {
        let refused = test(ProjectId::new(2), trigger).await;
        assert_eq!(refused.code(), 422, "{trigger}: {refused}");
        let error = refused.json()["message"].as_str().expect("a text").to_owned();
        assert!(error.starts_with("The hook cannot be tested with this trigger: there "), "{error}");
    }
    for trigger in ["x", "push", "project_create", "%20"] {
        let refused = test(PROJECT, trigger).await;
        assert_eq!(
            (refused.code(), refused.text.as_str()),
            (400, r#"{"error":"trigger does not have a valid value"}"#)
        );
    }
    assert_eq!(ann.get("/projects/2/hooks/2/deliveries").await.text, "[]");
    forge.fast_import(&ann, PROJECT, SMALL_REPOSITORY).await;
    let issue = ann.make("/projects/1/issues", json!({ "title": "It leaks" })).await;
    ann.make(&format!("/projects/1/issues/{issue}/notes"), json!({ "body": "It does" })).await;
    ann.make("/projects/1/issues", json!({ "title": "Hush", "confidential": true })).await;
    for trigger in all.split_whitespace().take(5) {
        let sent = test(PROJECT, trigger).await;
        assert_eq!((sent.code(), sent.text.as_str()), (201, r#"{"message":"201 Created"}"#), "{trigger}");
    }
    let log = ann.get("/projects/1/hooks/1/deliveries").await;
    let events = "Note Hook Confidential Issue Hook Issue Hook Tag Push Hook Push Hook";
    assert_eq!((log.join_field("event"), log.header("x-total")), (events.into(), "5"));
    assert_eq!(log.join_field("state"), "waiting waiting waiting waiting waiting");
    let sent = async |at: usize| {
        let id = log.json()[at]["id"].clone();
        ann.get(&format!("/projects/1/hooks/1/deliveries/{id}")).await.json()["request"]["body"].clone()
    };
    let kinds = [sent(0).await, sent(1).await, sent(2).await].map(|body| body["object_kind"].clone());
    assert_eq!(kinds, ["note", "issue", "issue"]);
    assert_eq!(sent(3).await["ref"], "refs/tags/v1.0");
    let push = sent(4).await;
    assert_eq!((&push["ref"], &push["total_commits_count"]), (&json!("refs/heads/master"), &json!(2)));
    // Other hooks do not receive it.
    assert_eq!(ann.get("/projects/2/hooks/2/deliveries").await.text, "[]");
    assert_eq!(forge.dump().lines().filter(|line| line.starts_with("hook_deliveries:")).count(), 5);
}

#[tokio::test]
async fn the_delivery_log_shows_requests_and_responses() {
    let (forge, ann) = setup().await;
    ann.make("/projects/1/hooks", json!({ "url": URL, "token": "s3cret" })).await;
    let now = forge.forge.now();
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
    forge.in_transaction(|db| {
        [r#"{"object_kind":"push"}"#, &long].map(|payload| fixtures::delivery(db, HookId::new(1), payload, now))
    });
    let micros = now.as_microsecond();
    forge.execute_sql(&format!(
        "UPDATE hook_deliveries SET state = 2, attempts = 4, tried_at = {micros}, first_tried_at = {micros}, \
             finished_at = {micros} + 1500000, duration = 1250000, status = 404, error = 'It answered 404', \
             response_headers = 'server: x\nvia: a\nvia: b', response_body = 'no such thing' WHERE id = 1"
    ));
    let in_full = ann.get("/projects/1/hooks/1/deliveries/1").await;
    let version = env!("CARGO_PKG_VERSION");
    assert_snapshot!(in_full.to_string().replace(version, "VERSION"), @r#"
    200 OK
    {"id":1,"uuid":"4cc87d2e-7a82-877e-a9f3-27a0650db542","event":"Push Hook","state":"failed","attempt":4,"created_at":"2026-01-02T03:04:05.678Z","next_attempt_at":null,"tried_at":"2026-01-02T03:04:05.678Z","finished_at":"2026-01-02T03:04:07.178Z","duration":1.25,"request":{"url":"https://hooks.example.com/x","headers":{"Content-Type":"application/json","User-Agent":"Gable/VERSION","X-Gitlab-Event":"Push Hook","X-Gitlab-Event-UUID":"4cc87d2e-7a82-877e-a9f3-27a0650db542","Idempotency-Key":"4cc87d2e-7a82-877e-a9f3-27a0650db542","X-Gitlab-Token":"*****","X-Hub-Signature-256":"*****"},"body":{"object_kind":"push"}},"response":{"status":404,"headers":{"server":"x","via":"a, b"},"body":"no such thing"},"error":"It answered 404"}
    "#);
    // Lists omit bodies.
    let list = ann.get("/projects/1/hooks/1/deliveries").await;
    assert_eq!((list.join_field("id"), list.join_field("state")), ("2 1".into(), "waiting failed".into()));
    assert!(list.text.len() < 2000, "{}", list.text.len());
    let mut expected = in_full.json();
    for part in ["request", "response"] {
        expected[part].as_object_mut().expect("an object").remove("body");
    }
    assert_eq!(list.json()[1], expected);
    let waiting = &list.json()[0];
    assert_eq!(
        (&waiting["response"], &waiting["error"], &waiting["duration"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(waiting["next_attempt_at"], "2026-01-02T03:04:05.678Z");
    assert_eq!(
        ann.get("/projects/1/hooks/1/deliveries/2").await.json()["request"]["body"]["a"].as_str(),
        long.get(6..long.len() - 2)
    );
    assert_eq!(ann.get("/projects/1/hooks/1/deliveries?per_page=1&page=2").await.join_field("id"), "1");
    for (path, error) in [("9", r#"{"message":"404 Not found"}"#), ("x", r#"{"error":"delivery_id is invalid"}"#)] {
        assert_eq!(ann.get(&format!("/projects/1/hooks/1/deliveries/{path}")).await.text, error);
    }
    // Resending adds a delivery with the same UUID.
    let again = ann.post("/projects/1/hooks/1/deliveries/1/resend", json!({})).await;
    assert_eq!(again.code(), 201, "{again}");
    let again = again.json();
    assert_eq!((&again["id"], &again["uuid"]), (&json!(3), &expected["uuid"]));
    assert_eq!((&again["state"], &again["attempt"], &again["response"]), (&json!("waiting"), &json!(0), &Value::Null));
    assert_eq!(again["request"]["body"], json!({ "object_kind": "push" }));
    assert_eq!(ann.get("/projects/1/hooks/1/deliveries").await.join_field("id"), "3 2 1");
}

#[tokio::test]
async fn a_hook_is_kept_when_its_project_is_renamed_moved_or_archived() {
    let (forge, ann) = setup().await;
    let root = forge.admin().await;
    ann.make("/projects/1/hooks", json!({ "url": "https://a:b@hooks.example.com/x", "token": "t" })).await;
    let before = ann.get("/projects/1/hooks").await.text;
    assert_eq!(ann.put("/projects/1", json!({ "name": "x", "path": "renamed" })).await.code(), 200);
    assert_eq!(ann.get("/projects/ann%2Frenamed/hooks").await.text, before);
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    assert_eq!(root.post(&format!("/groups/{group}/projects/1"), json!({})).await.code(), 201);
    assert_eq!(ann.get("/projects/acme%2Frenamed/hooks").await.text, before);
    assert_eq!(ann.post("/projects/1/archive", json!({})).await.code(), 201);
    assert_eq!(ann.get("/projects/1/hooks").await.text, before);
    assert_eq!(ann.put("/projects/1/hooks/1", json!({ "url": URL })).await.json()["url"], URL);
}
