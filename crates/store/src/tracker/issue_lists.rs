//! Lists of issues: which ones, in which order, and how many there are.
//!
//! Where nothing but open or closed is asked of a project, of one of its labels, or of what somebody wrote, the total comes
//! from counters and a page is read along an index, from the nearer end. Whatever else is asked is found as a whole by the
//! narrowest index there is, then counted and sorted.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    Issue, Page, Role, Slice,
    issues::{IssueFilter, IssueOrder},
};

use crate::{
    Conn, Result, Sight, Viewer,
    conn::on,
    fragment::Fragment,
    issues as singles,
    project_lists::{counted_page, keyword},
    schema::{issue_books, labels},
    search::Term,
};

/// Where there are fewer issues, reading all of them is less work than looking a term up among those of all projects.
const WORTH_AN_INDEX: i64 = 1_000;
/// A milestone has rarely as many issues; a label that has more is not looked through for those of a milestone.
const MANY: i64 = 4_000;
/// Of so many labels the tops are merged; of more, everything is gathered.
const MERGED_LABELS: usize = 8;

/// Among which issues a list looks.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// Those of a project.
    Project(i64, Sight),
    /// Those of a milestone.
    Milestone(i64, Sight),
    /// Those that the viewer wrote, in projects that they still see.
    Written(Viewer),
    /// Those of the projects of a group, and of the groups below it, as far as the viewer sees them.
    Group(i64, Viewer),
}

impl Scope {
    fn user(&self) -> i64 {
        match self {
            Self::Project(_, sight) | Self::Milestone(_, sight) => sight.user,
            Self::Written(viewer) | Self::Group(_, viewer) => viewer.user,
        }
    }
}

/// A page of issues.
pub fn list(db: &mut Conn, scope: &Scope, filter: &IssueFilter, order: IssueOrder, page: Page) -> Result<Slice<Issue>> {
    let Some(wish) = Wish::new(filter, order, matches!(db, Conn::Pg(_))) else { return Ok(Slice::empty(page)) };
    let (total, ids) = match scope {
        Scope::Project(project, sight) => of_project(db, *project, sight, &wish, page)?,
        Scope::Milestone(milestone, sight) => {
            let among = Fragment::new("c.milestone_id = ").number(*milestone).sql(" AND ").then(sight.sees("c"));
            let project = Fragment::new("SELECT m.project_id FROM milestones m WHERE m.id = ").number(*milestone);
            collect(db, wish.select("issues c").and(among).and(wish.anywhere(project, false)), &wish, page)?
        }
        Scope::Written(viewer) => written(db, viewer, &wish, page)?,
        Scope::Group(group, viewer) => {
            let projects = Fragment::new(
                "SELECT p.id FROM namespace_ancestors a CROSS JOIN projects p \
                 WHERE p.namespace_id = a.namespace_id AND a.ancestor_id = ",
            );
            let found = of_group(*group, viewer, &wish).and(wish.anywhere(projects.number(*group), true));
            collect(db, found, &wish, page)?
        }
    };
    let mut items = singles::load(db, scope.user(), &ids)?;
    if let Scope::Project(_, sight) | Scope::Milestone(_, sight) = scope {
        // On PostgreSQL one may have become confidential since it was found.
        items.retain(|issue| sight.shows(issue));
    }
    Ok(Slice { items, total, page })
}

/// What is asked of issues, the same for every scope.
struct Wish<'a> {
    filter: &'a IssueFilter,
    order: IssueOrder,
    /// The titles of labels, each once.
    titles: Vec<&'a str>,
    term: Option<Term>,
    postgres: bool,
}

/// The beginning of a statement that finds issues: what it gives is called `id` and `sort_key`.
#[derive(Clone)]
struct Found(Fragment<BigInt>);

impl Found {
    fn and(self, condition: Fragment<Bool>) -> Self {
        Self(self.0.sql(" AND ").then(condition))
    }
}

