//! The process between the runner and the programs of jobs.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

fn supervise(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_supervise"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("started")
}

fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let started_at = Instant::now();
    while !condition() {
        assert!(started_at.elapsed() < Duration::from_secs(60), "timed out");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn output_and_exit_status_of_a_program_are_passed_on() {
    let script = "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done; exit 7";
    let mut child = supervise(&["--", "sh", "-c", script]);
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    let expected = (0..2000).fold(String::new(), |all, number| format!("{all}{number}\n"));
    assert_eq!((child.wait().expect("ended").code(), text), (Some(7), expected));
    assert_eq!(supervise(&["--", "sh", "-c", "kill -9 $$"]).wait().expect("ended").code(), Some(137));
    let output = supervise(&["--", "no-such-program"]).wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot start no-such-program"), "{output:?}");
}

#[test]
fn processes_outside_the_group_and_environment_are_killed_with_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready").display().to_string();
    let script = "env -i setsid sh -c 'echo $$; sleep 1000 & echo $!; touch \"$0\"; wait' \"$0\" & sleep 1000 & echo $!; \
                  until test -e \"$0\"; do sleep 0.05; done";
    let mut child = supervise(&["--", "sh", "-c", script, &ready]);
    let mut text = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_to_string(&mut text).expect("text");
    assert_eq!(child.wait().expect("ended").code(), Some(0));
    let pids: Vec<&str> = text.lines().collect();
    assert_eq!(pids.len(), 3, "{text}");
    // The supervisor ends after its processes.
    assert!(pids.iter().all(|pid| is_gone(pid)), "{text}");
}

#[test]
fn a_byte_terminates_the_program_and_the_end_of_the_stream_kills_everything() {
    let script =
        "trap 'echo asked' TERM; env -i setsid sh -c 'echo $$; exec sleep 1000' & while true; do sleep 0.05; done";
    let mut child = supervise(&["--", "sh", "-c", script]);
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let pid = lines.next().expect("a number");
    stdin.write_all(b"t").expect("written");
    assert_eq!(lines.next().as_deref(), Some("asked"));
    assert!(!is_gone(&pid));
    drop(stdin);
    assert_eq!(child.wait().expect("ended").code(), Some(137));
    wait_until(|| is_gone(&pid));
}

#[test]
fn limits_are_set_before_the_program_starts() {
    let arguments = ["--processes", "5000", "--file-size", "1048576", "--data-size", "268435456", "--"];
    let script = "ulimit -u; ulimit -f; ulimit -d; ulimit -c";
    let mut child = supervise(&[&arguments[..], &["bash", "-c", script]].concat());
    // Closing the stream would kill the program.
    let stdin = child.stdin.take();
    let output = child.wait_with_output().expect("ended");
    drop(stdin);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5000\n1024\n262144\n0\n", "{output:?}");
}

#[test]
fn a_program_inherits_no_open_file_but_its_three_streams() {
    let script = "exec 7</dev/null 8>/dev/null; test -e /proc/$$/fd/7 || exit 3; exec \"$0\" -- sh -c \
                  'for file in 7 8; do ! test -e /proc/$$/fd/$file || echo $file; done; echo done'";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_supervise")]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    let stdin = child.stdin.take();
    let output = child.wait_with_output().expect("ended");
    drop(stdin);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(0), "done\n"));
}
