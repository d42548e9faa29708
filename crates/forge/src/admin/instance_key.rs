//! The instance key: derives tokens that must be shown again and so cannot be stored as digests, and encrypts secrets.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use model::{ProjectId, projects::TokenSeed, tokens::Secret};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::Sha256;
use store::{
    Conn, checks,
    instance::{self, SeededToken},
};

use crate::clock::Secrets;

const LENGTH: usize = 32;
/// The number of values of each kind that are tried to check a key.
const SAMPLE_SIZE: i64 = 20;
/// The number of tokens that are derived at a time.
const BATCH: i64 = 1000;

/// The secret key of an instance; deliberately without `Debug`.
#[derive(Clone)]
pub struct InstanceKey([u8; LENGTH]);

impl InstanceKey {
    /// Generates a key.
    pub fn generate(secrets: &dyn Secrets) -> Self {
        let mut bytes = [0; LENGTH];
        secrets.fill(&mut bytes);
        Self(bytes)
    }

    /// Parses the output of [`Self::to_text`].
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim()).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// Returns the key as a line of text, for a file that only its owner can read.
    pub fn to_text(&self) -> Secret {
        Secret::new(URL_SAFE_NO_PAD.encode(self.0))
    }

    /// Derives the token with which runners register with a project.
    pub fn runners_token(&self, project: ProjectId, seed: &TokenSeed) -> Secret {
        self.token(b"runners token", Some(project), seed)
    }

    /// Derives the token with which runners register with the instance.
    pub(crate) fn registration_token(&self, seed: &TokenSeed) -> Secret {
        self.token(b"registration token", None, seed)
    }

    /// Derives the token of a runner; it is derived before the runner has an id, so from its seed alone.
    pub(crate) fn runner_token(&self, seed: &TokenSeed) -> Secret {
        self.token(b"runner", None, seed)
    }

    /// Derives the token of a CI job.
    pub(crate) fn job_token(&self, seed: &TokenSeed) -> Secret {
        self.token(b"job", None, seed)
    }

    /// Derives the token of a pipeline trigger.
    pub(crate) fn trigger_token(&self, seed: &TokenSeed) -> Secret {
        self.token(b"trigger", None, seed)
    }

    /// Returns a value by which a database recognizes the key, and which does not reveal it.
    pub fn check_value(&self) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC accepts keys of any length");
        mac.update(b"check value of the instance key");
        mac.finalize().into_bytes().to_vec()
    }

    /// Returns whether this key decrypts and derives a sample of the encrypted values and tokens of a database.
    pub fn matches_database(&self, db: &mut Conn) -> store::Result<bool> {
        for kind in 0..checks::encrypted_kinds().count() {
            let sample = checks::encrypted(db, kind, 0, SAMPLE_SIZE)?;
            if !sample.is_empty() && !sample.iter().any(|row| self.decrypt(row.project, &row.encrypted).is_some()) {
                return Ok(false);
            }
        }
        let seeds = checks::seeds(db, SAMPLE_SIZE)?;
        let derives =
            |row: &checks::SeedRow| self.runner_token(&TokenSeed(row.seed.clone())).digest().as_bytes() == row.digest;
        Ok(seeds.is_empty() || seeds.iter().any(derives))
    }

    /// Replaces a lost key: deletes the encrypted values and stores the digests of the tokens that this key derives. Returns
    /// what was lost, with the number of each. The caller provides the transaction.
    pub fn replace_lost_key(&self, db: &mut Conn) -> store::Result<Vec<(&'static str, i64)>> {
        let mut lost = instance::delete_encrypted(db)?;
        for (kind, what) in [
            (SeededToken::Runners, "tokens of runners"),
            (SeededToken::Triggers, "tokens of triggers"),
            (SeededToken::Jobs, "tokens of running jobs"),
        ] {
            let (mut after, mut count) = (0, 0);
            loop {
                let batch = instance::seeds(db, kind, after, BATCH)?;
                let Some((row, _)) = batch.last() else { break };
                after = *row;
                for (row, seed) in batch {
                    let seed = TokenSeed(seed);
                    let token = match kind {
                        SeededToken::Runners => self.runner_token(&seed),
                        SeededToken::Triggers => self.trigger_token(&seed),
                        SeededToken::Jobs => self.job_token(&seed),
                    };
                    instance::set_digest(db, kind, row, token.digest().as_bytes())?;
                    count += 1;
                }
            }
            lost.push((what, count));
        }
        instance::clear_runners_digests(db)?;
        instance::set_key_check(db, &self.check_value())?;
        Ok(lost)
    }

    fn token(&self, purpose: &[u8], owner: Option<ProjectId>, seed: &TokenSeed) -> Secret {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC accepts keys of any length");
        mac.update(purpose);
        mac.update(&owner.map_or(0, ProjectId::get).to_be_bytes());
        mac.update(&seed.0);
        Secret::new(URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..15]))
    }
}

