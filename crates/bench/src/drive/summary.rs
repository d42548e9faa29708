//! What came out: a table for people, JSON for machines, and whether the goals were reached.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::{schedule::percentile, watch::Taken};

/// The goals: milliseconds of the ninetieth percentile of each route, and megabytes of the server.
const GOAL: f64 = 50.0;
const MEMORY: f64 = 256.0;
/// Beyond these it bends: milliseconds, and the share of the requests that were answered in time.
const BENT: f64 = 200.0;
const LEAST_RATE: f64 = 0.8;
/// From this on the generator's own lateness spoils what it measures, in milliseconds.
const TOO_LATE: f64 = 10.0;
/// How many faults are shown of each row, and how many lines of faults and of shortfalls in all.
const SHOWN: usize = 3;
const LINES: usize = 20;

/// How the load went at one rate.
pub(crate) struct Summary {
    factor: u32,
    users: f64,
    time: Duration,
    rows: Vec<Row>,
    /// Requests that were answered before the time was over.
    in_time: usize,
    /// How late the generator let each request go.
    pub(crate) late: Vec<Duration>,
    pub(crate) taken: Taken,
}

struct Row {
    name: &'static str,
    /// Whether it counts for the verdict.
    judged: bool,
    latencies: Vec<Duration>,
    errors: usize,
    faults: Vec<String>,
}

impl Row {
    fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.latencies, percent)
    }

    fn is_over(&self, limit: f64) -> bool {
        self.judged && self.percentile(90) > limit
    }
}

impl Summary {
    pub(crate) fn new(factor: u32, users: f64, time: Duration, names: Vec<&'static str>) -> Self {
        let row = |name| Row { name, judged: true, latencies: Vec::new(), errors: 0, faults: Vec::new() };
        let rows = names.into_iter().map(row).collect();
        Self { factor, users, time, rows, in_time: 0, late: Vec::new(), taken: Taken::default() }
    }

    /// Shows a row without judging it.
    pub(crate) fn leave_out(&mut self, name: &str) {
        for row in self.rows.iter_mut().filter(|row| row.name == name) {
            row.judged = false;
        }
    }

    pub(crate) fn add(&mut self, row: usize, latency: Duration, done: Duration, fault: Option<String>) {
        let row = &mut self.rows[row];
        row.latencies.push(latency);
        if let Some(fault) = fault {
            row.errors += 1;
            if row.faults.len() < SHOWN {
                row.faults.push(fault);
            }
        } else if done <= self.time + Duration::from_secs(1) {
            self.in_time += 1;
        }
    }

    pub(crate) fn finish(&mut self) {
        for row in &mut self.rows {
            row.latencies.sort_unstable();
        }
        self.late.sort_unstable();
    }

    fn answers(&self) -> usize {
        self.rows.iter().map(|row| row.latencies.len()).sum()
    }

    pub(crate) fn errors(&self) -> usize {
        self.rows.iter().map(|row| row.errors).sum()
    }

    /// What share of all requests was answered well before the time was over.
    #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^52 answers")]
    fn share_in_time(&self) -> f64 {
        self.in_time as f64 / self.answers().max(1) as f64
    }

    /// Why this was too much, if it was.
    pub(crate) fn bends(&self) -> Option<String> {
        if self.errors() > 0 {
            return Some(format!("{} requests failed", self.errors()));
        }
        if self.share_in_time() < LEAST_RATE {
            return Some(format!("only {:.0} % were answered in time", 100.0 * self.share_in_time()));
        }
        let slow: Vec<&str> = self.rows.iter().filter(|row| row.is_over(BENT)).map(|row| row.name).collect();
        let first = slow.first()?;
        Some(format!("{} routes took more than {BENT} ms at P90, {first} among them", slow.len()))
    }