impl<'a> Wish<'a> {
    /// `None` if no issue can be as it is wished.
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
        let term = filter.search.as_deref().filter(|text| !text.is_empty()).map(Term::new);
        if term.as_ref().is_some_and(Term::is_in_nothing) {
            return None;
        }
        Some(Self { filter, order, titles, term, postgres })
    }

    /// The column that orders the list.
    fn key(&self) -> &'static str {
        if self.order.by_update { "updated_at" } else { "created_at" }
    }

    /// Begins to look for issues among the rows of `c`.
    fn select(&self, from: &str) -> Found {
        Found(Fragment::new(format!("SELECT c.id AS id, c.{} AS sort_key FROM {from} WHERE TRUE", self.key())))
    }

    /// The same among the labels of issues.
    fn select_labeled(&self, distinct: &str) -> Found {
        let key = self.key();
        Found(Fragment::new(format!(
            "SELECT {distinct}c.issue_id AS id, c.{key} AS sort_key FROM issue_labels c WHERE TRUE"
        )))
    }

    fn state(&self) -> Fragment<Bool> {
        Fragment::new(self.filter.closed.map_or("TRUE".into(), |closed| format!("c.closed = {}", keyword(closed))))
    }

    /// Whether the wish is about nothing but labels, and open or closed.
    fn is_plain(&self) -> bool {
        self.filter.milestone.is_none() && self.filter.iids.is_empty() && self.term.is_none()
    }

    /// Whether the issue has one of the wanted numbers.
    fn numbered(&self) -> Fragment<Bool> {
        match self.filter.iids.as_slice() {
            [] => Fragment::new("TRUE"),
            iids => Fragment::new("c.iid").among(iids),
        }
    }

    /// Whether the issue belongs to the milestone with the wanted title; in this project, or else in its own.
    fn in_milestone(&self, project: Option<i64>) -> Fragment<Bool> {
        let Some(title) = &self.filter.milestone else { return Fragment::new("TRUE") };
        let its = Fragment::new("c.milestone_id = (SELECT m.id FROM milestones m WHERE m.project_id = ");
        let its = match project {
            Some(project) => its.number(project),
            None => its.sql("c.project_id"),
        };
        its.sql(" AND m.title = ").words(title).sql(")")
    }

    /// Everything that is asked, of issues of several projects: labels and milestones are known by their titles there.
    /// `many` are too many to look for a term in each.
    fn anywhere(&self, projects: Fragment<BigInt>, many: bool) -> Fragment<Bool> {
        let mut all = self.state().sql(" AND ").then(self.in_milestone(None)).sql(" AND ").then(self.numbered());
        if !self.titles.is_empty() {
            // The sign keeps SQLite from trying each label of all the projects on each issue, which has but a few.
            all = all
                .sql(
                    " AND (SELECT count(*) FROM issue_labels o WHERE o.issue_id = c.id AND +o.label_id IN \
                     (SELECT l.id FROM labels l WHERE l.project_id IN (",
                )
                .then(projects)
                .sql(") AND ")
                .then(self.titled())
                .sql(")) >= ")
                .number(self.least_labels(self.titles.len()));
        }
        match &self.term {
            // The sign keeps SQLite from beginning with what is found.
            Some(term) if many && !self.postgres => all.sql(" AND +c.id IN (").then(term.issues()).sql(")"),
            Some(term) => all.sql(" AND ").then(term.in_issue(self.postgres)),
            None => all,
        }
    }

    /// Whether the label `l` has one of the wanted titles.
    fn titled(&self) -> Fragment<Bool> {
        match self.titles.as_slice() {
            [only] => Fragment::new("l.title = ").words(*only),
            // As no title has a comma, all of them are one value, and the statement is the same however many there are.
            titles => Fragment::new("")
                .either("instr(", "strpos(")
                .words(format!(",{},", titles.join(",")))
                .sql(", ',' || l.title || ',') > 0"),
        }
    }

    /// How many of these labels an issue needs.
    fn least_labels(&self, labels: usize) -> i64 {
        if self.filter.all_labels { i64::try_from(labels).unwrap_or(i64::MAX) } else { 1 }
    }
}

/// Open issues, closed ones, and how many of each are confidential.
type Counters = (i64, i64, i64, i64);

