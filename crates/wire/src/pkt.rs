//! Packet lines: how git cuts its conversations into pieces.

use std::{fmt, io};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The most bytes that one packet carries.
pub(crate) const LONGEST: usize = 65_516;
/// An end of a section.
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

/// What is no packet at all, or only the beginning of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What four hexadecimal digits announce.
enum Announced {
    Bytes(usize),
    Special(Packet<'static>),
}

impl Packet<'_> {
    /// The content as text without its final newline; `None` if it is something else.
    pub(crate) fn text(&self) -> Option<&str> {
        let Self::Data(data) = self else { return None };
        std::str::from_utf8(data.strip_suffix(b"\n").unwrap_or(data)).ok()
    }
}

fn announced(digits: [u8; 4]) -> Result<Announced, Malformed> {
    let mut length = 0;
    for digit in digits {
        length = length * 16 + char::from(digit).to_digit(16).ok_or(Malformed)? as usize;
    }
    match length {
        0 => Ok(Announced::Special(Packet::Flush)),
        1 => Ok(Announced::Special(Packet::Delimiter)),
        2 => Ok(Announced::Special(Packet::ResponseEnd)),
        3 => Err(Malformed),
        _ if length - 4 > LONGEST => Err(Malformed),
        _ => Ok(Announced::Bytes(length - 4)),
    }
}

/// All packets of a text; the last item tells if something else follows.
pub(crate) fn packets(mut bytes: &[u8]) -> impl Iterator<Item = Result<Packet<'_>, Malformed>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let packet = split(bytes);
        bytes = packet.map_or(&[][..], |(_, rest)| rest);
        Some(packet.map(|(packet, _)| packet))
    })
}

/// The packet at the start of a text, and how many bytes it takes with its length; `None` if it has not come to its end.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<(Packet<'_>, usize)>, Malformed> {
    let Some((digits, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    Ok(match announced(*digits)? {
        Announced::Special(packet) => Some((packet, digits.len())),
        Announced::Bytes(length) => rest.get(..length).map(|data| (Packet::Data(data), digits.len() + length)),
    })
}

fn split(bytes: &[u8]) -> Result<(Packet<'_>, &[u8]), Malformed> {
    let (digits, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed)?;
    match announced(*digits)? {
        Announced::Special(packet) => Ok((packet, rest)),
        Announced::Bytes(length) => {
            let (data, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
            Ok((Packet::Data(data), rest))
        }
    }
}

/// Reads one packet into a buffer; `None` if there is nothing more.
pub(crate) async fn read<'a>(
    input: &mut (impl AsyncRead + Unpin),
    buffer: &'a mut Vec<u8>,
) -> io::Result<Option<Packet<'a>>> {
    let mut digits = [0; 4];
    if input.read(&mut digits[..1]).await? == 0 {
        return Ok(None);
    }
    input.read_exact(&mut digits[1..]).await?;
    match announced(digits).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
        Announced::Special(packet) => Ok(Some(packet)),
        Announced::Bytes(length) => {
            buffer.resize(length, 0);
            input.read_exact(buffer).await?;
            Ok(Some(Packet::Data(buffer)))
        }
    }
}

/// Writes a packet; what is too long for one is cut off.
pub(crate) fn data(out: &mut Vec<u8>, content: &[u8]) {
    let content = &content[..content.len().min(LONGEST)];
    out.extend_from_slice(format!("{:04x}", content.len() + 4).as_bytes());
    out.extend_from_slice(content);
}

/// Writes a line of text as a packet.
pub(crate) fn line(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    data(out, format!("{text}\n").as_bytes());
}

/// Writes the end of a section.
pub(crate) fn flush(out: &mut Vec<u8>) {
    out.extend_from_slice(FLUSH);
}

/// Writes the seam between two parts of a section.
pub(crate) fn delimiter(out: &mut Vec<u8>) {
    out.extend_from_slice(DELIMITER);
}

/// Writes content to one of the bands that share a stream.
pub(crate) fn band(out: &mut Vec<u8>, number: u8, content: &[u8]) {
    for piece in content.chunks(LONGEST - 1) {
        out.extend_from_slice(format!("{:04x}", piece.len() + 5).as_bytes());
        out.push(number);
        out.extend_from_slice(piece);
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is no packet of git's protocol")
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn packets_are_told_apart() {
        let found: Vec<_> = packets(b"0008abc\n00010004000200000003").collect();
        let expected = [
            Ok(Packet::Data(b"abc\n")),
            Ok(Packet::Delimiter),
            Ok(Packet::Data(b"")),
            Ok(Packet::ResponseEnd),
            Ok(Packet::Flush),
            Err(Malformed),
        ];
        assert_eq!(found, expected);
        assert_eq!(found[0].expect("a packet").text(), Some("abc"));
        for bad in ["00", "+008abcd", "0009abc", "fff5", "ffff", "000g"] {
            assert_eq!(packets(bad.as_bytes()).last(), Some(Err(Malformed)), "{bad}");
        }
    }

    #[test]
    fn a_band_is_cut_into_packets() {
        let content = vec![7; LONGEST + 100];
        let mut out = Vec::new();
        band(&mut out, 1, &content);
        let pieces: Vec<_> = packets(&out).collect::<Result<_, _>>().expect("packets");
        let [Packet::Data(first), Packet::Data(second)] = pieces[..] else { panic!("two packets") };
        assert_eq!((first.len(), first[0], second.len(), second[0]), (LONGEST, 1, 102, 1));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_without_a_panic(bytes: Vec<u8>) {
            let _ = packets(&bytes).count();
            let _ = first(&bytes);
        }

        #[test]
        fn the_first_packet_is_the_one_that_a_whole_text_begins_with(content: Vec<u8>, rest: Vec<u8>) {
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
        fn what_is_written_is_read_again(contents: Vec<Vec<u8>>) {
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
        fn a_stream_is_read_as_a_text_is(contents: Vec<Vec<u8>>, junk: Vec<u8>) {
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
