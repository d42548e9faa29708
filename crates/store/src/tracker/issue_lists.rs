//! Lists of issues: filtered, sorted, paginated and counted.
//!
//! Lists of a project or of one of its labels that filter by state alone take the total from counters and read the page along
//! an index, from the nearer end. Those of an author are read in the same way, and counted up to a limit. All other lists
//! are selected as a whole by the most selective index, then counted and sorted.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    Issue, LabelId, MilestoneId, NamespaceId, Page, ProjectId, Role, Slice, Total, UserId,
    issues::{AssigneeFilter, IssueFilter, IssueOrder},
};

use crate::{
    Conn, IssueVisibility, Result, Viewer,
    conn::on,
    fragment::Fragment,
    issues,
    page_ids::PageIds,
    project_lists::{bool_literal, counted_page},
    schema::{issue_books, labels},
    search::SearchTerm,
};

/// The number of issues from which the search index, which covers all projects, is faster than scanning the issues.
const MIN_ISSUES_FOR_SEARCH_INDEX: i64 = 1_000;
/// The number of occurrences of a term of one or two letters from which the issues of a group are compared with it.
const MAX_OCCURRENCES: i64 = 20_000;
/// The number of issues of a label from which filtering by milestone starts at the milestone, which rarely has as many.
const MAX_ISSUES_PER_FILTERED_LABEL: i64 = 4_000;
/// The maximum number of labels whose first issues are merged; for more labels, all issues are selected.
const MAX_MERGED_LABELS: usize = 8;

/// The issues from which a list selects.
#[derive(Clone, Copy, Debug)]
pub enum IssueScope {
    /// The issues of a project.
    Project(ProjectId, IssueVisibility),
    /// The issues of a milestone.
    Milestone(MilestoneId, IssueVisibility),
    /// The issues that the viewer wrote, in projects visible to them.
    Authored(Viewer),
    /// The issues that the viewer is assigned to, in projects visible to them.
    Assigned(Viewer),
    /// The issues of the projects of a group and its subgroups that are visible to the viewer.
    Group(NamespaceId, Viewer),
}

impl IssueScope {
    fn user(&self) -> UserId {
        match self {
            Self::Project(_, visibility) | Self::Milestone(_, visibility) => visibility.user,
            Self::Authored(viewer) | Self::Assigned(viewer) | Self::Group(_, viewer) => viewer.user,
        }
    }
}

/// Lists issues.
pub fn list(
    db: &mut Conn,
    scope: &IssueScope,
    filter: &IssueFilter,
    order: IssueOrder,
    page: Page,
) -> Result<Slice<Issue>> {
    let Some(query) = ListQuery::new(filter, order, matches!(db, Conn::Pg(_))) else { return Ok(Slice::empty(page)) };
    let (total, ids) = match scope {
        IssueScope::Project(project, visibility) => project_page(db, *project, visibility, &query, page)?,
        IssueScope::Milestone(milestone, visibility) => {
            let among =
                Fragment::new("c.milestone_id = ").number(*milestone).sql(" AND ").append(visibility.filter("c"));
            let project = Fragment::new("SELECT m.project_id FROM milestones m WHERE m.id = ").number(*milestone);
            page_by_sorting(
                db,
                query.select("issues c").and(among).and(query.cross_project_conditions(project, false)),
                &query,
                page,
            )?
        }
        IssueScope::Authored(viewer) => authored_page(db, viewer, &query, page)?,
        IssueScope::Assigned(viewer) => page_by_sorting(db, select_assigned(viewer, &query), &query, page)?,
        IssueScope::Group(group, viewer) => {
            let projects = Fragment::new(
                "SELECT p.id FROM namespace_ancestors a CROSS JOIN projects p \
                 WHERE p.namespace_id = a.namespace_id AND a.ancestor_id = ",
            );
            let many = match query.term.as_ref().filter(|_| !query.postgres) {
                Some(term) => prefers_search_index(db, term, MAX_OCCURRENCES)?,
                None => false,
            };
            let select = select_in_group(*group, viewer, &query)
                .and(query.cross_project_conditions(projects.number(*group), many));
            page_by_sorting(db, select, &query, page)?
        }
    };
    let mut items = issues::load(db, scope.user(), ids, order)?;
    if let IssueScope::Project(_, visibility) | IssueScope::Milestone(_, visibility) = scope {
        // On PostgreSQL an issue may have become confidential between the two statements.
        items.retain(|issue| visibility.includes(issue));
    }
    Ok(Slice { items, total, page })
}

