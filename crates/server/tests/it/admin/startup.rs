//! Start and stop of a server: settings, error messages, logs and signals.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    GableCommand, ROOT_PASSWORD, ROOT_TOKEN, ServerProcess, TestInstance, WAIT_TIMEOUT, postgres_server,
};

/// Returns the value of a `label: value` line.
fn labeled_value<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(": "))
}

#[test]
fn the_first_start_prints_credentials_and_the_second_does_not() {
    let instance = TestInstance::new();
    let server = instance.serve().start();
    let output = server.stdout();
    let (password, token) =
        (labeled_value(&output, "password").expect("printed"), labeled_value(&output, "token").expect("printed"));
    assert_eq!((password.len(), token.len()), (20, 20));

    let root = server.client(token).get("/api/v3/user").json();
    assert_eq!(
        (&root["username"], &root["is_admin"], &root["state"]),
        (&json!("root"), &json!(true), &json!("active"))
    );
    let session = server.anonymous().post("/api/v3/session", &json!({ "login": "root", "password": password }));
    assert_eq!(session.status, 201, "{session}");

    let file = instance.data().join("root-credentials");
    let kept = fs::read_to_string(&file).expect("the file is there");
    assert_eq!((labeled_value(&kept, "username"), labeled_value(&kept, "password")), (Some("root"), Some(password)));
    assert_eq!(labeled_value(&kept, "token"), Some(token));
    assert_eq!(file.metadata().expect("readable").permissions().mode() & 0o777, 0o600);
    assert_eq!(instance.data().metadata().expect("readable").permissions().mode() & 0o777, 0o700);

    let first = server.stop();
    assert!(!first.stderr.contains(token) && !first.stderr.contains(password), "{}", first.stderr);
    let second = instance.serve().start();
    assert_eq!(second.client(token).get("/api/v3/user").status, 200);
    let ready = format!("gable ready on {}\n", second.url);
    assert_eq!(second.stop().stdout, ready);
}

#[test]
fn a_password_and_a_token_chosen_by_the_operator_are_not_printed() {
    let instance = TestInstance::new();
    let server = instance.serve().with_root_credentials().args(&["--log", "trace"]).start();
    assert_eq!(server.root().get("/api/v3/user").json()["username"], "root");
    let session = server.anonymous().post("/api/v3/session", &json!({ "login": "root", "password": ROOT_PASSWORD }));
    assert_eq!(session.status, 201, "{session}");
    let ready = format!("gable ready on {}\n", server.url);
    let finished = server.stop();
    assert_eq!(finished.stdout, ready);
    for secret in [ROOT_PASSWORD, ROOT_TOKEN] {
        assert!(!finished.stderr.contains(secret), "{secret} in {}", finished.stderr);
    }
    assert!(!instance.data().join("root-credentials").exists());
}

#[test]
fn only_generated_credentials_are_printed() {
    let instance = TestInstance::new();
    let server = instance.serve().env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD).start();
    let output = server.stdout();
    assert_eq!(labeled_value(&output, "password"), None);
    let token = labeled_value(&output, "token").expect("printed");
    assert_eq!(server.client(token).get("/api/v3/user").status, 200);
    let kept = fs::read_to_string(instance.data().join("root-credentials")).expect("the file is there");
    assert_eq!(labeled_value(&kept, "token"), Some(token));
    assert!(!output.contains(ROOT_PASSWORD) && !kept.contains(ROOT_PASSWORD), "{output}{kept}");
}

#[test]
fn invalid_credentials_of_the_first_administrator_are_refused_and_leave_nothing_behind() {
    let instance = TestInstance::new();
    let refusal = instance.serve().env("GABLE_ROOT_PASSWORD", "sh0rt!").finish().refused();
    assert_eq!(refusal, "cannot create the first administrator: password is too short (minimum is 8 characters)");
    for token in ["too-short", "twenty characters äöü", "a token with blanks in"] {
        let refusal = instance.serve().env("GABLE_ROOT_TOKEN", token).finish().refused();
        assert_eq!(
            refusal,
            "cannot create the first administrator: token must have 20 to 128 letters, digits, '-' or '_'"
        );
    }
    assert!(!instance.data().join("root-credentials").exists(), "credentials without a user");
    let server = instance.start();
    assert_eq!(server.root().get("/api/v3/user").json()["id"], 1);
}

