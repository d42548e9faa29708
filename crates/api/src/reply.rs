//! Success responses: statuses, JSON bodies and their `ETag`.

use std::{fmt, io, marker::PhantomData};

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use jiff::{civil::DateTime, tz::Offset};
use model::{Time, objects::Signature};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::ApiError;

/// The result of a handler.
pub(crate) type Reply<T> = Result<T, ApiError>;

/// 200 with a JSON body.
pub(crate) struct OkJson<T>(pub(crate) T);

/// 201 with a JSON body.
pub(crate) struct Created<T>(pub(crate) T);

/// A JSON body with a status that depends on the dialect.
pub(crate) struct WithStatus<T>(pub(crate) StatusCode, pub(crate) T);

/// 204 without a body.
pub(crate) struct NoContent;

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

/// 200 with a JSON body of type `T` that may come from a cache.
pub(crate) struct CachedJson<T> {
    body: SerializedJson,
    marker: PhantomData<T>,
}

/// A serialized JSON body with its `ETag`.
#[derive(Clone)]
pub(crate) struct SerializedJson {
    bytes: Bytes,
    etag: HeaderValue,
}

impl SerializedJson {
    pub(crate) fn new(body: &impl Serialize) -> Self {
        to_bytes(body).into()
    }

    /// Serializes a list, one item after the other.
    pub(crate) fn of_list<T: Serialize>(items: impl ExactSizeIterator<Item = T>) -> Self {
        let mut bytes = Vec::with_capacity(items.len().max(1) * RECORD_CAPACITY);
        bytes.push(b'[');
        for (number, item) in items.enumerate() {
            if number > 0 {
                bytes.push(b',');
            }
            write_to(&mut bytes, &item);
        }
        bytes.push(b']');
        bytes.into()
    }
}

impl From<Vec<u8>> for SerializedJson {
    fn from(bytes: Vec<u8>) -> Self {
        Self { etag: etag(&bytes), bytes: bytes.into() }
    }
}

impl IntoResponse for SerializedJson {
    fn into_response(self) -> Response {
        with_etag(StatusCode::OK, self.bytes, self.etag)
    }
}

impl<T> From<SerializedJson> for CachedJson<T> {
    fn from(body: SerializedJson) -> Self {
        Self { body, marker: PhantomData }
    }
}

impl<T> IntoResponse for CachedJson<T> {
    fn into_response(self) -> Response {
        self.body.into_response()
    }
}

/// 200 with a JSON body of type `T`, one field of which may be streamed because of its size.
pub(crate) struct StreamedJson<T> {
    response: Response,
    marker: PhantomData<T>,
}

impl<T: Serialize> StreamedJson<T> {
    /// Creates a response from a body in memory.
    pub(crate) fn new(body: &T) -> Self {
        Self { response: json_with_etag(StatusCode::OK, body), marker: PhantomData }
    }

    /// Creates a response whose named field, which must be empty in `body`, is streamed from `content` in base64.
    pub(crate) fn with_content<S>(body: &T, field: &str, size: u64, content: S) -> Self
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        let text = Bytes::from(to_bytes(body));
        let etag = etag(&text);
        // Quotes within values are escaped, so this matches only the field itself.
        let empty = format!("\"{field}\":\"\"");
        let position = text.windows(empty.len()).position(|part| part == empty.as_bytes());
        let at = position.map_or(text.len(), |start| start + empty.len() - 1);
        let length = text.len() as u64 + size.div_ceil(3) * 4;
        let (start, end) = (text.slice(..at), text.slice(at..));
        let body = stream::iter([Ok(start)]).chain(base64_stream(content)).chain(stream::iter([Ok(end)]));
        let mut response = with_etag(StatusCode::OK, Body::from_stream(body), etag);
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        Self { response, marker: PhantomData }
    }
}

impl<T> IntoResponse for StreamedJson<T> {
    fn into_response(self) -> Response {
        self.response
    }
}

