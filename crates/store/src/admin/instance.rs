//! The record that binds a database to its data folder.
//!
//! The data folder has a copy of the record, so that a database that belongs to another folder, or is older than the
//! folder, is detected.

use diesel::{dsl::exists, prelude::*, sql_types::BigInt};

use crate::{
    Conn, Database, OpenError, Result,
    conn::on,
    fragment::Fragment,
    schema::{build_runs, builds, ci_triggers, hooks, instance, instance_secrets, instance_seeds, projects, runners},
    sqlite,
};

/// The id of the only row.
const ROW: i64 = 1;

/// The record that a database and its data folder share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The unique id of the instance.
    pub instance_id: String,
    /// Increases whenever the mark changes; zero until both sides are written for the first time.
    pub generation: i64,
    /// A random value of each generation, which distinguishes equal generations of two copies.
    pub mark: String,
    /// The previous mark, which the folder still has if its copy could not be updated.
    pub previous_mark: Option<String>,
    /// The check value of the instance key; `None` if no key was ever used.
    pub key_check: Option<Vec<u8>>,
}

/// What a database contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseContent {
    /// No instance: no tables, or tables without users.
    Empty,
    /// An instance without a binding: it was last used by a version without bindings, or the binding was never finished.
    Unbound,
    /// An instance that is bound to a data folder.
    Bound(Binding),
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = instance)]
struct Row {
    instance_id: String,
    generation: i64,
    mark: String,
    previous_mark: Option<String>,
    key_check: Option<Vec<u8>>,
}

impl From<Row> for Binding {
    fn from(Row { instance_id, generation, mark, previous_mark, key_check }: Row) -> Self {
        Self { instance_id, generation, mark, previous_mark, key_check }
    }
}

impl Database {
    /// Returns what the database contains, for any version of its tables, without changing it.
    pub fn content(&self) -> std::result::Result<DatabaseContent, OpenError> {
        let mut db = match self {
            // Opening a missing file would create it.
            Self::Sqlite(path) if !path.metadata().is_ok_and(|found| found.len() > 0) => {
                return Ok(DatabaseContent::Empty);
            }
            Self::Sqlite(path) => Conn::Sqlite(sqlite::connect_unconfigured(path)?),
            Self::Postgres(target) => Conn::Pg(target.connect_reader()?),
        };
        content(&mut db).map_err(|error| match self {
            Self::Sqlite(path) => OpenError::new(format!("cannot open the database {}: {error}", path.display())),
            Self::Postgres(_) => OpenError::new(format!("cannot read which instance the database holds: {error}")),
        })
    }
}

fn content(db: &mut Conn) -> Result<DatabaseContent> {
    if has_table(db, "instance")?
        && let Some(binding) = find(db)?
    {
        return Ok(DatabaseContent::Bound(binding));
    }
    let used = has_table(db, "users")? && count(db, "SELECT count(*) FROM (SELECT 1 FROM users LIMIT 1) x")? > 0;
    Ok(if used { DatabaseContent::Unbound } else { DatabaseContent::Empty })
}

fn has_table(db: &mut Conn, name: &'static str) -> Result<bool> {
    let query = Fragment::<BigInt>::new("SELECT count(*) FROM ")
        .per_engine(
            "sqlite_schema WHERE type = 'table' AND name = ",
            "pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname = ",
        )
        .text(name);
    Ok(on!(db, conn => query.get_result::<i64>(conn))? > 0)
}

fn count(db: &mut Conn, sql: &'static str) -> Result<i64> {
    Ok(on!(db, conn => Fragment::<BigInt>::new(sql).get_result(conn))?)
}

/// Returns the binding, if there is one.
pub fn find(db: &mut Conn) -> Result<Option<Binding>> {
    let row: Option<Row> = on!(db, conn => instance::table.find(ROW).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Binding::from))
}

/// Inserts the binding of a database; returns `false` if it already has one.
pub fn insert(db: &mut Conn, new: &Binding) -> Result<bool> {
    let inserted = on!(db, conn => diesel::insert_into(instance::table)
        .values((
            instance::id.eq(ROW),
            instance::instance_id.eq(&new.instance_id),
            instance::generation.eq(new.generation),
            instance::mark.eq(&new.mark),
            instance::previous_mark.eq(&new.previous_mark),
            instance::key_check.eq(&new.key_check),
        ))
        .on_conflict(instance::id)
        .do_nothing()
        .execute(conn))?;
    Ok(inserted > 0)
}

/// Starts a new generation; returns `None` if the mark has changed, because another process has started one.
pub fn advance(db: &mut Conn, mark: &str, new_mark: &str) -> Result<Option<Binding>> {
    let changed = on!(db, conn => diesel::update(instance::table.find(ROW).filter(instance::mark.eq(mark)))
        .set((
            instance::generation.eq(instance::generation + 1),
            instance::mark.eq(new_mark),
            instance::previous_mark.eq(mark),
        ))
        .execute(conn))?;
    if changed == 0 { Ok(None) } else { find(db) }
}

/// Replaces the binding when an operator explicitly binds a folder and a database. The caller provides the transaction.
pub fn replace(db: &mut Conn, new: &Binding) -> Result<()> {
    on!(db, conn => diesel::delete(instance::table).execute(conn))?;
    insert(db, new)?;
    Ok(())
}

/// Stores the check value of the instance key, unless there is one.
pub fn set_first_key_check(db: &mut Conn, key_check: &[u8]) -> Result<()> {
    on!(db, conn => diesel::update(instance::table.find(ROW).filter(instance::key_check.is_null()))
        .set(instance::key_check.eq(key_check))
        .execute(conn))?;
    Ok(())
}

