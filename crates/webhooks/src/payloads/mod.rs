//! How it reads: the shapes of payloads.
//!
//! What cannot happen yet has its shape already: merge requests and pages of the wiki.

pub mod build;
mod issue;
pub mod merge_request;
pub mod note;
pub mod pipeline;
mod push;
mod shared;
pub mod system;
#[cfg(test)]
mod tests;
pub mod wiki_page;

use forge::announcements::PayloadRenderer;
use model::{Site, Time, WebhookEvent};

use self::{build::BuildPayload, note::NotePayload};

/// How moments are written in payloads about issues, comments and the like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeFormat {
    /// As the original: `2016-11-22 10:15:30 UTC`.
    #[default]
    Original,
    /// `2016-11-22T10:15:30Z`.
    Iso8601,
}

/// Puts into words what hooks are told.
pub struct Clerk {
    site: Site,
    times: TimeFormat,
}

impl Clerk {
    /// A clerk who writes links to this site.
    pub fn new(site: Site, times: TimeFormat) -> Self {
        Self { site, times }
    }

    /// A moment, as payloads of projects have it.
    fn moment(&self, time: Time) -> String {
        match self.times {
            TimeFormat::Original => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            TimeFormat::Iso8601 => shared::iso8601(time),
        }
    }
}

impl PayloadRenderer for Clerk {
    fn write(&self, happening: WebhookEvent<'_>) -> String {
        match happening {
            WebhookEvent::Push(pushed) => push::to_json(pushed, self),
            WebhookEvent::Issue(happening) => issue::to_json(happening, self),
            WebhookEvent::Note(happening) => NotePayload::from(happening).to_json(self),
            WebhookEvent::Build(happening) => BuildPayload::from(happening).to_json(self),
            WebhookEvent::Pipeline(happening) => pipeline::to_json(happening, self),
            WebhookEvent::System(happening) => system::to_json(happening),
            WebhookEvent::SystemTest => system::test_to_json(),
        }
    }
}
