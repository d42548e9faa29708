//! Downloads of all files of a revision.

use axum::{
    body::Body,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use forge::{Unvalidated, contents};
use model::objects::ArchiveFormat;

use super::raw;
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    links::ARCHIVE_FORMATS,
};

/// Sends the archive of a revision. The path is `{revision}/{name}.{format}`; the name does not matter.
pub(crate) async fn download(cx: PageCx) -> PageResult {
    let missing = || PageError::Status(StatusCode::NOT_FOUND);
    let (revision, name) = cx.params.location.rsplit_once('/').ok_or_else(missing)?;
    let formats = ARCHIVE_FORMATS.into_iter().chain([ArchiveFormat::Tar]);
    let ends_with = |format: &ArchiveFormat| name.ends_with(&format!(".{}", format.extension()));
    let format = formats.into_iter().find(ends_with).ok_or_else(missing)?;
    let (project, options) = (cx.project(), Unvalidated::valid((Some(revision.to_owned()), format)));
    let (_, archive) = cx.read(move |tx| contents::archive(tx, &project, &options)).await?;
    let name = format!("{}.{}", archive.name, archive.format.extension());
    let (body, length) = if cx.method == Method::HEAD {
        (Body::empty(), None)
    } else {
        let bytes = contents::read_archive(cx.forge(), archive).await?;
        let length = bytes.len();
        (Body::from_stream(bytes), length)
    };
    let content_type = if format == ArchiveFormat::Zip { "application/zip" } else { "application/octet-stream" };
    let mut response: Response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_DISPOSITION, raw::attachment(&name));
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Ok(response)
}
