//! `cargo xtask load`: everybody at once, in the proportions of the load model, against the shipped binary on a seeded data
//! set; and then twice as many, until it bends.
//!
//! Every request has its instant before the clock starts, and its time is counted from that instant, whether or not the
//! generator or the server were ready for it. So a server that stalls is charged for all that waited meanwhile.

mod client;
mod routes;
mod scene;
mod schedule;
mod smart;
mod summary;
mod watch;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use tokio::{sync::Semaphore, task::JoinSet, time::sleep_until};

use crate::{
    Outcome,
    run::Scratch,
    seed::{self, world::World},
    server::Server,
    town::Dice,
};
use client::{Answer, Client, Message};
use routes::{Route, Shape};
use scene::{Ask, Facts, Prepared, Scene, root};
use smart::{Deed, Haul, Shed};
use summary::{Summary, Verdict};
use watch::Watch;

/// What a thousand users ask in a second, by the load model.
const API: f64 = 20.0;
const PULLS: f64 = 2.0;
const PUSHES: f64 = 0.4;
/// How often git itself is let loose, for a thousand users and a second.
const STOCK: f64 = 0.05;
/// How long each further step takes.
const STEP: Duration = Duration::from_secs(20);
const MOST_STEPS: u32 = 7;
/// How many requests prepare and put things back at once.
const HANDS: usize = 8;
/// More than this on the way at once means that all is lost.
const MOST_AT_ONCE: usize = 5000;

struct Settings {
    gable: PathBuf,
    folder: PathBuf,
    users: f64,
    time: Duration,
    until_it_bends: bool,
    json: bool,
    seed: seed::Settings,
}

/// Reads the flags, provides the data set and drives the load.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let settings = read(arguments)?;
    let world = seed::provide(&settings.seed)?;
    let scratch = Scratch::new(&settings.folder)?;
    let seed::Settings { data, database, .. } = &settings.seed;
    let server = Server::gable_on(&settings.gable, data, database.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let stages = runtime.block_on(drive(&settings, &world, &server, &scratch.0))?;
    if stages.iter().any(|stage| stage.errors() > 0) {
        // Nobody knows what of it was done, so it cannot be put back.
        settings.seed.spoil()?;
    }
    let verdict = Verdict::of(&stages);
    if settings.json {
        println!("{}", summary::json(&stages, &verdict));
    } else {
        println!("{verdict}");
    }
    if verdict.is_good() { Ok(()) } else { Err("the goals were not reached".into()) }
}

fn read(arguments: &[String]) -> Outcome<Settings> {
    const KNOWN: &str = "--users, --seconds, --until-it-bends, --data, --database, --projects, --seed and --json";
    let seed =
        seed::Settings { data: PathBuf::new(), projects: seed::PROJECTS, seed: seed::SEED, database: seed::database() };
    let mut settings = Settings {
        gable: PathBuf::new(),
        folder: PathBuf::new(),
        users: 10_000.0,
        time: Duration::from_secs(60),
        until_it_bends: false,
        json: false,
        seed,
    };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{flag} needs a value"));
        let number = |text: &String| text.parse::<u32>().map_err(|_| format!("{flag} takes a number, not {text}"));
        match flag.as_str() {
            "--gable" => settings.gable = value()?.into(),
            "--folder" => settings.folder = value()?.into(),
            "--users" => settings.users = number(value()?)?.into(),
            "--seconds" => settings.time = Duration::from_secs(number(value()?)?.into()),
            "--until-it-bends" => settings.until_it_bends = true,
            "--json" => settings.json = true,
            "--data" => settings.seed.data = value()?.into(),
            "--database" => settings.seed.database = Some(value()?.clone()),
            "--projects" => settings.seed.projects = number(value()?)?.into(),
            "--seed" => settings.seed.seed = number(value()?)?.into(),
            other => return Err(format!("load knows {KNOWN}, not {other}")),
        }
    }
    if settings.seed.data.as_os_str().is_empty() {
        let kind = if settings.seed.database.is_some() { "postgres" } else { "sqlite" };
        settings.seed.data = settings.folder.join(format!("seeded-{kind}"));
    }
    if settings.users < 1.0 || settings.time < Duration::from_secs(5) {
        return Err("fewer than one user or than 5 seconds tell nothing".into());
    }
    Ok(settings)
}

