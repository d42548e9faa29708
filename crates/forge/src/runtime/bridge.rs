//! Runs synchronous use cases for async callers: closures run on threads that own their database connections.
//!
//! Readers share a bounded queue. SQLite has one writer, which commits in groups: it runs all queued writes, each in a
//! savepoint, commits once and only then replies. PostgreSQL has several writers. Long work has its own threads.

mod read_connection;
mod replica;
mod write_tx;
mod writer;

use std::{
    any::Any,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use files::{Files, disk_space::DiskSpace, spool::Spools};
use git::{Refs, Repositories, Repository};
use model::{Project, ProjectId, StorageId, Time, TokenId, WebSessionId};
use store::{Conn, Database, OpenError, repositories::RepositoryRecord};
use tokio::sync::{Notify, oneshot, watch};

use crate::{
    Actor, Caller, Error, InstanceKey, Result,
    caller::{self, Authenticated},
    clock::{Clock, Secrets},
    downloads::DownloadSlots,
    import_slots::ImportSlots,
    job_notifier::JobNotifier,
    lookups::Lookups,
    outbox::PayloadRenderer,
    passwords::PasswordHasher,
    read_cache::ReadCacheKey,
    repository_cache::{PacksNotCached, RepositoryCache},
    repository_locks::RepositoryLocks,
    tokens::TokenUses,
    traces::{LiveTraces, LogStore},
    wakeups::{WakeupSender, Wakeups},
    web_sessions::WebSessionUses,
    work_queue::{SendError, WorkReceiver, WorkSender, work_queue},
};

pub use write_tx::WriteTx;

use read_connection::ReadConnection;
use replica::Replica;
use writer::{PendingWrite, WriteOperation, write_loop};

/// How often a closure runs again because it needs packs that were not cached; they may be replaced meanwhile.
const MAX_PACK_FETCHES: usize = 3;
/// The maximum length of each queue; requests beyond it fail with [`Error::Busy`].
const MAX_QUEUE_LENGTH: usize = 1024;

/// The dependencies and settings of a forge.
pub struct Options {
    /// The database.
    pub database: Database,
    /// A standby of the database, from which lists are read.
    pub read_replica: Option<Database>,
    /// The store of uploads and artifacts.
    pub files: Files,
    /// The store of traces.
    pub logs: LogStore,
    /// The git repositories.
    pub repositories: Repositories,
    /// Temporary files of large responses.
    pub spools: Spools,
    /// The space on the disk of all of them.
    pub disk_space: DiskSpace,
    /// The number of reader threads; PostgreSQL has the same number of writer threads.
    pub readers: usize,
    /// The number of threads for long work.
    pub blocking: usize,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The source of random secrets.
    pub secrets: Arc<dyn Secrets>,
    /// Hashes passwords.
    pub password_hasher: PasswordHasher,
    /// The default maximum number of personal projects of a user.
    pub default_projects_limit: i32,
    /// The key from which recoverable tokens are derived, and with which secrets are encrypted.
    pub instance_key: InstanceKey,
    /// Whether imports and webhooks may connect to private addresses.
    pub allow_local_network: bool,
    /// The maximum size of the pack of a push or an import, in bytes.
    pub max_push_size: Option<u64>,
    /// Renders the payloads of webhooks.
    pub payload_renderer: Arc<dyn PayloadRenderer>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);
/// The number of connections to other forges that a thread keeps open.
const MAX_OTHER_CONNECTIONS: usize = 3;

thread_local! {
    /// The connections of this thread for inline reads, by the id of the forge.
    static INLINE_CONNECTIONS: RefCell<Vec<(u64, ReadConnection)>> = const { RefCell::new(Vec::new()) };
}

/// A handle to the forge; cheap to clone, shared by all protocols.
#[derive(Clone)]
pub struct Forge(Arc<ForgeInner>);

/// The queues of the threads of a forge; the threads end when the last handle is dropped.
struct ForgeInner {
    id: u64,
    shared: Arc<Shared>,
    readers: WorkSender<QueuedRead>,
    writers: WorkSender<QueuedWrite>,
    blocking: WorkSender<QueuedBlocking>,
    replica: Option<Replica>,
}

/// The state that all threads of a forge share.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) files: Files,
    pub(crate) logs: LogStore,
    pub(crate) repositories: Repositories,
    pub(crate) spools: Spools,
    pub(crate) disk_space: DiskSpace,
    /// When a write last failed because the disk of the database server was full.
    pub(crate) database_full_at: Mutex<Option<Instant>>,
    pub(crate) repository_cache: RepositoryCache,
    pub(crate) repository_locks: RepositoryLocks,
    pub(crate) imports: ImportSlots,
    pub(crate) downloads: DownloadSlots,
    pub(crate) max_push_size: Option<u64>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) secrets: Arc<dyn Secrets>,
    pub(crate) password_hasher: PasswordHasher,
    pub(crate) default_projects_limit: i32,
    pub(crate) instance_key: InstanceKey,
    pub(crate) allow_local_network: bool,
    pub(crate) token_uses: TokenUses,
    pub(crate) web_session_uses: WebSessionUses,
    pub(crate) payload_renderer: Arc<dyn PayloadRenderer>,
    /// Wakes the webhook dispatcher when there are new deliveries.
    pub(crate) dispatcher_notify: Arc<Notify>,
    /// Wakes the worker when a task is to be run now.
    pub(crate) task_notify: Arc<Notify>,
    /// Wakes runners that wait for jobs.
    pub(crate) job_notifier: Arc<JobNotifier>,
    /// The traces of running jobs.
    pub(crate) traces: LiveTraces,
    /// Decides which wake-ups are sent to other nodes.
    pub(crate) wakeup_sender: WakeupSender,
    /// Whether this node is about to stop.
    pub(crate) is_draining: watch::Sender<bool>,
}