/// Secrets that the server must use again are stored encrypted, so that a copy of the database alone does not reveal them.
impl InstanceKey {
    /// Encrypts a secret of a project.
    pub fn encrypt(&self, project: ProjectId, plain: &[u8], secrets: &dyn Secrets) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        secrets.fill(&mut nonce);
        let mut encrypted = plain.to_vec();
        let (key, nonce_value) = (self.encryption_key(), Nonce::assume_unique_for_key(nonce));
        key.seal_in_place_append_tag(nonce_value, Aad::from(project.get().to_be_bytes()), &mut encrypted)
            .expect("no secret exceeds the limit of the cipher");
        [&nonce[..], &encrypted].concat()
    }

    /// Decrypts a secret; returns `None` if it was encrypted for another project or with another key.
    pub(crate) fn decrypt(&self, project: ProjectId, encrypted: &[u8]) -> Option<Vec<u8>> {
        let (nonce, encrypted) = encrypted.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut encrypted = encrypted.to_vec();
        let plain =
            self.encryption_key().open_in_place(nonce, Aad::from(project.get().to_be_bytes()), &mut encrypted).ok()?;
        Some(plain.to_vec())
    }

    fn encryption_key(&self) -> LessSafeKey {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC accepts keys of any length");
        // Part of the stored format: the derived key depends on it.
        mac.update(b"sealed in the database");
        let key = UnboundKey::new(&CHACHA20_POLY1305, &mac.finalize().into_bytes());
        LessSafeKey::new(key.expect("the digest is as long as the key"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemSecrets;

    #[test]
    fn a_token_depends_only_on_key_project_and_seed() {
        let key = InstanceKey::generate(&SystemSecrets);
        let read = InstanceKey::from_text(key.to_text().reveal()).expect("a valid key");
        let seed = TokenSeed(vec![1, 2, 3]);
        let token = key.runners_token(ProjectId::new(7), &seed);
        assert_eq!(token.reveal().len(), model::tokens::LENGTH);
        assert_eq!(token.reveal(), read.runners_token(ProjectId::new(7), &seed).reveal());
        assert_ne!(token.reveal(), key.runners_token(ProjectId::new(8), &seed).reveal());
        assert_ne!(token.reveal(), key.runners_token(ProjectId::new(7), &TokenSeed(vec![1, 2, 4])).reveal());
        assert_ne!(
            token.reveal(),
            InstanceKey::generate(&SystemSecrets).runners_token(ProjectId::new(7), &seed).reveal()
        );
        assert!(InstanceKey::from_text("short").is_none());
    }

    #[test]
    fn a_check_value_distinguishes_keys() {
        let key = InstanceKey::generate(&SystemSecrets);
        let read = InstanceKey::from_text(key.to_text().reveal()).expect("a valid key");
        assert_eq!(key.check_value(), read.check_value());
        assert_ne!(key.check_value(), InstanceKey::generate(&SystemSecrets).check_value());
    }

    #[test]
    fn a_value_is_decrypted_only_with_the_same_key_and_project() {
        let key = InstanceKey::generate(&SystemSecrets);
        let encrypted = key.encrypt(ProjectId::new(7), b"user:password", &SystemSecrets);
        assert!(!encrypted.windows(8).any(|window| window == b"password"));
        assert_eq!(key.decrypt(ProjectId::new(7), &encrypted).as_deref(), Some(&b"user:password"[..]));
        assert_eq!(key.decrypt(ProjectId::new(8), &encrypted), None);
        assert_eq!(InstanceKey::generate(&SystemSecrets).decrypt(ProjectId::new(7), &encrypted), None);
        assert_eq!(key.decrypt(ProjectId::new(7), &encrypted[1..]), None);
        assert_eq!(key.decrypt(ProjectId::new(7), b""), None);
    }
}
