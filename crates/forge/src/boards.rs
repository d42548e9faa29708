//! The board of a project, and its lists.

use model::{Board, BoardList, Page, Project, Slice, Violations};

use crate::{Ability, Error, Given, ProjectAbility, ProjectRef, Reader, Result, Writer};

/// The board of a project with its lists; as a list, because others know projects with more than one.
pub fn list(it: &mut Reader<'_>, project: &ProjectRef, page: &Given<Page>) -> Result<Slice<Board>> {
    let project = open(it, project)?;
    let page = *page.get()?;
    let mut boards = Vec::new();
    if let Some(id) = id_of(it, &project)? {
        boards.push(Board { id, lists: store::boards::lists(it.db(), id, Page::whole())?.items });
    }
    let total = i64::try_from(boards.len()).unwrap_or(i64::MAX);
    Ok(Slice { items: page.cut(&boards).to_vec(), total, page })
}

/// The lists of a board, in their order.
pub fn lists(
    it: &mut Reader<'_>,
    project: &ProjectRef,
    board: &Given<i64>,
    page: &Given<Page>,
) -> Result<Slice<BoardList>> {
    let project = open(it, project)?;
    let (board, page) = (*board.get()?, *page.get()?);
    check_board(it, &project, board)?;
    Ok(store::boards::lists(it.db(), board, page)?)
}

/// One list of a board.
pub fn get(it: &mut Reader<'_>, project: &ProjectRef, board: &Given<i64>, list: &Given<i64>) -> Result<BoardList> {
    let project = open(it, project)?;
    let (board, list) = (*board.get()?, *list.get()?);
    check_board(it, &project, board)?;
    store::boards::list(it.db(), board, list)?.ok_or(Error::NoSuchRow)
}

/// Adds a list for a label, after all others. Whether there is such a label is told before whether the caller may do this.
pub fn create(it: &mut Writer<'_>, project: &ProjectRef, board: &Given<i64>, label: &Given<i64>) -> Result<BoardList> {
    let project = open(it, project)?;
    let (board, label) = (*board.get()?, *label.get()?);
    check_board(it, &project, board)?;
    if !store::labels::is_there(it.db(), project.id, label)? {
        return Err(Error::Refused("Label not found!".to_owned()));
    }
    it.may_to(&project, ProjectAbility::AdministerBoards)?;
    store::boards::hold(it.db(), board)?;
    if store::boards::list_of_label(it.db(), board, label)?.is_some() {
        return Err(Violations::one("label_id", "has already been taken").into());
    }
    let (position, now) = (store::boards::count(it.db(), board)?, it.now());
    let id = store::boards::insert(it.db(), board, label, position, now)?;
    store::boards::list(it.db(), board, id)?.ok_or(Error::NoSuchRow)
}

/// Moves a list to another position. Whether there is such a list is told before whether the caller may do this.
pub fn place(
    it: &mut Writer<'_>,
    project: &ProjectRef,
    board: &Given<i64>,
    list: &Given<i64>,
    position: &Given<i64>,
) -> Result<BoardList> {
    let project = open(it, project)?;
    let (board, list, position) = (*board.get()?, *list.get()?, *position.get()?);
    check_board(it, &project, board)?;
    // Held before it is looked for: between finding and moving nothing else may move it.
    store::boards::hold(it.db(), board)?;
    let list = store::boards::list(it.db(), board, list)?.ok_or(Error::NoSuchRow)?;
    it.may_to(&project, ProjectAbility::AdministerBoards)?;
    let lists = store::boards::count(it.db(), board)?;
    if position == list.position || !(0..lists).contains(&position) {
        return Err(Error::Refused("List could not be moved!".to_owned()));
    }
    store::boards::place(it.db(), board, &list, position)?;
    Ok(BoardList { position, ..list })
}

/// Takes a list off a board, and answers what it was. The contract leaves this to owners.
pub fn delete(
    it: &mut Writer<'_>,
    project: &ProjectRef,
    board: &Given<i64>,
    list: &Given<i64>,
    owners_only: bool,
) -> Result<BoardList> {
    it.may(Ability::Browse)?;
    let ability = if owners_only { ProjectAbility::RemoveBoardLists } else { ProjectAbility::AdministerBoards };
    let project = it.open(project, ability)?;
    let (board, list) = (*board.get()?, *list.get()?);
    check_board(it, &project, board)?;
    store::boards::hold(it.db(), board)?;
    let list = store::boards::list(it.db(), board, list)?.ok_or(Error::NoSuchRow)?;
    let now = it.now();
    store::boards::remove(it.db(), board, &list, now)?;
    Ok(list)
}

/// Takes the list of a label off the board, because the label goes.
pub(crate) fn forget_label(it: &mut Writer<'_>, project: &Project, label: i64) -> Result<()> {
    let Some(board) = store::boards::id_of(it.db(), project.id)? else { return Ok(()) };
    store::boards::hold(it.db(), board)?;
    if let Some(list) = store::boards::list_of_label(it.db(), board, label)? {
        let now = it.now();
        store::boards::remove(it.db(), board, &list, now)?;
    }
    Ok(())
}

fn open(it: &mut Reader<'_>, project: &ProjectRef) -> Result<Project> {
    it.may(Ability::Browse)?;
    it.open(project, ProjectAbility::ReadProject)
}

/// The board of a project; where nothing can carry a label, nobody sees one.
fn id_of(it: &mut Reader<'_>, project: &Project) -> Result<Option<i64>> {
    if project.tracks_work() { Ok(store::boards::id_of(it.db(), project.id)?) } else { Ok(None) }
}

/// Whether a project has this board.
fn check_board(it: &mut Reader<'_>, project: &Project, board: i64) -> Result<()> {
    let own = id_of(it, project)?;
    if own == Some(board) { Ok(()) } else { Err(Error::not_found("Board")) }
}
