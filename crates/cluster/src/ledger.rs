//! What clients wrote and the cluster acknowledged, and what went wrong.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{
    http::{NoResponse, Response},
    rng::Content,
};

/// The target of a ref that does not exist.
pub(crate) const ZERO: &str = "0000000000000000000000000000000000000000";
/// The number of texts that are kept of unexpected responses.
const MAX_SAMPLES: usize = 20;

/// A change of a ref.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RefChange {
    pub(crate) project: i64,
    pub(crate) name: String,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// An acknowledged write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// A push with git.
    Push {
        project: i64,
        name: String,
        target: String,
    },
    /// A file that was committed through the API.
    Commit {
        project: i64,
        commit: String,
        path: String,
        content: String,
    },
    Issue {
        project: i64,
        id: i64,
        title: String,
    },
    Comment {
        project: i64,
        issue: i64,
        id: i64,
        body: String,
    },
    /// A file that was uploaded to a project.
    Upload {
        url: String,
        content: Content,
    },
    /// A job that was reported as successful.
    Job {
        project: i64,
        id: i64,
        trace: String,
        artifact: Content,
    },
}

/// The kinds of writes, in the order of the report.
pub(crate) const KINDS: [&str; 6] = ["pushes", "commits", "issues", "comments", "uploads", "jobs"];

impl Write {
    /// Returns the index of the kind in [`KINDS`].
    pub(crate) fn kind(&self) -> usize {
        match self {
            Self::Push { .. } => 0,
            Self::Commit { .. } => 1,
            Self::Issue { .. } => 2,
            Self::Comment { .. } => 3,
            Self::Upload { .. } => 4,
            Self::Job { .. } => 5,
        }
    }
}

/// The targets to which a client wanted to set a ref, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefHistory {
    attempts: Vec<String>,
    /// The index of the last acknowledged attempt.
    acknowledged: Option<usize>,
}

impl RefHistory {
    /// Returns whether the ref may have a target: that of the last acknowledged attempt, or of one after it.
    pub(crate) fn allows(&self, target: Option<&str>) -> bool {
        let Some(target) = target else { return self.acknowledged.is_none() };
        self.attempts[self.acknowledged.unwrap_or(0)..].iter().any(|attempt| attempt == target)
    }

    /// Returns whether the ref may have a target that was read after an earlier state of this history.
    pub(crate) fn allows_after(&self, earlier: &Self, target: Option<&str>) -> bool {
        Self { attempts: self.attempts.clone(), acknowledged: earlier.acknowledged }.allows(target)
    }

    /// Returns the target of the last acknowledged attempt.
    pub(crate) fn acknowledged(&self) -> Option<&str> {
        self.acknowledged.map(|index| self.attempts[index].as_str())
    }
}

/// A ref of a project.
pub(crate) type RefKey = (i64, String);

/// Numbers of failed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ErrorCounts {
    /// There was no response.
    pub(crate) connection: u64,
    /// The status was 500 or above.
    pub(crate) server: u64,
    /// Any other refusal.
    pub(crate) other: u64,
}

impl ErrorCounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.connection += other.connection;
        self.server += other.server;
        self.other += other.other;
    }
}

#[derive(Default)]
struct Records {
    writes: Vec<Write>,
    refs: BTreeMap<RefKey, RefHistory>,
    probes: Vec<i64>,
    errors: ErrorCounts,
    samples: Vec<String>,
    violations: Vec<String>,
}

