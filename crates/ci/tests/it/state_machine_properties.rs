//! Properties of every pipeline, whatever its jobs and their results.

use ci::When;
use ci::progress::{JobState, cancel, play, progress, retry};
use ci::status::{Status, StatusEvent, combine, duration, transition};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn any_when() -> impl Strategy<Value = When> {
    select(vec![When::OnSuccess, When::OnSuccess, When::OnSuccess, When::OnFailure, When::Always, When::Manual])
}

/// Generates a new pipeline. Needs point to jobs of the same or an earlier stage and never in a circle; the order of
/// jobs is random.
fn any_pipeline() -> impl Strategy<Value = Vec<JobState>> {
    let job = (0..4_usize, any_when(), any::<bool>(), proptest::option::of(vec(any::<prop::sample::Index>(), 0..4)));
    (vec(job, 1..12), any::<u64>()).prop_map(|(mut generated, seed)| {
        generated.sort_by_key(|(stage, ..)| *stage);
        let mut jobs: Vec<JobState> = generated
            .iter()
            .enumerate()
            .map(|(index, (stage, when, allow_failure, needs))| JobState {
                stage: *stage,
                status: Status::Created,
                when: *when,
                allow_failure: *allow_failure,
                needs: needs.as_ref().map(|needs| {
                    if index == 0 { Vec::new() } else { needs.iter().map(|need| need.index(index)).collect() }
                }),
            })
            .collect();
        shuffle(&mut jobs, seed);
        jobs
    })
}

/// Shuffles the jobs and updates their needs.
fn shuffle(jobs: &mut Vec<JobState>, mut seed: u64) {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    for index in (1..order.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from(seed >> 33).expect("a small number") % (index + 1);
        order.swap(index, other);
    }
    let new_index = |old: usize| order.iter().position(|&known| known == old).expect("a job");
    *jobs = order
        .iter()
        .map(|&old| {
            let mut job = jobs[old].clone();
            job.needs = job.needs.map(|needs| needs.into_iter().map(new_index).collect());
            job
        })
        .collect();
}

/// Returns whether everything that a job waits for is done.
fn is_ready(jobs: &[JobState], job: &JobState) -> bool {
    match &job.needs {
        Some(needs) => needs.iter().all(|&need| jobs[need].status.is_done()),
        None => jobs.iter().filter(|other| other.stage < job.stage).all(|other| other.status.is_done()),
    }
}

fn apply(jobs: &mut [JobState], index: usize, event: StatusEvent) {
    let before = jobs[index].status;
    let after = transition(before, event).unwrap_or_else(|| panic!("{event:?} is impossible at {before:?}"));
    if after == Status::Pending {
        assert!(is_ready(jobs, &jobs[index]), "{index} starts too early: {jobs:#?}");
    }
    jobs[index].status = after;
}

/// Applies all events of `progress`; a second call must return none.
fn apply_progress(jobs: &mut [JobState]) {
    for (index, event) in progress(jobs) {
        apply(jobs, index, event);
    }
    assert_eq!(progress(jobs), [], "{jobs:#?}");
}

/// Runs jobs with the given outcomes until nothing changes any more.
fn run(jobs: &mut [JobState], outcomes: &[(prop::sample::Index, StatusEvent)]) {
    let mut outcomes = outcomes.iter().cycle();
    for _ in 0..1000 {
        apply_progress(jobs);
        let alive: Vec<usize> =
            (0..jobs.len()).filter(|&index| matches!(jobs[index].status, Status::Pending | Status::Running)).collect();
        if alive.is_empty() {
            assert!(jobs.iter().all(|job| job.status.is_done()), "a job is stuck: {jobs:#?}");
            return;
        }
        let (which, outcome) = outcomes.next().expect("the iterator is cyclic");
        let index = alive[which.index(alive.len())];
        if jobs[index].status == Status::Pending && *outcome != StatusEvent::Cancel {
            apply(jobs, index, StatusEvent::Run);
        } else {
            apply(jobs, index, *outcome);
        }
    }
    panic!("the pipeline never ends: {jobs:#?}");
}

fn any_outcomes() -> impl Strategy<Value = Vec<(prop::sample::Index, StatusEvent)>> {
    let outcome = select(vec![StatusEvent::Succeed, StatusEvent::Succeed, StatusEvent::Drop, StatusEvent::Cancel]);
    vec((any::<prop::sample::Index>(), outcome), 1..40)
}

/// The table of combined statuses, implemented a second time on a list instead of counters.
fn expected_status(jobs: &[(Status, bool)]) -> Status {
    use Status::{Canceled, Created, Failed, Manual, Pending, Running, Skipped, Success};
    let mut left: Vec<Status> = jobs
        .iter()
        .filter(|(status, allowed)| !(*allowed && [Failed, Canceled].contains(status)))
        .map(|(status, _)| *status)
        .collect();
    left.sort_unstable();
    left.dedup();
    match left.as_slice() {
        [] => Success,
        [Skipped] => Skipped,
        [Created] => Created,
        kinds if kinds.iter().all(|kind| [Success, Skipped].contains(kind)) => Success,
        kinds if kinds.iter().all(|kind| [Success, Skipped, Canceled].contains(kind)) => Canceled,
        kinds if kinds.iter().all(|kind| [Created, Skipped, Pending].contains(kind)) => Pending,
        kinds if kinds.contains(&Running) || kinds.contains(&Pending) => Running,
        kinds if kinds.contains(&Manual) => Manual,
        kinds if kinds.contains(&Created) => Running,
        _ => Failed,
    }
}

