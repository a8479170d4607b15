//! Nodes whose clocks are wrong by years: the manager's own clock is the one that decides.

use jiff::{SignedDuration, Timestamp};
use skerry_globalmanager::identity::Terms;

use super::{GRACE, HOUR};
use crate::{
    node::Node,
    party::{Cluster, Said},
};

#[tokio::test]
async fn a_node_whose_clock_is_wrong_by_years_joins_has_sessions_and_renews() {
    let cluster = Cluster::new().await;
    // What it issues is due at once, and good for as long as the grace.
    let terms = Terms {
        lifetime: SignedDuration::ZERO,
        grace: GRACE,
    };
    let manager = cluster.manager_for(terms).await;
    for (name, shows) in [("edge-1", "1971-01-01T00:00:00Z"), ("edge-2", "2090-01-01T00:00:00Z")] {
        let shows: Timestamp = shows.parse().unwrap();
        let mut node = Node::new(name).at(shows);
        node.join(&manager, &cluster.invite(name, HOUR).await).await.unwrap();
        assert_eq!(manager.session(&node, name).await, Said::Welcome, "{shows}");
        assert_eq!(node.renew(&manager).await, Ok(true), "{shows}");
        assert_eq!(manager.session(&node, name).await, Said::Welcome, "{shows}");
        let expires = node.expires().duration_since(Timestamp::now()).abs();
        assert!(
            expires < HOUR,
            "{shows}: its certificate has the manager's time: {expires:#}"
        );

        // Nor is a certificate due that has expired by the node's clock alone.
        let authority = cluster.authority().await;
        let mut young = Node::certified(name, &authority, &authority, Timestamp::now(), GRACE).at(shows);
        assert_eq!(young.renew(&manager).await, Ok(false), "{shows}");
        assert_eq!(manager.session(&young, name).await, Said::Welcome, "{shows}");
    }
}
