//! Plans pipelines from the CI file of a commit. Only reads, and never on a writer thread: a file may include others, and its
//! rules may examine every path of the commit.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use ci::{
    Config, ConfigError, Glob, LocalFiles, NoFiles, PipelineContext, Plan, PlanError, Variables, budget::MAX_FILE_BYTES,
};
use git::Repository;
use model::{
    Commit, Oid, Pipeline, Project, ProjectId, Protection, RefName, TriggerId, UserId, objects::EntryKind,
    pipelines::Source,
};

use super::StartPipeline;
use crate::{BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, variables};

/// The path of the CI file.
const CI_FILE: &str = ".gitlab-ci.yml";
/// The mode of a symbolic link, whose content is a path.
const SYMLINK_MODE: u16 = 0o120_000;
/// The maximum length of an error in a CI file and of a commit message.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The maximum number of paths examined for `exists`, and of comparisons of a path with a pattern. Beyond that, a file is
/// assumed to exist, as in GitLab.
const MAX_PATHS: usize = 50_000;
const MAX_COMPARISONS: usize = 2_000_000;
/// The maximum number of refs of one push for which pipelines are created, and of their jobs and the bytes of their plans.
pub(crate) const MAX_REFS: usize = 20;
const MAX_JOBS: usize = 2_000;
const MAX_PLAN_BYTES: usize = 32 << 20;

/// Why no pipeline was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartFailure {
    /// The branch or the tag does not exist.
    NoRef,
    /// The ref does not point to a commit.
    NoCommit,
    /// The commit has no CI file.
    NoFile,
    /// The file is invalid; holds the error.
    Invalid(String),
    /// The file defines no jobs for this pipeline.
    NoJobs,
    /// The workflow rules of the file exclude the pipeline; holds the message.
    Filtered(String),
}

impl StartFailure {
    /// Returns the message of GitLab 8.14.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::NoRef => "Reference not found",
            Self::NoCommit => "Commit not found",
            Self::NoFile => "Missing .gitlab-ci.yml file",
            Self::NoJobs => "No builds for this pipeline.",
            Self::Invalid(text) | Self::Filtered(text) => text,
        }
    }
}

/// A request to start a pipeline other than by a push.
#[derive(Clone)]
pub(crate) struct PipelineRequest {
    /// The project ID.
    pub(crate) project: ProjectId,
    /// The branch or the tag: a full name, or a short name, for which branches take precedence.
    pub(crate) ref_name: String,
    /// What starts the pipeline.
    pub(crate) source: Source,
    /// The ID of the user who starts it.
    pub(crate) user: Option<UserId>,
    /// The ID of the trigger that starts it.
    pub(crate) trigger: Option<TriggerId>,
    /// The variables passed by the trigger, for rules.
    pub(crate) variables: Variables,
    /// The same variables, encrypted for storage.
    pub(crate) encrypted: Option<Vec<u8>>,
}

/// Starts a pipeline for a branch or a tag if its CI file defines jobs for it.
pub(crate) async fn start(
    forge: &Forge,
    caller: Caller,
    request: PipelineRequest,
) -> Result<std::result::Result<Pipeline, StartFailure>> {
    let to_prepare = request.clone();
    let prepared = forge.run_blocking(caller.clone(), move |cx| prepare(cx, &to_prepare)).await?;
    let (start, plan) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return Ok(Err(failure)),
    };
    let started = forge.write(caller, move |tx| {
        let project = open(tx.read(), &request)?;
        if let Some(trigger) = request.trigger {
            let now = tx.now();
            // The trigger was deleted meanwhile.
            if !store::triggers::record_use(tx.db(), trigger, now)? {
                return Err(Error::NoSuchRow);
            }
        }
        super::start(tx, &project, &start, &plan)
    });
    Ok(Ok(started.await?))
}

/// Opens the project. A trigger token needs no permissions of a user.
fn open(tx: &mut ReadTx<'_>, request: &PipelineRequest) -> Result<Project> {
    let project = ProjectRef::Id(request.project);
    match request.source {
        Source::Trigger => tx.project_as_system(&project, ProjectAbility::RunPipelines),
        Source::Push | Source::Api | Source::External => tx.project(&project, ProjectAbility::RunPipelines),
    }
}

