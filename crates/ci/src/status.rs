//! Statuses of jobs and pipelines, and the transitions between them.

pub use model::Status;

/// An event that changes the status of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusEvent {
    /// The job is ready to run, or a user plays it.
    Enqueue,
    /// A skipped job gets another chance, because a job before it is retried.
    Process,
    /// A runner takes the job.
    Run,
    /// The job is not needed.
    Skip,
    /// The job fails.
    Drop,
    /// The job succeeds.
    Succeed,
    /// The job is canceled.
    Cancel,
}

impl StatusEvent {
    /// All events.
    pub const ALL: [Self; 7] =
        [Self::Enqueue, Self::Process, Self::Run, Self::Skip, Self::Drop, Self::Succeed, Self::Cancel];
}

/// Returns the status of a job after an event, or `None` if the event is impossible in this status.
pub fn transition(status: Status, event: StatusEvent) -> Option<Status> {
    use Status::{Canceled, Created, Failed, Manual, Pending, Running, Skipped, Success};
    match (event, status) {
        (StatusEvent::Enqueue, Created | Skipped | Manual) => Some(Pending),
        (StatusEvent::Process, Skipped | Manual) => Some(Created),
        (StatusEvent::Run, Pending) => Some(Running),
        (StatusEvent::Skip, Created | Pending | Manual) => Some(Skipped),
        (StatusEvent::Drop, Created | Pending | Running) => Some(Failed),
        (StatusEvent::Succeed, Created | Pending | Running) => Some(Success),
        (StatusEvent::Cancel, Created | Pending | Running | Manual) => Some(Canceled),
        _ => None,
    }
}

/// The number of jobs by status. Failed and canceled jobs that are allowed to fail are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusCounts {
    counts: [usize; Status::ALL.len()],
}

impl StatusCounts {
    /// Counts one more job.
    pub fn add(&mut self, status: Status, allow_failure: bool) {
        if !(allow_failure && matches!(status, Status::Failed | Status::Canceled)) {
            self.counts[status as usize] += 1;
        }
    }

    fn any(&self, statuses: &[Status]) -> bool {
        statuses.iter().any(|&status| self.counts[status as usize] > 0)
    }

    fn only(&self, statuses: &[Status]) -> bool {
        let counted: usize = statuses.iter().map(|&status| self.counts[status as usize]).sum();
        counted == self.counts.iter().sum::<usize>()
    }

    /// Returns the combined status of these jobs; the first matching row wins. No jobs at all, or only allowed
    /// failures, are a success.
    pub fn status(&self) -> Status {
        use Status::{Canceled, Created, Manual, Pending, Running, Skipped, Success};
        if self.only(&[]) {
            Success
        } else if self.only(&[Skipped]) {
            Skipped
        } else if self.only(&[Created]) {
            Created
        } else if self.only(&[Success, Skipped]) {
            Success
        } else if self.only(&[Success, Skipped, Canceled]) {
            Canceled
        } else if self.only(&[Created, Skipped, Pending]) {
            Pending
        } else if self.any(&[Running, Pending]) {
            Running
        } else if self.any(&[Manual]) {
            Manual
        } else if self.any(&[Created]) {
            Running
        } else {
            Status::Failed
        }
    }
}

/// Returns the combined status of jobs, given the status of each and whether it may fail. Pass only the latest job of
/// each name.
pub fn combine(jobs: impl IntoIterator<Item = (Status, bool)>) -> Status {
    let mut counts = StatusCounts::default();
    for (status, allow_failure) in jobs {
        counts.add(status, allow_failure);
    }
    counts.status()
}

/// Returns the status of a pipeline after the combined status of its jobs changed.
///
/// `Created` changes nothing, and a pipeline that has run never becomes pending again. Pipelines with an invalid file
/// (failed) and without jobs (skipped) are stored by the caller and not computed here.
pub fn next_pipeline_status(pipeline: Status, computed: Status) -> Status {
    use Status::{Canceled, Created, Failed, Pending, Skipped, Success};
    match (computed, pipeline) {
        (Pending, Created) => Pending,
        (Pending, Success | Failed | Canceled | Skipped) => Status::Running,
        (Created | Pending, _) => pipeline,
        (computed, _) => computed,
    }
}

