//! Projects, one by one; their lists are in [`crate::project_lists`].

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Integer, Nullable, Text},
};
use model::{
    Change, Namespace, Project, Role, StorageId, Time, Visibility,
    projects::{Access, ForkSource, NewProject, ProjectChanges, Seed, Switches},
    text::fold,
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
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

/// A project with its namespace, the owner of that, the number of its source, its import, its open issues and how many
/// of those are confidential, the levels of the viewer: in the project, its group, and by shares, and where its files lie.
type FullRow = (
    Row,
    NamespaceRow,
    Option<SummaryRow>,
    Option<i64>,
    Option<StatusRow>,
    (i64, i64),
    (Option<i32>, Option<i32>, Option<i32>),
    String,
);

fn to_project(row: FullRow, viewer: &Viewer) -> Project {
    let (row, namespace, owner, fork_of, import, (open_issues, open_confidential), levels, storage) = row;
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
    let owns = viewer.user != 0 && namespace.owner_id == Some(viewer.user);
    let access = Access { project: role(direct), group: role(group), share: role(share), owns };
    let sees_all_issues = viewer.admin || access.role() >= Some(Role::Reporter);
    Project {
        id,
        open_issues: if sees_all_issues { open_issues } else { open_issues - open_confidential },
        access,
        namespace,
        owner: owner.map(Into::into),
        creator_id,
        name,
        path,
        description,
        default_branch,
        visibility: to_visibility(visibility),
        archived,
        star_count,
        forks_count,
        switches: Switches {
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
        runners_seed: Seed(runners_seed),
        storage: to_storage_id(&storage),
        created_at: from_micros(created_at),
        updated_at: from_micros(updated_at),
        last_activity_at: from_micros(last_activity_at),
        shared_with: Vec::new(),
        fork_of,
        forked_from: None,
        import: import.map(Into::into),
    }
}

/// Where the files of a project lie.
const STORAGE: &str = "(SELECT s.storage_id FROM project_storage s WHERE s.project_id = projects.id)";

/// What every query for projects selects; `$share` is how the level by shares is found.
macro_rules! full_rows {
    ($viewer:expr, $share:expr) => {
        projects::table
            .inner_join(namespaces::table.left_join(users::table))
            .left_join(fork_links::table)
            .left_join(project_imports::table)
            .inner_join(issue_books::table)
            .select((
                Row::as_select(),
                NamespaceRow::as_select(),
                Option::<SummaryRow>::as_select(),
                fork_links::source_id.nullable(),
                Option::<StatusRow>::as_select(),
                (issue_books::open_issues, issue_books::open_confidential),
                ($viewer.direct_level(), $viewer.group_level(), $share),
                Fragment::<Text>::new(STORAGE),
            ))
    };
}

/// The level by shares for lists, which ask for it only where it matters: where not everybody sees all open issues.
fn share_level_if_needed(viewer: &Viewer) -> Fragment<Nullable<Integer>> {
    Fragment::new("CASE WHEN issue_books.open_confidential > 0 THEN ").then(viewer.share_level()).sql(" END")
}

/// Which project is meant.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// By number.
    Id(i64),
    /// By the full path of its namespace and its own path, in whatever case.
    Path(&'a str, &'a str),
}

/// One project with what the viewer is to it. The groups it is shared with and its source are not filled in.
pub fn find(db: &mut Conn, viewer: &Viewer, key: Key<'_>) -> Result<Option<Project>> {
    let row: Option<FullRow> = match key {
        Key::Id(id) => on!(db, conn => full_rows!(viewer, viewer.share_level())
            .filter(projects::id.eq(id))
            .first(conn)
            .optional())?,
        Key::Path(namespace, path) => on!(db, conn => full_rows!(viewer, viewer.share_level())
            .filter(lower(namespaces::full_path).eq(namespace.to_lowercase()))
            .filter(projects::path_key.eq(fold(path)))
            .first(conn)
            .optional())?,
    };
    Ok(row.map(|row| to_project(row, viewer)))
}

/// The projects with these numbers, in whatever order, as [`find`] finds them but perhaps without the levels by
/// shares.
pub fn among(db: &mut Conn, viewer: &Viewer, ids: &[i64]) -> Result<Vec<Project>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<FullRow> = on!(db, conn => full_rows!(viewer, share_level_if_needed(viewer))
        .filter(Fragment::<Bool>::new("projects.id").among(ids))
        .load(conn))?;
    Ok(rows.into_iter().map(|row| to_project(row, viewer)).collect())
}

