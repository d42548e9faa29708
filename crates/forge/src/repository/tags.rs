//! Tags of a repository, and the releases that are told of them.

use git::{ListedCommits, Repository};
use model::{
    Oid, Page, RefChange, RefName, Slice, Violations,
    objects::{Signature, Tag},
    releases::Release,
};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    branches::{count, is_in_the_way, looking_again, passed, push},
    pushes::{self, Push, Via},
};

/// A tag and what is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedTag {
    /// The tag.
    pub tag: Tag,
    /// Its release, if it has one.
    pub release: Option<Release>,
}

/// A wish for a tag.
#[derive(Clone, Debug)]
pub struct NewTag {
    /// What it shall be called.
    pub name: String,
    /// What it shall point to: a branch, a tag or a commit.
    pub target: String,
    /// What makes it an annotated one.
    pub message: Option<String>,
    /// What the release says, if there shall be one.
    pub release: Option<String>,
}

/// A page of the tags, the last name first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<ReleasedTag>> {
    let project = tx.open(project, ProjectAbility::DownloadCode)?;
    let page = *page.get()?;
    let Some(repository) = tx.repository(&project)? else { return Ok(Slice::empty(page)) };
    let refs = repository.refs()?;
    let tags: Vec<&git::Ref> = refs.tags.iter().rev().collect();
    let shown = page.cut(&tags);
    let names: Vec<&str> = shown.iter().map(|tag| tag.name.short()).collect();
    let mut releases = store::releases::among(tx.db(), project.id, &names)?;
    let mut items = Vec::new();
    let mut listed = ListedCommits::default();
    for tag in shown {
        let release = releases.iter().position(|release| release.tag_name == tag.name.short());
        let release = release.map(|at| releases.swap_remove(at));
        let mut tag = repository.tag(tag)?;
        tag.commit.iter_mut().for_each(|commit| listed.fit(commit));
        tag.message.iter_mut().for_each(|message| listed.fit_message(message));
        items.push(ReleasedTag { tag, release });
    }
    Ok(Slice { items, total: count(refs.tags.len()), page })
}

/// One tag.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, name: &str) -> Result<ReleasedTag> {
    let project = tx.open(project, ProjectAbility::DownloadCode)?;
    let missing = || Error::not_found("Tag");
    let repository = tx.repository(&project)?.ok_or_else(missing)?;
    let refs = repository.refs()?;
    let tag = RefName::tag(name).and_then(|name| refs.find(&name)).ok_or_else(missing)?;
    let release = store::releases::find(tx.db(), project.id, name)?;
    Ok(ReleasedTag { tag: repository.tag(tag)?, release })
}

/// What is known of a tag before it is made.
struct Judged {
    project: i64,
    name: RefName,
    target: Oid,
    annotation: Option<(String, Signature)>,
    release: Option<String>,
}

/// Makes a tag, annotated if there is something to say, and its release if there is something to tell.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    new: Unvalidated<NewTag>,
) -> Result<ReleasedTag> {
    let judge = move |tx: &mut ReadTx<'_>| judge_new(tx, &project, &new);
    let Judged { project, name, target, annotation, release } = forge.read(caller.clone(), judge.clone()).await?;
    let made = write(forge, &caller, project, &name, target, annotation).await;
    if pushes::came_too_late(&made) {
        // Whoever loses a race is told the same as whoever comes later.
        forge.read(caller.clone(), judge).await?;
    }
    made?;
    if let Some(text) = release {
        let tag = name.clone();
        forge.write(caller.clone(), move |tx| put_release(tx, project, tag.short(), &text)).await?;
    }
    forge.read(caller, move |tx| get(tx, &ProjectRef::Id(project), name.short())).await
}

/// Puts a tag where it belongs, with a text of its own if there is one.
async fn write(
    forge: &Forge,
    caller: &Caller,
    project: i64,
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
            let (inside, tag, storage) = (forge.clone(), name.clone(), forge.storage_of(project).await?);
            let (incoming, id) = pushes::blocking(move || {
                let incoming = pushes::incoming(&inside, &storage)?;
                let id = incoming.write_tag(&tag, target, &message, &tagger)?;
                Ok((incoming, id))
            })
            .await?;
            let changes = vec![RefChange { name: name.clone(), old: None, new: Some(id) }];
            let push = Push { changes, incoming: Some(incoming), atomic: true, options: Vec::new() };
            passed(pushes::push(forge, caller.clone(), project, push, Via::Api).await?)
        }
    }
}

