//! A full disk: writes are refused, reads continue, and writes succeed again without a restart once space is free.
//! The disk is simulated, because a real file system needs privileges; see `testkit::faults`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use model::ProjectId;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    faults::{FaultInjector, FaultSession},
    repository::{git, git_command},
};

use crate::repository::git_clients::ssh_command;
use crate::support::{HttpClient, HttpResponse, ROOT_TOKEN, ServerProcess, TestInstance, WAIT_TIMEOUT};

const API_ERROR: &str = "507 Insufficient Storage - The disk of the server is full; its operator has to free space.";
const PUSH_ERROR: &str = "The disk of the server is full; its operator has to free space.";

/// Starts a server whose disk can be filled.
fn serve(instance: &TestInstance) -> (ServerProcess, FaultSession) {
    let data = instance.data();
    fs::create_dir_all(&data).expect("a folder");
    fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).expect("permitted");
    let faults = FaultInjector::new(&data, &data.with_file_name("faults")).start_session();
    let gable = instance.serve().args(&["--ssh-listen", "127.0.0.1:0", "--min-free-disk", "0"]);
    let gable = faults.environment().iter().fold(gable, |gable, (name, value)| gable.env(name, value));
    (gable.with_root_credentials().start(), faults)
}

/// A project on a server, and all kinds of writes to it.
struct Fixture {
    root: HttpClient,
    http: String,
    ssh: String,
    work: TempDir,
    project: i64,
    /// The id and the token of a running job.
    job: (i64, String),
    trace_length: usize,
}

