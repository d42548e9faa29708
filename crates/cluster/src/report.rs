//! The report as Markdown.

use std::{
    collections::BTreeSet,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{campaign::CampaignResult, faults::FAULTS, ledger::KINDS, options::Options};

/// Returns the table of results.
pub(crate) fn table(results: &[CampaignResult]) -> String {
    let mut text = format!(
        "| Fault | Rounds | Acknowledged: {} | Probes | Lost | Events twice / missing | Webhooks missing (repeated) | Jobs twice / not ended | \
         Longest time without a write: median / max | Failed probes | Errors: no response / 5xx / other | Store requests affected | Seconds | Verdict |\n\
         |---|---:|---|---:|---:|---|---|---|---|---:|---|---:|---:|---|\n",
        KINDS.join(" / ")
    );
    for result in results {
        if let Some(reason) = &result.skipped {
            text += &format!("| {} | 0 | skipped: {reason} | | | | | | | | | | | |\n", result.name());
            continue;
        }
        let counts = result.acknowledged.map(|count| count.to_string()).join(" / ");
        let found = &result.findings;
        let gaps: Vec<Duration> = result.gaps.iter().map(|gap| gap.longest).collect();
        let failed: u64 = result.gaps.iter().map(|gap| gap.failed).sum();
        text += &format!(
            "| {} | {} | {counts} | {} | {} | {} / {} | {} ({}) | {} / {} | {:.1} s / {:.1} s | {failed} | {} / {} / {} | {} | {} | {} |\n",
            result.name(),
            result.rounds,
            result.probes,
            found.losses.len(),
            found.duplicated_events.len(),
            found.missing_events.len(),
            found.missing_webhooks.len(),
            found.repeated_webhooks,
            found.repeated_jobs.len(),
            found.unfinished_jobs.len(),
            median(&gaps).as_secs_f64(),
            gaps.iter().max().copied().unwrap_or_default().as_secs_f64(),
            result.errors.connection,
            result.errors.server,
            result.errors.other,
            result.store_requests,
            result.seconds,
            if result.held() { "held" } else { "FAILED" },
        );
    }
    text
}

/// Returns the whole page.
pub(crate) fn page(options: &Options, results: &[CampaignResult]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seeds = results.iter().flat_map(|result| &result.seeds).collect::<BTreeSet<_>>();
    let seeds = seeds.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let rounds: usize = results.iter().map(|result| result.rounds).sum();
    let writes: u64 = results.iter().map(|result| result.acknowledged.iter().sum::<u64>() + result.probes).sum();
    let mut text = format!(
        "# Cluster report\n\nCreated by `cargo xtask cluster` on {}, with seed {seeds}. [cluster.md](cluster.md#testing) explains the \
         set-up and the checks.\n\n## Machine and versions\n\n{}\n## Results\n\n{}\n{rounds} rounds, {writes} acknowledged writes.\n\n\
         ## Faults\n\n",
        date(now),
        versions(options),
        table(results)
    );
    for (fault, name, description) in FAULTS {
        if results.iter().any(|result| result.faults.contains(&fault)) {
            text += &format!("- **{name}**: {description}.\n");
        }
    }
    let problems: Vec<String> = results
        .iter()
        .flat_map(|result| {
            let all = result.findings.problems().chain(&result.violations);
            all.map(|text| format!("- {}: {text}\n", result.name())).take(10)
        })
        .collect();
    if !problems.is_empty() {
        text += &format!("\n## Problems\n\nThe first ones of each fault:\n\n{}", problems.concat());
    }
    text
}

fn versions(options: &Options) -> String {
    let first_line = |program: &std::path::Path, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().map(ToOwned::to_owned)
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() >> 20;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut text = format!("- {processors} processors, {memory} GiB of memory, Linux {}\n", kernel.trim());
    let store = options.garage.as_deref().or(options.test_bucket.as_deref());
    let mut programs = vec![(options.gable.as_path(), "--version")];
    if options.garage.is_some() {
        programs.extend(store.map(|store| (store, "--version")));
    }
    for (name, argument) in [
        ("psql", "--version"),
        ("patroni", "--version"),
        ("etcd", "--version"),
        ("haproxy", "-v"),
        ("git", "--version"),
    ] {
        programs.push((std::path::Path::new(name), argument));
    }
    for (program, argument) in programs {
        if let Some(line) = first_line(program, argument) {
            text += &format!("- {line}\n");
        }
    }
    text
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Formats the UTC date of a Unix time.
pub(crate) fn date(seconds: u64) -> String {
    // Years start on 1 March, so that a leap day is the last day of its year.
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months + 2) / 5 + 1;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_times() {
        let check = |seconds: &[u64], expected| {
            let times: Vec<_> = seconds.iter().copied().map(Duration::from_secs).collect();
            assert_eq!(median(&times), Duration::from_secs(expected));
        };
        check(&[], 0);
        check(&[5], 5);
        check(&[9, 1], 1);
        check(&[9, 1, 5], 5);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_000_000), "2026-11-18");
    }
}
