//! Pages of projects by visibility bucket (one visibility, archived or not), merged from the first rows of each bucket.
//!
//! The projects of a viewer are those of some namespaces, those of which the viewer is a member, and those that are shared
//! with a group of the viewer. Namespaces have an index per bucket and order. Memberships have one for the orders that do not
//! change, by id and by time of creation. For the others they are either sorted, or the buckets of the instance are scanned
//! in order until enough projects of the viewer are found: with `mine` of `all` projects, a page of 20 takes `mine` steps one
//! way and about `20 * all / mine` the other way. Counters decide.

use diesel::{
    RunQueryDsl as _,
    sql_types::{BigInt, Bool, Integer},
};
use model::{
    NamespaceId, Page, UserId, Visibility,
    projects::{ProjectFilter, ProjectOrder},
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    page_ids::PageIds,
    project_lists::{ProjectListScope, bool_literal, column, direction, order_by},
    times::to_micros,
};

/// The number of projects from which on scanning is considered.
const MIN_SORTED_TO_SCAN: i64 = 100;
/// The cost of a project: merged from an index, sorted, and scanned. Each includes finding the row if that is necessary.
const MERGE_COST: i64 = 1;
const SORT_COST: i64 = 3;
const SCAN_COST: i64 = 5;
/// The cost of finding the first project of a bucket of a namespace.
const BUCKET_COST: i64 = 3;
/// The maximum number of buckets that become a part of the statement each. Every number of them is another text, and Diesel
/// keeps each prepared. Memberships have no more buckets, together with those of the instance.
const MAX_UNION_BUCKETS: usize = 6;
/// A scan ends after this multiple of the expected number of rows; the projects of the viewer may be at the end of the order.
const SCAN_LIMIT_FACTOR: i64 = 4;

/// The projects to list.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    /// All projects with at least this visibility.
    visible_from: Option<Visibility>,
    /// Projects of the viewer that have a lower visibility.
    mine: Mine,
}

/// Which projects of the viewer are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mine {
    None,
    /// Those with a role.
    Role,
    /// Those that the viewer owns.
    Owned,
    /// None as such, but those of one namespace.
    InNamespace(InNamespace),
}

/// The projects of one namespace, in which the viewer has no role unless all of them are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct InNamespace {
    namespace: NamespaceId,
    /// Only projects with at least this visibility are listed, and others in which the viewer has a role; `None` lists all.
    visible_from: Option<Visibility>,
    /// Whether the projects that are shared with the namespace, a group, are listed too.
    shared: bool,
}

impl Source {
    /// Returns the source of a list, if it is a union of buckets and of projects of the viewer.
    pub(crate) fn of(scope: ProjectListScope, viewer: &Viewer) -> Option<Self> {
        let (visible_from, mine) = match scope {
            ProjectListScope::Mine => (None, Mine::Role),
            ProjectListScope::Visible => (Some(viewer.visible_from), Mine::Role),
            ProjectListScope::Owned => (None, Mine::Owned),
            ProjectListScope::All => (Some(Visibility::Private), Mine::None),
            ProjectListScope::OfGroup { group, own: true, shared, all } => {
                let visible_from = (!all).then_some(viewer.visible_from);
                (None, Mine::InNamespace(InNamespace { namespace: group, visible_from, shared }))
            }
            ProjectListScope::Starred | ProjectListScope::ForksOf(_) | ProjectListScope::OfGroup { .. } => return None,
        };
        Some(Self { visible_from, mine })
    }
}

/// A visibility bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bucket {
    visibility: i32,
    archived: bool,
}

impl Bucket {
    /// The condition that the row of projects `p` is in the bucket.
    fn condition(self) -> String {
        format!("p.visibility = {} AND p.archived = {}", self.visibility, bool_literal(self.archived))
    }
}

/// The number of projects in a bucket.
#[derive(PartialEq, Eq)]
struct Count {
    bucket: Bucket,
    amount: i64,
}

/// The numbers of projects that a list is made of, as far as its filter includes them.
#[derive(Default, PartialEq, Eq)]
struct Numbers {
    /// Projects of the instance that are visible without a role.
    visible: Vec<Count>,
    /// Projects of the instance in the other buckets.
    others: Vec<Count>,
    /// Projects of namespaces in the other buckets.
    in_namespaces: Vec<(i64, Count)>,
    /// Listed memberships of the viewer in projects of the other buckets, with expired ones.
    memberships: Vec<Count>,
    /// Expired ones of these.
    expired: Vec<Count>,
    /// Whether projects are shared with a group of the viewer.
    has_shares: bool,
    /// Projects of the listed namespace that the viewer sees only with a role in them.
    hidden: i64,
    /// Listed memberships of the viewer in projects that are visible only with a role, if there are such in the namespace.
    memberships_elsewhere: i64,
    /// Whether projects are shared with the listed group.
    has_shared_projects: bool,
}

fn sum<'a>(counts: impl IntoIterator<Item = &'a Count>) -> i64 {
    counts.into_iter().map(|count| count.amount).sum()
}