/// A page of the issues of a project.
fn of_project(db: &mut Conn, project: i64, sight: &Sight, wish: &Wish<'_>, page: Page) -> Result<(i64, Vec<i64>)> {
    let mut labels: Vec<(i64, Counters)> = Vec::new();
    if !wish.titles.is_empty() {
        labels = labels_titled(db, project, &wish.titles)?;
        if labels.is_empty() || (wish.filter.all_labels && labels.len() < wish.titles.len()) {
            return Ok((0, Vec::new()));
        }
        labels.sort_by_key(|(_, (open, closed, ..))| open + closed);
    }
    let ids: Vec<i64> = labels.iter().map(|(id, _)| *id).collect();
    let by_label = wish.filter.iids.is_empty() && wish.term.is_none();
    match labels.as_slice() {
        [] if wish.is_plain() => {
            let total = counted(book_of(db, project)?, wish, sight) + own_secrets(db, project, None, sight, wish)?;
            let found = wish.select("issues c").and(Fragment::new("c.project_id = ").number(project));
            let found = found.and(sight.sees("c")).and(wish.state());
            walk(db, |_, _| found.clone(), total, wish, page)
        }
        [(label, counters)] if wish.is_plain() => {
            let total = counted(*counters, wish, sight) + own_secrets(db, project, Some(*label), sight, wish)?;
            let found = labeled(project, &ids, sight, wish);
            walk(db, |_, _| found.clone(), total, wish, page)
        }
        [rarer @ .., (label, counters)]
            if wish.is_plain() && !wish.filter.all_labels && rarer.len() < MERGED_LABELS =>
        {
            let total = counted(*counters, wish, sight) + own_secrets(db, project, Some(*label), sight, wish)?;
            let total = total + count_without(db, project, &ids, sight, wish)?;
            walk(db, |order, most| merged(project, &ids, sight, wish, order, most), total, wish, page)
        }
        [(_, (open, closed, ..)), ..] if by_label && (wish.filter.milestone.is_none() || open + closed < MANY) => {
            collect(db, labeled(project, &ids, sight, wish), wish, page)
        }
        _ => {
            let mut found = candidates(db, project, wish)?.and(sight.sees("c")).and(wish.state());
            found = found.and(wish.in_milestone(Some(project))).and(wish.numbered());
            if !ids.is_empty() {
                found = found.and(carries("c.id", &ids, wish.least_labels(ids.len())));
            }
            collect(db, found, wish, page)
        }
    }
}

/// How many issues carry one of these labels, but not the last.
fn count_without(db: &mut Conn, project: i64, labels: &[i64], sight: &Sight, wish: &Wish<'_>) -> Result<i64> {
    let Some((last, others)) = labels.split_last() else { return Ok(0) };
    let Found(found) =
        labeled(project, others, sight, wish).and(Fragment::new("NOT ").then(carries("c.issue_id", &[*last], 1)));
    let count = || Fragment::<BigInt>::new("SELECT count(*) FROM (").then(found.clone()).sql(") n");
    Ok(on!(db, conn => count().get_result(conn))?)
}

/// The issues that carry one of these labels, as far as they can be among the first so many: merged from the tops.
fn merged(project: i64, labels: &[i64], sight: &Sight, wish: &Wish<'_>, order: &str, most: i64) -> Found {
    let mut found = Fragment::new("SELECT u.id AS id, u.sort_key AS sort_key FROM (");
    for (number, label) in labels.iter().enumerate() {
        let Found(own) = labeled(project, &[*label], sight, wish);
        // `UNION` takes those with several labels once.
        found = found
            .sql(if number == 0 { "SELECT * FROM (" } else { " UNION SELECT * FROM (" })
            .then(own)
            .sql(format!(" ORDER BY {order} LIMIT "))
            .number(most)
            .sql(format!(") top_{number}"));
    }
    Found(found.sql(") u WHERE TRUE"))
}

/// The numbers of the labels of a project that have these titles, with their counters.
fn labels_titled(db: &mut Conn, project: i64, titles: &[&str]) -> Result<Vec<(i64, Counters)>> {
    Ok(on!(db, conn => labels::table
        .filter(labels::project_id.eq(project))
        .filter(labels::title.eq_any(titles))
        .select((
            labels::id,
            (labels::open_issues, labels::closed_issues, labels::open_confidential, labels::closed_confidential),
        ))
        .load(conn))?)
}

/// The counters of a project.
fn book_of(db: &mut Conn, project: i64) -> Result<Counters> {
    Ok(on!(db, conn => issue_books::table
        .find(project)
        .select((
            issue_books::open_issues,
            issue_books::closed_issues,
            issue_books::open_confidential,
            issue_books::closed_confidential,
        ))
        .first(conn))?)
}

/// How many are in the wanted state, without those that are secret to this user.
fn counted((open, closed, open_secrets, closed_secrets): Counters, wish: &Wish<'_>, sight: &Sight) -> i64 {
    let hidden = |secrets: i64| if sight.confidential { 0 } else { secrets };
    let (open, closed) = (open - hidden(open_secrets), closed - hidden(closed_secrets));
    match wish.filter.closed {
        Some(true) => closed,
        Some(false) => open,
        None => open + closed,
    }
}

