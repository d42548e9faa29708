//! Transitions of the jobs of a pipeline.

use ci::progress::{JobState, RetryPlan, cancel, play, progress, retry, retry_one};
use ci::status::{Status, StatusEvent, combine, transition};
use ci::{When, plan};

use crate::{load, push};

/// The jobs of a pipeline under test.
struct Pipeline {
    names: Vec<String>,
    jobs: Vec<JobState>,
}

impl Pipeline {
    /// Plans a new pipeline and applies its first events.
    fn start(text: &str) -> Self {
        let plan = plan(&load(text), &push("main")).expect("a plan");
        let names = plan.jobs.iter().map(|job| job.name.clone()).collect();
        let jobs = plan
            .jobs
            .iter()
            .map(|job| JobState {
                stage: job.stage_index,
                status: Status::Created,
                when: job.when,
                allow_failure: job.allow_failure.tolerates(Some(1)),
                needs: job.needs.as_ref().map(|needs| needs.iter().map(|need| need.job).collect()),
            })
            .collect();
        let mut pipeline = Self { names, jobs };
        pipeline.apply_progress();
        pipeline
    }

    fn index_of(&self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).expect("a job")
    }

    fn apply_progress(&mut self) {
        for (index, event) in progress(&self.jobs) {
            self.jobs[index].status = transition(self.jobs[index].status, event).expect("a possible event");
        }
        assert_eq!(progress(&self.jobs), [], "a second call returns nothing");
    }

    /// Finishes a job with an event and applies what follows.
    fn finish_job(&mut self, name: &str, event: StatusEvent) -> &mut Self {
        let index = self.index_of(name);
        if event != StatusEvent::Cancel {
            self.jobs[index].status = transition(self.jobs[index].status, StatusEvent::Run).expect("a pending job");
        }
        self.jobs[index].status = transition(self.jobs[index].status, event).expect("a possible event");
        self.apply_progress();
        self
    }

    fn apply_retry(&mut self, retry_plan: &RetryPlan) -> &mut Self {
        for &index in &retry_plan.recreated {
            self.jobs[index].status = Status::Created;
        }
        for &index in &retry_plan.enqueued {
            self.jobs[index].status = transition(self.jobs[index].status, StatusEvent::Enqueue).expect("a created job");
        }
        for &index in &retry_plan.reopened {
            self.jobs[index].status = transition(self.jobs[index].status, StatusEvent::Process).expect("a skipped job");
        }
        self.apply_progress();
        self
    }

    fn check(&self, expected: &str) {
        let jobs: Vec<String> =
            self.names.iter().zip(&self.jobs).map(|(name, job)| format!("{name} {}", job.status.as_str())).collect();
        let whole = combine(self.jobs.iter().map(|job| (job.status, job.allow_failure)));
        assert_eq!(format!("{}: {}", whole.as_str(), jobs.join(", ")), expected);
    }
}

const TWO_STAGES: &str = "
build: {script: a, stage: build}
test: {script: a, stage: test}
";

#[test]
fn stages_follow_each_other() {
    let mut pipeline = Pipeline::start(TWO_STAGES);
    pipeline.check("pending: build pending, test created");
    pipeline.finish_job("build", StatusEvent::Succeed).check("running: build success, test pending");
    pipeline.finish_job("test", StatusEvent::Succeed).check("success: build success, test success");
}

#[test]
fn a_failure_skips_later_stages_and_a_retry_reopens_them() {
    let mut pipeline = Pipeline::start(TWO_STAGES);
    pipeline.finish_job("build", StatusEvent::Drop).check("failed: build failed, test skipped");
    let retry_plan = retry(&pipeline.jobs);
    assert_eq!(retry_plan, RetryPlan { recreated: vec![0], enqueued: vec![], reopened: vec![1] });
    pipeline.apply_retry(&retry_plan).check("pending: build pending, test created");
    pipeline.finish_job("build", StatusEvent::Succeed).finish_job("test", StatusEvent::Succeed);
    pipeline.check("success: build success, test success");
    assert_eq!(retry(&pipeline.jobs), RetryPlan::default(), "there is nothing to retry");
}

