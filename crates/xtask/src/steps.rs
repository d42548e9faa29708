//! Runs steps and programs, and reports their results.

use std::{
    io::{BufRead as _, BufReader},
    ops::AddAssign,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow};

/// The numbers of passed and failed tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestCounts {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl AddAssign for TestCounts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// The result of the steps so far.
#[derive(Default)]
pub(crate) struct Report {
    counts: TestCounts,
    failed_steps: Vec<String>,
}

impl Report {
    /// Runs a step and returns whether it succeeded. A failure is recorded; later steps still run.
    pub(crate) fn step<T: Into<TestCounts>>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> bool {
        println!("\n=== {name}");
        let start = Instant::now();
        let counts = match work() {
            Ok(counts) => counts.into(),
            Err(error) => {
                println!("{error:#}");
                TestCounts { passed: 0, failed: 1 }
            }
        };
        let verdict = if counts.failed == 0 { "ok" } else { "FAILED" };
        println!("=== {name}: {verdict}, {:.1} s", start.elapsed().as_secs_f64());
        if counts.failed > 0 {
            self.failed_steps.push(name.to_owned());
        }
        self.counts += counts;
        counts.failed == 0
    }

    /// Prints the totals; fails if a step failed.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n{} passed, {} failed", self.counts.passed, self.counts.failed);
        if self.failed_steps.is_empty() { Ok(()) } else { Err(anyhow!("failed: {}", self.failed_steps.join(", "))) }
    }
}

/// A step without tests counts only if it fails.
impl From<()> for TestCounts {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Runs a program; fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = describe(command);
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    if status.success() { Ok(()) } else { Err(anyhow!("{name} failed ({status})")) }
}

/// Runs a program and returns its standard output.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {name}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(anyhow!("{name} failed ({})\n{text}", output.status)) }
}

/// Runs tests, prints their output, and adds up their summaries.
pub(crate) fn run_tests(command: &mut Command) -> Result<TestCounts> {
    run_tests_as("", command)
}

/// Like [`run_tests`], with a prefix before each line, for tests that run in parallel.
pub(crate) fn run_tests_as(prefix: &str, command: &mut Command) -> Result<TestCounts> {
    let name = describe(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {name}"))?;
    let mut counts = TestCounts::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{prefix}{line}");
            counts += summary(&line).unwrap_or_default();
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for {name}"))?;
    if !status.success() && counts.failed == 0 {
        println!("{name} failed ({status})");
        counts.failed = 1;
    }
    Ok(counts)
}

/// Parses the numbers of a line such as `test result: ok. 5 passed; 0 failed; …` or `5 passed, 1 failed in 3 s`.
pub(crate) fn summary(line: &str) -> Option<TestCounts> {
    let is_from_cargo = line.starts_with("test result:");
    let is_from_client = line.starts_with(|first: char| first.is_ascii_digit()) && line.contains(" in ");
    if !is_from_cargo && !is_from_client {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches([',', ';', '.'])).collect();
    let count = |names: &[&str]| -> Option<u32> {
        let index = words.iter().position(|word| names.contains(word))?;
        words.get(index.checked_sub(1)?)?.parse().ok()
    };
    let (passed, failed) = (count(&["passed"]), count(&["failed"]));
    let errors = count(&["error", "errors"]);
    passed.or(failed).or(errors)?;
    Some(TestCounts { passed: passed.unwrap_or(0), failed: failed.unwrap_or(0) + errors.unwrap_or(0) })
}

/// Returns a program and its first argument, for messages.
fn describe(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default();
    let argument = command.get_args().next().map(|argument| argument.to_string_lossy());
    argument.map_or_else(|| format!("`{program}`"), |argument| format!("`{program} {argument}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted_and_other_lines_are_not() {
        let check = |line, expected: Option<(u32, u32)>| {
            assert_eq!(summary(line), expected.map(|(passed, failed)| TestCounts { passed, failed }), "{line}");
        };
        check("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; finished in 0.00s", Some((12, 0)));
        check("test result: FAILED. 3 passed; 2 failed; 0 ignored", Some((3, 2)));
        check("9 passed in 1.20s", Some((9, 0)));
        check("1 failed, 8 passed, 2 errors in 1.20s", Some((8, 3)));
        check("1 failed in 0.10s", Some((0, 1)));
        check("26 passed, 0 failed in 31 s", Some((26, 0)));
        check("test users_are_paged ... ok", None);
        check("5 people passed by", None);
        check("running 7 tests", None);
    }
}
