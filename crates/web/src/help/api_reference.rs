//! The reference of the API, from its OpenAPI document.

use askama::Template;
use axum::http::StatusCode;

use super::api_document::{ApiDocument, ApiTag};
use crate::{Pages, context::PageCx, error::PageResult, layout::Layout, response};

#[derive(Template)]
#[template(path = "help/api_index.html")]
struct IndexTemplate<'a> {
    layout: Layout,
    document: &'a ApiDocument,
    /// The URL of the server.
    site: &'a str,
}

#[derive(Template)]
#[template(path = "help/api_tag.html")]
struct TagTemplate<'a> {
    layout: Layout,
    tag: &'a ApiTag,
}

impl Pages {
    /// Returns the reference of the API, which is read on the first visit.
    fn api_document(&self) -> &ApiDocument {
        self.0.api_reference.get_or_init(|| ApiDocument::parse(&(self.0.api_document)()))
    }
}

/// Lists the resources.
pub(crate) async fn index(cx: PageCx) -> PageResult {
    let layout = Layout::new(&cx, cx.viewer().await?, "API reference · Help");
    response::page(&IndexTemplate { layout, document: cx.pages.api_document(), site: cx.origin.site.root() })
}

/// Shows the operations of a resource.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let tag = cx.pages.api_document().tag(cx.params.get("tag")).ok_or(StatusCode::NOT_FOUND)?;
    let layout = Layout::new(&cx, cx.viewer().await?, format!("{} · API reference", tag.name));
    response::page(&TagTemplate { layout, tag })
}
