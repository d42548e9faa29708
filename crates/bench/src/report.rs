//! The report: tables, or JSON.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    basics::{Comparison, READERS, Results, USERS, WRITERS},
    closed_loop::Measurement,
    engine::EngineKind,
    hooks::{self, HOOKS, PENDING_DELIVERIES},
    issues::{self, ISSUES},
    lists::{self, Growth, PROJECTS, PageTiming},
    pipelines::{self, JOBS, RUNNERS, TRACE_BYTES_PER_SECOND, TRACING_JOBS},
    processor_time,
    pushes::{self, MANY_REFS, REFS},
    repository, web_pages,
};

/// The results of the selected benchmarks.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) basics: Option<Results>,
    /// By engine.
    pub(crate) lists: Vec<lists::Results>,
    /// By engine.
    pub(crate) issues: Vec<issues::Results>,
    /// By engine.
    pub(crate) hooks: Vec<hooks::Results>,
    pub(crate) pipelines: Vec<pipelines::Results>,
    pub(crate) pushes: Vec<pushes::Results>,
    pub(crate) processor_time: Vec<processor_time::Results>,
    pub(crate) web_pages: Vec<web_pages::Results>,
    pub(crate) repository: Option<repository::Results>,
}

/// The goal of a value.
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

impl Row {
    fn is_met(&self) -> Option<bool> {
        match self.goal {
            Goal::AtLeast(goal) => Some(self.value >= goal),
            Goal::AtMost(goal) => Some(self.value <= goal),
            Goal::Open => None,
        }
    }
}

impl Report {
    /// Formats tables of values and goals; of lists either every case or the slowest of each route.
    pub(crate) fn tables(&self, every_case: bool) -> String {
        let mut tables = String::new();
        for (number, row) in self.rows().into_iter().enumerate() {
            if number == 0 {
                let _ = writeln!(tables, "{:<58} {:>12} {:<8} {:>8}  verdict", "", "value", "unit", "goal");
            }
            let goal = match row.goal {
                Goal::AtLeast(goal) => format!("≥ {goal}"),
                Goal::AtMost(goal) => format!("≤ {goal}"),
                Goal::Open => String::new(),
            };
            let decimals = if row.value < 10.0 { 3 } else { 1 };
            let (name, value, unit, verdict) = (&row.name, row.value, row.unit, verdict(row.is_met()));
            let line = format!("{name:<58} {value:>12.decimals$} {unit:<8} {goal:>8}  {verdict}");
            let _ = writeln!(tables, "{}", line.trim_end());
        }
        for results in &self.lists {
            tables += &pages(&format!("{}, {PROJECTS} projects", results.kind), &results.pages, every_case);
            tables += &growths(results, every_case);
        }
        for results in &self.issues {
            tables += &pages(&format!("{}, {ISSUES} issues", results.kind), &results.pages, every_case);
        }
        for results in &self.processor_time {
            tables += &processor_times(results);
        }
        for results in &self.web_pages {
            tables += &web_page_table(results);
        }
        tables + &self.repository.as_ref().map(reads).unwrap_or_default()
    }

    /// Returns the report as JSON.
    pub(crate) fn json(&self) -> Value {
        let values = self.rows().into_iter().map(|row| {
            let goal = match row.goal {
                Goal::AtLeast(goal) | Goal::AtMost(goal) => Some(goal),
                Goal::Open => None,
            };
            json!({ "name": row.name, "value": row.value, "unit": row.unit, "goal": goal, "met": row.is_met() })
        });
        let of_lists = self.lists.iter().map(|results| (results.kind, &results.pages));
        let of_issues = self.issues.iter().map(|results| (results.kind, &results.pages));
        let pages = of_lists.chain(of_issues).flat_map(|(kind, pages)| {
            pages.iter().map(move |page| {
                let (user, target) = (page.case.route.user.to_string(), page.case.target());
                json!({ "engine": kind.to_string(), "asker": user, "target": target, "p50": page.p50, "p99": page.p99 })
            })
        });
        let growths = self.lists.iter().flat_map(|results| {
            results.growths.iter().map(|growth| {
                let (user, target) = (growth.case.route.user.to_string(), growth.case.target());
                json!({ "engine": results.kind.to_string(), "asker": user, "target": target, "p50": growth.p50s })
            })
        });
        let reads = self.repository.iter().flat_map(|results| &results.rows).map(|row| {
            json!({ "name": row.name, "measured": row.measured, "floor": row.floor, "goal": row.goal, "met": is_met(row) })
        });
        let processor_time = self.processor_time.iter().flat_map(|results| {
            results.rows.iter().map(|row| {
                let caller = row.request.caller.map(|caller| json!([caller.kind.to_string(), caller.projects]));
                let (engine, name) = (results.kind.to_string(), &row.request.name);
                json!({ "engine": engine, "name": name, "caller": caller, "micros": row.now, "before": row.before })
            })
        });
        let web_pages = self.web_pages.iter().flat_map(|results| {
            results.rows.iter().map(|row| {
                let engine = results.kind.to_string();
                json!({ "engine": engine, "name": row.name, "bytes": row.size, "p90": row.one, "p90_of_many": row.many })
            })
        });
        let ratios = self.basics.as_ref().map(|basics| &basics.user.ratios);
        json!({
            "ratios": ratios,
            "values": values.collect::<Vec<_>>(),
            "pages": pages.collect::<Vec<_>>(),
            "growth": growths.collect::<Vec<_>>(),
            "processor_time": processor_time.collect::<Vec<_>>(),
            "web_pages": web_pages.collect::<Vec<_>>(),
            "repository": reads.collect::<Vec<_>>(),
        })
    }

