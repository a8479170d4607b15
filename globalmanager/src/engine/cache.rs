//! What the manager knows of the cluster: the objects of every watched kind, trimmed, with the answers to its own writes
//! folded in, so that a decision never works from a state older than what the manager itself wrote.
//!
//! It stores; it decides nothing. Objects are kept packed, because thousands of parsed pod templates are what makes
//! controllers fat.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};
use skerry_workloads::{Live, ObjectKind};

use super::packed::{Packed, Pattern};

/// Namespace and name of an object.
pub(crate) type Name = (String, String);

/// What an object's state says beyond what was known.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
    /// Nothing: this state, or a later one, is known.
    None,
    /// There was no such object.
    Appeared,
    /// The object is as it was, but for its status.
    Status,
    /// The object was as this shows.
    Changed(Value),
}

/// One object.
#[derive(Debug)]
struct Entry {
    version: u64,
    /// The uids that this object is found by: its controller's and, where a label names one, its resource's.
    found_by: Box<[String]>,
    packed: Packed,
}

/// The objects of one kind.
#[derive(Debug, Default)]
struct Kind {
    /// That of all objects; there from the first on.
    pattern: Option<Pattern>,
    objects: BTreeMap<Name, Entry>,
    /// What a running list has named so far; present between the start and the end of a list.
    listing: Option<Listing>,
    listed: bool,
    /// Whether that list began when this process led.
    by_leader: bool,
}

impl Kind {
    fn unpacked(&self, entry: &Entry) -> Option<Value> {
        Some(self.pattern.as_ref()?.unpack(&entry.packed))
    }
}

/// A list under way.
#[derive(Debug, Default)]
struct Listing {
    by_leader: bool,
    seen: BTreeSet<Name>,
    /// What was learnt otherwise since the list began: the list may be older than it.
    fresh: BTreeSet<Name>,
}

/// All that is known.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    kinds: BTreeMap<ObjectKind, Kind>,
    /// In order. Most have a few, for which a set would take ten times the room.
    by_uid: BTreeMap<String, Vec<(ObjectKind, Name)>>,
    tombstones: Tombstones,
}

/// The versions at which objects were deleted lately, so that a late answer to a write of ours brings none back.
#[derive(Debug, Default)]
struct Tombstones {
    versions: BTreeMap<(ObjectKind, Name), u64>,
    order: VecDeque<(ObjectKind, Name)>,
}

impl Tombstones {
    /// How many are kept: an answer is late by seconds, and this many deletions take longer.
    const KEPT: usize = 4096;

    fn bury(&mut self, kind: ObjectKind, name: Name, version: u64) {
        if self.versions.insert((kind, name.clone()), version).is_none() {
            self.order.push_back((kind, name));
        }
        if self.order.len() > Self::KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.versions.remove(&oldest);
        }
    }

    fn cover(&self, kind: ObjectKind, name: &Name, version: u64) -> bool {
        self.versions
            .get(&(kind, name.clone()))
            .is_some_and(|deleted| version <= *deleted)
    }
}

impl Cache {
    /// A list of `kind` begins; whether this process leads.
    pub(crate) fn list_begins(&mut self, kind: ObjectKind, by_leader: bool) {
        self.kinds.entry(kind).or_default().listing = Some(Listing {
            by_leader,
            ..Listing::default()
        });
    }

    /// The list of `kind` is complete: what it did not name is gone. Returns what went.
    pub(crate) fn list_ends(&mut self, kind: ObjectKind) -> Vec<Value> {
        let known = self.kinds.entry(kind).or_default();
        known.listed = true;
        let Some(listing) = known.listing.take() else {
            return vec![];
        };
        known.by_leader = listing.by_leader;
        let gone: Vec<Name> = known
            .objects
            .keys()
            .filter(|name| !listing.seen.contains(*name) && !listing.fresh.contains(*name))
            .cloned()
            .collect();
        gone.iter().filter_map(|name| self.forget(kind, name)).collect()
    }

    /// Whether a complete list of `kind` was seen.
    pub(crate) fn listed(&self, kind: ObjectKind) -> bool {
        self.kinds.get(&kind).is_some_and(|known| known.listed)
    }

    /// Whether that list began when this process led.
    pub(crate) fn listed_by_leader(&self, kind: ObjectKind) -> bool {
        self.kinds.get(&kind).is_some_and(|known| known.by_leader)
    }