/// How many confidential issues this user sees only because they wrote them or work on them.
fn own_secrets(db: &mut Conn, project: i64, label: Option<i64>, sight: &Sight, wish: &Wish<'_>) -> Result<i64> {
    if sight.confidential || sight.user == 0 {
        return Ok(0);
    }
    let count = || {
        // Left to itself, SQLite would walk over all issues of the project.
        let count = Fragment::<BigInt>::new("SELECT count(*) FROM issues c ")
            .either("INDEXED BY issues_confidential_idx ", "")
            .sql("WHERE c.confidential AND c.project_id = ")
            .number(project)
            .sql(" AND (c.author_id = ")
            .number(sight.user)
            .sql(" OR c.assignee_id = ")
            .number(sight.user)
            .sql(") AND ")
            .then(wish.state());
        match label {
            Some(label) => count.sql(" AND ").then(carries("c.id", &[label], 1)),
            None => count,
        }
    };
    Ok(on!(db, conn => count().get_result(conn))?)
}

/// Whether an issue carries at least so many of these labels.
fn carries(issue: &str, labels: &[i64], least: i64) -> Fragment<Bool> {
    Fragment::new(format!("((SELECT count(*) FROM issue_labels o WHERE o.issue_id = {issue} AND o.label_id"))
        .among(labels)
        .sql(") >= ")
        .number(least)
        .sql(")")
}

/// The issues of a project that carry labels, the rarest of which comes first; what is asked beside is in the same rows.
fn labeled(project: i64, labels: &[i64], sight: &Sight, wish: &Wish<'_>) -> Found {
    let found = match labels {
        [only] => wish.select_labeled("").and(Fragment::new("c.label_id = ").number(*only)),
        [rarest, others @ ..] if wish.filter.all_labels => wish
            .select_labeled("")
            .and(Fragment::new("c.label_id = ").number(*rarest))
            .and(carries("c.issue_id", others, wish.least_labels(others.len()))),
        any => wish.select_labeled("DISTINCT ").and(Fragment::new("c.label_id").among(any)),
    };
    let found = found.and(wish.state()).and(wish.in_milestone(Some(project)));
    if sight.confidential {
        return found;
    }
    // Few are confidential, and only those are looked at. With `EXISTS`, PostgreSQL would gather all issues beforehand.
    let mine = Fragment::new("(NOT c.confidential OR (SELECT ")
        .then(sight.sees("s"))
        .sql(" FROM issues s WHERE s.id = c.issue_id))");
    found.and(mine)
}

/// The issues of a project among which the others are looked for, by the narrowest way.
fn candidates(db: &mut Conn, project: i64, wish: &Wish<'_>) -> Result<Found> {
    let in_project = || Fragment::new("c.project_id = ").number(project);
    let Some(term) = &wish.term else {
        // A milestone is of one project; if the project were named too, SQLite might walk over all of it.
        let by_milestone = wish.filter.milestone.is_some() && wish.filter.iids.is_empty();
        let found = wish.select("issues c");
        return Ok(if by_milestone { found } else { found.and(in_project()) });
    };
    if wish.postgres {
        return Ok(wish.select("issues c").and(in_project()).and(term.in_issue(true)));
    }
    let (open, closed, ..) = book_of(db, project)?;
    if open + closed < WORTH_AN_INDEX || !wish.filter.iids.is_empty() {
        return Ok(wish.select("issues c").and(in_project()).and(term.in_issue(false)));
    }
    let key = wish.key();
    let found = Fragment::new(format!("SELECT c.id AS id, c.{key} AS sort_key FROM ("))
        .then(term.issues())
        .sql(") s CROSS JOIN issues c WHERE c.id = s.id");
    Ok(Found(found).and(in_project()))
}

/// Whether issues of the project `p` are no secret to the viewer as a whole.
fn is_open_to(viewer: &Viewer) -> Fragment<Bool> {
    Fragment::new("p.deleted_at IS NULL AND p.issues_enabled AND ").then(viewer.knows())
}

