//! What a pipeline will be: reads the CI file of a commit and plans. Nothing here writes, and nothing of it happens on a
//! thread that writes: a file may include others, and its rules may look at every path of the commit.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use ci::{Circumstances, Config, Glob, Include, Plan, PlanRefusal, Variables, budget::MAX_FILE_BYTES};
use git::Repository;
use model::{Commit, Oid, Pipeline, Project, Protection, RefName, objects::EntryKind, pipelines::Source};

use super::Start;
use crate::{BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, variables};

/// The file that says what is built.
const FILE: &str = ".gitlab-ci.yml";
/// The mode of a link, whose content is a path and not a file.
const LINK: u16 = 0o120_000;
/// How much is told of what is wrong with a file, and of the message of a commit, in bytes.
const LONGEST_TEXT: usize = 64 << 10;
/// How many files and folders of a commit are looked at for `exists`, and how often a path is compared with a pattern.
/// Whatever is asked beyond that counts as there, as with the original.
const MOST_PATHS: usize = 50_000;
const MOST_COMPARISONS: usize = 2_000_000;
/// For how many refs of one push pipelines are made, and how much these may build: jobs, and bytes of what they do.
pub(crate) const MOST_REFS: usize = 20;
const MOST_JOBS: usize = 2_000;
const MOST_PLANNED: usize = 32 << 20;

/// Why no pipeline was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unstarted {
    /// There is no such branch and no such tag.
    NoRef,
    /// It does not lead to a commit.
    NoCommit,
    /// The commit has no CI file.
    NoFile,
    /// The file is wrong; tells what is.
    Invalid(String),
    /// No job is left.
    NoJobs,
    /// The file wants no pipeline here; tells so.
    Filtered(String),
}