    /// A term is over: what was listed in it may be older than what the next leader places.
    pub(crate) fn term_ended(&mut self, kind: ObjectKind) {
        if let Some(known) = self.kinds.get_mut(&kind) {
            known.by_leader = false;
        }
    }

    /// An object as a list or watch, or the answer to a write, shows it. Older states than the known one are ignored.
    pub(crate) fn learn(&mut self, kind: ObjectKind, object: &Value, from_list: bool) -> News {
        let name = name_of(object);
        let version = version_of(object);
        let known = self.kinds.entry(kind).or_default();
        if let Some(listing) = &mut known.listing {
            if from_list {
                &mut listing.seen
            } else {
                &mut listing.fresh
            }
            .insert(name.clone());
        }
        if self.reaches(kind, &name, version) {
            return News::None;
        }
        let news = match self.forget(kind, &name) {
            None => News::Appeared,
            Some(before) if same_but_for_status(&before, object) => News::Status,
            Some(before) => News::Changed(before),
        };
        let found_by = owners_of(object);
        for uid in &found_by {
            let found = self.by_uid.entry(uid.clone()).or_default();
            let place = (kind, name.clone());
            if let Err(at) = found.binary_search(&place) {
                found.reserve_exact(1);
                found.insert(at, place);
            }
        }
        let known = self.kinds.entry(kind).or_default();
        let pattern = known.pattern.get_or_insert_with(|| Pattern::like(object));
        let entry = Entry {
            version,
            found_by: found_by.into_iter().collect(),
            packed: pattern.pack(object),
        };
        known.objects.insert(name, entry);
        news
    }

    /// Whether this state of an object, or a later one, was seen, or that it was deleted after it.
    pub(crate) fn reaches(&self, kind: ObjectKind, name: &Name, version: u64) -> bool {
        let known = self.kinds.get(&kind).and_then(|known| known.objects.get(name));
        known.is_some_and(|known| known.version >= version) || self.tombstones.cover(kind, name, version)
    }

    /// An object that was deleted, as the watch showed it last.
    pub(crate) fn lose(&mut self, kind: ObjectKind, object: &Value) -> bool {
        let name = name_of(object);
        let version = version_of(object);
        self.tombstones.bury(kind, name.clone(), version);
        let known = self.kinds.get(&kind).and_then(|known| known.objects.get(&name));
        known.is_some_and(|known| known.version <= version) && self.forget(kind, &name).is_some()
    }

    fn forget(&mut self, kind: ObjectKind, name: &Name) -> Option<Value> {
        let known = self.kinds.get_mut(&kind)?;
        let entry = known.objects.remove(name)?;
        for uid in &entry.found_by {
            if let Some(found) = self.by_uid.get_mut(uid) {
                found.retain(|place| (&place.0, &place.1) != (&kind, name));
                if found.is_empty() {
                    self.by_uid.remove(uid);
                }
            }
        }
        known.unpacked(&entry)
    }

    /// One object.
    pub(crate) fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<Value> {
        let known = self.kinds.get(&kind)?;
        known.unpacked(known.objects.get(&(namespace.to_owned(), name.to_owned()))?)
    }

