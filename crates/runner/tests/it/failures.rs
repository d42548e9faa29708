//! Failing jobs and unavailable servers.

use std::{fs, io::Write as _, path::Path, time::Duration};

use runner::Isolation;
use serde_json::json;
use zip::write::SimpleFileOptions;

use crate::RunnerFixture;

/// Returns whether a process is running and not a zombie.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

async fn wait_until_gone(pids: &[String]) {
    let ended = async {
        while pids.iter().any(|pid| is_running(pid)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("all processes end");
}

/// A script that starts one child in another session and one in its own group, and prints their process ids.
const SPAWN_CHILDREN: &str =
    "setsid sleep 1000 > /dev/null 2>&1 & echo pid $!; sleep 1000 & echo pid $!; echo ready; wait";

fn pids(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("pid ")).map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn a_job_over_its_timeout_fails_with_that_reason() {
    let fixture = RunnerFixture::start().await;
    let mut job = fixture.server.plain_job(1, &[SPAWN_CHILDREN]);
    job["runner_info"]["timeout"] = 5.into();
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(
        (reported.state.as_str(), reported.reason.as_str()),
        ("failed", "job_execution_timeout"),
        "{}",
        reported.plain_trace()
    );
    assert!(
        reported.plain_trace().ends_with("ERROR: Job failed: execution took longer than 5 seconds\n"),
        "{}",
        reported.plain_trace()
    );
    assert_eq!(pids(&reported.plain_trace()).len(), 2);
    wait_until_gone(&pids(&reported.plain_trace())).await;
    let mut job = fixture.server.plain_job(2, &["sleep 1000"]);
    job["steps"][0]["timeout"] = 1.into();
    assert_eq!(fixture.server.run_to_end(job).await.reason, "job_execution_timeout");
    fixture.stop().await;
}

#[tokio::test]
async fn a_canceled_job_is_killed_with_all_its_processes() {
    let fixture = RunnerFixture::start().await;
    fixture.server.enqueue(fixture.server.plain_job(1, &[SPAWN_CHILDREN, "echo never"]));
    let reported = fixture.server.wait_for(1, |reported| reported.plain_trace().contains("\nready\n")).await;
    let pids = pids(&reported.plain_trace());
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_running(pid)));
    fixture.server.cancel(1);
    wait_until_gone(&pids).await;
    assert_eq!(fixture.server.reported_job(1).expect("known").state, "canceled");
    // The runner still takes other jobs.
    assert_eq!(fixture.server.run_to_end(fixture.server.plain_job(2, &["true"])).await.state, "success");
    fixture.stop().await;
}

#[tokio::test]
async fn a_job_unknown_to_the_server_is_killed() {
    let fixture = RunnerFixture::start().await;
    fixture.server.enqueue(fixture.server.plain_job(1, &[SPAWN_CHILDREN]));
    let reported = fixture.server.wait_for(1, |reported| reported.plain_trace().contains("\nready\n")).await;
    fixture.server.revoke_token(1);
    wait_until_gone(&pids(&reported.plain_trace())).await;
    assert_eq!(fixture.server.run_to_end(fixture.server.plain_job(2, &["true"])).await.state, "success");
    fixture.stop().await;
}

#[tokio::test]
async fn a_job_that_is_sent_twice_runs_once() {
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::None;
        options.concurrency = 2;
    })
    .await;
    let go = fixture.folder.path().join("go");
    let script = format!("echo begun; until [ -e {} ]; do sleep 0.05; done", go.display());
    let job = fixture.server.plain_job(1, &[&script]);
    fixture.server.enqueue(job.clone());
    fixture.server.wait_for(1, |reported| reported.plain_trace().contains("\nbegun\n")).await;
    fixture.server.enqueue(job);
    // The next job shows that the duplicate was received.
    assert_eq!(fixture.server.run_to_end(fixture.server.plain_job(2, &["true"])).await.state, "success");
    fs::write(go, "").expect("written");
    fixture.server.wait_for(1, |reported| reported.state == "success").await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_job_without_output_sends_keep_alives() {
    let fixture = RunnerFixture::start().await;
    let go = fixture.folder.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    fixture.server.enqueue(fixture.server.plain_job(1, &[&script]));
    fixture.server.wait_for(1, |reported| reported.keep_alives >= 3).await;
    fs::write(go, "").expect("written");
    fixture.server.wait_for(1, |reported| reported.state == "success").await;
    fixture.stop().await;
}