    /// Writes the JSON to a new file and returns its path.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let path = folder.join(format!("{now}.json"));
        let text = serde_json::to_string_pretty(&self.json())?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn rows(&self) -> Vec<Row> {
        let basics = self.basics.iter().flat_map(rows);
        let lists = self.lists.iter().flat_map(rows_of_project);
        let hooks = self.hooks.iter().flat_map(rows_of_hooks);
        let pipelines = self.pipelines.iter().flat_map(rows_of_pipelines);
        basics.chain(lists).chain(hooks).chain(pipelines).chain(self.pushes.iter().flat_map(rows_of_pushes)).collect()
    }
}

fn verdict(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    }
}

/// Formats the comparison of repository reads with git.
fn reads(results: &repository::Results) -> String {
    let mut table = format!(
        "\n{:<48} {:>10} {:>10} {:>8} {:>8}  verdict\n",
        "a large repository, p50 in ms", "measured", "git", "ratio", "goal"
    );
    for row in &results.rows {
        let goal = row.goal.map(|goal| format!("≤ {goal}")).unwrap_or_default();
        let (name, ratio, verdict) = (row.name, row.ratio(), verdict(is_met(row)));
        let line = format!("{name:<48} {:>10.3} {:>10.3} {ratio:>8.3} {goal:>8}  {verdict}", row.measured, row.floor);
        let _ = writeln!(table, "{}", line.trim_end());
    }
    table
}

fn is_met(row: &repository::Compared) -> Option<bool> {
    row.goal.map(|goal| row.ratio() <= goal)
}

/// Formats the latencies of pages: every case, or the slowest of each route.
fn pages(what: &str, pages: &[PageTiming], every_case: bool) -> String {
    let mut table = String::new();
    let is_met = |page: &PageTiming| page.p99 <= page.goal;
    let missed = pages.iter().filter(|page| !is_met(page)).count();
    for (number, page) in pages.iter().enumerate() {
        if number == 0 {
            let _ = write!(
                table,
                "\n{what}, 1 client, ms; {missed} of {} pages missed\n{:<64} {:>8} {:>8} {:>6}  {:<7} slowest\n",
                pages.len(),
                "",
                "p50",
                "p99",
                "goal",
                "verdict",
            );
        }
        let same = |other: &&PageTiming| other.case.route == page.case.route;
        let is_worst = pages.iter().filter(same).all(|other| other.p99 <= page.p99);
        if every_case || is_worst {
            let (route, verdict, goal) = (&page.case.route, verdict(Some(is_met(page))), format!("≤ {}", page.goal));
            let name = format!("{} ({})", route.name, route.user);
            let (p50, p99, query) = (page.p50, page.p99, &page.case.query);
            let line = format!("{name:<64} {p50:>8.2} {p99:>8.2} {goal:>6}  {verdict:<7} {query}");
            let _ = writeln!(table, "{}", line.trim_end());
        }
    }
    table
}

