//! Opens the database file, or a new one in place of one that is damaged, which takes over what that had not delivered.
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
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::{error::StoreError, salvage, schema};

/// The credentials of Secrets are in the file.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// What follows the name of a file that was moved aside, and precedes when.
const DAMAGED: &str = ".damaged-";

/// What SQLite has beside a database, by the same name.
const JOURNALS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// How long the process before us may take to let go of the file.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 5_000 });

/// Opens the database at `path`; its directory is made where it is missing.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    match try_open(path) {
        Err(StoreError::Damaged(what)) => replace(path, &what),
        opened => opened,
    }
}

/// Moves a damaged database aside and opens a new one, with what can be read of the outbox.
pub(super) fn replace(path: &Path, what: &str) -> Result<Connection, StoreError> {
    let aside = move_aside(path)?;
    let mut connection = try_open(path)?;
    let (store, moved_to) = (path.display(), aside.display());
    match salvage::carry_over(&aside, &mut connection) {
        Ok(carried) => tracing::error!(
            %store, %moved_to, %what, carried,
            "the store is damaged: in the new one is what could be read of the reports that were not yet delivered, and the \
             manager sends what this node should have"
        ),
        Err(error) => tracing::error!(
            %store, %moved_to, %what, %error,
            "the store is damaged: the new one is empty, the manager sends what this node should have; reports that were \
             not yet delivered are only in the file that was moved aside"
        ),
    }
    Ok(connection)
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
    name(&connection)?;
    Ok(connection)
}

fn check(connection: &Connection) -> Result<(), StoreError> {
    // The file can be written, or it would not have been opened; so it is its head that says otherwise, which SQLite believes.
    if connection.is_readonly("main")? {
        return Err(StoreError::damaged("its head says that it is not to be written"));
    }
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(StoreError::damaged(verdict))
    }
}

/// The name of the store: a file that is made anew has another, a copy the same.
pub(super) fn name(connection: &Connection) -> Result<String, StoreError> {
    let name = connection
        .query_row("SELECT store FROM name", [], |row| row.get(0))
        .optional()?;
    name.filter(|name: &String| name.len() == 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .ok_or_else(|| StoreError::damaged("the store has lost its name"))
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
    let is_database = |name: &str| name.starts_with(&begins) && !JOURNALS.iter().any(|journal| name.ends_with(journal));
    let aside = files.filter(|file| is_database(&file.file_name().to_string_lossy()));
    aside.map(|file| file.path()).collect()
}

/// Moves the database and its journal to names that say what they are; the new name of the database.
fn move_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let stamp = Timestamp::now().as_millisecond();
    let target = PathBuf::from(format!("{}{DAMAGED}{stamp}", path.display()));
    // The journal first: left beside a new database, it would be taken for that one's.
    for journal in JOURNALS {
        let of = |file: &Path| PathBuf::from(format!("{}{journal}", file.display()));
        match fs::rename(of(path), of(&target)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(StoreError::file(of(path))(error)),
            _ => {}
        }
    }
    fs::rename(path, &target).map_err(StoreError::file(path))?;
    Ok(target)
}
