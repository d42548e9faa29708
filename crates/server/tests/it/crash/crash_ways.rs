//! How a server is brought to its end, again and again, and what every campaign tells about itself.
//!
//! `cargo xtask crash --runs N` runs all campaigns for longer; `GABLE_CRASH_SEED` repeats the choices of a run.

use std::{
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use testkit::faults::{Faults, Life, Lost, Model};

use crate::{
    admin::binary::{Gable, Heard, Home, PATIENCE, Reply, Server},
    crash::crash_pushes::Dice,
};

/// With what a server may refuse a write for which there is no room.
const NO_ROOM: u16 = 507;
/// The power goes after so many calls that change or sync something, at most.
const LONGEST_LIFE: u64 = 1_000;
/// How long it is waited for that, or for a disk to be full, before it happens anyway.
const IDLE: Duration = Duration::from_secs(2);
/// How many bytes there is room for at most when a disk begins to fill up.
const MOST_ROOM: u64 = 200_000;
/// How long a disk stays full at most after the first refusal, in milliseconds.
const LONGEST_FULL: u64 = 400;
/// The line that tells how a campaign went begins with this.
const SUMMARY: &str = "campaign";

/// How a server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is killed, and what it has written stays.
    Kill,
    /// The power is cut, and what was not synced is kept, lost or torn.
    Power,
    /// The disk fills up and is freed, a few times, and then the server is killed.
    Full,
}

/// Why there was no good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The server died.
    Gone,
    /// There was no room.
    Refused,
}

impl Way {
    /// What was answered; nothing but success is heard unless the disk may be full.
    pub(crate) fn heard(self, reply: Result<Reply, ureq::Error>) -> Result<Value, End> {
        let reply = reply.map_err(|_| End::Gone)?;
        // The server may die in the middle of its words.
        let body = reply.try_json().ok_or(End::Gone)?;
        if reply.status < 300 {
            return Ok(body);
        }
        assert!(self.allows(&reply), "{reply}");
        Err(End::Refused)
    }

    /// Whether an answer tells that there is no room, at a time when this may be.
    pub(crate) fn allows(self, reply: &Reply) -> bool {
        let says_why = || reply.try_json().is_some_and(|body| body["message"].is_string());
        self == Self::Full && reply.status == NO_ROOM && says_why()
    }
}

/// Whoever was refused does not ask again at once.
pub(crate) fn pause() {
    thread::sleep(Duration::from_millis(20));
}

/// One campaign: the same data folder is hit again and again.
pub(crate) struct Campaign {
    name: &'static str,
    pub(crate) kills: usize,
    pub(crate) way: Way,
    pub(crate) dice: Dice,
    seed: u64,
    gable: fn(&Home) -> Gable,
    faults: Option<Faults>,
    life: Option<Life>,
    /// How many calls the last start took.
    calls_to_start: u64,
    sum: Sum,
    began: Instant,
}

#[derive(Default)]
struct Sum {
    lost: Lost,
    /// Starts that were cut short.
    cut_starts: usize,
    /// Calls that found no room.
    refused: u64,
}

/// What a sync promises: `GABLE_CRASH_MODEL` chooses one that asks more or less of the server.
fn model() -> Model {
    match std::env::var("GABLE_CRASH_MODEL").as_deref() {
        Ok("strict") => Model::Strict,
        Ok("journaled") => Model::Journaled,
        Ok("ordered") | Err(_) => Model::Ordered,
        Ok(other) => panic!("GABLE_CRASH_MODEL is strict, ordered or journaled, not {other}"),
    }
}

/// A server with default settings.
pub(crate) fn as_usual(home: &Home) -> Gable {
    home.serve().with_known_root()
}