/// A page of what the viewer wrote. Nothing of that is secret to them as long as they see the project.
fn written(db: &mut Conn, viewer: &Viewer, wish: &Wish<'_>, page: Page) -> Result<(i64, Vec<i64>)> {
    let mine = || Fragment::<Bool>::new("c.author_id = ").number(viewer.user);
    let projects = || {
        Fragment::<BigInt>::new("SELECT DISTINCT w.project_id AS id FROM issues w WHERE w.author_id = ")
            .number(viewer.user)
    };
    if !wish.is_plain() || !wish.titles.is_empty() {
        let seen = Fragment::new("+c.project_id IN (SELECT p.id FROM (")
            .then(projects())
            .sql(") w CROSS JOIN projects p WHERE p.id = w.id AND ")
            .then(is_open_to(viewer))
            .sql(")");
        let many = wish.term.is_some() && {
            let count = || Fragment::<BigInt>::new("SELECT count(*) FROM issues c WHERE ").then(mine());
            let amount: i64 = on!(db, conn => count().get_result(conn))?;
            amount >= WORTH_AN_INDEX
        };
        let found = wish.select("issues c").and(mine()).and(seen).and(wish.anywhere(projects(), many));
        return collect(db, found, wish, page);
    }
    let seen = Fragment::new("EXISTS (SELECT 1 FROM projects p WHERE p.id = c.project_id AND ")
        .then(is_open_to(viewer))
        .sql(")");
    let found = wish.select("issues c").and(mine()).and(wish.state()).and(seen);
    // Projects are far fewer than issues.
    let count = || {
        Fragment::<BigInt>::new(
            "SELECT CAST(coalesce(sum(w.amount), 0) AS BIGINT) FROM \
             (SELECT c.project_id AS id, count(*) AS amount FROM issues c WHERE c.author_id = ",
        )
        .number(viewer.user)
        .sql(" AND ")
        .then(wish.state())
        .sql(" GROUP BY c.project_id) w CROSS JOIN projects p WHERE p.id = w.id AND ")
        .then(is_open_to(viewer))
    };
    let total = on!(db, conn => count().get_result(conn))?;
    walk(db, |_, _| found.clone(), total, wish, page)
}

/// The issues of the projects of a group, and of the groups below it.
fn of_group(group: i64, viewer: &Viewer, wish: &Wish<'_>) -> Found {
    let key = wish.key();
    let found = Fragment::new(format!("SELECT c.id AS id, c.{key} AS sort_key FROM (SELECT p.id AS id, "));
    let trusted = if viewer.admin {
        Fragment::<Bool>::new("TRUE")
    } else {
        Fragment::new("p.id IN (").then(viewer.my_projects_as(Role::Reporter, "")).sql(")")
    };
    let found = found
        .then(trusted)
        .sql(" AS trusted FROM namespace_ancestors a CROSS JOIN projects p WHERE a.ancestor_id = ")
        .number(group)
        .sql(" AND p.namespace_id = a.namespace_id AND ")
        .then(is_open_to(viewer))
        .sql(") g CROSS JOIN issues c WHERE c.project_id = g.id AND (NOT c.confidential OR g.trusted OR c.author_id = ")
        .number(viewer.user)
        .sql(" OR c.assignee_id = ")
        .number(viewer.user)
        .sql(")");
    Found(found)
}

/// By the key, and where that is equal by number, both the same way.
fn sorted(table: &str, ascending: bool) -> String {
    let direction = if ascending { "ASC" } else { "DESC" };
    format!("{table}sort_key {direction}, {table}id {direction}")
}

/// A page of a list whose length is known and whose order is that of an index: read from the nearer end. `found` is told
/// the order, and how many of the list are enough.
fn walk(
    db: &mut Conn,
    found: impl FnOnce(&str, i64) -> Found,
    total: i64,
    wish: &Wish<'_>,
    page: Page,
) -> Result<(i64, Vec<i64>)> {
    let before = page.offset().min(total);
    let size = page.size.min(total - before);
    if size == 0 {
        return Ok((total, Vec::new()));
    }
    let behind = total - before - size;
    let from_behind = behind < before;
    let skipped = if from_behind { behind } else { before };
    let order = sorted("", wish.order.ascending != from_behind);
    let Found(found) = found(&order, skipped + size);
    let of_page = || {
        Fragment::<(BigInt, BigInt)>::new("")
            .then(found.clone())
            .sql(format!(" ORDER BY {order} LIMIT "))
            .number(size)
            .sql(" OFFSET ")
            .number(skipped)
    };
    let rows: Vec<(i64, i64)> = on!(db, conn => of_page().load(conn))?;
    let mut ids: Vec<i64> = rows.into_iter().map(|(id, _)| id).collect();
    if from_behind {
        ids.reverse();
    }
    Ok((total, ids))
}

/// A page of a list that is found as a whole, then counted and sorted.
fn collect(db: &mut Conn, Found(found): Found, wish: &Wish<'_>, page: Page) -> Result<(i64, Vec<i64>)> {
    let total = Fragment::new("(SELECT count(*) FROM found)");
    counted_page(db, page, found, total, &sorted("f.", wish.order.ascending))
}
