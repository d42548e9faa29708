//! Isolation of jobs from the rest of the machine.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use runner::{Isolation, Network, Options};
use serde_json::json;

use crate::{RunnerFixture, must_fail};

/// Returns whether bubblewrap works on this machine.
fn has_bubblewrap() -> bool {
    let arguments = ["--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"];
    let works =
        std::process::Command::new("bwrap").args(arguments).output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: bubblewrap does not work here");
    }
    works
}

#[tokio::test]
async fn a_job_in_bubblewrap_sees_only_its_own_folder() {
    if !has_bubblewrap() {
        return;
    }
    let fixture = RunnerFixture::start_with(|options| options.isolation = Isolation::Bubblewrap).await;
    let secret = fixture.folder.path().join("secret");
    fs::write(&secret, "s3cret").expect("written");
    let sha = fixture.server.repository("rocket", &[("a", "a\n")]);
    let script = [
        "cat a && echo b > b && test -w $HOME".to_owned(),
        format!("test ! -e {}", secret.display()),
        "test \"$(ls $CI_BUILDS_DIR/.. | wc -l)\" = 1".to_owned(),
        "test \"$(ls -d /proc/[0-9]* | wc -l)\" -lt 10".to_owned(),
        must_fail("touch /usr/evil"),
        must_fail("cat /etc/shadow"),
        // Only opened for writing, never written.
        must_fail("(exec 3>>/proc/sys/kernel/core_pattern)"),
        must_fail("(exec 3>>/proc/sysrq-trigger)"),
        "test -z \"$(ls -A /root; ls -A /home)\"".to_owned(),
        must_fail("mv $CI_BUILDS_DIR/.tmp $CI_BUILDS_DIR/other"),
        must_fail("touch $CI_BUILDS_DIR/.tmp/x"),
        // The environments of the runner, the server and other jobs.
        must_fail("cat /proc/*/environ | tr '\\0' '\\n' | grep ^CARGO"),
        "test \"$(id -u)\" != 0".to_owned(),
        "grep -q '^CapEff:.0*$' /proc/self/status && grep -q '^CapBnd:.0*$' /proc/self/status".to_owned(),
        // A writable tmpfs would be memory without limit.
        must_fail("touch /evil || touch /dev/evil || touch /run/evil || touch /home/evil"),
        "touch /tmp/x /var/tmp/x /dev/shm/x".to_owned(),
        "cat $KEY".to_owned(),
        "exit 5".to_owned(),
    ];
    let script: Vec<&str> = script.iter().map(String::as_str).collect();
    let mut job = fixture.server.job(1, "rocket", &sha, &script);
    // A program outside of the sandbox would load this.
    let evil = fixture.folder.path().join("evil.so");
    job["variables"] = json!([
        {"key": "LD_PRELOAD", "value": evil.display().to_string(), "public": true},
        {"key": "KEY", "value": "the key", "public": false, "file": true},
    ]);
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(
        (reported.reason.as_str(), reported.exit_code),
        ("script_failure", Some(5)),
        "{}",
        reported.plain_trace()
    );
    assert!(reported.plain_trace().contains("\nthe key"), "{}", reported.plain_trace());
    fixture.stop().await;
}

/// Returns whether this is root and the user that runs jobs exists.
fn can_run_as_other_user() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0);
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let there = root && passwd.lines().any(|line| line.starts_with("nobody:"));
    if !there {
        eprintln!("skipped: running jobs as another user needs root and a user nobody");
    }
    there
}

/// Configures the isolation of a runner.
type Configure = fn(&mut Options);

/// Returns all isolations that work on this machine, by name.
fn isolations() -> Vec<(&'static str, Configure)> {
    let mut found: Vec<(&str, Configure)> = vec![("none", |options| options.isolation = Isolation::None)];
    if has_bubblewrap() {
        found.push(("bubblewrap", |options| options.isolation = Isolation::Bubblewrap));
    }
    if can_run_as_other_user() {
        found.push(("user", |options| {
            options.isolation = Isolation::User;
            options.network = Network::Host;
            options.run_as = Some("nobody".to_owned());
        }));
    }
    found
}

/// Returns the number of processes that sleep for this duration.
fn count_sleeping(mark: &str) -> usize {
    let words = format!("sleep\0{mark}\0").into_bytes();
    let processes = fs::read_dir("/proc").expect("read").flatten();
    processes.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|cmdline| cmdline == words)).count()
}

