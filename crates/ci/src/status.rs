//! What jobs and pipelines are called, and what may happen to them.

pub use model::Status;

/// What happens to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its turn has come, or somebody plays it.
    Enqueue,
    /// It gets another chance, because something before it is tried again.
    Process,
    /// A runner takes it.
    Run,
    /// There is nothing to do for it.
    Skip,
    /// It fails.
    Drop,
    /// It succeeds.
    Succeed,
    /// Somebody stops it.
    Cancel,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Enqueue, Self::Process, Self::Run, Self::Skip, Self::Drop, Self::Succeed, Self::Cancel];
}

/// The state of a job after an event, or nothing if the event is impossible: then nothing changes.
pub fn step(status: Status, event: Event) -> Option<Status> {
    use Status::{Canceled, Created, Failed, Manual, Pending, Running, Skipped, Success};
    match (event, status) {
        (Event::Enqueue, Created | Skipped | Manual) => Some(Pending),
        (Event::Process, Skipped | Manual) => Some(Created),
        (Event::Run, Pending) => Some(Running),
        (Event::Skip, Created | Pending | Manual) => Some(Skipped),
        (Event::Drop, Created | Pending | Running) => Some(Failed),
        (Event::Succeed, Created | Pending | Running) => Some(Success),
        (Event::Cancel, Created | Pending | Running | Manual) => Some(Canceled),
        _ => None,
    }
}

/// How many jobs are in which state. Failed and canceled ones that are allowed to fail are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [usize; Status::ALL.len()],
}

impl Tally {
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

    /// What these jobs are called together; the first row that fits wins. None at all, or only allowed failures, are a
    /// success.
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

/// What jobs are called together, given the state of each and whether it may fail. Only the latest job of each name
/// belongs here.
pub fn compute(jobs: impl IntoIterator<Item = (Status, bool)>) -> Status {
    let mut tally = Tally::default();
    for (status, allow_failure) in jobs {
        tally.add(status, allow_failure);
    }
    tally.status()
}

/// The state of a pipeline after its jobs were computed anew.
///
/// `Created` does nothing, and a pipeline that has run is never pending again. A pipeline whose file is wrong is failed
/// and one without jobs is skipped; the caller stores these two and does not compute them.
pub fn follow(pipeline: Status, computed: Status) -> Status {
    use Status::{Canceled, Created, Failed, Pending, Skipped, Success};
    match (computed, pipeline) {
        (Pending, Created) => Pending,
        (Pending, Success | Failed | Canceled | Skipped) => Status::Running,
        (Created | Pending, _) => pipeline,
        (computed, _) => computed,
    }
}

/// How long at least one of these intervals lasted, in the unit of their ends. Gaps do not count, overlaps count once.
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

    /// The table of the reference, event by event.
    #[test]
    fn a_job_moves_only_as_the_table_says() {
        let table: [(Event, &[Status], Status); 7] = [
            (Event::Enqueue, &[Created, Skipped, Manual], Pending),
            (Event::Process, &[Skipped, Manual], Created),
            (Event::Run, &[Pending], Running),
            (Event::Skip, &[Created, Pending, Manual], Skipped),
            (Event::Drop, &[Created, Pending, Running], Failed),
            (Event::Succeed, &[Created, Pending, Running], Success),
            (Event::Cancel, &[Created, Pending, Running, Manual], Canceled),
        ];
        for (event, from, to) in table {
            for status in Status::ALL {
                let expected = from.contains(&status).then_some(to);
                assert_eq!(step(status, event), expected, "{event:?} at {status:?}");
            }
        }
    }

    fn check(jobs: &[Status], expected: Status) {
        assert_eq!(compute(jobs.iter().map(|&status| (status, false))), expected, "{jobs:?}");
    }

    #[test]
    fn the_first_row_of_the_table_wins() {
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
    fn allowed_failures_are_left_out_and_running_ones_are_not() {
        assert_eq!(compute([(Failed, true)]), Success);
        assert_eq!(compute([(Failed, true), (Success, false)]), Success);
        assert_eq!(compute([(Failed, true), (Canceled, false)]), Canceled);
        assert_eq!(compute([(Canceled, true), (Success, false)]), Success);
        assert_eq!(compute([(Running, true), (Success, false)]), Running);
    }

    #[test]
    fn a_pipeline_that_has_run_is_never_pending_again() {
        assert_eq!(follow(Created, Pending), Pending);
        assert_eq!(follow(Pending, Running), Running);
        assert_eq!(follow(Running, Pending), Running);
        for done in [Success, Failed, Canceled, Skipped] {
            assert_eq!(follow(done, Pending), Running);
            assert_eq!(follow(done, Created), done);
            assert_eq!(follow(Running, done), done);
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