impl Unstarted {
    /// The sentence that clients of the original know.
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

/// A pipeline that somebody wants beside all pushes.
#[derive(Clone)]
pub(crate) struct Wish {
    /// Where.
    pub(crate) project: i64,
    /// The branch or the tag: its full name, or as people say it, and then a branch comes first.
    pub(crate) ref_name: String,
    /// Why.
    pub(crate) source: Source,
    /// Who starts it.
    pub(crate) user: Option<i64>,
    /// The trigger that starts it.
    pub(crate) trigger: Option<i64>,
    /// What the trigger gives along, for rules to look at.
    pub(crate) variables: Variables,
    /// The same, sealed, to be kept.
    pub(crate) sealed: Option<Vec<u8>>,
}

/// Starts a pipeline for a branch or a tag, as far as its file has something to build.
pub(crate) async fn start_on(
    forge: &Forge,
    caller: Caller,
    wish: Wish,
) -> Result<std::result::Result<Pipeline, Unstarted>> {
    let asked = wish.clone();
    let prepared = forge.run_blocking(caller.clone(), move |tx| prepare(tx, &asked)).await?;
    let (start, plan) = match prepared {
        Ok(prepared) => prepared,
        Err(unstarted) => return Ok(Err(unstarted)),
    };
    let started = forge.write(caller, move |tx| {
        let project = open(tx, &wish)?;
        if let Some(trigger) = wish.trigger {
            let now = tx.now();
            // Removed a moment ago.
            if !store::triggers::note_use(tx.db(), trigger, now)? {
                return Err(Error::NoSuchRow);
            }
        }
        super::start(tx, &project, &start, &plan)
    });
    Ok(Ok(started.await?))
}

/// Whoever shows the token of a trigger has no rights of their own; everybody else needs them.
fn open(tx: &mut ReadTx<'_>, wish: &Wish) -> Result<Project> {
    let project = ProjectRef::Id(wish.project);
    match wish.source {
        Source::Trigger => tx.open_as_service(&project, ProjectAbility::RunPipelines),
        Source::Push | Source::Api | Source::External => tx.open(&project, ProjectAbility::RunPipelines),
    }
}

fn prepare(tx: &mut BlockingContext<'_>, wish: &Wish) -> Result<std::result::Result<(Start, Plan), Unstarted>> {
    let opened = tx.read(|tx| {
        let project = open(tx, wish)?;
        let repository = tx.repository(&project)?;
        Ok((repository, survey(tx, project)?))
    });
    let (repository, ground) = opened?;
    let Some(repository) = repository else { return Ok(Err(Unstarted::NoRef)) };
    let Some((name, target)) = find_ref(&repository, &wish.ref_name)? else { return Ok(Err(Unstarted::NoRef)) };
    let tip = match repository.peel(target)? {
        Some(git::Peeled::Commit(tip)) => tip,
        Some(git::Peeled::Other) | None => return Ok(Err(Unstarted::NoCommit)),
    };
    let Some(commit) = repository.commit(tip)? else { return Ok(Err(Unstarted::NoCommit)) };
    let Some(file) = file_of(&repository, tip)? else { return Ok(Err(Unstarted::NoFile)) };
    let mut drafter = Drafter::new(&repository, &ground);
    let config = match &*drafter.load(tip, file)? {
        Ok(config) => config.clone(),
        Err(text) => return Ok(Err(Unstarted::Invalid(text.clone()))),
    };
    let source = match wish.source {
        Source::Trigger => ci::Source::Trigger,
        Source::Push | Source::Api | Source::External => ci::Source::Api,
    };
    let scene = Scene { name: &name, commit: &commit, before: None, source, given: &wish.variables };
    Ok(match drafter.plan(&config, &scene)? {
        Ok(plan) => {
            let start = Start {
                ref_name: name.short().to_owned(),
                tag: name.as_tag().is_some(),
                sha: tip,
                source: wish.source,
                user: wish.user,
                trigger: wish.trigger,
                variables: wish.sealed.clone(),
            };
            Ok((start, plan))
        }
        Err(PlanRefusal::NoJobs) => Err(Unstarted::NoJobs),
        Err(refusal @ PlanRefusal::Workflow) => Err(Unstarted::Filtered(refusal.to_string())),
        Err(PlanRefusal::Invalid(text)) => Err(Unstarted::Invalid(cut(text))),
    })
}

/// The branch or the tag that somebody means, and what it points to. The name of a commit is neither.
fn find_ref(repository: &Repository, name: &str) -> Result<Option<(RefName, Oid)>> {
    let refs = repository.refs()?;
    let full = RefName::new(name).filter(|name| name.as_branch().is_some() || name.as_tag().is_some());
    let names = if full.is_some() { [full, None] } else { [RefName::branch(name), RefName::tag(name)] };
    // Forty digits are the id of a commit, also if an older version has taken such a name in.
    let names = names.into_iter().flatten().filter(|name| !name.looks_like_an_id());
    Ok(names.into_iter().find_map(|name| {
        let target = refs.find(&name)?.target;
        Some((name, target))
    }))
}

/// The CI file of a commit: one look into one tree.
pub(crate) fn file_of(repository: &Repository, commit: Oid) -> Result<Option<Oid>> {
    let found = repository.entry(commit, FILE)?;
    Ok(found.filter(|entry| entry.kind == EntryKind::Blob && entry.mode != LINK).map(|entry| entry.id))
}

/// What is to be known of a project to plan its pipelines. It holds secrets, so it is never printed.
pub(crate) struct Ground {
    pub(crate) project: Project,
    pub(crate) protections: Vec<Protection>,
    variables: Variables,
}

/// Collects what is to be known of a project that was opened.
pub(crate) fn survey(tx: &mut ReadTx<'_>, project: Project) -> Result<Ground> {
    let protections = store::protections::of_project(tx.db(), project.id)?;
    let variables = variables::of_project(tx, project.id)?;
    let variables = variables.into_iter().map(|one| (one.key, one.value.reveal().to_owned())).collect();
    Ok(Ground { project, protections, variables })
}

/// A ref that a push moves to a commit with a CI file.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) name: RefName,
    pub(crate) old: Option<Oid>,
    pub(crate) tip: Oid,
    pub(crate) file: Oid,
}

/// A pipeline that a push will make.
pub(crate) struct Draft {
    pub(crate) name: RefName,
    pub(crate) sha: Oid,
    pub(crate) what: Drafted,
}

/// What will become of a pipeline.
pub(crate) enum Drafted {
    /// There is something to build.
    Planned { stages: Vec<String>, plan: String },
    /// Whoever made the commit wants nothing to be built.
    Skipped,
    /// The file is wrong; tells what is.
    Invalid(String),
}