fn amount_in(counts: &[Count], bucket: Bucket) -> i64 {
    sum(counts.iter().filter(|count| count.bucket == bucket))
}

/// What a row of [`Numbers`] counts.
const IN_INSTANCE: i32 = 0;
const IN_NAMESPACE: i32 = 1;
const MEMBERSHIPS: i32 = 2;
const EXPIRED: i32 = 3;
const SHARES: i32 = 4;
const SHARED_WITH_GROUP: i32 = 5;

type NumberColumns = (Integer, BigInt, Integer, Bool, BigInt);

impl Numbers {
    fn read(db: &mut Conn, viewer: &Viewer, source: Source, filter: &ProjectFilter) -> Result<Self> {
        let rows: Vec<(i32, i64, i32, bool, i64)> = on!(db, conn => Self::query(viewer, source).load(conn))?;
        let visible_from = source.visible_from.map_or(i32::MAX, Visibility::level);
        let mut numbers = Self::default();
        let listed_from = match source.mine {
            Mine::InNamespace(InNamespace { visible_from: Some(visible_from), .. }) => visible_from.level(),
            Mine::InNamespace(_) | Mine::None | Mine::Role | Mine::Owned => i32::MIN,
        };
        for (kind, namespace, visibility, archived, amount) in rows {
            match kind {
                SHARES => numbers.has_shares = true,
                SHARED_WITH_GROUP => numbers.has_shared_projects = true,
                _ => {}
            }
            let is_wanted = filter.visibility.is_none_or(|only| only.level() == visibility)
                && filter.archived.is_none_or(|only| only == archived);
            if !is_wanted || amount <= 0 {
                continue;
            }
            let count = Count { bucket: Bucket { visibility, archived }, amount };
            let is_visible = visibility >= visible_from;
            match kind {
                IN_INSTANCE if is_visible => numbers.visible.push(count),
                IN_INSTANCE => numbers.others.push(count),
                IN_NAMESPACE if visibility < listed_from => numbers.hidden += amount,
                IN_NAMESPACE if !is_visible => numbers.in_namespaces.push((namespace, count)),
                MEMBERSHIPS if matches!(source.mine, Mine::InNamespace(_)) => {
                    numbers.memberships_elsewhere += if visibility < listed_from { amount } else { 0 };
                }
                MEMBERSHIPS if !is_visible => numbers.memberships.push(count),
                EXPIRED if !is_visible => numbers.expired.push(count),
                _ => {}
            }
        }
        Ok(numbers)
    }

    fn query(viewer: &Viewer, source: Source) -> Fragment<NumberColumns> {
        let none = "SELECT 0 AS kind, CAST(0 AS BIGINT) AS namespace_id, visibility, archived, amount \
                    FROM project_counts WHERE FALSE";
        let mut query = Fragment::new(none);
        if source.visible_from.is_some() || source.mine == Mine::Role {
            query = query.sql(format!(
                " UNION ALL SELECT {IN_INSTANCE}, 0, visibility, archived, CAST(sum(amount) AS BIGINT) \
                 FROM project_counts GROUP BY visibility, archived"
            ));
        }
        let namespaces = match source.mine {
            Mine::None => return query,
            Mine::Role => viewer.my_namespaces(),
            Mine::Owned => viewer.owned_namespaces(),
            Mine::InNamespace(InNamespace { namespace, .. }) => {
                Fragment::new("SELECT ").number(namespace).sql(" AS id")
            }
        };
        query = query
            .sql(format!(" UNION ALL SELECT {IN_NAMESPACE}, c.namespace_id, c.visibility, c.archived, c.amount FROM ("))
            .append(namespaces)
            .sql(") own CROSS JOIN namespace_project_counts c WHERE c.namespace_id = own.id");
        if let Mine::InNamespace(InNamespace { namespace, shared: true, .. }) = source.mine {
            query = query
                .sql(format!(
                    " UNION ALL SELECT {SHARED_WITH_GROUP}, 0, 0, FALSE, 1 \
                     WHERE EXISTS (SELECT 1 FROM project_shares s WHERE s.group_id = "
                ))
                .number(namespace)
                .sql(")");
        }
        let depends_on_roles = match source.mine {
            Mine::Role => true,
            Mine::InNamespace(InNamespace { visible_from, .. }) => {
                visible_from.is_some() && viewer.user != UserId::ANONYMOUS
            }
            Mine::None | Mine::Owned => false,
        };
        if depends_on_roles { query.append(Self::roles_query(viewer, source.mine == Mine::Role)) } else { query }
    }

