//! Where async meets sync: closures hop onto threads that own their database connections.
//!
//! Readers share a bounded queue. SQLite has one writer that commits in groups: it runs all waiting writes, each in a
//! savepoint, commits once and only then answers them. PostgreSQL has several writers. Heavy work has its own threads.

mod seat;
mod writing;

use std::{
    any::Any,
    cell::RefCell,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use files::{Files, disk_space::Room, logs::Logs, spool::Spools};
use git::{Repositories, Repository};
use model::{Project, StorageId, Time};
use store::{Conn, Database, OpenError};
use tokio::sync::{Notify, oneshot};

use crate::{
    Actor, Caller, Error, InstanceKey, Result,
    announcements::PayloadRenderer,
    caller::{self, Proved},
    clock::{Clock, Secrets},
    downloads::Downloads,
    import_slots::ImportSlots,
    job_notifier::Board,
    memo::Question,
    passwords::PasswordCost,
    repository_locks::Turns,
    tokens::Uses,
    traces::Lives,
};

use seat::Seat;
use writing::{Pending, Write, write_loop};

/// How many requests may wait for a thread before further ones are turned away.
const QUEUE: usize = 1024;

/// What a forge is made of.
pub struct Options {
    /// Where the data is.
    pub database: Database,
    /// Where files are.
    pub files: Files,
    /// Where traces are.
    pub logs: Logs,
    /// Where git repositories are.
    pub repositories: Repositories,
    /// Where large answers are kept while they are made and for a while after.
    pub spools: Spools,
    /// How much room there is for all of them.
    pub room: Room,
    /// How many threads read; writers of PostgreSQL are as many.
    pub readers: usize,
    /// How many threads do heavy work.
    pub blocking: usize,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Makes what nobody can guess.
    pub secrets: Arc<dyn Secrets>,
    /// How hard passwords are to try out.
    pub password_cost: PasswordCost,
    /// How many personal projects a user may have unless told otherwise.
    pub default_projects_limit: i32,
    /// From which tokens are made that have to be shown again.
    pub instance_key: InstanceKey,
    /// Whether the service may talk to addresses of its own network on somebody's behalf.
    pub allow_local_network: bool,
    /// How large the pack of a push or an import may be, in bytes.
    pub max_push_size: Option<u64>,
    /// Puts into words what hooks are told.
    pub payload_renderer: Arc<dyn PayloadRenderer>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);
/// How many other forges' connections a thread keeps.
const SEATS_KEPT: usize = 3;

thread_local! {
    /// The connections on which this thread peeks, by forge.
    static SEATS: RefCell<Vec<(u64, Seat)>> = const { RefCell::new(Vec::new()) };
}

/// The way into the forge: cheap to clone, shared by all protocols.
#[derive(Clone)]
pub struct Forge(Arc<Doors>);

/// The ways to the threads of a forge; the threads end with the last of its clones.
struct Doors {
    id: u64,
    shared: Arc<Shared>,
    readers: Sender<ReadTask>,
    writers: Sender<WriteTask>,
    blocking: Sender<HeavyTask>,
}

/// What every thread of a forge knows.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) files: Files,
    pub(crate) logs: Logs,
    pub(crate) repositories: Repositories,
    pub(crate) spools: Spools,
    pub(crate) room: Room,
    /// When the database last had no room, where it has a disk of its own.
    pub(crate) database_full: Mutex<Option<Instant>>,
    pub(crate) turns: Turns,
    pub(crate) imports: ImportSlots,
    pub(crate) downloads: Downloads,
    pub(crate) max_push_size: Option<u64>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) password_cost: PasswordCost,
    pub(crate) default_projects_limit: i32,
    pub(crate) instance_key: InstanceKey,
    pub(crate) allow_local_network: bool,
    pub(crate) uses: Uses,
    pub(crate) payload_renderer: Arc<dyn PayloadRenderer>,
    /// Rings when there is something new to tell.
    pub(crate) post: Arc<Notify>,
    /// Where runners wait for work.
    pub(crate) board: Arc<Board>,
    /// What is known of jobs that run.
    pub(crate) traces: Lives,
}

