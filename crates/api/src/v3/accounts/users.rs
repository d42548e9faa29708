//! Users.

use axum::extract::State;
use forge::{
    Error,
    users::{self, NewUserRequest, OwnUserUpdate, UserUpdate},
};
use model::{
    Change, User, UserId,
    users::{Identity, NewUser, Profile, UserChanges, UserFilter, UserSummary},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    context::CallerCx,
    error::ApiError,
    extract::IdsInPath,
    limits::sign_in_limit::PasswordAttempts,
    openapi::Tag,
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{CachedJson, Created, OkJson, Reply, SerializedJson, TimestampJson},
    routes::Routes,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new(Tag::Users)
        .get("/users", "List users; administrators see all fields", list)
        .post("/users", "Create a user; administrators only", create)
        .with_statuses(&[409])
        .get("/users/{id}", "Get a user; administrators see all fields", get)
        .put("/users/{id}", "Update a user; administrators only", update)
        .with_statuses(&[409])
        .delete("/users/{id}", "Delete a user; administrators only", delete)
        .get("/user", "Get the current user", current)
        .put("/user", "Update the profile, email address or password of the current user", update_own)
        .with_statuses(&[409])
        .put("/users/{id}/block", "Block a user; administrators only", block)
        .put("/users/{id}/unblock", "Unblock a user; administrators only", unblock)
}

async fn list(
    cx: CallerCx,
    Params(params): Params<ListUsers>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedUserJson>> {
    let filter = params.map(|params| params.0);
    let reply = cx.read_list(move |tx| {
        let found = users::list(tx, &filter, &paging.page)?;
        let is_admin = tx.actor().is_admin();
        Ok(paging.reply(found, |user| ListedUserJson::new(user, &site, is_admin)))
    });
    Ok(reply.await?)
}

async fn get(cx: CallerCx, IdsInPath(id): IdsInPath<UserId>, site: Site) -> Reply<OkJson<SingleUserJson>> {
    let (user, is_admin) = cx.read_inline(move |tx| Ok((users::get(tx, id)?, tx.actor().is_admin()))).await?;
    Ok(OkJson(SingleUserJson::new(user, &site, is_admin)))
}

async fn current(CallerCx { forge, caller }: CallerCx, site: Site) -> Reply<CachedJson<FullUserJson>> {
    let subject = format!("user at {}", site.root());
    let json = forge.read_cached(caller, subject, move |tx| {
        let user = users::current(tx)?;
        Ok(SerializedJson::new(&FullUserJson::new(user, &site)))
    });
    Ok(json.await?.into())
}

async fn create(cx: CallerCx, Params(params): Params<CreateUser>, site: Site) -> Reply<Created<FullUserJson>> {
    let params = params.map(|params| params.0);
    let prepared = cx.clone().run_blocking(move |cx| users::prepare_create(cx, &params)).await?;
    let user = cx.write(move |tx| users::create(tx, &prepared)).await?;
    Ok(Created(FullUserJson::new(user, &site)))
}

async fn update(
    State(app): State<App>,
    cx: CallerCx,
    IdsInPath(id): IdsInPath<UserId>,
    Params(params): Params<UpdateUser>,
    site: Site,
) -> Reply<OkJson<FullUserJson>> {
    let params = params.map(|params| params.0);
    let conflict = |error| match error {
        taken @ Error::Taken(_) => ApiError::OverrideStatus(app.dialect().user_update_conflict_status(), taken),
        other => other.into(),
    };
    let prepared = cx.clone().run_blocking(move |cx| users::prepare_update(cx, id, &params)).await.map_err(conflict)?;
    let user = cx.write(move |tx| users::update(tx, id, &prepared)).await.map_err(conflict)?;
    Ok(OkJson(FullUserJson::new(user, &site)))
}

async fn update_own(
    cx: CallerCx,
    attempts: PasswordAttempts,
    Params(params): Params<UpdateOwnUser>,
    site: Site,
) -> Reply<OkJson<FullUserJson>> {
    let params = params.map(|params| params.0);
    if params.validate().is_ok_and(|edit| edit.current_password.is_some()) {
        // A stolen token must not allow guessing the password faster than signing in does.
        attempts.count()?;
    }
    let prepared = cx.clone().run_blocking(move |cx| users::prepare_update_own(cx, &params)).await?;
    let user = cx.write(move |tx| users::update_own(tx, &prepared)).await?;
    Ok(OkJson(FullUserJson::new(user, &site)))
}

async fn delete(
    State(app): State<App>,
    cx: CallerCx,
    IdsInPath(id): IdsInPath<UserId>,
    site: Site,
) -> Reply<OkJson<Option<FullUserJson>>> {
    let user = cx.write(move |tx| users::delete(tx, id)).await?;
    if user.is_none() && !app.dialect().deletes_missing_users() {
        return Err(Error::not_found("User").into());
    }
    Ok(OkJson(user.map(|user| FullUserJson::new(user, &site))))
}

async fn block(cx: CallerCx, IdsInPath(id): IdsInPath<UserId>) -> Reply<OkJson<bool>> {
    cx.write(move |tx| users::block(tx, id)).await?;
    Ok(OkJson(true))
}

async fn unblock(cx: CallerCx, IdsInPath(id): IdsInPath<UserId>) -> Reply<OkJson<bool>> {
    cx.write(move |tx| users::unblock(tx, id)).await?;
    Ok(OkJson(true))
}

struct ListUsers(UserFilter);

impl FromParams for ListUsers {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(UserFilter {
            username: from.text("username", "Only the user with exactly this username; other filters are then ignored"),
            search: from
                .text(
                    "search",
                    "Only users whose name, username or, for administrators, email address contains this text",
                )
                .filter(|text| !text.is_empty()),
            active: from.flag("active", "Whether to list only active users; default: false").unwrap_or(false),
            blocked: from.flag("blocked", "Whether to list only blocked users; default: false").unwrap_or(false),
            external: from
                .flag(
                    "external",
                    "Whether to list only external users; ignored unless set by an administrator; default: false",
                )
                .unwrap_or(false),
            search_in_addresses: false,
        })
    }
}

