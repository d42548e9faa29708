//! Control groups (version 2) for jobs, if part of the hierarchy is delegated to this process.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// The group that this process moves to, because a group with child groups may not contain processes.
const OWN_GROUP: &str = "gable-main";
/// The required controllers.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Why control groups are not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("control groups of version 2 are not mounted")]
    NotMounted,
    #[error("{} is not delegated to this process", .0.display())]
    NotDelegated(PathBuf),
    #[error("the controller {controller} is not available in {}", group.display())]
    MissingController { controller: &'static str, group: PathBuf },
    #[error("cannot create control groups in {}: {source}", group.display())]
    Create { group: PathBuf, source: io::Error },
}

/// The parent of the control groups of jobs.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    parent: PathBuf,
}

impl Cgroups {
    /// Takes over the control group of this process if it is delegated; the error says why that is not possible.
    pub(crate) fn prepare() -> Result<Self, CgroupError> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let membership = fs::read_to_string("/proc/self/cgroup")?;
        let group = own_group(&mounts, &membership).ok_or(CgroupError::NotMounted)?;
        if !is_delegated(&group) {
            return Err(CgroupError::NotDelegated(group));
        }
        Self::prepare_in(&group)
    }

    fn prepare_in(group: &Path) -> Result<Self, CgroupError> {
        let group = if group.ends_with(OWN_GROUP) { group.parent().unwrap_or(group) } else { group };
        let available = fs::read_to_string(group.join("cgroup.controllers"))?;
        let is_available = |name: &str| available.split_whitespace().any(|controller| controller == name);
        if let Some(controller) = CONTROLLERS.into_iter().find(|name| !is_available(name)) {
            return Err(CgroupError::MissingController { controller, group: group.to_owned() });
        }
        let own = group.join(OWN_GROUP);
        let made = match fs::create_dir(&own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        };
        let fail = |source| CgroupError::Create { group: group.to_owned(), source };
        made.and_then(|()| fs::write(own.join("cgroup.procs"), "0")).map_err(fail)?;
        let enabled = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        if let Err(error) = fs::write(group.join("cgroup.subtree_control"), enabled) {
            let _ = fs::write(group.join("cgroup.procs"), "0");
            let _ = fs::remove_dir(&own);
            return Err(fail(error));
        }
        let cgroups = Self { parent: group.to_owned() };
        cgroups.remove_stale();
        Ok(cgroups)
    }

    /// Removes the groups of jobs whose runner was killed.
    fn remove_stale(&self) {
        for entry in fs::read_dir(&self.parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with("gable-job-")) {
                drop(JobCgroup { path: entry.path() });
            }
        }
    }

    /// Creates a group for one job.
    pub(crate) fn job(&self, name: &str, memory: Option<u64>, processes: Option<u64>) -> io::Result<JobCgroup> {
        let group = JobCgroup { path: self.parent.join(format!("gable-job-{name}")) };
        match fs::create_dir(&group.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if let Some(bytes) = memory {
            fs::write(group.path.join("memory.max"), bytes.to_string())?;
            // Missing without swap accounting; then there is nothing to limit.
            for (file, value) in [("memory.swap.max", "0"), ("memory.oom.group", "1")] {
                match fs::write(group.path.join(file), value) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        if let Some(count) = processes {
            // The supervisor and bubblewrap are in the group too.
            fs::write(group.path.join("pids.max"), count.saturating_add(4).to_string())?;
        }
        Ok(group)
    }
}

/// The control group of one job. Dropping it kills its processes and removes it.
#[derive(Debug)]
pub(crate) struct JobCgroup {
    path: PathBuf,
}

impl JobCgroup {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the kernel has killed a process of the job for lack of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.event("memory.events", "oom_kill")
    }

    /// Returns whether the job was denied a process because of its limit.
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
        tracing::warn!(group = %self.path.display(), "cannot remove the control group of a job: its processes do not end");
    }
}

/// Returns the path of the control group of this process.
fn own_group(mounts: &str, membership: &str) -> Option<PathBuf> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let fields: Vec<&str> = front.split(' ').collect();
        let (root, mount_point) = (fields.get(3)?, fields.get(4)?);
        if !back.starts_with("cgroup2 ") {
            return None;
        }
        // A container may show only a part of the hierarchy.
        let below = if *root == "/" { path } else { path.strip_prefix(root)? };
        Some(Path::new(mount_point).join(below.trim_start_matches('/')))
    })
}

/// Returns whether a service manager has delegated this group, or it belongs to the current user.
fn is_delegated(group: &Path) -> bool {
    let has_attribute = |name: &str| {
        let mut value = [0; 8];
        rustix::fs::getxattr(group, name, &mut value).is_ok_and(|length| value.get(..length) == Some(b"1"))
    };
    let current_user = rustix::process::geteuid();
    let is_owned =
        !current_user.is_root() && fs::metadata(group).is_ok_and(|found| found.uid() == current_user.as_raw());
    is_owned || has_attribute("trusted.delegate") || has_attribute("user.delegate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_below_its_mount_point() {
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

    /// Creates a folder with the files of a group, without the kernel's behaviour.
    fn group(controllers: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("cgroup.controllers"), controllers).expect("written");
        folder
    }

    #[test]
    fn jobs_get_limits_in_a_delegated_group() {
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
        // A restart inside the group finds the same parent.
        let again = Cgroups::prepare_in(&folder.path().join("gable-main")).expect("prepared");
        assert_eq!(again.parent, folder.path());
    }

    #[test]
    fn a_group_without_the_controllers_is_rejected() {
        let folder = group("cpu pids\n");
        let error = Cgroups::prepare_in(folder.path()).expect_err("refused").to_string();
        assert!(error.starts_with("the controller memory is not available in "), "{error}");
    }
}
