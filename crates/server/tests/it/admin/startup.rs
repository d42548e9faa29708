//! How a server starts, what it refuses, what it says, and how it stops.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    admin::backup_forms::files_in,
    admin::binary::{Gable, Home, PATIENCE, ROOT_PASSWORD, ROOT_TOKEN, Server, postgres_server},
};

/// What follows a word in the lines of the first start.
fn told<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(": "))
}

#[test]
fn the_first_start_tells_how_to_come_in_and_the_second_does_not() {
    let home = Home::new();
    let server = home.serve().start();
    let said = server.stdout();
    let (password, token) = (told(&said, "password").expect("told"), told(&said, "token").expect("told"));
    assert_eq!((password.len(), token.len()), (20, 20));

    let root = server.client(token).get("/api/v3/user").json();
    assert_eq!(
        (&root["username"], &root["is_admin"], &root["state"]),
        (&json!("root"), &json!(true), &json!("active"))
    );
    let session = server.anonymous().post("/api/v3/session", &json!({ "login": "root", "password": password }));
    assert_eq!(session.status, 201, "{session}");

    let file = home.data().join("root-credentials");
    let kept = fs::read_to_string(&file).expect("the file is there");
    assert_eq!((told(&kept, "username"), told(&kept, "password")), (Some("root"), Some(password)));
    assert_eq!(told(&kept, "token"), Some(token));
    assert_eq!(file.metadata().expect("readable").permissions().mode() & 0o777, 0o600);
    assert_eq!(home.data().metadata().expect("readable").permissions().mode() & 0o777, 0o700);

    let first = server.stop();
    assert!(!first.stderr.contains(token) && !first.stderr.contains(password), "{}", first.stderr);
    let second = home.serve().start();
    assert_eq!(second.client(token).get("/api/v3/user").status, 200);
    let ready = format!("gable ready on {}\n", second.url);
    assert_eq!(second.stop().stdout, ready);
}

#[test]
fn a_password_and_a_token_that_the_operator_chose_are_told_to_nobody() {
    let home = Home::new();
    let server = home.serve().with_known_root().args(&["--log", "trace"]).start();
    assert_eq!(server.root().get("/api/v3/user").json()["username"], "root");
    let session = server.anonymous().post("/api/v3/session", &json!({ "login": "root", "password": ROOT_PASSWORD }));
    assert_eq!(session.status, 201, "{session}");
    let ready = format!("gable ready on {}\n", server.url);
    let finished = server.stop();
    assert_eq!(finished.stdout, ready);
    for secret in [ROOT_PASSWORD, ROOT_TOKEN] {
        assert!(!finished.stderr.contains(secret), "{secret} in {}", finished.stderr);
    }
    assert!(!home.data().join("root-credentials").exists());
}

#[test]
fn only_what_was_made_here_is_told() {
    let home = Home::new();
    let server = home.serve().env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD).start();
    let said = server.stdout();
    assert_eq!(told(&said, "password"), None);
    let token = told(&said, "token").expect("told");
    assert_eq!(server.client(token).get("/api/v3/user").status, 200);
    let kept = fs::read_to_string(home.data().join("root-credentials")).expect("the file is there");
    assert_eq!(told(&kept, "token"), Some(token));
    assert!(!said.contains(ROOT_PASSWORD) && !kept.contains(ROOT_PASSWORD), "{said}{kept}");
}

#[test]
fn a_first_administrator_that_cannot_be_is_refused_and_leaves_nothing_behind() {
    let home = Home::new();
    let refusal = home.serve().env("GABLE_ROOT_PASSWORD", "sh0rt!").finish().refused();
    assert_eq!(refusal, "cannot create the first administrator: password is too short (minimum is 8 characters)");
    for token in ["too-short", "twenty characters äöü", "a token with blanks in"] {
        let refusal = home.serve().env("GABLE_ROOT_TOKEN", token).finish().refused();
        assert_eq!(
            refusal,
            "cannot create the first administrator: token must have 20 to 128 letters, digits, '-' or '_'"
        );
    }
    assert!(!home.data().join("root-credentials").exists(), "credentials of nobody");
    let server = home.start();
    assert_eq!(server.root().get("/api/v3/user").json()["id"], 1);
}

