//! What keeps a job from the rest of the machine.

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
    cgroups::{Cgroups, JobCgroup},
    folders,
    network::{self, JobNetwork, Reach},
    processes::{self, Broken, Leash, Streams},
    supervisor::Request,
    usage,
};

/// Where programs are looked for, whatever the environment of the runner says.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Who runs jobs if nobody else is named.
const USUAL_USER: &str = "gable-runner";
/// Who runs jobs of root in bubblewrap if that user does not exist.
const UNPRIVILEGED_USER: &str = "nobody";
/// How long it may take to find out whether an isolation works.
const PROBE: Duration = Duration::from_secs(20);
/// What a job in bubblewrap sees of the machine.
const SEEN: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix"];
/// Where a job in bubblewrap finds its temporary files.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// What a job that shares the network of the machine sees besides.
const RESOLVED: &str = "/run/systemd/resolve";
/// How many processes are around the program of a job: the supervisor with its threads, and bubblewrap.
pub(crate) const SUPERVISORS: u64 = 8;
/// Of these, a job that runs as the runner itself sees only what everybody on the machine may read.
const SIFTED: &[&str] = &["/etc", "/usr/local/etc"];
/// Of this, such a job sees only what belongs to others.
const ADDED: &str = "/opt";
/// How much is looked at to sift; a folder that holds more is not shown.
const MOST_SIFTED: usize = 50_000;

/// How jobs are kept from the rest of the machine, as the operator wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// In bubblewrap; as another user if one is named and bubblewrap does not work; else not at all.
    #[default]
    Auto,
    /// In bubblewrap, or not at all.
    Bubblewrap,
    /// As another user, or not at all.
    User,
    /// Jobs can do whatever the runner can.
    None,
}

/// Somebody on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// How jobs are kept from the rest of the machine, as it turned out.
#[derive(Debug)]
pub(crate) struct Cage {
    kind: Kind,
    reach: Reach,
    limits: Limits,
    cgroups: Option<Cgroups>,
    hidden: Vec<PathBuf>,
    supervisor: Vec<OsString>,
}

#[derive(Clone, Debug)]
enum Kind {
    Bubblewrap(Option<User>),
    User(User),
    Open,
}

/// The programs that a runner starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Git,
    Bash,
    Sh,
}

/// The folder of one job, and what else is made for it.
pub(crate) struct Build {
    /// All that belongs to the job.
    pub(crate) root: PathBuf,
    /// Where its files are checked out.
    pub(crate) project: PathBuf,
    /// How much it may use.
    pub(crate) limits: Limits,
    /// The control group of its programs, if there are any.
    pub(crate) cgroup: Option<JobCgroup>,
    /// The network of its programs, if it has one of its own.
    network: Option<JobNetwork>,
    /// The most memory that its programs were seen to use.
    pub(crate) peak_memory: AtomicU64,
}

impl Build {
    /// Makes the folders of a job, from scratch.
    pub(crate) fn make(root: PathBuf, name: &str, owner: Option<&User>, limits: Limits) -> io::Result<Self> {
        folders::remove(&root)?;
        let project = root.join(name);
        let (cgroup, network, peak_memory) = (None, None, AtomicU64::new(0));
        let build = Self { root, project, limits, cgroup, network, peak_memory };
        // The job owns what it works in, but not the way there: else it could put a link in its place, and the runner
        // would write and read where it leads.
        for folder in [&build.root, &build.files()] {
            DirBuilder::new().mode(0o700).create(folder)?;
            if owner.is_some() {
                // Whatever the mask of the runner takes away.
                fs::set_permissions(folder, fs::Permissions::from_mode(0o711))?;
            }
        }
        for folder in [&build.project, &build.home(), &build.scratch(), &build.shared_memory()] {
            DirBuilder::new().mode(0o700).create(folder)?;
            if let Some(user) = owner {
                std::os::unix::fs::chown(folder, Some(user.uid), Some(user.gid))?;
            }
        }
        Ok(build)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join(".home")
    }

    pub(crate) fn files(&self) -> PathBuf {
        self.root.join(".tmp")
    }

