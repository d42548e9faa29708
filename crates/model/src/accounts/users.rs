//! Users and the validation of their fields.

use crate::{Change, Time, UserId, Violations, avatars, emails, namespaces, text};

/// A user account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The ID of the user.
    pub id: UserId,
    /// The unique username, also the path of the personal namespace.
    pub username: String,
    /// The display name.
    pub name: String,
    /// The primary e-mail address, in lower case.
    pub email: String,
    /// Whether the user is active or blocked.
    pub state: UserState,
    /// Whether the user is an administrator.
    pub admin: bool,
    /// Whether the user is external: without access to internal projects and groups.
    pub external: bool,
    /// Whether the user may create groups.
    pub can_create_group: bool,
    /// The maximum number of personal projects.
    pub projects_limit: i32,
    /// The current number of personal projects.
    pub personal_projects: i32,
    /// The name of the uploaded avatar.
    pub avatar: Option<String>,
    /// The optional profile fields.
    pub profile: Profile,
    /// Accounts at external identity providers.
    pub identities: Vec<Identity>,
    /// The time at which the user was created.
    pub created_at: Time,
    /// The time at which the primary address was confirmed.
    pub confirmed_at: Option<Time>,
    /// The time of the most recent sign-in.
    pub current_sign_in_at: Option<Time>,
    /// The time of the sign-in before that.
    pub last_sign_in_at: Option<Time>,
}

impl User {
    /// Returns whether the user is below their limit of personal projects.
    pub fn can_create_project(&self) -> bool {
        self.projects_limit > self.personal_projects
    }

    /// Returns the path of the avatar, uploaded or generated.
    pub fn avatar_path(&self) -> String {
        avatars::path_of_user(self.id, &self.username, self.avatar.as_deref())
    }
}

/// The fields of a user that other resources embed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSummary {
    /// The ID of the user.
    pub id: UserId,
    /// The unique username.
    pub username: String,
    /// The display name.
    pub name: String,
    /// Whether the user is active or blocked.
    pub state: UserState,
    /// The name of the uploaded avatar.
    pub avatar: Option<String>,
    /// The time at which the user was created.
    pub created_at: Time,
}

impl UserSummary {
    /// Returns the path of the avatar, uploaded or generated.
    pub fn avatar_path(&self) -> String {
        avatars::path_of_user(self.id, &self.username, self.avatar.as_deref())
    }
}

impl From<User> for UserSummary {
    fn from(user: User) -> Self {
        let User { id, username, name, state, avatar, created_at, .. } = user;
        Self { id, username, name, state, avatar, created_at }
    }
}

/// The optional profile fields of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// A short biography.
    pub bio: Option<String>,
    /// The location of the user.
    pub location: Option<String>,
    /// The Skype name.
    pub skype: String,
    /// The LinkedIn name.
    pub linkedin: String,
    /// The Twitter name.
    pub twitter: String,
    /// The URL of a personal website.
    pub website_url: String,
    /// The organization the user belongs to.
    pub organization: Option<String>,
}

/// An account of the user at an external identity provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the provider.
    pub provider: String,
    /// The ID of the user at the provider.
    pub extern_uid: String,
}

/// Whether a user is active or blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserState {
    /// The user can sign in.
    Active,
    /// Blocked by an administrator.
    Blocked,
    /// Blocked by the LDAP directory; the API cannot unblock the user.
    LdapBlocked,
}

impl UserState {
    /// The name used in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Blocked => "blocked",
            Self::LdapBlocked => "ldap_blocked",
        }
    }

    /// Parses the stored name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Active, Self::Blocked, Self::LdapBlocked].into_iter().find(|state| state.as_str() == text)
    }
}

/// A user to create; the hash of the password is passed separately.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// The primary e-mail address.
    pub email: String,
    /// The unique username.
    pub username: String,
    /// The display name.
    pub name: String,
    /// Whether the user is an administrator.
    pub admin: bool,
    /// Whether the user is external.
    pub external: bool,
    /// Whether the user may create groups.
    pub can_create_group: bool,
    /// The maximum number of personal projects; `None` means the default of the instance.
    pub projects_limit: Option<i64>,
    /// The optional profile fields.
    pub profile: Profile,
    /// An account at an external identity provider.
    pub identity: Option<Identity>,
}

