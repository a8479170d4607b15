//! Who owns which fields after a write.

use serde_json::{Value, json};

use crate::api::{
    apply::{FieldSet, Owner, Typed},
    builtin,
    convert::from_storage,
    options::WriteOptions,
    state::{Call, State},
};

impl Call<'_> {
    /// The object's type, as ownership sees it through this endpoint.
    pub(in crate::api) fn typed(&self) -> Typed<'_> {
        Typed {
            schema: self.resource.schema.as_deref(),
            api_version: self.resource.api_version(),
            empty: self.empty(),
            reset: self.reset_fields(),
        }
    }

    /// An object of which nothing is set, as ownership sees one that does not exist yet.
    pub(in crate::api) fn empty(&self) -> Value {
        if self.resource.custom {
            json!({})
        } else {
            builtin::empty(self.resource)
        }
    }

    /// Fields that the endpoint puts back to what they were, whatever is sent.
    fn reset_fields(&self) -> FieldSet {
        match (self.request.subresource.as_str(), self.resource.names.kind.as_str()) {
            ("status", _) if self.resource.custom => FieldSet::of(&[&["spec"]]),
            ("status", "CustomResourceDefinition") => FieldSet::of(&[&["spec"], &["metadata"]]),
            ("status", "Deployment") => FieldSet::of(&[&["spec"], &["metadata", "labels"]]),
            ("status", "Pod") => FieldSet::of(&[
                &["spec"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ]),
            ("status", _) => FieldSet::of(&[&["spec"]]),
            _ if self.resource.has_status() => FieldSet::of(&[&["status"]]),
            _ => FieldSet::default(),
        }
    }

    pub(in crate::api) fn owner(&self, options: &WriteOptions, applied: bool) -> Owner {
        Owner::new(
            &options.manager,
            applied,
            &self.request.subresource,
            &self.resource.api_version(),
        )
    }
}

impl State {
    /// Gives the fields that a write other than an apply changes to its manager. `live` is `None` for a new object.
    pub(in crate::api) fn own(&self, call: &Call<'_>, live: Option<&Value>, new: &mut Value, options: &WriteOptions) {
        let (owner, typed) = (call.owner(options, false), call.typed());
        let live = live.map(|live| from_storage(call.resource, live));
        typed.update(live.as_deref().unwrap_or(&typed.empty), new, &owner, self.clock.now());
    }
}