fn judge_new(tx: &mut ReadTx<'_>, project: &ProjectRef, new: &Unvalidated<NewTag>) -> Result<Judged> {
    let project = tx.open(project, ProjectAbility::PushCode)?;
    let new = new.get()?;
    let refused = |text: String| Err(Error::Refused(text));
    let name = RefName::tag(&new.name).filter(|name| !name.looks_like_an_id());
    let Some(name) = name else { return refused("Tag name invalid".into()) };
    let repository = tx.repository(&project)?;
    let target = repository.as_ref().map(|repository| repository.resolve(&new.target)).transpose()?.flatten();
    let (Some(repository), Some(target)) = (repository, target) else {
        return refused(format!("Target {} is invalid", new.target));
    };
    let refs = repository.refs()?;
    if refs.find(&name).is_some() {
        return refused(format!("Tag {} already exists", new.name));
    }
    if is_in_the_way(&refs.tags, &name) {
        return refused("Tag name invalid".into());
    }
    let release = new.release.clone();
    if let Some(text) = &release {
        check_description(text)?;
    }
    let message = new.message.as_deref().map(str::trim).filter(|message| !message.is_empty());
    let annotation = message.map(|message| tx.signature().map(|tagger| (message.to_owned(), tagger))).transpose()?;
    Ok(Judged { project: project.id, name, target, annotation, release })
}

/// The release that comes with a tag. One that an earlier tag of the name has left behind gives way.
fn put_release(tx: &mut WriteTx<'_>, project: i64, tag: &str, text: &str) -> Result<()> {
    tx.open(&ProjectRef::Id(project), ProjectAbility::PushCode)?;
    let now = tx.now();
    if !store::releases::insert(tx.db(), project, tag, text, now)? {
        store::releases::update(tx.db(), project, tag, text, now)?;
    }
    Ok(())
}

/// Removes a tag with its release. Here a developer may remove any tag.
pub async fn delete(forge: &Forge, caller: Caller, project: ProjectRef, name: String) -> Result<()> {
    let judge = move |tx: &mut ReadTx<'_>| {
        let project = tx.open(&project, ProjectAbility::PushCode)?;
        let missing = || Error::Absent("No such tag".into());
        let repository = tx.repository(&project)?.ok_or_else(missing)?;
        let refs = repository.refs()?;
        let tag = RefName::tag(&name).and_then(|name| refs.find(&name)).ok_or_else(missing)?;
        Ok((project.id, RefChange { name: tag.name.clone(), old: Some(tag.target), new: None }))
    };
    looking_again(forge, &caller, judge).await?;
    Ok(())
}

/// Tells of a tag for the first time.
pub async fn create_release(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    tag: String,
    description: Unvalidated<String>,
) -> Result<Release> {
    let insert = |tx: &mut WriteTx<'_>, project: i64, tag: &str, text: &str| {
        let now = tx.now();
        let inserted = store::releases::insert(tx.db(), project, tag, text, now)?;
        if inserted { Ok(()) } else { Err(Error::Taken("Release already exists".into())) }
    };
    change_release(forge, caller, project, tag, description, insert).await
}

/// Tells something else of a tag.
pub async fn update_release(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    tag: String,
    description: Unvalidated<String>,
) -> Result<Release> {
    let update = |tx: &mut WriteTx<'_>, project: i64, tag: &str, text: &str| {
        let now = tx.now();
        let updated = store::releases::update(tx.db(), project, tag, text, now)?;
        if updated { Ok(()) } else { Err(Error::Absent("Release does not exist".into())) }
    };
    change_release(forge, caller, project, tag, description, update).await
}

/// Changes the release of a tag that is there. The repository is asked before, so that the one thread that may write does
/// not wait for the disk.
async fn change_release(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    tag: String,
    description: Unvalidated<String>,
    change: impl Fn(&mut WriteTx<'_>, i64, &str, &str) -> Result<()> + Send + 'static,
) -> Result<Release> {
    let asked = tag.clone();
    let judge = move |tx: &mut ReadTx<'_>| {
        let project = tx.open(&project, ProjectAbility::PushCode)?;
        let text = description.get()?.clone();
        let missing = || Error::Absent("Tag does not exist".into());
        let repository = tx.repository(&project)?.ok_or_else(missing)?;
        if !exists(&repository, &asked)? {
            return Err(missing());
        }
        check_description(&text)?;
        Ok((project.id, text))
    };
    let (project, text) = forge.read(caller.clone(), judge).await?;
    forge
        .write(caller, move |tx| {
            tx.open(&ProjectRef::Id(project), ProjectAbility::PushCode)?;
            change(tx, project, &tag, &text)?;
            store::releases::find(tx.db(), project, &tag)?.ok_or_else(|| Error::not_found("Release"))
        })
        .await
}

fn exists(repository: &Repository, tag: &str) -> Result<bool> {
    let refs = repository.refs()?;
    Ok(RefName::tag(tag).is_some_and(|name| refs.find(&name).is_some()))
}

fn check_description(text: &str) -> Result<()> {
    let mut violations = Violations::new();
    violations.unless(!text.trim().is_empty(), "description", "can't be blank");
    Ok(violations.into_result()?)
}
