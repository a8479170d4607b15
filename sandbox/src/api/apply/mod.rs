//! Field ownership: server-side apply, and what every other write does to `managedFields`.
//!
//! Pure: from the live object, the request and the schema to the object that is to be stored. It never stores anything.

mod faults;
mod managers;
mod path;
mod scale;
mod set;
mod typed;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use managers::{Managers, Owned, named, unowned};
use path::{Step, shown};
use typed::{Comparison, compare, fields, merge, remove, with_parents};

use super::{
    object::{meta_value, set_meta},
    status::ApiError,
};
use crate::schema::Schema;

pub(super) use faults::faults;
pub(super) use managers::Owner;
pub(super) use scale::{to_object, to_scale};
pub(super) use set::FieldSet;

/// Who owned what before an object was first applied to.
const BEFORE: &str = "before-first-apply";

/// The type of an object, for this module's purposes.
pub(super) struct Typed<'a> {
    pub(super) schema: Option<&'a Schema>,
    pub(super) api_version: String,
    /// An object of the type of which nothing is set.
    pub(super) empty: Value,
    /// Fields that the endpoint does not write, so that nobody comes to own them through it.
    pub(super) reset: FieldSet,
}

/// A field that an applier wants to change and another owns.
struct Conflict {
    owner: Owner,
    owned: Owned,
    path: Vec<Step>,
}

impl Typed<'_> {
    /// Applies `patch` to `live` (an object without uid if there is none yet).
    pub(super) fn apply(
        &self,
        live: &Value,
        patch: &Value,
        owner: &Owner,
        force: bool,
        now: Timestamp,
    ) -> Result<Value, ApiError> {
        let mut bare = live.clone();
        set_meta(&mut bare, "managedFields", None);
        let mut managers = Managers::decode(meta_value(live, "managedFields")).unwrap_or_default();
        if managers.0.is_empty() && meta_value(live, "uid").is_some() {
            let before = Owner::new(BEFORE, false, &owner.subresource, &self.api_version);
            self.record(&self.empty, &bare, &mut managers, &before, now);
        }
        let merged = merge(self.schema, Some(&bare), Some(patch)).unwrap_or(Value::Null);
        let last = managers.0.get(owner).map(|owned| owned.fields.clone());
        let time = managers.0.get(owner).and_then(|owned| owned.time);
        let mine = fields(self.schema, patch).without(&self.reset);
        managers.0.insert(
            owner.clone(),
            Owned {
                fields: mine,
                version: self.api_version.clone(),
                time,
            },
        );
        let pruned = match last {
            Some(last) if !last.is_empty() => self.prune(&merged, &managers, &last),
            _ => merged,
        };
        let comparison = compare(self.schema, &bare, &pruned).without(&self.reset);
        let conflicts = conflicts(&managers, owner, &comparison);
        if !force && !conflicts.is_empty() {
            return Err(refusal(&conflicts));
        }
        disown(&mut managers, Some(owner), &comparison);
        if let Some(owned) = managers.0.get_mut(owner) {
            owned.fields = owned.fields.difference(&unowned());
            if pruned != bare {
                owned.time = Some(now);
            }
        }
        managers.tidy();
        let mut new = pruned;
        set_meta(&mut new, "managedFields", managers.encode());
        Ok(new)
    }

    /// Takes out of `merged` what the applier applied last time, not this time, and nobody else owns.
    fn prune(&self, merged: &Value, managers: &Managers, last: &FieldSet) -> Value {
        let all = |set: &FieldSet| with_parents(self.schema, set);
        let taken = |set: &FieldSet| remove(self.schema, merged, set).unwrap_or(Value::Null);
        let last = all(last);
        let merged_fields = all(&fields(self.schema, merged));
        let without_last = taken(&last);
        // Owned by someone, the applier included: back again.
        let owned = managers
            .0
            .values()
            .fold(FieldSet::default(), |set, owned| set.union(&owned.fields));
        let kept = all(&fields(self.schema, &without_last)).union(&all(&owned));
        let pruned = taken(&merged_fields.difference(&kept));
        // Gone with a parent although it was never applied: back again too.
        let pruned_fields = all(&fields(self.schema, &pruned));
        taken(&merged_fields.difference(&pruned_fields).intersection(&last))
    }

    /// Gives the fields that a write changed to its owner.
    pub(super) fn update(&self, live: &Value, new: &mut Value, owner: &Owner, now: Timestamp) {
        let sent = meta_value(new, "managedFields").cloned();
        set_meta(new, "managedFields", None);
        let of_live = || Managers::decode(meta_value(live, "managedFields")).unwrap_or_default();
        let mut managers = match Managers::decode(sent.as_ref()) {
            // An empty list, or a list of nothing, resets ownership.
            Some(sent) if owner.subresource.is_empty() => sent,
            _ => of_live(),
        };
        let is_new = meta_value(live, "uid").is_none();
        if managers.0.is_empty() && !is_new {
            return;
        }
        let mut bare = live.clone();
        set_meta(&mut bare, "managedFields", None);
        self.record(&bare, new, &mut managers, owner, now);
        managers.cap();
        set_meta(new, "managedFields", managers.encode());
    }

    fn record(&self, live: &Value, new: &Value, managers: &mut Managers, owner: &Owner, now: Timestamp) {
        let comparison = compare(self.schema, live, new).without(&self.reset);
        disown(managers, None, &comparison);
        let written = comparison.written().difference(&unowned());
        if !written.is_empty() {
            let part = managers.0.entry(owner.clone()).or_insert_with(|| Owned {
                fields: FieldSet::default(),
                version: self.api_version.clone(),
                time: None,
            });
            part.fields = part.fields.union(&written);
            part.time = Some(now);
        }
        managers.tidy();
    }
}