#[test]
fn of_two_folders_that_begin_together_on_one_database_one_gets_it_and_the_other_is_refused() {
    if postgres_server().is_none() {
        // Two folders cannot share an embedded database.
        return;
    }
    let home = Home::new();
    let folders = ["first", "second"].map(|name| home.data().with_file_name(name));
    let servers = folders
        .each_ref()
        .map(|folder| home.serve().env("GABLE_DATA", &folder.display().to_string()).with_known_root().spawn());
    let start = Instant::now();
    let ready = |server: &Server| server.stdout().contains("gable ready on ");
    while !servers.iter().any(ready) || !servers.iter().any(|server| server.stderr().contains("gable: ")) {
        assert!(start.elapsed() < PATIENCE, "{:?}", servers.each_ref().map(|server| server.stderr()));
        thread::sleep(Duration::from_millis(10));
    }
    let [winner, loser] = if ready(&servers[0]) { [0, 1] } else { [1, 0] };
    let said = servers[loser].stderr();
    let refused = ["the database holds another instance than", "the database holds an instance, but the data folder"];
    assert!(refused.iter().any(|text| said.contains(text)), "{said}");
    assert!(!ready(&servers[loser]) && !folders[loser].join("root-credentials").exists());
    drop(servers);
    // The one that has it keeps it, and the other one is refused from then on.
    let serve = |folder: &PathBuf| home.serve().env("GABLE_DATA", &folder.display().to_string()).with_known_root();
    let refusal = serve(&folders[loser]).finish().refused();
    assert!(refused.iter().any(|text| refusal.starts_with(text)), "{refusal}");
    assert_eq!(serve(&folders[winner]).start().root().get("/api/v3/user").status, 200);
}

#[test]
fn a_second_server_on_the_same_folder_is_refused() {
    let home = Home::new();
    let server = home.start();
    let refusal = home.serve().finish().refused();
    let folder = home.data().canonicalize().expect("the folder is there");
    assert_eq!(refusal, format!("another gable serves the data folder {}; stop it first", folder.display()));
    assert_eq!(server.root().get("/api/v3/user").status, 200);
    server.kill();
    // A lock that outlives its holder would keep the operator out.
    assert_eq!(home.start().root().get("/api/v3/user").status, 200);
}

#[test]
fn a_setting_that_cannot_be_understood_is_told_in_one_sentence() {
    let home = Home::new();
    let refused = |arguments: &[&str]| home.gable(&["serve"]).args(arguments).finish().refused();
    let file = home.file("gable.toml", "listen = \"127.0.0.1:0\"\ndatabse = \"postgres://ann:s3cret@host/db\"\n");
    let refusal = refused(&["--config", &file]);
    assert_eq!(
        refusal,
        format!("line 2 of the configuration file {file}: unknown field `databse`; did you mean `database`?")
    );

    let missing = home.data().join("nowhere.toml").display().to_string();
    let refusal = refused(&["--config", &missing]);
    assert_eq!(
        refusal,
        format!("cannot read the configuration file {missing}: No such file or directory (os error 2)")
    );
    assert_eq!(refused(&["--dialect", "klingon"]), "the dialect is spec or gitlab, not klingon");
    assert_eq!(
        refused(&["--listen", "nowhere"]),
        "cannot listen on nowhere: it is not of the form HOST:PORT, such as 127.0.0.1:8080"
    );
    assert_eq!(
        refused(&["--external-url", "ftp://host"]),
        "the external URL ftp://host is not of the form https://host or https://host/prefix"
    );
    assert_eq!(
        refused(&["--database", "mysql://ann:s3cret@host/db"]),
        "the database URL does not begin with postgres://; leave it out for the embedded one"
    );
    let refusal = refused(&["--log", "api=loud"]);
    assert!(refusal.starts_with("the log filter api=loud cannot be understood: "), "{refusal}");
}

#[test]
fn a_log_filter_that_would_log_nothing_is_refused_wherever_it_stands() {
    let home = Home::new();
    let refusal = "the log filter verbose cannot be understood: use error, warn, info, debug, trace or off, or several with \
                   parts of the program, such as info,forge=debug";
    let file = home.file("gable.toml", "log = \"verbose\"\n");
    for gable in [
        home.gable(&["serve", "--log", "verbose"]),
        home.gable(&["serve"]).env("GABLE_LOG", "verbose"),
        home.gable(&["serve", "--config", &file]),
    ] {
        let finished = gable.finish();
        assert_eq!((finished.status, finished.refused().as_str()), (Some(2), refusal));
    }
    let runner = home.gable(&["runner", "run", "--url", "http://127.0.0.1:1", "--log", "verbose"]).finish();
    assert!(runner.status == Some(2) && runner.stderr.contains(refusal), "{}", runner.stderr);
    assert!(!home.data().exists(), "nothing is made for a setting that was not understood");
}

