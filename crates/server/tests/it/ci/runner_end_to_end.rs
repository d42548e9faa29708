//! A fresh server with its built-in runner and stock git: pushes are built.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    repository::git_clients::{GitServer, Transport, make_project},
    support::{HttpClient, ROOT_TOKEN, TestInstance},
};

/// The maximum duration of a pipeline; generous, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Three stages. The first creates artifacts, the second checks them and the variables of the project, the third collects
/// everything.
const FILE: &str = "
stages: [build, test, deploy]

compile:
  stage: build
  script:
    - echo \"building $CI_COMMIT_REF_NAME for $GITLAB_USER_EMAIL\"
    - mkdir out
    - echo \"made of $(cat word)\" > out/thing
  artifacts:
    paths: [out/]
    expire_in: 1 day

docs:
  stage: build
  script: echo \"no artifacts here\"

check:
  stage: test
  script:
    - grep 'made of bricks' out/thing
    - echo \"the password is $PASSWORD\"
    - test \"$READY\" = yes
    - cp out/thing out/checked
  artifacts:
    paths: [out/checked]

ship:
  stage: deploy
  script:
    - cat out/thing out/checked
    - git log -1 --format=%s
";

/// Returns whether bubblewrap does not work here, so that the server would run no jobs; prints a message then.
pub(crate) fn lacks_bubblewrap() -> bool {
    let arguments = ["--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"];
    let works = Command::new("bwrap").args(arguments).output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: bubblewrap does not work here; install it, for example with `apt install bubblewrap`");
    }
    !works
}

#[test]
fn a_push_is_built_by_the_built_in_runner() {
    if lacks_bubblewrap() {
        return;
    }
    let setup = GitServer::start_with(&["--runner", "1"]);
    let ann = setup.person("ann");
    let id = make_project(&ann, "house", 0);
    let base = format!("/api/v3/projects/{id}");
    ann.client.post(&format!("{base}/variables"), &json!({ "key": "PASSWORD", "value": "open-sesame-42" }));
    setup.git_ok(None, "house", &["init", "-q", "-b", "master"]);
    setup.commit("house", "word", "bricks\n");
    let sha = setup.commit("house", ".gitlab-ci.yml", FILE);
    let url = setup.url(Some(&ann), Transport::Http, "ann/house");
    setup.git_ok(Some(&ann), "house", &["push", "-q", &url, "master"]);

    // The pipeline exists as soon as the push is done.
    let pipelines = ann.client.get(&format!("{base}/pipelines")).json();
    let pipeline = &pipelines[0];
    assert_eq!(pipelines.as_array().map(Vec::len), Some(1), "{pipelines}");
    assert_eq!(pipeline["sha"], sha.as_str(), "{pipeline}");
    assert_eq!((&pipeline["ref"], &pipeline["user"]["username"]), (&json!("master"), &json!("ann")), "{pipeline}");
    assert!(["pending", "running", "failed"].contains(&pipeline["status"].as_str().unwrap_or_default()), "{pipeline}");
    let path = format!("{base}/pipelines/{}", pipeline["id"]);

    // The second stage fails, so the third does not start.
    let failed = wait_for_end(&ann.client, &path);
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(failed["started_at"].is_string() && failed["finished_at"].is_string(), "{failed}");
    assert!(failed["duration"].is_i64(), "{failed}");
    let jobs = by_name(&ann.client, &base);
    let status = |name: &str| jobs[name]["status"].as_str().unwrap_or_default();
    let all = [status("compile"), status("docs"), status("check"), status("ship")];
    assert_eq!(all, ["success", "success", "failed", "skipped"], "{}", traces(&ann.client, &base));
    assert_eq!(jobs["check"]["failure_reason"], "script_failure");
    assert_eq!(jobs["compile"]["artifacts_file"]["filename"], "artifacts.zip");
    assert_eq!(jobs["compile"]["runner"]["is_shared"], true, "{}", jobs["compile"]);
    let trace = |job: &Value| ann.client.get(&format!("{base}/builds/{}/trace", job["id"])).text;
    let output = trace(&jobs["compile"]);
    assert!(output.contains("building master for ann@example.com"), "{output}");
    let output = trace(&jobs["check"]);
    assert!(output.contains("made of bricks"), "{output}");
    assert!(output.contains("the password is xxxxxxxxxxxxxx") && !output.contains("open-sesame-42"), "{output}");

    // The cause is fixed, and the pipeline is retried without another push.
    ann.client.post(&format!("{base}/variables"), &json!({ "key": "READY", "value": "yes" }));
    let retried = ann.client.post(&format!("{path}/retry"), &json!({}));
    assert_eq!(retried.status, 201, "{retried}");
    let green = wait_for_end(&ann.client, &path);
    assert_eq!(green["status"], "success", "{green}: {}", traces(&ann.client, &base));
    assert_eq!(green["id"], pipeline["id"]);
    let jobs = by_name(&ann.client, &base);
    let output = trace(&jobs["ship"]);
    assert_eq!(
        output.matches("made of bricks\n").count() + output.matches("made of bricks\r\n").count(),
        2,
        "{output}"
    );
    assert!(output.contains("Change .gitlab-ci.yml"), "{output}");
    // The failed job is still there, beside the successful one.
    let failed = ann.client.get(&format!("{base}/builds?scope=failed")).json();
    assert_eq!(failed.as_array().map(Vec::len), Some(1), "{failed}");
    let commit = ann.client.get(&format!("{base}/repository/commits/{sha}")).json();
    assert_eq!(commit["status"], "success", "{commit}");
}