/// Whatever changed is no longer owned by others; whatever was removed, by nobody else.
fn disown(managers: &mut Managers, except: Option<&Owner>, comparison: &Comparison) {
    let written = comparison.written();
    for (owner, owned) in &mut managers.0 {
        if Some(owner) != except {
            owned.fields = owned.fields.difference(&written).difference(&comparison.removed);
        }
    }
    managers.tidy();
}

fn conflicts(managers: &Managers, applier: &Owner, comparison: &Comparison) -> Vec<Conflict> {
    let written = comparison.written();
    let others = managers.0.iter().filter(|(owner, _)| *owner != applier);
    others
        .flat_map(|(owner, owned)| {
            let paths = owned.fields.intersection(&written).paths();
            paths.into_iter().map(|path| Conflict {
                owner: owner.clone(),
                owned: owned.clone(),
                path,
            })
        })
        .collect()
}

fn refusal(conflicts: &[Conflict]) -> ApiError {
    let causes = conflicts
        .iter()
        .map(|conflict| {
            json!({"reason": "FieldManagerConflict",
                "message": format!("conflict with {}", named(&conflict.owner, &conflict.owned)),
                "field": shown(&conflict.path)})
        })
        .collect();
    if let [only] = conflicts {
        let (whom, path) = (named(&only.owner, &only.owned), shown(&only.path));
        let message = format!("Apply failed with 1 conflict: conflict with {whom}: {path}");
        return ApiError::apply_conflict(message, causes);
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.owner) {
            lines.push(format!("conflicts with {}:", named(&conflict.owner, &conflict.owned)));
            last = Some(&conflict.owner);
        }
        lines.push(format!("- {}", shown(&conflict.path)));
    }
    let message = format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"));
    ApiError::apply_conflict(message, causes)
}

/// A write that changes nothing but the times of `managedFields` changes nothing.
pub(super) fn keep_times(old: &Value, new: &mut Value) {
    let (was, is) = (meta_value(old, "managedFields"), meta_value(new, "managedFields"));
    if was == is || !same_but_times(was, is) || !same_but_owners(old, new) {
        return;
    }
    set_meta(new, "managedFields", meta_value(old, "managedFields").cloned());
}

fn same_but_times(a: Option<&Value>, b: Option<&Value>) -> bool {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (mut a, mut b) = (list(a), list(b));
    for entry in a.iter_mut().chain(&mut b).filter_map(Value::as_object_mut) {
        entry.shift_remove("time");
    }
    a == b
}

/// Equal but for `managedFields`.
fn same_but_owners(a: &Value, b: &Value) -> bool {
    let differ = |a: &Value, b: &Value, except: &str| {
        let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
            return a != b;
        };
        let count = |map: &Map<String, Value>| map.keys().filter(|key| *key != except).count();
        count(a) != count(b) || a.iter().any(|(key, value)| key != except && b.get(key) != Some(value))
    };
    let metadata = |object: &Value| object.get("metadata").cloned().unwrap_or_default();
    !differ(a, b, "metadata") && !differ(&metadata(a), &metadata(b), "managedFields")
}