#[test]
fn a_server_that_listens_on_all_addresses_says_so() {
    let home = Home::new();
    let everywhere = ["--listen", "0.0.0.0:0", "--ssh-listen", "0.0.0.0:0"];
    let server = home.gable(&["serve"]).args(&everywhere).with_known_root().start();
    let said = server.stdout();
    let words: Vec<&str> = said.split_ascii_whitespace().collect();
    assert!(words[3].starts_with("http://0.0.0.0:") && words[8].starts_with("ssh://git@0.0.0.0:"), "{said}");
    assert_eq!(said.matches("(all IPv4 addresses)").count(), 2, "{said}");
    let port = words[3].rsplit_once(':').expect("a port").1;
    let listen = format!("127.0.0.1:{port}");
    assert_eq!(home.gable(&["health", "--listen", &listen]).finish().succeeded(), "ready\n");
    let log = server.stop().stderr;
    let warned = format!("say http://127.0.0.1:{port}, which only this machine can reach; set external-url");
    assert!(log.contains(&warned), "{log}");
    let url = "https://git.example.org";
    let server = home.gable(&["serve"]).args(&everywhere).args(&["--external-url", url]).start();
    let log = server.stop().stderr;
    assert!(!log.contains("only this machine can reach") && log.contains(url), "{log}");
    if TcpListener::bind("[::]:0").is_ok() {
        let server = home.gable(&["serve", "--listen", "[::]:0"]).start();
        assert!(server.url.starts_with("http://[::]:") && server.url.ends_with(" addresses)"), "{}", server.url);
    }
}

#[test]
fn a_command_ends_with_2_if_it_is_used_wrongly_and_with_1_if_it_fails() {
    let home = Home::embedded();
    let bad = home.file("bad.toml", "listens = \"x\"\n");
    for arguments in [
        &["serve", "--listen", "nowhere"][..],
        &["serve", "--config", &bad],
        &["admin", "--config", &bad, "user", "list"],
        &["admin", "token", "create", "ann", "--scope", "sudo"],
        &["backup"],
        &["backup", "x.tar", "--config", &bad],
        &["restore", "x.tar", "--database", "mysql://host/db"],
        &["migrate", "--config", &bad],
        &["migrate-database", "--config", &bad, "--to", "sqlite"],
        &["doctor", "--config", &bad],
        &["health", "--config", &bad],
        &["health", "--url", "ftp://host"],
        &["runner", "register", "--url", "http://127.0.0.1:1"],
        &["generate", "completions", "klingon"],
        &["frobnicate"],
        &[],
    ] {
        let finished = home.gable(arguments).finish();
        assert_eq!(finished.status, Some(2), "{arguments:?}: {}", finished.words());
    }
    for arguments in [
        &["backup", "x.tar"][..],
        &["restore", "missing.tar"],
        &["migrate"],
        &["migrate-database", "--to", "sqlite"],
        &["doctor"],
        &["health", "--url", "http://127.0.0.1:1"],
        &["runner", "verify", "--url", "http://127.0.0.1:1"],
    ] {
        let finished = home.gable(arguments).finish();
        assert_eq!(finished.status, Some(1), "{arguments:?}: {}", finished.words());
    }
    let help = home.gable(&["--help"]).finish().succeeded();
    assert!(help.contains("Exit status: 0 if the command succeeded, 1 if it failed, 2 if the command line"), "{help}");
}

#[test]
fn a_misspelled_flag_command_or_variable_is_answered_with_what_was_meant() {
    let home = Home::embedded();
    home.start().stop();
    let complaint = |arguments: &[&str]| home.gable(arguments).finish().stderr;
    let flag = complaint(&["serve", "--lisen", "127.0.0.1:0"]);
    assert!(flag.contains("unexpected argument '--lisen' found") && flag.contains("'--listen'"), "{flag}");
    let command = complaint(&["admin", "usr", "list"]);
    assert!(command.contains("unrecognized subcommand 'usr'") && command.contains("'user'"), "{command}");
    let sentence = "the variable GABLE_DATABSE is unknown and ignored; did you mean GABLE_DATABASE?";
    let misspelled = |gable: Gable| gable.env("GABLE_DATABSE", "postgres://ann:s3cret@host/db");
    let listed = misspelled(home.gable(&["admin", "user", "list"])).finish();
    assert_eq!((listed.status, listed.stderr), (Some(0), format!("warning: {sentence}\n")));
    let server = misspelled(home.serve().with_known_root()).start();
    let log = server.stop().stderr;
    assert!(log.contains("WARN") && log.contains(sentence) && !log.contains("s3cret"), "{log}");
}

