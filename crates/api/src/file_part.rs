//! Requests with a file: the multipart fields before it are parameters, the file itself is streamed to the handler.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, HttpBody as _},
    extract::{FromRequestParts, Request},
    handler::Handler,
    http::{HeaderMap, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use forge::{Error, Unvalidated};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use multer::{Field, Multipart};
use percent_encoding::percent_decode_str;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    App,
    access_log::AccessLogContext,
    error::ApiError,
    limits::Permit,
    params::{MAX_PARAMS, ParamValue, RawParams},
    request_body::{ARRIVAL_TIMEOUT, DISCARD_TIMEOUT, LargeBodyAuth},
    request_params::{self, ParsedParams},
    routes::{ArgDoc, OperationDoc},
};

/// The multipart field that contains the file.
const FILE_FIELD: &str = "file";
/// The size of the chunks handed to the multipart parser.
const CHUNK_SIZE: usize = 64 * 1024;
/// The maximum number of bytes that the multipart parser may buffer.
const MAX_BYTES_IN_FLIGHT: u64 = 2 * CHUNK_SIZE as u64;
/// The maximum size of all other fields. They are held in memory before the client is authenticated.
const MAX_OTHER_FIELDS_SIZE: usize = 256 << 10;
/// The maximum pause of a client in the middle of a file.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time of an upload; shorter than the time after which the forge considers it abandoned.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(50 * 60);

/// A handler of requests with a file, and the maximum size of the file.
#[derive(Clone)]
pub(crate) struct WithFile<H>(pub(crate) FileLimit, pub(crate) H);

/// Returns the maximum size of a file in bytes.
pub(crate) type FileLimit = fn(&App) -> u64;

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for WithFile<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        let max_size = self.0(&app);
        Box::pin(handle_request(self.1, request, app, max_size))
    }
}

/// The file of a request, to be validated after the permission check.
pub(crate) struct FilePart {
    /// The file name sent by the client; malformed if there is no file.
    pub(crate) name: Unvalidated<String>,
    /// The content, read from the client on demand.
    pub(crate) content: BoxStream<'static, Result<Bytes, ApiError>>,
}

impl FilePart {
    fn absent(fault: &str) -> Self {
        let fault = format!("{FILE_FIELD} {fault}");
        Self { name: Unvalidated::new(Err(vec![fault])), content: stream::empty().boxed() }
    }
}

/// The request extension from which the extractor takes the file, once.
#[derive(Clone)]
struct PendingFile(Arc<Mutex<Option<FilePart>>>);

impl<S: Send + Sync> FromRequestParts<S> for FilePart {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let pending = parts.extensions.remove::<PendingFile>();
        let file = pending.and_then(|pending| pending.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(file.unwrap_or_else(|| Self::absent("is missing")))
    }
}

impl ArgDoc for FilePart {
    fn describe(operation: &mut OperationDoc) {
        operation.takes_file = true;
    }
}

async fn handle_request<H: Handler<T, App>, T: 'static>(
    handler: H,
    request: Request,
    app: App,
    max_size: u64,
) -> Response {
    AccessLogContext::record_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    // Before anything is read, so that a client that sends `Expect: 100-continue` does not send it at all.
    let permit = match app.limits().acquire_upload(&parts.extensions).await {
        Ok(permit) => permit,
        Err(error) => return error.into_response(),
    };
    let (params, file, permits) = match read(&app, max_size, &mut parts, body).await {
        Ok(read) => read,
        Err(error) => return error.into_response(),
    };
    if let Err(error) = app.limits().count_body_tokens(&parts.extensions, &params) {
        return error.into_response();
    }
    parts.extensions.insert(Arc::new(params));
    parts.extensions.insert(PendingFile(Arc::new(Mutex::new(Some(file)))));
    let response = handler.call(Request::from_parts(parts, Body::empty()), app).await;
    drop((permit, permits));
    response
}

