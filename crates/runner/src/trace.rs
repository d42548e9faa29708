//! The output of a job: buffered in a file until the server has received it, and truncated at a limit.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

const RED: &str = "\x1b[31;1m";
const GREEN: &str = "\x1b[32;1m";
const YELLOW: &str = "\x1b[0;33m";
const PLAIN: &str = "\x1b[0;m";

/// The trace of one job.
pub(crate) struct Trace {
    state: Mutex<TraceState>,
    grown: Notify,
    limit: u64,
}

struct TraceState {
    file: File,
    length: u64,
    truncated: bool,
}

impl Trace {
    /// Creates an empty trace in an unnamed file, which no other process can open and a crash does not leave behind.
    pub(crate) fn new(folder: &Path, limit: u64) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        Ok(Self { state: Mutex::new(TraceState { file, length: 0, truncated: false }), grown: Notify::new(), limit })
    }

    /// Appends output; beyond the limit one notice is appended and the rest is discarded.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.truncated || bytes.is_empty() {
            return;
        }
        let remaining = usize::try_from(self.limit.saturating_sub(state.length)).unwrap_or(usize::MAX);
        if bytes.len() <= remaining {
            state.add(bytes);
        } else {
            state.add(&bytes[..remaining]);
            let notice = format!(
                "\n{YELLOW}The output exceeds {} bytes and is truncated here; the job continues.{PLAIN}\n",
                self.limit
            );
            state.add(notice.as_bytes());
            state.truncated = true;
        }
        drop(state);
        self.grown.notify_one();
    }

    /// Appends a line of the runner.
    pub(crate) fn write_line(&self, text: &str) {
        self.write(format!("{text}{PLAIN}\n").as_bytes());
    }

    /// Appends a highlighted line of the runner.
    pub(crate) fn write_heading(&self, text: &str) {
        self.write(format!("{GREEN}{text}{PLAIN}\n").as_bytes());
    }

    /// Appends a warning.
    pub(crate) fn write_warning(&self, text: &str) {
        self.write(format!("{YELLOW}WARNING: {text}{PLAIN}\n").as_bytes());
    }

    /// Appends the reason of a failure.
    pub(crate) fn write_error(&self, text: &str) {
        self.write(format!("{RED}ERROR: {text}{PLAIN}\n").as_bytes());
    }

    pub(crate) fn length(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).length
    }

    /// Reads a chunk of the trace from this offset.
    pub(crate) fn read(&self, from: u64, max_bytes: usize) -> io::Result<Vec<u8>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let length = usize::try_from(state.length.saturating_sub(from)).unwrap_or(usize::MAX).min(max_bytes);
        let mut chunk = vec![0; length];
        state.file.read_exact_at(&mut chunk, from)?;
        Ok(chunk)
    }

    /// Waits until the trace is longer than this offset.
    pub(crate) async fn wait_beyond(&self, offset: u64) {
        while self.length() <= offset {
            self.grown.notified().await;
        }
    }
}

impl TraceState {
    fn add(&mut self, bytes: &[u8]) {
        // A full disk loses output but does not fail the job.
        if self.file.write_all(bytes).is_ok() {
            self.length += bytes.len() as u64;
        } else {
            self.truncated = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_truncated_with_one_notice() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = Trace::new(folder.path(), 10).expect("a trace");
        trace.write(b"12345678");
        trace.write(b"90abc");
        trace.write(b"never stored");
        let text = String::from_utf8(trace.read(0, 1000).expect("read")).expect("text");
        assert!(text.starts_with("1234567890\n") && !text.contains("abc") && !text.contains("never"), "{text}");
        assert_eq!(text.matches("exceeds 10 bytes").count(), 1);
        assert_eq!(trace.read(2, 3).expect("read"), b"345");
    }
}
