//! TLS client configuration, shared by the database client, webhooks, runners and `gable health`.
//!
//! The crypto provider (ring) and the TLS versions are chosen here and not by a process-wide default, so that no other
//! linked library can change them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme, WantsVerifier,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{
        CertificateDer, ServerName, UnixTime,
        pem::{self, PemObject as _},
    },
};

/// Why a TLS configuration cannot be created. The text of an error includes that of its cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A PEM file with root certificates cannot be read.
    #[error("cannot read the root certificate {}: {source}", path.display())]
    UnreadableFile {
        /// The path of the file.
        path: PathBuf,
        /// Why it cannot be read.
        source: pem::Error,
    },
    /// A PEM file contains an invalid root certificate.
    #[error("cannot read the root certificate {}: {source}", path.display())]
    InvalidFile {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with the certificate.
        source: rustls::Error,
    },
    /// A PEM file contains no root certificate.
    #[error("cannot read the root certificate {}: the file contains no certificate", path.display())]
    EmptyFile {
        /// The path of the file.
        path: PathBuf,
    },
    /// A certificate is invalid.
    #[error("{0}")]
    InvalidCertificate(#[source] rustls::Error),
    /// The crypto provider does not support the TLS versions.
    #[error("cannot set up TLS: {0}")]
    UnsupportedVersions(#[source] rustls::Error),
}

/// The root certificates that a client trusts.
pub struct Roots(RootCertStore);

impl Roots {
    /// Returns an empty set: no server is trusted.
    pub fn empty() -> Self {
        Self(RootCertStore::empty())
    }

    /// Returns the root certificates of the operating system, and the errors that occurred while reading them.
    pub fn system() -> (Self, Vec<String>) {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        (Self(roots), found.errors.iter().map(ToString::to_string).collect())
    }

    /// Reads root certificates from a PEM file.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::UnreadableFile { path: path.to_owned(), source };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
            let certificate = certificate.map_err(unreadable)?;
            roots.add(certificate).map_err(|source| Error::InvalidFile { path: path.to_owned(), source })?;
        }
        if roots.is_empty() {
            return Err(Error::EmptyFile { path: path.to_owned() });
        }
        Ok(Self(roots))
    }

    /// Adds a DER-encoded certificate.
    pub fn add(&mut self, certificate: Vec<u8>) -> Result<(), Error> {
        self.0.add(CertificateDer::from(certificate)).map_err(Error::InvalidCertificate)
    }

    /// Returns whether there are no root certificates.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns a configuration that verifies the certificate of the server and its host name.
pub fn verified_client(roots: Roots) -> Result<ClientConfig, Error> {
    Ok(builder(Arc::new(ring::default_provider()))?.with_root_certificates(roots.0).with_no_client_auth())
}

/// Returns a configuration that accepts any certificate whose private key the server has. The identity of the server must
/// be verified by other means, such as a password bound to the certificate.
pub fn unauthenticated_client() -> Result<ClientConfig, Error> {
    without_authentication(true)
}

/// Returns a configuration that verifies nothing, not even signatures: the connection is encrypted, no more.
pub fn unverified_client() -> Result<ClientConfig, Error> {
    without_authentication(false)
}

fn without_authentication(check_signatures: bool) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AcceptAnyCertificate { provider: Arc::clone(&provider), check_signatures });
    Ok(builder(provider)?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn builder(provider: Arc<CryptoProvider>) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Error> {
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.map_err(Error::UnsupportedVersions)
}

/// Accepts any certificate.
#[derive(Debug)]
struct AcceptAnyCertificate {
    provider: Arc<CryptoProvider>,
    /// Whether the server has to prove that it has the private key.
    check_signatures: bool,
}

impl ServerCertVerifier for AcceptAnyCertificate {
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
        if !self.check_signatures {
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
        if !self.check_signatures {
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
    fn a_file_without_certificates_is_named_in_the_error() {
        let error =
            Roots::from_file(Path::new("/nonexistent/roots.pem")).err().expect("the file does not exist").to_string();
        assert!(error.starts_with("cannot read the root certificate /nonexistent/roots.pem: "), "{error}");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = Roots::from_file(&manifest).err().expect("the file contains no certificate");
        assert_eq!(
            error.to_string(),
            format!("cannot read the root certificate {}: the file contains no certificate", manifest.display())
        );
    }

    #[test]
    fn signatures_are_verified_unless_disabled() {
        use rustls::internal::msgs::codec::Codec as _;
        let invalid_certificate = CertificateDer::from(b"no certificate".to_vec());
        let signature = [4, 3, 0, 1, 0];
        let signature = DigitallySignedStruct::read_bytes(&signature).expect("a signature");
        let check = |check_signatures: bool| {
            let verifier = AcceptAnyCertificate { provider: Arc::new(ring::default_provider()), check_signatures };
            verifier.verify_tls13_signature(b"hello", &invalid_certificate, &signature).is_ok()
        };
        assert!(check(false));
        assert!(!check(true));
    }

    #[test]
    fn an_invalid_certificate_is_not_added() {
        let (mut roots, _) = Roots::system();
        let before = roots.0.len();
        roots.add(b"no certificate".to_vec()).expect_err("not a certificate");
        assert_eq!(roots.0.len(), before);
    }
}