/// The filter and the sort order of a list, for any scope.
struct ListQuery<'a> {
    filter: &'a IssueFilter,
    order: IssueOrder,
    /// The label titles, without duplicates.
    titles: Vec<&'a str>,
    term: Option<SearchTerm>,
    postgres: bool,
}

/// A `SELECT` of the columns `id` and `sort_key` of issues, to which conditions can be added.
#[derive(Clone)]
struct IssueSelect(Fragment<BigInt>);

impl IssueSelect {
    fn and(self, condition: Fragment<Bool>) -> Self {
        Self(self.0.sql(" AND ").append(condition))
    }
}

impl<'a> ListQuery<'a> {
    /// Returns `None` if no issue can match.
    fn new(filter: &'a IssueFilter, order: IssueOrder, postgres: bool) -> Option<Self> {
        let mut titles: Vec<&str> = filter.labels.iter().map(String::as_str).collect();
        titles.sort_unstable();
        titles.dedup();
        // No label has a comma in its title.
        let possible = titles.iter().filter(|title| !title.contains(',')).count();
        if possible < titles.len() && (filter.all_labels || possible == 0) {
            return None;
        }
        titles.retain(|title| !title.contains(','));
        let term = filter.search.as_deref().filter(|text| !text.is_empty()).map(SearchTerm::new);
        if term.as_ref().is_some_and(SearchTerm::matches_nothing) {
            return None;
        }
        Some(Self { filter, order, titles, term, postgres })
    }

