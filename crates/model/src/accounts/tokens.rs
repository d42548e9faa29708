//! Access tokens: what a client shows instead of a password.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{Time, Violations, text};

/// How many characters a token has; a stock client takes longer ones for OAuth tokens.
pub const LENGTH: usize = 20;

/// An access token as the forge remembers it: everything but the token itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Number of the token.
    pub id: i64,
    /// On whose behalf it speaks.
    pub user_id: i64,
    /// What it is for, in its owner's words.
    pub name: String,
    /// What it opens.
    pub scopes: Vec<Scope>,
    /// From when on it opens nothing.
    pub expires_at: Option<Time>,
    /// When it was taken back.
    pub revoked_at: Option<Time>,
    /// When it was last seen, give or take a quarter of an hour.
    pub last_used_at: Option<Time>,
    /// When it was made.
    pub created_at: Time,
    /// Whether it was issued for a password, by `POST /session`, and ends when the password changes.
    pub session: bool,
}

impl Token {
    /// Whether the token is neither revoked nor expired.
    pub fn is_active(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// Which tokens a list shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenFilter {
    /// Only tokens of this user.
    pub user: Option<i64>,
    /// Only revoked tokens, or only tokens that are not revoked.
    pub revoked: Option<bool>,
    /// Only tokens that are neither revoked nor expired, or only the others.
    pub active: Option<bool>,
}

/// What a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything its user may do.
    Api,
    /// Reading users, and nothing else.
    ReadUser,
}

impl Scope {
    /// All scopes there are.
    pub const ALL: [Self; 2] = [Self::Api, Self::ReadUser];

    /// The word that is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::ReadUser => "read_user",
        }
    }

    /// Reads the word of a scope.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

/// The text of a token on its way to its owner; it cannot be printed by mistake.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes a token's text into custody.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the one moment in which it is shown.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is stored of it.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The SHA-256 of a token: enough to recognise it, useless to whoever steals the database.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Digests the text of a token.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// The digest as it is stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// Checks the name of a token.
pub fn check_name(name: &str) -> Result<(), Violations> {
    let mut violations = Violations::new();
    violations.unless(!name.trim().is_empty(), "name", "can't be blank");
    violations.longest("name", name, 255);
    violations.unless(!text::has_control(name), "name", "is invalid");
    violations.into_result()
}

/// Whether a text chosen by the operator can serve as a token.
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
