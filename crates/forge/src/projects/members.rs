//! Members of projects and groups.

use jiff::civil::Date;
use model::{Change, Member, NamespaceKind, Page, Role, Slice, Violations, events::Action, members::NewMember};
use store::{
    events::NewEvent,
    members::{Place, Search},
};

use crate::{
    Ability, Error, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, projects,
    webhook_events,
};

/// To what somebody belongs.
#[derive(Clone, Debug)]
pub enum PlaceRef {
    /// A project.
    Project(ProjectRef),
    /// A group.
    Group(GroupRef),
}

/// What an edit changes about a membership.
#[derive(Clone, Debug)]
pub struct MemberChanges {
    /// As what, in numbers; not all of them are roles.
    pub access_level: i64,
    /// Until when.
    pub expires_on: Change<Date>,
}

/// What became of a wish to end a membership.
pub enum Ended {
    /// This one has ended.
    Member(Member),
    /// There was none, and nobody minds.
    Nobody,
}

/// A page of the members of a place, newest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    place: &PlaceRef,
    search: &Unvalidated<Option<String>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Member>> {
    tx.may(Ability::Browse)?;
    let (search, page) = (search.get()?.as_deref(), *page.get()?);
    let place = open_to_read(tx, place)?;
    if projects::is_beyond(search) {
        return Ok(Slice::empty(page));
    }
    // Others see no addresses, so they may not feel their way along them either.
    let (now, parts_of_addresses) = (tx.now(), tx.actor().is_admin());
    let search = search.map(|text| Search { text, parts_of_addresses });
    Ok(store::members::list(tx.db(), place, search.as_ref(), page, now)?)
}

/// One member of a place.
pub fn get(tx: &mut ReadTx<'_>, place: &PlaceRef, user: &Unvalidated<i64>) -> Result<Member> {
    tx.may(Ability::Browse)?;
    let user = *user.get()?;
    let place = open_to_read(tx, place)?;
    find(tx, place, user)?.ok_or(Error::NoSuchRow)
}

/// Makes somebody a member. Who is one of a project already, stays what they are.
pub fn create(tx: &mut WriteTx<'_>, place: &PlaceRef, new: &Unvalidated<NewMember>) -> Result<Member> {
    tx.may(Ability::Browse)?;
    let new = *new.get()?;
    let place = open_to_administer(tx, place)?;
    hold(tx, place)?;
    match (find(tx, place, new.user_id)?, place) {
        (Some(_), Place::Group(_)) => return Err(Error::Taken("Member already exists".into())),
        (Some(member), Place::Project(_)) => return Ok(member),
        (None, _) => {}
    }
    let user = store::users::by_id(tx.db(), new.user_id)?;
    let user = user.ok_or_else(|| Violations::one("user", "can't be blank"))?;
    let role = role_for(place, new.access_level)?;
    let now = tx.now();
    // A membership that has ended may still lie there; whoever comes back is new.
    webhook_events::member_leaves(tx, place, user.id)?;
    if store::members::delete(tx.db(), place, user.id)? {
        tell(tx, place, user.id, Action::Expired)?;
    }
    store::members::put(tx.db(), place, user.id, role, new.expires_on, now)?;
    tell(tx, place, user.id, Action::Joined)?;
    webhook_events::member_joined(tx, place, user.id)?;
    Ok(Member { user: user.into(), role, expires_on: new.expires_on })
}

/// Changes as what somebody is a member, or until when.
pub fn update(
    tx: &mut WriteTx<'_>,
    place: &PlaceRef,
    user: &Unvalidated<i64>,
    changes: &Unvalidated<MemberChanges>,
) -> Result<Member> {
    tx.may(Ability::Browse)?;
    let (user, changes) = (*user.get()?, changes.get()?.clone());
    let place = open_to_administer(tx, place)?;
    hold(tx, place)?;
    let member = find(tx, place, user)?.ok_or(Error::NoSuchRow)?;
    let role = role_for(place, changes.access_level)?;
    let expires_on = match changes.expires_on {
        Change::Keep => member.expires_on,
        Change::Clear => None,
        Change::Set(day) => Some(day),
    };
    // To whom a personal project belongs does not hang on the membership.
    if matches!(place, Place::Group(_)) && (role < Role::Owner || expires_on.is_some()) {
        keep_an_owner(tx, place, &member)?;
    }
    let now = tx.now();
    store::members::put(tx.db(), place, user, role, expires_on, now)?;
    Ok(Member { role, expires_on, ..member })
}