type ReadTask = Box<dyn FnOnce(&mut Seat) + Send>;
type HeavyTask = Box<dyn FnOnce(&mut Seat) + Send>;
type WriteTask = Box<dyn Write>;

/// Reads the forge as it is at one moment.
pub struct ReadTx<'a> {
    db: &'a mut Conn,
    shared: &'a Shared,
    pub(crate) actor: Actor,
    /// The token that proved who is asking.
    token: Option<i64>,
    now: Time,
    depth: i32,
}

/// Reads and changes the forge; all of it happens, or nothing.
pub struct WriteTx<'a> {
    reader: ReadTx<'a>,
    /// Whether hooks are told something.
    has_post: bool,
    /// Whether runners may find something that they did not find before.
    has_work: bool,
}

/// Works for long; opens the database only for moments.
pub struct BlockingContext<'a> {
    seat: &'a mut Seat,
    shared: &'a Shared,
    caller: &'a Caller,
}

impl ReadTx<'_> {
    /// Who is asking.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The number of the token that proved who is asking; of an administrator's if they act as another user.
    pub(crate) fn token(&self) -> Option<i64> {
        self.token
    }

    /// Takes the actor out; nobody is asking any more.
    pub(crate) fn take_actor(&mut self) -> Actor {
        std::mem::replace(&mut self.actor, Actor::Anonymous)
    }

    /// The moment of the request.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How many hooks have led to this request, one by the other.
    pub(crate) fn depth(&self) -> i32 {
        self.depth
    }

    /// The repository of a project that was opened; `None` if nothing was ever written to it.
    pub fn repository(&self, project: &Project) -> Result<Option<Repository>> {
        let repository = self.shared.repositories.find(&project.storage)?;
        if repository.is_none() && project.default_branch.is_some() {
            return Err(Error::Internal(format!("the repository of project {} is not on the disk", project.id)));
        }
        Ok(repository)
    }

    /// Asks the database for a sign of life.
    pub fn ping(&mut self) -> Result<()> {
        Ok(self.db.ping()?)
    }

    pub(crate) fn db(&mut self) -> &mut Conn {
        self.db
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.shared
    }
}

impl<'a> Deref for WriteTx<'a> {
    type Target = ReadTx<'a>;

    fn deref(&self) -> &Self::Target {
        &self.reader
    }
}

impl DerefMut for WriteTx<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

impl WriteTx<'_> {
    /// Lets whoever brings the post know, once this is durable.
    pub(crate) fn ring(&mut self) {
        self.has_post = true;
    }

    /// Lets runners that wait for work look again, once this is durable.
    pub(crate) fn call_runners(&mut self) {
        self.has_work = true;
    }
}

impl BlockingContext<'_> {
    /// Reads the database for a moment.
    pub fn read<T>(&mut self, mut f: impl FnMut(&mut ReadTx<'_>) -> Result<T>) -> Result<T> {
        self.seat.read(self.shared, self.caller, &mut f)
    }

    /// How hard passwords are to try out.
    pub(crate) fn password_cost(&self) -> &PasswordCost {
        &self.shared.password_cost
    }
}

