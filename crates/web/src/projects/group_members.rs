//! The members of a group.

use askama::Template;
use axum::{body::Body, response::Response};
use forge::{
    GroupAbility,
    group_pages::InGroup,
    member_pages::{self, MemberSearches},
    members::MemberSourceRef,
};
use model::Role;

use super::{
    group_head::{GroupHead, GroupTab},
    member_list::{self, FormFailure, MEMBERS_PER_PAGE, MemberListView},
};
use crate::{
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    links,
    paging::{self, Pager},
    response, text,
};

#[derive(Template)]
#[template(path = "projects/group_members.html")]
struct GroupMembersTemplate {
    layout: Layout,
    head: GroupHead,
    view: MemberListView,
    fields: Fields,
    errors: FormErrors,
    pager: Pager,
}

/// Shows the members.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let fields = cx.query();
    render(&cx, fields, FormErrors::default()).await
}

/// Adds a member.
pub(crate) async fn add(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let added = member_list::add(&cx, source(&cx), &fields).await;
    answer(&cx, added, fields).await
}

/// Changes a member.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let updated = member_list::update(&cx, source(&cx), &fields).await;
    answer(&cx, updated, Fields::default()).await
}

/// Removes a member.
pub(crate) async fn remove(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    member_list::remove(&cx, source(&cx)).await?;
    Ok(back(&cx))
}

/// Ends the membership of the visitor.
pub(crate) async fn leave(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    member_list::leave(&cx, source(&cx)).await?;
    Ok(response::redirect("/dashboard"))
}

fn source(cx: &PageCx) -> MemberSourceRef {
    MemberSourceRef::Group(cx.group())
}

fn back(cx: &PageCx) -> Response {
    response::redirect(&links::in_group(&cx.params.subject, "group_members"))
}

async fn answer(cx: &PageCx, outcome: Result<(), FormFailure>, fields: Fields) -> PageResult {
    match outcome {
        Ok(()) => Ok(back(cx)),
        Err(FormFailure::Messages(errors)) => render(cx, fields, errors).await,
        Err(FormFailure::Page(error)) => Err(error),
    }
}

async fn render(cx: &PageCx, fields: Fields, errors: FormErrors) -> PageResult {
    let (group, query) = (cx.group(), cx.query());
    let page = paging::requested(&query, MEMBERS_PER_PAGE);
    let searches = MemberSearches { members: query.text("search"), candidates: query.text("find") };
    let (viewer, found) = cx.read(move |tx| member_pages::of_group(tx, &group, &searches, &page)).await?;
    let InGroup { group, role, value: page } = found;
    let can_administer = GroupAbility::AdministerMembers.is_granted_to(role);
    // The only owner cannot be removed.
    let owner = viewer.user().map(|user| user.id).filter(|_| !page.can_leave);
    let url = links::in_group(&group.full_path, "group_members");
    let (view, pager) = MemberListView::new(cx, url, page, Role::Owner, can_administer, owner);
    let status = errors.status();
    let template = GroupMembersTemplate {
        head: GroupHead::new(&group, role, viewer.user().is_some(), GroupTab::Members),
        layout: Layout::new(cx, viewer, format!("Members · {}", group.full_path)),
        view,
        fields,
        errors,
        pager,
    };
    response::page_with_status(status, &template)
}
