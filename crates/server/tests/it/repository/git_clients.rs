//! Stock git and ssh against the real binary, over both transports.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::{FileExt as _, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::repository::{git_command, incompressible_text};

use crate::{
    repository::malformed_fetches::body,
    support::{HttpClient, ROOT_PASSWORD, ServerProcess, TestInstance, UNLIMITED, WAIT_TIMEOUT},
};

/// A server with both transports, and a folder for the work trees of users.
pub(crate) struct GitServer {
    instance: TestInstance,
    pub(crate) server: ServerProcess,
    work: TempDir,
}

/// The transport of git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Ssh,
}

/// A user with a token and an SSH key.
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) client: HttpClient,
    token: String,
    key: PathBuf,
}

impl GitServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more arguments.
    pub(crate) fn start_with(more: &[&str]) -> Self {
        let instance = TestInstance::new();
        let server = Self::serve(&instance, more);
        Self { instance, server, work: tempfile::tempdir().expect("a folder") }
    }

    fn serve(instance: &TestInstance, more: &[&str]) -> ServerProcess {
        let gable = instance.gable(&["serve", "--listen", "127.0.0.1:0", "--ssh-listen", "127.0.0.1:0"]);
        gable.args(UNLIMITED).args(more).with_root_credentials().start()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Creates a user.
    pub(crate) fn person(&self, name: &str) -> Person {
        let (email, password) = (format!("{name}@example.com"), ROOT_PASSWORD);
        let new = json!({ "username": name, "name": name, "email": email, "password": password, "confirm": false });
        self.server.root().post("/api/v3/users", &new);
        let session = json!({ "login": name, "password": password });
        let token = self.server.anonymous().post("/api/v3/session", &session).json()["private_token"].clone();
        self.with_key(name, token.as_str().expect("a token"))
    }

    fn with_key(&self, name: &str, token: &str) -> Person {
        let key = self.path(&format!("{name}.key"));
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
            .arg(&key)
            .status()
            .expect("ssh-keygen runs");
        assert!(made.success());
        let public = fs::read_to_string(key.with_extension("key.pub")).expect("a public key");
        let client = self.server.client(token);
        client.post("/api/v3/user/keys", &json!({ "title": "story", "key": public.trim() }));
        Person { name: name.into(), client, token: token.into(), key }
    }

    /// Returns the URL of a repository for a user.
    pub(crate) fn url(&self, person: Option<&Person>, transport: Transport, path: &str) -> String {
        match (transport, person) {
            (Transport::Http, None) => format!("{}/{path}.git", self.server.url),
            (Transport::Http, Some(person)) => {
                format!("http://{}:{}@{}/{path}.git", person.name, person.token, self.server.address())
            }
            (Transport::Ssh, _) => format!("{}/{path}.git", self.server.ssh_url.as_deref().expect("SSH is served")),
        }
    }

    /// Returns a git command in a work tree, as a user.
    pub(crate) fn command(&self, person: Option<&Person>, folder: &str) -> Command {
        let folder = self.path(folder);
        fs::create_dir_all(&folder).expect("a folder");
        let mut command = git_command(&folder);
        if let Some(person) = person {
            command.env("GIT_SSH_COMMAND", ssh_command(&person.key));
        }
        command
    }

    /// Runs git in a work tree, as a user.
    pub(crate) fn git(&self, person: Option<&Person>, folder: &str, arguments: &[&str]) -> Output {
        self.command(person, folder).args(arguments).output().expect("git runs")
    }

    pub(crate) fn git_ok(&self, person: Option<&Person>, folder: &str, arguments: &[&str]) -> String {
        let output = self.git(person, folder, arguments);
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs git, expects it to fail, and returns its standard error.
    pub(crate) fn git_refused(&self, person: Option<&Person>, folder: &str, arguments: &[&str]) -> String {
        let output = self.git(person, folder, arguments);
        assert!(!output.status.success(), "git {arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Returns an ssh command, as a user.
    fn ssh(&self, person: &Person) -> Command {
        let address = self.server.ssh_url.as_deref().expect("SSH is served");
        let port = address.rsplit_once(':').expect("a port").1;
        let options = ssh_command(&person.key);
        let mut words = options.split_ascii_whitespace();
        let mut command = Command::new(words.next().expect("ssh"));
        command.args(words).args(["-T", "-o", "SendEnv=GIT_PROTOCOL", "-p", port, "git@127.0.0.1"]);
        command
    }

    /// Starts upload-pack with protocol version 2 over SSH, for a client that sends its packets itself.
    pub(crate) fn upload_pack(&self, person: &Person, project: &str) -> Child {
        let mut command = self.ssh(person);
        command.env("GIT_PROTOCOL", "version=2").arg(format!("git-upload-pack '{project}.git'"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ssh runs")
    }

    /// Commits a file in a work tree.
    pub(crate) fn commit(&self, folder: &str, file: &str, content: &str) -> String {
        let path = self.path(folder).join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
        self.git_ok(None, folder, &["add", "--", file]);
        self.git_ok(None, folder, &["commit", "-q", "-m", &format!("Change {file}")]);
        self.git_ok(None, folder, &["rev-parse", "HEAD"])
    }
}

pub(crate) fn ssh_command(key: &Path) -> String {
    format!(
        "ssh -F /dev/null -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes",
        key.display()
    )
}

pub(crate) fn make_project(person: &Person, name: &str, visibility: i64) -> i64 {
    let new = json!({ "name": name, "path": name, "visibility_level": visibility });
    person.client.post("/api/v3/projects", &new).json()["id"].as_i64().expect("a number")
}

#[test]
fn usual_work_with_git_over_http() {
    usual_work(Transport::Http);
}

#[test]
fn usual_work_with_git_over_ssh() {
    usual_work(Transport::Ssh);
}

fn usual_work(transport: Transport) {
    let setup = GitServer::start();
    let (ann, bob) = (setup.person("ann"), setup.person("bob"));
    let id = make_project(&ann, "rocket", 0);
    let api = format!("/api/v3/projects/{id}");
    let url = setup.url(Some(&ann), transport, "ann/rocket");

    // An empty repository can be cloned and pushed to.
    setup.git_ok(Some(&ann), ".", &["clone", "-q", &url, "ann"]);
    setup.git_ok(None, "ann", &["checkout", "-q", "-b", "main"]);
    let first = setup.commit("ann", "README.md", "hello\n");
    setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);
    assert_eq!(ann.client.get(&api).json()["default_branch"], "main");

    // Another user cannot clone a private project before becoming a member.
    let his = setup.url(Some(&bob), transport, "ann/rocket");
    let refused = setup.git_refused(Some(&bob), ".", &["clone", "-q", &his, "bob"]);
    assert!(refused.contains("not found") || refused.contains("could not be found"), "{refused}");
    ann.client.post(
        &format!("{api}/members"),
        &json!({ "user_id": bob.client.get("/api/v3/user").json()["id"], "access_level": 30 }),
    );
    setup.git_ok(Some(&bob), ".", &["clone", "-q", &his, "bob"]);
    assert_eq!(setup.git_ok(None, "bob", &["rev-parse", "HEAD"]), first);

    // The default branch is protected: a developer may not push to it, and no one may rewrite or delete it.
    setup.commit("bob", "bob.txt", "bob\n");
    let refused = setup.git_refused(Some(&bob), "bob", &["push", "origin", "main"]);
    assert!(refused.contains("You are not allowed to push code to protected branches on this project."), "{refused}");
    setup.git_ok(None, "ann", &["commit", "-q", "--amend", "-m", "Rewritten"]);
    let refused = setup.git_refused(Some(&ann), "ann", &["push", "-f", "origin", "main"]);
    assert!(
        refused.contains("You are not allowed to force push code to a protected branch on this project."),
        "{refused}"
    );
    let refused = setup.git_refused(Some(&ann), "ann", &["push", "origin", ":main"]);
    assert!(refused.contains("You are not allowed to delete protected branches from this project."), "{refused}");
    setup.git_ok(None, "ann", &["reset", "-q", "--hard", &first]);

    // A developer may push, rewrite and delete other branches.
    let topic = setup.commit("bob", "topic.txt", "topic\n");
    setup.git_ok(Some(&bob), "bob", &["push", "-q", "origin", "HEAD:topic/one"]);
    let branch = ann.client.get(&format!("{api}/repository/branches/topic/one")).json();
    assert_eq!((&branch["name"], &branch["commit"]["id"]), (&json!("topic/one"), &json!(topic)));
    setup.git_ok(None, "bob", &["commit", "-q", "--amend", "-m", "Better"]);
    let refused = setup.git_refused(Some(&bob), "bob", &["push", "origin", "HEAD:topic/one"]);
    assert!(refused.contains("non-fast-forward"), "{refused}");
    setup.git_ok(Some(&bob), "bob", &["push", "-q", "-f", "origin", "HEAD:topic/one"]);

    // A later push does not overwrite an earlier one.
    setup.git_ok(Some(&ann), "ann", &["fetch", "-q"]);
    let merged = setup.commit("ann", "second.txt", "second\n");
    setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);
    setup.git_ok(Some(&bob), "bob", &["fetch", "-q"]);
    assert_eq!(setup.git_ok(None, "bob", &["rev-parse", "origin/main"]), merged);

    // Tags: a developer creates them, only a master changes them.
    setup.git_ok(None, "bob", &["tag", "-a", "v1", "-m", "One", "origin/main"]);
    setup.git_ok(Some(&bob), "bob", &["push", "-q", "origin", "v1"]);
    setup.git_ok(None, "bob", &["tag", "-f", "v1", &first]);
    let refused = setup.git_refused(Some(&bob), "bob", &["push", "-f", "origin", "v1"]);
    assert!(refused.contains("You are not allowed to change existing tags on this project."), "{refused}");
    setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", ":v1"]);

    setup.git_ok(Some(&bob), "bob", &["push", "-q", "origin", ":topic/one"]);
    assert_eq!(ann.client.get(&format!("{api}/repository/branches/topic/one")).status, 404);

    // Shallow, single-branch and partial clones.
    setup.git_ok(Some(&bob), ".", &["clone", "-q", "--depth", "1", &his, "shallow"]);
    assert_eq!(setup.git_ok(None, "shallow", &["rev-list", "--count", "HEAD"]), "1");
    setup.git_ok(Some(&bob), "shallow", &["fetch", "-q", "--unshallow"]);
    assert_eq!(setup.git_ok(None, "shallow", &["rev-list", "--count", "HEAD"]), "2");
    setup.git_ok(Some(&bob), ".", &["clone", "-q", "--filter=blob:none", "--no-checkout", &his, "partial"]);
    let missing = setup.git_ok(None, "partial", &["rev-list", "--objects", "--missing=print", "HEAD"]);
    assert!(missing.lines().any(|line| line.starts_with('?')), "{missing}");
    assert_eq!(setup.git_ok(Some(&bob), "partial", &["show", "HEAD:README.md"]), "hello");
    setup.git_ok(Some(&bob), ".", &["clone", "-q", "--single-branch", "--branch", "main", &his, "single"]);
    assert_eq!(setup.git_ok(None, "single", &["branch", "-r"]), "origin/HEAD -> origin/main\n  origin/main");

    // The events are listed, newest first.
    let events = ann.client.get(&format!("{api}/events?per_page=100")).json();
    let found: Vec<(String, String)> = events
        .as_array()
        .expect("a list")
        .iter()
        .filter(|event| event["data"] != Value::Null)
        .map(|event| (text(&event["action_name"]), text(&event["data"]["ref"])))
        .collect();
    let expected = [
        ("deleted", "refs/heads/topic/one"),
        ("deleted", "refs/tags/v1"),
        ("pushed new", "refs/tags/v1"),
        ("pushed to", "refs/heads/main"),
        ("pushed to", "refs/heads/topic/one"),
        ("pushed new", "refs/heads/topic/one"),
        ("pushed new", "refs/heads/main"),
    ];
    let expected: Vec<(String, String)> = expected.map(|(action, name)| (action.into(), name.into())).into();
    assert_eq!(found, expected);
    setup.server.stop().succeeded();
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn ssh_without_a_command_greets_and_gives_no_shell() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    let ssh = |arguments: &[&str]| setup.ssh(&ann).args(arguments).stdin(Stdio::null()).output().expect("ssh runs");
    let greeted = ssh(&[]);
    let said = format!("{}{}", String::from_utf8_lossy(&greeted.stdout), String::from_utf8_lossy(&greeted.stderr));
    assert!(greeted.status.success(), "{said}");
    assert!(said.contains("Welcome to Gable, ann!") && said.contains("Shell access is not available"), "{said}");
    for command in ["id", "git-upload-pack", "git-upload-pack 'x'; id", "sh -c id", "git-upload-pack --exec=id x"] {
        let refused = ssh(&[command]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.starts_with("Gable: "), "{command}: {said}");
        assert!(!said.contains("uid="), "{command}: {said}");
    }
}

#[test]
fn public_projects_are_cloned_anonymously_and_private_ones_look_missing() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    make_project(&ann, "open", 20);
    make_project(&ann, "closed", 0);
    for project in ["open", "closed"] {
        let url = setup.url(Some(&ann), Transport::Http, &format!("ann/{project}"));
        setup.git_ok(None, project, &["init", "-q", "-b", "main"]);
        setup.commit(project, "a", "a\n");
        setup.git_ok(Some(&ann), project, &["push", "-q", &url, "main"]);
    }
    let open = setup.url(None, Transport::Http, "ann/open");
    setup.git_ok(None, ".", &["clone", "-q", &open, "copy"]);
    setup.git_ok(None, ".", &["clone", "-q", open.trim_end_matches(".git"), "copy2"]);
    setup.git_ok(None, ".", &["-c", "protocol.version=0", "clone", "-q", &open, "copy0"]);
    // The same response for a private and a missing project.
    let hidden = setup.git_refused(None, ".", &["clone", &setup.url(None, Transport::Http, "ann/closed"), "x"]);
    let missing = setup.git_refused(None, ".", &["clone", &setup.url(None, Transport::Http, "ann/nothing"), "x"]);
    assert_eq!(hidden.replace("closed", "nothing"), missing);
    assert!(hidden.contains("could not read Username"), "{hidden}");
    let refused = setup.git_refused(None, "copy", &["push", "origin", "HEAD:x"]);
    assert!(refused.contains("could not read Username"), "{refused}");
    // A wrong password is reported and reveals nothing else.
    let wrong = format!("http://ann:wrong@{}/ann/closed.git", setup.server.address());
    let refused = setup.git_refused(None, ".", &["clone", &wrong, "x"]);
    assert!(refused.contains("Authentication failed"), "{refused}");
    // With the password instead of a token it works as well.
    let password = ROOT_PASSWORD.replace(' ', "%20");
    let right = format!("http://ann:{password}@{}/ann/closed.git", setup.server.address());
    setup.git_ok(None, ".", &["clone", "-q", &right, "mine"]);
    assert!(!setup.server.stderr().contains(ROOT_PASSWORD));
}

#[test]
fn an_import_does_not_expose_its_credentials() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    make_project(&ann, "source", 0);
    let url = setup.url(Some(&ann), Transport::Http, "ann/source");
    setup.git_ok(None, "source", &["init", "-q", "-b", "trunk"]);
    let tip = setup.commit("source", "a", "a\n");
    setup.git_ok(None, "source", &["tag", "-a", "v1", "-m", "One"]);
    setup.git_ok(Some(&ann), "source", &["push", "-q", &url, "trunk", "v1"]);
    // Another server, which may connect to its local network, imports it.
    let instance = TestInstance::new();
    let server = instance.serve().args(&["--allow-local-network"]).with_root_credentials().start();
    let root = server.root();
    let made = root.post("/api/v3/projects", &json!({ "name": "copy", "import_url": url }));
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.json()["import_status"], "scheduled");
    let wrong = url.replace(&ann.token, "wrong-password-here");
    let failing = root.post("/api/v3/projects", &json!({ "name": "failing", "import_url": wrong })).json();
    let copy = wait_for_import(&root, &made.json());
    assert_eq!((&copy["import_status"], &copy["default_branch"]), (&json!("finished"), &json!("trunk")));
    let branch = root.get(&format!("/api/v3/projects/{}/repository/branches/trunk", copy["id"])).json();
    assert_eq!(branch["commit"]["id"], json!(tip));
    let failed = wait_for_import(&root, &failing);
    assert_eq!(failed["import_status"], "failed");
    let error = text(&failed["import_error"]);
    assert_eq!(error, "cannot fetch the repository: the remote server rejected the credentials");
    let output = format!("{error}{}{}", server.stdout(), server.stderr());
    assert!(!output.contains(&ann.token) && !output.contains("wrong-password-here"), "{output}");
    let stored = instance.count("SELECT count(*) FROM project_imports WHERE url LIKE '%@%' OR credentials IS NOT NULL");
    assert_eq!(stored, 0, "credentials are kept");
}

