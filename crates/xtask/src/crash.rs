//! `cargo xtask crash`: crashes the server many times at random points in several ways, and checks that no acknowledged
//! write is lost.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    postgres::Postgres,
    steps::{self, Report, TestCounts},
    system::{self, POSTGRES, SSH},
    workspace::{self, cargo},
};

/// One way to crash the server during one kind of writes.
struct Campaign {
    /// The name, also in the output of the test.
    name: &'static str,
    /// The full path of the test.
    test: &'static str,
    /// The share of a thousand crashes.
    share: u32,
    /// A description of the checks after each crash and at the end.
    checked: &'static str,
}

/// All campaigns. The shares sum up to a thousand, which take about half an hour on two cores: campaigns that find most
/// get most, and those that wait for deliveries or jobs at the end get less.
const CAMPAIGNS: [Campaign; 14] = [
    Campaign {
        name: "crash",
        test: "crash::accounts::nothing_acknowledged_is_lost_when_killed_during_writes",
        share: 150,
        checked: "email addresses and usernames: no change lost or half done; integrity and foreign keys of the database",
    },
    Campaign {
        name: "crash_projects",
        test: "crash::projects::no_project_is_incomplete_and_no_file_is_orphaned_when_killed_during_writes",
        share: 120,
        checked: "projects created, moved and removed completely or not at all; uploads byte for byte; counters; no orphaned file",
    },
    Campaign {
        name: "crash_pushes",
        test: "crash::pushes::no_push_is_lost_or_recorded_twice_when_killed_during_writes",
        share: 160,
        checked: "refs as acknowledged; git fsck --strict --full; one event and one pipeline per change",
    },
    Campaign {
        name: "crash_hooks",
        test: "crash::webhooks::every_event_is_delivered_when_killed_during_writes",
        share: 80,
        checked: "every event is delivered to each hook, always with the same UUID and payload",
    },
    Campaign {
        name: "crash_jobs",
        test: "crash::jobs::no_job_is_lost_and_none_succeeds_twice_when_killed_during_writes",
        share: 80,
        checked: "each commit is built once; each job succeeds once; traces byte for byte",
    },
    Campaign {
        name: "crash_power/writes",
        test: "crash::power_cuts::no_acknowledged_write_is_lost_to_power_cuts",
        share: 80,
        checked: "as crash, after a power cut",
    },
    Campaign {
        name: "crash_power/projects",
        test: "crash::power_cuts::no_project_and_no_file_is_lost_to_power_cuts",
        share: 70,
        checked: "as crash_projects, after a power cut",
    },
    Campaign {
        name: "crash_power/pushes",
        test: "crash::power_cuts::no_push_is_lost_to_power_cuts",
        share: 100,
        checked: "as crash_pushes, after a power cut",
    },
    Campaign {
        name: "crash_power/hooks",
        test: "crash::power_cuts::no_webhook_delivery_is_lost_to_power_cuts",
        share: 40,
        checked: "as crash_hooks, after a power cut",
    },
    Campaign {
        name: "crash_power/jobs",
        test: "crash::power_cuts::no_job_is_lost_to_power_cuts",
        share: 40,
        checked: "as crash_jobs, after a power cut",
    },
    Campaign {
        name: "crash_full/projects",
        test: "crash::disk_full_crashes::no_project_and_no_file_is_lost_to_a_full_disk",
        share: 25,
        checked: "as crash_projects, with a disk that fills up before the kill",
    },
    Campaign {
        name: "crash_full/pushes",
        test: "crash::disk_full_crashes::no_push_is_lost_to_a_full_disk",
        share: 25,
        checked: "as crash_pushes, with a disk that fills up before the kill",
    },
    Campaign {
        name: "crash_full/hooks",
        test: "crash::disk_full_crashes::no_webhook_delivery_is_lost_to_a_full_disk",
        share: 15,
        checked: "as crash_hooks, with a disk that fills up before the kill",
    },
    Campaign {
        name: "crash_full/jobs",
        test: "crash::disk_full_crashes::no_job_is_lost_to_a_full_disk",
        share: 15,
        checked: "as crash_jobs, with a disk that fills up before the kill",
    },
];

/// The durability models of a power cut; the default is `strict`.
const MODELS: [&str; 3] = ["strict", "ordered", "journaled"];

/// The options of `crash`.
#[derive(Debug, Default)]
pub(crate) struct CrashOptions {
    runs: u32,
    seed: Option<u64>,
    only: Option<String>,
    model: Option<String>,
    report: Option<PathBuf>,
    sqlite: bool,
    postgres: bool,
}

