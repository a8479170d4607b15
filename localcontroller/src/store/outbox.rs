//! The durable outbox: reports in the order in which they were made, until the manager has answered them.
//!
//! Decides what a newer report replaces. What is given up when the outbox is full is decided in `room`, what is for its age
//! in `age`. What is said of a Dataset is never given up: there is one such report for each Dataset, and it would not be made
//! again. What was given up is counted in a gap, which is delivered as a report is.
//!
//! A worker may be up before the node has heard of the object that it works for. Its reports wait without a uid, and
//! are numbered anew when the object comes, as if they had been made then.
//!
//! A report says which start of the local controller made it, and the number that it had then: a store that is put back counts
//! on from where it was, and only the start tells its numbers for sure from those that were given meanwhile.

use std::time::Duration;

use rusqlite::{Row, params};
use serde::Deserialize;
use skerry_edge::{
    ObjectKey, Report, ReportId, ReportPayload,
    node::{Outgoing, Wanted},
};

use super::{
    error::StoreError,
    items::Workers,
    limits,
    room::{make_room, make_room_for_homeless},
    writer::Database,
};

/// How much the outbox holds at most.
#[derive(Clone, Copy, Debug)]
pub struct OutboxLimits {
    /// Bytes of all reports.
    pub bytes: u64,
    /// Reports.
    pub count: u64,
    /// Reports on objects that the node does not hold.
    pub homeless: u64,
    /// How old figures get.
    pub metrics_age: Duration,
}

impl Default for OutboxLimits {
    /// Those of a node.
    fn default() -> Self {
        Self {
            bytes: limits::BYTES,
            count: limits::REPORTS,
            homeless: limits::HOMELESS,
            metrics_age: limits::METRICS_AGE,
        }
    }
}

/// What a row costs beside its texts.
const ROW_BYTES: u64 = 64;

/// What the outbox holds of what it can give up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Reports.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The highest number that was read; what is above it nobody has seen.
    pub(super) read_to: u64,
}

/// A report to be put into the outbox.
#[derive(Clone, Debug)]
pub struct NewReport {
    /// The resource.
    pub key: ObjectKey,
    /// Who says it; the node itself where it is not a worker.
    pub worker: Option<String>,
    /// What.
    pub payload: ReportPayload,
}

/// What is given up first has the lowest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Metrics = 0,
    Round = 1,
    Event = 2,
    Dataset = 3,
    Gap = 4,
}

impl Class {
    pub(super) fn of(payload: &ReportPayload) -> Self {
        match payload {
            ReportPayload::Metrics { .. } => Self::Metrics,
            ReportPayload::Round { .. } => Self::Round,
            ReportPayload::Event { .. } | ReportPayload::Unknown { .. } => Self::Event,
            ReportPayload::DatasetSamples { .. } | ReportPayload::DatasetFailed { .. } => Self::Dataset,
        }
    }
}

/// Counts what is there.
pub(super) fn count(database: &mut Database) -> Result<(), StoreError> {
    let totals = database.first(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM outbox WHERE class < ?1",
        [Class::Dataset as u8],
        |row| {
            Ok(Totals {
                count: row.get(0)?,
                bytes: row.get(1)?,
                read_to: 0,
            })
        },
    )?;
    database.state.outbox = totals.unwrap_or_default();
    Ok(())
}

/// Puts a report in, in place of the one that it makes worthless, and gives up others where there is no room.
pub(super) fn push(database: &mut Database, report: &NewReport) -> Result<(), StoreError> {
    let uid = database.uid(&report.key)?;
    insert(database, report, uid.as_deref())?;
    // With the new one in its place: it is itself the first to go where the others are worth more.
    if uid.is_none() {
        make_room_for_homeless(database)?;
    }
    make_room(database)
}

