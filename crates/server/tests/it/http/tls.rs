//! HTTPS: what clients see, and how certificates change under a running server.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, pki_types::CertificateDer};
use serde_json::{Value, json};
use testkit::{receiver::Certificate, repository::quiet_git};

use crate::admin::binary::{Gable, Home, PATIENCE, ROOT_TOKEN, Server};

/// A place with a certificate.
struct Secured {
    home: Home,
    certificate: String,
    key: String,
}

impl Secured {
    fn new(certificate: &Certificate) -> Self {
        let home = Home::new();
        let (path, key) = (home.file("tls.pem", &certificate.pem()), home.file("tls.key", &certificate.key_pem()));
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
        Self { home, certificate: path, key }
    }

    fn serve(&self) -> Gable {
        self.home.serve().args(&["--tls-certificate", &self.certificate, "--tls-key", &self.key]).with_known_root()
    }

    /// Puts another certificate in the place of the old one, as programs that renew them do.
    fn renew(&self, certificate: &str, key: &str) {
        for (path, content) in [(&self.certificate, certificate), (&self.key, key)] {
            let beside = format!("{path}.new");
            fs::write(&beside, content).expect("written");
            fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).expect("set");
            fs::rename(beside, path).expect("renamed");
        }
    }
}

fn ours() -> Certificate {
    Certificate::of(&["127.0.0.1", "localhost"])
}

fn address(server: &Server) -> &str {
    server.url.strip_prefix("https://").expect("it says that it speaks TLS")
}

/// A connection to the server by somebody who trusts this certificate alone.
fn connect(server: &Server, trusted: &Certificate) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(trusted.der().to_vec())).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let name = "127.0.0.1".try_into().expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let stream = TcpStream::connect(address(server)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    StreamOwned::new(client, stream)
}

fn ask(stream: &mut StreamOwned<ClientConnection, TcpStream>, path: &str) -> std::io::Result<String> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: forge.test\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard)?;
    Ok(heard)
}

