//! Users and the rules of their fields.

use crate::{Change, Time, Violations, emails, namespaces, text};

/// Somebody who can sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Number of the user.
    pub id: i64,
    /// The unique name, also the path of the personal namespace.
    pub username: String,
    /// The name people read.
    pub name: String,
    /// The primary address, in lower case.
    pub email: String,
    /// Whether the user may come in.
    pub state: UserState,
    /// Whether the user runs the instance.
    pub admin: bool,
    /// Whether the user sees only what was opened to them.
    pub external: bool,
    /// Whether the user may create groups.
    pub can_create_group: bool,
    /// How many personal projects the user may have.
    pub projects_limit: i32,
    /// How many personal projects the user has.
    pub personal_projects: i32,
    /// What the user tells about themselves.
    pub profile: Profile,
    /// Accounts elsewhere.
    pub identities: Vec<Identity>,
    /// When the user was created.
    pub created_at: Time,
    /// When the address was confirmed.
    pub confirmed_at: Option<Time>,
    /// When the user signed in last.
    pub current_sign_in_at: Option<Time>,
    /// When the user signed in the time before.
    pub last_sign_in_at: Option<Time>,
}

impl User {
    /// Whether there is room for one more personal project.
    pub fn can_create_project(&self) -> bool {
        self.projects_limit > self.personal_projects
    }
}

/// A user as other things show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSummary {
    /// Number of the user.
    pub id: i64,
    /// The unique name.
    pub username: String,
    /// The name people read.
    pub name: String,
    /// Whether the user may come in.
    pub state: UserState,
    /// When the user was created.
    pub created_at: Time,
}

impl From<User> for UserSummary {
    fn from(user: User) -> Self {
        let User { id, username, name, state, created_at, .. } = user;
        Self { id, username, name, state, created_at }
    }
}

/// The optional texts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// A few words.
    pub bio: Option<String>,
    /// Where the user is.
    pub location: Option<String>,
    /// Name on Skype.
    pub skype: String,
    /// Name on LinkedIn.
    pub linkedin: String,
    /// Name on Twitter.
    pub twitter: String,
    /// Own pages.
    pub website_url: String,
    /// Where the user works.
    pub organization: Option<String>,
}

/// An account of the user elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where.
    pub provider: String,
    /// Under which name.
    pub extern_uid: String,
}

/// Whether a user may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserState {
    /// Yes.
    Active,
    /// No, an administrator said so.
    Blocked,
    /// No, the directory said so; only the directory takes it back.
    DirectoryBlocked,
}

impl UserState {
    /// The word that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Blocked => "blocked",
            Self::DirectoryBlocked => "ldap_blocked",
        }
    }

    /// Reads the stored word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Active, Self::Blocked, Self::DirectoryBlocked].into_iter().find(|state| state.as_str() == word)
    }
}

/// A user about to be created. The password travels beside it, already hashed.
#[derive(Clone, Debug)]
pub struct NewUser {
    /// Primary address.
    pub email: String,
    /// Unique name.
    pub username: String,
    /// Readable name.
    pub name: String,
    /// Runs the instance.
    pub admin: bool,
    /// Sees only what was opened to them.
    pub external: bool,
    /// May create groups.
    pub can_create_group: bool,
    /// How many personal projects; `None` takes the instance's default.
    pub projects_limit: Option<i64>,
    /// The optional texts.
    pub profile: Profile,
    /// An account elsewhere.
    pub identity: Option<Identity>,
}

/// Changes to a user.
#[derive(Clone, Debug, Default)]
pub struct UserChanges {
    /// Primary address.
    pub email: Change<String>,
    /// Unique name.
    pub username: Change<String>,
    /// Readable name.
    pub name: Change<String>,
    /// Runs the instance.
    pub admin: Change<bool>,
    /// Sees only what was opened to them.
    pub external: Change<bool>,
    /// May create groups.
    pub can_create_group: Change<bool>,
    /// How many personal projects.
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
    /// An account elsewhere, added or replaced by provider.
    pub identity: Option<Identity>,
}

/// What only one user can have.
#[derive(Clone, Copy, Debug)]
pub struct Claims<'a> {
    /// Unique name.
    pub username: Option<&'a str>,
    /// Primary address.
    pub email: Option<&'a str>,
    /// An account elsewhere.
    pub identity: Option<&'a Identity>,
}

