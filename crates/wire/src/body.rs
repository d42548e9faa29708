//! Bodies of requests: unpacked as they come, and never more of them than allowed.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::{
    Stream, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};

/// The bytes of a body as they come.
pub(crate) type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// How much is unpacked at a time. One byte can become a thousand, so half a megabyte may come of it and no more.
const STEP: usize = 512;

/// A body of pieces that are made as they are taken.
pub(crate) fn of(pieces: impl Iterator<Item = Vec<u8>> + Send + 'static) -> Pieces {
    stream::iter(pieces.map(|piece| Ok(Bytes::from(piece)))).boxed()
}

/// A body, unpacked if need be.
pub(crate) fn unpacked(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static, gzip: bool) -> Pieces {
    if !gzip {
        return pieces.boxed();
    }
    let decoder = GzDecoder::new(Vec::new());
    let unpacked = stream::try_unfold((pieces.boxed(), Bytes::new(), Some(decoder)), |state| async {
        let (mut pieces, mut rest, decoder) = state;
        let Some(mut decoder) = decoder else { return Ok(None) };
        loop {
            if rest.is_empty() {
                let Some(piece) = pieces.try_next().await? else {
                    let last = Bytes::from(decoder.finish()?);
                    return Ok::<_, io::Error>(Some((last, (pieces, rest, None))));
                };
                rest = piece;
            }
            let step = rest.split_to(rest.len().min(STEP));
            let taken = decoder.write(&step)?;
            if taken == 0 && !step.is_empty() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "something follows the end of the body"));
            }
            if taken < step.len() {
                // What was not taken comes first the next time.
                rest = Bytes::from([&step[taken..], &rest].concat());
            }
            let ready = std::mem::take(decoder.get_mut());
            if !ready.is_empty() {
                return Ok(Some((ready.into(), (pieces, rest, Some(decoder)))));
            }
        }
    });
    unpacked.try_filter(|piece| std::future::ready(!piece.is_empty())).boxed()
}

/// The same body, with an error where it becomes longer than allowed.
pub(crate) fn at_most(pieces: Pieces, most: u64) -> Pieces {
    let counted = pieces.scan(0_u64, move |count, piece| {
        *count += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        let fits = *count <= most;
        std::future::ready(Some(if fits { piece } else { Err(io::ErrorKind::FileTooLarge.into()) }))
    });
    counted.boxed()
}

/// The beginning of a body, and the rest if it is longer than so much.
pub(crate) async fn beginning(mut pieces: Pieces, enough: usize) -> io::Result<(Vec<u8>, Option<Pieces>)> {
    let mut start = Vec::new();
    while start.len() <= enough {
        match pieces.try_next().await? {
            Some(piece) => start.extend_from_slice(&piece),
            None => return Ok((start, None)),
        }
    }
    Ok((start, Some(pieces)))
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn packed(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).expect("packed");
        encoder.finish().expect("packed")
    }

    fn pieces(bytes: &[u8], length: usize) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let pieces: Vec<_> = bytes.chunks(length).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces)
    }

    async fn all(pieces: Pieces) -> io::Result<Vec<u8>> {
        pieces.map_ok(|piece| piece.to_vec()).try_concat().await
    }

    #[tokio::test]
    async fn a_body_is_unpacked_however_it_is_cut() {
        let content: Vec<u8> = (0..5_000_u32).flat_map(u32::to_be_bytes).collect();
        for length in [1, 511, 512, 513, 100_000] {
            assert!(all(unpacked(pieces(&packed(&content), length), true)).await.expect("whole") == content);
        }
        assert_eq!(all(unpacked(pieces(b"plain", 2), false)).await.expect("whole"), b"plain");
        assert_eq!(all(unpacked(pieces(&packed(b""), 5), true)).await.expect("whole"), b"");
    }

    #[tokio::test]
    async fn what_is_cut_short_or_no_gzip_is_an_error() {
        let whole = packed(b"hello world, hello world");
        for length in [1, 10, whole.len() - 1] {
            assert!(all(unpacked(pieces(&whole[..length], 7), true)).await.is_err(), "{length}");
        }
        assert!(all(unpacked(pieces(b"hello", 7), true)).await.is_err());
        assert!(all(unpacked(pieces(&[&whole[..], b"more"].concat(), 7), true)).await.is_err());
    }

    #[tokio::test]
    async fn lesson_26_a_bomb_is_unpacked_in_small_steps_and_only_so_far() {
        let bomb = packed(&vec![0; 8 << 20]);
        assert!(bomb.len() < 100_000);
        let mut unpacked = at_most(unpacked(pieces(&bomb, bomb.len()), true), 2 << 20);
        let mut seen = 0;
        let error = loop {
            match unpacked.next().await.expect("an end") {
                Ok(piece) => {
                    assert!(piece.len() <= 1 << 20, "{}", piece.len());
                    seen += piece.len();
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(seen <= 2 << 20);
    }

    #[tokio::test]
    async fn a_beginning_is_not_more_than_needed() {
        let (start, rest) = beginning(pieces(b"abcdef", 2).boxed(), 3).await.expect("read");
        assert_eq!(start, b"abcd");
        assert_eq!(all(rest.expect("more")).await.expect("whole"), b"ef");
        let (start, rest) = beginning(pieces(b"abc", 2).boxed(), 3).await.expect("read");
        assert!(start == b"abc" && rest.is_none());
    }
}
