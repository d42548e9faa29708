//! Results of campaigns in a file, so that a report can cover several runs.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
};

use anyhow::{Context as _, Result};

use crate::{campaign::CampaignResult, faults::FAULTS};

/// Appends the result of a campaign to a file, as a line. Several runs may do so at the same time.
pub(crate) fn append(path: &Path, result: &CampaignResult) -> Result<()> {
    let mut line = serde_json::to_string(result).context("cannot serialize a result")?;
    line.push('\n');
    let file = File::options().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Reads all results of a file. Those of the same faults are added up; they are in the order of [`FAULTS`].
pub(crate) fn read(path: &Path) -> Result<Vec<CampaignResult>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut results: Vec<CampaignResult> = Vec::new();
    for line in text.lines() {
        let result: CampaignResult = serde_json::from_str(line)
            .with_context(|| format!("{} contains other lines than results", path.display()))?;
        match results.iter_mut().find(|known| known.faults == result.faults) {
            Some(known) => known.add(result),
            None => results.push(result),
        }
    }
    results.sort_by_key(|result| FAULTS.iter().position(|(fault, ..)| result.faults.first() == Some(fault)));
    Ok(results)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{checker::Findings, faults::Fault, ledger::ErrorCounts, load::Gap};

    fn result(fault: Fault, seed: u64, rounds: usize, lost: &[&str]) -> CampaignResult {
        CampaignResult {
            faults: vec![fault],
            seeds: vec![seed],
            skipped: None,
            rounds,
            acknowledged: [1, 2, 3, 4, 5, 6],
            probes: 7,
            findings: Findings { losses: lost.iter().map(ToString::to_string).collect(), ..Findings::default() },
            violations: Vec::new(),
            gaps: vec![Gap { longest: Duration::from_millis(seed), failed: 1 }; rounds],
            errors: ErrorCounts { connection: 1, server: 2, other: 3 },
            samples: Vec::new(),
            store_requests: 8,
            seconds: 9,
        }
    }

    #[test]
    fn results_of_several_runs_are_added_up() {
        let folder = std::env::temp_dir().join(format!("cluster-results.{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("results");
        let runs = [
            result(Fault::FullCache, 1, 2, &[]),
            result(Fault::NodeKill, 1, 2, &[]),
            result(Fault::NodeKill, 2, 3, &["issue 5"]),
        ];
        for result in &runs {
            append(&path, result).expect("append");
        }
        let results = read(&path).expect("read");
        fs::remove_dir_all(&folder).expect("remove the folder");
        let names: Vec<String> = results.iter().map(CampaignResult::name).collect();
        assert_eq!(names, ["node-kill", "full-cache"]);
        let sum = &results[0];
        assert_eq!((sum.rounds, sum.probes, &*sum.seeds, sum.gaps.len()), (5, 14, &[1, 2][..], 5));
        assert_eq!(sum.acknowledged, [2, 4, 6, 8, 10, 12]);
        assert_eq!(sum.errors, ErrorCounts { connection: 2, server: 4, other: 6 });
        assert_eq!(sum.findings.losses, ["issue 5"]);
        assert!(!sum.held() && results[1].held());
    }

    #[test]
    fn a_fault_that_one_run_has_skipped_is_not_skipped() {
        let mut skipped = result(Fault::OldVersion, 1, 0, &[]);
        skipped.skipped = Some("no earlier version".to_owned());
        let mut sum = skipped.clone();
        sum.add(skipped.clone());
        assert!(sum.skipped.is_some());
        sum.add(result(Fault::OldVersion, 2, 1, &[]));
        assert_eq!((sum.skipped.as_deref(), sum.rounds), (None, 1));
    }
}
