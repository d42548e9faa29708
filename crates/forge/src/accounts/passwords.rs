//! Password hashing with argon2id; slow on purpose, and therefore never inside a transaction.

use std::sync::OnceLock;

use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};

use crate::{Error, Result};

/// Hashes and verifies passwords.
#[derive(Clone)]
pub struct PasswordHasher {
    argon2: Argon2<'static>,
    /// Verified in place of the hash of an unknown user, so that the response takes as long as for a wrong password. Computed on
    /// first use, so that an idle server does not hold the memory it takes.
    dummy_hash: OnceLock<String>,
}

impl PasswordHasher {
    /// The cost for production: 7 MiB and five passes, which OWASP rates as strong as 19 MiB and two passes. It takes a third of
    /// the memory when many users sign in at once on a small machine.
    pub fn production() -> Self {
        Self::new(Params::new(7 << 10, 5, 1, None).expect("a cost that is allowed"))
    }

    /// The minimum cost, for tests.
    pub fn for_tests() -> Self {
        Self::new(Params::new(Params::MIN_M_COST, 1, 1, None).expect("the least cost is allowed"))
    }

    fn new(params: Params) -> Self {
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        Self { argon2, dummy_hash: OnceLock::new() }
    }

    /// Hashes a password.
    pub fn hash(&self, password: &str) -> Result<String> {
        let hash = self.argon2.hash_password(password.as_bytes());
        hash.map(|hash| hash.to_string()).map_err(|error| Error::internal("hashing a password", error))
    }

    /// Returns whether the password matches the hash; without a hash it takes as long and returns `false`.
    pub fn verify(&self, password: &str, hash: Option<&str>) -> bool {
        let dummy_hash = self
            .dummy_hash
            .get_or_init(|| self.argon2.hash_password(b"dummy").expect("a password can be hashed").to_string());
        let is_match = self.argon2.verify_password(password.as_bytes(), hash.unwrap_or(dummy_hash)).is_ok();
        is_match && hash.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_passwords_are_hashed_at_the_documented_cost() {
        let hash = PasswordHasher::production().hash("correct horse").expect("hashed");
        assert!(hash.starts_with("$argon2id$v=19$m=7168,t=5,p=1$"), "{hash}");
        // Hashes of another cost are still valid.
        let old_hash = PasswordHasher::new(Params::DEFAULT).hash("correct horse").expect("hashed");
        assert!(PasswordHasher::production().verify("correct horse", Some(&old_hash)));
        assert!(!PasswordHasher::production().verify("wrong horse", Some(&old_hash)));
    }

    #[test]
    fn only_the_right_password_matches() {
        let hasher = PasswordHasher::for_tests();
        let hash = hasher.hash("correct horse").expect("hashed");
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        assert!(hasher.verify("correct horse", Some(&hash)));
        assert!(!hasher.verify("wrong horse", Some(&hash)));
        assert!(!hasher.verify("dummy", None));
    }
}
