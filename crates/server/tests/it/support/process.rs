//! Runs the real binary the way an operator does, and captures its output.

use std::{
    io::{Read, Write as _},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{HttpClient, TestInstance};

/// The password of the administrator, if the test does not choose another.
pub(crate) const ROOT_PASSWORD: &str = "correct horse battery";
/// The token of the administrator, if the test does not choose another.
pub(crate) const ROOT_TOKEN: &str = "a-token-of-the-story";

/// How long a test waits for anything; generous for busy machines.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The flags that turn rate limits off; tests send more requests than users do.
pub(crate) const UNLIMITED: &[&str] = &["--requests-per-minute", "0", "--anonymous-requests-per-minute", "0"];

/// A `gable` command to run.
pub(crate) struct GableCommand(Command);

/// A running process, killed on drop.
pub(crate) struct ServerProcess {
    child: Child,
    stdout: OutputCapture,
    stderr: OutputCapture,
    /// The URL that the server reports when it is ready.
    pub(crate) url: String,
    /// The SSH URL that the server reports, if it listens for SSH.
    pub(crate) ssh_url: Option<String>,
}

/// The result of a finished process.
pub(crate) struct ProcessOutput {
    /// The exit status; `None` if a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl GableCommand {
    /// Returns a command without the `GABLE_…` variables of the environment.
    pub(crate) fn new(program: &str) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GABLE_")) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command)
    }

    pub(crate) fn for_instance(mut self, instance: &TestInstance) -> Self {
        self.0.current_dir(instance.folder()).env("GABLE_DATA", instance.data());
        match instance.database_url() {
            None => self,
            Some(url) => self.env("GABLE_DATABASE", url.as_str()),
        }
    }

    pub(crate) fn with_root_credentials(self) -> Self {
        self.env("GABLE_ROOT_PASSWORD", ROOT_PASSWORD).env("GABLE_ROOT_TOKEN", ROOT_TOKEN)
    }

    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.0.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    /// Starts a server and waits until it is ready.
    pub(crate) fn start(self) -> ServerProcess {
        let mut server = self.spawn();
        let start = Instant::now();
        loop {
            // Checked before the output is read, so that the last output is not missed.
            let ended = server.child.try_wait().expect("a child can be asked").is_some();
            let output = server.stdout();
            let ready = output.lines().find_map(|line| line.strip_prefix("gable ready on "));
            if let (Some(url), true) = (ready, output.ends_with('\n')) {
                let (url, ssh_url) = url.split_once(" and ").map_or((url, None), |(url, ssh)| (url, Some(ssh)));
                server.url = url.to_owned();
                server.ssh_url = ssh_url.map(ToOwned::to_owned);
                return server;
            }
            assert!(!ended && start.elapsed() < WAIT_TIMEOUT, "not ready: {output}{}", server.stderr());
            thread::sleep(Duration::from_millis(3));
        }
    }

    /// Runs the command to its end.
    pub(crate) fn finish(self) -> ProcessOutput {
        self.spawn().wait()
    }

    /// Runs the command with a closed standard output; returns the exit status and the standard error.
    pub(crate) fn finish_with_closed_stdout(mut self) -> (Option<i32>, String) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = self.0.stdout(writer).output().expect("the program runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs the command with the given standard input.
    pub(crate) fn finish_with_stdin(mut self, input: &str) -> ProcessOutput {
        self.0.stdin(Stdio::piped());
        let mut running = self.spawn();
        let mut stdin = running.child.stdin.take().expect("standard input is piped");
        // A command that fails before it reads closes the pipe.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        running.wait()
    }

    /// Starts the process without waiting until it is ready.
    pub(crate) fn spawn(mut self) -> ServerProcess {
        let mut child = self.0.spawn().expect("the program starts");
        let stdout = OutputCapture::start(child.stdout.take().expect("standard output is piped"));
        let stderr = OutputCapture::start(child.stderr.take().expect("standard error is piped"));
        ServerProcess { child, stdout, stderr, url: String::new(), ssh_url: None }
    }
}

impl ServerProcess {
    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Returns a client with `ROOT_TOKEN`.
    pub(crate) fn root(&self) -> HttpClient {
        self.client(ROOT_TOKEN)
    }

    pub(crate) fn client(&self, token: &str) -> HttpClient {
        HttpClient { token: Some(token.to_owned()), ..self.anonymous() }
    }

    pub(crate) fn anonymous(&self) -> HttpClient {
        self.client_with(ureq::Agent::config_builder())
    }

    /// Returns a client that shows redirects.
    pub(crate) fn anonymous_without_redirects(&self) -> HttpClient {
        self.client_with(ureq::Agent::config_builder().max_redirects(0))
    }

    fn client_with(&self, config: ureq::config::ConfigBuilder<ureq::typestate::AgentScope>) -> HttpClient {
        let config = config
            .http_status_as_error(false)
            .timeout_global(Some(WAIT_TIMEOUT))
            // Ignores a proxy of the environment.
            .proxy(None)
            .build();
        HttpClient { agent: config.into(), url: self.url.clone(), token: None }
    }

    /// Returns the host and port.
    pub(crate) fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Sends a signal by its short name.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -s {name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(sent.success(), "{kill}");
    }

    /// Returns the peak memory usage in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running process");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak.and_then(|kilobytes| kilobytes.parse::<u64>().ok()).expect("a number") << 10
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn stop(self) -> ProcessOutput {
        self.signal("TERM");
        self.wait()
    }

    /// Sends SIGKILL and waits for the exit.
    pub(crate) fn kill(mut self) -> ProcessOutput {
        self.child.kill().expect("a child can be killed");
        self.wait()
    }

    /// Waits for the exit.
    pub(crate) fn wait(mut self) -> ProcessOutput {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                break status.code();
            }
            assert!(start.elapsed() < WAIT_TIMEOUT, "still running: {}{}", self.stdout(), self.stderr());
            thread::sleep(Duration::from_millis(3));
        };
        ProcessOutput { status, stdout: self.stdout.read_to_end(), stderr: self.stderr.read_to_end() }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("output of the process:\n{}{}", self.stdout(), self.stderr());
        }
    }
}

impl ProcessOutput {
    /// Asserts success and returns the standard output.
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.status, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Asserts failure with a single line on standard error; returns it without the prefix.
    pub(crate) fn refused(self) -> String {
        assert!(matches!(self.status, Some(1 | 2)), "{:?}: {}{}", self.status, self.stdout, self.stderr);
        assert_eq!(self.stdout, "", "{}", self.stderr);
        let sentence = self.stderr.strip_prefix("gable: ").and_then(|text| text.strip_suffix('\n'));
        let sentence = sentence.unwrap_or_else(|| panic!("not an error message of gable: {}", self.stderr));
        assert!(!sentence.contains('\n'), "more than one line: {sentence}");
        sentence.to_owned()
    }

    /// Returns standard output and standard error.
    pub(crate) fn combined_output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Reads a stream to its end in the background.
struct OutputCapture {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl OutputCapture {
    fn start(mut stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let captured = Arc::clone(&text);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                captured.lock().expect("no panic while locked").extend_from_slice(&buffer[..length]);
            }
        });
        Self { text, thread: Some(thread) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("no panic while locked")).into_owned()
    }

    fn read_to_end(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread does not panic");
        }
        self.text()
    }
}