#[tokio::test]
async fn output_beyond_the_limit_is_truncated() {
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::None;
        options.limits.output = 10_000;
    })
    .await;
    let done = fixture.folder.path().join("done");
    let script = format!("head -c 1000000 /dev/zero | tr '\\0' y; echo here > {}", done.display());
    let reported = fixture.server.run_to_end(fixture.server.plain_job(1, &[&script])).await;
    assert_eq!(reported.state, "success");
    assert!(reported.trace.len() < 10_200, "{}", reported.trace.len());
    assert!(
        reported.plain_trace().ends_with("The output exceeds 10000 bytes and is truncated here; the job continues.\n")
    );
    assert_eq!(fs::read_to_string(done).expect("done"), "here\n");
    fixture.stop().await;
}

#[tokio::test]
async fn a_job_with_endless_output_can_be_canceled() {
    let fixture = RunnerFixture::start().await;
    fixture.server.enqueue(fixture.server.plain_job(1, &["echo pid $$; yes"]));
    let reported = fixture.server.wait_for(1, |reported| reported.trace.len() > 100_000).await;
    fixture.server.cancel(1);
    wait_until_gone(&pids(&reported.plain_trace())).await;
    fixture.stop().await;
}

#[tokio::test]
async fn nothing_is_lost_while_the_server_is_unavailable() {
    let fixture = RunnerFixture::start().await;
    let go = fixture.folder.path().join("go");
    let script = format!("echo begun; until [ -e {} ]; do sleep 0.05; done; seq 1000", go.display());
    let mut job = fixture.server.plain_job(1, &[&script]);
    job["artifacts"] = json!([{"paths": ["*"], "untracked": false}]);
    job["steps"][0]["script"].as_array_mut().expect("lines").push("touch left-behind".into());
    fixture.server.enqueue(job);
    fixture.server.wait_for(1, |reported| reported.plain_trace().contains("\nbegun\n")).await;
    fixture.server.set_unavailable(true);
    fs::write(go, "").expect("written");
    // The job ends while the server is unavailable.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(fixture.server.reported_job(1).expect("known").state, "running");
    fixture.server.set_unavailable(false);
    let reported = fixture.server.wait_for(1, |reported| reported.state == "success").await;
    let numbers = (1..=1000).fold(String::new(), |all, number| format!("{all}{number}\n"));
    assert!(reported.plain_trace().contains(&format!("\nbegun\n{numbers}$ touch")), "{}", reported.plain_trace());
    assert!(reported.artifacts.is_some());
    fixture.stop().await;
}

#[tokio::test]
async fn a_chunk_whose_response_is_lost_is_not_sent_twice() {
    let fixture = RunnerFixture::start().await;
    fixture.server.lose_responses(3);
    let script = "for i in $(seq 40); do echo line $i; sleep 0.02; done";
    let reported = fixture.server.run_to_end(fixture.server.plain_job(1, &[script])).await;
    assert_eq!(fixture.server.responses_left_to_lose(), 0);
    let numbers = (1..=40).fold(String::new(), |all, number| format!("{all}line {number}\n"));
    assert!(reported.plain_trace().contains(&numbers), "{}", reported.plain_trace());
    assert_eq!(reported.plain_trace().matches("line 17\n").count(), 1);
    fixture.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_jobs_and_then_terminates_them() {
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::None;
        options.concurrency = 2;
        options.grace_period = Duration::from_secs(6);
    })
    .await;
    let go = fixture.folder.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    fixture.server.enqueue(fixture.server.plain_job(1, &[&script]));
    fixture.server.enqueue(fixture.server.plain_job(2, &[SPAWN_CHILDREN]));
    fixture.server.wait_for(1, |reported| reported.plain_trace().contains("$ until")).await;
    let reported = fixture.server.wait_for(2, |reported| reported.plain_trace().contains("\nready\n")).await;
    fixture.request_stop();
    fs::write(go, "").expect("written");
    fixture.server.enqueue(fixture.server.plain_job(3, &["true"]));
    fixture.server.wait_for(1, |reported| reported.state == "success").await;
    let ended = fixture.server.wait_for(2, |reported| reported.state != "running").await;
    assert_eq!((ended.state.as_str(), ended.reason.as_str()), ("failed", "runner_system_failure"));
    assert!(ended.plain_trace().ends_with("the runner was stopped\n"), "{}", ended.plain_trace());
    wait_until_gone(&pids(&reported.plain_trace())).await;
    assert!(fixture.server.reported_job(3).is_none());
    fixture.stop().await;
}

fn archive(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in entries {
        if let Some(target) = content.strip_prefix("-> ") {
            writer.add_symlink(*name, target, SimpleFileOptions::default()).expect("linked");
            continue;
        }
        writer.start_file(*name, SimpleFileOptions::default()).expect("begun");
        writer.write_all(content.as_bytes()).expect("written");
    }
    writer.finish().expect("finished").into_inner()
}

