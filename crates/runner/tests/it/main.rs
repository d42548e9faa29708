//! Stories of a runner and its server.

mod isolation;
mod network;
mod registrations;
mod server;
mod stories;
mod supervisor;
mod troubles;

use std::{sync::Arc, time::Duration};

use runner::{Connection, Error, Isolation, Options};
use server::{RUNNER, Server};
use tokio::{sync::watch, task::JoinHandle};

/// A runner at work.
pub(crate) struct Working {
    pub(crate) server: Arc<Server>,
    pub(crate) folder: tempfile::TempDir,
    stop: watch::Sender<bool>,
    runner: JoinHandle<Result<(), Error>>,
}

impl Working {
    /// A runner without isolation, which works the same everywhere.
    pub(crate) async fn start() -> Self {
        Self::with(|options| options.isolation = Isolation::None).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let server = Server::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        // Another user may have to pass through.
        let passable = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(folder.path(), passable).expect("set");
        let supervisor = vec![env!("CARGO_BIN_EXE_supervise").into()];
        let mut options = Options::new(folder.path().join("runner"), supervisor);
        options.pace.poll = Duration::from_millis(50);
        options.pace.trace = Duration::from_millis(20);
        options.pace.keep_alive = Duration::from_millis(100);
        options.pace.retry = Duration::from_millis(20);
        options.pace.longest_pause = Duration::from_millis(200);
        options.pace.attempts = 1000;
        change(&mut options);
        let (stop, stopped) = watch::channel(false);
        let connection = Connection { url: server.url.clone(), token: RUNNER.to_owned(), clone_from: None };
        let runner = runner::prepare(options).await.unwrap_or_else(|error| panic!("the runner is not ready: {error}"));
        let runner = tokio::spawn(runner.run(connection, stopped));
        Self { server, folder, stop, runner }
    }

    pub(crate) fn tell_to_stop(&self) {
        let _ = self.stop.send(true);
    }

    /// Waits for the runner's end; all folders of jobs are gone, and the server had nothing to complain about.
    pub(crate) async fn end(self) {
        self.tell_to_stop();
        let ended = tokio::time::timeout(Duration::from_secs(120), self.runner).await.expect("ended in time");
        ended.expect("no panic").expect("no error");
        let left: Vec<_> =
            std::fs::read_dir(self.folder.path().join("runner/builds")).expect("read").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.server.complaints(), Vec::<String>::new());
    }
}

/// A line that fails the job if a command works.
pub(crate) fn must_fail(command: &str) -> String {
    format!("if {command}; then echo this should not work; exit 77; fi")
}
