//! Members of projects and groups.

use axum::extract::State;
use forge::{
    Caller, Error, Forge, Unvalidated,
    members::{self, Ended, MemberChanges, PlaceRef},
};
use model::{Member, Slice, members::NewMember};
use schemars::JsonSchema;
use serde::Serialize;

use crate::v3::users::UserSummaryJson;
use crate::{
    extract::{Credentials, InGroup, InProject, UserNumber},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Day, Done, Reply, Stamp},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/projects/{id}/members", "Lists the members of a project", list_of_project)
        .post("/projects/{id}/members", "Makes somebody a member of a project", add_to_project)
        .also(&[422])
        .get("/projects/{id}/members/{user_id}", "Shows a member of a project", get_of_project)
        .put("/projects/{id}/members/{user_id}", "Changes a member of a project", update_in_project)
        .also(&[422])
        .delete("/projects/{id}/members/{user_id}", "Ends a membership of a project", remove_from_project)
        .get("/groups/{id}/members", "Lists the members of a group", list_of_group)
        .post("/groups/{id}/members", "Makes somebody a member of a group", add_to_group)
        .also(&[409, 422])
        .get("/groups/{id}/members/{user_id}", "Shows a member of a group", get_of_group)
        .put("/groups/{id}/members/{user_id}", "Changes a member of a group", update_in_group)
        .also(&[422])
        .delete("/groups/{id}/members/{user_id}", "Ends a membership of a group", remove_from_group)
}

async fn list_of_project(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<FindMembers>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<MemberJson>> {
    list(&forge, caller, PlaceRef::Project(project), given, paging, &site).await
}

async fn list_of_group(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    Params(given): Params<FindMembers>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<MemberJson>> {
    list(&forge, caller, PlaceRef::Group(group), given, paging, &site).await
}

async fn list(
    forge: &Forge,
    caller: Caller,
    place: PlaceRef,
    given: Unvalidated<FindMembers>,
    paging: Paging,
    site: &Site,
) -> Reply<Paged<MemberJson>> {
    let (search, page) = (given.map(|given| given.0), paging.page.clone());
    let found: Slice<Member> = forge.read(caller, move |tx| members::list(tx, &place, &search, &page)).await?;
    Ok(paging.answer(found.map(|member| MemberJson::new(member, site))))
}

async fn get_of_project(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    UserNumber(user): UserNumber,
    site: Site,
) -> Reply<Done<MemberJson>> {
    get(&forge, caller, PlaceRef::Project(project), user, &site).await
}

async fn get_of_group(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    UserNumber(user): UserNumber,
    site: Site,
) -> Reply<Done<MemberJson>> {
    get(&forge, caller, PlaceRef::Group(group), user, &site).await
}

async fn get(
    forge: &Forge,
    caller: Caller,
    place: PlaceRef,
    user: Unvalidated<i64>,
    site: &Site,
) -> Reply<Done<MemberJson>> {
    let member = forge.read(caller, move |tx| members::get(tx, &place, &user)).await?;
    Ok(Done(MemberJson::new(member, site)))
}

async fn add_to_project(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    Params(given): Params<AddMember>,
    site: Site,
) -> Reply<Created<MemberJson>> {
    add(&forge, caller, PlaceRef::Project(project), given, &site).await
}

async fn add_to_group(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    Params(given): Params<AddMember>,
    site: Site,
) -> Reply<Created<MemberJson>> {
    add(&forge, caller, PlaceRef::Group(group), given, &site).await
}

async fn add(
    forge: &Forge,
    caller: Caller,
    place: PlaceRef,
    given: Unvalidated<AddMember>,
    site: &Site,
) -> Reply<Created<MemberJson>> {
    let given = given.map(|given| given.0);
    let member = forge.write(caller, move |tx| members::create(tx, &place, &given)).await?;
    Ok(Created(MemberJson::new(member, site)))
}

async fn update_in_project(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    UserNumber(user): UserNumber,
    Params(given): Params<EditMember>,
    site: Site,
) -> Reply<Done<MemberJson>> {
    update(&forge, caller, PlaceRef::Project(project), user, given, &site).await
}

async fn update_in_group(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    UserNumber(user): UserNumber,
    Params(given): Params<EditMember>,
    site: Site,
) -> Reply<Done<MemberJson>> {
    update(&forge, caller, PlaceRef::Group(group), user, given, &site).await
}

async fn update(
    forge: &Forge,
    caller: Caller,
    place: PlaceRef,
    user: Unvalidated<i64>,
    given: Unvalidated<EditMember>,
    site: &Site,
) -> Reply<Done<MemberJson>> {
    let given = given.map(|given| given.0);
    let member = forge.write(caller, move |tx| members::update(tx, &place, &user, &given)).await?;
    Ok(Done(MemberJson::new(member, site)))
}

async fn remove_from_project(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InProject(project): InProject,
    UserNumber(user): UserNumber,
    site: Site,
) -> Reply<Done<EndedJson>> {
    remove(&forge, caller, PlaceRef::Project(project), user, &site).await
}

async fn remove_from_group(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    InGroup(group): InGroup,
    UserNumber(user): UserNumber,
    site: Site,
) -> Reply<Done<EndedJson>> {
    remove(&forge, caller, PlaceRef::Group(group), user, &site).await
}

async fn remove(
    forge: &Forge,
    caller: Caller,
    place: PlaceRef,
    user: Unvalidated<i64>,
    site: &Site,
) -> Reply<Done<EndedJson>> {
    let id = user.get().copied();
    let ended: Result<Ended, Error> = forge.write(caller, move |tx| members::delete(tx, &place, &user)).await;
    Ok(Done(match ended? {
        Ended::Member(member) => EndedJson::Member(MemberJson::new(member, site)),
        Ended::Nobody => EndedJson::Nobody { message: "Access revoked", id: id.unwrap_or_default() },
    }))
}

struct FindMembers(Option<String>);

impl FromParams for FindMembers {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(from.text("query", "A part of name or username, or the address").filter(|text| !text.is_empty()))
    }
}

struct AddMember(NewMember);

impl FromParams for AddMember {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(NewMember {
            user_id: from.required_integer("user_id", "Who"),
            access_level: from.required_integer("access_level", "10 to 40; 50 in groups"),
            expires_on: from.day("expires_at", "The first day on which it counts no more"),
        })
    }
}

struct EditMember(MemberChanges);

impl FromParams for EditMember {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(MemberChanges {
            access_level: from.required_integer("access_level", "10 to 40; 50 in groups"),
            expires_on: from.day_change("expires_at", "The first day on which it counts no more; empty: it stays"),
        })
    }
}

/// A member.
#[derive(Serialize, JsonSchema)]
struct MemberJson {
    #[serde(flatten)]
    user: UserSummaryJson,
    created_at: Stamp,
    access_level: i32,
    expires_at: Option<Day>,
}

impl MemberJson {
    fn new(member: Member, site: &Site) -> Self {
        let Member { user, role, expires_on } = member;
        Self {
            created_at: Stamp(user.created_at),
            user: UserSummaryJson::new(user, site),
            access_level: role.level(),
            expires_at: expires_on.map(Day),
        }
    }
}

/// What is left of a membership.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum EndedJson {
    Member(MemberJson),
    Nobody { message: &'static str, id: i64 },
}