fn wait_for_import(root: &HttpClient, project: &Value) -> Value {
    let start = Instant::now();
    loop {
        let shown = root.get(&format!("/api/v3/projects/{}", project["id"])).json();
        if ["finished", "failed"].contains(&&*text(&shown["import_status"])) {
            return shown;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "{shown}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Starts a server with arbitrary responses and returns its URL.
fn hostile_server(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
            let _ = reader.read_line(&mut line);
            let mut rest = String::new();
            while reader.read_line(&mut rest).is_ok_and(|read| read > 2) {
                rest.clear();
            }
            let path = line.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
            let _ = stream.write_all(&answer(path));
        }
    });
    format!("http://{address}/x.git")
}

fn http(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn an_import_from_a_hostile_server_fails() {
    let instance = TestInstance::new();
    let server = instance.serve().args(&["--allow-local-network"]).with_root_credentials().start();
    let root = server.root();
    let import = |name: &str, url: &str| {
        let made = root.post("/api/v3/projects", &json!({ "name": name, "import_url": url }));
        assert_eq!(made.status, 201, "{}", made.text);
        wait_for_import(&root, &made.json())
    };
    // A redirect to a file or to an internal address.
    for (name, target) in [("file", "file:///etc/passwd"), ("inside", "http://169.254.169.254/latest")] {
        let url = hostile_server(move |_| http("302 Found", &format!("Location: {target}\r\n"), b""));
        let shown = import(name, &url);
        assert_eq!(shown["import_status"], "failed", "{shown}");
        assert_eq!(shown["default_branch"], Value::Null);
    }
    // The dumb protocol, with a tree that contains `.git`.
    let work = tempfile::tempdir().expect("a folder");
    let bare = work.path().join("x.git");
    fs::create_dir(&bare).expect("a folder");
    let git = |arguments: &[&str], input: &[u8]| {
        let output = testkit::repository::git(&bare, arguments, input);
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    git(&["init", "-q", "--bare", "-b", "main", "."], b"");
    let blob = git(&["hash-object", "-w", "--stdin"], b"[core]\n\tfsmonitor = id\n");
    let inner = git(&["mktree"], format!("100644 blob {blob}\tconfig\n").as_bytes());
    let tree = git(&["mktree"], format!("040000 tree {inner}\t.git\n").as_bytes());
    let commit = git(&["commit-tree", "-m", "hostile", &tree], b"");
    git(&["update-ref", "refs/heads/main", &commit], b"");
    git(&["update-server-info"], b"");
    let folder = work.path().to_owned();
    let url = hostile_server(move |path| match fs::read(folder.join(path.trim_start_matches('/'))) {
        Ok(content) => http("200 OK", "Content-Type: text/plain\r\n", &content),
        Err(_) => http("404 Not Found", "", b""),
    });
    let shown = import("dumb", &url);
    assert_eq!(shown["import_status"], "failed", "{shown}");
    let text = text(&shown["import_error"]);
    assert_eq!(text, "cannot fetch the repository: the remote server sent invalid data");
    // Invalid packets.
    let url = hostile_server(|_| {
        http("200 OK", "Content-Type: application/x-git-upload-pack-advertisement\r\n", b"001e# nonsense")
    });
    assert_eq!(import("nonsense", &url)["import_status"], "failed");
    assert_eq!(instance.count("SELECT count(*) FROM projects WHERE default_branch IS NOT NULL"), 0);
    server.stop().succeeded();
}

/// Sets up a project, and a work tree whose branch exceeds the size limit of a push.
fn with_a_large_branch(limit: &str) -> (GitServer, Person) {
    let setup = GitServer::start_with(&["--max-push-size", limit]);
    let ann = setup.person("ann");
    make_project(&ann, "rocket", 0);
    setup.git_ok(None, "large", &["init", "-q", "-b", "main"]);
    // Incompressible noise.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    })
    .take(8 << 20)
    .collect();
    fs::write(setup.path("large").join("noise"), noise).expect("written");
    setup.git_ok(None, "large", &["add", "noise"]);
    setup.git_ok(None, "large", &["commit", "-q", "-m", "Noise"]);
    (setup, ann)
}

#[test]
fn a_push_over_the_size_limit_is_refused_with_the_reason_every_time() {
    let (setup, ann) = with_a_large_branch("64K");
    let http = setup.url(Some(&ann), Transport::Http, "ann/rocket");
    let ssh = setup.url(Some(&ann), Transport::Ssh, "ann/rocket");
    let ways: [(&str, &[&str]); 3] = [
        // Chunked, and with a content length.
        (&http, &[]),
        (&http, &["-c", "http.postBuffer=33554432"]),
        (&ssh, &[]),
    ];
    for (url, settings) in ways {
        for round in 0..8 {
            let arguments = [settings, &["push", url, "main"]].concat();
            let said = setup.git_refused(Some(&ann), "large", &arguments);
            assert!(said.contains("remote: Gable: pack exceeds maximum allowed size"), "{url} {round}: {said}");
            assert!(said.contains("main -> main (unpacker error)"), "{url} {round}: {said}");
        }
    }
}

#[test]
fn an_oversized_body_does_not_prevent_the_client_from_reading_the_response() {
    let setup = GitServer::start_with(&["--max-body-size", "1K"]);
    let body = "x".repeat(4 << 20);
    for _ in 0..8 {
        let answer = setup.server.root().post("/api/v3/projects", &json!({ "name": body }));
        assert_eq!(answer.status, 413, "{answer}");
    }
}

#[test]
fn a_fetch_that_fails_is_logged_with_project_user_address_and_cause() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    let id = make_project(&ann, "rocket", 0);
    let url = setup.url(Some(&ann), Transport::Http, "ann/rocket");
    setup.git_ok(None, "source", &["init", "-q", "-b", "main"]);
    setup.commit("source", "a", &incompressible_text(100_000));
    setup.git_ok(Some(&ann), "source", &["push", "-q", &url, "main"]);
    // The disk has damaged all objects.
    let mut folders = vec![setup.instance.data().join("files/packs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "pack") {
                fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("permitted");
                let size = path.metadata().expect("a file").len();
                let file = fs::File::options().write(true).open(&path).expect("opened");
                file.write_all_at(&vec![0; usize::try_from(size - 12).expect("small")], 12).expect("written");
            }
        }
    }
    setup.git_refused(Some(&ann), ".", &["clone", &url, "copy"]);
    // Upload-pack creates the pack for a shallow clone; otherwise the stored one is sent.
    let ssh_url = setup.url(Some(&ann), Transport::Ssh, "ann/rocket");
    setup.git_refused(Some(&ann), ".", &["clone", "--depth", "1", &ssh_url, "copy"]);
    let log = setup.server.stop().stderr;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("fetch failed")).collect();
    assert_eq!(lines.len(), 2, "{log}");
    let expected = [("transport=\"http\"", "cause=\"the pack "), ("transport=\"ssh\"", "cause=\"upload-pack: ")];
    for (line, (transport, cause)) in lines.into_iter().zip(expected) {
        for part in [
            "WARN",
            &format!("project.id={id}"),
            "project.path=\"ann/rocket\"",
            "by=\"user ann\"",
            transport,
            "address=127.0.0.1",
            cause,
        ] {
            assert!(line.contains(part), "no {part} in {line}");
        }
    }
}