#[test]
fn of_two_data_folders_started_on_one_database_one_is_refused() {
    if postgres_server().is_none() {
        // Two folders cannot share an embedded database.
        return;
    }
    let instance = TestInstance::new();
    let folders = ["first", "second"].map(|name| instance.data().with_file_name(name));
    let servers = folders.each_ref().map(|folder| {
        instance.serve().env("GABLE_DATA", &folder.display().to_string()).with_root_credentials().spawn()
    });
    let start = Instant::now();
    let ready = |server: &ServerProcess| server.stdout().contains("gable ready on ");
    while !servers.iter().any(ready) || !servers.iter().any(|server| server.stderr().contains("gable: ")) {
        assert!(start.elapsed() < WAIT_TIMEOUT, "{:?}", servers.each_ref().map(|server| server.stderr()));
        thread::sleep(Duration::from_millis(10));
    }
    let [winner, loser] = if ready(&servers[0]) { [0, 1] } else { [1, 0] };
    let output = servers[loser].stderr();
    let refused =
        ["the database contains another instance than", "the database contains an instance, but the data folder"];
    assert!(refused.iter().any(|text| output.contains(text)), "{output}");
    assert!(!ready(&servers[loser]) && !folders[loser].join("root-credentials").exists());
    drop(servers);
    // The first folder keeps the database, and the other one is refused from then on.
    let serve =
        |folder: &PathBuf| instance.serve().env("GABLE_DATA", &folder.display().to_string()).with_root_credentials();
    let refusal = serve(&folders[loser]).finish().refused();
    assert!(refused.iter().any(|text| refusal.starts_with(text)), "{refusal}");
    assert_eq!(serve(&folders[winner]).start().root().get("/api/v3/user").status, 200);
}

#[test]
fn a_second_server_on_the_same_folder_is_refused() {
    let instance = TestInstance::new();
    let server = instance.start();
    let refusal = instance.serve().finish().refused();
    let folder = instance.data().canonicalize().expect("the folder is there");
    assert_eq!(refusal, format!("another gable server is using the data folder {}; stop it first", folder.display()));
    assert_eq!(server.root().get("/api/v3/user").status, 200);
    server.kill();
    // A killed server releases its lock.
    assert_eq!(instance.start().root().get("/api/v3/user").status, 200);
}

#[test]
fn an_invalid_setting_is_reported_in_one_line() {
    let instance = TestInstance::new();
    let refused = |arguments: &[&str]| instance.gable(&["serve"]).args(arguments).finish().refused();
    let file = instance.file("gable.toml", "listen = \"127.0.0.1:0\"\ndatabse = \"postgres://ann:s3cret@host/db\"\n");
    let refusal = refused(&["--config", &file]);
    assert_eq!(
        refusal,
        format!("line 2 of the configuration file {file}: unknown field `databse`; did you mean `database`?")
    );

    let missing = instance.data().join("nowhere.toml").display().to_string();
    let refusal = refused(&["--config", &missing]);
    assert_eq!(
        refusal,
        format!("cannot read the configuration file {missing}: No such file or directory (os error 2)")
    );
    assert_eq!(refused(&["--dialect", "klingon"]), "unknown dialect klingon; choose spec or gitlab");
    assert_eq!(
        refused(&["--listen", "nowhere"]),
        "cannot listen on nowhere: expected HOST:PORT, such as 127.0.0.1:8080"
    );
    assert_eq!(
        refused(&["--external-url", "ftp://host"]),
        "invalid external-url ftp://host: expected https://host or https://host/prefix"
    );
    assert_eq!(
        refused(&["--database", "mysql://ann:s3cret@host/db"]),
        "the database URL does not start with postgres://; omit it to use the embedded database"
    );
    let refusal = refused(&["--log", "api=loud"]);
    assert!(refusal.starts_with("invalid log filter api=loud: "), "{refusal}");
}

#[test]
fn an_invalid_log_filter_is_refused_from_every_source() {
    let instance = TestInstance::new();
    let refusal = "invalid log filter verbose: use error, warn, info, debug, trace or off, or levels per target, such as \
                   info,forge=debug";
    let file = instance.file("gable.toml", "log = \"verbose\"\n");
    for gable in [
        instance.gable(&["serve", "--log", "verbose"]),
        instance.gable(&["serve"]).env("GABLE_LOG", "verbose"),
        instance.gable(&["serve", "--config", &file]),
    ] {
        let finished = gable.finish();
        assert_eq!((finished.status, finished.refused().as_str()), (Some(2), refusal));
    }
    let runner = instance.gable(&["runner", "run", "--url", "http://127.0.0.1:1", "--log", "verbose"]).finish();
    assert!(runner.status == Some(2) && runner.stderr.contains(refusal), "{}", runner.stderr);
    assert!(!instance.data().exists(), "nothing is created for an invalid setting");
}

