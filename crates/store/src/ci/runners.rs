//! Runners: who does builds, for whom, and how they are recognised.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    Page, Role, Runner, Slice, Time,
    projects::Seed,
    runners::{RunnerInfo, RunnerScope},
    tokens::Digest,
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    pipelines::to_lines,
    schema::{instance_seeds, projects, runner_projects, runners},
    times::{from_micros, from_micros_opt, to_micros},
};

/// How long after it was last heard of a runner counts as online.
const ONLINE: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

#[derive(Queryable, Selectable)]
#[diesel(table_name = runners)]
struct Row {
    id: i64,
    seed: Vec<u8>,
    description: String,
    active: bool,
    is_shared: bool,
    run_untagged: bool,
    locked: bool,
    tags: String,
    maximum_timeout: Option<i64>,
    name: Option<String>,
    version: Option<String>,
    revision: Option<String>,
    platform: Option<String>,
    architecture: Option<String>,
    contacted_at: Option<i64>,
    created_at: i64,
}

impl From<Row> for Runner {
    fn from(row: Row) -> Self {
        let Row {
            id,
            seed,
            description,
            active,
            is_shared,
            run_untagged,
            locked,
            tags,
            maximum_timeout,
            name,
            version,
            revision,
            platform,
            architecture,
            contacted_at,
            created_at,
        } = row;
        Self {
            id,
            seed: Seed(seed),
            description,
            active,
            is_shared,
            run_untagged,
            locked,
            tags: to_lines(&tags),
            maximum_timeout,
            info: RunnerInfo { name, version, revision, platform, architecture },
            contacted_at: from_micros_opt(contacted_at),
            created_at: from_micros(created_at),
        }
    }
}

/// The seed of a token of the instance, if one was ever made.
pub fn seed(db: &mut Conn, name: &str) -> Result<Option<Seed>> {
    let seed: Option<Vec<u8>> = on!(db, conn => instance_seeds::table
        .find(name)
        .select(instance_seeds::seed)
        .first(conn)
        .optional())?;
    Ok(seed.map(Seed))
}

/// Keeps the seed of a token of the instance, unless there is one; answers which one counts.
pub fn keep_seed(db: &mut Conn, name: &str, new: &Seed) -> Result<Seed> {
    on!(db, conn => diesel::insert_into(instance_seeds::table)
        .values((instance_seeds::name.eq(name), instance_seeds::seed.eq(&new.0)))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(seed(db, name)?.unwrap_or_else(|| new.clone()))
}

/// Puts another seed into the place of the one before.
pub fn replace_seed(db: &mut Conn, name: &str, new: &Seed) -> Result<()> {
    on!(db, conn => diesel::insert_into(instance_seeds::table)
        .values((instance_seeds::name.eq(name), instance_seeds::seed.eq(&new.0)))
        .on_conflict(instance_seeds::name)
        .do_update()
        .set(instance_seeds::seed.eq(&new.0))
        .execute(conn))?;
    Ok(())
}

/// Some of the projects of which it is not known how the token is recognised with which runners join them.
pub fn undigested(db: &mut Conn, most: i64) -> Result<Vec<(i64, Seed)>> {
    let rows: Vec<(i64, Vec<u8>)> = on!(db, conn => projects::table
        .filter(projects::runners_digest.is_null())
        .order(projects::id)
        .limit(most)
        .select((projects::id, projects::runners_seed))
        .load(conn))?;
    Ok(rows.into_iter().map(|(id, seed)| (id, Seed(seed))).collect())
}

/// Notes how the token is recognised with which runners join a project.
pub fn digest_project(db: &mut Conn, project: i64, token: &Digest) -> Result<()> {
    on!(db, conn => diesel::update(projects::table.find(project))
        .set(projects::runners_digest.eq(token.as_bytes()))
        .execute(conn))?;
    Ok(())
}

/// The project that runners join with this token.
pub fn project_of_token(db: &mut Conn, token: &Digest) -> Result<Option<i64>> {
    Ok(on!(db, conn => projects::table
        .filter(projects::runners_digest.eq(token.as_bytes()))
        .filter(projects::deleted_at.is_null())
        .select(projects::id)
        .first(conn)
        .optional())?)
}

/// A runner about to be written down.
pub struct NewRunner<'a> {
    /// From what its token is made.
    pub seed: &'a Seed,
    /// How its token is recognised.
    pub digest: Digest,
    /// What its owner calls it.
    pub description: &'a str,
    /// Whether it takes builds.
    pub active: bool,
    /// Whether it is there for every project that wants shared ones.
    pub is_shared: bool,
    /// Whether it takes builds without tags.
    pub run_untagged: bool,
    /// Whether it joins no further projects.
    pub locked: bool,
    /// What it has to offer.
    pub tags: &'a [String],
    /// How many seconds a build of it may take at most.
    pub maximum_timeout: Option<i64>,
    /// What it says about itself.
    pub info: &'a RunnerInfo,
}

