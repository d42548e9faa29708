//! Responses that are buffered in memory until their clients read them: bounded in total, however many clients read slowly.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    http::header,
    response::{IntoResponse as _, Response},
};
use forge::{Forge, contents};
use futures_util::{Stream, stream};
use http_body_util::BodyExt as _;
use model::{Page, page::MAX_SIZE};

use crate::{error::ApiError, limits, params::RawParams};

/// Shorter responses are not counted: they are copied into the buffer of their connection.
const MIN_COUNTED_LENGTH: usize = 32 << 10;
/// The maximum number of bytes of longer responses in memory; further responses are spooled to disk.
const MAX_BUFFERED_BYTES: usize = 32 << 20;
/// The size of the chunks in which a longer response is sent, in bytes.
const CHUNK_SIZE: usize = 32 << 10;

/// The maximum number of repository responses produced concurrently, in total and per client network; expensive ones are
/// counted separately. Each is in memory twice: as read and as serialized.
pub(crate) const MAX_REPOSITORY_RESPONSES: (usize, usize) = (6, 3);
/// The maximum number of kilobytes that all other responses may take while they are produced, if each has its maximum size,
/// in total and per client network.
pub(crate) const MAX_RESPONSE_KILOBYTES: (usize, usize) = (200 << 10, 100 << 10);

/// The memory of a list item with a long text: once as read and once as JSON, where a character may take six bytes. Texts of
/// issues, notes and milestones have up to 100,000 characters, and an event may contain a note or 128 KB of commit messages.
const LONG_TEXT_KILOBYTES: usize = 1 << 10;
/// The memory of a job, which contains the message of its commit.
const JOB_KILOBYTES: usize = 512;
/// The memory of a variable, whose value has up to 10,000 characters.
const VARIABLE_KILOBYTES: usize = 128;
/// The memory of any other item.
const SHORT_ITEM_KILOBYTES: usize = 32;
/// The memory of one webhook delivery: its payload lists up to 512 KB of paths and is parsed.
const DELIVERY_KILOBYTES: usize = 24 << 10;

/// The permits that the response to a read request needs while it is produced. Writes have short responses and may wait for
/// each other, so they need none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseCost {
    /// One of the permits for repository responses, of which expensive ones have their own.
    Repository { expensive: bool },
    /// The given number of kilobytes.
    Kilobytes(usize),
}

impl ResponseCost {
    /// Returns the cost of a response of this route; `is_list` says whether it is a page of a list.
    pub(crate) fn of(route: &str, is_list: bool, params: &RawParams) -> Option<Self> {
        let items = if is_list { page_size(params) } else { 1 };
        let has_segment = |word: &str| route.split('/').any(|part| part == word);
        if ["issues", "notes", "milestones", "events", "comments"].into_iter().any(has_segment) {
            return Some(Self::Kilobytes(items * LONG_TEXT_KILOBYTES));
        }
        if route.ends_with("/deliveries/{delivery_id}") {
            return Some(Self::Kilobytes(DELIVERY_KILOBYTES));
        }
        if has_segment("deliveries") {
            return Some(Self::Kilobytes(items * LONG_TEXT_KILOBYTES));
        }
        if has_segment("builds") {
            return Some(Self::Kilobytes(items * JOB_KILOBYTES));
        }
        if has_segment("variables") {
            return Some(Self::Kilobytes(items * VARIABLE_KILOBYTES));
        }
        if has_segment("repository") {
            let expensive =
                limits::is_expensive(route) || route.ends_with("/repository/files") || route.ends_with("/{sha}");
            return Some(Self::Repository { expensive });
        }
        is_list.then_some(Self::Kilobytes(items * SHORT_ITEM_KILOBYTES))
    }
}

/// Returns the maximum number of items on the requested page.
fn page_size(params: &RawParams) -> usize {
    let size = params.text("per_page").map(|size| size.trim().parse().unwrap_or(MAX_SIZE));
    usize::try_from(Page::new(None, size).size).unwrap_or(1)
}

static BUFFERED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A number of buffered bytes, released on drop.
struct Reservation(usize);

