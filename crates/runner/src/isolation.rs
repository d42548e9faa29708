//! Isolation of jobs from the rest of the machine.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicU64,
    time::Duration,
};

use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    Error, Limits, Network, Options,
    cgroups::{CgroupError, Cgroups, JobCgroup},
    folder_handle,
    network::{self, JobNetwork, NetworkAccess, NetworkError},
    processes::{self, Cancellation, ExceededLimit, ProcessError, Streams},
    resource_usage,
    supervisor::SupervisorOptions,
};

/// The search path for programs, regardless of the runner's environment.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The user that runs jobs if none is configured.
const DEFAULT_USER: &str = "gable-runner";
/// The user that runs jobs of root in bubblewrap if the default user does not exist.
const UNPRIVILEGED_USER: &str = "nobody";
/// The timeout of testing an isolation.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// The paths of the machine that are visible in bubblewrap.
const VISIBLE_PATHS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix"];
/// The temporary folders of a job in bubblewrap.
const TEMP_FOLDERS: [&str; 2] = ["/tmp", "/var/tmp"];
/// Also visible to jobs that share the network of the machine.
const RESOLVED_FOLDER: &str = "/run/systemd/resolve";
/// The number of processes around the program of a job: the supervisor with its threads, and bubblewrap.
pub(crate) const SUPERVISOR_PROCESSES: u64 = 8;
/// In these folders, a job that runs as the runner's own user sees only what is world-readable.
const FILTERED_FOLDERS: &[&str] = &["/etc", "/usr/local/etc"];
/// In this folder, such a job sees only what belongs to other users.
const OPT_FOLDER: &str = "/opt";
/// The maximum number of entries checked for readability; a folder with more is hidden.
const MAX_FILTERED_ENTRIES: usize = 50_000;

/// How jobs are isolated from the rest of the machine, as configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// In bubblewrap; if that does not work, as another user if one is configured; otherwise jobs are refused.
    #[default]
    Auto,
    /// In bubblewrap; otherwise jobs are refused.
    Bubblewrap,
    /// As another user; otherwise jobs are refused.
    User,
    /// Jobs can do whatever the runner can.
    None,
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// How jobs are isolated from the rest of the machine, as determined at startup.
#[derive(Debug)]
pub(crate) struct Sandbox {
    kind: SandboxKind,
    network_access: NetworkAccess,
    limits: Limits,
    cgroups: Option<Cgroups>,
    hidden_paths: Vec<PathBuf>,
    supervisor: Vec<OsString>,
}

#[derive(Clone, Debug)]
enum SandboxKind {
    Bubblewrap(Option<User>),
    User(User),
    Unisolated,
}

