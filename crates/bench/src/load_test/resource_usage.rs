//! Processor time and memory of the server, the generator and the machine during a load test.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};

use crate::server::{self, Server};

/// The interval between samples of the memory.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Resource usage: processors as a number of cores, memory in megabytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceUsage {
    pub(crate) server: f64,
    /// The git processes of the server.
    pub(crate) children: f64,
    pub(crate) generator: f64,
    /// All other processes.
    pub(crate) others: f64,
    pub(crate) idle: f64,
    /// The maximum sampled memory of the server.
    pub(crate) memory: f64,
    /// The peak memory of the server, as counted by the system.
    pub(crate) peak: f64,
    /// The maximum sampled memory of its git processes.
    pub(crate) children_memory: f64,
}

/// Processor times used so far.
struct CpuTimes {
    at: Instant,
    server: Duration,
    tree: Duration,
    own: Duration,
    busy: Duration,
    idle: Duration,
}

impl CpuTimes {
    fn read(server: &Server) -> Result<Self> {
        let own = fs::read_to_string("/proc/self/stat").ok();
        // With child processes, which are clients, too.
        let own = own.and_then(|text| server::ticks(&text, &[11, 12, 13, 14]));
        let machine = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let line = machine.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let time = |indices: &[usize]| {
            Duration::from_millis(10 * indices.iter().filter_map(|index| ticks.get(*index)).sum::<u64>())
        };
        Ok(Self {
            at: Instant::now(),
            server: server.cpu_time()?,
            tree: server.process_tree_cpu_time()?,
            own: own.context("cannot read the processor time of this process")?,
            busy: time(&[0, 1, 2, 5, 6, 7]),
            idle: time(&[3, 4]),
        })
    }
}

/// Monitors resource usage from start to stop.
pub(crate) struct ResourceMonitor {
    before: CpuTimes,
    done: Arc<AtomicBool>,
    sampler: JoinHandle<(f64, f64)>,
}

impl ResourceMonitor {
    pub(crate) fn start(server: &Server) -> Result<Self> {
        server.reset_peak_memory();
        let (before, done, id) = (CpuTimes::read(server)?, Arc::new(AtomicBool::new(false)), server.id());
        let stop = Arc::clone(&done);
        let sampler = thread::spawn(move || {
            let (mut own, mut children) = (0.0_f64, 0.0_f64);
            while !stop.load(Ordering::Relaxed) {
                let (alone, tree) = (server::process_memory(id), server::process_tree_memory(id));
                own = own.max(alone);
                children = children.max(tree - alone);
                thread::sleep(SAMPLE_INTERVAL);
            }
            (own, children)
        });
        Ok(Self { before, done, sampler })
    }

    pub(crate) fn stop(self, server: &Server) -> Result<ResourceUsage> {
        let Self { before, done, sampler } = self;
        let after = CpuTimes::read(server)?;
        done.store(true, Ordering::Relaxed);
        let (memory, children_memory) = sampler.join().map_err(|_| anyhow!("the memory sampler panicked"))?;
        let elapsed = (after.at - before.at).as_secs_f64();
        let share = |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64() / elapsed;
        let (server_share, tree) = (share(after.server, before.server), share(after.tree, before.tree));
        let generator = share(after.own, before.own);
        Ok(ResourceUsage {
            server: server_share,
            children: (tree - server_share).max(0.0),
            generator,
            others: (share(after.busy, before.busy) - tree - generator).max(0.0),
            idle: share(after.idle, before.idle),
            memory,
            peak: server.peak_memory()?,
            children_memory,
        })
    }
}
