//! What a receiver answers: as much of it as is worth keeping, without what is secret.

use forge::outgoing;
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Response,
    body::Incoming,
    header::{HeaderName, PROXY_AUTHENTICATE, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE},
};
use jiff::fmt::rfc2822::DateTimeParser;
use model::{Time, hooks::Answer};
use tokio::time::{Instant, timeout_at};

/// What stands in place of something secret.
const MASK: &str = "*****";
/// Headers whose values open doors.
const SECRET: [HeaderName; 3] = [PROXY_AUTHENTICATE, SET_COOKIE, WWW_AUTHENTICATE];
/// How much of the headers is kept.
const HEADERS_KEPT: usize = 16 << 10;
/// Shorter secrets are words that stand everywhere.
const SHORTEST_SECRET: usize = 4;

/// What must not be repeated from an answer: some receivers say back what they were told.
pub(super) struct Redaction(Vec<String>);

impl Redaction {
    pub(super) fn new(token: Option<&str>, credentials: Option<&str>) -> Self {
        let mut secrets: Vec<String> = token.map(ToOwned::to_owned).into_iter().collect();
        if let Some(credentials) = credentials {
            let basic = outgoing::basic(credentials);
            let encoded = basic.split(' ').next_back().unwrap_or_default();
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            // Where there is no password, the name is one.
            let password = if password.is_empty() { user } else { password };
            secrets.extend([credentials, encoded, password].map(ToOwned::to_owned));
        }
        secrets.retain(|secret| secret.len() >= SHORTEST_SECRET);
        let spelled: Vec<String> = secrets.iter().flat_map(|secret| spellings(secret)).collect();
        secrets.extend(spelled);
        // The longer ones first: one may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self(secrets)
    }

    /// How much longer than what is kept a text has to be, so that no secret is cut before it is found.
    fn margin(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    fn apply(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| if text.contains(secret) { text.replace(secret, MASK) } else { text })
    }
}

/// How a secret reads in JSON, with and without slashes escaped, and in a URL.
fn spellings(secret: &str) -> [String; 3] {
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

/// Reads an answer whose status is known: nothing that happens from now on makes it another one.
pub(super) async fn read(
    response: Response<Incoming>,
    limit: usize,
    deadline: Instant,
    redaction: &Redaction,
    now: Time,
) -> Answer {
    let (head, body) = response.into_parts();
    let body = read_body(body, limit.saturating_add(redaction.margin()), deadline).await;
    Answer {
        status: head.status.as_u16(),
        headers: cut(redaction.apply(lines(&head.headers)), HEADERS_KEPT),
        body: cut(redaction.apply(text(&body)), limit),
        retry_after: head.headers.get(RETRY_AFTER).and_then(|value| seconds(value.to_str().ok()?, now)),
    }
}

/// The beginning of a body. A connection on which more of it would come is closed, as nobody reads on.
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

/// Bytes as text; databases do not keep NUL.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "")
}

fn lines(headers: &HeaderMap) -> String {
    let line = |(name, value): (&HeaderName, &hyper::header::HeaderValue)| {
        if SECRET.contains(name) { format!("{name}: {MASK}") } else { format!("{name}: {}", text(value.as_bytes())) }
    };
    headers.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The beginning of a text that is no longer than this.
fn cut(mut text: String, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

/// For how long a receiver wants to be left alone: a number of seconds, or until a moment.
fn seconds(value: &str, now: Time) -> Option<u32> {
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
    fn a_pause_is_a_number_or_a_moment() {
        let now: Time = "2026-11-15T10:00:00Z".parse().expect("a moment");
        let check = |value: &str, expected: Option<u32>| assert_eq!(seconds(value, now), expected, "{value}");
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
    fn lesson_24_what_a_receiver_says_back_is_not_repeated() {
        let redaction = Redaction::new(Some("open sesame"), Some("user:password"));
        let said = "open sesame, Basic dXNlcjpwYXNzd29yZA==, user:password, password, user, sesame";
        assert_eq!(redaction.apply(said.into()), "*****, Basic *****, *****, *****, user, sesame");
        let redaction = Redaction::new(Some("to/k\"en"), Some("API-KEY:"));
        let said = r#"{"token":"to/k\"en","escaped":"to\/k\"en","query":"to%2Fk%22en","user":"API-KEY"}"#;
        assert_eq!(
            redaction.apply(said.into()),
            r#"{"token":"*****","escaped":"*****","query":"*****","user":"*****"}"#
        );
        // Nothing can be read if every letter may be a secret.
        assert_eq!(Redaction::new(Some("a"), Some("b:c")).apply("abc".into()), "abc");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("añb".into(), 2), "a");
        assert_eq!(cut("añb".into(), 3), "añ");
        assert_eq!(cut("añb".into(), 9), "añb");
        assert_eq!(text(b"a\0b\xff"), "ab\u{fffd}");
    }
}
