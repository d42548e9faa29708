//! Whom the client believes.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tracing::warn;

/// The authorities that vouch for receivers.
pub(super) struct Roots(RootCertStore);

impl Roots {
    /// Those in which the machine believes. Without any, only receivers that need to prove nothing are told something;
    /// that is no reason not to serve.
    pub(super) fn of_the_machine() -> Self {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (taken, _) = roots.add_parsable_certificates(found.certs);
        if taken == 0 {
            let problems: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            warn!(?problems, "no root certificates are found, so no receiver of hooks can prove who it is");
        }
        Self(roots)
    }

    pub(super) fn add(&mut self, certificate: Vec<u8>) -> Result<(), String> {
        self.0.add(CertificateDer::from(certificate)).map_err(|error| error.to_string())
    }

    /// Talks only to receivers that prove who they are.
    pub(super) fn strict(self) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        Ok(builder.with_root_certificates(self.0).with_no_client_auth())
    }
}

/// Talks to whoever answers.
pub(super) fn lenient() -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth())
}

/// Believes everybody, because the owner of the hook wants it so.
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