/// The record of the clients of one campaign.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Records>);

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn acknowledge(&self, write: Write) {
        let mut records = self.lock();
        if let Write::Push { project, name, target } = &write {
            let history = records.refs.entry((*project, name.clone())).or_default();
            history.acknowledged = history.attempts.iter().position(|attempt| attempt == target);
        }
        records.writes.push(write);
    }

    /// Records that a push starts, whatever becomes of it.
    pub(crate) fn start_push(&self, project: i64, name: &str, target: &str) {
        let mut records = self.lock();
        records.refs.entry((project, name.to_owned())).or_default().attempts.push(target.to_owned());
    }

    /// Records the note that a probe created.
    pub(crate) fn acknowledge_probe(&self, note: i64) {
        self.lock().probes.push(note);
    }

    /// Records a response that is not a success.
    pub(crate) fn refused(&self, what: &str, response: &Response) {
        let mut records = self.lock();
        if response.status >= 500 {
            records.errors.server += 1;
            // 503 is the answer while a part of the cluster fails.
            if response.status == 503 {
                return;
            }
        } else {
            records.errors.other += 1;
        }
        records.sample(format!("{what}: {response}"));
    }

    pub(crate) fn no_response(&self, _: &NoResponse) {
        self.lock().errors.connection += 1;
    }

    /// Records a failed git command by its messages.
    pub(crate) fn git_failed(&self, what: &str, messages: &str) {
        let mut records = self.lock();
        match classify_git(messages) {
            GitFailure::Server => records.errors.server += 1,
            GitFailure::Connection => records.errors.connection += 1,
            GitFailure::Other => {
                records.errors.other += 1;
                records.sample(format!("{what}: {}", messages.trim()));
            }
        }
    }

    /// Records something that must not happen.
    pub(crate) fn violation(&self, text: String) {
        self.lock().violations.push(text);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Returns the texts of some unexpected responses.
    pub(crate) fn samples(&self) -> Vec<String> {
        self.lock().samples.clone()
    }

    pub(crate) fn errors(&self) -> ErrorCounts {
        self.lock().errors
    }

    /// Returns the acknowledged writes after the first ones.
    pub(crate) fn writes_after(&self, count: usize) -> Vec<Write> {
        self.lock().writes.get(count..).unwrap_or_default().to_vec()
    }

    pub(crate) fn refs(&self) -> BTreeMap<RefKey, RefHistory> {
        self.lock().refs.clone()
    }

    pub(crate) fn probes(&self) -> Vec<i64> {
        self.lock().probes.clone()
    }

    /// Returns the number of acknowledged writes of each kind.
    pub(crate) fn counts(&self) -> [u64; KINDS.len()] {
        let mut counts = [0; KINDS.len()];
        for write in &self.lock().writes {
            counts[write.kind()] += 1;
        }
        counts
    }
}

impl Records {
    fn sample(&mut self, text: String) {
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(text);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum GitFailure {
    Server,
    Connection,
    Other,
}

fn classify_git(messages: &str) -> GitFailure {
    let contains = |texts: &[&str]| texts.iter().any(|text| messages.contains(text));
    if contains(&["returned error: 5", "HTTP 5", "internal error", "try again"]) {
        GitFailure::Server
    } else if contains(&["remote rejected", "! [rejected]", "fatal: bad", "fsck", "returned error: 4"]) {
        GitFailure::Other
    } else {
        GitFailure::Connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(name: &str, target: &str) -> Write {
        Write::Push { project: 1, name: name.to_owned(), target: target.to_owned() }
    }

    #[test]
    fn a_ref_may_have_the_acknowledged_target_or_a_later_one() {
        let ledger = Ledger::default();
        for target in ["a", "b", "c"] {
            ledger.start_push(1, "x", target);
        }
        let history = || ledger.refs()[&(1, "x".to_owned())].clone();
        assert!(history().allows(None) && history().allows(Some("a")) && history().allows(Some("c")));
        assert!(!history().allows(Some("d")));
        ledger.acknowledge(push("x", "b"));
        assert_eq!(history().acknowledged(), Some("b"));
        assert!(history().allows(Some("b")) && history().allows(Some("c")));
        assert!(!history().allows(Some("a")), "an acknowledged push is lost");
        assert!(!history().allows(None), "an acknowledged ref is lost");
    }

    #[test]
    fn failures_of_git_are_classified() {
        let check = |messages, expected| assert_eq!(classify_git(messages), expected, "{messages}");
        check("error: RPC failed; HTTP 503 curl 22 The requested URL returned error: 503", GitFailure::Server);
        check("fatal: unable to access 'x': Failed to connect to 10.87.0.20 port 80", GitFailure::Connection);
        check("fatal: the remote end hung up unexpectedly", GitFailure::Connection);
        check(" ! [remote rejected] x -> x (the ref has changed; fetch first)", GitFailure::Other);
        check("The requested URL returned error: 404", GitFailure::Other);
    }
}