/// The pipelines that a push will make. The objects may still be in quarantine.
pub(crate) fn of_push(repository: &Repository, ground: &Ground, moved: &[Moved]) -> Result<Vec<Draft>> {
    let mut drafter = Drafter::new(repository, ground);
    let (mut jobs, mut bytes) = (0, 0);
    let mut drafts = Vec::new();
    for one in moved.iter().take(MOST_REFS) {
        let Some(commit) = repository.commit(one.tip)? else { continue };
        let what = match drafter.draft(one, &commit)? {
            Some(Ok(plan)) => {
                jobs += plan.jobs.len();
                let text = plan.to_text();
                bytes += text.len();
                if jobs > MOST_JOBS || bytes > MOST_PLANNED {
                    Drafted::Invalid(format!(
                        "The pipelines of one push would have more than {MOST_JOBS} jobs or {MOST_PLANNED} bytes of \
                         what these do; push fewer refs at once"
                    ))
                } else {
                    Drafted::Planned { stages: plan.stages, plan: text }
                }
            }
            Some(Err(other)) => other,
            None => continue,
        };
        drafts.push(Draft { name: one.name.clone(), sha: one.tip, what });
    }
    Ok(drafts)
}

/// Where and why a pipeline is wanted.
struct Scene<'a> {
    name: &'a RefName,
    commit: &'a Commit,
    /// Where the ref stood before, if it did.
    before: Option<Oid>,
    source: ci::Source,
    /// What a trigger gives along.
    given: &'a Variables,
}

/// A file that was read, or what is wrong with it.
type Loaded = std::result::Result<Config, String>;

/// Reads files of one repository, each once.
struct Drafter<'a> {
    repository: &'a Repository,
    ground: &'a Ground,
    /// Files that include no others, by their names, and the others by those of their commits.
    loaded: HashMap<Oid, Rc<Loaded>>,
}

impl<'a> Drafter<'a> {
    fn new(repository: &'a Repository, ground: &'a Ground) -> Self {
        Self { repository, ground, loaded: HashMap::new() }
    }

    /// What a push of one ref makes; nothing if there is nothing to build.
    fn draft(&mut self, moved: &Moved, commit: &Commit) -> Result<Option<std::result::Result<Plan, Drafted>>> {
        let loaded = self.load(moved.tip, moved.file)?;
        let config = match &*loaded {
            Ok(config) => config,
            Err(text) => return Ok(Some(Err(Drafted::Invalid(text.clone())))),
        };
        if ci::asks_to_skip(&commit.message) {
            return Ok(Some(Err(Drafted::Skipped)));
        }
        let before = moved.old.filter(|_| moved.name.as_branch().is_some());
        let given = Variables::new();
        let scene = Scene { name: &moved.name, commit, before, source: ci::Source::Push, given: &given };
        Ok(match self.plan(config, &scene)? {
            Ok(plan) => Some(Ok(plan)),
            Err(PlanRefusal::NoJobs | PlanRefusal::Workflow) => None,
            Err(PlanRefusal::Invalid(text)) => Some(Err(Drafted::Invalid(cut(text)))),
        })
    }

    /// Reads the file of a commit with everything that it includes.
    fn load(&mut self, commit: Oid, file: Oid) -> Result<Rc<Loaded>> {
        if let Some(known) = self.loaded.get(&file).or_else(|| self.loaded.get(&commit)) {
            return Ok(Rc::clone(known));
        }
        let files = Files::new(self.repository, commit);
        let loaded = match read(self.repository, file)? {
            Ok(text) => Config::load(&text, &files).map_err(|invalid| invalid.text),
            Err(fault) => Err(fault),
        };
        let loaded = match files.trouble.into_inner() {
            Some(Trouble::Fault(text)) => Err(text),
            Some(Trouble::Git(error)) => return Err(error),
            None => loaded,
        };
        let loaded = Rc::new(loaded.map_err(cut));
        let key = if files.included.get() { commit } else { file };
        self.loaded.insert(key, Rc::clone(&loaded));
        Ok(loaded)
    }

    fn plan(&self, config: &Config, scene: &Scene<'_>) -> Result<std::result::Result<Plan, PlanRefusal>> {
        let files = Files::new(self.repository, scene.commit.id);
        let exists = |glob: &Glob| files.has(glob);
        let changes = match scene.before {
            Some(before) => self.repository.changed_paths(before, scene.commit.id)?,
            None => None,
        };
        let mut variables = self.ground.variables.clone();
        variables.extend(scene.given.clone());
        let circumstances = Circumstances {
            ref_name: scene.name.short().to_owned(),
            is_tag: scene.name.as_tag().is_some(),
            source: scene.source,
            project_path: self.ground.project.full_path(),
            default_branch: self.ground.project.default_branch.clone(),
            predefined: self.predefined(scene),
            variables,
            changes,
            exists: &exists,
        };
        let planned = ci::plan(config, &circumstances);
        match files.trouble.take() {
            Some(Trouble::Git(error)) => Err(error),
            Some(Trouble::Fault(_)) | None => Ok(planned),
        }
    }

