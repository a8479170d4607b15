//! The tables, and how those of an older release become those of this one.
//!
//! `user_version` counts the steps that were taken. A step is never edited once it was released; a new one is added.

use std::path::Path;

use rusqlite::Connection;

use super::error::StoreError;

/// "Skry": tells our database from another program's.
pub(super) const APPLICATION_ID: i64 = 0x536b_7279;

/// Each step leads from the version of its index to the next.
pub(super) const STEPS: &[&str] = &[
    // 1. `secret` is empty for an object, `hash` is that of the body, `outbox.class` says what is given up first (see
    // `outbox.rs`), `outbox.uid` is null while the node does not hold the object that the report is about, and
    // `outbox_last` is the last number that was given to a report.
    "
    CREATE TABLE items (
        kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, secret TEXT NOT NULL,
        uid TEXT NOT NULL, generation INTEGER NOT NULL, hash BLOB NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (kind, namespace, name, secret)
    ) STRICT;
    CREATE TABLE position (one INTEGER PRIMARY KEY CHECK (one = 1), body TEXT NOT NULL) STRICT;
    CREATE TABLE outbox (
        seq INTEGER PRIMARY KEY,
        class INTEGER NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        uid TEXT, replaces TEXT, observed_at TEXT NOT NULL, payload TEXT NOT NULL, bytes INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE outbox_last (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL) STRICT;
    INSERT INTO outbox_last VALUES (1, 0);
    CREATE UNIQUE INDEX outbox_replaces ON outbox (replaces) WHERE replaces IS NOT NULL;
    CREATE INDEX outbox_class ON outbox (class, seq);
    CREATE INDEX outbox_homeless ON outbox (kind, namespace, name) WHERE uid IS NULL;
    CREATE TABLE datasets (
        namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, url TEXT NOT NULL, format TEXT NOT NULL,
        fingerprint TEXT, told TEXT NOT NULL,
        PRIMARY KEY (namespace, name)
    ) STRICT;
    ",
    // 2. `age` is for how long the store was open so far, and `outbox.born` how old it was when a report was made.
    "
    CREATE TABLE age (one INTEGER PRIMARY KEY CHECK (one = 1), seconds INTEGER NOT NULL) STRICT;
    INSERT INTO age VALUES (1, 0);
    ALTER TABLE outbox ADD COLUMN born INTEGER NOT NULL DEFAULT 0;
    ",
    // 3. `outbox.boot` is the start that made a report, `outbox.number` the number that it had then, and `datasets.boot` the
    // start that told of a Dataset last; null for those of releases that did not say.
    "
    ALTER TABLE outbox ADD COLUMN boot TEXT;
    ALTER TABLE outbox ADD COLUMN number INTEGER;
    ALTER TABLE datasets ADD COLUMN boot TEXT;
    ",
    // 4. What goes first of a resource that holds too much (see `room.rs`).
    "
    CREATE INDEX outbox_share ON outbox (coalesce(uid, ''), class);
    ",
    // 5. The name of the store, which its copies share.
    "
    CREATE TABLE name (one INTEGER PRIMARY KEY CHECK (one = 1), store TEXT NOT NULL) STRICT;
    INSERT INTO name VALUES (1, lower(hex(randomblob(4))));
    ",
    // 6. The mark of the file beside the store, and the one that it gets next (see `mark.rs`). None of a store that is new
    // here; of one that is not, no file has the mark.
    "
    CREATE TABLE mark (one INTEGER PRIMARY KEY CHECK (one = 1), known TEXT, next TEXT) STRICT;
    INSERT INTO mark
        SELECT 1, iif(EXISTS (SELECT 1 FROM position) OR (SELECT seq FROM outbox_last) > 0, '', NULL), NULL;
    ",
];

/// The steps that are missing, where the tables are ours to change. Reads of one that is ours no more than the head of the
/// file: what stands in the schema of a newer release, our SQLite may not even understand, and would call damaged.
pub(super) fn missing<'a>(
    connection: &Connection,
    path: &Path,
    steps: &'a [&'a str],
) -> Result<&'a [&'a str], StoreError> {
    let read = |name: &str| -> Result<i64, rusqlite::Error> {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
    };
    let application = read("application_id")?;
    if application != APPLICATION_ID {
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if application != 0 || tables != 0 {
            return Err(StoreError::Foreign { path: path.to_owned() });
        }
    }
    let found = read("user_version")?;
    let missing = usize::try_from(found).ok().and_then(|taken| steps.get(taken..));
    missing.ok_or_else(|| StoreError::Newer {
        path: path.to_owned(),
        found,
        known: version_of(steps),
    })
}

fn version_of(steps: &[&str]) -> i64 {
    i64::try_from(steps.len()).unwrap_or(i64::MAX)
}

/// Takes the steps that are missing, all or none of them.
pub(super) fn migrate(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), StoreError> {
    let transaction = connection.transaction()?;
    let missing = missing(&transaction, path, steps)?;
    if missing.is_empty() {
        return Ok(());
    }
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", version_of(steps))?;
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(connection: &Connection) -> i64 {
        connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn an_older_schema_is_brought_up_to_date_and_keeps_its_rows() {
        let mut connection = Connection::open_in_memory().unwrap();
        let path = Path::new("store");
        migrate(&mut connection, path, &["CREATE TABLE a (x INTEGER)"]).unwrap();
        connection.execute("INSERT INTO a VALUES (7)", []).unwrap();
        let steps = [
            "CREATE TABLE a (x INTEGER)",
            "ALTER TABLE a ADD COLUMN y INTEGER DEFAULT 3",
        ];
        migrate(&mut connection, path, &steps).unwrap();
        assert_eq!(version(&connection), 2);
        let row = connection.query_row("SELECT x, y FROM a", [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(row, Ok((7, 3)));
        migrate(&mut connection, path, &steps).unwrap();
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x INTEGER)", "CREATE TABLE nonsense"];
        assert!(migrate(&mut connection, Path::new("store"), &steps).is_err());
        assert_eq!(version(&connection), 0);
        migrate(&mut connection, Path::new("store"), &steps[..1]).unwrap();
    }

    #[test]
    fn a_newer_schema_is_refused_with_a_sentence() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection, Path::new("store"), STEPS).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let error = migrate(&mut connection, Path::new("/x/store.db"), STEPS)
            .unwrap_err()
            .to_string();
        assert!(error.contains("/x/store.db") && error.contains("99"), "{error}");
    }

    #[test]
    fn another_programs_database_is_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE resources (id INTEGER)").unwrap();
        let error = migrate(&mut connection, Path::new("store"), STEPS).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    }
}
