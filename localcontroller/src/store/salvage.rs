//! What is carried over from a damaged store to the one that takes its place: what it had not delivered.
//!
//! Decides what of that can be trusted: each row of the outbox that reads as one which is sent. The items are not carried
//! over, since the manager sends them anew, nor is what was found of Datasets, which each start tells. Rows get new numbers,
//! in the same order, and begin a new age: a number or a time may be damaged, too, and look sound. By which start a report was made, and
//! as which, is kept where that can be, so that the manager knows it again.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row, params};
use skerry_edge::node::Outgoing;

use super::{
    error::StoreError,
    outbox::{Class, outgoing, size},
};

/// Carries over what can be read of the database at `damaged`; how many reports and gaps there were.
pub(super) fn carry_over(damaged: &Path, to: &mut Connection) -> Result<u64, StoreError> {
    let from = Connection::open_with_flags(
        damaged,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    from.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
    let to = to.transaction()?;
    // To where a page cannot be read, and what is behind that.
    if let Some(next) = carry(&from, &to, i64::MIN)? {
        let behind = first_behind(&from)?;
        carry(&from, &to, behind.max(next))?;
    }
    to.execute(
        "UPDATE outbox_last SET seq = (SELECT coalesce(max(seq), 0) FROM outbox)",
        [],
    )?;
    let carried = to.query_row("SELECT count(*) FROM outbox", [], |row| row.get(0))?;
    to.commit()?;
    Ok(carried)
}

/// Carries over what has this number or a higher one; the next number, where it cannot be read on.
fn carry(from: &Connection, to: &Connection, first: i64) -> Result<Option<i64>, StoreError> {
    let mut read = from.prepare("SELECT * FROM outbox WHERE seq >= ?1 ORDER BY seq")?;
    let (mut rows, mut next) = (read.query([first])?, first);
    loop {
        match rows.next() {
            Ok(Some(row)) => {
                next = row.get::<_, i64>("seq")?.saturating_add(1);
                if let Ok(report) = outgoing(row) {
                    insert(to, row, &report)?;
                }
            }
            Ok(None) => return Ok(None),
            Err(_) => return Ok(Some(next)),
        }
    }
}

/// The lowest number from which on all can be read.
fn first_behind(from: &Connection) -> Result<i64, StoreError> {
    let mut read = from.prepare("SELECT seq, payload FROM outbox ORDER BY seq DESC")?;
    let (mut rows, mut first) = (read.query([])?, i64::MAX);
    while let Ok(Some(row)) = rows.next() {
        first = row.get(0)?;
    }
    Ok(first)
}

/// What `row` holds, made anew from what is sent of it. One that says to replace another that is there is left out.
fn insert(to: &Connection, row: &Row<'_>, outgoing: &Outgoing) -> Result<(), StoreError> {
    let mut insert = to.prepare_cached(
        "INSERT OR IGNORE INTO outbox
         (class, kind, namespace, name, uid, replaces, observed_at, payload, bytes, boot, number)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    match outgoing {
        Outgoing::Gap { count, .. } => {
            let none = None::<String>;
            let class = Class::Gap as u8;
            insert.execute(params![
                class,
                "",
                "",
                "",
                none,
                none,
                "",
                count.to_string(),
                0,
                none,
                none
            ])?;
        }
        Outgoing::Report(report) => {
            let (key, text) = (
                &report.key,
                serde_json::to_string(&report.payload).map_err(StoreError::encode)?,
            );
            // It was given the number when it was made, and no lower one since.
            let id = report.id.as_ref().filter(|id| id.number <= report.seq);
            insert.execute(params![
                Class::of(&report.payload) as u8,
                key.kind,
                key.namespace,
                key.name,
                Some(&report.uid).filter(|uid| !uid.is_empty()),
                row.get::<_, Option<String>>("replaces").unwrap_or_default(),
                report.observed_at.to_string(),
                text,
                size(key, &text),
                id.map(|id| &id.boot),
                id.map(|id| id.number)
            ])?;
        }
    }
    Ok(())
}