struct CreateUser(NewUserRequest);

impl FromParams for CreateUser {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let email = from.required_text("email", "The primary email address");
        let password = from.required_text("password", "The password, 8 to 128 characters");
        let username =
            from.required_text("username", "The username, which is unique and the path of the personal namespace");
        let name = from.required_text("name", "The display name");
        let profile = ProfileParams::read(from);
        // The server sends no confirmation mails, so every address is confirmed at once.
        let _ = from.flag("confirm", "Accepted without effect: email addresses need no confirmation");
        let user = NewUser {
            email,
            username,
            name,
            admin: from.flag("admin", "Whether the user is an administrator; default: false").unwrap_or(false),
            external: from
                .flag("external", "Whether the user is external, without access to internal projects; default: false")
                .unwrap_or(false),
            can_create_group: from
                .flag("can_create_group", "Whether the user may create groups; default: true")
                .unwrap_or(true),
            projects_limit: from.integer(
                "projects_limit",
                "The maximum number of personal projects; default: the setting default-projects-limit",
            ),
            identity: read_identity(from),
            profile: Profile {
                bio: profile.bio.filter(|text| !text.is_empty()),
                location: profile.location.filter(|text| !text.is_empty()),
                skype: profile.skype.unwrap_or_default(),
                linkedin: profile.linkedin.unwrap_or_default(),
                twitter: profile.twitter.unwrap_or_default(),
                website_url: profile.website_url.unwrap_or_default(),
                organization: profile.organization.filter(|text| !text.is_empty()),
            },
        };
        Self(NewUserRequest { user, password })
    }
}

