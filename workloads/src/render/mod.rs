//! Children as JSON: what the user's template says, with what Sedna's worker contract adds.
//!
//! Nothing here decides whether a child should exist.

pub(crate) mod child;
pub(crate) mod env;
pub(crate) mod json;
pub(crate) mod owner;
pub(crate) mod storage;
pub(crate) mod template;
