//! Notes on issues.

use diesel::prelude::*;
use model::{Note, Page, Slice, Time};

use crate::{
    Conn, Result,
    conn::on,
    schema::{notes, users},
    times::{from_micros, to_micros},
    users::SummaryRow,
};

/// A note that is about to be written.
#[derive(Clone, Debug)]
pub struct NewNote<'a> {
    /// The project of the issue.
    pub project: i64,
    /// The issue that it is about.
    pub issue: i64,
    /// Who writes it, or did what it tells.
    pub author: i64,
    /// What it says.
    pub body: &'a str,
    /// Whether the service writes it.
    pub system: bool,
    /// When it is written.
    pub now: Time,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = notes)]
pub(crate) struct Row {
    id: i64,
    issue_id: i64,
    body: String,
    system: bool,
    created_at: i64,
    updated_at: i64,
}

pub(crate) fn to_note((row, author): (Row, Option<SummaryRow>)) -> Note {
    let Row { id, issue_id, body, system, created_at, updated_at } = row;
    Note {
        id,
        issue: issue_id,
        body,
        author: author.map(Into::into),
        system,
        created_at: from_micros(created_at),
        updated_at: from_micros(updated_at),
    }
}

/// The notes on an issue in the order in which they were written, those of the service included.
pub fn list(db: &mut Conn, issue: i64, page: Page) -> Result<Slice<Note>> {
    let total = on!(db, conn => notes::table.filter(notes::issue_id.eq(issue)).count().get_result(conn))?;
    let rows: Vec<(Row, Option<SummaryRow>)> = on!(db, conn => notes::table
        .left_join(users::table)
        .filter(notes::issue_id.eq(issue))
        .order(notes::id)
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_note).collect(), total, page })
}

/// A note on an issue.
pub fn find(db: &mut Conn, issue: i64, id: i64) -> Result<Option<Note>> {
    let row: Option<(Row, Option<SummaryRow>)> = on!(db, conn => notes::table
        .left_join(users::table)
        .filter(notes::issue_id.eq(issue))
        .filter(notes::id.eq(id))
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_note))
}

/// Adds a note; says its number.
pub fn insert(db: &mut Conn, new: &NewNote<'_>) -> Result<i64> {
    Ok(on!(db, conn => diesel::insert_into(notes::table)
        .values((
            notes::project_id.eq(new.project),
            notes::issue_id.eq(new.issue),
            notes::author_id.eq(new.author),
            notes::body.eq(new.body),
            notes::system.eq(new.system),
            notes::created_at.eq(to_micros(new.now)),
            notes::updated_at.eq(to_micros(new.now)),
        ))
        .returning(notes::id)
        .get_result(conn))?)
}

/// Gives a note another text.
pub fn update(db: &mut Conn, id: i64, body: &str, by: i64, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(notes::table.find(id))
        .set((notes::body.eq(body), notes::updated_by_id.eq(by), notes::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Removes a note, and the event that told of it.
pub fn delete(db: &mut Conn, id: i64) -> Result<()> {
    on!(db, conn => diesel::delete(notes::table.find(id)).execute(conn))?;
    Ok(())
}