#[test]
fn a_single_job_is_retried_once_it_has_ended() {
    let mut pipeline = Pipeline::start(TWO_STAGES);
    assert_eq!(retry_one(&pipeline.jobs, 0), None);
    pipeline.finish_job("build", StatusEvent::Succeed);
    assert_eq!(
        retry_one(&pipeline.jobs, 0),
        Some(RetryPlan { recreated: vec![0], enqueued: vec![0], reopened: vec![] })
    );
    assert_eq!(retry_one(&pipeline.jobs, 1), None);
    assert_eq!(retry_one(&pipeline.jobs, 7), None);
}

#[test]
fn an_allowed_failure_does_not_fail_the_pipeline() {
    let text = "a: {script: a, stage: build, allow_failure: true}\nb: {script: a, stage: build}\nc: {script: a}";
    let mut pipeline = Pipeline::start(text);
    pipeline.finish_job("a", StatusEvent::Drop).check("pending: a failed, b pending, c created");
    pipeline.finish_job("b", StatusEvent::Succeed).check("running: a failed, b success, c pending");
    pipeline.finish_job("c", StatusEvent::Succeed).check("success: a failed, b success, c success");
    let mut single = Pipeline::start("a: {script: a, allow_failure: true}");
    single.finish_job("a", StatusEvent::Drop).check("success: a failed");
}

const WHENS: &str = "
build: {script: a, stage: build}
on_success: {script: a}
on_failure: {script: a, when: on_failure}
always: {script: a, when: always}
manual: {script: a, when: manual}
";

#[test]
fn when_decides_what_a_job_waits_for() {
    let mut good = Pipeline::start(WHENS);
    good.finish_job("build", StatusEvent::Succeed);
    good.check("running: build success, on_success pending, on_failure skipped, always pending, manual skipped");
    let mut bad = Pipeline::start(WHENS);
    bad.finish_job("build", StatusEvent::Drop);
    bad.check("running: build failed, on_success skipped, on_failure pending, always pending, manual skipped");
    let mut stopped = Pipeline::start(WHENS);
    stopped.finish_job("build", StatusEvent::Cancel);
    stopped.check("canceled: build canceled, on_success skipped, on_failure skipped, always skipped, manual skipped");
}

#[test]
fn a_stage_of_manual_jobs_does_not_block_and_stays_playable() {
    let text = "a: {script: a, stage: build, when: manual}\nb: {script: a}";
    let mut pipeline = Pipeline::start(text);
    pipeline.check("pending: a skipped, b pending");
    pipeline.finish_job("b", StatusEvent::Succeed).check("success: a skipped, b success");
    assert_eq!(play(&pipeline.jobs, 0), Some(vec![]));
    assert_eq!(play(&pipeline.jobs, 1), None, "b is not manual");
    pipeline.jobs[0].status = transition(Status::Skipped, StatusEvent::Enqueue).expect("a played job");
    pipeline.check("running: a pending, b success");
    assert_eq!(play(&pipeline.jobs, 0), None, "it was played");
}

#[test]
fn cancel_ends_everything_that_has_not_ended() {
    let text = format!("{TWO_STAGES}\nother: {{script: a, stage: build}}");
    let mut pipeline = Pipeline::start(&text);
    pipeline.finish_job("build", StatusEvent::Succeed);
    assert_eq!(cancel(&pipeline.jobs), [1, 2]);
    for index in cancel(&pipeline.jobs) {
        pipeline.jobs[index].status =
            transition(pipeline.jobs[index].status, StatusEvent::Cancel).expect("a cancelable job");
    }
    pipeline.apply_progress();
    pipeline.check("canceled: build success, other canceled, test canceled");
    assert!(cancel(&pipeline.jobs).is_empty());
    let retry_plan = retry(&pipeline.jobs);
    pipeline.apply_retry(&retry_plan).check("running: build success, other pending, test created");
}

const NEEDS: &str = "
linux build: {script: a, stage: build}
mac build: {script: a, stage: build}
lint: {script: a, needs: []}
linux test: {script: a, needs: [linux build]}
mac test: {script: a, needs: [mac build]}
report: {script: a, needs: [mac test], when: always}
deploy: {script: a, stage: deploy, needs: [linux test]}
done: {script: a, stage: deploy}
";

