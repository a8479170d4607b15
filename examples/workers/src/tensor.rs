//! Arrays of numbers as Sedna's workers send them: nested JSON lists of any rank.

use serde::{Deserialize, Serialize};

/// A number, or a list of arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Tensor {
    /// An array of rank 0.
    Number(f64),
    /// An array of rank 1 or more.
    List(Vec<Tensor>),
}

/// Why arrays cannot be averaged.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AverageError {
    /// Nobody contributed a sample.
    #[error("num_samples is 0 for every participant: at least one sample is wanted")]
    NoSamples,
    /// The weights of two participants have different shapes.
    #[error("the weights differ in shape from those of the other participants")]
    Shapes,
}

impl Tensor {
    /// The members of a list; none for a number.
    pub fn items(&self) -> Option<&[Tensor]> {
        match self {
            Self::Number(_) => None,
            Self::List(items) => Some(items),
        }
    }

    /// The numbers of a list of numbers; none for anything else.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let number = |item: &Tensor| {
            if let Self::Number(value) = item {
                Some(*value)
            } else {
                None
            }
        };
        self.items()?.iter().map(number).collect()
    }

    /// Whether both have the same rank and lengths.
    pub fn same_shape(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(_), Self::Number(_)) => true,
            (Self::List(a), Self::List(b)) => same_shapes(a, b),
            _ => false,
        }
    }

    fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Number(value) => Self::Number(value * factor),
            Self::List(items) => items.iter().map(|item| item.scaled(factor)).collect(),
        }
    }

    fn add_scaled(&mut self, other: &Self, factor: f64) {
        match (self, other) {
            (Self::Number(sum), Self::Number(value)) => *sum += value * factor,
            (Self::List(sums), Self::List(items)) => {
                sums.iter_mut()
                    .zip(items)
                    .for_each(|(sum, item)| sum.add_scaled(item, factor));
            }
            _ => {}
        }
    }
}

impl From<&[f64]> for Tensor {
    fn from(numbers: &[f64]) -> Self {
        numbers.iter().copied().map(Self::Number).collect()
    }
}

impl FromIterator<Tensor> for Tensor {
    fn from_iter<I: IntoIterator<Item = Tensor>>(items: I) -> Self {
        Self::List(items.into_iter().collect())
    }
}

/// Whether both lists of arrays have the same shapes, one by one.
pub fn same_shapes(a: &[Tensor], b: &[Tensor]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_shape(b))
}

/// Federated averaging: the mean of the participants' weights, each counted by its number of samples.
pub fn federated_average(parts: &[(u32, &[Tensor])]) -> Result<Vec<Tensor>, AverageError> {
    let total: f64 = parts.iter().map(|(samples, _)| f64::from(*samples)).sum();
    let [(first_samples, first), rest @ ..] = parts else {
        return Err(AverageError::NoSamples);
    };
    if total == 0.0 {
        return Err(AverageError::NoSamples);
    }
    let share = |samples: u32| f64::from(samples) / total;
    let mut sums: Vec<Tensor> = first.iter().map(|array| array.scaled(share(*first_samples))).collect();
    for (samples, weights) in rest {
        if !same_shapes(first, weights) {
            return Err(AverageError::Shapes);
        }
        sums.iter_mut()
            .zip(*weights)
            .for_each(|(sum, array)| sum.add_scaled(array, share(*samples)));
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::{AverageError, Tensor, federated_average};

    fn tensors(json: &str) -> Vec<Tensor> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_average_counts_each_participant_by_its_samples() {
        let (a, b) = (
            tensors("[[[0, 4], [8, 1]], [2.0], 3]"),
            tensors("[[[4, 0], [0, 1]], [-2.0], 7]"),
        );
        let average = federated_average(&[(3, &a), (1, &b)]).unwrap();
        assert_eq!(average, tensors("[[[1, 3], [6, 1]], [1.0], 4]"));
    }

    #[test]
    fn one_participant_gets_back_what_it_sent() {
        let weights = tensors("[[0.1, 0.2, 0.3]]");
        assert_eq!(federated_average(&[(7, &weights)]).unwrap(), weights);
    }

    #[test]
    fn shapes_that_differ_and_no_samples_are_refused() {
        let (a, b, c) = (tensors("[[1, 2]]"), tensors("[[1, 2, 3]]"), tensors("[[[1, 2]]]"));
        assert_eq!(federated_average(&[(1, &a), (1, &b)]), Err(AverageError::Shapes));
        assert_eq!(federated_average(&[(1, &a), (1, &c)]), Err(AverageError::Shapes));
        assert_eq!(federated_average(&[(0, &a), (0, &a)]), Err(AverageError::NoSamples));
        assert_eq!(federated_average(&[]), Err(AverageError::NoSamples));
    }
}
