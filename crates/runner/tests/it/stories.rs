//! Jobs as they should go.

use serde_json::json;

use crate::{Working, must_fail};

#[tokio::test]
async fn a_job_succeeds_and_all_that_it_says_arrives_in_order() {
    let it = Working::start().await;
    let sha = it.server.repository("rocket", &[("greeting", "hello\n"), ("deep/er/file", "x")]);
    let script =
        ["cat greeting", "for i in $(seq 500); do echo line $i; echo error $i >&2; done", "test -f deep/er/file"];
    let seen = it.server.done(it.server.job(1, "rocket", &sha, &script)).await;
    assert_eq!((seen.state.as_str(), seen.exit_code), ("success", Some(0)), "{}", seen.plain());
    let all = (1..=500).fold(String::new(), |all, number| format!("{all}line {number}\nerror {number}\n"));
    let expected = format!(
        "Fetching changes...\nChecking out {} as detached HEAD (ref is main)...\n$ cat greeting\nhello\n\
         $ for i in $(seq 500); do echo line $i; echo error $i >&2; done\n{all}$ test -f deep/er/file\nJob succeeded\n",
        &sha[..8]
    );
    assert!(seen.plain().ends_with(&expected), "{}", seen.plain());
    assert!(seen.text().contains("\x1b[32;1m$ cat greeting\x1b[0;m\n"));
    it.end().await;
}

#[tokio::test]
async fn a_script_fails_with_its_code_and_the_after_script_runs_all_the_same() {
    let it = Working::start().await;
    let mut job = it.server.plain_job(1, &["echo before", "false | true", "exit 3", "echo never"]);
    job["steps"].as_array_mut().expect("steps").push(json!({
        "name": "after_script", "script": ["echo it was $CI_JOB_STATUS; exit 9"], "timeout": 3600,
        "when": "always", "allow_failure": true
    }));
    let seen = it.server.done(job).await;
    // The shell of this machine decides whether a pipe can fail.
    assert_eq!((seen.state.as_str(), seen.reason.as_str()), ("failed", "script_failure"));
    assert!(matches!(seen.exit_code, Some(1 | 3)), "{:?}", seen.exit_code);
    let text = seen.plain();
    assert!(text.contains("before\n") && !text.contains("never\n"), "{text}");
    assert!(text.contains("it was failed\n") && text.contains("after script failed: exit status 9"), "{text}");
    assert!(
        text.ends_with(&format!("ERROR: Job failed: exit status {}\n", seen.exit_code.unwrap_or_default())),
        "{text}"
    );
    it.end().await;
}