impl CrashOptions {
    /// Reads the flags.
    pub(crate) fn read(flags: &[String]) -> Result<Self> {
        let mut options = Self { runs: 300, ..Self::default() };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let mut value = || flags.next().with_context(|| format!("{flag} requires a value"));
            let number = |text: &String| text.parse::<u64>().map_err(|_| anyhow!("{text} is not a number"));
            match flag.as_str() {
                "--runs" => options.runs = u32::try_from(number(value()?)?).map_err(|_| anyhow!("too many runs"))?,
                "--seed" => options.seed = Some(number(value()?)?),
                "--only" => options.only = Some(value()?.clone()),
                "--model" => options.model = Some(value()?.clone()),
                "--report" => options.report = Some(value()?.into()),
                "--sqlite" => options.sqlite = true,
                "--postgres" => options.postgres = true,
                other => {
                    let known = "--runs, --seed, --only, --model, --report, --sqlite and --postgres";
                    bail!("unknown flag {other}; crash accepts {known}");
                }
            }
        }
        if !options.sqlite && !options.postgres {
            options.sqlite = true;
        }
        if let Some(model) = options.model.as_ref().filter(|model| !MODELS.contains(&model.as_str())) {
            bail!("unknown model {model}; choose one of {}", MODELS.join(", "));
        }
        if options.shares().is_empty() {
            let names: Vec<&str> = CAMPAIGNS.iter().map(|campaign| campaign.name).collect();
            bail!("unknown campaign; choose one of these names, or the part before the slash: {}", names.join(", "));
        }
        Ok(options)
    }

    /// Returns the selected campaigns with the number of crashes of each: at least one, and the number of runs in total.
    fn shares(&self) -> Vec<(&'static Campaign, u32)> {
        let is_selected = |campaign: &&Campaign| match &self.only {
            // `crash` is one campaign; `crash_power` selects all that start with it.
            Some(only) => campaign.name == only || campaign.name.split('/').next() == Some(only),
            None => true,
        };
        let selected: Vec<&Campaign> = CAMPAIGNS.iter().filter(is_selected).collect();
        let total_share: u32 = selected.iter().map(|campaign| campaign.share).sum();
        let mut rest = (self.runs, total_share);
        let mut shares = Vec::new();
        for campaign in selected {
            // A share of the rest, so that rounding loses nothing.
            let kills = u64::from(rest.0) * u64::from(campaign.share) / u64::from(rest.1.max(1));
            let kills = u32::try_from(kills).unwrap_or(rest.0).max(1);
            rest = (rest.0.saturating_sub(kills), rest.1 - campaign.share);
            shares.push((campaign, kills));
        }
        shares
    }
}

/// The result of a campaign.
struct CampaignResult {
    campaign: &'static Campaign,
    engine: &'static str,
    kills: u32,
    succeeded: bool,
    /// The values of its summary line; empty if it was not printed.
    summary: Vec<(String, String)>,
}

impl CampaignResult {
    fn value(&self, name: &str) -> &str {
        self.summary.iter().find(|(key, _)| key == name).map_or("?", |(_, value)| value)
    }

    fn verdict(&self) -> &'static str {
        if self.succeeded { "held" } else { "FAILED" }
    }
}

/// Runs the campaigns and prints a table, including the seeds that repeat them.
pub(crate) fn run(options: CrashOptions) -> Result<()> {
    let mut report = Report::default();
    let mut results = Vec::new();
    system::install_missing(&[SSH])?;
    if options.sqlite {
        results.extend(run_all(&options, &mut report, "SQLite", None));
    }
    if options.postgres {
        system::install_missing(&[POSTGRES])?;
        let postgres = Postgres::start()?;
        results.extend(run_all(&options, &mut report, "PostgreSQL", Some(&postgres.url())));
    }
    println!("\n{}", table(&results));
    if let Some(path) = &options.report {
        let written = fs::write(path, report_page(&results));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    report.finish()
}

fn run_all(
    options: &CrashOptions,
    report: &mut Report,
    engine: &'static str,
    database: Option<&str>,
) -> Vec<CampaignResult> {
    let mut results = Vec::new();
    for (campaign, kills) in options.shares() {
        report.step(&format!("{}: {kills} kills on {engine}", campaign.name), || {
            let tests = ["test", "-p", "server", "--test", "it", "--", "--exact", campaign.test, "--nocapture"];
            let mut tests = cargo(&tests);
            tests.env("GABLE_CRASH_RUNS", kills.to_string()).env_remove("GABLE_TEST_DATABASE");
            if let Some(seed) = options.seed {
                tests.env("GABLE_CRASH_SEED", seed.to_string());
            }
            if let Some(model) = &options.model {
                tests.env("GABLE_CRASH_MODEL", model);
            }
            if let Some(url) = database {
                tests.env("GABLE_TEST_DATABASE", url);
            }
            let (succeeded, summary) = run_campaign(&mut tests)?;
            // Cargo also succeeds if the test does not exist.
            let succeeded = succeeded && !summary.is_empty();
            results.push(CampaignResult { campaign, engine, kills, succeeded, summary });
            Ok(TestCounts { passed: succeeded.into(), failed: (!succeeded).into() })
        });
    }
    results
}

/// Runs a campaign and prints its output; returns whether it succeeded, and its summary.
fn run_campaign(tests: &mut Command) -> Result<(bool, Vec<(String, String)>)> {
    let context = "cannot run cargo";
    let mut child = tests.stderr(Stdio::piped()).spawn().context(context)?;
    let mut summary = Vec::new();
    if let Some(output) = child.stderr.take() {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            summary = parse_summary(&line).unwrap_or(summary);
        }
    }
    Ok((child.wait().context(context)?.success(), summary))
}

