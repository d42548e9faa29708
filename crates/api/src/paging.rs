//! Pagination: `page` and `per_page` in, `Link` and `X-…` headers out.

use std::{convert::Infallible, fmt::Write as _, marker::PhantomData, sync::Arc};

use axum::{
    extract::{FromRequestParts, OriginalUri},
    http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts},
    response::{IntoResponse, Response},
};
use forge::Unvalidated;
use model::{Page, Slice, Total};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::{
    App,
    params::{self, FromParams, ParamReader, RawParams},
    reply::SerializedJson,
    routes::{ArgDoc, OperationDoc},
    site::Site,
};

/// Parameters that must not be repeated in a link because they are secret.
const SECRET_PARAMS: [&str; 3] = ["private_token", "access_token", "bearer_token"];
/// The maximum length of the parameters that links repeat; clients and proxies refuse longer headers.
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

    /// Returns the response with its pagination headers. Lists that may be long call this where they are read: the items are
    /// then freed by the thread that allocated them, which takes much less time than on another one.
    pub(crate) fn reply<T, J: Serialize>(&self, slice: Slice<T>, to_json: impl FnMut(T) -> J) -> Paged<J> {
        Paged {
            headers: self.headers(slice.page, slice.total),
            body: SerializedJson::of_list(slice.items.into_iter().map(to_json)),
            marker: PhantomData,
        }
    }

    /// Returns the headers. A long list that was not counted to its end has no total and no link to the last page.
    fn headers(&self, page: Page, total: Total) -> HeaderMap {
        let count = total.at_least();
        let is_whole_list = page.size == i64::MAX;
        let size = if is_whole_list { count.max(1) } else { page.size };
        let pages = count.div_euclid(size) + i64::from(count.rem_euclid(size) > 0);
        let exact_pages = total.exact().map(|_| pages);
        let next = (page.number < pages).then(|| page.number + 1);
        let prev = (page.number > 1).then(|| page.number - 1);
        let mut headers = HeaderMap::new();
        for (name, number) in [("x-total", total.exact()), ("x-total-pages", exact_pages)] {
            if let Some(number) = number {
                headers.insert(HeaderName::from_static(name), HeaderValue::from(number));
            }
        }
        for (name, number) in
            [("x-per-page", Some(size)), ("x-page", Some(page.number)), ("x-next-page", next), ("x-prev-page", prev)]
        {
            let value = number.map_or_else(|| HeaderValue::from_static(""), HeaderValue::from);
            headers.insert(HeaderName::from_static(name), value);
        }
        let last = exact_pages.map(|pages| pages.max(1));
        let links = self.links(&[("prev", prev), ("next", next), ("first", Some(1)), ("last", last)], size);
        if let Some(links) = links.and_then(|links| HeaderValue::from_str(&links).ok()) {
            headers.insert(header::LINK, links);
        }
        headers
    }

    /// Returns links to pages, or `None` if the parameters that they have to repeat are too long: without all of them, a link
    /// would lead to another list.
    fn links(&self, pages: &[(&str, Option<i64>)], size: i64) -> Option<String> {
        let repeated = self.params.plain_texts().filter(|(name, _)| {
            let name = name.as_ref();
            !SECRET_PARAMS.contains(&name) && !matches!(name, "page" | "per_page")
        });
        let repeated: Vec<(String, &str)> = repeated.map(|(name, text)| (name.into_owned(), text)).collect();
        if repeated.iter().map(|(name, text)| name.len() + text.len()).sum::<usize>() > MAX_QUERY_LENGTH {
            return None;
        }
        let mut links = String::new();
        for (relation, number) in pages {
            let Some(number) = number else { continue };
            let comma = if links.is_empty() { "" } else { ", " };
            let _ = write!(links, "{comma}<{}>; rel=\"{relation}\"", self.link(&repeated, *number, size));
        }
        Some(links)
    }

    fn link(&self, repeated: &[(String, &str)], number: i64, size: i64) -> String {
        let (number, size) = (number.to_string(), size.to_string());
        let repeated = repeated.iter().map(|(name, text)| (name.as_str(), *text));
        let mut pairs: Vec<(&str, &str)> = repeated.chain([("page", &*number), ("per_page", &*size)]).collect();
        pairs.sort_unstable();
        let mut url = self.url.clone();
        for (index, (name, text)) in pairs.into_iter().enumerate() {
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

/// One page of a list of `T`, with its headers.
pub(crate) struct Paged<T> {
    headers: HeaderMap,
    body: SerializedJson,
    marker: PhantomData<T>,
}

impl<T> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let mut response = self.body.into_response();
        response.headers_mut().extend(self.headers);
        response
    }
}