#[tokio::test]
async fn variables_reach_the_script_and_nothing_of_the_runner_does() {
    let it = Working::start().await;
    let mut job = it.server.plain_job(1, &["env | sort", "cat \"$KEY\"", "echo pwd=$PWD", "echo quoted \"$QUOTED\""]);
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
    let seen = it.server.done(job).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    let text = seen.plain();
    let root = it.folder.path().canonicalize().expect("there").join("runner/builds/1");
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
    // Cargo itself leaves its traces in the environment of every test.
    assert!(std::env::vars().any(|(key, _)| key.starts_with("CARGO")));
    for absent in ["CARGO", "GABLE", "TERM=", "USER=", "runner-token"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    it.end().await;
}

#[tokio::test]
async fn the_token_is_neither_in_arguments_nor_left_behind() {
    let it = Working::start().await;
    let sha = it.server.repository("rocket", &[("a", "a")]);
    let script = [
        "cat .git/config",
        "git remote get-url origin",
        &must_fail("grep -r job-token .git $HOME"),
        "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $file || true; echo; done 2>/dev/null > arguments || true",
        &must_fail("grep -E '[j]ob-token|[r]unner-token' arguments"),
    ];
    let seen = it.server.done(it.server.job(1, "rocket", &sha, &script)).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(seen.plain().contains(&format!("url = {}/rocket.git\n", it.server.url)), "{}", seen.plain());
    it.end().await;
}

#[tokio::test]
async fn artifacts_pass_from_one_job_to_the_next() {
    let it = Working::start().await;
    let sha = it.server.repository("rocket", &[("src", "x"), (".gitignore", "ignored\n")]);
    let mut build = it.server.job(
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
    let seen = it.server.done(build).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    let (name, query, bytes) = seen.artifacts.clone().expect("artifacts");
    assert_eq!(
        (name.as_str(), query.as_str()),
        ("yes-files.zip", "expire_in=1+week&artifact_format=zip&artifact_type=archive")
    );
    let archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).expect("an archive");
    let mut names: Vec<String> = (0..archive.len())
        .filter_map(|at| archive.name_for_index(at).map(|it| it.expect("a name").into_owned()))
        .collect();
    names.sort();
    assert_eq!(names, ["ignored", "out/deep/file", "out/link", "out/run"]);
    let text = seen.plain();
    assert!(text.contains("out/passwd: a link that leads out of the project"), "{text}");
    assert!(text.contains("../escape leads out of the project"), "{text}");

    let script = ["cat out/link", "test -x out/run", "test ! -e out/passwd", "test ! -e out/x.log"];
    let mut next = it.server.job(2, "rocket", &sha, &script);
    next["dependencies"] = json!([
        {"id": 1, "name": "build", "token": "job-token-1", "artifacts_file": {"filename": "artifacts.zip", "size": 1}},
        {"id": 7, "name": "lint", "token": "job-token-7"},
    ]);
    let seen = it.server.done(next).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(seen.plain().contains("Downloading artifacts of build (1)...\n"));
    it.end().await;
}

#[tokio::test]
async fn artifacts_are_wanted_or_not_by_how_the_job_ended() {
    let it = Working::start().await;
    let artifact = |when: &str| json!([{"name": "", "paths": ["report"], "when": when}]);
    let cases = [
        ("exit 1", "on_success", false),
        ("exit 1", "on_failure", true),
        ("exit 1", "always", true),
        ("true", "on_failure", false),
        ("true", "", true),
    ];
    for (id, (end, when, expected)) in (1..).zip(cases) {
        let mut job = it.server.plain_job(id, &["echo x > report", end]);
        job["artifacts"] = artifact(when);
        let seen = it.server.done(job).await;
        assert_eq!(seen.artifacts.is_some(), expected, "{end} {when}: {}", seen.plain());
    }
    let mut nothing = it.server.plain_job(9, &["true"]);
    nothing["artifacts"] = artifact("always");
    let seen = it.server.done(nothing).await;
    assert_eq!((seen.state.as_str(), seen.artifacts.is_none()), ("success", true));
    assert!(seen.plain().contains("WARNING: no files found for report"), "{}", seen.plain());
    it.server.set_largest_artifacts(100);
    let mut large = it.server.plain_job(10, &["echo x > report"]);
    large["artifacts"] = artifact("always");
    let seen = it.server.done(large).await;
    assert_eq!((seen.state.as_str(), seen.reason.as_str()), ("failed", "runner_system_failure"));
    assert!(seen.plain().contains("the artifacts are too large for the server"), "{}", seen.plain());
    it.end().await;
}

#[tokio::test]
async fn a_cache_is_there_for_the_next_job_of_the_project_only() {
    let it = Working::start().await;
    let cache =
        |policy: &str| json!([{"key": "$WHO", "untracked": false, "paths": ["node_modules/"], "policy": policy}]);
    let job = |id: u64, project: u64, policy: &str, script: &[&str]| {
        let mut job = it.server.plain_job(id, script);
        job["cache"] = cache(policy);
        job["job_info"]["project_id"] = project.into();
        job
    };
    let seen = it.server.done(job(1, 1, "pull-push", &["mkdir node_modules; echo one > node_modules/a"])).await;
    assert!(seen.plain().contains("is kept"), "{}", seen.plain());
    let seen = it.server.done(job(2, 1, "pull", &["cat node_modules/a; echo two > node_modules/a"])).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    let seen = it.server.done(job(3, 1, "pull", &["grep one node_modules/a"])).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    let seen = it.server.done(job(4, 1, "push", &["test ! -e node_modules"])).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    let seen = it.server.done(job(5, 2, "pull-push", &["test ! -e node_modules"])).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    it.end().await;
}

#[tokio::test]
async fn several_jobs_run_at_once() {
    let it = Working::with(|options| {
        options.isolation = runner::Isolation::None;
        options.concurrency = 2;
    })
    .await;
    let gate = it.folder.path().join("gate");
    // Each waits for what the other one does.
    let wait = |mine: u64, other: u64| {
        format!(
            "touch {0}-{mine}; until [ -e {0}-{other} ]; do sleep 0.05; done; echo number $CI_CONCURRENT_ID",
            gate.display()
        )
    };
    for (mine, other) in [(1, 2), (2, 1)] {
        it.server.enqueue(it.server.plain_job(mine, &[&wait(mine, other)]));
    }
    let mut numbers = Vec::new();
    for id in [1, 2] {
        let seen = it.server.until(id, |seen| seen.state == "success").await;
        let text = seen.plain();
        let number = text.rsplit("\nnumber ").next().and_then(|rest| rest.lines().next()).map(ToOwned::to_owned);
        numbers.extend(number);
    }
    numbers.sort();
    assert_eq!(numbers, ["0", "1"]);
    it.end().await;
}
