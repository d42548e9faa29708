//! `cargo xtask crash`: the server is brought to its end at random instants, many times and in several ways, and nothing
//! that was acknowledged may be lost.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    Outcome,
    machine::{self, POSTGRES, SSH},
    postgres::Postgres,
    steps::{self, Report, Tally},
    workspace::{self, cargo},
};

/// One way to hit the server while it does one kind of work.
struct Campaign {
    /// As it calls itself.
    name: &'static str,
    /// The test that does it.
    test: &'static str,
    /// Its share of a thousand kills.
    share: u32,
    /// What is looked at after each kill and at the end.
    checked: &'static str,
}

/// All campaigns. The shares sum up to a thousand, which take about half an hour on two cores: what finds most gets most,
/// and what waits for messages or jobs at its end gets less.
const CAMPAIGNS: [Campaign; 14] = [
    Campaign {
        name: "crash",
        test: "crash::nothing_acknowledged_is_lost_to_kills_in_a_storm",
        share: 150,
        checked: "addresses and renames: none lost, none half done; integrity and foreign keys of the database",
    },
    Campaign {
        name: "crash_projects",
        test: "crash_projects::no_half_project_and_no_orphan_file_after_kills_in_a_storm",
        share: 120,
        checked: "projects made, moved, removed: all or nothing; uploads byte for byte; counters; no file without a row",
    },
    Campaign {
        name: "crash_pushes",
        test: "crash_pushes::no_push_is_lost_and_none_is_told_twice_after_kills_in_a_storm",
        share: 160,
        checked: "refs as acknowledged; git fsck --strict --full; one event and one pipeline for each change",
    },
    Campaign {
        name: "crash_hooks",
        test: "crash_hooks::whatever_happened_is_told_after_kills_in_a_storm",
        share: 80,
        checked: "all that happened is told to each hook, under one number, in the same words",
    },
    Campaign {
        name: "crash_jobs",
        test: "crash_jobs::no_job_is_lost_and_none_succeeds_twice_after_kills_in_a_storm",
        share: 80,
        checked: "each commit built once; each job done once; traces byte for byte",
    },
    Campaign {
        name: "crash_power/writes",
        test: "crash_power::no_acknowledged_write_is_lost_to_power_cuts",
        share: 80,
        checked: "as crash, after a loss of power",
    },
    Campaign {
        name: "crash_power/projects",
        test: "crash_power::no_project_and_no_file_is_lost_to_power_cuts",
        share: 70,
        checked: "as crash_projects, after a loss of power",
    },
    Campaign {
        name: "crash_power/pushes",
        test: "crash_power::no_push_is_lost_to_power_cuts",
        share: 100,
        checked: "as crash_pushes, after a loss of power",
    },
    Campaign {
        name: "crash_power/hooks",
        test: "crash_power::no_message_to_a_hook_is_lost_to_power_cuts",
        share: 40,
        checked: "as crash_hooks, after a loss of power",
    },
    Campaign {
        name: "crash_power/jobs",
        test: "crash_power::no_job_is_lost_to_power_cuts",
        share: 40,
        checked: "as crash_jobs, after a loss of power",
    },
    Campaign {
        name: "crash_full/projects",
        test: "crash_full::no_project_and_no_file_is_lost_to_a_full_disk",
        share: 25,
        checked: "as crash_projects, with a disk that fills up before the kill",
    },
    Campaign {
        name: "crash_full/pushes",
        test: "crash_full::no_push_is_lost_to_a_full_disk",
        share: 25,
        checked: "as crash_pushes, with a disk that fills up before the kill",
    },
    Campaign {
        name: "crash_full/hooks",
        test: "crash_full::no_message_to_a_hook_is_lost_to_a_full_disk",
        share: 15,
        checked: "as crash_hooks, with a disk that fills up before the kill",
    },
    Campaign {
        name: "crash_full/jobs",
        test: "crash_full::no_job_is_lost_to_a_full_disk",
        share: 15,
        checked: "as crash_jobs, with a disk that fills up before the kill",
    },
];

/// What a sync promises in a loss of power; the middle one unless told otherwise.
const MODELS: [&str; 3] = ["strict", "ordered", "journaled"];

/// How often, in which ways and where.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    runs: u32,
    seed: Option<u64>,
    only: Option<String>,
    model: Option<String>,
    report: Option<PathBuf>,
    sqlite: bool,
    postgres: bool,
}

