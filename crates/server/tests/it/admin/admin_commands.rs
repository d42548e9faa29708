//! `gable admin …` on a data folder, without a server and beside one.

use std::{
    panic::catch_unwind,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::admin::binary::{Finished, Home, PATIENCE, Server, Storm};

/// How many rounds of commands a storm has to let through.
const COMMANDS_IN_A_STORM: usize = 6;
/// How often a server starts among commands.
const STARTS: usize = 10;

/// The words of the line of a list that holds this one.
fn row(list: &str, word: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut rows = list.lines().map(words).filter(|words| words.iter().any(|held| held == word));
    rows.next().unwrap_or_else(|| panic!("no {word} in {list}"))
}

/// Creates a user who may come in.
fn create(home: &Home, username: &str) {
    home.admin(&["user", "create", username, "--email", &format!("{username}@example.org")]);
}

/// Makes a token and answers its number and the token itself.
fn token_of(home: &Home, username: &str) -> (String, String) {
    let said = home.admin(&["token", "create", username]);
    let (first, secret) = said.trim_end().split_once('\n').expect("two lines");
    let number = first.split_whitespace().nth(2).expect("the number of the token");
    (number.to_owned(), secret.to_owned())
}

fn sign_in(server: &Server, login: &str, password: &str) -> u16 {
    server.anonymous().post("/api/v3/session", &json!({ "login": login, "password": password })).status
}

fn with_password(home: &Home, arguments: &[&str], password: &str) -> Finished {
    home.gable(&["admin", "user"]).args(arguments).args(&["--password-stdin"]).finish_reading(password)
}

/// Every command once, with what it says. A server has made the data; whether it still runs makes no difference.
/// Runs them all; answers the number of a job that waits again.
fn run_every_command(home: &Home) -> String {
    let said = home.admin(&["user", "create", "ann", "--email", "Ann@Example.org", "--name", "Ann Other"]);
    let (first, second) = said.split_once('\n').expect("two lines");
    assert_eq!(first, "created user ann with id 2");
    let password = second.trim_end().strip_prefix("the password is shown this once: ").expect("a password");
    assert_eq!(password.len(), 20, "{said}");
    let said = with_password(home, &["create", "ben", "--email", "ben@example.org", "--admin"], "the word of ben\n");
    assert_eq!(said.succeeded(), "created user ben with id 3\n");

    assert_eq!(home.admin(&["user", "block", "ann"]), "blocked user ann\n");
    let users = home.admin(&["user", "list"]);
    assert_eq!(row(&users, "root"), ["1", "root", "active", "yes", "root@localhost"]);
    assert_eq!(row(&users, "ann"), ["2", "ann", "blocked", "no", "ann@example.org"]);
    assert_eq!(row(&users, "ben"), ["3", "ben", "active", "yes", "ben@example.org"]);
    assert_eq!(home.admin(&["user", "unblock", "ann"]), "unblocked user ann\n");
    assert_eq!(row(&home.admin(&["user", "list"]), "ann")[2], "active");

    let said = home.admin(&["user", "password", "ben"]);
    let (first, second) = said.split_once('\n').expect("two lines");
    assert_eq!(first, "changed the password of user ben");
    assert!(second.starts_with("the password is shown this once: "), "{said}");
    let said = with_password(home, &["password", "ann"], "the word of ann\r\n");
    assert_eq!(said.succeeded(), "changed the password of user ann\n");

    let said = home.admin(&["token", "create", "ann", "--name", "reading", "--scope", "read_user", "--no-expiry"]);
    let (first, second) = said.split_once('\n').expect("two lines");
    assert_eq!(first, "created token 2 for user ann; it lasts until it is revoked and is shown this once:");
    assert_eq!(second.trim_end().len(), 20, "{said}");
    let said = home.admin(&["token", "create", "ann", "--scope", "api", "--scope", "read_user"]);
    let end = said.split("it lasts until ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a day");
    assert_eq!(home.admin(&["token", "revoke", "2"]), "revoked token 2\n");
    let tokens = home.admin(&["token", "list", "ann"]);
    assert_eq!(row(&tokens, "reading")[2..], ["never", "revoked", "read_user", "reading"]);
    assert_eq!(row(&tokens, "operator")[2..5], ["never", end, "api,read_user"]);
    for secret in [second.trim_end(), said.lines().last().expect("a token")] {
        assert!(!tokens.contains(secret), "{tokens}");
    }

    let jobs = home.admin(&["job", "list"]);
    assert_eq!(row(&jobs, "sweep_tokens")[1..4], ["sweep_tokens", "waiting", "0"]);
    home.execute(DEAD_JOB);
    let jobs = home.admin(&["job", "list"]);
    let dead = row(&jobs, "broke");
    assert_eq!(dead[1..], ["sweep_tokens", "dead", "10", "1970-01-01T00:00:00Z", "it", "broke"]);
    assert_eq!(home.admin(&["job", "retry", &dead[0]]), format!("job {} will be tried again\n", dead[0]));
    dead[0].clone()
}

const DEAD_JOB: &str = "INSERT INTO jobs (kind, payload, attempts, run_at, dead_at, last_error, created_at) \
                        VALUES ('sweep_tokens', '', 10, 0, 1, 'it broke', 0)";

/// Waits until the server has done a job.
fn wait_for_job(server: &Server, id: &str) {
    let (start, done) = (Instant::now(), format!("job done job.id={id} "));
    while !server.stderr().contains(&done) {
        assert!(start.elapsed() < PATIENCE, "job {id} is not done");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_command_works_on_a_folder_that_nobody_serves() {
    let home = Home::new();
    let server = home.start();
    // Then all recurring jobs are written down.
    wait_for_job(&server, "1");
    server.stop();
    let job = run_every_command(&home);
    let server = home.start();
    assert_eq!(sign_in(&server, "ann", "the word of ann"), 201);
    assert_eq!(sign_in(&server, "ben", "the word of ben"), 401);
    wait_for_job(&server, &job);
}

#[test]
fn every_command_works_beside_a_server() {
    let home = Home::new();
    let server = home.start();
    let job = run_every_command(&home);
    assert_eq!(sign_in(&server, "ann", "the word of ann"), 201);
    assert_eq!(sign_in(&server, "ben", "the word of ben"), 401);
    wait_for_job(&server, &job);
    let ann = server.root().get("/api/v3/users/2").json();
    assert_eq!((&ann["name"], &ann["email"]), (&json!("Ann Other"), &json!("ann@example.org")));
}

#[test]
fn where_there_is_another_administrator_none_is_created() {
    let home = Home::new();
    home.serve().start().stop();
    home.admin(&["user", "create", "boss", "--email", "boss@example.org", "--admin"]);
    let (_, token) = token_of(&home, "boss");
    home.execute("UPDATE users SET admin = FALSE, username = 'former' WHERE username = 'root'");
    let server = home.serve().start();
    let boss = server.client(&token).get("/api/v3/user").json();
    assert_eq!((&boss["username"], &boss["is_admin"]), (&json!("boss"), &json!(true)));
    assert_eq!(server.stdout(), format!("gable ready on {}\n", server.url));
}

#[test]
fn a_running_server_obeys_at_once() {
    let home = Home::new();
    let server = home.start();
    create(&home, "ann");
    let (first, token) = token_of(&home, "ann");
    let ann = server.client(&token);
    assert_eq!(ann.get("/api/v3/user").json()["username"], "ann");
    let gone = r#"401 {"message":"401 Unauthorized"}"#;

    home.admin(&["user", "block", "ann"]);
    assert_eq!(ann.get("/api/v3/user").to_string(), gone);
    home.admin(&["user", "unblock", "ann"]);
    assert_eq!(ann.get("/api/v3/user").status, 200);

    home.admin(&["token", "revoke", &first]);
    assert_eq!(ann.get("/api/v3/user").to_string(), gone);
    let again = home.admin_refused(&["token", "revoke", &first]);
    assert_eq!(again, format!("there is no token {first} that could be revoked"));

    let reading = home.admin(&["token", "create", "ann", "--scope", "read_user", "--expires-in-days", "1"]);
    let reader = server.client(reading.lines().last().expect("a token"));
    assert_eq!(reader.get("/api/v3/user").status, 200);
    assert_eq!(reader.post("/api/v3/user/emails", &json!({ "email": "more@example.org" })).to_string(), gone);

    let said = home.admin(&["user", "password", "ann"]);
    let made = said.rsplit(' ').next().expect("a password").trim_end();
    assert_eq!(sign_in(&server, "ann", made), 201);
    with_password(&home, &["password", "ann"], "another word").succeeded();
    assert_eq!((sign_in(&server, "ann", made), sign_in(&server, "ann", "another word")), (401, 201));
}

#[test]
fn what_cannot_be_done_is_told_in_one_sentence() {
    let home = Home::new();
    let server = home.start();
    create(&home, "ann");
    for command in [
        &["user", "block", "eve"][..],
        &["user", "unblock", "eve"],
        &["user", "password", "eve"],
        &["user", "delete", "eve"],
        &["user", "delete", "eve", "--yes"],
        &["token", "create", "eve"],
        &["token", "list", "eve"],
    ] {
        assert_eq!(home.admin_refused(command), "there is no user eve", "{command:?}");
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
        (&["token", "create", "ann", "--scope", "sudo"], "a scope is api or read_user, not sudo"),
        (&["token", "create", "ann", "--scope", "api", "--scope", ""], "a scope is api or read_user, not "),
        (&["token", "revoke", "99"], "there is no token 99 that could be revoked"),
        (&["job", "retry", "99"], "there is no job 99 that was given up"),
        (&["job", "retry", "1"], "there is no job 1 that was given up"),
    ] {
        assert_eq!(home.admin_refused(command), refusal, "{command:?}");
    }
    for (password, refusal) in [
        ("seven77", "password is too short (minimum is 8 characters)"),
        ("", "password can't be blank"),
        ("\n", "password can't be blank"),
        (&"x".repeat(129), "password is too long (maximum is 128 characters)"),
    ] {
        let create = with_password(&home, &["create", "eve", "--email", "eve@example.org"], password);
        assert_eq!(create.refused(), refusal);
        assert_eq!(with_password(&home, &["password", "ann"], password).refused(), refusal);
    }
    let users = home.admin(&["user", "list"]);
    assert_eq!(users.lines().count(), 3, "{users}");
    assert_eq!(server.root().get("/api/v3/user").status, 200);
}

#[test]
fn a_deleted_user_is_gone_with_tokens_and_personal_projects() {
    let home = Home::new();
    let server = home.start();
    create(&home, "ann");
    let (_, token) = token_of(&home, "ann");
    let ann = server.client(&token);
    assert_eq!(ann.post("/api/v3/projects", &json!({ "name": "x", "visibility_level": 20 })).status, 201);
    assert_eq!(ann.post("/api/v3/groups", &json!({ "name": "acme", "path": "acme" })).status, 201);
    let refusal = home.admin_refused(&["user", "delete", "ann", "--yes"]);
    assert_eq!(refusal, "You must transfer ownership or delete groups before you can remove user");
    assert_eq!(server.root().try_delete("/api/v3/groups/acme").expect("answered").status, 200);
    let refusal = home.admin_refused(&["user", "delete", "ann"]);
    assert_eq!(refusal, "this deletes user ann with 1 personal project and cannot be undone; confirm with --yes");
    assert_eq!(ann.get("/api/v3/projects/1").status, 200);
    assert_eq!(home.admin(&["user", "delete", "ann", "--yes"]), "deleted user ann with 1 personal project\n");
    assert_eq!(ann.get("/api/v3/user").to_string(), r#"401 {"message":"401 Unauthorized"}"#);
    assert_eq!(server.root().get("/api/v3/projects/1").status, 404);
    assert_eq!(home.admin_refused(&["user", "delete", "ann", "--yes"]), "there is no user ann");
    // The name is free again.
    create(&home, "ann");
}

#[test]
fn a_password_from_the_operator_ends_sessions_and_leaves_tokens_made_by_hand() {
    let home = Home::new();
    let server = home.start();
    let session = |password: &str| {
        let answer = server.anonymous().post("/api/v3/session", &json!({ "login": "ann", "password": password }));
        assert_eq!(answer.status, 201, "{answer}");
        server.client(answer.json()["private_token"].as_str().expect("a token"))
    };
    with_password(&home, &["create", "ann", "--email", "ann@example.org"], "the first word").succeeded();
    let (_, token) = token_of(&home, "ann");
    let (by_hand, old) = (server.client(&token), session("the first word"));
    assert_eq!(old.get("/api/v3/user").status, 200);
    let tokens = home.admin(&["token", "list", "ann"]);
    assert!(tokens.lines().any(|line| line.ends_with("  session (ends with the password)")), "{tokens}");
    with_password(&home, &["password", "ann"], "the second word").succeeded();
    assert_eq!(old.get("/api/v3/user").to_string(), r#"401 {"message":"401 Unauthorized"}"#);
    assert_eq!((by_hand.get("/api/v3/user").status, session("the second word").get("/api/v3/user").status), (200, 200));
}

#[test]
fn a_command_that_is_not_whole_is_explained() {
    let home = Home::new();
    for (command, complaint) in [
        (&["user", "create", "ann"][..], "--email <EMAIL>"),
        (&["token", "create", "ann", "--expires-in-days", "0"], "0 is not in 1..=36500"),
        (&["token", "create", "ann", "--expires-in-days", "1", "--no-expiry"], "cannot be used with"),
        (&["token", "revoke", "first"], "invalid value 'first' for '<ID>'"),
    ] {
        let finished = home.gable(&["admin"]).args(command).finish();
        assert_eq!((finished.status, finished.stdout.as_str()), (Some(2), ""), "{}", finished.stderr);
        assert!(finished.stderr.contains(complaint), "{}", finished.stderr);
    }
    assert!(!home.data().exists(), "nothing is made for a command that was not understood");
}

#[test]
fn a_job_that_was_given_up_is_retried_though_its_successor_waits() {
    let home = Home::new();
    let server = home.start();
    wait_for_job(&server, "3");
    server.stop();
    home.execute("UPDATE jobs SET dead_at = 1, attempts = 10, last_error = 'it broke'");
    // The next start writes the recurring jobs down anew, beginning with this one.
    let server = home.start();
    wait_for_job(&server, "8");
    let jobs = home.admin(&["job", "list"]);
    let dead = row(&jobs, "sweep_tokens");
    home.admin(&["job", "retry", &dead[0]]);
}

#[test]
fn commands_get_their_turn_in_a_storm_of_writes() {
    let home = Home::new();
    let server = home.start();
    let storm = Storm::begin(&server, "storm");
    for number in 0..COMMANDS_IN_A_STORM {
        let username = format!("user-{number}");
        create(&home, &username);
        let (token, _) = token_of(&home, &username);
        home.admin(&["user", "block", &username]);
        home.admin(&["token", "revoke", &token]);
        assert_eq!(row(&home.admin(&["user", "list"]), &username)[2], "blocked");
    }
    let acknowledged = storm.end();
    assert!(acknowledged.len() > COMMANDS_IN_A_STORM, "no storm at all: {}", acknowledged.len());
    let total = server.root().get("/api/v3/user/emails").header("x-total").map(str::to_owned);
    assert_eq!(total, Some(acknowledged.len().to_string()));
    let log = server.stop().stderr;
    assert!(!log.contains("ERROR") && !log.contains("locked"), "{log}");
}

#[test]
fn commands_at_the_same_time_do_not_hinder_each_other() {
    let home = Home::new();
    home.start().stop();
    thread::scope(|scope| {
        for number in 0..COMMANDS_IN_A_STORM {
            let home = &home;
            scope.spawn(move || create(home, &format!("user-{number}")));
        }
    });
    assert_eq!(home.admin(&["user", "list"]).lines().count(), COMMANDS_IN_A_STORM + 2);
}

#[test]
fn commands_do_not_keep_a_server_from_starting() {
    let home = Home::new();
    home.start().stop();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                home.admin(&["user", "list"]);
            }
        });
        let starts = catch_unwind(|| {
            for _ in 0..STARTS {
                home.start().stop();
            }
        });
        over.store(true, Ordering::SeqCst);
        starts.expect("every start succeeds");
    });
}