#[test]
fn a_canceled_job_leaves_no_processes() {
    if lacks_bubblewrap() {
        return;
    }
    let setup = GitServer::start_with(&["--runner", "1"]);
    let ann = setup.person("ann");
    let id = make_project(&ann, "sleeper", 0);
    let base = format!("/api/v3/projects/{id}");
    let mark = format!("6{}", std::process::id());
    let file = format!("sleep:\n  script:\n    - sleep {mark} & sleep {mark}\n");
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": file, "commit_message": "Sleep",
    });
    ann.client.post(&format!("{base}/repository/files"), &file);
    let sleeping = || {
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        processes.map(line).filter(|line| line == format!("sleep\0{mark}\0").as_bytes()).count()
    };
    wait(|| sleeping() == 2, "the job begins");
    let pipeline = ann.client.get(&format!("{base}/pipelines")).json()[0]["id"].clone();
    let canceled = ann.client.post(&format!("{base}/pipelines/{pipeline}/cancel"), &json!({}));
    assert_eq!((canceled.status, &canceled.json()["status"]), (200, &json!("canceled")), "{canceled}");
    wait(|| sleeping() == 0, "nothing of it is left");
}

#[test]
fn a_job_has_no_access_to_the_data_of_the_server_nor_to_the_server_itself() {
    if lacks_bubblewrap() {
        return;
    }
    let instance = TestInstance::new();
    let server = instance.serve().args(&["--runner", "1"]).with_root_credentials().start();
    let root = server.root();
    let id = root.post("/api/v3/projects", &json!({ "name": "spy" })).json()["id"].as_i64().expect("a number");
    let base = format!("/api/v3/projects/{id}");
    let (data, address) = (instance.data(), server.address().replace(':', "/"));
    assert!(data.join("instance-key").is_file(), "there is something to read");
    let file = format!(
        "spy:\n  script:\n    - if cat {data}/instance-key; then echo read the key; fi\n    \
         - if ls {data} | grep -v runner; then echo saw the data; fi\n    \
         - if (exec 3<>/dev/tcp/{address}); then echo reached the server; fi\n    \
         - if cat /proc/*/environ | tr '\\0' '\\n' | grep ROOT_TOKEN; then echo saw the environment; fi\n    \
         - id -u\n    - ls\n    - echo looked everywhere\n",
        data = data.display()
    );
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": file, "commit_message": "Spy",
    });
    root.post(&format!("{base}/repository/files"), &file);
    let pipeline = root.get(&format!("{base}/pipelines")).json()[0]["id"].clone();
    let shown = wait_for_end(&root, &format!("{base}/pipelines/{pipeline}"));
    let output = traces(&root, &base);
    assert_eq!(shown["status"], "success", "{output}");
    assert!(output.contains("\nlooked everywhere"), "{output}");
    for found in ["\nread the key", "\nsaw the data", "\nreached the server", "\nsaw the environment", ROOT_TOKEN] {
        assert!(!output.contains(found), "{found}: {output}");
    }
    server.stop();
}

#[test]
fn a_job_interrupted_by_a_kill_is_run_again() {
    if lacks_bubblewrap() {
        return;
    }
    let instance = TestInstance::new();
    let start = || instance.serve().args(&["--runner", "1"]).with_root_credentials().start();
    let server = start();
    let root = server.root();
    let id = root.post("/api/v3/projects", &json!({ "name": "phoenix" })).json()["id"].as_i64().expect("a number");
    let base = format!("/api/v3/projects/{id}");
    let file = "rise:\n  script:\n    - echo begun\n    - sleep 3\n    - echo ended\n";
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": file, "commit_message": "Rise",
    });
    root.post(&format!("{base}/repository/files"), &file);
    let output = |client: &HttpClient| traces(client, &base).matches("\nbegun").count();
    wait(|| output(&root) == 1, "the job begins");
    server.kill();
    let server = start();
    let root = server.root();
    let pipeline = root.get(&format!("{base}/pipelines")).json()[0]["id"].clone();
    let shown = wait_for_end(&root, &format!("{base}/pipelines/{pipeline}"));
    let jobs = root.get(&format!("{base}/builds")).json();
    assert_eq!((&shown["status"], jobs.as_array().map(Vec::len)), (&json!("success"), Some(1)), "{jobs}");
    let all = traces(&root, &base);
    assert_eq!((all.matches("\nbegun").count(), all.matches("\nended").count()), (1, 1), "{all}");
    server.stop();
}

fn wait(condition: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "not so: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a pipeline has finished; checks its status on the way.
fn wait_for_end(client: &HttpClient, path: &str) -> Value {
    let start = Instant::now();
    loop {
        let shown = client.get(path).json();
        match shown["status"].as_str().unwrap_or_default() {
            "pending" | "running" => assert!(start.elapsed() < TIMEOUT, "{shown}"),
            _ => return shown,
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The newest job of each name.
fn by_name(client: &HttpClient, base: &str) -> Value {
    let jobs = client.get(&format!("{base}/builds?per_page=100")).json();
    let mut named = serde_json::Map::new();
    for job in jobs.as_array().into_iter().flatten() {
        named.entry(job["name"].as_str().unwrap_or_default()).or_insert_with(|| job.clone());
    }
    named.into()
}

/// The traces of all jobs, for debugging.
fn traces(client: &HttpClient, base: &str) -> String {
    let jobs = client.get(&format!("{base}/builds?per_page=100")).json();
    let output = |job: &Value| {
        let trace = client.get(&format!("{base}/builds/{}/trace", job["id"])).text;
        format!("--- {} {}\n{trace}\n", job["name"], job["status"])
    };
    jobs.as_array().into_iter().flatten().map(output).collect()
}
