//! Imports from malicious servers: slots, size limits and cancellation.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use model::ProjectId;
use serde_json::{Value, json};
use store::imports::Requester;
use testkit::TestForge;

use crate::support::{HttpClient, TestInstance, WAIT_TIMEOUT};

/// Starts a server whose responses never end, and arrive just fast enough not to time out; reports the path of each
/// connection when it opens and when it closes.
fn endless_server() -> (String, Receiver<(String, bool)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, connections) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut line = String::new();
                let _ = BufReader::new(&mut stream).read_line(&mut line);
                let path = line.split(['/', '.']).nth(1).unwrap_or_default().to_owned();
                let _ = sender.send((path.clone(), true));
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n";
                let mut sent = stream.write_all(head.as_bytes());
                while sent.is_ok() {
                    thread::sleep(Duration::from_millis(200));
                    sent = stream.write_all(&[b'0'; 4000]);
                }
                let _ = sender.send((path, false));
            });
        }
    });
    (format!("http://{address}"), connections)
}

fn wait_for(connections: &Receiver<(String, bool)>, path: &str, opens: bool) {
    let expected = (path.to_owned(), opens);
    let start = Instant::now();
    loop {
        let connection =
            connections.recv_timeout(WAIT_TIMEOUT).unwrap_or_else(|_| panic!("no connection {expected:?}"));
        if connection == expected {
            return;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "no {expected:?}");
    }
}

fn import(client: &HttpClient, name: &str, url: &str, sudo: &str) -> Value {
    let created = client.post(&format!("/api/v3/projects?sudo={sudo}"), &json!({ "name": name, "import_url": url }));
    assert_eq!(created.status, 201, "{created}");
    created.json()
}

fn get_project(client: &HttpClient, project: &Value) -> Value {
    client.get(&format!("/api/v3/projects/{}", project["id"])).json()
}

