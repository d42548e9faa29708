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

use tracing::{Level, Metadata};
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
        Line { waiting: self.waiting(), may_wait: false }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Self::Writer {
        Line { waiting: self.waiting(), may_wait: *of.level() == Level::INFO && of.target() == "api::access_log" }
    }
}

/// One line on its way.
pub(crate) struct Line<'a> {
    waiting: MutexGuard<'a, Vec<u8>>,
    may_wait: bool,
}

impl io::Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if !self.may_wait || self.waiting.len() > MOST {
            write_out(&mut self.waiting);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
