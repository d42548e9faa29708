//! Limits on the cost of reading a CI file and planning a pipeline, and the `Budget` that each copy is charged to.

use crate::config_error::ConfigError;

/// The maximum size of one file in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// The maximum nesting depth of lists and mappings, aliases included.
pub const MAX_DEPTH: usize = 64;
/// The maximum number of values in memory after aliases, `extends`, includes and inheritance are resolved.
pub const MAX_NODES: usize = 250_000;
/// The maximum number of bytes of text in memory, likewise.
pub const MAX_TEXT_BYTES: usize = 8 * 1024 * 1024;
/// The maximum number of visible jobs in a file, and of jobs in a plan.
pub const MAX_JOBS: usize = 1_000;
/// The maximum number of stages in a file.
pub const MAX_STAGES: usize = 200;
/// The maximum number of bytes of text in all jobs of one plan.
pub const MAX_PLAN_BYTES: usize = 16 * 1024 * 1024;
/// The maximum length of the name of a job or a stage, in characters.
pub const MAX_NAME_LENGTH: usize = 255;
/// The maximum number of included files, nested ones counted.
pub const MAX_INCLUDES: usize = 150;
/// The maximum length of a chain of `extends`, includes or references.
pub const MAX_CHAIN_LENGTH: usize = 10;
/// The maximum number of jobs that one job may need.
pub const MAX_NEEDS: usize = 50;
/// The maximum number of jobs that `parallel` may create from one.
pub const MAX_PARALLEL: usize = 200;
/// The maximum length of a regular expression or a glob in bytes.
pub const MAX_PATTERN_BYTES: usize = 1024;
/// The maximum number of distinct regular expressions that a file or a plan may compile.
pub const MAX_PATTERNS: usize = 300;
/// The maximum number of distinct globs in a plan.
pub const MAX_GLOBS: usize = 2_000;
/// The maximum number of bytes that rules may compare, match or expand while a pipeline is planned.
pub const MAX_SCANNED_BYTES: usize = 128 * 1024 * 1024;
/// The maximum length of a rule's expression in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 8 * 1024;
/// The maximum length of a text after variables are expanded, in bytes.
pub const MAX_EXPANDED_BYTES: usize = 64 * 1024;

/// The size of a value, nested values included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValueSize {
    pub(crate) nodes: usize,
    pub(crate) bytes: usize,
    pub(crate) depth: usize,
}

/// The remaining nodes and bytes that one configuration may use.
#[derive(Debug)]
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { nodes: MAX_NODES, bytes: MAX_TEXT_BYTES }
    }

    /// Charges a copy before it is made, so that the limits are never exceeded in memory.
    pub(crate) fn charge(&mut self, size: ValueSize) -> Result<(), ConfigError> {
        match (self.nodes.checked_sub(size.nodes), self.bytes.checked_sub(size.bytes)) {
            (Some(nodes), Some(bytes)) => {
                self.nodes = nodes;
                self.bytes = bytes;
                Ok(())
            }
            _ => Err(ConfigError::new(format!(
                "The configuration is too large once aliases, extends and includes are followed: \
                 at most {MAX_NODES} values and {MAX_TEXT_BYTES} bytes of text are allowed"
            ))),
        }
    }
}