    /// What the service itself says of a commit and its project, for rules to look at.
    fn predefined(&self, scene: &Scene<'_>) -> Variables {
        let Scene { name, commit, before, .. } = scene;
        let project = &self.ground.project;
        let sha = commit.id.to_string();
        let old = before.map_or_else(|| Oid::ZERO.to_owned(), |oid| oid.to_string());
        let is_protected =
            name.as_branch().is_some_and(|branch| self.ground.protections.iter().any(|rule| rule.matches(branch)));
        let message = cut(commit.message.clone());
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

/// The text of a file, or why it is none that anybody reads.
fn read(repository: &Repository, file: Oid) -> Result<std::result::Result<String, String>> {
    let size = repository.blob_size(file)?.unwrap_or_default();
    if size > u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX) {
        return Ok(Err(format!("The file is too large: it has {size} bytes, at most {MAX_FILE_BYTES} are allowed")));
    }
    let mut bytes = Vec::new();
    repository.write_blob(file, &mut bytes)?;
    Ok(String::from_utf8(bytes).map_err(|_| "The file is not text in UTF-8".to_owned()))
}

/// Why a file could not be looked at.
enum Trouble {
    /// There is something wrong with the file.
    Fault(String),
    /// There is something wrong with the repository.
    Git(Error),
}

/// The files of one commit, as the planner asks for them.
struct Files<'a> {
    repository: &'a Repository,
    commit: Oid,
    /// Whether a file was asked for.
    included: Cell<bool>,
    /// All paths, once somebody asks; `None` if there are too many.
    paths: OnceCell<Option<Vec<String>>>,
    comparisons: Cell<usize>,
    /// The first thing that went wrong; then no answer counts.
    trouble: RefCell<Option<Trouble>>,
}

impl<'a> Files<'a> {
    fn new(repository: &'a Repository, commit: Oid) -> Self {
        Self {
            repository,
            commit,
            included: Cell::new(false),
            paths: OnceCell::new(),
            comparisons: Cell::new(0),
            trouble: RefCell::new(None),
        }
    }

    fn has(&self, glob: &Glob) -> bool {
        if let Some(path) = glob.literal() {
            let found = self.repository.entry(self.commit, path);
            return self.or_trouble(found).flatten().is_some_and(|entry| entry.kind == EntryKind::Blob);
        }
        let look = || self.or_trouble(self.repository.file_paths(self.commit, MOST_PATHS)).flatten();
        let Some(paths) = self.paths.get_or_init(look) else { return true };
        let folder = glob.folder();
        let may_fit =
            |path: &&String| folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        for path in paths.iter().filter(may_fit) {
            if self.comparisons.get() == MOST_COMPARISONS {
                return true;
            }
            self.comparisons.set(self.comparisons.get() + 1);
            if glob.matches(path) {
                return true;
            }
        }
        false
    }

    fn or_trouble<T>(&self, found: git::Result<T>) -> Option<T> {
        found.map_err(|error| self.note(Trouble::Git(error.into()))).ok()
    }

    fn note(&self, trouble: Trouble) {
        self.trouble.borrow_mut().get_or_insert(trouble);
    }
}

impl Include for Files<'_> {
    fn local(&self, path: &str) -> Option<String> {
        self.included.set(true);
        let entry = self.or_trouble(self.repository.entry(self.commit, path)).flatten()?;
        if entry.kind != EntryKind::Blob || entry.mode == LINK {
            return None;
        }
        match read(self.repository, entry.id) {
            Ok(Ok(text)) => Some(text),
            Ok(Err(fault)) => {
                self.note(Trouble::Fault(format!("Included file `{path}`: {fault}")));
                None
            }
            Err(error) => {
                self.note(Trouble::Git(error));
                None
            }
        }
    }
}

/// Cuts a text where it is too long.
pub(crate) fn cut(mut text: String) -> String {
    let end = (0..=LONGEST_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
    text
}
