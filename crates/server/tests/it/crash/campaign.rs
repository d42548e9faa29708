//! A campaign: crashes a server again and again on the same data folder, and prints a summary.
//!
//! `cargo xtask crash --runs N` runs all campaigns for longer; `GABLE_CRASH_SEED` repeats the choices of a run.

use std::{
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use testkit::faults::{DurabilityModel, FaultInjector, FaultSession, PowerLoss};

use crate::support::{Acknowledgement, GableCommand, HttpResponse, Rng, ServerProcess, TestInstance, WAIT_TIMEOUT};

/// The status with which a server refuses a write when the disk is full.
const INSUFFICIENT_STORAGE: u16 = 507;
/// The maximum number of calls that change or sync something before the power is cut.
const MAX_CALLS_BEFORE_CUT: u64 = 1_000;
/// How long to wait for that number of calls, or for the disk to fill up, before forcing it.
const MAX_IDLE_TIME: Duration = Duration::from_secs(2);
/// The maximum number of free bytes when the disk begins to fill up.
const MAX_FREE_SPACE: u64 = 200_000;
/// The maximum time that the disk stays full after the first refusal, in milliseconds.
const MAX_FULL_MILLISECONDS: u64 = 400;
/// The prefix of the summary line, which `cargo xtask crash` reads.
const SUMMARY_PREFIX: &str = "campaign";

/// How a server is crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureMode {
    /// It is killed; everything written is kept.
    Kill,
    /// The power is cut; unsynced changes are kept, lost or torn.
    PowerCut,
    /// The disk fills up and is freed a few times; then the server is killed.
    DiskFull,
}

/// Why a write was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFailure {
    /// The server was killed.
    ServerGone,
    /// The disk was full.
    DiskFull,
}

impl FailureMode {
    /// Returns the body of a successful response; panics on failures that the mode does not explain.
    pub(crate) fn acknowledged(self, response: Result<HttpResponse, ureq::Error>) -> Result<Value, WriteFailure> {
        let response = response.map_err(|_| WriteFailure::ServerGone)?;
        // The server may die while it sends the body.
        let body = response.try_json().ok_or(WriteFailure::ServerGone)?;
        if response.status < 300 {
            return Ok(body);
        }
        assert!(self.is_disk_full_response(&response), "{response}");
        Err(WriteFailure::DiskFull)
    }

    /// Returns whether a response says that the disk is full, in the mode where this is expected.
    pub(crate) fn is_disk_full_response(self, response: &HttpResponse) -> bool {
        let has_message = || response.try_json().is_some_and(|body| body["message"].is_string());
        self == Self::DiskFull && response.status == INSUFFICIENT_STORAGE && has_message()
    }
}

/// Waits a moment before a refused write is retried.
pub(crate) fn wait_before_retry() {
    thread::sleep(Duration::from_millis(20));
}

/// Crashes servers repeatedly on one data folder.
pub(crate) struct Campaign {
    name: &'static str,
    pub(crate) kills: usize,
    pub(crate) mode: FailureMode,
    pub(crate) rng: Rng,
    seed: u64,
    command: fn(&TestInstance) -> GableCommand,
    faults: Option<FaultInjector>,
    session: Option<FaultSession>,
    /// The number of calls during the last start.
    start_calls: u64,
    totals: Totals,
    started_at: Instant,
}

#[derive(Default)]
struct Totals {
    lost: PowerLoss,
    /// The number of starts during which the power was cut.
    cut_starts: usize,
    /// The number of calls that failed because the disk was full.
    refused_calls: u64,
}

/// Returns the durability model that `GABLE_CRASH_MODEL` selects.
fn model() -> DurabilityModel {
    match std::env::var("GABLE_CRASH_MODEL").as_deref() {
        Ok("strict") | Err(_) => DurabilityModel::Strict,
        Ok("journaled") => DurabilityModel::Journaled,
        Ok("ordered") => DurabilityModel::Ordered,
        Ok(other) => panic!("GABLE_CRASH_MODEL is strict, ordered or journaled, not {other}"),
    }
}

/// Returns a command that serves with the default settings.
pub(crate) fn default_server(instance: &TestInstance) -> GableCommand {
    instance.serve().with_root_credentials()
}

