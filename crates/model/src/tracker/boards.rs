//! Boards: issues in columns, one column for each of some labels.

/// The board of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// Number of the board.
    pub id: i64,
    /// Its lists, in their order.
    pub lists: Vec<BoardList>,
}

/// A column of a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardList {
    /// Number of the list.
    pub id: i64,
    /// The label whose issues it shows.
    pub label: ListLabel,
    /// From 0, without gaps.
    pub position: i64,
}

/// A label as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListLabel {
    /// Number of the label.
    pub id: i64,
    /// What it is called.
    pub title: String,
    /// Its color.
    pub color: String,
    /// What it stands for.
    pub description: Option<String>,
}
