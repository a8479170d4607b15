//! Log lines on standard error, for people or for programs; `RUST_LOG` says which.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Writes log lines from here on. Without `RUST_LOG`, what an operator wants to know.
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        // It would complain to the very place that cannot be written to, and end the task that only wanted to log.
        .log_internal_errors(false)
        .with_writer(io::stderr);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
}