    /// Returns the column to sort by.
    fn key(&self) -> &'static str {
        if self.order.by_update { "updated_at" } else { "created_at" }
    }

    /// Selects issues; `from` must define the alias `c`.
    fn select(&self, from: &str) -> IssueSelect {
        IssueSelect(Fragment::new(format!("SELECT c.id AS id, c.{} AS sort_key FROM {from} WHERE TRUE", self.key())))
    }

    /// Selects issues from `issue_labels`.
    fn select_labeled(&self, distinct: &str) -> IssueSelect {
        let key = self.key();
        IssueSelect(Fragment::new(format!(
            "SELECT {distinct}c.issue_id AS id, c.{key} AS sort_key FROM issue_labels c WHERE TRUE"
        )))
    }

    fn state_condition(&self) -> Fragment<Bool> {
        Fragment::new(self.filter.closed.map_or("TRUE".into(), |closed| format!("c.closed = {}", bool_literal(closed))))
    }

    /// Returns whether the filter has no conditions but labels and state.
    fn has_only_labels_and_state(&self) -> bool {
        self.filter.milestone.is_none() && self.has_only_indexed_columns()
    }

    /// Returns whether the filter has no conditions on columns that `issue_labels` does not have.
    fn has_only_indexed_columns(&self) -> bool {
        let IssueFilter { iids, author, assignee, without_milestone, .. } = self.filter;
        iids.is_empty() && author.is_none() && assignee.is_none() && !without_milestone && self.term.is_none()
    }

    /// Returns the conditions on the author and the assignee, and that there is no milestone.
    fn people_condition(&self) -> Fragment<Bool> {
        let mut all = Fragment::new(if self.filter.without_milestone { "c.milestone_id IS NULL" } else { "TRUE" });
        if let Some(author) = self.filter.author {
            all = all.sql(" AND c.author_id = ").number(author);
        }
        match self.filter.assignee {
            None => all,
            Some(AssigneeFilter::Nobody) => all.sql(" AND c.assignee_id IS NULL"),
            Some(AssigneeFilter::User(user)) => all.sql(" AND c.assignee_id = ").number(user),
        }
    }

    /// Returns the condition on the iid.
    fn iid_condition(&self) -> Fragment<Bool> {
        match self.filter.iids.as_slice() {
            [] => Fragment::new("TRUE"),
            iids => Fragment::new("c.iid").in_ids(iids),
        }
    }

    /// Returns the condition on the milestone title, in the given project or else in the project of the issue.
    fn milestone_condition(&self, project: Option<ProjectId>) -> Fragment<Bool> {
        let Some(title) = &self.filter.milestone else { return Fragment::new("TRUE") };
        let condition = Fragment::new("c.milestone_id = (SELECT m.id FROM milestones m WHERE m.project_id = ");
        let condition = match project {
            Some(project) => condition.number(project),
            None => condition.sql("c.project_id"),
        };
        condition.sql(" AND m.title = ").text(title).sql(")")
    }

    /// Returns all conditions, for issues of several projects, where labels and milestones are matched by title. `many`
    /// says that there are too many issues to search each for the term.
    fn cross_project_conditions(&self, projects: Fragment<BigInt>, many: bool) -> Fragment<Bool> {
        let mut all = self
            .state_condition()
            .sql(" AND ")
            .append(self.milestone_condition(None))
            .sql(" AND ")
            .append(self.people_condition())
            .sql(" AND ")
            .append(self.iid_condition());
        if !self.titles.is_empty() {
            // The `+` keeps SQLite from testing each label of all projects against each issue, which has only a few.
            all = all
                .sql(
                    " AND (SELECT count(*) FROM issue_labels o WHERE o.issue_id = c.id AND +o.label_id IN \
                     (SELECT l.id FROM labels l WHERE l.project_id IN (",
                )
                .append(projects)
                .sql(") AND ")
                .append(self.label_title_condition())
                .sql(")) >= ")
                .number(self.min_labels(self.titles.len()));
        }
        match &self.term {
            // The `+` keeps SQLite from starting with the search results.
            Some(term) if many && !self.postgres => all.sql(" AND +c.id IN (").append(term.issues()).sql(")"),
            Some(term) => all.sql(" AND ").append(term.in_issue(self.postgres)),
            None => all,
        }
    }

    /// Returns the condition that the label `l` has one of the titles.
    fn label_title_condition(&self) -> Fragment<Bool> {
        match self.titles.as_slice() {
            [only] => Fragment::new("l.title = ").text(*only),
            // Titles contain no commas, so they are bound as one value, and the statement does not depend on their
            // number.
            titles => Fragment::new("")
                .per_engine("instr(", "strpos(")
                .text(format!(",{},", titles.join(",")))
                .sql(", ',' || l.title || ',') > 0"),
        }
    }

    /// Returns how many of the given number of labels an issue must have.
    fn min_labels(&self, labels: usize) -> i64 {
        if self.filter.all_labels { i64::try_from(labels).unwrap_or(i64::MAX) } else { 1 }
    }
}

/// The numbers of open and closed issues, then of the confidential ones among each.
type Counters = (i64, i64, i64, i64);

