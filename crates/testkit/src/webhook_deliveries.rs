//! Inserts hooks and webhook events through `store`, and delivers them.

use std::sync::Arc;

use forge::deliveries::{self, AttemptReport, BatchResults, Capacity, ReleasedQueue};
use model::{
    EventKind, HookId, ProjectId, WebhookEventId,
    hooks::{DeliveryAttempt, SubscribedEvents},
};
use store::{hooks::HookRecord, webhook_events::NewHookEvent};
use tokio::{sync::watch, task::JoinHandle};
use webhooks::dispatcher::{self, DispatcherLimits, Transport};

use crate::{TestForge, clock::TestSecrets};

/// A dispatcher that runs in the background of a test.
pub struct RunningDispatcher {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningDispatcher {
    /// Stops the dispatcher gracefully.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        self.task.await.expect("the dispatcher does not panic");
    }

    /// Aborts the dispatcher, as a crash would.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl TestForge {
    /// Inserts a hook that receives all events; returns its id.
    pub fn insert_hook(&self, project: Option<ProjectId>, url: &str, token: Option<&str>) -> HookId {
        let secrets = TestSecrets::default();
        let encrypt = |text: &str| {
            self.resources.instance_key.encrypt(project.unwrap_or(ProjectId::new(0)), text.as_bytes(), &secrets)
        };
        let (encrypted_url, token, now) = (encrypt(url), token.map(encrypt), self.forge.now());
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or(rest);
        let record = HookRecord {
            url: &encrypted_url,
            token: token.as_deref(),
            receiver: authority.rsplit('@').next().unwrap_or(authority),
            verify_tls: true,
            events: SubscribedEvents {
                push: true,
                tag_push: true,
                issues: true,
                confidential_issues: true,
                merge_requests: true,
                note: true,
                build: true,
                pipeline: true,
                wiki_page: true,
            },
        };
        self.with_connection(|db| store::hooks::insert(db, project, &record, now).expect("a hook").id)
    }

    /// Inserts a webhook event without notifying the dispatcher; returns its id.
    pub fn insert_hook_event(&self, kind: EventKind, project: Option<ProjectId>, payload: &str) -> WebhookEventId {
        let now = self.forge.now();
        let event = NewHookEvent { kind, project, depth: 0, seed: payload, payload, waiting: true, now };
        self.with_connection(|db| store::webhook_events::insert(db, &event).expect("an event"))
    }

    /// Sends all due deliveries, one after the other; returns the attempts.
    pub async fn deliver_all(&self) -> Vec<DeliveryAttempt> {
        self.deliver_with(&webhooks::Client::new().expect("a client")).await
    }

    /// Like [`Self::deliver_all`], with another transport.
    pub async fn deliver_with(&self, transport: &impl Transport) -> Vec<DeliveryAttempt> {
        let mut results = BatchResults::default();
        let mut attempts = Vec::new();
        loop {
            let capacity = Capacity {
                queues: 1000,
                failing: 1000,
                bytes: usize::MAX,
                max_per_receiver: 1000,
                max_per_project: 1000,
                ..Capacity::none()
            };
            let batch = deliveries::next_batch(&self.forge, Arc::new(results), capacity).await.expect("a batch");
            if batch.queues.is_empty() && batch.next_due_at.is_none_or(|due_at| due_at > self.forge.now()) {
                return attempts;
            }
            results = BatchResults::default();
            for queue in batch.queues {
                for delivery in &queue.deliveries {
                    let started_at = self.forge.now();
                    let attempt = DeliveryAttempt { started_at, ..transport.send(&queue.target, delivery).await };
                    let continues = deliveries::continues_after(&attempt.outcome);
                    attempts.push(attempt.clone());
                    results.attempts.push(AttemptReport { hook: queue.hook, delivery: delivery.id, attempt });
                    if !continues {
                        break;
                    }
                }
                results.released.push(ReleasedQueue { hook: queue.hook, leased_until: queue.leased_until });
            }
        }
    }

    /// Starts the dispatcher in the background.
    pub fn start_dispatcher(&self, transport: impl Transport, limits: DispatcherLimits) -> RunningDispatcher {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(dispatcher::run(self.forge.clone(), transport, limits, stopped));
        RunningDispatcher { stop, task }
    }
}
