//! Users.

use axum::extract::State;
use forge::{
    Error, Forge,
    users::{self, Edit, OwnEdit, Registration},
};
use model::{
    Change, User,
    users::{Identity, NewUser, Profile, UserChanges, UserFilter, UserSummary},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    App,
    error::ApiError,
    extract::{Credentials, Numbers},
    paging::{Paged, Paging},
    params::{FromParams, ParamReader, Params},
    reply::{Created, Done, Recalled, Reply, Stamp, Written},
    routes::Routes,
    sign_in::PasswordAttempts,
    site::Site,
};

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/users", "Lists users; administrators see them in full", list)
        .post("/users", "Creates a user; administrators only", create)
        .also(&[409])
        .get("/users/{id}", "Shows a user; administrators see them in full", get)
        .put("/users/{id}", "Changes a user; administrators only", update)
        .also(&[409])
        .delete("/users/{id}", "Removes a user; administrators only", delete)
        .get("/user", "Shows the caller", current)
        .put("/user", "Changes the caller's own profile, address or password", update_own)
        .also(&[409])
        .put("/users/{id}/block", "Keeps a user out; administrators only", block)
        .put("/users/{id}/unblock", "Lets a user in again; administrators only", unblock)
}

async fn list(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<ListUsers>,
    paging: Paging,
    site: Site,
) -> Reply<Paged<ListedUserJson>> {
    let (filter, page) = (given.map(|given| given.0), paging.page.clone());
    let (users, in_full) = forge
        .read(caller, move |tx| {
            let users = users::list(tx, &filter, &page)?;
            Ok((users, tx.actor().is_admin()))
        })
        .await?;
    Ok(paging.answer(users.map(|user| ListedUserJson::new(user, &site, in_full))))
}

async fn get(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
    site: Site,
) -> Reply<Done<ShownUserJson>> {
    let (user, in_full) = forge.read_inline(caller, move |tx| Ok((users::get(tx, id)?, tx.actor().is_admin()))).await?;
    Ok(Done(ShownUserJson::new(user, &site, in_full)))
}

async fn current(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    site: Site,
) -> Reply<Recalled<FullUserJson>> {
    let subject = format!("user at {}", site.root());
    let written = forge.read_cached(caller, subject, move |tx| {
        let user = users::current(tx)?;
        Ok(Written::new(&FullUserJson::new(user, &site)))
    });
    Ok(written.await?.into())
}

async fn create(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Params(given): Params<CreateUser>,
    site: Site,
) -> Reply<Created<FullUserJson>> {
    let given = given.map(|given| given.0);
    let ready = forge.run_blocking(caller.clone(), move |tx| users::prepare_registration(tx, &given)).await?;
    let user = forge.write(caller, move |tx| users::create(tx, &ready)).await?;
    Ok(Created(FullUserJson::new(user, &site)))
}

async fn update(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
    Params(given): Params<UpdateUser>,
    site: Site,
) -> Reply<Done<FullUserJson>> {
    let given = given.map(|given| given.0);
    let conflict = |error| match error {
        taken @ Error::Taken(_) => ApiError::Under(app.dialect().user_update_conflict(), taken),
        other => other.into(),
    };
    let ready =
        forge.run_blocking(caller.clone(), move |tx| users::prepare_edit(tx, id, &given)).await.map_err(conflict)?;
    let user = forge.write(caller, move |tx| users::update(tx, id, &ready)).await.map_err(conflict)?;
    Ok(Done(FullUserJson::new(user, &site)))
}

async fn update_own(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    attempts: PasswordAttempts,
    Params(given): Params<UpdateOwnUser>,
    site: Site,
) -> Reply<Done<FullUserJson>> {
    let given = given.map(|given| given.0);
    if given.get().is_ok_and(|edit| edit.current_password.is_some()) {
        // A stolen token must not serve to guess the password faster than signing in does.
        attempts.count()?;
    }
    let ready = forge.run_blocking(caller.clone(), move |tx| users::prepare_own_edit(tx, &given)).await?;
    let user = forge.write(caller, move |tx| users::update_own(tx, &ready)).await?;
    Ok(Done(FullUserJson::new(user, &site)))
}

async fn delete(
    State(app): State<App>,
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
    site: Site,
) -> Reply<Done<Option<FullUserJson>>> {
    let user = forge.write(caller, move |tx| users::delete(tx, id)).await?;
    if user.is_none() && !app.dialect().deletes_missing_users() {
        return Err(Error::not_found("User").into());
    }
    Ok(Done(user.map(|user| FullUserJson::new(user, &site))))
}