/// Returns the total and the ids of a page of the issues of a project.
fn project_page(
    db: &mut Conn,
    project: ProjectId,
    visibility: &IssueVisibility,
    query: &ListQuery<'_>,
    page: Page,
) -> Result<(Total, PageIds)> {
    let mut labels: Vec<(LabelId, Counters)> = Vec::new();
    if !query.titles.is_empty() {
        labels = labels_by_title(db, project, &query.titles)?;
        if labels.is_empty() || (query.filter.all_labels && labels.len() < query.titles.len()) {
            return Ok((Total::Exact(0), PageIds::none()));
        }
        labels.sort_by_key(|(_, (open, closed, ..))| open + closed);
    }
    let ids: Vec<LabelId> = labels.iter().map(|(id, _)| *id).collect();
    let by_label = query.has_only_indexed_columns();
    match labels.as_slice() {
        [] if query.has_only_labels_and_state() => {
            let total = visible_count(project_counters(db, project)?, query, visibility)
                + count_own_confidential(db, project, None, visibility, query)?;
            let select = query.select("issues c").and(Fragment::new("c.project_id = ").number(project));
            let select = select.and(visibility.filter("c")).and(query.state_condition());
            Ok(page_by_index(|_, _| select, total.into(), query, page))
        }
        [(label, counters)] if query.has_only_labels_and_state() => {
            let total = visible_count(*counters, query, visibility)
                + count_own_confidential(db, project, Some(*label), visibility, query)?;
            let select = select_by_labels(project, &ids, visibility, query);
            Ok(page_by_index(|_, _| select, total.into(), query, page))
        }
        [rarer @ .., (label, counters)]
            if query.has_only_labels_and_state() && !query.filter.all_labels && rarer.len() < MAX_MERGED_LABELS =>
        {
            let total = visible_count(*counters, query, visibility)
                + count_own_confidential(db, project, Some(*label), visibility, query)?;
            let total = total + count_without_last(db, project, &ids, visibility, query)?;
            let select = |order: &str, limit| merge_labels(project, &ids, visibility, query, order, limit);
            Ok(page_by_index(select, total.into(), query, page))
        }
        [(_, (open, closed, ..)), ..]
            if by_label && (query.filter.milestone.is_none() || open + closed < MAX_ISSUES_PER_FILTERED_LABEL) =>
        {
            page_by_sorting(db, select_by_labels(project, &ids, visibility, query), query, page)
        }
        _ => {
            let mut select =
                select_candidates(db, project, query)?.and(visibility.filter("c")).and(query.state_condition());
            select = select.and(query.milestone_condition(Some(project))).and(query.iid_condition());
            select = select.and(query.people_condition());
            if !ids.is_empty() {
                select = select.and(has_labels("c.id", &ids, query.min_labels(ids.len())));
            }
            page_by_sorting(db, select, query, page)
        }
    }
}

/// Counts the issues that have one of these labels, but not the last.
fn count_without_last(
    db: &mut Conn,
    project: ProjectId,
    labels: &[LabelId],
    visibility: &IssueVisibility,
    query: &ListQuery<'_>,
) -> Result<i64> {
    let Some((last, others)) = labels.split_last() else { return Ok(0) };
    let IssueSelect(select) = select_by_labels(project, others, visibility, query)
        .and(Fragment::new("NOT ").append(has_labels("c.issue_id", &[*last], 1)));
    let count = || Fragment::<BigInt>::new("SELECT count(*) FROM (").append(select.clone()).sql(") n");
    Ok(on!(db, conn => count().get_result(conn))?)
}

/// Selects the issues with any of these labels by merging the first `limit` issues of each label.
fn merge_labels(
    project: ProjectId,
    labels: &[LabelId],
    visibility: &IssueVisibility,
    query: &ListQuery<'_>,
    order: &str,
    limit: i64,
) -> IssueSelect {
    let mut select = Fragment::new("SELECT u.id AS id, u.sort_key AS sort_key FROM (");
    for (number, label) in labels.iter().enumerate() {
        let IssueSelect(own) = select_by_labels(project, &[*label], visibility, query);
        // `UNION` removes the duplicates of issues with several labels.
        select = select
            .sql(if number == 0 { "SELECT * FROM (" } else { " UNION SELECT * FROM (" })
            .append(own)
            .sql(format!(" ORDER BY {order} LIMIT "))
            .number(limit)
            .sql(format!(") top_{number}"));
    }
    IssueSelect(select.sql(") u WHERE TRUE"))
}

/// Returns the ids and the counters of the labels of a project with these titles.
fn labels_by_title(db: &mut Conn, project: ProjectId, titles: &[&str]) -> Result<Vec<(LabelId, Counters)>> {
    let rows: Vec<(i64, Counters)> = on!(db, conn => labels::table
        .filter(labels::project_id.eq(project.get()))
        .filter(Fragment::<Bool>::new("labels.title").in_texts(titles))
        .select((
            labels::id,
            (labels::open_issues, labels::closed_issues, labels::open_confidential, labels::closed_confidential),
        ))
        .load(conn))?;
    Ok(rows.into_iter().map(|(id, counters)| (LabelId::new(id), counters)).collect())
}

