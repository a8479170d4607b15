//! The verbs, one file each. They decide what is stored and what is answered.

mod admit;
mod create;
mod delete;
mod list;
mod own;
mod patch;
mod pod;
mod review;
mod scale;
mod update;

pub(in crate::api) use list::fields_of;
pub(in crate::api) use patch::PatchKind;
