//! Renders webhook events as JSON payloads.

pub mod build;
mod issue;
mod json;
mod note;
pub mod pipeline;
mod push;
pub mod system;
#[cfg(test)]
mod tests;

use forge::outbox::PayloadRenderer;
use model::{Site, Time, WebhookEvent};

use self::build::BuildPayload;

/// The format of times in payloads of project hooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeFormat {
    /// As GitLab 8.14: `2016-11-22 10:15:30 UTC`.
    #[default]
    Gitlab,
    /// `2016-11-22T10:15:30Z`.
    Iso8601,
}

/// Renders payloads as JSON.
pub struct JsonPayloadRenderer {
    site: Site,
    time_format: TimeFormat,
}

impl JsonPayloadRenderer {
    /// Creates a renderer whose links lead to a site.
    pub fn new(site: Site, time_format: TimeFormat) -> Self {
        Self { site, time_format }
    }

    /// Formats a time for the payload of a project hook.
    fn format_time(&self, time: Time) -> String {
        match self.time_format {
            TimeFormat::Gitlab => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            TimeFormat::Iso8601 => json::iso8601(time),
        }
    }
}

impl PayloadRenderer for JsonPayloadRenderer {
    fn render(&self, event: WebhookEvent<'_>) -> String {
        match event {
            WebhookEvent::Push(event) => push::to_json(event, self),
            WebhookEvent::Issue(event) => issue::to_json(event, self),
            WebhookEvent::Note(event) => note::to_json(event, self),
            WebhookEvent::Job(event) => BuildPayload::from(event).to_json(self),
            WebhookEvent::Pipeline(event) => pipeline::to_json(event, self),
            WebhookEvent::System(event) => system::to_json(event),
            WebhookEvent::SystemTest => system::test_to_json(),
        }
    }
}