/// Returns the issue counters of a project.
fn project_counters(db: &mut Conn, project: ProjectId) -> Result<Counters> {
    Ok(on!(db, conn => issue_books::table
        .find(project.get())
        .select((
            issue_books::open_issues,
            issue_books::closed_issues,
            issue_books::open_confidential,
            issue_books::closed_confidential,
        ))
        .first(conn))?)
}

/// Returns the number of issues in the requested state, without confidential issues that the user may not see.
fn visible_count(
    (open, closed, open_confidential, closed_confidential): Counters,
    query: &ListQuery<'_>,
    visibility: &IssueVisibility,
) -> i64 {
    let hidden = |confidential: i64| if visibility.confidential { 0 } else { confidential };
    let (open, closed) = (open - hidden(open_confidential), closed - hidden(closed_confidential));
    match query.filter.closed {
        Some(true) => closed,
        Some(false) => open,
        None => open + closed,
    }
}

/// Counts the confidential issues that the user sees only as their author or assignee.
fn count_own_confidential(
    db: &mut Conn,
    project: ProjectId,
    label: Option<LabelId>,
    visibility: &IssueVisibility,
    query: &ListQuery<'_>,
) -> Result<i64> {
    if visibility.confidential || visibility.user == UserId::ANONYMOUS {
        return Ok(0);
    }
    let count = || {
        // Without the hint, SQLite would scan all issues of the project.
        let count = Fragment::<BigInt>::new("SELECT count(*) FROM issues c ")
            .per_engine("INDEXED BY issues_confidential_idx ", "")
            .sql("WHERE c.confidential AND c.project_id = ")
            .number(project)
            .sql(" AND (c.author_id = ")
            .number(visibility.user)
            .sql(" OR c.assignee_id = ")
            .number(visibility.user)
            .sql(") AND ")
            .append(query.state_condition());
        match label {
            Some(label) => count.sql(" AND ").append(has_labels("c.id", &[label], 1)),
            None => count,
        }
    };
    Ok(on!(db, conn => count().get_result(conn))?)
}

/// Returns the condition that an issue has at least `min` of these labels.
fn has_labels(issue: &str, labels: &[LabelId], min: i64) -> Fragment<Bool> {
    Fragment::new(format!("((SELECT count(*) FROM issue_labels o WHERE o.issue_id = {issue} AND o.label_id"))
        .in_ids(labels)
        .sql(") >= ")
        .number(min)
        .sql(")")
}

/// Selects the issues of a project by labels, which are sorted by rising frequency; the other conditions use columns of
/// `issue_labels` too.
fn select_by_labels(
    project: ProjectId,
    labels: &[LabelId],
    visibility: &IssueVisibility,
    query: &ListQuery<'_>,
) -> IssueSelect {
    let select = match labels {
        [only] => query.select_labeled("").and(Fragment::new("c.label_id = ").number(*only)),
        [rarest, others @ ..] if query.filter.all_labels => query
            .select_labeled("")
            .and(Fragment::new("c.label_id = ").number(*rarest))
            .and(has_labels("c.issue_id", others, query.min_labels(others.len()))),
        any => query.select_labeled("DISTINCT ").and(Fragment::new("c.label_id").in_ids(any)),
    };
    let select = select.and(query.state_condition()).and(query.milestone_condition(Some(project)));
    if visibility.confidential {
        return select;
    }
    // Few issues are confidential, and only those are looked up. With `EXISTS`, PostgreSQL would collect all issues
    // first.
    let mine = Fragment::new("(NOT c.confidential OR (SELECT ")
        .append(visibility.filter("s"))
        .sql(" FROM issues s WHERE s.id = c.issue_id))");
    select.and(mine)
}