fn prepare(
    cx: &mut BlockingContext<'_>,
    request: &PipelineRequest,
) -> Result<std::result::Result<(StartPipeline, Plan), StartFailure>> {
    let opened = cx.read(|tx| {
        let project = open(tx, request)?;
        let repository = tx.repository(&project)?;
        Ok((repository, load_context(tx, project)?))
    });
    let (repository, context) = opened?;
    let Some(repository) = repository else { return Ok(Err(StartFailure::NoRef)) };
    let Some((name, target)) = find_ref(&repository, &request.ref_name) else { return Ok(Err(StartFailure::NoRef)) };
    let tip = match repository.peel(target)? {
        Some(git::Peeled::Commit(tip)) => tip,
        Some(git::Peeled::Other) | None => return Ok(Err(StartFailure::NoCommit)),
    };
    let Some(commit) = repository.commit(tip)? else { return Ok(Err(StartFailure::NoCommit)) };
    let Some(file) = ci_file_of(&repository, tip)? else { return Ok(Err(StartFailure::NoFile)) };
    let mut planner = Planner::new(&repository, &context);
    let config = match &*planner.load(tip, file)? {
        Ok(config) => config.clone(),
        Err(error) => return Ok(Err(StartFailure::Invalid(truncate(error.to_string())))),
    };
    let source = match request.source {
        Source::Trigger => ci::PipelineSource::Trigger,
        Source::Push | Source::Api | Source::External => ci::PipelineSource::Api,
    };
    let input = PlanInput { name: &name, commit: &commit, before: None, source, trigger_variables: &request.variables };
    Ok(match planner.plan(&config, &input)? {
        Ok(plan) => {
            let start = StartPipeline {
                ref_name: name.short().to_owned(),
                tag: name.as_tag().is_some(),
                sha: tip,
                source: request.source,
                user: request.user,
                trigger: request.trigger,
                variables: request.encrypted.clone(),
            };
            Ok((start, plan))
        }
        Err(PlanError::NoJobs) => Err(StartFailure::NoJobs),
        Err(refusal @ PlanError::Workflow) => Err(StartFailure::Filtered(refusal.to_string())),
        Err(PlanError::Invalid(text)) => Err(StartFailure::Invalid(truncate(text))),
    })
}

/// Returns the branch or the tag with this name, and its target. Commit IDs are not accepted.
fn find_ref(repository: &Repository, name: &str) -> Option<(RefName, Oid)> {
    let refs = repository.refs();
    let full = RefName::new(name).filter(|name| name.as_branch().is_some() || name.as_tag().is_some());
    let names = if full.is_some() { [full, None] } else { [RefName::branch(name), RefName::tag(name)] };
    // Forty hexadecimal digits are a commit ID, even if an older version accepted a ref with such a name.
    let mut names = names.into_iter().flatten().filter(|name| !name.looks_like_oid());
    names.find_map(|name| {
        let target = refs.find(&name)?.target;
        Some((name, target))
    })
}

/// Returns the CI file of a commit; reads one tree only.
pub(crate) fn ci_file_of(repository: &Repository, commit: Oid) -> Result<Option<Oid>> {
    let found = repository.entry(commit, CI_FILE)?;
    Ok(found.filter(|entry| entry.kind == EntryKind::Blob && entry.mode != SYMLINK_MODE).map(|entry| entry.id))
}

/// Returns the commit of a branch or a tag.
pub(crate) fn find_commit(repository: &Repository, name: &str) -> Result<Option<Oid>> {
    let Some((_, target)) = find_ref(repository, name) else { return Ok(None) };
    match repository.peel(target)? {
        Some(git::Peeled::Commit(commit)) => Ok(Some(commit)),
        Some(git::Peeled::Other) | None => Ok(None),
    }
}

/// Returns the text of the CI file of a commit, or why it cannot be used; `None` if there is no such file.
pub(crate) fn read_ci_file(
    repository: &Repository,
    commit: Oid,
) -> Result<Option<std::result::Result<String, String>>> {
    let Some(file) = ci_file_of(repository, commit)? else { return Ok(None) };
    Ok(Some(read(repository, file)?.map_err(|error| error.to_string())))
}