#[test]
fn a_server_that_listens_on_all_addresses_reports_it() {
    let instance = TestInstance::new();
    let everywhere = ["--listen", "0.0.0.0:0", "--ssh-listen", "0.0.0.0:0"];
    let server = instance.gable(&["serve"]).args(&everywhere).with_root_credentials().start();
    let output = server.stdout();
    let words: Vec<&str> = output.split_ascii_whitespace().collect();
    assert!(words[3].starts_with("http://0.0.0.0:") && words[8].starts_with("ssh://git@0.0.0.0:"), "{output}");
    assert_eq!(output.matches("(all IPv4 addresses)").count(), 2, "{output}");
    let port = words[3].rsplit_once(':').expect("a port").1;
    let listen = format!("127.0.0.1:{port}");
    assert_eq!(instance.gable(&["health", "--listen", &listen]).finish().succeeded(), "ready\n");
    let log = server.stop().stderr;
    let warned = format!("point to http://127.0.0.1:{port}, which only this machine can reach; set external-url");
    assert!(log.contains(&warned), "{log}");
    let url = "https://git.example.org";
    let server = instance.gable(&["serve"]).args(&everywhere).args(&["--external-url", url]).start();
    let log = server.stop().stderr;
    assert!(!log.contains("only this machine can reach") && log.contains(url), "{log}");
    if TcpListener::bind("[::]:0").is_ok() {
        let server = instance.gable(&["serve", "--listen", "[::]:0"]).start();
        assert!(server.url.starts_with("http://[::]:") && server.url.ends_with(" addresses)"), "{}", server.url);
    }
}

#[test]
fn the_exit_status_is_2_for_wrong_usage_and_1_for_failures() {
    let instance = TestInstance::embedded();
    let bad = instance.file("bad.toml", "listens = \"x\"\n");
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
        let finished = instance.gable(arguments).finish();
        assert_eq!(finished.status, Some(2), "{arguments:?}: {}", finished.combined_output());
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
        let finished = instance.gable(arguments).finish();
        assert_eq!(finished.status, Some(1), "{arguments:?}: {}", finished.combined_output());
    }
    let help = instance.gable(&["--help"]).finish().succeeded();
    assert!(help.contains("Exit status: 0 on success, 1 on failure, 2 if the command line"), "{help}");
}

#[test]
fn a_misspelled_flag_command_or_variable_gets_a_suggestion() {
    let instance = TestInstance::embedded();
    instance.start().stop();
    let complaint = |arguments: &[&str]| instance.gable(arguments).finish().stderr;
    let flag = complaint(&["serve", "--lisen", "127.0.0.1:0"]);
    assert!(flag.contains("unexpected argument '--lisen' found") && flag.contains("'--listen'"), "{flag}");
    let command = complaint(&["admin", "usr", "list"]);
    assert!(command.contains("unrecognized subcommand 'usr'") && command.contains("'user'"), "{command}");
    let sentence = "unknown variable GABLE_DATABSE is ignored; did you mean GABLE_DATABASE?";
    let misspelled = |gable: GableCommand| gable.env("GABLE_DATABSE", "postgres://ann:s3cret@host/db");
    let listed = misspelled(instance.gable(&["admin", "user", "list"])).finish();
    assert_eq!((listed.status, listed.stderr), (Some(0), format!("warning: {sentence}\n")));
    let server = misspelled(instance.serve().with_root_credentials()).start();
    let log = server.stop().stderr;
    assert!(log.contains("WARN") && log.contains(sentence) && !log.contains("s3cret"), "{log}");
}

#[test]
fn a_closed_standard_output_does_not_cause_a_panic() {
    let instance = TestInstance::embedded();
    instance.start().stop().succeeded();
    for arguments in [
        &["generate", "completions", "bash"][..],
        &["generate", "settings"],
        &["admin", "user", "list"],
        &["admin", "token", "list", "root"],
        &["admin", "task", "list"],
        // The former name is still accepted.
        &["admin", "job", "list"],
        &["admin", "runner", "list"],
        &["doctor"],
        &["doctor", "--json"],
        &["migrate"],
        &["--help"],
        &["--version"],
    ] {
        assert_eq!(instance.gable(arguments).finish_with_closed_stdout(), (Some(0), String::new()), "{arguments:?}");
    }
    // Losing a backup or a new token is an error.
    let (status, complaint) = instance.gable(&["backup", "-", "--quiet"]).finish_with_closed_stdout();
    assert!(status == Some(1) && complaint.starts_with("gable: ") && complaint.contains("Broken pipe"), "{complaint}");
    let (status, complaint) = instance.gable(&["admin", "token", "create", "root"]).finish_with_closed_stdout();
    assert!(status == Some(1) && complaint.starts_with("gable: cannot write to standard output"), "{complaint}");
}

