//! Makes what the examples work on: the CSV files and the large model. Each run makes the same files.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use crate::data::{self, DataError, Parts, Sample};
use crate::model::{self, ModelError};
use crate::network::Network;
use crate::recipe::{LARGE, Recipe};

/// `skerry-worker data`: puts the samples and the large model into a folder, as the examples' manifests expect them.
#[derive(Debug, clap::Args)]
pub struct DataArgs {
    /// The folder; `digits/` and `models/` are made in it
    #[arg(long, env = "DATA_DIR", value_name = "DIR")]
    pub to: PathBuf,
    /// Number of the user (and group) that all of it is given to: who else runs on the node writes models there
    #[arg(long, env = "DATA_OWNER", value_name = "UID")]
    pub owner: Option<u32>,
}

/// `skerry-worker train-central`: trains a model on samples that lie in one place. The defaults make the large model of
/// the joint inference example.
#[derive(Debug, clap::Args)]
pub struct TrainCentralArgs {
    /// Samples to train on, CSV; may be given more than once
    #[arg(long, required = true, value_name = "FILE")]
    pub train: Vec<PathBuf>,
    /// Samples to judge the model by, CSV
    #[arg(long, value_name = "FILE")]
    pub test: Option<PathBuf>,
    /// How to train
    #[command(flatten)]
    pub recipe: Recipe,
    /// Where to write the model
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Why the files cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MaterialsError {
    /// Samples cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model cannot be written.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A folder or file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Writes `digits/train-1.csv`, `train-2.csv`, `test.csv`, `stream.csv` and `models/digits-large.json` below a folder.
pub fn write_data(args: &DataArgs) -> Result<(), MaterialsError> {
    let parts = Parts::built_in()?;
    let (digits, models) = (args.to.join("digits"), args.to.join("models"));
    for folder in [&digits, &models] {
        std::fs::create_dir_all(folder).map_err(write_error(folder))?;
    }
    for (name, samples) in parts.files() {
        let path = digits.join(name);
        std::fs::write(&path, data::to_csv(samples)).map_err(write_error(&path))?;
        tracing::info!("{} samples in {}", samples.len(), path.display());
    }
    write_model(
        &parts.train.concat(),
        Some(&parts.test),
        &LARGE,
        &models.join("digits-large.json"),
    )?;
    if let Some(owner) = args.owner {
        for folder in [&digits, &models] {
            match give(folder, owner) {
                // Where nothing runs as root, all runs as one user.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    tracing::warn!(
                        "only root may give {} to user {owner}; it stays as it is",
                        folder.display()
                    );
                }
                given => given.map_err(write_error(folder))?,
            }
        }
    }
    Ok(())
}

/// Gives a folder and the files in it to a user.
fn give(folder: &Path, owner: u32) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        chown(entry?.path(), Some(owner), Some(owner))?;
    }
    chown(folder, Some(owner), Some(owner))
}

/// Trains and writes one model.
pub fn train_central(args: &TrainCentralArgs) -> Result<(), MaterialsError> {
    let TrainCentralArgs {
        train,
        test,
        recipe,
        out,
    } = args;
    let samples = train
        .iter()
        .map(|path| data::read(path))
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    let test = test.as_ref().map(|path| data::read(path)).transpose()?;
    write_model(&samples, test.as_deref(), recipe, out)
}

fn write_model(samples: &[Sample], test: Option<&[Sample]>, recipe: &Recipe, out: &Path) -> Result<(), MaterialsError> {
    let network: Network = recipe.train(samples);
    model::save(out, &network.weights())?;
    let judged = test.map(|test| format!(", accuracy {:.4} on {} others", network.accuracy(test), test.len()));
    tracing::info!(
        "trained on {} samples{}: {}",
        samples.len(),
        judged.unwrap_or_default(),
        out.display()
    );
    Ok(())
}

fn write_error(path: &Path) -> impl FnOnce(std::io::Error) -> MaterialsError {
    let path = path.to_owned();
    |source| MaterialsError::Write { path, source }
}