    /// Where the temporary files of the job lie.
    fn scratch(&self) -> PathBuf {
        self.root.join(".scratch")
    }

    /// Where its shared memory lies, if it is not that of the machine.
    fn shared_memory(&self) -> PathBuf {
        self.root.join(".shm")
    }

    /// Makes sure that the folders on the way to those of the job are folders where the job can put something else in their
    /// place: below its temporary files, if the runner works there. Bubblewrap would follow a link out of the job's files
    /// and create folders where it leads. No program of the job may run meanwhile.
    pub(crate) fn repair_way(&self) -> io::Result<()> {
        for temporary in TEMPORARY {
            for folder in [&self.project, &self.home(), &self.files()] {
                let Ok(way) = folder.strip_prefix(temporary) else { continue };
                let mut place = self.scratch();
                for part in way.components() {
                    place.push(part);
                    match fs::symlink_metadata(&place) {
                        Ok(found) if found.is_dir() => continue,
                        Ok(_) => fs::remove_file(&place)?,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                    DirBuilder::new().mode(0o755).create(&place)?;
                }
            }
        }
        Ok(())
    }

    /// What a job with its own network finds as `resolv.conf`.
    fn resolver(&self) -> PathBuf {
        self.files().join(".resolv.conf")
    }
}

impl Cage {
    /// Finds what works here, or says why jobs cannot be kept from the rest of the machine.
    pub(crate) async fn choose(options: &Options, builds: &Path, hidden: &[PathBuf]) -> Result<Self, Error> {
        let root = rustix::process::geteuid().is_root();
        let run_as = match options.run_as.as_deref() {
            Some(_) if !root => {
                return Err(Error::Setup(
                    "only root can run jobs as another user; start as root, or leave --runner-user out".to_owned(),
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
                    "--runner-isolation none runs jobs as the user of the runner, so leave --runner-user out"
                        .to_owned(),
                ));
            }
            Isolation::None => Kind::Open,
            Isolation::User => {
                let usual = || find_user(USUAL_USER).filter(|_| root);
                Kind::User(run_as.clone().or_else(usual).ok_or_else(|| {
                    Error::Setup(
                        "jobs can run as another user only if the runner is started by root and that user exists; \
                         create the user gable-runner, or name one with --runner-user"
                            .to_owned(),
                    )
                })?)
            }
            // Root without its powers still owns most of the machine, so it never runs a job.
            Isolation::Auto | Isolation::Bubblewrap if root => {
                let user = run_as.clone().or_else(|| find_user(USUAL_USER)).or_else(|| find_user(UNPRIVILEGED_USER));
                Kind::Bubblewrap(Some(user.ok_or_else(|| {
                    Error::Setup("jobs never run as root; create the user gable-runner for them".to_owned())
                })?))
            }
            Isolation::Auto | Isolation::Bubblewrap => Kind::Bubblewrap(None),
        };
        let cgroups = Cgroups::prepare();
        let mut cage = Self {
            kind,
            reach: if options.network == Network::Host { Reach::Host } else { Reach::None },
            limits: options.limits,
            cgroups: cgroups.as_ref().ok().cloned(),
            hidden: hidden.to_vec(),
            supervisor: options.supervisor.clone(),
        };
        if let Kind::Bubblewrap(user) = &cage.kind {
            let tried = if is_installed("bwrap") {
                cage.probe(builds).await.map_err(|why| format!("bubblewrap is installed but does not work: {why}"))
            } else {
                Err("bubblewrap is not installed".to_owned())
            };
            match (tried, run_as) {
                (Ok(()), _) => {}
                (Err(why), Some(named)) if options.isolation == Isolation::Auto => {
                    warn!("{why}; jobs run as the user {} without it", named.name);
                    cage.kind = Kind::User(named);
                }
                (Err(why), _) => return Err(Error::Setup(refusal(&why, user.as_ref()))),
            }
        }
        if let Kind::User(user) = &cage.kind {
            cage.reach = Reach::Host;
            let name = user.name.clone();
            cage.probe(builds).await.map_err(|why| {
                Error::Setup(format!(
                    "jobs cannot run as the user {name}: {why}; choose a folder that this user can enter, with --runner-folder"
                ))
            })?;
        }
        cage.find_network(options.network, builds).await?;
        cage.tell(cgroups.err());
        Ok(cage)
    }

