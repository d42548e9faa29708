//! Runners, the projects that they are enabled for, and their tokens.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    Page, ProjectId, Role, Runner, RunnerId, Slice, Time,
    projects::TokenSeed,
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

/// How long after its last contact a runner counts as online.
const ONLINE_TIMEOUT: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

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
            id: RunnerId::new(id),
            seed: TokenSeed(seed),
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

/// Returns the seed of an instance-wide token, if one exists.
pub fn seed(db: &mut Conn, name: &str) -> Result<Option<TokenSeed>> {
    let seed: Option<Vec<u8>> = on!(db, conn => instance_seeds::table
        .find(name)
        .select(instance_seeds::seed)
        .first(conn)
        .optional())?;
    Ok(seed.map(TokenSeed))
}

/// Inserts the seed of an instance-wide token unless one exists; returns the stored seed.
pub fn get_or_insert_seed(db: &mut Conn, name: &str, new: &TokenSeed) -> Result<TokenSeed> {
    on!(db, conn => diesel::insert_into(instance_seeds::table)
        .values((instance_seeds::name.eq(name), instance_seeds::seed.eq(&new.0)))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(seed(db, name)?.unwrap_or_else(|| new.clone()))
}

/// Replaces the seed of an instance-wide token.
pub fn replace_seed(db: &mut Conn, name: &str, new: &TokenSeed) -> Result<()> {
    on!(db, conn => diesel::insert_into(instance_seeds::table)
        .values((instance_seeds::name.eq(name), instance_seeds::seed.eq(&new.0)))
        .on_conflict(instance_seeds::name)
        .do_update()
        .set(instance_seeds::seed.eq(&new.0))
        .execute(conn))?;
    Ok(())
}

/// Returns projects for which no digest of the registration token is stored.
pub fn projects_without_token_digest(db: &mut Conn, limit: i64) -> Result<Vec<(ProjectId, TokenSeed)>> {
    let rows: Vec<(i64, Vec<u8>)> = on!(db, conn => projects::table
        .filter(projects::runners_digest.is_null())
        .order(projects::id)
        .limit(limit)
        .select((projects::id, projects::runners_seed))
        .load(conn))?;
    Ok(rows.into_iter().map(|(id, seed)| (ProjectId::new(id), TokenSeed(seed))).collect())
}

/// Stores the digest of the registration token of a project.
pub fn set_token_digest(db: &mut Conn, project: ProjectId, token: &Digest) -> Result<()> {
    on!(db, conn => diesel::update(projects::table.find(project.get()))
        .set(projects::runners_digest.eq(token.as_bytes()))
        .execute(conn))?;
    Ok(())
}

/// Returns the project with this registration token.
pub fn project_by_registration_token(db: &mut Conn, token: &Digest) -> Result<Option<ProjectId>> {
    let id: Option<i64> = on!(db, conn => projects::table
        .filter(projects::runners_digest.eq(token.as_bytes()))
        .filter(projects::deleted_at.is_null())
        .select(projects::id)
        .first(conn)
        .optional())?;
    Ok(id.map(ProjectId::new))
}

/// A runner to insert.
pub struct NewRunner<'a> {
    /// The seed that its token is derived from.
    pub seed: &'a TokenSeed,
    /// The digest of its token.
    pub digest: Digest,
    /// The description.
    pub description: &'a str,
    /// Whether it takes jobs.
    pub active: bool,
    /// Whether it is available to all projects that use shared runners.
    pub is_shared: bool,
    /// Whether it takes jobs without tags.
    pub run_untagged: bool,
    /// Whether it cannot be enabled for further projects.
    pub locked: bool,
    /// Its tags.
    pub tags: &'a [String],
    /// The maximum timeout of its jobs, in seconds.
    pub maximum_timeout: Option<i64>,
    /// The details that it reports about itself.
    pub info: &'a RunnerInfo,
}

/// Inserts a runner and returns its ID.
pub fn insert(db: &mut Conn, new: &NewRunner<'_>, now: Time) -> Result<RunnerId> {
    let id = on!(db, conn => diesel::insert_into(runners::table)
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
        .get_result(conn))?;
    Ok(RunnerId::new(id))
}

/// Returns the runner with this token.
pub fn by_token(db: &mut Conn, token: &Digest) -> Result<Option<Runner>> {
    let row: Option<Row> = on!(db, conn => runners::table
        .filter(runners::digest.eq(token.as_bytes()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Runner::from))
}

/// Returns a runner by ID.
pub fn by_id(db: &mut Conn, id: RunnerId) -> Result<Option<Runner>> {
    let row: Option<Row> =
        on!(db, conn => runners::table.find(id.get()).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Runner::from))
}