struct UpdateUser(UserUpdate);

impl FromParams for UpdateUser {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let email = from.text("email", "The primary email address");
        let password = from.text("password", "The password, 8 to 128 characters").filter(|text| !text.is_empty());
        let username = from.text("username", "The username, which is unique and the path of the personal namespace");
        let name = from.text("name", "The display name");
        let profile = ProfileParams::read(from);
        let changes = UserChanges {
            email: Change::from_required_text(email),
            username: Change::from_required_text(username),
            name: Change::from_required_text(name),
            admin: Change::from_option(from.flag("admin", "Whether the user is an administrator")),
            external: Change::from_option(
                from.flag("external", "Whether the user is external, without access to internal projects"),
            ),
            can_create_group: Change::from_option(from.flag("can_create_group", "Whether the user may create groups")),
            projects_limit: Change::from_option(
                from.integer("projects_limit", "The maximum number of personal projects"),
            ),
            bio: Change::from_text(profile.bio),
            location: Change::from_text(profile.location),
            skype: Change::from_text(profile.skype),
            linkedin: Change::from_text(profile.linkedin),
            twitter: Change::from_text(profile.twitter),
            website_url: Change::from_text(profile.website_url),
            organization: Change::from_text(profile.organization),
            identity: read_identity(from),
        };
        Self(UserUpdate { changes, password })
    }
}

struct UpdateOwnUser(OwnUserUpdate);

impl FromParams for UpdateOwnUser {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let email = from.text("email", "The primary email address; a change requires current_password");
        let password = from
            .text(
                "password",
                "The new password, 8 to 128 characters; requires current_password and ends all other sessions",
            )
            .filter(|text| !text.is_empty());
        let current_password = from.text("current_password", "The current password").filter(|text| !text.is_empty());
        let username = from.text("username", "The username, which is unique and the path of the personal namespace");
        let name = from.text("name", "The display name");
        let profile = ProfileParams::read(from);
        let changes = UserChanges {
            email: Change::from_required_text(email),
            username: Change::from_required_text(username),
            name: Change::from_required_text(name),
            bio: Change::from_text(profile.bio),
            location: Change::from_text(profile.location),
            skype: Change::from_text(profile.skype),
            linkedin: Change::from_text(profile.linkedin),
            twitter: Change::from_text(profile.twitter),
            website_url: Change::from_text(profile.website_url),
            organization: Change::from_text(profile.organization),
            ..UserChanges::default()
        };
        Self(OwnUserUpdate { changes, password, current_password })
    }
}

/// The profile fields that creation and updates share.
struct ProfileParams {
    skype: Option<String>,
    linkedin: Option<String>,
    twitter: Option<String>,
    website_url: Option<String>,
    organization: Option<String>,
    bio: Option<String>,
    location: Option<String>,
}

impl ProfileParams {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            skype: from.text("skype", "The Skype name"),
            linkedin: from.text("linkedin", "The LinkedIn name"),
            twitter: from.text("twitter", "The Twitter name"),
            website_url: from.text("website_url", "The URL of the website"),
            organization: from.text("organization", "The organization"),
            bio: from.text("bio", "The biography"),
            location: from.text("location", "The location"),
        }
    }
}

fn read_identity(from: &mut ParamReader<'_>) -> Option<Identity> {
    let extern_uid = from.text("extern_uid", "The ID of the user at the external identity provider; requires provider");
    let provider = from.text("provider", "The name of the external identity provider; requires extern_uid");
    from.all_or_none(&["extern_uid", "provider"]);
    Some(Identity { provider: provider?, extern_uid: extern_uid? })
}

/// A user as embedded in other resources and in lists.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UserSummaryJson {
    name: String,
    username: String,
    id: i64,
    #[schemars(with = "UserStateJson")]
    state: &'static str,
    avatar_url: String,
    web_url: String,
}

