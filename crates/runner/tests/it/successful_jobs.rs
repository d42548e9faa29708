//! Jobs that succeed, and their artifacts and caches.

use serde_json::json;

use crate::{RunnerFixture, must_fail};

#[tokio::test]
async fn a_job_succeeds_and_its_output_arrives_in_order() {
    let fixture = RunnerFixture::start().await;
    let sha = fixture.server.repository("rocket", &[("greeting", "hello\n"), ("deep/er/file", "x")]);
    let script =
        ["cat greeting", "for i in $(seq 500); do echo line $i; echo error $i >&2; done", "test -f deep/er/file"];
    let reported = fixture.server.run_to_end(fixture.server.job(1, "rocket", &sha, &script)).await;
    assert_eq!((reported.state.as_str(), reported.exit_code), ("success", Some(0)), "{}", reported.plain_trace());
    let all = (1..=500).fold(String::new(), |all, number| format!("{all}line {number}\nerror {number}\n"));
    let expected = format!(
        "Fetching changes...\nChecking out {} as detached HEAD (ref is main)...\n$ cat greeting\nhello\n\
         $ for i in $(seq 500); do echo line $i; echo error $i >&2; done\n{all}$ test -f deep/er/file\nJob succeeded\n",
        &sha[..8]
    );
    assert!(reported.plain_trace().ends_with(&expected), "{}", reported.plain_trace());
    assert!(reported.text().contains("\x1b[32;1m$ cat greeting\x1b[0;m\n"));
    fixture.stop().await;
}

#[tokio::test]
async fn after_script_runs_after_a_failed_script() {
    let fixture = RunnerFixture::start().await;
    let mut job = fixture.server.plain_job(1, &["echo before", "false | true", "exit 3", "echo never"]);
    job["steps"].as_array_mut().expect("steps").push(json!({
        "name": "after_script", "script": ["echo it was $CI_JOB_STATUS; exit 9"], "timeout": 3600,
        "when": "always", "allow_failure": true
    }));
    let reported = fixture.server.run_to_end(job).await;
    // Whether a failed pipe fails the script depends on the shell.
    assert_eq!((reported.state.as_str(), reported.reason.as_str()), ("failed", "script_failure"));
    assert!(matches!(reported.exit_code, Some(1 | 3)), "{:?}", reported.exit_code);
    let text = reported.plain_trace();
    assert!(text.contains("before\n") && !text.contains("never\n"), "{text}");
    assert!(text.contains("it was failed\n") && text.contains("after script failed: exit status 9"), "{text}");
    assert!(
        text.ends_with(&format!("ERROR: Job failed: exit status {}\n", reported.exit_code.unwrap_or_default())),
        "{text}"
    );
    fixture.stop().await;
}

