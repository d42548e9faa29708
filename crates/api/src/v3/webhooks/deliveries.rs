//! JSON of the delivery log.

use forge::hooks::DeliveryLogEntry;
use model::Delivery;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::reply::TimestampJson;

/// Replaces secrets.
const MASK: &str = "*****";

/// The confirmation that a delivery was enqueued.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SentJson {
    message: &'static str,
}

impl Default for SentJson {
    fn default() -> Self {
        Self { message: "201 Created" }
    }
}

/// A delivery with its last attempt. Lists omit the bodies of request and response, which may be long.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DeliveryJson {
    id: i64,
    uuid: String,
    event: &'static str,
    #[schemars(with = "StateJson")]
    state: &'static str,
    attempt: i32,
    created_at: TimestampJson,
    next_attempt_at: Option<TimestampJson>,
    tried_at: Option<TimestampJson>,
    finished_at: Option<TimestampJson>,
    /// The duration of the last attempt, in seconds.
    duration: Option<f64>,
    request: RequestJson,
    response: Option<ResponseJson>,
    error: Option<String>,
}

/// The state of a delivery.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the values in the OpenAPI document")]
enum StateJson {
    Waiting,
    Delivered,
    Failed,
}

/// The request, with secrets masked.
#[derive(Serialize, JsonSchema)]
struct RequestJson {
    url: String,
    headers: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Value>,
}

/// The response.
#[derive(Serialize, JsonSchema)]
struct ResponseJson {
    status: i32,
    headers: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
}

impl DeliveryJson {
    /// Creates the JSON of a delivery in a list.
    pub(crate) fn without_bodies(entry: DeliveryLogEntry) -> Self {
        Self::new(entry, None)
    }

    /// Creates the JSON of a single delivery.
    pub(crate) fn with_bodies(mut entry: DeliveryLogEntry) -> Self {
        let payload = std::mem::take(&mut entry.delivery.payload);
        let body = serde_json::from_str(&payload).unwrap_or(Value::String(payload));
        Self::new(entry, Some(body))
    }

    fn new(DeliveryLogEntry { delivery, signed }: DeliveryLogEntry, body: Option<Value>) -> Self {
        let headers = request_headers(&delivery, signed);
        let Delivery {
            id,
            hook: _,
            uuid,
            kind,
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
            headers: parse_headers(response_headers.as_deref().unwrap_or_default()),
            body: response_body,
        });
        Self {
            id: id.get(),
            uuid,
            event: kind.header(),
            state: state.as_str(),
            attempt: attempts,
            created_at: TimestampJson(created_at),
            next_attempt_at: due_at.map(TimestampJson),
            tried_at: tried_at.map(TimestampJson),
            finished_at: finished_at.map(TimestampJson),
            duration: duration.map(seconds),
            request: RequestJson { url: url.unwrap_or_default(), headers, body },
            response,
            error,
        }
    }
}

/// Returns the headers of the request, with secrets masked.
fn request_headers(delivery: &Delivery, signed: bool) -> Map<String, Value> {
    let mut headers = Map::new();
    let mut put = |name: &str, value: &str| headers.insert(name.to_owned(), value.into());
    put("Content-Type", "application/json");
    put("User-Agent", concat!("Gable/", env!("CARGO_PKG_VERSION")));
    put("X-Gitlab-Event", delivery.kind.header());
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

/// Parses headers, one per line; values of the same name are joined with commas.
fn parse_headers(lines: &str) -> Map<String, Value> {
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

#[expect(clippy::cast_precision_loss, reason = "attempts are short")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_headers_are_parsed_line_by_line() {
        let check = |lines: &str, expected: &str| {
            assert_eq!(serde_json::to_string(&parse_headers(lines)).expect("written"), expected, "{lines:?}");
        };
        check("", "{}");
        check("server: nginx\nage: 7\r\nx: a:b", r#"{"server":"nginx","age":"7","x":"a:b"}"#);
        check("via: a\nvia: b\nnonsense", r#"{"via":"a, b"}"#);
    }
}
