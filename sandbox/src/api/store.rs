//! Storage: objects by table, one revision counter, and per table a bounded log of changes.
//!
//! Synchronous and pure. It decides revisions and what history can still be told; it never looks into an object,
//! except to write `metadata.resourceVersion`.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde_json::Value;

/// A table's name, such as `deployments.apps`.
pub type TableName = Arc<str>;

/// An object's place in its table. Cluster-scoped objects have an empty namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// One stored version of an object, shared between the store, its log and whoever watches.
#[derive(Debug)]
pub struct Object {
    /// The object, `metadata.resourceVersion` included.
    pub value: Value,
    /// The revision that wrote it.
    pub revision: u64,
    /// Whether it is kept with a null that nobody reads, so that the next write is one even where it changes nothing.
    pub with_null: bool,
    json: OnceLock<Bytes>,
}

impl Object {
    fn new(mut value: Value, revision: u64) -> Arc<Self> {
        type_first(&mut value);
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
        }
        Arc::new(Self {
            value,
            revision,
            with_null: false,
            json: OnceLock::new(),
        })
    }

    /// An object that is answered but not stored, such as that of a dry run.
    pub fn detached(value: Value, revision: u64) -> Arc<Self> {
        Arc::new(Self {
            value,
            revision,
            with_null: false,
            json: OnceLock::new(),
        })
    }

    /// The same content under another revision.
    pub fn at_revision(&self, revision: u64) -> Arc<Self> {
        Self::new(self.value.clone(), revision)
    }

    /// The object as JSON, made once.
    pub fn json(&self) -> Bytes {
        // Serialising a `Value` to memory fails for nothing that a `Value` can hold.
        self.json
            .get_or_init(|| serde_json::to_vec(&self.value).unwrap_or_default().into())
            .clone()
    }
}

impl Object {
    /// The object as JSON without its type, as items of lists of built-in kinds are told.
    pub fn json_without_type(&self) -> Bytes {
        let json = self.json();
        let text = |field: &str| self.value.get(field).map(Value::to_string).unwrap_or_default();
        let head = format!("{{\"kind\":{},\"apiVersion\":{},", text("kind"), text("apiVersion"));
        match json.strip_prefix(head.as_bytes()) {
            Some(rest) => [b"{", rest].concat().into(),
            None => json,
        }
    }
}

/// The type, by which a stored object begins, in the order in which Kubernetes writes it.
fn type_first(value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    for field in ["apiVersion", "kind"] {
        if let Some(value) = map.shift_remove(field) {
            map.shift_insert(0, field.into(), value);
        }
    }
}

/// One change of a table.
#[derive(Clone, Debug)]
pub struct Change {
    /// When, in revisions.
    pub revision: u64,
    /// Where.
    pub key: Key,
    /// What was there; `None` for a new object.
    pub before: Option<Arc<Object>>,
    /// What is there now. Of a deletion: `None`.
    pub after: Option<Arc<Object>>,
    /// Of a deletion: the last state, with the revision of the deletion.
    pub last: Option<Arc<Object>>,
}

/// What was asked for is older than the history that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    /// The revision asked for.
    pub asked: u64,
    /// The oldest that can be told.
    pub oldest: u64,
}

#[derive(Default)]
struct Table {
    objects: BTreeMap<Key, Arc<Object>>,
    log: VecDeque<Change>,
    /// Changes up to this revision are no longer in the log.
    compacted: u64,
}

/// All tables.
pub struct Store {
    revision: u64,
    window: usize,
    tables: HashMap<TableName, Table>,
    compacted: u64,
    touched: Vec<TableName>,
}

