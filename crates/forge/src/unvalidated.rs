//! What the caller sent, to be looked at after the gate.

use crate::{Error, Result};

/// Parameters that may turn out to be malformed.
///
/// A use case first asks whether the actor may do this at all and only then looks at what was given, so that a stranger
/// learns nothing from the order of the answers.
#[derive(Clone, Debug)]
pub struct Unvalidated<T>(std::result::Result<T, Vec<String>>);

impl<T> Unvalidated<T> {
    /// Wraps what a protocol made of the request.
    pub fn new(read: std::result::Result<T, Vec<String>>) -> Self {
        Self(read)
    }

    /// Wraps parameters that are in order.
    pub fn good(value: T) -> Self {
        Self(Ok(value))
    }

    /// The parameters, if they are in order.
    pub fn get(&self) -> Result<&T> {
        self.0.as_ref().map_err(|faults| Error::Malformed(faults.clone()))
    }

    /// The same parameters, unless there is something wrong with them after all.
    pub fn unless(self, fault: impl FnOnce(&T) -> Option<String>) -> Self {
        match self.0 {
            Ok(value) => match fault(&value) {
                None => Self(Ok(value)),
                Some(fault) => Self(Err(vec![fault])),
            },
            Err(faults) => Self(Err(faults)),
        }
    }

    /// The same parameters in other words.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Unvalidated<U> {
        Unvalidated(self.0.map(f))
    }
}
