//! Stories about CI files and pipelines: what is refused and how, what is planned, how states move.

mod accidents;
mod bombs;
mod errors;
mod habits;
mod machine;
mod planning;
mod properties;
mod today;

use std::collections::HashMap;

use ci::{Circumstances, Config, Include, NoFiles, Plan, Source, plan};

/// Files of a repository.
struct Files(HashMap<String, String>);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }
}

impl Include for Files {
    fn local(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }
}

/// Reads a file that is right.
fn load(text: &str) -> Config {
    Config::load(text, &NoFiles).unwrap_or_else(|invalid| panic!("{invalid}\n{text}"))
}

/// The first error of a file that is wrong.
fn error(text: &str) -> String {
    match Config::load(text, &NoFiles) {
        Ok(_) => panic!("nothing is wrong with\n{text}"),
        Err(invalid) => invalid.text,
    }
}

/// A push to a branch of `group/project`, whose default branch is `main`.
fn push(branch: &str) -> Circumstances<'static> {
    Circumstances {
        ref_name: branch.to_owned(),
        source: Source::Push,
        project_path: "group/project".to_owned(),
        default_branch: Some("main".to_owned()),
        ..Circumstances::default()
    }
}

/// Plans a pipeline that exists.
fn planned(text: &str, circumstances: &Circumstances<'_>) -> Plan {
    plan(&load(text), circumstances).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"))
}

/// The names of the jobs of a pipeline, in its order; or why there is none.
fn names(text: &str, circumstances: &Circumstances<'_>) -> String {
    match plan(&load(text), circumstances) {
        Ok(plan) => plan.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>().join(", "),
        Err(refusal) => refusal.to_string(),
    }
}
