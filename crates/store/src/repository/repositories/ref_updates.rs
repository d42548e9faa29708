//! Updates of refs: thousands of them take only a few statements.

use std::collections::BTreeMap;

use diesel::{
    prelude::*,
    sql_types::{Array, BigInt, Nullable, Text},
    upsert::excluded,
};
use model::{Oid, RefName, ids::RepositoryId};

use super::{REF_COLUMNS, RefColumns, RefRecord};
use crate::{
    Conn, Result,
    conn::on,
    constant::constant,
    postgres::PgConnection,
    repository::columns::Parsed,
    schema::{refs, repositories},
};

/// The number of refs in one statement; engines have a limit.
const BATCH_SIZE: usize = 1000;

/// A change of one ref.
#[derive(Clone, Copy, Debug)]
pub struct RefUpdate<'a> {
    /// The name of the ref.
    pub name: &'a RefName,
    /// The expected current target; `None` if the ref must not exist.
    pub old: Option<Oid>,
    /// The new target; `None` to delete the ref.
    pub new: Option<Oid>,
    /// The object that the new target finally refers to, if that is a tag object.
    pub peeled: Option<Oid>,
}

#[derive(Insertable)]
// Otherwise SQLite inserts the rows one by one.
#[diesel(table_name = refs, treat_none_as_default_value = false)]
struct NewRefRow<'a> {
    repository_id: i64,
    name: &'a str,
    target: String,
    peeled: Option<String>,
}

/// What a ref refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RefValue {
    target: Oid,
    peeled: Option<Oid>,
}

/// A ref while updates are applied to it; `None` stands for a ref that does not exist.
#[derive(Default)]
struct RefState {
    stored: Option<RefValue>,
    new: Option<RefValue>,
}

/// Applies updates in order, except those whose ref does not have the old target; returns for each whether it was applied.
/// The caller has called [`begin_update`](super::begin_update) in the same transaction.
pub fn update_refs(db: &mut Conn, repository: RepositoryId, updates: &[RefUpdate<'_>]) -> Result<Vec<bool>> {
    // No other transaction changes refs of this repository, so the targets can be compared here.
    let mut states = load_states(db, repository, updates)?;
    let apply = |update: &RefUpdate<'_>| {
        let state = states.get_mut(update.name).expect("it has the names of all updates");
        let has_old_target = state.new.map(|value| value.target) == update.old;
        if has_old_target {
            state.new = update.new.map(|target| RefValue { target, peeled: update.peeled });
        }
        has_old_target
    };
    let applied = updates.iter().map(apply).collect();
    states.retain(|_, state| state.new != state.stored);
    store_states(db, repository, &states)?;
    Ok(applied)
}

/// Returns the current state of each ref that is to be updated.
fn load_states<'a>(
    db: &mut Conn,
    repository: RepositoryId,
    updates: &[RefUpdate<'a>],
) -> Result<BTreeMap<&'a RefName, RefState>> {
    let mut states: BTreeMap<&RefName, RefState> =
        updates.iter().map(|update| (update.name, RefState::default())).collect();
    let names: Vec<&str> = states.keys().map(|name| name.as_str()).collect();
    for batch in names.chunks(BATCH_SIZE) {
        let rows: Vec<RefColumns> = match db {
            Conn::Sqlite(conn) => refs::table
                .filter(refs::repository_id.eq(repository.get()))
                .filter(refs::name.eq_any(batch))
                .select(REF_COLUMNS)
                .load(conn)?,
            Conn::Pg(conn) => load_by_index(conn, repository, batch)?,
        };
        for RefRecord { name, target, peeled } in rows.into_iter().map(RefRecord::from) {
            let value = Some(RefValue { target, peeled });
            if let Some(state) = states.get_mut(&name) {
                *state = RefState { stored: value, new: value };
            }
        }
    }
    Ok(states)
}

/// Looks up each name in the index. With `name = ANY (…)` PostgreSQL may read all refs of the repository instead.
fn load_by_index(conn: &mut PgConnection, repository: RepositoryId, names: &[&str]) -> Result<Vec<RefColumns>> {
    let rows: Vec<StoredRef> = constant!(
        diesel::sql_query(
            "SELECT r.name, r.target, r.peeled FROM unnest($1) AS wanted (name) CROSS JOIN LATERAL \
         (SELECT * FROM refs WHERE repository_id = $2 AND refs.name = wanted.name COLLATE \"C\" LIMIT 1) r",
        )
        .bind::<Array<Text>, _>(names)
        .bind::<BigInt, _>(repository.get())
    )
    .load(conn)?;
    Ok(rows.into_iter().map(|row| (row.name, row.target, row.peeled)).collect())
}

#[derive(QueryableByName)]
struct StoredRef {
    #[diesel(sql_type = Text)]
    name: Parsed<RefName>,
    #[diesel(sql_type = Text)]
    target: Parsed<Oid>,
    #[diesel(sql_type = Nullable<Text>)]
    peeled: Option<Parsed<Oid>>,
}

/// Writes the new state of refs, and the size of all refs of the repository.
fn store_states(db: &mut Conn, repository: RepositoryId, states: &BTreeMap<&RefName, RefState>) -> Result<()> {
    let mut deleted: Vec<&str> = Vec::new();
    let mut written: Vec<NewRefRow<'_>> = Vec::new();
    let mut growth = 0;
    for (name, RefState { stored, new }) in states {
        growth += packed_size(name, *new) - packed_size(name, *stored);
        match new {
            None => deleted.push(name.as_str()),
            Some(RefValue { target, peeled }) => written.push(NewRefRow {
                repository_id: repository.get(),
                name: name.as_str(),
                target: target.to_string(),
                peeled: peeled.map(|oid| oid.to_string()),
            }),
        }
    }
    for batch in deleted.chunks(BATCH_SIZE) {
        on!(db, conn => diesel::delete(refs::table)
            .filter(refs::repository_id.eq(repository.get()))
            .filter(refs::name.eq_any(batch))
            .execute(conn))?;
    }
    for batch in written.chunks(BATCH_SIZE) {
        on!(db, conn => diesel::insert_into(refs::table)
            .values(batch)
            .on_conflict((refs::repository_id, refs::name))
            .do_update()
            .set((refs::target.eq(excluded(refs::target)), refs::peeled.eq(excluded(refs::peeled))))
            .execute(conn))?;
    }
    if growth != 0 {
        on!(db, conn => constant!(diesel::update(repositories::table.find(repository.get()))
            .set(repositories::refs_bytes.eq(repositories::refs_bytes + growth)))
            .execute(conn))?;
    }
    Ok(())
}

/// Returns the size of the lines of a ref in a packed-refs file: `<target> <name>` and, for an annotated tag, `^<peeled>`.
fn packed_size(name: &RefName, value: Option<RefValue>) -> i64 {
    let Some(RefValue { target: _, peeled }) = value else { return 0 };
    let oid = Oid::ZERO.len();
    let line = oid + " ".len() + name.as_str().len() + "\n".len();
    let peeled_line = if peeled.is_some() { "^".len() + oid + "\n".len() } else { 0 };
    i64::try_from(line + peeled_line).unwrap_or(i64::MAX)
}
