//! Benchmark of webhooks: the cost of a push with a thousand hooks, the rate of deliveries, and the effect of a
//! receiver that never responds.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use model::ProjectId;
use serde_json::{Value, json};

use crate::{
    basics::ScratchFolder,
    closed_loop::{self, Load, Measurement, Until},
    engine::{Engine, EngineKind},
    server::{Server, TOKEN},
};

/// The number of hooks of one project.
pub(crate) const HOOKS: usize = 1000;
/// The number of deliveries pending for the receiver that never responds.
pub(crate) const PENDING_DELIVERIES: u64 = 10_000;
/// The number of measured pushes.
const PUSHES: usize = 20;
/// The number of pushes in a burst.
const BURST_PUSHES: u64 = 20;
/// The maximum time to wait for deliveries.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(300);

/// The results on one engine.
pub(crate) struct Results {
    pub(crate) kind: EngineKind,
    /// A push without hooks.
    pub(crate) no_hooks_push: Measurement,
    /// A push with [`HOOKS`] hooks.
    pub(crate) many_hooks_push: Measurement,
    /// The time from the response to that push to the last delivery.
    pub(crate) all_delivered: Measurement,
    /// Deliveries per second.
    pub(crate) rate: f64,
    /// Deliveries per second while [`PENDING_DELIVERIES`] deliveries to the receiver that never responds are pending.
    pub(crate) rate_beside_dead: f64,
    /// The time from the response to a push to the delivery to a single hook.
    pub(crate) delivery: Measurement,
    /// The same while the other receiver does not respond.
    pub(crate) delivery_beside_dead: Measurement,
}

/// Measures everything on one engine.
pub(crate) fn measure(program: &Path, folder: &Path, engine: &Engine) -> Result<Results> {
    let scratch = ScratchFolder::new(folder)?;
    let instance = engine.empty_instance(&scratch.0, "hooks")?;
    let (listening, dead) = (Receiver::start(true)?, Receiver::start(false)?);
    let server = instance.start(program)?;
    let [no_hooks, many_hooks, single, unreachable] =
        ["quiet", "crowded", "single", "doomed"].map(|name| HookedProject::create(&server, name));
    let (no_hooks, many_hooks, single, unreachable) = (no_hooks?, many_hooks?, single?, unreachable?);
    many_hooks.add_hooks(&server, &listening, HOOKS)?;
    single.add_hooks(&server, &listening, 1)?;
    unreachable.add_hooks(&server, &dead, 1)?;

    let (mut no_hooks_push, mut many_hooks_push, mut all_delivered) =
        <(Measurement, Measurement, Measurement)>::default();
    for _ in 0..PUSHES {
        no_hooks_push.push(no_hooks.push(&server)?);
        let before = listening.count();
        many_hooks_push.push(many_hooks.push(&server)?);
        all_delivered.push(listening.wait_for(before + HOOKS as u64)?);
    }
    let delivery = single.measure_delivery(&server, &listening)?;
    let rate = measure_burst(&server, &many_hooks, &listening)?;

    // The backlog of a receiver that was unreachable for long.
    unreachable.push(&server)?;
    dead.wait_for(1)?;
    drop(server);
    instance.execute(&pending_deliveries())?;
    let server = instance.start(program)?;
    dead.wait_for(2)?;
    let delivery_beside_dead = single.measure_delivery(&server, &listening)?;
    let rate_beside_dead = measure_burst(&server, &many_hooks, &listening)?;
    let kind = engine.kind();
    Ok(Results {
        kind,
        no_hooks_push,
        many_hooks_push,
        all_delivered,
        rate,
        rate_beside_dead,
        delivery,
        delivery_beside_dead,
    })
}

/// Pushes several times and returns the number of deliveries per second.
fn measure_burst(server: &Server, project: &HookedProject, receiver: &Receiver) -> Result<f64> {
    let (before, start) = (receiver.count(), Instant::now());
    for _ in 0..BURST_PUSHES {
        project.push(server)?;
    }
    let messages = BURST_PUSHES * HOOKS as u64;
    receiver.wait_for(before + messages)?;
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 deliveries")]
    Ok(messages as f64 / start.elapsed().as_secs_f64())
}

