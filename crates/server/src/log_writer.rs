//! Writes log lines to standard error, the lines of the access log in bundles.
//!
//! A system call for each answered request is a noticeable part of what the request costs. So these lines wait for a tenth
//! of a second at most; everything else is written at once, and takes with it what waits.

use std::{
    io::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// How long a line may wait, and how much may wait with it.
const PAUSE: Duration = Duration::from_millis(100);
const MOST: usize = 64 * 1024;

/// The place where log lines go.
#[derive(Clone, Default)]
pub(crate) struct LogWriter(Arc<Mutex<Vec<u8>>>);

impl LogWriter {
    /// Starts the thread that empties the buffer now and then.
    pub(crate) fn start() -> Self {
        let writer = Self::default();
        let emptied = writer.clone();
        let spawned = thread::Builder::new().name("log".into()).spawn(move || {
            loop {
                thread::sleep(PAUSE);
                emptied.flush();
            }
        });
        drop(spawned.expect("the operating system grants a thread"));
        writer
    }

    /// Adds a line that may wait.
    pub(crate) fn put(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        waiting.extend_from_slice(line);
        if waiting.len() > MOST {
            write_out(&mut waiting);
        }
    }

    /// Writes what waits.
    pub(crate) fn flush(&self) {
        write_out(&mut self.waiting());
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A standard error that is closed is no reason to stop.
fn write_out(waiting: &mut Vec<u8>) {
    if !waiting.is_empty() {
        let _ = io::stderr().lock().write_all(waiting);
        waiting.clear();
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(self.waiting())
    }
}

/// A line that does not wait.
pub(crate) struct Line<'a>(MutexGuard<'a, Vec<u8>>);

impl io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        write_out(&mut self.0);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
