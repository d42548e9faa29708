//! Metrics of requests: their number and duration.

use std::{cell::RefCell, collections::HashMap};

use metrics::{Counter, Histogram};

use crate::access_log::AccessLogEntry;

/// The metrics of one route that this thread has used.
#[derive(Default)]
struct RouteMetrics {
    durations: Vec<(&'static str, Histogram)>,
    responses: Vec<(&'static str, u16, Counter)>,
}

thread_local! {
    /// Cached per thread, because looking a metric up by its labels is expensive.
    static METRICS: RefCell<HashMap<String, RouteMetrics>> = RefCell::default();
}

/// Records a request.
pub(crate) fn record(entry: &AccessLogEntry<'_>) {
    let (method, route, status) = (method_label(entry.method), entry.route, entry.status);
    METRICS.with_borrow_mut(|metrics_by_route| {
        if !metrics_by_route.contains_key(route) {
            metrics_by_route.insert(route.to_owned(), RouteMetrics::default());
        }
        let Some(RouteMetrics { durations, responses }) = metrics_by_route.get_mut(route) else { return };
        let duration = position(durations, |(of, _)| *of == method).unwrap_or_else(|| {
            let name = "gable_http_request_duration_seconds";
            durations.push((method, metrics::histogram!(name, "method" => method, "route" => route.to_owned())));
            durations.len() - 1
        });
        durations[duration].1.record(entry.duration.as_secs_f64());
        let response = position(responses, |(of, code, _)| *of == method && *code == status).unwrap_or_else(|| {
            let labels = [("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
            responses.push((method, status, metrics::counter!("gable_http_requests_total", &labels)));
            responses.len() - 1
        });
        responses[response].2.increment(1);
    });
}

fn position<T>(items: &[T], matches: impl FnMut(&T) -> bool) -> Option<usize> {
    items.iter().position(matches)
}

/// Maps unknown methods to `other`: clients can invent methods, and labels must stay bounded.
fn method_label(method: &str) -> &'static str {
    const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    METHODS.into_iter().find(|known| *known == method).unwrap_or("other")
}
