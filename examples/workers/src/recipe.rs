//! How a model is trained: the shape of the network and the settings of the descent. The same recipe and samples give
//! the same model.

use crate::data::Sample;
use crate::env::{Env, EnvError};
use crate::network::Network;

/// A recipe.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Recipe {
    /// Units of the hidden layer; 0 for softmax regression
    #[arg(long = "hidden", value_name = "UNITS", default_value_t = LARGE.hidden)]
    pub hidden: usize,
    /// How often to go through the samples
    #[arg(long, value_name = "N", default_value_t = LARGE.epochs)]
    pub epochs: u32,
    /// Length of a step of the descent
    #[arg(long, default_value_t = LARGE.rate)]
    pub rate: f64,
    /// Seed of the order of the samples and of the first weights
    #[arg(long, default_value_t = LARGE.seed)]
    pub seed: u64,
}

/// The large model of the joint inference example, trained on all that the trainers have.
pub const LARGE: Recipe = Recipe {
    hidden: 32,
    epochs: 20,
    rate: 0.05,
    seed: 1,
};
/// One round of a trainer of the federated example.
pub const ROUND: Recipe = Recipe {
    hidden: 0,
    epochs: 4,
    rate: 0.2,
    seed: 1,
};

impl Recipe {
    /// The recipe of a trainer's round; `HIDDEN_UNITS`, `EPOCHS`, `LEARNING_RATE` and `SEED` change it.
    pub fn from_env(env: &Env) -> Result<Self, EnvError> {
        let rate = env.parsed("LEARNING_RATE", ROUND.rate, "a number above 0")?;
        if !(rate > 0.0 && rate.is_finite()) {
            let wanted = "a number above 0".into();
            return Err(EnvError::Invalid {
                name: "LEARNING_RATE",
                value: rate.to_string(),
                wanted,
            });
        }
        Ok(Self {
            hidden: env.parsed("HIDDEN_UNITS", ROUND.hidden, "a whole number, 0 for no hidden layer,")?,
            epochs: env.count("EPOCHS", ROUND.epochs)?,
            rate,
            seed: env.parsed("SEED", ROUND.seed, "a whole number")?,
        })
    }

    /// The network before any training.
    pub fn untrained(&self) -> Network {
        match self.hidden {
            0 => Network::softmax(),
            hidden => Network::with_hidden_layer(hidden, self.seed),
        }
    }

    /// Trains on, in an order of the samples that no other round has.
    pub fn train_round(&self, network: &mut Network, samples: &[Sample], round: u32) {
        network.train(
            samples,
            self.epochs,
            self.rate,
            self.seed.wrapping_add(u64::from(round)),
        );
    }

    /// A network trained from nothing.
    pub fn train(&self, samples: &[Sample]) -> Network {
        let mut network = self.untrained();
        self.train_round(&mut network, samples, 0);
        network
    }
}