fn insert(database: &mut Database, report: &NewReport, uid: Option<&str>) -> Result<(), StoreError> {
    let NewReport { key, worker, payload } = report;
    let worker = worker.as_deref().unwrap_or_default();
    let replaces = payload.coalesces().then(|| format!("{key}/{worker}"));
    if let Some(replaces) = &replaces {
        let worthless = database.first("SELECT seq FROM outbox WHERE replaces = ?1", [replaces], |row| {
            row.get(0)
        })?;
        worthless.map(|seq| remove(database, seq)).transpose()?;
    }
    let text = serde_json::to_string(payload).map_err(StoreError::encode)?;
    let bytes = size(key, &text);
    let class = Class::of(payload);
    let seq = next_seq(database)?;
    let born = database.keep_age()?;
    database.execute(
        "INSERT INTO outbox VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?1)",
        params![
            seq,
            class as u8,
            key.kind,
            key.namespace,
            key.name,
            uid,
            replaces,
            jiff::Timestamp::now().to_string(),
            text,
            bytes,
            born,
            database.boot
        ],
    )?;
    if (class as u8) < Class::Dataset as u8 {
        database.state.outbox.count += 1;
        database.state.outbox.bytes += bytes;
    }
    Ok(())
}

/// What a report costs.
pub(super) fn size(key: &ObjectKey, payload: &str) -> u64 {
    let texts = [&key.kind, &key.namespace, &key.name, payload];
    texts.iter().map(|text| text.len() as u64).sum::<u64>() + ROW_BYTES
}

/// The next number; never given twice, whatever becomes of the report.
fn next_seq(database: &Database) -> Result<u64, StoreError> {
    database
        .first(
            "UPDATE outbox_last SET seq = max(seq + 1, ?1) RETURNING seq",
            [(database.clock)()],
            |row| row.get(0),
        )?
        .ok_or_else(|| StoreError::damaged("the outbox has lost its count"))
}

