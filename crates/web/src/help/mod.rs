//! Help: the Markdown guide, the keyboard, and the reference of the API.

mod api_document;
mod api_reference;
mod pages;

pub(crate) use api_document::ApiDocument;

use crate::routes::{Route, get};

pub(crate) const ROUTES: &[Route] = &[
    get!("/help", pages::index),
    get!("/help/markdown", pages::markdown_guide),
    get!("/help/keyboard", pages::keyboard),
    get!("/help/api", api_reference::index),
    get!("/help/api/{tag}", api_reference::show),
];
