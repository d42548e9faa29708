//! TLS: certificates that are read anew when they change, and plain HTTP that sends everybody there.

use std::{
    fmt, fs,
    net::SocketAddr,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    body::Body,
    extract::Request,
    http::{StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use crate::listener::Answers;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    /// The certificate and those that vouch for it, as PEM.
    pub(crate) certificate: PathBuf,
    /// The key, as PEM.
    pub(crate) key: PathBuf,
}

/// The certificate that is shown, for as long as there is no newer one.
pub(crate) struct Certificate {
    files: CertificateFiles,
    shown: RwLock<Arc<CertifiedKey>>,
    provider: Arc<CryptoProvider>,
}

impl Certificate {
    /// Reads certificate and key.
    pub(crate) fn load(files: CertificateFiles) -> Result<Arc<Self>, String> {
        // The same as everywhere else in here.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let shown = files.read(&provider)?;
        Ok(Arc::new(Self { shown: RwLock::new(Arc::new(shown)), files, provider }))
    }

    /// Speaks TLS with it.
    pub(crate) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, String> {
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("cannot speak TLS: {error}"))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Reads the files anew when they change, and on SIGHUP, until told to stop. Connections go on as they are.
    pub(crate) async fn keep_fresh(self: Arc<Self>, mut hangups: Signal, mut stopped: watch::Receiver<bool>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known = self.files.marks();
        loop {
            tokio::select! {
                _ = looks.tick() => {
                    let marks = self.files.marks();
                    if marks == known {
                        continue;
                    }
                    known = marks;
                }
                asked = hangups.recv() => {
                    if asked.is_none() {
                        return;
                    }
                    known = self.files.marks();
                }
                _ = stopped.wait_for(|stop| *stop) => return,
            }
            self.refresh();
        }
    }

    fn refresh(&self) {
        match self.files.read(&self.provider) {
            Ok(fresh) => {
                *self.shown.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                info!("the TLS certificate was read anew");
            }
            Err(reason) => warn!(reason, "the new TLS certificate is of no use; the old one stays"),
        }
    }
}

/// Installs the handler of SIGHUP. A server without a handler is ended by the signal, so this must happen before the
/// server reports that it is ready.
pub(crate) fn hangups() -> Result<Signal, String> {
    signal(SignalKind::hangup()).map_err(|error| format!("cannot handle SIGHUP: {error}"))
}

/// Logs and ignores SIGHUP on a server without TLS, which has no certificate to reload.
pub(crate) async fn ignore_hangups(mut hangups: Signal, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            asked = hangups.recv() => {
                if asked.is_none() {
                    return;
                }
                info!("received SIGHUP; there is no TLS certificate to reload");
            }
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It holds the key.
        f.write_str("Certificate(…)")
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// By what one can tell that a file has changed.
type Mark = Option<(u64, u64, i64, i64)>;

impl CertificateFiles {
    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let read = |path: &PathBuf, what: &str| {
            fs::read(path).map_err(|error| format!("cannot read the TLS {what} {}: {error}", path.display()))
        };
        let chain = CertificateDer::pem_slice_iter(&read(&self.certificate, "certificate")?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("the TLS certificate {certificate} is not PEM: {error}"))?;
        if chain.is_empty() {
            return Err(format!("there is no certificate in {certificate}; it has to be PEM"));
        }
        // What is wrong with a key is not told in more detail, because the reason might tell of the key.
        let secret = PrivateKeyDer::from_pem_slice(&read(&self.key, "key")?)
            .map_err(|_| format!("there is no private key in {key}; it has to be PEM without a password"))?;
        let certified = CertifiedKey::from_der(chain, secret, provider)
            .map_err(|error| format!("the TLS key {key} and the certificate {certificate} are of no use: {error}"))?;
        if let Ok(found) = fs::metadata(&self.key)
            && found.permissions().mode() & 0o007 != 0
        {
            warn!(file = %key, "everybody on this machine can read the TLS key; take that right away with chmod o-rwx");
        }
        Ok(certified)
    }

    fn marks(&self) -> [Mark; 2] {
        [&self.certificate, &self.key].map(|path| {
            let found = fs::metadata(path).ok()?;
            Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        })
    }
}

/// Sends everybody who comes without TLS to where it is spoken.
#[derive(Clone)]
pub(crate) struct Redirect {
    /// The URL under which clients reach this server, if the operator has said.
    pub(crate) external_url: Option<Arc<str>>,
    /// Where TLS is spoken.
    pub(crate) secure: SocketAddr,
}

impl Answers for Redirect {
    async fn answer(&self, request: Request) -> Response {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        if !path.starts_with('/') {
            return api::plain_error(StatusCode::BAD_REQUEST);
        }
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.and_then(|host| host.parse::<Uri>().ok()).and_then(|host| host.host().map(ToOwned::to_owned));
        let place = match (&self.external_url, host) {
            (Some(url), _) if url.starts_with("https://") => url.trim_end_matches('/').to_owned(),
            (_, Some(host)) if self.secure.port() == 443 => format!("https://{host}"),
            (_, Some(host)) => format!("https://{host}:{}", self.secure.port()),
            (_, None) if self.secure.ip().is_unspecified() => return api::plain_error(StatusCode::BAD_REQUEST),
            (_, None) => format!("https://{}", self.secure),
        };
        let plain = [
            (header::CONTENT_TYPE, "text/plain"),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
        ];
        let mut response = (StatusCode::PERMANENT_REDIRECT, plain, Body::from("Come by TLS.\n")).into_response();
        let Ok(place) = format!("{place}{path}").try_into() else { return StatusCode::BAD_REQUEST.into_response() };
        response.headers_mut().insert(header::LOCATION, place);
        response
    }
}