    /// The rows about memberships and shares of the viewer; the expired memberships only if they are needed.
    fn roles_query(viewer: &Viewer, with_expired: bool) -> Fragment<NumberColumns> {
        let mut query = Fragment::new(format!(
            " UNION ALL SELECT {MEMBERSHIPS}, 0, visibility, archived, amount FROM member_project_counts WHERE user_id = "
        ))
        .number(viewer.user);
        if with_expired {
            query = query
                .sql(format!(
                    " UNION ALL SELECT {EXPIRED}, 0, m.project_visibility, m.project_archived, count(*) \
                     FROM project_members m WHERE m.is_listed AND m.user_id = "
                ))
                .number(viewer.user)
                .sql(" AND m.expires_at <= ")
                .number(to_micros(viewer.now))
                .sql(" GROUP BY m.project_visibility, m.project_archived");
        }
        query
            .sql(format!(
                " UNION ALL SELECT {SHARES}, 0, 0, FALSE, 1 WHERE EXISTS (SELECT 1 FROM group_members m \
                 CROSS JOIN namespace_ancestors a CROSS JOIN project_shares s \
                 WHERE a.ancestor_id = m.group_id AND s.group_id = a.namespace_id AND "
            ))
            .append(viewer.own_rows("m"))
            .sql(")")
    }

    /// The IDs of the namespaces.
    fn namespaces(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self.in_namespaces.iter().map(|(namespace, _)| *namespace).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The number of projects of the viewer in a bucket; those of both kinds are counted twice.
    fn mine_in(&self, bucket: Bucket) -> i64 {
        let in_namespaces = self.in_namespaces.iter().filter(|(_, count)| count.bucket == bucket);
        in_namespaces.map(|(_, count)| count.amount).sum::<i64>() + amount_in(&self.memberships, bucket)
            - amount_in(&self.expired, bucket)
    }

    /// Returns whether the viewer may have a role in projects of the listed namespace that are not visible otherwise.
    fn may_list_hidden(&self) -> bool {
        self.hidden > 0 && (self.memberships_elsewhere > 0 || self.has_shares)
    }

    fn total_in_namespaces(&self) -> i64 {
        self.in_namespaces.iter().map(|(_, count)| count.amount).sum()
    }

    /// The number of rows of a bucket that are expected to contain the first `limit` projects of the viewer.
    fn expected_scan(&self, count: &Count, limit: i64) -> i64 {
        let mine = self.mine_in(count.bucket);
        if mine <= 0 { 0 } else { (limit.saturating_mul(count.amount) / mine).min(count.amount) }
    }

    /// The cost of merging the first rows of the buckets of namespaces.
    fn merge_cost(&self, limit: i64) -> i64 {
        self.in_namespaces.iter().map(|(_, count)| BUCKET_COST + count.amount.min(limit) * MERGE_COST).sum()
    }

    /// Returns whether the buckets of namespaces are merged; otherwise, they are sorted.
    fn prefers_merge(&self, limit: i64) -> bool {
        self.merge_cost(limit) < self.total_in_namespaces() * SORT_COST
    }

    /// Returns whether the first rows of the buckets of memberships are merged.
    fn prefers_member_merge(&self, limit: i64) -> bool {
        let merged: i64 = self.memberships.iter().map(|count| BUCKET_COST + count.amount.min(limit) * MERGE_COST).sum();
        merged < sum(&self.memberships) * SORT_COST
    }

    /// Returns whether scanning the buckets of the instance costs less than merging and sorting those of the viewer.
    fn prefers_scan(&self, limit: i64) -> bool {
        let sort_cost = self.total_in_namespaces() * SORT_COST;
        let cost = self.merge_cost(limit).min(sort_cost) + sum(&self.memberships) * SORT_COST;
        let scanned: i64 = self.others.iter().map(|count| self.expected_scan(count, limit)).sum();
        cost >= MIN_SORTED_TO_SCAN * SORT_COST && scanned * SCAN_COST < cost
    }
}

/// A list of projects.
struct ProjectList<'a> {
    viewer: &'a Viewer,
    source: Source,
    filter: &'a ProjectFilter,
    page: Page,
    numbers: Numbers,
}

/// How the memberships of the viewer are found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MembersBy {
    /// By merging the first rows of their buckets.
    Merging,
    /// By scanning the buckets of the instance, together with the projects of the viewer's namespaces.
    Scanning,
    /// By reading and sorting all of them.
    Sorting,
}

/// Returns the total and the IDs on the page.
pub(crate) fn list(
    db: &mut Conn,
    viewer: &Viewer,
    source: Source,
    filter: &ProjectFilter,
    page: Page,
) -> Result<(i64, PageIds)> {
    let numbers = Numbers::read(db, viewer, source, filter)?;
    let list = ProjectList { viewer, source, filter, page, numbers };
    let limit = list.limit();
    if list.is_known() && (list.has_few_buckets() || !list.prefers_scan(limit)) {
        return list.read_known(db);
    }
    if member_index_key(filter).is_some() && list.numbers.prefers_member_merge(limit) {
        if let Some((total, ids)) = list.read_with(db, MembersBy::Merging)? {
            return Ok((total, PageIds::Known(ids)));
        }
    } else if list.prefers_scan(limit)
        && let Some((total, ids)) = list.read_with(db, MembersBy::Scanning)?
    {
        return Ok((total, PageIds::Known(ids)));
    }
    let (total, ids) = list.read_with(db, MembersBy::Sorting)?.unwrap_or_default();
    Ok((total, PageIds::Known(ids)))
}