#[test]
fn a_data_folder_accessible_to_others_is_reported_at_each_start() {
    let instance = TestInstance::new();
    fs::create_dir(instance.data()).expect("a folder");
    let set = |path: PathBuf, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode can be set");
    };
    set(instance.data(), 0o755);
    let folder = instance.data().canonicalize().expect("there").display().to_string();
    for _ in 0..2 {
        let log = instance.start().stop().stderr;
        assert!(
            log.contains(&format!("{folder} is accessible to other users (mode 755); run `chmod 700 {folder}`")),
            "{log}"
        );
    }
    set(instance.data().join("instance-key"), 0o644);
    assert_eq!(
        instance.serve().finish().refused(),
        format!(
            "{folder}/instance-key is accessible to other users (mode 644), but is a private key; run `chmod 600 \
             {folder}/instance-key`"
        )
    );
    instance.gable(&["doctor", "--fix", "--quick"]).finish().succeeded();
    let log = instance.start().stop().stderr;
    assert!(!log.contains("is accessible to"), "{log}");
}

#[test]
fn an_unknown_flag_or_command_is_reported() {
    let instance = TestInstance::new();
    for (arguments, complaint) in [
        (&["serve", "--sevre"][..], "unexpected argument '--sevre' found"),
        (&["sevre"], "unrecognized subcommand 'sevre'"),
        (&["serve", "--max-body-size", "big"], "invalid value 'big' for '--max-body-size <SIZE>': big is not a size"),
        (&["serve", "--log-format", "xml"], "invalid value 'xml' for '--log-format <FORMAT>'"),
    ] {
        let finished = instance.gable(arguments).finish();
        assert_eq!((finished.status, finished.stdout.as_str()), (Some(2), ""), "{}", finished.stderr);
        let sentence = format!("gable: {complaint}");
        assert!(finished.stderr.starts_with(&sentence) && finished.stderr.lines().count() == 1, "{}", finished.stderr);
        assert!(finished.stderr.ends_with("; see gable --help\n"), "{}", finished.stderr);
    }
    assert!(!instance.data().exists(), "nothing is created for an invalid command");
}

#[test]
fn an_unusable_data_folder_is_reported() {
    let instance = TestInstance::new();
    let below = format!("{}/data", instance.file("a-file", ""));
    let refusal = instance.serve().args(&["--data", &below]).finish().refused();
    assert_eq!(refusal, format!("cannot use the data folder {below}: Not a directory (os error 20)"));
    let refusal = instance.gable(&["admin", "--data", &below, "user", "list"]).finish().refused();
    assert_eq!(refusal, format!("cannot use the data folder {below}: Not a directory (os error 20)"));
}

#[test]
fn a_port_in_use_is_reported() {
    let instance = TestInstance::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let refusal = instance.gable(&["serve", "--listen", &address]).finish().refused();
    assert!(refusal.starts_with(&format!("cannot listen on {address}: Address already in use")), "{refusal}");
    assert!(refusal.ends_with("; stop the program that uses it, or choose another with --listen"), "{refusal}");
    // It failed before printing credentials, so the next start prints them.
    assert!(labeled_value(&instance.serve().start().stdout(), "token").is_some());
}

#[test]
fn a_newer_database_is_refused_and_not_changed() {
    let instance = TestInstance::new();
    instance.start().stop();
    // A migration of a later version.
    instance.execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('29991231000001')");
    let refusal = "the database is newer than this gable (it has migration 29991231000001); \
                   use the gable that wrote it, or a newer one";
    assert_eq!(instance.serve().finish().refused(), refusal);
    assert_eq!(instance.admin_refused(&["user", "list"]), refusal);
    instance.execute("DELETE FROM __diesel_schema_migrations WHERE version = '29991231000001'");
    assert_eq!(instance.start().root().get("/api/v3/user").status, 200);
}

#[test]
fn a_file_that_is_no_database_is_reported() {
    let instance = TestInstance::embedded();
    fs::create_dir(instance.data()).expect("a folder");
    fs::write(instance.data().join("gable.sqlite3"), "not a database, ".repeat(1000)).expect("a file");
    let refusal = instance.serve().finish().refused();
    assert!(refusal.starts_with("cannot open the database "), "{refusal}");
    assert!(refusal.contains("file is not a database"), "{refusal}");
}

