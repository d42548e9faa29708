//! What holds for every pipeline, whatever its jobs are and whatever happens to them.

use ci::When;
use ci::progress::{JobState, cancel, play, progress, retry};
use ci::status::{Event, Status, compute, duration, step};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn any_when() -> impl Strategy<Value = When> {
    select(vec![When::OnSuccess, When::OnSuccess, When::OnSuccess, When::OnFailure, When::Always, When::Manual])
}

/// A new pipeline: needs point to jobs of the same or an earlier stage and never in a circle, in no order otherwise.
fn any_pipeline() -> impl Strategy<Value = Vec<JobState>> {
    let job = (0..4_usize, any_when(), any::<bool>(), proptest::option::of(vec(any::<prop::sample::Index>(), 0..4)));
    (vec(job, 1..12), any::<u64>()).prop_map(|(mut drawn, seed)| {
        drawn.sort_by_key(|(stage, ..)| *stage);
        let mut jobs: Vec<JobState> = drawn
            .iter()
            .enumerate()
            .map(|(at, (stage, when, allow_failure, needs))| JobState {
                stage: *stage,
                status: Status::Created,
                when: *when,
                allow_failure: *allow_failure,
                needs: needs
                    .as_ref()
                    .map(|needs| if at == 0 { Vec::new() } else { needs.iter().map(|need| need.index(at)).collect() }),
            })
            .collect();
        shuffle(&mut jobs, seed);
        jobs
    })
}

/// Changes the order of jobs, and what their needs point to with it.
fn shuffle(jobs: &mut Vec<JobState>, mut seed: u64) {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    for at in (1..order.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from(seed >> 33).expect("a small number") % (at + 1);
        order.swap(at, other);
    }
    let place = |old: usize| order.iter().position(|&known| known == old).expect("a job");
    *jobs = order
        .iter()
        .map(|&old| {
            let mut job = jobs[old].clone();
            job.needs = job.needs.map(|needs| needs.into_iter().map(place).collect());
            job
        })
        .collect();
}

/// Tells whether everything is done that a job waits for.
fn is_ready(jobs: &[JobState], job: &JobState) -> bool {
    match &job.needs {
        Some(needs) => needs.iter().all(|&need| jobs[need].status.is_done()),
        None => jobs.iter().filter(|other| other.stage < job.stage).all(|other| other.status.is_done()),
    }
}

fn apply(jobs: &mut [JobState], at: usize, event: Event) {
    let before = jobs[at].status;
    let after = step(before, event).unwrap_or_else(|| panic!("{event:?} is impossible at {before:?}"));
    if after == Status::Pending {
        assert!(is_ready(jobs, &jobs[at]), "{at} starts too early: {jobs:#?}");
    }
    jobs[at].status = after;
}

/// Lets follow what follows; that takes one question.
fn go_on(jobs: &mut [JobState]) {
    for (at, event) in progress(jobs) {
        apply(jobs, at, event);
    }
    assert_eq!(progress(jobs), [], "{jobs:#?}");
}

/// Lets runners work until nothing moves any more.
fn run(jobs: &mut [JobState], outcomes: &[(prop::sample::Index, Event)]) {
    let mut outcomes = outcomes.iter().cycle();
    for _ in 0..1000 {
        go_on(jobs);
        let alive: Vec<usize> =
            (0..jobs.len()).filter(|&at| matches!(jobs[at].status, Status::Pending | Status::Running)).collect();
        if alive.is_empty() {
            assert!(jobs.iter().all(|job| job.status.is_done()), "somebody is stuck: {jobs:#?}");
            return;
        }
        let (which, outcome) = outcomes.next().expect("it goes round and round");
        let at = alive[which.index(alive.len())];
        if jobs[at].status == Status::Pending && *outcome != Event::Cancel {
            apply(jobs, at, Event::Run);
        } else {
            apply(jobs, at, *outcome);
        }
    }
    panic!("it never ends: {jobs:#?}");
}

fn any_outcomes() -> impl Strategy<Value = Vec<(prop::sample::Index, Event)>> {
    let outcome = select(vec![Event::Succeed, Event::Succeed, Event::Drop, Event::Cancel]);
    vec((any::<prop::sample::Index>(), outcome), 1..40)
}