/// Selects the issues of a project to which the remaining conditions apply, by the most selective index.
fn select_candidates(db: &mut Conn, project: ProjectId, query: &ListQuery<'_>) -> Result<IssueSelect> {
    let in_project = || Fragment::new("c.project_id = ").number(project);
    let Some(term) = &query.term else {
        // The milestone implies the project; with a condition on the project, SQLite might scan all of its issues.
        let by_milestone = query.filter.milestone.is_some() && query.filter.iids.is_empty();
        let select = query.select("issues c");
        return Ok(if by_milestone { select } else { select.and(in_project()) });
    };
    if query.postgres {
        return Ok(query.select("issues c").and(in_project()).and(term.in_issue(true)));
    }
    let (open, closed, ..) = project_counters(db, project)?;
    if !query.filter.iids.is_empty() || !prefers_search_index(db, term, open + closed)? {
        return Ok(query.select("issues c").and(in_project()).and(term.in_issue(false)));
    }
    let key = query.key();
    let select = Fragment::new(format!("SELECT c.id AS id, c.{key} AS sort_key FROM ("))
        .append(term.issues())
        .sql(") s CROSS JOIN issues c WHERE c.id = s.id");
    Ok(IssueSelect(select).and(in_project()))
}

/// Returns whether SQLite's search index, which covers all projects, finds a term faster than comparing it with the texts of
/// this number of issues. A term of one or two letters may occur very often.
fn prefers_search_index(db: &mut Conn, term: &SearchTerm, issues: i64) -> Result<bool> {
    if issues < MIN_ISSUES_FOR_SEARCH_INDEX {
        return Ok(false);
    }
    let Some(count) = term.count_in_issues(issues) else { return Ok(true) };
    let occurrences: i64 = on!(db, conn => count.get_result(conn))?;
    Ok(occurrences < issues)
}

/// Returns the condition that the issues of the project `p` are visible to the viewer.
fn issues_visible_to(viewer: &Viewer) -> Fragment<Bool> {
    Fragment::new("p.deleted_at IS NULL AND p.issues_enabled AND ").append(viewer.may_see())
}

/// Returns the total and the ids of a page of the issues that the viewer wrote; the viewer sees even the confidential
/// ones if the project is visible to them.
fn authored_page(db: &mut Conn, viewer: &Viewer, query: &ListQuery<'_>, page: Page) -> Result<(Total, PageIds)> {
    let mine = || Fragment::<Bool>::new("c.author_id = ").number(viewer.user);
    let projects = || {
        Fragment::<BigInt>::new("SELECT DISTINCT w.project_id AS id FROM issues w WHERE w.author_id = ")
            .number(viewer.user)
    };
    if !query.has_only_labels_and_state() || !query.titles.is_empty() {
        let seen = Fragment::new("+c.project_id IN (SELECT p.id FROM (")
            .append(projects())
            .sql(") w CROSS JOIN projects p WHERE p.id = w.id AND ")
            .append(issues_visible_to(viewer))
            .sql(")");
        let many = if let Some(term) = query.term.as_ref().filter(|_| !query.postgres) {
            let count = || Fragment::<BigInt>::new("SELECT count(*) FROM issues c WHERE ").append(mine());
            let amount: i64 = on!(db, conn => count().get_result(conn))?;
            prefers_search_index(db, term, amount)?
        } else {
            false
        };
        let select =
            query.select("issues c").and(mine()).and(seen).and(query.cross_project_conditions(projects(), many));
        return page_by_sorting(db, select, query, page);
    }
    let seen = Fragment::new("EXISTS (SELECT 1 FROM projects p WHERE p.id = c.project_id AND ")
        .append(issues_visible_to(viewer))
        .sql(")");
    let select = query.select("issues c").and(mine()).and(query.state_condition()).and(seen);
    let limit = page.count_limit();
    let (counted, selected) = count_authored(db, viewer, query, limit)?;
    let total = if selected < limit {
        Total::Exact(counted)
    } else if counted > page.offset().saturating_add(page.size) {
        Total::AtLeast(counted)
    } else {
        // Of the selected issues, the viewer can see too few to know whether there is a next page.
        Total::Exact(count_authored(db, viewer, query, i64::MAX)?.0)
    };
    Ok(page_by_index(|_, _| select, total, query, page))
}

