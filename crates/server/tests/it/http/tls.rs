//! HTTPS, and the renewal of certificates in a running server.

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
use testkit::{receiver::Certificate, repository::git_command};

use crate::support::{GableCommand, ROOT_TOKEN, ServerProcess, TestInstance, WAIT_TIMEOUT};

/// A data directory with a TLS certificate.
struct TlsHome {
    instance: TestInstance,
    certificate: String,
    key: String,
}

impl TlsHome {
    fn new(certificate: &Certificate) -> Self {
        let instance = TestInstance::new();
        let (path, key) =
            (instance.file("tls.pem", &certificate.pem()), instance.file("tls.key", &certificate.key_pem()));
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
        Self { instance, certificate: path, key }
    }

    fn serve(&self) -> GableCommand {
        self.instance
            .serve()
            .args(&["--tls-certificate", &self.certificate, "--tls-key", &self.key])
            .with_root_credentials()
    }

    /// Replaces the certificate atomically, as ACME clients do.
    fn renew(&self, certificate: &str, key: &str) {
        for (path, content) in [(&self.certificate, certificate), (&self.key, key)] {
            let new_path = format!("{path}.new");
            fs::write(&new_path, content).expect("written");
            fs::set_permissions(&new_path, fs::Permissions::from_mode(0o600)).expect("set");
            fs::rename(new_path, path).expect("renamed");
        }
    }
}

fn self_signed() -> Certificate {
    Certificate::for_hosts(&["127.0.0.1", "localhost"])
}

fn address(server: &ServerProcess) -> &str {
    server.url.strip_prefix("https://").expect("an https URL")
}

/// Connects to the server as a client that trusts only this certificate.
fn connect(server: &ServerProcess, trusted: &Certificate) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(trusted.der().to_vec())).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let name = "127.0.0.1".try_into().expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let stream = TcpStream::connect(address(server)).expect("connected");
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).expect("set");
    StreamOwned::new(client, stream)
}

fn request(stream: &mut StreamOwned<ClientConnection, TcpStream>, path: &str) -> std::io::Result<String> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: forge.test\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut received = String::new();
    stream.read_to_string(&mut received)?;
    Ok(received)
}

fn get(server: &ServerProcess, trusted: &Certificate, path: &str) -> std::io::Result<String> {
    request(&mut connect(server, trusted), path)
}

fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn wait_until(message: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < WAIT_TIMEOUT, "{message}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn https_is_served_and_used_in_links() {
    let certificate = self_signed();
    let tls_home = TlsHome::new(&certificate);
    let server = tls_home.serve().start();
    let answer = get(&server, &certificate, "/api/v3/user").expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(body(&answer)["web_url"], "https://forge.test/root");
    assert!(!answer.to_lowercase().contains("strict-transport-security"), "{answer}");
    get(&server, &self_signed(), "/").expect_err("another certificate is not trusted");
    // A client without TLS gets no HTTP response.
    let mut plain = TcpStream::connect(address(&server)).expect("connected");
    plain.set_read_timeout(Some(WAIT_TIMEOUT)).expect("set");
    plain.write_all(b"GET /-/health HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut received = Vec::new();
    let _ = plain.read_to_end(&mut received);
    assert!(!String::from_utf8_lossy(&received).contains("200"), "{received:?}");
    drop(server);
    let server = tls_home.serve().args(&["--hsts-seconds", "600"]).start();
    let answer = get(&server, &certificate, "/-/health").expect("answered");
    assert!(answer.contains("strict-transport-security: max-age=600\r\n"), "{answer}");
}

#[test]
fn a_renewed_certificate_is_used_for_new_connections_and_an_invalid_one_is_not() {
    let (old, new) = (self_signed(), self_signed());
    let tls_home = TlsHome::new(&old);
    let server = tls_home.serve().start();
    let mut early = connect(&server, &old);
    early.flush().expect("flushed");
    early.conn.complete_io(&mut early.sock).expect("handshake completed");
    tls_home.renew(&new.pem(), &new.key_pem());
    server.signal("HUP");
    wait_until("the new certificate is not used", || get(&server, &new, "/-/health").is_ok());
    assert!(request(&mut early, "/-/health").expect("still connected").starts_with("HTTP/1.1 200 OK"));
    for (certificate, key) in [("nonsense".to_owned(), new.key_pem()), (new.pem(), old.key_pem())] {
        let occurrences = server.stderr().matches("the old one stays").count();
        tls_home.renew(&certificate, &key);
        server.signal("HUP");
        wait_until("nothing is logged", || server.stderr().matches("the old one stays").count() > occurrences);
        get(&server, &new, "/-/health").expect("the old one stays");
    }
    // Without a signal as well.
    let newest = self_signed();
    tls_home.renew(&newest.pem(), &newest.key_pem());
    wait_until("the newest certificate is not used", || get(&server, &newest, "/-/health").is_ok());
    let log_output = server.stop().combined_output();
    assert!(!log_output.contains("PRIVATE") && !log_output.contains("the TLS key is readable"), "{log_output}");
}

#[test]
fn clients_without_tls_are_redirected() {
    let certificate = self_signed();
    let tls_home = TlsHome::new(&certificate);
    let server = tls_home.serve().args(&["--redirect-listen", "127.0.0.1:0"]).start();
    let message = "redirecting HTTP to HTTPS";
    wait_until("no address is logged", || server.stderr().contains(message));
    let log_output = server.stderr();
    let line = log_output.lines().find(|line| line.contains(message)).expect("a line");
    let redirect_address = line.split_whitespace().find_map(|word| word.strip_prefix("address=")).expect("an address");
    let redirect_address = redirect_address.trim_matches('"').to_owned();
    let mut plain = TcpStream::connect(&redirect_address).expect("connected");
    let request = "POST /api/v3/user?page=2 HTTP/1.1\r\nHost: forge.test:80\r\nConnection: close\r\n\r\n";
    plain.write_all(request.as_bytes()).expect("sent");
    let mut received = String::new();
    plain.read_to_string(&mut received).expect("received");
    assert!(received.starts_with("HTTP/1.1 308 Permanent Redirect"), "{received}");
    let port = address(&server).rsplit_once(':').expect("a port").1;
    assert!(received.contains(&format!("location: https://forge.test:{port}/api/v3/user?page=2\r\n")), "{received}");
}

#[test]
fn git_clones_and_pushes_over_tls() {
    let certificate = self_signed();
    let tls_home = TlsHome::new(&certificate);
    let server = tls_home.serve().start();
    let made = r#"{"name":"x"}"#;
    let mut stream = connect(&server, &certificate);
    let request = format!(
        "POST /api/v3/projects HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{made}",
        made.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut received = String::new();
    stream.read_to_string(&mut received).expect("received");
    assert!(received.starts_with("HTTP/1.1 201"), "{received}");
    let folder = tempfile::tempdir().expect("a folder");
    let git = |folder: &Path, arguments: &[&str]| {
        let mut command: Command = git_command(folder);
        let done = command.env("GIT_SSL_CAINFO", &tls_home.certificate).args(arguments).output().expect("git runs");
        assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let url = format!("https://root:{ROOT_TOKEN}@{}/root/x.git", address(&server));
    git(folder.path(), &["init", "-q", "-b", "master", "one"]);
    let first = folder.path().join("one");
    git(&first, &["commit", "-q", "--allow-empty", "-m", "First"]);
    git(&first, &["push", "-q", &url, "master"]);
    git(folder.path(), &["clone", "-q", &url, "two"]);
    git(&folder.path().join("two"), &["rev-parse", "--verify", "-q", "origin/master"]);
    let branches = body(&get(&server, &certificate, "/api/v3/projects/1/repository/branches").expect("answered"));
    assert_eq!(branches[0]["name"], json!("master"));
}

#[test]
fn invalid_certificates_are_reported_at_startup() {
    let (first, second) = (self_signed(), self_signed());
    let tls_home = TlsHome::new(&first);
    let refused = |certificate: &str, key: &str| {
        let gable = tls_home.instance.serve().args(&["--tls-certificate", certificate, "--tls-key", key]);
        gable.finish().refused()
    };
    let refusal = refused("/nowhere/tls.pem", &tls_home.key);
    assert!(refusal.starts_with("cannot read the TLS certificate /nowhere/tls.pem: "), "{refusal}");
    let empty = tls_home.instance.file("empty.pem", "");
    assert!(refused(&empty, &tls_home.key).starts_with("no certificate in "));
    assert!(refused(&tls_home.certificate, &empty).starts_with("no private key in "));
    let wrong = tls_home.instance.file("other.key", &second.key_pem());
    let refusal = refused(&tls_home.certificate, &wrong);
    assert!(refusal.contains("cannot use the TLS key "), "{refusal}");
}

#[test]
fn the_health_check_uses_tls() {
    let tls_home = TlsHome::new(&self_signed());
    let server = tls_home.serve().start();
    let asked = tls_home.instance.gable(&["health", "--listen", address(&server)]);
    let asked = asked.env("GABLE_TLS_CERTIFICATE", &tls_home.certificate).env("GABLE_TLS_KEY", &tls_home.key);
    assert_eq!(asked.finish().succeeded(), "ready\n");
}

#[test]
fn sighup_does_not_stop_a_server_without_tls() {
    let instance = TestInstance::new();
    let server = instance.start();
    server.signal("HUP");
    wait_until("the signal is not logged", || server.stderr().contains("received SIGHUP"));
    assert_eq!(server.anonymous().get("/-/health").text, "ok\n");
    assert_eq!(server.stop().status, Some(0));
}
