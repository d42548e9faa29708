//! What keeps jobs from the rest of the machine.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use runner::{Isolation, Network, Options};
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
        // The environment of the runner, of the server and of other jobs.
        must_fail("cat /proc/*/environ | tr '\\0' '\\n' | grep ^CARGO"),
        "test \"$(id -u)\" != 0".to_owned(),
        "grep -q '^CapEff:.0*$' /proc/self/status && grep -q '^CapBnd:.0*$' /proc/self/status".to_owned(),
        // What is not on disk would be memory that nothing limits.
        must_fail("touch /evil || touch /dev/evil || touch /run/evil || touch /home/evil"),
        "touch /tmp/x /var/tmp/x /dev/shm/x".to_owned(),
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

/// Whether this is root, and the user who runs jobs then exists.
fn other_user() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0);
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let there = root && passwd.lines().any(|line| line.starts_with("nobody:"));
    if !there {
        eprintln!("skipped: running jobs as another user needs root and a user nobody");
    }
    there
}

/// Has a runner isolate jobs in a certain way.
type Choose = fn(&mut Options);

/// All isolations that work here, by name.
fn isolations() -> Vec<(&'static str, Choose)> {
    let mut found: Vec<(&str, Choose)> = vec![("none", |options| options.isolation = Isolation::None)];
    if bubblewrap() {
        found.push(("bubblewrap", |options| options.isolation = Isolation::Bubblewrap));
    }
    if other_user() {
        found.push(("user", |options| {
            options.isolation = Isolation::User;
            options.network = Network::Host;
            options.run_as = Some("nobody".to_owned());
        }));
    }
    found
}

/// How many processes sleep for this long.
fn sleeping(mark: &str) -> usize {
    let words = format!("sleep\0{mark}\0").into_bytes();
    let processes = fs::read_dir("/proc").expect("read").flatten();
    processes.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|it| it == words)).count()
}

