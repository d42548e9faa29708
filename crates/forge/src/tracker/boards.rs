//! The board of a project, and its lists.

use model::{Board, BoardId, BoardList, BoardListId, LabelId, Page, Project, Slice, Violations};

use crate::{Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx};

/// Lists the board of a project with its lists; in GitLab, a project can have several boards.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<Board>> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let page = *page.validate()?;
    let mut boards = Vec::new();
    if let Some(id) = id_of(tx, &project)? {
        boards.push(Board { id, lists: store::boards::lists(tx.db(), id, Page::whole())?.items });
    }
    let total = i64::try_from(boards.len()).unwrap_or(i64::MAX);
    Ok(Slice { items: page.slice(&boards).to_vec(), total: total.into(), page })
}

/// Lists the lists of a board by position.
pub fn lists(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<BoardId>,
    page: &Unvalidated<Page>,
) -> Result<Slice<BoardList>> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let (board, page) = (*board.validate()?, *page.validate()?);
    check_board(tx, &project, board)?;
    Ok(store::boards::lists(tx.db(), board, page)?)
}

/// Returns a list of a board.
pub fn get(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<BoardId>,
    list: &Unvalidated<BoardListId>,
) -> Result<BoardList> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let (board, list) = (*board.validate()?, *list.validate()?);
    check_board(tx, &project, board)?;
    store::boards::list(tx.db(), board, list)?.ok_or(Error::NoSuchRow)
}

/// Adds a list for a label at the end of a board. A missing label is reported before a missing permission.
pub fn create(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<BoardId>,
    label: &Unvalidated<LabelId>,
) -> Result<BoardList> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let (board, label) = (*board.validate()?, *label.validate()?);
    check_board(tx.read(), &project, board)?;
    if !store::labels::exists(tx.db(), project.id, label)? {
        return Err(Error::Refused("Label not found!".to_owned()));
    }
    tx.authorize_project(&project, ProjectAbility::AdministerBoards)?;
    store::boards::lock_row(tx.db(), board)?;
    if store::boards::list_of_label(tx.db(), board, label)?.is_some() {
        return Err(Violations::one("label_id", "has already been taken").into());
    }
    let (position, now) = (store::boards::count(tx.db(), board)?, tx.now());
    let id = store::boards::insert(tx.db(), board, label, position, now)?;
    store::boards::list(tx.db(), board, id)?.ok_or(Error::NoSuchRow)
}

/// Moves a list to another position. A missing list is reported before a missing permission.
pub fn move_list(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<BoardId>,
    list: &Unvalidated<BoardListId>,
    position: &Unvalidated<i64>,
) -> Result<BoardList> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let (board, list, position) = (*board.validate()?, *list.validate()?, *position.validate()?);
    check_board(tx.read(), &project, board)?;
    // Locked before the lookup, so that no other transaction moves the list in between.
    store::boards::lock_row(tx.db(), board)?;
    let list = store::boards::list(tx.db(), board, list)?.ok_or(Error::NoSuchRow)?;
    tx.authorize_project(&project, ProjectAbility::AdministerBoards)?;
    let lists = store::boards::count(tx.db(), board)?;
    if position == list.position || !(0..lists).contains(&position) {
        return Err(Error::Refused("List could not be moved!".to_owned()));
    }
    store::boards::move_list(tx.db(), board, &list, position)?;
    Ok(BoardList { position, ..list })
}

/// Removes a list from a board and returns it. The contract requires an owner for this.
pub fn delete(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    board: &Unvalidated<BoardId>,
    list: &Unvalidated<BoardListId>,
    owners_only: bool,
) -> Result<BoardList> {
    let ability = if owners_only { ProjectAbility::RemoveBoardLists } else { ProjectAbility::AdministerBoards };
    let project = tx.project(project, ability)?;
    let (board, list) = (*board.validate()?, *list.validate()?);
    check_board(tx.read(), &project, board)?;
    store::boards::lock_row(tx.db(), board)?;
    let list = store::boards::list(tx.db(), board, list)?.ok_or(Error::NoSuchRow)?;
    let now = tx.now();
    store::boards::remove(tx.db(), board, &list, now)?;
    Ok(list)
}

/// Removes the list of a label that is about to be deleted.
pub(crate) fn remove_list_of_label(tx: &mut WriteTx<'_>, project: &Project, label: LabelId) -> Result<()> {
    let Some(board) = store::boards::id_of(tx.db(), project.id)? else { return Ok(()) };
    store::boards::lock_row(tx.db(), board)?;
    if let Some(list) = store::boards::list_of_label(tx.db(), board, label)? {
        let now = tx.now();
        store::boards::remove(tx.db(), board, &list, now)?;
    }
    Ok(())
}

/// Returns the board of a project; `None` if issues and merge requests are both disabled.
fn id_of(tx: &mut ReadTx<'_>, project: &Project) -> Result<Option<BoardId>> {
    if project.has_tracker() { Ok(store::boards::id_of(tx.db(), project.id)?) } else { Ok(None) }
}

/// Fails unless the project has this board.
fn check_board(tx: &mut ReadTx<'_>, project: &Project, board: BoardId) -> Result<()> {
    let own = id_of(tx, project)?;
    if own == Some(board) { Ok(()) } else { Err(Error::not_found("Board")) }
}