/// Returns the column of memberships that corresponds to the order, if memberships have an index for it.
fn member_index_key(filter: &ProjectFilter) -> Option<&'static str> {
    match filter.order {
        ProjectOrder::Id => Some("project_id"),
        ProjectOrder::CreatedAt => Some("project_created_at"),
        ProjectOrder::Name | ProjectOrder::Path | ProjectOrder::UpdatedAt | ProjectOrder::LastActivityAt => None,
    }
}

impl ProjectList<'_> {
    /// Rows beyond it cannot be on the page.
    fn limit(&self) -> i64 {
        self.page.offset().saturating_add(self.page.size)
    }

    /// The number of projects whose number is known without looking at memberships and shares.
    fn known(&self) -> i64 {
        sum(&self.numbers.visible) + self.numbers.total_in_namespaces()
    }

    /// The number of unexpired memberships.
    fn members(&self) -> i64 {
        sum(&self.numbers.memberships) - sum(&self.numbers.expired)
    }

    /// Returns whether the projects are those of buckets that are disjoint and have an index in the order of the list.
    fn is_known(&self) -> bool {
        let Numbers { memberships, in_namespaces, has_shares, has_shared_projects, .. } = &self.numbers;
        if let Mine::InNamespace(_) = self.source.mine {
            return !has_shared_projects && !self.numbers.may_list_hidden();
        }
        // A member of a project may also have a role in its namespace.
        let members_are_disjoint = in_namespaces.is_empty() && member_index_key(self.filter).is_some();
        !has_shares && (memberships.is_empty() || members_are_disjoint)
    }

    /// Returns whether the buckets of the instance are scanned, which finds all projects in which the viewer has a role.
    fn prefers_scan(&self, limit: i64) -> bool {
        self.source.mine == Mine::Role && self.numbers.prefers_scan(limit)
    }

    /// Returns whether each bucket becomes a part of the statement.
    fn has_few_buckets(&self) -> bool {
        let Numbers { visible, in_namespaces, memberships, .. } = &self.numbers;
        visible.len() + in_namespaces.len() + memberships.len() <= MAX_UNION_BUCKETS
    }

    /// Lists projects whose number is known. Pages in the second half are read from the end, unless the number has changed
    /// meanwhile, which is possible on PostgreSQL.
    fn read_known(&self, db: &mut Conn) -> Result<(i64, PageIds)> {
        let (total, offset) = (self.known() + self.members(), self.page.offset());
        let size = self.page.size.min(total.saturating_sub(offset));
        if size <= 0 {
            return Ok((total, PageIds::none()));
        }
        let from_end = total - offset - size;
        if from_end >= offset {
            let query = self.query(matches!(db, Conn::Pg(_)), size, offset, false);
            return Ok((total, PageIds::Query { query, is_reversed: false }));
        }
        let query = self.query(matches!(db, Conn::Pg(_)), size, from_end, true);
        let Conn::Pg(conn) = db else { return Ok((total, PageIds::Query { query, is_reversed: true })) };
        let mut ids: Vec<i64> = query.load(conn)?;
        if Numbers::read(db, self.viewer, self.source, self.filter)? != self.numbers {
            let query = self.query(true, size, offset, false);
            return Ok((total, PageIds::Query { query, is_reversed: false }));
        }
        ids.reverse();
        Ok((total, PageIds::Known(ids)))
    }

    /// The IDs of projects of disjoint buckets. `offset` counts from the end if they are read in reverse.
    fn query(&self, postgres: bool, size: i64, offset: i64, is_reversed: bool) -> Fragment<BigInt> {
        let ascending = self.filter.ascending != is_reversed;
        let filter = &ProjectFilter { ascending, search: None, ..self.filter.clone() };
        let Numbers { visible, in_namespaces, memberships, .. } = &self.numbers;
        let rows_of = |count: &Count| rows_of_bucket(None, count.bucket, filter);
        let rows_of_namespace =
            |(namespace, count): &(i64, Count)| rows_of_bucket(Some(*namespace), count.bucket, filter);
        let rows_of_members = |count: &Count| rows_of_members(self.viewer, count.bucket, filter);
        let start = Fragment::new("SELECT f.id FROM (");
        if self.has_few_buckets() {
            let rows = visible.iter().map(rows_of).chain(in_namespaces.iter().map(rows_of_namespace));
            let rows = rows.chain(memberships.iter().filter_map(rows_of_members));
            return start.append(page_of_union(rows, filter, (size, offset), postgres)).sql(") f");
        }
        debug_assert!(memberships.is_empty(), "memberships are known only if no namespace has projects");
        let mut parts = Parts::new(self.source, filter, offset + size);
        parts.merge_visible(&self.numbers);
        parts.merge_namespaces(&self.numbers);
        start
            .append(parts.found)
            .sql(format!(") f ORDER BY {} LIMIT ", order_by(filter, "f")))
            .number(size)
            .sql(" OFFSET ")
            .number(offset)
    }

    /// Lists projects of which the viewer is a member, too. Returns `None` if a scan ended too early.
    fn read_with(&self, db: &mut Conn, way: MembersBy) -> Result<Option<(i64, Vec<i64>)>> {
        let Self { viewer, source, filter, page, numbers } = self;
        let limit = self.limit();
        let mut parts = Parts::new(*source, filter, limit);
        parts.merge_visible(numbers);
        match way {
            MembersBy::Merging => {
                parts.merge_namespaces(numbers);
                parts.merge_members(viewer, numbers);
            }
            MembersBy::Scanning => parts.scan(viewer, numbers),
            MembersBy::Sorting => {
                parts.merge_namespaces(numbers);
                parts.add_members(viewer, numbers);
            }
        }
        match source.mine {
            Mine::InNamespace(listed) => parts.add_to_namespace(viewer, numbers, listed),
            Mine::None | Mine::Role | Mine::Owned => parts.add_shared(viewer, numbers),
        }
        let mut counts = Fragment::<BigInt>::new("(SELECT count(*) FROM found WHERE counted)");
        if way != MembersBy::Sorting {
            counts = counts.sql(" - (").append(self.members_in_namespaces()).sql(")");
        }
        counts = match way {
            MembersBy::Scanning => counts
                .sql(
                    ", (SELECT count(*) FROM (SELECT 1 FROM found WHERE scan_limit > 0 GROUP BY scan_limit, bucket \
                     HAVING count(*) >= scan_limit AND sum(CASE WHEN listed THEN 1 ELSE 0 END) < ",
                )
                .number(limit)
                .sql(") i)"),
            MembersBy::Merging | MembersBy::Sorting => counts.sql(", CAST(0 AS BIGINT)"),
        };
        let query = || {
            parts
                .with_found()
                .sql("f.id, ")
                .append(counts.clone())
                .sql(format!(" FROM found f WHERE f.listed ORDER BY {} LIMIT ", order_by(filter, "f")))
                .number(page.size)
                .sql(" OFFSET ")
                .number(page.offset())
        };
        let rows: Vec<(i64, i64, i64)> = on!(db, conn => query().load(conn))?;
        let (counted, incomplete) = if let Some((_, counted, incomplete)) = rows.first() {
            (*counted, *incomplete)
        } else {
            // A page beyond the end has no row that carries the numbers.
            let query = || parts.with_found().sql("CAST(0 AS BIGINT), ").append(counts.clone());
            let (_, counted, incomplete): (i64, i64, i64) = on!(db, conn => query().get_result(conn))?;
            (counted, incomplete)
        };
        let members = match way {
            MembersBy::Sorting => 0,
            MembersBy::Merging | MembersBy::Scanning => self.members(),
        };
        let total = self.known() + members + counted;
        Ok((incomplete == 0).then(|| (total, rows.into_iter().map(|(id, ..)| id).collect())))
    }

    /// The number of memberships of the viewer in projects of the viewer's namespaces. Starts with the fewer of both.
    fn members_in_namespaces(&self) -> Fragment<BigInt> {
        let namespaces = self.numbers.namespaces();
        if namespaces.is_empty() || self.numbers.memberships.is_empty() {
            return Fragment::new("SELECT CAST(0 AS BIGINT)");
        }
        let tables = if sum(&self.numbers.memberships) < self.numbers.total_in_namespaces() {
            "project_members m CROSS JOIN projects p"
        } else {
            "projects p CROSS JOIN project_members m"
        };
        Fragment::new(format!(
            "SELECT count(*) FROM {tables} WHERE m.project_id = p.id AND m.is_listed AND {} AND ",
            in_others(self.source, self.filter, "m.project_")
        ))
        .append(self.viewer.own_rows("m"))
        .sql(" AND p.namespace_id")
        .in_ids(&namespaces)
    }
}