/// Runs the load once, and then at twice the rate and so on, if that is wanted.
async fn drive(settings: &Settings, world: &World, server: &Server, folder: &Path) -> Outcome<Vec<Summary>> {
    let client = Arc::new(Client::new(server.address));
    let described = json(&ask(&client, &Ask::get(root(), "/openapi.json".into())).await?.start)?;
    routes::check(&described)?;
    let shed = Shed::build(&settings.seed.data, world, folder)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut scene = Scene::new(world, now);
    scene.facts = facts(&client).await?;
    // Nobody starts cold: one of each, not counted.
    let warm = Stage { thousands: 0.05, time: Duration::from_secs(5), factor: 0 };
    warm.run(&client, server, &mut scene, &shed).await?;
    let mut stages = Vec::new();
    for step in 0..=MOST_STEPS {
        let factor = 1 << step;
        let time = if step == 0 { settings.time } else { STEP };
        let stage = Stage { thousands: settings.users / 1000.0 * f64::from(factor), time, factor };
        let summary = stage.run(&client, server, &mut scene, &shed).await?;
        eprintln!("{summary}");
        let bends = summary.bends().is_some();
        stages.push(summary);
        if bends || !settings.until_it_bends {
            break;
        }
    }
    Ok(stages)
}

/// What is asked of the large repository by name.
async fn facts(client: &Client) -> Outcome<Facts> {
    let path = format!("/projects/{}/repository", seed::world::LARGE);
    let (mut commits, mut page) = (Vec::new(), 0);
    while commits.len() < 300 {
        let list = list(client, format!("{path}/commits?per_page=100&page={page}")).await?;
        if list.is_empty() {
            break;
        }
        commits.extend(list.iter().filter_map(|commit| Some(commit["id"].as_str()?.to_owned())));
        page += 1;
    }
    let tree = list(client, format!("{path}/tree?path={}", routes::FOLDER)).await?;
    let blobs: Vec<String> = tree.iter().filter_map(|entry| Some(entry["id"].as_str()?.to_owned())).collect();
    if commits.len() < 10 || blobs.is_empty() {
        return Err("the large repository is not there".into());
    }
    Ok(Facts { commits, blobs })
}

async fn list(client: &Client, target: String) -> Outcome<Vec<Value>> {
    let answer = ask(client, &Ask::get(root(), target)).await?;
    serde_json::from_slice(&answer.start).map_err(|error| format!("not a list: {error}"))
}

/// Asks for something that has to be.
async fn ask(client: &Client, ask: &Ask) -> Outcome<Answer> {
    let answer = client.send(&Message::from(ask)).await?;
    if !(200..300).contains(&answer.status) {
        let said = String::from_utf8_lossy(&answer.start);
        return Err(format!("{} {} answers {}: {said}", ask.method, ask.target, answer.status));
    }
    Ok(answer)
}

fn json(text: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))
}

/// The load at one rate.
struct Stage {
    thousands: f64,
    time: Duration,
    /// How many times the load that was asked for; 0 for what is not counted.
    factor: u32,
}

/// Something that is due at an instant.
struct Arrival {
    at: Duration,
    row: usize,
    what: What,
}

enum What {
    Api { ask: Ask, message: Message, status: u16, shape: Shape, after: Option<fn(&Ask, &Value) -> Ask> },
    Git(Haul),
}

/// How something went.
struct Sample {
    row: usize,
    /// From the planned instant to the first byte.
    latency: Duration,
    /// From the start of the clock to the end of the answer.
    done: Duration,
    fault: Option<String>,
    after: Option<Ask>,
}

