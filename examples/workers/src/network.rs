//! The classifier: a feed-forward network of dense layers with a softmax at its end.
//!
//! Without a hidden layer it is softmax regression (the small model); with one it is the larger model of the cloud.
//! Decides what a digit is and how one sample changes the weights. Never reads data, files or the environment.

use crate::data::{CLASSES, PIXELS, Sample, WHITE};
use crate::rng::Rng;
use crate::tensor::Tensor;

/// Why weights do not make a network.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// Weights come in pairs of a matrix and a vector, one pair per layer.
    #[error("{0} arrays of weights: a matrix and a vector per layer are wanted")]
    Pairs(usize),
    /// A layer's matrix does not have as many rows as the layer before it has outputs.
    #[error("layer {layer}: the matrix has {rows} rows, {wanted} are wanted")]
    Rows {
        /// Counted from 0.
        layer: usize,
        /// What the matrix has.
        rows: usize,
        /// What the layer before it gives.
        wanted: usize,
    },
    /// A row of the matrix, or a value in it, is not what the layer's vector of biases asks for.
    #[error("layer {0}: each row of the matrix must be as long as the vector of biases, and all numbers finite")]
    Columns(usize),
    /// The last layer must have one output per class.
    #[error("the last layer has {0} outputs, {CLASSES} are wanted")]
    Classes(usize),
}

/// A dense layer. The matrix is kept by rows, one per input, as Keras does: so the weights of both ends look alike.
#[derive(Debug, Clone, PartialEq)]
struct Layer {
    matrix: Vec<f64>,
    biases: Vec<f64>,
}

impl Layer {
    fn zeros(inputs: usize, outputs: usize) -> Self {
        Self {
            matrix: vec![0.0; inputs * outputs],
            biases: vec![0.0; outputs],
        }
    }

    /// He's uniform initialisation, which keeps the scale of signals through a rectifier.
    #[expect(clippy::cast_precision_loss, reason = "layers are small")]
    fn random(inputs: usize, outputs: usize, rng: &mut Rng) -> Self {
        let limit = (6.0 / inputs as f64).sqrt();
        let mut layer = Self::zeros(inputs, outputs);
        layer.matrix.fill_with(|| (2.0 * rng.unit() - 1.0) * limit);
        layer
    }

    fn rows(&self) -> std::slice::ChunksExact<'_, f64> {
        self.matrix.chunks_exact(self.biases.len())
    }

    fn forward(&self, inputs: &[f64]) -> Vec<f64> {
        let mut outputs = self.biases.clone();
        for (input, row) in inputs.iter().zip(self.rows()) {
            if *input != 0.0 {
                outputs
                    .iter_mut()
                    .zip(row)
                    .for_each(|(output, weight)| *output += input * weight);
            }
        }
        outputs
    }

    /// How much each input had to do with the errors of the outputs.
    fn input_errors(&self, errors: &[f64]) -> Vec<f64> {
        self.rows()
            .map(|row| row.iter().zip(errors).map(|(weight, error)| weight * error).sum())
            .collect()
    }

    /// One gradient step.
    fn learn(&mut self, inputs: &[f64], errors: &[f64], rate: f64) {
        for (row, input) in self.matrix.chunks_exact_mut(self.biases.len()).zip(inputs) {
            // Most pixels of an image, and many units, are off.
            if *input != 0.0 {
                for (weight, error) in row.iter_mut().zip(errors) {
                    *weight -= rate * error * input;
                }
            }
        }
        for (bias, error) in self.biases.iter_mut().zip(errors) {
            *bias -= rate * error;
        }
    }
}

/// A classifier of 8×8 digits. Equality is that of every weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    layers: Vec<Layer>,
}

impl Network {
    /// Softmax regression, all weights zero: every trainer starts from the same point.
    pub fn softmax() -> Self {
        Self {
            layers: vec![Layer::zeros(PIXELS, CLASSES)],
        }
    }

