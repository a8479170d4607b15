//! Logs: text for people, JSON for machines, filtered by `RUST_LOG`.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Installs the process's subscriber; a second call changes nothing.
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would complain to the very place that cannot be written to, and end the task that only wanted to log.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    // A test or an embedding program may have installed its own.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
