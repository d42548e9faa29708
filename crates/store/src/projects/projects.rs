//! Single projects; lists are in [`crate::project_lists`].

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Integer, Nullable, Text},
};
use model::{
    Change, Namespace, NamespaceId, Project, ProjectId, Role, StorageId, Time, UserId, Visibility,
    projects::{ForkSource, NewProject, ProjectAccess, ProjectChanges, ProjectFeatures, TokenSeed},
    text::fold_case,
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    constant::constant,
    forks,
    fragment::Fragment,
    imports::StatusRow,
    members,
    namespaces::{Row as NamespaceRow, to_visibility},
    schema::{
        fork_links, issue_books, lower, namespaces, project_imports, project_stars, project_storage, projects, users,
    },
    search::{END, SEPARATOR},
    times::{from_micros, to_micros},
    users::SummaryRow,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = projects)]
struct Row {
    id: i64,
    creator_id: i64,
    name: String,
    path: String,
    description: Option<String>,
    default_branch: Option<String>,
    visibility: i32,
    archived: bool,
    star_count: i64,
    forks_count: i64,
    issues_enabled: bool,
    merge_requests_enabled: bool,
    wiki_enabled: bool,
    builds_enabled: bool,
    snippets_enabled: bool,
    container_registry_enabled: bool,
    shared_runners_enabled: bool,
    public_builds: bool,
    only_allow_merge_if_build_succeeds: bool,
    only_allow_merge_if_all_discussions_are_resolved: bool,
    request_access_enabled: bool,
    lfs_enabled: Option<bool>,
    runners_seed: Vec<u8>,
    created_at: i64,
    updated_at: i64,
    last_activity_at: i64,
}

/// A project with its namespace and the owner of that, the ID of its fork source, its import, the numbers of its open and
/// open confidential issues, the access levels of the viewer (in the project, in its group, by shares), its storage ID,
/// whether it is shared with a group, and the name of its avatar.
type FullRow = (
    Row,
    NamespaceRow,
    Option<SummaryRow>,
    Option<i64>,
    Option<StatusRow>,
    (i64, i64),
    (Option<i32>, Option<i32>, Option<i32>),
    String,
    bool,
    Option<String>,
);

fn to_project(row: FullRow, viewer: &Viewer) -> Project {
    let (row, namespace, owner, fork_of, import, (open_issues, open_confidential), levels, storage, _, avatar) = row;
    let (direct, group, share) = levels;
    let Row {
        id,
        creator_id,
        name,
        path,
        description,
        default_branch,
        visibility,
        archived,
        star_count,
        forks_count,
        issues_enabled,
        merge_requests_enabled,
        wiki_enabled,
        builds_enabled,
        snippets_enabled,
        container_registry_enabled,
        shared_runners_enabled,
        public_builds,
        only_allow_merge_if_build_succeeds,
        only_allow_merge_if_all_discussions_are_resolved,
        request_access_enabled,
        lfs_enabled,
        runners_seed,
        created_at,
        updated_at,
        last_activity_at,
    } = row;
    let namespace = Namespace::from(namespace);
    let role = |level: Option<i32>| level.and_then(|level| Role::from_level(level.into()));
    let owns = viewer.user != UserId::ANONYMOUS && namespace.owner_id == Some(viewer.user);
    let access = ProjectAccess { project: role(direct), group: role(group), share: role(share), owns };
    let sees_all_issues = viewer.admin || access.role() >= Some(Role::Reporter);
    Project {
        id: ProjectId::new(id),
        open_issues: if sees_all_issues { open_issues } else { open_issues - open_confidential },
        access,
        namespace,
        owner: owner.map(Into::into),
        creator_id: UserId::new(creator_id),
        name,
        path,
        description,
        default_branch,
        avatar,
        visibility: to_visibility(visibility),
        archived,
        star_count,
        forks_count,
        features: ProjectFeatures {
            issues_enabled,
            merge_requests_enabled,
            wiki_enabled,
            builds_enabled,
            snippets_enabled,
            container_registry_enabled,
            shared_runners_enabled,
            public_builds,
            only_allow_merge_if_build_succeeds,
            only_allow_merge_if_all_discussions_are_resolved,
            request_access_enabled,
        },
        lfs_enabled,
        runners_seed: TokenSeed(runners_seed),
        storage: to_storage_id(&storage),
        created_at: from_micros(created_at),
        updated_at: from_micros(updated_at),
        last_activity_at: from_micros(last_activity_at),
        shared_with: Vec::new(),
        fork_of: fork_of.map(ProjectId::new),
        forked_from: None,
        import: import.map(Into::into),
    }
}

