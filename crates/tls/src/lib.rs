//! Whom a client believes: TLS towards other servers, set up in one place for the database, hooks, runners and monitors.
//!
//! Always the same cryptography (ring) and the same versions of TLS, chosen here and not by a global default, so that no
//! library that is linked in beside us can choose another one.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
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
        if roots.is_empty() {
            return Err(unreadable(&"there is none in it"));
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

/// Talks to whoever has the key of the certificate that they show, whatever it says: who it is has to be proved by other
/// means, such as a password that is bound to the certificate.
pub fn lenient() -> Result<ClientConfig, String> {
    unproved(true)
}

/// Talks to whoever answers, also with a certificate so old that nobody can read it: the line is encrypted, no more.
pub fn careless() -> Result<ClientConfig, String> {
    unproved(false)
}

fn unproved(signatures: bool) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let anybody = Arc::new(Anybody { provider: Arc::clone(&provider), signatures });
    Ok(builder(provider)?.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth())
}

fn builder(provider: Arc<CryptoProvider>) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.map_err(|error| format!("cannot set up TLS: {error}"))
}

/// Takes any certificate.
#[derive(Debug)]
struct Anybody {
    provider: Arc<CryptoProvider>,
    /// Whether whoever shows it has to have its key.
    signatures: bool,
}

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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if !self.signatures {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if !self.signatures {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_told_with_its_path() {
        let said = Roots::in_file(Path::new("/nonexistent/roots.pem")).err().expect("there is none");
        assert!(said.starts_with("cannot read the root certificate /nonexistent/roots.pem: "), "{said}");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let said = Roots::in_file(&manifest).err().expect("no certificate");
        assert_eq!(said, format!("cannot read the root certificate {}: there is none in it", manifest.display()));
    }

    #[test]
    fn what_is_not_proved_is_at_least_signed_unless_nobody_cares() {
        use rustls::internal::msgs::codec::Codec as _;
        let made_up = CertificateDer::from(b"no certificate".to_vec());
        let signature = [4, 3, 0, 1, 0];
        let signature = DigitallySignedStruct::read_bytes(&signature).expect("a signature");
        let check = |signatures: bool| {
            let anybody = Anybody { provider: Arc::new(ring::default_provider()), signatures };
            anybody.verify_tls13_signature(b"hello", &made_up, &signature).is_ok()
        };
        assert!(check(false));
        assert!(!check(true));
    }

    #[test]
    fn what_is_no_certificate_vouches_for_nobody() {
        let (mut roots, _) = Roots::of_the_machine();
        let before = roots.0.len();
        roots.add(b"no certificate".to_vec()).expect_err("it is none");
        assert_eq!(roots.0.len(), before);
    }
}
