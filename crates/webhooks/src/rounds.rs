//! The rounds of the courier: takes from the desk what is due, brings it, and reports.
//!
//! Lanes are walked at the same time, each by a task of its own; nothing that one receiver does delays another. How many
//! there are is limited over all, for each receiver, and for those whose last attempt failed.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use forge::{
    Forge,
    deliveries::{self, Address, Ended, Lane, Letter, Notes, Report, Room},
};
use model::{
    Time,
    hooks::{Attempt, Outcome},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, sleep_until, timeout},
};
use tracing::error;

use crate::Client;

/// How long the desk is left alone when nothing is known to be due: other processes write, too.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// For how long a lane sends one message after the other, and how long one may take whatever the sender says. Together
/// they are shorter than the lease on a lane.
const LONGEST_WALK: Duration = Duration::from_secs(25);
const LONGEST_SEND: Duration = Duration::from_secs(20);
/// How long lanes that are under way have when the rounds stop.
const GRACE: Duration = Duration::from_secs(5);
/// How often the last reports are tried to be written down when the rounds stop.
const LAST_TRIES: u32 = 3;
/// How many reports are taken to the desk at once.
const REPORTS_AT_ONCE: usize = 1024;

/// Sends one message to one receiver.
pub trait Sender: Clone + Send + Sync + 'static {
    /// Sends it, and tells how that went.
    fn send(&self, address: &Address, letter: &Letter) -> impl Future<Output = Attempt> + Send;
}

impl Sender for Client {
    async fn send(&self, address: &Address, letter: &Letter) -> Attempt {
        Self::send(self, address, letter).await
    }
}

/// How much is done at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many lanes are under way.
    pub lanes: usize,
    /// How many of them lead to one receiver.
    pub per_receiver: usize,
    /// How many of them belong to one project.
    pub per_project: usize,
    /// How many of them are lanes whose last attempt failed.
    pub failing: usize,
    /// How many bytes of messages are held.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lanes: 256, per_receiver: 16, per_project: 32, failing: 64, bytes: 32 << 20 }
    }
}

/// Brings messages to hooks until told to stop. What is under way then has a few seconds; what is not delivered by then
/// waits for the next start.
pub async fn run(forge: Forge, sender: impl Sender, limits: Limits, mut stop: watch::Receiver<bool>) {
    let (news, mut inbox) = mpsc::unbounded_channel();
    let mut rounds =
        Rounds { forge, sender, limits, stop: stop.clone(), news, tasks: JoinSet::new(), under_way: HashMap::new() };
    let mut desk = Desk::default();
    let mut heard = Vec::new();
    while !*stop.borrow_and_update() {
        let room = rounds.room();
        let wait = match desk.turn(&rounds.forge, room).await {
            Ok(work) => {
                for lane in work.lanes {
                    rounds.set_out(lane);
                }
                work.next.map_or(LONGEST_PAUSE, |next| until(next, rounds.forge.now()))
            }
            Err(error) => {
                error!(%error, "cannot note or look up what hooks are told; it is tried again");
                sleep(LONGEST_PAUSE).await;
                Duration::ZERO
            }
        };
        if desk.has_more() {
            continue;
        }
        tokio::select! {
            _ = inbox.recv_many(&mut heard, REPORTS_AT_ONCE) => {}
            () = deliveries::rung(&rounds.forge) => {}
            () = sleep(wait) => {}
            _ = stop.changed() => {}
        }
        rounds.hear(&mut heard, &mut desk);
    }
    rounds.stop(inbox, desk).await;
}

/// How long to wait for a moment, at most for the longest pause.
fn until(moment: Time, now: Time) -> Duration {
    Duration::try_from(moment.duration_since(now)).unwrap_or_default().min(LONGEST_PAUSE)
}

/// What a lane has to say.
enum News {
    /// An attempt was made.
    Tried(Report),
    /// Nobody is at it any more.
    Ended(Ended),
}

/// What is to be told at the desk.
#[derive(Default)]
struct Desk {
    notes: Notes,
    /// What was told and could not be written down.
    unheard: Option<Arc<Notes>>,
}

impl Desk {
    /// Takes a turn. What could not be written down is told again, before anything else.
    async fn turn(&mut self, forge: &Forge, room: Room) -> forge::Result<deliveries::Work> {
        let notes = self.unheard.take().unwrap_or_else(|| Arc::new(std::mem::take(&mut self.notes)));
        let turn = deliveries::turn(forge, Arc::clone(&notes), room).await;
        if turn.is_err() && !notes.is_empty() {
            self.unheard = Some(notes);
        }
        turn
    }

    fn has_more(&self) -> bool {
        self.unheard.is_some() || !self.notes.is_empty()
    }
}

/// A lane that is under way.
struct UnderWay {
    project: Option<i64>,
    receiver: String,
    failing: bool,
    bytes: usize,
}

