//! Uploaded avatars: a row is inserted before its file is written and deleted after it. The name of the current avatar is also
//! a column of its owner.

use diesel::{dsl::not, prelude::*, sql_types::Bool};
use model::{
    AvatarId, StorageId, Time,
    avatars::{Avatar, AvatarOwner, ImageType},
};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::avatars,
    times::{from_micros, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = avatars)]
struct Row {
    id: i64,
    storage_id: String,
    name: String,
    content_type: String,
    size: Option<i64>,
    created_at: i64,
}

/// Returns an avatar; `None` if a newer version has written something unknown.
fn to_avatar(Row { id, storage_id, name, content_type, size, created_at }: Row) -> Option<Avatar> {
    Some(Avatar {
        id: AvatarId::new(id),
        storage: StorageId::parse(&storage_id)?,
        name,
        image_type: ImageType::parse(&content_type)?,
        size: size.and_then(|size| u64::try_from(size).ok()),
        created_at: from_micros(created_at),
    })
}

/// Returns the table of an owner, the column of avatars that refers to it, and its ID.
fn owner_columns(owner: AvatarOwner) -> (&'static str, &'static str, i64) {
    match owner {
        AvatarOwner::User(id) => ("users", "avatars.user_id", id.get()),
        AvatarOwner::Project(id) => ("projects", "avatars.project_id", id.get()),
        AvatarOwner::Group(id) => ("namespaces", "avatars.group_id", id.get()),
    }
}

/// The condition that an avatar belongs to an owner.
fn belongs_to(owner: AvatarOwner) -> Fragment<Bool> {
    let (_, column, id) = owner_columns(owner);
    Fragment::new(column).sql(" = ").number(id)
}

/// Inserts an avatar whose file is not written yet.
pub fn insert(
    db: &mut Conn,
    owner: AvatarOwner,
    storage: &StorageId,
    (name, image_type): (&str, ImageType),
    now: Time,
) -> Result<AvatarId> {
    let (user, project, group) = match owner {
        AvatarOwner::User(id) => (Some(id.get()), None, None),
        AvatarOwner::Project(id) => (None, Some(id.get()), None),
        AvatarOwner::Group(id) => (None, None, Some(id.get())),
    };
    let id = on!(db, conn => diesel::insert_into(avatars::table)
        .values((
            avatars::user_id.eq(user),
            avatars::project_id.eq(project),
            avatars::group_id.eq(group),
            avatars::storage_id.eq(storage.as_str()),
            avatars::name.eq(name),
            avatars::content_type.eq(image_type.content_type()),
            avatars::created_at.eq(to_micros(now)),
        ))
        .returning(avatars::id)
        .get_result(conn))?;
    Ok(AvatarId::new(id))
}

/// Makes an avatar whose file is written the current one of its owner; returns `false` if it is gone.
pub fn activate(db: &mut Conn, owner: AvatarOwner, avatar: &Avatar, size: u64) -> Result<bool> {
    clear(db, owner)?;
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    let updated = on!(db, conn => diesel::update(avatars::table.find(avatar.id.get()))
        .set((avatars::size.eq(size), avatars::is_current.eq(true)))
        .execute(conn))?;
    let (table, _, id) = owner_columns(owner);
    let set = Fragment::<Bool>::new(format!("UPDATE {table} SET avatar = ")).text(&avatar.name);
    on!(db, conn => set.sql(" WHERE id = ").number(id).execute(conn))?;
    Ok(updated == 1)
}

/// Takes the current avatar from its owner, which also locks the owner. The avatar is then unused.
pub fn clear(db: &mut Conn, owner: AvatarOwner) -> Result<()> {
    let (table, _, id) = owner_columns(owner);
    let clear = Fragment::<Bool>::new(format!("UPDATE {table} SET avatar = NULL WHERE id = ")).number(id);
    on!(db, conn => clear.execute(conn))?;
    on!(db, conn => diesel::update(avatars::table)
        .filter(belongs_to(owner))
        .filter(avatars::is_current)
        .set(avatars::is_current.eq(false))
        .execute(conn))?;
    Ok(())
}

/// Returns the current avatar.
pub fn current(db: &mut Conn, owner: AvatarOwner) -> Result<Option<Avatar>> {
    let row: Option<Row> = on!(db, conn => avatars::table
        .filter(belongs_to(owner))
        .filter(avatars::is_current)
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.and_then(to_avatar))
}

/// Returns some avatars that are not used: replaced ones, those whose owner was deleted, and unfinished ones that were begun
/// before a time.
pub fn unused(db: &mut Conn, before: Time, limit: i64) -> Result<Vec<Avatar>> {
    let has_no_owner = avatars::user_id.is_null().and(avatars::project_id.is_null()).and(avatars::group_id.is_null());
    let rows: Vec<Row> = on!(db, conn => avatars::table
        .filter(not(avatars::is_current).or(has_no_owner))
        .filter(avatars::size.is_not_null().or(avatars::created_at.lt(to_micros(before))))
        .order(avatars::id)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().filter_map(to_avatar).collect())
}

/// Deletes avatars whose files are deleted.
pub fn delete(db: &mut Conn, ids: &[AvatarId]) -> Result<()> {
    on!(db, conn => diesel::delete(avatars::table)
        .filter(avatars::id.eq_any(ids.iter().copied().map(AvatarId::get)))
        .execute(conn))?;
    Ok(())
}
