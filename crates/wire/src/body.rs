//! Request bodies: decompressed while they arrive, and limited in size.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::{
    Stream, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};

/// A body as a stream of chunks.
pub(crate) type ByteStream = BoxStream<'static, io::Result<Bytes>>;

/// The number of compressed bytes decompressed at a time. With gzip's maximum ratio of about 1000 a step yields at most half a
/// megabyte.
const DECOMPRESS_STEP: usize = 512;

/// Creates a body from chunks that are produced on demand.
pub(crate) fn from_chunks(chunks: impl Iterator<Item = Vec<u8>> + Send + 'static) -> ByteStream {
    stream::iter(chunks.map(|chunk| Ok(Bytes::from(chunk)))).boxed()
}

/// Decompresses a body if it is gzip.
pub(crate) fn decompress(chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static, gzip: bool) -> ByteStream {
    if !gzip {
        return chunks.boxed();
    }
    let decoder = GzDecoder::new(Vec::new());
    let unpacked = stream::try_unfold((chunks.boxed(), Bytes::new(), Some(decoder)), |state| async {
        let (mut chunks, mut rest, decoder) = state;
        let Some(mut decoder) = decoder else { return Ok(None) };
        loop {
            if rest.is_empty() {
                let Some(chunk) = chunks.try_next().await? else {
                    let last = Bytes::from(decoder.finish()?);
                    return Ok::<_, io::Error>(Some((last, (chunks, rest, None))));
                };
                rest = chunk;
            }
            let step = rest.split_to(rest.len().min(DECOMPRESS_STEP));
            let taken = decoder.write(&step)?;
            if taken == 0 && !step.is_empty() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "trailing data after the gzip stream"));
            }
            if taken < step.len() {
                // The decoder did not accept all of the step; retry the remainder.
                rest = Bytes::from([&step[taken..], &rest].concat());
            }
            let ready = std::mem::take(decoder.get_mut());
            if !ready.is_empty() {
                return Ok(Some((ready.into(), (chunks, rest, Some(decoder)))));
            }
        }
    });
    unpacked.try_filter(|chunk| std::future::ready(!chunk.is_empty())).boxed()
}

/// Limits a body; the stream fails with [`io::ErrorKind::FileTooLarge`] once it exceeds `max_bytes`.
pub(crate) fn limit(chunks: ByteStream, max_bytes: u64) -> ByteStream {
    let counted = chunks.scan(0_u64, move |count, chunk| {
        *count += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        let fits = *count <= max_bytes;
        std::future::ready(Some(if fits { chunk } else { Err(io::ErrorKind::FileTooLarge.into()) }))
    });
    counted.boxed()
}

/// Reads a body until it ends or exceeds `length` bytes; in the latter case also returns the rest.
pub(crate) async fn read_prefix(mut chunks: ByteStream, length: usize) -> io::Result<(Vec<u8>, Option<ByteStream>)> {
    let mut start = Vec::new();
    while start.len() <= length {
        match chunks.try_next().await? {
            Some(chunk) => start.extend_from_slice(&chunk),
            None => return Ok((start, None)),
        }
    }
    Ok((start, Some(chunks)))
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

    fn chunks(bytes: &[u8], length: usize) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let chunks: Vec<_> = bytes.chunks(length).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        stream::iter(chunks)
    }

    async fn all(chunks: ByteStream) -> io::Result<Vec<u8>> {
        chunks.map_ok(|chunk| chunk.to_vec()).try_concat().await
    }

    #[tokio::test]
    async fn a_body_is_decompressed_with_any_chunk_size() {
        let content: Vec<u8> = (0..5_000_u32).flat_map(u32::to_be_bytes).collect();
        for length in [1, 511, 512, 513, 100_000] {
            assert!(all(decompress(chunks(&packed(&content), length), true)).await.expect("whole") == content);
        }
        assert_eq!(all(decompress(chunks(b"plain", 2), false)).await.expect("whole"), b"plain");
        assert_eq!(all(decompress(chunks(&packed(b""), 5), true)).await.expect("whole"), b"");
    }

    #[tokio::test]
    async fn truncated_or_invalid_gzip_is_an_error() {
        let whole = packed(b"hello world, hello world");
        for length in [1, 10, whole.len() - 1] {
            assert!(all(decompress(chunks(&whole[..length], 7), true)).await.is_err(), "{length}");
        }
        assert!(all(decompress(chunks(b"hello", 7), true)).await.is_err());
        assert!(all(decompress(chunks(&[&whole[..], b"more"].concat(), 7), true)).await.is_err());
    }

    #[tokio::test]
    async fn a_gzip_bomb_is_decompressed_in_small_steps_up_to_the_limit() {
        let bomb = packed(&vec![0; 8 << 20]);
        assert!(bomb.len() < 100_000);
        let mut unpacked = limit(decompress(chunks(&bomb, bomb.len()), true), 2 << 20);
        let mut seen = 0;
        let error = loop {
            match unpacked.next().await.expect("an end") {
                Ok(chunk) => {
                    assert!(chunk.len() <= 1 << 20, "{}", chunk.len());
                    seen += chunk.len();
                }
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(seen <= 2 << 20);
    }

    #[tokio::test]
    async fn a_prefix_is_not_longer_than_needed() {
        let (start, rest) = read_prefix(chunks(b"abcdef", 2).boxed(), 3).await.expect("read");
        assert_eq!(start, b"abcd");
        assert_eq!(all(rest.expect("more")).await.expect("whole"), b"ef");
        let (start, rest) = read_prefix(chunks(b"abc", 2).boxed(), 3).await.expect("read");
        assert!(start == b"abc" && rest.is_none());
    }
}
