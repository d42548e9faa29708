//! Packs, which contain the objects of repositories.

/// The bytes of a pack and of its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackContent {
    /// The pack.
    pub pack: Vec<u8>,
    /// Its index.
    pub index: Vec<u8>,
}
