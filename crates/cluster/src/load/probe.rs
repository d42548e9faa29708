//! Small writes at short intervals, which show for how long the cluster accepts none.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Shared;

const INTERVAL: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(2);

/// The successes since the start of a measurement.
#[derive(Default)]
pub(crate) struct Probe(Mutex<Measurement>);

#[derive(Default)]
struct Measurement {
    /// The time of the last success, or of the start.
    last: Option<Instant>,
    longest: Duration,
    failed: u64,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gap {
    /// The longest time in which no probe succeeded.
    pub(crate) longest: Duration,
    /// The number of probes that failed.
    pub(crate) failed: u64,
}

impl Probe {
    pub(super) fn start_gap(&self) {
        *self.lock() = Measurement { last: Some(Instant::now()), ..Measurement::default() };
    }

    pub(super) fn end_gap(&self) -> Gap {
        let mut measurement = self.lock();
        measurement.extend(Instant::now());
        Gap { longest: measurement.longest, failed: measurement.failed }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Measurement> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measurement {
    fn extend(&mut self, now: Instant) {
        if let Some(last) = self.last {
            self.longest = self.longest.max(now.duration_since(last));
        }
        self.last = Some(now);
    }
}

/// Sends probes until clients are stopped; a slow one does not delay the next.
pub(super) async fn run(shared: Arc<Shared>, probe: Arc<Probe>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for count in 0_u64.. {
        interval.tick().await;
        let Some(operation) = shared.next_operation().await else { return };
        drop(operation);
        let (shared, probe) = (Arc::clone(&shared), Arc::clone(&probe));
        tokio::spawn(async move {
            let Some(_operation) = shared.next_operation().await else { return };
            let path = format!("{}/issues/{}/notes", shared.projects.probed.api(), shared.projects.probed_issue);
            let client = shared.client().with_timeout(TIMEOUT);
            let sent = client.post(&path, &json!({ "body": format!("probe {count}") })).await;
            let note = sent.ok().filter(|response| response.status == 201).and_then(|made| made.json()["id"].as_i64());
            match note {
                Some(note) => {
                    shared.ledger.acknowledge_probe(note);
                    probe.lock().extend(Instant::now());
                }
                None => probe.lock().failed += 1,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_measured() {
        let start = Instant::now();
        let mut measurement = Measurement { last: Some(start), ..Measurement::default() };
        for millis in [100, 200, 900, 1000] {
            measurement.extend(start + Duration::from_millis(millis));
        }
        assert_eq!(measurement.longest, Duration::from_millis(700));
    }
}
