//! `skerry crds`: the custom resource definitions.

use crate::failure::{Failure, print};

/// Prints them as YAML documents.
pub(crate) fn run() -> Result<(), Failure> {
    let yaml = skerry_crds::yaml().map_err(Failure::defect)?;
    print(&yaml)
}
