//! Model files: `{"weights": […]}`, the arrays as they travel between trainers and aggregator.

use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::env::Env;
use crate::network::{Network, ShapeError};
use crate::tensor::Tensor;

/// Why a model file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file cannot be read.
    #[error("cannot read the model {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the model {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not JSON of the right form.
    #[error("{path} is not a model file ({{\"weights\": [arrays]}} is wanted): {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// Where it fails.
        source: serde_json::Error,
    },
    /// The arrays are not those of a classifier of digits.
    #[error("{path} is not a classifier of digits: {source}")]
    Shape {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        source: ShapeError,
    },
}

#[derive(Serialize, Deserialize)]
struct ModelFile<'a> {
    weights: std::borrow::Cow<'a, [Tensor]>,
}

/// Reads a classifier.
pub fn load(path: &Path) -> Result<Network, ModelError> {
    let text = std::fs::read(path).map_err(|source| ModelError::Read {
        path: path.to_owned(),
        source,
    })?;
    let file: ModelFile = serde_json::from_slice(&text).map_err(|source| ModelError::Json {
        path: path.to_owned(),
        source,
    })?;
    Network::from_weights(&file.weights).map_err(|source| ModelError::Shape {
        path: path.to_owned(),
        source,
    })
}

/// Writes weights so that whoever reads the file meanwhile finds the old ones or the new ones, never half of either.
pub fn save(path: &Path, weights: &[Tensor]) -> Result<(), ModelError> {
    let failed = |source| ModelError::Write {
        path: path.to_owned(),
        source,
    };
    let text = serde_json::to_vec(&ModelFile {
        weights: weights.into(),
    })
    .map_err(|error| failed(error.into()))?;
    // Workers share folders, and each is process 1 of its container.
    let unique = std::hash::RandomState::new().build_hasher().finish();
    let part = path.with_extension(format!("{unique:016x}.part"));
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, path))
        .map_err(failed)
}

/// The file that a worker should keep its model in: none where the variable is not set, or names something that it
/// cannot write (a remote URL, or the read-only copy that the storage initializer made of one).
pub fn output(env: &Env, variable: &'static str) -> Option<PathBuf> {
    let value = env.get(variable)?;
    let path = env.file(variable).ok().filter(|path| !path.starts_with("/downloads"));
    if path.is_none() {
        tracing::warn!("the model is not kept: {variable} is {value:?}, not a file that this worker can write");
    }
    path
}

/// How reports name the model of a variable: its format (the extension), and where it is as the user wrote it.
pub fn reported(env: &Env, variable: &'static str) -> (String, String) {
    let url = env.reported_path(Path::new(env.get(variable).unwrap_or_default()));
    let format = Path::new(&url)
        .extension()
        .map(|extension| extension.to_string_lossy().into_owned());
    (format.unwrap_or_default(), url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_what_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.json");
        let network = Network::with_hidden_layer(3, 5);
        save(&path, &network.weights()).unwrap();
        let loaded = load(&path).unwrap();
        // serde_json reads a float to within its last bit.
        assert!(loaded.distance(&network) < 1e-15);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "no part is left behind"
        );
    }

    #[test]
    fn what_is_no_model_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.json");
        assert!(load(&path).unwrap_err().to_string().contains("m.json"));
        for (text, problem) in [
            ("{}", "weights"),
            (r#"{"weights": []}"#, "0 arrays"),
            (r#"{"weights": [[[1, 2]], [1, 2]]}"#, "1 rows, 64 are wanted"),
            (r#"{"weights": [[1]]}"#, "1 arrays"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err();
            let message = format!("{error}");
            assert!(message.contains("m.json") && message.contains(problem), "{message}");
        }
    }
}
