//! Simulates disk faults: a full disk, and power cuts after which unsynced changes are kept, lost or torn.
//!
//! A small C library is preloaded into a program and its child processes and intercepts their calls on one folder. So no
//! special file system, privileges or reboots are needed.

mod journal;
mod power;

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

pub use power::{DurabilityModel, PowerLoss};

/// How long processes may take to exit after the power cut.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The size of the memory page that is shared with the library.
const CONTROL_PAGE_SIZE: u64 = 4096;

/// The fields of that page, in the order of `struct control` in `shim.c`.
#[derive(Clone, Copy)]
enum ControlField {
    PowerIsCut = 1,
    CallsUntilCut = 2,
    Space = 3,
    Calls = 4,
    Refused = 5,
    Journal = 7,
    Full = 9,
}

/// The offset of the field `full_path_filter`, and the maximum length of its value.
const FULL_PATH_FILTER: (u64, usize) = (80, 47);

/// The compiled library for one watched folder.
pub struct FaultInjector {
    folder: PathBuf,
    root: PathBuf,
    session_count: u32,
}

/// The faults of one run of a program.
pub struct FaultSession {
    folder: PathBuf,
    library: PathBuf,
    root: PathBuf,
    control: File,
}

impl FaultInjector {
    /// Compiles the library and stores its files in a folder, which must be on the same disk as the watched one and
    /// outside of it.
    pub fn new(root: &Path, folder: &Path) -> Self {
        fs::create_dir_all(root).expect("the watched folder");
        fs::create_dir_all(folder).expect("a folder for the library");
        let (root, folder) = (root.canonicalize().expect("a path"), folder.canonicalize().expect("a path"));
        assert!(!folder.starts_with(&root), "the library must be outside the watched folder");
        let source = folder.join("shim.c");
        let text = concat!(include_str!("faults/shim.c"), include_str!("faults/calls.c"));
        fs::write(&source, text).expect("the source");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
        let compiled = compile.arg(library(&folder)).arg(&source).args(["-ldl", "-pthread"]).status();
        assert!(compiled.expect("a C compiler; install gcc or clang").success(), "the library does not compile");
        Self { folder, root, session_count: 0 }
    }

    /// Starts a session in which only the disk can be full.
    pub fn start_session(&mut self) -> FaultSession {
        self.begin(false)
    }

    /// Starts a session in which the power can be cut. It records a journal and serializes calls, which takes time.
    pub fn start_journaled_session(&mut self) -> FaultSession {
        self.begin(true)
    }

    fn begin(&mut self, journal: bool) -> FaultSession {
        self.session_count += 1;
        let folder = self.folder.join(format!("session-{}", self.session_count));
        fs::create_dir_all(folder.join("unlinked")).expect("a folder");
        for name in ["journal", "alive"] {
            File::create(folder.join(name)).expect("a file");
        }
        let control = File::options().read(true).write(true).create_new(true).open(folder.join("control"));
        let control = control.expect("a page");
        control.set_len(CONTROL_PAGE_SIZE).expect("a page");
        let session = FaultSession { folder, library: library(&self.folder), root: self.root.clone(), control };
        session.set(ControlField::CallsUntilCut, -1);
        session.set(ControlField::Space, -1);
        session.set(ControlField::Journal, journal.into());
        session
    }
}

fn library(folder: &Path) -> PathBuf {
    folder.join("shim.so")
}

impl FaultSession {
    /// Returns the environment variables of the program.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_str().expect("a readable path").to_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("TESTKIT_FAULTS", text(&self.folder)),
            ("TESTKIT_FAULTS_ROOT", text(&self.root)),
        ]
    }

    /// Cuts the power after a number of further calls that change or sync something.
    pub fn cut_power_after(&self, calls: u64) {
        self.set(ControlField::CallsUntilCut, i64::try_from(calls).expect("not that many"));
    }

    /// Cuts the power now: a process that tries to write is killed.
    pub fn cut_power(&self) {
        self.set(ControlField::PowerIsCut, 1);
    }

    /// Returns whether the power is cut.
    pub fn is_power_cut(&self) -> bool {
        self.get(ControlField::PowerIsCut) != 0
    }

    /// Returns the number of calls that changed or synced something; counted in journaled sessions only.
    pub fn calls(&self) -> u64 {
        u64::try_from(self.get(ControlField::Calls)).unwrap_or_default()
    }

    /// Limits the free space to a number of bytes.
    pub fn limit_space(&self, bytes: u64) {
        self.set(ControlField::Space, i64::try_from(bytes).expect("not that many"));
    }

    /// Makes every write fail, even overwriting existing bytes.
    pub fn fill_disk(&self) {
        self.fill_disk_for("");
    }

    /// Makes every write to files fail whose paths contain a text.
    pub fn fill_disk_for(&self, text: &str) {
        assert!(text.len() <= FULL_PATH_FILTER.1, "{text} is too long");
        let mut bytes = [0; FULL_PATH_FILTER.1 + 1];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        self.control.write_all_at(&bytes, FULL_PATH_FILTER.0).expect("the page");
        self.set(ControlField::Full, 1);
    }

    /// Removes all limits on free space.
    pub fn free_space(&self) {
        self.set(ControlField::Space, -1);
        self.set(ControlField::Full, 0);
    }

    /// Returns the number of calls that failed because the disk was full.
    pub fn refused_calls(&self) -> u64 {
        u64::try_from(self.get(ControlField::Refused)).unwrap_or_default()
    }

    /// Waits for all processes of the session and removes its files.
    pub fn finish(self) {
        self.wait_for_last_process();
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Cuts the power, waits for all processes, and changes the folder to a state that the power cut could leave, chosen
    /// by the seed.
    pub fn apply_power_loss(self, seed: u64, model: DurabilityModel) -> PowerLoss {
        self.cut_power();
        self.wait_for_last_process();
        let entries = journal::read(&self.folder.join("journal"));
        let lost = power::apply(&self.root, &self.folder.join("unlinked"), &entries, seed, model);
        let _ = fs::remove_dir_all(&self.folder);
        lost
    }

    /// Child processes may outlive the program for a moment.
    fn wait_for_last_process(&self) {
        let alive = File::options().write(true).open(self.folder.join("alive")).expect("the lock file");
        let start = Instant::now();
        while alive.try_lock().is_err() {
            assert!(start.elapsed() < EXIT_TIMEOUT, "a process survives the power cut");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn get(&self, field: ControlField) -> i64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, field as u64 * 8).expect("the page");
        i64::from_ne_bytes(bytes)
    }

    fn set(&self, field: ControlField, value: i64) {
        self.control.write_all_at(&value.to_ne_bytes(), field as u64 * 8).expect("the page");
    }
}

#[cfg(test)]
mod tests;
