//! Forms with files. A file is stored as an upload of the project while it arrives, and the text of the form gets a link to
//! it; or it is small and held in memory.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, Bytes},
    http::{StatusCode, header},
};
use forge::{
    Error, Unvalidated,
    uploads::{self, UploadError},
};
use futures_util::{StreamExt as _, stream};
use model::Upload;
use multer::{Field, Multipart};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    context::PageCx,
    error::PageError,
    form_errors::FormErrors,
    forms::{Fields, MAX_FIELDS, MAX_FORM_BYTES},
    preview,
    text::Markup,
};

/// The name of the file input of forms for uploads.
const FILE_FIELD: &str = "file";
/// The maximum number of files in a form.
const MAX_FILES: usize = 10;
/// The maximum size of a file that is held in memory, in bytes.
const MAX_SMALL_FILE_BYTES: u64 = 8 << 20;
/// The size of the pieces handed to the multipart parser.
const CHUNK_SIZE: usize = 64 << 10;
/// The maximum pause of a client.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time of a request; shorter than the time after which the forge considers an upload abandoned.
const TIMEOUT: Duration = Duration::from_secs(50 * 60);
/// How long the rest of a refused request is read, so that the client sees the response.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(30);

/// A file in memory that was submitted with a form.
#[derive(Clone, Debug)]
pub(crate) struct SmallFile {
    /// The name without folders.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// A submitted form with the files that were stored.
#[derive(Default)]
pub(crate) struct FileForm {
    pub(crate) fields: Fields,
    uploads: Vec<Upload>,
    file: Option<SmallFile>,
    /// Why the form was not accepted.
    pub(crate) errors: FormErrors,
}

impl From<Fields> for FileForm {
    fn from(fields: Fields) -> Self {
        Self { fields, ..Self::default() }
    }
}

impl FileForm {
    /// Adds why the form was not accepted.
    pub(crate) fn with_errors(self, errors: FormErrors) -> Self {
        Self { errors, ..self }
    }

    /// Returns whether the form is shown again: a file was refused, or the user wants to see a preview.
    pub(crate) fn is_shown_again(&self) -> bool {
        !self.errors.is_empty() || preview::is_requested(&self.fields)
    }

    /// Renders the text of a field, if the user wants to see it.
    pub(crate) async fn preview_of(&self, cx: &PageCx, field: &str) -> Result<Option<Markup>, PageError> {
        if !preview::is_requested(&self.fields) {
            return Ok(None);
        }
        cx.preview(self.text_with_links(field)).await.map(Some)
    }

    /// Returns the text of a field, with links to the files at its end.
    pub(crate) fn text_with_links(&self, name: &str) -> String {
        let mut text = self.fields.lines(name);
        for upload in &self.uploads {
            if !text.trim().is_empty() {
                text.truncate(text.trim_end().len());
                text.push_str("\n\n");
            }
            text.push_str(&upload.markdown());
        }
        text
    }
}

/// Where the files of a form go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// To the uploads of the project in the path.
    ProjectUploads,
    /// To memory: one file, of at most [`MAX_SMALL_FILE_BYTES`].
    Memory,
}

impl PageCx {
    /// Reads a submitted form with or without files, which become uploads of the project in the path, and checks that the user
    /// sent it from a page of this server.
    pub(crate) async fn form_with_files(&self, body: Body) -> Result<FileForm, PageError> {
        self.read_form(body, Destination::ProjectUploads).await
    }

    /// Like [`Self::form_with_files`], for a form with at most one small file, which is held in memory. Of several files the
    /// last one is returned, and none if none was chosen.
    pub(crate) async fn form_with_file(&self, body: Body) -> Result<(Fields, Option<SmallFile>), PageError> {
        let form = self.read_form(body, Destination::Memory).await?;
        Ok((form.fields, form.file))
    }

    /// Reads a form. The token of the form comes before the files, so nothing is stored for another site.
    async fn read_form(&self, body: Body, destination: Destination) -> Result<FileForm, PageError> {
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let Ok(boundary) = multer::parse_boundary(content_type.unwrap_or_default()) else {
            return Ok(self.form(body).await?.into());
        };
        if self.session().is_none() {
            return Err(Error::Unauthenticated.into());
        }
        let Some(_permit) = self.pages.0.upload_permits.acquire(self.origin.address).await else {
            return Err(Error::Busy.into());
        };
        let allowance = Allowance::default();
        let body = FormBody::new(body, allowance.clone());
        let mut multipart = Multipart::new(stream::unfold(body, FormBody::next), boundary);
        let mut form = FileForm::default();
        let (mut is_checked, mut parts) = (false, 0);
        while let Some(field) = multipart.next_field().await.map_err(into_page_error)? {
            parts += 1;
            if parts > MAX_FIELDS {
                return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
            }
            let name = field.name().unwrap_or_default().to_owned();
            match field.file_name().map(ToOwned::to_owned) {
                None => {
                    let value = field.bytes().await.map_err(into_page_error)?;
                    form.fields.push(name, &String::from_utf8_lossy(&value));
                }
                // No file was chosen.
                Some(file_name) if file_name.is_empty() => {}
                Some(file_name) => {
                    if !is_checked {
                        self.check_form(&form.fields)?;
                        is_checked = true;
                    }
                    match destination {
                        Destination::ProjectUploads => {
                            if !self.store(&mut form, file_name, field, &allowance).await? {
                                // The rest of the request is not read.
                                return Ok(form);
                            }
                        }
                        Destination::Memory => {
                            // The token is valid, but its session may have ended.
                            if form.file.is_none() && self.viewer().await?.user().is_none() {
                                return Err(Error::Unauthenticated.into());
                            }
                            form.file = Some(SmallFile::read(file_name, field, &allowance).await?);
                        }
                    }
                }
            }
        }
        if !is_checked {
            self.check_form(&form.fields)?;
        }
        Ok(form)
    }

