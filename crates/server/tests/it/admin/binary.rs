//! Starts the real binary the way an operator does, and hears what it says.
//!
//! With `GABLE_TEST_DATABASE=postgres://…` every story gets a database of its own on that server.

use std::{
    fmt,
    io::{Read, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use diesel::{RunQueryDsl as _, connection::SimpleConnection as _, sql_types::BigInt};
use serde_json::{Value, json};
use store::{Conn, Database};
use tempfile::TempDir;
use url::Url;

/// The password and the token of the administrator, where a story does not care how they come about.
pub(crate) const ROOT_PASSWORD: &str = "correct horse battery";
pub(crate) const ROOT_TOKEN: &str = "a-token-of-the-story";

/// How long anything may take; generous, because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Stories call more often than people do.
pub(crate) const UNLIMITED: &[&str] = &["--requests-per-minute", "0", "--anonymous-requests-per-minute", "0"];
/// How many clients a storm has.
const STORMERS: usize = 4;

/// A place for one instance: a folder, and a database if that is elsewhere. Gone when the story ends.
pub(crate) struct Home {
    folder: TempDir,
    database: Option<OwnDatabase>,
}

/// The binary, about to run.
pub(crate) struct Gable(Command);

/// A server that is ready; killed when the story ends.
pub(crate) struct Server {
    child: Child,
    stdout: Ear,
    stderr: Ear,
    /// Where it listens, as it says itself.
    pub(crate) url: String,
    /// Where it listens for SSH, if it does.
    pub(crate) ssh_url: Option<String>,
}

/// What a run came to.
pub(crate) struct Finished {
    /// The exit status; `None` if a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), database: OwnDatabase::create() }
    }

    /// A place that keeps its data in the embedded database, whatever the other stories do.
    pub(crate) fn embedded() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), database: None }
    }

    /// The data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file beside the data folder and answers its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.into_os_string().into_string().expect("a readable path")
    }

    /// The binary in this place, with nothing of the surrounding `GABLE_…` variables.
    pub(crate) fn gable(&self, arguments: &[&str]) -> Gable {
        let gable = Gable::new(env!("CARGO_BIN_EXE_gable")).args(arguments);
        gable.in_place(self)
    }

    /// A server on a port of its own.
    pub(crate) fn serve(&self) -> Gable {
        self.limited().args(UNLIMITED)
    }

    /// A server on a port of its own, with the limits that everybody has.
    pub(crate) fn limited(&self) -> Gable {
        self.gable(&["serve", "--listen", "127.0.0.1:0"])
    }

    /// A ready server whose administrator has the password and the token of the story.
    pub(crate) fn start(&self) -> Server {
        self.serve().with_known_root().start()
    }

    /// An admin command that is expected to succeed; answers what it says.
    pub(crate) fn admin(&self, arguments: &[&str]) -> String {
        self.gable(&["admin"]).args(arguments).finish().succeeded()
    }

    /// An admin command that is expected to fail; answers the sentence.
    pub(crate) fn admin_refused(&self, arguments: &[&str]) -> String {
        self.gable(&["admin"]).args(arguments).finish().refused()
    }

    /// Runs SQL behind the server's back.
    pub(crate) fn execute(&self, sql: &str) {
        execute(&self.database(), sql);
    }

    /// Asks the database for a number behind the server's back.
    pub(crate) fn count(&self, sql: &str) -> i64 {
        let query = diesel::dsl::sql::<BigInt>(sql);
        match &mut self.database().connect_writer().expect("a connection") {
            Conn::Sqlite(conn) => query.get_result(conn),
            Conn::Pg(conn) => query.get_result(conn),
        }
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The name of the folders in which the files of a project lie.
    pub(crate) fn storage_of(&self, project: i64) -> String {
        let mut db = self.database().connect_writer().expect("a connection");
        let found = store::projects::storage_of(&mut db, project).expect("readable");
        found.expect("a project").to_string()
    }

    /// Copies the database as it is now; only an embedded one can be copied beside a server.
    pub(crate) fn save_database(&self) {
        match &self.database {
            None => {
                let copy = self.saved_file();
                let _ = std::fs::remove_file(&copy);
                self.database().copy_to(&copy).expect("copied");
            }
            Some(own) => {
                let name = &own.name;
                execute(&own.maintenance(), &format!("CREATE DATABASE {name}_saved TEMPLATE {name}"));
            }
        }
    }

    /// Puts the copy in the place of the database.
    pub(crate) fn put_database_back(&self) {
        match &self.database {
            None => {
                // Without a server, everything is in the one file.
                std::fs::copy(self.saved_file(), self.data().join("gable.sqlite3")).expect("copied");
            }
            Some(own) => {
                own.maintain("DROP DATABASE", "WITH (FORCE)");
                let name = &own.name;
                execute(&own.maintenance(), &format!("ALTER DATABASE {name}_saved RENAME TO {name}"));
            }
        }
    }

    fn saved_file(&self) -> PathBuf {
        self.folder.path().join("saved.sqlite3")
    }

    /// The URL of the database, where it is not embedded.
    pub(crate) fn database_url(&self) -> Option<Url> {
        self.database.as_ref().map(OwnDatabase::url)
    }

    /// Cuts the PostgreSQL database off, and lets nobody in.
    pub(crate) fn begin_outage(&self) {
        self.own_database().maintain("ALTER DATABASE", "ALLOW_CONNECTIONS false");
        let name = &self.own_database().name;
        let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        execute(&self.own_database().maintenance(), &cut);
    }

    /// Lets everybody in again.
    pub(crate) fn end_outage(&self) {
        self.own_database().maintain("ALTER DATABASE", "ALLOW_CONNECTIONS true");
    }

    fn own_database(&self) -> &OwnDatabase {
        self.database.as_ref().expect("only a server can fail by itself")
    }

    fn database(&self) -> Database {
        match self.database_url() {
            None => Database::sqlite(self.data().join("gable.sqlite3")),
            Some(url) => Database::postgres(url.as_str()).expect("a good URL"),
        }
    }
}

