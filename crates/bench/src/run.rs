//! The measurements, in their order.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    Outcome, disk,
    load::{self, Load, Measured, NextRequest, Until},
    server::{Server, TOKEN},
};

/// Clients that read at once.
pub(crate) const READERS: usize = 16;
/// Clients that write at once.
pub(crate) const WRITERS: usize = 32;
/// Users in the list.
pub(crate) const USERS: usize = 200;
const ROUNDS: u32 = 4;

/// Everything that was measured.
pub(crate) struct Results {
    /// Megabytes.
    pub(crate) binary_size: f64,
    pub(crate) first_start: Duration,
    pub(crate) next_start: Duration,
    /// Megabytes, a second after the first and after a later start, after reading, after everything, and at most.
    pub(crate) idle_first: f64,
    pub(crate) idle_next: f64,
    pub(crate) after_reads: f64,
    pub(crate) after_all: f64,
    pub(crate) peak: f64,
    pub(crate) user: Comparison,
    pub(crate) created_users: Measured,
    pub(crate) list_alone: Measured,
    pub(crate) list_together: Measured,
    pub(crate) disk: Measured,
    pub(crate) write_alone: Measured,
    pub(crate) write_together: Measured,
    /// On a disk whose syncs take two milliseconds longer.
    pub(crate) slow_alone: Measured,
    pub(crate) slow_together: Measured,
}

/// The same request to the floor and to our own server.
pub(crate) struct Comparison {
    pub(crate) floor: Side,
    pub(crate) gable: Side,
    /// The ratio of each round.
    pub(crate) ratios: Vec<f64>,
}

/// One of the two that are compared.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) measured: Measured,
    pub(crate) cpu_time: Duration,
}

impl Side {
    /// Microseconds of processor time for one answer.
    pub(crate) fn cpu_per_answer(&self) -> f64 {
        self.cpu_time.as_secs_f64() * 1e6 / self.measured.answers()
    }
}

/// Measures everything in about the given time, building of users not counted.
pub(crate) fn measure(program: &Path, folder: &Path, time: Duration) -> Outcome<Results> {
    let scratch = Scratch::new(folder)?;
    let data = scratch.0.join("data");
    let first = Server::gable(program, &data)?;
    let first_start = first.start_time;
    let idle_first = idle(&first)?;
    drop(first);
    let gable = Server::gable(program, &data)?;
    let idle_next = idle(&gable)?;

    let user = compare_with_floor(&gable, &scratch.0, "/api/v3/user", TOKEN, time / 2)?;
    let after_reads = gable.memory()?;

    let created_users = load::run(&on(&gable, 8, new_users(), 201), Until::Asked(USERS / 8))?;
    let list = load::get("/api/v3/users?per_page=20", TOKEN);
    let list_alone = load::run(&on(&gable, 1, Arc::clone(&list), 200), Until::Elapsed(time / 20))?;
    let list_together = load::run(&on(&gable, READERS, list, 200), Until::Elapsed(time / 20))?;

    let (mut disk, mut write_alone, mut write_together) =
        (Measured::default(), Measured::default(), Measured::default());
    let emails = new_emails();
    for _ in 0..ROUNDS {
        let slice = Until::Elapsed(time * 3 / 20 / ROUNDS);
        disk.add(disk::measure(&scratch.0, time / 10 / ROUNDS)?);
        write_alone.add(load::run(&on(&gable, 1, Arc::clone(&emails), 201), slice)?);
        write_together.add(load::run(&on(&gable, WRITERS, Arc::clone(&emails), 201), slice)?);
    }
    let slow = Server::gable_on_slow_disk(program, &scratch.0.join("slow"))?;
    let slice = Until::Elapsed(time / 20);
    let slow_alone = load::run(&on(&slow, 1, Arc::clone(&emails), 201), slice)?;
    let slow_together = load::run(&on(&slow, WRITERS, emails, 201), slice)?;
    drop(slow);
    let after_all = gable.memory()?;
    let peak = gable.peak_memory()?;
    let size = fs::metadata(program).map_err(|error| format!("cannot read {}: {error}", program.display()))?.len();
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
        list_alone,
        list_together,
        disk,
        write_alone,
        write_together,
        slow_alone,
        slow_together,
    })
}

/// Lets the floor answer with the same bytes and compares the two.
pub(crate) fn compare_with_floor(
    gable: &Server,
    folder: &Path,
    path: &str,
    token: &str,
    time: Duration,
) -> Outcome<Comparison> {
    let (request, answer) = (load::get(path, token), folder.join("answer"));
    fs::write(&answer, load::fetch(gable.address, &request)?).map_err(|error| format!("cannot write: {error}"))?;
    let floor = Server::floor(&answer, path)?;
    compare(&floor, gable, &request, time)
}

/// Turn and turn about, so that whatever else the machine does meets both.
fn compare(floor: &Server, gable: &Server, request: &NextRequest, time: Duration) -> Outcome<Comparison> {
    let slice = time / (2 * ROUNDS);
    let (mut sides, mut ratios) = ((Side::default(), Side::default()), Vec::new());
    let turn = |server: &Server, side: &mut Side| -> Outcome<f64> {
        let before = server.cpu_time()?;
        let measured = load::run(&on(server, READERS, Arc::clone(request), 200), Until::Elapsed(slice))?;
        side.cpu_time += server.cpu_time()?.saturating_sub(before);
        let rate = measured.rate();
        side.measured.add(measured);
        Ok(rate)
    };
    // Nobody starts cold.
    for server in [floor, gable] {
        load::run(&on(server, READERS, Arc::clone(request), 200), Until::Asked(200))?;
    }
    for _ in 0..ROUNDS {
        let floor_rate = turn(floor, &mut sides.0)?;
        ratios.push(turn(gable, &mut sides.1)? / floor_rate);
    }
    Ok(Comparison { floor: sides.0, gable: sides.1, ratios })
}

pub(crate) fn on(server: &Server, clients: usize, next: NextRequest, status: u16) -> Load {
    Load { address: server.address, clients, next, status }
}

/// The memory of a server that has had a second to calm down.
fn idle(server: &Server) -> Outcome<f64> {
    std::thread::sleep(Duration::from_secs(1));
    server.memory()
}

fn new_users() -> NextRequest {
    let number = AtomicU64::new(0);
    load::post("/api/v3/users", TOKEN, move || {
        let number = number.fetch_add(1, Ordering::Relaxed);
        format!(
            r#"{{"username":"user{number}","email":"user{number}@example.org","name":"User","password":"battery-staple"}}"#
        )
    })
}

fn new_emails() -> NextRequest {
    let number = AtomicU64::new(0);
    load::post("/api/v3/user/emails", TOKEN, move || {
        format!(r#"{{"email":"further{}@example.org"}}"#, number.fetch_add(1, Ordering::Relaxed))
    })
}

/// A folder beside the results, on a real disk and not in memory, removed when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(folder: &Path) -> Outcome<Self> {
        let path = folder.join(format!("scratch.{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("cannot make the folder {}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
