//! The states of jobs, as stories.

use ci::progress::{Again, JobState, cancel, play, progress, retry, retry_one};
use ci::status::{Event, Status, compute, step};
use ci::{When, plan};

use crate::{load, push};

/// The jobs of a pipeline that a test moves.
struct Pipeline {
    names: Vec<String>,
    jobs: Vec<JobState>,
}

impl Pipeline {
    /// A new pipeline of a file, after its first step.
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
        pipeline.go_on();
        pipeline
    }

    fn at(&self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).expect("a job")
    }

    fn go_on(&mut self) {
        for (at, event) in progress(&self.jobs) {
            self.jobs[at].status = step(self.jobs[at].status, event).expect("a possible event");
        }
        assert_eq!(progress(&self.jobs), [], "nothing is left to tell");
    }

    /// Something happens to a job, and the rest follows.
    fn happens(&mut self, name: &str, event: Event) -> &mut Self {
        let at = self.at(name);
        if event != Event::Cancel {
            self.jobs[at].status = step(self.jobs[at].status, Event::Run).expect("a pending job");
        }
        self.jobs[at].status = step(self.jobs[at].status, event).expect("a possible event");
        self.go_on();
        self
    }

    fn again(&mut self, again: &Again) -> &mut Self {
        for &at in &again.anew {
            self.jobs[at].status = Status::Created;
        }
        for &at in &again.at_once {
            self.jobs[at].status = step(self.jobs[at].status, Event::Enqueue).expect("a created job");
        }
        for &at in &again.reopened {
            self.jobs[at].status = step(self.jobs[at].status, Event::Process).expect("a skipped job");
        }
        self.go_on();
        self
    }

    fn check(&self, expected: &str) {
        let jobs: Vec<String> =
            self.names.iter().zip(&self.jobs).map(|(name, job)| format!("{name} {}", job.status.word())).collect();
        let whole = compute(self.jobs.iter().map(|job| (job.status, job.allow_failure)));
        assert_eq!(format!("{}: {}", whole.word(), jobs.join(", ")), expected);
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
    pipeline.happens("build", Event::Succeed).check("running: build success, test pending");
    pipeline.happens("test", Event::Succeed).check("success: build success, test success");
}

#[test]
fn a_failure_skips_what_follows_and_a_retry_brings_it_back() {
    let mut pipeline = Pipeline::start(TWO_STAGES);
    pipeline.happens("build", Event::Drop).check("failed: build failed, test skipped");
    let again = retry(&pipeline.jobs);
    assert_eq!(again, Again { anew: vec![0], at_once: vec![], reopened: vec![1] });
    pipeline.again(&again).check("pending: build pending, test created");
    pipeline.happens("build", Event::Succeed).happens("test", Event::Succeed);
    pipeline.check("success: build success, test success");
    assert_eq!(retry(&pipeline.jobs), Again::default(), "there is nothing to retry");
}

#[test]
fn one_job_is_tried_again_once_it_has_ended() {
    let mut pipeline = Pipeline::start(TWO_STAGES);
    assert_eq!(retry_one(&pipeline.jobs, 0), None);
    pipeline.happens("build", Event::Succeed);
    assert_eq!(retry_one(&pipeline.jobs, 0), Some(Again { anew: vec![0], at_once: vec![0], reopened: vec![] }));
    assert_eq!(retry_one(&pipeline.jobs, 1), None);
    assert_eq!(retry_one(&pipeline.jobs, 7), None);
}

#[test]
fn an_allowed_failure_does_not_matter() {
    let text = "a: {script: a, stage: build, allow_failure: true}\nb: {script: a, stage: build}\nc: {script: a}";
    let mut pipeline = Pipeline::start(text);
    pipeline.happens("a", Event::Drop).check("pending: a failed, b pending, c created");
    pipeline.happens("b", Event::Succeed).check("running: a failed, b success, c pending");
    pipeline.happens("c", Event::Succeed).check("success: a failed, b success, c success");
    let mut lonely = Pipeline::start("a: {script: a, allow_failure: true}");
    lonely.happens("a", Event::Drop).check("success: a failed");
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
    good.happens("build", Event::Succeed);
    good.check("running: build success, on_success pending, on_failure skipped, always pending, manual skipped");
    let mut bad = Pipeline::start(WHENS);
    bad.happens("build", Event::Drop);
    bad.check("running: build failed, on_success skipped, on_failure pending, always pending, manual skipped");
    let mut stopped = Pipeline::start(WHENS);
    stopped.happens("build", Event::Cancel);
    stopped.check("canceled: build canceled, on_success skipped, on_failure skipped, always skipped, manual skipped");
}

#[test]
fn a_stage_of_manual_jobs_stops_nobody_and_stays_playable() {
    let text = "a: {script: a, stage: build, when: manual}\nb: {script: a}";
    let mut pipeline = Pipeline::start(text);
    pipeline.check("pending: a skipped, b pending");
    pipeline.happens("b", Event::Succeed).check("success: a skipped, b success");
    assert_eq!(play(&pipeline.jobs, 0), Some(vec![]));
    assert_eq!(play(&pipeline.jobs, 1), None, "b is not manual");
    pipeline.jobs[0].status = step(Status::Skipped, Event::Enqueue).expect("a played job");
    pipeline.check("running: a pending, b success");
    assert_eq!(play(&pipeline.jobs, 0), None, "it was played");
}

