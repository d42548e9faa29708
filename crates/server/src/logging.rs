//! The log of the server and of the runner.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result};
use tracing_subscriber::{EnvFilter, fmt};

use crate::{config::LogFormat, log_writer::LogWriter};

/// Starts logging to standard error.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<LogWriter> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("invalid log filter {filter}"))?;
    let writer = LogWriter::start();
    let builder = fmt().with_env_filter(filter).with_writer(writer.clone());
    match format {
        LogFormat::Human => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
    Ok(writer)
}