#[test]
fn every_protocol_version_lists_clones_and_fetches_over_ssh() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    for version in [0, 1, 2] {
        let project = format!("rocket-{version}");
        make_project(&ann, &project, 0);
        let url = setup.url(Some(&ann), Transport::Ssh, &format!("ann/{project}"));
        let version = format!("protocol.version={version}");
        let git = |folder: &str, arguments: &[&str]| {
            setup.git_ok(Some(&ann), folder, &[&["-c", &version], arguments].concat())
        };
        // An empty repository.
        assert_eq!(git(".", &["ls-remote", &url]), "");
        let [source, copy, diverged, shallow] =
            ["source", "copy", "diverged", "shallow"].map(|name| format!("{project}-{name}"));
        git(".", &["clone", "-q", &url, &source]);
        setup.git_ok(None, &source, &["checkout", "-q", "-b", "main"]);
        let first = setup.commit(&source, "a", "a\n");
        setup.git_ok(None, &source, &["tag", "-a", "v1", "-m", "One"]);
        let tag = setup.git_ok(None, &source, &["rev-parse", "v1"]);
        git(&source, &["push", "-q", "origin", "main", "v1"]);
        let listed =
            format!("{first}\tHEAD\n{first}\trefs/heads/main\n{tag}\trefs/tags/v1\n{first}\trefs/tags/v1^{{}}");
        assert_eq!(git(".", &["ls-remote", &url]), listed);
        git(".", &["clone", "-q", &url, &copy]);
        assert_eq!(setup.git_ok(None, &copy, &["rev-parse", "HEAD", "v1"]), format!("{first}\n{tag}"));
        // The server does not know the newest commits of the client, so a fetch takes several rounds.
        git(".", &["clone", "-q", "--bare", "--no-tags", &url, &diverged]);
        let commit = |time| format!("commit refs/heads/main\ncommitter Ann <ann@example.com> {time} +0000\ndata 0\n");
        let commits: String = (2_000_000_000..2_000_000_060).map(commit).collect();
        let script = format!("reset refs/heads/main\nfrom refs/heads/main^0\n\n{commits}");
        testkit::repository::git(&setup.path(&diverged), &["fast-import", "--quiet"], script.as_bytes());
        let second = setup.commit(&source, "b", "b\n");
        git(&source, &["push", "-q", "origin", "main"]);
        let mut fetch = setup.command(Some(&ann), &diverged);
        let fetched = fetch.args(["-c", &version, "fetch", &url, "main"]).env("GIT_TRACE_PACKET", "1").output();
        let trace = String::from_utf8_lossy(&fetched.expect("git runs").stderr).into_owned();
        assert_eq!(setup.git_ok(None, &diverged, &["rev-parse", "FETCH_HEAD"]), second, "{trace}");
        let sent = |text: &str| trace.lines().filter(|line| line.contains(&format!("fetch> {text}"))).count();
        assert!(sent("have ") > 60, "{trace}");
        assert_eq!(sent("command=fetch") > 1, version.ends_with('2'), "{trace}");
        git(".", &["clone", "-q", "--depth", "1", &url, &shallow]);
        assert_eq!(setup.git_ok(None, &shallow, &["rev-list", "HEAD"]), second);
        git(&shallow, &["fetch", "-q", "--unshallow"]);
        assert_eq!(setup.git_ok(None, &shallow, &["rev-list", "HEAD"]), format!("{second}\n{first}"));
    }
}