/// Returns the total time covered by the intervals, in the unit of their ends. Gaps do not count, overlaps count once.
pub fn duration(intervals: &[(i64, i64)]) -> i64 {
    let mut sorted: Vec<(i64, i64)> = intervals.iter().copied().filter(|(from, to)| from < to).collect();
    sorted.sort_unstable();
    let mut total: i64 = 0;
    let mut covered = i64::MIN;
    for (from, to) in sorted {
        let from = from.max(covered);
        if to > from {
            total = total.saturating_add(to.saturating_sub(from));
            covered = to;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use Status::{Canceled, Created, Failed, Manual, Pending, Running, Skipped, Success};

    /// The transitions of the specification, event by event.
    #[test]
    fn a_job_changes_status_only_as_specified() {
        let table: [(StatusEvent, &[Status], Status); 7] = [
            (StatusEvent::Enqueue, &[Created, Skipped, Manual], Pending),
            (StatusEvent::Process, &[Skipped, Manual], Created),
            (StatusEvent::Run, &[Pending], Running),
            (StatusEvent::Skip, &[Created, Pending, Manual], Skipped),
            (StatusEvent::Drop, &[Created, Pending, Running], Failed),
            (StatusEvent::Succeed, &[Created, Pending, Running], Success),
            (StatusEvent::Cancel, &[Created, Pending, Running, Manual], Canceled),
        ];
        for (event, from, to) in table {
            for status in Status::ALL {
                let expected = from.contains(&status).then_some(to);
                assert_eq!(transition(status, event), expected, "{event:?} at {status:?}");
            }
        }
    }

    fn check(jobs: &[Status], expected: Status) {
        assert_eq!(combine(jobs.iter().map(|&status| (status, false))), expected, "{jobs:?}");
    }

    #[test]
    fn the_first_matching_row_wins() {
        check(&[], Success);
        check(&[Skipped, Skipped], Skipped);
        check(&[Success, Success], Success);
        check(&[Created, Created], Created);
        check(&[Success, Skipped], Success);
        check(&[Success, Skipped, Canceled], Canceled);
        check(&[Canceled], Canceled);
        check(&[Created, Skipped, Pending], Pending);
        check(&[Created, Skipped], Pending);
        check(&[Success, Pending], Running);
        check(&[Success, Created], Running);
        check(&[Failed, Running], Running);
        check(&[Failed, Created], Running);
        check(&[Failed, Success], Failed);
        check(&[Failed, Canceled], Failed);
        check(&[Success, Manual], Manual);
        check(&[Failed, Manual], Manual);
        check(&[Manual, Pending], Running);
    }

    #[test]
    fn allowed_failures_are_not_counted_but_running_jobs_are() {
        assert_eq!(combine([(Failed, true)]), Success);
        assert_eq!(combine([(Failed, true), (Success, false)]), Success);
        assert_eq!(combine([(Failed, true), (Canceled, false)]), Canceled);
        assert_eq!(combine([(Canceled, true), (Success, false)]), Success);
        assert_eq!(combine([(Running, true), (Success, false)]), Running);
    }

    #[test]
    fn a_pipeline_that_has_run_is_never_pending_again() {
        assert_eq!(next_pipeline_status(Created, Pending), Pending);
        assert_eq!(next_pipeline_status(Pending, Running), Running);
        assert_eq!(next_pipeline_status(Running, Pending), Running);
        for done in [Success, Failed, Canceled, Skipped] {
            assert_eq!(next_pipeline_status(done, Pending), Running);
            assert_eq!(next_pipeline_status(done, Created), done);
            assert_eq!(next_pipeline_status(Running, done), done);
        }
    }

    #[test]
    fn a_duration_is_the_union_of_intervals() {
        assert_eq!(duration(&[]), 0);
        assert_eq!(duration(&[(0, 10), (5, 15)]), 15);
        assert_eq!(duration(&[(20, 30), (0, 10)]), 20);
        assert_eq!(duration(&[(0, 100), (10, 20), (30, 40)]), 100);
        assert_eq!(duration(&[(5, 5), (9, 3)]), 0);
        assert_eq!(duration(&[(i64::MIN, i64::MAX)]), i64::MAX);
    }
}