/// The name of the avatar. Not a column of the schema, which has as many as Diesel allows.
const AVATAR: &str = "projects.avatar";

/// Whether a project is shared with a group, possibly until a time in the past.
const HAS_SHARES: &str = "EXISTS (SELECT 1 FROM project_shares s WHERE s.project_id = projects.id)";

/// The selection of all queries for projects; `$share` is the expression for the access level by shares.
macro_rules! full_rows {
    ($viewer:expr, $share:expr) => {
        projects::table
            .inner_join(namespaces::table.left_join(users::table))
            .left_join(fork_links::table)
            .left_join(project_imports::table)
            .inner_join(issue_books::table)
            .inner_join(project_storage::table)
            .select((
                Row::as_select(),
                NamespaceRow::as_select(),
                Option::<SummaryRow>::as_select(),
                fork_links::source_id.nullable(),
                Option::<StatusRow>::as_select(),
                (issue_books::open_issues, issue_books::open_confidential),
                ($viewer.direct_level(), $viewer.group_level(), $share),
                project_storage::storage_id,
                Fragment::<Bool>::new(HAS_SHARES),
                Fragment::<Nullable<Text>>::new(AVATAR),
            ))
    };
}

/// The access level by shares for lists, computed only for projects with confidential issues, where it matters.
fn share_level_if_needed(viewer: &Viewer) -> Fragment<Nullable<Integer>> {
    Fragment::new("CASE WHEN issue_books.open_confidential > 0 THEN ").append(viewer.share_level()).sql(" END")
}

/// Identifies a project.
#[derive(Clone, Copy, Debug)]
pub enum ProjectKey<'a> {
    /// By ID.
    Id(ProjectId),
    /// By the full path of its namespace and its own path, ignoring case.
    Path(&'a str, &'a str),
}

/// Returns a project with the roles of the viewer, without the groups it is shared with and its fork source.
pub fn find(db: &mut Conn, viewer: &Viewer, key: ProjectKey<'_>) -> Result<Option<Project>> {
    let row: Option<FullRow> = match key {
        ProjectKey::Id(id) => on!(db, conn => constant!(full_rows!(viewer, viewer.share_level())
            .filter(projects::id.eq(id.get()))
            .limit(1))
        .get_result(conn)
        .optional())?,
        ProjectKey::Path(namespace, path) => on!(db, conn => constant!(full_rows!(viewer, viewer.share_level())
            .filter(lower(namespaces::full_path).eq(namespace.to_lowercase()))
            .filter(projects::path_key.eq(fold_case(path)))
            .limit(1))
        .get_result(conn)
        .optional())?,
    };
    Ok(row.map(|row| to_project(row, viewer)))
}

/// Returns the projects with these IDs in no particular order, as [`find`] does but possibly without the access levels by
/// shares.
pub fn by_ids(db: &mut Conn, viewer: &Viewer, ids: &[ProjectId]) -> Result<Vec<Project>> {
    let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
    Ok(rows_by_ids(db, viewer, &ids)?.into_iter().map(|row| to_project(row, viewer)).collect())
}

/// As [`by_ids`], with the groups that projects are shared with, and their fork sources.
pub(crate) fn by_ids_with_relations(db: &mut Conn, viewer: &Viewer, ids: &[i64]) -> Result<Vec<Project>> {
    let rows = rows_by_ids(db, viewer, ids)?;
    rows_with_relations(db, viewer, rows)
}

/// As [`by_ids_with_relations`], for the IDs that a query returns, in an order. Used on PostgreSQL only; see
/// `PageIds::known_on_sqlite`.
pub(crate) fn by_query_with_relations(
    db: &mut Conn,
    viewer: &Viewer,
    ids: Fragment<BigInt>,
    order: Fragment<BigInt>,
) -> Result<Vec<Project>> {
    let rows = on!(db, conn => full_rows!(viewer, share_level_if_needed(viewer))
        .filter(Fragment::<Bool>::new("projects.id").in_query(ids))
        .order(order)
        .load(conn))?;
    rows_with_relations(db, viewer, rows)
}