/// Returns statements that multiply the pending delivery of the unreachable hook.
fn pending_deliveries() -> Vec<String> {
    let numbers =
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {PENDING_DELIVERIES})");
    vec![
        format!(
            "INSERT INTO hook_deliveries (hook_id, event_id, state, attempts, due_at, created_at) {numbers} \
             SELECT d.hook_id, d.event_id, 0, 0, d.created_at, d.created_at FROM hook_deliveries d CROSS JOIN n \
             WHERE d.state = 0"
        ),
        "UPDATE hooks SET due_at = created_at, leased_until = NULL, failures = 0 WHERE due_at IS NOT NULL".into(),
    ]
}

/// A project with a repository.
struct HookedProject {
    id: ProjectId,
}

static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

impl HookedProject {
    fn create(server: &Server, name: &str) -> Result<Self> {
        let created = post(server, "/api/v3/projects", &json!({ "name": name, "path": name }))?;
        let id = created["id"].as_i64().with_context(|| format!("cannot create a project: {created}"))?;
        let project = Self { id: ProjectId::new(id) };
        project.push(server)?;
        Ok(project)
    }

    fn add_hooks(&self, server: &Server, receiver: &Receiver, count: usize) -> Result<()> {
        let url = format!("http://{}/hook", receiver.address);
        let body = json!({ "url": url, "push_events": true, "token": "bench" }).to_string();
        let next = closed_loop::post(&format!("/api/v3/projects/{}/hooks", self.id), TOKEN, move || body.clone());
        let clients = count.min(8);
        let load = Load { address: server.address, clients, next, status: 201 };
        closed_loop::run(&load, Until::Requests(count / clients)).map(drop)
    }

    /// Commits a file; returns the latency.
    fn push(&self, server: &Server) -> Result<Duration> {
        let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
        let file = json!({
            "file_path": format!("file-{number}"), "branch_name": "master", "content": "x", "commit_message": "One more",
        });
        let start = Instant::now();
        let written = post(server, &format!("/api/v3/projects/{}/repository/files", self.id), &file)?;
        if written["file_path"].is_null() {
            bail!("cannot create a file: {written}");
        }
        Ok(start.elapsed())
    }

    /// Measures the time from the response to a push to its delivery.
    fn measure_delivery(&self, server: &Server, receiver: &Receiver) -> Result<Measurement> {
        let mut delivery = Measurement::default();
        for _ in 0..PUSHES * 5 {
            let before = receiver.count();
            self.push(server)?;
            delivery.push(receiver.wait_for(before + 1)?);
        }
        Ok(delivery)
    }
}

fn post(server: &Server, path: &str, body: &Value) -> Result<Value> {
    let text = body.to_string();
    let response = closed_loop::fetch(server.address, &closed_loop::post(path, TOKEN, move || text.clone()))?;
    serde_json::from_slice(&response).with_context(|| format!("{path} did not return JSON"))
}

/// A webhook receiver that counts deliveries, and responds at once or never.
struct Receiver {
    address: SocketAddr,
    count: Arc<AtomicU64>,
}

impl Receiver {
    fn start(responds: bool) -> Result<Self> {
        let context = "cannot listen";
        let listener = TcpListener::bind("127.0.0.1:0").context(context)?;
        let address = listener.local_addr().context(context)?;
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                thread::spawn(move || receive(stream, responds, &counter));
            }
        });
        Ok(Self { address, count })
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until `count` deliveries have arrived in total; returns the time.
    fn wait_for(&self, count: u64) -> Result<Duration> {
        let start = Instant::now();
        while self.count() < count {
            if start.elapsed() > DELIVERY_TIMEOUT {
                bail!("only {} of {count} deliveries arrived", self.count());
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(start.elapsed())
    }
}

/// Reads requests from a connection until it ends.
fn receive(mut stream: TcpStream, responds: bool, counter: &AtomicU64) {
    let mut buffer = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        if let Some(end) = message_end(&buffer) {
            buffer.drain(..end);
            counter.fetch_add(1, Ordering::Relaxed);
            if responds && stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
            continue;
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(count) => buffer.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Returns the end of the first request in the buffer, if it is complete.
fn message_end(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (buffer.len() >= head + length).then_some(head + length)
}
