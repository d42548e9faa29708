//! The `gable runner` commands against a fake server.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::mpsc,
    thread,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    ci::runner_end_to_end::lacks_bubblewrap,
    support::{GableCommand, TestInstance, WAIT_TIMEOUT},
};

const SECRET: &str = "s3cret-of-registration";
const TOKEN: &str = "t0ken-of-the-runner";

/// Starts a fake server; the receiver gets the requests.
fn start_fake_server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a second hand"));
                let (mut first, mut length) = (String::new(), 0);
                reader.read_line(&mut first).expect("a request");
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).expect("a header") <= 2 {
                        break;
                    }
                    if let Some((name, value)) = line.split_once(':').filter(|(name, _)| *name == "content-length") {
                        length = value.trim().parse().unwrap_or_else(|_| panic!("{name} is a number"));
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).expect("a body");
                let body = String::from_utf8(body).expect("text");
                let asked = first.rsplit_once(' ').expect("a line").0.to_owned();
                let (status, answer) = match asked.as_str() {
                    "POST /api/v4/runners" if body.contains(SECRET) => {
                        ("201 Created", format!(r#"{{"id":1,"token":"{TOKEN}"}}"#))
                    }
                    "POST /api/v4/runners/verify" if body.contains(TOKEN) => ("200 OK", "{}".to_owned()),
                    "DELETE /api/v4/runners" | "POST /api/v4/jobs/request" if body.contains(TOKEN) => {
                        ("204 No Content", String::new())
                    }
                    _ => ("403 Forbidden", String::new()),
                };
                let length = answer.len();
                let mut stream = stream;
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                // The test may have ended.
                let _ = stream.write_all(format!("{head}{answer}").as_bytes());
                let _ = sender.send(asked);
            });
        }
    });
    (url, requests)
}

#[test]
fn missing_settings_are_reported() {
    let instance = TestInstance::embedded();
    let refused = |arguments: &[&str]| instance.gable(&["runner"]).args(arguments).finish().refused();
    let unregistered = "no token in ./gable-runner/token; register the runner first, or set a registration \
                        token in GABLE_REGISTRATION_TOKEN";
    for command in ["run", "verify", "unregister"] {
        assert_eq!(refused(&[command, "--url", "http://127.0.0.1:1"]), unregistered);
    }
    assert_eq!(
        refused(&["register", "--url", "http://127.0.0.1:1"]),
        "set the registration token in GABLE_REGISTRATION_TOKEN or with --token-file"
    );
    let file = instance.file("registration", SECRET);
    let open = refused(&["register", "--url", "http://127.0.0.1:1", "--token-file", &file]);
    assert!(open.starts_with("the token file ") && open.contains("run `chmod 600`"), "{open}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
    let away = refused(&["register", "--url", "http://127.0.0.1:1", "--token-file", &file]);
    assert!(away.starts_with("cannot reach the server at http://127.0.0.1:1 ("), "{away}");
    assert!(!away.contains(SECRET), "{away}");
    let untagged =
        refused(&["register", "--url", "http://127.0.0.1:1", "--token-file", &file, "--run-untagged", "false"]);
    assert!(untagged.starts_with("a runner without tags that does not run untagged jobs"), "{untagged}");
}

#[test]
fn a_runner_registers_once_and_unregisters() {
    let (url, _told) = start_fake_server();
    let instance = TestInstance::embedded();
    let gable =
        |command: &str| instance.gable(&["runner", command, "--url", &url]).env("GABLE_REGISTRATION_TOKEN", SECRET);
    let wrong =
        instance.gable(&["runner", "register", "--url", &url]).env("GABLE_REGISTRATION_TOKEN", "wrong").finish();
    assert!(wrong.refused().starts_with("unknown registration token"));
    let output = gable("register").args(&["--tags", "a,b"]).finish().succeeded();
    assert_eq!(output, "registered the runner; its token is in ./gable-runner/token\n");
    let file = instance.data().parent().expect("a folder").join("gable-runner/token");
    assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).expect("read"), format!("{TOKEN}\n"));
    let again = gable("register").finish().refused();
    assert!(again.starts_with("a runner is already registered in ./gable-runner"), "{again}");
    assert_eq!(gable("verify").finish().succeeded(), format!("the server at {url} accepts the token of this runner\n"));
    let other = gable("verify").env("GABLE_RUNNER_TOKEN", "other").finish().refused();
    assert_eq!(other, "unknown runner token; register the runner again");
    let output = gable("unregister").finish().succeeded();
    assert_eq!(output, format!("unregistered this runner from the server at {url}\n"));
    assert!(!file.exists());
}

#[test]
fn a_runner_registers_itself_requests_jobs_and_stops_on_a_signal() {
    let (url, requests) = start_fake_server();
    let instance = TestInstance::embedded();
    let folder = instance.data();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_gable"))
        .args(["runner", "run", "--url", &url, "--isolation", "none", "--folder"])
        .arg(&folder)
        .env("GABLE_REGISTRATION_TOKEN", SECRET)
        .env_remove("GABLE_RUNNER_TOKEN")
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    for expected in ["POST /api/v4/runners", "POST /api/v4/runners/verify", "POST /api/v4/jobs/request"] {
        assert_eq!(requests.recv_timeout(WAIT_TIMEOUT).expect("asked"), expected);
    }
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a number");
    kill_process(pid, Signal::TERM).expect("signalled");
    let mut output = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut output).expect("text");
    assert!(child.wait().expect("ended").success(), "{output}");
    assert!(output.contains("without isolation: every user who can push"), "{output}");
    assert!(!output.contains(SECRET) && !output.contains(TOKEN), "{output}");
    assert_eq!(std::fs::read_to_string(folder.join("token")).expect("kept"), format!("{TOKEN}\n"));
}

