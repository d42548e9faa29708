//! The key of the instance, from which tokens are made that have to be shown again and so cannot be stored as digests.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use model::{projects::Seed, tokens::Secret};
use sha2::Sha256;

use crate::clock::Secrets;

const LENGTH: usize = 32;

/// What only this instance knows. It does not print.
#[derive(Clone)]
pub struct InstanceKey([u8; LENGTH]);

impl InstanceKey {
    /// A fresh one.
    pub fn generate(secrets: &dyn Secrets) -> Self {
        let mut bytes = [0; LENGTH];
        secrets.fill(&mut bytes);
        Self(bytes)
    }

    /// Reads what [`Self::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// The key as a line of text, for a file that only its owner can read.
    pub fn to_text(&self) -> Secret {
        Secret::new(URL_SAFE_NO_PAD.encode(self.0))
    }

    /// The token with which runners join a project: always the same for the same seed, and nobody makes it without the
    /// key.
    pub fn runners_token(&self, project: i64, seed: &Seed) -> Secret {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(b"runners token");
        mac.update(&project.to_be_bytes());
        mac.update(&seed.0);
        Secret::new(URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..15]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemSecrets;

    #[test]
    fn a_token_depends_on_key_project_and_seed_and_on_nothing_else() {
        let key = InstanceKey::generate(&SystemSecrets);
        let read = InstanceKey::from_text(key.to_text().reveal()).expect("what was written can be read");
        let seed = Seed(vec![1, 2, 3]);
        let token = key.runners_token(7, &seed);
        assert_eq!(token.reveal().len(), model::tokens::LENGTH);
        assert_eq!(token.reveal(), read.runners_token(7, &seed).reveal());
        assert_ne!(token.reveal(), key.runners_token(8, &seed).reveal());
        assert_ne!(token.reveal(), key.runners_token(7, &Seed(vec![1, 2, 4])).reveal());
        assert_ne!(token.reveal(), InstanceKey::generate(&SystemSecrets).runners_token(7, &seed).reveal());
        assert!(InstanceKey::from_text("short").is_none());
    }
}
