//! E-mail addresses of a user.

use crate::{Time, Violations, text};

/// A further address of a user; the primary one stands in the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email {
    /// Number of the address.
    pub id: i64,
    /// Whose address it is.
    pub user_id: i64,
    /// The address, trimmed and in lower case.
    pub email: String,
    /// When it was added.
    pub created_at: Time,
}

/// The longest address taken.
pub const LONGEST: usize = 255;

/// An address as it is stored and compared.
pub fn normalize(address: &str) -> String {
    address.trim().to_lowercase()
}

/// Checks a normalised address.
pub fn check(address: &str, violations: &mut Violations) {
    if address.is_empty() {
        violations.add("email", "can't be blank");
        return;
    }
    violations.longest("email", address, LONGEST);
    let two_parts = address
        .split_once('@')
        .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty() && !domain.contains('@'));
    let clean = !address.contains(char::is_whitespace) && !text::has_control(address);
    violations.unless(two_parts && clean, "email", "is invalid");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_two_parts_and_no_spaces() {
        let verdict = |address: &str| {
            let mut violations = Violations::new();
            check(&normalize(address), &mut violations);
            violations.to_string()
        };
        assert_eq!(verdict(" Ann@Example.ORG "), "");
        assert_eq!(verdict(""), "email can't be blank");
        for bad in ["ann", "@", "ann@", "@x", "a@b@c", "a b@c", "a\u{7}@c"] {
            assert_eq!(verdict(bad), "email is invalid", "{bad:?}");
        }
    }
}