    /// Finds out what jobs can be allowed to reach.
    async fn find_network(&mut self, wish: Network, builds: &Path) -> Result<(), Error> {
        if !matches!(self.kind, Kind::Bubblewrap(_)) {
            self.reach = Reach::Host;
            // Whoever wants no isolation at all was told of the danger and wants this, too.
            let is_accepted = wish == Network::Host || (wish == Network::Auto && matches!(self.kind, Kind::Open));
            let refusal = "only bubblewrap can keep jobs from the services of this machine and its network; install it, or \
                           accept with --runner-network host that jobs reach all of them";
            return if is_accepted { Ok(()) } else { Err(Error::Setup(refusal.to_owned())) };
        }
        if matches!(wish, Network::None | Network::Host) {
            return Ok(());
        }
        self.reach = Reach::Public;
        let why = match self.probe(builds).await {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        let advice = "install slirp4netns and iproute2, or choose --runner-network none or host";
        if wish == Network::Public {
            return Err(Error::Setup(format!("jobs cannot be limited to public addresses: {why}; {advice}")));
        }
        self.reach = Reach::None;
        warn!("jobs have no network, because they cannot be limited to public addresses: {why}; {advice}");
        Ok(())
    }

    /// Who the files of a job belong to, if not to the runner.
    pub(crate) fn user(&self) -> Option<&User> {
        match &self.kind {
            Kind::Bubblewrap(user) => user.as_ref(),
            Kind::User(user) => Some(user),
            Kind::Open => None,
        }
    }

    /// What the script of a job may reach.
    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// Tells the operator how jobs are kept apart and limited.
    fn tell(&self, no_cgroups: Option<String>) {
        let me = own_name();
        let network = match self.reach {
            Reach::Public => "they reach public addresses only",
            Reach::None => "they have no network",
            Reach::Host => "they reach whatever this machine can, its own services included",
        };
        match &self.kind {
            Kind::Bubblewrap(user) => info!(
                "jobs run in bubblewrap as {}: they see the programs of this machine and their own folder; {network}",
                user.as_ref().map_or(me.as_str(), |user| &user.name)
            ),
            Kind::User(user) => warn!(
                "jobs run as the user {}, without bubblewrap: they can read and change whatever this user can, other \
                 jobs under way included; {network}",
                user.name
            ),
            Kind::Open => warn!(
                "jobs run as {me} without isolation: whoever can push to a project of the server can read and change on \
                 this machine whatever {me} can, such as keys, tokens and databases; {network}; install bubblewrap and \
                 leave --runner-isolation none out to keep them apart"
            ),
        }
        let shown = |limit: Option<u64>| limit.map_or_else(|| "none".to_owned(), size);
        let held_by = match no_cgroups {
            None => "control group".to_owned(),
            Some(why) => format!("resource limits and measuring, as there is no control group ({why})"),
        };
        info!(
            memory = shown(self.limits.memory),
            processes = self.limits.processes.map_or_else(|| "none".to_owned(), |count| count.to_string()),
            disk = shown(self.limits.disk),
            held_by,
            "the limits of each job"
        );
    }

    /// Makes what a job needs besides its folders: a control group, and a network of its own.
    pub(crate) async fn equip(&self, build: &mut Build, name: &str) -> Result<(), String> {
        if let Some(cgroups) = &self.cgroups {
            let made = cgroups.job(name, self.limits.memory, self.limits.processes);
            build.cgroup = Some(made.map_err(|error| format!("cannot make a control group: {error}"))?);
        }
        if self.reach == Reach::Public {
            let (content, _) = network::resolver();
            fs::write(build.resolver(), content)
                .and_then(|()| fs::set_permissions(build.resolver(), fs::Permissions::from_mode(0o644)))
                .map_err(|error| format!("cannot write {}: {error}", build.resolver().display()))?;
            build.network = Some(JobNetwork::public().await?);
        }
        Ok(())
    }

    /// A program in the folder of a job, with an environment that holds nothing but what is said here.
    pub(crate) fn start(&self, program: Program, build: &Build, reach: Reach) -> Command {
        let supervisor = self.supervisor.first().map(OsString::as_os_str).unwrap_or_default();
        let mut command = Command::new(supervisor);
        command.env_clear().env("PATH", PATH).env("HOME", build.home()).env("LANG", "C.UTF-8");
        command.args(self.supervisor.iter().skip(1)).args(self.request(build).arguments());
        if let Kind::Bubblewrap(user) = &self.kind {
            let network = build.network.as_ref().filter(|_| reach == Reach::Public);
            if let Some(network) = network {
                command.args(network.entrance());
            }
            command.arg("bwrap").args(walls(user.as_ref(), &self.hidden, build, reach));
            if let Some(User { uid, gid, .. }) = user {
                command.args(["--", "setpriv", "--reuid", &uid.to_string(), "--regid", &gid.to_string()]);
                command.args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]);
                // Root without its powers cannot enter the folder of another user.
                command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(&build.project);
            } else {
                command.arg("--chdir").arg(&build.project).arg("--");
            }
        } else {
            command.current_dir(&build.project).env("TMPDIR", build.scratch());
        }
        command.arg(program.name());
        // Whatever the job starts inherits this, so that all of it is found again.
        command.env(MARK, &build.root);
        command
    }

