//! Requests that carry a file: the fields before it are parameters, the file itself is read as it comes.

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
    access_log::Footprint,
    bodies::{ARRIVAL_TIMEOUT, Prover},
    error::ApiError,
    inbox::{self, ReadParams},
    limits::Place,
    params::{Bag, Item, MOST_PARAMETERS},
    routes::{ArgDoc, OperationDoc},
};

/// The field that holds the file.
const FIELD: &str = "file";
/// How much is handed on at a time, and how much may be on its way to whoever takes the parts apart.
const PIECE: usize = 64 * 1024;
const UNDER_WAY: u64 = 2 * PIECE as u64;
/// How much may come beside the file. It is held in memory before anybody knows who is asking.
const BESIDE: usize = 256 << 10;
/// How long a client may be silent in the middle of a file.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a file may take, however lively its client is; less than after which the forge takes it for given up.
const WHOLE: Duration = Duration::from_secs(50 * 60);
/// For how long the rest of a refused body is read and thrown away: many clients listen only after they have sent all.
const LINGER: Duration = Duration::from_secs(30);

/// A handler whose request carries a file, with how large that may be.
#[derive(Clone)]
pub(crate) struct WithFile<H>(pub(crate) FileLimit, pub(crate) H);

/// How large a file may be.
pub(crate) type FileLimit = fn(&App) -> u64;

impl<H: Handler<T, App>, T: 'static> Handler<T, App> for WithFile<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, app: App) -> Self::Future {
        let most = self.0(&app);
        Box::pin(open(self.1, request, app, most))
    }
}

/// The file of a request, to be looked at after the gate.
pub(crate) struct FilePart {
    /// What the client calls it; malformed if there is none.
    pub(crate) name: Unvalidated<String>,
    /// What is in it, read from the client as it is asked for.
    pub(crate) content: BoxStream<'static, Result<Bytes, ApiError>>,
}

impl FilePart {
    fn absent(fault: &str) -> Self {
        let fault = format!("{FIELD} {fault}");
        Self { name: Unvalidated::new(Err(vec![fault])), content: stream::empty().boxed() }
    }
}

/// A file on its way from the request to the handler, which takes it once.
#[derive(Clone)]
struct Waiting(Arc<Mutex<Option<FilePart>>>);

impl<S: Send + Sync> FromRequestParts<S> for FilePart {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let waiting = parts.extensions.remove::<Waiting>();
        let file = waiting.and_then(|waiting| waiting.0.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(file.unwrap_or_else(|| Self::absent("is missing")))
    }
}

impl ArgDoc for FilePart {
    fn describe(operation: &mut OperationDoc) {
        operation.takes_file = true;
    }
}

async fn open<H: Handler<T, App>, T: 'static>(handler: H, request: Request, app: App, most: u64) -> Response {
    Footprint::leave_route(request.extensions());
    let (mut parts, body) = request.into_parts();
    // Before anything is read, so that a client that asks first does not send it at all.
    let place = match app.limits().upload_place(&parts.extensions).await {
        Ok(place) => place,
        Err(error) => return error.into_response(),
    };
    let (bag, file, places) = match read(&app, most, &mut parts, body).await {
        Ok(opened) => opened,
        Err(error) => return error.into_response(),
    };
    if let Err(error) = app.limits().settle(&parts.extensions, &bag) {
        return error.into_response();
    }
    parts.extensions.insert(Arc::new(bag));
    parts.extensions.insert(Waiting(Arc::new(Mutex::new(Some(file)))));
    let response = handler.call(Request::from_parts(parts, Body::empty()), app).await;
    drop((place, places));
    response
}

/// Reads as far as the file begins.
async fn read(app: &App, most: u64, parts: &mut Parts, body: Body) -> Result<(Bag, FilePart, Vec<Place>), ApiError> {
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let in_parts = kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data");
    if !in_parts || body.is_end_stream() {
        let ReadParams { bag, places } = inbox::read(app, parts, body, app.body_limit(), Prover::User).await?;
        let fault = if bag.get(FIELD).is_some() { "is invalid" } else { "is missing" };
        return Ok((bag, FilePart::absent(fault), places));
    }
    let (query, headers) = (parts.uri.query(), &parts.headers);
    let boundary = multer::parse_boundary(kind).map_err(|_| ApiError::BadBody)?;
    let allowance = Allowance::new(app.body_limit().min(BESIDE) as u64 + UNDER_WAY);
    let too_large = body.size_hint().lower() > most.saturating_add(allowance.beside);
    if too_large && headers.contains_key(header::EXPECT) {
        // The client asked first, so it will send nothing.
        return Err(ApiError::TooLarge);
    }
    let sent = Sent::new(body, allowance.clone());
    if too_large {
        // Let go of, what is sent is still read for a while.
        return Err(ApiError::TooLarge);
    }
    let multipart = Multipart::new(stream::unfold(sent, Sent::next), boundary);
    let mut bag = inbox::read_query(query)?;
    // Nobody knows yet who is asking, so this may take no longer than an ordinary body.
    let fields = timeout(ARRIVAL_TIMEOUT, read_fields(multipart, allowance)).await;
    let (fields, file) = fields.map_err(|_| ApiError::TooSlow)??;
    bag.overlay(fields);
    Ok((bag, file, Vec::new()))
}

