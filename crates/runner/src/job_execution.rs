//! Executes one job, from creating its folder to uploading its artifacts.

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
    CloneSource, Limits, Timing,
    archives::{self, ArchiveError, ArchiveLimits, FileSelection, PackSummary},
    caches::{self, Caches},
    checkout::{Checkout, CheckoutError},
    client::{Client, DownloadOutcome, is_transient},
    globs::Globs,
    isolation::{BUILDS_DIR_VARIABLE, JobWorkspace, Program, Sandbox, format_size},
    network::NetworkAccess,
    processes::{self, Cancellation, ExceededLimit, Interrupt, ProcessError, Streams},
    protocol::{Artifact, Cache, Dependency, Job, JobAuth, JobInfo, JobResult, Step, UPLOAD_TIMEOUT},
    script,
    supervisor::KILLED_EXIT_CODE,
    trace::Trace,
    variables::Variables,
};

/// The timeout of `after_script`.
const AFTER_SCRIPT_TIMEOUT: Duration = Duration::from_secs(300);
/// The exit status of a process that exceeded the file size limit.
const FILE_TOO_LARGE_EXIT_CODE: i32 = 153;
/// The timeout of a job if the server sends none.
const DEFAULT_TIMEOUT_SECONDS: u64 = 3600;

/// What all jobs of a runner share.
pub(crate) struct RunnerContext {
    pub(crate) client: Client,
    pub(crate) sandbox: Sandbox,
    pub(crate) shell: Program,
    pub(crate) builds: std::path::PathBuf,
    /// Files that are hidden from jobs.
    pub(crate) private: std::path::PathBuf,
    pub(crate) caches: Caches,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    pub(crate) clone_source: Option<CloneSource>,
    pub(crate) requeues_interrupted_jobs: bool,
    pub(crate) ignore_image: bool,
    pub(crate) name: String,
}

/// Why a job fails.
enum JobError {
    Interrupted(Interrupt),
    Exceeded(ExceededLimit),
    Script(i32),
    System(String),
}

/// Why a cache is not stored.
#[derive(Debug, thiserror::Error)]
enum CacheError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("no files found")]
    Empty,
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
}

impl From<CheckoutError> for JobError {
    fn from(error: CheckoutError) -> Self {
        match error {
            CheckoutError::Interrupted(reason) => Self::Interrupted(reason),
            CheckoutError::Exceeded(limit) => Self::Exceeded(limit),
            CheckoutError::Failed(message) => Self::System(message),
        }
    }
}

impl From<ProcessError> for JobError {
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::Interrupted(reason) => Self::Interrupted(reason),
            ProcessError::Exceeded(limit) => Self::Exceeded(limit),
            ProcessError::Failed(error) => Self::System(format!("cannot start the shell: {error}")),
        }
    }
}

impl From<Interrupt> for JobError {
    fn from(reason: Interrupt) -> Self {
        Self::Interrupted(reason)
    }
}

