//! Parameters that are validated only after authorization.

use crate::{Error, Result};

/// Parsed parameters of a request that may be malformed.
///
/// A use case authorizes the actor before it calls [`Self::validate`], so that a caller without permission learns nothing
/// from the order of errors.
#[derive(Clone, Debug)]
pub struct Unvalidated<T>(std::result::Result<T, Vec<String>>);

impl<T> Unvalidated<T> {
    /// Wraps the outcome of parsing a request.
    pub fn new(parsed: std::result::Result<T, Vec<String>>) -> Self {
        Self(parsed)
    }

    /// Wraps parameters that are known to be valid.
    pub fn valid(value: T) -> Self {
        Self(Ok(value))
    }

    /// Returns the parameters, or [`Error::Malformed`] with all faults.
    pub fn validate(&self) -> Result<&T> {
        self.0.as_ref().map_err(|faults| Error::Malformed(faults.clone()))
    }

    /// Makes the parameters malformed if `fault` finds something wrong with them.
    pub fn reject_if(self, fault: impl FnOnce(&T) -> Option<String>) -> Self {
        match self.0 {
            Ok(value) => match fault(&value) {
                None => Self(Ok(value)),
                Some(fault) => Self(Err(vec![fault])),
            },
            Err(faults) => Self(Err(faults)),
        }
    }

    /// Converts the parameters.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Unvalidated<U> {
        Unvalidated(self.0.map(f))
    }
}
