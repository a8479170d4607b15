//! The hard-example filters of Sedna's worker library: does the small model's answer suffice, or should the large one
//! be asked?
//!
//! A malformed answer (empty, or with a score outside 0 to 1) is never hard. `BertRouter` routes text and is not here.

use serde::Deserialize;
use std::collections::BTreeMap;

use crate::env::{Env, EnvError};
use crate::rng::Rng;

/// `[xmin, ymin, xmax, ymax, score, …]`, as detectors answer.
pub type Detection = Vec<f64>;

/// What the small model says of a sample, in both forms that filters look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The probability of each class.
    pub probabilities: Vec<f64>,
    /// What was found, and where.
    pub boxes: Vec<Detection>,
}

/// A filter with its parameters.
#[derive(Debug, Clone)]
pub enum Filter {
    /// Hard when the mean score is below this.
    Threshold(f64),
    /// Hard when 1 minus the entropy, as a share of the largest possible one, is below this.
    CrossEntropy(f64),
    /// Hard when the share of boxes that score at most `boxes` is at least 1 − `image`.
    Ibt {
        /// `threshold_img`.
        image: f64,
        /// `threshold_box`.
        boxes: f64,
    },
    /// Hard with this probability.
    Random(f64, Rng),
    /// Always hard.
    CloudOnly,
    /// Never hard.
    EdgeOnly,
}

#[derive(Deserialize)]
struct Parameter {
    key: String,
    value: String,
}

impl Filter {
    /// The filter that `HEM_NAME` and `HEM_PARAMETERS` ask for; none is `EdgeOnly`, as in the library.
    pub fn from_env(env: &Env) -> Result<Self, EnvError> {
        const NAMES: &str = "Threshold, CrossEntropy, IBT, Random, CloudOnly or EdgeOnly";
        let mut parameters = Parameters::from_env(env)?;
        let filter = match env.get("HEM_NAME") {
            Some("Threshold") => Self::Threshold(parameters.take("threshold", 0.5)?),
            Some("CrossEntropy") => Self::CrossEntropy(parameters.take("threshold_cross_entropy", 0.5)?),
            Some("IBT") => Self::Ibt {
                image: parameters.take("threshold_img", 0.5)?,
                boxes: parameters.take("threshold_box", 0.5)?,
            },
            Some("Random") => Self::Random(parameters.take("random_ratio", 0.3)?, Rng::from_clock()),
            Some("CloudOnly") => Self::CloudOnly,
            Some("EdgeOnly") | None => Self::EdgeOnly,
            Some(other) => {
                return Err(EnvError::Invalid {
                    name: "HEM_NAME",
                    value: other.to_owned(),
                    wanted: NAMES.to_owned(),
                });
            }
        };
        parameters.none_left()?;
        Ok(filter)
    }

    /// Whether the large model should be asked.
    pub fn is_hard(&mut self, answer: &Answer) -> bool {
        match self {
            Self::Threshold(threshold) => mean_score(&answer.boxes).is_some_and(|mean| mean < *threshold),
            Self::CrossEntropy(threshold) => confidence(&answer.probabilities).is_some_and(|value| value < *threshold),
            Self::Ibt { image, boxes } => low_share(&answer.boxes, *boxes).is_some_and(|share| share >= 1.0 - *image),
            Self::Random(ratio, rng) => rng.unit() < *ratio,
            Self::CloudOnly => true,
            Self::EdgeOnly => false,
        }
    }
}

/// The scores of boxes; none where there is no box, or one without a proper score.
fn scores(boxes: &[Detection]) -> Option<Vec<f64>> {
    let score = |found: &Detection| found.get(4).copied().filter(|score| (0.0..=1.0).contains(score));
    boxes
        .iter()
        .map(score)
        .collect::<Option<Vec<_>>>()
        .filter(|scores| !scores.is_empty())
}

#[expect(clippy::cast_precision_loss, reason = "few boxes")]
fn mean_score(boxes: &[Detection]) -> Option<f64> {
    let scores = scores(boxes)?;
    Some(scores.iter().sum::<f64>() / scores.len() as f64)
}

#[expect(clippy::cast_precision_loss, reason = "few boxes")]
fn low_share(boxes: &[Detection], threshold: f64) -> Option<f64> {
    let scores = scores(boxes)?;
    Some(scores.iter().filter(|score| **score <= threshold).count() as f64 / scores.len() as f64)
}

/// 1 + Σ pᵢ ln pᵢ / ln n: 1 for a certain answer, 0 for one that tells nothing. 0 ln 0 counts as its limit, 0.
#[expect(clippy::cast_precision_loss, reason = "few classes")]
fn confidence(probabilities: &[f64]) -> Option<f64> {
    let valid = probabilities.len() > 1 && probabilities.iter().all(|p| (0.0..=1.0).contains(p));
    let entropy = || -> f64 { probabilities.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum() };
    valid.then(|| 1.0 + entropy() / (probabilities.len() as f64).ln())
}

/// `HEM_PARAMETERS`: `[{"key": …, "value": …}]`, or `null`.
struct Parameters {
    text: String,
    values: BTreeMap<String, String>,
}

impl Parameters {
    fn from_env(env: &Env) -> Result<Self, EnvError> {
        let text = env.get("HEM_PARAMETERS").unwrap_or("null").to_owned();
        let list: Result<Option<Vec<Parameter>>, _> = serde_json::from_str(&text);
        let Ok(list) = list else {
            return Err(Self::invalid(
                &text,
                r#"a JSON list of {"key": "…", "value": "…"}"#.into(),
            ));
        };
        let values = list
            .unwrap_or_default()
            .into_iter()
            .map(|parameter| (parameter.key, parameter.value))
            .collect();
        Ok(Self { text, values })
    }