    /// What was scarce, as far as numbers tell.
    fn scarce(&self) -> String {
        let Taken { server, programs, generator, others, idle, .. } = self.taken;
        let cores = server + programs + generator + others + idle;
        if idle < 0.1 * cores {
            return format!(
                "the processors: of {cores:.1} the server took {server:.2}, its git programs {programs:.2}, the generator \
                 {generator:.2} and others {others:.2}"
            );
        }
        let slow: Vec<&Row> = self.rows.iter().filter(|row| row.is_over(BENT)).collect();
        let writes = slow.iter().filter(|row| !row.name.starts_with("GET") && !row.name.starts_with("git")).count();
        if writes * 2 > slow.len() {
            "the one who writes to the database: reading routes stayed quick".into()
        } else {
            "the threads for what takes long, or the disk: processors were left over".into()
        }
    }

    /// Everything that keeps it from the goals.
    fn shortfalls(&self) -> Vec<String> {
        let mut shortfalls = Vec::new();
        for row in &self.rows {
            let mut faults = Vec::new();
            if row.errors > 0 {
                faults.push(format!("{} errors", row.errors));
            }
            if row.latencies.is_empty() {
                faults.push("never asked".into());
            }
            if row.is_over(GOAL) {
                faults.push(format!("P90 {:.1} ms", row.percentile(90)));
            }
            if !faults.is_empty() {
                shortfalls.push(format!("{}: {}", row.name, faults.join(", ")));
            }
        }
        if self.taken.peak.max(self.taken.memory) > MEMORY {
            shortfalls.push(format!("memory: {:.0} MB", self.taken.peak.max(self.taken.memory)));
        }
        shortfalls
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let [p50, p90, p99] = [50, 90, 99].map(|percent| row.percentile(percent));
                json!({ "route": row.name, "count": row.latencies.len(), "errors": row.errors, "judged": row.judged,
                        "p50": p50, "p90": p90, "p99": p99 })
            })
            .collect();
        let Taken { server, programs, generator, others, idle, memory, peak, program_memory } = self.taken;
        json!({
            "factor": self.factor, "users": self.users, "seconds": self.time.as_secs_f64(),
            "answers": self.answers(), "errors": self.errors(), "in_time": self.share_in_time(),
            "generator_late_p99": percentile(&self.late, 99), "rows": rows,
            "processors": { "server": server, "git": programs, "generator": generator, "others": others, "idle": idle },
            "megabytes": { "server": memory, "server_peak": peak, "git": program_memory },
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { users, time, taken, .. } = self;
        let seconds = time.as_secs();
        #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^52 answers")]
        let rate = self.answers() as f64 / time.as_secs_f64();
        writeln!(f, "{users:.0} users for {seconds} s: {rate:.0} requests a second\n")?;
        writeln!(f, "| route | count | errors | P50 ms | P90 ms | P99 ms |\n|---|--:|--:|--:|--:|--:|")?;
        for row in &self.rows {
            let (name, count, errors) = (row.name, row.latencies.len(), row.errors);
            let [p50, p90, p99] = [50, 90, 99].map(|percent| row.percentile(percent));
            writeln!(f, "| {name} | {count} | {errors} | {p50:.1} | {p90:.1} | {p99:.1} |")?;
        }
        let Taken { server, programs, generator, others, idle, memory, peak, program_memory } = taken;
        let late = percentile(&self.late, 99);
        writeln!(
            f,
            "\nprocessors: server {server:.2}, its git programs {programs:.2}, generator {generator:.2}, others {others:.2}, idle {idle:.2}"
        )?;
        writeln!(
            f,
            "memory: server {memory:.0} MB, at its peak {peak:.0} MB; its git programs {program_memory:.0} MB"
        )?;
        writeln!(f, "in time: {:.1} %; the generator was late by {late:.1} ms at P99", 100.0 * self.share_in_time())?;
        if late > TOO_LATE {
            writeln!(f, "the generator itself was late: this machine was too busy for these numbers to mean much")?;
        }
        let faults: Vec<&String> = self.rows.iter().flat_map(|row| &row.faults).collect();
        write_some(f, "fault: ", &faults)
    }
}

/// Whether the goals were reached, and where it bent.
pub(crate) struct Verdict {
    shortfalls: Vec<String>,
    knee: Option<String>,
}

