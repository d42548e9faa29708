//! How fast the disk is on its own.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

use crate::{Outcome, load::Measured};

/// How many pages the file has, about as many as SQLite's log before it starts from the top again.
const PAGES: u64 = 1000;
const PAGE: [u8; 4096] = [7; 4096];

/// Writes a page and waits until it is on the disk, again and again, as a database does at each commit.
pub(crate) fn measure(folder: &Path, time: Duration) -> Outcome<Measured> {
    let path = folder.join("pages");
    let measured = write_pages(&path, time).map_err(|error| format!("cannot write to {}: {error}", path.display()));
    let _ = fs::remove_file(&path);
    measured
}

fn write_pages(path: &Path, time: Duration) -> io::Result<Measured> {
    let file = File::create(path)?;
    // A file that grows needs the journal of the file system as well; a log that is used again does not.
    for page in 0..PAGES {
        file.write_all_at(&PAGE, page * 4096)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    let mut measured = Measured::default();
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
