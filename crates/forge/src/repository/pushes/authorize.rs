//! Step 4 of a push, first part: checks permissions.

use model::{Project, ProjectId, Protection, PushLevel, RefChange, RefKind, Role};

use super::{
    PushSource, RefRejection,
    inspect::{InspectedChange, InspectedPush},
};
use crate::{Error, ProjectAbility, ProjectRef, Result, WriteTx};

const PUSH_FORBIDDEN: &str = "You are not allowed to push code to this project.";

/// Checks the permissions for each change; returns why it is rejected, or `None`.
///
/// A forbidden change rejects all of them.
pub(super) fn authorize(
    tx: &mut WriteTx<'_>,
    project: ProjectId,
    inspected: &InspectedPush,
    atomic: bool,
    source: PushSource,
) -> Result<(Project, Vec<Option<RefRejection>>)> {
    let project = tx.project(&ProjectRef::Id(project), ProjectAbility::PushCode).map_err(|error| match error {
        Error::Forbidden(None) => Error::forbidden(PUSH_FORBIDDEN),
        other => other,
    })?;
    let protections = store::protections::of_project(tx.db(), project.id)?;
    let role = tx.read().project_role(&project);
    let mut rejections: Vec<Option<RefRejection>> = Vec::with_capacity(inspected.changes.len());
    let mut forbidden = false;
    for one in &inspected.changes {
        let rejection = check_ref_permission(inspected, one, &protections, role, source);
        forbidden |= rejection.is_some();
        rejections.push(rejection.or_else(|| one.rejection.clone()));
    }
    if forbidden || atomic && rejections.iter().any(Option::is_some) {
        for rejection in &mut rejections {
            rejection.get_or_insert(RefRejection::OtherRef);
        }
    }
    Ok((project, rejections))
}

/// Returns why the caller may not make a change; `None` if it is allowed.
fn check_ref_permission(
    inspected: &InspectedPush,
    one: &InspectedChange,
    protections: &[Protection],
    role: Option<Role>,
    source: PushSource,
) -> Option<RefRejection> {
    let RefChange { name, old, new } = &one.change;
    let is_master = role >= Some(Role::Master);
    match name.kind() {
        RefKind::Branch => {
            let branch = name.short();
            let mut rules = protections.iter().filter(|rule| rule.matches(branch)).peekable();
            let is_protected = rules.peek().is_some();
            let may_push = !is_protected
                || rules.any(|rule| match rule.push {
                    PushLevel::NoOne => false,
                    PushLevel::Developers => role >= Some(Role::Developer),
                    PushLevel::Masters => is_master,
                });
            if new.is_none() && is_protected {
                Some(RefRejection::ProtectedDelete)
            } else if new.is_none() && inspected.default_branch.as_ref() == Some(name) {
                Some(RefRejection::DefaultBranchDelete)
            } else if is_protected && one.forced {
                Some(RefRejection::ProtectedForcePush)
            } else if !may_push || inspected.was_empty && !is_master {
                // The first push creates the default branch, which is protected.
                Some(RefRejection::ProtectedBranch)
            } else {
                None
            }
        }
        // Only masters may write to a repository without a default branch.
        RefKind::Tag if inspected.was_empty && !is_master => Some(RefRejection::ProtectedBranch),
        RefKind::Tag => (old.is_some() && !is_master && source == PushSource::Git).then_some(RefRejection::TagChange),
        RefKind::Other => None,
    }
}
