//! An S3 server in this process, which can be told to fail.

use std::{
    env, fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    task::{Context, Poll},
    thread,
    time::Duration,
};

use axum::body::Bytes;
use files::bucket::{Bucket, BucketOptions, Timeouts};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use s3s::{
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use crate::resources::in_memory_folder;

/// The credentials of the server.
const ACCESS_KEY: &str = "test-access-key";
const SECRET_KEY: &str = "test-secret-key";
/// The name of the only bucket.
const BUCKET: &str = "gable";

/// An S3 server with one bucket; it is stopped at the end of the process.
pub struct TestBucket {
    folder: PathBuf,
    _temporary: Option<TempDir>,
    address: SocketAddr,
    faults: Arc<Mutex<Faults>>,
}

/// What goes wrong with the next requests.
#[derive(Default)]
struct Faults {
    fault: Option<Fault>,
    /// The number of requests that the fault affects.
    remaining: u32,
    /// It affects only requests that join the parts of an upload.
    only_completions: bool,
    /// The number of requests so far, by method.
    requests: Vec<String>,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with 503, and nothing is done.
    Unavailable,
    /// It is answered with 403 and this error code, and nothing is done.
    Refused(&'static str),
    /// It is executed, and the connection is closed instead of an answer.
    NoAnswer,
    /// Its answer ends in the middle.
    Torn,
    /// One byte of its answer is changed.
    Changed,
    /// Its answer lacks the metadata of the object.
    NoMetadata,
    /// Its answer takes longer than the client waits.
    Slow(Duration),
    /// If it lists objects, its answer lacks packs and uploads.
    StaleListing,
}

type ResponseBody = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

impl TestBucket {
    /// Returns the server that all tests of this process share if `GABLE_TEST_STORE=bucket` is set.
    pub(crate) fn of_all_tests() -> Option<&'static Self> {
        static SHARED: LazyLock<Option<TestBucket>> = LazyLock::new(|| {
            let is_wanted = env::var("GABLE_TEST_STORE").is_ok_and(|store| store == "bucket");
            is_wanted.then(TestBucket::start)
        });
        SHARED.as_ref()
    }

    /// Starts a server with a temporary folder.
    pub fn start() -> Self {
        let folder = in_memory_folder();
        let server = Self::start_in(folder.path(), (Ipv4Addr::LOCALHOST, 0).into());
        Self { _temporary: Some(folder), ..server }
    }

    /// Starts a server that keeps its objects in a folder.
    pub fn start_in(folder: &Path, address: SocketAddr) -> Self {
        fs::create_dir_all(folder.join(BUCKET)).expect("a bucket");
        let mut service = S3ServiceBuilder::new(FileSystem::new(folder).expect("a folder of buckets"));
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let (service, faults) = (service.build(), Arc::<Mutex<Faults>>::default());
        let listener = std::net::TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("bound");
        let of_server = Arc::clone(&faults);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serve(listener, service, of_server)).expect("a listener");
        });
        Self { folder: folder.to_owned(), _temporary: None, address, faults }
    }

    /// Returns the folder in which the server keeps the objects of the bucket, each as a file with the name of its key.
    pub fn folder(&self) -> PathBuf {
        self.folder.join(BUCKET)
    }

    /// Returns the URL of the server.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the variables that a program needs to use the server.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variables = [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_REGION", "test".to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// Returns the URL of a store below a prefix.
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// Returns a client for the keys below a prefix; `folder` is for its incomplete uploads and its cache.
    pub fn client(&self, prefix: &str, folder: &Path) -> Bucket {
        let options = BucketOptions::new(&self.url(prefix), self.variables()).expect("valid options");
        let seconds = Duration::from_secs;
        let timeouts = Timeouts { connect: seconds(2), response: seconds(2), read: seconds(2), retries: seconds(4) };
        Bucket::with_timeouts(&options, folder, timeouts).expect("a client")
    }

    /// Makes the next requests fail.
    pub fn fail_next(&self, requests: u32, fault: Fault) {
        let mut faults = self.lock();
        (faults.fault, faults.remaining, faults.only_completions) = (Some(fault), requests, false);
    }

    /// Makes the next request that joins the parts of an upload fail.
    pub fn fail_next_completion(&self, fault: Fault) {
        let mut faults = self.lock();
        (faults.fault, faults.remaining, faults.only_completions) = (Some(fault), 1, true);
    }

    /// Ends the faults.
    pub fn recover(&self) {
        self.lock().fault = None;
    }

    /// Returns the methods and paths of all requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Returns the content of a key as the server stores it.
    pub fn stored(&self, key: &str) -> Option<Vec<u8>> {
        fs::read(self.folder().join(key)).ok()
    }

    /// Replaces the content of a key without the knowledge of the server.
    pub fn overwrite(&self, key: &str, content: &[u8]) {
        fs::write(self.folder().join(key), content).expect("written");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(listener: std::net::TcpListener, service: S3Service, faults: Arc<Mutex<Faults>>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (connection, _) = listener.accept().await?;
        tokio::spawn(serve_connection(connection, service.clone(), Arc::clone(&faults)));
    }
}

