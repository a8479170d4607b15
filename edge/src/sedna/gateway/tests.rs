//! Which agents are remembered.

use super::*;
use crate::{Epoch, Object, ObjectKey, Position, node::Change};

#[tokio::test(start_paused = true)]
async fn one_that_has_gone_is_remembered_for_a_time_if_something_is_placed_on_it() {
    let agents = Agents::default();
    let (_, turn) = agents.connected("idle");
    agents.disconnected("idle", turn);
    assert_eq!(agents.lock().len(), 0, "nothing is placed on it");
    let (entry, turn) = agents.connected("edge-1");
    let object = Object {
        key: ObjectKey::new("dataset", "default", "d"),
        uid: "u".to_owned(),
        generation: 1,
        body: serde_json::json!({}).into(),
    };
    let (lease, transitions) = ("l".to_owned(), 0);
    let batch = Batch {
        changes: vec![Change::Put(object)],
        position: Position::start("c", Epoch { lease, transitions }),
    };
    entry.lock().agent.apply(Timestamp::UNIX_EPOCH, batch);
    agents.disconnected("edge-1", turn);
    tokio::time::advance(REMEMBERED / 2).await;
    let (_, turn) = agents.connected("edge-1");
    assert_eq!(entry.lock().number, turn, "it is the same");
    tokio::time::advance(2 * REMEMBERED).await;
    agents.connected("edge-2");
    assert!(agents.lock().contains_key("edge-1"), "it has been there all the time");
    agents.disconnected("edge-1", turn);
    tokio::time::advance(REMEMBERED).await;
    agents.connected("edge-3");
    assert!(!agents.lock().contains_key("edge-1"));
}
