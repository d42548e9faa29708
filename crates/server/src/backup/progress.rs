//! How far it is: a bar on a terminal, a line now and then elsewhere, or nothing.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::exit::complain;

/// How often a line is said where they stay.
const EVERY: Duration = Duration::from_secs(5);

/// How a line reads that changes.
const WITH_END: &str = "{msg} [{bar:30}] {pos}/{len} [{elapsed}]";
const WITHOUT_END: &str = "{spinner} {msg} [{elapsed}]";

/// Tells whoever waits how far it is.
pub(super) struct Progress {
    how: How,
    stage: &'static str,
    /// How many steps are done, and of how many.
    steps: Option<(u64, u64)>,
    files: u64,
    bytes: u64,
}

enum How {
    Bar(ProgressBar),
    Lines(Instant),
    Quiet,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Self {
        let how = if quiet {
            How::Quiet
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(200));
            How::Bar(bar)
        } else {
            How::Lines(Instant::now())
        };
        Self { how, stage: "", steps: None, files: 0, bytes: 0 }
    }

    /// Something else begins, and nobody knows how much of it there is.
    pub(super) fn stage(&mut self, stage: &'static str) {
        self.begin(stage, None);
    }

    /// Something else begins that has so many steps.
    pub(super) fn stage_of(&mut self, stage: &'static str, steps: u64) {
        self.begin(stage, Some((0, steps)));
    }

    fn begin(&mut self, stage: &'static str, steps: Option<(u64, u64)>) {
        self.tell_stage();
        (self.stage, self.steps, self.files, self.bytes) = (stage, steps, 0, 0);
        if let How::Bar(bar) = &self.how {
            let form = if steps.is_some() { WITH_END } else { WITHOUT_END };
            if let Ok(style) = ProgressStyle::with_template(form) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_length(steps.map_or(0, |(_, all)| all));
            bar.set_position(0);
            bar.set_message(stage);
        }
    }

    /// One more step is done.
    pub(super) fn step(&mut self) {
        if let Some((done, _)) = &mut self.steps {
            *done += 1;
        }
        if let How::Bar(bar) = &self.how {
            bar.inc(1);
        }
    }

    /// One more file or bundle of rows.
    pub(super) fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        match &self.how {
            How::Bar(bar) if self.files % 16 == 1 => bar.set_message(self.text()),
            How::Lines(last) if last.elapsed() >= EVERY => {
                complain(self.text());
                self.how = How::Lines(Instant::now());
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        let Self { stage, files, bytes, .. } = self;
        let steps = match (self.steps, &self.how) {
            (Some((done, all)), How::Lines(_)) => format!("{} of {}, ", HumanCount(done), HumanCount(all)),
            _ => String::new(),
        };
        format!("{stage}: {steps}{} pieces, {}", HumanCount(*files), HumanBytes(*bytes))
    }

    /// Says something that stays.
    pub(super) fn note(&self, text: &str) {
        match &self.how {
            How::Bar(bar) => bar.suspend(|| complain(text)),
            How::Lines(_) => complain(text),
            How::Quiet => {}
        }
    }

    /// Says something that must not be missed.
    pub(super) fn warn(&self, text: &str) {
        match &self.how {
            How::Bar(bar) => bar.suspend(|| complain(format_args!("warning: {text}"))),
            How::Lines(_) | How::Quiet => complain(format_args!("warning: {text}")),
        }
    }

    fn tell_stage(&self) {
        if !self.stage.is_empty() && !matches!(self.how, How::Quiet) {
            self.note(&self.text());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.tell_stage();
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}
