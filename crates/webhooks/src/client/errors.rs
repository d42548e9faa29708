//! Error messages for the owner of a hook.

use std::{
    error::Error,
    fmt::Display,
    io::{self, ErrorKind},
    iter,
    time::Duration,
};

use forge::outbound_addresses::DestinationError;
use hyper_util::client::legacy;
use model::hooks::AttemptOutcome;
use rustls::CertificateError;

/// The maximum length of an error text from a library; the receiver may control parts of it.
const MAX_DETAIL_CHARS: usize = 300;

/// Converts an error into the outcome of an attempt.
pub(super) fn to_outcome(error: &legacy::Error, connect_timeout: Duration) -> AttemptOutcome {
    for cause in causes(error) {
        if let Some(error) = cause.downcast_ref::<DestinationError>() {
            let message = format!("the URL {error}");
            return match error {
                DestinationError::UnknownHost => AttemptOutcome::Unreachable(message),
                _ => AttemptOutcome::Refused(message),
            };
        }
        let message = match (cause.downcast_ref(), cause.downcast_ref(), cause.downcast_ref()) {
            (Some(error), _, _) => Some(tls_message(error)),
            (_, Some(error), _) => http_message(error),
            (_, _, Some(error)) => network_message(error, connect_timeout),
            _ => None,
        };
        if let Some(message) = message {
            return AttemptOutcome::Unreachable(message);
        }
    }
    AttemptOutcome::Unreachable("the receiver cannot be reached".into())
}

/// Formats a duration with its unit.
pub(super) fn format_duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} milliseconds", duration.as_millis()),
        1 => "1 second".into(),
        seconds => format!("{seconds} seconds"),
    }
}

/// Iterates over an error and its sources.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| {
        // The `source` of an `io::Error` skips the error that it wraps.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

fn tls_message(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the certificate has expired".into()
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the certificate is not signed by a trusted authority".into()
        }
        rustls::Error::InvalidCertificate(
            error @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => {
            format!("the certificate is not valid for this host: {}", detail(error))
        }
        rustls::Error::InvalidCertificate(error) => format!("the certificate is not valid: {}", detail(error)),
        rustls::Error::InvalidMessage(_) => "the receiver does not speak TLS".into(),
        other => format!("the TLS handshake failed: {}", detail(other)),
    }
}

fn http_message(error: &hyper::Error) -> Option<String> {
    if error.is_parse_too_large() {
        Some("the headers of the response are too long".into())
    } else if error.is_parse() {
        Some("the response is not HTTP".into())
    } else if error.is_incomplete_message() {
        Some("the connection was closed before a response was received".into())
    } else {
        None
    }
}

fn network_message(error: &io::Error, connect_timeout: Duration) -> Option<String> {
    let message = match error.kind() {
        ErrorKind::ConnectionRefused => "the connection was refused",
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => "the connection was closed before a response was received",
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => {
            "the host is unreachable"
        }
        ErrorKind::TimedOut => return Some(format!("no connection within {}", format_duration(connect_timeout))),
        _ => return None,
    };
    Some(message.into())
}

fn detail(error: &impl Display) -> String {
    error.to_string().chars().filter(|c| !c.is_control()).take(MAX_DETAIL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_with_a_unit() {
        let check = |millis, expected: &str| assert_eq!(format_duration(Duration::from_millis(millis)), expected);
        check(10_000, "10 seconds");
        check(1000, "1 second");
        check(250, "250 milliseconds");
    }

    #[test]
    fn network_errors_have_messages() {
        let check = |kind: ErrorKind, expected: Option<&str>| {
            let message = network_message(&kind.into(), Duration::from_secs(10));
            assert_eq!(message.as_deref(), expected);
        };
        check(ErrorKind::ConnectionRefused, Some("the connection was refused"));
        check(ErrorKind::NetworkUnreachable, Some("the host is unreachable"));
        check(ErrorKind::TimedOut, Some("no connection within 10 seconds"));
        check(ErrorKind::Other, None);
    }
}