impl Stage {
    async fn run(&self, client: &Arc<Client>, server: &Server, scene: &mut Scene<'_>, shed: &Shed) -> Outcome<Summary> {
        let routes = routes::all();
        let arrivals = self.plan(&routes, client, scene, shed).await?;
        let names = routes.iter().map(|route| route.name).chain(GIT.iter().map(|deed| deed.name())).collect();
        let mut summary = Summary::new(self.factor, self.thousands * 1000.0, self.time, names);
        for deed in GIT.iter().filter(|deed| deed.is_stock()) {
            summary.leave_out(deed.name());
        }
        let watch = Watch::start(server)?;
        let (samples, late) = let_go(arrivals, client, server.address.to_string()).await;
        summary.taken = watch.stop(server)?;
        summary.late = late;
        let mut undo = Vec::new();
        for sample in samples {
            summary.add(sample.row, sample.latency, sample.done, sample.fault);
            undo.extend(sample.after);
        }
        put_back(client, undo).await;
        summary.finish();
        Ok(summary)
    }

    /// Draws all arrivals and makes what they need.
    async fn plan(
        &self,
        routes: &[Route],
        client: &Arc<Client>,
        scene: &mut Scene<'_>,
        shed: &Shed,
    ) -> Outcome<Vec<Arrival>> {
        let mut dice = Dice::new(u64::from(self.factor));
        let weights: Vec<f64> = routes.iter().map(|route| route.factor).collect();
        let counts = schedule::counts(&weights, API * self.thousands, self.time);
        let mut arrivals = Vec::new();
        for (row, (route, count)) in routes.iter().zip(counts).enumerate() {
            let prepared = prepare(client, scene, route, count).await?;
            for (at, made) in schedule::instants(count, self.time, &mut dice).into_iter().zip(prepared) {
                let ask = (route.ask)(scene, &made);
                let (message, status, shape, after) = (Message::from(&ask), route.status, route.shape, route.after);
                arrivals.push(Arrival { at, row, what: What::Api { ask, message, status, shape, after } });
            }
        }
        for (place, deed) in GIT.into_iter().enumerate() {
            let count = schedule::counts(&[1.0], self.thousands * rate_of(deed), self.time)[0];
            for (number, at) in schedule::instants(count, self.time, &mut dice).into_iter().enumerate() {
                let what = What::Git(shed.haul(deed, scene, number));
                arrivals.push(Arrival { at, row: routes.len() + place, what });
            }
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        Ok(arrivals)
    }
}

const GIT: [Deed; 7] =
    [Deed::Look, Deed::Pull, Deed::Clone, Deed::CloneOfTheLarge, Deed::Push, Deed::StockLook, Deed::StockClone];

/// How often something is done, for a thousand users and a second.
fn rate_of(deed: Deed) -> f64 {
    let share = Deed::FETCHES.iter().find(|(fetch, _)| *fetch == deed).map(|(_, share)| share * PULLS);
    share.unwrap_or(if deed == Deed::Push { PUSHES } else { STOCK / 2.0 })
}

/// Makes what so many requests to a route need; several at once, as nothing is measured yet.
async fn prepare(client: &Arc<Client>, scene: &mut Scene<'_>, route: &Route, count: usize) -> Outcome<Vec<Prepared>> {
    let mut all = vec![Prepared::default(); count];
    for make in route.before {
        let asks: Vec<Ask> = all.iter().map(|made| make(scene, made)).collect();
        let (mut asking, hands) = (JoinSet::new(), Arc::new(Semaphore::new(HANDS)));
        for (place, ask) in asks.into_iter().enumerate() {
            let (client, hands) = (Arc::clone(client), Arc::clone(&hands));
            asking.spawn(async move {
                let _hand = hands.acquire().await.map_err(|error| error.to_string())?;
                let answer = self::ask(&client, &ask).await?;
                Ok::<_, String>((place, Prepared { ask, answer: json(&answer.start)? }))
            });
        }
        while let Some(done) = asking.join_next().await {
            let (place, made) = done.map_err(|error| error.to_string())??;
            all[place] = made;
        }
    }
    Ok(all)
}

/// Lets everything go at its instant; answers how it went, and how late the generator itself was.
async fn let_go(arrivals: Vec<Arrival>, client: &Arc<Client>, address: String) -> (Vec<Sample>, Vec<Duration>) {
    let (mut going, mut samples, mut late) = (JoinSet::new(), Vec::new(), Vec::new());
    let start = tokio::time::Instant::now() + Duration::from_millis(50);
    for arrival in arrivals {
        let due = start + arrival.at;
        sleep_until(due).await;
        late.push(due.elapsed());
        while let Some(done) = going.try_join_next() {
            samples.extend(done);
        }
        if going.len() >= MOST_AT_ONCE {
            let fault = Some("never sent: too many are on the way".into());
            samples.push(Sample { row: arrival.row, latency: Duration::MAX, done: Duration::MAX, fault, after: None });
            continue;
        }
        let (client, address) = (Arc::clone(client), address.clone());
        going.spawn(async move { go(arrival, due.into_std(), start.into_std(), &client, &address).await });
    }
    while let Some(done) = going.join_next().await {
        samples.extend(done);
    }
    (samples, late)
}

async fn go(arrival: Arrival, due: Instant, start: Instant, client: &Client, address: &str) -> Sample {
    let Arrival { row, what, .. } = arrival;
    let (first, after) = match what {
        What::Api { ask, message, status, shape, after } => match client.send(&message).await {
            Ok(answer) => {
                let fault = fault_in(&ask, &answer, status, shape);
                let made = |after: fn(&Ask, &Value) -> Ask| after(&ask, &json(&answer.start).unwrap_or_default());
                let after = after.filter(|_| fault.is_none()).map(made);
                (fault.map_or(Ok(answer.first), Err), after)
            }
            Err(sentence) => (Err(format!("{} {}: {sentence}", ask.method, ask.target)), None),
        },
        What::Git(haul) => {
            let done = haul.run(client, address).await;
            (done.map_err(|sentence| format!("{}: {sentence}", haul.deed().name())), haul.after)
        }
    };
    let (latency, fault) = match first {
        Ok(first) => (first.saturating_duration_since(due), None),
        Err(sentence) => (due.elapsed(), Some(sentence)),
    };
    Sample { row, latency, done: start.elapsed(), fault, after }
}

fn fault_in(ask: &Ask, answer: &Answer, status: u16, shape: Shape) -> Option<String> {
    let Answer { start, last, length, .. } = answer;
    let fault = if answer.status == status {
        shape.fault_in(start, *last, *length)
    } else {
        let said = String::from_utf8_lossy(&start[..start.len().min(200)]).into_owned();
        Some(format!("{} instead of {status}: {said}", answer.status))
    };
    fault.map(|fault| format!("{} {}: {fault}", ask.method, ask.target))
}

/// Removes what was made. What cannot be removed stays and disturbs nobody, but it is told.
async fn put_back(client: &Arc<Client>, undo: Vec<Ask>) {
    let (mut going, hands) = (JoinSet::new(), Arc::new(Semaphore::new(HANDS)));
    for ask in undo {
        let (client, hands) = (Arc::clone(client), Arc::clone(&hands));
        going.spawn(async move {
            let _hand = hands.acquire().await.ok()?;
            self::ask(&client, &ask).await.err()
        });
    }
    let mut faults: HashMap<String, usize> = HashMap::new();
    while let Some(done) = going.join_next().await {
        if let Ok(Some(sentence)) = done {
            let kind: String = sentence.chars().filter(|letter| !letter.is_ascii_digit()).take(120).collect();
            *faults.entry(kind).or_default() += 1;
        }
    }
    for (fault, count) in faults {
        eprintln!("could not be put back, {count} times: {fault}");
    }
}