/// Keeps everybody else from changing or removing a project while the transaction lasts; SQLite has one writer anyway.
pub fn lock(db: &mut Conn, id: i64) -> Result<bool> {
    match db {
        Conn::Sqlite(_) => Ok(true),
        Conn::Pg(conn) => {
            let found: Option<i64> = projects::table
                .find(id)
                .filter(projects::deleted_at.is_null())
                .select(projects::id)
                .for_update()
                .first(conn)
                .optional()?;
            Ok(found.is_some())
        }
    }
}

/// Fills in the groups that projects are shared with, and the projects that they were forked from.
pub fn with_relations(db: &mut Conn, viewer: &Viewer, projects: &mut [Project]) -> Result<()> {
    if projects.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = projects.iter().map(|project| project.id).collect();
    let mut shares = members::shares_of(db, &ids, viewer.now)?;
    let forks: Vec<i64> =
        projects.iter().filter(|project| project.fork_of.is_some()).map(|project| project.id).collect();
    let mut sources: HashMap<i64, ForkSource> = forks::sources_among(db, viewer, &forks)?.into_iter().collect();
    for project in projects {
        // Where shares give nothing, they are not worth telling.
        let shares = shares.remove(&project.id).filter(|_| !project.namespace.share_with_group_lock);
        project.shared_with = shares.unwrap_or_default();
        project.forked_from = sources.remove(&project.id);
    }
    Ok(())
}

/// Which of a name and a path are taken in a namespace, in whatever case.
pub fn taken(db: &mut Conn, namespace: i64, name: &str, path: &str, except: Option<i64>) -> Result<(bool, bool)> {
    let except = except.unwrap_or_default();
    let is_there = |found: Option<i64>| found.is_some();
    let name: Option<i64> = on!(db, conn => projects::table
        .filter(projects::namespace_id.eq(namespace))
        .filter(projects::name_key.eq(fold(name)))
        .filter(projects::id.ne(except))
        .select(projects::id)
        .first(conn)
        .optional())?;
    let path: Option<i64> = on!(db, conn => projects::table
        .filter(projects::namespace_id.eq(namespace))
        .filter(projects::path_key.eq(fold(path)))
        .filter(projects::id.ne(except))
        .select(projects::id)
        .first(conn)
        .optional())?;
    Ok((is_there(name), is_there(path)))
}

/// Adds a project.
pub fn insert(
    db: &mut Conn,
    new: &NewProject,
    namespace: i64,
    creator: i64,
    visibility: Visibility,
    seed: &Seed,
    now: Time,
) -> Result<i64> {
    let path = new.chosen_path();
    let switches = Switches::new().with(&new.switches);
    let description = new.description.as_deref().filter(|text| !text.is_empty());
    Ok(on!(db, conn => diesel::insert_into(projects::table)
        .values((
            projects::namespace_id.eq(namespace),
            projects::creator_id.eq(creator),
            (
                projects::name.eq(&new.name),
                projects::path.eq(&path),
                projects::name_key.eq(fold(&new.name)),
                projects::path_key.eq(fold(&path)),
                projects::search_text.eq(search_text(&new.name, &path, description)),
                projects::description.eq(description),
            ),
            projects::visibility.eq(visibility.level()),
            columns_of(&switches),
            projects::lfs_enabled.eq(new.lfs_enabled),
            projects::runners_seed.eq(&seed.0),
            projects::created_at.eq(to_micros(now)),
            projects::updated_at.eq(to_micros(now)),
            projects::last_activity_at.eq(to_micros(now)),
        ))
        .returning(projects::id)
        .get_result(conn))?)
}