/// Which users a list shows.
#[derive(Clone, Debug, Default)]
pub struct UserFilter {
    /// Exactly this username; other filters then do not count.
    pub username: Option<String>,
    /// A part of name or username, or an address.
    pub search: Option<String>,
    /// Only those who may come in.
    pub active: bool,
    /// Only those who may not.
    pub blocked: bool,
    /// Only external ones.
    pub external: bool,
    /// Whether `search` looks into addresses, or takes only whole ones.
    pub search_in_addresses: bool,
}

/// The longest short text of a user.
pub const LONGEST: usize = 255;
const SHORTEST_PASSWORD: usize = 8;
const LONGEST_PASSWORD: usize = 128;

impl NewUser {
    /// An ordinary user about whom nothing else is known.
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

    /// The same user in the form in which it is stored: addresses in lower case, no tags in names.
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

    /// What this user would have for themselves.
    pub fn claims(&self) -> Claims<'_> {
        Claims { username: Some(&self.username), email: Some(&self.email), identity: self.identity.as_ref() }
    }

    /// Checks all fields.
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
            violations.longest(field, text, LONGEST);
        }
        check_identity(self.identity.as_ref(), violations);
    }
}

impl UserChanges {
    /// The same changes in the form in which they are stored.
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

    /// The same changes without those that only administrators make.
    pub fn about_oneself(self) -> Self {
        Self {
            admin: Change::Keep,
            external: Change::Keep,
            can_create_group: Change::Keep,
            projects_limit: Change::Keep,
            identity: None,
            ..self
        }
    }

    /// The same changes as they apply to this user: one who is or becomes external creates nothing.
    pub fn applied_to(mut self, user: &User) -> Self {
        if *self.external.set().unwrap_or(&user.external) {
            self.projects_limit = Change::Set(0);
            self.can_create_group = Change::Set(false);
        }
        self
    }

    /// What the user would newly have for themselves.
    pub fn claims(&self) -> Claims<'_> {
        Claims {
            username: self.username.set().map(String::as_str),
            email: self.email.set().map(String::as_str),
            identity: self.identity.as_ref(),
        }
    }

    /// Checks what changes.
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
            violations.longest(field, change.set().map_or("", String::as_str), LONGEST);
        }
        check_identity(self.identity.as_ref(), violations);
    }
}

/// Checks a password before it is hashed.
pub fn check_password(password: &str, violations: &mut Violations) {
    let length = password.chars().count();
    if length == 0 {
        violations.add("password", "can't be blank");
    } else if length < SHORTEST_PASSWORD {
        violations.add("password", format!("is too short (minimum is {SHORTEST_PASSWORD} characters)"));
    }
    violations.longest("password", password, LONGEST_PASSWORD);
}

fn check_name(name: &str, violations: &mut Violations) {
    violations.unless(!name.is_empty(), "name", "can't be blank");
    violations.longest("name", name, LONGEST);
    violations.unless(!text::has_control(name), "name", "is invalid");
}

fn check_projects_limit(limit: Option<i64>, violations: &mut Violations) {
    if let Some(limit) = limit {
        violations.unless(limit >= 0, "projects_limit", "must be greater than or equal to 0");
        let most = i32::MAX;
        violations.unless(limit <= i64::from(most), "projects_limit", format!("must be less than or equal to {most}"));
    }
}

fn check_identity(identity: Option<&Identity>, violations: &mut Violations) {
    if let Some(Identity { provider, extern_uid }) = identity {
        for (field, text) in [("identities.provider", provider), ("identities.extern_uid", extern_uid)] {
            violations.unless(!text.is_empty(), field, "can't be blank");
            violations.longest(field, text, LONGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann() -> NewUser {
        NewUser::new("ann", "ann@example.org", "Ann")
    }

    fn verdict(user: NewUser) -> String {
        let mut violations = Violations::new();
        user.normalized().check(&mut violations);
        violations.to_string()
    }

    #[test]
    fn all_faults_are_found_at_once() {
        assert_eq!(verdict(ann()), "");
        let faulty = NewUser {
            email: "ann".into(),
            name: String::new(),
            projects_limit: Some(-1),
            profile: Profile { bio: Some("x".repeat(256)), ..Profile::default() },
            ..ann()
        };
        assert_eq!(
            verdict(faulty),
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
        let verdict = |password: &str| {
            let mut violations = Violations::new();
            check_password(password, &mut violations);
            violations.to_string()
        };
        assert_eq!(verdict("12345678"), "");
        assert_eq!(verdict(""), "password can't be blank");
        assert_eq!(verdict("1234567"), "password is too short (minimum is 8 characters)");
        assert_eq!(verdict(&"x".repeat(129)), "password is too long (maximum is 128 characters)");
    }
}