/// Why a sandbox cannot be set up, or does not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error("cannot create a control group: {0}")]
    CreateCgroup(#[source] io::Error),
    #[error("cannot write {}: {source}", path.display())]
    WriteResolvConf { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it fails without output")]
    Failed,
    #[error("{0}")]
    FailedWithOutput(String),
    #[error("{0}")]
    Exceeded(ExceededLimit),
    #[error("it does not start in time")]
    TimedOut,
}

/// Why bubblewrap cannot be used.
#[derive(Debug, thiserror::Error)]
enum BubblewrapError {
    #[error("bubblewrap is not installed")]
    NotInstalled,
    #[error("bubblewrap is installed but does not work: {0}")]
    Broken(#[source] SandboxError),
}

/// The programs that a runner starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Git,
    Bash,
    Sh,
}

/// The folder of one job and its other resources.
pub(crate) struct JobWorkspace {
    /// The folder of everything that belongs to the job.
    pub(crate) root: PathBuf,
    /// The folder of the checkout.
    pub(crate) project: PathBuf,
    /// The limits of the job.
    pub(crate) limits: Limits,
    /// The control group of its processes, if control groups are used.
    pub(crate) cgroup: Option<JobCgroup>,
    /// The network namespace of its processes, if it has its own.
    network: Option<JobNetwork>,
    /// The highest measured memory use of its processes.
    pub(crate) peak_memory: AtomicU64,
}

impl JobWorkspace {
    /// Creates the folders of a job, replacing existing ones.
    pub(crate) fn create(root: PathBuf, name: &str, owner: Option<&User>, limits: Limits) -> io::Result<Self> {
        folder_handle::remove_all(&root)?;
        let project = root.join(name);
        let (cgroup, network, peak_memory) = (None, None, AtomicU64::new(0));
        let workspace = Self { root, project, limits, cgroup, network, peak_memory };
        // The job owns its working folders, but not their parents: otherwise it could replace them with a link that the
        // runner follows.
        for folder in [&workspace.root, &workspace.runner_files()] {
            DirBuilder::new().mode(0o700).create(folder)?;
            if owner.is_some() {
                // Regardless of the runner's umask.
                fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
            }
        }
        for folder in [&workspace.project, &workspace.home(), &workspace.temp_folder(), &workspace.shared_memory()] {
            DirBuilder::new().mode(0o700).create(folder)?;
            if let Some(user) = owner {
                std::os::unix::fs::chown(folder, Some(user.uid), Some(user.gid))?;
            }
        }
        Ok(workspace)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join(".home")
    }

    pub(crate) fn runner_files(&self) -> PathBuf {
        self.root.join(".tmp")
    }

    /// Returns the folder of the job's temporary files.
    fn temp_folder(&self) -> PathBuf {
        self.root.join(".scratch")
    }

    /// Returns the folder of its shared memory, if it does not use that of the machine.
    fn shared_memory(&self) -> PathBuf {
        self.root.join(".shm")
    }

    /// Replaces links among the parents of the job's folders with folders, where the job could have changed them: below
    /// its temporary folder, if the runner works there. Otherwise bubblewrap would follow such a link out of the job's
    /// files and create folders there. No program of the job may run meanwhile.
    pub(crate) fn restore_parent_folders(&self) -> io::Result<()> {
        for temporary in TEMP_FOLDERS {
            for folder in [&self.project, &self.home(), &self.runner_files()] {
                let Ok(parents) = folder.strip_prefix(temporary) else { continue };
                let mut current = self.temp_folder();
                for part in parents.components() {
                    current.push(part);
                    match fs::symlink_metadata(&current) {
                        Ok(found) if found.is_dir() => continue,
                        Ok(_) => fs::remove_file(&current)?,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                    DirBuilder::new().mode(0o755).create(&current)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the `resolv.conf` of a job with its own network.
    fn resolv_conf(&self) -> PathBuf {
        self.runner_files().join(".resolv.conf")
    }
}

impl Sandbox {
    /// Determines an isolation that works, or returns why jobs cannot be isolated.
    pub(crate) async fn choose(options: &Options, builds: &Path, hidden_paths: &[PathBuf]) -> Result<Self, Error> {
        let root = rustix::process::geteuid().is_root();
        let run_as = match options.run_as.as_deref() {
            Some(_) if !root => {
                return Err(Error::Setup(
                    "only root can run jobs as another user; start as root, or remove --runner-user".to_owned(),
                ));
            }
            Some(name) => {
                let missing = || Error::Setup(format!("there is no user {name} on this machine; create it first"));
                Some(find_user(name).ok_or_else(missing)?)
            }
            None => None,
        };
        if run_as.as_ref().is_some_and(|user| user.uid == 0) {
            return Err(Error::Setup("jobs never run as root; name another user with --runner-user".to_owned()));
        }
        let kind = match options.isolation {
            Isolation::None if run_as.is_some() => {
                return Err(Error::Setup(
                    "--runner-isolation none runs jobs as the user of the runner, so remove --runner-user".to_owned(),
                ));
            }
            Isolation::None => SandboxKind::Unisolated,
            Isolation::User => {
                let default_user = || find_user(DEFAULT_USER).filter(|_| root);
                SandboxKind::User(run_as.clone().or_else(default_user).ok_or_else(|| {
                    Error::Setup(
                        "jobs can run as another user only if the runner is started by root and that user exists; \
                         create the user gable-runner, or name one with --runner-user"
                            .to_owned(),
                    )
                })?)
            }
            // Root without capabilities still owns most of the machine, so it never runs a job.
            Isolation::Auto | Isolation::Bubblewrap if root => {
                let user = run_as.clone().or_else(|| find_user(DEFAULT_USER)).or_else(|| find_user(UNPRIVILEGED_USER));
                SandboxKind::Bubblewrap(Some(user.ok_or_else(|| {
                    Error::Setup("jobs never run as root; create the user gable-runner for them".to_owned())
                })?))
            }
            Isolation::Auto | Isolation::Bubblewrap => SandboxKind::Bubblewrap(None),
        };
        let cgroups = Cgroups::prepare();
        let mut sandbox = Self {
            kind,
            network_access: if options.network == Network::Host { NetworkAccess::Host } else { NetworkAccess::None },
            limits: options.limits,
            cgroups: cgroups.as_ref().ok().cloned(),
            hidden_paths: hidden_paths.to_vec(),
            supervisor: options.supervisor.clone(),
        };
        if let SandboxKind::Bubblewrap(user) = &sandbox.kind {
            let tried = if is_installed("bwrap") {
                sandbox.probe(builds).await.map_err(BubblewrapError::Broken)
            } else {
                Err(BubblewrapError::NotInstalled)
            };
            match (tried, run_as) {
                (Ok(()), _) => {}
                (Err(reason), Some(named)) if options.isolation == Isolation::Auto => {
                    warn!("{reason}; jobs run as the user {} without it", named.name);
                    sandbox.kind = SandboxKind::User(named);
                }
                (Err(reason), _) => return Err(Error::Setup(isolation_error(&reason, user.as_ref()))),
            }
        }
        if let SandboxKind::User(user) = &sandbox.kind {
            sandbox.network_access = NetworkAccess::Host;
            let name = user.name.clone();
            sandbox.probe(builds).await.map_err(|reason| {
                Error::Setup(format!(
                    "jobs cannot run as the user {name}: {reason}; choose a folder that this user can enter, with --runner-folder"
                ))
            })?;
        }
        sandbox.choose_network_access(options.network, builds).await?;
        sandbox.log_summary(cgroups.err());
        Ok(sandbox)
    }

    /// Determines the network access that jobs can have.
    async fn choose_network_access(&mut self, requested: Network, builds: &Path) -> Result<(), Error> {
        if !matches!(self.kind, SandboxKind::Bubblewrap(_)) {
            self.network_access = NetworkAccess::Host;
            // An operator who disables isolation was warned and accepts this too.
            let is_accepted = requested == Network::Host
                || (requested == Network::Auto && matches!(self.kind, SandboxKind::Unisolated));
            let message = "only bubblewrap can isolate jobs from the services of this machine and its network; install it, or \
                           accept with --runner-network host that jobs can reach them";
            return if is_accepted { Ok(()) } else { Err(Error::Setup(message.to_owned())) };
        }
        if matches!(requested, Network::None | Network::Host) {
            return Ok(());
        }
        self.network_access = NetworkAccess::Public;
        let reason = match self.probe(builds).await {
            Ok(()) => return Ok(()),
            Err(reason) => reason,
        };
        let advice = "install slirp4netns and iproute2, or choose --runner-network none or host";
        if requested == Network::Public {
            return Err(Error::Setup(format!("jobs cannot be limited to public addresses: {reason}; {advice}")));
        }
        self.network_access = NetworkAccess::None;
        warn!("jobs have no network, because they cannot be limited to public addresses: {reason}; {advice}");
        Ok(())
    }

    /// Returns the owner of a job's files, if not the runner itself.
    pub(crate) fn user(&self) -> Option<&User> {
        match &self.kind {
            SandboxKind::Bubblewrap(user) => user.as_ref(),
            SandboxKind::User(user) => Some(user),
            SandboxKind::Unisolated => None,
        }
    }

    /// Returns the network access of a job's script.
    pub(crate) fn network_access(&self) -> NetworkAccess {
        self.network_access
    }

    /// Logs the isolation and the limits of jobs.
    fn log_summary(&self, no_cgroups: Option<CgroupError>) {
        let runner_user = current_user_name();
        let network = match self.network_access {
            NetworkAccess::Public => "they can reach public addresses only",
            NetworkAccess::None => "they have no network",
            NetworkAccess::Host => "they can reach whatever this machine can, including its own services",
        };
        match &self.kind {
            SandboxKind::Bubblewrap(user) => info!(
                "jobs run in bubblewrap as {}: they see the programs of this machine and their own folder; {network}",
                user.as_ref().map_or(runner_user.as_str(), |user| &user.name)
            ),
            SandboxKind::User(user) => warn!(
                "jobs run as the user {}, without bubblewrap: they can read and change whatever this user can, including \
                 other running jobs; {network}",
                user.name
            ),
            SandboxKind::Unisolated => warn!(
                "jobs run as {runner_user} without isolation: every user who can push to a project of the server \
                 can read and change whatever {runner_user} can on this machine, such as keys, tokens and databases; \
                 {network}; install bubblewrap and remove --runner-isolation none to isolate them"
            ),
        }
        let format_limit = |limit: Option<u64>| limit.map_or_else(|| "none".to_owned(), format_size);
        let held_by = match no_cgroups {
            None => "control group".to_owned(),
            Some(reason) => format!("resource limits and measurement; no control group is available ({reason})"),
        };
        info!(
            memory = format_limit(self.limits.memory),
            processes = self.limits.processes.map_or_else(|| "none".to_owned(), |count| count.to_string()),
            disk = format_limit(self.limits.disk),
            held_by,
            "limits of each job"
        );
    }

    /// Sets up the control group and the network of a job.
    pub(crate) async fn set_up(&self, workspace: &mut JobWorkspace, name: &str) -> Result<(), SandboxError> {
        if let Some(cgroups) = &self.cgroups {
            let made = cgroups.job(name, self.limits.memory, self.limits.processes);
            workspace.cgroup = Some(made.map_err(SandboxError::CreateCgroup)?);
        }
        if self.network_access == NetworkAccess::Public {
            let (content, _) = network::resolv_conf();
            let path = workspace.resolv_conf();
            fs::write(&path, content)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)))
                .map_err(|source| SandboxError::WriteResolvConf { path, source })?;
            workspace.network = Some(JobNetwork::public().await?);
        }
        Ok(())
    }

    /// Returns a command that runs a program in the folder of a job, with a minimal environment.
    pub(crate) fn command(&self, program: Program, workspace: &JobWorkspace, network_access: NetworkAccess) -> Command {
        let supervisor = self.supervisor.first().map(OsString::as_os_str).unwrap_or_default();
        let mut command = Command::new(supervisor);
        command.env_clear().env("PATH", PATH).env("HOME", workspace.home()).env("LANG", "C.UTF-8");
        command.args(self.supervisor.iter().skip(1)).args(self.supervisor_options(workspace).arguments());
        if let SandboxKind::Bubblewrap(user) = &self.kind {
            let network = workspace.network.as_ref().filter(|_| network_access == NetworkAccess::Public);
            if let Some(network) = network {
                command.args(network.nsenter_arguments());
            }
            command.arg("bwrap").args(bwrap_arguments(user.as_ref(), &self.hidden_paths, workspace, network_access));
            if let Some(User { uid, gid, .. }) = user {
                command.args(["--", "setpriv", "--reuid", &uid.to_string(), "--regid", &gid.to_string()]);
                command.args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]);
                // Root without capabilities cannot enter the folder of another user.
                command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(&workspace.project);
            } else {
                command.arg("--chdir").arg(&workspace.project).arg("--");
            }
        } else {
            command.current_dir(&workspace.project).env("TMPDIR", workspace.temp_folder());
        }
        command.arg(program.name());
        // Inherited by everything that the job starts, so that it can be found again.
        command.env(BUILDS_DIR_VARIABLE, &workspace.root);
        command
    }

    /// Returns the options of the supervisor.
    fn supervisor_options(&self, workspace: &JobWorkspace) -> SupervisorOptions {
        let limits = &self.limits;
        let mut supervisor_options = SupervisorOptions { file_size: limits.disk, ..SupervisorOptions::default() };
        if let Some(cgroup) = &workspace.cgroup {
            supervisor_options.cgroup = Some(cgroup.path().to_owned());
        } else {
            let uid = self.user().map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
            // The kernel counts all processes of a user, not those of a job.
            let counted = |limit: u64| {
                limit.saturating_add(resource_usage::tasks_of_user(uid)).saturating_add(SUPERVISOR_PROCESSES)
            };
            supervisor_options.processes = limits.processes.map(counted);
            supervisor_options.data_size = limits.memory;
        }
        if let SandboxKind::User(user) = &self.kind {
            supervisor_options.user = Some((user.uid, user.gid));
        }
        supervisor_options
    }

    /// Tests whether a program runs in this sandbox.
    async fn probe(&self, builds: &Path) -> Result<(), SandboxError> {
        let mut workspace = JobWorkspace::create(builds.join(".probe"), "project", self.user(), Limits::default())?;
        let outcome = self.probe_in(&mut workspace).await;
        let _ = folder_handle::remove_all(&workspace.root);
        outcome
    }

    async fn probe_in(&self, workspace: &mut JobWorkspace) -> Result<(), SandboxError> {
        self.set_up(workspace, "probe").await?;
        let mut command = self.command(Program::Sh, workspace, self.network_access);
        // A sandbox must not allow changes to kernel settings.
        let script = "cd \"$0\" && echo works > here && git --version && \
                     ! (exec 3>>/proc/sys/kernel/core_pattern) 2>/dev/null";
        command.args(["-c", script]).arg(&workspace.project);
        let mut output = Vec::new();
        let (_sender, interrupts) = watch::channel(None);
        let cancellation = Cancellation::new(interrupts, PROBE_TIMEOUT);
        let ended =
            processes::run(command, Streams::Both, workspace, &cancellation, |chunk| output.extend_from_slice(chunk))
                .await;
        let output = String::from_utf8_lossy(&output);
        let output: String = output.trim().replace('\n', "; ").chars().take(500).collect();
        match ended {
            Ok(0) if workspace.project.join("here").is_file() => Ok(()),
            Ok(_) if output.is_empty() => Err(SandboxError::Failed),
            Ok(_) => Err(SandboxError::FailedWithOutput(output)),
            Err(ProcessError::Failed(error)) => Err(error.into()),
            Err(ProcessError::Exceeded(limit)) => Err(SandboxError::Exceeded(limit)),
            Err(ProcessError::Interrupted(_)) => Err(SandboxError::TimedOut),
        }
    }
}

/// Returns why the runner does not start, with hints.
fn isolation_error(reason: &BubblewrapError, user: Option<&User>) -> String {
    let mut hints = Vec::new();
    let sysctl = |name: &str| fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default();
    if matches!(reason, BubblewrapError::NotInstalled) {
        hints.push("install it, for example with `apt install bubblewrap`");
    } else {
        if user.is_none() && sysctl("kernel/unprivileged_userns_clone").trim() == "0" {
            hints.push("allow user namespaces with `sysctl kernel.unprivileged_userns_clone=1`");
        }
        if user.is_none() && sysctl("kernel/apparmor_restrict_unprivileged_userns").trim() == "1" {
            hints.push("AppArmor restricts user namespaces: add a profile with `userns` for bwrap");
        }
        if sysctl("user/max_user_namespaces").trim() == "0" {
            hints.push("allow user namespaces with `sysctl user.max_user_namespaces=10000`");
        }
        if ["/.dockerenv", "/run/.containerenv"].iter().any(|file| Path::new(file).exists()) {
            hints.push("most containers forbid namespaces: run the runner on a separate machine");
        }
        if hints.is_empty() {
            hints.push("allow namespaces to the runner, in the kernel and in its service manager");
        }
    }
    format!(
        "refusing to run jobs without isolation from this machine: {reason}; {}; or start as root \
         with --runner-user NAME to run jobs as another user; or accept with --runner-isolation none that every \
         user who can push can read and change whatever {} can",
        hints.join("; "),
        current_user_name()
    )
}

/// Formats a size in the largest unit without remainder.
pub(crate) fn format_size(bytes: u64) -> String {
    let (mut number, mut unit) = (bytes, "bytes");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if number == 0 || number % 1024 != 0 {
            break;
        }
        (number, unit) = (number / 1024, larger);
    }
    format!("{number} {unit}")
}

