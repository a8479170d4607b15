//! Whether the store is the one that was last here: a mark that is in it and in a file beside it, made anew now and then. The
//! file has another where somebody has put an old store in the place of the last one.
//!
//! The store knows two marks, that of the file and the one that the file gets next, and knows them before the file does: a
//! crash between any two steps leaves one of them there.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::Connection;
use uuid::Uuid;

use super::error::StoreError;
use crate::durable;

/// What follows the name of the store in that of the file.
const SUFFIX: &str = ".mark";

/// How often a mark is made anew: a copy that is younger, and of the start that ended last without being told to, passes for
/// the store itself.
const RENEWED: Duration = Duration::from_secs(3600);

/// The mark of a store that is open.
pub(super) struct Mark {
    file: PathBuf,
    /// How old the store was when the mark was made, in seconds; none where it is still to be made.
    made: Option<u64>,
    /// Whether it differs from that of the file, and nobody was told yet: it stays as it is until then.
    is_untold: bool,
}

impl Mark {
    /// Compares the mark of the store at `path` with that of the file beside it; with whether they differ.
    pub(super) fn open(connection: &Connection, path: &Path) -> (Self, bool) {
        let file = PathBuf::from(format!("{}{SUFFIX}", path.display()));
        let found = read(&file).unwrap_or_else(|error| {
            let file = file.display();
            tracing::warn!(%file, %error, "the mark that tells this store from an old one cannot be read");
            None
        });
        let differs = match (found, marks(connection)) {
            (Some(found), (Some(known), next)) => found != known && Some(found) != next,
            // A store that is new here, or a file that is gone.
            (_, (None, _)) | (None, _) => false,
        };
        let mark = Self {
            file,
            made: None,
            is_untold: differs,
        };
        (mark, differs)
    }

    /// It was told that the marks differ.
    pub(super) fn told(&mut self) {
        self.is_untold = false;
    }

    /// Makes the mark of a store that is so old anew, where that is due. Where it cannot be written, the one before stays.
    pub(super) fn keep(&mut self, connection: &Connection, age: u64) {
        if self
            .made
            .is_none_or(|made| age.saturating_sub(made) >= RENEWED.as_secs())
        {
            self.renew(connection, age);
        }
    }

    /// Makes the mark of a store that is so old anew, as [`Mark::keep`] does.
    pub(super) fn renew(&mut self, connection: &Connection, age: u64) {
        if self.is_untold {
            return;
        }
        self.made = Some(age);
        if let Err(error) = self.write(connection) {
            let file = self.file.display();
            tracing::warn!(%file, %error, "the mark that tells this store from an old one cannot be made anew");
        }
    }

    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        let failed = || StoreError::file(&self.file);
        // What the file has must not be undone by a power failure once the store knows it.
        durable::settle(&self.file).map_err(failed())?;
        let found = read(&self.file).map_err(failed())?.unwrap_or_default();
        let next = Uuid::new_v4().to_string();
        connection.execute("INSERT OR REPLACE INTO mark VALUES (1, ?1, ?2)", [&found, &next])?;
        durable::replace(&self.file, next.as_bytes()).map_err(failed())
    }
}

/// That of the file, and its next. None where that is damaged: the store is none the worse for it.
fn marks(connection: &Connection) -> (Option<String>, Option<String>) {
    connection
        .query_row("SELECT known, next FROM mark", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap_or_default()
}

/// The mark in the file; none where there is no file, or something else in it.
fn read(file: &Path) -> io::Result<Option<String>> {
    match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => {
            let mark = Uuid::try_parse_ascii(&read?).ok();
            Ok(mark.map(|mark| mark.to_string()))
        }
    }
}
