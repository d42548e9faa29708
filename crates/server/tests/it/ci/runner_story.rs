//! A fresh server with its own runner, a stock git, and nothing else: what is pushed is built.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    admin::binary::{Client, Home, ROOT_TOKEN},
    repository::git_story::{Story, Transport, make_project},
};

/// How long a pipeline may take; generous, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Three stages. The first leaves something behind, the second looks at it and at what the project says, the third
/// gathers everything.
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

/// Whether bubblewrap does not work here, so that the server would run no jobs; says so.
pub(crate) fn lacks_bubblewrap() -> bool {
    let arguments = ["--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"];
    let works = Command::new("bwrap").args(arguments).output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: bubblewrap does not work here; install it, for example with `apt install bubblewrap`");
    }
    !works
}

#[test]
fn what_is_pushed_is_built_by_the_runner_inside() {
    if lacks_bubblewrap() {
        return;
    }
    let story = Story::begin_with(&["--runner", "1"]);
    let ann = story.person("ann");
    let id = make_project(&ann, "house", 0);
    let base = format!("/api/v3/projects/{id}");
    ann.client.post(&format!("{base}/variables"), &json!({ "key": "PASSWORD", "value": "open-sesame-42" }));
    story.git_ok(None, "house", &["init", "-q", "-b", "master"]);
    story.commit("house", "word", "bricks\n");
    let sha = story.commit("house", ".gitlab-ci.yml", FILE);
    let url = story.url(Some(&ann), Transport::Http, "ann/house");
    story.git_ok(Some(&ann), "house", &["push", "-q", &url, "master"]);

    // It is there as soon as the push is.
    let pipelines = ann.client.get(&format!("{base}/pipelines")).json();
    let pipeline = &pipelines[0];
    assert_eq!(pipelines.as_array().map(Vec::len), Some(1), "{pipelines}");
    assert_eq!(pipeline["sha"], sha.as_str(), "{pipeline}");
    assert_eq!((&pipeline["ref"], &pipeline["user"]["username"]), (&json!("master"), &json!("ann")), "{pipeline}");
    assert!(["pending", "running", "failed"].contains(&pipeline["status"].as_str().unwrap_or_default()), "{pipeline}");
    let path = format!("{base}/pipelines/{}", pipeline["id"]);

    // The second stage fails, so the third never comes.
    let failed = wait_for_end(&ann.client, &path);
    assert_eq!(failed["status"], "failed", "{failed}");
    assert!(failed["started_at"].is_string() && failed["finished_at"].is_string(), "{failed}");
    assert!(failed["duration"].is_i64(), "{failed}");
    let builds = by_name(&ann.client, &base);
    let status = |name: &str| builds[name]["status"].as_str().unwrap_or_default();
    let all = [status("compile"), status("docs"), status("check"), status("ship")];
    assert_eq!(all, ["success", "success", "failed", "skipped"], "{}", traces(&ann.client, &base));
    assert_eq!(builds["check"]["failure_reason"], "script_failure");
    assert_eq!(builds["compile"]["artifacts_file"]["filename"], "artifacts.zip");
    assert_eq!(builds["compile"]["runner"]["is_shared"], true, "{}", builds["compile"]);
    let trace = |build: &Value| ann.client.get(&format!("{base}/builds/{}/trace", build["id"])).text;
    let said = trace(&builds["compile"]);
    assert!(said.contains("building master for ann@example.com"), "{said}");
    let said = trace(&builds["check"]);
    assert!(said.contains("made of bricks"), "{said}");
    assert!(said.contains("the password is xxxxxxxxxxxxxx") && !said.contains("open-sesame-42"), "{said}");

    // What was missing is put right, and it is tried again without another push.
    ann.client.post(&format!("{base}/variables"), &json!({ "key": "READY", "value": "yes" }));
    let retried = ann.client.post(&format!("{path}/retry"), &json!({}));
    assert_eq!(retried.status, 201, "{retried}");
    let green = wait_for_end(&ann.client, &path);
    assert_eq!(green["status"], "success", "{green}: {}", traces(&ann.client, &base));
    assert_eq!(green["id"], pipeline["id"]);
    let builds = by_name(&ann.client, &base);
    let said = trace(&builds["ship"]);
    assert_eq!(said.matches("made of bricks\n").count() + said.matches("made of bricks\r\n").count(), 2, "{said}");
    assert!(said.contains("Change .gitlab-ci.yml"), "{said}");
    // The one that failed is still there, beside the one that went well.
    let failed = ann.client.get(&format!("{base}/builds?scope=failed")).json();
    assert_eq!(failed.as_array().map(Vec::len), Some(1), "{failed}");
    let commit = ann.client.get(&format!("{base}/repository/commits/{sha}")).json();
    assert_eq!(commit["status"], "success", "{commit}");
}

