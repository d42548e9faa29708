//! The key of the instance, from which tokens are made that have to be shown again and so cannot be stored as digests.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use model::{projects::Seed, tokens::Secret};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::Sha256;
use store::{
    Conn, checks,
    instance::{self, Seeded},
};

use crate::clock::Secrets;

const LENGTH: usize = 32;
/// How many values of each kind show whether a key fits.
const SAMPLE: i64 = 20;
/// How many tokens are made anew at a time.
const BATCH: i64 = 1000;

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
        self.token(b"runners token", project, seed)
    }

    /// The token with which runners join the instance.
    pub(crate) fn registration_token(&self, seed: &Seed) -> Secret {
        self.token(b"registration token", 0, seed)
    }

    /// The token of a runner. What is made before it has a number goes by its seed alone.
    pub(crate) fn runner_token(&self, seed: &Seed) -> Secret {
        self.token(b"runner", 0, seed)
    }

    /// The token of a job.
    pub(crate) fn job_token(&self, seed: &Seed) -> Secret {
        self.token(b"job", 0, seed)
    }

    /// The token with which others start pipelines.
    pub(crate) fn trigger_token(&self, seed: &Seed) -> Secret {
        self.token(b"trigger", 0, seed)
    }

    /// A value by which a database knows the key again; it tells nothing about the key.
    pub fn check_value(&self) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(b"check value of the instance key");
        mac.finalize().into_bytes().to_vec()
    }

    /// Whether this can be the key with which the values in a database were sealed and its tokens made, as far as a few
    /// of them show.
    pub fn fits(&self, db: &mut Conn) -> store::Result<bool> {
        for kind in 0..checks::sealed_kinds().count() {
            let some = checks::sealed(db, kind, 0, SAMPLE)?;
            if !some.is_empty() && !some.iter().any(|row| self.open(row.project, &row.sealed).is_some()) {
                return Ok(false);
            }
        }
        let seeds = checks::seeds(db, SAMPLE)?;
        let made = |row: &checks::SeedRow| self.runner_token(&Seed(row.seed.clone())).digest().as_bytes() == row.digest;
        Ok(seeds.is_empty() || seeds.iter().any(made))
    }

    /// Lets a database go on with this key after the one before was lost, in one transaction of the caller's: forgets what
    /// was sealed, and recognises the tokens that are made with this key from now on. Answers what was lost, and how
    /// much of each.
    pub fn take_over(&self, db: &mut Conn) -> store::Result<Vec<(&'static str, i64)>> {
        let mut lost = instance::forget_sealed(db)?;
        for (kind, what) in [
            (Seeded::Runners, "tokens of runners"),
            (Seeded::Triggers, "tokens of triggers"),
            (Seeded::Jobs, "tokens of running jobs"),
        ] {
            let (mut after, mut count) = (0, 0);
            loop {
                let batch = instance::seeds(db, kind, after, BATCH)?;
                let Some((row, _)) = batch.last() else { break };
                after = *row;
                for (row, seed) in batch {
                    let seed = Seed(seed);
                    let token = match kind {
                        Seeded::Runners => self.runner_token(&seed),
                        Seeded::Triggers => self.trigger_token(&seed),
                        Seeded::Jobs => self.job_token(&seed),
                    };
                    instance::set_digest(db, kind, row, token.digest().as_bytes())?;
                    count += 1;
                }
            }
            lost.push((what, count));
        }
        instance::forget_runners_digests(db)?;
        instance::set_key_check(db, &self.check_value())?;
        Ok(lost)
    }

    fn token(&self, what_for: &[u8], owner: i64, seed: &Seed) -> Secret {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(what_for);
        mac.update(&owner.to_be_bytes());
        mac.update(&seed.0);
        Secret::new(URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..15]))
    }
}

/// Secrets that have to be used again, and so cannot be digests either, are stored sealed: a copy of the database alone
/// does not open them.
impl InstanceKey {
    /// Seals something that belongs to a project.
    pub fn seal(&self, project: i64, plain: &[u8], secrets: &dyn Secrets) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        secrets.fill(&mut nonce);
        let mut sealed = plain.to_vec();
        let (key, nonce_value) = (self.sealing_key(), Nonce::assume_unique_for_key(nonce));
        key.seal_in_place_append_tag(nonce_value, Aad::from(project.to_be_bytes()), &mut sealed)
            .expect("nothing that is sealed here is that long");
        [&nonce[..], &sealed].concat()
    }

    /// Opens what was sealed for the same project under the same key.
    pub(crate) fn open(&self, project: i64, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut sealed = sealed.to_vec();
        let plain = self.sealing_key().open_in_place(nonce, Aad::from(project.to_be_bytes()), &mut sealed).ok()?;
        Some(plain.to_vec())
    }

    fn sealing_key(&self) -> LessSafeKey {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
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

    #[test]
    fn a_check_value_tells_keys_apart() {
        let key = InstanceKey::generate(&SystemSecrets);
        let read = InstanceKey::from_text(key.to_text().reveal()).expect("what was written can be read");
        assert_eq!(key.check_value(), read.check_value());
        assert_ne!(key.check_value(), InstanceKey::generate(&SystemSecrets).check_value());
    }

    #[test]
    fn what_is_sealed_opens_only_for_the_same_key_and_project() {
        let key = InstanceKey::generate(&SystemSecrets);
        let sealed = key.seal(7, b"user:password", &SystemSecrets);
        assert!(!sealed.windows(8).any(|window| window == b"password"));
        assert_eq!(key.open(7, &sealed).as_deref(), Some(&b"user:password"[..]));
        assert_eq!(key.open(8, &sealed), None);
        assert_eq!(InstanceKey::generate(&SystemSecrets).open(7, &sealed), None);
        assert_eq!(key.open(7, &sealed[1..]), None);
        assert_eq!(key.open(7, b""), None);
    }
}