/// Sets up a project with a branch of 8 MB.
fn with_a_large_project() -> (GitServer, Person) {
    let (setup, ann) = with_a_large_branch("16M");
    let url = setup.url(Some(&ann), Transport::Http, "ann/rocket");
    setup.git_ok(Some(&ann), "large", &["push", "-q", &url, "main"]);
    (setup, ann)
}

#[test]
fn ten_concurrent_clones_over_http_and_ssh_cost_one() {
    let (setup, ann) = with_a_large_project();
    thread::scope(|scope| {
        for number in 0..10 {
            let transport = if number % 2 == 0 { Transport::Http } else { Transport::Ssh };
            let (setup, ann) = (&setup, &ann);
            scope.spawn(move || {
                let url = setup.url(Some(ann), transport, "ann/rocket");
                setup.git_ok(Some(ann), ".", &["clone", "-q", "--bare", &url, &format!("copy-{number}")]);
            });
        }
    });
    let metrics = setup.server.anonymous().get("/-/metrics").text;
    for line in ["gable_git_clone_cache_misses_total 1", "gable_git_clone_cache_hits_total 9"] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in {metrics}");
    }
}

#[test]
fn a_client_that_disconnects_over_ssh_leaves_no_process() {
    let (setup, ann) = with_a_large_project();
    let want = format!("want {}", setup.git_ok(None, "large", &["rev-parse", "main"]));
    let have = format!("have {}", "1".repeat(40));
    let fetch = |lines: &[&str]| body(&[&["command=fetch", "-", &want], lines].concat());
    let unread = fetch(&[&have, "done", "--"]);
    let requests = [
        ("a response that is not read", unread.clone()),
        (
            "a response that is not read, and more requests",
            [unread, body(&["command=ls-refs", "--"]).repeat(8_000)].concat(),
        ),
        ("a request without an end", fetch(&vec![have.as_str(); 8_000])),
    ];
    let data = setup.instance.data().to_str().expect("text").to_owned();
    let processes = || {
        let entries = fs::read_dir("/proc").expect("processes").flatten();
        let lines = entries.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        lines.filter(|line| line.contains("\0upload-pack\0") && line.contains(&data)).count()
    };
    let wait_for = |count: usize, name: &str| {
        let start = Instant::now();
        while processes() != count {
            // Sooner than the write timeout, which would end the process after a minute.
            assert!(start.elapsed() < WAIT_TIMEOUT / 2, "{name}: {} processes instead of {count}", processes());
            thread::sleep(Duration::from_millis(10));
        }
    };
    for (name, content) in requests {
        let mut client = setup.upload_pack(&ann, "ann/rocket");
        client.stdin.as_mut().expect("a pipe").write_all(&content).expect("sent");
        wait_for(1, name);
        // It waits for the client.
        thread::sleep(Duration::from_millis(300));
        assert_eq!(processes(), 1, "{name}");
        client.kill().expect("killed");
        client.wait().expect("ended");
        wait_for(0, name);
    }
    setup.server.stop().succeeded();
}

