//! Comments on commits.

use diesel::{prelude::*, sql_types::BigInt};
use model::{
    CommitNote, CommitNoteId, Oid, Page, ProjectId, Slice, Time, UserId,
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
        id: CommitNoteId::new(id),
        project: ProjectId::new(project_id),
        commit: sha.parse().unwrap_or(Oid([0; 20])),
        body,
        author: author.map(Into::into),
        line: path.zip(line).map(|(path, number)| CommitLine { path, number, old }),
        created_at: from_micros(created_at),
    }
}

/// Lists the comments on a commit, oldest first.
pub fn list(db: &mut Conn, project: ProjectId, commit: Oid, page: Page) -> Result<Slice<CommitNote>> {
    let on_commit = || {
        commit_notes::table
            .filter(commit_notes::project_id.eq(project.get()))
            .filter(commit_notes::sha.eq(commit.to_string()))
    };
    let total: i64 = on!(db, conn => on_commit().count().get_result(conn))?;
    let rows: Vec<(Row, Option<SummaryRow>)> = on!(db, conn => on_commit()
        .left_join(users::table)
        .order(commit_notes::id)
        .limit(page.size)
        .offset(page.offset())
        .select((Row::as_select(), Option::<SummaryRow>::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_note).collect(), total: total.into(), page })
}

/// Returns a new id from the sequence of notes on issues: webhook receivers get both kinds and rely on unique ids.
fn next_id(db: &mut Conn) -> Result<i64> {
    let next = Fragment::<BigInt>::new;
    Ok(match db {
        Conn::Sqlite(conn) => {
            // The sequence has no row before the first note.
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

/// Inserts a comment.
pub fn insert(db: &mut Conn, project: ProjectId, author: UserId, new: &NewCommitNote, now: Time) -> Result<CommitNote> {
    let (line, id) = (new.line.as_ref(), next_id(db)?);
    on!(db, conn => diesel::insert_into(commit_notes::table)
        .values((
            commit_notes::id.eq(id),
            commit_notes::project_id.eq(project.get()),
            commit_notes::sha.eq(new.commit.to_string()),
            commit_notes::author_id.eq(author.get()),
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
