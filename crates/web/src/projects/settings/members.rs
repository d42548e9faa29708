//! The members of a project and the groups that it is shared with.

use askama::Template;
use axum::{body::Body, response::Response};
use forge::{
    ProjectAbility, Unvalidated,
    browse::InProject,
    member_pages::{self, MemberSearches, ShareByPath},
    members::MemberSourceRef,
    projects,
};
use model::{NamespaceId, NamespaceKind, Role};

use super::navigation::{SettingsNavigation, SettingsPage};
use crate::{
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    paging::{self, Pager},
    projects::{
        member_list::{self, FormFailure, MEMBERS_PER_PAGE, MemberListView},
        namespaces::role_name,
    },
    response, text,
};

#[derive(Template)]
#[template(path = "projects/settings/members.html")]
struct MembersTemplate {
    layout: Layout,
    head: ProjectHead,
    navigation: SettingsNavigation,
    /// The path of the group of the project, and the URL of its members.
    group: Option<(String, String)>,
    view: MemberListView,
    shares: Vec<ShareView>,
    can_share: bool,
    fields: Fields,
    errors: FormErrors,
    pager: Pager,
}

struct ShareView {
    name: String,
    path: Option<String>,
    role: &'static str,
    remove_url: String,
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

/// Shares the project with a group.
pub(crate) async fn share(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let shared = create_share(&cx, &fields).await;
    answer(&cx, shared, fields).await
}

/// Ends the sharing with a group.
pub(crate) async fn unshare(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, group) = (cx.project(), Unvalidated::valid(NamespaceId::new(cx.number("group_id")?)));
    cx.write(move |tx| projects::unshare(tx, &project, &group)).await?;
    Ok(back(&cx))
}

async fn create_share(cx: &PageCx, fields: &Fields) -> Result<(), FormFailure> {
    let expires_on = member_list::date(fields, "share_expires_at")?;
    let share = Unvalidated::valid(ShareByPath {
        path: fields.text("group"),
        access_level: member_list::level(fields, "group_access"),
        expires_on,
    });
    let project = cx.project();
    let shared = cx.write(move |tx| member_pages::share(tx, &project, &share)).await;
    shared.map_err(|error| member_list::failure(error, &["group"]))
}

fn source(cx: &PageCx) -> MemberSourceRef {
    MemberSourceRef::Project(cx.project())
}

fn back(cx: &PageCx) -> Response {
    response::redirect(&ProjectLinks::new(&cx.params.subject).to("project_members"))
}

async fn answer(cx: &PageCx, outcome: Result<(), FormFailure>, fields: Fields) -> PageResult {
    match outcome {
        Ok(()) => Ok(back(cx)),
        Err(FormFailure::Messages(errors)) => render(cx, fields, errors).await,
        Err(FormFailure::Page(error)) => Err(error),
    }
}

async fn render(cx: &PageCx, fields: Fields, errors: FormErrors) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, MEMBERS_PER_PAGE);
    let searches = MemberSearches { members: query.text("search"), candidates: query.text("find") };
    let (viewer, found) = cx.read(move |tx| member_pages::of_project(tx, &project, &searches, &page)).await?;
    let InProject { project, value: mut page } = found;
    let links = ProjectLinks::new(&project.full_path());
    let shares = std::mem::take(&mut page.shares).into_iter().map(|found| ShareView {
        remove_url: links.to(&format!("group_links/{}/delete", found.share.group_id)),
        name: found.share.group_name,
        path: found.path,
        role: role_name(found.share.role),
    });
    let shares: Vec<ShareView> = shares.collect();
    let can_administer = viewer.can_in(&project, ProjectAbility::AdministerMembers);
    let owner = project.namespace.owner_id;
    let url = links.to("project_members");
    let (view, pager) = MemberListView::new(cx, url, page, Role::Master, can_administer, owner);
    let group = (project.namespace.kind == NamespaceKind::Group).then(|| {
        let path = project.namespace.full_path.clone();
        let url = links::in_group(&path, "group_members");
        (path, url)
    });
    let status = errors.status();
    let template = MembersTemplate {
        head: ProjectHead::new(&project, Tab::Settings, &viewer),
        navigation: SettingsNavigation::new(&project, &viewer, SettingsPage::Members),
        can_share: viewer.can_in(&project, ProjectAbility::ShareProject) && !project.namespace.share_with_group_lock,
        layout: Layout::new(cx, viewer, format!("Members · {}", project.full_path())),
        group,
        view,
        shares,
        fields,
        errors,
        pager,
    };
    response::page_with_status(status, &template)
}
