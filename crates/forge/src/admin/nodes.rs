//! The registry of nodes: each server records regularly that it is alive, for operators, and notices then whether its database
//! was moved.

use std::time::Duration;

use jiff::SignedDuration;
use model::{
    Time,
    nodes::{Node, NodeState},
};
use store::{Database, OpenError};
use tokio::{sync::watch, time};
use tracing::{debug, warn};

use crate::{
    Ability, Caller, Forge, ReadTx, Result, WriteTx,
    clock::{Clock as _, DatabaseClock, SystemClock},
};

/// How often a node records that it is alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// The same for the only node of an instance: an idle server should not write often.
const SINGLE_NODE_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(60);
/// The number of missed heartbeats after which a node counts as silent.
const MISSED_HEARTBEATS: u32 = 3;
/// How long a silent node stays listed.
const SILENT_RETENTION: SignedDuration = SignedDuration::from_hours(24);

/// What a node says about itself.
#[derive(Clone, Debug)]
pub struct NodeDescription {
    /// The name of the machine.
    pub name: String,
    /// The version of the server.
    pub version: String,
    /// The addresses on which it listens, separated by spaces.
    pub addresses: String,
    /// The mark with which the database was bound when it started, if it must not go on when the database has another one.
    pub mark: Option<String>,
}

/// Why a node is no longer registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationEnd {
    /// It was stopped.
    Stopped,
    /// The database has another mark: it was moved to another store, for example. The node must not use it any more.
    MarkChanged,
}

/// A node in the list.
#[derive(Clone, Debug)]
pub struct ListedNode {
    /// The node.
    pub node: Node,
    /// How long ago it was last heard of.
    pub heartbeat_age: SignedDuration,
    /// Whether it should have been heard of since.
    pub is_silent: bool,
}

/// The numbers of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Nodes that serve requests.
    pub serving: u32,
    /// Nodes that are about to stop.
    pub draining: u32,
    /// Nodes that were not heard of for a while.
    pub silent: u32,
}

impl Forge {
    /// Records that this node is about to stop and wants no new requests.
    pub fn begin_draining(&self) {
        self.shared().is_draining.send_replace(true);
    }

    /// Returns whether this node is about to stop.
    pub fn is_draining(&self) -> bool {
        *self.shared().is_draining.borrow()
    }

    fn heartbeat_interval(&self) -> Duration {
        interval(self.shared().database.is_single_node())
    }
}

fn interval(is_single_node: bool) -> Duration {
    if is_single_node { SINGLE_NODE_HEARTBEAT_INTERVAL } else { HEARTBEAT_INTERVAL }
}

/// Registers this node and renews the registration until `stopped` becomes true or the database has another mark; then removes
/// it.
pub async fn register_until_stopped(
    forge: Forge,
    description: NodeDescription,
    mut stopped: watch::Receiver<bool>,
) -> RegistrationEnd {
    let NodeDescription { name, version, addresses, mark } = description;
    let id = format!("{:032x}", u128::from_be_bytes(forge.random_bytes()));
    let (started_at, state) = (forge.now(), NodeState::Serving);
    let mut node = Node { id, name, version, addresses, state, started_at, heartbeat_at: started_at };
    let mut draining = forge.shared().is_draining.subscribe();
    let (mut is_first, mut end) = (true, RegistrationEnd::Stopped);
    while !*stopped.borrow() {
        node.heartbeat_at = forge.now();
        node.state = if *draining.borrow_and_update() { NodeState::Draining } else { NodeState::Serving };
        let (registered, replaces_all) = (node.clone(), is_first && forge.shared().database.is_single_node());
        let expected = mark.clone();
        // A node is not registered in a database that has another mark.
        let is_registered = forge.write(Caller::system(), move |tx| {
            if let Some(expected) = &expected
                && store::instance::find(tx.db())?.is_none_or(|binding| binding.mark != *expected)
            {
                return Ok(false);
            }
            if replaces_all {
                store::nodes::delete_all(tx.db())?;
            }
            store::nodes::upsert(tx.db(), &registered)?;
            Ok(true)
        });
        match is_registered.await {
            Ok(true) => is_first = false,
            Ok(false) => {
                end = RegistrationEnd::MarkChanged;
                break;
            }
            Err(error) => warn!(%error, "cannot record that this node is alive"),
        }
        tokio::select! {
            () = time::sleep(forge.heartbeat_interval()) => {}
            _ = draining.changed() => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    }
    let removed = forge.write(Caller::system(), move |tx| Ok(store::nodes::delete(tx.db(), &node.id)?));
    if let Err(error) = removed.await {
        debug!(%error, "cannot remove this node from the list; it will be listed as silent");
    }
    end
}

/// Lists all nodes.
pub fn list(tx: &mut ReadTx<'_>) -> Result<Vec<ListedNode>> {
    tx.authorize(Ability::ManageServer)?;
    let (now, is_single_node) = (tx.now(), tx.shared().database.is_single_node());
    let nodes = store::nodes::all(tx.db())?;
    Ok(nodes.into_iter().map(|node| listed(node, now, is_single_node)).collect())
}

fn listed(node: Node, now: Time, is_single_node: bool) -> ListedNode {
    let heartbeat_age = now.duration_since(node.heartbeat_at).max(SignedDuration::ZERO);
    let longest = SignedDuration::try_from(interval(is_single_node) * MISSED_HEARTBEATS).unwrap_or(SignedDuration::MAX);
    ListedNode { is_silent: heartbeat_age > longest, node, heartbeat_age }
}

/// Returns the names of the nodes that are running, for commands without a forge.
pub fn running(database: &Database) -> std::result::Result<Vec<String>, OpenError> {
    let now = match database.measure_time()? {
        Some(measured) => DatabaseClock::new(&measured).now(),
        None => SystemClock.now(),
    };
    let nodes = store::nodes::all(&mut database.connect_reader()?).map_err(|error| OpenError::Failed(error.into()))?;
    let listed = nodes.into_iter().map(|node| listed(node, now, database.is_single_node()));
    Ok(listed.filter(|listed| !listed.is_silent).map(|listed| listed.node.name).collect())
}

/// Counts the nodes by what they do.
pub fn count(tx: &mut ReadTx<'_>) -> Result<NodeCounts> {
    let mut counts = NodeCounts::default();
    for listed in list(tx)? {
        match listed.node.state {
            _ if listed.is_silent => counts.silent += 1,
            NodeState::Serving => counts.serving += 1,
            NodeState::Draining => counts.draining += 1,
        }
    }
    Ok(counts)
}

/// Removes nodes that were not heard of for a day; returns their number.
pub(crate) fn delete_silent(tx: &mut WriteTx<'_>) -> Result<usize> {
    let now = tx.now();
    Ok(store::nodes::delete_silent(tx.db(), now - SILENT_RETENTION)?)
}