#[test]
fn an_unreachable_postgresql_server_is_reported_without_the_password() {
    let instance = TestInstance::embedded();
    instance.start().stop();
    // Nothing listens on port 1.
    let database = "postgres://ann:s3cret@127.0.0.1:1/gable";
    for gable in [instance.serve(), instance.gable(&["admin", "user", "list"])] {
        let refusal = gable.env("GABLE_DATABASE", database).finish().refused();
        let prefix = "cannot connect to PostgreSQL at 127.0.0.1:1 (database gable, user ann): ";
        assert!(refusal.starts_with(prefix), "{refusal}");
        assert!(refusal.contains("refused") && !refusal.contains("s3cret"), "{refusal}");
        assert!(
            refusal.ends_with("; check that the server runs and listens there (listen_addresses, port)"),
            "{refusal}"
        );
    }
}

#[test]
fn a_postgresql_server_that_refuses_connections_is_reported_with_a_remedy() {
    // Requires PostgreSQL.
    let Some(mut url) = postgres_server() else { return };
    let instance = TestInstance::embedded();
    let refused = |url: &str| instance.serve().env("GABLE_DATABASE", url).finish().refused();
    url.set_path("no_such_database");
    let user = url.username().to_owned();
    let refusal = refused(url.as_str());
    let target = format!("(database no_such_database, user {user}): ");
    let remedy = format!("; create it with `createdb --owner {user} no_such_database`");
    assert!(refusal.contains(&target) && refusal.ends_with(&remedy), "{refusal}");
    url.query_pairs_mut().clear().append_pair("sslmode", "require");
    // With TLS the database is still missing; without it TLS is refused.
    let refusal = refused(url.as_str());
    assert!(refusal.ends_with(&remedy) || refusal.contains("turn TLS on in PostgreSQL (ssl = on)"), "{refusal}");
}

#[test]
fn the_password_in_a_database_url_is_never_shown() {
    let instance = TestInstance::embedded();
    for database in [
        "postgres://ann:s3cret@host:notaport/db",
        "postgres://ann:s3cret@host/db?sslmode=perhaps",
        "postgres://ann:s3cret@host/db?no-such-option=1",
        "postgres:/ann:s3cret@host/db",
        "ann:s3cret",
    ] {
        let refusal = instance.serve().env("GABLE_DATABASE", database).finish().refused();
        assert!(!refusal.contains("s3cret"), "{refusal}");
    }
    for arguments in [&["serve", "--help"][..], &["admin", "--help"], &["serve", "--sevre"]] {
        let output =
            instance.gable(arguments).env("GABLE_DATABASE", "postgres://ann:s3cret@host/db").finish().combined_output();
        assert!(!output.contains("s3cret"), "{output}");
    }
}

/// A request of which only the first half was sent.
struct PartialRequest(TcpStream);

impl PartialRequest {
    const HALVES: [&str; 2] = ["{\"email\":\"late", "@example.org\"}"];

    fn send(server: &ServerProcess) -> Self {
        let mut stream = TcpStream::connect(server.address()).expect("the server listens");
        stream.set_read_timeout(Some(WAIT_TIMEOUT)).expect("a time-out can be set");
        write!(
            stream,
            "POST /api/v3/user/emails HTTP/1.1\r\nHost: gable\r\nPRIVATE-TOKEN: {ROOT_TOKEN}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            Self::HALVES.concat().len(),
        )
        .expect("sent");
        // The server sends this once a handler waits for the body, so the request is in progress from here on.
        let mut interim = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut interim).expect("the server asks for the body");
        assert!(interim.starts_with(b"HTTP/1.1 100 Continue"), "{}", String::from_utf8_lossy(&interim));
        stream.write_all(Self::HALVES[0].as_bytes()).expect("sent");
        Self(stream)
    }

    fn finish(mut self) -> String {
        self.0.write_all(Self::HALVES[1].as_bytes()).expect("sent");
        let mut response = String::new();
        self.0.read_to_string(&mut response).expect("a response");
        response
    }
}

fn wait_until_stopping(server: &ServerProcess) {
    wait_for_log(server, "stopping");
}

