//! The lines of the access log, as text or JSON.

use std::{cell::RefCell, io::Write as _, sync::Arc};

use api::{AccessLog, AccessLogEntry};
use jiff::{Timestamp, tz::Offset};
use tracing::enabled;

use crate::{config::LogFormat, log_writer::LogWriter};

/// Returns an access log that writes a line per request if level `info` is enabled.
pub(crate) fn access_log(writer: LogWriter, format: LogFormat) -> AccessLog {
    Arc::new(move |entry| {
        if enabled!(target: "api::access_log", tracing::Level::INFO) {
            // Formatted before the shared buffer is locked.
            LINE.with_borrow_mut(|line| {
                line.clear();
                write_line(line, format, entry);
                writer.write_buffered(line);
            });
        }
    })
}

thread_local! {
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Nothing needs escaping: request ids are validated, routes are our own, and a method is an HTTP token, which contains
/// neither quotes nor backslashes.
fn write_line(line: &mut Vec<u8>, format: LogFormat, entry: &AccessLogEntry<'_>) {
    let AccessLogEntry { id, method, route, status, duration, user, acting_as } = entry;
    let now = Offset::UTC.to_datetime(Timestamp::now());
    let (date, time) = (now.date(), now.time());
    let (hour, minute, second, micro) = (time.hour(), time.minute(), time.second(), time.subsec_nanosecond() / 1000);
    let (millis, rest) = (duration.as_micros() / 1000, duration.as_micros() % 1000);
    let _ = match format {
        LogFormat::Human => write!(
            line,
            "{date}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z  INFO answered request={id} method={method} \
             route={route} status={status} duration_ms={millis}.{rest:03}"
        ),
        LogFormat::Json => write!(
            line,
            "{{\"timestamp\":\"{date}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z\",\"level\":\"INFO\",\
             \"message\":\"answered\",\"request\":\"{id}\",\"method\":\"{method}\",\"route\":\"{route}\",\
             \"status\":{status},\"duration_ms\":{millis}.{rest:03}"
        ),
    };
    for (name, user) in [("user", user), ("acting_as", acting_as)] {
        let _ = match (format, user) {
            (_, None) => Ok(()),
            (LogFormat::Human, Some(user)) => write!(line, " {name}={user}"),
            (LogFormat::Json, Some(user)) => write!(line, ",\"{name}\":{user}"),
        };
    }
    line.extend_from_slice(match format {
        LogFormat::Human => b"\n",
        LogFormat::Json => b"}\n",
    });
}

#[cfg(test)]
mod tests {
    use model::UserId;

    use super::*;

    #[test]
    fn a_line_contains_request_user_and_duration() {
        let entry = AccessLogEntry {
            id: "a-1",
            method: "GET",
            route: "/api/v3/user",
            status: 200,
            duration: std::time::Duration::from_micros(1_234_005),
            user: Some(UserId::new(7)),
            acting_as: Some(UserId::new(8)),
        };
        let line = |format| {
            let mut line = Vec::new();
            write_line(&mut line, format, &entry);
            String::from_utf8(line).expect("text")
        };
        let human = line(LogFormat::Human);
        let (_, message) = human.split_once("Z  ").expect("a time");
        assert_eq!(
            message,
            "INFO answered request=a-1 method=GET route=/api/v3/user status=200 duration_ms=1234.005 user=7 acting_as=8\n"
        );
        let json = line(LogFormat::Json);
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&value["user"], &value["duration_ms"]), (&serde_json::json!(7), &serde_json::json!(1234.005)));
    }
}