/// The transition of a job without needs, by the table of the specification.
fn expected_without_needs(before: Status, when: When) -> Option<Status> {
    let row = match before {
        Status::Success | Status::Skipped => [true, false, true, false],
        Status::Failed => [false, true, true, false],
        Status::Canceled => [false; 4],
        _ => return None,
    };
    let starts = match when {
        When::OnSuccess => row[0],
        When::OnFailure => row[1],
        When::Always => row[2],
        When::Manual => row[3],
    };
    Some(if starts { Status::Pending } else { Status::Skipped })
}

/// The transition of a job with needs, implemented independently.
fn expected_with_needs(needs: &[(Status, bool)], when: When) -> Option<Status> {
    if !needs.iter().all(|(status, _)| status.is_done()) {
        return None;
    }
    let matters = |wanted: Status| needs.iter().any(|(status, allowed)| *status == wanted && !allowed);
    let starts = if matters(Status::Failed) {
        matches!(when, When::OnFailure | When::Always)
    } else if matters(Status::Canceled) {
        false
    } else if needs.iter().any(|(status, _)| *status == Status::Skipped) {
        when == When::Always
    } else {
        matches!(when, When::OnSuccess | When::Always)
    };
    Some(if starts { Status::Pending } else { Status::Skipped })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn combined_statuses_match_the_specification_in_any_order(
        jobs in vec((select(Status::ALL.to_vec()), any::<bool>()), 0..8),
        seed in any::<prop::sample::Index>(),
    ) {
        let expected = expected_status(&jobs);
        prop_assert_eq!(combine(jobs.iter().copied()), expected);
        let mut rotated = jobs.clone();
        if !rotated.is_empty() {
            let by = seed.index(rotated.len());
            rotated.rotate_left(by);
        }
        prop_assert_eq!(combine(rotated.iter().copied()), expected);
        rotated.reverse();
        prop_assert_eq!(combine(rotated), expected);
    }

    #[test]
    fn every_pipeline_ends(mut jobs in any_pipeline(), outcomes in any_outcomes()) {
        run(&mut jobs, &outcomes);
        let whole = combine(jobs.iter().map(|job| (job.status, job.allow_failure)));
        prop_assert!(whole.is_done(), "{whole:?}: {jobs:#?}");
    }

    #[test]
    fn a_pipeline_whose_retry_succeeds_is_a_success(mut jobs in any_pipeline(), outcomes in any_outcomes()) {
        run(&mut jobs, &outcomes);
        let retry_plan = retry(&jobs);
        for &index in &retry_plan.recreated {
            prop_assert!(matches!(jobs[index].status, Status::Failed | Status::Canceled));
            jobs[index].status = Status::Created;
        }
        for &index in &retry_plan.reopened {
            apply(&mut jobs, index, StatusEvent::Process);
        }
        for &index in &retry_plan.enqueued {
            apply(&mut jobs, index, StatusEvent::Enqueue);
        }
        let all_succeed = [(outcomes[0].0, StatusEvent::Succeed)];
        run(&mut jobs, &all_succeed);
        let whole = combine(jobs.iter().map(|job| (job.status, job.allow_failure)));
        prop_assert!(matches!(whole, Status::Success | Status::Skipped), "{whole:?}: {jobs:#?}");
        prop_assert!(jobs.iter().all(|job| !matches!(job.status, Status::Failed | Status::Canceled)));
        prop_assert!(retry(&jobs).recreated.is_empty());
    }

    #[test]
    fn a_successful_retry_ends_like_a_successful_first_run(
        mut jobs in any_pipeline(),
        outcomes in any_outcomes(),
    ) {
        let all_succeed = [(outcomes[0].0, StatusEvent::Succeed)];
        let mut first_run = jobs.clone();
        run(&mut first_run, &all_succeed);
        run(&mut jobs, &outcomes);
        let retry_plan = retry(&jobs);
        for &index in &retry_plan.recreated {
            jobs[index].status = Status::Created;
        }
        for &index in &retry_plan.reopened {
            apply(&mut jobs, index, StatusEvent::Process);
        }
        for &index in &retry_plan.enqueued {
            apply(&mut jobs, index, StatusEvent::Enqueue);
        }
        run(&mut jobs, &all_succeed);
        // Jobs that ran because of a failure, or did not need to run again, keep their success.
        for (retried, first_run) in jobs.iter().zip(&first_run) {
            prop_assert!(retried.status == first_run.status || retried.status == Status::Success, "{retried:?} {first_run:?}");
        }
    }

    #[test]
    fn cancel_ends_everything(mut jobs in any_pipeline(), outcomes in any_outcomes(), steps in 0..10_usize) {
        for (which, outcome) in outcomes.iter().take(steps) {
            apply_progress(&mut jobs);
            let index = which.index(jobs.len());
            if transition(jobs[index].status, StatusEvent::Run).is_some() {
                apply(&mut jobs, index, StatusEvent::Run);
                apply(&mut jobs, index, *outcome);
            }
        }
        apply_progress(&mut jobs);
        let (canceled, before_cancel) = (cancel(&jobs), jobs.clone());
        for &index in &canceled {
            apply(&mut jobs, index, StatusEvent::Cancel);
        }
        prop_assert!(jobs.iter().all(|job| job.status.is_done()));
        prop_assert_eq!(progress(&jobs), []);
        prop_assert!(cancel(&jobs).is_empty());
        for index in (0..jobs.len()).filter(|index| !canceled.contains(index)) {
            prop_assert_eq!(jobs[index].status, before_cancel[index].status);
        }
    }

    #[test]
    fn a_played_job_runs_and_the_pipeline_ends_again(
        mut jobs in any_pipeline(),
        outcomes in any_outcomes(),
        which in any::<prop::sample::Index>(),
    ) {
        run(&mut jobs, &outcomes);
        let index = which.index(jobs.len());
        let playable = jobs[index].when == When::Manual && jobs[index].status == Status::Skipped;
        let played = play(&jobs, index);
        prop_assert_eq!(played.is_some(), playable);
        if let Some(reopened) = played {
            apply(&mut jobs, index, StatusEvent::Enqueue);
            for index in reopened {
                apply(&mut jobs, index, StatusEvent::Process);
            }
            run(&mut jobs, &outcomes);
            prop_assert!(matches!(jobs[index].status, Status::Success | Status::Failed | Status::Canceled));
        }
    }

    #[test]
    fn jobs_without_needs_follow_the_stage_table(mut jobs in any_pipeline(), outcomes in any_outcomes()) {
        for job in &mut jobs {
            job.needs = None;
        }
        for (which, outcome) in &outcomes {
            let before = jobs.clone();
            apply_progress(&mut jobs);
            for stage in 0..4 {
                let earlier: Vec<(Status, bool)> =
                    jobs.iter().filter(|job| job.stage < stage).map(|job| (job.status, job.allow_failure)).collect();
                for (job, was) in jobs.iter().zip(&before).filter(|(job, _)| job.stage == stage) {
                    if was.status == Status::Created {
                        let expected = expected_without_needs(expected_status(&earlier), job.when).unwrap_or(Status::Created);
                        prop_assert_eq!(job.status, expected);
                    } else {
                        prop_assert_eq!(job.status, was.status);
                    }
                }
            }
            let index = which.index(jobs.len());
            if transition(jobs[index].status, StatusEvent::Run).is_some() {
                apply(&mut jobs, index, StatusEvent::Run);
                apply(&mut jobs, index, *outcome);
            }
        }
    }

    #[test]
    fn jobs_with_needs_follow_their_needs(mut jobs in any_pipeline(), outcomes in any_outcomes()) {
        for (which, outcome) in &outcomes {
            let before = jobs.clone();
            apply_progress(&mut jobs);
            for (job, _) in jobs.iter().zip(&before).filter(|(_, was)| was.status == Status::Created) {
                if let Some(needs) = &job.needs {
                    let needs: Vec<(Status, bool)> =
                        needs.iter().map(|&need| (jobs[need].status, jobs[need].allow_failure)).collect();
                    prop_assert_eq!(job.status, expected_with_needs(&needs, job.when).unwrap_or(Status::Created));
                }
            }
            let index = which.index(jobs.len());
            if transition(jobs[index].status, StatusEvent::Run).is_some() {
                apply(&mut jobs, index, StatusEvent::Run);
                apply(&mut jobs, index, *outcome);
            }
        }
    }

    #[test]
    fn the_order_of_jobs_does_not_matter(jobs in any_pipeline(), seed in any::<u64>()) {
        let mut forwards = jobs.clone();
        let mut shuffled = jobs;
        shuffle(&mut shuffled, seed);
        let count = |jobs: &mut Vec<JobState>| {
            apply_progress(jobs);
            let mut statuses: Vec<(usize, Status)> = jobs.iter().map(|job| (job.stage, job.status)).collect();
            statuses.sort_unstable();
            statuses
        };
        prop_assert_eq!(count(&mut forwards), count(&mut shuffled));
    }

    #[test]
    fn a_duration_matches_counting_seconds(intervals in vec((0..60_i64, 0..60_i64), 0..8)) {
        let counted = (0..60).filter(|second| intervals.iter().any(|(from, to)| from <= second && second < to)).count();
        prop_assert_eq!(usize::try_from(duration(&intervals)).expect("not negative"), counted);
    }
}
