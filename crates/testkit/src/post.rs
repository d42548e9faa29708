//! Hooks straight into the database, and whoever brings them messages.

use std::sync::Arc;

use diesel::{
    QueryableByName, RunQueryDsl, sql_query,
    sql_types::{BigInt, Binary, Nullable, Text},
};
use forge::deliveries::{self, Ended, Notes, Report, Room};
use model::{EventKind, hooks::Attempt};
use store::{Conn, webhook_events::NewHookEvent};
use tokio::{sync::watch, task::JoinHandle};
use webhooks::{
    Client as Courier,
    rounds::{self, Limits, Sender},
};

use crate::{TestForge, clock::TestSecrets};

#[derive(QueryableByName)]
struct Id {
    #[diesel(sql_type = BigInt)]
    id: i64,
}

/// Rounds that go on in the background of a test.
pub struct RunningRounds {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningRounds {
    /// Tells them to stop, and waits until they have.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        self.task.await.expect("the rounds end well");
    }

    /// Ends them at once, as a crash would.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl TestForge {
    /// Adds a hook that wants to hear of everything, behind the forge's back; says its number.
    pub fn plant_hook(&self, project: Option<i64>, url: &str, token: Option<&str>) -> i64 {
        let secrets = TestSecrets::default();
        let seal = |text: &str| self.ground.instance_key.seal(project.unwrap_or(0), text.as_bytes(), &secrets);
        let (url_sealed, token, now) = (seal(url), token.map(seal), self.forge.now().as_microsecond());
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or(rest);
        let receiver = authority.rsplit('@').next().unwrap_or(authority).to_owned();
        let text = |yes: &str| {
            format!(
                "INSERT INTO hooks (project_id, url, token, receiver, enable_ssl_verification, push_events, \
                 tag_push_events, issues_events, confidential_issues_events, merge_requests_events, note_events, \
                 build_events, pipeline_events, wiki_page_events, created_at, updated_at) \
                 VALUES ($1, $2, $3, $4, {}, $5, $6) RETURNING id",
                [yes; 10].join(", ")
            )
        };
        macro_rules! insert {
            ($conn:expr, $yes:expr) => {
                sql_query(text($yes))
                    .bind::<Nullable<BigInt>, _>(project)
                    .bind::<Binary, _>(url_sealed)
                    .bind::<Nullable<Binary>, _>(token)
                    .bind::<Text, _>(receiver)
                    .bind::<BigInt, _>(now)
                    .bind::<BigInt, _>(now)
                    .get_result::<Id>($conn)
            };
        }
        let inserted = self.behind_the_back(|db| match db {
            Conn::Sqlite(conn) => insert!(conn, "1"),
            Conn::Pg(conn) => insert!(conn, "TRUE"),
        });
        inserted.expect("a hook").id
    }

    /// Writes down that there is something to tell, behind the forge's back: nobody is rung up. Says its number.
    pub fn plant_event(&self, occasion: EventKind, project: Option<i64>, payload: &str) -> i64 {
        let now = self.forge.now();
        let new = NewHookEvent {
            occasion,
            project,
            depth: 0,
            seed: payload,
            intent: None,
            ref_name: None,
            payload,
            waiting: true,
            now,
        };
        self.behind_the_back(|db| store::webhook_events::insert(db, &new).expect("an event"))
    }

    /// Brings everything that is due, one after the other, and says how each attempt went.
    pub async fn deliver_all(&self) -> Vec<Attempt> {
        self.deliver_with(&Courier::new().expect("a client")).await
    }

    /// As [`Self::deliver_all`], with another sender.
    pub async fn deliver_with(&self, sender: &impl Sender) -> Vec<Attempt> {
        let mut notes = Notes::default();
        let mut attempts = Vec::new();
        loop {
            let room = Room {
                lanes: 1000,
                failing: 1000,
                bytes: usize::MAX,
                per_receiver: 1000,
                per_project: 1000,
                ..Room::none()
            };
            let work = deliveries::turn(&self.forge, Arc::new(notes), room).await.expect("a turn");
            if work.lanes.is_empty() && work.next.is_none_or(|next| next > self.forge.now()) {
                return attempts;
            }
            notes = Notes::default();
            for lane in work.lanes {
                for letter in &lane.letters {
                    let at = self.forge.now();
                    let attempt = Attempt { at, ..sender.send(&lane.address, letter).await };
                    let goes_on = deliveries::goes_on(&attempt.outcome);
                    attempts.push(attempt.clone());
                    notes.reports.push(Report { hook: lane.hook, delivery: letter.delivery, attempt });
                    if !goes_on {
                        break;
                    }
                }
                notes.ended.push(Ended { hook: lane.hook, lease: lane.lease });
            }
        }
    }

    /// Lets the real rounds go on in the background.
    pub fn start_rounds(&self, sender: impl Sender, limits: Limits) -> RunningRounds {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(rounds::run(self.forge.clone(), sender, limits, stopped));
        RunningRounds { stop, task }
    }
}
