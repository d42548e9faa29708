//! `cargo xtask crash`: the server is killed at random instants, many times, and nothing may be lost.

use crate::{
    Outcome,
    machine::{self, POSTGRES, SSH},
    postgres::Postgres,
    steps::{self, Report},
    workspace::cargo,
};

/// How often and where.
pub(crate) struct Campaign {
    runs: u32,
    seed: Option<u64>,
    sqlite: bool,
    postgres: bool,
}

impl Campaign {
    /// Reads the flags.
    pub(crate) fn read(flags: &[String]) -> Outcome<Self> {
        let mut campaign = Self { runs: 300, seed: None, sqlite: false, postgres: false };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let mut number = || {
                let text = flags.next().ok_or_else(|| format!("{flag} needs a number"))?;
                text.parse::<u64>().map_err(|_| format!("{text} is not a number"))
            };
            match flag.as_str() {
                "--runs" => campaign.runs = u32::try_from(number()?).map_err(|_| "that many runs never end")?,
                "--seed" => campaign.seed = Some(number()?),
                "--sqlite" => campaign.sqlite = true,
                "--postgres" => campaign.postgres = true,
                other => return Err(format!("crash knows --runs, --seed, --sqlite and --postgres, not {other}")),
            }
        }
        if !campaign.sqlite && !campaign.postgres {
            campaign.sqlite = true;
        }
        Ok(campaign)
    }
}

/// Runs the campaign and prints the sum; the seed that repeats it stands in the output.
pub(crate) fn run(campaign: Campaign) -> Outcome {
    let mut report = Report::default();
    let Campaign { runs, seed, sqlite, postgres } = campaign;
    machine::provide(&[SSH])?;
    let tests = || {
        let mut tests = cargo(&[
            "test",
            "-p",
            "server",
            "--test",
            "it",
            "--",
            "crash_pushes",
            "crash_hooks",
            "crash_jobs",
            "--nocapture",
            "--test-threads",
            "1",
        ]);
        tests.env("GABLE_CRASH_RUNS", runs.to_string()).env_remove("GABLE_TEST_DATABASE");
        if let Some(seed) = seed {
            tests.env("GABLE_CRASH_SEED", seed.to_string());
        }
        tests
    };
    if sqlite {
        report.step(&format!("{runs} kills on SQLite"), || steps::run_tests(&mut tests()));
    }
    if postgres {
        report.step(&format!("{runs} kills on PostgreSQL"), || {
            machine::provide(&[POSTGRES])?;
            let postgres = Postgres::start()?;
            steps::run_tests(tests().envs([("GABLE_TEST_DATABASE", postgres.url())]))
        });
    }
    report.finish()
}