#[test]
fn a_tag_object_reachable_only_through_another_tag_can_be_tagged_and_pushed() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    make_project(&ann, "rocket", 0);
    let url = setup.url(Some(&ann), Transport::Http, "ann/rocket");
    setup.git_ok(Some(&ann), ".", &["clone", "-q", &url, "ann"]);
    setup.git_ok(None, "ann", &["checkout", "-q", "-b", "main"]);
    setup.commit("ann", "README.md", "hello\n");
    setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);
    for (tag, of) in [("inner", "main"), ("middle", "inner"), ("outer", "middle"), ("again", "inner")] {
        setup.git_ok(None, "ann", &["tag", "-a", "-m", "m", tag, of]);
    }
    for tag in ["outer", "again", "inner"] {
        setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", tag]);
    }
    let shown = setup.git_ok(Some(&ann), "ann", &["ls-remote", "--refs", "origin", "refs/tags/*"]);
    let names: Vec<&str> = shown.lines().filter_map(|line| line.split_once('\t')).map(|(_, name)| name).collect();
    assert_eq!(names, ["refs/tags/again", "refs/tags/inner", "refs/tags/outer"]);
}

#[test]
fn a_failed_sign_in_is_logged_with_its_address_and_never_with_a_secret() {
    let setup = GitServer::start_with(&["--trusted-proxies", "127.0.0.1", "--sign-ins-per-minute", "0"]);
    let ann = setup.person("ann");
    make_project(&ann, "rocket", 0);
    let sign_in = |login: &str, from: &str| {
        let body = json!({ "login": login, "password": "s3cret-guess" }).to_string();
        let headers = [("content-type", "application/json"), ("x-forwarded-for", from)];
        let answer = setup.server.anonymous().try_send("POST", "/api/v3/session", &headers, &body).expect("answered");
        assert_eq!(answer.status, 401, "{answer}");
    };
    sign_in("ann", "203.0.113.7");
    sign_in("hunter2-my-password\n WARN forged", "203.0.113.8");
    let wrong = format!("http://ann:s3cret-guess@{}/ann/rocket.git", setup.server.address());
    setup.git_refused(None, ".", &["ls-remote", &wrong]);
    let strange = setup.path("strange.key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&strange).status();
    assert!(made.expect("ssh-keygen runs").success());
    let mut git = git_command(&setup.path("."));
    let url = setup.url(None, Transport::Ssh, "ann/rocket");
    let refused =
        git.env("GIT_SSH_COMMAND", ssh_command(&strange)).args(["ls-remote", &url]).output().expect("git runs");
    assert!(!refused.status.success());
    let log = setup.server.stop().stderr;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("sign-in failed")).collect();
    let expected: [&[&str]; 4] = [
        &["sign-in failed address=203.0.113.7 transport=\"session\" login=\"ann\""],
        &["sign-in failed: there is no such user address=203.0.113.8 transport=\"session\""],
        &["sign-in failed address=127.0.0.1 transport=\"git over http\" login=\"ann\""],
        &["sign-in failed address=127.0.0.1 transport=\"ssh\" user=\"git\" keys=1 key=\"SHA256:"],
    ];
    assert_eq!(lines.len(), expected.len(), "{log}");
    for (line, parts) in lines.iter().zip(expected) {
        assert!(parts.iter().all(|part| line.contains(part)) && line.contains("WARN"), "{line}");
    }
    assert!(!log.contains("s3cret-guess") && !log.contains("hunter2") && !log.contains("forged"), "{log}");
}