#[test]
fn a_reader_that_leaves_early_is_no_reason_to_panic() {
    let home = Home::embedded();
    home.start().stop().succeeded();
    for arguments in [
        &["generate", "completions", "bash"][..],
        &["generate", "settings"],
        &["admin", "user", "list"],
        &["admin", "token", "list", "root"],
        &["admin", "job", "list"],
        &["admin", "runner", "list"],
        &["doctor"],
        &["doctor", "--json"],
        &["migrate"],
        &["--help"],
        &["--version"],
    ] {
        assert_eq!(home.gable(arguments).finish_unread(), (Some(0), String::new()), "{arguments:?}");
    }
    // What is lost for good is an error: nobody has the backup or the token.
    let (status, complaint) = home.gable(&["backup", "-", "--quiet"]).finish_unread();
    assert!(status == Some(1) && complaint.starts_with("gable: ") && complaint.contains("Broken pipe"), "{complaint}");
    let (status, complaint) = home.gable(&["admin", "token", "create", "root"]).finish_unread();
    assert!(status == Some(1) && complaint.starts_with("gable: cannot write to standard output"), "{complaint}");
}

#[test]
fn a_data_folder_that_is_open_to_others_is_told_at_each_start() {
    let home = Home::new();
    fs::create_dir(home.data()).expect("a folder");
    let set = |path: PathBuf, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode can be set");
    };
    set(home.data(), 0o755);
    let folder = home.data().canonicalize().expect("there").display().to_string();
    for _ in 0..2 {
        let log = home.start().stop().stderr;
        assert!(
            log.contains(&format!("{folder} is open to other users (mode 755); run `chmod 700 {folder}`")),
            "{log}"
        );
    }
    set(home.data().join("instance-key"), 0o644);
    assert_eq!(
        home.serve().finish().refused(),
        format!(
            "{folder}/instance-key is open to other users (mode 644), and it is a private key; run `chmod 600 \
             {folder}/instance-key`"
        )
    );
    home.gable(&["doctor", "--fix", "--quick"]).finish().succeeded();
    let log = home.start().stop().stderr;
    assert!(!log.contains("is open to"), "{log}");
}

#[test]
fn an_unknown_flag_or_command_is_named() {
    let home = Home::new();
    for (arguments, complaint) in [
        (&["serve", "--sevre"][..], "unexpected argument '--sevre' found"),
        (&["sevre"], "unrecognized subcommand 'sevre'"),
        (&["serve", "--max-body-size", "big"], "invalid value 'big' for '--max-body-size <SIZE>': big is not a size"),
        (&["serve", "--log-format", "xml"], "invalid value 'xml' for '--log-format <FORMAT>'"),
    ] {
        let finished = home.gable(arguments).finish();
        assert_eq!((finished.status, finished.stdout.as_str()), (Some(2), ""), "{}", finished.stderr);
        let sentence = format!("gable: {complaint}");
        assert!(finished.stderr.starts_with(&sentence) && finished.stderr.lines().count() == 1, "{}", finished.stderr);
        assert!(finished.stderr.ends_with("; see gable --help\n"), "{}", finished.stderr);
    }
    assert!(!home.data().exists(), "nothing is made for a command that was not understood");
}

#[test]
fn a_folder_that_cannot_be_used_is_told() {
    let home = Home::new();
    let below = format!("{}/data", home.file("a-file", ""));
    let refusal = home.serve().args(&["--data", &below]).finish().refused();
    assert_eq!(refusal, format!("cannot use the data folder {below}: Not a directory (os error 20)"));
    let refusal = home.gable(&["admin", "--data", &below, "user", "list"]).finish().refused();
    assert_eq!(refusal, format!("cannot use the data folder {below}: Not a directory (os error 20)"));
}

#[test]
fn a_taken_port_is_told() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let refusal = home.gable(&["serve", "--listen", &address]).finish().refused();
    assert!(refusal.starts_with(&format!("cannot listen on {address}: Address already in use")), "{refusal}");
    assert!(refusal.ends_with("; stop what uses it, or choose another with --listen"), "{refusal}");
    // It failed before anybody was told credentials, so the next start tells them.
    assert!(told(&home.serve().start().stdout(), "token").is_some());
}

#[test]
fn a_newer_database_is_left_alone() {
    let home = Home::new();
    home.start().stop();
    home.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('29991231000001')");
    let refusal = "the database is newer than this gable (it has migration 29991231000001); \
                   use the gable that wrote it, or a newer one";
    assert_eq!(home.serve().finish().refused(), refusal);
    assert_eq!(home.admin_refused(&["user", "list"]), refusal);
    home.execute("DELETE FROM __diesel_schema_migrations WHERE version = '29991231000001'");
    assert_eq!(home.start().root().get("/api/v3/user").status, 200);
}

