//! The tokens that a request presents, before they are verified.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use forge::web_sessions;
use percent_encoding::percent_decode_str;

/// Headers that contain only a token.
const TOKEN_HEADERS: [&str; 4] = ["private-token", "job-token", "build-token", "runner-token"];
/// Parameters that contain a token.
pub(super) const TOKEN_PARAMETERS: [&str; 4] = ["private_token", "access_token", "bearer_token", "token"];

/// The distinct tokens of a request.
#[derive(Debug, Default)]
pub(super) struct PresentedTokens<'a>(Vec<Cow<'a, [u8]>>);

/// The maximum number of tokens by which a request is counted; authentication uses fewer.
const MAX_TOKENS: usize = 8;

impl<'a> PresentedTokens<'a> {
    /// Collects the tokens in headers and query.
    pub(super) fn from_request(headers: &'a HeaderMap, query: Option<&'a str>) -> Self {
        let mut tokens = Self::from_git_request(headers);
        for name in TOKEN_HEADERS {
            for value in headers.get_all(name) {
                tokens.add(value.as_bytes().trim_ascii().into());
            }
        }
        // Skips the parsing of nearly all queries.
        for pair in query.filter(|query| query.contains("token")).into_iter().flat_map(|query| query.split('&')) {
            if let Some((name, value)) = pair.split_once('=')
                && TOKEN_PARAMETERS.contains(&percent_decode_str(name).decode_utf8_lossy().as_ref())
            {
                tokens.add(percent_decode_str(value).into());
            }
        }
        tokens
    }

    /// Collects the tokens that git over HTTP uses: only those in `Authorization`, since success proves no others valid.
    pub(super) fn from_git_request(headers: &'a HeaderMap) -> Self {
        let mut tokens = Self::default();
        for value in headers.get_all(header::AUTHORIZATION) {
            tokens.add(authorization_secret(value.as_bytes()));
        }
        tokens
    }

    /// Collects the secrets that the web interface uses: only those in the cookie of a session.
    pub(super) fn from_page_request(headers: &'a HeaderMap) -> Self {
        let mut tokens = Self::default();
        let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        for (name, value) in texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('=')) {
            if name == web_sessions::COOKIE || name == web_sessions::SECURE_COOKIE {
                tokens.add(value.as_bytes().into());
            }
        }
        tokens
    }

    /// Adds a token unless it is known already.
    pub(super) fn add(&mut self, token: Cow<'a, [u8]>) {
        if !token.is_empty() && !self.0.contains(&token) && self.0.len() < MAX_TOKENS {
            self.0.push(token);
        }
    }

    /// Returns the distinct tokens.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(AsRef::as_ref)
    }
}

/// Returns the secret in an `Authorization` header, so that the same token counts as the same with any username or scheme.
fn authorization_secret(value: &[u8]) -> Cow<'_, [u8]> {
    let value = value.trim_ascii();
    let Some(space) = value.iter().position(|byte| *byte == b' ') else { return value.into() };
    let (scheme, rest) = (&value[..space], value[space..].trim_ascii());
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return rest.into();
    }
    let Ok(text) = STANDARD.decode(rest) else { return rest.into() };
    let Some(colon) = text.iter().position(|byte| *byte == b':') else { return text.into() };
    match (&text[..colon], &text[colon + 1..]) {
        // Git sends a token as the username if the URL has no password.
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
        let tokens: Vec<_> = PresentedTokens::from_request(&map, query)
            .secrets()
            .map(|token| String::from_utf8_lossy(token).into_owned())
            .collect();
        let tokens = (!tokens.is_empty()).then(|| tokens.join(" "));
        assert_eq!(tokens.as_deref(), expected, "{headers:?} {query:?}");
    }

    #[test]
    fn a_token_is_the_same_in_every_header_and_parameter() {
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
    fn pages_are_counted_by_their_session_only() {
        let cookie = HeaderValue::from_static("a=b; gable_session=abc; __Host-gable_session=def; c=gable_session");
        let token = HeaderValue::from_static("token");
        let headers =
            HeaderMap::from_iter([(header::COOKIE, cookie), (HeaderName::from_static("private-token"), token)]);
        let tokens = PresentedTokens::from_page_request(&headers);
        assert_eq!(tokens.secrets().collect::<Vec<_>>(), [&b"abc"[..], b"def"]);
    }

    #[test]
    fn several_tokens_are_distinguished() {
        check(&[("private-token", "a"), ("job-token", "b")], None, Some("a b"));
        check(&[("private-token", "a")], Some("private_token=b"), Some("a b"));
        check(&[("authorization", "Bearer a")], Some("access_token=b&token=c"), Some("a b c"));
    }
}