impl Gable {
    /// A program with nothing of the surrounding `GABLE_…` variables.
    pub(crate) fn new(program: &str) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command)
    }

    pub(crate) fn in_place(mut self, home: &Home) -> Self {
        self.0.current_dir(home.folder.path()).env("GABLE_DATA", home.data());
        match home.database_url() {
            None => self,
            Some(url) => self.env("GABLE_DATABASE", url.as_str()),
        }
    }

    pub(crate) fn with_known_root(self) -> Self {
        self.env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD).env("GABLE_ROOT_TOKEN", ROOT_TOKEN)
    }

    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.0.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    /// Starts a server and waits until it is ready.
    pub(crate) fn start(self) -> Server {
        let mut server = self.spawn();
        let start = Instant::now();
        loop {
            // Asked before the text is looked at, so that last words are heard.
            let ended = server.child.try_wait().expect("a child can be asked").is_some();
            let said = server.stdout();
            let ready = said.lines().find_map(|line| line.strip_prefix("gable ready on "));
            if let (Some(url), true) = (ready, said.ends_with('\n')) {
                let (url, ssh_url) = url.split_once(" and ").map_or((url, None), |(url, ssh)| (url, Some(ssh)));
                server.url = url.to_owned();
                server.ssh_url = ssh_url.map(ToOwned::to_owned);
                return server;
            }
            assert!(!ended && start.elapsed() < PATIENCE, "not ready: {said}{}", server.stderr());
            thread::sleep(Duration::from_millis(3));
        }
    }

    /// Runs to the end.
    pub(crate) fn finish(self) -> Finished {
        self.spawn().wait()
    }

    /// Runs to the end while nobody reads what it prints; answers the exit status and what it complains of.
    pub(crate) fn finish_unread(mut self) -> (Option<i32>, String) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = self.0.stdout(writer).output().expect("the program runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs to the end with something on standard input.
    pub(crate) fn finish_reading(mut self, input: &str) -> Finished {
        self.0.stdin(Stdio::piped());
        let mut running = self.spawn();
        let mut stdin = running.child.stdin.take().expect("standard input is piped");
        // A command that refuses before it reads closes its end.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        running.wait()
    }

    /// Starts it and waits for nothing.
    pub(crate) fn spawn(mut self) -> Server {
        let mut child = self.0.spawn().expect("the program starts");
        let stdout = Ear::at(child.stdout.take().expect("standard output is piped"));
        let stderr = Ear::at(child.stderr.take().expect("standard error is piped"));
        Server { child, stdout, stderr, url: String::new(), ssh_url: None }
    }
}

impl Server {
    pub(crate) fn stdout(&self) -> String {
        self.stdout.so_far()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.so_far()
    }

    /// The administrator with the token of the story.
    pub(crate) fn root(&self) -> Client {
        self.client(ROOT_TOKEN)
    }

    pub(crate) fn client(&self, token: &str) -> Client {
        Client { token: Some(token.to_owned()), ..self.anonymous() }
    }

    pub(crate) fn anonymous(&self) -> Client {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            // A proxy of the surroundings has no business here.
            .proxy(None)
            .build();
        Client { agent: config.into(), url: self.url.clone(), token: None }
    }

