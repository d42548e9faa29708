//! Background tasks.

use forge::{Caller, Error, tasks, tokens};
use jiff::SignedDuration;
use model::{Scope, Time};
use testkit::TestForge;

async fn records(forge: &TestForge) -> Vec<model::tasks::TaskRecord> {
    forge.forge.read(Caller::system(), tasks::list).await.expect("a list")
}

/// Runs all tasks that are due.
async fn run_due(forge: &TestForge) {
    while tasks::run_next(&forge.forge).await.expect("worked") {}
}

/// Inserts a task of an unknown kind, as a newer version could leave it.
fn insert_unknown_task(forge: &TestForge) {
    let now = forge.forge.now();
    forge.with_connection(|db| store::tasks::insert(db, "from_the_future", "", None, now, now).expect("inserted"));
}

#[tokio::test]
async fn expired_tokens_are_removed_after_a_month() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let day = SignedDuration::from_hours(24);
    forge.client_with_token(&ann, &[Scope::Api], Some(forge.forge.now() + day)).await;
    let count = async || {
        let tokens = forge.forge.read(Caller::system(), |tx| tokens::list(tx, "ann")).await;
        tokens.expect("tokens").len()
    };
    tasks::enqueue_recurring(&forge.forge).await.expect("enqueued");
    tasks::enqueue_recurring(&forge.forge).await.expect("enqueued only once");
    let kinds: Vec<String> = records(&forge).await.into_iter().map(|task| task.kind).collect();
    let expected = [
        "sweep_tokens",
        "sweep_memberships",
        "sweep_uploads",
        "sweep_artifacts",
        "sweep_deliveries",
        "sweep_builds",
        "sweep_packs",
    ];
    assert_eq!(kinds, expected);
    run_due(&forge).await;
    assert_eq!(count().await, 2);
    for _ in 0..32 {
        forge.clock.advance(day);
        run_due(&forge).await;
    }
    assert_eq!(count().await, 1);
    assert_eq!(ann.get("/user").await.code(), 200);
}

#[tokio::test]
async fn a_failing_task_is_retried_with_backoff_and_finally_marked_dead() {
    let forge = TestForge::start().await;
    insert_unknown_task(&forge);
    let mut pauses = Vec::new();
    for attempt in 1..=10 {
        assert!(tasks::run_next(&forge.forge).await.expect("worked"));
        let task = records(&forge).await.remove(0);
        assert_eq!(
            (task.attempts, task.last_error.as_deref()),
            (attempt, Some("unknown kind of task: from_the_future"))
        );
        if task.dead_at.is_none() {
            let pause = task.run_at.duration_since(forge.forge.now());
            pauses.push(pause.as_secs());
            assert!(!tasks::run_next(&forge.forge).await.expect("not due yet"));
            forge.clock.advance(pause);
        }
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512]);
    let task = records(&forge).await.remove(0);
    assert!(task.dead_at.is_some());
    forge.clock.advance(SignedDuration::from_hours(1000));
    assert!(!tasks::run_next(&forge.forge).await.expect("nothing is due"));
    // The operator can list and retry it.
    assert_eq!(forge.forge.read(Caller::system(), tasks::count).await.expect("counts"), (0, 1));
    let id = task.id;
    forge.forge.write(Caller::system(), move |tx| tasks::retry(tx, id)).await.expect("retried");
    assert!(tasks::run_next(&forge.forge).await.expect("worked"));
    let again = forge.forge.write(Caller::system(), move |tx| tasks::retry(tx, id)).await;
    assert!(matches!(again, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn a_task_whose_worker_died_is_taken_over_after_its_lease() {
    let forge = TestForge::start().await;
    insert_unknown_task(&forge);
    let now = forge.forge.now();
    let lease = now + SignedDuration::from_mins(10);
    let claim = |at: Time| {
        forge.with_connection(|db| {
            db.begin_writing().expect("begun");
            let claimed = store::tasks::claim(db, at, at + SignedDuration::from_mins(10)).expect("asked");
            db.commit().expect("committed");
            claimed
        })
    };
    assert_eq!(claim(now).expect("due").leased_until, Some(lease));
    assert!(claim(now + SignedDuration::from_mins(9)).is_none());
    assert_eq!(claim(now + SignedDuration::from_mins(11)).expect("taken over").attempts, 2);
}

#[tokio::test]
async fn a_task_of_a_killed_server_runs_again_when_its_lease_ends() {
    for (task, lease) in [(tasks::Task::SweepStaleJobs, 120), (tasks::Task::SweepTokens, 600)] {
        let forge = TestForge::start().await;
        let now = forge.forge.now();
        let enqueue = move |tx: &mut forge::WriteTx<'_>| tasks::enqueue(tx, &task, now);
        forge.forge.write(Caller::system(), enqueue).await.expect("enqueued");
        assert!(tasks::claim(&forge.forge).await.expect("asked").is_some());
        // The server that has claimed it is gone.
        forge.clock.advance(SignedDuration::from_secs(lease - 1));
        assert!(!tasks::run_next(&forge.forge).await.expect("not due yet"));
        forge.clock.advance(SignedDuration::from_secs(2));
        assert!(tasks::run_next(&forge.forge).await.expect("worked"));
        let task = records(&forge).await.remove(0);
        assert_eq!((task.attempts, task.leased_until, task.dead_at), (0, None, None));
    }
}

#[tokio::test]
async fn a_task_that_crashes_its_workers_is_marked_dead() {
    let forge = TestForge::start().await;
    let lease = SignedDuration::from_mins(10);
    let start = forge.forge.now();
    let sweep = move |tx: &mut forge::WriteTx<'_>| tasks::enqueue(tx, &tasks::Task::SweepTokens, start);
    forge.forge.write(Caller::system(), sweep).await.expect("enqueued");
    for _ in 0..10 {
        let now = forge.forge.now();
        forge.with_connection(|db| store::tasks::claim(db, now, now + lease).expect("asked").expect("due"));
        forge.clock.advance(lease + SignedDuration::from_secs(1));
    }
    assert!(tasks::run_next(&forge.forge).await.expect("worked"));
    let task = records(&forge).await.remove(0);
    assert_eq!(task.last_error.as_deref(), Some("every worker that ran it crashed"));
    assert!(task.dead_at.is_some());
    // A recurring task is enqueued again nevertheless.
    forge.forge.write(Caller::system(), sweep).await.expect("enqueued");
    assert!(tasks::run_next(&forge.forge).await.expect("worked"));
    assert_eq!(forge.forge.read(Caller::system(), tasks::count).await.expect("counts"), (1, 1));
}

#[tokio::test]
async fn tasks_are_visible_to_administrators_only() {
    let forge = TestForge::start().await;
    let listed = forge.forge.read(Caller::anonymous(), tasks::list).await;
    assert!(matches!(listed, Err(Error::Unauthenticated)));
}
