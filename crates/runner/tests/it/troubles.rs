//! Jobs that do not go well, and servers that are not there.

use std::{fs, io::Write as _, path::Path, time::Duration};

use runner::Isolation;
use serde_json::json;
use zip::write::SimpleFileOptions;

use crate::Working;

/// Whether a process is there and not merely waiting to be reaped.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

async fn gone(pids: &[String]) {
    let ended = async {
        while pids.iter().any(|pid| lives(pid)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("all of them end");
}

/// A script that leaves its group with one child and keeps another one; both tell their numbers.
const FAMILY: &str = "setsid sleep 1000 > /dev/null 2>&1 & echo pid $!; sleep 1000 & echo pid $!; echo ready; wait";

fn pids(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("pid ")).map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn a_job_that_takes_too_long_fails_with_that_reason() {
    let it = Working::start().await;
    let mut job = it.server.plain_job(1, &[FAMILY]);
    job["runner_info"]["timeout"] = 5.into();
    let seen = it.server.done(job).await;
    assert_eq!((seen.state.as_str(), seen.reason.as_str()), ("failed", "job_execution_timeout"), "{}", seen.plain());
    assert!(seen.plain().ends_with("ERROR: Job failed: execution took longer than 5 seconds\n"), "{}", seen.plain());
    assert_eq!(pids(&seen.plain()).len(), 2);
    gone(&pids(&seen.plain())).await;
    let mut job = it.server.plain_job(2, &["sleep 1000"]);
    job["steps"][0]["timeout"] = 1.into();
    assert_eq!(it.server.done(job).await.reason, "job_execution_timeout");
    it.end().await;
}

#[tokio::test]
async fn a_canceled_job_ends_at_once_with_all_that_it_has_started() {
    let it = Working::start().await;
    it.server.enqueue(it.server.plain_job(1, &[FAMILY, "echo never"]));
    let seen = it.server.until(1, |seen| seen.plain().contains("\nready\n")).await;
    let pids = pids(&seen.plain());
    assert!(pids.len() == 2 && pids.iter().all(|pid| lives(pid)));
    it.server.cancel(1);
    gone(&pids).await;
    assert_eq!(it.server.seen(1).expect("known").state, "canceled");
    // The next one is taken as if nothing had happened.
    assert_eq!(it.server.done(it.server.plain_job(2, &["true"])).await.state, "success");
    it.end().await;
}

#[tokio::test]
async fn a_job_that_the_server_does_not_know_any_more_is_ended() {
    let it = Working::start().await;
    it.server.enqueue(it.server.plain_job(1, &[FAMILY]));
    let seen = it.server.until(1, |seen| seen.plain().contains("\nready\n")).await;
    it.server.forget(1);
    gone(&pids(&seen.plain())).await;
    assert_eq!(it.server.done(it.server.plain_job(2, &["true"])).await.state, "success");
    it.end().await;
}

#[tokio::test]
async fn a_job_that_is_handed_out_twice_is_done_once() {
    let it = Working::with(|options| {
        options.isolation = Isolation::None;
        options.concurrency = 2;
    })
    .await;
    let go = it.folder.path().join("go");
    let script = format!("echo begun; until [ -e {} ]; do sleep 0.05; done", go.display());
    let job = it.server.plain_job(1, &[&script]);
    it.server.enqueue(job.clone());
    it.server.until(1, |seen| seen.plain().contains("\nbegun\n")).await;
    it.server.enqueue(job);
    // The one after it shows that it was taken.
    assert_eq!(it.server.done(it.server.plain_job(2, &["true"])).await.state, "success");
    fs::write(go, "").expect("written");
    it.server.until(1, |seen| seen.state == "success").await;
    it.end().await;
}

#[tokio::test]
async fn a_quiet_job_gives_signs_of_life() {
    let it = Working::start().await;
    let go = it.folder.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    it.server.enqueue(it.server.plain_job(1, &[&script]));
    it.server.until(1, |seen| seen.touched >= 3).await;
    fs::write(go, "").expect("written");
    it.server.until(1, |seen| seen.state == "success").await;
    it.end().await;
}

#[tokio::test]
async fn output_beyond_the_limit_is_cut_and_the_job_goes_on() {
    let it = Working::with(|options| {
        options.isolation = Isolation::None;
        options.limits.output = 10_000;
    })
    .await;
    let done = it.folder.path().join("done");
    let script = format!("head -c 1000000 /dev/zero | tr '\\0' y; echo here > {}", done.display());
    let seen = it.server.done(it.server.plain_job(1, &[&script])).await;
    assert_eq!(seen.state, "success");
    assert!(seen.trace.len() < 10_200, "{}", seen.trace.len());
    assert!(seen.plain().ends_with("The output was longer than 10000 bytes and is cut here; the job goes on.\n"));
    assert_eq!(fs::read_to_string(done).expect("done"), "here\n");
    it.end().await;
}

#[tokio::test]
async fn a_job_that_never_stops_talking_can_be_canceled() {
    let it = Working::start().await;
    it.server.enqueue(it.server.plain_job(1, &["echo pid $$; yes"]));
    let seen = it.server.until(1, |seen| seen.trace.len() > 100_000).await;
    it.server.cancel(1);
    gone(&pids(&seen.plain())).await;
    it.end().await;
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_loses_nothing() {
    let it = Working::start().await;
    let go = it.folder.path().join("go");
    let script = format!("echo begun; until [ -e {} ]; do sleep 0.05; done; seq 1000", go.display());
    let mut job = it.server.plain_job(1, &[&script]);
    job["artifacts"] = json!([{"paths": ["*"], "untracked": false}]);
    job["steps"][0]["script"].as_array_mut().expect("lines").push("touch left-behind".into());
    it.server.enqueue(job);
    it.server.until(1, |seen| seen.plain().contains("\nbegun\n")).await;
    it.server.set_away(true);
    fs::write(go, "").expect("written");
    // The job ends while nobody listens.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(it.server.seen(1).expect("known").state, "running");
    it.server.set_away(false);
    let seen = it.server.until(1, |seen| seen.state == "success").await;
    let numbers = (1..=1000).fold(String::new(), |all, number| format!("{all}{number}\n"));
    assert!(seen.plain().contains(&format!("\nbegun\n{numbers}$ touch")), "{}", seen.plain());
    assert!(seen.artifacts.is_some());
    it.end().await;
}

#[tokio::test]
async fn a_piece_whose_answer_was_lost_is_not_sent_twice() {
    let it = Working::start().await;
    it.server.lose_answers(3);
    let script = "for i in $(seq 40); do echo line $i; sleep 0.02; done";
    let seen = it.server.done(it.server.plain_job(1, &[script])).await;
    assert_eq!(it.server.answers_to_lose(), 0);
    let numbers = (1..=40).fold(String::new(), |all, number| format!("{all}line {number}\n"));
    assert!(seen.plain().contains(&numbers), "{}", seen.plain());
    assert_eq!(seen.plain().matches("line 17\n").count(), 1);
    it.end().await;
}

#[tokio::test]
async fn a_stop_lets_jobs_end_and_then_ends_them() {
    let it = Working::with(|options| {
        options.isolation = Isolation::None;
        options.concurrency = 2;
        options.grace = Duration::from_secs(6);
    })
    .await;
    let go = it.folder.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    it.server.enqueue(it.server.plain_job(1, &[&script]));
    it.server.enqueue(it.server.plain_job(2, &[FAMILY]));
    it.server.until(1, |seen| seen.plain().contains("$ until")).await;
    let seen = it.server.until(2, |seen| seen.plain().contains("\nready\n")).await;
    it.tell_to_stop();
    fs::write(go, "").expect("written");
    it.server.enqueue(it.server.plain_job(3, &["true"]));
    it.server.until(1, |seen| seen.state == "success").await;
    let ended = it.server.until(2, |seen| seen.state != "running").await;
    assert_eq!((ended.state.as_str(), ended.reason.as_str()), ("failed", "runner_system_failure"));
    assert!(ended.plain().ends_with("the runner was stopped\n"), "{}", ended.plain());
    gone(&pids(&seen.plain())).await;
    assert!(it.server.seen(3).is_none());
    it.end().await;
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
async fn artifacts_that_lead_outside_or_are_bombs_fail_the_job() {
    let it = Working::with(|options| {
        options.isolation = Isolation::None;
        options.limits.unpacked = 1 << 20;
        options.limits.archive = 1 << 19;
    })
    .await;
    let outside = it.folder.path().join("outside");
    fs::create_dir(&outside).expect("made");
    let sha = it.server.repository("rocket", &[("way", &format!("-> {}", outside.display()))]);
    let bomb = "0".repeat(2 << 20);
    let archives = [
        (archive(&[("../../../x", "x")]), "leads outside"),
        (archive(&[("link", "-> /etc")]), "leads outside"),
        (archive(&[("way/x", "x")]), "cannot unpack"),
        (archive(&[(".git/config", "x")]), "belongs to git"),
        (archive(&[("bomb", &bomb)]), "too large"),
        (vec![b' '; 1 << 20], "larger than 524288 bytes"),
        (b"no archive".to_vec(), "no archive"),
    ];
    for (id, (bytes, words)) in (1..).zip(archives) {
        it.server.store_artifacts(100, "t", bytes);
        let mut job = it.server.job(id, "rocket", &sha, &["echo never"]);
        job["dependencies"] =
            json!([{"id": 100, "name": "evil", "token": "t", "artifacts_file": {"filename": "a.zip", "size": 1}}]);
        let seen = it.server.done(job).await;
        let text = seen.plain();
        assert_eq!((seen.state.as_str(), seen.reason.as_str()), ("failed", "runner_system_failure"), "{text}");
        assert!(text.contains(words) && !text.contains("never"), "{words}: {text}");
    }
    assert_eq!(fs::read_dir(outside).expect("read").count(), 0);
    it.end().await;
}

#[tokio::test]
async fn what_cannot_be_fetched_is_a_failure_of_the_system() {
    let it = Working::start().await;
    let sha = it.server.repository("rocket", &[("a", "a")]);
    let mut unknown = it.server.job(1, "rocket", &"1".repeat(40), &["echo never"]);
    unknown["git_info"]["refspecs"] = json!(["+refs/heads/gone:refs/remotes/origin/gone"]);
    let mut closed = it.server.job(2, "rocket", &sha, &["echo never"]);
    closed["git_info"]["repo_url"] = format!("{}/rocket.git", it.server.url).into();
    let mut program = it.server.job(3, "rocket", &sha, &["echo never"]);
    program["git_info"]["repo_url"] = "ext::sh -c touch% evil".into();
    let mut option = it.server.job(4, "rocket", &sha, &["echo never"]);
    option["git_info"]["refspecs"] = json!(["--upload-pack=touch evil"]);
    for job in [unknown, closed, program, option] {
        let seen = it.server.done(job).await;
        assert_eq!(
            (seen.state.as_str(), seen.reason.as_str()),
            ("failed", "runner_system_failure"),
            "{}",
            seen.plain()
        );
        assert!(!seen.plain().contains("never") && !seen.plain().contains("job-token"), "{}", seen.plain());
    }
    it.end().await;
}

#[tokio::test]
async fn hooks_and_settings_of_a_repository_start_nothing() {
    let it = Working::start().await;
    let sha = it.server.repository(
        "rocket",
        &[
            (".gitattributes", "* filter=evil\n"),
            (".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c touch% evil\n"),
        ],
    );
    let mut job = it.server.job(1, "rocket", &sha, &["test ! -e evil", "ls .git/hooks 2>/dev/null || echo no hooks"]);
    job["variables"] = json!([{"key": "GIT_SUBMODULE_STRATEGY", "value": "recursive", "public": true}]);
    let seen = it.server.done(job).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(seen.plain().contains("\nno hooks\n"), "{}", seen.plain());
    it.end().await;
}

#[tokio::test]
async fn what_a_killed_runner_left_behind_is_cleared_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let builds = folder.path().canonicalize().expect("there").join("runner/builds");
    fs::create_dir_all(builds.join("7/rocket")).expect("made");
    let mut left = std::process::Command::new("sleep");
    let mut left = left.arg("1000").env("CI_BUILDS_DIR", builds.join("7")).spawn().expect("started");
    let path = folder.path().join("runner");
    let it = Working::with(move |options| {
        options.isolation = Isolation::None;
        options.folder = path;
    })
    .await;
    assert_eq!(it.server.done(it.server.plain_job(1, &["true"])).await.state, "success");
    assert!(!left.wait().expect("ended").success());
    assert!(!builds.join("7").exists() && Path::new(&builds).exists());
    it.tell_to_stop();
}
