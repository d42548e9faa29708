//! The results of a load test: a table or JSON, and whether the goals were reached.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::{resource_usage::ResourceUsage, schedule::percentile};

/// The goals: the P90 latency of each route in milliseconds, and the memory of the server in megabytes.
const GOAL_MS: f64 = 50.0;
const GOAL_MEMORY_MB: f64 = 256.0;
/// The server is overloaded above this P90 latency in milliseconds, or below this share of responses in time.
const OVERLOAD_MS: f64 = 200.0;
const MIN_IN_TIME_SHARE: f64 = 0.8;
/// The maximum P99 delay of the generator for a valid measurement, in milliseconds.
const MAX_GENERATOR_DELAY_MS: f64 = 10.0;
/// The maximum number of errors shown per row, and of lines of errors and of shortfalls.
const ERRORS_PER_ROW: usize = 3;
const MAX_LINES: usize = 20;

/// The results at one rate.
pub(crate) struct Summary {
    factor: u32,
    users: f64,
    time: Duration,
    rows: Vec<Row>,
    /// The number of responses before the end of the stage.
    in_time: usize,
    /// The delays with which the generator sent the requests.
    pub(crate) delays: Vec<Duration>,
    pub(crate) usage: ResourceUsage,
}

struct Row {
    name: &'static str,
    /// Whether the row counts for the verdict.
    has_goal: bool,
    latencies: Vec<Duration>,
    errors: usize,
    error_messages: Vec<String>,
}

impl Row {
    fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.latencies, percent)
    }

    fn is_over(&self, limit: f64) -> bool {
        self.has_goal && self.percentile(90) > limit
    }
}

impl Summary {
    pub(crate) fn new(factor: u32, users: f64, time: Duration, names: Vec<&'static str>) -> Self {
        let row = |name| Row { name, has_goal: true, latencies: Vec::new(), errors: 0, error_messages: Vec::new() };
        let rows = names.into_iter().map(row).collect();
        Self { factor, users, time, rows, in_time: 0, delays: Vec::new(), usage: ResourceUsage::default() }
    }

    /// Shows a row that does not count for the verdict.
    pub(crate) fn exclude_from_verdict(&mut self, name: &str) {
        for row in self.rows.iter_mut().filter(|row| row.name == name) {
            row.has_goal = false;
        }
    }

    pub(crate) fn add(&mut self, row: usize, latency: Duration, done: Duration, error: Option<String>) {
        let row = &mut self.rows[row];
        row.latencies.push(latency);
        if let Some(error) = error {
            row.errors += 1;
            if row.error_messages.len() < ERRORS_PER_ROW {
                row.error_messages.push(error);
            }
        } else if done <= self.time + Duration::from_secs(1) {
            self.in_time += 1;
        }
    }

    pub(crate) fn finish(&mut self) {
        for row in &mut self.rows {
            row.latencies.sort_unstable();
        }
        self.delays.sort_unstable();
    }

    fn response_count(&self) -> usize {
        self.rows.iter().map(|row| row.latencies.len()).sum()
    }

    pub(crate) fn errors(&self) -> usize {
        self.rows.iter().map(|row| row.errors).sum()
    }

    /// Returns the share of requests with a successful response before the end of the stage.
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 responses")]
    fn share_in_time(&self) -> f64 {
        self.in_time as f64 / self.response_count().max(1) as f64
    }

    /// Returns why the server is overloaded, if it is.
    pub(crate) fn overload_reason(&self) -> Option<String> {
        if self.errors() > 0 {
            return Some(format!("{} requests failed", self.errors()));
        }
        if self.share_in_time() < MIN_IN_TIME_SHARE {
            return Some(format!("only {:.0} % of the responses were in time", 100.0 * self.share_in_time()));
        }
        let slow: Vec<&str> = self.rows.iter().filter(|row| row.is_over(OVERLOAD_MS)).map(|row| row.name).collect();
        let first = slow.first()?;
        Some(format!("{} routes took more than {OVERLOAD_MS} ms at P90, {first} among them", slow.len()))
    }

