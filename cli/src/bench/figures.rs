//! Figures, and how they are printed: a table for people, one JSON object a line for programs.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map, Value, json};
use skerry_bounds::Figure;

use crate::failure::{Failure, print};

/// What was measured at one size of the load.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// The circumstances: the size of the load, the API server's version, ….
    pub(super) conditions: Map<String, Value>,
    figures: Vec<(String, f64, &'static str)>,
}

/// The condition of a round whose load was measured before: how many times.
const REPEATED: &str = "repeated";

impl Round {
    /// Under these circumstances.
    pub(super) fn new(conditions: Map<String, Value>) -> Self {
        Self {
            conditions,
            figures: Vec::new(),
        }
    }

    /// As one whose load was measured so many times before. Its conditions say so.
    pub(super) fn repeated(mut self, times: u32) -> Self {
        if times > 0 {
            self.conditions.insert(REPEATED.to_owned(), json!(times));
        }
        self
    }

    /// As one that was measured with so many others beside it. Its conditions say so.
    pub(super) fn beside(mut self, others: usize) -> Self {
        if others > 0 {
            self.conditions.insert("beside".to_owned(), json!(others));
        }
        self
    }

    fn is_repeated(&self) -> bool {
        self.conditions.contains_key(REPEATED)
    }

    fn repeats(&self, other: &Self) -> bool {
        let mut load = self.conditions.clone();
        load.remove(REPEATED).is_some() && load == other.conditions
    }

    /// Takes down a figure.
    pub(super) fn took(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push((name.into(), value, unit));
    }

    /// A figure that was taken down.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.figures
            .iter()
            .find_map(|(known, value, _)| (known == name).then_some(*value))
    }
}

/// The circumstances of a measurement, and with them those of any.
pub(super) fn conditions<'a>(own: impl IntoIterator<Item = (&'a str, Value)>, server: &str) -> Map<String, Value> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let all = [
        ("server", json!(server)),
        ("cores", json!(cores)),
        ("build", json!(if cfg!(debug_assertions) { "debug" } else { "release" })),
    ];
    let conditions = own.into_iter().chain(all);
    conditions.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The value that `share` percent of all, which are sorted, do not exceed.
