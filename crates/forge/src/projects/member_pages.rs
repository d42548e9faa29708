//! What the pages of members show and change. A page names a new member by username, and a group by path.

use jiff::civil::Date;
use model::{
    Member, Namespace, Page, Project, Slice, User, UserId, UserState, Violations,
    members::{NewMember, SharedGroup},
    users::UserFilter,
};
use store::members::{MemberSearch, MemberSource};

use super::projects;
use crate::{
    Error, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    browse::InProject,
    group_pages::InGroup,
    members::{self, MemberSourceRef},
    projects::NewShare,
    users,
};

/// The maximum number of users that the search for new members finds.
const MAX_CANDIDATES: i64 = 10;

/// The searches of a page with members.
#[derive(Clone, Debug, Default)]
pub struct MemberSearches {
    /// Only members whose name or username contains this text.
    pub members: String,
    /// Users to add whose name or username contains this text; none if it is empty.
    pub candidates: String,
}

/// The members of a project or a group.
pub struct MembersPage {
    /// The members, newest first.
    pub members: Slice<Member>,
    /// Users who can be added.
    pub candidates: Vec<User>,
    /// The groups that the project is shared with.
    pub shares: Vec<ShareWithPath>,
    /// Whether the visitor has a membership that can be ended: neither the owner of a personal project nor the only owner of a
    /// group can leave.
    pub can_leave: bool,
}

/// A group that a project is shared with.
pub struct ShareWithPath {
    /// The share.
    pub share: SharedGroup,
    /// The full path of the group; `None` if the visitor cannot see it.
    pub path: Option<String>,
}

/// A user to add, with the role.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The username.
    pub username: String,
    /// The access level as sent, not necessarily that of a role.
    pub access_level: i64,
    /// The first day on which the membership is no longer valid.
    pub expires_on: Option<Date>,
}

/// A group to share a project with.
#[derive(Clone, Debug)]
pub struct ShareByPath {
    /// The full path of the group.
    pub path: String,
    /// The maximum access level of its members as sent, not necessarily that of a role.
    pub access_level: i64,
    /// The first day on which the share is no longer valid.
    pub expires_on: Option<Date>,
}

/// Returns the members of a project.
pub fn of_project(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    searches: &MemberSearches,
    page: &Unvalidated<Page>,
) -> Result<InProject<MembersPage>> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let project = projects::with_relations(tx, project)?;
    let may_add = tx.can(&project, ProjectAbility::AdministerMembers);
    let mut value = members_page(tx, MemberSource::Project(project.id), searches, may_add, *page.validate()?)?;
    value.shares = shares(tx, &project)?;
    Ok(InProject { project, value })
}

/// Returns the members of a group.
pub fn of_group(
    tx: &mut ReadTx<'_>,
    group: &GroupRef,
    searches: &MemberSearches,
    page: &Unvalidated<Page>,
) -> Result<InGroup<MembersPage>> {
    let (group, role) = tx.group(group, GroupAbility::ReadGroup)?;
    let may_add = GroupAbility::AdministerMembers.is_granted_to(role);
    let value = members_page(tx, MemberSource::Group(group.id), searches, may_add, *page.validate()?)?;
    Ok(InGroup { group, role, value })
}

/// Adds a user to a project or a group.
pub fn invite(tx: &mut WriteTx<'_>, source: &MemberSourceRef, invitation: &Unvalidated<Invitation>) -> Result<Member> {
    match source {
        MemberSourceRef::Project(project) => {
            tx.project(project, ProjectAbility::AdministerMembers)?;
        }
        MemberSourceRef::Group(group) => {
            tx.group(group, GroupAbility::AdministerMembers)?;
        }
    }
    let Invitation { username, access_level, expires_on } = invitation.validate()?;
    let user = find_user(tx.read(), username)?;
    let new = NewMember { user_id: user, access_level: *access_level, expires_on: *expires_on };
    let member = members::create(tx, source, &Unvalidated::valid(new))?;
    // The API returns an existing member of a project as it is; a page has to say that nothing changed.
    let is_new = i64::from(member.role.level()) == *access_level && member.expires_on == *expires_on;
    if is_new { Ok(member) } else { Err(Violations::one("username", "is a member already").into()) }
}

