//! Deploy keys.

use crate::{DeployKeyId, Time};

/// A public key that gives machines read access to projects over SSH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployKey {
    /// The ID of the key.
    pub id: DeployKeyId,
    /// The title.
    pub title: String,
    /// Type, key material and comment in OpenSSH format.
    pub key: String,
    /// `SHA256:…` of the key material; unique among deploy keys and keys of users.
    pub fingerprint: String,
    /// The time at which it was added.
    pub created_at: Time,
}
