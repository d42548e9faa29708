//! Clients that use the cluster through its load balancer while parts of it fail.

mod api_writes;
mod clones;
mod probe;
mod projects;
mod pushes;
mod runners;
mod ssh_key;

pub(crate) use probe::Gap;
pub(crate) use projects::{Project, Projects};

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::{
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    task::JoinHandle,
};

use crate::{
    balancer::Balancer,
    http::Client,
    ledger::Ledger,
    load::{probe::Probe, ssh_key::SshKey},
    nodes::TOKEN,
    rng::Rng,
};

/// How long a client waits for a response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What all clients share.
pub(crate) struct Shared {
    pub(crate) ledger: Ledger,
    pub(crate) projects: Projects,
    balancer: SocketAddr,
    ssh: SocketAddr,
    ssh_key: SshKey,
    stopped: AtomicBool,
    /// Multiplies the time between two operations of a client.
    think_time: u32,
    /// Clients hold it for reading during an operation, so all of them are idle while it is held for writing.
    pause: RwLock<()>,
}

impl Shared {
    /// Waits while clients are paused; returns `None` when they are stopped.
    async fn next_operation(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let operation = self.pause.read().await;
        (!self.stopped.load(Ordering::Relaxed)).then_some(operation)
    }

    /// Waits between two operations of a client.
    async fn think(&self, milliseconds: usize) {
        let time = Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default());
        tokio::time::sleep(time * self.think_time).await;
    }

    fn client(&self) -> Client {
        Client::new(self.balancer, Some(TOKEN)).with_timeout(TIMEOUT)
    }

    /// Returns the URL of a repository at the load balancer.
    fn url(&self, project: &Project) -> String {
        project.url(self.balancer)
    }

    /// Returns the setting of git and the URL of a repository for SSH through the load balancer.
    fn ssh_url(&self, project: &Project) -> (String, String) {
        (self.ssh_key.git_setting(self.ssh), project.ssh_url(self.ssh))
    }
}

/// Running clients.
pub(crate) struct Load {
    pub(crate) shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
    probe: Arc<Probe>,
}

impl Load {
    /// Creates projects and starts the clients; `folder` is for their clones.
    pub(crate) async fn start(
        balancer: &Balancer,
        receiver: SocketAddr,
        name: &str,
        folder: &Path,
        think_time: u32,
        seed: u64,
    ) -> Result<Self> {
        let (client, ssh) = (Client::new(balancer.http, Some(TOKEN)), balancer.ssh);
        let projects = Projects::create(&client, receiver, name).await?;
        let ssh_key = SshKey::create(&client, folder, name).await?;
        let shared = Arc::new(Shared {
            ledger: Ledger::default(),
            projects,
            balancer: balancer.http,
            ssh,
            ssh_key,
            stopped: AtomicBool::new(false),
            think_time,
            pause: RwLock::new(()),
        });
        let mut rng = Rng::new(seed);
        let mut clients = Vec::new();
        for number in 0..shared.projects.pushed.len() {
            let clone = folder.join(format!("{name}-{number}"));
            clients.push(tokio::spawn(pushes::run(Arc::clone(&shared), number, clone, Rng::new(rng.next_u64()))));
        }
        clients.push(tokio::spawn(clones::run(
            Arc::clone(&shared),
            folder.join(format!("{name}-clone")),
            Rng::new(rng.next_u64()),
        )));
        for number in 0..shared.projects.written.len() {
            clients.push(tokio::spawn(api_writes::run(Arc::clone(&shared), number, Rng::new(rng.next_u64()))));
        }
        clients.push(tokio::spawn(runners::commit(Arc::clone(&shared))));
        for number in 0..shared.projects.runners.len() {
            clients.push(tokio::spawn(runners::run(Arc::clone(&shared), number, Rng::new(rng.next_u64()))));
        }
        let probe = Arc::<Probe>::default();
        clients.push(tokio::spawn(probe::run(Arc::clone(&shared), Arc::clone(&probe))));
        Ok(Self { shared, clients, probe })
    }

    /// Waits until all clients are idle, and keeps them idle until the guard is dropped.
    pub(crate) async fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared.pause.write().await
    }

    /// Starts to measure the time without a successful write.
    pub(crate) fn start_gap(&self) {
        self.probe.start_gap();
    }

    /// Returns the longest time without a successful write since the start of the measurement.
    pub(crate) fn end_gap(&self) -> Gap {
        self.probe.end_gap()
    }

    /// Ends all clients but the runners, which finish the jobs, and lets these do so for a while.
    pub(crate) async fn finish_jobs(&self, timeout: Duration) -> Result<()> {
        self.shared.projects.stop_commits.store(true, Ordering::Relaxed);
        runners::wait_until_finished(&self.shared, timeout).await
    }

    /// Ends the clients.
    pub(crate) async fn stop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.await;
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.clients.iter().for_each(JoinHandle::abort);
    }
}
