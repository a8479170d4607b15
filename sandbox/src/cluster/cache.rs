//! What the controllers know of the cluster: one table per kind, fed by watches and by the answers to their own writes.
//!
//! A controller that decides on what it saw before its last write would do that write twice. So an answer goes into the
//! table at once, and what a watch brings later counts only if it is newer (resource versions are one rising number).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Resource;
use kube::runtime::watcher::Event;

use super::meta::{Id, id, uid};

/// The objects of one kind by namespace and name.
#[derive(Debug)]
pub(crate) struct Table<K> {
    rows: BTreeMap<Id, Arc<K>>,
    /// The uids of what was deleted by an answer that the watch has not confirmed yet.
    gone: BTreeSet<String>,
    /// During a new list: what it has brought so far.
    listing: Option<BTreeSet<Id>>,
    listed: bool,
}

/// What a watch event changed: the object before and after.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change<K> {
    pub(crate) old: Option<Arc<K>>,
    pub(crate) new: Option<Arc<K>>,
}

impl<K> Change<K> {
    /// The object itself: as it is, or as it last was.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(&self.new)
    }
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            gone: BTreeSet::new(),
            listing: None,
            listed: false,
        }
    }
}

impl<K: Resource> Table<K> {
    pub(crate) fn get(&self, id: &Id) -> Option<&Arc<K>> {
        self.rows.get(id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.rows.values()
    }

    pub(crate) fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        self.rows
            .range((namespace.to_owned(), String::new())..)
            .take_while(move |((of, _), _)| of == namespace)
            .map(|(_, row)| row)
    }

    /// Whether a first list is complete.
    pub(crate) fn listed(&self) -> bool {
        self.listed
    }

    /// Takes in what the watch says; what it changed, if anything.
    pub(crate) fn watched(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Init => {
                self.listing = Some(BTreeSet::new());
                vec![]
            }
            Event::InitApply(object) => {
                let id = id(&object);
                if let Some(listing) = &mut self.listing {
                    listing.insert(id);
                }
                self.wrote(object).into_iter().collect()
            }
            Event::InitDone => self.list_done(),
            Event::Apply(object) => self.wrote(object).into_iter().collect(),
            Event::Delete(object) => {
                self.gone.remove(uid(&object));
                self.remove(&object).into_iter().collect()
            }
        }
    }

    /// Takes in an object as a watch or the answer to a write shows it; ignores what is older than what is known.
    pub(crate) fn wrote(&mut self, object: K) -> Option<Change<K>> {
        if self.gone.contains(uid(&object)) {
            return None;
        }
        let (id, object) = (id(&object), Arc::new(object));
        if let Some(listing) = &mut self.listing {
            listing.insert(id.clone());
        }
        if self
            .rows
            .get(&id)
            .is_some_and(|known| version(known.as_ref()) >= version(object.as_ref()))
        {
            return None;
        }
        let old = self.rows.insert(id, object.clone());
        Some(Change { old, new: Some(object) })
    }

    /// Takes in that the object with this uid no longer exists, by the answer to a request.
    pub(crate) fn deleted(&mut self, id: &Id, uid_of_gone: &str) -> Option<Change<K>> {
        let known = self.rows.get(id).filter(|known| uid(known.as_ref()) == uid_of_gone)?;
        self.gone.insert(uid(known.as_ref()).to_owned());
        self.rows.remove(id).map(|old| Change {
            old: Some(old),
            new: None,
        })
    }

    /// Shows an object as a request will make it, until the watch brings what became of it.
    pub(crate) fn assume(&mut self, id: &Id, change: impl FnOnce(&mut K))
    where
        K: Clone,
    {
        if let Some(row) = self.rows.get_mut(id) {
            change(Arc::make_mut(row));
        }
    }

    fn remove(&mut self, object: &K) -> Option<Change<K>> {
        let id = id(object);
        // An event about an object whose name has been taken again since.
        self.rows.get(&id).filter(|known| uid(known.as_ref()) == uid(object))?;
        self.rows.remove(&id).map(|old| Change {
            old: Some(old),
            new: None,
        })
    }

    fn list_done(&mut self) -> Vec<Change<K>> {
        self.listed = true;
        self.gone.clear();
        let seen = self.listing.take().unwrap_or_default();
        let missing: Vec<Id> = self.rows.keys().filter(|id| !seen.contains(*id)).cloned().collect();
        missing
            .iter()
            .filter_map(|id| self.rows.remove(id))
            .map(|old| Change {
                old: Some(old),
                new: None,
            })
            .collect()
    }
}

