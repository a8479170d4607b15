//! The handwritten digits: the file in this tree, how it is divided, and the CSV files that workers read.
//!
//! Every sample is in exactly one part, and the division is the same on every machine. `examples/data/README.md` names
//! the source.

use std::path::{Path, PathBuf};

use crate::rng::Rng;

/// Pixels of an image: 8 rows of 8.
pub const PIXELS: usize = 64;
/// The digits 0 to 9.
pub const CLASSES: usize = 10;
/// The largest value of a pixel.
pub const WHITE: f64 = 16.0;

/// All samples, as published: 64 pixels and the digit in each line, no header.
const DIGITS: &str = include_str!("../../data/digits.csv");
/// Fixes which sample goes to which part.
const SPLIT_SEED: u64 = 1998;
/// The samples of which the accuracy of a model is judged; no trainer sees them.
const TEST_SAMPLES: usize = 400;
/// The samples that joint inference meets; neither training nor judging sees them.
const STREAM_SAMPLES: usize = 400;
/// The first trainer's node mostly meets the digits below this one, the second mostly the others.
const FIRST_OF_SECOND_TRAINER: usize = 6;
/// One in so many samples lies with the trainer that mostly meets other digits.
const STRAY_ONE_IN: usize = 40;

/// An image and what it shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// 64 grey values from 0 to 16, row by row.
    pub pixels: Vec<f64>,
    /// The digit, 0 to 9.
    pub label: usize,
}

/// The digits, divided.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// What the two trainers have: unequal in number, and hardly a digit in common.
    pub train: [Vec<Sample>; 2],
    /// What models are judged by.
    pub test: Vec<Sample>,
    /// What joint inference meets.
    pub stream: Vec<Sample>,
}

/// Why samples cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file cannot be read.
    #[error("cannot read samples from {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line is not a sample.
    #[error("{path}, line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong and what is wanted.
        problem: String,
    },
    /// There is no sample in the file.
    #[error("{0} has no samples: lines of 64 pixels and a digit are wanted")]
    Empty(PathBuf),
}

impl Parts {
    /// The digits that are compiled in, divided.
    pub fn built_in() -> Result<Self, DataError> {
        let mut samples = parse(DIGITS, Path::new("digits.csv"))?;
        Rng::new(SPLIT_SEED).shuffle(&mut samples);
        let stream = samples.split_off(samples.len().saturating_sub(STREAM_SAMPLES));
        let test = samples.split_off(samples.len().saturating_sub(TEST_SAMPLES));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for (index, sample) in samples.into_iter().enumerate() {
            let stray = index % STRAY_ONE_IN == 0;
            let to_second = (sample.label >= FIRST_OF_SECOND_TRAINER) != stray;
            if to_second { &mut second } else { &mut first }.push(sample);
        }
        Ok(Self {
            train: [first, second],
            test,
            stream,
        })
    }