#[test]
fn a_database_that_is_no_database_is_told() {
    let home = Home::embedded();
    fs::create_dir(home.data()).expect("a folder");
    fs::write(home.data().join("gable.sqlite3"), "not a database, ".repeat(1000)).expect("a file");
    let refusal = home.serve().finish().refused();
    assert!(refusal.starts_with("cannot open the database "), "{refusal}");
    assert!(refusal.contains("file is not a database"), "{refusal}");
}

#[test]
fn a_postgresql_that_cannot_be_reached_is_told_without_its_password() {
    let home = Home::embedded();
    home.start().stop();
    // Nobody has listened on port 1 for decades.
    let database = "postgres://ann:s3cret@127.0.0.1:1/gable";
    for gable in [home.serve(), home.gable(&["admin", "user", "list"])] {
        let refusal = gable.env("GABLE_DATABASE", database).finish().refused();
        let place = "cannot connect to PostgreSQL at 127.0.0.1:1 (database gable, user ann): ";
        assert!(refusal.starts_with(place), "{refusal}");
        assert!(refusal.contains("refused") && !refusal.contains("s3cret"), "{refusal}");
        assert!(
            refusal.ends_with("; see that the server runs and listens there (listen_addresses, port)"),
            "{refusal}"
        );
    }
}

#[test]
fn a_postgresql_that_lets_nobody_in_is_told_with_what_to_do() {
    // Not everywhere there is one.
    let Some(mut url) = postgres_server() else { return };
    let home = Home::embedded();
    let refused = |url: &str| home.serve().env("GABLE_DATABASE", url).finish().refused();
    url.set_path("no_such_database");
    let user = url.username().to_owned();
    let refusal = refused(url.as_str());
    let told = format!("(database no_such_database, user {user}): ");
    let remedy = format!("; create it with `createdb --owner {user} no_such_database`");
    assert!(refusal.contains(&told) && refusal.ends_with(&remedy), "{refusal}");
    url.query_pairs_mut().clear().append_pair("sslmode", "require");
    // Where it speaks TLS there is still no such database.
    let refusal = refused(url.as_str());
    assert!(refusal.ends_with(&remedy) || refusal.contains("turn TLS on in PostgreSQL (ssl = on)"), "{refusal}");
}

#[test]
fn the_password_in_a_database_url_is_never_shown() {
    let home = Home::embedded();
    for database in [
        "postgres://ann:s3cret@host:notaport/db",
        "postgres://ann:s3cret@host/db?sslmode=perhaps",
        "postgres://ann:s3cret@host/db?no-such-option=1",
        "postgres:/ann:s3cret@host/db",
        "ann:s3cret",
    ] {
        let refusal = home.serve().env("GABLE_DATABASE", database).finish().refused();
        assert!(!refusal.contains("s3cret"), "{refusal}");
    }
    for arguments in [&["serve", "--help"][..], &["admin", "--help"], &["serve", "--sevre"]] {
        let words = home.gable(arguments).env("GABLE_DATABASE", "postgres://ann:s3cret@host/db").finish().words();
        assert!(!words.contains("s3cret"), "{words}");
    }
}

/// A request of which the server has the first half, and waits for the second.
struct HalfRequest(TcpStream);

impl HalfRequest {
    const HALVES: [&str; 2] = ["{\"email\":\"late", "@example.org\"}"];

