//! Tests of a runner against a fake server.

mod failures;
mod fake_server;
mod isolation;
mod network;
mod registrations;
mod successful_jobs;
mod supervisor;

use std::{sync::Arc, time::Duration};

use fake_server::{FakeServer, RUNNER_TOKEN};
use runner::{Connection, Error, Isolation, Options};
use tokio::{sync::watch, task::JoinHandle};

/// A running runner with its server.
pub(crate) struct RunnerFixture {
    pub(crate) server: Arc<FakeServer>,
    pub(crate) folder: tempfile::TempDir,
    stop_sender: watch::Sender<bool>,
    runner: JoinHandle<Result<(), Error>>,
}

impl RunnerFixture {
    /// Starts a runner without isolation, which works on every machine.
    pub(crate) async fn start() -> Self {
        Self::start_with(|options| options.isolation = Isolation::None).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        let server = FakeServer::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        // The user that runs jobs may have to traverse it.
        let passable = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(folder.path(), passable).expect("set");
        let supervisor = vec![env!("CARGO_BIN_EXE_supervise").into()];
        let mut options = Options::new(folder.path().join("runner"), supervisor);
        options.timing.poll_interval = Duration::from_millis(50);
        options.timing.trace_interval = Duration::from_millis(20);
        options.timing.keep_alive_interval = Duration::from_millis(100);
        options.timing.retry_delay = Duration::from_millis(20);
        options.timing.max_retry_delay = Duration::from_millis(200);
        options.timing.max_attempts = 1000;
        change(&mut options);
        let (stop_sender, stopped) = watch::channel(false);
        let connection = Connection { url: server.url.clone(), token: RUNNER_TOKEN.to_owned(), clone_source: None };
        let runner = runner::prepare(options).await.unwrap_or_else(|error| panic!("the runner is not ready: {error}"));
        let runner = tokio::spawn(runner.run(connection, stopped));
        Self { server, folder, stop_sender, runner }
    }

    pub(crate) fn request_stop(&self) {
        let _ = self.stop_sender.send(true);
    }

    /// Stops the runner; checks that no job folders are left and that the server recorded no protocol errors.
    pub(crate) async fn stop(self) {
        self.request_stop();
        let ended = tokio::time::timeout(Duration::from_secs(120), self.runner).await.expect("ended in time");
        ended.expect("no panic").expect("no error");
        let left: Vec<_> =
            std::fs::read_dir(self.folder.path().join("runner/builds")).expect("read").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.server.protocol_errors(), Vec::<String>::new());
    }
}

/// Returns a line that fails the job if a command succeeds.
pub(crate) fn must_fail(command: &str) -> String {
    format!("if {command}; then echo this should not work; exit 77; fi")
}
