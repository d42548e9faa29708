//! Validates a CI file that need not be part of a repository.

use ci::{AllowFailure, Config, NoFiles};
use model::Project;

use crate::{
    BlockingContext, Caller, Forge, ProjectAbility, ProjectRef, Result, Unvalidated, branches::default_branch,
    browse::InProject, pipelines::planning,
};

/// Returns the first error of a CI file; `None` if it is valid. Needs no permissions, because it reads only the given text.
pub async fn check(forge: &Forge, content: Unvalidated<String>) -> Result<Option<String>> {
    // The cost of parsing is bounded, but higher than that of a short read.
    let load = move |content: &str| Config::load(content, &NoFiles).err().map(|invalid| invalid.text);
    forge.run_blocking(Caller::anonymous(), move |_| Ok(load(content.validate()?))).await
}

/// The file to validate in a project.
#[derive(Clone, Debug)]
pub enum LintSource {
    /// This text; files that it includes are those of the default branch.
    Text(String),
    /// The file of a branch or a tag; `None` stands for the default branch.
    Ref(Option<String>),
}

/// The result of validating a file in a project.
pub struct LintReport {
    /// The text of the file; `None` if the branch or the tag has none.
    pub text: Option<String>,
    /// The jobs, or the first error; `None` if there is no file.
    pub outcome: Option<std::result::Result<Vec<LintJob>, String>>,
    /// The branch or the tag whose files are used, if there is one.
    pub ref_name: Option<String>,
    /// Whether the requested branch or tag does not exist.
    pub is_missing: bool,
}

/// A job of a CI file, before rules decide whether a pipeline includes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LintJob {
    /// The name.
    pub name: String,
    /// The name of the stage.
    pub stage: String,
    /// When it starts.
    pub when: &'static str,
    /// Whether it may fail.
    pub allow_failure: bool,
    /// The tags that a runner must have.
    pub tags: Vec<String>,
    /// The names of the jobs that it needs; `None` stands for all earlier stages.
    pub needs: Option<Vec<String>>,
    /// The commands.
    pub script: Vec<String>,
}

/// Validates a file with the files that it includes, for users who may run pipelines of the project.
pub fn check_in_project(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    source: &LintSource,
) -> Result<InProject<LintReport>> {
    let opened = cx.read(|tx| {
        let project: Project = tx.project(project, ProjectAbility::RunPipelines)?;
        let repository = tx.repository(&project)?;
        Ok((project, repository))
    });
    let (project, repository) = opened?;
    let default = repository
        .as_ref()
        .and_then(|repository| default_branch(&project, repository.refs()).map(|found| found.name.short().to_owned()));
    let ref_name = match source {
        LintSource::Ref(Some(name)) => Some(name.clone()),
        LintSource::Ref(None) | LintSource::Text(_) => default,
    };
    let commit = match (&repository, &ref_name) {
        (Some(repository), Some(name)) => planning::find_commit(repository, name)?.map(|commit| (repository, commit)),
        _ => None,
    };
    let is_missing = matches!(source, LintSource::Ref(Some(_))) && commit.is_none();
    let file = match (source, commit) {
        (LintSource::Text(text), _) => Some(Ok(text.clone())),
        (LintSource::Ref(_), Some((repository, commit))) => planning::read_ci_file(repository, commit)?,
        (LintSource::Ref(_), None) => None,
    };
    let (text, outcome) = match file {
        Some(Ok(text)) => {
            let outcome = planning::load_text(commit, &text)?.map(|config| jobs_of(&config));
            (Some(text), Some(outcome))
        }
        Some(Err(error)) => (None, Some(Err(error))),
        None => (None, None),
    };
    Ok(InProject { project, value: LintReport { text, outcome, ref_name, is_missing } })
}

fn jobs_of(config: &Config) -> Vec<LintJob> {
    let position = |stage: &str| config.stages.iter().position(|known| known == stage);
    let mut jobs: Vec<&ci::Job> = config.jobs.iter().collect();
    jobs.sort_by_key(|job| position(&job.stage));
    jobs.into_iter()
        .map(|job| LintJob {
            name: job.name.clone(),
            stage: job.stage.clone(),
            when: job.when.as_str(),
            allow_failure: job.allow_failure != AllowFailure::No,
            tags: job.tags.clone(),
            needs: job.needs.as_ref().map(|needs| needs.iter().map(|need| need.job.clone()).collect()),
            script: job.script.clone(),
        })
        .collect()
}
