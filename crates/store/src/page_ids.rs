//! The rows on a page of a list.

use diesel::sql_types::BigInt;

use crate::fragment::Fragment;

/// The ids of the rows on a page.
pub(crate) enum PageIds {
    /// In the order of the page.
    Known(Vec<i64>),
    /// The result of a query, in any order. It becomes a part of the statement that reads the rows.
    Query(Fragment<BigInt>),
}

impl PageIds {
    /// Returns the ids of an empty page.
    pub(crate) fn none() -> Self {
        Self::Known(Vec::new())
    }
}
