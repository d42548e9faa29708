//! Issue boards and their lists.

use axum::extract::State;
use forge::{Error, boards};
use model::{Board, BoardList, LabelId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::ProjectCx,
    error::ApiError,
    extract::{BoardIdInPath, ListIdInPath},
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{OkJson, Reply, WithStatus},
    routes::Routes,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::IssueBoards)
        .get("/projects/{id}/boards", "List the issue boards of a project with their lists", list)
        .get("/projects/{id}/boards/{board_id}/lists", "List the lists of a board, by position", lists)
        .post("/projects/{id}/boards/{board_id}/lists", "Create a board list for a label", create)
        .get("/projects/{id}/boards/{board_id}/lists/{list_id}", "Get a board list", get)
        .put("/projects/{id}/boards/{board_id}/lists/{list_id}", "Move a board list", move_list)
        .delete("/projects/{id}/boards/{board_id}/lists/{list_id}", "Delete a board list", delete)
}

async fn list(cx: ProjectCx, paging: Paging) -> Reply<Paged<BoardJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx, project| {
        let found = boards::list(tx, project, &page)?;
        Ok(paging.reply(found, BoardJson::from))
    });
    Ok(reply.await?)
}

async fn lists(cx: ProjectCx, BoardIdInPath(board): BoardIdInPath, paging: Paging) -> Reply<Paged<ListJson>> {
    let page = paging.page_of_short_list();
    let reply = cx.read_list(move |tx, project| {
        let found = boards::lists(tx, project, &board, &page)?;
        Ok(paging.reply(found, ListJson::from))
    });
    Ok(reply.await?)
}

async fn get(
    cx: ProjectCx,
    BoardIdInPath(board): BoardIdInPath,
    ListIdInPath(list): ListIdInPath,
) -> Reply<OkJson<ListJson>> {
    let list = cx.read(move |tx, project| boards::get(tx, project, &board, &list)).await?;
    Ok(OkJson(list.into()))
}

async fn create(
    State(app): State<App>,
    cx: ProjectCx,
    BoardIdInPath(board): BoardIdInPath,
    Params(params): Params<CreateList>,
) -> Reply<WithStatus<ListJson>> {
    let label = params.map(|params| params.0);
    let created = cx.write(move |tx, project| boards::create(tx, project, &board, &label)).await;
    Ok(WithStatus(app.dialect().board_list_created_status(), created.map_err(nest_refusal)?.into()))
}

async fn move_list(
    cx: ProjectCx,
    BoardIdInPath(board): BoardIdInPath,
    ListIdInPath(list): ListIdInPath,
    Params(params): Params<MoveList>,
) -> Reply<OkJson<ListJson>> {
    let position = params.map(|params| params.0);
    let moved = cx.write(move |tx, project| boards::move_list(tx, project, &board, &list, &position)).await;
    Ok(OkJson(moved.map_err(nest_refusal)?.into()))
}

async fn delete(
    State(app): State<App>,
    cx: ProjectCx,
    BoardIdInPath(board): BoardIdInPath,
    ListIdInPath(list): ListIdInPath,
) -> Reply<OkJson<ListJson>> {
    let owners_only = app.dialect().only_owners_delete_board_lists();
    let list = cx.write(move |tx, project| boards::delete(tx, project, &board, &list, owners_only)).await?;
    Ok(OkJson(list.into()))
}

/// Converts an error; board endpoints nest the text of a refusal in an object.
fn nest_refusal(error: Error) -> ApiError {
    match error {
        Error::Refused(text) => ApiError::NestedError(text),
        other => other.into(),
    }
}

struct CreateList(LabelId);

impl FromParams for CreateList {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_id("label_id", "The ID of the label"))
    }
}

struct MoveList(i64);

impl FromParams for MoveList {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.required_integer("position", "The new position, starting at 0"))
    }
}

/// An issue board.
#[derive(Serialize, JsonSchema)]
struct BoardJson {
    id: i64,
    lists: Vec<ListJson>,
}

impl From<Board> for BoardJson {
    fn from(board: Board) -> Self {
        Self { id: board.id.get(), lists: board.lists.into_iter().map(ListJson::from).collect() }
    }
}

/// A board list.
#[derive(Serialize, JsonSchema)]
struct ListJson {
    id: i64,
    label: ListLabelJson,
    position: i64,
}

/// The label of a board list.
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
            ListLabelJson { id: label.id.get(), name: label.title, color: label.color, description: label.description };
        Self { id: id.get(), label, position }
    }
}