fn rows_by_ids(db: &mut Conn, viewer: &Viewer, ids: &[i64]) -> Result<Vec<FullRow>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    Ok(on!(db, conn => constant!(full_rows!(viewer, share_level_if_needed(viewer))
        .filter(Fragment::<Bool>::new("projects.id").in_ids(ids)))
    .load(conn))?)
}

fn rows_with_relations(db: &mut Conn, viewer: &Viewer, rows: Vec<FullRow>) -> Result<Vec<Project>> {
    let has_shares = |row: &&FullRow| row.8;
    let shared: Vec<ProjectId> = rows.iter().filter(has_shares).map(|row| ProjectId::new(row.0.id)).collect();
    let mut projects: Vec<Project> = rows.into_iter().map(|row| to_project(row, viewer)).collect();
    add_relations(db, viewer, &mut projects, &shared)?;
    Ok(projects)
}

/// Locks the row of a project until the transaction ends; returns whether it exists. SQLite has a single writer and needs no
/// lock.
pub fn lock(db: &mut Conn, id: ProjectId) -> Result<bool> {
    match db {
        Conn::Sqlite(_) => Ok(true),
        Conn::Pg(conn) => {
            let found: Option<i64> = projects::table
                .find(id.get())
                .filter(projects::deleted_at.is_null())
                .select(projects::id)
                .for_update()
                .first(conn)
                .optional()?;
            Ok(found.is_some())
        }
    }
}

/// Loads the groups that projects are shared with, and their fork sources.
pub fn with_relations(db: &mut Conn, viewer: &Viewer, projects: &mut [Project]) -> Result<()> {
    let ids: Vec<ProjectId> = projects.iter().map(|project| project.id).collect();
    add_relations(db, viewer, projects, &ids)
}

/// As [`with_relations`]; only the projects in `shared` may be shared with groups.
fn add_relations(db: &mut Conn, viewer: &Viewer, projects: &mut [Project], shared: &[ProjectId]) -> Result<()> {
    let mut shares = members::shares_of(db, shared, viewer.now)?;
    let forks: Vec<ProjectId> =
        projects.iter().filter(|project| project.fork_of.is_some()).map(|project| project.id).collect();
    let mut sources: HashMap<ProjectId, ForkSource> = forks::sources_of(db, viewer, &forks)?.into_iter().collect();
    for project in projects {
        // Shares are hidden where sharing is disabled.
        let shares = shares.remove(&project.id).filter(|_| !project.namespace.share_with_group_lock);
        project.shared_with = shares.unwrap_or_default();
        project.forked_from = sources.remove(&project.id);
    }
    Ok(())
}

/// Returns whether a name and a path are taken in a namespace, ignoring case.
pub fn find_taken(
    db: &mut Conn,
    namespace: NamespaceId,
    name: &str,
    path: &str,
    except: Option<ProjectId>,
) -> Result<(bool, bool)> {
    let except = except.map_or(0, ProjectId::get);
    let exists = |found: Option<i64>| found.is_some();
    let name: Option<i64> = on!(db, conn => projects::table
        .filter(projects::namespace_id.eq(namespace.get()))
        .filter(projects::name_key.eq(fold_case(name)))
        .filter(projects::id.ne(except))
        .select(projects::id)
        .first(conn)
        .optional())?;
    let path: Option<i64> = on!(db, conn => projects::table
        .filter(projects::namespace_id.eq(namespace.get()))
        .filter(projects::path_key.eq(fold_case(path)))
        .filter(projects::id.ne(except))
        .select(projects::id)
        .first(conn)
        .optional())?;
    Ok((exists(name), exists(path)))
}

