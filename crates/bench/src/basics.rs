//! Benchmark of basic requests, writes, memory and start time.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::{
    closed_loop::{self, Load, Measurement, NextRequest, Until},
    disk,
    server::{Server, TOKEN},
};

/// The number of concurrent readers.
pub(crate) const READERS: usize = 16;
/// The number of concurrent writers.
pub(crate) const WRITERS: usize = 32;
/// The number of users in the list.
pub(crate) const USERS: usize = 200;
const ROUNDS: u32 = 4;

/// The results.
pub(crate) struct Results {
    /// In megabytes.
    pub(crate) binary_size: f64,
    pub(crate) first_start: Duration,
    pub(crate) next_start: Duration,
    /// Resident memory in megabytes: idle after the first and after a later start, after reads, at the end, and the
    /// peak.
    pub(crate) idle_first: f64,
    pub(crate) idle_next: f64,
    pub(crate) after_reads: f64,
    pub(crate) after_all: f64,
    pub(crate) peak: f64,
    pub(crate) user: Comparison,
    pub(crate) created_users: Measurement,
    pub(crate) list_single: Measurement,
    pub(crate) list_concurrent: Measurement,
    pub(crate) disk: Measurement,
    pub(crate) write_single: Measurement,
    pub(crate) write_concurrent: Measurement,
    /// With syncs delayed by two milliseconds.
    pub(crate) slow_disk_single: Measurement,
    pub(crate) slow_disk_concurrent: Measurement,
}

/// The same request to the floor and to Gable.
pub(crate) struct Comparison {
    pub(crate) floor: Side,
    pub(crate) gable: Side,
    /// The ratio of each round.
    pub(crate) ratios: Vec<f64>,
}

/// The results of one of the two servers.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) measured: Measurement,
    pub(crate) cpu_time: Duration,
}

impl Side {
    /// Returns the processor time per response, in microseconds.
    pub(crate) fn cpu_per_response(&self) -> f64 {
        self.cpu_time.as_secs_f64() * 1e6 / self.measured.response_count()
    }
}

/// Runs all measurements in about the given time, not counting the creation of users.
pub(crate) fn measure(program: &Path, folder: &Path, time: Duration) -> Result<Results> {
    let scratch = ScratchFolder::new(folder)?;
    let data = scratch.0.join("data");
    let first = Server::gable(program, &data)?;
    let first_start = first.start_time;
    let idle_first = idle(&first)?;
    drop(first);
    let gable = Server::gable(program, &data)?;
    let idle_next = idle(&gable)?;

    let user = compare_with_floor(&gable, &scratch.0, "/api/v3/user", TOKEN, time / 2)?;
    let after_reads = gable.memory()?;

    let created_users = closed_loop::run(&load_on(&gable, 8, new_users(), 201), Until::Requests(USERS / 8))?;
    let list = closed_loop::get("/api/v3/users?per_page=20", TOKEN);
    let list_single = closed_loop::run(&load_on(&gable, 1, Arc::clone(&list), 200), Until::Elapsed(time / 20))?;
    let list_concurrent = closed_loop::run(&load_on(&gable, READERS, list, 200), Until::Elapsed(time / 20))?;

    let (mut disk, mut write_single, mut write_concurrent) =
        (Measurement::default(), Measurement::default(), Measurement::default());
    let emails = new_emails();
    for _ in 0..ROUNDS {
        let slice = Until::Elapsed(time * 3 / 20 / ROUNDS);
        disk.add(disk::measure(&scratch.0, time / 10 / ROUNDS)?);
        write_single.add(closed_loop::run(&load_on(&gable, 1, Arc::clone(&emails), 201), slice)?);
        write_concurrent.add(closed_loop::run(&load_on(&gable, WRITERS, Arc::clone(&emails), 201), slice)?);
    }
    let slow = Server::gable_on_slow_disk(program, &scratch.0.join("slow"))?;
    let slice = Until::Elapsed(time / 20);
    let slow_disk_single = closed_loop::run(&load_on(&slow, 1, Arc::clone(&emails), 201), slice)?;
    let slow_disk_concurrent = closed_loop::run(&load_on(&slow, WRITERS, emails, 201), slice)?;
    drop(slow);
    let after_all = gable.memory()?;
    let peak = gable.peak_memory()?;
    let size = fs::metadata(program).with_context(|| format!("cannot read {}", program.display()))?.len();
    #[expect(clippy::cast_precision_loss, reason = "no binary has 2^52 bytes")]
    let binary_size = size as f64 / 1e6;
    Ok(Results {
        binary_size,
        first_start,
        next_start: gable.start_time,
        idle_first,
        idle_next,
        after_reads,
        after_all,
        peak,
        user,
        created_users,
        list_single,
        list_concurrent,
        disk,
        write_single,
        write_concurrent,
        slow_disk_single,
        slow_disk_concurrent,
    })
}