fn is_installed(program: &str) -> bool {
    PATH.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

/// The environment variable that identifies the processes of a job.
pub(crate) const BUILDS_DIR_VARIABLE: &str = "CI_BUILDS_DIR";

impl Program {
    /// Returns the shell of this machine.
    pub(crate) fn shell() -> Self {
        if is_installed("bash") { Self::Bash } else { Self::Sh }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Bash => "bash",
            Self::Sh => "sh",
        }
    }
}

/// Returns the arguments of bubblewrap. They contain no data of the job: arguments are visible to all users of the
/// machine.
fn bwrap_arguments(
    user: Option<&User>,
    hidden_paths: &[PathBuf],
    workspace: &JobWorkspace,
    network_access: NetworkAccess,
) -> Vec<PathBuf> {
    let mut arguments: Vec<PathBuf> = Vec::new();
    let mut add = |paths: &[&Path]| arguments.extend(paths.iter().map(|path| path.to_path_buf()));
    let mut flags = vec!["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"];
    flags.extend(["--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
    if network_access == NetworkAccess::None {
        flags.push("--unshare-net");
    }
    if user.is_some() {
        // Needed by setpriv to change the user; it drops them afterwards.
        flags.extend(["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]);
    }
    for flag in flags {
        add(&[Path::new(flag)]);
    }
    if user.is_none() && network_access == NetworkAccess::Public {
        // In its network namespace the runner is root; a job must not be.
        let own = |id: u32| PathBuf::from(id.to_string());
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        add(&[Path::new("--unshare-user"), Path::new("--uid"), &own(uid), Path::new("--gid"), &own(gid)]);
    }
    add(&[Path::new("--proc"), Path::new("/proc")]);
    // Root without capabilities still owns these, and they control the whole machine.
    for path in [Path::new("/proc/sys"), Path::new("/proc/sysrq-trigger")].into_iter().filter(|path| path.exists()) {
        add(&[Path::new("--ro-bind"), path, path]);
    }
    add(&[Path::new("--dev"), Path::new("/dev")]);
    // A tmpfs is memory that no process limit counts, so a job must not be able to write to one.
    add(&[Path::new("--bind"), &workspace.shared_memory(), Path::new("/dev/shm")]);
    add(&[Path::new("--remount-ro"), Path::new("/dev")]);
    add(&[Path::new("--dir"), Path::new("/var")]);
    for temporary in TEMP_FOLDERS {
        add(&[Path::new("--bind"), &workspace.temp_folder(), Path::new(temporary)]);
    }
    for empty in ["/run", "/home", "/root"] {
        add(&[Path::new("--dir"), Path::new(empty)]);
    }
    // File modes keep another user from secrets.
    let (masked, omitted) = if user.is_some() { (Vec::new(), Vec::new()) } else { unreadable_paths() };
    let mut visible: Vec<PathBuf> = VISIBLE_PATHS.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    if network_access == NetworkAccess::Host {
        // A socket in this folder resolves names for the job, whatever its own network is.
        visible.extend([PathBuf::from(RESOLVED_FOLDER)].into_iter().filter(|path| path.exists()));
    }
    visible.extend(optional_software(user));
    for path in visible.iter().filter(|path| !omitted.contains(path)) {
        add(&[Path::new("--ro-bind"), path, path]);
    }
    for (path, is_folder) in &masked {
        if omitted.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        if *is_folder {
            add(&[Path::new("--tmpfs"), path, Path::new("--remount-ro"), path]);
        } else {
            add(&[Path::new("--ro-bind"), Path::new("/dev/null"), path]);
        }
    }
    // Resolved for each program, because links may change.
    let hidden_paths: Vec<PathBuf> = hidden_paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
    // Most hidden paths are not visible anyway.
    let is_visible = |path: &&PathBuf| {
        let is_below = |it: &PathBuf| path.starts_with(it);
        visible.iter().any(|it| is_below(it) && !omitted.contains(it)) && !masked.iter().any(|(it, _)| is_below(it))
    };
    let outermost = |path: &&PathBuf| !hidden_paths.iter().any(|it| it != *path && path.starts_with(it));
    let (hidden_paths, files): (Vec<&PathBuf>, Vec<&PathBuf>) = hidden_paths
        .iter()
        .filter(is_visible)
        .filter(outermost)
        .filter(|path| path.exists())
        .partition(|path| path.is_dir());
    for file in files {
        add(&[Path::new("--ro-bind"), Path::new("/dev/null"), file]);
    }
    for path in &hidden_paths {
        add(&[Path::new("--tmpfs"), path]);
    }
    if let (NetworkAccess::Public, (_, Some(machine_path))) = (network_access, network::resolv_conf()) {
        add(&[Path::new("--ro-bind"), &workspace.resolv_conf(), &machine_path]);
    }
    // The parents of the job's folder are accessible inside, whatever their modes are outside.
    let parents: Vec<&Path> = workspace.root.ancestors().filter(|path| path.parent().is_some()).collect();
    for folder in parents.into_iter().rev() {
        add(&[Path::new("--dir"), folder]);
    }
    for path in [&workspace.project, &workspace.home()] {
        add(&[Path::new("--bind"), path, path]);
    }
    add(&[Path::new("--ro-bind"), &workspace.runner_files(), &workspace.runner_files()]);
    for path in hidden_paths {
        add(&[Path::new("--remount-ro"), path]);
    }
    add(&[Path::new("--remount-ro"), Path::new("/")]);
    arguments
}

/// Returns the folders of `/opt` that belong to other users than the one that runs the job.
fn optional_software(user: Option<&User>) -> Vec<PathBuf> {
    let own_uid = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(OPT_FOLDER).into_iter().flatten().flatten();
    let of_others = entries.filter(|entry| {
        let readable = |found: &fs::Metadata| found.is_dir() && found.permissions().mode() & 0o005 == 0o005;
        entry.metadata().is_ok_and(|found| readable(&found) && (user.is_some() || found.uid() != own_uid))
    });
    of_others.map(|entry| entry.path()).collect()
}

/// Returns the paths in configuration folders that are not world-readable, and the folders that are too large to check.
fn unreadable_paths() -> (Vec<(PathBuf, bool)>, Vec<PathBuf>) {
    let (mut masked, mut omitted) = (Vec::new(), Vec::new());
    for top in FILTERED_FOLDERS {
        let mut pending = vec![PathBuf::from(top)];
        let mut checked = 0;
        while let Some(folder) = pending.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                checked += 1;
                let Ok(found) = entry.metadata() else { continue };
                let mode = found.permissions().mode();
                if found.is_dir() {
                    if mode & 0o005 == 0o005 {
                        pending.push(entry.path());
                    } else {
                        masked.push((entry.path(), true));
                    }
                } else if !found.is_symlink() && mode & 0o004 == 0 {
                    masked.push((entry.path(), false));
                }
            }
            if checked > MAX_FILTERED_ENTRIES {
                omitted.push(PathBuf::from(top));
                break;
            }
        }
    }
    (masked, omitted)
}

fn find_user(name: &str) -> Option<User> {
    users().into_iter().find(|user| user.name == name)
}

fn users() -> Vec<User> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(User { name, uid, gid })
    };
    text.lines().filter_map(user).collect()
}

