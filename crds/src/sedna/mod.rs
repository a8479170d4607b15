//! The API group `sedna.io`: every kind that KubeEdge Sedna has, field by field.

#![allow(
    clippy::duplicated_attributes,
    reason = "every printer column has a type, and most have the same"
)]

pub mod v1alpha1;