type QueuedRead = Box<dyn FnOnce(&mut ReadConnection) + Send>;
type QueuedBlocking = Box<dyn FnOnce(&mut ReadConnection) + Send>;
type QueuedWrite = Box<dyn WriteOperation>;

/// A read transaction with the authenticated actor.
pub struct ReadTx<'a> {
    db: &'a mut Conn,
    shared: &'a Shared,
    pub(crate) actor: Actor,
    /// The id of the token that authenticated the actor.
    token: Option<TokenId>,
    /// The id of the session of the web interface that authenticated the actor.
    web_session: Option<WebSessionId>,
    now: Time,
    hook_depth: i32,
    /// Whether the transaction writes: what it sees may be rolled back, so it must not be cached.
    is_writing: bool,
    /// Earlier lookups that were valid when the read began.
    lookups: Option<&'a mut Lookups>,
}

/// The context of long work, which opens short read transactions.
pub struct BlockingContext<'a> {
    connection: &'a mut ReadConnection,
    shared: &'a Shared,
    caller: &'a Caller,
}

impl ReadTx<'_> {
    /// Returns the authenticated actor.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Returns the id of the token that authenticated the actor; with sudo, the token of the administrator.
    pub(crate) fn token(&self) -> Option<TokenId> {
        self.token
    }

    /// Returns the id of the session of the web interface that authenticated the actor.
    pub(crate) fn web_session(&self) -> Option<WebSessionId> {
        self.web_session
    }

    /// Takes the actor out and leaves an anonymous one.
    pub(crate) fn take_actor(&mut self) -> Actor {
        std::mem::replace(&mut self.actor, Actor::Anonymous)
    }

    /// Returns the time of the request.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the length of the chain of webhooks that caused the request.
    pub(crate) fn hook_depth(&self) -> i32 {
        self.hook_depth
    }

    /// Returns the repository of a project; `None` if nothing was ever written to it.
    pub fn repository(&mut self, project: &Project) -> Result<Option<Repository>> {
        match self.find_repository(project.id)? {
            Some(record) => self.open_repository(&record, &project.storage).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the repository of a project by the id of the project.
    pub(crate) fn repository_of(&mut self, project: ProjectId) -> Result<Option<Repository>> {
        let Some(storage) = store::projects::storage_of(self.db, project)? else { return Ok(None) };
        match self.find_repository(project)? {
            Some(record) => self.open_repository(&record, &storage).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the record of the repository of a project; `None` if nothing was ever written to it.
    pub(crate) fn find_repository(&mut self, project: ProjectId) -> Result<Option<RepositoryRecord>> {
        let found = store::repositories::find(self.db, project)?;
        // One that could not be converted must not be taken for an empty one, to which a push would be accepted.
        if found.is_none() && store::unconverted::contains(self.db, project)? {
            let what = format!("the repository of project {project} cannot be used");
            return Err(Error::internal(what, "it was not converted at the last start; the log says why"));
        }
        Ok(found)
    }

    pub(crate) fn open_repository(&mut self, record: &RepositoryRecord, storage: &StorageId) -> Result<Repository> {
        let stores = (&self.shared.repositories, &self.shared.files);
        self.shared.repository_cache.open(self.db, stores, record, storage, self.is_writing)
    }

    /// Returns the refs of a project; there are none if nothing was ever written to it.
    pub fn refs(&mut self, project: &Project) -> Result<Arc<Refs>> {
        match self.find_repository(project.id)? {
            Some(record) => self.refs_of(&record),
            None => Ok(Arc::default()),
        }
    }

    pub(crate) fn refs_of(&mut self, record: &RepositoryRecord) -> Result<Arc<Refs>> {
        self.shared.repository_cache.refs(self.db, record, self.is_writing)
    }

    /// Checks that the database answers.
    pub fn ping(&mut self) -> Result<()> {
        Ok(self.db.ping()?)
    }

    pub(crate) fn db(&mut self) -> &mut Conn {
        self.db
    }

    /// Returns the connection, and earlier lookups on it.
    pub(crate) fn db_and_lookups(&mut self) -> (&mut Conn, Option<&mut Lookups>) {
        (self.db, self.lookups.as_deref_mut())
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.shared
    }
}

impl BlockingContext<'_> {
    /// Runs a closure in a short read transaction.
    pub fn read<T>(&mut self, mut f: impl FnMut(&mut ReadTx<'_>) -> Result<T>) -> Result<T> {
        self.connection.read(self.shared, self.caller, &mut f)
    }

    /// Returns the password hasher.
    pub(crate) fn password_hasher(&self) -> &PasswordHasher {
        &self.shared.password_hasher
    }
}

impl Forge {
    /// Starts the threads of a forge; the database must be migrated.
    pub fn start(options: Options) -> std::result::Result<Self, OpenError> {
        let Options {
            database,
            read_replica,
            files,
            logs,
            repositories,
            spools,
            disk_space,
            readers,
            blocking,
            clock,
            secrets,
            password_hasher,
            default_projects_limit,
            instance_key,
            allow_local_network,
            max_push_size,
            payload_renderer,
        } = options;
        let single_writer = database.has_single_writer();
        let job_notifier = Arc::new(JobNotifier::new(clock.now()));
        let wakeup_sender = WakeupSender::new(&database, &*secrets);
        let shared = Arc::new(Shared {
            database,
            files,
            logs,
            repositories,
            spools,
            disk_space,
            database_full_at: Mutex::new(None),
            repository_cache: RepositoryCache::new(),
            repository_locks: RepositoryLocks::default(),
            imports: ImportSlots::default(),
            downloads: DownloadSlots::default(),
            max_push_size,
            clock,
            secrets,
            password_hasher,
            default_projects_limit,
            instance_key,
            allow_local_network,
            payload_renderer,
            token_uses: TokenUses::default(),
            web_session_uses: WebSessionUses::default(),
            dispatcher_notify: Arc::default(),
            task_notify: Arc::default(),
            job_notifier,
            traces: LiveTraces::default(),
            wakeup_sender,
            is_draining: watch::Sender::default(),
        });
        // A failing connection is reported at startup, not at the first request.
        // On a separate thread: a PostgreSQL connection has a runtime, and the caller may be inside another one.
        thread::scope(|scope| scope.spawn(|| shared.database.connect_reader().map(drop)).join())
            .expect("connecting does not panic")?;
        let (read_sender, read_queue) = work_queue::<QueuedRead>(MAX_QUEUE_LENGTH);
        let (write_sender, write_queue) = work_queue::<QueuedWrite>(MAX_QUEUE_LENGTH);
        let (blocking_sender, blocking_queue) = work_queue::<QueuedBlocking>(MAX_QUEUE_LENGTH);
        for number in 0..readers.max(1) {
            spawn_reader(format!("reader-{number}"), &shared, &read_queue);
        }
        for number in 0..blocking.max(1) {
            spawn_reader(format!("blocking-{number}"), &shared, &blocking_queue);
        }
        let writers = if single_writer { 1 } else { readers.max(1) };
        for number in 0..writers {
            let (shared, mut queue) = (Arc::clone(&shared), write_queue.clone());
            spawn(format!("writer-{number}"), move || write_loop(&shared, &mut queue, single_writer));
        }
        let replica = read_replica.map(|standby| Replica::start(&shared.database, &standby, readers.max(1)));
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Self(Arc::new(ForgeInner {
            id,
            shared,
            readers: read_sender,
            writers: write_sender,
            blocking: blocking_sender,
            replica,
        })))
    }

    /// Returns the storage id of a project; `None` if the project does not exist.
    pub(crate) async fn find_storage(&self, project: ProjectId) -> Result<Option<StorageId>> {
        self.read_inline(Caller::system(), move |tx| Ok(store::projects::storage_of(tx.db(), project)?)).await
    }

    /// Returns the storage id of a project.
    pub(crate) async fn storage_of(&self, project: ProjectId) -> Result<StorageId> {
        self.find_storage(project).await?.ok_or_else(|| Error::not_found("Project"))
    }

    /// Authenticates the caller and runs a closure in a read transaction, on a reader thread.
    pub async fn read<T, F>(&self, caller: Caller, mut f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.0.shared);
        self.run_on(&self.0.readers, move |connection| connection.read(&shared, &caller, &mut f)).await
    }

    /// As [`Self::read`], on the standby of the database if there is one that has everything that was committed before.
    pub async fn read_list<T, F>(&self, caller: Caller, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        let Some(replica) = &self.0.replica else { return self.read(caller, f).await };
        let (result, server) = match replica.read(&self.0.shared, &caller, f).await {
            Ok(result) => (result, "standby"),
            Err(f) => (self.read(caller, f).await, "primary"),
        };
        if !result.as_ref().is_err_and(is_outage) {
            metrics::counter!("gable_list_reads_total", "server" => server).increment(1);
        }
        result
    }

    /// Reads a few rows by key. On SQLite it runs on a connection of the calling thread, because handing it to a reader
    /// would cost more than the read. It blocks an async worker, so it is only for use cases whose cost does not grow with
    /// the data; all others use [`Self::read`].
    pub async fn read_inline<T, F>(&self, caller: Caller, mut f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        if !self.0.shared.database.is_sqlite() {
            return self.read(caller, f).await;
        }
        self.with_inline_connection(|connection| connection.read_inline(&self.0.shared, &caller, &mut f))
    }

    /// As [`Self::read_inline`], and caches the result for the same tokens and subject for as long as the database does not
    /// change. The subject must name everything that the result depends on besides the database and the caller.
    pub async fn read_cached<T, F>(&self, caller: Caller, subject: String, mut f: F) -> Result<T>
    where
        T: Clone + Send + 'static,
        F: FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    {
        let Some(caller_key) = caller.cache_key() else { return self.read_inline(caller, f).await };
        let (key, shared) = (ReadCacheKey { caller: caller_key, subject }, Arc::clone(&self.0.shared));
        let read = move |connection: &mut ReadConnection| connection.read_cached(&shared, &caller, &key, &mut f);
        if self.0.shared.database.is_sqlite() {
            return self.with_inline_connection(read);
        }
        self.run_on(&self.0.readers, read).await
    }

    /// Runs a closure with the calling thread's own connection to this forge.
    fn with_inline_connection<T>(&self, f: impl FnOnce(&mut ReadConnection) -> Result<T>) -> Result<T> {
        INLINE_CONNECTIONS.with_borrow_mut(|connections| {
            let found = connections.iter().position(|(id, _)| *id == self.0.id);
            let index = found.unwrap_or_else(|| {
                // Only tests have several forges; the connections to stopped ones are dropped.
                connections.truncate(MAX_OTHER_CONNECTIONS);
                connections.insert(0, (self.0.id, ReadConnection::new(&self.0.shared.database)));
                0
            });
            f(&mut connections[index].1)
        })
    }

    /// Runs long work on a separate thread pool, so that short reads do not wait for it.
    pub async fn run_blocking<T, F>(&self, caller: Caller, mut f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut BlockingContext<'_>) -> Result<T> + Send + 'static,
    {
        let shared = Arc::clone(&self.0.shared);
        self.run_on(&self.0.blocking, move |connection| {
            f(&mut BlockingContext { connection, shared: &shared, caller: &caller })
        })
        .await
    }

    /// Runs a closure on a thread with a connection. If it needs packs that are only in the bucket, they are fetched without
    /// occupying the thread, and it runs again.
    async fn run_on<T, F>(&self, queue: &WorkSender<QueuedRead>, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut ReadConnection) -> Result<T> + Send + 'static,
    {
        let mut f = f;
        for _ in 0..MAX_PACK_FETCHES {
            let (result, returned) = run_once(queue, f).await?;
            match result.as_ref().err().and_then(PacksNotCached::in_error) {
                Some(missing) => self.fetch_packs(missing).await?,
                None => return result,
            }
            f = returned;
        }
        run_once(queue, f).await?.0
    }

    /// Fetches packs from the bucket to the cache of this node.
    async fn fetch_packs(&self, missing: &PacksNotCached) -> Result<()> {
        let Some(bucket) = self.shared().files.bucket() else { return Ok(()) };
        bucket.fetch_to_cache(missing.files.clone()).await?;
        match missing.required.iter().find(|file| !bucket.is_cached(file)) {
            Some(lost) => Err(Error::Git(git::Error::MissingPack(lost.clone()))),
            None => Ok(()),
        }
    }

    /// Authenticates the caller, runs a closure in a write transaction, and returns once it is durable.
    ///
    /// The closure runs again if it conflicts with another transaction, or if it needs packs that are only in the bucket, so it
    /// must change nothing but the database.
    pub async fn write<T, F>(&self, caller: Caller, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        let mut f = f;
        for _ in 0..MAX_PACK_FETCHES {
            let (result, returned) = self.write_once(caller.clone(), f).await?;
            match result.as_ref().err().and_then(PacksNotCached::in_error) {
                // The transaction was rolled back: it must not hold locks during the fetch.
                Some(missing) => self.fetch_packs(missing).await?,
                None => return result,
            }
            f = returned;
        }
        self.write_once(caller, f).await?.0
    }

    /// Runs a closure in a write transaction; returns it with its result, so that it can run again.
    async fn write_once<T, F>(&self, caller: Caller, f: F) -> Result<(Result<T>, F)>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send + 'static,
    {
        let (reply, response) = oneshot::channel();
        let write = PendingWrite { f, caller, result: None, reply, wakeups: Wakeups::default() };
        send(&self.0.writers, Box::new(write) as QueuedWrite)?;
        response.await.map_err(|_| Error::Internal("the write could not be committed".into()))
    }

    /// Returns the current time of the clock of this forge.
    pub fn now(&self) -> Time {
        self.0.shared.clock.now()
    }

    /// Returns random bytes from the secret random source of this forge.
    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.shared.secrets.fill(&mut bytes);
        bytes
    }

    /// Returns the lengths of the queues, with the labels of the metric.
    pub fn queue_lengths(&self) -> [(&'static str, usize); 3] {
        [("readers", self.0.readers.len()), ("writers", self.0.writers.len()), ("blocking", self.0.blocking.len())]
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }
}

fn send<T>(queue: &WorkSender<T>, work: T) -> Result<()> {
    queue.try_send(work).map_err(|error| match error {
        SendError::Full => Error::Busy,
        SendError::Disconnected => Error::Internal("the forge has stopped".into()),
    })
}

/// Runs a closure on a thread with a connection; returns it with its result, so that it can run again.
async fn run_once<T, F>(queue: &WorkSender<QueuedRead>, mut f: F) -> Result<(Result<T>, F)>
where
    T: Send + 'static,
    F: FnMut(&mut ReadConnection) -> Result<T> + Send + 'static,
{
    let (reply, response) = oneshot::channel();
    let read = move |connection: &mut ReadConnection| {
        run_and_reply(reply, move || (catch_panic(|| f(connection)), f));
    };
    send(queue, Box::new(read) as QueuedRead)?;
    response.await.map_err(|_| Error::Internal("the read was dropped".into()))
}

/// Runs a closure and sends what it returns.
fn run_and_reply<T: 'static>(reply: oneshot::Sender<T>, run: impl FnOnce() -> T) {
    // The client has disconnected.
    if reply.is_closed() {
        return;
    }
    // The client may also disconnect during the read, which then cancels git work.
    let reply = Rc::new(reply);
    let watched = Rc::clone(&reply);
    let value = git::with_cancellation(move || watched.is_closed(), run);
    if let Ok(reply) = Rc::try_unwrap(reply) {
        let _ = reply.send(value);
    }
}

/// Returns whether a read failed because its database, or its queue, could not serve it.
fn is_outage(error: &Error) -> bool {
    matches!(error, Error::Busy | Error::Unavailable(_) | Error::Store(_) | Error::DiskFull(_))
}

/// Runs a closure and turns a panic into [`Error::Internal`], so that the thread continues.
fn catch_panic<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::internal("panic", panic_text(&*panic))))
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

