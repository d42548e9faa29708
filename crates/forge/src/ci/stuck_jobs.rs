//! Stuck jobs: pending jobs that no runner will take. They are only reported; `stale_jobs` ends them in the end.

use std::collections::HashSet;

use jiff::SignedDuration;
use model::{Project, ProjectId, Runner, Time};
use tracing::warn;

use crate::{Ability, Caller, Forge, ProjectAbility, ProjectRef, ReadTx, Result};

/// How long after its last contact a runner counts as online.
const ONLINE_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);
/// The maximum number of queues checked.
const MAX_QUEUES: usize = 200;

/// Pending jobs of a project that no runner will take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckJobs {
    /// The project ID.
    pub project: ProjectId,
    /// The path of the project.
    pub path: String,
    /// The tags that the jobs require.
    pub tags: Vec<String>,
    /// The number of jobs.
    pub count: i64,
    /// Why no runner takes them.
    pub reason: String,
}

/// The runners available to a project.
pub(crate) struct AvailableRunners {
    runners: Vec<Runner>,
    uses_shared: bool,
    now: Time,
}

impl AvailableRunners {
    pub(crate) fn of(tx: &mut ReadTx<'_>, project: &Project) -> Result<Self> {
        let uses_shared = project.features.shared_runners_enabled;
        let mut runners = store::runners::available_to(tx.db(), project.id)?;
        runners.retain(|runner| uses_shared || !runner.is_shared);
        Ok(Self { runners, uses_shared, now: tx.now() })
    }

    /// Returns why none of the runners will take a job with these tags; `None` if one should.
    pub(crate) fn stuck_reason(&self, tags: &[String]) -> Option<String> {
        // A runner that has just registered has not requested a job yet.
        let last_contact = |runner: &Runner| runner.contacted_at.unwrap_or(runner.created_at);
        let online = |runner: &&&Runner| self.now.duration_since(last_contact(runner)) <= ONLINE_TIMEOUT;
        let active: Vec<&Runner> = self.runners.iter().filter(|runner| runner.active).collect();
        let matching: Vec<&Runner> = active.iter().copied().filter(|runner| runner.accepts_tags(tags)).collect();
        let reason = match (self.runners.is_empty(), active.is_empty(), matching.is_empty()) {
            (true, _, _) if self.uses_shared => {
                "there is no runner: register one for this project or for the instance".into()
            }
            (true, _, _) => "the project has no runner and does not use shared runners".into(),
            (_, true, _) => "all runners of this project are paused".into(),
            (_, _, true) if tags.is_empty() => "no active runner takes jobs without tags".into(),
            (_, _, true) => format!("no active runner has all of the tags: {}", tags.join(", ")),
            _ if matching.iter().filter(online).count() == 0 => {
                "no runner that could take it was heard from in the last hour".into()
            }
            _ => return None,
        };
        Some(reason)
    }
}

/// Returns the stuck jobs, by project and tags.
pub fn list(tx: &mut ReadTx<'_>) -> Result<Vec<StuckJobs>> {
    tx.authorize(Ability::ManageServer)?;
    let mut found = Vec::new();
    for (queue, count) in store::job_queue::all_queues(tx.db())?.into_iter().take(MAX_QUEUES) {
        let project_ref = ProjectRef::Id(queue.project);
        // Jobs of projects that are being deleted, are archived or have no CI are not stuck.
        let Ok(project) = tx.project_as_system(&project_ref, ProjectAbility::RunPipelines) else { continue };
        if let Some(reason) = AvailableRunners::of(tx, &project)?.stuck_reason(&queue.tags) {
            let path = project.full_path();
            found.push(StuckJobs { project: project.id, path, tags: queue.tags, count, reason });
        }
    }
    Ok(found)
}

/// Logs stuck jobs, each group once, and updates the metric.
pub(crate) async fn report(forge: &Forge) -> Result<()> {
    let stuck = forge.read(Caller::system(), list).await?;
    let count = stuck.iter().map(|jobs| jobs.count).sum::<i64>();
    #[expect(clippy::cast_precision_loss, reason = "a gauge needs no 53rd bit")]
    metrics::gauge!("gable_stuck_jobs").set(count as f64);
    let key = |jobs: &StuckJobs| (jobs.project, jobs.tags.clone(), jobs.reason.clone());
    let current: HashSet<_> = stuck.iter().map(key).collect();
    let previous = forge.shared().job_notifier.replace_reported_stuck(current);
    for jobs in stuck.iter().filter(|jobs| !previous.contains(&key(jobs))) {
        let StuckJobs { project, path, tags, count, reason } = jobs;
        let (path, tags, reason) = (path.as_str(), tags.join(","), reason.as_str());
        warn!(
            project.id = project.get(),
            project.path = path,
            tags,
            jobs = *count,
            reason,
            "no runner can take these jobs"
        );
    }
    Ok(())
}
