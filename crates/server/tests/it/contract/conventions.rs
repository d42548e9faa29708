//! Conventions that all routes share: parameters, errors, pagination, caching and CORS.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Method, header},
    routing::get,
};
use insta::assert_snapshot;
use serde_json::json;
use testkit::TestForge;

#[tokio::test]
async fn parameters_come_from_query_form_multipart_and_json_alike() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let form = "application/x-www-form-urlencoded";
    let multipart = "--b\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\nd@example.org\r\n--b--\r\n";
    let answers = [
        ann.body(Method::POST, "/user/emails?email=a%40example.org", "", Body::empty()).await,
        ann.body(Method::POST, "/user/emails", form, "email=b%40example.org").await,
        ann.body(Method::POST, "/user/emails", "application/json; charset=utf-8", r#"{"email":"c@example.org"}"#).await,
        ann.body(Method::POST, "/user/emails", "multipart/form-data; boundary=b", multipart).await,
        // The body wins over the query.
        ann.body(Method::POST, "/user/emails?email=x%40example.org", form, "email=e%40example.org").await,
        ann.send(ann.request(Method::POST, "/user/emails"), Body::from("email=f%40example.org")).await,
    ];
    for (answer, letter) in answers.iter().zip("abcdef".chars()) {
        let email = format!("{letter}@example.org");
        assert_eq!((answer.code(), &answer.json()["email"]), (201, &json!(email)));
    }
    // Reads and deletes take bodies too, and path segments win over all.
    assert_eq!(ann.json(Method::GET, "/user/emails", json!({ "per_page": 2 })).await.header("x-per-page"), "2");
    assert_eq!(ann.json(Method::GET, "/users/1", json!({ "id": 2 })).await.json()["id"], 1);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused() {
    let forge = TestForge::builder().body_limit(1000).start().await;
    let ann = forge.user("ann").await;
    let post = async |kind: &str, body: Vec<u8>| ann.body(Method::POST, "/user/emails", kind, body).await;
    assert_snapshot!(post("application/json", b"{\"email\":".to_vec()).await, @r#"
    400 Bad Request
    {"error":"message body does not match declared format"}
    "#);
    assert_snapshot!(post("application/json", b"\xff\xfe".to_vec()).await, @r#"
    400 Bad Request
    {"error":"message body does not match declared format"}
    "#);
    assert_snapshot!(post("application/json", b"[1]".to_vec()).await, @r#"
    400 Bad Request
    {"error":"email is missing"}
    "#);
    assert_snapshot!(post("application/json", "[".repeat(900).into()).await, @r#"
    400 Bad Request
    {"error":"message body does not match declared format"}
    "#);
    assert_snapshot!(post("multipart/form-data", b"x".to_vec()).await, @r#"
    400 Bad Request
    {"error":"message body does not match declared format"}
    "#);
    assert_snapshot!(post("multipart/form-data; boundary=b", b"--b\r\nnonsense".to_vec()).await, @r#"
    400 Bad Request
    {"error":"message body does not match declared format"}
    "#);
    assert_snapshot!(post("application/xml", b"<email/>".to_vec()).await, @r#"
    415 Unsupported Media Type
    {"error":"The requested content-type 'application/xml' is not supported."}
    "#);
    assert_snapshot!(post("application/json", "x".repeat(1001).into()).await, @r#"
    413 Payload Too Large
    {"message":"413 Request Entity Too Large"}
    "#);
    assert_snapshot!(post("text/plain", b"email=a@b".to_vec()).await, @r#"
    400 Bad Request
    {"error":"email is missing"}
    "#);
    assert_snapshot!(post("application/x-www-form-urlencoded", b"email=%ff%fe".to_vec()).await, @r#"
    400 Bad Request
    {"error":"email is invalid"}
    "#);
    assert_snapshot!(post("application/x-www-form-urlencoded", b"email=a%00@b".to_vec()).await, @r#"
    400 Bad Request
    {"error":"email is invalid"}
    "#);
    assert_snapshot!(post("application/json", br#"{"email":{"a":1}}"#.to_vec()).await, @r#"
    400 Bad Request
    {"error":"email is invalid"}
    "#);
    // The body is parsed before the caller is authenticated.
    let anonymous = forge.anonymous();
    assert_eq!(anonymous.body(Method::POST, "/user/emails", "application/json", "{").await.code(), 400);
    assert_eq!(ann.get("/user/emails").await.text, "[]");
}

/// `email[]=victim&email[]=attacker`, and two values in any other notation.
#[tokio::test]
async fn a_scalar_cannot_have_two_values() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let form = "application/x-www-form-urlencoded";
    for body in ["email[]=a@b&email[]=c@d", "email=a@b&email=c@d", "email=a@b&email[]=c@d"] {
        let answer = root.body(Method::POST, "/user/emails", form, body).await;
        assert_eq!((answer.code(), answer.json()), (400, json!({ "error": "email is invalid" })), "{body}");
    }
    let listed = root.post("/user/emails", json!({ "email": ["a@b", "c@d"] })).await;
    assert_eq!(listed.json(), json!({ "error": "email is invalid" }));
    let doubled = r#"{"email":"a@b","email":"c@d"}"#;
    let doubled = root.body(Method::POST, "/user/emails", "application/json", doubled).await;
    assert_eq!((doubled.code(), doubled.json()), (400, json!({ "error": "email is invalid" })));
    let session = forge.anonymous().post("/session", json!({ "email": ["root"], "password": ["x"] })).await;
    assert_eq!(session.json(), json!({ "error": "email is invalid, password is invalid" }));
    assert_eq!(root.get("/user/emails").await.text, "[]");
    // The same value twice is what a stock client sends when it follows a link.
    assert_eq!(root.get("/users?per_page=1&page=1&per_page=1").await.code(), 200);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_distinguished() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_snapshot!(ann.get("/nothing").await, @r#"
    404 Not Found
    {"error":"404 Not Found"}
    "#);
    assert_snapshot!(ann.get("/api/v9/users").await, @r#"
    404 Not Found
    {"error":"404 Not Found"}
    "#);
    assert_snapshot!(ann.get("/users/abc").await, @r#"
    404 Not Found
    {"error":"404 Not Found"}
    "#);
    assert_snapshot!(ann.get("/users/1%2F2").await, @r#"
    404 Not Found
    {"error":"404 Not Found"}
    "#);
    let wrong = ann.delete("/users").await;
    assert_snapshot!(wrong, @r#"
    405 Method Not Allowed
    {"error":"405 Not Allowed"}
    "#);
    assert_eq!(wrong.header("allow"), "GET,HEAD,POST");
    let options = ann.send(ann.request(Method::OPTIONS, "/users"), Body::empty()).await;
    assert_eq!((options.code(), options.header("allow")), (204, "GET,HEAD,POST"));
}

#[tokio::test]
async fn slashes_and_a_json_suffix_do_not_matter() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let plain = ann.get("/user").await.text;
    for path in ["/user/", "//user", "/user.json", "//user//", "/user.json?per_page=1"] {
        assert_eq!(ann.get(path).await.text, plain, "{path}");
    }
    assert_eq!(ann.get("/users/1.json").await.json()["id"], 1);
    assert_eq!(ann.get("/users/1.json/events").await.code(), 404);
    let middle = ann.delete("/users/1.json/keys/1.json").await;
    assert_eq!((middle.code(), middle.json()), (404, json!({ "error": "404 Not Found" })));
    assert_eq!(ann.json(Method::POST, "/user/emails/", json!({ "email": "a@b" })).await.code(), 201);
    assert_eq!(ann.get("/openapi.json").await.json()["openapi"], "3.1.0");
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let (head, get) = (ann.head("/users").await, ann.get("/users").await);
    assert_eq!((head.code(), head.text.as_str()), (200, ""));
    for name in ["content-type", "etag", "x-total", "link"] {
        assert_eq!(head.header(name), get.header(name), "{name}");
    }
    assert_eq!(get.header("content-type"), "application/json");
}

#[tokio::test]
async fn an_unchanged_answer_is_not_sent_again() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let first = ann.get("/user/emails").await;
    let tag = first.header("etag").to_owned();
    assert!(tag.starts_with("W/\"") && tag.len() == 36, "{tag}");
    assert_eq!(first.header("cache-control"), "max-age=0, private, must-revalidate");
    let again = ann.get_with("/user/emails", &[("if-none-match", &tag)]).await;
    assert_eq!((again.code(), again.text.as_str(), again.header("content-type")), (304, "", ""));
    assert_eq!(again.header("etag"), tag);
    ann.post("/user/emails", json!({ "email": "a@b" })).await;
    assert_eq!(ann.get_with("/user/emails", &[("if-none-match", &tag)]).await.code(), 200);
}

#[tokio::test]
async fn pages_are_linked_without_tokens() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    for number in 0..6 {
        forge.user(&format!("user{number}")).await;
    }
    let token = root.token.clone().expect("a token");
    let path = format!("/users?search=u,s&private_token={token}&per_page=2&page=2&sudo=root&access_token=x");
    let found = root.get(&path.replace("u,s", "user")).await;
    assert_snapshot!(found.header("link").replace(", ", ",\n"), @r#"
    <http://gable.test/api/v3/users?page=1&per_page=2&search=user&sudo=root>; rel="prev",
    <http://gable.test/api/v3/users?page=3&per_page=2&search=user&sudo=root>; rel="next",
    <http://gable.test/api/v3/users?page=1&per_page=2&search=user&sudo=root>; rel="first",
    <http://gable.test/api/v3/users?page=3&per_page=2&search=user&sudo=root>; rel="last"
    "#);
    let numbers = ["x-total", "x-total-pages", "x-per-page", "x-page", "x-next-page", "x-prev-page"];
    let headers = |answer: &testkit::TestResponse| numbers.map(|name| answer.header(name).to_owned()).join("|");
    assert_eq!(headers(&found), "6|3|2|2|3|1");
    assert_eq!(found.join_field("username"), "user3 user2");
    let empty = root.get(&path.replace("page=2", "page=1").replace("u,s", "no,body")).await;
    assert_snapshot!(empty.header("link").replace(", ", ",\n"), @r#"
    <http://gable.test/api/v3/users?page=1&per_page=1&search=no%2Cbody&sudo=root>; rel="first",
    <http://gable.test/api/v3/users?page=1&per_page=1&search=no%2Cbody&sudo=root>; rel="last"
    "#);
    assert_eq!(headers(&empty), "0|0|1|1||");
    assert_eq!(headers(&root.get("/users?page=9&per_page=3").await), "7|3|3|9||8");
    assert_eq!(root.get("/users?page=9&per_page=3").await.text, "[]");
    // A link without all parameters would lead to another list.
    let long = root.get(&format!("/users?search={}", "n".repeat(1500))).await;
    assert_eq!((headers(&long), long.header("link")), ("0|0|20|1||".to_owned(), ""));
    let outside = TestForge::builder().external_url("https://git.example.org/gable/").start().await;
    let root = outside.admin().await;
    let list = root.get("/users").await;
    assert!(list.header("link").starts_with("<https://git.example.org/gable/api/v3/users?page=1&per_page=20>;"));
    assert_eq!(list.join_field("web_url"), "https://git.example.org/gable/root");
}

/// Huge, negative and invalid page sizes have no cost.
#[tokio::test]
async fn a_page_is_bounded_whatever_size_is_requested() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let per_page = async |query: &str| root.get(&format!("/users?{query}")).await.header("x-per-page").to_owned();
    assert_eq!(per_page("").await, "20");
    assert_eq!(per_page("per_page=100").await, "100");
    assert_eq!(per_page("per_page=101").await, "100");
    assert_eq!(per_page("per_page=999999999").await, "100");
    assert_eq!(per_page("per_page=0&page=0").await, "20");
    assert_snapshot!(root.get("/users?page=-1").await, @r#"
    400 Bad Request
    {"error":"page is invalid"}
    "#);
    assert_snapshot!(root.get("/users?page=many&per_page=-5").await, @r#"
    400 Bad Request
    {"error":"page is invalid, per_page is invalid"}
    "#);
    assert_snapshot!(root.get("/users?page=99999999999999999999999").await, @r#"
    400 Bad Request
    {"error":"page is invalid"}
    "#);
    assert_snapshot!(root.get("/users?page=2147483648").await, @r#"
    400 Bad Request
    {"error":"page is invalid"}
    "#);
    assert_snapshot!(root.get("/users?page=2147483647").await, @"
    200 OK
    []
    ");
    let long = "x".repeat(5000);
    assert_eq!(root.get(&format!("/users?search={long}")).await.text, "[]");
    assert_eq!(root.get(&format!("/users?search={}", "%25_".repeat(500))).await.text, "[]");
    // Longer than any pattern that the database accepts.
    let searched = root.json(Method::GET, "/users", json!({ "search": "a".repeat(200_000) })).await;
    assert_eq!((searched.code(), searched.text.as_str()), (200, "[]"));
    assert!(searched.header("link").len() < 500, "a link does not repeat what is too long for a header");
    let flood = (0..3000).map(|number| format!("p{number}=x")).collect::<Vec<_>>().join("&");
    let form = "application/x-www-form-urlencoded";
    let refused = root.body(Method::POST, "/user/emails", form, flood).await;
    assert_eq!((refused.code(), refused.json()), (400, json!({ "error": "too many parameters" })));
}

/// `GET` and `HEAD` never write; read connections cannot.
#[tokio::test]
async fn read_requests_change_nothing() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    ann.post("/user/emails", json!({ "email": "more@example.org" })).await;
    let before = forge.dump();
    for route in api::routes::v3().into_iter().filter(|route| route.method == Method::GET) {
        for id in ["1", "2", "3"] {
            let path = route.path.replace("{id}", id).replace("{uid}", id);
            for client in [&root, &ann] {
                client.get(&path).await;
                client.head(&path).await;
                // A method override in a parameter or header is ignored.
                client.get_with(&format!("{path}?_method=DELETE"), &[("x-http-method-override", "DELETE")]).await;
            }
        }
    }
    assert_eq!(forge.dump(), before);
    // Read connections refuse to write.
    let refusal = forge.with_read_connection(|db| {
        store::tasks::insert(db, "kind", "", None, model::Time::UNIX_EPOCH, model::Time::UNIX_EPOCH)
    });
    let refusal = refusal.expect_err("a write on a read connection").to_string();
    assert!(refusal.contains("readonly") || refusal.contains("read-only"), "{refusal}");
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn cross_origin_requests_are_allowed() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let preflight = ann
        .request(Method::OPTIONS, "/users")
        .header(header::ORIGIN, "https://elsewhere.example")
        .header("access-control-request-method", "DELETE")
        .header("access-control-request-headers", "private-token");
    let granted = ann.send(preflight, Body::empty()).await;
    assert_eq!((granted.code(), granted.header("access-control-allow-headers")), (204, "private-token"));
    let answer = ann.get_with("/users", &[("origin", "https://elsewhere.example")]).await;
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert_eq!(answer.header("access-control-allow-credentials"), "");
    assert!(answer.header("access-control-expose-headers").contains("Link"));
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_server_keeps_running() {
    async fn panics() -> &'static str {
        panic!("boom")
    }
    let forge = TestForge::builder().extra_routes(Router::new().route("/-/panic", get(panics))).start().await;
    let ann = forge.user("ann").await;
    assert_snapshot!(ann.get("/-/panic").await, @r#"
    500 Internal Server Error
    {"message":"500 Internal Server Error"}
    "#);
    // On read, write and blocking threads as well.
    for _ in 0..3 {
        let system = forge::Caller::system;
        let read = forge.forge.read::<(), _>(system(), |_| panic!("boom")).await;
        let written = forge.forge.write::<(), _>(system(), |_| panic!("boom")).await;
        let heavy = forge.forge.run_blocking::<(), _>(system(), |_| panic!("boom")).await;
        for outcome in [read, written, heavy] {
            assert_eq!(outcome.expect_err("a panic is an error").to_string(), "panic: boom");
        }
    }
    assert_eq!(ann.post("/user/emails", json!({ "email": "a@b" })).await.code(), 201);
    assert_eq!(ann.get("/user/emails").await.join_field("email"), "a@b");
}

/// A body that stops arriving times out.
#[tokio::test]
async fn a_body_that_does_not_arrive_times_out() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    tokio::time::pause();
    let half = futures_util::stream::iter([Ok::<_, std::io::Error>("{\"email\":")]);
    let stalled_body = futures_util::StreamExt::chain(half, futures_util::stream::pending());
    let answer = ann.body(Method::POST, "/user/emails", "application/json", Body::from_stream(stalled_body)).await;
    assert_snapshot!(answer, @r#"
    408 Request Timeout
    {"message":"408 Request Timeout"}
    "#);
}

/// Requests beyond the queue limit are rejected with 503.
#[tokio::test]
async fn requests_beyond_the_queue_limit_are_rejected() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let (release, released) = crossbeam_channel::bounded::<()>(0);
    let running = Arc::new(AtomicUsize::new(0));
    let block_reader = || {
        let (forge, released, running) = (forge.forge.clone(), released.clone(), Arc::clone(&running));
        let wait = move |_: &mut forge::ReadTx<'_>| {
            running.fetch_add(1, Ordering::SeqCst);
            let _ = released.recv();
            Ok(())
        };
        tokio::spawn(async move { forge.read(forge::Caller::system(), wait).await })
    };
    // Two requests are running, then the queue is filled.
    let mut waiting = vec![block_reader(), block_reader()];
    while running.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    waiting.extend((0..1024).map(|_| block_reader()));
    while forge.forge.queue_lengths()[0].1 < 1024 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = ann.get("/users").await;
    assert_snapshot!(refused, @r#"
    503 Service Unavailable
    {"message":"503 Service Unavailable"}
    "#);
    assert_eq!(refused.header("retry-after"), "1");
    drop((release, released));
    for task in waiting {
        let _ = task.await.expect("a task ends");
    }
    assert_eq!(ann.get("/users").await.code(), 200);
}

#[tokio::test]
async fn a_valid_request_id_is_kept() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_eq!(ann.get_with("/user", &[("x-request-id", "abc-1")]).await.header("x-request-id"), "abc-1");
    let (one, two) = (ann.get("/user").await, ann.get_with("/user", &[("x-request-id", "a b\tc")]).await);
    assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
    assert!(!two.header("x-request-id").contains(' '));
}

#[tokio::test]
async fn the_version_is_that_of_gitlab_8_14() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    assert_eq!(ann.get("/version").await.json()["version"], "8.14.0");
    assert_eq!(forge.anonymous().get("/version").await.code(), 401);
}

#[tokio::test]
async fn users_without_an_avatar_have_an_identicon() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let url = ann.get("/user").await.json()["avatar_url"].as_str().expect("a URL").to_owned();
    let path = url.strip_prefix("http://gable.test").expect("on this host");
    let avatar = forge.anonymous().get(path).await;
    assert_eq!((avatar.code(), avatar.header("content-type")), (200, "image/svg+xml"));
    assert_eq!(avatar.header("content-security-policy"), "default-src 'none'; sandbox");
    assert!(avatar.text.starts_with("<svg "));
    for path in ["/-/identicon/x.svg", "/-/identicon/%ff.svg"] {
        assert_eq!(forge.anonymous().get(path).await.json(), json!({ "error": "404 Not Found" }), "{path}");
    }
    let wrong = forge.anonymous().json(Method::POST, path, json!({})).await;
    assert_eq!((wrong.code(), wrong.json()), (405, json!({ "error": "405 Not Allowed" })));
}
