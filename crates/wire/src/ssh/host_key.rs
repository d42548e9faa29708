//! The SSH host key.

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

/// The private host key of the server.
pub struct HostKey(pub(super) PrivateKey);

impl HostKey {
    /// Returns the fingerprint that clients show on the first connection.
    pub fn fingerprint(&self) -> String {
        self.0.public_key().fingerprint(HashAlg::Sha256).to_string()
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostKey").field(&self.fingerprint()).finish()
    }
}

/// Loads the host key, or creates it on the first start; the file must be readable by its owner only.
pub fn load_or_create(path: &Path) -> io::Result<HostKey> {
    let text = if let Some(text) = read(path)? {
        text
    } else {
        let text = generate()?;
        write(path, &text)?;
        text
    };
    parse(text.as_bytes())
}

/// Returns the text of the host key in a file, if there is one; it must be readable by its owner only.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let in_file = |error: &dyn fmt::Display| invalid(&format!("{}: {error}", path.display()));
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        return Err(in_file(&"the SSH host key is readable by other users; run `chmod 600` on it"));
    }
    parse(&text).map_err(|error| in_file(&error))?;
    String::from_utf8(text).map(Some).map_err(|error| in_file(&error))
}

/// Returns whether the content of a file is a usable host key.
pub fn is_valid(text: &[u8]) -> bool {
    parse(text).is_ok()
}

/// Parses a private key in OpenSSH format.
pub fn parse(text: &[u8]) -> io::Result<HostKey> {
    let key = PrivateKey::from_openssh(text).map_err(|_| invalid("not a private key in OpenSSH format"))?;
    if key.is_encrypted() {
        return Err(invalid("the SSH host key must not have a passphrase"));
    }
    Ok(HostKey(key))
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Creates a key and returns its text.
pub fn generate() -> io::Result<String> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
    Ok(key.to_openssh(LineEnding::LF).map_err(io::Error::other)?.to_string())
}

/// Writes the text of a key to a file that only its owner can read.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    // Written to a temporary file and renamed, so that a crash leaves no partial key.
    let temporary = path.with_extension("new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_created_once_and_readable_by_the_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ssh_host_key");
        fs::write(folder.path().join("ssh_host_key.new"), "left by a crash").expect("planted");
        let created = load_or_create(&path).expect("created");
        let loaded = load_or_create(&path).expect("loaded");
        assert_eq!(created.fingerprint(), loaded.fingerprint());
        assert!(created.fingerprint().starts_with("SHA256:"));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let other = load_or_create(&folder.path().join("other")).expect("created");
        assert_ne!(created.fingerprint(), other.fingerprint());
        assert!(!format!("{created:?}").contains("PRIVATE"));
    }

    #[test]
    fn a_key_that_is_readable_by_others_or_invalid_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        load_or_create(&path).expect("created");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("opened");
        let error = load_or_create(&path).expect_err("refused").to_string();
        assert!(error.ends_with("the SSH host key is readable by other users; run `chmod 600` on it"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed");
        fs::write(&path, "hello").expect("spoiled");
        let error = load_or_create(&path).expect_err("refused").to_string();
        assert!(error.ends_with("not a private key in OpenSSH format"));
    }
}