/// Runs the binary in a mount namespace in which another file replaces bubblewrap.
fn with_other_bubblewrap(instance: &TestInstance, other: &str, arguments: &[&str]) -> Option<GableCommand> {
    let bubblewrap =
        ["/usr/local/bin/bwrap", "/usr/bin/bwrap", "/bin/bwrap"].iter().find(|path| Path::new(path).is_file());
    let Some(bubblewrap) = bubblewrap else {
        eprintln!("skipped: there is no bubblewrap whose place another file could take");
        return None;
    };
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0);
    let user: &[&str] = if root { &[] } else { &["--user", "--map-root-user"] };
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let words =
        [user, &["--mount", "--", "sh", "-c", script, "sh", other, bubblewrap, env!("CARGO_BIN_EXE_gable")]].concat();
    let probed = std::process::Command::new("unshare").args(user).args(["--mount", "--", "true"]).status();
    if !probed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there are no mount namespaces here");
        return None;
    }
    Some(GableCommand::new("unshare").for_instance(instance).args(&words).args(arguments))
}

#[test]
fn jobs_are_not_run_without_isolation() {
    let instance = TestInstance::new();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--runner", "1"];
    let Some(gable) = with_other_bubblewrap(&instance, "/dev/null", &serve) else { return };
    let refused = gable.finish();
    assert!(!refused.stdout.contains("gable ready on"), "{}", refused.stdout);
    let output = refused.refused();
    assert!(
        output.starts_with("cannot run jobs: refusing to run jobs without isolation from this machine"),
        "{output}"
    );
    for part in ["bubblewrap is not installed", "apt install bubblewrap", "--runner-user", "--runner-isolation none"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    // Running without isolation needs a flag and logs a warning at each start.
    for _ in 0..2 {
        let server = with_other_bubblewrap(&instance, "/dev/null", &serve).expect("as before");
        let finished = server.args(&["--runner-isolation", "none"]).start().stop();
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let danger =
            "without isolation: every user who can push to a project of the server can read and change whatever";
        assert!(finished.stderr.contains(danger) && finished.stderr.contains("WARN"), "{}", finished.stderr);
    }
}

#[test]
fn the_error_of_a_broken_bubblewrap_is_reported() {
    let instance = TestInstance::new();
    let other = instance.file("bwrap", "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).expect("set");
    let Some(gable) = with_other_bubblewrap(&instance, &other, &["serve", "--listen", "127.0.0.1:0", "--runner", "1"])
    else {
        return;
    };
    let output = gable.finish().refused();
    let reason = "bubblewrap is installed but does not work: bwrap: setting up uid map: Permission denied; ";
    assert!(output.contains(reason) && output.contains("namespaces"), "{output}");
}

#[test]
fn the_built_in_runner_takes_no_job_without_isolation() {
    let (url, requests) = start_fake_server();
    let instance = TestInstance::embedded();
    let Some(gable) = with_other_bubblewrap(&instance, "/dev/null", &["runner", "run", "--url", &url]) else { return };
    let output = gable.env("GABLE_REGISTRATION_TOKEN", SECRET).finish().refused();
    assert!(output.contains("bubblewrap is not installed") && output.contains("--runner-isolation none"), "{output}");
    assert_eq!(requests.try_recv().ok(), None, "it neither registers nor asks for jobs");
}

#[test]
fn contradictory_settings_of_the_runner_are_rejected() {
    let instance = TestInstance::new();
    let refused = |arguments: &[&str]| {
        instance.gable(&["serve", "--listen", "127.0.0.1:0", "--runner", "1"]).args(arguments).finish().refused()
    };
    let output = refused(&["--runner-isolation", "none", "--runner-network", "none"]);
    assert_eq!(
        output,
        "cannot run jobs: only bubblewrap can isolate jobs from the services of this machine and its network; install it, or \
         accept with --runner-network host that jobs can reach them"
    );
    let output = refused(&["--runner-user", "nobody-of-that-name"]);
    assert!(output.contains("there is no user nobody-of-that-name") || output.contains("only root can"), "{output}");
    let wrong = instance.gable(&["serve", "--runner-memory", "2X"]).finish();
    assert!(wrong.stderr.contains("2X is not a size"), "{}", wrong.stderr);
}

#[test]
fn a_server_that_runs_jobs_itself_logs_a_warning() {
    if lacks_bubblewrap() {
        return;
    }
    let instance = TestInstance::new();
    let quiet = instance.serve().start().stop();
    assert!(!quiet.stderr.contains("runs jobs itself"), "{}", quiet.stderr);
    let finished = instance.serve().env("GABLE_RUNNER", "2").start().stop();
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let warning =
        "the built-in runner is enabled: every user who can push to a project can run programs on this machine";
    assert!(finished.stderr.contains(warning), "{}", finished.stderr);
    for line in ["jobs run in bubblewrap as ", "limits of each job"] {
        assert!(finished.stderr.contains(line), "{line}: {}", finished.stderr);
    }
}
