//! How far it is: a line that changes on a terminal, a line now and then elsewhere, or nothing.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

/// How often a line is said where they stay.
const EVERY: Duration = Duration::from_secs(5);

/// Tells whoever waits how far it is.
pub(super) struct Progress {
    how: How,
    stage: &'static str,
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
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            How::Bar(bar)
        } else {
            How::Lines(Instant::now())
        };
        Self { how, stage: "", files: 0, bytes: 0 }
    }

    /// Something else begins.
    pub(super) fn stage(&mut self, stage: &'static str) {
        self.tell_stage();
        (self.stage, self.files, self.bytes) = (stage, 0, 0);
        if let How::Bar(bar) = &self.how {
            bar.set_message(stage);
        }
    }

    /// One more file or bundle of rows.
    pub(super) fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
        let text = || format!("{}: {} pieces, {}", self.stage, HumanCount(self.files), HumanBytes(self.bytes));
        match &mut self.how {
            How::Bar(bar) if self.files % 16 == 1 => bar.set_message(text()),
            How::Lines(last) if last.elapsed() >= EVERY => {
                eprintln!("{}", text());
                *last = Instant::now();
            }
            _ => {}
        }
    }

    /// Says something that stays.
    pub(super) fn note(&self, text: &str) {
        match &self.how {
            How::Bar(bar) => bar.suspend(|| eprintln!("{text}")),
            How::Lines(_) => eprintln!("{text}"),
            How::Quiet => {}
        }
    }

    /// Says something that must not be missed.
    pub(super) fn warn(&self, text: &str) {
        match &self.how {
            How::Bar(bar) => bar.suspend(|| eprintln!("warning: {text}")),
            How::Lines(_) | How::Quiet => eprintln!("warning: {text}"),
        }
    }

    fn tell_stage(&self) {
        if !self.stage.is_empty() && !matches!(self.how, How::Quiet) {
            let count = format!("{}: {} pieces, {}", self.stage, HumanCount(self.files), HumanBytes(self.bytes));
            self.note(&count);
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
