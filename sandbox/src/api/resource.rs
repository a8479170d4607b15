//! What a resource is: its names, its scope, its subresources, and the rules its objects obey.

use super::{status::GroupResource, store::TableName};

/// Where a scale subresource finds its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// JSON path of the wanted replicas, such as `.spec.replicas`.
    pub spec: String,
    /// JSON path of the observed replicas.
    pub status: String,
    /// JSON path of the selector, if there is one.
    pub selector: Option<String>,
}

/// When `metadata.generation` rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The resource has none.
    None,
    /// With each change of the spec.
    Spec,
    /// With each change of the spec or the annotations.
    SpecOrAnnotations,
    /// With each change outside of metadata and status.
    Content,
    /// With each change outside of metadata; there is no status subresource.
    All,
}

/// One resource of one version.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name, as in paths.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Kind.
    pub kind: String,
    /// Kind of lists.
    pub list_kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names for `kubectl`.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Whether status is written through a subresource.
    pub status: bool,
    /// The scale subresource, if there is one.
    pub scale: Option<ScalePaths>,
    /// When `metadata.generation` rises.
    pub generation: Generation,
    /// Whether a `PUT` of what does not exist creates it.
    pub create_on_update: bool,
    /// Whether an update may leave out the `resourceVersion`.
    pub unconditional_update: bool,
    /// Whether a deletion answers with the object rather than with a `Status`.
    pub returns_deleted: bool,
    /// The resource is defined by a `CustomResourceDefinition`.
    pub custom: bool,
    /// Where objects are stored; versions of one resource share it.
    pub table: TableName,
    /// `apiVersion` as stored.
    pub storage_version: String,
}

impl Resource {
    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Group and plural name, for messages.
    pub fn name(&self) -> GroupResource {
        GroupResource {
            group: self.group.clone(),
            resource: self.plural.clone(),
        }
    }

    /// Group and kind, for messages.
    pub fn group_kind(&self) -> GroupResource {
        GroupResource {
            group: self.group.clone(),
            resource: self.kind.clone(),
        }
    }
}

/// `group/version`, or the version alone in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}