/// The fields of a user to change.
#[derive(Clone, Debug, Default)]
pub struct UserChanges {
    /// The primary e-mail address.
    pub email: Change<String>,
    /// The unique username.
    pub username: Change<String>,
    /// The display name.
    pub name: Change<String>,
    /// Whether the user is an administrator.
    pub admin: Change<bool>,
    /// Whether the user is external.
    pub external: Change<bool>,
    /// Whether the user may create groups.
    pub can_create_group: Change<bool>,
    /// The maximum number of personal projects.
    pub projects_limit: Change<i64>,
    /// See [`Profile`].
    pub bio: Change<String>,
    /// See [`Profile`].
    pub location: Change<String>,
    /// See [`Profile`].
    pub skype: Change<String>,
    /// See [`Profile`].
    pub linkedin: Change<String>,
    /// See [`Profile`].
    pub twitter: Change<String>,
    /// See [`Profile`].
    pub website_url: Change<String>,
    /// See [`Profile`].
    pub organization: Change<String>,
    /// An account at an external identity provider; replaces the one at the same provider.
    pub identity: Option<Identity>,
}

/// The fields of a user that must be unique.
#[derive(Clone, Copy, Debug)]
pub struct UniqueFields<'a> {
    /// The unique username.
    pub username: Option<&'a str>,
    /// The primary e-mail address.
    pub email: Option<&'a str>,
    /// An account at an external identity provider.
    pub identity: Option<&'a Identity>,
}

/// Restricts a list of users.
#[derive(Clone, Debug, Default)]
pub struct UserFilter {
    /// Only the user with exactly this username; the other filters are then ignored.
    pub username: Option<String>,
    /// Only users whose name or username contains this text, or whose address matches it.
    pub search: Option<String>,
    /// Only active users.
    pub active: bool,
    /// Only blocked users.
    pub blocked: bool,
    /// Only external users.
    pub external: bool,
    /// Whether `search` matches parts of addresses; otherwise it matches whole addresses only.
    pub search_in_addresses: bool,
}

/// The maximum length of the text fields of a user.
pub const MAX_TEXT_LENGTH: usize = 255;
const MIN_PASSWORD_LENGTH: usize = 8;
const MAX_PASSWORD_LENGTH: usize = 128;

impl NewUser {
    /// Creates an ordinary user with default settings.
    pub fn new(username: &str, email: &str, name: &str) -> Self {
        Self {
            email: email.to_owned(),
            username: username.to_owned(),
            name: name.to_owned(),
            admin: false,
            external: false,
            can_create_group: true,
            projects_limit: None,
            profile: Profile::default(),
            identity: None,
        }
    }

    /// Returns the user in stored form: addresses in lower case, names without HTML tags.
    pub fn normalized(mut self) -> Self {
        self.email = emails::normalize(&self.email);
        for field in [&mut self.name, &mut self.username] {
            *field = text::strip_tags(field).trim().to_owned();
        }
        for field in [&mut self.profile.skype, &mut self.profile.linkedin, &mut self.profile.twitter] {
            *field = text::strip_tags(field);
        }
        if self.external {
            self.projects_limit = Some(0);
            self.can_create_group = false;
        }
        self
    }

    /// Returns the fields that must be unique.
    pub fn unique_fields(&self) -> UniqueFields<'_> {
        UniqueFields { username: Some(&self.username), email: Some(&self.email), identity: self.identity.as_ref() }
    }

    /// Validates all fields.
    pub fn check(&self, violations: &mut Violations) {
        emails::check(&self.email, violations);
        check_name(&self.name, violations);
        namespaces::check_path("username", &self.username, violations);
        check_projects_limit(self.projects_limit, violations);
        let profile = &self.profile;
        for (field, text) in [
            ("bio", profile.bio.as_deref().unwrap_or_default()),
            ("location", profile.location.as_deref().unwrap_or_default()),
            ("skype", &profile.skype),
            ("linkedin", &profile.linkedin),
            ("twitter", &profile.twitter),
            ("website_url", &profile.website_url),
            ("organization", profile.organization.as_deref().unwrap_or_default()),
        ] {
            violations.max_length(field, text, MAX_TEXT_LENGTH);
        }
        check_identity(self.identity.as_ref(), violations);
    }
}

impl UserChanges {
    /// Returns the changes in stored form.
    pub fn normalized(mut self) -> Self {
        if let Change::Set(email) = &mut self.email {
            *email = emails::normalize(email);
        }
        for field in [&mut self.name, &mut self.username] {
            if let Change::Set(value) = field {
                *value = text::strip_tags(value).trim().to_owned();
            }
        }
        for field in [&mut self.skype, &mut self.linkedin, &mut self.twitter] {
            if let Change::Set(value) = field {
                *value = text::strip_tags(value);
            }
        }
        self
    }