    /// Stores a file; returns whether the form can be read further.
    async fn store(
        &self,
        form: &mut FileForm,
        name: String,
        field: Field<'static>,
        allowance: &Allowance,
    ) -> Result<bool, PageError> {
        if form.uploads.len() == MAX_FILES {
            let text = format!("At most {MAX_FILES} files can be attached at once.");
            form.errors = FormErrors::sentence(FILE_FIELD, text);
            return Ok(false);
        }
        let max_size = self.pages.0.upload_limit;
        // The code that stores the file enforces its size.
        let others = allowance.left();
        allowance.reset(u64::MAX);
        let content = stream::try_unfold(field, |mut field| async move {
            let chunk = field.chunk().await.map_err(into_page_error)?;
            Ok(chunk.map(|chunk| (chunk, field)))
        });
        let name = Unvalidated::valid(name);
        match uploads::receive(self.forge(), self.caller(), self.project(), name, content, max_size).await {
            Ok(upload) => {
                allowance.reset(others);
                form.uploads.push(upload);
                Ok(true)
            }
            Err(UploadError::TooLarge) => {
                let text = format!("The file is larger than {} MB.", max_size >> 20);
                form.errors = FormErrors::sentence(FILE_FIELD, text);
                Ok(false)
            }
            Err(UploadError::Source(error)) => Err(error),
            Err(UploadError::Forge(error)) => Err(error.into()),
        }
    }
}

impl SmallFile {
    async fn read(file_name: String, field: Field<'static>, allowance: &Allowance) -> Result<Self, PageError> {
        let others = allowance.left();
        allowance.reset(MAX_SMALL_FILE_BYTES);
        let bytes = field.bytes().await.map_err(into_page_error)?;
        allowance.reset(others);
        let name = file_name.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        Ok(Self { name, bytes: bytes.into() })
    }
}

/// The number of bytes that may still be received.
#[derive(Clone)]
struct Allowance(Arc<AtomicU64>);

impl Allowance {
    /// The maximum size of everything but the files: they are held in memory.
    const OTHER_FIELDS: u64 = (MAX_FORM_BYTES + 2 * CHUNK_SIZE) as u64;

    fn reset(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let left = self.left();
        self.reset(left.saturating_sub(bytes as u64));
        left > 0
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(Self::OTHER_FIELDS)))
    }
}

/// The body of a form, limited in size and time.
struct FormBody {
    body: Option<BodyDataStream>,
    received: Bytes,
    allowance: Allowance,
    deadline: Instant,
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

impl FormBody {
    fn new(body: Body, allowance: Allowance) -> Self {
        let (body, deadline) = (Some(body.into_data_stream()), Instant::now() + TIMEOUT);
        Self { body, received: Bytes::new(), allowance, deadline }
    }

    async fn next(mut self) -> Option<(Result<Bytes, ReadError>, Self)> {
        // The multipart parser polls until nothing is ready; yielding limits it to one piece at a time.
        tokio::task::yield_now().await;
        while self.received.is_empty() {
            let body = self.body.as_mut()?;
            let error = match timeout_at(self.deadline.min(Instant::now() + IDLE_TIMEOUT), body.next()).await {
                Ok(Some(Ok(received))) => {
                    self.received = received;
                    continue;
                }
                Ok(None) => None,
                Ok(Some(Err(_))) => Some(ReadError::Disconnected),
                Err(_) => Some(ReadError::Timeout),
            };
            self.body = None;
            return error.map(|error| (Err(error), self));
        }
        let chunk = self.received.split_to(self.received.len().min(CHUNK_SIZE));
        let result = if self.allowance.take(chunk.len()) { Ok(chunk) } else { Err(ReadError::TooLarge) };
        Some((result, self))
    }
}

/// Discards the rest in the background: closing the connection while the client still sends would lose the response.
impl Drop for FormBody {
    fn drop(&mut self) {
        if let (Some(mut body), Ok(runtime)) = (self.body.take(), Handle::try_current()) {
            runtime.spawn(timeout(DISCARD_TIMEOUT, async move { while let Some(Ok(_)) = body.next().await {} }));
        }
    }
}

fn into_page_error(error: multer::Error) -> PageError {
    let multer::Error::StreamReadFailed(source) = error else { return StatusCode::BAD_REQUEST.into() };
    let status = match source.downcast_ref() {
        Some(ReadError::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
        Some(ReadError::Timeout) => StatusCode::REQUEST_TIMEOUT,
        Some(ReadError::Disconnected) | None => StatusCode::BAD_REQUEST,
    };
    status.into()
}
