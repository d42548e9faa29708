//! The nouns of the forge and their own rules: plain values, no I/O, no serialisation.

pub mod change;
pub mod emails;
pub mod events;
pub mod jobs;
pub mod keys;
pub mod namespaces;
pub mod page;
pub mod text;
pub mod tokens;
pub mod users;
pub mod violations;

pub use change::Change;
pub use emails::Email;
pub use events::Event;
pub use keys::Key;
pub use page::{Page, Slice};
pub use tokens::{Scope, Token};
pub use users::{User, UserState};
pub use violations::Violations;

/// A moment in UTC, cut to microseconds so that it survives every database unchanged.
pub type Time = jiff::Timestamp;
