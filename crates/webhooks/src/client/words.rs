//! What went wrong, in words for whoever owns the hook.

use std::{error::Error, fmt::Display, io, iter, time::Duration};

use hyper_util::client::legacy;
use model::hooks::Outcome;
use rustls::CertificateError;

use super::lookup::Dead;

/// How much of what a library says about an error is shown; some of it the receiver chooses.
const LONGEST_DETAIL: usize = 300;

/// What came of an attempt that failed in this way.
pub(super) fn outcome(error: &legacy::Error, connect: Duration) -> Outcome {
    for cause in causes(error) {
        if let Some(dead) = cause.downcast_ref::<Dead>() {
            let why = format!("the URL {dead}");
            return match dead {
                Dead::Closed => Outcome::Refused(why),
                Dead::Unknown => Outcome::Unreachable(why),
            };
        }
        let why = match (cause.downcast_ref(), cause.downcast_ref(), cause.downcast_ref()) {
            (Some(error), _, _) => Some(of_tls(error)),
            (_, Some(error), _) => of_http(error),
            (_, _, Some(error)) => of_the_network(error, connect),
            _ => None,
        };
        if let Some(why) = why {
            return Outcome::Unreachable(why);
        }
    }
    Outcome::Unreachable("the receiver cannot be reached".into())
}

/// A length of time as people say it.
pub(super) fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} milliseconds", duration.as_millis()),
        1 => "1 second".into(),
        seconds => format!("{seconds} seconds"),
    }
}

/// An error and all that lies below it.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| {
        // What such an error is made of is not what it calls its source.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

fn of_tls(error: &rustls::Error) -> String {
    use CertificateError as Flaw;
    match error {
        rustls::Error::InvalidCertificate(Flaw::Expired | Flaw::ExpiredContext { .. }) => {
            "the certificate has expired".into()
        }
        rustls::Error::InvalidCertificate(Flaw::UnknownIssuer) => {
            "the certificate is signed by nobody whom this server trusts".into()
        }
        rustls::Error::InvalidCertificate(flaw @ (Flaw::NotValidForName | Flaw::NotValidForNameContext { .. })) => {
            format!("the certificate is not valid for this host: {}", detail(flaw))
        }
        rustls::Error::InvalidCertificate(flaw) => format!("the certificate is not valid: {}", detail(flaw)),
        rustls::Error::InvalidMessage(_) => "the receiver does not speak TLS".into(),
        other => format!("the receiver and this server do not agree on TLS: {}", detail(other)),
    }
}

fn of_http(error: &hyper::Error) -> Option<String> {
    if error.is_parse_too_large() {
        Some("the headers of the answer are too long".into())
    } else if error.is_parse() {
        Some("the answer is not HTTP".into())
    } else if error.is_incomplete_message() {
        Some("the connection was closed before there was an answer".into())
    } else {
        None
    }
}

fn of_the_network(error: &io::Error, connect: Duration) -> Option<String> {
    use io::ErrorKind as Kind;
    let why = match error.kind() {
        Kind::ConnectionRefused => "the connection was refused",
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => {
            "the connection was closed before there was an answer"
        }
        Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::AddrNotAvailable => {
            "no way through the network leads to the host"
        }
        Kind::TimedOut => return Some(format!("no connection within {}", duration(connect))),
        _ => return None,
    };
    Some(why.into())
}

fn detail(error: &impl Display) -> String {
    error.to_string().chars().filter(|c| !c.is_control()).take(LONGEST_DETAIL).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_told_as_people_do() {
        let check = |millis, words: &str| assert_eq!(duration(Duration::from_millis(millis)), words);
        check(10_000, "10 seconds");
        check(1000, "1 second");
        check(250, "250 milliseconds");
    }

    #[test]
    fn what_the_network_says_is_put_into_words() {
        let check = |kind: io::ErrorKind, words: Option<&str>| {
            let said = of_the_network(&kind.into(), Duration::from_secs(10));
            assert_eq!(said.as_deref(), words);
        };
        check(io::ErrorKind::ConnectionRefused, Some("the connection was refused"));
        check(io::ErrorKind::NetworkUnreachable, Some("no way through the network leads to the host"));
        check(io::ErrorKind::TimedOut, Some("no connection within 10 seconds"));
        check(io::ErrorKind::Other, None);
    }
}
