//! What happens when the disk is full: every write is told so, every read goes on, and once there is room again the service
//! does, too, without a word from anybody. A real file system would take privileges; see `testkit::faults`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    faults::{Faults, Life},
    repository::quiet_git,
};

use crate::admin::binary::{Client, Home, PATIENCE, ROOT_TOKEN, Reply, Server};
use crate::repository::git_story::ssh_command;

const MESSAGE: &str =
    "507 Insufficient Storage - The disk of the server is full; whoever operates it has to make room.";
const SENTENCE: &str = "The disk of the server is full; whoever operates it has to make room.";

/// A server whose disk can be full.
fn serve(home: &Home) -> (Server, Life) {
    let data = home.data();
    fs::create_dir_all(&data).expect("a folder");
    fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).expect("permitted");
    let life = Faults::watching(&data, &data.with_file_name("faults")).life();
    let gable = home.serve().args(&["--ssh-listen", "127.0.0.1:0", "--min-free-disk", "0"]);
    let gable = life.environment().iter().fold(gable, |gable, (name, value)| gable.env(name, value));
    (gable.with_known_root().start(), life)
}

/// What one can do to a server that takes room.
struct Guest {
    root: Client,
    http: String,
    ssh: String,
    work: TempDir,
    project: i64,
    /// A job that runs, and its token.
    job: (i64, String),
    said: usize,
}

impl Guest {
    /// Somebody with a project, a repository in it, a key, and a job that runs.
    fn arrive(server: &Server) -> Self {
        let root = server.root();
        let work = tempfile::tempdir().expect("a folder");
        let key = work.path().join("key");
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&key).status();
        assert!(made.expect("ssh-keygen runs").success());
        let public = fs::read_to_string(key.with_extension("pub")).expect("a public key");
        assert_eq!(root.post("/api/v3/user/keys", &json!({ "title": "t", "key": public.trim() })).status, 201);
        let made = root.post("/api/v3/projects", &json!({ "name": "road", "path": "road" })).json();
        let project = made["id"].as_i64().expect("a number");
        let file = json!({
            "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": "work:\n  script: make\n",
            "commit_message": "Work",
        });
        let written = root.post(&format!("/api/v3/projects/{project}/repository/files"), &file);
        assert_eq!(written.status, 201, "{written}");
        let joined = json!({ "token": made["runners_token"], "description": "r" });
        let runner = server.anonymous().post("/api/v4/runners", &joined).json();
        let job = wait_for(|| {
            let reply = server.anonymous().post("/api/v4/jobs/request", &json!({ "token": runner["token"] }));
            (reply.status == 201).then(|| reply.json())
        });
        let job = (job["id"].as_i64().expect("a number"), job["token"].as_str().expect("a token").to_owned());
        let http = format!("http://root:{ROOT_TOKEN}@{}/root/road.git", server.address());
        let ssh = format!("{}/root/road.git", server.ssh_url.as_deref().expect("SSH is served"));
        let guest = Self { root, http, ssh, work, project, job, said: 0 };
        guest.git(&["clone", "-q", &guest.http, "clone"], "");
        guest
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v3/projects/{}{rest}", self.project)
    }

    fn try_git(&self, arguments: &[&str], folder: &str) -> Output {
        let mut command = quiet_git(&self.work.path().join(folder));
        command.env("GIT_SSH_COMMAND", ssh_command(&self.work.path().join("key")));
        command.args(arguments).output().expect("git runs")
    }

    fn git(&self, arguments: &[&str], folder: &str) -> String {
        let output = self.try_git(arguments, folder);
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Commits something and pushes it to a branch of its own; answers what git says if it is refused.
    fn push(&self, url: &str, branch: &str) -> Result<String, String> {
        fs::write(self.work.path().join("clone").join(branch), branch.repeat(1000)).expect("written");
        self.git(&["add", "--all"], "clone");
        self.git(&["commit", "-q", "--allow-empty", "-m", branch], "clone");
        let output = self.try_git(&["push", "-q", url, &format!("HEAD:refs/heads/{branch}")], "clone");
        if output.status.success() {
            return Ok(self.git(&["rev-parse", "HEAD"], "clone"));
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn upload(&self, name: &str) -> Reply {
        self.root.try_upload(&self.path("/uploads"), name, &"x".repeat(100_000)).expect("an answer")
    }

    fn artifact(&self) -> Reply {
        let path = format!("/api/v4/jobs/{}/artifacts?token={}", self.job.0, self.job.1);
        self.root.try_upload(&path, "a.zip", &"x".repeat(100_000)).expect("an answer")
    }

    fn say(&self, text: &str) -> Reply {
        let range = format!("{}-{}", self.said, self.said + text.len() - 1);
        let headers = [("job-token", self.job.1.as_str()), ("content-range", &range), ("content-type", "text/plain")];
        self.root.try_patch(&format!("/api/v4/jobs/{}/trace", self.job.0), &headers, text).expect("an answer")
    }

    fn commit(&self, file: &str) -> Reply {
        let actions = json!([{ "action": "create", "file_path": file, "content": file }]);
        let new = json!({ "branch_name": "master", "commit_message": file, "actions": actions });
        self.root.post(&self.path("/repository/commits"), &new)
    }

    fn issue(&self, title: &str) -> Reply {
        self.root.post(&self.path("/issues"), &json!({ "title": title }))
    }

    /// Everything that reads goes on as if nothing was the matter.
    fn reads(&self) {
        for path in
            ["", "/issues", "/repository/tree", "/repository/commits", "/repository/archive", "/builds", "/events"]
        {
            let reply = self.root.get(&self.path(path));
            assert_eq!(reply.status, 200, "{path}: {reply}");
        }
        let trace = self.root.get(&self.path(&format!("/builds/{}/trace", self.job.0)));
        assert_eq!(trace.status, 200, "{trace}");
        for (number, url) in [&self.http, &self.ssh].into_iter().enumerate() {
            let folder = format!("read-{number}");
            self.git(&["clone", "-q", url, &folder], "");
            self.git(&["fsck", "--strict"], &folder);
            fs::remove_dir_all(self.work.path().join(folder)).expect("removed");
        }
    }
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "it does not come");
        thread::sleep(Duration::from_millis(20));
    }
}