async fn wait_until_none_sleep(mark: &str) {
    let ended = async {
        while count_sleeping(mark) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("all of them end");
}

#[tokio::test]
async fn all_processes_of_a_canceled_job_are_killed() {
    for (number, (name, isolation)) in isolations().into_iter().enumerate() {
        let fixture = RunnerFixture::start_with(isolation).await;
        let mark = format!("10{number}{}", std::process::id());
        let script = format!("(setsid sleep {mark} &) ; sleep {mark} & echo ready; wait");
        fixture.server.enqueue(fixture.server.plain_job(1, &[&script]));
        fixture.server.wait_for(1, |reported| reported.plain_trace().contains("\nready\n")).await;
        fixture.server.cancel(1);
        wait_until_none_sleep(&mark).await;
        fixture.stop().await;
        eprintln!("no process is left of a job with isolation {name}");
    }
}

#[tokio::test]
async fn processes_outside_their_group_and_environment_are_killed_with_the_job() {
    for (number, (name, isolation)) in isolations().into_iter().enumerate() {
        let fixture = RunnerFixture::start_with(isolation).await;
        let mark = format!("20{number}{}", std::process::id());
        let daemon =
            format!("env -i setsid sh -c 'sleep {mark} & touch ready; sleep {mark}' </dev/null >/dev/null 2>&1 &");
        let there = "until test -e ready; do sleep 0.1; done".to_owned();
        let script = [format!("({daemon})"), there, "echo left behind".to_owned()];
        let script: Vec<&str> = script.iter().map(String::as_str).collect();
        let reported = fixture.server.run_to_end(fixture.server.plain_job(1, &script)).await;
        // The result is reported only when no process is left.
        let left = count_sleeping(&mark);
        assert_eq!((reported.state.as_str(), left), ("success", 0), "{name}: {}", reported.plain_trace());
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_job_over_its_memory_limit_is_killed() {
    for (name, isolation) in isolations() {
        let fixture = RunnerFixture::start_with(|options| {
            isolation(options);
            options.limits.memory = Some(256 << 20);
        })
        .await;
        // Each process stays below the limit; the job as a whole does not.
        let one = "perl -e '$x = chr(65); $x x= 100 << 20; sleep 1000' &";
        let reported = fixture.server.run_to_end(fixture.server.plain_job(1, &[one, one, one, "wait"])).await;
        assert_eq!(
            (reported.state.as_str(), reported.exit_code),
            ("failed", Some(137)),
            "{name}: {}",
            reported.plain_trace()
        );
        let reason = "ERROR: Job failed: job exceeded its memory limit of 256 MiB; it was killed\n";
        assert!(reported.plain_trace().ends_with(reason), "{name}: {}", reported.plain_trace());
        let reported = fixture
            .server
            .run_to_end(fixture.server.plain_job(2, &["perl -e '$x = chr(65); $x x= 600 << 20; sleep 1000'"]))
            .await;
        assert_eq!(reported.state, "failed", "{name}: {}", reported.plain_trace());
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_job_over_its_process_limit_is_stopped() {
    for (name, isolation) in isolations() {
        let fixture = RunnerFixture::start_with(|options| {
            isolation(options);
            options.limits.processes = Some(50);
        })
        .await;
        let script = "perl -e '$| = 1; for (1..5000) { my $pid = fork; if (!defined $pid) { print \"refused at $_\\n\"; exit 9 } \
                      if (!$pid) { sleep 1000; exit } select undef, undef, undef, 0.01 } print \"all\\n\"; sleep 1000'";
        let reported = fixture.server.run_to_end(fixture.server.plain_job(1, &[script])).await;
        let text = reported.plain_trace();
        let refused = text.lines().find_map(|line| line.strip_prefix("refused at ")?.parse::<u32>().ok());
        let killed = text.contains("ERROR: Job failed: job exceeded its limit of 50 processes; it was killed\n");
        assert_eq!(reported.state, "failed", "{name}: {text}");
        assert!(killed || refused.is_some_and(|count| count < 100), "{name}: {text}");
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_job_over_its_disk_limit_is_killed() {
    for (name, isolation) in isolations() {
        let fixture = RunnerFixture::start_with(|options| {
            isolation(options);
            options.limits.disk = Some(20 << 20);
        })
        .await;
        let killed = "ERROR: Job failed: job exceeded its disk limit of 20 MiB; it was killed\n";
        let files = "for i in 1 2 3; do head -c 9000000 /dev/urandom > \"${TMPDIR:-/tmp}/$i\"; done; sleep 1000";
        let reported = fixture.server.run_to_end(fixture.server.plain_job(1, &[files])).await;
        assert_eq!(
            (reported.state.as_str(), reported.plain_trace().ends_with(killed)),
            ("failed", true),
            "{name}: {}",
            reported.plain_trace()
        );
        // An unlinked file counts too.
        let unnamed =
            "exec 3> x 4> y; rm x y; head -c 12000000 /dev/urandom >&3; head -c 12000000 /dev/urandom >&4; sleep 1000";
        let reported = fixture.server.run_to_end(fixture.server.plain_job(2, &[unnamed])).await;
        assert_eq!(
            (reported.state.as_str(), reported.plain_trace().ends_with(killed)),
            ("failed", true),
            "{name}: {}",
            reported.plain_trace()
        );
        let reported =
            fixture.server.run_to_end(fixture.server.plain_job(3, &["head -c 30000000 /dev/urandom > large"])).await;
        let text = reported.plain_trace();
        assert_eq!(reported.state, "failed", "{name}: {text}");
        assert!(
            text.contains("a file exceeded the disk limit of the job, 20 MiB") || text.ends_with(killed),
            "{name}: {text}"
        );
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_job_without_network_is_checked_out_but_reaches_nothing() {
    if !has_bubblewrap() {
        return;
    }
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.network = Network::None;
    })
    .await;
    let sha = fixture.server.repository("rocket", &[("a", "a\n")]);
    let port = fixture.server.url.rsplit_once(':').expect("a port").1.to_owned();
    let connect = format!("bash -c '(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null'");
    let works = tokio::process::Command::new("bash").args(["-c", &connect]).status().await.expect("bash runs");
    assert!(works.success(), "outside of the job the server can be reached");
    let script =
        ["cat a".to_owned(), must_fail(&connect), "test \"$(ls /sys/class/net 2>/dev/null | wc -l)\" -le 1".to_owned()];
    let script: Vec<&str> = script.iter().map(String::as_str).collect();
    let reported = fixture.server.run_to_end(fixture.server.job(1, "rocket", &sha, &script)).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(
        reported.plain_trace().contains("this job has no network")
            && reported.plain_trace().contains("--runner-network"),
        "{}",
        reported.plain_trace()
    );
    fixture.stop().await;
}

#[tokio::test]
async fn submodules_of_other_servers_are_fetched_with_the_network_access_of_the_job() {
    if !has_bubblewrap() {
        return;
    }
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.network = Network::None;
    })
    .await;
    let recursive = json!([{"key": "GIT_SUBMODULE_STRATEGY", "value": "recursive", "public": true}]);
    let modules = |url: &str| format!("[submodule \"lib\"]\n\tpath = lib\n\turl = {url}\n");
    let inner = fixture.server.repository("inner", &[("deep", "deep\n")]);
    let link = format!("commit {inner}");
    let outer = fixture.server.repository("outer", &[(".gitmodules", &modules("../inner.git")), ("lib", &link)]);
    let link = format!("commit {outer}");
    let sha = fixture.server.repository("rocket", &[(".gitmodules", &modules("../outer.git")), ("lib", &link)]);
    let mut job = fixture.server.job(1, "rocket", &sha, &["cat lib/lib/deep"]);
    job["variables"] = recursive.clone();
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(reported.plain_trace().contains("\ndeep\n"), "{}", reported.plain_trace());

    // Another service on this machine, which the script could not reach either.
    let other = crate::fake_server::FakeServer::start().await;
    let foreign = other.repository("foreign", &[("a", "a\n")]);
    let link = format!("commit {foreign}");
    let url = format!("{}/foreign.git", other.url);
    let sha = fixture.server.repository("spy", &[(".gitmodules", &modules(&url)), ("lib", &link)]);
    let mut job = fixture.server.job(2, "spy", &sha, &["echo it runs"]);
    job["variables"] = recursive;
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(
        (reported.state.as_str(), reported.reason.as_str()),
        ("failed", "runner_system_failure"),
        "{}",
        reported.plain_trace()
    );
    assert!(reported.plain_trace().contains("cannot fetch the submodule lib"), "{}", reported.plain_trace());
    assert_eq!(other.requests(), 0, "it received no request");
    fixture.stop().await;
}

#[tokio::test]
async fn a_submodule_with_update_none_is_skipped() {
    let fixture = RunnerFixture::start().await;
    let inner = format!("commit {}", fixture.server.repository("inner", &[("deep", "deep\n")]));
    let modules = "[submodule \"lib\"]\n\tpath = lib\n\turl = ../inner.git\n\tupdate = none\n\
                   [submodule \"own\"]\n\tpath = own\n\turl = ../inner.git\n";
    let sha = fixture.server.repository("rocket", &[(".gitmodules", modules), ("lib", &inner), ("own", &inner)]);
    let mut job = fixture.server.job(1, "rocket", &sha, &["cat own/deep", "test -z \"$(ls -A lib)\""]);
    job["variables"] = json!([{"key": "GIT_SUBMODULE_STRATEGY", "value": "recursive", "public": true}]);
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(reported.plain_trace().contains("\ndeep\n"), "{}", reported.plain_trace());
    fixture.stop().await;
}

#[tokio::test]
async fn the_path_of_a_submodule_is_not_a_pattern() {
    if !has_bubblewrap() {
        return;
    }
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.network = Network::None;
    })
    .await;
    let other = crate::fake_server::FakeServer::start().await;
    let foreign = format!("commit {}", other.repository("foreign", &[("a", "a\n")]));
    let inner = format!("commit {}", fixture.server.repository("inner", &[("deep", "deep\n")]));
    // As a pattern, the path of the first submodule matches the second one.
    let modules = format!(
        "[submodule \"first\"]\n\tpath = :(top)ab\n\turl = ../inner.git\n\
         [submodule \"second\"]\n\tpath = ab\n\turl = {}/foreign.git\n",
        other.url
    );
    let files = [(".gitmodules", modules.as_str()), (":(top)ab", &inner), ("ab", &foreign)];
    let sha = fixture.server.repository("spy", &files);
    let mut job = fixture.server.job(1, "spy", &sha, &["echo it runs"]);
    job["variables"] = json!([{"key": "GIT_SUBMODULE_STRATEGY", "value": "normal", "public": true}]);
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(
        (reported.state.as_str(), reported.reason.as_str()),
        ("failed", "runner_system_failure"),
        "{}",
        reported.plain_trace()
    );
    assert!(reported.plain_trace().contains("cannot fetch the submodule second"), "{}", reported.plain_trace());
    assert_eq!(other.requests(), 0, "it received no request");
    fixture.stop().await;
}

#[tokio::test]
async fn links_among_temporary_files_do_not_lead_later_programs_outside() {
    if !has_bubblewrap() {
        return;
    }
    let fixture = RunnerFixture::start_with(|options| options.isolation = Isolation::Bubblewrap).await;
    let outside = tempfile::tempdir().expect("a folder");
    if !fixture.folder.path().starts_with("/tmp") {
        eprintln!("skipped: the runner does not work below /tmp here");
        return fixture.stop().await;
    }
    let world_accessible = PermissionsExt::from_mode(0o777);
    fs::set_permissions(outside.path(), world_accessible).expect("set");
    // While bubblewrap sets up the next program, the machine is mounted in this folder.
    let link = format!("ln -s /oldroot{} /tmp/$first", outside.path().display());
    let script = ["first=$(echo $CI_BUILDS_DIR | cut -d/ -f3)", "mv /tmp/$first /tmp/moved", &link, "echo linked"];
    let mut job = fixture.server.plain_job(1, &script);
    let after = json!({"name": "after_script", "script": ["echo after $(pwd)"], "timeout": 3600, "when": "always",
        "allow_failure": true});
    job["steps"].as_array_mut().expect("steps").push(after);
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(
        reported.plain_trace().contains("\nlinked") && reported.plain_trace().contains("\nafter /tmp/"),
        "{}",
        reported.plain_trace()
    );
    let made: Vec<_> = fs::read_dir(outside.path()).expect("read").flatten().collect();
    assert!(made.is_empty(), "{made:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_job_in_bubblewrap_does_not_see_hidden_files_and_folders() {
    if !has_bubblewrap() {
        return;
    }
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.hidden_paths = vec!["/usr/bin/env".into(), "/usr/share".into(), "/usr/share/doc".into()];
    })
    .await;
    let script = ["test -e /usr/bin/env && test ! -s /usr/bin/env", "test -z \"$(ls -A /usr/share)\"", "echo hidden"];
    let reported = fixture.server.run_to_end(fixture.server.plain_job(1, &script)).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(reported.plain_trace().contains("\nhidden"), "{}", reported.plain_trace());
    fixture.stop().await;
}

#[tokio::test]
async fn a_user_who_cannot_enter_the_folder_of_the_runner_is_rejected_at_startup() {
    if !can_run_as_other_user() {
        return;
    }
    // Only root can enter this folder.
    let folder = tempfile::tempdir().expect("a folder");
    let closed = PermissionsExt::from_mode(0o700);
    fs::set_permissions(folder.path(), closed).expect("set");
    let mut options = Options::new(folder.path().join("runner"), vec![env!("CARGO_BIN_EXE_supervise").into()]);
    options.isolation = Isolation::User;
    options.run_as = Some("nobody".to_owned());
    let error = runner::prepare(options).await.err().expect("refused").to_string();
    assert!(error.starts_with("jobs cannot run as the user nobody: "), "{error}");
    assert!(error.ends_with("choose a folder that this user can enter, with --runner-folder"), "{error}");
}

#[tokio::test]
async fn a_job_with_an_image_fails_unless_the_runner_ignores_images() {
    let strict = RunnerFixture::start().await;
    let container_job = |fixture: &RunnerFixture, image: serde_json::Value, services: serde_json::Value| {
        let mut job = fixture.server.plain_job(1, &["echo it runs"]);
        (job["image"], job["services"]) = (image, services);
        job
    };
    let reported = strict
        .server
        .run_to_end(container_job(
            &strict,
            json!({"name": "ruby:2.3"}),
            json!([{"name": "postgres"}, {"name": "redis:7"}]),
        ))
        .await;
    let text = reported.plain_trace();
    assert_eq!((reported.state.as_str(), reported.reason.as_str()), ("failed", "runner_system_failure"), "{text}");
    assert!(
        text.contains("this job needs the image ruby:2.3 and the services postgres, redis:7, but this runner"),
        "{text}"
    );
    assert!(text.contains("--runner-ignore-image") && text.contains("docker") && !text.contains("\nit runs"), "{text}");
    strict.stop().await;
    let strict = RunnerFixture::start().await;
    let reported = strict.server.run_to_end(container_job(&strict, json!(null), json!([{"name": "postgres"}]))).await;
    assert_eq!(reported.state, "failed", "{}", reported.plain_trace());
    assert!(reported.plain_trace().contains("this job needs the service postgres, but"), "{}", reported.plain_trace());
    strict.stop().await;
    let lenient = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::None;
        options.ignore_image = true;
    })
    .await;
    let reported = lenient.server.run_to_end(container_job(&lenient, json!({"name": "ruby:2.3"}), json!([]))).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(
        reported.plain_trace().contains("WARNING: ignoring the image ruby:2.3: ")
            && reported.plain_trace().contains("\nit runs\n"),
        "{}",
        reported.plain_trace()
    );
    lenient.stop().await;
}

