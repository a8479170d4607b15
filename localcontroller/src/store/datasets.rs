//! What was last found of each Dataset, so that a restart does not read an unchanged file again, and each start tells it once.

use rusqlite::params;
use skerry_edge::{ObjectKey, ReportPayload};

use super::{
    error::StoreError,
    outbox::{self, NewReport},
    writer::Database,
};

/// What was found of a Dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The uid of the resource that it is of.
    pub uid: String,
    /// The url that was read.
    pub url: String,
    /// The format by which it was read.
    pub format: String,
    /// What the file looked like from outside, where that tells whether it has changed.
    pub fingerprint: Option<String>,
    /// What the manager was told.
    pub told: ReportPayload,
}

/// A finding that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// What was found.
    pub finding: Finding,
    /// Whether this start has told it. If not, it is told once more: where the store is one of before, the manager was told
    /// something else since.
    pub is_told: bool,
}

impl Database {
    pub(super) fn finding(&self, key: &ObjectKey) -> Result<Option<Kept>, StoreError> {
        let row = self.first(
            "SELECT uid, url, format, fingerprint, told, boot FROM datasets WHERE namespace = ?1 AND name = ?2",
            [&key.namespace, &key.name],
            |row| {
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    row.get(3)?,
                    row.get::<_, String>(4)?,
                    row.get::<_, Option<String>>(5)?,
                ))
            },
        )?;
        row.map(|(uid, url, format, fingerprint, told, boot)| {
            Ok(Kept {
                finding: Finding {
                    uid,
                    url,
                    format,
                    fingerprint,
                    told: serde_json::from_str(&told).map_err(StoreError::damaged)?,
                },
                is_told: boot.as_ref() == Some(&self.boot),
            })
        })
        .transpose()
    }

    /// Keeps what was found and reports it if it is news, or this start has not told it; whether it did. Nothing is kept of a Dataset that the node no
    /// longer holds.
    pub(super) fn find(&mut self, key: &ObjectKey, finding: &Finding) -> Result<bool, StoreError> {
        let Finding {
            uid,
            url,
            format,
            fingerprint,
            told,
        } = finding;
        if self.uid(key)?.as_ref() != Some(uid) {
            return Ok(false);
        }
        let before = self.finding(key)?;
        let is_told = |before: Kept| before.is_told && before.finding.uid == *uid && before.finding.told == *told;
        let news = !before.is_some_and(is_told);
        let text = serde_json::to_string(told).map_err(StoreError::encode)?;
        self.execute(
            "INSERT OR REPLACE INTO datasets VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![key.namespace, key.name, uid, url, format, fingerprint, text, self.boot],
        )?;
        if news {
            let report = NewReport {
                key: key.clone(),
                worker: None,
                payload: told.clone(),
            };
            outbox::push(self, &report)?;
        }
        Ok(news)
    }

    /// Keeps nothing more of it, in the transaction in which its object goes.
    pub(super) fn forget(&self, key: &ObjectKey) -> Result<(), StoreError> {
        self.execute(
            "DELETE FROM datasets WHERE namespace = ?1 AND name = ?2",
            [&key.namespace, &key.name],
        )?;
        Ok(())
    }
}
