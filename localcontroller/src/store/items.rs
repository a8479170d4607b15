//! The items that the node holds, and the position that they lead to.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{CachedStatement, OptionalExtension, Params, params};
use serde::Deserialize;
use serde_json::value::RawValue;
use skerry_edge::{Body, ContentHash, Credential, Item, ItemKey, Object, ObjectKey, Position, Row, node::Change};

use super::{
    error::StoreError,
    outbox::{self, Homes},
    writer::Database,
};

/// What a batch has changed.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// How many items there are now.
    pub(super) holds: u64,
    /// The objects that were put or deleted, or whose credential was.
    pub(super) touched: BTreeSet<ObjectKey>,
    /// Whether reports can be sent now that could not before.
    pub(super) freed: bool,
}

/// Whether what a worker says of a resource is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The node has the resource, and the worker is one of it, or it is not known which those are.
    Listed,
    /// The node does not have the resource, and may yet hear of it.
    Homeless,
    /// The node has the resource, and another worker.
    NotListed,
}

/// The workers of an object on this node.
#[derive(Debug)]
pub(super) enum Workers {
    /// There is no such object.
    OfNothing,
    /// A manager of before has not told them, or what it told is no list.
    Untold,
    /// Their names.
    Listed(Vec<String>),
}

impl Database {
    fn prepare(&self, sql: &str) -> Result<CachedStatement<'_>, StoreError> {
        Ok(self.connection.prepare_cached(sql)?)
    }

    /// Runs a statement; how many rows it changed.
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        Ok(self.prepare(sql)?.execute(params)?)
    }

    /// The first row, if there is one.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.prepare(sql)?.query_row(params, read).optional()?)
    }

    /// All rows.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        Ok(self.prepare(sql)?.query_map(params, read)?.collect::<Result<_, _>>()?)
    }

    pub(super) fn count_items(&mut self) -> Result<(), StoreError> {
        let count = self.first("SELECT count(*) FROM items", [], |row| row.get(0))?;
        self.state.holds = count.unwrap_or_default();
        Ok(())
    }

    /// Makes these changes, which lead to this position; to none where they are counted by nobody.
    pub(super) fn apply(&mut self, changes: &[Change], position: Option<&Position>) -> Result<Applied, StoreError> {
        let mut applied = Applied::default();
        // Sedna's manager, which counts nothing, is sent reports whether or not the node holds their objects.
        let waiting = match position {
            Some(_) => Homes::Only,
            None => Homes::OrNone,
        };
        for change in changes {
            let key = change.key();
            match change {
                Change::Put(object) => {
                    self.put(&Item::Object(object.clone()).row(), object.body.json())?;
                    applied.freed |= outbox::house(self, &object.key, &object.uid, waiting)?;
                }
                Change::PutCredential(credential) => {
                    let fields = serde_json::to_string(&credential.fields).map_err(StoreError::encode)?;
                    self.put(&Item::Credential(credential.clone()).row(), &fields)?;
                }
                Change::Delete(key) => self.delete(key)?,
            }
            applied.touched.insert(key.object);
        }
        if let Some(position) = position {
            let position = serde_json::to_string(position).map_err(StoreError::encode)?;
            self.execute(
                "INSERT INTO position VALUES (1, ?1) ON CONFLICT DO UPDATE SET body = excluded.body",
                [position],
            )?;
        } else {
            self.execute("DELETE FROM position", [])?;
        }
        applied.holds = self.state.holds;
        Ok(applied)
    }

    fn put(&mut self, row: &Row, body: &str) -> Result<(), StoreError> {
        let Row {
            key,
            uid,
            generation,
            hash,
        } = row;
        let (object, secret) = (&key.object, key.secret.as_deref().unwrap_or_default());
        let params = params![
            object.kind,
            object.namespace,
            object.name,
            secret,
            uid,
            generation,
            hash.as_bytes(),
            body
        ];
        let updated = self.execute(
            "UPDATE items SET uid = ?5, generation = ?6, hash = ?7, body = ?8
             WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND secret = ?4",
            params,
        )?;
        if updated == 0 {
            self.execute("INSERT INTO items VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)", params)?;
            self.state.holds += 1;
        }
        Ok(())
    }

    fn delete(&mut self, key: &ItemKey) -> Result<(), StoreError> {
        let (object, secret) = (&key.object, key.secret.as_deref().unwrap_or_default());
        let deleted = self.execute(
            "DELETE FROM items WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND secret = ?4",
            params![object.kind, object.namespace, object.name, secret],
        )?;
        self.state.holds = self.state.holds.saturating_sub(deleted as u64);
        if !key.is_credential() && object.kind == super::DATASET {
            self.forget(object)?;
        }
        Ok(())
    }

    pub(super) fn position(&self) -> Result<Option<Position>, StoreError> {
        let text: Option<String> = self.first("SELECT body FROM position", [], |row| row.get(0))?;
        text.map(|text| serde_json::from_str(&text).map_err(StoreError::damaged))
            .transpose()
    }

    pub(super) fn rows(&self) -> Result<Vec<Row>, StoreError> {
        self.all(
            "SELECT kind, namespace, name, secret, uid, generation, hash FROM items",
            [],
            |row| {
                Ok(Row {
                    key: ItemKey {
                        object: ObjectKey::new(
                            row.get::<_, String>(0)?,
                            row.get::<_, String>(1)?,
                            row.get::<_, String>(2)?,
                        ),
                        secret: Some(row.get(3)?).filter(|secret: &String| !secret.is_empty()),
                    },
                    uid: row.get(4)?,
                    generation: row.get(5)?,
                    hash: row.get::<_, [u8; 32]>(6)?.into(),
                })
            },
        )
    }

    /// The keys of the objects that are held, or whose credential is.
    pub(super) fn keys(&self) -> Result<BTreeSet<ObjectKey>, StoreError> {
        let keys = self.all("SELECT DISTINCT kind, namespace, name FROM items", [], |row| {
            Ok(ObjectKey::new(
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
            ))
        })?;
        Ok(keys.into_iter().collect())
    }

    pub(super) fn uid(&self, key: &ObjectKey) -> Result<Option<String>, StoreError> {
        self.first(
            "SELECT uid FROM items WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND secret = ''",
            [&key.kind, &key.namespace, &key.name],
            |row| row.get(0),
        )
    }

    pub(super) fn admits(&self, key: &ObjectKey, worker: &str) -> Result<Admission, StoreError> {
        Ok(match self.workers(key)? {
            Workers::OfNothing => Admission::Homeless,
            Workers::Listed(workers) if !workers.iter().any(|listed| listed == worker) => Admission::NotListed,
            Workers::Listed(_) | Workers::Untold => Admission::Listed,
        })
    }

    /// The workers of an object on this node.
    pub(super) fn workers(&self, key: &ObjectKey) -> Result<Workers, StoreError> {
        #[derive(Deserialize)]
        struct Told {
            workers: Option<Box<RawValue>>,
        }
        let Some((_, _, _, text)) = self.item(key, "")? else {
            return Ok(Workers::OfNothing);
        };
        let told = match serde_json::from_str(&text) {
            Ok(Told { workers }) => workers,
            // JSON, but no object.
            Err(error) if error.is_data() => None,
            Err(error) => return Err(StoreError::damaged(error)),
        };
        let listed = told.and_then(|told| serde_json::from_str(told.get()).ok());
        Ok(listed.map_or(Workers::Untold, Workers::Listed))
    }

    pub(super) fn object(&self, key: &ObjectKey) -> Result<Option<Object>, StoreError> {
        let Some((uid, generation, hash, text)) = self.item(key, "")? else {
            return Ok(None);
        };
        let body = Body::from_json(text).map_err(StoreError::damaged)?;
        if body.hash() != hash {
            return Err(StoreError::damaged(format!("{key} is not what was stored")));
        }
        Ok(Some(Object {
            key: key.clone(),
            uid,
            generation,
            body,
        }))
    }

    pub(super) fn credential(&self, owner: &ObjectKey, secret: &str) -> Result<Option<Credential>, StoreError> {
        let Some((uid, _, hash, text)) = self.item(owner, secret)? else {
            return Ok(None);
        };
        // The parser's own words would quote what it could not read.
        let fields: BTreeMap<String, String> = serde_json::from_str(&text)
            .map_err(|_| StoreError::damaged(format!("the credential {secret} of {owner} is not what was stored")))?;
        let credential = Credential {
            owner: owner.clone(),
            uid,
            secret: secret.to_owned(),
            fields,
        };
        if credential.hash() != hash {
            return Err(StoreError::damaged(format!(
                "the credential {secret} of {owner} is not what was stored"
            )));
        }
        Ok(Some(credential))
    }

    fn item(&self, key: &ObjectKey, secret: &str) -> Result<Option<(String, i64, ContentHash, String)>, StoreError> {
        self.first(
            "SELECT uid, generation, hash, body FROM items
             WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND secret = ?4",
            [&key.kind, &key.namespace, &key.name, secret],
            |row| {
                let hash: [u8; 32] = row.get(2)?;
                Ok((row.get(0)?, row.get(1)?, hash.into(), row.get(3)?))
            },
        )
    }
}