/// The condition that a row is in a bucket that matches a filter and is not visible without a role; in a list of one namespace,
/// that it is visible to the viewer. `prefix` precedes the names of the columns.
fn in_others(source: Source, filter: &ProjectFilter, prefix: &str) -> String {
    let mut conditions = matching(filter, prefix);
    if let Some(visible_from) = source.visible_from {
        conditions.push(format!("{prefix}visibility < {}", visible_from.level()));
    }
    if let Mine::InNamespace(InNamespace { visible_from: Some(visible_from), .. }) = source.mine {
        conditions.push(format!("{prefix}visibility >= {}", visible_from.level()));
    }
    all_of(&conditions)
}

/// The conditions that a row is in a bucket that matches a filter.
fn matching(filter: &ProjectFilter, prefix: &str) -> Vec<String> {
    let mut conditions = Vec::new();
    if let Some(only) = filter.visibility {
        conditions.push(format!("{prefix}visibility = {}", only.level()));
    }
    if let Some(archived) = filter.archived {
        conditions.push(format!("{prefix}archived = {}", bool_literal(archived)));
    }
    conditions
}

fn all_of(conditions: &[String]) -> String {
    if conditions.is_empty() { "TRUE".to_owned() } else { conditions.join(" AND ") }
}

/// Returns the number of projects of the viewer; some may be counted twice, and shared ones are not counted.
pub(crate) fn count_mine(db: &mut Conn, viewer: &Viewer, scope: ProjectListScope) -> Result<i64> {
    let Some(source) = Source::of(scope, viewer) else { return Ok(0) };
    let numbers = Numbers::read(db, viewer, source, &ProjectFilter::default())?;
    Ok(numbers.total_in_namespaces() + sum(&numbers.memberships))
}

