//! What the benches' figures are held to: some always, and those of speed and memory where the load is large, which alone tells
//! of them.

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
    figures: &'static [&'static str],
}

#[derive(Debug)]
enum Limit {
    Most(f64),
    Least(f64),
    /// How many times the first value the last one is at most. Of what was nought at first, no growth is printed.
    GrowsAtMost(f64),
    /// The same at least.
    GrowsAtLeast(f64),
    /// So many times another figure of the same round at most.
    MostTimes(f64, &'static str),
    /// At most as many as there are resources.
    Resources,
}

/// The manager's bench.
pub const MANAGER: Bounds = Bounds {
    always: &[
        // No request was turned away for want of room.
        Bound {
            limit: Limit::Most(0.0),
            figures: &["control_plane.api_calls_throttled"],
        },
        // A resource waits for a pass once, however often it is heard of.
        Bound {
            limit: Limit::Resources,
            figures: &["control_plane.queue_depth_peak"],
        },
    ],
    large: &[
        // Twice the number costs 2.2 times the time at most.
        Bound {
            limit: Limit::GrowsAtMost(2.2),
            figures: &[
                "control_plane.children_present_seconds",
                "control_plane.recreate_seconds",
                "control_plane.recreate_seconds.again",
            ],
        },
        Bound {
            limit: Limit::GrowsAtLeast(2.0 / 2.2),
            figures: &["control_plane.edits_per_second", "control_plane.edits_per_second.again"],
        },
        // Memory does not grow with what was done: once all was done a second time, and once nothing is left.
        Bound {
            limit: Limit::MostTimes(1.1, "control_plane.manager_rss_after_churn_bytes"),
            figures: &[
                "control_plane.manager_rss_after_churn_bytes.again",
                "control_plane.manager_rss_emptied_bytes",
            ],
        },
    ],
};

/// The edge link's bench.
pub const EDGE: Bounds = Bounds {
    always: &[
        Bound {
            limit: Limit::Most(0.0),
            figures: &[
                "edge.deleted",
                "edge.edits_unacked",
                "edge.edits_unacked.services",
                "edge.held_in_excess",
                "edge.lost",
                "edge.out_of_order",
                "edge.stale_final_versions",
            ],
        },
        // An edit may be undercut by a newer one, and none is told twice.
        Bound {
            limit: Limit::Most(1.0),
            figures: &["edge.bodies_per_edit", "edge.bodies_per_edit.services"],
        },
    ],
    large: &[
        // Nodes have at least 80 % of what the API server takes in writes by itself. A service's edit is several.
        Bound {
            limit: Limit::Least(0.8),
            figures: &[
                "edge.share_of_api_server_alone",
                "edge.writes_share_of_api_server_alone.services",
            ],
        },
    ],
};

impl Bounds {
    /// Which figures are not as they should be, and how they should be.
    pub fn broken(self, figures: &[Figure], large: bool) -> Vec<String> {
        let large = if large { self.large } else { &[] };
        let bounds = self.always.iter().chain(large);
        bounds.flat_map(|bound| bound.broken(figures)).collect()
    }
}

impl Bound {
    fn broken(&self, figures: &[Figure]) -> Vec<String> {
        let of = |name: &&str| self.limit.broken_by(name, figures);
        self.figures.iter().flat_map(of).collect()
    }
}

impl Limit {
    fn broken_by(&self, name: &str, figures: &[Figure]) -> Vec<String> {
        let growth = format!("{name}.growth");
        let judged = match self {
            Self::GrowsAtMost(_) | Self::GrowsAtLeast(_) => growth.as_str(),
            Self::Most(_) | Self::Least(_) | Self::MostTimes(..) | Self::Resources => name,
        };
        let mut found = named(judged, figures).peekable();
        if found.peek().is_none() && !self.may_lack(name, figures) {
            return vec![format!("no such figure: {judged}")];
        }
        found.filter_map(|figure| self.broken_at(figure, figures)).collect()
    }

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
    /// How many resources there were; what all of them name is one Dataset and three Models.
    fn resources(&self) -> f64 {
        let number = |of: &str| self.conditions.get(of).and_then(Value::as_f64).unwrap_or_default();
        number("services") + number("jobs") + 4.0
    }
}

fn named<'a>(name: &str, figures: &'a [Figure]) -> impl Iterator<Item = &'a Figure> {
    figures.iter().filter(move |figure| figure.name == name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figure(name: &str, value: f64) -> Figure {
        let conditions = json!({"services": 10, "jobs": 3});
        serde_json::from_value(json!({"name": name, "value": value, "unit": "s", "conditions": conditions})).unwrap()
    }

    /// What a bench prints that keeps to all bounds.
    fn good(bounds: Bounds) -> Vec<Figure> {
        let mut figures = Vec::new();
        for bound in bounds.always.iter().chain(bounds.large) {
            for name in bound.figures {
                figures.push(figure(
                    name,
                    if matches!(bound.limit, Limit::Most(_)) {
                        0.0
                    } else {
                        1.0
                    },
                ));
                if matches!(bound.limit, Limit::GrowsAtMost(_) | Limit::GrowsAtLeast(_)) {
                    figures.push(figure(&format!("{name}.growth"), 1.0));
                }
            }
            if let Limit::MostTimes(_, other) = bound.limit {
                figures.push(figure(other, 1.0));
            }
        }
        figures
    }

    /// The same, but for one figure.
    fn but(bounds: Bounds, name: &str, value: f64) -> Vec<Figure> {
        let mut figures = good(bounds);
        let [figure] = &mut figures
            .iter_mut()
            .filter(|figure| figure.name == name)
            .collect::<Vec<_>>()[..]
        else {
            panic!("{name} is judged once")
        };
        figure.value = value;
        figures
    }

    #[test]
    fn figures_out_of_bounds_are_named() {
        for (bounds, name, good, bad) in [
            (MANAGER, "control_plane.api_calls_throttled", 0.0, 1.0),
            (MANAGER, "control_plane.children_present_seconds.growth", 2.2, 2.3),
            (MANAGER, "control_plane.edits_per_second.growth", 0.95, 0.9),
            (MANAGER, "control_plane.queue_depth_peak", 17.0, 18.0),
            (MANAGER, "control_plane.manager_rss_after_churn_bytes.again", 1.1, 1.2),
            (MANAGER, "control_plane.manager_rss_emptied_bytes", 1.1, 1.2),
            (EDGE, "edge.lost", 0.0, 1.0),
            (EDGE, "edge.bodies_per_edit", 1.0, 1.01),
            (EDGE, "edge.edits_unacked.services", 0.0, 1.0),
            (EDGE, "edge.share_of_api_server_alone", 0.8, 0.79),
            (EDGE, "edge.writes_share_of_api_server_alone.services", 0.8, 0.79),
        ] {
            assert_eq!(bounds.broken(&but(bounds, name, good), true), Vec::<String>::new());
            let [told] = &bounds.broken(&but(bounds, name, bad), true)[..] else {
                panic!("{name} {bad} is taken")
            };
            assert!(told.contains(name), "{told}");
        }
    }

    #[test]
    fn small_loads_tell_nothing_of_speed_and_memory() {
        for (bounds, name, bad) in [
            (MANAGER, "control_plane.recreate_seconds.growth", 3.0),
            (MANAGER, "control_plane.manager_rss_emptied_bytes", 2.0),
            (EDGE, "edge.share_of_api_server_alone", 0.5),
        ] {
            assert_eq!(bounds.broken(&but(bounds, name, bad), false), Vec::<String>::new());
            assert_eq!(bounds.broken(&but(bounds, name, bad), true).len(), 1, "{name}");
        }
        let throttled = but(MANAGER, "control_plane.api_calls_throttled", 1.0);
        assert_eq!(MANAGER.broken(&throttled, false).len(), 1);
    }

    #[test]
    fn a_figure_that_is_not_printed_keeps_no_bound() {
        for bounds in [MANAGER, EDGE] {
            assert_eq!(bounds.broken(&good(bounds), true), Vec::<String>::new());
            for left_out in good(bounds) {
                // What grows is there to tell whether it could have grown.
                if good(bounds)
                    .iter()
                    .any(|figure| figure.name == format!("{}.growth", left_out.name))
                {
                    continue;
                }
                let mut figures = good(bounds);
                figures.retain(|figure| figure.name != left_out.name);
                let told = bounds.broken(&figures, true);
                let missing = format!("no such figure: {}", left_out.name);
                assert!(
                    told.first().is_some_and(|told| told.starts_with(&missing)),
                    "{left_out}: {told:?}"
                );
            }
        }
        assert_eq!(
            EDGE.broken(&good(MANAGER), false).len(),
            9,
            "of the other bench nothing is wanted"
        );
    }

    #[test]
    fn what_was_nought_at_first_has_no_growth() {
        let name = "control_plane.recreate_seconds.again";
        let grew = format!("{name}.growth");
        let mut figures = but(MANAGER, name, 0.0);
        figures.retain(|figure| figure.name != grew);
        assert_eq!(MANAGER.broken(&figures, true), Vec::<String>::new());
        figures.retain(|figure| figure.name != name);
        assert_eq!(MANAGER.broken(&figures, true), [format!("no such figure: {grew}")]);
    }
}