/// The table of computed states once more, written as sentences about a list instead of counters.
fn oracle(jobs: &[(Status, bool)]) -> Status {
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

/// What a job without needs does, by the table of the reference and nothing else.
fn turn(before: Status, when: When) -> Option<Status> {
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

/// What a job with needs does, told in the order in which a person would ask.
fn turn_after(needs: &[(Status, bool)], when: When) -> Option<Status> {
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
    fn computed_states_agree_with_the_oracle_in_any_order(
        jobs in vec((select(Status::ALL.to_vec()), any::<bool>()), 0..8),
        seed in any::<prop::sample::Index>(),
    ) {
        let expected = oracle(&jobs);
        prop_assert_eq!(compute(jobs.iter().copied()), expected);
        let mut turned = jobs.clone();
        if !turned.is_empty() {
            let by = seed.index(turned.len());
            turned.rotate_left(by);
        }
        prop_assert_eq!(compute(turned.iter().copied()), expected);
        turned.reverse();
        prop_assert_eq!(compute(turned), expected);
    }

    #[test]
    fn every_pipeline_ends(mut jobs in any_pipeline(), outcomes in any_outcomes()) {
        run(&mut jobs, &outcomes);
        let whole = compute(jobs.iter().map(|job| (job.status, job.allow_failure)));
        prop_assert!(whole.is_done(), "{whole:?}: {jobs:#?}");
    }

    #[test]
    fn a_pipeline_that_is_retried_and_goes_well_is_a_success(mut jobs in any_pipeline(), outcomes in any_outcomes()) {
        run(&mut jobs, &outcomes);
        let again = retry(&jobs);
        for &at in &again.anew {
            prop_assert!(matches!(jobs[at].status, Status::Failed | Status::Canceled));
            jobs[at].status = Status::Created;
        }
        for &at in &again.reopened {
            apply(&mut jobs, at, Event::Process);
        }
        for &at in &again.at_once {
            apply(&mut jobs, at, Event::Enqueue);
        }
        let fortune = [(outcomes[0].0, Event::Succeed)];
        run(&mut jobs, &fortune);
        let whole = compute(jobs.iter().map(|job| (job.status, job.allow_failure)));
        prop_assert!(matches!(whole, Status::Success | Status::Skipped), "{whole:?}: {jobs:#?}");
        prop_assert!(jobs.iter().all(|job| !matches!(job.status, Status::Failed | Status::Canceled)));
        prop_assert!(retry(&jobs).anew.is_empty());
    }

    #[test]
    fn a_pipeline_goes_the_same_way_whether_it_was_retried_or_went_well_at_once(
        mut jobs in any_pipeline(),
        outcomes in any_outcomes(),
    ) {
        let fortune = [(outcomes[0].0, Event::Succeed)];
        let mut lucky = jobs.clone();
        run(&mut lucky, &fortune);
        run(&mut jobs, &outcomes);
        let again = retry(&jobs);
        for &at in &again.anew {
            jobs[at].status = Status::Created;
        }
        for &at in &again.reopened {
            apply(&mut jobs, at, Event::Process);
        }
        for &at in &again.at_once {
            apply(&mut jobs, at, Event::Enqueue);
        }
        run(&mut jobs, &fortune);
        // What ran because of a failure, or did not need to run again, keeps its success.
        for (retried, lucky) in jobs.iter().zip(&lucky) {
            prop_assert!(retried.status == lucky.status || retried.status == Status::Success, "{retried:?} {lucky:?}");
        }
    }

    #[test]
    fn cancel_ends_everything(mut jobs in any_pipeline(), outcomes in any_outcomes(), moves in 0..10_usize) {
        for (which, outcome) in outcomes.iter().take(moves) {
            go_on(&mut jobs);
            let at = which.index(jobs.len());
            if step(jobs[at].status, Event::Run).is_some() {
                apply(&mut jobs, at, Event::Run);
                apply(&mut jobs, at, *outcome);
            }
        }
        go_on(&mut jobs);
        let (canceled, kept) = (cancel(&jobs), jobs.clone());
        for &at in &canceled {
            apply(&mut jobs, at, Event::Cancel);
        }
        prop_assert!(jobs.iter().all(|job| job.status.is_done()));
        prop_assert_eq!(progress(&jobs), []);
        prop_assert!(cancel(&jobs).is_empty());
        for at in (0..jobs.len()).filter(|at| !canceled.contains(at)) {
            prop_assert_eq!(jobs[at].status, kept[at].status);
        }
    }

    #[test]
    fn a_played_job_runs_and_the_pipeline_ends_again(
        mut jobs in any_pipeline(),
        outcomes in any_outcomes(),
        which in any::<prop::sample::Index>(),
    ) {
        run(&mut jobs, &outcomes);
        let at = which.index(jobs.len());
        let playable = jobs[at].when == When::Manual && jobs[at].status == Status::Skipped;
        let played = play(&jobs, at);
        prop_assert_eq!(played.is_some(), playable);
        if let Some(reopened) = played {
            apply(&mut jobs, at, Event::Enqueue);
            for at in reopened {
                apply(&mut jobs, at, Event::Process);
            }
            run(&mut jobs, &outcomes);
            prop_assert!(matches!(jobs[at].status, Status::Success | Status::Failed | Status::Canceled));
        }
    }

    #[test]
    fn without_needs_each_stage_follows_the_table(mut jobs in any_pipeline(), outcomes in any_outcomes()) {
        for job in &mut jobs {
            job.needs = None;
        }
        for (which, outcome) in &outcomes {
            let before = jobs.clone();
            go_on(&mut jobs);
            for stage in 0..4 {
                let earlier: Vec<(Status, bool)> =
                    jobs.iter().filter(|job| job.stage < stage).map(|job| (job.status, job.allow_failure)).collect();
                for (job, was) in jobs.iter().zip(&before).filter(|(job, _)| job.stage == stage) {
                    if was.status == Status::Created {
                        let expected = turn(oracle(&earlier), job.when).unwrap_or(Status::Created);
                        prop_assert_eq!(job.status, expected);
                    } else {
                        prop_assert_eq!(job.status, was.status);
                    }
                }
            }
            let at = which.index(jobs.len());
            if step(jobs[at].status, Event::Run).is_some() {
                apply(&mut jobs, at, Event::Run);
                apply(&mut jobs, at, *outcome);
            }
        }
    }

    #[test]
    fn with_needs_each_job_follows_those(mut jobs in any_pipeline(), outcomes in any_outcomes()) {
        for (which, outcome) in &outcomes {
            let before = jobs.clone();
            go_on(&mut jobs);
            for (job, _) in jobs.iter().zip(&before).filter(|(_, was)| was.status == Status::Created) {
                if let Some(needs) = &job.needs {
                    let needs: Vec<(Status, bool)> =
                        needs.iter().map(|&need| (jobs[need].status, jobs[need].allow_failure)).collect();
                    prop_assert_eq!(job.status, turn_after(&needs, job.when).unwrap_or(Status::Created));
                }
            }
            let at = which.index(jobs.len());
            if step(jobs[at].status, Event::Run).is_some() {
                apply(&mut jobs, at, Event::Run);
                apply(&mut jobs, at, *outcome);
            }
        }
    }

    #[test]
    fn the_order_of_jobs_does_not_matter(jobs in any_pipeline(), seed in any::<u64>()) {
        let mut forwards = jobs.clone();
        let mut shuffled = jobs;
        shuffle(&mut shuffled, seed);
        let count = |jobs: &mut Vec<JobState>| {
            go_on(jobs);
            let mut statuses: Vec<(usize, Status)> = jobs.iter().map(|job| (job.stage, job.status)).collect();
            statuses.sort_unstable();
            statuses
        };
        prop_assert_eq!(count(&mut forwards), count(&mut shuffled));
    }

    #[test]
    fn a_duration_agrees_with_counting(intervals in vec((0..60_i64, 0..60_i64), 0..8)) {
        let counted = (0..60).filter(|second| intervals.iter().any(|(from, to)| from <= second && second < to)).count();
        prop_assert_eq!(usize::try_from(duration(&intervals)).expect("not negative"), counted);
    }
}