/// Formats the growth of latencies: every case, or the fastest growing of each route.
fn growths(results: &lists::Results, every_case: bool) -> String {
    let mut table = String::new();
    for (number, growth) in results.growths.iter().enumerate() {
        if number == 0 {
            let _ = write!(table, "\n{}, p50 in ms among so many projects\n{:<48}", results.kind, "");
            for size in Growth::sizes() {
                let _ = write!(table, " {size:>8}");
            }
            let _ = writeln!(table, " {:>8}  grows most", "factor");
        }
        let same = |other: &&Growth| other.case.route == growth.case.route;
        let is_worst = results.growths.iter().filter(same).all(|other| other.factor() <= growth.factor());
        if every_case || is_worst {
            let route = &growth.case.route;
            let _ = write!(table, "{:<48}", format!("{} ({})", route.name, route.user));
            for p50 in &growth.p50s {
                let _ = write!(table, " {p50:>8.2}");
            }
            let _ = writeln!(table, " {:>8.1}  {}", growth.factor(), growth.case.query);
        }
    }
    table
}

/// Rows of a single project, and of a group with a thousand projects.
fn rows_of_project(results: &lists::Results) -> Vec<Row> {
    let kind = results.kind;
    let compared = results.project.iter().flat_map(|comparison| {
        // The latency of another process is beyond our control.
        let goal = if kind == EngineKind::Sqlite { Goal::AtLeast(0.5) } else { Goal::Open };
        rows_of_comparison(&format!("GET /projects/:id, {kind}"), comparison, goal)
    });
    let groups = results.groups.iter().flat_map(|(user, measured)| {
        let row = |percent, goal| Row {
            name: format!("GET /groups/:id, 1000 projects, {kind}, {user}, p{percent}"),
            value: measured.percentile(percent),
            unit: "ms",
            goal,
        };
        [row(50, Goal::Open), row(99, Goal::AtMost(50.0))]
    });
    compared.chain(groups).collect()
}

/// Rows of the webhook benchmark.
fn rows_of_hooks(results: &hooks::Results) -> Vec<Row> {
    let kind = results.kind;
    let mut rows = vec![];
    let mut row = |name: String, value, unit, goal| rows.push(Row { name, value, unit, goal });
    let beyond = results.many_hooks_push.percentile(50) - results.no_hooks_push.percentile(50);
    row(format!("push with {HOOKS} hooks, {kind}, beyond one without, p50"), beyond, "ms", Goal::AtMost(50.0));
    row("  push without hooks, p50".into(), results.no_hooks_push.percentile(50), "ms", Goal::Open);
    row("  from its response to the last delivery, p50".into(), results.all_delivered.percentile(50), "ms", Goal::Open);
    row(format!("webhook deliveries, {kind}"), results.rate, "/s", Goal::AtLeast(1000.0));
    row(
        format!("  beside a dead receiver with {PENDING_DELIVERIES} pending"),
        results.rate_beside_dead,
        "/s",
        Goal::Open,
    );
    let share = results.rate_beside_dead / results.rate;
    row("  share of the rate alone".into(), share, "", Goal::AtLeast(0.9));
    row(format!("from a push to its delivery, {kind}, p50"), results.delivery.percentile(50), "ms", Goal::Open);
    row("  p99".into(), results.delivery.percentile(99), "ms", Goal::Open);
    row("  beside a dead receiver, p50".into(), results.delivery_beside_dead.percentile(50), "ms", Goal::Open);
    row("  beside a dead receiver, p99".into(), results.delivery_beside_dead.percentile(99), "ms", Goal::Open);
    rows
}

/// Formats the processor time of requests, in microseconds and as multiples of that of the first one.
/// Formats the times and sizes of pages.
fn web_page_table(results: &web_pages::Results) -> String {
    let (kind, idle, peak) = (results.kind, results.idle_memory, results.peak_memory);
    let mut table = format!("\n{kind}, pages with 10,000 projects; memory {idle:.1} MB idle, {peak:.1} MB at most\n");
    let _ =
        writeln!(table, "{:<30} {:>10} {:>10} {:>8} {:>12}  verdict", "", "bytes", "P90, ms", "goal", "50 visitors");
    for row in &results.rows {
        let many = row.many.map(|many| format!("{many:.1}")).unwrap_or_default();
        let _ = writeln!(
            table,
            "{:<30} {:>10} {:>10.2} {:>8} {many:>12}  {}",
            row.name,
            row.size,
            row.one,
            format!("≤ {}", row.goal),
            verdict(Some(row.is_met()))
        );
    }
    table
}

