//! What is known when a pipeline is planned.

use crate::globs::Glob;
use crate::variables::Variables;

/// Why there is a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Somebody pushed.
    #[default]
    Push,
    /// Somebody pressed a button on a page.
    Web,
    /// Somebody called the interface.
    Api,
    /// Somebody showed a trigger token.
    Trigger,
    /// The hour had come.
    Schedule,
}

impl Source {
    /// The word that rules see as `CI_PIPELINE_SOURCE`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Web => "web",
            Self::Api => "api",
            Self::Trigger => "trigger",
            Self::Schedule => "schedule",
        }
    }
}

/// What is known when a pipeline is planned.
pub struct Circumstances<'a> {
    /// The name of the branch or tag, without `refs/…/`.
    pub ref_name: String,
    /// Whether it is a tag. A branch and a tag of one name are never mixed up.
    pub is_tag: bool,
    /// Why there is a pipeline.
    pub source: Source,
    /// The full path of the project.
    pub project_path: String,
    /// The default branch, if there is one.
    pub default_branch: Option<String>,
    /// Further variables that the file may override, such as `CI_COMMIT_REF_PROTECTED`.
    pub predefined: Variables,
    /// Variables that win over the file: those of the project and of the trigger call.
    pub variables: Variables,
    /// The paths that changed; unknown ones count as changed.
    pub changes: Option<Vec<String>>,
    /// Tells whether the commit has a file that fits.
    pub exists: &'a dyn Fn(&Glob) -> bool,
}

impl Default for Circumstances<'_> {
    fn default() -> Self {
        Self {
            ref_name: String::new(),
            is_tag: false,
            source: Source::Push,
            project_path: String::new(),
            default_branch: None,
            predefined: Variables::new(),
            variables: Variables::new(),
            changes: None,
            exists: &|_| false,
        }
    }
}

impl Circumstances<'_> {
    /// The variables that follow from the circumstances, with the further predefined ones over them.
    pub(crate) fn known_variables(&self) -> Variables {
        let mut known = Variables::new();
        let mut set = |key: &str, value: &str| known.insert(key.to_owned(), value.to_owned());
        set("CI", "true");
        set("GITLAB_CI", "true");
        set("CI_PIPELINE_SOURCE", self.source.word());
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
        if self.source == Source::Trigger {
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

/// A ref as a part of a host name: lower case, at most 63 characters, dashes for whatever does not fit.
pub fn slug(ref_name: &str) -> String {
    let plain: String = ref_name
        .to_lowercase()
        .chars()
        .map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' })
        .take(63)
        .collect();
    plain.trim_matches('-').to_owned()
}

/// Tells whether the message of a commit asks for no pipeline.
pub fn asks_to_skip(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("[ci skip]") || message.contains("[skip ci]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_may_ask_for_no_pipeline() {
        assert!(asks_to_skip("Fix a typo [CI Skip]"));
        assert!(asks_to_skip("[skip ci]"));
        assert!(!asks_to_skip("ci skip"));
    }

    #[test]
    fn a_slug_fits_into_a_host_name() {
        assert_eq!(slug("Feature/X_1"), "feature-x-1");
        assert_eq!(slug("-ü-"), "");
        assert_eq!(slug(&"a".repeat(100)).len(), 63);
    }
}
