//! What the machine, the server and the generator itself take while a load runs.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    Outcome,
    server::{self, Server},
};

/// How often memory is looked at.
const PACE: Duration = Duration::from_millis(100);

/// What was taken: processors as a number of them, memory in megabytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) server: f64,
    /// The programs of git that the server ran.
    pub(crate) programs: f64,
    pub(crate) generator: f64,
    /// Everything else on the machine.
    pub(crate) others: f64,
    pub(crate) idle: f64,
    /// The most that the server held at any moment, by looking.
    pub(crate) memory: f64,
    /// The most that the server ever held, as the system counts it.
    pub(crate) peak: f64,
    /// The most that its programs held at any moment.
    pub(crate) program_memory: f64,
}

/// Processor times so far.
struct Times {
    at: Instant,
    server: Duration,
    family: Duration,
    own: Duration,
    busy: Duration,
    idle: Duration,
}

impl Times {
    fn read(server: &Server) -> Outcome<Self> {
        let own = fs::read_to_string("/proc/self/stat").ok();
        // With the programs that it ran: they are clients, too.
        let own = own.and_then(|text| server::ticks(&text, &[11, 12, 13, 14]));
        let machine = fs::read_to_string("/proc/stat").map_err(|error| format!("cannot read /proc/stat: {error}"))?;
        let line = machine.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let time = |places: &[usize]| {
            Duration::from_millis(10 * places.iter().filter_map(|place| ticks.get(*place)).sum::<u64>())
        };
        Ok(Self {
            at: Instant::now(),
            server: server.cpu_time()?,
            family: server.family_time()?,
            own: own.ok_or("cannot read my own processor time")?,
            busy: time(&[0, 1, 2, 5, 6, 7]),
            idle: time(&[3, 4]),
        })
    }
}

/// Somebody who watches until told to stop.
pub(crate) struct Watch {
    before: Times,
    done: Arc<AtomicBool>,
    looker: JoinHandle<(f64, f64)>,
}

impl Watch {
    pub(crate) fn start(server: &Server) -> Outcome<Self> {
        server.forget_peak();
        let (before, done, id) = (Times::read(server)?, Arc::new(AtomicBool::new(false)), server.id());
        let stop = Arc::clone(&done);
        let looker = thread::spawn(move || {
            let (mut own, mut programs) = (0.0_f64, 0.0_f64);
            while !stop.load(Ordering::Relaxed) {
                let (alone, family) = (server::memory_of(id), server::family_memory(id));
                own = own.max(alone);
                programs = programs.max(family - alone);
                thread::sleep(PACE);
            }
            (own, programs)
        });
        Ok(Self { before, done, looker })
    }

    pub(crate) fn stop(self, server: &Server) -> Outcome<Taken> {
        let Self { before, done, looker } = self;
        let after = Times::read(server)?;
        done.store(true, Ordering::Relaxed);
        let (memory, program_memory) = looker.join().map_err(|_| "the watcher panicked")?;
        let elapsed = (after.at - before.at).as_secs_f64();
        let share = |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64() / elapsed;
        let (server_share, family) = (share(after.server, before.server), share(after.family, before.family));
        let generator = share(after.own, before.own);
        Ok(Taken {
            server: server_share,
            programs: (family - server_share).max(0.0),
            generator,
            others: (share(after.busy, before.busy) - family - generator).max(0.0),
            idle: share(after.idle, before.idle),
            memory,
            peak: server.peak_memory()?,
            program_memory,
        })
    }
}
