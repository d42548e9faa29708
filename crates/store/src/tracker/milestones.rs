//! Milestones of projects.

use std::collections::HashMap;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool},
};
use model::{
    Milestone, MilestoneId, MilestoneIid, Page, ProjectId, Slice, Time,
    members::{date_from_micros, start_of_day},
    milestones::{MilestoneFilter, NewMilestone},
};

use crate::{
    Conn, IssueVisibility, Result,
    conn::on,
    fragment::Fragment,
    schema::{issue_books, milestones},
    times::{from_micros, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = milestones)]
pub(crate) struct Row {
    id: i64,
    iid: i64,
    project_id: i64,
    title: String,
    description: Option<String>,
    closed: bool,
    start_on: Option<i64>,
    due_on: Option<i64>,
    created_at: i64,
    updated_at: i64,
}

impl From<Row> for Milestone {
    fn from(row: Row) -> Self {
        let Row { id, iid, project_id, title, description, closed, start_on, due_on, created_at, updated_at } = row;
        Self {
            id: MilestoneId::new(id),
            iid: MilestoneIid::new(iid),
            project: ProjectId::new(project_id),
            title,
            description,
            closed,
            start_on: start_on.map(date_from_micros),
            due_on: due_on.map(date_from_micros),
            created_at: from_micros(created_at),
            updated_at: from_micros(updated_at),
        }
    }
}

/// Lists the milestones of a project, oldest first.
pub fn list(db: &mut Conn, project: ProjectId, filter: &MilestoneFilter, page: Page) -> Result<Slice<Milestone>> {
    macro_rules! matching {
        () => {{
            let mut query = milestones::table.filter(milestones::project_id.eq(project.get())).into_boxed();
            if let Some(closed) = filter.closed {
                query = query.filter(milestones::closed.eq(closed));
            }
            if !filter.iids.is_empty() {
                query = query.filter(Fragment::<Bool>::new("milestones.iid").in_ids(&filter.iids));
            }
            query
        }};
    }
    let total: i64 = on!(db, conn => matching!().count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => matching!()
        .order(milestones::id)
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Milestone::from).collect(), total: total.into(), page })
}

/// Finds a milestone of a project.
pub fn find(db: &mut Conn, project: ProjectId, id: MilestoneId) -> Result<Option<Milestone>> {
    let row: Option<Row> = on!(db, conn => milestones::table
        .filter(milestones::project_id.eq(project.get()))
        .filter(milestones::id.eq(id.get()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Milestone::from))
}

/// Finds the milestone of a project with this title.
pub fn by_title(db: &mut Conn, project: ProjectId, title: &str) -> Result<Option<Milestone>> {
    let row: Option<Row> = on!(db, conn => milestones::table
        .filter(milestones::project_id.eq(project.get()))
        .filter(milestones::title.eq(title))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Milestone::from))
}

/// Finds the milestone of a project with this iid.
pub fn by_iid(db: &mut Conn, project: ProjectId, iid: MilestoneIid) -> Result<Option<Milestone>> {
    let row: Option<Row> = on!(db, conn => milestones::table
        .filter(milestones::project_id.eq(project.get()))
        .filter(milestones::iid.eq(iid.get()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Milestone::from))
}

/// Returns the milestones of a project that have one of these iids or titles.
pub fn by_keys(db: &mut Conn, project: ProjectId, iids: &[MilestoneIid], titles: &[String]) -> Result<Vec<Milestone>> {
    let rows: Vec<Row> = on!(db, conn => milestones::table
        .filter(milestones::project_id.eq(project.get()))
        .filter(Fragment::<Bool>::new("milestones.iid").in_ids(iids).or(milestones::title.eq_any(titles)))
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Milestone::from).collect())
}

/// Returns the numbers of open and closed issues of each milestone that are visible.
pub fn issue_counts(
    db: &mut Conn,
    visibility: &IssueVisibility,
    ids: &[MilestoneId],
) -> Result<HashMap<MilestoneId, (i64, i64)>> {
    let counted = || {
        Fragment::<(BigInt, BigInt, BigInt)>::new(
            "SELECT i.milestone_id, count(*) FILTER (WHERE NOT i.closed), count(*) FILTER (WHERE i.closed) \
             FROM issues i WHERE i.milestone_id",
        )
        .in_ids(ids)
        .sql(" AND ")
        .append(visibility.filter("i"))
        .sql(" GROUP BY i.milestone_id")
    };
    let rows: Vec<(i64, i64, i64)> = on!(db, conn => counted().load(conn))?;
    Ok(rows.into_iter().map(|(id, open, closed)| (MilestoneId::new(id), (open, closed))).collect())
}

/// Inserts a milestone with the next iid of the project; the caller has checked with [`by_title`] that the title is not
/// taken.
pub fn insert(db: &mut Conn, project: ProjectId, new: &NewMilestone, now: Time) -> Result<Milestone> {
    let iid: i64 = on!(db, conn => diesel::update(issue_books::table.find(project.get()))
        .set(issue_books::last_milestone.eq(issue_books::last_milestone + 1))
        .returning(issue_books::last_milestone)
        .get_result(conn))?;
    let row: Row = on!(db, conn => diesel::insert_into(milestones::table)
        .values((
            milestones::project_id.eq(project.get()),
            milestones::iid.eq(iid),
            milestones::title.eq(&new.title),
            milestones::description.eq(&new.description),
            milestones::start_on.eq(new.start_on.map(start_of_day)),
            milestones::due_on.eq(new.due_on.map(start_of_day)),
            milestones::created_at.eq(to_micros(now)),
            milestones::updated_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Updates all fields of a milestone except its ids, its project and the time of creation.
pub fn update(db: &mut Conn, milestone: &Milestone) -> Result<()> {
    on!(db, conn => diesel::update(milestones::table.find(milestone.id.get()))
        .set((
            milestones::title.eq(&milestone.title),
            milestones::description.eq(&milestone.description),
            milestones::closed.eq(milestone.closed),
            milestones::start_on.eq(milestone.start_on.map(start_of_day)),
            milestones::due_on.eq(milestone.due_on.map(start_of_day)),
            milestones::updated_at.eq(to_micros(milestone.updated_at)),
        ))
        .execute(conn))?;
    Ok(())
}
