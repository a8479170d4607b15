//! Opens the database file, or an empty one in place of one that is damaged.
//!
//! Decides what may be moved aside: only what SQLite calls damaged. A file of a newer release, of another program, or
//! one that cannot be read just now stays where it is.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::{error::StoreError, schema};

/// The credentials of Secrets are in the file.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// What follows the name of a file that was moved aside, and precedes when.
const DAMAGED: &str = ".damaged-";

/// How long the process before us may take to let go of the file.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 5_000 });

/// Opens the database at `path`; its directory is made where it is missing.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    match try_open(path) {
        Err(StoreError::Damaged(what)) => {
            let aside = move_aside(path)?;
            tracing::error!(
                store = %path.display(), moved_to = %aside.display(), %what,
                "the store is damaged: starting with an empty one, the manager sends what this node should have; \
                 reports that were not yet delivered are only in the file that was moved aside"
            );
            try_open(path)
        }
        opened => opened,
    }
}

fn try_open(path: &Path) -> Result<Connection, StoreError> {
    make_private(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    // Exclusive: one process alone, and no shared memory file.
    connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
    // Before anything is written, as the mode of the journal is, and before anything counts as damage.
    schema::missing(&connection, path, schema::STEPS)?;
    // Full: a commit is on the disk when it returns. The caches are small because a node has little memory and the store
    // little to look up. What SQLite would put into temporary files (of each call in a transaction what it changed, from 64 KiB
    // on) stays in memory: a container that may write nothing but the store has no place for them.
    connection.execute_batch(
        "PRAGMA temp_store = MEMORY;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA journal_size_limit = 4194304;
         PRAGMA cache_size = -512;
         PRAGMA foreign_keys = OFF;",
    )?;
    connection.set_prepared_statement_cache_capacity(32);
    check(&connection)?;
    schema::migrate(&mut connection, path, schema::STEPS)?;
    Ok(connection)
}

fn check(connection: &Connection) -> Result<(), StoreError> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(StoreError::damaged(verdict))
    }
}

/// Makes the directory and the file, both for us alone. SQLite gives its other files the mode of the first.
fn make_private(path: &Path) -> Result<(), StoreError> {
    if let Some(directory) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)
            .map_err(StoreError::file(directory))?;
    }
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(FILE_MODE)
        .open(path)
        .map_err(StoreError::file(path))?;
    let mode = file.metadata().map_err(StoreError::file(path))?.permissions().mode();
    if mode & 0o777 != FILE_MODE {
        file.set_permissions(Permissions::from_mode(FILE_MODE))
            .map_err(StoreError::file(path))?;
    }
    Ok(())
}

/// The databases that were moved aside, from here and before.
pub(super) fn moved_aside(path: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let begins = format!("{}{DAMAGED}", name.to_string_lossy());
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let aside = files.filter(|file| file.file_name().to_string_lossy().starts_with(&begins));
    aside.map(|file| file.path()).collect()
}

/// Moves the database and its journal to names that say what they are; the new name of the database.
pub(super) fn move_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let stamp = Timestamp::now().as_millisecond();
    let aside = |file: &Path| PathBuf::from(format!("{}{DAMAGED}{stamp}", file.display()));
    // The journal first: left beside a new database, it would be taken for that one's.
    for suffix in ["-wal", "-shm", "-journal"] {
        let file = PathBuf::from(format!("{}{suffix}", path.display()));
        match fs::rename(&file, aside(&file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(StoreError::file(file)(error)),
            _ => {}
        }
    }
    let target = aside(path);
    fs::rename(path, &target).map_err(StoreError::file(path))?;
    Ok(target)
}
