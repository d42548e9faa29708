//! Personal access tokens.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{Time, TokenId, UserId, Violations, text};

/// The number of characters of a token; stock GitLab clients take longer ones for OAuth tokens.
pub const LENGTH: usize = 20;

/// An access token without its secret, which is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The ID of the token.
    pub id: TokenId,
    /// The user it authenticates.
    pub user_id: UserId,
    /// The name chosen by its owner.
    pub name: String,
    /// The scopes it grants.
    pub scopes: Vec<Scope>,
    /// The time from which it is invalid.
    pub expires_at: Option<Time>,
    /// The time at which it was revoked.
    pub revoked_at: Option<Time>,
    /// The time at which it was last used, to within a quarter of an hour.
    pub last_used_at: Option<Time>,
    /// The time at which it was created.
    pub created_at: Time,
    /// Whether it was issued by `POST /session`; such tokens are revoked when the password changes.
    pub session: bool,
}

impl Token {
    /// Returns whether the token is neither revoked nor expired.
    pub fn is_active(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// Restricts a list of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenFilter {
    /// Only tokens of this user.
    pub user: Option<UserId>,
    /// Only revoked tokens, or only tokens that are not revoked.
    pub revoked: Option<bool>,
    /// Only tokens that are neither revoked nor expired, or only those that are.
    pub active: Option<bool>,
}

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything that its user may do.
    Api,
    /// Reading users only.
    ReadUser,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 2] = [Self::Api, Self::ReadUser];

    /// The name used in the database and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::ReadUser => "read_user",
        }
    }

    /// Parses the name of a scope.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// A secret text, such as a new token; its `Debug` output hides it.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the digest that is stored in its place.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The SHA-256 digest of a token, stored so that a stolen database contains no usable token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of a token.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns the bytes that are stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// Validates the name of a token.
pub fn check_name(name: &str) -> Result<(), Violations> {
    let mut violations = Violations::new();
    violations.require(!name.trim().is_empty(), "name", "can't be blank");
    violations.max_length("name", name, 255);
    violations.require(!text::has_control(name), "name", "is invalid");
    violations.into_result()
}

/// Returns whether a text chosen by the operator is usable as a token.
pub fn is_well_formed(token: &str) -> bool {
    (LENGTH..=128).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        let secret = Secret::new("abcdefghijklmnopqrst".into());
        assert_eq!(format!("{secret:?} {:?}", secret.digest()), "Secret(…) Digest(…)");
    }

    #[test]
    fn operators_choose_tokens_of_twenty_characters_or_more() {
        assert!(is_well_formed("abcdefghij_klm-n0123"));
        assert!(!is_well_formed("short"));
        assert!(!is_well_formed("abcdefghij klm n0123"));
    }
}