    /// Returns the likely bottleneck.
    fn bottleneck(&self) -> String {
        let ResourceUsage { server, children, generator, others, idle, .. } = self.usage;
        let cores = server + children + generator + others + idle;
        if idle < 0.1 * cores {
            return format!(
                "the processors: of {cores:.1} the server took {server:.2}, its git programs {children:.2}, the generator \
                 {generator:.2} and others {others:.2}"
            );
        }
        let slow: Vec<&Row> = self.rows.iter().filter(|row| row.is_over(OVERLOAD_MS)).collect();
        let writes = slow.iter().filter(|row| !row.name.starts_with("GET") && !row.name.starts_with("git")).count();
        if writes * 2 > slow.len() {
            "the database writer: reading routes stayed fast".into()
        } else {
            "the blocking threads or the disk: processors were idle".into()
        }
    }

    /// Returns all goals that were missed.
    fn shortfalls(&self) -> Vec<String> {
        let mut shortfalls = Vec::new();
        for row in &self.rows {
            let mut reasons = Vec::new();
            if row.errors > 0 {
                reasons.push(format!("{} errors", row.errors));
            }
            if row.latencies.is_empty() {
                reasons.push("never requested".into());
            }
            if row.is_over(GOAL_MS) {
                reasons.push(format!("P90 {:.1} ms", row.percentile(90)));
            }
            if !reasons.is_empty() {
                shortfalls.push(format!("{}: {}", row.name, reasons.join(", ")));
            }
        }
        if self.usage.peak.max(self.usage.memory) > GOAL_MEMORY_MB {
            shortfalls.push(format!("memory: {:.0} MB", self.usage.peak.max(self.usage.memory)));
        }
        shortfalls
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let [p50, p90, p99] = [50, 90, 99].map(|percent| row.percentile(percent));
                json!({ "route": row.name, "count": row.latencies.len(), "errors": row.errors, "judged": row.has_goal,
                        "p50": p50, "p90": p90, "p99": p99 })
            })
            .collect();
        let ResourceUsage { server, children, generator, others, idle, memory, peak, children_memory } = self.usage;
        json!({
            "factor": self.factor, "users": self.users, "seconds": self.time.as_secs_f64(),
            "answers": self.response_count(), "errors": self.errors(), "in_time": self.share_in_time(),
            "generator_late_p99": percentile(&self.delays, 99), "rows": rows,
            "processors": { "server": server, "git": children, "generator": generator, "others": others, "idle": idle },
            "megabytes": { "server": memory, "server_peak": peak, "git": children_memory },
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { users, time, usage, .. } = self;
        let seconds = time.as_secs();
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 responses")]
        let rate = self.response_count() as f64 / time.as_secs_f64();
        writeln!(f, "{users:.0} users for {seconds} s: {rate:.0} requests a second\n")?;
        writeln!(f, "| route | count | errors | P50 ms | P90 ms | P99 ms |\n|---|--:|--:|--:|--:|--:|")?;
        for row in &self.rows {
            let (name, count, errors) = (row.name, row.latencies.len(), row.errors);
            let [p50, p90, p99] = [50, 90, 99].map(|percent| row.percentile(percent));
            writeln!(f, "| {name} | {count} | {errors} | {p50:.1} | {p90:.1} | {p99:.1} |")?;
        }
        let ResourceUsage { server, children, generator, others, idle, memory, peak, children_memory } = usage;
        let delay = percentile(&self.delays, 99);
        writeln!(
            f,
            "\nprocessors: server {server:.2}, its git programs {children:.2}, generator {generator:.2}, others {others:.2}, idle {idle:.2}"
        )?;
        writeln!(
            f,
            "memory: server {memory:.0} MB, at its peak {peak:.0} MB; its git programs {children_memory:.0} MB"
        )?;
        writeln!(f, "in time: {:.1} %; the generator was late by {delay:.1} ms at P99", 100.0 * self.share_in_time())?;
        if delay > MAX_GENERATOR_DELAY_MS {
            writeln!(f, "the generator was late: this machine is too busy for reliable results")?;
        }
        let error_messages: Vec<&String> = self.rows.iter().flat_map(|row| &row.error_messages).collect();
        write_some(f, "error: ", &error_messages)
    }
}

/// Whether the goals were reached, and at which rate the server was overloaded.
pub(crate) struct Verdict {
    shortfalls: Vec<String>,
    knee: Option<String>,
}

