//! Every difference between the contract and the original server, in one table. Nothing else asks for the dialect.
//!
//! | Where | `spec` (default) | `gitlab` |
//! |---|---|---|
//! | `PUT /users/:id` with a taken e-mail or username | 404 | 409 |
//! | `DELETE /users/:id` of a missing user | 200, `null` | 404 |
//! | `POST /users/:id/keys` and `/users/:id/emails` with invalid or taken data | 404 | 400 |
//! | `PUT /projects/:id` without `name` | 400 | the name stays |
//! | `PUT /projects/:id` with the name it has, by a master | 200 | 403 |
//! | `POST` of a branch | 200 | 201 |
//! | `DELETE` of the default or of a protected branch | 400 | 405 |
//! | `DELETE` of merged branches without the right to push | 403 | 200, nothing is deleted |
//! | comparison with an unknown ref | 404 | 200, empty |
//! | `POST` of a tag that cannot be made | 405 | 400 |
//! | lists of branches, tags, tree entries and contributors | paged, 20 by default | whole list unless `page` or `per_page` is sent |
//! | `POST /projects/fork/:id` without `namespace` | 400 | the caller's namespace |
//! | lists of keys and addresses | paged, 20 by default | whole list unless `page` or `per_page` is sent |
//! | `POST` of a label or of a list of a board | 200 | 201 |
//! | `PUT /projects/:id/labels` needs one of | `new_name`, `color` | those, `description`, `priority` |
//! | `DELETE` of a list of a board | owners | reporters and above |
//! | `DELETE` of a missing hook of a project | 200, `null` | 404 |
//! | `POST /hooks` | an array that holds the hook | the hook |
//! | status in the answer of a retry that tries a pipeline again | `pending` | what its jobs say, `running` as a rule |
//! | lists of labels, boards and their lists, and of hooks of the instance | paged, 20 by default | whole list unless `page` or `per_page` is sent |

use std::{fmt, str::FromStr};

use axum::http::StatusCode;

/// Whose word counts where the contract and the original differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The contract.
    #[default]
    Spec,
    /// The original server, which stock client libraries insist on.
    Gitlab,
}

impl Dialect {
    /// The status of a user update that collides with another user.
    pub fn user_update_conflict(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::NOT_FOUND,
            Self::Gitlab => StatusCode::CONFLICT,
        }
    }

    /// Whether deleting a user who is not there succeeds.
    pub fn deletes_missing_users(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// The status of a key or an address that an administrator cannot add to a user.
    pub fn addition_to_user_refused(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::NOT_FOUND,
            Self::Gitlab => StatusCode::BAD_REQUEST,
        }
    }

    /// Whether deleting merged branches is refused to callers who may not push, instead of deleting nothing.
    pub fn refuses_to_delete_merged_branches(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Whether a comparison with a ref that does not exist is refused, instead of being empty.
    pub fn refuses_unknown_refs_in_comparisons(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Whether an edit of a project has to name it. Who has to send the name may send it without the right to change it.
    pub fn names_project_in_edits(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// The status of a branch that was made.
    pub fn branch_made(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::OK,
            Self::Gitlab => StatusCode::CREATED,
        }
    }

    /// The status of a branch that must not be removed.
    pub fn branch_kept(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::BAD_REQUEST,
            Self::Gitlab => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    /// The status of a tag that cannot be made.
    pub fn tag_refused(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::METHOD_NOT_ALLOWED,
            Self::Gitlab => StatusCode::BAD_REQUEST,
        }
    }

    /// Whether a fork has to be told where it goes.
    pub fn names_namespace_of_forks(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// The status of a label that was made.
    pub fn label_made(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::OK,
            Self::Gitlab => StatusCode::CREATED,
        }
    }

    /// The parameters of which an edit of a label has to bring at least one.
    pub fn needed_in_label_edits(self) -> &'static [&'static str] {
        match self {
            Self::Spec => &["new_name", "color"],
            Self::Gitlab => &["new_name", "color", "description", "priority"],
        }
    }

    /// The status of a list that was added to a board.
    pub fn board_list_made(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::OK,
            Self::Gitlab => StatusCode::CREATED,
        }
    }

    /// Whether only owners take lists off a board, and not everybody who may arrange it.
    pub fn leaves_board_lists_to_owners(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Whether deleting a hook of a project that is not there succeeds.
    pub fn deletes_missing_hooks(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Whether a hook that was added to the instance is shown in a list of its own.
    pub fn lists_new_system_hooks(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Whether a pipeline that is tried again is called pending in the answer, whatever it is.
    pub fn calls_retried_pipelines_pending(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Whether lists that are short by nature are paged even if nobody asked for a page.
    pub fn pages_short_lists(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "spec" => Ok(Self::Spec),
            "gitlab" => Ok(Self::Gitlab),
            _ => Err(format!("the dialect is spec or gitlab, not {word}")),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spec => "spec",
            Self::Gitlab => "gitlab",
        })
    }
}