/// Parses the values of a line such as `campaign crash_jobs: kills=6 acknowledged=120 seed=7`.
fn parse_summary(line: &str) -> Option<Vec<(String, String)>> {
    let (_, words) = line.strip_prefix("campaign ")?.split_once(": ")?;
    let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    words.split_whitespace().map(pair).collect()
}

/// Formats the results as a table.
fn table(results: &[CampaignResult]) -> String {
    let mut text = String::from(
        "| Campaign | Engine | Kills | Acknowledged | Lost and torn writes | Lost names | Interrupted starts | Refused calls | Seed | Seconds | Verdict |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for result in results {
        let CampaignResult { campaign, engine, kills, .. } = result;
        let (acknowledged, seed, seconds) =
            (result.value("acknowledged"), result.value("seed"), result.value("seconds"));
        let (lost, torn, names) =
            (result.value("lost_writes"), result.value("torn_writes"), result.value("lost_names"));
        let (starts, refused) = (result.value("cut_starts"), result.value("no_room"));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {engine} | {kills} | {acknowledged} | {lost} + {torn} | {names} | {starts} | {refused} | {seed} | \
             {seconds} | {} |",
            campaign.name,
            result.verdict()
        );
    }
    let kills: u32 = results.iter().map(|result| result.kills).sum();
    let acknowledged: u64 = results.iter().filter_map(|result| result.value("acknowledged").parse::<u64>().ok()).sum();
    let failed = results.iter().filter(|result| !result.succeeded).count();
    let _ = writeln!(text, "\n{kills} kills, {acknowledged} acknowledged operations, {failed} failed campaigns.");
    text
}

/// Formats the report.
fn report_page(results: &[CampaignResult]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let git = steps::read(Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(workspace::root()));
    let commit = git.map_or_else(|_| String::from("unknown"), |commit| commit.trim().to_owned());
    let mut text = format!(
        "# Crash report\n\n\
         Created by `cargo xtask crash` on {}, with Gable {} at commit {commit}. [crash-testing.md](crash-testing.md) explains \
         the campaigns and how to repeat one from its seed.\n\n{}\n## Checks\n\n\
         After each crash the server is started again without any repair, and these are checked:\n\n",
        date(now),
        env!("CARGO_PKG_VERSION"),
        table(results)
    );
    let mut listed = Vec::new();
    for result in results {
        if !listed.contains(&result.campaign.name) {
            listed.push(result.campaign.name);
            let _ = writeln!(text, "- **{}**: {}.", result.campaign.name, result.campaign.checked);
        }
    }
    text
}

/// Formats the UTC date of a Unix time.
fn date(seconds: u64) -> String {
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

    fn options(flags: &[&str]) -> Result<CrashOptions> {
        CrashOptions::read(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_shares_add_up_and_every_campaign_gets_a_crash() {
        assert_eq!(CAMPAIGNS.iter().map(|campaign| campaign.share).sum::<u32>(), 1_000);
        for runs in [200, 999, 1_000, 12_345] {
            let shares = options(&["--runs", &runs.to_string()]).expect("valid flags").shares();
            assert_eq!(shares.iter().map(|(_, kills)| kills).sum::<u32>(), runs);
            assert!(shares.len() == CAMPAIGNS.len() && shares.iter().all(|(_, kills)| *kills > 0));
        }
    }

    #[test]
    fn one_campaign_or_a_group_can_be_selected() {
        let names = |only: &str| -> Vec<&str> {
            let shares = options(&["--only", only]).expect("valid flags").shares();
            shares.iter().map(|(campaign, _)| campaign.name).collect()
        };
        assert_eq!(names("crash"), ["crash"]);
        assert_eq!(names("crash_power/pushes"), ["crash_power/pushes"]);
        assert_eq!(names("crash_full").len(), 4);
        let refused = options(&["--only", "nothing"]).expect_err("no such campaign").to_string();
        assert!(refused.contains("crash_power/jobs"), "{refused}");
        assert!(
            options(&["--runs", "many"]).is_err() && options(&["--report"]).is_err() && options(&["--loud"]).is_err()
        );
        assert!(options(&["--model", "strict"]).is_ok() && options(&["--model", "kind"]).is_err());
    }

    #[test]
    fn the_summary_line_of_a_campaign_is_parsed() {
        let summary =
            parse_summary("campaign crash_jobs: kills=6 acknowledged=120 seed=7 seconds=9").expect("a summary");
        let result = CampaignResult { campaign: &CAMPAIGNS[4], engine: "SQLite", kills: 6, succeeded: true, summary };
        assert!(table(&[result]).contains("| crash_jobs | SQLite | 6 | 120 | ? + ? | ? | ? | ? | 7 | 9 | held |"));
        assert_eq!(parse_summary("crash_jobs: GABLE_CRASH_SEED=7"), None);
    }

    #[test]
    fn the_test_of_every_campaign_exists() {
        for Campaign { name, test, .. } in &CAMPAIGNS {
            assert!(workspace::has_integration_test(test), "{name}: no test {test}");
        }
    }

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
            (1_794_700_800, "2026-11-15"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }
}