impl Forge {
    /// Starts the threads of a forge on a database that is up to date.
    pub fn start(options: Options) -> std::result::Result<Self, OpenError> {
        let Options {
            database,
            files,
            logs,
            repositories,
            spools,
            room,
            readers,
            blocking,
            clock,
            secrets,
            password_cost,
            default_projects_limit,
            instance_key,
            allow_local_network,
            max_push_size,
            payload_renderer,
        } = options;
        let single_writer = database.is_embedded();
        let board = Arc::new(Board::new(clock.now()));
        let shared = Arc::new(Shared {
            database,
            files,
            logs,
            repositories,
            spools,
            room,
            database_full: Mutex::new(None),
            turns: Turns::default(),
            imports: ImportSlots::default(),
            downloads: Downloads::default(),
            max_push_size,
            clock,
            secrets,
            password_cost,
            default_projects_limit,
            instance_key,
            allow_local_network,
            payload_renderer,
            uses: Uses::default(),
            post: Arc::default(),
            board,
            traces: Lives::default(),
        });
        // A connection that cannot be made is told at the start, not at the first request.
        // On a thread of its own: a PostgreSQL connection brings a runtime, and the caller may be inside one.
        thread::scope(|scope| scope.spawn(|| shared.database.connect_reader().map(drop)).join())
            .expect("connecting does not panic")?;
        let (read_tasks, read_queue) = bounded::<ReadTask>(QUEUE);
        let (write_tasks, write_queue) = bounded::<WriteTask>(QUEUE);
        let (heavy_tasks, heavy_queue) = bounded::<HeavyTask>(QUEUE);
        for number in 0..readers.max(1) {
            spawn_seat(format!("reader-{number}"), &shared, &read_queue);
        }
        for number in 0..blocking.max(1) {
            spawn_seat(format!("heavy-{number}"), &shared, &heavy_queue);
        }
        let writers = if single_writer { 1 } else { readers.max(1) };
        for number in 0..writers {
            let (shared, queue) = (Arc::clone(&shared), write_queue.clone());
            spawn(format!("writer-{number}"), move || write_loop(&shared, &queue, single_writer));
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let doors = Doors { id, shared, readers: read_tasks, writers: write_tasks, blocking: heavy_tasks };
        Ok(Self(Arc::new(doors)))
    }

    /// Where the repository and the files of a project lie; `None` if the project is gone.
    pub(crate) async fn find_storage(&self, project: i64) -> Result<Option<StorageId>> {
        self.read_inline(Caller::system(), move |tx| Ok(store::projects::storage_of(tx.db(), project)?)).await
    }

    /// Where the repository and the files of a project lie.
    pub(crate) async fn storage_of(&self, project: i64) -> Result<StorageId> {
        self.find_storage(project).await?.ok_or_else(|| Error::not_found("Project"))
    }

    /// Reads on a thread that owns a connection: proves the caller and runs the closure on one snapshot.
    pub async fn read<T, F>(&self, caller: Caller, mut f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.0.shared);
        run_on(&self.0.readers, move |seat| seat.read(&shared, &caller, &mut f)).await
    }

    /// Reads a few rows by their keys. On the embedded database that happens right here, on a connection of the calling
    /// thread: the hop to a reader would cost more than the read. Only for use cases whose cost does not grow with the
    /// data, because they hold an async worker; everything else takes [`Self::read`].
    pub async fn read_inline<T, F>(&self, caller: Caller, mut f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        if !self.0.shared.database.is_embedded() {
            return self.read(caller, f).await;
        }
        self.here(|seat| seat.read_inline(&self.0.shared, &caller, &mut f))
    }