#[test]
fn a_user_learns_over_ssh_that_the_database_is_away_and_is_not_throttled() {
    // Three failures per minute are allowed over SSH.
    let setup = GitServer::start_with(&["--sign-ins-per-minute", "1"]);
    let ann = setup.person("ann");
    make_project(&ann, "rocket", 0);
    let url = setup.url(Some(&ann), Transport::Ssh, "ann/rocket");
    setup.git_ok(Some(&ann), ".", &["ls-remote", &url]);
    let is_postgres = setup.instance.database_url().is_some();
    if is_postgres {
        setup.instance.begin_outage();
    } else {
        setup.instance.execute("ALTER TABLE keys RENAME TO lost");
    }
    for _ in 0..6 {
        let error = setup.git_refused(Some(&ann), ".", &["ls-remote", &url]);
        assert!(error.contains(":7: the server is temporarily unavailable; try again later"), "{error}");
        assert!(!error.contains("Permission denied"), "{error}");
    }
    if is_postgres {
        setup.instance.end_outage();
    } else {
        setup.instance.execute("ALTER TABLE lost RENAME TO keys");
    }
    let start = Instant::now();
    while !setup.git(Some(&ann), ".", &["ls-remote", &url]).status.success() {
        assert!(start.elapsed() < WAIT_TIMEOUT, "it does not recover");
        thread::sleep(Duration::from_millis(100));
    }
    let log = setup.server.stop().stderr;
    assert!(!log.contains("sign-in failed") && !log.contains("SSH connections are refused"), "{log}");
    assert!(log.matches("cannot look up an SSH key").count() >= 6, "{log}");
}

