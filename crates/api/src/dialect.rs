//! Every difference between the contract and GitLab 8.14. No other file matches on the dialect.
//!
//! | Where | `spec` (default) | `gitlab` |
//! |---|---|---|
//! | `PUT /users/:id` with a taken email address or username | 404 | 409 |
//! | `DELETE /users/:id` of a missing user | 200, `null` | 404 |
//! | `POST /users/:id/keys` and `/users/:id/emails` with invalid or taken data | 404 | 400 |
//! | `PUT /projects/:id` without `name` | 400 | the name is kept |
//! | `PUT /projects/:id` with its current name, by a master | 200 | 403 |
//! | `POST` of a branch | 200 | 201 |
//! | `DELETE` of the default or of a protected branch | 400 | 405 |
//! | `DELETE` of merged branches without permission to push | 403 | 200, nothing is deleted |
//! | comparison with an unknown ref | 404 | 200, empty |
//! | `POST` of a tag that cannot be created | 405 | 400 |
//! | lists of branches, tags, tree entries and contributors | paginated, 20 by default | whole list unless `page` or `per_page` is sent |
//! | `POST /projects/fork/:id` without `namespace` | 400 | the caller's namespace |
//! | lists of keys and email addresses | paginated, 20 by default | whole list unless `page` or `per_page` is sent |
//! | `POST` of a label or of a board list | 200 | 201 |
//! | `PUT /projects/:id/labels` requires one of | `new_name`, `color` | those, `description`, `priority` |
//! | `DELETE` of a board list | owners | reporters and above |
//! | `DELETE` of a missing project hook | 200, `null` | 404 |
//! | `POST /hooks` | an array that contains the hook | the hook |
//! | status in the response to a pipeline retry that retries jobs | `pending` | derived from its jobs, usually `running` |
//! | lists of labels, boards, board lists and system hooks | paginated, 20 by default | whole list unless `page` or `per_page` is sent |

use std::{fmt, str::FromStr};

use axum::http::StatusCode;

/// Whether the contract or GitLab 8.14 decides where they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Follows the contract.
    #[default]
    Spec,
    /// Follows GitLab 8.14, which stock client libraries require.
    Gitlab,
}

impl Dialect {
    /// Returns the status of a user update that conflicts with another user.
    pub fn user_update_conflict_status(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::NOT_FOUND,
            Self::Gitlab => StatusCode::CONFLICT,
        }
    }

    /// Returns whether deleting a missing user succeeds.
    pub fn deletes_missing_users(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns the status when an administrator cannot add a key or an email address to a user.
    pub fn user_addition_refused_status(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::NOT_FOUND,
            Self::Gitlab => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns whether deleting merged branches without permission to push is refused, instead of deleting nothing.
    pub fn refuses_to_delete_merged_branches(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns whether a comparison with an unknown ref is refused, instead of being empty.
    pub fn refuses_unknown_refs_in_comparisons(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns whether an edit of a project requires its name. If so, sending the current name needs no permission to rename.
    pub fn requires_name_in_project_edits(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns the status of a created branch.
    pub fn branch_created_status(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::OK,
            Self::Gitlab => StatusCode::CREATED,
        }
    }

    /// Returns the status of deleting a default or protected branch.
    pub fn undeletable_branch_status(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::BAD_REQUEST,
            Self::Gitlab => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    /// Returns the status of a tag that cannot be created.
    pub fn tag_refused_status(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::METHOD_NOT_ALLOWED,
            Self::Gitlab => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns whether forking requires a namespace.
    pub fn requires_fork_namespace(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns the status of a created label.
    pub fn label_created_status(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::OK,
            Self::Gitlab => StatusCode::CREATED,
        }
    }

    /// Returns the parameters of which an edit of a label requires at least one.
    pub fn required_in_label_edits(self) -> &'static [&'static str] {
        match self {
            Self::Spec => &["new_name", "color"],
            Self::Gitlab => &["new_name", "color", "description", "priority"],
        }
    }

    /// Returns the status of a created board list.
    pub fn board_list_created_status(self) -> StatusCode {
        match self {
            Self::Spec => StatusCode::OK,
            Self::Gitlab => StatusCode::CREATED,
        }
    }

    /// Returns whether only owners may delete board lists, and not every user who may move them.
    pub fn only_owners_delete_board_lists(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns whether deleting a missing project hook succeeds.
    pub fn deletes_missing_hooks(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns whether the response to creating a system hook is an array.
    pub fn wraps_new_system_hook_in_array(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns whether the response to a pipeline retry always has the status `pending`.
    pub fn reports_retried_pipelines_as_pending(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }

    /// Returns whether short lists are paginated even without `page` or `per_page`.
    pub fn paginates_short_lists(self) -> bool {
        match self {
            Self::Spec => true,
            Self::Gitlab => false,
        }
    }
}

/// A text that names no dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect {0}; choose spec or gitlab")]
pub struct UnknownDialect(String);

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "spec" => Ok(Self::Spec),
            "gitlab" => Ok(Self::Gitlab),
            _ => Err(UnknownDialect(text.to_owned())),
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
