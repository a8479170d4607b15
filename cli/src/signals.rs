//! SIGINT and SIGTERM as a token.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// A token that is cancelled by the first SIGINT or SIGTERM; a second one ends the process as signals do.
pub(crate) fn stop() -> Result<CancellationToken, Failure> {
    let failed = |error| {
        Failure::new(
            format!("signals cannot be listened to: {error}"),
            "see the limits of this process",
        )
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        for second in [false, true] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if second {
                std::process::exit(130);
            }
            stop.cancel();
        }
    });
    Ok(token)
}
