//! Requests that come through a proxy.

use std::net::SocketAddr;

use api::{Guards, TrustedProxies, parse_proxy};
use axum::{body::Body, extract::ConnectInfo, http::Method};
use serde_json::json;
use testkit::{Answer, Client, TestForge};

use crate::{admin::binary::Home, http::limits::per_minute};

const PROXY: &str = "10.0.0.1";
const STRANGER: &str = "192.0.2.9";

fn trusting(guards: Guards) -> Guards {
    let proxy = parse_proxy("10.0.0.0/24").expect("a network");
    Guards { trusted_proxies: TrustedProxies::from_iter([proxy]), ..guards }
}

async fn get(client: &Client, peer: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4321);
    let request = client.request(Method::GET, path).extension(ConnectInfo(peer));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    client.send(request, Body::empty()).await
}

#[tokio::test]
async fn links_say_what_the_client_asked_the_proxy_for() {
    let forge = TestForge::setup().guards(trusting(Guards::default())).start().await;
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
    // What strangers say of themselves has no effect, and neither does what a proxy passes on of it.
    assert_eq!(link(STRANGER, &headers).await, "http://gable.test/ann");
}

#[tokio::test]
async fn an_external_url_wins_over_what_a_proxy_says() {
    let setup = TestForge::setup().external_url("https://official.example").guards(trusting(Guards::default()));
    let forge = setup.start().await;
    let ann = forge.user("ann").await;
    let told = get(&ann, PROXY, "/user", &[("x-forwarded-host", "other.example")]).await;
    assert_eq!(told.json()["web_url"], "https://official.example/ann");
}

#[tokio::test]
async fn limits_count_the_client_behind_a_trusted_proxy() {
    let forge = TestForge::setup().guards(trusting(per_minute(100, 2))).start().await;
    let nobody = forge.anonymous();
    let ask = async |peer: &str, told: &str| get(&nobody, peer, "/version", &[("x-forwarded-for", told)]).await.code();
    assert_eq!(ask(PROXY, "203.0.113.1").await, 401);
    // Whatever the client has put before it.
    assert_eq!(ask(PROXY, "127.0.0.1, 10.0.0.7, 203.0.113.1").await, 401);
    assert_eq!(ask(PROXY, "203.0.113.77, 203.0.113.1, 10.0.0.2").await, 429);
    assert_eq!(ask(PROXY, "203.0.113.2").await, 401);
    // Everybody may claim to be somebody else, and counts as who they are.
    assert_eq!(ask(STRANGER, "203.0.113.3").await, 401);
    assert_eq!(ask(STRANGER, "203.0.113.4").await, 401);
    assert_eq!(ask(STRANGER, "203.0.113.5").await, 429);
    assert_eq!(ask(STRANGER, "10.0.0.1").await, 429);
}

#[tokio::test]
async fn sign_ins_are_counted_by_the_client_behind_the_proxy() {
    let forge = TestForge::setup().sign_ins_per_minute(1).guards(trusting(Guards::default())).start().await;
    let nobody = forge.anonymous();
    let sign_in = async |told: &str| {
        let peer = SocketAddr::new(PROXY.parse().expect("an address"), 1);
        let request = nobody.request(Method::POST, "/session").extension(ConnectInfo(peer));
        let request = request.header("x-forwarded-for", told).header("content-type", "application/json");
        nobody.send(request, Body::from(json!({ "login": "x", "password": "y" }).to_string())).await.code()
    };
    assert_eq!((sign_in("203.0.113.1").await, sign_in("203.0.113.1").await), (401, 429));
    assert_eq!(sign_in("203.0.113.2").await, 401);
}

#[test]
fn the_server_trusts_whom_it_is_told_to() {
    let home = Home::new();
    let server = home.serve().args(&["--trusted-proxies", "127.0.0.1,fd00::/8"]).with_known_root().start();
    let headers =
        [("x-forwarded-for", "203.0.113.1"), ("x-forwarded-proto", "https"), ("x-forwarded-host", "f.example")];
    let told = server.root().get_with("/api/v3/user", &headers);
    assert_eq!(told.json()["web_url"], "https://f.example/root");
    // A client elsewhere is not this machine, even if the proxy is.
    assert_eq!(server.anonymous().get_with("/-/metrics", &headers).status, 404);
    drop(server);
    let server = home.start();
    let told = server.root().get_with("/api/v3/user", &headers);
    assert_eq!(told.json()["web_url"], format!("{}/root", server.url));
    server.root().get_with("/api/v3/user", &headers);
    let said = server.stop().words();
    assert_eq!(said.matches("trusted-proxies does not name").count(), 1, "{said}");
}