fn assert_no_room(reply: &Reply) {
    assert_eq!(reply.status, 507, "{reply}");
    assert_eq!(reply.json(), json!({ "message": MESSAGE }));
}

#[test]
fn a_full_disk_refuses_what_is_written_and_nothing_else_until_there_is_room_again() {
    let home = Home::new();
    let (server, disk) = serve(&home);
    let mut guest = Guest::arrive(&server);
    assert_eq!(guest.say("first\n").status, 202);
    guest.said = 6;
    let before = guest.issue("before");
    assert_eq!(before.status, 201, "{before}");
    let health = || server.anonymous().get("/-/health");
    assert_eq!(health().text, "ok\n");

    disk.fill();
    if home.database_url().is_none() {
        assert_no_room(&guest.issue("refused"));
        assert_no_room(&guest.root.post("/api/v3/user/emails", &json!({ "email": "refused@example.org" })));
    }
    for reply in [guest.upload("refused.txt"), guest.artifact(), guest.say("refused\n"), guest.commit("refused-api")] {
        assert_no_room(&reply);
    }
    for (url, branch) in [(&guest.http, "refused-http"), (&guest.ssh, "refused-ssh")] {
        let said = guest.push(url, branch).expect_err("there is no room");
        assert!(said.contains(SENTENCE), "{said}");
    }
    guest.reads();
    let degraded = health();
    assert_eq!(degraded.status, 200, "whoever reads is served, so it shall live: {degraded}");
    assert_eq!(degraded.text, "degraded: the disk of the data folder is full; nothing can be written\n");
    let ready = server.anonymous().get("/-/ready").text;
    assert!(ready.starts_with("ready, but degraded: "), "{ready}");

    disk.free();
    // The same server, without a restart.
    let issue = guest.issue("after");
    assert_eq!(issue.status, 201, "{issue}");
    for reply in [guest.upload("after.txt"), guest.artifact(), guest.commit("after-api")] {
        assert_eq!(reply.status, 201, "{reply}");
    }
    assert_eq!(guest.say("second\n").status, 202);
    let over_http = guest.push(&guest.http, "after-http").expect("there is room");
    let over_ssh = guest.push(&guest.ssh, "after-ssh").expect("there is room");
    guest.reads();
    wait_for(|| (health().text == "ok\n").then_some(()));

    let titles: Vec<Value> = guest.root.get(&guest.path("/issues")).json().as_array().expect("a list").clone();
    let titles: Vec<&str> = titles.iter().filter_map(|issue| issue["title"].as_str()).collect();
    assert!(titles.contains(&"before") && titles.contains(&"after") && !titles.contains(&"refused"), "{titles:?}");
    let branches = guest.root.get(&guest.path("/repository/branches")).json();
    let tip = |name: &str| {
        let mut all = branches.as_array().expect("a list").iter();
        all.find(|branch| branch["name"] == name).map(|branch| branch["commit"]["id"].clone())
    };
    assert_eq!((tip("after-http"), tip("after-ssh")), (Some(json!(over_http)), Some(json!(over_ssh))));
    let refused =
        branches.as_array().expect("a list").iter().filter(|branch| branch["name"].to_string().contains("refused"));
    assert_eq!(refused.count(), 0, "{branches}");
    let trace = guest.root.get(&guest.path(&format!("/builds/{}/trace", guest.job.0))).text;
    assert_eq!(trace, "first\nsecond\n");

    server.stop();
    assert_eq!(home.count("SELECT count(*) FROM ref_intents"), 0, "nothing is half done");
    assert_eq!(home.count("SELECT count(*) FROM uploads WHERE NOT complete"), 0);
    let examined = home.gable(&["doctor", "--json"]).finish();
    assert_eq!(examined.status, Some(0), "{}", examined.words());
}

