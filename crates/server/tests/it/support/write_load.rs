//! Concurrent writes, and what the server acknowledges of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::json;

use super::{HttpClient, ServerProcess, WAIT_TIMEOUT};

/// The number of clients that write concurrently.
const WRITERS: usize = 4;

/// Several clients that add email addresses as fast as possible and record the acknowledged ones.
pub(crate) struct WriteLoad {
    stopped: Arc<AtomicBool>,
    acknowledgement: Acknowledgement,
    writers: Vec<JoinHandle<Vec<String>>>,
}

/// Whether a write was acknowledged; shared between threads.
#[derive(Clone, Default)]
pub(crate) struct Acknowledgement(Arc<AtomicBool>);

impl Acknowledgement {
    /// Records that a write was acknowledged.
    pub(crate) fn record(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Forgets the acknowledgements so far.
    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Waits until a write is acknowledged.
    pub(crate) fn wait(&self) {
        let start = Instant::now();
        while !self.0.load(Ordering::SeqCst) {
            assert!(start.elapsed() < WAIT_TIMEOUT, "no write is acknowledged");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl WriteLoad {
    /// Starts the clients; the name distinguishes the addresses of several loads.
    pub(crate) fn start(server: &ServerProcess, name: &str) -> Self {
        let (stopped, acknowledgement) = (Arc::default(), Acknowledgement::default());
        let writers = (0..WRITERS).map(|number| {
            let (root, stopped, acknowledgement) = (server.root(), Arc::clone(&stopped), acknowledgement.clone());
            let name = format!("{name}-{number}");
            thread::spawn(move || Self::write(&root, &stopped, &acknowledgement, &name))
        });
        Self { writers: writers.collect(), stopped, acknowledgement }
    }

    /// Returns whether a write was acknowledged.
    pub(crate) fn acknowledgement(&self) -> &Acknowledgement {
        &self.acknowledgement
    }

    /// Stops the clients and returns the acknowledged addresses.
    pub(crate) fn stop(self) -> Vec<String> {
        self.stopped.store(true, Ordering::SeqCst);
        self.writers.into_iter().flat_map(|writer| writer.join().expect("every status is 201")).collect()
    }

    /// Adds addresses until the load is stopped or the server is gone.
    fn write(root: &HttpClient, stopped: &AtomicBool, acknowledgement: &Acknowledgement, name: &str) -> Vec<String> {
        let mut acknowledged = Vec::new();
        for number in 0.. {
            let address = format!("{name}-{number}@example.org");
            match root.try_post("/api/v3/user/emails", &json!({ "email": address })) {
                Ok(response) => assert_eq!(response.status, 201, "{address}: {response}"),
                // The server was killed.
                Err(_) => break,
            }
            acknowledged.push(address);
            acknowledgement.record();
            if stopped.load(Ordering::SeqCst) {
                break;
            }
        }
        acknowledged
    }
}
