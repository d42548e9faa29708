//! Errors of pages: the only file that knows which status and which text belongs to an error.

use askama::Template;
use axum::{
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use forge::{Error, error::DISK_FULL_MESSAGE};

use crate::{
    context::{PageCx, Viewer},
    layout::Layout,
    links, response,
};

/// The result of a page.
pub(crate) type PageResult = Result<Response, PageError>;

/// Why a page is not shown.
#[derive(Debug)]
pub(crate) enum PageError {
    /// A use case failed.
    Forge(Error),
    /// The request itself is the problem.
    Status(StatusCode),
    /// A form was not sent by a page of this server, or its session has ended.
    ForgedRequest,
    /// Too many attempts to sign in; holds the number of seconds to wait.
    TooManySignIns(u64),
}

impl From<Error> for PageError {
    fn from(error: Error) -> Self {
        Self::Forge(error)
    }
}

impl From<StatusCode> for PageError {
    fn from(status: StatusCode) -> Self {
        Self::Status(status)
    }
}

#[derive(Template)]
#[template(path = "errors/error.html")]
struct ErrorTemplate {
    layout: Layout,
    status: u16,
    title: &'static str,
    text: String,
    offers_sign_in: bool,
    request_id: Option<String>,
}

impl PageError {
    /// Returns the page of the error, with the navigation of the visitor.
    pub(crate) async fn into_page(self, cx: &PageCx) -> Response {
        let viewer = cx.viewer().await.ok();
        let is_signed_in = viewer.as_ref().is_some_and(|viewer| viewer.user().is_some());
        if matches!(self, Self::Forge(Error::Unauthenticated)) && !is_signed_in {
            // After the sign-in, a browser opens a page and cannot send the form again.
            let return_to = if cx.method == Method::POST { String::new() } else { cx.origin_path() };
            return response::redirect(&links::sign_in(&return_to));
        }
        let (status, text) = self.status_and_text(&cx.origin.request_id);
        // The project may be hidden or missing.
        let layout = viewer.map(|viewer| Layout { search_project: String::new(), ..Layout::new(cx, viewer, "") });
        let mut page = render(status, text, &cx.origin.request_id, layout);
        let wait = match (&self, status) {
            (Self::TooManySignIns(seconds), _) => Some(HeaderValue::from(*seconds)),
            (_, StatusCode::SERVICE_UNAVAILABLE) => Some(HeaderValue::from_static("1")),
            _ => None,
        };
        if let Some(wait) = wait {
            page.headers_mut().insert(header::RETRY_AFTER, wait);
        }
        page
    }

    /// Returns the status, and a text if it says more than the usual one of the status. Logs internal errors.
    fn status_and_text(&self, request_id: &str) -> (StatusCode, Option<String>) {
        match self {
            Self::Status(status) => (*status, None),
            Self::ForgedRequest => {
                let text = "The form has expired, or another site sent it. Go back, reload the page and try again.";
                (StatusCode::FORBIDDEN, Some(text.to_owned()))
            }
            Self::TooManySignIns(seconds) => {
                let text = format!("Too many attempts to sign in. Try again in {seconds} seconds.");
                (StatusCode::TOO_MANY_REQUESTS, Some(text))
            }
            Self::Forge(error) => match error {
                Error::Unauthenticated => (StatusCode::FORBIDDEN, None),
                Error::Forbidden(reason) => (StatusCode::FORBIDDEN, reason.clone()),
                Error::NotFound(_) | Error::NotFoundMessage(_) | Error::NoSuchRow => (StatusCode::NOT_FOUND, None),
                Error::Busy => (StatusCode::SERVICE_UNAVAILABLE, None),
                Error::Unavailable(_) => {
                    tracing::warn!(request = request_id, %error, "request failed: the database or the store is unavailable");
                    (StatusCode::SERVICE_UNAVAILABLE, None)
                }
                Error::DiskFull(_) => {
                    tracing::warn!(request = request_id, %error, "request failed: the disk is full");
                    (StatusCode::INSUFFICIENT_STORAGE, Some(DISK_FULL_MESSAGE.to_owned()))
                }
                Error::Store(_) | Error::Git(_) | Error::Files(_) | Error::Internal(_) => {
                    tracing::error!(request = request_id, %error, "request failed with an internal error");
                    (StatusCode::INTERNAL_SERVER_ERROR, None)
                }
                Error::Protected(_)
                | Error::Unchanged
                | Error::Malformed(_)
                | Error::Invalid(_)
                | Error::Conflicting(_)
                | Error::AlreadyRevoked
                | Error::Taken(_)
                | Error::Refused(_)
                | Error::RefRejected(_)
                | Error::Unprocessable(_)
                | Error::LimitReached(_) => (StatusCode::UNPROCESSABLE_ENTITY, Some(error.to_string())),
            },
        }
    }
}

/// Renders an error page. Without a layout the navigation is that of a visitor who is not signed in.
pub(crate) fn render(status: StatusCode, text: Option<String>, request_id: &str, layout: Option<Layout>) -> Response {
    let (title, usual_text) = usual_text(status);
    let mut layout = layout.unwrap_or_else(|| Layout::anonymous(Viewer::anonymous(model::Time::UNIX_EPOCH)));
    title.clone_into(&mut layout.title);
    let offers_sign_in = status == StatusCode::NOT_FOUND && layout.viewer.user().is_none();
    let template = ErrorTemplate {
        offers_sign_in,
        layout,
        status: status.as_u16(),
        title,
        text: text.unwrap_or_else(|| usual_text.to_owned()),
        request_id: status.is_server_error().then(|| request_id.to_owned()),
    };
    match template.render() {
        Ok(html) => response::html_response(status, html),
        Err(_) => (status, title).into_response(),
    }
}

/// Returns the title and the text of the page of a status.
fn usual_text(status: StatusCode) -> (&'static str, &'static str) {
    match status {
        StatusCode::FORBIDDEN => ("Not allowed", "You may not see this page or do this."),
        StatusCode::NOT_FOUND => ("Page not found", "There is no such page, or you may not see it."),
        StatusCode::METHOD_NOT_ALLOWED => ("Method not allowed", "This page cannot be requested like this."),
        StatusCode::PAYLOAD_TOO_LARGE => ("Too large", "The form is larger than the server accepts."),
        StatusCode::URI_TOO_LONG => ("Address too long", "The address is longer than the server accepts."),
        StatusCode::UNPROCESSABLE_ENTITY => ("Not accepted", "The server could not accept this."),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Too many requests", "Your network has sent too many requests. Wait a moment and try again.")
        }
        StatusCode::SERVICE_UNAVAILABLE => ("Busy", "The server is busy. Try again in a moment."),
        StatusCode::INSUFFICIENT_STORAGE => ("Disk full", DISK_FULL_MESSAGE),
        _ => ("Something went wrong", "The server could not show this page. Its log says why."),
    }
}