/// Returns the runners of a project and all shared ones, whether or not the project uses shared runners.
pub fn available_to(db: &mut Conn, project: ProjectId) -> Result<Vec<Runner>> {
    let own =
        runner_projects::table.filter(runner_projects::project_id.eq(project.get())).select(runner_projects::runner_id);
    let rows: Vec<Row> = on!(db, conn => runners::table
        .filter(runners::is_shared.eq(true).or(runners::id.eq_any(own)))
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Runner::from).collect())
}

/// Locks the row of a runner until the end of the transaction and returns it; SQLite has one writer anyway.
pub fn lock_row(db: &mut Conn, id: RunnerId) -> Result<Option<Runner>> {
    if let Conn::Pg(conn) = db {
        let _: Option<i64> = runners::table.find(id.get()).select(runners::id).for_update().first(conn).optional()?;
    }
    by_id(db, id)
}

/// Which runners to list.
#[derive(Clone, Copy)]
pub enum RunnerFilter<'a> {
    /// All runners.
    All,
    /// The runners of projects in which the viewer is a master.
    OfMaster(&'a Viewer),
    /// The runners of a project and the shared ones.
    AvailableTo(ProjectId),
}

/// Returns a page of runners in the order of their registration.
pub fn list(
    db: &mut Conn,
    filter: RunnerFilter<'_>,
    scope: Option<RunnerScope>,
    now: Time,
    page: Page,
) -> Result<Slice<Runner>> {
    let matching = || {
        let filter = match filter {
            RunnerFilter::All => Fragment::<Bool>::new("TRUE"),
            RunnerFilter::OfMaster(viewer) => managed_by(viewer),
            RunnerFilter::AvailableTo(project) => Fragment::new(
                "(runners.is_shared OR runners.id IN (SELECT k.runner_id FROM runner_projects k WHERE k.project_id = ",
            )
            .number(project)
            .sql("))"),
        };
        match scope {
            None => filter,
            Some(RunnerScope::Active) => filter.sql(" AND runners.active"),
            Some(RunnerScope::Paused) => filter.sql(" AND NOT runners.active"),
            Some(RunnerScope::Shared) => filter.sql(" AND runners.is_shared"),
            Some(RunnerScope::Specific) => filter.sql(" AND NOT runners.is_shared"),
            Some(RunnerScope::Online) => {
                filter.sql(" AND runners.contacted_at > ").number(to_micros(now - ONLINE_TIMEOUT))
            }
        }
    };
    let total: i64 = on!(db, conn => runners::table.filter(matching()).count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => runners::table
        .filter(matching())
        .order(runners::id)
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Runner::from).collect(), total: total.into(), page })
}

/// Lists runners that the viewer can enable for a project, in the order of their registration, at most `limit`.
pub fn list_enableable(db: &mut Conn, viewer: &Viewer, project: ProjectId, limit: i64) -> Result<Vec<Runner>> {
    let is_manageable = || if viewer.admin { Fragment::new("TRUE") } else { managed_by(viewer) };
    let is_not_enabled = || {
        Fragment::<Bool>::new(
            "NOT runners.is_shared AND NOT runners.locked AND NOT EXISTS \
             (SELECT 1 FROM runner_projects here WHERE here.runner_id = runners.id AND here.project_id = ",
        )
        .number(project)
        .sql(")")
    };
    let rows: Vec<Row> = on!(db, conn => runners::table
        .filter(is_manageable())
        .filter(is_not_enabled())
        .order(runners::id)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Runner::from).collect())
}

/// Matches runners of projects in which the viewer is a master.
fn managed_by(viewer: &Viewer) -> Fragment<Bool> {
    Fragment::new("runners.id IN (SELECT k.runner_id FROM runner_projects k WHERE k.project_id IN (")
        .append(viewer.my_projects_with_role(Role::Master, ""))
        .sql("))")
}

