//! Why something is not where a worker expects it.

use std::path::{Path, PathBuf};

/// Every error names what was to be fetched, or the argument or variable at fault. Secrets in URLs are left out.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The command line is not pairs of a URL and a folder.
    #[error("the arguments are {0}: pairs of a source and a folder are wanted")]
    Usage(String),
    /// A variable has a value that cannot be used.
    #[error("{name}: {problem}")]
    Variable {
        /// The variable.
        name: String,
        /// What is wrong and what is wanted.
        problem: String,
    },
    /// The URL is of no kind that can be fetched.
    #[error("cannot fetch {url}: {problem}")]
    Source {
        /// The URL.
        url: String,
        /// What is wrong and what is wanted.
        problem: String,
    },
    /// There is nothing.
    #[error("there is nothing at {url}")]
    Missing {
        /// The URL.
        url: String,
    },
    /// The other side does not give it.
    #[error("cannot fetch {url}: {problem}")]
    Remote {
        /// The URL.
        url: String,
        /// What happened last.
        problem: String,
    },
    /// It cannot be put into place.
    #[error("cannot put {url} into place: {path}: {source}")]
    Write {
        /// The URL.
        url: String,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// An archive is broken, or reaches beyond its folder.
    #[error("cannot unpack {url}: {problem}")]
    Archive {
        /// The URL.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The list of files to fetch is not one.
    #[error("the index {url}: {problem}")]
    Index {
        /// The URL.
        url: String,
        /// What is wrong and what is wanted.
        problem: String,
    },
}

impl FetchError {
    /// For `map_err` on what writes `path`.
    pub(crate) fn write(url: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let (url, path) = (url.to_owned(), path.to_owned());
        |source| Self::Write { url, path, source }
    }
}