/// Starts a proxy that names this client in the header of the PROXY protocol; returns its port.
fn start_balancer(server: String, client: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let mut to = TcpStream::connect(&server).expect("connected");
            write!(to, "PROXY TCP4 {client} 198.51.100.1 40000 22\r\n").expect("sent");
            for (mut from, mut to) in [(from.try_clone(), to.try_clone()), (to.try_clone(), from.try_clone())]
                .map(|(from, to)| (from.expect("a descriptor"), to.expect("a descriptor")))
            {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    port
}

#[test]
fn a_load_balancer_names_the_client_of_a_connection_over_ssh() {
    let setup = GitServer::start_with(&["--trusted-proxies", "127.0.0.1", "--sign-ins-per-minute", "0"]);
    let ann = setup.person("ann");
    make_project(&ann, "rocket", 0);
    let address = setup.server.ssh_url.as_deref().and_then(|url| url.rsplit_once('@')).expect("SSH is served").1;
    let port = start_balancer(address.to_owned(), "203.0.113.9");
    let url = format!("ssh://git@127.0.0.1:{port}/ann/rocket.git");
    setup.git_ok(Some(&ann), ".", &["ls-remote", &url]);
    let strange = setup.path("strange.key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&strange).status();
    assert!(made.expect("ssh-keygen runs").success());
    let mut git = git_command(&setup.path("."));
    let refused =
        git.env("GIT_SSH_COMMAND", ssh_command(&strange)).args(["ls-remote", &url]).output().expect("git runs");
    assert!(!refused.status.success());
    let log = setup.server.stop().stderr;
    assert!(log.contains("sign-in failed address=203.0.113.9 transport=\"ssh\" user=\"git\" keys=1"), "{log}");
}

#[test]
fn an_archive_over_ssh_releases_its_slot() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    make_project(&ann, "rocket", 0);
    let url = setup.url(Some(&ann), Transport::Ssh, "ann/rocket");
    setup.git_ok(Some(&ann), ".", &["clone", "-q", &url, "ann"]);
    setup.git_ok(None, "ann", &["checkout", "-q", "-b", "main"]);
    setup.commit("ann", "README.md", "hello\n");
    setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);
    // More often than there are slots.
    for number in 0..4 {
        let file = setup.path(&format!("{number}.tar"));
        let file = file.to_str().expect("a path");
        setup.git_ok(Some(&ann), ".", &["archive", "--remote", &url, "--output", file, "main"]);
        let listed = Command::new("tar").args(["-tf", file]).output().expect("tar runs");
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "README.md\n");
    }
    // A branch has precedence over a tag of the same name.
    setup.git_ok(None, "ann", &["tag", "main"]);
    setup.commit("ann", "second.md", "hello\n");
    setup.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "refs/heads/main", "refs/tags/main"]);
    let file = setup.path("branch.tar");
    let file = file.to_str().expect("a path");
    setup.git_ok(Some(&ann), ".", &["archive", "--remote", &url, "--output", file, "main"]);
    let listed = Command::new("tar").args(["-tf", file]).output().expect("tar runs");
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "README.md\nsecond.md\n");
}

