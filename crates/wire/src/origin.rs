//! Which transfer a line in the log is about.

use std::{fmt::Display, net::IpAddr};

use forge::transport::Hosted;
use tracing::{debug, error, warn};

/// Where a transfer comes from and what it is about, as far as that is known. Texts of clients are quoted and escaped in the
/// log.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    transport: &'static str,
    address: IpAddr,
    /// The path of the project, as the client wrote it until it was found.
    path: String,
    project: Option<i64>,
    by: Option<String>,
}

impl Origin {
    /// A transfer that has just been asked for.
    pub(crate) fn new(transport: &'static str, address: IpAddr, path: &str) -> Self {
        Self { transport, address: address.to_canonical(), path: path.to_owned(), project: None, by: None }
    }

    /// The same, now that the project and the client are known.
    pub(crate) fn of(mut self, hosted: &Hosted) -> Self {
        self.path = hosted.full_path().to_owned();
        self.project = Some(hosted.project_id());
        self.by = Some(hosted.opened_by().to_owned());
        self
    }

    /// Something went wrong that the operator may have to look after.
    pub(crate) fn warn(&self, what: &str, cause: impl Display) {
        let Self { transport, address, path, project, by } = self;
        let (path, by, cause) = (path.as_str(), by.as_deref(), cause.to_string());
        warn!(project.id = *project, project.path = path, by, transport, %address, cause, "{what}");
    }

    /// Something is wrong with the server.
    pub(crate) fn error(&self, what: &str, cause: impl Display) {
        let Self { transport, address, path, project, by } = self;
        let (path, by, cause) = (path.as_str(), by.as_deref(), cause.to_string());
        error!(project.id = *project, project.path = path, by, transport, %address, cause, "{what}");
    }

    /// Something went wrong for which the client is to blame.
    pub(crate) fn debug(&self, what: &str, cause: impl Display) {
        let Self { transport, address, path, project, by } = self;
        let (path, by, cause) = (path.as_str(), by.as_deref(), cause.to_string());
        debug!(project.id = *project, project.path = path, by, transport, %address, cause, "{what}");
    }
}
