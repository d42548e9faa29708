//! The output and the exit codes of commands.

use std::{fmt, io::Write as _, process::ExitCode};

use anyhow::{Context as _, Error, Result};

/// The command failed, or found problems.
pub(crate) const FAILURE: u8 = 1;
/// The command line, a variable or the configuration file is invalid; nothing was done.
pub(crate) const USAGE_ERROR: u8 = 2;

/// The text about exit codes in `--help`.
pub(crate) const HELP: &str = "Run `gable COMMAND --help` for options and examples.\n\n\
                               Exit status: 0 on success, 1 on failure, 2 if the command line, a GABLE_ variable or \
                               the configuration file is invalid";

/// The result of a command.
pub(crate) type CommandResult<T = ()> = Result<T, Failure>;

/// Why a command failed, with a message for the operator.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Invalid usage or configuration.
    Usage(Error),
    /// The command could not be completed.
    Failed(Error),
}

impl Failure {
    /// Returns the exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => USAGE_ERROR,
            Self::Failed(_) => FAILURE,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(error) | Self::Failed(error) => f.write_str(&message(error)),
        }
    }
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Returns the text of an error and its causes, as `{error:#}` does, but without repetitions: the texts of the errors of
/// this workspace already contain those of their causes.
pub(crate) fn message(error: &Error) -> String {
    let mut text = String::new();
    let mut last = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if last.contains(&cause) {
            break;
        }
        if !text.is_empty() {
            text += ": ";
        }
        text += &cause;
        last = cause;
    }
    text
}

/// Writes a line to standard error. Unlike `eprintln!` it does not panic if the pipe is closed.
pub(crate) fn print_stderr(line: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints a line to standard output; errors are ignored, because it may be closed.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush());
}

/// Writes output to standard output. A closed pipe is not an error.
pub(crate) fn print_stdout(text: &[u8]) -> Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text).and_then(|()| output.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::anyhow;

    use super::*;

    /// An error whose text contains that of its cause, as those of this workspace.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x: {0}; check its mode")]
    struct Complete(#[source] io::Error);

    #[test]
    fn causes_are_appended_unless_the_text_already_contains_them() {
        let check = |error: Error, expected: &str| assert_eq!(message(&error), expected);
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        check(Error::new(missing()).context("cannot start"), "cannot start: entity not found");
        check(Error::new(Complete(missing())), "cannot read x: entity not found; check its mode");
        check(
            Error::new(Complete(missing())).context("cannot start"),
            "cannot start: cannot read x: entity not found; check its mode",
        );
        check(anyhow!("one").context("two").context("three"), "three: two: one");
    }
}
