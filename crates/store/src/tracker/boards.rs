//! Boards of projects, and their lists. A list that was removed stays as a row that nothing shows.

use diesel::prelude::*;
use model::{BoardList, Page, Slice, Time, boards::ListLabel};

use crate::{
    Conn, Result,
    conn::on,
    schema::{board_lists, boards, labels},
    times::to_micros,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = board_lists)]
struct ListRow {
    id: i64,
    position: i64,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = labels)]
struct LabelRow {
    id: i64,
    title: String,
    color: String,
    description: Option<String>,
}

fn to_list((list, label): (ListRow, LabelRow)) -> BoardList {
    let ListRow { id, position } = list;
    let LabelRow { id: label_id, title, color, description } = label;
    BoardList { id, label: ListLabel { id: label_id, title, color, description }, position }
}

/// The lists of a board that were not removed, without an order.
macro_rules! lists_of {
    ($board:expr) => {
        board_lists::table.filter(board_lists::board_id.eq($board)).filter(board_lists::deleted_at.is_null())
    };
}

/// The number of the board of a project.
pub fn id_of(db: &mut Conn, project: i64) -> Result<Option<i64>> {
    Ok(on!(db, conn => boards::table
        .filter(boards::project_id.eq(project))
        .select(boards::id)
        .first(conn)
        .optional())?)
}

/// Keeps everybody else from arranging a board while the transaction lasts; SQLite has one writer anyway.
pub fn hold(db: &mut Conn, board: i64) -> Result<()> {
    if let Conn::Pg(conn) = db {
        boards::table.find(board).select(boards::id).for_update().first::<i64>(conn).optional()?;
    }
    Ok(())
}

/// A page of the lists of a board, in their order.
pub fn lists(db: &mut Conn, board: i64, page: Page) -> Result<Slice<BoardList>> {
    let total = count(db, board)?;
    let rows: Vec<(ListRow, LabelRow)> = on!(db, conn => lists_of!(board)
        .inner_join(labels::table)
        .order(board_lists::position)
        .limit(page.size)
        .offset(page.offset())
        .select((ListRow::as_select(), LabelRow::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_list).collect(), total, page })
}

/// How many lists a board has.
pub fn count(db: &mut Conn, board: i64) -> Result<i64> {
    Ok(on!(db, conn => lists_of!(board).count().get_result(conn))?)
}

/// One list of a board.
pub fn list(db: &mut Conn, board: i64, id: i64) -> Result<Option<BoardList>> {
    let row: Option<(ListRow, LabelRow)> = on!(db, conn => lists_of!(board)
        .filter(board_lists::id.eq(id))
        .inner_join(labels::table)
        .select((ListRow::as_select(), LabelRow::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_list))
}

/// The list of a board that shows the issues of a label.
pub fn list_of_label(db: &mut Conn, board: i64, label: i64) -> Result<Option<BoardList>> {
    let row: Option<(ListRow, LabelRow)> = on!(db, conn => lists_of!(board)
        .filter(board_lists::label_id.eq(label))
        .inner_join(labels::table)
        .select((ListRow::as_select(), LabelRow::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_list))
}

/// Adds a list at a position; says its number.
pub fn insert(db: &mut Conn, board: i64, label: i64, position: i64, now: Time) -> Result<i64> {
    Ok(on!(db, conn => diesel::insert_into(board_lists::table)
        .values((
            board_lists::board_id.eq(board),
            board_lists::label_id.eq(label),
            board_lists::position.eq(position),
            board_lists::created_at.eq(to_micros(now)),
        ))
        .returning(board_lists::id)
        .get_result(conn))?)
}

/// Moves a list of a board to another position; those in between make room.
pub fn place(db: &mut Conn, board: i64, list: &BoardList, position: i64) -> Result<()> {
    let old = list.position;
    if position > old {
        shift(db, board, old + 1, position, -1)?;
    } else {
        shift(db, board, position, old - 1, 1)?;
    }
    on!(db, conn => diesel::update(board_lists::table.find(list.id))
        .set(board_lists::position.eq(position))
        .execute(conn))?;
    Ok(())
}

/// Takes a list off its board; those after it close up.
pub fn remove(db: &mut Conn, board: i64, list: &BoardList, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(board_lists::table.find(list.id))
        .set(board_lists::deleted_at.eq(to_micros(now)))
        .execute(conn))?;
    shift(db, board, list.position + 1, i64::MAX, -1)
}

/// Moves the lists from one position to another by a step.
fn shift(db: &mut Conn, board: i64, first: i64, last: i64, step: i64) -> Result<()> {
    on!(db, conn => diesel::update(lists_of!(board).filter(board_lists::position.between(first, last)))
        .set(board_lists::position.eq(board_lists::position + step))
        .execute(conn))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use diesel_migrations::{EmbeddedMigrations, MigrationHarness as _, embed_migrations};
    use model::{
        Visibility,
        groups::NewGroup,
        projects::{NewProject, Seed},
    };

    use super::*;
    use crate::{Database, groups, projects};

    const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
    /// How many migrations there were before boards came.
    const BEFORE: usize = 4;

    fn project(db: &mut Conn, name: &str, namespace: i64) -> i64 {
        let new = NewProject { name: name.to_owned(), ..NewProject::default() };
        let seed = Seed(vec![7; 16]);
        projects::insert(db, &new, namespace, 1, Visibility::Public, &seed, Time::UNIX_EPOCH).expect("a project")
    }

    #[test]
    fn a_project_from_before_there_were_boards_gets_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = Database::sqlite(folder.path().join("test.sqlite3"));
        let mut db = database.connect_writer().expect("a connection");
        let Conn::Sqlite(conn) = &mut db else { panic!("not SQLite") };
        for _ in 0..BEFORE {
            conn.run_next_migration(MIGRATIONS).expect("migrated");
        }
        let group = NewGroup {
            name: "acme".into(),
            path: "acme".into(),
            description: String::new(),
            visibility: Visibility::Public,
            lfs_enabled: None,
            request_access_enabled: false,
        };
        let group = groups::insert(&mut db, &group, None, Time::UNIX_EPOCH).expect("a group");
        let old = project(&mut db, "old", group);
        database.migrate().expect("migrated");
        let board = id_of(&mut db, old).expect("asked").expect("a board");
        assert_eq!(lists(&mut db, board, Page::whole()).expect("asked").total, 0);
        let new = project(&mut db, "new", group);
        assert_eq!(id_of(&mut db, new).expect("asked"), Some(board + 1));
    }
}
