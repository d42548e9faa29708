//! The row that says which instance a database holds, and at which point of its life it was last used.
//!
//! The data folder keeps a copy of the row, so that a database which does not belong to a folder, or is older than it,
//! is noticed.

use diesel::{dsl::exists, prelude::*, sql_types::BigInt};

use crate::{
    Conn, Database, OpenError, Result,
    conn::on,
    fragment::Fragment,
    schema::{build_runs, builds, ci_triggers, hooks, instance, instance_seeds, projects, runners},
    sqlite,
};

/// The number of the only row.
const ROW: i64 = 1;

/// What a database and its data folder have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Tells the instance from all others.
    pub instance_id: String,
    /// Grows whenever the mark changes; zero until both sides are written for the first time.
    pub generation: i64,
    /// Random, and new with each generation, so that equal generations of two copies are told apart.
    pub mark: String,
    /// The mark before this one: what the folder holds if its copy could not be written any more.
    pub previous_mark: Option<String>,
    /// A value that only the instance key gives; `None` if none was ever used.
    pub key_check: Option<Vec<u8>>,
}

/// What a database holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No instance: no tables, or tables that nobody has used.
    Nothing,
    /// An instance that was last used by a version that did not bind databases to folders, or whose binding was never
    /// finished.
    Unbound,
    /// An instance that belongs to a data folder.
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
    /// What the database holds, of whichever version its tables are. Nothing is changed by looking.
    pub fn content(&self) -> std::result::Result<Content, OpenError> {
        let mut db = match self {
            // Opening it would create it.
            Self::Sqlite(path) if !path.metadata().is_ok_and(|found| found.len() > 0) => return Ok(Content::Nothing),
            Self::Sqlite(path) => Conn::Sqlite(sqlite::connect_aside(path)?),
            Self::Postgres(target) => Conn::Pg(target.connect_reader()?),
        };
        content(&mut db).map_err(|error| match self {
            Self::Sqlite(path) => OpenError::new(format!("cannot open the database {}: {error}", path.display())),
            Self::Postgres(_) => OpenError::new(format!("cannot read which instance the database holds: {error}")),
        })
    }
}

fn content(db: &mut Conn) -> Result<Content> {
    if has_table(db, "instance")?
        && let Some(binding) = find(db)?
    {
        return Ok(Content::Bound(binding));
    }
    let used = has_table(db, "users")? && count(db, "SELECT count(*) FROM (SELECT 1 FROM users LIMIT 1) x")? > 0;
    Ok(if used { Content::Unbound } else { Content::Nothing })
}

fn has_table(db: &mut Conn, name: &'static str) -> Result<bool> {
    let query = Fragment::<BigInt>::new("SELECT count(*) FROM ")
        .either(
            "sqlite_schema WHERE type = 'table' AND name = ",
            "pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname = ",
        )
        .words(name);
    Ok(on!(db, conn => query.get_result::<i64>(conn))? > 0)
}

fn count(db: &mut Conn, sql: &'static str) -> Result<i64> {
    Ok(on!(db, conn => Fragment::<BigInt>::new(sql).get_result(conn))?)
}

/// The binding, if there is one.
pub fn find(db: &mut Conn) -> Result<Option<Binding>> {
    let row: Option<Row> = on!(db, conn => instance::table.find(ROW).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Binding::from))
}

/// Writes the binding of a database that has none; `false` if it has one by now.
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

/// Begins a new generation; `None` if the mark is not this one any more, so that somebody else has begun one.
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

/// Replaces the binding, for an operator who binds a folder and a database to each other on purpose. The caller holds a
/// transaction.
pub fn replace(db: &mut Conn, new: &Binding) -> Result<()> {
    on!(db, conn => diesel::delete(instance::table).execute(conn))?;
    insert(db, new)?;
    Ok(())
}

/// Notes what the instance key gives.
pub fn set_key_check(db: &mut Conn, key_check: &[u8]) -> Result<()> {
    on!(db, conn => diesel::update(instance::table.find(ROW))
        .set(instance::key_check.eq(key_check))
        .execute(conn))?;
    Ok(())
}

