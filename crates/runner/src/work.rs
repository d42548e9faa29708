//! One job, from its folder to its artifacts.

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::StatusCode;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    CloneFrom, Limits, Pace,
    archives::{self, Most, Packed, Selection},
    caches::{self, Caches},
    checkout::{Checkout, Problem},
    client::{Client, Fetched, passing},
    globs::Globs,
    isolation::{Build, Cage, MARK, Program, size},
    network::Reach,
    processes::{self, Broken, Excess, Interrupt, Leash, Streams},
    protocol::{Artifact, Badge, Cache, Dependency, Ending, Job, JobInfo, Step},
    script,
    trace::Trace,
    variables::Variables,
};

/// How long the script that comes after may take.
const AFTER_SCRIPT: Duration = Duration::from_secs(300);
/// How long handing in artifacts and keeping caches may take.
const HANDING_IN: Duration = Duration::from_secs(3600);
/// The exit status of what was killed, as shells show it.
const KILLED: i32 = 137;
/// The exit status of what wrote a file larger than it may.
const FILE_TOO_LARGE: i32 = 153;
/// How long a job may take if the server does not say.
const USUAL_TIMEOUT: u64 = 3600;

/// What all jobs of a runner share.
pub(crate) struct Workshop {
    pub(crate) client: Client,
    pub(crate) cage: Cage,
    pub(crate) shell: Program,
    pub(crate) builds: std::path::PathBuf,
    /// Files that no job sees.
    pub(crate) private: std::path::PathBuf,
    pub(crate) caches: Caches,
    pub(crate) limits: Limits,
    pub(crate) pace: Pace,
    pub(crate) clone_from: Option<CloneFrom>,
    pub(crate) resumes: bool,
    pub(crate) ignore_image: bool,
    pub(crate) name: String,
}

/// Why a job does not end well.
enum Trouble {
    Interrupted(Interrupt),
    Exceeded(Excess),
    Script(i32),
    System(String),
}

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Interrupted(why) => Self::Interrupted(why),
            Problem::Exceeded(excess) => Self::Exceeded(excess),
            Problem::Failed(sentence) => Self::System(sentence),
        }
    }
}

impl From<Broken> for Trouble {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Interrupted(why) => Self::Interrupted(why),
            Broken::Exceeded(excess) => Self::Exceeded(excess),
            Broken::Failed(error) => Self::System(format!("cannot start the shell: {error}")),
        }
    }
}

impl From<Interrupt> for Trouble {
    fn from(why: Interrupt) -> Self {
        Self::Interrupted(why)
    }
}

/// Does a job in a folder of its own, which is removed afterwards. `None`: nobody wants to hear how it ended.
pub(crate) async fn run(
    shop: &Arc<Workshop>,
    job: &Job,
    slot: usize,
    trace: &Arc<Trace>,
    told: tokio::sync::watch::Receiver<Option<Interrupt>>,
) -> Option<Ending> {
    let root = shop.builds.join(job.id.to_string());
    let owner = shop.cage.user();
    let made = Build::make(root.clone(), &folder_name(&job.job_info.project_name), owner, shop.limits);
    let timeout = if job.runner_info.timeout == 0 { USUAL_TIMEOUT } else { job.runner_info.timeout };
    let leash = Leash::new(told, Duration::from_secs(timeout));
    trace.say(&format!("Running with gable runner {} on {}...", env!("CARGO_PKG_VERSION"), shop.name));
    let outcome = match made {
        Ok(mut build) => match shop.cage.equip(&mut build, &job.id.to_string()).await {
            Ok(()) => Work { shop, job, slot, trace, leash, build }.all().await,
            Err(error) => Err(Trouble::System(format!("cannot keep the job apart: {error}"))),
        },
        Err(error) => Err(Trouble::System(format!("cannot make the folder of the job: {error}"))),
    };
    // Before the end is told, so that nothing is left when somebody looks.
    let _ = tokio::task::spawn_blocking(move || {
        processes::sweep(&root);
        if let Err(error) = crate::folders::remove(&root) {
            tracing::warn!(folder = %root.display(), %error, "the folder of a job cannot be removed");
        }
    })
    .await;
    match outcome {
        Ok(()) => {
            trace.cheer("Job succeeded");
            Some(Ending::Success)
        }
        Err(Trouble::Script(code)) => {
            trace.complain(&format!("Job failed: exit status {code}"));
            Some(Ending::Script(code))
        }
        Err(Trouble::Exceeded(excess)) => {
            trace.complain(&format!("Job failed: {excess}; it was killed"));
            Some(Ending::Script(KILLED))
        }
        Err(Trouble::System(sentence)) => {
            trace.complain(&format!("Job failed (system failure): {sentence}"));
            Some(Ending::System)
        }
        Err(Trouble::Interrupted(Interrupt::TimedOut)) => {
            trace.complain(&format!("Job failed: execution took longer than {timeout} seconds"));
            Some(Ending::TimedOut)
        }
        // Whoever starts the runner again has the job given out again.
        Err(Trouble::Interrupted(Interrupt::Stopped)) if shop.resumes => None,
        Err(Trouble::Interrupted(Interrupt::Stopped)) => {
            trace.complain("Job failed (system failure): the runner was stopped");
            Some(Ending::System)
        }
        Err(Trouble::Interrupted(Interrupt::Canceled | Interrupt::Refused)) => None,
    }
}