/// Removes a report, if it is still there.
pub(super) fn remove(database: &mut Database, seq: u64) -> Result<bool, StoreError> {
    let removed: Option<(u8, u64)> = database.first(
        "DELETE FROM outbox WHERE seq = ?1 RETURNING class, bytes",
        [seq],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if let Some((class, bytes)) = removed
        && class < Class::Dataset as u8
    {
        let totals = &mut database.state.outbox;
        totals.count = totals.count.saturating_sub(1);
        totals.bytes = totals.bytes.saturating_sub(bytes);
    }
    Ok(removed.is_some())
}

/// Gives these reports up; how many there were.
pub(super) fn give_up(database: &mut Database, seqs: impl IntoIterator<Item = u64>) -> Result<u64, StoreError> {
    let mut given_up = 0;
    for seq in seqs {
        given_up += u64::from(remove(database, seq)?);
    }
    note_gap(database, given_up)?;
    Ok(given_up)
}

/// Adds to the last gap, unless that may be on its way to the manager with the count that it had. One that an earlier start
/// sent is added to: the manager knows the numbers of one start alone, and counts it once more whatever it says.
pub(super) fn note_gap(database: &mut Database, count: u64) -> Result<(), StoreError> {
    if count == 0 {
        return Ok(());
    }
    let unseen: Option<(u64, String)> = database.first(
        "SELECT seq, payload FROM outbox WHERE class = ?1 AND seq > ?2 ORDER BY seq DESC LIMIT 1",
        params![Class::Gap as u8, database.state.outbox.read_to],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut total = count;
    if let Some((seq, payload)) = unseen {
        total += payload.parse::<u64>().map_err(StoreError::damaged)?;
        remove(database, seq)?;
    }
    let seq = next_seq(database)?;
    database.execute(
        "INSERT INTO outbox VALUES (?1, ?2, '', '', '', NULL, NULL, '', ?3, 0, 0, NULL, NULL)",
        params![seq, Class::Gap as u8, total.to_string()],
    )?;
    Ok(())
}

/// Gives the reports that waited for this object its uid, except those of workers that it does not have here, which go;
/// whether there are any to be sent. Where they were passed over until now they get new numbers, to be sent after what was
/// sent meanwhile; otherwise they keep theirs, since they may be on their way.
pub(super) fn house(database: &mut Database, key: &ObjectKey, uid: &str, homes: Homes) -> Result<bool, StoreError> {
    let waiting: Vec<(u64, String)> = database.all(
        "SELECT seq, payload FROM outbox
         WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND uid IS NULL ORDER BY seq",
        [&key.kind, &key.namespace, &key.name],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    if waiting.is_empty() {
        return Ok(false);
    }
    let workers = database.workers(key)?;
    let mut housed = false;
    for (seq, payload) in waiting {
        if let (Workers::Listed(workers), Some(worker)) = (&workers, worker_of(&payload)?)
            && !workers.contains(&worker)
        {
            tracing::warn!(%key, worker, "a report is dropped: the node has no such worker");
            remove(database, seq)?;
            continue;
        }
        let number = match homes {
            Homes::Only => next_seq(database)?,
            Homes::OrNone => seq,
        };
        database.execute(
            "UPDATE outbox SET seq = ?1, uid = ?2 WHERE seq = ?3",
            params![number, uid, seq],
        )?;
        housed = true;
    }
    Ok(housed)
}

/// The worker whose message this is, if it is one's.
fn worker_of(payload: &str) -> Result<Option<String>, StoreError> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let payload: ReportPayload = serde_json::from_str(payload).map_err(StoreError::damaged)?;
    let named = payload
        .message()
        .and_then(|message| serde_json::from_str(message.json()).ok());
    Ok(named.map(|Named { name }| name))
}

/// Which reports are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Homes {
    /// Those on objects that the node holds, or held when they were made.
    Only,
    /// All.
    OrNone,
}

/// What is to be sent, in order.
pub(super) fn fetch(database: &mut Database, wanted: &Wanted, homes: Homes) -> Result<Vec<Outgoing>, StoreError> {
    let Wanted { of, after, limit } = wanted;
    let (kind, namespace, name) = match of {
        Some(ObjectKey { kind, namespace, name }) => (Some(kind), Some(namespace), Some(name)),
        None => (None, None, None),
    };
    let rows = database.all(
        "SELECT * FROM outbox
         WHERE seq > ?1 AND (uid IS NOT NULL OR class = ?2 OR ?4)
         AND (?5 IS NULL OR (kind = ?5 AND namespace = ?6 AND name = ?7)) ORDER BY seq LIMIT ?3",
        params![
            after,
            Class::Gap as u8,
            limit,
            homes == Homes::OrNone,
            kind,
            namespace,
            name
        ],
        |row| Ok(outgoing(row)),
    )?;
    let read = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
    let last = read.last().map(Outgoing::seq).unwrap_or_default();
    let read_to = &mut database.state.outbox.read_to;
    *read_to = last.max(*read_to);
    Ok(read)
}

/// A row of the outbox as it is sent.
pub(super) fn outgoing(row: &Row<'_>) -> Result<Outgoing, StoreError> {
    let (seq, class): (u64, u8) = (row.get("seq")?, row.get("class")?);
    let payload: String = row.get("payload")?;
    if class == Class::Gap as u8 {
        let count = payload.parse().map_err(StoreError::damaged)?;
        return Ok(Outgoing::Gap { seq, count });
    }
    let text = |column: &str| row.get::<_, String>(column);
    let (boot, number): (Option<String>, Option<u64>) = (row.get("boot")?, row.get("number")?);
    Ok(Outgoing::Report(Report {
        seq,
        id: boot.zip(number).map(|(boot, number)| ReportId { boot, number }),
        key: ObjectKey::new(text("kind")?, text("namespace")?, text("name")?),
        uid: row.get::<_, Option<String>>("uid")?.unwrap_or_default(),
        observed_at: text("observed_at")?.parse().map_err(StoreError::damaged)?,
        payload: serde_json::from_str(&payload).map_err(StoreError::damaged)?,
    }))
}
