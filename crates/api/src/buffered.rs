//! Answers that wait in memory for their clients to take them: bounded in all, however many clients take nothing.

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

use crate::{error::ApiError, limits, params::Bag};

/// Shorter answers are not counted: they are copied into the buffer of their connection.
const SHORT: usize = 32 << 10;
/// How many bytes of longer answers may wait in memory; what is beyond waits on the disk.
const MOST: usize = 32 << 20;
/// How much of a longer answer a connection gets at a time.
const PIECE: usize = 32 << 10;

/// How many answers about repositories are made at the same time, those of work that takes long apart from the others. Each
/// is in memory once as what was read and once as what is sent. One address has at most half of them.
pub(crate) const AT_ONCE: (usize, usize) = (6, 3);
/// How many kilobytes all other answers may take in memory while they are made, if each is as long as it can be, in all and
/// for one address.
pub(crate) const KILOBYTES_AT_ONCE: (usize, usize) = (200 << 10, 100 << 10);

/// What an item of a list takes while an answer is made: once as what was read and once as JSON, where a letter may be six
/// bytes long. Texts of issues, notes and milestones have up to 100,000 letters, and an event may tell of a note or of
/// 128 KB of commit messages.
const LONG_TEXT: usize = 1 << 10;
/// The same for a build, which shows the message of its commit.
const BUILD: usize = 512;
/// The same for a variable, whose value has up to 10,000 letters.
const VARIABLE: usize = 128;
/// The same for everything else.
const SHORT_ITEM: usize = 32;
/// What one delivery of a webhook takes: its payload lists up to 512 KB of paths and is taken apart to be shown.
const DELIVERY: usize = 24 << 10;

/// Which places the answer to a reader needs while it is made. Writes have short answers and may wait for each other, so they
/// need none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// One of the places for answers about repositories, of which those that take long have their own.
    Repository { takes_long: bool },
    /// So many kilobytes.
    Kilobytes(usize),
}

impl Making {
    /// What the answer of a route needs; `is_list` says whether it is a page of a list.
    pub(crate) fn of(route: &str, is_list: bool, bag: &Bag) -> Option<Self> {
        let items = if is_list { page_size(bag) } else { 1 };
        let is_about = |word: &str| route.split('/').any(|part| part == word);
        if ["issues", "notes", "milestones", "events", "comments"].into_iter().any(is_about) {
            return Some(Self::Kilobytes(items * LONG_TEXT));
        }
        if route.ends_with("/deliveries/{delivery_id}") {
            return Some(Self::Kilobytes(DELIVERY));
        }
        if is_about("deliveries") {
            return Some(Self::Kilobytes(items * LONG_TEXT));
        }
        if is_about("builds") {
            return Some(Self::Kilobytes(items * BUILD));
        }
        if is_about("variables") {
            return Some(Self::Kilobytes(items * VARIABLE));
        }
        if is_about("repository") {
            let takes_long =
                limits::is_heavy(route) || route.ends_with("/repository/files") || route.ends_with("/{sha}");
            return Some(Self::Repository { takes_long });
        }
        is_list.then_some(Self::Kilobytes(items * SHORT_ITEM))
    }
}

/// How many items a page has at most.
fn page_size(bag: &Bag) -> usize {
    let size = bag.text("per_page").map(|size| size.trim().parse().unwrap_or(MAX_SIZE));
    usize::try_from(Page::new(None, size).size).unwrap_or(1)
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
    use crate::params::Item;

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

    #[test]
    fn every_list_needs_as_much_as_its_longest_page() {
        let check = |route: &str, is_list: bool, per_page: &str, expected: Option<Making>| {
            let pairs = (!per_page.is_empty()).then(|| ("per_page".to_owned(), Item::Text(per_page.to_owned())));
            let bag = Bag::collect(pairs.into_iter()).expect("few");
            assert_eq!(Making::of(&format!("/api/v3{route}"), is_list, &bag), expected, "{route} {per_page}");
        };
        let kilobytes = |count| Some(Making::Kilobytes(count));
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
        check("/projects/{id}/repository/tree", true, "", Some(Making::Repository { takes_long: false }));
        check("/projects/{id}/repository/compare", false, "", Some(Making::Repository { takes_long: true }));
        check("/projects/{id}/repository/files", false, "", Some(Making::Repository { takes_long: true }));
        // No page is larger than what one address may have.
        const { assert!(100 * LONG_TEXT <= KILOBYTES_AT_ONCE.1) };
        const { assert!(DELIVERY <= KILOBYTES_AT_ONCE.1) };
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_the_whole_body() {
        let bytes: Bytes = (0..=255).cycle().take(3 * PIECE + 7).collect::<Vec<u8>>().into();
        let found: Vec<Bytes> = pieces(bytes.clone(), Share(0)).map(|piece| piece.expect("a piece")).collect().await;
        assert!(found.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(found.concat(), bytes);
    }
}
