//! The listeners of the server: HTTP, the redirect to HTTPS, the internal one of the built-in runner, and SSH.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
};

use anyhow::{Context as _, Result, anyhow};
use api::HttpService;
use socket2::SockRef;
use tokio::{net::TcpListener, signal::unix::Signal, sync::watch};
use tracing::info;
use wire::{
    Transfers,
    ssh::{self, host_key::HostKey},
};

use crate::{
    config::Config,
    listener,
    tls::{self, Certificate, Redirect},
};

/// Failed SSH connections allowed per failed password: a client offers several keys before the right one.
const SSH_FAILURE_FACTOR: NonZeroU32 = NonZeroU32::new(3).expect("not zero");

/// All listeners, bound but not accepting connections yet.
pub(super) struct Listeners {
    main: BoundListener,
    certificate: Option<Arc<Certificate>>,
    options: listener::Options,
    /// Redirects plain HTTP to HTTPS.
    redirect: Option<(TcpListener, Redirect)>,
    /// Plain HTTP on a loopback port for the built-in runner, because the certificate does not cover loopback addresses.
    internal: Option<BoundListener>,
    ssh: Option<SshListener>,
}

/// A listener and its address, with the port that the system has chosen for port 0.
struct BoundListener {
    listener: TcpListener,
    address: SocketAddr,
}

struct SshListener {
    bound: BoundListener,
    options: ssh::Options,
}

impl Listeners {
    /// Binds the listeners of the configuration.
    pub(super) async fn bind(config: &Config) -> Result<Self> {
        let main = BoundListener::bind("listen", config.listen).await?;
        let ssh = match config.ssh_listen {
            Some(address) => Some(SshListener::bind(address, config).await?),
            None => None,
        };
        let certificate = config.tls.clone().map(Certificate::load).transpose()?;
        let options = listener::Options {
            client_timeout: config.client_timeout,
            max_per_address: config.connections_per_address,
            trusted_proxies: config.trusted_proxies.clone(),
            tls: certificate.as_ref().map(Certificate::acceptor).transpose()?,
        };
        let redirect = match config.redirect_listen {
            Some(from) => Some(bind_redirect(from, config, main.local_address()).await?),
            None => None,
        };
        let internal = if options.tls.is_some() && config.runner.is_some() {
            let bound = BoundListener::new((Ipv4Addr::LOCALHOST, 0).into()).await;
            Some(bound.context("cannot listen on a loopback port for the built-in runner")?)
        } else {
            None
        };
        Ok(Self { main, certificate, options, redirect, internal, ssh })
    }

    /// Serves requests until `stop` completes. The other listeners stop when `stopped` becomes true. SSH needs a host key.
    pub(super) async fn serve(
        self,
        service: HttpService,
        transfers: Transfers,
        host_key: Option<HostKey>,
        sighup: Signal,
        stopped: watch::Receiver<bool>,
        stop: impl Future<Output = ()>,
    ) {
        let plain = listener::Options { tls: None, ..self.options.clone() };
        let stop_others = || {
            let mut stopped = stopped.clone();
            async move { drop(stopped.wait_for(|stop| *stop).await) }
        };
        let reload = match self.certificate {
            Some(certificate) => tokio::spawn(certificate.reload_until_stopped(sighup, stopped.clone())),
            None => tokio::spawn(tls::ignore_sighup(sighup, stopped.clone())),
        };
        let redirect = self.redirect.map(|(listener, redirect)| {
            tokio::spawn(listener::serve(listener, redirect, plain.clone(), stop_others()))
        });
        let internal = self.internal.map(|internal| {
            tokio::spawn(listener::serve(internal.listener, service.clone(), plain.clone(), stop_others()))
        });
        let ssh = self.ssh.zip(host_key).map(|(SshListener { bound, options }, host_key)| {
            tokio::spawn(ssh::serve(bound.listener, host_key, transfers, options, stop_others()))
        });
        listener::serve(self.main.listener, service, self.options, stop).await;
        for other in [Some(reload), redirect, internal, ssh].into_iter().flatten() {
            let _ = other.await;
        }
    }