impl Verdict {
    pub(crate) fn of(stages: &[Summary]) -> Self {
        let shortfalls = stages.first().map(Summary::shortfalls).unwrap_or_default();
        let knee = stages.last().filter(|_| stages.len() > 1).map(|last| match last.overload_reason() {
            Some(why) => {
                format!("overloaded at {:.0} users: {why}; the bottleneck is {}", last.users, last.bottleneck())
            }
            None => format!("not overloaded at {:.0} users", last.users),
        });
        Self { shortfalls, knee }
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.shortfalls.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_reached() {
            writeln!(f, "reached: every route within {GOAL_MS} ms at P90, no errors, at most {GOAL_MEMORY_MB} MB")?;
        } else {
            writeln!(f, "not reached (each route {GOAL_MS} ms at P90, no errors, {GOAL_MEMORY_MB} MB):")?;
            write_some(f, "  ", &self.shortfalls.iter().collect::<Vec<_>>())?;
        }
        if let Some(knee) = &self.knee {
            writeln!(f, "the knee: {knee}")?;
        }
        Ok(())
    }
}

fn write_some(f: &mut fmt::Formatter<'_>, before: &str, lines: &[&String]) -> fmt::Result {
    for line in lines.iter().take(MAX_LINES) {
        writeln!(f, "{before}{line}")?;
    }
    match lines.len().saturating_sub(MAX_LINES) {
        0 => Ok(()),
        more => writeln!(f, "{before}… and {more} more"),
    }
}

/// Returns all results as JSON.
pub(crate) fn json(stages: &[Summary], verdict: &Verdict) -> Value {
    let stages: Vec<Value> = stages.iter().map(Summary::json).collect();
    json!({ "stages": stages, "reached": verdict.is_reached(), "shortfalls": verdict.shortfalls, "knee": verdict.knee })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(millis: &[u64], error_count: usize) -> Summary {
        let mut summary =
            Summary::new(1, 10_000.0, Duration::from_secs(60), vec!["GET /user", "git clone, the program"]);
        summary.exclude_from_verdict("git clone, the program");
        for (index, millis) in millis.iter().enumerate() {
            let error = (index < error_count).then(|| "GET /user: 500".to_owned());
            summary.add(0, Duration::from_millis(*millis), Duration::from_secs(1), error);
        }
        summary.add(1, Duration::from_secs(9), Duration::from_secs(9), None);
        summary.finish();
        summary
    }

    #[test]
    fn fast_responses_without_errors_reach_the_goals_and_excluded_rows_do_not_count() {
        let quick = summary(&[1, 2, 3, 4, 5, 6, 7, 8, 50, 900], 0);
        assert_eq!(quick.overload_reason(), None);
        let verdict = Verdict::of(&[quick]);
        assert!(verdict.is_reached(), "{verdict}");
        assert!(verdict.to_string().starts_with("reached"));
    }

    #[test]
    fn one_error_or_a_slow_p90_is_a_shortfall() {
        let check = |summary: Summary, overload_reason: Option<&str>, expected: &str| {
            assert_eq!(summary.overload_reason().as_deref(), overload_reason);
            let verdict = Verdict::of(&[summary]);
            assert!(!verdict.is_reached() && verdict.to_string().contains(expected), "{verdict}");
        };
        check(summary(&[1; 10], 1), Some("1 requests failed"), "GET /user: 1 errors");
        check(summary(&[1, 1, 1, 51, 51], 0), None, "GET /user: P90 51.0 ms");
        let slow = Some("1 routes took more than 200 ms at P90, GET /user among them");
        check(summary(&[1, 201], 0), slow, "P90 201.0 ms");
    }

    #[test]
    fn responses_after_the_end_are_not_in_time() {
        let mut late = summary(&[1; 10], 0);
        for _ in 0..20 {
            late.add(0, Duration::from_millis(1), Duration::from_secs(90), None);
        }
        assert_eq!(late.overload_reason().as_deref(), Some("only 35 % of the responses were in time"));
    }

    #[test]
    fn the_knee_names_the_bottleneck() {
        let mut overloaded = summary(&[300; 10], 0);
        overloaded.usage = ResourceUsage { server: 1.5, generator: 0.4, idle: 0.1, ..ResourceUsage::default() };
        let verdict = Verdict::of(&[summary(&[1; 10], 0), overloaded]);
        assert!(verdict.is_reached());
        assert!(verdict.to_string().contains("the bottleneck is the processors"), "{verdict}");
    }
}