#[test]
fn a_job_can_be_stopped_and_leaves_nothing_running() {
    if lacks_bubblewrap() {
        return;
    }
    let story = Story::begin_with(&["--runner", "1"]);
    let ann = story.person("ann");
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
fn a_job_reaches_neither_the_data_of_the_server_nor_the_server_itself() {
    if lacks_bubblewrap() {
        return;
    }
    let home = Home::new();
    let server = home.serve().args(&["--runner", "1"]).with_known_root().start();
    let root = server.root();
    let id = root.post("/api/v3/projects", &json!({ "name": "spy" })).json()["id"].as_i64().expect("a number");
    let base = format!("/api/v3/projects/{id}");
    let (data, address) = (home.data(), server.address().replace(':', "/"));
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
    let said = traces(&root, &base);
    assert_eq!(shown["status"], "success", "{said}");
    assert!(said.contains("\nlooked everywhere"), "{said}");
    for found in ["\nread the key", "\nsaw the data", "\nreached the server", "\nsaw the environment", ROOT_TOKEN] {
        assert!(!said.contains(found), "{found}: {said}");
    }
    server.stop();
}

#[test]
fn a_job_that_a_kill_interrupts_begins_anew() {
    if lacks_bubblewrap() {
        return;
    }
    let home = Home::new();
    let start = || home.serve().args(&["--runner", "1"]).with_known_root().start();
    let server = start();
    let root = server.root();
    let id = root.post("/api/v3/projects", &json!({ "name": "phoenix" })).json()["id"].as_i64().expect("a number");
    let base = format!("/api/v3/projects/{id}");
    let file = "rise:\n  script:\n    - echo begun\n    - sleep 3\n    - echo ended\n";
    let file = json!({
        "file_path": ".gitlab-ci.yml", "branch_name": "master", "content": file, "commit_message": "Rise",
    });
    root.post(&format!("{base}/repository/files"), &file);
    let said = |client: &Client| traces(client, &base).matches("\nbegun").count();
    wait(|| said(&root) == 1, "the job begins");
    server.kill();
    let server = start();
    let root = server.root();
    let pipeline = root.get(&format!("{base}/pipelines")).json()[0]["id"].clone();
    let shown = wait_for_end(&root, &format!("{base}/pipelines/{pipeline}"));
    let builds = root.get(&format!("{base}/builds")).json();
    assert_eq!((&shown["status"], builds.as_array().map(Vec::len)), (&json!("success"), Some(1)), "{builds}");
    let all = traces(&root, &base);
    assert_eq!((all.matches("\nbegun").count(), all.matches("\nended").count()), (1, 1), "{all}");
    server.stop();
}

fn wait(condition: impl Fn() -> bool, what: &str) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not so: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a pipeline has come to an end; on the way it only shows what it may.
fn wait_for_end(client: &Client, path: &str) -> Value {
    let start = Instant::now();
    loop {
        let shown = client.get(path).json();
        match shown["status"].as_str().unwrap_or_default() {
            "pending" | "running" => assert!(start.elapsed() < PATIENCE, "{shown}"),
            _ => return shown,
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The newest build of each name.
fn by_name(client: &Client, base: &str) -> Value {
    let builds = client.get(&format!("{base}/builds?per_page=100")).json();
    let mut named = serde_json::Map::new();
    for build in builds.as_array().into_iter().flatten() {
        named.entry(build["name"].as_str().unwrap_or_default()).or_insert_with(|| build.clone());
    }
    named.into()
}

/// What all builds said, for whoever looks for the reason.
fn traces(client: &Client, base: &str) -> String {
    let builds = client.get(&format!("{base}/builds?per_page=100")).json();
    let said = |build: &Value| {
        let trace = client.get(&format!("{base}/builds/{}/trace", build["id"])).text;
        format!("--- {} {}\n{trace}\n", build["name"], build["status"])
    };
    builds.as_array().into_iter().flatten().map(said).collect()
}