fn wait_for_log(server: &ServerProcess, text: &str) {
    let start = Instant::now();
    while !server.stderr().contains(text) {
        assert!(start.elapsed() < WAIT_TIMEOUT, "{text:?} is not logged: {}", server.stderr());
        thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn a_request_in_progress_is_finished_before_the_server_stops() {
    for signal in ["TERM", "INT"] {
        let instance = TestInstance::new();
        let server = instance.start();
        let request = PartialRequest::send(&server);
        server.signal(signal);
        wait_until_stopping(&server);
        let response = request.finish();
        assert!(response.starts_with("HTTP/1.1 201 Created\r\n"), "{signal}: {response}");
        assert!(response.ends_with("{\"id\":2,\"email\":\"late@example.org\"}"), "{signal}: {response}");
        assert_eq!(server.wait().status, Some(0), "{signal}");
        let emails = instance.start().root().get("/api/v3/user/emails");
        assert_eq!(emails.to_string(), r#"200 [{"id":2,"email":"late@example.org"}]"#);
    }
}

#[test]
fn idle_connections_do_not_delay_the_shutdown() {
    let instance = TestInstance::new();
    let server = instance.start();
    let silent = TcpStream::connect(server.address()).expect("the server listens");
    let kept_open = server.root();
    assert_eq!(kept_open.get("/api/v3/user").status, 200);
    let start = Instant::now();
    assert_eq!(server.stop().status, Some(0));
    assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    drop((silent, kept_open));
}

#[test]
fn a_thread_that_waits_for_git_does_not_delay_the_shutdown() {
    // A server that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/x.git", silent.local_addr().expect("an address"));
    let instance = TestInstance::new();
    let server = instance.serve().args(&["--allow-local-network"]).with_root_credentials().start();
    let made = server.root().post("/api/v3/projects", &json!({ "name": "imported", "import_url": url }));
    assert_eq!(made.status, 201, "{made}");
    let connection = silent.accept().expect("git connects");
    let start = Instant::now();
    assert_eq!(server.stop().status, Some(0));
    assert!(start.elapsed() < Duration::from_secs(20), "it took {:?}", start.elapsed());
    drop(connection);
}

#[test]
fn a_second_signal_stops_the_server_at_once() {
    let instance = TestInstance::new();
    let server = instance.start();
    let request = PartialRequest::send(&server);
    server.signal("TERM");
    wait_until_stopping(&server);
    server.signal("TERM");
    assert_eq!(server.wait().status, Some(130));
    drop(request);
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let instance = TestInstance::new();
    let data = instance.data();
    let text = format!("data = {data:?}\nlisten = \"127.0.0.1:0\"\nexternal-url = \"http://from.file\"\n");
    let file = instance.file("gable.toml", &text);
    let web_url = |gable: GableCommand| {
        let server = gable.with_root_credentials().start();
        let root = server.root().get("/api/v3/user").json();
        root["web_url"].as_str().expect("a URL").to_owned()
    };
    let by_file = || instance.gable(&["serve", "--config", &file]).env_remove("GABLE_DATA");
    assert_eq!(web_url(by_file()), "http://from.file/root");
    assert!(instance.data().join("gable.lock").exists(), "the data folder of the file is used");
    let by_variable = || by_file().env("GABLE_EXTERNAL_URL", "http://from.variable");
    assert_eq!(web_url(by_variable()), "http://from.variable/root");
    assert_eq!(web_url(by_variable().args(&["--external-url", "http://from.flag"])), "http://from.flag/root");
    let all_by_variable = instance.gable(&["serve"]).env("GABLE_CONFIG", &file).env("GABLE_LISTEN", "127.0.0.1:0");
    assert_eq!(web_url(all_by_variable), "http://from.file/root");
}

#[test]
fn clone_urls_have_the_public_address_of_ssh() {
    let instance = TestInstance::new();
    let clone_urls = |server: &ServerProcess, name: &str| {
        let project = server.root().post("/api/v3/projects", &json!({ "name": name })).json();
        let file = json!({ "file_path": "a", "branch_name": "master", "content": "a", "commit_message": "a" });
        let id = project["id"].as_i64().expect("an id");
        assert_eq!(server.root().post(&format!("/api/v3/projects/{id}/repository/files"), &file).status, 201);
        let event = server.root().get(&format!("/api/v3/projects/{id}/events")).json()[0]["data"].clone();
        assert_eq!(event["project"]["git_ssh_url"], project["ssh_url_to_repo"], "{event}");
        project["ssh_url_to_repo"].as_str().expect("a URL").to_owned()
    };
    let serve = || instance.serve().with_root_credentials().args(&["--external-url", "https://code.example.org"]);
    let listen = ["--ssh-listen", "127.0.0.1:0"];
    let warning = "external-ssh-url is set, but this server does not listen for SSH";

    let server = serve().args(&listen).start();
    let port = server.ssh_url.as_deref().and_then(|url| url.rsplit_once(':')).expect("a port").1.to_owned();
    assert_eq!(clone_urls(&server, "one"), format!("ssh://git@code.example.org:{port}/root/one.git"));
    server.stop();
    let server = serve().args(&listen).env("GABLE_EXTERNAL_SSH_URL", "ssh://git.example.org").start();
    assert_eq!(clone_urls(&server, "two"), "git@git.example.org:root/two.git");
    assert!(!server.stop().stderr.contains(warning));
    // Other nodes may listen for SSH.
    let server = serve().args(&["--external-ssh-url", "ssh://git.example.org:2222"]).start();
    assert_eq!(clone_urls(&server, "three"), "ssh://git@git.example.org:2222/root/three.git");
    let log = server.stop().stderr;
    assert!(log.contains(warning), "{log}");
}

#[test]
fn health_readiness_and_metrics_are_served() {
    let instance = TestInstance::new();
    let server = instance.start();
    let monitor = server.anonymous();
    assert_eq!(monitor.get("/-/health").to_string(), "200 ok\n");
    assert_eq!(monitor.get("/-/ready").to_string(), "200 ready\n");
    server.root().get("/api/v3/users/1");
    let metrics = monitor.get("/-/metrics");
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4"));
    for line in [
        r#"gable_http_requests_total{method="GET",route="/api/v3/users/{id}",status="200"} 1"#,
        r#"gable_tasks{state="dead"} 0"#,
        r#"gable_queue_length{queue="blocking"} 0"#,
    ] {
        assert!(metrics.text.lines().any(|held| held == line), "no {line} in {metrics}");
    }
}

#[test]
fn metrics_are_served_through_a_proxy_only_to_administrators() {
    let instance = TestInstance::new();
    let server = instance.start();
    instance.admin(&["user", "create", "ann", "--email", "ann@example.org"]);
    let created = instance.admin(&["token", "create", "ann"]);
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
fn the_json_log_has_user_route_and_duration_of_each_request() {
    let instance = TestInstance::new();
    let server = instance.serve().with_root_credentials().args(&["--log-format", "json"]).start();
    let shown = server.root().get("/api/v3/users/1");
    let refused = server.anonymous().get_with("/api/v3/user", &[("x-request-id", "from-the-client-7")]);
    assert_eq!(refused.header("x-request-id"), Some("from-the-client-7"));
    let missed = server.root().get("/api/v3/nowhere/at/all");
    assert_eq!((shown.status, refused.status, missed.status), (200, 401, 404));
    let log = server.stop().stderr;
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    let lines: Vec<Value> = lines.collect();
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["message"].is_string()), "{log}");
    for (response, route, user) in
        [(&shown, "/api/v3/users/{id}", json!(1)), (&refused, "/api/v3/user", Value::Null), (&missed, "-", Value::Null)]
    {
        let id = response.header("x-request-id").expect("every response has one");
        let mut of_request = lines.iter().filter(|line| line["request"] == id);
        let (Some(line), None) = (of_request.next(), of_request.next()) else { panic!("not one line for {id}: {log}") };
        assert_eq!(
            (&line["method"], &line["route"], &line["status"]),
            (&json!("GET"), &json!(route), &json!(response.status))
        );
        assert_eq!(line["user"], user, "{line}");
        assert!(line["duration_ms"].as_f64().is_some_and(|duration| duration > 0.0), "{line}");
    }
}

#[test]
fn no_secret_reaches_the_log() {
    let instance = TestInstance::new();
    let server = instance.serve().with_root_credentials().args(&["--log", "trace"]).start();
    let (root, anonymous) = (server.root(), server.anonymous());
    let mut replies = vec![
        server.client("planted-token-in-header").get("/api/v3/user"),
        anonymous.get("/api/v3/user?private_token=planted-token-in-query"),
        anonymous.get("/api/v3/user/emails?per_page=1&private_token=a-token-of-the-story"),
        anonymous.get("/api/v3/planted-in-a-path?private_token=planted-beside-it"),
        anonymous.get_with("/api/v3/user", &[("authorization", "Bearer planted-token-of-bearer")]),
        anonymous.get_with("/api/v3/user", &[("authorization", "Basic cGxhbnRlZC1iYXNpYw==")]),
        anonymous.get_with("/api/v3/user", &[("cookie", "session=planted-cookie")]),
        anonymous.post("/api/v3/session", &json!({ "login": "root", "password": ROOT_PASSWORD })),
        anonymous.post("/api/v3/session", &json!({ "login": "root", "password": "planted-wrong-password" })),
        anonymous.post("/api/v3/session", &json!({ "login": "planted-login", "password": ["planted-in-an-array"] })),
        anonymous.post("/api/v3/session?password=planted-in-a-query", &json!("planted-in-a-string")),
    ];
    for (email, password) in [("ann@example.org", "planted-good-password"), ("ben", "planted-refused-password")] {
        let user = json!({ "username": &email[..3], "name": "Ann or Ben", "email": email, "password": password });
        replies.push(root.post("/api/v3/users", &user));
    }
    let statuses: Vec<_> = replies.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [401, 401, 200, 404, 401, 401, 401, 201, 401, 400, 400, 201, 400]);
    let session = replies[7].json();
    let session = session["private_token"].as_str().expect("a session has a token").to_owned();
    let links = replies[2].header("link").expect("a list has links").to_owned();
    let metrics = anonymous.get("/-/metrics").text;
    let output = server.stop().combined_output();
    let url = instance.database_url();
    // A short password may occur in a log by chance.
    let of_database = url.as_ref().and_then(|url| url.password()).filter(|password| password.len() >= 8);
    let mut secrets = vec!["planted", "cGxhbnRlZC1iYXNpYw", "$argon2", ROOT_PASSWORD, ROOT_TOKEN, &session];
    secrets.extend(of_database);
    for secret in secrets {
        for (source, text) in [("output", &output), ("links", &links), ("metrics", &metrics)] {
            assert!(!text.contains(secret), "{secret} in the {source}: {text}");
        }
    }
    // Nor are they in the data folder.
    for entry in fs::read_dir(instance.data()).expect("the folder is there") {
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
    let instance = TestInstance::new();
    let server = instance.start();
    let root = server.root();
    let user = json!({ "username": "ann", "name": "Ann", "email": "ann@example.org", "password": "ann ann ann" });
    assert_eq!(root.post("/api/v3/users", &user).json()["projects_limit"], 100_000);
    assert_eq!(root.get("/api/v3/user").json()["projects_limit"], 100_000);
    for number in 0..11 {
        let made = root.post("/api/v3/projects", &json!({ "name": format!("p{number}") }));
        assert_eq!(made.status, 201, "{made}");
        // Without SSH there is no such URL.
        assert_eq!(made.json()["ssh_url_to_repo"], "");
    }
    // Push events contain the URLs that exist.
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
    let instance = TestInstance::new();
    let server = instance.serve().with_root_credentials().args(&["--default-projects-limit", "3"]).start();
    let limit = server.root().post("/api/v3/users", &user).json()["projects_limit"].clone();
    assert_eq!(limit, 3);
}

#[test]
fn the_defaults_are_safe() {
    let (instance, other) = (TestInstance::new(), TestInstance::new());
    let (server, other) = (instance.serve().start(), other.serve().start());
    // No two instances have the same password or token.
    let (output, other_output) = (server.stdout(), other.stdout());
    for label in ["password", "token"] {
        assert_ne!(
            labeled_value(&output, label).expect("printed"),
            labeled_value(&other_output, label).expect("printed")
        );
    }
    // No well-known default password works.
    let stranger = server.anonymous();
    for password in ["5iveL!fe", "password", "root", "admin123", "gable"] {
        let refused = stranger.post("/api/v3/session", &json!({ "login": "root", "password": password }));
        assert_eq!(refused.to_string(), r#"401 {"message":"401 Unauthorized"}"#);
    }
    // Users cannot register themselves.
    let eve = json!({ "username": "eve", "name": "Eve", "email": "eve@example.org", "password": "eve eve eve" });
    assert_eq!(stranger.post("/api/v3/users", &eve).to_string(), r#"401 {"message":"401 Unauthorized"}"#);
    for path in ["/users", "/users/sign_up"] {
        assert_eq!(stranger.post(path, &eve).status, 405, "{path}");
    }
    for path in ["/api/v3/register", "/api/v3/registration", "/api/v3/sign_up"] {
        assert_eq!(stranger.post(path, &eve).to_string(), r#"404 {"error":"404 Not Found"}"#, "{path}");
    }
    // The generated token expires.
    let end = labeled_value(&output, "token expires").expect("printed");
    let tokens = instance.admin(&["token", "list", "root"]);
    assert!(tokens.lines().any(|line| line.contains("first start") && line.contains(end)), "{tokens}");
    // By default the server listens on localhost only and sends no requests to local addresses.
    wait_for_log(&server, "allow_local_network=false");
    let help = instance.gable(&["serve", "--help"]).finish().succeeded();
    assert!(help.contains("[default: 127.0.0.1:8080]"), "{help}");
}
