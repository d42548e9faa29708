//! Notes on issues.

use diesel::prelude::*;
use model::{IssueId, Note, NoteId, Page, ProjectId, Slice, Time, UserId};

use crate::{
    Conn, Result,
    conn::on,
    count_up_to::CountUpTo,
    schema::{notes, users},
    times::{from_micros, to_micros},
    users::SummaryRow,
};

/// A note to insert.
#[derive(Clone, Debug)]
pub struct NewNote<'a> {
    /// The project id.
    pub project: ProjectId,
    /// The issue id.
    pub issue: IssueId,
    /// The author, for a system note the user who made the change.
    pub author: UserId,
    /// The text.
    pub body: &'a str,
    /// Whether this is a system note.
    pub system: bool,
    /// The time of creation.
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
        id: NoteId::new(id),
        issue: IssueId::new(issue_id),
        body,
        author: author.map(Into::into),
        system,
        created_at: from_micros(created_at),
        updated_at: from_micros(updated_at),
    }
}

/// Lists the notes on an issue in order of insertion, system notes included.
pub fn list(db: &mut Conn, issue: IssueId, page: Page) -> Result<Slice<Note>> {
    let of_issue = || notes::table.filter(notes::issue_id.eq(issue.get())).select(notes::id);
    let total = on!(db, conn => CountUpTo::of_list(of_issue(), page).total(conn))?;
    let rows: Vec<(Row, Option<SummaryRow>)> = on!(db, conn => notes::table
        .left_join(users::table)
        .filter(notes::issue_id.eq(issue.get()))
        .order(notes::id)
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_note).collect(), total, page })
}

/// Finds a note on an issue.
pub fn find(db: &mut Conn, issue: IssueId, id: NoteId) -> Result<Option<Note>> {
    let row: Option<(Row, Option<SummaryRow>)> = on!(db, conn => notes::table
        .left_join(users::table)
        .filter(notes::issue_id.eq(issue.get()))
        .filter(notes::id.eq(id.get()))
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_note))
}

/// Inserts a note and returns its id.
pub fn insert(db: &mut Conn, new: &NewNote<'_>) -> Result<NoteId> {
    let id = on!(db, conn => diesel::insert_into(notes::table)
        .values((
            notes::project_id.eq(new.project.get()),
            notes::issue_id.eq(new.issue.get()),
            notes::author_id.eq(new.author.get()),
            notes::body.eq(new.body),
            notes::system.eq(new.system),
            notes::created_at.eq(to_micros(new.now)),
            notes::updated_at.eq(to_micros(new.now)),
        ))
        .returning(notes::id)
        .get_result(conn))?;
    Ok(NoteId::new(id))
}

/// Updates the text of a note.
pub fn update(db: &mut Conn, id: NoteId, body: &str, by: UserId, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(notes::table.find(id.get()))
        .set((notes::body.eq(body), notes::updated_by_id.eq(by.get()), notes::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Deletes a note; its event is deleted by the foreign key.
pub fn delete(db: &mut Conn, id: NoteId) -> Result<()> {
    on!(db, conn => diesel::delete(notes::table.find(id.get())).execute(conn))?;
    Ok(())
}
