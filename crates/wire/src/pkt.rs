//! The pkt-line format of git's wire protocol.

use std::{
    fmt,
    io::{self, Write as _},
};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The maximum payload of a packet, in bytes.
pub(crate) const MAX_PAYLOAD: usize = 65_516;
/// The number of digits before a packet.
const HEADER_LENGTH: usize = 4;
/// A flush packet.
pub(crate) const FLUSH: &[u8] = b"0000";
const DELIMITER: &[u8] = b"0001";

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Data(&'a [u8]),
    Flush,
    Delimiter,
    ResponseEnd,
}

/// A malformed or truncated packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedPacket;

/// The meaning of the four hexadecimal digits before a packet.
enum Header {
    Bytes(usize),
    Special(Packet<'static>),
}

impl Packet<'_> {
    /// Returns the payload as text without its final newline; `None` if it is not text.
    pub(crate) fn text(&self) -> Option<&str> {
        let Self::Data(data) = self else { return None };
        std::str::from_utf8(data.strip_suffix(b"\n").unwrap_or(data)).ok()
    }
}

fn parse_header(digits: [u8; 4]) -> Result<Header, MalformedPacket> {
    let mut length = 0;
    for digit in digits {
        length = length * 16 + char::from(digit).to_digit(16).ok_or(MalformedPacket)? as usize;
    }
    match length {
        0 => Ok(Header::Special(Packet::Flush)),
        1 => Ok(Header::Special(Packet::Delimiter)),
        2 => Ok(Header::Special(Packet::ResponseEnd)),
        3 => Err(MalformedPacket),
        _ if length - 4 > MAX_PAYLOAD => Err(MalformedPacket),
        _ => Ok(Header::Bytes(length - 4)),
    }
}

/// Iterates over the packets of a buffer; ends with an error if the rest is not a packet.
pub(crate) fn packets(mut bytes: &[u8]) -> impl Iterator<Item = Result<Packet<'_>, MalformedPacket>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let packet = split(bytes);
        bytes = packet.map_or(&[][..], |(_, rest)| rest);
        Some(packet.map(|(packet, _)| packet))
    })
}

/// Parses the first packet of a buffer and returns it with its encoded length; `None` if it is incomplete.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, MalformedPacket> {
    let Some((digits, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    Ok(match parse_header(*digits)? {
        Header::Special(packet) => Some((packet, digits.len())),
        Header::Bytes(length) => rest.get(..length).map(|data| (Packet::Data(data), digits.len() + length)),
    })
}

/// Returns the length of the complete packets at the start of a buffer, up to and including the first flush packet, and whether
/// there is one. A request has no response-end packet.
pub(crate) fn until_flush(bytes: &[u8]) -> Result<(usize, bool), MalformedPacket> {
    let mut length = 0;
    while let Some((packet, packet_length)) = first(&bytes[length..])? {
        length += packet_length;
        match packet {
            Packet::Flush => return Ok((length, true)),
            Packet::ResponseEnd => return Err(MalformedPacket),
            Packet::Data(_) | Packet::Delimiter => {}
        }
    }
    Ok((length, false))
}

fn split(bytes: &[u8]) -> Result<(Packet<'_>, &[u8]), MalformedPacket> {
    let (digits, rest) = bytes.split_first_chunk::<4>().ok_or(MalformedPacket)?;
    match parse_header(*digits)? {
        Header::Special(packet) => Ok((packet, rest)),
        Header::Bytes(length) => {
            let (data, rest) = rest.split_at_checked(length).ok_or(MalformedPacket)?;
            Ok((Packet::Data(data), rest))
        }
    }
}

/// Reads a packet into a buffer; `None` at the end of input.
pub(crate) async fn read<'a>(
    input: &mut (impl AsyncRead + Unpin),
    buffer: &'a mut Vec<u8>,
) -> io::Result<Option<Packet<'a>>> {
    let mut digits = [0; 4];
    if input.read(&mut digits[..1]).await? == 0 {
        return Ok(None);
    }
    input.read_exact(&mut digits[1..]).await?;
    match parse_header(digits).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
        Header::Special(packet) => Ok(Some(packet)),
        Header::Bytes(length) => {
            buffer.resize(length, 0);
            input.read_exact(buffer).await?;
            Ok(Some(Packet::Data(buffer)))
        }
    }
}

