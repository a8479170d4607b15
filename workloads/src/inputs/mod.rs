//! What workers are made from: addresses of models and data sets, credentials, and the hash of it all.

pub(crate) mod credential;
pub(crate) mod hash;
pub(crate) mod location;
pub(crate) mod source;
