//! The state of the instance, for its operator.

pub use store::statistics::Statistics;

use crate::{
    Ability, ReadTx, Result,
    nodes::{self, ListedNode},
};

/// What the operator sees first.
#[derive(Clone, Debug)]
pub struct Overview {
    /// The name of the database engine.
    pub engine: &'static str,
    /// How much there is of everything.
    pub statistics: Statistics,
    /// The number of background tasks that wait.
    pub waiting_tasks: i64,
    /// The number of background tasks that failed permanently.
    pub dead_tasks: i64,
    /// The number of webhook deliveries that wait.
    pub waiting_deliveries: i64,
    /// The number of webhooks that are paused because their receivers fail.
    pub paused_hooks: i64,
    /// The nodes; `None` if there cannot be more than one.
    pub nodes: Option<Vec<ListedNode>>,
}

/// Returns the state of the instance.
pub fn get(tx: &mut ReadTx<'_>) -> Result<Overview> {
    tx.authorize(Ability::ManageServer)?;
    let engine = if tx.shared().database.is_single_node() { "SQLite" } else { "PostgreSQL" };
    let statistics = store::statistics::get(tx.db())?;
    let (waiting_tasks, dead_tasks) = store::tasks::count(tx.db())?;
    let deliveries = store::deliveries::queue_stats(tx.db())?;
    let nodes = if tx.shared().database.is_single_node() { None } else { Some(nodes::list(tx)?) };
    Ok(Overview {
        engine,
        statistics,
        waiting_tasks,
        dead_tasks,
        waiting_deliveries: deliveries.waiting,
        paused_hooks: deliveries.paused,
        nodes,
    })
}
