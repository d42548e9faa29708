//! Progress of long commands: a bar on a terminal, a line every few seconds elsewhere, or nothing.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::exit::print_stderr;

/// The interval between lines where the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The templates of the bar, with and without a known number of steps.
const BAR_TEMPLATE: &str = "{msg} [{bar:30}] {pos}/{len} [{elapsed}]";
const SPINNER_TEMPLATE: &str = "{spinner} {msg} [{elapsed}]";

/// Shows the progress of a command on standard error.
pub(crate) struct Progress {
    output: Output,
    stage: &'static str,
    /// The number of finished steps, and of all steps.
    steps: Option<(u64, u64)>,
    files: u64,
    bytes: u64,
}

enum Output {
    Bar(ProgressBar),
    Lines(Instant),
    Quiet,
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        let output = if quiet {
            Output::Quiet
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(200));
            Output::Bar(bar)
        } else {
            Output::Lines(Instant::now())
        };
        Self { output, stage: "", steps: None, files: 0, bytes: 0 }
    }

    /// Starts a stage of unknown length.
    pub(crate) fn stage(&mut self, stage: &'static str) {
        self.begin(stage, None);
    }

    /// Starts a stage with a known number of steps.
    pub(crate) fn stage_with_steps(&mut self, stage: &'static str, steps: u64) {
        self.begin(stage, Some((0, steps)));
    }

    fn begin(&mut self, stage: &'static str, steps: Option<(u64, u64)>) {
        self.print_stage();
        (self.stage, self.steps, self.files, self.bytes) = (stage, steps, 0, 0);
        if let Output::Bar(bar) = &self.output {
            let template = if steps.is_some() { BAR_TEMPLATE } else { SPINNER_TEMPLATE };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_length(steps.map_or(0, |(_, all)| all));
            bar.set_position(0);
            bar.set_message(stage);
        }
    }

    /// Finishes a step.
    pub(crate) fn step(&mut self) {
        if let Some((done, _)) = &mut self.steps {
            *done += 1;
        }
        if let Output::Bar(bar) = &self.output {
            bar.inc(1);
        }
    }

    /// Counts a file or batch of rows.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        match &self.output {
            Output::Bar(bar) if self.files % 16 == 1 => bar.set_message(self.text()),
            Output::Lines(last) if last.elapsed() >= LINE_INTERVAL => {
                print_stderr(self.text());
                self.output = Output::Lines(Instant::now());
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        let Self { stage, files, bytes, .. } = self;
        let steps = match (self.steps, &self.output) {
            (Some((done, all)), Output::Lines(_)) => format!("{} of {}, ", HumanCount(done), HumanCount(all)),
            _ => String::new(),
        };
        format!("{stage}: {steps}{} items, {}", HumanCount(*files), HumanBytes(*bytes))
    }

    /// Prints a line that stays.
    pub(crate) fn note(&self, text: &str) {
        match &self.output {
            Output::Bar(bar) => bar.suspend(|| print_stderr(text)),
            Output::Lines(_) => print_stderr(text),
            Output::Quiet => {}
        }
    }

    /// Prints a warning, even with `--quiet`.
    pub(crate) fn warn(&self, text: &str) {
        match &self.output {
            Output::Bar(bar) => bar.suspend(|| print_stderr(format_args!("warning: {text}"))),
            Output::Lines(_) | Output::Quiet => print_stderr(format_args!("warning: {text}")),
        }
    }

    fn print_stage(&self) {
        if !self.stage.is_empty() && !matches!(self.output, Output::Quiet) {
            self.note(&self.text());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.print_stage();
        if let Output::Bar(bar) = &self.output {
            bar.finish_and_clear();
        }
    }
}