    fn send(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.address()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        write!(
            stream,
            "POST /api/v3/user/emails HTTP/1.1\r\nHost: gable\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            Self::HALVES.concat().len(),
        )
        .expect("sent");
        // The server says so once somebody waits for the body: from here on the request is under way.
        let mut go_on = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut go_on).expect("the server asks for the body");
        assert!(go_on.starts_with(b"HTTP/1.1 100 Continue"), "{}", String::from_utf8_lossy(&go_on));
        stream.write_all(Self::HALVES[0].as_bytes()).expect("sent");
        Self(stream)
    }

    fn finish(mut self) -> String {
        self.0.write_all(Self::HALVES[1].as_bytes()).expect("sent");
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

fn wait_until_stopping(server: &Server) {
    wait_until_told(server, "stopping");
}

fn wait_until_told(server: &Server, text: &str) {
    let start = Instant::now();
    while !server.stderr().contains(text) {
        assert!(start.elapsed() < PATIENCE, "{text:?} is not told: {}", server.stderr());
        thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn a_request_under_way_is_answered_before_a_signal_ends_the_server() {
    for signal in ["TERM", "INT"] {
        let home = Home::new();
        let server = home.start();
        let request = HalfRequest::send(&server);
        server.signal(signal);
        wait_until_stopping(&server);
        let answer = request.finish();
        assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{signal}: {answer}");
        assert!(answer.ends_with("{\"id\":2,\"email\":\"late@example.org\"}"), "{signal}: {answer}");
        assert_eq!(server.wait().status, Some(0), "{signal}");
        let emails = home.start().root().get("/api/v3/user/emails");
        assert_eq!(emails.to_string(), r#"200 [{"id":2,"email":"late@example.org"}]"#);
    }
}

#[test]
fn connections_without_a_request_do_not_hold_the_server_up() {
    let home = Home::new();
    let server = home.start();
    let silent = TcpStream::connect(server.address()).expect("the server listens");
    let kept_open = server.root();
    assert_eq!(kept_open.get("/api/v3/user").status, 200);
    let start = Instant::now();
    assert_eq!(server.stop().status, Some(0));
    assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    drop((silent, kept_open));
}

#[test]
fn a_thread_that_waits_for_git_does_not_hold_the_server_up() {
    let home = Home::new();
    let server = home.start();
    let root = server.root();
    assert_eq!(root.post("/api/v3/projects", &json!({ "name": "large" })).status, 201);
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "m" });
    assert_eq!(root.post("/api/v3/projects/1/repository/files", &file).status, 201);
    assert_eq!(root.post("/api/v3/groups", &json!({ "name": "crew", "path": "crew" })).status, 201);
    // The repository is being packed, and somebody who wants a fork of it waits for that and leaves.
    let is_repository = |path: &PathBuf| path.ends_with("HEAD") && !path.starts_with("empty.git");
    let repositories = home.data().join("repositories");
    let found = files_in(&repositories).into_keys().find(is_repository).expect("a repository");
    let lock = repositories.join(found).with_file_name("house.lock");
    let lock = File::options().write(true).create(true).truncate(false).open(lock).expect("opened");
    lock.lock().expect("locked");
    let mut fork = TcpStream::connect(server.address()).expect("the server listens");
    let body = r#"{"namespace":"crew"}"#;
    let head = format!(
        "POST /api/v3/projects/fork/1 HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    fork.write_all(head.as_bytes()).expect("sent");
    let inode = format!(":{} ", lock.metadata().expect("read").ino());
    let start = Instant::now();
    let waits = |locks: String| locks.lines().any(|line| line.contains("->") && line.contains(&inode));
    while !waits(fs::read_to_string("/proc/locks").expect("read")) {
        assert!(start.elapsed() < PATIENCE, "nobody waits for the lock");
        thread::sleep(Duration::from_millis(3));
    }
    drop(fork);
    assert_eq!(server.stop().status, Some(0));
    drop(lock);
    let fork = home.start().root().get("/api/v3/projects/2");
    assert_eq!((fork.status, &fork.json()["path_with_namespace"]), (200, &json!("crew/large")), "{fork}");
}

#[test]
fn a_second_signal_does_not_wait() {
    let home = Home::new();
    let server = home.start();
    let request = HalfRequest::send(&server);
    server.signal("TERM");
    wait_until_stopping(&server);
    server.signal("TERM");
    assert_eq!(server.wait().status, Some(130));
    drop(request);
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let home = Home::new();
    let data = home.data();
    let text = format!("data = {data:?}\nlisten = \"127.0.0.1:0\"\nexternal-url = \"http://from.file\"\n");
    let file = home.file("gable.toml", &text);
    let seen = |gable: Gable| {
        let server = gable.with_known_root().start();
        let root = server.root().get("/api/v3/user").json();
        root["web_url"].as_str().expect("a URL").to_owned()
    };
    let by_file = || home.gable(&["serve", "--config", &file]).without("GABLE_DATA");
    assert_eq!(seen(by_file()), "http://from.file/root");
    assert!(home.data().join("gable.lock").exists(), "the data folder of the file is used");
    let by_variable = || by_file().env("GABLE_EXTERNAL_URL", "http://from.variable");
    assert_eq!(seen(by_variable()), "http://from.variable/root");
    assert_eq!(seen(by_variable().args(&["--external-url", "http://from.flag"])), "http://from.flag/root");
    let all_by_variable = home.gable(&["serve"]).env("GABLE_CONFIG", &file).env("GABLE_LISTEN", "127.0.0.1:0");
    assert_eq!(seen(all_by_variable), "http://from.file/root");
}

#[test]
fn a_monitor_hears_health_readiness_and_numbers() {
    let home = Home::new();
    let server = home.start();
    let monitor = server.anonymous();
    assert_eq!(monitor.get("/-/health").to_string(), "200 ok\n");
    assert_eq!(monitor.get("/-/ready").to_string(), "200 ready\n");
    server.root().get("/api/v3/users/1");
    let metrics = monitor.get("/-/metrics");
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4"));
    for line in [
        r#"gable_http_requests_total{method="GET",route="/api/v3/users/{id}",status="200"} 1"#,
        r#"gable_jobs{state="dead"} 0"#,
        r#"gable_queue_length{queue="heavy"} 0"#,
    ] {
        assert!(metrics.text.lines().any(|held| held == line), "no {line} in {metrics}");
    }
}

#[test]
fn numbers_pass_a_proxy_only_for_administrators() {
    let home = Home::new();
    let server = home.start();
    home.admin(&["user", "create", "ann", "--email", "ann@example.org"]);
    let created = home.admin(&["token", "create", "ann"]);
    let ann = created.lines().last().expect("a token");
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.7"),
        ("forwarded", "for=203.0.113.7"),
        ("x-real-ip", "203.0.113.7"),
        ("via", "1.1 proxy"),
    ] {
        let forwarded = [(name, value)];
        for outsider in [server.anonymous(), server.client(ann), server.client("no-such-token-at-all")] {
            let refused = outsider.get_with("/-/metrics", &forwarded);
            assert_eq!(refused.to_string(), r#"404 {"error":"404 Not Found"}"#);
        }
        let metrics = server.root().get_with("/-/metrics", &forwarded);
        assert!(metrics.status == 200 && metrics.text.contains("gable_http_requests_total"), "{metrics}");
    }
}

#[test]
fn a_json_log_tells_of_each_request_who_what_and_how_long() {
    let home = Home::new();
    let server = home.serve().with_known_root().args(&["--log-format", "json"]).start();
    let shown = server.root().get("/api/v3/users/1");
    let refused = server.anonymous().get_with("/api/v3/user", &[("x-request-id", "from-the-client-7")]);
    assert_eq!(refused.header("x-request-id"), Some("from-the-client-7"));
    let missed = server.root().get("/api/v3/nowhere/at/all");
    assert_eq!((shown.status, refused.status, missed.status), (200, 401, 404));
    let log = server.stop().stderr;
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    let lines: Vec<Value> = lines.collect();
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["message"].is_string()), "{log}");
    for (reply, route, user) in
        [(&shown, "/api/v3/users/{id}", json!(1)), (&refused, "/api/v3/user", Value::Null), (&missed, "-", Value::Null)]
    {
        let id = reply.header("x-request-id").expect("every answer has one");
        let mut of_request = lines.iter().filter(|line| line["request"] == id);
        let (Some(line), None) = (of_request.next(), of_request.next()) else { panic!("not one line for {id}: {log}") };
        assert_eq!(
            (&line["method"], &line["route"], &line["status"]),
            (&json!("GET"), &json!(route), &json!(reply.status))
        );
        assert_eq!(line["user"], user, "{line}");
        assert!(line["duration_ms"].as_f64().is_some_and(|duration| duration > 0.0), "{line}");
    }
}

#[test]
fn lesson_24_no_secret_reaches_the_log() {
    let home = Home::new();
    let server = home.serve().with_known_root().args(&["--log", "trace"]).start();
    let (root, nobody) = (server.root(), server.anonymous());
    let mut replies = vec![
        server.client("planted-token-in-header").get("/api/v3/user"),
        nobody.get("/api/v3/user?private_token=planted-token-in-query"),
        nobody.get("/api/v3/user/emails?per_page=1&private_token=a-token-of-the-story"),
        nobody.get("/api/v3/planted-in-a-path?private_token=planted-beside-it"),
        nobody.get_with("/api/v3/user", &[("authorization", "Bearer planted-token-of-bearer")]),
        nobody.get_with("/api/v3/user", &[("authorization", "Basic cGxhbnRlZC1iYXNpYw==")]),
        nobody.get_with("/api/v3/user", &[("cookie", "session=planted-cookie")]),
        nobody.post("/api/v3/session", &json!({ "login": "root", "password": ROOT_PASSWORD })),
        nobody.post("/api/v3/session", &json!({ "login": "root", "password": "planted-wrong-password" })),
        nobody.post("/api/v3/session", &json!({ "login": "planted-login", "password": ["planted-in-an-array"] })),
        nobody.post("/api/v3/session?password=planted-in-a-query", &json!("planted-in-a-string")),
    ];
    for (email, password) in [("ann@example.org", "planted-good-password"), ("ben", "planted-refused-password")] {
        let user = json!({ "username": &email[..3], "name": "Ann or Ben", "email": email, "password": password });
        replies.push(root.post("/api/v3/users", &user));
    }
    let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [401, 401, 200, 404, 401, 401, 401, 201, 401, 400, 400, 201, 400]);
    let session = replies[7].json();
    let session = session["private_token"].as_str().expect("a session has a token").to_owned();
    let links = replies[2].header("link").expect("a list has links").to_owned();
    let metrics = nobody.get("/-/metrics").text;
    let words = server.stop().words();
    let url = home.database_url();
    // A short one may stand in a log by chance.
    let of_database = url.as_ref().and_then(|url| url.password()).filter(|password| password.len() >= 8);
    let mut secrets = vec!["planted", "cGxhbnRlZC1iYXNpYw", "$argon2", ROOT_PASSWORD, ROOT_TOKEN, &session];
    secrets.extend(of_database);
    for secret in secrets {
        for (place, text) in [("output", &words), ("links", &links), ("metrics", &metrics)] {
            assert!(!text.contains(secret), "{secret} in the {place}: {text}");
        }
    }
    // Nor does a copy of the folder open anything.
    for entry in fs::read_dir(home.data()).expect("the folder is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            continue;
        }
        let bytes = fs::read(&path).expect("readable");
        for secret in [ROOT_PASSWORD, ROOT_TOKEN, "planted-good-password", &session] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} in {}", path.display());
        }
    }
}