    /// As [`Self::read_inline`], and what was answered to the same tokens about the same subject is remembered for as long as the
    /// embedded database does not change. The subject names everything on which the answer depends beside the database
    /// and the caller.
    pub async fn read_cached<T, F>(&self, caller: Caller, subject: String, mut f: F) -> Result<T>
    where
        T: Clone + Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        match caller.identity().filter(|_| self.0.shared.database.is_embedded()) {
            Some(identity) => {
                let question = Question { identity, subject };
                self.here(|seat| seat.read_cached(&self.0.shared, &caller, question, &mut f))
            }
            None => self.read_inline(caller, f).await,
        }
    }

    /// Does something at the place that the calling thread has at the database.
    fn here<T>(&self, f: impl FnOnce(&mut Seat) -> Result<T>) -> Result<T> {
        SEATS.with_borrow_mut(|seats| {
            let found = seats.iter().position(|(id, _)| *id == self.0.id);
            let index = found.unwrap_or_else(|| {
                // Only tests have several forges; the connections of those that are gone give way.
                seats.truncate(SEATS_KEPT);
                seats.insert(0, (self.0.id, Seat::new(&self.0.shared.database)));
                0
            });
            f(&mut seats[index].1)
        })
    }

    /// Works for long on a thread of its own kind, so that short reads do not wait for it.
    pub async fn run_blocking<T, F>(&self, caller: Caller, mut f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut BlockingContext<'_>) -> Result<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.0.shared);
        run_on(&self.0.blocking, move |seat| f(&mut BlockingContext { seat, shared: &shared, caller: &caller })).await
    }

    /// Changes the forge in one transaction and answers when it is durable.
    ///
    /// The closure may run more than once when it loses a race, so it changes nothing but the database.
    pub async fn write<T, F>(&self, caller: Caller, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let task = Pending { f, caller, result: None, reply, post: None, board: None };
        send(&self.0.writers, Box::new(task) as WriteTask)?;
        answer.await.unwrap_or_else(|_| Err(Error::Internal("the write could not be made durable".into())))
    }

    /// The clock of this forge.
    pub fn now(&self) -> Time {
        self.0.shared.clock.now()
    }

    /// How many tasks wait for readers, writers and heavy threads.
    pub fn queue_lengths(&self) -> [(&'static str, usize); 3] {
        [("readers", self.0.readers.len()), ("writers", self.0.writers.len()), ("heavy", self.0.blocking.len())]
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }
}

fn send<T>(queue: &Sender<T>, task: T) -> Result<()> {
    queue.try_send(task).map_err(|error| match error {
        TrySendError::Full(_) => Error::Busy,
        TrySendError::Disconnected(_) => Error::Internal("the forge has stopped".into()),
    })
}

async fn run_on<T, F>(queue: &Sender<ReadTask>, mut f: F) -> Result<T>
where
    T: Send + 'static,
    F: FnMut(&mut Seat) -> Result<T> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let task = move |seat: &mut Seat| {
        // Nobody waits any more: the client hung up.
        if reply.is_closed() {
            return;
        }
        // The client may hang up while its answer is being made.
        let reply = Rc::new(reply);
        let watched = Rc::clone(&reply);
        let result = git::with_cancellation(move || watched.is_closed(), || shielded(|| f(seat)));
        if let Ok(reply) = Rc::try_unwrap(reply) {
            let _ = reply.send(result);
        }
    };
    send(queue, Box::new(task) as ReadTask)?;
    answer.await.unwrap_or_else(|_| Err(Error::Internal("the task was dropped".into())))
}

/// Runs a closure; a panic is a fault of ours, never the end of the thread.
fn shielded<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f))
        .unwrap_or_else(|panic| Err(Error::Internal(format!("panic: {}", panic_text(&*panic)))))
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word")
}

fn spawn(name: String, f: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name).spawn(f).expect("the operating system grants a thread");
}

fn spawn_seat(name: String, shared: &Arc<Shared>, queue: &Receiver<ReadTask>) {
    let (shared, queue) = (Arc::clone(shared), queue.clone());
    spawn(name, move || {
        let mut seat = Seat::new(&shared.database);
        for task in queue {
            task(&mut seat);
        }
    });
}

/// Proves the caller and lets them in.
fn enter<T>(shared: &Shared, db: &mut Conn, caller: &Caller, f: impl FnOnce(ReadTx<'_>) -> Result<T>) -> Result<T> {
    let now = shared.clock.now();
    let Proved { actor, token } = caller::prove(db, caller, now)?;
    if let Some(token) = &token {
        shared.uses.note(token, now);
    }
    let token = token.map(|token| token.id);
    f(ReadTx { db, shared, actor, token, now, depth: caller.depth() })
}
