//! Passwords: argon2id, slow on purpose, and therefore never inside a transaction.

use std::sync::OnceLock;

use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};

use crate::{Error, Result};

/// How hard a password is to try out.
#[derive(Clone)]
pub struct PasswordCost {
    argon2: Argon2<'static>,
    /// A hash of nobody's password, so that an unknown user takes as long as a wrong password at today's cost. Made when first needed:
    /// the memory it takes is not wanted in a server that idles.
    nobody: OnceLock<String>,
}

impl PasswordCost {
    /// What guards real passwords: 7 MiB and five passes. OWASP counts that as strong as 19 MiB and two passes; it takes
    /// a third of the memory from a small machine where many sign in at once, and spends less time on getting it.
    pub fn real() -> Self {
        Self::new(Params::new(7 << 10, 5, 1, None).expect("a cost that is allowed"))
    }

    /// What tests can afford.
    pub fn cheap() -> Self {
        Self::new(Params::new(Params::MIN_M_COST, 1, 1, None).expect("the least cost is allowed"))
    }

    fn new(params: Params) -> Self {
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        Self { argon2, nobody: OnceLock::new() }
    }

    /// Hashes a password.
    pub fn hash(&self, password: &str) -> Result<String> {
        let hash = self.argon2.hash_password(password.as_bytes());
        hash.map(|hash| hash.to_string()).map_err(|error| Error::Internal(format!("hashing a password: {error}")))
    }

    /// Whether the password is the one that was hashed; without a hash it takes as long and says no.
    pub fn verify(&self, password: &str, hash: Option<&str>) -> bool {
        let nobody = self
            .nobody
            .get_or_init(|| self.argon2.hash_password(b"nobody").expect("a password can be hashed").to_string());
        let right = self.argon2.verify_password(password.as_bytes(), hash.unwrap_or(nobody)).is_ok();
        right && hash.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_passwords_are_guarded_as_promised() {
        let hash = PasswordCost::real().hash("correct horse").expect("hashed");
        assert!(hash.starts_with("$argon2id$v=19$m=7168,t=5,p=1$"), "{hash}");
        // What was hashed at another cost is still known.
        let older = PasswordCost::new(Params::DEFAULT).hash("correct horse").expect("hashed");
        assert!(PasswordCost::real().verify("correct horse", Some(&older)));
        assert!(!PasswordCost::real().verify("wrong horse", Some(&older)));
    }

    #[test]
    fn only_the_right_password_fits() {
        let cost = PasswordCost::cheap();
        let hash = cost.hash("correct horse").expect("hashed");
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        assert!(cost.verify("correct horse", Some(&hash)));
        assert!(!cost.verify("wrong horse", Some(&hash)));
        assert!(!cost.verify("nobody", None));
    }
}
