//! The nodes of an instance: the servers that use its database.

use crate::Time;

/// A node as it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// A random id, new at each start.
    pub id: String,
    /// The name of the machine.
    pub name: String,
    /// The version of the server.
    pub version: String,
    /// The addresses on which it listens, separated by spaces.
    pub addresses: String,
    /// What it does.
    pub state: NodeState,
    /// When it started.
    pub started_at: Time,
    /// When it was last heard of.
    pub heartbeat_at: Time,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It serves requests.
    Serving,
    /// It is about to stop, and wants no new requests.
    Draining,
}

impl NodeState {
    /// Returns the stored name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }

    /// Parses a stored name; other names come from another version.
    pub fn parse(name: &str) -> Self {
        if name == "draining" { Self::Draining } else { Self::Serving }
    }
}
