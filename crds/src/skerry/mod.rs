//! The API group `skerry.io`: what Sedna has no kind for.

pub mod v1alpha1;