impl Verdict {
    pub(crate) fn of(stages: &[Summary]) -> Self {
        let shortfalls = stages.first().map(Summary::shortfalls).unwrap_or_default();
        let knee = stages.last().filter(|_| stages.len() > 1).map(|last| match last.bends() {
            Some(why) => format!("it bends at {:.0} users: {why}; what gave way is {}", last.users, last.scarce()),
            None => format!("it does not bend at {:.0} users", last.users),
        });
        Self { shortfalls, knee }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.shortfalls.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_good() {
            writeln!(f, "reached: every route within {GOAL} ms at P90, no errors, at most {MEMORY} MB")?;
        } else {
            writeln!(f, "not reached (each route {GOAL} ms at P90, no errors, {MEMORY} MB):")?;
            write_some(f, "  ", &self.shortfalls.iter().collect::<Vec<_>>())?;
        }
        if let Some(knee) = &self.knee {
            writeln!(f, "the knee: {knee}")?;
        }
        Ok(())
    }
}

fn write_some(f: &mut fmt::Formatter<'_>, before: &str, lines: &[&String]) -> fmt::Result {
    for line in lines.iter().take(LINES) {
        writeln!(f, "{before}{line}")?;
    }
    match lines.len().saturating_sub(LINES) {
        0 => Ok(()),
        more => writeln!(f, "{before}… and {more} more"),
    }
}

/// Everything as one object.
pub(crate) fn json(stages: &[Summary], verdict: &Verdict) -> Value {
    let stages: Vec<Value> = stages.iter().map(Summary::json).collect();
    json!({ "stages": stages, "reached": verdict.is_good(), "shortfalls": verdict.shortfalls, "knee": verdict.knee })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(millis: &[u64], faults: usize) -> Summary {
        let mut summary =
            Summary::new(1, 10_000.0, Duration::from_secs(60), vec!["GET /user", "git clone, the program"]);
        summary.leave_out("git clone, the program");
        for (place, millis) in millis.iter().enumerate() {
            let fault = (place < faults).then(|| "GET /user: 500".to_owned());
            summary.add(0, Duration::from_millis(*millis), Duration::from_secs(1), fault);
        }
        summary.add(1, Duration::from_secs(9), Duration::from_secs(9), None);
        summary.finish();
        summary
    }

    #[test]
    fn quick_answers_without_faults_are_good_and_what_is_not_judged_does_not_count() {
        let quick = summary(&[1, 2, 3, 4, 5, 6, 7, 8, 50, 900], 0);
        assert_eq!(quick.bends(), None);
        let verdict = Verdict::of(&[quick]);
        assert!(verdict.is_good(), "{verdict}");
        assert!(verdict.to_string().starts_with("reached"));
    }

    #[test]
    fn one_fault_or_a_slow_tenth_is_told() {
        let check = |summary: Summary, bends: Option<&str>, said: &str| {
            assert_eq!(summary.bends().as_deref(), bends);
            let verdict = Verdict::of(&[summary]);
            assert!(!verdict.is_good() && verdict.to_string().contains(said), "{verdict}");
        };
        check(summary(&[1; 10], 1), Some("1 requests failed"), "GET /user: 1 errors");
        check(summary(&[1, 1, 1, 51, 51], 0), None, "GET /user: P90 51.0 ms");
        let slow = Some("1 routes took more than 200 ms at P90, GET /user among them");
        check(summary(&[1, 201], 0), slow, "P90 201.0 ms");
    }

    #[test]
    fn what_comes_after_the_end_is_not_in_time() {
        let mut late = summary(&[1; 10], 0);
        for _ in 0..20 {
            late.add(0, Duration::from_millis(1), Duration::from_secs(90), None);
        }
        assert_eq!(late.bends().as_deref(), Some("only 35 % were answered in time"));
    }

    #[test]
    fn the_knee_is_named_with_what_was_scarce() {
        let mut bent = summary(&[300; 10], 0);
        bent.taken = Taken { server: 1.5, generator: 0.4, idle: 0.1, ..Taken::default() };
        let verdict = Verdict::of(&[summary(&[1; 10], 0), bent]);
        assert!(verdict.is_good());
        assert!(verdict.to_string().contains("what gave way is the processors"), "{verdict}");
    }
}