#[test]
fn the_folders_of_all_repositories_can_be_deleted_while_the_server_runs() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    let id = make_project(&ann, "rocket", 0);
    let url = setup.url(Some(&ann), Transport::Http, "ann/rocket");
    setup.git_ok(None, "source", &["init", "-q", "-b", "main"]);
    setup.commit("source", "large", &incompressible_text(100_000));
    setup.git_ok(Some(&ann), "source", &["push", "-q", &url, "main"]);
    let delete = || match fs::remove_dir_all(setup.instance.data().join("repositories")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.expect("removed"),
    };
    // A read, a push, a commit over REST, a clone and an empty project, each without any folder.
    delete();
    let tree = ann.client.get(&format!("/api/v3/projects/{id}/repository/tree")).json();
    assert_eq!(tree[0]["name"], "large", "{tree}");
    delete();
    setup.commit("source", "small", "x\n");
    setup.git_ok(Some(&ann), "source", &["push", "-q", &url, "main"]);
    delete();
    let file = json!({ "file_path": "other", "branch_name": "main", "content": "y", "commit_message": "Add" });
    let written = ann.client.post(&format!("/api/v3/projects/{id}/repository/files"), &file);
    assert_eq!(written.status, 201, "{written}");
    delete();
    setup.git_ok(Some(&ann), ".", &["clone", "-q", &url, "copy"]);
    assert_eq!(fs::read_to_string(setup.path("copy").join("other")).expect("a file"), "y");
    make_project(&ann, "empty", 0);
    delete();
    setup.git_ok(Some(&ann), ".", &["clone", "-q", &setup.url(Some(&ann), Transport::Ssh, "ann/empty"), "empty"]);
    delete();
    let file = json!({ "file_path": "first", "branch_name": "main", "content": "z", "commit_message": "Add" });
    let written = ann.client.post("/api/v3/projects/ann%2Fempty/repository/files", &file);
    assert_eq!(written.status, 201, "{written}");
}