pub(super) fn percentile(sorted: &[f64], share: usize) -> f64 {
    let index = (sorted.len() * share).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

/// Prints rounds of one measurement, and how each figure grew from the load of the first to that of the last that does not
/// repeat another. Returns all figures.
pub(super) fn report(bench: &str, rounds: &[Round], json: bool) -> Result<Vec<Figure>, Failure> {
    let figures = figures(bench, rounds);
    print(&if json { lines(&figures)? } else { table(bench, rounds) })?;
    Ok(figures)
}

fn lines(figures: &[Figure]) -> Result<String, Failure> {
    let mut text = String::new();
    for figure in figures {
        let line = serde_json::to_string(figure).map_err(Failure::defect)?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

fn figures(bench: &str, rounds: &[Round]) -> Vec<Figure> {
    let taken = rounds.iter().flat_map(|round| {
        let figures = round.figures.iter();
        figures.map(|(name, value, unit)| Figure {
            name: format!("{bench}.{name}"),
            value: *value,
            unit: (*unit).to_owned(),
            conditions: round.conditions.clone(),
        })
    });
    let mut figures: Vec<_> = taken.collect();
    let Some((first, last)) = compared(rounds) else {
        return figures;
    };
    let both: Map<_, _> = [("from", &first.conditions), ("to", &last.conditions)]
        .map(|(key, conditions)| (key.to_owned(), json!(conditions)))
        .into_iter()
        .collect();
    figures.extend(growth(rounds).into_iter().map(|(name, value)| Figure {
        name: format!("{bench}.{name}.growth"),
        value,
        unit: "ratio".to_owned(),
        conditions: both.clone(),
    }));
    figures
}

/// The first round, and the last one that does not repeat another.
fn compared(rounds: &[Round]) -> Option<(&Round, &Round)> {
    let (first, others) = rounds.split_first()?;
    Some((first, others.iter().rfind(|round| !round.is_repeated())?))
}

/// How many times the figure of the first round that of the last is which does not repeat another; left out where the first is
/// nought. Where one was repeated, its figure is the mean.
fn growth(rounds: &[Round]) -> BTreeMap<String, f64> {
    let Some((first, last)) = compared(rounds) else {
        return BTreeMap::new();
    };
    let mean = |of: &Round, name: &str, value: f64| {
        let again = rounds.iter().filter(|round| round.repeats(of));
        let again = again.filter_map(|round| round.value(name));
        let (sum, number) = again.fold((value, 1.0), |(sum, number), value| (sum + value, number + 1.0));
        sum / number
    };
    let pairs = first.figures.iter().filter_map(|(name, before, _)| {
        let after = last.value(name)?;
        Some((name.clone(), mean(first, name, *before), mean(last, name, after)))
    });
    pairs
        .filter(|(_, before, _)| *before > 0.0)
        .map(|(name, before, after)| (name, after / before))
        .collect()
}

fn table(bench: &str, rounds: &[Round]) -> String {
    let growth = growth(rounds);
    let mut text = String::new();
    let mut head = format!("\n{:44}", "");
    for (index, round) in rounds.iter().enumerate() {
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
        let _ = write!(head, " {:>14}", format!("round {}", index + 1));
    }
    let _ = writeln!(text, "{head} {:>8}  unit", "growth");
    let mut told: Vec<&str> = Vec::new();
    for (name, _, unit) in rounds.iter().flat_map(|round| &round.figures) {
        if told.contains(&name.as_str()) {
            continue;
        }
        told.push(name);
        let _ = write!(text, "{name:44}");
        for round in rounds {
            let _ = write!(text, " {:>14}", round.value(name).map(number).unwrap_or_default());
        }
        let growth = growth.get(name).map(|ratio| format!("x{ratio:.2}")).unwrap_or_default();
        let _ = writeln!(text, " {growth:>8}  {unit}");
    }
    text.push('\n');
    text
}

/// Three digits where there are fewer before the point.
fn number(value: f64) -> String {
    match value.abs() {
        tiny if tiny < 0.01 && tiny > 0.0 => format!("{value:.2e}"),
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
        let text = lines(&figures("plane", &[round(10, 2.0), round(20, 5.0)])).unwrap();
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
        let text = table("plane", &[round(10, 2.0), round(20, 5.0)]);
        let row = text.lines().find(|line| line.starts_with("seconds")).unwrap();
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, ["seconds", "2", "5", "x2.50", "s"]);
        assert!(text.contains("round 1: services 10"), "{text}");
    }

    #[test]
    fn a_machine_that_slows_down_meanwhile_is_told_from_what_grows() {
        let in_turn = |seconds: &[f64]| -> Vec<Round> {
            let loads = (0..).zip([10, 20].into_iter().cycle()).zip(seconds);
            loads
                .map(|((number, services), seconds)| round(services, *seconds).repeated(number / 2))
                .collect()
        };
        let rounds = in_turn(&[2.0, 5.0, 3.0]);
        assert_eq!(growth(&rounds).get("seconds"), Some(&2.0));
        let figures = figures("plane", &rounds);
        assert_eq!(figures.last().unwrap().conditions["to"]["services"], 20);
        let seconds = figures.iter().filter(|figure| figure.name == "plane.seconds");
        let repeated: Vec<_> = seconds.map(|figure| figure.conditions.get("repeated")).collect();
        assert_eq!(repeated, [None, None, Some(&json!(1))]);
        let rounds = in_turn(&[2.0, 5.0, 3.0, 7.0, 4.0]);
        assert_eq!(growth(&rounds).get("seconds"), Some(&2.0));
    }

    #[test]
    fn one_round_alone_does_not_grow() {
        assert_eq!(figures("plane", &[round(10, 2.0)]).len(), 2);
        assert!(!table("plane", &[round(10, 2.0)]).contains('x'));
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let waits: Vec<f64> = (1..=100).map(f64::from).collect();
        assert!((percentile(&waits, 50) - 50.0).abs() < f64::EPSILON);
        assert!((percentile(&waits, 99) - 99.0).abs() < f64::EPSILON);
        assert!((percentile(&[7.0], 99) - 7.0).abs() < f64::EPSILON);
    }
}