#[test]
fn cancel_ends_everything_that_has_not_ended() {
    let text = format!("{TWO_STAGES}\nother: {{script: a, stage: build}}");
    let mut pipeline = Pipeline::start(&text);
    pipeline.happens("build", Event::Succeed);
    assert_eq!(cancel(&pipeline.jobs), [1, 2]);
    for at in cancel(&pipeline.jobs) {
        pipeline.jobs[at].status = step(pipeline.jobs[at].status, Event::Cancel).expect("a cancelable job");
    }
    pipeline.go_on();
    pipeline.check("canceled: build success, other canceled, test canceled");
    assert!(cancel(&pipeline.jobs).is_empty());
    let again = retry(&pipeline.jobs);
    pipeline.again(&again).check("running: build success, other pending, test created");
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
fn needs_go_before_stages() {
    let mut pipeline = Pipeline::start(NEEDS);
    pipeline.check(
        "pending: linux build pending, mac build pending, lint pending, linux test created, mac test created, \
         report created, deploy created, done created",
    );
    pipeline.happens("linux build", Event::Succeed).happens("linux test", Event::Succeed);
    pipeline.check(
        "running: linux build success, mac build pending, lint pending, linux test success, mac test created, \
         report created, deploy pending, done created",
    );
    pipeline.happens("mac build", Event::Drop).happens("lint", Event::Succeed);
    pipeline.check(
        "running: linux build success, mac build failed, lint success, linux test success, mac test skipped, \
         report pending, deploy pending, done created",
    );
    pipeline.happens("report", Event::Succeed).happens("deploy", Event::Succeed);
    pipeline.check(
        "failed: linux build success, mac build failed, lint success, linux test success, mac test skipped, \
         report success, deploy success, done skipped",
    );
    let again = retry(&pipeline.jobs);
    assert_eq!(again, Again { anew: vec![1], at_once: vec![], reopened: vec![4, 7] });
}

#[test]
fn playing_a_job_reopens_those_that_need_it() {
    let text = "a: {script: a, when: manual}\nb: {script: a, needs: [a]}\nc: {script: a, needs: [b]}\nd: {script: a}";
    let mut pipeline = Pipeline::start(text);
    pipeline.check("pending: a skipped, b skipped, c skipped, d pending");
    let reopened = play(&pipeline.jobs, 0).expect("a playable job");
    assert_eq!(reopened, [1, 2]);
    pipeline.jobs[0].status = Status::Pending;
    pipeline.again(&Again { reopened, ..Again::default() });
    pipeline.check("pending: a pending, b created, c created, d pending");
    pipeline.happens("a", Event::Succeed).check("running: a success, b pending, c created, d pending");
}

#[test]
fn a_retried_job_waits_for_what_is_retried_before_it() {
    let text = "a: {script: a, stage: build}\nb: {script: a, when: on_failure}";
    let mut pipeline = Pipeline::start(text);
    pipeline.happens("a", Event::Drop).happens("b", Event::Drop).check("failed: a failed, b failed");
    let again = retry(&pipeline.jobs);
    pipeline.again(&again).check("pending: a pending, b created");
    pipeline.happens("a", Event::Succeed).check("success: a success, b skipped");
}

#[test]
fn a_manual_job_that_failed_is_tried_again_unless_something_before_it_is_too() {
    let text = "a: {script: a, stage: build}\nb: {script: a, when: manual}\nc: {script: a}";
    let mut pipeline = Pipeline::start(text);
    pipeline.happens("a", Event::Succeed).happens("c", Event::Succeed);
    pipeline.jobs[1].status = Status::Failed;
    let again = retry(&pipeline.jobs);
    assert_eq!(again, Again { anew: vec![1], at_once: vec![1], reopened: vec![] });
    pipeline.again(&again).check("running: a success, b pending, c success");

    pipeline.jobs[0].status = Status::Failed;
    pipeline.jobs[1].status = Status::Failed;
    let again = retry(&pipeline.jobs);
    assert_eq!(again, Again { anew: vec![0, 1], at_once: vec![], reopened: vec![] });
    pipeline.again(&again).happens("a", Event::Succeed).check("success: a success, b skipped, c success");
}

#[test]
fn jobs_of_one_stage_that_need_each_other_are_skipped_together() {
    let count = 300;
    let jobs: Vec<JobState> = (0..count)
        .map(|at| JobState {
            stage: 1,
            status: if at + 1 == count { Status::Failed } else { Status::Created },
            when: When::OnSuccess,
            allow_failure: false,
            needs: (at + 1 < count).then(|| vec![at + 1]),
        })
        .collect();
    let events = progress(&jobs);
    assert_eq!(events.len(), count - 1);
    assert!(events.iter().all(|(_, event)| *event == Event::Skip));
}
