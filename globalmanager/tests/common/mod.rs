//! What tests of the edge link begin with.

use skerry_edge::{Epoch, cloud::Server};

/// A manager's first term in a cluster.
pub(crate) fn first_term() -> Server {
    let epoch = Epoch {
        lease: "lease".to_owned(),
        transitions: 0,
        made: None,
    };
    Server {
        cluster: "cluster".to_owned(),
        epoch,
    }
}
