//! Members of projects and groups.

use jiff::civil::Date;
use model::{Change, Member, NamespaceKind, Page, Role, Slice, Violations, events::Action, members::NewMember};
use store::{
    events::NewEvent,
    members::{Place, Search},
};

use crate::{
    Ability, Error, Given, GroupAbility, GroupRef, ProjectAbility, ProjectRef, Reader, Result, Writer, news, projects,
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
    it: &mut Reader<'_>,
    place: &PlaceRef,
    search: &Given<Option<String>>,
    page: &Given<Page>,
) -> Result<Slice<Member>> {
    it.may(Ability::Browse)?;
    let (search, page) = (search.get()?.as_deref(), *page.get()?);
    let place = open_to_read(it, place)?;
    if projects::is_beyond(search) {
        return Ok(Slice::empty(page));
    }
    // Others see no addresses, so they may not feel their way along them either.
    let (now, parts_of_addresses) = (it.now(), it.actor().is_admin());
    let search = search.map(|text| Search { text, parts_of_addresses });
    Ok(store::members::list(it.db(), place, search.as_ref(), page, now)?)
}

/// One member of a place.
pub fn get(it: &mut Reader<'_>, place: &PlaceRef, user: &Given<i64>) -> Result<Member> {
    it.may(Ability::Browse)?;
    let user = *user.get()?;
    let place = open_to_read(it, place)?;
    find(it, place, user)?.ok_or(Error::NoSuchRow)
}

/// Makes somebody a member. Who is one of a project already, stays what they are.
pub fn create(it: &mut Writer<'_>, place: &PlaceRef, new: &Given<NewMember>) -> Result<Member> {
    it.may(Ability::Browse)?;
    let new = *new.get()?;
    let place = open_to_administer(it, place)?;
    hold(it, place)?;
    match (find(it, place, new.user_id)?, place) {
        (Some(_), Place::Group(_)) => return Err(Error::Taken("Member already exists".into())),
        (Some(member), Place::Project(_)) => return Ok(member),
        (None, _) => {}
    }
    let user = store::users::by_id(it.db(), new.user_id)?;
    let user = user.ok_or_else(|| Violations::one("user", "can't be blank"))?;
    let role = role_for(place, new.access_level)?;
    let now = it.now();
    // A membership that has ended may still lie there; whoever comes back is new.
    news::member_leaves(it, place, user.id)?;
    if store::members::delete(it.db(), place, user.id)? {
        tell(it, place, user.id, Action::Expired)?;
    }
    store::members::put(it.db(), place, user.id, role, new.expires_on, now)?;
    tell(it, place, user.id, Action::Joined)?;
    news::member_joined(it, place, user.id)?;
    Ok(Member { user: user.into(), role, expires_on: new.expires_on })
}

/// Changes as what somebody is a member, or until when.
pub fn update(
    it: &mut Writer<'_>,
    place: &PlaceRef,
    user: &Given<i64>,
    changes: &Given<MemberChanges>,
) -> Result<Member> {
    it.may(Ability::Browse)?;
    let (user, changes) = (*user.get()?, changes.get()?.clone());
    let place = open_to_administer(it, place)?;
    hold(it, place)?;
    let member = find(it, place, user)?.ok_or(Error::NoSuchRow)?;
    let role = role_for(place, changes.access_level)?;
    let expires_on = match changes.expires_on {
        Change::Keep => member.expires_on,
        Change::Clear => None,
        Change::Set(day) => Some(day),
    };
    // To whom a personal project belongs does not hang on the membership.
    if matches!(place, Place::Group(_)) && (role < Role::Owner || expires_on.is_some()) {
        keep_an_owner(it, place, &member)?;
    }
    let now = it.now();
    store::members::put(it.db(), place, user, role, expires_on, now)?;
    Ok(Member { role, expires_on, ..member })
}