/// Encodes a stream in base64. Three bytes become four characters, so one or two may be carried over to the next chunk.
fn base64_stream<S>(content: S) -> impl Stream<Item = io::Result<Bytes>> + Send
where
    S: Stream<Item = io::Result<Bytes>> + Send + 'static,
{
    stream::try_unfold(Some((content.boxed(), Vec::new())), |state| async {
        let Some((mut content, mut remainder)) = state else { return Ok(None) };
        let Some(chunk) = content.try_next().await? else {
            return Ok(Some((Bytes::from(BASE64_STANDARD.encode(&remainder)), None)));
        };
        remainder.extend_from_slice(&chunk);
        let length = remainder.len() / 3 * 3;
        let encoded = Bytes::from(BASE64_STANDARD.encode(&remainder[..length]));
        remainder.drain(..length);
        Ok(Some((encoded, Some((content, remainder)))))
    })
}

/// 201 with a JSON body that contains a secret and must not be cached.
pub(crate) struct CreatedSecret<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for CreatedSecret<T> {
    fn into_response(self) -> Response {
        let mut response = raw_json(StatusCode::CREATED, to_bytes(&self.0));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl<T: Serialize> IntoResponse for OkJson<T> {
    fn into_response(self) -> Response {
        json_with_etag(StatusCode::OK, &self.0)
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        json_with_etag(StatusCode::CREATED, &self.0)
    }
}

impl<T: Serialize> IntoResponse for WithStatus<T> {
    fn into_response(self) -> Response {
        json_with_etag(self.0, &self.1)
    }
}

/// Returns a JSON response, without a charset parameter, as clients expect.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = raw_json(status, to_bytes(body));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Returns a JSON response with an `ETag`.
pub(crate) fn json_with_etag(status: StatusCode, body: &impl Serialize) -> Response {
    let bytes = to_bytes(body);
    let etag = etag(&bytes);
    with_etag(status, bytes, etag)
}

fn etag(bytes: &[u8]) -> HeaderValue {
    let etag = format!("W/\"{:032x}\"", xxh3_128(bytes));
    HeaderValue::from_str(&etag).expect("hex digits are valid in a header")
}

fn with_etag(status: StatusCode, bytes: impl Into<Body>, etag: HeaderValue) -> Response {
    let mut response = raw_json(status, bytes);
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0, private, must-revalidate"));
    response
}

fn raw_json(status: StatusCode, bytes: impl Into<Body>) -> Response {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Enough bytes for most records, so that the usual response needs no reallocation.
const RECORD_CAPACITY: usize = 768;

fn to_bytes(body: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_CAPACITY);
    write_to(&mut bytes, body);
    bytes
}

fn write_to(bytes: &mut Vec<u8>, body: &impl Serialize) {
    serde_json::to_writer(bytes, body).expect("JSON structs have string keys and no fallible parts");
}

/// A timestamp in ISO 8601 with milliseconds, in UTC.
pub(crate) struct TimestampJson(pub(crate) Time);

impl Serialize for TimestampJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(ascii(&self.format()))
    }
}

fn ascii(text: &[u8]) -> &str {
    std::str::from_utf8(text).expect("timestamps are ASCII")
}

impl TimestampJson {
    fn format(&self) -> [u8; 24] {
        let datetime = Offset::UTC.to_datetime(self.0);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        write_datetime(&mut text, datetime);
        write_digits(&mut text[20..23], datetime.subsec_nanosecond() / 1_000_000);
        text
    }
}

/// Writes a date and a time in ISO 8601, without a time zone, to the first 19 bytes. Not `strftime`: responses contain many
/// timestamps, and a format string would be parsed for each.
fn write_datetime(text: &mut [u8], datetime: DateTime) {
    write_digits(&mut text[..4], datetime.year().into());
    write_digits(&mut text[5..7], datetime.month().into());
    write_digits(&mut text[8..10], datetime.day().into());
    write_digits(&mut text[11..13], datetime.hour().into());
    write_digits(&mut text[14..16], datetime.minute().into());
    write_digits(&mut text[17..19], datetime.second().into());
}

/// Writes a number with leading zeros.
fn write_digits(text: &mut [u8], number: i32) {
    let mut rest = number.unsigned_abs();
    for digit in text.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
}