/// Writes a runner down; answers its number.
pub fn insert(db: &mut Conn, new: &NewRunner<'_>, now: Time) -> Result<i64> {
    Ok(on!(db, conn => diesel::insert_into(runners::table)
        .values((
            runners::seed.eq(&new.seed.0),
            runners::digest.eq(new.digest.as_bytes()),
            runners::description.eq(new.description),
            runners::active.eq(new.active),
            runners::is_shared.eq(new.is_shared),
            runners::run_untagged.eq(new.run_untagged),
            runners::locked.eq(new.locked),
            runners::tags.eq(new.tags.join("\n")),
            runners::maximum_timeout.eq(new.maximum_timeout),
            runners::name.eq(&new.info.name),
            runners::version.eq(&new.info.version),
            runners::revision.eq(&new.info.revision),
            runners::platform.eq(&new.info.platform),
            runners::architecture.eq(&new.info.architecture),
            runners::created_at.eq(to_micros(now)),
            runners::updated_at.eq(to_micros(now)),
        ))
        .returning(runners::id)
        .get_result(conn))?)
}

/// The runner whose token this is.
pub fn by_token(db: &mut Conn, token: &Digest) -> Result<Option<Runner>> {
    let row: Option<Row> = on!(db, conn => runners::table
        .filter(runners::digest.eq(token.as_bytes()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Runner::from))
}

/// One runner.
pub fn by_id(db: &mut Conn, id: i64) -> Result<Option<Runner>> {
    let row: Option<Row> = on!(db, conn => runners::table.find(id).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Runner::from))
}

/// The runners that may build a project: its own, and all shared ones, whether it wants those or not.
pub fn available_to(db: &mut Conn, project: i64) -> Result<Vec<Runner>> {
    let own = runner_projects::table.filter(runner_projects::project_id.eq(project)).select(runner_projects::runner_id);
    let rows: Vec<Row> = on!(db, conn => runners::table
        .filter(runners::is_shared.eq(true).or(runners::id.eq_any(own)))
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Runner::from).collect())
}

/// One runner, which nobody else changes while the transaction lasts; SQLite has one writer anyway.
pub fn hold(db: &mut Conn, id: i64) -> Result<Option<Runner>> {
    if let Conn::Pg(conn) = db {
        let _: Option<i64> = runners::table.find(id).select(runners::id).for_update().first(conn).optional()?;
    }
    by_id(db, id)
}

/// Which runners are meant.
#[derive(Clone, Copy)]
pub enum Whose<'a> {
    /// All.
    Everybodys,
    /// Those of projects of which somebody is a master.
    Of(&'a Viewer),
    /// Those of a project, and the shared ones.
    OfProject(i64),
}

/// Runners in the order in which they joined.
pub fn list(
    db: &mut Conn,
    whose: Whose<'_>,
    scope: Option<RunnerScope>,
    now: Time,
    page: Page,
) -> Result<Slice<Runner>> {
    let among = || {
        let whose = match whose {
            Whose::Everybodys => Fragment::<Bool>::new("TRUE"),
            Whose::Of(viewer) => reachable_by(viewer),
            Whose::OfProject(project) => Fragment::new(
                "(runners.is_shared OR runners.id IN (SELECT k.runner_id FROM runner_projects k WHERE k.project_id = ",
            )
            .number(project)
            .sql("))"),
        };
        match scope {
            None => whose,
            Some(RunnerScope::Active) => whose.sql(" AND runners.active"),
            Some(RunnerScope::Paused) => whose.sql(" AND NOT runners.active"),
            Some(RunnerScope::Shared) => whose.sql(" AND runners.is_shared"),
            Some(RunnerScope::Specific) => whose.sql(" AND NOT runners.is_shared"),
            Some(RunnerScope::Online) => whose.sql(" AND runners.contacted_at > ").number(to_micros(now - ONLINE)),
        }
    };
    let total = on!(db, conn => runners::table.filter(among()).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => runners::table
        .filter(among())
        .order(runners::id)
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Runner::from).collect(), total, page })
}

/// Whether a runner belongs to a project of which somebody is a master.
fn reachable_by(viewer: &Viewer) -> Fragment<Bool> {
    Fragment::new("runners.id IN (SELECT k.runner_id FROM runner_projects k WHERE k.project_id IN (")
        .then(viewer.my_projects_as(Role::Master, ""))
        .sql("))")
}