/// Reads the request up to the beginning of the file.
async fn read(
    app: &App,
    max_size: u64,
    parts: &mut Parts,
    body: Body,
) -> Result<(RawParams, FilePart, Vec<Permit>), ApiError> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_multipart = content_type.trim_start().to_ascii_lowercase().starts_with("multipart/form-data");
    if !is_multipart || body.is_end_stream() {
        let ParsedParams { params, permits } =
            request_params::read(app, parts, body, app.body_limit(), LargeBodyAuth::User).await?;
        let fault = if params.get(FILE_FIELD).is_some() { "is invalid" } else { "is missing" };
        return Ok((params, FilePart::absent(fault), permits));
    }
    let (query, headers) = (parts.uri.query(), &parts.headers);
    let boundary = multer::parse_boundary(content_type).map_err(|_| ApiError::MalformedBody)?;
    let allowance = ByteAllowance::new(app.body_limit().min(MAX_OTHER_FIELDS_SIZE) as u64 + MAX_BYTES_IN_FLIGHT);
    let too_large = body.size_hint().lower() > max_size.saturating_add(allowance.other_fields);
    if too_large && headers.contains_key(header::EXPECT) {
        // The client waits for the response before it sends anything.
        return Err(ApiError::BodyTooLarge);
    }
    let upload_body = UploadBody::new(body, allowance.clone());
    if too_large {
        // Dropping the body discards the rest in the background.
        return Err(ApiError::BodyTooLarge);
    }
    let multipart = Multipart::new(stream::unfold(upload_body, UploadBody::next), boundary);
    let mut params = request_params::read_query(query)?;
    // The client is not authenticated yet, so this has the same timeout as an ordinary body.
    let fields = timeout(ARRIVAL_TIMEOUT, read_fields(multipart, allowance)).await;
    let (fields, file) = fields.map_err(|_| ApiError::BodyTimeout)??;
    params.overlay(fields);
    Ok((params, file, Vec::new()))
}

/// Collects fields up to the file; fields after it are ignored.
async fn read_fields(
    mut multipart: Multipart<'static>,
    allowance: ByteAllowance,
) -> Result<(RawParams, FilePart), ApiError> {
    let (mut pairs, mut count) = (Vec::new(), 0);
    let file = loop {
        count += 1;
        if count > MAX_PARAMS {
            return Err(ApiError::TooManyParams);
        }
        let Some(field) = multipart.next_field().await.map_err(into_api_error)? else {
            break FilePart::absent("is missing");
        };
        let Some(name) = field.name().map(ToOwned::to_owned) else { continue };
        match file_name(field.headers()) {
            Some(file_name) if name == FILE_FIELD => {
                let content = content(multipart, field, allowance);
                break FilePart { name: Unvalidated::valid(file_name), content };
            }
            None if name == FILE_FIELD => break FilePart::absent("is invalid"),
            Some(_) => pairs.push((name, ParamValue::File)),
            None => {
                let text = field.bytes().await.map_err(into_api_error)?;
                pairs.push((name, String::from_utf8(text.to_vec()).map_or(ParamValue::InvalidUtf8, ParamValue::Text)));
            }
        }
    };
    Ok((RawParams::from_pairs(pairs.into_iter())?, file))
}

/// Streams the file. It is complete if the whole request arrives and has no second file.
fn content(
    multipart: Multipart<'static>,
    file: Field<'static>,
    allowance: ByteAllowance,
) -> BoxStream<'static, Result<Bytes, ApiError>> {
    // The code that stores the file enforces its size.
    allowance.reset(u64::MAX);
    let state = (multipart, file, allowance);
    stream::try_unfold(state, |(mut multipart, mut file, allowance)| async move {
        if let Some(chunk) = file.chunk().await.map_err(into_api_error)? {
            return Ok(Some((chunk, (multipart, file, allowance))));
        }
        drop(file);
        allowance.reset(allowance.other_fields);
        while let Some(field) = multipart.next_field().await.map_err(into_api_error)? {
            if field.name() == Some(FILE_FIELD) {
                return Err(ApiError::Forge(Error::Malformed(vec![format!("{FILE_FIELD} is invalid")])));
            }
        }
        Ok(None)
    })
    .boxed()
}

/// The number of bytes that may still be received.
#[derive(Clone)]
struct ByteAllowance {
    other_fields: u64,
    left: Arc<AtomicU64>,
}

impl ByteAllowance {
    fn new(other_fields: u64) -> Self {
        Self { other_fields, left: Arc::new(AtomicU64::new(other_fields)) }
    }

