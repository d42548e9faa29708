//! What keeps a job from the rest of the machine.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::{
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tokio::time::timeout;

use crate::{Error, folders};

/// Where programs are looked for, whatever the environment of the runner says.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Who runs jobs if nobody else is named.
const USUAL_USER: &str = "gable-runner";
/// How long it may take to find out whether an isolation works.
const PROBE: Duration = Duration::from_secs(20);
/// What a job in bubblewrap sees of the machine.
const SEEN: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix", "/run/systemd/resolve"];
/// Of these, a job that runs as the runner itself sees only what everybody on the machine may read.
const SIFTED: &[&str] = &["/etc", "/usr/local/etc"];
/// Of this, such a job sees only what belongs to others.
const ADDED: &str = "/opt";
/// How much is looked at to sift; a folder that holds more is not shown.
const MOST_SIFTED: usize = 50_000;

/// How jobs are kept from the rest of the machine, as the operator wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// The best that works here.
    #[default]
    Auto,
    /// In bubblewrap, or not at all.
    Bubblewrap,
    /// As another user, or not at all.
    User,
    /// None.
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
#[derive(Clone, Debug)]
pub(crate) enum Cage {
    Bubblewrap { user: Option<User>, hidden: Vec<PathBuf> },
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

/// The folder of one job.
pub(crate) struct Build {
    /// All that belongs to the job.
    pub(crate) root: PathBuf,
    /// Where its files are checked out.
    pub(crate) project: PathBuf,
}

impl Build {
    /// Makes the folders of a job, from scratch.
    pub(crate) fn make(root: PathBuf, name: &str, owner: Option<&User>) -> io::Result<Self> {
        folders::remove(&root)?;
        let project = root.join(name);
        let build = Self { root, project };
        // The job owns what it works in, but not the way there: else it could put a link in its place, and the runner
        // would write and read where it leads.
        for folder in [&build.root, &build.files()] {
            DirBuilder::new().mode(if owner.is_some() { 0o711 } else { 0o700 }).create(folder)?;
        }
        for folder in [&build.project, &build.home()] {
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
}

impl Cage {
    /// Finds what works here; the sentence tells the operator what it is.
    pub(crate) async fn choose(
        wish: Isolation,
        run_as: Option<&str>,
        builds: &Path,
        hidden: &[PathBuf],
    ) -> Result<(Self, String), Error> {
        let root = rustix::process::geteuid().is_root();
        let user = match run_as {
            Some(_) if !root => {
                return Err(Error::Setup("only root can run jobs as another user; leave --run-as out".to_owned()));
            }
            Some(name) => {
                let missing = || Error::Setup(format!("there is no user {name} on this machine; create it first"));
                Some(find_user(name).ok_or_else(missing)?)
            }
            None if root => find_user(USUAL_USER),
            None => None,
        };
        let caged = |user: Option<User>| Self::Bubblewrap { user, hidden: hidden.to_vec() };
        let mut candidates = Vec::new();
        if matches!(wish, Isolation::Auto | Isolation::Bubblewrap) {
            candidates.extend(user.clone().map(|user| caged(Some(user))));
            candidates.push(caged(None));
        }
        if matches!(wish, Isolation::Auto | Isolation::User) {
            candidates.extend(user.clone().map(Self::User));
        }
        let mut why = String::new();
        for cage in candidates {
            // Who names a user does not want another one to do it.
            if run_as.is_some() && cage.user().is_none() {
                continue;
            }
            match cage.probe(builds).await {
                Ok(()) => {
                    let sentence = cage.sentence();
                    return Ok((cage, sentence));
                }
                Err(error) => why = error,
            }
        }
        let advice = match wish {
            Isolation::Bubblewrap => "bubblewrap does not work here; install it, and allow user namespaces",
            Isolation::User if user.is_none() => {
                "jobs can run as another user only if the runner is started by root and that user exists; create the \
                 user gable-runner, or name one with --run-as"
            }
            Isolation::User => "the other user cannot work in the runner's folder; choose a folder that it can enter",
            Isolation::Auto if run_as.is_some() => {
                "jobs cannot run as that user in the runner's folder; choose a folder that it can enter"
            }
            Isolation::Auto | Isolation::None => return Ok((Self::Open, Self::Open.sentence())),
        };
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        Err(Error::Setup(format!("{advice}{why}")))
    }

    /// Who the files of a job belong to, if not to the runner.
    pub(crate) fn user(&self) -> Option<&User> {
        match self {
            Self::Bubblewrap { user, .. } => user.as_ref(),
            Self::User(user) => Some(user),
            Self::Open => None,
        }
    }

    /// Whether jobs are kept from the rest of the machine at all.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    fn sentence(&self) -> String {
        let me = own_name();
        match self {
            Self::Bubblewrap { user, .. } => format!(
                "jobs run in bubblewrap as {}: they see the programs of this machine and their own folder; the network \
                 is open to them",
                user.as_ref().map_or(me.as_str(), |user| &user.name)
            ),
            Self::User(user) => format!(
                "jobs run as the user {}: they can read and change whatever this user can, other jobs under way included",
                user.name
            ),
            Self::Open => format!(
                "jobs run as {me} without isolation: whoever can push to a project of the server can read and change on \
                 this machine whatever {me} can, the runner's own token included; install bubblewrap to keep them apart"
            ),
        }
    }

    /// A program in the folder of a job, with an environment that holds nothing but what is said here.
    pub(crate) fn start(&self, program: Program, build: &Build) -> Command {
        let mut command = match (self, program) {
            (Self::Bubblewrap { user, hidden }, _) => {
                let mut command = Command::new("bwrap");
                command.args(walls(user.as_ref(), hidden, build)).arg("--chdir").arg(&build.project);
                command.arg("--").arg(program.name());
                command
            }
            (_, Program::Git) => Command::new("git"),
            (_, Program::Bash) => Command::new("bash"),
            (_, Program::Sh) => Command::new("sh"),
        };
        command.env_clear().env("PATH", PATH).env("HOME", build.home()).env("LANG", "C.UTF-8");
        // Whatever the job starts inherits this, so that all of it is found again.
        command.env(MARK, &build.root);
        command.stdin(Stdio::null());
        if let Some(user) = self.user() {
            // As root, this also takes all other groups away.
            command.gid(user.gid).uid(user.uid);
        }
        if !matches!(self, Self::Bubblewrap { .. }) {
            command.current_dir(&build.project);
        }
        command
    }

    /// Tries it.
    async fn probe(&self, builds: &Path) -> Result<(), String> {
        let build = Build::make(builds.join(".probe"), "project", self.user()).map_err(|error| error.to_string())?;
        let mut command = self.start(Program::Sh, &build);
        // What can change how the kernel works is no cage.
        let trial = "echo works > here && git --version && ! (exec 3>>/proc/sys/kernel/core_pattern) 2>/dev/null";
        command.args(["-c", trial]).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = tokio::process::Command::from(command).kill_on_drop(true).output();
        let outcome = match timeout(PROBE, child).await {
            Ok(Ok(output)) if output.status.success() && build.project.join("here").is_file() => Ok(()),
            Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().chars().take(200).collect()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it takes too long to start".to_owned()),
        };
        let _ = folders::remove(&build.root);
        outcome
    }
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
fn walls(user: Option<&User>, hidden: &[PathBuf], build: &Build) -> Vec<PathBuf> {
    let mut walls: Vec<PathBuf> = Vec::new();
    let mut add = |words: &[&Path]| walls.extend(words.iter().map(|word| word.to_path_buf()));
    let flags = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"];
    for flag in flags.into_iter().chain(["--new-session"]) {
        add(&[Path::new(flag)]);
    }
    if user.is_none() && rustix::process::geteuid().is_root() {
        add(&[Path::new("--cap-drop"), Path::new("ALL")]);
    }
    add(&[Path::new("--proc"), Path::new("/proc")]);
    // Whoever is root without any of its powers still owns these, and they steer the whole machine.
    for path in [Path::new("/proc/sys"), Path::new("/proc/sysrq-trigger")].into_iter().filter(|path| path.exists()) {
        add(&[Path::new("--ro-bind"), path, path]);
    }
    add(&[Path::new("--dev"), Path::new("/dev")]);
    for empty in ["/tmp", "/var/tmp", "/run", "/home", "/root"] {
        add(&[Path::new("--tmpfs"), Path::new(empty)]);
    }
    // Another user is kept from secrets by their modes.
    let (covers, unshown) = if user.is_some() { (Vec::new(), Vec::new()) } else { sift() };
    let mut seen: Vec<PathBuf> = SEEN.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    seen.extend(added(user));
    for path in seen.iter().filter(|path| !unshown.contains(path)) {
        add(&[Path::new("--ro-bind"), path, path]);
    }
    for (path, is_folder) in &covers {
        if unshown.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        if *is_folder {
            add(&[Path::new("--tmpfs"), path]);
        } else {
            add(&[Path::new("--ro-bind"), Path::new("/dev/null"), path]);
        }
    }
    // What is hidden is mostly out of sight anyway.
    for path in hidden.iter().filter(|path| seen.iter().any(|it| path.starts_with(it)) && path.is_dir()) {
        add(&[Path::new("--tmpfs"), path]);
    }
    for path in [&build.project, &build.home()] {
        add(&[Path::new("--bind"), path, path]);
    }
    add(&[Path::new("--ro-bind"), &build.files(), &build.files()]);
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
        let choose = |wish, run_as: Option<&'static str>| Cage::choose(wish, run_as, folder.path(), &[]);
        let error = choose(Isolation::Auto, Some("nobody-of-that-name")).await.expect_err("refused").to_string();
        assert!(error.contains("there is no user") || error.contains("only root"), "{error}");
        let (cage, sentence) = choose(Isolation::None, None).await.expect("chosen");
        assert!(cage.is_open() && sentence.contains("without isolation"), "{sentence}");
        if find_user(USUAL_USER).is_none() || !rustix::process::geteuid().is_root() {
            let error = choose(Isolation::User, None).await.expect_err("refused").to_string();
            assert!(error.contains("create the user gable-runner"), "{error}");
        }
    }
}
