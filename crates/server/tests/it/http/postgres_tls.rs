//! TLS connections to PostgreSQL; skipped unless the tests have a server with TLS and its CA certificate.

use url::Url;

use crate::support::{GableCommand, TestInstance};

/// A database on a server with TLS.
struct TlsDatabase {
    instance: TestInstance,
    /// The URL of the database with the host name in the certificate.
    url: Url,
    /// The path of the CA certificate.
    authority: String,
}

impl TlsDatabase {
    /// Returns `None` if the tests have no such server.
    fn from_environment() -> Option<Self> {
        let authority = std::env::var("GABLE_TEST_DATABASE_CA").ok().filter(|path| !path.is_empty())?;
        let instance = TestInstance::new();
        let mut url = instance.database_url()?;
        url.set_host(Some("localhost")).expect("a URL with a host");
        Some(Self { instance, url, authority })
    }

    /// Returns a server with these connection options.
    fn serve(&self, options: &[(&str, &str)]) -> GableCommand {
        let mut url = self.url.clone();
        url.query_pairs_mut().clear().extend_pairs(options);
        self.instance.serve().with_root_credentials().env("GABLE_DATABASE", url.as_str())
    }

    /// Serves with these connection options, and counts the encrypted and the plain connections.
    fn connections(&self, options: &[(&str, &str)]) -> (i64, i64) {
        let server = self.serve(options).start();
        assert_eq!(server.root().get("/api/v3/user").status, 200);
        let count = |encrypted: &str| {
            self.instance.count(&format!(
                "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE {encrypted} \
                 AND application_name = 'gable' AND datname = current_database() AND pid <> pg_backend_pid()"
            ))
        };
        (count("ssl"), count("NOT ssl"))
    }
}

#[test]
fn connections_are_encrypted_if_required() {
    let Some(database) = TlsDatabase::from_environment() else { return };
    let authority = database.authority.as_str();
    for options in [
        &[("sslmode", "require")][..],
        &[("sslmode", "require"), ("sslrootcert", authority)],
        &[("sslmode", "verify-full"), ("sslrootcert", authority)],
    ] {
        let (encrypted, plain) = database.connections(options);
        assert!(encrypted > 0 && plain == 0, "{options:?}: {encrypted} encrypted, {plain} plain");
    }
}

#[test]
fn connections_are_plain_only_if_tls_is_disabled() {
    let Some(database) = TlsDatabase::from_environment() else { return };
    let (encrypted, plain) = database.connections(&[("sslmode", "disable")]);
    assert!(encrypted == 0 && plain > 0, "{encrypted} encrypted, {plain} plain");
    let (encrypted, plain) = database.connections(&[]);
    assert!(encrypted > 0 && plain == 0, "{encrypted} encrypted, {plain} plain");
}

#[test]
fn an_untrusted_certificate_is_refused() {
    let Some(database) = TlsDatabase::from_environment() else { return };
    let refusal = database.serve(&[("sslmode", "verify-full")]).finish().refused();
    assert!(refusal.starts_with("cannot connect to PostgreSQL at localhost:"), "{refusal}");
    assert!(refusal.contains("set sslrootcert in the database URL to the certificate of the authority"), "{refusal}");
    assert!(refusal.contains("invalid peer certificate: UnknownIssuer"), "{refusal}");
}

#[test]
fn an_unreadable_ca_certificate_is_reported() {
    let Some(database) = TlsDatabase::from_environment() else { return };
    let options = [("sslmode", "verify-full"), ("sslrootcert", "/nowhere/authority.pem")];
    let refusal = database.serve(&options).finish().refused();
    assert!(refusal.starts_with("cannot read the root certificate /nowhere/authority.pem: "), "{refusal}");
    // So is a file without a certificate.
    let empty = database.instance.file("empty.pem", "");
    let refusal = database.serve(&[("sslmode", "verify-full"), ("sslrootcert", &empty)]).finish().refused();
    assert!(refusal.contains("certificate"), "{refusal}");
}
