//! Keys that open projects to machines.

use crate::Time;

/// A public key with which a machine reads projects over SSH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployKey {
    /// Number of the key.
    pub id: i64,
    /// What it is called.
    pub title: String,
    /// Type, key material and comment in OpenSSH's notation.
    pub key: String,
    /// `SHA256:…` of the key material; no two keys share it, those of users included.
    pub fingerprint: String,
    /// When it was added.
    pub created_at: Time,
}
