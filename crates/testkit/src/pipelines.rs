//! Pipelines without a push.

use ci::{Circumstances, Config, Event, NoFiles};
use diesel::{
    QueryableByName, RunQueryDsl, sql_query,
    sql_types::{BigInt, Binary, Text},
};
use forge::{
    Caller, ProjectAbility, ProjectRef,
    assignments::{self, Taken},
    pipelines::{self, Start},
};
use model::{Oid, Pipeline, pipelines::Source, tokens::Secret};

use store::Conn;

use crate::TestForge;

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

impl TestForge {
    /// Starts a pipeline of a CI file on branch `master`, whatever the repository holds; says how it is then.
    pub async fn plant_pipeline(&self, project: i64, user: Option<i64>, file: &str) -> Pipeline {
        self.plant_pipeline_at(project, user, "master", Oid([7; 20]), file).await
    }

    /// The same for a branch and a commit.
    pub async fn plant_pipeline_at(
        &self,
        project: i64,
        user: Option<i64>,
        branch: &str,
        sha: Oid,
        file: &str,
    ) -> Pipeline {
        let config = Config::load(file, &NoFiles).expect("a good file");
        let circumstances = Circumstances { ref_name: branch.to_owned(), ..Circumstances::default() };
        let plan = ci::plan(&config, &circumstances).expect("a plan");
        let start = Start {
            ref_name: branch.to_owned(),
            tag: false,
            sha,
            source: if user.is_some() { Source::Push } else { Source::Trigger },
            user,
            trigger: None,
            variables: None,
        };
        let started = self.forge.write(Caller::system(), move |tx| {
            let project = tx.open(&ProjectRef::Id(project), ProjectAbility::ReadProject)?;
            pipelines::start(tx, &project, &start, &plan)
        });
        started.await.expect("a pipeline")
    }

    /// Adds a shared runner behind the forge's back; says its number. Its token opens nothing.
    pub fn plant_runner(&self, description: &str) -> i64 {
        let now = self.forge.now().as_microsecond();
        let text = |yes: &str, no: &str| {
            format!(
                "INSERT INTO runners (seed, digest, description, active, is_shared, run_untagged, locked, tags, \
                 created_at, updated_at) VALUES ($1, $2, $3, {yes}, {yes}, {yes}, {no}, '', $4, $5) RETURNING id"
            )
        };
        macro_rules! insert {
            ($conn:expr, $yes:expr, $no:expr) => {
                sql_query(text($yes, $no))
                    .bind::<Binary, _>(description.as_bytes().to_vec())
                    .bind::<Binary, _>(description.as_bytes().to_vec())
                    .bind::<Text, _>(description)
                    .bind::<BigInt, _>(now)
                    .bind::<BigInt, _>(now)
                    .get_result::<Id>($conn)
            };
        }
        let inserted = self.in_one_go(|db| match db {
            Conn::Sqlite(conn) => insert!(conn, "1", "0"),
            Conn::Pg(conn) => insert!(conn, "TRUE", "FALSE"),
        });
        inserted.expect("a runner").id
    }

    /// Lets something happen to a build; says how its pipeline is then.
    pub async fn let_happen(&self, build: i64, event: Event) -> Pipeline {
        let happened = self.forge.write(Caller::system(), move |tx| pipelines::happen(tx, build, event));
        happened.await.expect("no trouble")
    }

    /// Lets a runner be known by a token.
    pub fn let_runner_show(&self, runner: i64, token: &str) {
        let digest = Secret::new(token.to_owned()).digest().as_bytes().to_vec();
        let text = "UPDATE runners SET digest = $1 WHERE id = $2";
        let changed = self.in_one_go(|db| match db {
            Conn::Sqlite(conn) => sql_query(text).bind::<Binary, _>(digest).bind::<BigInt, _>(runner).execute(conn),
            Conn::Pg(conn) => sql_query(text).bind::<Binary, _>(digest).bind::<BigInt, _>(runner).execute(conn),
        });
        assert_eq!(changed, Ok(1));
    }

    /// Gives a build that waits to a runner; answers the token of the job.
    pub async fn take_build(&self, build: i64, runner: i64) -> String {
        let answer = self.forge.write(Caller::system(), move |tx| assignments::take(tx, build, runner)).await;
        match answer.expect("no trouble") {
            Taken::Token(token) => token.reveal().to_owned(),
            Taken::Gone | Taken::Refused => panic!("no job that waits and may start"),
        }
    }
}
