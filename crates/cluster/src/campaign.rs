//! Repeats faults under load, and checks after each round that nothing was lost.

use std::{
    fmt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{
    checker::{self, Findings},
    cluster::Cluster,
    faults::Fault,
    ledger::{ErrorCounts, KINDS},
    load::{Gap, Load},
    nodes::Start,
    options::Options,
    rng::Rng,
};

/// The time under load before each fault.
const STEADY_TIME: Duration = Duration::from_millis(1500);
/// How long the last jobs may take; a job whose assignment was lost is queued again after a while.
const JOBS_TIMEOUT: Duration = Duration::from_secs(180);

/// The result of all rounds of a campaign, or of several ones with the same faults.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CampaignResult {
    /// The faults, which take turns.
    pub(crate) faults: Vec<Fault>,
    /// The seeds of the runs.
    pub(crate) seeds: Vec<u64>,
    /// Why it was not run.
    pub(crate) skipped: Option<String>,
    pub(crate) rounds: usize,
    pub(crate) acknowledged: [u64; KINDS.len()],
    pub(crate) probes: u64,
    pub(crate) findings: Findings,
    pub(crate) violations: Vec<String>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) errors: ErrorCounts,
    pub(crate) samples: Vec<String>,
    /// The number of requests to the store that failed on purpose.
    pub(crate) store_requests: u64,
    pub(crate) seconds: u64,
}

impl CampaignResult {
    fn skipped(fault: Fault, reason: &str, seed: u64) -> Self {
        Self {
            faults: vec![fault],
            seeds: vec![seed],
            skipped: Some(reason.to_owned()),
            rounds: 0,
            acknowledged: [0; KINDS.len()],
            probes: 0,
            findings: Findings::default(),
            violations: Vec::new(),
            gaps: Vec::new(),
            errors: ErrorCounts::default(),
            samples: Vec::new(),
            store_requests: 0,
            seconds: 0,
        }
    }

    /// Returns the names of the faults.
    pub(crate) fn name(&self) -> String {
        self.faults.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(", ")
    }

    /// Adds the result of another run with the same faults.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { faults: _, seeds, skipped, rounds, acknowledged, probes, findings, violations, gaps, .. } = other;
        self.seeds.extend(seeds);
        // Skipped only if no run had it.
        self.skipped = self.skipped.take().and(skipped);
        self.rounds += rounds;
        self.acknowledged.iter_mut().zip(acknowledged).for_each(|(sum, count)| *sum += count);
        self.probes += probes;
        self.findings.add(findings);
        self.violations.extend(violations);
        self.gaps.extend(gaps);
        self.errors.add(other.errors);
        self.samples.extend(other.samples);
        self.store_requests += other.store_requests;
        self.seconds += other.seconds;
    }

    /// Returns whether everything held.
    pub(crate) fn held(&self) -> bool {
        self.findings.problems().next().is_none() && self.violations.is_empty()
    }
}

/// Runs all selected faults. `each` gets the result of each campaign.
pub(crate) async fn run(
    options: &Options,
    cluster: &mut Cluster,
    mut each: impl FnMut(&CampaignResult) -> Result<()>,
) -> Result<()> {
    // The complete check takes longer than a round, so the short form has one for all faults.
    let campaigns: Vec<Vec<Fault>> = if options.short {
        vec![options.faults.clone()]
    } else {
        options.faults.iter().map(|fault| vec![*fault]).collect()
    };
    for (number, faults) in campaigns.into_iter().enumerate() {
        let result = if faults == [Fault::OldVersion] && options.old_gable.is_none() {
            CampaignResult::skipped(Fault::OldVersion, "no earlier version: use --old-gable", options.seed)
        } else {
            run_campaign(options, cluster, &faults, number).await?
        };
        each(&result)?;
    }
    Ok(())
}

