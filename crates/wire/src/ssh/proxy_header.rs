//! The PROXY protocol of load balancers: a header before the first byte of a connection, with the address of the client.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::TcpStream,
    time::timeout,
};

/// How long the first byte of a connection may take. A proxy sends its header at once, but a client may wait for the server.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a header may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The length of the start of a header of version 2, which ends with the length of the rest.
const V2_START: usize = 16;
/// The maximum length of a header of version 2. Addresses take 36 bytes at most; the rest is information that is ignored.
const MAX_V2_LENGTH: usize = 2048;
/// The maximum length of a header of version 1, a line of text.
const MAX_V1_LENGTH: usize = 107;

/// Decides which peers are proxies whose headers are trusted.
#[derive(Clone)]
pub struct ProxyFilter(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl ProxyFilter {
    /// Trusts the addresses for which a function returns `true`.
    pub fn new(trusts: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(trusts))
    }

    /// Returns whether an address belongs to a trusted proxy.
    pub(super) fn trusts(&self, address: IpAddr) -> bool {
        (self.0)(address)
    }
}

impl Default for ProxyFilter {
    fn default() -> Self {
        Self::new(|_| false)
    }
}

impl fmt::Debug for ProxyFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyFilter")
    }
}

/// Reads the header of a trusted proxy, if it sends one, and nothing else. Returns the address of the client, or `None` if
/// the connection has no header, or is one of the proxy itself, such as a check whether the server is there.
pub(super) async fn read(stream: &mut TcpStream) -> io::Result<Option<SocketAddr>> {
    let mut first = [0];
    let Ok(peeked) = timeout(FIRST_BYTE_TIMEOUT, stream.peek(&mut first)).await else { return Ok(None) };
    // A client of SSH begins with `SSH-`.
    if peeked? == 0 || !matches!(first, [b'P' | b'\r']) {
        return Ok(None);
    }
    timeout(HEADER_TIMEOUT, read_header(stream)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut header = vec![stream.read_u8().await?];
    if header == *b"P" {
        // To the end of the line, and not beyond it.
        while header.last() != Some(&b'\n') {
            if header.len() == MAX_V1_LENGTH {
                return Err(invalid());
            }
            header.push(stream.read_u8().await?);
        }
    } else {
        header.resize(V2_START, 0);
        stream.read_exact(&mut header[1..]).await?;
        let length = V2_START + usize::from(u16::from_be_bytes([header[14], header[15]]));
        // Checked first, so that other bytes are not taken for a length.
        let is_header = header.starts_with(b"\r\n\r\n\0\r\nQUIT\n");
        if !is_header || length > MAX_V2_LENGTH {
            return Err(invalid());
        }
        header.resize(length, 0);
        stream.read_exact(&mut header[V2_START..]).await?;
    }
    let (parsed, length) = ProxyHeader::parse(&header, ParseConfig::default()).map_err(|_| invalid())?;
    match parsed.proxied_address() {
        _ if length != header.len() => Err(invalid()),
        Some(address) if address.protocol == Protocol::Stream => {
            Ok(Some(SocketAddr::new(address.source.ip().to_canonical(), address.source.port())))
        }
        Some(_) => Err(invalid()),
        None => Ok(None),
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a header of the PROXY protocol")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::prelude::*;
    use proxy_header::ProxiedAddress;

    use super::*;

    /// Returns what is read from bytes, and how many bytes are left.
    fn parse(mut bytes: &[u8]) -> (Result<Option<String>, io::ErrorKind>, usize) {
        let read = read_header(&mut bytes).now_or_never().expect("no waiting");
        let address = read.map(|address| address.map(|address| address.to_string()));
        (address.map_err(|error| error.kind()), bytes.len())
    }

    fn version_2(source: &str, destination: &str, extra: usize) -> Vec<u8> {
        let address = |text: &str| text.parse().expect("an address");
        let mut header = ProxyHeader::with_address(ProxiedAddress::stream(address(source), address(destination)));
        if extra > 0 {
            header.append_tlv(proxy_header::Tlv::Noop(extra));
        }
        let mut bytes = Vec::new();
        header.encode_v2(&mut bytes).expect("encoded");
        bytes
    }

    #[test]
    fn headers_of_both_versions_are_read_and_not_a_byte_more() {
        let check = |header: &[u8], expected: Option<&str>| {
            let whole = [header, b"SSH-2.0-x\r\n"].concat();
            assert_eq!(parse(&whole), (Ok(expected.map(str::to_owned)), 11), "{}", header.escape_ascii());
        };
        check(b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 22\r\n", Some("192.0.2.7:40000"));
        check(b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 22\r\n", Some("[2001:db8::7]:40000"));
        check(b"PROXY UNKNOWN\r\n", None);
        check(b"PROXY UNKNOWN ff:ff:: ff:ff:: 65535 65535\r\n", None);
        check(&version_2("192.0.2.7:40000", "198.51.100.1:22", 0), Some("192.0.2.7:40000"));
        check(&version_2("[2001:db8::7]:40000", "[2001:db8::1]:22", 500), Some("[2001:db8::7]:40000"));
        // A connection of the proxy itself.
        check(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", None);
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let check = |bytes: &[u8]| {
            assert_eq!(parse(bytes).0, Err(io::ErrorKind::InvalidData), "{}", bytes.escape_ascii());
        };
        check(b"PROXY TCP4 192.0.2.7 198.51.100.1 40000\r\n");
        check(b"PROXY TCP4 192.0.2.300 198.51.100.1 40000 22\r\n");
        check(b"POST / HTTP/1.1\r\n");
        check(&[&b"PROXY UNKNOWN "[..], &[b'x'; 200], b"\r\n"].concat());
        check(b"\r\n\r\n\0\r\nQUIT!\x21\x11\0\x0c0123456789abcdef");
        check(&version_2("192.0.2.7:40000", "198.51.100.1:22", 3000));
        let mut datagram = version_2("192.0.2.7:40000", "198.51.100.1:22", 0);
        datagram[13] = 0x12;
        check(&datagram);
        for length in 1..28 {
            let part = &version_2("192.0.2.7:40000", "198.51.100.1:22", 0)[..length];
            assert_eq!(parse(part).0, Err(io::ErrorKind::UnexpectedEof), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(kind in 0..3_u8, rest in prop::collection::vec(any::<u8>(), 0..200)) {
            let start: &[u8] = [&b"P"[..], b"PROXY TCP6 ", b"\r\n\r\n\0\r\nQUIT\n\x21"][usize::from(kind)];
            let _ = parse(&[start, &rest].concat());
        }
    }
}