fn wait_until(client: &HttpClient, project: &Value, state: &str) -> Value {
    let start = Instant::now();
    loop {
        let current = get_project(client, project);
        if current["import_status"] == state {
            return current;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "not {state}: {current}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Creates a public project with one file; returns its URL.
fn make_source(client: &HttpClient, address: &str, content: &str) -> String {
    let created = client.post("/api/v3/projects", &json!({ "name": "source", "visibility_level": 20 }));
    assert_eq!(created.status, 201, "{created}");
    let file = json!({ "file_path": "a", "branch_name": "master", "content": content, "commit_message": "a" });
    let committed = client.post(&format!("/api/v3/projects/{}/repository/files", created.json()["id"]), &file);
    assert_eq!(committed.status, 201, "{committed}");
    format!("http://{address}/root/source.git")
}

#[test]
fn endless_imports_use_the_slots_of_one_user_only_and_deleting_the_project_frees_them() {
    let instance = TestInstance::new();
    let server = instance.serve().args(&["--allow-local-network"]).with_root_credentials().start();
    let root = server.root();
    for name in ["ann", "bob", "eve"] {
        let user = json!({ "username": name, "name": name, "email": format!("{name}@example.org"),
            "password": "correct horse battery", "confirm": false });
        assert_eq!(root.post("/api/v3/users", &user).status, 201);
    }
    let source = make_source(&root, server.address(), "a");
    let (endless, connections) = endless_server();
    let hanging: Vec<Value> = ["one", "two", "three"]
        .iter()
        .map(|name| {
            let project = import(&root, name, &format!("{endless}/{name}.git"), "ann");
            if *name != "three" {
                wait_for(&connections, name, true);
            }
            project
        })
        .collect();
    // Another user gets a slot.
    let copy = import(&root, "copy", &source, "bob");
    assert_eq!(wait_until(&root, &copy, "finished")["default_branch"], "master");
    assert_eq!(get_project(&root, &hanging[0])["import_status"], "started");
    assert_eq!(get_project(&root, &hanging[2])["import_status"], "scheduled", "two at once are enough for one user");
    // Deleting the project cancels the import, and the next one starts.
    let removed = root.try_delete(&format!("/api/v3/projects/{}", hanging[0]["id"])).expect("an answer");
    assert_eq!(removed.status, 200, "{removed}");
    wait_for(&connections, "one", false);
    wait_for(&connections, "three", true);
    // Blocking the user cancels the import.
    let project = import(&root, "four", &format!("{endless}/four.git"), "eve");
    wait_for(&connections, "four", true);
    let eve = root.get("/api/v3/users?username=eve").json()[0]["id"].clone();
    let blocked = root.try_put(&format!("/api/v3/users/{eve}/block"), &json!({})).expect("an answer");
    assert_eq!(blocked.status, 200, "{blocked}");
    wait_for(&connections, "four", false);
    let failed = wait_until(&root, &project, "failed");
    assert_eq!(failed["import_error"], "the user who requested the import is blocked", "{failed}");
    // Shutdown does not wait for imports; they start again with the server.
    server.stop().succeeded();
    let mut closed = vec![
        connections.recv_timeout(WAIT_TIMEOUT).expect("closed"),
        connections.recv_timeout(WAIT_TIMEOUT).expect("closed"),
    ];
    closed.sort();
    assert_eq!(closed, [("three".to_owned(), false), ("two".to_owned(), false)]);
    let server = instance.serve().args(&["--allow-local-network"]).with_root_credentials().start();
    wait_for(&connections, "two", true);
    server.stop().succeeded();
}

#[test]
fn a_repository_above_the_push_size_limit_is_not_imported() {
    let theirs = TestInstance::new();
    let other = theirs.start();
    let mut state = 1_u32;
    // Content that does not compress well.
    let content: String = (0..400_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + u8::try_from((state >> 24) % 90).expect("small"))
        })
        .collect();
    let source = make_source(&other.root(), other.address(), &content);
    let instance = TestInstance::new();
    let server =
        instance.serve().args(&["--allow-local-network", "--max-push-size", "100000"]).with_root_credentials().start();
    let root = server.root();
    let failed = wait_until(&root, &import(&root, "copy", &source, "root"), "failed");
    let error = "cannot fetch the repository: it exceeds the push size limit of this server (max-push-size)";
    assert_eq!(failed["import_error"], error, "{failed}");
    assert_eq!(failed["default_branch"], Value::Null);
    server.stop().succeeded();
    // Without the limit it is imported.
    let server = instance.serve().args(&["--allow-local-network"]).with_root_credentials().start();
    let root = server.root();
    let again =
        root.try_put(&format!("/api/v3/projects/{}", failed["id"]), &json!({ "name": "copy", "import_url": source }));
    assert_eq!(again.expect("an answer").status, 200);
    assert_eq!(wait_until(&root, &failed, "finished")["default_branch"], "master");
}

#[tokio::test]
async fn an_import_counts_for_the_requester_and_not_for_the_creator_of_the_project() {
    let forge = TestForge::start().await;
    let (ann, bob, root) = (forge.user("ann").await, forge.user("bob").await, forge.admin().await);
    let group = bob.make("/groups", json!({ "name": "crew", "path": "crew" })).await;
    bob.make(&format!("/groups/{group}/members"), json!({ "user_id": ann.id.get(), "access_level": 40 })).await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "x", "namespace_id": group })).await);
    let requester = || forge.in_transaction(|db| store::imports::requester(db, project).expect("asked"));
    assert_eq!(requester(), None);
    let body = json!({ "name": "x", "import_url": "http://example.com/x.git" });
    let answer = bob.put(&format!("/projects/{project}"), body).await;
    assert_eq!(answer.code(), 200, "{answer}");
    assert_eq!(requester(), Some(Requester { user: bob.id, is_blocked: false }));
    assert_eq!(root.put(&format!("/users/{}/block", ann.id), json!({})).await.code(), 200);
    assert_eq!(requester(), Some(Requester { user: bob.id, is_blocked: false }));
    assert_eq!(root.put(&format!("/users/{}/block", bob.id), json!({})).await.code(), 200);
    assert_eq!(requester(), Some(Requester { user: bob.id, is_blocked: true }));
}