/// Repeats faults in turns, and checks everything at the end.
async fn run_campaign(
    options: &Options,
    cluster: &mut Cluster,
    faults: &[Fault],
    number: usize,
) -> Result<CampaignResult> {
    let start = Instant::now();
    let seed = options.seed.wrapping_mul(1000).wrapping_add(u64::try_from(number).unwrap_or_default());
    let mut rng = Rng::new(seed);
    let clones = cluster.folder.join("clones");
    std::fs::create_dir_all(&clones)?;
    // The projects of each campaign have their own names.
    let name = format!("{}-{number}", faults[0].name());
    let seed = rng.next_u64();
    let mut load =
        Load::start(&cluster.balancer, cluster.receiver_address, &name, &clones, options.think_time, seed).await?;
    let affected = cluster.proxy.affected();
    let mut findings = Findings::default();
    let (mut gaps, mut checked, mut rounds) = (Vec::new(), 0, 0);
    let total = options.rounds * faults.len();
    for round in 0..total {
        let fault = faults[round % faults.len()];
        tokio::time::sleep(STEADY_TIME).await;
        load.start_gap();
        let mut phases = Phases::start();
        let recovered = run_fault(fault, round, options, cluster, &mut rng, &mut phases).await;
        let gap = load.end_gap();
        gaps.push(gap);
        rounds += 1;
        match recovered {
            Ok(ended) => ended.into_iter().for_each(|text| load.shared.ledger.violation(text)),
            Err(error) => {
                load.shared.ledger.violation(format!("{} {}/{total}: {error:#}", fault.name(), round + 1));
                break;
            }
        }
        let paused = load.pause().await;
        phases.end("pause");
        let writes = load.shared.ledger.writes_after(checked);
        checked += writes.len();
        let found = checker::check_round(&cluster.clients(), &load.shared, writes, round).await;
        phases.end("check");
        drop(paused);
        let problems = found.problems().count();
        println!(
            "{} {}/{total}: {checked} writes acknowledged, no write for {:.1} s, {} probes failed, {problems} problems; {phases}",
            fault.name(),
            round + 1,
            gap.longest.as_secs_f64(),
            gap.failed,
        );
        found.print();
        findings.add(found);
    }
    let mut phases = Phases::start();
    if let Err(error) = load.finish_jobs(JOBS_TIMEOUT).await {
        findings.unfinished_jobs.push(format!("{error:#}"));
    }
    load.stop().await;
    phases.end("last jobs");
    findings.add(checker::check_all(&cluster.clients(), &load.shared, &cluster.receiver).await);
    phases.end("check of all writes");
    findings.add(check_empty_cache(cluster, &load, number, &clones).await?);
    phases.end("check with an empty cache");
    println!("end of {name}: {phases}");
    let ledger = &load.shared.ledger;
    let result = CampaignResult {
        faults: faults.to_vec(),
        seeds: vec![options.seed],
        skipped: None,
        rounds,
        acknowledged: ledger.counts(),
        probes: u64::try_from(ledger.probes().len()).unwrap_or_default(),
        findings,
        violations: ledger.violations(),
        gaps,
        errors: ledger.errors(),
        samples: ledger.samples(),
        store_requests: cluster.proxy.affected() - affected,
        seconds: start.elapsed().as_secs(),
    };
    result.findings.print();
    for text in &result.violations {
        println!("  violation: {text}");
    }
    for text in &result.samples {
        println!("  unexpected response: {text}");
    }
    Ok(result)
}

/// Lets a fault happen and waits until the cluster has recovered; returns what must not have happened.
async fn run_fault(
    fault: Fault,
    round: usize,
    options: &Options,
    cluster: &mut Cluster,
    rng: &mut Rng,
    phases: &mut Phases,
) -> Result<Vec<String>> {
    let injected = fault.inject(cluster, round, options.hold.map(Duration::from_secs), rng).await?;
    phases.end("fault");
    fault.heal(cluster, injected).await?;
    let ended = cluster.wait_until_recovered().await?;
    phases.end("recovery");
    Ok(ended)
}

/// How long the phases of a round took.
struct Phases {
    since: Instant,
    ended: Vec<(&'static str, Duration)>,
}

impl Phases {
    fn start() -> Self {
        Self { since: Instant::now(), ended: Vec::new() }
    }

    /// Ends a phase, which began when the previous one ended.
    fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        self.ended.push((name, now.duration_since(self.since)));
        self.since = now;
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, duration)) in self.ended.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(formatter, "{separator}{name} {:.1} s", duration.as_secs_f64())?;
        }
        Ok(())
    }
}

/// Starts a node with an empty cache, and reads everything from it.
async fn check_empty_cache(cluster: &mut Cluster, load: &Load, number: usize, folder: &Path) -> Result<Findings> {
    let index = number % cluster.nodes.len();
    let Cluster { nodes, network, settings, .. } = cluster;
    let node = &mut nodes[index];
    node.stop().await?;
    node.clear_cache()?;
    node.start_until_ready(network, settings, &Start::default()).await?;
    Ok(checker::check_empty_node(&("a node with an empty cache", node.client()), &load.shared, folder).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_listed_with_their_times() {
        let ended = vec![("fault", Duration::from_millis(1240)), ("recovery", Duration::from_secs(3))];
        assert_eq!(Phases { ended, ..Phases::start() }.to_string(), "fault 1.2 s, recovery 3.0 s");
    }
}