async fn until_nothing_sleeps(mark: &str) {
    let ended = async {
        while sleeping(mark) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("all of them end");
}

#[tokio::test]
async fn a_job_ends_with_all_that_it_has_started_when_it_is_canceled() {
    for (number, (name, isolation)) in isolations().into_iter().enumerate() {
        let it = Working::with(isolation).await;
        let mark = format!("10{number}{}", std::process::id());
        let script = format!("(setsid sleep {mark} &) ; sleep {mark} & echo ready; wait");
        it.server.enqueue(it.server.plain_job(1, &[&script]));
        it.server.until(1, |seen| seen.plain().contains("\nready\n")).await;
        it.server.cancel(1);
        until_nothing_sleeps(&mark).await;
        it.end().await;
        eprintln!("nothing is left of a job in isolation {name}");
    }
}

#[tokio::test]
async fn processes_that_left_their_group_and_their_environment_die_with_the_job() {
    for (number, (name, isolation)) in isolations().into_iter().enumerate() {
        let it = Working::with(isolation).await;
        let mark = format!("20{number}{}", std::process::id());
        let daemon =
            format!("env -i setsid sh -c 'sleep {mark} & touch ready; sleep {mark}' </dev/null >/dev/null 2>&1 &");
        let there = "until test -e ready; do sleep 0.1; done".to_owned();
        let script = [format!("({daemon})"), there, "echo left behind".to_owned()];
        let script: Vec<&str> = script.iter().map(String::as_str).collect();
        let seen = it.server.done(it.server.plain_job(1, &script)).await;
        // The end is told when nothing is left, not before.
        let left = sleeping(&mark);
        assert_eq!((seen.state.as_str(), left), ("success", 0), "{name}: {}", seen.plain());
        it.end().await;
    }
}

#[tokio::test]
async fn a_job_that_uses_too_much_memory_is_killed_and_says_so() {
    for (name, isolation) in isolations() {
        let it = Working::with(|options| {
            isolation(options);
            options.limits.memory = Some(256 << 20);
        })
        .await;
        // Each of them stays below the limit; it is that of the job.
        let one = "perl -e '$x = chr(65); $x x= 100 << 20; sleep 1000' &";
        let seen = it.server.done(it.server.plain_job(1, &[one, one, one, "wait"])).await;
        assert_eq!((seen.state.as_str(), seen.exit_code), ("failed", Some(137)), "{name}: {}", seen.plain());
        let reason = "ERROR: Job failed: job exceeded its memory limit of 256 MiB; it was killed\n";
        assert!(seen.plain().ends_with(reason), "{name}: {}", seen.plain());
        let seen =
            it.server.done(it.server.plain_job(2, &["perl -e '$x = chr(65); $x x= 600 << 20; sleep 1000'"])).await;
        assert_eq!(seen.state, "failed", "{name}: {}", seen.plain());
        it.end().await;
    }
}

#[tokio::test]
async fn a_job_that_starts_too_many_processes_is_stopped() {
    for (name, isolation) in isolations() {
        let it = Working::with(|options| {
            isolation(options);
            options.limits.processes = Some(50);
        })
        .await;
        let script = "perl -e '$| = 1; for (1..5000) { my $pid = fork; if (!defined $pid) { print \"refused at $_\\n\"; exit 9 } \
                      if (!$pid) { sleep 1000; exit } select undef, undef, undef, 0.01 } print \"all\\n\"; sleep 1000'";
        let seen = it.server.done(it.server.plain_job(1, &[script])).await;
        let text = seen.plain();
        let refused = text.lines().find_map(|line| line.strip_prefix("refused at ")?.parse::<u32>().ok());
        let killed = text.contains("ERROR: Job failed: job exceeded its limit of 50 processes; it was killed\n");
        assert_eq!(seen.state, "failed", "{name}: {text}");
        assert!(killed || refused.is_some_and(|count| count < 100), "{name}: {text}");
        it.end().await;
    }
}

#[tokio::test]
async fn a_job_that_fills_the_disk_is_killed_and_says_so() {
    for (name, isolation) in isolations() {
        let it = Working::with(|options| {
            isolation(options);
            options.limits.disk = Some(20 << 20);
        })
        .await;
        let killed = "ERROR: Job failed: job exceeded its disk limit of 20 MiB; it was killed\n";
        let files = "for i in 1 2 3; do head -c 9000000 /dev/urandom > \"${TMPDIR:-/tmp}/$i\"; done; sleep 1000";
        let seen = it.server.done(it.server.plain_job(1, &[files])).await;
        assert_eq!((seen.state.as_str(), seen.plain().ends_with(killed)), ("failed", true), "{name}: {}", seen.plain());
        // A file without a name takes as much.
        let unnamed =
            "exec 3> x 4> y; rm x y; head -c 12000000 /dev/urandom >&3; head -c 12000000 /dev/urandom >&4; sleep 1000";
        let seen = it.server.done(it.server.plain_job(2, &[unnamed])).await;
        assert_eq!((seen.state.as_str(), seen.plain().ends_with(killed)), ("failed", true), "{name}: {}", seen.plain());
        let seen = it.server.done(it.server.plain_job(3, &["head -c 30000000 /dev/urandom > large"])).await;
        let text = seen.plain();
        assert_eq!(seen.state, "failed", "{name}: {text}");
        assert!(
            text.contains("a file exceeded the disk limit of the job, 20 MiB") || text.ends_with(killed),
            "{name}: {text}"
        );
        it.end().await;
    }
}

#[tokio::test]
async fn a_job_without_network_reaches_nothing_and_says_so_but_is_checked_out() {
    if !bubblewrap() {
        return;
    }
    let it = Working::with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.network = Network::None;
    })
    .await;
    let sha = it.server.repository("rocket", &[("a", "a\n")]);
    let port = it.server.url.rsplit_once(':').expect("a port").1.to_owned();
    let connect = format!("bash -c '(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null'");
    let works = tokio::process::Command::new("bash").args(["-c", &connect]).status().await.expect("bash runs");
    assert!(works.success(), "outside of the job the server can be reached");
    let script =
        ["cat a".to_owned(), must_fail(&connect), "test \"$(ls /sys/class/net 2>/dev/null | wc -l)\" -le 1".to_owned()];
    let script: Vec<&str> = script.iter().map(String::as_str).collect();
    let seen = it.server.done(it.server.job(1, "rocket", &sha, &script)).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(
        seen.plain().contains("this job has no network") && seen.plain().contains("--runner-network"),
        "{}",
        seen.plain()
    );
    it.end().await;
}