/// Inserts a project.
pub fn insert(
    db: &mut Conn,
    new: &NewProject,
    namespace: NamespaceId,
    creator: UserId,
    visibility: Visibility,
    seed: &TokenSeed,
    now: Time,
) -> Result<ProjectId> {
    let path = new.path_or_default();
    let features = ProjectFeatures::new().with(&new.features);
    let description = new.description.as_deref().filter(|text| !text.is_empty());
    let id = on!(db, conn => diesel::insert_into(projects::table)
        .values((
            projects::namespace_id.eq(namespace.get()),
            projects::creator_id.eq(creator.get()),
            (
                projects::name.eq(&new.name),
                projects::path.eq(&path),
                projects::name_key.eq(fold_case(&new.name)),
                projects::path_key.eq(fold_case(&path)),
                projects::search_text.eq(search_text(&new.name, &path, description)),
                projects::description.eq(description),
            ),
            projects::visibility.eq(visibility.level()),
            columns_of(&features),
            projects::lfs_enabled.eq(new.lfs_enabled),
            projects::runners_seed.eq(&seed.0),
            projects::created_at.eq(to_micros(now)),
            projects::updated_at.eq(to_micros(now)),
            projects::last_activity_at.eq(to_micros(now)),
        ))
        .returning(projects::id)
        .get_result(conn))?;
    Ok(ProjectId::new(id))
}

/// Returns the feature flags as column assignments.
#[diesel::dsl::auto_type(no_type_alias)]
fn columns_of(features: &ProjectFeatures<bool>) -> _ {
    let issues: bool = features.issues_enabled;
    let merge_requests: bool = features.merge_requests_enabled;
    let wiki: bool = features.wiki_enabled;
    let builds: bool = features.builds_enabled;
    let snippets: bool = features.snippets_enabled;
    let registry: bool = features.container_registry_enabled;
    let shared_runners: bool = features.shared_runners_enabled;
    let public_builds: bool = features.public_builds;
    let builds_succeed: bool = features.only_allow_merge_if_build_succeeds;
    let discussions_resolved: bool = features.only_allow_merge_if_all_discussions_are_resolved;
    let request_access: bool = features.request_access_enabled;
    (
        projects::issues_enabled.eq(issues),
        projects::merge_requests_enabled.eq(merge_requests),
        projects::wiki_enabled.eq(wiki),
        projects::builds_enabled.eq(builds),
        projects::snippets_enabled.eq(snippets),
        projects::container_registry_enabled.eq(registry),
        projects::shared_runners_enabled.eq(shared_runners),
        projects::public_builds.eq(public_builds),
        projects::only_allow_merge_if_build_succeeds.eq(builds_succeed),
        projects::only_allow_merge_if_all_discussions_are_resolved.eq(discussions_resolved),
        projects::request_access_enabled.eq(request_access),
    )
}

