//! `metadata.managedFields`: read, changed and written back.

use std::{collections::BTreeMap, fmt::Write};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{path::Step, set::FieldSet};

/// Who owns fields: what tells one entry of `managedFields` from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::api) struct Owner {
    pub(in crate::api) manager: String,
    /// Through server-side apply, as opposed to any other write.
    pub(in crate::api) applied: bool,
    pub(in crate::api) subresource: String,
    /// `apiVersion` of updates. An applier is the same in every version.
    version: String,
}

impl Owner {
    pub(in crate::api) fn new(manager: &str, applied: bool, subresource: &str, version: &str) -> Self {
        Self {
            manager: if manager.is_empty() {
                "unknown".into()
            } else {
                manager.to_owned()
            },
            applied,
            subresource: subresource.to_owned(),
            version: if applied { String::new() } else { version.to_owned() },
        }
    }
}

/// What an owner owns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owned {
    pub(super) fields: FieldSet,
    pub(super) version: String,
    pub(super) time: Option<Timestamp>,
}

/// All owners of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Managers(pub(super) BTreeMap<Owner, Owned>);

impl Managers {
    /// Reads `managedFields`. A list that is not understood counts as none, as does one that resets (`[]`, `[{}]`).
    pub(super) fn decode(entries: Option<&Value>) -> Option<Self> {
        let entries = entries?.as_array()?;
        if entries.is_empty() || (entries.len() == 1 && entries.first() == Some(&json!({}))) {
            return Some(Self::default());
        }
        let mut managers = BTreeMap::new();
        for entry in entries {
            let text = |field| entry.get(field).and_then(Value::as_str).unwrap_or_default();
            let applied = match text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return None,
            };
            if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
                return None;
            }
            let owner = Owner::new(text("manager"), applied, text("subresource"), text("apiVersion"));
            let fields = match entry.get("fieldsV1") {
                Some(fields) if !FieldSet::is_readable(fields) => return None,
                fields => fields.map(FieldSet::decode).unwrap_or_default(),
            };
            let time = text("time").parse().ok();
            managers.insert(
                owner,
                Owned {
                    fields,
                    version: text("apiVersion").to_owned(),
                    time,
                },
            );
        }
        Some(Self(managers))
    }

    /// Writes `managedFields`: appliers first, then by time and name. `None` if nobody owns anything.
    pub(super) fn encode(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by_key(|(owner, owned)| {
            let at = owned.time.map_or(0, Timestamp::as_second);
            (!owner.applied, at, &owner.manager, &owned.version, &owner.subresource)
        });
        Some(Value::Array(
            entries.into_iter().map(|(owner, owned)| entry(owner, owned)).collect(),
        ))
    }

    /// Drops owners that own nothing.
    pub(super) fn tidy(&mut self) {
        self.0.retain(|_, owned| !owned.fields.is_empty());
    }

    /// At most ten updaters: the oldest are put together under one name.
    pub(super) fn cap(&mut self) {
        const LIMIT: usize = 10;
        let mut updaters: Vec<_> = self
            .0
            .iter()
            .filter(|(owner, _)| !owner.applied)
            .map(|(o, _)| o.clone())
            .collect();
        if updaters.len() <= LIMIT {
            return;
        }
        updaters.sort_by_key(|owner| (self.0.get(owner).and_then(|owned| owned.time), owner.clone()));
        let surplus = updaters.len() - LIMIT;
        let mut left = surplus;
        let mut first: BTreeMap<String, Owner> = BTreeMap::new();
        for owner in updaters {
            if left == 0 {
                break;
            }
            let Some(owned) = self.0.get(&owner).cloned() else {
                continue;
            };
            let Some(earlier) = first.get(&owned.version).cloned() else {
                first.insert(owned.version.clone(), owner);
                continue;
            };
            let bucket = Owner::new("ancient-changes", false, "", &owned.version);
            let kept = self.0.remove(&bucket).or_else(|| self.0.remove(&earlier));
            let fields = kept
                .map_or_else(FieldSet::default, |kept| kept.fields)
                .union(&owned.fields);
            self.0.remove(&owner);
            self.0.insert(bucket, Owned { fields, ..owned });
            left -= 1;
        }
    }
}

fn entry(owner: &Owner, part: &Owned) -> Value {
    let mut entry = Map::new();
    entry.insert("manager".into(), owner.manager.as_str().into());
    entry.insert(
        "operation".into(),
        if owner.applied { "Apply" } else { "Update" }.into(),
    );
    entry.insert("apiVersion".into(), part.version.as_str().into());
    entry.extend(
        part.time
            .map(|time| ("time".to_owned(), crate::api::clock::seconds(time))),
    );
    entry.insert("fieldsType".into(), "FieldsV1".into());
    entry.insert("fieldsV1".into(), part.fields.encode());
    if !owner.subresource.is_empty() {
        entry.insert("subresource".into(), owner.subresource.as_str().into());
    }
    Value::Object(entry)
}

/// Fields that nobody owns, since the server writes them or they tell objects apart.
pub(super) fn unowned() -> FieldSet {
    let mut set = FieldSet::of(&[&["apiVersion"], &["kind"], &["metadata"]]);
    for field in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set.insert(&[Step::field("metadata"), Step::field(field)]);
    }
    set
}

/// An owner as conflicts name it.
pub(super) fn named(owner: &Owner, part: &Owned) -> String {
    let mut text = format!("{:?}", owner.manager);
    if !owner.subresource.is_empty() {
        let _ = write!(text, " with subresource {:?}", owner.subresource);
    }
    if !owner.applied {
        let _ = write!(text, " using {}", part.version);
    }
    text
}
