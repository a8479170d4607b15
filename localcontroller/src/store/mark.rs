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
    /// How old the store was when the mark was made, in seconds.
    made: u64,
}

impl Mark {
    /// Compares the mark of the store at `path` with that of the file beside it; with whether they differ.
    pub(super) fn open(connection: &Connection, path: &Path) -> Result<(Self, bool), StoreError> {
        let file = PathBuf::from(format!("{}{SUFFIX}", path.display()));
        let [known, next] = marks(connection)?;
        let differs = match (read(&file), known) {
            (Some(found), Some(known)) => found != known && Some(found) != next,
            // A store that is new here, or a file that is gone.
            (_, None) | (None, _) => false,
        };
        Ok((Self { file, made: 0 }, differs))
    }

    /// Makes the mark of a store that is so old anew, where that is due. Where it cannot be written, the one before stays.
    pub(super) fn keep(&mut self, connection: &Connection, age: u64) {
        if age.saturating_sub(self.made) >= RENEWED.as_secs() {
            self.renew(connection, age);
        }
    }

    /// Makes the mark of a store that is so old anew, as [`Mark::keep`] does.
    pub(super) fn renew(&mut self, connection: &Connection, age: u64) {
        self.made = age;
        if let Err(error) = self.write(connection) {
            let file = self.file.display();
            tracing::warn!(%file, %error, "the mark that tells this store from an old one cannot be made anew");
        }
    }

    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        let next = Uuid::new_v4().to_string();
        let found = read(&self.file).unwrap_or_default();
        connection.execute("UPDATE mark SET known = ?1, next = ?2", [&found, &next])?;
        durable::replace(&self.file, next.as_bytes()).map_err(StoreError::file(&self.file))
    }
}

/// That of the file, and its next.
fn marks(connection: &Connection) -> Result<[Option<String>; 2], StoreError> {
    let marks = connection.query_row("SELECT known, next FROM mark", [], |row| Ok([row.get(0)?, row.get(1)?]));
    marks.map_err(|error| match error {
        rusqlite::Error::QueryReturnedNoRows => StoreError::damaged("the store has lost its mark"),
        error => error.into(),
    })
}

fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file)
        .inspect_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                let file = file.display();
                tracing::warn!(%file, %error, "the mark that tells this store from an old one cannot be read");
            }
        })
        .ok()
}
