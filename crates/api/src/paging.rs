//! Pages: `page` and `per_page` in, `Link` and `X-…` headers out.

use std::{convert::Infallible, fmt::Write as _, sync::Arc};

use axum::{
    extract::{FromRequestParts, OriginalUri},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use forge::Unvalidated;
use model::{Page, Slice};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::{
    App,
    params::{self, Bag, FromParams, ParamReader},
    reply,
    routes::{ArgDoc, OperationDoc},
    site::Site,
};

/// Parameters that must not be repeated in a link.
const SECRET: [&str; 3] = ["private_token", "access_token", "bearer_token"];
/// How much of the caller's parameters a link repeats at most; clients refuse longer header lines.
const LONGEST_QUERY: usize = 1000;
/// Commas are encoded too, because clients split the header on them.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Which page is wanted, and what the links to its neighbours need.
pub(crate) struct Paging {
    pub(crate) page: Unvalidated<Page>,
    asked: bool,
    whole_unless_asked: bool,
    url: String,
    bag: Arc<Bag>,
}

struct PageParams(Page);

impl FromParams for PageParams {
    fn read(from: &mut ParamReader<'_>) -> Self {
        let number = from.integer_within("page", 0..=i64::from(i32::MAX), "Which page, counted from 1");
        let size = from.integer_within("per_page", 0..=i64::MAX, "Items on a page, 100 at most");
        Self(Page::new(number, size))
    }
}

impl Paging {
    /// The page to read from a list that is short by nature: all of it, where the dialect says so and nobody asked.
    pub(crate) fn of_short_list(&self) -> Unvalidated<Page> {
        if self.whole_unless_asked && !self.asked { Unvalidated::good(Page::whole()) } else { self.page.clone() }
    }

    /// The answer with the headers around it.
    pub(crate) fn answer<T>(self, slice: Slice<T>) -> Paged<T> {
        Paged { headers: self.headers(slice.page, slice.total), items: slice.items }
    }

    fn headers(&self, page: Page, total: i64) -> HeaderMap {
        let whole = page.size == i64::MAX;
        let size = if whole { total.max(1) } else { page.size };
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
        let mut room = LONGEST_QUERY;
        let kept = self.bag.plain().filter(|(name, text)| {
            let own = SECRET.contains(&name.as_ref()) || matches!(name.as_ref(), "page" | "per_page");
            let length = name.len() + text.len();
            let fits = !own && length <= room;
            room -= if fits { length } else { 0 };
            fits
        });
        let mut pairs: Vec<(String, &str)> = kept.map(|(name, text)| (name.into_owned(), text)).collect();
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
        let bag = params::bag_of(parts);
        let site = Site::from_request_parts(parts, app).await?;
        let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0);
        let asked = bag.get("page").is_some() || bag.get("per_page").is_some();
        let page = params::read_from::<PageParams>(&bag).map(|params| params.0);
        let url = format!("{}{}", site.root(), uri.path());
        let whole_unless_asked = !app.dialect().pages_short_lists();
        Ok(Self { page, asked, whole_unless_asked, url, bag })
    }
}

impl ArgDoc for Paging {
    fn describe(operation: &mut OperationDoc) {
        operation.params.extend(params::declared_by::<PageParams>());
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
        let mut response = reply::tagged(StatusCode::OK, &self.items);
        response.headers_mut().extend(self.headers);
        response
    }
}
