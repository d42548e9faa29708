//! Links to the previous and the next page of a list.

use axum::http::Uri;
use forge::Unvalidated;
use model::{Page, Slice, Total};

use crate::{forms::Fields, links::encode_query};

/// The largest number of a page.
const MAX_NUMBER: i64 = 1_000_000;

/// The links below a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pager {
    pub(crate) previous: Option<String>,
    pub(crate) next: Option<String>,
    /// Which part of the list the page shows.
    pub(crate) text: String,
}

/// Returns the requested page of a list; everything that is not a number is the first page.
pub(crate) fn requested(query: &Fields, size: i64) -> Unvalidated<Page> {
    let number = query.get("page").parse::<i64>().ok().filter(|number| (1..=MAX_NUMBER).contains(number));
    Unvalidated::valid(Page { number: number.unwrap_or(1), size })
}

impl Pager {
    /// Creates the links of a list whose length is known.
    pub(crate) fn of<T>(uri: &Uri, query: &Fields, slice: &Slice<T>) -> Self {
        let Page { number, size } = slice.page;
        let first = slice.page.offset() + 1;
        let last = slice.page.offset() + i64::try_from(slice.items.len()).unwrap_or_default();
        let text = match slice.total {
            Total::Exact(0) => String::new(),
            Total::Exact(total) if total <= size && number == 1 => String::new(),
            Total::Exact(total) if last < first => format!("nothing on page {number}; there are {total}"),
            Total::Exact(total) => format!("{first}–{last} of {total}"),
            Total::AtLeast(count) => format!("{first}–{last} of more than {}", count - 1),
        };
        Self::new(uri, query, number, last < slice.total.at_least() && last >= first, text)
    }

    /// Creates the links of a list whose length is unknown.
    pub(crate) fn new(uri: &Uri, query: &Fields, number: i64, has_next: bool, text: String) -> Self {
        let link = |number: i64| {
            let mut url = uri.path().to_owned();
            let number = number.to_string();
            // `done` says what the form that led to the first page did.
            let others = query.without("page").filter(|(name, _)| *name != "done");
            let pairs = others.chain((number != "1").then_some(("page", number.as_str())));
            for (at, (name, value)) in pairs.filter(|(_, value)| !value.is_empty()).enumerate() {
                url.push(if at == 0 { '?' } else { '&' });
                url.push_str(&format!("{}={}", encode_query(name), encode_query(value)));
            }
            url
        };
        Self { previous: (number > 1).then(|| link(number - 1)), next: has_next.then(|| link(number + 1)), text }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.previous.is_none() && self.next.is_none() && self.text.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_keeps_the_other_parameters() {
        let uri: Uri = "/explore?search=a%26b&page=2&sort=&done=saved".parse().expect("a URI");
        let query = Fields::parse(uri.query().unwrap_or_default());
        let slice = Slice { items: vec![(); 20], total: 50.into(), page: Page { number: 2, size: 20 } };
        let pager = Pager::of(&uri, &query, &slice);
        assert_eq!(pager.previous.as_deref(), Some("/explore?search=a%26b"));
        assert_eq!(pager.next.as_deref(), Some("/explore?search=a%26b&page=3"));
        assert_eq!(pager.text, "21–40 of 50");
        let slice = Slice { items: vec![(); 2], total: 2.into(), page: Page { number: 1, size: 20 } };
        assert!(Pager::of(&uri, &query, &slice).is_empty());
        let total = Total::AtLeast(10_001);
        let slice = Slice { items: vec![(); 20], total, page: Page { number: 2, size: 20 } };
        let pager = Pager::of(&uri, &query, &slice);
        assert_eq!(pager.text, "21–40 of more than 10000");
        assert_eq!(pager.next.as_deref(), Some("/explore?search=a%26b&page=3"));
        let check = |text: &str, expected: i64| {
            let page = requested(&Fields::parse(&format!("page={text}")), 20);
            assert_eq!(page.validate().expect("valid").number, expected, "{text}");
        };
        check("3", 3);
        check("0", 1);
        check("-1", 1);
        check("x", 1);
        check("99999999999999999999", 1);
    }
}