/// Updates a project.
pub fn update(db: &mut Conn, project: &Project, changes: &ProjectChanges, now: Time) -> Result<()> {
    let name = changes.name.as_deref().unwrap_or(&project.name);
    let path = changes.path.as_deref().unwrap_or(&project.path);
    let description = match &changes.description {
        Change::Keep => project.description.as_deref(),
        Change::Clear => None,
        Change::Set(text) => Some(text.as_str()),
    };
    let features = project.features.with(&changes.features);
    on!(db, conn => diesel::update(projects::table.find(project.id.get()))
        .set((
            projects::name.eq(name),
            projects::path.eq(path),
            projects::name_key.eq(fold_case(name)),
            projects::path_key.eq(fold_case(path)),
            projects::search_text.eq(search_text(name, path, description)),
            projects::description.eq(description),
            projects::visibility.eq(changes.visibility.unwrap_or(project.visibility).level()),
            columns_of(&features),
            projects::lfs_enabled.eq(changes.lfs_enabled.or(project.lfs_enabled)),
            projects::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Archives or unarchives a project.
pub fn set_archived(db: &mut Conn, id: ProjectId, archived: bool, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(projects::table.find(id.get()))
        .set((projects::archived.eq(archived), projects::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Returns the default branch of a project.
pub fn default_branch_of(db: &mut Conn, id: ProjectId) -> Result<Option<String>> {
    let found: Option<Option<String>> = on!(db, conn => projects::table
        .find(id.get())
        .select(projects::default_branch)
        .first(conn)
        .optional())?;
    Ok(found.flatten())
}

/// Stores the default branch; `None` if the repository has no branch.
pub fn set_default_branch(db: &mut Conn, id: ProjectId, branch: Option<&str>, now: Time) -> Result<()> {
    let differs =
        || Fragment::<Bool>::new("coalesce(projects.default_branch, '') <> ").text(branch.unwrap_or_default());
    on!(db, conn => diesel::update(projects::table.find(id.get()))
        .filter(differs())
        .set((projects::default_branch.eq(branch), projects::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Transfers a project to another namespace.
pub fn transfer(db: &mut Conn, id: ProjectId, namespace: NamespaceId, visibility: Visibility, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(projects::table.find(id.get()))
        .set((
            projects::namespace_id.eq(namespace.get()),
            projects::visibility.eq(visibility.level()),
            projects::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Stars a project; returns whether it was not starred before.
pub fn star(db: &mut Conn, id: ProjectId, user: UserId, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(project_stars::table)
        .values((
            project_stars::user_id.eq(user.get()),
            project_stars::project_id.eq(id.get()),
            project_stars::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    touch_if_changed(db, added > 0, id, now)
}

/// Returns whether a user has starred a project.
pub fn is_starred(db: &mut Conn, id: ProjectId, user: UserId) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => project_stars::table
        .find((user.get(), id.get()))
        .select(project_stars::project_id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Unstars a project; returns whether it was starred.
pub fn unstar(db: &mut Conn, id: ProjectId, user: UserId, now: Time) -> Result<bool> {
    let removed = on!(db, conn => diesel::delete(project_stars::table.find((user.get(), id.get()))).execute(conn))?;
    touch_if_changed(db, removed > 0, id, now)
}

fn touch_if_changed(db: &mut Conn, changed: bool, id: ProjectId, now: Time) -> Result<bool> {
    if changed {
        on!(db, conn => diesel::update(projects::table.find(id.get()))
            .set(projects::updated_at.eq(to_micros(now)))
            .execute(conn))?;
    }
    Ok(changed)
}

/// Returns the IDs of the projects to delete and locks their rows until the transaction ends.
pub fn lock_for_deletion(db: &mut Conn, scope: DeletionScope<'_>) -> Result<Vec<ProjectId>> {
    let selected = || projects::table.filter(scope.selected()).order(projects::id).select(projects::id);
    let ids: Vec<i64> = match db {
        Conn::Sqlite(conn) => selected().load(conn)?,
        Conn::Pg(conn) => selected().for_update().load(conn)?,
    };
    Ok(ids.into_iter().map(ProjectId::new).collect())
}

/// Marks projects as deleted: queries no longer find them, and their paths are free. Enqueues a task for each to delete its
/// data.
pub fn soft_delete(db: &mut Conn, scope: DeletionScope<'_>, task_kind: &str, now: Time) -> Result<()> {
    // Tasks are enqueued for exactly the updated rows: a project that is transferred concurrently must not get one.
    let ids: Vec<i64> = on!(db, conn => diesel::update(projects::table.filter(scope.selected()))
        .set((projects::namespace_id.eq(None::<i64>), projects::deleted_at.eq(to_micros(now))))
        .returning(projects::id)
        .get_results(conn))?;
    let enqueue = || {
        Fragment::<BigInt>::new("INSERT INTO jobs (kind, payload, run_at, created_at) SELECT ")
            .text(task_kind)
            .sql(", CAST(projects.id AS TEXT), ")
            .number(to_micros(now))
            .sql(", ")
            .number(to_micros(now))
            .sql(" FROM projects WHERE projects.id")
            .in_ids(&ids)
            .sql(" ORDER BY projects.id")
    };
    on!(db, conn => enqueue().execute(conn))?;
    Ok(())
}

/// The projects to delete.
#[derive(Clone, Copy, Debug)]
pub enum DeletionScope<'a> {
    /// The project with this ID.
    One(ProjectId),
    /// All projects in these namespaces.
    InNamespaces(&'a [NamespaceId]),
}

impl DeletionScope<'_> {
    fn selected(self) -> Fragment<Bool> {
        match self {
            Self::One(id) => Fragment::new("projects.deleted_at IS NULL AND projects.id = ").number(id),
            Self::InNamespaces(namespaces) => Fragment::new("projects.namespace_id").in_ids(namespaces),
        }
    }
}

/// Returns the storage ID of a project, deleted or not.
pub fn storage_of(db: &mut Conn, id: ProjectId) -> Result<Option<StorageId>> {
    let found: Option<String> = on!(db, conn => project_storage::table
        .find(id.get())
        .select(project_storage::storage_id)
        .first(conn)
        .optional())?;
    Ok(found.as_deref().map(to_storage_id))
}

fn to_storage_id(text: &str) -> StorageId {
    StorageId::parse(text).expect("a check constraint allows nothing else")
}

/// Returns whether a project is marked as deleted.
pub fn is_soft_deleted(db: &mut Conn, id: ProjectId) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => projects::table
        .find(id.get())
        .filter(projects::deleted_at.is_not_null())
        .select(projects::id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// Tables with many rows per project: the table, its project column, and a column that identifies rows within a project.
const DEPENDENT_TABLES: [(&str, &str, &str); 20] = [
    ("project_members", "project_id", "id"),
    ("project_shares", "project_id", "id"),
    ("project_stars", "project_id", "user_id"),
    ("ref_intents", "project_id", "id"),
    ("events", "project_id", "id"),
    ("commit_notes", "project_id", "id"),
    ("hooks", "project_id", "id"),
    ("builds", "project_id", "id"),
    ("pipelines", "project_id", "id"),
    ("build_specs", "project_id", "id"),
    ("ci_triggers", "project_id", "id"),
    ("ci_variables", "project_id", "id"),
    ("runner_projects", "project_id", "runner_id"),
    ("releases", "project_id", "id"),
    ("fork_links", "source_id", "id"),
    ("deploy_key_projects", "project_id", "key_id"),
    ("notes", "project_id", "id"),
    ("issues", "project_id", "id"),
    ("labels", "project_id", "id"),
    ("milestones", "project_id", "id"),
];

/// Deletes up to `limit` dependent rows of a deleted project; returns their number. Batches keep other writers from waiting
/// for a project with many rows. The order of the tables keeps cascades small: rows cascade to few others once the tables
/// before are empty.
pub fn purge_batch(db: &mut Conn, id: ProjectId, limit: i64) -> Result<usize> {
    for purge_some in [purge_deliveries, purge_refs] {
        let removed = purge_some(db, id, limit)?;
        if removed > 0 {
            return Ok(removed);
        }
    }
    for (table, project, row) in DEPENDENT_TABLES {
        let delete_some = || {
            Fragment::<BigInt>::new(format!("DELETE FROM {table} WHERE {project} = "))
                .number(id)
                .sql(format!(" AND {row}"))
                .in_query(
                    Fragment::new(format!("SELECT {row} FROM {table} WHERE {project} = "))
                        .number(id)
                        .sql(" LIMIT ")
                        .number(limit),
                )
        };
        let removed = on!(db, conn => delete_some().execute(conn))?;
        if removed > 0 {
            return Ok(removed);
        }
    }
    Ok(0)
}

/// Deletes up to `limit` deliveries of the webhooks of a project; a webhook may have very many.
fn purge_deliveries(db: &mut Conn, project: ProjectId, limit: i64) -> Result<usize> {
    let delete_some = || {
        Fragment::<BigInt>::new("DELETE FROM hook_deliveries WHERE id").in_query(
            Fragment::new("SELECT d.id FROM hook_deliveries d JOIN hooks h ON h.id = d.hook_id WHERE h.project_id = ")
                .number(project)
                .sql(" LIMIT ")
                .number(limit),
        )
    };
    Ok(on!(db, conn => delete_some().execute(conn))?)
}

/// Deletes up to `limit` refs of the repository of a project.
fn purge_refs(db: &mut Conn, project: ProjectId, limit: i64) -> Result<usize> {
    let repository =
        || Fragment::<BigInt>::new("(SELECT id FROM repositories WHERE project_id = ").number(project).sql(")");
    let delete_some = || {
        Fragment::<BigInt>::new("DELETE FROM refs WHERE repository_id = ")
            .append(repository())
            .sql(" AND name IN (SELECT name FROM refs WHERE repository_id = ")
            .append(repository())
            .sql(" LIMIT ")
            .number(limit)
            .sql(")")
    };
    Ok(on!(db, conn => delete_some().execute(conn))?)
}

/// Deletes the row of a deleted project, and with it everything that remains.
pub fn purge(db: &mut Conn, id: ProjectId) -> Result<()> {
    on!(db, conn => diesel::delete(projects::table.find(id.get()))
        .filter(projects::deleted_at.is_not_null())
        .execute(conn))?;
    Ok(())
}

/// Returns the text to search; the separator keeps patterns from matching across fields.
fn search_text(name: &str, path: &str, description: Option<&str>) -> String {
    fold_case(&[name, path, description.unwrap_or_default()].join(SEPARATOR)) + END
}
