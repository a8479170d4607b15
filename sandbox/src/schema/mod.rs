//! Structural schemas, of custom resources and of the built-in types: validation, defaulting, pruning, CEL, and how
//! lists are merged. Pure functions; never stores anything, never decides which verb is asked.

mod admit;
mod builtin;
mod cel;
mod crd;
mod default;
mod embedded;
mod format;
mod limits;
mod lists;
mod mentioned;
mod metadata;
pub(crate) mod names;
mod node;
mod number;
mod parse;
mod path;
mod pattern;
mod prune;
mod read;
mod validate;

pub use builtin::{builtin, component_schemas, object_meta, type_name};
pub use crd::{default_definition, validate_definition};
pub use metadata::{validate_metadata, validate_metadata_update};
pub use names::NameRule;
pub use node::{ListKind, PatchStrategy, Schema};
pub(crate) use number::{is_same, make_whole};
pub use read::read_json;

#[cfg(test)]
mod tests;
