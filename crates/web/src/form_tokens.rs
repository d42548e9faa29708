//! Protection against requests that other sites forge: a secret token in every form, and a check of where a request comes
//! from.

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use crate::{context::PageCx, error::PageError, forms::Fields};

/// The name of the form field with the token.
pub(crate) const FIELD: &str = "form_token";
/// The cookie from which the token of the sign-in form is derived, because there is no session yet.
pub(crate) const SIGN_IN_COOKIE: &str = "gable_sign_in";

const LENGTH: usize = 32;

/// Returns the token of a form for this secret. It is different in each response, so that the length of compressed
/// responses reveals nothing about it.
pub(crate) fn create(secret: &str, mask: [u8; LENGTH]) -> String {
    let mut bytes = mask.to_vec();
    bytes.extend(derive(secret).iter().zip(mask).map(|(byte, mask)| byte ^ mask));
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Checks a submitted form: it comes from a page of this server, and has the token of this secret.
pub(crate) fn check(cx: &PageCx, fields: &Fields, secret: Option<&str>) -> Result<(), PageError> {
    let is_valid = secret.is_some_and(|secret| is_valid(fields.get(FIELD), secret));
    if is_valid && is_same_origin(&cx.headers, cx.origin.site.root()) { Ok(()) } else { Err(PageError::ForgedRequest) }
}

fn is_valid(token: &str, secret: &str) -> bool {
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(token) else { return false };
    if bytes.len() != 2 * LENGTH {
        return false;
    }
    let (mask, masked) = bytes.split_at(LENGTH);
    // Compares in constant time.
    let expected = derive(secret);
    let difference =
        masked.iter().zip(mask).zip(expected).fold(0, |all, ((byte, mask), expected)| all | (byte ^ mask ^ expected));
    difference == 0
}

fn derive(secret: &str) -> [u8; LENGTH] {
    let mut digest = Sha256::new();
    digest.update(b"form token\0");
    digest.update(secret.as_bytes());
    digest.finalize().into()
}

/// Returns whether a browser says that the request comes from a page of this server. Old browsers and text browsers say
/// nothing; the token alone protects their users.
fn is_same_origin(headers: &HeaderMap, root: &str) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("invalid"));
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin" || site == "none";
    }
    let Some(origin) = text(header::ORIGIN.as_str()) else { return true };
    let authority = |url: &str| url.split_once("://").map(|(_, rest)| rest.trim_end_matches('/').to_owned());
    let requested = text(header::HOST.as_str()).map(ToOwned::to_owned);
    authority(origin)
        .is_some_and(|origin| Some(&origin) == requested.as_ref() || authority(root).as_ref() == Some(&origin))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_token_belongs_to_one_secret() {
        let token = create("secret", [7; LENGTH]);
        assert_ne!(token, create("secret", [8; LENGTH]));
        assert!(is_valid(&token, "secret"));
        assert!(is_valid(&create("secret", [8; LENGTH]), "secret"));
        assert!(!is_valid(&token, "other"));
        for wrong in ["", "x", &token[1..], &token.replace(|c: char| c.is_ascii_digit(), "_")] {
            assert!(!is_valid(wrong, "secret") || wrong == token, "{wrong}");
        }
    }

    #[test]
    fn requests_of_other_sites_are_recognized() {
        let check = |headers: &[(&str, &str)], expected: bool| {
            let map: HeaderMap = headers
                .iter()
                .map(|(name, value)| {
                    let name: HeaderName = name.parse().expect("a name");
                    (name, HeaderValue::from_str(value).expect("a value"))
                })
                .collect();
            assert_eq!(is_same_origin(&map, "https://forge.example"), expected, "{headers:?}");
        };
        check(&[("sec-fetch-site", "same-origin")], true);
        check(&[("sec-fetch-site", "none")], true);
        check(&[("sec-fetch-site", "same-site")], false);
        check(&[("sec-fetch-site", "cross-site"), ("origin", "https://forge.example")], false);
        check(&[("origin", "https://forge.example")], true);
        check(&[("origin", "http://10.0.0.1:8080"), ("host", "10.0.0.1:8080")], true);
        check(&[("origin", "https://evil.example"), ("host", "forge.example")], false);
        check(&[("origin", "null")], false);
        check(&[], true);
    }
}
