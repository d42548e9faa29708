//! The rows on a page of a list.

use std::collections::HashMap;

use diesel::{RunQueryDsl as _, sql_types::BigInt};

use crate::{Conn, Result, fragment::Fragment};

/// The ids of the rows on a page.
pub(crate) enum PageIds {
    /// In the order of the page.
    Known(Vec<i64>),
    /// The result of a query. On PostgreSQL it becomes a part of the statement that reads the rows. That statement
    /// sorts them.
    Query {
        query: Fragment<BigInt>,
        /// Whether the order is the opposite of that of the page.
        is_reversed: bool,
    },
}

impl PageIds {
    /// Returns the ids of an empty page.
    pub(crate) fn none() -> Self {
        Self::Known(Vec::new())
    }

    /// Runs the query on SQLite, where one more statement costs less than writing the text of the statement that reads the
    /// rows each time. On PostgreSQL it would be one more round trip.
    ///
    /// The query may be sorted only in a subquery. SQLite keeps the order of the subquery here, though it does not
    /// document that; the test `all_pages_of_a_list_have_its_order_and_its_total` guards it.
    pub(crate) fn known_on_sqlite(self, db: &mut Conn) -> Result<Self> {
        match (self, db) {
            (Self::Query { query, is_reversed }, Conn::Sqlite(conn)) => {
                let mut ids: Vec<i64> = query.load(conn)?;
                if is_reversed {
                    ids.reverse();
                }
                Ok(Self::Known(ids))
            }
            (ids, _) => Ok(ids),
        }
    }
}

/// Returns the items in the order of their ids; items are large, so each is moved as rarely as possible.
pub(crate) fn in_order<T>(ids: &[i64], items: Vec<T>, id_of: impl Fn(&T) -> i64) -> Vec<T> {
    let positions: HashMap<i64, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let mut places: Vec<Option<T>> = ids.iter().map(|_| None).collect();
    for item in items {
        if let Some(at) = positions.get(&id_of(&item)) {
            places[*at] = Some(item);
        }
    }
    places.into_iter().flatten().collect()
}