/// Writes a data packet; content beyond `MAX_PAYLOAD` is truncated.
pub(crate) fn data(out: &mut Vec<u8>, content: &[u8]) {
    let content = &content[..content.len().min(MAX_PAYLOAD)];
    out.extend_from_slice(&header(content.len()));
    out.extend_from_slice(content);
}

/// Writes a line of text as a data packet; text beyond `MAX_PAYLOAD` is truncated.
pub(crate) fn line(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    let start = out.len();
    out.extend_from_slice(&header(0));
    // Writing to memory does not fail.
    let _ = writeln!(out, "{text}");
    let content = start + HEADER_LENGTH;
    out.truncate(content + MAX_PAYLOAD);
    let header = header(out.len() - content);
    out[start..content].copy_from_slice(&header);
}

/// Returns the four digits before a packet with `length` bytes of content, which are at most `MAX_PAYLOAD`.
fn header(length: usize) -> [u8; HEADER_LENGTH] {
    let encoded = length + HEADER_LENGTH;
    [12, 8, 4, 0].map(|shift| b"0123456789abcdef"[encoded >> shift & 0xf])
}

/// Writes a flush packet.
pub(crate) fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(FLUSH);
}

/// Writes a delimiter packet.
pub(crate) fn delimiter(out: &mut Vec<u8>) {
    out.extend_from_slice(DELIMITER);
}

/// Writes content to a side band, in as many packets as needed.
pub(crate) fn side_band(out: &mut Vec<u8>, number: u8, content: &[u8]) {
    for chunk in content.chunks(MAX_PAYLOAD - 1) {
        out.extend_from_slice(&header(chunk.len() + 1));
        out.push(number);
        out.extend_from_slice(chunk);
    }
}

/// Writes packets of a side band, as long as possible, to a writer. What is left when it is dropped is lost.
pub(crate) struct SideBandWriter<W> {
    out: W,
    /// The packet that is not complete yet.
    packet: Vec<u8>,
}

impl<W: io::Write> SideBandWriter<W> {
    /// Writes to the side band with this number.
    pub(crate) fn new(out: W, number: u8) -> Self {
        let mut packet = Vec::with_capacity(HEADER_LENGTH + MAX_PAYLOAD);
        packet.extend_from_slice(&header(0));
        packet.push(number);
        Self { out, packet }
    }

    /// Writes the last packet and returns the writer.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.out)
    }
}

impl<W: io::Write> io::Write for SideBandWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(HEADER_LENGTH + MAX_PAYLOAD - self.packet.len());
        self.packet.extend_from_slice(&bytes[..count]);
        if self.packet.len() == HEADER_LENGTH + MAX_PAYLOAD {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A packet begins with its length and the number of the side band.
        let empty = HEADER_LENGTH + 1;
        if self.packet.len() > empty {
            let header = header(self.packet.len() - HEADER_LENGTH);
            self.packet[..HEADER_LENGTH].copy_from_slice(&header);
            self.out.write_all(&self.packet)?;
            self.packet.truncate(empty);
        }
        Ok(())
    }
}

impl fmt::Display for MalformedPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed pkt-line")
    }
}