/// The switches as columns.
#[diesel::dsl::auto_type(no_type_alias)]
fn columns_of(switches: &Switches<bool>) -> _ {
    let issues: bool = switches.issues_enabled;
    let merge_requests: bool = switches.merge_requests_enabled;
    let wiki: bool = switches.wiki_enabled;
    let builds: bool = switches.builds_enabled;
    let snippets: bool = switches.snippets_enabled;
    let registry: bool = switches.container_registry_enabled;
    let shared_runners: bool = switches.shared_runners_enabled;
    let public_builds: bool = switches.public_builds;
    let builds_succeed: bool = switches.only_allow_merge_if_build_succeeds;
    let discussions_resolved: bool = switches.only_allow_merge_if_all_discussions_are_resolved;
    let request_access: bool = switches.request_access_enabled;
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

/// Changes a project.
pub fn update(db: &mut Conn, project: &Project, changes: &ProjectChanges, now: Time) -> Result<()> {
    let name = changes.name.as_deref().unwrap_or(&project.name);
    let path = changes.path.as_deref().unwrap_or(&project.path);
    let description = match &changes.description {
        Change::Keep => project.description.as_deref(),
        Change::Clear => None,
        Change::Set(text) => Some(text.as_str()),
    };
    let switches = project.switches.with(&changes.switches);
    on!(db, conn => diesel::update(projects::table.find(project.id))
        .set((
            projects::name.eq(name),
            projects::path.eq(path),
            projects::name_key.eq(fold(name)),
            projects::path_key.eq(fold(path)),
            projects::search_text.eq(search_text(name, path, description)),
            projects::description.eq(description),
            projects::visibility.eq(changes.visibility.unwrap_or(project.visibility).level()),
            columns_of(&switches),
            projects::lfs_enabled.eq(changes.lfs_enabled.or(project.lfs_enabled)),
            projects::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Puts a project away, or takes it out again.
pub fn set_archived(db: &mut Conn, id: i64, archived: bool, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(projects::table.find(id))
        .set((projects::archived.eq(archived), projects::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Notes which branch HEAD names, if it names one that is there.
pub fn set_default_branch(db: &mut Conn, id: i64, branch: Option<&str>, now: Time) -> Result<()> {
    let differs =
        || Fragment::<Bool>::new("coalesce(projects.default_branch, '') <> ").words(branch.unwrap_or_default());
    on!(db, conn => diesel::update(projects::table.find(id))
        .filter(differs())
        .set((projects::default_branch.eq(branch), projects::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Moves a project to another namespace.
pub fn transfer(db: &mut Conn, id: i64, namespace: i64, visibility: Visibility, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(projects::table.find(id))
        .set((
            projects::namespace_id.eq(namespace),
            projects::visibility.eq(visibility.level()),
            projects::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Stars a project; says whether it was not starred before.
pub fn star(db: &mut Conn, id: i64, user: i64, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(project_stars::table)
        .values((
            project_stars::user_id.eq(user),
            project_stars::project_id.eq(id),
            project_stars::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    touch_if(db, added > 0, id, now)
}

/// Takes a star back; says whether there was one.
pub fn unstar(db: &mut Conn, id: i64, user: i64, now: Time) -> Result<bool> {
    let removed = on!(db, conn => diesel::delete(project_stars::table.find((user, id))).execute(conn))?;
    touch_if(db, removed > 0, id, now)
}

fn touch_if(db: &mut Conn, changed: bool, id: i64, now: Time) -> Result<bool> {
    if changed {
        on!(db, conn => diesel::update(projects::table.find(id))
            .set(projects::updated_at.eq(to_micros(now)))
            .execute(conn))?;
    }
    Ok(changed)
}

/// The projects that shall be taken out of their places; on PostgreSQL nobody else changes, moves or removes them while
/// the transaction lasts.
pub fn hold(db: &mut Conn, which: Buried<'_>) -> Result<Vec<i64>> {
    let chosen = || projects::table.filter(which.chosen()).order(projects::id).select(projects::id);
    Ok(match db {
        Conn::Sqlite(conn) => chosen().load(conn)?,
        Conn::Pg(conn) => chosen().for_update().load(conn)?,
    })
}

/// Takes projects out of their places: nobody finds them any more, and their paths are free. A job for each removes the
/// rest.
pub fn bury(db: &mut Conn, which: Buried<'_>, job_kind: &str, now: Time) -> Result<()> {
    // First what is taken out, then a job for exactly that: a project that is moved away meanwhile must not get one.
    let ids: Vec<i64> = on!(db, conn => diesel::update(projects::table.filter(which.chosen()))
        .set((projects::namespace_id.eq(None::<i64>), projects::deleted_at.eq(to_micros(now))))
        .returning(projects::id)
        .get_results(conn))?;
    let enqueue = || {
        Fragment::<BigInt>::new("INSERT INTO jobs (kind, payload, run_at, created_at) SELECT ")
            .words(job_kind)
            .sql(", CAST(projects.id AS TEXT), ")
            .number(to_micros(now))
            .sql(", ")
            .number(to_micros(now))
            .sql(" FROM projects WHERE projects.id")
            .among(&ids)
            .sql(" ORDER BY projects.id")
    };
    on!(db, conn => enqueue().execute(conn))?;
    Ok(())
}

/// Which projects are taken out of their places.
#[derive(Clone, Copy, Debug)]
pub enum Buried<'a> {
    /// This one.
    One(i64),
    /// All that live in these namespaces.
    In(&'a [i64]),
}

impl Buried<'_> {
    fn chosen(self) -> Fragment<Bool> {
        match self {
            Self::One(id) => Fragment::new("projects.deleted_at IS NULL AND projects.id = ").number(id),
            Self::In(namespaces) => Fragment::new("projects.namespace_id").among(namespaces),
        }
    }
}

/// Where the repository and the files of a project lie, also of one that is being removed.
pub fn storage_of(db: &mut Conn, id: i64) -> Result<Option<StorageId>> {
    let found: Option<String> = on!(db, conn => project_storage::table
        .find(id)
        .select(project_storage::storage_id)
        .first(conn)
        .optional())?;
    Ok(found.as_deref().map(to_storage_id))
}

fn to_storage_id(text: &str) -> StorageId {
    StorageId::parse(text).expect("the table allows nothing else")
}

/// Whether a project was taken out of its place.
pub fn is_buried(db: &mut Conn, id: i64) -> Result<bool> {
    let found: Option<i64> = on!(db, conn => projects::table
        .find(id)
        .filter(projects::deleted_at.is_not_null())
        .select(projects::id)
        .first(conn)
        .optional())?;
    Ok(found.is_some())
}

/// What a project may have many rows of: the table, the column that leads to the project, and one that tells its rows
/// apart.
const MANY: [(&str, &str, &str); 20] = [
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

/// Removes some of the rows that belong to a project that was buried; says how many. Those who share a writer with this
/// should not have to wait for a project with many members, stars and events. One table after the other: a row takes along
/// what hangs on it, and that is little once the tables before are empty.
pub fn shrink_buried(db: &mut Conn, id: i64, most: i64) -> Result<usize> {
    let told = shrink_deliveries(db, id, most)?;
    if told > 0 {
        return Ok(told);
    }
    for (table, project, row) in MANY {
        let some = || {
            Fragment::<BigInt>::new(format!("DELETE FROM {table} WHERE {project} = "))
                .number(id)
                .sql(format!(" AND {row} IN (SELECT {row} FROM {table} WHERE {project} = "))
                .number(id)
                .sql(" LIMIT ")
                .number(most)
                .sql(")")
        };
        let removed = on!(db, conn => some().execute(conn))?;
        if removed > 0 {
            return Ok(removed);
        }
    }
    Ok(0)
}

/// Removes some of what hooks of a project were told; there may be far more of that than hooks.
fn shrink_deliveries(db: &mut Conn, project: i64, most: i64) -> Result<usize> {
    let some = || {
        Fragment::<BigInt>::new(
            "DELETE FROM hook_deliveries WHERE id IN (SELECT d.id FROM hook_deliveries d \
             JOIN hooks h ON h.id = d.hook_id WHERE h.project_id = ",
        )
        .number(project)
        .sql(" LIMIT ")
        .number(most)
        .sql(")")
    };
    Ok(on!(db, conn => some().execute(conn))?)
}

/// Removes what is left of a project that was buried, with everything that belongs to it.
pub fn delete_buried(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(projects::table.find(id))
        .filter(projects::deleted_at.is_not_null())
        .execute(conn))?;
    Ok(())
}

/// What a search looks into; the separator keeps it from matching across the parts.
fn search_text(name: &str, path: &str, description: Option<&str>) -> String {
    fold(&[name, path, description.unwrap_or_default()].join(SEPARATOR)) + END
}
