//! Uploaded avatars of users, projects and groups.
//!
//! A row is inserted before its file is written and deleted after it, as for all stored files. A replaced avatar, or one whose
//! owner was deleted, is unused; unused avatars are removed after a change and every hour.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use files::Content;
use futures_util::stream;
use model::{
    AvatarId, StorageId, Time,
    avatars::{Avatar, AvatarOwner, MAX_SIZE, NewAvatar},
};
use tracing::{info, warn};

use crate::{
    Ability, Caller, Error, Forge, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, WriteTx,
    stored_files::{self, ABANDONED_AFTER, BATCH, random_storage},
    uploads::UploadError,
};

/// Whose avatar is changed.
#[derive(Clone, Debug)]
pub enum AvatarTarget {
    /// That of the signed-in user.
    OwnAccount,
    /// That of a project.
    Project(ProjectRef),
    /// That of a group.
    Group(GroupRef),
}

/// Sets an avatar, which replaces the previous one.
pub async fn set(forge: &Forge, caller: Caller, target: AvatarTarget, file: NewAvatar) -> Result<()> {
    let forge = forge.clone();
    // In its own task: if the client disconnects, the upload still has to be completed or rolled back.
    let task = tokio::spawn(async move {
        forge.require_free_space()?;
        let file = Arc::new(file);
        let pending = Arc::clone(&file);
        let insert = move |tx: &mut WriteTx<'_>| insert_pending(tx, &target, &pending);
        let (owner, avatar) = forge.write(caller.clone(), insert).await?;
        let content = Bytes::copy_from_slice(&file.bytes);
        let content = stream::once(async move { Ok::<_, Infallible>(content) });
        let outcome = match stored_files::write(&forge, &key(&avatar), MAX_SIZE as u64, content).await {
            Ok(size) => {
                let avatar = avatar.clone();
                forge.write(caller, move |tx| activate(tx, owner, &avatar, size)).await.map_err(UploadError::Forge)
            }
            Err(error) => Err(error),
        };
        let removed = match &outcome {
            Ok(()) => sweep(&forge).await,
            Err(error) if stored_files::is_certainly_unfinished(error) => remove_files(&forge, &[avatar]).await,
            Err(_) => Ok(()),
        };
        if let Err(error) = removed {
            warn!(%error, "cannot remove an unused avatar; retrying later");
        }
        outcome.map_err(|error| match error {
            // The size was checked.
            UploadError::TooLarge => Error::Internal("an avatar is larger than expected".into()),
            UploadError::Source(never) => match never {},
            UploadError::Forge(error) => error,
        })
    });
    task.await.unwrap_or_else(|error| Err(Error::internal("upload task failed", error)))
}

/// Removes an avatar; the generated one takes its place.
pub async fn remove(forge: &Forge, caller: Caller, target: AvatarTarget) -> Result<()> {
    let clear = move |tx: &mut WriteTx<'_>| {
        let owner = authorize(tx, &target)?;
        Ok(store::avatars::clear(tx.db(), owner)?)
    };
    forge.write(caller, clear).await?;
    if let Err(error) = sweep(forge).await {
        warn!(%error, "cannot remove an unused avatar; retrying later");
    }
    Ok(())
}

fn authorize(tx: &mut WriteTx<'_>, target: &AvatarTarget) -> Result<AvatarOwner> {
    Ok(match target {
        AvatarTarget::OwnAccount => AvatarOwner::User(tx.current_user_id(Ability::ChangeOwnAccount)?),
        AvatarTarget::Project(project) => AvatarOwner::Project(tx.project(project, ProjectAbility::ChangeProject)?.id),
        AvatarTarget::Group(group) => AvatarOwner::Group(tx.group(group, GroupAbility::ChangeGroup)?.0.id),
    })
}

fn insert_pending(tx: &mut WriteTx<'_>, target: &AvatarTarget, file: &NewAvatar) -> Result<(AvatarOwner, Avatar)> {
    let owner = authorize(tx, target)?;
    let (image_type, name) = file.check().map_err(Error::Invalid)?;
    let (storage, created_at) = (random_storage(tx.read()), tx.now());
    let id = store::avatars::insert(tx.db(), owner, &storage, (&name, image_type), created_at)?;
    Ok((owner, Avatar { id, storage, name, image_type, size: None, created_at }))
}

