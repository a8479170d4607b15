//! What the figures of the benches are held to, whoever runs one: some always, those of speed and memory where the load is
//! large, which alone tells of them.
//!
//! Decides which figures are out of bounds. What is measured, how much of it, and when that is judged, is said elsewhere.

mod tables;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use tables::{EDGE, MANAGER, WHOLE_EDGE};

/// A figure, as a bench prints it for programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// What came of it.
    pub value: f64,
    /// In what.
    pub unit: String,
    /// The size of the load among others.
    pub conditions: Map<String, Value>,
}

impl fmt::Display for Figure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            unit,
            conditions,
        } = self;
        write!(
            out,
            "{name:64} {value:>18.4} {unit:14} {}",
            Value::from(conditions.clone())
        )
    }
}

/// What the figures of one bench are held to. It prints all of these, so that one that is missing is broken.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Whatever the size of the load is.
    always: &'static [Bound],
    /// Where the load is large enough that they tell something.
    large: &'static [Bound],
}

/// Which figures keep to a limit.
#[derive(Debug)]
struct Bound {
    limit: Limit,
    /// Only where this condition has this value; there has to be such a round.
    at: Option<(&'static str, f64)>,
    figures: &'static [&'static str],
}

#[derive(Debug)]
enum Limit {
    Most(f64),
    Least(f64),
    /// How many times the figure of the first round that of the last is at most, those aside that repeat the first. Of what was
    /// nought at first, no growth is printed.
    GrowsAtMost(f64),
    /// The same at least.
    GrowsAtLeast(f64),
    /// So many times another figure of the same round at most.
    MostTimes(f64, &'static str),
    /// At most as many as this condition of the round says.
    Condition(&'static str),
    /// At most as many as there are resources.
    Resources,
}

impl Bounds {
    /// Which figures are not as they should be, and how they should be.
    pub fn broken(self, figures: &[Figure], large: bool) -> Vec<String> {
        let large = if large { self.large } else { &[] };
        let bounds = self.always.iter().chain(large);
        bounds.flat_map(|bound| bound.broken(figures)).collect()
    }
}

impl Bound {
    const fn new(limit: Limit, figures: &'static [&'static str]) -> Self {
        Self {
            limit,
            at: None,
            figures,
        }
    }

    const fn at(limit: Limit, at: (&'static str, f64), figures: &'static [&'static str]) -> Self {
        let at = Some(at);
        Self { limit, at, figures }
    }

    fn broken(&self, figures: &[Figure]) -> Vec<String> {
        let of = |name: &&str| self.broken_by(name, figures);
        self.figures.iter().flat_map(of).collect()
    }

    fn broken_by(&self, name: &str, figures: &[Figure]) -> Vec<String> {
        let growth = format!("{name}.growth");
        let judged = match self.limit {
            Limit::GrowsAtMost(_) | Limit::GrowsAtLeast(_) => growth.as_str(),
            Limit::Most(_) | Limit::Least(_) | Limit::MostTimes(..) | Limit::Condition(_) | Limit::Resources => name,
        };
        let is_meant = |figure: &&Figure| self.at.is_none_or(|(of, value)| figure.condition(of) == Some(value));
        let mut found = named(judged, figures).filter(is_meant).peekable();
        if found.peek().is_none() && !self.limit.may_lack(name, figures) {
            let at = self.at.map(|(of, value)| format!(" with {of} {value}"));
            return vec![format!("no such figure: {judged}{}", at.unwrap_or_default())];
        }
        found
            .filter_map(|figure| self.limit.broken_at(figure, figures))
            .collect()
    }
}

impl Limit {
    /// Whether it is right that nothing is judged of a figure.
    fn may_lack(&self, name: &str, figures: &[Figure]) -> bool {
        let grows = matches!(self, Self::GrowsAtMost(_) | Self::GrowsAtLeast(_));
        grows && named(name, figures).next().is_some_and(|first| first.value <= 0.0)
    }

    fn broken_at(&self, figure: &Figure, figures: &[Figure]) -> Option<String> {
        let (least, most) = match self {
            Self::Most(most) | Self::GrowsAtMost(most) => (f64::NEG_INFINITY, *most),
            Self::Least(least) | Self::GrowsAtLeast(least) => (*least, f64::INFINITY),
            Self::MostTimes(times, other) => {
                let Some(other) = named(other, figures).find(|other| other.conditions == figure.conditions) else {
                    return Some(format!(
                        "no such figure: {other}, of which {times} times is the most of {figure}"
                    ));
                };
                (f64::NEG_INFINITY, times * other.value)
            }
            Self::Condition(of) => {
                let Some(most) = figure.condition(of) else {
                    return Some(format!("no such condition: {of}, which is the most of {figure}"));
                };
                (f64::NEG_INFINITY, most)
            }
            Self::Resources => (f64::NEG_INFINITY, figure.resources()),
        };
        let held = (least..=most).contains(&figure.value);
        (!held).then(|| match least {
            f64::NEG_INFINITY => format!("at most {most} is wanted: {figure}"),
            _ => format!("at least {least:.3} is wanted: {figure}"),
        })
    }
}

impl Figure {
    fn condition(&self, of: &str) -> Option<f64> {
        self.conditions.get(of).and_then(Value::as_f64)
    }

    /// How many resources there were; what all of a namespace name is one Dataset and three Models.
    fn resources(&self) -> f64 {
        let number = |of: &str| self.condition(of).unwrap_or_default();
        number("services") + number("jobs") + 4.0 * number("namespaces")
    }
}

fn named<'a>(name: &str, figures: &'a [Figure]) -> impl Iterator<Item = &'a Figure> {
    figures.iter().filter(move |figure| figure.name == name)
}

#[cfg(test)]
mod tests;
