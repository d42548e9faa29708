//! Boards of projects and their lists; removed lists are soft-deleted.

use diesel::prelude::*;
use model::{BoardId, BoardList, BoardListId, LabelId, Page, ProjectId, Slice, Time, boards::ListLabel};

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
    let label = ListLabel { id: LabelId::new(label_id), title, color, description };
    BoardList { id: BoardListId::new(id), label, position }
}

/// Selects the lists of a board that are not deleted, in no particular order.
macro_rules! lists_of {
    ($board:expr) => {
        board_lists::table.filter(board_lists::board_id.eq($board.get())).filter(board_lists::deleted_at.is_null())
    };
}

/// Returns the id of the board of a project.
pub fn id_of(db: &mut Conn, project: ProjectId) -> Result<Option<BoardId>> {
    let id: Option<i64> = on!(db, conn => boards::table
        .filter(boards::project_id.eq(project.get()))
        .select(boards::id)
        .first(conn)
        .optional())?;
    Ok(id.map(BoardId::new))
}

/// Locks a board until the end of the transaction; on SQLite, where there is one writer at a time, does nothing.
pub fn lock_row(db: &mut Conn, board: BoardId) -> Result<()> {
    if let Conn::Pg(conn) = db {
        boards::table.find(board.get()).select(boards::id).for_update().first::<i64>(conn).optional()?;
    }
    Ok(())
}

/// Lists the lists of a board by position.
pub fn lists(db: &mut Conn, board: BoardId, page: Page) -> Result<Slice<BoardList>> {
    let total = count(db, board)?;
    let rows: Vec<(ListRow, LabelRow)> = on!(db, conn => lists_of!(board)
        .inner_join(labels::table)
        .order(board_lists::position)
        .limit(page.size)
        .offset(page.offset())
        .select((ListRow::as_select(), LabelRow::as_select()))
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(to_list).collect(), total: total.into(), page })
}

/// Returns the number of lists of a board.
pub fn count(db: &mut Conn, board: BoardId) -> Result<i64> {
    Ok(on!(db, conn => lists_of!(board).count().get_result(conn))?)
}

/// Finds a list of a board.
pub fn list(db: &mut Conn, board: BoardId, id: BoardListId) -> Result<Option<BoardList>> {
    let row: Option<(ListRow, LabelRow)> = on!(db, conn => lists_of!(board)
        .filter(board_lists::id.eq(id.get()))
        .inner_join(labels::table)
        .select((ListRow::as_select(), LabelRow::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_list))
}

/// Finds the list of a board for a label.
pub fn list_of_label(db: &mut Conn, board: BoardId, label: LabelId) -> Result<Option<BoardList>> {
    let row: Option<(ListRow, LabelRow)> = on!(db, conn => lists_of!(board)
        .filter(board_lists::label_id.eq(label.get()))
        .inner_join(labels::table)
        .select((ListRow::as_select(), LabelRow::as_select()))
        .first(conn)
        .optional())?;
    Ok(row.map(to_list))
}

/// Inserts a list at a position and returns its id.
pub fn insert(db: &mut Conn, board: BoardId, label: LabelId, position: i64, now: Time) -> Result<BoardListId> {
    let id = on!(db, conn => diesel::insert_into(board_lists::table)
        .values((
            board_lists::board_id.eq(board.get()),
            board_lists::label_id.eq(label.get()),
            board_lists::position.eq(position),
            board_lists::created_at.eq(to_micros(now)),
        ))
        .returning(board_lists::id)
        .get_result(conn))?;
    Ok(BoardListId::new(id))
}

/// Moves a list to another position and shifts the lists in between.
pub fn move_list(db: &mut Conn, board: BoardId, list: &BoardList, position: i64) -> Result<()> {
    let old = list.position;
    if position > old {
        shift(db, board, old + 1, position, -1)?;
    } else {
        shift(db, board, position, old - 1, 1)?;
    }
    on!(db, conn => diesel::update(board_lists::table.find(list.id.get()))
        .set(board_lists::position.eq(position))
        .execute(conn))?;
    Ok(())
}

/// Soft-deletes a list and shifts the lists after it.
pub fn remove(db: &mut Conn, board: BoardId, list: &BoardList, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(board_lists::table.find(list.id.get()))
        .set(board_lists::deleted_at.eq(to_micros(now)))
        .execute(conn))?;
    shift(db, board, list.position + 1, i64::MAX, -1)
}

/// Adds `step` to the positions between `first` and `last`.
fn shift(db: &mut Conn, board: BoardId, first: i64, last: i64, step: i64) -> Result<()> {
    on!(db, conn => diesel::update(lists_of!(board).filter(board_lists::position.between(first, last)))
        .set(board_lists::position.eq(board_lists::position + step))
        .execute(conn))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use diesel_migrations::{EmbeddedMigrations, MigrationHarness as _, embed_migrations};
    use model::{
        NamespaceId, UserId, Visibility,
        groups::NewGroup,
        projects::{NewProject, TokenSeed},
    };

    use super::*;
    use crate::{Database, groups, projects};

    const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
    /// The number of migrations before the one that adds boards.
    const MIGRATIONS_BEFORE_BOARDS: usize = 4;

    fn project(db: &mut Conn, name: &str, namespace: NamespaceId) -> ProjectId {
        let new = NewProject { name: name.to_owned(), ..NewProject::default() };
        let seed = TokenSeed(vec![7; 16]);
        projects::insert(db, &new, namespace, UserId::new(1), Visibility::Public, &seed, Time::UNIX_EPOCH)
            .expect("a project")
    }

    #[test]
    fn the_migration_adds_a_board_to_existing_projects() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = Database::sqlite(folder.path().join("test.sqlite3"));
        let mut db = database.connect_writer().expect("a connection");
        let Conn::Sqlite(conn) = &mut db else { panic!("not SQLite") };
        for _ in 0..MIGRATIONS_BEFORE_BOARDS {
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
        assert_eq!(lists(&mut db, board, Page::whole()).expect("asked").total, model::Total::Exact(0));
        let new = project(&mut db, "new", group);
        assert_eq!(id_of(&mut db, new).expect("asked"), Some(BoardId::new(board.get() + 1)));
    }
}