struct Rounds<S> {
    forge: Forge,
    sender: S,
    limits: Limits,
    stop: watch::Receiver<bool>,
    news: mpsc::UnboundedSender<News>,
    tasks: JoinSet<()>,
    under_way: HashMap<i64, UnderWay>,
}

impl<S: Sender> Rounds<S> {
    /// What there is still room for.
    fn room(&self) -> Room {
        let (mut busy, mut busy_projects) = (HashMap::new(), HashMap::new());
        let (mut failing, mut bytes) = (0, 0_usize);
        for lane in self.under_way.values() {
            *busy.entry(lane.receiver.clone()).or_default() += 1;
            if let Some(project) = lane.project {
                *busy_projects.entry(project).or_default() += 1;
            }
            failing += usize::from(lane.failing);
            bytes = bytes.saturating_add(lane.bytes);
        }
        Room {
            lanes: self.limits.lanes.saturating_sub(self.under_way.len()),
            failing: self.limits.failing.saturating_sub(failing),
            bytes: self.limits.bytes.saturating_sub(bytes),
            busy,
            per_receiver: self.limits.per_receiver,
            busy_projects,
            per_project: self.limits.per_project,
        }
    }

    /// Lets somebody walk a lane.
    fn set_out(&mut self, lane: Lane) {
        let bytes = lane.letters.iter().map(|letter| letter.body.len()).sum();
        let (project, receiver) = (lane.project, lane.receiver.clone());
        self.under_way.insert(lane.hook, UnderWay { project, receiver, failing: lane.failing, bytes });
        let (forge, sender, stop) = (self.forge.clone(), self.sender.clone(), self.stop.clone());
        let walk = Walk { news: self.news.clone(), ended: Ended { hook: lane.hook, lease: lane.lease } };
        self.tasks.spawn(async move { walk.along(&forge, &sender, lane, &stop).await });
    }

    /// Takes in what lanes have to say.
    fn hear(&mut self, heard: &mut Vec<News>, desk: &mut Desk) {
        while self.tasks.try_join_next().is_some() {}
        for news in heard.drain(..) {
            match news {
                News::Tried(report) => desk.notes.reports.push(report),
                News::Ended(ended) => {
                    self.under_way.remove(&ended.hook);
                    desk.notes.ended.push(ended);
                }
            }
        }
    }

    /// Waits a while for the lanes that are under way, and writes down how they went.
    async fn stop(mut self, mut inbox: mpsc::UnboundedReceiver<News>, mut desk: Desk) {
        let deadline = tokio::time::Instant::now() + GRACE;
        let all_home = async { while self.tasks.join_next().await.is_some() {} };
        tokio::select! {
            () = all_home => {}
            () = sleep_until(deadline) => {}
        }
        self.tasks.shutdown().await;
        let mut heard = Vec::new();
        while let Ok(news) = inbox.try_recv() {
            heard.push(news);
        }
        self.hear(&mut heard, &mut desk);
        let mut tries = 0;
        while desk.has_more() && tries < LAST_TRIES {
            let room = Room::none();
            if let Err(error) = desk.turn(&self.forge, room).await {
                tries += 1;
                error!(%error, "cannot note what hooks were told; what arrived may be sent again");
                sleep(LONGEST_PAUSE).await;
            }
        }
    }
}

/// Somebody on their way along a lane. However that ends, it is told.
struct Walk {
    news: mpsc::UnboundedSender<News>,
    ended: Ended,
}

impl Walk {
    /// Brings one message after the other, until one fails that is to be tried again.
    async fn along(self, forge: &Forge, sender: &impl Sender, lane: Lane, stop: &watch::Receiver<bool>) {
        let start = Instant::now();
        for letter in &lane.letters {
            if *stop.borrow() || start.elapsed() > LONGEST_WALK {
                return;
            }
            let attempt = attempt(forge, sender, &lane.address, letter).await;
            let goes_on = deliveries::goes_on(&attempt.outcome);
            let report = Report { hook: lane.hook, delivery: letter.delivery, attempt };
            if self.news.send(News::Tried(report)).is_err() || !goes_on {
                return;
            }
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        // Nobody listens any more only when everything ends.
        let _ = self.news.send(News::Ended(self.ended));
    }
}

/// Sends a message, and tells how that went, by the clock of the forge.
async fn attempt(forge: &Forge, sender: &impl Sender, address: &Address, letter: &Letter) -> Attempt {
    let (at, start) = (forge.now(), Instant::now());
    let Ok(attempt) = timeout(LONGEST_SEND, sender.send(address, letter)).await else {
        let duration = i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX);
        let outcome = Outcome::Unreachable("it took too long".to_owned());
        return Attempt { at, duration, url: String::new(), signed: address.token.is_some(), outcome };
    };
    Attempt { at, ..attempt }
}
