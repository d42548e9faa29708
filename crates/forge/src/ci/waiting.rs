//! Why jobs wait for a runner in vain.

use std::collections::HashSet;

use jiff::SignedDuration;
use model::{Project, Runner, Time};
use tracing::warn;

use crate::{Ability, Caller, Forge, ProjectAbility, ProjectRef, ReadTx, Result};

/// For how long a runner that says nothing is expected to come back.
const ONLINE: SignedDuration = SignedDuration::from_hours(1);
/// How many queues are looked at.
const QUEUES: usize = 200;

/// Jobs of a project that no runner will take as things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckJobs {
    /// The number of the project.
    pub project: i64,
    /// Its path.
    pub path: String,
    /// What the jobs want of a runner.
    pub tags: Vec<String>,
    /// How many wait.
    pub count: i64,
    /// Why, in a sentence.
    pub reason: String,
}

/// The runners that may build a project.
pub(crate) struct Candidates {
    runners: Vec<Runner>,
    shared: bool,
    now: Time,
}

impl Candidates {
    pub(crate) fn of(tx: &mut ReadTx<'_>, project: &Project) -> Result<Self> {
        let shared = project.switches.shared_runners_enabled;
        let mut runners = store::runners::available_to(tx.db(), project.id)?;
        runners.retain(|runner| shared || !runner.is_shared);
        Ok(Self { runners, shared, now: tx.now() })
    }

    /// Why none of them will take a job that wants these tags; nothing if one should.
    pub(crate) fn reason(&self, tags: &[String]) -> Option<String> {
        // One that has just joined has not asked for anything yet.
        let heard = |runner: &Runner| runner.contacted_at.unwrap_or(runner.created_at);
        let online = |runner: &&&Runner| self.now.duration_since(heard(runner)) <= ONLINE;
        let active: Vec<&Runner> = self.runners.iter().filter(|runner| runner.active).collect();
        let suitable: Vec<&Runner> = active.iter().copied().filter(|runner| runner.suits(tags)).collect();
        let reason = match (self.runners.is_empty(), active.is_empty(), suitable.is_empty()) {
            (true, _, _) if self.shared => {
                "there is no runner: register one for this project or for the instance".into()
            }
            (true, _, _) => "the project has no runner and does not use shared runners".into(),
            (_, true, _) => "all runners of this project are paused".into(),
            (_, _, true) if tags.is_empty() => "no active runner takes jobs without tags".into(),
            (_, _, true) => format!("no active runner has all of the tags: {}", tags.join(", ")),
            _ if suitable.iter().filter(online).count() == 0 => {
                "no runner that could take it was heard from in the last hour".into()
            }
            _ => return None,
        };
        Some(reason)
    }
}

/// The jobs that wait in vain, by project and tags.
pub fn stuck_jobs(tx: &mut ReadTx<'_>) -> Result<Vec<StuckJobs>> {
    tx.may(Ability::Operate)?;
    let mut found = Vec::new();
    for (queue, count) in store::assignments::all_queues(tx.db())?.into_iter().take(QUEUES) {
        let place = ProjectRef::Id(queue.project);
        // One that is being removed, is archived or builds nothing any more rests, and so do its jobs.
        let Ok(project) = tx.open_as_service(&place, ProjectAbility::RunPipelines) else { continue };
        if let Some(reason) = Candidates::of(tx, &project)?.reason(&queue.tags) {
            let path = project.full_path();
            found.push(StuckJobs { project: project.id, path, tags: queue.tags, count, reason });
        }
    }
    Ok(found)
}

/// Tells the operator of jobs that wait in vain: once of each kind, until somebody takes them.
pub(crate) async fn report(forge: &Forge) -> Result<()> {
    let stuck = forge.read(Caller::system(), stuck_jobs).await?;
    let count = stuck.iter().map(|jobs| jobs.count).sum::<i64>();
    #[expect(clippy::cast_precision_loss, reason = "a gauge needs no 53rd bit")]
    metrics::gauge!("gable_stuck_builds").set(count as f64);
    let key = |jobs: &StuckJobs| (jobs.project, jobs.tags.clone(), jobs.reason.clone());
    let now: HashSet<_> = stuck.iter().map(key).collect();
    let before = forge.shared().board.replace_stuck(now);
    for jobs in stuck.iter().filter(|jobs| !before.contains(&key(jobs))) {
        let StuckJobs { project, path, tags, count, reason } = jobs;
        let (path, tags, reason) = (path.as_str(), tags.join(","), reason.as_str());
        warn!(project.id = *project, project.path = path, tags, jobs = *count, reason, "no runner can take these jobs");
    }
    Ok(())
}
