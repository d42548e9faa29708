//! Splits the input of a client into the requests of protocol version 2, each of which ends with a flush packet.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use tokio::sync::{OwnedMutexGuard, mpsc};

use crate::{body::ByteStream, pkt};

/// Reads the requests of a client, no further than to the end of the current one.
pub(super) struct RequestReader {
    chunks: mpsc::Receiver<Bytes>,
    /// Received bytes that are not returned yet.
    buffer: BytesMut,
    /// Whether a request has started and its end has not been read.
    in_request: bool,
}

impl RequestReader {
    pub(super) fn new(chunks: mpsc::Receiver<Bytes>) -> Self {
        Self { chunks, buffer: BytesMut::new(), in_request: false }
    }

    /// Waits for the next request and returns whether there is one. A client ends the connection with a flush packet or the end of
    /// its input. There is none after a request that was not read to its end.
    pub(super) async fn has_request(&mut self) -> bool {
        if self.in_request {
            return false;
        }
        while self.buffer.len() < pkt::FLUSH.len() && self.receive().await {}
        self.in_request = !self.buffer.is_empty() && !self.buffer.starts_with(pkt::FLUSH);
        self.in_request
    }

    /// Returns the current request as a stream. The reader is locked until the stream ends or is dropped.
    pub(super) fn request(reader: OwnedMutexGuard<Self>) -> ByteStream {
        stream::unfold(reader, |mut reader| async move {
            let packets = reader.next_packets().await?;
            Some((Ok(packets), reader))
        })
        .boxed()
    }

    /// Returns the next complete packets of the request; `None` after its end. A malformed or truncated packet ends the request as
    /// well and is returned, so that the request is refused.
    async fn next_packets(&mut self) -> Option<Bytes> {
        while self.in_request {
            let (length, is_end) = pkt::until_flush(&self.buffer).unwrap_or((self.buffer.len(), true));
            if length > 0 {
                self.in_request = !is_end;
                return Some(self.buffer.split_to(length).freeze());
            }
            if !self.receive().await {
                self.in_request = false;
                return Some(self.buffer.split().freeze()).filter(|rest| !rest.is_empty());
            }
        }
        None
    }

    /// Waits for more input and returns whether there is any.
    async fn receive(&mut self) -> bool {
        let chunk = self.chunks.recv().await;
        self.buffer.extend_from_slice(chunk.as_deref().unwrap_or_default());
        chunk.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::TryStreamExt as _;
    use tokio::sync::Mutex;

    use super::*;

    fn reader(input: &[u8], chunk_size: usize) -> Arc<Mutex<RequestReader>> {
        let (sender, chunks) = mpsc::channel(input.len() + 1);
        for chunk in input.chunks(chunk_size) {
            sender.try_send(Bytes::copy_from_slice(chunk)).expect("room");
        }
        Arc::new(Mutex::new(RequestReader::new(chunks)))
    }

    async fn next_request(reader: &Arc<Mutex<RequestReader>>) -> Option<String> {
        let mut reader = Arc::clone(reader).lock_owned().await;
        if !reader.has_request().await {
            return None;
        }
        let chunks: Vec<Bytes> = RequestReader::request(reader).try_collect().await.expect("no error");
        Some(String::from_utf8(chunks.concat()).expect("text"))
    }

    /// Checks which requests an input is split into, with any chunk size.
    async fn check(input: &str, expected: &[&str]) {
        for chunk_size in [1, 2, 3, 5, 7, input.len().max(1)] {
            let (reader, mut found) = (reader(input.as_bytes(), chunk_size), Vec::new());
            while let Some(request) = next_request(&reader).await {
                found.push(request);
            }
            assert_eq!(found, expected, "{input:?} in chunks of {chunk_size}");
        }
    }

    #[tokio::test]
    async fn a_request_ends_with_a_flush_packet() {
        check("0006a\n00010006b\n0000", &["0006a\n00010006b\n0000"]).await;
        check("0006a\n00000006b\n0000", &["0006a\n0000", "0006b\n0000"]).await;
    }

    #[tokio::test]
    async fn a_flush_packet_or_the_end_of_input_ends_the_connection() {
        check("", &[]).await;
        check("0000", &[]).await;
        check("0006a\n000000000006b\n0000", &["0006a\n0000"]).await;
    }

    #[tokio::test]
    async fn a_truncated_request_is_returned_as_it_is() {
        for truncated in ["0", "000", "0006", "0006a\n", "0006a\n00", "0006a\n0001"] {
            check(truncated, &[truncated]).await;
            check(&format!("0006a\n0000{truncated}"), &["0006a\n0000", truncated]).await;
        }
    }

    #[tokio::test]
    async fn a_malformed_packet_ends_a_request() {
        for malformed in ["zzzz", "0003", "0002", "fff5", "0006a\nzzzz"] {
            let reader = reader(malformed.as_bytes(), malformed.len());
            assert_eq!(next_request(&reader).await.as_deref(), Some(malformed));
        }
    }

    #[tokio::test]
    async fn no_request_follows_one_that_was_not_read_to_its_end() {
        let reader = reader(b"0006a\n00000006b\n0000", 6);
        let mut request = Arc::clone(&reader).lock_owned().await;
        assert!(request.has_request().await);
        let mut request = RequestReader::request(request);
        assert_eq!(request.try_next().await.expect("no error").as_deref(), Some(&b"0006a\n"[..]));
        drop(request);
        assert_eq!(next_request(&reader).await, None);
    }
}