/// The rows of a bucket of the instance or of a namespace. The bucket is bound, so that the text is the same for all of them.
fn rows_of_bucket(namespace: Option<i64>, bucket: Bucket, filter: &ProjectFilter) -> Fragment<BigInt> {
    let start =
        Fragment::new(format!("SELECT p.id AS id, p.{} AS sort_key FROM projects p WHERE ", column(filter.order)));
    let start = match namespace {
        Some(namespace) => start.sql("p.namespace_id = ").number(namespace),
        None => start.sql("p.deleted_at IS NULL"),
    };
    start.sql(" AND p.visibility = ").number(bucket.visibility).sql(" AND p.archived = ").flag(bucket.archived)
}

/// The rows of a bucket of the instance, in order.
fn sorted_rows_of_bucket(bucket: Bucket, filter: &ProjectFilter) -> Fragment<BigInt> {
    let (key, direction) = (column(filter.order), direction(filter));
    rows_of_bucket(None, bucket, filter).sql(format!(" ORDER BY p.{key} {direction}, p.id {direction}"))
}

/// The unexpired memberships of the viewer in a bucket, as [`rows_of_bucket`]; `None` if there is no index for the order.
fn rows_of_members(viewer: &Viewer, bucket: Bucket, filter: &ProjectFilter) -> Option<Fragment<BigInt>> {
    let key = member_index_key(filter)?;
    let rows = Fragment::new(format!(
        "SELECT m.project_id AS id, m.{key} AS sort_key FROM project_members m WHERE m.is_listed AND m.project_visibility = "
    ))
    .number(bucket.visibility)
    .sql(" AND m.project_archived = ")
    .flag(bucket.archived)
    .sql(" AND ")
    .append(viewer.own_rows("m"));
    Some(rows)
}

/// A page of the rows of a few disjoint buckets. SQLite reads each bucket along its index, only as far as the page needs it.
/// PostgreSQL does so too, but only if each bucket is sorted by itself.
fn page_of_union(
    buckets: impl Iterator<Item = Fragment<BigInt>>,
    filter: &ProjectFilter,
    (size, offset): (i64, i64),
    postgres: bool,
) -> Fragment<BigInt> {
    let direction = direction(filter);
    let order = match filter.order {
        ProjectOrder::Id => format!(" ORDER BY id {direction}"),
        _ => format!(" ORDER BY sort_key {direction}, id {direction}"),
    };
    let buckets: Vec<_> = buckets.collect();
    let sorts_each = postgres && buckets.len() > 1;
    let mut union = Fragment::new("");
    for (number, rows) in buckets.into_iter().enumerate() {
        union = union.sql(if number == 0 { "" } else { " UNION ALL " });
        union = if sorts_each {
            union.sql("(").append(rows).sql(format!("{order} LIMIT ")).number(offset + size).sql(")")
        } else {
            union.append(rows)
        };
    }
    union.sql(format!("{order} LIMIT ")).number(size).sql(" OFFSET ").number(offset)
}

/// The sets of projects that a page is made of. Columns: the ID, the sort key, whether the set is complete and has to be
/// counted, whether the project is listed, and for scanned sets their number and the limit of the scan. The sets are
/// disjoint, except that merged memberships may be in the viewer's namespaces; the union then has them once.
struct Parts<'a> {
    found: Fragment<BigInt>,
    source: Source,
    filter: &'a ProjectFilter,
    /// Rows beyond it cannot be on the page.
    limit: i64,
    number: usize,
}

impl<'a> Parts<'a> {
    fn new(source: Source, filter: &'a ProjectFilter, limit: i64) -> Self {
        let key = column(filter.order);
        // Starts with an empty set, so that every part can be appended with UNION ALL.
        let found = Fragment::new(format!(
            "SELECT p.id AS id, p.{key} AS sort_key, FALSE AS counted, TRUE AS listed, 0 AS bucket, \
             CAST(0 AS BIGINT) AS scan_limit FROM projects p WHERE FALSE"
        ));
        Self { found, source, filter, limit, number: 0 }
    }

    fn with_found(&self) -> Fragment<(BigInt, BigInt, BigInt)> {
        Fragment::new("WITH found AS MATERIALIZED (").append(self.found.clone()).sql(") SELECT ")
    }

    fn append(&mut self, part: Fragment<BigInt>) {
        let found = std::mem::replace(&mut self.found, Fragment::new(""));
        self.found = found.sql(" UNION ALL ").append(part);
        self.number += 1;
    }