/// Returns the name of the current user.
fn current_user_name() -> String {
    let uid = rustix::process::geteuid().as_raw();
    users().into_iter().find(|user| user.uid == uid).map_or_else(|| format!("the user with id {uid}"), |user| user.name)
}

/// Returns whether a file belongs to the current user and no other user can access it.
pub(crate) fn is_private(found: &fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() && found.permissions().mode().trailing_zeros() >= 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unavailable_isolation_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let choose = async |requested, run_as: Option<&str>, network| {
            let mut options = Options::new(folder.path(), Vec::new());
            (options.isolation, options.run_as, options.network) = (requested, run_as.map(ToOwned::to_owned), network);
            Sandbox::choose(&options, folder.path(), &[])
                .await
                .map(|sandbox| sandbox.network_access())
                .map_err(|error| error.to_string())
        };
        let error = choose(Isolation::Auto, Some("nobody-of-that-name"), Network::Auto).await.expect_err("rejected");
        assert!(error.contains("there is no user") || error.contains("only root"), "{error}");
        assert_eq!(choose(Isolation::None, None, Network::Auto).await, Ok(NetworkAccess::Host));
        for network in [Network::Public, Network::None] {
            let error = choose(Isolation::None, None, network).await.expect_err("rejected");
            assert!(error.starts_with("only bubblewrap can isolate jobs from the services of this machine"), "{error}");
        }
        if rustix::process::geteuid().is_root() {
            let error = choose(Isolation::Auto, Some("root"), Network::Auto).await.expect_err("rejected");
            assert!(error.starts_with("jobs never run as root"), "{error}");
        }
        if find_user(DEFAULT_USER).is_none() || !rustix::process::geteuid().is_root() {
            let error = choose(Isolation::User, None, Network::Auto).await.expect_err("rejected");
            assert!(error.contains("create the user gable-runner"), "{error}");
        }
    }

    #[test]
    fn the_isolation_error_includes_reason_and_hints() {
        let text = isolation_error(&BubblewrapError::NotInstalled, None);
        for part in
            ["bubblewrap is not installed", "apt install bubblewrap", "--runner-user", "--runner-isolation none"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let broken = BubblewrapError::Broken(SandboxError::FailedWithOutput("bwrap: No permissions".to_owned()));
        let text = isolation_error(&broken, None);
        assert!(text.contains("bwrap: No permissions") && text.contains("namespaces"), "{text}");
    }

    /// Returns whether the arguments contain this sequence.
    fn contains_arguments(arguments: &[PathBuf], expected: &[&str]) -> bool {
        arguments
            .windows(expected.len())
            .any(|window| window.iter().zip(expected).all(|(found, expected)| found == Path::new(expected)))
    }

    #[test]
    fn visible_hidden_paths_are_masked() {
        let folder = tempfile::tempdir().expect("a folder");
        let workspace =
            JobWorkspace::create(folder.path().join("1"), "project", None, Limits::default()).expect("made");
        let hidden_paths = ["/usr/bin/env", "/usr/share", "/usr/share/doc", "/usr/no-such-file", "/proc/version"];
        let hidden_paths: Vec<PathBuf> = hidden_paths.iter().map(PathBuf::from).collect();
        let arguments = bwrap_arguments(None, &hidden_paths, &workspace, NetworkAccess::None);
        assert!(contains_arguments(&arguments, &["--ro-bind", "/dev/null", "/usr/bin/env"]), "{arguments:?}");
        assert!(
            contains_arguments(&arguments, &["--tmpfs", "/usr/share"])
                && contains_arguments(&arguments, &["--remount-ro", "/usr/share"])
        );
        for path in ["/usr/share/doc", "/usr/no-such-file", "/proc/version"] {
            assert!(!arguments.contains(&PathBuf::from(path)), "{path}");
        }
    }

    #[test]
    fn links_among_parent_folders_are_replaced_by_folders() {
        let (folder, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let mut workspace =
            JobWorkspace::create(folder.path().join("1"), "project", None, Limits::default()).expect("made");
        workspace.project = PathBuf::from("/tmp/runner/builds/1/project");
        workspace.restore_parent_folders().expect("restored");
        let parents = workspace.root.join(".scratch/runner");
        assert!(parents.join("builds/1/project").is_dir());
        fs::rename(&parents, workspace.root.join(".scratch/other")).expect("renamed");
        std::os::unix::fs::symlink(outside.path(), &parents).expect("linked");
        workspace.restore_parent_folders().expect("restored");
        assert!(fs::symlink_metadata(&parents).expect("there").is_dir() && parents.join("builds/1/project").is_dir());
        fs::remove_dir(parents.join("builds/1/project")).expect("removed");
        std::os::unix::fs::symlink(outside.path(), parents.join("builds/1/project")).expect("linked");
        workspace.restore_parent_folders().expect("restored");
        assert!(fs::symlink_metadata(parents.join("builds/1/project")).expect("there").is_dir());
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 0);
    }

    #[test]
    fn sizes_are_formatted_in_the_largest_unit() {
        assert_eq!([0, 5, 2048, 2 << 30].map(format_size), ["0 bytes", "5 bytes", "2 KiB", "2 GiB"]);
    }
}
