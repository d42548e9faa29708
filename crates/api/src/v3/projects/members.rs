//! Members of projects and groups.

use forge::members::{self, MemberChanges, MemberRemoval, MemberSourceRef};
use model::{Member, UserId, members::NewMember};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::{CallerCx, GroupCx, ProjectCx},
    extract::UserIdInPath,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, DateJson, OkJson, Reply, TimestampJson},
    routes::Routes,
    site::Site,
    v3::users::UserSummaryJson,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Members)
        .get("/projects/{id}/members", "List the members of a project", list::<ProjectCx>)
        .post("/projects/{id}/members", "Add a member to a project", add::<ProjectCx>)
        .with_statuses(&[422])
        .get("/projects/{id}/members/{user_id}", "Get a member of a project", get::<ProjectCx>)
        .put("/projects/{id}/members/{user_id}", "Update a member of a project", update::<ProjectCx>)
        .with_statuses(&[422])
        .delete("/projects/{id}/members/{user_id}", "Remove a member from a project", remove::<ProjectCx>)
        .get("/groups/{id}/members", "List the members of a group", list::<GroupCx>)
        .post("/groups/{id}/members", "Add a member to a group", add::<GroupCx>)
        .with_statuses(&[409, 422])
        .get("/groups/{id}/members/{user_id}", "Get a member of a group", get::<GroupCx>)
        .put("/groups/{id}/members/{user_id}", "Update a member of a group", update::<GroupCx>)
        .with_statuses(&[422])
        .delete("/groups/{id}/members/{user_id}", "Remove a member from a group", remove::<GroupCx>)
}

/// The caller of a request about the members of a project or a group.
struct MembersCx {
    cx: CallerCx,
    source: MemberSourceRef,
}

impl From<ProjectCx> for MembersCx {
    fn from(ProjectCx { forge, caller, project }: ProjectCx) -> Self {
        Self { cx: CallerCx { forge, caller }, source: MemberSourceRef::Project(project) }
    }
}

impl From<GroupCx> for MembersCx {
    fn from(GroupCx { forge, caller, group }: GroupCx) -> Self {
        Self { cx: CallerCx { forge, caller }, source: MemberSourceRef::Group(group) }
    }
}

async fn list<C: Into<MembersCx>>(
    cx: C,
    Params(params): Params<ListMembers>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<MemberJson>> {
    let MembersCx { cx, source } = cx.into();
    let search = params.map(|params| params.0);
    let reply = cx.read_list(move |tx| {
        let found = members::list(tx, &source, &search, &paging.page)?;
        Ok(paging.reply(found, |member| MemberJson::new(member, &site)))
    });
    Ok(reply.await?)
}

async fn get<C: Into<MembersCx>>(cx: C, UserIdInPath(user): UserIdInPath, site: Site) -> Reply<OkJson<MemberJson>> {
    let MembersCx { cx, source } = cx.into();
    let member = cx.read(move |tx| members::get(tx, &source, &user)).await?;
    Ok(OkJson(MemberJson::new(member, &site)))
}

async fn add<C: Into<MembersCx>>(cx: C, Params(params): Params<AddMember>, site: Site) -> Reply<Created<MemberJson>> {
    let MembersCx { cx, source } = cx.into();
    let params = params.map(|params| params.0);
    let member = cx.write(move |tx| members::create(tx, &source, &params)).await?;
    Ok(Created(MemberJson::new(member, &site)))
}

async fn update<C: Into<MembersCx>>(
    cx: C,
    UserIdInPath(user): UserIdInPath,
    Params(params): Params<UpdateMember>,
    site: Site,
) -> Reply<OkJson<MemberJson>> {
    let MembersCx { cx, source } = cx.into();
    let params = params.map(|params| params.0);
    let member = cx.write(move |tx| members::update(tx, &source, &user, &params)).await?;
    Ok(OkJson(MemberJson::new(member, &site)))
}

async fn remove<C: Into<MembersCx>>(
    cx: C,
    UserIdInPath(user): UserIdInPath,
    site: Site,
) -> Reply<OkJson<RemovedMemberJson>> {
    let MembersCx { cx, source } = cx.into();
    let id = user.validate().copied();
    let removal = cx.write(move |tx| members::delete(tx, &source, &user)).await?;
    Ok(OkJson(match removal {
        MemberRemoval::Removed(member) => RemovedMemberJson::Member(MemberJson::new(member, &site)),
        MemberRemoval::NotAMember => {
            RemovedMemberJson::NotAMember { message: "Access revoked", id: id.map_or(0, UserId::get) }
        }
    }))
}

struct ListMembers(Option<String>);

impl FromParams for ListMembers {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(
            from.text(
                "query",
                "Only members whose name or username contains this text, or whose email address equals it",
            )
            .filter(|text| !text.is_empty()),
        )
    }
}

const ACCESS_LEVEL: &str = "The access level: 10 guest, 20 reporter, 30 developer, 40 master, and in groups 50 owner";

struct AddMember(NewMember);

impl FromParams for AddMember {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(NewMember {
            user_id: from.required_id("user_id", "The ID of the user"),
            access_level: from.required_integer("access_level", ACCESS_LEVEL),
            expires_on: from.date(
                "expires_at",
                "The expiry date, the first day on which the membership is no longer valid; default: none",
            ),
        })
    }
}

struct UpdateMember(MemberChanges);

impl FromParams for UpdateMember {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(MemberChanges {
            access_level: from.required_integer("access_level", ACCESS_LEVEL),
            expires_on: from.date_change(
                "expires_at",
                "The expiry date, the first day on which the membership is no longer valid; empty to remove it",
            ),
        })
    }
}

/// A member.
#[derive(Serialize, JsonSchema)]
struct MemberJson {
    #[serde(flatten)]
    user: UserSummaryJson,
    created_at: TimestampJson,
    access_level: i32,
    expires_at: Option<DateJson>,
}

impl MemberJson {
    fn new(member: Member, site: &Site) -> Self {
        let Member { user, role, expires_on } = member;
        Self {
            created_at: TimestampJson(user.created_at),
            user: UserSummaryJson::new(user, site),
            access_level: role.level(),
            expires_at: expires_on.map(DateJson),
        }
    }
}

/// The response to the removal of a member.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum RemovedMemberJson {
    Member(MemberJson),
    NotAMember { message: &'static str, id: i64 },
}
