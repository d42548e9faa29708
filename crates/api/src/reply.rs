//! Replies: what a handler gives back.

use std::{fmt, io, marker::PhantomData};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use jiff::tz::Offset;
use model::{Time, objects::Signature};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::ApiError;

/// What every handler returns.
pub(crate) type Reply<T> = Result<T, ApiError>;

/// 200 with a body.
pub(crate) struct Done<T>(pub(crate) T);

/// 201 with a body.
pub(crate) struct Created<T>(pub(crate) T);

/// What was made, under the status that the dialect gives it.
pub(crate) struct Made<T>(pub(crate) StatusCode, pub(crate) T);

/// 204: done, and nothing to say about it.
pub(crate) struct NoContent;

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

/// 200 with a body that was written before, of the shape that it says.
pub(crate) struct Recalled<T> {
    answer: Written,
    shape: PhantomData<T>,
}

/// A body as it goes over the wire, with its tag.
#[derive(Clone)]
pub(crate) struct Written {
    bytes: Bytes,
    tag: HeaderValue,
}

impl Written {
    pub(crate) fn new(body: &impl Serialize) -> Self {
        let bytes = to_bytes(body);
        Self { tag: tag(&bytes), bytes: bytes.into() }
    }
}

impl<T> From<Written> for Recalled<T> {
    fn from(answer: Written) -> Self {
        Self { answer, shape: PhantomData }
    }
}

impl<T> IntoResponse for Recalled<T> {
    fn into_response(self) -> Response {
        with_tag(StatusCode::OK, self.answer.bytes, self.answer.tag)
    }
}

/// 200 with a body of the shape that it says, one field of which may be too large to be held in memory.
pub(crate) struct Streamed<T> {
    response: Response,
    shape: PhantomData<T>,
}

impl<T: Serialize> Streamed<T> {
    /// A body that is held in memory.
    pub(crate) fn whole(body: &T) -> Self {
        Self { response: tagged(StatusCode::OK, body), shape: PhantomData }
    }

    /// A body whose field of this name is empty, and has these bytes in its place as they come, in base 64.
    pub(crate) fn with_content<S>(body: &T, field: &str, size: u64, content: S) -> Self
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let text = Bytes::from(to_bytes(body));
        let tag = tag(&text);
        // A quotation mark within a value has a backslash before it, so this is the field itself.
        let empty = format!("\"{field}\":\"\"");
        let found = text.windows(empty.len()).position(|part| part == empty.as_bytes());
        let at = found.map_or(text.len(), |start| start + empty.len() - 1);
        let length = text.len() as u64 + size.div_ceil(3) * 4;
        let (start, end) = (text.slice(..at), text.slice(at..));
        let whole = stream::iter([Ok(start)]).chain(in_base_64(content)).chain(stream::iter([Ok(end)]));
        let mut response = with_tag(StatusCode::OK, Body::from_stream(whole), tag);
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        Self { response, shape: PhantomData }
    }
}

impl<T> IntoResponse for Streamed<T> {
    fn into_response(self) -> Response {
        self.response
    }
}

/// Bytes in base 64. Three of them become four signs, so one or two may have to wait for the next piece.
fn in_base_64<S>(content: S) -> impl Stream<Item = io::Result<Bytes>> + Send
where
    S: Stream<Item = io::Result<Bytes>> + Send + 'static,
{
    stream::try_unfold(Some((content.boxed(), Vec::new())), |state| async {
        let Some((mut content, mut waiting)) = state else { return Ok(None) };
        let Some(piece) = content.try_next().await? else {
            return Ok(Some((Bytes::from(BASE64_STANDARD.encode(&waiting)), None)));
        };
        waiting.extend_from_slice(&piece);
        let whole = waiting.len() / 3 * 3;
        let encoded = Bytes::from(BASE64_STANDARD.encode(&waiting[..whole]));
        waiting.drain(..whole);
        Ok(Some((encoded, Some((content, waiting)))))
    })
}

/// 201 with a body that nobody may keep a copy of.
pub(crate) struct CreatedSecret<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for CreatedSecret<T> {
    fn into_response(self) -> Response {
        let mut response = raw_json(StatusCode::CREATED, to_bytes(&self.0));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl<T: Serialize> IntoResponse for Done<T> {
    fn into_response(self) -> Response {
        tagged(StatusCode::OK, &self.0)
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        tagged(StatusCode::CREATED, &self.0)
    }
}

impl<T: Serialize> IntoResponse for Made<T> {
    fn into_response(self) -> Response {
        tagged(self.0, &self.1)
    }
}

/// JSON without a charset parameter, as clients expect it.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = raw_json(status, to_bytes(body));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// JSON with a tag by which a client can ask whether it has changed.
pub(crate) fn tagged(status: StatusCode, body: &impl Serialize) -> Response {
    let bytes = to_bytes(body);
    let tag = tag(&bytes);
    with_tag(status, bytes, tag)
}

fn tag(bytes: &[u8]) -> HeaderValue {
    let tag = format!("W/\"{:032x}\"", xxh3_128(bytes));
    HeaderValue::from_str(&tag).expect("hex digits are fine in a header")
}

fn with_tag(status: StatusCode, bytes: impl Into<Body>, tag: HeaderValue) -> Response {
    let mut response = raw_json(status, bytes);
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0, private, must-revalidate"));
    response
}

fn raw_json(status: StatusCode, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn to_bytes(body: &impl Serialize) -> Vec<u8> {
    // Room for one record, so that the usual answer does not grow bit by bit.
    let mut bytes = Vec::with_capacity(768);
    serde_json::to_writer(&mut bytes, body).expect("our shapes have string keys and no fallible parts");
    bytes
}

/// A moment as clients read it: ISO 8601 with milliseconds in UTC.
pub(crate) struct Stamp(pub(crate) Time);

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.digits()).expect("only digits and signs"))
    }
}

