//! What is shown: a table for people, JSON for machines.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use crate::{
    Outcome,
    run::{READERS, Results, USERS, WRITERS},
};

/// What a value has to reach.
enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Shown for context.
    Open,
}

struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    goal: Goal,
}

/// A table, with the goals beside the values.
pub(crate) fn table(results: &Results) -> String {
    let mut table = format!("{:<50} {:>12} {:<8} {:>8}  verdict\n", "", "value", "unit", "goal");
    for row in rows(results) {
        let (goal, verdict) = match row.goal {
            Goal::AtLeast(goal) => (format!("≥ {goal}"), if row.value >= goal { "met" } else { "MISSED" }),
            Goal::AtMost(goal) => (format!("≤ {goal}"), if row.value <= goal { "met" } else { "MISSED" }),
            Goal::Open => (String::new(), ""),
        };
        let decimals = if row.value < 10.0 { 3 } else { 1 };
        let line = format!("{:<50} {:>12.decimals$} {:<8} {goal:>8}  {verdict}", row.name, row.value, row.unit);
        let _ = writeln!(table, "{}", line.trim_end());
    }
    table
}

/// Everything as one object.
pub(crate) fn json(results: &Results) -> Value {
    let values = rows(results).into_iter().map(|row| {
        let (goal, met) = match row.goal {
            Goal::AtLeast(goal) => (Some(goal), Some(row.value >= goal)),
            Goal::AtMost(goal) => (Some(goal), Some(row.value <= goal)),
            Goal::Open => (None, None),
        };
        json!({ "name": row.name, "value": row.value, "unit": row.unit, "goal": goal, "met": met })
    });
    json!({ "ratios": results.ratios, "values": values.collect::<Vec<_>>() })
}

/// Writes the JSON to a file of its own and tells which.
pub(crate) fn write(results: &Results, folder: &Path) -> Outcome<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let path = folder.join(format!("{now}.json"));
    let text = serde_json::to_string_pretty(&json(results)).map_err(|error| error.to_string())?;
    fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

fn rows(results: &Results) -> Vec<Row> {
    let Results { floor, gable, write_alone, write_together, .. } = results;
    let ratio = gable.measured.rate() / floor.measured.rate();
    let spread = |pick: fn(f64, f64) -> f64| results.ratios.iter().copied().reduce(pick).unwrap_or(f64::NAN);
    let mut rows = vec![];
    let mut row = |name: &str, value, unit, goal| rows.push(Row { name: name.to_owned(), value, unit, goal });
    row(&format!("GET /user, {READERS} clients, share of the floor"), ratio, "", Goal::AtLeast(0.5));
    row("  worst round", spread(f64::min), "", Goal::Open);
    row("  best round", spread(f64::max), "", Goal::Open);
    row("  floor", floor.measured.rate(), "/s", Goal::Open);
    row("  floor p50", floor.measured.percentile(50), "ms", Goal::Open);
    row("  floor p90", floor.measured.percentile(90), "ms", Goal::Open);
    row("  floor p99", floor.measured.percentile(99), "ms", Goal::Open);
    row("  floor, processor time per answer", floor.cpu_per_answer(), "µs", Goal::Open);
    row("  gable", gable.measured.rate(), "/s", Goal::Open);
    row("  gable p50", gable.measured.percentile(50), "ms", Goal::Open);
    row("  gable p90", gable.measured.percentile(90), "ms", Goal::Open);
    row("  gable p99", gable.measured.percentile(99), "ms", Goal::Open);
    row("  gable, processor time per answer", gable.cpu_per_answer(), "µs", Goal::Open);
    row(
        &format!("GET /users, 20 of {USERS}, 1 client, p99"),
        results.list_alone.percentile(99),
        "ms",
        Goal::AtMost(5.0),
    );
    row(&format!("GET /users, 20 of {USERS}, {READERS} clients"), results.list_together.rate(), "/s", Goal::Open);
    row("POST /users, 8 clients", results.created_users.rate(), "/s", Goal::Open);
    let factor = write_together.rate() / write_alone.rate();
    row(&format!("POST /user/emails, {WRITERS} clients over 1, this disk"), factor, "times", Goal::AtLeast(10.0));
    row("  1 client", write_alone.rate(), "/s", Goal::Open);
    row("  1 client p50", write_alone.percentile(50), "ms", Goal::Open);
    row("  1 client p99", write_alone.percentile(99), "ms", Goal::Open);
    row(&format!("  {WRITERS} clients"), write_together.rate(), "/s", Goal::Open);
    row(&format!("  {WRITERS} clients p50"), write_together.percentile(50), "ms", Goal::Open);
    row(&format!("  {WRITERS} clients p99"), write_together.percentile(99), "ms", Goal::Open);
    row("  the disk alone, pages written and synced", results.disk.rate(), "/s", Goal::Open);
    row("  the disk alone p50", results.disk.percentile(50), "ms", Goal::Open);
    row("  the disk alone p99", results.disk.percentile(99), "ms", Goal::Open);
    let factor = results.slow_together.rate() / results.slow_alone.rate();
    row(&format!("POST /user/emails, {WRITERS} over 1, syncs 2 ms slower"), factor, "times", Goal::AtLeast(10.0));
    row("  1 client", results.slow_alone.rate(), "/s", Goal::Open);
    row(&format!("  {WRITERS} clients"), results.slow_together.rate(), "/s", Goal::Open);
    row("memory, idle after the first start", results.idle_first, "MB", Goal::AtMost(40.0));
    row("memory, idle after a later start", results.idle_next, "MB", Goal::AtMost(40.0));
    row("memory after the GET /user above", results.after_reads, "MB", Goal::Open);
    row("memory after everything above", results.after_all, "MB", Goal::Open);
    row("memory, at most", results.peak, "MB", Goal::Open);
    row("start to ready, first start", results.first_start.as_secs_f64(), "s", Goal::AtMost(1.0));
    row("start to ready, later start", results.next_start.as_secs_f64(), "s", Goal::AtMost(1.0));
    row("size of the binary", results.binary_size, "MB", Goal::AtMost(40.0));
    rows
}