impl Plan {
    /// Reads the flags.
    pub(crate) fn read(flags: &[String]) -> Outcome<Self> {
        let mut plan = Self { runs: 300, ..Self::default() };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let mut word = || flags.next().ok_or_else(|| format!("{flag} needs a word after it"));
            let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{text} is not a number"));
            match flag.as_str() {
                "--runs" => plan.runs = u32::try_from(number(word()?)?).map_err(|_| "that many runs never end")?,
                "--seed" => plan.seed = Some(number(word()?)?),
                "--only" => plan.only = Some(word()?.clone()),
                "--model" => plan.model = Some(word()?.clone()),
                "--report" => plan.report = Some(word()?.into()),
                "--sqlite" => plan.sqlite = true,
                "--postgres" => plan.postgres = true,
                other => {
                    let known = "--runs, --seed, --only, --model, --report, --sqlite and --postgres";
                    return Err(format!("crash knows {known}, not {other}"));
                }
            }
        }
        if !plan.sqlite && !plan.postgres {
            plan.sqlite = true;
        }
        if let Some(model) = plan.model.as_ref().filter(|model| !MODELS.contains(&model.as_str())) {
            return Err(format!("--model takes one of {}, not {model}", MODELS.join(", ")));
        }
        if plan.shares().is_empty() {
            let names: Vec<&str> = CAMPAIGNS.iter().map(|campaign| campaign.name).collect();
            return Err(format!("--only takes the name of a campaign, or how it begins: {}", names.join(", ")));
        }
        Ok(plan)
    }

    /// The campaigns that were asked for, and how many kills each gets: all of them together as many as were asked for,
    /// but each at least one.
    fn shares(&self) -> Vec<(&'static Campaign, u32)> {
        let is_meant = |campaign: &&Campaign| match &self.only {
            // `crash` alone is one of them; `crash_power` is all that begin so.
            Some(only) => campaign.name == only || campaign.name.split('/').next() == Some(only),
            None => true,
        };
        let chosen: Vec<&Campaign> = CAMPAIGNS.iter().filter(is_meant).collect();
        let whole: u32 = chosen.iter().map(|campaign| campaign.share).sum();
        let mut left = (self.runs, whole);
        let mut shares = Vec::new();
        for campaign in chosen {
            // Of what is left, so that nothing is lost in rounding.
            let kills = u64::from(left.0) * u64::from(campaign.share) / u64::from(left.1.max(1));
            let kills = u32::try_from(kills).unwrap_or(left.0).max(1);
            left = (left.0.saturating_sub(kills), left.1 - campaign.share);
            shares.push((campaign, kills));
        }
        shares
    }
}

/// How a campaign went.
struct Row {
    campaign: &'static Campaign,
    engine: &'static str,
    kills: u32,
    went_well: bool,
    /// What it said about itself at its end, word by word; nothing if it did not get there.
    told: Vec<(String, String)>,
}

impl Row {
    fn word(&self, name: &str) -> &str {
        self.told.iter().find(|(key, _)| key == name).map_or("?", |(_, value)| value)
    }

    fn verdict(&self) -> &'static str {
        if self.went_well { "held" } else { "FAILED" }
    }
}

/// Runs the campaigns and prints the sums; the seeds that repeat them stand there, too.
pub(crate) fn run(plan: Plan) -> Outcome {
    let mut report = Report::default();
    let mut rows = Vec::new();
    machine::provide(&[SSH])?;
    if plan.sqlite {
        rows.extend(run_all(&plan, &mut report, "SQLite", None));
    }
    if plan.postgres {
        machine::provide(&[POSTGRES])?;
        let postgres = Postgres::start()?;
        rows.extend(run_all(&plan, &mut report, "PostgreSQL", Some(&postgres.url())));
    }
    println!("\n{}", table(&rows));
    if let Some(path) = &plan.report {
        let written = fs::write(path, page(&rows));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    report.finish()
}

fn run_all(plan: &Plan, report: &mut Report, engine: &'static str, database: Option<&str>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (campaign, kills) in plan.shares() {
        report.step(&format!("{}: {kills} kills on {engine}", campaign.name), || {
            let tests = ["test", "-p", "server", "--test", "it", "--", "--exact", campaign.test, "--nocapture"];
            let mut tests = cargo(&tests);
            tests.env("GABLE_CRASH_RUNS", kills.to_string()).env_remove("GABLE_TEST_DATABASE");
            if let Some(seed) = plan.seed {
                tests.env("GABLE_CRASH_SEED", seed.to_string());
            }
            if let Some(model) = &plan.model {
                tests.env("GABLE_CRASH_MODEL", model);
            }
            if let Some(url) = database {
                tests.env("GABLE_TEST_DATABASE", url);
            }
            let (went_well, told) = hear(&mut tests)?;
            // A test that is not there any more succeeds at nothing.
            let went_well = went_well && !told.is_empty();
            rows.push(Row { campaign, engine, kills, went_well, told });
            Ok(Tally { passed: went_well.into(), failed: (!went_well).into() })
        });
    }
    rows
}

/// Runs a campaign, shows what it says, and keeps its last line.
fn hear(tests: &mut Command) -> Outcome<(bool, Vec<(String, String)>)> {
    let failed = |error| format!("cannot run cargo: {error}");
    let mut child = tests.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut told = Vec::new();
    if let Some(output) = child.stderr.take() {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            told = words(&line).unwrap_or(told);
        }
    }
    Ok((child.wait().map_err(failed)?.success(), told))
}