/// Ends a membership; everybody may end their own.
pub fn delete(tx: &mut WriteTx<'_>, place_ref: &PlaceRef, user: &Unvalidated<i64>) -> Result<Ended> {
    tx.may(Ability::Browse)?;
    let user = *user.get()?;
    let place = open_to_read(tx, place_ref)?;
    hold(tx, place)?;
    let member = find(tx, place, user)?;
    let me = tx.actor().user().map(|me| me.id);
    match (place, member) {
        (Place::Project(_), None) => Ok(Ended::Nobody),
        (Place::Group(_), None) => {
            open_to_administer(tx, place_ref)?;
            Err(Error::NotFound(format!("Member: user_id:{user}")))
        }
        (_, Some(member)) => {
            if me != Some(user) {
                open_to_administer(tx, place_ref)?;
            }
            keep_an_owner(tx, place, &member)?;
            webhook_events::member_leaves(tx, place, user)?;
            store::members::delete(tx.db(), place, user)?;
            tell(tx, place, user, Action::Left)?;
            Ok(Ended::Member(member))
        }
    }
}

fn open_to_read(tx: &mut ReadTx<'_>, place: &PlaceRef) -> Result<Place> {
    Ok(match place {
        PlaceRef::Project(project) => Place::Project(tx.open(project, ProjectAbility::ReadProject)?.id),
        PlaceRef::Group(group) => Place::Group(tx.open_group(group, GroupAbility::ReadGroup)?.0.id),
    })
}

fn open_to_administer(tx: &mut WriteTx<'_>, place: &PlaceRef) -> Result<Place> {
    Ok(match place {
        PlaceRef::Project(project) => Place::Project(tx.open(project, ProjectAbility::AdministerMembers)?.id),
        PlaceRef::Group(group) => Place::Group(tx.open_group(group, GroupAbility::AdministerMembers)?.0.id),
    })
}

/// Keeps everybody else from changing who belongs to a place while this transaction lasts.
fn hold(tx: &mut WriteTx<'_>, place: Place) -> Result<()> {
    let (there, what) = match place {
        Place::Project(project) => (store::projects::lock(tx.db(), project)?, "Project"),
        Place::Group(group) => (store::namespaces::by_id_to_change(tx.db(), group)?.is_some(), "Group"),
    };
    if there { Ok(()) } else { Err(Error::not_found(what)) }
}

fn find(tx: &mut ReadTx<'_>, place: Place, user: i64) -> Result<Option<Member>> {
    let now = tx.now();
    Ok(store::members::get(tx.db(), place, user, now)?)
}

/// The role behind a number, if somebody can be that in such a place.
fn role_for(place: Place, level: i64) -> Result<Role> {
    let highest = match place {
        Place::Project(_) => Role::Master,
        Place::Group(_) => Role::Owner,
    };
    let role = Role::from_level(level).filter(|role| *role <= highest);
    role.ok_or_else(|| Error::Unprocessable("Access level is not known".into()))
}

/// Refuses to leave a group without an owner who stays, or a personal project without the one to whom it belongs.
fn keep_an_owner(tx: &mut WriteTx<'_>, place: Place, leaving: &Member) -> Result<()> {
    let kept = match place {
        Place::Group(group) => {
            leaving.role < Role::Owner || store::groups::has_other_owner(tx.db(), group, leaving.user.id)?
        }
        Place::Project(project) => !belongs_to(tx, project, leaving.user.id)?,
    };
    if kept { Ok(()) } else { Err(Error::Forbidden(None)) }
}

/// Whether a project is a personal one of this user.
fn belongs_to(tx: &mut ReadTx<'_>, project: i64, user: i64) -> Result<bool> {
    let viewer = tx.viewer();
    let project = store::projects::find(tx.db(), &viewer, store::projects::Key::Id(project))?;
    let is_theirs = |project: model::Project| {
        project.namespace.kind == NamespaceKind::User && project.namespace.owner_id == Some(user)
    };
    Ok(project.is_some_and(is_theirs))
}

/// Tells that somebody came to a project or left it, whoever brought that about. Of groups it is not told, nor of those
/// to whom the project belongs anyway.
fn tell(tx: &mut WriteTx<'_>, place: Place, author: i64, action: Action) -> Result<()> {
    let Place::Project(project) = place else { return Ok(()) };
    if belongs_to(tx, project, author)? {
        return Ok(());
    }
    let now = tx.now();
    let event = NewEvent { project, author, action, target: None, push: None, intent: None, now };
    store::events::insert(tx.db(), &event)?;
    Ok(())
}

/// Refuses to let a user go without whom a group would have no owner.
pub(crate) fn refuse_if_needed(tx: &mut WriteTx<'_>, user: i64) -> Result<()> {
    // Two owners who go at once meet here.
    for group in store::groups::owned_by(tx.db(), user)? {
        hold(tx, Place::Group(group))?;
    }
    if store::groups::solely_owned_by(tx.db(), user)?.is_empty() {
        return Ok(());
    }
    let text = "You must transfer ownership or delete groups before you can remove user";
    Err(Error::Taken(text.into()))
}