async fn block(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<bool>> {
    forge.write(caller, move |tx| users::block(tx, id)).await?;
    Ok(Done(true))
}

async fn unblock(
    State(forge): State<Forge>,
    Credentials(caller): Credentials,
    Numbers([id]): Numbers<1>,
) -> Reply<Done<bool>> {
    forge.write(caller, move |tx| users::unblock(tx, id)).await?;
    Ok(Done(true))
}

struct ListUsers(UserFilter);

impl FromParams for ListUsers {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self(UserFilter {
            username: from.text("username", "Exactly this username; other filters then do not count"),
            search: from
                .text("search", "A part of name, username or, for administrators, e-mail address")
                .filter(|text| !text.is_empty()),
            active: from.flag("active", "true: only users who may come in").unwrap_or(false),
            blocked: from.flag("blocked", "true: only users who may not").unwrap_or(false),
            external: from.flag("external", "true: only external users; for administrators").unwrap_or(false),
            search_in_addresses: false,
        })
    }
}

struct CreateUser(Registration);

impl FromParams for CreateUser {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let email = from.required_text("email", "Primary e-mail address");
        let password = from.required_text("password", "Password of 8 to 128 characters");
        let username = from.required_text("username", "Unique name, also the path of the personal namespace");
        let name = from.required_text("name", "The name people read");
        let texts = Texts::read(from);
        // Taken and without effect: this instance sends no confirmation mails, so every address counts at once.
        let _ = from.flag("confirm", "Whether the address is to be confirmed; without effect here");
        let user = NewUser {
            email,
            username,
            name,
            admin: from.flag("admin", "Whether the user runs the instance").unwrap_or(false),
            external: from.flag("external", "Whether the user sees only what was opened to them").unwrap_or(false),
            can_create_group: from.flag("can_create_group", "Whether the user may create groups").unwrap_or(true),
            projects_limit: from.integer("projects_limit", "How many personal projects the user may have"),
            identity: read_identity(from),
            profile: Profile {
                bio: texts.bio.filter(|text| !text.is_empty()),
                location: texts.location.filter(|text| !text.is_empty()),
                skype: texts.skype.unwrap_or_default(),
                linkedin: texts.linkedin.unwrap_or_default(),
                twitter: texts.twitter.unwrap_or_default(),
                website_url: texts.website_url.unwrap_or_default(),
                organization: texts.organization.filter(|text| !text.is_empty()),
            },
        };
        Self(Registration { user, password })
    }
}

struct UpdateUser(Edit);

impl FromParams for UpdateUser {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let email = from.text("email", "Primary e-mail address");
        let password = from.text("password", "Password of 8 to 128 characters").filter(|text| !text.is_empty());
        let username = from.text("username", "Unique name, also the path of the personal namespace");
        let name = from.text("name", "The name people read");
        let texts = Texts::read(from);
        let changes = UserChanges {
            email: Change::from_required_text(email),
            username: Change::from_required_text(username),
            name: Change::from_required_text(name),
            admin: Change::from_option(from.flag("admin", "Whether the user runs the instance")),
            external: Change::from_option(from.flag("external", "Whether the user sees only what was opened to them")),
            can_create_group: Change::from_option(from.flag("can_create_group", "Whether the user may create groups")),
            projects_limit: Change::from_option(
                from.integer("projects_limit", "How many personal projects the user may have"),
            ),
            bio: Change::from_text(texts.bio),
            location: Change::from_text(texts.location),
            skype: Change::from_text(texts.skype),
            linkedin: Change::from_text(texts.linkedin),
            twitter: Change::from_text(texts.twitter),
            website_url: Change::from_text(texts.website_url),
            organization: Change::from_text(texts.organization),
            identity: read_identity(from),
        };
        Self(Edit { changes, password })
    }
}

struct UpdateOwnUser(OwnEdit);