impl JsonSchema for TimestampJson {
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

/// The timestamp of a commit in ISO 8601 with milliseconds, in the time zone of its author.
pub(crate) struct LocalTimestampJson {
    pub(crate) seconds: i64,
    pub(crate) offset: i32,
}

impl From<&Signature> for LocalTimestampJson {
    fn from(signature: &Signature) -> Self {
        Self { seconds: signature.seconds, offset: signature.offset }
    }
}

impl LocalTimestampJson {
    fn format(&self) -> [u8; 29] {
        // A commit may contain any timestamp; one out of range is shown as the epoch.
        let offset = Offset::from_seconds(self.offset).unwrap_or(Offset::UTC);
        let datetime = Time::from_second(self.seconds).ok().map(|time| offset.to_datetime(time));
        let datetime = datetime.filter(|datetime| datetime.year() >= 0);
        let datetime = datetime.unwrap_or_else(|| Offset::UTC.to_datetime(Time::UNIX_EPOCH));
        let minutes = offset.seconds().abs() / 60;
        let mut text = *b"0000-00-00T00:00:00.000+00:00";
        write_datetime(&mut text, datetime);
        if offset.is_negative() {
            text[23] = b'-';
        }
        write_digits(&mut text[24..26], minutes / 60);
        write_digits(&mut text[27..29], minutes % 60);
        text
    }
}

impl fmt::Display for LocalTimestampJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ascii(&self.format()))
    }
}

impl Serialize for LocalTimestampJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(ascii(&self.format()))
    }
}

impl JsonSchema for LocalTimestampJson {
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

/// A date in ISO 8601.
pub(crate) struct DateJson(pub(crate) jiff::civil::Date);

impl Serialize for DateJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl JsonSchema for DateJson {
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
    async fn a_streamed_field_equals_the_serialized_one() {
        #[derive(Serialize)]
        struct File {
            name: &'static str,
            content: String,
            last: u8,
        }
        for size in [0_usize, 1, 2, 3, 4, 100, 1000] {
            for chunk in [1, 2, 3, 64] {
                let bytes: Vec<u8> = (0..=255).cycle().take(size).collect();
                let chunks: Vec<_> = bytes.chunks(chunk).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
                let file = |content| File { name: "\"content\":\"\"", content, last: 7 };
                let body = file(String::new());
                let streamed = StreamedJson::with_content(&body, "content", size as u64, stream::iter(chunks));
                let response = streamed.into_response();
                let length = response.headers()[header::CONTENT_LENGTH].clone();
                let found = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
                let expected = to_bytes(&file(BASE64_STANDARD.encode(&bytes)));
                assert_eq!(found, expected, "{size} {chunk}");
                assert_eq!(length, expected.len().to_string());
            }
        }
    }

    #[test]
    fn a_list_is_serialized_as_serde_json_does() {
        for length in 0..3 {
            let items = vec![("name", 1.5, Some("\"quoted\"")); length];
            let expected = serde_json::to_vec(&items).expect("written");
            assert_eq!(SerializedJson::of_list(items.into_iter()).bytes, expected);
        }
    }

    #[test]
    fn a_timestamp_has_milliseconds_and_a_z() {
        let check = |micros, expected: &str| {
            let stamp = TimestampJson(Time::from_microsecond(micros).expect("in range"));
            assert_eq!(serde_json::to_string(&stamp).expect("written"), format!("\"{expected}\""));
        };
        check(1_479_809_730_123_456, "2016-11-22T10:15:30.123Z");
        check(0, "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_timestamp_of_a_commit_has_its_own_offset() {
        let check = |seconds, offset, expected: &str| {
            assert_eq!(LocalTimestampJson { seconds, offset }.to_string(), expected, "{seconds} {offset}");
        };
        check(1_422_824_191, 3600, "2015-02-01T21:56:31.000+01:00");
        check(1_422_824_191, 0, "2015-02-01T20:56:31.000+00:00");
        check(1_422_824_191, -9000, "2015-02-01T18:26:31.000-02:30");
        check(-1, 0, "1969-12-31T23:59:59.000+00:00");
        check(i64::MAX, 0, "1970-01-01T00:00:00.000+00:00");
        check(i64::MIN, 3600, "1970-01-01T00:00:00.000+01:00");
        check(-61_000_000_000, 0, "0036-12-26T11:33:20.000+00:00");
        check(0, i32::MAX, "1970-01-01T00:00:00.000+00:00");
    }
}
