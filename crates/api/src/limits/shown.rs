//! What a request shows of who is asking, before anybody has looked whether it is true.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;

/// Headers that hold a token and nothing else.
const HEADERS: [&str; 4] = ["private-token", "job-token", "build-token", "runner-token"];
/// Parameters that do.
pub(super) const PARAMETERS: [&str; 4] = ["private_token", "access_token", "bearer_token", "token"];

/// What was shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown<'a> {
    Nothing,
    One(Cow<'a, [u8]>),
    /// Several different things at once: one of them may be right whatever the others are.
    Several,
}

impl<'a> Shown<'a> {
    /// What headers and query show.
    pub(super) fn by(headers: &'a HeaderMap, query: Option<&'a str>) -> Self {
        let mut shown = Self::Nothing;
        for name in HEADERS {
            for value in headers.get_all(name) {
                shown = shown.and(value.as_bytes().trim_ascii().into());
            }
        }
        for value in headers.get_all(header::AUTHORIZATION) {
            shown = shown.and(secret_in(value.as_bytes()));
        }
        // Nearly no query has one, and this is asked for each.
        for pair in query.filter(|query| query.contains("token")).into_iter().flat_map(|query| query.split('&')) {
            if let Some((name, value)) = pair.split_once('=')
                && PARAMETERS.contains(&percent_decode_str(name).decode_utf8_lossy().as_ref())
            {
                shown = shown.and(percent_decode_str(value).into());
            }
        }
        shown
    }

    /// The same, and something more.
    pub(super) fn and(self, more: Cow<'a, [u8]>) -> Self {
        match self {
            unchanged if more.is_empty() => unchanged,
            Self::Nothing => Self::One(more),
            Self::One(shown) if shown == more => Self::One(shown),
            _ => Self::Several,
        }
    }
}

/// What is secret in an authorization. The same token must not count as another one because it comes with another name
/// or by another way.
fn secret_in(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    let Some(space) = value.iter().position(|byte| *byte == b' ') else { return value.into() };
    let (scheme, rest) = (&value[..space], value[space..].trim_ascii());
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return rest.into();
    }
    let Ok(text) = STANDARD.decode(rest) else { return rest.into() };
    let Some(colon) = text.iter().position(|byte| *byte == b':') else { return text.into() };
    match (&text[..colon], &text[colon + 1..]) {
        // Git sends a token as the name if nothing else stands in the URL.
        (token, b"" | b"x-oauth-basic") => token.to_vec().into(),
        (_, password) => password.to_vec().into(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn check(headers: &[(&str, &str)], query: Option<&str>, expected: Option<&str>) {
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let name: HeaderName = name.parse().expect("a name");
                (name, HeaderValue::from_str(value).expect("a value"))
            })
            .collect();
        let shown = match Shown::by(&map, query) {
            Shown::Nothing => None,
            Shown::One(shown) => Some(String::from_utf8_lossy(&shown).into_owned()),
            Shown::Several => Some("several".to_owned()),
        };
        assert_eq!(shown.as_deref(), expected, "{headers:?} {query:?}");
    }

    #[test]
    fn a_token_is_the_same_by_whatever_way_it_comes() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for (name, value) in [
            ("private-token", "abc"),
            ("job-token", " abc "),
            ("authorization", "Bearer abc"),
            ("authorization", "bearer   abc"),
            ("authorization", "abc"),
            ("authorization", &basic("ann:abc")),
            ("authorization", &basic("bob:abc")),
            ("authorization", &basic("abc:")),
            ("authorization", &basic("abc:x-oauth-basic")),
        ] {
            check(&[(name, value)], None, Some("abc"));
            check(&[(name, value)], Some("private_token=%61bc&page=2"), Some("abc"));
        }
        check(&[], Some("page=1&private%5Ftoken=a%62c"), Some("abc"));
        check(&[], Some("access_token=abc"), Some("abc"));
        check(&[("private-token", "")], Some("token="), None);
        check(&[("accept", "abc")], Some("tokens=abc&search=token"), None);
    }

    #[test]
    fn several_tokens_at_once_are_told_apart() {
        check(&[("private-token", "a"), ("job-token", "b")], None, Some("several"));
        check(&[("private-token", "a")], Some("private_token=b"), Some("several"));
        check(&[("authorization", "Bearer a")], Some("access_token=b&token=c"), Some("several"));
    }
}
