//! What hooks were sent, and how that went.

use forge::hooks::LogEntry;
use model::Delivery;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::reply::Stamp;

/// What stands for a secret.
const MASK: &str = "*****";

/// That something was sent on its way.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SentJson {
    message: &'static str,
}

impl Default for SentJson {
    fn default() -> Self {
        Self { message: "201 Created" }
    }
}

/// Something that a hook was sent, and how its last attempt went. What was said stands only in the answer about one of
/// them, since it may be long.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeliveryJson {
    id: i64,
    uuid: String,
    event: &'static str,
    #[schemars(with = "StateJson")]
    state: &'static str,
    attempt: i32,
    created_at: Stamp,
    next_attempt_at: Option<Stamp>,
    tried_at: Option<Stamp>,
    finished_at: Option<Stamp>,
    /// How long the last attempt took, in seconds.
    duration: Option<f64>,
    request: RequestJson,
    response: Option<ResponseJson>,
    error: Option<String>,
}

/// How something stands that a hook was sent.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the words for the document")]
enum StateJson {
    Waiting,
    Delivered,
    Failed,
}

/// What was sent where. Secrets are masked.
#[derive(Serialize, JsonSchema)]
struct RequestJson {
    url: String,
    headers: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Value>,
}

/// What came back.
#[derive(Serialize, JsonSchema)]
struct ResponseJson {
    status: i32,
    headers: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

impl DeliveryJson {
    /// A line of a list.
    pub(crate) fn in_short(entry: LogEntry) -> Self {
        Self::new(entry, None)
    }

    /// With all that was said.
    pub(crate) fn in_full(mut entry: LogEntry) -> Self {
        let payload = std::mem::take(&mut entry.delivery.payload);
        let body = serde_json::from_str(&payload).unwrap_or(Value::String(payload));
        Self::new(entry, Some(body))
    }

    fn new(LogEntry { delivery, signed }: LogEntry, body: Option<Value>) -> Self {
        let headers = sent_headers(&delivery, signed);
        let Delivery {
            id,
            hook: _,
            uuid,
            occasion,
            state,
            attempts,
            created_at,
            due_at,
            tried_at,
            finished_at,
            duration,
            url,
            payload: _,
            status,
            response_headers,
            response_body,
            error,
        } = delivery;
        let response_body = body.is_some().then(|| response_body.unwrap_or_default());
        let response = status.map(|status| ResponseJson {
            status,
            headers: received_headers(response_headers.as_deref().unwrap_or_default()),
            body: response_body,
        });
        Self {
            id,
            uuid,
            event: occasion.header(),
            state: state.as_str(),
            attempt: attempts,
            created_at: Stamp(created_at),
            next_attempt_at: due_at.map(Stamp),
            tried_at: tried_at.map(Stamp),
            finished_at: finished_at.map(Stamp),
            duration: duration.map(seconds),
            request: RequestJson { url: url.unwrap_or_default(), headers, body },
            response,
            error,
        }
    }
}

/// The headers that a receiver gets.
fn sent_headers(delivery: &Delivery, signed: bool) -> Map<String, Value> {
    let mut headers = Map::new();
    let mut put = |name: &str, value: &str| headers.insert(name.to_owned(), value.into());
    put("Content-Type", "application/json");
    put("User-Agent", concat!("Gable/", env!("CARGO_PKG_VERSION")));
    put("X-Gitlab-Event", delivery.occasion.header());
    put("X-Gitlab-Event-UUID", &delivery.uuid);
    put("Idempotency-Key", &delivery.uuid);
    if delivery.url.as_deref().is_some_and(|url| url.contains("://*****:*****@")) {
        put("Authorization", MASK);
    }
    if signed {
        put("X-Gitlab-Token", MASK);
        put("X-Hub-Signature-256", MASK);
    }
    headers
}

/// Headers of which one stands in a line; those of the same name are joined, as HTTP has it.
fn received_headers(lines: &str) -> Map<String, Value> {
    let mut headers = Map::new();
    for (name, value) in lines.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match headers.get_mut(name) {
            Some(Value::String(known)) => {
                known.push_str(", ");
                known.push_str(value);
            }
            _ => {
                headers.insert(name.to_owned(), value.into());
            }
        }
    }
    headers
}

#[expect(clippy::cast_precision_loss, reason = "no attempt takes for years")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_receiver_are_read_line_by_line() {
        let check = |lines: &str, expected: &str| {
            assert_eq!(serde_json::to_string(&received_headers(lines)).expect("written"), expected, "{lines:?}");
        };
        check("", "{}");
        check("server: nginx\nage: 7\r\nx: a:b", r#"{"server":"nginx","age":"7","x":"a:b"}"#);
        check("via: a\nvia: b\nnonsense", r#"{"via":"a, b"}"#);
    }
}