impl Campaign {
    /// Creates a campaign; `GABLE_CRASH_RUNS` and `GABLE_CRASH_SEED` override the number of kills and the random seed.
    pub(crate) fn new(
        name: &'static str,
        kills: usize,
        mode: FailureMode,
        command: fn(&TestInstance) -> GableCommand,
    ) -> Self {
        let env_number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let kills = env_number("GABLE_CRASH_RUNS").and_then(|runs| usize::try_from(runs).ok()).unwrap_or(kills);
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| u64::from(time.subsec_nanos()));
        // A seed of 0 would produce only zeros.
        let seed = env_number("GABLE_CRASH_SEED").unwrap_or_else(now) | 1;
        eprintln!("{name}: GABLE_CRASH_SEED={seed} GABLE_CRASH_RUNS={kills}");
        Self {
            name,
            kills,
            mode,
            rng: Rng(seed),
            seed,
            command,
            faults: None,
            session: None,
            start_calls: 0,
            totals: Totals::default(),
            started_at: Instant::now(),
        }
    }

    /// Starts a server with fault injection.
    pub(crate) fn start(&mut self, instance: &TestInstance) -> ServerProcess {
        let gable = self.prepare(instance);
        let server = gable.start();
        self.start_calls = self.session.as_ref().map_or(0, FaultSession::calls);
        server
    }

    fn prepare(&mut self, instance: &TestInstance) -> GableCommand {
        let gable = (self.command)(instance);
        if self.mode == FailureMode::Kill {
            return gable;
        }
        let create = || FaultInjector::new(&instance.data(), &instance.data().with_file_name("faults"));
        let faults = self.faults.get_or_insert_with(create);
        let session =
            if self.mode == FailureMode::PowerCut { faults.start_journaled_session() } else { faults.start_session() };
        let environment = session.environment();
        self.session = Some(session);
        environment.iter().fold(gable, |gable, (name, value)| gable.env(name, value))
    }

    /// Crashes a server after a random delay of up to `max_delay` milliseconds.
    pub(crate) fn crash(
        &mut self,
        instance: &TestInstance,
        server: ServerProcess,
        acknowledgements: &[Acknowledgement],
        max_delay: u64,
    ) {
        match (self.mode, self.session.take()) {
            (FailureMode::PowerCut, Some(session)) => {
                session.cut_power_after(self.rng.next_u64() % MAX_CALLS_BEFORE_CUT);
                self.cut_power_and_wait(server, session, |_| false);
                // The recovery at the next start may be interrupted by another power cut.
                if self.rng.next_u64().is_multiple_of(4) {
                    self.cut_power_during_start(instance);
                }
            }
            (FailureMode::DiskFull, Some(session)) => {
                for _ in 0..=self.rng.next_u64() % 3 {
                    self.fill_disk(&session, acknowledgements);
                }
                self.totals.refused_calls += session.refused_calls();
                thread::sleep(Duration::from_millis(self.rng.next_u64() % max_delay));
                server.kill();
                session.finish();
            }
            _ => {
                thread::sleep(Duration::from_millis(self.rng.next_u64() % max_delay));
                server.kill();
            }
        }
    }

    /// Waits until the power is cut or `enough` returns true, kills the server and applies the power loss to the folder.
    fn cut_power_and_wait(
        &mut self,
        server: ServerProcess,
        session: FaultSession,
        enough: impl Fn(&ServerProcess) -> bool,
    ) {
        let start = Instant::now();
        while !session.is_power_cut() && start.elapsed() < MAX_IDLE_TIME && !enough(&server) {
            thread::sleep(Duration::from_millis(1));
        }
        session.cut_power();
        server.kill();
        let lost = session.apply_power_loss(self.rng.next_u64(), model());
        self.totals.lost.lost_writes += lost.lost_writes;
        self.totals.lost.torn_writes += lost.torn_writes;
        self.totals.lost.lost_names += lost.lost_names;
    }

    fn cut_power_during_start(&mut self, instance: &TestInstance) {
        let gable = self.prepare(instance);
        let Some(session) = self.session.take() else { return };
        session.cut_power_after(self.rng.next_u64() % self.start_calls.max(1));
        self.totals.cut_starts += 1;
        self.cut_power_and_wait(gable.spawn(), session, |server| server.stdout().contains("gable ready"));
    }

    /// Fills the disk for a while, then frees it and waits until writes are acknowledged again.
    fn fill_disk(&mut self, session: &FaultSession, acknowledgements: &[Acknowledgement]) {
        let before = session.refused_calls();
        session.limit_space(self.rng.next_u64() % MAX_FREE_SPACE);
        let start = Instant::now();
        while session.refused_calls() == before {
            assert!(start.elapsed() < WAIT_TIMEOUT, "no write needs space");
            if start.elapsed() > MAX_IDLE_TIME {
                // With the database on another server, filling the rest takes long.
                session.limit_space(0);
            }
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(self.rng.next_u64() % MAX_FULL_MILLISECONDS));
        session.free_space();
        acknowledgements.iter().for_each(Acknowledgement::reset);
        acknowledgements.iter().for_each(Acknowledgement::wait);
    }

    /// Prints the summary; `acknowledged` is the number of operations that were acknowledged and found.
    pub(crate) fn finish(self, acknowledged: usize) {
        let Self { name, kills, seed, started_at, totals, .. } = self;
        let Totals { lost: PowerLoss { lost_writes, torn_writes, lost_names }, cut_starts, refused_calls } = totals;
        eprintln!(
            "{SUMMARY_PREFIX} {name}: kills={kills} acknowledged={acknowledged} seed={seed} seconds={} lost_writes={lost_writes} \
             torn_writes={torn_writes} lost_names={lost_names} cut_starts={cut_starts} no_room={refused_calls}",
            started_at.elapsed().as_secs()
        );
    }
}
