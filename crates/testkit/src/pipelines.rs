//! Starts pipelines without a push, and assigns their jobs.

use ci::{Config, NoFiles, PipelineContext, StatusEvent};
use forge::{
    Caller, ProjectAbility, ProjectRef,
    job_queue::{self, AssignOutcome},
    pipelines::{self, StartPipeline},
};
use model::{
    JobId, Oid, Pipeline, ProjectId, RunnerId, UserId,
    pipelines::Source,
    projects::TokenSeed,
    runners::RunnerInfo,
    tokens::{Digest, Secret},
};
use store::{instance::SeededToken, runners::NewRunner};

use crate::TestForge;

impl TestForge {
    /// Starts a pipeline with this CI file on branch `master`, regardless of the repository, and returns it.
    pub async fn start_pipeline(&self, project: ProjectId, user: Option<UserId>, file: &str) -> Pipeline {
        self.start_pipeline_at(project, user, "master", Oid([7; 20]), file).await
    }

    /// Starts a pipeline with this CI file for a branch and a commit.
    pub async fn start_pipeline_at(
        &self,
        project: ProjectId,
        user: Option<UserId>,
        branch: &str,
        sha: Oid,
        file: &str,
    ) -> Pipeline {
        let config = Config::load(file, &NoFiles).expect("a good file");
        let pipeline_context = PipelineContext { ref_name: branch.to_owned(), ..PipelineContext::default() };
        let plan = ci::plan(&config, &pipeline_context).expect("a plan");
        let start = StartPipeline {
            ref_name: branch.to_owned(),
            tag: false,
            sha,
            source: if user.is_some() { Source::Push } else { Source::Trigger },
            user,
            trigger: None,
            variables: None,
        };
        let started = self.forge.write(Caller::system(), move |tx| {
            let project = tx.project(&ProjectRef::Id(project), ProjectAbility::ReadProject)?;
            pipelines::start(tx, &project, &start, &plan)
        });
        started.await.expect("a pipeline")
    }

    /// Inserts a shared runner and returns its ID. Its token is not valid.
    pub fn insert_runner(&self, description: &str) -> RunnerId {
        let now = self.forge.now();
        let seed = TokenSeed(description.as_bytes().to_vec());
        let new = NewRunner {
            seed: &seed,
            digest: Digest::of(&format!("runner {description}")),
            description,
            active: true,
            is_shared: true,
            run_untagged: true,
            locked: false,
            tags: &[],
            maximum_timeout: None,
            info: &RunnerInfo::default(),
        };
        self.in_transaction(|db| store::runners::insert(db, &new, now).expect("a runner"))
    }

    /// Applies an event to a job and returns its pipeline.
    pub async fn apply_job_event(&self, job: JobId, event: StatusEvent) -> Pipeline {
        let applied = self.forge.write(Caller::system(), move |tx| pipelines::apply_event(tx, job, event));
        applied.await.expect("no trouble")
    }

    /// Sets the token of a runner.
    pub fn set_runner_token(&self, runner: RunnerId, token: &str) {
        let digest = Secret::new(token.to_owned()).digest();
        self.in_transaction(|db| {
            store::instance::set_digest(db, SeededToken::Runners, runner.get(), digest.as_bytes()).expect("set");
        });
    }

    /// Assigns a pending job to a runner and returns the job token.
    pub async fn assign_job(&self, job: JobId, runner: RunnerId) -> String {
        let outcome = self.forge.write(Caller::system(), move |tx| job_queue::assign(tx, job, runner)).await;
        match outcome.expect("no trouble") {
            AssignOutcome::Assigned(token) => token.reveal().to_owned(),
            AssignOutcome::Unavailable | AssignOutcome::Refused => panic!("the job is not pending or may not start"),
        }
    }
}