#[tokio::test]
async fn the_script_sees_its_variables_and_nothing_of_the_runner() {
    let fixture = RunnerFixture::start().await;
    let mut job =
        fixture.server.plain_job(1, &["env | sort", "cat \"$KEY\"", "echo pwd=$PWD", "echo quoted \"$QUOTED\""]);
    let variables = job["variables"].as_array_mut().expect("variables");
    variables.extend([
        json!({"key": "WHO", "value": "nobody", "public": true}),
        json!({"key": "WHO", "value": "ann", "public": true}),
        json!({"key": "GREETING", "value": "hello ${WHO}, $UNSET.", "public": true}),
        json!({"key": "RAW", "value": "$WHO", "public": true, "raw": true}),
        json!({"key": "QUOTED", "value": "it's \"$$HOME\" `id`\nsecond", "public": false}),
        json!({"key": "KEY", "value": "the key\n", "public": false, "file": true}),
        json!({"key": "CI_SERVER", "value": "no", "public": true}),
    ]);
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    let text = reported.plain_trace();
    let root = fixture.folder.path().canonicalize().expect("there").join("runner/builds/1");
    for expected in [
        "\nWHO=ann\n",
        "\nGREETING=hello ann, .\n",
        "\nRAW=$WHO\n",
        "\nthe key\n",
        "\nCI_SERVER=yes\n",
        "\nCI_CONCURRENT_ID=0\n",
        "\nPATH=/usr/local/sbin:",
        "\nLANG=C.UTF-8\n",
        "\nquoted it's \"$HOME\" `id`\nsecond\n",
        &format!("\nCI_PROJECT_DIR={}/rocket\n", root.display()),
        &format!("\nCI_BUILDS_DIR={}\n", root.display()),
        &format!("\npwd={}/rocket\n", root.display()),
        &format!("\nHOME={}/.home\n", root.display()),
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    // Cargo sets such variables for every test.
    assert!(std::env::vars().any(|(key, _)| key.starts_with("CARGO")));
    for absent in ["CARGO", "GABLE", "TERM=", "USER=", "runner-token"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn the_token_is_neither_in_arguments_nor_in_files() {
    let fixture = RunnerFixture::start().await;
    let sha = fixture.server.repository("rocket", &[("a", "a")]);
    let script = [
        "cat .git/config",
        "git remote get-url origin",
        &must_fail("grep -r job-token .git $HOME"),
        "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $file || true; echo; done 2>/dev/null > arguments || true",
        &must_fail("grep -E '[j]ob-token|[r]unner-token' arguments"),
    ];
    let reported = fixture.server.run_to_end(fixture.server.job(1, "rocket", &sha, &script)).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(
        reported.plain_trace().contains(&format!("url = {}/rocket.git\n", fixture.server.url)),
        "{}",
        reported.plain_trace()
    );
    fixture.stop().await;
}

#[tokio::test]
async fn artifacts_pass_from_one_job_to_the_next() {
    let fixture = RunnerFixture::start().await;
    let sha = fixture.server.repository("rocket", &[("src", "x"), (".gitignore", "ignored\n")]);
    let mut build = fixture.server.job(
        1,
        "rocket",
        &sha,
        &[
            "mkdir -p out/deep && echo made > out/deep/file && echo '#!/bin/sh' > out/run && chmod 755 out/run",
            "ln -s deep/file out/link && ln -s /etc/passwd out/passwd && ln -s / out/root && touch out/x.log ignored",
        ],
    );
    build["artifacts"] = json!([{
        "name": "$CI_SERVER-files", "untracked": true, "paths": ["out/**", "../escape", "out/root/etc/passwd"],
        "exclude": ["**/*.log"], "when": "on_success", "expire_in": "1 week",
        "artifact_type": "archive", "artifact_format": "zip"
    }]);
    let reported = fixture.server.run_to_end(build).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    let (name, query, bytes) = reported.artifacts.clone().expect("artifacts");
    assert_eq!(
        (name.as_str(), query.as_str()),
        ("yes-files.zip", "expire_in=1+week&artifact_format=zip&artifact_type=archive")
    );
    let archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).expect("an archive");
    let mut names: Vec<String> = (0..archive.len())
        .filter_map(|index| archive.name_for_index(index).map(|name| name.expect("a name").into_owned()))
        .collect();
    names.sort();
    assert_eq!(names, ["ignored", "out/deep/file", "out/link", "out/run"]);
    let text = reported.plain_trace();
    assert!(text.contains("out/passwd: the link points outside the project"), "{text}");
    assert!(text.contains("../escape is outside the project"), "{text}");

    let script = ["cat out/link", "test -x out/run", "test ! -e out/passwd", "test ! -e out/x.log"];
    let mut next = fixture.server.job(2, "rocket", &sha, &script);
    next["dependencies"] = json!([
        {"id": 1, "name": "build", "token": "job-token-1", "artifacts_file": {"filename": "artifacts.zip", "size": 1}},
        {"id": 7, "name": "lint", "token": "job-token-7"},
    ]);
    let reported = fixture.server.run_to_end(next).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(reported.plain_trace().contains("Downloading artifacts of build (1)...\n"));
    fixture.stop().await;
}

#[tokio::test]
async fn artifacts_are_uploaded_depending_on_the_result() {
    let fixture = RunnerFixture::start().await;
    let artifact = |when: &str| json!([{"name": "", "paths": ["report"], "when": when}]);
    let cases = [
        ("exit 1", "on_success", false),
        ("exit 1", "on_failure", true),
        ("exit 1", "always", true),
        ("true", "on_failure", false),
        ("true", "", true),
    ];
    for (id, (end, when, expected)) in (1..).zip(cases) {
        let mut job = fixture.server.plain_job(id, &["echo x > report", end]);
        job["artifacts"] = artifact(when);
        let reported = fixture.server.run_to_end(job).await;
        assert_eq!(reported.artifacts.is_some(), expected, "{end} {when}: {}", reported.plain_trace());
    }
    let mut nothing = fixture.server.plain_job(9, &["true"]);
    nothing["artifacts"] = artifact("always");
    let reported = fixture.server.run_to_end(nothing).await;
    assert_eq!((reported.state.as_str(), reported.artifacts.is_none()), ("success", true));
    assert!(reported.plain_trace().contains("WARNING: no files found for report"), "{}", reported.plain_trace());
    fixture.server.set_max_artifacts_bytes(100);
    let mut large = fixture.server.plain_job(10, &["echo x > report"]);
    large["artifacts"] = artifact("always");
    let reported = fixture.server.run_to_end(large).await;
    assert_eq!((reported.state.as_str(), reported.reason.as_str()), ("failed", "runner_system_failure"));
    assert!(
        reported.plain_trace().contains("the artifacts are too large for the server"),
        "{}",
        reported.plain_trace()
    );
    fixture.stop().await;
}

#[tokio::test]
async fn a_cache_is_restored_for_later_jobs_of_the_same_project() {
    let fixture = RunnerFixture::start().await;
    let cache =
        |policy: &str| json!([{"key": "$WHO", "untracked": false, "paths": ["node_modules/"], "policy": policy}]);
    let job = |id: u64, project: u64, policy: &str, script: &[&str]| {
        let mut job = fixture.server.plain_job(id, script);
        job["cache"] = cache(policy);
        job["job_info"]["project_id"] = project.into();
        job
    };
    let reported =
        fixture.server.run_to_end(job(1, 1, "pull-push", &["mkdir node_modules; echo one > node_modules/a"])).await;
    assert!(reported.plain_trace().contains("Stored cache"), "{}", reported.plain_trace());
    let reported =
        fixture.server.run_to_end(job(2, 1, "pull", &["cat node_modules/a; echo two > node_modules/a"])).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    let reported = fixture.server.run_to_end(job(3, 1, "pull", &["grep one node_modules/a"])).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    let reported = fixture.server.run_to_end(job(4, 1, "push", &["test ! -e node_modules"])).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    let reported = fixture.server.run_to_end(job(5, 2, "pull-push", &["test ! -e node_modules"])).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    fixture.stop().await;
}

#[tokio::test]
async fn jobs_run_concurrently() {
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = runner::Isolation::None;
        options.concurrency = 2;
    })
    .await;
    let gate = fixture.folder.path().join("gate");
    // Each job waits for the other one.
    let wait = |mine: u64, other: u64| {
        format!(
            "touch {0}-{mine}; until [ -e {0}-{other} ]; do sleep 0.05; done; echo number $CI_CONCURRENT_ID",
            gate.display()
        )
    };
    for (mine, other) in [(1, 2), (2, 1)] {
        fixture.server.enqueue(fixture.server.plain_job(mine, &[&wait(mine, other)]));
    }
    let mut numbers = Vec::new();
    for id in [1, 2] {
        let reported = fixture.server.wait_for(id, |reported| reported.state == "success").await;
        let text = reported.plain_trace();
        let number = text.rsplit("\nnumber ").next().and_then(|rest| rest.lines().next()).map(ToOwned::to_owned);
        numbers.extend(number);
    }
    numbers.sort();
    assert_eq!(numbers, ["0", "1"]);
    fixture.stop().await;
}