/// Runs a job in its own folder, which is removed afterwards. Returns `None` if the result must not be reported.
pub(crate) async fn run(
    cx: &Arc<RunnerContext>,
    job: &Job,
    slot: usize,
    trace: &Arc<Trace>,
    interrupts: tokio::sync::watch::Receiver<Option<Interrupt>>,
) -> Option<JobResult> {
    let root = cx.builds.join(job.id.to_string());
    let owner = cx.sandbox.user();
    let created = JobWorkspace::create(root.clone(), &folder_name(&job.job_info.project_name), owner, cx.limits);
    let timeout = if job.runner_info.timeout == 0 { DEFAULT_TIMEOUT_SECONDS } else { job.runner_info.timeout };
    let cancellation = Cancellation::new(interrupts, Duration::from_secs(timeout));
    trace.write_line(&format!("Running with gable runner {} on {}...", env!("CARGO_PKG_VERSION"), cx.name));
    let outcome = match created {
        Ok(mut workspace) => match cx.sandbox.set_up(&mut workspace, &job.id.to_string()).await {
            Ok(()) => JobExecution { cx, job, slot, trace, cancellation, workspace }.run().await,
            Err(error) => Err(JobError::System(format!("cannot isolate the job: {error}"))),
        },
        Err(error) => Err(JobError::System(format!("cannot create the job folder: {error}"))),
    };
    // Before the result is reported, so that no files are left by then.
    let _ = tokio::task::spawn_blocking(move || {
        processes::kill_marked_processes(&root);
        if let Err(error) = crate::folder_handle::remove_all(&root) {
            tracing::warn!(folder = %root.display(), %error, "cannot remove the folder of a job");
        }
    })
    .await;
    match outcome {
        Ok(()) => {
            trace.write_heading("Job succeeded");
            Some(JobResult::Success)
        }
        Err(JobError::Script(code)) => {
            trace.write_error(&format!("Job failed: exit status {code}"));
            Some(JobResult::Script(code))
        }
        Err(JobError::Exceeded(limit)) => {
            trace.write_error(&format!("Job failed: {limit}; it was killed"));
            Some(JobResult::Script(KILLED_EXIT_CODE.into()))
        }
        Err(JobError::System(message)) => {
            trace.write_error(&format!("Job failed (system failure): {message}"));
            Some(JobResult::System)
        }
        Err(JobError::Interrupted(Interrupt::TimedOut)) => {
            trace.write_error(&format!("Job failed: execution took longer than {timeout} seconds"));
            Some(JobResult::TimedOut)
        }
        // The server requeues the job when the runner starts again.
        Err(JobError::Interrupted(Interrupt::Stopped)) if cx.requeues_interrupted_jobs => None,
        Err(JobError::Interrupted(Interrupt::Stopped)) => {
            trace.write_error("Job failed (system failure): the runner was stopped");
            Some(JobResult::System)
        }
        Err(JobError::Interrupted(Interrupt::Canceled | Interrupt::Refused)) => None,
    }
}

struct JobExecution<'a> {
    cx: &'a Arc<RunnerContext>,
    job: &'a Job,
    slot: usize,
    trace: &'a Arc<Trace>,
    cancellation: Cancellation,
    workspace: JobWorkspace,
}

