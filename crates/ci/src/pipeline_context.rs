//! The context of a pipeline: ref, source, variables and changed files.

use crate::globs::Glob;
use crate::variables::Variables;

/// What triggered a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PipelineSource {
    /// A push.
    #[default]
    Push,
    /// A user, on a web page.
    Web,
    /// A call of the REST API.
    Api,
    /// A trigger token.
    Trigger,
    /// A schedule.
    Schedule,
}

impl PipelineSource {
    /// Returns the value of `CI_PIPELINE_SOURCE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Web => "web",
            Self::Api => "api",
            Self::Trigger => "trigger",
            Self::Schedule => "schedule",
        }
    }
}

/// The input of [`plan`](crate::plan()) besides the file.
pub struct PipelineContext<'a> {
    /// The name of the branch or tag, without `refs/…/`.
    pub ref_name: String,
    /// Whether the ref is a tag.
    pub is_tag: bool,
    /// What triggered the pipeline.
    pub source: PipelineSource,
    /// The full path of the project.
    pub project_path: String,
    /// The default branch, if there is one.
    pub default_branch: Option<String>,
    /// Additional predefined variables, such as `CI_COMMIT_REF_PROTECTED`. The file may override them.
    pub predefined: Variables,
    /// Variables that override those of the file: of the project and of the trigger call.
    pub variables: Variables,
    /// The changed paths. If unknown, every path counts as changed.
    pub changes: Option<Vec<String>>,
    /// Returns whether the commit has a file that matches the glob.
    pub exists: &'a dyn Fn(&Glob) -> bool,
}

impl Default for PipelineContext<'_> {
    fn default() -> Self {
        Self {
            ref_name: String::new(),
            is_tag: false,
            source: PipelineSource::Push,
            project_path: String::new(),
            default_branch: None,
            predefined: Variables::new(),
            variables: Variables::new(),
            changes: None,
            exists: &|_| false,
        }
    }
}

impl PipelineContext<'_> {
    /// Returns the variables derived from the context, overridden by `predefined`.
    pub(crate) fn predefined_variables(&self) -> Variables {
        let mut known = Variables::new();
        let mut set = |key: &str, value: &str| known.insert(key.to_owned(), value.to_owned());
        set("CI", "true");
        set("GITLAB_CI", "true");
        set("CI_PIPELINE_SOURCE", self.source.as_str());
        set("CI_PROJECT_PATH", &self.project_path);
        set("CI_COMMIT_REF_NAME", &self.ref_name);
        set("CI_COMMIT_REF_SLUG", &slug(&self.ref_name));
        set("CI_BUILD_REF_NAME", &self.ref_name);
        if self.is_tag {
            set("CI_COMMIT_TAG", &self.ref_name);
            set("CI_BUILD_TAG", &self.ref_name);
        } else {
            set("CI_COMMIT_BRANCH", &self.ref_name);
        }
        if self.source == PipelineSource::Trigger {
            set("CI_PIPELINE_TRIGGERED", "true");
            set("CI_BUILD_TRIGGERED", "true");
        }
        if let Some(branch) = &self.default_branch {
            set("CI_DEFAULT_BRANCH", branch);
        }
        known.extend(self.predefined.clone());
        known
    }
}

/// Returns a ref as part of a host name: lower case, at most 63 characters, with dashes for other characters.
pub fn slug(ref_name: &str) -> String {
    let replaced: String =
        ref_name.to_lowercase().chars().map(|ch| if ch.is_ascii_alphanumeric() { ch } else { '-' }).take(63).collect();
    replaced.trim_matches('-').to_owned()
}

/// Returns whether a commit message asks for no pipeline.
pub fn skips_ci(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("[ci skip]") || message.contains("[skip ci]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_message_may_skip_ci() {
        assert!(skips_ci("Fix a typo [CI Skip]"));
        assert!(skips_ci("[skip ci]"));
        assert!(!skips_ci("ci skip"));
    }

    #[test]
    fn a_slug_fits_into_a_host_name() {
        assert_eq!(slug("Feature/X_1"), "feature-x-1");
        assert_eq!(slug("-ü-"), "");
        assert_eq!(slug(&"a".repeat(100)).len(), 63);
    }
}
