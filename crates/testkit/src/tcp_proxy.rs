//! A proxy in front of PostgreSQL that cuts connections at chosen moments.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// The end of a message that commits a transaction.
const COMMIT: &[u8] = b"COMMIT\0";

/// When a connection is cut, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Before the server gets the `COMMIT`.
    BeforeCommit,
    /// After the server has answered the `COMMIT`; the client does not get the answer.
    AfterCommit,
    /// As [`Self::AfterCommit`]; new connections are refused as well, until they are allowed again.
    AfterCommitForLong,
}

/// A proxy; it stops with the process.
pub struct TcpProxy {
    /// The address that clients connect to.
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    cut: Mutex<Option<Cut>>,
    refuses: AtomicBool,
    cuts: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

impl TcpProxy {
    /// Starts a proxy to a server.
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State::default());
        let accepted = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepted.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                Connection { client, server, is_cut: Arc::default(), state: Arc::clone(&accepted) }.start();
            }
        });
        Self { address, state }
    }

    /// Returns a URL with the proxy in place of the server, and without TLS, in which commits cannot be found.
    pub fn url(&self, url: &str, server: SocketAddr) -> String {
        Self::url_with_hosts(url, server, &self.address.to_string())
    }

    /// Returns a URL with other hosts in place of the server, and without TLS.
    pub fn url_with_hosts(url: &str, server: SocketAddr, hosts: &str) -> String {
        let (address, options) = url.split_once('?').unwrap_or((url, ""));
        let proxied = address.replacen(&server.to_string(), hosts, 1);
        assert_ne!(proxied, address, "the URL names the server");
        let options = options.split('&').filter(|option| !option.is_empty() && !option.starts_with("sslmode="));
        let options: Vec<&str> = options.chain(["sslmode=disable"]).collect();
        format!("{proxied}?{}", options.join("&"))
    }

    /// Cuts the connection of the next commit.
    pub fn cut_next_commit(&self, cut: Cut) {
        *self.state.cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut);
    }

    /// Returns how many connections were cut at a commit.
    pub fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::SeqCst)
    }

    /// Cuts all connections and refuses new ones.
    pub fn begin_outage(&self) {
        self.state.refuses.store(true, Ordering::SeqCst);
        for stream in self.state.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Accepts connections again.
    pub fn end_outage(&self) {
        self.state.refuses.store(false, Ordering::SeqCst);
    }
}

/// One connection through the proxy.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Whether the next answer of the server is not passed on, and the connection closed instead.
    is_cut: Arc<AtomicBool>,
    state: Arc<State>,
}

impl Connection {
    fn start(self) {
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
        let mut open = self.state.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.extend([clone(&self.client), clone(&self.server)]);
        drop(open);
        let back = Self {
            client: clone(&self.client),
            server: clone(&self.server),
            is_cut: Arc::clone(&self.is_cut),
            state: Arc::clone(&self.state),
        };
        thread::spawn(move || self.forward());
        thread::spawn(move || back.answer());
    }

    /// Passes requests to the server.
    fn forward(mut self) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = self.client.read(&mut buffer) {
            if buffer[..count].windows(COMMIT.len()).any(|part| part == COMMIT) {
                match self.state.cut.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    Some(Cut::BeforeCommit) => {
                        self.state.cuts.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                    Some(cut) => {
                        self.state.cuts.fetch_add(1, Ordering::SeqCst);
                        self.state.refuses.store(cut == Cut::AfterCommitForLong, Ordering::SeqCst);
                        self.is_cut.store(true, Ordering::SeqCst);
                    }
                    None => {}
                }
            }
            if self.server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        self.close();
    }

    /// Passes answers to the client.
    fn answer(mut self) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = self.server.read(&mut buffer) {
            if self.is_cut.load(Ordering::SeqCst) || self.client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        self.close();
    }

    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}
