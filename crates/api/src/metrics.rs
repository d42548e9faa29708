//! Counts and times requests.

use std::{cell::RefCell, collections::HashMap};

use metrics::{Counter, Histogram};

use crate::access_log::Answered;

/// The meters of one route, as far as this thread has met them.
#[derive(Default)]
struct Meters {
    durations: Vec<(&'static str, Histogram)>,
    answers: Vec<(&'static str, u16, Counter)>,
}

thread_local! {
    /// Looking a meter up by its labels costs more than everything else about it, so each thread remembers.
    static METERS: RefCell<HashMap<String, Meters>> = RefCell::default();
}

/// Counts an answer.
pub(crate) fn count(answered: &Answered<'_>) {
    let (method, route, status) = (known(answered.method), answered.route, answered.status);
    METERS.with_borrow_mut(|meters| {
        if !meters.contains_key(route) {
            meters.insert(route.to_owned(), Meters::default());
        }
        let Some(Meters { durations, answers }) = meters.get_mut(route) else { return };
        let duration = position(durations, |(of, _)| *of == method).unwrap_or_else(|| {
            let name = "gable_http_request_duration_seconds";
            durations.push((method, metrics::histogram!(name, "method" => method, "route" => route.to_owned())));
            durations.len() - 1
        });
        durations[duration].1.record(answered.duration.as_secs_f64());
        let answer = position(answers, |(of, code, _)| *of == method && *code == status).unwrap_or_else(|| {
            let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
            answers.push((method, status, metrics::counter!("gable_http_requests_total", &labels)));
            answers.len() - 1
        });
        answers[answer].2.increment(1);
    });
}

fn position<T>(items: &[T], fits: impl FnMut(&T) -> bool) -> Option<usize> {
    items.iter().position(fits)
}

/// A client can invent methods; a label must not grow with them.
fn known(method: &str) -> &'static str {
    const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    METHODS.into_iter().find(|known| *known == method).unwrap_or("other")
}