    /// The limits that the supervisor sets.
    fn request(&self, build: &Build) -> Request {
        let limits = &self.limits;
        let mut request = Request { file_size: limits.disk, ..Request::default() };
        if let Some(cgroup) = &build.cgroup {
            request.cgroup = Some(cgroup.path().to_owned());
        } else {
            let uid = self.user().map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
            // The kernel counts all processes of a user, not those of a job.
            let counted = |most: u64| most.saturating_add(usage::tasks_of_user(uid)).saturating_add(SUPERVISORS);
            request.processes = limits.processes.map(counted);
            request.data_size = limits.memory;
        }
        if let Kind::User(user) = &self.kind {
            request.user = Some((user.uid, user.gid));
        }
        request
    }

    /// Tries it.
    async fn probe(&self, builds: &Path) -> Result<(), String> {
        let made = Build::make(builds.join(".probe"), "project", self.user(), Limits::default());
        let mut build = made.map_err(|error| error.to_string())?;
        let outcome = self.probe_in(&mut build).await;
        let _ = folders::remove(&build.root);
        outcome
    }

    async fn probe_in(&self, build: &mut Build) -> Result<(), String> {
        self.equip(build, "probe").await?;
        let mut command = self.start(Program::Sh, build, self.reach);
        // What can change how the kernel works is no cage.
        let trial = "cd \"$0\" && echo works > here && git --version && \
                     ! (exec 3>>/proc/sys/kernel/core_pattern) 2>/dev/null";
        command.args(["-c", trial]).arg(&build.project);
        let mut said = Vec::new();
        let (_tell, told) = watch::channel(None);
        let leash = Leash::new(told, PROBE);
        let ended = processes::run(command, Streams::Both, build, &leash, |piece| said.extend_from_slice(piece)).await;
        let said = String::from_utf8_lossy(&said);
        let said: String = said.trim().replace('\n', "; ").chars().take(500).collect();
        match ended {
            Ok(0) if build.project.join("here").is_file() => Ok(()),
            Ok(_) if said.is_empty() => Err("it says nothing".to_owned()),
            Ok(_) => Err(said),
            Err(Broken::Failed(error)) => Err(error.to_string()),
            Err(Broken::Exceeded(excess)) => Err(excess.to_string()),
            Err(Broken::Interrupted(_)) => Err("it takes too long to start".to_owned()),
        }
    }
}