impl Fixture {
    /// Creates a project with a repository, an SSH key, and a running job.
    fn create(server: &ServerProcess) -> Self {
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
            let response = server.anonymous().post("/api/v4/jobs/request", &json!({ "token": runner["token"] }));
            (response.status == 201).then(|| response.json())
        });
        let job = (job["id"].as_i64().expect("a number"), job["token"].as_str().expect("a token").to_owned());
        let http = format!("http://root:{ROOT_TOKEN}@{}/root/road.git", server.address());
        let ssh = format!("{}/root/road.git", server.ssh_url.as_deref().expect("SSH is served"));
        let fixture = Self { root, http, ssh, work, project, job, trace_length: 0 };
        fixture.git(&["clone", "-q", &fixture.http, "clone"], "");
        fixture
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v3/projects/{}{rest}", self.project)
    }

    fn try_git(&self, arguments: &[&str], folder: &str) -> Output {
        let mut command = git_command(&self.work.path().join(folder));
        command.env("GIT_SSH_COMMAND", ssh_command(&self.work.path().join("key")));
        command.args(arguments).output().expect("git runs")
    }

    fn git(&self, arguments: &[&str], folder: &str) -> String {
        let output = self.try_git(arguments, folder);
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Commits something and pushes it to a new branch; returns the commit, or the output of git if it is refused.
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

    fn upload(&self, name: &str) -> HttpResponse {
        self.root.try_upload(&self.path("/uploads"), name, &"x".repeat(100_000)).expect("a response")
    }

    fn artifact(&self) -> HttpResponse {
        let path = format!("/api/v4/jobs/{}/artifacts?token={}", self.job.0, self.job.1);
        self.root.try_upload(&path, "a.zip", &"x".repeat(100_000)).expect("a response")
    }

    fn append_trace(&self, text: &str) -> HttpResponse {
        let range = format!("{}-{}", self.trace_length, self.trace_length + text.len() - 1);
        let headers = [("job-token", self.job.1.as_str()), ("content-range", &range), ("content-type", "text/plain")];
        self.root.try_patch(&format!("/api/v4/jobs/{}/trace", self.job.0), &headers, text).expect("a response")
    }

    fn commit(&self, file: &str) -> HttpResponse {
        let actions = json!([{ "action": "create", "file_path": file, "content": file }]);
        let new = json!({ "branch_name": "master", "commit_message": file, "actions": actions });
        self.root.post(&self.path("/repository/commits"), &new)
    }

    fn issue(&self, title: &str) -> HttpResponse {
        self.root.post(&self.path("/issues"), &json!({ "title": title }))
    }

    /// Checks that all reads succeed.
    fn check_reads(&self) {
        for path in
            ["", "/issues", "/repository/tree", "/repository/commits", "/repository/archive", "/builds", "/events"]
        {
            let response = self.root.get(&self.path(path));
            assert_eq!(response.status, 200, "{path}: {response}");
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

fn wait_for<T>(mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "the condition is not met in time");
        thread::sleep(Duration::from_millis(20));
    }
}

fn assert_disk_full(response: &HttpResponse) {
    assert_eq!(response.status, 507, "{response}");
    assert_eq!(response.json(), json!({ "message": API_ERROR }));
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else_until_space_is_freed() {
    let instance = TestInstance::new();
    let (server, disk) = serve(&instance);
    let mut fixture = Fixture::create(&server);
    assert_eq!(fixture.append_trace("first\n").status, 202);
    fixture.trace_length = 6;
    let before = fixture.issue("before");
    assert_eq!(before.status, 201, "{before}");
    let health = || server.anonymous().get("/-/health");
    assert_eq!(health().text, "ok\n");

    disk.fill_disk();
    if instance.database_url().is_none() {
        assert_disk_full(&fixture.issue("refused"));
        assert_disk_full(&fixture.root.post("/api/v3/user/emails", &json!({ "email": "refused@example.org" })));
    }
    for response in [
        fixture.upload("refused.txt"),
        fixture.artifact(),
        fixture.append_trace("refused\n"),
        fixture.commit("refused-api"),
    ] {
        assert_disk_full(&response);
    }
    for (url, branch) in [(&fixture.http, "refused-http"), (&fixture.ssh, "refused-ssh")] {
        let error = fixture.push(url, branch).expect_err("the disk is full");
        assert!(error.contains(PUSH_ERROR), "{error}");
    }
    fixture.check_reads();
    let degraded = health();
    assert_eq!(degraded.status, 200, "reads still work, so it is healthy: {degraded}");
    assert_eq!(degraded.text, "degraded: the disk of the data folder is full; nothing can be written\n");
    let ready = server.anonymous().get("/-/ready").text;
    assert!(ready.starts_with("ready, but degraded: "), "{ready}");

    disk.free_space();
    // The same server, without a restart.
    let issue = fixture.issue("after");
    assert_eq!(issue.status, 201, "{issue}");
    for response in [fixture.upload("after.txt"), fixture.artifact(), fixture.commit("after-api")] {
        assert_eq!(response.status, 201, "{response}");
    }
    assert_eq!(fixture.append_trace("second\n").status, 202);
    let over_http = fixture.push(&fixture.http, "after-http").expect("space is free");
    let over_ssh = fixture.push(&fixture.ssh, "after-ssh").expect("space is free");
    fixture.check_reads();
    wait_for(|| (health().text == "ok\n").then_some(()));

    let titles: Vec<Value> = fixture.root.get(&fixture.path("/issues")).json().as_array().expect("a list").clone();
    let titles: Vec<&str> = titles.iter().filter_map(|issue| issue["title"].as_str()).collect();
    assert!(titles.contains(&"before") && titles.contains(&"after") && !titles.contains(&"refused"), "{titles:?}");
    let branches = fixture.root.get(&fixture.path("/repository/branches")).json();
    let tip = |name: &str| {
        let mut all = branches.as_array().expect("a list").iter();
        all.find(|branch| branch["name"] == name).map(|branch| branch["commit"]["id"].clone())
    };
    assert_eq!((tip("after-http"), tip("after-ssh")), (Some(json!(over_http)), Some(json!(over_ssh))));
    let refused =
        branches.as_array().expect("a list").iter().filter(|branch| branch["name"].to_string().contains("refused"));
    assert_eq!(refused.count(), 0, "{branches}");
    let trace = fixture.root.get(&fixture.path(&format!("/builds/{}/trace", fixture.job.0))).text;
    assert_eq!(trace, "first\nsecond\n");

    server.stop();
    let repository = instance.build_repository(ProjectId::new(fixture.project));
    git(repository.path(), &["fsck", "--strict", "--full"], b"");
    assert_eq!(instance.count("SELECT count(*) FROM uploads WHERE NOT complete"), 0);
    let examined = instance.gable(&["doctor", "--json"]).finish();
    assert_eq!(examined.status, Some(0), "{}", examined.combined_output());
}

#[test]
fn a_push_that_fits_in_part_is_refused_with_a_reason_and_leaves_nothing() {
    let instance = TestInstance::new();
    let (server, disk) = serve(&instance);
    let fixture = Fixture::create(&server);
    disk.fill_disk_for("/pack/");
    for (url, branch) in [(&fixture.http, "one"), (&fixture.ssh, "two")] {
        let error = fixture.push(url, branch).expect_err("the disk is full");
        assert!(error.contains(PUSH_ERROR), "{error}");
    }
    assert_eq!(fixture.issue("small").status, 201, "small writes still fit");
    if instance.database_url().is_none() {
        // By then the objects are stored.
        disk.fill_disk_for("/gable.sqlite3");
        assert_disk_full(&fixture.commit("in-vain"));
        let error = fixture.push(&fixture.http, "two").expect_err("the disk is full");
        assert!(error.contains(PUSH_ERROR), "{error}");
    }
    assert_eq!(instance.count("SELECT count(*) FROM refs"), 1, "no push is half done");
    assert_eq!(instance.count("SELECT count(*) FROM packs"), 1, "no push is half done");
    // Reads work even if the cache cannot be written.
    disk.fill_disk_for("/cache/");
    fixture.check_reads();
    disk.free_space();
    fixture.push(&fixture.http, "three").expect("space is free");
    let tmp = instance.data().join("repositories/tmp");
    wait_for(|| (fs::read_dir(&tmp).expect("a folder").count() == 0).then_some(()));
}

#[test]
fn large_writes_are_refused_below_the_minimum_of_free_space() {
    let instance = TestInstance::new();
    let serve = |least: &str| {
        let gable = instance.serve().args(&["--ssh-listen", "127.0.0.1:0", "--min-free-disk", least]);
        gable.with_root_credentials().start()
    };
    let server = serve("0");
    let fixture = Fixture::create(&server);
    server.stop();
    let server = serve(&u64::MAX.to_string());
    let http = format!("http://root:{ROOT_TOKEN}@{}/root/road.git", server.address());
    let ssh = format!("{}/root/road.git", server.ssh_url.as_deref().expect("SSH is served"));
    let fixture = Fixture { root: server.root(), http, ssh, ..fixture };
    for response in [fixture.upload("a.txt"), fixture.artifact(), fixture.commit("api")] {
        assert_disk_full(&response);
    }
    let error = fixture.push(&fixture.http, "http").expect_err("too little space is free");
    assert!(error.contains(PUSH_ERROR), "{error}");
    assert_eq!(fixture.issue("small").status, 201, "small writes to the database succeed");
    assert_eq!(fixture.append_trace("a word\n").status, 202);
    fixture.check_reads();
    let health = server.anonymous().get("/-/health").text;
    assert!(health.starts_with("degraded: ") && health.ends_with("MiB); pushes and uploads are refused\n"), "{health}");
}
