//! E-mail addresses of a user.

use crate::{EmailId, Time, UserId, Violations, text};

/// A secondary e-mail address of a user; the primary one is [`crate::User::email`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email {
    /// The ID of the address.
    pub id: EmailId,
    /// The ID of its user.
    pub user_id: UserId,
    /// The address, trimmed and in lower case.
    pub email: String,
    /// The time at which it was added.
    pub created_at: Time,
}

/// The maximum length of an address.
pub const MAX_LENGTH: usize = 255;

/// Returns an address in the form in which it is stored and compared.
pub fn normalize(address: &str) -> String {
    address.trim().to_lowercase()
}

/// Validates a normalized address.
pub fn check(address: &str, violations: &mut Violations) {
    if address.is_empty() {
        violations.add("email", "can't be blank");
        return;
    }
    violations.max_length("email", address, MAX_LENGTH);
    let two_parts = address
        .split_once('@')
        .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty() && !domain.contains('@'));
    let clean = !address.contains(char::is_whitespace) && !text::has_control(address);
    violations.require(two_parts && clean, "email", "is invalid");
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
