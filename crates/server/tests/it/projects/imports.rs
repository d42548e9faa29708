//! Imports from servers that mean no good: whose slots they take, how much they bring, and what ends them.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use store::imports::Requester;
use testkit::TestForge;

use crate::admin::binary::{Client, Home, PATIENCE};

/// A server whose answers have no end, and come just quickly enough not to be given up; tells of each connection by its path
/// when it opens and when it closes.
fn endless_server() -> (String, Receiver<(String, bool)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (tell, told) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let tell = tell.clone();
            thread::spawn(move || {
                let mut line = String::new();
                let _ = BufReader::new(&mut stream).read_line(&mut line);
                let path = line.split(['/', '.']).nth(1).unwrap_or_default().to_owned();
                let _ = tell.send((path.clone(), true));
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n";
                let mut sent = stream.write_all(head.as_bytes());
                while sent.is_ok() {
                    thread::sleep(Duration::from_millis(200));
                    sent = stream.write_all(&[b'0'; 4000]);
                }
                let _ = tell.send((path, false));
            });
        }
    });
    (format!("http://{address}"), told)
}

fn wait_for(told: &Receiver<(String, bool)>, path: &str, opens: bool) {
    let expected = (path.to_owned(), opens);
    let start = Instant::now();
    loop {
        let heard = told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("nothing is heard of {expected:?}"));
        if heard == expected {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "no {expected:?}");
    }
}

fn import(client: &Client, name: &str, url: &str, sudo: &str) -> Value {
    let made = client.post(&format!("/api/v3/projects?sudo={sudo}"), &json!({ "name": name, "import_url": url }));
    assert_eq!(made.status, 201, "{made}");
    made.json()
}

fn shown(client: &Client, project: &Value) -> Value {
    client.get(&format!("/api/v3/projects/{}", project["id"])).json()
}

fn wait_until(client: &Client, project: &Value, state: &str) -> Value {
    let start = Instant::now();
    loop {
        let shown = shown(client, project);
        if shown["import_status"] == state {
            return shown;
        }
        assert!(start.elapsed() < PATIENCE, "not {state}: {shown}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Makes a project that everybody can read, with one file; answers its URL.
fn make_source(client: &Client, address: &str, content: &str) -> String {
    let made = client.post("/api/v3/projects", &json!({ "name": "source", "visibility_level": 20 }));
    assert_eq!(made.status, 201, "{made}");
    let file = json!({ "file_path": "a", "branch_name": "master", "content": content, "commit_message": "a" });
    let written = client.post(&format!("/api/v3/projects/{}/repository/files", made.json()["id"]), &file);
    assert_eq!(written.status, 201, "{written}");
    format!("http://{address}/root/source.git")
}

#[test]
fn servers_without_end_take_the_slots_of_one_user_only_and_removing_the_project_frees_them() {
    let home = Home::new();
    let server = home.serve().args(&["--allow-local-network"]).with_known_root().start();
    let root = server.root();
    for name in ["ann", "bob", "eve"] {
        let user = json!({ "username": name, "name": name, "email": format!("{name}@example.org"),
            "password": "correct horse battery", "confirm": false });
        assert_eq!(root.post("/api/v3/users", &user).status, 201);
    }
    let source = make_source(&root, server.address(), "a");
    let (endless, told) = endless_server();
    let hanging: Vec<Value> = ["one", "two", "three"]
        .iter()
        .map(|name| {
            let project = import(&root, name, &format!("{endless}/{name}.git"), "ann");
            if *name != "three" {
                wait_for(&told, name, true);
            }
            project
        })
        .collect();
    // Somebody else finds a slot.
    let copy = import(&root, "copy", &source, "bob");
    assert_eq!(wait_until(&root, &copy, "finished")["default_branch"], "master");
    assert_eq!(shown(&root, &hanging[0])["import_status"], "started");
    assert_eq!(shown(&root, &hanging[2])["import_status"], "scheduled", "two at once are enough for one user");
    // Whoever removes the project ends the import, and the next one begins.
    let removed = root.try_delete(&format!("/api/v3/projects/{}", hanging[0]["id"])).expect("an answer");
    assert_eq!(removed.status, 200, "{removed}");
    wait_for(&told, "one", false);
    wait_for(&told, "three", true);
    // A user who is blocked gets nothing any more.
    let project = import(&root, "four", &format!("{endless}/four.git"), "eve");
    wait_for(&told, "four", true);
    let eve = root.get("/api/v3/users?username=eve").json()[0]["id"].clone();
    let blocked = root.try_put(&format!("/api/v3/users/{eve}/block"), &json!({})).expect("an answer");
    assert_eq!(blocked.status, 200, "{blocked}");
    wait_for(&told, "four", false);
    let failed = wait_until(&root, &project, "failed");
    assert_eq!(failed["import_error"], "The user who asked for it is blocked.", "{failed}");
    // A server that stops waits for none of them, and the next one begins them anew.
    server.stop().succeeded();
    let mut closed = vec![told.recv_timeout(PATIENCE).expect("closed"), told.recv_timeout(PATIENCE).expect("closed")];
    closed.sort();
    assert_eq!(closed, [("three".to_owned(), false), ("two".to_owned(), false)]);
    let server = home.serve().args(&["--allow-local-network"]).with_known_root().start();
    wait_for(&told, "two", true);
    server.stop().succeeded();
}

#[test]
fn a_repository_that_is_larger_than_a_push_may_be_is_not_imported() {
    let theirs = Home::new();
    let other = theirs.start();
    let mut state = 1_u32;
    // Nothing that compresses well.
    let content: String = (0..400_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'!' + u8::try_from((state >> 24) % 90).expect("small"))
        })
        .collect();
    let source = make_source(&other.root(), other.address(), &content);
    let home = Home::new();
    let server = home.serve().args(&["--allow-local-network", "--max-push-size", "100000"]).with_known_root().start();
    let root = server.root();
    let failed = wait_until(&root, &import(&root, "copy", &source, "root"), "failed");
    let told = "The repository could not be fetched: it exceeds the limit for pushes of this server (max-push-size).";
    assert_eq!(failed["import_error"], told, "{failed}");
    assert_eq!(failed["default_branch"], Value::Null);
    server.stop().succeeded();
    // Where there is room for it, it comes.
    let server = home.serve().args(&["--allow-local-network"]).with_known_root().start();
    let root = server.root();
    let again =
        root.try_put(&format!("/api/v3/projects/{}", failed["id"]), &json!({ "name": "copy", "import_url": source }));
    assert_eq!(again.expect("an answer").status, 200);
    assert_eq!(wait_until(&root, &failed, "finished")["default_branch"], "master");
}

#[tokio::test]
async fn an_import_counts_for_the_user_who_asks_for_it_and_not_for_the_creator_of_the_project() {
    let forge = TestForge::start().await;
    let (ann, bob, root) = (forge.user("ann").await, forge.user("bob").await, forge.admin().await);
    let group = bob.make("/groups", json!({ "name": "crew", "path": "crew" })).await;
    bob.make(&format!("/groups/{group}/members"), json!({ "user_id": ann.id, "access_level": 40 })).await;
    let project = ann.make("/projects", json!({ "name": "x", "namespace_id": group })).await;
    let requester = || forge.in_one_go(|db| store::imports::requester(db, project).expect("asked"));
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
