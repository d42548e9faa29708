//! The list of members on the pages of projects and groups, and the forms that change it.

use forge::{
    Unvalidated,
    member_pages::{self, Invitation, MembersPage},
    members::{self, MemberChanges, MemberSourceRef},
};
use jiff::civil::Date;
use model::{Change, Role, User, UserId, UserState};

use super::namespaces::role_name;
use crate::{context::PageCx, error::PageError, form_errors::FormErrors, forms::Fields, links, paging::Pager};

pub(crate) const MEMBERS_PER_PAGE: i64 = 50;

/// The list of members and the forms around it.
pub(crate) struct MemberListView {
    /// The URL of the page.
    pub(crate) url: String,
    /// The access levels and names of the roles to choose from.
    pub(crate) roles: Vec<(String, &'static str)>,
    pub(crate) rows: Vec<MemberRow>,
    pub(crate) candidates: Vec<User>,
    pub(crate) search: String,
    pub(crate) find: String,
    pub(crate) can_administer: bool,
    pub(crate) can_leave: bool,
}

/// A member in the list.
pub(crate) struct MemberRow {
    pub(crate) id: UserId,
    pub(crate) name: String,
    pub(crate) username: String,
    pub(crate) url: String,
    pub(crate) level: String,
    pub(crate) role: &'static str,
    pub(crate) expires_on: String,
    pub(crate) is_blocked: bool,
    pub(crate) can_remove: bool,
    pub(crate) remove_url: String,
}

impl MemberListView {
    /// Creates the list with the roles up to the highest one. The owner of a personal project cannot be removed.
    pub(crate) fn new(
        cx: &PageCx,
        url: String,
        page: MembersPage,
        highest: Role,
        can_administer: bool,
        owner: Option<UserId>,
    ) -> (Self, Pager) {
        let query = cx.query();
        let pager = Pager::of(&url.parse().unwrap_or_default(), &query, &page.members);
        let roles = Role::ALL.into_iter().filter(|role| *role <= highest);
        let rows = page.members.items.into_iter().map(|member| MemberRow {
            id: member.user.id,
            url: links::page(&member.user.username),
            level: member.role.level().to_string(),
            role: role_name(member.role),
            expires_on: member.expires_on.map(|day| day.to_string()).unwrap_or_default(),
            is_blocked: member.user.state != UserState::Active,
            can_remove: owner != Some(member.user.id),
            remove_url: format!("{url}/{}/delete", member.user.id),
            name: member.user.name,
            username: member.user.username,
        });
        let view = Self {
            roles: roles.map(|role| (role.level().to_string(), role_name(role))).collect(),
            rows: rows.collect(),
            candidates: page.candidates,
            search: query.text("search"),
            find: query.text("find"),
            can_administer,
            can_leave: page.can_leave,
            url,
        };
        (view, pager)
    }
}

/// Adds a user to a project or a group.
pub(crate) async fn add(cx: &PageCx, source: MemberSourceRef, fields: &Fields) -> Result<(), FormFailure> {
    let expires_on = date(fields, "expires_at")?;
    let invitation =
        Invitation { username: fields.text("username"), access_level: level(fields, "access_level"), expires_on };
    let invitation = Unvalidated::valid(invitation);
    let added = cx.write(move |tx| member_pages::invite(tx, &source, &invitation)).await;
    added.map(drop).map_err(|error| failure(error, &["username"]))
}

/// Changes the role and the expiry of a member.
pub(crate) async fn update(cx: &PageCx, source: MemberSourceRef, fields: &Fields) -> Result<(), FormFailure> {
    let user = member_id(cx)?;
    let day = date(fields, "expires_at").map_err(|_| FormFailure::Messages(FormErrors::general(NOT_A_DATE)))?;
    let changes = Unvalidated::valid(MemberChanges {
        access_level: level(fields, "access_level"),
        expires_on: day.map_or(Change::Clear, Change::Set),
    });
    let updated = cx.write(move |tx| members::update(tx, &source, &user, &changes)).await;
    updated.map(drop).map_err(|error| failure(error, &[]))
}

/// Removes a member.
pub(crate) async fn remove(cx: &PageCx, source: MemberSourceRef) -> Result<(), PageError> {
    let user = member_id(cx)?;
    cx.write(move |tx| members::delete(tx, &source, &user)).await?;
    Ok(())
}

/// Ends the membership of the visitor.
pub(crate) async fn leave(cx: &PageCx, source: MemberSourceRef) -> Result<(), PageError> {
    cx.write(move |tx| {
        let me = Unvalidated::valid(tx.user_id()?);
        members::delete(tx, &source, &me)
    })
    .await?;
    Ok(())
}

/// Why a form was not accepted.
pub(crate) enum FormFailure {
    /// The user can correct it.
    Messages(FormErrors),
    /// The error has its own page.
    Page(PageError),
}

impl From<PageError> for FormFailure {
    fn from(error: PageError) -> Self {
        Self::Page(error)
    }
}

/// Converts the error of a form with these fields.
pub(crate) fn failure(error: forge::Error, fields: &[&str]) -> FormFailure {
    FormErrors::of(error, fields).map_or_else(FormFailure::Page, FormFailure::Messages)
}

const NOT_A_DATE: &str = "The expiry is not a date such as 2030-12-31";

/// Returns the date in a field; `None` if it is empty.
pub(crate) fn date(fields: &Fields, name: &'static str) -> Result<Option<Date>, FormFailure> {
    let text = fields.text(name);
    if text.is_empty() {
        return Ok(None);
    }
    let day = text.parse::<Date>().ok().filter(|_| text.len() == "2030-12-31".len());
    day.map(Some).ok_or_else(|| FormFailure::Messages(FormErrors::sentence(name, NOT_A_DATE)))
}

/// Returns the access level in a field; 0, which is no role, if it is not a number.
pub(crate) fn level(fields: &Fields, name: &str) -> i64 {
    fields.get(name).parse().unwrap_or_default()
}

fn member_id(cx: &PageCx) -> Result<Unvalidated<UserId>, PageError> {
    Ok(Unvalidated::valid(UserId::new(cx.number("user")?)))
}
