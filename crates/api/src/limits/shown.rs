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
#[derive(Debug, Default)]
pub(super) struct Shown<'a>(Vec<Cow<'a, [u8]>>);

/// How many different things somebody may show at once and be counted by each; what comes after them is refused anyway,
/// because the interface looks at fewer.
const MOST: usize = 8;

impl<'a> Shown<'a> {
    /// What headers and query show.
    pub(super) fn by(headers: &'a HeaderMap, query: Option<&'a str>) -> Self {
        let mut shown = Self::to_git(headers);
        for name in HEADERS {
            for value in headers.get_all(name) {
                shown.add(value.as_bytes().trim_ascii().into());
            }
        }
        // Nearly no query has one, and this is asked for each.
        for pair in query.filter(|query| query.contains("token")).into_iter().flat_map(|query| query.split('&')) {
            if let Some((name, value)) = pair.split_once('=')
                && PARAMETERS.contains(&percent_decode_str(name).decode_utf8_lossy().as_ref())
            {
                shown.add(percent_decode_str(value).into());
            }
        }
        shown
    }

    /// What is shown to git, which looks at nothing else: whatever stands elsewhere proves nothing there.
    pub(super) fn to_git(headers: &'a HeaderMap) -> Self {
        let mut shown = Self::default();
        for value in headers.get_all(header::AUTHORIZATION) {
            shown.add(secret_in(value.as_bytes()));
        }
        shown
    }

    /// Something more.
    pub(super) fn add(&mut self, more: Cow<'a, [u8]>) {
        if !more.is_empty() && !self.0.contains(&more) && self.0.len() < MOST {
            self.0.push(more);
        }
    }

    /// Each different thing.
    pub(super) fn each(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(AsRef::as_ref)
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
        let shown: Vec<_> =
            Shown::by(&map, query).each().map(|shown| String::from_utf8_lossy(shown).into_owned()).collect();
        let shown = (!shown.is_empty()).then(|| shown.join(" "));
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
        check(&[("private-token", "a"), ("job-token", "b")], None, Some("a b"));
        check(&[("private-token", "a")], Some("private_token=b"), Some("a b"));
        check(&[("authorization", "Bearer a")], Some("access_token=b&token=c"), Some("a b c"));
    }
}
