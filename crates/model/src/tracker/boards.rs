//! Issue boards: each list shows the open issues with one label.

use crate::{BoardId, BoardListId, LabelId};

/// The board of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// The board id.
    pub id: BoardId,
    /// The lists, ordered by position.
    pub lists: Vec<BoardList>,
}

/// A list of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardList {
    /// The list id.
    pub id: BoardListId,
    /// The label of the issues in the list.
    pub label: ListLabel,
    /// The position on the board; positions start at 0 and have no gaps.
    pub position: i64,
}

/// The label of a board list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListLabel {
    /// The label id.
    pub id: LabelId,
    /// The title.
    pub title: String,
    /// The color, as `#` and six hexadecimal digits.
    pub color: String,
    /// The description.
    pub description: Option<String>,
}