/// Shares a project with a group.
pub fn share(tx: &mut WriteTx<'_>, project: &ProjectRef, share: &Unvalidated<ShareByPath>) -> Result<()> {
    tx.project(project, ProjectAbility::ShareProject)?;
    let ShareByPath { path, access_level, expires_on } = share.validate()?;
    let group = find_group(tx, path)?;
    let new = NewShare { group_id: group.id, group_access: *access_level, expires_on: *expires_on };
    projects::share(tx, project, &Unvalidated::valid(new))?;
    Ok(())
}

fn members_page(
    tx: &mut ReadTx<'_>,
    source: MemberSource,
    searches: &MemberSearches,
    may_add: bool,
    page: Page,
) -> Result<MembersPage> {
    let (now, partial_emails) = (tx.now(), tx.actor().is_admin());
    let text = Some(searches.members.as_str()).filter(|text| !text.is_empty());
    let members = if projects::cannot_match(text) {
        Slice::empty(page)
    } else {
        let search = text.map(|text| MemberSearch { text, partial_emails });
        store::members::list(tx.db(), source, search.as_ref(), page, now)?
    };
    let own_id = tx.user_id()?;
    let own = store::members::get(tx.db(), source, own_id, now)?;
    let can_leave = match own {
        Some(member) => members::may_be_removed(tx, source, &member)?,
        None => false,
    };
    let candidates = if may_add { find_candidates(tx, &searches.candidates)? } else { Vec::new() };
    Ok(MembersPage { members, candidates, shares: Vec::new(), can_leave })
}

fn find_candidates(tx: &mut ReadTx<'_>, search: &str) -> Result<Vec<User>> {
    if search.is_empty() {
        return Ok(Vec::new());
    }
    let filter = UserFilter { search: Some(search.to_owned()), active: true, ..UserFilter::default() };
    let page = Page { number: 1, size: MAX_CANDIDATES };
    Ok(users::list(tx, &Unvalidated::valid(filter), &Unvalidated::valid(page))?.items)
}

fn shares(tx: &mut ReadTx<'_>, project: &Project) -> Result<Vec<ShareWithPath>> {
    let with_path = |share: &SharedGroup| {
        let path = match tx.group(&GroupRef::Id(share.group_id), GroupAbility::ReadGroup) {
            Ok((group, _)) => Some(group.full_path),
            Err(Error::NotFound(_) | Error::Forbidden(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(ShareWithPath { share: share.clone(), path })
    };
    project.shared_with.iter().map(with_path).collect()
}

/// Returns the active user with a username; blocked users cannot be found, as in the search.
fn find_user(tx: &mut ReadTx<'_>, username: &str) -> Result<UserId> {
    let username = username.trim().trim_start_matches('@');
    if username.is_empty() {
        return Err(Violations::one("username", "can't be blank").into());
    }
    let found = store::users::by_username(tx.db(), username)?.filter(|user| user.state == UserState::Active);
    found.map(|user| user.id).ok_or_else(|| Violations::one("username", "does not exist").into())
}

/// Returns the group with a path, if the visitor can see it.
fn find_group(tx: &mut WriteTx<'_>, path: &str) -> Result<Namespace> {
    let missing = || Error::from(Violations::one("group", "does not exist"));
    match tx.group(&GroupRef::Path(path.trim().to_owned()), GroupAbility::ReadGroup) {
        Ok((group, _)) => Ok(group),
        Err(Error::NotFound(_) | Error::Forbidden(_)) => Err(missing()),
        Err(error) => Err(error),
    }
}