async fn serve_connection(connection: TcpStream, service: S3Service, faults: Arc<Mutex<Faults>>) {
    let respond = service_fn(move |request: Request<Incoming>| {
        let (service, fault) = (service.clone(), next_fault(&faults, &request));
        async move { answer(&service, request, fault).await }
    });
    // An error closes the connection, which is what some faults want.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(connection), respond).await;
}

fn next_fault(faults: &Mutex<Faults>, request: &Request<Incoming>) -> Option<Fault> {
    let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
    faults.requests.push(format!("{} {}", request.method(), request.uri().path()));
    let joins_parts =
        request.method() == Method::POST && request.uri().query().is_some_and(|query| query.contains("uploadId="));
    if faults.only_completions && !joins_parts {
        return None;
    }
    faults.remaining = match (faults.fault, faults.remaining) {
        (None, _) | (_, 0) => return None,
        (Some(_), remaining) => remaining - 1,
    };
    faults.fault
}

async fn answer(
    service: &S3Service,
    request: Request<Incoming>,
    fault: Option<Fault>,
) -> io::Result<Response<ResponseBody>> {
    let refusal = match fault {
        Some(Fault::Unavailable) => Some((StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
        Some(Fault::Refused(code)) => Some((StatusCode::FORBIDDEN, code)),
        _ => None,
    };
    if let Some((status, code)) = refusal {
        let body = Full::from(format!("<Error><Code>{code}</Code></Error>"));
        let mut response = Response::new(body.map_err(|never| match never {}).boxed());
        *response.status_mut() = status;
        return Ok(response);
    }
    if let Some(Fault::Slow(delay)) = fault {
        tokio::time::sleep(delay).await;
    }
    let is_listing = request.uri().query().is_some_and(|query| query.contains("list-type="));
    let mut response = service.call(request.map(s3s::Body::from)).await.map_err(io::Error::other)?;
    if fault == Some(Fault::NoMetadata) {
        let names = response.headers().keys().filter(|name| name.as_str().starts_with("x-amz-meta-"));
        let names: Vec<_> = names.cloned().collect();
        for name in names {
            response.headers_mut().remove(name);
        }
    }
    match fault {
        Some(Fault::StaleListing) if is_listing => {
            let (mut parts, body) = response.into_parts();
            let content = body.collect().await.map_err(|error| io::Error::other(error.to_string()))?.to_bytes();
            parts.headers.remove(hyper::header::CONTENT_LENGTH);
            let body = Full::from(without_packs_and_uploads(&String::from_utf8_lossy(&content)));
            Ok(Response::from_parts(parts, body.map_err(|never| match never {}).boxed()))
        }
        Some(Fault::NoAnswer) => Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Torn | Fault::Changed) => {
            let (parts, body) = response.into_parts();
            let content = body.collect().await.map_err(|error| io::Error::other(error.to_string()))?.to_bytes();
            let body = match fault {
                Some(Fault::Torn) => TornBody(Some(content)).boxed(),
                _ => Full::new(change_a_byte(&content)).map_err(|never| match never {}).boxed(),
            };
            Ok(Response::from_parts(parts, body))
        }
        _ => Ok(response.map(|body| BodyExt::boxed(body.map_err(|error| error.to_string().into())))),
    }
}

/// Removes objects from a listing.
fn without_packs_and_uploads(listing: &str) -> String {
    const START: &str = "<Contents>";
    const END: &str = "</Contents>";
    let mut kept = String::new();
    let mut rest = listing;
    while let Some((before, after)) = rest.split_once(START) {
        let (object, after) = after.split_once(END).expect("a complete element");
        kept.push_str(before);
        if !object.contains("/packs/") && !object.contains("/uploads/") {
            kept.extend([START, object, END]);
        }
        rest = after;
    }
    kept + rest
}

fn change_a_byte(content: &[u8]) -> Bytes {
    let mut content = content.to_vec();
    if let Some(byte) = content.last_mut() {
        *byte ^= 1;
    }
    content.into()
}

/// A body that fails after half of its content.
struct TornBody(Option<Bytes>);

impl Body for TornBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(match self.0.take() {
            Some(content) => Ok(Frame::data(content.slice(..content.len() / 2))),
            None => Err("torn".into()),
        }))
    }
}