#[tokio::test]
async fn submodules_of_the_server_are_fetched_and_others_only_as_the_job_could() {
    if !bubblewrap() {
        return;
    }
    let it = Working::with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.network = Network::None;
    })
    .await;
    let recursive = json!([{"key": "GIT_SUBMODULE_STRATEGY", "value": "recursive", "public": true}]);
    let modules = |url: &str| format!("[submodule \"lib\"]\n\tpath = lib\n\turl = {url}\n");
    let inner = it.server.repository("inner", &[("deep", "deep\n")]);
    let link = format!("commit {inner}");
    let outer = it.server.repository("outer", &[(".gitmodules", &modules("../inner.git")), ("lib", &link)]);
    let link = format!("commit {outer}");
    let sha = it.server.repository("rocket", &[(".gitmodules", &modules("../outer.git")), ("lib", &link)]);
    let mut job = it.server.job(1, "rocket", &sha, &["cat lib/lib/deep"]);
    job["variables"] = recursive.clone();
    let seen = it.server.done(job).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(seen.plain().contains("\ndeep\n"), "{}", seen.plain());

    // Another service of this machine, which a script could not reach either.
    let other = crate::server::Server::start().await;
    let foreign = other.repository("foreign", &[("a", "a\n")]);
    let link = format!("commit {foreign}");
    let url = format!("{}/foreign.git", other.url);
    let sha = it.server.repository("spy", &[(".gitmodules", &modules(&url)), ("lib", &link)]);
    let mut job = it.server.job(2, "spy", &sha, &["echo it runs"]);
    job["variables"] = recursive;
    let seen = it.server.done(job).await;
    assert_eq!((seen.state.as_str(), seen.reason.as_str()), ("failed", "runner_system_failure"), "{}", seen.plain());
    assert!(seen.plain().contains("cannot fetch the submodule lib"), "{}", seen.plain());
    assert_eq!(other.requests(), 0, "nobody asks it");
    it.end().await;
}

#[tokio::test]
async fn a_submodule_that_is_not_to_be_updated_is_left_out() {
    let it = Working::start().await;
    let inner = format!("commit {}", it.server.repository("inner", &[("deep", "deep\n")]));
    let modules = "[submodule \"lib\"]\n\tpath = lib\n\turl = ../inner.git\n\tupdate = none\n\
                   [submodule \"own\"]\n\tpath = own\n\turl = ../inner.git\n";
    let sha = it.server.repository("rocket", &[(".gitmodules", modules), ("lib", &inner), ("own", &inner)]);
    let mut job = it.server.job(1, "rocket", &sha, &["cat own/deep", "test -z \"$(ls -A lib)\""]);
    job["variables"] = json!([{"key": "GIT_SUBMODULE_STRATEGY", "value": "recursive", "public": true}]);
    let seen = it.server.done(job).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(seen.plain().contains("\ndeep\n"), "{}", seen.plain());
    it.end().await;
}

#[tokio::test]
async fn the_path_of_a_submodule_does_not_select_another_one() {
    if !bubblewrap() {
        return;
    }
    let it = Working::with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.network = Network::None;
    })
    .await;
    let other = crate::server::Server::start().await;
    let foreign = format!("commit {}", other.repository("foreign", &[("a", "a\n")]));
    let inner = format!("commit {}", it.server.repository("inner", &[("deep", "deep\n")]));
    // As a pattern, the path of the first one names the second one.
    let modules = format!(
        "[submodule \"first\"]\n\tpath = :(top)ab\n\turl = ../inner.git\n\
         [submodule \"second\"]\n\tpath = ab\n\turl = {}/foreign.git\n",
        other.url
    );
    let files = [(".gitmodules", modules.as_str()), (":(top)ab", &inner), ("ab", &foreign)];
    let sha = it.server.repository("spy", &files);
    let mut job = it.server.job(1, "spy", &sha, &["echo it runs"]);
    job["variables"] = json!([{"key": "GIT_SUBMODULE_STRATEGY", "value": "normal", "public": true}]);
    let seen = it.server.done(job).await;
    assert_eq!((seen.state.as_str(), seen.reason.as_str()), ("failed", "runner_system_failure"), "{}", seen.plain());
    assert!(seen.plain().contains("cannot fetch the submodule second"), "{}", seen.plain());
    assert_eq!(other.requests(), 0, "nobody asks it");
    it.end().await;
}

