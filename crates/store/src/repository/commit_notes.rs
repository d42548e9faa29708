//! What people say about commits.

use diesel::{prelude::*, sql_types::BigInt};
use model::{
    CommitNote, Oid, Page, Slice, Time,
    commit_notes::{CommitLine, NewCommitNote},
};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{commit_notes, users},
    times::{from_micros, to_micros},
    users::SummaryRow,
};

const OLD: &str = "old";
const NEW: &str = "new";

#[derive(Queryable, Selectable)]
#[diesel(table_name = commit_notes)]
pub(crate) struct Row {
    id: i64,
    project_id: i64,
    sha: String,
    body: String,
    path: Option<String>,
    line: Option<i64>,
    line_type: Option<String>,
    created_at: i64,
}

pub(crate) fn to_note((row, author): (Row, Option<SummaryRow>)) -> CommitNote {
    let Row { id, project_id, sha, body, path, line, line_type, created_at } = row;
    let old = line_type.as_deref() == Some(OLD);
    CommitNote {
        id,
        project: project_id,
        commit: sha.parse().unwrap_or(Oid([0; 20])),
        body,
        author: author.map(Into::into),
        line: path.zip(line).map(|(path, number)| CommitLine { path, number, old }),
        created_at: from_micros(created_at),
    }
}

/// The comments on a commit in the order in which they were written.
pub fn list(db: &mut Conn, project: i64, commit: Oid, page: Page) -> Result<Slice<CommitNote>> {
    let on_commit = || {
        commit_notes::table
            .filter(commit_notes::project_id.eq(project))
            .filter(commit_notes::sha.eq(commit.to_string()))
    };
    let total = on!(db, conn => on_commit().count().get_result(conn))?;
    let rows: Vec<(Row, Option<SummaryRow>)> = on!(db, conn => on_commit()
        .left_join(users::table)
        .order(commit_notes::id)
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_note).collect(), total, page })
}

/// Comments on commits and notes on issues are numbered together: whoever is told of both tells them apart by number.
fn next_number(db: &mut Conn) -> Result<i64> {
    let next = Fragment::<BigInt>::new;
    Ok(match db {
        Conn::Sqlite(conn) => {
            // There is no number before the first note.
            next(
                "INSERT INTO sqlite_sequence (name, seq) SELECT 'notes', 0 \
                  WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'notes')",
            )
            .execute(conn)?;
            next("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'notes'").execute(conn)?;
            diesel::select(next("(SELECT seq FROM sqlite_sequence WHERE name = 'notes')")).get_result(conn)?
        }
        Conn::Pg(conn) => diesel::select(next("nextval(pg_get_serial_sequence('notes', 'id'))")).get_result(conn)?,
    })
}

/// Adds a comment.
pub fn insert(db: &mut Conn, project: i64, author: i64, new: &NewCommitNote, now: Time) -> Result<CommitNote> {
    let (line, id) = (new.line.as_ref(), next_number(db)?);
    on!(db, conn => diesel::insert_into(commit_notes::table)
        .values((
            commit_notes::id.eq(id),
            commit_notes::project_id.eq(project),
            commit_notes::sha.eq(new.commit.to_string()),
            commit_notes::author_id.eq(author),
            commit_notes::body.eq(&new.body),
            commit_notes::path.eq(line.map(|line| &line.path)),
            commit_notes::line.eq(line.map(|line| line.number)),
            commit_notes::line_type.eq(line.map(|line| if line.old { OLD } else { NEW })),
            commit_notes::created_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    let row = on!(db, conn => commit_notes::table
        .left_join(users::table)
        .filter(commit_notes::id.eq(id))
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .first(conn))?;
    Ok(to_note(row))
}
