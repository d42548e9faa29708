//! The stylesheet, the script and the icon: embedded, with a hash in the name so that browsers keep them, and compressed once.

use std::{borrow::Cow, sync::LazyLock};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use flate2::Compression as Level;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    response::{Compression, gzip},
};

/// An embedded file.
struct Asset {
    url: String,
    content_type: HeaderValue,
    plain: Cow<'static, [u8]>,
    compressed: Vec<u8>,
}

impl Asset {
    fn new(name: &str, extension: &str, content_type: &'static str, plain: impl Into<Cow<'static, [u8]>>) -> Self {
        let plain = plain.into();
        let url = format!("/assets/{name}-{:016x}.{extension}", xxh3_64(&plain));
        let compressed = gzip(&plain, Level::best());
        Self { url, content_type: HeaderValue::from_static(content_type), plain, compressed }
    }
}

/// The parts of the stylesheet, in this order. Rules for narrow screens come last.
const STYLES: &[&str] = &[
    include_str!("../assets/style/base.css"),
    include_str!("../assets/style/code.css"),
    include_str!("../assets/style/ci.css"),
    include_str!("../assets/style/script.css"),
    include_str!("../assets/style/accounts.css"),
    include_str!("../assets/style/admin.css"),
    include_str!("../assets/style/settings.css"),
    include_str!("../assets/style/repository.css"),
    include_str!("../assets/style/narrow.css"),
];

static STYLESHEET: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("style", "css", "text/css; charset=utf-8", STYLES.concat().into_bytes()));
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("script", "js", "text/javascript; charset=utf-8", include_str!("../assets/script.js").as_bytes())
});
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg").as_bytes()));

pub(crate) fn stylesheet_url() -> &'static str {
    &STYLESHEET.url
}

pub(crate) fn script_url() -> &'static str {
    &SCRIPT.url
}

pub(crate) fn icon_url() -> &'static str {
    &ICON.url
}

/// Handles `GET /assets/{name}`.
pub(crate) async fn get(cx: PageCx) -> PageResult {
    let found = [&*STYLESHEET, &*SCRIPT, &*ICON].into_iter().find(|asset| asset.url == cx.uri.path());
    let asset = found.ok_or(PageError::Status(StatusCode::NOT_FOUND))?;
    let headers = [
        (header::CONTENT_TYPE, asset.content_type.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
        (header::VARY, HeaderValue::from_static("Accept-Encoding")),
    ];
    let response: Response = match Compression::accepted_by(&cx.headers) {
        Compression::Gzip => {
            let encoding = [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
            (headers, encoding, asset.compressed.as_slice()).into_response()
        }
        Compression::None => (headers, &*asset.plain).into_response(),
    };
    Ok(response)
}
