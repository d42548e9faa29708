//! Pagination: `page` and `per_page` in, `Link` and `X-…` headers out.

use std::{convert::Infallible, fmt::Write as _, sync::Arc};

use axum::{
    extract::{FromRequestParts, OriginalUri},
    http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts},
    response::{IntoResponse, Response},
};
use forge::Unvalidated;
use model::{Page, Slice};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::{
    App,
    params::{self, FromParams, ParamReader, RawParams},
    reply,
    routes::{ArgDoc, OperationDoc},
    site::Site,
};

/// Parameters that must not be repeated in a link because they are secret.
const SECRET_PARAMS: [&str; 3] = ["private_token", "access_token", "bearer_token"];
/// The maximum length of the parameters that a link repeats; clients refuse longer header lines.
const MAX_QUERY_LENGTH: usize = 1000;
/// Commas are encoded as well, because clients split the header at them.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The requested page and the data for the links to other pages.
pub(crate) struct Paging {
    pub(crate) page: Unvalidated<Page>,
    requested: bool,
    whole_by_default: bool,
    url: String,
    params: Arc<RawParams>,
}

struct PageParams(Page);

impl FromParams for PageParams {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let number = from.integer_within("page", 0..=i64::from(i32::MAX), "The page number, starting at 1; default: 1");
        let size =
            from.integer_within("per_page", 0..=i64::MAX, "The number of items per page, at most 100; default: 20");
        Self(Page::new(number, size))
    }
}

impl Paging {
    /// Returns the page of a list that is usually short: the whole list if the dialect allows and no page was requested.
    pub(crate) fn page_of_short_list(&self) -> Unvalidated<Page> {
        if self.whole_by_default && !self.requested { Unvalidated::valid(Page::whole()) } else { self.page.clone() }
    }

    /// Returns the response with its pagination headers.
    pub(crate) fn reply<T>(self, slice: Slice<T>) -> Paged<T> {
        Paged { headers: self.headers(slice.page, slice.total), items: slice.items }
    }

    fn headers(&self, page: Page, total: i64) -> HeaderMap {
        let is_whole_list = page.size == i64::MAX;
        let size = if is_whole_list { total.max(1) } else { page.size };
        let pages = total.div_euclid(size) + i64::from(total.rem_euclid(size) > 0);
        let next = (page.number < pages).then(|| page.number + 1);
        let prev = (page.number > 1).then(|| page.number - 1);
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-total", Some(total)),
            ("x-total-pages", Some(pages)),
            ("x-per-page", Some(size)),
            ("x-page", Some(page.number)),
            ("x-next-page", next),
            ("x-prev-page", prev),
        ] {
            let value = value.map_or_else(|| HeaderValue::from_static(""), HeaderValue::from);
            headers.insert(HeaderName::from_static(name), value);
        }
        let mut links = String::new();
        let all = [("prev", prev), ("next", next), ("first", Some(1)), ("last", Some(pages.max(1)))];
        for (relation, number) in all {
            let Some(number) = number else { continue };
            let comma = if links.is_empty() { "" } else { ", " };
            let _ = write!(links, "{comma}<{}>; rel=\"{relation}\"", self.link(number, size));
        }
        if let Ok(links) = HeaderValue::from_str(&links) {
            headers.insert(header::LINK, links);
        }
        headers
    }

    fn link(&self, number: i64, size: i64) -> String {
        let (number, size) = (number.to_string(), size.to_string());
        let mut remaining = MAX_QUERY_LENGTH;
        let repeated = self.params.plain_texts().filter(|(name, text)| {
            let is_excluded = SECRET_PARAMS.contains(&name.as_ref()) || matches!(name.as_ref(), "page" | "per_page");
            let length = name.len() + text.len();
            let fits = !is_excluded && length <= remaining;
            remaining -= if fits { length } else { 0 };
            fits
        });
        let mut pairs: Vec<(String, &str)> = repeated.map(|(name, text)| (name.into_owned(), text)).collect();
        pairs.push(("page".into(), &number));
        pairs.push(("per_page".into(), &size));
        pairs.sort();
        let mut url = self.url.clone();
        for (index, (name, text)) in pairs.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            let _ = write!(url, "{}={}", utf8_percent_encode(name, ENCODED), utf8_percent_encode(text, ENCODED));
        }
        url
    }
}

impl FromRequestParts<App> for Paging {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let params = params::raw_params(parts);
        let site = Site::from_request_parts(parts, app).await?;
        let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0);
        let requested = params.get("page").is_some() || params.get("per_page").is_some();
        let page = params::parse_params::<PageParams>(&params).map(|params| params.0);
        let url = format!("{}{}", site.root(), uri.path());
        let whole_by_default = !app.dialect().paginates_short_lists();
        Ok(Self { page, requested, whole_by_default, url, params })
    }
}

impl ArgDoc for Paging {
    fn describe(operation: &mut OperationDoc) {
        operation.params.extend(params::param_docs::<PageParams>());
        operation.paged = true;
    }
}

/// One page of a list, with its headers.
pub(crate) struct Paged<T> {
    headers: HeaderMap,
    items: Vec<T>,
}

impl<T: Serialize> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let mut response = reply::json_list_with_etag(&self.items);
        response.headers_mut().extend(self.headers);
        response
    }
}
