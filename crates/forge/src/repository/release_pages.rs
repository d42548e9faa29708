//! What pages show of releases, and how they change them.

use model::{Page, RefName, Slice, objects::Tag, releases::Release};

use crate::{
    ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    browse::InProject,
    tags::{self, TagWithRelease},
};

/// A page of releases.
pub struct ReleaseList {
    /// The releases with their tags, newest first. The tag is missing if it was deleted by other means than the API.
    pub releases: Slice<(Release, Option<Tag>)>,
    /// Whether the visitor may change them.
    pub can_edit: bool,
}

/// Lists the releases, newest first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<InProject<ReleaseList>> {
    let project = tx.project(project, ProjectAbility::DownloadCode)?;
    let page = *page.validate()?;
    let Slice { items, total, page } = store::releases::list(tx.db(), project.id, page)?;
    let repository = tx.repository(&project)?;
    let mut releases = Vec::with_capacity(items.len());
    for release in items {
        let tag = match &repository {
            Some(repository) => {
                let found = RefName::tag(&release.tag_name).and_then(|name| repository.refs().find(&name));
                found.map(|tag| repository.tag(tag)).transpose()?
            }
            None => None,
        };
        releases.push((release, tag));
    }
    let can_edit = tx.can(&project, ProjectAbility::PushCode);
    Ok(InProject { project, value: ReleaseList { releases: Slice { items: releases, total, page }, can_edit } })
}

/// Returns a tag with its release for a form that changes the release.
pub fn open_for_editing(tx: &mut ReadTx<'_>, project: &ProjectRef, tag: &str) -> Result<InProject<TagWithRelease>> {
    let value = tags::get(tx, project, tag)?;
    let project = tx.project(project, ProjectAbility::PushCode)?;
    Ok(InProject { project, value })
}