/// Ends a membership; everybody may end their own.
pub fn delete(it: &mut Writer<'_>, place_ref: &PlaceRef, user: &Given<i64>) -> Result<Ended> {
    it.may(Ability::Browse)?;
    let user = *user.get()?;
    let place = open_to_read(it, place_ref)?;
    hold(it, place)?;
    let member = find(it, place, user)?;
    let me = it.actor().user().map(|me| me.id);
    match (place, member) {
        (Place::Project(_), None) => Ok(Ended::Nobody),
        (Place::Group(_), None) => {
            open_to_administer(it, place_ref)?;
            Err(Error::NotFound(format!("Member: user_id:{user}")))
        }
        (_, Some(member)) => {
            if me != Some(user) {
                open_to_administer(it, place_ref)?;
            }
            keep_an_owner(it, place, &member)?;
            news::member_leaves(it, place, user)?;
            store::members::delete(it.db(), place, user)?;
            tell(it, place, user, Action::Left)?;
            Ok(Ended::Member(member))
        }
    }
}

fn open_to_read(it: &mut Reader<'_>, place: &PlaceRef) -> Result<Place> {
    Ok(match place {
        PlaceRef::Project(project) => Place::Project(it.open(project, ProjectAbility::ReadProject)?.id),
        PlaceRef::Group(group) => Place::Group(it.open_group(group, GroupAbility::ReadGroup)?.0.id),
    })
}

fn open_to_administer(it: &mut Writer<'_>, place: &PlaceRef) -> Result<Place> {
    Ok(match place {
        PlaceRef::Project(project) => Place::Project(it.open(project, ProjectAbility::AdministerMembers)?.id),
        PlaceRef::Group(group) => Place::Group(it.open_group(group, GroupAbility::AdministerMembers)?.0.id),
    })
}

/// Keeps everybody else from changing who belongs to a place while this transaction lasts.
fn hold(it: &mut Writer<'_>, place: Place) -> Result<()> {
    let (there, what) = match place {
        Place::Project(project) => (store::projects::lock(it.db(), project)?, "Project"),
        Place::Group(group) => (store::namespaces::by_id_to_change(it.db(), group)?.is_some(), "Group"),
    };
    if there { Ok(()) } else { Err(Error::not_found(what)) }
}

fn find(it: &mut Reader<'_>, place: Place, user: i64) -> Result<Option<Member>> {
    let now = it.now();
    Ok(store::members::get(it.db(), place, user, now)?)
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
fn keep_an_owner(it: &mut Writer<'_>, place: Place, leaving: &Member) -> Result<()> {
    let kept = match place {
        Place::Group(group) => {
            leaving.role < Role::Owner || store::groups::has_other_owner(it.db(), group, leaving.user.id)?
        }
        Place::Project(project) => !belongs_to(it, project, leaving.user.id)?,
    };
    if kept { Ok(()) } else { Err(Error::Forbidden(None)) }
}

/// Whether a project is a personal one of this user.
fn belongs_to(it: &mut Reader<'_>, project: i64, user: i64) -> Result<bool> {
    let viewer = it.viewer();
    let project = store::projects::find(it.db(), &viewer, store::projects::Key::Id(project))?;
    let is_theirs = |project: model::Project| {
        project.namespace.kind == NamespaceKind::User && project.namespace.owner_id == Some(user)
    };
    Ok(project.is_some_and(is_theirs))
}

/// Tells that somebody came to a project or left it, whoever brought that about. Of groups it is not told, nor of those
/// to whom the project belongs anyway.
fn tell(it: &mut Writer<'_>, place: Place, author: i64, action: Action) -> Result<()> {
    let Place::Project(project) = place else { return Ok(()) };
    if belongs_to(it, project, author)? {
        return Ok(());
    }
    let now = it.now();
    let event = NewEvent { project, author, action, target: None, push: None, intent: None, now };
    store::events::insert(it.db(), &event)?;
    Ok(())
}

/// Refuses to let a user go without whom a group would have no owner.
pub(crate) fn refuse_if_needed(it: &mut Writer<'_>, user: i64) -> Result<()> {
    // Two owners who go at once meet here.
    for group in store::groups::owned_by(it.db(), user)? {
        hold(it, Place::Group(group))?;
    }
    if store::groups::solely_owned_by(it.db(), user)?.is_empty() {
        return Ok(());
    }
    let text = "You must transfer ownership or delete groups before you can remove user";
    Err(Error::Taken(text.into()))
}
