//! Looks up the users who wrote commits, by their e-mail addresses.

use std::collections::{HashMap, HashSet};

use model::emails;

use crate::{Ability, ReadTx, Result};

/// The maximum number of addresses that are looked up for a page.
const MAX_ADDRESSES: usize = 200;

/// The users among the authors of commits.
#[derive(Clone, Debug, Default)]
pub struct CommitAuthors(HashMap<String, String>);

impl CommitAuthors {
    /// Returns the username of the user with this address.
    pub fn username(&self, address: &str) -> Option<&str> {
        self.0.get(&emails::normalize(address)).map(String::as_str)
    }
}

/// Finds the users whose primary address is one of these, in one statement. Visitors who may not list users find nobody.
pub fn find<'a>(tx: &mut ReadTx<'_>, addresses: impl IntoIterator<Item = &'a str>) -> Result<CommitAuthors> {
    tx.authorize(Ability::ViewPages)?;
    if tx.authorize(Ability::ReadUsers).is_err() {
        return Ok(CommitAuthors::default());
    }
    // PostgreSQL refuses NUL.
    let addresses = addresses.into_iter().filter(|address| address.contains('@') && !address.contains('\0'));
    let addresses: HashSet<String> = addresses.map(emails::normalize).take(MAX_ADDRESSES).collect();
    if addresses.is_empty() {
        return Ok(CommitAuthors::default());
    }
    let addresses: Vec<String> = addresses.into_iter().collect();
    Ok(CommitAuthors(store::emails::usernames(tx.db(), &addresses)?.into_iter().collect()))
}
