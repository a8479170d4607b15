//! The API types of Skerry: resources, their names and labels, their schemas.
//!
//! This crate decides what a manifest may say ([`all`]) and how everything is called ([`names`]). It never talks to a
//! cluster and never decides what follows from a manifest.

pub mod conditions;
mod definitions;
mod manifest;
pub mod names;
mod schema;
pub mod sedna;
pub mod skerry;
pub mod template;

pub use definitions::{all, document, file_name, yaml};