/// The numbers in a line such as `campaign crash_jobs: kills=6 acknowledged=120 seed=7`.
fn words(line: &str) -> Option<Vec<(String, String)>> {
    let (_, words) = line.strip_prefix("campaign ")?.split_once(": ")?;
    let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    words.split_whitespace().map(pair).collect()
}

/// The campaigns, one a line.
fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| Campaign | Engine | Kills | Acknowledged | Lost and torn writes | Lost names | Starts cut short | Calls without room | Seed | Seconds | Verdict |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for row in rows {
        let Row { campaign, engine, kills, .. } = row;
        let (acknowledged, seed, seconds) = (row.word("acknowledged"), row.word("seed"), row.word("seconds"));
        let (lost, torn, names) = (row.word("lost_writes"), row.word("torn_writes"), row.word("lost_names"));
        let (starts, room) = (row.word("cut_starts"), row.word("no_room"));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {engine} | {kills} | {acknowledged} | {lost} + {torn} | {names} | {starts} | {room} | {seed} | \
             {seconds} | {} |",
            campaign.name,
            row.verdict()
        );
    }
    let kills: u32 = rows.iter().map(|row| row.kills).sum();
    let acknowledged: u64 = rows.iter().filter_map(|row| row.word("acknowledged").parse::<u64>().ok()).sum();
    let failed = rows.iter().filter(|row| !row.went_well).count();
    let _ = writeln!(text, "\n{kills} kills, {acknowledged} acknowledged operations, {failed} campaigns that failed.");
    text
}

/// The page for whoever wants to know.
fn page(rows: &[Row]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let git = steps::read(Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(workspace::root()));
    let commit = git.map_or_else(|_| String::from("unknown"), |commit| commit.trim().to_owned());
    let mut text = format!(
        "# Crash report\n\n\
         Made by `cargo xtask crash` on {}, with Gable {} at commit {commit}. What is done to the server, and how to repeat \
         a line from its seed, is told in [crash-testing.md](crash-testing.md).\n\n{}\n## What was checked\n\n\
         After each kill the server is started on what is left, by itself and without any repair, and then:\n\n",
        date(now),
        env!("CARGO_PKG_VERSION"),
        table(rows)
    );
    let mut seen = Vec::new();
    for row in rows {
        if !seen.contains(&row.campaign.name) {
            seen.push(row.campaign.name);
            let _ = writeln!(text, "- **{}**: {}.", row.campaign.name, row.campaign.checked);
        }
    }
    text
}

/// The day of a time in seconds, in UTC.
fn date(seconds: u64) -> String {
    // Counted from 1 March of the year 0, so that a leap day is the last day of its year.
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

    fn plan(flags: &[&str]) -> Outcome<Plan> {
        Plan::read(&flags.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn all_kills_are_given_out_and_no_campaign_goes_without() {
        assert_eq!(CAMPAIGNS.iter().map(|campaign| campaign.share).sum::<u32>(), 1_000);
        for runs in [200, 999, 1_000, 12_345] {
            let shares = plan(&["--runs", &runs.to_string()]).expect("a plan").shares();
            assert_eq!(shares.iter().map(|(_, kills)| kills).sum::<u32>(), runs);
            assert!(shares.len() == CAMPAIGNS.len() && shares.iter().all(|(_, kills)| *kills > 0));
        }
    }

    #[test]
    fn one_campaign_or_a_family_can_be_had_alone() {
        let names = |only: &str| -> Vec<&str> {
            let shares = plan(&["--only", only]).expect("a plan").shares();
            shares.iter().map(|(campaign, _)| campaign.name).collect()
        };
        assert_eq!(names("crash"), ["crash"]);
        assert_eq!(names("crash_power/pushes"), ["crash_power/pushes"]);
        assert_eq!(names("crash_full").len(), 4);
        let refused = plan(&["--only", "nothing"]).expect_err("no such campaign");
        assert!(refused.contains("crash_power/jobs"), "{refused}");
        assert!(plan(&["--runs", "many"]).is_err() && plan(&["--report"]).is_err() && plan(&["--loud"]).is_err());
        assert!(plan(&["--model", "strict"]).is_ok() && plan(&["--model", "kind"]).is_err());
    }

    #[test]
    fn what_a_campaign_tells_is_heard() {
        let told = words("campaign crash_jobs: kills=6 acknowledged=120 seed=7 seconds=9").expect("a summary");
        let row = Row { campaign: &CAMPAIGNS[4], engine: "SQLite", kills: 6, went_well: true, told };
        assert!(table(&[row]).contains("| crash_jobs | SQLite | 6 | 120 | ? + ? | ? | ? | ? | 7 | 9 | held |"));
        assert_eq!(words("crash_jobs: GABLE_CRASH_SEED=7"), None);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
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