/// Reads a text as a CI file, with the files of a commit that it includes; returns its error if it is invalid.
pub(crate) fn load_text(commit: Option<(&Repository, Oid)>, text: &str) -> Result<std::result::Result<Config, String>> {
    if text.len() > MAX_FILE_BYTES {
        let size = u64::try_from(text.len()).unwrap_or(u64::MAX);
        return Ok(Err(CiFileError::TooLarge(size).to_string()));
    }
    let Some((repository, commit)) = commit else {
        return Ok(Config::load(text, &NoFiles).map_err(|error| truncate(error.to_string())));
    };
    let files = CommitFiles::new(repository, commit);
    let loaded = Config::load(text, &files).map_err(CiFileError::from);
    let loaded = match files.error.into_inner() {
        Some(FileError::Invalid(error)) => Err(error),
        Some(FileError::Git(error)) => return Err(error),
        None => loaded,
    };
    Ok(loaded.map_err(|error| truncate(error.to_string())))
}

/// What is needed of a project to plan its pipelines. Not `Debug`, because it contains secrets.
pub(crate) struct PlanningContext {
    pub(crate) project: Project,
    pub(crate) protections: Vec<Protection>,
    variables: Variables,
}

/// Loads what is needed of a project to plan its pipelines.
pub(crate) fn load_context(tx: &mut ReadTx<'_>, project: Project) -> Result<PlanningContext> {
    let protections = store::protections::of_project(tx.db(), project.id)?;
    let variables = variables::of_project(tx, project.id)?;
    let variables = variables.into_iter().map(|variable| (variable.key, variable.value.reveal().to_owned())).collect();
    Ok(PlanningContext { project, protections, variables })
}

/// A ref updated by a push whose commit has a CI file.
#[derive(Clone, Debug)]
pub(crate) struct PushedRef {
    pub(crate) name: RefName,
    pub(crate) old: Option<Oid>,
    pub(crate) tip: Oid,
    pub(crate) file: Oid,
}

/// A pipeline to be created by a push.
pub(crate) struct PlannedPipeline {
    pub(crate) name: RefName,
    pub(crate) commit: Commit,
    pub(crate) outcome: PlanOutcome,
}

/// The outcome of planning a pipeline.
pub(crate) enum PlanOutcome {
    /// The pipeline has jobs.
    Planned(Plan),
    /// The commit message asks to skip CI.
    Skipped,
    /// The file is invalid; holds the error.
    Invalid(String),
}

/// Plans the pipelines of a push. Its objects may still be in quarantine.
pub(crate) fn plan_push(
    repository: &Repository,
    context: &PlanningContext,
    pushed: &[PushedRef],
) -> Result<Vec<PlannedPipeline>> {
    let mut planner = Planner::new(repository, context);
    let (mut jobs, mut bytes) = (0, 0);
    let mut planned = Vec::new();
    for pushed_ref in pushed.iter().take(MAX_REFS) {
        let Some(commit) = repository.commit(pushed_ref.tip)? else { continue };
        let outcome = match planner.plan_ref(pushed_ref, &commit)? {
            Some(Ok(plan)) => {
                jobs += plan.jobs.len();
                bytes += plan.to_json().len();
                if jobs > MAX_JOBS || bytes > MAX_PLAN_BYTES {
                    PlanOutcome::Invalid(format!(
                        "The pipelines of one push would exceed {MAX_JOBS} jobs or {MAX_PLAN_BYTES} bytes; \
                         push fewer refs at once"
                    ))
                } else {
                    PlanOutcome::Planned(plan)
                }
            }
            Some(Err(other)) => other,
            None => continue,
        };
        planned.push(PlannedPipeline { name: pushed_ref.name.clone(), commit, outcome });
    }
    Ok(planned)
}

/// The commit, ref and source of a pipeline to plan.
struct PlanInput<'a> {
    name: &'a RefName,
    commit: &'a Commit,
    /// The previous target of the ref, if it existed.
    before: Option<Oid>,
    source: ci::PipelineSource,
    /// The variables passed by a trigger.
    trigger_variables: &'a Variables,
}

/// A parsed CI file, or its error.
type LoadedConfig = std::result::Result<Config, CiFileError>;

