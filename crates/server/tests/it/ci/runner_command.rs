//! `gable runner …` as an operator uses it, against a server that says only what the story needs.

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
    admin::binary::{Gable, Home, PATIENCE},
    ci::runner_story::lacks_bubblewrap,
};

const SECRET: &str = "s3cret-of-registration";
const TOKEN: &str = "t0ken-of-the-runner";

/// Answers runners; whoever listens hears what was asked.
fn answering() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
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
                // Whoever asked may have gone.
                let _ = stream.write_all(format!("{head}{answer}").as_bytes());
                let _ = tell.send(asked);
            });
        }
    });
    (url, told)
}

#[test]
fn what_is_missing_is_told_in_a_sentence() {
    let home = Home::embedded();
    let refused = |arguments: &[&str]| home.gable(&["runner"]).args(arguments).finish().refused();
    let unregistered = "there is no token in ./gable-runner/token; register the runner first, or give a registration \
                        token in GABLE_REGISTRATION_TOKEN";
    for command in ["run", "verify", "unregister"] {
        assert_eq!(refused(&[command, "--url", "http://127.0.0.1:1"]), unregistered);
    }
    assert_eq!(
        refused(&["register", "--url", "http://127.0.0.1:1"]),
        "give the registration token in the variable GABLE_REGISTRATION_TOKEN, or with --token-file"
    );
    let file = home.file("registration", SECRET);
    let open = refused(&["register", "--url", "http://127.0.0.1:1", "--token-file", &file]);
    assert!(open.starts_with("others can read the token in ") && open.contains("mode to 600"), "{open}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
    let away = refused(&["register", "--url", "http://127.0.0.1:1", "--token-file", &file]);
    assert!(away.starts_with("the server at http://127.0.0.1:1 cannot be reached ("), "{away}");
    assert!(!away.contains(SECRET), "{away}");
    let untagged =
        refused(&["register", "--url", "http://127.0.0.1:1", "--token-file", &file, "--run-untagged", "false"]);
    assert!(untagged.starts_with("a runner without tags would get no job"), "{untagged}");
}

#[test]
fn a_runner_registers_once_and_leaves() {
    let (url, _told) = answering();
    let home = Home::embedded();
    let gable = |command: &str| home.gable(&["runner", command, "--url", &url]).env("GABLE_REGISTRATION_TOKEN", SECRET);
    let wrong = home.gable(&["runner", "register", "--url", &url]).env("GABLE_REGISTRATION_TOKEN", "wrong").finish();
    assert!(wrong.refused().starts_with("the server does not know this registration token"));
    let said = gable("register").args(&["--tags", "a,b"]).finish().succeeded();
    assert_eq!(said, "The runner is registered; its token is in ./gable-runner/token\n");
    let file = home.data().parent().expect("a folder").join("gable-runner/token");
    assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&file).expect("read"), format!("{TOKEN}\n"));
    let again = gable("register").finish().refused();
    assert!(again.starts_with("a runner is registered already in ./gable-runner"), "{again}");
    assert_eq!(gable("verify").finish().succeeded(), format!("The server at {url} knows this runner.\n"));
    let other = gable("verify").env("GABLE_RUNNER_TOKEN", "other").finish().refused();
    assert_eq!(other, "the server does not know this runner's token; register the runner anew");
    let said = gable("unregister").finish().succeeded();
    assert_eq!(said, format!("The server at {url} does not know this runner any more.\n"));
    assert!(!file.exists());
}

#[test]
fn a_runner_registers_itself_asks_for_jobs_and_stops_when_told() {
    let (url, told) = answering();
    let home = Home::embedded();
    let folder = home.data();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_gable"))
        .args(["runner", "run", "--url", &url, "--isolation", "none", "--folder"])
        .arg(&folder)
        .env("GABLE_REGISTRATION_TOKEN", SECRET)
        .env_remove("GABLE_RUNNER_TOKEN")
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    for expected in ["POST /api/v4/runners", "POST /api/v4/runners/verify", "POST /api/v4/jobs/request"] {
        assert_eq!(told.recv_timeout(PATIENCE).expect("asked"), expected);
    }
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a number");
    kill_process(pid, Signal::TERM).expect("told");
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("ended").success(), "{said}");
    assert!(said.contains("without isolation: whoever can push"), "{said}");
    assert!(!said.contains(SECRET) && !said.contains(TOKEN), "{said}");
    assert_eq!(std::fs::read_to_string(folder.join("token")).expect("kept"), format!("{TOKEN}\n"));
}

