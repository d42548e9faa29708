//! The log of a job: a part of its page, the parts that the script of the page appends to it, and the raw text.

use axum::{
    body::Body,
    http::{Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use forge::{
    job_pages,
    traces::{self, Trace},
};

use super::job;
use crate::{
    context::PageCx,
    error::PageResult,
    repository::raw,
    response,
    text::{
        Markup,
        job_log::{self, LogState, MAX_BYTES},
    },
};

/// The maximum number of bytes that are rendered without a blocking thread.
const MAX_INLINE_BYTES: usize = 16 << 10;

/// The part of a log that a page shows.
pub(super) struct LogView {
    pub(super) html: Markup,
    /// Whether there is no log.
    pub(super) is_empty: bool,
    /// Whether the beginning is missing.
    pub(super) is_cut: bool,
    /// Where the log continues while the job runs.
    pub(super) next: Option<LogState>,
}

/// Reads and renders the end of a log.
pub(super) async fn read_end(cx: &PageCx, trace: &Trace) -> forge::Result<LogView> {
    let start = trace.size.saturating_sub(MAX_BYTES);
    let bytes = traces::read_part(cx.forge(), trace, start..trace.size).await?;
    let skipped = job_log::first_shown(&bytes, start == 0);
    let first = start + skipped as u64;
    let (html, next) = render(cx, bytes[skipped..].to_vec(), LogState::at(first), trace.ended).await?;
    Ok(LogView { html, is_empty: trace.size == 0, is_cut: first > 0, next: Some(next).filter(|_| !trace.ended) })
}

async fn render(
    cx: &PageCx,
    mut bytes: Vec<u8>,
    state: LogState,
    is_complete: bool,
) -> forge::Result<(Markup, LogState)> {
    if bytes.len() <= MAX_INLINE_BYTES {
        return Ok(job_log::render(&bytes, state, is_complete));
    }
    let rendered = cx.run_blocking(move |_| {
        let bytes = std::mem::take(&mut bytes);
        Ok(job_log::render(&bytes, state.clone(), is_complete))
    });
    Ok(rendered.await?.1)
}

/// Returns the part of the log after the one that the page has, for its script. A page asks again after a few seconds, so
/// that no connection stays open.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, id) = (cx.project(), job::id(&cx)?);
    let (_, (trace, status)) = cx.read(move |tx| job_pages::open_trace(tx, &project, id)).await?;
    let state: Option<LogState> = cx.query().get("state").parse().ok();
    // The log is shorter than before if the job was erased or runs once more.
    let state = state.filter(|state| state.offset <= trace.size);
    let is_restarted = state.is_none();
    let state = state.unwrap_or_default();
    let end = state.offset.saturating_add(MAX_BYTES).min(trace.size);
    let bytes = traces::read_part(cx.forge(), &trace, state.offset..end).await?;
    let is_complete = trace.ended && end == trace.size;
    let (html, next) = render(&cx, bytes, state, is_complete).await?;
    let html = format!(
        "<div data-state=\"{next}\" data-status=\"{}\" data-more=\"{}\" data-restarted=\"{is_restarted}\">{html}</div>",
        status.as_str(),
        end < trace.size,
    );
    Ok(response::html_response(StatusCode::OK, html))
}

/// Sends the log as it is.
pub(crate) async fn raw(cx: PageCx) -> PageResult {
    let (project, id) = (cx.project(), job::id(&cx)?);
    let (_, (trace, _)) = cx.read(move |tx| job_pages::open_trace(tx, &project, id)).await?;
    let body = match cx.method {
        Method::HEAD => Body::empty(),
        _ => Body::from_stream(traces::read(cx.forge(), &trace, 0..trace.size).await?),
    };
    let mut response: Response = body.into_response();
    raw::add_file_headers(response.headers_mut(), "text/plain; charset=utf-8", "");
    response.headers_mut().insert(header::CONTENT_LENGTH, trace.size.into());
    Ok(response)
}
