//! What packages rely on: that a server tells whether it serves, to monitors and to systemd, and that the files which
//! come along fit the binary.

use std::{fs, net::TcpListener, os::unix::net::UnixDatagram, path::Path};

use serde_json::json;

use crate::admin::binary::{Home, PATIENCE};

/// A file that comes along.
fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_server_is_asked_whether_it_serves() {
    let home = Home::new();
    let server = home.start();
    assert_eq!(home.gable(&["health", "--url", &server.url]).finish().succeeded(), "ready\n");
    assert_eq!(home.gable(&["health", "--listen", server.address()]).finish().succeeded(), "ready\n");
    // As in a container, where the server listens everywhere.
    let (_, port) = server.address().split_once(':').expect("a port");
    let everywhere = format!("0.0.0.0:{port}");
    assert_eq!(home.gable(&["health"]).env("GABLE_LISTEN", &everywhere).finish().succeeded(), "ready\n");
    let file = home.file("gable.toml", &format!("listen = \"{}\"\n", server.address()));
    assert_eq!(home.gable(&["health", "--config", &file]).finish().succeeded(), "ready\n");
    let elsewhere = home.gable(&["health", "--url", &format!("{}/nowhere", server.url)]).finish().refused();
    assert_eq!(elsewhere, format!("{}/nowhere answered with 404; is it a gable?", server.url));
}

#[test]
fn whoever_does_not_answer_is_not_ready() {
    let home = Home::embedded();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // The system takes the connection; nobody ever says anything.
    let silent = home.gable(&["health", "--url", &url, "--within", "1"]).finish().refused();
    assert_eq!(silent, format!("no answer from {url} within 1s"));
    drop(listener);
    let closed = home.gable(&["health", "--url", &url]).finish().refused();
    assert!(closed.starts_with(&format!("{url} cannot be reached: ")), "{closed}");
    let secret = home.gable(&["health", "--url", "http://ann:hunter2@127.0.0.1:9"]).finish().refused();
    assert!(!secret.contains("hunter2"), "{secret}");
}

#[test]
fn systemd_is_told_when_the_server_serves_and_when_it_stops() {
    let home = Home::new();
    let path = home.file("notify", "");
    fs::remove_file(&path).expect("a free name");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let hear = || {
        let mut message = [0; 256];
        let length = socket.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).trim().to_owned()
    };
    let server = home.serve().with_known_root().env("NOTIFY_SOCKET", &path).start();
    assert_eq!(hear(), "READY=1");
    server.stop().succeeded();
    assert_eq!(hear(), "STOPPING=1");
}

#[test]
fn shells_complete_every_command() {
    let home = Home::embedded();
    for (shell, mark) in [("bash", "_gable()"), ("zsh", "#compdef gable"), ("fish", "complete -c gable")] {
        let script = home.gable(&["generate", "completions", shell]).finish().succeeded();
        assert!(script.contains(mark), "{shell}: {script}");
        for word in ["serve", "admin", "runner", "health", "dialect", "unregister"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let home = Home::embedded();
    let folder = home.data().join("man");
    let place = folder.to_str().expect("a readable path");
    home.gable(&["generate", "man", place]).finish().succeeded();
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
    home.file("blocked", "");
    let refused = home.gable(&["generate", "man", "blocked/man"]).finish().refused();
    assert!(refused.starts_with("cannot write manual pages to blocked/man: "), "{refused}");
}

#[test]
fn the_packaged_configuration_holds_only_settings_that_there_are() {
    let home = Home::embedded();
    let server = home.start();
    let text = packaged("packaging/gable.toml");
    // Everything in it at once, so that a setting that was renamed is found here.
    let all: String =
        text.lines().filter_map(|line| line.strip_prefix('#').or(Some(line))).fold(String::new(), |mut all, line| {
            if line.contains(" = ") && !line.starts_with(' ') {
                all.push_str(line);
                all.push('\n');
            }
            all
        });
    assert!(all.lines().count() >= 8, "{all}");
    let file = home.file("gable.toml", &all);
    // A flag wins over the file, and the file is read all the same.
    let asked = home.gable(&["health", "--config", &file, "--listen", server.address()]).finish();
    assert_eq!(asked.succeeded(), "ready\n");
    let wrong = home.file("wrong.toml", &all.replace("listen = ", "listens = "));
    let refused = home.gable(&["health", "--config", &wrong]).finish().refused();
    assert!(refused.contains("unknown field `listens`"), "{refused}");
}

#[test]
fn the_unit_starts_what_there_is() {
    let unit = packaged("packaging/gable.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/gable ")).expect("a start");
    assert_eq!(start, "serve --config /etc/gable/gable.toml");
    // The first start prints secrets to standard output, and a journal keeps everything.
    assert!(unit.contains("\nStandardOutput=null\n") && unit.contains("\nType=notify\n"), "{unit}");
    let manifest = include_str!("../../../Cargo.toml");
    assert!(manifest.contains("[\"../../packaging/gable.toml\", \"etc/gable/\", \"640\"]"), "{manifest}");
}

#[test]
fn the_example_of_a_pipeline_is_in_order() {
    let home = Home::embedded();
    let server = home.start();
    let content = packaged("examples/ci/.gitlab-ci.yml");
    let judged = server.root().post("/api/v3/ci/lint", &json!({ "content": content }));
    assert_eq!((judged.status, judged.json()), (200, json!({ "status": "valid", "errors": [] })));
}

#[test]
fn the_page_of_settings_is_what_the_binary_says() {
    let said = Home::embedded().gable(&["generate", "settings"]).finish().succeeded();
    assert!(said.contains("| `listen` | `127.0.0.1:8080` | Where to listen for HTTP |\n"), "{said}");
    let page = packaged("docs/configuration.md");
    assert!(page.contains(&said), "docs/configuration.md is not up to date; `gable generate settings` says\n{said}");
}
