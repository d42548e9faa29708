//! Exit codes, the same for every command.

use std::{fmt, io::Write as _, process::ExitCode};

/// The command could not do what it was asked for, or found problems.
pub(crate) const FAILED: u8 = 1;
/// The command line, a variable or the configuration file is wrong; nothing was done.
pub(crate) const MISUSED: u8 = 2;

/// What `--help` says about exit codes.
pub(crate) const HELP: &str = "Exit status: 0 if the command succeeded, 1 if it failed, 2 if the command line, a GABLE_ \
                               variable or the configuration file is wrong.";

/// How a command ends.
pub(crate) type Ending = Result<(), Failure>;

/// Why a command ended early: one sentence for the operator.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// What was asked for cannot be understood.
    Misused(String),
    /// What was asked for could not be done.
    Failed(String),
}

impl Failure {
    /// The exit code that tells this failure from others.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Misused(_) => MISUSED,
            Self::Failed(_) => FAILED,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misused(sentence) | Self::Failed(sentence) => f.write_str(sentence),
        }
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Self::Failed(sentence)
    }
}

/// Writes a line to standard error. Unlike `eprintln!` it does not panic if nobody reads it any more.
pub(crate) fn complain(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes something to standard output that somebody asked to see. Whoever stops reading has seen enough.
pub(crate) fn show(text: &[u8]) -> Result<(), String> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}