    /// The host and port, for those who speak TCP themselves.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Sends a signal by its short name.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -s {name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(sent.success(), "{kill}");
    }

    /// The most memory that it ever had, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running process");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak.and_then(|kilobytes| kilobytes.parse::<u64>().ok()).expect("a number") << 10
    }

    /// Asks it to stop and waits until it has.
    pub(crate) fn stop(self) -> Finished {
        self.signal("TERM");
        self.wait()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Finished {
        self.child.kill().expect("a child can be killed");
        self.wait()
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Finished {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                break status.code();
            }
            assert!(start.elapsed() < PATIENCE, "still running: {}{}", self.stdout(), self.stderr());
            thread::sleep(Duration::from_millis(3));
        };
        Finished { status, stdout: self.stdout.all_of_it(), stderr: self.stderr.all_of_it() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("what the process said:\n{}{}", self.stdout(), self.stderr());
        }
    }
}

impl Finished {
    /// What it said, all being well.
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.status, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The one sentence with which it refused, whoever is to blame.
    pub(crate) fn refused(self) -> String {
        assert!(matches!(self.status, Some(1 | 2)), "{:?}: {}{}", self.status, self.stdout, self.stderr);
        assert_eq!(self.stdout, "", "{}", self.stderr);
        let sentence = self.stderr.strip_prefix("gable: ").and_then(|text| text.strip_suffix('\n'));
        let sentence = sentence.unwrap_or_else(|| panic!("not a sentence of ours: {}", self.stderr));
        assert!(!sentence.contains('\n'), "more than one line: {sentence}");
        sentence.to_owned()
    }

    /// Everything it said.
    pub(crate) fn words(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Hears a stream to its end, while others look at what was said so far.
struct Ear {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Ear {
    fn at(mut stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&text);
        let thread = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut piece) {
                heard.lock().expect("nothing panics while holding this").extend_from_slice(&piece[..length]);
            }
        });
        Self { text, thread: Some(thread) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("nothing panics while holding this")).into_owned()
    }

    fn all_of_it(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread ends well");
        }
        self.so_far()
    }
}

/// Somebody who calls a server over HTTP.
#[derive(Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

/// An answer, read to its end.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) text: String,
    headers: Vec<(String, String)>,
}

impl Client {
    /// `GET` of a path.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.get_with(path, &[])
    }

    /// `GET` of a path with further headers.
    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        for (name, value) in headers.iter().copied().chain(self.token_header()) {
            request = request.header(name, value);
        }
        request.call().map_or_else(|error| panic!("GET {path}: {error}"), Reply::read)
    }

    /// `GET` of a path from a server that may not live to answer it.
    pub(crate) fn try_get(&self, path: &str) -> Result<Reply, ureq::Error> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.call().map(Reply::read)
    }

    /// `POST` of JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.try_post(path, body).unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// `PUT` of JSON to a server that may not live to answer it.
    pub(crate) fn try_put(&self, path: &str, body: &Value) -> Result<Reply, ureq::Error> {
        let mut request = self.agent.put(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.send_json(body).map(Reply::read)
    }

    /// `DELETE` on a server that may not live to answer it.
    pub(crate) fn try_delete(&self, path: &str) -> Result<Reply, ureq::Error> {
        let mut request = self.agent.delete(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.call().map(Reply::read)
    }

    /// `POST` of JSON to a server that may not live to answer it.
    pub(crate) fn try_post(&self, path: &str, body: &Value) -> Result<Reply, ureq::Error> {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.send_json(body).map(Reply::read)
    }

    /// `PATCH` of text to a server that may not live to answer it.
    pub(crate) fn try_patch(&self, path: &str, headers: &[(&str, &str)], text: &str) -> Result<Reply, ureq::Error> {
        let mut request = self.agent.patch(format!("{}{path}", self.url));
        for (name, value) in headers.iter().copied().chain(self.token_header()) {
            request = request.header(name, value);
        }
        request.send(text).map(Reply::read)
    }

    /// A request with a body as it stands.
    pub(crate) fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Reply, ureq::Error> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers.iter().copied().chain(self.token_header()) {
            request = request.header(name, value);
        }
        self.agent.run(request.body(body.to_owned()).expect("a good request")).map(Reply::read)
    }

    /// Uploads a file to a server that may not live to answer it.
    pub(crate) fn try_upload(&self, path: &str, name: &str, content: &str) -> Result<Reply, ureq::Error> {
        let part = format!("content-disposition: form-data; name=\"file\"; filename=\"{name}\"");
        let body = format!("--edge\r\n{part}\r\n\r\n{content}\r\n--edge--\r\n");
        let mut request = self.agent.post(format!("{}{path}", self.url));
        if let Some((name, value)) = self.token_header() {
            request = request.header(name, value);
        }
        request.header("content-type", "multipart/form-data; boundary=edge").send(body).map(Reply::read)
    }

    fn token_header(&self) -> Option<(&str, &str)> {
        self.token.as_deref().map(|token| ("private-token", token))
    }
}

