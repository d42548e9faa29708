//! Tests of CI files and pipelines: errors, plans and state transitions.

mod errors;
mod fuzzing;
mod legacy_files;
mod modern_files;
mod planning;
mod resource_limits;
mod state_machine;
mod state_machine_properties;

use std::collections::HashMap;

use ci::{Config, LocalFiles, NoFiles, PipelineContext, PipelineSource, Plan, plan};

/// Files of a repository.
struct Files(HashMap<String, String>);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }
}

impl LocalFiles for Files {
    fn read(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }
}

/// Reads a valid file.
fn load(text: &str) -> Config {
    Config::load(text, &NoFiles).unwrap_or_else(|config_error| panic!("{config_error}\n{text}"))
}

/// Returns the first error of an invalid file.
fn error(text: &str) -> String {
    match Config::load(text, &NoFiles) {
        Ok(_) => panic!("unexpectedly valid:\n{text}"),
        Err(config_error) => config_error.text,
    }
}

/// Returns the context of a push to a branch of `group/project`, whose default branch is `main`.
fn push(branch: &str) -> PipelineContext<'static> {
    PipelineContext {
        ref_name: branch.to_owned(),
        source: PipelineSource::Push,
        project_path: "group/project".to_owned(),
        default_branch: Some("main".to_owned()),
        ..PipelineContext::default()
    }
}

/// Plans a pipeline that must exist.
fn planned(text: &str, context: &PipelineContext<'_>) -> Plan {
    plan(&load(text), context).unwrap_or_else(|plan_error| panic!("{plan_error}\n{text}"))
}

/// Returns the names of the jobs of a pipeline in order, or why there is none.
fn names(text: &str, context: &PipelineContext<'_>) -> String {
    match plan(&load(text), context) {
        Ok(plan) => plan.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(", "),
        Err(plan_error) => plan_error.to_string(),
    }
}
