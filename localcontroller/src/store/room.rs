//! What the outbox gives up where it is full.
//!
//! Decides: figures first, the oldest of them, whoever's they are. Then what is said of the resource that holds most of what
//! there is too much of, its rounds before its events, the oldest first: one worker that runs wild has nobody's rounds and
//! events go but those of its own resource. What waits for resources that the node has not heard of has one share among
//! all, since such names can be invented; within it, it is the same by name.

use rusqlite::params;

use super::{
    error::StoreError,
    outbox::{Class, note_gap, remove},
    writer::Database,
};

/// What each resource holds of rounds and events, by its uid; `''` for all that the node has not heard of. It is in memory,
/// made anew by each start, and is right whatever is undone, since it is undone with it.
const SHARES: &str = "
    CREATE TEMP TABLE shares (uid TEXT PRIMARY KEY, reports INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE INDEX temp.shares_reports ON shares (reports);
    CREATE INDEX temp.shares_bytes ON shares (bytes);
    INSERT INTO shares
        SELECT coalesce(uid, ''), count(*), sum(bytes) FROM outbox WHERE class IN (1, 2) GROUP BY coalesce(uid, '');
    CREATE TEMP TRIGGER share_grows AFTER INSERT ON outbox WHEN new.class IN (1, 2) BEGIN
        INSERT INTO shares VALUES (coalesce(new.uid, ''), 1, new.bytes)
            ON CONFLICT DO UPDATE SET reports = reports + 1, bytes = bytes + excluded.bytes;
    END;
    CREATE TEMP TRIGGER share_shrinks AFTER DELETE ON outbox WHEN old.class IN (1, 2) BEGIN
        UPDATE shares SET reports = reports - 1, bytes = bytes - old.bytes WHERE uid = coalesce(old.uid, '');
        DELETE FROM shares WHERE uid = coalesce(old.uid, '') AND reports = 0;
    END;
    CREATE TEMP TRIGGER share_moves AFTER UPDATE OF uid ON outbox WHEN new.class IN (1, 2) BEGIN
        UPDATE shares SET reports = reports - 1, bytes = bytes - old.bytes WHERE uid = coalesce(old.uid, '');
        DELETE FROM shares WHERE uid = coalesce(old.uid, '') AND reports = 0;
        INSERT INTO shares VALUES (coalesce(new.uid, ''), 1, new.bytes)
            ON CONFLICT DO UPDATE SET reports = reports + 1, bytes = bytes + excluded.bytes;
    END;
";

/// What there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Reports,
    Bytes,
}

impl Excess {
    fn of(database: &Database) -> Option<Self> {
        let (limits, totals) = (database.limits, database.state.outbox);
        if totals.bytes > limits.bytes {
            return Some(Self::Bytes);
        }
        (totals.count > limits.count).then_some(Self::Reports)
    }
}

/// Begins to keep what each resource holds.
pub(super) fn share_out(database: &Database) -> Result<(), StoreError> {
    Ok(database.connection.execute_batch(SHARES)?)
}

/// Gives up what there is no room for.
pub(super) fn make_room(database: &mut Database) -> Result<(), StoreError> {
    let mut given_up = 0;
    while let Some(excess) = Excess::of(database)
        && let Some(seq) = first(database, excess)?
    {
        remove(database, seq)?;
        given_up += 1;
    }
    note_gap(database, given_up)
}

/// The same among what waits for resources that the node has not heard of.
pub(super) fn make_room_for_homeless(database: &mut Database) -> Result<(), StoreError> {
    let mut given_up = 0;
    while homeless(database)? > database.limits.homeless
        && let Some(seq) = first_homeless(database, Excess::Reports)?
    {
        remove(database, seq)?;
        given_up += 1;
    }
    note_gap(database, given_up)
}

/// What goes first.
fn first(database: &Database, excess: Excess) -> Result<Option<u64>, StoreError> {
    let figure = database.first(
        "SELECT seq FROM outbox WHERE class = ?1 ORDER BY seq LIMIT 1",
        [Class::Metrics as u8],
        |row| row.get(0),
    )?;
    if figure.is_some() {
        return Ok(figure);
    }
    let most = match excess {
        Excess::Reports => "SELECT uid FROM shares ORDER BY reports DESC LIMIT 1",
        Excess::Bytes => "SELECT uid FROM shares ORDER BY bytes DESC LIMIT 1",
    };
    let Some(uid) = database.first(most, [], |row| row.get::<_, String>(0))? else {
        return Ok(None);
    };
    if uid.is_empty() {
        return first_homeless(database, excess);
    }
    database.first(
        "SELECT seq FROM outbox WHERE coalesce(uid, '') = ?1 AND class BETWEEN ?2 AND ?3 ORDER BY class, seq LIMIT 1",
        params![uid, Class::Round as u8, Class::Event as u8],
        |row| row.get(0),
    )
}

fn homeless(database: &Database) -> Result<u64, StoreError> {
    let count = database.first(
        "SELECT count(*) FROM outbox WHERE coalesce(uid, '') = '' AND class < ?1",
        [Class::Dataset as u8],
        |row| row.get(0),
    )?;
    Ok(count.unwrap_or_default())
}

/// What goes first of what waits for its resource. There are few of these.
fn first_homeless(database: &Database, excess: Excess) -> Result<Option<u64>, StoreError> {
    database.first(
        "SELECT seq FROM outbox WHERE coalesce(uid, '') = '' AND class < ?1
         ORDER BY class > ?2,
             iif(class > ?2, sum(iif(?3, bytes, 1)) OVER (PARTITION BY kind, namespace, name), 0) DESC,
             class, seq LIMIT 1",
        params![Class::Dataset as u8, Class::Metrics as u8, excess == Excess::Bytes],
        |row| row.get(0),
    )
}
