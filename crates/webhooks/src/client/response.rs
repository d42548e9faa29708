//! Reads the response of a receiver, truncated and with secrets redacted.

use forge::outbound_addresses;
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Response,
    body::Incoming,
    header::{HeaderName, PROXY_AUTHENTICATE, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE},
};
use jiff::fmt::rfc2822::DateTimeParser;
use model::{Time, hooks::HookResponse};
use tokio::time::{Instant, timeout_at};

/// Replaces secrets.
const MASK: &str = "*****";
/// Headers whose values are secret.
const SECRET_HEADERS: [HeaderName; 3] = [PROXY_AUTHENTICATE, SET_COOKIE, WWW_AUTHENTICATE];
/// The maximum size of the returned headers.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// Shorter secrets are not redacted: they would match everywhere.
const MIN_SECRET_LENGTH: usize = 4;

/// The secrets of a request, which some receivers echo in their response.
pub(super) struct Redaction(Vec<String>);

impl Redaction {
    pub(super) fn new(token: Option<&str>, credentials: Option<&str>) -> Self {
        let mut secrets: Vec<String> = token.map(ToOwned::to_owned).into_iter().collect();
        if let Some(credentials) = credentials {
            let basic = outbound_addresses::basic_authorization(credentials);
            let encoded = basic.split(' ').next_back().unwrap_or_default();
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            // Without a password the username is the secret.
            let password = if password.is_empty() { user } else { password };
            secrets.extend([credentials, encoded, password].map(ToOwned::to_owned));
        }
        secrets.retain(|secret| secret.len() >= MIN_SECRET_LENGTH);
        let encodings: Vec<String> = secrets.iter().flat_map(|secret| encodings(secret)).collect();
        secrets.extend(encodings);
        // Longest first: a secret may be part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self(secrets)
    }

    /// Returns how many bytes beyond the limit must be read so that no secret is truncated before it is found.
    fn margin(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    fn apply(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| if text.contains(secret) { text.replace(secret, MASK) } else { text })
    }
}

/// Encodes a secret as in JSON, with and without escaped slashes, and as in a URL.
fn encodings(secret: &str) -> [String; 3] {
    let quoted = serde_json::Value::from(secret).to_string();
    let json = quoted[1..quoted.len() - 1].to_owned();
    let slashed = json.replace('/', "\\/");
    let encoded = secret.bytes().fold(String::new(), |text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text + &char::from(byte).to_string()
        } else {
            format!("{text}%{byte:02X}")
        }
    });
    [json, slashed, encoded]
}

/// Reads a response whose status is known; errors while reading the body are ignored.
pub(super) async fn read(
    response: Response<Incoming>,
    limit: usize,
    deadline: Instant,
    redaction: &Redaction,
    now: Time,
) -> HookResponse {
    let (head, body) = response.into_parts();
    let body = read_body(body, limit.saturating_add(redaction.margin()), deadline).await;
    HookResponse {
        status: head.status.as_u16(),
        headers: truncate(redaction.apply(format_headers(&head.headers)), MAX_HEADER_BYTES),
        body: truncate(redaction.apply(to_text(&body)), limit),
        retry_after: head.headers.get(RETRY_AFTER).and_then(|value| parse_retry_after(value.to_str().ok()?, now)),
    }
}

/// Reads the beginning of a body. The connection is closed if there is more.
async fn read_body(mut body: Incoming, limit: usize, deadline: Instant) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < limit {
        let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await else { break };
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data[..data.len().min(limit - read.len())]);
        }
    }
    read
}

/// Converts bytes to text without NUL, which PostgreSQL cannot store.
fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "")
}

fn format_headers(headers: &HeaderMap) -> String {
    let line = |(name, value): (&HeaderName, &hyper::header::HeaderValue)| {
        if SECRET_HEADERS.contains(name) {
            format!("{name}: {MASK}")
        } else {
            format!("{name}: {}", to_text(value.as_bytes()))
        }
    };
    headers.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Truncates a text at a character boundary.
fn truncate(mut text: String, max_bytes: usize) -> String {
    let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

/// Parses `Retry-After`, a number of seconds or a date, into seconds.
fn parse_retry_after(value: &str, now: Time) -> Option<u32> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.parse().unwrap_or(u32::MAX));
    }
    let until = DateTimeParser::new().parse_timestamp(value).ok()?;
    let wait = until.as_second().saturating_sub(now.as_second());
    Some(u32::try_from(wait.max(0)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        let now: Time = "2026-11-15T10:00:00Z".parse().expect("a valid time");
        let check = |value: &str, expected: Option<u32>| assert_eq!(parse_retry_after(value, now), expected, "{value}");
        check("120", Some(120));
        check(" 0 ", Some(0));
        check("99999999999999999999", Some(u32::MAX));
        check("Sun, 15 Nov 2026 10:02:00 GMT", Some(120));
        check("Sun, 15 Nov 2026 09:00:00 GMT", Some(0));
        check("Wed, 01 Jan 2200 00:00:00 GMT", Some(u32::MAX));
        check("-1", None);
        check("1.5", None);
        check("soon", None);
        check("", None);
    }

    #[test]
    fn echoed_secrets_are_redacted() {
        let redaction = Redaction::new(Some("open sesame"), Some("user:password"));
        let echoed = "open sesame, Basic dXNlcjpwYXNzd29yZA==, user:password, password, user, sesame";
        assert_eq!(redaction.apply(echoed.into()), "*****, Basic *****, *****, *****, user, sesame");
        let redaction = Redaction::new(Some("to/k\"en"), Some("API-KEY:"));
        let echoed = r#"{"token":"to/k\"en","escaped":"to\/k\"en","query":"to%2Fk%22en","user":"API-KEY"}"#;
        assert_eq!(
            redaction.apply(echoed.into()),
            r#"{"token":"*****","escaped":"*****","query":"*****","user":"*****"}"#
        );
        // Redacting single letters would make the response unreadable.
        assert_eq!(Redaction::new(Some("a"), Some("b:c")).apply("abc".into()), "abc");
    }

    #[test]
    fn texts_are_truncated_between_characters() {
        assert_eq!(truncate("añb".into(), 2), "a");
        assert_eq!(truncate("añb".into(), 3), "añ");
        assert_eq!(truncate("añb".into(), 9), "añb");
        assert_eq!(to_text(b"a\0b\xff"), "ab\u{fffd}");
    }
}