    fn invalid(text: &str, wanted: String) -> EnvError {
        EnvError::Invalid {
            name: "HEM_PARAMETERS",
            value: text.to_owned(),
            wanted,
        }
    }

    fn take(&mut self, key: &str, default: f64) -> Result<f64, EnvError> {
        let Some(value) = self.values.remove(key) else {
            return Ok(default);
        };
        let number = value.trim().parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| Self::invalid(&self.text, format!("a number for {key}")))
    }

    /// A parameter that the filter does not have is a mistake that would otherwise go unseen.
    fn none_left(self) -> Result<(), EnvError> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(key) => Err(Self::invalid(
                &self.text,
                format!("a parameter that this filter has, instead of {key},"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(name: &str, parameters: &str) -> Result<Filter, EnvError> {
        Filter::from_env(
            &[("HEM_NAME", name), ("HEM_PARAMETERS", parameters)]
                .into_iter()
                .collect(),
        )
    }

    fn parameter(key: &str, value: f64) -> String {
        serde_json::json!([{"key": key, "value": value.to_string()}]).to_string()
    }

    fn scored(scores: &[f64]) -> Answer {
        let boxes = scores
            .iter()
            .map(|score| vec![0.0, 0.0, 8.0, 8.0, *score, 3.0])
            .collect();
        Answer {
            probabilities: scores.to_vec(),
            boxes,
        }
    }

    #[test]
    fn threshold_compares_the_mean_score() {
        for (scores, threshold, hard) in [
            (&[0.4, 0.8][..], 0.7, true),
            (&[0.4, 0.8], 0.6, false),
            (&[0.0], 0.0, false),
            (&[0.999], 1.0, true),
            (&[], 0.5, false),
            (&[1.5], 2.0, false),
        ] {
            let mut filter = filter("Threshold", &parameter("threshold", threshold)).unwrap();
            assert_eq!(filter.is_hard(&scored(scores)), hard, "{scores:?} at {threshold}");
        }
        let mut default = filter("Threshold", "null").unwrap();
        assert!(default.is_hard(&scored(&[0.49])) && !default.is_hard(&scored(&[0.5])));
        let too_short = Answer {
            probabilities: vec![],
            boxes: vec![vec![0.0, 0.0, 8.0, 8.0]],
        };
        assert!(!default.is_hard(&too_short));
    }

    #[test]
    fn cross_entropy_compares_the_confidence() {
        for (probabilities, threshold, hard) in [
            (&[0.5, 0.5][..], 0.1, true),
            (&[1.0, 0.0], 0.99, false),
            (&[0.9, 0.1], 0.5, false),
            (&[0.9, 0.1], 0.6, true),
            (&[], 0.5, false),
            (&[1.0], 0.5, false),
            (&[1.2, -0.2], 0.9, false),
        ] {
            let mut filter = filter("CrossEntropy", &parameter("threshold_cross_entropy", threshold)).unwrap();
            assert_eq!(
                filter.is_hard(&scored(probabilities)),
                hard,
                "{probabilities:?} at {threshold}"
            );
        }
    }

    #[test]
    fn ibt_counts_boxes_of_low_score() {
        for (scores, image, boxes, hard) in [
            (&[0.2, 0.9, 0.9, 0.9][..], 0.75, 0.5, true),
            (&[0.2, 0.9, 0.9, 0.9], 0.7, 0.5, false),
            (&[0.5, 0.9], 0.5, 0.5, true),
            (&[0.2], 0.0, 0.5, true),
            (&[0.9], 0.9, 0.5, false),
            (&[], 1.0, 1.0, false),
        ] {
            let parameters = serde_json::json!([
                {"key": "threshold_img", "value": image.to_string()},
                {"key": "threshold_box", "value": boxes.to_string()},
            ]);
            let mut filter = filter("IBT", &parameters.to_string()).unwrap();
            assert_eq!(filter.is_hard(&scored(scores)), hard, "{scores:?}, {image}, {boxes}");
        }
    }

    #[test]
    fn the_filters_that_do_not_look() {
        let answer = scored(&[]);
        assert!(filter("CloudOnly", "null").unwrap().is_hard(&answer));
        assert!(!filter("EdgeOnly", "[]").unwrap().is_hard(&answer));
        assert!(!filter("", "").unwrap().is_hard(&answer));
        let share = |ratio| {
            let mut filter = filter("Random", &parameter("random_ratio", ratio)).unwrap();
            (0..10_000).filter(|_| filter.is_hard(&answer)).count()
        };
        assert_eq!((share(0.0), share(1.0)), (0, 10_000));
        assert!((2_800..3_200).contains(&share(0.3)));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |name, parameters: &str| filter(name, parameters).unwrap_err().to_string();
        assert!(error("Treshold", "null").starts_with(r#"HEM_NAME is "Treshold""#));
        assert!(error("BertRouter", "null").contains("CrossEntropy"));
        assert!(error("Threshold", "{}").starts_with("HEM_PARAMETERS is"));
        assert!(error("Threshold", &parameter("treshold", 0.5)).contains("instead of treshold"));
        assert!(error("IBT", r#"[{"key": "threshold_img", "value": "high"}]"#).contains("a number for threshold_img"));
    }
}
