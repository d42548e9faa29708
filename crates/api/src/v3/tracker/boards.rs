//! The board of a project, and its lists.

use axum::extract::State;
use forge::{Error, Forge, boards};
use model::{Board, BoardList};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    error::ApiError,
    extract::{BoardNumber, Credentials, InProject, ListNumber},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Done, Made, Reply},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/boards", "Lists the board of a project with its lists", list)
        .get("/projects/{id}/boards/{board_id}/lists", "Lists the lists of a board, in their order", lists)
        .post("/projects/{id}/boards/{board_id}/lists", "Adds a list for a label to a board", create)
        .get("/projects/{id}/boards/{board_id}/lists/{list_id}", "Shows a list of a board", get)
        .put("/projects/{id}/boards/{board_id}/lists/{list_id}", "Moves a list of a board", place)
        .delete("/projects/{id}/boards/{board_id}/lists/{list_id}", "Takes a list off a board", delete)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    paging: Paging,
) -> Reply<Paged<BoardJson>> {
    let page = paging.of_short_list();
    let found = forge.read(caller, move |tx| boards::list(tx, &project, &page)).await?;
    Ok(paging.answer(found.map(BoardJson::from)))
}

async fn lists(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BoardNumber(board): BoardNumber,
    paging: Paging,
) -> Reply<Paged<ListJson>> {
    let page = paging.of_short_list();
    let found = forge.read(caller, move |tx| boards::lists(tx, &project, &board, &page)).await?;
    Ok(paging.answer(found.map(ListJson::from)))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BoardNumber(board): BoardNumber,
    ListNumber(list): ListNumber,
) -> Reply<Done<ListJson>> {
    let list = forge.read(caller, move |tx| boards::get(tx, &project, &board, &list)).await?;
    Ok(Done(list.into()))
}

async fn create(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BoardNumber(board): BoardNumber,
    Params(given): Params<CreateList>,
) -> Reply<Made<ListJson>> {
    let label = given.map(|given| given.0);
    let made = forge.write(caller, move |tx| boards::create(tx, &project, &board, &label)).await;
    Ok(Made(app.dialect().board_list_made(), made.map_err(told_by_boards)?.into()))
}

async fn place(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BoardNumber(board): BoardNumber,
    ListNumber(list): ListNumber,
    Params(given): Params<PlaceList>,
) -> Reply<Done<ListJson>> {
    let position = given.map(|given| given.0);
    let placed = forge.write(caller, move |tx| boards::place(tx, &project, &board, &list, &position)).await;
    Ok(Done(placed.map_err(told_by_boards)?.into()))
}

async fn delete(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    BoardNumber(board): BoardNumber,
    ListNumber(list): ListNumber,
) -> Reply<Done<ListJson>> {
    let owners_only = app.dialect().leaves_board_lists_to_owners();
    let list = forge.write(caller, move |tx| boards::delete(tx, &project, &board, &list, owners_only)).await?;
    Ok(Done(list.into()))
}

/// An error in the words of boards, which wrap what they refuse.
fn told_by_boards(error: Error) -> ApiError {
    match error {
        Error::Refused(text) => ApiError::Wrapped(text),
        other => other.into(),
    }
}

struct CreateList(i64);

impl FromParams for CreateList {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_integer("label_id", "The label whose issues it shows"))
    }
}

struct PlaceList(i64);

impl FromParams for PlaceList {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_integer("position", "Where it shall be, counted from 0"))
    }
}

/// A board.
#[derive(Serialize, JsonSchema)]
struct BoardJson {
    id: i64,
    lists: Vec<ListJson>,
}

impl From<Board> for BoardJson {
    fn from(board: Board) -> Self {
        Self { id: board.id, lists: board.lists.into_iter().map(ListJson::from).collect() }
    }
}

/// A list of a board.
#[derive(Serialize, JsonSchema)]
struct ListJson {
    id: i64,
    label: ListLabelJson,
    position: i64,
}

/// The label of a list.
#[derive(Serialize, JsonSchema)]
struct ListLabelJson {
    id: i64,
    name: String,
    color: String,
    description: Option<String>,
}

impl From<BoardList> for ListJson {
    fn from(list: BoardList) -> Self {
        let BoardList { id, label, position } = list;
        let label =
            ListLabelJson { id: label.id, name: label.title, color: label.color, description: label.description };
        Self { id, label, position }
    }
}
