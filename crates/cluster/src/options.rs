//! The command line.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    faults::{FAULTS, Fault},
    network::NODES,
    restarts::RestartMode,
};

/// What to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) gable: PathBuf,
    pub(crate) old_gable: Option<PathBuf>,
    pub(crate) garage: Option<PathBuf>,
    pub(crate) test_bucket: Option<PathBuf>,
    /// The URL of an empty PostgreSQL database; without it two servers are started.
    pub(crate) database: Option<String>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) rounds: usize,
    /// The duration of each fault in seconds, instead of that of its kind.
    pub(crate) hold: Option<u64>,
    pub(crate) seed: u64,
    /// Multiplies the time between two operations of a client.
    pub(crate) think_time: u32,
    pub(crate) short: bool,
    pub(crate) bench: bool,
    /// Keep the folder with the logs.
    pub(crate) keep: bool,
    pub(crate) report: Option<PathBuf>,
    /// A file to which results are appended; those of earlier runs in it count in the report.
    pub(crate) results: Option<PathBuf>,
    /// Further flags of the nodes.
    pub(crate) node_flags: Vec<String>,
    /// A program with its arguments that runs instead of the faults, while nodes are restarted.
    pub(crate) command: Vec<String>,
    pub(crate) restarts: RestartMode,
}

const FLAGS: &str = "--gable, --old-gable, --garage, --test-bucket, --database, --folder, --faults, --rounds, --hold, --seed, --think-time, \
                     --short, --bench, --keep, --report, --results, --node-flags, --restarts, and a command after --";

impl Options {
    pub(crate) fn read(flags: &[String]) -> Result<Self> {
        let mut options = Self { gable: "gable".into(), seed: 1, think_time: 1, ..Self::default() };
        let (mut names, mut rounds, mut restarts) = (None, None, None);
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let mut value = || flags.next().with_context(|| format!("{flag} requires a value"));
            let number = |text: &String| text.parse::<u64>().map_err(|_| anyhow!("{text} is not a number"));
            match flag.as_str() {
                "--gable" => options.gable = value()?.into(),
                "--old-gable" => options.old_gable = Some(value()?.into()),
                "--garage" => options.garage = Some(value()?.into()),
                "--test-bucket" => options.test_bucket = Some(value()?.into()),
                "--database" => options.database = Some(value()?.clone()),
                "--folder" => options.folder = Some(value()?.into()),
                "--faults" => names = Some(value()?.clone()),
                "--rounds" => rounds = Some(usize::try_from(number(value()?)?)?),
                "--hold" => options.hold = Some(number(value()?)?),
                "--seed" => options.seed = number(value()?)?,
                "--think-time" => {
                    options.think_time = u32::try_from(number(value()?)?).context("--think-time is too large")?;
                }
                "--short" => options.short = true,
                "--bench" => options.bench = true,
                "--keep" => options.keep = true,
                "--report" => options.report = Some(value()?.into()),
                "--results" => options.results = Some(value()?.into()),
                "--node-flags" => options.node_flags = value()?.split_whitespace().map(ToOwned::to_owned).collect(),
                "--restarts" => restarts = Some(RestartMode::parse(value()?)?),
                "--" => {
                    options.command = flags.by_ref().cloned().collect();
                    if options.command.is_empty() {
                        bail!("-- requires a command");
                    }
                }
                other => bail!("unknown flag {other}; cluster accepts {FLAGS}"),
            }
        }
        options.faults = match names {
            Some(names) => names.split(',').map(parse_fault).collect::<Result<_>>()?,
            None => FAULTS
                .iter()
                .map(|(fault, ..)| *fault)
                .filter(|fault| fault.is_default() && (!options.short || fault.is_in_short_form()))
                .collect(),
        };
        if options.is_upgrade() {
            if options.faults.len() > 1 || rounds.is_some() || options.old_gable.is_none() {
                bail!("upgrade requires --old-gable PROGRAM, no other fault and no --rounds");
            }
            rounds = Some(NODES.len());
        }
        options.rounds = rounds.unwrap_or(if options.short { 1 } else { 50 });
        if let Some(fault) = options.faults.iter().find(|fault| options.short && !fault.is_in_short_form()) {
            bail!("{} requires the full form, without --short", fault.name());
        }
        if restarts.is_some() && options.command.is_empty() {
            bail!("--restarts requires a command after --");
        }
        options.restarts = restarts.unwrap_or_default();
        if options.bench && !options.command.is_empty() {
            bail!("--bench runs no command");
        }
        if options.short && options.bench {
            bail!("--bench requires the full form, without --short");
        }
        if options.short && options.database.is_none() {
            bail!("--short requires --database");
        }
        Ok(options)
    }

    /// Returns whether the cluster starts with the earlier version, and is upgraded.
    pub(crate) fn is_upgrade(&self) -> bool {
        self.faults.contains(&Fault::Upgrade)
    }
}

fn parse_fault(name: &str) -> Result<Fault> {
    let names = || FAULTS.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ");
    Fault::parse(name).with_context(|| format!("unknown fault {name}; choose from {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: &str) -> Result<Options> {
        Options::read(&flags.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_faults_are_selected_unless_some_are_named() {
        let all = read("").expect("valid");
        assert_eq!((all.faults.len(), all.rounds), (FAULTS.len() - 1, 50));
        assert!(!all.is_upgrade());
        let some = read("--faults node-kill,store-torn --rounds 3").expect("valid");
        assert_eq!((some.faults, some.rounds), (vec![Fault::NodeKill, Fault::StoreTorn], 3));
        let short = read("--short --database postgres://x/y").expect("valid");
        assert!(short.faults.iter().all(|fault| fault.is_in_short_form()) && short.rounds == 1);
    }

    #[test]
    fn an_upgrade_has_a_round_for_each_node() {
        let upgrade = read("--faults upgrade --old-gable old").expect("valid");
        assert_eq!((upgrade.is_upgrade(), upgrade.rounds), (true, NODES.len()));
    }

    #[test]
    fn mistakes_are_explained() {
        let check = |flags, expected: &str| {
            let error = read(flags).expect_err("invalid").to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("--faults flood", "unknown fault flood; choose from node-kill");
        check("--short --database x --faults clock-offset", "clock-offset requires the full form");
        check("--rounds many", "many is not a number");
        check("--short --bench", "--bench requires the full form");
        check("--short", "--short requires --database");
        check("--faults upgrade", "upgrade requires --old-gable PROGRAM");
        check("--faults upgrade,node-kill --old-gable old", "no other fault");
        check("--fast", "unknown flag --fast");
        check("--restarts often -- true", "unknown kind of restarts often");
        check("--restarts kill", "--restarts requires a command");
        check("--", "-- requires a command");
        check("--bench -- true", "--bench runs no command");
    }

    #[test]
    fn a_command_has_its_own_flags() {
        let options = read("--restarts kill --node-flags --runner -- pytest --keep").expect("valid");
        assert_eq!(options.command, ["pytest", "--keep"]);
        assert_eq!((options.restarts, options.keep), (RestartMode::Kill, false));
        assert_eq!(options.node_flags, ["--runner"]);
    }
}