fn get(server: &Server, trusted: &Certificate, path: &str) -> std::io::Result<String> {
    ask(&mut connect(server, trusted), path)
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn https_is_spoken_and_links_say_so() {
    let certificate = ours();
    let secured = Secured::new(&certificate);
    let server = secured.serve().start();
    let answer = get(&server, &certificate, "/api/v3/user").expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(body(&answer)["web_url"], "https://forge.test/root");
    assert!(!answer.to_lowercase().contains("strict-transport-security"), "{answer}");
    get(&server, &ours(), "/").expect_err("another certificate is not trusted");
    // Without TLS there is nothing to hear.
    let mut plain = TcpStream::connect(address(&server)).expect("connected");
    plain.set_read_timeout(Some(PATIENCE)).expect("set");
    plain.write_all(b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard);
    assert!(!String::from_utf8_lossy(&heard).contains("200"), "{heard:?}");
    drop(server);
    let server = secured.serve().args(&["--hsts-seconds", "600"]).start();
    let answer = get(&server, &certificate, "/-/health").expect("answered");
    assert!(answer.contains("strict-transport-security: max-age=600\r\n"), "{answer}");
}

#[test]
fn a_renewed_certificate_is_shown_to_those_who_come_and_a_bad_one_is_not() {
    let (old, new) = (ours(), ours());
    let secured = Secured::new(&old);
    let server = secured.serve().start();
    let mut early = connect(&server, &old);
    early.flush().expect("greeted");
    early.conn.complete_io(&mut early.sock).expect("agreed");
    secured.renew(&new.pem(), &new.key_pem());
    server.signal("HUP");
    until("the new certificate is not shown", || get(&server, &new, "/-/health").is_ok());
    assert!(ask(&mut early, "/-/health").expect("still connected").starts_with("HTTP/1.1 200 OK"));
    for (certificate, key) in [("nonsense".to_owned(), new.key_pem()), (new.pem(), old.key_pem())] {
        let told = server.stderr().matches("the old one stays").count();
        secured.renew(&certificate, &key);
        server.signal("HUP");
        until("nothing is said", || server.stderr().matches("the old one stays").count() > told);
        get(&server, &new, "/-/health").expect("the old one stays");
    }
    // Without a signal, too.
    let newest = ours();
    secured.renew(&newest.pem(), &newest.key_pem());
    until("the newest certificate is not shown", || get(&server, &newest, "/-/health").is_ok());
    let said = server.stop().words();
    assert!(!said.contains("PRIVATE") && !said.contains("can read the TLS key"), "{said}");
}

#[test]
fn who_comes_without_tls_is_sent_there() {
    let certificate = ours();
    let secured = Secured::new(&certificate);
    let server = secured.serve().args(&["--redirect-listen", "127.0.0.1:0"]).start();
    let told = "sends those who come without TLS";
    until("no address is told", || server.stderr().contains(told));
    let said = server.stderr();
    let line = said.lines().find(|line| line.contains(told)).expect("a line");
    let place = line.split_whitespace().find_map(|word| word.strip_prefix("address=")).expect("an address");
    let place = place.trim_matches('"').to_owned();
    let mut plain = TcpStream::connect(&place).expect("connected");
    let request = "POST /api/v3/user?page=2 HTTP/1.1\r\nHost: forge.test:80\r\nConnection: close\r\n\r\n";
    plain.write_all(request.as_bytes()).expect("sent");
    let mut heard = String::new();
    plain.read_to_string(&mut heard).expect("heard");
    assert!(heard.starts_with("HTTP/1.1 308 Permanent Redirect"), "{heard}");
    let port = address(&server).rsplit_once(':').expect("a port").1;
    assert!(heard.contains(&format!("location: https://forge.test:{port}/api/v3/user?page=2\r\n")), "{heard}");
}

#[test]
fn git_clones_and_pushes_over_tls() {
    let certificate = ours();
    let secured = Secured::new(&certificate);
    let server = secured.serve().start();
    let made = r#"{"name":"x"}"#;
    let mut stream = connect(&server, &certificate);
    let request = format!(
        "POST /api/v3/projects HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{made}",
        made.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut heard = String::new();
    stream.read_to_string(&mut heard).expect("heard");
    assert!(heard.starts_with("HTTP/1.1 201"), "{heard}");
    let folder = tempfile::tempdir().expect("a folder");
    let git = |folder: &Path, arguments: &[&str]| {
        let mut command: Command = quiet_git(folder);
        let done = command.env("GIT_SSL_CAINFO", &secured.certificate).args(arguments).output().expect("git runs");
        assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let url = format!("https://root:{ROOT_TOKEN}@{}/root/x.git", address(&server));
    git(folder.path(), &["init", "-q", "-b", "master", "one"]);
    let one = folder.path().join("one");
    git(&one, &["commit", "-q", "--allow-empty", "-m", "First"]);
    git(&one, &["push", "-q", &url, "master"]);
    git(folder.path(), &["clone", "-q", &url, "two"]);
    git(&folder.path().join("two"), &["rev-parse", "--verify", "-q", "origin/master"]);
    let branches = body(&get(&server, &certificate, "/api/v3/projects/1/repository/branches").expect("answered"));
    assert_eq!(branches[0]["name"], json!("master"));
}

#[test]
fn files_that_are_of_no_use_are_told_at_the_start() {
    let (one, other) = (ours(), ours());
    let secured = Secured::new(&one);
    let refused = |certificate: &str, key: &str| {
        let gable = secured.home.serve().args(&["--tls-certificate", certificate, "--tls-key", key]);
        gable.finish().refused()
    };
    let refusal = refused("/nowhere/tls.pem", &secured.key);
    assert!(refusal.starts_with("cannot read the TLS certificate /nowhere/tls.pem: "), "{refusal}");
    let empty = secured.home.file("empty.pem", "");
    assert!(refused(&empty, &secured.key).starts_with("there is no certificate in "));
    assert!(refused(&secured.certificate, &empty).starts_with("there is no private key in "));
    let wrong = secured.home.file("other.key", &other.key_pem());
    let refusal = refused(&secured.certificate, &wrong);
    assert!(refusal.contains("are of no use"), "{refusal}");
}

#[test]
fn health_is_asked_by_tls_where_it_is_spoken() {
    let secured = Secured::new(&ours());
    let server = secured.serve().start();
    let asked = secured.home.gable(&["health", "--listen", address(&server)]);
    let asked = asked.env("GABLE_TLS_CERTIFICATE", &secured.certificate).env("GABLE_TLS_KEY", &secured.key);
    assert_eq!(asked.finish().succeeded(), "ready\n");
}

#[test]
fn a_hangup_does_not_end_a_server_without_tls() {
    let home = Home::new();
    let server = home.start();
    server.signal("HUP");
    until("the signal is not logged", || server.stderr().contains("received SIGHUP"));
    assert_eq!(server.anonymous().get("/-/health").text, "ok\n");
    assert_eq!(server.stop().status, Some(0));
}
