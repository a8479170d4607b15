//! Why a Dataset cannot be counted, in words for its status: each names the place and the cause, none a secret.

use std::io;

use thiserror::Error;

use super::count::CountError;

/// Why a Dataset cannot be counted. Its status says so until it can be again.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// The url is none that can be read from here.
    #[error("spec.url {url:?} {problem}")]
    Url {
        /// The url, without what may be secret in it.
        url: String,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
    /// The credential has not come, or lacks something.
    #[error("spec.credentialName {name}: {problem}")]
    Credential {
        /// The Secret's name.
        name: String,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
    /// The file cannot be read on this node.
    #[error("{path} on this node: {error}")]
    File {
        /// Its path on the host.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// What is there is no file.
    #[error("{path} on this node is not a file")]
    NotAFile {
        /// Its path on the host.
        path: String,
    },
    /// It cannot be fetched.
    #[error("{url}: {problem}")]
    Fetch {
        /// The url, without what may be secret in it.
        url: String,
        /// What the other side or the network says.
        problem: String,
    },
    /// It was read, but its samples cannot be told apart.
    #[error("{place}: {error}")]
    Count {
        /// The url, without what may be secret in it.
        place: String,
        /// What is wrong.
        error: CountError,
    },
}
