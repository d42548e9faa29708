//! What a job says: kept in a file until the server has all of it, and cut where it becomes too long.

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
    inner: Mutex<Inner>,
    grown: Notify,
    limit: u64,
}

struct Inner {
    file: File,
    length: u64,
    cut: bool,
}

impl Trace {
    /// An empty trace whose file has no name, so that nobody else finds it and a crash leaves nothing.
    pub(crate) fn new(folder: &Path, limit: u64) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        Ok(Self { inner: Mutex::new(Inner { file, length: 0, cut: false }), grown: Notify::new(), limit })
    }

    /// Adds what was said; beyond the limit one line says so, and nothing more is kept.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.cut || bytes.is_empty() {
            return;
        }
        let room = usize::try_from(self.limit.saturating_sub(inner.length)).unwrap_or(usize::MAX);
        if bytes.len() <= room {
            inner.add(bytes);
        } else {
            inner.add(&bytes[..room]);
            let words = format!(
                "\n{YELLOW}The output was longer than {} bytes and is cut here; the job goes on.{PLAIN}\n",
                self.limit
            );
            inner.add(words.as_bytes());
            inner.cut = true;
        }
        drop(inner);
        self.grown.notify_one();
    }

    /// A line of the runner's own.
    pub(crate) fn say(&self, text: &str) {
        self.write(format!("{text}{PLAIN}\n").as_bytes());
    }

    /// A line that tells of something going well.
    pub(crate) fn cheer(&self, text: &str) {
        self.write(format!("{GREEN}{text}{PLAIN}\n").as_bytes());
    }

    /// A line that is no reason to fail.
    pub(crate) fn warn(&self, text: &str) {
        self.write(format!("{YELLOW}WARNING: {text}{PLAIN}\n").as_bytes());
    }

    /// A line that tells why the job fails.
    pub(crate) fn complain(&self, text: &str) {
        self.write(format!("{RED}ERROR: {text}{PLAIN}\n").as_bytes());
    }

    pub(crate) fn length(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).length
    }

    /// Some of what stands from this place on.
    pub(crate) fn read(&self, from: u64, most: usize) -> io::Result<Vec<u8>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let length = usize::try_from(inner.length.saturating_sub(from)).unwrap_or(usize::MAX).min(most);
        let mut piece = vec![0; length];
        inner.file.read_exact_at(&mut piece, from)?;
        Ok(piece)
    }

    /// Waits until there is something beyond this place.
    pub(crate) async fn beyond(&self, place: u64) {
        while self.length() <= place {
            self.grown.notified().await;
        }
    }
}

impl Inner {
    fn add(&mut self, bytes: &[u8]) {
        // A full disk loses words, not the job.
        if self.file.write_all(bytes).is_ok() {
            self.length += bytes.len() as u64;
        } else {
            self.cut = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_cut_once_and_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = Trace::new(folder.path(), 10).expect("a trace");
        trace.write(b"12345678");
        trace.write(b"90abc");
        trace.write(b"never seen");
        let text = String::from_utf8(trace.read(0, 1000).expect("read")).expect("text");
        assert!(text.starts_with("1234567890\n") && !text.contains("abc") && !text.contains("never"), "{text}");
        assert_eq!(text.matches("longer than 10 bytes").count(), 1);
        assert_eq!(trace.read(2, 3).expect("read"), b"345");
    }
}