#[tokio::test]
async fn another_user_alone_does_not_isolate_the_network() {
    if !can_run_as_other_user() {
        return;
    }
    for network in [Network::Auto, Network::Public, Network::None] {
        let open = PermissionsExt::from_mode(0o755);
        let folder = tempfile::Builder::new().permissions(open).tempdir().expect("a folder");
        let mut options = Options::new(folder.path().join("runner"), vec![env!("CARGO_BIN_EXE_supervise").into()]);
        options.isolation = Isolation::User;
        options.run_as = Some("nobody".to_owned());
        options.network = network;
        let error = runner::prepare(options).await.err().expect("refused").to_string();
        assert!(error.starts_with("only bubblewrap can isolate jobs from the services of this machine"), "{error}");
        assert!(error.ends_with("accept with --runner-network host that jobs can reach them"), "{error}");
    }
}

#[tokio::test]
async fn a_job_runs_as_another_user_if_configured() {
    if !can_run_as_other_user() {
        return;
    }
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::User;
        options.network = Network::Host;
        options.run_as = Some("nobody".to_owned());
    })
    .await;
    let sha = fixture.server.repository("rocket", &[("a", "a\n")]);
    let script = [
        "id -un && id -G && test -O a && test -O . && test -O $HOME && cat $KEY",
        &must_fail("touch $CI_BUILDS_DIR/.tmp/x"),
        &must_fail("mv $CI_PROJECT_DIR $CI_BUILDS_DIR/other"),
        &must_fail("ls $CI_BUILDS_DIR/../../private"),
        "mkdir out && echo x > out/x",
    ];
    let mut job = fixture.server.job(1, "rocket", &sha, &script);
    job["variables"] = json!([{"key": "KEY", "value": "the key", "public": false, "file": true}]);
    job["artifacts"] = json!([{"paths": ["out"], "when": "always"}]);
    let reported = fixture.server.run_to_end(job).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(
        reported.plain_trace().contains("\nnobody\n") && reported.artifacts.is_some(),
        "{}",
        reported.plain_trace()
    );
    let groups =
        reported.plain_trace().lines().skip_while(|line| *line != "nobody").nth(1).map(|line| line.split(' ').count());
    assert_eq!(groups, Some(1), "{}", reported.plain_trace());
    let mut next = fixture.server.job(2, "rocket", &sha, &["test -O out && test -O out/x && rm out/x"]);
    next["dependencies"] =
        json!([{"id": 1, "name": "one", "token": "job-token-1", "artifacts_file": {"filename": "a.zip", "size": 1}}]);
    let reported = fixture.server.run_to_end(next).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    fixture.stop().await;
}