/// Whether a runner belongs to a project of which somebody is a master.
pub fn is_reachable(db: &mut Conn, id: i64, viewer: &Viewer) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => runners::table
        .find(id)
        .filter(reachable_by(viewer))
        .select(runners::id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// How a runner is from now on.
#[derive(Clone, Debug, Default)]
pub struct RunnerChanges {
    /// What its owner calls it.
    pub description: Option<String>,
    /// Whether it takes builds.
    pub active: Option<bool>,
    /// Whether it takes builds without tags.
    pub run_untagged: Option<bool>,
    /// Whether it joins no further projects.
    pub locked: Option<bool>,
    /// What it has to offer.
    pub tags: Option<Vec<String>>,
}

/// Changes a runner.
pub fn update(db: &mut Conn, id: i64, changes: &RunnerChanges, now: Time) -> Result<()> {
    #[derive(AsChangeset)]
    #[diesel(table_name = runners)]
    struct Update<'a> {
        description: Option<&'a str>,
        active: Option<bool>,
        run_untagged: Option<bool>,
        locked: Option<bool>,
        tags: Option<String>,
        updated_at: i64,
    }
    let update = Update {
        description: changes.description.as_deref(),
        active: changes.active,
        run_untagged: changes.run_untagged,
        locked: changes.locked,
        tags: changes.tags.as_ref().map(|tags| tags.join("\n")),
        updated_at: to_micros(now),
    };
    on!(db, conn => diesel::update(runners::table.find(id)).set(&update).execute(conn))?;
    Ok(())
}

/// Removes a runner; whether it was there.
pub fn delete(db: &mut Conn, id: i64) -> Result<bool> {
    Ok(on!(db, conn => diesel::delete(runners::table.find(id)).execute(conn))? > 0)
}

/// Lets a runner build a project; whether it did not before.
pub fn join(db: &mut Conn, id: i64, project: i64, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(runner_projects::table)
        .values((
            runner_projects::runner_id.eq(id),
            runner_projects::project_id.eq(project),
            runner_projects::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(added > 0)
}

/// Lets a runner no longer build a project.
pub fn leave(db: &mut Conn, id: i64, project: i64) -> Result<()> {
    on!(db, conn => diesel::delete(runner_projects::table.find((id, project))).execute(conn))?;
    Ok(())
}

/// Whether a runner builds a project in particular.
pub fn builds(db: &mut Conn, id: i64, project: i64) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => runner_projects::table
        .find((id, project))
        .select(runner_projects::runner_id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Whether a project wants to be built by shared runners.
pub fn are_wanted(db: &mut Conn, project: i64) -> Result<bool> {
    let wanted: Option<bool> = on!(db, conn => projects::table
        .find(project)
        .select(projects::shared_runners_enabled)
        .first(conn)
        .optional())?;
    Ok(wanted.unwrap_or_default())
}

/// How many projects a runner builds in particular, those aside that are being removed.
pub fn count_projects(db: &mut Conn, id: i64) -> Result<i64> {
    Ok(on!(db, conn => runner_projects::table
        .inner_join(projects::table)
        .filter(runner_projects::runner_id.eq(id))
        .filter(projects::deleted_at.is_null())
        .count()
        .get_result(conn))?)
}

/// The numbers of the projects that a runner builds in particular and to which somebody belongs; administrators get all.
pub fn projects_of(db: &mut Conn, id: i64, viewer: &Viewer) -> Result<Vec<i64>> {
    let known = || {
        if viewer.admin {
            return Fragment::<Bool>::new("TRUE");
        }
        Fragment::new("runner_projects.project_id IN (").then(viewer.my_projects()).sql(")")
    };
    Ok(on!(db, conn => runner_projects::table
        .inner_join(projects::table)
        .filter(runner_projects::runner_id.eq(id))
        .filter(projects::deleted_at.is_null())
        .filter(known())
        .order(runner_projects::project_id)
        .select(runner_projects::project_id)
        .load(conn))?)
}

/// Notes that a runner was heard of, and what it says about itself as far as it says something.
pub fn note_contact(db: &mut Conn, id: i64, info: &RunnerInfo, at: Time) -> Result<()> {
    #[derive(AsChangeset)]
    #[diesel(table_name = runners)]
    struct Update<'a> {
        name: Option<&'a str>,
        version: Option<&'a str>,
        revision: Option<&'a str>,
        platform: Option<&'a str>,
        architecture: Option<&'a str>,
        contacted_at: i64,
    }
    let update = Update {
        name: info.name.as_deref(),
        version: info.version.as_deref(),
        revision: info.revision.as_deref(),
        platform: info.platform.as_deref(),
        architecture: info.architecture.as_deref(),
        contacted_at: to_micros(at),
    };
    on!(db, conn => diesel::update(runners::table.find(id)).set(&update).execute(conn))?;
    Ok(())
}

/// How many builds of each of these projects shared runners have at the moment; projects without any are left out.
pub fn shared_load(db: &mut Conn, of: &[i64]) -> Result<Vec<(i64, i64)>> {
    let counts = || {
        Fragment::<(BigInt, BigInt)>::new(
            "SELECT b.project_id, COUNT(*) FROM builds b JOIN runners r ON r.id = b.runner_id \
             WHERE b.status = 'running' AND b.kind = 0 AND r.is_shared AND b.project_id",
        )
        .among(of)
        .sql(" GROUP BY b.project_id")
    };
    Ok(on!(db, conn => counts().load(conn))?)
}