    /// Adds the first rows of the buckets of the instance that are visible without a role.
    fn merge_visible(&mut self, numbers: &Numbers) {
        for count in &numbers.visible {
            let rows = sorted_rows_of_bucket(count.bucket, self.filter).sql(" LIMIT ").number(self.limit);
            let part = Fragment::new("SELECT b.id, b.sort_key, FALSE, TRUE, 0, 0 FROM (").append(rows).sql(") b");
            self.append(part);
        }
    }

    /// Adds the first rows of the buckets of namespaces, or all of them if that costs less.
    fn merge_namespaces(&mut self, numbers: &Numbers) {
        let namespaces = numbers.namespaces();
        if namespaces.is_empty() {
            return;
        }
        let (key, direction) = (column(self.filter.order), direction(self.filter));
        let in_others = |prefix: &str| in_others(self.source, self.filter, prefix);
        if !numbers.prefers_merge(self.limit) {
            let part = Fragment::new(format!(
                "SELECT p.id, p.{key}, FALSE, TRUE, 0, 0 FROM projects p WHERE {} AND p.namespace_id",
                in_others("p.")
            ));
            self.append(part.in_ids(&namespaces));
            return;
        }
        // One statement for any number of buckets: it is prepared once.
        let part = Fragment::new("SELECT p.id, ")
            .per_engine(format!("p.{key}"), "p.sort_key")
            .sql(", FALSE, TRUE, 0, 0 FROM namespace_project_counts c CROSS JOIN ")
            .per_engine("projects p WHERE p.id IN (SELECT q.id", format!("LATERAL (SELECT q.id, q.{key} AS sort_key"))
            .sql(format!(
                " FROM projects q WHERE q.namespace_id = c.namespace_id AND q.visibility = c.visibility \
                 AND q.archived = c.archived ORDER BY q.{key} {direction}, q.id {direction} LIMIT "
            ))
            .number(self.limit)
            .per_engine(") AND ", ") p WHERE ")
            .sql(format!("c.amount > 0 AND {} AND c.namespace_id", in_others("c.")))
            .in_ids(&namespaces);
        self.append(part);
    }

    /// Adds the first memberships of the viewer by bucket.
    fn merge_members(&mut self, viewer: &Viewer, numbers: &Numbers) {
        let Some(key) = member_index_key(self.filter).filter(|_| !numbers.memberships.is_empty()) else { return };
        let direction = direction(self.filter);
        let part = Fragment::<BigInt>::new("SELECT m.project_id, ")
            .per_engine(format!("m.{key}"), "m.sort_key")
            .sql(", FALSE, TRUE, 0, 0 FROM member_project_counts c CROSS JOIN ")
            .per_engine(
                "project_members m WHERE m.id IN (SELECT q.id",
                format!("LATERAL (SELECT q.project_id, q.{key} AS sort_key"),
            )
            .sql(
                " FROM project_members q WHERE q.is_listed AND q.project_visibility = c.visibility \
             AND q.project_archived = c.archived AND ",
            )
            .append(viewer.own_rows("q"))
            .sql(format!(" ORDER BY q.{key} {direction}, q.project_id {direction} LIMIT "))
            .number(self.limit)
            .per_engine(") AND ", ") m WHERE ")
            .sql(format!("c.amount > 0 AND {} AND c.user_id = ", in_others(self.source, self.filter, "c.")))
            .number(viewer.user);
        let found = std::mem::replace(&mut self.found, Fragment::new(""));
        // Removes those that are in the viewer's namespaces as well.
        self.found = found.sql(" UNION ").append(part);
        self.number += 1;
    }

    /// Adds the projects of which the viewer is a member, without those of the viewer's namespaces.
    fn add_members(&mut self, viewer: &Viewer, numbers: &Numbers) {
        if numbers.memberships.is_empty() {
            return;
        }
        let key = column(self.filter.order);
        let part = Fragment::new(format!(
            "SELECT p.id, p.{key}, TRUE, TRUE, 0, 0 FROM project_members m CROSS JOIN projects p \
             WHERE p.id = m.project_id AND m.is_listed AND {} AND ",
            in_others(self.source, self.filter, "m.project_")
        ));
        self.append(outside_of_namespaces(part.append(viewer.own_rows("m")), numbers));
    }

    /// Adds the projects that are shared with groups of the viewer, without the viewer's other projects.
    fn add_shared(&mut self, viewer: &Viewer, numbers: &Numbers) {
        if numbers.has_shares {
            let part = self.shared_with(viewer, &in_others(self.source, self.filter, "p."));
            self.append(outside_of_namespaces(part, numbers));
        }
    }