/// Selects at most `limit` of the issues that the viewer wrote; returns how many of them the viewer can see, and their number.
fn count_authored(db: &mut Conn, viewer: &Viewer, query: &ListQuery<'_>, limit: i64) -> Result<(i64, i64)> {
    // There are far fewer projects than issues.
    let count = || {
        Fragment::<(BigInt, BigInt)>::new(
            "WITH selected AS MATERIALIZED (SELECT c.project_id FROM issues c WHERE c.author_id = ",
        )
        .number(viewer.user)
        .sql(" AND ")
        .append(query.state_condition())
        .sql(" LIMIT ")
        .number(limit)
        .sql(
            ") SELECT CAST(coalesce(sum(w.amount), 0) AS BIGINT), (SELECT count(*) FROM selected) FROM \
             (SELECT project_id AS id, count(*) AS amount FROM selected GROUP BY project_id) w \
             CROSS JOIN projects p WHERE p.id = w.id AND ",
        )
        .append(issues_visible_to(viewer))
    };
    Ok(on!(db, conn => count().get_result(conn))?)
}

/// Lists the newest issues that contain a text in all projects, newest first. Of the newest `max_candidates` matching issues,
/// those that the viewer can see are returned, so the time it takes is bounded.
pub fn search(db: &mut Conn, viewer: &Viewer, text: &str, max_candidates: i64, page: Page) -> Result<Slice<Issue>> {
    let order = IssueOrder { by_update: false, ascending: false };
    let filter = IssueFilter { search: Some(text.to_owned()), ..IssueFilter::default() };
    let Some(query) = ListQuery::new(&filter, order, matches!(db, Conn::Pg(_))) else { return Ok(Slice::empty(page)) };
    let Some(term) = &query.term else { return Ok(Slice::empty(page)) };
    let trusted = if viewer.admin { Fragment::<Bool>::new("TRUE") } else { viewer.has_role(Role::Reporter) };
    let visibility = IssueVisibility { user: viewer.user, confidential: false };
    let select = Fragment::new(format!("SELECT c.id AS id, c.{} AS sort_key FROM (", query.key()))
        .append(term.newest_issues(query.postgres, max_candidates))
        .sql(") s CROSS JOIN issues c CROSS JOIN projects p WHERE c.id = s.id AND p.id = c.project_id");
    let select = IssueSelect(select).and(issues_visible_to(viewer));
    let select = select.and(Fragment::new("(").append(visibility.filter("c")).sql(" OR ").append(trusted).sql(")"));
    let (total, ids) = page_by_sorting(db, select, &query, page)?;
    Ok(Slice { items: issues::load(db, viewer.user, ids, order)?, total, page })
}

/// Selects the issues that the viewer is assigned to; the viewer sees even the confidential ones if the project is visible
/// to them.
fn select_assigned(viewer: &Viewer, query: &ListQuery<'_>) -> IssueSelect {
    let projects = || {
        Fragment::<BigInt>::new("SELECT DISTINCT w.project_id AS id FROM issues w WHERE w.assignee_id = ")
            .number(viewer.user)
    };
    let seen = Fragment::new("+c.project_id IN (SELECT p.id FROM (")
        .append(projects())
        .sql(") w CROSS JOIN projects p WHERE p.id = w.id AND ")
        .append(issues_visible_to(viewer))
        .sql(")");
    let mine = Fragment::new("c.assignee_id = ").number(viewer.user);
    query.select("issues c").and(mine).and(seen).and(query.cross_project_conditions(projects(), false))
}