#[test]
fn the_first_administrator_and_users_may_have_100_000_personal_projects_by_default() {
    let home = Home::new();
    let server = home.start();
    let root = server.root();
    let user = json!({ "username": "ann", "name": "Ann", "email": "ann@example.org", "password": "ann ann ann" });
    assert_eq!(root.post("/api/v3/users", &user).json()["projects_limit"], 100_000);
    assert_eq!(root.get("/api/v3/user").json()["projects_limit"], 100_000);
    for number in 0..11 {
        let made = root.post("/api/v3/projects", &json!({ "name": format!("p{number}") }));
        assert_eq!(made.status, 201, "{made}");
        // Without SSH there is no such URL, and the answer does not make one up.
        assert_eq!(made.json()["ssh_url_to_repo"], "");
    }
    // What was pushed names the URL that there is.
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "a", "commit_message": "a" });
    assert_eq!(root.post("/api/v3/projects/1/repository/files", &file).status, 201);
    let pushed = root.get("/api/v3/projects/1/events").json()[0]["data"].clone();
    let url = json!(format!("{}/root/p0.git", server.url));
    for shown in [&pushed["repository"], &pushed["project"]] {
        assert_eq!(
            (&shown["url"], &shown["git_http_url"], &shown["git_ssh_url"]),
            (&url, &url, &json!("")),
            "{pushed}"
        );
    }
    server.stop();
    let home = Home::new();
    let server = home.serve().with_known_root().args(&["--default-projects-limit", "3"]).start();
    let limit = server.root().post("/api/v3/users", &user).json()["projects_limit"].clone();
    assert_eq!(limit, 3);
}