/// Returns whether a runner belongs to a project in which the viewer is a master.
pub fn is_managed_by(db: &mut Conn, id: RunnerId, viewer: &Viewer) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => runners::table
        .find(id.get())
        .filter(managed_by(viewer))
        .select(runners::id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// The fields to change; `None` keeps the stored value.
#[derive(Clone, Debug, Default)]
pub struct RunnerChanges {
    /// The description.
    pub description: Option<String>,
    /// Whether it takes jobs.
    pub active: Option<bool>,
    /// Whether it takes jobs without tags.
    pub run_untagged: Option<bool>,
    /// Whether it cannot be enabled for further projects.
    pub locked: Option<bool>,
    /// Its tags.
    pub tags: Option<Vec<String>>,
}

/// Updates a runner.
pub fn update(db: &mut Conn, id: RunnerId, changes: &RunnerChanges, now: Time) -> Result<()> {
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
    on!(db, conn => diesel::update(runners::table.find(id.get())).set(&update).execute(conn))?;
    Ok(())
}

/// Deletes a runner; returns whether it existed.
pub fn delete(db: &mut Conn, id: RunnerId) -> Result<bool> {
    Ok(on!(db, conn => diesel::delete(runners::table.find(id.get())).execute(conn))? > 0)
}

/// Enables a runner for a project; returns whether it was not enabled before.
pub fn enable_for_project(db: &mut Conn, id: RunnerId, project: ProjectId, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(runner_projects::table)
        .values((
            runner_projects::runner_id.eq(id.get()),
            runner_projects::project_id.eq(project.get()),
            runner_projects::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(added > 0)
}

/// Disables a runner for a project.
pub fn disable_for_project(db: &mut Conn, id: RunnerId, project: ProjectId) -> Result<()> {
    on!(db, conn => diesel::delete(runner_projects::table.find((id.get(), project.get()))).execute(conn))?;
    Ok(())
}

/// Returns whether a runner is enabled for a project, other than as a shared runner.
pub fn is_enabled_for(db: &mut Conn, id: RunnerId, project: ProjectId) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => runner_projects::table
        .find((id.get(), project.get()))
        .select(runner_projects::runner_id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Returns whether a project uses shared runners.
pub fn uses_shared(db: &mut Conn, project: ProjectId) -> Result<bool> {
    let enabled: Option<bool> = on!(db, conn => projects::table
        .find(project.get())
        .select(projects::shared_runners_enabled)
        .first(conn)
        .optional())?;
    Ok(enabled.unwrap_or_default())
}

/// Counts the projects that a runner is enabled for, except those being deleted.
pub fn count_projects(db: &mut Conn, id: RunnerId) -> Result<i64> {
    Ok(on!(db, conn => runner_projects::table
        .inner_join(projects::table)
        .filter(runner_projects::runner_id.eq(id.get()))
        .filter(projects::deleted_at.is_null())
        .count()
        .get_result(conn))?)
}

/// Returns the IDs of the projects that a runner is enabled for and the viewer is a member of; administrators see all.
pub fn projects_of(db: &mut Conn, id: RunnerId, viewer: &Viewer) -> Result<Vec<ProjectId>> {
    let visible = || {
        if viewer.admin {
            return Fragment::<Bool>::new("TRUE");
        }
        Fragment::new("runner_projects.project_id IN (").append(viewer.my_projects()).sql(")")
    };
    let ids: Vec<i64> = on!(db, conn => runner_projects::table
        .inner_join(projects::table)
        .filter(runner_projects::runner_id.eq(id.get()))
        .filter(projects::deleted_at.is_null())
        .filter(visible())
        .order(runner_projects::project_id)
        .select(runner_projects::project_id)
        .load(conn))?;
    Ok(ids.into_iter().map(ProjectId::new).collect())
}

/// Records a contact of a runner and the details that it reported; missing details are kept.
pub fn record_contact(db: &mut Conn, id: RunnerId, info: &RunnerInfo, at: Time) -> Result<()> {
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
    on!(db, conn => diesel::update(runners::table.find(id.get())).set(&update).execute(conn))?;
    Ok(())
}

/// Counts the jobs that shared runners are running, by project; projects without any are left out.
pub fn count_running_on_shared(db: &mut Conn, projects: &[ProjectId]) -> Result<Vec<(ProjectId, i64)>> {
    let counts = || {
        Fragment::<(BigInt, BigInt)>::new(
            "SELECT b.project_id, COUNT(*) FROM builds b JOIN runners r ON r.id = b.runner_id \
             WHERE b.status = 'running' AND b.kind = 0 AND r.is_shared AND b.project_id",
        )
        .in_ids(projects)
        .sql(" GROUP BY b.project_id")
    };
    let rows: Vec<(i64, i64)> = on!(db, conn => counts().load(conn))?;
    Ok(rows.into_iter().map(|(project, count)| (ProjectId::new(project), count)).collect())
}
