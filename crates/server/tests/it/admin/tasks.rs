//! Work in the background.

use forge::{Caller, Error, tasks, tokens};
use jiff::SignedDuration;
use model::{Scope, Time};
use testkit::TestForge;

async fn records(forge: &TestForge) -> Vec<model::tasks::TaskRecord> {
    forge.forge.read(Caller::system(), tasks::list).await.expect("a list")
}

/// Does everything that is due.
async fn work(forge: &TestForge) {
    while tasks::work_once(&forge.forge).await.expect("worked") {}
}

/// A job of a kind that this version does not know, as a newer version would leave it.
fn plant_unknown(forge: &TestForge) {
    let now = forge.forge.now();
    forge.behind_the_back(|db| store::tasks::insert(db, "from_the_future", "", None, now, now).expect("planted"));
}

#[tokio::test]
async fn dead_tokens_are_forgotten_after_a_month_day_by_day() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let day = SignedDuration::from_hours(24);
    forge.with_token(&ann, &[Scope::Api], Some(forge.forge.now() + day)).await;
    let count = async || {
        let tokens = forge.forge.read(Caller::system(), |tx| tokens::list(tx, "ann")).await;
        tokens.expect("tokens").len()
    };
    tasks::enqueue_recurring(&forge.forge).await.expect("written down");
    tasks::enqueue_recurring(&forge.forge).await.expect("written down once");
    let kinds: Vec<String> = records(&forge).await.into_iter().map(|task| task.kind).collect();
    let expected = [
        "sweep_tokens",
        "sweep_memberships",
        "sweep_uploads",
        "sweep_artifacts",
        "sweep_deliveries",
        "sweep_builds",
        "settle_pushes",
    ];
    assert_eq!(kinds, expected);
    work(&forge).await;
    assert_eq!(count().await, 2);
    for _ in 0..32 {
        forge.clock.advance(day);
        work(&forge).await;
    }
    assert_eq!(count().await, 1);
    assert_eq!(ann.get("/user").await.code(), 200);
}

#[tokio::test]
async fn a_job_that_fails_is_tried_again_later_and_given_up_in_the_end() {
    let forge = TestForge::start().await;
    plant_unknown(&forge);
    let mut pauses = Vec::new();
    for attempt in 1..=10 {
        assert!(tasks::work_once(&forge.forge).await.expect("worked"));
        let task = records(&forge).await.remove(0);
        assert_eq!(
            (task.attempts, task.last_error.as_deref()),
            (attempt, Some("unknown kind of job: from_the_future"))
        );
        if task.dead_at.is_none() {
            let pause = task.run_at.duration_since(forge.forge.now());
            pauses.push(pause.as_secs());
            assert!(!tasks::work_once(&forge.forge).await.expect("not due yet"));
            forge.clock.advance(pause);
        }
    }
    assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 512]);
    let task = records(&forge).await.remove(0);
    assert!(task.dead_at.is_some());
    forge.clock.advance(SignedDuration::from_hours(1000));
    assert!(!tasks::work_once(&forge.forge).await.expect("nothing is due"));
    // The operator sees it and can bring it back.
    assert_eq!(forge.forge.read(Caller::system(), tasks::count).await.expect("counts"), (0, 1));
    let id = task.id;
    forge.forge.write(Caller::system(), move |tx| tasks::retry(tx, id)).await.expect("brought back");
    assert!(tasks::work_once(&forge.forge).await.expect("worked"));
    let again = forge.forge.write(Caller::system(), move |tx| tasks::retry(tx, id)).await;
    assert!(matches!(again, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn a_job_whose_worker_died_is_taken_over_after_its_lease() {
    let forge = TestForge::start().await;
    plant_unknown(&forge);
    let now = forge.forge.now();
    let lease = now + SignedDuration::from_mins(10);
    let claim = |at: Time| {
        forge.behind_the_back(|db| {
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

/// A job that takes its worker down with it is given up like any other.
#[tokio::test]
async fn a_job_that_kills_its_workers_is_given_up() {
    let forge = TestForge::start().await;
    let lease = SignedDuration::from_mins(10);
    let start = forge.forge.now();
    let sweep = move |tx: &mut forge::WriteTx<'_>| tasks::enqueue(tx, &tasks::Task::SweepTokens, start);
    forge.forge.write(Caller::system(), sweep).await.expect("written down");
    for _ in 0..10 {
        let now = forge.forge.now();
        forge.behind_the_back(|db| store::tasks::claim(db, now, now + lease).expect("asked").expect("due"));
        forge.clock.advance(lease + SignedDuration::from_secs(1));
    }
    assert!(tasks::work_once(&forge.forge).await.expect("worked"));
    let task = records(&forge).await.remove(0);
    assert_eq!(task.last_error.as_deref(), Some("every worker that took it died"));
    assert!(task.dead_at.is_some());
    // A recurring one comes back all the same.
    forge.forge.write(Caller::system(), sweep).await.expect("written down");
    assert!(tasks::work_once(&forge.forge).await.expect("worked"));
    assert_eq!(forge.forge.read(Caller::system(), tasks::count).await.expect("counts"), (1, 1));
}

#[tokio::test]
async fn jobs_are_for_administrators() {
    let forge = TestForge::start().await;
    let listed = forge.forge.read(Caller::anonymous(), tasks::list).await;
    assert!(matches!(listed, Err(Error::Unauthenticated)));
}
