//! The board of a project, and its lists.

use model::{Board, BoardList, Page, Project, Slice, Violations};

use crate::{Ability, Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx};

/// The board of a project with its lists; as a list, because others know projects with more than one.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<Board>> {
    let project = open(tx, project)?;
    let page = *page.get()?;
    let mut boards = Vec::new();
    if let Some(id) = id_of(tx, &project)? {
        boards.push(Board { id, lists: store::boards::lists(tx.db(), id, Page::whole())?.items });
    }
    let total = i64::try_from(boards.len()).unwrap_or(i64::MAX);
    Ok(Slice { items: page.cut(&boards).to_vec(), total, page })
}

/// The lists of a board, in their order.
pub fn lists(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<i64>,
    page: &Unvalidated<Page>,
) -> Result<Slice<BoardList>> {
    let project = open(tx, project)?;
    let (board, page) = (*board.get()?, *page.get()?);
    check_board(tx, &project, board)?;
    Ok(store::boards::lists(tx.db(), board, page)?)
}

/// One list of a board.
pub fn get(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<i64>,
    list: &Unvalidated<i64>,
) -> Result<BoardList> {
    let project = open(tx, project)?;
    let (board, list) = (*board.get()?, *list.get()?);
    check_board(tx, &project, board)?;
    store::boards::list(tx.db(), board, list)?.ok_or(Error::NoSuchRow)
}

/// Adds a list for a label, after all others. Whether there is such a label is told before whether the caller may do this.
pub fn create(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<i64>,
    label: &Unvalidated<i64>,
) -> Result<BoardList> {
    let project = open(tx, project)?;
    let (board, label) = (*board.get()?, *label.get()?);
    check_board(tx, &project, board)?;
    if !store::labels::is_there(tx.db(), project.id, label)? {
        return Err(Error::Refused("Label not found!".to_owned()));
    }
    tx.may_to(&project, ProjectAbility::AdministerBoards)?;
    store::boards::hold(tx.db(), board)?;
    if store::boards::list_of_label(tx.db(), board, label)?.is_some() {
        return Err(Violations::one("label_id", "has already been taken").into());
    }
    let (position, now) = (store::boards::count(tx.db(), board)?, tx.now());
    let id = store::boards::insert(tx.db(), board, label, position, now)?;
    store::boards::list(tx.db(), board, id)?.ok_or(Error::NoSuchRow)
}

/// Moves a list to another position. Whether there is such a list is told before whether the caller may do this.
pub fn place(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<i64>,
    list: &Unvalidated<i64>,
    position: &Unvalidated<i64>,
) -> Result<BoardList> {
    let project = open(tx, project)?;
    let (board, list, position) = (*board.get()?, *list.get()?, *position.get()?);
    check_board(tx, &project, board)?;
    // Held before it is looked for: between finding and moving nothing else may move it.
    store::boards::hold(tx.db(), board)?;
    let list = store::boards::list(tx.db(), board, list)?.ok_or(Error::NoSuchRow)?;
    tx.may_to(&project, ProjectAbility::AdministerBoards)?;
    let lists = store::boards::count(tx.db(), board)?;
    if position == list.position || !(0..lists).contains(&position) {
        return Err(Error::Refused("List could not be moved!".to_owned()));
    }
    store::boards::place(tx.db(), board, &list, position)?;
    Ok(BoardList { position, ..list })
}

/// Takes a list off a board, and answers what it was. The contract leaves this to owners.
pub fn delete(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<i64>,
    list: &Unvalidated<i64>,
    owners_only: bool,
) -> Result<BoardList> {
    tx.may(Ability::Browse)?;
    let ability = if owners_only { ProjectAbility::RemoveBoardLists } else { ProjectAbility::AdministerBoards };
    let project = tx.open(project, ability)?;
    let (board, list) = (*board.get()?, *list.get()?);
    check_board(tx, &project, board)?;
    store::boards::hold(tx.db(), board)?;
    let list = store::boards::list(tx.db(), board, list)?.ok_or(Error::NoSuchRow)?;
    let now = tx.now();
    store::boards::remove(tx.db(), board, &list, now)?;
    Ok(list)
}

/// Takes the list of a label off the board, because the label goes.
pub(crate) fn forget_label(tx: &mut WriteTx<'_>, project: &Project, label: i64) -> Result<()> {
    let Some(board) = store::boards::id_of(tx.db(), project.id)? else { return Ok(()) };
    store::boards::hold(tx.db(), board)?;
    if let Some(list) = store::boards::list_of_label(tx.db(), board, label)? {
        let now = tx.now();
        store::boards::remove(tx.db(), board, &list, now)?;
    }
    Ok(())
}

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.may(Ability::Browse)?;
    tx.open(project, ProjectAbility::ReadProject)
}

/// The board of a project; where nothing can carry a label, nobody sees one.
fn id_of(tx: &mut ReadTx<'_>, project: &Project) -> Result<Option<i64>> {
    if project.tracks_work() { Ok(store::boards::id_of(tx.db(), project.id)?) } else { Ok(None) }
}

/// Whether a project has this board.
fn check_board(tx: &mut ReadTx<'_>, project: &Project, board: i64) -> Result<()> {
    let own = id_of(tx, project)?;
    if own == Some(board) { Ok(()) } else { Err(Error::not_found("Board")) }
}