fn processor_times(results: &processor_time::Results) -> String {
    let mut table = format!(
        "\n{:<38} {:<15} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}\n",
        format!("{}, processor time", results.kind),
        "caller",
        "projects",
        "before",
        "multiple",
        "now",
        "multiple",
        "goal"
    );
    let first = results.rows.first();
    let (base, base_before) = (first.map_or(f64::NAN, |row| row.now), first.and_then(|row| row.before));
    for row in &results.rows {
        let (kind, projects) =
            row.request.caller.map_or_else(Default::default, |one| (one.kind.to_string(), one.projects.to_string()));
        let before = row.before.zip(base_before);
        let (before, multiple) =
            before.map_or_else(Default::default, |(time, base)| (format!("{time:.0}"), format!("{:.1}", time / base)));
        let goal = row.request.goal.map(|goal| format!("≤ {goal}")).unwrap_or_default();
        let (name, now) = (&row.request.name, row.now);
        let verdict = verdict(row.request.goal.map(|goal| now / base <= goal));
        let line = format!(
            "{name:<38} {kind:<15} {projects:>8} {before:>8} {multiple:>8} {now:>8.0} {:>8.1} {goal:>6} {verdict}",
            now / base
        );
        let _ = writeln!(table, "{}", line.trim_end());
    }
    table
}

/// Rows of the benchmark of pushes.
fn rows_of_pushes(results: &pushes::Results) -> Vec<Row> {
    let (kind, now) = (results.kind, &results.now);
    let mut rows = vec![];
    let mut row = |name: String, value, unit, goal| rows.push(Row { name, value, unit, goal });
    let max_ratio = match kind {
        EngineKind::Sqlite => 0.6,
        EngineKind::Postgres => 0.7,
    };
    row(format!("small push, {kind}, p50"), now.push.percentile(50), "ms", Goal::Open);
    if let Some(before) = &results.before {
        let ratio = |now: &Measurement, before: &Measurement| now.percentile(50) / before.percentile(50);
        row("  in relation to the earlier version".into(), ratio(&now.push, &before.push), "", Goal::AtMost(max_ratio));
        let two_pushes = ratio(&now.two_pushes, &before.two_pushes);
        row("  two at once, in relation to the earlier version".into(), two_pushes, "", Goal::Open);
    }
    let two_pushes = now.two_pushes.percentile(50) / now.push.percentile(50);
    // The client and two git processes share the processors with the server.
    row("  two to different branches at once, in relation to one".into(), two_pushes, "", Goal::AtMost(1.2));
    row(format!("commit of a file over REST, {kind}, p50"), now.commit.percentile(50), "ms", Goal::AtMost(5.0));
    if let Some(before) = &results.before {
        let ratio = now.commit.percentile(50) / before.commit.percentile(50);
        row("  in relation to the earlier version".into(), ratio, "", Goal::Open);
    }
    row(format!("push of {MANY_REFS} refs, {kind}"), now.many_refs.percentile(50), "ms", Goal::AtMost(1000.0));
    row("  processor time".into(), now.many_refs_processor.as_secs_f64() * 1000.0, "ms", Goal::Open);
    row(
        format!("branches, page of 20 of {REFS}, {kind}, p99"),
        now.branch_page.percentile(99),
        "ms",
        Goal::AtMost(5.0),
    );
    row("  p50".into(), now.branch_page.percentile(50), "ms", Goal::Open);
    row(format!("ls-refs of {REFS} refs, {kind}, p50"), now.ref_list.percentile(50), "ms", Goal::AtMost(100.0));
    rows
}

/// Rows of the pipeline benchmark.
fn rows_of_pipelines(results: &pipelines::Results) -> Vec<Row> {
    let kind = results.kind;
    let mut rows = vec![];
    let mut row = |name: String, value, unit, goal| rows.push(Row { name, value, unit, goal });
    row(format!("planning a file of {JOBS} jobs, p50"), results.planning.percentile(50), "ms", Goal::AtMost(50.0));
    row("  p99".into(), results.planning.percentile(99), "ms", Goal::AtMost(50.0));
    row(format!("POST pipeline of {JOBS} jobs, {kind}"), results.creation.percentile(50), "ms", Goal::Open);
    row(
        format!("job request of one of {RUNNERS} concurrent runners, {kind}, p99"),
        results.assignment.percentile(99),
        "ms",
        Goal::AtMost(20.0),
    );
    row("  p50".into(), results.assignment.percentile(50), "ms", Goal::Open);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let expected_rate = (TRACING_JOBS * TRACE_BYTES_PER_SECOND) as f64 / f64::from(1 << 20);
    // The first and the last second are incomplete.
    row(
        format!("traces of {TRACING_JOBS} jobs, {kind}"),
        results.trace_rate,
        "MB/s",
        Goal::AtLeast(expected_rate * 0.95),
    );
    row("  one chunk, p50".into(), results.patches.percentile(50), "ms", Goal::Open);
    row("  one chunk, p99".into(), results.patches.percentile(99), "ms", Goal::Open);
    row("  processors used by the server".into(), results.cores, "", Goal::Open);
    rows
}