/// Why the runner does not start, and what to do about it.
fn refusal(why: &str, user: Option<&User>) -> String {
    let mut hints = Vec::new();
    let sysctl = |name: &str| fs::read_to_string(Path::new("/proc/sys").join(name)).unwrap_or_default();
    if why.ends_with("installed") {
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
            hints.push("most containers forbid namespaces: run the runner on a machine of its own");
        }
        if hints.is_empty() {
            hints.push("allow namespaces to the runner, in the kernel and in its service manager");
        }
    }
    format!(
        "jobs are not run, because nothing would keep them from the data of this machine: {why}; {}; or start as root \
         with --runner-user NAME to run jobs as another user; or accept with --runner-isolation none that whoever can \
         push can read and change whatever {} can",
        hints.join("; "),
        own_name()
    )
}

/// A size in the largest unit that leaves no remainder.
pub(crate) fn size(bytes: u64) -> String {
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

/// The variable by which everything that a job has started is found.
pub(crate) const MARK: &str = "CI_BUILDS_DIR";

impl Program {
    /// The shell of this machine.
    pub(crate) fn shell() -> Self {
        let there = PATH.split(':').any(|folder| Path::new(folder).join("bash").is_file());
        if there { Self::Bash } else { Self::Sh }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Bash => "bash",
            Self::Sh => "sh",
        }
    }
}