    /// A network with one hidden layer of `hidden` rectified units, its weights drawn from `seed`.
    pub fn with_hidden_layer(hidden: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            layers: vec![
                Layer::random(PIXELS, hidden, &mut rng),
                Layer::random(hidden, CLASSES, &mut rng),
            ],
        }
    }

    /// The probability of each digit for an image of 64 pixels (0 to 16, row by row).
    pub fn probabilities(&self, pixels: &[f64]) -> Vec<f64> {
        self.activations(pixels).pop().unwrap_or_default()
    }

    /// The inputs, then the output of each layer, the last one as probabilities.
    fn activations(&self, pixels: &[f64]) -> Vec<Vec<f64>> {
        let mut activations = vec![pixels.iter().map(|pixel| pixel / WHITE).collect::<Vec<_>>()];
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            let mut outputs = layer.forward(activations.last().map_or(&[], Vec::as_slice));
            if index == last {
                softmax(&mut outputs);
            } else {
                for output in &mut outputs {
                    *output = output.max(0.0);
                }
            }
            activations.push(outputs);
        }
        activations
    }

    /// One step of stochastic gradient descent on the cross entropy of one sample.
    fn learn(&mut self, sample: &Sample, rate: f64) {
        let mut activations = self.activations(&sample.pixels);
        let Some(mut errors) = activations.pop() else { return };
        if let Some(of_label) = errors.get_mut(sample.label) {
            *of_label -= 1.0;
        }
        for (depth, (layer, inputs)) in self.layers.iter_mut().zip(&activations).enumerate().rev() {
            // Nobody asks for the errors of the pixels.
            let mut input_errors = if depth > 0 {
                layer.input_errors(&errors)
            } else {
                Vec::new()
            };
            layer.learn(inputs, &errors, rate);
            // The derivative of the rectifier: nothing flows back through a unit that was off.
            for (error, _) in input_errors.iter_mut().zip(inputs).filter(|(_, input)| **input <= 0.0) {
                *error = 0.0;
            }
            errors = input_errors;
        }
    }

    /// Goes `epochs` times through the samples, each time in another order; the same `seed` gives the same orders.
    pub fn train(&mut self, samples: &[Sample], epochs: u32, rate: f64, seed: u64) {
        let mut rng = Rng::new(seed);
        let mut order: Vec<&Sample> = samples.iter().collect();
        for _ in 0..epochs {
            rng.shuffle(&mut order);
            for sample in &order {
                self.learn(sample, rate);
            }
        }
    }

    /// The share of samples whose most probable digit is the right one; 0 for no samples.
    #[expect(clippy::cast_precision_loss, reason = "counts of samples are small")]
    pub fn accuracy(&self, samples: &[Sample]) -> f64 {
        let right = samples
            .iter()
            .filter(|sample| most_probable(&self.probabilities(&sample.pixels)) == sample.label);
        right.count() as f64 / samples.len().max(1) as f64
    }

    /// The weights as they travel and are stored: for each layer its matrix (one row per input), then its biases.
    pub fn weights(&self) -> Vec<Tensor> {
        let layers = self.layers.iter();
        layers
            .flat_map(|layer| [layer.rows().map(Tensor::from).collect(), Tensor::from(&*layer.biases)])
            .collect()
    }

    /// The network that has these weights; the reverse of [`Self::weights`].
    pub fn from_weights(weights: &[Tensor]) -> Result<Self, ShapeError> {
        let mut layers = Vec::new();
        let mut inputs = PIXELS;
        for (index, pair) in weights.chunks(2).enumerate() {
            let [matrix, biases] = pair else {
                return Err(ShapeError::Pairs(weights.len()));
            };
            let biases = biases
                .numbers()
                .filter(|biases| !biases.is_empty())
                .ok_or(ShapeError::Columns(index))?;
            let rows = matrix.items().ok_or(ShapeError::Columns(index))?;
            if rows.len() != inputs {
                return Err(ShapeError::Rows {
                    layer: index,
                    rows: rows.len(),
                    wanted: inputs,
                });
            }
            let of_right_length = |row: &Tensor| row.numbers().filter(|row| row.len() == biases.len());
            let matrix: Option<Vec<Vec<f64>>> = rows.iter().map(of_right_length).collect();
            let matrix = matrix.ok_or(ShapeError::Columns(index))?.concat();
            if !matrix.iter().chain(&biases).all(|weight| weight.is_finite()) {
                return Err(ShapeError::Columns(index));
            }
            inputs = biases.len();
            layers.push(Layer { matrix, biases });
        }
        match inputs {
            CLASSES if !layers.is_empty() => Ok(Self { layers }),
            _ if layers.is_empty() => Err(ShapeError::Pairs(0)),
            outputs => Err(ShapeError::Classes(outputs)),
        }
    }
}

