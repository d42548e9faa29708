//! Requests through a reverse proxy.

use std::net::SocketAddr;

use api::{LimitOptions, TrustedProxies, parse_proxy};
use axum::{body::Body, extract::ConnectInfo, http::Method};
use serde_json::json;
use testkit::{TestClient, TestForge, TestResponse};

use crate::{http::limits::per_minute, support::TestInstance};

const PROXY: &str = "10.0.0.1";
const UNTRUSTED: &str = "192.0.2.9";

fn trusting_proxy(limit_options: LimitOptions) -> LimitOptions {
    let proxy = parse_proxy("10.0.0.0/24").expect("a network");
    LimitOptions { trusted_proxies: TrustedProxies::from_iter([proxy]), ..limit_options }
}

async fn get(client: &TestClient, peer: &str, path: &str, headers: &[(&str, &str)]) -> TestResponse {
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4321);
    let request = client.request(Method::GET, path).extension(ConnectInfo(peer));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    client.send(request, Body::empty()).await
}

#[tokio::test]
async fn links_use_the_host_that_the_client_requested_from_the_proxy() {
    let forge = TestForge::builder().limit_options(trusting_proxy(LimitOptions::default())).start().await;
    let ann = forge.user("ann").await;
    let headers = [("x-forwarded-proto", "https"), ("x-forwarded-host", "forge.example.org:8443")];
    let link = async |peer: &str, headers: &[(&str, &str)]| {
        get(&ann, peer, "/user", headers).await.json()["web_url"].as_str().expect("a URL").to_owned()
    };
    assert_eq!(link(PROXY, &headers).await, "https://forge.example.org:8443/ann");
    assert_eq!(link(PROXY, &headers[..1]).await, "https://gable.test/ann");
    assert_eq!(
        link(PROXY, &[("forwarded", "for=192.0.2.7;proto=https;host=a.example")]).await,
        "https://a.example/ann"
    );
    assert_eq!(link(PROXY, &[("x-forwarded-host", "<script>")]).await, "http://gable.test/ann");
    // Headers of untrusted peers are ignored.
    assert_eq!(link(UNTRUSTED, &headers).await, "http://gable.test/ann");
}

#[tokio::test]
async fn an_external_url_takes_precedence_over_forwarded_headers() {
    let setup = TestForge::builder()
        .external_url("https://official.example")
        .limit_options(trusting_proxy(LimitOptions::default()));
    let forge = setup.start().await;
    let ann = forge.user("ann").await;
    let response = get(&ann, PROXY, "/user", &[("x-forwarded-host", "other.example")]).await;
    assert_eq!(response.json()["web_url"], "https://official.example/ann");
}

#[tokio::test]
async fn limits_count_the_client_behind_a_trusted_proxy() {
    let forge = TestForge::builder().limit_options(trusting_proxy(per_minute(100, 2))).start().await;
    let anonymous = forge.anonymous();
    let ask = async |peer: &str, forwarded_for: &str| {
        get(&anonymous, peer, "/version", &[("x-forwarded-for", forwarded_for)]).await.code()
    };
    assert_eq!(ask(PROXY, "203.0.113.1").await, 401);
    // Entries that the client has prepended are ignored.
    assert_eq!(ask(PROXY, "127.0.0.1, 10.0.0.7, 203.0.113.1").await, 401);
    assert_eq!(ask(PROXY, "203.0.113.77, 203.0.113.1, 10.0.0.2").await, 429);
    assert_eq!(ask(PROXY, "203.0.113.2").await, 401);
    // An untrusted peer is counted by its own address.
    assert_eq!(ask(UNTRUSTED, "203.0.113.3").await, 401);
    assert_eq!(ask(UNTRUSTED, "203.0.113.4").await, 401);
    assert_eq!(ask(UNTRUSTED, "203.0.113.5").await, 429);
    assert_eq!(ask(UNTRUSTED, "10.0.0.1").await, 429);
}

#[tokio::test]
async fn sign_ins_are_counted_by_the_client_behind_the_proxy() {
    let forge = TestForge::builder()
        .sign_ins_per_minute(1)
        .limit_options(trusting_proxy(LimitOptions::default()))
        .start()
        .await;
    let anonymous = forge.anonymous();
    let sign_in = async |forwarded_for: &str| {
        let peer = SocketAddr::new(PROXY.parse().expect("an address"), 1);
        let request = anonymous.request(Method::POST, "/session").extension(ConnectInfo(peer));
        let request = request.header("x-forwarded-for", forwarded_for).header("content-type", "application/json");
        anonymous.send(request, Body::from(json!({ "login": "x", "password": "y" }).to_string())).await.code()
    };
    assert_eq!((sign_in("203.0.113.1").await, sign_in("203.0.113.1").await), (401, 429));
    assert_eq!(sign_in("203.0.113.2").await, 401);
}

#[test]
fn the_server_trusts_configured_proxies() {
    let instance = TestInstance::new();
    let server = instance.serve().args(&["--trusted-proxies", "127.0.0.1,fd00::/8"]).with_root_credentials().start();
    let headers =
        [("x-forwarded-for", "203.0.113.1"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "f.example")];
    let response = server.root().get_with("/api/v3/user", &headers);
    assert_eq!(response.json()["web_url"], "https://f.example/root");
    // A remote client is not local, even if the proxy is.
    assert_eq!(server.anonymous().get_with("/-/metrics", &headers).status, 404);
    drop(server);
    let server = instance.start();
    let response = server.root().get_with("/api/v3/user", &headers);
    assert_eq!(response.json()["web_url"], format!("{}/root", server.url));
    server.root().get_with("/api/v3/user", &headers);
    let log_output = server.stop().combined_output();
    assert_eq!(log_output.matches("that is not in trusted-proxies").count(), 1, "{log_output}");
}
