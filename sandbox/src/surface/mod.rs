//! What clients ask around the objects: discovery, `OpenAPI`, tables, strategic merge patch. Pure functions over plain
//! data; nothing here stores, routes or decides whether a request is allowed.

mod builtin;
mod discovery;
pub mod jsonpath;
pub mod openapi;
pub mod protobuf;
mod resource;
pub mod strategic;
pub mod table;
mod version;

pub use builtin::builtin_resources;
pub use discovery::{AGGREGATED, Discovery};
pub use resource::{Resource, STORED, Subresource, api_version, split_api_version};
pub use version::{GIT_VERSION, architecture, version};
