//! Packaging: health checks, systemd notifications, and packaged files that must match the binary.

use std::{fs, net::TcpListener, os::unix::net::UnixDatagram, path::Path};

use serde_json::json;

use crate::support::{TestInstance, WAIT_TIMEOUT};

/// Reads a file of the package.
fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_health_command_reports_a_ready_server() {
    let instance = TestInstance::new();
    let server = instance.start();
    assert_eq!(instance.gable(&["health", "--url", &server.url]).finish().succeeded(), "ready\n");
    assert_eq!(instance.gable(&["health", "--listen", server.address()]).finish().succeeded(), "ready\n");
    // As in a container, where the server listens everywhere.
    let (_, port) = server.address().split_once(':').expect("a port");
    let everywhere = format!("0.0.0.0:{port}");
    assert_eq!(instance.gable(&["health"]).env("GABLE_LISTEN", &everywhere).finish().succeeded(), "ready\n");
    let file = instance.file("gable.toml", &format!("listen = \"{}\"\n", server.address()));
    assert_eq!(instance.gable(&["health", "--config", &file]).finish().succeeded(), "ready\n");
    let elsewhere = instance.gable(&["health", "--url", &format!("{}/nowhere", server.url)]).finish().refused();
    assert_eq!(elsewhere, format!("{}/nowhere responded with status 404; is it a gable server?", server.url));
}

#[test]
fn the_health_command_fails_without_a_response() {
    let instance = TestInstance::embedded();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // The kernel accepts the connection; nothing responds.
    let silent = instance.gable(&["health", "--url", &url, "--within", "1"]).finish().refused();
    assert_eq!(silent, format!("no response from {url} within 1s"));
    drop(listener);
    let closed = instance.gable(&["health", "--url", &url]).finish().refused();
    assert!(closed.starts_with(&format!("cannot reach {url}: ")), "{closed}");
    let secret = instance.gable(&["health", "--url", "http://ann:hunter2@127.0.0.1:9"]).finish().refused();
    assert!(!secret.contains("hunter2"), "{secret}");
}

#[test]
fn systemd_is_notified_of_start_and_stop() {
    let instance = TestInstance::new();
    let path = instance.file("notify", "");
    fs::remove_file(&path).expect("a free name");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(WAIT_TIMEOUT)).expect("a limit");
    let receive = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    let server = instance.serve().with_root_credentials().env("NOTIFY_SOCKET", &path).start();
    assert_eq!(receive(), "READY=1");
    server.stop().succeeded();
    assert_eq!(receive(), "STOPPING=1");
}

#[test]
fn shells_complete_every_command() {
    let instance = TestInstance::embedded();
    for (shell, mark) in [("bash", "_gable()"), ("zsh", "#compdef gable"), ("fish", "complete -c gable")] {
        let script = instance.gable(&["generate", "completions", shell]).finish().succeeded();
        assert!(script.contains(mark), "{shell}: {script}");
        for word in ["serve", "admin", "runner", "health", "dialect", "unregister"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let instance = TestInstance::embedded();
    let folder = instance.data().join("man");
    let path = folder.to_str().expect("a readable path");
    instance.gable(&["generate", "man", path]).finish().succeeded();
    let read = |page: &str| fs::read_to_string(folder.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
    let serve = read("gable-serve.1");
    for setting in ["dialect", r"ssh\-listen", r"max\-push\-size", "GABLE_DATABASE"] {
        assert!(serve.contains(setting), "no {setting} in gable-serve.1");
    }
    let first = read("gable.1");
    for command in ["serve", "admin", "runner", "health"] {
        assert!(first.contains(&format!(r"gable\-{command}(1)")), "no {command} in gable.1:\n{first}");
        read(&format!("gable-{command}.1"));
    }
    assert!(!first.contains("generate"), "{first}");
    read("gable-admin-user-create.1");
    instance.file("blocked", "");
    let refused = instance.gable(&["generate", "man", "blocked/man"]).finish().refused();
    assert!(refused.starts_with("cannot write manual pages to blocked/man: "), "{refused}");
}

#[test]
fn the_packaged_configuration_contains_only_known_settings() {
    let instance = TestInstance::embedded();
    let server = instance.start();
    let text = packaged("packaging/gable.toml");
    // All settings are enabled at once, to find renamed ones.
    let all: String =
        text.lines().filter_map(|line| line.strip_prefix('#').or(Some(line))).fold(String::new(), |mut all, line| {
            if line.contains(" = ") && !line.starts_with(' ') {
                all.push_str(line);
                all.push('\n');
            }
            all
        });
    assert!(all.lines().count() >= 8, "{all}");
    let file = instance.file("gable.toml", &all);
    // The flag overrides the file, which is still validated.
    let asked = instance.gable(&["health", "--config", &file, "--listen", server.address()]).finish();
    assert_eq!(asked.succeeded(), "ready\n");
    let wrong = instance.file("wrong.toml", &all.replace("listen = ", "listens = "));
    let refused = instance.gable(&["health", "--config", &wrong]).finish().refused();
    assert!(refused.contains("unknown field `listens`"), "{refused}");
}

#[test]
fn the_systemd_unit_matches_the_command_line() {
    let unit = packaged("packaging/gable.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/gable ")).expect("a start");
    assert_eq!(start, "serve --config /etc/gable/gable.toml");
    // The first start prints secrets to standard output, which must not reach the journal.
    assert!(unit.contains("\nStandardOutput=null\n") && unit.contains("\nType=notify\n"), "{unit}");
    let manifest = include_str!("../../../Cargo.toml");
    assert!(manifest.contains("[\"../../packaging/gable.toml\", \"etc/gable/\", \"640\"]"), "{manifest}");
}

#[test]
fn the_example_pipeline_is_valid() {
    let instance = TestInstance::embedded();
    let server = instance.start();
    let content = packaged("examples/ci/.gitlab-ci.yml");
    let linted = server.root().post("/api/v3/ci/lint", &json!({ "content": content }));
    assert_eq!((linted.status, linted.json()), (200, json!({ "status": "valid", "errors": [] })));
}

#[test]
fn the_documented_settings_match_the_binary() {
    let output = TestInstance::embedded().gable(&["generate", "settings"]).finish().succeeded();
    assert!(output.contains("| `listen` | `127.0.0.1:8080` | Listen address for HTTP |\n"), "{output}");
    let page = packaged("docs/configuration.md");
    assert!(
        page.contains(&output),
        "docs/configuration.md is not up to date; `gable generate settings` says\n{output}"
    );
}