/// Compares Gable with the floor, which sends the same bytes.
pub(crate) fn compare_with_floor(
    gable: &Server,
    folder: &Path,
    path: &str,
    token: &str,
    time: Duration,
) -> Result<Comparison> {
    let (request, answer) = (closed_loop::get(path, token), folder.join("answer"));
    fs::write(&answer, closed_loop::fetch(gable.address, &request)?).context("cannot write")?;
    let floor = Server::floor(&answer, path)?;
    compare(&floor, gable, &request, time)
}

/// Measures both servers in alternation, so that other load on the machine affects both.
fn compare(floor: &Server, gable: &Server, request: &NextRequest, time: Duration) -> Result<Comparison> {
    let slice = time / (2 * ROUNDS);
    let (mut sides, mut ratios) = ((Side::default(), Side::default()), Vec::new());
    let measure_slice = |server: &Server, side: &mut Side| -> Result<f64> {
        let before = server.cpu_time()?;
        let measured = closed_loop::run(&load_on(server, READERS, Arc::clone(request), 200), Until::Elapsed(slice))?;
        side.cpu_time += server.cpu_time()?.saturating_sub(before);
        let rate = measured.rate();
        side.measured.add(measured);
        Ok(rate)
    };
    // Warm-up.
    for server in [floor, gable] {
        closed_loop::run(&load_on(server, READERS, Arc::clone(request), 200), Until::Requests(200))?;
    }
    for _ in 0..ROUNDS {
        let floor_rate = measure_slice(floor, &mut sides.0)?;
        ratios.push(measure_slice(gable, &mut sides.1)? / floor_rate);
    }
    Ok(Comparison { floor: sides.0, gable: sides.1, ratios })
}

pub(crate) fn load_on(server: &Server, clients: usize, next: NextRequest, status: u16) -> Load {
    Load { address: server.address, clients, next, status }
}

/// Returns the memory of a server after a second of idling.
fn idle(server: &Server) -> Result<f64> {
    std::thread::sleep(Duration::from_secs(1));
    server.memory()
}

fn new_users() -> NextRequest {
    let number = AtomicU64::new(0);
    closed_loop::post("/api/v3/users", TOKEN, move || {
        let number = number.fetch_add(1, Ordering::Relaxed);
        format!(
            r#"{{"username":"user{number}","email":"user{number}@example.org","name":"User","password":"battery-staple"}}"#
        )
    })
}

fn new_emails() -> NextRequest {
    let number = AtomicU64::new(0);
    closed_loop::post("/api/v3/user/emails", TOKEN, move || {
        format!(r#"{{"email":"further{}@example.org"}}"#, number.fetch_add(1, Ordering::Relaxed))
    })
}

/// A temporary folder beside the results, on disk and not in memory; removed on drop.
pub(crate) struct ScratchFolder(pub(crate) PathBuf);

impl ScratchFolder {
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("scratch.{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