fn rows_of_comparison(name: &str, comparison: &Comparison, goal: Goal) -> Vec<Row> {
    let Comparison { floor, gable, ratios } = comparison;
    let ratio = gable.measured.rate() / floor.measured.rate();
    let spread = |pick: fn(f64, f64) -> f64| ratios.iter().copied().reduce(pick).unwrap_or(f64::NAN);
    let mut rows = vec![];
    let mut row = |name: &str, value, unit, goal| rows.push(Row { name: name.to_owned(), value, unit, goal });
    row(&format!("{name}, {READERS} clients, share of the floor"), ratio, "", goal);
    row("  worst round", spread(f64::min), "", Goal::Open);
    row("  best round", spread(f64::max), "", Goal::Open);
    row("  floor", floor.measured.rate(), "/s", Goal::Open);
    row("  floor p50", floor.measured.percentile(50), "ms", Goal::Open);
    row("  floor p90", floor.measured.percentile(90), "ms", Goal::Open);
    row("  floor p99", floor.measured.percentile(99), "ms", Goal::Open);
    row("  floor, processor time per response", floor.cpu_per_response(), "µs", Goal::Open);
    row("  gable", gable.measured.rate(), "/s", Goal::Open);
    row("  gable p50", gable.measured.percentile(50), "ms", Goal::Open);
    row("  gable p90", gable.measured.percentile(90), "ms", Goal::Open);
    row("  gable p99", gable.measured.percentile(99), "ms", Goal::Open);
    row("  gable, processor time per response", gable.cpu_per_response(), "µs", Goal::Open);
    rows
}

fn rows(results: &Results) -> Vec<Row> {
    let Results { write_single, write_concurrent, .. } = results;
    let mut rows = rows_of_comparison("GET /user", &results.user, Goal::AtLeast(0.5));
    let mut row = |name: &str, value, unit, goal| rows.push(Row { name: name.to_owned(), value, unit, goal });
    row(
        &format!("GET /users, 20 of {USERS}, 1 client, p99"),
        results.list_single.percentile(99),
        "ms",
        Goal::AtMost(5.0),
    );
    row(&format!("GET /users, 20 of {USERS}, {READERS} clients"), results.list_concurrent.rate(), "/s", Goal::Open);
    row("POST /users, 8 clients", results.created_users.rate(), "/s", Goal::Open);
    let factor = write_concurrent.rate() / write_single.rate();
    row(&format!("POST /user/emails, {WRITERS} clients over 1, this disk"), factor, "times", Goal::AtLeast(10.0));
    row("  1 client", write_single.rate(), "/s", Goal::Open);
    row("  1 client p50", write_single.percentile(50), "ms", Goal::Open);
    row("  1 client p99", write_single.percentile(99), "ms", Goal::Open);
    row(&format!("  {WRITERS} clients"), write_concurrent.rate(), "/s", Goal::Open);
    row(&format!("  {WRITERS} clients p50"), write_concurrent.percentile(50), "ms", Goal::Open);
    row(&format!("  {WRITERS} clients p99"), write_concurrent.percentile(99), "ms", Goal::Open);
    row("  the disk alone, pages written and synced", results.disk.rate(), "/s", Goal::Open);
    row("  the disk alone p50", results.disk.percentile(50), "ms", Goal::Open);
    row("  the disk alone p99", results.disk.percentile(99), "ms", Goal::Open);
    let factor = results.slow_disk_concurrent.rate() / results.slow_disk_single.rate();
    row(&format!("POST /user/emails, {WRITERS} over 1, syncs 2 ms slower"), factor, "times", Goal::AtLeast(10.0));
    row("  1 client", results.slow_disk_single.rate(), "/s", Goal::Open);
    row(&format!("  {WRITERS} clients"), results.slow_disk_concurrent.rate(), "/s", Goal::Open);
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