struct Work<'a> {
    shop: &'a Arc<Workshop>,
    job: &'a Job,
    slot: usize,
    trace: &'a Arc<Trace>,
    leash: Leash,
    build: Build,
}

impl Work<'_> {
    async fn all(&self) -> Result<(), Trouble> {
        let own = [
            ("CI_SERVER", "yes".to_owned()),
            ("CI_PROJECT_DIR", self.build.project.display().to_string()),
            (MARK, self.build.root.display().to_string()),
            ("CI_CONCURRENT_ID", self.slot.to_string()),
        ];

        let variables = Variables::new(&self.job.variables, &own, &self.build.files(), self.shop.cage.user())
            .map_err(|error| Trouble::System(format!("cannot write the files of variables: {error}")))?;
        self.look_at_image()?;
        if self.shop.cage.reach() == Reach::None {
            self.trace.warn(
                "this job has no network; the operator of the runner can allow it with --runner-network public or host",
            );
        }
        let checkout = self.checkout(&variables, &self.leash);
        checkout.run().await?;
        self.restore(&variables).await?;
        for dependency in &self.job.dependencies {
            if dependency.artifacts_file.as_ref().is_some_and(|file| !file.filename.is_empty()) {
                self.download(dependency).await?;
            }
        }
        let outcome = self.main_script(&variables).await;
        if let Err(Trouble::Interrupted(Interrupt::Canceled | Interrupt::Refused | Interrupt::Stopped)) = outcome {
            return outcome;
        }
        if let Err(Trouble::Exceeded(Excess::Disk(_) | Excess::Files(_) | Excess::Depth)) = outcome {
            // Whatever comes after would find the folder as full as it is.
            return outcome;
        }
        let well = outcome.is_ok();
        self.after_script(&variables, &outcome).await?;
        let leash = self.leash.anew(HANDING_IN);
        self.keep(&variables, well, &leash).await?;
        let mut handed_in = Ok(());
        for artifact in self.job.artifacts.iter().filter(|artifact| wanted(&artifact.when, well)) {
            handed_in = handed_in.and(self.hand_in(artifact, &variables, &leash).await);
        }
        outcome.and(handed_in)
    }

    /// A script that was written for a container may do harm, or mislead, outside of one.
    fn look_at_image(&self) -> Result<(), Trouble> {
        let name = |wanted: &Value| wanted.as_str().or_else(|| wanted["name"].as_str()).unwrap_or_default().to_owned();
        let image = self.job.image.iter().map(name).filter(|name| !name.is_empty());
        let services: Vec<String> = self.job.services.iter().map(name).filter(|name| !name.is_empty()).collect();
        let mut wanted: Vec<String> = image.map(|image| format!("the image {image}")).collect();
        match services.as_slice() {
            [] => {}
            [one] => wanted.push(format!("the service {one}")),
            several => wanted.push(format!("the services {}", several.join(", "))),
        }
        let wanted = wanted.join(" and ");
        if wanted.is_empty() {
            return Ok(());
        }
        if self.shop.ignore_image {
            self.trace.warn(&format!("ignoring {wanted}: this runner runs jobs on its machine, without containers"));
            return Ok(());
        }
        Err(Trouble::System(format!(
            "this job needs {wanted}, but this runner runs jobs on its machine, without containers; use a runner with \
             the docker executor, or take image and services out of the job; the operator can also have this runner \
             ignore them, with --runner-ignore-image"
        )))
    }

    /// Tells what may have been the reason if a script failed at one of its limits and was not killed.
    fn explain(&self, code: i32) {
        let limits = &self.build.limits;
        if let Some(most) = limits.disk.filter(|_| code == FILE_TOO_LARGE) {
            self.trace.warn(&format!("a file exceeded the disk limit of the job, {}", size(most)));
        }
        match (&self.build.cgroup, limits.processes, limits.memory) {
            (Some(cgroup), Some(most), _) if cgroup.ran_out_of_processes() => {
                self.trace.warn(&format!("the job reached its limit of {most} processes"));
            }
            (None, _, Some(most)) if self.build.peak_memory.load(Ordering::Relaxed) > most / 4 * 3 => {
                self.trace.warn(&format!("the job came near its memory limit of {}", size(most)));
            }
            _ => {}
        }
    }

    fn checkout<'a>(&'a self, variables: &'a Variables, leash: &'a Leash) -> Checkout<'a> {
        Checkout {
            cage: &self.shop.cage,
            build: &self.build,
            info: &self.job.git_info,
            variables,
            trace: self.trace,
            leash,
            clone_from: self.shop.clone_from.as_ref(),
            pauses: [1, 3, 9].map(|times| self.shop.pace.retry * times * 4),
        }
    }

    async fn main_script(&self, variables: &Variables) -> Result<(), Trouble> {
        for step in self.job.steps.iter().filter(|step| step.name != "after_script") {
            let most = if step.timeout == 0 { u64::from(u32::MAX) } else { step.timeout };
            let leash = self.leash.within(Duration::from_secs(most));
            match self.step(step, variables, None, &leash).await? {
                0 => {}
                code => {
                    self.explain(code);
                    return Err(Trouble::Script(code));
                }
            }
        }
        Ok(())
    }

    /// Whatever comes of it changes nothing, unless the job has to end.
    async fn after_script(&self, variables: &Variables, so_far: &Result<(), Trouble>) -> Result<(), Trouble> {
        let status = if so_far.is_ok() { "success" } else { "failed" };
        for step in self.job.steps.iter().filter(|step| step.name == "after_script" && !step.script.is_empty()) {
            self.trace.cheer("Running after script...");
            match self.step(step, variables, Some(status), &self.leash.anew(AFTER_SCRIPT)).await {
                Ok(0) => {}
                Ok(code) => self.trace.warn(&format!("after script failed: exit status {code}")),
                Err(Broken::Interrupted(Interrupt::TimedOut)) => self.trace.warn("after script took too long"),
                Err(Broken::Exceeded(excess)) => self.trace.warn(&format!("after script was killed: {excess}")),
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    }

    async fn step(
        &self,
        step: &Step,
        variables: &Variables,
        status: Option<&str>,
        leash: &Leash,
    ) -> Result<i32, Broken> {
        let text = script::write(self.shop.shell, variables, status, &self.build.project, &step.script);
        // The variables of the job stand in this file and not in the environment of the program that isolates it,
        // which would otherwise do what some of them say.
        let path = self.build.files().join(format!(".{}", step_file(&step.name)));
        let _ = std::fs::remove_file(&path);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        if let Some(user) = self.shop.cage.user() {
            std::os::unix::fs::fchown(&file, Some(user.uid), Some(user.gid))?;
        }
        drop(file);
        let cage = &self.shop.cage;
        let mut command = cage.start(self.shop.shell, &self.build, cage.reach());
        if self.shop.shell == Program::Bash {
            command.args(["--noprofile", "--norc"]);
        }
        command.arg(&path);
        processes::run(command, Streams::Both, &self.build, leash, |piece| self.trace.write(piece)).await
    }

    /// Brings the artifacts of an earlier job into the project.
    async fn download(&self, dependency: &Dependency) -> Result<(), Trouble> {
        let name = format!("artifacts of {} ({})", dependency.name, dependency.id);
        self.trace.cheer(&format!("Downloading {name}..."));
        let cannot = |why: &dyn std::fmt::Display| Trouble::System(format!("cannot download the {name}: {why}"));
        let mut pause = self.shop.pace.retry;
        for attempt in 1.. {
            let file = tempfile::tempfile_in(&self.shop.private).map_err(|error| cannot(&error))?;
            let mut into = tokio::fs::File::from_std(file);
            let fetched = self.shop.client.download(dependency, &mut into, self.shop.limits.archive);
            let why = match self.leash.hold(fetched).await? {
                Ok(Fetched::Whole) => {
                    let file = into.into_std().await;
                    self.unpack(file).await.map_err(|error| cannot(&error))?;
                    return Ok(());
                }
                Ok(Fetched::TooLarge) => {
                    return Err(cannot(&format!("they are larger than {} bytes", self.shop.limits.archive)));
                }
                Ok(Fetched::Said(status)) if !passing(status) => return Err(cannot(&words(status))),
                Ok(Fetched::Said(status)) => words(status),
                Err(error) => error.0,
            };
            if attempt == self.shop.pace.attempts {
                return Err(cannot(&why));
            }
            self.trace.say(&format!("{why}; trying again..."));
            self.leash.hold(sleep(pause)).await?;
            pause = (pause * 2).min(self.shop.pace.longest_pause);
        }
        Ok(())
    }

    async fn unpack(&self, file: std::fs::File) -> Result<u64, String> {
        let (into, owner) = (self.build.project.clone(), self.shop.cage.user().cloned());
        let most = self.most();
        self.apart(move |stop| archives::unpack(file, &into, owner.as_ref(), most, stop)).await
    }

    fn most(&self) -> Most {
        Most { entries: self.shop.limits.entries, bytes: self.shop.limits.unpacked }
    }

    /// Does something that takes long on a thread of its own, and waits for its end even if it is no longer wanted.
    async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let mut task = tokio::task::spawn_blocking(move || work(&seen));
        let leash = self.leash.anew(HANDING_IN);
        let done = tokio::select! {
            done = &mut task => done,
            _ = leash.pulled() => {
                stop.store(true, Ordering::Relaxed);
                task.await
            }
        };
        done.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Packs and hands in what the job wants to leave behind.
    async fn hand_in(&self, artifact: &Artifact, variables: &Variables, leash: &Leash) -> Result<(), Trouble> {
        if !matches!(artifact.artifact_format.as_str(), "" | "zip") {
            let words =
                format!("artifacts of the format {} are not supported by this runner", artifact.artifact_format);
            self.trace.warn(&words);
            return Ok(());
        }
        self.trace.cheer("Uploading artifacts...");
        let name = match variables.expand(&artifact.name) {
            name if name.trim().is_empty() => "artifacts".to_owned(),
            name => name.replace('/', "-"),
        };
        let file_name = format!("{name}.zip");
        let (paths, exclude) = (&artifact.paths, &artifact.exclude);
        let chosen = self.choose(paths, exclude, artifact.untracked, variables, leash).await?;
        let file = tempfile::tempfile_in(&self.shop.private).map_err(cannot_pack)?;
        let (file, packed) = self.pack(chosen, file).await.map_err(Trouble::System)?;
        if packed.entries == 0 {
            self.trace.warn(&format!("no files found for {}; there is nothing to upload", paths.join(", ")));
            return Ok(());
        }
        self.trace.say(&format!("{} files are packed", packed.entries));
        let badge = Badge { id: self.job.id, token: self.job.token.clone() };
        let size = file.metadata().map_err(cannot_pack)?.len();
        let mut pause = self.shop.pace.retry;
        for attempt in 1.. {
            let mut copy = file.try_clone().map_err(cannot_pack)?;
            io::Seek::rewind(&mut copy).map_err(cannot_pack)?;
            let sent = (tokio::fs::File::from_std(copy), size);
            let upload = self.shop.client.upload(&badge, artifact, &file_name, sent);
            let why = match leash.hold(upload).await? {
                Ok(answer) if answer.status.is_success() => return Ok(()),
                Ok(answer) if answer.status == StatusCode::PAYLOAD_TOO_LARGE => {
                    let words = format!("the artifacts are too large for the server: {size} bytes");
                    return Err(Trouble::System(words));
                }
                Ok(answer) if !answer.is_passing() => {
                    return Err(Trouble::System(format!("cannot upload artifacts: {}", words(answer.status))));
                }
                Ok(answer) => words(answer.status),
                Err(error) => error.0,
            };
            if attempt == self.shop.pace.attempts {
                return Err(Trouble::System(format!("cannot upload artifacts: {why}")));
            }
            self.trace.say(&format!("{why}; trying again..."));
            leash.hold(sleep(pause)).await?;
            pause = (pause * 2).min(self.shop.pace.longest_pause);
        }
        Ok(())
    }

    async fn choose(
        &self,
        paths: &[String],
        exclude: &[String],
        untracked: bool,
        variables: &Variables,
        leash: &Leash,
    ) -> Result<Selection, Trouble> {
        let project = self.build.project.display().to_string();
        let globs = |patterns: &[String]| {
            let patterns: Vec<String> = patterns.iter().map(|pattern| variables.expand(pattern)).collect();
            Globs::new(patterns.iter().map(String::as_str), &project)
        };
        let ((paths, outside), (exclude, _)) = (globs(paths), globs(exclude));
        for pattern in outside {
            self.trace.warn(&format!("{pattern} leads out of the project and is left out"));
        }
        let untracked = if untracked && self.build.project.join(".git").exists() {
            self.checkout(variables, leash).untracked().await?.into_iter().collect()
        } else {
            BTreeSet::new()
        };
        Ok(Selection { paths, exclude, untracked })
    }

    async fn pack(&self, chosen: Selection, mut file: std::fs::File) -> Result<(std::fs::File, Packed), String> {
        let (from, most) = (self.build.project.clone(), self.most());
        let packing = move |stop: &AtomicBool| {
            let packed = archives::pack(&from, &chosen, &mut file, most, stop)?;
            Ok((file, packed))
        };
        let (file, packed) = self.apart(packing).await?;
        for warning in &packed.warnings {
            self.trace.warn(&format!("left out: {warning}"));
        }
        Ok((file, packed))
    }

    fn cache_path(&self, cache: &Cache, variables: &Variables) -> std::path::PathBuf {
        let key = variables.expand(&caches::key(&cache.key));
        let JobInfo { project_id, project_storage_id, .. } = &self.job.job_info;
        // A number may come again once the server has another database.
        let project = if project_storage_id.is_empty() { project_id.to_string() } else { project_storage_id.clone() };
        self.shop.caches.path(self.shop.client.root(), &project, &key)
    }

    /// Brings caches into the project.
    async fn restore(&self, variables: &Variables) -> Result<(), Trouble> {
        for cache in self.job.cache.iter().filter(|cache| !cache.is_empty() && cache.policy != "push") {
            let key = variables.expand(&caches::key(&cache.key));
            match std::fs::File::open(self.cache_path(cache, variables)) {
                Ok(file) => match self.unpack(file).await {
                    Ok(_) => self.trace.say(&format!("The cache {key} is restored")),
                    Err(error) => self.trace.warn(&format!("the cache {key} cannot be restored: {error}")),
                },
                Err(_) => self.trace.say(&format!("There is no cache {key} yet")),
            }
            // An interrupt ends what takes long, but is told here.
            self.leash.hold(std::future::ready(())).await?;
        }
        Ok(())
    }

    /// Keeps caches for the next job.
    async fn keep(&self, variables: &Variables, well: bool, leash: &Leash) -> Result<(), Trouble> {
        for cache in self.job.cache.iter().filter(|it| !it.is_empty() && it.policy != "pull" && wanted(&it.when, well))
        {
            let key = variables.expand(&caches::key(&cache.key));
            let chosen = match self.choose(&cache.paths, &[], cache.untracked, variables, leash).await {
                Ok(chosen) => chosen,
                Err(Trouble::Interrupted(why)) => return Err(Trouble::Interrupted(why)),
                Err(_) => continue,
            };
            let path = self.cache_path(cache, variables);
            match self.keep_one(chosen, &path).await {
                Ok(()) => self.trace.say(&format!("The cache {key} is kept")),
                Err(error) => self.trace.warn(&format!("the cache {key} cannot be kept: {error}")),
            }
            leash.hold(std::future::ready(())).await?;
        }
        Ok(())
    }

    async fn keep_one(&self, chosen: Selection, path: &Path) -> Result<(), String> {
        let archive = self.shop.caches.begin().map_err(|error| error.to_string())?;
        let file = archive.as_file().try_clone().map_err(|error| error.to_string())?;
        let (file, packed) = self.pack(chosen, file).await?;
        if packed.entries == 0 {
            return Err("no files are found".to_owned());
        }
        if file.metadata().map_err(|error| error.to_string())?.len() > self.shop.limits.archive {
            return Err(format!("it is larger than {} bytes", self.shop.limits.archive));
        }
        self.shop.caches.keep(archive, path).map_err(|error| error.to_string())
    }
}

impl Cache {
    fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.untracked
    }
}

fn cannot_pack(error: io::Error) -> Trouble {
    Trouble::System(format!("cannot pack artifacts: {error}"))
}

fn words(status: StatusCode) -> String {
    format!("the server says {status}")
}

/// Whether something is wanted after a job that ended well, or not.
fn wanted(when: &str, well: bool) -> bool {
    match when {
        "always" => true,
        "on_failure" => !well,
        _ => well,
    }
}

/// A name for the folder of a project that is safe on every machine.
fn folder_name(project: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    let name: String = project.chars().map(plain).take(100).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "project".to_owned() } else { name.to_owned() }
}

fn step_file(name: &str) -> &'static str {
    if name == "after_script" { "after-script" } else { "script" }
}