impl Store {
    /// An empty store that keeps `window` changes per table.
    pub fn new(window: usize) -> Self {
        Self {
            revision: 1,
            window: window.max(1),
            tables: HashMap::new(),
            compacted: 0,
            touched: Vec::new(),
        }
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// One object.
    pub fn get(&self, table: &str, key: &Key) -> Option<&Arc<Object>> {
        self.tables.get(table)?.objects.get(key)
    }

    /// The objects of a table in order of their keys, of one namespace or of all, after a key if one is given.
    pub fn list<'a>(
        &'a self,
        table: &str,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> + use<'a> {
        let start = match (after, namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        self.tables
            .get(table)
            .into_iter()
            .flat_map(move |table| table.objects.range((start.clone(), Bound::Unbounded)))
            .take_while(move |(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
    }

    /// A table as it was at a revision.
    pub fn list_at(&self, table: &str, revision: u64) -> Result<BTreeMap<Key, Arc<Object>>, Expired> {
        let mut objects = self
            .tables
            .get(table)
            .map(|table| table.objects.clone())
            .unwrap_or_default();
        let changes: Vec<&Change> = self.changes(table, revision)?.collect();
        for change in changes.into_iter().rev() {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// The oldest revision of a table that can be told.
    pub fn oldest(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(self.compacted, |table| table.compacted)
    }

    /// The revision of a table's last change that is still known.
    pub fn changed(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(self.compacted, |table| {
            table.log.back().map_or(table.compacted, |c| c.revision)
        })
    }

    /// The changes of a table after a revision, oldest first.
    pub fn changes(&self, table: &str, after: u64) -> Result<impl Iterator<Item = &Change> + use<'_>, Expired> {
        let found = self.tables.get(table);
        let oldest = found.map_or(self.compacted, |table| table.compacted);
        if after < oldest {
            return Err(Expired { asked: after, oldest });
        }
        Ok(found.into_iter().flat_map(move |table| {
            let first = table.log.partition_point(|change| change.revision <= after);
            table.log.range(first..)
        }))
    }

    /// Puts an object, new or changed, and gives back what is stored.
    pub fn put(&mut self, table: &TableName, key: Key, value: Value) -> Arc<Object> {
        self.revision += 1;
        let object = Object::new(value, self.revision);
        let (revision, window) = (self.revision, self.window);
        let table = self.table(table);
        let before = table.objects.insert(key.clone(), object.clone());
        table.record(
            Change {
                revision,
                key,
                before,
                after: Some(object.clone()),
                last: None,
            },
            window,
        );
        object
    }

    /// Notes that an object is kept with a null, which is no change.
    pub fn note_null(&mut self, table: &str, key: &Key) {
        let tables = self.tables.get_mut(table);
        if let Some(object) = tables.and_then(|table| table.objects.get_mut(key)) {
            *object = Arc::new(Object {
                value: object.value.clone(),
                revision: object.revision,
                with_null: true,
                json: object.json.clone(),
            });
        }
    }

    /// Removes an object and gives back its last state, with the revision of the removal.
    pub fn remove(&mut self, table: &TableName, key: &Key) -> Option<Arc<Object>> {
        let before = self.tables.get_mut(table)?.objects.remove(key)?;
        self.revision += 1;
        let last = Object::new(before.value.clone(), self.revision);
        let (revision, window) = (self.revision, self.window);
        let change = Change {
            revision,
            key: key.clone(),
            before: Some(before),
            after: None,
            last: Some(last.clone()),
        };
        self.table(table).record(change, window);
        Some(last)
    }

    /// Forgets all history: a watch or an exact list from before now is answered 410.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        for table in self.tables.values_mut() {
            table.log.clear();
            table.compacted = self.revision;
        }
    }

    /// The tables that were written since this was last asked.
    pub fn take_touched(&mut self) -> Vec<TableName> {
        std::mem::take(&mut self.touched)
    }

    /// Makes a table that nothing was written to yet, so that it can be watched from now on.
    pub fn ensure(&mut self, name: &TableName) {
        self.table(name);
    }

    fn table(&mut self, name: &TableName) -> &mut Table {
        if !self.touched.contains(name) {
            self.touched.push(name.clone());
        }
        let compacted = self.compacted;
        self.tables.entry(name.clone()).or_insert_with(|| Table {
            compacted,
            ..Table::default()
        })
    }
}

impl Table {
    fn record(&mut self, change: Change, window: usize) {
        if self.log.len() >= window
            && let Some(oldest) = self.log.pop_front()
        {
            self.compacted = oldest.revision;
        }
        self.log.push_back(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filled(window: usize) -> (Store, TableName) {
        let (mut store, table) = (Store::new(window), TableName::from("pods"));
        for (namespace, name) in [("b", "1"), ("a", "2"), ("a", "1"), ("ab", "1")] {
            store.put(&table, Key::new(namespace, name), json!({"metadata": {"name": name}}));
        }
        (store, table)
    }

    fn names(store: &Store, namespace: Option<&str>, after: Option<&Key>) -> Vec<String> {
        store
            .list("pods", namespace, after)
            .map(|(key, _)| format!("{}/{}", key.namespace, key.name))
            .collect()
    }

    #[test]
    fn lists_in_order_by_namespace_and_from_a_key() {
        let (store, _) = filled(10);
        assert_eq!(names(&store, None, None), ["a/1", "a/2", "ab/1", "b/1"]);
        assert_eq!(names(&store, Some("a"), None), ["a/1", "a/2"]);
        assert_eq!(names(&store, Some("a"), Some(&Key::new("a", "1"))), ["a/2"]);
        assert_eq!(names(&store, Some("none"), None), Vec::<String>::new());
    }

    #[test]
    fn every_change_has_its_own_revision_and_is_written_into_the_object() {
        let (mut store, table) = filled(10);
        let before = store.revision();
        let object = store.put(&table, Key::new("a", "1"), json!({"metadata": {}}));
        assert_eq!(
            object.value["metadata"]["resourceVersion"],
            json!((before + 1).to_string())
        );
        let last = store.remove(&table, &Key::new("a", "1")).unwrap();
        assert_eq!(last.revision, before + 2);
        assert!(store.remove(&table, &Key::new("a", "1")).is_none());
        assert_eq!(store.revision(), before + 2);
    }

    #[test]
    fn tells_the_past_as_far_as_it_is_kept() {
        let (mut store, table) = filled(3);
        let then = store.revision();
        store.put(&table, Key::new("a", "1"), json!({"metadata": {"new": true}}));
        store.remove(&table, &Key::new("b", "1"));
        let past = store.list_at("pods", then).unwrap();
        assert_eq!(past.len(), 4);
        assert!(past[&Key::new("a", "1")].value["metadata"].get("new").is_none());
        assert_eq!(store.list_at("pods", 0).unwrap_err(), Expired { asked: 0, oldest: 4 });
        assert_eq!(store.changes("pods", then).unwrap().count(), 2);
        store.compact();
        assert!(store.changes("pods", then).is_err());
        assert_eq!(store.changes("pods", store.revision()).unwrap().count(), 0);
        assert!(store.changes("never-written", then).is_err());
    }
}