impl Stamp {
    /// Written by hand: every answer holds several, and a format string is parsed each time.
    fn digits(&self) -> [u8; 24] {
        let moment = Offset::UTC.to_datetime(self.0);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, width: usize, value: i32| {
            let mut rest = value.unsigned_abs();
            for digit in text[at..at + width].iter_mut().rev() {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
                rest /= 10;
            }
        };
        put(0, 4, moment.year().into());
        put(5, 2, moment.month().into());
        put(8, 2, moment.day().into());
        put(11, 2, moment.hour().into());
        put(14, 2, moment.minute().into());
        put(17, 2, moment.second().into());
        put(20, 3, moment.subsec_nanosecond() / 1_000_000);
        text
    }
}

impl JsonSchema for Stamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// A moment of a commit: ISO 8601 with milliseconds, in the time zone of whoever made it.
pub(crate) struct LocalStamp {
    pub(crate) seconds: i64,
    pub(crate) offset: i32,
}

impl From<&Signature> for LocalStamp {
    fn from(signature: &Signature) -> Self {
        Self { seconds: signature.seconds, offset: signature.offset }
    }
}

impl fmt::Display for LocalStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A commit may claim any moment; what no calendar holds is told as the beginning of time.
        let offset = Offset::from_seconds(self.offset).unwrap_or(Offset::UTC);
        let moment = Time::from_second(self.seconds).ok().map(|moment| offset.to_datetime(moment));
        let moment = moment.filter(|moment| moment.year() >= 0);
        let moment = moment.unwrap_or_else(|| Offset::UTC.to_datetime(Time::UNIX_EPOCH));
        let (sign, minutes) = (if offset.is_negative() { '-' } else { '+' }, offset.seconds().abs() / 60);
        let moment = moment.strftime("%Y-%m-%dT%H:%M:%S.000");
        write!(f, "{moment}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl Serialize for LocalStamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for LocalStamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LocalTimestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// A day as clients read it.
pub(crate) struct Day(pub(crate) jiff::civil::Date);

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl JsonSchema for Day {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Day".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_streamed_field_is_what_it_would_be_in_memory() {
        #[derive(Serialize)]
        struct File {
            name: &'static str,
            content: String,
            last: u8,
        }
        for size in [0_usize, 1, 2, 3, 4, 100, 1000] {
            for piece in [1, 2, 3, 64] {
                let bytes: Vec<u8> = (0..=255).cycle().take(size).collect();
                let pieces: Vec<_> = bytes.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
                let file = |content| File { name: "\"content\":\"\"", content, last: 7 };
                let body = file(String::new());
                let streamed = Streamed::with_content(&body, "content", size as u64, stream::iter(pieces));
                let response = streamed.into_response();
                let length = response.headers()[header::CONTENT_LENGTH].clone();
                let found = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
                let expected = to_bytes(&file(BASE64_STANDARD.encode(&bytes)));
                assert_eq!(found, expected, "{size} {piece}");
                assert_eq!(length, expected.len().to_string());
            }
        }
    }

    #[test]
    fn a_moment_has_milliseconds_and_a_z() {
        let check = |micros, expected: &str| {
            let stamp = Stamp(Time::from_microsecond(micros).expect("in range"));
            assert_eq!(serde_json::to_string(&stamp).expect("written"), format!("\"{expected}\""));
        };
        check(1_479_809_730_123_456, "2016-11-22T10:15:30.123Z");
        check(0, "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_moment_of_a_commit_has_its_own_offset() {
        let check = |seconds, offset, expected: &str| {
            assert_eq!(LocalStamp { seconds, offset }.to_string(), expected, "{seconds} {offset}");
        };
        check(1_422_824_191, 3600, "2015-02-01T21:56:31.000+01:00");
        check(1_422_824_191, 0, "2015-02-01T20:56:31.000+00:00");
        check(1_422_824_191, -9000, "2015-02-01T18:26:31.000-02:30");
        check(-1, 0, "1969-12-31T23:59:59.000+00:00");
        check(i64::MAX, 0, "1970-01-01T00:00:00.000+00:00");
        check(i64::MIN, 3600, "1970-01-01T00:00:00.000+01:00");
        check(0, i32::MAX, "1970-01-01T00:00:00.000+00:00");
    }
}
