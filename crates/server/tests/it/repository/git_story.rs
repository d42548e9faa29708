//! Stock git and stock ssh against the real binary: what people do all day, over both transports.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::repository::quiet_git;

use crate::admin::binary::{Client, Home, ROOT_PASSWORD, Server, UNLIMITED};

/// A server with both transports, and a folder in which people work.
pub(crate) struct Story {
    home: Home,
    pub(crate) server: Server,
    work: TempDir,
}

/// By which way git talks to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Ssh,
}

/// Somebody with an account, a token and a key.
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) client: Client,
    token: String,
    key: PathBuf,
}

impl Story {
    pub(crate) fn begin() -> Self {
        Self::begin_with(&[])
    }

    /// The same on a server that was told more.
    pub(crate) fn begin_with(more: &[&str]) -> Self {
        let home = Home::new();
        let server = Self::serve(&home, more);
        Self { home, server, work: tempfile::tempdir().expect("a folder") }
    }

    fn serve(home: &Home, more: &[&str]) -> Server {
        let gable = home.gable(&["serve", "--listen", "127.0.0.1:0", "--ssh-listen", "127.0.0.1:0"]);
        gable.args(UNLIMITED).args(more).with_known_root().start()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// A new user.
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

    /// The URL of a repository for somebody.
    pub(crate) fn url(&self, person: Option<&Person>, transport: Transport, path: &str) -> String {
        match (transport, person) {
            (Transport::Http, None) => format!("{}/{path}.git", self.server.url),
            (Transport::Http, Some(person)) => {
                format!("http://{}:{}@{}/{path}.git", person.name, person.token, self.server.address())
            }
            (Transport::Ssh, _) => format!("{}/{path}.git", self.server.ssh_url.as_deref().expect("SSH is served")),
        }
    }

    /// Git in a folder of the story, as somebody.
    pub(crate) fn command(&self, person: Option<&Person>, folder: &str) -> Command {
        let folder = self.path(folder);
        fs::create_dir_all(&folder).expect("a folder");
        let mut command = quiet_git(&folder);
        if let Some(person) = person {
            command.env("GIT_SSH_COMMAND", ssh_command(&person.key));
        }
        command
    }

    /// Runs git in a folder of the story, as somebody.
    pub(crate) fn git(&self, person: Option<&Person>, folder: &str, arguments: &[&str]) -> Output {
        self.command(person, folder).args(arguments).output().expect("git runs")
    }

    pub(crate) fn git_ok(&self, person: Option<&Person>, folder: &str, arguments: &[&str]) -> String {
        let output = self.git(person, folder, arguments);
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs git and expects that it fails; answers what it says.
    pub(crate) fn git_refused(&self, person: Option<&Person>, folder: &str, arguments: &[&str]) -> String {
        let output = self.git(person, folder, arguments);
        assert!(!output.status.success(), "git {arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
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
fn a_day_with_git_over_http() {
    a_day(Transport::Http);
}

#[test]
fn a_day_with_git_over_ssh() {
    a_day(Transport::Ssh);
}

fn a_day(transport: Transport) {
    let story = Story::begin();
    let (ann, bob) = (story.person("ann"), story.person("bob"));
    let id = make_project(&ann, "rocket", 0);
    let api = format!("/api/v3/projects/{id}");
    let url = story.url(Some(&ann), transport, "ann/rocket");

    // An empty repository can be cloned, and filled.
    story.git_ok(Some(&ann), ".", &["clone", "-q", &url, "ann"]);
    story.git_ok(None, "ann", &["checkout", "-q", "-b", "main"]);
    let first = story.commit("ann", "README.md", "hello\n");
    story.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);
    assert_eq!(ann.client.get(&api).json()["default_branch"], "main");

    // Somebody else gets the same, unless it is none of their business.
    let his = story.url(Some(&bob), transport, "ann/rocket");
    let refused = story.git_refused(Some(&bob), ".", &["clone", "-q", &his, "bob"]);
    assert!(refused.contains("not found") || refused.contains("could not be found"), "{refused}");
    ann.client.post(
        &format!("{api}/members"),
        &json!({ "user_id": bob.client.get("/api/v3/user").json()["id"], "access_level": 30 }),
    );
    story.git_ok(Some(&bob), ".", &["clone", "-q", &his, "bob"]);
    assert_eq!(story.git_ok(None, "bob", &["rev-parse", "HEAD"]), first);

    // The default branch is protected: a developer may not push to it, nor anybody rewrite or delete it.
    story.commit("bob", "bob.txt", "bob\n");
    let refused = story.git_refused(Some(&bob), "bob", &["push", "origin", "main"]);
    assert!(refused.contains("You are not allowed to push code to protected branches on this project."), "{refused}");
    story.git_ok(None, "ann", &["commit", "-q", "--amend", "-m", "Rewritten"]);
    let refused = story.git_refused(Some(&ann), "ann", &["push", "-f", "origin", "main"]);
    assert!(
        refused.contains("You are not allowed to force push code to a protected branch on this project."),
        "{refused}"
    );
    let refused = story.git_refused(Some(&ann), "ann", &["push", "origin", ":main"]);
    assert!(refused.contains("You are not allowed to delete protected branches from this project."), "{refused}");
    story.git_ok(None, "ann", &["reset", "-q", "--hard", &first]);

    // A branch of his own is his to push, rewrite and delete.
    let topic = story.commit("bob", "topic.txt", "topic\n");
    story.git_ok(Some(&bob), "bob", &["push", "-q", "origin", "HEAD:topic/one"]);
    let branch = ann.client.get(&format!("{api}/repository/branches/topic/one")).json();
    assert_eq!((&branch["name"], &branch["commit"]["id"]), (&json!("topic/one"), &json!(topic)));
    story.git_ok(None, "bob", &["commit", "-q", "--amend", "-m", "Better"]);
    let refused = story.git_refused(Some(&bob), "bob", &["push", "origin", "HEAD:topic/one"]);
    assert!(refused.contains("non-fast-forward"), "{refused}");
    story.git_ok(Some(&bob), "bob", &["push", "-q", "-f", "origin", "HEAD:topic/one"]);

    // A push that was made without knowing of another one loses nothing.
    story.git_ok(Some(&ann), "ann", &["fetch", "-q"]);
    let merged = story.commit("ann", "second.txt", "second\n");
    story.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);
    story.git_ok(Some(&bob), "bob", &["fetch", "-q"]);
    assert_eq!(story.git_ok(None, "bob", &["rev-parse", "origin/main"]), merged);

    // Tags: a developer makes them, only a master moves them.
    story.git_ok(None, "bob", &["tag", "-a", "v1", "-m", "One", "origin/main"]);
    story.git_ok(Some(&bob), "bob", &["push", "-q", "origin", "v1"]);
    story.git_ok(None, "bob", &["tag", "-f", "v1", &first]);
    let refused = story.git_refused(Some(&bob), "bob", &["push", "-f", "origin", "v1"]);
    assert!(refused.contains("You are not allowed to change existing tags on this project."), "{refused}");
    story.git_ok(Some(&ann), "ann", &["push", "-q", "origin", ":v1"]);

    story.git_ok(Some(&bob), "bob", &["push", "-q", "origin", ":topic/one"]);
    assert_eq!(ann.client.get(&format!("{api}/repository/branches/topic/one")).status, 404);

    // Shallow, single-branch and partial clones.
    story.git_ok(Some(&bob), ".", &["clone", "-q", "--depth", "1", &his, "shallow"]);
    assert_eq!(story.git_ok(None, "shallow", &["rev-list", "--count", "HEAD"]), "1");
    story.git_ok(Some(&bob), "shallow", &["fetch", "-q", "--unshallow"]);
    assert_eq!(story.git_ok(None, "shallow", &["rev-list", "--count", "HEAD"]), "2");
    story.git_ok(Some(&bob), ".", &["clone", "-q", "--filter=blob:none", "--no-checkout", &his, "partial"]);
    let missing = story.git_ok(None, "partial", &["rev-list", "--objects", "--missing=print", "HEAD"]);
    assert!(missing.lines().any(|line| line.starts_with('?')), "{missing}");
    assert_eq!(story.git_ok(Some(&bob), "partial", &["show", "HEAD:README.md"]), "hello");
    story.git_ok(Some(&bob), ".", &["clone", "-q", "--single-branch", "--branch", "main", &his, "single"]);
    assert_eq!(story.git_ok(None, "single", &["branch", "-r"]), "origin/HEAD -> origin/main\n  origin/main");

    // What was done is told, newest first.
    let events = ann.client.get(&format!("{api}/events?per_page=100")).json();
    let told: Vec<(String, String)> = events
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
    assert_eq!(told, expected);
    story.server.stop().succeeded();
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn ssh_without_a_command_greets_and_says_that_there_is_no_shell() {
    let story = Story::begin();
    let ann = story.person("ann");
    let address = story.server.ssh_url.clone().expect("SSH is served");
    let port = address.rsplit_once(':').expect("a port").1.to_owned();
    let ssh = |arguments: &[&str]| {
        let command = ssh_command(&ann.key);
        let mut words = command.split_ascii_whitespace();
        Command::new(words.next().expect("ssh"))
            .args(words)
            .args(["-T", "-p", &port, "git@127.0.0.1"])
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("ssh runs")
    };
    let greeted = ssh(&[]);
    let said = format!("{}{}", String::from_utf8_lossy(&greeted.stdout), String::from_utf8_lossy(&greeted.stderr));
    assert!(greeted.status.success(), "{said}");
    assert!(said.contains("Welcome to Gable, ann!") && said.contains("no shell"), "{said}");
    for command in ["id", "git-upload-pack", "git-upload-pack 'x'; id", "sh -c id", "git-upload-pack --exec=id x"] {
        let refused = ssh(&[command]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.starts_with("Gable: "), "{command}: {said}");
        assert!(!said.contains("uid="), "{command}: {said}");
    }
}

#[test]
fn anybody_clones_what_is_public_and_nobody_learns_of_the_rest() {
    let story = Story::begin();
    let ann = story.person("ann");
    make_project(&ann, "open", 20);
    make_project(&ann, "closed", 0);
    for project in ["open", "closed"] {
        let url = story.url(Some(&ann), Transport::Http, &format!("ann/{project}"));
        story.git_ok(None, project, &["init", "-q", "-b", "main"]);
        story.commit(project, "a", "a\n");
        story.git_ok(Some(&ann), project, &["push", "-q", &url, "main"]);
    }
    let open = story.url(None, Transport::Http, "ann/open");
    story.git_ok(None, ".", &["clone", "-q", &open, "copy"]);
    story.git_ok(None, ".", &["clone", "-q", open.trim_end_matches(".git"), "copy2"]);
    story.git_ok(None, ".", &["-c", "protocol.version=0", "clone", "-q", &open, "copy0"]);
    // The same answer for what is hidden and what is not there.
    let hidden = story.git_refused(None, ".", &["clone", &story.url(None, Transport::Http, "ann/closed"), "x"]);
    let missing = story.git_refused(None, ".", &["clone", &story.url(None, Transport::Http, "ann/nothing"), "x"]);
    assert_eq!(hidden.replace("closed", "nothing"), missing);
    assert!(hidden.contains("could not read Username"), "{hidden}");
    let refused = story.git_refused(None, "copy", &["push", "origin", "HEAD:x"]);
    assert!(refused.contains("could not read Username"), "{refused}");
    // A wrong password is told as such, and says nothing else.
    let wrong = format!("http://ann:wrong@{}/ann/closed.git", story.server.address());
    let refused = story.git_refused(None, ".", &["clone", &wrong, "x"]);
    assert!(refused.contains("Authentication failed"), "{refused}");
    // With the password instead of a token it works as well.
    let password = ROOT_PASSWORD.replace(' ', "%20");
    let right = format!("http://ann:{password}@{}/ann/closed.git", story.server.address());
    story.git_ok(None, ".", &["clone", "-q", &right, "mine"]);
    assert!(!story.server.stderr().contains(ROOT_PASSWORD));
}

#[test]
fn a_repository_comes_from_elsewhere_with_credentials_that_nobody_sees() {
    let story = Story::begin();
    let ann = story.person("ann");
    make_project(&ann, "source", 0);
    let url = story.url(Some(&ann), Transport::Http, "ann/source");
    story.git_ok(None, "source", &["init", "-q", "-b", "trunk"]);
    let tip = story.commit("source", "a", "a\n");
    story.git_ok(None, "source", &["tag", "-a", "v1", "-m", "One"]);
    story.git_ok(Some(&ann), "source", &["push", "-q", &url, "trunk", "v1"]);
    // Another server takes it over; that one may talk to its own network.
    let home = Home::new();
    let server = home.serve().args(&["--allow-local-network"]).with_known_root().start();
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
    let told = text(&failed["import_error"]);
    assert_eq!(told, "The repository could not be fetched: the other side asks for other credentials.");
    let said = format!("{told}{}{}", server.stdout(), server.stderr());
    assert!(!said.contains(&ann.token) && !said.contains("wrong-password-here"), "{said}");
    let stored = home.count("SELECT count(*) FROM project_imports WHERE url LIKE '%@%' OR credentials IS NOT NULL");
    assert_eq!(stored, 0, "credentials are kept");
}

fn wait_for_import(root: &Client, project: &Value) -> Value {
    let start = std::time::Instant::now();
    loop {
        let shown = root.get(&format!("/api/v3/projects/{}", project["id"])).json();
        if ["finished", "failed"].contains(&&*text(&shown["import_status"])) {
            return shown;
        }
        assert!(start.elapsed() < crate::admin::binary::PATIENCE, "{shown}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A server that answers every request as it likes; answers where it is.
fn hostile_server(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
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
fn lesson_09_a_hostile_server_gets_nothing_in_and_nothing_out() {
    let home = Home::new();
    let server = home.serve().args(&["--allow-local-network"]).with_known_root().start();
    let root = server.root();
    let import = |name: &str, url: &str| {
        let made = root.post("/api/v3/projects", &json!({ "name": name, "import_url": url }));
        assert_eq!(made.status, 201, "{}", made.text);
        wait_for_import(&root, &made.json())
    };
    // One that sends us elsewhere, perhaps to a file or to somebody inside.
    for (name, target) in [("file", "file:///etc/passwd"), ("inside", "http://169.254.169.254/latest")] {
        let url = hostile_server(move |_| http("302 Found", &format!("Location: {target}\r\n"), b""));
        let shown = import(name, &url);
        assert_eq!(shown["import_status"], "failed", "{shown}");
        assert_eq!(shown["default_branch"], Value::Null);
    }
    // One that serves plain files, among them a tree that would be written over a repository.
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
    assert_eq!(text, "The repository could not be fetched: what the other side sends is not sound.");
    // One that talks nonsense.
    let url = hostile_server(|_| {
        http("200 OK", "Content-Type: application/x-git-upload-pack-advertisement\r\n", b"001e# nonsense")
    });
    assert_eq!(import("nonsense", &url)["import_status"], "failed");
    assert_eq!(home.count("SELECT count(*) FROM projects WHERE default_branch IS NOT NULL"), 0);
    server.stop().succeeded();
}

/// A story with a project, and a work tree whose branch is far larger than a push may be.
fn with_a_large_branch(limit: &str) -> (Story, Person) {
    let story = Story::begin_with(&["--max-push-size", limit]);
    let ann = story.person("ann");
    make_project(&ann, "rocket", 0);
    story.git_ok(None, "large", &["init", "-q", "-b", "main"]);
    // Noise that nothing makes smaller.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    })
    .take(8 << 20)
    .collect();
    fs::write(story.path("large").join("noise"), noise).expect("written");
    story.git_ok(None, "large", &["add", "noise"]);
    story.git_ok(None, "large", &["commit", "-q", "-m", "Noise"]);
    (story, ann)
}

#[test]
fn a_push_over_the_size_limit_is_refused_with_the_reason_every_time() {
    let (story, ann) = with_a_large_branch("64K");
    let http = story.url(Some(&ann), Transport::Http, "ann/rocket");
    let ssh = story.url(Some(&ann), Transport::Ssh, "ann/rocket");
    let ways: [(&str, &[&str]); 3] = [
        // In pieces of unknown number, and in one piece whose length is told first.
        (&http, &[]),
        (&http, &["-c", "http.postBuffer=33554432"]),
        (&ssh, &[]),
    ];
    for (url, settings) in ways {
        for round in 0..8 {
            let arguments = [settings, &["push", url, "main"]].concat();
            let said = story.git_refused(Some(&ann), "large", &arguments);
            assert!(said.contains("remote: Gable: pack exceeds maximum allowed size"), "{url} {round}: {said}");
            assert!(said.contains("main -> main (unpacker error)"), "{url} {round}: {said}");
        }
    }
}

#[test]
fn a_large_body_that_is_refused_early_does_not_hide_the_answer() {
    let story = Story::begin_with(&["--max-body-size", "1K"]);
    let body = "x".repeat(4 << 20);
    for _ in 0..8 {
        let answer = story.server.root().post("/api/v3/projects", &json!({ "name": body }));
        assert_eq!(answer.status, 413, "{answer}");
    }
}

#[test]
fn a_fetch_that_fails_is_logged_with_project_user_address_and_cause() {
    let story = Story::begin();
    let ann = story.person("ann");
    let id = make_project(&ann, "rocket", 0);
    let url = story.url(Some(&ann), Transport::Http, "ann/rocket");
    story.git_ok(None, "source", &["init", "-q", "-b", "main"]);
    story.commit("source", "a", "a\n");
    story.git_ok(Some(&ann), "source", &["push", "-q", &url, "main"]);
    // The disk has lost everything but the refs.
    let mut folders = vec![story.home.data().join("repositories")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let is_object = path.extension().is_some_and(|end| ["pack", "idx", "rev"].iter().any(|one| end == *one))
                || path.file_name().is_some_and(|name| name.len() == 38);
            match path.is_dir() {
                true => folders.push(path),
                false if is_object => fs::remove_file(&path).expect("removed"),
                false => {}
            }
        }
    }
    story.git_refused(Some(&ann), ".", &["clone", &url, "copy"]);
    let log = story.server.stop().stderr;
    let line = log.lines().find(|line| line.contains("a fetch failed")).unwrap_or_else(|| panic!("{log}"));
    for part in [
        "WARN",
        &format!("project.id={id}"),
        "project.path=\"ann/rocket\"",
        "by=\"user ann\"",
        "transport=\"http\"",
        "address=127.0.0.1",
        "cause=\"upload-pack ended with",
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
}

#[test]
fn a_tag_that_only_another_tag_leads_to_can_be_tagged_again_and_get_a_name() {
    let story = Story::begin();
    let ann = story.person("ann");
    make_project(&ann, "rocket", 0);
    let url = story.url(Some(&ann), Transport::Http, "ann/rocket");
    story.git_ok(Some(&ann), ".", &["clone", "-q", &url, "ann"]);
    story.git_ok(None, "ann", &["checkout", "-q", "-b", "main"]);
    story.commit("ann", "README.md", "hello\n");
    story.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);
    for (tag, of) in [("inner", "main"), ("middle", "inner"), ("outer", "middle"), ("again", "inner")] {
        story.git_ok(None, "ann", &["tag", "-a", "-m", "m", tag, of]);
    }
    for tag in ["outer", "again", "inner"] {
        story.git_ok(Some(&ann), "ann", &["push", "-q", "origin", tag]);
    }
    let shown = story.git_ok(Some(&ann), "ann", &["ls-remote", "--refs", "origin", "refs/tags/*"]);
    let names: Vec<&str> = shown.lines().filter_map(|line| line.split_once('\t')).map(|(_, name)| name).collect();
    assert_eq!(names, ["refs/tags/again", "refs/tags/inner", "refs/tags/outer"]);
}

#[test]
fn a_failed_sign_in_is_logged_with_its_address_and_never_with_a_secret() {
    let story = Story::begin_with(&["--trusted-proxies", "127.0.0.1", "--sign-ins-per-minute", "0"]);
    let ann = story.person("ann");
    make_project(&ann, "rocket", 0);
    let sign_in = |login: &str, from: &str| {
        let body = json!({ "login": login, "password": "s3cret-guess" }).to_string();
        let headers = [("content-type", "application/json"), ("x-forwarded-for", from)];
        let answer = story.server.anonymous().try_send("POST", "/api/v3/session", &headers, &body).expect("answered");
        assert_eq!(answer.status, 401, "{answer}");
    };
    sign_in("ann", "203.0.113.7");
    sign_in("hunter2-my-password\n WARN forged", "203.0.113.8");
    let wrong = format!("http://ann:s3cret-guess@{}/ann/rocket.git", story.server.address());
    story.git_refused(None, ".", &["ls-remote", &wrong]);
    let strange = story.path("strange.key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&strange).status();
    assert!(made.expect("ssh-keygen runs").success());
    let mut git = quiet_git(&story.path("."));
    let url = story.url(None, Transport::Ssh, "ann/rocket");
    let refused =
        git.env("GIT_SSH_COMMAND", ssh_command(&strange)).args(["ls-remote", &url]).output().expect("git runs");
    assert!(!refused.status.success());
    let log = story.server.stop().stderr;
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
fn an_archive_comes_over_ssh_and_leaves_its_slot_free() {
    let story = Story::begin();
    let ann = story.person("ann");
    make_project(&ann, "rocket", 0);
    let url = story.url(Some(&ann), Transport::Ssh, "ann/rocket");
    story.git_ok(Some(&ann), ".", &["clone", "-q", &url, "ann"]);
    story.git_ok(None, "ann", &["checkout", "-q", "-b", "main"]);
    story.commit("ann", "README.md", "hello\n");
    story.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "main"]);
    // More often than archives are made at once.
    for number in 0..4 {
        let file = story.path(&format!("{number}.tar"));
        let file = file.to_str().expect("a path");
        story.git_ok(Some(&ann), ".", &["archive", "--remote", &url, "--output", file, "main"]);
        let listed = Command::new("tar").args(["-tf", file]).output().expect("tar runs");
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "README.md\n");
    }
    // A branch comes before a tag of its name, as everywhere.
    story.git_ok(None, "ann", &["tag", "main"]);
    story.commit("ann", "second.md", "hello\n");
    story.git_ok(Some(&ann), "ann", &["push", "-q", "origin", "refs/heads/main", "refs/tags/main"]);
    let file = story.path("branch.tar");
    let file = file.to_str().expect("a path");
    story.git_ok(Some(&ann), ".", &["archive", "--remote", &url, "--output", file, "main"]);
    let listed = Command::new("tar").args(["-tf", file]).output().expect("tar runs");
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "README.md\nsecond.md\n");
}
