//! What can go wrong with the store, sorted by what is to be done about it.

use std::{io, path::PathBuf, sync::Arc};

use rusqlite::ErrorCode;
use thiserror::Error;

/// Why the store could not do what it was asked. Cloning is cheap: one failed commit fails all who waited for it.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// Nothing was written; what was there is still there.
    #[error("the disk of the store is full: free some space on it, nothing that was accepted is lost")]
    DiskFull,
    /// What is there cannot be trusted. The file is moved aside, and the next start begins with what could be read of the outbox.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// Somebody else has it open.
    #[error("the store is in use by another process: only one local controller may run on a node")]
    InUse,
    /// The store was written by a newer release, whose meaning we cannot know.
    #[error(
        "{} has schema version {found}, this release knows up to {known}: run the newer release, or move the file away",
        .path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// Its `user_version`.
        found: i64,
        /// The newest that we know.
        known: i64,
    },
    /// A database, but of another program.
    #[error("{} is a database of another program: move it away", .path.display())]
    Foreign {
        /// The database file.
        path: PathBuf,
    },
    /// A file of the store cannot be made, opened or moved.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: Arc<io::Error>,
    },
    /// What was to be stored cannot be written as JSON.
    #[error("cannot be written as JSON: {0}")]
    Encode(Arc<serde_json::Error>),
    /// Anything else that SQLite says.
    #[error("the store failed: {0}")]
    Sqlite(Arc<rusqlite::Error>),
    /// The local controller is stopping.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::File {
                path,
                error: Arc::new(error),
            },
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
    pub(super) fn damaged<E: ToString>(what: E) -> Self {
        Self::Damaged(what.to_string())
    }

    pub(super) fn encode(error: serde_json::Error) -> Self {
        Self::Encode(Arc::new(error))
    }

    /// Whether all that is asked later fails, too.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Closed | Self::Damaged(_))
    }

    /// Whether a later write would fail, too, for all that is known.
    pub(super) fn is_of_the_disk(&self) -> bool {
        matches!(self, Self::DiskFull | Self::File { .. } | Self::Sqlite(_))
    }

    /// A word for metrics and logs.
    pub fn category(&self) -> &'static str {
        match self {
            Self::DiskFull => "disk-full",
            Self::Damaged(_) => "damaged",
            Self::InUse => "in-use",
            Self::Newer { .. } => "newer",
            Self::Foreign { .. } => "foreign",
            Self::File { .. } => "file",
            Self::Encode(_) => "encode",
            Self::Sqlite(_) => "sqlite",
            Self::Closed => "closed",
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        // A value that was never written so, and tables that do not take our own SQL: SQLite finds nothing wrong with either.
        if let E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::InvalidColumnType(..)
        | E::Utf8Error(..)
        | E::SqlInputError { .. } = error
        {
            return Self::damaged(error);
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            // Unknown is SQLITE_ERROR: such tables, too, where it does not say at which place of our SQL.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => Self::damaged(error),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse,
            _ => Self::Sqlite(Arc::new(error)),
        }
    }
}
