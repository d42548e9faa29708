//! Pipelines and their builds: what is made of a commit, and what came of it.

use crate::{Oid, Time, runners::RunnerSummary, users::UserSummary};

/// The state of a job or a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// It is there, and its turn has not come.
    Created,
    /// It waits for a runner.
    Pending,
    /// A runner has it.
    Running,
    /// It went well.
    Success,
    /// It went wrong.
    Failed,
    /// Somebody stopped it.
    Canceled,
    /// Its turn came, and there was nothing to do.
    Skipped,
    /// It waits for somebody. Nothing here brings a job into this state, because clients of v3 do not know it: manual
    /// jobs are skipped and stay playable. It can be read, computed and left.
    Manual,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Pending,
        Self::Running,
        Self::Success,
        Self::Failed,
        Self::Canceled,
        Self::Skipped,
        Self::Manual,
    ];

    /// The word of interfaces and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Skipped => "skipped",
            Self::Manual => "manual",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }

    /// Tells whether a job has ended, for now.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Success | Self::Failed | Self::Canceled | Self::Skipped)
    }

    /// Tells whether a job can still be canceled.
    pub fn is_cancelable(self) -> bool {
        matches!(self, Self::Created | Self::Pending | Self::Running | Self::Manual)
    }
}

/// Why there is a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Somebody pushed.
    Push,
    /// Somebody called the interface.
    Api,
    /// Somebody showed a trigger token.
    Trigger,
    /// Others told what they found out about the commit.
    External,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Push, Self::Api, Self::Trigger, Self::External];

    /// The word of the tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Api => "api",
            Self::Trigger => "trigger",
            Self::External => "external",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.word() == word)
    }
}

/// What is made of a commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// Its number.
    pub id: i64,
    /// Where.
    pub project_id: i64,
    /// The branch or the tag, as people say it.
    pub ref_name: String,
    /// Whether it is a tag.
    pub tag: bool,
    /// The commit.
    pub sha: Oid,
    /// What clients are told of the commit before; `None` is forty zeros.
    pub before_sha: Option<Oid>,
    /// Why it is there.
    pub source: Source,
    /// How it stands.
    pub status: Status,
    /// What is wrong with the file.
    pub yaml_errors: Option<String>,
    /// Its stages in order.
    pub stages: Vec<String>,
    /// Who started it, as long as they are there.
    pub user: Option<UserSummary>,
    /// When it was made.
    pub created_at: Time,
    /// When something about it last changed.
    pub updated_at: Time,
    /// When it first ran.
    pub started_at: Option<Time>,
    /// When it last came to an end.
    pub finished_at: Option<Time>,
    /// For how many seconds at least one of its builds ran.
    pub duration: Option<i64>,
    /// How much of the code its builds cover, in hundredths.
    pub coverage: Option<f64>,
}

/// Which pipelines of a project are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PipelineScope {
    /// All.
    #[default]
    All,
    /// Those that wait or run.
    Running,
    /// The newest of each branch that is there.
    Branches,
    /// The newest of each tag that is there.
    Tags,
}

/// Whose a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildKind {
    /// A job of ours, which a runner does.
    Job,
    /// What others found out about the commit.
    External,
}

/// A build as lists and single answers show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// Its number.
    pub id: i64,
    /// Where.
    pub project_id: i64,
    /// The pipeline that it belongs to.
    pub pipeline: PipelineSummary,
    /// Whose it is.
    pub kind: BuildKind,
    /// What it is called.
    pub name: String,
    /// Its stage.
    pub stage: String,
    /// The position of its stage.
    pub stage_index: i32,
    /// How it stands.
    pub status: Status,
    /// When it starts: `on_success`, `on_failure`, `always` or `manual`.
    pub when: String,
    /// Whether the others go on if it fails.
    pub allow_failure: bool,
    /// Whether a later one of the same name counts instead.
    pub retried: bool,
    /// Who caused it, as long as they are there.
    pub user: Option<UserSummary>,
    /// Who runs it, or ran it.
    pub runner: Option<RunnerSummary>,
    /// What a runner must have.
    pub tags: Vec<String>,
    /// How much of the code it covers, in hundredths.
    pub coverage: Option<f64>,
    /// Why it failed, in one word.
    pub failure_reason: Option<String>,
    /// What it left behind, as long as that is kept.
    pub artifacts: Option<ArtifactSummary>,
    /// When it was made.
    pub created_at: Time,
    /// When its turn came.
    pub queued_at: Option<Time>,
    /// When it began.
    pub started_at: Option<Time>,
    /// When it ended.
    pub finished_at: Option<Time>,
    /// When its trace and what it left behind were removed.
    pub erased_at: Option<Time>,
}

/// A pipeline in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSummary {
    /// Its number.
    pub id: i64,
    /// The commit.
    pub sha: Oid,
    /// The branch or the tag, as people say it.
    pub ref_name: String,
    /// Whether it is a tag.
    pub tag: bool,
    /// How it stands.
    pub status: Status,
}

/// A file that a build left behind, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactSummary {
    /// What it is called.
    pub name: String,
    /// How many bytes it has.
    pub size: i64,
    /// Until when it is kept; `None` is for good.
    pub expires_at: Option<Time>,
}

/// The stage to which everything belongs that comes from outside, after all others.
pub const EXTERNAL_STAGE: (&str, i32) = ("external", 1_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.word()), Some(status));
        }
        assert_eq!(Status::parse("waiting"), None);
        for source in Source::ALL {
            assert_eq!(Source::parse(source.word()), Some(source));
        }
    }
}
