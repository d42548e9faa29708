//! The key by which clients know this server again.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use russh::keys::{
    HashAlg, PrivateKey,
    ssh_key::{LineEnding, private::Ed25519Keypair},
};

/// The server's own key.
pub struct HostKey(pub(super) PrivateKey);

impl HostKey {
    /// The fingerprint that a client shows when it comes for the first time.
    pub fn fingerprint(&self) -> String {
        self.0.public_key().fingerprint(HashAlg::Sha256).to_string()
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostKey").field(&self.fingerprint()).finish()
    }
}

/// Reads the server's key, or makes one on the first start; only the owner may read the file.
pub fn load_or_make(path: &Path) -> io::Result<HostKey> {
    match fs::read(path) {
        Ok(text) => load(path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(path),
        Err(error) => Err(error),
    }
}

/// Whether a text is a key that the server can use.
pub fn is_good(text: &[u8]) -> bool {
    PrivateKey::from_openssh(text).is_ok_and(|key| !key.is_encrypted())
}

fn load(path: &Path, text: &[u8]) -> io::Result<HostKey> {
    let told = |text: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {text}", path.display()));
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        return Err(told("others may read the key of the SSH server; make it yours alone with `chmod 600`"));
    }
    let key = PrivateKey::from_openssh(text).map_err(|_| told("this is no private key as OpenSSH writes it"))?;
    if key.is_encrypted() {
        return Err(told("the key of the SSH server must not have a passphrase"));
    }
    Ok(HostKey(key))
}

fn make(path: &Path) -> io::Result<HostKey> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
    let text = key.to_openssh(LineEnding::LF).map_err(io::Error::other)?;
    // A crash leaves either no key or a whole one.
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(HostKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_the_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ssh_host_key");
        fs::write(folder.path().join("ssh_host_key.new"), "left by a crash").expect("planted");
        let made = load_or_make(&path).expect("made");
        let loaded = load_or_make(&path).expect("loaded");
        assert_eq!(made.fingerprint(), loaded.fingerprint());
        assert!(made.fingerprint().starts_with("SHA256:"));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let other = load_or_make(&folder.path().join("other")).expect("made");
        assert_ne!(made.fingerprint(), other.fingerprint());
        assert!(!format!("{made:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_key_that_others_may_read_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        load_or_make(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("opened");
        let error = load_or_make(&path).expect_err("refused").to_string();
        assert!(error.ends_with("others may read the key of the SSH server; make it yours alone with `chmod 600`"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed");
        fs::write(&path, "hello").expect("spoiled");
        let error = load_or_make(&path).expect_err("refused").to_string();
        assert!(error.ends_with("this is no private key as OpenSSH writes it"));
    }
}
