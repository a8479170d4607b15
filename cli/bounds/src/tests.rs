//! Each bound, kept and broken.

use serde_json::json;

use super::*;

/// A figure of a round in which this condition was so.
fn figure_at(name: &str, value: f64, at: Option<(&str, f64)>) -> Figure {
    let mut conditions = json!({"services": 10, "jobs": 3, "namespaces": 2, "changed": 10});
    if let Some((of, value)) = at {
        conditions[of] = json!(value);
    }
    serde_json::from_value(json!({"name": name, "value": value, "unit": "s", "conditions": conditions})).unwrap()
}

fn figure(name: &str, value: f64) -> Figure {
    figure_at(name, value, None)
}

/// What a bench prints that keeps to all bounds.
fn good(bounds: Bounds) -> Vec<Figure> {
    let mut figures = Vec::new();
    for bound in bounds.always.iter().chain(bounds.large) {
        for name in bound.figures {
            let kept = match bound.limit {
                Limit::Most(_) => 0.0,
                Limit::Least(least) => least,
                _ => 1.0,
            };
            figures.push(figure_at(name, kept, bound.at));
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
        (MANAGER, "control_plane.nodes_given_up", 0.0, 1.0),
        (MANAGER, "control_plane.api_calls.patch", 1.0, 0.0),
        (MANAGER, "control_plane.children_present_seconds.growth", 2.2, 2.3),
        (MANAGER, "control_plane.edits_per_second.growth", 0.95, 0.9),
        (MANAGER, "control_plane.queue_depth_peak", 21.0, 22.0),
        (MANAGER, "control_plane.manager_rss_after_churn_bytes.again", 1.1, 1.2),
        (MANAGER, "control_plane.manager_rss_emptied_bytes", 1.1, 1.2),
        (EDGE, "edge.lost", 0.0, 1.0),
        (EDGE, "edge.missing_after_a_disturbance", 0.0, 1.0),
        (EDGE, "edge.least_edits_while_disturbed", 1.0, 0.0),
        (EDGE, "edge.bodies_per_edit", 1.0, 1.01),
        (EDGE, "edge.edits_unacked.services", 0.0, 1.0),
        (EDGE, "edge.share_of_api_server_alone", 0.8, 0.79),
        (EDGE, "edge.writes_share_of_api_server_alone.services", 0.8, 0.79),
        (WHOLE_EDGE, "edge.stale_final_versions", 0.0, 1.0),
        (WHOLE_EDGE, "edge.kind_again_lost", 0.0, 1.0),
        (WHOLE_EDGE, "edge.acked_edits_per_second", 1000.0, 999.0),
        (WHOLE_EDGE, "edge.acked_edits_per_second.services", 500.0, 499.0),
        (WHOLE_EDGE, "edge.edit_to_ack_p99_seconds.services", 1.0, 1.01),
        (WHOLE_EDGE, "edge.rss_per_connection_bytes.plain", 15_360.0, 15_361.0),
        (WHOLE_EDGE, "edge.rss_per_connection_bytes.tls", 40_960.0, 40_961.0),
        (
            WHOLE_EDGE,
            "edge.manager_rss_peak_bytes.plain",
            125_829_120.0,
            125_833_216.0,
        ),
        (
            WHOLE_EDGE,
            "edge.manager_rss_peak_bytes.tls",
            314_572_800.0,
            314_576_896.0,
        ),
        (WHOLE_EDGE, "edge.resume_bodies.new_epoch", 10.0, 11.0),
        (WHOLE_EDGE, "edge.far_share.acked_edits", 0.8, 0.79),
        (
            WHOLE_EDGE,
            "edge.localcontroller_rss_peak_bytes.tls",
            12_582_912.0,
            12_587_008.0,
        ),
        (WHOLE_EDGE, "edge.localcontroller_binary_bytes", 15e6, 15_000_001.0),
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
        (WHOLE_EDGE, "edge.acked_edits_per_second", 5.0),
    ] {
        assert_eq!(bounds.broken(&but(bounds, name, bad), false), Vec::<String>::new());
        assert_eq!(bounds.broken(&but(bounds, name, bad), true).len(), 1, "{name}");
    }
    let throttled = but(MANAGER, "control_plane.api_calls_throttled", 1.0);
    assert_eq!(MANAGER.broken(&throttled, false).len(), 1);
}

#[test]
fn a_figure_that_is_not_printed_keeps_no_bound() {
    for bounds in [MANAGER, EDGE, WHOLE_EDGE] {
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
        11,
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

#[test]
fn a_bound_of_one_size_is_judged_at_that_size_and_has_to_be() {
    let name = "edge.far_share.acked_edits";
    let mut figures = good(WHOLE_EDGE);
    figures.push(figure_at(name, 0.5, Some(("one_way_delay_ms", 300.0))));
    assert_eq!(WHOLE_EDGE.broken(&figures, true), Vec::<String>::new());
    figures.retain(|figure| figure.name != name || figure.condition("one_way_delay_ms") != Some(100.0));
    let missing = format!("no such figure: {name} with one_way_delay_ms 100");
    assert_eq!(WHOLE_EDGE.broken(&figures, true), [missing]);
}

#[test]
fn a_bound_that_a_condition_sets_needs_that_condition() {
    let mut figures = good(WHOLE_EDGE);
    for figure in &mut figures {
        figure.conditions.remove("changed");
    }
    let broken = WHOLE_EDGE.broken(&figures, true);
    assert_eq!(broken.len(), 2, "{broken:?}");
    assert!(
        broken.iter().all(|told| told.starts_with("no such condition: changed")),
        "{broken:?}"
    );
}