impl std::error::Error for MalformedPacket {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_kinds_of_packets_are_parsed() {
        let found: Vec<_> = packets(b"0008abc\n00010004000200000003").collect();
        let expected = [
            Ok(Packet::Data(b"abc\n")),
            Ok(Packet::Delimiter),
            Ok(Packet::Data(b"")),
            Ok(Packet::ResponseEnd),
            Ok(Packet::Flush),
            Err(MalformedPacket),
        ];
        assert_eq!(found, expected);
        assert_eq!(found[0].expect("a packet").text(), Some("abc"));
        for bad in ["00", "+008abcd", "0009abc", "fff5", "ffff", "000g"] {
            assert_eq!(packets(bad.as_bytes()).last(), Some(Err(MalformedPacket)), "{bad}");
        }
    }

    #[test]
    fn complete_packets_are_found_up_to_the_first_flush_packet() {
        for (bytes, expected) in [
            ("", Ok((0, false))),
            ("0008abc", Ok((0, false))),
            ("0008abc\n00", Ok((8, false))),
            ("0008abc\n00010005x", Ok((17, false))),
            ("0008abc\n00000005x", Ok((12, true))),
            ("0000zzzz", Ok((4, true))),
            ("0008abc\nzzzz", Err(MalformedPacket)),
            ("0008abc\n00020000", Err(MalformedPacket)),
        ] {
            assert_eq!(until_flush(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn long_side_band_content_is_split() {
        let content = vec![7; MAX_PAYLOAD + 100];
        let mut out = Vec::new();
        side_band(&mut out, 1, &content);
        let chunks: Vec<_> = packets(&out).collect::<Result<_, _>>().expect("packets");
        let [Packet::Data(first), Packet::Data(second)] = chunks[..] else { panic!("two packets") };
        assert_eq!((first.len(), first[0], second.len(), second[0]), (MAX_PAYLOAD, 1, 102, 1));
    }

    #[test]
    fn side_band_packets_are_as_long_as_possible() {
        let content: Vec<u8> = (0..=255).cycle().take(2 * MAX_PAYLOAD).collect();
        for size in [1, 1000, MAX_PAYLOAD - 1, MAX_PAYLOAD, content.len()] {
            let mut writer = SideBandWriter::new(Vec::new(), 1);
            for chunk in content.chunks(size) {
                writer.write_all(chunk).expect("written");
            }
            let mut expected = Vec::new();
            side_band(&mut expected, 1, &content);
            assert!(writer.finish().expect("written") == expected, "in chunks of {size} bytes");
        }
        let nothing = SideBandWriter::new(Vec::new(), 1).finish().expect("written");
        assert_eq!(nothing, [] as [u8; 0]);
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(bytes: Vec<u8>) {
            let _ = packets(&bytes).count();
            let _ = first(&bytes);
        }

        #[test]
        fn the_first_packet_is_parsed_once_it_is_complete(content: Vec<u8>, rest: Vec<u8>) {
            let mut out = Vec::new();
            data(&mut out, &content);
            let length = out.len();
            for cut in 0..length {
                prop_assert_eq!(first(&out[..cut]), Ok(None));
            }
            out.extend(rest);
            prop_assert_eq!(first(&out), Ok(Some((Packet::Data(&content), length))));
        }

        #[test]
        fn written_packets_are_parsed_back(contents: Vec<Vec<u8>>) {
            let mut out = Vec::new();
            for content in &contents {
                data(&mut out, content);
            }
            flush(&mut out);
            let mut found: Vec<_> = packets(&out).collect::<Result<_, _>>().expect("packets");
            prop_assert_eq!(found.pop(), Some(Packet::Flush));
            prop_assert_eq!(found, contents.iter().map(|content| Packet::Data(content)).collect::<Vec<_>>());
        }

        #[test]
        fn a_stream_yields_the_same_packets_as_a_buffer(contents: Vec<Vec<u8>>, junk: Vec<u8>) {
            let mut out = Vec::new();
            for content in &contents {
                data(&mut out, content);
            }
            out.extend(junk);
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let (mut input, mut buffer) = (&out[..], Vec::new());
                for expected in packets(&out) {
                    let found = read(&mut input, &mut buffer).await;
                    assert_eq!(found.ok().flatten(), expected.ok());
                }
            });
        }
    }
}