#[test]
fn needs_take_precedence_over_stages() {
    let mut pipeline = Pipeline::start(NEEDS);
    pipeline.check(
        "pending: linux build pending, mac build pending, lint pending, linux test created, mac test created, \
         report created, deploy created, done created",
    );
    pipeline.finish_job("linux build", StatusEvent::Succeed).finish_job("linux test", StatusEvent::Succeed);
    pipeline.check(
        "running: linux build success, mac build pending, lint pending, linux test success, mac test created, \
         report created, deploy pending, done created",
    );
    pipeline.finish_job("mac build", StatusEvent::Drop).finish_job("lint", StatusEvent::Succeed);
    pipeline.check(
        "running: linux build success, mac build failed, lint success, linux test success, mac test skipped, \
         report pending, deploy pending, done created",
    );
    pipeline.finish_job("report", StatusEvent::Succeed).finish_job("deploy", StatusEvent::Succeed);
    pipeline.check(
        "failed: linux build success, mac build failed, lint success, linux test success, mac test skipped, \
         report success, deploy success, done skipped",
    );
    let retry_plan = retry(&pipeline.jobs);
    assert_eq!(retry_plan, RetryPlan { recreated: vec![1], enqueued: vec![], reopened: vec![4, 7] });
}

#[test]
fn playing_a_job_reopens_those_that_need_it() {
    let text = "a: {script: a, when: manual}\nb: {script: a, needs: [a]}\nc: {script: a, needs: [b]}\nd: {script: a}";
    let mut pipeline = Pipeline::start(text);
    pipeline.check("pending: a skipped, b skipped, c skipped, d pending");
    let reopened = play(&pipeline.jobs, 0).expect("a playable job");
    assert_eq!(reopened, [1, 2]);
    pipeline.jobs[0].status = Status::Pending;
    pipeline.apply_retry(&RetryPlan { reopened, ..RetryPlan::default() });
    pipeline.check("pending: a pending, b created, c created, d pending");
    pipeline.finish_job("a", StatusEvent::Succeed).check("running: a success, b pending, c created, d pending");
}

#[test]
fn a_retried_job_waits_for_what_is_retried_before_it() {
    let text = "a: {script: a, stage: build}\nb: {script: a, when: on_failure}";
    let mut pipeline = Pipeline::start(text);
    pipeline.finish_job("a", StatusEvent::Drop).finish_job("b", StatusEvent::Drop).check("failed: a failed, b failed");
    let retry_plan = retry(&pipeline.jobs);
    pipeline.apply_retry(&retry_plan).check("pending: a pending, b created");
    pipeline.finish_job("a", StatusEvent::Succeed).check("success: a success, b skipped");
}

#[test]
fn a_failed_manual_job_is_retried_unless_a_job_before_it_is_too() {
    let text = "a: {script: a, stage: build}\nb: {script: a, when: manual}\nc: {script: a}";
    let mut pipeline = Pipeline::start(text);
    pipeline.finish_job("a", StatusEvent::Succeed).finish_job("c", StatusEvent::Succeed);
    pipeline.jobs[1].status = Status::Failed;
    let retry_plan = retry(&pipeline.jobs);
    assert_eq!(retry_plan, RetryPlan { recreated: vec![1], enqueued: vec![1], reopened: vec![] });
    pipeline.apply_retry(&retry_plan).check("running: a success, b pending, c success");

    pipeline.jobs[0].status = Status::Failed;
    pipeline.jobs[1].status = Status::Failed;
    let retry_plan = retry(&pipeline.jobs);
    assert_eq!(retry_plan, RetryPlan { recreated: vec![0, 1], enqueued: vec![], reopened: vec![] });
    pipeline
        .apply_retry(&retry_plan)
        .finish_job("a", StatusEvent::Succeed)
        .check("success: a success, b skipped, c success");
}

#[test]
fn jobs_of_one_stage_that_need_each_other_are_skipped_together() {
    let count = 300;
    let jobs: Vec<JobState> = (0..count)
        .map(|index| JobState {
            stage: 1,
            status: if index + 1 == count { Status::Failed } else { Status::Created },
            when: When::OnSuccess,
            allow_failure: false,
            needs: (index + 1 < count).then(|| vec![index + 1]),
        })
        .collect();
    let events = progress(&jobs);
    assert_eq!(events.len(), count - 1);
    assert!(events.iter().all(|(_, event)| *event == StatusEvent::Skip));
}
