//! TLS of the server: certificates that are reloaded when they change, and the redirect from HTTP to HTTPS.

use std::{
    fmt, fs,
    net::SocketAddr,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
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

use crate::{exit::message, listener::RequestHandler};

/// The interval between checks for changed certificate files.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The paths of certificate and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    /// The certificate chain in PEM format.
    pub(crate) certificate: PathBuf,
    /// The private key in PEM format.
    pub(crate) key: PathBuf,
}

/// The current certificate, replaced when the files change.
pub(crate) struct Certificate {
    files: CertificateFiles,
    current: RwLock<Arc<CertifiedKey>>,
    provider: Arc<CryptoProvider>,
}

impl Certificate {
    /// Loads certificate and key.
    pub(crate) fn load(files: CertificateFiles) -> Result<Arc<Self>> {
        // The same provider as in crate `tls`.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = files.read(&provider)?;
        Ok(Arc::new(Self { current: RwLock::new(Arc::new(current)), files, provider }))
    }

    /// Returns an acceptor that uses the current certificate.
    pub(crate) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor> {
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&versions)
            .context("cannot set up TLS")?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Reloads the files when they change and on SIGHUP, until stopped. Existing connections are not affected.
    pub(crate) async fn reload_until_stopped(self: Arc<Self>, mut sighup: Signal, mut stopped: watch::Receiver<bool>) {
        let mut ticks = interval(CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut known_stamps = self.files.stamps();
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let stamps = self.files.stamps();
                    if stamps == known_stamps {
                        continue;
                    }
                    known_stamps = stamps;
                }
                received = sighup.recv() => {
                    if received.is_none() {
                        return;
                    }
                    known_stamps = self.files.stamps();
                }
                _ = stopped.wait_for(|stop| *stop) => return,
            }
            self.reload();
        }
    }

    fn reload(&self) {
        match self.files.read(&self.provider) {
            Ok(fresh) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                info!("reloaded the TLS certificate");
            }
            Err(error) => {
                warn!(reason = message(&error), "cannot load the new TLS certificate; the old one stays in use");
            }
        }
    }
}

/// Installs the handler of SIGHUP. A server without a handler is ended by the signal, so this must happen before the
/// server reports that it is ready.
pub(crate) fn sighup_signal() -> Result<Signal> {
    signal(SignalKind::hangup()).context("cannot handle SIGHUP")
}

/// Logs and ignores SIGHUP on a server without TLS, which has no certificate to reload.
pub(crate) async fn ignore_sighup(mut sighup: Signal, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            received = sighup.recv() => {
                if received.is_none() {
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
        // It contains the private key.
        f.write_str("Certificate(…)")
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Inode, size and modification time of a file; `None` if it does not exist.
type FileStamp = Option<(u64, u64, i64, i64)>;

impl CertificateFiles {
    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let read = |path: &PathBuf, what: &str| {
            fs::read(path).with_context(|| format!("cannot read the TLS {what} {}", path.display()))
        };
        let chain = CertificateDer::pem_slice_iter(&read(&self.certificate, "certificate")?)
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("the TLS certificate {certificate} is not PEM"))?;
        if chain.is_empty() {
            bail!("no certificate in {certificate}; expected PEM");
        }
        // The error is not included, because it might reveal parts of the key.
        let secret = PrivateKeyDer::from_pem_slice(&read(&self.key, "key")?)
            .map_err(|_| anyhow!("no private key in {key}; expected PEM without a passphrase"))?;
        let certified = CertifiedKey::from_der(chain, secret, provider)
            .with_context(|| format!("cannot use the TLS key {key} with the certificate {certificate}"))?;
        if let Ok(found) = fs::metadata(&self.key)
            && found.permissions().mode() & 0o007 != 0
        {
            warn!(file = %key, "the TLS key is readable by other users; run `chmod o-rwx` on it");
        }
        Ok(certified)
    }

    fn stamps(&self) -> [FileStamp; 2] {
        [&self.certificate, &self.key].map(|path| {
            let found = fs::metadata(path).ok()?;
            Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        })
    }
}

/// Redirects plain HTTP requests to HTTPS.
#[derive(Clone)]
pub(crate) struct Redirect {
    /// The public URL of this server, if configured.
    pub(crate) external_url: Option<Arc<str>>,
    /// The address of the HTTPS listener.
    pub(crate) https_address: SocketAddr,
}

impl RequestHandler for Redirect {
    async fn handle(&self, request: Request) -> Response {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        if !path.starts_with('/') {
            return api::plain_error(StatusCode::BAD_REQUEST);
        }
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.and_then(|host| host.parse::<Uri>().ok()).and_then(|host| host.host().map(ToOwned::to_owned));
        let location = match (&self.external_url, host) {
            (Some(url), _) if url.starts_with("https://") => url.trim_end_matches('/').to_owned(),
            (_, Some(host)) if self.https_address.port() == 443 => format!("https://{host}"),
            (_, Some(host)) => format!("https://{host}:{}", self.https_address.port()),
            (_, None) if self.https_address.ip().is_unspecified() => return api::plain_error(StatusCode::BAD_REQUEST),
            (_, None) => format!("https://{}", self.https_address),
        };
        let plain = [
            (header::CONTENT_TYPE, "text/plain"),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
        ];
        let mut response = (StatusCode::PERMANENT_REDIRECT, plain, Body::from("use HTTPS\n")).into_response();
        let Ok(location) = format!("{location}{path}").try_into() else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        response.headers_mut().insert(header::LOCATION, location);
        response
    }
}
