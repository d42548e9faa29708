//! What a job uses: its processes, their memory, and the room on disk that its folder takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    io::{self, BufRead as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
    process::Pid,
};

/// What a process is made of, as far as limits are concerned.
struct Process {
    pid: i32,
    parent: i32,
    threads: u64,
    resident: u64,
}

/// What the processes of a job use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processes and threads.
    pub(crate) tasks: u64,
    /// Bytes of memory.
    pub(crate) memory: u64,
}

/// All descendants of a process, without itself; those that have ended and were not waited for are among them.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    tree(root).iter().filter_map(|process| Pid::from_raw(process.pid)).collect()
}

/// What the descendants of a process use. Memory that several processes share counts once if the plain sum exceeds
/// `most_memory`; below that the sum is good enough and much cheaper.
pub(crate) fn of_descendants(root: Pid, most_memory: Option<u64>) -> Usage {
    let processes = tree(root);
    let tasks = processes.iter().map(|process| process.threads).sum();
    let mut memory = processes.iter().map(|process| process.resident).sum();
    if most_memory.is_some_and(|most| memory > most) {
        memory = processes.iter().map(|it| proportional(it.pid).unwrap_or(it.resident)).sum();
    }
    Usage { tasks, memory }
}

/// How many processes and threads a user has.
pub(crate) fn tasks_of_user(uid: u32) -> u64 {
    let mut tasks = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if pid(&entry.file_name()).is_some() && entry.metadata().is_ok_and(|found| found.uid() == uid) {
            tasks += read(&entry.path()).map_or(0, |process| process.threads);
        }
    }
    tasks
}

fn tree(root: Pid) -> Vec<Process> {
    let mut by_parent: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if pid(&entry.file_name()).is_none() {
            continue;
        }
        if let Some(process) = read(&entry.path()) {
            by_parent.entry(process.parent).or_default().push(process);
        }
    }
    let mut open = vec![root.as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(parent) = open.pop() {
        let children = by_parent.remove(&parent).unwrap_or_default();
        open.extend(children.iter().map(|child| child.pid));
        found.extend(children);
    }
    found
}

fn read(process: &Path) -> Option<Process> {
    // The name of a program need not be text.
    let status = fs::read(process.join("status")).ok()?;
    parse(&String::from_utf8_lossy(&status))
}

fn pid(name: &OsStr) -> Option<i32> {
    name.to_str()?.parse().ok()
}

/// Reads `/proc/<pid>/status`. The name of the program, which may hold anything, has a line of its own.
fn parse(status: &str) -> Option<Process> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()
    };
    Some(Process {
        pid: field("Pid")?.parse().ok()?,
        parent: field("PPid")?.parse().ok()?,
        threads: field("Threads")?.parse().ok()?,
        // A process that has ended and was not waited for has no memory.
        resident: field("VmRSS").and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024,
    })
}

/// The memory of a process, in which shared pages count in proportion to how many share them.
fn proportional(pid: i32) -> Option<u64> {
    let file = fs::File::open(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let lines = io::BufReader::new(file).lines().map_while(Result::ok);
    let line = lines.into_iter().find(|line| line.starts_with("Pss:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// What a folder takes on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    /// Whether there are folders whose path is too long to be opened.
    pub(crate) too_deep: bool,
}

/// Measures a folder without following links. The walk ends early once there are more than this many entries.
pub(crate) fn of_folder(path: &Path, most_entries: u64) -> io::Result<Taken> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty())?;
    let mut taken = Taken::default();
    let mut linked = BTreeSet::new();
    let mut open = vec![PathBuf::from(".")];
    while let Some(folder) = open.pop() {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = match rustix::fs::openat2(&root, &folder, flags, Mode::empty(), beneath) {
            Ok(fd) => fd,
            Err(Errno::NAMETOOLONG) => {
                taken.too_deep = true;
                continue;
            }
            // It is gone, or it is locked against its owner.
            Err(_) => continue,
        };
        for entry in Dir::read_from(&fd)?.flatten() {
            let name = entry.file_name();
            if name.to_bytes() == b"." || name.to_bytes() == b".." {
                continue;
            }
            taken.entries += 1;
            let Ok(found) = rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(found.st_mode).is_dir() {
                open.push(folder.join(OsStr::from_bytes(name.to_bytes())));
            } else if found.st_nlink > 1 && !linked.insert((found.st_dev, found.st_ino)) {
                continue;
            }
            taken.bytes += u64::try_from(found.st_blocks).unwrap_or(0) * 512;
            if taken.entries > most_entries {
                return Ok(taken);
            }
        }
    }
    Ok(taken)
}

/// What files take on the disk of a folder that have no name any more and that descendants of a process keep open.
pub(crate) fn of_unnamed_files(root: Pid, folder: &Path) -> u64 {
    let Ok(device) = fs::metadata(folder).map(|found| found.dev()) else { return 0 };
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    for process in tree(root) {
        for entry in fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten() {
            let Ok(found) = fs::metadata(entry.path()) else { continue };
            if found.is_file() && found.nlink() == 0 && found.dev() == device && seen.insert(found.ino()) {
                bytes += found.blocks() * 512;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let status =
            "Name:\tPPid: 9\nUmask:\t0022\nState:\tS\nTgid:\t42\nPid:\t42\nPPid:\t7\nVmRSS:\t  100 kB\nThreads:\t3\n";
        let process = parse(status).expect("read");
        assert_eq!((process.pid, process.parent, process.threads, process.resident), (42, 7, 3, 102_400));
        assert!(parse("nothing").is_none());
    }

    #[test]
    fn descendants_are_counted_with_their_threads_and_memory() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "sleep 1000 & echo; wait"]).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut line = String::new();
        io::BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it has begun");
        let shell = Pid::from_raw(child.id().cast_signed()).expect("a number");
        let inner = descendants(shell);
        let usage = of_descendants(shell, None);
        for pid in &inner {
            rustix::process::kill_process(*pid, rustix::process::Signal::KILL).expect("killed");
        }
        child.wait().expect("ended");
        assert_eq!((inner.len(), usage.tasks), (1, 1));
        assert!(usage.memory > 0 && tasks_of_user(rustix::process::getuid().as_raw()) >= 1);
    }

    #[test]
    fn a_folder_is_measured_without_following_links() {
        let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        fs::write(other.path().join("large"), vec![1; 1 << 20]).expect("written");
        std::os::unix::fs::symlink(other.path(), folder.path().join("way")).expect("linked");
        fs::create_dir_all(folder.path().join("a/b")).expect("made");
        fs::write(folder.path().join("a/b/file"), vec![1; 100_000]).expect("written");
        fs::hard_link(folder.path().join("a/b/file"), folder.path().join("again")).expect("linked");
        let taken = of_folder(folder.path(), 100).expect("measured");
        assert!(taken.bytes >= 100_000 && taken.bytes < 200_000, "{taken:?}");
        assert_eq!((taken.entries, taken.too_deep), (5, false));
        assert_eq!(of_folder(folder.path(), 2).expect("measured").entries, 3);
    }
}