#[cfg(test)]
impl Network {
    /// The largest difference of a weight; infinite for networks of different shapes.
    pub(crate) fn distance(&self, other: &Self) -> f64 {
        let numbers = |network: &Self| -> Vec<f64> {
            network
                .layers
                .iter()
                .flat_map(|layer| layer.matrix.iter().chain(&layer.biases).copied())
                .collect()
        };
        let (a, b) = (numbers(self), numbers(other));
        let differences = a.iter().zip(&b).map(|(a, b)| (a - b).abs());
        if a.len() == b.len() {
            differences.fold(0.0, f64::max)
        } else {
            f64::INFINITY
        }
    }
}

/// The index of the largest value; the first one of equals.
pub fn most_probable(probabilities: &[f64]) -> usize {
    let larger =
        |best: (usize, f64), (index, value): (usize, &f64)| if *value > best.1 { (index, *value) } else { best };
    probabilities.iter().enumerate().fold((0, f64::NEG_INFINITY), larger).0
}

fn softmax(values: &mut [f64]) {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for value in &mut *values {
        *value = (*value - largest).exp();
    }
    let total: f64 = values.iter().sum();
    for value in values {
        *value /= total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(label: usize) -> Sample {
        let mut pixels = vec![0.0; PIXELS];
        pixels[label] = WHITE;
        pixels[63 - label] = WHITE / 2.0;
        Sample { pixels, label }
    }

    /// The loss of one sample, to compare the descent with the slope that it should follow.
    fn loss(network: &Network, sample: &Sample) -> f64 {
        -network.probabilities(&sample.pixels)[sample.label].ln()
    }

    #[test]
    fn a_step_follows_the_slope_of_the_loss() {
        const H: f64 = 1e-6;
        const RATE: f64 = 1e-4;
        let network = Network::with_hidden_layer(7, 3);
        let sample = sample(4);
        let mut stepped = network.clone();
        stepped.learn(&sample, RATE);
        for layer in 0..2 {
            for index in 0..network.layers[layer].matrix.len() {
                let moved = |by: f64| {
                    let mut network = network.clone();
                    network.layers[layer].matrix[index] += by;
                    loss(&network, &sample)
                };
                let slope = (moved(H) - moved(-H)) / (2.0 * H);
                let step = network.layers[layer].matrix[index] - stepped.layers[layer].matrix[index];
                assert!(
                    (step / RATE - slope).abs() < 1e-5,
                    "layer {layer}, weight {index}: {step} for slope {slope}"
                );
            }
        }
    }

    #[test]
    fn it_learns_what_it_is_shown_the_same_way_each_time() {
        let samples: Vec<Sample> = (0..CLASSES).map(sample).collect();
        for untrained in [Network::softmax(), Network::with_hidden_layer(16, 1)] {
            let train = |seed| {
                let mut network = untrained.clone();
                network.train(&samples, 50, 0.1, seed);
                network
            };
            assert!((train(1).accuracy(&samples) - 1.0).abs() < f64::EPSILON);
            assert!(train(1) == train(1) && train(1) != train(2));
        }
    }

    #[test]
    fn probabilities_are_probabilities_even_for_extreme_inputs() {
        let mut network = Network::softmax();
        network.train(&[sample(0)], 1, 1e6, 1);
        let probabilities = network.probabilities(&sample(0).pixels);
        assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(most_probable(&[0.2, 0.4, 0.4]), 1);
    }

    #[test]
    fn weights_make_the_network_that_they_came_from() {
        for network in [Network::softmax(), Network::with_hidden_layer(5, 9)] {
            assert!(Network::from_weights(&network.weights()) == Ok(network));
        }
    }

    #[test]
    fn weights_of_another_shape_are_refused() {
        let mut ragged = Network::softmax().weights();
        let Tensor::List(rows) = &mut ragged[0] else { panic!() };
        rows[5] = Tensor::from(&[1.0][..]);
        assert_eq!(Network::from_weights(&ragged), Err(ShapeError::Columns(0)));
        let two_classes = [
            vec![Tensor::from(&[0.0; 2][..]); PIXELS].into_iter().collect(),
            Tensor::from(&[0.0; 2][..]),
        ];
        assert_eq!(Network::from_weights(&two_classes), Err(ShapeError::Classes(2)));
    }
}