/// Why a CI file cannot be used; the text is shown to the user.
#[derive(Debug, thiserror::Error)]
enum CiFileError {
    /// The file has this number of bytes.
    #[error("The file is too large: it has {0} bytes, at most {MAX_FILE_BYTES} are allowed")]
    TooLarge(u64),
    #[error("The file is not text in UTF-8")]
    NotUtf8,
    #[error("{0}")]
    Invalid(#[from] ConfigError),
    #[error("Included file `{path}`: {source}")]
    Included { path: String, source: Box<Self> },
}

/// Plans pipelines of one repository; reads each CI file once.
struct Planner<'a> {
    repository: &'a Repository,
    context: &'a PlanningContext,
    /// CI files by blob ID if they include no others, and by commit ID otherwise.
    loaded: HashMap<Oid, Rc<LoadedConfig>>,
}

impl<'a> Planner<'a> {
    fn new(repository: &'a Repository, context: &'a PlanningContext) -> Self {
        Self { repository, context, loaded: HashMap::new() }
    }

    /// Plans the pipeline of a pushed ref; returns `None` if it has no jobs.
    fn plan_ref(
        &mut self,
        pushed: &PushedRef,
        commit: &Commit,
    ) -> Result<Option<std::result::Result<Plan, PlanOutcome>>> {
        let loaded = self.load(pushed.tip, pushed.file)?;
        let config = match &*loaded {
            Ok(config) => config,
            Err(error) => return Ok(Some(Err(PlanOutcome::Invalid(truncate(error.to_string()))))),
        };
        if ci::skips_ci(&commit.message) {
            return Ok(Some(Err(PlanOutcome::Skipped)));
        }
        let before = pushed.old.filter(|_| pushed.name.as_branch().is_some());
        let no_variables = Variables::new();
        let input = PlanInput {
            name: &pushed.name,
            commit,
            before,
            source: ci::PipelineSource::Push,
            trigger_variables: &no_variables,
        };
        Ok(match self.plan(config, &input)? {
            Ok(plan) => Some(Ok(plan)),
            Err(PlanError::NoJobs | PlanError::Workflow) => None,
            Err(PlanError::Invalid(text)) => Some(Err(PlanOutcome::Invalid(truncate(text)))),
        })
    }

    /// Reads the CI file of a commit and the files that it includes.
    fn load(&mut self, commit: Oid, file: Oid) -> Result<Rc<LoadedConfig>> {
        if let Some(known) = self.loaded.get(&file).or_else(|| self.loaded.get(&commit)) {
            return Ok(Rc::clone(known));
        }
        let files = CommitFiles::new(self.repository, commit);
        let loaded = read(self.repository, file)?.and_then(|text| Ok(Config::load(&text, &files)?));
        let loaded = match files.error.into_inner() {
            Some(FileError::Invalid(error)) => Err(error),
            Some(FileError::Git(error)) => return Err(error),
            None => loaded,
        };
        let loaded = Rc::new(loaded);
        let key = if files.included.get() { commit } else { file };
        self.loaded.insert(key, Rc::clone(&loaded));
        Ok(loaded)
    }

    fn plan(&self, config: &Config, input: &PlanInput<'_>) -> Result<std::result::Result<Plan, PlanError>> {
        let files = CommitFiles::new(self.repository, input.commit.id);
        let exists = |glob: &Glob| files.has(glob);
        let changes = match input.before {
            Some(before) => self.repository.changed_paths(before, input.commit.id)?,
            None => None,
        };
        let mut variables = self.context.variables.clone();
        variables.extend(input.trigger_variables.clone());
        let pipeline_context = PipelineContext {
            ref_name: input.name.short().to_owned(),
            is_tag: input.name.as_tag().is_some(),
            source: input.source,
            project_path: self.context.project.full_path(),
            default_branch: self.context.project.default_branch.clone(),
            predefined: self.predefined(input),
            variables,
            changes,
            exists: &exists,
        };
        let planned = ci::plan(config, &pipeline_context);
        match files.error.take() {
            Some(FileError::Git(error)) => Err(error),
            Some(FileError::Invalid(_)) | None => Ok(planned),
        }
    }