    /// Returns the changes without those that only administrators may make.
    pub fn without_admin_fields(self) -> Self {
        Self {
            admin: Change::Keep,
            external: Change::Keep,
            can_create_group: Change::Keep,
            projects_limit: Change::Keep,
            identity: None,
            ..self
        }
    }

    /// Returns the changes as they apply to this user: an external user can create neither projects nor groups.
    pub fn applied_to(mut self, user: &User) -> Self {
        if *self.external.set().unwrap_or(&user.external) {
            self.projects_limit = Change::Set(0);
            self.can_create_group = Change::Set(false);
        }
        self
    }

    /// Returns the changed fields that must be unique.
    pub fn unique_fields(&self) -> UniqueFields<'_> {
        UniqueFields {
            username: self.username.set().map(String::as_str),
            email: self.email.set().map(String::as_str),
            identity: self.identity.as_ref(),
        }
    }

    /// Validates the changed fields.
    pub fn check(&self, violations: &mut Violations) {
        if let Some(email) = self.email.set() {
            emails::check(email, violations);
        }
        if let Some(name) = self.name.set() {
            check_name(name, violations);
        }
        if let Some(username) = self.username.set() {
            namespaces::check_path("username", username, violations);
        }
        check_projects_limit(self.projects_limit.set().copied(), violations);
        for (field, change) in [
            ("bio", &self.bio),
            ("location", &self.location),
            ("skype", &self.skype),
            ("linkedin", &self.linkedin),
            ("twitter", &self.twitter),
            ("website_url", &self.website_url),
            ("organization", &self.organization),
        ] {
            violations.max_length(field, change.set().map_or("", String::as_str), MAX_TEXT_LENGTH);
        }
        check_identity(self.identity.as_ref(), violations);
    }
}

/// Validates a password before it is hashed.
pub fn check_password(password: &str, violations: &mut Violations) {
    let length = password.chars().count();
    if length == 0 {
        violations.add("password", "can't be blank");
    } else if length < MIN_PASSWORD_LENGTH {
        violations.add("password", format!("is too short (minimum is {MIN_PASSWORD_LENGTH} characters)"));
    }
    violations.max_length("password", password, MAX_PASSWORD_LENGTH);
}

fn check_name(name: &str, violations: &mut Violations) {
    violations.require(!name.is_empty(), "name", "can't be blank");
    violations.max_length("name", name, MAX_TEXT_LENGTH);
    violations.require(!text::has_control(name), "name", "is invalid");
}

fn check_projects_limit(limit: Option<i64>, violations: &mut Violations) {
    if let Some(limit) = limit {
        violations.require(limit >= 0, "projects_limit", "must be greater than or equal to 0");
        let max = i32::MAX;
        violations.require(limit <= i64::from(max), "projects_limit", format!("must be less than or equal to {max}"));
    }
}

fn check_identity(identity: Option<&Identity>, violations: &mut Violations) {
    if let Some(Identity { provider, extern_uid }) = identity {
        for (field, text) in [("identities.provider", provider), ("identities.extern_uid", extern_uid)] {
            violations.require(!text.is_empty(), field, "can't be blank");
            violations.max_length(field, text, MAX_TEXT_LENGTH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann() -> NewUser {
        NewUser::new("ann", "ann@example.org", "Ann")
    }

    fn violations_of(user: NewUser) -> String {
        let mut violations = Violations::new();
        user.normalized().check(&mut violations);
        violations.to_string()
    }

    #[test]
    fn all_violations_are_reported_at_once() {
        assert_eq!(violations_of(ann()), "");
        let invalid = NewUser {
            email: "ann".into(),
            name: String::new(),
            projects_limit: Some(-1),
            profile: Profile { bio: Some("x".repeat(256)), ..Profile::default() },
            ..ann()
        };
        assert_eq!(
            violations_of(invalid),
            "email is invalid; name can't be blank; projects_limit must be greater than or equal to 0; \
             bio is too long (maximum is 255 characters)"
        );
    }

    #[test]
    fn an_external_user_creates_nothing() {
        let external = NewUser { external: true, projects_limit: Some(5), ..ann() }.normalized();
        assert_eq!((external.projects_limit, external.can_create_group), (Some(0), false));
    }

    #[test]
    fn a_password_has_eight_to_128_characters() {
        let violations_of = |password: &str| {
            let mut violations = Violations::new();
            check_password(password, &mut violations);
            violations.to_string()
        };
        assert_eq!(violations_of("12345678"), "");
        assert_eq!(violations_of(""), "password can't be blank");
        assert_eq!(violations_of("1234567"), "password is too short (minimum is 8 characters)");
        assert_eq!(violations_of(&"x".repeat(129)), "password is too long (maximum is 128 characters)");
    }
}
