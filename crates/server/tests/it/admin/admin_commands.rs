//! `gable admin …` with and without a running server.

use std::{
    panic::catch_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{ProcessOutput, ServerProcess, TestInstance, WAIT_TIMEOUT, WriteLoad};

/// The number of rounds of commands during writes.
const COMMANDS_DURING_WRITES: usize = 6;
/// The number of server starts during commands.
const STARTS: usize = 10;

/// Returns the words of the line of a list that contains a word.
fn row(list: &str, word: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut rows = list.lines().map(words).filter(|words| words.iter().any(|held| held == word));
    rows.next().unwrap_or_else(|| panic!("no {word} in {list}"))
}

/// Creates a user.
fn create(instance: &TestInstance, username: &str) {
    instance.admin(&["user", "create", username, "--email", &format!("{username}@example.org")]);
}

/// Creates a token; returns its id and its secret.
fn create_token(instance: &TestInstance, username: &str) -> (String, String) {
    let output = instance.admin(&["token", "create", username]);
    let (first, secret) = output.trim_end().split_once('\n').expect("two lines");
    let id = first.split_whitespace().nth(2).expect("the id of the token");
    (id.to_owned(), secret.to_owned())
}

fn sign_in(server: &ServerProcess, login: &str, password: &str) -> u16 {
    server.anonymous().post("/api/v3/session", &json!({ "login": login, "password": password })).status
}

fn with_password(instance: &TestInstance, arguments: &[&str], password: &str) -> ProcessOutput {
    instance.gable(&["admin", "user"]).args(arguments).args(&["--password-stdin"]).finish_with_stdin(password)
}

/// Runs every command once and checks its output; returns the id of a task that will be retried.
fn run_every_command(instance: &TestInstance) -> String {
    let output = instance.admin(&["user", "create", "ann", "--email", "Ann@Example.org", "--name", "Ann Other"]);
    let (first, second) = output.split_once('\n').expect("two lines");
    assert_eq!(first, "created user ann with id 2");
    let password = second.trim_end().strip_prefix("the password is shown only once: ").expect("a password");
    assert_eq!(password.len(), 20, "{output}");
    let output =
        with_password(instance, &["create", "ben", "--email", "ben@example.org", "--admin"], "the word of ben\n");
    assert_eq!(output.succeeded(), "created user ben with id 3\n");

    assert_eq!(instance.admin(&["user", "block", "ann"]), "blocked user ann\n");
    let users = instance.admin(&["user", "list"]);
    assert_eq!(row(&users, "root"), ["1", "root", "active", "yes", "root@localhost"]);
    assert_eq!(row(&users, "ann"), ["2", "ann", "blocked", "no", "ann@example.org"]);
    assert_eq!(row(&users, "ben"), ["3", "ben", "active", "yes", "ben@example.org"]);
    assert_eq!(instance.admin(&["user", "unblock", "ann"]), "unblocked user ann\n");
    assert_eq!(row(&instance.admin(&["user", "list"]), "ann")[2], "active");

    let output = instance.admin(&["user", "password", "ben"]);
    let (first, second) = output.split_once('\n').expect("two lines");
    assert_eq!(first, "changed the password of user ben");
    assert!(second.starts_with("the password is shown only once: "), "{output}");
    let output = with_password(instance, &["password", "ann"], "the word of ann\r\n");
    assert_eq!(output.succeeded(), "changed the password of user ann\n");

    let output =
        instance.admin(&["token", "create", "ann", "--name", "reading", "--scope", "read_user", "--no-expiry"]);
    let (first, second) = output.split_once('\n').expect("two lines");
    assert_eq!(first, "created token 2 for user ann, valid until it is revoked; it is shown only once:");
    assert_eq!(second.trim_end().len(), 20, "{output}");
    let output = instance.admin(&["token", "create", "ann", "--scope", "api", "--scope", "read_user"]);
    let end = output.split("valid until ").nth(1).and_then(|rest| rest.split([';', ' ']).next()).expect("a day");
    assert_eq!(instance.admin(&["token", "revoke", "2"]), "revoked token 2\n");
    let tokens = instance.admin(&["token", "list", "ann"]);
    assert_eq!(row(&tokens, "reading")[2..], ["never", "revoked", "read_user", "reading"]);
    assert_eq!(row(&tokens, "gable")[2..5], ["never", end, "api,read_user"]);
    for secret in [second.trim_end(), output.lines().last().expect("a token")] {
        assert!(!tokens.contains(secret), "{tokens}");
    }

    let tasks = instance.admin(&["task", "list"]);
    assert_eq!(row(&tasks, "sweep_tokens")[1..4], ["sweep_tokens", "waiting", "0"]);
    instance.insert_dead_task("sweep_tokens", "", "it broke");
    let tasks = instance.admin(&["task", "list"]);
    let dead = row(&tasks, "broke");
    assert_eq!(dead[1..], ["sweep_tokens", "dead", "10", "1970-01-01T00:00:00Z", "it", "broke"]);
    assert_eq!(instance.admin(&["task", "retry", &dead[0]]), format!("task {} will be retried\n", dead[0]));
    dead[0].clone()
}

/// Waits until the server has finished a task.
fn wait_for_task(server: &ServerProcess, id: &str) {
    let (start, done) = (Instant::now(), format!("task done task.id={id} "));
    while !server.stderr().contains(&done) {
        assert!(start.elapsed() < WAIT_TIMEOUT, "task {id} is not done");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_command_works_without_a_server() {
    let instance = TestInstance::new();
    let server = instance.start();
    // All recurring tasks are enqueued by then.
    wait_for_task(&server, "1");
    server.stop();
    let task = run_every_command(&instance);
    let server = instance.start();
    assert_eq!(sign_in(&server, "ann", "the word of ann"), 201);
    assert_eq!(sign_in(&server, "ben", "the word of ben"), 401);
    wait_for_task(&server, &task);
}

#[test]
fn every_command_works_with_a_running_server() {
    let instance = TestInstance::new();
    let server = instance.start();
    let task = run_every_command(&instance);
    assert_eq!(sign_in(&server, "ann", "the word of ann"), 201);
    assert_eq!(sign_in(&server, "ben", "the word of ben"), 401);
    wait_for_task(&server, &task);
    let ann = server.root().get("/api/v3/users/2").json();
    assert_eq!((&ann["name"], &ann["email"]), (&json!("Ann Other"), &json!("ann@example.org")));
}

#[test]
fn no_administrator_is_created_if_there_is_another() {
    let instance = TestInstance::new();
    instance.serve().start().stop();
    instance.admin(&["user", "create", "boss", "--email", "boss@example.org", "--admin"]);
    let (_, token) = create_token(&instance, "boss");
    instance.execute("UPDATE users SET admin = FALSE, username = 'former' WHERE username = 'root'");
    let server = instance.serve().start();
    let boss = server.client(&token).get("/api/v3/user").json();
    assert_eq!((&boss["username"], &boss["is_admin"]), (&json!("boss"), &json!(true)));
    assert_eq!(server.stdout(), format!("gable ready on {}\n", server.url));
}

#[test]
fn commands_take_effect_on_a_running_server_at_once() {
    let instance = TestInstance::new();
    let server = instance.start();
    create(&instance, "ann");
    let (first, token) = create_token(&instance, "ann");
    let ann = server.client(&token);
    assert_eq!(ann.get("/api/v3/user").json()["username"], "ann");
    let gone = r#"401 {"message":"401 Unauthorized"}"#;

    instance.admin(&["user", "block", "ann"]);
    assert_eq!(ann.get("/api/v3/user").to_string(), gone);
    instance.admin(&["user", "unblock", "ann"]);
    assert_eq!(ann.get("/api/v3/user").status, 200);

    instance.admin(&["token", "revoke", &first]);
    assert_eq!(ann.get("/api/v3/user").to_string(), gone);
    let again = instance.admin_refused(&["token", "revoke", &first]);
    assert_eq!(again, format!("token {first} does not exist or is already revoked"));

    let reading = instance.admin(&["token", "create", "ann", "--scope", "read_user", "--expires-in-days", "1"]);
    let reader = server.client(reading.lines().last().expect("a token"));
    assert_eq!(reader.get("/api/v3/user").status, 200);
    assert_eq!(reader.post("/api/v3/user/emails", &json!({ "email": "more@example.org" })).to_string(), gone);

    let output = instance.admin(&["user", "password", "ann"]);
    let made = output.rsplit(' ').next().expect("a password").trim_end();
    assert_eq!(sign_in(&server, "ann", made), 201);
    with_password(&instance, &["password", "ann"], "another word").succeeded();
    assert_eq!((sign_in(&server, "ann", made), sign_in(&server, "ann", "another word")), (401, 201));
}

#[test]
fn errors_are_reported_in_one_line() {
    let instance = TestInstance::new();
    let server = instance.start();
    create(&instance, "ann");
    for command in [
        &["user", "block", "eve"][..],
        &["user", "unblock", "eve"],
        &["user", "password", "eve"],
        &["user", "delete", "eve"],
        &["user", "delete", "eve", "--yes"],
        &["token", "create", "eve"],
        &["token", "list", "eve"],
    ] {
        assert_eq!(instance.admin_refused(command), "user eve does not exist", "{command:?}");
    }
    for (command, refusal) in [
        (&["user", "create", "ann", "--email", "eve@example.org"][..], "Username has already been taken"),
        (&["user", "create", "ANN", "--email", "eve@example.org"], "username has already been taken"),
        (&["user", "create", "eve", "--email", "Ann@example.org"], "Email has already been taken"),
        (&["user", "create", "eve", "--email", "eve"], "email is invalid"),
        (&["user", "block", "root"], "Cannot block the last administrator"),
        (&["user", "delete", "root", "--yes"], "Cannot remove the last administrator"),
        (
            &["user", "delete", "ann"],
            "this deletes user ann with 0 personal projects and cannot be undone; confirm with --yes",
        ),
        (&["token", "create", "ann", "--scope", "sudo"], "unknown scope sudo; choose api or read_user"),
        (&["token", "create", "ann", "--scope", "api", "--scope", ""], "unknown scope ; choose api or read_user"),
        (&["token", "revoke", "99"], "token 99 does not exist or is already revoked"),
        (&["task", "retry", "99"], "task 99 does not exist or has not failed"),
        (&["task", "retry", "1"], "task 1 does not exist or has not failed"),
    ] {
        assert_eq!(instance.admin_refused(command), refusal, "{command:?}");
    }
    for (password, refusal) in [
        ("seven77", "password is too short (minimum is 8 characters)"),
        ("", "password can't be blank"),
        ("\n", "password can't be blank"),
        (&"x".repeat(129), "password is too long (maximum is 128 characters)"),
    ] {
        let create = with_password(&instance, &["create", "eve", "--email", "eve@example.org"], password);
        assert_eq!(create.refused(), refusal);
        assert_eq!(with_password(&instance, &["password", "ann"], password).refused(), refusal);
    }
    let users = instance.admin(&["user", "list"]);
    assert_eq!(users.lines().count(), 3, "{users}");
    assert_eq!(server.root().get("/api/v3/user").status, 200);
}

#[test]
fn a_deleted_user_is_gone_with_tokens_and_personal_projects() {
    let instance = TestInstance::new();
    let server = instance.start();
    create(&instance, "ann");
    let (_, token) = create_token(&instance, "ann");
    let ann = server.client(&token);
    assert_eq!(ann.post("/api/v3/projects", &json!({ "name": "x", "visibility_level": 20 })).status, 201);
    assert_eq!(ann.post("/api/v3/groups", &json!({ "name": "acme", "path": "acme" })).status, 201);
    let refusal = instance.admin_refused(&["user", "delete", "ann", "--yes"]);
    assert_eq!(refusal, "You must transfer ownership or delete groups before you can remove user");
    assert_eq!(server.root().try_delete("/api/v3/groups/acme").expect("a response").status, 200);
    let refusal = instance.admin_refused(&["user", "delete", "ann"]);
    assert_eq!(refusal, "this deletes user ann with 1 personal project and cannot be undone; confirm with --yes");
    assert_eq!(ann.get("/api/v3/projects/1").status, 200);
    assert_eq!(instance.admin(&["user", "delete", "ann", "--yes"]), "deleted user ann with 1 personal project\n");
    assert_eq!(ann.get("/api/v3/user").to_string(), r#"401 {"message":"401 Unauthorized"}"#);
    assert_eq!(server.root().get("/api/v3/projects/1").status, 404);
    assert_eq!(instance.admin_refused(&["user", "delete", "ann", "--yes"]), "user ann does not exist");
    // The name is free again.
    create(&instance, "ann");
}

#[test]
fn a_password_change_by_the_operator_ends_sessions_and_keeps_personal_tokens() {
    let instance = TestInstance::new();
    let server = instance.start();
    let session = |password: &str| {
        let response = server.anonymous().post("/api/v3/session", &json!({ "login": "ann", "password": password }));
        assert_eq!(response.status, 201, "{response}");
        server.client(response.json()["private_token"].as_str().expect("a token"))
    };
    with_password(&instance, &["create", "ann", "--email", "ann@example.org"], "the first word").succeeded();
    let (_, token) = create_token(&instance, "ann");
    let (personal, old) = (server.client(&token), session("the first word"));
    assert_eq!(old.get("/api/v3/user").status, 200);
    let tokens = instance.admin(&["token", "list", "ann"]);
    assert!(tokens.lines().any(|line| line.ends_with("  session (revoked when the password changes)")), "{tokens}");
    with_password(&instance, &["password", "ann"], "the second word").succeeded();
    assert_eq!(old.get("/api/v3/user").to_string(), r#"401 {"message":"401 Unauthorized"}"#);
    assert_eq!(
        (personal.get("/api/v3/user").status, session("the second word").get("/api/v3/user").status),
        (200, 200)
    );
}

#[test]
fn an_incomplete_command_is_explained() {
    let instance = TestInstance::new();
    for (command, complaint) in [
        (&["user", "create", "ann"][..], "--email <EMAIL>"),
        (&["token", "create", "ann", "--expires-in-days", "0"], "0 is not in 1..=36500"),
        (&["token", "create", "ann", "--expires-in-days", "1", "--no-expiry"], "cannot be used with"),
        (&["token", "revoke", "first"], "invalid value 'first' for '<ID>'"),
    ] {
        let finished = instance.gable(&["admin"]).args(command).finish();
        assert_eq!((finished.status, finished.stdout.as_str()), (Some(2), ""), "{}", finished.stderr);
        assert!(finished.stderr.contains(complaint), "{}", finished.stderr);
    }
    assert!(!instance.data().exists(), "nothing is created for an invalid command");
}

#[test]
fn a_dead_task_can_be_retried_while_its_successor_is_pending() {
    let instance = TestInstance::new();
    let server = instance.start();
    wait_for_task(&server, "3");
    server.stop();
    instance.execute("UPDATE jobs SET dead_at = 1, attempts = 10, last_error = 'it broke'");
    // The next start enqueues the recurring tasks again, beginning with this id.
    let server = instance.start();
    wait_for_task(&server, "8");
    let tasks = instance.admin(&["task", "list"]);
    let dead = row(&tasks, "sweep_tokens");
    instance.admin(&["task", "retry", &dead[0]]);
}

#[test]
fn commands_succeed_during_many_writes() {
    let instance = TestInstance::new();
    let server = instance.start();
    let load = WriteLoad::start(&server, "load");
    for number in 0..COMMANDS_DURING_WRITES {
        let username = format!("user-{number}");
        create(&instance, &username);
        let (token, _) = create_token(&instance, &username);
        instance.admin(&["user", "block", &username]);
        instance.admin(&["token", "revoke", &token]);
        assert_eq!(row(&instance.admin(&["user", "list"]), &username)[2], "blocked");
    }
    let acknowledged = load.stop();
    assert!(acknowledged.len() > COMMANDS_DURING_WRITES, "too few writes: {}", acknowledged.len());
    let total = server.root().get("/api/v3/user/emails").header("x-total").map(str::to_owned);
    assert_eq!(total, Some(acknowledged.len().to_string()));
    let log = server.stop().stderr;
    assert!(!log.contains("ERROR") && !log.contains("locked"), "{log}");
}

#[test]
fn concurrent_commands_succeed() {
    let instance = TestInstance::new();
    instance.start().stop();
    thread::scope(|scope| {
        for number in 0..COMMANDS_DURING_WRITES {
            let instance = &instance;
            scope.spawn(move || create(instance, &format!("user-{number}")));
        }
    });
    assert_eq!(instance.admin(&["user", "list"]).lines().count(), COMMANDS_DURING_WRITES + 2);
}

#[test]
fn commands_do_not_prevent_a_server_from_starting() {
    let instance = TestInstance::new();
    instance.start().stop();
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped.load(Ordering::SeqCst) {
                instance.admin(&["user", "list"]);
            }
        });
        let starts = catch_unwind(|| {
            for _ in 0..STARTS {
                instance.start().stop();
            }
        });
        stopped.store(true, Ordering::SeqCst);
        starts.expect("every start succeeds");
    });
}
