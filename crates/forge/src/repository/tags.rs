//! Tags of a repository and their releases.

use git::{CommitListBudget, Repository};
use model::{
    Oid, Page, Project, ProjectId, RefChange, RefName, Slice, Violations,
    objects::{Signature, Tag},
    releases::Release,
};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, blocking,
    branches::{conflicts_with_any, count, find_by_name, push, push_with_retry, require_accepted},
    pushes::{self, Push, PushSource},
};

/// A tag with its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagWithRelease {
    /// The tag.
    pub tag: Tag,
    /// The release, if any.
    pub release: Option<Release>,
}

/// Parameters of a new tag.
#[derive(Clone, Debug)]
pub struct NewTag {
    /// The name.
    pub name: String,
    /// The target: a branch, tag or commit.
    pub target: String,
    /// The annotation; without it, the tag is lightweight.
    pub message: Option<String>,
    /// The description of the release, if any.
    pub release: Option<String>,
}

/// Lists the tags by name, descending.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<TagWithRelease>> {
    let project = tx.project(project, ProjectAbility::DownloadCode)?;
    list_in(tx, &project, "", *page.validate()?)
}

/// Lists the tags whose names contain a text, of a project whose code the caller may read.
pub(crate) fn list_in(
    tx: &mut ReadTx<'_>,
    project: &Project,
    search: &str,
    page: Page,
) -> Result<Slice<TagWithRelease>> {
    let Some(repository) = tx.repository(project)? else { return Ok(Slice::empty(page)) };
    let refs = repository.refs();
    let tags = find_by_name(refs.tags.iter().rev(), search);
    let shown = page.slice(&tags);
    let names: Vec<&str> = shown.iter().map(|tag| tag.name.short()).collect();
    let mut releases = store::releases::find_many(tx.db(), project.id, &names)?;
    let mut items = Vec::new();
    let mut listed = CommitListBudget::default();
    for tag in shown {
        let release = releases.iter().position(|release| release.tag_name == tag.name.short());
        let release = release.map(|at| releases.swap_remove(at));
        let mut tag = repository.tag(tag)?;
        tag.commit.iter_mut().for_each(|commit| listed.truncate(commit));
        tag.message.iter_mut().for_each(|message| listed.truncate_message(message));
        items.push(TagWithRelease { tag, release });
    }
    Ok(Slice { items, total: count(tags.len()).into(), page })
}

/// Returns a tag.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, name: &str) -> Result<TagWithRelease> {
    let project = tx.project(project, ProjectAbility::DownloadCode)?;
    let missing = || Error::not_found("Tag");
    let repository = tx.repository(&project)?.ok_or_else(missing)?;
    let refs = repository.refs();
    let tag = RefName::tag(name).and_then(|name| refs.find(&name)).ok_or_else(missing)?;
    let release = store::releases::find(tx.db(), project.id, name)?;
    Ok(TagWithRelease { tag: repository.tag(tag)?, release })
}

/// A new tag whose parameters were checked.
struct CheckedTag {
    project: ProjectId,
    name: RefName,
    target: Oid,
    annotation: Option<(String, Signature)>,
    release: Option<String>,
}

/// Creates a tag, annotated if there is a message, with a release if there is a description.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    new: Unvalidated<NewTag>,
) -> Result<TagWithRelease> {
    let check = move |tx: &mut ReadTx<'_>| check_new_tag(tx, &project, &new);
    let CheckedTag { project, name, target, annotation, release } = forge.read(caller.clone(), check.clone()).await?;
    if let Err(error) = create_ref(forge, &caller, project, &name, target, annotation).await {
        if matches!(&error, Error::RefRejected(rejection) if rejection.is_retryable()) {
            // Reports the same error as a request that comes after the concurrent one.
            forge.read(caller, check).await?;
        }
        return Err(error);
    }
    if let Some(text) = release {
        let tag = name.clone();
        forge.write(caller.clone(), move |tx| upsert_release(tx, project, tag.short(), &text)).await?;
    }
    forge.read(caller, move |tx| get(tx, &ProjectRef::Id(project), name.short())).await
}

/// Creates the ref of a tag, with a tag object if it is annotated.
async fn create_ref(
    forge: &Forge,
    caller: &Caller,
    project: ProjectId,
    name: &RefName,
    target: Oid,
    annotation: Option<(String, Signature)>,
) -> Result<()> {
    match annotation {
        None => {
            let change = RefChange { name: name.clone(), old: None, new: Some(target) };
            push(forge, caller.clone(), project, change).await
        }
        Some((message, tagger)) => {
            let (forge_handle, tag, storage) = (forge.clone(), name.clone(), forge.storage_of(project).await?);
            let (incoming, id) = blocking::spawn(move || {
                let incoming = pushes::create_quarantine(&forge_handle, &storage)?;
                let id = incoming.write_tag(&tag, target, &message, &tagger)?;
                Ok((incoming, id))
            })
            .await?;
            let changes = vec![RefChange { name: name.clone(), old: None, new: Some(id) }];
            let push = Push { changes, incoming: Some(incoming), atomic: true, options: Vec::new() };
            require_accepted(pushes::push(forge, caller.clone(), project, push, PushSource::Api).await?)
        }
    }
}