impl Campaign {
    /// Begins; so many kills unless told otherwise.
    pub(crate) fn begin(name: &'static str, kills: usize, way: Way, gable: fn(&Home) -> Gable) -> Self {
        let told = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let kills = told("GABLE_CRASH_RUNS").and_then(|runs| usize::try_from(runs).ok()).unwrap_or(kills);
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| u64::from(time.subsec_nanos()));
        // A seed of 0 would roll nothing but 0.
        let seed = told("GABLE_CRASH_SEED").unwrap_or_else(now) | 1;
        eprintln!("{name}: GABLE_CRASH_SEED={seed} GABLE_CRASH_RUNS={kills}");
        Self {
            name,
            kills,
            way,
            dice: Dice(seed),
            seed,
            gable,
            faults: None,
            life: None,
            calls_to_start: 0,
            sum: Sum::default(),
            began: Instant::now(),
        }
    }

    /// A ready server, on a disk that may fail.
    pub(crate) fn start(&mut self, home: &Home) -> Server {
        let gable = self.prepare(home);
        let server = gable.start();
        self.calls_to_start = self.life.as_ref().map_or(0, Life::calls);
        server
    }

    fn prepare(&mut self, home: &Home) -> Gable {
        let gable = (self.gable)(home);
        if self.way == Way::Kill {
            return gable;
        }
        let watch = || Faults::watching(&home.data(), &home.data().with_file_name("faults"));
        let faults = self.faults.get_or_insert_with(watch);
        let life = if self.way == Way::Power { faults.mortal_life() } else { faults.life() };
        let environment = life.environment();
        self.life = Some(life);
        environment.iter().fold(gable, |gable, (name, value)| gable.env(name, value))
    }

    /// Brings a server to its end within so many milliseconds, more or less.
    pub(crate) fn strike(&mut self, home: &Home, server: Server, heard: &[Heard], latest: u64) {
        match (self.way, self.life.take()) {
            (Way::Power, Some(life)) => {
                life.cut_after(self.dice.roll() % LONGEST_LIFE);
                self.cut(server, life, |_| false);
                // What a start does about the last loss of power may be interrupted by the next one.
                if self.dice.roll().is_multiple_of(4) {
                    self.cut_a_start(home);
                }
            }
            (Way::Full, Some(life)) => {
                for _ in 0..=self.dice.roll() % 3 {
                    self.fill(&life, heard);
                }
                self.sum.refused += life.refused();
                thread::sleep(Duration::from_millis(self.dice.roll() % latest));
                server.kill();
                life.end();
            }
            _ => {
                thread::sleep(Duration::from_millis(self.dice.roll() % latest));
                server.kill();
            }
        }
    }

    /// Waits for the end of the power, unless something else happens first, and makes of the folder what is left.
    fn cut(&mut self, server: Server, life: Life, enough: impl Fn(&Server) -> bool) {
        let start = Instant::now();
        while !life.is_cut() && start.elapsed() < IDLE && !enough(&server) {
            thread::sleep(Duration::from_millis(1));
        }
        life.cut_now();
        server.kill();
        let lost = life.lose_power(self.dice.roll(), model());
        self.sum.lost.writes += lost.writes;
        self.sum.lost.torn += lost.torn;
        self.sum.lost.names += lost.names;
    }

    fn cut_a_start(&mut self, home: &Home) {
        let gable = self.prepare(home);
        let Some(life) = self.life.take() else { return };
        life.cut_after(self.dice.roll() % self.calls_to_start.max(1));
        self.sum.cut_starts += 1;
        self.cut(gable.spawn(), life, |server| server.stdout().contains("gable ready"));
    }

    /// Fills the disk, for a while; then everything goes on by itself.
    fn fill(&mut self, life: &Life, heard: &[Heard]) {
        let before = life.refused();
        life.leave_room(self.dice.roll() % MOST_ROOM);
        let start = Instant::now();
        while life.refused() == before {
            assert!(start.elapsed() < PATIENCE, "nobody wants room");
            if start.elapsed() > IDLE {
                // Where the database is elsewhere, the storm takes long to fill the rest.
                life.leave_room(0);
            }
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(self.dice.roll() % LONGEST_FULL));
        life.free();
        heard.iter().for_each(Heard::forget);
        heard.iter().for_each(Heard::wait);
    }

    /// Tells how it went; so many things were acknowledged, and all of them were found.
    pub(crate) fn finish(self, acknowledged: usize) {
        let Self { name, kills, seed, began, sum, .. } = self;
        let Sum { lost: Lost { writes, torn, names }, cut_starts, refused } = sum;
        eprintln!(
            "{SUMMARY} {name}: kills={kills} acknowledged={acknowledged} seed={seed} seconds={} lost_writes={writes} \
             torn_writes={torn} lost_names={names} cut_starts={cut_starts} no_room={refused}",
            began.elapsed().as_secs()
        );
    }
}