#[test]
fn lesson_31_the_defaults_are_safe() {
    let (home, other) = (Home::new(), Home::new());
    let (server, other) = (home.serve().start(), other.serve().start());
    // No two instances have the same password or token.
    let (said, said_there) = (server.stdout(), other.stdout());
    for word in ["password", "token"] {
        assert_ne!(told(&said, word).expect("told"), told(&said_there, word).expect("told"));
    }
    // Nobody comes in with a password that somebody wrote into a manual.
    let stranger = server.anonymous();
    for password in ["5iveL!fe", "password", "root", "admin123", "gable"] {
        let refused = stranger.post("/api/v3/session", &json!({ "login": "root", "password": password }));
        assert_eq!(refused.to_string(), r#"401 {"message":"401 Unauthorized"}"#);
    }
    // Nobody lets themselves in.
    let eve = json!({ "username": "eve", "name": "Eve", "email": "eve@example.org", "password": "eve eve eve" });
    assert_eq!(stranger.post("/api/v3/users", &eve).to_string(), r#"401 {"message":"401 Unauthorized"}"#);
    for path in ["/users", "/users/sign_up", "/api/v3/register", "/api/v3/registration", "/api/v3/sign_up"] {
        assert_eq!(stranger.post(path, &eve).to_string(), r#"404 {"error":"404 Not Found"}"#, "{path}");
    }
    // The token that was made ends one day, and says when.
    let end = told(&said, "token expires").expect("told");
    let tokens = home.admin(&["token", "list", "root"]);
    assert!(tokens.lines().any(|line| line.contains("first start") && line.contains(end)), "{tokens}");
    // Only this machine reaches a server that was told nothing, and it reaches nobody around it.
    wait_until_told(&server, "allow_local_network=false");
    let help = home.gable(&["serve", "--help"]).finish().succeeded();
    assert!(help.contains("[default: 127.0.0.1:8080]"), "{help}");
}
