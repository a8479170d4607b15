//! What is made of what was observed: how pods and Deployments are doing, and what conditions say of it.

pub(crate) mod conditions;
pub(crate) mod deployment;
pub(crate) mod metrics;
pub(crate) mod pod;
