//! What a resource is: its description and the rules that its objects obey.

use std::sync::Arc;

use serde_json::Value;

use super::{status::GroupResource, store::TableName};
use crate::{
    schema::Schema,
    surface::{self, table::Printer},
};

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
    /// With each change outside of metadata, or of the labels.
    ContentOrLabels,
    /// With each change outside of metadata; there is no status subresource.
    All,
}

/// One resource of one version: what it is called, and the rules that its objects obey.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Resource {
    /// Names, scope, verbs, subresources.
    pub names: surface::Resource,
    /// When `metadata.generation` rises.
    pub generation: Generation,
    /// Where the scale subresource, if there is one, finds its numbers.
    pub scale: Option<ScalePaths>,
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
    /// Its entry among the definition's versions, if it has one: schema, printer columns.
    pub definition: Option<Arc<Value>>,
    /// `apiVersion` as stored.
    pub storage_version: String,
    /// What objects look like; `None` where nothing is known of it.
    pub schema: Option<Arc<Schema>>,
}

impl Resource {
    /// How objects are shown in tables.
    pub fn printer(&self) -> Printer {
        let columns = self.definition.as_ref().map(|definition| {
            let columns = definition.get("additionalPrinterColumns").and_then(Value::as_array);
            columns.map_or(&[][..], Vec::as_slice)
        });
        Printer::new(&self.names, columns)
    }

    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        self.names.api_version()
    }

    /// What those are told who use a version that is to go.
    pub fn deprecation(&self) -> Option<String> {
        let definition = self.definition.as_ref()?;
        definition.get("deprecated").filter(|deprecated| **deprecated == true)?;
        let warning = definition.get("deprecationWarning").and_then(Value::as_str);
        let otherwise = || format!("{} {} is deprecated", self.api_version(), self.names.kind);
        Some(warning.map_or_else(otherwise, str::to_owned))
    }

    /// Whether objects are stored as they are told.
    pub fn is_storage_version(&self) -> bool {
        self.api_version() == self.storage_version
    }

    /// Whether status is written through a subresource.
    pub fn has_status(&self) -> bool {
        self.names.has_subresource("status")
    }

    /// Group and plural name, for messages.
    pub fn name(&self) -> GroupResource {
        GroupResource {
            group: self.names.group.clone(),
            resource: self.names.plural.clone(),
        }
    }

    /// Group and kind, for messages. They name events by the core group, however they came.
    pub fn group_kind(&self) -> GroupResource {
        let event = self.names.group == "events.k8s.io";
        GroupResource {
            group: if event { String::new() } else { self.names.group.clone() },
            resource: self.names.kind.clone(),
        }
    }
}
