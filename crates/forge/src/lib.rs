//! What one can do here: rights, use cases, events and jobs. Synchronous below the [`bridge`].

pub mod bridge;
pub mod caller;
pub mod clock;
pub mod emails;
pub mod error;
pub mod events;
pub mod first_start;
pub mod given;
pub mod groups;
pub mod instance_key;
pub mod jobs;
pub mod keys;
pub mod members;
mod memo;
pub mod namespaces;
pub mod passwords;
pub mod policy;
pub mod projects;
pub mod sessions;
pub mod tokens;
pub mod uploads;
pub mod users;

pub use bridge::{Forge, Heavy, Options, Reader, Writer, panic_text};
pub use caller::{Actor, Caller};
pub use error::{Error, Result};
pub use given::Given;
pub use instance_key::InstanceKey;
pub use policy::{Ability, GroupAbility, GroupRef, ProjectAbility, ProjectRef};
