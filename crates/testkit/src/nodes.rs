//! Several forges on one PostgreSQL database, as on several machines.

use std::sync::Arc;

use api::HttpService;
use forge::{Forge, clock::Clock, wakeups};
use model::UserId;
use store::Database;
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle};

use crate::{TestClient, TestForge, TestForgeBuilder};

/// Another forge on the database of a [`TestForge`], with its own caches.
pub struct TestNode {
    /// The use cases below HTTP.
    pub forge: Forge,
    service: HttpService,
    _caches: Option<TempDir>,
}

/// A node that listens for notifications, until it is dropped.
pub struct RunningListener {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl TestForge {
    /// Returns the URL of the database; `None` if it is an SQLite file, which no other node can use.
    pub fn postgres_url(&self) -> Option<String> {
        self.resources.database.url()
    }

    /// Starts another node.
    pub fn start_node(&self) -> TestNode {
        self.start_node_with(self.resources.database.database.clone(), Arc::clone(&self.clock) as _)
    }

    /// Starts another node that reaches the database at this URL.
    pub fn start_node_at(&self, url: &str) -> TestNode {
        let database = Database::postgres(url).expect("a good URL");
        self.start_node_with(database, Arc::clone(&self.clock) as _)
    }

    /// Starts another node that is configured differently.
    pub fn start_configured_node(&self, builder: TestForgeBuilder) -> TestNode {
        let database = self.resources.database.database.clone();
        self.start_other(builder, database, Arc::clone(&self.clock) as _)
    }

    /// Starts another node with its own clock.
    pub fn start_node_with(&self, database: Database, clock: Arc<dyn Clock>) -> TestNode {
        self.start_other(TestForgeBuilder::default(), database, clock)
    }

    fn start_other(&self, builder: TestForgeBuilder, database: Database, clock: Arc<dyn Clock>) -> TestNode {
        let caches = tempfile::tempdir().expect("a folder");
        let (forge, service) = builder.start_node(&self.resources, database, clock, caches.path());
        TestNode { forge, service, _caches: Some(caches) }
    }

    /// Starts another forge with the cache of this one, as after a restart. This one must not be used any more.
    pub fn restart_node(&self) -> TestNode {
        let (database, clock) = (self.resources.database.database.clone(), Arc::clone(&self.clock) as _);
        let (forge, service) =
            TestForgeBuilder::default().start_node(&self.resources, database, clock, self.resources.git.path());
        TestNode { forge, service, _caches: None }
    }
}

impl TestNode {
    /// Returns a client of this node with the token of another client.
    pub fn client(&self, client: &TestClient) -> TestClient {
        TestClient { service: self.service.clone(), ..client.clone() }
    }

    /// Returns a client without a token.
    pub fn anonymous(&self) -> TestClient {
        TestClient { service: self.service.clone(), id: UserId::ANONYMOUS, token: None }
    }

    /// Starts to listen for notifications of other nodes.
    pub fn listen(&self) -> RunningListener {
        RunningListener::start(&self.forge)
    }
}

impl RunningListener {
    /// Starts to listen for notifications on behalf of a forge.
    pub fn start(forge: &Forge) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(wakeups::listen_until_stopped(forge.clone(), stopped)) }
    }

    /// Stops to listen.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}
