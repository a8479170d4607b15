//! Figures, and how they are printed: a table for people, one JSON object a line for programs.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, print};

/// What was measured at one size of the load.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// The circumstances: the size of the load, the API server's version, ….
    pub(super) conditions: Map<String, Value>,
    figures: Vec<(String, f64, &'static str)>,
}

impl Round {
    /// Under these circumstances.
    pub(super) fn new(conditions: Map<String, Value>) -> Self {
        Self {
            conditions,
            figures: Vec::new(),
        }
    }

    /// Takes down a figure.
    pub(super) fn took(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push((name.into(), value, unit));
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.figures
            .iter()
            .find_map(|(known, value, _)| (known == name).then_some(*value))
    }
}

/// One line of what programs read.
#[derive(Serialize)]
struct Line<'a> {
    name: String,
    value: f64,
    unit: &'a str,
    conditions: &'a Map<String, Value>,
}

/// Prints two rounds, the second with twice the load of the first, and how each figure grew.
pub(super) fn report(bench: &str, small: &Round, large: &Round, json: bool) -> Result<(), Failure> {
    print(&if json {
        lines(bench, small, large)?
    } else {
        table(bench, small, large)
    })
}

fn lines(bench: &str, small: &Round, large: &Round) -> Result<String, Failure> {
    let mut text = String::new();
    let mut line = |line: Line<'_>| {
        let line =
            serde_json::to_string(&line).map_err(|error| Failure::new(error, "this is a defect: please report it"))?;
        text.push_str(&line);
        text.push('\n');
        Ok::<_, Failure>(())
    };
    for round in [small, large] {
        for (name, value, unit) in &round.figures {
            let (name, conditions) = (format!("{bench}.{name}"), &round.conditions);
            let value = *value;
            line(Line {
                name,
                value,
                unit,
                conditions,
            })?;
        }
    }
    let both: Map<_, _> = [("from", &small.conditions), ("to", &large.conditions)]
        .map(|(key, conditions)| (key.to_owned(), json!(conditions)))
        .into_iter()
        .collect();
    for (name, value) in growth(small, large) {
        line(Line {
            name: format!("{bench}.{name}.growth"),
            value,
            unit: "ratio",
            conditions: &both,
        })?;
    }
    Ok(text)
}

/// How many times the figure of the smaller load that of the larger is; left out where the smaller is nought.
fn growth(small: &Round, large: &Round) -> BTreeMap<String, f64> {
    let pairs = small
        .figures
        .iter()
        .filter_map(|(name, value, _)| Some((name.clone(), *value, large.value(name)?)));
    pairs
        .filter(|(_, before, _)| *before > 0.0)
        .map(|(name, before, after)| (name, after / before))
        .collect()
}

fn table(bench: &str, small: &Round, large: &Round) -> String {
    let growth = growth(small, large);
    let mut text = String::new();
    for (index, round) in [small, large].into_iter().enumerate() {
        let conditions: Vec<_> = round
            .conditions
            .iter()
            .map(|(key, value)| {
                format!(
                    "{key} {}",
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                )
            })
            .collect();
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{bench}, round {}: {}", index + 1, conditions.join(", "));
    }
    let _ = writeln!(
        text,
        "\n{:44} {:>14} {:>14} {:>8}  unit",
        "", "round 1", "round 2", "growth"
    );
    for (name, value, unit) in &small.figures {
        let after = large.value(name).map(number).unwrap_or_default();
        let growth = growth.get(name).map(|ratio| format!("x{ratio:.2}")).unwrap_or_default();
        let _ = writeln!(text, "{name:44} {:>14} {after:>14} {growth:>8}  {unit}", number(*value));
    }
    text
}

/// Three digits where there are fewer before the point.
fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 && value.fract() != 0.0 => format!("{value:.3}"),
        middle if middle < 1000.0 && value.fract() != 0.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(services: u32, seconds: f64) -> Round {
        let mut round = Round::new(Map::from_iter([("services".to_owned(), json!(services))]));
        round.took("seconds", seconds, "s");
        round.took("throttled", 0.0, "requests");
        round
    }

    #[test]
    fn programs_read_one_object_a_line() {
        let text = lines("plane", &round(10, 2.0), &round(20, 5.0)).unwrap();
        let read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(read.len(), 5, "{text}");
        assert_eq!(
            read.first().unwrap(),
            &json!({"name": "plane.seconds", "value": 2.0, "unit": "s", "conditions": {"services": 10}})
        );
        let growth = read.last().unwrap();
        assert_eq!(growth["name"], "plane.seconds.growth");
        assert_eq!(growth["value"], 2.5);
        assert_eq!(growth["conditions"]["to"]["services"], 20);
    }

    #[test]
    fn people_read_both_rounds_and_the_growth_in_a_row() {
        let text = table("plane", &round(10, 2.0), &round(20, 5.0));
        let row = text.lines().find(|line| line.starts_with("seconds")).unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, ["seconds", "2", "5", "x2.50", "s"]);
        assert!(text.contains("round 1: services 10"), "{text}");
    }
}