/// The binary where another file stands in the place of bubblewrap, in a mount namespace of its own.
fn with_other_bubblewrap(home: &Home, other: &str, arguments: &[&str]) -> Option<Gable> {
    let bubblewrap = ["/usr/local/bin/bwrap", "/usr/bin/bwrap", "/bin/bwrap"].iter().find(|tx| Path::new(tx).is_file());
    let Some(bubblewrap) = bubblewrap else {
        eprintln!("skipped: there is no bubblewrap whose place another file could take");
        return None;
    };
    let root = std::fs::metadata("/proc/self").is_ok_and(|tx| std::os::unix::fs::MetadataExt::uid(&tx) == 0);
    let user: &[&str] = if root { &[] } else { &["--user", "--map-root-user"] };
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let words =
        [user, &["--mount", "--", "sh", "-c", script, "sh", other, bubblewrap, env!("CARGO_BIN_EXE_gable")]].concat();
    let probed = std::process::Command::new("unshare").args(user).args(["--mount", "--", "true"]).status();
    if !probed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there are no mount namespaces here");
        return None;
    }
    Some(Gable::new("unshare").in_place(home).args(&words).args(arguments))
}

#[test]
fn jobs_are_not_run_without_isolation() {
    let home = Home::new();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--runner", "1"];
    let Some(gable) = with_other_bubblewrap(&home, "/dev/null", &serve) else { return };
    let refused = gable.finish();
    assert!(!refused.stdout.contains("gable ready on"), "{}", refused.stdout);
    let said = refused.refused();
    assert!(
        said.starts_with("cannot run jobs: jobs are not run, because nothing would keep them from the data"),
        "{said}"
    );
    for part in ["bubblewrap is not installed", "apt install bubblewrap", "--runner-user", "--runner-isolation none"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Who wants that has to say so, and is told what it means at each start.
    for _ in 0..2 {
        let server = with_other_bubblewrap(&home, "/dev/null", &serve).expect("as before");
        let finished = server.args(&["--runner-isolation", "none"]).start().stop();
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let danger =
            "without isolation: whoever can push to a project of the server can read and change on this machine";
        assert!(finished.stderr.contains(danger) && finished.stderr.contains("WARN"), "{}", finished.stderr);
    }
}

#[test]
fn bubblewrap_that_does_not_work_is_told_in_its_own_words() {
    let home = Home::new();
    let other = home.file("bwrap", "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n");
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).expect("set");
    let Some(gable) = with_other_bubblewrap(&home, &other, &["serve", "--listen", "127.0.0.1:0", "--runner", "1"])
    else {
        return;
    };
    let said = gable.finish().refused();
    let reason = "bubblewrap is installed but does not work: bwrap: setting up uid map: Permission denied; ";
    assert!(said.contains(reason) && said.contains("namespaces"), "{said}");
}

#[test]
fn a_runner_of_its_own_takes_no_job_without_isolation() {
    let (url, told) = answering();
    let home = Home::embedded();
    let Some(gable) = with_other_bubblewrap(&home, "/dev/null", &["runner", "run", "--url", &url]) else { return };
    let said = gable.env("GABLE_REGISTRATION_TOKEN", SECRET).finish().refused();
    assert!(said.contains("bubblewrap is not installed") && said.contains("--runner-isolation none"), "{said}");
    assert_eq!(told.try_recv().ok(), None, "it neither registers nor asks for jobs");
}

#[test]
fn settings_of_the_runner_that_contradict_each_other_are_refused() {
    let home = Home::new();
    let refused = |arguments: &[&str]| {
        home.gable(&["serve", "--listen", "127.0.0.1:0", "--runner", "1"]).args(arguments).finish().refused()
    };
    let said = refused(&["--runner-isolation", "none", "--runner-network", "none"]);
    assert_eq!(
        said,
        "cannot run jobs: only bubblewrap can keep jobs from the services of this machine and its network; install it, or \
         accept with --runner-network host that jobs reach all of them"
    );
    let said = refused(&["--runner-user", "nobody-of-that-name"]);
    assert!(said.contains("there is no user nobody-of-that-name") || said.contains("only root can"), "{said}");
    let wrong = home.gable(&["serve", "--runner-memory", "2X"]).finish();
    assert!(wrong.stderr.contains("2X is not a size"), "{}", wrong.stderr);
}

#[test]
fn a_server_that_runs_jobs_itself_says_what_that_means() {
    if lacks_bubblewrap() {
        return;
    }
    let home = Home::new();
    let quiet = home.serve().start().stop();
    assert!(!quiet.stderr.contains("runs jobs itself"), "{}", quiet.stderr);
    let finished = home.serve().env("GABLE_RUNNER", "2").start().stop();
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let warning =
        "this server runs jobs itself: whoever may push to one of its projects can run programs on this machine";
    assert!(finished.stderr.contains(warning), "{}", finished.stderr);
    for line in ["jobs run in bubblewrap as ", "the limits of each job"] {
        assert!(finished.stderr.contains(line), "{line}: {}", finished.stderr);
    }
}
