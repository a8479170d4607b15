//! What the benches' figures are held to, where their control plane has nothing else to do.

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

/// A figure, as the bench prints it for programs.
#[derive(Debug, Deserialize)]
pub struct Figure {
    name: String,
    value: f64,
    unit: String,
    /// The size of the load among others.
    conditions: Map<String, Value>,
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

/// Which figures keep to a bound, and to which.
struct Bound {
    figures: &'static [&'static str],
    least: f64,
    most: f64,
}

/// Whatever the size of the load is.
const ALWAYS: [Bound; 3] = [
    // No request was turned away for want of room.
    Bound::most(0.0, &["control_plane.api_calls_throttled"]),
    Bound::most(
        0.0,
        &[
            "edge.deleted",
            "edge.edits_unacked",
            "edge.edits_unacked.services",
            "edge.held_in_excess",
            "edge.lost",
            "edge.out_of_order",
            "edge.stale_final_versions",
        ],
    ),
    // An edit may be undercut by a newer one, and none is told twice.
    Bound::most(1.0, &["edge.bodies_per_edit", "edge.bodies_per_edit.services"]),
];

/// Where the load is large enough that they tell of speed.
const SPEED: [Bound; 3] = [
    // Nodes have at least 80 % of what the API server takes in writes by itself. A service's edit is several.
    Bound::least(
        0.8,
        &[
            "edge.share_of_api_server_alone",
            "edge.writes_share_of_api_server_alone.services",
        ],
    ),
    // Twice the number costs 2.2 times the time at most.
    Bound::most(
        2.2,
        &[
            "control_plane.children_present_seconds.growth",
            "control_plane.recreate_seconds.growth",
            "control_plane.recreate_seconds.again.growth",
        ],
    ),
    Bound::least(
        2.0 / 2.2,
        &[
            "control_plane.edits_per_second.growth",
            "control_plane.edits_per_second.again.growth",
        ],
    ),
];

/// How much more memory the manager may hold once all was done a second time, and once nothing is left.
const FLAT: f64 = 1.1;

impl Bound {
    const fn most(most: f64, figures: &'static [&'static str]) -> Self {
        Self {
            figures,
            least: f64::NEG_INFINITY,
            most,
        }
    }

    const fn least(least: f64, figures: &'static [&'static str]) -> Self {
        Self {
            figures,
            least,
            most: f64::INFINITY,
        }
    }

    fn broken_by(&self, figure: &Figure) -> Option<String> {
        let held = !self.figures.contains(&figure.name.as_str()) || (self.least..=self.most).contains(&figure.value);
        (!held).then(|| match self.least {
            f64::NEG_INFINITY => format!("at most {} is wanted: {figure}", self.most),
            least => format!("at least {least:.3} is wanted: {figure}"),
        })
    }
}

/// Which figures are not as they should be, and how they should be. Speed is judged where the load is `large` enough.
pub fn broken(figures: &[Figure], large: bool) -> Vec<String> {
    let speed: &[Bound] = if large { &SPEED } else { &[] };
    let bounds = || ALWAYS.iter().chain(speed);
    let alone = figures
        .iter()
        .flat_map(|figure| bounds().filter_map(|bound| bound.broken_by(figure)));
    alone.chain(queues(figures)).chain(memory(figures)).collect()
}

/// A resource waits for a pass once, however often it is heard of.
fn queues(figures: &[Figure]) -> impl Iterator<Item = String> {
    let deepest = figures
        .iter()
        .filter(|figure| figure.name == "control_plane.queue_depth_peak");
    deepest.filter_map(|figure| {
        let number = |of: &str| figure.conditions.get(of).and_then(Value::as_f64).unwrap_or_default();
        // What all of them name is one Dataset and three Models.
        let most = number("services") + number("jobs") + 4.0;
        (figure.value > most).then(|| format!("at most {most} can wait, each once: {figure}"))
    })
}

/// Memory does not grow with what was done.
fn memory(figures: &[Figure]) -> impl Iterator<Item = String> {
    let first = figures
        .iter()
        .filter(|figure| figure.name == "control_plane.manager_rss_after_churn_bytes");
    first.flat_map(move |first| {
        let later = figures.iter().filter(|figure| {
            figure.conditions == first.conditions
                && [
                    "control_plane.manager_rss_after_churn_bytes.again",
                    "control_plane.manager_rss_emptied_bytes",
                ]
                .contains(&figure.name.as_str())
        });
        later
            .filter(|later| later.value > first.value * FLAT)
            .map(move |later| format!("at most {FLAT} times {first} is wanted: {later}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figure(name: &str, value: f64) -> Figure {
        let conditions = json!({"services": 10, "jobs": 3});
        serde_json::from_value(json!({"name": name, "value": value, "unit": "s", "conditions": conditions})).unwrap()
    }

    fn held(name: &str, value: f64) -> bool {
        broken(&[figure(name, value)], true).is_empty()
    }

    #[test]
    fn figures_out_of_bounds_are_named() {
        for (name, good, bad) in [
            ("control_plane.api_calls_throttled", 0.0, 1.0),
            ("control_plane.children_present_seconds.growth", 2.2, 2.3),
            ("control_plane.edits_per_second.growth", 0.95, 0.9),
            ("control_plane.queue_depth_peak", 17.0, 18.0),
            ("edge.lost", 0.0, 1.0),
            ("edge.bodies_per_edit", 1.0, 1.01),
            ("edge.edits_unacked.services", 0.0, 1.0),
            ("edge.share_of_api_server_alone", 0.8, 0.79),
            ("edge.writes_share_of_api_server_alone.services", 0.8, 0.79),
        ] {
            assert!(held(name, good), "{name} {good}");
            let [told] = &broken(&[figure(name, bad)], true)[..] else {
                panic!("{name} {bad} is taken")
            };
            assert!(told.contains(name), "{told}");
        }
        assert!(held("control_plane.children_present_seconds", 100.0));
    }

    #[test]
    fn small_loads_tell_nothing_of_speed() {
        let slow = [
            figure("control_plane.recreate_seconds.growth", 3.0),
            figure("edge.share_of_api_server_alone", 0.5),
            figure("control_plane.api_calls_throttled", 1.0),
        ];
        assert_eq!(broken(&slow, false).len(), 1);
        assert_eq!(broken(&slow, true).len(), 3);
    }

    #[test]
    fn memory_is_flat() {
        let first = || figure("control_plane.manager_rss_after_churn_bytes", 100.0);
        for later in [
            "control_plane.manager_rss_after_churn_bytes.again",
            "control_plane.manager_rss_emptied_bytes",
        ] {
            assert_eq!(broken(&[first(), figure(later, 110.0)], false), Vec::<String>::new());
            assert_eq!(broken(&[first(), figure(later, 120.0)], false).len(), 1);
        }
    }
}
