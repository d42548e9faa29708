//! Answers that wait in memory for their clients to take them: bounded in all, however many clients take nothing.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    http::header,
    response::{IntoResponse as _, Response},
};
use forge::{Forge, contents};
use futures_util::{Stream, stream};
use http_body_util::BodyExt as _;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{error::ApiError, limits};

/// Shorter answers are not counted: they are copied into the buffer of their connection.
const SHORT: usize = 32 << 10;
/// How many bytes of longer answers may wait in memory; what is beyond waits on the disk.
const MOST: usize = 32 << 20;
/// How much of a longer answer a connection gets at a time.
const PIECE: usize = 32 << 10;

/// How many answers that may be long are made at the same time, those of work that takes long apart from the others. Each is
/// in memory once as what was read and once as what is sent.
const AT_ONCE: usize = 6;

static MADE: [Semaphore; 2] = [const { Semaphore::const_new(AT_ONCE) }; 2];

/// Waits until an answer to a reader may be made that may be long; others may follow once this is dropped. Writes have short
/// answers and may wait for each other, so they take no place.
pub(crate) async fn place_for(
    route: Option<&str>,
    longest: Duration,
) -> Result<Option<SemaphorePermit<'static>>, ApiError> {
    let Some(route) = route.filter(|route| route.contains("/repository/")) else { return Ok(None) };
    let takes_long = limits::is_heavy(route) || route.ends_with("/repository/files") || route.ends_with("/{sha}");
    match timeout(longest, MADE[usize::from(takes_long)].acquire()).await {
        // They are never closed.
        Ok(permit) => Ok(permit.ok()),
        Err(_) => Err(ApiError::Forge(forge::Error::Busy)),
    }
}

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Some bytes of all that wait; given back when it is dropped.
struct Share(usize);

impl Share {
    fn take(bytes: usize) -> Option<Self> {
        let before = WAITING.fetch_add(bytes, Ordering::Relaxed);
        let share = Self(bytes);
        // Dropped, it gives back what was taken.
        (before + bytes <= MOST).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        WAITING.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A body in memory, in pieces; it counts until the last of them is given out.
fn pieces(bytes: Bytes, share: Share) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::unfold((bytes, share), |(mut bytes, share)| async {
        if bytes.is_empty() {
            return None;
        }
        let count = bytes.len().min(PIECE);
        // A copy, so that what is given out does not keep the rest in memory.
        let piece = Bytes::copy_from_slice(&bytes.split_to(count));
        Some((Ok(piece), (bytes, share)))
    })
}

/// Lets an answer wait for its client: in memory if there is room, and on the disk if there is none.
pub(crate) async fn wait_for_client(forge: &Forge, response: Response) -> Response {
    let Some(length) = response.body().size_hint().exact().filter(|length| *length > SHORT as u64) else {
        return response;
    };
    let (mut parts, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return ApiError::Forge(forge::Error::Busy).into_response(),
    };
    let body = match Share::take(bytes.len()) {
        Some(share) => Body::from_stream(pieces(bytes, share)),
        None => match contents::set_aside(forge, bytes).await {
            Ok(answer) => Body::from_stream(answer),
            Err(error) => return ApiError::Forge(error).into_response(),
        },
    };
    parts.headers.insert(header::CONTENT_LENGTH, length.into());
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[test]
    fn shares_are_bounded_and_given_back() {
        let first = Share::take(MOST / 2).expect("room");
        assert!(Share::take(MOST).is_none());
        let second = Share::take(MOST / 2).expect("room");
        assert!(Share::take(1).is_none());
        drop(first);
        assert!(Share::take(MOST / 2).is_some());
        drop(second);
        assert_eq!(WAITING.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_the_whole_body() {
        let bytes: Bytes = (0..=255).cycle().take(3 * PIECE + 7).collect::<Vec<u8>>().into();
        let found: Vec<Bytes> = pieces(bytes.clone(), Share(0)).map(|piece| piece.expect("a piece")).collect().await;
        assert!(found.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(found.concat(), bytes);
    }
}
