//! Whom a client believes: TLS towards other servers, set up in one place for the database, hooks, runners and monitors.
//!
//! Always the same cryptography (ring) and the same versions of TLS, chosen here and not by a global default, so that no
//! library that is linked in beside us can choose another one.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

/// The authorities that vouch for servers.
pub struct Roots(RootCertStore);

impl Roots {
    /// Nobody.
    pub fn none() -> Self {
        Self(RootCertStore::empty())
    }

    /// Those in which the machine believes. Without any nobody can prove who it is; what was in the way is told beside.
    pub fn of_the_machine() -> (Self, Vec<String>) {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        (Self(roots), found.errors.iter().map(ToString::to_string).collect())
    }

    /// Those in a file of PEM.
    pub fn in_file(path: &Path) -> Result<Self, String> {
        let unreadable =
            |error: &dyn std::fmt::Display| format!("cannot read the root certificate {}: {error}", path.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            roots.add(certificate).map_err(|error| unreadable(&error))?;
        }
        Ok(Self(roots))
    }

    /// Adds one, as DER.
    pub fn add(&mut self, certificate: Vec<u8>) -> Result<(), String> {
        self.0.add(CertificateDer::from(certificate)).map_err(|error| error.to_string())
    }

    /// Whether there is nobody to vouch.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Talks only to servers that prove who they are.
pub fn strict(roots: Roots) -> Result<ClientConfig, String> {
    Ok(builder(Arc::new(ring::default_provider()))?.with_root_certificates(roots.0).with_no_client_auth())
}

/// Talks to whoever answers: the line is encrypted, its end is not proved.
pub fn lenient() -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let anybody = Arc::new(Anybody(Arc::clone(&provider)));
    Ok(builder(provider)?.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth())
}

fn builder(provider: Arc<CryptoProvider>) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.map_err(|error| format!("cannot set up TLS: {error}"))
}

/// Takes whatever is shown. To look at its signatures would prove nothing, as anybody can sign with a key of their own, and
/// would turn away old certificates that nobody can read but that have always been good enough.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_told_with_its_path() {
        let said = Roots::in_file(Path::new("/nonexistent/roots.pem")).err().expect("there is none");
        assert!(said.starts_with("cannot read the root certificate /nonexistent/roots.pem: "), "{said}");
    }

    #[test]
    fn what_is_no_certificate_vouches_for_nobody() {
        let (mut roots, _) = Roots::of_the_machine();
        let before = roots.0.len();
        roots.add(b"no certificate".to_vec()).expect_err("it is none");
        assert_eq!(roots.0.len(), before);
    }
}