impl Reservation {
    fn take(bytes: usize) -> Option<Self> {
        let before = BUFFERED_BYTES.fetch_add(bytes, Ordering::Relaxed);
        let reservation = Self(bytes);
        // On failure the drop releases the bytes.
        (before + bytes <= MAX_BUFFERED_BYTES).then_some(reservation)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        BUFFERED_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Streams a body in chunks; it stays counted until the last chunk is taken.
fn chunks(bytes: Bytes, reservation: Reservation) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    stream::unfold((bytes, reservation), |(mut bytes, reservation)| async {
        if bytes.is_empty() {
            return None;
        }
        let count = bytes.len().min(CHUNK_SIZE);
        // A copy, so that the chunk does not keep the rest in memory.
        let chunk = Bytes::copy_from_slice(&bytes.split_to(count));
        Some((Ok(chunk), (bytes, reservation)))
    })
}

/// Buffers a response for its client: in memory if the budget allows, otherwise on disk.
pub(crate) async fn buffer_response(forge: &Forge, response: Response) -> Response {
    let Some(length) = response.body().size_hint().exact().filter(|length| *length > MIN_COUNTED_LENGTH as u64) else {
        return response;
    };
    let (mut parts, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return ApiError::Forge(forge::Error::Busy).into_response(),
    };
    let body = match Reservation::take(bytes.len()) {
        Some(reservation) => Body::from_stream(chunks(bytes, reservation)),
        None => match contents::spool_response(forge, bytes).await {
            Ok(spooled) => Body::from_stream(spooled),
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
    use crate::params::ParamValue;

    #[test]
    fn reservations_are_bounded_and_released() {
        let first = Reservation::take(MAX_BUFFERED_BYTES / 2).expect("within the budget");
        assert!(Reservation::take(MAX_BUFFERED_BYTES).is_none());
        let second = Reservation::take(MAX_BUFFERED_BYTES / 2).expect("within the budget");
        assert!(Reservation::take(1).is_none());
        drop(first);
        assert!(Reservation::take(MAX_BUFFERED_BYTES / 2).is_some());
        drop(second);
        assert_eq!(BUFFERED_BYTES.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_cost_of_a_list_is_that_of_its_longest_page() {
        let check = |route: &str, is_list: bool, per_page: &str, expected: Option<ResponseCost>| {
            let pairs = (!per_page.is_empty()).then(|| ("per_page".to_owned(), ParamValue::Text(per_page.to_owned())));
            let params = RawParams::from_pairs(pairs.into_iter()).expect("few");
            assert_eq!(ResponseCost::of(&format!("/api/v3{route}"), is_list, &params), expected, "{route} {per_page}");
        };
        let kilobytes = |count| Some(ResponseCost::Kilobytes(count));
        check("/issues", true, "", kilobytes(20 << 10));
        check("/projects/{id}/issues", true, "100", kilobytes(100 << 10));
        check("/projects/{id}/issues", true, "5000", kilobytes(100 << 10));
        check("/projects/{id}/issues", true, "x", kilobytes(100 << 10));
        check("/projects/{id}/issues/{issue_id}/notes", true, "0", kilobytes(20 << 10));
        check("/projects/{id}/issues/{issue_id}", false, "100", kilobytes(1 << 10));
        check("/projects/{id}/repository/commits/{sha}/comments", true, "100", kilobytes(100 << 10));
        check("/projects/{id}/hooks/{hook_id}/deliveries/{delivery_id}", false, "", kilobytes(24 << 10));
        check("/projects", true, "100", kilobytes(3200));
        check("/projects/{id}/variables", true, "100", kilobytes(12_800));
        check("/projects/{id}", false, "", None);
        check("/projects/{id}/repository/tree", true, "", Some(ResponseCost::Repository { expensive: false }));
        check("/projects/{id}/repository/compare", false, "", Some(ResponseCost::Repository { expensive: true }));
        check("/projects/{id}/repository/files", false, "", Some(ResponseCost::Repository { expensive: true }));
        // No page costs more than one client network may use.
        const { assert!(100 * LONG_TEXT_KILOBYTES <= MAX_RESPONSE_KILOBYTES.1) };
        const { assert!(DELIVERY_KILOBYTES <= MAX_RESPONSE_KILOBYTES.1) };
    }

    #[tokio::test]
    async fn chunks_add_up_to_the_whole_body() {
        let bytes: Bytes = (0..=255).cycle().take(3 * CHUNK_SIZE + 7).collect::<Vec<u8>>().into();
        let found: Vec<Bytes> =
            chunks(bytes.clone(), Reservation(0)).map(|chunk| chunk.expect("a chunk")).collect().await;
        assert!(found.iter().all(|chunk| chunk.len() <= CHUNK_SIZE));
        assert_eq!(found.concat(), bytes);
    }
}
