//! The registry of nodes.

use diesel::prelude::*;
use model::{
    Time,
    nodes::{Node, NodeState},
};

use crate::{
    Conn, Result,
    conn::on,
    schema::nodes,
    times::{from_micros, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = nodes)]
struct Row {
    id: String,
    name: String,
    version: String,
    addresses: String,
    state: String,
    started_at: i64,
    heartbeat_at: i64,
}

impl From<Row> for Node {
    fn from(Row { id, name, version, addresses, state, started_at, heartbeat_at }: Row) -> Self {
        Self {
            id,
            name,
            version,
            addresses,
            state: NodeState::parse(&state),
            started_at: from_micros(started_at),
            heartbeat_at: from_micros(heartbeat_at),
        }
    }
}

/// Registers a node, or renews its registration.
pub fn upsert(db: &mut Conn, node: &Node) -> Result<()> {
    let (state, heartbeat_at) = (node.state.as_str(), to_micros(node.heartbeat_at));
    on!(db, conn => diesel::insert_into(nodes::table)
        .values((
            nodes::id.eq(&node.id),
            nodes::name.eq(&node.name),
            nodes::version.eq(&node.version),
            nodes::addresses.eq(&node.addresses),
            nodes::state.eq(state),
            nodes::started_at.eq(to_micros(node.started_at)),
            nodes::heartbeat_at.eq(heartbeat_at),
        ))
        .on_conflict(nodes::id)
        .do_update()
        .set((nodes::state.eq(state), nodes::heartbeat_at.eq(heartbeat_at)))
        .execute(conn))?;
    Ok(())
}

/// Removes a node that has stopped.
pub fn delete(db: &mut Conn, id: &str) -> Result<()> {
    on!(db, conn => diesel::delete(nodes::table.find(id)).execute(conn))?;
    Ok(())
}

/// Removes all nodes, at the start of a server that is the only one.
pub fn delete_all(db: &mut Conn) -> Result<()> {
    on!(db, conn => diesel::delete(nodes::table).execute(conn))?;
    Ok(())
}

/// Removes nodes that were last heard of before this time; returns their number.
pub fn delete_silent(db: &mut Conn, before: Time) -> Result<usize> {
    Ok(on!(db, conn => {
        diesel::delete(nodes::table.filter(nodes::heartbeat_at.lt(to_micros(before)))).execute(conn)
    })?)
}

/// Returns all nodes by name and start.
pub fn all(db: &mut Conn) -> Result<Vec<Node>> {
    let rows: Vec<Row> = on!(db, conn => nodes::table
        .order((nodes::name, nodes::started_at, nodes::id))
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Node::from).collect())
}