    /// Returns the predefined variables of a commit and its project, for rules.
    fn predefined(&self, input: &PlanInput<'_>) -> Variables {
        let PlanInput { name, commit, before, .. } = input;
        let project = &self.context.project;
        let sha = commit.id.to_string();
        let old = before.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string());
        let is_protected =
            name.as_branch().is_some_and(|branch| self.context.protections.iter().any(|rule| rule.matches(branch)));
        let message = truncate(commit.message.clone());
        let title = message.lines().next().unwrap_or_default().to_owned();
        let path = project.full_path();
        [
            ("CI_COMMIT_SHA", sha.clone()),
            ("CI_COMMIT_SHORT_SHA", commit.short_id()),
            ("CI_BUILD_REF", sha),
            ("CI_COMMIT_BEFORE_SHA", old.clone()),
            ("CI_BUILD_BEFORE_SHA", old),
            ("CI_COMMIT_TITLE", title),
            ("CI_COMMIT_MESSAGE", message),
            ("CI_COMMIT_REF_PROTECTED", is_protected.to_string()),
            ("CI_PROJECT_ID", project.id.to_string()),
            ("CI_PROJECT_NAME", project.path.clone()),
            ("CI_PROJECT_TITLE", project.name.clone()),
            ("CI_PROJECT_NAMESPACE", project.namespace.full_path.clone()),
            ("CI_PROJECT_PATH_SLUG", ci::slug(&path)),
            ("CI_PROJECT_PATH", path),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

/// Returns the text of a file, or why it cannot be used.
fn read(repository: &Repository, file: Oid) -> Result<std::result::Result<String, CiFileError>> {
    let size = repository.blob_size(file)?.unwrap_or_default();
    if size > u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX) {
        return Ok(Err(CiFileError::TooLarge(size)));
    }
    let mut bytes = Vec::new();
    repository.write_blob(file, &mut bytes)?;
    Ok(String::from_utf8(bytes).map_err(|_| CiFileError::NotUtf8))
}

/// Why a file could not be read.
enum FileError {
    /// The file is invalid.
    Invalid(CiFileError),
    /// The repository could not be read.
    Git(Error),
}

/// The files of one commit, as requested by the parser and the rules.
struct CommitFiles<'a> {
    repository: &'a Repository,
    commit: Oid,
    /// Whether a file was included.
    included: Cell<bool>,
    /// All paths, loaded on demand; `None` if there are too many.
    paths: OnceCell<Option<Vec<String>>>,
    comparisons: Cell<usize>,
    /// The first error, which invalidates all results.
    error: RefCell<Option<FileError>>,
}

impl<'a> CommitFiles<'a> {
    fn new(repository: &'a Repository, commit: Oid) -> Self {
        Self {
            repository,
            commit,
            included: Cell::new(false),
            paths: OnceCell::new(),
            comparisons: Cell::new(0),
            error: RefCell::new(None),
        }
    }

    fn has(&self, glob: &Glob) -> bool {
        if let Some(path) = glob.literal() {
            let found = self.repository.entry(self.commit, path);
            return self.record_error(found).flatten().is_some_and(|entry| entry.kind == EntryKind::Blob);
        }
        let load_paths = || self.record_error(self.repository.file_paths(self.commit, MAX_PATHS)).flatten();
        let Some(paths) = self.paths.get_or_init(load_paths) else { return true };
        let folder = glob.folder();
        let in_folder =
            |path: &&String| folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        for path in paths.iter().filter(in_folder) {
            if self.comparisons.get() == MAX_COMPARISONS {
                return true;
            }
            self.comparisons.set(self.comparisons.get() + 1);
            if glob.matches(path) {
                return true;
            }
        }
        false
    }

    fn record_error<T>(&self, result: git::Result<T>) -> Option<T> {
        result.map_err(|error| self.set_error(FileError::Git(error.into()))).ok()
    }

    fn set_error(&self, error: FileError) {
        self.error.borrow_mut().get_or_insert(error);
    }
}

impl LocalFiles for CommitFiles<'_> {
    fn read(&self, path: &str) -> Option<String> {
        self.included.set(true);
        let entry = self.record_error(self.repository.entry(self.commit, path)).flatten()?;
        if entry.kind != EntryKind::Blob || entry.mode == SYMLINK_MODE {
            return None;
        }
        match read(self.repository, entry.id) {
            Ok(Ok(text)) => Some(text),
            Ok(Err(error)) => {
                let included = CiFileError::Included { path: path.to_owned(), source: Box::new(error) };
                self.set_error(FileError::Invalid(included));
                None
            }
            Err(error) => {
                self.set_error(FileError::Git(error));
                None
            }
        }
    }
}

/// Truncates a text to [`MAX_TEXT_BYTES`].
pub(crate) fn truncate(mut text: String) -> String {
    let end = (0..=MAX_TEXT_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
    text
}