    fn reset(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    fn is_exhausted(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn take(&self, bytes: usize) {
        self.reset(self.left.load(Ordering::Relaxed).saturating_sub(bytes as u64));
    }
}

/// The body of an upload, limited in size and time.
struct UploadBody {
    body: Option<BodyDataStream>,
    received: Bytes,
    allowance: ByteAllowance,
    deadline: Instant,
}

impl UploadBody {
    fn new(body: Body, allowance: ByteAllowance) -> Self {
        let (body, deadline) = (Some(body.into_data_stream()), Instant::now() + UPLOAD_TIMEOUT);
        Self { body, received: Bytes::new(), allowance, deadline }
    }

    async fn next(mut self) -> Option<(Result<Bytes, ReadError>, Self)> {
        // The multipart parser polls until nothing is ready; yielding limits it to one chunk at a time.
        tokio::task::yield_now().await;
        if self.allowance.is_exhausted() {
            return Some((Err(ReadError::TooLarge), self));
        }
        while self.received.is_empty() {
            let body = self.body.as_mut()?;
            let received = timeout_at(self.deadline.min(Instant::now() + IDLE_TIMEOUT), body.next()).await;
            let error = match received {
                Ok(Some(Ok(received))) => {
                    self.received = received;
                    continue;
                }
                Ok(Some(Err(_))) => Some(ReadError::Disconnected),
                Ok(None) => None,
                Err(_) => Some(ReadError::Timeout),
            };
            // The end, or an error after which reading stops.
            self.body = None;
            return error.map(|error| (Err(error), self));
        }
        let chunk = self.received.split_to(self.received.len().min(CHUNK_SIZE));
        self.allowance.take(chunk.len());
        Some((Ok(chunk), self))
    }
}

/// Discards the rest in the background: closing the connection while the client still sends would lose the response.
impl Drop for UploadBody {
    fn drop(&mut self) {
        if let (Some(mut body), Ok(runtime)) = (self.body.take(), Handle::try_current()) {
            runtime.spawn(timeout(DISCARD_TIMEOUT, async move { while let Some(Ok(_)) = body.next().await {} }));
        }
    }
}

/// Why a body cannot be read further.
#[derive(Debug)]
enum ReadError {
    TooLarge,
    Timeout,
    Disconnected,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for ReadError {}

fn into_api_error(error: multer::Error) -> ApiError {
    let multer::Error::StreamReadFailed(source) = error else { return ApiError::MalformedBody };
    match source.downcast_ref() {
        Some(ReadError::TooLarge) => ApiError::BodyTooLarge,
        Some(ReadError::Timeout) => ApiError::BodyTimeout,
        Some(ReadError::Disconnected) | None => ApiError::MalformedBody,
    }
}

/// Returns the file name of a multipart field, if it is a file. Invalid UTF-8 is replaced, since the name is sanitized anyway.
///
/// Not from `multer`, which supports neither `filename*`, which older clients use for non-ASCII names, nor invalid UTF-8.
fn file_name(headers: &HeaderMap) -> Option<String> {
    let disposition = headers.get(header::CONTENT_DISPOSITION)?;
    let disposition = String::from_utf8_lossy(disposition.as_bytes());
    let (mut plain, mut extended) = (None, None);
    let mut rest = disposition.split_once(';')?.1;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = attribute_value(after.trim_start());
        match name.trim_matches([' ', '\t', ';']).to_ascii_lowercase().as_str() {
            "filename" => plain = Some(value),
            "filename*" => extended = value.splitn(3, '\'').nth(2).map(ToOwned::to_owned),
            _ => {}
        }
        rest = after;
    }
    let extended = extended.map(|name| percent_decode_str(&name).decode_utf8_lossy().into_owned());
    extended.or(plain)
}

/// Parses a value, quoted or not, and returns the rest. Only `\"` is an escape: some clients send Windows paths.
fn attribute_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim_end().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' if characters.peek().is_some_and(|(_, next)| *next == '"') => {
                characters.next();
                value.push('"');
            }
            _ => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn file_names_are_parsed_in_every_notation() {
        let check = |disposition: &[u8], expected: Option<&str>| {
            let value = HeaderValue::from_bytes(disposition).expect("a header");
            let headers = HeaderMap::from_iter([(header::CONTENT_DISPOSITION, value)]);
            assert_eq!(file_name(&headers).as_deref(), expected, "{}", String::from_utf8_lossy(disposition));
        };
        check(br#"form-data; name="file"; filename="dk.png""#, Some("dk.png"));
        check(br#"form-data; filename="a;b=c.txt" ; name="file""#, Some("a;b=c.txt"));
        check(b"form-data; name=file; FileName=plain.txt ", Some("plain.txt"));
        check(br#"form-data; name="file"; filename="C:\dir\say \"hi\".txt""#, Some("C:\\dir\\say \"hi\".txt"));
        check("form-data; name=\"file\"; filename=\"März.txt\"".as_bytes(), Some("März.txt"));
        check(b"form-data; name=\"file\"; filename=\"M\xe4rz.txt\"", Some("M\u{fffd}rz.txt"));
        check(b"form-data; name=file; filename*=utf-8''M%C3%A4rz.txt", Some("März.txt"));
        check(br#"form-data; name="file"; filename="M_rz.txt"; filename*=UTF-8''M%C3%A4rz.txt"#, Some("März.txt"));
        check(br#"form-data; name="file"; filename="open"#, Some("open"));
        check(br#"form-data; name="file"; filename="""#, Some(""));
        check(br#"form-data; name="filename=x""#, None);
        check(b"form-data", None);
    }
}