impl Reply {
    fn read(mut response: ureq::http::Response<ureq::Body>) -> Self {
        let headers = response.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        let headers = headers.collect();
        // A server that dies now has sent its status already, and that counts.
        let text = response.body_mut().read_to_string().unwrap_or_default();
        Self { status: response.status().as_u16(), text, headers }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The body, unless the server died in the middle of it.
    pub(crate) fn try_json(&self) -> Option<Value> {
        serde_json::from_str(&self.text).ok()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.text)
    }
}

/// Several clients that add addresses as fast as they can, and remember those that were acknowledged.
pub(crate) struct Storm {
    over: Arc<AtomicBool>,
    heard: Heard,
    clients: Vec<JoinHandle<Vec<String>>>,
}

/// Whether a write was acknowledged.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<AtomicBool>);

impl Heard {
    /// One was.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// From now on it counts whether one is heard again.
    pub(crate) fn forget(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Waits until one was.
    pub(crate) fn wait(&self) {
        let start = Instant::now();
        while !self.0.load(Ordering::SeqCst) {
            assert!(start.elapsed() < PATIENCE, "no write is acknowledged");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Storm {
    /// Begins; the name keeps the addresses of several storms apart.
    pub(crate) fn begin(server: &Server, name: &str) -> Self {
        let (over, heard) = (Arc::default(), Heard::default());
        let clients = (0..STORMERS).map(|number| {
            let (root, over, heard) = (server.root(), Arc::clone(&over), heard.clone());
            let name = format!("{name}-{number}");
            thread::spawn(move || Self::rage(&root, &over, &heard, &name))
        });
        Self { clients: clients.collect(), over, heard }
    }

    /// Whether a write was acknowledged.
    pub(crate) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// Ends, and answers the addresses that were acknowledged.
    pub(crate) fn end(self) -> Vec<String> {
        self.over.store(true, Ordering::SeqCst);
        self.clients.into_iter().flat_map(|client| client.join().expect("nothing but 201 is heard")).collect()
    }

    fn rage(root: &Client, over: &AtomicBool, heard: &Heard, name: &str) -> Vec<String> {
        let mut acknowledged = Vec::new();
        for number in 0.. {
            let address = format!("{name}-{number}@example.org");
            match root.try_post("/api/v3/user/emails", &json!({ "email": address })) {
                Ok(reply) => assert_eq!(reply.status, 201, "{address}: {reply}"),
                // Somebody killed the server.
                Err(_) => break,
            }
            acknowledged.push(address);
            heard.note();
            if over.load(Ordering::SeqCst) {
                break;
            }
        }
        acknowledged
    }
}

/// A database on the PostgreSQL server of the tests.
struct OwnDatabase {
    server: Url,
    name: String,
}

impl OwnDatabase {
    fn create() -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let server = postgres_server()?;
        let name = format!("gable_story_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::SeqCst));
        let own = Self { server, name };
        own.maintain("DROP DATABASE IF EXISTS", "WITH (FORCE)");
        own.maintain("CREATE DATABASE", "");
        Some(own)
    }

    fn url(&self) -> Url {
        let mut url = self.server.clone();
        url.set_path(&self.name);
        url
    }

    /// The database of the server itself, from which others are made.
    fn maintenance(&self) -> Database {
        Database::postgres(self.server.as_str()).expect("a good URL")
    }

    fn maintain(&self, what: &str, how: &str) {
        execute(&self.maintenance(), &format!("{what} {} {how}", self.name));
    }
}

impl Drop for OwnDatabase {
    fn drop(&mut self) {
        // Without a word if it fails: a second panic would hide the first.
        let _ = try_execute(&self.maintenance(), &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// The PostgreSQL server that the tests may use, if there is one.
pub(crate) fn postgres_server() -> Option<Url> {
    let text = std::env::var("GABLE_TEST_DATABASE").ok().filter(|text| !text.is_empty())?;
    Some(Url::parse(&text).expect("GABLE_TEST_DATABASE is a URL"))
}

fn execute(database: &Database, sql: &str) {
    try_execute(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

fn try_execute(database: &Database, sql: &str) -> Result<(), String> {
    match &mut database.connect_writer().map_err(|error| error.to_string())? {
        Conn::Sqlite(conn) => conn.batch_execute(sql),
        Conn::Pg(conn) => conn.batch_execute(sql),
    }
    .map_err(|error| error.to_string())
}
