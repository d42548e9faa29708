//! Resource usage of a job: its processes, their memory, and the disk space of its folder.

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

/// The state of a process.
struct Process {
    pid: i32,
    parent: i32,
    threads: u64,
    resident: u64,
}

/// The total usage of the processes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessUsage {
    /// Processes and threads.
    pub(crate) tasks: u64,
    /// Bytes of memory.
    pub(crate) memory: u64,
}

/// Returns all descendants of a process, including zombies.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    process_tree(root).iter().filter_map(|process| Pid::from_raw(process.pid)).collect()
}

/// Returns the usage of the descendants of a process. If the plain sum of memory exceeds `memory_limit`, shared memory
/// is counted once; otherwise the cheaper sum is precise enough.
pub(crate) fn descendant_usage(root: Pid, memory_limit: Option<u64>) -> ProcessUsage {
    let processes = process_tree(root);
    let tasks = processes.iter().map(|process| process.threads).sum();
    let mut memory = processes.iter().map(|process| process.resident).sum();
    if memory_limit.is_some_and(|limit| memory > limit) {
        memory = processes.iter().map(|it| proportional_memory(it.pid).unwrap_or(it.resident)).sum();
    }
    ProcessUsage { tasks, memory }
}

/// Returns the number of processes and threads of a user.
pub(crate) fn tasks_of_user(uid: u32) -> u64 {
    let mut tasks = 0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if pid(&entry.file_name()).is_some() && entry.metadata().is_ok_and(|metadata| metadata.uid() == uid) {
            tasks += read_process(&entry.path()).map_or(0, |process| process.threads);
        }
    }
    tasks
}

fn process_tree(root: Pid) -> Vec<Process> {
    let mut by_parent: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if pid(&entry.file_name()).is_none() {
            continue;
        }
        if let Some(process) = read_process(&entry.path()) {
            by_parent.entry(process.parent).or_default().push(process);
        }
    }
    let mut pending = vec![root.as_raw_nonzero().get()];
    let mut processes = Vec::new();
    while let Some(parent) = pending.pop() {
        let children = by_parent.remove(&parent).unwrap_or_default();
        pending.extend(children.iter().map(|child| child.pid));
        processes.extend(children);
    }
    processes
}

fn read_process(process: &Path) -> Option<Process> {
    // The name of a program need not be UTF-8.
    let status = fs::read(process.join("status")).ok()?;
    parse_status(&String::from_utf8_lossy(&status))
}

fn pid(name: &OsStr) -> Option<i32> {
    name.to_str()?.parse().ok()
}

/// Parses `/proc/<pid>/status`. The name of the program, which may contain anything, has its own line.
fn parse_status(status: &str) -> Option<Process> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()
    };
    Some(Process {
        pid: field("Pid")?.parse().ok()?,
        parent: field("PPid")?.parse().ok()?,
        threads: field("Threads")?.parse().ok()?,
        // A zombie has no memory.
        resident: field("VmRSS").and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024,
    })
}

/// Returns the memory of a process, with shared pages divided by the number of processes sharing them.
fn proportional_memory(pid: i32) -> Option<u64> {
    let file = fs::File::open(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let lines = io::BufReader::new(file).lines().map_while(Result::ok);
    let line = lines.into_iter().find(|line| line.starts_with("Pss:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The disk usage of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FolderUsage {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    /// Whether there are folders whose path is too long to open.
    pub(crate) too_deep: bool,
}

/// Measures a folder without following links. Stops early after more than `max_entries` entries.
pub(crate) fn folder_usage(path: &Path, max_entries: u64) -> io::Result<FolderUsage> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty())?;
    let mut usage = FolderUsage::default();
    let mut linked = BTreeSet::new();
    let mut pending = vec![PathBuf::from(".")];
    while let Some(folder) = pending.pop() {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = match rustix::fs::openat2(&root, &folder, flags, Mode::empty(), beneath) {
            Ok(fd) => fd,
            Err(Errno::NAMETOOLONG) => {
                usage.too_deep = true;
                continue;
            }
            // Removed meanwhile, or not readable.
            Err(_) => continue,
        };
        for entry in Dir::read_from(&fd)?.flatten() {
            let name = entry.file_name();
            if name.to_bytes() == b"." || name.to_bytes() == b".." {
                continue;
            }
            usage.entries += 1;
            let Ok(metadata) = rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(metadata.st_mode).is_dir() {
                pending.push(folder.join(OsStr::from_bytes(name.to_bytes())));
            } else if metadata.st_nlink > 1 && !linked.insert((metadata.st_dev, metadata.st_ino)) {
                continue;
            }
            usage.bytes += u64::try_from(metadata.st_blocks).unwrap_or(0) * 512;
            if usage.entries > max_entries {
                return Ok(usage);
            }
        }
    }
    Ok(usage)
}

/// Returns the disk usage of unlinked files that descendants of a process hold open on the file system of a folder.
pub(crate) fn unlinked_file_bytes(root: Pid, folder: &Path) -> u64 {
    let Ok(device) = fs::metadata(folder).map(|metadata| metadata.dev()) else { return 0 };
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    for process in process_tree(root) {
        for entry in fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten() {
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            if metadata.is_file() && metadata.nlink() == 0 && metadata.dev() == device && seen.insert(metadata.ino()) {
                bytes += metadata.blocks() * 512;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_may_contain_anything() {
        let status =
            "Name:\tPPid: 9\nUmask:\t0022\nState:\tS\nTgid:\t42\nPid:\t42\nPPid:\t7\nVmRSS:\t  100 kB\nThreads:\t3\n";
        let process = parse_status(status).expect("read");
        assert_eq!((process.pid, process.parent, process.threads, process.resident), (42, 7, 3, 102_400));
        assert!(parse_status("nothing").is_none());
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
        let usage = descendant_usage(shell, None);
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
        let usage = folder_usage(folder.path(), 100).expect("measured");
        assert!(usage.bytes >= 100_000 && usage.bytes < 200_000, "{usage:?}");
        assert_eq!((usage.entries, usage.too_deep), (5, false));
        assert_eq!(folder_usage(folder.path(), 2).expect("measured").entries, 3);
    }
}
