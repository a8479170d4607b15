//! The bounds of each bench.

use super::{Bound, Bounds, Limit};

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;

/// Of the manager's bench, on a real control plane.
pub const MANAGER: Bounds = Bounds {
    always: &[
        // No request was turned away for want of room.
        Bound::new(Limit::Most(0.0), &["control_plane.api_calls_throttled"]),
        // What is measured beside the pods of a node that is given up is not the manager.
        Bound::new(Limit::Most(0.0), &["control_plane.nodes_given_up"]),
        // A resource waits for a pass once, however often it is heard of.
        Bound::new(Limit::Resources, &["control_plane.queue_depth_peak"]),
        // Of a manager that asks for nothing, nothing is turned away.
        Bound::new(Limit::Least(1.0), &["control_plane.api_calls.patch"]),
    ],
    large: &[
        // Twice the number costs 2.2 times the time at most.
        Bound::new(
            Limit::GrowsAtMost(2.2),
            &[
                "control_plane.children_present_seconds",
                "control_plane.recreate_seconds",
                "control_plane.recreate_seconds.again",
            ],
        ),
        Bound::new(
            Limit::GrowsAtLeast(2.0 / 2.2),
            &["control_plane.edits_per_second", "control_plane.edits_per_second.again"],
        ),
        // Memory does not grow with what was done: once all was done a second time, and once nothing is left.
        Bound::new(
            Limit::MostTimes(1.1, "control_plane.manager_rss_after_churn_bytes"),
            &[
                "control_plane.manager_rss_after_churn_bytes.again",
                "control_plane.manager_rss_emptied_bytes",
            ],
        ),
    ],
};

/// Of the edge link's bench, wherever edits and a burst of them are measured.
const EDITS: &[Bound] = &[
    Bound::new(
        Limit::Most(0.0),
        &[
            "edge.deleted",
            "edge.edits_unacked",
            "edge.edits_unacked.services",
            "edge.held_in_excess",
            "edge.lost",
            "edge.missing_after_a_disturbance",
            "edge.out_of_order",
            "edge.stale_final_versions",
        ],
    ),
    // A disturbance that nothing was under way at shows nothing.
    Bound::new(Limit::Least(1.0), &["edge.least_edits_while_disturbed"]),
    // An edit may be undercut by a newer one, and none is told twice.
    Bound::new(
        Limit::Most(1.0),
        &["edge.bodies_per_edit", "edge.bodies_per_edit.services"],
    ),
];

/// Of the edge link's bench, on a real control plane.
pub const EDGE: Bounds = Bounds {
    always: EDITS,
    large: &[
        // Nodes have at least 80 % of what the API server takes in writes by itself. A service's edit is several.
        Bound::new(
            Limit::Least(0.8),
            &[
                "edge.share_of_api_server_alone",
                "edge.writes_share_of_api_server_alone.services",
            ],
        ),
    ],
};

/// Of all that the edge link's bench measures without arguments, on an API server of its own. Large is its full size, in a release
/// build on two cores that nothing else uses.
pub const WHOLE_EDGE: Bounds = Bounds {
    always: EDITS,
    large: &[
        Bound::new(
            Limit::Most(0.0),
            &[
                "edge.kind_again_held_in_excess",
                "edge.kind_again_lost",
                "edge.kind_again_out_of_order",
                "edge.kind_again_stale_final_versions",
            ],
        ),
        Bound::at(Limit::Least(1000.0), NODES, &["edge.acked_edits_per_second"]),
        Bound::at(Limit::Least(500.0), NODES, &["edge.acked_edits_per_second.services"]),
        Bound::at(
            Limit::Most(1.0),
            NODES,
            &["edge.edit_to_ack_p99_seconds", "edge.edit_to_ack_p99_seconds.services"],
        ),
        Bound::at(
            Limit::Most(15.0 * KIB),
            CONNECTIONS,
            &["edge.rss_per_connection_bytes.plain"],
        ),
        Bound::at(
            Limit::Most(40.0 * KIB),
            CONNECTIONS,
            &["edge.rss_per_connection_bytes.tls"],
        ),
        Bound::at(
            Limit::Most(120.0 * MIB),
            SERVICES,
            &["edge.manager_rss_peak_bytes.plain"],
        ),
        Bound::at(Limit::Most(300.0 * MIB), SERVICES, &["edge.manager_rss_peak_bytes.tls"]),
        // What has not changed is not sent.
        Bound::new(
            Limit::Condition("changed"),
            &["edge.resume_bodies.same_epoch", "edge.resume_bodies.new_epoch"],
        ),
        // 100 ms cost a fifth of the throughput at most.
        Bound::at(
            Limit::Least(0.8),
            ("one_way_delay_ms", 100.0),
            &["edge.far_share.acked_edits", "edge.far_share.filled_objects"],
        ),
        Bound::new(
            Limit::Most(12.0 * MIB),
            &[
                "edge.localcontroller_rss_after_load_bytes",
                "edge.localcontroller_rss_after_load_bytes.tls",
                "edge.localcontroller_rss_bytes",
                "edge.localcontroller_rss_bytes.tls",
                "edge.localcontroller_rss_peak_bytes",
                "edge.localcontroller_rss_peak_bytes.tls",
            ],
        ),
        Bound::new(Limit::Most(15e6), &["edge.localcontroller_binary_bytes"]),
    ],
};

/// The sizes of these bounds: with less they are no achievement.
const NODES: (&str, f64) = ("nodes", 1000.0);
const CONNECTIONS: (&str, f64) = ("nodes", 10_000.0);
const SERVICES: (&str, f64) = ("services", 5000.0);
