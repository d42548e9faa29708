//! Steps with a heading, a duration and a count.

use std::{
    io::{BufRead as _, BufReader},
    ops::AddAssign,
    process::{Command, Stdio},
    time::Instant,
};

use crate::Outcome;

/// How many tests went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// What the steps so far came to.
#[derive(Default)]
pub(crate) struct Report {
    tally: Tally,
    failed_steps: Vec<String>,
}

impl Report {
    /// Runs a step and tells whether it went well. One that fails is noted, and the next one gets its chance.
    pub(crate) fn step<T: Into<Tally>>(&mut self, name: &str, work: impl FnOnce() -> Outcome<T>) -> bool {
        println!("\n=== {name}");
        let start = Instant::now();
        let tally = match work() {
            Ok(tally) => tally.into(),
            Err(sentence) => {
                println!("{sentence}");
                Tally { passed: 0, failed: 1 }
            }
        };
        let verdict = if tally.failed == 0 { "ok" } else { "FAILED" };
        println!("=== {name}: {verdict}, {:.1} s", start.elapsed().as_secs_f64());
        if tally.failed > 0 {
            self.failed_steps.push(name.to_owned());
        }
        self.tally += tally;
        tally.failed == 0
    }

    /// Prints the sum.
    pub(crate) fn finish(self) -> Outcome {
        println!("\n{} passed, {} failed", self.tally.passed, self.tally.failed);
        if self.failed_steps.is_empty() { Ok(()) } else { Err(format!("failed: {}", self.failed_steps.join(", "))) }
    }
}

/// A step without tests counts for nothing unless it fails.
impl From<()> for Tally {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Runs a program to its good end.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let name = describe(command);
    let status = command.status().map_err(|error| format!("cannot run {name}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} failed ({status})")) }
}

/// Runs a program quietly and gives what it printed.
pub(crate) fn read(command: &mut Command) -> Outcome<String> {
    let name = describe(command);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run {name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{name} failed ({})\n{text}", output.status)) }
}

/// Runs tests, shows what they print, and adds up their own summaries.
pub(crate) fn run_tests(command: &mut Command) -> Outcome<Tally> {
    run_tests_as("", command)
}

/// As [`run_tests`], with a word before each line that tells it from those of others who run at the same time.
pub(crate) fn run_tests_as(word: &str, command: &mut Command) -> Outcome<Tally> {
    let name = describe(command);
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("cannot run {name}: {error}"))?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{word}{line}");
            tally += summary(&line).unwrap_or_default();
        }
    }
    let status = child.wait().map_err(|error| format!("cannot wait for {name}: {error}"))?;
    if !status.success() && tally.failed == 0 {
        println!("{name} failed ({status})");
        tally.failed = 1;
    }
    Ok(tally)
}

/// The numbers in a line such as `test result: ok. 5 passed; 0 failed; …` or `5 passed, 1 failed in 3 s`.
fn summary(line: &str) -> Option<Tally> {
    let of_cargo = line.starts_with("test result:");
    let of_a_client = line.starts_with(|first: char| first.is_ascii_digit()) && line.contains(" in ");
    if !of_cargo && !of_a_client {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches([',', ';', '.'])).collect();
    let count = |names: &[&str]| -> Option<u32> {
        let place = words.iter().position(|word| names.contains(word))?;
        words.get(place.checked_sub(1)?)?.parse().ok()
    };
    let (passed, failed) = (count(&["passed"]), count(&["failed"]));
    let errors = count(&["error", "errors"]);
    passed.or(failed).or(errors)?;
    Some(Tally { passed: passed.unwrap_or(0), failed: failed.unwrap_or(0) + errors.unwrap_or(0) })
}

/// A program and its first argument, as a person would say it.
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
            assert_eq!(summary(line), expected.map(|(passed, failed)| Tally { passed, failed }), "{line}");
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