    /// The URL of the main listener for clients on this machine.
    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.scheme(), self.main.local_address())
    }

    /// The URL of the main listener for display; an unspecified address is explained.
    pub(super) fn display_url(&self) -> String {
        format!("{}://{}", self.scheme(), self.main.display_address())
    }

    fn scheme(&self) -> &'static str {
        if self.certificate.is_some() { "https" } else { "http" }
    }

    /// Whether the main listener accepts connections to all addresses of this machine.
    pub(super) fn is_unspecified(&self) -> bool {
        self.main.address.ip().is_unspecified()
    }

    /// The address that the built-in runner connects to.
    pub(super) fn internal_address(&self) -> SocketAddr {
        self.internal.as_ref().unwrap_or(&self.main).local_address()
    }

    /// The port of the SSH listener.
    pub(super) fn ssh_port(&self) -> Option<u16> {
        self.ssh.as_ref().map(|ssh| ssh.bound.address.port())
    }

    /// The addresses of the listeners of clients, separated by spaces.
    pub(super) fn addresses(&self) -> String {
        let ssh = self.ssh.as_ref().map(|ssh| format!(" ssh://{}", ssh.bound.address)).unwrap_or_default();
        format!("{}://{}{ssh}", self.scheme(), self.main.address)
    }

    /// The address of the SSH listener for display.
    pub(super) fn display_ssh_address(&self) -> Option<String> {
        self.ssh.as_ref().map(|ssh| ssh.bound.display_address())
    }
}

impl BoundListener {
    /// Binds the address of a setting.
    async fn bind(setting: &str, address: SocketAddr) -> Result<Self> {
        Self::new(address).await.map_err(|error| anyhow!(listen_error(setting, address, &error)))
    }

    async fn new(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    /// The address for clients on this machine.
    fn local_address(&self) -> SocketAddr {
        loopback_if_unspecified(self.address)
    }

    /// The address for display; an unspecified address is explained.
    fn display_address(&self) -> String {
        let address = self.address;
        if !address.ip().is_unspecified() {
            return address.to_string();
        }
        let which = match (address.is_ipv4(), SockRef::from(&self.listener).only_v6()) {
            (true, _) => "all IPv4 addresses",
            (false, Ok(true)) => "all IPv6 addresses",
            (false, _) => "all addresses",
        };
        format!("{address} ({which})")
    }
}

impl SshListener {
    async fn bind(address: SocketAddr, config: &Config) -> Result<Self> {
        let bound = BoundListener::bind("ssh-listen", address).await?;
        let proxies = config.trusted_proxies.clone();
        let options = ssh::Options {
            trusted_proxies: ssh::ProxyFilter::new(move |address| proxies.trusts(address)),
            connections_per_minute: config.anonymous_requests_per_minute,
            failures_per_minute: config.sign_ins_per_minute.map(|count| count.saturating_mul(SSH_FAILURE_FACTOR)),
            ..ssh::Options::default()
        };
        Ok(Self { bound, options })
    }
}

async fn bind_redirect(
    from: SocketAddr,
    config: &Config,
    https_address: SocketAddr,
) -> Result<(TcpListener, Redirect)> {
    let bound = BoundListener::bind("redirect-listen", from).await?;
    info!(address = bound.display_address(), "redirecting HTTP to HTTPS");
    let external_url = config.external_url.as_deref().map(Into::into);
    Ok((bound.listener, Redirect { external_url, https_address }))
}

/// Describes why an address cannot be used, with advice.
fn listen_error(setting: &str, address: SocketAddr, error: &io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::AddrInUse => format!("; stop the program that uses it, or choose another with --{setting}"),
        ErrorKind::PermissionDenied => {
            format!("; ports below 1024 require CAP_NET_BIND_SERVICE; choose another with --{setting}")
        }
        ErrorKind::AddrNotAvailable => {
            format!("; this machine does not have that address; choose another with --{setting}")
        }
        _ => String::new(),
    };
    format!("cannot listen on {address}: {error}{advice}")
}

/// Returns an address that clients on this machine can connect to: loopback for an unspecified one.
pub(crate) fn loopback_if_unspecified(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    let loopback = if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(loopback, address.port())
}