fn version<K: Resource>(object: &K) -> u64 {
    // A version that is no number sorts as the newest: then the last one seen wins, as without this comparison.
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(u64::MAX)
}

macro_rules! cache {
    ($($table:ident: $kind:ty,)+) => {
        /// Everything that the controllers look at.
        #[derive(Debug, Default)]
        pub(crate) struct Cache {
            $(pub(crate) $table: Table<$kind>,)+
        }

        impl Cache {
            /// Whether every kind was listed once, so that what is not here does not exist.
            pub(crate) fn listed(&self) -> bool {
                $(self.$table.listed())&&+
            }
        }

        $(impl Stored for $kind {
            fn table(cache: &mut Cache) -> &mut Table<Self> {
                &mut cache.$table
            }
        })+
    };
}

/// A kind that has a table.
pub(crate) trait Stored: Resource<DynamicType = ()> + Sized {
    fn table(cache: &mut Cache) -> &mut Table<Self>;
}

cache! {
    deployments: Deployment,
    replica_sets: ReplicaSet,
    pods: Pod,
    services: Service,
    slices: EndpointSlice,
    nodes: Node,
    leases: Lease,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str, version: u32) -> Pod {
        let meta = json!({"namespace": "default", "name": name, "uid": uid, "resourceVersion": version.to_string()});
        serde_json::from_value(json!({"metadata": meta})).unwrap()
    }

    fn names(table: &Table<Pod>) -> Vec<&str> {
        table.all().filter_map(|pod| pod.metadata.name.as_deref()).collect()
    }

    #[test]
    fn an_older_event_does_not_undo_a_write() {
        let mut table = Table::default();
        table.watched(Event::Apply(pod("a", "1", 5)));
        assert!(table.wrote(pod("a", "1", 7)).is_some());
        assert_eq!(table.watched(Event::Apply(pod("a", "1", 6))), []);
        assert_eq!(table.watched(Event::Apply(pod("a", "1", 7))), []);
        assert_eq!(table.watched(Event::Apply(pod("a", "1", 8))).len(), 1);
    }

    #[test]
    fn a_late_event_does_not_bring_back_what_was_deleted() {
        let mut table = Table::default();
        table.watched(Event::Apply(pod("a", "1", 5)));
        assert!(table.deleted(&("default".into(), "a".into()), "1").is_some());
        table.watched(Event::Apply(pod("a", "1", 6)));
        assert_eq!(names(&table), [""; 0]);
        // The name is free for another object at once.
        table.watched(Event::Apply(pod("a", "2", 8)));
        table.watched(Event::Delete(pod("a", "1", 7)));
        assert_eq!(names(&table), ["a"]);
    }

    #[test]
    fn a_new_list_drops_what_it_does_not_name() {
        let mut table = Table::default();
        table.watched(Event::Init);
        table.watched(Event::InitApply(pod("a", "1", 1)));
        table.watched(Event::InitApply(pod("b", "2", 2)));
        assert!(!table.listed());
        table.watched(Event::InitDone);
        assert!(table.listed());
        table.watched(Event::Init);
        table.wrote(pod("c", "3", 4));
        table.watched(Event::InitApply(pod("b", "2", 2)));
        let changes = table.watched(Event::InitDone);
        assert_eq!(changes.len(), 1);
        assert_eq!(names(&table), ["b", "c"]);
    }

    #[test]
    fn a_namespace_is_its_own_range() {
        let mut table = Table::default();
        for (namespace, name) in [("a", "x"), ("ab", "y"), ("b", "z")] {
            table.wrote(Pod {
                metadata: kube::core::ObjectMeta {
                    namespace: Some(namespace.into()),
                    ..pod(name, name, 1).metadata
                },
                ..Pod::default()
            });
        }
        assert_eq!(table.within("a").count(), 1);
        assert_eq!(table.within("").count(), 0);
    }
}
