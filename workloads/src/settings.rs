//! What whoever runs the manager has settled for all resources: the only input of a plan that no resource states.

use std::time::Duration;

/// What whoever runs the manager decides for all resources. Some of it reaches workers: a change of these may roll every
/// worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where a worker in its node's network finds the node's local controller (`LC_SERVER`); Sedna's configuration
    /// key `localController.server`.
    pub local_controller_server: String,
    /// The image of the container that fetches models and data sets before a worker starts. Its tag names the version
    /// of its arguments, not of the manager, so that a newer manager rolls no Deployment.
    pub storage_initializer_image: String,
    /// A pod that was lost is replaced no sooner than this after it was made: a node may keep rejecting it.
    pub replace_lost_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            local_controller_server: "http://localhost:9100".to_owned(),
            storage_initializer_image: "skerry/storage-initializer:v1".to_owned(),
            replace_lost_after: Duration::from_secs(10),
        }
    }
}