impl FromParams for UpdateOwnUser {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let email = from.text("email", "Primary e-mail address; a change needs current_password");
        let password = from
            .text("password", "New password of 8 to 128 characters; needs current_password and ends all other sessions")
            .filter(|text| !text.is_empty());
        let current_password = from.text("current_password", "The password as it is").filter(|text| !text.is_empty());
        let username = from.text("username", "Unique name, also the path of the personal namespace");
        let name = from.text("name", "The name people read");
        let texts = Texts::read(from);
        let changes = UserChanges {
            email: Change::from_required_text(email),
            username: Change::from_required_text(username),
            name: Change::from_required_text(name),
            bio: Change::from_text(texts.bio),
            location: Change::from_text(texts.location),
            skype: Change::from_text(texts.skype),
            linkedin: Change::from_text(texts.linkedin),
            twitter: Change::from_text(texts.twitter),
            website_url: Change::from_text(texts.website_url),
            organization: Change::from_text(texts.organization),
            ..UserChanges::default()
        };
        Self(OwnEdit { changes, password, current_password })
    }
}

/// The optional texts of a user, as create and update both read them.
struct Texts {
    skype: Option<String>,
    linkedin: Option<String>,
    twitter: Option<String>,
    website_url: Option<String>,
    organization: Option<String>,
    bio: Option<String>,
    location: Option<String>,
}

impl Texts {
    fn read(from: &mut ParamReader<'_>) -> Self {
        Self {
            skype: from.text("skype", "Name on Skype"),
            linkedin: from.text("linkedin", "Name on LinkedIn"),
            twitter: from.text("twitter", "Name on Twitter"),
            website_url: from.text("website_url", "Own pages"),
            organization: from.text("organization", "Where the user works"),
            bio: from.text("bio", "A few words"),
            location: from.text("location", "Where the user is"),
        }
    }
}

fn read_identity(from: &mut ParamReader<'_>) -> Option<Identity> {
    let extern_uid = from.text("extern_uid", "Name of the user's account elsewhere");
    let provider = from.text("provider", "Where that account is");
    from.all_or_none(&["extern_uid", "provider"]);
    Some(Identity { provider: provider?, extern_uid: extern_uid? })
}

/// A user as embedded in other things and in lists.
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

/// Whether a user may come in.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the words for the document")]
enum UserStateJson {
    Active,
    Blocked,
    LdapBlocked,
}

impl UserSummaryJson {
    pub(crate) fn new(user: impl Into<UserSummary>, site: &Site) -> Self {
        let UserSummary { id, username, name, state, created_at: _ } = user.into();
        Self {
            id,
            state: state.as_str(),
            avatar_url: site.identicon(&username),
            web_url: site.page(&username),
            name,
            username,
        }
    }
}

/// A user as other users see them.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UserJson {
    #[serde(flatten)]
    summary: UserSummaryJson,
    created_at: Stamp,
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
            created_at: Stamp(user.created_at),
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

/// A user as administrators and the user themselves see them.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FullUserJson {
    #[serde(flatten)]
    user: UserJson,
    last_sign_in_at: Option<Stamp>,
    confirmed_at: Option<Stamp>,
    email: String,
    theme_id: i32,
    color_scheme_id: i32,
    projects_limit: i32,
    current_sign_in_at: Option<Stamp>,
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
            last_sign_in_at: user.last_sign_in_at.map(Stamp),
            confirmed_at: user.confirmed_at.map(Stamp),
            email: std::mem::take(&mut user.email),
            // The original's defaults; there are no themes here.
            theme_id: 2,
            color_scheme_id: 1,
            projects_limit: user.projects_limit,
            current_sign_in_at: user.current_sign_in_at.map(Stamp),
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

/// An account elsewhere.
#[derive(Serialize, JsonSchema)]
struct IdentityJson {
    provider: String,
    extern_uid: String,
}

/// A user in a list: in full for administrators, in short for others.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum ListedUserJson {
    Full(Box<FullUserJson>),
    Summary(UserSummaryJson),
}

impl ListedUserJson {
    fn new(user: User, site: &Site, in_full: bool) -> Self {
        if in_full {
            Self::Full(Box::new(FullUserJson::new(user, site)))
        } else {
            Self::Summary(UserSummaryJson::new(user, site))
        }
    }
}

/// A single user: in full for administrators.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum ShownUserJson {
    Full(Box<FullUserJson>),
    User(Box<UserJson>),
}

impl ShownUserJson {
    fn new(user: User, site: &Site, in_full: bool) -> Self {
        if in_full {
            Self::Full(Box::new(FullUserJson::new(user, site)))
        } else {
            Self::User(Box::new(UserJson::new(user, site)))
        }
    }
}