/// Whether anything was made with an instance key that would be lost without it.
pub fn depends_on_key(db: &mut Conn) -> Result<bool> {
    Ok(on!(db, conn => diesel::select(exists(projects::table.select(projects::id))).get_result::<bool>(conn))?
        || on!(db, conn => diesel::select(exists(hooks::table.select(hooks::id))).get_result::<bool>(conn))?
        || on!(db, conn => diesel::select(exists(runners::table.select(runners::id))).get_result::<bool>(conn))?
        || on!(db, conn => diesel::select(exists(instance_seeds::table.select(instance_seeds::name)))
            .get_result::<bool>(conn))?)
}

/// Forgets everything that was sealed with an instance key that is lost: hooks, variables, and credentials of imports.
/// Answers how many of each.
pub fn forget_sealed(db: &mut Conn) -> Result<Vec<(&'static str, i64)>> {
    const STATEMENTS: [(&str, &str, &str); 6] = [
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
            "addresses in delivery logs",
            "FROM hook_deliveries WHERE sent_to IS NOT NULL",
            "UPDATE hook_deliveries SET sent_to = NULL WHERE sent_to IS NOT NULL",
        ),
        (
            "secrets that jobs were given",
            "FROM build_runs WHERE secrets IS NOT NULL",
            "UPDATE build_runs SET secrets = NULL WHERE secrets IS NOT NULL",
        ),
    ];
    let mut forgotten = Vec::new();
    for (what, from, statement) in STATEMENTS {
        let rows = on!(db, conn => Fragment::<BigInt>::new(format!("SELECT count(*) {from}")).get_result(conn))?;
        on!(db, conn => diesel::sql_query(statement).execute(conn))?;
        forgotten.push((what, rows));
    }
    Ok(forgotten)
}

/// Which tokens are made from seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeded {
    /// Tokens of runners.
    Runners,
    /// Tokens of triggers.
    Triggers,
    /// Tokens of jobs that run.
    Jobs,
}

/// Some seeds, by the number of their rows.
pub fn seeds(db: &mut Conn, kind: Seeded, after: i64, most: i64) -> Result<Vec<(i64, Vec<u8>)>> {
    Ok(match kind {
        Seeded::Runners => on!(db, conn => runners::table
            .filter(runners::id.gt(after))
            .order(runners::id)
            .limit(most)
            .select((runners::id, runners::seed))
            .load(conn))?,
        Seeded::Triggers => on!(db, conn => ci_triggers::table
            .filter(ci_triggers::id.gt(after))
            .order(ci_triggers::id)
            .limit(most)
            .select((ci_triggers::id, ci_triggers::seed))
            .load(conn))?,
        Seeded::Jobs => on!(db, conn => build_runs::table
            .inner_join(builds::table)
            .filter(builds::status.eq("running"))
            .filter(build_runs::build_id.gt(after))
            .order(build_runs::build_id)
            .limit(most)
            .select((build_runs::build_id, build_runs::seed))
            .load(conn))?,
    })
}

/// Replaces how the token of a row is recognised.
pub fn set_digest(db: &mut Conn, kind: Seeded, row: i64, digest: &[u8]) -> Result<()> {
    match kind {
        Seeded::Runners => on!(db, conn => diesel::update(runners::table.find(row))
            .set(runners::digest.eq(digest))
            .execute(conn))?,
        Seeded::Triggers => on!(db, conn => diesel::update(ci_triggers::table.find(row))
            .set(ci_triggers::digest.eq(digest))
            .execute(conn))?,
        Seeded::Jobs => on!(db, conn => diesel::update(build_runs::table.find(row))
            .set(build_runs::digest.eq(digest))
            .execute(conn))?,
    };
    Ok(())
}

/// Forgets how the tokens are recognised with which runners join projects; they are made anew when they are looked for.
pub fn forget_runners_digests(db: &mut Conn) -> Result<()> {
    on!(db, conn => diesel::update(projects::table)
        .set(projects::runners_digest.eq(None::<Vec<u8>>))
        .execute(conn))?;
    Ok(())
}