/// Whether a user is active or blocked.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the values in the OpenAPI document")]
enum UserStateJson {
    Active,
    Blocked,
    LdapBlocked,
}

impl UserSummaryJson {
    pub(crate) fn new(user: impl Into<UserSummary>, site: &Site) -> Self {
        let user: UserSummary = user.into();
        let avatar_url = site.url(&user.avatar_path());
        let UserSummary { id, username, name, state, .. } = user;
        Self { id: id.get(), state: state.as_str(), avatar_url, web_url: site.page(&username), name, username }
    }
}

/// A user as other users see it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UserJson {
    #[serde(flatten)]
    summary: UserSummaryJson,
    created_at: TimestampJson,
    is_admin: bool,
    bio: Option<String>,
    location: Option<String>,
    skype: String,
    linkedin: String,
    twitter: String,
    website_url: String,
    organization: String,
}

impl UserJson {
    pub(crate) fn new(mut user: User, site: &Site) -> Self {
        let profile = std::mem::take(&mut user.profile);
        Self {
            created_at: TimestampJson(user.created_at),
            is_admin: user.admin,
            bio: profile.bio,
            location: profile.location,
            skype: profile.skype,
            linkedin: profile.linkedin,
            twitter: profile.twitter,
            website_url: profile.website_url,
            organization: profile.organization.unwrap_or_default(),
            summary: UserSummaryJson::new(user, site),
        }
    }
}

/// A user with all fields, as administrators and the user see it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FullUserJson {
    #[serde(flatten)]
    user: UserJson,
    last_sign_in_at: Option<TimestampJson>,
    confirmed_at: Option<TimestampJson>,
    email: String,
    theme_id: i32,
    color_scheme_id: i32,
    projects_limit: i32,
    current_sign_in_at: Option<TimestampJson>,
    identities: Vec<IdentityJson>,
    can_create_group: bool,
    can_create_project: bool,
    two_factor_enabled: bool,
    external: bool,
}

impl FullUserJson {
    pub(crate) fn new(mut user: User, site: &Site) -> Self {
        let identities = std::mem::take(&mut user.identities).into_iter();
        Self {
            last_sign_in_at: user.last_sign_in_at.map(TimestampJson),
            confirmed_at: user.confirmed_at.map(TimestampJson),
            email: std::mem::take(&mut user.email),
            // The defaults of GitLab 8.14; Gable has no themes.
            theme_id: 2,
            color_scheme_id: 1,
            projects_limit: user.projects_limit,
            current_sign_in_at: user.current_sign_in_at.map(TimestampJson),
            identities: identities
                .map(|Identity { provider, extern_uid }| IdentityJson { provider, extern_uid })
                .collect(),
            can_create_group: user.can_create_group,
            can_create_project: user.can_create_project(),
            two_factor_enabled: false,
            external: user.external,
            user: UserJson::new(user, site),
        }
    }
}

/// An account at an external identity provider.
#[derive(Serialize, JsonSchema)]
struct IdentityJson {
    provider: String,
    extern_uid: String,
}

/// A user in a list: with all fields for administrators, a summary for others.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum ListedUserJson {
    Full(Box<FullUserJson>),
    Summary(UserSummaryJson),
}

impl ListedUserJson {
    fn new(user: User, site: &Site, is_admin: bool) -> Self {
        if is_admin {
            Self::Full(Box::new(FullUserJson::new(user, site)))
        } else {
            Self::Summary(UserSummaryJson::new(user, site))
        }
    }
}

/// A single user: with all fields for administrators.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum SingleUserJson {
    Full(Box<FullUserJson>),
    User(Box<UserJson>),
}

impl SingleUserJson {
    fn new(user: User, site: &Site, is_admin: bool) -> Self {
        if is_admin {
            Self::Full(Box::new(FullUserJson::new(user, site)))
        } else {
            Self::User(Box::new(UserJson::new(user, site)))
        }
    }
}
