//! What a CI file may cost: every limit in one place, and a purse that is charged for each copy.

use crate::invalid::Invalid;

/// The most bytes that one file may have.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// How deep lists and mappings may nest, aliases included.
pub const MAX_DEPTH: usize = 64;
/// The most values in memory, after aliases, `extends`, includes and inheritance.
pub const MAX_NODES: usize = 250_000;
/// The most bytes of text in memory, likewise.
pub const MAX_TEXT: usize = 8 * 1024 * 1024;
/// The most visible jobs in a file, and the most jobs in a plan.
pub const MAX_JOBS: usize = 1_000;
/// The most stages in a file.
pub const MAX_STAGES: usize = 200;
/// The most bytes of text that the jobs of one plan may carry together.
pub const MAX_PLAN_TEXT: usize = 16 * 1024 * 1024;
/// The longest name of a job or a stage, in characters.
pub const MAX_NAME: usize = 255;
/// How many files may be included, directly or not.
pub const MAX_INCLUDES: usize = 150;
/// How deep `extends`, includes and references may follow each other.
pub const MAX_CHAIN: usize = 10;
/// How many jobs one job may need.
pub const MAX_NEEDS: usize = 50;
/// How many jobs `parallel` may make of one.
pub const MAX_PARALLEL: usize = 200;
/// The longest regular expression, in bytes.
pub const MAX_PATTERN_BYTES: usize = 1024;
/// How many different regular expressions a file, or a plan, may compile.
pub const MAX_PATTERNS: usize = 300;
/// How many different globs a plan may look for.
pub const MAX_GLOBS: usize = 2_000;
/// How many bytes rules may look at while a pipeline is planned: comparing, matching, expanding.
pub const MAX_EFFORT: usize = 128 * 1024 * 1024;
/// The longest expression of a rule, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 8 * 1024;
/// The longest text that expanding variables may make.
pub const MAX_EXPANDED: usize = 64 * 1024;

/// The weight of a value with everything in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) nodes: usize,
    pub(crate) bytes: usize,
    pub(crate) height: usize,
}

/// What is left of the nodes and bytes that one configuration may take.
#[derive(Debug)]
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { nodes: MAX_NODES, bytes: MAX_TEXT }
    }

    /// Pays for a copy before it is made, so that nothing too large ever exists.
    pub(crate) fn charge(&mut self, weight: Weight) -> Result<(), Invalid> {
        match (self.nodes.checked_sub(weight.nodes), self.bytes.checked_sub(weight.bytes)) {
            (Some(nodes), Some(bytes)) => {
                self.nodes = nodes;
                self.bytes = bytes;
                Ok(())
            }
            _ => Err(Invalid::new(format!(
                "The configuration is too large once aliases, extends and includes are followed: \
                 at most {MAX_NODES} values and {MAX_TEXT} bytes of text are allowed"
            ))),
        }
    }
}