    /// The projects that are shared with groups of the viewer and meet a condition, without those of which the viewer is a member.
    fn shared_with(&self, viewer: &Viewer, condition: &str) -> Fragment<BigInt> {
        let key = column(self.filter.order);
        // SQLite does not reorder cross joins; groups are few, projects are many.
        Fragment::new(format!(
            "SELECT DISTINCT p.id, p.{key}, TRUE, TRUE, 0, 0 FROM group_members m CROSS JOIN namespace_ancestors a \
             CROSS JOIN project_shares s CROSS JOIN projects p CROSS JOIN namespaces n \
             WHERE a.ancestor_id = m.group_id AND s.group_id = a.namespace_id AND p.id = s.project_id \
             AND n.id = p.namespace_id AND NOT n.share_with_group_lock AND {condition} AND "
        ))
        .append(viewer.own_rows("m"))
        .sql(" AND ")
        .append(viewer.unexpired("s"))
        .sql(" AND NOT ")
        .append(viewer.is_member_of("p.id"))
    }

    /// Adds what a list of one namespace has in addition to the buckets: projects that the viewer sees because of a role in them,
    /// and those that are shared with the namespace.
    fn add_to_namespace(&mut self, viewer: &Viewer, numbers: &Numbers, listed: InNamespace) {
        let InNamespace { namespace, visible_from, shared: _ } = listed;
        let key = column(self.filter.order);
        if let Some(visible_from) = visible_from.filter(|_| numbers.may_list_hidden()) {
            let is_hidden = |prefix: &str| {
                let mut conditions = matching(self.filter, prefix);
                conditions.push(format!("{prefix}visibility < {}", visible_from.level()));
                all_of(&conditions)
            };
            let columns = format!("p.id, p.{key}, TRUE, TRUE, 0, 0");
            if numbers.memberships_elsewhere > 0 {
                // Starts with the fewer of both. PostgreSQL runs a subquery with a limit for each row.
                let members = if numbers.memberships_elsewhere < numbers.hidden {
                    Fragment::new(format!("SELECT {columns} FROM project_members m CROSS JOIN "))
                        .per_engine(
                            "projects p WHERE p.id = m.project_id",
                            "LATERAL (SELECT * FROM projects q WHERE q.id = m.project_id LIMIT 1) p WHERE TRUE",
                        )
                        .sql(format!(" AND m.is_listed AND {} AND ", is_hidden("m.project_")))
                        .append(viewer.own_rows("m"))
                } else {
                    Fragment::new(format!("SELECT {columns} FROM projects p WHERE {} AND ", is_hidden("p.")))
                        .append(viewer.is_member_of("p.id"))
                };
                self.append(members.sql(" AND p.namespace_id = ").number(namespace));
            }
            if numbers.has_shares {
                let shared = self.shared_with(viewer, &is_hidden("p."));
                self.append(shared.sql(" AND p.namespace_id = ").number(namespace));
            }
        }
        if numbers.has_shared_projects {
            let part = Fragment::new(format!(
                "SELECT p.id, p.{key}, TRUE, TRUE, 0, 0 FROM project_shares s CROSS JOIN projects p CROSS JOIN namespaces n \
                 WHERE p.id = s.project_id AND n.id = p.namespace_id AND NOT n.share_with_group_lock AND {} AND ",
                all_of(&matching(self.filter, "p."))
            ))
            .append(viewer.unexpired("s"))
            .sql(" AND p.namespace_id <> ")
            .number(namespace)
            .sql(" AND s.group_id = ")
            .number(namespace);
            self.append(if visible_from.is_some() { part.sql(" AND ").append(viewer.sees()) } else { part });
        }
    }

    /// Adds the first rows of the buckets of the instance that may contain the viewer's projects.
    fn scan(&mut self, viewer: &Viewer, numbers: &Numbers) {
        let namespaces = numbers.namespaces();
        for count in numbers.others.iter().filter(|count| numbers.mine_in(count.bucket) > 0) {
            // One more than there are, so that the end is noticed.
            let scan_limit =
                (numbers.expected_scan(count, self.limit) * SCAN_LIMIT_FACTOR).max(self.limit).min(count.amount) + 1;
            let (key, direction) = (column(self.filter.order), direction(self.filter));
            let number = self.number;
            let mut part = Fragment::new(format!(
                "SELECT w.id, w.sort_key, FALSE, ({}",
                if namespaces.is_empty() { "" } else { "w.namespace_id" }
            ));
            if !namespaces.is_empty() {
                part = part.in_ids(&namespaces).sql(" OR ");
            }
            let part = part
                .append(viewer.is_member_of("w.id"))
                .sql(format!("), {number}, CAST("))
                .number(scan_limit)
                .sql(format!(
                    " AS BIGINT) FROM (SELECT p.id AS id, p.{key} AS sort_key, p.namespace_id AS namespace_id FROM projects p \
                     WHERE p.deleted_at IS NULL AND {} ORDER BY p.{key} {direction}, p.id {direction} LIMIT ",
                    count.bucket.condition()
                ))
                .number(scan_limit)
                .sql(") w");
            self.append(part);
        }
    }
}

fn outside_of_namespaces(part: Fragment<BigInt>, numbers: &Numbers) -> Fragment<BigInt> {
    let namespaces = numbers.namespaces();
    if namespaces.is_empty() { part } else { part.sql(" AND NOT p.namespace_id").in_ids(&namespaces) }
}