fn check_new_tag(tx: &mut ReadTx<'_>, project: &ProjectRef, new: &Unvalidated<NewTag>) -> Result<CheckedTag> {
    let project = tx.project(project, ProjectAbility::PushCode)?;
    let new = new.validate()?;
    let refused = |text: String| Err(Error::Refused(text));
    let name = RefName::tag(&new.name).filter(|name| !name.looks_like_oid());
    let Some(name) = name else { return refused("Tag name invalid".into()) };
    let repository = tx.repository(&project)?;
    let target = repository.as_ref().map(|repository| repository.resolve(&new.target)).transpose()?.flatten();
    let (Some(repository), Some(target)) = (repository, target) else {
        return refused(format!("Target {} is invalid", new.target));
    };
    let refs = repository.refs();
    if refs.find(&name).is_some() {
        return refused(format!("Tag {} already exists", new.name));
    }
    if conflicts_with_any(&refs.tags, &name) {
        return refused("Tag name invalid".into());
    }
    let release = new.release.clone();
    if let Some(text) = &release {
        check_description(text)?;
    }
    let message = new.message.as_deref().map(str::trim).filter(|message| !message.is_empty());
    let annotation = message.map(|message| tx.signature().map(|tagger| (message.to_owned(), tagger))).transpose()?;
    Ok(CheckedTag { project: project.id, name, target, annotation, release })
}

/// Creates the release of a new tag; replaces one left by an earlier tag of the same name.
fn upsert_release(tx: &mut WriteTx<'_>, project: ProjectId, tag: &str, text: &str) -> Result<()> {
    tx.project(&ProjectRef::Id(project), ProjectAbility::PushCode)?;
    let now = tx.now();
    if !store::releases::insert(tx.db(), project, tag, text, now)? {
        store::releases::update(tx.db(), project, tag, text, now)?;
    }
    Ok(())
}

/// Deletes a tag with its release. Unlike a push, this is allowed to developers.
pub async fn delete(forge: &Forge, caller: Caller, project: ProjectRef, name: String) -> Result<()> {
    let check = move |tx: &mut ReadTx<'_>| {
        let project = tx.project(&project, ProjectAbility::PushCode)?;
        let missing = || Error::NotFoundMessage("No such tag".into());
        let repository = tx.repository(&project)?.ok_or_else(missing)?;
        let refs = repository.refs();
        let tag = RefName::tag(&name).and_then(|name| refs.find(&name)).ok_or_else(missing)?;
        Ok((project.id, RefChange { name: tag.name.clone(), old: Some(tag.target), new: None }))
    };
    push_with_retry(forge, &caller, check).await?;
    Ok(())
}

/// Creates the release of a tag.
pub async fn create_release(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    tag: String,
    description: Unvalidated<String>,
) -> Result<Release> {
    let insert = |tx: &mut WriteTx<'_>, project: ProjectId, tag: &str, text: &str| {
        let now = tx.now();
        let inserted = store::releases::insert(tx.db(), project, tag, text, now)?;
        if inserted { Ok(()) } else { Err(Error::Taken("Release already exists".into())) }
    };
    change_release(forge, caller, project, tag, description, insert).await
}

/// Updates the release of a tag.
pub async fn update_release(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    tag: String,
    description: Unvalidated<String>,
) -> Result<Release> {
    let update = |tx: &mut WriteTx<'_>, project: ProjectId, tag: &str, text: &str| {
        let now = tx.now();
        let updated = store::releases::update(tx.db(), project, tag, text, now)?;
        if updated { Ok(()) } else { Err(Error::NotFoundMessage("Release does not exist".into())) }
    };
    change_release(forge, caller, project, tag, description, update).await
}

/// Creates the release of a tag, or updates it.
pub async fn save_release(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    tag: String,
    description: Unvalidated<String>,
) -> Result<Release> {
    change_release(forge, caller, project, tag, description, upsert_release).await
}

/// Changes the release of an existing tag. The repository is read before, so that the writer thread does not wait for the disk.
async fn change_release(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    tag: String,
    description: Unvalidated<String>,
    change: impl Fn(&mut WriteTx<'_>, ProjectId, &str, &str) -> Result<()> + Send + 'static,
) -> Result<Release> {
    let requested = tag.clone();
    let check = move |tx: &mut ReadTx<'_>| {
        let project = tx.project(&project, ProjectAbility::PushCode)?;
        let text = description.validate()?.clone();
        let missing = || Error::NotFoundMessage("Tag does not exist".into());
        let repository = tx.repository(&project)?.ok_or_else(missing)?;
        if !exists(&repository, &requested) {
            return Err(missing());
        }
        check_description(&text)?;
        Ok((project.id, text))
    };
    let (project, text) = forge.read(caller.clone(), check).await?;
    forge
        .write(caller, move |tx| {
            tx.project(&ProjectRef::Id(project), ProjectAbility::PushCode)?;
            change(tx, project, &tag, &text)?;
            store::releases::find(tx.db(), project, &tag)?.ok_or_else(|| Error::not_found("Release"))
        })
        .await
}

fn exists(repository: &Repository, tag: &str) -> bool {
    let refs = repository.refs();
    RefName::tag(tag).is_some_and(|name| refs.find(&name).is_some())
}

fn check_description(text: &str) -> Result<()> {
    let mut violations = Violations::new();
    violations.require(!text.trim().is_empty(), "description", "can't be blank");
    Ok(violations.into_result()?)
}