#[test]
fn a_push_that_fits_by_half_is_refused_in_a_sentence_and_leaves_nothing() {
    let home = Home::new();
    let (server, disk) = serve(&home);
    let guest = Guest::arrive(&server);
    disk.fill_only("/pack/");
    for (url, branch) in [(&guest.http, "one"), (&guest.ssh, "two")] {
        let said = guest.push(url, branch).expect_err("there is no room");
        assert!(said.contains(SENTENCE), "{said}");
    }
    assert_eq!(guest.issue("small").status, 201, "what is small still fits");
    // The objects are in by then, and the push is written down; it is forgotten again.
    disk.fill_only("/refs/heads/");
    assert_no_room(&guest.commit("in-vain"));
    let said = guest.push(&guest.http, "two").expect_err("there is no room");
    assert!(said.contains(SENTENCE), "{said}");
    assert_eq!(home.count("SELECT count(*) FROM ref_intents"), 0, "nothing is half done");
    // A cache that cannot be written to is no reason not to read.
    disk.fill_only("/cache/");
    guest.reads();
    disk.free();
    guest.push(&guest.http, "three").expect("there is room");
    let tmp = home.data().join("repositories/tmp");
    wait_for(|| (fs::read_dir(&tmp).expect("a folder").count() == 0).then_some(()));
}

#[test]
fn what_is_large_is_refused_early_while_less_is_free_than_shall_be() {
    let home = Home::new();
    let serve = |least: &str| {
        let gable = home.serve().args(&["--ssh-listen", "127.0.0.1:0", "--min-free-disk", least]);
        gable.with_known_root().start()
    };
    let server = serve("0");
    let guest = Guest::arrive(&server);
    server.stop();
    let server = serve(&u64::MAX.to_string());
    let http = format!("http://root:{ROOT_TOKEN}@{}/root/road.git", server.address());
    let ssh = format!("{}/root/road.git", server.ssh_url.as_deref().expect("SSH is served"));
    let guest = Guest { root: server.root(), http, ssh, ..guest };
    for reply in [guest.upload("a.txt"), guest.artifact(), guest.commit("api")] {
        assert_no_room(&reply);
    }
    let said = guest.push(&guest.http, "http").expect_err("there shall be more room");
    assert!(said.contains(SENTENCE), "{said}");
    assert_eq!(guest.issue("small").status, 201, "the database goes on");
    assert_eq!(guest.say("a word\n").status, 202);
    guest.reads();
    let health = server.anonymous().get("/-/health").text;
    assert!(
        health.starts_with("degraded: ") && health.ends_with("shall be; pushes and files are refused\n"),
        "{health}"
    );
}
