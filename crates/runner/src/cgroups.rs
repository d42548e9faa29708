//! Control groups (version 2) for jobs, where the system has delegated a part of the tree to this process.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// The group that this process moves to, as a group with groups below it may hold no process itself.
const OWN_GROUP: &str = "gable-main";
/// The controllers that jobs need.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// The part of the tree in which groups of jobs are made.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    parent: PathBuf,
}

impl Cgroups {
    /// Takes over the control group of this process if it was delegated; the error says why that is not possible.
    pub(crate) fn prepare() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let membership = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let group = own_group(&mounts, &membership).ok_or("control groups of version 2 are not mounted")?;
        if !is_delegated(&group) {
            return Err(format!("{} was not delegated to this process", group.display()));
        }
        Self::prepare_in(&group)
    }

    fn prepare_in(group: &Path) -> Result<Self, String> {
        let group = if group.ends_with(OWN_GROUP) { group.parent().unwrap_or(group) } else { group };
        let there = fs::read_to_string(group.join("cgroup.controllers")).map_err(|error| error.to_string())?;
        if let Some(missing) = CONTROLLERS.iter().find(|name| !there.split_whitespace().any(|it| it == **name)) {
            return Err(format!("the controller {missing} is not available in {}", group.display()));
        }
        let own = group.join(OWN_GROUP);
        let made = match fs::create_dir(&own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        let cannot = |error: io::Error| format!("cannot divide {}: {error}", group.display());
        made.and_then(|()| fs::write(own.join("cgroup.procs"), "0")).map_err(cannot)?;
        let wanted = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        if let Err(error) = fs::write(group.join("cgroup.subtree_control"), wanted) {
            let _ = fs::write(group.join("cgroup.procs"), "0");
            let _ = fs::remove_dir(&own);
            return Err(cannot(error));
        }
        let cgroups = Self { parent: group.to_owned() };
        cgroups.remove_stale();
        Ok(cgroups)
    }

    /// Removes groups of jobs whose runner was killed.
    fn remove_stale(&self) {
        for entry in fs::read_dir(&self.parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with("gable-job-")) {
                drop(JobCgroup { path: entry.path() });
            }
        }
    }

    /// A group for one job.
    pub(crate) fn job(&self, name: &str, memory: Option<u64>, processes: Option<u64>) -> io::Result<JobCgroup> {
        let group = JobCgroup { path: self.parent.join(format!("gable-job-{name}")) };
        match fs::create_dir(&group.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if let Some(bytes) = memory {
            fs::write(group.path.join("memory.max"), bytes.to_string())?;
            // Neither is there without swap accounting, and then there is nothing to limit.
            for (file, value) in [("memory.swap.max", "0"), ("memory.oom.group", "1")] {
                match fs::write(group.path.join(file), value) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        if let Some(count) = processes {
            // The supervisor and bubblewrap are in the group as well.
            fs::write(group.path.join("pids.max"), count.saturating_add(4).to_string())?;
        }
        Ok(group)
    }
}

/// The control group of one job; dropped, everything in it is killed and it is removed.
#[derive(Debug)]
pub(crate) struct JobCgroup {
    path: PathBuf,
}

impl JobCgroup {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the kernel has killed a process of the job because its memory was exhausted.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.event("memory.events", "oom_kill")
    }

    /// Whether the job was refused a process because it had too many.
    pub(crate) fn ran_out_of_processes(&self) -> bool {
        self.event("pids.events", "max")
    }

    fn event(&self, file: &str, name: &str) -> bool {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let counted = |line: &str| line.split_once(' ').is_some_and(|(key, count)| key == name && count.trim() != "0");
        text.lines().any(counted)
    }
}

impl Drop for JobCgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        for _ in 0..100 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
        tracing::warn!(group = %self.path.display(), "cannot remove the control group of a job: processes do not end");
    }
}

/// Where the control group of this process lies.
fn own_group(mounts: &str, membership: &str) -> Option<PathBuf> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let fields: Vec<&str> = front.split(' ').collect();
        let (root, place) = (fields.get(3)?, fields.get(4)?);
        if !back.starts_with("cgroup2 ") {
            return None;
        }
        // A container may show a part of the tree only.
        let below = if *root == "/" { path } else { path.strip_prefix(root)? };
        Some(Path::new(place).join(below.trim_start_matches('/')))
    })
}

/// Whether a service manager has given this group away, or it belongs to the user who runs this.
fn is_delegated(group: &Path) -> bool {
    let marked = |name: &str| {
        let mut value = [0; 8];
        rustix::fs::getxattr(group, name, &mut value).is_ok_and(|length| value.get(..length) == Some(b"1"))
    };
    let me = rustix::process::geteuid();
    let mine = !me.is_root() && fs::metadata(group).is_ok_and(|found| found.uid() == me.as_raw());
    mine || marked("trusted.delegate") || marked("user.delegate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_below_its_mount() {
        let unified = "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let hybrid = "30 24 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let part = "31 24 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let check = |mounts: &str, membership: &str, expected: Option<&str>| {
            assert_eq!(own_group(mounts, membership), expected.map(PathBuf::from), "{mounts}{membership}");
        };
        check(unified, "0::/system.slice/gable.service\n", Some("/sys/fs/cgroup/system.slice/gable.service"));
        check(hybrid, "4:memory:/x\n0::/\n", Some("/sys/fs/cgroup/unified/"));
        check(part, "0::/docker/abc/inner\n", Some("/sys/fs/cgroup/inner"));
        check(part, "0::/elsewhere\n", None);
        check("", "0::/\n", None);
        check(unified, "4:memory:/x\n", None);
    }

    /// A folder that has the files of a group; the kernel's own behaviour is not there.
    fn group(controllers: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("cgroup.controllers"), controllers).expect("written");
        folder
    }

    #[test]
    fn a_delegated_group_is_divided_and_jobs_get_their_limits() {
        let folder = group("cpu memory pids\n");
        let stale = folder.path().join("gable-job-7");
        fs::create_dir(&stale).expect("made");
        let cgroups = Cgroups::prepare_in(folder.path()).expect("prepared");
        let read = |file: &str| fs::read_to_string(folder.path().join(file)).expect(file);
        assert_eq!(
            (read("gable-main/cgroup.procs").as_str(), read("cgroup.subtree_control").as_str()),
            ("0", "+memory +pids")
        );
        let job = cgroups.job("8", Some(2 << 30), Some(100)).expect("made");
        let read = |file: &str| fs::read_to_string(job.path().join(file)).expect(file);
        assert_eq!(
            (read("memory.max"), read("memory.swap.max"), read("pids.max")),
            ("2147483648".into(), "0".into(), "104".into())
        );
        assert!(!job.ran_out_of_memory() && !job.ran_out_of_processes());
        fs::write(job.path().join("memory.events"), "low 0\nmax 12\noom 1\noom_kill 1\n").expect("written");
        fs::write(job.path().join("pids.events"), "max 0\n").expect("written");
        assert!(job.ran_out_of_memory() && !job.ran_out_of_processes());
        // A restart inside the group finds the same place.
        let again = Cgroups::prepare_in(&folder.path().join("gable-main")).expect("prepared");
        assert_eq!(again.parent, folder.path());
    }

    #[test]
    fn a_group_without_the_controllers_is_refused_and_says_why() {
        let folder = group("cpu pids\n");
        let error = Cgroups::prepare_in(folder.path()).expect_err("refused");
        assert!(error.starts_with("the controller memory is not available in "), "{error}");
    }
}
