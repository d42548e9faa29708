//! Log events with the fields of the transfer they are about.

use std::{fmt::Display, net::IpAddr};

use forge::transport::OpenRepository;
use model::ProjectId;
use tracing::{debug, error, warn};

/// The log fields of a transfer, as far as they are known. Text sent by clients is quoted and escaped in the log.
#[derive(Clone, Debug)]
pub(crate) struct LogContext {
    transport: &'static str,
    address: IpAddr,
    /// The path of the project; as sent by the client until the project is found.
    path: String,
    project: Option<ProjectId>,
    by: Option<String>,
}

impl LogContext {
    /// Creates the context of a new request.
    pub(crate) fn new(transport: &'static str, address: IpAddr, path: &str) -> Self {
        Self { transport, address: address.to_canonical(), path: path.to_owned(), project: None, by: None }
    }

    /// Adds the project and the user once they are known.
    pub(crate) fn with_repository(mut self, repository: &OpenRepository) -> Self {
        self.path = repository.full_path().to_owned();
        self.project = Some(repository.project_id());
        self.by = Some(repository.opened_by().to_owned());
        self
    }

    /// Logs a problem that may need the attention of the operator.
    pub(crate) fn warn(&self, what: &str, cause: impl Display) {
        let Self { transport, address, path, project, by } = self;
        let (path, by, cause) = (path.as_str(), by.as_deref(), cause.to_string());
        warn!(project.id = project.map(ProjectId::get), project.path = path, by, transport, %address, cause, "{what}");
    }

    /// Logs an error of the server.
    pub(crate) fn error(&self, what: &str, cause: impl Display) {
        let Self { transport, address, path, project, by } = self;
        let (path, by, cause) = (path.as_str(), by.as_deref(), cause.to_string());
        error!(project.id = project.map(ProjectId::get), project.path = path, by, transport, %address, cause, "{what}");
    }

    /// Logs an error caused by the client.
    pub(crate) fn debug(&self, what: &str, cause: impl Display) {
        let Self { transport, address, path, project, by } = self;
        let (path, by, cause) = (path.as_str(), by.as_deref(), cause.to_string());
        debug!(project.id = project.map(ProjectId::get), project.path = path, by, transport, %address, cause, "{what}");
    }
}
