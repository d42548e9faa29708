//! Writes log lines to standard error; lines of the access log are buffered.
//!
//! A system call per request is noticeable, so access log lines are buffered for up to a tenth of a second. Other lines are
//! written at once, after what is buffered.

use std::{
    io::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// The maximum time that a line is buffered, and the maximum size of the buffer.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
const MAX_BUFFERED_BYTES: usize = 64 * 1024;

/// A buffered writer to standard error.
#[derive(Clone, Default)]
pub(crate) struct LogWriter(Arc<Mutex<Vec<u8>>>);

impl LogWriter {
    /// Starts the thread that flushes the buffer periodically.
    pub(crate) fn start() -> Self {
        let writer = Self::default();
        let flushed = writer.clone();
        let spawned = thread::Builder::new().name("log".into()).spawn(move || {
            loop {
                thread::sleep(FLUSH_INTERVAL);
                flushed.flush();
            }
        });
        drop(spawned.expect("the operating system grants a thread"));
        writer
    }

    /// Adds a line to the buffer.
    pub(crate) fn write_buffered(&self, line: &[u8]) {
        let mut buffer = self.buffer();
        buffer.extend_from_slice(line);
        if buffer.len() > MAX_BUFFERED_BYTES {
            write_all_to_stderr(&mut buffer);
        }
    }

    /// Writes the buffer.
    pub(crate) fn flush(&self) {
        write_all_to_stderr(&mut self.buffer());
    }

    fn buffer(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Errors are ignored: standard error may be closed.
fn write_all_to_stderr(buffer: &mut Vec<u8>) {
    if !buffer.is_empty() {
        let _ = io::stderr().lock().write_all(buffer);
        buffer.clear();
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = UnbufferedLine<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        UnbufferedLine(self.buffer())
    }
}

/// A line that is written at once.
pub(crate) struct UnbufferedLine<'a>(MutexGuard<'a, Vec<u8>>);

impl io::Write for UnbufferedLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        write_all_to_stderr(&mut self.0);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