impl JobExecution<'_> {
    async fn run(&self) -> Result<(), JobError> {
        let runner_variables = [
            ("CI_SERVER", "yes".to_owned()),
            ("CI_PROJECT_DIR", self.workspace.project.display().to_string()),
            (BUILDS_DIR_VARIABLE, self.workspace.root.display().to_string()),
            ("CI_CONCURRENT_ID", self.slot.to_string()),
        ];

        let variables = Variables::new(
            &self.job.variables,
            &runner_variables,
            &self.workspace.runner_files(),
            self.cx.sandbox.user(),
        )
        .map_err(|error| JobError::System(format!("cannot write variable files: {error}")))?;
        self.check_image()?;
        if self.cx.sandbox.network_access() == NetworkAccess::None {
            self.trace.write_warning(
                "this job has no network; the operator of the runner can allow it with --runner-network public or host",
            );
        }
        let checkout = self.checkout(&variables, &self.cancellation);
        checkout.run().await?;
        self.restore_caches(&variables).await?;
        for dependency in &self.job.dependencies {
            if dependency.artifacts_file.as_ref().is_some_and(|file| !file.filename.is_empty()) {
                self.download(dependency).await?;
            }
        }
        let outcome = self.main_script(&variables).await;
        if let Err(JobError::Interrupted(Interrupt::Canceled | Interrupt::Refused | Interrupt::Stopped)) = outcome {
            return outcome;
        }
        if let Err(JobError::Exceeded(ExceededLimit::Disk(_) | ExceededLimit::Files(_) | ExceededLimit::Depth)) =
            outcome
        {
            // Later steps would find the folder just as full.
            return outcome;
        }
        let succeeded = outcome.is_ok();
        self.after_script(&variables, &outcome).await?;
        let cancellation = self.cancellation.with_timeout(UPLOAD_TIMEOUT);
        self.store_caches(&variables, succeeded, &cancellation).await?;
        let mut upload_result = Ok(());
        for artifact in self.job.artifacts.iter().filter(|artifact| applies_after(&artifact.when, succeeded)) {
            upload_result = upload_result.and(self.upload_artifacts(artifact, &variables, &cancellation).await);
        }
        outcome.and(upload_result)
    }

    /// A script written for a container may do harm, or mislead, outside of one.
    fn check_image(&self) -> Result<(), JobError> {
        let name = |item: &Value| item.as_str().or_else(|| item["name"].as_str()).unwrap_or_default().to_owned();
        let image = self.job.image.iter().map(name).filter(|name| !name.is_empty());
        let services: Vec<String> = self.job.services.iter().map(name).filter(|name| !name.is_empty()).collect();
        let mut required: Vec<String> = image.map(|image| format!("the image {image}")).collect();
        match services.as_slice() {
            [] => {}
            [one] => required.push(format!("the service {one}")),
            several => required.push(format!("the services {}", several.join(", "))),
        }
        let required = required.join(" and ");
        if required.is_empty() {
            return Ok(());
        }
        if self.cx.ignore_image {
            self.trace.write_warning(&format!(
                "ignoring {required}: this runner runs jobs on its machine, without containers"
            ));
            return Ok(());
        }
        Err(JobError::System(format!(
            "this job needs {required}, but this runner runs jobs on its machine, without containers; use a runner with \
             the docker executor, or remove image and services from the job; the operator can also make this runner \
             ignore them with --runner-ignore-image"
        )))
    }

    /// Warns about the likely reason if a script failed at one of its limits without being killed.
    fn warn_about_limits(&self, code: i32) {
        let limits = &self.workspace.limits;
        if let Some(limit) = limits.disk.filter(|_| code == FILE_TOO_LARGE_EXIT_CODE) {
            self.trace.write_warning(&format!("a file exceeded the disk limit of the job, {}", format_size(limit)));
        }
        match (&self.workspace.cgroup, limits.processes, limits.memory) {
            (Some(cgroup), Some(limit), _) if cgroup.ran_out_of_processes() => {
                self.trace.write_warning(&format!("the job reached its limit of {limit} processes"));
            }
            (None, _, Some(limit)) if self.workspace.peak_memory.load(Ordering::Relaxed) > limit / 4 * 3 => {
                self.trace.write_warning(&format!("the job came near its memory limit of {}", format_size(limit)));
            }
            _ => {}
        }
    }

    fn checkout<'a>(&'a self, variables: &'a Variables, cancellation: &'a Cancellation) -> Checkout<'a> {
        Checkout {
            sandbox: &self.cx.sandbox,
            workspace: &self.workspace,
            info: &self.job.git_info,
            variables,
            trace: self.trace,
            cancellation,
            clone_source: self.cx.clone_source.as_ref(),
            retry_delays: [1, 3, 9].map(|times| self.cx.timing.retry_delay * times * 4),
        }
    }

    async fn main_script(&self, variables: &Variables) -> Result<(), JobError> {
        for step in self.job.steps.iter().filter(|step| step.name != "after_script") {
            let max_seconds = if step.timeout == 0 { u64::from(u32::MAX) } else { step.timeout };
            let cancellation = self.cancellation.within(Duration::from_secs(max_seconds));
            match self.step(step, variables, None, &cancellation).await? {
                0 => {}
                code => {
                    self.warn_about_limits(code);
                    return Err(JobError::Script(code));
                }
            }
        }
        Ok(())
    }

    /// Its result does not change that of the job, unless the job is interrupted.
    async fn after_script(&self, variables: &Variables, script_result: &Result<(), JobError>) -> Result<(), JobError> {
        let status = if script_result.is_ok() { "success" } else { "failed" };
        for step in self.job.steps.iter().filter(|step| step.name == "after_script" && !step.script.is_empty()) {
            self.trace.write_heading("Running after script...");
            match self.step(step, variables, Some(status), &self.cancellation.with_timeout(AFTER_SCRIPT_TIMEOUT)).await
            {
                Ok(0) => {}
                Ok(code) => self.trace.write_warning(&format!("after script failed: exit status {code}")),
                Err(ProcessError::Interrupted(Interrupt::TimedOut)) => {
                    self.trace.write_warning("after script timed out");
                }
                Err(ProcessError::Exceeded(limit)) => {
                    self.trace.write_warning(&format!("after script was killed: {limit}"));
                }
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
        cancellation: &Cancellation,
    ) -> Result<i32, ProcessError> {
        let text = script::render(self.cx.shell, variables, status, &self.workspace.project, &step.script);
        // The variables are in this file and not in the environment of the sandboxing program, which some of them would
        // affect.
        let path = self.workspace.runner_files().join(format!(".{}", script_file_name(&step.name)));
        let _ = std::fs::remove_file(&path);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        if let Some(user) = self.cx.sandbox.user() {
            std::os::unix::fs::fchown(&file, Some(user.uid), Some(user.gid))?;
        }
        drop(file);
        let sandbox = &self.cx.sandbox;
        let mut command = sandbox.command(self.cx.shell, &self.workspace, sandbox.network_access());
        if self.cx.shell == Program::Bash {
            command.args(["--noprofile", "--norc"]);
        }
        command.arg(&path);
        processes::run(command, Streams::Both, &self.workspace, cancellation, |chunk| self.trace.write(chunk)).await
    }

    /// Downloads the artifacts of an earlier job into the project.
    async fn download(&self, dependency: &Dependency) -> Result<(), JobError> {
        let name = format!("artifacts of {} ({})", dependency.name, dependency.id);
        self.trace.write_heading(&format!("Downloading {name}..."));
        let fail = |reason: &dyn std::fmt::Display| JobError::System(format!("cannot download the {name}: {reason}"));
        let mut delay = self.cx.timing.retry_delay;
        for attempt in 1.. {
            let file = tempfile::tempfile_in(&self.cx.private).map_err(|error| fail(&error))?;
            let mut into = tokio::fs::File::from_std(file);
            let fetched = self.cx.client.download(dependency, &mut into, self.cx.limits.archive);
            let reason = match self.cancellation.run(fetched).await? {
                Ok(DownloadOutcome::Complete) => {
                    let file = into.into_std().await;
                    self.unpack(file).await.map_err(|error| fail(&error))?;
                    return Ok(());
                }
                Ok(DownloadOutcome::TooLarge) => {
                    return Err(fail(&format!("they are larger than {} bytes", self.cx.limits.archive)));
                }
                Ok(DownloadOutcome::Status(status)) if !is_transient(status) => {
                    return Err(fail(&describe_status(status)));
                }
                Ok(DownloadOutcome::Status(status)) => describe_status(status),
                Err(error) => error.0,
            };
            if attempt == self.cx.timing.max_attempts {
                return Err(fail(&reason));
            }
            self.trace.write_line(&format!("{reason}; retrying..."));
            self.cancellation.run(sleep(delay)).await?;
            delay = (delay * 2).min(self.cx.timing.max_retry_delay);
        }
        Ok(())
    }

    async fn unpack(&self, file: std::fs::File) -> Result<u64, ArchiveError> {
        let (into, owner) = (self.workspace.project.clone(), self.cx.sandbox.user().cloned());
        let limits = self.archive_limits();
        self.run_blocking(move |stop| archives::unpack(file, &into, owner.as_ref(), limits, stop)).await
    }

    fn archive_limits(&self) -> ArchiveLimits {
        ArchiveLimits { entries: self.cx.limits.entries, bytes: self.cx.limits.unpacked }
    }

    /// Runs a long blocking operation on its own thread, and waits for its end even if it is interrupted.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, ArchiveError> + Send + 'static,
    ) -> Result<T, ArchiveError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&stop);
        let mut task = tokio::task::spawn_blocking(move || work(&stop_flag));
        let cancellation = self.cancellation.with_timeout(UPLOAD_TIMEOUT);
        let done = tokio::select! {
            done = &mut task => done,
            _ = cancellation.interrupted() => {
                stop.store(true, Ordering::Relaxed);
                task.await
            }
        };
        done?
    }

    /// Packs and uploads artifacts.
    async fn upload_artifacts(
        &self,
        artifact: &Artifact,
        variables: &Variables,
        cancellation: &Cancellation,
    ) -> Result<(), JobError> {
        if !matches!(artifact.artifact_format.as_str(), "" | "zip") {
            let message = format!("this runner does not support artifacts of the format {}", artifact.artifact_format);
            self.trace.write_warning(&message);
            return Ok(());
        }
        self.trace.write_heading("Uploading artifacts...");
        let name = match variables.expand(&artifact.name) {
            name if name.trim().is_empty() => "artifacts".to_owned(),
            name => name.replace('/', "-"),
        };
        let file_name = format!("{name}.zip");
        let (paths, exclude) = (&artifact.paths, &artifact.exclude);
        let selection = self.select_files(paths, exclude, artifact.untracked, variables, cancellation).await?;
        let file = tempfile::tempfile_in(&self.cx.private).map_err(cannot_pack)?;
        let (file, packed) = self.pack(selection, file).await.map_err(|error| JobError::System(error.to_string()))?;
        if packed.entries == 0 {
            self.trace.write_warning(&format!("no files found for {}; nothing to upload", paths.join(", ")));
            return Ok(());
        }
        self.trace.write_line(&format!("Packed {} files", packed.entries));
        let credentials = JobAuth { id: self.job.id, token: self.job.token.clone() };
        let size = file.metadata().map_err(cannot_pack)?.len();
        let mut delay = self.cx.timing.retry_delay;
        for attempt in 1.. {
            let mut copy = file.try_clone().map_err(cannot_pack)?;
            io::Seek::rewind(&mut copy).map_err(cannot_pack)?;
            let sent = (tokio::fs::File::from_std(copy), size);
            let upload = self.cx.client.upload(&credentials, artifact, &file_name, sent);
            let reason = match cancellation.run(upload).await? {
                Ok(response) if response.status.is_success() => return Ok(()),
                Ok(response) if response.status == StatusCode::PAYLOAD_TOO_LARGE => {
                    let message = format!("the artifacts are too large for the server: {size} bytes");
                    return Err(JobError::System(message));
                }
                Ok(response) if !response.is_transient() => {
                    return Err(JobError::System(format!(
                        "cannot upload artifacts: {}",
                        describe_status(response.status)
                    )));
                }
                Ok(response) => describe_status(response.status),
                Err(error) => error.0,
            };
            if attempt == self.cx.timing.max_attempts {
                return Err(JobError::System(format!("cannot upload artifacts: {reason}")));
            }
            self.trace.write_line(&format!("{reason}; retrying..."));
            cancellation.run(sleep(delay)).await?;
            delay = (delay * 2).min(self.cx.timing.max_retry_delay);
        }
        Ok(())
    }

    async fn select_files(
        &self,
        paths: &[String],
        exclude: &[String],
        untracked: bool,
        variables: &Variables,
        cancellation: &Cancellation,
    ) -> Result<FileSelection, JobError> {
        let project = self.workspace.project.display().to_string();
        let globs = |patterns: &[String]| {
            let patterns: Vec<String> = patterns.iter().map(|pattern| variables.expand(pattern)).collect();
            Globs::new(patterns.iter().map(String::as_str), &project)
        };
        let ((paths, outside), (exclude, _)) = (globs(paths), globs(exclude));
        for pattern in outside {
            self.trace.write_warning(&format!("{pattern} is outside the project and is ignored"));
        }
        let untracked = if untracked && self.workspace.project.join(".git").exists() {
            self.checkout(variables, cancellation).untracked().await?.into_iter().collect()
        } else {
            BTreeSet::new()
        };
        Ok(FileSelection { paths, exclude, untracked })
    }

    async fn pack(
        &self,
        selection: FileSelection,
        mut file: std::fs::File,
    ) -> Result<(std::fs::File, PackSummary), ArchiveError> {
        let (from, limits) = (self.workspace.project.clone(), self.archive_limits());
        let packing = move |stop: &AtomicBool| {
            let packed = archives::pack(&from, &selection, &mut file, limits, stop)?;
            Ok((file, packed))
        };
        let (file, packed) = self.run_blocking(packing).await?;
        for warning in &packed.warnings {
            self.trace.write_warning(&format!("skipped {warning}"));
        }
        Ok((file, packed))
    }

    fn cache_path(&self, cache: &Cache, variables: &Variables) -> std::path::PathBuf {
        let key = variables.expand(&caches::key_text(&cache.key));
        let JobInfo { project_id, project_storage_id, .. } = &self.job.job_info;
        // Project ids repeat after the server's database is replaced.
        let project = if project_storage_id.is_empty() { project_id.to_string() } else { project_storage_id.clone() };
        self.cx.caches.path(self.cx.client.base_url(), &project, &key)
    }

    /// Restores caches into the project.
    async fn restore_caches(&self, variables: &Variables) -> Result<(), JobError> {
        for cache in self.job.cache.iter().filter(|cache| !cache.is_empty() && cache.policy != "push") {
            let key = variables.expand(&caches::key_text(&cache.key));
            match std::fs::File::open(self.cache_path(cache, variables)) {
                Ok(file) => match self.unpack(file).await {
                    Ok(_) => self.trace.write_line(&format!("Restored cache {key}")),
                    Err(error) => self.trace.write_warning(&format!("cannot restore cache {key}: {error}")),
                },
                Err(_) => self.trace.write_line(&format!("No cache {key} found")),
            }
            // The interrupt stops the blocking operation, but is reported here.
            self.cancellation.run(std::future::ready(())).await?;
        }
        Ok(())
    }

    /// Stores caches for later jobs.
    async fn store_caches(
        &self,
        variables: &Variables,
        succeeded: bool,
        cancellation: &Cancellation,
    ) -> Result<(), JobError> {
        for cache in self
            .job
            .cache
            .iter()
            .filter(|cache| !cache.is_empty() && cache.policy != "pull" && applies_after(&cache.when, succeeded))
        {
            let key = variables.expand(&caches::key_text(&cache.key));
            let selection = match self.select_files(&cache.paths, &[], cache.untracked, variables, cancellation).await {
                Ok(selection) => selection,
                Err(JobError::Interrupted(reason)) => return Err(JobError::Interrupted(reason)),
                Err(_) => continue,
            };
            let path = self.cache_path(cache, variables);
            match self.store_cache(selection, &path).await {
                Ok(()) => self.trace.write_line(&format!("Stored cache {key}")),
                Err(error) => self.trace.write_warning(&format!("cannot store cache {key}: {error}")),
            }
            cancellation.run(std::future::ready(())).await?;
        }
        Ok(())
    }

    async fn store_cache(&self, selection: FileSelection, path: &Path) -> Result<(), CacheError> {
        let archive = self.cx.caches.create_temp_file()?;
        let file = archive.as_file().try_clone()?;
        let (file, packed) = self.pack(selection, file).await?;
        if packed.entries == 0 {
            return Err(CacheError::Empty);
        }
        if file.metadata()?.len() > self.cx.limits.archive {
            return Err(CacheError::TooLarge(self.cx.limits.archive));
        }
        Ok(self.cx.caches.store(archive, path)?)
    }
}

impl Cache {
    fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.untracked
    }
}

fn cannot_pack(error: io::Error) -> JobError {
    JobError::System(format!("cannot pack artifacts: {error}"))
}

fn describe_status(status: StatusCode) -> String {
    format!("the server responded with {status}")
}

/// Returns whether `when` applies to a job with this result.
fn applies_after(when: &str, succeeded: bool) -> bool {
    match when {
        "always" => true,
        "on_failure" => !succeeded,
        _ => succeeded,
    }
}

/// Returns a folder name for a project that is safe on every machine.
fn folder_name(project: &str) -> String {
    let replace = |ch: char| if ch.is_ascii_alphanumeric() || "._-".contains(ch) { ch } else { '-' };
    let name: String = project.chars().map(replace).take(100).collect();
    let name = name.trim_start_matches(['.', '-']);
    if name.is_empty() { "project".to_owned() } else { name.to_owned() }
}

fn script_file_name(name: &str) -> &'static str {
    if name == "after_script" { "after-script" } else { "script" }
}
