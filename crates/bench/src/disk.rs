//! Speed of the disk, without a server.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::closed_loop::Measurement;

/// The number of pages of the file, about the size of SQLite's write-ahead log.
const PAGES: u64 = 1000;
const PAGE: [u8; 4096] = [7; 4096];

/// Repeatedly writes and syncs a page, as a database does at each commit.
pub(crate) fn measure(folder: &Path, time: Duration) -> Result<Measurement> {
    let path = folder.join("pages");
    let measured = write_pages(&path, time).with_context(|| format!("cannot write to {}", path.display()));
    let _ = fs::remove_file(&path);
    measured
}

fn write_pages(path: &Path, time: Duration) -> io::Result<Measurement> {
    let file = File::create(path)?;
    // Growing a file involves the journal of the file system; overwriting a log does not.
    for page in 0..PAGES {
        file.write_all_at(&PAGE, page * 4096)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    let mut measured = Measurement::default();
    for page in (0..PAGES).cycle() {
        let before = Instant::now();
        if before.duration_since(start) >= time {
            break;
        }
        file.write_all_at(&PAGE, page * 4096)?;
        file.sync_data()?;
        measured.push(before.elapsed());
    }
    Ok(measured)
}