/// Returns the newest open issues of a project that have none of these labels, at most `limit`.
pub fn open_without_labels(
    db: &mut Conn,
    project: ProjectId,
    visibility: &IssueVisibility,
    labels: &[LabelId],
    limit: i64,
) -> Result<Vec<Issue>> {
    let (filter, order) = (IssueFilter { closed: Some(false), ..IssueFilter::default() }, IssueOrder::default());
    let Some(query) = ListQuery::new(&filter, order, matches!(db, Conn::Pg(_))) else { return Ok(Vec::new()) };
    let IssueSelect(select) = query
        .select("issues c")
        .and(Fragment::new("c.project_id = ").number(project))
        .and(visibility.filter("c"))
        .and(query.state_condition())
        .and(Fragment::new("NOT ").append(has_labels("c.id", labels, 1)));
    let ids = Fragment::new("SELECT f.id FROM (")
        .append(select)
        .sql(format!(" ORDER BY {} LIMIT ", order_by("", order.ascending)))
        .number(limit)
        .sql(") f");
    let query = PageIds::Query { query: ids, is_reversed: false };
    let mut found = issues::load(db, visibility.user, query, order)?;
    found.retain(|issue| visibility.includes(issue));
    Ok(found)
}

/// Selects the issues of the projects of a group and its subgroups.
fn select_in_group(group: NamespaceId, viewer: &Viewer, query: &ListQuery<'_>) -> IssueSelect {
    let key = query.key();
    let select = Fragment::new(format!("SELECT c.id AS id, c.{key} AS sort_key FROM (SELECT p.id AS id, "));
    let trusted = if viewer.admin { Fragment::<Bool>::new("TRUE") } else { viewer.has_role(Role::Reporter) };
    let select = select
        .append(trusted)
        .sql(" AS trusted FROM namespace_ancestors a CROSS JOIN projects p WHERE a.ancestor_id = ")
        .number(group)
        .sql(" AND p.namespace_id = a.namespace_id AND ")
        .append(issues_visible_to(viewer))
        .sql(") g CROSS JOIN issues c WHERE c.project_id = g.id AND (NOT c.confidential OR g.trusted OR c.author_id = ")
        .number(viewer.user)
        .sql(" OR c.assignee_id = ")
        .number(viewer.user)
        .sql(")");
    IssueSelect(select)
}

/// Returns an `ORDER BY` list: the sort key, then the id in the same direction.
fn order_by(table: &str, ascending: bool) -> String {
    let direction = if ascending { "ASC" } else { "DESC" };
    format!("{table}sort_key {direction}, {table}id {direction}")
}

/// Returns a page along an index from the nearer end of the list, if its length is known. `select` receives the sort order
/// and the number of rows needed.
fn page_by_index(
    select: impl FnOnce(&str, i64) -> IssueSelect,
    total: Total,
    query: &ListQuery<'_>,
    page: Page,
) -> (Total, PageIds) {
    let before = page.offset().min(total.at_least());
    let size = page.size.min(total.at_least() - before);
    if size == 0 {
        return (total, PageIds::none());
    }
    let after = total.at_least() - before - size;
    let from_end = total.exact().is_some() && after < before;
    let skipped = if from_end { after } else { before };
    let order = order_by("", query.order.ascending != from_end);
    let IssueSelect(select) = select(&order, skipped + size);
    let ids = Fragment::new("SELECT f.id FROM (")
        .append(select)
        .sql(format!(" ORDER BY {order} LIMIT "))
        .number(size)
        .sql(" OFFSET ")
        .number(skipped)
        .sql(") f");
    (total, PageIds::Query { query: ids, is_reversed: from_end })
}

/// Selects all matching issues, counts and sorts them, and returns a page.
fn page_by_sorting(
    db: &mut Conn,
    IssueSelect(select): IssueSelect,
    query: &ListQuery<'_>,
    page: Page,
) -> Result<(Total, PageIds)> {
    let total = Fragment::new("(SELECT count(*) FROM found)");
    let (total, ids) = counted_page(db, page, select, total, &order_by("f.", query.order.ascending))?;
    Ok((total.into(), PageIds::Known(ids)))
}