    /// The names of all objects of `kind`.
    pub(crate) fn names(&self, kind: ObjectKind) -> Vec<Name> {
        self.kinds
            .get(&kind)
            .map(|known| known.objects.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// What belongs to the resource with this uid, by controller owner reference or by label.
    pub(crate) fn belonging_to(&self, uid: &str) -> Vec<Live> {
        let found = self.by_uid.get(uid).into_iter().flatten();
        found
            .filter_map(|(kind, (namespace, name))| {
                Some(Live {
                    kind: *kind,
                    object: self.get(*kind, namespace, name)?,
                })
            })
            .collect()
    }
}

/// Whether two states of an object differ in nothing that anybody declares.
fn same_but_for_status(before: &Value, object: &Value) -> bool {
    let empty = Map::new();
    let [before, object] = [before, object].map(|object| object.as_object().unwrap_or(&empty));
    let [was, is] = [before, object].map(|object| object.get("metadata").and_then(Value::as_object));
    equal_without(&["metadata", "status"], before, object)
        && equal_without(&["resourceVersion"], was.unwrap_or(&empty), is.unwrap_or(&empty))
}

fn equal_without(fields: &[&str], one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let all_in = |one: &Map<String, Value>, other: &Map<String, Value>| {
        one.iter()
            .all(|(field, value)| fields.contains(&field.as_str()) || other.get(field) == Some(value))
    };
    all_in(one, other)
        && other
            .keys()
            .all(|field| fields.contains(&field.as_str()) || one.contains_key(field))
}

/// Namespace and name.
pub(crate) fn name_of(object: &Value) -> Name {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    (text("/metadata/namespace"), text("/metadata/name"))
}

/// The resource version as a number: Kubernetes promises since 1.35, and etcd always gave, that it can be compared.
fn version_of(object: &Value) -> u64 {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// The controller owner's uid, and what labels of the form `<kind>.sedna.io/uid` name.
fn owners_of(object: &Value) -> BTreeSet<String> {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let labelled = labels
        .filter(|(key, _)| key.ends_with(".sedna.io/uid"))
        .filter_map(|(_, uid)| uid.as_str());
    controller_of(object)
        .map(|(_, _, uid)| uid)
        .into_iter()
        .chain(labelled)
        .map(str::to_owned)
        .collect()
}

/// Kind, name and uid of the controller owner.
pub(crate) fn controller_of(object: &Value) -> Option<(&str, &str, &str)> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))?;
    let text = |key| owner.get(key).and_then(Value::as_str);
    Some((text("kind")?, text("name")?, text("uid")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str, version: u64, owner: &str) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": version.to_string(),
            "ownerReferences": [{"kind": "FederatedLearningJob", "name": "j", "uid": owner, "controller": true}]}})
    }

    #[test]
    fn an_older_state_never_replaces_a_newer_one() {
        let mut cache = Cache::default();
        assert_eq!(
            cache.learn(ObjectKind::POD, &pod("a", "1", 5, "o"), false),
            News::Appeared
        );
        assert_eq!(cache.learn(ObjectKind::POD, &pod("a", "1", 4, "o"), false), News::None);
        assert_eq!(cache.learn(ObjectKind::POD, &pod("a", "1", 5, "o"), true), News::None);
        assert_eq!(
            cache.learn(ObjectKind::POD, &pod("a", "1", 6, "o"), true),
            News::Status,
            "nothing else differs"
        );
    }

    #[test]
    fn a_status_alone_is_news_of_its_own() {
        let mut cache = Cache::default();
        let with = |version, field: &str, value: Value| {
            let mut pod = pod("a", "1", version, "o");
            pod[field] = value;
            pod
        };
        cache.learn(ObjectKind::POD, &pod("a", "1", 1, "o"), false);
        let running = with(2, "status", json!({"phase": "Running"}));
        assert_eq!(cache.learn(ObjectKind::POD, &running, false), News::Status);
        assert_eq!(
            cache.learn(ObjectKind::POD, &pod("a", "1", 3, "o"), false),
            News::Status
        );
        let bound = with(4, "spec", json!({"nodeName": "edge-1"}));
        assert!(matches!(cache.learn(ObjectKind::POD, &bound, false), News::Changed(_)));
        let mut going = with(5, "spec", json!({"nodeName": "edge-1"}));
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(cache.learn(ObjectKind::POD, &going, false), News::Changed(bound));
    }

    #[test]
    fn a_list_takes_away_what_it_does_not_name_but_not_what_was_written_meanwhile() {
        let mut cache = Cache::default();
        cache.learn(ObjectKind::POD, &pod("old", "1", 1, "o"), false);
        assert!(!cache.listed(ObjectKind::POD));
        cache.list_begins(ObjectKind::POD, true);
        cache.learn(ObjectKind::POD, &pod("listed", "2", 2, "o"), true);
        cache.learn(ObjectKind::POD, &pod("written", "3", 9, "o"), false);
        assert_eq!(cache.list_ends(ObjectKind::POD), [pod("old", "1", 1, "o")]);
        assert!(cache.listed(ObjectKind::POD));
        let names: Vec<_> = cache
            .belonging_to("o")
            .iter()
            .map(|live| live.name().to_owned())
            .collect();
        assert_eq!(names, ["listed", "written"]);
    }

    #[test]
    fn a_late_answer_does_not_bring_a_deleted_object_back() {
        let mut cache = Cache::default();
        cache.learn(ObjectKind::POD, &pod("a", "1", 5, "o"), false);
        assert!(cache.lose(ObjectKind::POD, &pod("a", "1", 7, "o")));
        assert_eq!(cache.learn(ObjectKind::POD, &pod("a", "1", 6, "o"), false), News::None);
        assert!(cache.belonging_to("o").is_empty());
        assert_eq!(
            cache.learn(ObjectKind::POD, &pod("a", "2", 8, "o"), false),
            News::Appeared
        );
    }
}
