//! Which resources there are: the built-in ones, and those that definitions add and take away.

use std::{collections::BTreeMap, sync::Arc};

use super::{builtin, resource::Resource};

/// The resources, by group, version and plural name.
pub struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    /// The built-in resources.
    pub fn builtin() -> Self {
        let mut registry = Self {
            resources: BTreeMap::new(),
        };
        for resource in builtin::resources() {
            registry.add(resource);
        }
        registry
    }

    /// One resource.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// All of them, in order of group, version and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Whether a group and version are built in.
    pub fn is_builtin_version(&self, group: &str, version: &str) -> bool {
        self.iter()
            .any(|r| !r.custom && r.names.group == group && r.names.version == version)
    }

    pub(super) fn add(&mut self, resource: Resource) {
        let key = (
            resource.names.group.clone(),
            resource.names.version.clone(),
            resource.names.plural.clone(),
        );
        self.resources.insert(key, Arc::new(resource));
    }

    /// Removes all versions of a custom resource.
    pub(super) fn remove(&mut self, group: &str, plural: &str) {
        self.resources
            .retain(|(g, _, p), resource| !(resource.custom && g == group && p == plural));
    }
}
