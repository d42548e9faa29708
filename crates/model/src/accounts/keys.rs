//! SSH public keys: parsed and serialized again, never stored as sent.

use ssh_key::{Algorithm, HashAlg, PublicKey, public::KeyData};

use crate::{KeyId, Time, UserId, Violations};

/// A public key that authenticates a user over SSH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The ID of the key.
    pub id: KeyId,
    /// The ID of its user.
    pub user_id: UserId,
    /// The title chosen by its owner.
    pub title: String,
    /// Type, key material and comment in OpenSSH format.
    pub key: String,
    /// `SHA256:…` of the key material; unique.
    pub fingerprint: String,
    /// The time at which it was added.
    pub created_at: Time,
}

impl Key {
    /// Returns the name of its algorithm, such as `ssh-ed25519`.
    pub fn algorithm(&self) -> &str {
        self.key.split(' ').next().unwrap_or_default()
    }
}

/// A parsed and validated key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// The title chosen by its owner.
    pub title: String,
    /// Type, key material and comment, serialized from the parsed key.
    pub key: String,
    /// `SHA256:…` of the key material.
    pub fingerprint: String,
}

const MAX_TITLE_LENGTH: usize = 255;
const MAX_KEY_LENGTH: usize = 5000;
const MIN_RSA_BITS: usize = 1024;

impl NewKey {
    /// Parses a key; on failure returns all violations at once.
    pub fn parse(title: &str, key: &str) -> Result<Self, Violations> {
        let title = title.trim();
        let key = key.trim();
        let mut violations = Violations::new();
        violations.require(!title.is_empty(), "title", "can't be blank");
        violations.max_length("title", title, MAX_TITLE_LENGTH);
        if key.is_empty() {
            violations.add("key", "can't be blank");
        }
        violations.max_length("key", key, MAX_KEY_LENGTH);
        let known_start = ["ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"].iter().any(|start| key.starts_with(start));
        violations.require(known_start || key.is_empty(), "key", "is invalid");
        violations.require(!key.contains(['\n', '\r']), "key", "should be a single line");
        if key.starts_with("ssh-dss") {
            violations.add("key", "of type ssh-dss is not accepted; use ed25519, ecdsa or rsa");
        }
        let parsed = if key.len() <= MAX_KEY_LENGTH { parse_line(key) } else { None };
        violations.require(parsed.is_some(), "fingerprint", "cannot be generated");
        match parsed {
            Some((key, fingerprint)) if violations.is_empty() => Ok(Self { title: title.to_owned(), key, fingerprint }),
            _ => Err(violations),
        }
    }
}

/// Returns the fingerprint of a key in OpenSSH format, or `None` if the key is not accepted.
pub fn fingerprint(line: &str) -> Option<String> {
    (line.len() <= MAX_KEY_LENGTH).then(|| parse_line(line)).flatten().map(|(_, fingerprint)| fingerprint)
}

/// Returns the comment of a key in OpenSSH format, which usually names a user and a machine; empty if there is none.
pub fn comment(line: &str) -> String {
    line.split_ascii_whitespace().skip(2).collect::<Vec<_>>().join(" ")
}

/// Returns the serialized key and its fingerprint, or `None` if the key is not accepted.
fn parse_line(line: &str) -> Option<(String, String)> {
    // OpenSSH accepts runs of spaces and tabs between the parts.
    let mut parts = line.split_ascii_whitespace();
    let declared = parts.next()?;
    let parsed =
        PublicKey::from_openssh(&parts.fold(declared.to_owned(), |line, part| format!("{line} {part}"))).ok()?;
    let accepted = match parsed.key_data() {
        // `key_size` counts whole bytes.
        KeyData::Rsa(rsa) => rsa.n().as_positive_bytes().is_some_and(|n| bits(n) >= MIN_RSA_BITS),
        KeyData::Ed25519(_) | KeyData::Ecdsa(_) | KeyData::SkEd25519(_) | KeyData::SkEcdsaSha2NistP256(_) => true,
        _ => false,
    };
    let same_type = parsed.algorithm() == Algorithm::new(declared).ok()?;
    let clean = parsed.comment().as_str().is_ok_and(|comment| !comment.contains(char::is_control));
    if !(accepted && same_type && clean) {
        return None;
    }
    Some((parsed.to_openssh().ok()?, parsed.fingerprint(HashAlg::Sha256).to_string()))
}

fn bits(big_endian: &[u8]) -> usize {
    let leading = big_endian.first().map_or(0, |byte| byte.leading_zeros() as usize);
    big_endian.len() * 8 - leading
}