#[tokio::test]
async fn hostile_artifacts_fail_the_job() {
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::None;
        options.limits.unpacked = 1 << 20;
        options.limits.archive = 1 << 19;
    })
    .await;
    let outside = fixture.folder.path().join("outside");
    fs::create_dir(&outside).expect("made");
    let sha = fixture.server.repository("rocket", &[("way", &format!("-> {}", outside.display()))]);
    let bomb = "0".repeat(2 << 20);
    let archives = [
        (archive(&[("../../../x", "x")]), "points outside"),
        (archive(&[("link", "-> /etc")]), "points outside"),
        (archive(&[("way/x", "x")]), "cannot unpack"),
        (archive(&[(".git/config", "x")]), "belongs to git"),
        (archive(&[("bomb", &bomb)]), "too large"),
        (vec![b' '; 1 << 20], "larger than 524288 bytes"),
        (b"not an archive".to_vec(), "not a zip archive"),
    ];
    for (id, (bytes, expected)) in (1..).zip(archives) {
        fixture.server.store_artifacts(100, "t", bytes);
        let mut job = fixture.server.job(id, "rocket", &sha, &["echo never"]);
        job["dependencies"] =
            json!([{"id": 100, "name": "evil", "token": "t", "artifacts_file": {"filename": "a.zip", "size": 1}}]);
        let reported = fixture.server.run_to_end(job).await;
        let text = reported.plain_trace();
        assert_eq!((reported.state.as_str(), reported.reason.as_str()), ("failed", "runner_system_failure"), "{text}");
        assert!(text.contains(expected) && !text.contains("never"), "{expected}: {text}");
    }
    assert_eq!(fs::read_dir(outside).expect("read").count(), 0);
    fixture.stop().await;
}

#[tokio::test]
async fn a_failed_fetch_is_a_system_failure() {
    let fixture = RunnerFixture::start().await;
    let sha = fixture.server.repository("rocket", &[("a", "a")]);
    let mut unknown = fixture.server.job(1, "rocket", &"1".repeat(40), &["echo never"]);
    unknown["git_info"]["refspecs"] = json!(["+refs/heads/gone:refs/remotes/origin/gone"]);
    let mut closed = fixture.server.job(2, "rocket", &sha, &["echo never"]);
    closed["git_info"]["repo_url"] = format!("{}/rocket.git", fixture.server.url).into();
    let mut program = fixture.server.job(3, "rocket", &sha, &["echo never"]);
    program["git_info"]["repo_url"] = "ext::sh -c touch% evil".into();
    let mut option = fixture.server.job(4, "rocket", &sha, &["echo never"]);
    option["git_info"]["refspecs"] = json!(["--upload-pack=touch evil"]);
    for job in [unknown, closed, program, option] {
        let reported = fixture.server.run_to_end(job).await;
        assert_eq!(
            (reported.state.as_str(), reported.reason.as_str()),
            ("failed", "runner_system_failure"),
            "{}",
            reported.plain_trace()
        );
        assert!(
            !reported.plain_trace().contains("never") && !reported.plain_trace().contains("job-token"),
            "{}",
            reported.plain_trace()
        );
    }
    fixture.stop().await;
}

#[tokio::test]
async fn hooks_and_settings_of_a_repository_run_no_program() {
    let fixture = RunnerFixture::start().await;
    let sha = fixture.server.repository(
        "rocket",
        &[
            (".gitattributes", "* filter=evil\n"),
            (".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c touch% evil\n"),
        ],
    );
    let mut job =
        fixture.server.job(1, "rocket", &sha, &["test ! -e evil", "ls .git/hooks 2>/dev/null || echo no hooks"]);
    job["variables"] = json!([{"key": "GIT_SUBMODULE_STRATEGY", "value": "recursive", "public": true}]);
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(reported.plain_trace().contains("\nno hooks\n"), "{}", reported.plain_trace());
    fixture.stop().await;
}

#[tokio::test]
async fn leftovers_of_a_killed_runner_are_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let builds = folder.path().canonicalize().expect("there").join("runner/builds");
    fs::create_dir_all(builds.join("7/rocket")).expect("made");
    let mut left = std::process::Command::new("sleep");
    let mut left = left.arg("1000").env("CI_BUILDS_DIR", builds.join("7")).spawn().expect("started");
    let path = folder.path().join("runner");
    let fixture = RunnerFixture::start_with(move |options| {
        options.isolation = Isolation::None;
        options.folder = path;
    })
    .await;
    assert_eq!(fixture.server.run_to_end(fixture.server.plain_job(1, &["true"])).await.state, "success");
    assert!(!left.wait().expect("ended").success());
    assert!(!builds.join("7").exists() && Path::new(&builds).exists());
    fixture.request_stop();
}
