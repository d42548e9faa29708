//! Hooks: what a push costs whose message goes to a thousand receivers, how many messages a second arrive, and what a
//! receiver that never answers costs the others.

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

use serde_json::{Value, json};

use crate::{
    Outcome,
    engine::{Engine, Kind},
    load::{self, Load, Measured, Until},
    run::Scratch,
    server::{Server, TOKEN},
};

/// How many hooks one project has.
pub(crate) const HOOKS: usize = 1000;
/// How many messages wait for the receiver that never answers.
pub(crate) const WAITING: u64 = 10_000;
/// How often each thing is measured.
const PUSHES: usize = 20;
/// How many pushes in a row make a storm, in which every hook is told of each.
const STORM: u64 = 20;
/// How long anybody waits for messages.
const PATIENCE: Duration = Duration::from_secs(300);

/// What was measured on one engine.
pub(crate) struct Results {
    pub(crate) kind: Kind,
    /// A push of which nobody is told.
    pub(crate) quiet_push: Measured,
    /// A push of which [`HOOKS`] hooks are told.
    pub(crate) crowded_push: Measured,
    /// From the answer to that push until the last message has arrived.
    pub(crate) all_told: Measured,
    /// Messages a second, alone.
    pub(crate) rate: f64,
    /// The same, while [`WAITING`] messages wait for a receiver that never answers.
    pub(crate) rate_beside_dead: f64,
    /// From the answer to a push until one hook has been told, alone.
    pub(crate) told: Measured,
    /// The same beside the receiver that never answers.
    pub(crate) told_beside_dead: Measured,
}

/// Measures everything on one engine.
pub(crate) fn measure(program: &Path, folder: &Path, engine: &Engine) -> Outcome<Results> {
    let scratch = Scratch::new(folder)?;
    let house = engine.house(&scratch.0, "hooks")?;
    let (listening, dead) = (Receiver::start(true)?, Receiver::start(false)?);
    let server = house.start(program)?;
    let [quiet, crowded, single, doomed] =
        ["quiet", "crowded", "single", "doomed"].map(|name| Place::make(&server, name));
    let (quiet, crowded, single, doomed) = (quiet?, crowded?, single?, doomed?);
    crowded.add_hooks(&server, &listening, HOOKS)?;
    single.add_hooks(&server, &listening, 1)?;
    doomed.add_hooks(&server, &dead, 1)?;

    let (mut quiet_push, mut crowded_push, mut all_told) = <(Measured, Measured, Measured)>::default();
    for _ in 0..PUSHES {
        quiet_push.push(quiet.push(&server)?);
        let before = listening.count();
        crowded_push.push(crowded.push(&server)?);
        all_told.push(listening.wait_for(before + HOOKS as u64)?);
    }
    let told = single.tell(&server, &listening)?;
    let rate = storm(&server, &crowded, &listening)?;

    // What a receiver that was away for long has waiting.
    doomed.push(&server)?;
    dead.wait_for(1)?;
    drop(server);
    house.execute(&let_wait())?;
    let server = house.start(program)?;
    dead.wait_for(2)?;
    let told_beside_dead = single.tell(&server, &listening)?;
    let rate_beside_dead = storm(&server, &crowded, &listening)?;
    let kind = engine.kind();
    Ok(Results { kind, quiet_push, crowded_push, all_told, rate, rate_beside_dead, told, told_beside_dead })
}

/// Several pushes at once; answers how many messages a second arrived, until all had.
fn storm(server: &Server, place: &Place, receiver: &Receiver) -> Outcome<f64> {
    let (before, start) = (receiver.count(), Instant::now());
    for _ in 0..STORM {
        place.push(server)?;
    }
    let messages = STORM * HOOKS as u64;
    receiver.wait_for(before + messages)?;
    #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^52 messages")]
    Ok(messages as f64 / start.elapsed().as_secs_f64())
}

/// Statements that let many more messages wait for the hook that has one waiting.
fn let_wait() -> Vec<String> {
    let numbers = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {WAITING})");
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
struct Place {
    id: i64,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Place {
    fn make(server: &Server, name: &str) -> Outcome<Self> {
        let made = ask(server, "/api/v3/projects", &json!({ "name": name, "path": name }))?;
        let id = made["id"].as_i64().ok_or_else(|| format!("no project: {made}"))?;
        let place = Self { id };
        place.push(server)?;
        Ok(place)
    }

    fn add_hooks(&self, server: &Server, receiver: &Receiver, count: usize) -> Outcome {
        let url = format!("http://{}/hook", receiver.address);
        let body = json!({ "url": url, "push_events": true, "token": "bench" }).to_string();
        let next = load::post(&format!("/api/v3/projects/{}/hooks", self.id), TOKEN, move || body.clone());
        let clients = count.min(8);
        let load = Load { address: server.address, clients, next, status: 201 };
        load::run(&load, Until::Asked(count / clients)).map(drop)
    }

    /// Writes a file; answers how long that took.
    fn push(&self, server: &Server) -> Outcome<Duration> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = json!({
            "file_path": format!("file-{number}"), "branch_name": "master", "content": "x", "commit_message": "One more",
        });
        let start = Instant::now();
        let written = ask(server, &format!("/api/v3/projects/{}/repository/files", self.id), &file)?;
        if written["file_path"].is_null() {
            return Err(format!("no file: {written}"));
        }
        Ok(start.elapsed())
    }

    /// How long it takes from the answer to a push until its hook is told.
    fn tell(&self, server: &Server, receiver: &Receiver) -> Outcome<Measured> {
        let mut told = Measured::default();
        for _ in 0..PUSHES * 5 {
            let before = receiver.count();
            self.push(server)?;
            told.push(receiver.wait_for(before + 1)?);
        }
        Ok(told)
    }
}

fn ask(server: &Server, path: &str, body: &Value) -> Outcome<Value> {
    let text = body.to_string();
    let answer = load::fetch(server.address, &load::post(path, TOKEN, move || text.clone()))?;
    serde_json::from_slice(&answer).map_err(|error| format!("{path} does not answer with JSON: {error}"))
}

/// Counts messages; answers them at once, or never.
struct Receiver {
    address: SocketAddr,
    count: Arc<AtomicU64>,
}

impl Receiver {
    fn start(answers: bool) -> Outcome<Self> {
        let failed = |error: std::io::Error| format!("cannot listen: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                thread::spawn(move || receive(stream, answers, &counter));
            }
        });
        Ok(Self { address, count })
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until so many messages have arrived in all; answers how long that took.
    fn wait_for(&self, count: u64) -> Outcome<Duration> {
        let start = Instant::now();
        while self.count() < count {
            if start.elapsed() > PATIENCE {
                return Err(format!("{} messages arrived where {count} should", self.count()));
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(start.elapsed())
    }
}

/// Takes messages off one connection until it ends.
fn receive(mut stream: TcpStream, answers: bool, counter: &AtomicU64) {
    let mut buffer = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        if let Some(end) = message_end(&buffer) {
            buffer.drain(..end);
            counter.fetch_add(1, Ordering::Relaxed);
            if answers && stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
            continue;
        }
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(count) => buffer.extend_from_slice(&part[..count]),
        }
    }
}

/// Where the first message ends, if all of it is there.
fn message_end(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    (buffer.len() >= head + length).then_some(head + length)
}