/// Stores the check value of the instance key.
pub fn set_key_check(db: &mut Conn, key_check: &[u8]) -> Result<()> {
    on!(db, conn => diesel::update(instance::table.find(ROW))
        .set(instance::key_check.eq(key_check))
        .execute(conn))?;
    Ok(())
}

/// Returns whether there are rows that need the instance key.
pub fn depends_on_key(db: &mut Conn) -> Result<bool> {
    Ok(on!(db, conn => diesel::select(exists(projects::table.select(projects::id))).get_result::<bool>(conn))?
        || on!(db, conn => diesel::select(exists(hooks::table.select(hooks::id))).get_result::<bool>(conn))?
        || on!(db, conn => diesel::select(exists(runners::table.select(runners::id))).get_result::<bool>(conn))?
        || on!(db, conn => diesel::select(exists(instance_secrets::table.select(instance_secrets::id)))
            .get_result::<bool>(conn))?
        || on!(db, conn => diesel::select(exists(instance_seeds::table.select(instance_seeds::name)))
            .get_result::<bool>(conn))?)
}

/// Deletes everything that was encrypted with a lost instance key and returns the number of rows of each kind.
pub fn delete_encrypted(db: &mut Conn) -> Result<Vec<(&'static str, i64)>> {
    const STATEMENTS: [(&str, &str, &str); 8] = [
        ("hooks", "FROM hooks", "DELETE FROM hooks"),
        ("variables of projects", "FROM ci_variables", "DELETE FROM ci_variables"),
        (
            "variables of triggered pipelines",
            "FROM pipelines WHERE variables IS NOT NULL",
            "UPDATE pipelines SET variables = NULL WHERE variables IS NOT NULL",
        ),
        (
            "credentials of imports",
            "FROM project_imports WHERE credentials IS NOT NULL",
            "UPDATE project_imports SET credentials = NULL WHERE credentials IS NOT NULL",
        ),
        (
            "URLs in delivery logs",
            "FROM hook_deliveries WHERE sent_to IS NOT NULL",
            "UPDATE hook_deliveries SET sent_to = NULL WHERE sent_to IS NOT NULL",
        ),
        (
            "secrets of jobs",
            "FROM build_runs WHERE secrets IS NOT NULL",
            "UPDATE build_runs SET secrets = NULL WHERE secrets IS NOT NULL",
        ),
        (
            "SSH host keys in the database",
            // The others are no loss.
            "FROM instance_secrets WHERE name = 'ssh-host-key'",
            "DELETE FROM instance_secrets",
        ),
        (
            "withheld ends of traces",
            "FROM build_runs WHERE trace_withheld IS NOT NULL",
            "UPDATE build_runs SET trace_withheld = NULL WHERE trace_withheld IS NOT NULL",
        ),
    ];
    let mut deleted = Vec::new();
    for (what, from, statement) in STATEMENTS {
        let rows = on!(db, conn => Fragment::<BigInt>::new(format!("SELECT count(*) {from}")).get_result(conn))?;
        on!(db, conn => diesel::sql_query(statement).execute(conn))?;
        deleted.push((what, rows));
    }
    Ok(deleted)
}

/// The kinds of tokens that are derived from a seed and the instance key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededToken {
    /// Tokens of runners.
    Runners,
    /// Tokens of triggers.
    Triggers,
    /// Tokens of running jobs.
    Jobs,
}

/// Returns up to `limit` seeds with the ids of their rows, for ids above `after`.
pub fn seeds(db: &mut Conn, kind: SeededToken, after: i64, limit: i64) -> Result<Vec<(i64, Vec<u8>)>> {
    Ok(match kind {
        SeededToken::Runners => on!(db, conn => runners::table
            .filter(runners::id.gt(after))
            .order(runners::id)
            .limit(limit)
            .select((runners::id, runners::seed))
            .load(conn))?,
        SeededToken::Triggers => on!(db, conn => ci_triggers::table
            .filter(ci_triggers::id.gt(after))
            .order(ci_triggers::id)
            .limit(limit)
            .select((ci_triggers::id, ci_triggers::seed))
            .load(conn))?,
        SeededToken::Jobs => on!(db, conn => build_runs::table
            .inner_join(builds::table)
            .filter(builds::status.eq("running"))
            .filter(build_runs::build_id.gt(after))
            .order(build_runs::build_id)
            .limit(limit)
            .select((build_runs::build_id, build_runs::seed))
            .load(conn))?,
    })
}

/// Replaces the stored digest of the token of a row.
pub fn set_digest(db: &mut Conn, kind: SeededToken, row: i64, digest: &[u8]) -> Result<()> {
    match kind {
        SeededToken::Runners => on!(db, conn => diesel::update(runners::table.find(row))
            .set(runners::digest.eq(digest))
            .execute(conn))?,
        SeededToken::Triggers => on!(db, conn => diesel::update(ci_triggers::table.find(row))
            .set(ci_triggers::digest.eq(digest))
            .execute(conn))?,
        SeededToken::Jobs => on!(db, conn => diesel::update(build_runs::table.find(row))
            .set(build_runs::digest.eq(digest))
            .execute(conn))?,
    };
    Ok(())
}

/// Clears the digests of the registration tokens of projects; they are recomputed on demand.
pub fn clear_runners_digests(db: &mut Conn) -> Result<()> {
    on!(db, conn => diesel::update(projects::table)
        .set(projects::runners_digest.eq(None::<Vec<u8>>))
        .execute(conn))?;
    Ok(())
}