    /// Each part and the name of its file.
    pub fn files(&self) -> [(&'static str, &[Sample]); 4] {
        let [first, second] = &self.train;
        [
            ("train-1.csv", first),
            ("train-2.csv", second),
            ("test.csv", &self.test),
            ("stream.csv", &self.stream),
        ]
    }
}

/// The samples of a CSV file: 64 pixels and the digit in each line, with or without a header.
pub fn read(path: &Path) -> Result<Vec<Sample>, DataError> {
    let text = std::fs::read_to_string(path).map_err(|source| DataError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text, path)
}

/// The samples as CSV with a header, which Sedna's count of a Dataset's samples expects.
pub fn to_csv(samples: &[Sample]) -> String {
    let header = (0..PIXELS)
        .map(|pixel| format!("pixel_{}_{}", pixel / 8, pixel % 8))
        .chain(["digit".to_owned()]);
    let mut lines = vec![header.collect::<Vec<_>>().join(",")];
    for Sample { pixels, label } in samples {
        let fields = pixels.iter().map(f64::to_string).chain([label.to_string()]);
        lines.push(fields.collect::<Vec<_>>().join(","));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn parse(text: &str, path: &Path) -> Result<Vec<Sample>, DataError> {
    let is_header = |line: &str| line.starts_with(|first: char| first.is_ascii_alphabetic());
    let lines = text.lines().enumerate();
    let samples = lines
        .filter(|(index, line)| !(line.trim().is_empty() || *index == 0 && is_header(line)))
        .map(|(index, line)| {
            parse_line(line).map_err(|problem| DataError::Line {
                path: path.to_owned(),
                line: index + 1,
                problem,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    if samples.is_empty() {
        Err(DataError::Empty(path.to_owned()))
    } else {
        Ok(samples)
    }
}

fn parse_line(line: &str) -> Result<Sample, String> {
    let (pixels, label) = line
        .rsplit_once(',')
        .ok_or("64 pixels and a digit, with commas between, are wanted")?;
    let pixels = pixels.split(',').map(|pixel| {
        let value = pixel.trim().parse().ok().filter(|value| (0.0..=WHITE).contains(value));
        value.ok_or_else(|| format!("the pixel {pixel:?} is not a number from 0 to 16"))
    });
    let pixels = pixels.collect::<Result<Vec<f64>, _>>()?;
    if pixels.len() != PIXELS {
        return Err(format!("{} pixels, 64 are wanted", pixels.len()));
    }
    let digit = label.trim().parse().ok().filter(|label| *label < CLASSES);
    Ok(Sample {
        pixels,
        label: digit.ok_or_else(|| format!("the last field {label:?} is not a digit from 0 to 9"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn labels(samples: &[Sample]) -> [usize; CLASSES] {
        let mut counts = [0; CLASSES];
        for sample in samples {
            counts[sample.label] += 1;
        }
        counts
    }

    /// The table in `examples/data/README.md`; a change of it makes other data sets of the same names.
    #[test]
    fn the_division_is_the_documented_one() {
        let parts = Parts::built_in().unwrap();
        let counts = parts
            .files()
            .map(|(name, samples)| (name, samples.len(), labels(samples)));
        assert_eq!(
            counts,
            [
                ("train-1.csv", 609, [111, 99, 98, 87, 102, 103, 5, 2, 0, 2]),
                ("train-2.csv", 388, [1, 3, 5, 1, 1, 5, 90, 90, 97, 95]),
                ("test.csv", 400, [27, 51, 40, 54, 29, 32, 45, 43, 41, 38]),
                ("stream.csv", 400, [39, 29, 34, 41, 49, 42, 41, 44, 36, 45]),
            ]
        );
    }

    #[test]
    fn every_sample_is_in_one_part() {
        let count = |samples: &[Sample]| {
            let mut counts = BTreeMap::new();
            for line in to_csv(samples).lines().skip(1) {
                *counts.entry(line.to_owned()).or_insert(0) += 1;
            }
            counts
        };
        let divided: Vec<Sample> = Parts::built_in()
            .unwrap()
            .files()
            .iter()
            .flat_map(|(_, part)| part.to_vec())
            .collect();
        let all = parse(DIGITS, Path::new("digits.csv")).unwrap();
        assert_eq!((all.len(), count(&all)), (1797, count(&divided)));
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.csv");
        let samples = Parts::built_in().unwrap().stream;
        std::fs::write(&path, to_csv(&samples)).unwrap();
        assert!(read(&path).unwrap() == samples);
        assert_eq!(
            to_csv(&samples).lines().count(),
            samples.len() + 1,
            "Sedna counts one line as the header"
        );
    }

    #[test]
    fn mistakes_are_named_by_file_and_line() {
        let good = to_csv(&Parts::built_in().unwrap().stream[..1]);
        let sample = good.lines().nth(1).unwrap();
        let error = |text: &str| parse(text, Path::new("s.csv")).unwrap_err().to_string();
        assert!(error(&format!("{sample}\n1,2,3\n")).starts_with("s.csv, line 2: 2 pixels, 64 are wanted"));
        assert!(error(&sample.replacen("0,", "17,", 1)).contains(r#"the pixel "17""#));
        assert!(error(&format!("{}x", &sample[..sample.len() - 1])).contains("not a digit"));
        assert!(error("pixel,digit\n").contains("no samples"));
    }
}