/// Checks the permission again: the owner may have been deleted during the upload.
fn activate(tx: &mut WriteTx<'_>, owner: AvatarOwner, avatar: &Avatar, size: u64) -> Result<()> {
    let target = match owner {
        AvatarOwner::User(_) => AvatarTarget::OwnAccount,
        AvatarOwner::Project(id) => AvatarTarget::Project(ProjectRef::Id(id)),
        AvatarOwner::Group(id) => AvatarTarget::Group(GroupRef::Id(id)),
    };
    authorize(tx, &target)?;
    stored_files::check_not_abandoned(tx, avatar.created_at)?;
    let is_active = store::avatars::activate(tx.db(), owner, avatar, size)?;
    if is_active { Ok(()) } else { Err(Error::not_found("Avatar")) }
}

/// Returns the current avatar of an owner whose page the visitor can see. Those of users are public.
pub fn open(tx: &mut ReadTx<'_>, owner: AvatarOwner, name: &str) -> Result<Avatar> {
    match owner {
        AvatarOwner::User(_) => drop(tx.authorize(Ability::ViewPages)?),
        AvatarOwner::Project(id) => drop(tx.project(&ProjectRef::Id(id), ProjectAbility::ViewProject)?),
        AvatarOwner::Group(id) => drop(tx.group(&GroupRef::Id(id), GroupAbility::ViewGroup)?),
    }
    let avatar = store::avatars::current(tx.db(), owner)?;
    avatar.filter(|avatar| avatar.name == name).ok_or_else(|| Error::not_found("Avatar"))
}

/// Reads the file of an avatar.
pub async fn read(forge: &Forge, avatar: &Avatar) -> Result<Content> {
    let content = forge.shared().files.read(&key(avatar), None).await?;
    // Replaced concurrently.
    let content = content.ok_or_else(|| Error::not_found("Avatar"))?;
    if Some(content.size) != avatar.size {
        let unexpected = format!("the file of avatar {} has an unexpected size of {} bytes", avatar.id, content.size);
        return Err(Error::Internal(unexpected.into()));
    }
    Ok(content)
}

/// Removes unused avatars.
pub(crate) async fn sweep(forge: &Forge) -> Result<()> {
    sweep_before(forge, forge.now() - ABANDONED_AFTER).await
}

/// Removes unused and unfinished avatars at startup of a server that is the only one on its data: no client can still be
/// sending them.
pub async fn sweep_at_start(forge: &Forge) -> Result<()> {
    if forge.shared().database.is_single_node() { sweep_before(forge, Time::MAX).await } else { Ok(()) }
}

async fn sweep_before(forge: &Forge, time: Time) -> Result<()> {
    while let batch @ [_, ..] =
        &*forge.read(Caller::system(), move |tx| Ok(store::avatars::unused(tx.db(), time, BATCH)?)).await?
    {
        remove_files(forge, batch).await?;
        info!(removed = batch.len(), "removed unused avatars");
    }
    Ok(())
}

/// Removes the files of avatars, then their rows.
async fn remove_files(forge: &Forge, avatars: &[Avatar]) -> Result<()> {
    let files = &forge.shared().files;
    files.remove(&avatars.iter().map(key).collect::<Vec<_>>()).await?;
    for avatar in avatars {
        if let Err(error) = files.remove_folder(&folder(&avatar.storage)).await {
            warn!(%error, "cannot remove the folder of an avatar");
        }
    }
    let ids: Vec<AvatarId> = avatars.iter().map(|avatar| avatar.id).collect();
    forge.write(Caller::system(), move |tx| Ok(store::avatars::delete(tx.db(), &ids)?)).await
}

/// Returns the folder of an avatar below the file storage. Each has its own, whose name is random.
pub fn folder(storage: &StorageId) -> String {
    format!("avatars/{storage}")
}

fn key(avatar: &Avatar) -> String {
    format!("{}/{}", folder(&avatar.storage), avatar.id)
}
