//! TLS to PostgreSQL, where the tests have a server that speaks it and its certificate.

use url::Url;

use crate::admin::binary::{Gable, Home};

/// A database on a server that speaks TLS.
struct Encrypted {
    home: Home,
    /// The same database under the name that stands in the certificate.
    url: Url,
    /// The certificate of the authority.
    authority: String,
}

impl Encrypted {
    /// `None` where the tests have no such server.
    fn find() -> Option<Self> {
        let authority = std::env::var("GABLE_TEST_DATABASE_CA").ok().filter(|path| !path.is_empty())?;
        let home = Home::new();
        let mut url = home.database_url()?;
        url.set_host(Some("localhost")).expect("a URL with a host");
        Some(Self { home, url, authority })
    }

    /// A server that reaches its database in this way.
    fn serve(&self, ways: &[(&str, &str)]) -> Gable {
        let mut url = self.url.clone();
        url.query_pairs_mut().clear().extend_pairs(ways);
        self.home.serve().with_known_root().env("GABLE_DATABASE", url.as_str())
    }

    /// Serves in this way, and counts the encrypted and the open connections.
    fn connections(&self, ways: &[(&str, &str)]) -> (i64, i64) {
        let server = self.serve(ways).start();
        assert_eq!(server.root().get("/api/v3/user").status, 200);
        let count = |encrypted: &str| {
            self.home.count(&format!(
                "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE {encrypted} \
                 AND application_name = 'gable' AND datname = current_database() AND pid <> pg_backend_pid()"
            ))
        };
        (count("ssl"), count("NOT ssl"))
    }
}

#[test]
fn a_connection_is_encrypted_when_it_has_to_be() {
    let Some(encrypted) = Encrypted::find() else { return };
    let authority = encrypted.authority.as_str();
    for ways in [
        &[("sslmode", "require")][..],
        &[("sslmode", "require"), ("sslrootcert", authority)],
        &[("sslmode", "verify-full"), ("sslrootcert", authority)],
    ] {
        let (encrypted, open) = encrypted.connections(ways);
        assert!(encrypted > 0 && open == 0, "{ways:?}: {encrypted} encrypted, {open} open");
    }
}

#[test]
fn a_connection_is_open_only_when_it_has_to_be() {
    let Some(encrypted) = Encrypted::find() else { return };
    let (closed, open) = encrypted.connections(&[("sslmode", "disable")]);
    assert!(closed == 0 && open > 0, "{closed} encrypted, {open} open");
    let (closed, open) = encrypted.connections(&[]);
    assert!(closed > 0 && open == 0, "{closed} encrypted, {open} open");
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    let Some(encrypted) = Encrypted::find() else { return };
    let refusal = encrypted.serve(&[("sslmode", "verify-full")]).finish().refused();
    assert!(refusal.starts_with("cannot connect to PostgreSQL at localhost:"), "{refusal}");
    assert!(refusal.contains("name the certificate of the authority with sslrootcert"), "{refusal}");
    assert!(refusal.contains("invalid peer certificate: UnknownIssuer"), "{refusal}");
}

#[test]
fn a_certificate_of_an_authority_that_cannot_be_read_is_told() {
    let Some(encrypted) = Encrypted::find() else { return };
    let ways = [("sslmode", "verify-full"), ("sslrootcert", "/nowhere/authority.pem")];
    let refusal = encrypted.serve(&ways).finish().refused();
    assert!(refusal.starts_with("cannot read the root certificate /nowhere/authority.pem: "), "{refusal}");
    // A file without a certificate vouches for nobody, and says so.
    let empty = encrypted.home.file("empty.pem", "");
    let refusal = encrypted.serve(&[("sslmode", "verify-full"), ("sslrootcert", &empty)]).finish().refused();
    assert!(refusal.contains("certificate"), "{refusal}");
}
