//! The workers over real sockets, and as processes.

#[cfg(test)]
mod aggregation;
#[cfg(test)]
mod federated;
#[cfg(test)]
mod joint;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod process;
#[cfg(test)]
mod support;