/// What bubblewrap is told. Nothing of a job stands here: arguments can be read by everybody on the machine.
fn walls(user: Option<&User>, hidden: &[PathBuf], build: &Build, reach: Reach) -> Vec<PathBuf> {
    let mut walls: Vec<PathBuf> = Vec::new();
    let mut add = |words: &[&Path]| walls.extend(words.iter().map(|word| word.to_path_buf()));
    let mut flags = vec!["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"];
    flags.extend(["--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
    if reach == Reach::None {
        flags.push("--unshare-net");
    }
    if user.is_some() {
        // What setpriv needs to become the user, and gives up.
        flags.extend(["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"]);
    }
    for flag in flags {
        add(&[Path::new(flag)]);
    }
    if user.is_none() && reach == Reach::Public {
        // In the namespace of its network the runner is root; a job is not.
        let own = |id: u32| PathBuf::from(id.to_string());
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        add(&[Path::new("--unshare-user"), Path::new("--uid"), &own(uid), Path::new("--gid"), &own(gid)]);
    }
    add(&[Path::new("--proc"), Path::new("/proc")]);
    // Whoever is root without any of its powers still owns these, and they steer the whole machine.
    for path in [Path::new("/proc/sys"), Path::new("/proc/sysrq-trigger")].into_iter().filter(|path| path.exists()) {
        add(&[Path::new("--ro-bind"), path, path]);
    }
    add(&[Path::new("--dev"), Path::new("/dev")]);
    // What lies in a tmpfs is memory that no limit of a process counts, so there is none that a job can write to.
    add(&[Path::new("--bind"), &build.shared_memory(), Path::new("/dev/shm")]);
    add(&[Path::new("--remount-ro"), Path::new("/dev")]);
    add(&[Path::new("--dir"), Path::new("/var")]);
    for temporary in TEMPORARY {
        add(&[Path::new("--bind"), &build.scratch(), Path::new(temporary)]);
    }
    for empty in ["/run", "/home", "/root"] {
        add(&[Path::new("--dir"), Path::new(empty)]);
    }
    // Another user is kept from secrets by their modes.
    let (covers, unshown) = if user.is_some() { (Vec::new(), Vec::new()) } else { sift() };
    let mut seen: Vec<PathBuf> = SEEN.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    if reach == Reach::Host {
        // A socket in there asks for names on behalf of the job, whatever its own network is.
        seen.extend([PathBuf::from(RESOLVED)].into_iter().filter(|path| path.exists()));
    }
    seen.extend(added(user));
    for path in seen.iter().filter(|path| !unshown.contains(path)) {
        add(&[Path::new("--ro-bind"), path, path]);
    }
    for (path, is_folder) in &covers {
        if unshown.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        if *is_folder {
            add(&[Path::new("--tmpfs"), path, Path::new("--remount-ro"), path]);
        } else {
            add(&[Path::new("--ro-bind"), Path::new("/dev/null"), path]);
        }
    }
    // Looked up for each program: a job that finds a link finds what it leads to, and that changes.
    let hidden: Vec<PathBuf> = hidden.iter().filter_map(|path| path.canonicalize().ok()).collect();
    // What is hidden is mostly out of sight anyway.
    let is_seen = |path: &&PathBuf| {
        let is_below = |it: &PathBuf| path.starts_with(it);
        seen.iter().any(|it| is_below(it) && !unshown.contains(it)) && !covers.iter().any(|(it, _)| is_below(it))
    };
    let outermost = |path: &&PathBuf| !hidden.iter().any(|it| it != *path && path.starts_with(it));
    let (hidden, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
        hidden.iter().filter(is_seen).filter(outermost).filter(|path| path.exists()).partition(|path| path.is_dir());
    for file in files {
        add(&[Path::new("--ro-bind"), Path::new("/dev/null"), file]);
    }
    for path in &hidden {
        add(&[Path::new("--tmpfs"), path]);
    }
    if let (Reach::Public, (_, Some(place))) = (reach, network::resolver()) {
        add(&[Path::new("--ro-bind"), &build.resolver(), &place]);
    }
    // The way to the folder of the job is open to the user who runs it, whatever it is outside.
    let way: Vec<&Path> = build.root.ancestors().filter(|path| path.parent().is_some()).collect();
    for folder in way.into_iter().rev() {
        add(&[Path::new("--dir"), folder]);
    }
    for path in [&build.project, &build.home()] {
        add(&[Path::new("--bind"), path, path]);
    }
    add(&[Path::new("--ro-bind"), &build.files(), &build.files()]);
    for path in hidden {
        add(&[Path::new("--remount-ro"), path]);
    }
    add(&[Path::new("--remount-ro"), Path::new("/")]);
    walls
}

/// What was added to the machine by others than whoever runs the job.
fn added(user: Option<&User>) -> Vec<PathBuf> {
    let me = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(ADDED).into_iter().flatten().flatten();
    let of_others = entries.filter(|entry| {
        let readable = |found: &fs::Metadata| found.is_dir() && found.permissions().mode() & 0o005 == 0o005;
        entry.metadata().is_ok_and(|found| readable(&found) && (user.is_some() || found.uid() != me))
    });
    of_others.map(|entry| entry.path()).collect()
}

/// What not everybody may read in the folders of settings, and those folders that are too large to look through.
fn sift() -> (Vec<(PathBuf, bool)>, Vec<PathBuf>) {
    let (mut covers, mut unshown) = (Vec::new(), Vec::new());
    for top in SIFTED {
        let mut open = vec![PathBuf::from(top)];
        let mut seen = 0;
        while let Some(folder) = open.pop() {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                seen += 1;
                let Ok(found) = entry.metadata() else { continue };
                let mode = found.permissions().mode();
                if found.is_dir() {
                    if mode & 0o005 == 0o005 {
                        open.push(entry.path());
                    } else {
                        covers.push((entry.path(), true));
                    }
                } else if !found.is_symlink() && mode & 0o004 == 0 {
                    covers.push((entry.path(), false));
                }
            }
            if seen > MOST_SIFTED {
                unshown.push(PathBuf::from(top));
                break;
            }
        }
    }
    (covers, unshown)
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

/// Who runs this.
fn own_name() -> String {
    let uid = rustix::process::geteuid().as_raw();
    users().into_iter().find(|user| user.uid == uid).map_or_else(|| format!("the user number {uid}"), |user| user.name)
}

/// Whether a file belongs to whoever runs this, and nobody else can read it.
pub(crate) fn is_private(found: &fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw() && found.permissions().mode().trailing_zeros() >= 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn isolation_that_cannot_be_had_is_an_error_and_not_silence() {
        let folder = tempfile::tempdir().expect("a folder");
        let choose = async |wish, run_as: Option<&str>, network| {
            let mut options = Options::new(folder.path(), Vec::new());
            (options.isolation, options.run_as, options.network) = (wish, run_as.map(ToOwned::to_owned), network);
            Cage::choose(&options, folder.path(), &[]).await.map(|cage| cage.reach()).map_err(|error| error.to_string())
        };
        let error = choose(Isolation::Auto, Some("nobody-of-that-name"), Network::Auto).await.expect_err("refused");
        assert!(error.contains("there is no user") || error.contains("only root"), "{error}");
        assert_eq!(choose(Isolation::None, None, Network::Auto).await, Ok(Reach::Host));
        for network in [Network::Public, Network::None] {
            let error = choose(Isolation::None, None, network).await.expect_err("refused");
            assert!(error.starts_with("only bubblewrap can keep jobs from the services of this machine"), "{error}");
        }
        if rustix::process::geteuid().is_root() {
            let error = choose(Isolation::Auto, Some("root"), Network::Auto).await.expect_err("refused");
            assert!(error.starts_with("jobs never run as root"), "{error}");
        }
        if find_user(USUAL_USER).is_none() || !rustix::process::geteuid().is_root() {
            let error = choose(Isolation::User, None, Network::Auto).await.expect_err("refused");
            assert!(error.contains("create the user gable-runner"), "{error}");
        }
    }

    #[test]
    fn a_refusal_says_why_and_what_to_do() {
        let text = refusal("bubblewrap is not installed", None);
        for part in
            ["bubblewrap is not installed", "apt install bubblewrap", "--runner-user", "--runner-isolation none"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = refusal("bubblewrap is installed but does not work: bwrap: No permissions", None);
        assert!(text.contains("bwrap: No permissions") && text.contains("namespaces"), "{text}");
    }

    /// Whether bubblewrap is told these words, one after the other.
    fn are_told(walls: &[PathBuf], words: &[&str]) -> bool {
        walls.windows(words.len()).any(|told| told.iter().zip(words).all(|(told, word)| told == Path::new(word)))
    }

    #[test]
    fn hidden_files_and_folders_are_covered_where_a_job_would_see_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let build = Build::make(folder.path().join("1"), "project", None, Limits::default()).expect("made");
        let hidden = ["/usr/bin/env", "/usr/share", "/usr/share/doc", "/usr/no-such-file", "/proc/version"];
        let hidden: Vec<PathBuf> = hidden.iter().map(PathBuf::from).collect();
        let walls = walls(None, &hidden, &build, Reach::None);
        assert!(are_told(&walls, &["--ro-bind", "/dev/null", "/usr/bin/env"]), "{walls:?}");
        assert!(are_told(&walls, &["--tmpfs", "/usr/share"]) && are_told(&walls, &["--remount-ro", "/usr/share"]));
        for path in ["/usr/share/doc", "/usr/no-such-file", "/proc/version"] {
            assert!(!walls.contains(&PathBuf::from(path)), "{path}");
        }
    }

    #[test]
    fn links_on_the_way_to_a_job_are_replaced_by_folders() {
        let (folder, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let mut build = Build::make(folder.path().join("1"), "project", None, Limits::default()).expect("made");
        build.project = PathBuf::from("/tmp/runner/builds/1/project");
        build.repair_way().expect("repaired");
        let way = build.root.join(".scratch/runner");
        assert!(way.join("builds/1/project").is_dir());
        fs::rename(&way, build.root.join(".scratch/other")).expect("renamed");
        std::os::unix::fs::symlink(outside.path(), &way).expect("linked");
        build.repair_way().expect("repaired");
        assert!(fs::symlink_metadata(&way).expect("there").is_dir() && way.join("builds/1/project").is_dir());
        fs::remove_dir(way.join("builds/1/project")).expect("removed");
        std::os::unix::fs::symlink(outside.path(), way.join("builds/1/project")).expect("linked");
        build.repair_way().expect("repaired");
        assert!(fs::symlink_metadata(way.join("builds/1/project")).expect("there").is_dir());
        assert_eq!(fs::read_dir(outside.path()).expect("read").count(), 0);
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        assert_eq!([0, 5, 2048, 2 << 30].map(size), ["0 bytes", "5 bytes", "2 KiB", "2 GiB"]);
    }
}
