//! SSH keys: parsed and written anew, never trusted as text.

use ssh_key::{Algorithm, HashAlg, PublicKey, public::KeyData};

use crate::{Time, Violations};

/// A public key with which a user signs in over SSH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Number of the key.
    pub id: i64,
    /// Whose key it is.
    pub user_id: i64,
    /// What its owner calls it.
    pub title: String,
    /// Type, key material and comment in OpenSSH's notation.
    pub key: String,
    /// `SHA256:…` of the key material; no two keys share it.
    pub fingerprint: String,
    /// When it was added.
    pub created_at: Time,
}

/// A key that was parsed and found good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// What its owner calls it.
    pub title: String,
    /// Type, key material and comment, written anew.
    pub key: String,
    /// `SHA256:…` of the key material.
    pub fingerprint: String,
}

const LONGEST_TITLE: usize = 255;
const LONGEST_KEY: usize = 5000;
const LEAST_RSA_BITS: usize = 1024;

impl NewKey {
    /// Parses a key; all faults are found at once.
    pub fn parse(title: &str, key: &str) -> Result<Self, Violations> {
        let title = title.trim();
        let key = key.trim();
        let mut violations = Violations::new();
        violations.unless(!title.is_empty(), "title", "can't be blank");
        violations.longest("title", title, LONGEST_TITLE);
        if key.is_empty() {
            violations.add("key", "can't be blank");
        }
        violations.longest("key", key, LONGEST_KEY);
        let known_start = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"].iter().any(|start| key.starts_with(start));
        violations.unless(known_start || key.is_empty(), "key", "is invalid");
        violations.unless(!key.contains(['\n', '\r']), "key", "should be a single line");
        if key.starts_with("ssh-dss") {
            violations.add("key", "of type ssh-dss is not accepted; use ed25519, ecdsa or rsa");
        }
        let parsed = if key.len() <= LONGEST_KEY { parse_line(key) } else { None };
        violations.unless(parsed.is_some(), "fingerprint", "cannot be generated");
        match parsed {
            Some((key, fingerprint)) if violations.is_empty() => Ok(Self { title: title.to_owned(), key, fingerprint }),
            _ => Err(violations),
        }
    }
}

/// The fingerprint of a key as OpenSSH writes it, if it is one that we take.
pub fn fingerprint(line: &str) -> Option<String> {
    (line.len() <= LONGEST_KEY).then(|| parse_line(line)).flatten().map(|(_, fingerprint)| fingerprint)
}

/// The key written anew and its fingerprint, if it is one that we take.
fn parse_line(line: &str) -> Option<(String, String)> {
    // Runs of spaces and tabs are fine between the parts, as they are for OpenSSH.
    let mut words = line.split_ascii_whitespace();
    let named = words.next()?;
    let parsed = PublicKey::from_openssh(&words.fold(named.to_owned(), |line, word| format!("{line} {word}"))).ok()?;
    let accepted = match parsed.key_data() {
        KeyData::Rsa(rsa) => rsa.n.as_positive_bytes().is_some_and(|n| bits(n) >= LEAST_RSA_BITS),
        KeyData::Ed25519(_) | KeyData::Ecdsa(_) | KeyData::SkEd25519(_) | KeyData::SkEcdsaSha2NistP256(_) => true,
        _ => false,
    };
    let same_type = parsed.algorithm() == Algorithm::new(named).ok()?;
    let clean = !parsed.comment().contains(char::is_control);
    if !(accepted && same_type && clean) {
        return None;
    }
    Some((parsed.to_openssh().ok()?, parsed.fingerprint(HashAlg::Sha256).to_string()))
}

fn bits(big_endian: &[u8]) -> usize {
    let leading = big_endian.first().map_or(0, |byte| byte.leading_zeros() as usize);
    big_endian.len() * 8 - leading
}
