//! A disk that fails: it fills up in the middle of something, or its power is cut and what was not synced is lost, kept or
//! torn.
//!
//! A small library is loaded before the others of a program and of all programs that it starts. It stands between them
//! and one folder. So nothing is asked of the machine: no file system of its own, no rights, no reboot.

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

pub use power::{Lost, Model};

/// How long programs may take to notice that their power is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// The size of the page through which the library is told what to do.
const PAGE: u64 = 4096;

/// The places in that page; the order is that of `struct control` in `shim.c`.
#[derive(Clone, Copy)]
enum Word {
    Dead = 1,
    Cut = 2,
    Room = 3,
    Calls = 4,
    Refused = 5,
    Journal = 7,
    Full = 9,
}

/// Where the word is of which the paths of files have to have part that cannot be written to, and how long it may be.
const ONLY: (u64, usize) = (80, 47);

/// The library, and the folder that it watches.
pub struct Faults {
    folder: PathBuf,
    root: PathBuf,
    lives: u32,
}

/// One life of a program, from its start to its end.
pub struct Life {
    folder: PathBuf,
    library: PathBuf,
    root: PathBuf,
    control: File,
}

impl Faults {
    /// Compiles the library and keeps everything about it in a folder, which has to be on the same disk as the one that is
    /// watched, and not in it.
    pub fn watching(root: &Path, folder: &Path) -> Self {
        fs::create_dir_all(root).expect("the folder that is watched");
        fs::create_dir_all(folder).expect("a folder for the library");
        let (root, folder) = (root.canonicalize().expect("a path"), folder.canonicalize().expect("a path"));
        assert!(!folder.starts_with(&root), "what watches a folder cannot lie in it");
        let source = folder.join("shim.c");
        let text = concat!(include_str!("faults/shim.c"), include_str!("faults/calls.c"));
        fs::write(&source, text).expect("the source");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
        let compiled = compile.arg(library(&folder)).arg(&source).args(["-ldl", "-pthread"]).status();
        assert!(compiled.expect("a C compiler; install gcc or clang").success(), "the library does not compile");
        Self { folder, root, lives: 0 }
    }

    /// A life in which only room can be short.
    pub fn life(&mut self) -> Life {
        self.begin(false)
    }

    /// A life whose power can be cut. It keeps a journal of what is not on disk yet, which takes time, and a call waits
    /// for the other.
    pub fn mortal_life(&mut self) -> Life {
        self.begin(true)
    }

    fn begin(&mut self, journal: bool) -> Life {
        self.lives += 1;
        let folder = self.folder.join(format!("life-{}", self.lives));
        fs::create_dir_all(folder.join("graves")).expect("a folder");
        for name in ["journal", "alive"] {
            File::create(folder.join(name)).expect("a file");
        }
        let control = File::options().read(true).write(true).create_new(true).open(folder.join("control"));
        let control = control.expect("a page");
        control.set_len(PAGE).expect("a page");
        let life = Life { folder, library: library(&self.folder), root: self.root.clone(), control };
        life.set(Word::Cut, -1);
        life.set(Word::Room, -1);
        life.set(Word::Journal, journal.into());
        life
    }
}

fn library(folder: &Path) -> PathBuf {
    folder.join("shim.so")
}

impl Life {
    /// What the program has to find in its environment.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_str().expect("a readable path").to_owned();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("TESTKIT_FAULTS", text(&self.folder)),
            ("TESTKIT_FAULTS_ROOT", text(&self.root)),
        ]
    }

    /// Cuts the power after so many further calls that change or sync something.
    pub fn cut_after(&self, calls: u64) {
        self.set(Word::Cut, i64::try_from(calls).expect("not that many"));
    }

    /// Cuts the power at once: nothing is written any more, and whoever tries is killed.
    pub fn cut_now(&self) {
        self.set(Word::Dead, 1);
    }

    /// Whether the power is gone.
    pub fn is_cut(&self) -> bool {
        self.get(Word::Dead) != 0
    }

    /// How many calls there were that change or sync something; counted in a mortal life only.
    pub fn calls(&self) -> u64 {
        u64::try_from(self.get(Word::Calls)).unwrap_or_default()
    }

    /// From now on there is room for so many bytes.
    pub fn leave_room(&self, bytes: u64) {
        self.set(Word::Room, i64::try_from(bytes).expect("not that many"));
    }

    /// From now on nothing can be written, not even over what is there.
    pub fn fill(&self) {
        self.fill_only("");
    }

    /// From now on nothing can be written to files with this word in their paths.
    pub fn fill_only(&self, word: &str) {
        assert!(word.len() <= ONLY.1, "{word} is too long");
        let mut bytes = [0; ONLY.1 + 1];
        bytes[..word.len()].copy_from_slice(word.as_bytes());
        self.control.write_all_at(&bytes, ONLY.0).expect("the page");
        self.set(Word::Full, 1);
    }

    /// From now on there is room for everything.
    pub fn free(&self) {
        self.set(Word::Room, -1);
        self.set(Word::Full, 0);
    }

    /// How many calls have found the disk full.
    pub fn refused(&self) -> u64 {
        u64::try_from(self.get(Word::Refused)).unwrap_or_default()
    }

    /// Waits until no program of this life is left, and removes what the library has kept about it.
    pub fn end(self) {
        self.wait_for_the_last();
        let _ = fs::remove_dir_all(&self.folder);
    }

    /// Makes of the folder what a loss of power leaves, once the program is dead. The seed decides what that is.
    pub fn lose_power(self, seed: u64, model: Model) -> Lost {
        self.cut_now();
        self.wait_for_the_last();
        let entries = journal::read(&self.folder.join("journal"));
        let lost = power::lose(&self.root, &self.folder.join("graves"), &entries, seed, model);
        let _ = fs::remove_dir_all(&self.folder);
        lost
    }

    /// Programs that were started by the one that died may be about to notice.
    fn wait_for_the_last(&self) {
        let alive = File::options().write(true).open(self.folder.join("alive")).expect("the lock of the living");
        let start = Instant::now();
        while alive.try_lock().is_err() {
            assert!(start.elapsed() < PATIENCE, "somebody outlives the loss of power");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn get(&self, word: Word) -> i64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, word as u64 * 8).expect("the page");
        i64::from_ne_bytes(bytes)
    }

    fn set(&self, word: Word, value: i64) {
        self.control.write_all_at(&value.to_ne_bytes(), word as u64 * 8).expect("the page");
    }
}

#[cfg(test)]
mod tests;