/// Collects fields until the file comes; those after it are too late to be heard.
async fn read_fields(mut multipart: Multipart<'static>, allowance: Allowance) -> Result<(Bag, FilePart), ApiError> {
    let (mut pairs, mut count) = (Vec::new(), 0);
    let file = loop {
        count += 1;
        if count > MOST_PARAMETERS {
            return Err(ApiError::TooMany);
        }
        let Some(field) = multipart.next_field().await.map_err(trouble)? else {
            break FilePart::absent("is missing");
        };
        let Some(name) = field.name().map(ToOwned::to_owned) else { continue };
        match file_name(field.headers()) {
            Some(file_name) if name == FIELD => {
                let content = content(multipart, field, allowance);
                break FilePart { name: Unvalidated::good(file_name), content };
            }
            None if name == FIELD => break FilePart::absent("is invalid"),
            Some(_) => pairs.push((name, Item::Other)),
            None => {
                let text = field.bytes().await.map_err(trouble)?;
                pairs.push((name, String::from_utf8(text.to_vec()).map_or(Item::Garbled, Item::Text)));
            }
        }
    };
    Ok((Bag::collect(pairs.into_iter())?, file))
}

/// The file, piece by piece. It is whole when the request is, and no second file came.
fn content(
    multipart: Multipart<'static>,
    file: Field<'static>,
    allowance: Allowance,
) -> BoxStream<'static, Result<Bytes, ApiError>> {
    // Whoever stores the file counts it.
    allowance.grant(u64::MAX);
    let state = (multipart, file, allowance);
    stream::try_unfold(state, |(mut multipart, mut file, allowance)| async move {
        if let Some(piece) = file.chunk().await.map_err(trouble)? {
            return Ok(Some((piece, (multipart, file, allowance))));
        }
        drop(file);
        allowance.grant(allowance.beside);
        while let Some(field) = multipart.next_field().await.map_err(trouble)? {
            if field.name() == Some(FIELD) {
                return Err(ApiError::Forge(Error::Malformed(vec![format!("{FIELD} is invalid")])));
            }
        }
        Ok(None)
    })
    .boxed()
}

/// How much may still come.
#[derive(Clone)]
struct Allowance {
    beside: u64,
    left: Arc<AtomicU64>,
}

impl Allowance {
    fn new(beside: u64) -> Self {
        Self { beside, left: Arc::new(AtomicU64::new(beside)) }
    }

    fn grant(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }

    fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn take(&self, bytes: usize) {
        self.grant(self.left.load(Ordering::Relaxed).saturating_sub(bytes as u64));
    }
}

/// What the client sends, with an eye on how much it is and how long it takes.
struct Sent {
    body: Option<BodyDataStream>,
    arrived: Bytes,
    allowance: Allowance,
    end: Instant,
}

impl Sent {
    fn new(body: Body, allowance: Allowance) -> Self {
        let (body, end) = (Some(body.into_data_stream()), Instant::now() + WHOLE);
        Self { body, arrived: Bytes::new(), allowance, end }
    }

    async fn next(mut self) -> Option<(Result<Bytes, Trouble>, Self)> {
        // Whoever takes the parts apart takes all that there is at the moment; with a pause, that is one piece.
        tokio::task::yield_now().await;
        if self.allowance.is_used_up() {
            return Some((Err(Trouble::TooMuch), self));
        }
        while self.arrived.is_empty() {
            let body = self.body.as_mut()?;
            let arrived = timeout_at(self.end.min(Instant::now() + SILENCE), body.next()).await;
            let trouble = match arrived {
                Ok(Some(Ok(arrived))) => {
                    self.arrived = arrived;
                    continue;
                }
                Ok(Some(Err(_))) => Some(Trouble::Gone),
                Ok(None) => None,
                Err(_) => Some(Trouble::TooSlow),
            };
            // Nothing more comes, or nothing worth waiting for.
            self.body = None;
            return trouble.map(|trouble| (Err(trouble), self));
        }
        let piece = self.arrived.split_to(self.arrived.len().min(PIECE));
        self.allowance.take(piece.len());
        Some((Ok(piece), self))
    }
}

/// Reads on for a while in the background: a connection closed on a client that still sends takes the answer with it.
impl Drop for Sent {
    fn drop(&mut self) {
        if let (Some(mut body), Ok(runtime)) = (self.body.take(), Handle::try_current()) {
            runtime.spawn(timeout(LINGER, async move { while let Some(Ok(_)) = body.next().await {} }));
        }
    }
}

/// Why a body cannot be read on.
#[derive(Debug)]
enum Trouble {
    TooMuch,
    TooSlow,
    Gone,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Trouble {}

fn trouble(error: multer::Error) -> ApiError {
    let multer::Error::StreamReadFailed(source) = error else { return ApiError::BadBody };
    match source.downcast_ref() {
        Some(Trouble::TooMuch) => ApiError::TooLarge,
        Some(Trouble::TooSlow) => ApiError::TooSlow,
        Some(Trouble::Gone) | None => ApiError::BadBody,
    }
}

/// The name that a part gives its file, if it is one. What is not UTF-8 is repaired, since the name gets cleaned anyway.
///
/// By hand, because the library knows neither `filename*`, by which older clients send other letters, nor repairs.
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

/// A value, quoted or not, and what comes after it. Of escapes only `\"` counts: some clients send paths of Windows.
fn attribute_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(';').unwrap_or(text.len());
        return (text[..end].trim_end().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' if letters.peek().is_some_and(|(_, next)| *next == '"') => {
                letters.next();
                value.push('"');
            }
            _ => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_name_of_a_file_is_read_however_it_is_written() {
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
