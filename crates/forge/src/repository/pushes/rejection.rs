//! Why a ref change is rejected.

use model::{Oid, RefKind};

/// Why a ref change is rejected; the text is shown to the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefRejection {
    /// The caller may not push to the protected branch.
    #[error("You are not allowed to push code to protected branches on this project.")]
    ProtectedBranch,
    /// The change of a protected branch is not a fast-forward.
    #[error("You are not allowed to force push code to a protected branch on this project.")]
    ProtectedForcePush,
    /// A protected branch cannot be deleted.
    #[error("You are not allowed to delete protected branches from this project.")]
    ProtectedDelete,
    /// The default branch cannot be deleted.
    #[error("the default branch cannot be deleted; choose another default branch first")]
    DefaultBranchDelete,
    /// The caller may not change existing tags.
    #[error("You are not allowed to change existing tags on this project.")]
    TagChange,
    /// Another change of the same push is rejected.
    #[error("another ref of this push was refused")]
    OtherRef,
    /// The ref has another target than the client expects.
    #[error("the ref has changed; fetch first")]
    Stale,
    /// The ref does not exist.
    #[error("the ref does not exist")]
    MissingRef,
    /// The ref already has the new target.
    #[error("the ref is already up to date")]
    UpToDate,
    /// Only the server writes to this ref.
    #[error("the ref is reserved")]
    Reserved,
    /// The name of a new ref looks like an object id.
    #[error("{}", match .0 {
        RefKind::Tag => "You cannot create a tag with a 40-character hexadecimal tag name.",
        RefKind::Branch | RefKind::Other => {
            "You cannot create a branch with a 40-character hexadecimal branch name."
        }
    })]
    NameLikeOid(RefKind),
    /// The name of a new ref is a folder of this ref, or below it.
    #[error("the name conflicts with {0}")]
    NameConflict(String),
    /// The push lists the ref twice.
    #[error("the ref is listed twice in this push")]
    Duplicate,
    /// The new target does not exist.
    #[error("the target object does not exist")]
    MissingObject,
    /// A pushed object links to this object, which was not sent and is not reachable.
    #[error("missing necessary objects: {0} is not part of the repository")]
    MissingLink(Oid),
    /// The new target of a branch is not a commit.
    #[error("a branch must point to a commit")]
    NotACommit,
    /// The list of all refs would become too long.
    #[error("too many branches and tags in this project; delete some first")]
    TooManyRefs,
    /// A limit was exceeded while refs were updated; holds the message.
    #[error("{0}")]
    LimitExceeded(String),
}

impl RefRejection {
    /// Returns whether a concurrent change may be the cause, so that a retry may succeed.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self, Self::Stale | Self::MissingRef)
    }
}