fn spawn(name: String, f: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name).spawn(f).expect("the operating system can start a thread");
}

fn spawn_reader(name: String, shared: &Arc<Shared>, queue: &WorkReceiver<QueuedRead>) {
    let (shared, queue) = (Arc::clone(shared), queue.clone());
    spawn(name, move || {
        let mut connection = ReadConnection::new(&shared.database);
        for read in queue {
            read(&mut connection);
        }
    });
}

/// Authenticates the caller and runs a closure with the transaction.
fn with_read_tx<'a, T>(
    shared: &'a Shared,
    db: &'a mut Conn,
    mut lookups: Option<&'a mut Lookups>,
    caller: &Caller,
    f: impl FnOnce(ReadTx<'a>) -> Result<T>,
) -> Result<T> {
    let now = shared.clock.now();
    let Authenticated { actor, token, web_session } = caller::authenticate(db, lookups.as_deref_mut(), caller, now)?;
    if let Some(token) = &token {
        shared.token_uses.record(token, now);
    }
    if let Some(session) = &web_session {
        shared.web_session_uses.record(session, now);
    }
    let (token, web_session) = (token.map(|token| token.id), web_session.map(|session| session.id));
    let hook_depth = caller.hook_depth();
    f(ReadTx { db, shared, actor, token, web_session, now, hook_depth, is_writing: false, lookups })
}