#[tokio::test]
async fn a_link_among_the_temporary_files_of_a_job_leads_no_later_program_out_of_them() {
    if !bubblewrap() {
        return;
    }
    let it = Working::with(|options| options.isolation = Isolation::Bubblewrap).await;
    let outside = tempfile::tempdir().expect("a folder");
    if !it.folder.path().starts_with("/tmp") {
        eprintln!("skipped: the runner does not work below /tmp here");
        return it.end().await;
    }
    let everybody = PermissionsExt::from_mode(0o777);
    fs::set_permissions(outside.path(), everybody).expect("set");
    // While bubblewrap prepares the next program, the machine lies in this folder.
    let link = format!("ln -s /oldroot{} /tmp/$first", outside.path().display());
    let script = ["first=$(echo $CI_BUILDS_DIR | cut -d/ -f3)", "mv /tmp/$first /tmp/moved", &link, "echo linked"];
    let mut job = it.server.plain_job(1, &script);
    let after = json!({"name": "after_script", "script": ["echo after $(pwd)"], "timeout": 3600, "when": "always",
        "allow_failure": true});
    job["steps"].as_array_mut().expect("steps").push(after);
    let seen = it.server.done(job).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(seen.plain().contains("\nlinked") && seen.plain().contains("\nafter /tmp/"), "{}", seen.plain());
    let made: Vec<_> = fs::read_dir(outside.path()).expect("read").flatten().collect();
    assert!(made.is_empty(), "{made:?}");
    it.end().await;
}

#[tokio::test]
async fn a_job_in_bubblewrap_does_not_see_hidden_files_and_folders() {
    if !bubblewrap() {
        return;
    }
    let it = Working::with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.hidden = vec!["/usr/bin/env".into(), "/usr/share".into(), "/usr/share/doc".into()];
    })
    .await;
    let script = ["test -e /usr/bin/env && test ! -s /usr/bin/env", "test -z \"$(ls -A /usr/share)\"", "echo hidden"];
    let seen = it.server.done(it.server.plain_job(1, &script)).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(seen.plain().contains("\nhidden"), "{}", seen.plain());
    it.end().await;
}

#[tokio::test]
async fn another_user_who_cannot_enter_the_folder_of_the_runner_is_refused_at_the_start() {
    if !other_user() {
        return;
    }
    // Only root can enter what is below.
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
async fn a_job_for_containers_fails_unless_the_runner_ignores_what_it_asks_for() {
    let strict = Working::start().await;
    let ask = |it: &Working, image: serde_json::Value, services: serde_json::Value| {
        let mut job = it.server.plain_job(1, &["echo it runs"]);
        (job["image"], job["services"]) = (image, services);
        job
    };
    let seen = strict
        .server
        .done(ask(&strict, json!({"name": "ruby:2.3"}), json!([{"name": "postgres"}, {"name": "redis:7"}])))
        .await;
    let text = seen.plain();
    assert_eq!((seen.state.as_str(), seen.reason.as_str()), ("failed", "runner_system_failure"), "{text}");
    assert!(
        text.contains("this job needs the image ruby:2.3 and the services postgres, redis:7, but this runner"),
        "{text}"
    );
    assert!(text.contains("--runner-ignore-image") && text.contains("docker") && !text.contains("\nit runs"), "{text}");
    strict.end().await;
    let strict = Working::start().await;
    let seen = strict.server.done(ask(&strict, json!(null), json!([{"name": "postgres"}]))).await;
    assert_eq!(seen.state, "failed", "{}", seen.plain());
    assert!(seen.plain().contains("this job needs the service postgres, but"), "{}", seen.plain());
    strict.end().await;
    let lenient = Working::with(|options| {
        options.isolation = Isolation::None;
        options.ignore_image = true;
    })
    .await;
    let seen = lenient.server.done(ask(&lenient, json!({"name": "ruby:2.3"}), json!([]))).await;
    assert_eq!(seen.state, "success", "{}", seen.plain());
    assert!(
        seen.plain().contains("WARNING: ignoring the image ruby:2.3: ") && seen.plain().contains("\nit runs\n"),
        "{}",
        seen.plain()
    );
    lenient.end().await;
}

#[tokio::test]
async fn another_user_alone_does_not_keep_jobs_from_the_network_of_this_machine() {
    if !other_user() {
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
        assert!(error.starts_with("only bubblewrap can keep jobs from the services of this machine"), "{error}");
        assert!(error.ends_with("accept with --runner-network host that jobs reach all of them"), "{error}");
    }
}

#[tokio::test]
async fn a_job_runs_as_another_user_if_root_wants_it() {
    if !other_user() {
        return;
    }
    let it = Working::with(|options| {
        options.isolation = Isolation::User;
        options.network = Network::Host;
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
