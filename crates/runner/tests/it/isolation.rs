//! What keeps jobs from the rest of the machine.

use std::fs;

use runner::Isolation;
use serde_json::json;

use crate::{Working, must_fail};

/// Whether bubblewrap works here.
fn bubblewrap() -> bool {
    let walls = ["--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"];
    let works = std::process::Command::new("bwrap").args(walls).output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: bubblewrap does not work here");
    }
    works
}

#[tokio::test]
async fn a_job_in_bubblewrap_sees_only_its_own_folder() {
    if !bubblewrap() {
        return;
    }
    let it = Working::with(|options| options.isolation = Isolation::Bubblewrap).await;
    let secret = it.folder.path().join("secret");
    fs::write(&secret, "s3cret").expect("written");
    let sha = it.server.repository("rocket", &[("a", "a\n")]);
    let script = [
        "cat a && echo b > b && test -w $HOME".to_owned(),
        format!("test ! -e {}", secret.display()),
        "test \"$(ls $CI_BUILDS_DIR/.. | wc -l)\" = 1".to_owned(),
        "test \"$(ls -d /proc/[0-9]* | wc -l)\" -lt 10".to_owned(),
        must_fail("touch /usr/evil"),
        must_fail("cat /etc/shadow"),
        // Nothing is written, only asked whether it could be.
        must_fail("(exec 3>>/proc/sys/kernel/core_pattern)"),
        must_fail("(exec 3>>/proc/sysrq-trigger)"),
        "test -z \"$(ls -A /root; ls -A /home)\"".to_owned(),
        must_fail("mv $CI_BUILDS_DIR/.tmp $CI_BUILDS_DIR/other"),
        must_fail("touch $CI_BUILDS_DIR/.tmp/x"),
        "cat $KEY".to_owned(),
        "exit 5".to_owned(),
    ];
    let script: Vec<&str> = script.iter().map(String::as_str).collect();
    let mut job = it.server.job(1, "rocket", &sha, &script);
    // What a program outside would do if it saw this.
    let evil = it.folder.path().join("evil.so");
    job["variables"] = json!([
        {"key": "LD_PRELOAD", "value": evil.display().to_string(), "public": true},
        {"key": "KEY", "value": "the key", "public": false, "file": true},
    ]);
    let seen = it.server.done(job).await;
    assert_eq!((seen.reason.as_str(), seen.exit_code), ("script_failure", Some(5)), "{}", seen.plain());
    assert!(seen.plain().contains("\nthe key"), "{}", seen.plain());
    it.end().await;
}

#[tokio::test]
async fn a_job_in_bubblewrap_ends_with_all_that_it_has_started() {
    if !bubblewrap() {
        return;
    }
    let it = Working::with(|options| options.isolation = Isolation::Bubblewrap).await;
    let mark = format!("100{}", std::process::id());
    let script = format!("(setsid sleep {mark} &) ; sleep {mark} & echo ready; wait");
    it.server.enqueue(it.server.plain_job(1, &[&script]));
    it.server.until(1, |seen| seen.plain().contains("\nready\n")).await;
    it.server.cancel(1);
    let there = || {
        fs::read_dir("/proc").expect("read").flatten().any(|entry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|words| words == format!("sleep\0{mark}\0").into_bytes())
        })
    };
    let ended = async {
        while there() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), ended).await.expect("all of them end");
    it.end().await;
}

#[tokio::test]
async fn a_job_runs_as_another_user_if_root_wants_it() {
    let root = fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0);
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    if !root || !passwd.lines().any(|line| line.starts_with("nobody:")) {
        eprintln!("skipped: this needs root and a user nobody");
        return;
    }
    let it = Working::with(|options| {
        options.isolation = Isolation::User;
        options.run_as = Some("nobody".to_owned());
    })
    .await;
    let sha = it.server.repository("rocket", &[("a", "a\n")]);
    let script = [
        "id -un && id -G && test -O a && test -O . && test -O $HOME && cat $KEY",
        &must_fail("touch $CI_BUILDS_DIR/.tmp/x"),
        &must_fail("mv $CI_PROJECT_DIR $CI_BUILDS_DIR/other"),
        &must_fail("ls $CI_BUILDS_DIR/../../private"),
        "mkdir out && echo x > out/x",
    ];
    let mut job = it.server.job(1, "rocket", &sha, &script);
    job["variables"] = json!([{"key": "KEY", "value": "the key", "public": false, "file": true}]);
    job["artifacts"] = json!([{"paths": ["out"], "when": "always"}]);
    let seen = it.server.done(job).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(seen.plain().contains("\nnobody\n") && seen.artifacts.is_some(), "{}", seen.plain());
    let groups = seen.plain().lines().skip_while(|line| *line != "nobody").nth(1).map(|line| line.split(' ').count());
    assert_eq!(groups, Some(1), "{}", seen.plain());
    let mut next = it.server.job(2, "rocket", &sha, &["test -O out && test -O out/x && rm out/x"]);
    next["dependencies"] =
        json!([{"id": 1, "name": "one", "token": "job-token-1", "artifacts_file": {"filename": "a.zip", "size": 1}}]);
    let seen = it.server.done(next).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    it.end().await;
}
