//! HTTP Basic credentials of git clients: a username and a password or token.

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The `Authorization` header of a request. Does not implement `Debug`, so that it cannot be logged.
pub(super) enum BasicAuth {
    Missing,
    Password {
        user: String,
        password: String,
    },
    /// Not a single well-formed Basic header.
    Invalid,
}

/// Reads the `Authorization` header.
pub(super) fn read_basic_auth(headers: &HeaderMap) -> BasicAuth {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return BasicAuth::Missing };
    if values.next().is_some() {
        return BasicAuth::Invalid;
    }
    value.to_str().ok().and_then(parse).unwrap_or(BasicAuth::Invalid)
}

fn parse(value: &str) -> Option<BasicAuth> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    let plain = !text.contains(|c: char| c.is_control());
    plain.then(|| match (user, password) {
        // `https://TOKEN@host/…`: git sends the token as the username.
        (token, "" | "x-oauth-basic") => BasicAuth::Password { user: String::new(), password: token.to_owned() },
        (user, password) => BasicAuth::Password { user: user.to_owned(), password: password.to_owned() },
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(values: &[&str]) -> Option<(String, String)> {
        let values = values.iter().map(|value| HeaderValue::from_str(value).expect("a value"));
        let headers = values.fold(HeaderMap::new(), |mut headers, value| {
            headers.append(header::AUTHORIZATION, value);
            headers
        });
        match read_basic_auth(&headers) {
            BasicAuth::Missing => Some((String::new(), String::new())),
            BasicAuth::Password { user, password } => Some((user, password)),
            BasicAuth::Invalid => None,
        }
    }

    #[test]
    fn a_name_and_a_password_are_read_and_nothing_else() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        let found = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read(&[]), found("", ""));
        assert_eq!(read(&[&basic("ann:pass:word")]), found("ann", "pass:word"));
        assert_eq!(read(&[&basic("ann:ä").replace("Basic", "bAsIc")]), found("ann", "ä"));
        assert_eq!(read(&[&basic("token:")]), found("", "token"));
        assert_eq!(read(&[&basic("token:x-oauth-basic")]), found("", "token"));
        for bad in ["Basic", "Basic !", "Bearer x", "", &basic("no colon"), &basic("a:b\nc"), &basic("a:\0")] {
            assert_eq!(read(&[bad]), None, "{bad}");
        }
        assert_eq!(read(&[&basic("a:b"), &basic("a:b")]), None);
    }
}
